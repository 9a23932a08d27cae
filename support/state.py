"""What a checkpoint keeps: sums and counts of a training script, and copies of all of it. Python 3.8, for Isaac Gym."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, Dict

from support import devices


def copied(state: Any) -> Any:
    """A state of a checkpoint with tensors, dicts and lists of its own."""
    if hasattr(state, "clone"):  # a tensor
        return state.detach().clone()
    if isinstance(state, dict):
        return {name: copied(value) for name, value in state.items()}
    if isinstance(state, (list, tuple)):  # mostly of numbers, hundreds of them
        return type(state)(x if isinstance(x, (int, float)) else copied(x) for x in state)
    return state


class Copies:
    """Says after which iterations the state is copied: after each, unless that would take a hundredth of the time.

    That is 0.4 ms for a small network and 4 ms for Atari's, where an iteration takes seconds.
    """

    def __init__(self) -> None:
        self._start, self._spent = time.monotonic(), 0.0

    @property
    def due(self) -> bool:
        return self._spent < 0.1 + (time.monotonic() - self._start) / 100  # the first 0.1 s are free

    def copy(self, state: Dict[str, Any]) -> Dict[str, Any]:
        start = time.monotonic()
        result: Dict[str, Any] = copied(state)
        self._spent += time.monotonic() - start
        return result


class Stats(SimpleNamespace):
    """Sums since the last log point, by name, and what else a training script counts. A checkpoint keeps all of it.

    kept: further attributes, plain values or tensors, which are the script's own.
    """

    def __init__(self, **kept: Any) -> None:
        self.sums: Dict[str, Any] = {}
        self.counts: Dict[str, int] = {}
        super().__init__(**kept)

    def add(self, values: Dict[str, Any]) -> None:
        """Adds each value, a number or a tensor of one, to the sum of its name."""
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
            self.counts[name] = self.counts.get(name, 0) + 1

    def means(self) -> Dict[str, float]:
        """The mean of each name since the last call, which is at a log point. The sums begin anew."""
        means = devices.numbers({name: total / self.counts[name] for name, total in self.sums.items()})
        self.sums, self.counts = {}, {}
        return means
