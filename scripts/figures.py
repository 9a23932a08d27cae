"""Draws a sweep: its figures (PNG, PDF), the tidy CSV behind each, and its claims with their numbers.

    python scripts/figures.py scaling_data --runs runs/scaling_data --out figures/
    python scripts/figures.py all --runs runs --out figures/       # every sweep that has runs there, and its report
    python scripts/figures.py my_sweep --runs runs/my_sweep        # a sweep of your own
    python scripts/figures.py scaling_data --x gradient_steps      # or hours: the same against what confounds N
    python scripts/figures.py scaling_data --html                  # one HTML file with all of it

Runs are told apart by the arguments in their manifests: an argument that differs between runs of the same task makes a
configuration. A final score is `final_return` of done.json (--eval-episodes) if all finished runs have it, else the
mean of the last 100 finished episodes at the end of the budget. Runs that have not come so far are listed and have no
final score. A claim's number is the mean over tasks; pictures of P1 draw rliable's IQM (Agarwal et al. 2021), human-
normalised on Atari by support/human_at30.csv. docs/reproducing.md has the rest of the rules.

The HTML file makes no request to any server. It has the figures first, then the claims with their verdicts, the scores,
and a table of the runs (a click on a column's head sorts it, words in the box filter it) with the command that makes
each run again.

scripts/analysis/sweeps.py says what the module of a sweep has: its figure, what it varies, its claims and images.
"""

from launching.root import ROOT  # noqa: F401

import difflib
import os
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Optional, Tuple

import pandas as pd
from analysis import page, statement, sweeps, training_runs
from analysis.drawing import profiles
from analysis.suite import Suite
from analysis.tables import claims_csv, report, verdicts
from tyro.conf import Positional

from support import arguments
from support.arguments import Count, NByTs, Seed

ALL = "all"


@dataclass
class Args:
    sweep: Positional[str]  # a sweep, also one of your own; or `all`: those of the papers with runs below --runs
    runs: Optional[Path] = None  # the directory of its runs (default runs/<sweep>; for all: runs)
    out: Path = Path("figures")  # the directory for what is drawn
    x: Literal["steps", "gradient_steps", "hours"] = "steps"  # the x-axis of curves
    base: Optional[NByTs] = None  # the baseline's N x T, as 8x128, or one a script: 8x128,4096x16 (default: sweep.json)
    games: Tuple[str, ...] = ()  # the tasks of the images by task (default: four of P1's, or the first four)
    by_game: bool = False  # adds each comparison in each task to the table of claims
    images: bool = True  # draws; --no-images only prints and writes the tables
    html: bool = False  # writes SWEEP.html with all of it, and nothing else; with all: both
    latex: bool = False  # writes SWEEP.tex with the tables, and nothing else
    reps: Count = 2000  # bootstrap resamples; the band of a curve has at most 500
    seed: Seed = 0  # the seed of the bootstrap


def parse_args(argv):
    """Returns checked Args; exits 2 with one line on bad input. `runs` is the directory to read, `base` [(N, T), …]."""
    args = arguments.parse(Args, argv, __doc__)
    args.base = [tuple(map(int, n_by_t.split("x"))) for n_by_t in args.base.split(",")] if args.base else []
    args.runs = args.runs or (Path("runs") if args.sweep == ALL else Path("runs", args.sweep))
    if Path(args.sweep).name != args.sweep:
        arguments.fail(f"{args.sweep} is a path: expected a name for what is drawn; the directory is given by --runs")
    if not os.path.isdir(args.runs):  # Path.is_dir raises OSError if a name is too long
        near = difflib.get_close_matches(args.sweep, [*sweeps.names(), ALL], 1)
        hint = f" (near {args.sweep}: {near[0]})" if near and near[0] != args.sweep else ""
        arguments.fail(f"--runs {args.runs}: expected the directory of a sweep's runs{hint}")
    with arguments.writable("out", args.out):
        pass
    return args


# ---- main ------------------------------------------------------------------------------------------------------------
def suites_and_claims(sweep, runs, stated, args):
    """The suite and the claims of each script in a sweep: the script with the most runs first."""
    tested, module = [], sweeps.load(sweep)
    for script, _ in Counter(run.script for run in runs).most_common():
        of_script = [run for run in runs if run.script == script]
        shown = [task for task in args.games if task in {run.task for run in of_script}]
        suite = Suite(sweep, script, of_script, args.base, args.reps, args.seed, args.x, stated, shown, module)
        suite.by_task = args.by_game
        tested.append((suite, module.claims(suite)))
    tasks = {task for suite, _ in tested for task in suite.all_tasks}
    if not tasks >= set(args.games):
        arguments.fail(f"--games {' '.join(args.games)}: expected some of {' '.join(sorted(tasks))}")
    return tested


def sheets_of(sweep, tested, axis):
    """(file name without its ending, sheet) of each image of a sweep."""
    suffix = "" if axis == "steps" else f"_{axis}"
    for i, (suite, _) in enumerate(tested):
        stem = sweep if i == 0 else f"{sweep}_{suite.script.split('_')[1]}"
        for sheet in (*sweeps.load(sweep).sheets(suite), profiles(suite)):
            if sheet:  # there may be nothing to compare
                yield stem + (f"_{sheet.part}" if sheet.part else "") + suffix, sheet


def draw(sweep, tested, args, files):
    """(name, caption, SVG) of the images of a sweep, where a page shows them. files: whether each is written, too."""
    drawn = []
    for name, sheet in sheets_of(sweep, tested, args.x) if args.images else ():
        if files:
            sheet.save(args.out, name)
        if args.html or args.sweep == ALL:
            drawn.append((name, sheet.caption, sheet.svg(name)))
        sheet.close()
    return drawn


def print_tables(sweep, tested, unread, args):
    """Prints the tables of a sweep, and writes them with those of the diagnostics into SWEEP.txt."""

    def lines(diagnostics):
        yield from (f"! {line}" for line in unread)
        for suite, claims in tested:
            yield from report(suite, claims, sweeps.load(sweep).FIGURE, diagnostics)

    path = args.out / f"{sweep}.txt"
    path.write_text("\n".join([*lines(diagnostics=True), ""]))
    print(*lines(diagnostics=False), sep="\n")
    for suite, claims in tested:
        print(*verdicts(suite, claims), sep="\n")
    print(f"the diagnostics too: {path}")
    if args.images:
        print(f"the picture: {args.out / sweep}.png")


def read(args):
    """{sweep: (directory, runs, lines on what could not be read)} of the sweep, or of all that have runs."""
    folders = {args.sweep: args.runs}
    if args.sweep == ALL:
        folders = {sweep: args.runs / sweep for sweep in sweeps.names() if (args.runs / sweep).is_dir()}
    found = {sweep: (folder, *training_runs.read_runs(folder)) for sweep, folder in folders.items()}
    unread = [line for *_, lines in found.values() for line in lines]
    found = {sweep: (folder, runs, unread) for sweep, (folder, runs, unread) in found.items() if runs}
    if not found:
        why = f"no run below it can be read, {unread[0]}" if unread else "no manifest.json of a run below it"
        arguments.fail(f"--runs {args.runs}: {why}; expected the directory of a sweep's runs")
    return found


def main(args):
    found, rows = read(args), []
    for sweep, (folder, runs, unread) in found.items():
        tested, module = suites_and_claims(sweep, runs, statement.read(folder), args), sweeps.load(sweep)
        files = not (args.html or args.latex)
        drawn = [] if args.latex else draw(sweep, tested, args, files)
        if args.latex:
            write(args.out / f"{sweep}.tex", page.latex(sweep, tested))
        elif args.html or args.sweep == ALL:
            how = f"python scripts/figures.py {sweep} --html --runs {folder} --out {args.out}"
            write(args.out / f"{sweep}.html", page.html(sweep, module.FIGURE, tested, unread, drawn, how))
        if files:
            print_tables(sweep, tested, unread, args)
            rows += [row for suite, claims in tested for row in claims_csv(suite, claims)]
            if args.images and hasattr(module, "also"):
                module.also(folder, args.out)
    if rows:
        pd.DataFrame(rows).to_csv(args.out / f"{args.sweep}_claims.csv", index=False)
    absent = [sweep for sweep in sweeps.names() if sweep not in found] if args.sweep == ALL else []
    if absent:
        print("no runs of:", " ".join(absent))


def write(path, text):
    path.write_text(text)
    print(f"{path}  {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(parse_args(sys.argv[1:]))
