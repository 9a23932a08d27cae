"""PPO on Procgen: what N parallel environments and T rollout steps do where any level may be new.

    python ppo_procgen.py --env-id bigfish --bf16
    python ppo_procgen.py --env-id bigfish --num-levels 200      # ...and the return on unseen levels at every log point

Papers: Schulman et al. 2017 (PPO); Cobbe et al. 2020, arXiv 1912.01588 (Procgen); Mayor et al. 2025, arXiv 2506.03404
(the six diagnostics). Reference: CleanRL's cleanrl/ppo_procgen.py @fe8d8a0, with the same algorithm, defaults and
names, but for these departures:

1. The games are EnvPool's: the `procgen` package ends at Python 3.10. There the step after `done` only resets the
   environment: its action is ignored, its reward is 0. `valid` keeps it out of losses, advantages and diagnostics
   (`--no-mask-resets` trains on it).
2. A time limit is not a death: a truncated step bootstraps from the value of the last observation, a terminated one
   from 0. CleanRL bootstraps neither (`--no-mask-resets` again).
3. With `--num-levels`, `--eval-envs` whole games on unseen levels and as many on the training levels are played at each
   log point: finite levels are there to measure generalisation. Both begin and end with the network of that point, so
   that the gap does not depend on `--num-steps`. (Different seeds can draw equal levels, in easy CoinRun a quarter:
   openai/procgen#100.)
4. Losses are means over all minibatches since the last of `--num-logs` points; CleanRL logs the last minibatch, two
   scalars per game and nine per iteration.
5. Frames are stored as uint8, 1/255 is folded into the first convolution, actions are drawn by the Gumbel-max trick,
   Adam is fused: the same mathematics, faster.
6. Threads step pieces of the environments through whole rollouts and compute pieces of the minibatches. The result does
   not depend on their number.
7. A batch that the minibatches do not divide is refused. Each environment has a seed of its part, made from the run's
   seed, the steps done and its number; CleanRL's seeds s and s + 1 share all games but one. A run is a directory that
   can be killed at any time; the same command resumes it.
"""

import support.early_help  # noqa: F401 isort: skip - answers --help before torch is imported
import math
import os
import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple, Optional

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from typing_extensions import Annotated

import metrics
from support import arguments, devices, diagnostics, rundir
from support.arguments import Count, Evaluation, Fraction, NonNegative, Positive, Range, Seed, Steps, Threads
from support.envs.envpool import check_env_id, library, make_envpool
from support.envs.episodes import Episodes, env_seeds, evaluate, run_episodes

OBS_SHAPE = (64, 64, 3)  # channels last


# ---- Args ------------------------------------------------------------------------------------------------------------
@dataclass
class Args:
    exp_name: str = os.path.basename(__file__)[: -len(".py")]  # this experiment's part of the default run name
    seed: Seed = 1  # the seed of the network, of the sampled actions and of the environments
    torch_deterministic: bool = True  # makes cuDNN use deterministic kernels only
    cuda: bool = True  # runs on the GPU, if there is one
    track: bool = False  # mirrors the curves to Weights and Biases (`WANDB_MODE=offline` works without an account)
    wandb_project_name: str = "cleanRL"  # the project in Weights and Biases
    wandb_entity: Optional[str] = None  # the entity (team) in Weights and Biases
    capture_video: bool = False  # records an episode at the end (scripts/evaluate.py): `episode.mp4`, in colour
    run_name: Optional[str] = None  # the directory below runs-dir; default {env_id}__{exp_name}__{seed}__{unix time}
    runs_dir: str = "runs"  # the directory that holds the run directories
    num_logs: Count = 1000  # the number of points in every curve (at most one per iteration)
    diagnostics: bool = True  # logs the diagnostics of the network at those points
    probe_size: Count = 1024  # rows of the batch that `probe/` looks at, so that its numbers compare across batch sizes
    checkpoint_minutes: NonNegative = 10.0  # minutes between checkpoints; 0 writes one after every iteration
    eval_episodes: Evaluation = 0  # evaluation episodes of the final network when training ends: `final_return`
    num_threads: Threads = 0  # CPU threads of PyTorch and of EnvPool; 0 takes every core, or OMP_NUM_THREADS
    # Algorithm specific arguments
    env_id: str = "starpilot"  # one of the 16 games (bigfish, coinrun, …) or of EnvPool's ids (BigfishEasy-v0, …)
    distribution_mode: Optional[Literal["easy", "hard", "extreme", "memory", "exploration"]] = None  # default easy
    num_levels: Annotated[int, Range(0, 2**30)] = 0  # the number of levels to train on; 0 draws from all of them
    start_level: Annotated[int, Range(0, 2**30)] = 0  # the first of those levels
    eval_envs: Annotated[int, Range(0, 1024)] = 16  # episodes per log point on unseen levels, and on training levels
    total_timesteps: Steps = 25000000  # environment steps of the whole run, over all environments
    learning_rate: NonNegative = 5e-4  # the learning rate of Adam
    num_envs: Count = 64  # the number of parallel environments of the whole run: N
    num_steps: Count = 256  # the number of steps in each environment per rollout: T
    anneal_lr: bool = False  # anneals the learning rate linearly to 0
    gamma: Fraction = 0.999  # the discount factor
    gae_lambda: Fraction = 0.95  # lambda of the generalised advantage estimation
    num_minibatches: Count = 8  # minibatches per epoch; the batch is num_envs * num_steps
    minibatch_size: Optional[Count] = None  # rows per minibatch, in place of num-minibatches
    update_epochs: Count = 3  # passes over each batch
    norm_adv: bool = True  # normalises the advantages in each minibatch
    clip_coef: NonNegative = 0.2  # the clipping coefficient of the policy ratio, and of the value if clip-vloss
    clip_vloss: bool = True  # clips the value loss too
    ent_coef: NonNegative = 0.01  # the coefficient of the entropy
    vf_coef: NonNegative = 0.5  # the coefficient of the value loss
    max_grad_norm: Positive = 0.5  # the gradient's norm is clipped to this
    target_kl: Optional[Positive] = None  # ends the update after an epoch whose last minibatch has a larger approx_kl
    shared_encoder: bool = True  # one convolutional encoder for actor and critic, or one for each
    mask_resets: bool = True  # trains on no autoreset step and bootstraps at time limits (departures 1 and 2)
    bf16: bool = False  # computes the encoder in bfloat16 (autocast); heads, losses, GAE and Adam stay in float32
    tf32: bool = True  # lets NVIDIA GPUs multiply float32 numbers in TensorFloat-32
    compile: bool = False  # compiles the network and the loss with torch.compile: a minute at the start, a C++ compiler


def procgen_id(args):
    """EnvPool's name of the game: args.env_id is `bigfish`, and the mode is added, or such a name itself."""
    mode = (args.distribution_mode or "easy").capitalize()
    return args.env_id if "-v" in args.env_id else f"{args.env_id.capitalize()}{mode}-v0"


def parse_args(argv):
    """Returns checked Args; exits 2 with one line on bad input. Touches no file."""
    args = arguments.parse(Args, argv, __doc__)
    check_env_id(args.env_id, "envpool.procgen", "a Procgen game", procgen_id(args))
    if (args.distribution_mode or "").capitalize() not in procgen_id(args):
        arguments.fail(f"--distribution-mode {args.distribution_mode} contradicts --env-id {args.env_id}: give one")
    if args.start_level and not args.num_levels:
        arguments.fail(f"--start-level {args.start_level} without --num-levels: expected --num-levels of 1 or more")
    try:
        library().make_spec(procgen_id(args))
    except ImportError:  # Procgen draws with Qt, which EnvPool's wheel includes only from Python 3.12 on
        arguments.fail(f"--env-id {args.env_id} needs Qt 5: `sudo apt-get install -y libqt5gui5` installs it on Debian")
    return arguments.check(args, argv, row_bytes=math.prod(OBS_SHAPE))


# ---- environments ----------------------------------------------------------------------------------------------------
def make_envs(args, seeds, num_threads=1):
    """EnvPool's Procgen, an environment for each seed: frames (64, 64, 3), rewards as the game pays them."""
    options = {"channel_first": False, "num_levels": args.num_levels, "start_level": args.start_level}
    return make_envpool(procgen_id(args), seeds, num_threads, **options)


class Rollout(NamedTuple):
    """What N environments did in T steps: tensors on the device, and their answers in NumPy."""

    obs: torch.Tensor  # (T, N, 64, 64, 3) uint8
    logits: torch.Tensor  # (T, N, A) float32
    values: torch.Tensor  # (T + 1, N) float32: the last row is of the observation after the last step
    actions: torch.Tensor  # (T, N) int64
    rewards: np.ndarray  # (T, N) float32, 0 in an autoreset step; row t follows actions[t], here and below
    terminations: np.ndarray  # (T, N) bool
    truncations: np.ndarray  # (T, N) bool


# ---- network ---------------------------------------------------------------------------------------------------------
def layer_init(layer, std=2**0.5, bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


class ResidualBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv0, self.conv1 = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, x, hiddens):
        """Maps x (B, C, H, W) to the same shape and appends its two ReLUs to `hiddens`: hooks would not see them."""
        first = F.relu(x)
        second = F.relu(self.conv0(first))
        hiddens += [first, second]
        return x + self.conv1(second)


class ConvSequence(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 3, padding=1)
        self.res_block0, self.res_block1 = ResidualBlock(out_channels), ResidualBlock(out_channels)

    def forward(self, x, hiddens, scale=1.0):
        """Maps (B, in, H, W), times `scale`, to (B, out, H / 2, W / 2)."""
        x = F.max_pool2d(F.conv2d(x, self.conv.weight * scale, self.conv.bias, padding=1), 3, stride=2, padding=1)
        return self.res_block1(self.res_block0(x, hiddens), hiddens)


def impala_cnn():
    """The encoder of Espeholt et al. 2018, in PyTorch's own initialisation: (B, 3, 64, 64) -> (B, 256)."""
    return nn.Sequential(
        ConvSequence(3, 16),
        ConvSequence(16, 32),
        ConvSequence(32, 32),
        nn.Flatten(),
        nn.ReLU(),
        nn.Linear(32 * 8 * 8, 256),
        nn.ReLU(),
    )


class Agent(nn.Module):
    """Actor and critic. The parameters have the names and shapes of CleanRL's, so that weights can be exchanged."""

    def __init__(self, num_actions, shared_encoder=True, bf16=False):
        super().__init__()
        self.bf16 = bf16
        self.network = impala_cnn()
        self.actor = layer_init(nn.Linear(256, num_actions), std=0.01)
        self.critic = layer_init(nn.Linear(256, 1), std=1)
        self.critic_network = None if shared_encoder else impala_cnn()

    def encode(self, network, x):
        """Returns the outputs of the fourteen ReLUs; the last, (B, 256) in float32, is the representation."""
        hiddens = []
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.bf16):
            x = x.to(torch.bfloat16 if self.bf16 else torch.float32)
            x = network[0](x, hiddens, 1 / 255.0)  # scales 432 weights; x / 255 would round in bfloat16
            x = network[2](network[1](x, hiddens), hiddens)
            hiddens.append(F.relu(x))  # before Flatten, so that a unit is a channel here as well
            hiddens.append(F.relu(network[5](network[3](hiddens[-1]))))
        return hiddens[:-1] + [hiddens[-1].float()]

    def forward(self, obs):
        """Maps obs (B, 64, 64, 3) uint8 to logits (B, A), value (B,) and the post-ReLU layers of each encoder."""
        x = obs.permute(0, 3, 1, 2)  # to PyTorch such a view is a channels_last batch: nothing moves
        hiddens = [self.encode(self.network, x)]
        if self.critic_network is not None:
            hiddens.append(self.encode(self.critic_network, x))
        return self.actor(hiddens[0][-1]), self.critic(hiddens[-1][-1]).squeeze(-1), hiddens


def make_agent(args, device="cpu"):
    """The network for the game of args, with the weights that PyTorch's generator gives first."""
    num_actions = int(library().make_spec(procgen_id(args)).action_space.n)
    return Agent(num_actions, args.shared_encoder, args.bf16).to(device, memory_format=torch.channels_last)


def gumbel_noise(shape, generator):
    """Noise that makes a sample of the policy: argmax(logits + noise). float32 of this shape."""
    return torch.empty(shape, device=generator.device).exponential_(generator=generator).log_().neg_()


@torch.no_grad()
def policy(agent, obs, noise):
    """Samples actions (N,) for obs (N, H, W, C), given `gumbel_noise` (N, A). Returns logits, values and actions."""
    logits, values, _ = agent(obs)
    return logits, values, (logits + noise).argmax(-1)


def categorical(logits, actions):
    """Log-probabilities of actions (...) int64 under logits (..., A), and the entropy of each policy: both (...)."""
    logprobs = F.log_softmax(logits, dim=-1)
    return logprobs.gather(-1, actions[..., None]).squeeze(-1), -(logprobs.exp() * logprobs).sum(-1)


# ---- advantages and loss ---------------------------------------------------------------------------------------------
def normalize_rewards(rewards, ends, valid, discounted, moments, gamma):
    """gym's NormalizeReward: divides by the standard deviation of all discounted returns so far, clips to [-10, 10].

    rewards (T, N) float32, ends and valid (T, N) bool; `discounted` (N,) is what the episodes under way have earned and
    `moments` the (mean, variance, count) of all such sums, valid rows only. Returns the normalised rewards (T, N) and
    the new values of these two.
    """
    normalized = np.zeros_like(rewards)
    for t in range(len(rewards)):
        discounted = discounted * gamma + rewards[t]
        moments = diagnostics.merge_moments(moments, discounted[valid[t]])
        normalized[t] = (rewards[t] / np.sqrt(moments[1] + 1e-8)).clip(-10, 10)
        discounted = np.where(ends[t], 0.0, discounted)
    return normalized, discounted, tuple(map(float, moments))


def gae(rewards, values, terminations, truncations, next_values, valid, gamma, gae_lambda):
    """Generalised advantage estimation (Schulman et al. 2016, eq. 16). Tensors (T, N); returns (advantages, returns).

    next_values[t] is V of what step t led to, before any reset. A termination bootstraps 0, a truncation next_values;
    neither passes the trace on. A row that is not valid (an autoreset step) has no advantage and takes no time.
    """
    deltas = torch.where(valid, rewards + gamma * next_values * ~terminations - values, 0.0)
    decays = torch.where(valid, gamma * gae_lambda * (~(terminations | truncations)).to(rewards.dtype), 1.0)
    advantages, lastgaelam = torch.zeros_like(rewards), torch.zeros_like(rewards[0])
    for t in reversed(range(len(rewards))):
        advantages[t] = lastgaelam = deltas[t] + decays[t] * lastgaelam
    advantages = torch.where(valid, advantages, 0.0)
    return advantages, advantages + values


class Batch(NamedTuple):
    """The rows of a rollout, time-major, or some of them: B = T N, or fewer."""

    obs: torch.Tensor  # (B, 64, 64, 3) uint8
    logits: torch.Tensor  # (B, A) float32, of the policy that acted, as logprobs and values
    actions: torch.Tensor  # (B,) int64
    logprobs: torch.Tensor  # (B,) float32
    values: torch.Tensor  # (B,) float32
    returns: torch.Tensor  # (B,) float32
    advantages: torch.Tensor  # (B,) float32
    valid: torch.Tensor  # (B,) bool: no autoreset step

    def rows(self, inds):
        return Batch(*(x.index_select(0, inds) for x in self))


def normalize_advantages(advantages, valid):
    """Advantages (..., B) with mean 0 and (unbiased) standard deviation 1 over the valid rows; 0 in the others."""
    count = valid.sum(-1, keepdim=True)
    mean = torch.where(valid, advantages, 0.0).sum(-1, keepdim=True) / count.clamp(min=1)
    centred = torch.where(valid, advantages - mean, 0.0)
    std = (centred.square().sum(-1, keepdim=True) / (count - 1).clamp(min=1)).sqrt()
    return centred / (std + 1e-8)


def ppo_loss(agent, args, mb, count):
    """The clipped surrogate loss (Schulman et al. 2017, eq. 7 and 9), and its parts without gradient, by name.

    mb: some rows of a minibatch, which has `count` valid rows in all: the losses of its pieces add up to its mean.
    """

    def mean(x):
        return torch.where(mb.valid, x, 0.0).sum(-1) / count

    newlogits, newvalue, _ = agent(mb.obs)
    newlogprob, entropy = categorical(newlogits, mb.actions)
    logratio = newlogprob - mb.logprobs
    ratio = logratio.exp()

    # policy loss
    clipped = torch.clamp(ratio, 1 - args.clip_coef, 1 + args.clip_coef)
    pg_loss = -torch.min(mb.advantages * ratio, mb.advantages * clipped)
    outside = (ratio - 1.0).abs() > args.clip_coef

    # value loss
    v_loss = (newvalue - mb.returns).square()
    if args.clip_vloss:
        v_clipped = mb.values + torch.clamp(newvalue - mb.values, -args.clip_coef, args.clip_coef)
        v_loss = torch.max(v_loss, (v_clipped - mb.returns).square())
    v_loss = 0.5 * v_loss

    loss = mean(pg_loss) - args.ent_coef * mean(entropy) + args.vf_coef * mean(v_loss)
    with torch.no_grad():  # two estimators of KL(old || new), k1 and k3: joschu.net/blog/kl-approx.html
        means = mean(torch.stack([pg_loss, v_loss, entropy, -logratio, (ratio - 1) - logratio, outside.float()]))
    names = ("policy_loss", "value_loss", "entropy", "old_approx_kl", "approx_kl", "clipfrac")
    return loss, dict(zip(names, means))


def gradient(loss_function, agent, args, workers, mb):
    """The gradient of a minibatch's loss, a list, and the parts of the loss. Threads compute pieces of the rows."""
    parameters, count = list(agent.parameters()), mb.valid.sum().clamp(min=1)
    if args.norm_adv:
        mb = mb._replace(advantages=normalize_advantages(mb.advantages, mb.valid))

    def of_piece(rows):
        loss, losses = loss_function(agent, args, rows, count)
        return list(torch.autograd.grad(loss, parameters)), losses

    return workers.summed(of_piece, mb)


def update(loss_function, agent, optimizer, args, workers, mb):
    """One step of the optimiser on a minibatch. Returns the parts of the loss, and the gradient's norm unclipped."""
    gradients, losses = gradient(loss_function, agent, args, workers, mb)
    for parameter, total in zip(agent.parameters(), gradients):
        parameter.grad = total
    losses["grad_norm"] = nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm, foreach=True)
    optimizer.step()
    return losses


# ---- the six diagnostics ---------------------------------------------------------------------------------------------
@torch.no_grad()
def diagnose(agent, batch, rows, seen, gradients):
    """Mayor et al.'s six numbers, and their variants, of the updated network: metrics.py defines them.

    rows: of the batch; seen: what metrics.inspect returns of them; gradients: of some minibatch, a list.
    """
    logits, spectra, activity = seen
    log_ratio = categorical(logits, batch.actions[rows])[0] - batch.logprobs[rows]
    ess, probs = metrics.effective_sample_size(log_ratio), logits.double().softmax(-1)
    found = {
        "dormant_neurons": metrics.dormant_neurons(activity),
        **{f"dormant_neurons/tau_{tau:g}": metrics.dormant_neurons_tau(activity, tau) for tau in (0.0, 0.025, 0.1)},
        "dormant_neurons/zero_fraction": metrics.zero_fraction(activity),
        "weight_norm": metrics.weight_norm(agent.parameters()),
        "gradient_kurtosis": metrics.gradient_kurtosis(gradients),
        "gradient_kurtosis/nonzero": metrics.gradient_kurtosis_nonzero(gradients),
        "gradient_kurtosis/zero_fraction": metrics.gradient_zero_fraction(gradients),
        "ess": 100.0 * ess / max(len(rows), 1),
        "ess/samples": ess,
        "policy_variance": metrics.policy_variance(probs),
        "policy_variance/normalized": metrics.policy_variance_normalized(probs),
    }
    for encoder, spectrum in zip(("", "/critic_encoder"), spectra):
        found[f"feature_rank{encoder}"] = metrics.feature_rank(spectrum)
        found[f"feature_rank{encoder}/centered"] = metrics.feature_rank(spectrum, centered=True)
        found[f"feature_rank{encoder}/srank"] = metrics.srank(spectrum)
        found[f"feature_rank{encoder}/effective_rank"] = metrics.effective_rank(spectrum)
        found[f"feature_rank{encoder}/rows"] = len(rows)
    for layer, parameters in metrics.parameters_by_layer(agent).items():
        found[f"weight_norm/{layer}"] = metrics.weight_norm(parameters)
    return found


# ---- evaluation ------------------------------------------------------------------------------------------------------
@torch.no_grad()
def play_episodes(agent, args, device, seeds, games, bar, greedy=False):
    """Plays a whole game in a fresh environment for each of `games`, a range of places in `seeds`.

    Actions are sampled as in training, or the most likely ones if `greedy`. The result of a game depends neither on the
    other games of `games` nor on their number. Returns the raw returns, a list of floats. `bar` shows the progress.
    """
    generator = torch.Generator(device).manual_seed(seeds[0])

    def act(obs, playing):
        logits = agent(devices.to_device(obs[playing], device))[0]
        noise = gumbel_noise((len(seeds), logits.shape[-1]), generator)[games.start : games.stop][playing]
        actions = np.zeros(len(obs), dtype=np.int32)  # nothing, where the game is over
        actions[playing] = (logits if greedy else logits + noise).argmax(-1).cpu().numpy()
        return actions

    envs = make_envs(args, [seeds[game] for game in games], devices.env_threads(args, device))
    return run_episodes(envs, act, bar)


@torch.no_grad()
def returns_on_levels(agent, args, device, workers, step):
    """The mean returns of evaluation episodes on unseen and on training levels, and their difference, by tag."""
    all_levels = replace(args, num_levels=0, start_level=0)  # a training level with chance num_levels / 2**31
    seeds = env_seeds(args.seed, "levels", step, range(args.eval_envs))
    pieces = [partial(play_episodes, agent, levels, device) for levels in (all_levels, args)]
    returns = [evaluate(workers, piece, seeds) for piece in pieces]
    unseen, trained = (float(np.mean(of_levels)) for of_levels in returns)
    return {
        "charts/eval_episodic_return": unseen,
        "charts/eval_train_return": trained,
        "charts/generalization_gap": trained - unseen,
    }


def main(args):
    # ---- setup -------------------------------------------------------------------------------------------------------
    device = devices.set_up(args)
    run = rundir.Run(args, device)
    workers = devices.Workers(args, device)  # threads that share out the environments and the minibatches
    torch.manual_seed(args.seed)
    rng = torch.Generator(device).manual_seed(2**32 - 1 - args.seed)  # draws everything but the initial weights
    agent = make_agent(args, device)
    optimizer = optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5, fused=True)
    # and the sums of the losses since the last log point; mean, variance and count of the sums of normalize_rewards
    stats = rundir.Stats(gradient_steps=0, reward_moments=(0.0, 1.0, 1e-4))
    run.restore(agent=agent, optimizer=optimizer, rng=rng, log=stats)
    act = partial(policy, devices.compiled(agent, args.compile))
    learn = partial(update, devices.compiled(ppo_loss, args.compile), agent, optimizer, args, workers)

    T, N, A = args.num_steps, args.num_envs, agent.actor.out_features
    batch_size = N * T
    # environments restart when a run resumes: with the same seeds they would repeat their first episodes
    seeds, pieces = env_seeds(args.seed, "train", run.global_step, range(N)), workers.pieces(N)
    envs = [make_envs(args, seeds[piece], devices.env_threads(args, device)) for piece in pieces]
    episodes = Episodes(N)
    next_obs = np.concatenate(workers.map(lambda pool: pool.reset()[0], envs))  # (N, 64, 64, 3) uint8
    next_obs, next_done = devices.pinned(next_obs, device), np.zeros(N, dtype=bool)
    discounted = np.zeros(N)  # what the episodes under way have earned, for normalize_rewards
    rollout = Rollout(
        obs=torch.zeros((T, N, *OBS_SHAPE), dtype=torch.uint8, device=device),
        logits=torch.zeros((T, N, A), device=device),
        values=torch.zeros((T + 1, N), device=device),
        actions=torch.zeros((T, N), dtype=torch.int64, device=device),
        rewards=np.zeros((T, N), dtype=np.float32),
        terminations=np.zeros((T, N), dtype=bool),
        truncations=np.zeros((T, N), dtype=bool),
    )

    def collect(pool, piece):
        """Steps one piece of the environments through the whole rollout."""
        part = Rollout(*(x[:, piece] for x in rollout))
        for t in range(T):
            part.obs[t] = devices.to_device(next_obs[piece], device)
            part.logits[t], part.values[t], part.actions[t] = act(part.obs[t], noise[t, piece])
            action = part.actions[t].to("cpu", torch.int32).numpy()
            next_obs[piece], part.rewards[t], part.terminations[t], part.truncations[t], _ = pool.step(action)
            run.tick((t + 1) * N)
        _, part.values[T], _ = act(devices.to_device(next_obs[piece], device), noise[-1, piece])

    while not run.ended:
        if args.anneal_lr:
            devices.set_learning_rate(optimizer, (1.0 - run.global_step / run.total_steps) * args.learning_rate)

        # ---- rollout -------------------------------------------------------------------------------------------------
        noise = gumbel_noise((T, N, A), rng)
        workers.map(collect, envs, pieces)
        dones = rollout.terminations | rollout.truncations
        valid, next_done = np.concatenate([~next_done[None], ~dones[:-1]]), dones[-1]  # row t is no autoreset step
        run.global_step += batch_size
        run.add_episodes(*episodes.add(rollout.rewards, dones, valid))

        # ---- advantages ----------------------------------------------------------------------------------------------
        terminations, truncations = rollout.terminations, rollout.truncations
        if not args.mask_resets:
            terminations, truncations, valid = dones, np.zeros_like(dones), np.ones_like(dones)
        rewards, discounted, stats.reward_moments = normalize_rewards(
            rollout.rewards, dones, valid, discounted, stats.reward_moments, args.gamma
        )
        rewards, terminations, truncations, valid = (
            devices.to_device(x, device) for x in (rewards, terminations, truncations, valid)
        )
        # after a done, obs[t + 1] is still the true last observation: the next episode shows one row later
        values, next_values = rollout.values[:-1], rollout.values[1:]
        advantages, returns = gae(
            rewards, values, terminations, truncations, next_values, valid, args.gamma, args.gae_lambda
        )
        batch = Batch(
            obs=rollout.obs.flatten(0, 1),
            logits=rollout.logits.flatten(0, 1),
            actions=rollout.actions.flatten(0, 1),
            logprobs=categorical(rollout.logits, rollout.actions)[0].flatten(0, 1),
            values=values.flatten(0, 1),
            returns=returns.flatten(0, 1),
            advantages=advantages.flatten(0, 1),
            valid=valid.flatten(0, 1),
        )

        # ---- update --------------------------------------------------------------------------------------------------
        for _epoch in range(args.update_epochs):
            for inds in torch.randperm(batch_size, generator=rng, device=device).split(args.minibatch_size):
                losses = learn(batch.rows(inds))
                stats.add(losses)
                stats.gradient_steps += 1
                run.tick()
            if args.target_kl is not None and losses["approx_kl"] > args.target_kl:
                break
        stats.add({"explained_variance": metrics.explained_variance(batch.values, batch.returns, batch.valid)})
        # a number that is not finite reaches the parameters and stays: this check catches it before the checkpoint
        suspects = {"rewards": rewards, "logits": rollout.logits, "values": values, "advantages": advantages}
        suspects.update({name: stats.sums[name] for name in losses})
        suspects["parameters"] = torch.cat([x.detach().flatten() for x in agent.parameters()])
        if not run.all_finite(suspects):
            break

        # ---- log -----------------------------------------------------------------------------------------------------
        if run.at_log_point(batch_size):
            scalars = {f"losses/{name}": mean for name, mean in stats.means().items()}
            scalars["charts/learning_rate"] = float(optimizer.param_groups[0]["lr"])
            scalars["charts/gradient_steps"] = stats.gradient_steps
            rows = batch.valid.nonzero().squeeze(-1)
            probe = rows[metrics.stratified_rows(len(rows), args.probe_size, seed=run.global_step)]
            if args.diagnostics:  # of the whole batch, as Mayor et al.; and of equally many rows at any N x T
                last = metrics.unclipped([x.grad for x in agent.parameters()], losses["grad_norm"], args.max_grad_norm)
                of_probe, _ = gradient(ppo_loss, agent, args, workers, batch.rows(probe))
                for place, inds, gradients in (("probe", probe, of_probe), ("diagnostics", rows, last)):
                    if place == "probe" or len(probe) < len(rows):
                        seen = metrics.inspect(agent, batch.obs, inds, workers.map)
                    found = diagnose(agent, batch, inds, seen, gradients)
                    scalars.update({f"{place}/{name}": value for name, value in found.items()})
                scalars["outer/kl_behavior"] = kl = metrics.categorical_kl(batch.logits[rows], seen[0])
                scalars["outer/ddr"] = metrics.ddr(len(rows), kl)
            if args.num_levels and args.eval_envs:
                scalars.update(returns_on_levels(agent, args, device, workers, run.global_step))
            shown = batch.obs[probe[metrics.stratified_rows(len(probe), run.coverage_quota(), seed=run.global_step)]]
            with torch.no_grad():
                _, values, hiddens = agent(shown)
            run.add_coverage(frame=shown, feature=hiddens[0][-1].half(), value=values)
            run.log({**devices.numbers(scalars), **run.charts()})
        run.end_iteration()

    # ---- close -------------------------------------------------------------------------------------------------------
    run.close(evaluate(workers, partial(play_episodes, agent, args, device), run.final_seeds()))


if __name__ == "__main__":
    with rundir.full_disk_in_one_line():
        main(parse_args(sys.argv[1:]))
