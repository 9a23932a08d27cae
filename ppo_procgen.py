"""PPO on Procgen: what N_envs parallel games and N_RO rollout steps do where every level may be a new one.

    python ppo_procgen.py --env-id bigfish --bf16
    python ppo_procgen.py --env-id bigfish --num-levels 200      # ...and the return on unseen levels at every log point
    torchrun --nproc-per-node 4 ppo_procgen.py --num-envs 256    # each process, and GPU, its share of the games

Papers: Schulman et al. 2017 (PPO); Cobbe et al. 2020, arXiv 1912.01588 (Procgen); Mayor et al. 2025, arXiv 2506.03404
(P1: the diagnostics). Reference: CleanRL's cleanrl/ppo_procgen.py @fe8d8a0, with its algorithm, defaults and names.
Departures, each with its reason:

1. The games are EnvPool's: the `procgen` package ends at Python 3.10. There the step after `done` only resets; `valid`
   keeps it out of losses, statistics and diagnostics (`--no-mask-resets` trains on it).
2. A truncated step bootstraps from the value of the real last observation, a terminated one from 0. CleanRL bootstraps
   neither (`--no-mask-resets` again).
3. With `--num-levels`, `--eval-envs` whole games on unseen levels and as many on the training levels are played at each
   log point: finite levels are there to measure generalisation. Both begin and end with the network of that point, so
   that the gap does not depend on `--num-steps`. (Different seeds can draw equal levels, in easy CoinRun a quarter:
   openai/procgen#100.)
4. Logged losses are means over all minibatches since the last point; CleanRL logs the last minibatch.
5. A curve has `--num-logs` points, however long the run; CleanRL writes two scalars a game and nine an iteration.
6. uint8 frames, 1/255 folded into the first convolution, Gumbel-max sampling, fused Adam: the same mathematics, faster.
7. A batch that the minibatches do not divide is refused; CleanRL silently adds a smaller minibatch.
8. A run is a directory that can be killed at any time and is resumed by the same command.
9. torchrun, `--bf16`, `--compile`, `--cuda-graphs`, `--no-shared-encoder`, `--distribution-mode` and
   `--minibatch-size` are additions, and so is `--eval-episodes`.
10. Each game has a seed of its own, made from the run's seed, the steps done and the game's number: two seeds share no
    games, nor do two processes. CleanRL's seeds s and s + 1 share all games but one.
11. Threads play pieces of the games through whole rollouts, and compute pieces of each minibatch, whose gradients are
    added: beside a busy program CleanRL's threads wait for each other. Their number does not change the result.
"""

import math
import os
import sys
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Literal, Optional

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from typing_extensions import Annotated

import metrics
from support import arguments, devices, rundir
from support.arguments import Count, Evaluation, Fraction, NonNegative, Positive, Range, Seed, Steps, Threads

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
    capture_video: bool = False  # plays a game at the end (scripts/evaluate.py): `episode.mp4`, in colour
    run_name: Optional[str] = None  # the directory below runs-dir; default {env_id}__{exp_name}__{seed}__{unix time}
    runs_dir: str = "runs"  # the directory that holds the run directories
    num_logs: Count = 1000  # the number of points in every curve (at most one an iteration)
    diagnostics: bool = True  # logs `diagnostics/`, `probe/` and `outer/` at those points
    probe_size: Count = 1024  # rows of the batch that `probe/` looks at, so that its numbers compare across batch sizes
    checkpoint_minutes: NonNegative = 10.0  # minutes between checkpoints; 0 writes one after every iteration
    eval_episodes: Evaluation = 0  # whole games that the final network plays when training ends: `final_return`
    num_threads: Threads = 0  # CPU threads of PyTorch and of EnvPool; 0 takes every core, or OMP_NUM_THREADS
    # Algorithm specific arguments
    env_id: str = "starpilot"  # one of the 16 games (bigfish, coinrun, …) or of EnvPool's ids (BigfishEasy-v0, …)
    distribution_mode: Optional[Literal["easy", "hard", "extreme", "memory", "exploration"]] = None  # default easy
    num_levels: Annotated[int, Range(0, 2**30)] = 0  # the number of levels to train on; 0 draws from all of them
    start_level: Annotated[int, Range(0, 2**30)] = 0  # the first of those levels
    eval_envs: Annotated[int, Range(0, 1024)] = 16  # games a log point, on unseen and on training levels each
    total_timesteps: Steps = 25000000  # environment steps of the whole run, over all environments
    learning_rate: NonNegative = 5e-4  # the learning rate of Adam
    num_envs: Count = 64  # the number of parallel games: N_envs
    num_steps: Count = 256  # the number of steps in each game per rollout: N_RO
    anneal_lr: bool = False  # anneals the learning rate linearly to 0
    gamma: Fraction = 0.999  # the discount factor
    gae_lambda: Fraction = 0.95  # lambda of the generalised advantage estimation
    num_minibatches: Count = 8  # minibatches per epoch; the batch is num_envs * num_steps
    minibatch_size: Optional[Count] = None  # rows per minibatch, in place of num-minibatches (P3's recipe)
    update_epochs: Count = 3  # passes over each batch
    norm_adv: bool = True  # normalises the advantages in each minibatch
    clip_coef: NonNegative = 0.2  # the clipping coefficient of the policy ratio, and of the value if clip-vloss
    clip_vloss: bool = True  # clips the value loss too
    ent_coef: NonNegative = 0.01  # the coefficient of the entropy
    vf_coef: NonNegative = 0.5  # the coefficient of the value loss
    max_grad_norm: Positive = 0.5  # the gradient's norm is clipped to this
    target_kl: Optional[Positive] = None  # ends the update after an epoch whose last minibatch has a larger approx_kl
    shared_encoder: bool = True  # one convolutional encoder for actor and critic, or one for each
    mask_resets: bool = True  # trains on no reset row and bootstraps at time limits (departures 1 and 2)
    bf16: bool = False  # computes the encoder in bfloat16 (autocast); heads, losses, GAE and Adam stay in float32
    tf32: bool = True  # lets NVIDIA GPUs multiply float32 numbers in TensorFloat-32
    compile: bool = False  # compiles the network and the loss with torch.compile: a minute at the start, a C++ compiler
    cuda_graphs: bool = False  # replays policy and update as CUDA graphs, for NVIDIA; it has never run on a GPU yet


def parse_args(argv):
    """Returns checked Args; exits 2 with one line on bad input. Touches no file."""
    args = arguments.parse(Args, argv, __doc__)
    check_levels(args)
    return arguments.check(args, argv, row_bytes=math.prod(OBS_SHAPE))


# ---- environments ----------------------------------------------------------------------------------------------------
def task_id(args):
    """EnvPool's name of the game: `bigfish` and the mode, or such a name itself."""
    if "-v" in args.env_id:
        return args.env_id
    return f"{args.env_id.capitalize()}{(args.distribution_mode or 'easy').capitalize()}-v0"


def check_levels(args):
    """Refuses what is not one of EnvPool's Procgen games, and levels that make no sense."""
    arguments.check_env_id(args.env_id, "envpool.procgen", "a Procgen game", task_id(args))
    if (args.distribution_mode or "").capitalize() not in task_id(args):
        arguments.fail(
            f"--distribution-mode {args.distribution_mode} contradicts --env-id {args.env_id}: give one of them"
        )
    if args.start_level and not args.num_levels:
        arguments.fail(f"--start-level {args.start_level} without --num-levels: expected --num-levels of 1 or more")
    import envpool

    try:
        envpool.make_spec(task_id(args))
    except ImportError:  # Procgen draws with Qt, which EnvPool's wheel includes only from Python 3.12 on
        arguments.fail(f"--env-id {args.env_id} needs Qt 5: `sudo apt-get install -y libqt5gui5` installs it on Debian")


def make_envs(args, seeds):
    """EnvPool's Procgen, one game for each of the seeds (integers below 2**31).

    Observations (N, 64, 64, 3) uint8, rewards as the game pays them.
    """
    import envpool  # takes a second: not for --help

    return envpool.make(
        task_id(args),
        env_type="gymnasium",
        num_envs=len(seeds),
        num_threads=min(len(seeds), torch.get_num_threads()),  # EnvPool's own default sees the host, not the job
        seed=seeds,
        channel_first=False,
        num_levels=args.num_levels,
        start_level=args.start_level,
    )


# ---- networks --------------------------------------------------------------------------------------------------------
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


def ppo_loss(
    logits,
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
):
    """The clipped surrogate loss (Schulman et al. 2017, eq. 7 and 9), a mean over the valid rows of a minibatch.

    logits (B, A), newvalue (B,): of the network in training; actions (B,) int64, logprobs, values, returns, advantages
    (B,) float32, valid (B,) bool: of the rollout; count: as for `masked_mean`. Returns the loss and a dict of 0-d
    tensors without gradient; old_approx_kl and approx_kl are the estimators k1 and k3 of KL(old || new)
    (joschu.net/blog/kl-approx.html).
    """
    newlogprobs = F.log_softmax(logits, dim=-1)
    logratio = newlogprobs.gather(-1, actions[:, None]).squeeze(-1) - logprobs
    ratio = logratio.exp()
    pg_loss1 = -advantages * ratio
    pg_loss2 = -advantages * torch.clamp(ratio, 1 - clip_coef, 1 + clip_coef)
    pg_loss = masked_mean(torch.max(pg_loss1, pg_loss2), valid, count)
    v_loss = (newvalue - returns).square()
    if clip_vloss:
        v_clipped = values + torch.clamp(newvalue - values, -clip_coef, clip_coef)
        v_loss = torch.max(v_loss, (v_clipped - returns).square())
    v_loss = 0.5 * masked_mean(v_loss, valid, count)
    entropy = masked_mean(-(newlogprobs.exp() * newlogprobs).sum(-1), valid, count)
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
def diagnose(agent, b_obs, b_logits, b_actions, inds, workers):
    """Measures the updated network on the rows `inds` of the batch.

    b_logits: of the policy that acted. Returns {name: value} (definitions: metrics.py) and KL(old || new).
    """
    logits, values = metrics.diagnose_network(
        lambda rows: agent(b_obs.index_select(0, rows))[::2], inds, map=workers.map
    )
    policy, kl = metrics.policy_diagnostics(b_logits[inds], logits, b_actions[inds])
    return {**values, **policy, **metrics.weight_norms(agent)}, kl


@torch.no_grad()
def play_games(agent, args, device, seeds, games, bar, greedy=False):
    """Plays one whole game in a fresh environment for each of `games`, indices into `seeds`.

    Actions are sampled as in training, or the most likely ones if `greedy`. The result of a game depends neither on the
    other games of `games` nor on their number. Returns the raw returns, a list of floats. `bar` shows the progress.
    """
    envs = make_envs(args, [seeds[game] for game in games])
    generator = torch.Generator(device).manual_seed(seeds[0])
    obs, _ = envs.reset()
    returns, playing = np.zeros(len(games)), np.ones(len(games), dtype=bool)
    while playing.any():
        logits, _, _ = agent(devices.to_device(obs[playing], device))
        noise = torch.empty((len(seeds), logits.shape[-1]), device=device)
        noise = noise.exponential_(generator=generator).log_().neg_()[games.start : games.stop][playing]
        actions = np.zeros(len(games), dtype=np.int32)
        actions[playing] = (logits if greedy else logits + noise).argmax(-1).cpu().numpy()
        obs, rewards, terminated, truncated, _ = envs.step(actions)
        returns += rewards * playing
        over = playing & (terminated | truncated)
        playing &= ~over
        bar.update(int(over.sum()))
    return returns.tolist()


def main(args):
    # ---- setup -------------------------------------------------------------------------------------------------------
    device = devices.set_up(args)
    run = rundir.Run(args, device)
    workers = devices.Workers(args, device)
    batch_size = args.num_envs * args.num_steps
    games = devices.share(args.num_envs)  # the range of this process: its games of the num_envs
    num_envs, mb_size = len(games), args.minibatch_size // devices.NUM_RANKS  # of this process
    torch.manual_seed(args.seed)  # the same network in every process
    rng = torch.Generator(device).manual_seed(2**32 - 1 - args.seed)  # of all that is drawn after the weights
    # games restart when a run resumes: with other seeds, or the first games would be played again
    seeds = rundir.game_seeds(args.seed, "train", run.global_step, games)
    game_pieces = workers.pieces(num_envs)
    piece_envs = [make_envs(args, seeds[piece]) for piece in game_pieces]
    num_actions = int(piece_envs[0].action_space.n)
    agent = Agent(num_actions, args.shared_encoder, args.bf16).to(device, memory_format=torch.channels_last)
    lr = torch.tensor(args.learning_rate, device=device) if args.cuda_graphs else args.learning_rate
    optimizer = optim.Adam(agent.parameters(), lr=lr, eps=1e-5, fused=True, capturable=args.cuda_graphs)
    # all but the first since the last log point
    state = SimpleNamespace(gradient_steps=0, totals=0.0, minibatches=0, explained=[], rewards=0.0, reward_steps=0)
    state.reward_moments = (0.0, 1.0, 1e-4)  # mean, variance, count, for normalize_rewards
    run.restore(agent=agent, optimizer=optimizer, rng=rng, state=state)

    shape = (args.num_steps, num_envs)  # (T, N)
    obs = torch.zeros((*shape, *OBS_SHAPE), dtype=torch.uint8, device=device)
    actions = torch.zeros(shape, dtype=torch.int64, device=device)
    logits = torch.zeros((*shape, num_actions), device=device)
    values, next_value = torch.zeros(shape, device=device), torch.zeros(num_envs, device=device)
    all_noise = torch.zeros((args.num_steps, args.num_envs, num_actions), device=device)  # of all processes' games
    noise = all_noise[:, games.start : games.stop]
    # rewards[t], terminations[t] and truncations[t] follow actions[t]; valid[t] is of the whole row t
    rewards = np.zeros(shape, dtype=np.float32)
    terminations, truncations, valid = (np.zeros(shape, dtype=bool) for _ in range(3))
    next_obs = np.concatenate(workers.map(lambda envs: envs.reset()[0], piece_envs))  # (N, 64, 64, 3) uint8
    next_done = np.zeros(num_envs, dtype=bool)
    episode_returns, episode_lengths = np.zeros(num_envs), np.zeros(num_envs, dtype=np.int64)
    discounted = np.zeros(args.num_envs)  # of the games of all processes, for normalize_rewards

    forward = devices.compiled(agent, args.compile)
    parameters = list(agent.parameters())

    @torch.no_grad()
    def policy(obs, noise):
        """Samples actions (N,) for obs (N, 64, 64, 3): argmax(logits + Gumbel noise) is a sample of the policy."""
        logits, value, _ = forward(obs)
        return logits, value, (logits + noise).argmax(-1)

    def rollout(piece, envs):
        """Plays `envs`, the games of one piece (a slice of all N), for num_steps steps, and values where they end."""
        for step in range(args.num_steps):
            at = (step, piece)
            obs[at] = devices.to_device(next_obs[piece], device)
            valid[at] = ~next_done[piece]
            logits[at], values[at], actions[at] = policy(obs[at], noise[at])
            action = actions[at].to("cpu", torch.int32).numpy()
            next_obs[piece], rewards[at], terminations[at], truncations[at], _ = envs.step(action)
            next_done[piece] = terminations[at] | truncations[at]
        _, next_value[piece], _ = policy(devices.to_device(next_obs[piece], device), noise[at])

    def minibatch(batch, inds):
        """The rows `inds` of each tensor of the batch, advantages normalised, and (the number of valid rows,)."""
        *rows, advantages, valid = (x.index_select(0, inds) for x in batch)
        normalized, count = normalize_advantages(advantages, valid)
        return (*rows, normalized if args.norm_adv else advantages, valid), (count,)

    def minibatch_loss(mb_obs, *mb):
        newlogits, newvalue, _ = agent(mb_obs)
        return ppo_loss(newlogits, newvalue, *mb, args.clip_coef, args.ent_coef, args.vf_coef, args.clip_vloss)

    def gradient(loss_function, *mb):
        """The gradient and the losses of some rows of a minibatch: their share of those of the whole."""
        loss, losses = loss_function(*mb)
        return torch.autograd.grad(loss, parameters), losses

    def update(rows, whole):
        """One step of the optimiser on a minibatch. Returns the losses and the gradient's norm before clipping."""
        gradients, losses = workers.summed(partial(gradient, compiled_loss), rows, whole)
        devices.add_over_ranks([*gradients, *losses.values()])
        for parameter, total in zip(parameters, gradients):
            parameter.grad = total
        grad_norm = nn.utils.clip_grad_norm_(parameters, args.max_grad_norm, foreach=True)
        optimizer.step()
        return {**losses, "grad_norm": grad_norm}

    compiled_loss = devices.compiled(minibatch_loss, args.compile)
    policy = devices.graphed(policy, args.cuda_graphs)
    update = devices.graphed(update, args.cuda_graphs)

    while not run.ended:
        if args.anneal_lr:
            new_lr = (1.0 - run.global_step / run.total_steps) * args.learning_rate
            optimizer.param_groups[0]["lr"] = lr.fill_(new_lr) if args.cuda_graphs else new_lr

        # ---- rollout -------------------------------------------------------------------------------------------------
        all_noise.exponential_(generator=rng).log_().neg_()
        workers.map(rollout, game_pieces, piece_envs)
        new_games, finished = [], np.zeros(num_envs, dtype=np.int64)
        for step in range(args.num_steps):
            episode_returns += rewards[step]  # 0 in a reset row
            episode_lengths += valid[step]
            for i in np.flatnonzero(terminations[step] | truncations[step]):
                new_games.append((float(episode_returns[i]), int(episode_lengths[i])))
                episode_returns[i] = episode_lengths[i] = 0
                finished[i] += 1
        state.rewards += float(rewards.sum())
        state.reward_steps += int(valid.sum())
        run.global_step += batch_size
        run.add_games(new_games, finished)

        # ---- targets -------------------------------------------------------------------------------------------------
        if not args.mask_resets:
            terminations, truncations, valid = terminations | truncations, np.zeros_like(valid), np.ones_like(valid)
        # each process normalises the rewards of all games, (T, all N), and trains on its own
        all_rewards, all_ends, all_valid = (
            np.concatenate(devices.gather(x), axis=1) for x in (rewards, terminations | truncations, valid)
        )
        scaled_rewards, discounted, state.reward_moments = normalize_rewards(
            all_rewards, all_ends, all_valid, discounted, state.reward_moments, args.gamma
        )
        scaled_rewards = scaled_rewards[:, games.start : games.stop]
        t_rewards, t_terminations, t_truncations, t_valid = (
            devices.to_device(x, device) for x in (scaled_rewards, terminations, truncations, valid)
        )
        with torch.no_grad():
            logprobs = F.log_softmax(logits, dim=-1).gather(-1, actions[..., None]).squeeze(-1)
            # after a done, obs[t + 1] is still the true last observation: the new game shows one row later
            next_values = torch.cat([values[1:], next_value[None]])
            advantages, returns = gae(
                t_rewards, values, t_terminations, t_truncations, next_values, t_valid, args.gamma, args.gae_lambda
            )
        batch = [x.flatten(0, 1) for x in (obs, actions, logprobs, values, returns, advantages, t_valid)]
        b_obs, b_actions, b_logprobs, b_values, b_returns, b_advantages, b_valid = batch

        # ---- update --------------------------------------------------------------------------------------------------
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
        suspects = {"rewards": t_rewards, "logits": logits, "values": values, "advantages": advantages}
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
            b_logits = logits.flatten(0, 1)
            native, kl = diagnose(agent, b_obs, b_logits, b_actions, valid_inds, workers)
            same = len(probe_inds) == len(valid_inds)
            probe = native if same else diagnose(agent, b_obs, b_logits, b_actions, probe_inds, workers)[0]
            # clipping multiplied the last minibatch's gradient by one factor: take it out again
            unclip = max(1.0, (losses["grad_norm"].item() + 1e-6) / args.max_grad_norm)
            native = {**native, **metrics.gradient_statistics([p.grad * unclip for p in agent.parameters()])}
            probe_minibatch = minibatch(batch, probe_inds[devices.RANK :: devices.NUM_RANKS])
            gradients, _ = workers.summed(partial(gradient, minibatch_loss), *probe_minibatch)
            devices.add_over_ranks(gradients)
            probe = {**probe, **metrics.gradient_statistics(gradients)}
            scalars.update({f"diagnostics/{name}": value for name, value in native.items()})
            scalars.update({f"probe/{name}": value for name, value in probe.items()})
            scalars["outer/kl_behavior"] = kl
            scalars["outer/ddr"] = metrics.ddr(devices.NUM_RANKS * len(valid_inds), kl)
        if log_point and args.num_levels and args.eval_envs:
            all_levels = replace(args, num_levels=0, start_level=0)  # a training level with chance num_levels / 2**31
            seeds = rundir.game_seeds(args.seed, "levels", run.global_step, range(args.eval_envs))
            unseen, trained = (
                rundir.play(workers, partial(play_games, agent, levels, device), seeds, "evaluation")
                for levels in (all_levels, args)
            )
            unseen, trained = (float(np.mean(sum(devices.gather(returns), []))) for returns in (unseen, trained))
            scalars["charts/eval_episodic_return"] = unseen
            scalars["charts/eval_train_return"] = trained
            scalars["charts/generalization_gap"] = trained - unseen

        # ---- log -----------------------------------------------------------------------------------------------------
        if log_point:
            inds = probe_inds[metrics.stratified_rows(len(probe_inds), run.coverage_quota(), seed=run.global_step)]
            with torch.no_grad():
                _, row_values, hiddens = agent(b_obs.index_select(0, inds))
            run.add_coverage(
                frame=b_obs[inds].cpu().numpy(),
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
    seeds = run.final_seeds()
    run.close(rundir.play(workers, partial(play_games, agent, args, device), seeds, "final games"))


if __name__ == "__main__":
    with rundir.full_disk_in_one_line():
        main(parse_args(sys.argv[1:]))
