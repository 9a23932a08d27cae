"""curves.csv: how it is written while a run trains, and read; and the event files of TensorBoard, which have the same.

curves.csv has the columns step and wall_time (seconds since 1970), then the tags in the order in which they appeared,
and a row for each log point: float32 numbers as %.9g, which is exact; nan and inf as such; missing is empty. A last
line without newline is what kill -9 has left of a row: it does not count.

Python 3.8, for Isaac Gym.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import os
import re
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

from support.reading.files import is_alive, no_link, read_bytes, read_json, write_atomically
from support.tags import is_final_card

CURVES = "curves.csv"
MISSING = b"1e39"  # what an empty cell is read as: no float32 number is as large
LARGEST = 3.4028235e38  # a float32 number, as a row has it


class CurvesFile:
    """The curves.csv of a run that is under way.

    run_dir: without a curves.csv, one is made from the event files. last_step: later rows are removed. `points`: the
    number of rows. ValueError if the file is broken.
    """

    def __init__(self, run_dir: Path, last_step: int) -> None:
        self._path = run_dir / CURVES
        old = read_bytes(self._path) if self._path.exists() else _csv_of_events(run_dir)
        self._tags, rows = _split(old)
        kept = [row for row, step in zip(rows.splitlines(), _steps(rows)) if step <= last_step]
        self.points = len(kept)
        self._write(kept)

    def _write(self, rows: List[bytes]) -> None:
        write_atomically(self._path, _csv(self._tags, rows))
        self._file = no_link(str(self._path), os.O_WRONLY | os.O_APPEND)

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
    try:
        columns = next(csv.reader([header.decode()]), [])
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"its first line: {error}") from None
    if columns[:2] != ["step", "wall_time"]:
        raise ValueError("expected a first line that begins with step,wall_time")
    for tag in columns[2:]:
        if columns.count(tag) > 1 or tag in ("", "run") or not tag.isprintable():
            raise ValueError(f"the column {ascii(tag):.60} of its first line: expected the tag of one curve")
    return columns[2:], rows


def _steps(rows: bytes) -> List[int]:
    """The first cells of rows. ValueError unless they are whole numbers that rise."""
    steps: List[int] = []
    for number, row in enumerate(rows.splitlines(), 1):
        cell = row.partition(b",")[0]
        step = int(cell) if re.fullmatch(rb"\d{1,19}", cell) else -1
        if not (steps or [-1])[-1] < step < 2**63:
            expected = f"a whole number up to {2**63 - 1:,}, more than the one before"
            raise ValueError(f"step is {_shown(cell)} in row {number}: expected {expected}")
        steps.append(step)
    return steps


def _numbers(columns: List[str], rows: bytes) -> Any:
    """The cells of rows as float64, MISSING where there is none. ValueError, which names the column, of a bad one."""
    import numpy as np

    for number, row in enumerate(rows.splitlines(), 1):
        if row.count(b",") + 1 != len(columns):
            raise ValueError(f"row {number} has {row.count(b',') + 1} cells: expected {len(columns)}, as in line 1")
    for _ in range(2):  # in ",,," the first pass fills one of two
        rows = rows.replace(b",,", b"," + MISSING + b",")
    rows = rows.replace(b",\n", b"," + MISSING + b"\n")
    try:
        return np.loadtxt(io.BytesIO(rows), delimiter=",", comments=None, ndmin=2)
    except ValueError as error:
        place = re.search(r"at row (\d+), column (\d+)", str(error))
        if not place:
            raise
        above, column = int(place[1]), int(place[2]) - 1
        cell = rows.splitlines()[above].split(b",")[column]
        raise ValueError(f"{columns[column]} is {_shown(cell)} in row {above + 1}: expected a number") from None


def _shown(cell: bytes) -> str:
    return f"{ascii(cell.decode(errors='replace')):.60}"


def event_files(run_dir: Path) -> List[Path]:
    """The event files of a run, oldest first."""
    return sorted(run_dir.glob("events.out.tfevents.*"))


def records(path: Path) -> Iterator[Tuple[bytes, Any]]:
    """(bytes, Event) of each whole record of an event file, which may be cut or broken behind them."""
    from google.protobuf.message import DecodeError
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event

    if not path.is_file():  # a pipe would let the program wait for ever
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
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


def read_table(run_dir: Path) -> Tuple[List[str], Any, Any]:
    """tags, steps (P,) int64, and wall_time and the values of the tags, (P, 1 + tags) float64, with MISSING ones."""
    import numpy as np

    path = run_dir / CURVES
    try:
        content = read_bytes(path)
    except FileNotFoundError:
        content = _csv_of_events(run_dir)
        if (run_dir / "done.json").exists() and not is_alive(run_dir):
            with contextlib.suppress(OSError):  # a folder that cannot be written to
                write_atomically(path, content, writer=f".{os.getpid()}")
    try:
        tags, rows = _split(content)
        if not rows:
            return tags, np.zeros(0, np.int64), np.zeros((0, 1 + len(tags)))
        steps = np.array(_steps(rows), np.int64)
        table = _numbers(["step", "wall_time", *tags], rows)
        for tag, column in zip(tags, table.T[2:]):
            if (np.isfinite(column) & (np.abs(column) > LARGEST) & (column != float(MISSING))).any():
                raise ValueError(f"{tag} has a number that is no float32")
    except ValueError as error:
        raise ValueError(f"{CURVES}: {error}") from None
    return tags, steps, table[:, 1:]


def read_curves(run_dir: Path) -> Dict[str, Tuple[Any, Any]]:
    """{tag: (steps (P,) int64, values (P,) float32)} of one run, from its curves.csv; without one, from its events.

    Reading events takes a hundred times as long, so a run that is done gets a curves.csv. ValueError if the file is
    broken.
    """
    return to_curves(*read_table(run_dir))


def to_curves(tags: List[str], steps: Any, table: Any) -> Dict[str, Tuple[Any, Any]]:
    """As `read_curves`, of what `read_table` returns."""
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
