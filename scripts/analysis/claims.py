"""The claims on scores, with their numbers and verdicts.

`Claims` collects rows, whatever the scores were read from, and corrects them for their number. The modules of sweeps
(sweeps.py) fill it; tables.py prints it for figures.py, judge.py writes it into verdicts.csv.

Every row has the verdict of its own test. A second one, and the p-values beside it, are adjusted by Holm's method
within its family: the primary rows, which say what was claimed before the runs; the other rows; those of single tasks.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from analysis.comparisons import Tested, effect, estimated, gain_difference, judge, judge_each, judge_trend, needed
from analysis.estimates import (
    ALPHA,
    CONTRADICTED,
    NO_ESTIMATE,
    SUPPORTED,
    UNDECIDED,
    Estimate,
    Evidence,
    detectable,
    equivalence_power,
    evidence,
    holm,
    kendall,
    mean,
    nothing,
)
from analysis.scores import NoScores
from analysis.suite import DIAGNOSTICS, SHOWN, as_shown
from analysis.training_runs import Configuration

NO_FINAL_SCORES = "no final scores of these configurations"
PRIMARY, SECONDARY, BY_TASK = "primary", "secondary", "by game"
ESTIMATE = "estimate"  # the family of numbers about which nothing was claimed


# ---- claims ----------------------------------------------------------------------------------------------------------
@dataclass
class Claim:
    """A row of the table."""

    text: str  # the claim; indented if it is part of the one above
    tested: Tested
    quantity: str = "score"  # what the number is
    side: str = ""  # what is claimed of the number, as for estimates.verdict
    margin: float = 0.0
    improvement: Estimate = NO_ESTIMATE  # P(improvement), where two sides are compared
    family: str = SECONDARY
    needs: str = ""  # the seeds or tasks without which there is no verdict; "" if there are enough
    name: str = ""  # as "S1"
    seeds: int = 0  # in each task, at least
    task: str = ""  # that of a row in one task
    diagnostic: bool = False  # of a diagnostic, not of the score

    @property
    def words(self):
        """The text, with the task of a row in one task."""
        return f"  {self.text.strip()}: {self.task}" if self.family == BY_TASK else self.text

    @property
    def estimate(self):
        return self.tested.estimate

    @property
    def verdict(self):
        """Of the row's own test; "" where there are too few seeds for one."""
        return "" if self.needs else self.tested.verdict

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
    """Collects claims on scores, and corrects their verdicts for their number."""

    def __init__(self, scores):
        super().__init__()
        self.scores = scores

    # ---- adding ------------------------------------------------------------------------------------------------------
    def add(self, text, test, configs, *, tasks=None, by_task=None, primary=False, family="", **more):
        """Adds a claim, and its versions without diverged runs and in each task. Returns the first row.

        test: a function of Scores, gives the Tested of the configurations; not called where they cannot be compared. A
        row whose test misses scores says which.
        tasks: those of the claim; None: all. by_task: whether the numbers of each task follow, if not as for all
        claims. family: if neither PRIMARY nor SECONDARY. more: as for `row`, and `pairs`, as for Scores.improvement.
        """
        view, place = self.scores.in_tasks(tasks) if tasks else self.scores, len(self)
        self._test(view, text, test, configs, family or (PRIMARY if primary else SECONDARY), **more)
        if view.any_diverged(configs):
            words = f"  {text}, without the diverged runs"
            self._test(view.without_diverged(), words, test, configs, SECONDARY, **more)
        if (self.scores.by_task if by_task is None else by_task) and len(view.tasks) > 1:
            for task in view.tasks:
                self._test(view.in_task(task), text, test, configs, BY_TASK, **more)
        return self[place]

    def _test(self, view, text, test, configs, family, side="", column="score", pairs=(), **more):
        if not view.can_compare(configs):
            self.row(text, judge(nothing(NO_FINAL_SCORES), "more"), (), view, family=family, side=side, **more)
            return
        margin = view.margin(side, column)
        configs = [*configs, view.base] if margin else configs
        more |= {"family": family, "side": side, "column": column, "margin": margin}
        try:
            tested = test(view)
        except NoScores as hole:
            tested, configs, pairs = judge(nothing(f"no scores of {hole}"), "more"), (), ()
        self.row(text, tested, configs, view, improvement=view.improvement(pairs) if pairs else NO_ESTIMATE, **more)

    def row(self, text, tested, configs, view=None, *, column="score", **more):
        """Adds one row. tested: its Tested. configs: those whose scores the number rests on; it has no interval if they
        decide nothing. view: their Scores, if not those of all claims. more: further fields of Claim.
        """
        view = view or self.scores
        doubt = view.reason_to_doubt(configs, column)
        if doubt:
            more["improvement"] = NO_ESTIMATE
            tested = judge(Evidence(tested.estimate.value, np.zeros(0), doubt), "more")
        more.setdefault("needs", view.needs(configs) if configs else "")
        more.setdefault("task", view.tasks[0] if len(view.tasks) == 1 else "")
        more.setdefault("seeds", view.seeds(configs))
        self.append(Claim(text, tested=tested, **more))
        return self[-1]

    def compare(self, text, better, worse, quantity="score", side="more", column="score", **more):
        """Adds the mean score of the configurations in `better` minus that of those in `worse`; or of one and another.

        With as many of one as of the other also P(improvement), pair by pair, where the rows show it. `little` and `not
        less` have the margin of the scores.
        """
        better, worse = ([x] if isinstance(x, Configuration) else list(x) for x in (better, worse))
        configs = list(dict.fromkeys([*better, *worse]))  # one that occurs twice is resampled once

        def test(view):
            statistic = _difference(configs, better, worse)
            found = evidence(statistic, [view.sample(config, column) for config in configs])
            return judge(found, side, view.margin(side, column))

        pairs = list(zip(better, worse)) if len(better) == len(worse) and column == "score" else ()
        able = configs if better and worse else []
        return self.add(text, test, able, quantity=quantity, side=side, column=column, pairs=pairs, **more)

    def compare_gains(self, text, pair, other_pair, quantity="score", side="more", **more):
        """Adds the gain of a pair, the score of its first configuration minus that of its second, minus another's."""
        configs = [*pair, *other_pair]

        def test(view):
            found = evidence(gain_difference, [view.sample(config) for config in configs])
            return judge(found, side, view.margin(side))

        return self.add(text, test, configs if len(configs) == 4 else [], quantity=quantity, side=side, **more)

    def estimate(self, text, statistic, configs, column="score", **more):
        """Adds a statistic of the samples of the configurations, about which nothing is claimed."""

        def test(view):
            return estimated(evidence(statistic, [view.sample(config, column) for config in configs]))

        return self.add(text, test, configs, column=column, family=ESTIMATE, **more)

    def all_together(self, text, rows, side, primary=False):
        """Adds a claim that holds if all of the rows, which are above it, hold (judge_each)."""
        if not rows:
            return
        margin = rows[0].margin
        tested = judge_each([row.tested.found for row in rows], side, margin)
        more = {
            "family": PRIMARY if primary else SECONDARY,
            "needs": next((row.needs for row in rows if row.needs), ""),
            "seeds": min(row.seeds for row in rows),
        }
        self.row(text, tested, (), quantity="the farthest, with its CI", side=side, margin=margin, **more)

    def trend(self, text, tau, levels, groups, side, configs=(), quantity="Kendall's τ with N", **more):
        """Adds Kendall's tau of levels with a quantity. A trend that turns back at its last level does not hold.

        tau: as estimates.kendall gives it for levels and groups.
        """
        tested = judge_trend(tau, levels, groups, side)
        seeds = min((len(x) for group in groups for x in group), default=0)
        more |= {"needs": needed(len(groups), seeds), "seeds": seeds}
        return self.row(text, tested, configs, quantity=quantity, side=side, **more)

    def diagnostics(self):
        """Adds P1's six claims on N-scaling, each on the full batch and on the probe."""
        for row in correlations(self.scores):
            if len(row.levels) < 2:
                continue
            place, name = row.tag.split("/")
            label, sign = DIAGNOSTICS[name]
            rows = "full batch" if place == "diagnostics" else "probe, equal rows"
            tau, quantity = nothing("in no task do all settings have it"), "Kendall's τ with N"
            if row.groups:
                shown = [[as_shown(name, x) for x in group] for group in row.groups]
                ends = f"N = {min(row.levels)} to {max(row.levels)}"
                tau = row.taus[0]
                quantity += f"; {SHOWN[name]} from {ends}: {in_words(effect(row.levels, shown).estimate)}"
            self.trend(
                f"{label} {'rises' if sign > 0 else 'falls'} with N ({rows})",
                tau,
                row.levels,
                row.groups,
                "more" if sign > 0 else "less",
                quantity=quantity,
                diagnostic=True,
            )

    # ---- verdicts.csv ------------------------------------------------------------------------------------------------
    def rows(self):
        """The rows of verdicts.csv. A row in one task, an estimate, and a claim with too few seeds have no verdict."""
        for claim, (holds, fails) in zip(self, self.chances()):
            tested, word = claim.tested, claim.verdict
            has_verdict, least = claim.family in (PRIMARY, SECONDARY) and not claim.needs, detectable(tested.estimate)
            if word == UNDECIDED and "at the edge" in tested.remark:
                word = f"{UNDECIDED}: at the edge"
            yield {
                "name": claim.name,
                "family": claim.family,
                "claim": claim.text,
                "game": claim.task,
                "quantity": claim.quantity,
                "seeds": claim.seeds,
                "value": number(tested.estimate.value),
                "low": number(tested.estimate.low),
                "high": number(tested.estimate.high),
                "verdict": word if has_verdict else "",
                "p_holm": f"{holds:.4f}" if has_verdict and claim.is_tested else "",
                "p_holm_opposite": f"{fails:.4f}" if has_verdict and claim.is_tested else "",
                "detectable": f"{least:.2g}" if has_verdict and word == UNDECIDED and least > 1e-9 else "",
                "remark": "" if claim.family == BY_TASK else "; ".join(filter(None, (tested.remark, tested.why))),
            }

    # ---- Holm's correction -------------------------------------------------------------------------------------------
    def chances(self):
        """Of each row the p-values of the claim and of its opposite after Holm's correction within its family."""
        adjusted = [(1.0, 1.0)] * len(self)
        for family in (PRIMARY, SECONDARY, BY_TASK):
            places = [i for i, claim in enumerate(self) if claim.family == family and claim.is_tested]
            sides = [holm([self[i].tested.chances[side] for i in places]) for side in (0, 1)]
            for i, *pair in zip(places, *sides):
                adjusted[i] = tuple(pair)
        return adjusted

    def adjusted(self):
        """The verdict of each row after Holm's correction within its family."""
        pairs = [(claim.verdict, *pair) for claim, pair in zip(self, self.chances())]
        return [
            word if not word or {SUPPORTED: holds, CONTRADICTED: fails}.get(word, 1.0) < ALPHA else UNDECIDED
            for word, holds, fails in pairs
        ]


def _difference(configs, better, worse):
    """The statistic of a comparison; its samples are those of `configs`."""

    def difference(*samples):
        score = {config: mean(sample) for config, sample in zip(configs, samples)}
        mean_better = np.mean([score[config] for config in better], axis=0)
        mean_worse = np.mean([score[config] for config in worse], axis=0)
        return mean_better - mean_worse

    return difference


def number(value):
    """With four digits; nothing smaller than 1e-9."""
    return f"{round(value, 9) + 0.0:.4g}"


def in_words(estimate):
    """E.g. "+0.32 [+0.12, +0.51]"."""
    value, low, high = (f"{number:+.3g}" for number in estimate)
    return f"{value} [{low}, {high}]" if np.isfinite(estimate.low) else f"{value}, no CI"


# ---- correlations of the diagnostics ---------------------------------------------------------------------------------
@dataclass
class Correlations:
    """Kendall's τ of a diagnostic with N, with T, and with N among configurations of one batch size."""

    tag: str
    taus: list  # the Evidence of each of the three
    levels: list  # N of the configurations behind the first
    groups: list  # and their values: one list per task of arrays (seeds,)


@lru_cache(maxsize=None)
def correlations(suite):
    """The Correlations of each diagnostic that the base has, of the full batch and the probe.

    With N and with T: over the base and the configurations that scale that one of them. At the same factors T has the
    batches and gradient steps of N. With N at one batch: over all of these and the others of the base's batch, each
    compared with those of its own batch size. If nothing scales N, N is taken over the base's batch too.
    """
    n_family, t_family, same_batch = suite.family("num_envs"), suite.family("num_steps"), suite.same_batch()
    n_family = n_family if len(n_family) > 1 else same_batch
    everything = list(dict.fromkeys([*n_family, *t_family, *same_batch]))
    rows = []
    for tag in [f"{place}/{name}" for name in DIAGNOSTICS for place in ("diagnostics", "probe")]:
        if not any(suite.second_half_means(suite.base, task, tag).size for task in suite.all_tasks):
            continue
        by_n, by_t, by_all = (_groups(suite, tag, configs) for configs in (n_family, t_family, everything))
        levels = [config["num_envs"] for config in n_family]
        batch_sizes = [config.batch_size for config in everything]
        taus = [
            kendall(levels, by_n),
            kendall([config["num_steps"] for config in t_family], by_t),
            kendall([config["num_envs"] for config in everything], by_all, batch_sizes),
        ]
        rows.append(Correlations(tag, taus, levels, by_n))
    return rows


def _groups(suite, tag, configs):
    """Means over the second half of each run, in the tasks that all of the configurations have."""
    groups = [[suite.second_half_means(config, task, tag) for config in configs] for task in suite.all_tasks]
    return [group for group in groups if all(values.size for values in group)]
