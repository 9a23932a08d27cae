"""A run while it trains: how it begins, resumes, is watched, stops and finishes.

`Run` owns the run directory. The script keeps control: it calls `run.log(...)`, `run.end_iteration()` and so on from
its own loop, and nothing here knows what the numbers mean.

A run directory holds `manifest.json`, TensorBoard event files, the same points as `curves.csv`, `checkpoint.pt` and the
one before it, `coverage.npz`, and at the end `done.json` or `failed.json`. Curves grow; each other file is replaced as
a whole. A crash at any time leaves a readable directory. Python 3.8, for Isaac Gym.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import io
import itertools
import json
import math
import os
import platform
import shlex
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, NoReturn, Optional, Sequence, Set, Tuple

from support import devices, progress, recipe, tags
from support.arguments import NETWORK, PACK, fail, writable
from support.envs.episodes import env_seeds, mean_interval
from support.reading.curves import CURVES, CurvesFile, event_files, records
from support.reading.files import (
    FORMAT,
    checkpoints,
    load_checkpoint,
    newest_checkpoint,
    read_arrays,
    read_files,
    read_json,
    write_atomically,
)
from support.reading.manifests import difference, script_of
from support.signals import Signals, exit_code_of

ROOT = Path(__file__).resolve().parent.parent
COVERAGE_ROWS = 4096  # in coverage.npz, over the whole run: as many as UMAP takes with ease
BUSY = "is being written by a live process"  # part of the message when a directory is taken


@contextlib.contextmanager
def full_disk_in_one_line() -> Iterator[None]:
    """Ends the program with one line and exit code 1, instead of a traceback, if a run cannot write its files.

    The disk is full, a file would be larger than `ulimit -f` allows, or the run's directory has gone.
    """
    try:
        yield
    except OSError as error:
        folder = os.path.dirname(os.fsdecode(error.filename or b""))
        if error.errno == errno.ENOENT and folder and not os.path.exists(folder):
            what = f"{folder} has been moved or deleted; the same command with its new --run-name"
        elif error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            what = f"{error.strerror}; the same command"
        else:
            raise
        print(f"error: {what} resumes from the last checkpoint", file=sys.stderr)
        os._exit(1)  # nothing is left to flush to a full disk


def _parent(args: Any) -> Tuple[bytes, Dict[str, Any]]:
    """The newest checkpoint of --resume-from's run, and what the manifest keeps of that run: where, step and seed.

    Exits 2 with one line if this run cannot use it: the networks have to be equal, and at least one iteration has to be
    left.
    """
    parent = Path(args.resume_from)
    manifest = read_json(parent / "manifest.json")
    before, script = manifest.get("arguments"), Path(str(sys.modules[type(args).__module__].__file__)).stem
    if not isinstance(before, dict) or script_of(manifest) != script:
        fail(f"--resume-from {parent}: expected the directory of a run of {script}.py")
    for name in NETWORK:
        if name in before and before[name] != getattr(args, name, before[name]):
            fail(
                f"--resume-from {parent} has run with --{name.replace('_', '-')} {before[name]}, not "
                f"{getattr(args, name)}: expected the same network"
            )
    found = newest_checkpoint(parent)
    if not found:
        fail(f"--resume-from {parent} has no checkpoint: expected the directory of a run with one")
    path, checkpoint = found
    step, batch_size = checkpoint["run"]["global_step"], args.num_envs * args.num_steps
    if args.total_timesteps < step + batch_size:
        fail(
            f"--total-timesteps {args.total_timesteps} leaves no iteration after the {step} steps of "
            f"--resume-from {parent}: expected at least {step + batch_size}"
        )
    return path.read_bytes(), {"run": args.resume_from, "global_step": step, "seed": before.get("seed", args.seed)}


@functools.lru_cache(maxsize=None)  # a pack's manifests need it once
def _code() -> Tuple[Dict[str, Any], Dict[str, str]]:
    """The commit of this repository, and the versions of Python and of all packages."""
    import email
    import importlib.metadata

    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    commit, dirty, _ = subprocess.run(git, capture_output=True).stdout.decode().strip().partition("-dirty")
    versions = {}
    for package in importlib.metadata.distributions():
        text = package.read_text("METADATA") or package.read_text("PKG-INFO") or ""
        headers = email.message_from_string(text.partition("\n\n")[0])  # `package.metadata` parses the long text too
        versions[headers["Name"]] = headers["Version"]
    return {"commit": commit or None, "dirty": bool(dirty)}, {"python": platform.python_version(), **versions}


def _manifest(args: Any, device: Any, words: Sequence[str]) -> Dict[str, Any]:
    import torch

    commit, versions = _code()
    return {
        "arguments": {name: value for name, value in vars(args).items() if name not in PACK},
        "command": shlex.join([sys.executable, sys.argv[0], *words]),
        "git": commit,
        "versions": versions,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu {platform.machine()}",
        "threads": torch.get_num_threads(),
        "start": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


class Stats(SimpleNamespace):
    """Sums since the last log point, by name, and what else a training script counts. A checkpoint keeps all of it.

    kept: further attributes, plain values or tensors, which are the script's own.
    """

    def __init__(self, **kept: Any) -> None:
        self.sums: Dict[str, Any] = {}
        self.counts: Dict[str, int] = {}
        super().__init__(**kept)

    def add(self, values: Dict[str, Any]) -> None:
        """Adds each value, a number or a tensor of one, to the sum of its name."""
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
            self.counts[name] = self.counts.get(name, 0) + 1

    def means(self) -> Dict[str, float]:
        """The mean of each name since the last call, which is at a log point. The sums begin anew."""
        means = devices.numbers({name: total / self.counts[name] for name, total in self.sums.items()})
        self.sums, self.counts = {}, {}
        return means


class Run:
    """The run directory of a training script, from its claim to done.json.

        run = rundir.Run(args, device)                          # claims the directory; exits if the run is finished
        stats = rundir.Stats(gradient_steps=0)
        run.restore(agent=agent, optimizer=optimizer, rng=rng, log=stats)
        while not run.ended:
            ...
            run.global_step += batch_size
            if not run.all_finite(suspects):
                break
            if run.at_log_point(batch_size):
                run.log(scalars)
            run.end_iteration()
        run.close()                                             # exits with the run's exit code

    Under torchrun each process has a Run; only the first writes, and all agree on when to stop.

    Attributes: `path`; `schedule`, the N x T of the batches; `total_steps`, whole iterations only; `global_step`,
    environment steps done; `episodes`, the number of finished ones; `latest`, (return, length) of the last 100;
    `new_returns`, of the episodes that have ended since the last log point; `earned`, the sum of all raw rewards since
    then and the number of their steps; `checkpoint`, what it resumes from until `restore`; `ended`; `exit_code`.
    """

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
        self._finished: Any = 0  # episodes that each environment has finished: an array (num_envs,) from the first on
        self.exit_code, self.failure = 0, ""
        self._failed_at: Dict[str, int] = {}
        self.ended = False
        self._signals = signals or Signals()
        if signals is None:
            self._signals.runs = [self]
        args.run_name = devices.gather(args.run_name)[0]  # the default name has the time in it
        self.path = Path(args.runs_dir, args.run_name)
        self._coverage: Dict[str, list] = {}
        claimed: Any = None
        if devices.RANK == 0:
            try:
                claimed = self._claim(device)
            except SystemExit as end:  # finished or refused: the other processes have to know
                claimed = end.code
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
        if self.checkpoint and self.checkpoint["run"]["global_step"] == parent_step:
            self._is_child, self.global_step = True, parent_step
            print(f"{self.path}: goes on from {args.resume_from} at step {self.global_step:,}", flush=True)
        elif self.checkpoint:
            kept = self.checkpoint["run"]
            self.global_step, self.episodes, self.latest = kept["global_step"], kept["episodes"], kept["games"]
            self._finished = kept["finished"].cpu().numpy()
            self.new_returns, self.earned = kept["new_returns"], kept.get("earned", (0.0, 0))
            wall_seconds, self._wandb_id = kept["wall_seconds"], kept["wandb_id"]
            print(f"{self.path}: resumes at step {self.global_step:,}", flush=True)
        self.ended = self.global_step >= self.total_steps  # only the evaluation episodes may be missing
        self._wall_seconds = wall_seconds
        self._parts: Dict[str, Any] = {}
        if alone and devices.RANK == 0 and not self.ended:
            print(*recipe.plan(sys.argv[0], vars(args), self.schedule, self.global_step), sep="\n", flush=True)
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
        parent_checkpoint, parent = _parent(args) if begins else (b"", {})
        with writable("runs-dir", Path(args.runs_dir)):
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = open(self.path / ".lock", "w")  # the kernel frees it when this process ends, however it ends
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
                    f"{self.path} cannot be read ({error}): expected a copy of it; to begin anew, delete the directory"
                )
            # an argument that is newer than the run had its default
            before = {**vars(type(args)()), **files.manifest["arguments"]}
            changed = difference(before, vars(args))
            if changed:
                fail(f"--run-name {args.run_name} has run with {changed}: use the same arguments or another name")
            parent = files.manifest.get("parent", {})
        elif (self.path / "done.json").exists() or checkpoints(self.path) and not begins:
            fail(f"{self.path} has lost its manifest.json: expected a copy of it; to begin anew, delete the directory")
        else:
            content = _manifest(args, device, self._words)
            if begins:
                write_atomically(self.path / "checkpoint.pt", parent_checkpoint)
                content["parent"] = parent
            write_atomically(manifest, json.dumps(content, indent=2).encode())
        if (self.path / "done.json").exists():
            print(f"{self.path} is finished: {' '.join((self.path / 'done.json').read_text().split())}")
            sys.exit(0)
        found = newest_checkpoint(self.path)
        if not found and parent:
            fail(f"{self.path} has lost the checkpoint of its parent run: delete the directory to begin anew")
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
        found = 0
        for path in event_files(self.path):
            from tensorboard.summary.writer.record_writer import RecordWriter

            kept = io.BytesIO()
            if not path.is_file():
                fail(f"{path} is no file: expected an event file, or nothing")
            for record, event in records(path):
                if event.step <= last_step and not tags.is_final_card(event):  # it will be written again
                    RecordWriter(kept).write(record)
                    found += any(value.HasField("simple_value") for value in event.summary.value)
            if kept.getvalue():
                write_atomically(path, kept.getvalue())
            else:
                path.unlink()
        try:
            self._curves = CurvesFile(self.path, last_step)
        except (ValueError, IsADirectoryError, PermissionError) as error:
            fail(f"{self.path / CURVES} cannot be read ({error}): without the file, it is made from the event files")
        for name, number in ((CURVES, self._curves.points), ("the event files", found)):
            if points is not None and number != points:
                left = f"{number} of the {points} points up to step {last_step:,} are left in {name}"
                print(f"note: {self.path}: {left}: a file has been damaged", file=sys.stderr)

    def exit_if_stopped(self) -> None:
        """Exits with 130 or 143 if a signal has come: for what is done before the first iteration."""
        received: List[int] = sum(devices.gather(list(self._signals.received)), [])
        if received:
            sys.exit(exit_code_of(received[0]))

    def _start_clocks(self) -> None:
        now = time.monotonic()
        self._start_time = now - self._wall_seconds
        self._log_time = self._line_time = self._checkpoint_time = now
        self._log_step = self._line_step = self.global_step

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
            self._open_events()
        self._wandb = self._open_wandb() if self.args.track and devices.RANK == 0 else None
        from tqdm import tqdm

        self._bar = tqdm(
            total=self.total_steps,
            initial=self.global_step,
            disable=True if devices.RANK or not self.alone else None,
            dynamic_ncols=True,
            bar_format=self.args.env_id + " {percentage:3.0f}%|{bar}| {n:,}/{total:,} steps{postfix}  ETA {remaining}",
        )
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
                print(f"note: {self.path}: the checkpoint is of another kind of device: {name} is seeded anew")

    def _state_of(self, part: Any) -> Any:
        if isinstance(part, SimpleNamespace):
            return vars(part)
        return part.state_dict() if hasattr(part, "state_dict") else part.get_state()

    def _open_events(self) -> None:
        from tensorboard.summary.writer.record_writer import RecordWriter

        # one record a log point, written at once: SummaryWriter's queue can lose points that a checkpoint counts
        first = not any(self.path.glob("events.out.tfevents.*"))
        name = f"events.out.tfevents.{time.time():.6f}.{platform.node()}.{os.getpid()}"  # a new file each time
        self._events = open(self.path / name, "wb")
        self._described: Set[str] = set()  # tags that the file describes
        self._writer = RecordWriter(self._events)
        self._write_event(file_version="brain.Event:2")
        for card in tags.cards(read_json(self.path / "manifest.json"), self.args.run_name) if first else ():
            self._write_event(summary=card)

    def _write_event(self, **fields: Any) -> float:
        """Appends an Event of tensorboard. Returns its wall_time."""
        from tensorboard.compat.proto.event_pb2 import Event

        now = time.time()
        self._writer.write(Event(wall_time=now, **fields).SerializeToString())
        return now

    def _open_wandb(self) -> Any:
        import wandb

        run = wandb.init(
            project=self.args.wandb_project_name,
            entity=self.args.wandb_entity,
            name=self.args.run_name,
            id=self._wandb_id,
            resume="allow",
            config=vars(self.args),
            dir=str(self.path),
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
            from tensorboard.compat.proto.summary_pb2 import Summary

            summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()])
            for value in summary.value:
                if value.tag not in self._described:  # once a file is enough
                    value.metadata.summary_description = tags.description(value.tag)
                    value.metadata.plugin_data.plugin_name = "scalars"
                    value.metadata.data_class = 1  # DATA_CLASS_SCALAR; else TensorBoard's fast reader drops both
                    self._described.add(value.tag)
            now = self._write_event(step=self.global_step, summary=summary)
            self._events.flush()
            self._curves.append(self.global_step, now, {value.tag: value.simple_value for value in summary.value})
        if self._wandb:
            self._wandb.log(scalars, step=self.global_step)
        self._log_time = time.monotonic()
        self._log_step, self.new_returns, self.earned = self.global_step, [], (0.0, 0)

    def coverage_quota(self) -> int:
        """How many rows coverage.npz still lacks at the present step, of COVERAGE_ROWS spread over the whole run."""
        kept = sum(len(rows) for rows in self._coverage.get("step", []))
        return COVERAGE_ROWS * self.global_step // self.total_steps - kept

    def add_coverage(self, **columns: Any) -> None:
        """Adds rows to coverage.npz: NumPy arrays of equal length, which get the present step as a further column."""
        import numpy as np

        length = len(next(iter(columns.values())))
        for name, rows in {**columns, "step": np.full(length, self.global_step)}.items():
            self._coverage.setdefault(name, []).append(rows)

    def _load_coverage(self, last_step: int) -> None:
        path = self.path / "coverage.npz"
        if not path.exists():
            return
        try:
            saved = read_arrays(path)  # may be newer than the checkpoint, never older
            kept = saved["step"] <= last_step
            self._coverage = {name: [rows[kept]] for name, rows in saved.items()}
        except Exception as error:  # arrays of other names or lengths, too
            fail(f"{path} cannot be read ({error}): expected a copy of it; without the file the run goes on")

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

    def end_iteration(self) -> None:
        """Shows progress, writes a checkpoint if one is due, and ends the run after the last step or a signal."""
        # one list that decides for all processes
        received: List[int] = sum(devices.gather(list(self._signals.received)), [])
        finished, now = self.global_step >= self.total_steps, time.monotonic()
        if self.alone:
            self._show_progress(now, finished)
        if received or finished or now - self._checkpoint_time >= 60 * self.args.checkpoint_minutes:
            self._save(now)
        if received and not finished:
            self.exit_code = exit_code_of(received[0])
        self.ended = bool(received) or finished

    def _show_progress(self, now: float, finished: bool) -> None:
        from tqdm import tqdm

        sps = (self.global_step - self._line_step) / (now - self._line_time)
        score = self.mean_return()
        text = f"{sps:.0f} SPS  return " + ("-" if score is None else f"{score:.1f}")
        self._bar.set_postfix_str(text, refresh=False)
        self._bar.update(self.global_step - self._bar.n)
        if now - self._line_time >= progress.LINE_SECONDS or finished:
            if self._bar.disable and devices.RANK == 0:
                eta = tqdm.format_interval((self.total_steps - self.global_step) / sps)
                steps = f"{self.global_step:,}/{self.total_steps:,} steps"
                print(f"{self.args.env_id} {steps}  {text}  ETA {eta}", flush=True)
            self._line_time, self._line_step = now, self.global_step

    def _save(self, now: float) -> None:
        """Writes coverage.npz and checkpoint.pt; the checkpoint before it becomes checkpoint.prev.pt."""
        import numpy as np
        import torch

        self._wall_seconds, self._checkpoint_time = now - self._start_time, now
        if devices.RANK > 0:
            return
        if self._coverage:
            data = io.BytesIO()
            columns: Dict[str, Any] = {name: np.concatenate(rows) for name, rows in self._coverage.items()}
            np.savez_compressed(data, **columns)
            write_atomically(self.path / "coverage.npz", data.getvalue())
        kept = {
            "global_step": self.global_step,
            "episodes": self.episodes,
            "games": self.latest,
            "new_returns": self.new_returns,
            "earned": self.earned,
            "finished": torch.from_numpy(self._finished),
            "wall_seconds": self._wall_seconds,
            "wandb_id": self._wandb_id,
            "points": self._curves.points,
        }
        self._curves.sync()
        os.fsync(self._events.fileno())
        parts = {name: self._state_of(part) for name, part in self._parts.items()}
        data = io.BytesIO()
        torch.save({"format": FORMAT, "run": kept, **parts}, data)
        write_atomically(self.path / "checkpoint.pt", data.getvalue(), previous=self.path / "checkpoint.prev.pt")

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
            print(f"note: {self.path}: the evaluation episodes have the mean {final_return}: left out", file=sys.stderr)
            final_return = None
        self._bar.close()
        if self._events:
            if final_return is not None:
                self._write_event(step=self.global_step, summary=tags.final_card(final_return))
            self._events.close()
            self._curves.close()
        if devices.RANK > 0:
            return done
        if self.exit_code == 0:
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
                print(f"{self.path} is finished: {json.dumps(done)}")
        elif self.exit_code == 3:
            first = "; first at step {step:,}, in environment {environment}" if self._failed_at else ""
            where = f"step {self.global_step:,}{first.format(**self._failed_at)}: {self.path / 'failed.json'}"
            print(f"error: {self.failure} is not finite at {where}", file=sys.stderr)
        else:
            print(f"{self.path} stopped at step {self.global_step:,}: the same command with this --run-name resumes it")
        if self._wandb:
            self._wandb.finish(exit_code=self.exit_code)
        self._lock.close()  # others of this process may go on
        return done

    def _record_video(self) -> None:
        path = self.path / "episode.mp4"
        words = [sys.executable, str(ROOT / "scripts/evaluate.py"), str(self.path)]
        subprocess.run([*words, "--episodes", "1", "--video", str(path)])
        if self._wandb and path.exists():
            import wandb

            self._wandb.log({"episode": wandb.Video(str(path))})
