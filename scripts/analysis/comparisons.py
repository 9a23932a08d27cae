"""What a claim compares, and the tests whose rates of wrong verdicts are known (results/calibration).

The statistics take samples (estimates.py), one per configuration, and work on all draws of a bootstrap at once. A test
gives a `Tested`: the number, its interval, the verdict, and the p-values of the claim and of its opposite.

Against the best of several a plain interval is wrong: the best of seven equal configurations, chosen by the scores that
test it, is above each of them. `judge_each` and `judge_best` compare with each alternative on its own. Where the data
also choose what is tested, `halves` leaves other seeds to test it.
"""

from typing import NamedTuple

import numpy as np
from scipy.stats import binomtest

from analysis.estimates import (
    ALPHA,
    CONTRADICTED,
    LACKING,
    SEEDS_OF_A_TASK,
    SUPPORTED,
    TASKS,
    UNDECIDED,
    Estimate,
    Evidence,
    distribution,
    evidence,
    mean,
    nothing,
    p_values,
    percentile_interval,
    reversals,
    too_few_seeds,
    verdict,
)

SEEDS_FOR_A_VERDICT = 10  # in each task, where the seeds are the unit; with fewer there is an estimate and no verdict
SOLVED = 0.9  # the score from which a run counts as one that has solved its task
NEIGHBOUR = 2.0  # the largest factor between a learning rate and its neighbour on the grid


class Tested(NamedTuple):
    """What a test says of a claim."""

    estimate: Estimate
    verdict: str = UNDECIDED
    chances: tuple = (1.0, 1.0)  # the p-values of the claim and of its opposite
    why: str = ""  # why there is no interval
    remark: str = ""
    found: Evidence = None  # of one number

    @property
    def p(self):
        """The p-value of the verdict; of an undecided claim the smaller of both."""
        holds, fails = self.chances
        return {SUPPORTED: holds, CONTRADICTED: fails}.get(self.verdict, min(holds, fails))

    def undecided(self, remark):
        """The same number without a decision, and why."""
        return self._replace(verdict=UNDECIDED, chances=(1.0, 1.0), remark=remark)


def needed(tasks, seeds):
    """What a verdict needs that so many tasks with so many seeds each do not have, e.g. "10 seeds"; "" if nothing.

    TASKS tasks of SEEDS_OF_A_TASK seeds, where the tasks are the unit (estimates.unit_of), or SEEDS_FOR_A_VERDICT.
    """
    if seeds >= SEEDS_FOR_A_VERDICT or (tasks >= TASKS and seeds >= SEEDS_OF_A_TASK):
        return ""
    over_tasks = f"{SEEDS_OF_A_TASK} seeds in {TASKS} tasks, or " if tasks > 1 else ""
    return f"{over_tasks}{SEEDS_FOR_A_VERDICT} seeds"


# ---- tests -----------------------------------------------------------------------------------------------------------
def judge(found, side, margin=0.0):
    """The Tested of an Evidence. side, margin: as for estimates.verdict."""
    estimate = found.estimate
    word = verdict(estimate.low, estimate.high, side, margin)
    return Tested(estimate, word, tuple(map(float, p_values(found.draws, side, margin))), found.why, found=found)


def estimated(found):
    """The Tested of an Evidence about which nothing is claimed."""
    return Tested(found.estimate, why=found.why, found=found)


def judge_each(found, side, margin=0.0):
    """The Tested of a claim that holds if it holds of each of several numbers, from the list of their Evidence.

    *Supported* if each number supports it at 5 %: since all of them have to, nothing is corrected (intersection-union
    test). *Contradicted* if one of them contradicts it after Bonferroni's correction, the first step of Holm's. So no
    rate of wrong verdicts grows with the number of alternatives. The value is the number that is worst for the claim;
    the interval is of that worst number, and of `little` the span of all intervals.
    """
    if not found:
        return judge(nothing("nothing to compare"), side, margin)
    values = np.array([one.value for one in found])
    worst = {"less": values.max(), "little": values[np.abs(values).argmax()]}.get(side, values.min())
    why = next((one.why for one in found if one.why), "")
    if why:
        return Tested(Estimate(float(worst), np.nan, np.nan), why=why)
    return _judge_table(worst, np.stack([one.draws for one in found])[None], side, margin)


def judge_best(first, second, side="more", margin=0.0):
    """The Tested of the best of some configurations minus the best of others, `more` or `not less`.

    first, second: (name, {learning rate: sample}). Undecided where a best rate is at the edge. The difference of two
    maxima does not do as a statistic: the best of four equal rates is above the one good rate of another N x T that is
    as good as each of them. *Supported* if one rate of the first, after Bonferroni's correction for their number, is
    above each rate of the second; *contradicted* if one of the second, likewise, is above each of the first.
    """
    tested = judge_maxima(first[1].values(), second[1].values(), side, margin)
    return unless_at_the_edge(tested, dict([first, second]))


def judge_maxima(first, second, side="more", margin=0.0, unit=None):
    """`judge_best` of lists of samples, wherever their best ones are. unit: as for estimates.distribution."""
    samples, count = [*first, *second], len(first)

    def differences(*drawn):
        scores = np.stack([mean(sample) for sample in drawn])
        return scores[:count, None] - scores[None, count:]

    value = differences(*samples).max(0).min()
    why = LACKING if np.isnan(value) else too_few_seeds(samples)
    if why:
        return Tested(Estimate(float(value), np.nan, np.nan), why=why)
    return _judge_table(value, distribution(differences, samples, unit=unit)[1], side, margin)


def _judge_table(value, draws, side, margin):
    """The Tested of a claim that holds if in one row of a table each number supports it. draws: (rows, columns, reps).

    It fails if in one column each number contradicts it. Bonferroni's correction for "one", none for "each".
    """
    rows, columns, _ = draws.shape
    holds, fails = p_values(draws, side, margin)
    holds, fails = (min(1.0, float(chance)) for chance in (rows * holds.max(1).min(0), columns * fails.max(0).min(0)))
    by_row, by_column = percentile_interval(draws, ALPHA / rows), percentile_interval(draws, ALPHA / columns)
    if side == "little":
        low, high = by_row[0].min(), by_row[1].max()
    elif side == "less":
        low, high = by_column[0].max(), by_row[1].max()
    else:
        low, high = by_row[0].min(1).max(), by_column[1].max(0).min()
    word = SUPPORTED if holds < ALPHA else CONTRADICTED if fails < ALPHA else UNDECIDED
    return Tested(Estimate(*map(float, (value, low, high))), word, (holds, fails))


def judge_trend(tau, levels, groups, side):
    """The Tested of a Kendall's tau (estimates.kendall) of levels with groups; a trend that turns back is contradicted.

    side: `more` or `less`. It turns back if the quantity at an earlier level is significantly beyond that at the last
    one (estimates.reversals).
    """
    tested = judge(tau, side)
    back = reversals(levels, groups, side) if tested.verdict == SUPPORTED else {}
    if not back:
        return tested
    beyond, places = "larger" if side == "more" else "smaller", " ".join(f"{level:g}" for level in back)
    remark = f"the trend turns back: {beyond} at {places} than at {max(levels):g}"
    return tested._replace(verdict=CONTRADICTED, chances=(1.0, min(back.values())), remark=remark)


# ---- statistics of samples, one per configuration --------------------------------------------------------------------
def difference(first, second):
    """The first score minus the second, (…,)."""
    return mean(first) - mean(second)


def gain_difference(first, second, other_first, other_second):
    """The gain of the first over the second minus that of the other pair, (…,)."""
    return difference(first, second) - difference(other_first, other_second)


def over_each(first, *others):
    """The first minus each of the others, (K, …): for `estimates.several` and `judge_each`."""
    return np.stack([mean(first) - mean(other) for other in others])


def quadratic(scores, places):
    """Least squares of score = a + b x + c x² with x = `places` over configurations, (C, …): (c, place of the top).

    The place is -b / 2c; infinite where c is 0.
    """
    x, y = np.moveaxis(np.asarray(places, float), 0, -1), np.moveaxis(np.asarray(scores, float), 0, -1)
    center = x.mean(-1, keepdims=True)
    powers = np.stack([np.ones_like(x), x - center, (x - center) ** 2], axis=-1)
    _, slope, curvature = np.moveaxis((np.linalg.pinv(powers) @ y[..., None])[..., 0], -1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return curvature, center[..., 0] - slope / (2 * curvature)


def split(samples):
    """Mean scores and mean places, each (C, …), of samples: the scores of each configuration, then their places."""
    half = len(samples) // 2
    return np.stack([mean(one) for one in samples[:half]]), np.stack([mean(one) for one in samples[half:]])


def curvature(*samples):
    """c of `quadratic`, (…,), of samples as `split` takes them, as scores and log DDR."""
    return quadratic(*split(samples))[0]


def effect(levels, groups):
    """How far a quantity moves: its mean at the largest level minus that at the smallest, in its own unit.

    The Evidence of the mean over tasks. levels: (C,). groups: one list per task of C arrays (seeds,).
    """
    if not groups:
        return nothing("nothing to compare")
    ends = [[group[place] for group in groups] for place in (int(np.argmax(levels)), int(np.argmin(levels)))]
    return evidence(difference, ends)


# ---- the best of several ---------------------------------------------------------------------------------------------
def edge(rows):
    """Which best rates say nothing, because a neighbour was not tried; "" if none.

    rows: {name: {learning rate: observed mean score}}, one row per configuration that is taken at its own best rate.
    The neighbours of a rate are at most a factor of NEIGHBOUR away, one below and one above. Of several rates with the
    best mean one has to have both.
    """
    return "; ".join(words for name, scores in rows.items() if (words := _edge_of_row(name, scores)))


def _edge_of_row(name, scores):
    best = [rate for rate, score in scores.items() if score == max(scores.values())]
    missing = {}
    for rate in best:
        below = any(rate / NEIGHBOUR * 0.99 < other < rate for other in scores)
        above = any(rate < other < rate * NEIGHBOUR * 1.01 for other in scores)
        missing[rate] = [words for words, tried in (("lower", below), ("higher", above)) if not tried]
    if not all(missing.values()):
        return ""
    rate, sides = next(iter(missing.items()))
    return f"{name} is best at {rate:g}, and no {' or '.join(sides)} neighbour was tried"


def unless_at_the_edge(tested, grid):
    """The Tested, undecided if a best rate of the grid, {name: {learning rate: sample}}, is at the edge."""
    if np.isnan(tested.estimate.value):  # nothing is the best
        return tested
    rows = {name: {rate: float(mean(sample)) for rate, sample in samples.items()} for name, samples in grid.items()}
    at = edge(rows)
    return tested.undecided(f"at the edge: {at}") if at else tested


def halves(samples):
    """(samples that choose, samples that test): every second seed of each task; the first goes to the test."""
    return [[x[..., 1::2] for x in sample] for sample in samples], [[x[..., ::2] for x in sample] for sample in samples]


# ---- shares ----------------------------------------------------------------------------------------------------------
def share_solved(scores):
    """The Estimate of the share of runs with a score of at least SOLVED, (seeds,).

    Its 95 % interval is exact (Clopper and Pearson 1934): neither end is wrong in more than 2.5 % of all cases,
    whatever the share. Wilson's interval reaches 10 % at a share near 0 or 1. Its width is never zero.
    """
    solved = np.asarray(scores, float) >= SOLVED
    found = binomtest(int(solved.sum()), solved.size)
    return Estimate(float(solved.mean()), *map(float, found.proportion_ci(1 - ALPHA)))
