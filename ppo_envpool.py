"""PPO on small tasks, from vectors, grids or images to any of gymnasium's actions: results in seconds to minutes.

    python ppo_envpool.py --env-id CartPole-v1
    python ppo_envpool.py --env-id CartPole-v1 --num-seeds 20       # seeds 1 to 20 at once
    python ppo_envpool.py --env-id gymnasium:my_module:MyTask-v0    # your own task: my_module registers it in gymnasium

Tasks: support/envs. Papers: Schulman et al. 2017 (PPO); Mayor et al. 2025, arXiv 2506.03404 (P1: the diagnostics);
Beukman et al. 2026, arXiv 2603.06009 (P3: `outer/`). References: CleanRL's ppo.py and, for continuous actions,
ppo_continuous_action.py @fe8d8a0, with their algorithm, defaults and names.

The axis of agents: one process trains S agents at once, because at this size PyTorch is called for most of the time and
computes for little of it. Parameters are (S, ...), rollouts (T, S, N, ...) and batches (S, B, ...); what is one number
in CleanRL is (S, 1). S is 1 unless `--num-seeds` or `--runs` ask for more. Each agent has its own run directory,
environments, noise, shuffles, learning rate, coefficients and clipping. No sum crosses the axis, so a run has the same
bits alone and together with others. What this takes is the one part of the algorithm that is elsewhere, in
support/layers.py: Linear, Convolution and GridConvolution, tanh and elu, with their gradients; Maker, which makes
layers with the first weights of each agent; constant, which prepares the weights once a rollout; joined; Adam.

Departures:

1. The step after `done` only resets the environment (an autoreset step); in CleanRL's ppo.py it resets within the step.
   `valid` keeps it out of losses, advantages and diagnostics (`--no-mask-resets` trains on it).
2. A time limit is not a death: a truncated step bootstraps from the value of the last observation, a terminated one
   from 0. CleanRL bootstraps neither (`--no-mask-resets` again). EnvPool calls a death in that step a time-out.
3. 8 environments x 128 steps for both kinds of actions; CleanRL has 4 x 128 and, for continuous actions, 1 x 2048.
4. A curve has `--num-logs` points, however long the run: 100, as the diagnostics of a point take a fifth as long as an
   iteration. Losses are means over all minibatches since the last point; CleanRL logs the last minibatch.
5. `--norm-obs` and `--norm-reward` use the moments of valid rows; those of the observations change once per iteration,
   so that rollout and update see the same network. The returns are raw.
6. For speed, with the same mathematics: actor and critic compute side by side, actions are drawn by the Gumbel-max
   trick, an epoch's minibatches are cut from one shuffled copy, a grid's convolution adds rows of a table.
7. A batch that the minibatches do not divide is refused. Each environment has its own seed. A run is a directory that
   survives a kill; the same command resumes it.
8. Observations are flattened as in gymnasium, integers one-hot (support/envs/spaces.py); MiniGrid's mission is left
   out. Images and grids go through convolutions. MultiDiscrete and MultiBinary actions are independent categoricals.
9. The mean and deviation of real actions are in half-widths of their bounds, from the middle: within -0.1 and 0.3,
   CleanRL's deviation of 1 would have most actions clipped.
10. Without `--learning-rate` the rate is 4e-3 x sqrt(150,000 / steps) x (16 / 1024) / k, k being Adam's steps per
    environment step: CleanRL's 2.5e-4 (3e-4 for real actions) suits millions of steps, and is too low for fewer
    (results/second_look; recipe.law_rate).
"""

import support.early_help  # noqa: F401 isort: skip - answers --help before torch is imported
import math
import os
import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple, Optional, Tuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

import metrics
from support import arguments, command_lines, devices, diagnostics, layers, pack, rundir
from support.arguments import Count, Evaluation, Fraction, NonNegative, Positive, Seed, Steps, Threads
from support.envs import tasks
from support.envs.episodes import Episodes, env_seeds, run_episodes

GRID_VALUES = (11, 6, 3)  # MiniGrid's objects, colours and states: a cell, of which 16 kernels see 3 x 3
NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # kernels, their size and stride: Mnih et al. 2015, from 36 x 36 on
MINATAR = ((16, 3, 1),)  # Young and Tian 2019


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
    num_logs: Count = 100  # the number of points in every curve (at most one per iteration)
    diagnostics: bool = True  # logs the diagnostics of the network at those points
    probe_size: Count = 1024  # rows of the batch that `probe/` looks at, so that its numbers compare across batch sizes
    checkpoint_minutes: NonNegative = 10.0  # minutes between checkpoints; 0 writes one after every iteration
    eval_episodes: Evaluation = 0  # evaluation episodes of the final network when training ends: `final_return`
    eval_max_steps: Optional[Count] = None  # cuts such an episode; default: the task's own limit, or 27,000 if none
    num_threads: Threads = 1  # CPU threads of PyTorch and of EnvPool; 0 takes every core, or OMP_NUM_THREADS
    env_workers: Threads = 0  # processes that step gymnasium's environments; 0: one per core if a step takes 0.2 ms
    # Algorithm specific arguments
    env_id: str = "CartPole-v1"  # the id of EnvPool's task, or gymnasium:MODULE:ID, a task that MODULE registers
    env_kwargs: str = "{}"  # the task's own options, a JSON object: '{"size": 3}'
    total_timesteps: Steps = 500000  # environment steps of the whole run, over all environments
    learning_rate: Optional[NonNegative] = None  # Adam's; default: 4e-3 sqrt(150,000 / steps) / 64 / k (departure 10)
    num_envs: Count = 8  # the number of parallel environments of the whole run: N
    num_steps: Count = 128  # the number of steps in each environment per rollout: T
    schedule: Optional[str] = None  # changes both at fractions of the run, 0:8x128,0.5:128x8, or N by noise (recipe.py)
    anneal_lr: bool = True  # anneals the learning rate linearly to 0
    gamma: Fraction = 0.99  # the discount factor
    gae_lambda: Fraction = 0.95  # lambda of the generalised advantage estimation
    num_minibatches: Count = 4  # minibatches per epoch; the batch is num_envs * num_steps
    minibatch_size: Optional[Count] = None  # rows per minibatch, in place of num-minibatches
    scale_from: Optional[Count] = None  # the environments of the baseline of --scaling; default: those of num-envs
    scaling: Optional[str] = None  # P3's recipe: more-minibatches, bigger-minibatches, sqrt-lr, or hybrid:B (recipe.py)
    update_epochs: Count = 4  # passes over each batch
    norm_adv: bool = True  # normalises the advantages in each minibatch
    clip_coef: NonNegative = 0.2  # the clipping coefficient of the policy ratio, and of the value if clip-vloss
    prox_com: Optional[NonNegative] = None  # PPO-EWMA: the age, in minibatches, of the policy that clipping refers to
    clip_vloss: bool = True  # clips the value loss too
    ent_coef: NonNegative = 0.01  # the coefficient of the entropy
    vf_coef: NonNegative = 0.5  # the coefficient of the value loss
    max_grad_norm: Positive = 0.5  # the gradient's norm is clipped to this
    target_kl: Optional[Positive] = None  # ends the update after an epoch whose last minibatch has a larger approx_kl
    norm_obs: bool = False  # normalises observations by their mean and deviation over all earlier iterations
    norm_reward: bool = False  # divides rewards by the deviation of the discounted returns so far
    hidden_sizes: Tuple[int, ...] = (64, 64)  # the units of each hidden layer
    activation: Literal["tanh", "elu", "relu"] = "tanh"  # follows each hidden layer
    init_std: Positive = 1.0  # first deviation of real actions, in half-widths of their bounds; 0.5 on your own tasks
    shared_encoder: bool = False  # one stack of hidden layers for actor and critic, or one for each
    mask_resets: bool = True  # trains on no autoreset step and bootstraps at time limits (departures 1 and 2)
    num_seeds: Count = 1  # trains that many seeds at once, from --seed on, each in RUN_NAME/sSEED
    runs: Optional[str] = None  # a file: trains the run of each line at once, a line being its flags
    compile: bool = False  # compiles the network and the loss with torch.compile: a minute at the start, a C++ compiler


def parse_args(argv):
    """Returns checked Args of one run; exits 2 with one line on bad input. Touches no file."""
    default = Args(**tasks.defaults_of_command(argv, Args.env_id))
    args = arguments.parse(Args, argv, __doc__, default=default)
    args.num_threads = args.num_threads or devices.default_threads()
    return arguments.check(args, argv, row_bytes=100 + tasks.check(args), default=default)


# ---- environments ----------------------------------------------------------------------------------------------------
def make_envs(args, seeds):
    """An environment for each of the seeds (integers below 2**31), which are (N,) or (S, N): support/envs."""
    return tasks.make(args.env_id, seeds, args.num_threads, env_workers=args.env_workers, env_kwargs=args.env_kwargs)


class Rollout(NamedTuple):
    """What S agents did in T steps of N environments each, in NumPy. Row t of the last three follows actions[t]."""

    obs: np.ndarray  # (T, S, N, width), of the observation's dtype
    actions: np.ndarray  # (T, S, N) or (T, S, N, K) int64, or (T, S, N, A) float32
    outputs: np.ndarray  # (T, S, N, A) float32: the logits, or means, that the actions were drawn from
    values: np.ndarray  # (T, S, N) float32
    rewards: np.ndarray  # (T, S, N) float32
    terminations: np.ndarray  # (T, S, N) bool
    truncations: np.ndarray  # (T, S, N) bool


# ---- network ---------------------------------------------------------------------------------------------------------
def layer_init(layer, std=2**0.5, bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


class Agent(nn.Module):
    """S actors and critics, each pair with an encoder of its own (E = 2) or with a shared one (E = 1).

    observation, actions: what tasks.rows_of says. seeds: of the first weights, one for each of the S agents.
    """

    def __init__(self, observation, actions, args, seeds):
        super().__init__()
        self.observation, self.actions, self.continuous = observation, actions, actions.continuous
        self.norm_obs, self.num_encoders = args.norm_obs, 1 if args.shared_encoder else 2
        self.activation = {"tanh": layers.tanh, "elu": layers.elu, "relu": F.relu}[args.activation]
        new = layers.Maker(seeds, layer_init)  # new(E, inputs, outputs) makes one more layer of all agents

        # how many values the first number has where it is one-hot: an index, or the direction beside a grid
        self.values = {"index": observation.values, "grid": 4, "vector": 0}[observation.kind]
        inputs, self.convolutions = self.values or observation.vector, nn.ModuleList()  # of each image, a list
        if observation.kind == "grid":
            self.convolution = new.grid_convolution(self.num_encoders, GRID_VALUES, 16)
            inputs += 16 * 3 * 3
        for entry in observation.images:
            kernels = NATURE if entry.image.large else MINATAR
            chain, outputs = new.convolutions(self.num_encoders, entry.image, kernels)
            self.convolutions.append(chain)
            inputs += outputs

        sizes, large = (inputs, *args.hidden_sizes), bool(observation.images)
        network = [new(self.num_encoders, *pair, large=large) for pair in zip(sizes, sizes[1:])]
        self.actor = new(1, sizes[-1], actions.outputs, std=0.01)
        self.critic = new(1, sizes[-1], 1, std=1.0)
        self.network = nn.ModuleList(network)  # the last, as in the optimiser's state of earlier checkpoints
        self.register_buffer("action_range", torch.tensor([actions.centers, actions.halves]), persistent=False)
        logstd = (args.init_std * self.action_range[1]).log().repeat(len(seeds), 1, 1)
        self.actor_logstd = nn.Parameter(logstd) if self.continuous else None
        # for --norm-obs: count, sum and sum of squares of each column; at first as of a row with mean 0 and variance 1
        self.register_buffer("real", torch.tensor(observation.real, dtype=torch.bool), persistent=False)
        sums = torch.tensor([[1.0], [0.0], [1.0]]).double().repeat(len(seeds), 1, observation.vector)
        for name, rows in (("obs_sums", sums), ("obs_mean", sums[:, 1:2].float()), ("obs_std", sums[:, 2:].float())):
            self.register_buffer(name, rows, persistent=args.norm_obs)

    @torch.no_grad()
    def add_obs(self, obs, valid):
        """Adds the valid rows of obs (S, B, width) to the moments that --norm-obs normalises real numbers by."""
        self.obs_sums += diagnostics.column_sums(obs[..., : self.observation.vector], valid)
        count, total, squares = self.obs_sums.split(1, 1)
        mean = total / count
        std = ((squares / count - mean.square()).clamp(min=0) + 1e-8).sqrt()
        self.obs_mean.copy_(torch.where(self.real, mean, 0.0))
        self.obs_std.copy_(torch.where(self.real, std, 1.0))

    def inputs(self, obs):
        """What the hidden layers get, (S E, B, inputs), and a list of the layers before them."""
        hiddens, parts = [], []  # parts: the last layer of each image
        if self.observation.kind == "grid":
            cells = obs[..., 1:].unflatten(-1, (7 * 7, len(GRID_VALUES)))
            hiddens.append(self.activation(self.convolution(cells)))
            parts.append(hiddens[-1])
        for i, entry in enumerate(self.observation.images):
            x = obs[..., entry.start : entry.stop].unflatten(-1, entry.image[:3]).float() / entry.image.scale
            for layer in self.convolutions[i]:
                x = self.activation(layer(x))  # (S, B, E kernels, H, W)
                hiddens.append(x.unflatten(2, (self.num_encoders, -1)).transpose(1, 2))
            parts.append(hiddens[-1])
        if self.values:
            vector = F.one_hot(obs[..., 0].long(), self.values).float()
        else:
            vector = obs[..., : self.observation.vector].float() if parts else obs
        if self.norm_obs:
            vector = ((vector - self.obs_mean) / self.obs_std).clamp(-10.0, 10.0)
        vector = vector.repeat_interleave(self.num_encoders, 0)
        return torch.cat([*(x.flatten(3).flatten(0, 1) for x in parts), vector], -1) if parts else vector, hiddens

    def forward(self, obs):
        """Maps obs (S, B, width) to logits, or means (S, B, A), value (S, B) and the hidden layers of each encoder,
        (S, E, B, units, ...) after the activation, of which the last is the representation."""
        x, hiddens = self.inputs(obs)
        for layer in self.network:
            x = self.activation(layer(x))
            hiddens.append(x.view(len(obs), -1, *x.shape[1:]))
        encoded = hiddens[-1].unbind(1)
        outputs = self.actor(encoded[0])
        if self.continuous:
            outputs = torch.addcmul(*self.action_range, outputs)
        return outputs, self.critic(encoded[-1]).squeeze(-1), hiddens

    def logits(self, outputs):
        """Those of each of K categorical policies, (S, B, ...); K is 1 but for MultiDiscrete and MultiBinary."""
        return outputs.split(list(self.actions.parts) or outputs.shape[-1], -1)

    def distribution(self, outputs, actions):
        """Log-probabilities of actions under outputs, logits or means, and the policies' entropies: both (S, B)."""
        if self.continuous:
            return gaussian(outputs, self.actor_logstd, actions)
        sizes = self.actions.parts
        return categoricals(outputs, sizes, actions) if sizes else categorical(outputs, actions)


def make_agent(args, seeds=(0,)):
    """An agent for each of the seeds, for the task and the network of args."""
    return Agent(*tasks.rows_of(args.env_id, args.env_kwargs), args, seeds)


def categorical(logits, actions):
    """Log-probabilities of actions (...) int64 under logits (..., A), and the entropy of each policy: both (...)."""
    logprobs = F.log_softmax(logits, dim=-1)
    return logprobs.gather(-1, actions[..., None]).squeeze(-1), -(logprobs.exp() * logprobs).sum(-1)


def categoricals(logits, sizes, actions):
    """The same of K independent policies: actions (..., K), and their logits side by side, sizes[k] of policy k."""
    if len(set(sizes)) == 1:  # one call for all
        return tuple(x.sum(-1) for x in categorical(logits.unflatten(-1, (len(sizes), -1)), actions))
    parts = [categorical(*part) for part in zip(logits.split(sizes, -1), actions.unbind(-1))]
    return tuple(map(sum, zip(*parts)))


def gaussian(means, logstd, actions):
    """Log-densities of actions (..., A) under independent Gaussians with means (..., A) and logstd (..., 1, A), and the
    entropy of each policy: both (...)."""
    logprobs = -(0.5 * ((actions - means) / logstd.exp()).square() + logstd + 0.5 * math.log(2 * math.pi)).sum(-1)
    return logprobs, (logstd + 0.5 * math.log(2 * math.pi * math.e)).sum(-1).expand_as(logprobs)


def draw_noise(shape, continuous, generator):
    """What makes an action of the policy's outputs (`sample`): Gumbel or Gaussian noise, float32 of this shape."""
    noise = torch.empty(shape, device=generator.device)
    return noise.normal_(generator=generator) if continuous else noise.exponential_(generator=generator).log_().neg_()


def sample(outputs, noise, std, sizes=()):
    """Samples actions: mean + std * noise, (..., N, A), or argmax(logits + noise), (..., N), with sizes (..., N, K)."""
    if sizes:
        parts = np.split(outputs + noise, np.cumsum(sizes[:-1], dtype=int), -1)
        return np.stack([x.argmax(-1) for x in parts], -1)
    return (outputs + noise).argmax(-1) if std is None else outputs + std * noise


def action_std(agent):
    """The standard deviations of the agents' actions, (S, 1, A) in NumPy; None if the actions are discrete."""
    return agent.actor_logstd.detach().exp().cpu().numpy() if agent.continuous else None


@torch.inference_mode()
def collect_steps(agent, rollout, noise, next_obs, envs, run):
    """Steps S x N environments through a whole rollout, from next_obs (S, N, width) on, with noise (T, S, N, A).

    Returns the last next_obs and its values.
    """
    std, sizes = action_std(agent), agent.actions.parts
    with layers.constant(agent):
        for t in range(len(noise)):
            rollout.obs[t] = next_obs
            outputs, values, _ = agent(torch.from_numpy(rollout.obs[t]))
            rollout.outputs[t], rollout.values[t] = outputs.numpy(), values.numpy()
            rollout.actions[t] = action = sample(rollout.outputs[t], noise[t], std, sizes)
            next_obs, rollout.rewards[t], rollout.terminations[t], rollout.truncations[t], _ = envs.step(action)
            run.tick((t + 1) * rollout.rewards.shape[2])
    return next_obs, agent(torch.from_numpy(next_obs.astype(rollout.obs.dtype)))[1].numpy()


# ---- advantages and loss ---------------------------------------------------------------------------------------------
def normalize_rewards(rewards, ends, valid, discounted, moments, gamma):
    """gym's NormalizeReward: divides by the standard deviation of all discounted returns so far, clips to [-10, 10].

    rewards (T, S, N) float32, ends and valid (T, S, N) bool; `discounted` (S, N) is what the episodes under way have
    earned and `moments` (S, 3) the mean, variance and count of all such sums, valid rows only: both are changed.
    """
    normalized = np.zeros_like(rewards)
    mean, variance, count = (moments[:, i : i + 1].copy() for i in range(3))
    for t in range(len(rewards)):
        discounted[:] = discounted * gamma + rewards[t]
        number = valid[t].sum(-1, keepdims=True)
        batch_mean = (discounted * valid[t]).sum(-1, keepdims=True) / np.maximum(number, 1)
        batch_variance = ((discounted - batch_mean) ** 2 * valid[t]).sum(-1, keepdims=True) / np.maximum(number, 1)
        of_batch = (batch_mean, batch_variance, number)
        mean, variance, count = diagnostics.join_moments((mean, variance, count), of_batch)
        normalized[t] = (rewards[t] / np.sqrt(variance + 1e-8)).clip(-10, 10)
        discounted[ends[t]] = 0.0
    moments[:] = np.concatenate([mean, variance, count], -1)
    return normalized


def gae(rewards, values, terminations, truncations, next_values, valid, gamma, gae_lambda):
    """Generalised advantage estimation (Schulman et al. 2016, eq. 16). Arrays (T, S, N); returns (advantages, returns).

    next_values[t] is V of what step t led to, before any reset. A termination bootstraps 0, a truncation next_values;
    neither passes the trace on. A row that is not valid (an autoreset step) has no advantage and takes no time.
    """
    deltas = np.where(valid, rewards + gamma * next_values * ~terminations - values, 0.0)
    decays = np.where(valid, gamma * gae_lambda * (~(terminations | truncations)).astype(rewards.dtype), 1.0)
    advantages, lastgaelam = np.zeros_like(rewards), np.zeros_like(rewards[0])
    for t in reversed(range(len(rewards))):
        advantages[t] = lastgaelam = deltas[t] + decays[t] * lastgaelam
    advantages = np.where(valid, advantages, 0.0)
    return advantages, advantages + values


class Batch(NamedTuple):
    """The rows of a rollout, time-major, or some of them: S agents with B rows each, B = T N, or fewer."""

    obs: torch.Tensor  # (S, B, width)
    outputs: torch.Tensor  # (S, B, A) float32, of the policy that acted, as logprobs and values
    actions: torch.Tensor  # (S, B) or (S, B, K) int64, or (S, B, A) float32
    logprobs: torch.Tensor  # (S, B) float32
    values: torch.Tensor  # (S, B) float32
    returns: torch.Tensor  # (S, B) float32
    advantages: torch.Tensor  # (S, B) float32
    valid: torch.Tensor  # (S, B) bool: no autoreset step
    weights: Optional[torch.Tensor] = None  # (S, B) float32, in a minibatch: of each row in a mean over the valid rows

    def rows(self, inds):
        """Those of the rows inds (S, M), other ones for each agent; or (S, K, M), as K minibatches of M rows."""
        places = inds.flatten(1) + self.valid.shape[1] * torch.arange(len(inds), device=inds.device)[:, None]
        columns = (x.flatten(0, 1).index_select(0, places.flatten()) for x in self[:-1])
        return Batch(*(x.unflatten(0, inds.shape) for x in columns))


@torch.no_grad()
def batch_of(agent, rollout, returns, advantages, valid, device):
    """The Batch of a rollout of these agents, on the device."""
    columns = (rollout.obs, rollout.outputs, rollout.actions, rollout.values, returns, advantages, valid)
    columns = (x.swapaxes(0, 1).reshape(x.shape[1], -1, *x.shape[3:]) for x in columns)  # (S, T N, ...)
    obs, outputs, actions, *others = (devices.to_device(x, device) for x in columns)
    return Batch(obs, outputs, actions, agent.distribution(outputs, actions)[0], *others)


def normalize_advantages(advantages, valid):
    """Advantages (..., B) with mean 0 and (unbiased) standard deviation 1 over the valid rows; 0 in the others."""
    count = valid.sum(-1, keepdim=True)
    mean = torch.where(valid, advantages, 0.0).sum(-1, keepdim=True) / count.clamp(min=1)
    centred = torch.where(valid, advantages - mean, 0.0)
    std = (centred.square().sum(-1, keepdim=True) / (count - 1).clamp(min=1)).sqrt()
    return centred / (std + 1e-8)


def weighted(batch, norm_adv):
    """A batch with the weights of a mean over its valid rows and, if norm_adv, with normalised advantages."""
    if norm_adv:
        batch = batch._replace(advantages=normalize_advantages(batch.advantages, batch.valid))
    return batch._replace(weights=batch.valid / batch.valid.sum(-1, keepdim=True).clamp(min=1))


def ewma_surrogate(logratio, prox_logratio, advantages, clip_coef):
    """PPO-EWMA's policy loss of each row, clipped around the proximal policy (Hilton et al. 2022, arXiv 2110.00641).

    max(-A new / old, -A clip(new / prox, 1 - eps, 1 + eps) prox / old), with old at least new / 100, which caps the
    importance ratio. logratio, prox_logratio: log-probabilities of the actions taken, new and prox minus old; all
    (S, B), clip_coef (S, 1).
    """
    cap = torch.clamp(math.log(100.0) - logratio.detach(), max=0.0)
    low, high = (1.0 - clip_coef).clamp(min=1e-12).log(), (1.0 + clip_coef).log()
    clipped = torch.clamp(logratio - prox_logratio, low, high) + prox_logratio
    return torch.max(-advantages * (logratio + cap).exp(), -advantages * (clipped + cap).exp())


def ppo_loss(prox, agent, args, mb):
    """The clipped surrogate losses (Schulman et al. 2017, eq. 7 and 9), (S, 1), and their parts without gradient.

    mb: a Batch with weights. With prox, the proximal policies, the policy loss is PPO-EWMA's.
    """

    def mean(x):
        return (x * mb.weights).sum(-1, keepdim=True)

    newoutputs, newvalue, _ = agent(mb.obs)
    newlogprob, entropy = agent.distribution(newoutputs, mb.actions)
    logratio = newlogprob - mb.logprobs
    ratio = logratio.exp()

    # policy loss
    clipped = torch.clamp(ratio, 1 - args.clip_coef, 1 + args.clip_coef)
    pg_loss = -torch.min(mb.advantages * ratio, mb.advantages * clipped)
    outside = (ratio - 1.0).abs() > args.clip_coef
    if prox is not None:
        prox_logprob = prox.module.distribution(prox(mb.obs)[0], mb.actions)[0]
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


def gradient(loss_function, agent, args, parameters, mb):
    """The gradients of a minibatch's losses by these parameters of the agents, (S, P), and the parts of the losses."""
    loss, losses = loss_function(agent, args, mb)
    return layers.joined(torch.autograd.grad(loss.sum(), parameters)), losses


def update(loss_function, agent, optimizer, args, parameters, mb):
    """One step of the optimiser on a minibatch. Returns the parts of the loss and the gradient's norm, (S, 1) each, and
    the gradients (S, P), unclipped."""
    gradients, losses = gradient(loss_function, agent, args, parameters, mb)
    grad_norm = losses["grad_norm"] = gradients.norm(dim=1, keepdim=True)
    optimizer.step(gradients * (args.max_grad_norm / (grad_norm + 1e-6)).clamp(max=1.0))  # as clip_grad_norm_ does
    return losses, gradients


# ---- the outer loop --------------------------------------------------------------------------------------------------
def policy_gradient(prox, agent, args, parameters, batch, rows):
    """The gradients (S, P) of the policies' mean losses over some rows of a batch, added minibatch by minibatch."""
    of_policy = replace(args, vf_coef=0.0 * args.vf_coef)  # the values' gradient would hide the policy's
    count, total = batch.valid[:, rows].sum(-1, keepdim=True).clamp(min=1), 0.0
    for inds in rows.split(args.minibatch_size):
        mb = Batch(*(x[:, inds] for x in batch[:-1]), weights=batch.valid[:, inds] / count)
        total = total + gradient(partial(ppo_loss, prox), agent, of_policy, parameters, mb)[0]
    return total


def gradient_noise(prox, agent, args, parameters, batch, num_steps, seed):
    """P3's noise of the outer loop, between environments, and of the inner one, between shuffled rows of the same.

    Returns S dicts: grad_noise_scale, and its /envs, /inner, /dominated, /signal and /noise (metrics.noise_scales).
    """
    if args.norm_adv:
        batch = batch._replace(advantages=normalize_advantages(batch.advantages, batch.valid))
    of_group = partial(policy_gradient, prox, agent, args, parameters, batch)
    return diagnostics.gradient_noise_scales(of_group, batch.valid, num_steps, seed)


def behavior_kl(agent, batch, outputs, old_logstd):
    """KL(old || new), (S,): of the policies that acted and of the updated ones, in the valid rows' states."""
    if agent.continuous:
        return metrics.gaussian_kl(batch.outputs, old_logstd, outputs, agent.actor_logstd, batch.valid)
    pairs = zip(agent.logits(batch.outputs), agent.logits(outputs))
    return sum(metrics.categorical_kl(old, new, batch.valid) for old, new in pairs)


# ---- the six diagnostics ---------------------------------------------------------------------------------------------
@torch.no_grad()
def diagnose(agent, batch, seen, gradients):
    """Mayor et al.'s six numbers, and their variants, of the updated networks: metrics.py defines them. (S,) each.

    batch: some rows, of which the valid ones count; seen: what agent(batch.obs) returns; gradients: of a minibatch,
    (S, P), by the part of the curves to which its kurtosis belongs. Returns these parts, by tag.
    """
    outputs, _, hiddens = seen
    units = [layer[:, e] for e in range(agent.num_encoders) for layer in hiddens]  # by encoder
    saturates = agent.activation is layers.tanh  # its unit is dormant where it does not vary
    activity = metrics.activity(units, batch.valid, deviation=saturates)
    log_ratio = agent.distribution(outputs, batch.actions)[0] - batch.logprobs
    ess = metrics.effective_sample_size(log_ratio, batch.valid)
    found = {
        "dormant_neurons": metrics.dormant_neurons(activity, eps=1e-3 if saturates else 1e-5),
        **{f"dormant_neurons/tau_{tau:g}": metrics.dormant_neurons_tau(activity, tau) for tau in (0.0, 0.025, 0.1)},
        "dormant_neurons/zero_fraction": metrics.zero_fraction(activity),
        "weight_norm": metrics.weight_norm(layers.joined(agent.parameters())),
        "ess": 100.0 * ess / batch.valid.sum(-1).clamp(min=1),
        "ess/samples": ess,
    }
    spectra = metrics.spectrum(hiddens[-1], batch.valid[:, None])  # of both encoders at once
    for e, name in enumerate(("", "/critic_encoder")[: agent.num_encoders]):
        spectrum = metrics.Spectrum(*(x[:, e] for x in spectra))
        found[f"feature_rank{name}"] = metrics.feature_rank(spectrum)
        found[f"feature_rank{name}/centered"] = metrics.feature_rank(spectrum, centered=True)
        found[f"feature_rank{name}/srank"] = metrics.srank(spectrum)
        found[f"feature_rank{name}/effective_rank"] = metrics.effective_rank(spectrum)
        found[f"feature_rank{name}/rows"] = batch.valid.sum(-1).double()
    for name, parameters in metrics.parameters_by_layer(agent).items():
        found[f"weight_norm/{name}"] = metrics.weight_norm(layers.joined(parameters))
    if agent.continuous:
        std = agent.actor_logstd.exp()
        variance, share = metrics.gaussian_policy_variance(outputs, std, batch.valid)
        found["policy_variance/std"] = std.flatten(1).mean(-1)
    else:
        probs = torch.cat([x.double().softmax(-1) for x in agent.logits(outputs)], -1)
        variance = metrics.policy_variance(probs, batch.valid)
        share = metrics.policy_variance_normalized(probs, batch.valid)
    found["policy_variance"], found["policy_variance/normalized"] = variance, share
    scalars = {f"{part}/{name}": value for part in gradients for name, value in found.items()}
    for part, of_part in gradients.items():
        scalars[f"{part}/gradient_kurtosis"] = metrics.gradient_kurtosis(of_part)
        scalars[f"{part}/gradient_kurtosis/nonzero"] = metrics.gradient_kurtosis_nonzero(of_part)
        scalars[f"{part}/gradient_kurtosis/zero_fraction"] = metrics.gradient_zero_fraction(of_part)
    return scalars


# ---- evaluation ------------------------------------------------------------------------------------------------------
@tasks.in_turn
@torch.no_grad()
def play_episodes(agent, args, device, seeds, episodes, bar, greedy=False, retired=()):
    """Plays an episode of each agent in a fresh environment for each of `episodes`, a range of places in its seeds.

    seeds: S lists. Actions are sampled as in training, or the most likely ones if `greedy`. But for rounding, an
    episode does not depend on the others. retired: agents without any. Returns the raw returns, S lists.
    """
    envs = make_envs(args, [of_agent[episodes.start : episodes.stop] for of_agent in seeds])
    envs.retired = list(retired)
    generators = [torch.Generator(device).manual_seed(of_agent[0]) for of_agent in seeds]
    shape, std = (len(seeds[0]), agent.actions.outputs), action_std(agent)

    def act(obs, playing):
        outputs = agent(devices.to_device(obs.astype(agent.observation.dtype), device))[0].cpu().numpy()
        noise = torch.stack([draw_noise(shape, agent.continuous, generator) for generator in generators]).cpu().numpy()
        return sample(outputs, 0.0 if greedy else noise[:, episodes.start : episodes.stop], std, agent.actions.parts)

    return run_episodes(envs, act, bar, tasks.eval_max_steps(args))


def main(args):
    """Trains the run of args, or those that `--num-seeds` or `--runs` ask for: at once what can share a process."""
    device = devices.set_up(args)
    torch.set_num_threads(1)  # only the environments use more: PyTorch's threads would wait for each other at this size
    for run in pack.packs(command_lines.lines(args, parse_args), device):
        train(run, device)


def train(run, device):
    """Trains the agents of one pack (pack.Pack)."""
    # ---- setup -------------------------------------------------------------------------------------------------------
    args = run.args
    gamma, lam = (x.cpu().numpy() for x in (args.gamma, args.gae_lambda))  # (S, 1)
    agent = make_agent(args, run.seeds).to(device)
    # the rollout's network is on the CPU, in NumPy's memory: at this size a call of a GPU costs more than it saves
    actor = agent if device.type == "cpu" else make_agent(args, run.seeds)
    optimizer, parameters = layers.Adam(agent, args.learning_rate), list(agent.parameters())
    rngs = [torch.Generator(device).manual_seed(2**32 - 1 - seed) for seed in run.seeds]  # of all but initial weights
    prox = devices.averaged(agent, args.prox_com)  # the proximal policies; None without --prox-com
    stats = pack.Stats(len(run.seeds), gradient_steps=0)  # the sums since the last log point, and more (pack.py)
    stats.reward_moments = torch.tensor([[0.0, 1.0, 1e-4]]).double().repeat(len(run.seeds), 1)  # for normalize_rewards
    run.restore(agent=agent, optimizer=optimizer, rng=rngs, log=stats, prox=prox)
    devices.begin_average(prox, agent)
    look = torch.no_grad()(agent.forward)
    loss_function = partial(devices.compiled(ppo_loss, args.compile), prox)
    learn = partial(update, loss_function, agent, optimizer, args, parameters)

    T, N, envs = 0, 0, None
    while not run.ended:
        n_by_t = run.schedule.n_by_t(run.global_step, stats.led[0])
        if (N, T) != n_by_t:  # at the start, too
            N, T = n_by_t
            tasks.close(envs)  # with the same seeds the next ones would repeat their first episodes
            envs = make_envs(args, [env_seeds(seed, "train", run.global_step, range(N)) for seed in run.seeds])
            envs.retired = run.diverged
            episodes = Episodes(envs.shape)
            next_obs = envs.reset()[0].astype(agent.observation.dtype)  # (S, N, width)
            next_done = np.zeros(envs.shape, dtype=bool)
            discounted = np.zeros(envs.shape)  # for normalize_rewards
            shape = (T, *envs.shape)
            rollout = Rollout(
                obs=np.zeros((*shape, agent.observation.width), agent.observation.dtype),
                actions=np.zeros((*shape, *agent.actions.shape), agent.actions.dtype),
                outputs=np.zeros((*shape, agent.actions.outputs), np.float32),
                values=np.zeros(shape, np.float32),
                rewards=np.zeros(shape, np.float32),
                terminations=np.zeros(shape, bool),
                truncations=np.zeros(shape, bool),
            )
        if args.anneal_lr:
            optimizer.learning_rate = (1.0 - run.global_step / run.total_steps) * args.learning_rate

        # ---- rollout -------------------------------------------------------------------------------------------------
        devices.copy_state(agent, actor)
        noise = [draw_noise((T, N, agent.actions.outputs), agent.continuous, rng) for rng in rngs]
        noise = torch.stack(noise, 1).cpu().numpy()  # (T, S, N, A)
        old_logstd = agent.actor_logstd.detach().clone() if agent.continuous else None
        next_obs, next_value = collect_steps(actor, rollout, noise, next_obs, envs, run)
        dones = rollout.terminations | rollout.truncations
        valid, next_done = np.concatenate([~next_done[None], ~dones[:-1]]), dones[-1]  # row t is no autoreset step
        rollout.rewards[:] *= valid  # DeepMind Control's autoreset steps have rewards
        run.global_step += N * T
        run.add_episodes(*episodes.add(rollout.rewards, dones, valid))

        # ---- advantages ----------------------------------------------------------------------------------------------
        rewards, terminations, truncations = rollout.rewards, rollout.terminations, rollout.truncations
        if not args.mask_resets:
            terminations, truncations, valid = dones, np.zeros_like(dones), np.ones_like(dones)
        if args.norm_reward:
            rewards = normalize_rewards(rewards, dones, valid, discounted, stats.reward_moments.numpy(), gamma)
        # after a done, obs[t + 1] is still the true last observation: the next episode shows one row later
        next_values = np.concatenate([rollout.values[1:], next_value[None]])
        advantages, returns = gae(rewards, rollout.values, terminations, truncations, next_values, valid, gamma, lam)
        batch = batch_of(agent, rollout, returns, advantages, valid, device)

        # ---- update --------------------------------------------------------------------------------------------------
        outer = [{} for _ in run.seeds]  # of each agent: Beukman et al.'s numbers of the outer loop
        if run.noise_is_due(stats, N * T):
            outer = gradient_noise(prox, agent, args, parameters, batch, T, run.global_step)
            run.follow_noise(stats, outer, N * T)
        for _epoch in range(args.update_epochs):
            order = torch.stack([torch.randperm(N * T, generator=rng, device=device) for rng in rngs])
            shuffled = weighted(batch.rows(order.unflatten(1, (-1, args.minibatch_size))), args.norm_adv)
            for columns in zip(*(x.unbind(1) for x in shuffled)):
                losses, last_gradients = learn(Batch(*columns))
                if prox is not None:
                    prox.update_parameters(agent)
                stats.add(losses)
                stats.gradient_steps += 1
                run.tick()
            if args.target_kl is not None and losses["approx_kl"] > args.target_kl:
                break
        stats.add({"explained_variance": metrics.explained_variance(batch.values, batch.returns, batch.valid)})
        # a number that is not finite reaches the parameters and stays: this check catches it before the checkpoint
        suspects = {"rewards": torch.from_numpy(rewards).transpose(0, 1), **agent.observation.named(batch.obs)}
        suspects.update(zip(batch._fields[1:], batch[1:-1]))
        suspects.update({name: stats.sums[name] for name in losses}, parameters=optimizer.parameters)
        run.stop_diverged(suspects)  # these agents go on computing, with such numbers, and are not used
        if run.ended:
            break

        # ---- log -----------------------------------------------------------------------------------------------------
        if run.at_log_point(N * T):
            scalars = {f"losses/{name}": mean for name, mean in stats.means().items()}
            scalars["charts/learning_rate"] = optimizer.learning_rate
            scalars["charts/gradient_steps"] = stats.gradient_steps
            if args.schedule:
                scalars["charts/num_envs"], scalars["charts/num_steps"] = N, T
            inds, counted = diagnostics.probe_rows(batch.valid, args.probe_size, seed=run.global_step)
            probe = batch.rows(inds)._replace(valid=counted)
            _, values, hiddens = seen = look(probe.obs)
            run.add_coverage(counted, obs=probe.obs, feature=hiddens[-1][:, 0].half(), value=values)
            if args.diagnostics:  # of the whole batch, as Mayor et al.; and of equally many rows at any N x T
                of_probe, _ = gradient(partial(ppo_loss, prox), agent, args, parameters, weighted(probe, args.norm_adv))
                measured, gradients = probe, {"probe": of_probe}
                if args.probe_size < N * T:  # else the probe is the batch
                    scalars.update(diagnose(agent, measured, seen, gradients))
                    measured, seen, gradients = batch, look(batch.obs), {}
                scalars.update(diagnose(agent, measured, seen, {**gradients, "diagnostics": last_gradients}))
                kl = behavior_kl(agent, measured, seen[0], old_logstd)  # for kl_behavior, ddr and plateau
                run.add_outer(outer, stats.points, batch.valid.sum(-1), kl, scalars["losses/grad_norm"].flatten())
            run.log(scalars, [{f"outer/{name}": x for name, x in of_agent.items()} for of_agent in outer])
        if args.norm_obs:  # last: rollout, update and diagnostics have seen the same normalisation
            agent.add_obs(batch.obs, batch.valid)
        run.end_iteration()

    # ---- close -------------------------------------------------------------------------------------------------------
    tasks.close(envs)
    run.finish(partial(play_episodes, agent, args, device, retired=run.diverged))


if __name__ == "__main__":
    with rundir.full_disk_in_one_line():
        main(parse_args(sys.argv[1:]))
