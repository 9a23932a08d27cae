"""Run directories read again, for everything in scripts/ and for a run that resumes.

Nothing here imports torch, tensorboard or NumPy before a function needs it, so that a program that only reads starts at
once. Python 3.8, for Isaac Gym.
"""

from __future__ import annotations

import ast
import collections
import contextlib
import fcntl
import functools
import json
import os
import re
import shlex
import struct
import sys
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from support import recipe
from support.arguments import fail

FORMAT = 2  # of checkpoint.pt; raised when an older one can no longer be resumed


# ---- a run that is under way -----------------------------------------------------------------------------------------
def write_atomically(path: Path, data: bytes, previous: Optional[Path] = None) -> None:
    """Writes a file so that a reader, or a crash at any time, finds the old content or the new, never a part.

    `previous`: where the old file is kept.
    """
    partial = path.with_name(f".{path.name}.partial")  # hidden from globs and from TensorBoard
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


def read_json(path: Path) -> Dict[str, Any]:
    """The object in a JSON file; {} if there is none that can be read."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def script_of(manifest: Dict[str, Any]) -> Optional[str]:
    """The name of the script that a manifest's command ran, without .py; None if it names none."""
    try:
        words = shlex.split(str(manifest.get("command", "")))
    except ValueError:
        return None
    return next((Path(word).stem for word in words if word.endswith(".py")), None)


@functools.lru_cache(maxsize=None)
def default_arguments(script: str, env_id: str = "") -> Dict[str, Any]:
    """The defaults of a script's Args, and what recipe.py changes for `env_id`, read without importing it.

    `script`: the path of the file; {} if it is missing.
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
        from support import worlds

        values.update(recipe.CONTINUOUS if worlds.has_continuous_actions(env_id) else {})
    return values


def checkpoints(run_dir: Path) -> List[Path]:
    """The checkpoints of a run that exist, newest first."""
    return [path for path in (run_dir / "checkpoint.pt", run_dir / "checkpoint.prev.pt") if path.exists()]


def try_to_load(path: Path, device: Any) -> Optional[Dict[str, Any]]:
    """The content of a checkpoint file, or None after a note if it is not whole."""
    import torch

    try:
        return torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # a file that is not whole breaks in many ways
        print(f"note: {path} cannot be read ({type(error).__name__})", file=sys.stderr)
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


def state(run_dir: Path) -> str:
    """done, running, diverged, failed, stale (begun, not done, not alive: the next launch resumes it) or missing."""
    if (run_dir / "done.json").exists():
        return "done"
    if is_alive(run_dir):
        return "running"
    if (run_dir / "failed.json").exists():
        return "diverged"
    if log_end(run_dir)[1] not in (None, 0, 130, 143):
        return "failed"
    return "stale" if (run_dir / "manifest.json").exists() else "missing"


# Event files are TFRecords: length (8 bytes), its CRC (4), a protocol buffer (Event), its CRC (4). A torn tail, as
# kill -9 leaves it, ends a file.
def _frames(path: Path) -> Iterator[Tuple[bytes, bytes]]:
    """(frame, its Event) of each whole record, undecoded."""
    data, at = Path(path).read_bytes(), 0
    while at + 12 <= len(data):
        end = at + 12 + struct.unpack_from("<Q", data, at)[0]
        if end + 4 > len(data) or end == at + 12:
            return
        yield data[at : end + 4], data[at + 12 : end]
        at = end + 4


def _head(event: bytes) -> Optional[Tuple[float, int, int]]:
    """Wall time and step of a serialised Event, without the slow import of tensorboard, and where they end.

    None if it is malformed.
    """
    if len(event) < 9 or event[0] != 0x09:  # field 1, a double: wall_time
        return None
    step = shift = 0
    end = 9
    if len(event) > 9 and event[9] == 0x10:  # field 2, a varint: step; absent at step 0
        for byte in event[10:]:
            step |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        end = 10 + shift // 7
    return struct.unpack("<d", event[1:9])[0], step, end


class _Layout(NamedTuple):
    """Where the numbers of a serialised Summary are. Other points of the same curves differ in these bytes only."""

    form: struct.Struct  # what is between the numbers, and the numbers, in turns
    between: Tuple[bytes, ...]
    tags: List[str]


def _layout_of(summary: bytes) -> Optional[_Layout]:
    """The _Layout of a Summary of plain scalars, with its field of Event; None for any other."""
    form, tags, at = "<", [], 1
    try:
        while summary[at] > 0x7F:  # its length, a varint
            at += 1
        start, at = 0, at + 1
        while at < len(summary):  # 0a, length of the value, 0a, length of the tag, tag, 15, the number as a float
            value_size, tag_size = summary[at + 1], summary[at + 3]
            number = at + 5 + tag_size
            marks = summary[at], summary[at + 2], summary[number - 1]
            if marks != (0x0A, 0x0A, 0x15) or max(value_size, tag_size) > 0x7F or value_size != tag_size + 7:
                return None
            tags.append(summary[at + 4 : number - 1].decode())
            form += f"{number - start}sf"
            start = at = number + 4
        read = struct.Struct(form)
        return _Layout(read, read.unpack(summary)[::2], tags) if summary[0] == 0x2A and tags else None
    except (IndexError, struct.error, UnicodeDecodeError):
        return None


def progress(run_dir: Path) -> Tuple[int, float]:
    """The last step on the curves, and steps per second of the run's latest process (0: not yet known)."""
    files = sorted(run_dir.glob("events.out.tfevents.*"), key=lambda path: path.stat().st_mtime)
    heads = [[head for _, event in _frames(path) for head in [_head(event)] if head] for path in files]
    points = [[(at, step) for at, step, _ in points if step] for points in heads]  # the first record has none
    step = max((step for some in points for _, step in some), default=0)
    if points and len(points[-1]) > 1:
        (first_time, first), (last_time, last) = points[-1][0], points[-1][-1]
        return step, (last - first) / max(last_time - first_time, 1e-9)
    return step, 0.0


def read_curves(paths: Iterable[Path]) -> Dict[str, Tuple[Any, Any]]:
    """{tag: (steps (P,) int64, values (P,) float32)} of one run's event files, oldest first.

    Of two points at one step the later written one is kept. tensorboard's own readers give the same, many times slower.
    """
    import numpy as np
    from google.protobuf.message import DecodeError
    from tensorboard.compat.proto.event_pb2 import Event

    kinds = {1: "f4", 2: "f8"}  # TensorFlow's DT_FLOAT and DT_DOUBLE
    columns: Dict[str, Dict[int, float]] = collections.defaultdict(dict)
    layouts: Dict[int, Tuple[_Layout, List[Dict[int, float]]]] = {}  # by length: the latest, and its columns
    for path in paths:
        for _, data in _frames(path):
            _, step, begin = _head(data) or (0.0, 0, 0)
            summary = data[begin:]
            layout, targets = layouts.get(len(summary), (None, []))
            numbers = layout.form.unpack(summary) if layout else ()
            if layout and numbers[::2] == layout.between:  # most points: no message has to be built
                for points, number in zip(targets, numbers[1::2]):
                    points[step] = number
                continue
            try:
                event = Event.FromString(data)
            except DecodeError:
                break
            layout = _layout_of(summary)
            if layout:
                layouts[len(summary)] = layout, [columns[tag] for tag in layout.tags]
            for value in event.summary.value:
                kind = value.WhichOneof("value")
                if value.metadata.plugin_data.plugin_name not in ("", "scalars"):
                    continue  # the run's arguments and its text
                if kind == "simple_value":
                    columns[value.tag][event.step] = value.simple_value
                elif kind == "tensor" and value.tensor.dtype in kinds:  # as TensorFlow 2 writes scalars
                    content = [*value.tensor.float_val, *value.tensor.double_val] or np.frombuffer(
                        value.tensor.tensor_content, kinds[value.tensor.dtype]
                    )
                    if len(content) == 1:
                        columns[value.tag][event.step] = content[0]
    curves = {}
    for tag, points in columns.items():
        steps = np.fromiter(points, np.int64, len(points))
        order = steps.argsort()
        curves[tag] = steps[order], np.fromiter(points.values(), np.float32, len(points))[order]
    return curves
