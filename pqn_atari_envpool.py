"""PQN on EnvPool's Atari: what N_envs parallel games and N_RO rollout steps do to a network that learns values.

    python pqn_atari_envpool.py --env-id Breakout-v5 --num-envs 128 --num-steps 8

The recipe of the paper's own code (purejaxql @47af6d7) in place of CleanRL's defaults, but for its initialisation:

    python pqn_atari_envpool.py --num-envs 128 --num-steps 32 --update-epochs 2 --num-minibatches 32 --total-timesteps \
        50000000 --layer-norm channels --td-coef 0.5 --end-e 0.001 --no-anneal-lr

Papers: Gallici et al. 2024, arXiv 2407.04811 (PQN); Mayor et al. 2025, arXiv 2506.03404 (P1: the diagnostics).
Reference: CleanRL's cleanrl/pqn_atari_envpool.py @fe8d8a0, with the same algorithm, defaults and names. Departures,
each with its reason:

1. The step after `done` only resets the game: EnvPool ignores its action and pays nothing. CleanRL trains on that row;
   here `valid` keeps it out of the loss and the diagnostics (`--no-mask-resets` restores CleanRL's).
2. A time limit is not a death: a truncated step bootstraps from the value of the real last observation, a terminated
   one from 0. CleanRL bootstraps neither (`--no-mask-resets` again).
3. Returns and lengths are of whole games, all of them, whether game over or the time limit ends them. CleanRL carries
   the return of a game that the time limit cut into the next one.
4. Logged losses are means over all minibatches since the last point; CleanRL logs the last minibatch.
5. A curve has `--num-logs` points, however long the run; CleanRL writes three scalars a game and three an iteration.
6. Frames are stored as uint8, channels last (a quarter of CleanRL's memory), and 1/255 is folded into the first
   convolution: the same mathematics, sooner done.
7. A batch that the minibatches do not divide is refused; CleanRL silently adds a smaller minibatch.
8. A run is a directory that can be killed at any time and is resumed by the same command.
9. `--bf16`, `--compile`, `--cuda-graphs`, `--layer-norm`, `--td-coef` and `--minibatch-size` are additions.
10. ESS and policy variance are of a policy that is sampled from; a value method has none, so they are not logged.
    `outer/greedy_churn` stands for the KL: how much of the batch the update gives another greedy action.
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
from typing import Literal, Optional

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

LOSSES = ("td_loss", "q_values", "grad_norm")
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
    env_id: str = "Breakout-v5"  # the id of EnvPool's Atari game
    total_timesteps: int = 10000000  # environment steps of the whole run, over all environments (each is 4 frames)
    learning_rate: float = 2.5e-4  # the learning rate of RAdam
    num_envs: int = 8  # the number of parallel games: N_envs
    num_steps: int = 128  # the number of steps in each game per rollout: N_RO
    anneal_lr: bool = True  # anneals the learning rate linearly to 0
    gamma: float = 0.99  # the discount factor
    num_minibatches: int = 4  # minibatches per epoch; the batch is num_envs * num_steps
    minibatch_size: Optional[int] = None  # rows per minibatch, in place of num-minibatches (P3's recipe)
    update_epochs: int = 4  # passes over each batch
    max_grad_norm: float = 10.0  # the gradient's norm is clipped to this
    start_e: float = 1.0  # the probability of a random action at the start
    end_e: float = 0.01  # the probability of a random action once exploration-fraction is over
    exploration_fraction: float = 0.1  # the fraction of total-timesteps over which that probability falls, linearly
    q_lambda: float = 0.65  # lambda of the Q(lambda) targets: 0 is the one-step target
    td_coef: float = 1.0  # a factor of the mean squared TD error; the paper's code has 0.5
    layer_norm: Literal["chw", "channels"] = "chw"  # LayerNorm over (C, H, W) as in CleanRL, or over C as in the paper
    mask_resets: bool = True  # trains on no reset row and bootstraps at time limits (departures 1 and 2)
    bf16: bool = False  # computes the encoder in bfloat16 (autocast); head, loss, targets and RAdam stay in float32
    tf32: bool = True  # lets NVIDIA GPUs multiply float32 numbers in TensorFloat-32
    compile: bool = False  # compiles the network and the loss with torch.compile: a minute at the start, a C++ compiler
    cuda_graphs: bool = False  # replays the policy and the update as CUDA graphs: one launch each; for NVIDIA GPUs


RANGES = {  # what is accepted, both ends included
    (1, 2**31 - 1): "num_envs num_steps num_minibatches minibatch_size update_epochs num_logs probe_size",
    (0, 1): "gamma q_lambda start_e end_e",
    (0, 1e12): "learning_rate checkpoint_minutes",
    (1e-12, 1e12): "max_grad_norm td_coef",
    (1e-12, 1): "exploration_fraction",
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
    )


# ---- networks --------------------------------------------------------------------------------------------------------
def layer_init(layer, std=2**0.5, bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels of each pixel of (B, C, H, W): flax's default, and so the paper's own code's."""

    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class QNetwork(nn.Module):
    """The encoder of Mnih et al. 2015 with a LayerNorm before each ReLU. With layer_norm "chw" the parameters have the
    names and shapes of CleanRL's, so that weights can be exchanged."""

    def __init__(self, num_actions, layer_norm="chw", bf16=False):
        super().__init__()
        self.bf16 = bf16

        def norm(channels, size):
            return nn.LayerNorm([channels, size, size]) if layer_norm == "chw" else ChannelNorm(channels, eps=1e-6)

        self.network = nn.Sequential(
            layer_init(nn.Conv2d(4, 32, 8, stride=4)),
            norm(32, 20),
            nn.ReLU(inplace=True),
            layer_init(nn.Conv2d(32, 64, 4, stride=2)),
            norm(64, 9),
            nn.ReLU(inplace=True),
            layer_init(nn.Conv2d(64, 64, 3, stride=1)),
            norm(64, 7),
            nn.ReLU(inplace=True),
            nn.Flatten(),
            layer_init(nn.Linear(64 * 7 * 7, 512)),
            nn.LayerNorm(512),
            nn.ReLU(inplace=True),
            layer_init(nn.Linear(512, num_actions)),
        )

    def forward(self, obs):
        """Maps obs (B, 84, 84, 4) uint8 to Q(obs, .) (B, A) and the outputs of the four ReLUs; the last of them,
        (B, 512) in float32, is the representation."""
        x = obs.permute(0, 3, 1, 2)  # to PyTorch such a view is a channels_last batch: nothing moves
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.bf16):
            x = x.to(torch.bfloat16 if self.bf16 else torch.float32)
            # x / 255 would round in bfloat16 and pass over the whole batch; the 8192 weights scale for nothing
            x = F.conv2d(x, self.network[0].weight / 255.0, self.network[0].bias, self.network[0].stride)
            hiddens = []
            for layer in self.network[1:-1]:
                x = layer(x)
                if isinstance(layer, nn.ReLU):
                    hiddens.append(x)
        hiddens[-1] = hiddens[-1].float()
        return self.network[-1](hiddens[-1]), hiddens


# ---- targets and loss ------------------------------------------------------------------------------------------------
def linear_schedule(start_e, end_e, duration, t):
    """The probability of a random action at step t."""
    return max(start_e + (end_e - start_e) / duration * t, end_e)


def q_lambda_returns(rewards, terminations, truncations, next_values, gamma, q_lambda):
    """Q(lambda) targets of a whole rollout (Gallici et al. 2024), in Peng's form: no cut at exploratory actions.

    All tensors are (T, N). `next_values[t]` is max_a Q of the observation that step t led to, before any reset.
    `terminations` and `truncations` (bool) say how step t ended its episode: a terminated step bootstraps 0, a
    truncated one `next_values[t]`, and neither looks further. So what stands in EnvPool's reset rows reaches no other
    row; their own targets mean nothing. Returns float32 (T, N).
    """
    returns = torch.zeros_like(rewards)
    nonterminal = 1.0 - terminations.to(rewards.dtype)
    trace = q_lambda * (1.0 - truncations.to(rewards.dtype))
    following = next_values[-1]
    for t in reversed(range(rewards.shape[0])):
        mixed = trace[t] * following + (1.0 - trace[t]) * next_values[t]
        returns[t] = following = rewards[t] + gamma * mixed * nonterminal[t]
    return returns


def masked_mean(x, valid):
    """The mean of x over the rows where `valid` (bool, same shape) holds; 0 where there are none."""
    return torch.where(valid, x, 0.0).sum() / valid.sum().clamp(min=1)


def td_loss(q_values, actions, returns, valid):
    """The mean squared TD error over the valid rows of a minibatch.

    q_values (B, A) come from the network that is being trained; actions (B,) int64, returns (B,) float32 and valid (B,)
    bool from the rollout. Returns the loss and the 0-d tensors of LOSSES but its last: the loss, and the mean Q(s, a).
    """
    q_taken = q_values.gather(-1, actions[:, None]).squeeze(-1)
    loss = masked_mean((q_taken - returns).square(), valid)
    return loss, (loss.detach(), masked_mean(q_taken.detach(), valid))


# ---- diagnostics -----------------------------------------------------------------------------------------------------
@torch.no_grad()
def diagnose(agent, b_obs, inds):
    """Looks at the rows `inds` of the batch with the updated network. Returns {name: value} (definitions: metrics.py)
    and the greedy actions (M,)."""

    def forward(rows):
        q_values, hiddens = agent(b_obs.index_select(0, rows))
        return q_values, [hiddens]  # one encoder

    q_values, values = metrics.diagnose_network(forward, inds)
    return {**values, **metrics.weight_norms(agent)}, q_values.argmax(-1)


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
    agent = QNetwork(num_actions, args.layer_norm, args.bf16).to(device, memory_format=torch.channels_last)
    lr = torch.tensor(args.learning_rate, device=device) if args.cuda_graphs else args.learning_rate
    optimizer = optim.RAdam(agent.parameters(), lr=lr, foreach=True, capturable=args.cuda_graphs)
    shape = (args.num_steps, args.num_envs)  # (T, N)
    obs = torch.zeros((*shape, *OBS_SHAPE), dtype=torch.uint8, device=device)
    actions, forced = (torch.zeros(shape, dtype=torch.int64, device=device) for _ in range(2))
    q_values = torch.zeros((*shape, num_actions), device=device)
    # rewards[t], terminations[t] and truncations[t] follow actions[t]; valid[t] is of the whole row t
    rewards = np.zeros(shape, dtype=np.float32)
    terminations, truncations, valid = (np.zeros(shape, dtype=bool) for _ in range(3))
    next_obs, _ = envs.reset()  # (N, 4, 84, 84) uint8
    next_done = np.zeros(args.num_envs, dtype=bool)
    episode_returns, episode_lengths = np.zeros(args.num_envs), np.zeros(args.num_envs, dtype=np.int64)
    coverage = {"frame": [], "feature": [], "value": [], "step": []}
    if checkpoint:
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
        epsilons = [
            linear_schedule(
                args.start_e,
                args.end_e,
                args.exploration_fraction * args.total_timesteps,
                run.global_step + (step + 1) * args.num_envs,
            )
            for step in range(args.num_steps)
        ]
        random_actions = torch.randint(num_actions, shape, generator=rng, device=device)
        chance = torch.rand(shape, generator=rng, device=device)
        explore = chance < metrics.to_device(np.float32(epsilons)[:, None], device)
        forced.copy_(torch.where(explore, random_actions, -1))  # -1: the greedy action

        @graphed
        @torch.no_grad()
        def policy(step):
            q_values[step], _ = forward(obs[step])
            actions[step] = torch.where(forced[step] < 0, q_values[step].argmax(-1), forced[step])

        for step in range(args.num_steps):
            obs[step] = metrics.to_device(next_obs, device).permute(0, 2, 3, 1)
            valid[step] = ~next_done
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
            next_q_values, _ = agent(metrics.to_device(next_obs, device).permute(0, 2, 3, 1))
            # after a done, obs[t + 1] is still the true last observation: the new game shows one row later
            next_values = torch.cat([q_values[1:], next_q_values[None]]).amax(-1)
            returns = q_lambda_returns(t_rewards, t_terminations, t_truncations, next_values, args.gamma, args.q_lambda)
        batch = [x.flatten(0, 1) for x in (obs, actions, returns, t_valid, q_values)]
        b_obs, b_actions, b_returns, b_valid, b_q_values = batch

        # ---- update --------------------------------------------------------------------------------------------------
        def minibatch(inds):
            return [x.index_select(0, inds) for x in batch[:4]]

        def minibatch_loss(mb_obs, mb_actions, mb_returns, mb_valid):
            mb_q_values, _ = agent(mb_obs)
            loss, stats = td_loss(mb_q_values, mb_actions, mb_returns, mb_valid)
            return args.td_coef * loss, stats

        @graphed
        def update(*mb):
            loss, stats = compiled(minibatch_loss)(*mb)
            optimizer.zero_grad()
            loss.backward()
            grad_norm = nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm, foreach=True)
            optimizer.step()
            run.totals += torch.stack([*stats, grad_norm])
            return stats, grad_norm

        for _epoch in range(args.update_epochs):
            for mb_inds in torch.randperm(batch_size, generator=rng, device=device).split(args.minibatch_size):
                stats, grad_norm = update(*minibatch(mb_inds))
                run.minibatches += 1
                run.gradient_steps += 1
        b_q_taken = b_q_values.gather(-1, b_actions[:, None]).squeeze(-1)
        run.explained.append(metrics.explained_variance(b_q_taken[b_valid], b_returns[b_valid]))

        # what is not finite reaches the parameters and stays: one look an iteration finds it before it is saved
        suspects = {
            "rewards": t_rewards,
            "q_values": q_values,
            "returns": returns,
            **dict(zip(LOSSES, run.totals)),
            "parameters": nn.utils.get_total_norm(agent.parameters()),
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
            native, greedy = diagnose(agent, b_obs, valid_inds)
            same = len(probe_inds) == len(valid_inds)
            probe = native if same else diagnose(agent, b_obs, probe_inds)[0]
            # clipping multiplied the last minibatch's gradient by one factor: take it out again
            unclip = max(1.0, (grad_norm.item() + 1e-6) / args.max_grad_norm)
            native = {**native, **metrics.gradient_statistics([p.grad * unclip for p in agent.parameters()])}
            gradients = torch.autograd.grad(minibatch_loss(*minibatch(probe_inds))[0], list(agent.parameters()))
            probe = {**probe, **metrics.gradient_statistics(gradients)}
            scalars.update({f"diagnostics/{name}": value for name, value in native.items()})
            scalars.update({f"probe/{name}": value for name, value in probe.items()})
            scalars["outer/greedy_churn"] = (greedy != b_q_values[valid_inds].argmax(-1)).float().mean().item()

        # ---- log -----------------------------------------------------------------------------------------------------
        now = time.time()
        if log_point:
            num_rows = COVERAGE_ROWS * iteration // num_iterations - sum(map(len, coverage["step"]))
            inds = probe_inds[metrics.stratified_rows(len(probe_inds), num_rows, seed=run.global_step)]
            with torch.no_grad():
                row_q_values, hiddens = agent(b_obs.index_select(0, inds))
            coverage["frame"].append(b_obs[inds, :, :, -1].cpu().numpy())
            coverage["feature"].append(hiddens[-1].cpu().numpy().astype(np.float16))
            coverage["value"].append(row_q_values.amax(-1).cpu().numpy())
            coverage["step"].append(np.full(len(inds), run.global_step))
            scalars["charts/episodes"] = run.episodes
            if run.games:
                scalars["charts/episodic_return"], scalars["charts/episodic_length"] = np.mean(run.games, 0).tolist()
            scalars["charts/SPS"] = (run.global_step - log_step) / (now - log_time)
            scalars["charts/learning_rate"] = float(optimizer.param_groups[0]["lr"])
            scalars["charts/gradient_steps"] = run.gradient_steps
            scalars["charts/epsilon"] = epsilons[-1]
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
