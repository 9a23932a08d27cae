"""Writes curve.csv: the return and P1's six diagnostics of the run of Breakout, as far as it has come.

python results/breakout_10m/curve.py --run runs/breakout_10m/8x128__s1
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from support import arguments, reading

TAGS = ("charts/episodic_return", "charts/SPS", *(f"diagnostics/{name}" for name in (
    "feature_rank", "dormant_neurons", "weight_norm", "gradient_kurtosis", "ess", "policy_variance")))  # fmt: skip


@dataclass
class Args:
    run: Path = Path("runs/breakout_10m/8x128__s1")  # the run directory


def main(args):
    curves = reading.read_curves(args.run)
    columns = {tag.split("/")[1]: pd.Series(curves[tag][1], curves[tag][0]) for tag in TAGS if tag in curves}
    table = pd.DataFrame(columns).rename_axis("step")
    table.to_csv(Path(__file__).with_name("curve.csv"), float_format="%.6g", lineterminator="\n")


if __name__ == "__main__":
    main(arguments.parse(Args, sys.argv[1:], __doc__))
