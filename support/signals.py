"""What a signal does to a run, a sweep or a search. Python 3.8."""

from __future__ import annotations

import signal
import sys
import time
from typing import Any, Iterable, List, Sequence

PATIENCE = 5.0  # seconds that a stop waits for the end of an iteration; `docker stop` kills after ten


def handle(signums: Iterable[int], handler: Any) -> None:
    """Handles signals, but for those that this process was told to ignore, as nohup does."""
    for signum in signums:
        if signal.getsignal(signum) != signal.SIG_IGN:
            signal.signal(signum, handler)


class Signals:
    """SIGINT, SIGTERM, SIGUSR1 and SIGHUP: training stops at the end of the iteration, or within it after PATIENCE.

    Attributes: `received`, the signals so far; `runs`, those that train. Once all of these have ended, their last
    checkpoints are written, and a signal ends the program at once.
    """

    def __init__(self) -> None:
        self.received: List[int] = []
        self.runs: Sequence[Any] = ()
        self._time = 0.0  # of the first signal
        handle((signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP), self._handle)

    def _handle(self, signum: int, frame: Any) -> None:
        if self.runs and all(run.ended for run in self.runs):
            sys.exit(exit_code_of(signum))
        self._time = self._time or time.monotonic()
        self.received.append(signum)
        handle([signal.SIGINT], signal.SIG_DFL)  # a second Ctrl-C does not wait

    def exit_if_late(self) -> None:
        """Ends the program, from any thread, if the iteration has not ended PATIENCE after the first signal."""
        if self.received and time.monotonic() - self._time >= PATIENCE:
            sys.exit(exit_code_of(self.received[0]))


def exit_code_of(signum: int) -> int:
    """The exit code of a program that a signal has stopped: 130 for SIGINT, 143 for others."""
    return 130 if signum == signal.SIGINT else 143
