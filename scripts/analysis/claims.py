"""The claims of a sweep, with their numbers and verdicts.

sweep_claims.py fills a `Claims` with the rows of a sweep; tables.py prints it. A row is a difference or a correlation,
its interval from n - 1 of n seeds (estimates.evidence), and the verdict that follows from where the interval lies.

One row of a sweep is primary: what the paper claims of the figure. Its verdict is not adjusted. The other rows have a
second verdict, by Holm's correction over all of them; the rows of single games are a family of their own.
"""

import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from analysis.estimates import (
    ALPHA,
    MARGIN,
    NO_ESTIMATE,
    NOT_SUPPORTED,
    SUPPORTED,
    UNDECIDED,
    Estimate,
    Evidence,
    bootstrap,
    enough_seeds,
    equivalence_power,
    evidence,
    holm,
    improvement,
    iqm,
    kendall,
    nothing,
    p_values,
    percentile_interval,
    reversals,
    verdict,
)
from analysis.suite import DIAGNOSTICS

NO_FINAL_SCORES = "no final scores of these configurations"
RUNS_NEEDED = 5  # of a configuration, over all games: with fewer, nulls are found too often (scripts/calibration.py)
SMALLEST_MARGIN = 0.01  # of a score: a tenth of the base's IQM says nothing where that is nearly 0
PRIMARY, SECONDARY, BY_GAME = "primary", "secondary", "by game"


# ---- claims ----------------------------------------------------------------------------------------------------------
@dataclass
class Claim:
    """A row of the table."""

    text: str  # the claim; indented if it is part of the one above
    quantity: str  # what the number is
    evidence: Evidence
    side: str  # what is claimed of the number, as for estimates.verdict
    margin: float = 0.0
    improvement: Estimate = NO_ESTIMATE  # P(improvement), where two sides are compared
    family: str = SECONDARY
    needs: str = ""  # the seeds without which there is no verdict; "" if there are enough
    remark: str = ""
    verdict: str = field(default="", init=False)
    p: float = field(default=1.0, init=False)  # of the verdict; of an undecided row the smaller of both

    def __post_init__(self):
        if self.needs:
            self.verdict = UNDECIDED
            return
        self.verdict = verdict(self.estimate.low, self.estimate.high, self.side, self.margin)
        holds, fails = p_values(self.evidence.draws, self.side, self.margin)
        self.p = {SUPPORTED: holds, NOT_SUPPORTED: fails, UNDECIDED: min(holds, fails)}[self.verdict]
        against = self.improvement.value < 0.5 if self.side == "more" else self.improvement.value > 0.5
        if self.verdict == SUPPORTED and self.side in ("more", "less") and against:
            self.remark = f"P(improvement) is {self.improvement.value:.2f}: single runs order them the other way"

    @property
    def estimate(self):
        return self.evidence.estimate

    @property
    def is_tested(self):
        """Whether the row has an interval and the seeds for a verdict."""
        return bool(np.isfinite(self.estimate.low)) and not self.needs

    @property
    def power(self):
        """Of a row with a margin: the chance of *supported* if there is no difference."""
        return equivalence_power(self.evidence.draws, self.margin) if self.margin else math.nan


class Claims(list):
    """Collects the claims of a suite."""

    def __init__(self, suite, by_game=False):
        """by_game: whether each comparison is followed by the same in each game."""
        super().__init__()
        self.suite, self.by_game = suite, by_game

    def add(self, text, quantity, evidence, side, suite=None, configs=(), measure="final", **more):
        """configs: those of the final scores behind the number; it has no interval if they judge nothing.

        suite: the one that was judged, if not that of these claims. more: further fields of Claim.
        """
        suite = suite or self.suite
        doubt = suite.reason_to_doubt(configs, measure)
        if doubt:
            evidence = Evidence(evidence.value, np.zeros(0), doubt)
            more["improvement"] = NO_ESTIMATE
        if configs and "needs" not in more:
            more["needs"] = needed([suite.sample(config, measure) for config in configs])
        self.append(Claim(text, quantity, evidence, side, **more))

    def versions(self, text, configs, primary, by_game):
        """(suite, text, family) of a row, of its version without diverged runs, and of those in single games."""
        suite = self.suite
        yield suite, text, PRIMARY if primary else SECONDARY
        if suite.any_diverged(configs):
            yield suite.without_diverged(), f"  {text}, without the diverged runs", SECONDARY
        if (self.by_game or by_game) and len(suite.common) > 1:
            for game in suite.common:
                yield suite.in_game(game), f"  {text.strip()}: {game}", BY_GAME

    def compare(self, text, better, worse, quantity, side="more", measure="final", primary=False, by_game=False):
        """Adds the mean IQM of the configurations in `better` minus that of those in `worse`.

        With as many of one as of the other also P(improvement), pair by pair. `little` and `not less` have a margin of
        MARGIN times the base's IQM.
        """
        for suite, words, family in self.versions(text, [*better, *worse], primary, by_game):
            if not better or not worse or not suite.can_compare([*better, *worse]):
                self.add(words, quantity, nothing(NO_FINAL_SCORES), side, suite, family=family)
                continue
            configs = list(dict.fromkeys([*better, *worse]))  # one that occurs twice is resampled once
            samples = [suite.sample(config, measure) for config in configs]
            paired = NO_ESTIMATE
            if len(better) == len(worse) and measure == "final":
                paired = _paired_improvement(suite, configs, samples, better, worse)
            self.add(
                words,
                quantity,
                evidence(_difference(configs, better, worse), samples, suite.reps, suite.seed),
                side,
                suite,
                self.judging(configs, side),
                measure,
                margin=self.margin(suite, side, measure),
                improvement=paired,
                family=family,
            )

    def compare_gains(self, text, pair, other_pair, quantity, side, primary=False):
        """Adds the gain of a pair, the IQM of its first configuration minus that of its second, over another pair's."""
        configs = [*pair, *other_pair]
        for suite, words, family in self.versions(text, configs, primary, by_game=False):
            if len(configs) != 4 or not suite.can_compare(configs):
                self.add(words, quantity, nothing(NO_FINAL_SCORES), side, suite, family=family)
                continue

            def difference(first, second, other_first, other_second):
                return iqm(first) - iqm(second) - iqm(other_first) + iqm(other_second)

            samples = [suite.sample(config) for config in configs]
            self.add(
                words,
                quantity,
                evidence(difference, samples, suite.reps, suite.seed),
                side,
                suite,
                self.judging(configs, side),
                margin=self.margin(suite, side),
                family=family,
            )

    def all_together(self, text, rows, primary=False):
        """Adds a claim that holds if all of the rows hold, and fails if one of them fails, by Holm's correction."""
        if not rows:
            return
        estimates, verdicts = [row.estimate for row in rows], [row.verdict for row in rows]
        side = rows[0].side
        farthest = min if side == "not less" else lambda values: max(values, key=abs)
        span = Estimate(
            farthest([estimate.value for estimate in estimates]),
            np.min([estimate.low for estimate in estimates]),  # NaN if one of them is
            np.max([estimate.high for estimate in estimates]),
        )
        why = next((row.evidence.why for row in rows if row.evidence.why), "")
        claim = Combined(text, "the farthest; the span of all CIs", Evidence(span.value, np.zeros(0), why), side)
        claim.span, claim.family = span, PRIMARY if primary else SECONDARY
        claim.needs = next((row.needs for row in rows if row.needs), "")
        adjusted = holm([row.p for row in rows])
        failing = [p for p, word in zip(adjusted, verdicts) if word == NOT_SUPPORTED]
        if failing and min(failing) < ALPHA:
            claim.verdict, claim.p = NOT_SUPPORTED, min(failing)
        elif set(verdicts) == {SUPPORTED}:
            claim.verdict, claim.p = SUPPORTED, max(row.p for row in rows)
        claim.margin = rows[0].margin
        self.append(claim)

    def trend(self, text, tau, levels, groups, side, configs=(), **more):
        """Adds Kendall's tau of levels with a quantity. A trend that turns back at its last level does not hold.

        tau: as rank_correlation gives it for levels and groups.
        """
        runs = [[group[i] for group in groups] for i in range(len(levels))]
        self.add(text, "Kendall's τ with N", tau, side, None, configs, needs=needed(runs), **more)
        back = reversals(levels, groups, side, min(self.suite.reps, 1000), self.suite.seed)
        if back and self[-1].verdict == SUPPORTED:
            beyond = "larger" if side == "more" else "smaller"
            levels_back = " ".join(f"{level:g}" for level in back)
            self[-1].verdict, self[-1].p = NOT_SUPPORTED, min(back.values())
            self[-1].remark = f"the trend turns back: {beyond} at {levels_back} than at {max(levels):g}"

    def judging(self, configs, side):
        """The configurations whose final scores a verdict rests on: with a margin also the base."""
        has_margin = side in ("little", "not less") and self.suite.base in self.suite.scored
        return [*configs, self.suite.base] if has_margin else configs

    def margin(self, suite, side, measure="final"):
        """MARGIN times the base's IQM for the sides that have a margin, else 0."""
        if side not in ("little", "not less") or suite.base not in suite.scored:
            return 0.0
        return max(MARGIN * abs(float(iqm(suite.sample(suite.base, measure)))), SMALLEST_MARGIN)

    def diagnostics(self):
        """Adds P1's six claims on N-scaling, each on the native batch and on the probe."""
        for row in correlations(self.suite):
            if not np.isfinite(row.tau.value):
                continue
            place, name = row.tag.split("/")
            label, sign = DIAGNOSTICS[name]
            rows = "native batch" if place == "diagnostics" else "probe, equal rows"
            self.trend(
                f"{label} {'rises' if sign > 0 else 'falls'} with N ({rows})",
                row.tau,
                row.levels,
                row.groups,
                "more" if sign > 0 else "less",
            )

    def adjusted(self):
        """The verdict of each row after Holm's correction within its family; that of a primary row as it is."""
        words = [claim.verdict for claim in self]
        for family in (SECONDARY, BY_GAME):
            places = [i for i, claim in enumerate(self) if claim.family == family and claim.is_tested]
            for i, p in zip(places, holm([self[i].p for i in places])):
                words[i] = self[i].verdict if p < ALPHA else UNDECIDED
        return words

    def as_rows(self):
        """The rows of the CSV of claims, as dicts."""
        return [
            {
                "sweep": self.suite.sweep,
                "script": self.suite.script,
                "claim": claim.text.strip(),
                "family": claim.family,
                "value": claim.estimate.value,
                "ci_low": claim.estimate.low,
                "ci_high": claim.estimate.high,
                "p_improvement": claim.improvement.value,
                "p_ci_low": claim.improvement.low,
                "p_ci_high": claim.improvement.high,
                "verdict": claim.verdict,
                "holm_verdict": adjusted,
                "p_value": claim.p,
                "power": claim.power,
                "budget": self.suite.budget,
                "margin": claim.margin,
                "no_ci": claim.evidence.why,
                "needs": claim.needs,
                "remark": claim.remark,
                "value_is": claim.quantity,
            }
            for claim, adjusted in zip(self, self.adjusted())
        ]


@dataclass
class Combined(Claim):
    """A claim about several rows: its interval is the span of theirs, its verdict follows from theirs."""

    span: Estimate = NO_ESTIMATE

    @property
    def estimate(self):
        return self.span


def needed(samples):
    """The seeds that a verdict on the samples needs, e.g. "5 seeds"; "" if there are RUNS_NEEDED runs in each."""
    runs = min((sum(x.shape[-1] for x in sample) for sample in samples), default=0)
    games = max(1, max((len(sample) for sample in samples), default=1))
    return "" if runs >= RUNS_NEEDED or not runs else f"{max(3, math.ceil(RUNS_NEEDED / games))} seeds"


def _difference(configs, better, worse):
    """The statistic of a comparison; its samples are those of `configs`."""

    def difference(*samples):
        score = {config: iqm(sample) for config, sample in zip(configs, samples)}
        mean_better = np.mean([score[config] for config in better], axis=0)
        mean_worse = np.mean([score[config] for config in worse], axis=0)
        return mean_better - mean_worse

    return difference


def _paired_improvement(suite, configs, samples, better, worse):
    """The Estimate of P(improvement), the mean over the pairs of `better` and `worse`; drawn as rliable does."""

    def mean_improvement(*samples):
        drawn = dict(zip(configs, samples))
        by_pair = [improvement(drawn[one], drawn[other]) for one, other in zip(better, worse)]
        return np.mean(by_pair, axis=0)

    value = float(mean_improvement(*samples))
    if not enough_seeds(samples):
        return Estimate(value, np.nan, np.nan)
    draws = bootstrap(mean_improvement, samples, min(suite.reps, 1000), suite.seed)
    return Estimate(value, *map(float, percentile_interval(draws)))


# ---- correlations of the diagnostics ---------------------------------------------------------------------------------
@dataclass
class Correlations:
    """Kendall's τ of a diagnostic with N, with T, and with N among configurations of one batch size."""

    tag: str
    tau: Evidence  # with N
    with_t: Estimate
    with_n_at_one_batch: Estimate
    levels: list  # N of the configurations behind `tau`
    groups: list  # and their values: one list a game of arrays (seeds,)

    @property
    def with_n(self):
        return self.tau.estimate


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
        by_n, by_t, by_all = (_groups(suite, tag, configs) for configs in (n_family, t_family, everything))
        levels = [config["num_envs"] for config in n_family]
        batch_sizes = [config.batch_size for config in everything]
        rows.append(
            Correlations(
                tag,
                rank_correlation(suite, levels, by_n),
                rank_correlation(suite, [config["num_steps"] for config in t_family], by_t).estimate,
                rank_correlation(suite, [config["num_envs"] for config in everything], by_all, batch_sizes).estimate,
                levels,
                by_n,
            )
        )
    return rows


def _groups(suite, tag, configs):
    """Means over the second half of each run, in the games that all of the configurations have."""
    groups = [[suite.second_half_means(config, game, tag) for config in configs] for game in suite.games]
    return [group for group in groups if all(values.size for values in group)]


def rank_correlation(suite, levels, groups, control=None):
    """The Evidence of estimates.kendall with the suite's resamples."""
    return kendall(levels, groups, control, min(suite.reps, 1000), suite.seed)
