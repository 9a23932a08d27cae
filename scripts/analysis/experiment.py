"""The experiments of results/: their runs, and the claims that rest on them.

`load("map")` is the module results/map/claims.py. It has

    VARIES                 the columns that tell its configurations apart
    FIXED                  what its runs have in place of ARGUMENTS: {argument: value, or a tuple of several}
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
from support import arguments, reading

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


def keys_of(code):
    """The columns that tell the runs of an experiment apart."""
    return ["game", "seed", *code.VARIES]


def fixed(code):
    """{argument: the values, a tuple, that the runs of an experiment may have}."""
    expected = {**({} if hasattr(code, "rows") else ARGUMENTS), **code.FIXED}
    if "minibatch_size" in (*code.VARIES, *code.FIXED):  # the number follows
        expected.pop("num_minibatches", None)
    values = {name: value if isinstance(value, tuple) else (value,) for name, value in expected.items()}
    return {name: some for name, some in values.items() if name not in code.VARIES}


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
        for name, values in fixed(code).items():
            if (given.get(name) or "") not in [value or "" for value in values]:
                words = f"{runs_dir / run.name} has {name} = {given.get(name)}"
                arguments.fail(f"{words}: expected {' or '.join(map(str, values))}")
        row = {name: given.get(name, value) for name, value in run.row.items()}
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
    same = pd.Series(True, table.index)
    for name, values in fixed(code).items():
        same &= table[name].isin(values) | (table[name].isna() & (None in values))
    table = table[same].drop_duplicates(keys_of(code)).reset_index(drop=True)
    table = table.astype({name: int for name in INTEGERS if table[name].notna().all()})
    return code.table(table) if hasattr(code, "table") else table


def scores_of(code, runs, folder=None):
    """The Scores of an experiment's runs (runs_of). folder: where its other files are."""
    return Scores(runs, code.VARIES, folder, getattr(code, "BASE", None))


def write_csv(table, path):
    table.to_csv(path, index=False, lineterminator="\n")
