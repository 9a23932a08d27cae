"""Writes the report of a sweep: one HTML file with its claims, figures and runs, or its tables for LaTeX.

    python scripts/report.py scaling_data --runs runs/scaling_data --out figures/
    python scripts/report.py all --runs runs --out figures/                  # one file a sweep
    python scripts/report.py scaling_data --format latex                     # scaling_data.tex, for a paper

The file holds everything, works from file:// and can be sent to somebody. It has the claims with their verdicts first,
then the figures, the scores, and a table of the runs (a click on a column's head sorts it, words in the box filter it)
with the command that makes each run again. figures.py writes the images as files.
"""

from launching.root import ROOT  # noqa: F401

import sys
from dataclasses import dataclass
from typing import Literal

import figures
from analysis import page, statement


@dataclass
class Args(figures.Args):
    format: Literal["html", "latex"] = "html"  # SWEEP.html with all of it, or SWEEP.tex with the tables


def parse_args(argv):
    return figures.parse_args(argv, Args, __doc__)


def main(args):
    for sweep, (folder, runs, unread) in figures.read(args).items():
        tested = figures.suites_and_claims(sweep, runs, statement.read(folder), args)
        if args.format == "latex":
            path, text = args.out / f"{sweep}.tex", page.latex(sweep, tested)
        else:
            drawn = []
            for name, sheet in figures.sheets_of(sweep, tested, args.x) if args.images else ():
                drawn.append((name, sheet.caption, sheet.svg(name)))
                sheet.close()
            how = f"python scripts/report.py {sweep} --runs {folder} --out {args.out}"
            path = args.out / f"{sweep}.html"
            text = page.html(sweep, figures.figure_of(sweep)[0], tested, unread, drawn, how)
        path.write_text(text)
        print(f"{path}  {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(parse_args(sys.argv[1:]))
