"""PPO on thousands of simulated robots: NVIDIA's Isaac Gym, or mjlab (MuJoCo Warp), which runs anywhere.

    python ppo_isaacgym.py --env-id Mjlab-Cartpole-Balance --num-envs 256      # pip install -r requirements-mjlab.txt
    torchrun --nproc-per-node 8 ppo_isaacgym.py --env-id Ant --num-envs 262144    # Isaac Gym, each GPU its share

Papers: Schulman et al. 2017 (PPO); Mayor et al. 2025, arXiv 2506.03404 (P1); Beukman et al. 2026, 2603.06009 (P3).
Reference: CleanRL's ppo_continuous_action_isaacgym.py @fe8d8a0, with its algorithm, defaults and names. Departures:

1. Isaac Gym resets one step late: the step after `done`, and the very first, has a meaningless action and reward.
   CleanRL trains on that row; `valid` keeps it out here (`--no-mask-resets` restores CleanRL's). mjlab has none.
2. A truncated step bootstraps from the value of the real last observation, a terminated one from 0; CleanRL bootstraps
   neither. (Isaac Gym reports a death in the time limit's own step as a time-out.)
3. Returns are of all episodes, whole; logged losses are means over all minibatches since the last point.
4. `--reward-scaler` is applied; CleanRL only declares it. A critic sees the privileged states that a task has for it.
5. A batch that the minibatches do not divide is refused; a run can be killed at any time and resumed. On mjlab the
   defaults are those of TASKS. torchrun and the arguments that CleanRL lacks are off by default.
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
from typing import Literal, Optional, Tuple

try:
    if re.search("--env[-_]id[= ]Mjlab-", " ".join(sys.argv)):
        raise ImportError("not asked for")
    import isaacgym  # noqa: F401 - it refuses to be loaded after torch
    import isaacgymenvs
except ImportError as error:
    isaacgymenvs, no_isaacgym = None, str(error)
import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
import tyro
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter
from tqdm import tqdm

import metrics

LOSSES = ("policy_loss", "value_loss", "entropy", "old_approx_kl", "approx_kl", "clipfrac", "grad_norm")
COVERAGE_ROWS = 4096  # in coverage.npz, over the whole run: as many as UMAP takes with ease
RANK, NUM_RANKS, LOCAL_RANK = (  # of the processes of torchrun, each with its share of the environments
    int(os.environ.get(name, number)) for name, number in (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0))
)


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
    capture_video: bool = False  # films 100 steps at the end (scripts/evaluate.py), on mjlab: `episode.mp4`
    run_name: Optional[str] = None  # the directory below runs-dir; default {env_id}__{exp_name}__{seed}__{unix time}
    runs_dir: str = "runs"  # the directory that holds the run directories
    num_logs: int = 1000  # the number of points in every curve (at most one an iteration)
    diagnostics: bool = True  # logs `diagnostics/`, `probe/` and `outer/` at those points
    probe_size: int = 1024  # rows of the batch that `probe/` looks at, so that its numbers compare across batch sizes
    checkpoint_minutes: float = 10.0  # minutes between checkpoints; 0 writes one after every iteration
    num_threads: int = 0  # CPU threads of PyTorch; 0 takes every core, or OMP_NUM_THREADS
    # Algorithm specific arguments
    env_id: str = "Ant"  # the id of the task: `Mjlab-…` runs on mjlab, every other on Isaac Gym
    total_timesteps: int = 30000000  # environment steps of the whole run, over all environments
    learning_rate: float = 0.0026  # the learning rate of Adam
    num_envs: int = 4096  # the number of parallel environments, over all processes: N_envs
    num_steps: int = 16  # the number of steps in each environment per rollout: N_RO
    anneal_lr: bool = False  # anneals the learning rate linearly to 0
    gamma: float = 0.99  # the discount factor
    gae_lambda: float = 0.95  # lambda of the generalised advantage estimation
    num_minibatches: int = 2  # minibatches per epoch; the batch is num_envs * num_steps
    minibatch_size: Optional[int] = None  # rows per minibatch, in place of num-minibatches (P3's recipe)
    update_epochs: int = 4  # passes over each batch
    norm_adv: bool = True  # normalises the advantages in each minibatch
    clip_coef: float = 0.2  # the clipping coefficient of the policy ratio, and of the value if clip-vloss
    clip_vloss: bool = False  # clips the value loss too
    ent_coef: float = 0.0  # the coefficient of the entropy
    vf_coef: float = 2.0  # the coefficient of the value loss
    max_grad_norm: float = 1.0  # the gradient's norm is clipped to this
    target_kl: Optional[float] = None  # ends the update after an epoch whose last minibatch has a larger approx_kl
    desired_kl: Optional[float] = None  # adapts the learning rate to keep approx_kl near this, as rsl_rl does
    reward_scaler: float = 1.0  # the factor on the rewards of training; the logged returns are raw
    norm_obs: bool = False  # normalises observations by their mean and deviation over all earlier iterations
    hidden_sizes: Tuple[int, ...] = (256, 256)  # the units of each hidden layer
    activation: Literal["tanh", "elu", "relu"] = "tanh"  # follows each hidden layer
    shared_encoder: bool = False  # one stack of hidden layers for actor and critic, or one for each
    mask_resets: bool = True  # trains on no reset row and bootstraps at time limits (departures 1 and 2)
    bf16: bool = False  # computes the hidden layers in bfloat16 (autocast); heads, losses, GAE and Adam stay in float32


TASKS = {  # defaults of the tasks whose names begin so, later lines first: from mjlab's own configurations of rsl_rl
    "Mjlab-": dict(
        total_timesteps=200000000,
        num_steps=24,
        num_minibatches=4,
        update_epochs=5,
        learning_rate=1e-3,
        desired_kl=0.01,
        ent_coef=0.01,
        clip_vloss=True,
        norm_obs=True,
        hidden_sizes=(512, 256, 128),
        activation="elu",
    ),
    "Mjlab-Cartpole": dict(total_timesteps=2048000, num_steps=32, norm_obs=False, hidden_sizes=(64, 64)),
    "Mjlab-Lift-Cube": dict(ent_coef=0.005),
}
RANGES = {  # what is accepted, both ends included
    (1, 2**31 - 1): "num_envs num_steps num_minibatches minibatch_size update_epochs num_logs probe_size",
    (0, 1): "gamma gae_lambda",
    (0, 1e12): "learning_rate checkpoint_minutes clip_coef ent_coef vf_coef",
    (1e-12, 1e12): "max_grad_norm target_kl desired_kl reward_scaler",
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
    env_id = ([Args.env_id] + re.findall(r"--env[-_]id[= ](\S+)", " ".join(argv)))[-1]
    default = Args(**{name: value for task in TASKS if env_id.startswith(task) for name, value in TASKS[task].items()})
    try:
        with contextlib.redirect_stderr(box):
            args = tyro.cli(Args, args=argv, default=default, description=__doc__.split("\n")[0])
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
    flag = "minibatch_size" if args.minibatch_size else "num_minibatches"
    if batch_size % getattr(args, flag):
        fail(
            f"--{flag.replace('_', '-')} {getattr(args, flag)} does not divide the batch of {batch_size} = "
            f"{args.num_envs} envs x {args.num_steps} steps: a divisor of it is accepted"
        )
    args.minibatch_size = args.minibatch_size or batch_size // args.num_minibatches
    args.num_minibatches = batch_size // args.minibatch_size
    args.hidden_sizes = list(args.hidden_sizes)  # as it is read from a manifest
    if min(args.hidden_sizes, default=0) < 1:
        fail(f"--hidden-sizes {args.hidden_sizes}: one number or more, each at least 1, is accepted")
    if args.num_envs % NUM_RANKS or args.minibatch_size % NUM_RANKS:
        fail(f"--num-envs {args.num_envs} or a minibatch does not split over {NUM_RANKS} processes")
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
    """Refuses a task whose simulator is not here, and what is not one of its tasks, with the nearest names."""
    if isaacgymenvs:  # the two that are left out are not reset one step late, but within the step and by the learner
        tasks = {path.stem for path in Path(isaacgymenvs.__file__).parent.glob("cfg/task/*.yaml")}
        tasks = sorted(tasks - {"AnymalTerrain", "HumanoidAMP"})
    else:
        tasks = mjlab_tasks()
    if not tasks and args.env_id.startswith("Mjlab-"):
        fail(f"--env-id {args.env_id} runs on mjlab, which is not here: pip install -r requirements-mjlab.txt")
    if not isaacgymenvs and not args.env_id.startswith("Mjlab-"):
        here = " ".join(tasks) or "after pip install -r requirements-mjlab.txt, Mjlab-Cartpole-Balance and others"
        fail(
            f"--env-id {args.env_id} runs on Isaac Gym, which is not here ({no_isaacgym}): NVIDIA has it, after a "
            f"login, for Python 3.6 to 3.8 at developer.nvidia.com/isaac-gym. What runs now: {here}"
        )
    if args.env_id not in tasks:
        near = " ".join(difflib.get_close_matches(args.env_id, tasks, 3, 0.3) or tasks)
        fail(f"--env-id {args.env_id} is not a task that runs here: {near} … is accepted")


def mjlab_tasks():
    """mjlab's tasks, but those that need a camera's encoder or a motion file; none if mjlab is not installed."""
    os.environ.setdefault("MUJOCO_GL", "disable")  # training draws nothing, and must not need EGL
    try:
        import warp

        warp.config.log_level = warp.LOG_ERROR  # each kernel would report to the progress output
        import mjlab.tasks.registry as registry
    except ImportError:
        return []
    cfgs = {task: registry.load_env_cfg(task) for task in registry.list_tasks()}
    return [task for task, cfg in cfgs.items() if not {"camera", "motion"} & {*cfg.observations, *cfg.commands}]


class MjlabEnvs:
    """mjlab, told not to reset by itself, which would lose the last observations, and reset within the step here."""

    def __init__(self, args, num_envs, seed, device, render_mode=None):
        from mjlab.envs import ManagerBasedRlEnv
        from mjlab.tasks.registry import load_env_cfg

        cfg = load_env_cfg(args.env_id)
        cfg.scene.num_envs, cfg.seed, cfg.auto_reset = num_envs, seed, False
        with contextlib.redirect_stdout(io.StringIO()):  # it prints a table of each kind of term
            self.env = ManagerBasedRlEnv(cfg, str(device), render_mode)
        spaces = self.env.single_observation_space.spaces
        self.sizes = spaces["actor"].shape + spaces["critic"].shape + self.env.single_action_space.shape

    def reset(self, steps_done):
        self.env.common_step_counter = steps_done  # its curricula go by it
        obs, _ = self.env.reset()
        return torch.cat([obs["actor"], obs["critic"]], dim=1), True

    def step(self, action):
        obs, reward, terminated, truncated, _ = self.env.step(action)  # mjlab's actions have no bounds
        next_obs = torch.cat([obs["actor"], obs["critic"]], dim=1)
        ended = (terminated | truncated).nonzero().squeeze(-1)  # waits for the GPU, as mjlab itself has done
        last_obs = next_obs[ended]
        if len(ended) > 0:
            obs, _ = self.env.reset(env_ids=ended)
            next_obs[ended] = torch.cat([obs["actor"], obs["critic"]], dim=1)[ended]
        terminated = terminated | (truncated & self.env.cfg.is_finite_horizon)  # there the limit is part of the task
        return next_obs, reward, terminated, truncated, True, ended, last_obs


class IsaacGymEnvs:
    """Isaac Gym. `done` comes with the last observation; the next step resets, and is a row of two episodes."""

    def __init__(self, args, num_envs, seed, device):
        torch.manual_seed(seed)  # its tasks draw from torch's generator
        self.env = isaacgymenvs.make(
            seed, args.env_id, num_envs, str(device), str(device), device.index or 0, True, force_render=False
        )
        self.sizes = (*self.env.observation_space.shape, self.env.num_states, *self.env.action_space.shape)

    def reset(self, steps_done):
        return torch.cat([*self.env.reset().values()], dim=1), False  # zeros, whatever the task: the first step resets

    def step(self, action):
        obs, reward, done, extras = self.env.step(action.clamp(-1.0, 1.0))  # the bounds of every task
        done, time_outs = done.bool(), extras["time_outs"].bool()
        return torch.cat([*obs.values()], dim=1), reward, done & ~time_outs, done & time_outs, ~done, (), None


def make_envs(args, num_envs, seed, device):
    """The simulator. `reset` returns next_obs (N, D), the actor's and the critic's, and next_valid: the next step will
    not only reset. `step` returns these with reward, terminated, truncated; ended: which it has reset; last_obs."""
    return (MjlabEnvs if args.env_id.startswith("Mjlab-") else IsaacGymEnvs)(args, num_envs, seed, device)


# ---- networks --------------------------------------------------------------------------------------------------------
def layer_init(layer, std=2**0.5, bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


def mlp(sizes, activation, std):
    """Linear layers between the `sizes`, an activation after each but the last, whose weights have the scale `std`."""
    hidden = [
        (layer_init(nn.Linear(*pair)), {"tanh": nn.Tanh, "elu": nn.ELU, "relu": nn.ReLU}[activation]())
        for pair in zip(sizes[:-2], sizes[1:-1])
    ]
    return nn.Sequential(*sum(hidden, ()), layer_init(nn.Linear(*sizes[-2:]), std=std))


class Agent(nn.Module):
    """Actor and critic. The parameters have the names and shapes of CleanRL's, so that weights can be exchanged."""

    def __init__(self, num_obs, num_states, num_actions, args):
        super().__init__()
        self.norm_obs, self.bf16, self.shared_encoder = args.norm_obs, args.bf16, args.shared_encoder
        self.num_obs, self.num_critic_obs = num_obs, num_states or num_obs
        inputs = () if self.shared_encoder else (self.num_critic_obs, *args.hidden_sizes[:-1])
        self.critic = mlp((*inputs, args.hidden_sizes[-1], 1), args.activation, std=1.0)
        self.actor_mean = mlp((num_obs, *args.hidden_sizes, num_actions), args.activation, std=0.01)
        self.actor_logstd = nn.Parameter(torch.zeros(1, num_actions))
        sums = torch.tensor([[1.0], [0.0], [1.0]]).double().repeat(1, num_obs + num_states)  # as of one row: 0 +- 1
        self.register_buffer("obs_sums", sums, persistent=args.norm_obs)

    def encode(self, network, x):
        """Returns the outputs of the activations; the last, (B, hidden_sizes[-1]) float32, is the representation."""
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.bf16):
            outputs = []
            for layer in network[:-1]:
                x = layer(x)
                outputs.append(x)
        return [*outputs[1:-2:2], outputs[-1].float()]

    def forward(self, obs):
        """Maps obs (B, D) to the mean of the actions (B, A), value (B,) and the activations of each encoder."""
        if self.norm_obs:
            mean, square = self.obs_sums[1:] / self.obs_sums[0]
            std = (square - mean.square()).clamp(min=0).sqrt()
            obs = (obs - mean.float()) / (std.float() + 0.01)  # as rsl_rl has it: a column may be constant
        hiddens = [self.encode(self.actor_mean, obs[:, : self.num_obs])]
        if not self.shared_encoder:
            hiddens.append(self.encode(self.critic, obs[:, -self.num_critic_obs :]))
        return self.actor_mean[-1](hiddens[0][-1]), self.critic[-1](hiddens[-1][-1]).squeeze(-1), hiddens


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


def masked_mean(x, valid):
    """The mean of x over the rows where `valid` (bool, same shape) holds; 0 where there are none. Each of several
    processes gets its share of the mean over the rows of all: these, and their gradients, add up to the whole."""
    return torch.where(valid, x, 0.0).sum() / metrics.sum_over_ranks(valid.sum()).clamp(min=1)


def normalize_advantages(advantages, valid):
    """Zero mean and unit (unbiased) standard deviation over the valid rows, as CleanRL has it in each minibatch."""
    centred = torch.where(valid, advantages - metrics.sum_over_ranks(masked_mean(advantages, valid)), 0.0)
    squares, count = metrics.sum_over_ranks(torch.stack([centred.square().sum(), valid.sum()]))
    std = (squares / (count - 1).clamp(min=1)).sqrt()
    return centred / (std + 1e-8)


def gaussian_logprobs(mean, logstd, actions):
    """Log-density (B,) of actions (B, A) under independent Gaussians of mean (B, A) and logstd (1, A)."""
    return -(0.5 * ((actions - mean) / logstd.exp()).square() + logstd + 0.5 * math.log(2 * math.pi)).sum(-1)


def ppo_loss(
    mean,
    logstd,
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

    mean (B, A), logstd (1, A), newvalue (B,): of the network in training; actions (B, A), logprobs, values, advantages,
    returns (B,), valid (B,) bool: of the rollout. Returns the loss and the 0-d tensors of LOSSES but its last, among
    them k1 and k3 (joschu.net/blog/kl-approx.html) of KL(old || new).
    """
    logratio = gaussian_logprobs(mean, logstd, actions) - logprobs
    ratio = logratio.exp()
    pg_loss1 = -advantages * ratio
    pg_loss2 = -advantages * torch.clamp(ratio, 1 - clip_coef, 1 + clip_coef)
    pg_loss = masked_mean(torch.max(pg_loss1, pg_loss2), valid)
    v_loss = (newvalue - returns).square()
    if clip_vloss:
        v_clipped = values + torch.clamp(newvalue - values, -clip_coef, clip_coef)
        v_loss = torch.max(v_loss, (v_clipped - returns).square())
    v_loss = 0.5 * masked_mean(v_loss, valid)
    entropy = masked_mean((logstd + 0.5 * math.log(2 * math.pi * math.e)).sum(-1).expand_as(newvalue), valid)
    loss = pg_loss - ent_coef * entropy + vf_coef * v_loss
    with torch.no_grad():
        old_approx_kl = masked_mean(-logratio, valid)
        approx_kl = masked_mean((ratio - 1) - logratio, valid)
        clipfrac = masked_mean(((ratio - 1.0).abs() > clip_coef).float(), valid)
    return loss, (pg_loss.detach(), v_loss.detach(), entropy.detach(), old_approx_kl, approx_kl, clipfrac)


# ---- diagnostics -----------------------------------------------------------------------------------------------------
@torch.no_grad()
def diagnose(agent, b_obs, b_actions, b_logprobs, inds):
    """Looks at the rows `inds` of the batch with the updated network. Returns {name: value} (definitions: metrics.py)
    and the log-ratios new/old of the taken actions. A dormant unit has a small standard deviation: Tanh saturates."""
    mean, values = metrics.diagnose_network(lambda rows: agent(b_obs.index_select(0, rows))[::2], inds, deviation=True)
    logratio = gaussian_logprobs(mean, agent.actor_logstd, b_actions[inds]) - b_logprobs[inds]
    policy = metrics.gaussian_policy_diagnostics(mean, agent.actor_logstd.exp(), logratio)
    return {**values, **policy, **metrics.weight_norms(agent)}, logratio


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
    device = torch.device(f"cuda:{LOCAL_RANK}" if torch.cuda.is_available() and args.cuda else "cpu")
    metrics.set_up_cpu(args.num_threads)
    scratch = metrics.join_processes(args, device, RANK) if NUM_RANKS > 1 else None  # noqa: F841 - of ranks above 0
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
    rng = torch.Generator(device).manual_seed(2**32 - 1 - args.seed)  # of all that the run draws after the weights
    torch.backends.cudnn.deterministic = args.torch_deterministic
    # games restart when a run resumes: with a seed of their own, or the first ones would be played again
    num_envs, mb_size = args.num_envs // NUM_RANKS, args.minibatch_size // NUM_RANKS  # of this process
    envs = make_envs(args, num_envs, (args.seed + run.global_step + RANK) % 2**31, device)
    next_obs, next_valid = envs.reset(run.global_step // args.num_envs)
    num_obs, num_states, num_actions = envs.sizes
    torch.manual_seed(args.seed)  # the same network in every process
    agent = Agent(num_obs, num_states, num_actions, args).to(device)
    torch.manual_seed(args.seed + run.global_step + RANK)  # the simulators draw from torch's own generator
    optimizer = optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5, fused=True)
    shape = (args.num_steps, num_envs)  # (T, N)
    obs = torch.zeros((*shape, num_obs + num_states), device=device)
    actions = torch.zeros((*shape, num_actions), device=device)
    # rewards[t], terminations[t] and truncations[t] follow actions[t]; valid[t] is of the whole row t
    logprobs, values, rewards = (torch.zeros(shape, device=device) for _ in range(3))
    terminations, truncations, valid = (torch.zeros(shape, dtype=torch.bool, device=device) for _ in range(3))
    episode = torch.zeros((num_envs, 2), device=device)  # (return, length) so far
    ends = torch.zeros((*shape, 2), device=device)  # those of the episodes that ended there, else 0
    coverage = {"obs": [], "feature": [], "value": [], "step": []}
    if checkpoint:
        agent.load_state_dict(checkpoint["agent"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        rng.set_state(checkpoint["rng"].cpu())
        with np.load(run_dir / "coverage.npz") as saved:  # it may be newer than the checkpoint, never older
            coverage = {name: [saved[name][saved["step"] <= run.global_step]] for name in coverage}
    if RANK > 0:  # each process draws its own actions
        rng.manual_seed(2**32 + args.seed + run.global_step + RANK)

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
    log_time = line_time = checkpoint_time = time.time()
    start_time, log_step, line_step, exit_code = log_time - run.wall_seconds, run.global_step, run.global_step, 0
    for iteration in range(run.iteration + 1, num_iterations + 1):
        run.iteration = iteration
        if args.anneal_lr:
            optimizer.param_groups[0]["lr"] = (1.0 - (iteration - 1.0) / num_iterations) * args.learning_rate

        # ---- rollout -------------------------------------------------------------------------------------------------
        noise, lasts = torch.empty_like(actions).normal_(generator=rng), []  # the noise of the whole rollout
        for step in range(args.num_steps):
            obs[step], valid[step] = next_obs, next_valid
            with torch.no_grad():
                mean, values[step], _ = agent(next_obs)
                actions[step] = mean + agent.actor_logstd.exp() * noise[step]
                logprobs[step] = gaussian_logprobs(mean, agent.actor_logstd, actions[step])
            next_obs, rewards[step], terminations[step], truncations[step], next_valid, *last = envs.step(actions[step])
            lasts.append(last)
            episode = episode + torch.stack([rewards[step], torch.ones_like(rewards[step])], -1) * valid[step, :, None]
            done = (terminations[step] | truncations[step])[:, None]
            ends[step], episode = episode * done, episode * ~done
        run.global_step += batch_size
        new_games = ends[ends[..., 1] > 0]  # the first look at what the device has done
        for count, games in metrics.gather((len(new_games), new_games[-100:].tolist())):
            run.episodes, run.games = run.episodes + count, [*run.games, *games][-100:]

        # ---- targets -------------------------------------------------------------------------------------------------
        if not args.mask_resets:
            terminations, truncations, valid = terminations | truncations, truncations & False, valid | True
        with torch.no_grad():
            next_values = torch.cat([values[1:], agent(next_obs)[1][None]])  # a late reset shows one row later
            for step, (ended, last_obs) in enumerate(lasts):
                if len(ended) > 0:
                    next_values[step, ended] = agent(last_obs)[1]
            advantages, returns = gae(
                rewards * args.reward_scaler,
                values,
                terminations,
                truncations,
                next_values,
                valid,
                args.gamma,
                args.gae_lambda,
            )
        batch = [x.flatten(0, 1) for x in (obs, actions, logprobs, values, advantages, returns, valid)]
        b_obs, b_actions, b_logprobs, b_values, b_advantages, b_returns, b_valid = batch

        # ---- update --------------------------------------------------------------------------------------------------
        def minibatch(inds):
            return [x.index_select(0, inds) for x in batch]

        def minibatch_loss(mb_obs, mb_actions, mb_logprobs, mb_values, mb_advantages, mb_returns, mb_valid):
            if args.norm_adv:
                mb_advantages = normalize_advantages(mb_advantages, mb_valid)
            newmean, newvalue, _ = agent(mb_obs)
            return ppo_loss(
                newmean,
                agent.actor_logstd,
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

        for _epoch in range(args.update_epochs):
            for mb_inds in torch.randperm(len(b_obs), generator=rng, device=device).split(mb_size):
                loss, stats = minibatch_loss(*minibatch(mb_inds))
                optimizer.zero_grad()
                loss.backward()
                metrics.add_over_ranks([*(p.grad for p in agent.parameters()), *stats])
                grad_norm = nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm, foreach=True)
                optimizer.step()
                run.totals += torch.stack([*stats, grad_norm])
                run.minibatches += 1
                run.gradient_steps += 1
                if args.desired_kl is not None:  # the rule of rsl_rl and rl_games: stay within a factor of 2
                    kl, group = stats[LOSSES.index("approx_kl")].item() / args.desired_kl, optimizer.param_groups[0]
                    group["lr"] = min(max(group["lr"] * (1.5 if kl < 0.5 else 1.0 if kl < 2 else 1 / 1.5), 1e-5), 1e-2)
            if args.target_kl is not None and stats[LOSSES.index("approx_kl")] > args.target_kl:
                break
        run.explained.append(metrics.explained_variance(b_values[b_valid], b_returns[b_valid]))
        # what is not finite reaches the parameters and stays: one look an iteration finds it before it is saved
        suspects = {
            "obs": obs,
            "rewards": rewards,
            "values": values,
            "advantages": advantages,
            **dict(zip(LOSSES, run.totals)),
            "parameters": nn.utils.parameters_to_vector(agent.parameters()),
        }
        finite = metrics.sum_over_ranks(torch.stack([x.isfinite().all() for x in suspects.values()]).int()).tolist()
        if min(finite) < NUM_RANKS:
            bad = list(suspects)[finite.index(min(finite))]
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
            gradients = torch.autograd.grad(
                minibatch_loss(*minibatch(probe_inds[RANK::NUM_RANKS]))[0], list(agent.parameters())
            )
            metrics.add_over_ranks(gradients)
            probe = {**probe, **metrics.gradient_statistics(gradients)}
            scalars.update({f"diagnostics/{name}": value for name, value in native.items()})
            scalars.update({f"probe/{name}": value for name, value in probe.items()})
            scalars["outer/kl_behavior"] = metrics.kl_behavior(logratio)
            scalars["outer/ddr"] = metrics.ddr(NUM_RANKS * len(valid_inds), scalars["outer/kl_behavior"])
        if args.norm_obs:  # last: rollout, update and diagnostics have seen the same normalisation
            agent.obs_sums += metrics.sum_over_ranks(metrics.column_sums(b_obs[b_valid]))

        # ---- log -----------------------------------------------------------------------------------------------------
        stop_signals[:] = sum(metrics.gather(stop_signals), [])  # all processes stop together
        now = time.time()
        if log_point:
            num_rows = COVERAGE_ROWS * iteration // num_iterations - sum(map(len, coverage["step"]))
            inds = probe_inds[metrics.stratified_rows(len(probe_inds), num_rows, seed=run.global_step)]
            with torch.no_grad():
                _, row_values, hiddens = agent(b_obs.index_select(0, inds))
            coverage["obs"].append(b_obs[inds].cpu().numpy())
            coverage["feature"].append(hiddens[0][-1].cpu().numpy().astype(np.float16))
            coverage["value"].append(row_values.cpu().numpy())
            coverage["step"].append(np.full(len(inds), run.global_step))
            scalars["charts/episodes"] = run.episodes
            if run.games:
                scalars["charts/episodic_return"], scalars["charts/episodic_length"] = np.mean(run.games, 0).tolist()
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
