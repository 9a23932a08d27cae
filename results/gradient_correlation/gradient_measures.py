"""Trains PPO on Pendulum-v1 and measures its per-sample gradients: their correlation, variance and bias.

In shapes: N environments, T steps of a rollout, B rows, P parameters of the policy, S seeds. The docstring of
gradient_correlation.py lists the choices that the blog post leaves open.
"""

import itertools
import math
import warnings
from typing import NamedTuple

import envpool
import numpy as np
import torch
import torch.nn.functional as F
from torch.func import grad, vmap

from support.progress import progress_bar

warnings.filterwarnings("ignore", message=".*precision lowered by casting.*")  # gymnasium on the bounds of Pendulum

SETTINGS = ((4, 256), (16, 64))  # (N, T) of the post: batches of one size
BATCH = 1024
EPISODE = 200  # steps before Pendulum's time limit
CYCLE = EPISODE + 1  # rows of an episode and its autoreset step
STRIP = 256  # rows of a fresh strip: one environment's share of a 4 x 256 batch, or four shares of 16 x 64
BIAS_STEPS = (8, 16, 64, 256)  # rollout lengths T whose bias is measured
GROUP = 16  # strips in a group: enough for four batches of either setting
POST_STEPS = (399360, 450560)  # the environment steps that the post shows
OBS_SCALE = torch.tensor([1.0, 1.0, 1 / 8])  # cos, sin and angular velocity to [-1, 1]
REWARD_SCALE = 1 / 50


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
    """Maps x (..., B, in) to (..., B). Parameters with leading dimensions are several networks, one per entry of x."""
    for i in range(3):
        x = x @ params[f"w{i}"] + params[f"b{i}"]
        x = x.tanh() if i < 2 else x
    return x.squeeze(-1)


def init_agent(seed):
    """Actor (with its log-std) and critic of one training run, each as {name: parameter}."""
    generator = torch.Generator().manual_seed(seed)
    actor = {**init_mlp((3, 64, 64, 1), 0.01, generator), "logstd": torch.zeros(1)}
    return actor, init_mlp((3, 64, 64, 1), 1.0, generator)


def stack_networks(networks):
    """Stacks S networks into one trainable network with a leading axis S. A network is {name: parameter}."""
    return {name: torch.stack([network[name] for network in networks]).requires_grad_() for name in networks[0]}


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

    decay: gamma lambda. cuts (bool): the episode or rollout ends with this row. All three broadcast to the shape of the
    result, (T, ...). Pendulum never terminates, so the delta of a cut row bootstraps like any other. An autoreset step
    follows a cut, so no other row depends on it.
    """
    shape = torch.broadcast_shapes(deltas.shape, cuts.shape, torch.as_tensor(decay).shape)
    out, last, carry = torch.empty(shape), torch.zeros(shape[1:]), decay * ~cuts
    for t in reversed(range(shape[0])):
        out[t] = last = torch.addcmul(deltas[t].expand(shape[1:]), carry[t], last)
    return out


def seeds_for(count, *names):
    """`count` seeds for environments or generators, different for each tuple of integers `names`."""
    return [int(x) for x in np.random.SeedSequence(names).generate_state(count) % 2**31]


def train(args, num_envs, num_steps):
    """Trains PPO with all seeds at once: the parameters' leading axis S is over seeds, which do not affect each other.

    Measures each Checkpoint as it comes. Returns {table: records}; the table returns has a row per episode.
    """
    torch.set_num_threads(1)
    S, N, T = len(args.seeds), num_envs, num_steps
    agents = [init_agent(seed) for seed in args.seeds]
    actor, critic = stack_networks([actor for actor, _ in agents]), stack_networks([critic for _, critic in agents])
    parameters = [*actor.values(), *critic.values()]
    optimizer = torch.optim.Adam(parameters, lr=args.learning_rate, eps=1e-5, fused=True)
    generators = [torch.Generator().manual_seed(s) for seed in args.seeds for s in seeds_for(1, seed, N, 1)]
    env_seeds = [s for seed in args.seeds for s in seeds_for(N, seed, N, 2)]
    envs = make_envs(S * N, env_seeds)
    next_obs, _ = envs.reset()
    next_done, episode_returns = np.zeros(S * N, bool), np.zeros(S * N)
    records, setting = {"returns": []}, f"{N}x{T}"
    num_iterations = args.steps // BATCH
    measured, fresh = checkpoint_iterations(args), fresh_iterations(args)
    bar = progress_bar(num_iterations, "iteration", setting)

    for iteration in range(1, num_iterations + 1):
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
                episode_returns += reward
                for i in np.flatnonzero(next_done):
                    step = (iteration - 1) * BATCH + (t + 1) * N
                    row = {"setting": setting, "seed": args.seeds[i // N], "step": step, "return": episode_returns[i]}
                    records["returns"].append(row)
                    episode_returns[i] = 0.0
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
                networks = ({name: x[i].detach() for name, x in network.items()} for network in (actor, critic))
                batch = (x[i] for x in (obs, actions, rewards, cuts, valid))
                found = measure(args, Checkpoint(seed, iteration * BATCH, N, *networks, *batch), iteration in fresh)
                for name, rows in found.items():
                    records.setdefault(name, []).extend(rows)

        rows = valid[0].flatten().nonzero()[:, 0]  # environments start together, so all seeds share autoreset steps
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
                norms = torch.stack([g.flatten(1).square().sum(1) for g in grads]).sum(0).sqrt()  # (S,)
                shrink = (args.max_grad_norm / (norms + 1e-6)).clamp(max=1.0)
                for p, g in zip(parameters, grads):
                    p.grad = g * shrink.view(S, *[1] * (g.ndim - 1))
                optimizer.step()
        bar.update()
    bar.close()
    return records


class Checkpoint(NamedTuple):
    """A policy of one seed, and the batch that it has just collected in training, before any update."""

    seed: int
    step: int  # environment steps
    num_envs: int
    actor: dict  # {name: parameter}
    critic: dict
    obs: torch.Tensor  # (T + 1, N, 3), scaled
    actions: torch.Tensor  # (T, N)
    rewards: torch.Tensor  # (T, N), scaled
    cuts: torch.Tensor  # (T, N) bool: the episode ends here
    valid: torch.Tensor  # (T, N) bool: no autoreset step

    def labels(self):
        """The first columns of every table."""
        setting = f"{self.num_envs}x{BATCH // self.num_envs}"
        return {"setting": setting, "seed": self.seed, "step": self.step}


@torch.no_grad()
def measure(args, checkpoint, fresh):
    """All measurements at one checkpoint, {table: records}. fresh: with fresh rollouts."""
    records = batch_correlations(args, checkpoint)
    if fresh:
        for name, rows in fresh_rollouts(args, checkpoint).items():
            records[name] = records.get(name, []) + rows
    return records


def checkpoint_iterations(args):
    """The measured iterations, evenly spaced back from the last: by default 15, 40, ... 390, ... 440, ... 490."""
    num_iterations = args.steps // BATCH
    return list(range(num_iterations, 0, -math.ceil(num_iterations / args.checkpoints)))[::-1]


def fresh_iterations(args):
    """The measured iterations with fresh rollouts: every fresh_every-th, including the later one of the post."""
    measured = checkpoint_iterations(args)
    return measured[measured.index(focus_iterations(args)[-1]) % args.fresh_every :: args.fresh_every]


def focus_iterations(args):
    """The measured iterations nearest to the two that the post shows."""
    return [min(checkpoint_iterations(args), key=lambda i, step=step: abs(i * BATCH - step)) for step in POST_STEPS]


# ---- gradients -------------------------------------------------------------------------------------------------------
def score_gradients(actor, obs, actions):
    """grad log pi(a_i | s_i) of each row, flattened: obs (B, 3), actions (B,) -> (B, P). g_i is A_i times this row."""

    def one(params, ob, action):
        return log_prob(params, ob[None], action[None])[0]

    grads = vmap(grad(one), in_dims=(None, 0, 0))(actor, obs, actions)
    return torch.cat([grads[name].flatten(1) for name in actor], 1)


def cosine_matrix(means):
    """Cosines (R, R) between the rows of means (R, P)."""
    return F.normalize(means.double(), dim=1) @ F.normalize(means.double(), dim=1).T


# ---- correlation -----------------------------------------------------------------------------------------------------
def pairs(valid, cuts, lag):
    """Pairs of rows at a lag, within and across trajectories, as indices into the valid rows in the order of (T, N).

    valid, cuts: (T, N) bool. Returns two arrays (2, pairs): t and t + lag of one environment and one episode; and the
    same rows t with the rows t + lag of each other environment.
    """
    T, N = valid.shape
    position = np.cumsum(valid.ravel()).reshape(T, N) - 1
    episode = np.cumsum(cuts, 0) - cuts  # number of episode ends before row t
    t, n = np.nonzero(valid[:-lag] & valid[lag:] & (episode[:-lag] == episode[lag:]))
    within = np.stack([position[t, n], position[t + lag, n]])
    t, n, other = (np.repeat(t, N), np.repeat(n, N), np.tile(np.arange(N), len(t)))
    keep = (other != n) & valid[t + lag, other]
    across = np.stack([position[t, n], position[t + lag, other]])[:, keep]
    return within, across


def gram_centered(gram):
    """Inner products of the rows minus their mean, from the inner products (B, B) of the rows."""
    means = gram.mean(0)
    return gram - means[:, None] - means[None, :] + means.mean()


def batch_correlations(args, checkpoint):
    """Measures the batch of the training itself at one checkpoint, for every lambda.

    Returns records of the tables lag_curve, lag_density, batch_cosines, mean_cosine and mean_density.
    """
    obs, cuts, rows = checkpoint.obs, checkpoint.cuts, checkpoint.valid.flatten()
    values = mlp(checkpoint.critic, obs.flatten(0, 1)).view(obs.shape[:2])
    deltas = checkpoint.rewards + args.gamma * values[1:] - values[:-1]
    scores = score_gradients(checkpoint.actor, obs[:-1].flatten(0, 1)[rows], checkpoint.actions.flatten()[rows])
    score_gram = (scores @ scores.T).double()
    lag_pairs = {lag: pairs(checkpoint.valid.numpy(), cuts.numpy(), lag) for lag in args.lags}
    shuffled = np.random.default_rng(seeds_for(1, checkpoint.seed, checkpoint.step, 3)).permutation(len(scores))
    minibatches = torch.zeros(5, len(scores), dtype=torch.float64)  # 1 for the rows in the minibatch
    for minibatch, inds in zip(minibatches, shuffled[: len(scores) // 5 * 5].reshape(5, -1)):
        minibatch[inds] = 1.0
    records = {name: [] for name in ("lag_curve", "lag_density", "batch_cosines", "mean_cosine", "mean_density")}
    for lam in args.lambdas:
        labels = {**checkpoint.labels(), "lambda": lam}
        adv = advantages(deltas, cuts, args.gamma * lam).flatten()[rows].double()
        gram = score_gram * adv[:, None] * adv[None, :]
        for name, found in lag_records(gram, lag_pairs, labels).items():
            records[name] += found
        to_mean = (gram.mean(0) / gram.diagonal().sqrt() / gram.mean().sqrt()).numpy()
        statistics = {"mean": to_mean.mean(), "rms": np.sqrt(np.square(to_mean).mean()), "abs": np.abs(to_mean).mean()}
        records["mean_cosine"].append({**labels, **statistics})
        records["mean_density"] += histogram(to_mean, labels)
        inner = minibatches @ gram @ minibatches.T
        cosine = inner / inner.diagonal().sqrt()[:, None] / inner.diagonal().sqrt()[None, :]
        records["batch_cosines"] += heat_map(cosine, {**labels, "kind": "minibatches"})
    return records


def lag_records(gram, lag_pairs, labels):
    """Records of the tables lag_curve and lag_density: cosines of mean-centred gradients, by lag and kind of pair.

    gram (B, B): inner products of the gradients. lag_pairs: {lag: what `pairs` returns}.
    """
    centered = gram_centered(gram)
    norms = centered.diagonal().sqrt()
    cosines = (centered / norms[:, None] / norms[None, :]).numpy()
    records = {"lag_curve": [], "lag_density": []}
    for lag, by_kind in lag_pairs.items():
        for kind, (i, j) in zip(("within", "across"), by_kind):
            pair_labels, cosine = {**labels, "lag": lag, "kind": kind}, cosines[i, j]
            records["lag_density"] += histogram(cosine, pair_labels)
            if len(i):  # if an episode ends in the middle, 64 rows have no pair of lag 40
                statistics = {
                    "pairs": len(i),
                    "cosine": cosine.mean(),
                    "absolute": np.abs(cosine).mean(),
                    "covariance": centered.numpy()[i, j].mean() / norms.square().mean().item(),
                }
                records["lag_curve"].append({**pair_labels, **statistics})
    return records


def histogram(x, labels, bins=50):
    """Records of the counts of cosines in `bins` equal parts of [-1, 1]."""
    counts, edges = np.histogram(x, bins, (-1.0, 1.0))
    return [{**labels, "cosine": round((a + b) / 2, 3), "count": int(n)} for a, b, n in zip(edges, edges[1:], counts)]


def heat_map(cosines, labels):
    """Records of the entries above the diagonal of a matrix of cosines."""
    return [
        {**labels, "i": i, "j": j, "cosine": float(cosines[i, j])}
        for i, j in itertools.combinations(range(len(cosines)), 2)
    ]


# ---- variance and bias -----------------------------------------------------------------------------------------------
def variance_split(sums, counts, squares, batch, group):
    """Splits the variance of a batch's mean gradient, Tr Cov(G), into the two terms of the post.

    A segment is one environment's rows of one batch. sums (K, P): the sum of each segment's gradients; counts (K,): its
    rows; squares (K,): its sum of |g|^2; batch (K,) int: the batch that it belongs to, of R; group (R,) int: batches of
    different groups are independent. Returns the batches' means (R, P) and a dict:

    `variance`     half the mean squared distance of two batches of different groups: unbiased, whatever the dependence
                   within a group
    `individual`   E|g - mu|^2 / NT, Term 1
    `covariance`   variance - individual, Term 2
    `within`       the part of Term 2 between rows of one segment, estimated from the segments' sums alone; the rest is
                   between environments
    `ess`          individual / variance: the effective sample size as a fraction of NT
    `cosine_mean`, `cosine_sd`, `cosine_negative`    of the cosines of batches of different groups
    """
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
    cosines = cosine_matrix(means)[apart.bool()]
    return means, {
        "variance": variance.item(),
        "individual": individual.item(),
        "covariance": (variance - individual).item(),
        "within": within.item(),
        "ess": (individual / variance).item(),
        "cosine_mean": cosines.mean().item(),
        "cosine_sd": cosines.std().item(),
        "cosine_negative": (cosines < 0).double().mean().item(),
    }


def unbiased_inner(a, b):
    """Estimates <E a, E b> without bias from paired independent rows a, b (R, P): the mean over pairs of two rows."""
    a, b = a.double(), b.double()
    R = len(a)
    return (((a.sum(0) @ b.sum(0)) - (a * b).sum()) / (R * (R - 1))).item()


class Episodes(NamedTuple):
    """E independent episodes of one policy, without autoreset steps."""

    obs: torch.Tensor  # (EPISODE, E, 3)
    actions: torch.Tensor  # (EPISODE, E)
    deltas: torch.Tensor  # (EPISODE, E): TD errors
    truth: torch.Tensor  # (EPISODE, E): advantages from the rewards that follow, past the time limit
    explained: float  # share of the returns' variance that V explains


def simulate(actor, critic, num_episodes, horizon, seed, gamma):
    """Independent episodes of the policy, simulated for `horizon` more steps past their time limit.

    seed: a tuple of integers. The true advantage of a step sums the rewards of at least `horizon` more steps, then V.
    """
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
    return Episodes(obs[:EPISODE], actions[:EPISODE], deltas[:EPISODE], truth[:EPISODE], explained.item())


class Strips(NamedTuple):
    """L strips of STRIP rows. Each is cut from three episodes of its own, with the autoreset steps between them."""

    place: tuple  # two int arrays (L, STRIP): the step and the episode of each row, to index Episodes with
    valid: torch.Tensor  # (L, STRIP) bool: no autoreset step
    ends: torch.Tensor  # (L, STRIP) bool: the last step of an episode


def lay_strips(phases):
    """The Strips that begin `phases` (L,) int rows after the start of their first episode."""
    position = phases[:, None] + np.arange(STRIP)  # in rows since that start
    step = np.minimum(position % CYCLE, EPISODE - 1)  # an autoreset step repeats the last one, with weight 0 (`valid`)
    episode = 3 * np.arange(len(phases))[:, None] + position // CYCLE
    valid = torch.from_numpy(position % CYCLE < EPISODE)
    return Strips((step, episode), valid, torch.from_numpy(step == EPISODE - 1))


def strip_advantages(args, episodes, strips, lengths):
    """The factors of the score gradients, (L, C, STRIP), 0 in autoreset steps.

    The C = len(lengths) len(lambdas) + 1 columns are GAE for each rollout length T, with a cut every T rows, and within
    it for each lambda; last the true advantages.
    """
    lambdas = torch.tensor(args.lambdas)
    rows = torch.arange(1, STRIP + 1)
    cuts = torch.stack([strips.ends | (rows % T == 0) for T in lengths])  # (W, L, STRIP)
    deltas = episodes.deltas[strips.place].T[:, None, None]  # (STRIP, 1, 1, L)
    adv = advantages(deltas, cuts.permute(2, 0, 1)[:, :, None], args.gamma * lambdas[:, None])
    adv = adv.flatten(1, 2).permute(2, 1, 0)  # (STRIP, W, lambdas, L) -> (L, W lambdas, STRIP)
    return torch.cat([adv, episodes.truth[strips.place][:, None]], 1) * strips.valid[:, None]


class Sums(NamedTuple):
    """Sums of per-sample gradients over the rows of strips. C: the columns of strip_advantages."""

    segments: dict  # {T: (L STRIP / T, lambdas, P)}: over each segment of T rows, with GAE's rollouts of T rows
    squares: torch.Tensor  # (L, C, 4): of |g|^2 over each quarter of a strip
    batches: torch.Tensor  # (C, L / 4, P): over four strips, a batch


def sum_gradients(actor, episodes, strips, factors, columns):
    """The Sums of all strips. factors: from strip_advantages; columns: {T: slice of its columns}."""
    segments, squares, batches = {T: [] for _, T in SETTINGS}, [], []
    for chunk in torch.arange(len(factors)).split(4):  # strips: one batch of gradients in memory at a time
        obs, actions = episodes.obs[strips.place][chunk], episodes.actions[strips.place][chunk]
        scores = score_gradients(actor, obs.flatten(0, 1), actions.flatten())  # (4 STRIP, P)
        norms = scores.square().sum(1).view(4, 1, STRIP)
        squares.append((factors[chunk].square() * norms).view(4, -1, 4, STRIP // 4).sum(-1))
        for _, T in SETTINGS:
            segment_factors = factors[chunk, columns[T]].unflatten(2, (-1, T)).transpose(1, 2).flatten(0, 1)
            segments[T].append(segment_factors @ scores.view(-1, T, scores.shape[1]))  # (4 STRIP / T, lambdas, P)
        batches.append(factors[chunk].transpose(0, 1).flatten(1) @ scores)  # (C, P)
    segments = {T: torch.cat(parts) for T, parts in segments.items()}
    return Sums(segments, torch.cat(squares), torch.stack(batches, 1))


def fresh_rollouts(args, checkpoint):
    """Variance and bias of the gradient of one frozen policy: records of the tables variance, bias, batch_cosines.

    Strips of STRIP rows are laid over fresh episodes. Four strips are a batch of 4 x 256. Sixteen quarters of strips
    are a batch of 16 x 64: the same rows of the same policy, only N x T differs.
    """
    seed, labels = (checkpoint.seed, checkpoint.num_envs, checkpoint.step), checkpoint.labels()
    num_strips = args.groups * GROUP
    horizon = math.ceil(math.log(0.01) / math.log(args.gamma)) if 0 < args.gamma < 1 else 1
    episodes = simulate(checkpoint.actor, checkpoint.critic, 3 * num_strips, horizon, seed, args.gamma)
    records = {"variance": [], "bias": [], "batch_cosines": []}
    rng = np.random.default_rng(seeds_for(1, *seed, 6))
    for start in ("staggered", "together"):
        phases = rng.integers(CYCLE, size=num_strips)
        if start == "together":
            phases = phases[np.arange(num_strips) // GROUP]  # the same for all strips of a group
        strips = lay_strips(phases)
        lengths = BIAS_STEPS if start == "staggered" else tuple(T for _, T in SETTINGS)
        factors = strip_advantages(args, episodes, strips, lengths)
        columns = {T: slice(w * len(args.lambdas), (w + 1) * len(args.lambdas)) for w, T in enumerate(lengths)}
        sums = sum_gradients(checkpoint.actor, episodes, strips, factors, columns)
        for name, found in variance_records(args, sums, strips, columns, start, labels).items():
            records[name] += found
        if start == "staggered":
            records["bias"] += bias_records(args, sums, strips, columns, episodes.explained, labels)
    return records


def variance_records(args, sums, strips, columns, start, labels):
    """Records of the tables variance and batch_cosines: batches of both N x T from the same strips."""
    records = {"variance": [], "batch_cosines": []}
    strip = np.arange(len(strips.valid))
    group = torch.arange(4 * args.groups) // 4  # each batch's group
    for N, T in SETTINGS:
        pieces = STRIP // T  # a strip's pieces, each in a batch of its own
        first_batch = strip // GROUP * 4 + strip % GROUP // N * pieces  # the batch of a strip's first piece
        batch = torch.from_numpy(first_batch[:, None] + np.arange(pieces)).flatten()
        counts = strips.valid.unflatten(1, (pieces, T)).sum(-1).flatten()
        for i, lam in enumerate(args.lambdas):
            squares = sums.squares[:, columns[T]][:, i].unflatten(1, (pieces, -1)).sum(-1).flatten()
            means, statistics = variance_split(sums.segments[T][:, i], counts, squares, batch, group)
            condition = {"shape": f"{N}x{T}", "lambda": lam}
            records["variance"].append({**labels, "start": start, **condition, **statistics})
            five = cosine_matrix(means[::4][:5])  # one batch from each of five groups: independent
            records["batch_cosines"] += heat_map(five, {**labels, **condition, "kind": f"fresh, {start}"})
    return records


def bias_records(args, sums, strips, columns, explained, labels):
    """Records of the table bias: E[G] against the true gradient, for every rollout length and lambda."""
    gradients = sums.batches.double() / (strips.valid.sum() / sums.batches.shape[1])  # (C, batches, P)
    true = gradients[-1]
    records = []
    for T, column in columns.items():
        for i, lam in enumerate(args.lambdas, column.start):
            g = gradients[i]
            spread = sums.squares[:, i].sum() / strips.valid.sum() - g.mean(0).square().sum()
            records.append(
                {
                    **labels,
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
