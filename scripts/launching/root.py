"""Where the repository is. Each command of scripts/ imports this first, to find support/ and metrics.py."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[1:1] = [str(ROOT)]  # behind the folder of the command
