"""Writes the report of a sweep, one HTML file with its figures, claims and runs: `figures.py --html` by another name.

python scripts/report.py scaling_data --runs runs/scaling_data --out figures/
python scripts/report.py all --runs runs --out figures/                  # one file a sweep
"""

from launching.root import ROOT  # noqa: F401

import sys

import figures


def parse_args(argv):
    return figures.parse_args(["--html", *argv])


if __name__ == "__main__":
    figures.main(parse_args(sys.argv[1:]))
