"""The files of a run directory, its state, and run directories below a folder. Python 3.8, for Isaac Gym."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import json
import os
import re
import stat
import sys
import zipfile
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

from support.arguments import fail
from support.reading import fields

FORMAT = 3  # the version of checkpoint.pt; raised when an older one can no longer be resumed


def no_link(name: str, flags: int) -> int:
    """The opener of a file that is written in a run directory, which may be another's: a link leads out of it.

    OSError for a link, and for a pipe without a reader.
    """
    try:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            error.strerror = "it is a link"
        raise


def write_atomically(path: Path, data: bytes, previous: Optional[Path] = None, writer: str = "") -> None:
    """Writes a file so that a reader, or a crash at any time, finds the old content or the new, never a part.

    `previous`: where the old file is kept. `writer`: a name, where several programs may write the file at a time.
    """
    partial = path.with_name(f".{path.name}{writer}.partial")  # hidden from globs and from TensorBoard
    try:
        with contextlib.suppress(FileNotFoundError):
            partial.unlink()  # a crash has left it; or it is a link, to anything
        with open(partial, "xb", opener=no_link) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:  # a full disk: give the room back
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    if previous and path.exists():
        keep(path, previous)
    os.replace(partial, path)


def keep(path: Path, previous: Path) -> None:
    """Gives a file a second name. With hard links neither name is without a file, for a reader or after a kill -9."""
    partial = path.with_name(f".{previous.name}.partial")
    with contextlib.suppress(FileNotFoundError):
        partial.unlink()
    try:
        os.link(path, partial)
    except OSError:  # a file system without hard links
        os.replace(path, previous)
        return
    os.replace(partial, previous)
    with contextlib.suppress(FileNotFoundError):  # os.replace does nothing if both names are of one file
        partial.unlink()


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


# ---- the JSON files ------------------------------------------------------------------------------------------------
def read_bytes(path: Path) -> bytes:
    """The content of a regular file. OSError if it is something else: a pipe would let the program wait for ever."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return file.read()


def check_archive(content: bytes) -> None:
    """Raises an exception, of many kinds, unless a checkpoint is as it was written: torch.load reads no checksum."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        damaged = archive.testzip()
        for entry in archive.infolist():
            if entry.external_attr & 0x10:  # MS-DOS's mark of a folder, of which torch reads nothing
                damaged = entry.filename
    if damaged is not None:
        raise zipfile.BadZipFile(f"{damaged} is damaged")


def read_arrays(path: Path) -> Dict[str, Any]:
    """The arrays of an .npz by name. OSError of the disk, ValueError if the file is not whole."""
    import numpy as np

    content = read_bytes(path)
    try:  # numpy reads the checksum of each array
        with np.load(io.BytesIO(content)) as saved:
            return {name: saved[name] for name in saved.files}
    except Exception as error:  # a file that is not whole breaks in many ways
        raise ValueError(str(error) or type(error).__name__) from None


def read_object(path: Path) -> Dict[str, Any]:
    """The object in one of the FIELDS' files; {} if there is none.

    ValueError, which names the file and the field, if it is not as a run or a sweep writes it.
    """
    try:
        content = json.loads(read_bytes(path))
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name}: {error}") from None
    fields.check(content, path.name)
    return content


def read_json(path: Path) -> Dict[str, Any]:
    """As `read_object`, but {} for a file that cannot be read, too."""
    try:
        return read_object(path)
    except (OSError, ValueError):
        return {}


class Files(NamedTuple):
    """The JSON files of a run, {} for each that it has not, and its state in the words of `state`."""

    manifest: Dict[str, Any]
    done: Dict[str, Any]
    failed: Dict[str, Any]
    state: str


def read_files(run_dir: Path) -> Files:
    """The Files of a run directory. ValueError, which names file and field, if one is not as a run writes it."""
    manifest, done, failed = (read_object(run_dir / f"{name}.json") for name in ("manifest", "done", "failed"))
    if not manifest:
        raise ValueError("manifest.json is missing")
    return Files(manifest, done, failed, state(run_dir))


def shown(path: Union[str, Path]) -> str:
    """A path or a line as text that can be printed and written: its bytes may be no UTF-8, and have line breaks."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(path))


# ---- checkpoints -----------------------------------------------------------------------------------------------------
def checkpoints(run_dir: Path) -> List[Path]:
    """The checkpoints of a run that exist, newest first."""
    return [path for path in (run_dir / "checkpoint.pt", run_dir / "checkpoint.prev.pt") if path.exists()]


def try_to_load(path: Path, device: Any) -> Optional[Dict[str, Any]]:
    """The content of a checkpoint file, or None after a note if it is not whole.

    Exits 2 with one line if the disk, its permissions or the memory are in the way: the file may be whole.
    """
    import torch

    problem: Exception
    try:
        content = read_bytes(path)
    except (OSError, MemoryError) as error:
        fail(f"{path} cannot be read ({error}): the same command resumes from it once it can")
    try:
        check_archive(content)
        found = torch.load(io.BytesIO(content), map_location=device, weights_only=True)
        if isinstance(found, dict):
            return found
        problem = TypeError("no checkpoint")
    except Exception as error:  # a file that is not whole breaks in many ways
        problem = error
    if isinstance(problem, MemoryError) or "alloc" in str(problem):  # torch raises RuntimeError without memory
        fail(f"{path} cannot be read ({problem}): the same command resumes from it once it can")
    print(f"note: {path} cannot be read ({type(problem).__name__}): it is damaged", file=sys.stderr)
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
        fail(f"{run_dir}: {names} cannot be read: expected a copy of one; to start over, delete the directory")
    return None


def check_format(path: Path, checkpoint: Dict[str, Any]) -> None:
    """Exits 2 with one line if a checkpoint was written in another format."""
    found = checkpoint.get("format", 1)
    if found != FORMAT:
        commit = read_json(path.parent / "manifest.json").get("git", {}).get("commit")
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


# ---- state -----------------------------------------------------------------------------------------------------------
def is_locked(path: Path) -> bool:
    """Whether a live process holds a lock on the file."""
    try:
        with open(path, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:  # it may be a pipe
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
        lines = read_bytes(run_dir / "log.txt")[-65536:].decode(errors="replace").replace("\r", "\n").split("\n")
    except OSError:
        return "", None
    lines = [line.strip() for line in lines if line.strip()]
    code = re.fullmatch(r"\[launch .*\] exit code (-?\d+)", lines[-1]) if lines else None
    written = [line for line in lines if not re.match(r"\[launch |srun: error: .* Exited with exit code", line)]
    return (written[-1] if written else "no output"), int(code[1]) if code else None


def is_done(run_dir: Path) -> bool:
    """Whether the run is finished: its done.json is there and as a run writes it."""
    try:
        read_object(run_dir / "done.json")
        return (run_dir / "done.json").exists()
    except (OSError, ValueError):
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
