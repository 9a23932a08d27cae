"""PPO with random network distillation: what N_envs parallel games and N_RO rollout steps do where reward is rare.

    python ppo_rnd_envpool.py --env-id MontezumaRevenge-v5

Papers: Schulman et al. 2017 (PPO); Burda et al. 2019, arXiv 1810.12894 (RND); Mayor et al. 2025, arXiv 2506.03404 (P1:
the diagnostics). Reference: CleanRL's cleanrl/ppo_rnd_envpool.py @fe8d8a0, with its algorithm, defaults and names.
Departures, each with its reason:

1. The step after `done` only resets: `valid` keeps it out of all. A truncated step bootstraps from the value of the
   real last observation, and ends a game's return. CleanRL does none of it (`--no-mask-resets` restores the first two).
2. The unit of the intrinsic rewards is the standard deviation of their discounted sums over time in each game, as in
   the paper's code; CleanRL sums over games (its issue #360), and counts a batch as N sums where T * N were made.
3. The predictor learns the frames that were paid for, those that the steps led to, as in the paper's code. CleanRL
   learns those before: with departure 1 the last frame of a life would never be learned, and dying would stay new.
4. uint8 frames, 1/255 folded into the first convolution, Gumbel-max sampling, fused Adam: the same, sooner done.
5. `--num-logs` points of means over all minibatches since the last, int_value_loss apart; a batch that minibatches do
   not divide is refused; runs resume. `--bf16`, `--compile`, `--cuda-graphs` and `--no-shared-encoder` are new.
"""

import contextlib
import difflib
import errno
import fcntl
import importlib.metadata
import io
import json
import math
import os
import platform
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Optional

import envpool
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
import tyro
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter
from tqdm import tqdm

import metrics

LOSSES = (
    "policy_loss",
    "value_loss",
    "entropy",
    "old_approx_kl",
    "approx_kl",
    "clipfrac",
    "int_value_loss",
    "fwd_loss",
    "grad_norm",
)
ROOM_BYTES = {"MontezumaRevenge-v5": [3, 57], "PrivateEye-v5": [92], "Venture-v5": [90]}  # in the RAM (AtariARI)
COVERAGE_ROWS = 4096  # in coverage.npz, over the whole run: as many as UMAP takes with ease
OBS_SHAPE = (84, 84, 4)  # channels last


# ---- Args ------------------------------------------------------------------------------------------------------------
@dataclass
class Args:
    exp_name: str = os.path.basename(__file__)[: -len(".py")]  # this experiment's part of the default run name
    seed: int = 1  # the seed of the network, of the sampled actions and of the environments
    torch_deterministic: bool = True  # makes cuDNN use deterministic kernels only
    cuda: bool = True  # runs on the GPU, if there is one
    track: bool = False  # mirrors the curves to Weights and Biases (`WANDB_MODE=offline` works without an account)
    wandb_project_name: str = "cleanRL"  # the project in Weights and Biases
    wandb_entity: Optional[str] = None  # the entity (team) in Weights and Biases
    capture_video: bool = False  # plays a game at the end (scripts/evaluate.py): `episode.mp4`, in colour
    run_name: Optional[str] = None  # the directory below runs-dir; default {env_id}__{exp_name}__{seed}__{unix time}
    runs_dir: str = "runs"  # the directory that holds the run directories
    num_logs: int = 1000  # the number of points in every curve (at most one an iteration)
    diagnostics: bool = True  # logs `diagnostics/`, `probe/` and `outer/` at those points
    probe_size: int = 1024  # rows of the batch that `probe/` looks at, so that its numbers compare across batch sizes
    checkpoint_minutes: float = 10.0  # minutes between checkpoints; 0 writes one after every iteration
    num_threads: int = 0  # CPU threads of PyTorch and of EnvPool; 0 takes every core, or OMP_NUM_THREADS
    # Algorithm specific arguments
    env_id: str = "MontezumaRevenge-v5"  # the id of EnvPool's Atari game
    repeat_action_probability: float = 0.25  # sticky actions: the chance that a frame repeats the action before
    total_timesteps: int = 2000000000  # environment steps of the whole run, over all environments (each is 4 frames)
    learning_rate: float = 1e-4  # the learning rate of Adam
    num_envs: int = 128  # the number of parallel games: N_envs
    num_steps: int = 128  # the number of steps in each game per rollout: N_RO
    anneal_lr: bool = True  # anneals the learning rate linearly to 0
    gamma: float = 0.999  # the discount factor
    gae_lambda: float = 0.95  # lambda of the generalised advantage estimation
    num_minibatches: int = 4  # minibatches per epoch; the batch is num_envs * num_steps
    minibatch_size: Optional[int] = None  # rows per minibatch, in place of num-minibatches (P3's recipe)
    update_epochs: int = 4  # passes over each batch
    norm_adv: bool = True  # normalises the advantages in each minibatch
    clip_coef: float = 0.1  # the clipping coefficient of the policy ratio, and of the value if clip-vloss
    clip_vloss: bool = True  # clips the value loss too
    ent_coef: float = 0.001  # the coefficient of the entropy
    vf_coef: float = 0.5  # the coefficient of the value loss
    max_grad_norm: float = 0.5  # the gradient's norm is clipped to this
    target_kl: Optional[float] = None  # ends the update after an epoch whose last minibatch has a larger approx_kl
    update_proportion: float = 0.25  # the share of each minibatch that the predictor learns from
    int_coef: float = 1.0  # the coefficient of the intrinsic advantages
    ext_coef: float = 2.0  # the coefficient of the extrinsic advantages
    int_gamma: float = 0.99  # the discount factor of the intrinsic rewards
    num_iterations_obs_norm_init: int = 50  # random rollouts before the run that start the frames' mean and variance
    shared_encoder: bool = True  # one convolutional encoder for actor and critic, or one for each
    mask_resets: bool = True  # trains on no reset row and bootstraps at time limits (departures 1 and 2)
    bf16: bool = False  # computes the encoder in bfloat16 (autocast); heads, RND, losses, GAE and Adam stay in float32
    tf32: bool = True  # lets NVIDIA GPUs multiply float32 numbers in TensorFloat-32
    compile: bool = False  # compiles the network and the loss with torch.compile: a minute at the start, a C++ compiler
    cuda_graphs: bool = False  # replays the policy and the update as CUDA graphs: one launch each; for NVIDIA GPUs


RANGES = {  # what is accepted, both ends included
    (1, 2**31 - 1): "num_envs num_steps num_minibatches minibatch_size update_epochs num_logs probe_size "
    "num_iterations_obs_norm_init",
    (0, 1): "gamma gae_lambda int_gamma update_proportion repeat_action_probability",
    (0, 1e12): "learning_rate checkpoint_minutes clip_coef ent_coef vf_coef int_coef ext_coef",
    (1e-12, 1e12): "max_grad_norm target_kl",
    (0, 1024): "num_threads",
    (0, 2**31 - 1): "seed",
    (1, 2**63 - 1): "total_timesteps",
}


def fail(message):
    """Ends the program with one line and exit code 2: bad input."""
    print("error:", " ".join(str(message).split()), file=sys.stderr)
    sys.exit(2)


def parse_args(argv):
    """Returns checked Args, with `run_name`, `num_minibatches` and `minibatch_size` filled in. Touches no file."""
    box = io.StringIO()  # tyro draws a box around its complaint: what stands in it is put on one line
    try:
        with contextlib.redirect_stderr(box):
            args = tyro.cli(Args, args=argv, description=__doc__.split("\n")[0])
    except SystemExit as end:
        if end.code:
            text = box.getvalue().split("For full helptext")[0].partition("\n")[2]
            flag = re.search(r"--(?:no-)?([\w-]+) (?:true|false)\b", " ".join(argv), re.I)  # as CleanRL once had it
            fail(
                f"--{flag[1]} takes no value: --{flag[1]} or --no-{flag[1]} is accepted"
                if flag
                else " ".join(re.sub("[│─|]|-{3,}", " ", text).split())
            )
        raise
    for (low, high), name in ((limits, name) for limits, names in RANGES.items() for name in names.split()):
        value = getattr(args, name)
        if value is not None and not low <= value <= high:  # also catches nan
            fail(f"--{name.replace('_', '-')} {value} is out of range: {low:g} to {high:g} is accepted")
    check_env_id(args)
    batch_size = args.num_envs * args.num_steps
    if args.total_timesteps < batch_size:
        fail(f"--total-timesteps {args.total_timesteps} is less than one batch: at least {batch_size} is accepted")
    if {"--num-minibatches", "--minibatch-size"} <= {word.split("=")[0].replace("_", "-") for word in argv}:
        fail("--num-minibatches and --minibatch-size exclude each other: give one")
    fits = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // math.prod(OBS_SHAPE)
    if batch_size > fits:
        fail(f"--num-envs {args.num_envs} x --num-steps {args.num_steps} does not fit in memory: {fits} is accepted")
    flag = "minibatch_size" if args.minibatch_size else "num_minibatches"
    if batch_size % getattr(args, flag):
        fail(
            f"--{flag.replace('_', '-')} {getattr(args, flag)} does not divide the batch of {batch_size} = "
            f"{args.num_envs} envs x {args.num_steps} steps: a divisor of it is accepted"
        )
    args.minibatch_size = args.minibatch_size or batch_size // args.num_minibatches
    args.num_minibatches = batch_size // args.minibatch_size
    if lack := metrics.lacking(args):
        fail(lack)
    args.run_name = args.run_name or f"{args.env_id}__{args.exp_name}__{args.seed}__{int(time.time())}"
    if Path(args.run_name).is_absolute() or ".." in Path(args.run_name).parts or not Path(args.run_name).parts:
        fail(f"--run-name {args.run_name} is no directory below --runs-dir: a relative path without .. is accepted")
    if args.track:
        import wandb  # only here and below: importing it is enough to have it capture the console

        if wandb.setup().settings.mode == "online" and not wandb.login(prompt=False):
            fail("--track needs an account: `wandb login`, WANDB_API_KEY=… or WANDB_MODE=offline is accepted")
    return args


# ---- environments ----------------------------------------------------------------------------------------------------
def check_env_id(args):
    """Refuses what is not one of EnvPool's Atari games, with the nearest names."""
    games = [name for name, spec in envpool.registration.registry.specs.items() if spec[0] == "envpool.atari"]
    if args.env_id not in games:
        near = difflib.get_close_matches(args.env_id.replace("NoFrameskip-v4", "").split("/")[-1], games, 3, 0.3)
        fail(f"--env-id {args.env_id} is not an Atari game of EnvPool: {' '.join(near) or 'Breakout-v5'} … is accepted")


def make_envs(args, seed):
    """EnvPool's Atari, preprocessed as by CleanRL: each life is an episode, rewards are clipped to their sign."""
    threads = min(args.num_envs, torch.get_num_threads())  # EnvPool's own default sees the host, not the job
    return envpool.make(
        args.env_id,
        env_type="gymnasium",
        num_envs=args.num_envs,
        num_threads=threads,
        episodic_life=True,
        reward_clip=True,
        seed=seed,
        repeat_action_probability=args.repeat_action_probability,
    )


# ---- networks --------------------------------------------------------------------------------------------------------
def layer_init(layer, std=2**0.5, bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


def convolutions(channels, activation):
    """The three of Mnih et al. 2015: (B, channels, 84, 84) -> (B, 3136)."""
    return [
        layer_init(nn.Conv2d(channels, 32, 8, stride=4)),
        activation(),
        layer_init(nn.Conv2d(32, 64, 4, stride=2)),
        activation(),
        layer_init(nn.Conv2d(64, 64, 3, stride=1)),
        activation(),
        nn.Flatten(),
    ]


def rnd_cnn():
    """The encoder of the policy: (B, 4, 84, 84) -> (B, 448)."""
    return nn.Sequential(
        *convolutions(4, nn.ReLU),
        layer_init(nn.Linear(64 * 7 * 7, 256)),
        nn.ReLU(),
        layer_init(nn.Linear(256, 448)),
        nn.ReLU(),
    )


class Agent(nn.Module):
    """Actor and two critics. The parameters have the names and shapes of CleanRL's: weights can be exchanged."""

    def __init__(self, num_actions, shared_encoder=True, bf16=False):
        super().__init__()
        self.bf16 = bf16
        self.network = rnd_cnn()
        self.extra_layer = nn.Sequential(layer_init(nn.Linear(448, 448), std=0.1), nn.ReLU())
        self.actor = nn.Sequential(
            layer_init(nn.Linear(448, 448), std=0.01), nn.ReLU(), layer_init(nn.Linear(448, num_actions), std=0.01)
        )
        self.critic_ext, self.critic_int = (layer_init(nn.Linear(448, 1), std=0.01) for _ in range(2))
        self.critic_network = None if shared_encoder else rnd_cnn()

    def encode(self, network, x):
        """Returns the outputs of the five ReLUs; the last, (B, 448) in float32, is the representation."""
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.bf16):
            x = x.to(torch.bfloat16 if self.bf16 else torch.float32)
            x = F.conv2d(x, network[0].weight / 255.0, network[0].bias, network[0].stride)  # x / 255 would round
            hiddens = []
            for layer in network[1:]:
                x = layer(x)
                if isinstance(layer, nn.ReLU):
                    hiddens.append(x)
        return hiddens[:-1] + [hiddens[-1].float()]

    def forward(self, obs):
        """Maps obs (B, 84, 84, 4) uint8 to logits (B, A), two values (B,) and each encoder's post-ReLU layers."""
        x = obs.permute(0, 3, 1, 2)  # to PyTorch such a view is a channels_last batch: nothing moves
        hiddens = [self.encode(self.network, x)]
        if self.critic_network is not None:
            hiddens.append(self.encode(self.critic_network, x))
        policy, extra = self.actor[:2](hiddens[0][-1]), self.extra_layer(hiddens[-1][-1])
        critic = extra + hiddens[-1][-1]
        hiddens[0][-1:-1], hiddens[-1][-1:-1] = [policy], [extra]
        return self.actor[2](policy), self.critic_ext(critic).squeeze(-1), self.critic_int(critic).squeeze(-1), hiddens


class RNDModel(nn.Module):
    """A random network, and a deeper one that learns to predict it: where it cannot yet, the frame is new."""

    def __init__(self):
        super().__init__()
        self.predictor = nn.Sequential(
            *convolutions(1, nn.LeakyReLU),
            layer_init(nn.Linear(64 * 7 * 7, 512)),
            nn.ReLU(),
            layer_init(nn.Linear(512, 512)),
            nn.ReLU(),
            layer_init(nn.Linear(512, 512)),
        )
        self.target = nn.Sequential(*convolutions(1, nn.LeakyReLU), layer_init(nn.Linear(64 * 7 * 7, 512)))
        self.target.requires_grad_(False)

    def forward(self, frames, moments):
        """Maps frames (B, 84, 84) uint8, normalised with their moments, to the squared errors (B, 512)."""
        mean, var = moments[:2]
        x = ((frames - mean.float()) / var.sqrt().float()).clamp(-5, 5).unsqueeze(1)
        return (self.predictor(x) - self.target(x)).square()


# ---- targets and loss ------------------------------------------------------------------------------------------------
def gae(rewards, values, terminations, truncations, next_values, valid, gamma, gae_lambda):
    """Generalised advantage estimation (Schulman et al. 2016, eq. 16), cut at the ends of episodes. Tensors are (T, N).

    `values[t]` is V(obs[t]), `next_values[t]` V of what step t led to, before any reset. `terminations`, `truncations`
    (bool) say how step t ended its episode: the first bootstrap 0, the second `next_values[t]`, and neither passes the
    trace on. Rows that are not `valid` (bool) get the advantage 0 and take no time: no trace begins in them. Returns
    (advantages, returns), both float32 (T, N)."""
    advantages = torch.zeros_like(rewards)
    nonterminal = 1.0 - terminations.to(rewards.dtype)
    nonend = nonterminal * (1.0 - truncations.to(rewards.dtype))
    lastgaelam = torch.zeros_like(rewards[0])
    for t in reversed(range(rewards.shape[0])):
        delta = rewards[t] + gamma * next_values[t] * nonterminal[t] - values[t]
        lastgaelam = torch.where(valid[t], delta + gamma * gae_lambda * nonend[t] * lastgaelam, lastgaelam)
        advantages[t] = torch.where(valid[t], lastgaelam, 0.0)
    return advantages, advantages + values


def discounted_sums(rewards, valid, running, gamma):
    """sums[t] = gamma * sums[t - 1] + rewards[t] over time in each environment, through the ends of episodes; rows that
    are not valid take no time. rewards, valid (T, N), `running` (N,) the sum before. Returns sums (T, N), running."""
    sums = torch.zeros_like(rewards)
    for t in range(rewards.shape[0]):
        sums[t] = running = torch.where(valid[t], gamma * running + rewards[t], running)
    return sums, running


def masked_mean(x, valid):
    """The mean of x over the rows where `valid` (bool, same shape) holds; 0 where there are none."""
    return torch.where(valid, x, 0.0).sum() / valid.sum().clamp(min=1)


def normalize_advantages(advantages, valid):
    """Zero mean and unit (unbiased) standard deviation over the valid rows, as CleanRL has it in each minibatch."""
    centred = torch.where(valid, advantages - masked_mean(advantages, valid), 0.0)
    std = (centred.square().sum() / (valid.sum() - 1).clamp(min=1)).sqrt()
    return centred / (std + 1e-8)


def ppo_loss(
    logits,
    newvalue,
    actions,
    logprobs,
    values,
    advantages,
    returns,
    valid,
    clip_coef,
    ent_coef,
    vf_coef,
    clip_vloss=True,
):
    """The clipped surrogate loss (Schulman et al. 2017, eq. 7 and 9), a mean over the valid rows of a minibatch.

    logits (B, A), newvalue (B,): of the network in training; actions (B,) int64, logprobs, values, advantages, returns
    (B,) float32, valid (B,) bool: of the rollout. Returns the loss and the 0-d tensors of LOSSES but its last: policy
    loss, value loss, entropy, the estimators k1 and k3 (joschu.net/blog/kl-approx.html) of KL(old || new), clipfrac."""
    newlogprobs = F.log_softmax(logits, dim=-1)
    logratio = newlogprobs.gather(-1, actions[:, None]).squeeze(-1) - logprobs
    ratio = logratio.exp()
    pg_loss1 = -advantages * ratio
    pg_loss2 = -advantages * torch.clamp(ratio, 1 - clip_coef, 1 + clip_coef)
    pg_loss = masked_mean(torch.max(pg_loss1, pg_loss2), valid)
    v_loss = (newvalue - returns).square()
    if clip_vloss:
        v_clipped = values + torch.clamp(newvalue - values, -clip_coef, clip_coef)
        v_loss = torch.max(v_loss, (v_clipped - returns).square())
    v_loss = 0.5 * masked_mean(v_loss, valid)
    entropy = masked_mean(-(newlogprobs.exp() * newlogprobs).sum(-1), valid)
    loss = pg_loss - ent_coef * entropy + vf_coef * v_loss
    with torch.no_grad():
        old_approx_kl = masked_mean(-logratio, valid)
        approx_kl = masked_mean((ratio - 1) - logratio, valid)
        clipfrac = masked_mean(((ratio - 1.0).abs() > clip_coef).float(), valid)
    return loss, (pg_loss.detach(), v_loss.detach(), entropy.detach(), old_approx_kl, approx_kl, clipfrac)


# ---- diagnostics -----------------------------------------------------------------------------------------------------
@torch.no_grad()
def diagnose(agent, b_obs, b_actions, b_logprobs, inds):
    """What metrics.py finds in the rows `inds` with the updated network, {name: value}; the actions' log-ratios."""
    logits, values = metrics.diagnose_network(lambda rows: agent(b_obs.index_select(0, rows))[::3], inds)
    logprobs = F.log_softmax(logits, dim=-1)
    logratio = logprobs.gather(-1, b_actions[inds, None]).squeeze(-1) - b_logprobs[inds]
    return {**values, **metrics.policy_diagnostics(logprobs.exp(), logratio), **metrics.weight_norms(agent)}, logratio


# ---- run directory ---------------------------------------------------------------------------------------------------
def write_atomically(path, data, previous=None):
    """Writes bytes; a reader, or a crash at any time, meets the old file, kept as `previous`, or the new one, whole."""
    partial = path.with_name(f".{path.name}.partial")  # hidden: no glob and no TensorBoard takes it for the file
    try:
        with open(partial, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:  # a full disk: give the room back
        partial.unlink(missing_ok=True)
        raise
    if previous and path.exists():
        os.replace(path, previous)
    os.replace(partial, path)


def open_run(args, device):
    """Claims the run's directory. Returns its path, its lock, and the checkpoint to go on from (None: from the start).
    Exits 0 if the run is finished, 2 if the name is taken by other arguments or by a live process. Cuts off the curves
    after the checkpoint: those points will be written again."""
    run_dir = Path(args.runs_dir, args.run_name)
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        lock = open(run_dir / ".lock", "w")  # the kernel frees it when this process ends, however it ends
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fail(f"--run-name {args.run_name} is being written by a live process: another name is accepted")
    except OSError as error:
        fail(f"--runs-dir {args.runs_dir} ({error.strerror}): a directory that can be written to is accepted")
    manifest = run_dir / "manifest.json"
    if manifest.exists():
        before = json.loads(manifest.read_text())["arguments"]
        for name in vars(args).keys() - {"runs_dir", "num_threads"}:  # where it runs, not what is run
            if name in before and before[name] != getattr(args, name):  # an older manifest may lack one
                fail(
                    f"--run-name {args.run_name} has run with --{name.replace('_', '-')} {before[name]}, not "
                    f"{getattr(args, name)}: the same arguments or another name are accepted"
                )
    else:
        git = ["git", "-C", Path(__file__).parent, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        commit, dirty, _ = subprocess.run(git, capture_output=True).stdout.decode().strip().partition("-dirty")
        write_atomically(
            manifest,
            json.dumps(
                {
                    "arguments": vars(args),
                    "command": shlex.join([sys.executable, *sys.argv]),
                    "git": {"commit": commit or None, "dirty": bool(dirty)},
                    "versions": {
                        "python": platform.python_version(),
                        **{d.metadata["Name"]: d.version for d in importlib.metadata.distributions()},
                    },
                    "device": torch.cuda.get_device_name(device)
                    if device.type == "cuda"
                    else f"cpu {platform.machine()}",
                    "threads": torch.get_num_threads(),
                    "start": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
                },
                indent=2,
            ).encode(),
        )
    if (run_dir / "done.json").exists():
        print(f"{run_dir} is finished: {' '.join((run_dir / 'done.json').read_text().split())}")
        sys.exit(0)
    (run_dir / "failed.json").unlink(missing_ok=True)  # it may go better from the checkpoint, with other games
    checkpoint = None
    for path in filter(Path.exists, (run_dir / "checkpoint.pt", run_dir / "checkpoint.prev.pt")):
        try:
            checkpoint = checkpoint or torch.load(path, map_location=device, weights_only=True)
        except Exception as error:
            print(f"{path} cannot be read ({type(error).__name__}): trying the one before it", file=sys.stderr)
    for path in run_dir.glob("events.out.tfevents.*"):
        kept = io.BytesIO()
        for record in RawEventFileLoader(str(path)).Load():
            if checkpoint and Event.FromString(record).step <= checkpoint["global_step"]:
                RecordWriter(kept).write(record)
        write_atomically(path, kept.getvalue())
    return run_dir, lock, checkpoint


def save_checkpoint(run_dir, checkpoint, coverage):
    """Writes coverage.npz and checkpoint.pt; the checkpoint before it becomes checkpoint.prev.pt."""
    data = io.BytesIO()
    np.savez_compressed(data, **{name: np.concatenate(rows) for name, rows in coverage.items()})
    write_atomically(run_dir / "coverage.npz", data.getvalue())
    data = io.BytesIO()
    torch.save(checkpoint, data)
    write_atomically(run_dir / "checkpoint.pt", data.getvalue(), previous=run_dir / "checkpoint.prev.pt")


def main(args):
    # ---- setup -------------------------------------------------------------------------------------------------------
    stop_signals = []

    def request_stop(signum, frame):
        stop_signals.append(signum)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C does not wait

    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(signum, request_stop)
    device = torch.device("cuda" if torch.cuda.is_available() and args.cuda else "cpu")
    metrics.set_up_cpu(args.num_threads)
    run_dir, lock, checkpoint = open_run(args, device)
    batch_size = args.num_envs * args.num_steps
    num_iterations = args.total_timesteps // batch_size
    run = SimpleNamespace(  # what a checkpoint keeps beside the network, the optimiser and the state of the generator
        iteration=0,
        global_step=0,
        gradient_steps=0,
        wall_seconds=0.0,
        wandb_id=None,
        episodes=0,
        games=[],  # (return, length) of the last 100 games
        frame_moments=(torch.zeros(84, 84, device=device), torch.ones(84, 84, device=device), 1e-4),
        sum_moments=(0.0, 1.0, 1e-4),
        sums=torch.zeros(args.num_envs, device=device),  # of int_rewards, discounted
        intrinsic=[],
        rooms=[],
        rnd=None,  # mean rewards since the last point; rooms seen; the RND networks
        totals=torch.zeros(len(LOSSES), device=device),
        minibatches=0,
        explained=[],
    )  # since the last point
    if checkpoint:
        vars(run).update({name: checkpoint[name] for name in vars(run)})
        print(f"{run_dir}: resumes at step {run.global_step:,}", flush=True)
    torch.manual_seed(args.seed)
    rng = torch.Generator(device).manual_seed(2**32 - 1 - args.seed)  # of all that the run draws after the weights
    torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32 = args.torch_deterministic, args.tf32
    torch.set_float32_matmul_precision("high" if args.tf32 and device.type == "cuda" else "highest")
    # games restart when a run resumes: with a seed of their own, or the first ones would be played again
    envs = make_envs(args, (args.seed + run.global_step) % 2**31)
    num_actions = int(envs.action_space.n)
    agent = Agent(num_actions, args.shared_encoder, args.bf16).to(device, memory_format=torch.channels_last)
    rnd_model = RNDModel().to(device, memory_format=torch.channels_last)
    parameters = [*agent.parameters(), *rnd_model.predictor.parameters()]
    lr = torch.tensor(args.learning_rate, device=device) if args.cuda_graphs else args.learning_rate
    optimizer = optim.Adam(parameters, lr=lr, eps=1e-5, fused=True, capturable=args.cuda_graphs)
    shape = (args.num_steps, args.num_envs)  # (T, N)
    obs = torch.zeros((*shape, *OBS_SHAPE), dtype=torch.uint8, device=device)
    actions = torch.zeros(shape, dtype=torch.int64, device=device)
    logits, noise = (torch.zeros((*shape, num_actions), device=device) for _ in range(2))
    values, int_values = torch.zeros(shape, device=device), torch.zeros(shape, device=device)
    # rewards[t], terminations[t] and truncations[t] follow actions[t]; valid[t] is of the whole row t
    rewards = np.zeros(shape, dtype=np.float32)
    terminations, truncations, valid = (np.zeros(shape, dtype=bool) for _ in range(3))
    room_bytes = ROOM_BYTES.get(args.env_id)
    next_obs, info = envs.reset()  # (N, 4, 84, 84) uint8
    next_done = np.zeros(args.num_envs, dtype=bool)
    episode_returns, episode_lengths = np.zeros(args.num_envs), np.zeros(args.num_envs, dtype=np.int64)
    coverage = {"frame": [], "feature": [], "value": [], "step": []}
    if checkpoint:
        rnd_model.load_state_dict(run.rnd)
        agent.load_state_dict(checkpoint["agent"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        rng.set_state(checkpoint["rng"].cpu())
        with np.load(run_dir / "coverage.npz") as saved:  # it may be newer than the checkpoint, never older
            coverage = {name: [saved[name][saved["step"] <= run.global_step]] for name in coverage}
    # one record a log point, written at once: SummaryWriter's queue can lose points that a checkpoint counts as logged
    events = open(run_dir / f"events.out.tfevents.{time.time():.0f}.{platform.node()}.{os.getpid()}", "wb")
    writer = RecordWriter(events)
    writer.write(Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())
    if args.track:
        import wandb

        wandb_run = wandb.init(
            project=args.wandb_project_name,
            entity=args.wandb_entity,
            name=args.run_name,
            id=run.wandb_id,
            resume="allow",
            config=vars(args),
            dir=str(run_dir),
            save_code=True,
        )
        run.wandb_id = wandb_run.id
    run.rnd = rnd_model.state_dict()  # refers to the weights, so that a checkpoint has those of its time
    if not checkpoint:
        num_random = args.num_iterations_obs_norm_init * args.num_steps
        print(f"{run_dir}: {num_random * args.num_envs:,} random steps for the frames' mean and variance", flush=True)
        for random_actions in np.random.default_rng(args.seed).integers(num_actions, size=(num_random, args.num_envs)):
            frames = torch.from_numpy(envs.step(random_actions.astype(np.int32))[0][:, -1]).to(device)
            run.frame_moments = metrics.merge_moments(run.frame_moments, frames.double())
            if stop_signals:
                sys.exit(130 if stop_signals[0] == signal.SIGINT else 143)
        next_obs, info = envs.reset()
    bar = tqdm(
        total=num_iterations * batch_size,
        initial=run.global_step,
        disable=None,
        dynamic_ncols=True,
        bar_format=args.env_id + " {percentage:3.0f}%|{bar}| {n:,}/{total:,} steps{postfix}  ETA {remaining}",
    )
    compiled = (lambda function: torch.compile(function, dynamic=False)) if args.compile else lambda function: function
    graphed, forward = metrics.cuda_graphs(args.cuda_graphs), compiled(agent)
    log_time = line_time = checkpoint_time = time.time()
    start_time, log_step, line_step, exit_code = log_time - run.wall_seconds, run.global_step, run.global_step, 0
    for iteration in range(run.iteration + 1, num_iterations + 1):
        run.iteration = iteration
        if args.anneal_lr:
            new_lr = (1.0 - (iteration - 1.0) / num_iterations) * args.learning_rate
            optimizer.param_groups[0]["lr"] = lr.fill_(new_lr) if args.cuda_graphs else new_lr

        # ---- rollout -------------------------------------------------------------------------------------------------
        # argmax(logits + Gumbel noise) is a sample of the policy; the noise of the whole rollout is drawn at once
        noise.exponential_(generator=rng).log_().neg_()

        @graphed
        @torch.no_grad()
        def policy(step):
            logits[step], values[step], int_values[step], _ = forward(obs[step])
            actions[step] = (logits[step] + noise[step]).argmax(-1)

        for step in range(args.num_steps):
            obs[step] = metrics.to_device(next_obs, device).permute(0, 2, 3, 1)
            valid[step] = ~next_done
            run.rooms = sorted({*run.rooms, *map(tuple, info["ram"][:, room_bytes].tolist())}) if room_bytes else []
            policy(step)
            action = actions[step].to("cpu", torch.int32).numpy()
            next_obs, rewards[step], terminations[step], truncations[step], info = envs.step(action)
            next_done = terminations[step] | truncations[step]
            episode_returns += info["reward"]  # not clipped; 0 in a reset row
            episode_lengths += valid[step]
            for i in np.flatnonzero(info["terminated"] | truncations[step]):  # the game is over, not only a life
                run.games = [*run.games[-99:], (float(episode_returns[i]), int(episode_lengths[i]))]
                run.episodes += 1
                episode_returns[i] = episode_lengths[i] = 0
        run.global_step += batch_size

        # ---- targets -------------------------------------------------------------------------------------------------
        if not args.mask_resets:
            terminations, truncations, valid = terminations | truncations, np.zeros_like(valid), np.ones_like(valid)
        t_rewards, t_terminations, t_truncations, t_valid = (
            metrics.to_device(x, device) for x in (rewards, terminations, truncations, valid)
        )
        with torch.no_grad():
            logprobs = F.log_softmax(logits, dim=-1).gather(-1, actions[..., None]).squeeze(-1)
            last_obs = metrics.to_device(next_obs, device).permute(0, 2, 3, 1)
            _, next_value, next_int_value, _ = agent(last_obs)
            # after a done, obs[t + 1] is still the true last observation: the new game shows one row later
            next_values = torch.cat([values[1:], next_value[None]])
            advantages, returns = gae(
                t_rewards, values, t_terminations, t_truncations, next_values, t_valid, args.gamma, args.gae_lambda
            )
            frames = torch.cat([obs[1:, ..., -1], last_obs[None, ..., -1]])  # (T, N, 84, 84): what the steps led to
            int_rewards = torch.stack([rnd_model(row, run.frame_moments).sum(-1) / 2 for row in frames])
            for row, row_valid in zip(frames, t_valid):
                run.frame_moments = metrics.merge_moments(run.frame_moments, row[row_valid].double())
            run.intrinsic.append(masked_mean(int_rewards, t_valid).item())
            sums, run.sums = discounted_sums(int_rewards, t_valid, run.sums, args.int_gamma)
            run.sum_moments = metrics.merge_moments(run.sum_moments, sums[t_valid].double())
            # the intrinsic stream goes on, from the row before a reset row to the first observation after it
            next_int_values = torch.cat([int_values[1:], next_int_value[None]])
            next_int_values[:-1] = torch.where(t_valid[1:], next_int_values[:-1], next_int_values[1:])
            never = torch.zeros_like(t_valid)
            int_advantages, int_returns = gae(
                int_rewards / run.sum_moments[1].sqrt(),
                int_values,
                never,
                never,
                next_int_values,
                t_valid,
                args.int_gamma,
                args.gae_lambda,
            )
            advantages = args.int_coef * int_advantages + args.ext_coef * advantages
        batch = [
            x.flatten(0, 1) for x in (obs, actions, logprobs, values, advantages, returns, t_valid, int_returns, frames)
        ]
        b_obs, b_actions, b_logprobs, b_values, b_advantages, b_returns, b_valid = batch[:7]

        # ---- update --------------------------------------------------------------------------------------------------
        def minibatch(inds):
            generator = torch.Generator(device).manual_seed(run.gradient_steps)  # of its own: looking changes no run
            learned = torch.rand(len(inds), generator=generator, device=device) < args.update_proportion
            return *(x.index_select(0, inds) for x in batch), learned, *run.frame_moments[:2]

        def minibatch_loss(
            mb_obs,
            mb_actions,
            mb_logprobs,
            mb_values,
            mb_advantages,
            mb_returns,
            mb_valid,
            mb_int_returns,
            mb_frames,
            learned,
            *frame_moments,
        ):
            if args.norm_adv:
                mb_advantages = normalize_advantages(mb_advantages, mb_valid)
            newlogits, newvalue, new_int_value, _ = agent(mb_obs)
            loss, stats = ppo_loss(
                newlogits,
                newvalue,
                mb_actions,
                mb_logprobs,
                mb_values,
                mb_advantages,
                mb_returns,
                mb_valid,
                args.clip_coef,
                args.ent_coef,
                args.vf_coef,
                args.clip_vloss,
            )
            int_v_loss = 0.5 * masked_mean((new_int_value - mb_int_returns).square(), mb_valid)
            fwd_loss = masked_mean(rnd_model(mb_frames, frame_moments).mean(-1), mb_valid & learned)
            return loss + args.vf_coef * int_v_loss + fwd_loss, (*stats, int_v_loss.detach(), fwd_loss.detach())

        @graphed
        def update(*mb):
            loss, stats = compiled(minibatch_loss)(*mb)
            optimizer.zero_grad()
            loss.backward()
            grad_norm = nn.utils.clip_grad_norm_(parameters, args.max_grad_norm, foreach=True)
            optimizer.step()
            run.totals += torch.stack([*stats, grad_norm])
            return stats, grad_norm

        for _epoch in range(args.update_epochs):
            for mb_inds in torch.randperm(batch_size, generator=rng, device=device).split(args.minibatch_size):
                stats, grad_norm = update(*minibatch(mb_inds))
                run.minibatches += 1
                run.gradient_steps += 1
            if args.target_kl is not None and stats[LOSSES.index("approx_kl")] > args.target_kl:
                break
        run.explained.append(metrics.explained_variance(b_values[b_valid], b_returns[b_valid]))

        # what is not finite reaches the parameters and stays: one look an iteration finds it before it is saved
        suspects = {
            "rewards": t_rewards,
            "int_rewards": int_rewards,
            "logits": logits,
            "values": values,
            "int_values": int_values,
            "advantages": advantages,
            **dict(zip(LOSSES, run.totals)),
            "parameters": nn.utils.get_total_norm(parameters),
        }
        finite = torch.stack([x.isfinite().all() for x in suspects.values()]).tolist()
        if not all(finite):
            bad = list(suspects)[finite.index(False)]
            write_atomically(
                run_dir / "failed.json",
                json.dumps({"tensor": bad, "global_step": run.global_step, "iteration": iteration}).encode(),
            )
            exit_code = 3
            break

        # ---- diagnostics ---------------------------------------------------------------------------------------------
        scalars = {}
        log_point = iteration * args.num_logs % num_iterations < args.num_logs
        if log_point:
            valid_inds = b_valid.nonzero().squeeze(-1)
            probe_inds = valid_inds[metrics.stratified_rows(len(valid_inds), args.probe_size, seed=run.global_step)]
        if log_point and args.diagnostics:
            native, logratio = diagnose(agent, b_obs, b_actions, b_logprobs, valid_inds)
            same = len(probe_inds) == len(valid_inds)
            probe = native if same else diagnose(agent, b_obs, b_actions, b_logprobs, probe_inds)[0]
            # clipping multiplied the last minibatch's gradient by one factor: take it out again
            unclip = max(1.0, (grad_norm.item() + 1e-6) / args.max_grad_norm)
            native = {**native, **metrics.gradient_statistics([p.grad * unclip for p in agent.parameters()])}
            gradients = torch.autograd.grad(minibatch_loss(*minibatch(probe_inds))[0], list(agent.parameters()))
            probe = {**probe, **metrics.gradient_statistics(gradients)}
            scalars.update({f"diagnostics/{name}": value for name, value in native.items()})
            scalars.update({f"probe/{name}": value for name, value in probe.items()})
            scalars["outer/kl_behavior"] = metrics.kl_behavior(logratio)
            scalars["outer/ddr"] = metrics.ddr(len(valid_inds), scalars["outer/kl_behavior"])

        # ---- log -----------------------------------------------------------------------------------------------------
        now = time.time()
        if log_point:
            num_rows = COVERAGE_ROWS * iteration // num_iterations - sum(map(len, coverage["step"]))
            inds = probe_inds[metrics.stratified_rows(len(probe_inds), num_rows, seed=run.global_step)]
            with torch.no_grad():
                _, ext_values, row_int_values, hiddens = agent(b_obs.index_select(0, inds))
            coverage["frame"].append(b_obs[inds, :, :, -1].cpu().numpy())
            coverage["feature"].append(hiddens[0][-1].cpu().numpy().astype(np.float16))
            coverage["value"].append((args.ext_coef * ext_values + args.int_coef * row_int_values).cpu().numpy())
            coverage["step"].append(np.full(len(inds), run.global_step))
            scalars["charts/episodes"] = run.episodes
            if run.games:
                scalars["charts/episodic_return"], scalars["charts/episodic_length"] = np.mean(run.games, 0).tolist()
            scalars["charts/intrinsic_reward"], run.intrinsic = float(np.mean(run.intrinsic)), []
            scalars.update({"charts/rooms": len(run.rooms)} if room_bytes else {})
            scalars["charts/SPS"] = (run.global_step - log_step) / (now - log_time)
            scalars["charts/learning_rate"] = float(optimizer.param_groups[0]["lr"])
            scalars["charts/gradient_steps"] = run.gradient_steps
            scalars.update(zip([f"losses/{name}" for name in LOSSES], (run.totals / run.minibatches).tolist()))
            scalars["losses/explained_variance"] = float(np.mean(run.explained))
            summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()])
            writer.write(Event(wall_time=now, step=run.global_step, summary=summary).SerializeToString())
            events.flush()
            if args.track:
                wandb_run.log(scalars, step=run.global_step)
            run.totals, run.minibatches, run.explained = run.totals.zero_(), 0, []
            log_time, log_step = now, run.global_step
        sps = (run.global_step - line_step) / (now - line_time)
        progress = f"{sps:.0f} SPS  return " + (f"{np.mean(run.games, 0)[0]:.1f}" if run.games else "-")
        bar.set_postfix_str(progress, refresh=False)
        bar.update(batch_size)
        if now - line_time >= 30 or iteration == num_iterations:
            if bar.disable:
                eta = tqdm.format_interval((bar.total - run.global_step) / sps)
                print(f"{args.env_id} {run.global_step:,}/{bar.total:,} steps  {progress}  ETA {eta}", flush=True)
            line_time, line_step = now, run.global_step
        if stop_signals or iteration == num_iterations or now - checkpoint_time >= 60 * args.checkpoint_minutes:
            run.wall_seconds = now - start_time
            save_checkpoint(
                run_dir,
                {**vars(run), "agent": agent.state_dict(), "optimizer": optimizer.state_dict(), "rng": rng.get_state()},
                coverage,
            )
            checkpoint_time = now
        if stop_signals and iteration < num_iterations:
            exit_code = 130 if stop_signals[0] == signal.SIGINT else 143
            break

    # ---- close -------------------------------------------------------------------------------------------------------
    bar.close()
    events.close()
    if exit_code == 0:
        if args.capture_video:
            path, evaluate = run_dir / "episode.mp4", Path(__file__).resolve().parent / "scripts" / "evaluate.py"
            subprocess.run([sys.executable, evaluate, run_dir, "--episodes", "1", "--video", path])
            if args.track and path.exists():
                wandb_run.log({"episode": wandb.Video(str(path))})
        done = {
            "global_step": run.global_step,
            "wall_seconds": run.wall_seconds,
            "sps": run.global_step / run.wall_seconds,
            "episodic_return": float(np.mean(run.games, 0)[0]) if run.games else None,
        }
        write_atomically(run_dir / "done.json", json.dumps(done).encode())
        print(f"{run_dir} is finished: {json.dumps(done)}")
    elif exit_code == 3:
        print(f"error: {bad} is not finite at step {run.global_step:,}: {run_dir / 'failed.json'}", file=sys.stderr)
    else:
        print(f"{run_dir} stopped at step {run.global_step:,}: the same command, with this --run-name, resumes it")
    if args.track:
        wandb_run.finish(exit_code=exit_code)
    sys.exit(exit_code)


if __name__ == "__main__":
    try:
        main(parse_args(sys.argv[1:]))
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        print(f"error: {error.strerror}; the same command resumes from the last checkpoint", file=sys.stderr)
        os._exit(1)  # nothing is left to flush to a full disk
