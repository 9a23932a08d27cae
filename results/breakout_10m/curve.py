"""Writes curve.csv, the return and P1's six diagnostics of the run of Breakout as far as it has come, and draws it.

python results/breakout_10m/curve.py --run runs/breakout_10m/8x128__s1

cleanrl.csv is CleanRL's published curve, read off its picture. The picture is curve.png and curve.svg.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[1] / "scripts")]

from analysis.look import BLUE, DASHED, PAGE, VERMILLION, plt, save  # noqa: E402
from analysis.suite import SHOWN  # noqa: E402

from support import arguments, reading  # noqa: E402

TAGS = ("charts/episodic_return", "charts/SPS", *(f"diagnostics/{name}" for name in SHOWN))


@dataclass
class Args:
    run: Path = Path("runs/breakout_10m/8x128__s1")  # the run directory


def draw(table):
    """Draws the return beside CleanRL's, and the six diagnostics; table: the columns of curve.csv."""
    figure, axes = plt.subplot_mosaic("RRR;012;345", figsize=(PAGE, 5.6), height_ratios=(1.6, 1, 1))
    lines = [
        (pd.read_csv(HERE / "cleanrl.csv"), VERMILLION, DASHED, "CleanRL, mean of three seeds"),
        (table, BLUE, "-", "ours, one seed"),
    ]
    for rows, color, style, label in lines:
        axes["R"].plot(rows["step"] / 1e6, rows["episodic_return"], color=color, ls=style, label=label)
    axes["R"].set(ylabel="return of the last 100 games", title="Breakout, 8 x 128")
    axes["R"].legend()
    for place, (name, label) in enumerate(SHOWN.items()):
        values = 100 - table[name] if name == "ess" else table[name]
        axes[str(place)].plot(table["step"] / 1e6, values, color=BLUE, lw=0.8)
        axes[str(place)].set(title=label)
    axes[str(list(SHOWN).index("ess"))].set_yscale("log")  # single batches with a large ratio stand far above the rest
    for axis in axes.values():
        axis.set_xlim(0, 10)
    figure.supxlabel("million steps", fontsize=8)
    save(figure, HERE / "curve")


def main(args):
    curves = reading.read_curves(args.run)
    columns = {tag.split("/")[1]: pd.Series(curves[tag][1], curves[tag][0]) for tag in TAGS if tag in curves}
    table = pd.DataFrame(columns).rename_axis("step")
    table.to_csv(HERE / "curve.csv", float_format="%.6g", lineterminator="\n")
    draw(table.reset_index())


if __name__ == "__main__":
    main(arguments.parse(Args, sys.argv[1:], __doc__))
