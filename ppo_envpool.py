"""PPO on EnvPool's small worlds, whose observation is a vector or a small grid: results in seconds to minutes.

    python ppo_envpool.py --env-id CartPole-v1
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
6. For speed, with the same mathematics: actor and critic act as one network, their parameters are views of one tensor,
   actions are sampled by the Gumbel-max trick, an epoch's minibatches are cut from one shuffled copy.
7. A batch that the minibatches do not divide is refused; CleanRL silently adds a smaller minibatch.
8. A run is a directory that can be killed at any time and is resumed by the same command. Each game has its own seed.
9. Integers are one-hot. So are a grid's cells and direction; a small convolution sees it first. MiniGrid's mission, a
   sentence that most of its tasks do not need, is left out.
10. torchrun, `--bf16`, `--compile`, `--cuda-graphs`, `--hidden-sizes`, `--activation`, `--shared-encoder`,
    `--minibatch-size`, `--scaling`, `--prox-com`, `--schedule`, `--resume-from`, `--eval-episodes` are additions.
"""

import math
import os
import re
import sys
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Literal, Optional, Tuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

import metrics
from support import arguments, devices, recipe, rundir, worlds
from support.arguments import Count, Evaluation, Fraction, NonNegative, Positive, Seed, Steps, Threads

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
    bf16: bool = False  # computes the hidden layers in bfloat16; heads, losses, GAE and Adam stay in float32
    tf32: bool = True  # lets NVIDIA GPUs multiply float32 numbers in TensorFloat-32
    compile: bool = False  # compiles the network and the loss with torch.compile: a minute at the start, a C++ compiler
    cuda_graphs: bool = False  # replays policy and update as CUDA graphs, for NVIDIA; it has never run on a GPU yet


def parse_args(argv):
    """Returns checked Args; exits 2 with one line on bad input. Touches no file."""
    env_id = ([Args.env_id] + re.findall(r"--env[-_]id[= ](\S+)", " ".join(argv)))[-1]
    default = Args(**recipe.CONTINUOUS) if worlds.has_continuous_actions(env_id) else Args()
    args = arguments.parse(Args, argv, __doc__, default=default)
    args.num_threads = args.num_threads or torch.get_num_threads()
    return arguments.check(args, argv, row_bytes=100 + worlds.check(args), default=default)


# ---- environments ----------------------------------------------------------------------------------------------------
def make_envs(args, seeds):
    """The games (worlds.py), one for each of the seeds (integers below 2**31)."""
    return worlds.make(args.env_id, seeds, args.num_threads)


# ---- networks --------------------------------------------------------------------------------------------------------
def layer_init(layer, std=2**0.5, bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


class Stack(nn.Module):
    """A linear layer for each of E encoders, side by side in one tensor: (E, B, inputs) -> (E, B, outputs)."""

    def __init__(self, num_encoders, num_inputs, num_outputs):
        super().__init__()
        layers = [layer_init(nn.Linear(num_inputs, num_outputs)) for _ in range(num_encoders)]
        self.weight = nn.Parameter(torch.stack([layer.weight.detach().t() for layer in layers]))  # (E, inputs, outputs)
        self.bias = nn.Parameter(torch.zeros(num_encoders, 1, num_outputs))

    def forward(self, x):
        return torch.baddbmm(self.bias.to(x.dtype), x, self.weight.to(x.dtype))


class Agent(nn.Module):
    """Actor and critic, each with an encoder of its own (E = 2) or with a shared one (E = 1).

    observation: what worlds.observation says. With `continuous` there are num_actions real numbers in an action.
    """

    def __init__(self, observation, num_actions, continuous, args):
        super().__init__()
        self.observation, self.norm_obs, self.num_encoders = observation, args.norm_obs, 1 if args.shared_encoder else 2
        self.dtype = torch.bfloat16 if args.bf16 else torch.float32  # of the hidden layers
        self.activation = {"tanh": torch.tanh, "elu": F.elu, "relu": F.relu}[args.activation]
        num_inputs = observation.values or observation.width
        if observation.kind == "grid":
            layers = [layer_init(nn.Conv2d(GRID_VALUES, 16, 3)) for _ in range(self.num_encoders)]
            self.convolution = nn.Parameter(torch.cat([layer.weight.detach() for layer in layers]))
            num_inputs = 16 * 3 * 3 + 4
        sizes = (num_inputs, *args.hidden_sizes)
        self.network = nn.ModuleList(Stack(self.num_encoders, *pair) for pair in zip(sizes, sizes[1:]))
        self.actor = layer_init(nn.Linear(sizes[-1], num_actions), std=0.01)
        self.critic = layer_init(nn.Linear(sizes[-1], 1), std=1)
        self.actor_logstd = nn.Parameter(torch.zeros(1, num_actions)) if continuous else None
        # of --norm-obs: count, sum and sum of squares of each column; at first those of one row with mean 0, variance 1
        sums = torch.tensor([[1.0], [0.0], [1.0]]).double().repeat(1, observation.width)
        for name, rows in (("obs_sums", sums), ("obs_mean", sums[1].float()), ("obs_std", sums[2].float())):
            self.register_buffer(name, rows, persistent=args.norm_obs)

    @torch.no_grad()
    def add_obs(self, sums):
        """Adds the columns' (count, sum, sum of squares), (3, D) float64, to those that normalise the observations."""
        self.obs_sums += sums
        mean, square = self.obs_sums[1:] / self.obs_sums[0]
        self.obs_mean.copy_(mean)
        self.obs_std.copy_(((square - mean.square()).clamp(min=0) + 1e-8).sqrt())

    def inputs(self, obs):
        """What the hidden layers get, (B, inputs), of a grid (E, B, inputs), and a list of the layers before them."""
        if self.observation.kind == "grid":
            values, starts = obs[:, 1:].long().view(len(obs), -1, 3), torch.tensor(GRID_STARTS, device=obs.device)
            cells = torch.zeros(len(obs), 7 * 7, GRID_VALUES, dtype=self.dtype, device=obs.device)
            cells = cells.scatter_(2, values + starts, 1.0).view(-1, 7, 7, GRID_VALUES).permute(0, 3, 1, 2)
            x = self.activation(F.conv2d(cells, self.convolution.to(self.dtype), stride=2))
            x = x.unflatten(1, (self.num_encoders, 16)).transpose(0, 1)  # (E, B, 16, 3, 3)
            direction = F.one_hot(obs[:, 0].long(), 4).to(self.dtype).expand(self.num_encoders, -1, -1)
            return torch.cat([x.flatten(2), direction], -1), [x]
        if self.observation.kind == "index":
            obs = F.one_hot(obs[:, 0].long(), self.observation.values)
        elif self.norm_obs:
            obs = ((obs - self.obs_mean) / self.obs_std).clamp(-10.0, 10.0)
        return obs.to(self.dtype), []

    def forward(self, obs):
        """Maps obs (B, width) to logits, or means (B, A), to value (B,) and to the layers.

        Each layer is (E, B, units, ...), after its activation: of the actor's encoder and of the critic's. The last,
        in float32, is the representation.
        """
        x, layers = self.inputs(obs)
        x = x.expand(self.num_encoders, *x.shape[-2:])
        for stack in self.network:
            x = self.activation(stack(x))
            layers.append(x)
        layers[-1] = x = x.float()
        return self.actor(x[0]), self.critic(x[-1]).squeeze(-1), layers

    @torch.no_grad()
    def merge(self):
        """Makes all encoders and heads one network, `merged`, with their present weights."""
        same_inputs = self.observation.kind != "grid"
        self.merged = devices.merged_layers(self.network, (self.actor, self.critic), self.dtype, same_inputs)

    def act(self, obs):
        """Maps obs (N, width) to logits, or means, and the value: (N, A + 1), with the weights as they were merged."""
        x, _ = self.inputs(obs)
        x = torch.cat([*x], -1) if x.dim() == 3 else x
        for bias, weight in self.merged[:-1]:
            x = self.activation(torch.addmm(bias, x, weight))
        return torch.addmm(self.merged[-1][0], x.float(), self.merged[-1][1])


# ---- targets and loss ------------------------------------------------------------------------------------------------
def normalize_rewards(rewards, ends, valid, discounted, moments, gamma):
    """gym's NormalizeReward: divides by the standard deviation of all discounted returns so far, clips to [-10, 10].

    rewards (T, N) float32, ends and valid (T, N) bool; `discounted` (N,) is what the episodes under way have earned and
    `moments` the (mean, variance, count) of all such sums, valid rows only. Returns the normalised rewards (T, N) and
    the new values of these two.
    """
    normalized = np.zeros_like(rewards)
    for t in range(len(rewards)):
        discounted = discounted * gamma + rewards[t]
        moments = metrics.merge_moments(moments, discounted[valid[t]])
        normalized[t] = (rewards[t] / np.sqrt(moments[1] + 1e-8)).clip(-10, 10)
        discounted = np.where(ends[t], 0.0, discounted)
    return normalized, discounted, tuple(map(float, moments))


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

    advantages (K, M) float32, valid (K, M) bool: K minibatches. Returns the normalised advantages, 0 in other rows, and
    the weight of each row in a mean over its minibatch: 1 / (number of valid rows), 0 in other rows. Both (K, M).
    """
    total, count = devices.sum_over_ranks(torch.stack([torch.where(valid, advantages, 0.0).sum(1), valid.sum(1)]))
    weights = valid / count.clamp(min=1)[:, None]
    centred = torch.where(valid, advantages - (total / count.clamp(min=1))[:, None], 0.0)
    squares = devices.sum_over_ranks(centred.square().sum(1))
    std = (squares / (count - 1).clamp(min=1)).sqrt()
    return centred / (std[:, None] + 1e-8), weights


def draw_noise(shape, continuous, generator):
    """What makes an action of the policy's outputs (`sample`): Gumbel or Gaussian noise, float32 of this shape."""
    noise = torch.empty(shape, device=generator.device)
    noise = noise.normal_(generator=generator) if continuous else noise.exponential_(generator=generator).log_().neg_()
    return noise.cpu().numpy()


def sample(outputs, noise, std):
    """Samples actions: (N,) given logits (N, A), argmax(logits + noise), or (N, A) given means, mean + std * noise."""
    return (outputs + noise).argmax(-1) if std is None else outputs + std * noise


def distribution(outputs, logstd, actions):
    """Log-probabilities of actions, and the entropy of the policy in each state: both (B,).

    actions: (B,) int64 under the logits `outputs` (B, A), or (B, A) under the means `outputs` and logstd (1, A).
    """
    if logstd is None:
        logprobs = F.log_softmax(outputs, dim=-1)
        return logprobs.gather(-1, actions[:, None]).squeeze(-1), -(logprobs.exp() * logprobs).sum(-1)
    logprobs = -(0.5 * ((actions - outputs) / logstd.exp()).square() + logstd + 0.5 * math.log(2 * math.pi)).sum(-1)
    return logprobs, (logstd + 0.5 * math.log(2 * math.pi * math.e)).sum(-1).expand_as(logprobs)


def ewma_surrogate(logratio, prox_logratio, advantages, clip_coef):
    """PPO-EWMA's policy loss of each row, clipped around the proximal policy (Hilton et al. 2022, arXiv 2110.00641).

    max(-A new / old, -A clip(new / prox, 1 - eps, 1 + eps) prox / old), with old at least new / 100, which caps the
    importance ratio. logratio, prox_logratio: log-probabilities of the actions taken, new and prox minus old; all (B,).
    """
    cap = torch.clamp(math.log(100.0) - logratio.detach(), max=0.0)
    low, high = math.log(max(1.0 - clip_coef, 1e-12)), math.log(1.0 + clip_coef)
    clipped = torch.clamp(logratio - prox_logratio, low, high) + prox_logratio
    return torch.max(-advantages * (logratio + cap).exp(), -advantages * (clipped + cap).exp())


def ppo_loss(logratio, entropy, newvalue, values, returns, advantages, weights, args, prox_logratio=None):
    """The clipped surrogate loss (Schulman et al. 2017, eq. 7 and 9), a mean over the valid rows of a minibatch.

    logratio: log-probabilities of the actions taken, new minus old; entropy, newvalue: of the network in training;
    values, returns, advantages: of the rollout; weights: of the rows in the mean (`normalize_advantages`); args: the
    coefficients; prox_logratio: the proximal policy's log-probabilities minus old, for PPO-EWMA. All (B,) float32. With
    several processes each gets its share of the mean: shares, and their gradients, add up to the whole. Returns the
    loss and the means of LOSSES but the last, without gradient; old_approx_kl and approx_kl are the estimators k1 and
    k3 of KL(old || new) (joschu.net/blog/kl-approx.html).
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
    loss = torch.dot(pg_loss - args.ent_coef * entropy + args.vf_coef * v_loss, weights)
    with torch.no_grad():
        clipped = ((ratio - 1.0).abs() > args.clip_coef).float()
        losses = torch.stack([pg_loss, v_loss, entropy, -logratio, (ratio - 1) - logratio, clipped]).mv(weights)
    return loss, losses


# ---- diagnostics -----------------------------------------------------------------------------------------------------
@torch.no_grad()
def diagnose(agent, b_obs, b_outputs, old_logstd, b_actions, inds, workers):
    """Measures the updated network on the rows `inds` of the batch.

    b_outputs, old_logstd: of the policy that acted. Returns {name: value} (definitions: metrics.py) and KL(old || new).
    Under Tanh, a unit with a small standard deviation is dormant: it saturates far from zero.
    """

    def forward(rows):
        outputs, _, layers = agent(b_obs.index_select(0, rows))
        return outputs, [[layer[i] for layer in layers] for i in range(agent.num_encoders)]

    outputs, values = metrics.diagnose_network(forward, inds, 512, agent.activation is torch.tanh, workers.map)
    if agent.actor_logstd is None:
        policy, kl = metrics.policy_diagnostics(b_outputs[inds], outputs, b_actions[inds])
    else:
        policy, kl = metrics.gaussian_policy_diagnostics(
            b_outputs[inds], old_logstd, outputs, agent.actor_logstd, b_actions[inds]
        )
    return {**values, **policy, **metrics.weight_norms(agent)}, kl


@torch.no_grad()
def play_games(agent, args, device, seeds, games, bar, greedy=False):
    """Plays one whole game in a fresh environment for each of `games`, indices into `seeds`.

    Actions are sampled as in training, or the most likely ones if `greedy`. But for rounding, a game depends neither on
    the others of `games` nor on their number. Returns the raw returns, a list of floats. `bar` shows the progress.
    """
    envs = make_envs(args, [seeds[game] for game in games])
    generator = torch.Generator(device).manual_seed(seeds[0])
    std = None if agent.actor_logstd is None else agent.actor_logstd.exp().cpu().numpy()

    def act(obs):
        outputs = agent(devices.to_device(obs.astype(agent.observation.dtype), device))[0].cpu().numpy()
        noise = draw_noise((len(seeds), outputs.shape[-1]), std is not None, generator)[games.start : games.stop]
        return sample(outputs, 0.0 if greedy else noise, std)

    return envs.play(act, bar)


def main(args):
    # ---- setup -------------------------------------------------------------------------------------------------------
    device = devices.set_up(args)
    run = rundir.Run(args, device)
    workers = devices.Workers(args, device)
    torch.manual_seed(args.seed)  # the same network in every process
    rng = torch.Generator(device).manual_seed(2**32 - 1 - args.seed)  # of all that is drawn after the weights
    observation, (num_actions, continuous) = worlds.observation(args.env_id), worlds.num_actions(args.env_id)
    agent = Agent(observation, num_actions, continuous, args).to(device)
    parameters = list(agent.parameters())
    flat = nn.Parameter(nn.utils.parameters_to_vector(parameters).detach())
    nn.utils.vector_to_parameters(flat, parameters)  # views of one tensor: Adam and the clipping make one call each
    lr = torch.tensor(args.learning_rate, device=device) if args.cuda_graphs else args.learning_rate
    optimizer = optim.Adam([flat], lr=lr, eps=1e-5, fused=True, capturable=args.cuda_graphs)
    # all but the first since the last log point
    state = SimpleNamespace(gradient_steps=0, totals=0.0, minibatches=0, explained=[], rewards=0.0, reward_steps=0)
    state.reward_moments = (0.0, 1.0, 1e-4)  # mean, variance, count, for normalize_rewards
    state.noise_due, state.points = 0, []  # of `outer/`: the step of the next noise; what metrics.outer_loop gets
    state.led = (0, 0.0, 0.0)  # of --schedule noise: doublings of the smallest N; sums of what was measured with this N
    prox = None if args.prox_com is None else devices.averaged(agent, args.prox_com)  # the proximal policy
    run.restore(agent=agent, optimizer=optimizer, rng=rng, state=state, **({"prox": prox} if prox else {}))

    # games and network act on the CPU, in NumPy's memory: at this size each call of a GPU would cost more than it saves
    actor = agent if device.type == "cpu" else Agent(observation, num_actions, continuous, args)
    act = devices.compiled(actor.act, args.compile)

    def minibatches(batch, inds, number):
        """The rows `inds` of each tensor of the batch, advantages normalised, in `number` minibatches."""
        *rows, advantages, valid = (x.index_select(0, inds) for x in batch)
        normalized, weights = normalize_advantages(advantages.view(number, -1), valid.view(number, -1))
        rows += [normalized.flatten() if args.norm_adv else advantages, weights.flatten()]
        return zip(*(x.chunk(number) for x in rows))

    def minibatch_loss(mb_obs, mb_actions, mb_logprobs, *mb, args=args):
        newoutputs, newvalue, _ = agent(mb_obs)
        newlogprob, entropy = distribution(newoutputs, agent.actor_logstd, mb_actions)
        proximal = None
        if prox is not None:
            with torch.no_grad():
                proximal = distribution(prox(mb_obs)[0], prox.module.actor_logstd, mb_actions)[0] - mb_logprobs
        return ppo_loss(newlogprob - mb_logprobs, entropy, newvalue, *mb, args, proximal)

    def gradient(loss_function, *mb):
        """The gradient, flat, and the losses of this process's rows of a minibatch: their share of the whole."""
        loss, losses = loss_function(*mb)
        return torch.cat([x.flatten() for x in torch.autograd.grad(loss, parameters)]), losses

    def update(*mb):
        """One step of the optimiser on a minibatch. Returns LOSSES, the gradient's norm as before the clipping."""
        flat.grad, losses = gradient(compiled_loss, *mb)
        devices.add_over_ranks([flat.grad, losses])
        grad_norm = flat.grad.norm()  # clipped as clip_grad_norm_ does, in a third of its time
        flat.grad *= (args.max_grad_norm / (grad_norm + 1e-6)).clamp(max=1.0)
        optimizer.step()
        if prox is not None:
            prox.update_parameters(agent)
        return torch.cat([losses, grad_norm[None]])

    def group_gradient(batch, inds):
        """The gradient (P,) of the policy's mean loss over the rows `inds` of a batch, added minibatch by minibatch."""
        policy_loss = partial(minibatch_loss, args=replace(args, vf_coef=0.0))  # the values' would hide the policy's
        *columns, valid = batch
        columns.append(valid / valid[inds].sum().clamp(min=1))  # the weights of the mean
        total = torch.zeros_like(flat)
        for mb_inds in inds.split(args.minibatch_size):
            total += gradient(policy_loss, *(x.index_select(0, mb_inds) for x in columns))[0]
        return total

    compiled_loss = devices.compiled(minibatch_loss, args.compile)
    update = devices.graphed(update, args.cuda_graphs)

    shape = None
    while not run.ended:
        if shape != run.schedule.shape(run.global_step, state.led[0]):
            # also at the start. Other seeds each time, or the first games would be played again
            shape = num_envs, num_steps = run.schedule.shape(run.global_step, state.led[0])
            batch_size, games = num_envs * num_steps, devices.share(num_envs)  # its own games of the num_envs
            envs = make_envs(args, rundir.game_seeds(args.seed, "train", run.global_step, games))
            # rewards[t], terminations[t] and truncations[t] follow actions[t]; valid[t] is of the whole row t
            obs, actions, outputs, values, rewards, terminations, truncations, valid = worlds.arrays(
                (num_steps, len(games)), observation, num_actions, continuous
            )
            next_obs = envs.reset()[0].astype(observation.dtype)  # (N, width)
            next_done = np.zeros(len(games), dtype=bool)
            discounted = np.zeros(num_envs)  # of the games of all processes, for normalize_rewards
        if args.anneal_lr:
            new_lr = (1.0 - run.global_step / run.total_steps) * args.learning_rate
            optimizer.param_groups[0]["lr"] = lr.fill_(new_lr) if args.cuda_graphs else new_lr

        # ---- rollout -------------------------------------------------------------------------------------------------
        if actor is not agent:
            actor.load_state_dict(agent.state_dict())
        noise = draw_noise((num_steps, num_envs, num_actions), continuous, rng)[:, games.start : games.stop]
        old_logstd = agent.actor_logstd.detach().clone() if continuous else None
        std = old_logstd.exp().cpu().numpy() if continuous else None
        with torch.inference_mode():
            actor.merge()
            for step in range(num_steps):
                obs[step] = next_obs
                output = act(torch.from_numpy(obs[step])).numpy()
                outputs[step], values[step] = output[:, :-1], output[:, -1]
                actions[step] = sample(outputs[step], noise[step], std)
                next_obs, rewards[step], terminations[step], truncations[step], _ = envs.step(actions[step])
            next_value = act(torch.from_numpy(next_obs.astype(observation.dtype))).numpy()[:, -1]
        dones = terminations | truncations
        valid[0], valid[1:], next_done = ~next_done, ~dones[:-1], dones[-1]
        rewards *= valid  # DeepMind Control pays in reset rows
        state.rewards += float(rewards.sum())
        state.reward_steps += int(valid.sum())
        run.global_step += batch_size
        run.add_games(*envs.new_games())

        # ---- targets -------------------------------------------------------------------------------------------------
        if not args.mask_resets:
            terminations, truncations, valid = terminations | truncations, np.zeros_like(valid), np.ones_like(valid)
        t_rewards = rewards
        if args.norm_reward:  # each process normalises the rewards of all games, (T, all N), and trains on its own
            of_all = (np.concatenate(devices.gather(x), axis=1) for x in (rewards, dones, valid))
            t_rewards, discounted, state.reward_moments = normalize_rewards(
                *of_all, discounted, state.reward_moments, args.gamma
            )
            t_rewards = t_rewards[:, games.start : games.stop]
        # after a done, obs[t + 1] is still the true last observation: the new game shows one row later
        next_values = np.concatenate([values[1:], next_value[None]])
        advantages, returns = gae(
            t_rewards, values, terminations, truncations, next_values, valid, args.gamma, args.gae_lambda
        )
        columns = (obs, outputs, actions, values, returns, advantages, valid)
        flattened = (devices.to_device(x.reshape(-1, *x.shape[2:]), device) for x in columns)
        b_obs, b_outputs, b_actions, b_values, b_returns, b_advantages, b_valid = flattened
        with torch.no_grad():
            b_logprobs, _ = distribution(b_outputs, old_logstd, b_actions)
        batch = [b_obs, b_actions, b_logprobs, b_values, b_returns, b_advantages, b_valid]

        # ---- update --------------------------------------------------------------------------------------------------
        noise_scales = {}
        if args.diagnostics and run.at_log_point(batch_size) and run.global_step >= state.noise_due:
            state.noise_due = run.global_step + run.schedule.noise_interval * batch_size
            normalized = (
                normalize_advantages(b_advantages[None], b_valid[None])[0][0] if args.norm_adv else b_advantages
            )
            of_rows = partial(group_gradient, [*batch[:-2], normalized, b_valid])
            noise_scales = metrics.gradient_noise_scales(
                of_rows, b_valid, num_steps, run.global_step, devices.NUM_RANKS, devices.add_over_ranks
            )
            if run.schedule.bounds and noise_scales:
                measured = (noise_scales[f"grad_noise_scale/{part}"] for part in ("signal", "noise"))
                state.led = run.schedule.follow_noise(state.led, batch_size, *measured)
        for _epoch in range(args.update_epochs):
            inds = torch.randperm(len(b_obs), generator=rng, device=device)
            for mb in minibatches(batch, inds, batch_size // args.minibatch_size):
                losses = update(*mb)
                state.totals = state.totals + losses
                state.minibatches += 1
                state.gradient_steps += 1
            if args.target_kl is not None and losses[LOSSES.index("approx_kl")] > args.target_kl:
                break
        state.explained.append(metrics.explained_variance(b_values[b_valid], b_returns[b_valid]))
        # what is not finite reaches the parameters and stays: one look an iteration finds it before it is saved
        suspects = {"obs": b_obs, "rewards": t_rewards, "outputs": outputs, "values": values, "advantages": advantages}
        suspects.update(zip(LOSSES, state.totals), parameters=flat)
        if not run.all_finite(suspects):
            break

        # ---- diagnostics ---------------------------------------------------------------------------------------------
        scalars = {}
        log_point = run.at_log_point(batch_size)
        if log_point:
            valid_inds = b_valid.nonzero().squeeze(-1)
            probe_inds = valid_inds[metrics.stratified_rows(len(valid_inds), args.probe_size, seed=run.global_step)]
        if log_point and args.diagnostics:
            behavior = (b_outputs, old_logstd, b_actions)
            native, kl = diagnose(agent, b_obs, *behavior, valid_inds, workers)
            same = len(probe_inds) == len(valid_inds)
            probe = native if same else diagnose(agent, b_obs, *behavior, probe_inds, workers)[0]
            # clipping multiplied the last minibatch's gradient by one factor: take it out again
            unclip = max(1.0, (losses[-1].item() + 1e-6) / args.max_grad_norm)
            native = {**native, **metrics.gradient_statistics([flat.grad * unclip])}
            (mb,) = minibatches(batch, probe_inds[devices.RANK :: devices.NUM_RANKS], 1)
            gradients = gradient(minibatch_loss, *mb)[:1]
            devices.add_over_ranks(gradients)
            probe = {**probe, **metrics.gradient_statistics(gradients)}
            scalars.update({f"diagnostics/{name}": value for name, value in native.items()})
            scalars.update({f"probe/{name}": value for name, value in probe.items()})
            grad_norm = (state.totals[-1] / state.minibatches).item()
            state.points.append((*devices.pooled(len(valid_inds), kl), grad_norm, run.mean_new_return()))
            outer = {**noise_scales, **metrics.outer_loop(state.points, window=max(10, args.num_logs // 10))}
            scalars.update({f"outer/{name}": value for name, value in outer.items()})
        if args.norm_obs:  # last: rollout, update and diagnostics have seen the same normalisation
            agent.add_obs(devices.sum_over_ranks(metrics.column_sums(b_obs[b_valid])))

        # ---- log -----------------------------------------------------------------------------------------------------
        if log_point:
            inds = probe_inds[metrics.stratified_rows(len(probe_inds), run.coverage_quota(), seed=run.global_step)]
            with torch.no_grad():
                _, row_values, layers = agent(b_obs.index_select(0, inds))
            run.add_coverage(
                obs=b_obs[inds].cpu().numpy(),
                feature=layers[-1][0].cpu().numpy().astype(np.float16),
                value=row_values.cpu().numpy(),
            )
            scalars.update(run.charts())
            scalars["charts/reward"] = devices.ratio_of_sums(state.rewards, state.reward_steps)
            if args.schedule:
                scalars["charts/num_envs"], scalars["charts/num_steps"] = shape
            scalars["charts/learning_rate"] = float(optimizer.param_groups[0]["lr"])
            scalars["charts/gradient_steps"] = state.gradient_steps
            means = (state.totals / state.minibatches).tolist()
            scalars.update({f"losses/{name}": value for name, value in zip(LOSSES, means)})
            scalars["losses/explained_variance"] = float(np.mean(state.explained))
            run.log(scalars)
            state.totals, state.minibatches, state.explained = 0.0, 0, []
            state.rewards, state.reward_steps = 0.0, 0
        run.end_iteration()

    # ---- close -------------------------------------------------------------------------------------------------------
    seeds = run.final_seeds()
    run.close(rundir.play(workers, partial(play_games, agent, args, device), seeds, "final games"))


if __name__ == "__main__":
    with rundir.full_disk_in_one_line():
        main(parse_args(sys.argv[1:]))
