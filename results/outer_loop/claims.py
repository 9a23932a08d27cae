"""P3's three ways to use c times the environments of a base.

Registered for c = 1/4, 4 and 16 times 8 x 32 with minibatches of 64 rows; figures.py tests the same claims on any base.
"""

import itertools
from functools import lru_cache

import numpy as np
from analysis.claims import Claims
from analysis.comparisons import Tested, curvature, judge
from analysis.drawing import curve_panels, facets
from analysis.estimates import (
    ALPHA,
    CONTRADICTED,
    SUPPORTED,
    UNDECIDED,
    Estimate,
    evidence,
    nothing,
    percentile_interval,
    resampled,
)
from analysis.experiment import REPS
from analysis.look import BLUE, DASH_DOTTED, DASHED, GREEN, VERMILLION
from scipy.stats import rankdata

VARIES = ("num_envs", "minibatch_size", "learning_rate")
FIXED = {"num_steps": 32}
BASE = {"num_envs": 8, "minibatch_size": 64, "learning_rate": 2.5e-4}
FIGURE = "P3, Fig. 9"
MORE, BIGGER, SQRT = WAYS = ("more minibatches", "bigger minibatches", "bigger, rate × √c")
NOISE_AT = 4  # c of the runs whose noise scale is to predict the best N
QUARTERS = (1, 2, 3, 4)


def way_of(config, base):
    """Which of WAYS makes a configuration of the base; None if none does (c scales N; T stays)."""
    c = config["num_envs"] / base["num_envs"]
    if c == 1 or config["num_steps"] != base["num_steps"]:
        return None
    count, base_count = (one.batch_size // one["minibatch_size"] for one in (config, base))
    rate = config["learning_rate"] / base["learning_rate"]
    if np.isclose(rate, 1, rtol=1e-3) and np.isclose(count / base_count, c):
        return MORE
    if np.isclose(rate, 1, rtol=1e-3) and count == base_count:
        return BIGGER
    return SQRT if np.isclose(rate, c**0.5, rtol=1e-3) and count == base_count else None


def by_way(scores):
    """{way: {c: configuration}}, without the base."""
    found = {way: {} for way in WAYS}
    for config in scores.configs:
        way = way_of(config, scores.base)
        if way:
            found[way][config["num_envs"] / scores.base["num_envs"]] = config
    return found


def measure(run):
    """The last `outer/ddr` (`ddr`) and the harmonic mean of all its points (`ddr_mean`).

    Up to each quarter q of a run also `return_q`, the mean of the points of the training return, and `signal_q` and
    `noise_q`, the sums of `outer/grad_noise_scale/signal` and `/noise`. NaN where a run has no such curve.
    """
    ddr, columns = run.curve("outer/ddr")[1], {"ddr": np.nan, "ddr_mean": np.nan}
    if len(ddr):
        columns = {"ddr": float(f"{ddr[-1]:.6g}"), "ddr_mean": float(f"{len(ddr) / (1 / ddr).sum():.6g}")}
    for q in QUARTERS:
        last = run.arguments["total_timesteps"] * q / 4
        steps, returns = run.curve("charts/episodic_return")
        columns[f"return_{q}"] = round(float(returns[steps <= last].mean()), 4) if (steps <= last).any() else np.nan
        for part in ("signal", "noise"):
            steps, values = run.curve(f"outer/grad_noise_scale/{part}")
            columns[f"{part}_{q}"] = float(f"{values[steps <= last].sum():.6g}") if len(values) else np.nan
    return columns


def log_ddr(view, config, column):
    """log10 of samples per nat of KL: a sample."""
    return [np.log10(values) for values in view.sample(config, column)]


def tested_with_ddr(test):
    """The test, a function of Scores and of its configurations, where there are enough with an `outer/ddr`."""

    def checked(view):
        configs = [config for config in view.configs if view.has(config)]
        if not all(np.isfinite(values).all() for config in configs for values in view.sample(config, "ddr")):
            return judge(nothing("a run has no outer/ddr"), "more")
        return test(view, configs) if len(configs) > 3 else judge(nothing("fewer than four settings"), "more")

    return checked


@tested_with_ddr
def inverted_u(view, configs):
    places = [log_ddr(view, config, "ddr") for config in configs]
    samples = [view.sample(config) for config in configs]
    return judge(evidence(curvature, [*samples, *places]), "less")


def move_of_the_top(*samples):
    """log10 DDR of the configuration with the largest mean return at the end minus that of the best at a quarter: (…,).

    samples: one per configuration, with an array (3, …, seeds) per task: the return at a quarter and at the end, NaN
    where no episode has ended, and the DDR. Configurations may have different numbers of seeds. The mean over tasks.
    """
    by_task = []
    for arrays in zip(*samples, strict=True):
        places = np.stack([np.log10(ddr).mean(-1) for *_, ddr in arrays])  # (configurations, …), as the returns
        best = [np.stack([mean_of_ended(array[time]) for array in arrays]).argmax(0) for time in (0, 1)]
        early, last = (np.take_along_axis(places, place[None], 0)[0] for place in best)
        by_task.append(last - early)
    return np.mean(by_task, axis=0)


def mean_of_ended(returns):
    """The mean of returns (…, seeds) without those of runs in which no episode has ended; -inf without one."""
    ended = ~np.isnan(returns)
    sums, counts = np.where(ended, returns, 0).sum(-1), ended.sum(-1)
    return np.where(counts > 0, sums / np.maximum(counts, 1), -np.inf)


@tested_with_ddr
def top_moves(view, configs):
    columns = ("return_1", "return_4", "ddr_mean")
    samples = [
        [np.stack(arrays) for arrays in zip(*(view.sample(config, name) for name in columns))] for config in configs
    ]
    return judge(resampled(move_of_the_top, samples, REPS), "more")


def judge_ranks(x, y):
    """The Tested of Spearman's correlation of two tables (tasks, settings) over all entries: is it positive?

    The settings of one task depend on each other, so whole tasks are permuted: the p-values are twice the shares of all
    orders of the tasks of x with a correlation at least, or at most, as large. 4 tasks have only 24 orders, so fewer
    than 5 tasks decide nothing. The interval is that of the orders, so of no correlation.
    """
    ranks, other = rankdata(x).reshape(np.shape(x)), rankdata(y)
    if not np.ptp(ranks) or not np.ptp(other):
        return judge(nothing("constant"), "more")
    x, y = ranks[_orders(len(ranks))].reshape(-1, ranks.size), other - other.mean()
    orders = (x - x.mean(-1, keepdims=True)) @ y / (x[0].std() * y.std() * y.size)
    found = orders[0]
    chances = tuple(min(1.0, 2 * float(np.mean(beyond))) for beyond in (orders >= found - 1e-9, orders <= found + 1e-9))
    word = SUPPORTED if chances[0] < ALPHA else CONTRADICTED if chances[1] < ALPHA else UNDECIDED
    return Tested(Estimate(float(found), *map(float, percentile_interval(orders))), word, chances)


@lru_cache(maxsize=4)
def _orders(number):
    """All orders of so many things, (orders, number), as they are first; 5,000 random ones of more than 7."""
    if number <= 7:
        return np.array(list(itertools.permutations(range(number))))
    rng = np.random.RandomState(0)
    return np.array([np.arange(number), *(rng.permutation(number) for _ in range(5000))])


def noise_predicts(view):
    """Whether the noise scale and the best N rise together, over all tasks and quarters of the runs.

    The scale, in environments, is `noise` by `signal`, each summed over the runs with more minibatches at c = NOISE_AT
    up to the end of the quarter, by the steps of a rollout; infinite where the noise hides the gradient. The best N has
    the largest mean return up to there.
    """
    configs = {1.0: view.base, **by_way(view)[MORE]}
    configs = {c: config for c, config in configs.items() if view.has(config)}
    if NOISE_AT not in configs:
        return judge(nothing(f"no runs with more minibatches at N × {NOISE_AT}"), "more")
    numbers = {config["num_envs"]: config for _, config in sorted(configs.items())}
    scales, best = np.zeros((2, len(view.tasks), len(QUARTERS)))
    for q in QUARTERS:
        noise, signal = (view.sample(configs[NOISE_AT], f"{part}_{q}") for part in ("noise", "signal"))
        returns = {n: view.sample(config, f"return_{q}") for n, config in numbers.items()}
        for task in range(len(view.tasks)):
            known = np.isfinite(noise[task]) & np.isfinite(signal[task])  # a diverged run has none
            if not known.any():
                return judge(nothing(f"no run has the noise scale in {view.tasks[task]}"), "more")
            total = signal[task][known].sum()
            scales[task, q - 1] = noise[task][known].sum() / total / view.base["num_steps"] if total > 0 else np.inf
            means = {n: np.nanmean(of[task]) for n, of in returns.items() if not np.isnan(of[task]).all()}
            if not means:
                return judge(nothing(f"no episode has ended in {view.tasks[task]}"), "more")
            best[task, q - 1] = max(means, key=means.get)
    return judge_ranks(scales, best)


def claims(scores):
    found, ways = Claims(scores), by_way(scores)
    factors = sorted({c for configs in ways.values() for c in configs})

    def beats(name, text, first, second, c):
        pair = [[ways[way][c]] if c in ways[way] else [] for way in (first, second)]
        found.compare(f"at N = {c * scores.base['num_envs']:g} {text}", *pair, name=name, primary=True)

    most = factors[-1] if factors else 1
    beats("O1", "more minibatches beat bigger ones", MORE, BIGGER, most)
    beats("O2", "more minibatches beat bigger ones with the square-root rule", MORE, SQRT, most)
    every = [config for config in scores.configs if scores.has(config)]
    text, quantity = "the score is an inverted U in log DDR", "coefficient of the square of log10 DDR"
    found.add(text, inverted_u, every, name="O3", side="less", primary=True, quantity=quantity)
    if factors and factors[0] < 1:
        beats("O5", "minibatches of the base's size beat smaller ones", MORE, BIGGER, factors[0])
    text = "the top of the U is at a higher DDR at the end than at a quarter of the steps"
    found.add(text, top_moves, every, name="O4", side="more", quantity="log10 DDR")
    text, quantity = "the noise scale predicts the best N", "rank correlation over games and quarters"
    more = [scores.base, *ways[MORE].values()]
    found.add(text, noise_predicts, more, name="O6", side="more", by_task=False, quantity=quantity)
    return found


def draw(scores):
    ways = {way: {1.0: scores.base, **configs} for way, configs in by_way(scores).items()}
    factors = sorted({c for configs in ways.values() for c in configs})
    rows = {way: [configs.get(c) for c in factors] for way, configs in ways.items()}
    title = "Three ways to use N environments at T = 32, 100,000 steps"
    return facets(scores, rows, [f"{c * scores.base['num_envs']:g}" for c in factors], "environments (N)", title)


STYLES = {
    MORE: dict(color=BLUE, ls="-"),
    BIGGER: dict(color=VERMILLION, ls=DASHED),
    SQRT: dict(color=GREEN, ls=DASH_DOTTED),
}


def sheets(suite):
    """Curves of each way at each c, with the final scores; and the same against hours."""
    base, found = suite.base, by_way(suite)
    factors = sorted({c for configs in found.values() for c in configs})
    style = {base: dict(color="black", label="base (c = 1)", zorder=3)}
    for way, configs in found.items():
        style.update({config: {**STYLES[way], "label": way} for config in configs.values()})
    panels = [
        (f"c = {c:g}", [base, *(configs[c] for configs in found.values() if c in configs)], style) for c in factors
    ]
    lines = []
    for way, configs in found.items():
        if configs:
            factors_of_line, configs_of_line = zip(*sorted({1.0: base, **configs}.items()))
            lines.append((configs_of_line, factors_of_line, {**STYLES[way], "label": way}))
    panels, finals = panels or [("", [base], style)], [("factor c of N", "log", lines)] if lines else []
    yield curve_panels(suite, panels, finals)
    if suite.axis == "steps":
        yield curve_panels(suite, panels, finals, part="hours", axis="hours")
