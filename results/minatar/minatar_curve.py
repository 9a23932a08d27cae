"""Draws MinAtar's Breakout: the returns of ppo_envpool.py beside those that MinAtar's authors published.

    python results/minatar/minatar_curve.py                       # curve.png, from curve.csv and published.csv
    python results/minatar/minatar_curve.py --runs runs/minatar   # writes curve.csv from the runs first

curve.csv has one row per seed and log point: the mean return of the last 100 episodes, the statistic of the published
curve. The band is Student's 95 % interval over the seeds.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT  # noqa: F401

from dataclasses import dataclass
from typing import Optional

import numpy as np
import pandas as pd
import tyro
from analysis.look import BLUE, COLUMN, GRAY, GREEN, VERMILLION, plt, save
from scipy import stats

from support import reading

HERE = Path(__file__).parent
MILLION = 1e6


@dataclass
class Args:
    runs: Optional[Path] = None  # the directory with the run of each seed


def returns_of(folder):
    """A row for each seed and log point of the runs in a folder."""
    tables = []
    for path in sorted(folder.glob("s*")):
        steps, values = reading.read_curves(path)["charts/episodic_return"]
        tables.append(pd.DataFrame({"seed": int(path.name[1:]), "step": steps, "episodic_return": values}))
    return pd.concat(tables)


def summary(table):
    """Mean and half of the 95 % interval over the seeds, at each step that all seeds have."""
    by_step = table.groupby("step")["episodic_return"].agg(["mean", "std", "count"])
    by_step = by_step[by_step["count"] == table["seed"].nunique()]
    half = stats.t.ppf(0.975, by_step["count"] - 1) * by_step["std"] / np.sqrt(by_step["count"])
    return by_step["mean"], half


def main(args):
    if args.runs:
        returns_of(args.runs).to_csv(HERE / "curve.csv", index=False, float_format="%.4g")
    table = pd.read_csv(HERE / "curve.csv")
    published = pd.read_csv(HERE / "published.csv", comment="#", index_col="frames")
    mean, half = summary(table)
    figure, axis = plt.subplots(figsize=(COLUMN, 2.3))
    for name, color in zip(published, (GRAY, GREEN, VERMILLION)):
        axis.plot(published.index / MILLION, published[name], color=color, lw=1, label=f"{name}, Young and Tian")
    for _, rows in table.groupby("seed"):
        axis.plot(rows["step"] / MILLION, rows["episodic_return"], color=BLUE, lw=0.4, alpha=0.5)
    axis.fill_between(mean.index / MILLION, mean - half, mean + half, color=BLUE, alpha=0.2, lw=0)
    axis.plot(mean.index / MILLION, mean, color=BLUE, lw=1.6, label="ppo_envpool.py, five seeds")
    axis.set(xlabel="frames, in millions", ylabel="return, last 100 episodes", xlim=(0, 1), ylim=(0, 16))
    axis.legend(loc="upper left")
    save(figure, HERE / "curve")
    last = mean.index[-1]
    print(f"{last:,} steps: {mean[last]:.1f} [{mean[last] - half[last]:.1f}, {mean[last] + half[last]:.1f}]")


if __name__ == "__main__":
    main(tyro.cli(Args))
