"""TensorBoard's event files of a run while it trains: the points of its curves, its arguments, its final score.

Python 3.8, for Isaac Gym.
"""

from __future__ import annotations

import io
import os
import platform
import re
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Set, Tuple

from support import tags
from support.arguments import fail
from support.reading.curves import event_files, records
from support.reading.files import no_link, write_atomically


def cut(run_dir: Path, last_step: int) -> int:
    """Removes the points after `last_step`, which will be written again. Returns how many are left.

    A file without a point that is left is deleted. Exits 2 with one line if an event file is no file.
    """
    from tensorboard.summary.writer.record_writer import RecordWriter

    left = 0
    for path in event_files(run_dir):
        kept = io.BytesIO()
        if not path.is_file():
            fail(f"{path} is no file: expected an event file, or nothing")
        for record, event in records(path):
            if event.step <= last_step and not tags.is_final_card(event):
                RecordWriter(kept).write(record)
                left += any(value.HasField("simple_value") for value in event.summary.value)
        if kept.getvalue():
            write_atomically(path, kept.getvalue())
        else:
            path.unlink()
    return left


class EventsFile:
    """A new event file of a run, the last by name: programs read them in this order, whatever the clock says.

    One record a log point, written at once: the queue of SummaryWriter can lose points that a checkpoint counts. cards
    returns the summaries that the first file of a run has.
    """

    def __init__(self, run_dir: Path, cards: Callable[[], Iterable[Any]]) -> None:
        from tensorboard.summary.writer.record_writer import RecordWriter

        others = event_files(run_dir)
        times = re.findall(r"tfevents\.(\d+(?:\.\d+)?)", " ".join(path.name for path in others))
        now = max([time.time(), *(float(text) + 1 for text in times)])  # the clock may have been set back
        name = f"events.out.tfevents.{now:.6f}.{platform.node()}.{os.getpid()}"
        self._file = open(run_dir / name, "xb", opener=no_link)
        self._described: Set[str] = set()  # tags that the file describes
        self._writer = RecordWriter(self._file)
        self.write(file_version="brain.Event:2")
        for card in () if others else cards():
            self.write(summary=card)

    def write(self, **fields: Any) -> float:
        """Appends an Event. Returns its wall_time."""
        from tensorboard.compat.proto.event_pb2 import Event

        now = time.time()
        self._writer.write(Event(wall_time=now, **fields).SerializeToString())
        return now

    def log(self, step: int, scalars: Dict[str, float]) -> Tuple[float, Dict[str, float]]:
        """Writes one point of each curve. Returns its wall_time, and the float32 numbers that the file now holds."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()])
        for value in summary.value:
            if value.tag not in self._described:  # once a file is enough
                value.metadata.summary_description = tags.description(value.tag)
                value.metadata.plugin_data.plugin_name = "scalars"
                value.metadata.data_class = 1  # DATA_CLASS_SCALAR; else TensorBoard's fast reader drops both
                self._described.add(value.tag)
        now = self.write(step=step, summary=summary)
        self._file.flush()
        return now, {value.tag: value.simple_value for value in summary.value}

    def sync(self) -> None:
        """Returns when all points have reached the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()
