"""Where the repository is. Every command imports this first, to find support/ and metrics.py, and to answer --help.

A command of scripts/ finds it in its own folder; a program in results/STUDY/ says first where scripts/ is:

    sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))

Neither scripts/ nor results/ changes sys.path anywhere else (tests/test_sync.py).
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[1:1] = [str(ROOT)]  # behind the folder of the command

import support.early_help  # noqa: E402, F401 - the path is known now
