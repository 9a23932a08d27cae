"""PPO with random network distillation: what N parallel environments and T rollout steps do where reward is rare.

    python ppo_rnd_envpool.py --env-id MontezumaRevenge-v5

Papers: Schulman et al. 2017 (PPO); Burda et al. 2019, arXiv 1810.12894 (RND); Mayor et al. 2025, arXiv 2506.03404 (the
six diagnostics). Reference: CleanRL's cleanrl/ppo_rnd_envpool.py @fe8d8a0, with the same algorithm, defaults and names,
but for these departures:

1. The step after `done` only resets the environment: its action is ignored, its reward is 0. `valid` keeps it out of
   losses, moments, advantages and diagnostics. A truncated step bootstraps from V of the last observation. CleanRL
   trains on these steps and bootstraps 0 at time limits (`--no-mask-resets` restores both). Returns are of whole games.
2. Intrinsic rewards are divided by the standard deviation of their discounted sums, and the sums run over time in each
   environment, as in the paper's code. CleanRL sums over environments (its issue #360), and counts T * N sums as N.
3. The predictor learns the frames that earned the intrinsic rewards: those that the steps led to, as in the paper's
   code. CleanRL learns those before the steps: with departure 1 the last frame of a life would stay new for ever.
4. The predictor learns from exactly `--update-proportion` of each minibatch's rows, and no others pass through it.
   CleanRL passes all of them, three quarters for nothing, and draws with that probability those that count.
5. Losses are means over all minibatches since the last of `--num-logs` points; `value_loss` is extrinsic,
   `int_value_loss` intrinsic. CleanRL logs the last minibatch.
6. Frames are stored as uint8 with the channels last, 1/255 is folded into the first convolution, actions are drawn by
   the Gumbel-max trick, Adam is fused: the same mathematics, faster.
7. Threads step pieces of the environments through whole rollouts and compute pieces of the minibatches. The result does
   not depend on their number.
8. A batch that the minibatches do not divide is refused. Each environment has a seed of its part. A run is a directory
   that can be killed at any time; the same command resumes it.
"""

import support.early_help  # noqa: F401 isort: skip - answers --help before torch is imported
import math
import os
import sys
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Optional

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

import metrics
from support import arguments, devices, diagnostics, rundir
from support.arguments import Count, Evaluation, Fraction, NonNegative, Positive, Seed, Steps, Threads
from support.envs.envpool import check_env_id, library, make_envpool
from support.envs.episodes import Episodes, env_seeds, evaluate, run_episodes

OBS_SHAPE = (84, 84, 4)  # channels last
ROOM_BYTES = {"MontezumaRevenge-v5": [3, 57], "PrivateEye-v5": [92], "Venture-v5": [90]}  # of the RAM (AtariARI)


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
    env_id: str = "MontezumaRevenge-v5"  # the id of EnvPool's Atari game
    repeat_action_probability: Fraction = 0.25  # sticky actions: the chance that a frame repeats the action before
    total_timesteps: Steps = 2000000000  # environment steps of the whole run, over all environments (each is 4 frames)
    learning_rate: NonNegative = 1e-4  # the learning rate of Adam
    num_envs: Count = 128  # the number of parallel environments of the whole run: N
    num_steps: Count = 128  # the number of steps in each environment per rollout: T
    anneal_lr: bool = True  # anneals the learning rate linearly to 0
    gamma: Fraction = 0.999  # the discount factor
    gae_lambda: Fraction = 0.95  # lambda of the generalised advantage estimation
    num_minibatches: Count = 4  # minibatches per epoch; the batch is num_envs * num_steps
    minibatch_size: Optional[Count] = None  # rows per minibatch, in place of num-minibatches
    update_epochs: Count = 4  # passes over each batch
    norm_adv: bool = True  # normalises the advantages in each minibatch
    clip_coef: NonNegative = 0.1  # the clipping coefficient of the policy ratio, and of the value if clip-vloss
    clip_vloss: bool = True  # clips the value loss too
    ent_coef: NonNegative = 0.001  # the coefficient of the entropy
    vf_coef: NonNegative = 0.5  # the coefficient of the value loss
    max_grad_norm: Positive = 0.5  # the gradient's norm is clipped to this
    target_kl: Optional[Positive] = None  # ends the update after an epoch whose last minibatch has a larger approx_kl
    update_proportion: Fraction = 0.25  # the share of each minibatch that the predictor learns from
    int_coef: NonNegative = 1.0  # the coefficient of the intrinsic advantages
    ext_coef: NonNegative = 2.0  # the coefficient of the extrinsic advantages
    int_gamma: Fraction = 0.99  # the discount factor of the intrinsic rewards
    num_iterations_obs_norm_init: Count = 50  # random rollouts before the run that start the frames' mean and variance
    shared_encoder: bool = True  # one convolutional encoder for actor and critic, or one for each
    mask_resets: bool = True  # trains on no autoreset step and bootstraps at time limits (departures 1 and 2)
    bf16: bool = False  # computes the encoder in bfloat16 (autocast); heads, RND, losses, GAE and Adam stay in float32
    tf32: bool = True  # lets NVIDIA GPUs multiply float32 numbers in TensorFloat-32
    compile: bool = False  # compiles the network and the loss with torch.compile: a minute at the start, a C++ compiler


def parse_args(argv):
    """Returns checked Args; exits 2 with one line on bad input. Touches no file."""
    args = arguments.parse(Args, argv, __doc__)
    check_env_id(args.env_id, "envpool.atari", "an Atari game")
    return arguments.check(args, argv, row_bytes=math.prod(OBS_SHAPE))


# ---- environments ----------------------------------------------------------------------------------------------------
def make_envs(args, seeds, num_threads=1):
    """EnvPool's Atari, an environment for each seed. A lost life ends an episode; rewards are clipped to their sign."""
    options = {"episodic_life": True, "reward_clip": True, "repeat_action_probability": args.repeat_action_probability}
    return make_envpool(args.env_id, seeds, num_threads, **options)


class Rollout(NamedTuple):
    """What N environments did in T steps: tensors on the device, and their answers in NumPy."""

    obs: torch.Tensor  # (T, N, 84, 84, 4) uint8
    logits: torch.Tensor  # (T, N, A) float32
    values: torch.Tensor  # (T + 1, N) float32, extrinsic: the last row is of the observation after the last step
    int_values: torch.Tensor  # (T + 1, N) float32, intrinsic
    actions: torch.Tensor  # (T, N) int64
    rewards: np.ndarray  # (T, N) float32, clipped; row t follows actions[t], here and below
    raw_rewards: np.ndarray  # (T, N) float32, 0 in an autoreset step
    terminations: np.ndarray  # (T, N) bool
    truncations: np.ndarray  # (T, N) bool
    game_overs: np.ndarray  # (T, N) bool: the game is over, not only a life


def random_frames(envs, actions):
    """The newest frame after each of some steps: (T, N, 84, 84) uint8, for actions (T, N)."""
    return np.stack([envs.step(action)[0][:, -1] for action in actions])


# ---- network ---------------------------------------------------------------------------------------------------------
def layer_init(layer, std=2**0.5, bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


def convolutions(channels, activation):
    """The three convolutions of Mnih et al. 2015: (B, channels, 84, 84) -> (B, 3136)."""
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
    """Actor and two critics. Names and shapes of the parameters are CleanRL's, so that weights can be exchanged."""

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
            # x / 255 would round in bfloat16 and pass over the whole batch; the 8192 weights scale for nothing
            x = F.conv2d(x, network[0].weight / 255.0, network[0].bias, network[0].stride)
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
        feature, critic_feature = hiddens[0][-1], hiddens[-1][-1]
        actor_hidden, extra = self.actor[:2](feature), self.extra_layer(critic_feature)
        # the hidden layers of the heads join those of the encoders; the representation stays the last
        hiddens[0].insert(-1, actor_hidden)
        hiddens[-1].insert(-1, extra)
        critic_hidden = extra + critic_feature
        value, int_value = self.critic_ext(critic_hidden).squeeze(-1), self.critic_int(critic_hidden).squeeze(-1)
        return self.actor[2](actor_hidden), value, int_value, hiddens


class RNDModel(nn.Module):
    """A fixed random network (target) and a deeper one that learns its outputs (predictor): new frames have errors."""

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
        """Maps frames (B, 84, 84) uint8, normalised by moments (mean, variance, ...), to squared errors (B, 512)."""
        mean, var = moments[:2]
        x = ((frames - mean.float()) / var.sqrt().float()).clamp(-5, 5).unsqueeze(1)
        return (self.predictor(x) - self.target(x)).square()


def make_agent(args, device="cpu"):
    """The network for the game of args, with the weights that PyTorch's generator gives first."""
    num_actions = int(library().make_spec(args.env_id).action_space.n)
    return Agent(num_actions, args.shared_encoder, args.bf16).to(device, memory_format=torch.channels_last)


def gumbel_noise(shape, generator):
    """Noise that makes a sample of the policy: argmax(logits + noise). float32 of this shape."""
    return torch.empty(shape, device=generator.device).exponential_(generator=generator).log_().neg_()


@torch.no_grad()
def policy(agent, obs, noise):
    """Samples actions (N,) for obs (N, 84, 84, 4), given `gumbel_noise` (N, A). Returns logits, values, actions."""
    logits, values, int_values, _ = agent(obs)
    return logits, values, int_values, (logits + noise).argmax(-1)


def categorical(logits, actions):
    """Log-probabilities of actions (...) int64 under logits (..., A), and the entropy of each policy: both (...)."""
    logprobs = F.log_softmax(logits, dim=-1)
    return logprobs.gather(-1, actions[..., None]).squeeze(-1), -(logprobs.exp() * logprobs).sum(-1)


# ---- advantages and loss ---------------------------------------------------------------------------------------------
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


def merge_step_moments(moments, frames, valid):
    """Adds the valid frames (T, N, 84, 84) of each step to running moments, (mean, variance, count), step by step.

    valid: (T, N) bool. The mean and the variance are (84, 84); the variance divides by the count.
    """

    def summed(x, keep):  # x[keep].sum(0) would wait for a GPU, which alone knows how many rows there are
        return torch.where(keep.view(-1, 1, 1), x, 0.0).sum(0)

    counts = valid.sum(1, dtype=torch.float64)
    sums = torch.stack([summed(row.double(), keep) for row, keep in zip(frames, valid)])
    divisors = counts.clamp(min=1).view(-1, 1, 1)
    means = sums / divisors
    squares = torch.stack([summed((row.double() - m).square(), keep) for row, keep, m in zip(frames, valid, means)])
    for step_moments in zip(means, squares / divisors, counts.tolist()):
        moments = diagnostics.join_moments(moments, step_moments)
    return moments


def discounted_sums(rewards, valid, running, gamma):
    """sums[t] = gamma * sums[t - 1] + rewards[t] over time in each environment, through the ends of episodes.

    rewards (T, N) float32; valid (T, N) bool: other rows take no time; running (N,): the sums before the first row.
    Returns the sums (T, N) and those of the last row (N,).
    """
    sums = torch.zeros_like(rewards)
    for t in range(rewards.shape[0]):
        sums[t] = running = torch.where(valid[t], gamma * running + rewards[t], running)
    return sums, running


@torch.no_grad()
def intrinsic_rewards(rnd_model, args, workers, stats, frames, valid):
    """How new the frames are: half of the predictor's squared error, and that in its unit. Both (T, N) float32.

    frames (T, N, 84, 84) uint8: those that the steps led to. The unit is the standard deviation of the discounted sums
    of all rewards so far (departure 2). stats: its frame_moments, which normalise the frames, its discounted sums and
    its sum_moments move on.
    """
    errors = workers.map(lambda rows: rnd_model(rows, stats.frame_moments).sum(-1) / 2, frames.flatten(0, 1).split(256))
    rewards = torch.cat(errors).view(valid.shape)
    stats.frame_moments = merge_step_moments(stats.frame_moments, frames, valid)
    sums, stats.discounted = discounted_sums(rewards, valid, stats.discounted, args.int_gamma)
    stats.sum_moments = diagnostics.merge_moments(stats.sum_moments, sums[valid].double())
    return rewards, rewards / stats.sum_moments[1].sqrt()


class Batch(NamedTuple):
    """The rows of a rollout, time-major, or some of them: B = T N, or fewer."""

    obs: torch.Tensor  # (B, 84, 84, 4) uint8
    logits: torch.Tensor  # (B, A) float32, of the policy that acted, as logprobs and values
    actions: torch.Tensor  # (B,) int64
    logprobs: torch.Tensor  # (B,) float32
    values: torch.Tensor  # (B,) float32
    returns: torch.Tensor  # (B,) float32
    advantages: torch.Tensor  # (B,) float32
    valid: torch.Tensor  # (B,) bool: no autoreset step
    int_returns: torch.Tensor  # (B,) float32, intrinsic
    frames: torch.Tensor  # (B, 84, 84) uint8: what the step led to; in a minibatch those that the predictor learns
    frames_valid: torch.Tensor  # (B,) bool: `valid` of the frames' rows

    def rows(self, inds, proportion):
        """The rows inds; of the frames a proportion, evenly spaced: of shuffled rows a random sample."""
        num_frames = math.ceil(proportion * len(inds))
        chosen = inds[torch.arange(num_frames, device=inds.device) * len(inds) // max(num_frames, 1)]
        return Batch(*(x.index_select(0, inds) for x in self[:-2]), *(x.index_select(0, chosen) for x in self[-2:]))


def normalize_advantages(advantages, valid):
    """Advantages (..., B) with mean 0 and (unbiased) standard deviation 1 over the valid rows; 0 in the others."""
    count = valid.sum(-1, keepdim=True)
    mean = torch.where(valid, advantages, 0.0).sum(-1, keepdim=True) / count.clamp(min=1)
    centred = torch.where(valid, advantages - mean, 0.0)
    std = (centred.square().sum(-1, keepdim=True) / (count - 1).clamp(min=1)).sqrt()
    return centred / (std + 1e-8)


def ppo_loss(agent, rnd_model, args, mb, count, num_learned, frame_mean, frame_var):
    """The clipped surrogate loss (Schulman et al. 2017, eq. 7 and 9), and its parts without gradient, by name.

    mb: some rows of a minibatch, which has `count` valid rows in all: the losses of its pieces add up to its mean. The
    losses of the intrinsic critic and of the predictor come to it; the predictor learns num_learned frames of the
    minibatch, normalised by frame_mean and frame_var.
    """

    def mean(x):
        return torch.where(mb.valid, x, 0.0).sum(-1) / count

    newlogits, newvalue, new_int_value, _ = agent(mb.obs)
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

    # intrinsic value loss, and the predictor's
    int_v_loss = 0.5 * mean((new_int_value - mb.int_returns).square())
    errors = rnd_model(mb.frames, (frame_mean, frame_var)).mean(-1)
    fwd_loss = torch.where(mb.frames_valid, errors, 0.0).sum(-1) / num_learned
    losses = {**dict(zip(names, means)), "int_value_loss": int_v_loss.detach(), "fwd_loss": fwd_loss.detach()}
    return loss + args.vf_coef * int_v_loss + fwd_loss, losses


def gradient(loss_function, parameters, args, workers, mb, frame_moments):
    """The gradient of a minibatch's loss, a list, and the parts of the loss. Threads compute pieces of the rows."""
    count, num_learned = mb.valid.sum().clamp(min=1), mb.frames_valid.sum().clamp(min=1)
    if args.norm_adv:
        mb = mb._replace(advantages=normalize_advantages(mb.advantages, mb.valid))

    def of_piece(rows):
        loss, losses = loss_function(rows, count, num_learned, *frame_moments[:2])
        return list(torch.autograd.grad(loss, parameters)), losses

    return workers.summed(of_piece, mb)


def update(loss_function, parameters, optimizer, args, workers, mb, frame_moments):
    """One step of the optimiser on a minibatch. Returns the parts of the loss, and the gradient's norm unclipped."""
    gradients, losses = gradient(loss_function, parameters, args, workers, mb, frame_moments)
    for parameter, total in zip(parameters, gradients):
        parameter.grad = total
    losses["grad_norm"] = nn.utils.clip_grad_norm_(parameters, args.max_grad_norm, foreach=True)
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
    """Plays a whole game, through all lives, in a fresh environment for each of `games`, a range of places in `seeds`.

    Actions are sampled as in training, or the most likely ones if `greedy`. The result of a game depends neither on the
    other games of `games` nor on their number. Returns the raw returns, a list of floats. `bar` shows the progress.
    """
    generator = torch.Generator(device).manual_seed(seeds[0])

    def act(obs, playing):
        logits = agent(devices.to_device(obs[playing], device).permute(0, 2, 3, 1))[0]
        noise = gumbel_noise((len(seeds), logits.shape[-1]), generator)[games.start : games.stop][playing]
        actions = np.zeros(len(obs), dtype=np.int32)  # nothing, where the game is over
        actions[playing] = (logits if greedy else logits + noise).argmax(-1).cpu().numpy()
        return actions

    envs = make_envs(args, [seeds[game] for game in games], devices.env_threads(args, device))
    return run_episodes(envs, act, bar)


def main(args):
    # ---- setup -------------------------------------------------------------------------------------------------------
    device = devices.set_up(args)
    run = rundir.Run(args, device)
    workers = devices.Workers(args, device)  # threads that share out the environments and the minibatches
    torch.manual_seed(args.seed)
    rng = torch.Generator(device).manual_seed(2**32 - 1 - args.seed)  # draws everything but the initial weights
    agent = make_agent(args, device)
    rnd_model = RNDModel().to(device, memory_format=torch.channels_last)
    parameters = [*agent.parameters(), *rnd_model.predictor.parameters()]
    optimizer = optim.Adam(parameters, lr=args.learning_rate, eps=1e-5, fused=True)
    T, N, A = args.num_steps, args.num_envs, agent.actor[2].out_features
    batch_size = N * T
    stats = rundir.Stats(gradient_steps=0, rooms=[])  # all rooms ever entered; the sums of the losses; and:
    stats.frame_moments = (torch.zeros(84, 84, device=device), torch.ones(84, 84, device=device), 1e-4)
    stats.discounted = torch.zeros(N, device=device)  # sums of intrinsic rewards
    stats.sum_moments = (*torch.tensor([0.0, 1.0], dtype=torch.float64, device=device), 1e-4)

    # environments restart when a run resumes: with the same seeds they would repeat their first episodes
    seeds, pieces = env_seeds(args.seed, "train", run.global_step, range(N)), workers.pieces(N)
    envs = [make_envs(args, seeds[piece], devices.env_threads(args, device)) for piece in pieces]
    if run.global_step == 0:  # random steps start the frames' moments; before restore(), which starts the clock
        size = (args.num_iterations_obs_norm_init, T, N)
        print(f"{run.path}: {math.prod(size):,} random steps for the frames' mean and variance", flush=True)
        workers.map(lambda pool: pool.reset(), envs)
        for random_actions in np.random.default_rng(args.seed).integers(A, size=size):
            random_actions = random_actions.astype(np.int32)
            frames = workers.map(random_frames, envs, [random_actions[:, piece] for piece in pieces])
            frames = devices.to_device(np.concatenate(frames, axis=1), device)  # (T, N, 84, 84) uint8
            every = torch.ones(frames.shape[:2], dtype=torch.bool, device=device)
            stats.frame_moments = merge_step_moments(stats.frame_moments, frames, every)
            run.exit_if_stopped()
    run.restore(agent=agent, rnd_model=rnd_model, optimizer=optimizer, rng=rng, log=stats)
    act = partial(policy, devices.compiled(agent, args.compile))
    loss_function = partial(devices.compiled(ppo_loss, args.compile), agent, rnd_model, args)
    learn = partial(update, loss_function, parameters, optimizer, args, workers)

    episodes, room_bytes = Episodes(N), ROOM_BYTES.get(args.env_id)
    next_obs = np.concatenate(workers.map(lambda pool: pool.reset()[0], envs))  # (N, 4, 84, 84) uint8
    next_obs, next_done = devices.pinned(next_obs, device), np.zeros(N, dtype=bool)
    rollout = Rollout(
        obs=torch.zeros((T, N, *OBS_SHAPE), dtype=torch.uint8, device=device),
        logits=torch.zeros((T, N, A), device=device),
        values=torch.zeros((T + 1, N), device=device),
        int_values=torch.zeros((T + 1, N), device=device),
        actions=torch.zeros((T, N), dtype=torch.int64, device=device),
        rewards=np.zeros((T, N), dtype=np.float32),
        raw_rewards=np.zeros((T, N), dtype=np.float32),
        terminations=np.zeros((T, N), dtype=bool),
        truncations=np.zeros((T, N), dtype=bool),
        game_overs=np.zeros((T, N), dtype=bool),
    )

    def collect(pool, piece):
        """Steps one piece of the environments through the whole rollout. Returns the rooms that were entered."""
        part, rooms = Rollout(*(x[:, piece] for x in rollout)), set()
        for t in range(T):
            part.obs[t] = devices.to_device(next_obs[piece], device).permute(0, 2, 3, 1)
            part.logits[t], part.values[t], part.int_values[t], part.actions[t] = act(part.obs[t], noise[t, piece])
            action = part.actions[t].to("cpu", torch.int32).numpy()
            next_obs[piece], part.rewards[t], part.terminations[t], part.truncations[t], info = pool.step(action)
            part.raw_rewards[t] = info["reward"]
            part.game_overs[t] = info["terminated"] | part.truncations[t]
            if room_bytes:
                rooms.update(map(tuple, info["ram"][:, room_bytes].tolist()))
            run.tick((t + 1) * N)
        last_obs = devices.to_device(next_obs[piece], device).permute(0, 2, 3, 1)
        _, part.values[T], part.int_values[T], _ = act(last_obs, noise[-1, piece])
        return rooms

    while not run.ended:
        if args.anneal_lr:
            devices.set_learning_rate(optimizer, (1.0 - run.global_step / run.total_steps) * args.learning_rate)

        # ---- rollout -------------------------------------------------------------------------------------------------
        noise = gumbel_noise((T, N, A), rng)
        stats.rooms = sorted({*stats.rooms}.union(*workers.map(collect, envs, pieces)))
        dones = rollout.terminations | rollout.truncations
        valid, next_done = np.concatenate([~next_done[None], ~dones[:-1]]), dones[-1]  # row t is no autoreset step
        run.global_step += batch_size
        run.add_episodes(*episodes.add(rollout.raw_rewards, rollout.game_overs, valid))

        # ---- advantages ----------------------------------------------------------------------------------------------
        terminations, truncations = rollout.terminations, rollout.truncations
        if not args.mask_resets:
            terminations, truncations, valid = dones, np.zeros_like(dones), np.ones_like(dones)
        rewards, terminations, truncations, valid = (
            devices.to_device(x, device) for x in (rollout.rewards, terminations, truncations, valid)
        )
        # after a done, obs[t + 1] is still the true last observation: the next episode shows one row later
        values, next_values = rollout.values[:-1], rollout.values[1:]
        advantages, returns = gae(
            rewards, values, terminations, truncations, next_values, valid, args.gamma, args.gae_lambda
        )
        # RND: the frames that the steps led to earn intrinsic rewards, and the predictor learns them
        last_frames = devices.to_device(next_obs[:, -1], device)
        frames = torch.cat([rollout.obs[1:, ..., -1], last_frames[None]])  # (T, N, 84, 84) uint8
        int_rewards, unit_rewards = intrinsic_rewards(rnd_model, args, workers, stats, frames, valid)
        # intrinsic episodes never end: the row before an autoreset step leads to the next life
        int_values, never = rollout.int_values, torch.zeros_like(valid)
        next_int_values = torch.cat([torch.where(valid[1:], int_values[1:-1], int_values[2:]), int_values[-1:]])
        int_advantages, int_returns = gae(
            unit_rewards, int_values[:-1], never, never, next_int_values, valid, args.int_gamma, args.gae_lambda
        )
        advantages = args.int_coef * int_advantages + args.ext_coef * advantages
        batch = Batch(
            obs=rollout.obs.flatten(0, 1),
            logits=rollout.logits.flatten(0, 1),
            actions=rollout.actions.flatten(0, 1),
            logprobs=categorical(rollout.logits, rollout.actions)[0].flatten(0, 1),
            values=values.flatten(0, 1),
            returns=returns.flatten(0, 1),
            advantages=advantages.flatten(0, 1),
            valid=valid.flatten(0, 1),
            int_returns=int_returns.flatten(0, 1),
            frames=frames.flatten(0, 1),
            frames_valid=valid.flatten(0, 1),
        )

        # ---- update --------------------------------------------------------------------------------------------------
        for _epoch in range(args.update_epochs):
            for inds in torch.randperm(batch_size, generator=rng, device=device).split(args.minibatch_size):
                losses = learn(batch.rows(inds, args.update_proportion), stats.frame_moments)
                stats.add(losses)
                stats.gradient_steps += 1
                run.tick()
            if args.target_kl is not None and losses["approx_kl"] > args.target_kl:
                break
        stats.add({"explained_variance": metrics.explained_variance(batch.values, batch.returns, batch.valid)})
        stats.add({"intrinsic_reward": torch.where(valid, int_rewards, 0.0).flatten().sum(-1) / valid.sum()})
        # a number that is not finite reaches the parameters and stays: this check catches it before the checkpoint
        suspects = {"rewards": rewards, "int_rewards": int_rewards, "logits": rollout.logits, "values": values}
        suspects.update(int_values=int_values[:-1], advantages=advantages)
        suspects.update({name: stats.sums[name] for name in losses})
        suspects["parameters"] = torch.cat([x.detach().flatten() for x in parameters])
        if not run.all_finite(suspects):
            break

        # ---- log -----------------------------------------------------------------------------------------------------
        if run.at_log_point(batch_size):
            scalars = {f"losses/{name}": mean for name, mean in stats.means().items()}
            scalars["charts/learning_rate"] = float(optimizer.param_groups[0]["lr"])
            scalars["charts/gradient_steps"] = stats.gradient_steps
            scalars["charts/intrinsic_reward"] = scalars.pop("losses/intrinsic_reward")
            if stats.rooms:
                scalars["charts/rooms"] = len(stats.rooms)
            rows = batch.valid.nonzero().squeeze(-1)
            probe = rows[metrics.stratified_rows(len(rows), args.probe_size, seed=run.global_step)]
            if args.diagnostics:  # of the whole batch, as Mayor et al.; and of equally many rows at any N x T
                last = metrics.unclipped([x.grad for x in agent.parameters()], losses["grad_norm"], args.max_grad_norm)
                mb, own = batch.rows(probe, args.update_proportion), list(agent.parameters())
                of_probe, _ = gradient(
                    partial(ppo_loss, agent, rnd_model, args), own, args, workers, mb, stats.frame_moments
                )
                for place, inds, gradients in (("probe", probe, of_probe), ("diagnostics", rows, last)):
                    if place == "probe" or len(probe) < len(rows):
                        seen = metrics.inspect(agent, batch.obs, inds, workers.map)
                    found = diagnose(agent, batch, inds, seen, gradients)
                    scalars.update({f"{place}/{name}": value for name, value in found.items()})
                scalars["outer/kl_behavior"] = kl = metrics.categorical_kl(batch.logits[rows], seen[0])
                scalars["outer/ddr"] = metrics.ddr(len(rows), kl)
            shown = batch.obs[probe[metrics.stratified_rows(len(probe), run.coverage_quota(), seed=run.global_step)]]
            with torch.no_grad():
                _, values, int_values, hiddens = agent(shown)
                values = args.ext_coef * values + args.int_coef * int_values
            run.add_coverage(frame=shown[..., -1], feature=hiddens[0][-1].half(), value=values)  # frame: the newest
            run.log({**devices.numbers(scalars), **run.charts()})
        run.end_iteration()

    # ---- close -------------------------------------------------------------------------------------------------------
    run.close(evaluate(workers, partial(play_episodes, agent, args, device), run.final_seeds()))


if __name__ == "__main__":
    with rundir.full_disk_in_one_line():
        main(parse_args(sys.argv[1:]))
