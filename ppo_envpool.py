"""PPO on EnvPool's small worlds, whose observation is a vector or a small grid: results in seconds to minutes.

    python ppo_envpool.py --env-id CartPole-v1
    python ppo_envpool.py --env-id CartPole-v1 --num-seeds 20       # seeds 1 to 20 at once
    python ppo_envpool.py --env-id gymnasium:my_module:MyTask-v0    # your own task: my_module registers it in gymnasium

Games: worlds.py. Papers: Schulman et al. 2017 (PPO); Mayor et al. 2025, arXiv 2506.03404 (P1: the diagnostics);
Beukman et al. 2026, arXiv 2603.06009 (P3: `outer/`). References: CleanRL's ppo.py and, for continuous actions,
ppo_continuous_action.py @fe8d8a0, with their algorithm, defaults and names. Departures, each with its reason:

1. The step after `done` only resets the game; in CleanRL's ppo.py it resets within the step. `valid` keeps that row out
   of returns, losses, advantage statistics and diagnostics (`--no-mask-resets` trains on it).
2. A time limit is not a death: a truncated step bootstraps from the value of the real last observation, a terminated
   one from 0. CleanRL bootstraps neither (`--no-mask-resets` again). EnvPool calls a death in that step a time-out.
3. 8 games x 128 steps for both kinds of actions; CleanRL has 4 x 128 and, for continuous actions, 1 x 2048.
4. A curve has `--num-logs` points, however long the run; CleanRL writes three scalars a game and nine an iteration.
   Logged losses are means over all minibatches since the last point; CleanRL logs the last minibatch.
5. `--norm-obs` and `--norm-reward` use the moments of the valid rows of all processes; those of the observations
   change once an iteration, so that rollout and update see the same network. The returns are raw.
6. For speed, with the same mathematics: actor and critic compute side by side, an agent's parameters are views of one
   row, actions are sampled by the Gumbel-max trick, an epoch's minibatches are cut from one shuffled copy. Adam is
   written out, because each agent has a learning rate of its own, and because the fused one rounds differently at
   different places of a tensor.
7. A batch that the minibatches do not divide is refused; CleanRL silently adds a smaller minibatch.
8. A run is a directory that can be killed at any time and is resumed by the same command. Each game has its own seed.
9. Integers are one-hot. So are a grid's cells and direction; a small convolution sees it first. MiniGrid's mission, a
   sentence that most of its tasks do not need, is left out.
10. torchrun, `--num-seeds`, `--runs`, `--compile`, `--hidden-sizes`, `--activation`, `--shared-encoder`,
    `--minibatch-size`, `--scaling`, `--prox-com`, `--schedule`, `--resume-from`, `--eval-episodes` are additions.

One process can train S agents at once: at this size PyTorch is called for most of the time and computes for little of
it. Parameters are (S, ...), rollouts (T, S, N, ...), batches (S, T N, ...), and S is 1 unless `--num-seeds` or `--runs`
ask for more. Each agent has its own run directory, games, noise, shuffles, learning rate, coefficients and clipping; no
sum crosses the axis. A run has the same bits alone and in any company: see `linear` for the one trap.
"""

import math
import os
import re
import sys
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple, Optional, Tuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

import metrics
from support import arguments, devices, pack, recipe, rundir, worlds
from support.arguments import Count, Evaluation, Fraction, NonNegative, Positive, Seed, Steps, Threads

os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")  # a product of matrices rounds alike wherever they are in memory
GRID_VALUES, GRID_STARTS = 20, (0, 11, 17)  # MiniGrid's 11 objects, 6 colours and 3 states, and where each begin
LOSSES = ("policy_loss", "value_loss", "entropy", "old_approx_kl", "approx_kl", "clipfrac", "grad_norm")


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
    capture_video: bool = False  # plays a game at the end (scripts/evaluate.py): `episode.mp4`, in colour
    run_name: Optional[str] = None  # the directory below runs-dir; default {env_id}__{exp_name}__{seed}__{unix time}
    runs_dir: str = "runs"  # the directory that holds the run directories
    resume_from: Optional[str] = None  # a run directory: begins with its newest checkpoint and the same network
    num_logs: Count = 1000  # the number of points in every curve (at most one an iteration)
    diagnostics: bool = True  # logs `diagnostics/`, `probe/` and `outer/` at those points
    probe_size: Count = 1024  # rows of the batch that `probe/` looks at, so that its numbers compare across batch sizes
    checkpoint_minutes: NonNegative = 10.0  # minutes between checkpoints; 0 writes one after every iteration
    eval_episodes: Evaluation = 0  # whole games that the final network plays when training ends: `final_return`
    num_threads: Threads = 1  # CPU threads of PyTorch and of EnvPool; 0 takes every core, or OMP_NUM_THREADS
    # Algorithm specific arguments
    env_id: str = "CartPole-v1"  # the id of EnvPool's game, or gymnasium:MODULE:ID, a game that MODULE registers
    total_timesteps: Steps = 500000  # environment steps of the whole run, over all environments
    learning_rate: NonNegative = 2.5e-4  # the learning rate of Adam
    num_envs: Count = 8  # the number of parallel games: N_envs
    num_steps: Count = 128  # the number of steps in each game per rollout: N_RO
    schedule: Optional[str] = None  # changes both at fractions of the run, 0:8x128,0.5:128x8, or N by noise (recipe.py)
    anneal_lr: bool = True  # anneals the learning rate linearly to 0
    gamma: Fraction = 0.99  # the discount factor
    gae_lambda: Fraction = 0.95  # lambda of the generalised advantage estimation
    num_minibatches: Count = 4  # minibatches per epoch; the batch is num_envs * num_steps
    minibatch_size: Optional[Count] = None  # rows per minibatch, in place of num-minibatches (P3's recipe)
    scale_from: Optional[Count] = None  # the environments of the base of --scaling; default: those of num-envs
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
    shared_encoder: bool = False  # one stack of hidden layers for actor and critic, or one for each
    mask_resets: bool = True  # trains on no reset row and bootstraps at time limits (departures 1 and 2)
    num_seeds: Count = 1  # trains that many seeds at once, from --seed on, each in RUN_NAME/sSEED
    runs: Optional[str] = None  # a file: trains the run of each line at once, a line being its flags
    compile: bool = False  # compiles the network and the loss with torch.compile: a minute at the start, a C++ compiler


def parse_args(argv):
    """Returns checked Args of one run; exits 2 with one line on bad input. Touches no file."""
    env_id = ([Args.env_id] + re.findall(r"--env[-_]id[= ](\S+)", " ".join(argv)))[-1]
    default = Args(**recipe.CONTINUOUS) if worlds.has_continuous_actions(env_id) else Args()
    args = arguments.parse(Args, argv, __doc__, default=default)
    args.num_threads = args.num_threads or torch.get_num_threads()
    return arguments.check(args, argv, row_bytes=100 + worlds.check(args), default=default)


# ---- environments ----------------------------------------------------------------------------------------------------
def make_envs(args, seeds):
    """The games (worlds.py), one for each of the seeds (integers below 2**31), which are (N,) or (S, N)."""
    return worlds.make(args.env_id, seeds, args.num_threads)


# ---- networks --------------------------------------------------------------------------------------------------------
def layer_init(layer, std=2**0.5, bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


def linear(x, weight, bias):
    """x weight + bias of G slices: (G, B, inputs), (G, inputs, outputs), (G, 1, outputs) -> (G, B, outputs).

    A product of one slice takes another kernel, which rounds differently. So one slice gets a copy beside it: then its
    bits, and those of its gradients, are the same alone and among others.
    """
    if len(x) > 1:
        return torch.baddbmm(bias, x, weight)
    return torch.baddbmm(*(y.expand(2, -1, -1) for y in (bias, x, weight)))[:1]


def elu(x):
    """ELU, which F.elu rounds differently at different places of a tensor."""
    return torch.where(x > 0, x, torch.expm1(x.clamp(max=0.0)))


class Layer(nn.Module):
    """A linear layer of each of E encoders of S agents: (S, E, B, inputs) -> (S, E, B, outputs).

    layers: S lists of E nn.Linear, with the first weights.
    """

    def __init__(self, layers):
        super().__init__()
        of_agents = [torch.stack([layer.weight.detach().t() for layer in agent]) for agent in layers]
        self.weight = nn.Parameter(torch.stack(of_agents))  # (S, E, inputs, outputs)
        self.bias = nn.Parameter(torch.zeros(*self.weight.shape[:2], 1, self.weight.shape[-1]))

    def forward(self, x):
        y = linear(x.flatten(0, 1), self.weight.flatten(0, 1), self.bias.flatten(0, 1))
        return y.unflatten(0, self.weight.shape[:2])


class Agent(nn.Module):
    """S actors and critics, each pair with an encoder of its own (E = 2) or with a shared one (E = 1).

    observation: what worlds.observation says. With `continuous` there are num_actions real numbers in an action. seeds:
    of the first weights, one for each of the S agents.
    """

    def __init__(self, observation, num_actions, continuous, args, seeds):
        super().__init__()
        self.observation, self.norm_obs, self.num_encoders = observation, args.norm_obs, 1 if args.shared_encoder else 2
        self.activation = {"tanh": torch.tanh, "elu": elu, "relu": F.relu}[args.activation]
        grid = observation.kind == "grid"
        sizes = (16 * 3 * 3 + 4 if grid else observation.values or observation.width, *args.hidden_sizes)
        shapes = [(self.num_encoders, *pair, 2**0.5) for pair in zip(sizes, sizes[1:])]
        shapes += [(1, sizes[-1], num_actions, 0.01), (1, sizes[-1], 1, 1.0)]
        if grid:  # a convolution with 16 kernels of 3 x 3 cells: a linear layer of patches
            shapes.insert(0, (self.num_encoders, GRID_VALUES * 3 * 3, 16, 2**0.5))

        def first_layers(seed):
            torch.manual_seed(seed)
            return [
                [layer_init(nn.Linear(inputs, outputs), std) for _ in range(number)]
                for number, inputs, outputs, std in shapes
            ]

        layers = [Layer(of_agents) for of_agents in zip(*map(first_layers, seeds))]
        self.convolution = layers.pop(0) if grid else None
        *network, self.actor, self.critic = layers
        self.network = nn.ModuleList(network)
        self.actor_logstd = nn.Parameter(torch.zeros(len(seeds), 1, num_actions)) if continuous else None
        # of --norm-obs: count, sum and sum of squares of each column; at first those of one row with mean 0, variance 1
        sums = torch.tensor([[1.0], [0.0], [1.0]]).double().repeat(len(seeds), 1, observation.width)
        for name, rows in (("obs_sums", sums), ("obs_mean", sums[:, 1:2].float()), ("obs_std", sums[:, 2:].float())):
            self.register_buffer(name, rows, persistent=args.norm_obs)
        self.register_buffer("grid_starts", torch.tensor(GRID_STARTS), persistent=False)

    @torch.no_grad()
    def add_obs(self, sums):
        """Adds the columns' (count, sum, sum of squares), (S, 3, D) float64, to those that normalise observations."""
        self.obs_sums += sums
        count, total, squares = self.obs_sums.split(1, 1)
        mean = total / count
        self.obs_mean.copy_(mean)
        self.obs_std.copy_(((squares / count - mean.square()).clamp(min=0) + 1e-8).sqrt())

    def inputs(self, obs):
        """What the hidden layers get, (S, E, B, inputs), and a list of the layers before them."""
        if self.observation.kind == "grid":
            values = obs[..., 1:].long().unflatten(-1, (-1, 3)) + self.grid_starts
            cells = torch.zeros(*values.shape[:-1], GRID_VALUES, device=obs.device).scatter_(-1, values, 1.0)
            patches = cells.unflatten(2, (7, 7)).unfold(2, 3, 2).unfold(3, 3, 2)  # (S, B, 3, 3, values, 3, 3)
            patches = patches.flatten(4).flatten(1, 3)  # (S, B 3 3, inputs)
            # the encoders see the same patches: their kernels are columns of one matrix
            weight, bias = (x.transpose(1, 2).flatten(2) for x in (self.convolution.weight, self.convolution.bias))
            x = self.activation(linear(patches, weight, bias))
            x = x.view(len(obs), -1, 9, self.num_encoders, 16).permute(0, 3, 1, 4, 2)  # (S, E, B, 16, 9)
            direction = F.one_hot(obs[..., 0].long(), 4).float()[:, None].expand(-1, self.num_encoders, -1, -1)
            return torch.cat([x.flatten(3), direction], -1), [x]
        if self.observation.kind == "index":
            obs = F.one_hot(obs[..., 0].long(), self.observation.values).float()
        elif self.norm_obs:
            obs = ((obs - self.obs_mean) / self.obs_std).clamp(-10.0, 10.0)
        return obs[:, None].expand(-1, self.num_encoders, -1, -1), []

    def forward(self, obs):
        """Maps obs (S, B, width) to logits, or means (S, B, A), to value (S, B) and to the layers.

        Each layer is (S, E, B, units, ...), after its activation: of the actor's encoder and of the critic's. The last
        is the representation.
        """
        x, layers = self.inputs(obs)
        for layer in self.network:
            x = self.activation(layer(x))
            layers.append(x)
        return self.actor(x[:, :1]).squeeze(1), self.critic(x[:, -1:]).flatten(1), layers


def make_agent(args, seeds=(0,)):
    """An agent for each of the seeds, for the game and the network of args."""
    return Agent(worlds.observation(args.env_id), *worlds.num_actions(args.env_id), args, seeds)


def one_row_an_agent(agent):
    """The parameters of S agents as one tensor (S, P), of which theirs become views: Adam is few calls then."""
    parameters = list(agent.parameters())
    rows = torch.cat([x.detach().flatten(1) for x in parameters], 1)
    for x, part in zip(parameters, rows.split([x[0].numel() for x in parameters], 1)):
        x.data = part.view(x.shape)
    return rows


class Adam:
    """Adam (Kingma and Ba 2015) on parameters (S, P), with a learning rate for each of the S agents.

    As torch.optim.Adam with betas (0.9, 0.999), in operations that round the same at any place of a tensor.
    """

    def __init__(self, parameters, eps=1e-5):
        self.parameters, self.eps = parameters, eps
        self.steps = torch.zeros(len(parameters), 1, dtype=torch.float64)
        self.mean, self.square = torch.zeros_like(parameters), torch.zeros_like(parameters)

    @torch.no_grad()
    def step(self, gradient, learning_rate):
        """gradient (S, P), learning_rate (S, 1) float64."""
        self.steps += 1
        self.mean.lerp_(gradient, 1 - 0.9)
        self.square.mul_(0.999).addcmul_(gradient, gradient, value=1 - 0.999)
        root = (1 - 0.999**self.steps).sqrt().float().to(gradient.device)
        rate = (-learning_rate / (1 - 0.9**self.steps)).float().to(gradient.device)
        self.parameters.addcdiv_(self.mean * rate, (self.square.sqrt() / root).add_(self.eps))

    def state_dict(self):
        return {"steps": self.steps, "mean": self.mean, "square": self.square}


# ---- targets and loss ------------------------------------------------------------------------------------------------
class Rollout(NamedTuple):
    """What S agents did in T steps of N games each. Row t of the last four follows actions[t]; valid[t] is of row t."""

    obs: np.ndarray  # (T, S, N, width), of the observation's dtype
    actions: np.ndarray  # (T, S, N) int64, or (T, S, N, A) float32
    outputs: np.ndarray  # (T, S, N, A) float32: the logits, or means, that the actions were sampled from
    values: np.ndarray  # (T, S, N) float32
    rewards: np.ndarray  # (T, S, N) float32
    terminations: np.ndarray  # (T, S, N) bool
    truncations: np.ndarray  # (T, S, N) bool
    valid: np.ndarray  # (T, S, N) bool: no reset row


class Batch(NamedTuple):
    """The rows of a rollout, or some of them: S agents with R rows each."""

    obs: torch.Tensor  # (S, R, width)
    outputs: torch.Tensor  # (S, R, A) float32
    actions: torch.Tensor  # (S, R) int64, or (S, R, A) float32
    logprobs: torch.Tensor  # (S, R) float32
    values: torch.Tensor  # (S, R) float32
    returns: torch.Tensor  # (S, R) float32
    advantages: torch.Tensor  # (S, R) float32; normalised in a minibatch
    valid: torch.Tensor  # (S, R) bool
    weights: Any = None  # (S, R) float32, in a minibatch: of each row in a mean


def batch_of(rollout, returns, advantages, valid, old_logstd, device):
    """The Batch of a rollout, on the device."""
    columns = (rollout.obs, rollout.outputs, rollout.actions, rollout.values, returns, advantages, valid)
    columns = (x.swapaxes(0, 1).reshape(x.shape[1], -1, *x.shape[3:]) for x in columns)  # (S, T N, ...)
    obs, outputs, actions, *others = (devices.to_device(x, device) for x in columns)
    with torch.no_grad():
        logprobs, _ = distribution(outputs, old_logstd, actions)
    return Batch(obs, outputs, actions, logprobs, *others)


def normalize_rewards(rewards, ends, valid, discounted, moments, gamma):
    """gym's NormalizeReward: divides by the standard deviation of all discounted returns so far, clips to [-10, 10].

    rewards (T, S, N) float32, ends and valid (T, S, N) bool; `discounted` (S, N) is what the episodes under way have
    earned and `moments` (S, 3) the mean, variance and count of all such sums, valid rows only. Returns the normalised
    rewards (T, S, N) and the new values of these two.
    """
    normalized = np.zeros_like(rewards)
    mean, variance, count = (moments[:, i : i + 1] for i in range(3))
    for t in range(len(rewards)):
        discounted = discounted * gamma + rewards[t]
        number = valid[t].sum(-1, keepdims=True)
        batch_mean = (discounted * valid[t]).sum(-1, keepdims=True) / np.maximum(number, 1)
        batch_variance = ((discounted - batch_mean) ** 2 * valid[t]).sum(-1, keepdims=True) / np.maximum(number, 1)
        delta, total = batch_mean - mean, count + number
        squares = variance * count + batch_variance * number + delta**2 * (count * number / total)
        mean, variance, count = mean + delta * (number / total), squares / total, total
        normalized[t] = (rewards[t] / np.sqrt(variance + 1e-8)).clip(-10, 10)
        discounted = np.where(ends[t], 0.0, discounted)
    return normalized, discounted, np.concatenate([mean, variance, count], -1)


def gae(rewards, values, terminations, truncations, next_values, valid, gamma, gae_lambda):
    """Generalised advantage estimation (Schulman et al. 2016, eq. 16), cut at the ends of episodes. Arrays are (T, N).

    `values[t]` is V(obs[t]), `next_values[t]` V of what step t led to, before any reset. `terminations`, `truncations`
    (bool) say how step t ended its episode: the first bootstrap 0, the second `next_values[t]`, and neither passes the
    trace on. Rows that are not `valid` (bool) get the advantage 0 and take no time: no trace begins in them. Returns
    (advantages, returns), both float32 (T, N)."""
    advantages = np.zeros_like(rewards)
    nonterminal = (~terminations).astype(np.float32)
    decay = gamma * gae_lambda * (nonterminal * ~truncations)
    deltas = rewards + gamma * next_values * nonterminal - values
    lastgaelam = np.zeros_like(rewards[0])
    for t in reversed(range(len(rewards))):
        lastgaelam = np.where(valid[t], deltas[t] + decay[t] * lastgaelam, lastgaelam)
        advantages[t] = lastgaelam
    advantages *= valid
    return advantages, advantages + values


def normalize_advantages(advantages, valid):
    """Zero mean and unit (unbiased) standard deviation over the valid rows of each minibatch, of all processes.

    advantages (..., M) float32, valid (..., M) bool. Returns the normalised advantages, 0 in other rows, and the weight
    of each row in a mean over its minibatch: 1 / (number of valid rows), 0 in other rows. Both (..., M).
    """
    total, count = devices.sum_over_ranks(torch.stack([torch.where(valid, advantages, 0.0).sum(-1), valid.sum(-1)]))
    weights = valid / count.clamp(min=1)[..., None]
    centred = torch.where(valid, advantages - (total / count.clamp(min=1))[..., None], 0.0)
    squares = devices.sum_over_ranks(centred.square().sum(-1))
    std = (squares / (count - 1).clamp(min=1)).sqrt()
    return centred / (std[..., None] + 1e-8), weights


def draw_noise(shape, continuous, generator):
    """What makes an action of the policy's outputs (`sample`): Gumbel or Gaussian noise, float32 of this shape."""
    noise = torch.empty(shape, device=generator.device)
    noise = noise.normal_(generator=generator) if continuous else noise.exponential_(generator=generator).log_().neg_()
    return noise.cpu().numpy()


def sample(outputs, noise, std):
    """Samples actions: (..., N) given logits (..., N, A), argmax(logits + noise), or (..., N, A) given means, mean +
    std * noise."""
    return (outputs + noise).argmax(-1) if std is None else outputs + std * noise


def distribution(outputs, logstd, actions):
    """Log-probabilities of actions, and the entropy of the policy in each state: both (..., B).

    actions: (..., B) int64 under the logits `outputs` (..., B, A), or (..., B, A) under the means `outputs` and logstd
    (..., 1, A).
    """
    if logstd is None:
        logprobs = F.log_softmax(outputs, dim=-1)
        return logprobs.gather(-1, actions[..., None]).squeeze(-1), -(logprobs.exp() * logprobs).sum(-1)
    logprobs = -(0.5 * ((actions - outputs) / logstd.exp()).square() + logstd + 0.5 * math.log(2 * math.pi)).sum(-1)
    return logprobs, (logstd + 0.5 * math.log(2 * math.pi * math.e)).sum(-1).expand_as(logprobs)


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


def ppo_loss(logratio, entropy, newvalue, values, returns, advantages, weights, args, prox_logratio=None):
    """The clipped surrogate loss (Schulman et al. 2017, eq. 7 and 9), a mean over the valid rows of a minibatch.

    logratio: log-probabilities of the actions taken, new minus old; entropy, newvalue: of the network in training;
    values, returns, advantages: of the rollout; weights: of the rows in the mean (`normalize_advantages`); args: the
    coefficients, (S, 1) each; prox_logratio: the proximal policy's log-probabilities minus old, for PPO-EWMA. All (S,
    B) float32. With several processes each gets its share of the mean: shares, and their gradients, add up to the
    whole. Returns the losses (S,) and, (6, S) without gradient, the means of LOSSES but the last; old_approx_kl and
    approx_kl are the estimators k1 and k3 of KL(old || new) (joschu.net/blog/kl-approx.html).
    """
    ratio = logratio.exp()
    pg_loss = -torch.min(advantages * ratio, advantages * torch.clamp(ratio, 1 - args.clip_coef, 1 + args.clip_coef))
    if prox_logratio is not None:
        pg_loss = ewma_surrogate(logratio, prox_logratio, advantages, args.clip_coef)
    v_loss = (newvalue - returns).square()
    if args.clip_vloss:
        v_clipped = values + torch.clamp(newvalue - values, -args.clip_coef, args.clip_coef)
        v_loss = torch.max(v_loss, (v_clipped - returns).square())
    v_loss = 0.5 * v_loss
    loss = ((pg_loss - args.ent_coef * entropy + args.vf_coef * v_loss) * weights).sum(-1)
    with torch.no_grad():
        clipped = ((ratio - 1.0).abs() > args.clip_coef).float()
        losses = torch.stack([pg_loss, v_loss, entropy, -logratio, (ratio - 1) - logratio, clipped])
        return loss, (losses * weights).sum(-1)


# ---- update ----------------------------------------------------------------------------------------------------------
def rows_of(batch, inds):
    """The rows inds (S, R) of a batch, another R for each agent."""
    places = (inds + len(batch.valid[0]) * torch.arange(len(inds), device=inds.device)[:, None]).flatten()
    columns = (x.flatten(0, 1).index_select(0, places).unflatten(0, inds.shape) for x in batch[:-1])
    return Batch(*columns)


def minibatches(batch, inds, number, norm_adv):
    """The rows inds (S, R) of a batch in `number` minibatches (S, R / number), with advantages normalised in each."""
    size = inds.shape[1] // number
    order = inds.unflatten(1, (number, size)).transpose(0, 1)  # (number, S, size): a minibatch is one stretch of memory
    places = order + len(batch.valid[0]) * torch.arange(len(inds), device=inds.device)[:, None]
    columns = [x.flatten(0, 1).index_select(0, places.flatten()).unflatten(0, order.shape) for x in batch[:-1]]
    shuffled = Batch(*columns)
    advantages, weights = normalize_advantages(shuffled.advantages, shuffled.valid)
    shuffled = shuffled._replace(advantages=advantages if norm_adv else shuffled.advantages, weights=weights)
    return map(Batch._make, zip(*shuffled))


def minibatch_loss(agent, prox, mb, args):
    """The loss (S,) of each agent on its minibatch, and LOSSES but the last, (6, S)."""
    newoutputs, newvalue, _ = agent(mb.obs)
    newlogprob, entropy = distribution(newoutputs, agent.actor_logstd, mb.actions)
    proximal = None
    if prox is not None:
        with torch.no_grad():
            proximal = distribution(prox(mb.obs)[0], prox.module.actor_logstd, mb.actions)[0] - mb.logprobs
    logratio = newlogprob - mb.logprobs
    return ppo_loss(logratio, entropy, newvalue, mb.values, mb.returns, mb.advantages, mb.weights, args, proximal)


def gradient_of(loss_function, agent, prox, mb, args):
    """The gradients (S, P), and the losses, of this process's rows of a minibatch: their share of the whole."""
    loss, losses = loss_function(agent, prox, mb, args)
    gradients = torch.autograd.grad(loss.sum(), list(agent.parameters()))
    return torch.cat([x.flatten(1) for x in gradients], 1), losses


def update(loss_function, agent, prox, optimizer, mb, args, learning_rate):
    """One step of the optimiser on a minibatch. Returns LOSSES (S, 7) and the gradients (S, P), before the clipping."""
    gradient, losses = gradient_of(loss_function, agent, prox, mb, args)
    devices.add_over_ranks([gradient, losses])
    grad_norm = gradient.norm(dim=1)  # clipped as clip_grad_norm_ does, for each agent
    clip = (args.max_grad_norm / (grad_norm[:, None] + 1e-6)).clamp(max=1.0)
    optimizer.step(gradient * clip, learning_rate)
    if prox is not None:
        prox.update_parameters(agent)
    return torch.cat([losses, grad_norm[None]]).T, gradient


def group_gradient(agent, prox, args, batch, inds):
    """The gradients (S, P) of the policy's mean loss over the rows inds (M,), added minibatch by minibatch."""
    of_policy = replace(args, vf_coef=0.0 * args.vf_coef)  # the values' gradient would hide the policy's
    count, total = batch.valid[:, inds].sum(-1, keepdim=True).clamp(min=1), 0.0
    for rows in inds.split(args.minibatch_size):
        columns = (x[:, rows] for x in batch[:-1])
        mb = Batch(*columns, weights=batch.valid[:, rows] / count)
        total = total + gradient_of(minibatch_loss, agent, prox, mb, of_policy)[0]
    return total


def gradient_noise(agent, prox, args, batch, num_steps, seed):
    """The noise of the policy's gradient, between games and between rows: S dicts of metrics.gradient_noise_scales."""
    if args.norm_adv:
        batch = batch._replace(advantages=normalize_advantages(batch.advantages, batch.valid)[0])
    of_group = partial(group_gradient, agent, prox, args, batch)
    ranks = (devices.NUM_RANKS, devices.add_over_ranks)
    return metrics.gradient_noise_scales(of_group, batch.valid, num_steps, seed, *ranks)


# ---- diagnostics -----------------------------------------------------------------------------------------------------
@torch.no_grad()
def diagnose(agent, batch, old_logstd):
    """Measures the updated networks on the valid rows of a batch.

    old_logstd: of the policies that acted. Returns {name: (S,)} (definitions: metrics.py), KL(old || new) (S,), and
    what the networks make of the rows: values (S, R) and representations (S, R, D). Under Tanh, a unit with a small
    standard deviation is dormant: it saturates far from zero.
    """
    outputs, values, layers = agent(batch.obs)
    found = metrics.diagnose_agents(layers, batch.valid, agent.activation is torch.tanh)
    if agent.actor_logstd is None:
        policy, kl = metrics.policy_diagnostics(batch.outputs, outputs, batch.actions, batch.valid)
    else:
        policy, kl = metrics.gaussian_policy_diagnostics(
            batch.outputs, old_logstd, outputs, agent.actor_logstd, batch.actions, batch.valid
        )
    return {**found, **policy, **metrics.weight_norms(agent, agents=True)}, kl, (values, layers[-1][:, 0])


@torch.no_grad()
def play_games(agent, args, device, seeds, games, bar, greedy=False):
    """Each agent plays one whole game in a fresh environment for each of `games`, a range of indices into its seeds.

    seeds: a list for each of the S agents. Actions are sampled as in training, or the most likely ones if `greedy`. But
    for rounding, a game depends neither on the others of `games` nor on their number. Returns the raw returns, (S,
    games) in lists. `bar` shows the progress.
    """
    envs = make_envs(args, [of_agent[games.start : games.stop] for of_agent in seeds])
    generators = [torch.Generator(device).manual_seed(of_agent[0]) for of_agent in seeds]
    std = None if agent.actor_logstd is None else agent.actor_logstd.exp().cpu().numpy()

    def act(obs):
        outputs = agent(devices.to_device(obs.astype(agent.observation.dtype), device))[0].cpu().numpy()
        shape = (len(seeds[0]), outputs.shape[-1])
        noise = np.stack([draw_noise(shape, std is not None, generator) for generator in generators])
        return sample(outputs, 0.0 if greedy else noise[:, games.start : games.stop], std)

    return envs.play(act, bar)


class Log(SimpleNamespace):
    """What is counted over the training of S agents, and their sums since the last log point."""

    def __init__(self, num_agents):
        super().__init__(gradient_steps=0, noise_due=0, points=[[] for _ in range(num_agents)])
        self.led = (0, 0.0, 0.0)  # of --schedule noise: doublings of the smallest N; sums of what was measured with it
        self.reward_moments = torch.tensor([[0.0, 1.0, 1e-4]]).double().repeat(num_agents, 1)  # for normalize_rewards
        self.totals = torch.zeros(num_agents, len(LOSSES))
        self.rewards, self.explained = (torch.zeros(num_agents, dtype=torch.float64) for _ in range(2))
        self.reward_steps = torch.zeros(num_agents, dtype=torch.int64)
        self.minibatches = self.iterations = 0

    def add_points(self, moved, returns):
        """What metrics.outer_loop gets of this log point. moved: (rows, KL) of each agent; returns: of new games."""
        grad_norms = (self.totals[:, -1] / self.minibatches).tolist()
        for points, *point in zip(self.points, moved, grad_norms, returns):
            points.append((*point[0], *point[1:]))

    def reset(self):
        for sums in (self.totals, self.rewards, self.explained, self.reward_steps):
            sums.zero_()
        self.minibatches = self.iterations = 0


def main(args):
    """Trains the run of args, or those that `--num-seeds` or `--runs` ask for: at once what can share a process."""
    device = devices.set_up(args)
    torch.set_num_threads(1)  # the games alone use more: with several, PyTorch would wait for itself at this size
    for run in pack.packs(pack.lines(args, parse_args), device):
        train(run, device)


def train(run, device):
    """Trains the agents of one pack (pack.Pack)."""
    # ---- setup -------------------------------------------------------------------------------------------------------
    args, num_agents = run.args, len(run.seeds)
    gamma, gae_lambda = args.gamma.numpy(), args.gae_lambda.numpy()  # (S, 1), for the rollout's arrays
    observation, (num_actions, continuous) = worlds.observation(args.env_id), worlds.num_actions(args.env_id)
    agent = make_agent(args, run.seeds).to(device)
    parameters = one_row_an_agent(agent)
    optimizer = Adam(parameters)
    rngs = [torch.Generator(device).manual_seed(2**32 - 1 - seed) for seed in run.seeds]  # of all but the first weights
    prox = None if args.prox_com is None else devices.averaged(agent, args.prox_com)  # the proximal policies
    log = Log(num_agents)
    run.restore(agent=agent, optimizer=optimizer, rng=rngs, log=log, **({"prox": prox} if prox else {}))
    # games and networks act on the CPU, in NumPy's memory: at this size a call of a GPU costs more than it saves
    actor = agent if device.type == "cpu" else make_agent(args, run.seeds)
    loss_function = devices.compiled(minibatch_loss, args.compile)

    shape = None
    while not run.ended:
        if shape != run.schedule.shape(run.global_step, log.led[0]):
            # also at the start. Other seeds each time, or the first games would be played again
            shape = num_envs, num_steps = run.schedule.shape(run.global_step, log.led[0])
            batch_size, mine = num_envs * num_steps, devices.share(num_envs)  # this process's part of the num_envs
            seeds = [rundir.game_seeds(seed, "train", run.global_step, mine) for seed in run.seeds]
            envs = make_envs(args, seeds)
            envs.retired = run.diverged
            rollout = Rollout(*worlds.arrays((num_steps, num_agents, len(mine)), observation, num_actions, continuous))
            next_obs = envs.reset()[0].astype(observation.dtype)  # (S, N, width)
            next_done = np.zeros((num_agents, len(mine)), dtype=bool)
            discounted = np.zeros((num_agents, num_envs))  # of the games of all processes, for normalize_rewards
        learning_rate = args.learning_rate  # (S, 1)
        if args.anneal_lr:
            learning_rate = (1.0 - run.global_step / run.total_steps) * args.learning_rate

        # ---- rollout -------------------------------------------------------------------------------------------------
        if actor is not agent:
            actor.load_state_dict(agent.state_dict())
        noise = [
            draw_noise((num_steps, num_envs, num_actions), continuous, rng)[:, mine.start : mine.stop] for rng in rngs
        ]
        noise = np.stack(noise, 1)  # (T, S, N, A)
        old_logstd = agent.actor_logstd.detach().clone() if continuous else None
        std = old_logstd.exp().cpu().numpy() if continuous else None
        with torch.inference_mode():
            for t in range(num_steps):
                rollout.obs[t] = next_obs
                outputs, values, _ = actor(torch.from_numpy(rollout.obs[t]))
                rollout.outputs[t], rollout.values[t] = outputs.numpy(), values.numpy()
                rollout.actions[t] = sample(rollout.outputs[t], noise[t], std)
                next_obs, rollout.rewards[t], rollout.terminations[t], rollout.truncations[t], _ = envs.step(
                    rollout.actions[t]
                )
            next_value = actor(torch.from_numpy(next_obs.astype(observation.dtype)))[1].numpy()
        dones = rollout.terminations | rollout.truncations
        rollout.valid[0], rollout.valid[1:], next_done = ~next_done, ~dones[:-1], dones[-1]
        rollout.rewards[:] *= rollout.valid  # DeepMind Control pays in reset rows
        log.rewards += torch.from_numpy(rollout.rewards.swapaxes(0, 1).reshape(num_agents, -1).sum(-1, np.float64))
        log.reward_steps += torch.from_numpy(rollout.valid.sum((0, 2)))
        run.global_step += batch_size
        run.add_games(*envs.new_games())

        # ---- targets -------------------------------------------------------------------------------------------------
        terminations, truncations, valid = rollout.terminations, rollout.truncations, rollout.valid
        if not args.mask_resets:
            terminations, truncations, valid = dones, np.zeros_like(valid), np.ones_like(valid)
        rewards = rollout.rewards
        if args.norm_reward:  # each process normalises the rewards of all games, and trains on its own
            of_all = (np.concatenate(devices.gather(x), axis=2) for x in (rewards, dones, valid))
            moments = log.reward_moments.numpy()
            rewards, discounted, moments[:] = normalize_rewards(*of_all, discounted, moments, gamma)
            rewards = rewards[:, :, mine.start : mine.stop]
        # after a done, obs[t + 1] is still the true last observation: the new game shows one row later
        next_values = np.concatenate([rollout.values[1:], next_value[None]])
        advantages, returns = gae(
            rewards, rollout.values, terminations, truncations, next_values, valid, gamma, gae_lambda
        )
        batch = batch_of(rollout, returns, advantages, valid, old_logstd, device)

        # ---- update --------------------------------------------------------------------------------------------------
        outer = [{} for _ in run.seeds]
        if args.diagnostics and run.at_log_point(batch_size) and run.global_step >= log.noise_due:
            log.noise_due = run.global_step + run.schedule.noise_interval * batch_size
            outer = gradient_noise(agent, prox, args, batch, num_steps, run.global_step)
            if run.schedule.bounds and outer[0]:
                measured = (outer[0][f"grad_noise_scale/{part}"] for part in ("signal", "noise"))
                log.led = run.schedule.follow_noise(log.led, batch_size, *measured)
        for _epoch in range(args.update_epochs):
            inds = torch.stack([torch.randperm(len(batch.valid[0]), generator=rng, device=device) for rng in rngs])
            for mb in minibatches(batch, inds, batch_size // args.minibatch_size, args.norm_adv):
                losses, gradient = update(loss_function, agent, prox, optimizer, mb, args, learning_rate)
                log.totals += losses.cpu()
                log.minibatches += 1
                log.gradient_steps += 1
            if args.target_kl is not None and losses[0, LOSSES.index("approx_kl")] > args.target_kl:
                break
        log.explained += metrics.explained_variance(batch.values, batch.returns, batch.valid).cpu()
        log.iterations += 1
        # what is not finite reaches the parameters and stays: one look an iteration finds it before it is saved
        suspects = {"obs": batch.obs, "rewards": torch.from_numpy(rewards).transpose(0, 1), "outputs": batch.outputs}
        suspects.update(values=batch.values, advantages=batch.advantages)
        suspects.update(zip(LOSSES, log.totals.T[..., None]), parameters=parameters)
        run.stop_diverged(suspects)
        if run.ended:
            break
        for state in (parameters, optimizer.mean, optimizer.square, log.totals, log.explained):
            state[run.diverged] = 0.0  # they go on as agents that nobody looks at

        # ---- diagnostics ---------------------------------------------------------------------------------------------
        scalars, log_point = {}, run.at_log_point(batch_size)
        if log_point:
            inds, counted = metrics.probe_rows(batch.valid, args.probe_size, seed=run.global_step)
            probe = rows_of(batch, inds)._replace(valid=counted)
            of_probe, kl, (row_values, features) = diagnose(agent, probe, old_logstd)
        if log_point and args.diagnostics:
            native = dict(of_probe)
            if args.probe_size < batch_size:
                native, kl, _ = diagnose(agent, batch, old_logstd)
            native.update(metrics.gradient_statistics(gradient))  # of the last minibatch
            rows = torch.arange(devices.RANK, len(inds[0]), devices.NUM_RANKS, device=device)  # this process's share
            (mb,) = minibatches(probe, rows.expand(num_agents, -1), 1, args.norm_adv)
            gradient = gradient_of(minibatch_loss, agent, prox, mb, args)[0]
            devices.add_over_ranks([gradient])
            of_probe.update(metrics.gradient_statistics(gradient))
            scalars.update({f"diagnostics/{name}": value for name, value in native.items()})
            scalars.update({f"probe/{name}": value for name, value in of_probe.items()})
            moved = [devices.pooled(*pair) for pair in zip(batch.valid.sum(-1).tolist(), kl.tolist())]
            log.add_points(moved, run.mean_new_returns())
            for of_agent, points in zip(outer, log.points):
                of_agent.update(metrics.outer_loop(points, window=max(10, args.num_logs // 10)))
        if args.norm_obs:  # last: rollout, update and diagnostics have seen the same normalisation
            agent.add_obs(devices.sum_over_ranks(metrics.column_sums(batch.obs, batch.valid)))

        # ---- log -----------------------------------------------------------------------------------------------------
        if log_point:
            run.add_coverage(counted, obs=probe.obs, value=row_values, feature=features.half())
            scalars["charts/reward"] = log.rewards / log.reward_steps.clamp(min=1)
            if args.schedule:
                scalars["charts/num_envs"], scalars["charts/num_steps"] = shape
            scalars["charts/learning_rate"] = learning_rate.flatten()
            scalars["charts/gradient_steps"] = log.gradient_steps
            scalars.update({f"losses/{name}": sums / log.minibatches for name, sums in zip(LOSSES, log.totals.T)})
            scalars["losses/explained_variance"] = log.explained / log.iterations
            run.log(scalars, [{f"outer/{name}": value for name, value in of_agent.items()} for of_agent in outer])
            log.reset()
        run.end_iteration()

    # ---- close -------------------------------------------------------------------------------------------------------
    return run.finish(partial(play_games, agent, args, device))


if __name__ == "__main__":
    with rundir.full_disk_in_one_line():
        main(parse_args(sys.argv[1:]))
