"""Long work shows how far it is: a bar on a terminal, plain lines elsewhere. Python 3.8."""

from __future__ import annotations

import sys
import time
from typing import Any

from support import devices

LINE_SECONDS = 30  # from one line to the next, where there is no terminal


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
