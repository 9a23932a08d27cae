"""Runs that Weights and Biases has tracked offline: their files wandb/offline-run-*/run-*.wandb, read again.

    runs, unread = offline_wandb.read(folder)

W&B itself reads these files with a program in Go, only to upload them (`wandb sync`). Its Python package has the
messages (wandb.proto) but, in 0.31, no reader of the file around them. That is a log as LevelDB writes it: a header
of 7 bytes, then blocks of 32 kB with records of CRC-32 (4 bytes), length (2), kind (1) and data. A record that does not
fit into its block goes on in the next one.
"""

from launching.root import ROOT  # noqa: F401

import json
import shlex
import struct
import zlib
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

HEADER = struct.pack("<4sHB", b":W&B", 0xBEE1, 0)
BLOCK, RECORD_HEADER = 32768, struct.Struct("<IHB")
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4  # kinds of records
STOPPED = (130, 143)  # exit codes of a run that a signal has stopped: it can go on


@dataclass
class OfflineRun:
    """A run, from the files of all its attempts."""

    run_id: str
    folder: Path  # of its last attempt
    manifest: dict = field(default_factory=dict)  # as in manifest.json, as far as W&B knows it
    curves: dict = field(default_factory=dict)  # as reading.read_curves gives them
    summary: dict = field(default_factory=dict)
    exit_code: int = None  # None if the last attempt did not end in an orderly way

    @property
    def state(self):
        """In the words of reading.state."""
        words = {0: "done", 3: "diverged", None: "stale", **dict.fromkeys(STOPPED, "stale")}
        return words.get(self.exit_code, "failed")


def find(root):
    """Every file run-*.wandb in a folder offline-run-*, at any depth below a directory, sorted."""
    return sorted(root.glob("**/offline-run-*/run-*.wandb"))


def read(root):
    """All OfflineRuns below a directory, sorted by id, and a line for each file that cannot be read, or not to its end.

    A resumed run has one file for each attempt, with one id. Of two points at one step the later attempt's is kept.
    """
    attempts, unread = defaultdict(list), []
    for path in find(root):
        name = path.relative_to(root)
        try:
            attempt = Attempt(path)
        except (OSError, ValueError) as error:
            unread.append(f"{name}: not read ({error})")
            continue
        if attempt.damage:
            unread.append(f"{name}: {attempt.damage}; what comes before is read")
        attempts[attempt.run_id].append(attempt)
    return [joined(attempts[run_id]) for run_id in sorted(attempts)], unread


def joined(attempts):
    """The OfflineRun of the attempts of one run."""
    attempts = sorted(attempts, key=lambda attempt: attempt.start)
    last = attempts[-1]
    run = OfflineRun(last.run_id, last.path.parent, last.manifest(), exit_code=last.exit_code)
    columns = defaultdict(dict)
    for attempt in attempts:
        run.summary.update(attempt.summary)
        for tag, points in attempt.columns.items():
            columns[tag].update(points)
    for tag, points in columns.items():
        steps = np.fromiter(points, np.int64, len(points))
        order = steps.argsort()
        run.curves[tag] = steps[order], np.fromiter(points.values(), np.float32, len(points))[order]
    return run


class Attempt:
    """What one file says. ValueError if it is not the file of a run.

    Attributes: `run_id`; `start`, in seconds; `config`; `columns`, {tag: {step: number}}; `summary`; `exit_code`, None
    without one; `damage`, why the file is not read to its end, or "".
    """

    def __init__(self, path):
        self.path, self.run_id, self.start, self.damage, self.exit_code = path, "", 0.0, "", None
        self.config, self.columns, self.summary = {}, defaultdict(dict), {}
        self.words, self.code, self.device = [], {}, ""
        from google.protobuf.message import DecodeError
        from wandb.proto.wandb_internal_pb2 import Record  # takes a second, and changes sys.stdout

        try:
            for data in records(path.read_bytes()):
                self._add(Record.FromString(data))
        except (Damage, DecodeError) as error:
            self.damage = str(error)
        if not self.run_id:
            raise ValueError(self.damage or "it holds no run")

    def _add(self, record):
        kind = record.WhichOneof("record_type")
        if kind == "history":
            self._add_point(record.history)
        elif kind == "run":
            self.run_id = record.run.run_id
            self.start = record.run.start_time.seconds + record.run.start_time.nanos / 1e9
            self.config.update(decoded(record.run.config.update))
            self.code = {"commit": record.run.git.commit or None}
        elif kind == "config":
            self.config.update(decoded(record.config.update))
        elif kind == "summary":
            self.summary.update(decoded(record.summary.update))
        elif kind == "environment":
            about = record.environment
            self.device = " ".join(gpu.name for gpu in about.gpu_nvidia[:1]) or self.device or about.cpu.model
            if about.program:
                self.words = [about.executable or "python", about.program, *about.args]
        elif kind == "exit":
            self.exit_code = record.exit.exit_code

    def _add_point(self, history):
        row = decoded(history.item)
        step = history.step.num if history.HasField("step") else row.get("_step")
        if step is None:
            return
        for tag, value in row.items():
            if not tag.startswith("_") and isinstance(value, (int, float)):  # not W&B's own columns, not its videos
                self.columns[tag][step] = value

    def manifest(self):
        """As in manifest.json: arguments, command, commit, versions, device."""
        arguments = {name: value for name, value in self.config.items() if name != "_wandb"}
        try:
            lines = (self.path.parent / "files" / "requirements.txt").read_text().splitlines()
        except OSError:
            lines = []
        versions = dict(line.split("==", 1) for line in lines if "==" in line)
        command = shlex.join(self.words)
        return dict(arguments=arguments, command=command, git=self.code, versions=versions, device=self.device)


def decoded(items):
    """{key: value} of W&B's items. A value that is not JSON is left out."""
    values = {}
    for item in items:
        try:
            values[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
        except ValueError:
            continue
    return values


class Damage(Exception):
    """A file ends, or is wrong, in the middle of a record."""


def records(data):
    """The records in the bytes of a file, one after the other. Damage where they cannot be read further."""
    if not data.startswith(HEADER):
        raise Damage("it is no offline file of W&B")
    at, parts = len(HEADER), []
    while at < len(data):
        left = BLOCK - at % BLOCK
        if left < RECORD_HEADER.size:  # padding
            at += left
            continue
        begin = at + RECORD_HEADER.size
        if begin > len(data):
            raise Damage(f"it breaks off at byte {at:,}")
        crc, length, kind = RECORD_HEADER.unpack_from(data, at)
        at = begin + length
        if at > len(data):
            raise Damage(f"it breaks off at byte {begin:,}")
        content = data[begin:at]
        if crc != zlib.crc32(bytes([kind]) + content) or (kind in (WHOLE, FIRST)) != (not parts):
            raise Damage(f"it is damaged at byte {begin:,}")
        parts.append(content)
        if kind in (WHOLE, LAST):
            yield b"".join(parts)
            parts = []
    if parts:
        raise Damage(f"it breaks off at byte {len(data):,}")
