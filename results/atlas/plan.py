"""The runs that the atlas still needs, and what they have given: sweeps/atlas.sh asks for both.

    python results/atlas/plan.py pilot             # the pilots that are missing: TASK N T RATE SEED STEPS, one per line
    python results/atlas/plan.py tasks             # the forty tasks, in the order in which they run
    python results/atlas/plan.py choose TASK       # step 1: the runs that choose, as above
    python results/atlas/plan.py judge TASK        # step 2: those that test, once step 1 has chosen: six seeds
    python results/atlas/plan.py more TASK         # the other four seeds of step 2, as the hours allow
    python results/atlas/plan.py repeat TASK       # of five tasks drawn at random: those of step 2 with fresh seeds
    python results/atlas/plan.py take --runs runs/atlas     # adds what has ended to blocks/TASK.csv and to pilot.csv

The design is in results/CLAIMS.md. budgets.csv is what the pilots have said: `pilot` writes it once all places are
filled. left_out.csv names the tasks with a run that has failed twice, and its last line: they get no further runs.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT  # noqa: F401

import itertools
import random
from dataclasses import dataclass
from typing import Literal, Optional

import claims
import numpy as np
import pandas as pd
from analysis import training_runs
from claims import BUDGETS, CHOOSING, FEWEST, N_BY_TS, PILOT_SEEDS, RATES, REPEATING, TESTING, table_of, tasks
from tyro.conf import Positional

from support import arguments, reading

HERE = Path(__file__).resolve().parent
PILOT = ((16, 64, 1e-3), (16, 64, 4e-3))  # N, T and learning rate
REPEATED = 5  # tasks whose tested settings run again
KEYS = ["num_envs", "num_steps", "learning_rate", "seed", "total_timesteps"]
FIRST = ("experiment", "script", "state", "env_id", "game", *KEYS)  # columns of a block


@dataclass
class Args:
    what: Positional[Literal["pilot", "tasks", "choose", "judge", "more", "repeat", "take"]]  # see above
    task: Positional[str] = ""  # of choose, judge, more and repeat
    runs: Optional[Path] = None  # of take: the run directories


def write(rows, name):
    (HERE / name).parent.mkdir(exist_ok=True)
    pd.DataFrame(rows).to_csv(HERE / name, index=False, lineterminator="\n")


def left_out():
    """{task: why} of the tasks with a run that failed."""
    failures = table_of("left_out.csv")
    return {} if failures is None else dict(zip(failures["task"], failures["why"]))


def missing(task, settings, steps):
    """Those of (N, T, rate, seed) that have no run in a task's block: tuples (task, N, T, rate, seed, steps)."""
    if task in left_out():
        return []
    block = table_of(f"blocks/{task}.csv")
    there = set() if block is None else {tuple(map(float, row)) for row in block[KEYS].to_numpy()}
    return [(task, *setting, steps) for setting in settings if (*map(float, setting), float(steps)) not in there]


# ---- pilot -----------------------------------------------------------------------------------------------------------
def pilots():
    """The pilots that are missing; none once every place has a task that rises. Then budgets.csv is written.

    A task that does not rise gives its place to the next of its family; where a family has none left, to the next of
    the families before MiniGrid, in their order.
    """
    todo, rows = [], []
    tasks = table_of("tasks.csv")
    left = {family: list(names["task"]) for family, names in tasks.groupby("family", sort=False)}
    places = tasks.groupby("family", sort=False)["place"].sum()
    spare = [family for family in left if family not in ("MiniGrid", "BabyAI")]
    for family, number in places.items():
        for _ in range(number):
            while True:
                source = next((name for name in (family, *spare) if left[name]), None)
                if source is None:
                    break
                task = left[source].pop(0)
                runs = missing(task, [(*setting, seed) for setting in PILOT for seed in PILOT_SEEDS], BUDGETS[-1])
                if runs:
                    todo += runs
                    break
                found = {"task": task, "family": source, "place_of": family, **budget(task)}
                rows.append(found)
                if found["rises"]:
                    break
    if not todo:
        write(rows, "budgets.csv")
    return todo


def budget(task):
    """What the pilots of a task say: whether it rises, its budget, the best return that they saw, and of which rate."""
    known = table_of("random.csv").set_index("task").loc[task]
    curves = table_of("pilot.csv")
    curves = (
        curves[curves["task"] == task].set_index(["learning_rate", "steps", "seed"])["episodic_return"].sort_index()
    )
    means = curves.groupby(level=[0, 1]).mean()  # a rate without a finished episode is missing
    if means.empty or task in left_out():
        return {"rises": False, "left_out": left_out().get(task, "no episode has ended")}
    best, (rate, at) = means.max(), means.idxmax()
    error = known["deviation"] / 100**0.5
    rises = bool((curves.loc[rate, at] > known["random"] + 3 * error).all())
    by_budget = means.groupby(level=1).max()
    half = by_budget[by_budget >= (known["random"] + best) / 2]
    reached = int(half.index.min()) if len(half) else None  # None: the best is below random play
    return {"rises": rises, "budget": reached, "best": best, "best_rate": rate, "best_at": int(at)}


# ---- steps 1 and 2 ---------------------------------------------------------------------------------------------------
def choosing(task):
    settings = [(*n_by_t, rate, seed) for n_by_t, rate, seed in itertools.product(N_BY_TS, RATES, CHOOSING)]
    return missing(task, settings, tasks()[task])


def testing(task, seeds=TESTING[:FEWEST]):
    if choosing(task):
        arguments.fail(f"{task}: step 1 has not ended: expected `plan.py choose {task}` to print nothing")
    settings = claims.settings_of(claims.returns_of(table_of(f"blocks/{task}.csv"), task, CHOOSING))
    return missing(task, [(*setting, seed) for setting in settings.tested for seed in seeds], tasks()[task])


def repeated():
    """Five tasks, drawn with seed 0 from the sorted names."""
    return random.Random(0).sample(sorted(tasks()), REPEATED)


# ---- what has run ----------------------------------------------------------------------------------------------------
def take(root):
    """Adds the runs below a directory that are done or have diverged to the blocks of their tasks."""
    runs, unread = training_runs.read_runs(root)
    print(*unread, sep="\n" if unread else "", end="\n" * bool(unread))
    blocks, curves, failed = {}, {}, left_out()
    for run in runs:
        if run.state == "failed":
            failed.setdefault(run.arguments["env_id"], f"{run.name}: {run.failure}")
        if not (run.evaluated or run.diverged):
            continue
        row = reading.row_of(reading.Files(run.manifest, run.done, {}, run.state), run.curves, run.name)
        row = {name: row[name] for name in (*FIRST, *(x for x in reading.COLUMNS if x not in (*FIRST, "run")))}
        row |= {"experiment": "atlas", "commit": (row["commit"] or "")[:7]}
        blocks.setdefault(row["env_id"], []).append(row)
        if row["seed"] in PILOT_SEEDS:
            key = {"task": row["env_id"], "learning_rate": row["learning_rate"], "seed": row["seed"]}
            steps, returns = run.curve(training_runs.RETURN)
            for at in BUDGETS if len(steps) else ():
                value = float(returns[np.abs(steps - at).argmin()])  # the point nearest to the budget
                curves[(*key.values(), at)] = {**key, "steps": at, "episodic_return": float(f"{value:.6g}")}
    if failed:
        write([{"task": task, "why": why} for task, why in failed.items()], "left_out.csv")
    for task, rows in blocks.items():
        old = table_of(f"blocks/{task}.csv")
        both = {}
        for row in [*([] if old is None else old.to_dict("records")), *rows]:
            both[tuple(float(row[key]) for key in KEYS)] = row
        write([both[key] for key in sorted(both)], f"blocks/{task}.csv")
    old = table_of("pilot.csv")
    for row in [] if old is None else old.to_dict("records"):
        curves.setdefault((row["task"], row["learning_rate"], row["seed"], row["steps"]), row)
    if curves:
        write([curves[key] for key in sorted(curves)], "pilot.csv")


PLANS = {
    "choose": choosing,
    "judge": testing,
    "more": lambda task: testing(task, TESTING),
    "repeat": lambda task: testing(task, REPEATING) if task in repeated() else [],
}


def main(args):
    if (args.what in PLANS) != bool(args.task):
        arguments.fail(f"{args.what} {args.task}".strip() + f": expected a TASK with {', '.join(PLANS)} only")
    if args.what in (*PLANS, "tasks") and tasks() is None:
        arguments.fail("budgets.csv is missing: expected all pilots, `bash sweeps/atlas.sh`")
    if args.task and args.task not in tasks():
        arguments.fail(f"{args.task} is none of the forty tasks: expected one that `plan.py tasks` prints")
    if args.what == "take":
        if args.runs is None or not args.runs.is_dir():
            arguments.fail(f"--runs {args.runs}: expected a directory with runs")
        return take(args.runs)
    if args.what == "tasks":
        return print(*tasks(), sep="\n")
    for task, n, t, rate, seed, steps in PLANS[args.what](args.task) if args.task else pilots():
        print(task, n, t, f"{rate:g}", seed, steps)


if __name__ == "__main__":
    main(arguments.parse(Args, sys.argv[1:], __doc__))
