"""The tables of a sweep: of its configurations, its claims and its correlations.

A table is (header, rows): lists of words. `as_text` writes it.
"""

import numpy as np

from analysis.claims import PRIMARY, correlations
from analysis.comparisons import SEEDS_FOR_A_VERDICT
from analysis.estimates import (
    MIN_SEEDS,
    SEEDS_OF_A_TASK,
    TASK,
    TASKS,
    interval,
    iqm,
    mean,
    median,
    optimality_gap,
    unit_of,
)
from analysis.suite import label_of
from analysis.training_runs import ATARI_5, ATARI_10, ENOUGH_EPISODES, median_57


def number(value):
    return "-" if not np.isfinite(value) else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def bounds(low, high):
    return f"[{number(low)}, {number(high)}]" if np.isfinite(low) else "no CI"


def as_text(table):
    """Lines of columns as wide as their contents."""
    header, rows = table
    widths = [max(len(str(row[i])) for row in [header, *rows]) for i in range(len(header))]
    return ["  ".join(str(word).ljust(width) for word, width in zip(row, widths)).rstrip() for row in [header, *rows]]


# ---- the tables ------------------------------------------------------------------------------------------------------


def scores_table(suite):
    """Final aggregates of each configuration, and its number of updates."""
    weights = next((weights for weights in (ATARI_10, ATARI_5) if set(weights) <= set(suite.tasks)), None)
    header, rows = ["configuration", "runs", "mean", "95 % CI", "IQM", "median", "opt. gap"], []
    header += [f"57-game median (Atari-{len(weights)} regression), %"] if weights else []
    header += ["batch", "iterations", "gradient steps"]

    def aggregates(sample):
        regression = [median_57(sample, suite.tasks, weights)] if weights else []
        return np.array([mean(sample), iqm(sample), median(sample), optimality_gap(sample), *regression])

    for config in suite.configs:
        runs = [run for key, run in suite.runs.items() if key[0] == config]
        row = [
            label_of(config)
            + (" (base)" if config == suite.base else "")
            + (" (too few episodes)" if config in suite.too_few_episodes else ""),
            f"{sum(run.finished for run in runs)}/{len(runs)}",
        ]
        if suite.can_compare([config]):
            value, low, high = interval(aggregates, [suite.sample(config)], suite.reps, suite.seed)
            row += [number(value[0]), bounds(low[0], high[0]), f"{number(value[1])} {bounds(low[1], high[1])}"]
            row += [number(value[2]), number(value[3])]
            row += [f"{number(value[4])} {bounds(low[4], high[4])}"] if weights else []
        else:
            row += ["-"] * (6 if weights else 5)
        iterations = runs[0].target / config.batch_size
        rows.append([*row, f"{config.batch_size:,}", f"{iterations:,.0f}", _gradient_steps(runs)])
    return header, rows


def _gradient_steps(runs):
    """At the end of the finished runs, in words; the runs of a schedule that the noise leads may differ."""
    counts = [run.on_axis(np.array([run.target]), "gradient_steps")[0] for run in runs if run.finished]
    return " to ".join(f"{count:,.0f}" for count in sorted({min(counts), max(counts)})) if counts else "-"


def claims_csv(suite, claims):
    """The rows of the CSV of claims, as dicts."""
    return [
        {
            "sweep": suite.sweep,
            "script": suite.script,
            "claim": claim.words.strip(),
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
            "budget": suite.budget,
            "seeds": claim.seeds,
            "margin": claim.margin,
            "no_ci": claim.tested.why,
            "needs": claim.needs,
            "remark": claim.remark,
            "value_is": claim.quantity,
        }
        for claim, adjusted in zip(claims, claims.adjusted())
    ]


def claims_table(shown):
    """shown: [(Claim, its verdict after Holm's correction), …]."""
    rows = []
    for claim, adjusted in shown:
        value, low, high = claim.estimate
        ci = bounds(low, high) if np.isfinite(low) else f"no CI: {claim.tested.why}"
        chance = ""
        if np.isfinite(claim.improvement.value):
            chance = number(claim.improvement.value)
            if np.isfinite(claim.improvement.low):
                chance += f" {bounds(claim.improvement.low, claim.improvement.high)}"
        text = f"* {claim.words}" if claim.family == PRIMARY else claim.words
        words = f"none: needs {claim.needs}" if claim.needs else claim.verdict
        power = number(claim.power_if_equal) if np.isfinite(claim.power_if_equal) else ""
        rows.append([text, number(value), ci, chance, words, adjusted, power, claim.quantity])
    header = ["claim", "value", "95 % CI", "P(improvement)", "verdict", "after Holm", "power if equal", "value is"]
    return header, rows


def verdicts(suite, claims):
    """Three lines for each primary claim: the verdict; tasks, budget and seeds; the number with its interval."""
    tasks = ", ".join(suite.tasks) if len(suite.tasks) < 4 else f"{len(suite.tasks)} tasks"
    for claim in claims:
        if claim.family == PRIMARY:
            value, low, high = claim.estimate
            word = f"no verdict, it needs {claim.needs}" if claim.needs else claim.verdict
            why = f" ({claim.remark})" if claim.remark else ""
            ci = f"95 % CI {bounds(low, high)}" if np.isfinite(low) else f"no CI: {claim.tested.why}"
            yield f"{claim.text}: {word}{why}"
            yield f"  {tasks or 'no task'}, {suite.budget:,.0f} steps, {claim.seeds} seeds"
            yield f"  {claim.quantity} = {number(value)}, {ci}"


def remarks(shown):
    """Lines on the rows that need a word more. shown: as for claims_table."""
    return [f"! {claim.words.strip()}: {claim.remark}" for claim, _ in shown if claim.remark]


def correlations_table(rows):
    def cell(estimate):
        return "-" if not np.isfinite(estimate.value) else f"{estimate.value:+.2f} {bounds(*estimate[1:])}"

    header = ["diagnostic", "with N", "with T", "with N at a fixed batch"]
    return header, [[row.tag, *(cell(tau.estimate) for tau in row.taus)] for row in rows]


def found_correlations(suite):
    """The rows of `correlations_table` that have a number."""
    return [row for row in correlations(suite) if np.isfinite([tau.value for tau in row.taus]).any()]


def about(suite, reference):
    """Lines on what was read, how it is compared, and what is missing; the latter begin with "!"."""
    runs = suite.runs.values()
    finished = sum(run.finished for run in runs)
    yield f"== {suite.sweep}: {reference}; {suite.script}.py"
    yield (
        f"{len(runs)} runs, {finished} at their budget: {len(suite.configs)} configurations, {len(suite.all_tasks)} "
        f"tasks, seeds {' '.join(map(str, suite.all_seeds))}; base {label_of(suite.base)}"
    )
    yield f"compared at {suite.budget:,.0f} environment steps: the order of configurations depends on the budget"
    yield f"scores: {suite.scale}; final: {suite.final_is}"
    if any(run.enough_episodes_from() > 0 for run in runs):
        yield (
            f"curves of the return are dotted until each environment of their runs has finished {ENOUGH_EPISODES} "
            "episodes (charts/min_episodes): before that mostly short episodes have ended"
        )
    over = "tasks" if unit_of([suite.sample(config) for config in suite.scored]) == TASK else "seeds within tasks"
    yield (
        f"aggregates over {len(suite.tasks)} tasks: {', '.join(suite.tasks) or 'none'}; CIs: 95 % percentile "
        f"bootstrap over seeds within tasks (rliable), {suite.reps} resamples; none below {MIN_SEEDS} seeds per task; "
        f"of claims Student's t over {over}"
    )
    if any(run.diverged for run in runs):
        yield (
            f"diverged runs have the score of the random policy ({suite.random_is}); a second row of each claim on "
            "them leaves them out"
        )
    yield from (f"! {note}" for note in suite.notes[:20])
    if len(suite.notes) > 20:
        yield f"! … and {len(suite.notes) - 20} more of this kind"


ABOUT_CLAIMS = (
    "*: the primary claim. After Holm: the verdicts corrected for their number, the primary ones, the other ones and "
    "those of tasks each on their own. Power if equal: the chance of *supported* if there is no difference. Verdicts "
    f"need {SEEDS_OF_A_TASK} seeds of a configuration in each of {TASKS} tasks or more, and are of the tasks then; or "
    f"{SEEDS_FOR_A_VERDICT} seeds in each task"
)
ABOUT_CORRELATIONS = (
    "rank correlation (Kendall's τ, mean over tasks) of each diagnostic, its mean over the second half of a run. "
    "T-scaling has the batches and gradient steps of N-scaling: an effect that only N has is N's own"
)


def report(suite, claims, reference, diagnostics=True):
    """The lines of a suite: what was read, what is missing, the aggregates, the claims and the correlations.

    diagnostics: whether with the claims on the diagnostics and their correlations.
    """
    yield from about(suite, reference)
    yield ""
    yield from as_text(scores_table(suite))
    shown = [pair for pair in zip(claims, claims.adjusted()) if diagnostics or not pair[0].diagnostic]
    if shown:
        yield ""
        yield from as_text(claims_table(shown))
        yield ABOUT_CLAIMS
        yield from remarks(shown)
    rows = found_correlations(suite) if diagnostics else []
    if rows:
        yield ""
        yield ABOUT_CORRELATIONS
        yield from as_text(correlations_table(rows))
    yield ""
