"""Tests the claims of the studies in results/ and draws them, from the runs in results/runs.csv.gz.

    python scripts/judge.py all                               # every table and picture of final scores in results/
    python scripts/judge.py data_reuse                        # one study: verdicts, means, picture
    python scripts/judge.py data_reuse --runs runs/data_reuse # takes these runs into the table of all runs first
    python scripts/judge.py data_reuse --first-seed 6         # prints what the later seeds say alone, writes nothing

results/NAME/claims.py says what the study claims, and how it is tested and drawn. Writes verdicts.csv (a row per
number: of each claim over all tasks, and in each task), means.csv (the mean of each configuration in each task) and
scores.png. A number over several tasks is the mean over them. Intervals are 95 %, mostly Student's t: over the tasks if
there are six or more with five seeds each, else over the seeds, and then a verdict needs ten of them in each task
(scripts/analysis/estimates.py). Else there is an estimate with its interval.
`detectable` is the difference that the test would find in 80 % of all tries, if its estimate is normal.

`all`: those with a verdicts.csv. It also reads the rows of a study that has none yet.
docs/data.md describes the table of runs.
"""

from launching.root import ROOT  # noqa: F401

import numbers
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import pandas as pd
import tyro
from analysis import experiment, look
from analysis.claims import BY_TASK, PRIMARY
from analysis.estimates import ALPHA
from typing_extensions import Annotated

from support import arguments, reading

ALL = "all"


@dataclass
class Args:
    experiment: Annotated[str, tyro.conf.Positional]  # a folder of results/ with a claims.py, or all
    runs: Optional[Path] = None  # the run directories, at any depth: reads them first
    table_only: bool = False  # only reads what is new, and tests nothing yet
    draw_only: bool = False  # reads what is new and draws it, and tests nothing yet
    dataset: Path = experiment.DATASET  # the table of all runs; default: results/runs.csv.gz
    out: Optional[Path] = None  # where the other files are; default: results/EXPERIMENT
    first_seed: int = 0  # leaves out earlier seeds, and writes nothing


def main(args):
    if args.experiment != ALL:
        judge(args, experiment.load(args.experiment), args.out or experiment.RESULTS / args.experiment)
        return
    if args.runs or args.out or args.first_seed or args.draw_only:
        arguments.fail("all: expected the name of an experiment with --runs, --out, --first-seed and --draw-only")
    for path in sorted(experiment.RESULTS.glob("*/claims.py")):
        code = experiment.load(path.parent.name)
        if (path.parent / "verdicts.csv").exists() and not args.table_only:
            print(f"\n{code.name}")
            judge(args, code, path.parent)
        else:
            take_in(args, code, path.parent)


def take_in(args, code, out):
    """The table of all runs, with those of --runs and of the experiment's own files, and rewritten if they are new."""
    try:
        table = pd.DataFrame(columns=reading.COLUMNS)
        if args.dataset.is_file():
            table = experiment.read_dataset(args.dataset)
    except (OSError, EOFError, ValueError) as error:
        arguments.fail(
            f"--dataset {args.dataset} cannot be read ({error}): expected a file such as results/runs.csv.gz"
        )
    found = table
    if args.runs:
        found = experiment.merge(table, experiment.collect(code, args.runs), code)
    own = experiment.own_rows(code, out)
    if own:
        found = experiment.merge(table, own, code, replace=True)
    if not found.equals(table):
        experiment.write_dataset(found, args.dataset)
    return found


def judge(args, code, out):
    for name, path in (("out", out), ("dataset", args.dataset.parent)):
        with arguments.writable(name, path):
            pass
    table = take_in(args, code, out)
    if args.table_only:
        return
    runs = experiment.runs_of(code, table)
    runs = runs[runs["seed"] >= args.first_seed]
    if runs.empty:
        arguments.fail(f"--first-seed {args.first_seed}: expected a seed that has runs")
    scores = experiment.scores_of(code, runs, out)
    if args.draw_only:
        draw(code, scores, out)
        return
    rows = pd.DataFrame(code.claims(scores).rows())
    if rows.empty:
        arguments.fail(f"{code.name}: these runs allow none of its claims: expected runs of all its settings")
    for row in rows.itertuples():
        print(line(row))
    for words in holes(scores, rows, out) if not args.first_seed else ():
        print(f"! {words}")
    print(f"* primary; p below {ALPHA} holds after Holm's correction")
    if args.first_seed:
        return
    experiment.write_csv(rows, out / "verdicts.csv")
    experiment.write_csv(pd.DataFrame(scores.means()), out / "means.csv")
    if hasattr(code, "draw"):
        draw(code, scores, out)


def holes(scores, rows, out):
    """Yields what the runs lack: scores, and what the files of an earlier call have more."""
    lacking = [f"{setting_of(row, scores.varies)} seed {row['seed']}" for row in scores.lacking.to_dict("records")]
    yield from first_of("without a score, so left out", lacking)
    if not (out / "means.csv").exists() or not (out / "verdicts.csv").exists():
        return
    now = {setting_of(row, scores.varies): row["seeds"] for row in scores.means()}
    before = pd.read_csv(out / "means.csv", keep_default_na=False).to_dict("records")
    before = {setting_of(row, scores.varies): row["seeds"] for row in before}
    fewer = [
        f"{now.get(where, 0)} of {seeds} of {where}" for where, seeds in before.items() if now.get(where, 0) < seeds
    ]
    yield from first_of("fewer runs than in the last means.csv", fewer)
    keys = ["name", "claim", "game", "quantity"]
    before = pd.read_csv(out / "verdicts.csv", keep_default_na=False, dtype=str)[keys].itertuples(
        index=False, name=None
    )
    made = set(rows[keys].itertuples(index=False, name=None))
    yield from first_of("no row of verdicts.csv any more", [" ".join(row) for row in before if row not in made])


def first_of(words, found):
    """A line that names the first of what was found; none without one."""
    if found:
        yield f"{words}: {found[0]}" + f", and {len(found) - 1} more" * (len(found) > 1)


def setting_of(row, varies):
    """The task and the setting of a run in words."""
    values = [(name, row[name]) for name in varies]
    shown = [f"{name}={value:g}" if isinstance(value, numbers.Number) else f"{name}={value}" for name, value in values]
    return f"{row['game']} {' '.join(shown)}"


def draw(code, scores, out):
    """Saves the picture of an experiment, or its pictures by name."""
    pictures = code.draw(scores)
    for name, figure in (pictures if isinstance(pictures, dict) else {"scores": pictures}).items():
        look.save(figure, out / name)


def line(row):
    """A row of verdicts.csv in words."""
    numbers = f"{row.value} [{row.low}, {row.high}]"
    if row.family == BY_TASK:
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
