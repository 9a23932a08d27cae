"""PQN on EnvPool's Atari: what N_envs parallel games and N_RO rollout steps do to a network that learns values.

    python pqn_atari_envpool.py --env-id Breakout-v5 --num-envs 128 --num-steps 8
    torchrun --nproc-per-node 4 pqn_atari_envpool.py --num-envs 512    # each process, and GPU, its share of the games

The paper's own recipe (purejaxql @47af6d7) instead of CleanRL's defaults, except for the initialisation:

    python pqn_atari_envpool.py --num-envs 128 --num-steps 32 --update-epochs 2 --num-minibatches 32 --total-timesteps \
        50000000 --layer-norm channels --td-coef 0.5 --end-e 0.001 --no-anneal-lr

Papers: Gallici et al. 2024, arXiv 2407.04811 (PQN); Mayor et al. 2025, arXiv 2506.03404 (P1: the diagnostics).
Reference: CleanRL's cleanrl/pqn_atari_envpool.py @fe8d8a0, with the same algorithm, defaults and names. Departures,
each with its reason:

1. The step after `done` only resets the game: EnvPool ignores its action and pays nothing. CleanRL trains on that row;
   here `valid` keeps it out of the loss and the diagnostics (`--no-mask-resets` restores CleanRL's).
2. A time limit is not a death: a truncated step bootstraps from the value of the real last observation, a terminated
   one from 0. CleanRL bootstraps neither (`--no-mask-resets` again).
3. Returns and lengths are of whole games, all of them, whether game over or the time limit ends them. CleanRL carries
   the return of a game that the time limit cut into the next one.
4. Logged losses are means over all minibatches since the last point; CleanRL logs the last minibatch.
5. A curve has `--num-logs` points, however long the run; CleanRL writes three scalars a game and three an iteration.
6. Frames are stored as uint8, channels last (a quarter of CleanRL's memory), and 1/255 is folded into the first
   convolution: the same mathematics, sooner done.
7. A batch that the minibatches do not divide is refused; CleanRL silently adds a smaller minibatch.
8. A run is a directory that can be killed at any time and is resumed by the same command.
9. torchrun, `--bf16`, `--compile`, `--cuda-graphs`, `--layer-norm`, `--td-coef`, `--minibatch-size` and
   `--eval-episodes` are additions.
10. ESS and policy variance need a policy that actions are sampled from. A value method has none: they are not logged.
    In place of the KL, `outer/greedy_churn` is the fraction of the batch where the update changes the greedy action.
11. Each game has a seed of its own, made from the run's seed, the steps done and the game's number: two seeds share no
    games, nor do two processes. CleanRL's seeds s and s + 1 share all games but one.
12. Threads play pieces of the games through whole rollouts, and compute pieces of each minibatch, whose gradients are
    added: beside a busy program CleanRL's threads wait for each other. Their number does not change the result.
"""

import math
import os
import sys
from dataclasses import dataclass
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
    env_id: str = "Breakout-v5"  # the id of EnvPool's Atari game
    total_timesteps: Steps = 10000000  # environment steps of the whole run, over all environments (each is 4 frames)
    learning_rate: NonNegative = 2.5e-4  # the learning rate of RAdam
    num_envs: Count = 8  # the number of parallel games: N_envs
    num_steps: Count = 128  # the number of steps in each game per rollout: N_RO
    anneal_lr: bool = True  # anneals the learning rate linearly to 0
    gamma: Fraction = 0.99  # the discount factor
    num_minibatches: Count = 4  # minibatches per epoch; the batch is num_envs * num_steps
    minibatch_size: Optional[Count] = None  # rows per minibatch, in place of num-minibatches (P3's recipe)
    update_epochs: Count = 4  # passes over each batch
    max_grad_norm: Positive = 10.0  # the gradient's norm is clipped to this
    start_e: Fraction = 1.0  # the probability of a random action at the start
    end_e: Fraction = 0.01  # the probability of a random action once exploration-fraction is over
    exploration_fraction: Annotated[float, Range(1e-12, 1)] = 0.1  # fraction of the steps over which it falls linearly
    q_lambda: Fraction = 0.65  # lambda of the Q(lambda) targets: 0 is the one-step target
    td_coef: Positive = 1.0  # a factor of the mean squared TD error; the paper's code has 0.5
    layer_norm: Literal["chw", "channels"] = "chw"  # LayerNorm over (C, H, W) as in CleanRL, or over C as in the paper
    mask_resets: bool = True  # trains on no reset row and bootstraps at time limits (departures 1 and 2)
    bf16: bool = False  # computes the encoder in bfloat16 (autocast); head, loss, targets and RAdam stay in float32
    tf32: bool = True  # lets NVIDIA GPUs multiply float32 numbers in TensorFloat-32
    compile: bool = False  # compiles the network and the loss with torch.compile: a minute at the start, a C++ compiler
    cuda_graphs: bool = False  # replays policy and update as CUDA graphs, for NVIDIA; it has never run on a GPU yet


def parse_args(argv):
    """Returns checked Args; exits 2 with one line on bad input. Touches no file."""
    args = arguments.parse(Args, argv, __doc__)
    arguments.check_env_id(args.env_id, "envpool.atari", "an Atari game")
    return arguments.check(args, argv, row_bytes=math.prod(OBS_SHAPE))


# ---- environments ----------------------------------------------------------------------------------------------------
def make_envs(args, seeds):
    """EnvPool's Atari, one game for each of the seeds (integers below 2**31), preprocessed as by CleanRL.

    Each life is an episode, and rewards are clipped to their sign.
    """
    import envpool  # takes a second: not for --help

    return envpool.make(
        args.env_id,
        env_type="gymnasium",
        num_envs=len(seeds),
        num_threads=min(len(seeds), torch.get_num_threads()),  # EnvPool's own default sees the host, not the job
        episodic_life=True,
        reward_clip=True,
        seed=seeds,
    )


# ---- networks --------------------------------------------------------------------------------------------------------
def layer_init(layer, std=2**0.5, bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels of each pixel of (B, C, H, W), as in the paper's own code: flax's default."""

    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class QNetwork(nn.Module):
    """The encoder of Mnih et al. 2015 with a LayerNorm before each ReLU, and a Q value for each action.

    With layer_norm "chw" the parameters have the names and shapes of CleanRL's, so that weights can be exchanged.
    """

    def __init__(self, num_actions, layer_norm="chw", bf16=False):
        super().__init__()
        self.bf16 = bf16
        eps = 1e-5 if layer_norm == "chw" else 1e-6  # PyTorch's, as in CleanRL, or flax's, as in the paper's own code

        def norm(channels, size):
            return nn.LayerNorm([channels, size, size]) if layer_norm == "chw" else ChannelNorm(channels, eps=eps)

        self.network = nn.Sequential(
            layer_init(nn.Conv2d(4, 32, 8, stride=4)),
            norm(32, 20),
            nn.ReLU(inplace=True),
            layer_init(nn.Conv2d(32, 64, 4, stride=2)),
            norm(64, 9),
            nn.ReLU(inplace=True),
            layer_init(nn.Conv2d(64, 64, 3, stride=1)),
            norm(64, 7),
            nn.ReLU(inplace=True),
            nn.Flatten(),
            layer_init(nn.Linear(64 * 7 * 7, 512)),
            nn.LayerNorm(512, eps=eps),
            nn.ReLU(inplace=True),
            layer_init(nn.Linear(512, num_actions)),
        )

    def forward(self, obs):
        """Maps obs (B, 84, 84, 4) uint8 to Q(obs, .) (B, A) and the outputs of the four ReLUs.

        The last of these, (B, 512) in float32, is the representation.
        """
        x = obs.permute(0, 3, 1, 2)  # to PyTorch such a view is a channels_last batch: nothing moves
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.bf16):
            x = x.to(torch.bfloat16 if self.bf16 else torch.float32)
            # x / 255 would round in bfloat16 and pass over the whole batch; the 8192 weights scale for nothing
            x = F.conv2d(x, self.network[0].weight / 255.0, self.network[0].bias, self.network[0].stride)
            hiddens = []
            for layer in self.network[1:-1]:
                x = layer(x)
                if isinstance(layer, nn.ReLU):
                    hiddens.append(x)
        hiddens[-1] = hiddens[-1].float()
        return self.network[-1](hiddens[-1]), hiddens


# ---- targets and loss ------------------------------------------------------------------------------------------------
def linear_schedule(start_e, end_e, duration, t):
    """The probability of a random action at step t."""
    return max(start_e + (end_e - start_e) / duration * t, end_e)


def q_lambda_returns(rewards, terminations, truncations, next_values, gamma, q_lambda):
    """Q(lambda) targets of a whole rollout (Gallici et al. 2024), in Peng's form: no cut at exploratory actions.

    All tensors are (T, N). `next_values[t]` is max_a Q of the observation that step t led to, before any reset.
    `terminations` and `truncations` (bool) say how step t ended its episode: a terminated step bootstraps 0, a
    truncated one `next_values[t]`, and neither looks further. So EnvPool's reset rows affect no other row; their own
    targets are meaningless. Returns float32 (T, N).
    """
    returns = torch.zeros_like(rewards)
    nonterminal = 1.0 - terminations.to(rewards.dtype)
    trace = q_lambda * (1.0 - truncations.to(rewards.dtype))
    following = next_values[-1]
    for t in reversed(range(rewards.shape[0])):
        mixed = trace[t] * following + (1.0 - trace[t]) * next_values[t]
        returns[t] = following = rewards[t] + gamma * mixed * nonterminal[t]
    return returns


def masked_mean(x, valid, count):
    """The sum of x (..., B) over the rows where `valid` (B,) bool holds, divided by `count`, their number.

    With several processes `count` is of all rows, and each process gets its share of the mean: shares, and their
    gradients, add up to the whole.
    """
    return torch.where(valid, x, 0.0).sum(-1) / count


def td_loss(q_values, actions, returns, valid, count):
    """The mean squared TD error over the valid rows of a minibatch.

    q_values (B, A): of the network in training; actions (B,) int64, returns (B,) float32, valid (B,) bool: of the
    rollout; count: as for `masked_mean`. Returns the loss and a dict of 0-d tensors without gradient: the loss, and the
    mean of Q(s, a).
    """
    q_taken = q_values.gather(-1, actions[:, None]).squeeze(-1)
    loss = masked_mean((q_taken - returns).square(), valid, count)
    return loss, {"td_loss": loss.detach(), "q_values": masked_mean(q_taken.detach(), valid, count)}


# ---- diagnostics -----------------------------------------------------------------------------------------------------
@torch.no_grad()
def diagnose(agent, b_obs, inds, workers):
    """Measures the updated network on the rows `inds` of the batch.

    Returns {name: value} (definitions: metrics.py) and the greedy actions (M,).
    """

    def forward(rows):
        q_values, hiddens = agent(b_obs.index_select(0, rows))
        return q_values, [hiddens]  # one encoder

    q_values, values = metrics.diagnose_network(forward, inds, map=workers.map)
    return {**values, **metrics.weight_norms(agent)}, q_values.argmax(-1)


@torch.no_grad()
def play_games(agent, args, device, seeds, games, bar, greedy=False):
    """Plays one whole game, through all lives, in a fresh environment for each of `games`, indices into `seeds`.

    Actions are random with probability `end_e`, as when training ends, or never if `greedy`. The result of a game
    depends neither on the other games of `games` nor on their number. Returns the raw returns, a list of floats. `bar`
    shows the progress.
    """
    envs = make_envs(args, [seeds[game] for game in games])
    generator = torch.Generator(device).manual_seed(seeds[0])
    obs, _ = envs.reset()
    returns, playing = np.zeros(len(games)), np.ones(len(games), dtype=bool)
    while playing.any():
        q_values, _ = agent(devices.to_device(obs[playing], device).permute(0, 2, 3, 1))
        random_actions = torch.randint(q_values.shape[-1], (len(seeds),), generator=generator, device=device)
        chance = torch.rand(len(seeds), generator=generator, device=device)
        forced = torch.where(chance < (0.0 if greedy else args.end_e), random_actions, -1)
        forced = forced[games.start : games.stop][playing]
        actions = np.zeros(len(games), dtype=np.int32)
        actions[playing] = torch.where(forced < 0, q_values.argmax(-1), forced).cpu().numpy()
        obs, _, _, truncated, info = envs.step(actions)
        returns += info["reward"] * playing
        over = playing & (info["terminated"].astype(bool) | truncated)
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
    agent = QNetwork(num_actions, args.layer_norm, args.bf16).to(device, memory_format=torch.channels_last)
    lr = torch.tensor(args.learning_rate, device=device) if args.cuda_graphs else args.learning_rate
    optimizer = optim.RAdam(agent.parameters(), lr=lr, foreach=True, capturable=args.cuda_graphs)
    # all but the first since the last log point
    state = SimpleNamespace(gradient_steps=0, totals=0.0, minibatches=0, explained=[], rewards=0.0, reward_steps=0)
    run.restore(agent=agent, optimizer=optimizer, rng=rng, state=state)

    shape = (args.num_steps, num_envs)  # (T, N)
    obs = torch.zeros((*shape, *OBS_SHAPE), dtype=torch.uint8, device=device)
    actions = torch.zeros(shape, dtype=torch.int64, device=device)
    q_values = torch.zeros((*shape, num_actions), device=device)
    next_q_values = torch.zeros((num_envs, num_actions), device=device)
    # rewards[t], raw_rewards[t] and the ends follow actions[t]; valid[t] is of the whole row t
    rewards, raw_rewards = (np.zeros(shape, dtype=np.float32) for _ in range(2))
    terminations, truncations, game_overs, valid = (np.zeros(shape, dtype=bool) for _ in range(4))
    next_obs = np.concatenate(workers.map(lambda envs: envs.reset()[0], piece_envs))  # (N, 4, 84, 84) uint8
    next_done = np.zeros(num_envs, dtype=bool)
    episode_returns, episode_lengths = np.zeros(num_envs), np.zeros(num_envs, dtype=np.int64)

    forward = devices.compiled(agent, args.compile)
    parameters = list(agent.parameters())

    @torch.no_grad()
    def policy(obs, forced):
        """Actions (N,) for obs (N, 84, 84, 4): the greedy one where `forced` (N,) is -1, else that of `forced`."""
        q_values, _ = forward(obs)
        return q_values, torch.where(forced < 0, q_values.argmax(-1), forced)

    def rollout(piece, envs):
        """Plays `envs`, the games of one piece (a slice of all N), for num_steps steps, and values where they end."""
        for step in range(args.num_steps):
            at = (step, piece)
            obs[at] = devices.to_device(next_obs[piece], device).permute(0, 2, 3, 1)
            valid[at] = ~next_done[piece]
            q_values[at], actions[at] = policy(obs[at], forced[at])
            action = actions[at].to("cpu", torch.int32).numpy()
            next_obs[piece], rewards[at], terminations[at], truncations[at], info = envs.step(action)
            next_done[piece] = terminations[at] | truncations[at]
            raw_rewards[at] = info["reward"]  # not clipped; 0 in a reset row
            game_overs[at] = info["terminated"] | truncations[at]  # the game is over, not only a life
        last_obs = devices.to_device(next_obs[piece], device).permute(0, 2, 3, 1)
        next_q_values[piece], _ = policy(last_obs, forced[at])

    def minibatch(batch, inds):
        """The rows `inds` of each tensor of the batch, and (the number of valid rows,)."""
        *rows, valid = (x.index_select(0, inds) for x in batch)
        return (*rows, valid), (devices.sum_over_ranks(valid.sum()).clamp(min=1),)

    def minibatch_loss(mb_obs, mb_actions, mb_returns, mb_valid, count):
        mb_q_values, _ = agent(mb_obs)
        loss, losses = td_loss(mb_q_values, mb_actions, mb_returns, mb_valid, count)
        return args.td_coef * loss, losses

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
        epsilons = [
            linear_schedule(
                args.start_e,
                args.end_e,
                args.exploration_fraction * args.total_timesteps,
                run.global_step + (step + 1) * args.num_envs,
            )
            for step in range(args.num_steps)
        ]
        all_shape = (args.num_steps, args.num_envs)  # of all processes' games
        random_actions = torch.randint(num_actions, all_shape, generator=rng, device=device)
        chance = torch.rand(all_shape, generator=rng, device=device)
        explore = chance < devices.to_device(np.float32(epsilons)[:, None], device)
        forced = torch.where(explore, random_actions, -1)[:, games.start : games.stop]  # -1: the greedy action
        workers.map(rollout, game_pieces, piece_envs)
        new_games, finished = [], np.zeros(num_envs, dtype=np.int64)
        for step in range(args.num_steps):
            episode_returns += raw_rewards[step]
            episode_lengths += valid[step]
            for i in np.flatnonzero(game_overs[step]):
                new_games.append((float(episode_returns[i]), int(episode_lengths[i])))
                episode_returns[i] = episode_lengths[i] = 0
                finished[i] += 1
        state.rewards += float(raw_rewards.sum())
        state.reward_steps += int(valid.sum())
        run.global_step += batch_size
        run.add_games(new_games, finished)

        # ---- targets -------------------------------------------------------------------------------------------------
        if not args.mask_resets:
            terminations, truncations, valid = terminations | truncations, np.zeros_like(valid), np.ones_like(valid)
        t_rewards, t_terminations, t_truncations, t_valid = (
            devices.to_device(x, device) for x in (rewards, terminations, truncations, valid)
        )
        with torch.no_grad():
            # after a done, obs[t + 1] is still the true last observation: the new game shows one row later
            next_values = torch.cat([q_values[1:], next_q_values[None]]).amax(-1)
            returns = q_lambda_returns(t_rewards, t_terminations, t_truncations, next_values, args.gamma, args.q_lambda)
        batch = [x.flatten(0, 1) for x in (obs, actions, returns, t_valid)]
        b_obs, b_actions, b_returns, b_valid = batch

        # ---- update --------------------------------------------------------------------------------------------------
        for _epoch in range(args.update_epochs):
            for mb_inds in torch.randperm(len(b_obs), generator=rng, device=device).split(mb_size):
                losses = update(*minibatch(batch, mb_inds))
                state.totals = state.totals + torch.stack([*losses.values()])
                state.minibatches += 1
                state.gradient_steps += 1
        b_q_values = q_values.flatten(0, 1)
        b_values = b_q_values.gather(-1, b_actions[:, None]).squeeze(-1)
        state.explained.append(metrics.explained_variance(b_values[b_valid], b_returns[b_valid]))
        # what is not finite reaches the parameters and stays: one look an iteration finds it before it is saved
        suspects = {"rewards": t_rewards, "q_values": q_values, "returns": returns}
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
            native, greedy = diagnose(agent, b_obs, valid_inds, workers)
            same = len(probe_inds) == len(valid_inds)
            probe = native if same else diagnose(agent, b_obs, probe_inds, workers)[0]
            # clipping multiplied the last minibatch's gradient by one factor: take it out again
            unclip = max(1.0, (losses["grad_norm"].item() + 1e-6) / args.max_grad_norm)
            native = {**native, **metrics.gradient_statistics([p.grad * unclip for p in agent.parameters()])}
            probe_minibatch = minibatch(batch, probe_inds[devices.RANK :: devices.NUM_RANKS])
            gradients, _ = workers.summed(partial(gradient, minibatch_loss), *probe_minibatch)
            devices.add_over_ranks(gradients)
            probe = {**probe, **metrics.gradient_statistics(gradients)}
            scalars.update({f"diagnostics/{name}": value for name, value in native.items()})
            scalars.update({f"probe/{name}": value for name, value in probe.items()})
            scalars["outer/greedy_churn"] = (greedy != b_q_values[valid_inds].argmax(-1)).float().mean().item()

        # ---- log -----------------------------------------------------------------------------------------------------
        if log_point:
            inds = probe_inds[metrics.stratified_rows(len(probe_inds), run.coverage_quota(), seed=run.global_step)]
            with torch.no_grad():
                row_q_values, hiddens = agent(b_obs.index_select(0, inds))
            run.add_coverage(
                frame=b_obs[inds, :, :, -1].cpu().numpy(),
                feature=hiddens[-1].cpu().numpy().astype(np.float16),
                value=row_q_values.amax(-1).cpu().numpy(),
            )
            scalars.update(run.charts())
            scalars["charts/reward"] = devices.ratio_of_sums(state.rewards, state.reward_steps)
            scalars["charts/learning_rate"] = float(optimizer.param_groups[0]["lr"])
            scalars["charts/gradient_steps"] = state.gradient_steps
            scalars["charts/epsilon"] = epsilons[-1]
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
