"""What other tasks say about the settings of a new one, before its first run and after some: a Gaussian process.

A setting is x = (log2 N, log2 T, log2 rate, log2 (rate x gradient steps)). The mean score of task k at it is

    f_k(x) = 1/2 + m(x) + d_k(x),    m ~ GP(0, k_m),    d_k ~ GP(0, k_d), independent for each task

    k_m(x, x') = a_m² exp(-1/2 sum_i ((x_i - x'_i) / l_i)²)
    k_d(x, x') = a_d² exp(the same) + b² + e² [x = x']

so m is what tasks have in common and d_k what is special to task k: b how easy it is, e what is not smooth in it. The
a, b, e, l are those with the largest posterior density, given the mean scores of a table and a wide log-normal prior.
The fourth coordinate is log2 rate + log2 steps and a constant; it explains most of a score (results/training).
Conditioned on the table, the scores f of a new task in its C settings are N(mu, K).

A return of a new task is s (f + noise) above `zero`, the return of an untrained network; its unit s is unknown. The
noise of a run in setting c has the variance v_c², scaled-inverse-chi² around v² q_c with nu degrees of freedom. Scores
vary most in the middle, so q_c = 4 f_c (1 - f_c), at least 0.1, where f_c is expected at q = 1. n_c runs with the mean
gain g_c and the sum of squares S_c around it give the likelihood

    p(g, S | s, v) = s^-runs N(g / s; mu, K + diag(w / n)) prod_c (v² q_c)^(nu / 2) w_c^(-(nu + n_c - 1) / 2)
    w_c = (nu v² q_c + S_c / s²) / (nu + n_c - 1)

up to a constant, where w_c stands for v_c² in the Gaussian factor. s and v are integrated over a grid: s with the
density 1/s, log v normal around that of the table's tasks. Given both, f is Gaussian (Rasmussen and Williams 2006, ch.
2), so draws of f are exact, and a probability is a share of draws.
"""

import itertools
from typing import NamedTuple, Tuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

SETTING = ("num_envs", "num_steps", "learning_rate", "total_timesteps", "minibatch_size", "update_epochs")
EXPERIMENTS = ("map", "shape", "advise", "schedule", "trend", "outer_loop", "rates", "data_reuse")  # one N x T each
CENTER, SPREAD = 0.5, 1.0  # a score before any data; the deviation of log a, b, e and l around START
START = np.log([0.3, 0.2, 0.2, 0.1, 4.0, 4.0, 3.0, 3.0])  # a_m, a_d, b, e and the l, in doublings
DEGREES, LEAST_NOISE = 2.0, 0.1  # nu, and the least q
LEAST_DEVIATION = 1e-3  # a task on which all seeds score the same says nothing about the noise of others
SCALES, NOISES = 17, 5  # points of the grid of s and v
CLOSE = 0.05  # an answer is right if it gains at most so much less than the best setting, as a share


# ---- before the first run --------------------------------------------------------------------------------------------
def known_runs(dataset):
    """The rows of the table of all runs that the model is fitted to: PPO on small tasks, with one N x T per run."""
    words = dataset["experiment"].str.split()
    plain = dataset["schedule"].fillna("").eq("") & dataset["prox_com"].isna() & dataset["score"].notna()
    plain &= dataset["anneal_lr"].eq(True) & dataset["mask_resets"].eq(True) & dataset["script"].eq("ppo_envpool")
    rows = dataset[plain & words.map(lambda names: not set(EXPERIMENTS).isdisjoint(names))]
    return rows.drop_duplicates(["game", "seed", *SETTING])


def gradient_steps(settings):
    """Of a run, (C,): whole iterations of all epochs with all minibatches. settings: as for `features`."""
    batch = np.asarray(settings["num_envs"]) * np.asarray(settings["num_steps"])
    minibatches = np.maximum(batch // np.asarray(settings["minibatch_size"]), 1)
    iterations = np.maximum(np.asarray(settings["total_timesteps"]) // batch, 1)
    return iterations * np.asarray(settings["update_epochs"]) * minibatches


def features(settings):
    """The settings x, (C, 4). settings: a DataFrame with the columns SETTING."""
    number, length, rate = (np.asarray(settings[name], float) for name in SETTING[:3])
    return np.log2(np.stack([number, length, rate, rate * gradient_steps(settings)], axis=1))


def kernels(x, other, theta):
    """(k_m, k_d) of settings (C, 4) and (D, 4), each (C, D). theta: the logarithms of (a_m, a_d, b, e, l)."""
    shared, own, offset, rough, *lengths = np.exp(theta)
    squares = (x[:, None] - other[None]) ** 2
    smooth = np.exp(-0.5 * (squares / np.square(lengths)).sum(-1))
    return shared**2 * smooth, own**2 * smooth + offset**2 + rough**2 * (squares.max(-1) < 1e-9)


class Prior(NamedTuple):
    """The scores of a new task's C settings before its first run."""

    mean: np.ndarray  # mu, (C,)
    covariance: np.ndarray  # K, (C, C)
    log_noise: Tuple[float, float]  # the mean and the deviation of log v


class Tasks:
    """The model, fitted to the runs of a table: a row per run, with `game`, `score` and SETTING."""

    def __init__(self, table):
        settings = table.groupby(["game", *SETTING])["score"].agg(["mean", "count", "var"]).reset_index()
        self.settings, self.tasks = settings, settings["game"].to_numpy()
        self.x, self.y = features(settings), settings["mean"].to_numpy() - CENTER
        self.same = self.tasks[:, None] == self.tasks
        freedom = (settings["count"] - 1).groupby(self.tasks).sum()
        pooled = ((settings["count"] - 1) * settings["var"].fillna(0)).groupby(self.tasks).sum() / freedom
        count, squares = settings["count"].to_numpy(), ((settings["count"] - 1) * settings["var"].fillna(0)).to_numpy()
        self.noise = (DEGREES * pooled[self.tasks].to_numpy() + squares) / (DEGREES + count - 1) / count
        logs = 0.5 * np.log(pooled[pooled > LEAST_DEVIATION**2])
        self.log_noise = float(logs.mean()), float(logs.std(ddof=1)) if len(logs) > 2 else 0.5
        self.theta = minimize(self.objective, START, jac=True, method="L-BFGS-B", options={"maxiter": 60}).x
        shared, own = kernels(self.x, self.x, self.theta)
        self.factor = cho_factor(shared + self.same * own + np.diag(self.noise), lower=True)

    def objective(self, theta):
        """Minus the log posterior density of theta up to a constant, and its gradient."""
        shared, own, offset, rough, *lengths = np.exp(theta)
        squares = (self.x[:, None] - self.x[None]) ** 2
        smooth = np.exp(-0.5 * (squares / np.square(lengths)).sum(-1))
        height = (shared**2 + own**2 * self.same) * smooth
        factor = cho_factor(height + offset**2 * self.same + np.diag(self.noise + rough**2), lower=True)
        alpha = cho_solve(factor, self.y)
        value = 0.5 * self.y @ alpha + np.log(np.diag(factor[0])).sum()
        slope = 0.5 * (cho_solve(factor, np.eye(len(alpha))) - np.outer(alpha, alpha))  # d value / d covariance
        gradient = [2 * shared**2 * (slope * smooth).sum(), 2 * own**2 * (slope * smooth * self.same).sum()]
        gradient += [2 * offset**2 * (slope * self.same).sum(), 2 * rough**2 * np.trace(slope)]
        gradient += [(slope * height * squares[..., i]).sum() / length**2 for i, length in enumerate(lengths)]
        away = (theta - START) / SPREAD
        return value + 0.5 * away @ away, np.array(gradient) + away / SPREAD

    def prior(self, settings):
        """The Prior of a task that is not in the table. settings: a DataFrame with the columns SETTING."""
        x = features(settings)
        across = kernels(x, self.x, self.theta)[0]
        mean = CENTER + across @ cho_solve(self.factor, self.y)
        covariance = sum(kernels(x, x, self.theta)) - across @ cho_solve(self.factor, across.T)
        return Prior(mean, covariance, self.log_noise)

    def best_products(self):
        """Learning rate x gradient steps of each task's best setting, (tasks,)."""
        return np.array(
            [2 ** self.x[self.tasks == task][self.y[self.tasks == task].argmax(), 3] for task in set(self.tasks)]
        )


# ---- after some runs -------------------------------------------------------------------------------------------------
def posterior(prior, gains, number, rng):
    """Draws of what training gains in each setting, (number, C): mean return minus that of an untrained network.

    gains: one array a setting, (runs,), maybe empty: the returns of its runs minus that of an untrained network.
    """
    counts = np.array([len(values) for values in gains])
    if not counts.any():
        return rng.multivariate_normal(prior.mean, prior.covariance, number, method="eigh")
    tried = np.flatnonzero(counts)
    n, means = counts[tried], np.array([np.mean(gains[c]) for c in tried])
    squares = np.array([np.square(gains[c] - np.mean(gains[c])).sum() for c in tried])
    columns, within = prior.covariance[tried], prior.covariance[np.ix_(tried, tried)]
    center, spread = prior.log_noise
    noises = np.exp(center + spread * np.linspace(-2, 2, NOISES))
    scales = max(np.abs(means).max(), 1e-9) * 2.0 ** np.linspace(-1, 4, SCALES)
    points, logs = list(itertools.product(scales, noises)), []
    found = []  # (mean, gain matrix) of f at each point
    for s, v in points:
        rest, q = means / s - prior.mean[tried], 1.0
        for _ in range(2):  # q of the second pass is of the scores that the first expects
            w = (DEGREES * v**2 * q + squares / s**2) / (DEGREES + n - 1)
            factor = cho_factor(within + np.diag(w / n), lower=True)
            gain = cho_solve(factor, columns).T
            expected = prior.mean[tried] + gain[tried] @ rest
            q = np.clip(4 * expected * (1 - expected), LEAST_NOISE, 1)
        found.append((prior.mean + gain @ rest, gain))
        density = -n.sum() * np.log(s) - 0.5 * rest @ cho_solve(factor, rest) - np.log(np.diag(factor[0])).sum()
        density += 0.5 * (DEGREES * np.log(v**2 * q) - (DEGREES + n - 1) * np.log(w)).sum()
        logs.append(density - 0.5 * ((np.log(v) - center) / spread) ** 2)
    weights = np.exp(np.array(logs) - max(logs))
    draws = []
    for (s, _), (mean, gain), times in zip(
        points, found, rng.multinomial(number, weights / weights.sum()), strict=True
    ):
        if times:
            covariance = prior.covariance - gain @ columns
            draws.append(s * rng.multivariate_normal(mean, covariance, times, method="eigh"))
    return rng.permutation(np.concatenate(draws))


def close_to_best(draws):
    """For each setting the probability that it gains at most CLOSE less than the best one, (C,)."""
    best = draws.max(1, keepdims=True)
    return (draws >= best - CLOSE * np.abs(best)).mean(0)


def next_runs(draws, groups, most, number):
    """The settings of the next runs, a list: Thompson's sampling (1933), a run for each of the first `number` draws.

    A run is of the setting that is best in its draw, so a setting has as many runs as its probability to be the best
    asks for. groups: that of each setting, (C,); the runs are of `most` groups at most, as those of one N x T share a
    process: those of the first draws' best settings.
    """
    groups = np.asarray(groups)
    chosen = list(dict.fromkeys(groups[draws.argmax(1)].tolist()))[:most]
    return np.where(np.isin(groups, chosen), draws, -np.inf)[:number].argmax(1).tolist()
