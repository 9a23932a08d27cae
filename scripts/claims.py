"""The claims of a sweep with their numbers and verdicts, and the tables that figures.py prints.

A figure gets an empty `Claims` and adds rows to it. A row is a difference or a correlation, its interval from n - 1 of
n seeds (estimates.verdict_interval), and the verdict that follows from where the interval lies.
"""

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from analysis import ATARI_5, ATARI_10, ENOUGH_GAMES, median_57
from estimates import (
    MARGIN,
    MIN_SEEDS,
    NO_ESTIMATE,
    NOT_SUPPORTED,
    SUPPORTED,
    UNDECIDED,
    Estimate,
    improvement,
    interval,
    iqm,
    kendall,
    median,
    optimality_gap,
    too_few_seeds,
    verdict,
    verdict_interval,
)
from suite import DIAGNOSTICS, label_of

NO_FINAL_SCORES = "no final scores of these configurations"


# ---- claims ----------------------------------------------------------------------------------------------------------
@dataclass
class Claim:
    """A row of the table."""

    text: str  # the claim; indented if it is part of the one above
    quantity: str  # what `estimate` is
    estimate: Estimate
    side: str  # what is claimed of the estimate, as for estimates.verdict
    margin: float = 0.0
    improvement: Estimate = NO_ESTIMATE  # P(improvement), where two sides are compared
    no_interval: str = ""  # why there is no interval
    verdict: str = field(default="", init=False)

    def __post_init__(self):
        self.verdict = verdict(self.estimate.low, self.estimate.high, self.side, self.margin)


class Claims(list):
    """Collects the claims of a suite."""

    def __init__(self, suite):
        super().__init__()
        self.suite = suite

    def add(self, text, quantity, estimate, side, configs=(), **more):
        """configs: those of the final scores behind the estimate; it gets no interval if they judge nothing."""
        estimate, doubt = Estimate(*map(float, estimate)), self.suite.reason_to_doubt(configs)
        if doubt:
            estimate = Estimate(estimate.value, np.nan, np.nan)
            more.update(improvement=NO_ESTIMATE, no_interval=doubt)
        self.append(Claim(text, quantity, estimate, side, **more))

    def add_unknown(self, text, quantity, side):
        self.add(text, quantity, NO_ESTIMATE, side, no_interval=NO_FINAL_SCORES)

    def compare(self, text, better, worse, quantity, side="more"):
        """Adds the mean IQM of the configurations in `better` minus that of those in `worse`.

        With as many of one as of the other also P(improvement), pair by pair. `little` and `not less` have a margin of
        MARGIN times the base's IQM.
        """
        suite = self.suite
        if not better or not worse or not suite.can_compare([*better, *worse]):
            return self.add_unknown(text, quantity, side)
        configs = list(dict.fromkeys([*better, *worse]))  # one that occurs twice is resampled once
        samples = [suite.sample(config) for config in configs]

        def difference(*samples):
            score = {config: iqm(sample) for config, sample in zip(configs, samples)}
            mean_better = np.mean([score[config] for config in better], axis=0)
            mean_worse = np.mean([score[config] for config in worse], axis=0)
            return mean_better - mean_worse

        def mean_improvement(*samples):
            drawn = dict(zip(configs, samples))
            by_pair = [improvement(drawn[one], drawn[other]) for one, other in zip(better, worse)]
            return np.mean(by_pair, axis=0)

        paired = NO_ESTIMATE
        if len(better) == len(worse):
            paired = Estimate(*map(float, interval(mean_improvement, samples, suite.reps, suite.seed)))
        self.add(
            text,
            quantity,
            verdict_interval(difference, samples, suite.reps, suite.seed),
            side,
            self.judging(configs, side),
            margin=self.margin(side),
            improvement=paired,
            no_interval=too_few_seeds(samples),
        )

    def compare_gains(self, text, pair, other_pair, quantity, side):
        """Adds the gain of a pair, the IQM of its first configuration minus that of its second, over another pair's."""
        suite, configs = self.suite, [*pair, *other_pair]
        if len(configs) != 4 or not suite.can_compare(configs):
            return self.add_unknown(text, quantity, side)
        samples = [suite.sample(config) for config in configs]

        def difference(first, second, other_first, other_second):
            return iqm(first) - iqm(second) - iqm(other_first) + iqm(other_second)

        self.add(
            text,
            quantity,
            verdict_interval(difference, samples, suite.reps, suite.seed),
            side,
            self.judging(configs, side),
            margin=self.margin(side),
            no_interval=too_few_seeds(samples),
        )

    def all_together(self, text):
        """Adds a claim that holds if all claims so far hold, and fails if one of them fails: all are of `little`."""
        if not self:
            return
        estimates, verdicts = [claim.estimate for claim in self], {claim.verdict for claim in self}
        span = Estimate(
            max((estimate.value for estimate in estimates), key=abs),
            np.min([estimate.low for estimate in estimates]),  # NaN if one of them is
            np.max([estimate.high for estimate in estimates]),
        )
        why = next((claim.no_interval for claim in self if claim.no_interval), "")
        self.add(
            text, "the largest; the span of all CIs", span, "little", margin=self.margin("little"), no_interval=why
        )
        if NOT_SUPPORTED in verdicts:
            self[-1].verdict = NOT_SUPPORTED
        else:
            self[-1].verdict = SUPPORTED if verdicts == {SUPPORTED} else UNDECIDED

    def judging(self, configs, side):
        """The configurations whose final scores a verdict rests on: with a margin also the base."""
        return [*configs, self.suite.base] if side in ("little", "not less") else configs

    def margin(self, side):
        """MARGIN times the base's IQM for the sides that have a margin, else 0."""
        base = self.suite.base
        if side not in ("little", "not less") or base not in self.suite.scored:
            return 0.0
        return MARGIN * abs(float(iqm(self.suite.sample(base))))

    def diagnostics(self):
        """Adds P1's six claims on N-scaling, each on the native batch and on the probe."""
        for row in correlations(self.suite):
            if not np.isfinite(row.with_n.value):
                continue
            place, name = row.tag.split("/")
            label, sign = DIAGNOSTICS[name]
            rows = "native batch" if place == "diagnostics" else "probe, equal rows"
            self.add(
                f"{label} {'rises' if sign > 0 else 'falls'} with N ({rows})",
                "Kendall's τ with N",
                row.with_n,
                "more" if sign > 0 else "less",
                no_interval="" if np.isfinite(row.with_n.low) else row.no_interval,
            )

    def as_rows(self):
        """The rows of the CSV of claims, as dicts."""
        return [
            {
                "sweep": self.suite.sweep,
                "script": self.suite.script,
                "claim": claim.text.strip(),
                "value": claim.estimate.value,
                "ci_low": claim.estimate.low,
                "ci_high": claim.estimate.high,
                "p_improvement": claim.improvement.value,
                "p_ci_low": claim.improvement.low,
                "p_ci_high": claim.improvement.high,
                "verdict": claim.verdict,
                "budget": self.suite.budget,
                "margin": claim.margin,
                "no_ci": claim.no_interval,
                "value_is": claim.quantity,
            }
            for claim in self
        ]


@dataclass
class Correlations:
    """Kendall's τ of a diagnostic with N, with T, and with N among configurations of one batch size."""

    tag: str
    with_n: Estimate
    with_t: Estimate
    with_n_at_one_batch: Estimate
    no_interval: str  # why one of them has no interval


@lru_cache(maxsize=None)
def correlations(suite):
    """The Correlations of each diagnostic that the base has, native and probe.

    With N and with T: over the base and the configurations that scale that one of them. At the same factors T has the
    batches and gradient steps of N. With N at one batch: over all of these and the other shapes of the base's batch,
    each compared with those of its own batch size. If nothing scales N, N is taken over the base's batch too.
    """
    n_family, t_family, same_batch = suite.family("num_envs"), suite.family("num_steps"), suite.same_batch()
    n_family = n_family if len(n_family) > 1 else same_batch
    everything = list(dict.fromkeys([*n_family, *t_family, *same_batch]))
    rows = []
    for tag in [f"{place}/{name}" for name in DIAGNOSTICS for place in ("diagnostics", "probe")]:
        if not any(suite.second_half_means(suite.base, game, tag).size for game in suite.games):
            continue
        results = [
            _correlation(suite, tag, n_family, "num_envs"),
            _correlation(suite, tag, t_family, "num_steps"),
            _correlation(suite, tag, everything, "num_envs", [config.batch_size for config in everything]),
        ]
        reasons = [reason for _, reason in results if reason]
        rows.append(Correlations(tag, *(estimate for estimate, _ in results), reasons[0] if reasons else ""))
    return rows


def _correlation(suite, tag, configs, argument, batch_sizes=None):
    """τ of a tag with an argument over the games that all configurations have, and why it has no interval."""
    groups = []
    for game in suite.games:
        group = [suite.second_half_means(config, game, tag) for config in configs]
        groups += [group] if all(values.size for values in group) else []
    levels = [config[argument] for config in configs]
    return kendall(levels, groups, batch_sizes, min(suite.reps, 1000), suite.seed), too_few_seeds(groups)


# ---- tables ----------------------------------------------------------------------------------------------------------
def number(value):
    return "-" if not np.isfinite(value) else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def bounds(low, high):
    return f"[{number(low)}, {number(high)}]" if np.isfinite(low) else "no CI"


def table(header, rows):
    """Lines of columns as wide as their contents."""
    widths = [max(len(str(row[i])) for row in [header, *rows]) for i in range(len(header))]
    return ["  ".join(str(word).ljust(width) for word, width in zip(row, widths)).rstrip() for row in [header, *rows]]


def scores_table(suite):
    """Final aggregates of each configuration, and its number of updates."""
    weights = next((weights for weights in (ATARI_10, ATARI_5) if set(weights) <= set(suite.common)), None)
    header, rows = ["configuration", "runs", "IQM", "95 % CI", "median", "opt. gap"], []
    header += [f"57-game median (Atari-{len(weights)} regression), %"] if weights else []
    header += ["batch", "iterations", "gradient steps"]

    def aggregates(sample):
        regression = [median_57(sample, suite.common, weights)] if weights else []
        return np.array([iqm(sample), median(sample), optimality_gap(sample), *regression])

    for config in suite.configs:
        runs = [run for key, run in suite.runs.items() if key[0] == config]
        row = [
            label_of(config)
            + (" (base)" if config == suite.base else "")
            + (" (too few games)" if config in suite.too_few_games else ""),
            f"{sum(run.finished for run in runs)}/{len(runs)}",
        ]
        if suite.can_compare([config]):
            value, low, high = interval(aggregates, [suite.sample(config)], suite.reps, suite.seed)
            row += [number(value[0]), bounds(low[0], high[0]), number(value[1]), number(value[2])]
            row += [f"{number(value[3])} {bounds(low[3], high[3])}"] if weights else []
        else:
            row += ["-"] * (5 if weights else 4)
        iterations = runs[0].target / config.batch_size
        gradient_steps = runs[0].on_axis(np.array([runs[0].target]), "gradient_steps")[0]
        rows.append([*row, f"{config.batch_size:,}", f"{iterations:,.0f}", f"{gradient_steps:,.0f}"])
    return table(header, rows)


def claims_table(claims):
    rows = []
    for claim in claims:
        value, low, high = claim.estimate
        ci = bounds(low, high) if np.isfinite(low) else f"no CI: {claim.no_interval}"
        chance = ""
        if np.isfinite(claim.improvement.value):
            chance = number(claim.improvement.value)
            if np.isfinite(claim.improvement.low):
                chance += f" {bounds(claim.improvement.low, claim.improvement.high)}"
        rows.append([claim.text, number(value), ci, chance, claim.verdict, claim.quantity])
    return table(["claim", "value", "95 % CI", "P(improvement)", "verdict", "value is"], rows)


def correlations_table(rows):
    def cell(estimate):
        return "-" if not np.isfinite(estimate.value) else f"{estimate.value:+.2f} {bounds(*estimate[1:])}"

    header = ["diagnostic", "with N", "with T", "with N at a fixed batch"]
    return table(header, [[row.tag, cell(row.with_n), cell(row.with_t), cell(row.with_n_at_one_batch)] for row in rows])


def report(suite, claims, reference):
    """The lines of a suite: what was read, what is missing, the aggregates, the claims and the correlations."""
    runs = suite.runs.values()
    finished = sum(run.finished for run in runs)
    yield f"== {suite.sweep}: {reference}; {suite.script}.py"
    yield (
        f"{len(runs)} runs, {finished} at their budget: {len(suite.configs)} configurations, {len(suite.games)} "
        f"games, seeds {' '.join(map(str, suite.seeds))}; base {label_of(suite.base)}"
    )
    yield f"judged at {suite.budget:,.0f} environment steps: the order of configurations depends on the budget"
    yield f"scores: {suite.scale}; final: {suite.final_is}"
    if any(run.enough_games_from() > 0 for run in runs):
        yield (
            f"curves of the return are dotted until each environment of their runs has finished {ENOUGH_GAMES} games "
            "(charts/min_episodes): before that mostly short games have ended"
        )
    equal_seeds = len({len(x) for config in suite.scored for x in suite.sample(config)}) < 2
    method = (
        "rliable's"
        if equal_seeds
        else "on ragged lists (unequal seeds: each game has the same weight; rliable takes complete matrices only)"
    )
    yield (
        f"aggregates over {len(suite.common)} games: {', '.join(suite.common) or 'none'}; CIs: 95 % percentile "
        f"bootstrap over seeds within games, {suite.reps} resamples, {method}; none below {MIN_SEEDS} seeds a game; of "
        "claims and correlations n - 1 of n seeds are drawn (Rao, Wu)"
    )
    yield from (f"! {note}" for note in suite.notes[:20])
    if len(suite.notes) > 20:
        yield f"! … and {len(suite.notes) - 20} more of this kind"
    yield ""
    yield from scores_table(suite)
    if claims:
        yield ""
        yield from claims_table(claims)
    rows = [
        row
        for row in correlations(suite)
        if np.isfinite([row.with_n.value, row.with_t.value, row.with_n_at_one_batch.value]).any()
    ]
    if rows:
        yield ""
        yield (
            "rank correlation (Kendall's τ, mean over games) of each diagnostic, its mean over the second half of "
            "a run. T-scaling has the batches and gradient steps of N-scaling: an effect that only N has is N's own"
        )
        yield from correlations_table(rows)
    yield ""
