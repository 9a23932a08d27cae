"""Run directories read again, for everything in scripts/ and for a run that resumes.

Nothing here imports torch, tensorboard or NumPy before a function needs it, so that a program that only reads starts at
once. Python 3.8, for Isaac Gym.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import fcntl
import functools
import io
import json
import math
import os
import re
import shlex
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple, Union

from support import catalog, recipe
from support.arguments import PACK, PLACE, fail
from support.tags import is_final_card

CURVES = "curves.csv"
NUMBERS = ("global_step", "wall_seconds", "sps", "episodic_return", "final_return", "final_episodes")  # in done.json
RESULTS = (*NUMBERS[1:], "final_return_low", "final_return_high")
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
MISSING = b"1e39"  # what an empty cell is read as: no float32 number is as large
FORMAT = 3  # the version of checkpoint.pt; raised when an older one can no longer be resumed


def write_atomically(path: Path, data: bytes, previous: Optional[Path] = None, writer: str = "") -> None:
    """Writes a file so that a reader, or a crash at any time, finds the old content or the new, never a part.

    `previous`: where the old file is kept. `writer`: a name, where several programs may write the file at a time.
    """
    partial = path.with_name(f".{path.name}{writer}.partial")  # hidden from globs and from TensorBoard
    try:
        with open(partial, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:  # a full disk: give the room back
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    if previous and path.exists():
        os.replace(path, previous)
    os.replace(partial, path)


# ---- reading run directories -----------------------------------------------------------------------------------------
def find_runs(root: Path) -> List[Path]:
    """Every run directory at any depth below `root`, sorted, each once. Follows links, but never in a circle."""
    seen, found = set(), []
    for folder, below, files in os.walk(root, followlinks=True):
        real = os.path.realpath(folder)
        below[:] = sorted(name for name in below if not name.startswith(".")) if real not in seen else []
        if real not in seen and "manifest.json" in files:
            found.append(Path(folder))
        seen.add(real)
    return sorted(found)


def lost_runs(root: Path) -> List[Path]:
    """Every link below `root` that leads nowhere, sorted: to a run whose sweep has been deleted."""
    found = []
    for folder, below, files in os.walk(root):
        below[:] = [] if "manifest.json" in files else [name for name in below if not name.startswith(".")]
        found += [Path(folder, name) for name in files if not os.path.exists(os.path.join(folder, name))]
    return sorted(found)


def read_json(path: Path) -> Dict[str, Any]:
    """The object in a JSON file; {} if there is none that can be read."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


class Files(NamedTuple):
    """The JSON files of a run, {} for each that it has not, and its state in the words of `state`."""

    manifest: Dict[str, Any]
    done: Dict[str, Any]
    failed: Dict[str, Any]
    state: str


def read_files(run_dir: Path) -> Files:
    """The Files of a run directory. ValueError, which names the file, if one is not as a run writes it."""
    contents = {}
    for name in ("manifest", "done", "failed"):
        try:
            contents[name] = content = json.loads((run_dir / f"{name}.json").read_text())
        except FileNotFoundError:
            contents[name] = content = {}
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{name}.json: {error}") from None
        if not isinstance(content, dict):
            raise ValueError(f"{name}.json: expected an object")
        _numbers(name, content)
    if not isinstance(contents["manifest"].get("arguments"), dict):
        raise ValueError("manifest.json: not that of a run")
    parent = contents["manifest"].get("parent", {"global_step": 0})
    if not isinstance(parent, dict) or type(parent.get("global_step")) is not int:
        raise ValueError(f"manifest.json: parent is {parent!r}, expected its run and its global_step")
    return Files(**contents, state=state(run_dir))


def _numbers(name: str, content: Dict[str, Any]) -> Dict[str, float]:
    """NUMBERS of name.json, as far as it has them, and the ends of the interval. ValueError if one is no number."""
    found = {key: content[key] for key in NUMBERS if content.get(key) is not None}
    interval = content.get("final_return_ci")
    if interval is not None:
        if not isinstance(interval, list) or len(interval) != 2:
            raise ValueError(f"{name}.json: final_return_ci is {interval!r}, expected two numbers")
        found["final_return_low"], found["final_return_high"] = interval
    for key, value in found.items():
        if type(value) not in (int, float):
            raise ValueError(f"{name}.json: {key} is {value!r}, expected a number")
    return found


def script_of(manifest: Dict[str, Any]) -> Optional[str]:
    """The name of the script that a manifest's command ran, without .py; None if it names none."""
    try:
        words = shlex.split(str(manifest.get("command", "")))
    except ValueError:
        return None
    return next((Path(word).stem for word in words if word.endswith(".py")), None)


@functools.lru_cache(maxsize=None)
def default_arguments(script: str, env_id: str = "") -> Dict[str, Any]:
    """The defaults of a script's Args, and what recipe.py changes for `env_id`, read without importing anything.

    `script`: the path of the file; {} if it is missing. Whether the actions of a task `gymnasium:MODULE:ID` are real
    numbers is not known here: its defaults are those of other actions.
    """
    values: Dict[str, Any] = {}
    for node in ast.parse(Path(script).read_text()).body if Path(script).exists() else []:
        if isinstance(node, ast.ClassDef) and node.name == "Args":
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and field.value is not None:
                    with contextlib.suppress(ValueError):  # not a literal: exp_name
                        values[field.target.id] = ast.literal_eval(field.value)  # type: ignore[union-attr]
    if Path(script).stem == "ppo_isaacgym":
        values.update(recipe.task_defaults(env_id))
    elif Path(script).stem == "ppo_envpool":
        values.update(recipe.CONTINUOUS if env_id in catalog.CONTINUOUS else {})
    return values


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first argument of `now` that had another value `before`, as "--gamma 0.5, not 0.99"; "" if there is none.

    Arguments that only one of them has do not count, nor those of PLACE and PACK. A list is as on a command line.
    """
    for name in sorted(now.keys() & before.keys() - PLACE - PACK):
        old, new = (
            " ".join(map(str, value)) if isinstance(value, (list, tuple)) else value
            for value in (before[name], now[name])
        )
        if old != new and str(old) != str(new):
            return f"--{name.replace('_', '-')} {old}, not {new}"
    return ""


def checkpoints(run_dir: Path) -> List[Path]:
    """The checkpoints of a run that exist, newest first."""
    return [path for path in (run_dir / "checkpoint.pt", run_dir / "checkpoint.prev.pt") if path.exists()]


def try_to_load(path: Path, device: Any) -> Optional[Dict[str, Any]]:
    """The content of a checkpoint file, or None after a note if it is not whole.

    Exits 2 with one line if the disk, its permissions or the memory are in the way: the file may be whole.
    """
    import torch

    try:
        content = torch.load(path, map_location=device, weights_only=True)
        if isinstance(content, dict):
            return content
        error: Exception = TypeError("no checkpoint")
    except Exception as caught:  # a file that is not whole breaks in many ways
        error = caught
    if isinstance(error, (OSError, MemoryError)) or "alloc" in str(error):  # torch raises RuntimeError without memory
        fail(f"{path} cannot be read ({error}): the same command resumes from it once it can")
    print(f"note: {path} cannot be read ({type(error).__name__})", file=sys.stderr)
    return None


def newest_checkpoint(run_dir: Path) -> Optional[Tuple[Path, Dict[str, Any]]]:
    """The newest checkpoint of a run that is whole, and its content, on the CPU; None if the run has none.

    Exits 2 with one line if there are checkpoints, and none is whole or of this format.
    """
    found = checkpoints(run_dir)
    for path in found:
        checkpoint = try_to_load(path, "cpu")
        if checkpoint is not None:
            check_format(path, checkpoint)
            return path, checkpoint
    if found:
        names = " and ".join(path.name for path in found)
        fail(f"{run_dir}: {names} cannot be read: expected a copy of one; to begin anew, delete the directory")
    return None


def check_format(path: Path, checkpoint: Dict[str, Any]) -> None:
    """Exits 2 with one line if a checkpoint was written in another format."""
    found = checkpoint.get("format", 1)
    if found != FORMAT:
        commit = (read_json(path.parent / "manifest.json").get("git") or {}).get("commit")
        fail(
            f"{path} has format {found}, this version reads {FORMAT}: continue it with the code that began it"
            + (f" (commit {commit})" if commit else "")
            + ", or choose another --run-name"
        )


def load_checkpoint(path: Path, device: Any) -> Dict[str, Any]:
    """The content of a checkpoint file that is known to be whole."""
    checkpoint = try_to_load(path, device)
    if checkpoint is None:
        fail(f"{path} cannot be read")
    check_format(path, checkpoint)
    return checkpoint


def is_locked(path: Path) -> bool:
    """Whether a live process holds a lock on the file."""
    try:
        with open(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def is_alive(run_dir: Path) -> bool:
    """Whether a process works on the run, started by launch.py (which locks the log) or by hand (`.lock`)."""
    return is_locked(run_dir / "log.txt") or is_locked(run_dir / ".lock")


def log_end(run_dir: Path) -> Tuple[str, Optional[int]]:
    """The last line that the run wrote to log.txt, and the exit code of its last attempt (None: it has not ended)."""
    try:
        lines = (run_dir / "log.txt").read_bytes()[-65536:].decode(errors="replace").replace("\r", "\n").split("\n")
    except OSError:
        return "", None
    lines = [line.strip() for line in lines if line.strip()]
    code = re.fullmatch(r"\[launch .*\] exit code (-?\d+)", lines[-1]) if lines else None
    written = [line for line in lines if not re.match(r"\[launch |srun: error: .* Exited with exit code", line)]
    return (written[-1] if written else "no output"), int(code[1]) if code else None


def is_done(run_dir: Path) -> bool:
    """Whether the run is finished: its done.json is there and whole."""
    try:
        return isinstance(json.loads((run_dir / "done.json").read_text()), dict)
    except (OSError, ValueError, RecursionError):
        return False


def state(run_dir: Path) -> str:
    """done, running, diverged, failed, stale (begun, not done, not alive: the next launch resumes it) or missing."""
    if is_done(run_dir):
        return "done"
    if is_alive(run_dir):
        return "running"
    if (run_dir / "failed.json").exists():
        return "diverged"
    if log_end(run_dir)[1] not in (None, 0, 130, 143):
        return "failed"
    return "stale" if (run_dir / "manifest.json").exists() else "missing"


# ---- curves ----------------------------------------------------------------------------------------------------------
# curves.csv has the columns step and wall_time (seconds since 1970), then the tags in the order in which they appeared,
# and a row for each log point: float32 numbers as %.9g, which is exact; nan and inf as such; missing is empty. A last
# line without newline is what kill -9 has left of a row: it does not count.
class CurvesFile:
    """The curves.csv of a run that is under way.

    run_dir: without a curves.csv, one is made from the event files. last_step: later rows are removed. `points`: the
    number of rows. ValueError if the file is broken.
    """

    def __init__(self, run_dir: Path, last_step: int) -> None:
        self._path = run_dir / CURVES
        old = self._path.read_bytes() if self._path.exists() else _csv_of_events(run_dir)
        self._tags, rows = _split(old)
        kept = [row for row in rows.splitlines() if int(row.partition(b",")[0]) <= last_step]
        self.points = len(kept)
        self._write(kept)

    def _write(self, rows: List[bytes]) -> None:
        write_atomically(self._path, _csv(self._tags, rows))
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND)

    def append(self, step: int, wall_time: float, scalars: Dict[str, float]) -> None:
        """Writes one row, at once. A tag that is new gets a column first. scalars: {tag: a float32 number}."""
        new = [tag for tag in scalars if tag not in self._tags]
        if new:
            os.close(self._file)
            self._tags += new
            self._write([row + b"," * len(new) for row in _split(self._path.read_bytes())[1].splitlines()])
        row = _csv_row(self._tags, step, wall_time, scalars) + b"\n"
        self.points += 1
        while row:  # more than once only on a full disk, which then raises
            row = row[os.write(self._file, row) :]

    def sync(self) -> None:
        """Returns when all rows have reached the disk."""
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)


def _csv(tags: List[str], rows: List[bytes]) -> bytes:
    header = io.StringIO()
    csv.writer(header, lineterminator="").writerow(["step", "wall_time", *tags])
    return b"".join(line + b"\n" for line in [header.getvalue().encode(), *rows])


def _csv_row(tags: List[str], step: int, wall_time: float, scalars: Dict[str, float]) -> bytes:
    cells = [f"{scalars[tag]:.9g}" if tag in scalars else "" for tag in tags]
    return ",".join([str(step), f"{wall_time:.6f}", *cells]).encode()


def _split(content: bytes) -> Tuple[List[str], bytes]:
    """The tags of curves.csv, and its whole rows. ValueError if it has no header."""
    header, _, rows = content[: content.rfind(b"\n") + 1].partition(b"\n")
    columns = next(csv.reader([header.decode()]), [])
    if columns[:2] != ["step", "wall_time"]:
        raise ValueError("expected a first line that begins with step,wall_time")
    return columns[2:], rows


def event_files(run_dir: Path) -> List[Path]:
    """The event files of a run, oldest first."""
    return sorted(run_dir.glob("events.out.tfevents.*"))


def records(path: Path) -> Iterator[Tuple[bytes, Any]]:
    """(bytes, Event) of each whole record of an event file, which may be cut or broken behind them."""
    from google.protobuf.message import DecodeError
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event

    with contextlib.suppress(DecodeError):
        for record in RawEventFileLoader(str(path)).Load():
            yield record, Event.FromString(record)


def _scalars(event: Any) -> Iterator[Tuple[str, float]]:
    """(tag, float32 number) of each scalar in an Event: a number, or a tensor as TensorFlow 2 writes it."""
    import numpy as np
    from tensorboard.util import tensor_util

    for value in event.summary.value:
        if value.metadata.plugin_data.plugin_name not in ("", "scalars"):
            continue  # the run's arguments and its text
        if value.HasField("simple_value"):
            yield value.tag, value.simple_value
        elif value.HasField("tensor"):
            tensor = tensor_util.make_ndarray(value.tensor)
            if tensor.dtype.kind == "f" and tensor.size == 1:
                yield value.tag, tensor.astype(np.float32).item()


def _csv_of_events(run_dir: Path) -> bytes:
    """What curves.csv would be. Of two points of a tag at one step the later written one is kept."""
    points: Dict[int, Tuple[float, Dict[str, float]]] = {}
    for path in event_files(run_dir):
        for _, event in records(path):
            scalars = dict(_scalars(event))
            if scalars and not is_final_card(event):
                points[event.step] = event.wall_time, {**points.get(event.step, (0.0, {}))[1], **scalars}
    tags = list(dict.fromkeys(tag for _, scalars in points.values() for tag in scalars))
    return _csv(tags, [_csv_row(tags, step, *points[step]) for step in sorted(points)])


def _table(run_dir: Path) -> Tuple[List[str], Any, Any]:
    """tags, steps (P,) int64, and wall_time and the values of the tags, (P, 1 + tags) float64, with MISSING ones."""
    import numpy as np

    path = run_dir / CURVES
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        content = _csv_of_events(run_dir)
        if (run_dir / "done.json").exists() and not is_alive(run_dir):
            with contextlib.suppress(OSError):  # a folder that cannot be written to
                write_atomically(path, content, writer=f".{os.getpid()}")
    try:
        tags, rows = _split(content)
        if not rows:
            return tags, np.zeros(0, np.int64), np.zeros((0, 1 + len(tags)))
        steps = np.array([int(row.partition(b",")[0]) for row in rows.splitlines()])
        for _ in range(2):  # in ",,," the first pass fills one of two
            rows = rows.replace(b",,", b"," + MISSING + b",")
        rows = rows.replace(b",\n", b"," + MISSING + b"\n")
        table = np.loadtxt(io.BytesIO(rows), delimiter=",", comments=None, ndmin=2)
        if table.shape[1] != len(tags) + 2:
            raise ValueError(f"rows of {table.shape[1]} cells below a first line of {len(tags) + 2}")
    except ValueError as error:
        raise ValueError(f"{CURVES}: {error}") from None
    return tags, steps, table[:, 1:]


def read_curves(run_dir: Path) -> Dict[str, Tuple[Any, Any]]:
    """{tag: (steps (P,) int64, values (P,) float32)} of one run, from its curves.csv; without one, from its events.

    Reading events takes a hundred times as long, so a run that is done gets a curves.csv. ValueError if the file is
    broken.
    """
    return _curves(*_table(run_dir))


def _curves(tags: List[str], steps: Any, table: Any) -> Dict[str, Tuple[Any, Any]]:
    """As `read_curves`, of what `_table` returns."""
    import numpy as np

    curves = {}
    for tag, column in zip(tags, table.T[1:]):
        there = column != float(MISSING)
        if there.any():
            curves[tag] = steps[there], column[there].astype(np.float32)
    return curves


class Progress(NamedTuple):
    """How far the curves of a run have come."""

    step: int  # the last one
    speed: float  # steps per second of the run's latest process; 0: not yet known
    age: float = 0.0  # seconds since the last point, or since that process began
    interval: float = 0.0  # seconds from one of its points to the next, on average; 0: not yet known

    @property
    def stalled(self) -> bool:
        """Whether the last point is older than ten of these intervals, and than a minute."""
        return self.age > max(10 * self.interval, 60) and self.interval > 0


def progress(run_dir: Path) -> Progress:
    """How far a run has come."""
    try:
        with open(run_dir / CURVES, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 65536))
            end = file.read()
    except FileNotFoundError:
        done = read_json(run_dir / "done.json").get("global_step")
        if isinstance(done, int):
            return Progress(done, 0.0)
        end = _csv_of_events(run_dir)
    rows = [re.match(rb"(\d{1,18}),(\d{1,12}(?:\.\d{1,9})?)(,|$)", line) for line in end.split(b"\n")[:-1]]
    points = [(int(row[1]), float(row[2])) for row in rows if row]  # without the header, or the first line's rest
    names = " ".join(path.name for path in event_files(run_dir))
    start = max(map(float, re.findall(r"tfevents\.(\d+(?:\.\d+)?)", names)), default=0.0)
    latest = [point for point in points if point[1] > start]
    step = points[-1][0] if points else 0
    age = max(0.0, time.time() - (latest[-1][1] if latest else start or time.time()))
    if len(latest) < 2 or latest[-1][1] <= latest[0][1]:  # a clock that has been set back says nothing
        return Progress(step, 0.0, age)
    (first, first_time), (last, last_time) = latest[0], latest[-1]
    seconds = last_time - first_time
    return Progress(step, (last - first) / seconds, age, seconds / (len(latest) - 1))


# ---- all runs as a table ---------------------------------------------------------------------------------------------
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
        runs = pd.read_csv(root, dtype=dict.fromkeys(TEXTS, str), float_precision="round_trip")
        if tuple(runs.columns[: len(COLUMNS)]) != COLUMNS:
            raise ValueError(f"{root} is no table of runs: expected the columns that docs/data.md lists, in its order")
        return without_none(runs)
    if not root.is_dir():
        raise FileNotFoundError(
            f"{root} is no directory: expected one with runs below it, or a file with a table of runs"
        )
    rows, tables = [], []
    for link in lost_runs(root):
        print(f"note: {link} is left out: a link to {os.readlink(link)}, which has been deleted", file=sys.stderr)
    for run_dir in find_runs(root):
        try:
            name, table = str(run_dir.relative_to(root)), _table(run_dir)
            rows.append(row_of(read_files(run_dir), _curves(*table), name))
        except (OSError, ValueError) as error:
            print(f"note: {run_dir} is left out: {error}", file=sys.stderr)
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
    given = {k: " ".join(map(str, v)) if isinstance(v, list) else v for k, v in manifest["arguments"].items()}
    git, numbers, script, env_id = manifest.get("git"), _numbers("done", done), script_of(manifest), given.get("env_id")
    steps = max((int(steps[-1]) for steps, _ in curves.values()), default=0)
    row = {
        **dict.fromkeys(COLUMNS),
        **given,
        "run": name,
        "experiment": str(Path(name).parent) if "/" in name else "",
        "script": script,
        "state": word,
        "game": catalog.game_name(str(env_id)),
        "global_step": numbers.pop("global_step", steps),
        "start": manifest.get("start"),
        "commit": git.get("commit") if isinstance(git, dict) else None,
        **numbers,
    }
    scale = catalog.scale(str(script), catalog.procgen_mode({**given, "env_id": str(env_id)}))
    if scale and row["game"] in scale.returns and "final_return" in numbers:
        zero, one = scale.returns[str(row["game"])]
        row["score"] = round((numbers["final_return"] - zero) / (one - zero), 5)
    budget = given.get("total_timesteps")
    return {**row, **_summary(curves, budget if isinstance(budget, (int, float)) else math.nan, bool(done))}


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
