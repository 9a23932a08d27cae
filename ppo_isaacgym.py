"""PPO on thousands of simulated robots: on NVIDIA's Isaac Gym, or on mjlab (MuJoCo Warp), which needs no GPU.

    python ppo_isaacgym.py --env-id Mjlab-Cartpole-Balance --num-envs 256      # pip install -r requirements-mjlab.txt
    torchrun --nproc-per-node 8 ppo_isaacgym.py --env-id Ant --num-envs 262144    # Isaac Gym, each GPU its share

Papers: Schulman et al. 2017 (PPO); Mayor et al. 2025, arXiv 2506.03404 (the six diagnostics); Beukman et al. 2026,
arXiv 2603.06009 (P3: `outer/`). Reference: CleanRL's ppo_continuous_action_isaacgym.py @fe8d8a0, with the same
algorithm, defaults and names, but for these departures:

1. Isaac Gym resets one step late: the step after `done`, and the very first, has a meaningless action and reward.
   CleanRL trains on it; here `valid` keeps it out of losses, advantages and diagnostics (`--no-mask-resets`: as
   CleanRL). mjlab has none.
2. A time limit is not a death: a truncated step bootstraps from the value of the last observation, a terminated one
   from 0. CleanRL bootstraps neither (`--no-mask-resets` again). Isaac Gym reports a death in the time limit's own step
   as a time-out.
3. Returns are of whole episodes. Environments start at random ages of one, as with mjlab's trainer: started together
   they reach the time limit together, and returns lag. The first episode of each is cut short by this and is not
   counted (`--no-stagger-resets`: as CleanRL).
4. Losses are means over all minibatches since the last of `--num-logs` points; CleanRL logs the last minibatch.
5. `--reward-scaler` is applied; CleanRL does not use it. A critic sees the privileged states of a task that has them.
6. mjlab's tasks have mjlab's defaults (recipe.py), PyTorch's initial weights, and `--desired-kl` and `--norm-obs` of
   its rsl_rl; the rest is CleanRL. So, other than in rsl_rl: advantages are normalised in each minibatch, not over the
   batch; each epoch shuffles the rows again; Adam's eps is 1e-5, not 1e-8; the statistics of `--norm-obs` change
   once an iteration, not at every step, which keeps the first ratios at 1; the gradients of actor and critic are
   clipped together; the deviation is learnt as its logarithm; a time limit bootstraps from the observation after the
   step, not before it. results/small/README.md has both programs' returns.
7. Threads compute pieces of the minibatches. The result does not depend on their number.
8. A batch that the minibatches do not divide is refused. A run is a directory that can be killed at any time; the same
   command resumes it. torchrun, `--bf16`, the form of the network, `--minibatch-size`, `--scaling`, `--prox-com` and
   `--resume-from` are additions.
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
import torch
import torch.nn as nn
import torch.optim as optim

import metrics
from support import arguments, devices, diagnostics, recipe, rundir
from support.arguments import Count, Evaluation, Fraction, NonNegative, Positive, Seed, Steps, Threads
from support.envs.episodes import Episodes, env_seeds, evaluate


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
    scale_from: Optional[Count] = None  # the environments of the baseline of --scaling; default: those of num-envs
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


class Rollout(NamedTuple):
    """What the N environments of this process did in T steps: tensors on the device."""

    obs: torch.Tensor  # (T, N, D) float32
    means: torch.Tensor  # (T, N, A) float32
    values: torch.Tensor  # (T + 1, N) float32: the last row is of the observation after the last step
    actions: torch.Tensor  # (T, N, A) float32
    rewards: torch.Tensor  # (T, N) float32; row t follows actions[t], as in the next two
    terminations: torch.Tensor  # (T, N) bool
    truncations: torch.Tensor  # (T, N) bool
    valid: torch.Tensor  # (T, N) bool: row t is no autoreset step


# ---- network ---------------------------------------------------------------------------------------------------------
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
    """The network for the `sizes` of a simulator, with the weights that PyTorch's generator gives first."""
    return Agent(*sizes, args).to(device)


@torch.no_grad()
def policy(agent, obs, noise):
    """Samples actions (N, A) for obs (N, D), given Gaussian noise (N, A). Returns means, values and actions."""
    means, values, _ = agent(obs)
    return means, values, means + agent.actor_logstd.exp() * noise


def gaussian(means, logstd, actions):
    """Log-densities of actions (..., A) under independent Gaussians with means (..., A) and logstd (..., 1, A), and the
    entropy of each policy: both (...)."""
    logprobs = -(0.5 * ((actions - means) / logstd.exp()).square() + logstd + 0.5 * math.log(2 * math.pi)).sum(-1)
    return logprobs, (logstd + 0.5 * math.log(2 * math.pi * math.e)).sum(-1).expand_as(logprobs)


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

    obs: torch.Tensor  # (B, D) float32
    means: torch.Tensor  # (B, A) float32, of the policy that acted, as logstds, logprobs and values
    logstds: torch.Tensor  # (B, A) float32, the same in each row
    actions: torch.Tensor  # (B, A) float32
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
    With prox, the proximal policy, the policy loss is PPO-EWMA's. The part `kl` is KL(old || new) in closed form.
    """

    def mean(x):
        return torch.where(mb.valid, x, 0.0).sum(-1) / count

    newmeans, newvalue, _ = agent(mb.obs)
    newlogprob, entropy = gaussian(newmeans, agent.actor_logstd, mb.actions)
    logratio = newlogprob - mb.logprobs
    ratio = logratio.exp()

    # policy loss
    clipped = torch.clamp(ratio, 1 - args.clip_coef, 1 + args.clip_coef)
    pg_loss = -torch.min(mb.advantages * ratio, mb.advantages * clipped)
    outside = (ratio - 1.0).abs() > args.clip_coef
    if prox is not None:
        prox_logprob = gaussian(prox(mb.obs)[0], prox.module.actor_logstd, mb.actions)[0]
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
        kl = mean(metrics.gaussian_kls(mb.means, mb.logstds, newmeans, agent.actor_logstd))
    names = ("policy_loss", "value_loss", "entropy", "old_approx_kl", "approx_kl", "clipfrac")
    return loss, {**dict(zip(names, means)), "kl": kl}


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
    """One step of the optimiser, at --desired-kl's rate. Returns the parts of the loss, and the gradient's norm."""
    gradients, losses = gradient(loss_function, agent, args, workers, mb)
    for parameter, total in zip(agent.parameters(), gradients):
        parameter.grad = total
    if args.desired_kl is not None:
        rate = optimizer.param_groups[0]["lr"]
        devices.set_learning_rate(optimizer, recipe.adapted_learning_rate(rate, losses["kl"].item(), args.desired_kl))
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
    means, spectra, activity = seen
    log_ratio = gaussian(means, agent.actor_logstd, batch.actions[rows])[0] - batch.logprobs[rows]
    ess, std = metrics.effective_sample_size(log_ratio), agent.actor_logstd.exp()
    variance, share = metrics.gaussian_policy_variance(means, std)
    # a unit of Tanh saturates far from 0: `activity` has deviations, and what hardly varies is dormant
    found = {
        "dormant_neurons": metrics.dormant_neurons(activity, eps=1e-3),
        **{f"dormant_neurons/tau_{tau:g}": metrics.dormant_neurons_tau(activity, tau) for tau in (0.0, 0.025, 0.1)},
        "dormant_neurons/zero_fraction": metrics.zero_fraction(activity),
        "weight_norm": metrics.weight_norm(agent.parameters()),
        "gradient_kurtosis": metrics.gradient_kurtosis(gradients),
        "gradient_kurtosis/nonzero": metrics.gradient_kurtosis_nonzero(gradients),
        "gradient_kurtosis/zero_fraction": metrics.gradient_zero_fraction(gradients),
        "ess": 100.0 * ess / max(len(rows), 1),
        "ess/samples": ess,
        "policy_variance": variance,
        "policy_variance/normalized": share,
        "policy_variance/std": std.mean(),
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


def main(args):
    # ---- setup -------------------------------------------------------------------------------------------------------
    device = devices.set_up(args)
    run = rundir.Run(args, device)
    workers = devices.Workers(args, device)  # threads that share out the minibatches
    rng = torch.Generator(device).manual_seed(2**32 - 1 - args.seed)  # draws everything but the initial weights
    own = devices.share(args.num_envs)  # the range of this process's environments
    # environments restart when a run resumes: with the same seed they would repeat their first episodes
    (seed,) = env_seeds(args.seed, "train", run.global_step, [devices.RANK])  # for this process's simulator
    envs = make_envs(args, len(own), seed, device)
    next_obs, next_valid = envs.reset(run.global_step // args.num_envs)  # (N, D) float32; (N,) bool, or one for all
    torch.manual_seed(args.seed)  # the same network in every process
    agent = make_agent(args, envs.sizes, device)
    torch.manual_seed(seed)  # the simulators draw from torch's own generator
    optimizer = optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5, fused=True)
    prox = None if args.prox_com is None else devices.averaged(agent, args.prox_com)  # the proximal policy
    # noise_due: the step from which the gradient's noise is measured again; points: what metrics.outer_loop gets
    stats = rundir.Stats(gradient_steps=0, noise_due=0, points=[])  # and the sums since the last log point
    run.restore(agent=agent, optimizer=optimizer, rng=rng, log=stats, prox=prox)
    devices.begin_average(prox, agent)
    loss_function = partial(ppo_loss, prox)
    learn = partial(update, loss_function, agent, optimizer, args, workers)

    T, N, A = args.num_steps, len(own), envs.sizes[-1]
    batch_size = args.num_envs * T
    if args.stagger_resets:
        ages = torch.randint(envs.episode_length, (args.num_envs,), generator=rng, device=device)
        envs.set_ages(ages[own.start : own.stop])
    episodes = Episodes(N, whole=not args.stagger_resets)
    rollout = Rollout(
        obs=torch.zeros((T, *next_obs.shape), device=device),
        means=torch.zeros((T, N, A), device=device),
        values=torch.zeros((T + 1, N), device=device),
        actions=torch.zeros((T, N, A), device=device),
        rewards=torch.zeros((T, N), device=device),
        terminations=torch.zeros((T, N), dtype=torch.bool, device=device),
        truncations=torch.zeros((T, N), dtype=torch.bool, device=device),
        valid=torch.zeros((T, N), dtype=torch.bool, device=device),
    )

    while not run.ended:
        if args.anneal_lr:
            devices.set_learning_rate(optimizer, (1.0 - run.global_step / run.total_steps) * args.learning_rate)

        # ---- rollout -------------------------------------------------------------------------------------------------
        noise = torch.empty((T, args.num_envs, A), device=device).normal_(generator=rng)[:, own.start : own.stop]
        old_logstd, resets = agent.actor_logstd.detach().clone(), []
        for t in range(T):
            rollout.obs[t], rollout.valid[t] = next_obs, next_valid
            rollout.means[t], rollout.values[t], rollout.actions[t] = policy(agent, next_obs, noise[t])
            next_obs, reward, terminated, truncated, next_valid, ended, last_obs = envs.step(rollout.actions[t])
            rollout.rewards[t], rollout.terminations[t], rollout.truncations[t] = reward, terminated, truncated
            if len(ended) > 0:
                resets.append((t, ended, policy(agent, last_obs, noise[t, ended])[1]))
            run.tick((t + 1) * args.num_envs)
        _, rollout.values[T], _ = policy(agent, next_obs, noise[-1])
        dones, valid = rollout.terminations | rollout.truncations, rollout.valid
        run.global_step += batch_size
        steps = torch.stack([(rollout.rewards * valid).double(), dones.double(), valid.double()])
        steps = steps.cpu().numpy()  # the first wait for the GPU
        games, *totals = episodes.add(steps[0], steps[1] > 0, steps[2] > 0)
        run.add_episodes(games[-100:], *totals)

        # ---- advantages ----------------------------------------------------------------------------------------------
        rewards = rollout.rewards * args.reward_scaler
        terminations, truncations = rollout.terminations, rollout.truncations
        if not args.mask_resets:
            terminations, truncations, valid = dones, torch.zeros_like(dones), torch.ones_like(dones)
        # Isaac Gym shows a new episode one row after done: obs[t + 1] is still the true last observation
        values, next_values = rollout.values[:-1], rollout.values[1:].clone()
        for t, ended, last_values in resets:  # mjlab shows it at once
            next_values[t, ended] = last_values
        advantages, returns = gae(
            rewards, values, terminations, truncations, next_values, valid, args.gamma, args.gae_lambda
        )
        batch = Batch(
            obs=rollout.obs.flatten(0, 1),
            means=rollout.means.flatten(0, 1),
            logstds=old_logstd.expand(N * T, -1),
            actions=rollout.actions.flatten(0, 1),
            logprobs=gaussian(rollout.means, old_logstd, rollout.actions)[0].flatten(0, 1),
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
        suspects = {"obs": rollout.obs, "rewards": rewards, "values": values, "advantages": advantages}
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
                of_probe, _ = gradient(loss_function, agent, args, workers, mb)
                for place, inds, gradients in (("probe", probe, of_probe), ("diagnostics", rows, last)):
                    if place == "probe" or len(probe) < len(rows):
                        seen = metrics.inspect(agent, batch.obs, inds, workers.map, deviation=True)
                    found = diagnose(agent, batch, inds, seen, gradients)
                    scalars.update({f"{place}/{name}": value for name, value in found.items()})
                kl = metrics.gaussian_kl(batch.means[rows], old_logstd, seen[0], agent.actor_logstd)  # of valid rows
                scalars = devices.numbers({**scalars, "outer/kl_behavior": kl})
                number, kl = devices.mean_over_ranks(len(rows), scalars["outer/kl_behavior"])
                stats.points.append((number, kl, scalars["losses/grad_norm"], run.mean_new_return()))
                outer = metrics.outer_loop(stats.points, max(10, args.num_logs // 10))  # kl_behavior, ddr and plateau
                scalars.update({f"outer/{name}": value for name, value in {**noise_scales, **outer}.items()})
            shown = batch.obs[probe[metrics.stratified_rows(len(probe), run.coverage_quota(), seed=run.global_step)]]
            with torch.no_grad():
                _, values, hiddens = agent(shown)
            run.add_coverage(obs=shown, feature=hiddens[0][-1].half(), value=values)
            run.log({**devices.numbers(scalars), **run.charts()})
        if args.norm_obs:  # last: rollout, update and diagnostics have seen the same normalisation
            agent.obs_sums += devices.sum_over_ranks(diagnostics.column_sums(batch.obs, batch.valid))
        run.end_iteration()

    # ---- close -------------------------------------------------------------------------------------------------------
    run.close(evaluate(None, partial(play_episodes, agent, args, device), run.final_seeds()))


if __name__ == "__main__":
    with rundir.full_disk_in_one_line():
        main(parse_args(sys.argv[1:]))
