"""PPO with random network distillation: what N_envs parallel games and N_RO rollout steps do where reward is rare.

    python ppo_rnd_envpool.py --env-id MontezumaRevenge-v5
    torchrun --nproc-per-node 4 ppo_rnd_envpool.py --num-envs 512    # each process, and GPU, its share of the games

Papers: Schulman et al. 2017 (PPO); Burda et al. 2019, arXiv 1810.12894 (RND); Mayor et al. 2025, arXiv 2506.03404 (P1:
the diagnostics); Beukman et al. 2026, arXiv 2603.06009 (P3: `outer/`). Reference: CleanRL's cleanrl/ppo_rnd_envpool.py
@fe8d8a0, with the same algorithm, defaults and names. Departures, each with its reason:

1. The step after `done` only resets the game: `valid` keeps it out of losses, moments, statistics and diagnostics. A
   truncated step bootstraps from the value of the real last observation. CleanRL trains on the reset rows, and its
   time limits bootstrap 0 (`--no-mask-resets` restores both). Returns are of whole games, all of them.
2. Intrinsic rewards are divided by the standard deviation of their discounted sums, and the sums run over time in each
   game, as in the paper's code. CleanRL sums over games (its issue #360), and counts T * N sums as N.
3. The predictor learns the frames that earned the intrinsic rewards: those that the steps led to, as in the paper's
   code. CleanRL learns those before the steps: with departure 1 the last frame of a life would stay new for ever.
4. Frames are stored as uint8, channels last, 1/255 is folded into the first convolution, actions are sampled by the
   Gumbel-max trick, Adam is fused: the same mathematics, sooner done.
5. A curve has `--num-logs` points, however long the run; losses are means over all minibatches since the last point,
   and `value_loss` is extrinsic, `int_value_loss` intrinsic.
6. A batch that the minibatches do not divide is refused. A run resumes by the same command. Each game has its own seed:
   two seeds of a run share no games. Threads play pieces of the games through whole rollouts and compute pieces of each
   minibatch; their number does not change the result.
7. torchrun, `--bf16`, `--compile`, `--cuda-graphs`, `--no-shared-encoder` and `--minibatch-size` are additions.
"""

import math
import os
import sys
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Optional

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

import metrics
from support import arguments, devices, rundir
from support.arguments import Count, Evaluation, Fraction, NonNegative, Positive, Seed, Steps, Threads

OBS_SHAPE = (84, 84, 4)  # channels last
ROOM_BYTES = {"MontezumaRevenge-v5": [3, 57], "PrivateEye-v5": [92], "Venture-v5": [90]}  # in the RAM (AtariARI)


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
    env_id: str = "MontezumaRevenge-v5"  # the id of EnvPool's Atari game
    repeat_action_probability: Fraction = 0.25  # sticky actions: the chance that a frame repeats the action before
    total_timesteps: Steps = 2000000000  # environment steps of the whole run, over all environments (each is 4 frames)
    learning_rate: NonNegative = 1e-4  # the learning rate of Adam
    num_envs: Count = 128  # the number of parallel games: N_envs
    num_steps: Count = 128  # the number of steps in each game per rollout: N_RO
    anneal_lr: bool = True  # anneals the learning rate linearly to 0
    gamma: Fraction = 0.999  # the discount factor
    gae_lambda: Fraction = 0.95  # lambda of the generalised advantage estimation
    num_minibatches: Count = 4  # minibatches per epoch; the batch is num_envs * num_steps
    minibatch_size: Optional[Count] = None  # rows per minibatch, in place of num-minibatches (P3's recipe)
    update_epochs: Count = 4  # passes over each batch
    norm_adv: bool = True  # normalises the advantages in each minibatch
    clip_coef: NonNegative = 0.1  # the clipping coefficient of the policy ratio, and of the value if clip-vloss
    clip_vloss: bool = True  # clips the value loss too
    ent_coef: NonNegative = 0.001  # the coefficient of the entropy
    vf_coef: NonNegative = 0.5  # the coefficient of the value loss
    max_grad_norm: Positive = 0.5  # the gradient's norm is clipped to this
    target_kl: Optional[Positive] = None  # ends the update after an epoch whose last minibatch has a larger approx_kl
    update_proportion: Fraction = 0.25  # the share of each minibatch that the predictor learns from
    int_coef: NonNegative = 1.0  # the coefficient of the intrinsic advantages
    ext_coef: NonNegative = 2.0  # the coefficient of the extrinsic advantages
    int_gamma: Fraction = 0.99  # the discount factor of the intrinsic rewards
    num_iterations_obs_norm_init: Count = 50  # random rollouts before the run that start the frames' mean and variance
    shared_encoder: bool = True  # one convolutional encoder for actor and critic, or one for each
    mask_resets: bool = True  # trains on no reset row and bootstraps at time limits (departures 1 and 2)
    bf16: bool = False  # computes the encoder in bfloat16 (autocast); heads, RND, losses, GAE and Adam stay in float32
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
        repeat_action_probability=args.repeat_action_probability,
    )


# ---- networks --------------------------------------------------------------------------------------------------------
def layer_init(layer, std=2**0.5, bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


def convolutions(channels, activation):
    """The three convolutions of Mnih et al. 2015: (B, channels, 84, 84) -> (B, 3136)."""
    return [
        layer_init(nn.Conv2d(channels, 32, 8, stride=4)),
        activation(),
        layer_init(nn.Conv2d(32, 64, 4, stride=2)),
        activation(),
        layer_init(nn.Conv2d(64, 64, 3, stride=1)),
        activation(),
        nn.Flatten(),
    ]


def rnd_cnn():
    """The encoder of the policy: (B, 4, 84, 84) -> (B, 448)."""
    return nn.Sequential(
        *convolutions(4, nn.ReLU),
        layer_init(nn.Linear(64 * 7 * 7, 256)),
        nn.ReLU(),
        layer_init(nn.Linear(256, 448)),
        nn.ReLU(),
    )


class Agent(nn.Module):
    """Actor and two critics. Names and shapes of the parameters are CleanRL's, so that weights can be exchanged."""

    def __init__(self, num_actions, shared_encoder=True, bf16=False):
        super().__init__()
        self.bf16 = bf16
        self.network = rnd_cnn()
        self.extra_layer = nn.Sequential(layer_init(nn.Linear(448, 448), std=0.1), nn.ReLU())
        self.actor = nn.Sequential(
            layer_init(nn.Linear(448, 448), std=0.01), nn.ReLU(), layer_init(nn.Linear(448, num_actions), std=0.01)
        )
        self.critic_ext, self.critic_int = (layer_init(nn.Linear(448, 1), std=0.01) for _ in range(2))
        self.critic_network = None if shared_encoder else rnd_cnn()

    def encode(self, network, x):
        """Returns the outputs of the five ReLUs; the last, (B, 448) in float32, is the representation."""
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
        """Maps obs (B, 84, 84, 4) uint8 to logits (B, A), two values (B,) and each encoder's post-ReLU layers."""
        x = obs.permute(0, 3, 1, 2)  # to PyTorch such a view is a channels_last batch: nothing moves
        hiddens = [self.encode(self.network, x)]
        if self.critic_network is not None:
            hiddens.append(self.encode(self.critic_network, x))
        feature, critic_feature = hiddens[0][-1], hiddens[-1][-1]
        actor_hidden, extra = self.actor[:2](feature), self.extra_layer(critic_feature)
        # the hidden layers of the heads join those of the encoders; the representation stays the last
        hiddens[0].insert(-1, actor_hidden)
        hiddens[-1].insert(-1, extra)
        critic_hidden = extra + critic_feature
        value, int_value = self.critic_ext(critic_hidden).squeeze(-1), self.critic_int(critic_hidden).squeeze(-1)
        return self.actor[2](actor_hidden), value, int_value, hiddens


class RNDModel(nn.Module):
    """A fixed random network (target) and a deeper one that learns its outputs (predictor): new frames have errors."""

    def __init__(self):
        super().__init__()
        self.predictor = nn.Sequential(
            *convolutions(1, nn.LeakyReLU),
            layer_init(nn.Linear(64 * 7 * 7, 512)),
            nn.ReLU(),
            layer_init(nn.Linear(512, 512)),
            nn.ReLU(),
            layer_init(nn.Linear(512, 512)),
        )
        self.target = nn.Sequential(*convolutions(1, nn.LeakyReLU), layer_init(nn.Linear(64 * 7 * 7, 512)))
        self.target.requires_grad_(False)

    def forward(self, frames, moments):
        """Maps frames (B, 84, 84) uint8, normalised by moments (mean, variance, ...), to squared errors (B, 512)."""
        mean, var = moments[:2]
        x = ((frames - mean.float()) / var.sqrt().float()).clamp(-5, 5).unsqueeze(1)
        return (self.predictor(x) - self.target(x)).square()


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


def discounted_sums(rewards, valid, running, gamma):
    """sums[t] = gamma * sums[t - 1] + rewards[t] over time in each game, through the ends of episodes.

    rewards (T, N) float32; valid (T, N) bool: other rows take no time; running (N,): the sums before the first row.
    Returns the sums (T, N) and those of the last row (N,).
    """
    sums = torch.zeros_like(rewards)
    for t in range(rewards.shape[0]):
        sums[t] = running = torch.where(valid[t], gamma * running + rewards[t], running)
    return sums, running


def merge_frame_moments(moments, frames, valid):
    """Adds the valid frames of each step, of the games of all processes, to running moments, one step after the other.

    moments: mean (84, 84), variance (84, 84), count; frames (T, N, 84, 84) uint8; valid (T, N) bool. Returns moments.
    """
    counts = valid.sum(1, dtype=torch.float64)
    sums = torch.stack([row[keep].double().sum(0) for row, keep in zip(frames, valid)])
    devices.add_over_ranks([sums, counts])
    divisors = counts.clamp(min=1)[:, None, None]
    means = sums / divisors
    squares = torch.stack([(row[keep].double() - m).square().sum(0) for row, keep, m in zip(frames, valid, means)])
    for step_moments in zip(means, devices.sum_over_ranks(squares) / divisors, counts.tolist()):
        moments = metrics.join_moments(moments, step_moments)
    return moments


def masked_mean(x, valid, count):
    """The sum of x (..., B) over the rows where `valid` (B,) bool holds, divided by `count`, their number.

    With several processes `count` is of all rows, and each process gets its share of the mean: shares, and their
    gradients, add up to the whole.
    """
    return torch.where(valid, x, 0.0).sum(-1) / count


def normalize_advantages(advantages, valid, learned):
    """Zero mean and unit (unbiased) standard deviation over the valid rows of a minibatch, of all processes.

    advantages (B,) float32, valid (B,) bool; learned (B,) bool: the rows that the predictor learns from. Returns the
    normalised advantages (B,), 0 in other rows, and the numbers of valid and of learned rows (0-d float32, at least 1),
    which the losses divide by.
    """
    sums = torch.stack([torch.where(valid, advantages, 0.0).sum(), valid.sum(), learned.sum()])
    total, count, num_learned = devices.sum_over_ranks(sums)
    centred = torch.where(valid, advantages - total / count.clamp(min=1), 0.0)
    squares = devices.sum_over_ranks(centred.square().sum())
    std = (squares / (count - 1).clamp(min=1)).sqrt()
    return centred / (std + 1e-8), count.clamp(min=1), num_learned.clamp(min=1)


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
        lambda rows: agent(b_obs.index_select(0, rows))[::3], inds, map=workers.map
    )
    policy, kl = metrics.policy_diagnostics(b_logits[inds], logits, b_actions[inds])
    return {**values, **policy, **metrics.weight_norms(agent)}, kl


@torch.no_grad()
def play_games(agent, args, device, seeds, games, bar, greedy=False):
    """Plays one whole game, through all lives, in a fresh environment for each of `games`, indices into `seeds`.

    Actions are sampled as in training, or the most likely ones if `greedy`. The result of a game depends neither on the
    other games of `games` nor on their number. Returns the raw returns, a list of floats. `bar` shows the progress.
    """
    envs = make_envs(args, [seeds[game] for game in games])
    generator = torch.Generator(device).manual_seed(seeds[0])
    obs, _ = envs.reset()
    returns, playing = np.zeros(len(games)), np.ones(len(games), dtype=bool)
    while playing.any():
        logits, _, _, _ = agent(devices.to_device(obs[playing], device).permute(0, 2, 3, 1))
        noise = torch.empty((len(seeds), logits.shape[-1]), device=device)
        noise = noise.exponential_(generator=generator).log_().neg_()[games.start : games.stop][playing]
        actions = np.zeros(len(games), dtype=np.int32)
        actions[playing] = (logits if greedy else logits + noise).argmax(-1).cpu().numpy()
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
    agent = Agent(num_actions, args.shared_encoder, args.bf16).to(device, memory_format=torch.channels_last)
    rnd_model = RNDModel().to(device, memory_format=torch.channels_last)
    parameters = [*agent.parameters(), *rnd_model.predictor.parameters()]
    lr = torch.tensor(args.learning_rate, device=device) if args.cuda_graphs else args.learning_rate
    optimizer = optim.Adam(parameters, lr=lr, eps=1e-5, fused=True, capturable=args.cuda_graphs)
    # all but the first since the last log point
    state = SimpleNamespace(gradient_steps=0, totals=0.0, minibatches=0, explained=[], rewards=0.0, reward_steps=0)
    state.intrinsic, state.rooms = [], []  # means of iterations since the last log point; all rooms ever entered
    state.frame_moments = (torch.zeros(84, 84, device=device), torch.ones(84, 84, device=device), 1e-4)
    state.sums = torch.zeros(args.num_envs, device=device)  # discounted sums of intrinsic rewards, of all games
    state.sum_moments = (*torch.tensor([0.0, 1.0], dtype=torch.float64, device=device), 1e-4)
    if run.global_step == 0:  # random steps start the frames' moments; before restore(), which starts the clock
        size = (args.num_iterations_obs_norm_init, args.num_steps, args.num_envs)
        print(f"{run.path}: {math.prod(size):,} random steps for the frames' mean and variance", flush=True)

        def random_frames(envs, actions):
            return [envs.step(action)[0][:, -1].copy() for action in actions]

        for envs in piece_envs:
            envs.reset()
        for random_actions in np.random.default_rng(args.seed).integers(num_actions, size=size):
            own_actions = random_actions[:, games.start : games.stop].astype(np.int32)
            frames = workers.map(random_frames, piece_envs, [own_actions[:, piece] for piece in game_pieces])
            frames = devices.to_device(np.concatenate(frames, axis=1), device)  # (T, N, 84, 84) uint8
            every = torch.ones(frames.shape[:2], dtype=torch.bool, device=device)
            state.frame_moments = merge_frame_moments(state.frame_moments, frames, every)
            run.exit_if_stopped()
    run.restore(agent=agent, rnd_model=rnd_model, optimizer=optimizer, rng=rng, state=state)

    shape = (args.num_steps, num_envs)  # (T, N)
    obs = torch.zeros((*shape, *OBS_SHAPE), dtype=torch.uint8, device=device)
    actions = torch.zeros(shape, dtype=torch.int64, device=device)
    logits = torch.zeros((*shape, num_actions), device=device)
    values, int_values = (torch.zeros(shape, device=device) for _ in range(2))
    next_value, next_int_value = (torch.zeros(num_envs, device=device) for _ in range(2))
    all_noise = torch.zeros((args.num_steps, args.num_envs, num_actions), device=device)  # of all processes' games
    noise = all_noise[:, games.start : games.stop]
    # rewards[t], raw_rewards[t] and the ends follow actions[t]; valid[t] is of the whole row t
    rewards, raw_rewards = (np.zeros(shape, dtype=np.float32) for _ in range(2))
    terminations, truncations, game_overs, valid = (np.zeros(shape, dtype=bool) for _ in range(4))
    room_bytes, new_rooms = ROOM_BYTES.get(args.env_id), set()
    next_obs = np.concatenate(workers.map(lambda envs: envs.reset()[0], piece_envs))  # (N, 4, 84, 84) uint8
    next_done = np.zeros(num_envs, dtype=bool)
    episode_returns, episode_lengths = np.zeros(num_envs), np.zeros(num_envs, dtype=np.int64)

    forward = devices.compiled(agent, args.compile)

    @torch.no_grad()
    def policy(obs, noise):
        """Samples actions (N,) for obs (N, 84, 84, 4): argmax(logits + Gumbel noise) is a sample of the policy."""
        logits, value, int_value, _ = forward(obs)
        return logits, value, int_value, (logits + noise).argmax(-1)

    def rollout(piece, envs):
        """Plays `envs`, the games of one piece (a slice of all N), for num_steps steps, and values where they end."""
        for step in range(args.num_steps):
            at = (step, piece)
            obs[at] = devices.to_device(next_obs[piece], device).permute(0, 2, 3, 1)
            valid[at] = ~next_done[piece]
            logits[at], values[at], int_values[at], actions[at] = policy(obs[at], noise[at])
            action = actions[at].to("cpu", torch.int32).numpy()
            next_obs[piece], rewards[at], terminations[at], truncations[at], info = envs.step(action)
            next_done[piece] = terminations[at] | truncations[at]
            raw_rewards[at] = info["reward"]  # not clipped; 0 in a reset row
            game_overs[at] = info["terminated"] | truncations[at]  # the game is over, not only a life
            if room_bytes:
                new_rooms.update(map(tuple, info["ram"][:, room_bytes].tolist()))
        last_obs = devices.to_device(next_obs[piece], device).permute(0, 2, 3, 1)
        _, next_value[piece], next_int_value[piece], _ = policy(last_obs, noise[at])

    def minibatch(batch, inds):
        """The rows `inds` of each tensor of the batch, advantages normalised, and all else that the losses need."""
        *rows, advantages, valid, int_returns, frames = (x.index_select(0, inds) for x in batch)
        # the predictor learns from a share of the rows; a generator of its own, so that looking does not change a run
        generator = torch.Generator(device).manual_seed(state.gradient_steps)
        draws = torch.rand(len(inds) * devices.NUM_RANKS, generator=generator, device=device)
        learned = valid & (draws[devices.RANK :: devices.NUM_RANKS] < args.update_proportion)
        normalized, count, num_learned = normalize_advantages(advantages, valid, learned)
        rows += [normalized if args.norm_adv else advantages, valid, int_returns, frames, learned]
        return rows, (count, num_learned, *state.frame_moments[:2])

    def minibatch_loss(mb_obs, *mb):
        *mb_ppo, mb_valid, mb_int_returns, mb_frames, learned, count, num_learned, mean, var = mb
        newlogits, newvalue, new_int_value, _ = agent(mb_obs)
        coefs = (args.clip_coef, args.ent_coef, args.vf_coef, args.clip_vloss)
        loss, losses = ppo_loss(newlogits, newvalue, *mb_ppo, mb_valid, count, *coefs)
        int_v_loss = 0.5 * masked_mean((new_int_value - mb_int_returns).square(), mb_valid, count)
        fwd_loss = masked_mean(rnd_model(mb_frames, (mean, var)).mean(-1), learned, num_learned)
        losses = {**losses, "int_value_loss": int_v_loss.detach(), "fwd_loss": fwd_loss.detach()}
        return loss + args.vf_coef * int_v_loss + fwd_loss, losses

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
        if room_bytes:
            state.rooms = sorted({*state.rooms}.union(*devices.gather(new_rooms)))

        # ---- targets -------------------------------------------------------------------------------------------------
        if not args.mask_resets:
            terminations, truncations, valid = terminations | truncations, np.zeros_like(valid), np.ones_like(valid)
        t_rewards, t_terminations, t_truncations, t_valid = (
            devices.to_device(x, device) for x in (rewards, terminations, truncations, valid)
        )
        with torch.no_grad():
            logprobs = F.log_softmax(logits, dim=-1).gather(-1, actions[..., None]).squeeze(-1)
            # after a done, obs[t + 1] is still the true last observation: the new game shows one row later
            next_values = torch.cat([values[1:], next_value[None]])
            advantages, returns = gae(
                t_rewards, values, t_terminations, t_truncations, next_values, t_valid, args.gamma, args.gae_lambda
            )
            # RND: the frames that the steps led to earn intrinsic rewards, and the predictor learns them
            last_frames = devices.to_device(next_obs[:, -1], device)
            frames = torch.cat([obs[1:, ..., -1], last_frames[None]])  # (T, N, 84, 84) uint8
            int_rewards = torch.stack([rnd_model(row, state.frame_moments).sum(-1) / 2 for row in frames])
            state.frame_moments = merge_frame_moments(state.frame_moments, frames, t_valid)
            # the unit of the intrinsic rewards is of the games of all processes
            parts = zip(*devices.gather((int_rewards.cpu(), t_valid.cpu())))
            all_rewards, all_valid = (torch.cat(part, 1).to(device) for part in parts)
            state.intrinsic.append(masked_mean(all_rewards.flatten(), all_valid.flatten(), all_valid.sum()).item())
            sums, state.sums = discounted_sums(all_rewards, all_valid, state.sums, args.int_gamma)
            state.sum_moments = metrics.merge_moments(state.sum_moments, sums[all_valid].double())
            scaled_rewards = int_rewards / state.sum_moments[1].sqrt()
            # intrinsic episodes never end: the row before a reset row leads to the first observation of the next life
            next_int_values = torch.cat([int_values[1:], next_int_value[None]])
            next_int_values[:-1] = torch.where(t_valid[1:], next_int_values[:-1], next_int_values[1:])
            never = torch.zeros_like(t_valid)
            int_advantages, int_returns = gae(
                scaled_rewards, int_values, never, never, next_int_values, t_valid, args.int_gamma, args.gae_lambda
            )
            advantages = args.int_coef * int_advantages + args.ext_coef * advantages
        tensors = (obs, actions, logprobs, values, returns, advantages, t_valid, int_returns, frames)
        batch = [x.flatten(0, 1) for x in tensors]
        b_obs, b_actions, b_logprobs, b_values, b_returns, _, b_valid, *_ = batch

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
        suspects = {"rewards": t_rewards, "int_rewards": int_rewards, "logits": logits, "values": values}
        suspects.update(int_values=int_values, advantages=advantages)
        suspects.update(zip(losses, state.totals))
        suspects["parameters"] = nn.utils.get_total_norm(parameters)
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

        # ---- log -----------------------------------------------------------------------------------------------------
        if log_point:
            inds = probe_inds[metrics.stratified_rows(len(probe_inds), run.coverage_quota(), seed=run.global_step)]
            with torch.no_grad():
                _, ext_values, row_int_values, hiddens = agent(b_obs.index_select(0, inds))
            run.add_coverage(
                frame=b_obs[inds, :, :, -1].cpu().numpy(),
                feature=hiddens[0][-1].cpu().numpy().astype(np.float16),
                value=(args.ext_coef * ext_values + args.int_coef * row_int_values).cpu().numpy(),
            )
            scalars.update(run.charts())
            scalars["charts/reward"] = devices.ratio_of_sums(state.rewards, state.reward_steps)
            scalars["charts/intrinsic_reward"] = float(np.mean(state.intrinsic))
            state.intrinsic = []
            if room_bytes:
                scalars["charts/rooms"] = len(state.rooms)
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
