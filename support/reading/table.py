"""All runs as a table: a row per run, and a row per point of their curves. Python 3.8, for Isaac Gym."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import Any, Dict, Mapping, Tuple, Union

from support import catalog
from support.reading.curves import MISSING, read_table, to_curves
from support.reading.files import Files, find_runs, lost_runs, read_files, shown
from support.reading.manifests import script_of

NUMBERS = ("wall_seconds", "sps", "episodic_return", "final_return", "final_episodes")  # in done.json
RESULTS = (*NUMBERS, "final_return_low", "final_return_high")
SECOND_HALF = {  # columns of `load` that are means over a run's points in its second half, and their tags
    "length": "charts/episodic_length",
    "noise_scale": "outer/grad_noise_scale",
    **{
        name: f"probe/{name}"
        for name in (
            "feature_rank",
            "dormant_neurons",
            "weight_norm",
            "gradient_kurtosis",
            "policy_variance",
            "ess",
        )
    },
}
TEXTS = ("run", "experiment", "script", "state", "env_id", "game", "schedule", "start", "commit")  # in COLUMNS
COLUMNS = (  # a table of runs has them, from a directory or a file; docs/data.md explains them
    *TEXTS[:6],
    *("num_envs", "num_steps", "minibatch_size", "num_minibatches", "update_epochs", "learning_rate", "anneal_lr"),
    *("schedule", "prox_com", "mask_resets", "total_timesteps", "seed", "global_step", "start", "commit"),
    *RESULTS,
    *("score", "half_return", "mean_return", "gradient_steps"),
    *SECOND_HALF,
)
COMPUTED = COLUMNS[COLUMNS.index("start") :]  # no argument of a run can stand there


def load(path: Union[str, Path], curves: bool = False) -> Any:
    """The runs below a directory, or those in a file such as results/runs.csv.gz, as a pandas DataFrame, a row a run.

    Both have COLUMNS, in this order; docs/data.md says what they are. Behind them a directory has the other arguments
    of the manifests under their own names (lists as on a command line: "64 64"), a file what else it has. A missing
    number is NaN, a missing text "". What `to_csv` writes of a directory's table is read as the same table.

    With `curves` returns two tables: that one, and the rows of all curves.csv below the directory, with the columns
    `run`, `step`, `wall_time` and the tags. A run with a broken file is left out, and named in a line on stderr.
    FileNotFoundError if there is no such path, ValueError if a file has other columns.
    """
    import pandas as pd

    root = Path(path)
    if root.is_file() and not curves:
        runs = pd.read_csv(root, dtype=dict.fromkeys(TEXTS, str), float_precision="round_trip", low_memory=False)
        if tuple(runs.columns[: len(COLUMNS)]) != COLUMNS:
            raise ValueError(f"{root} is no table of runs: expected the columns that docs/data.md lists, in its order")
        return without_none(runs)
    if not root.is_dir():
        raise FileNotFoundError(
            f"{root} is no directory: expected one with runs below it, or a file with a table of runs"
        )
    rows, tables = [], []
    for link in lost_runs(root):
        print(
            f"note: {shown(link)} is left out: a link to {os.readlink(link)}, which has been deleted", file=sys.stderr
        )
    for run_dir in find_runs(root):
        try:
            name, table = shown(run_dir.relative_to(root)), read_table(run_dir)
            rows.append(row_of(read_files(run_dir), to_curves(*table), name))
        except (OSError, ValueError) as error:
            print(f"note: {shown(run_dir)} is left out: {error}", file=sys.stderr)
            continue
        if curves:
            tags, steps, values = table
            values[values == float(MISSING)] = float("nan")
            points = pd.DataFrame(values, columns=["wall_time", *tags])
            points.insert(0, "step", steps)
            points.insert(0, "run", name)
            tables.append(points)
    runs = without_none(pd.DataFrame(rows, columns=None if rows else COLUMNS))
    if not curves:
        return runs
    empty = pd.DataFrame(columns=["run", "step", "wall_time"])
    points = pd.concat([table for table in tables if len(table)] or [empty], ignore_index=True)
    return runs, points.astype(dict.fromkeys(points.columns[3:], "float32"))


def row_of(files: Files, curves: Mapping[str, Tuple[Any, Any]], name: str) -> Dict[str, Any]:
    """A run's row in the table of `load`. curves: as of `read_curves`; name: the directory, below that of all runs."""
    manifest, done, _, word = files
    arguments: Dict[str, Any] = manifest["arguments"]
    given = {name: " ".join(map(str, x)) if isinstance(x, list) else x for name, x in arguments.items()}
    numbers = {key: done[key] for key in NUMBERS if done.get(key) is not None}
    if done.get("final_return_ci"):
        numbers["final_return_low"], numbers["final_return_high"] = done["final_return_ci"]
    script, env_id = script_of(manifest), given.get("env_id")
    steps = max((int(steps[-1]) for steps, _ in curves.values()), default=0)
    row = {
        **dict.fromkeys(COLUMNS),
        **given,
        **dict.fromkeys(COMPUTED),
        "run": name,
        "experiment": str(Path(name).parent) if "/" in name else "",
        "script": script,
        "state": word,
        "game": catalog.task_name(str(env_id)),
        "global_step": done.get("global_step", steps),
        "start": manifest.get("start"),
        "commit": manifest.get("git", {}).get("commit"),
        **numbers,
    }
    scale = catalog.scale(str(script), catalog.procgen_mode({**given, "env_id": str(env_id)}))
    if scale and row["game"] in scale.returns and "final_return" in numbers:
        zero, one = scale.returns[str(row["game"])]
        row["score"] = round((numbers["final_return"] - zero) / (one - zero), 5)
    return {**row, **_summary(curves, arguments.get("total_timesteps", math.nan), bool(done))}


def _summary(curves: Mapping[str, Tuple[Any, Any]], budget: float, finished: bool) -> Dict[str, float]:
    """What the curves of a run say in one number each; all but the gradient steps only of a finished run."""
    import numpy as np

    def points(tag: str, last: float = math.inf, after: float = -math.inf) -> Any:
        """The finite values of a tag with after < step <= last, float64."""
        steps, values = curves.get(tag, (np.zeros(0), np.zeros(0)))
        return values[np.isfinite(values) & (steps > after) & (steps <= last)].astype(float)

    found, half = {"gradient_steps": points("charts/gradient_steps")[-1:]}, 0.5 * budget
    if finished:
        found["half_return"] = points("charts/episodic_return", last=half)[-1:].round(4)
        found["mean_return"] = points("charts/episodic_return")
        found.update((name, points(tag, after=half)) for name, tag in SECOND_HALF.items())
    digits = {"gradient_steps": ".0f", "half_return": ".4f"}
    return {name: float(f"{x.mean():{digits.get(name, '.6g')}}") for name, x in found.items() if len(x)}


def without_none(runs: Any) -> Any:
    """The table with "" in place of each missing text, and NaN of each missing number or truth value."""
    import pandas as pd

    for name in runs:
        if not pd.api.types.is_numeric_dtype(runs[name]):
            text = name in TEXTS or runs[name].map(lambda value: isinstance(value, str)).any()
            missing = "" if text else float("nan")
            runs[name] = [missing if pd.isna(value) else value for value in runs[name]]
    return runs
