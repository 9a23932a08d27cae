"""Which states the runs have trained on: umap_coverage.py draws them and has the claims; here are the returns."""

from launching.root import ROOT

import shutil
import subprocess
import sys

from analysis.claims import Claims
from analysis.drawing import RETURNS, curve_panels, task_grid
from analysis.parts import more_environments, one_batch

FIGURE = "P1, Fig. 2 and 9: the returns of their runs; scripts/umap_coverage.py draws the figures"
VARIES = ("num_envs", "num_steps")
IQM = True


def claims(suite):
    return Claims(suite)


def sheets(suite):
    yield curve_panels(suite, [one_batch(suite), more_environments(suite)], part="returns")
    yield task_grid(suite, "returns_games", suite.configs, RETURNS)


def also(runs_dir, out):
    """Runs scripts/umap_coverage.py; if it fails, the returns take its figure's place."""
    script = ROOT / "scripts" / "umap_coverage.py"
    if subprocess.run([sys.executable, script, "--runs", runs_dir, "--out", out]).returncode:
        print("! scripts/umap_coverage.py failed: coverage.png shows returns only")
        for path in out.glob("coverage_returns.*"):
            shutil.copy(path, path.with_name(f"coverage{path.suffix}"))
