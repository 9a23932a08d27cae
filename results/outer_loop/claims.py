"""Three ways to use 1/4, 4 or 16 times the environments of a base of 8 x 32 with minibatches of 64 rows (P3)."""

import numpy as np
from analysis.claims import Claims
from analysis.comparisons import curvature, judge, judge_ranks
from analysis.estimates import evidence, resampled
from analysis.experiment import REPS
from analysis.panels import facets

VARIES = ("num_envs", "minibatch_size", "learning_rate")
FIXED = {"num_steps": 32}
MORE, BIGGER, SQRT = WAYS = ("more minibatches", "bigger minibatches", "bigger, rate × √c")
BASE = 8  # environments
QUARTERS = (1, 2, 3, 4)


def way(scores, name, num_envs):
    """The configuration that uses so many environments in one of WAYS."""
    c = num_envs / BASE
    size = 64 if name == MORE else 64 * c
    return scores.one(num_envs=num_envs, minibatch_size=size, learning_rate=2.5e-4 * (c**0.5 if name == SQRT else 1))


def measure(run):
    """The last `outer/ddr` (`ddr`) and the harmonic mean of all its points (`ddr_mean`).

    Up to each quarter q of a run also `return_q`, the mean of the points of the training return, and `signal_q` and
    `noise_q`, the sums of `outer/grad_noise_scale/signal` and `/noise`.
    """
    ddr = run.curve("outer/ddr")[1]
    columns = {"ddr": float(f"{ddr[-1]:.6g}"), "ddr_mean": float(f"{len(ddr) / (1 / ddr).sum():.6g}")}
    for q in QUARTERS:
        last = run.arguments["total_timesteps"] * q / 4
        steps, returns = run.curve("charts/episodic_return")
        columns[f"return_{q}"] = round(float(returns[steps <= last].mean()), 4) if (steps <= last).any() else np.nan
        for part in ("signal", "noise"):
            steps, values = run.curve(f"outer/grad_noise_scale/{part}")
            columns[f"{part}_{q}"] = float(f"{values[steps <= last].sum():.6g}")
    return columns


def log_ddr(view, config, column):
    """log10 of samples per nat of KL: a sample."""
    return [np.log10(values) for values in view.sample(config, column)]


def inverted_u(view):
    places = [log_ddr(view, config, "ddr") for config in view.configs]
    samples = [view.sample(config) for config in view.configs]
    return judge(evidence(curvature, [*samples, *places]), "less")


def move_of_the_top(*samples):
    """log10 DDR of the configuration with the largest mean return at the end minus that of the best at a quarter: (…,).

    samples: one a configuration, with an array (3, …, seeds) a game: the return at a quarter and at the end, NaN where
    no game has ended, and the DDR. The mean over games.
    """
    by_game = []
    for arrays in zip(*samples, strict=True):
        *returns, ddr = np.stack(arrays, axis=1)  # each (configurations, …, seeds)
        places, best = np.log10(ddr).mean(-1), []
        for values in returns:
            ended = ~np.isnan(values)
            sums, counts = np.where(ended, values, 0).sum(-1), ended.sum(-1)
            best.append(np.where(counts > 0, sums / np.maximum(counts, 1), -np.inf).argmax(0))
        early, last = (np.take_along_axis(places, place[None], 0)[0] for place in best)
        by_game.append(last - early)
    return np.mean(by_game, axis=0)


def top_moves(view):
    columns = ("return_1", "return_4", "ddr_mean")
    samples = [
        [np.stack(arrays) for arrays in zip(*(view.sample(config, name) for name in columns))]
        for config in view.configs
    ]
    return judge(resampled(move_of_the_top, samples, REPS), "more")


def noise_and_best(view):
    """Two tables (games, quarters): the noise scale at N = 32, in environments, and the N of the largest mean return.

    The scale is `noise` by `signal`, each summed over the runs with more minibatches up to the end of the quarter, by
    the 32 steps of a rollout; infinite where the noise hides the gradient.
    """
    config_of = {n: way(view, MORE, n) for n in sorted({config["num_envs"] for config in view.configs})}
    scales, best = np.zeros((2, len(view.games), len(QUARTERS)))
    for q in QUARTERS:
        noise, signal = (view.sample(config_of[32], f"{part}_{q}") for part in ("noise", "signal"))
        returns = {n: view.sample(config, f"return_{q}") for n, config in config_of.items()}
        for game in range(len(view.games)):
            total = signal[game].sum()
            scales[game, q - 1] = noise[game].sum() / total / 32 if total > 0 else np.inf
            means = {n: np.nanmean(of[game]) for n, of in returns.items() if not np.isnan(of[game]).all()}
            best[game, q - 1] = max(means, key=means.get)
    return scales, best


def claims(scores):
    found = Claims(scores)
    numbers = sorted({config["num_envs"] for config in scores.configs})
    fewest, most = numbers[0], numbers[-1]

    def beats(name, text, first, second, num_envs):
        pair = [way(scores, one, num_envs) for one in (first, second)]
        found.compare(f"at N = {num_envs} {text}", *pair, name=name, primary=True)

    beats("O1", "more minibatches beat bigger ones", MORE, BIGGER, most)
    beats("O2", "more minibatches beat bigger ones with the square-root rule", MORE, SQRT, most)
    text, quantity = "the score is an inverted U in log DDR", "coefficient of the square of log10 DDR"
    found.add(text, inverted_u, scores.configs, name="O3", primary=True, quantity=quantity)
    beats("O5", "minibatches of the base's size beat smaller ones", MORE, BIGGER, fewest)
    text = "the top of the U is at a higher DDR at the end than at a quarter of the steps"
    found.add(text, top_moves, scores.configs, name="O4", quantity="log10 DDR")
    text, quantity = "the noise scale predicts the best N", "rank correlation over games and quarters"
    more = [way(scores, MORE, n) for n in numbers]
    found.add(text, lambda view: judge_ranks(*noise_and_best(view)), more, name="O6", by_game=False, quantity=quantity)
    return found


def draw(scores):
    numbers = sorted({config["num_envs"] for config in scores.configs})
    rows = {name: [way(scores, name, n) for n in numbers] for name in WAYS}
    title = "Three ways to use N environments at T = 32, 100,000 steps"
    return facets(scores, rows, [f"{n}" for n in numbers], "environments (N)", title)
