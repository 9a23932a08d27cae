"""PPO on thousands of simulated robots: on NVIDIA's Isaac Gym, or on mjlab (MuJoCo Warp), which needs no GPU.

    python ppo_isaacgym.py --env-id Mjlab-Cartpole-Balance --num-envs 256      # pip install -r requirements-mjlab.txt
    torchrun --nproc-per-node 8 ppo_isaacgym.py --env-id Ant --num-envs 262144    # Isaac Gym, each GPU its share

Papers: Schulman et al. 2017 (PPO); Mayor et al. 2025, arXiv 2506.03404 (P1: the diagnostics); Beukman et al. 2026,
arXiv 2603.06009 (P3: `outer/`). Reference: CleanRL's ppo_continuous_action_isaacgym.py @fe8d8a0, with the same
algorithm, defaults and names. Departures, each with its reason:

1. Isaac Gym resets one step late: the step after `done`, and the very first, is an autoreset step with a meaningless
   action and reward. CleanRL trains on it; here `valid` keeps it out of losses, advantage statistics and diagnostics
   (`--no-mask-resets` restores CleanRL's). mjlab has none.
2. A time limit is not a death: a truncated step bootstraps from the value of the real last observation, a terminated
   one from 0. CleanRL bootstraps neither (`--no-mask-resets` again). Isaac Gym reports a death in the time limit's own
   step as a time-out.
3. Returns and lengths are of whole episodes, all of them. Environments start at random ages of an episode, as with
   mjlab's trainer: started together they reach the time limit together, and returns lag. The first episode of each is
   cut short by this and is not counted (`--no-stagger-resets` restores CleanRL's).
4. Logged losses are means over all minibatches since the last point; CleanRL logs the last minibatch.
5. A curve has `--num-logs` points, however long the run.
6. `--reward-scaler` is applied; CleanRL declares it and does not use it.
7. A critic sees the privileged states of a task that has them.
8. A batch that the minibatches do not divide is refused; CleanRL silently adds a smaller minibatch.
9. A run is a directory that can be killed at any time and is resumed by the same command.
10. mjlab's tasks have mjlab's defaults (recipe.py), PyTorch's initial weights, and `--desired-kl` and `--norm-obs` as
    its rsl_rl has them; the rest is CleanRL. So, other than in rsl_rl: advantages are normalised in each minibatch, not
    over the batch; each epoch shuffles the rows anew; Adam's eps is 1e-5, not 1e-8; the statistics of `--norm-obs`
    change once an iteration, not at every step, which keeps the first ratios at 1; the gradients of actor and critic
    are clipped together; the deviation is learnt as its logarithm; a time limit bootstraps from the observation after
    the step, not before it. results/small/README.md has both programs' returns.
11. Threads compute pieces of each minibatch, whose gradients are added: beside a busy program PyTorch's own threads
    wait for each other. The result does not depend on their number.
12. torchrun, `--bf16`, `--orthogonal-init`, `--hidden-sizes`, `--activation`, `--shared-encoder`,
    `--minibatch-size`, `--scaling`, `--prox-com` and `--resume-from` are additions.
"""

import support.early_help  # noqa: F401 isort: skip - answers --help before torch is imported
import math
import os
import re
import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple, Optional, Tuple

from support import simulators  # isort: skip - before torch, as Isaac Gym demands
import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim

import metrics
from support import arguments, devices, diagnostics, recipe, rundir
from support.arguments import Count, Evaluation, Fraction, NonNegative, Positive, Seed, Steps, Threads
from support.envs.episodes import Episodes, env_seeds, evaluate

LOSSES = ("policy_loss", "value_loss", "entropy", "old_approx_kl", "approx_kl", "clipfrac")


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
    capture_video: bool = False  # records 100 steps at the end (scripts/evaluate.py), on mjlab: `episode.mp4`
    run_name: Optional[str] = None  # the directory below runs-dir; default {env_id}__{exp_name}__{seed}__{unix time}
    runs_dir: str = "runs"  # the directory that holds the run directories
    resume_from: Optional[str] = None  # a run directory: begins with its newest checkpoint and the same network
    num_logs: Count = 1000  # the number of points in every curve (at most one per iteration)
    diagnostics: bool = True  # logs the diagnostics of the network at those points
    probe_size: Count = 1024  # rows of the batch that `probe/` looks at, so that its numbers compare across batch sizes
    checkpoint_minutes: NonNegative = 10.0  # minutes between checkpoints; 0 writes one after every iteration
    eval_episodes: Evaluation = 0  # evaluation episodes of the final network when training ends: `final_return`
    num_threads: Threads = 0  # CPU threads of the update; 0 takes every core, or OMP_NUM_THREADS
    # Algorithm specific arguments
    env_id: str = "Ant"  # the id of the task: `Mjlab-…` runs on mjlab, every other on Isaac Gym
    total_timesteps: Steps = 30000000  # environment steps of the whole run, over all environments
    learning_rate: NonNegative = 0.0026  # the learning rate of Adam
    num_envs: Count = 4096  # the number of parallel environments of the whole run: N
    num_steps: Count = 16  # the number of steps in each environment per rollout: T
    anneal_lr: bool = False  # anneals the learning rate linearly to 0
    gamma: Fraction = 0.99  # the discount factor
    gae_lambda: Fraction = 0.95  # lambda of the generalised advantage estimation
    num_minibatches: Count = 2  # minibatches per epoch; the batch is num_envs * num_steps
    minibatch_size: Optional[Count] = None  # rows per minibatch, in place of num-minibatches
    scale_from: Optional[Count] = None  # the environments of the base of --scaling; default: those of num-envs
    scaling: Optional[str] = None  # P3's recipe: more-minibatches, bigger-minibatches, sqrt-lr, or hybrid:B (recipe.py)
    update_epochs: Count = 4  # passes over each batch
    norm_adv: bool = True  # normalises the advantages in each minibatch
    clip_coef: NonNegative = 0.2  # the clipping coefficient of the policy ratio, and of the value if clip-vloss
    prox_com: Optional[NonNegative] = None  # PPO-EWMA: the age, in minibatches, of the policy that clipping refers to
    clip_vloss: bool = False  # clips the value loss too
    ent_coef: NonNegative = 0.0  # the coefficient of the entropy
    vf_coef: NonNegative = 2.0  # the coefficient of the value loss
    max_grad_norm: Positive = 1.0  # the gradient's norm is clipped to this
    target_kl: Optional[Positive] = None  # ends the update after an epoch whose last minibatch has a larger approx_kl
    desired_kl: Optional[Positive] = None  # adapts the learning rate to keep losses/kl near this, as rsl_rl does
    reward_scaler: Positive = 1.0  # the factor on the rewards of training; the logged returns are raw
    norm_obs: bool = False  # normalises observations by their mean and deviation over all earlier iterations
    hidden_sizes: Tuple[int, ...] = (256, 256)  # the units of each hidden layer
    activation: Literal["tanh", "elu", "relu"] = "tanh"  # follows each hidden layer
    orthogonal_init: bool = True  # begins with CleanRL's orthogonal weights, or with PyTorch's own
    shared_encoder: bool = False  # one stack of hidden layers for actor and critic, or one for each
    mask_resets: bool = True  # trains on no autoreset step and bootstraps at time limits (departures 1 and 2)
    stagger_resets: bool = True  # starts each environment at a random age of its episode, and after a resume again
    bf16: bool = False  # computes the hidden layers in bfloat16 (autocast); heads, losses, GAE and Adam stay in float32


def parse_args(argv):
    """Returns checked Args; exits 2 with one line on bad input. Touches no file."""
    env_id = ([Args.env_id] + re.findall(r"--env[-_]id[= ](\S+)", " ".join(argv)))[-1]
    default = Args(**recipe.task_defaults(env_id))
    args = arguments.parse(Args, argv, __doc__, default=default)
    simulators.check_env_id(args.env_id)
    if args.desired_kl is not None and args.anneal_lr:
        arguments.fail("--desired-kl and --anneal-lr exclude each other: expected --desired-kl None or --no-anneal-lr")
    if args.eval_episodes and not args.env_id.startswith("Mjlab-"):
        arguments.fail("--eval-episodes needs a second simulator, which Isaac Gym cannot have: expected 0")
    return arguments.check(args, argv, default=default, torchrun=True)


# ---- environments ----------------------------------------------------------------------------------------------------
def make_envs(args, num_envs, seed, device):
    """The simulator of the task with `num_envs` environments; simulators.py has its methods."""
    simulator = simulators.MjlabEnvs if args.env_id.startswith("Mjlab-") else simulators.IsaacGymEnvs
    return simulator(args, num_envs, seed, device)


# ---- networks --------------------------------------------------------------------------------------------------------
def layer_init(layer, std=2**0.5, bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


def mlp(sizes, activation, std, orthogonal):
    """Linear layers between the `sizes`, an activation after each but the last.

    With `orthogonal` the weights are CleanRL's, `std` the scale of the last ones; without it PyTorch's own.
    """
    activations = {"tanh": nn.Tanh, "elu": nn.ELU, "relu": nn.ReLU}
    layers = []
    for i, (num_inputs, num_outputs) in enumerate(zip(sizes[:-1], sizes[1:])):
        layer, last = nn.Linear(num_inputs, num_outputs), i == len(sizes) - 2
        if orthogonal:
            layer_init(layer, std=std if last else 2**0.5)
        layers += [layer] if last else [layer, activations[activation]()]
    return nn.Sequential(*layers)


class Agent(nn.Module):
    """Actor and critic. The parameters have the names and shapes of CleanRL's, so that weights can be exchanged."""

    def __init__(self, num_obs, num_states, num_actions, args):
        super().__init__()
        self.norm_obs, self.bf16, self.shared_encoder = args.norm_obs, args.bf16, args.shared_encoder
        self.num_obs, self.num_critic_obs = num_obs, num_states or num_obs
        inputs = () if self.shared_encoder else (self.num_critic_obs, *args.hidden_sizes[:-1])
        self.critic = mlp((*inputs, args.hidden_sizes[-1], 1), args.activation, 1.0, args.orthogonal_init)
        self.actor_mean = mlp((num_obs, *args.hidden_sizes, num_actions), args.activation, 0.01, args.orthogonal_init)
        self.actor_logstd = nn.Parameter(torch.zeros(1, num_actions))
        # count, sum and sum of squares of each column; at first those of one row with mean 0 and variance 1
        sums = torch.tensor([[1.0], [0.0], [1.0]]).double().repeat(1, num_obs + num_states)
        self.register_buffer("obs_sums", sums, persistent=args.norm_obs)

    def encode(self, network, x):
        """Returns the outputs of the activations; the last, (B, hidden_sizes[-1]) float32, is the representation."""
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.bf16):
            hiddens = []
            for layer in network[:-1]:  # without the head
                x = layer(x)
                if isinstance(layer, (nn.Tanh, nn.ELU, nn.ReLU)):
                    hiddens.append(x)
        return hiddens[:-1] + [hiddens[-1].float()]

    def forward(self, obs):
        """Maps obs (B, D) to the mean of the actions (B, A), value (B,) and the activations of each encoder."""
        if self.norm_obs:
            mean, square = self.obs_sums[1:] / self.obs_sums[0]
            std = (square - mean.square()).clamp(min=0).sqrt()
            obs = (obs - mean.float()) / (std.float() + 0.01)  # 0.01 as in rsl_rl: a column may be constant
        hiddens = [self.encode(self.actor_mean, obs[:, : self.num_obs])]
        if not self.shared_encoder:
            hiddens.append(self.encode(self.critic, obs[:, -self.num_critic_obs :]))
        return self.actor_mean[-1](hiddens[0][-1]), self.critic[-1](hiddens[-1][-1]).squeeze(-1), hiddens


def make_agent(args, sizes, device="cpu"):
    """The network for the task of args, with the weights that PyTorch's generator gives first.

    sizes: of the simulator (simulators.py), which alone knows them.
    """
    return Agent(*sizes, args).to(device)


# ---- rollout ---------------------------------------------------------------------------------------------------------
class Rollout(NamedTuple):
    """What the N environments of this process did in T steps, on the device. Row t of the rewards and of the ends
    follows actions[t]."""

    obs: torch.Tensor  # (T, N, D) float32
    means: torch.Tensor  # (T, N, A) float32
    values: torch.Tensor  # (T, N) float32
    actions: torch.Tensor  # (T, N, A) float32
    rewards: torch.Tensor  # (T, N) float32
    terminations: torch.Tensor  # (T, N) bool
    truncations: torch.Tensor  # (T, N) bool
    valid: torch.Tensor  # (T, N) bool: row t is no autoreset step


def empty_rollout(shape, num_obs, num_actions, device):
    """A rollout of zeros. shape: (T, N)."""
    return Rollout(
        obs=torch.zeros((*shape, num_obs), device=device),
        means=torch.zeros((*shape, num_actions), device=device),
        values=torch.zeros(shape, device=device),
        actions=torch.zeros((*shape, num_actions), device=device),
        rewards=torch.zeros(shape, device=device),
        terminations=torch.zeros(shape, dtype=torch.bool, device=device),
        truncations=torch.zeros(shape, dtype=torch.bool, device=device),
        valid=torch.zeros(shape, dtype=torch.bool, device=device),
    )


@torch.no_grad()
def collect_steps(agent, rollout, noise, next_obs, next_valid, envs):
    """Steps `envs` through a whole rollout, which it overwrites; from next_obs (N, D), next_valid (N,) or one bool.

    noise (T, N, A), Gaussian: mean + std * noise is a sample of the policy. Returns next_obs and next_valid as they are
    at the end, and of each step the environments that it has reset and their last observations.
    """
    resets, std = [], agent.actor_logstd.exp()
    for t in range(len(noise)):
        rollout.obs[t], rollout.valid[t] = next_obs, next_valid
        rollout.means[t], rollout.values[t], _ = agent(next_obs)
        rollout.actions[t] = rollout.means[t] + std * noise[t]
        next_obs, reward, terminated, truncated, next_valid, ended, last_obs = envs.step(rollout.actions[t])
        rollout.rewards[t], rollout.terminations[t], rollout.truncations[t] = reward, terminated, truncated
        resets.append((ended, last_obs))
    return next_obs, next_valid, resets


@torch.no_grad()
def play_episodes(agent, args, device, seeds, episodes, bar, greedy=False):
    """Plays a whole episode in a fresh environment for each of `episodes`, a range of places in `seeds`.

    One simulator has all of them. Actions are sampled as in training, or the mean if `greedy`; observations are
    normalised as they were last. Returns the raw returns, a list of floats. `bar` shows the progress.
    """
    seed = seeds[episodes.start]
    torch.manual_seed(seed)  # the simulators draw from torch's own generator
    generator = torch.Generator(device).manual_seed(seed)

    def act(obs):
        mean, _, _ = agent(obs)
        noise = torch.empty_like(mean).normal_(generator=generator)
        return mean if greedy else mean + agent.actor_logstd.exp() * noise

    envs = make_envs(args, len(episodes), seed, device)
    return simulators.play(envs, args.total_timesteps // args.num_envs, act, bar)


# ---- targets and loss ------------------------------------------------------------------------------------------------
class Batch(NamedTuple):
    """The rows of a rollout, time-major, or some of them: B = T N, or fewer."""

    obs: torch.Tensor  # (B, D) float32
    means: torch.Tensor  # (B, A) float32, of the policy that acted, as logstds, logprobs and values
    logstds: torch.Tensor  # (B, A) float32, the same in each row
    actions: torch.Tensor  # (B, A) float32
    logprobs: torch.Tensor  # (B,) float32
    values: torch.Tensor  # (B,) float32
    returns: torch.Tensor  # (B,) float32
    advantages: torch.Tensor  # (B,) float32
    valid: torch.Tensor  # (B,) bool


def gae(rewards, values, terminations, truncations, next_values, valid, gamma, gae_lambda):
    """Generalised advantage estimation (Schulman et al. 2016, eq. 16), cut at the ends of episodes. Tensors (T, N).

    `values[t]` is V(obs[t]), `next_values[t]` V of what step t led to, before any reset. `terminations`, `truncations`
    (bool) say how step t ended its episode: the first bootstrap 0, the second `next_values[t]`, and neither passes the
    trace on. Rows that are not `valid` (bool) get the advantage 0 and take no time: no trace begins in them. Returns
    (advantages, returns), both float32 (T, N)."""
    deltas = torch.where(valid, rewards + gamma * next_values * ~terminations - values, 0.0)
    decays = torch.where(valid, gamma * gae_lambda * (~(terminations | truncations)).to(rewards.dtype), 1.0)
    advantages, lastgaelam = torch.zeros_like(rewards), torch.zeros_like(rewards[0])
    for t in reversed(range(len(rewards))):
        advantages[t] = lastgaelam = deltas[t] + decays[t] * lastgaelam
    advantages = torch.where(valid, advantages, 0.0)
    return advantages, advantages + values


def gaussian(means, logstd, actions):
    """Log-densities of actions (..., A) under independent Gaussians with means (..., A) and logstd (..., 1, A), and the
    entropy of each policy: both (...)."""
    logprobs = -(0.5 * ((actions - means) / logstd.exp()).square() + logstd + 0.5 * math.log(2 * math.pi)).sum(-1)
    return logprobs, (logstd + 0.5 * math.log(2 * math.pi * math.e)).sum(-1).expand_as(logprobs)


def masked_mean(x, valid, count):
    """The sum of x (..., B) over the rows where `valid` (B,) bool holds, divided by `count`, their number.

    With several processes `count` is of all rows, and each process gets its share of the mean: shares, and their
    gradients, add up to the whole.
    """
    return torch.where(valid, x, 0.0).sum(-1) / count


def normalize_advantages(advantages, valid):
    """Zero mean and unit (unbiased) standard deviation over the valid rows of a minibatch, of all processes.

    advantages (..., B) float32, valid (..., B) bool. Returns the normalised advantages, 0 in other rows, and the number
    of valid rows, (...) float32, at least 1, which the losses divide by.
    """
    total, count = devices.sum_over_ranks(torch.stack([torch.where(valid, advantages, 0.0).sum(-1), valid.sum(-1)]))
    centred = torch.where(valid, advantages - (total / count.clamp(min=1))[..., None], 0.0)
    squares = devices.sum_over_ranks(centred.square().sum(-1))
    std = (squares / (count - 1).clamp(min=1)).sqrt()
    return centred / (std[..., None] + 1e-8), count.clamp(min=1)


def ewma_surrogate(logratio, prox_logratio, advantages, clip_coef):
    """PPO-EWMA's policy loss of each row, clipped around the proximal policy (Hilton et al. 2022, arXiv 2110.00641).

    max(-A new / old, -A clip(new / prox, 1 - eps, 1 + eps) prox / old), with old at least new / 100, which caps the
    importance ratio. logratio, prox_logratio: log-probabilities of the actions taken, new and prox minus old; all (B,).
    """
    cap = torch.clamp(math.log(100.0) - logratio.detach(), max=0.0)
    low, high = math.log(max(1.0 - clip_coef, 1e-12)), math.log(1.0 + clip_coef)
    clipped = torch.clamp(logratio - prox_logratio, low, high) + prox_logratio
    return torch.max(-advantages * (logratio + cap).exp(), -advantages * (clipped + cap).exp())


def ppo_loss(agent, prox, args, mb, count):
    """The clipped surrogate loss (Schulman et al. 2017, eq. 7 and 9) of rows of a minibatch: their share of its mean.

    mb: the rows, a Batch; count: of the valid rows in the whole minibatch. With prox, the proximal policy, the
    policy loss is PPO-EWMA's. Returns the loss and a dict of its parts (LOSSES, and kl in closed form), means without
    gradient. Of these, old_approx_kl and approx_kl are the estimators k1 and k3 of KL(old || new)
    (joschu.net/blog/kl-approx.html).
    """
    newmeans, newvalue, _ = agent(mb.obs)
    newlogprob, entropy = gaussian(newmeans, agent.actor_logstd, mb.actions)
    mean = partial(masked_mean, valid=mb.valid, count=count)
    logratio = newlogprob - mb.logprobs
    ratio = logratio.exp()
    clipped = torch.clamp(ratio, 1 - args.clip_coef, 1 + args.clip_coef)
    pg_loss = -torch.min(mb.advantages * ratio, mb.advantages * clipped)
    outside = (ratio - 1.0).abs() > args.clip_coef
    if prox is not None:
        prox_logprob = gaussian(prox(mb.obs)[0], prox.module.actor_logstd, mb.actions)[0]
        pg_loss = ewma_surrogate(logratio, prox_logprob - mb.logprobs, mb.advantages, args.clip_coef)
        outside = ((newlogprob - prox_logprob).exp() - 1.0).abs() > args.clip_coef
    v_loss = (newvalue - mb.returns).square()
    if args.clip_vloss:
        v_clipped = mb.values + torch.clamp(newvalue - mb.values, -args.clip_coef, args.clip_coef)
        v_loss = torch.max(v_loss, (v_clipped - mb.returns).square())
    v_loss = 0.5 * v_loss
    loss = mean(pg_loss) - args.ent_coef * mean(entropy) + args.vf_coef * mean(v_loss)
    with torch.no_grad():
        means = mean(torch.stack([pg_loss, v_loss, entropy, -logratio, (ratio - 1) - logratio, outside.float()]))
        kl = mean(metrics.gaussian_kls(mb.means, mb.logstds, newmeans, agent.actor_logstd))
    return loss, {**dict(zip(LOSSES, means)), "kl": kl}


# ---- update ----------------------------------------------------------------------------------------------------------
def minibatch(batch, inds, norm_adv):
    """The rows `inds` of a batch, with normalised advantages if norm_adv; and the number of valid rows."""
    mb = Batch(*(x.index_select(0, inds) for x in batch))
    normalized, count = normalize_advantages(mb.advantages, mb.valid)
    return (mb._replace(advantages=normalized) if norm_adv else mb), count


def gradient(loss_function, parameters, workers, mb, *totals):
    """The gradient of loss_function(mb, *totals), a list, and the parts of the loss: this process's share of them.

    totals: what the loss needs of the whole minibatch, such as the number of its valid rows.
    """

    def of_piece(rows):
        loss, losses = loss_function(rows, *totals)
        return list(torch.autograd.grad(loss, parameters)), losses

    return workers.summed(of_piece, mb)


def update(loss_function, parameters, optimizer, args, workers, mb, *totals):
    """One step of the optimiser on a minibatch. Returns the parts of the loss, and the gradient's norm unclipped.

    With --desired-kl it first adapts the learning rate to the KL that it finds.
    """
    gradients, losses = gradient(loss_function, parameters, workers, mb, *totals)
    devices.add_over_ranks([*gradients, *losses.values()])
    for parameter, total in zip(parameters, gradients):
        parameter.grad = total
    if args.desired_kl is not None:
        group = optimizer.param_groups[0]
        group["lr"] = recipe.adapted_learning_rate(group["lr"], losses["kl"].item(), args.desired_kl)
    grad_norm = nn.utils.clip_grad_norm_(parameters, args.max_grad_norm, foreach=True)
    optimizer.step()
    return {**losses, "grad_norm": grad_norm}


# ---- diagnostics -----------------------------------------------------------------------------------------------------
def group_gradient(agent, prox, args, batch, workers, inds):
    """The gradient (P,) of the policy's mean loss over the rows `inds` of a batch, added minibatch by minibatch."""
    of_policy = replace(args, vf_coef=0.0)  # the values' gradient would hide the policy's
    loss_function, parameters = partial(ppo_loss, agent, prox, of_policy), list(agent.parameters())
    count, total = batch.valid[inds].sum().clamp(min=1), 0.0
    for rows in inds.split(args.minibatch_size // devices.NUM_RANKS):
        mb = Batch(*(x.index_select(0, rows) for x in batch))
        gradients, _ = gradient(loss_function, parameters, workers, mb, count)
        total = total + torch.cat([x.flatten() for x in gradients])
    return total


def gradient_noise(agent, prox, args, batch, workers, num_steps, seed):
    """The noise of the policy's gradient, between environments and between rows: metrics.noise_scales."""
    if args.norm_adv:
        batch = batch._replace(advantages=normalize_advantages(batch.advantages, batch.valid)[0])
    of_group = partial(group_gradient, agent, prox, args, batch, workers)
    ranks = (devices.NUM_RANKS, devices.joined)
    return diagnostics.gradient_noise_scales(of_group, batch.valid, num_steps, seed, *ranks)


@torch.no_grad()
def diagnose(agent, batch, workers, inds):
    """Measures the updated network on the rows `inds` of a batch.

    Returns {name: value} (definitions: metrics.py) and KL(old || new). A unit with a small standard deviation is
    dormant here: Tanh saturates far from zero.
    """
    means, values = diagnostics.diagnose_network(
        lambda rows: agent(batch.obs.index_select(0, rows))[::2], inds, deviation=True, map=workers.map
    )
    policy, kl = diagnostics.gaussian_policy_diagnostics(
        batch.means[inds], batch.logstds[inds], means, agent.actor_logstd, batch.actions[inds]
    )
    return {**values, **policy, **diagnostics.weight_norms(agent)}, kl


def diagnose_batch(agent, prox, args, batch, workers, rows, probe, grad_norm):
    """`diagnostics/` on all valid rows of a batch, `probe/` on some of them, and `outer/kl_behavior`, by tag.

    rows, probe: from diagnostics.valid_and_probe. grad_norm: of the last minibatch, whose gradient the parameters have.
    """
    parameters = list(agent.parameters())
    last = metrics.unclipped([parameter.grad for parameter in parameters], grad_norm, args.max_grad_norm)
    mb, count = minibatch(batch, probe[devices.RANK :: devices.NUM_RANKS], args.norm_adv)
    of_probe, _ = gradient(partial(ppo_loss, agent, prox, args), parameters, workers, mb, count)
    devices.add_over_ranks(of_probe)
    scalars, kl = diagnostics.native_and_probe(partial(diagnose, agent, batch, workers), rows, probe, last, of_probe)
    return devices.numbers({**scalars, "outer/kl_behavior": kl})


@torch.no_grad()
def coverage(agent, obs):
    """What coverage.npz keeps of observations (M, D): themselves, the feature and the value of each."""
    _, values, hiddens = agent(obs)
    features = hiddens[0][-1].cpu().numpy().astype(np.float16)
    return {"obs": obs.cpu().numpy(), "feature": features, "value": values.cpu().numpy()}


def main(args):
    # ---- setup -------------------------------------------------------------------------------------------------------
    device = devices.set_up(args)
    run = rundir.Run(args, device)
    workers = devices.Workers(args, device)
    rng = torch.Generator(device).manual_seed(2**32 - 1 - args.seed)  # draws everything but the initial weights
    batch_size = args.num_envs * args.num_steps
    own = devices.share(args.num_envs)  # the range of this process's environments; N is their number
    # environments restart when a run resumes: with the same seed they would repeat their first episodes
    (seed,) = env_seeds(args.seed, "train", run.global_step, [devices.RANK])  # for this process's simulator
    envs = make_envs(args, len(own), seed, device)
    next_obs, next_valid = envs.reset(run.global_step // args.num_envs)  # (N, D) float32
    num_actions = envs.sizes[-1]
    torch.manual_seed(args.seed)  # the same network in every process
    agent = make_agent(args, envs.sizes, device)
    torch.manual_seed(seed)  # the simulators draw from torch's own generator
    parameters = list(agent.parameters())
    optimizer = optim.Adam(parameters, lr=args.learning_rate, eps=1e-5, fused=True)
    prox = None if args.prox_com is None else devices.averaged(agent, args.prox_com)  # the proximal policy
    # noise_due: the step from which the gradient's noise is measured again; points: what metrics.outer_loop gets
    stats = rundir.Stats(gradient_steps=0, noise_due=0, points=[])
    run.restore(agent=agent, optimizer=optimizer, rng=rng, log=stats, prox=prox)
    devices.begin_average(prox, agent)

    rollout = empty_rollout((args.num_steps, len(own)), next_obs.shape[1], num_actions, device)
    if args.stagger_resets:
        ages = torch.randint(envs.episode_length, (args.num_envs,), generator=rng, device=device)
        envs.set_ages(ages[own.start : own.stop])
    episodes = Episodes(len(own), whole=not args.stagger_resets)
    learn = partial(update, partial(ppo_loss, agent, prox, args), parameters, optimizer, args, workers)

    while not run.ended:
        if args.anneal_lr:
            devices.set_learning_rate(optimizer, (1.0 - run.global_step / run.total_steps) * args.learning_rate)

        # ---- rollout -------------------------------------------------------------------------------------------------
        noise = torch.empty((args.num_steps, args.num_envs, num_actions), device=device).normal_(generator=rng)
        noise, old_logstd = noise[:, own.start : own.stop], agent.actor_logstd.detach().clone()
        next_obs, next_valid, resets = collect_steps(agent, rollout, noise, next_obs, next_valid, envs)
        dones, valid = rollout.terminations | rollout.truncations, rollout.valid
        run.global_step += batch_size
        steps = torch.stack([(rollout.rewards * valid).double(), dones.double(), valid.double()])
        steps = steps.cpu().numpy()  # the first wait for the GPU
        ended, *totals = episodes.add(steps[0], steps[1] > 0, steps[2] > 0)
        run.add_episodes(ended[-100:], *totals)

        # ---- targets -------------------------------------------------------------------------------------------------
        terminations, truncations = rollout.terminations, rollout.truncations
        if not args.mask_resets:
            terminations, truncations, valid = dones, torch.zeros_like(dones), torch.ones_like(dones)
        with torch.no_grad():
            _, next_value, _ = agent(next_obs)
            # Isaac Gym shows a new episode one row after done: obs[t + 1] is still the true last observation
            next_values = torch.cat([rollout.values[1:], next_value[None]])
            for t, (ended, last_obs) in enumerate(resets):
                if len(ended) > 0:
                    _, next_values[t, ended], _ = agent(last_obs)
            rewards = rollout.rewards * args.reward_scaler
            advantages, returns = gae(
                rewards, rollout.values, terminations, truncations, next_values, valid, args.gamma, args.gae_lambda
            )
            batch = Batch(
                obs=rollout.obs.flatten(0, 1),
                means=rollout.means.flatten(0, 1),
                logstds=old_logstd.expand(valid.numel(), -1),
                actions=rollout.actions.flatten(0, 1),
                logprobs=gaussian(rollout.means, old_logstd, rollout.actions)[0].flatten(0, 1),
                values=rollout.values.flatten(0, 1),
                returns=returns.flatten(0, 1),
                advantages=advantages.flatten(0, 1),
                valid=valid.flatten(0, 1),
            )

        # ---- update --------------------------------------------------------------------------------------------------
        log_point, noise_scales = run.at_log_point(batch_size), {}
        if log_point and args.diagnostics and run.global_step >= stats.noise_due:
            stats.noise_due = run.global_step + run.schedule.noise_interval * batch_size
            noise_scales = gradient_noise(agent, prox, args, batch, workers, args.num_steps, run.global_step)
        for _epoch in range(args.update_epochs):
            order = torch.randperm(len(batch.valid), generator=rng, device=device)
            for inds in order.split(args.minibatch_size // devices.NUM_RANKS):
                losses = learn(*minibatch(batch, inds, args.norm_adv))
                if prox is not None:
                    prox.update_parameters(agent)
                stats.add(losses)
                stats.gradient_steps += 1
            if args.target_kl is not None and losses["approx_kl"] > args.target_kl:
                break
        explained = diagnostics.explained_variance(batch.values, batch.returns, batch.valid)
        stats.add({"explained_variance": explained})
        # a number that is not finite reaches the parameters and stays: this check catches it before the checkpoint
        suspects = {"obs": rollout.obs, "rewards": rewards, "values": rollout.values, "advantages": advantages}
        suspects.update({name: stats.sums[name] for name in losses})
        suspects["parameters"] = torch.cat([x.detach().flatten() for x in parameters])
        if not run.all_finite(suspects):
            break

        # ---- diagnostics ---------------------------------------------------------------------------------------------
        if log_point:
            means, scalars = stats.means(), {}
            rows, probe = diagnostics.valid_and_probe(batch.valid, args.probe_size, seed=run.global_step)
        if log_point and args.diagnostics:
            scalars = diagnose_batch(agent, prox, args, batch, workers, rows, probe, losses["grad_norm"])
            moved = devices.mean_over_ranks(len(rows), scalars.pop("outer/kl_behavior"))
            stats.points.append((*moved, means["grad_norm"], run.mean_new_return()))
            outer = {**noise_scales, **metrics.outer_loop(stats.points, window=max(10, args.num_logs // 10))}
            scalars.update({f"outer/{name}": value for name, value in outer.items()})
        if args.norm_obs:  # last: rollout, update and diagnostics have seen the same normalisation
            agent.obs_sums += devices.sum_over_ranks(diagnostics.column_sums(batch.obs, batch.valid))

        # ---- log -----------------------------------------------------------------------------------------------------
        if log_point:
            shown = probe[diagnostics.stratified_rows(len(probe), run.coverage_quota(), seed=run.global_step)]
            run.add_coverage(**coverage(agent, batch.obs.index_select(0, shown)))
            scalars["charts/learning_rate"] = float(optimizer.param_groups[0]["lr"])
            scalars["charts/gradient_steps"] = stats.gradient_steps
            scalars.update({f"losses/{name}": mean for name, mean in means.items()})
            run.log({**scalars, **run.charts()})
        run.end_iteration()

    # ---- close -------------------------------------------------------------------------------------------------------
    run.close(evaluate(None, partial(play_episodes, agent, args, device), run.final_seeds()))


if __name__ == "__main__":
    with rundir.full_disk_in_one_line():
        main(parse_args(sys.argv[1:]))
