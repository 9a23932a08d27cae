"""The experiments of results/: their runs, and the claims that rest on them.

`load("map")` is the module results/map/claims.py. It has

    VARIES                 the columns that tell its configurations apart
    FIXED                  what its runs have in place of ARGUMENTS: {argument: value, or a tuple of several}
    GROWS                  True if results/NAME/scores.csv has its runs, and grows while they go on (optional)
    ALSO                   experiments whose runs with the same fixed arguments count too (optional)
    arguments(run, runs)   the arguments of a run, or None for one that does not count (optional)
    measure(run)           further columns of its runs: {name: number} (optional)
    rows(folder)           its runs, where its program writes tables of its own: dicts of columns (optional)
    table(runs)            its runs as its claims read them: with other columns, or without some rows (optional)
    BASE                   the values of the configuration that others are compared with (optional)
    claims(scores)         its Claims
    draw(scores)           its picture, scores.png, or several by name (optional)
    FIGURE, IQM, also(runs, out), sheets(suite)  what figures.py draws of the sweep with its name (sweeps.py; optional)

All runs are in one table, results/runs.csv.gz (docs/data.md). Final scores are read from there and nowhere else.
"""

from launching.root import ROOT

import gzip
import importlib.util
import io

import pandas as pd

from analysis import training_runs
from analysis.scores import Scores
from support import arguments, catalog, reading, recipe

RESULTS = ROOT / "results"
DATASET = RESULTS / "runs.csv.gz"
EARLIER = "earlier_runs.csv.gz"  # beside it: the runs that a later study made again with the same setting and seed
SETTING = (  # these columns, what a study varies, the script, the task and the seed tell all runs of the table apart
    *("num_envs", "num_steps", "minibatch_size", "update_epochs", "learning_rate", "anneal_lr", "schedule", "prox_com"),
    *("mask_resets", "total_timesteps", "com_before", "hidden_sizes", "change", "bf16", "program"),
    *("study", "arm", "stagger_resets"),
)
REPS = 4000  # bootstrap draws
SMALLEST_EFFECT = 0.05  # difference of scores
ARGUMENTS = {  # what an experiment may set: ppo_envpool.py's defaults, but for the steps and CleanRL's rate
    "num_envs": 8,
    "num_steps": 128,
    "num_minibatches": 4,
    "update_epochs": 4,
    "learning_rate": 2.5e-4,
    "anneal_lr": True,
    "schedule": "",
    "prox_com": None,
    "mask_resets": True,
    "total_timesteps": 100_000,
}
INTEGERS = [*("num_envs", "num_steps", "minibatch_size", "num_minibatches", "update_epochs"), "total_timesteps", "seed"]


# ---- the table of runs -----------------------------------------------------------------------------------------------
def load(name):
    """The module results/NAME/claims.py; its `name` is NAME."""
    path = RESULTS / name / "claims.py"
    if not path.exists():
        known = sorted(path.parent.name for path in RESULTS.glob("*/claims.py"))
        arguments.fail(f"{name} is no experiment of results/: expected one of {', '.join(known)}")
    spec = importlib.util.spec_from_file_location(f"results.{name}.claims", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.name = name
    return module


def read_dataset(path):
    """All runs of the studies: the table at a path, in which a setting and seed has one run, and the EARLIER ones."""
    tables = [reading.load(one) for one in (path, path.with_name(EARLIER)) if one.is_file()]
    table = reading.without_none(pd.concat(tables))
    return table.sort_values("experiment", kind="stable", ignore_index=True)


def write_dataset(table, path):
    """Writes all runs of the studies as read_dataset reads them. Of equal settings and seeds the latest run counts."""
    varied = {name for path in RESULTS.glob("*/claims.py") for name in load(path.parent.name).VARIES}
    keys = ["script", "game", "seed", *(name for name in {*SETTING, *varied} if name in table)]
    latest = ~table.sort_values("start", kind="stable").duplicated(keys, keep="last").sort_index()
    _write_table(table[latest], path)
    if not latest.all():
        _write_table(table[~latest], path.with_name(EARLIER))


def _write_table(table, path):
    """Writes a table of runs, without a name or a time in the file: the same runs give the same bytes."""
    content = io.BytesIO()
    with gzip.GzipFile("", "wb", 9, content, mtime=0) as file:
        file.write(table.to_csv(index=False, lineterminator="\n").encode())
    reading.write_atomically(path, content.getvalue())


def allowed(value):
    """The values of an argument of FIXED or ARGUMENTS, a tuple; the first is that of a table without its column."""
    return value if isinstance(value, tuple) else (value,)


def keys_of(code):
    """The columns that tell the runs of an experiment apart."""
    return ["game", "seed", *code.VARIES]


def collect(code, runs_dir):
    """The rows, dicts, of an experiment's finished runs below a directory that have evaluation episodes, sorted."""
    rows = []
    runs, unread = training_runs.read_runs(runs_dir)
    for line in unread:
        print(line)
    for run in runs:
        given = code.arguments(run, runs) if hasattr(code, "arguments") else run.arguments
        if given is None:
            continue
        if not run.evaluated:
            why = f"diverged at step {run.diverged_at:,}" if run.diverged else "no evaluation episodes"
            print(f"! {run.name}: {why}: left out")
            continue
        for name, value in {**ARGUMENTS, **code.FIXED}.items():
            right = [one or "" for one in allowed(value)]
            if name not in (*code.VARIES, "num_minibatches") and (given.get(name) or "") not in right:
                arguments.fail(f"{runs_dir / run.name} has {name} = {given.get(name)}: expected {value}")
        row = reading.row_of(reading.Files(run.manifest, run.done, {}, run.state), run.curves, run.name)
        row = {name: given.get(name, row[name]) for name in reading.COLUMNS}
        row |= {"experiment": code.name, **{name: given[name] for name in code.VARIES}}
        rows.append({**row, **(code.measure(run) if hasattr(code, "measure") else {})})
    if not rows:
        arguments.fail(f"--runs {runs_dir}: expected finished runs with evaluation episodes")
    return sorted(rows, key=lambda row: [row[key] for key in keys_of(code)])


def merge(table, rows, code, replace=False):
    """The table with rows of an experiment in place of those that they repeat; replace: of all that it has."""
    keys, name, kept = keys_of(code), code.name, []
    new = {tuple(row[key] for key in keys) for row in rows}
    for row in table.to_dict("records"):
        experiments = row["experiment"].split()
        if name in experiments and (replace or tuple(row[key] for key in keys) in new):
            experiments.remove(name)
        if experiments:
            kept.append({**row, "experiment": " ".join(experiments)})
    columns = dict.fromkeys([*table.columns, *(column for row in rows for column in row)])
    together = sorted([*kept, *rows], key=lambda row: row["experiment"])
    return reading.without_none(pd.DataFrame(together, columns=list(columns)))


def own_rows(code, folder):
    """The rows of an experiment whose program writes tables of its own into a folder; [] if it has none."""
    rows = code.rows(folder) if hasattr(code, "rows") else []
    if getattr(code, "GROWS", False) and (folder / "scores.csv").exists():
        rows = read(code, folder / "scores.csv").rename(columns={"steps": "global_step"}).to_dict("records")
        for row in rows:
            row |= {"env_id": catalog.small_ids()[row["game"]], "script": "ppo_envpool"}
            row["num_minibatches"] = row["num_envs"] * row["num_steps"] // row["minibatch_size"]
            updates = row["update_epochs"] * row["num_minibatches"]
            row["gradient_steps"] = recipe.schedule_of(row).iterations(0) * updates
    return [{**dict.fromkeys(reading.COLUMNS), "experiment": code.name, "state": "done", **row} for row in rows]


def runs_of(code, table):
    """An experiment's runs in the table of all, each once: its own, and those of ALSO with the same FIXED.

    Columns of whole numbers are integers again, which they are not in a table where one run lacks them.
    """
    experiments = table["experiment"].str.split()
    names = (code.name, *getattr(code, "ALSO", ()))
    table = pd.concat([table[[name in words for words in experiments]] for name in names], ignore_index=True)
    if table.empty:
        arguments.fail(f"{code.name} has no runs in the table: expected --runs")
    expected = {**({} if hasattr(code, "rows") else ARGUMENTS), **code.FIXED}
    if "minibatch_size" not in expected and "num_minibatches" in expected:
        expected["minibatch_size"] = table["num_envs"] * table["num_steps"] // expected["num_minibatches"]
    same = pd.Series(True, table.index)
    for name, value in expected.items():
        if name not in (*code.VARIES, "num_minibatches"):
            if value is None:
                same &= table[name].isna()
            else:
                same &= table[name].isin(value) if isinstance(value, tuple) else table[name] == value
    table = table[same].drop_duplicates(keys_of(code)).reset_index(drop=True)
    table = table.astype({name: int for name in INTEGERS if table[name].notna().all()})
    return code.table(table) if hasattr(code, "table") else table


def scores_of(code, runs, folder=None):
    """The Scores of an experiment's runs (runs_of). folder: where its other files are."""
    return Scores(runs, code.VARIES, folder, getattr(code, "BASE", None))


# ---- scores.csv of a growing experiment ------------------------------------------------------------------------------
def grow(code, rows, path):
    """Writes the scores.csv of an experiment that GROWS: its rows, and the old ones whose directories are gone."""
    keys = keys_of(code)
    several = [name for name, value in code.FIXED.items() if len(allowed(value)) > 1]
    new = [
        {
            **{key: row[key] for key in [*keys, *several]},
            "steps": row["global_step"],
            "final_return": round(row["final_return"], 4),
            **{name: row[name] for name in ("score", "half_return", "mean_return", *reading.SECOND_HALF, "start")},
            "commit": (row["commit"] or "")[:7],
        }
        for row in rows
    ]
    if path.exists():
        known = {tuple(row[key] for key in keys) for row in new}
        old = pd.read_csv(path, keep_default_na=False)
        for name in several:
            if name not in old:
                old.insert(len(keys), name, code.FIXED[name][0])
        new += [row for row in old.to_dict("records") if tuple(row[key] for key in keys) not in known]
    write_csv(pd.DataFrame(sorted(new, key=lambda row: [row[key] for key in keys])), path)


def read(code, path):
    """scores.csv with a column for each of ARGUMENTS and `minibatch_size`, in rows."""
    table = pd.read_csv(path, dtype={"start": str, "commit": str})
    for name, value in {**ARGUMENTS, **code.FIXED}.items():
        if name not in table:
            table[name] = allowed(value)[0]
    if "minibatch_size" not in table:
        table["minibatch_size"] = table["num_envs"] * table["num_steps"] // table["num_minibatches"]
    return table


def write_csv(table, path):
    table.to_csv(path, index=False, lineterminator="\n")
