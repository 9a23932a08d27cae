"""PQN on EnvPool's Atari: what N parallel environments and T rollout steps do to a network of Q values.

    python pqn_atari_envpool.py --env-id Breakout-v5 --num-envs 128 --num-steps 8

The paper's own recipe (purejaxql @47af6d7) instead of CleanRL's defaults, except for the initialisation:

    python pqn_atari_envpool.py --num-envs 128 --num-steps 32 --update-epochs 2 --num-minibatches 32 --total-timesteps \
        50000000 --layer-norm channels --td-coef 0.5 --end-e 0.001 --no-anneal-lr

Papers: Gallici et al. 2024, arXiv 2407.04811 (PQN); Mayor et al. 2025, arXiv 2506.03404 (the six diagnostics).
Reference: CleanRL's cleanrl/pqn_atari_envpool.py @fe8d8a0, with the same algorithm, defaults and names, but for these
departures:

1. The step after `done` only resets the environment: its action is ignored, its reward is 0. CleanRL trains on it; here
   `valid` keeps it out of the loss and the diagnostics (`--no-mask-resets`: as CleanRL).
2. A time limit is not a death: a truncated step bootstraps from the value of the last observation, a terminated one
   from 0. CleanRL bootstraps neither (`--no-mask-resets` again).
3. Returns are of whole games, also of those that the time limit ends. Losses are means over all minibatches since the
   last of `--num-logs` points; CleanRL logs the last minibatch.
4. Frames are stored as uint8 with the channels last, 1/255 is folded into the first convolution: the same mathematics,
   faster.
5. Threads step pieces of the environments through whole rollouts and compute pieces of the minibatches. The result does
   not depend on their number.
6. A batch that the minibatches do not divide is refused. Each environment has a seed of its own. A run is a directory
   that can be killed at any time; the same command resumes it.
7. ESS and policy variance need a policy that actions are sampled from: they are not logged. In place of the KL,
   `outer/greedy_churn` is the share of the batch where the update changes the greedy action.
"""

import support.early_help  # noqa: F401 isort: skip - answers --help before torch is imported
import math
import os
import sys
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, Optional

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from typing_extensions import Annotated

import metrics
from support import arguments, devices, rundir
from support.arguments import Count, Evaluation, Fraction, NonNegative, Positive, Range, Seed, Steps, Threads
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
    num_logs: Count = 1000  # the number of points in every curve (at most one per iteration)
    diagnostics: bool = True  # logs the diagnostics of the network at those points
    probe_size: Count = 1024  # rows of the batch that `probe/` looks at, so that its numbers compare across batch sizes
    checkpoint_minutes: NonNegative = 10.0  # minutes between checkpoints; 0 writes one after every iteration
    eval_episodes: Evaluation = 0  # evaluation episodes of the final network when training ends: `final_return`
    num_threads: Threads = 0  # CPU threads of PyTorch and of EnvPool; 0 takes every core, or OMP_NUM_THREADS
    # Algorithm specific arguments
    env_id: str = "Breakout-v5"  # the id of EnvPool's Atari game
    total_timesteps: Steps = 10000000  # environment steps of the whole run, over all environments (each is 4 frames)
    learning_rate: NonNegative = 2.5e-4  # the learning rate of RAdam
    num_envs: Count = 8  # the number of parallel environments of the whole run: N
    num_steps: Count = 128  # the number of steps in each environment per rollout: T
    anneal_lr: bool = True  # anneals the learning rate linearly to 0
    gamma: Fraction = 0.99  # the discount factor
    num_minibatches: Count = 4  # minibatches per epoch; the batch is num_envs * num_steps
    minibatch_size: Optional[Count] = None  # rows per minibatch, in place of num-minibatches
    update_epochs: Count = 4  # passes over each batch
    max_grad_norm: Positive = 10.0  # the gradient's norm is clipped to this
    start_e: Fraction = 1.0  # the probability of a random action at the start
    end_e: Fraction = 0.01  # the probability of a random action once exploration-fraction is over
    exploration_fraction: Annotated[float, Range(1e-12, 1)] = 0.1  # fraction of the steps over which it falls linearly
    q_lambda: Fraction = 0.65  # lambda of the Q(lambda) targets: 0 is the one-step target
    td_coef: Positive = 1.0  # a factor of the mean squared TD error; the paper's code has 0.5
    layer_norm: Literal["chw", "channels"] = "chw"  # LayerNorm over (C, H, W) as in CleanRL, or over C as in the paper
    mask_resets: bool = True  # trains on no autoreset step and bootstraps at time limits (departures 1 and 2)
    bf16: bool = False  # computes the encoder in bfloat16 (autocast); head, loss, targets and RAdam stay in float32
    tf32: bool = True  # lets NVIDIA GPUs multiply float32 numbers in TensorFloat-32
    compile: bool = False  # compiles the network and the loss with torch.compile: a minute at the start, a C++ compiler
    cuda_graphs: bool = False  # replays policy and update as CUDA graphs, for NVIDIA; needs requirements-gpu.txt


def parse_args(argv):
    """Returns checked Args; exits 2 with one line on bad input. Touches no file."""
    args = arguments.parse(Args, argv, __doc__)
    check_env_id(args.env_id, "envpool.atari", "an Atari game")
    return arguments.check(args, argv, row_bytes=math.prod(OBS_SHAPE))


# ---- environments ----------------------------------------------------------------------------------------------------
def make_envs(args, seeds, num_threads=1):
    """EnvPool's Atari, an environment for each seed. A lost life ends an episode; rewards are clipped to their sign."""
    return make_envpool(args.env_id, seeds, num_threads, episodic_life=True, reward_clip=True)


class Rollout(NamedTuple):
    """What N environments did in T steps: tensors on the device, and their answers in NumPy."""

    obs: torch.Tensor  # (T, N, 84, 84, 4) uint8
    q_values: torch.Tensor  # (T + 1, N, A) float32: the last row is of the observation after the last step
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


class ImageNorm(nn.LayerNorm):
    """LayerNorm over all of (B, C, H, W) but B, as in CleanRL: computed, and returned, in the channels_last of x."""

    def forward(self, x):
        weight, bias = self.weight.permute(1, 2, 0), self.bias.permute(1, 2, 0)
        return F.layer_norm(x.permute(0, 2, 3, 1), weight.shape, weight, bias, self.eps).permute(0, 3, 1, 2)


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
            return ImageNorm([channels, size, size]) if layer_norm == "chw" else ChannelNorm(channels, eps=eps)

        # no ReLU is in place: the gradient of a view that was written to comes back in another memory format, slowly
        self.network = nn.Sequential(
            layer_init(nn.Conv2d(4, 32, 8, stride=4)),
            norm(32, 20),
            nn.ReLU(),
            layer_init(nn.Conv2d(32, 64, 4, stride=2)),
            norm(64, 9),
            nn.ReLU(),
            layer_init(nn.Conv2d(64, 64, 3, stride=1)),
            norm(64, 7),
            nn.ReLU(),
            nn.Flatten(),
            layer_init(nn.Linear(64 * 7 * 7, 512)),
            nn.LayerNorm(512, eps=eps),
            nn.ReLU(),
            layer_init(nn.Linear(512, num_actions)),
        )

    def forward(self, obs):
        """Maps obs (B, 84, 84, 4) uint8 to Q(obs, .) (B, A) and the outputs of the four ReLUs of the one encoder.

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
        return self.network[-1](hiddens[-1]), [hiddens]


def make_agent(args, device="cpu"):
    """The network for the game of args, with the weights that PyTorch's generator gives first."""
    num_actions = int(library().make_spec(args.env_id).action_space.n)
    return QNetwork(num_actions, args.layer_norm, args.bf16).to(device, memory_format=torch.channels_last)


def linear_schedule(start_e, end_e, duration, t):
    """The probability of a random action at step t."""
    return max(start_e + (end_e - start_e) / duration * t, end_e)


def exploratory_actions(epsilons, shape, num_actions, generator):
    """The random actions of epsilon-greedy, each taken with the probability of its step; -1 where the greedy one is.

    epsilons (T,) float32; shape: (T, N). Returns int64 of this shape.
    """
    random_actions = torch.randint(num_actions, shape, generator=generator, device=generator.device)
    chance = torch.rand(shape, generator=generator, device=generator.device)
    return torch.where(chance < devices.to_device(epsilons[:, None], generator.device), random_actions, -1)


@torch.no_grad()
def policy(agent, obs, exploratory):
    """Q values (N, A) and actions (N,) for obs (N, 84, 84, 4): the greedy ones where `exploratory` (N,) is -1."""
    q_values, _ = agent(obs)
    return q_values, torch.where(exploratory < 0, q_values.argmax(-1), exploratory)


# ---- targets and loss ------------------------------------------------------------------------------------------------
def q_lambda_returns(rewards, terminations, truncations, next_values, gamma, q_lambda):
    """Q(lambda) targets (Gallici et al. 2024), in Peng's form: no cut at exploratory actions. Tensors (T, N).

    next_values[t] is max_a Q of what step t led to, before any reset. A termination bootstraps 0, a truncation
    next_values; neither looks further. So an autoreset step affects no other row; its own target is meaningless.
    """
    returns = torch.zeros_like(rewards)
    nonterminal = 1.0 - terminations.to(rewards.dtype)
    trace = q_lambda * (1.0 - truncations.to(rewards.dtype))
    following = next_values[-1]
    for t in reversed(range(rewards.shape[0])):
        mixed = trace[t] * following + (1.0 - trace[t]) * next_values[t]
        returns[t] = following = rewards[t] + gamma * mixed * nonterminal[t]
    return returns


class Batch(NamedTuple):
    """The rows of a rollout, time-major, or some of them: B = T N, or fewer."""

    obs: torch.Tensor  # (B, 84, 84, 4) uint8
    q_values: torch.Tensor  # (B, A) float32, of the network that acted
    actions: torch.Tensor  # (B,) int64
    returns: torch.Tensor  # (B,) float32
    valid: torch.Tensor  # (B,) bool: no autoreset step

    def rows(self, inds):
        return Batch(*(x.index_select(0, inds) for x in self))


def td_loss(agent, args, mb, count):
    """The mean squared TD error, times td_coef, and its parts without gradient, by name.

    mb: some rows of a minibatch, which has `count` valid rows in all: the losses of its pieces add up to its mean.
    """

    def mean(x):
        return torch.where(mb.valid, x, 0.0).sum(-1) / count

    q_values, _ = agent(mb.obs)
    q_taken = q_values.gather(-1, mb.actions[:, None]).squeeze(-1)
    loss = mean((q_taken - mb.returns).square())
    return args.td_coef * loss, {"td_loss": loss.detach(), "q_values": mean(q_taken.detach())}


def gradient(loss_function, agent, args, workers, mb):
    """The gradient of a minibatch's loss, a list, and the parts of the loss. Threads compute pieces of the rows."""
    parameters, count = list(agent.parameters()), mb.valid.sum().clamp(min=1)

    def of_piece(rows):
        loss, losses = loss_function(agent, args, rows, count)
        return list(torch.autograd.grad(loss, parameters)), losses

    return workers.summed(of_piece, mb)


def update(loss_function, agent, optimizer, args, workers, mb):
    """One step of the optimiser on a minibatch. Returns the parts of the loss, and the gradient's norm unclipped."""
    gradients, losses = gradient(loss_function, agent, args, workers, mb)
    for parameter, total in zip(agent.parameters(), gradients):
        parameter.grad = total
    losses["grad_norm"] = nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm, foreach=True)
    optimizer.step()
    return losses


# ---- the six diagnostics ---------------------------------------------------------------------------------------------
@torch.no_grad()
def diagnose(agent, batch, rows, seen, gradients):
    """Four of Mayor et al.'s six numbers, and their variants, of the updated network: metrics.py defines them.

    rows: of the batch; seen: what metrics.inspect returns of them; gradients: of some minibatch, a list.
    """
    _, (spectrum,), activity = seen
    found = {
        "feature_rank": metrics.feature_rank(spectrum),
        "feature_rank/centered": metrics.feature_rank(spectrum, centered=True),
        "feature_rank/srank": metrics.srank(spectrum),
        "feature_rank/effective_rank": metrics.effective_rank(spectrum),
        "feature_rank/rows": len(rows),
        "dormant_neurons": metrics.dormant_neurons(activity),
        **{f"dormant_neurons/tau_{tau:g}": metrics.dormant_neurons_tau(activity, tau) for tau in (0.0, 0.025, 0.1)},
        "dormant_neurons/zero_fraction": metrics.zero_fraction(activity),
        "weight_norm": metrics.weight_norm(agent.parameters()),
        "gradient_kurtosis": metrics.gradient_kurtosis(gradients),
        "gradient_kurtosis/nonzero": metrics.gradient_kurtosis_nonzero(gradients),
        "gradient_kurtosis/zero_fraction": metrics.gradient_zero_fraction(gradients),
    }
    for layer, parameters in metrics.parameters_by_layer(agent).items():
        found[f"weight_norm/{layer}"] = metrics.weight_norm(parameters)
    return found


# ---- evaluation ------------------------------------------------------------------------------------------------------
@torch.no_grad()
def play_episodes(agent, args, device, seeds, games, bar, greedy=False):
    """Plays a whole game, through all lives, in a fresh environment for each of `games`, a range of places in `seeds`.

    Actions are random with probability `end_e`, as when training ends, or never if `greedy`. The result of a game
    depends neither on the other games of `games` nor on their number. Returns the raw returns, a list of floats. `bar`
    shows the progress.
    """
    generator = torch.Generator(device).manual_seed(seeds[0])
    epsilon = np.zeros(1, np.float32) if greedy else np.full(1, args.end_e, np.float32)

    def act(obs, playing):
        q_values, _ = agent(devices.to_device(obs[playing], device).permute(0, 2, 3, 1))
        exploratory = exploratory_actions(epsilon, (1, len(seeds)), q_values.shape[-1], generator)[0]
        exploratory = exploratory[games.start : games.stop][playing]
        actions = np.zeros(len(obs), dtype=np.int32)  # nothing, where the game is over
        actions[playing] = torch.where(exploratory < 0, q_values.argmax(-1), exploratory).cpu().numpy()
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
    optimizer = optim.RAdam(agent.parameters(), lr=lr, foreach=True, capturable=args.cuda_graphs)
    stats = rundir.Stats(gradient_steps=0)  # and the sums since the last log point
    run.restore(agent=agent, optimizer=optimizer, rng=rng, log=stats)
    act = devices.graphed(partial(policy, devices.compiled(agent, args.compile)), args.cuda_graphs)
    loss_function = devices.compiled(td_loss, args.compile)
    learn = devices.graphed(partial(update, loss_function, agent, optimizer, args, workers), args.cuda_graphs)

    T, N, A = args.num_steps, args.num_envs, agent.network[-1].out_features
    batch_size = N * T
    # environments restart when a run resumes: with the same seeds they would repeat their first episodes
    seeds, pieces = env_seeds(args.seed, "train", run.global_step, range(N)), workers.pieces(N)
    envs = [make_envs(args, seeds[piece], devices.env_threads(args, device)) for piece in pieces]
    episodes = Episodes(N)
    next_obs = np.concatenate(workers.map(lambda pool: pool.reset()[0], envs))  # (N, 4, 84, 84) uint8
    next_obs, next_done = devices.pinned(next_obs, device), np.zeros(N, dtype=bool)
    rollout = Rollout(
        obs=torch.zeros((T, N, *OBS_SHAPE), dtype=torch.uint8, device=device),
        q_values=torch.zeros((T + 1, N, A), device=device),
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
            part.q_values[t], part.actions[t] = act(part.obs[t], exploratory[t, piece])
            action = part.actions[t].to("cpu", torch.int32).numpy()
            next_obs[piece], part.rewards[t], part.terminations[t], part.truncations[t], info = pool.step(action)
            part.raw_rewards[t] = info["reward"]
            part.game_overs[t] = info["terminated"] | part.truncations[t]
            run.tick((t + 1) * N)
        last_obs = devices.to_device(next_obs[piece], device).permute(0, 2, 3, 1)
        part.q_values[T], _ = act(last_obs, exploratory[-1, piece])

    while not run.ended:
        if args.anneal_lr:
            devices.set_learning_rate(optimizer, (1.0 - run.global_step / run.total_steps) * args.learning_rate)

        # ---- rollout -------------------------------------------------------------------------------------------------
        explored = args.exploration_fraction * args.total_timesteps
        steps = run.global_step + N * np.arange(1, T + 1)
        epsilons = [linear_schedule(args.start_e, args.end_e, explored, t) for t in steps.tolist()]
        exploratory = exploratory_actions(np.float32(epsilons), (T, N), A, rng)
        workers.map(collect, envs, pieces)
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
        # after a done, obs[t + 1] is still the true last observation: the next episode shows one row later
        next_values = rollout.q_values[1:].amax(-1)
        returns = q_lambda_returns(rewards, terminations, truncations, next_values, args.gamma, args.q_lambda)
        batch = Batch(
            obs=rollout.obs.flatten(0, 1),
            q_values=rollout.q_values[:-1].flatten(0, 1),
            actions=rollout.actions.flatten(0, 1),
            returns=returns.flatten(0, 1),
            valid=valid.flatten(0, 1),
        )

        # ---- update --------------------------------------------------------------------------------------------------
        for _epoch in range(args.update_epochs):
            for inds in torch.randperm(batch_size, generator=rng, device=device).split(args.minibatch_size):
                losses = learn(batch.rows(inds))
                stats.add(losses)
                stats.gradient_steps += 1
                run.tick()
        values = batch.q_values.gather(-1, batch.actions[:, None]).squeeze(-1)
        stats.add({"explained_variance": metrics.explained_variance(values, batch.returns, batch.valid)})
        # a number that is not finite reaches the parameters and stays: this check catches it before the checkpoint
        suspects = {"rewards": rewards, "q_values": rollout.q_values[:-1], "returns": returns}
        suspects.update({name: stats.sums[name] for name in losses})
        suspects["parameters"] = torch.cat([x.detach().flatten() for x in agent.parameters()])
        if not run.all_finite(suspects):
            break

        # ---- log -----------------------------------------------------------------------------------------------------
        if run.at_log_point(batch_size):
            scalars = {f"losses/{name}": mean for name, mean in stats.means().items()}
            scalars["charts/learning_rate"] = float(optimizer.param_groups[0]["lr"])
            scalars["charts/gradient_steps"] = stats.gradient_steps
            scalars["charts/epsilon"] = epsilons[-1]
            rows = batch.valid.nonzero().squeeze(-1)
            probe = rows[metrics.stratified_rows(len(rows), args.probe_size, seed=run.global_step)]
            if args.diagnostics:  # of the whole batch, as Mayor et al.; and of equally many rows at any N x T
                last = metrics.unclipped([x.grad for x in agent.parameters()], losses["grad_norm"], args.max_grad_norm)
                of_probe, _ = gradient(td_loss, agent, args, workers, batch.rows(probe))
                for place, inds, gradients in (("probe", probe, of_probe), ("diagnostics", rows, last)):
                    if place == "probe" or len(probe) < len(rows):
                        seen = metrics.inspect(agent, batch.obs, inds, workers.map)
                    found = diagnose(agent, batch, inds, seen, gradients)
                    scalars.update({f"{place}/{name}": value for name, value in found.items()})
                changed = seen[0].argmax(-1) != batch.q_values[rows].argmax(-1)
                scalars["outer/greedy_churn"] = changed.float().mean()
            shown = batch.obs[probe[metrics.stratified_rows(len(probe), run.coverage_quota(), seed=run.global_step)]]
            with torch.no_grad():
                q_values, hiddens = agent(shown)
            run.add_coverage(frame=shown[..., -1], feature=hiddens[0][-1].half(), value=q_values.amax(-1))
            run.log({**devices.numbers(scalars), **run.charts()})
        run.end_iteration()

    # ---- close -------------------------------------------------------------------------------------------------------
    run.close(evaluate(workers, partial(play_episodes, agent, args, device), run.final_seeds()))


if __name__ == "__main__":
    with rundir.full_disk_in_one_line():
        main(parse_args(sys.argv[1:]))
