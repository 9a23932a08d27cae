"""Writes the return and P1's six diagnostics of the runs of Breakout as far as they have come, and draws them.

python results/breakout_10m/curve.py --runs runs/breakout_10m

curve.csv is the run of 8 x 128, curve_128x8.csv that of 128 x 8; a run that is not there keeps the file that is here.
cleanrl.csv is CleanRL's published curve, read off its picture. The picture is curve.png.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT  # noqa: F401

from dataclasses import dataclass

import pandas as pd
from analysis.look import BLUE, DASHED, GREEN, PAGE, VERMILLION, plt, save
from analysis.suite import SHOWN

from support import arguments, reading

HERE = Path(__file__).resolve().parent
TAGS = ("charts/episodic_return", "charts/SPS", *(f"diagnostics/{name}" for name in SHOWN))
RUNS = {"8x128__s1": ("curve.csv", BLUE, "8 x 128"), "128x8__s1": ("curve_128x8.csv", GREEN, "128 x 8")}


@dataclass
class Args:
    runs: Path = Path("runs/breakout_10m")  # the directory of the two runs


def draw(tables):
    """Draws the returns beside CleanRL's, and the six diagnostics; tables: one a run of RUNS, columns of curve.csv."""
    figure, axes = plt.subplot_mosaic("RRR;012;345", figsize=(PAGE, 5.6), height_ratios=(1.6, 1, 1))
    published = pd.read_csv(HERE / "cleanrl.csv")
    style = {"color": VERMILLION, "ls": DASHED, "label": "CleanRL, 8 x 128, mean of three seeds"}
    axes["R"].plot(published["step"] / 1e6, published["episodic_return"], **style)
    for table, (_, color, shape) in zip(tables, RUNS.values(), strict=True):
        steps = table["step"] / 1e6
        axes["R"].plot(steps, table["episodic_return"], color=color, label=f"ours, {shape}, one seed")
        for place, name in enumerate(SHOWN):
            values = 100 - table[name] if name == "ess" else table[name]
            axes[str(place)].plot(steps, values, color=color, lw=0.8)
    axes["R"].set(ylabel="return of the last 100 games", title="Breakout")
    axes["R"].legend()
    for place, label in enumerate(SHOWN.values()):
        axes[str(place)].set(title=label)
    axes[str(list(SHOWN).index("ess"))].set_yscale("log")  # single batches with a large ratio stand far above the rest
    for axis in axes.values():
        axis.set_xlim(0, 10)
    figure.supxlabel("million steps", fontsize=8)
    save(figure, HERE / "curve")


def main(args):
    for name, (file, *_) in RUNS.items():
        if not (args.runs / name).is_dir():
            continue
        curves = reading.read_curves(args.runs / name)
        columns = {tag.split("/")[1]: pd.Series(curves[tag][1], curves[tag][0]) for tag in TAGS if tag in curves}
        table = pd.DataFrame(columns).rename_axis("step")
        table.to_csv(HERE / file, float_format="%.6g", lineterminator="\n")
    draw([pd.read_csv(HERE / file) for file, *_ in RUNS.values()])


if __name__ == "__main__":
    main(arguments.parse(Args, sys.argv[1:], __doc__))
