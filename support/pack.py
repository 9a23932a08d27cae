"""Several agents in one process: their run directories side by side. A pack is the runs that train together.

The script computes for S agents at once. Each has a `rundir.Run` of its own, which knows of no other. What they share
is here: signals, one progress bar, and how the state of S agents is cut into theirs. Python 3.8.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import AbstractSet, Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

import metrics
from support import devices, progress, recipe, rundir, several_seeds
from support.arguments import OWN, SCALARS, fail, from_start
from support.command_lines import Line
from support.envs.episodes import env_seeds, mean_interval
from support.reading.files import read_json
from support.signals import Signals, exit_code_of

FILES, SPARE_FILES = 3, 16  # that a run keeps open; that imports and saving need for a moment


# ---- packs -----------------------------------------------------------------------------------------------------------
def packs(lines: Sequence[Optional[Line]], device: Any) -> Iterator[Pack]:
    """The packs in which the runs can train, one after the other.

    Runs that are finished, locked or refused are named and left out. Ends the program when the last pack has ended,
    with 0 if all runs are done, 130 or 143 after a signal, 3 if one has diverged, 2 if one was refused.
    """
    signals, codes = Signals(), {2 for line in lines if line is None}
    asked = [line for line in lines if line]
    groups: Dict[str, List[Line]] = {}
    for line in asked:
        groups.setdefault(_arguments(line.args, OWN), []).append(line)
    _allow_files(max(map(len, groups.values()), default=0))
    for group in groups.values():
        for members in [] if signals.received else _claimed(group, device, signals, codes, len(lines) == 1):
            if not signals.received:
                yield Pack(members, signals, device)
                codes |= {run.exit_code for run in members}
    codes |= {exit_code_of(signum) for signum in signals.received[:1]}
    if len(lines) > 1:
        _print_summary(asked, len(lines))
        _print_table(asked)
    sys.exit(next((code for code in (130, 143, 3, 2) if code in codes), 0))


def _allow_files(number: int) -> None:
    """Raises the limit of open files as far as may be. Ends the program with one line if it is too low for the runs.

    number: of the runs that are open at a time.
    """
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    room = limit - len(os.listdir("/dev/fd")) - SPARE_FILES
    if limit != resource.RLIM_INFINITY and FILES * number > room:
        fail(
            f"{number} runs in one process need {FILES * number} more open files, and `ulimit -n` is {limit:,}: "
            f"expected at most {max(room // FILES, 1)} runs"
        )


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
    results = [read_json(from_start(Path(args.runs_dir, args.run_name, "done.json"))) for args, _ in lines]
    text = f"{sum(map(bool, results))} of {number} runs are finished"
    name = "final_return" if lines and lines[0].args.eval_episodes else "episodic_return"
    scores = [result[name] for result in results if result.get(name) is not None]
    if scores and len({_arguments(args, {"seed", "run_name"}) for args, _ in lines}) == 1:
        interval = mean_interval(scores)
        text += f": {name} {sum(scores) / len(scores):.1f}"
        text += " [{:.1f}, {:.1f}] (mean, its 95 % interval)".format(*interval) if interval else ""
    print(text)
    without = [args for (args, _), done in zip(lines, results) if done and done.get("episodic_return") is None]
    if without:
        print(f"note: in {len(without)} of them {rundir.no_episode(without[0], without[0].total_timesteps)}")


def _print_table(lines: Sequence[Line]) -> None:
    """A table of all runs in the directory of --num-seeds, and the best of them."""
    folders = {Path(args.runs_dir, args.run_name).parent for args, _ in lines}
    if len(folders) != 1 or any(Path(args.run_name).name != f"s{args.seed}" for args, _ in lines):
        return
    (folder,) = folders
    try:
        runs = several_seeds.members(from_start(folder))
        print(*several_seeds.table(runs), sep="\n")
        print(f"{several_seeds.best(folder, runs)[1]}; scripts/evaluate.py {shlex.quote(str(folder))} plays it")
    except ValueError as error:
        print(f"note: {folder}: {error}", file=sys.stderr)


class Stats(rundir.Stats):
    """rundir.Stats of S agents: the values are tensors (S, ...).

    noise_due: the step from which the gradient's noise is measured again; points: what metrics.outer_loop gets of each
    agent; led: of --schedule noise, doublings of the smallest N, and sums of what was measured with this N.
    """

    def __init__(self, num_agents: int, **kept: Any) -> None:
        super().__init__(noise_due=0, points=[[] for _ in range(num_agents)], led=(0, 0.0, 0.0), **kept)

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
        self._signals = signals
        self._meter: Any = None
        if len(members) > 1:
            by_law = all(run.by_law for run in members)
            lines = recipe.plan(sys.argv[0], vars(first.args), self.schedule, self._step, len(members), by_law)
            print(*lines, sep="\n", flush=True)

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
            run.copies = self.members[0].copies
        if not self.members[0].alone:
            self._meter = progress.Meter(self.args.env_id, self.total_steps, self._step, size)

    def at_log_point(self, batch_size: int) -> bool:
        return self.training[0][1].at_log_point(batch_size)

    def add_episodes(self, *columns: Sequence[Any]) -> None:
        """Run.add_episodes for each run; each of its arguments has an item for each agent."""
        for s, run in self.training:
            run.add_episodes(*(column[s] for column in columns))

    def stop_diverged(self, suspects: Dict[str, Any]) -> None:
        """Ends the runs in which a tensor is not finite. suspects: {name: tensor (S, ...)}, as for Run.all_finite."""
        import torch

        # those on the CPU are looked at there: one copy from a GPU brings the answers of the others
        places: Dict[Any, List[Any]] = {}
        for x in suspects.values():
            places.setdefault(x.device, []).append(x.isfinite().flatten(1).all(1))
        finite = torch.stack([torch.stack(found).all(0).cpu() for found in places.values()]).all(0)  # (S,)
        for s, run in self.training:
            if not finite[s] and not run.all_finite({name: x[s] for name, x in suspects.items()}):
                self.diverged.append(s)

    def add_coverage(self, valid: Any, **columns: Any) -> None:
        """Adds rows to each coverage.npz, of those that are valid (S, R). columns: tensors (S, R, ...)."""
        for s, run in self.training:
            rows = valid[s].nonzero().squeeze(-1)
            rows = rows[metrics.stratified_rows(len(rows), run.coverage_quota(), seed=self._step)]
            run.add_coverage(**{name: column[s, rows].cpu().numpy() for name, column in columns.items()})

    def log(self, scalars: Dict[str, Any], of_agents: Sequence[Dict[str, float]]) -> None:
        """Writes one point of every curve of each run at the present step.

        scalars: {tag: tensor of S numbers, or a number for all}. of_agents: S dicts of further points.
        """
        import torch

        number = len(self.members)
        flat = {tag: x.flatten() if isinstance(x, torch.Tensor) else x for tag, x in scalars.items()}
        columns = {tag: x if isinstance(x, list) else [x] * number for tag, x in devices.numbers(flat).items()}
        for s, run in self.training:
            run.log({**{tag: column[s] for tag, column in columns.items()}, **of_agents[s], **run.charts()})

    def noise_is_due(self, stats: Any, batch_size: int) -> bool:
        """Whether the gradient's noise is measured now: at log points, and more often where --schedule lets it lead N.

        If so, `stats.noise_due` becomes the step of the next time, at the earliest.
        """
        wanted = self.schedule.bounds or (self.args.diagnostics and self.at_log_point(batch_size))
        if not wanted or self._step < stats.noise_due:
            return False
        stats.noise_due = self._step + self.schedule.noise_interval * batch_size
        return True

    def follow_noise(self, stats: Any, scales: Sequence[Dict[str, float]], batch_size: int) -> None:
        """Lets --schedule noise choose the next N, in `stats.led`, by what was measured of a batch."""
        if self.schedule.bounds and scales[0]:
            signal, noise = (scales[0][f"grad_noise_scale/{part}"] for part in ("signal", "noise"))
            stats.led = self.schedule.follow_noise(stats.led, batch_size, signal, noise)

    def add_outer(
        self, found: Sequence[Dict[str, float]], points: Sequence[Any], rows: Any, kl: Any, norm: Any
    ) -> None:
        """Adds `metrics.outer_loop` of a log point to the dicts of S agents, and the point to their points.

        rows, kl, norm: tensors (S,), of the batch, its KL and the mean norm of the gradient.
        """
        import torch

        moved = torch.stack([rows.double(), kl, norm.double()], 1).tolist()
        for run, of_run, earlier, (number, *others) in zip(self.members, found, points, moved):
            earlier.append((int(number), *others, run.mean_new_return()))
            of_run.update(metrics.outer_loop(earlier, window=max(10, self.args.num_logs // 10)))

    def tick(self, steps: int = 0) -> None:
        """Run.tick for all runs. steps: of this rollout so far, in all environments of one run."""
        if self._meter is None:
            return self.members[0].tick(steps)
        if devices.NUM_RANKS == 1:
            self._signals.exit_if_late()
        self._meter.within(self._step + steps, not steps, self._mean_return)

    def end_iteration(self) -> None:
        """Writes checkpoints if they are due, shows progress, and ends the runs after the last step or a signal."""
        training = [run for _, run in self.training]
        copies = self.members[0].copies.due  # for all, or they could not go on together
        for run in training:
            run.end_iteration(copies)
        if self._meter:
            self._meter.after(self._step, len(training), self._mean_return(), training[0].ended)

    def _mean_return(self) -> Optional[float]:
        """The mean return of the last 100 episodes of each run that has not diverged, averaged over these runs."""
        scores = [run.mean_return() for s, run in enumerate(self.members) if s not in self.diverged]
        known = [score for score in scores if score is not None]
        return sum(known) / len(known) if known else None

    def finish(self, play: Callable[[List[List[int]], range, Any], Sequence[List[float]]]) -> None:
        """Plays the evaluation episodes of the runs that are done, and closes all.

        play(seeds, episodes, bar) -> the returns (S, episodes) of episodes with the final networks. seeds: S lists;
        episodes: a range of indices into each.
        """
        if self._meter:
            self._meter.close()
        seeds = [env_seeds(run.args.seed, "eval", 0, range(run.args.eval_episodes)) for run in self.members]
        episodes, returns = range(len(seeds[0])), [[] for _ in self.members]  # type: range, Sequence[List[float]]
        if episodes and any(run.exit_code == 0 for run in self.members):
            with progress.progress_bar(len(episodes) * len(seeds), "episode", "evaluation episodes") as bar:
                returns = play(seeds, episodes, bar)
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
