"""The claims of a sweep or of an experiment, with their numbers and verdicts.

`Claims` collects rows, whatever they were read from, and corrects them for their number. `SweepClaims` makes them from
the runs of a sweep (sweep_claims.py fills it, tables.py prints it); experiment.py from results/runs.csv.gz.

Every row has the verdict of its own test. A second one, and the p-values beside it, are adjusted by Holm's method
within its family: the primary rows, which say what was claimed before the runs; the other rows; those of single games.
"""

from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from analysis.comparisons import Tested, effect, gain_difference, judge, judge_each, needed, with_reversals
from analysis.estimates import (
    ALPHA,
    CONTRADICTED,
    MARGIN,
    NO_ESTIMATE,
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
    percentile_interval,
    resampled,
)
from analysis.suite import DIAGNOSTICS, SHOWN, as_shown

NO_FINAL_SCORES = "no final scores of these configurations"
SMALLEST_MARGIN = 0.01  # in scores: a tenth of the base's score says nothing where that is nearly 0
PRIMARY, SECONDARY, BY_GAME = "primary", "secondary", "by game"


# ---- claims ----------------------------------------------------------------------------------------------------------
@dataclass
class Claim:
    """A row of the table."""

    text: str  # the claim; indented if it is part of the one above
    quantity: str  # what the number is
    tested: Tested
    side: str  # what is claimed of the number, as for estimates.verdict
    margin: float = 0.0
    improvement: Estimate = NO_ESTIMATE  # P(improvement), where two sides are compared
    family: str = SECONDARY
    needs: str = ""  # the seeds without which there is no verdict; "" if there are enough
    name: str = ""  # as "S1"
    seeds: int = 0  # in each game
    game: str = ""  # that of a row in one game

    @property
    def estimate(self):
        return self.tested.estimate

    @property
    def verdict(self):
        return UNDECIDED if self.needs else self.tested.verdict

    @property
    def is_tested(self):
        """Whether the row has an interval, or p-values without one, and the seeds for a verdict."""
        return bool(np.isfinite(self.estimate.low) or min(self.tested.chances) < 1) and not self.needs

    @property
    def power_if_equal(self):
        """Of a row with a margin: the chance of *supported* if there is no difference."""
        return equivalence_power(self.estimate, self.margin) if self.margin else np.nan

    @property
    def remark(self):
        """What the reader has to know beside the verdict; "" if nothing."""
        against = self.improvement.value < 0.5 if self.side == "more" else self.improvement.value > 0.5
        if self.verdict == SUPPORTED and self.side in ("more", "less") and against:
            return f"P(improvement) is {self.improvement.value:.2f}: single runs order them the other way"
        return self.tested.remark


class Claims(list):
    """Collects claims, and corrects their verdicts for their number."""

    def chances(self):
        """Of each row the p-values of the claim and of its opposite after Holm's correction within its family."""
        adjusted = [(1.0, 1.0)] * len(self)
        for family in (PRIMARY, SECONDARY, BY_GAME):
            places = [i for i, claim in enumerate(self) if claim.family == family and claim.is_tested]
            sides = [holm([self[i].tested.chances[side] for i in places]) for side in (0, 1)]
            for i, *pair in zip(places, *sides):
                adjusted[i] = tuple(pair)
        return adjusted

    def adjusted(self):
        """The verdict of each row after Holm's correction within its family."""
        pairs = [(claim.verdict, *pair) for claim, pair in zip(self, self.chances())]
        return [
            word if {SUPPORTED: holds, CONTRADICTED: fails}.get(word, 1.0) < ALPHA else UNDECIDED
            for word, holds, fails in pairs
        ]


# ---- claims of a sweep -----------------------------------------------------------------------------------------------
class SweepClaims(Claims):
    """Collects the claims of a suite. P1's sweeps pool runs into an IQM, all others into a mean over games."""

    def __init__(self, suite, by_game=False):
        """by_game: whether each comparison is followed by the same in each game."""
        super().__init__()
        self.suite, self.by_game = suite, by_game

    def add(self, text, quantity, found, side, suite=None, configs=(), measure="final", margin=0.0, **more):
        """found: Evidence, or Tested. configs: those of the final scores behind the number; it has no interval if they
        judge nothing.

        suite: the one that was judged, if not that of these claims. more: further fields of Claim.
        """
        suite = suite or self.suite
        doubt = suite.reason_to_doubt(configs, measure)
        if doubt:
            value = found.estimate.value if isinstance(found, Tested) else found.value
            found = Evidence(value, np.zeros(0), doubt)
            more["improvement"] = NO_ESTIMATE
        samples = [suite.sample(config, measure) for config in configs]
        more.setdefault("needs", needed(samples) if samples else "")
        more["seeds"] = min((len(scores) for sample in samples for scores in sample), default=0)
        tested = found if isinstance(found, Tested) else judge(found, side, margin)
        self.append(Claim(text, quantity, tested, side, margin, **more))
        return found

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
        """Adds the mean score of the configurations in `better` minus that of those in `worse`.

        With as many of one as of the other also P(improvement), pair by pair. `little` and `not less` have a margin of
        MARGIN times the base's score. Returns the Evidence of the first row.
        """
        configs = list(dict.fromkeys([*better, *worse]))  # one that occurs twice is resampled once

        def evidence_of(suite):
            samples = [suite.sample(config, measure) for config in configs]
            statistic = _difference(configs, better, worse, suite.pool)
            return found_by(suite, statistic, samples)

        def improvement_of(suite):
            if len(better) != len(worse) or measure != "final":
                return NO_ESTIMATE
            return _paired_improvement(suite, configs, [suite.sample(config) for config in configs], better, worse)

        able = configs if better and worse else []
        return self.test(text, able, evidence_of, quantity, side, measure, primary, by_game, improvement_of)

    def compare_gains(self, text, pair, other_pair, quantity, side, primary=False):
        """Adds the gain of a pair, the score of its first configuration minus that of its second, over another pair's.

        Returns the Evidence of the first row.
        """
        configs = [*pair, *other_pair]

        def evidence_of(suite):
            statistic = partial(gain_difference, pool=suite.pool)
            return found_by(suite, statistic, [suite.sample(config) for config in configs])

        return self.test(text, configs if len(configs) == 4 else [], evidence_of, quantity, side, primary=primary)

    def test(
        self,
        text,
        configs,
        found_in,
        quantity,
        side,
        measure="final",
        primary=False,
        by_game=False,
        improvement_in=lambda suite: NO_ESTIMATE,
    ):
        """Adds a claim on final scores, and its versions; returns what the first of them rests on.

        found_in: a function of a suite that gives the Evidence, or the Tested, of the configurations. It is not called
        if they cannot be compared.
        """
        first = None
        for suite, words, family in self.versions(text, configs, primary, by_game):
            if suite.can_compare(configs):
                found, judging = found_in(suite), self.judging(configs, side)
                more = {"margin": self.margin(suite, side, measure), "improvement": improvement_in(suite)}
            else:
                found, judging, more = nothing(NO_FINAL_SCORES), (), {}
            found = self.add(words, quantity, found, side, suite, judging, measure, family=family, **more)
            first = first or found
        return first

    def all_together(self, text, rows, side, primary=False):
        """Adds a claim that holds if all of the rows hold (judge_each). rows: [(Evidence, Claim)] of rows above."""
        if not rows:
            return
        margin = rows[0][1].margin
        tested = judge_each([found for found, _ in rows], side, margin)
        more = {
            "family": PRIMARY if primary else SECONDARY,
            "needs": next((claim.needs for _, claim in rows if claim.needs), ""),
            "seeds": min(claim.seeds for _, claim in rows),
        }
        self.append(Claim(text, "the farthest, with its CI", tested, side, margin, **more))

    def trend(self, text, tau, levels, groups, side, configs=(), quantity="Kendall's τ with N", **more):
        """Adds Kendall's tau of levels with a quantity. A trend that turns back at its last level does not hold.

        tau: as estimates.kendall gives it for levels and groups.
        """
        runs = [[group[i] for group in groups] for i in range(len(levels))]
        tested = with_reversals(judge(tau, side), levels, groups, side)
        self.add(text, quantity, tested, side, None, configs, needs=needed(runs), **more)

    def judging(self, configs, side):
        """The configurations whose final scores a verdict rests on: with a margin also the base."""
        has_margin = side in ("little", "not less") and self.suite.base in self.suite.scored
        return [*configs, self.suite.base] if has_margin else configs

    def margin(self, suite, side, measure="final"):
        """MARGIN times the base's score for the sides that have a margin, else 0."""
        if side not in ("little", "not less") or suite.base not in suite.scored:
            return 0.0
        return max(MARGIN * abs(float(suite.pool(suite.sample(suite.base, measure)))), SMALLEST_MARGIN)

    def diagnostics(self):
        """Adds P1's six claims on N-scaling, each on the native batch and on the probe."""
        for row in correlations(self.suite):
            if not np.isfinite(row.tau.value):
                continue
            place, name = row.tag.split("/")
            label, sign = DIAGNOSTICS[name]
            rows = "native batch" if place == "diagnostics" else "probe, equal rows"
            shown = [[as_shown(name, x) for x in group] for group in row.groups]
            moved = effect(row.levels, shown).estimate
            ends = f"N = {min(row.levels)} to {max(row.levels)}"
            self.trend(
                f"{label} {'rises' if sign > 0 else 'falls'} with N ({rows})",
                row.tau,
                row.levels,
                row.groups,
                "more" if sign > 0 else "less",
                quantity=f"Kendall's τ with N; {SHOWN[name]} from {ends}: {in_words(moved)}",
            )

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
                "p_value": claim.tested.p,
                "power_if_equal": claim.power_if_equal,
                "budget": self.suite.budget,
                "seeds": claim.seeds,
                "margin": claim.margin,
                "no_ci": claim.tested.why,
                "needs": claim.needs,
                "remark": claim.remark,
                "value_is": claim.quantity,
            }
            for claim, adjusted in zip(self, self.adjusted())
        ]


def _difference(configs, better, worse, pool):
    """The statistic of a comparison; its samples are those of `configs`."""

    def difference(*samples):
        score = {config: pool(sample) for config, sample in zip(configs, samples)}
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


def found_by(suite, statistic, samples):
    """The Evidence of a statistic of final scores: P1's interquartile mean keeps the bootstrap of n - 1 of n seeds."""
    if suite.pool is iqm:
        return resampled(statistic, samples, suite.reps, suite.seed)
    return evidence(statistic, samples)


def in_words(estimate):
    """E.g. "+0.32 [+0.12, +0.51]"."""
    value, low, high = (f"{number:+.3g}" for number in estimate)
    return f"{value} [{low}, {high}]" if np.isfinite(estimate.low) else f"{value}, no CI"


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
                kendall(levels, by_n),
                kendall([config["num_steps"] for config in t_family], by_t).estimate,
                kendall([config["num_envs"] for config in everything], by_all, batch_sizes).estimate,
                levels,
                by_n,
            )
        )
    return rows


def _groups(suite, tag, configs):
    """Means over the second half of each run, in the games that all of the configurations have."""
    groups = [[suite.second_half_means(config, game, tag) for config in configs] for game in suite.games]
    return [group for group in groups if all(values.size for values in group)]
