"""Several runs of one script in one process: what a command line asks for, and their run directories side by side.

The script computes for S agents at once. Each has a `rundir.Run` of its own, which knows of no other. What they share
is here: a list of runs, signals, one progress bar, and how the state of S agents is cut into theirs. Python 3.8.
"""

from __future__ import annotations

import json
import shlex
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import metrics
from support import devices, rundir
from support.arguments import ALONE, OWN, PACK, SCALARS, fail


class Line(NamedTuple):
    """A run that is asked for: its checked arguments, and the command line that makes it alone."""

    args: Any
    words: List[str]


# ---- command lines ---------------------------------------------------------------------------------------------------
def lines(args: Any, parse_args: Callable[[List[str]], Any]) -> List[Optional[Line]]:
    """The runs that this process's command line asks for: that of args, unless --num-seeds or --runs ask for more.

    Each is parsed as if it stood alone. None stands for a line of --runs that is refused, after its error.
    """
    argv = sys.argv[1:]
    if args.runs is None and args.num_seeds == 1:
        return [Line(args, argv)]
    if args.runs is None:
        rest = without(argv, "num_seeds", "seed", "run_name")
        seeds = range(args.seed, args.seed + args.num_seeds)
        commands = [[*rest, "--seed", str(seed), "--run-name", f"{args.run_name}/s{seed}"] for seed in seeds]
    else:
        others = without(argv, "runs")
        if others:
            fail(f"--runs and {others[0]} exclude each other: expected all flags in the lines of the file")
        try:
            found = Path(args.runs).read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            fail(f"--runs {args.runs} cannot be read ({error}): expected a file with the flags of a run in each line")
        commands = [shlex.split(line) for line in found if line.strip() and not line.startswith("#")]
    parsed = [_parse_one(words, parse_args) for words in commands]
    _check(parsed)
    return parsed


def _parse_one(words: List[str], parse_args: Callable[[List[str]], Any]) -> Optional[Line]:
    try:
        return Line(parse_args(words), words)
    except SystemExit:
        return None


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


def _check(lines: Sequence[Optional[Line]]) -> None:
    """Ends the program with one line if runs are asked for together that cannot be."""
    runs = [line.args for line in lines if line]
    paths = [str(Path(args.runs_dir, args.run_name)) for args in runs]
    if not lines:
        fail("--runs names a file without a run: expected the flags of a run in each line")
    for args, path in zip(runs, paths):
        if paths.count(path) > 1:
            fail(f"--run-name {args.run_name} is that of {paths.count(path)} runs: expected a name for each")
        if any(getattr(args, name) for name in PACK if name != "num_seeds") or args.num_seeds > 1:
            fail("--runs and --num-seeds stand in no line of a file: expected the flags of one run")
        if len(lines) == 1:
            continue
        for name, value in ALONE.items():
            if getattr(args, name) != value:
                fail(f"--{name.replace('_', '-')} trains one run in a process: expected neither --num-seeds nor --runs")
        if str(args.schedule).startswith("noise"):
            fail("--schedule noise trains one run in a process: each would change its shape at another time")
        if devices.NUM_RANKS > 1:
            fail("torchrun trains one run: expected neither --num-seeds nor --runs")


# ---- packs -----------------------------------------------------------------------------------------------------------
def packs(lines: Sequence[Optional[Line]], device: Any) -> Iterator[Pack]:
    """The packs in which the runs can train, one after the other; each is claimed when its turn comes.

    A pack is runs that differ in OWN alone and stand at one step of one parent's step. Runs that are finished, locked
    or refused are named and left out. Ends the program when the last has ended, with 0 if all runs are done, 130 or 143
    after a signal, 3 if one has diverged, 2 if one was refused.
    """
    groups: Dict[str, List[Line]] = {}
    for line in filter(None, lines):
        kept = {name: value for name, value in vars(line.args).items() if name not in OWN}
        groups.setdefault(json.dumps(kept, sort_keys=True, default=str), []).append(line)
    codes = [2 for line in lines if line is None]
    for group in groups.values():
        by_step: Dict[Tuple[int, int], List[rundir.Run]] = {}
        for args, words in group:
            try:
                run = rundir.Run(args, device, words, alone=len(lines) == 1)
                by_step.setdefault((run.global_step, run.parent_step), []).append(run)
            except SystemExit as end:
                codes.append(int(end.code or 0))
        for _, members in sorted(by_step.items()):
            pack = Pack(members)
            yield pack
            codes += [run.exit_code for run in members]
            if {130, 143} & set(codes):
                break
    sys.exit(next((code for code in (130, 143, 3, 2) if code in codes), 0))


class Pack:
    """The runs of S agents that train together, with what a script needs of `rundir.Run`, for all of them.

    Attributes: `members`, the S runs; `seeds`; `args`, the arguments with SCALARS as tensors (S, 1): float32, the
    learning rate float64; `schedule` and `total_steps`, the same for all; `diverged`, the numbers of such runs.
    """

    def __init__(self, members: List[rundir.Run]) -> None:
        import torch

        self.members, first = members, members[0]
        self.seeds = [run.args.seed for run in members]
        self.schedule, self.total_steps, self._step = first.schedule, first.total_steps, first.global_step
        scalars = {
            name: torch.tensor([[float(getattr(run.args, name))] for run in members], dtype=torch.float64)
            for name in SCALARS
        }
        rate = scalars.pop("learning_rate")
        self.args = replace(first.args, learning_rate=rate, **{name: x.float() for name, x in scalars.items()})
        self.diverged: List[int] = []
        self._bar: Any = None
        self._line_time, self._line_step = time.monotonic(), self._step
        if len(members) > 1:
            for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
                if signal.getsignal(signum) is not signal.SIG_IGN:
                    signal.signal(signum, self._request_stop)

    def _request_stop(self, signum: int, frame: Any) -> None:
        for run in self.members:
            if not run.ended:
                run.request_stop(signum, frame)
        if self.ended:  # the last checkpoints are written
            sys.exit(130 if signum == signal.SIGINT else 143)

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
        """Names what the checkpoints keep, and gives each part what they have of it.

        The tensors of a part have a leading axis of agents, a list an item for each; all else is the same for all.
        """
        for s, run in enumerate(self.members):
            run.restore(**{name: part[s] if isinstance(part, list) else Slice(part, s) for name, part in parts.items()})
        if len(self.members) > 1:
            from tqdm import tqdm

            self._bar = tqdm(
                total=self.total_steps * len(self.members),
                initial=self._step * len(self.members),
                disable=None,
                dynamic_ncols=True,
                bar_format=f"{self.args.env_id} x {len(self.members)} "
                "{percentage:3.0f}%|{bar}| {n:,}/{total:,} steps{postfix}  ETA {remaining}",
            )

    def at_log_point(self, batch_size: int) -> bool:
        return self.training[0][1].at_log_point(batch_size)

    def add_games(self, games: Sequence[Any], finished: Any) -> None:
        for s, run in self.training:
            run.add_games(games[s], finished[s])

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
            rows = rows[metrics.stratified_rows(len(rows), run.coverage_quota(), seed=self._step)]
            run.add_coverage(**{name: column[s, rows].cpu().numpy() for name, column in columns.items()})

    def mean_new_returns(self) -> List[Optional[float]]:
        """Of each run: the mean return of the games that have ended since the last log point; None if none has."""
        return [run.mean_new_return() for run in self.members]

    def log(self, scalars: Dict[str, Any], of_agents: Sequence[Dict[str, float]]) -> None:
        """Writes one point of every curve of each run at the present step.

        scalars: {tag: tensor (S,), or a number for all}. of_agents: S dicts of further points.
        """
        columns = {tag: x.tolist() if getattr(x, "ndim", 0) else [x] * len(self.members) for tag, x in scalars.items()}
        for s, run in self.training:
            points = {tag: column[s] for tag, column in columns.items()}
            run.log({**run.charts(), **points, **of_agents[s]})

    def end_iteration(self) -> None:
        """Shows progress, writes checkpoints if they are due, and ends the runs after the last step or a signal."""
        training = self.training
        for _, run in training:
            run.end_iteration()
        if self._bar is not None and training:
            self._show_progress([run for _, run in training])

    def _show_progress(self, runs: Sequence[rundir.Run]) -> None:
        from tqdm import tqdm

        now, steps = time.monotonic(), self._step * len(self.members)
        sps = (self._step - self._line_step) * len(runs) / max(now - self._line_time, 1e-9)
        scores = [score for score in (run.mean_return() for run in runs) if score is not None]
        text = f"{sps:.0f} SPS  return " + (f"{sum(scores) / len(scores):.1f}" if scores else "-")
        self._bar.set_postfix_str(text, refresh=False)
        self._bar.update(steps - self._bar.n)
        if now - self._line_time >= 30 or runs[0].ended:
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
        games = devices.share(len(seeds[0]))
        returns: Sequence[List[float]] = [[] for _ in self.members]
        if games and any(run.exit_code == 0 for run in self.members):
            with rundir.progress_bar(len(games) * len(seeds), "game", "final games") as bar:
                returns = play(seeds, games, bar)
        done = [run.finish(of_run) for run, of_run in zip(self.members, returns)]
        scores = [result.get("final_return", result["episodic_return"]) for result in done if result]
        if len(self.members) > 1 and None not in scores and scores:
            name = "final return" if self.args.eval_episodes else "return of the last 100 games"
            low, high = rundir.bootstrap_ci(scores) or (float("nan"),) * 2
            where = f"{len(scores)} of {len(self.members)} runs are finished"
            print(
                f"{where}: {name} {sum(scores) / len(scores):.1f} [{low:.1f}, {high:.1f}] (mean, 95 % interval of it)"
            )


class Slice:
    """What agent `s` has of a part of the state of S agents: what its checkpoint keeps.

    Tensors of the part have a leading axis of agents, lists an item for each; all else is shared.
    """

    def __init__(self, part: Any, s: int) -> None:
        self.part, self.s = part, s

    def _state(self) -> Dict[str, Any]:
        return vars(self.part) if isinstance(self.part, SimpleNamespace) else self.part.state_dict()

    def state_dict(self) -> Dict[str, Any]:
        return {name: self._cut(value) for name, value in self._state().items()}

    def _cut(self, value: Any) -> Any:
        if isinstance(value, list):
            return value[self.s]
        # a copy: torch.save would write all that a view is a part of
        return value[self.s : self.s + 1].clone() if getattr(value, "ndim", 0) else value

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        own = self._state()
        for name, value in state.items():
            if isinstance(own[name], list):
                own[name][self.s] = value
            elif getattr(own[name], "ndim", 0):
                own[name][self.s : self.s + 1].copy_(value)
            elif hasattr(own[name], "copy_"):  # a number of a module
                own[name].copy_(value)
            else:
                own[name] = value
