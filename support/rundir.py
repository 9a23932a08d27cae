"""A run while it trains: how it begins, resumes, is watched, stops and finishes.

`Run` owns the run directory. The script keeps control: it calls `run.log(...)`, `run.end_iteration()` and so on from
its own loop, and nothing here knows what the numbers mean.

A run directory holds `manifest.json`, TensorBoard event files, the same points as `curves.csv`, `checkpoint.pt` and the
one before it, `best.pt`, `coverage.npz`, and at the end `done.json` or `failed.json`. Curves grow; each other file is
replaced as a whole. A crash at any time leaves a readable directory. Python 3.8, for Isaac Gym.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import itertools
import json
import math
import os
import shlex
import subprocess
import sys
import time
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, NoReturn, Optional, Sequence, Tuple

from support import devices, events, origin, progress, recipe, tags
from support.arguments import fail, from_start, writable
from support.best import Best
from support.envs.episodes import env_seeds, mean_interval
from support.reading.curves import CURVES, CurvesFile
from support.reading.files import (
    FORMAT,
    checkpoints,
    load_checkpoint,
    newest_checkpoint,
    no_link,
    read_arrays,
    read_files,
    read_json,
    shown,
    write_atomically,
)
from support.reading.manifests import begun_with, difference, names_rate
from support.signals import Signals, exit_code_of
from support.state import Copies
from support.state import Stats as Stats  # rundir.Stats, to the scripts

ROOT = Path(__file__).resolve().parent.parent
COVERAGE_ROWS = 4096  # in coverage.npz, over the whole run: as many as UMAP takes with ease
OF_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EMFILE)  # no file can be written
BUSY = "is being written by a live process"  # part of the message when a directory is taken


@contextlib.contextmanager
def full_disk_in_one_line() -> Iterator[None]:
    """How a training script ends: whatever happens inside, the runs keep their last complete iteration.

    That is so if the task, or anything else, raises an error, and if a signal ends the program within an iteration. An
    output that nobody reads is no error. If a run cannot write its files the program ends with one line and exit code
    1, in place of a traceback: the disk is full or broken, a file would be larger than `ulimit -f` allows, or the
    run's directory has gone.
    """
    with progress.unbroken_output():
        try:
            yield
        except BaseException as error:
            text = _of_disk(error)
            if text:
                print(f"error: {text} resumes from the last checkpoint", file=sys.stderr)
                sys.stdout.flush()
                os._exit(1)  # nothing else is left to flush to a full disk
            code = error.code if isinstance(error, SystemExit) else 1
            for run in [run for run in _OPEN if run.is_open]:
                run.abandon(code if isinstance(code, int) else 1)
            raise


def _of_disk(error: BaseException) -> str:
    """What keeps a run from writing its files, and which command helps, as the beginning of a line; "" if nothing."""
    if not isinstance(error, OSError):
        return ""
    path = Path(os.fsdecode(error.filename or b""))
    if error.errno == errno.ENOENT and path.name and not path.parent.exists():
        return f"{path.parent} has been moved or deleted; the same command with its new --run-name"
    if isinstance(error, PermissionError) and any(run.path == path.parent for run in _OPEN):
        return f"{path}: {error.strerror}; the same command"
    return f"{error.strerror}; the same command" if error.errno in OF_DISK else ""


_OPEN: "weakref.WeakSet[Run]" = weakref.WeakSet()  # those of this process


def no_episode(args: Any, steps: int) -> str:
    """Why a run that has made so many steps has no return, and what helps."""
    return (
        f"no episode has ended in {steps:,} steps of {args.num_envs:,} environments, so there is no return: expected "
        "more --total-timesteps, or a task with a time limit"
    )


class Run:
    """The run directory of a training script, from its claim to done.json.

        run = rundir.Run(args, device)                          # claims the directory; exits if the run is finished
        stats = rundir.Stats(gradient_steps=0)
        run.restore(agent=agent, optimizer=optimizer, rng=rng, log=stats)
        while not run.ended:
            ...
                run.tick(steps)                                 # at each step of the rollout
            run.global_step += batch_size
                run.tick()                                      # at each minibatch
            if not run.all_finite(suspects):
                break
            if run.at_log_point(batch_size):
                run.log(scalars)
            run.end_iteration()
        run.close()                                             # exits with the run's exit code

    Under torchrun each process has a Run; only the first writes, and all agree on when to stop.

    Between two checkpoints it keeps a copy of the state after the last complete iteration (`copies`): what is written
    when the program ends within an iteration (`full_disk_in_one_line`) or the run diverges.

    Attributes: `path`; `name`, the same as the user gave it; `schedule`, the N x T of the batches; `total_steps`, whole
    iterations only; `global_step`, environment steps done; `episodes`, the number of finished ones; `latest`, (return,
    length) of the last 100; `new_returns`, of the episodes that have ended since the last log point; `earned`, the sum
    of all raw rewards since then and the number of their steps; `by_law`, whether its learning rate is the default of a
    script whose default is the law's; `checkpoint`, what it resumes from until `restore`; `is_open`, from `restore` to
    `finish`; `copies`, which runs of a pack share; `ended`; `exit_code`.
    """

    is_open = False
    _unsaved: Optional[Dict[str, Any]] = None  # what checkpoint.pt would hold after a later iteration than it does
    _saved_step: Optional[int] = None  # of the newest checkpoint; None: there is none

    def __init__(
        self,
        args: Any,
        device: Any,
        words: Optional[Sequence[str]] = None,
        signals: Optional[Signals] = None,
        alone: bool = True,
    ) -> None:
        """words: the command line that makes this run alone. signals: of all runs of this process.

        alone: False if a `pack.Pack` shows the progress.
        """
        self.args, self.alone = args, alone
        self._words = sys.argv[1:] if words is None else words
        self.global_step, self.episodes, self.latest, self.new_returns = 0, 0, [], []
        self.earned = (0.0, 0)
        self.by_law = getattr(type(args)(), "learning_rate", 0) is None and not names_rate(self._words)
        self._finished: Any = 0  # episodes that each environment has finished: an array (num_envs,) from the first on
        self.exit_code, self.failure = 0, ""
        self._failed_at: Dict[str, int] = {}
        self.ended = False
        self._signals = signals or Signals()
        if signals is None:
            self._signals.runs = [self]
        args.run_name = devices.gather(args.run_name)[0]  # the default name has the time in it
        self.name = Path(args.runs_dir, args.run_name)
        self.path = from_start(self.name)
        self._coverage: Dict[str, list] = {}
        claimed: Any = None
        if devices.RANK == 0:
            try:
                claimed = self._claim(device)
            except SystemExit as end:  # finished or refused: the other processes have to know
                claimed = end.code
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                    raise
                place = shown(Path(os.fsdecode(error.filename or str(self.path))))
                print(
                    f"error: {place} ({error.strerror}): expected a directory that can be written to", file=sys.stderr
                )
                claimed = 2
        claimed = devices.gather(claimed)[0]
        if isinstance(claimed, int):
            sys.exit(claimed)
        name, parent = claimed
        parent_step = parent.get("global_step", 0)
        self.checkpoint = load_checkpoint(self.path / name, device) if name else None
        wall_seconds, self._wandb_id = 0.0, None
        self.schedule = recipe.schedule_of(vars(args), parent_step)
        self.total_steps = self.schedule.last_step
        # the first process of a run that goes on from another one's checkpoint: it counts its own episodes
        self._is_child, self.parent_step = False, parent_step
        self._draws_anew = parent.get("seed", args.seed) != args.seed  # a child with a seed of its own
        if self.checkpoint:
            self._saved_step = self.checkpoint["run"]["global_step"]
        if self._saved_step == parent_step:
            self._is_child, self.global_step = True, parent_step
            print(f"{self.name}: resumes from {args.resume_from} at step {self.global_step:,}", flush=True)
        elif self.checkpoint:
            kept = self.checkpoint["run"]
            self.global_step, self.episodes, self.latest = kept["global_step"], kept["episodes"], kept["games"]
            self._finished = kept["finished"].cpu().numpy()
            self.new_returns, self.earned = kept["new_returns"], kept.get("earned", (0.0, 0))
            wall_seconds, self._wandb_id = kept["wall_seconds"], kept["wandb_id"]
            print(f"{self.name}: resumes at step {self.global_step:,}", flush=True)
        goes_on = self.global_step > self.parent_step
        self._best = Best(self.path, goes_on) if devices.RANK == 0 else None
        self.ended = self.global_step >= self.total_steps  # only the evaluation episodes may be missing
        self._wall_seconds = wall_seconds
        self._parts: Dict[str, Any] = {}
        if alone and devices.RANK == 0 and not self.ended:
            before_it = recipe.plan(sys.argv[0], vars(args), self.schedule, self.global_step, by_law=self.by_law)
            print(*before_it, sep="\n", flush=True)
        self._start_clocks()

    def _claim(self, device: Any) -> Tuple[str, Dict[str, Any]]:
        """Locks the directory, writes or compares the manifest, and cuts off the curves after the checkpoint.

        Returns the name of the checkpoint to resume from, "" if there is none, and what the manifest says of
        --resume-from's run: `run`, `seed` and the `global_step` at which it was left; {} without it. Exits 0 if the run
        is finished, 2 if the name is taken by other arguments or by a live process, or if the run cannot go on from
        --resume-from's.
        """
        args = self.args
        begins = getattr(args, "resume_from", None) and not (self.path / "manifest.json").exists()
        parent_checkpoint, parent = origin.parent_of(args) if begins else (b"", {})
        with writable("runs-dir", Path(args.runs_dir)):
            self.path.mkdir(parents=True, exist_ok=True)
            try:  # the kernel frees it when this process ends, however it ends
                self._lock = open(self.path / ".lock", "ab", opener=no_link)
            except OSError as error:
                if error.errno not in (errno.ELOOP, errno.ENXIO):
                    raise
                fail(f"{self.name / '.lock'} is no file: expected nothing in its place")
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                fail(f"--run-name {args.run_name} {BUSY}: choose another name")
        manifest = self.path / "manifest.json"
        if manifest.exists():
            try:
                files = read_files(self.path)
            except (OSError, ValueError) as error:
                fail(
                    f"{self.name} cannot be read ({error}): expected a copy of it; to start over, delete the directory"
                )
            # an argument that is newer than the run had its default
            defaults = vars(type(args)())
            before = {**defaults, **files.manifest["arguments"]}
            own_rate = begun_with(files.manifest, self._words) if defaults["learning_rate"] is None else None
            if own_rate not in (None, args.learning_rate):
                print(f"{self.name}: keeps its learning rate {own_rate:g}; a new run has {args.learning_rate:g}")
                args.learning_rate, self.by_law = own_rate, False
            changed = difference(before, vars(args))
            if changed:
                fail(f"--run-name {args.run_name} has run with {changed}: use the same arguments or another name")
            lost = [name for name, value in before.items() if value is not None and not hasattr(args, name)]
            if lost:
                commit = files.manifest["git"]["commit"] or "645d5f2"  # the last with P3's options in every script
                option = f"--{lost[0].replace('_', '-')} {before[lost[0]]}"
                fail(f"--run-name {args.run_name} has run with {option}, now gone: commit {commit:.12} resumes it")
            parent = files.manifest.get("parent", {})
        elif (self.path / "done.json").exists() or checkpoints(self.path) and not begins:
            fail(f"{self.name} has lost its manifest.json: expected a copy of it; to start over, delete the directory")
        else:
            content = origin.manifest(args, device, self._words)
            if begins:
                write_atomically(self.path / "checkpoint.pt", parent_checkpoint)
                content["parent"] = parent
            write_atomically(manifest, json.dumps(content, indent=2).encode())
        if (self.path / "done.json").exists():
            print(f"{self.name} is finished: {' '.join((self.path / 'done.json').read_text().split())}")
            sys.exit(0)
        found = newest_checkpoint(self.path)
        if not found and parent:
            fail(f"{self.name} has lost the checkpoint of its parent run: delete the directory to start over")
        if found:
            self._load_coverage(found[1]["run"]["global_step"])
        kept = found[1]["run"] if found else {"global_step": -1}
        own = kept["global_step"] > parent.get("global_step", 0)
        self._cut_curves(kept["global_step"], kept.get("points") if own else None)
        with contextlib.suppress(FileNotFoundError):
            (self.path / "failed.json").unlink()  # it may go better from the checkpoint, with other episodes
        return found[0].name if found else "", parent

    def _cut_curves(self, last_step: int, points: Optional[int]) -> None:
        """Removes the points after `last_step`: they will be written again.

        points: how many there were up to then; says so if some are missing. None: not known.
        """
        found = events.cut(self.path, last_step)
        try:
            self._curves = CurvesFile(self.path, last_step)
        except (ValueError, IsADirectoryError) as error:
            fail(f"{self.name / CURVES} cannot be read ({error}): without the file, it is made from the event files")
        for name, number in ((CURVES, self._curves.points), ("the event files", found)):
            if points is not None and number != points:
                left = f"{number} of the {points} points up to step {last_step:,} are left in {name}"
                print(f"note: {self.name}: {left}: a file has been damaged", file=sys.stderr)

    def exit_if_stopped(self) -> None:
        """Exits with 130 or 143 if a signal has come: for what is done before the first iteration."""
        received: List[int] = sum(devices.gather(list(self._signals.received)), [])
        if received:
            sys.exit(exit_code_of(received[0]))

    def _start_clocks(self) -> None:
        now = time.monotonic()
        self._start_time = now - self._wall_seconds
        self._log_time = self._checkpoint_time = now
        self._log_step = self.global_step

    def restore(self, **parts: Any) -> None:
        """Names what a checkpoint keeps and, if there is a checkpoint, gives each part its state back.

        A part is a module or an optimiser (`state_dict`), a torch.Generator, or a SimpleNamespace of plain values and
        tensors, such as Stats; None is no part. Then opens the curves, the progress bar and, with --track, the W&B run.
        """
        self._parts = parts = {name: part for name, part in parts.items() if part is not None}
        if self.checkpoint:
            for name, part in parts.items():
                if name in self.checkpoint:  # a child may have a part that its parent had not
                    self._set_state(name, part, self.checkpoint[name])
        for part in parts.values():
            if self._is_child and hasattr(part, "param_groups"):  # it has a rate of its own
                devices.set_learning_rate(part, self.args.learning_rate)
        self.checkpoint = None  # free the memory
        self._events: Any = None
        if devices.RANK == 0:
            manifest = read_json(self.path / "manifest.json")
            self._events = events.EventsFile(self.path, lambda: tags.cards(manifest, self.args.run_name))
        self.copies = Copies()
        self._wandb = self._open_wandb() if self.args.track and devices.RANK == 0 else None
        self._meter = progress.Meter(self.args.env_id, self.total_steps, self.global_step) if self.alone else None
        self.is_open = True
        _OPEN.add(self)
        self._start_clocks()

    def _set_state(self, name: str, part: Any, state: Any) -> None:
        if isinstance(part, SimpleNamespace):
            vars(part).update(state)
        elif hasattr(part, "param_groups"):
            devices.load_optimizer(part, state)
        elif hasattr(part, "load_state_dict"):
            part.load_state_dict(state)
        elif self._is_child and self._draws_anew:
            part.manual_seed(2**33 + self.args.seed + self.global_step)
        else:  # torch.Generator
            try:
                part.set_state(state.cpu())
            except RuntimeError:  # the states of a CPU's and a GPU's generator have different sizes
                part.manual_seed(2**33 + self.args.seed + self.global_step)
                print(f"note: {self.name}: the checkpoint is of another kind of device: {name} gets a new seed")

    def _state_of(self, part: Any) -> Any:
        if isinstance(part, SimpleNamespace):
            return vars(part)
        return part.state_dict() if hasattr(part, "state_dict") else part.get_state()

    @property
    def _wandb_dir(self) -> Path:
        return from_start(os.environ.get("WANDB_DIR") or self.path)

    def _open_wandb(self) -> Any:
        import wandb

        run = wandb.init(
            project=self.args.wandb_project_name,
            entity=self.args.wandb_entity,
            name=self.args.run_name,
            id=self._wandb_id,
            resume="allow",
            config=vars(self.args),
            dir=str(self._wandb_dir),
            save_code=True,
            reinit="create_new",  # beside the others of a pack
        )
        self._wandb_id = run.id
        return run

    def add_episodes(
        self, episodes: List[Tuple[float, int]], finished: Any, earned: float = 0.0, steps: int = 0
    ) -> None:
        """Adds what the environments of this process have done; under torchrun those of all processes.

        `episodes`: (return, length) of each episode that has ended, or of the last of them. `finished`: int array, how
        many each environment has finished since the last call. `earned`: the sum of all rewards in `steps` steps.
        """
        import numpy as np

        ended, parts, sums, numbers = zip(*devices.gather((episodes, finished, earned, steps)))
        counts = np.concatenate(parts)
        # a schedule that has changed the number of environments has started their episodes anew
        self._finished = counts + (self._finished if np.size(self._finished) == len(counts) else 0)
        self.episodes += int(counts.sum())
        self.latest = [*self.latest, *sum(ended, [])][-100:]
        self.new_returns += [score for part in ended for score, _ in part]
        self.earned = (self.earned[0] + sum(sums), self.earned[1] + sum(numbers))

    def mean_return(self) -> Optional[float]:
        """The mean return of the last 100 episodes; None before the first has ended."""
        import numpy as np

        return float(np.mean(self.latest, 0)[0]) if self.latest else None

    def mean_new_return(self) -> Optional[float]:
        """The mean return of the episodes that have ended since the last log point; None if none has."""
        return sum(self.new_returns) / len(self.new_returns) if self.new_returns else None

    def at_log_point(self, batch_size: int) -> bool:
        """Whether the last `batch_size` steps have reached the next of the --num-logs points of the curves."""
        before = (self.global_step - batch_size) * self.args.num_logs // self.total_steps
        return self.global_step * self.args.num_logs // self.total_steps > before

    def charts(self) -> Dict[str, float]:
        """The points of the curves about episodes and speed, by tag. No return before the first episode has ended."""
        import numpy as np

        scalars = {
            "charts/episodes": self.episodes,
            "charts/min_episodes": int(self._finished.min()),  # the fewest that any environment has
            "charts/reward": self.earned[0] / max(self.earned[1], 1),
            "charts/SPS": (self.global_step - self._log_step) / (time.monotonic() - self._log_time),
        }
        if self.latest:
            scalars["charts/episodic_return"], scalars["charts/episodic_length"] = np.mean(self.latest, 0).tolist()
        return scalars

    def log(self, scalars: Dict[str, float]) -> None:
        """Writes one point of every curve at the present step."""
        if self._events:
            now, written = self._events.log(self.global_step, scalars)
            self._curves.append(self.global_step, now, written)
        if self._wandb:
            self._wandb.log(scalars, step=self.global_step)
        if self._best and self.episodes >= 100:
            self._best.offer(self.mean_return(), self.global_step, self._parts["agent"])
        self._log_time = time.monotonic()
        self._log_step, self.new_returns, self.earned = self.global_step, [], (0.0, 0)

    def coverage_quota(self) -> int:
        """How many rows coverage.npz still lacks at the present step, of COVERAGE_ROWS spread over the whole run."""
        kept = sum(len(rows) for rows in self._coverage.get("step", []))
        return COVERAGE_ROWS * self.global_step // self.total_steps - kept

    def add_coverage(self, **columns: Any) -> None:
        """Adds rows to coverage.npz: tensors or arrays of equal length, and the present step as a further column."""
        import numpy as np

        length = len(next(iter(columns.values())))
        for name, rows in {**columns, "step": np.full(length, self.global_step)}.items():
            self._coverage.setdefault(name, []).append(rows.cpu().numpy() if hasattr(rows, "cpu") else rows)

    def _load_coverage(self, last_step: int) -> None:
        path = self.path / "coverage.npz"
        if not path.exists():
            return
        try:
            saved = read_arrays(path)  # may be newer than the checkpoint, never older
            kept = saved["step"] <= last_step
            self._coverage = {name: [rows[kept]] for name, rows in saved.items()}
        except Exception as error:  # arrays of other names or lengths, too
            fail(f"{path} cannot be read ({error}): expected a copy of it; without the file the run continues")

    def all_finite(self, suspects: Dict[str, Any]) -> bool:
        """Whether all tensors are finite, in all processes. If not: writes failed.json, and the run has ended.

        `suspects`: {name: tensor or float} in the order in which a bad value spreads; the first bad one is named.
        """
        import torch

        found = [torch.as_tensor(x).isfinite().all() for x in suspects.values()]
        device = next((x.device for x in found if x.device.type == "cuda"), found[0].device)
        finite = torch.stack([x.to(device, non_blocking=True) for x in found])  # rewards may be on the CPU
        counts = devices.sum_over_ranks(finite.int()).tolist()
        if min(counts) == devices.NUM_RANKS:
            return True
        self.failure = next(name for name, count in zip(suspects, counts) if count < devices.NUM_RANKS)
        self._failed_at = self._first_bad(suspects)
        if devices.RANK == 0:
            self._save_copy()
            content = {"tensor": self.failure, "global_step": self.global_step, **self._failed_at}
            write_atomically(self.path / "failed.json", json.dumps(content).encode())
        self.ended, self.exit_code = True, 3
        return False

    def _first_bad(self, suspects: Dict[str, Any]) -> Dict[str, int]:
        """Where the failing tensor is not finite for the first time, over all processes.

        `step`: the environment steps before it; `environment`: its number. {} if the tensor is no rollout. Rollouts
        come before the other suspects; the first is (T, N, ...), the others too, or (T N, ...).
        """
        import torch

        tensors = {name: torch.as_tensor(x) for name, x in suspects.items()}
        shape = next(iter(tensors.values())).shape[:2]

        def is_rollout(name: str) -> bool:
            return tensors[name].shape[:2] == shape or tensors[name].shape[:1] == (shape.numel(),)

        if len(shape) < 2 or self.failure not in itertools.takewhile(is_rollout, tensors):
            return {}
        num_steps, num_envs = shape
        finite = tensors[self.failure].isfinite().reshape(num_steps * num_envs, -1).all(1)
        rows = (~finite).nonzero().flatten().tolist()
        found = divmod(rows[0], num_envs) if rows else (num_steps, 0)  # in another process, then
        parts = devices.gather((num_envs, *found))
        total, places = 0, []
        for number, t, n in parts:
            places.append((t, total + n))
            total += number
        t, n = min(places)
        return {"step": self.global_step - (num_steps - t) * total, "environment": n}

    def tick(self, steps: int = 0) -> None:
        """A look from within an iteration, at each step of the rollout and at each minibatch, from any thread.

        Shows progress, and ends the program if a signal came PATIENCE ago. steps: of this rollout so far, in all
        environments; in the update they are in global_step. Under torchrun all processes stop together, at the end of
        the iteration.
        """
        if devices.NUM_RANKS == 1:
            self._signals.exit_if_late()
        if self._meter:
            self._meter.within(self.global_step + steps, not steps, self.mean_return)

    def end_iteration(self, copies: Optional[bool] = None) -> None:
        """Writes a checkpoint if one is due, shows progress, and ends the run after the last step or a signal.

        copies: whether the state is copied otherwise; None: as `copies.due` says.
        """
        # one list that decides for all processes
        received: List[int] = sum(devices.gather(list(self._signals.received)), [])
        finished, now = self.global_step >= self.total_steps, time.monotonic()
        self._wall_seconds = now - self._start_time
        if received or finished or now - self._checkpoint_time >= 60 * self.args.checkpoint_minutes:
            self._checkpoint_time = now
            self._save(self._state())
            self._unsaved = None
        elif devices.RANK == 0 and (self.copies.due if copies is None else copies):
            self._unsaved = self.copies.copy(self._state())
        if self._meter:
            self._meter.after(self.global_step, 1, self.mean_return(), finished)
        if received and not finished:
            self.exit_code = exit_code_of(received[0])
        self.ended = bool(received) or finished

    def _state(self) -> Dict[str, Any]:
        """What checkpoint.pt holds of the present state. The tensors are the parts' own."""
        import torch

        kept = {
            "global_step": self.global_step,
            "episodes": self.episodes,
            "games": self.latest,
            "new_returns": self.new_returns,
            "earned": self.earned,
            "finished": torch.from_numpy(self._finished),
            "wall_seconds": self._wall_seconds,
            "wandb_id": self._wandb_id,
            "points": self._curves.points if devices.RANK == 0 else 0,
        }
        return {"format": FORMAT, "run": kept, **{name: self._state_of(part) for name, part in self._parts.items()}}

    def _save(self, state: Dict[str, Any]) -> None:
        """Writes coverage.npz, best.pt and checkpoint.pt; the checkpoint before it becomes checkpoint.prev.pt."""
        import numpy as np
        import torch

        if devices.RANK > 0:
            return
        if self._coverage:
            data = io.BytesIO()
            columns: Dict[str, Any] = {name: np.concatenate(rows) for name, rows in self._coverage.items()}
            np.savez_compressed(data, **columns)
            write_atomically(self.path / "coverage.npz", data.getvalue())
        self._curves.sync()
        self._events.sync()
        if self._best:
            self._best.write()
        data = io.BytesIO()
        torch.save(state, data)
        write_atomically(self.path / "checkpoint.pt", data.getvalue(), previous=self.path / "checkpoint.prev.pt")
        self._saved_step = state["run"]["global_step"]

    def _save_copy(self) -> None:
        """Writes the copy of the state after the last complete iteration, if no checkpoint has it."""
        state, self._unsaved = self._unsaved, None
        if state:
            self._save(state)

    def final_seeds(self) -> List[int]:
        """The seeds of the evaluation episodes (--eval-episodes), in all processes; none of an unfinished run."""
        return env_seeds(self.args.seed, "eval", 0, range(0 if self.exit_code else self.args.eval_episodes))

    def close(self, final_returns: Optional[List[float]] = None) -> NoReturn:
        """Finishes, and exits with the run's exit code."""
        self.finish(final_returns)
        sys.exit(self.exit_code)

    def finish(self, final_returns: Optional[List[float]] = None) -> Dict[str, Any]:
        """Writes done.json after the last step, and says how the run has ended. Returns what done.json has, else {}.

        `final_returns`: of this process's evaluation episodes; done.json has their mean, its 95 % interval and their
        number, over all processes.
        """
        done: Dict[str, Any] = {}
        final_returns = sum(devices.gather(list(final_returns or [])), [])
        final_return = sum(final_returns) / len(final_returns) if final_returns else None
        if final_return is not None and not math.isfinite(final_return):
            print(f"note: {self.name}: the evaluation episodes have the mean {final_return}: left out", file=sys.stderr)
            final_return = None
        if self._events and final_return is not None:
            self._events.write(step=self.global_step, summary=tags.final_card(final_return))
        self._close_files()
        if devices.RANK == 0 and self.exit_code == 0:
            if self.args.capture_video:
                self._record_video()
            done = {
                "global_step": self.global_step,
                "wall_seconds": self._wall_seconds,
                "sps": (self.global_step - self.parent_step) / self._wall_seconds,
                "episodic_return": self.mean_return(),
            }
            if final_return is not None:
                done["final_return"] = final_return
                done["final_return_ci"] = mean_interval(final_returns)
                done["final_episodes"] = len(final_returns)
            write_atomically(self.path / "done.json", json.dumps(done).encode())
            if self._wandb:
                self._wandb.summary.update(done)  # the final score is on no curve
            if self.alone:
                print(f"{self.name} is finished: {json.dumps(done)}")
                if done["episodic_return"] is None:
                    print(f"note: {no_episode(self.args, self.total_steps - self.parent_step)}")
        self._leave()
        return done

    def abandon(self, exit_code: int) -> None:
        """Ends a run, in this process alone, that cannot go on: keeps its last complete iteration. Raises nothing."""
        self.exit_code = self.exit_code or exit_code
        try:
            self._save_copy()
            self._close_files()
            self._leave()
        except Exception as error:  # another one is on its way, which says more
            print(f"note: {self.name}: not all could be written ({type(error).__name__}: {error})", file=sys.stderr)

    def _close_files(self) -> None:
        if self._meter:
            self._meter.close()
        if self._events:
            self._events.close()
            self._curves.close()

    def _leave(self) -> None:
        """Says what is left of a run that is not done, and gives the directory to others."""
        self.is_open = False
        if devices.RANK > 0:
            return
        saved = "no iteration is complete" if self._saved_step is None else f"checkpoint of step {self._saved_step:,}"
        if self.exit_code == 3:
            first = "; first at step {step:,}, in environment {environment}" if self._failed_at else ""
            where = f"step {self.global_step:,}{first.format(**self._failed_at)}: {self.name / 'failed.json'}"
            print(f"error: {self.failure} is not finite at {where}; {saved}", file=sys.stderr)
        elif self.exit_code and self._saved_step is None:
            print(f"{self.name} stopped, and {saved}: the same command with this --run-name starts over")
        elif self.exit_code:
            print(f"{self.name} stopped at step {self._saved_step:,}: the same command with this --run-name resumes it")
        if self._wandb:
            self._wandb.finish(exit_code=self.exit_code)
            parts = list(self._wandb_dir.glob(f"wandb/offline-run-*-{self._wandb_id}"))
            if len(parts) > 1:  # W&B's own text names the last one alone
                words = f"wandb sync {shlex.quote(str(parts[0].parent))}/offline-run-*-{self._wandb_id}"
                print(f"{self.name}: one command sends its {len(parts)} parts to W&B in their order: {words}")
        self._lock.close()  # others of this process may go on

    def _record_video(self) -> None:
        path = self.path / "episode.mp4"
        with contextlib.suppress(FileNotFoundError):
            path.unlink()  # it may be a link, to anything
        words = [sys.executable, str(ROOT / "scripts/evaluate.py"), str(self.path), "--trust"]
        subprocess.run([*words, "--episodes", "1", "--video", str(path)], cwd=from_start(""))
        if self._wandb and path.exists():
            import wandb

            self._wandb.log({"episode": wandb.Video(str(path))})
