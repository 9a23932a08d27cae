"""PPO-EWMA on EnvPool's Atari: an iteration of PPO as one step of an outer loop, and how to scale it.

    python ppo_ewma_atari_envpool.py --num-envs 128 --scaling more-minibatches --scale-from 8 --prox-com 16
    torchrun --nproc-per-node 4 ppo_ewma_atari_envpool.py --num-envs 512    # a share of them for each process, and GPU

This is ppo_atari_envpool.py with PPO-EWMA (Hilton et al. 2022, arXiv 2110.00641), P3's (Beukman et al. 2026, arXiv
2603.06009) measures `outer/` and ways to scale, another run's network to begin with, and torchrun.

Papers: Schulman et al. 2017 (PPO); Mayor et al. 2025, arXiv 2506.03404 (the six diagnostics). Reference: CleanRL's
cleanrl/ppo_atari_envpool.py @fe8d8a0, with the same algorithm, defaults and names, but for these departures:

1. The step after `done` only resets the environment: its action is ignored, its reward is 0. CleanRL trains on it; here
   `valid` keeps it out of losses, advantages and diagnostics (`--no-mask-resets`: as CleanRL).
2. A time limit is not a death: a truncated step bootstraps from the value of the last observation, a terminated one
   from 0. CleanRL bootstraps neither (`--no-mask-resets` again).
3. Returns are of whole games, also of those that the time limit ends. Losses are means over all minibatches since the
   last of `--num-logs` points; CleanRL logs the last minibatch.
4. Frames are stored as uint8 with the channels last, 1/255 is folded into the first convolution, actions are drawn by
   the Gumbel-max trick, Adam is fused: the same mathematics, faster.
5. Threads step pieces of the environments through whole rollouts and compute pieces of the minibatches. The result does
   not depend on their number.
6. A batch that the minibatches do not divide is refused. Each environment has a seed of its part. A run is a directory
   that can be killed at any time; the same command resumes it.
"""

import support.early_help  # noqa: F401 isort: skip - answers --help before torch is imported
import math
import os
import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Optional

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

import metrics
from support import arguments, devices, rundir
from support.arguments import Count, Evaluation, Fraction, NonNegative, Positive, Seed, Steps, Threads
from support.envs.envpool import check_env_id, library, make_envpool
from support.envs.episodes import Episodes, env_seeds, evaluate, run_episodes

OBS_SHAPE = (84, 84, 4)  # channels last


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
    resume_from: Optional[str] = None  # a run directory: begins with its newest checkpoint and the same network
    num_logs: Count = 1000  # the number of points in every curve (at most one per iteration)
    diagnostics: bool = True  # logs the diagnostics of the network at those points
    probe_size: Count = 1024  # rows of the batch that `probe/` looks at, so that its numbers compare across batch sizes
    checkpoint_minutes: NonNegative = 10.0  # minutes between checkpoints; 0 writes one after every iteration
    eval_episodes: Evaluation = 0  # evaluation episodes of the final network when training ends: `final_return`
    num_threads: Threads = 0  # CPU threads of PyTorch and of EnvPool; 0 takes every core, or OMP_NUM_THREADS
    # Algorithm specific arguments
    env_id: str = "Breakout-v5"  # the id of EnvPool's Atari game
    total_timesteps: Steps = 10000000  # environment steps of the whole run, over all environments (each is 4 frames)
    learning_rate: NonNegative = 2.5e-4  # the learning rate of Adam
    num_envs: Count = 8  # the number of parallel environments of the whole run: N
    num_steps: Count = 128  # the number of steps in each environment per rollout: T
    anneal_lr: bool = True  # anneals the learning rate linearly to 0
    gamma: Fraction = 0.99  # the discount factor
    gae_lambda: Fraction = 0.95  # lambda of the generalised advantage estimation
    num_minibatches: Count = 4  # minibatches per epoch; the batch is num_envs * num_steps
    minibatch_size: Optional[Count] = None  # rows per minibatch, in place of num-minibatches
    scale_from: Optional[Count] = None  # the environments of the baseline of --scaling; default: those of num-envs
    scaling: Optional[str] = None  # P3's recipe: more-minibatches, bigger-minibatches, sqrt-lr, or hybrid:B (recipe.py)
    update_epochs: Count = 4  # passes over each batch
    norm_adv: bool = True  # normalises the advantages in each minibatch
    clip_coef: NonNegative = 0.1  # the clipping coefficient of the policy ratio, and of the value if clip-vloss
    prox_com: Optional[NonNegative] = None  # PPO-EWMA: the age, in minibatches, of the policy that clipping refers to
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
    cuda_graphs: bool = False  # replays policy and update as CUDA graphs, for NVIDIA; needs requirements-gpu.txt


def parse_args(argv):
    """Returns checked Args; exits 2 with one line on bad input. Touches no file."""
    args = arguments.parse(Args, argv, __doc__)
    check_env_id(args.env_id, "envpool.atari", "an Atari game")
    return arguments.check(args, argv, row_bytes=math.prod(OBS_SHAPE), torchrun=True)


# ---- environments ----------------------------------------------------------------------------------------------------
def make_envs(args, seeds, num_threads=1):
    """EnvPool's Atari, an environment for each seed. A lost life ends an episode; rewards are clipped to their sign."""
    return make_envpool(args.env_id, seeds, num_threads, episodic_life=True, reward_clip=True)


class Rollout(NamedTuple):
    """What the N environments of this process did in T steps: tensors on the device, and their answers in NumPy."""

    obs: torch.Tensor  # (T, N, 84, 84, 4) uint8
    logits: torch.Tensor  # (T, N, A) float32
    values: torch.Tensor  # (T + 1, N) float32: the last row is of the observation after the last step
    actions: torch.Tensor  # (T, N) int64
    rewards: np.ndarray  # (T, N) float32, clipped; row t follows actions[t], here and below
    raw_rewards: np.ndarray  # (T, N) float32, 0 in an autoreset step
    terminations: np.ndarray  # (T, N) bool
    truncations: np.ndarray  # (T, N) bool
    game_overs: np.ndarray  # (T, N) bool: the game is over, not only a life


# ---- network ---------------------------------------------------------------------------------------------------------
def layer_init(layer, std=2**0.5, bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


def nature_cnn():
    """The encoder of Mnih et al. 2015: (B, 4, 84, 84) -> (B, 512). In place, its ReLUs take no memory."""
    return nn.Sequential(
        layer_init(nn.Conv2d(4, 32, 8, stride=4)),
        nn.ReLU(inplace=True),
        layer_init(nn.Conv2d(32, 64, 4, stride=2)),
        nn.ReLU(inplace=True),
        layer_init(nn.Conv2d(64, 64, 3, stride=1)),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        layer_init(nn.Linear(64 * 7 * 7, 512)),
        nn.ReLU(inplace=True),
    )


class Agent(nn.Module):
    """Actor and critic. The parameters have the names and shapes of CleanRL's, so that weights can be exchanged."""

    def __init__(self, num_actions, shared_encoder=True, bf16=False):
        super().__init__()
        self.bf16 = bf16
        self.network = nature_cnn()
        self.actor = layer_init(nn.Linear(512, num_actions), std=0.01)
        self.critic = layer_init(nn.Linear(512, 1), std=1)
        self.critic_network = None if shared_encoder else nature_cnn()

    def encode(self, network, x):
        """Returns the outputs of the four ReLUs; the last, (B, 512) in float32, is the representation."""
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
        """Maps obs (B, 84, 84, 4) uint8 to logits (B, A), value (B,) and the post-ReLU layers of each encoder."""
        x = obs.permute(0, 3, 1, 2)  # to PyTorch such a view is a channels_last batch: nothing moves
        hiddens = [self.encode(self.network, x)]
        if self.critic_network is not None:
            hiddens.append(self.encode(self.critic_network, x))
        return self.actor(hiddens[0][-1]), self.critic(hiddens[-1][-1]).squeeze(-1), hiddens


def make_agent(args, device="cpu"):
    """The network for the game of args, with the weights that PyTorch's generator gives first."""
    num_actions = int(library().make_spec(args.env_id).action_space.n)
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

    obs: torch.Tensor  # (B, 84, 84, 4) uint8
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
    """Advantages (..., B) with mean 0 and (unbiased) standard deviation 1 over the valid rows, of all processes."""
    count = devices.sum_over_ranks(valid.sum(-1, keepdim=True))
    mean = devices.sum_over_ranks(torch.where(valid, advantages, 0.0).sum(-1, keepdim=True)) / count.clamp(min=1)
    centred = torch.where(valid, advantages - mean, 0.0)
    squares = devices.sum_over_ranks(centred.square().sum(-1, keepdim=True))
    return centred / ((squares / (count - 1).clamp(min=1)).sqrt() + 1e-8)


def ewma_surrogate(logratio, prox_logratio, advantages, clip_coef):
    """PPO-EWMA's policy loss of each row, clipped around the proximal policy (Hilton et al. 2022, arXiv 2110.00641).

    max(-A new / old, -A clip(new / prox, 1 - eps, 1 + eps) prox / old), with old at least new / 100, which caps the
    importance ratio. logratio, prox_logratio: log-probabilities of the actions taken, new and prox minus old; all (B,).
    """
    cap = torch.clamp(math.log(100.0) - logratio.detach(), max=0.0)
    low, high = math.log(max(1.0 - clip_coef, 1e-12)), math.log(1.0 + clip_coef)
    clipped = torch.clamp(logratio - prox_logratio, low, high) + prox_logratio
    return torch.max(-advantages * (logratio + cap).exp(), -advantages * (clipped + cap).exp())


def ppo_loss(prox, agent, args, mb, count):
    """The clipped surrogate loss (Schulman et al. 2017, eq. 7 and 9), and its parts without gradient, by name.

    mb: some rows of a minibatch, which has `count` valid rows in all: the losses of its pieces add up to its mean.
    With prox, the proximal policy, the policy loss is PPO-EWMA's.
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
    if prox is not None:
        prox_logprob = categorical(prox(mb.obs)[0], mb.actions)[0]
        pg_loss = ewma_surrogate(logratio, prox_logprob - mb.logprobs, mb.advantages, args.clip_coef)
        outside = ((newlogprob - prox_logprob).exp() - 1.0).abs() > args.clip_coef

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


def gradient_of_rows(loss_function, agent, args, workers, mb, count):
    """This process's share of `gradient`: of rows of a minibatch that has `count` valid rows in all processes."""
    parameters = list(agent.parameters())

    def of_piece(rows):
        loss, losses = loss_function(agent, args, rows, count)
        return list(torch.autograd.grad(loss, parameters)), losses

    return workers.summed(of_piece, mb)


def gradient(loss_function, agent, args, workers, mb):
    """The gradient of a minibatch's loss, a list, and the parts of the loss. Threads compute pieces of the rows."""
    count = devices.sum_over_ranks(mb.valid.sum()).clamp(min=1)
    if args.norm_adv:
        mb = mb._replace(advantages=normalize_advantages(mb.advantages, mb.valid))
    gradients, losses = gradient_of_rows(loss_function, agent, args, workers, mb, count)
    devices.add_over_ranks([*gradients, *losses.values()])
    return gradients, losses


def update(loss_function, agent, optimizer, args, workers, mb):
    """One step of the optimiser on a minibatch. Returns the parts of the loss, and the gradient's norm unclipped."""
    gradients, losses = gradient(loss_function, agent, args, workers, mb)
    for parameter, total in zip(agent.parameters(), gradients):
        parameter.grad = total
    losses["grad_norm"] = nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm, foreach=True)
    optimizer.step()
    return losses


# ---- the outer loop --------------------------------------------------------------------------------------------------
def policy_gradient(prox, agent, args, batch, workers, rows):
    """The gradient (P,) of the policy's mean loss over some rows of a batch, added minibatch by minibatch."""
    of_policy = replace(args, vf_coef=0.0)  # the values' gradient would hide the policy's
    count, total = batch.valid[rows].sum().clamp(min=1), 0.0
    for inds in rows.split(args.minibatch_size // devices.NUM_RANKS):
        of_part, _ = gradient_of_rows(partial(ppo_loss, prox), agent, of_policy, workers, batch.rows(inds), count)
        total = total + torch.cat([x.flatten() for x in of_part])
    return total


def gradient_noise(prox, agent, args, batch, workers, seed):
    """P3's noise of the outer loop, between environments, and of the inner one, between shuffled rows of the same.

    Returns {"grad_noise_scale": ..., and its /envs, /inner, /dominated, /signal and /noise} (metrics.noise_scales).
    """
    num_envs, device = len(batch.valid) // args.num_steps, batch.valid.device
    groups = metrics.environment_groups(args.num_steps, num_envs, max(1, metrics.NOISE_GROUPS // devices.NUM_RANKS))
    order = torch.randperm(groups.numel(), generator=torch.Generator().manual_seed(seed))
    groups, shuffled = torch.stack([groups, groups.flatten()[order].view_as(groups)]).to(device)
    if args.norm_adv:
        batch = batch._replace(advantages=normalize_advantages(batch.advantages, batch.valid))

    def of_each(groups):
        gradients = [policy_gradient(prox, agent, args, batch, workers, rows) for rows in groups]
        return devices.joined(torch.stack(gradients), 0)  # with those of the other processes

    outer, inner = of_each(groups), of_each(shuffled)
    rows = devices.sum_over_ranks(batch.valid[groups.flatten()].sum()) / len(outer)
    return metrics.noise_scales(outer, inner, rows, num_envs // len(groups))


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
    lr = torch.tensor(args.learning_rate, device=device) if args.cuda_graphs else args.learning_rate
    optimizer = optim.Adam(agent.parameters(), lr=lr, eps=1e-5, fused=True, capturable=args.cuda_graphs)
    prox = devices.averaged(agent, args.prox_com)  # the proximal policy; None without --prox-com
    # noise_due: the step from which the gradient's noise is measured again; points: what metrics.outer_loop gets
    stats = rundir.Stats(gradient_steps=0, noise_due=0, points=[])  # and the sums since the last log point
    run.restore(agent=agent, optimizer=optimizer, rng=rng, log=stats, prox=prox)
    devices.begin_average(prox, agent)
    act = devices.graphed(partial(policy, devices.compiled(agent, args.compile)), args.cuda_graphs)
    loss_function = partial(devices.compiled(ppo_loss, args.compile), prox)
    learn = devices.graphed(partial(update, loss_function, agent, optimizer, args, workers), args.cuda_graphs)

    own = devices.share(args.num_envs)  # the range of this process's environments
    T, N, A = args.num_steps, len(own), agent.actor.out_features
    batch_size = args.num_envs * T
    # environments restart when a run resumes: with the same seeds they would repeat their first episodes
    seeds, pieces = env_seeds(args.seed, "train", run.global_step, own), workers.pieces(N)
    envs = [make_envs(args, seeds[piece], devices.env_threads(args, device)) for piece in pieces]
    episodes = Episodes(N)
    next_obs = np.concatenate(workers.map(lambda pool: pool.reset()[0], envs))  # (N, 4, 84, 84) uint8
    next_obs, next_done = devices.pinned(next_obs, device), np.zeros(N, dtype=bool)
    rollout = Rollout(
        obs=torch.zeros((T, N, *OBS_SHAPE), dtype=torch.uint8, device=device),
        logits=torch.zeros((T, N, A), device=device),
        values=torch.zeros((T + 1, N), device=device),
        actions=torch.zeros((T, N), dtype=torch.int64, device=device),
        rewards=np.zeros((T, N), dtype=np.float32),
        raw_rewards=np.zeros((T, N), dtype=np.float32),
        terminations=np.zeros((T, N), dtype=bool),
        truncations=np.zeros((T, N), dtype=bool),
        game_overs=np.zeros((T, N), dtype=bool),
    )

    def collect(pool, piece):
        """Steps one piece of the environments through the whole rollout."""
        part = Rollout(*(x[:, piece] for x in rollout))
        for t in range(T):
            part.obs[t] = devices.to_device(next_obs[piece], device).permute(0, 2, 3, 1)
            part.logits[t], part.values[t], part.actions[t] = act(part.obs[t], noise[t, piece])
            action = part.actions[t].to("cpu", torch.int32).numpy()
            next_obs[piece], part.rewards[t], part.terminations[t], part.truncations[t], info = pool.step(action)
            part.raw_rewards[t] = info["reward"]
            part.game_overs[t] = info["terminated"] | part.truncations[t]
            run.tick((t + 1) * args.num_envs)
        _, part.values[T], _ = act(devices.to_device(next_obs[piece], device).permute(0, 2, 3, 1), noise[-1, piece])

    while not run.ended:
        if args.anneal_lr:
            devices.set_learning_rate(optimizer, (1.0 - run.global_step / run.total_steps) * args.learning_rate)

        # ---- rollout -------------------------------------------------------------------------------------------------
        noise = gumbel_noise((T, args.num_envs, A), rng)[:, own.start : own.stop]
        workers.map(collect, envs, pieces)
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
        noise_scales, size = {}, args.minibatch_size // devices.NUM_RANKS
        if args.diagnostics and run.at_log_point(batch_size) and run.global_step >= stats.noise_due:
            stats.noise_due = run.global_step + run.schedule.noise_interval * batch_size
            noise_scales = gradient_noise(prox, agent, args, batch, workers, run.global_step)
        for _epoch in range(args.update_epochs):
            for inds in torch.randperm(N * T, generator=rng, device=device).split(size):
                losses = learn(batch.rows(inds))
                if prox is not None:
                    prox.update_parameters(agent)
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
                mb = batch.rows(probe[devices.RANK :: devices.NUM_RANKS])
                of_probe, _ = gradient(partial(ppo_loss, prox), agent, args, workers, mb)
                for place, inds, gradients in (("probe", probe, of_probe), ("diagnostics", rows, last)):
                    if place == "probe" or len(probe) < len(rows):
                        seen = metrics.inspect(agent, batch.obs, inds, workers.map)
                    found = diagnose(agent, batch, inds, seen, gradients)
                    scalars.update({f"{place}/{name}": value for name, value in found.items()})
                kl = metrics.categorical_kl(batch.logits[rows], seen[0])  # of all valid rows, as is `seen`
                scalars = devices.numbers({**scalars, "outer/kl_behavior": kl})
                number, kl = devices.mean_over_ranks(len(rows), scalars["outer/kl_behavior"])
                stats.points.append((number, kl, scalars["losses/grad_norm"], run.mean_new_return()))
                outer = metrics.outer_loop(stats.points, max(10, args.num_logs // 10))  # kl_behavior, ddr and plateau
                scalars.update({f"outer/{name}": value for name, value in {**noise_scales, **outer}.items()})
            shown = batch.obs[probe[metrics.stratified_rows(len(probe), run.coverage_quota(), seed=run.global_step)]]
            with torch.no_grad():
                _, values, hiddens = agent(shown)
            run.add_coverage(frame=shown[..., -1], feature=hiddens[0][-1].half(), value=values)  # frame: the newest
            run.log({**devices.numbers(scalars), **run.charts()})
        run.end_iteration()

    # ---- close -------------------------------------------------------------------------------------------------------
    run.close(evaluate(workers, partial(play_episodes, agent, args, device), run.final_seeds()))


if __name__ == "__main__":
    with rundir.full_disk_in_one_line():
        main(parse_args(sys.argv[1:]))
