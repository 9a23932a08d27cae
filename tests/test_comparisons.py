"""analysis/comparisons.py: every test finds what is planted, in each direction, and only that."""

import itertools

import numpy as np
import pytest
from analysis import comparisons, estimates
from analysis.comparisons import judge, judge_best, judge_each
from analysis.estimates import (
    ALPHA,
    Evidence,
    detectable,
    equivalence_power,
    evidence,
    percentile_interval,
    several,
)
from conftest import study
from papers.shape_rate import judge_default
from scipy import stats

TASKS = 3


def sample(level, seeds=10, noise=0.05):
    """Scores around a level: one array (seeds,) per task; no two calls have the same noise."""
    sample.rng = getattr(sample, "rng", None) or np.random.RandomState(0)
    return [level + sample.rng.normal(0, noise, seeds) for _ in range(TASKS)]


def row(*levels, **options):
    """{learning rate: sample}, the rates a factor of two apart."""
    return {2.0**place * 1e-4: sample(level, **options) for place, level in enumerate(levels)}


# ---- the best of several ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "levels, side, margin, word",
    [
        ((1.0, 0.5, 0.6, 0.7), "more", 0, "supported"),
        ((1.0, 0.5, 0.6, 1.3), "more", 0, "contradicted"),  # one of three is above it
        ((1.0, 0.5, 0.6, 1.0), "more", 0, "undecided"),
        ((0.5, 1.0, 0.9, 0.8), "less", 0, "supported"),
        ((0.5, 1.0, 0.9, 0.2), "less", 0, "contradicted"),
        ((1.0, 1.0, 1.0, 0.6), "not less", 0.2, "supported"),
        ((1.0, 1.0, 1.0, 1.4), "not less", 0.2, "contradicted"),
        ((1.0, 1.0, 1.0, 1.2), "not less", 0.2, "undecided"),
        ((1.0, 1.02, 0.98, 1.0), "little", 0.2, "supported"),
        ((1.0, 1.02, 0.98, 1.5), "little", 0.2, "contradicted"),
    ],
)
def test_one_against_each_of_several(levels, side, margin, word):
    found = several(comparisons.over_each, [sample(level) for level in levels])
    tested = judge_each(found, side, margin)
    assert tested.verdict == word and (tested.p < 0.05) == (word != "undecided")
    assert tested.estimate.low <= tested.estimate.value <= tested.estimate.high
    farthest = {"more": min, "not less": min, "less": max}.get(side, lambda gaps: max(gaps, key=abs))
    gaps = [levels[0] - level for level in levels[1:]]
    assert tested.estimate.value == pytest.approx(farthest(gaps), abs=0.1)


def test_the_interval_of_several_is_that_of_the_worst():
    """Three numbers whose intervals lie inside and beside each other; each end is one of theirs."""
    found = [
        Evidence(center, center + width * np.linspace(-1, 1, 4001)) for center, width in ((1, 0.1), (1.2, 2), (3, 0.5))
    ]
    each = np.array([percentile_interval(one.draws) for one in found])  # of one row, where each number has to hold
    against = np.array([percentile_interval(one.draws, ALPHA / 3) for one in found])  # one of three contradicts
    expected = {
        "more": (1, each[:, 0].min(), against[:, 1].min()),
        "not less": (1, each[:, 0].min(), against[:, 1].min()),
        "less": (3, against[:, 0].max(), each[:, 1].max()),
        "little": (3, each[:, 0].min(), each[:, 1].max()),
    }
    for side, interval in expected.items():
        assert tuple(judge_each(found, side, margin=0.1).estimate) == pytest.approx(interval), side


def test_a_contradiction_by_one_of_many_is_corrected_for_their_number():
    """A difference that is significant alone is not when it is the largest of nineteen."""
    base = [np.linspace(-1, 1, 10)]
    one = several(comparisons.over_each, [base, [base[0] + 0.66]])
    nineteen = several(comparisons.over_each, [base, [base[0] + 0.66], *[base] * 18])
    assert judge_each(one, "more").verdict == "contradicted"
    assert judge_each(nineteen, "more").verdict == "undecided"
    assert judge_each([], "more").why and judge_each([one[0], evidence(*few())], "more").why == "2 seeds"


def few():
    return comparisons.difference, [sample(1, seeds=2), sample(2, seeds=2)]


@pytest.mark.parametrize(
    "first, second, word",
    [
        ((0.2, 1.0, 0.4), (0.5, 0.6, 0.3), "supported"),
        ((0.5, 0.6, 0.3), (0.2, 1.0, 0.4), "contradicted"),
        ((0.2, 1.0, 0.4), (0.9, 1.0, 0.9), "undecided"),
        ((0.4, 1.0, 1.2), (0.5, 0.6, 0.3), "edge"),
        ((0.4, 1.2, 1.0), (0.6, 0.5, 0.3), "edge"),
        ((1.2,), (0.3, 0.6, 0.5), "edge"),
    ],
)
def test_each_at_its_own_best_rate(first, second, word):
    tested = judge_best(("one", row(*first)), ("other", row(*second)))
    assert tested.verdict == ("undecided" if word == "edge" else word)
    assert ("at the edge: " in tested.remark) == (word == "edge")
    assert tested.estimate.value == pytest.approx(max(first) - max(second), abs=0.1)
    assert tested.estimate.low <= tested.estimate.value <= tested.estimate.high


def test_the_best_of_many_equal_rates_does_not_beat_one_good_rate():
    """Where a statistic of two maxima, or of the best chosen by the same seeds, is wrong in every fourth case."""
    rng, words, apart = np.random.RandomState(1), [], 0
    for _ in range(200):
        one, *flat = [[rng.normal(0, 1, 10)] for _ in range(7)]
        words.append(comparisons.judge_maxima([one], flat).verdict)
        (_, low, high), word, *_ = comparisons.judge_maxima(flat, [one])
        apart += (low > 0, high < 0) != (word == "supported", word == "contradicted")
    assert words.count("contradicted") <= 10 and words.count("supported") <= 10
    assert apart <= 2, "an interval is corrected as its verdict is, to within a draw"


def test_which_rates_are_at_the_edge():
    good = {1: 0.5, 2: 0.9, 4: 0.7}
    assert comparisons.edge({"a": good}) == ""
    assert comparisons.edge({"a": good, "b": {1: 0.5, 2: 0.6, 4: 0.7}}) == (
        "b is best at 4, and no higher neighbour was tried"
    )
    assert comparisons.edge({"a": {1: 0.5, 4: 0.9, 16: 0.7}}).endswith("4, and no lower or higher neighbour was tried")
    assert comparisons.edge({"a": {1: 0.5, 1.4: 0.9, 2: 0.7}}) == ""
    assert comparisons.edge({"a": {1: 1.0, 2: 1.0, 4: 1.0}}) == ""  # one of the best has both neighbours


def default_grid(other):
    """The first N x T is the best at 4e-4, with 0.9; 8e-4 is the best rate of the others."""
    return {"first": row(0.1, 0.2, 0.9, 0.4, 0.1), **{str(i): row(0.1, 0.2, 0.6, other, 0.5) for i in range(3)}}


@pytest.mark.parametrize("other, word", [(0.9, "supported"), (1.4, "contradicted"), (1.1, "undecided")])
def test_whether_the_best_n_by_t_at_the_default_rate_stays(other, word):
    tested = judge_default(default_grid(other), 4e-4, 0.2)
    assert tested.estimate.value == pytest.approx(0.9 - other, abs=0.1)
    assert tested.verdict == word and "half of the seeds chose first" in tested.remark
    short = {name: dict(list(rates.items())[1:4]) for name, rates in default_grid(1.0).items()}
    edge = {**short, "other": row(0.1, 0.2, 0.3, 0.35)}
    assert judge_default(edge, 4e-4, 0.2).verdict == "undecided"
    two = {name: {rate: [x[:2] for x in one] for rate, one in rates.items()} for name, rates in default_grid(1).items()}
    assert judge_default(two, 4e-4, 0.2).why == "1 seed"


@pytest.mark.parametrize("place, word", [(0, "supported"), (1, "contradicted")])
def test_what_a_search_picks(place, word):
    settings = [sample(level) for level in (1.0, 0.5, 0.7, 0.6)]
    picks = [np.full(10, place)] * TASKS
    tested = study("advise", "claims").judge_choice(settings, picks, 0.1, 1000)
    assert tested.verdict == word and tested.estimate.value == pytest.approx(-0.5 * place, abs=0.1)


# ---- correlations ----------------------------------------------------------------------------------------------------
def test_a_trend_its_reversal_and_its_size():
    levels = [1, 2, 4, 8]

    def groups(*levels):
        return [list(of_task) for of_task in zip(*(sample(level) for level in levels))]

    def judge_trend(values, side):
        return comparisons.judge_trend(estimates.kendall(levels, values), levels, values, side)

    assert judge_trend(groups(0, 0.2, 0.4, 0.6), "more").verdict == "supported"
    assert judge_trend(groups(0, 0.2, 0.4, 0.6), "less").verdict == "contradicted"
    assert judge_trend(groups(0, 0, 0, 0), "less").verdict == "undecided"
    turned = judge_trend(groups(0, 0.2, 0.9, 0.6), "more")
    assert turned.verdict == "contradicted" and turned.remark == "the trend turns back: larger at 4 than at 8"
    assert judge_trend(groups(0.3, 0.9, 0.9, 0.3), "more").verdict == "undecided"  # no trend that could turn
    base = np.array([0, 0.25, 0.5, 0.75, 1])  # larger at 4 with p = 0.048: a reversal if 4 is the only earlier level
    turns = [base - 3, base - 3, base + 0.5, base]
    assert list(estimates.reversals([4, 8], [turns[2:]])) == [4] and not estimates.reversals(levels, [turns])
    moved = comparisons.effect(levels, groups(100, 50, 50, 99.5)).estimate
    assert moved.value == pytest.approx(-0.5, abs=0.1) and moved.high < 0


def test_a_diagnostic_that_follows_the_score_alone():
    """Both rise with N; one of them only as the score does, the other falls with N among runs of one score."""
    rng, partial_correlation = np.random.RandomState(0), study("diagnostics", "claims").partial_correlation
    levels = [1, 2, 4, 8, 16]
    scores = [[level / 8 + rng.normal(0, 1, 12) for level in range(5)] for _ in range(TASKS)]
    alike = [[x + rng.normal(0, 0.5, 12) for x in of_task] for of_task in scores]
    own = [[3 * x - place + rng.normal(0, 0.5, 12) for place, x in enumerate(of_task)] for of_task in scores]
    levels = [[np.full(12, level) for level in levels]] * TASKS
    found = partial_correlation(levels, alike, scores).estimate
    assert found.low < 0 < found.high
    found = partial_correlation(levels, own, scores).estimate
    assert found.high < -0.3
    # the formula, on one task without ties
    x, y, z = (np.argsort(np.argsort(part)) * 1.0 for part in (np.arange(19), rng.rand(19), rng.rand(19)))
    rest = [part - np.polyval(np.polyfit(z, part, 3), z) for part in (x, y)]
    value = partial_correlation(*([np.split(part, 19)] for part in (x, y, z))).value
    assert value == pytest.approx(np.corrcoef(*rest)[0, 1])
    # what bends with the score is not N's either: a straight line in the ranks would leave part of it
    bent = [[(x - 1) ** 2 + rng.normal(0, 0.2, 12) for x in of_task] for of_task in scores]
    found = partial_correlation(levels, bent, scores).estimate
    assert found.low < 0 < found.high
    flat = [[np.ones(12)] * 5 for _ in range(TASKS)]
    assert partial_correlation(levels, flat, scores).estimate == (0, 0, 0)


def test_ranks_of_tasks_whose_settings_depend_on_each_other():
    """Of twelve settings of three tasks a perfect order proves nothing: the tasks have six orders. Six tasks do."""
    judge_ranks = study("outer_loop", "claims").judge_ranks
    for tasks, word in ((3, "undecided"), (6, "supported")):
        x = np.arange(tasks)[:, None] + np.linspace(0, 0.5, 4)
        assert judge_ranks(x, x).verdict == word
        assert judge_ranks(x, -x).verdict == ("contradicted" if tasks == 6 else word)
    assert judge_ranks(x, np.ones_like(x)).why == "constant"


# ---- shares ----------------------------------------------------------------------------------------------------------
def test_the_interval_of_a_share_is_exact_and_never_of_zero_width():
    """P(at least `count` of 10 at the lower end) = P(at most `count` at the upper end) = 2.5 %."""
    for count in range(11):
        share, low, high = comparisons.share_solved([0.9] * count + [0.89] * (10 - count))
        assert share == count / 10 and low <= share <= high and high - low > 0.25
        at_least = sum(chance(k, low) for k in range(count, 11))
        at_most = sum(chance(k, high) for k in range(count + 1))
        assert at_least == pytest.approx(0.025 if count else 1) and at_most == pytest.approx(0.025 if count < 10 else 1)


def chance(k, share):
    ways = len(list(itertools.combinations(range(10), k)))
    return ways * share**k * (1 - share) ** (10 - k)


# ---- a test without draws --------------------------------------------------------------------------------------------
def test_a_test_without_draws_decides_nothing():
    tested = judge(evidence(*few()), "more")
    assert (tested.verdict, tested.p, tested.why) == ("undecided", 1, "2 seeds")


def test_an_interval_of_zero_width_says_nothing_of_what_would_be_found():
    """All runs of both sides are equal: the interval is a point, and no number divides by its width."""
    solved = [np.ones(10)]
    found = judge(evidence(comparisons.difference, [solved, solved]), "more")
    assert found.estimate == (0, 0, 0) and found.verdict == "undecided"
    assert np.isnan(detectable(found.estimate)) and equivalence_power(found.estimate, 0.1) == 1
    found = judge(evidence(comparisons.difference, [solved, sample(1, noise=0.3)[:1]]), "more").estimate
    assert detectable(found) == pytest.approx((1.96 + 0.84) * (found.high - found.low) / 2 / 1.96, rel=0.01)
    assert np.isnan(equivalence_power(judge(evidence(*few()), "little", 0.1).estimate, 0.1))


# ---- what a verdict counts -------------------------------------------------------------------------------------------
def test_with_ten_tasks_that_differ_the_tasks_are_the_unit():
    """2,000 sweeps of ten tasks with five seeds; a task's true difference is N(0, 0.2²), and 0 in the mean over tasks.

    Student's t over tasks is wrong in 5 %. Over seeds it is wrong in more than half: it holds of these ten tasks only.
    """
    rng, sweeps = np.random.RandomState(0), 2000
    own = rng.normal(0, 0.2, (10, sweeps, 1))
    samples = [[shift + rng.normal(0, 0.1, (sweeps, 5)) for shift in of_side] for of_side in (own, 0 * own)]
    wrong = {}
    for unit in (None, estimates.TASK, estimates.SEED):
        _, draws = estimates.distribution(comparisons.difference, samples, 400, unit)
        holds, fails = estimates.p_values(draws, "more")
        wrong[unit] = np.mean((holds < 0.05) | (fails < 0.05))
    assert wrong[None] == wrong[estimates.TASK] == pytest.approx(0.05, abs=0.015) and wrong[estimates.SEED] > 0.5


@pytest.mark.parametrize(
    "tasks, seeds, needs",
    [
        (1, 10, ""),
        (1, 9, "10 seeds"),
        (5, 10, ""),
        (5, 9, "5 seeds in 6 tasks, or 10 seeds"),
        (6, 5, ""),
        (6, 4, "5 seeds in 6 tasks, or 10 seeds"),
    ],
)
def test_the_seeds_that_a_verdict_needs(tasks, seeds, needs):
    assert comparisons.needed(tasks, seeds) == needs


def test_over_tasks_it_is_students_t_of_one_number_a_task():
    """Of any statistic: a difference, and a place of a best value that jumps; with unequal seeds too."""
    rng = np.random.RandomState(0)
    first, second = ([rng.normal(task, 1, 5 + task) for task in range(6)] for _ in range(2))
    numbers = [x.mean() - y.mean() for x, y in zip(first, second)]
    expected = stats.ttest_1samp(numbers, 0).confidence_interval()
    for test in (evidence, estimates.resampled):
        found = test(comparisons.difference, [first, second]).estimate
        assert found == pytest.approx((np.mean(numbers), *expected), abs=5e-3)
    assert evidence(comparisons.difference, [first[:5], second[:5]]).estimate != pytest.approx(found, abs=1e-3)
    four = [x[:4] for x in first]  # in one of the six too few: the seeds are the unit
    assert estimates.unit_of([first, four]) == estimates.SEED and estimates.unit_of([first, second]) == estimates.TASK
    tau = estimates.kendall([1, 2], list(zip(first, second)))
    of_tasks = [estimates.dominance(y, x) for x, y in zip(first, second)]
    assert tau.estimate == pytest.approx(
        (np.mean(of_tasks), *stats.ttest_1samp(of_tasks, 0).confidence_interval()), abs=5e-3
    )
