"""Draws curves.csv: `python results/procgen_bigfish/curves.py` writes curves.png beside it."""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT  # noqa: F401

import pandas as pd
from analysis.look import PAGE, plt, save
from analysis.suite import SHOWN

HERE = Path(__file__).resolve().parent


def main():
    table = pd.read_csv(HERE / "curves.csv")
    names = {"charts/episodic_return": "return", **{f"diagnostics/{name}": label for name, label in SHOWN.items()}}
    drawn = [tag for tag in names if (table["metric"] == tag).any()]
    figure, axes = plt.subplots(1, len(drawn), figsize=(PAGE, 2.1))
    for axis, tag in zip(axes, drawn, strict=True):
        rows = table[table["metric"] == tag]
        axis.plot(rows["step"] / 1000, rows["value"], color="black")
        axis.set_title(names[tag].replace(" ", "\n", 1))
    figure.supxlabel("thousand steps", fontsize=8)
    figure.suptitle("BigFish, one level: one run, so no interval", fontsize=8)
    save(figure, HERE / "curves")


if __name__ == "__main__":
    main()
