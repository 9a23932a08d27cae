"""PPO on thousands of simulated robots: NVIDIA's Isaac Gym, or mjlab (MuJoCo Warp), which runs anywhere.

    python ppo_isaacgym.py --env-id Mjlab-Cartpole-Balance --num-envs 256      # pip install -r requirements-mjlab.txt
    torchrun --nproc-per-node 8 ppo_isaacgym.py --env-id Ant --num-envs 262144    # Isaac Gym, each GPU its share

Papers: Schulman et al. 2017 (PPO); Mayor et al. 2025, arXiv 2506.03404 (P1: the diagnostics); Beukman et al. 2026,
arXiv 2603.06009 (P3: `outer/`). Reference: CleanRL's ppo_continuous_action_isaacgym.py @fe8d8a0, with the same
algorithm, defaults and names. Departures, each with its reason:

1. Isaac Gym resets one step late: the step after `done`, and the very first, has a meaningless action and reward.
   CleanRL trains on that row; here `valid` keeps it out of losses, advantage statistics and diagnostics
   (`--no-mask-resets` restores CleanRL's). mjlab has no such row.
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
    the step, not before it. results/mjlab_cartpole has both programs' returns.
11. Threads compute pieces of each minibatch, whose gradients are added: beside a busy program PyTorch's own threads
    wait for each other. Their number does not change the result.
12. torchrun, `--bf16`, `--orthogonal-init`, `--hidden-sizes`, `--activation`, `--shared-encoder`,
    `--minibatch-size`, `--scaling`, `--prox-com` and `--resume-from` are additions.
"""

import math
import os
import re
import sys
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Literal, Optional, Tuple

from support import simulators  # isort: skip - before torch, as Isaac Gym demands
import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim

import metrics
from support import arguments, devices, recipe, rundir
from support.arguments import Count, Evaluation, Fraction, NonNegative, Positive, Seed, Steps, Threads

MIN_LEARNING_RATE, MAX_LEARNING_RATE = 1e-5, 1e-2  # of --desired-kl, as in rsl_rl
KL_EPSILON = 1e-9  # a smaller KL is rounding: the network is still the one that acted


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
    capture_video: bool = False  # films 100 steps at the end (scripts/evaluate.py), on mjlab: `episode.mp4`
    run_name: Optional[str] = None  # the directory below runs-dir; default {env_id}__{exp_name}__{seed}__{unix time}
    runs_dir: str = "runs"  # the directory that holds the run directories
    resume_from: Optional[str] = None  # a run directory: begins with its newest checkpoint and the same network
    num_logs: Count = 1000  # the number of points in every curve (at most one an iteration)
    diagnostics: bool = True  # logs `diagnostics/`, `probe/` and `outer/` at those points
    probe_size: Count = 1024  # rows of the batch that `probe/` looks at, so that its numbers compare across batch sizes
    checkpoint_minutes: NonNegative = 10.0  # minutes between checkpoints; 0 writes one after every iteration
    eval_episodes: Evaluation = 0  # whole games that the final network plays when training ends: `final_return`
    num_threads: Threads = 0  # CPU threads of the update; 0 takes every core, or OMP_NUM_THREADS
    # Algorithm specific arguments
    env_id: str = "Ant"  # the id of the task: `Mjlab-…` runs on mjlab, every other on Isaac Gym
    total_timesteps: Steps = 30000000  # environment steps of the whole run, over all environments
    learning_rate: NonNegative = 0.0026  # the learning rate of Adam
    num_envs: Count = 4096  # the number of parallel environments, over all processes: N_envs
    num_steps: Count = 16  # the number of steps in each environment per rollout: N_RO
    anneal_lr: bool = False  # anneals the learning rate linearly to 0
    gamma: Fraction = 0.99  # the discount factor
    gae_lambda: Fraction = 0.95  # lambda of the generalised advantage estimation
    num_minibatches: Count = 2  # minibatches per epoch; the batch is num_envs * num_steps
    minibatch_size: Optional[Count] = None  # rows per minibatch, in place of num-minibatches (P3's recipe)
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
    mask_resets: bool = True  # trains on no reset row and bootstraps at time limits (departures 1 and 2)
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
    return arguments.check(args, argv, default=default)


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
    for num_inputs, num_outputs in zip(sizes[:-1], sizes[1:]):
        layer, last = nn.Linear(num_inputs, num_outputs), len(layers) == 2 * len(sizes) - 4
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
                if not isinstance(layer, nn.Linear):
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


# ---- targets and loss ------------------------------------------------------------------------------------------------
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


def gaussian_logprobs(mean, logstd, actions):
    """The log-density (B,) of actions (B, A) under independent Gaussians with mean (B, A) and logstd (1, A)."""
    return -(0.5 * ((actions - mean) / logstd.exp()).square() + logstd + 0.5 * math.log(2 * math.pi)).sum(-1)


def gaussian_kl(old_mean, old_logstd, mean, logstd):
    """KL(old || new) (B,) of independent Gaussians with means (B, A) and logstds (1, A), in closed form."""
    variance_ratio = (2 * (old_logstd - logstd)).exp()  # exactly 1 where nothing has changed
    distance = ((old_mean - mean) / logstd.exp()).square()
    return (logstd - old_logstd + 0.5 * (variance_ratio + distance - 1)).sum(-1)


def adapted_learning_rate(learning_rate, kl, desired_kl):
    """rsl_rl's rule: the learning rate of a step that finds the policy at the distance `kl` from the one that acted.

    It stays where the KL is below KL_EPSILON: in an iteration's first minibatch the two policies are the same.
    """
    if kl > 2.0 * desired_kl:
        return max(learning_rate / 1.5, MIN_LEARNING_RATE)
    if KL_EPSILON < kl < 0.5 * desired_kl:
        return min(learning_rate * 1.5, MAX_LEARNING_RATE)
    return learning_rate


def ewma_surrogate(logratio, prox_logratio, advantages, clip_coef):
    """PPO-EWMA's policy loss of each row, clipped around the proximal policy (Hilton et al. 2022, arXiv 2110.00641).

    max(-A new / old, -A clip(new / prox, 1 - eps, 1 + eps) prox / old), with old at least new / 100, which caps the
    importance ratio. logratio, prox_logratio: log-probabilities of the actions taken, new and prox minus old; all (B,).
    """
    cap = torch.clamp(math.log(100.0) - logratio.detach(), max=0.0)
    low, high = math.log(max(1.0 - clip_coef, 1e-12)), math.log(1.0 + clip_coef)
    clipped = torch.clamp(logratio - prox_logratio, low, high) + prox_logratio
    return torch.max(-advantages * (logratio + cap).exp(), -advantages * (clipped + cap).exp())


def ppo_loss(
    mean,
    logstd,
    newvalue,
    actions,
    logprobs,
    values,
    returns,
    advantages,
    valid,
    count,
    clip_coef,
    ent_coef,
    vf_coef,
    clip_vloss=True,
    prox_logprobs=None,
):
    """The clipped surrogate loss (Schulman et al. 2017, eq. 7 and 9), a mean over the valid rows of a minibatch.

    mean (B, A), logstd (1, A), newvalue (B,): of the network in training; actions (B, A), logprobs, values, returns,
    advantages (B,) float32, valid (B,) bool: of the rollout; count: as for `masked_mean`. With prox_logprobs (B,),
    those of the proximal policy, the policy loss is PPO-EWMA's. Returns the loss and a dict of 0-d tensors without
    gradient; old_approx_kl and approx_kl are the estimators k1 and k3 of KL(old || new)
    (joschu.net/blog/kl-approx.html).
    """
    logratio = gaussian_logprobs(mean, logstd, actions) - logprobs
    ratio = logratio.exp()
    pg_loss1 = -advantages * ratio
    pg_loss2 = -advantages * torch.clamp(ratio, 1 - clip_coef, 1 + clip_coef)
    pg_loss = torch.max(pg_loss1, pg_loss2)
    if prox_logprobs is not None:
        pg_loss = ewma_surrogate(logratio, prox_logprobs - logprobs, advantages, clip_coef)
    pg_loss = masked_mean(pg_loss, valid, count)
    v_loss = (newvalue - returns).square()
    if clip_vloss:
        v_clipped = values + torch.clamp(newvalue - values, -clip_coef, clip_coef)
        v_loss = torch.max(v_loss, (v_clipped - returns).square())
    v_loss = 0.5 * masked_mean(v_loss, valid, count)
    entropy = (logstd + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)  # (1,): the same in every state
    entropy = masked_mean(entropy.expand_as(newvalue), valid, count)
    loss = pg_loss - ent_coef * entropy + vf_coef * v_loss
    with torch.no_grad():
        losses = {
            "policy_loss": pg_loss.detach(),
            "value_loss": v_loss.detach(),
            "entropy": entropy.detach(),
            "old_approx_kl": masked_mean(-logratio, valid, count),
            "approx_kl": masked_mean((ratio - 1) - logratio, valid, count),
            "clipfrac": masked_mean(((ratio - 1.0).abs() > clip_coef).float(), valid, count),
        }
    return loss, losses


# ---- diagnostics -----------------------------------------------------------------------------------------------------
@torch.no_grad()
def diagnose(agent, b_obs, b_old_means, old_logstd, b_actions, inds, workers):
    """Measures the updated network on the rows `inds` of the batch.

    b_old_means, old_logstd: of the policy that acted. Returns {name: value} (definitions: metrics.py) and
    KL(old || new). A unit with a small standard deviation is dormant here: Tanh saturates far from zero.
    """
    mean, values = metrics.diagnose_network(
        lambda rows: agent(b_obs.index_select(0, rows))[::2], inds, deviation=True, map=workers.map
    )
    policy, kl = metrics.gaussian_policy_diagnostics(
        b_old_means[inds], old_logstd, mean, agent.actor_logstd, b_actions[inds]
    )
    return {**values, **policy, **metrics.weight_norms(agent)}, kl


@torch.no_grad()
def play_games(agent, args, device, seed, num_games, greedy=False):
    """Plays one whole game in each of `num_games` fresh environments of a simulator of their own.

    Actions are sampled as in training, or the mean if `greedy`; observations are normalised as they were last. Returns
    the raw returns, a list of floats.
    """
    if num_games == 0:  # more processes than games
        return []
    torch.manual_seed(seed)  # the simulators draw from torch's own generator
    generator = torch.Generator(device).manual_seed(seed)
    envs = make_envs(args, num_games, seed, device)
    obs, _ = envs.reset(args.total_timesteps // args.num_envs)
    returns = torch.zeros(num_games, device=device)
    playing = torch.ones(num_games, dtype=torch.bool, device=device)
    bar = rundir.progress_bar(num_games, "game", f"{args.env_id}: final games")
    while playing.any():
        mean, _, _ = agent(obs)
        noise = torch.empty_like(mean).normal_(generator=generator)
        obs, reward, terminated, truncated, *_ = envs.step(mean if greedy else mean + agent.actor_logstd.exp() * noise)
        returns += torch.where(playing, reward, 0.0)
        over = playing & (terminated | truncated)
        playing &= ~over
        bar.update(int(over.sum()))
    bar.close()
    return returns.tolist()


def main(args):
    # ---- setup -------------------------------------------------------------------------------------------------------
    device = devices.set_up(args)
    run = rundir.Run(args, device)
    workers = devices.Workers(args, device)
    batch_size = args.num_envs * args.num_steps
    games = devices.share(args.num_envs)  # the range of this process: its games of the num_envs
    num_envs, mb_size = len(games), args.minibatch_size // devices.NUM_RANKS  # of this process
    rng = torch.Generator(device).manual_seed(2**32 - 1 - args.seed)  # of all that is drawn after the weights
    # episodes restart when a run resumes: with another seed, or the first episodes would be played again
    (seed,) = rundir.game_seeds(args.seed, "train", run.global_step, [devices.RANK])  # of this process's simulator
    envs = make_envs(args, num_envs, seed, device)
    next_obs, next_valid = envs.reset(run.global_step // args.num_envs)  # (N, D) float32
    num_obs, num_states, num_actions = envs.sizes
    torch.manual_seed(args.seed)  # the same network in every process
    agent = Agent(num_obs, num_states, num_actions, args).to(device)
    torch.manual_seed(seed)  # the simulators draw from torch's own generator
    optimizer = optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5, fused=True)
    # all but the first since the last log point
    state = SimpleNamespace(gradient_steps=0, totals=0.0, minibatches=0, explained=[], rewards=0.0, reward_steps=0)
    state.noise_due, state.points = 0, []  # of `outer/`: the step of the next noise; what metrics.outer_loop gets
    prox = None if args.prox_com is None else devices.averaged(agent, args.prox_com)  # the proximal policy
    run.restore(agent=agent, optimizer=optimizer, rng=rng, state=state, **({"prox": prox} if prox else {}))

    shape = (args.num_steps, num_envs)  # (T, N)
    obs = torch.zeros((*shape, num_obs + num_states), device=device)
    old_means, actions = (torch.zeros((*shape, num_actions), device=device) for _ in range(2))
    all_noise = torch.zeros((args.num_steps, args.num_envs, num_actions), device=device)  # of all processes' games
    noise = all_noise[:, games.start : games.stop]
    old_logstd = torch.zeros((1, num_actions), device=device)  # of the policy that acted, as old_means
    # rewards[t], terminations[t] and truncations[t] follow actions[t]; valid[t] is of the whole row t
    values, rewards = (torch.zeros(shape, device=device) for _ in range(2))
    terminations, truncations, valid = (torch.zeros(shape, dtype=torch.bool, device=device) for _ in range(3))
    if args.stagger_resets:
        ages = torch.randint(envs.episode_length, (args.num_envs,), generator=rng, device=device)
        envs.set_ages(ages[games.start : games.stop])
    episodes = simulators.Episodes(num_envs, not args.stagger_resets, device)

    parameters = list(agent.parameters())

    @torch.no_grad()
    def policy(obs, noise):
        """Samples actions (N, A) for obs (N, D): mean + std * noise is a sample of the policy."""
        mean, value, _ = agent(obs)
        return mean, value, mean + agent.actor_logstd.exp() * noise

    def minibatch(batch, inds):
        """The rows `inds` of each tensor of the batch, advantages normalised, and (the number of valid rows,)."""
        *rows, advantages, valid = (x.index_select(0, inds) for x in batch)
        normalized, count = normalize_advantages(advantages, valid)
        return (*rows, normalized if args.norm_adv else advantages, valid), (count,)

    def minibatch_loss(mb_obs, mb_old_means, mb_actions, *mb, vf_coef=args.vf_coef):
        newmean, newvalue, _ = agent(mb_obs)
        coefs = (args.clip_coef, args.ent_coef, vf_coef, args.clip_vloss)
        proximal = None
        if prox is not None:
            with torch.no_grad():
                proximal = gaussian_logprobs(prox(mb_obs)[0], prox.module.actor_logstd, mb_actions)
        loss, losses = ppo_loss(newmean, agent.actor_logstd, newvalue, mb_actions, *mb, *coefs, proximal)
        with torch.no_grad():
            kl = gaussian_kl(mb_old_means, old_logstd, newmean, agent.actor_logstd)
            losses["kl"] = masked_mean(kl, *mb[-2:])
        return loss, losses

    def gradient(loss_function, *mb):
        """The gradient and the losses of some rows of a minibatch: their share of those of the whole."""
        loss, losses = loss_function(*mb)
        return torch.autograd.grad(loss, parameters), losses

    def update(rows, whole):
        """One step of the optimiser on a minibatch. Returns the losses and the gradient's norm before clipping."""
        gradients, losses = workers.summed(partial(gradient, minibatch_loss), rows, whole)
        devices.add_over_ranks([*gradients, *losses.values()])
        for parameter, total in zip(parameters, gradients):
            parameter.grad = total
        if args.desired_kl is not None:
            group = optimizer.param_groups[0]
            group["lr"] = adapted_learning_rate(group["lr"], losses["kl"].item(), args.desired_kl)
        grad_norm = nn.utils.clip_grad_norm_(parameters, args.max_grad_norm, foreach=True)
        optimizer.step()
        if prox is not None:
            prox.update_parameters(agent)
        return {**losses, "grad_norm": grad_norm}

    def group_gradient(batch, inds):
        """The gradient (P,) of the policy's mean loss over the rows `inds` of a batch, added minibatch by minibatch."""
        policy_loss = partial(minibatch_loss, vf_coef=0.0)  # the values' gradient would hide the policy's
        count, total = batch[-1][inds].sum().clamp(min=1), 0.0
        for mb_inds in inds.split(mb_size):
            rows = [x.index_select(0, mb_inds) for x in batch]
            gradients, _ = workers.summed(partial(gradient, policy_loss), rows, (count,))
            total = total + torch.cat([x.flatten() for x in gradients])
        return total

    while not run.ended:
        if args.anneal_lr:
            optimizer.param_groups[0]["lr"] = (1.0 - run.global_step / run.total_steps) * args.learning_rate

        # ---- rollout -------------------------------------------------------------------------------------------------
        resets = []  # of each step: the environments that it has reset, and their last observations
        old_logstd.copy_(agent.actor_logstd.detach())
        all_noise.normal_(generator=rng)
        for step in range(args.num_steps):
            obs[step], valid[step] = next_obs, next_valid
            old_means[step], values[step], actions[step] = policy(obs[step], noise[step])
            *transition, ended, last_obs = envs.step(actions[step])
            next_obs, rewards[step], terminations[step], truncations[step], next_valid = transition
            resets.append((ended, last_obs))
            episodes.add(rewards[step], terminations[step] | truncations[step], valid[step])
        run.global_step += batch_size
        run.add_games(*episodes.ended())  # the first wait for the GPU
        state.rewards += (rewards * valid).sum(dtype=torch.float64).item()
        state.reward_steps += valid.sum().item()

        # ---- targets -------------------------------------------------------------------------------------------------
        if not args.mask_resets:
            terminations, truncations = terminations | truncations, torch.zeros_like(truncations)
            valid = torch.ones_like(valid)
        with torch.no_grad():
            logprobs = gaussian_logprobs(old_means, old_logstd, actions)
            _, next_value, _ = agent(next_obs)
            # Isaac Gym shows a new episode one row after done: obs[t + 1] is still the true last observation
            next_values = torch.cat([values[1:], next_value[None]])
            for step, (ended, last_obs) in enumerate(resets):
                if len(ended) > 0:
                    _, next_values[step, ended], _ = agent(last_obs)
            t_rewards = rewards * args.reward_scaler
            advantages, returns = gae(
                t_rewards, values, terminations, truncations, next_values, valid, args.gamma, args.gae_lambda
            )
        batch = [x.flatten(0, 1) for x in (obs, old_means, actions, logprobs, values, returns, advantages, valid)]
        b_obs, b_old_means, b_actions, b_logprobs, b_values, b_returns, b_advantages, b_valid = batch

        # ---- update --------------------------------------------------------------------------------------------------
        noise_scales = {}
        if args.diagnostics and run.at_log_point(batch_size) and run.global_step >= state.noise_due:
            state.noise_due = run.global_step + run.schedule.noise_interval * batch_size
            normalized = normalize_advantages(b_advantages, b_valid)[0] if args.norm_adv else b_advantages
            of_rows = partial(group_gradient, [*batch[:-2], normalized, b_valid])
            noise_scales = metrics.gradient_noise_scales(
                of_rows, b_valid, args.num_steps, run.global_step, devices.NUM_RANKS, devices.add_over_ranks
            )
        for _epoch in range(args.update_epochs):
            for mb_inds in torch.randperm(len(b_obs), generator=rng, device=device).split(mb_size):
                losses = update(*minibatch(batch, mb_inds))
                state.totals = state.totals + torch.stack([*losses.values()])
                state.minibatches += 1
                state.gradient_steps += 1
            if args.target_kl is not None and losses["approx_kl"] > args.target_kl:
                break
        state.explained.append(metrics.explained_variance(b_values[b_valid], b_returns[b_valid]))
        # what is not finite reaches the parameters and stays: one look an iteration finds it before it is saved
        suspects = {"obs": obs, "rewards": rewards, "values": values, "advantages": advantages}
        suspects.update(zip(losses, state.totals))
        suspects["parameters"] = nn.utils.get_total_norm(agent.parameters())
        if not run.all_finite(suspects):
            break

        # ---- diagnostics ---------------------------------------------------------------------------------------------
        scalars = {}
        log_point = run.at_log_point(batch_size)
        if log_point:
            valid_inds = b_valid.nonzero().squeeze(-1)
            probe_inds = valid_inds[metrics.stratified_rows(len(valid_inds), args.probe_size, seed=run.global_step)]
        if log_point and args.diagnostics:
            behavior = (b_old_means, old_logstd, b_actions)
            native, kl = diagnose(agent, b_obs, *behavior, valid_inds, workers)
            same = len(probe_inds) == len(valid_inds)
            probe = native if same else diagnose(agent, b_obs, *behavior, probe_inds, workers)[0]
            # clipping multiplied the last minibatch's gradient by one factor: take it out again
            unclip = max(1.0, (losses["grad_norm"].item() + 1e-6) / args.max_grad_norm)
            native = {**native, **metrics.gradient_statistics([p.grad * unclip for p in agent.parameters()])}
            probe_minibatch = minibatch(batch, probe_inds[devices.RANK :: devices.NUM_RANKS])
            gradients, _ = workers.summed(partial(gradient, minibatch_loss), *probe_minibatch)
            devices.add_over_ranks(gradients)
            probe = {**probe, **metrics.gradient_statistics(gradients)}
            scalars.update({f"diagnostics/{name}": value for name, value in native.items()})
            scalars.update({f"probe/{name}": value for name, value in probe.items()})
            grad_norm = (state.totals[-1] / state.minibatches).item()
            state.points.append((*devices.pooled(len(valid_inds), kl), grad_norm, run.mean_new_return()))
            outer = {**noise_scales, **metrics.outer_loop(state.points, window=max(10, args.num_logs // 10))}
            scalars.update({f"outer/{name}": value for name, value in outer.items()})
        if args.norm_obs:  # last: rollout, update and diagnostics have seen the same normalisation
            agent.obs_sums += devices.sum_over_ranks(metrics.column_sums(b_obs[b_valid]))

        # ---- log -----------------------------------------------------------------------------------------------------
        if log_point:
            inds = probe_inds[metrics.stratified_rows(len(probe_inds), run.coverage_quota(), seed=run.global_step)]
            with torch.no_grad():
                _, row_values, hiddens = agent(b_obs.index_select(0, inds))
            run.add_coverage(
                obs=b_obs[inds].cpu().numpy(),
                feature=hiddens[0][-1].cpu().numpy().astype(np.float16),
                value=row_values.cpu().numpy(),
            )
            scalars.update(run.charts())
            scalars["charts/reward"] = devices.ratio_of_sums(state.rewards, state.reward_steps)
            scalars["charts/learning_rate"] = float(optimizer.param_groups[0]["lr"])
            scalars["charts/gradient_steps"] = state.gradient_steps
            means = (state.totals / state.minibatches).tolist()
            scalars.update({f"losses/{name}": value for name, value in zip(losses, means)})
            scalars["losses/explained_variance"] = float(np.mean(state.explained))
            run.log(scalars)
            state.totals, state.minibatches, state.explained = 0.0, 0, []
            state.rewards, state.reward_steps = 0.0, 0
        run.end_iteration()

    # ---- close -------------------------------------------------------------------------------------------------------
    final_returns = []
    seeds = run.final_seeds()
    if seeds:
        seed = seeds[devices.RANK % len(seeds)]
        final_returns = play_games(agent, args, device, seed, len(devices.share(len(seeds))))
    run.close(final_returns)


if __name__ == "__main__":
    with rundir.full_disk_in_one_line():
        main(parse_args(sys.argv[1:]))
