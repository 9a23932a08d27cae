"""How correlated are PPO's per-sample gradients along a trajectory, and what does that cost? Pendulum-v1, minutes.

    python scripts/gradient_correlation.py --out results/gradient_correlation

Remakes the experiments of the blog post "Effect of Parallel Environments and Rollout Steps in PPO" (P2), with
intervals, and measures what it only states. PPO is trained on EnvPool's Pendulum-v1, its batch of 1024 steps once as 4
environments x 256 steps and once as 16 x 64, with several seeds. At checkpoints, before the update, when every ratio is
1 and PPO's gradient is the plain policy gradient, torch.func gives the gradient of each sample,

    g_i = A_i grad log pi(a_i | s_i),      G = (1 / NT) sum_i g_i,

over the policy's 4,482 parameters; A is GAE's advantage as it is, neither centred nor scaled. G is of ascent: the
post's has the other sign, which no cosine and no variance sees. Choices that the post leaves open:

1. PPO: two tanh layers of 64 each for actor and critic, a log-std that no state changes, gamma 0.99, lambda 0.95, Adam
   at 3e-4 falling to 0, 10 epochs of minibatches of 256, advantages normalised per minibatch (in training only).
   Observations are divided by (1, 1, 8) and rewards by 50: constants, so that gradients compare across checkpoints.
2. EnvPool clips actions to [-2, 2]; log pi is of the action as sampled. Episodes are cut after 200 steps, and that
   bootstraps from the value of the true last observation. The row after it only resets: here it is no sample.
3. A pair of lag k within a trajectory is rows t and t + k of one environment and one episode. A pair across
   trajectories is the same row t and row t + k of another environment: the lag is in both, only the trajectory differs.
4. "Five batches from the rollout buffer" is read in both ways: five disjoint random minibatches of one rollout, and
   five fresh rollouts of the frozen policy.
5. Fresh batches are cut from episodes of the frozen policy, each its own draw, joined by reset rows as in training. In
   training all environments start together, so a batch sees one phase of the episode (`together`); with a phase of its
   own for each (`staggered`) environments are independent, as the post assumes. Phases are uniform in both.
6. The true gradient has, for the same states and actions, the advantage of the rewards that follow, past step 200 (the
   environment simulates on), until gamma^k < 0.01; V of the last state there stands for the rest.
"""

import contextlib
import io
import itertools
import math
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
import warnings
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Tuple

import envpool
import matplotlib
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
import tyro
from torch.func import grad, vmap
from tqdm import tqdm

warnings.filterwarnings("ignore", message=".*precision lowered by casting.*")  # gymnasium, of Pendulum's own bounds
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402 (after the backend is chosen)

SETTINGS = ((4, 256), (16, 64))  # (N, T) of the post: the same batch
BATCH = 1024
EPISODE = 200  # steps before Pendulum's time limit
POST_STEPS = (399360, 450560)  # the environment steps that the post shows
CYCLE = EPISODE + 1  # rows of an episode and its reset row
STRIP = 256  # rows of a fresh strip: one environment's share of a 4 x 256 batch, or four shares of 16 x 64
BIAS_STEPS = (8, 16, 64, 256)  # rollout lengths T whose bias is measured
GROUP = 16  # strips in a group: what 16 x 64 needs, and four batches of either shape
OBS_SCALE = torch.tensor([1.0, 1.0, 1 / 8])  # cos, sin, angular velocity: into [-1, 1]
REWARD_SCALE = 1 / 50
TABLES = ("returns", "lag_curve", "lag_density", "mean_cosine", "mean_density", "batch_cosines", "variance", "bias")


# ---- Args ------------------------------------------------------------------------------------------------------------
@dataclass
class Args:
    out: Path = Path("results/gradient_correlation")  # the directory that receives tables and figures
    seeds: Tuple[int, ...] = (1, 2, 3, 4)  # a training run each, in both settings
    steps: int = 501760  # environment steps of a run, over all environments: a multiple of 1024
    checkpoints: int = 20  # measured points of a run, evenly spaced back from its end: of 20, two are the post's
    fresh_every: int = 4  # every how many of them fresh rollouts are made (variance, bias, heat maps)
    groups: int = 16  # fresh rollouts at such a point: groups of 4 batches of 1024 steps, in each shape
    lags: Tuple[int, ...] = (1, 3, 5, 7, 10, 40)  # steps between the two gradients of a pair
    lambdas: Tuple[float, ...] = (0.0, 0.5, 0.95, 1.0)  # GAE's lambda in the measurements
    main_lambda: float = 0.95  # GAE's lambda in the training, and in what is not drawn against it
    gamma: float = 0.99  # the discount factor
    learning_rate: float = 3e-4  # the learning rate of Adam, falling linearly to 0
    update_epochs: int = 10  # passes over each batch
    minibatch_size: int = 256  # rows per minibatch
    clip_coef: float = 0.2  # the clipping coefficient of the policy ratio
    vf_coef: float = 0.5  # the coefficient of the value loss
    max_grad_norm: float = 0.5  # the gradient's norm is clipped to this
    resamples: int = 4000  # draws of a bootstrap
    workers: int = 2  # processes, of one thread each
    redraw: bool = False  # neither trains nor measures: findings and figures from the tables that stand in --out


# ---- networks --------------------------------------------------------------------------------------------------------
def init_mlp(sizes, last_std, generator):
    """Weights w (in, out), orthogonal, and biases b (1, out) of a tanh network, by name."""
    params = {}
    for i, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
        std = last_std if i == len(sizes) - 2 else 2**0.5
        weight = torch.nn.init.orthogonal_(torch.empty(fan_out, fan_in), std, generator=generator)
        params[f"w{i}"], params[f"b{i}"] = weight.T.contiguous(), torch.zeros(1, fan_out)
    return params


def mlp(params, x):
    """Maps x (..., B, in) to (..., B): params may have leading dimensions too, one network for each of x's."""
    for i in range(3):
        x = x @ params[f"w{i}"] + params[f"b{i}"]
        x = x.tanh() if i < 2 else x
    return x.squeeze(-1)


def init_agent(seed):
    """Actor (with its log-std) and critic of one training run: {name: parameter} each."""
    generator = torch.Generator().manual_seed(seed)
    actor = {**init_mlp((3, 64, 64, 1), 0.01, generator), "logstd": torch.zeros(1)}
    return actor, init_mlp((3, 64, 64, 1), 1.0, generator)


def log_prob(actor, obs, actions):
    """Log-density (..., B) of actions (..., B) at obs (..., B, 3)."""
    z = (actions - mlp(actor, obs)) * (-actor["logstd"]).exp()
    return -0.5 * z.square() - actor["logstd"] - 0.5 * math.log(2 * math.pi)


# ---- PPO -------------------------------------------------------------------------------------------------------------
def make_envs(num_envs, seeds, max_episode_steps=EPISODE):
    return envpool.make(
        "Pendulum-v1",
        env_type="gymnasium",
        num_envs=num_envs,
        num_threads=1,
        env_seed=seeds,
        max_episode_steps=max_episode_steps,
    )


def advantages(deltas, cuts, decay):
    """GAE (Schulman et al. 2016, eq. 16) from TD errors: A_t = delta_t + decay (1 - cut_t) A_{t+1}, over axis 0.

    Pendulum never terminates, so an episode's end is only a cut (bool): its delta bootstraps like any other. decay =
    gamma lambda. All broadcast to the result's shape (T, ...). A reset row follows a cut, so whatever it holds stays in
    it."""
    shape = torch.broadcast_shapes(deltas.shape, cuts.shape, torch.as_tensor(decay).shape)
    out, last, carry = torch.empty(shape), torch.zeros(shape[1:]), decay * ~cuts
    for t in reversed(range(shape[0])):
        out[t] = last = torch.addcmul(deltas[t].expand(shape[1:]), carry[t], last)
    return out


def seeds_for(count, *names):
    """`count` seeds for environments, of their own for each tuple of integers `names`."""
    return [int(x) for x in np.random.SeedSequence(names).generate_state(count) % 2**31]


def train(args, num_envs, num_steps):
    """PPO with every seed at once: each is a row of the parameters' leading axis S, and none sees another.

    Returns checkpoints, and (seed, step, return) of each episode. A checkpoint has "seed", "step", "num_envs", "actor",
    "critic" and the batch that this policy has just collected, before any update: obs (T + 1, N, 3) scaled, actions
    (T, N), rewards (T, N) scaled, cuts (T, N) bool: the episode ends here, valid (T, N) bool: no reset row."""
    torch.set_num_threads(1)
    S, N, T = len(args.seeds), num_envs, num_steps
    actor, critic = (
        {
            name: torch.stack([agent[i][name] for agent in map(init_agent, args.seeds)]).requires_grad_()
            for name in init_agent(0)[i]
        }
        for i in (0, 1)
    )
    parameters = [*actor.values(), *critic.values()]
    optimizer = torch.optim.Adam(parameters, lr=args.learning_rate, eps=1e-5, fused=True)
    generators = [torch.Generator().manual_seed(s) for seed in args.seeds for s in seeds_for(1, seed, N, 1)]
    env_seeds = [s for seed in args.seeds for s in seeds_for(N, seed, N, 2)]
    envs = make_envs(S * N, env_seeds)
    next_obs, _ = envs.reset()
    next_done, running, episodes, checkpoints = np.zeros(S * N, bool), np.zeros(S * N), [], []
    num_iterations = args.steps // BATCH
    measured = checkpoint_iterations(args)

    for iteration in range(1, num_iterations + 1):
        tick("train")
        optimizer.param_groups[0]["lr"] = args.learning_rate * (1 - (iteration - 1) / num_iterations)
        obs = torch.empty(S, T + 1, N, 3)
        actions, rewards = torch.empty(S, T, N), torch.empty(S, T, N)
        cuts, valid = torch.empty(S, T, N, dtype=torch.bool), torch.empty(S, T, N, dtype=torch.bool)
        with torch.no_grad():
            noise = torch.stack([torch.randn(T, N, generator=generator) for generator in generators])
            noise *= actor["logstd"].exp()[..., None]
            for t in range(T):
                obs[:, t] = torch.from_numpy(next_obs).view(S, N, 3) * OBS_SCALE
                valid[:, t] = torch.from_numpy(~next_done).view(S, N)
                actions[:, t] = mlp(actor, obs[:, t]) + noise[:, t]
                next_obs, reward, _, next_done, _ = envs.step(actions[:, t].reshape(S * N, 1).numpy())
                rewards[:, t] = torch.from_numpy(reward).view(S, N) * REWARD_SCALE
                cuts[:, t] = torch.from_numpy(next_done).view(S, N)
                running += reward
                for i in np.flatnonzero(next_done):
                    episodes.append((args.seeds[i // N], (iteration - 1) * BATCH + (t + 1) * N, running[i]))
                    running[i] = 0.0
            obs[:, T] = torch.from_numpy(next_obs).view(S, N, 3) * OBS_SCALE
            values = mlp(critic, obs.flatten(1, 2)).view(S, T + 1, N)
            deltas = rewards + args.gamma * values[:, 1:] - values[:, :-1]
            decay = args.gamma * args.main_lambda
            adv = advantages(deltas.transpose(0, 1), cuts.transpose(0, 1), decay).transpose(0, 1)
            b_obs, b_actions = obs[:, :-1].flatten(1, 2), actions.flatten(1)
            b_adv, b_returns = adv.flatten(1), (adv + values[:, :-1]).flatten(1)
            b_logprobs = log_prob(actor, b_obs, b_actions)
        if iteration in measured:
            for i, seed in enumerate(args.seeds):
                networks = {
                    name: {key: p[i].detach().numpy().copy() for key, p in network.items()}
                    for name, network in (("actor", actor), ("critic", critic))
                }
                batch = {
                    name: x[i].numpy().copy()
                    for name, x in (
                        ("obs", obs),
                        ("actions", actions),
                        ("rewards", rewards),
                        ("cuts", cuts),
                        ("valid", valid),
                    )
                }
                checkpoints.append({"seed": seed, "step": iteration * BATCH, "num_envs": N, **networks, **batch})

        rows = valid[0].flatten().nonzero()[:, 0]  # environments start together: the reset rows of all seeds coincide
        for _epoch in range(args.update_epochs):
            order = torch.stack([rows[torch.randperm(len(rows), generator=generator)] for generator in generators])
            for mb_inds in order.split(args.minibatch_size, 1):
                mb_obs = b_obs.gather(1, mb_inds[..., None].expand(-1, -1, 3))
                mb_actions, mb_adv, mb_returns, mb_logprobs = (
                    x.gather(1, mb_inds) for x in (b_actions, b_adv, b_returns, b_logprobs)
                )
                mb_adv = (mb_adv - mb_adv.mean(1, keepdim=True)) / (mb_adv.std(1, keepdim=True) + 1e-8)
                ratio = (log_prob(actor, mb_obs, mb_actions) - mb_logprobs).exp()
                clipped = ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
                pg_loss = torch.max(-mb_adv * ratio, -mb_adv * clipped).mean(1)
                v_loss = 0.5 * (mlp(critic, mb_obs) - mb_returns).square().mean(1)
                grads = torch.autograd.grad((pg_loss + args.vf_coef * v_loss).sum(), parameters)
                norms = torch.stack([g.flatten(1).square().sum(1) for g in grads]).sum(0).sqrt()  # (S,): of each run
                shrink = (args.max_grad_norm / (norms + 1e-6)).clamp(max=1.0)
                for p, g in zip(parameters, grads):
                    p.grad = g * shrink.view(S, *[1] * (g.ndim - 1))
                optimizer.step()
    return checkpoints, episodes


def checkpoint_iterations(args):
    """Iterations that are measured, evenly spaced back from the last: by default 15, 40, … 390, … 440, … 490."""
    num_iterations = args.steps // BATCH
    return list(range(num_iterations, 0, -math.ceil(num_iterations / args.checkpoints)))[::-1]


def fresh_iterations(args):
    """Those of them at which fresh rollouts are made: every fresh_every-th, in step with the one next to the post's."""
    measured = checkpoint_iterations(args)
    return measured[measured.index(focus_iterations(args)[-1]) % args.fresh_every :: args.fresh_every]


def focus_iterations(args):
    """The measured iterations that are nearest to the two that the post shows."""
    return [min(checkpoint_iterations(args), key=lambda i, step=step: abs(i * BATCH - step)) for step in POST_STEPS]


# ---- gradients -------------------------------------------------------------------------------------------------------
def score_gradients(actor, obs, actions):
    """grad log pi(a_i | s_i) of each row, flattened: obs (B, 3), actions (B,) -> (B, P). A g_i is A_i times its row."""

    def one(params, ob, action):
        return log_prob(params, ob[None], action[None])[0]

    grads = vmap(grad(one), in_dims=(None, 0, 0))(actor, obs, actions)
    return torch.cat([grads[name].flatten(1) for name in actor], 1)


def cosine_matrix(means):
    """Cosines (R, R) between the rows of means (R, P)."""
    return F.normalize(means.double(), dim=1) @ F.normalize(means.double(), dim=1).T


# ---- correlation -----------------------------------------------------------------------------------------------------
def pairs(valid, cuts, lag):
    """Index pairs of lag `lag` into the valid rows, counted in the order of (T, N): within and across trajectories.

    valid, cuts (T, N) bool. Returns two arrays (2, pairs): t and t + lag of one environment and one episode; and the
    same rows t with the rows t + lag of each other environment."""
    T, N = valid.shape
    position = np.cumsum(valid.ravel()).reshape(T, N) - 1
    episode = np.cumsum(cuts, 0) - cuts  # ends before row t; the reset row counts to the next episode and is not valid
    both = valid[:-lag] & valid[lag:] & (episode[:-lag] == episode[lag:])
    t, n = np.nonzero(both)
    within = np.stack([position[t, n], position[t + lag, n]])
    t, n, other = (np.repeat(t, N), np.repeat(n, N), np.tile(np.arange(N), len(t)))
    keep = (other != n) & valid[t + lag, other]
    across = np.stack([position[t, n], position[t + lag, other]])[:, keep]
    return within, across


def gram_centered(gram):
    """Inner products of rows minus their mean, from the inner products (B, B) of the rows."""
    means = gram.mean(0)
    return gram - means[:, None] - means[None, :] + means.mean()


def batch_correlations(args, checkpoint):
    """What the training's own batch shows at one checkpoint: records for the tables lag_curve, batch_cosines,
    cosine_to_mean and the histograms of both cosines, for every lambda."""
    actor, critic, obs, actions, rewards = (
        to_torch(checkpoint[x]) for x in ("actor", "critic", "obs", "actions", "rewards")
    )
    cuts, valid = checkpoint["cuts"], checkpoint["valid"]
    values = mlp(critic, obs.flatten(0, 1)).view(obs.shape[:2])
    deltas = rewards + args.gamma * values[1:] - values[:-1]
    rows = torch.from_numpy(valid.ravel())
    scores = score_gradients(actor, obs[:-1].flatten(0, 1)[rows], actions.flatten()[rows])
    score_gram = (scores @ scores.T).double()
    lag_pairs = {lag: pairs(valid, cuts, lag) for lag in args.lags}
    shuffled = np.random.default_rng(seeds_for(1, checkpoint["seed"], checkpoint["step"], 3)).permutation(len(scores))
    parts = torch.zeros(5, len(scores), dtype=torch.float64)
    for part, inds in zip(parts, shuffled[: len(scores) // 5 * 5].reshape(5, -1)):
        part[inds] = 1.0
    records = {name: [] for name in ("lag_curve", "lag_density", "batch_cosines", "mean_cosine", "mean_density")}
    key = key_of(checkpoint)
    for lam in args.lambdas:
        adv = advantages(deltas, torch.from_numpy(cuts), args.gamma * lam).flatten()[rows].double()
        gram = score_gram * adv[:, None] * adv[None, :]
        centered = gram_centered(gram)
        norms = centered.diagonal().sqrt()
        cosines = (centered / norms[:, None] / norms[None, :]).numpy()
        for lag, kinds in lag_pairs.items():
            for kind, (i, j) in zip(("within", "across"), kinds):
                labels, cosine = {**key, "lambda": lam, "lag": lag, "kind": kind}, cosines[i, j]
                records["lag_density"] += histogram(cosine, labels)
                if len(i):  # 64 rows with an episode's end in the middle have no pair of lag 40
                    covariance = centered.numpy()[i, j].mean() / norms.square().mean().item()
                    records["lag_curve"].append(
                        {
                            **labels,
                            "pairs": len(i),
                            "cosine": cosine.mean(),
                            "absolute": np.abs(cosine).mean(),
                            "covariance": covariance,
                        }
                    )
        to_mean = (gram.mean(0) / gram.diagonal().sqrt() / gram.mean().sqrt()).numpy()
        records["mean_cosine"].append(
            {
                **key,
                "lambda": lam,
                "mean": to_mean.mean(),
                "rms": np.sqrt(np.square(to_mean).mean()),
                "abs": np.abs(to_mean).mean(),
            }
        )
        records["mean_density"] += histogram(to_mean, {**key, "lambda": lam})
        inner = parts @ gram @ parts.T
        cosine = inner / inner.diagonal().sqrt()[:, None] / inner.diagonal().sqrt()[None, :]
        records["batch_cosines"] += heat_map(cosine, {**key, "lambda": lam, "kind": "minibatches"})
    return records


def to_torch(x):
    """Arrays, or dicts of them, as tensors."""
    return {name: torch.from_numpy(array) for name, array in x.items()} if isinstance(x, dict) else torch.from_numpy(x)


def key_of(checkpoint):
    """The columns that every table begins with."""
    return {
        "setting": f"{checkpoint['num_envs']}x{BATCH // checkpoint['num_envs']}",
        "seed": checkpoint["seed"],
        "step": checkpoint["step"],
    }


def histogram(x, key, bins=50):
    """Counts of cosines in `bins` equal parts of [-1, 1], as records."""
    counts, edges = np.histogram(x, bins, (-1.0, 1.0))
    return [{**key, "cosine": round((a + b) / 2, 3), "count": int(n)} for a, b, n in zip(edges, edges[1:], counts)]


def heat_map(cosines, key):
    """The entries above the diagonal of a matrix of cosines, as records."""
    return [
        {**key, "i": i, "j": j, "cosine": float(cosines[i, j])}
        for i, j in itertools.combinations(range(len(cosines)), 2)
    ]


# ---- variance and bias -----------------------------------------------------------------------------------------------
def variance_split(sums, counts, squares, batch, group, resamples, seed):
    """Splits the variance of a batch's mean gradient, Tr Cov(G), into the two terms of the post.

    A segment is one environment's rows of one batch. sums (K, P): of its gradients; counts (K,): its rows; squares
    (K,): its sum of |g|^2; batch (K,) int: its batch, of R; group (R,) int: batches of two groups are independent.
    `variance`: half the mean squared distance of two batches of different groups, unbiased whatever the dependence
    within a group. `individual`: E|g - mu|^2 / NT. `covariance`: their difference, Term 2. `within`: the part of it
    between rows of one segment, measured for itself from the segments' sums; the rest is between environments. `ess`:
    individual / variance, the effective sample size in shares of NT; its interval is a bootstrap over the groups.
    Returns these, and the batches' means (R, P)."""
    sums, counts, squares = sums.double(), counts.double(), squares.double()
    R = len(group)
    batch_counts = torch.zeros(R, dtype=torch.float64).index_add_(0, batch, counts)
    means = torch.zeros(R, sums.shape[1], dtype=torch.float64).index_add_(0, batch, sums) / batch_counts[:, None]
    mu, size = sums.sum(0) / counts.sum(), batch_counts.mean()
    spread = squares.sum() - counts.sum() * mu.square().sum()  # sum of |g - mu|^2
    individual = spread / counts.sum() / size
    within = ((sums - counts[:, None] * mu).square().sum() - spread) / R / size.square()
    inner = (means - mu) @ (means - mu).T
    distances = inner.diagonal()[:, None] + inner.diagonal()[None, :] - 2 * inner
    apart = (group[:, None] != group[None, :]).double()
    variance = 0.5 * (distances * apart).sum() / apart.sum()
    # by group, for the bootstrap: pairs of the same group, also of two draws of it, are left out
    G = int(group.max()) + 1
    member = F.one_hot(group, G).double()
    by_group, pairs_by_group = member.T @ (distances * apart) @ member, member.T @ apart @ member
    draws = np.random.default_rng(seed).multinomial(G, np.full(G, 1 / G), resamples)
    draws = torch.from_numpy(draws).double()
    drawn = 0.5 * ((draws @ by_group) * draws).sum(1) / ((draws @ pairs_by_group) * draws).sum(1)
    low, high = np.nanpercentile((individual / drawn).numpy(), [2.5, 97.5])
    cosines = cosine_matrix(means)[apart.bool()]
    return {
        "variance": variance.item(),
        "individual": individual.item(),
        "covariance": (variance - individual).item(),
        "within": within.item(),
        "ess": (individual / variance).item(),
        "ess_low": low,
        "ess_high": high,
        "cosine_mean": cosines.mean().item(),
        "cosine_sd": cosines.std().item(),
        "cosine_negative": (cosines < 0).double().mean().item(),
    }, means


def unbiased_inner(a, b):
    """Estimates <E a, E b> without bias from paired independent rows a, b (R, P): the mean over pairs of two rows."""
    a, b = a.double(), b.double()
    R = len(a)
    return (((a.sum(0) @ b.sum(0)) - (a * b).sum()) / (R * (R - 1))).item()


def simulate(actor, critic, num_episodes, horizon, seed, gamma):
    """Independent episodes of the policy, simulated on past their time limit. Returns, all (EPISODE, E): obs (…, 3),
    actions, TD errors, true advantages: with the rewards of at least `horizon` more steps."""
    length = EPISODE + horizon
    envs = make_envs(num_episodes, seeds_for(num_episodes, *seed, 4), length + 1)
    generator = torch.Generator().manual_seed(seeds_for(1, *seed, 5)[0])
    next_obs, _ = envs.reset()
    obs = torch.empty(length + 1, num_episodes, 3)
    actions, rewards = torch.empty(length, num_episodes), torch.empty(length, num_episodes)
    obs[0] = torch.from_numpy(next_obs) * OBS_SCALE
    for t in range(length):
        actions[t] = mlp(actor, obs[t]) + actor["logstd"].exp() * torch.randn(num_episodes, generator=generator)
        next_obs, reward, _, _, _ = envs.step(actions[t][:, None].numpy())
        obs[t + 1], rewards[t] = torch.from_numpy(next_obs) * OBS_SCALE, torch.from_numpy(reward) * REWARD_SCALE
    values = torch.stack([mlp(critic, x) for x in obs])
    deltas = rewards + gamma * values[1:] - values[:-1]
    truth = advantages(deltas, torch.zeros(length, 1, dtype=torch.bool), gamma)
    explained = 1 - truth[:EPISODE].var() / (truth + values[:-1])[:EPISODE].var()
    return obs[:EPISODE], actions[:EPISODE], deltas[:EPISODE], truth[:EPISODE], explained.item()


def fresh_rollouts(args, checkpoint):
    """Variance and bias of the gradient of one frozen policy: records for the tables variance, bias, batch_cosines.

    L strips of STRIP rows are laid over the episodes, three of its own for each. Four strips are a batch of 4 x 256;
    sixteen quarters are a batch of 16 x 64: the same rows of the same policy, only the shape differs."""
    actor, critic = to_torch(checkpoint["actor"]), to_torch(checkpoint["critic"])
    names, key = (checkpoint["seed"], checkpoint["num_envs"], checkpoint["step"]), key_of(checkpoint)
    L, lambdas = args.groups * GROUP, torch.tensor(args.lambdas)
    horizon = math.ceil(math.log(0.01) / math.log(args.gamma)) if 0 < args.gamma < 1 else 1
    obs, actions, deltas, truth, explained = simulate(actor, critic, 3 * L, horizon, names, args.gamma)
    records = {"variance": [], "bias": [], "batch_cosines": []}
    rng = np.random.default_rng(seeds_for(1, *names, 6))
    lanes = np.arange(L)
    group = torch.arange(4 * args.groups) // 4  # of a batch
    for start in ("staggered", "together"):
        phases = rng.integers(CYCLE, size=L) if start == "staggered" else rng.integers(CYCLE, size=L)[lanes // GROUP]
        position = phases[:, None] + np.arange(STRIP)
        valid = torch.from_numpy(position % CYCLE < EPISODE)  # (L, STRIP), like all below
        place = np.minimum(position % CYCLE, EPISODE - 1), 3 * lanes[:, None] + position // CYCLE
        ends = torch.from_numpy(place[0] == EPISODE - 1)
        lengths = BIAS_STEPS if start == "staggered" else tuple(T for _, T in SETTINGS)
        cuts = torch.stack([ends | (torch.arange(1, STRIP + 1) % T == 0) for T in lengths])  # (W, L, STRIP)
        decay = args.gamma * lambdas[:, None]
        adv = advantages(deltas[place].T[:, None, None], cuts.permute(2, 0, 1)[:, :, None], decay)
        weights = adv.flatten(1, 2).permute(2, 1, 0)  # (STRIP, W, lambdas, L) -> (L, W lambdas, STRIP)
        weights = torch.cat([weights, truth[place][:, None]], 1) * valid[:, None]
        index = {T: slice(w * len(lambdas), (w + 1) * len(lambdas)) for w, T in enumerate(lengths)}

        sums, squares, totals = {T: [] for _, T in SETTINGS}, [], []
        for chunk in torch.arange(L).split(4):
            scores = score_gradients(actor, obs[place][chunk].flatten(0, 1), actions[place][chunk].flatten())
            norms = scores.square().sum(1).view(4, 1, STRIP)
            squares.append((weights[chunk].square() * norms).view(4, -1, 4, STRIP // 4).sum(-1))  # by quarter
            for _, T in SETTINGS:
                w = weights[chunk, index[T]].unflatten(2, (-1, T)).transpose(1, 2).flatten(0, 1)
                sums[T].append(w @ scores.view(-1, T, scores.shape[1]))  # (4 STRIP / T, lambdas, P)
            if start == "staggered":
                totals.append(weights[chunk].transpose(0, 1).flatten(1) @ scores)  # (W lambdas + 1, P), of four strips
        squares = torch.cat(squares)  # (L, W lambdas + 1, 4)

        for N, T in SETTINGS:
            pieces = STRIP // T
            batch = torch.from_numpy((lanes // GROUP * 4 + lanes % GROUP // N * pieces)[:, None] + np.arange(pieces))
            counts = valid.unflatten(1, (pieces, T)).sum(-1).flatten()
            for i, lam in enumerate(args.lambdas):
                square = squares[:, index[T]][:, i].unflatten(1, (pieces, -1)).sum(-1).flatten()
                stats, means = variance_split(
                    torch.cat(sums[T])[:, i],
                    counts,
                    square,
                    batch.flatten(),
                    group,
                    args.resamples,
                    seeds_for(1, *names, 7),
                )
                labels = {**key, "start": start, "shape": f"{N}x{T}", "lambda": lam}
                records["variance"].append({**labels, **stats})
                five = cosine_matrix(means[::4][:5])  # one batch of each of five groups: independent
                records["batch_cosines"] += heat_map(
                    five, {**key, "lambda": lam, "shape": f"{N}x{T}", "kind": f"fresh, {start}"}
                )
        if start == "staggered":
            totals = torch.stack(totals, 1).double() / (valid.sum() / len(totals))  # (W lambdas + 1, batches, P)
            for T in lengths:
                for i, lam in enumerate(args.lambdas, index[T].start):
                    g, true = totals[i], totals[-1]
                    spread = squares[:, i].sum() / valid.sum() - g.mean(0).square().sum()
                    records["bias"].append(
                        {
                            **key,
                            "T": T,
                            "lambda": lam,
                            "bias2": unbiased_inner(g - true, g - true),
                            "truth2": unbiased_inner(true, true),
                            "norm2": unbiased_inner(g, g),
                            "inner": unbiased_inner(g, true),
                            "sample_variance": spread.item(),
                            "explained": explained,
                        }
                    )
    return records


# ---- all runs --------------------------------------------------------------------------------------------------------
def init_worker(queue, stopped):
    """Ctrl-C reaches every process of a terminal: only the first one, which tells the rest, is to hear it."""
    global ticks, stop
    ticks, stop = queue, stopped
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)


def tick(phase):
    """Tells the first process that a unit of work begins; ends this one if it was stopped or is gone."""
    if stop.is_set() or not multiprocessing.parent_process().is_alive():
        raise SystemExit
    ticks.put(phase)


def measure(args, checkpoint, fresh):
    """All that one checkpoint shows: {table: records}."""
    tick("measure")
    with torch.no_grad():
        records = batch_correlations(args, checkpoint)
        if fresh:
            for name, rows in fresh_rollouts(args, checkpoint).items():
                records[name] = records.get(name, []) + rows
    return records


def run_all(args):
    """Trains and measures on `workers` processes. Returns {name: DataFrame}, the same however many they are."""
    context = multiprocessing.get_context("spawn")
    queue, stopped = context.Queue(), context.Event()
    measured, fresh = checkpoint_iterations(args), fresh_iterations(args)
    units = {"train": len(SETTINGS) * (args.steps // BATCH), "measure": len(SETTINGS) * len(args.seeds) * len(measured)}
    pool = ProcessPoolExecutor(args.workers, context, init_worker, (queue, stopped))
    # Ctrl-C is noted here and raised in collect: raised inside the pool's locks, it could leave one locked for ever
    heard = []
    before = signal.signal(signal.SIGINT, lambda *_: heard.append(True))
    try:
        runs = collect([pool.submit(train, args, *setting) for setting in SETTINGS], queue, units, "train", heard)
        checkpoints = [checkpoint for run, _ in runs for checkpoint in run]
        returns = [
            {"setting": f"{N}x{T}", "seed": seed, "step": step, "return": value}
            for (N, T), (_, episodes) in zip(SETTINGS, runs)
            for seed, step, value in episodes
        ]
        results = collect(
            [
                pool.submit(measure, args, checkpoint, checkpoint["step"] // BATCH in fresh)
                for checkpoint in checkpoints
            ],
            queue,
            units,
            "measure",
            heard,
        )
    finally:
        stopped.set()
        pool.shutdown(cancel_futures=True)
        signal.signal(signal.SIGINT, before)
    tables = {"returns": pd.DataFrame(returns)}
    for name in ("lag_curve", "mean_cosine", "batch_cosines", "variance", "bias"):
        tables[name] = pd.DataFrame([row for result in results for row in result.get(name, [])])
    focus = [i * BATCH for i in focus_iterations(args)]
    for name, columns in (("lag_density", ["lambda", "lag", "kind"]), ("mean_density", ["lambda"])):
        rows = pd.DataFrame([row for result in results for row in result[name] if row["step"] in focus])
        tables[name] = rows.groupby(["setting", "step", *columns, "cosine"], as_index=False)["count"].sum()
    return tables


def collect(futures, queue, units, phase, heard):
    """The results of futures, in their order, with a progress bar on a terminal and ten lines elsewhere.
    Raises KeyboardInterrupt once `heard` is not empty."""
    terminal = sys.stderr.isatty()
    bar = tqdm(total=units[phase], desc=phase, disable=not terminal, smoothing=0.1)
    start, told = time.time(), 0
    while True:
        finished, running = wait(futures, timeout=0.5, return_when=FIRST_EXCEPTION)
        if heard:
            raise KeyboardInterrupt
        while not queue.empty():
            queue.get()
            bar.update() if terminal else None
            told += 1
            if not terminal and told % max(1, units[phase] // 10) == 0:
                print(f"{phase}: {told}/{units[phase]}, {time.time() - start:.0f} s", file=sys.stderr, flush=True)
        for future in finished:
            future.result()  # raises what it raised
        if not running:
            bar.close()
            return [future.result() for future in futures]


# ---- findings --------------------------------------------------------------------------------------------------------
def cube(table, column, **where):
    """The column's values as (seeds, checkpoints), of the rows where all columns of `where` have their value; nan where
    there is none."""
    rows = table[np.logical_and.reduce([table[name] == value for name, value in where.items()])]
    values = rows.pivot(index="seed", columns="step", values=column)
    return values.reindex(index=sorted(table["seed"].unique()), columns=sorted(table["step"].unique())).to_numpy()


def hierarchical_bootstrap(statistic, arms, resamples):
    """A statistic of means, and its 95 % interval. Each of `arms` (seeds, checkpoints, C) is resampled by seeds, and
    within each drawn seed by checkpoints; its C columns stay together. statistic maps arrays (B, C), one an arm, to
    (B,)."""
    rng = np.random.default_rng(0)
    drawn = []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Mean of empty slice")  # nan then: undecided
        for arm in arms:
            S, K, _ = arm.shape
            seed = rng.integers(S, size=(resamples, S, 1))
            drawn.append(np.nanmean(arm[seed, rng.integers(K, size=(resamples, S, K))], (1, 2)))
        value = statistic(*[np.nanmean(arm, (0, 1))[None] for arm in arms])[0]
    return value, *np.percentile(statistic(*drawn), [2.5, 97.5], method="inverted_cdf")


def verdict(low, high, side, null):
    """ "holds" if the whole interval lies on the claimed side of null, "does not hold" if on the other, else undecided.
    side 0 claims that the quantity lies within (-null, null)."""
    if side == 0:
        yes, no = -null < low and high < null, high < -null or low > null
    else:
        yes, no = (low > null, high < null)[::side]
    return "holds" if yes else "does not hold" if no else "undecided"


def average(x):
    return x[:, 0]


def ratio(x):
    """Geometric means, from means of logarithms."""
    return np.exp(x[:, 0])


def difference(x, y):
    return x[:, 0] - y[:, 0]


def relative_bias(x):
    """|bias| / |true gradient| from unbiased means (B, 2) of both squares; infinite where noise hides the second."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(x[:, 1] > 0, np.sqrt(np.maximum(x[:, 0], 0) / x[:, 1]), np.inf)


def find(args, tables):
    """The post's claims, each with its number, interval and verdict, as a DataFrame."""
    lag, mean, variance, bias = (tables[name] for name in ("lag_curve", "mean_cosine", "variance", "bias"))
    keys = ["setting", "seed", "step", "lambda", "kind"]
    batches = tables["batch_cosines"].groupby(keys, as_index=False)["cosine"].mean()
    low_lam, lam, high_lam = min(args.lambdas), args.main_lambda, max(args.lambdas)
    far, small = args.lags[-1], [k for k in args.lags if k <= 7] or [args.lags[0]]
    names = [f"{N}x{T}" for N, T in SETTINGS]
    long, short = names
    rows = []

    def claim(number, text, quantity, side, null, statistic, *arms):
        arms = [arm if arm.ndim == 3 else arm[..., None] for arm in arms]
        value, low, high = hierarchical_bootstrap(statistic, arms, args.resamples)
        rows.append(
            {
                "claim": number,
                "text": text,
                "quantity": quantity,
                "value": value,
                "low": low,
                "high": high,
                "verdict": verdict(low, high, side, null),
            }
        )

    def bias_falls(x):
        with np.errstate(invalid="ignore"):  # inf - inf: undecided
            return relative_bias(x[:, :2]) - relative_bias(x[:, 2:])

    def contrast(setting, lam, k, column="cosine"):
        within, across = (
            cube(lag, column, setting=setting, kind=kind, lag=k, **{"lambda": lam}) for kind in ("within", "across")
        )
        return within - across

    def term(column, shape, start, setting=None, lam=lam):
        """Over the policies of one setting, or of both: (seeds, checkpoints), the settings side by side."""
        return np.concatenate(
            [
                cube(variance, column, setting=s, shape=shape, start=start, **{"lambda": lam})
                for s in ([setting] if setting else names)
            ],
            1,
        )

    def both(column, lam, **where):
        return np.concatenate([cube(bias, column, setting=s, **where, **{"lambda": lam}) for s in names], 1)

    def bias_of(lam, T):
        return np.stack([both("bias2", lam, T=T), both("truth2", lam, T=T)], -1)

    for s in names:
        claim(
            "1",
            "Within a trajectory gradients are more alike than across, at small lags",
            f"{s}: cosine, within - across, mean of lags {small}",
            1,
            0,
            average,
            np.mean([contrast(s, lam, k) for k in small], 0),
        )
    for s in names:
        claim(
            "2",
            "The likeness decays with the lag",
            f"{s}: within - across, lag {args.lags[0]} - lag {far}",
            1,
            0,
            average,
            contrast(s, lam, args.lags[0]) - contrast(s, lam, far),
        )
    for s in names:
        claim(
            "3",
            "It is still there at a large lag",
            f"{s}: within - across, lag {far}",
            1,
            0,
            average,
            contrast(s, lam, far),
        )
    step = focus_iterations(args)[-1] * BATCH
    column = sorted(lag["step"].unique()).index(step)
    claim(
        "3",
        "It is still there at a large lag",
        f"{long}: the same at step {step:,} alone",
        1,
        0,
        average,
        contrast(long, lam, far)[:, [column]],
    )
    for s in names:
        rho = [cube(lag, "covariance", setting=s, kind="within", lag=k, **{"lambda": lam}) for k in args.lags]
        worst = max(range(len(rho)), key=lambda i, rho=rho: abs(rho[i].mean()))
        claim(
            "4",
            "The covariance-based correlation is close to zero for all lags",
            f"{s}: at the lag where it is farthest from zero, {args.lags[worst]} (|.| < 0.05)",
            0,
            0.05,
            average,
            rho[worst],
        )

    for s in names:
        for k in (args.lags[0], far):
            claim(
                "13",
                "Not in the post: within a trajectory gradients share an axis, whatever their sign",
                f"{s}: |cosine|, within - across, lag {k}",
                1,
                0,
                average,
                contrast(s, lam, k, "absolute"),
            )

    minibatches = [cube(batches, "cosine", setting=s, kind="minibatches", **{"lambda": lam}) for s in names]
    both_shapes = [cube(variance, "cosine_sd", setting=s, shape=s, start="together", **{"lambda": lam}) for s in names]
    claim(
        "5",
        f"Heat maps: batch means of {long} agree less than those of {short}",
        f"five minibatches of one rollout: mean cosine, {long} - {short}",
        -1,
        0,
        difference,
        *minibatches,
    )
    claim(
        "5",
        f"Heat maps: batch means of {long} agree less than those of {short}",
        f"fresh rollouts: mean cosine, {long} - {short}",
        -1,
        0,
        difference,
        *[cube(variance, "cosine_mean", setting=s, shape=s, start="together", **{"lambda": lam}) for s in names],
    )
    claim(
        "5",
        f"Heat maps: {long} has more extreme cosines, of both signs, than {short}",
        f"fresh rollouts: SD of the cosines, {long} - {short}",
        1,
        0,
        difference,
        *both_shapes,
    )
    for start in ("together", "staggered"):
        claim(
            "6",
            f"Var(G) is larger with {long}",
            f"same policies, {start}: Var(G) ratio {long} / {short}",
            1,
            1,
            ratio,
            np.log(term("variance", long, start) / term("variance", short, start)),
        )
    claim(
        "6",
        f"Var(G) is larger with {long}",
        f"each its own policies, together: Var(G) ratio {long} / {short}",
        1,
        1,
        lambda x, y: np.exp(x[:, 0] - y[:, 0]),
        *[np.log(term("variance", s, "together", s)) for s in names],
    )
    for value in sorted({low_lam, lam, high_lam}):
        for s in names:
            claim(
                "7",
                "The covariance term is positive: it lowers the effective sample size",
                f"{s}, staggered, lambda {value:g}: ESS / NT",
                -1,
                1,
                ratio,
                np.log(term("ess", s, "staggered", None, value)),
            )
    claim(
        "7",
        f"The effective sample size is smaller with {long}",
        f"staggered: ESS ratio {long} / {short}",
        -1,
        1,
        ratio,
        np.log(term("ess", long, "staggered") / term("ess", short, "staggered")),
    )
    for value in (low_lam, high_lam):
        claim(
            "8",
            "No lambda removes the correlation at a large lag",
            f"{long}, lambda {value:g}: within - across, lag {far}",
            1,
            0,
            average,
            contrast(long, value, far),
        )
    for s in names:
        rms = [cube(mean, "rms", setting=s, **{"lambda": x}) for x in (high_lam, low_lam)]
        claim(
            "9",
            "With lambda the cosines to the batch mean concentrate around zero",
            f"{s}: RMS cosine, lambda {high_lam:g} - {low_lam:g}",
            -1,
            0,
            average,
            rms[0] - rms[1],
        )
    claim(
        "10",
        "The individual variance grows with T",
        f"lambda {lam:g}: E|g - mu|^2 ratio, T 256 / 64",
        1,
        1,
        ratio,
        np.log(both("sample_variance", lam, T=256) / both("sample_variance", lam, T=64)),
    )
    claim(
        "10",
        "The individual variance grows with lambda",
        f"T 256: the same ratio, lambda {high_lam:g} / {low_lam:g}",
        1,
        1,
        ratio,
        np.log(both("sample_variance", high_lam, T=256) / both("sample_variance", low_lam, T=256)),
    )
    claim(
        "11",
        "Bias falls with lambda",
        f"T 256: |bias| / |true gradient|, lambda {low_lam:g} - {high_lam:g}",
        1,
        0,
        bias_falls,
        np.concatenate([bias_of(low_lam, 256), bias_of(high_lam, 256)], -1),
    )
    for value in (lam, high_lam):
        claim(
            "11",
            "Bias falls with T",
            f"lambda {value:g}: |bias| / |true gradient|, T 8 - T 256",
            1,
            0,
            bias_falls,
            np.concatenate([bias_of(value, 8), bias_of(value, 256)], -1),
        )
    claim(
        "11",
        "lambda = 1 has no bias once T exceeds the episode",
        f"T 256, lambda {high_lam:g}: |bias| / |true gradient| (below 0.1)",
        0,
        0.1,
        relative_bias,
        bias_of(high_lam, 256),
    )
    for s in names:
        claim(
            "12",
            "Not in the post: environments that start together raise Var(G)",
            f"{s}: Var(G) ratio, together / staggered",
            1,
            1,
            ratio,
            np.log(term("variance", s, "together") / term("variance", s, "staggered")),
        )
    return pd.DataFrame(sorted(rows, key=lambda row: int(row["claim"])))


def as_text(args, findings):
    """The table of findings, to be read."""
    lines = [
        f"{len(args.seeds)} seeds, lambda {args.main_lambda:g} unless named. Intervals: 95 %, bootstrap over",
        "seeds and within each over checkpoints. 6, 7, 10 to 12: all policies of both settings unless named.",
        "",
    ]
    by_claim = itertools.groupby(findings.to_dict("records"), lambda row: (row["claim"], row["text"]))
    for (number, text), rows in by_claim:
        lines.append(f"{number:>2}. {text}")
        for row in rows:
            interval = f"[{row['low']:.3f}, {row['high']:.3f}]"
            lines.append(f"      {row['verdict']:<14}{row['value']:>8.3f}  {interval:<18} {row['quantity']}")
    return "\n".join(lines) + "\n"


# ---- figures ---------------------------------------------------------------------------------------------------------
# Okabe and Ito's colours; settings differ in the line as well, kinds in the fill
BLUE, VERMILLION, GREEN, ORANGE, SKY, PINK = "#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7"
SETTING_STYLE = {"4x256": ("black", "-", "o"), "16x64": (VERMILLION, "--", "s")}
LAMBDA_COLORS = (SKY, GREEN, ORANGE, "black")
RC = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "pdf.fonttype": 42,
    "lines.linewidth": 1.2,
    "lines.markersize": 3,
    "figure.constrained_layout.use": True,
}


def density(ax, table, color, label, fill):
    """A histogram as a density over [-1, 1]."""
    x, y = table["cosine"].to_numpy(), table["count"].to_numpy() / max(table["count"].sum(), 1)
    width = x[1] - x[0]
    edges = np.append(x - width / 2, x[-1] + width / 2)
    ax.stairs(
        y / width, edges, color=color, label=label, fill=fill, alpha=0.45 if fill else 1.0, linewidth=0 if fill else 1.0
    )


def kinds(axes, tables):
    """Densities within and across trajectories, one panel a table."""
    for ax, table in zip(axes, tables):
        density(ax, table[table["kind"] == "across"], ORANGE, "across", True)
        density(ax, table[table["kind"] == "within"], BLUE, "within", False)
        ax.set_xticks([-1, 0, 1])
        ax.set_xlim(-1, 1)
        if not table["count"].any():  # 64 rows with an episode's end in the middle
            ax.text(0, 0.5, "no pairs", ha="center", transform=ax.get_xaxis_transform())


def draw_returns(args, tables):
    fig, ax = plt.subplots(figsize=(3.25, 2.1))
    table = tables["returns"].assign(bin=lambda x: x["step"] // (args.steps / 25))
    for setting, group in table.groupby("setting", sort=False):
        curve = group.groupby(["bin", "seed"])["return"].mean().unstack()
        x = (curve.index + 0.5) * args.steps / 25 / 1000
        color, line, _ = SETTING_STYLE[setting]
        ax.plot(x, curve.mean(1), color=color, linestyle=line, label=f"{setting}, mean of {curve.shape[1]} seeds")
        ax.fill_between(x, curve.min(1), curve.max(1), color=color, alpha=0.15, linewidth=0)
    ax.set(xlabel="environment steps (thousands)", ylabel="return of an episode")
    ax.legend(loc="lower right")
    return fig


def draw_densities(args, tables, setting):
    table = tables["lag_density"].query("setting == @setting and `lambda` == @args.main_lambda")
    steps, lags = sorted(table["step"].unique()), sorted(table["lag"].unique())
    fig, axes = plt.subplots(
        len(steps), len(lags), figsize=(6.75, 1.45 * len(steps) + 0.5), sharex=True, sharey="row", squeeze=False
    )
    for row, step in zip(axes, steps):
        kinds(row, [table[(table["step"] == step) & (table["lag"] == lag)] for lag in lags])
        row[0].set_ylabel(f"step {step:,}\ndensity")
    for ax, lag in zip(axes[0], lags):
        ax.set_title(f"lag {lag}")
    fig.supxlabel(f"cosine of two centred gradients ({setting})", fontsize=8)
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return fig


def draw_lag_curves(args, tables):
    fig, axes = plt.subplots(1, 3, figsize=(6.75, 2.4))
    table = tables["lag_curve"].query("`lambda` == @args.main_lambda")
    for ax, column, label in zip(
        axes, ("cosine", "absolute", "covariance"), ("cosine", "|cosine|", "covariance-based correlation")
    ):
        for (setting, kind), group in table.groupby(["setting", "kind"], sort=False):
            lags = group.groupby("lag")[column]
            color, line, marker = SETTING_STYLE[setting]
            color = color if kind == "within" else {"4x256": "0.55", "16x64": ORANGE}[setting]
            ax.plot(
                lags.mean(),
                color=color,
                linestyle=line,
                marker=marker,
                label=f"{kind}, {setting}",
                markerfacecolor=color if kind == "within" else "white",
            )
            ax.fill_between(args.lags, lags.quantile(0.1), lags.quantile(0.9), color=color, alpha=0.13, linewidth=0)
        ax.set(xscale="log", xlabel="lag (steps)", ylabel=label)
        ax.set_xticks(args.lags, args.lags)
        ax.minorticks_off()
        ax.axhline(0, color="0.8", linewidth=0.6, zorder=0)
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return fig


def draw_heat_maps(args, tables, rows, columns, seed):
    """5 x 5 maps of one seed at the later focus step: rows and columns are lists of (label, query)."""
    step = focus_iterations(args)[-1] * BATCH
    table = tables["batch_cosines"]
    table = table[(table["seed"] == seed) & (table["step"] == step)]
    fig, axes = plt.subplots(
        len(rows),
        len(columns),
        figsize=(1.55 * len(columns) + 0.6, 1.5 * len(rows) + 0.2),
        squeeze=False,
        sharex=True,
        sharey=True,
    )
    for line, (row_label, row_query) in zip(axes, rows):
        for ax, (label, query) in zip(line, columns):
            matrix = np.eye(5)
            for entry in table.query(f"{row_query} and {query}").to_dict("records"):
                matrix[entry["i"], entry["j"]] = matrix[entry["j"], entry["i"]] = entry["cosine"]
            image = ax.imshow(matrix, vmin=-1, vmax=1, cmap="RdBu_r")
            for i, j in itertools.product(range(5), repeat=2):
                ax.text(
                    j,
                    i,
                    f"{matrix[i, j]:.1f}".replace("-0.0", "0.0"),
                    ha="center",
                    va="center",
                    fontsize=5.5,
                    color="white" if abs(matrix[i, j]) > 0.6 else "black",
                )
            ax.set(xticks=range(5), yticks=range(5))
            ax.spines[:].set_visible(False)
            ax.tick_params(length=0)
            ax.set_title(label if row_label == rows[0][0] else None)
        line[0].set_ylabel(row_label)
    fig.colorbar(image, ax=axes, shrink=0.8, label=f"cosine of batch means, step {step:,}", aspect=30)
    return fig


def draw_lambda_far(args, tables):
    step, lag = focus_iterations(args)[-1] * BATCH, args.lags[-1]
    fig, axes = plt.subplots(2, len(args.lambdas), figsize=(6.75, 3.1), sharex=True, squeeze=False)
    for row, (N, T) in zip(axes, SETTINGS):
        table = tables["lag_density"].query(f"setting == '{N}x{T}' and step == @step and lag == @lag")
        kinds(row, [table[table["lambda"] == lam] for lam in args.lambdas])
        row[0].set_ylabel(f"{N}x{T}\ndensity")
    for ax, lam in zip(axes[0], args.lambdas):
        ax.set_title(f"$\\lambda$ = {lam:g}")
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    fig.supxlabel(f"cosine of two centred gradients, lag {lag}, step {step:,}", fontsize=8)
    return fig


def draw_mean_cosines(args, tables):
    step = focus_iterations(args)[-1] * BATCH
    fig, axes = plt.subplots(1, 3, figsize=(6.75, 2.2), width_ratios=(1, 1, 0.9))
    for ax, (N, T) in zip(axes, SETTINGS):
        for lam, color in zip(args.lambdas, itertools.cycle(LAMBDA_COLORS)):
            table = tables["mean_density"].query(f"setting == '{N}x{T}' and step == @step and `lambda` == @lam")
            density(ax, table, color, f"$\\lambda$ = {lam:g}", False)
        ax.set(xlabel="cosine to the batch mean", ylabel="density", title=f"{N}x{T}, step {step:,}", xlim=(-1, 1))
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    for setting, group in tables["mean_cosine"].groupby("setting", sort=False):
        rms = group.groupby("lambda")["rms"]
        color, line, marker = SETTING_STYLE[setting]
        axes[2].plot(rms.mean(), color=color, linestyle=line, marker=marker, label=setting)
        low, high = rms.quantile(0.1), rms.quantile(0.9)
        axes[2].fill_between(low.index, low, high, color=color, alpha=0.13, linewidth=0)
    axes[2].set(xlabel="$\\lambda$", ylabel="RMS cosine to the mean", title="all checkpoints", ylim=(0, None))
    axes[2].legend()
    return fig


def draw_variance(args, tables):
    """Term 2 in units of Term 1, and the effective sample size: median and middle 80 % of the policies of both
    settings."""
    fig, axes = plt.subplots(1, 2, figsize=(6.75, 2.5))
    bars = [(shape, start) for shape in SETTING_STYLE for start in ("staggered", "together")]
    table = tables["variance"]
    table = table.assign(share=table["covariance"] / table["individual"])
    for k, ((shape, start), color) in enumerate(zip(bars, ("black", "0.6", VERMILLION, ORANGE))):
        x = np.arange(len(args.lambdas)) + (k - 1.5) * 0.17
        lambdas = table[(table["shape"] == shape) & (table["start"] == start)].groupby("lambda")
        for ax, column in zip(axes, ("share", "ess")):
            middle, low, high = (lambdas[column].quantile(q) for q in (0.5, 0.1, 0.9))
            ax.errorbar(
                x,
                middle,
                [middle - low, high - middle],
                fmt=SETTING_STYLE[shape][2],
                color=color,
                label=f"{shape}, {start}",
                elinewidth=1,
            )
    for ax, null, label in zip(axes, (0, 1), ("covariance term / individual term", "effective sample size / NT")):
        ax.axhline(null, color="0.7", linewidth=0.8, zorder=0)
        ax.set_xticks(range(len(args.lambdas)), [f"{lam:g}" for lam in sorted(args.lambdas)])
        ax.set(xlabel="$\\lambda$", ylabel=label)
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return fig


def draw_bias(args, tables):
    """Bias with intervals, direction, and the price: the variance of one sample, over the policies of both settings."""
    fig, axes = plt.subplots(1, 3, figsize=(6.75, 2.4))
    table = tables["bias"].assign(policy=tables["bias"]["setting"] + tables["bias"]["step"].astype(str))
    lambdas, x = sorted(args.lambdas), np.arange(len(args.lambdas))
    for k, (T, color, marker) in enumerate(zip(BIAS_STEPS, LAMBDA_COLORS, "osD^")):
        rows = [table[(table["T"] == T) & (table["lambda"] == lam)] for lam in lambdas]
        bounds = np.array(
            [
                hierarchical_bootstrap(
                    relative_bias,
                    [
                        np.stack(
                            [
                                row.pivot(index="seed", columns="policy", values=column)
                                for column in ("bias2", "truth2")
                            ],
                            -1,
                        )
                    ],
                    args.resamples,
                )
                for row in rows
            ]
        ).T
        bounds[~np.isfinite(bounds)] = np.nan  # not drawn: noise hides the true gradient
        axes[0].errorbar(
            x + (k - 1.5) * 0.07,
            bounds[0],
            np.abs(bounds[1:] - bounds[0]),
            color=color,
            marker=marker,
            elinewidth=0.8,
            label=f"T = {T}",
        )
        means = [row[["inner", "norm2", "truth2", "sample_variance"]].mean() for row in rows]
        axes[1].plot(
            x, [m["inner"] / np.sqrt(max(m["norm2"] * m["truth2"], 1e-12)) for m in means], color=color, marker=marker
        )
        axes[2].plot(x, [m["sample_variance"] for m in means], color=color, marker=marker)
    for ax, label in zip(axes, ("|bias| / |true gradient|", "cosine of E[G] to the truth", "variance of one sample")):
        ax.set_xticks(x, [f"{lam:g}" for lam in lambdas])
        ax.set(xlabel="$\\lambda$", ylabel=label)
    axes[0].set_ylim(0, None)
    axes[2].set_yscale("log")
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return fig


def draw_all(args, tables):
    """Returns {name: figure}."""
    names = [f"{N}x{T}" for N, T in SETTINGS]
    own = " or ".join(f"(setting == '{name}' and shape == '{name}')" for name in names)
    settings = [(name, f"setting == '{name}' and (kind == 'minibatches' or ({own}))") for name in names]
    kinds_of = [
        ("minibatches of\none rollout", "kind == 'minibatches'"),
        ("fresh rollouts", "kind == 'fresh, together'"),
    ]
    main = [(label, f"{query} and `lambda` == {args.main_lambda}") for label, query in kinds_of]
    lambdas = [(f"$\\lambda$ = {lam:g}", f"`lambda` == {lam} and kind == 'fresh, together'") for lam in args.lambdas]
    return {
        "returns": draw_returns(args, tables),
        **{f"densities_{name}": draw_densities(args, tables, name) for name in names},
        "lag_curves": draw_lag_curves(args, tables),
        "heat_maps": draw_heat_maps(args, tables, main, settings, args.seeds[0]),
        "heat_maps_lambda": draw_heat_maps(args, tables, settings, lambdas, args.seeds[0]),
        "lambda_lag": draw_lambda_far(args, tables),
        "mean_cosines": draw_mean_cosines(args, tables),
        "variance": draw_variance(args, tables),
        "bias": draw_bias(args, tables),
    }


# ---- main ------------------------------------------------------------------------------------------------------------
RANGES = {  # what is accepted, both ends included
    (1, 2**31 - 1): "steps checkpoints fresh_every update_epochs resamples",
    (2, 2**31 - 1): "minibatch_size",
    (5, 1024): "groups",
    (1, 1024): "workers",
    (0, 1): "main_lambda",
    (0, 0.9999): "gamma",
    (0, 1e12): "learning_rate clip_coef vf_coef",
    (1e-12, 1e12): "max_grad_norm",
}


def fail(message):
    """Ends the program with one line and exit code 2: bad input."""
    print("error:", " ".join(str(message).split()), file=sys.stderr)
    sys.exit(2)


def parse_args(argv):
    """Returns checked Args. Touches no file."""
    box = io.StringIO()  # tyro draws a box around its complaint: what stands in it is put on one line
    try:
        with contextlib.redirect_stderr(box):
            args = tyro.cli(Args, args=argv, description=__doc__.split("\n")[0])
    except SystemExit as end:
        if end.code:
            text = box.getvalue().split("For full helptext")[0].partition("\n")[2]
            fail(" ".join(re.sub("[│─|]|-{3,}", " ", text).split()))
        raise
    for (low, high), name in ((limits, name) for limits, names in RANGES.items() for name in names.split()):
        if not low <= getattr(args, name) <= high:  # also catches nan
            fail(f"--{name.replace('_', '-')} {getattr(args, name)} is out of range: {low:g} to {high:g} is accepted")
    if args.steps % BATCH:
        fail(f"--steps {args.steps}: a multiple of {BATCH} is accepted")
    if not args.seeds or len(set(args.seeds)) < len(args.seeds) or not all(0 <= seed < 2**31 for seed in args.seeds):
        fail(f"--seeds {args.seeds}: different integers from 0 to {2**31 - 1} are accepted")
    if not args.lags or list(args.lags) != sorted(set(args.lags)) or not 1 <= args.lags[0] <= args.lags[-1] <= 63:
        fail(f"--lags {args.lags}: rising integers from 1 to 63 are accepted")
    if args.main_lambda not in args.lambdas or len(set(args.lambdas)) < 2 or not all(0 <= x <= 1 for x in args.lambdas):
        fail(f"--lambdas {args.lambdas}: different numbers from 0 to 1, with --main-lambda among them, are accepted")
    if args.out.exists() and not args.out.is_dir():
        fail(f"--out {args.out} is a file: a directory is accepted")
    return args


def csv(table):
    """The text of a table's file."""
    return table.to_csv(index=False, float_format="%.6g")


def write(out, texts, figures):
    """Writes {file name: text} and {name: figure}: all of them first, then, file by file, into their place."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".gradient_correlation-", dir=out) as partial:
        for name, text in texts.items():
            Path(partial, name).write_text(text)
        for name, figure in figures.items():
            figure.savefig(Path(partial, f"{name}.png"), dpi=200)
            figure.savefig(Path(partial, f"{name}.pdf"), metadata={"CreationDate": None})
            plt.close(figure)
        for file in Path(partial).iterdir():
            os.replace(file, out / file.name)


def main(args):
    if args.redraw:
        try:
            tables = {name: pd.read_csv(args.out / f"{name}.csv") for name in TABLES}
        except OSError as error:
            fail(f"--redraw: {error.filename} is missing: a directory with the tables of a run is accepted")
    else:
        texts = {f"{name}.csv": csv(table) for name, table in run_all(args).items()}
        write(args.out, texts, {})  # before anything can go wrong with a figure: --redraw goes on from here
        tables = {name: pd.read_csv(io.StringIO(texts[f"{name}.csv"])) for name in TABLES}
    findings = find(args, tables)
    text = as_text(args, findings)
    with plt.rc_context(RC):
        write(args.out, {"findings.csv": csv(findings), "findings.txt": text}, draw_all(args, tables))
    print(text, end="")


if __name__ == "__main__":
    try:
        main(parse_args(sys.argv[1:]))
    except KeyboardInterrupt:
        print("interrupted: nothing was written", file=sys.stderr)
        sys.exit(130)
