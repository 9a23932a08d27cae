"""Several runs of one script in one process: what a command line asks for, and their run directories side by side.

The script computes for S agents at once. Each has a `rundir.Run` of its own, which knows of no other. What they share
is here: the list of runs, signals, one progress bar, and how the state of S agents is cut into theirs. Python 3.8.
"""

from __future__ import annotations

import contextlib
import io
import json
import resource
import shlex
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import AbstractSet, Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from support import arguments, devices, diagnostics, progress, reading, recipe, rundir
from support.arguments import ALONE, OWN, SCALARS, fail
from support.signals import Signals, exit_code_of


class Line(NamedTuple):
    """A run that is asked for: its checked arguments, and the command line that makes it alone."""

    args: Any
    words: List[str]


# ---- command lines ---------------------------------------------------------------------------------------------------
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
        text = Path(path).read_text()
        commands = [shlex.split(line) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    except (OSError, ValueError) as error:  # ValueError: it is no text, or a quotation is not closed
        fail(f"--runs {path} cannot be read ({error}): expected a file with the flags of a run in each line")
    if not commands:
        fail(f"--runs {path} names no run: expected the flags of a run in each line")
    found: List[Optional[Line]] = []
    for words in commands:
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                found.append(Line(parse_args(words), words))
        except SystemExit:
            found.append(None)
            print(f"{said.getvalue().strip()} (in the line {shlex.join(words)})", file=sys.stderr)
        else:
            print(said.getvalue(), end="", file=sys.stderr)
    return found


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
            fail("--schedule noise trains one run in a process: each would change its shape at another time")
        if devices.NUM_RANKS > 1:
            fail("torchrun trains one run: expected neither --num-seeds nor --runs")
    for folder in {args.runs_dir for args in runs} if together else ():  # or each run would complain
        with arguments.writable("runs-dir", Path(folder)):
            tempfile.TemporaryFile(dir=folder).close()


# ---- packs -----------------------------------------------------------------------------------------------------------
def packs(lines: Sequence[Optional[Line]], device: Any) -> Iterator[Pack]:
    """The packs in which the runs can train, one after the other.

    Runs that are finished, locked or refused are named and left out. Ends the program when the last pack has ended,
    with 0 if all runs are done, 130 or 143 after a signal, 3 if one has diverged, 2 if one was refused.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # a run keeps three files open
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    signals, codes = Signals(), {2 for line in lines if line is None}
    asked = [line for line in lines if line]
    groups: Dict[str, List[Line]] = {}
    for line in asked:
        groups.setdefault(_arguments(line.args, OWN), []).append(line)
    for group in groups.values():
        for members in [] if signals.received else _claimed(group, device, signals, codes, len(lines) == 1):
            if not signals.received:
                yield Pack(members, signals, device)
                codes |= {run.exit_code for run in members}
    codes |= {exit_code_of(signum) for signum in signals.received[:1]}
    if len(lines) > 1:
        _print_summary(asked, len(lines))
    sys.exit(next((code for code in (130, 143, 3, 2) if code in codes), 0))


def _arguments(args: Any, without: AbstractSet[str]) -> str:
    """The arguments but for some, as one text."""
    return json.dumps({name: value for name, value in vars(args).items() if name not in without}, sort_keys=True)


def _claimed(
    lines: Sequence[Line], device: Any, signals: Signals, codes: Set[int], alone: bool
) -> List[List[rundir.Run]]:
    """The runs whose directories this process gets, in lists of those that can train together.

    The runs of a list are at one step, and agree in all of their states that has no axis of agents, which runs with
    different parents may not. codes: gets the exit codes of the others.
    """
    found: Dict[Tuple[int, int, str], List[rundir.Run]] = {}
    for args, words in lines:
        try:
            run = rundir.Run(args, device, words, signals, alone)
        except SystemExit as end:
            codes.add(int(end.code or 0))
            continue
        shared = {part: _shared(state) for part, state in (run.checkpoint or {}).items() if part != "run"}
        found.setdefault((run.global_step, run.parent_step, repr(shared)), []).append(run)
    return [members for _, members in sorted(found.items())]


def _print_summary(lines: Sequence[Line], number: int) -> None:
    """How many of a number of runs are finished and, if they differ in their seeds alone, the mean of their scores.

    lines: of the runs that were not refused.
    """
    results = [reading.read_json(Path(args.runs_dir, args.run_name, "done.json")) for args, _ in lines]
    text = f"{sum(map(bool, results))} of {number} runs are finished"
    name = "final_return" if lines and lines[0].args.eval_episodes else "episodic_return"
    scores = [result[name] for result in results if result.get(name) is not None]
    if scores and len({_arguments(args, {"seed", "run_name"}) for args, _ in lines}) == 1:
        interval = rundir.bootstrap_ci(scores)
        text += f": {name} {sum(scores) / len(scores):.1f}"
        text += " [{:.1f}, {:.1f}] (mean, its 95 % interval)".format(*interval) if interval else ""
    print(text)


class Stats(rundir.Stats):
    """rundir.Stats of S agents: the values are tensors (S, ...)."""

    def means(self) -> Dict[str, Any]:
        """The mean of each name since the last call, (S, ...)."""
        means = {name: total / self.counts[name] for name, total in self.sums.items()}
        self.sums, self.counts = {}, {}
        return means


class Pack:
    """The runs of S agents that train together, with what a script needs of `rundir.Run`, for all of them.

    Attributes: `members`, the S runs; `seeds`; `args`, the arguments with SCALARS as tensors (S, 1): float32 on the
    device, the learning rate float64 on the CPU; `schedule` and `total_steps`, the same for all; `diverged`, the
    numbers of such runs.
    """

    def __init__(self, members: List[rundir.Run], signals: Signals, device: Any) -> None:
        import torch

        self.members, first = members, members[0]
        signals.runs = members
        self.seeds = [run.args.seed for run in members]
        self.schedule, self.total_steps, self._step = first.schedule, first.total_steps, first.global_step
        scalars = {
            name: torch.tensor([[float(getattr(run.args, name))] for run in members], dtype=torch.float64)
            for name in SCALARS
        }
        rate = scalars.pop("learning_rate")
        scalars = {name: x.to(device, torch.float32) for name, x in scalars.items()}
        self.args = replace(first.args, learning_rate=rate, **scalars)
        self.diverged: List[int] = []
        self._bar: Any = None
        if len(members) > 1:
            lines = recipe.plan(sys.argv[0], vars(first.args), self.schedule, self._step, len(members))
            print(*lines, sep="\n", flush=True)
        self._line_time, self._line_step = time.monotonic(), self._step

    @property
    def ended(self) -> bool:
        return all(run.ended for run in self.members)

    @property
    def training(self) -> List[Tuple[int, rundir.Run]]:
        """The runs that have not ended, with their numbers."""
        return [(s, run) for s, run in enumerate(self.members) if not run.ended]

    @property
    def global_step(self) -> int:
        return self._step

    @global_step.setter
    def global_step(self, step: int) -> None:
        self._step = step
        for _, run in self.training:
            run.global_step = step

    def restore(self, **parts: Any) -> None:
        """Names what the checkpoints keep, and gives each part what they have of it; None is no part.

        The tensors of a part have a leading axis of agents, a list an item for each; all else is the same for all.
        """
        size = len(self.members)
        parts = {name: part for name, part in parts.items() if part is not None}
        for s, run in enumerate(self.members):
            of_run = {name: x[s] if isinstance(x, list) else _Slice(x, s, size) for name, x in parts.items()}
            run.restore(**of_run)
        if size > 1:
            from tqdm import tqdm

            self._bar = tqdm(
                total=self.total_steps * size,
                initial=self._step * size,
                disable=None,
                dynamic_ncols=True,
                bar_format=f"{self.args.env_id} x {size} "
                "{percentage:3.0f}%|{bar}| {n:,}/{total:,} steps{postfix}  ETA {remaining}",
            )

    def at_log_point(self, batch_size: int) -> bool:
        return self.training[0][1].at_log_point(batch_size)

    def add_games(self, *columns: Sequence[Any]) -> None:
        """Run.add_games for each run; each of its arguments has an item for each agent."""
        for s, run in self.training:
            run.add_games(*(column[s] for column in columns))

    def stop_diverged(self, suspects: Dict[str, Any]) -> None:
        """Ends the runs in which a tensor is not finite. suspects: {name: tensor (S, ...)}, as for Run.all_finite."""
        import torch

        finite = torch.stack([x.isfinite().flatten(1).all(1).cpu() for x in suspects.values()]).all(0)  # (S,)
        for s, run in self.training:
            looks = not finite[s] or devices.NUM_RANKS > 1  # under torchrun all processes have to look
            if looks and not run.all_finite({name: x[s] for name, x in suspects.items()}):
                self.diverged.append(s)

    def add_coverage(self, valid: Any, **columns: Any) -> None:
        """Adds rows to each coverage.npz, of those that are valid (S, R). columns: tensors (S, R, ...)."""
        for s, run in self.training:
            rows = valid[s].nonzero().squeeze(-1)
            rows = rows[diagnostics.stratified_rows(len(rows), run.coverage_quota(), seed=self._step)]
            run.add_coverage(**{name: column[s, rows].cpu().numpy() for name, column in columns.items()})

    def log(self, scalars: Dict[str, Any], of_agents: Sequence[Dict[str, float]]) -> None:
        """Writes one point of every curve of each run at the present step.

        scalars: {tag: tensor of S numbers, or a number for all}. of_agents: S dicts of further points.
        """
        import torch

        number = len(self.members)
        columns = {
            tag: x.flatten().tolist() if isinstance(x, torch.Tensor) else [x] * number for tag, x in scalars.items()
        }
        for s, run in self.training:
            run.log({**{tag: column[s] for tag, column in columns.items()}, **of_agents[s], **run.charts()})

    def end_iteration(self) -> None:
        """Shows progress, writes checkpoints if they are due, and ends the runs after the last step or a signal."""
        training = [run for _, run in self.training]
        for run in training:
            run.end_iteration()
        if self._bar is not None:
            self._show_progress(training)

    def _show_progress(self, runs: Sequence[rundir.Run]) -> None:
        from tqdm import tqdm

        now, steps = time.monotonic(), self._step * len(self.members)
        sps = (self._step - self._line_step) * len(runs) / max(now - self._line_time, 1e-9)
        scores = [score for score in (run.mean_return() for run in runs) if score is not None]
        text = f"{sps:.0f} SPS  return " + (f"{sum(scores) / len(scores):.1f}" if scores else "-")
        self._bar.set_postfix_str(text, refresh=False)
        self._bar.update(steps - self._bar.n)
        if now - self._line_time >= progress.LINE_SECONDS or runs[0].ended:
            if self._bar.disable:
                eta = tqdm.format_interval((self.total_steps - self._step) * len(runs) / max(sps, 1e-9))
                total = f"{steps:,}/{self._bar.total:,} steps"
                print(f"{self.args.env_id} x {len(self.members)} {total}  {text}  ETA {eta}", flush=True)
            self._line_time, self._line_step = now, self._step

    def finish(self, play: Callable[[List[List[int]], range, Any], Sequence[List[float]]]) -> None:
        """Plays the final games of the runs that are done, and closes all.

        play(seeds, games, bar) -> the returns (S, games) of games with the final networks. seeds: S lists; games: a
        range of indices into each.
        """
        if self._bar is not None:
            self._bar.close()
        seeds = [rundir.game_seeds(run.args.seed, "eval", 0, range(run.args.eval_episodes)) for run in self.members]
        games, returns = devices.share(len(seeds[0])), [[] for _ in self.members]  # type: range, Sequence[List[float]]
        if games and any(run.exit_code == 0 for run in self.members):
            with progress.progress_bar(len(games) * len(seeds), "game", "evaluation episodes") as bar:
                returns = play(seeds, games, bar)
        for run, of_run in zip(self.members, returns):
            run.finish(of_run if run.exit_code == 0 else [])


# ---- what a checkpoint keeps of an agent -----------------------------------------------------------------------------
def _has_axis(value: Any) -> bool:
    """Whether a value of a state has something of its own for each agent: tensors but for numbers, and lists."""
    return isinstance(value, list) or getattr(value, "ndim", 0) > 0


def _shared(state: Any) -> Any:
    """What in the state of a part is the same for all agents."""
    if isinstance(state, dict):
        return {name: _shared(value) for name, value in state.items()}
    return None if _has_axis(state) else state


class _Slice:
    """What agent `s` has of a part of the state of S agents, as a part of its own run."""

    def __init__(self, part: Any, s: int, num_agents: int) -> None:
        self.part, self.s, self.num_agents = part, s, num_agents

    def _state(self) -> Dict[str, Any]:
        return vars(self.part) if isinstance(self.part, SimpleNamespace) else self.part.state_dict()

    def state_dict(self) -> Dict[str, Any]:
        return self._cut(self._state())

    def _cut(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._cut(x) for name, x in value.items()}
        if isinstance(value, list):
            return value[self.s]
        # a copy: torch.save would write all that a view is a part of
        return value[self.s : self.s + 1].clone() if _has_axis(value) else value

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        self._fill(self._state(), state)

    def _fill(self, own: Dict[str, Any], state: Dict[str, Any]) -> None:
        for name, value in state.items():
            if isinstance(value, dict):
                self._fill(own[name], value)
            elif isinstance(own.get(name), list):
                own[name][self.s] = value
            elif _has_axis(value):
                if name not in own:  # a sum that has begun before
                    own[name] = value.new_zeros((self.num_agents, *value.shape[1:]))
                own[name][self.s : self.s + 1].copy_(value)
            elif hasattr(own.get(name), "copy_"):  # a number of a module
                own[name].copy_(value)
            else:
                own[name] = value
