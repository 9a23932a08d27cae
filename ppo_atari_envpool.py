"""PPO on EnvPool's Atari: what N_envs parallel environments and N_RO rollout steps do to the network.

    python ppo_atari_envpool.py --env-id Breakout-v5 --num-envs 128 --num-steps 8 --bf16
    torchrun --nproc-per-node 4 ppo_atari_envpool.py --num-envs 512    # each process, and GPU, has its share of them

Papers: Schulman et al. 2017 (PPO); Mayor et al. 2025, arXiv 2506.03404 (P1: the diagnostics); Beukman et al. 2026,
arXiv 2603.06009 (P3: `outer/`). Reference: CleanRL's cleanrl/ppo_atari_envpool.py @fe8d8a0, with the same algorithm,
defaults and names. Departures, each with its reason:

1. The step after `done` only resets the environment (an autoreset step, EnvPool's "dummy step"): its action is ignored
   and its reward is 0. CleanRL trains on it; here `valid` keeps it out of losses, advantage statistics and diagnostics
   (`--no-mask-resets` restores CleanRL's).
2. A time limit is not a death: a truncated step bootstraps from the value of the real last observation, a terminated
   one from 0. CleanRL bootstraps neither (`--no-mask-resets` again).
3. Returns and lengths are of whole games, all of them, whether game over or the time limit ends them. CleanRL carries
   the return of a game that the time limit cut into the next one.
4. Logged losses are means over all minibatches since the last point; CleanRL logs the last minibatch.
5. A curve has `--num-logs` points, however long the run; CleanRL writes three scalars per game and nine per
   iteration.
6. Frames are stored as uint8, channels last (a quarter of CleanRL's memory), 1/255 is folded into the first
   convolution, actions are sampled by the Gumbel-max trick, Adam is fused: the same mathematics, faster.
7. A batch that the minibatches do not divide is refused; CleanRL silently adds a smaller minibatch.
8. A run is a directory that can be killed at any time and is resumed by the same command.
9. Each environment has its own seed, made from the run's seed, the steps done and the environment's number: two runs
    share no games, nor do two processes. CleanRL's seeds s and s + 1 share all games but one.
10. Each thread steps pieces of the environments through whole rollouts and computes pieces of the minibatches, whose
    gradients are added: beside a busy program CleanRL's threads wait for each other. The result does not depend on
    the number of threads.
11. torchrun, `--bf16`, `--compile`, `--cuda-graphs`, `--no-shared-encoder`, `--minibatch-size`, `--scaling`,
    `--prox-com`, `--resume-from` and `--eval-episodes` are additions.
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
from support import arguments, devices, diagnostics, rundir
from support.arguments import Count, Evaluation, Fraction, NonNegative, Positive, Seed, Steps, Threads
from support.envs.envpool import check_env_id, library, make_envpool
from support.envs.episodes import Episodes, env_seeds, evaluate, run_episodes

OBS_SHAPE = (84, 84, 4)  # channels last
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
    capture_video: bool = False  # records an episode at the end (scripts/evaluate.py): `episode.mp4`, in colour
    run_name: Optional[str] = None  # the directory below runs-dir; default {env_id}__{exp_name}__{seed}__{unix time}
    runs_dir: str = "runs"  # the directory that holds the run directories
    resume_from: Optional[str] = None  # a run directory: begins with its newest checkpoint and the same network
    num_logs: Count = 1000  # the number of points in every curve (at most one per iteration)
    diagnostics: bool = True  # logs `diagnostics/`, `probe/` and `outer/` at those points
    probe_size: Count = 1024  # rows of the batch that `probe/` looks at, so that its numbers compare across batch sizes
    checkpoint_minutes: NonNegative = 10.0  # minutes between checkpoints; 0 writes one after every iteration
    eval_episodes: Evaluation = 0  # evaluation episodes of the final network when training ends: `final_return`
    num_threads: Threads = 0  # CPU threads of PyTorch and of EnvPool; 0 takes every core, or OMP_NUM_THREADS
    # Algorithm specific arguments
    env_id: str = "Breakout-v5"  # the id of EnvPool's Atari game
    total_timesteps: Steps = 10000000  # environment steps of the whole run, over all environments (each is 4 frames)
    learning_rate: NonNegative = 2.5e-4  # the learning rate of Adam
    num_envs: Count = 8  # the number of parallel environments, over all processes: N_envs
    num_steps: Count = 128  # the number of steps in each environment per rollout: N_RO
    anneal_lr: bool = True  # anneals the learning rate linearly to 0
    gamma: Fraction = 0.99  # the discount factor
    gae_lambda: Fraction = 0.95  # lambda of the generalised advantage estimation
    num_minibatches: Count = 4  # minibatches per epoch; the batch is num_envs * num_steps
    minibatch_size: Optional[Count] = None  # rows per minibatch, in place of num-minibatches (P3's recipe)
    scale_from: Optional[Count] = None  # the environments of the base of --scaling; default: those of num-envs
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
    return arguments.check(args, argv, row_bytes=math.prod(OBS_SHAPE))


# ---- environments ----------------------------------------------------------------------------------------------------
def make_envs(args, seeds):
    """EnvPool's Atari, an environment for each of the seeds (integers below 2**31), preprocessed as by CleanRL.

    A lost life ends an episode, and rewards are clipped to their sign.
    """
    return make_envpool(args.env_id, seeds, torch.get_num_threads(), episodic_life=True, reward_clip=True)


# ---- networks --------------------------------------------------------------------------------------------------------
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


# ---- rollout ---------------------------------------------------------------------------------------------------------
class Rollout(NamedTuple):
    """What the N environments of this process did in T steps. Row t of the rewards and of the ends follows actions[t].

    The first four are on the device, the others in NumPy.
    """

    obs: torch.Tensor  # (T, N, 84, 84, 4) uint8
    logits: torch.Tensor  # (T, N, A) float32
    values: torch.Tensor  # (T, N) float32
    actions: torch.Tensor  # (T, N) int64
    rewards: np.ndarray  # (T, N) float32, clipped
    raw_rewards: np.ndarray  # (T, N) float32, 0 in an autoreset step
    terminations: np.ndarray  # (T, N) bool
    truncations: np.ndarray  # (T, N) bool
    game_overs: np.ndarray  # (T, N) bool: the game is over, not only a life


def empty_rollout(shape, num_actions, device):
    """A rollout of zeros. shape: (T, N)."""
    return Rollout(
        obs=torch.zeros((*shape, *OBS_SHAPE), dtype=torch.uint8, device=device),
        logits=torch.zeros((*shape, num_actions), device=device),
        values=torch.zeros(shape, device=device),
        actions=torch.zeros(shape, dtype=torch.int64, device=device),
        rewards=np.zeros(shape, dtype=np.float32),
        raw_rewards=np.zeros(shape, dtype=np.float32),
        terminations=np.zeros(shape, dtype=bool),
        truncations=np.zeros(shape, dtype=bool),
        game_overs=np.zeros(shape, dtype=bool),
    )


def gumbel_noise(shape, generator):
    """Noise that makes a sample of the policy: argmax(logits + noise). float32 of this shape."""
    return torch.empty(shape, device=generator.device).exponential_(generator=generator).log_().neg_()


@torch.no_grad()
def policy(agent, obs, noise):
    """Samples actions (N,) for obs (N, H, W, C), given `gumbel_noise` (N, A). Returns logits, values and actions."""
    logits, values, _ = agent(obs)
    return logits, values, (logits + noise).argmax(-1)


def collect_steps(act, rollout, noise, next_obs, envs, piece):
    """Steps `envs`, one piece of this process's environments, through a whole rollout.

    act: maps obs and noise to what `policy` returns. rollout, noise (T, N, A) and next_obs (N, 4, 84, 84) are of all N
    environments; piece: the slice of `envs`, whose part of rollout and next_obs is overwritten. Returns the values of
    the last next_obs.
    """
    rollout, noise, next_obs = Rollout(*(x[:, piece] for x in rollout)), noise[:, piece], next_obs[piece]
    for t in range(len(noise)):
        rollout.obs[t] = devices.to_device(next_obs, noise.device).permute(0, 2, 3, 1)
        rollout.logits[t], rollout.values[t], rollout.actions[t] = act(rollout.obs[t], noise[t])
        action = rollout.actions[t].to("cpu", torch.int32).numpy()
        next_obs[:], rollout.rewards[t], rollout.terminations[t], rollout.truncations[t], info = envs.step(action)
        rollout.raw_rewards[t] = info["reward"]
        rollout.game_overs[t] = info["terminated"] | rollout.truncations[t]
    _, values, _ = act(devices.to_device(next_obs, noise.device).permute(0, 2, 3, 1), noise[-1])
    return values


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

    return run_episodes(make_envs(args, [seeds[game] for game in games]), act, bar)


# ---- targets and loss ------------------------------------------------------------------------------------------------
class Batch(NamedTuple):
    """The rows of a rollout, time-major, or some of them: B = T N, or fewer."""

    obs: torch.Tensor  # (B, 84, 84, 4) uint8
    logits: torch.Tensor  # (B, A) float32, of the policy that acted, as logprobs and values
    actions: torch.Tensor  # (B,) int64
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


def categorical(logits, actions):
    """Log-probabilities of actions (...) int64 under logits (..., A), and the entropy of each policy: both (...)."""
    logprobs = F.log_softmax(logits, dim=-1)
    return logprobs.gather(-1, actions[..., None]).squeeze(-1), -(logprobs.exp() * logprobs).sum(-1)


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
    policy loss is PPO-EWMA's. Returns the loss and a dict of its parts (LOSSES), means without gradient. Of these,
    old_approx_kl and approx_kl are the estimators k1 and k3 of KL(old || new) (joschu.net/blog/kl-approx.html).
    """
    newlogits, newvalue, _ = agent(mb.obs)
    newlogprob, entropy = categorical(newlogits, mb.actions)
    mean = partial(masked_mean, valid=mb.valid, count=count)
    logratio = newlogprob - mb.logprobs
    ratio = logratio.exp()
    clipped = torch.clamp(ratio, 1 - args.clip_coef, 1 + args.clip_coef)
    pg_loss = -torch.min(mb.advantages * ratio, mb.advantages * clipped)
    outside = (ratio - 1.0).abs() > args.clip_coef
    if prox is not None:
        prox_logprob = categorical(prox(mb.obs)[0], mb.actions)[0]
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
    return loss, dict(zip(LOSSES, means))


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


def update(loss_function, parameters, optimizer, max_grad_norm, workers, mb, *totals):
    """One step of the optimiser on a minibatch. Returns the parts of the loss, and the gradient's norm unclipped."""
    gradients, losses = gradient(loss_function, parameters, workers, mb, *totals)
    devices.add_over_ranks([*gradients, *losses.values()])
    for parameter, total in zip(parameters, gradients):
        parameter.grad = total
    grad_norm = nn.utils.clip_grad_norm_(parameters, max_grad_norm, foreach=True)
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
    """The noise of the policy's gradient, between environments and between rows: metrics.gradient_noise_scales."""
    if args.norm_adv:
        batch = batch._replace(advantages=normalize_advantages(batch.advantages, batch.valid)[0])
    of_group = partial(group_gradient, agent, prox, args, batch, workers)
    ranks = (devices.NUM_RANKS, devices.add_over_ranks)
    return metrics.gradient_noise_scales(of_group, batch.valid, num_steps, seed, *ranks)


@torch.no_grad()
def diagnose(agent, batch, workers, inds):
    """Measures the updated network on the rows `inds` of a batch.

    Returns {name: value} (definitions: metrics.py) and KL(old || new).
    """
    logits, values = diagnostics.diagnose_network(
        lambda rows: agent(batch.obs.index_select(0, rows))[::2], inds, map=workers.map
    )
    policy, kl = diagnostics.policy_diagnostics(batch.logits[inds], logits, batch.actions[inds])
    return {**values, **policy, **metrics.weight_norms(agent)}, kl


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
    """What coverage.npz keeps of observations (M, 84, 84, 4): the newest frame, the feature and the value of each."""
    _, values, hiddens = agent(obs)
    features = hiddens[0][-1].cpu().numpy().astype(np.float16)
    return {"frame": obs[..., -1].cpu().numpy(), "feature": features, "value": values.cpu().numpy()}


def main(args):
    # ---- setup -------------------------------------------------------------------------------------------------------
    device = devices.set_up(args)
    run = rundir.Run(args, device)
    workers = devices.Workers(args, device)
    torch.manual_seed(args.seed)  # the same network in every process
    rng = torch.Generator(device).manual_seed(2**32 - 1 - args.seed)  # draws everything but the initial weights
    agent = make_agent(args, device)
    parameters, num_actions = list(agent.parameters()), agent.actor.out_features
    lr = torch.tensor(args.learning_rate, device=device) if args.cuda_graphs else args.learning_rate
    optimizer = optim.Adam(parameters, lr=lr, eps=1e-5, fused=True, capturable=args.cuda_graphs)
    prox = None if args.prox_com is None else devices.averaged(agent, args.prox_com)  # the proximal policy
    # noise_due: the step from which the gradient's noise is measured again; points: what metrics.outer_loop gets
    stats = rundir.Stats(gradient_steps=0, noise_due=0, points=[])
    run.restore(agent=agent, optimizer=optimizer, rng=rng, log=stats, prox=prox)
    devices.begin_average(prox, agent)

    batch_size = args.num_envs * args.num_steps
    own = devices.share(args.num_envs)  # the range of this process's environments; N is their number
    pieces = workers.pieces(len(own))
    # environments restart when a run resumes: with the same seeds they would repeat their first episodes
    seeds = env_seeds(args.seed, "train", run.global_step, own)
    envs = [make_envs(args, seeds[piece]) for piece in pieces]
    episodes = Episodes(len(own))
    rollout = empty_rollout((args.num_steps, len(own)), num_actions, device)
    next_obs = np.concatenate(workers.map(lambda pool: pool.reset()[0], envs))  # (N, 4, 84, 84) uint8
    next_done = np.zeros(len(own), dtype=bool)

    act = devices.graphed(partial(policy, devices.compiled(agent, args.compile)), args.cuda_graphs)
    loss_function = partial(devices.compiled(ppo_loss, args.compile), agent, prox, args)
    learn = partial(update, loss_function, parameters, optimizer, args.max_grad_norm, workers)
    learn = devices.graphed(learn, args.cuda_graphs)

    while not run.ended:
        if args.anneal_lr:
            devices.set_learning_rate(optimizer, (1.0 - run.global_step / run.total_steps) * args.learning_rate)

        # ---- rollout -------------------------------------------------------------------------------------------------
        noise = gumbel_noise((args.num_steps, args.num_envs, num_actions), rng)[:, own.start : own.stop]
        next_value = torch.cat(workers.map(partial(collect_steps, act, rollout, noise, next_obs), envs, pieces))
        dones = rollout.terminations | rollout.truncations
        valid, next_done = np.concatenate([~next_done[None], ~dones[:-1]]), dones[-1]  # row t is no autoreset step
        run.global_step += batch_size
        run.add_episodes(*episodes.add(rollout.raw_rewards, rollout.game_overs, valid))

        # ---- targets -------------------------------------------------------------------------------------------------
        terminations, truncations = rollout.terminations, rollout.truncations
        if not args.mask_resets:
            terminations, truncations, valid = dones, np.zeros_like(dones), np.ones_like(dones)
        rewards, terminations, truncations, valid = (
            devices.to_device(x, device) for x in (rollout.rewards, terminations, truncations, valid)
        )
        with torch.no_grad():
            # after a done, obs[t + 1] is still the true last observation: the next episode shows one row later
            next_values = torch.cat([rollout.values[1:], next_value[None]])
            advantages, returns = gae(
                rewards, rollout.values, terminations, truncations, next_values, valid, args.gamma, args.gae_lambda
            )
            batch = Batch(
                obs=rollout.obs.flatten(0, 1),
                logits=rollout.logits.flatten(0, 1),
                actions=rollout.actions.flatten(0, 1),
                logprobs=categorical(rollout.logits, rollout.actions)[0].flatten(0, 1),
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
        suspects = {"rewards": rewards, "logits": rollout.logits, "values": rollout.values, "advantages": advantages}
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
    run.close(evaluate(workers, partial(play_episodes, agent, args, device), run.final_seeds()))


if __name__ == "__main__":
    with rundir.full_disk_in_one_line():
        main(parse_args(sys.argv[1:]))
