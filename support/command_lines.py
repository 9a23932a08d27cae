"""The runs that a command line asks for: one, those of --num-seeds, or those of the file of --runs. Python 3.8."""

from __future__ import annotations

import contextlib
import io
import shlex
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, List, NamedTuple, Optional, Sequence

from support import arguments
from support.arguments import ALONE, check_text, fail, from_start
from support.reading.files import read_bytes, shown


class Line(NamedTuple):
    """A run that is asked for: its checked arguments, and the command line that makes it alone."""

    args: Any
    words: List[str]


def lines(args: Any, parse_args: Callable[[List[str]], Any]) -> List[Optional[Line]]:
    """The runs that this process's command line asks for: that of args, unless --num-seeds or --runs ask for more.

    None stands for a line of --runs that is refused, after its error, which names the line.
    """
    argv = sys.argv[1:]
    if args.runs is None and args.num_seeds == 1:
        return [Line(args, argv)]
    found = _of_seeds(args, argv) if args.runs is None else _of_file(args.runs, argv, parse_args)
    _check([line.args for line in found if line], together=len(found) > 1)
    return found


def _of_seeds(args: Any, argv: List[str]) -> List[Optional[Line]]:
    """The runs of --num-seeds: with the seeds from --seed on, in the directories RUN_NAME/sSEED."""
    seeds = range(args.seed, args.seed + args.num_seeds)
    if seeds[-1] >= 2**31:
        fail(f"--num-seeds {args.num_seeds} from --seed {args.seed} on: expected seeds of at most {2**31 - 1:,}")
    folder = Path(args.runs_dir, args.run_name)
    if (folder / "manifest.json").exists():  # evaluate.py would play that run, not the best of these
        fail(f"--run-name {args.run_name}: {folder} is a run: expected another name for a directory of --num-seeds")
    names = {seed: f"{args.run_name}/s{seed}" for seed in seeds}
    words = without(argv, "num_seeds", "seed", "run_name")
    return [
        Line(replace(args, seed=seed, run_name=name, num_seeds=1), [*words, "--seed", str(seed), "--run-name", name])
        for seed, name in names.items()
    ]


def _of_file(path: str, argv: List[str], parse_args: Callable[[List[str]], Any]) -> List[Optional[Line]]:
    """The runs of --runs: each line is parsed as if it stood alone."""
    others = without(argv, "runs")
    if others:
        fail(f"--runs and {others[0]} exclude each other: expected all flags in the lines of the file")
    try:
        text = read_bytes(from_start(path)).decode(errors="surrogateescape")
    except OSError as error:
        fail(f"--runs {path} cannot be read ({error}): expected a file with the flags of a run in each line")
    commands = [line for line in text.split("\n") if line.strip() and not line.startswith("#")]
    if not commands:
        fail(f"--runs {path} names no run: expected the flags of a run in each line")
    found: List[Optional[Line]] = []
    for line in commands:
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                words = split(line)
                found.append(Line(parse_args(words), words))
        except SystemExit:
            found.append(None)
            print(f"{said.getvalue().strip()} (in the line {shown(line)})", file=sys.stderr)
        else:
            print(said.getvalue(), end="", file=sys.stderr)
    return found


def split(line: str) -> List[str]:
    """The words of a line as a shell reads them. Ends the program with one line if they are none."""
    check_text("the words", line)
    try:
        return shlex.split(line)
    except ValueError as error:
        fail(f"{error}: expected words as a shell reads them")


def without(argv: Sequence[str], *names: str) -> List[str]:
    """The words of a command line without some flags, each of which takes one value."""
    kept, skip = [], False
    for word in argv:
        flag, equals, _ = word.partition("=")
        if skip:
            skip = False
        elif flag.startswith("--") and flag[2:].replace("-", "_") in names:
            skip = not equals
        else:
            kept.append(word)
    return kept


def _check(runs: Sequence[Any], together: bool) -> None:
    """Ends the program with one line if runs are asked for that cannot be trained by one process."""
    names = [str(Path(args.runs_dir, args.run_name)) for args in runs]
    for args, name in zip(runs, names):
        if names.count(name) > 1:
            fail(f"--run-name {args.run_name} is that of {names.count(name)} runs: expected a name for each")
        if args.runs is not None or args.num_seeds > 1:
            fail("--runs and --num-seeds stand in no line of a file: expected the flags of one run")
        if not together:
            continue
        for flag, value in ALONE.items():
            if getattr(args, flag) != value:
                fail(f"--{flag.replace('_', '-')} trains one run in a process: expected neither --num-seeds nor --runs")
        if str(args.schedule).startswith("noise"):
            fail("--schedule noise trains one run in a process: each would change its N at another time")
    for folder in {args.runs_dir for args in runs} if together else ():  # or each run would complain
        with arguments.writable("runs-dir", Path(folder)):
            tempfile.TemporaryFile(dir=from_start(folder)).close()
