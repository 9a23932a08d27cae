"""Draws curves.csv, the return in training of the runs on CartpoleSwingup, in curves.png.

python results/long_runs/curves.py --runs runs/long_runs    # writes curves.csv first
python results/long_runs/curves.py
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT  # noqa: F401

from dataclasses import dataclass
from typing import Optional

import pandas as pd
from analysis.look import BLUE, PAGE, VERMILLION, plt, save
from analysis.suite import SHOWN

from support import arguments, reading

HERE = Path(__file__).resolve().parent
TASK = "CartpoleSwingup-v1"
RUN = ["num_envs", "num_steps", "learning_rate", "seed"]


@dataclass
class Args:
    runs: Optional[Path] = None  # run directories, to write curves.csv from; default: draws the one that is there


def table(folder):
    """The return, the entropy and P1's six diagnostics of each run on TASK, a row per log point."""
    runs, curves = reading.load(folder, curves=True)
    tags = {"charts/episodic_return": "episodic_return", "losses/entropy": "entropy"}
    tags.update({f"diagnostics/{name}": name for name in SHOWN})
    rows = runs[runs["env_id"] == TASK][["run", *RUN]].merge(curves, on="run").rename(columns=tags)
    return rows.sort_values([*RUN, "step"])[[*RUN, "step", *tags.values()]]


def draw(rows):
    n_by_ts = [n_by_t for n_by_t, _ in rows.groupby(["num_envs", "num_steps"])]
    figure, axes = plt.subplots(1, len(n_by_ts), figsize=(PAGE, 2.5), sharey=True)
    for axis, n_by_t in zip(axes, n_by_ts, strict=True):
        own = rows[(rows["num_envs"] == n_by_t[0]) & (rows["num_steps"] == n_by_t[1])]
        for color, (rate, of_rate) in zip((BLUE, VERMILLION), own.groupby("learning_rate"), strict=True):
            for place, (_, run) in enumerate(of_rate.groupby("seed")):
                label = f"{rate:g}" if place == 0 else None
                axis.plot(run["step"] / 1e6, run["episodic_return"], color=color, lw=0.8, label=label)
        axis.set(title=f"{n_by_t[0]} x {n_by_t[1]}", ylim=(0, 1150))  # above 1000, the highest return: the legend
        axis.legend(title="learning rate", title_fontsize=7, loc="upper center", ncols=2)
    axes[0].set_ylabel("return of the last 100 episodes")
    figure.supxlabel("million steps", fontsize=8)
    figure.suptitle("CartpoleSwingup, ten million steps: every run", fontsize=8)
    save(figure, HERE / "curves")


def main(args):
    if args.runs:
        table(args.runs).to_csv(HERE / "curves.csv", index=False, float_format="%.5g", lineterminator="\n")
    draw(pd.read_csv(HERE / "curves.csv"))


if __name__ == "__main__":
    main(arguments.parse(Args, sys.argv[1:], __doc__))
