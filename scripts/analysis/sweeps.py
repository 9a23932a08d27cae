"""The sweeps with a figure of their own. Each has one module: scripts/papers/SWEEP.py, or results/SWEEP/claims.py.

`load("gamma")` is that module; of any other name it is any_sweep.py. It has

    FIGURE          the paper's figure, in words
    VARIES          the arguments that the sweep varies, as its shell file states them
    IQM             True where P1's pictures pool the runs of all tasks into an interquartile mean (optional)
    claims(suite)   the Claims (claims.py), the primary one first
    sheets(suite)   its images: yields sheets (drawing.py)
    measure(run)    further columns of its runs: {name: number} (optional)
    also(runs, out) what else is drawn of the runs below a directory (optional)

A suite has the runs (suite.py). A study has more in its module: experiment.py.
"""

from launching.root import ROOT

import importlib
from pathlib import Path

from analysis import experiment

PAPERS = Path(__file__).resolve().parents[1] / "papers"


def names():
    """The sweeps that have such a module, sorted."""
    of_papers = [path.stem for path in PAPERS.glob("[!_]*.py")]
    studies = [path.parent.name for path in (ROOT / "results").glob("*/claims.py") if "\nFIGURE = " in path.read_text()]
    return sorted([*of_papers, *studies])


def load(name):
    """The module of a sweep; any_sweep.py for a name that none has."""
    if name not in names():
        return importlib.import_module("analysis.any_sweep")
    if (PAPERS / f"{name}.py").exists():
        return importlib.import_module(f"papers.{name}")
    return experiment.load(name)
