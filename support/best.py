"""best.pt: the network of a run at the log point with the highest training return. Python 3.8, for Isaac Gym."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any, Dict, Optional

from support.reading.files import FORMAT, try_to_load, write_atomically

BEST = "best.pt"


class Best:
    """The network with the highest mean return of 100 episodes so far. It waits in memory until a checkpoint is due.

    best.pt has what checkpoint.pt has of a network, and the `global_step` and `episodic_return` of its log point. It is
    written before the checkpoint: if a kill comes between the two, best.pt may be ahead of the checkpoint, but no
    network is lost. So a resumed run compares its own with best.pt, not with a number in the checkpoint.
    """

    def __init__(self, run_dir: Path, goes_on: bool) -> None:
        """goes_on: whether the run has a checkpoint of its own. If not, it begins, and a best.pt there is void."""
        self.path, self.score = run_dir / BEST, -math.inf
        self._new: Optional[Dict[str, Any]] = None
        if not self.path.exists():
            return
        if not goes_on:
            self.path.unlink()
            return
        kept = (try_to_load(self.path, "cpu") or {}).get("run")
        score = kept.get("episodic_return") if isinstance(kept, dict) else None
        if isinstance(score, float):
            self.score = score

    def offer(self, score: Optional[float], global_step: int, network: Any) -> None:
        """Keeps a copy of the network, on the CPU, if its mean return `score` is the highest so far."""
        if score is None or not score > self.score:
            return
        state = {name: x.detach().to("cpu", copy=True) for name, x in network.state_dict().items()}
        self.score = score
        self._new = {
            "format": FORMAT,
            "run": {"global_step": global_step, "episodic_return": score},
            "agent": state,
        }

    def write(self) -> None:
        """Writes best.pt, unless it has the best network already."""
        if self._new:
            import torch

            data = io.BytesIO()
            torch.save(self._new, data)
            write_atomically(self.path, data.getvalue())
            self._new = None
