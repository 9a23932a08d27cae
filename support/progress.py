"""Long work shows how far it is: a bar on a terminal, plain lines elsewhere; and it goes on if nobody reads that.

Python 3.8.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from typing import Any, Callable, Iterator, Optional

from support import devices

LINE_SECONDS = 30  # from one line to the next, where there is no terminal
BAR_SECONDS = 1  # from one look of a bar to the next, within an iteration


def progress_bar(total: int, unit: str, description: str) -> Any:
    """A bar on a terminal, in the first process; elsewhere a line on stderr now and then.

    Such lines tell launch.py's --timeout that the process goes on: call `update` often, also with 0.
    """
    from tqdm import tqdm

    class Bar(tqdm):
        said = time.monotonic()

        def update(self, n: float = 1) -> Any:
            if self.disable and not devices.RANK:
                self.n += n
                if time.monotonic() - self.said >= LINE_SECONDS:
                    self.said = time.monotonic()
                    print(f"{description}: {self.n:,} of {total:,}", file=sys.stderr, flush=True)
            return super().update(n)

    disable = True if devices.RANK else None
    return Bar(total=total, unit=unit, desc=description, disable=disable, dynamic_ncols=True, leave=False)


class Meter:
    """How far a run has come, or `size` runs that train together: steps, speed, mean return and the time that is left.

    total: the steps of one run; step: those done before. Under torchrun only the first process shows anything.
    """

    def __init__(self, env_id: str, total: int, step: int, size: int = 1) -> None:
        from tqdm import tqdm

        self.total, self.size = total, size
        self.name = env_id if size == 1 else f"{env_id} x {size}"
        self.bar = tqdm(
            total=total * size,
            initial=step * size,
            disable=True if devices.RANK else None,
            dynamic_ncols=True,
            bar_format=self.name + " {percentage:3.0f}%|{bar}| {n:,}/{total:,} steps{postfix}  ETA {remaining}",
        )
        self.start = self.mark = time.monotonic(), step  # of the process; of the last line at the end of an iteration
        self.shown, self.minibatches = time.monotonic(), 0

    def within(self, step: int, updates: bool, score: Callable[[], Optional[float]]) -> None:
        """A look within an iteration, if the last one is long ago. updates: at a minibatch, not in the rollout."""
        self.minibatches = self.minibatches + 1 if updates else 0
        now = time.monotonic()
        if now - self.shown >= (LINE_SECONDS if self.bar.disable else BAR_SECONDS):
            self._show(now, step, self._speed(now, step, self.start), score())

    def after(self, step: int, training: int, score: Optional[float], last: bool) -> None:
        """The look at the end of an iteration. training: how many of the runs go on; last: whether this ends them."""
        now = time.monotonic()
        self.minibatches = 0
        speed = self._speed(now, step, self.mark)
        if not self.bar.disable or last or now - self.shown >= LINE_SECONDS:
            self._show(now, step, speed, score, training)
        if last or now - self.mark[0] >= LINE_SECONDS:
            self.mark = now, step

    @staticmethod
    def _speed(now: float, step: int, since: Any) -> float:
        return float((step - since[1]) / max(now - since[0], 1e-9))

    def _show(
        self, now: float, step: int, speed: float, score: Optional[float], training: Optional[int] = None
    ) -> None:
        """speed: of one run, in steps per second."""
        from tqdm import tqdm

        self.shown = now
        steps, return_ = step * self.size, "-" if score is None else f"{score:.1f}"
        text = f"{speed * (self.size if training is None else training):.0f} SPS  return {return_}"
        more = f"  minibatch {self.minibatches:,}" if self.minibatches else ""
        if not self.bar.disable:
            self.bar.set_postfix_str(text + more, refresh=False)
            self.bar.update(max(0, steps - self.bar.n))
            if training is None:  # the bar itself looks at its own steps alone
                self.bar.refresh()
        elif not devices.RANK:
            eta = tqdm.format_interval((self.total - step) / speed) if speed else "?"
            print(f"{self.name} {steps:,}/{self.total * self.size:,} steps  {text}  ETA {eta}{more}", flush=True)

    def close(self) -> None:
        self.bar.close()


# ---- output that nobody reads ----------------------------------------------------------------------------------------
GONE = (errno.EPIPE, errno.EIO, errno.EBADF)  # of a pipe without a reader, a closed terminal and a closed file


class _Unbroken:
    """An output stream of this process to which a write never raises.

    Characters that its encoding lacks are written as Python escapes them. What a full disk does not take is left out.
    Once the reader is gone, all goes to /dev/null, also what C++ and other programs write to the same descriptor.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            self._try(self._stream.write, text)
        except UnicodeEncodeError:
            encoding = self._stream.encoding
            self._try(self._stream.write, text.encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def _try(self, function: Callable, *words: str) -> bool:
        """Whether the call has succeeded. UnicodeEncodeError passes through."""
        try:
            function(*words)
        except UnicodeEncodeError:
            raise
        except (OSError, ValueError) as error:  # ValueError: it has been closed
            if getattr(error, "errno", None) in (None, *GONE):
                self._lose()
            return False
        return True

    def end(self) -> None:
        """The last flush: Python's own, when it ends, has nothing left that could fail and become exit code 120."""
        if not self._try(self._stream.flush):
            self._lose()

    def _lose(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


@contextlib.contextmanager
def unbroken_output() -> Iterator[None]:
    """Work goes on if its output cannot be written: `… | head -1`, a closed terminal, an emoji in ASCII."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:  # `>&-`: the next file would get its number, and what C++ prints
            os.open(os.devnull, os.O_RDWR)
    before = {name: getattr(sys, name) for name in ("stdout", "stderr")}
    streams = {name: _Unbroken(stream) for name, stream in before.items() if stream is not None}
    vars(sys).update(streams)
    try:
        yield
    finally:
        for name, stream in streams.items():
            stream.end()
            if getattr(sys, name) is stream:
                setattr(sys, name, before[name])
