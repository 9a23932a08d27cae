"""Aggregates over tasks and seeds, their bootstrap intervals, and the verdicts that rest on them.

A *sample* holds the scores of one configuration: a list with one array per task, (…, seeds). Tasks may have different
numbers of seeds, and every statistic gives each task the same weight.

A pooled number is the `mean` over tasks of each task's mean. Only the pictures of P1 pool runs of different tasks into
one `iqm`, as P1 does with rliable (Agarwal et al. 2021, arXiv 2108.13264); tests/test_analysis.py compares both.

A verdict counts what is sampled (`unit_of`). With TASKS tasks or more, of SEEDS_OF_A_TASK seeds or more each, these are
the tasks: each has one number, and Student's t is over them, so that the verdict is on tasks of this kind. With fewer
tasks these are the seeds, and the tasks are taken as fixed.

Three 95 % intervals (results/calibration has how often a verdict by each of them is wrong):

`evidence` is Student's t, for every verdict and every published number: over tasks, or over seeds with the standard
error of the jackknife. For a mean over seeds it is the usual t interval, for a difference Welch's. Bootstraps are too
narrow with few seeds: of three equal seeds they cover 74 %.
`resampled` draws n - 1 of n seeds (Rao and Wu 1988), for a statistic that jumps, such as the place of a best value,
where a standard error over seeds says nothing.
`interval` draws n of n seeds, as rliable does: for the figures of P1, which pool as P1 does.
"""

import statistics
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

NORMAL = statistics.NormalDist()
TASKS, SEEDS_OF_A_TASK = 6, 5  # from so many tasks with so many seeds each the tasks are what is sampled
SEED, TASK = "seed", "task"  # the units of a verdict
MIN_SEEDS = 3  # seeds per task, on average: below that an interval says too little to be shown
LACKING = "a run lacks a number"  # why there is none of many runs
ALPHA = 0.05  # the level of intervals and p-values
DRAWS = 4000  # points of the distribution that a verdict rests on
MARGIN = 0.1  # share of the base's score: a smaller difference is "little"
SUPPORTED, CONTRADICTED, UNDECIDED = "supported", "contradicted", "undecided"


class Estimate(NamedTuple):
    """A number, or an array of numbers, with the bounds of its 95 % interval: NaN where the data allow none."""

    value: float
    low: float
    high: float

    @property
    def ends(self):
        """How far both bounds are from the number, (2, 1): matplotlib's error bar."""
        return np.abs([[self.value - self.low], [self.high - self.value]])


NO_ESTIMATE = Estimate(np.nan, np.nan, np.nan)


class Evidence(NamedTuple):
    """A number and the distribution of its error: what a verdict rests on."""

    value: float
    draws: np.ndarray  # (reps,), equally likely values; empty: no interval
    why: str = ""  # why there is no interval

    @property
    def estimate(self):
        """The number with its 95 % interval."""
        return Estimate(self.value, *(map(float, percentile_interval(self.draws)) if self.draws.size else [np.nan] * 2))


def nothing(why):
    """The Evidence where there are no numbers."""
    return Evidence(np.nan, np.zeros(0), why)


def _known(value, draws, why=""):
    """The Evidence of a number, or of none: one run without a number leaves the others' mean without one."""
    return nothing(LACKING) if np.isnan(value) else Evidence(value, draws, why)


# ---- statistics of a sample ------------------------------------------------------------------------------------------
def iqm(sample):
    """The mean of the middle half of all runs of all tasks, (…,).

    Exactly a quarter of the weight is cut at each end, so that the estimate and the draws of a bootstrap with fewer
    runs trim the same share: of 15 runs 3.75, the fourth and the twelfth counting by a quarter. It equals
    rliable.metrics.aggregate_iqm where the number of runs is divisible by 4; elsewhere rliable cuts whole runs only
    (3 of 15).
    """
    values = np.concatenate(sample, axis=-1)
    weights = np.concatenate([np.full(x.shape[-1], 1 / x.shape[-1] / len(sample)) for x in sample])
    if np.all(weights == weights[0]):  # then it does not matter whose value it is, and sorting is enough
        values.sort(-1)
    else:
        order = values.argsort(-1)
        values, weights = np.take_along_axis(values, order, -1), weights[order]
    ends = weights.cumsum(-1)
    kept = np.clip(ends, 0.25, 0.75) - np.clip(ends - weights, 0.25, 0.75)
    return (values * kept).sum(-1) / kept.sum(-1)


def mean(sample):
    """The mean over tasks of the mean over seeds, (…,)."""
    return np.mean([x.mean(-1) for x in sample], axis=0)


def median(sample):
    """The median over tasks of the mean over seeds, (…,), as rliable.metrics.aggregate_median."""
    return np.median([x.mean(-1) for x in sample], axis=0)


def optimality_gap(sample):
    """How far the runs stay below a score of 1, (…,), as rliable.metrics.aggregate_optimality_gap."""
    return 1 - mean([np.minimum(x, 1) for x in sample])


def dominance(x, y):
    """P(a value of x (…, n) is above one of y (…, m)) - P(it is below), (…,)."""
    x, y = x[..., :, None], y[..., None, :]
    return ((x > y).sum((-2, -1)) - (x < y).sum((-2, -1))) / (x.shape[-2] * y.shape[-1])


def improvement(sample, other):
    """P(a run of `sample` scores higher than one of `other`), mean over tasks, as rliable's."""
    return np.mean([(dominance(x, y) + 1) / 2 for x, y in zip(sample, other)], axis=0)


# ---- bootstrap -------------------------------------------------------------------------------------------------------
def enough_seeds(samples):
    """Whether the samples allow an interval: MIN_SEEDS seeds per task on average, and at least 2 in every task."""
    counts = [[x.shape[-1] for x in sample] for sample in samples]
    return all(count and min(count) >= 2 and np.mean(count) >= MIN_SEEDS for count in counts)


def too_few_seeds(samples):
    """Why there is no interval, e.g. "1 seed"; "" where there is one."""
    fewest = min((x.shape[-1] for sample in samples for x in sample), default=0)
    return "" if enough_seeds(samples) else f"{fewest} seed{'s' * (fewest != 1)}"


@lru_cache(maxsize=8)  # most statistics are of samples of the same sizes
def _places(sizes, reps, seed, left_out):
    """Which runs each draw takes of arrays with `sizes` seeds: arrays (reps, seeds - left_out)."""
    rng = np.random.RandomState(seed)
    return [rng.randint(size, size=(reps, size - left_out)) for size in sizes]


def bootstrap(statistic, samples, reps, seed=0, left_out=0):
    """statistic(*samples) of `reps` bootstrap draws, (…, reps).

    In each array of each sample whole runs are drawn with replacement along the last axis: as many as there are, less
    `left_out`. `statistic` gets samples whose arrays are (…, reps, seeds - left_out).
    """
    sizes = tuple(x.shape[-1] for sample in samples for x in sample)
    places = iter(_places(sizes, reps, seed, left_out))
    return statistic(*[[x[..., next(places)] for x in sample] for sample in samples])


def percentile_interval(draws, alpha=ALPHA):
    """The percentiles of draws (…, reps) that leave alpha / 2 outside at each end: 2.5 % and 97.5 %."""
    # between two infinite draws there is nothing to interpolate
    method = "linear" if np.isfinite(draws).all() else "inverted_cdf"
    return np.percentile(draws, [50 * alpha, 100 - 50 * alpha], axis=-1, method=method)


def interval(statistic, samples, reps=2000, seed=0):
    """statistic(*samples) with its 95 % bootstrap interval, n of n seeds: for what is drawn or listed.

    The interval is rliable's, drawn here in one piece: its loop over the draws takes a hundred times as long.
    """
    value = np.asarray(statistic(*samples), float)
    if not enough_seeds(samples):
        return Estimate(value, np.full_like(value, np.nan), np.full_like(value, np.nan))
    return Estimate(value, *percentile_interval(bootstrap(statistic, samples, reps, seed)))


def jackknife(statistic, samples):
    """statistic(*samples), its standard error, and the degrees of freedom of that, each (…,).

    Every array of every sample adds a variance, (n - 1) / n times the sum of squares of the n values that leave one run
    out (Efron and Stein 1981); for means this is the usual one. Degrees of freedom as by Welch and Satterthwaite.
    """
    variance = squares = 0.0
    arrays = [(sample, task) for sample, of_sample in enumerate(samples) for task in range(len(of_sample))]
    for place in arrays:
        size = samples[place[0]][place[1]].shape[-1]
        others = np.array([[j for j in range(size) if j != i] for i in range(size)])
        parts = [[np.repeat(x[..., None, :], size, -2) for x in sample] for sample in samples]
        parts[place[0]][place[1]] = samples[place[0]][place[1]][..., others]
        values = statistic(*parts)
        own = (size - 1) / size * ((values - values.mean(-1, keepdims=True)) ** 2).sum(-1)
        variance, squares = variance + own, squares + own**2 / (size - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = np.where(squares > 0, np.square(variance) / squares, 1.0)
    return np.asarray(statistic(*samples), float), np.sqrt(variance), freedom


def unit_of(samples):
    """What a verdict on the samples counts: TASK or SEED."""
    tasks = min(map(len, samples), default=0)
    fewest = min((x.shape[-1] for sample in samples for x in sample), default=0)
    return TASK if tasks >= TASKS and fewest >= SEEDS_OF_A_TASK else SEED


def over_tasks(statistic, samples):
    """The mean over tasks of a statistic of each task, its standard error, and the degrees of freedom, each (…,)."""
    values = np.stack([statistic(*([x] for x in of_task)) for of_task in zip(*samples, strict=True)])
    count, value = len(values), values.mean(0)
    return value, values.std(0, ddof=1) / count**0.5, np.full(value.shape, count - 1.0)


def distribution(statistic, samples, draws=DRAWS, unit=None):
    """(value (…,), draws (…, draws)): equally likely values of Student's t around a statistic that is (…,).

    unit: TASK or SEED; None: what is sampled (unit_of).
    """
    by_task = (unit or unit_of(samples)) == TASK
    value, error, freedom = (over_tasks if by_task else jackknife)(statistic, samples)
    levels, inverse = np.unique(freedom.round(2), return_inverse=True)
    points = np.stack([_quantiles(level, draws) for level in levels])[inverse.reshape(freedom.shape)]
    return value, value[..., None] + error[..., None] * points


@lru_cache(maxsize=256)
def _quantiles(freedom, draws):
    """So many equally likely values of Student's t."""
    return student.ppf((np.arange(draws) + 0.5) / draws, freedom)


def evidence(statistic, samples, unit=None):
    """The Evidence of a statistic that is one number and moves smoothly with the scores. unit: as for distribution."""
    return several(lambda *parts: statistic(*parts)[None], samples, unit)[0]


def several(statistic, samples, unit=None):
    """The Evidence of each number of a statistic that is (K, …): a list of K. unit: as for distribution."""
    if not enough_seeds(samples):
        return [_known(float(value), np.zeros(0), too_few_seeds(samples)) for value in statistic(*samples)]
    found = distribution(statistic, samples, unit=unit)
    return [_known(float(value), draws) for value, draws in zip(*found, strict=True)]


def resampled(statistic, samples, reps=2000, seed=0, unit=None):
    """The Evidence of a statistic that is one number and may jump: `reps` bootstrap draws of n - 1 of n seeds.

    Over tasks, each of which has its own number, it is `evidence`. unit: as for distribution.
    """
    if (unit or unit_of(samples)) == TASK:
        return evidence(statistic, samples, TASK)
    value = float(statistic(*samples))
    if not enough_seeds(samples):
        return _known(value, np.zeros(0), too_few_seeds(samples))
    return _known(value, bootstrap(statistic, samples, reps, seed, left_out=1))


def pair_correlation(pairs):
    """A statistic of samples, one per task with C arrays (…, seeds): P(larger at the higher of a pair) - P(smaller).

    The mean over the pairs, and then over tasks.
    """

    def correlation(*groups):
        by_task = [
            np.mean([dominance(group[higher], group[lower]) for lower, higher in pairs], axis=0) for group in groups
        ]
        return np.mean(by_task, axis=0)

    return correlation


def kendall(levels, groups, control=None):
    """Rank correlation of `levels` with a quantity, mean over tasks: Evidence.

    Kendall's tau over the pairs of runs whose levels differ (Somers' D): P(larger at the higher level) - P(smaller).
    It is 0 for constants.

    levels: (C,), one per configuration, as N. groups: one list per task of C arrays (seeds,) of the quantity. control:
    (C,); if given, only configurations with equal control are compared, as N at a fixed batch.
    """
    control, places = control or [0] * len(levels), range(len(levels))
    pairs = [(i, j) for i in places for j in places if levels[i] < levels[j] and control[i] == control[j]]
    if not pairs or not groups:
        return nothing("nothing to compare")
    if any(np.isnan(values).any() for group in groups for values in group):  # they are neither larger nor smaller
        return nothing(LACKING)
    return of_groups(pair_correlation(pairs), groups)


def of_groups(statistic, groups):
    """The Evidence of a statistic of groups, one list of arrays (seeds,) per task, not one sample per configuration."""
    return evidence(lambda *samples: statistic(*zip(*samples)), list(zip(*groups)))


def reversals(levels, groups, side="more"):
    """{level: p-value} of the levels at which the quantity is significantly beyond that at the last, against a trend.

    A trend up (`more`) is reversed where the quantity is larger at an earlier level, a trend down (`less`) where it is
    smaller. Each earlier level is compared with the last by `pair_correlation`; Holm's correction over them, at 5 %.
    """
    if not groups or not enough_seeds([*zip(*groups)]):
        return {}
    last = int(np.argmax(levels))
    earlier = [i for i in range(len(levels)) if levels[i] < levels[last]]
    chances = [p_values(of_groups(pair_correlation([(i, last)]), groups).draws, side)[1] for i in earlier]
    return {levels[i]: chance for i, chance in zip(earlier, holm(chances)) if chance < ALPHA}


# ---- verdicts --------------------------------------------------------------------------------------------------------
def verdict(low, high, side, margin=0.0):
    """*supported*, *contradicted* or *undecided*, from the interval of a difference.

    side: what is claimed of the difference: `more` (above 0), `less` (below 0), `little` (inside ±margin), `not less`
    (above -margin).
    """
    if np.isnan([low, high]).any():
        return UNDECIDED
    if side == "less":
        low, high = -high, -low
    if side == "little":
        holds, fails = -margin < low and high < margin, low > margin or high < -margin
    elif side == "not less":
        holds, fails = low > -margin, high < -margin
    else:
        holds, fails = low > 0, high < 0
    return SUPPORTED if holds else CONTRADICTED if fails else UNDECIDED


def p_values(draws, side, margin=0.0):
    """(p of the claim, p of its opposite), each (…,) of draws (…, reps): below 0.05 where `verdict` decides so.

    Twice the share of the draws on the wrong side, counting one draw more (Davison and Hinkley 1997, eq. 4.11): at
    least 2 / (reps + 1). A p-value above 0.05 may belong to an interval whose end is within a draw of the bound.
    """
    if not draws.size:
        return 1.0, 1.0

    def chance(*wrong):
        return [np.minimum(1.0, 2 * (1 + where.sum(-1)) / (1 + draws.shape[-1])) for where in wrong]

    if side == "less":
        draws = -draws
    if side == "little":  # two one-sided tests; outside: the nearer end of the margin decides
        below, above, not_below, not_above = chance(
            draws <= -margin, draws >= margin, draws >= -margin, draws <= margin
        )
        return np.maximum(below, above), np.minimum(not_below, not_above)
    if side == "not less":
        return tuple(chance(draws <= -margin, draws >= -margin))
    return tuple(chance(draws <= 0, draws >= 0))


def holm(chances):
    """Holm's adjusted p-values: below 0.05 in all true hypotheses of the list with a chance of 95 %."""
    adjusted, largest = [0.0] * len(chances), 0.0
    for rank, i in enumerate(sorted(range(len(chances)), key=lambda i: chances[i])):
        largest = max(largest, min(1.0, (len(chances) - rank) * chances[i]))
        adjusted[i] = largest
    return adjusted


def standard_error(estimate):
    """The standard error that a 95 % interval implies if the estimate is normal; NaN without one or of zero width."""
    width = float(estimate.high - estimate.low)
    return width / 2 / NORMAL.inv_cdf(1 - ALPHA / 2) if width > 0 else np.nan


def detectable(estimate):
    """The difference that a test with such an interval finds in 80 % of all tries; NaN where nothing varies.

    (1.96 + 0.84) SE. A width of zero says that all runs are equal, not that the smallest difference would be found.
    """
    return (NORMAL.inv_cdf(1 - ALPHA / 2) + NORMAL.inv_cdf(0.8)) * standard_error(estimate)


def equivalence_power(estimate, margin):
    """The chance that "changes little" is supported if there is no difference at all; NaN without an interval.

    2 Phi(margin / SE - 1.96) - 1 with the standard error of the interval, at least 0; 1 where the width is zero.
    """
    if not estimate.high > estimate.low:
        return 1.0 if estimate.high == estimate.low else np.nan
    return max(0.0, 2 * NORMAL.cdf(margin / standard_error(estimate) - NORMAL.inv_cdf(1 - ALPHA / 2)) - 1)
