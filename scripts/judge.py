"""Judges an experiment of results/ and draws it.

    python scripts/judge.py shape                             # from results/shape/scores.csv: verdicts, means, picture
    python scripts/judge.py shape --runs runs/shape_rate      # reads the runs and writes scores.csv first
    python scripts/judge.py shape --first-seed 6              # prints what the later seeds say alone, writes nothing
    python scripts/judge.py advise --searches figures/advise  # writes searches.csv first

results/NAME/claims.py says what the experiment claims, and how it is tested and drawn. Writes verdicts.csv (a row a
number: of each claim over all games, and in each game), means.csv (the mean of each configuration in each game) and
scores.png beside it. A number over several games is the mean over them, taken as fixed. Intervals are 95 % bootstraps
that draw n - 1 of n seeds in each game. Fewer than ten seeds give an estimate with its interval and no verdict.
`detectable` is the difference that the test would find in 80 % of all tries, if its estimate is normal.
"""

from launching.root import ROOT  # noqa: F401

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import pandas as pd
import tyro
from analysis import experiment
from analysis.claims import BY_GAME, PRIMARY
from analysis.estimates import ALPHA
from typing_extensions import Annotated

from support import arguments


@dataclass
class Args:
    experiment: Annotated[str, tyro.conf.Positional]  # the name of a folder of results/ with a claims.py
    runs: Optional[Path] = None  # the run directories, at any depth: reads them and writes scores.csv first
    table_only: bool = False  # with --runs: writes scores.csv and judges nothing yet
    searches: Optional[Path] = None  # of advise: SEED/advise_GAME.txt below it; writes searches.csv first
    out: Optional[Path] = None  # where the files are; default: results/EXPERIMENT
    first_seed: int = 0  # leaves out earlier seeds, and writes nothing


def main(args):
    code, out = experiment.load(args.experiment), args.out or experiment.RESULTS / args.experiment
    with arguments.writable("out", out):
        pass
    if args.runs:
        experiment.write_csv(experiment.collect(code, args.runs, out / "scores.csv"), out / "scores.csv")
        if args.table_only:
            return
    if args.searches:
        searches = list(code.read_searches(args.searches)) if hasattr(code, "read_searches") else []
        if not searches:
            arguments.fail(f"--searches {args.searches}: expected advise, and SEED/advise_GAME.txt below the directory")
        experiment.write_csv(pd.DataFrame(searches), out / "searches.csv")
    table = experiment.runs_of(code, out)
    table = table[table["seed"] >= args.first_seed]
    if table.empty:
        arguments.fail(f"--first-seed {args.first_seed}: expected a seed that has runs")
    scores = experiment.Scores(table, code.VARIES, folder=out)
    rows = pd.DataFrame(code.claims(scores).rows())
    for row in rows.itertuples():
        print(line(row))
    print(f"* primary; p below {ALPHA} holds after Holm's correction")
    if args.first_seed:
        return
    experiment.write_csv(rows, out / "verdicts.csv")
    experiment.write_csv(scores.means(), out / "means.csv")
    if hasattr(code, "draw"):
        code.draw(scores).savefig(out / "scores.png", dpi=200)


def line(row):
    """A row of verdicts.csv in words."""
    numbers = f"{row.value} [{row.low}, {row.high}]"
    if row.family == BY_GAME:
        return f"     {row.game}: {numbers}"
    return (
        f"{row.name}{'*' * (row.family == PRIMARY)} {row.claim}{f', {row.game}' * bool(row.game)}; {row.quantity}: "
        f"{numbers}, {row.seeds} seeds: {row.verdict or 'no verdict'}"
        + (f"; Holm p {row.p_holm}, of the opposite {row.p_holm_opposite}" if row.p_holm else "")
        + (f"; detectable {row.detectable}" if row.detectable else "")
        + (f"; {row.remark}" if row.remark else "")
    )


if __name__ == "__main__":
    main(arguments.parse(Args, sys.argv[1:], __doc__))
