"""Writes the tables of results/atlas/README.md from results/runs.csv.gz, once every task has run.

    python scripts/judge.py atlas && python results/atlas/page.py

The page has a line `<!-- page.py: NAME -->` before each table, and `<!-- end -->` after it. NAME:

    after      what was looked for after the runs (after.py)
    equal      the score of each N x T at each rate of step 1
    claims     A1 to A5, with the half-widths that came out and those that were registered
    new        what a new task will show, by two methods
    counts     tasks that do not count, rates at the edge
    rates      the tuned rates of each N x T, and how far seeds are apart there
    budgets    what tuning buys at each budget
    cost       runs, steps and hours

Two tables are too long for the page and become files:

    tasks      by_task.csv: the scores of the judged settings of each task
    repeats    repeats.csv: five tasks again, with fresh seeds
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT  # noqa: F401

import random

import claims as atlas
import numpy as np
import pandas as pd
from analysis import experiment, markdown
from analysis.comparisons import difference
from analysis.estimates import Estimate, evidence, mean
from scipy import stats

from results.atlas import after
from support import arguments, reading

PAGE = atlas.HERE / "README.md"
REPEATED = 5  # tasks whose tested settings ran again
METHODS = {"DerSimonian and Laird": atlas.dersimonian_laird, "Paule and Mandel": atlas.paule_mandel}
SPREADS = ("the same on all tasks", "proportional to the noise")  # of new_task.csv
REGISTERED = {"A1": 0.10, "A2": 0.055, "A4": 0.09}  # half-widths (CLAIMS.md)
NUMBERS = {
    "A1": (
        "tuning the rate buys more than tuning N x T beside it",
        lambda x: atlas.rate_gain(x) - atlas.n_by_t_gain(x),
    ),
    "A2": ("128 x 8 beats 8 x 128, each at its own rate", lambda x: atlas.many_gain(x)[0]),
    "A4": ("32 x 32 at 2e-3 beats the default", atlas.constant_gain),
}


def rate(value):
    """A learning rate as the pages write it: 2.5e-4, 1.6e-2."""
    number, power = f"{value:.1e}".split("e")
    return f"{number.removesuffix('.0')}e{int(power)}"


def score(values):
    """A mean and half the width of its interval, Student's t over the seeds.

    A dash where step 1 has found nothing above random play, so that there is no scale.
    """
    if np.isnan(values).any():
        return "-"
    one = evidence(mean, [[values]]).estimate
    return f"{one.value:.2f} ± {(one.high - one.low) / 2:.2f}"


def interval(one, sign="+"):
    return f"{one.value:{sign}.2f} [{one.low:.2f}, {one.high:.2f}]"


def tasks_table(every, _):
    tuned = " | ".join(f"{n} x {t}, tuned" for n, t in atlas.N_BY_TS)
    yield f"| task | steps | default | {tuned} | 128 x 8 at 2.5e-4 | 32 x 32 at 2e-3 | remark |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for task in every:
        tuned = [f"{score(task.tuned(x))}, {rate(task.settings.tuned[x][2])}" for x in atlas.N_BY_TS]
        fixed = [score(task.scores[x]) for x in (atlas.DEFAULT, atlas.MANY, atlas.CONSTANT)]
        word = "solved by all" if task.solved else "" if task.learned else "not learned"
        yield f"| {' | '.join([task.name, f'{task.budget:,}', fixed[0], *tuned, *fixed[1:], word])} |"


def claims_table(every, runs):
    counted, of_best = [task for task in every if task.learned and not task.solved], atlas.atlas(runs, False)[1]
    yield "| | claim | estimate, scale R | scale B | half-width, and as registered | tasks, seeds |"
    yield "|---|---|---|---|---|---|"
    seeds = min(len(values) for task in counted for values in task.scores.values())
    for name, (text, number) in NUMBERS.items():
        one, other = (atlas.over_tasks([number(task) for task in tasks]).estimate for tasks in (counted, of_best))
        half = f"{(one.high - one.low) / 2:.3f}, {REGISTERED[name]:.3f}"
        yield f"| {name} | {text} | {interval(one)} | {interval(other)} | {half} | {len(counted)}, {seeds} |"
        if name == "A2":
            deviations = [atlas.heterogeneity(*zip(*map(atlas.many_gain, x))).tau2 ** 0.5 for x in (counted, of_best)]
            cells = " | ".join(f"{x:.2f}" for x in deviations)
            yield f"| A3 | its standard deviation over tasks is above 0 | {cells} | | {len(counted)}, {seeds} |"
    known = pd.DataFrame([atlas.known_before(task, runs) for task in counted])
    gains = [np.array([atlas.many_gain(task)[0] for task in tasks]) for tasks in (counted, of_best)]
    for name in known:
        one, other = (atlas.slope(known[name].to_numpy(), of_scale) for of_scale in gains)
        text = f"slope on: {name} ({one.remark.replace('R2', 'R²')})"
        half = f"{(one.estimate.high - one.estimate.low) / 2:.3f}"
        cells = f"{interval(one.estimate)} | {interval(other.estimate)} | {half} | {len(counted)}, {seeds}"
        yield f"| A5 | {text} | {cells} |"


def after_table(every, runs):
    yield "| | score | tasks | p |"
    yield "|---|---|---|---|"
    for what, values in after.rows(every, runs):
        if len(values) > 1:
            p = stats.ttest_1samp(values, 0.0).pvalue
            yield f"| {what} | {interval(atlas.over_tasks(values).estimate)} | {len(values)} | {max(p, 1e-4):.1g} |"


def equal_table(every, runs):
    tasks = after.both_steps(every, runs)
    yield f"| rate | {' | '.join(f'{n} x {t}' for n, t in atlas.N_BY_TS)} | 8 x 128 minus 128 x 8 |"
    yield "|---|---|---|---|---|"
    for x in atlas.RATES:
        cells = [f"{np.mean([task.at(n_by_t, x) for task in tasks]):.2f}" for n_by_t in atlas.N_BY_TS]
        more = atlas.over_tasks([task.few_minus_many([x]) for task in tasks]).estimate
        yield f"| {rate(x)} | {' | '.join(cells)} | {interval(more)} |"


def new_table(every, _):
    covered = atlas.table_of("new_task.csv").groupby(["method", "spread"], sort=False)["inside"].agg(["min", "max"])
    counted = [task for task in every if task.learned and not task.solved]
    values, variances = map(np.array, zip(*(atlas.many_gain(task) for task in counted)))
    columns = ["deviation over tasks", "128 x 8 minus 8 x 128 on a new task", "tasks within the interval of the others"]
    yield f"| | {' | '.join(columns)} | {' | '.join(f'holds, spread {x}' for x in SPREADS)} |"
    yield "|---|---|---|---|---|---|"
    for name, method in METHODS.items():
        one = atlas.heterogeneity(values, variances, method)
        inside = f"{atlas.inside_when_left_out(values, variances, method)} of {len(counted)}"
        cells = [f"{one.tau2**0.5:.2f}", interval(Estimate(one.mean, one.low, one.high)), inside]
        cells += ["{:.0f} to {:.0f} %".format(*100 * covered.loc[name, spread]) for spread in SPREADS]
        yield f"| {name} | {' | '.join(cells)} |"


def counts_table(every, _):
    best = [task.settings.tuned[x][2] for task in every for x in atlas.N_BY_TS]
    yield "| tasks | not learned by any setting | solved by all | that count | best rate is the highest | the lowest |"
    yield "|---|---|---|---|---|---|"
    numbers = [len(every), sum(not x.learned for x in every), sum(x.solved for x in every)]
    numbers += [sum(x.learned and not x.solved for x in every)]
    edges = [f"{sum(x == edge for x in best)} of {len(best)}" for edge in (atlas.RATES[-1], atlas.RATES[0])]
    yield f"| {' | '.join(map(str, [*numbers, *edges]))} |"


def rates_table(every, _):
    """A score's deviation is that of one seed's from another's; a task on which all seeds score the same counts too."""
    yield "| N x T | median of the tuned rates | the middle half of them | deviation over seeds, median of the tasks |"
    yield "|---|---|---|---|"
    counted = [task for task in every if task.learned and not task.solved]
    for n, t in atlas.N_BY_TS:
        tuned = [task.settings.tuned[n, t][2] for task in counted]
        low, high = np.quantile(tuned, [0.25, 0.75], method="nearest")
        between = dict.fromkeys(np.quantile(tuned, 0.5, method=method) for method in ("lower", "higher"))
        deviation = np.median([task.tuned((n, t)).std(ddof=1) for task in counted])
        yield f"| {n} x {t} | {' to '.join(map(rate, between))} | {rate(low)} to {rate(high)} | {deviation:.2f} |"


def budgets_table(every, _):
    numbers = {
        "tuning the rate": atlas.rate_gain,
        "tuning N x T as well": atlas.n_by_t_gain,
        "128 x 8 minus 8 x 128": lambda task: atlas.many_gain(task)[0],
        "32 x 32 at 2e-3 minus the default": atlas.constant_gain,
    }
    yield f"| steps | tasks | {' | '.join(numbers)} |"
    yield "|---|---|---|---|---|---|"
    for budget in atlas.BUDGETS:
        own = [task for task in every if task.budget == budget and task.learned and not task.solved]
        if len(own) > 1:
            cells = [interval(atlas.over_tasks([number(task) for task in own]).estimate) for number in numbers.values()]
            yield f"| {budget:,} | {len(own)} | {' | '.join(cells)} |"


def repeats_table(every, runs):
    yield "| task | N x T, rate | step 2 | seeds 201 to 210 | difference |"
    yield "|---|---|---|---|---|"
    for task in every:
        if task.name not in random.Random(0).sample(sorted(atlas.tasks()), REPEATED):
            continue
        again = atlas.measure(runs, task.name, task.budget, seeds=atlas.REPEATING).scores
        for setting in task.settings.tested:
            one = evidence(difference, [[again[setting]], [task.scores[setting]]]).estimate
            words = f"{setting[0]} x {setting[1]}, {rate(setting[2])}"
            both = f"{task.scores[setting].mean():.2f} | {again[setting].mean():.2f}"
            yield f"| {task.name} | {words} | {both} | {interval(one)} |"


KINDS = {"pilot": atlas.PILOT_SEEDS, "step 1": atlas.CHOOSING, "step 2": atlas.TESTING, "repeats": atlas.REPEATING}


def cost_table(_, runs):
    """The runs of a process began within ten seconds, and took the same time of one core."""
    yield "| | tasks | runs | million steps | hours of a core, training | steps per second of a core |"
    yield "|---|---|---|---|---|---|"
    for name, seeds in {**KINDS, "all": sorted(set(runs["seed"]))}.items():
        of = ["env_id", "num_envs", "num_steps"]
        own = runs[runs["seed"].isin(seeds)].sort_values([*of, "start"])
        later = pd.to_datetime(own["start"]).groupby([own[x] for x in of]).diff().dt.total_seconds()
        seconds = own["wall_seconds"].groupby((~(later <= 10)).cumsum()).max().sum()
        numbers = [own["env_id"].nunique(), f"{len(own):,}", f"{own['global_step'].sum() / 1e6:,.0f}"]
        numbers += [f"{seconds / 3600:.1f}", f"{own['global_step'].sum() / seconds:,.0f}"]
        yield f"| {name} | {' | '.join(map(str, numbers))} |"


TABLES = {
    "after": after_table,
    "equal": equal_table,
    "tasks": tasks_table,
    "claims": claims_table,
    "new": new_table,
    "counts": counts_table,
    "rates": rates_table,
    "budgets": budgets_table,
    "repeats": repeats_table,
    "cost": cost_table,
}
FILES = {"tasks": "by_task.csv", "repeats": "repeats.csv"}  # of tables that the page does not show


def filled(text, runs):
    """The text of the page with its tables, all of them made of the runs of the atlas."""
    every = atlas.atlas(runs)[0]
    shown = [name for name in TABLES if name not in FILES or f"<!-- page.py: {name} -->" in text]
    return markdown.filled(PAGE, text, "page.py", {name: TABLES[name](every, runs) for name in shown})


def write_file(path, lines):
    """A table of the page as a CSV file, without the line below its header."""
    header, _, *rows = (line[2:-2].split(" | ") for line in lines)
    pd.DataFrame(rows, columns=header).to_csv(path, index=False, lineterminator="\n")


def main():
    if not atlas.all_have_run():
        arguments.fail("the atlas has not ended: expected the runs of all tasks in blocks/")
    table = reading.load(experiment.DATASET)
    runs = table[table["experiment"].str.split().map(lambda words: "atlas" in words)]
    PAGE.write_text(filled(PAGE.read_text(), runs))
    every = atlas.atlas(runs)[0]
    for name, file in FILES.items():
        write_file(atlas.HERE / file, TABLES[name](every, runs))
    by_budget = pd.DataFrame(after.by_budget(every, runs))
    by_budget.to_csv(atlas.HERE / "by_budget.csv", index=False, lineterminator="\n")


if __name__ == "__main__":
    main()
