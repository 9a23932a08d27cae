"""What a run leaves on disk: how it begins, resumes, is watched, stops and finishes, and how it is read again.

Two halves. The first serves the training scripts: `parse` and `check` turn a command line into checked arguments, and
`Run` owns a run directory while a script trains. The script keeps control: it calls `run.log(...)`,
`run.end_iteration()` and so on from its own loop, and nothing here knows what the numbers mean.

The second half reads run directories, for everything in scripts/. It imports neither torch nor tensorboard until a
function needs them, so that a program that only reads starts at once.

A run directory holds `manifest.json`, TensorBoard event files, `checkpoint.pt` and the one before it, `coverage.npz`,
and at the end `done.json` or `failed.json`. Each file is replaced as a whole: a crash at any time leaves a readable
directory. Python 3.8, for Isaac Gym.
"""

from __future__ import annotations

import ast
import collections
import contextlib
import difflib
import errno
import fcntl
import functools
import io
import json
import os
import platform
import re
import shlex
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, NoReturn, Optional, Set, Tuple

from typing_extensions import Annotated, get_args, get_type_hints

from support import devices, recipe, tags

ROOT = Path(__file__).resolve().parent.parent
FORMAT = 2  # of checkpoint.pt; raised when an older one can no longer be resumed
COVERAGE_ROWS = 4096  # in coverage.npz, over the whole run: as many as UMAP takes with ease
PLACE = frozenset({"run_name", "runs_dir", "num_threads"})  # where a run is carried out, not what it does
NETWORK = ("env_id", "hidden_sizes", "activation", "shared_encoder", "norm_obs")  # what --resume-from may not change
BUSY = "is being written by a live process"  # part of the message when a directory is taken


class Range(NamedTuple):
    """The values that an argument may have, both ends included."""

    low: float
    high: float


# Types for the fields of Args, each with its Range; `Optional[Count]` works too.
Count = Annotated[int, Range(1, 2**31 - 1)]
Steps = Annotated[int, Range(1, 2**63 - 1)]
Seed = Annotated[int, Range(0, 2**31 - 1)]
Threads = Annotated[int, Range(0, 1024)]
Evaluation = Annotated[int, Range(0, 100000)]
Fraction = Annotated[float, Range(0, 1)]
NonNegative = Annotated[float, Range(0, 1e12)]
Positive = Annotated[float, Range(1e-12, 1e12)]


# ---- arguments -------------------------------------------------------------------------------------------------------
def fail(message: object) -> NoReturn:
    """Ends the program with one line on stderr and exit code 2: bad input."""
    print("error:", " ".join(str(message).split()), file=sys.stderr)
    sys.exit(2)


def check_env_id(env_id: str, family: str, what: str, full_name: str = "") -> None:
    """Refuses a name that is no task of `family`, a module of EnvPool such as envpool.atari, and shows the nearest.

    full_name: EnvPool's name of the task, if the user's is shorter.
    """
    import envpool

    names = [name for name, (module, *_) in envpool.registration.registry.specs.items() if module == family]
    name = full_name or env_id
    if name not in names:
        near = difflib.get_close_matches(name.replace("NoFrameskip-v4", "").split("/")[-1], names, 3, 0.3) or names[:3]
        said = f"{env_id} ({full_name})" if full_name else env_id
        fail(f"--env-id {said} is not {what} of EnvPool; near: {' '.join(near)}")


def _ranges(hint: Any) -> Iterator[Range]:
    for part in get_args(hint):
        if isinstance(part, Range):
            yield part
        else:
            yield from _ranges(part)


def parse(args_class: type, argv: List[str], description: str, default: Any = None) -> Any:
    """Parses `argv` into the dataclass `args_class` with tyro and checks each field against its Range.

    `default`: an instance whose values replace the defaults of the class. Exits 2 with one line on bad input.
    """
    import tyro

    defaults = {} if default is None else {"default": default}
    box = io.StringIO()  # tyro draws a box around its complaint: put what it says on one line
    try:
        with contextlib.redirect_stderr(box):
            args = tyro.cli(args_class, args=argv, description=description.split("\n")[0], **defaults)
    except SystemExit as end:
        if end.code:
            flag = re.search(r"--(?:no-)?([\w-]+) (?:true|false)\b", " ".join(argv), re.I)  # as CleanRL once had it
            if flag:
                fail(f"--{flag[1]} takes no value: expected --{flag[1]} or --no-{flag[1]}")
            text = box.getvalue().split("For full helptext")[0].partition("\n")[2]
            fail(re.sub("[│─|]|-{3,}", " ", text))
        raise
    for name, hint in get_type_hints(args_class, include_extras=True).items():
        value = getattr(args, name)
        for low, high in _ranges(hint):
            if value is not None and not low <= value <= high:  # NaN fails this too
                limits = f"{low:,} to {high:,}" if isinstance(value, int) else f"{low:,.15g} to {high:,.15g}"
                fail(f"--{name.replace('_', '-')} {value} is out of range: expected {limits}")
    return args


def check(args: Any, argv: List[str], row_bytes: int = 0) -> Any:
    """Checks what concerns several arguments, and fills in `run_name`, `num_minibatches` and `minibatch_size`.

    `row_bytes`: memory of one stored step, to refuse a batch that cannot fit. Exits 2 with one line on bad input;
    touches no file. Returns `args`.
    """
    words = {word.split("=")[0].replace("_", "-") for word in argv}
    phases = _schedule(args, words)
    batch_size = args.num_envs * args.num_steps
    if args.total_timesteps < batch_size:
        fail(f"--total-timesteps {args.total_timesteps} is less than one batch: expected at least {batch_size}")
    if {"--num-minibatches", "--minibatch-size"} <= words:
        fail("--num-minibatches and --minibatch-size exclude each other: give one")
    if getattr(args, "scale_from", None) or getattr(args, "scaling", None):
        _scale(args)
    rows_that_fit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // max(row_bytes, 1)
    for num_envs, num_steps in phases:
        if num_envs * num_steps > rows_that_fit:
            fail(
                f"--num-envs {num_envs} x --num-steps {num_steps} does not fit in memory: "
                f"expected a batch of at most {rows_that_fit}"
            )
    flag = "minibatch_size" if args.minibatch_size else "num_minibatches"
    if batch_size % getattr(args, flag):
        fail(
            f"--{flag.replace('_', '-')} {getattr(args, flag)} does not divide the batch of {batch_size} = "
            f"{args.num_envs} envs x {args.num_steps} steps: expected a divisor of it"
        )
    args.minibatch_size = args.minibatch_size or batch_size // args.num_minibatches
    args.num_minibatches = batch_size // args.minibatch_size
    for num_envs, num_steps in phases:
        if num_envs * num_steps % args.minibatch_size:
            fail(
                f"--schedule {args.schedule}: the minibatches of {args.minibatch_size} rows do not divide the batch of "
                f"{num_envs}x{num_steps}: expected another --minibatch-size, or --num-minibatches of the first batch"
            )
        if num_envs % devices.NUM_RANKS or args.minibatch_size % devices.NUM_RANKS:
            fail(
                f"--num-envs {num_envs} or the minibatch size {args.minibatch_size} is not divisible by the "
                f"{devices.NUM_RANKS} processes of torchrun"
            )
    missing = devices.missing(args)
    if missing:
        fail(missing)
    sizes = getattr(args, "hidden_sizes", None)
    if sizes is not None:
        args.hidden_sizes = list(sizes)  # as a manifest gives it back
        if not sizes or min(sizes) < 1 or max(sizes) > 65536:
            fail(f"--hidden-sizes {args.hidden_sizes}: expected one number or more, each 1 to 65,536")
    args.run_name = args.run_name or f"{args.env_id}__{args.exp_name}__{args.seed}__{int(time.time())}"
    parts = Path(args.run_name).parts
    if Path(args.run_name).is_absolute() or ".." in parts or not parts:
        fail(f"--run-name {args.run_name} is not a directory below --runs-dir: expected a relative path without ..")
    if args.track:
        import wandb  # only when asked for: importing it is enough to have it capture the console

        if wandb.setup().settings.mode == "online" and not wandb.login(prompt=False):
            fail("--track needs an account: expected `wandb login`, WANDB_API_KEY=... or WANDB_MODE=offline")
    return args


def _schedule(args: Any, words: Set[str]) -> List[Tuple[int, int]]:
    """The shapes (N, T) of the batches of a run; N and T of the arguments become those of the first.

    words: the flags of the command.
    """
    if not getattr(args, "schedule", None):
        return [(args.num_envs, args.num_steps)]
    excluded = sorted(words & {"--num-envs", "--num-steps", "--scale-from", "--scaling"})
    if excluded:
        fail(f"--schedule and {excluded[0]} exclude each other: give one")
    if args.schedule == "noise":
        args.schedule = f"noise:{args.num_envs}-{16 * args.num_envs}x{args.num_steps}"
    try:
        schedule = recipe.Schedule(args.schedule, args.total_timesteps)
    except ValueError as error:
        fail(error)
    if schedule.bounds and not args.diagnostics:
        fail("--schedule noise needs the diagnostics, which measure the noise: expected no --no-diagnostics")
    _, args.num_envs, args.num_steps = schedule.phases[0]
    shapes = [(num_envs, num_steps) for _, num_envs, num_steps in schedule.phases]
    return [*shapes, *((num_envs, args.num_steps) for num_envs in (schedule.bounds or ()))]


def _scale(args: Any) -> None:
    """Sets the minibatches and the learning rate that --scaling asks for, and says so.

    The number of minibatches and the rate of the command, or their defaults, are those of the base.
    """
    if args.minibatch_size:
        fail("--scaling and --minibatch-size exclude each other: expected --num-minibatches of the base, or neither")
    args.scale_from = args.scale_from or default_arguments(_script(args), args.env_id)["num_envs"]
    args.scaling = args.scaling or recipe.WAYS[0]
    try:
        args.minibatch_size, number, args.learning_rate = recipe.scaled(
            args.num_envs, args.scale_from, args.num_steps, args.num_minibatches, args.learning_rate, args.scaling
        )
    except ValueError as error:
        fail(error)
    if devices.RANK == 0:
        print(
            f"--scaling {args.scaling} from {args.scale_from} to {args.num_envs} environments: {number} minibatches of "
            f"{args.minibatch_size} rows, learning rate {args.learning_rate:g}",
            flush=True,
        )


@contextlib.contextmanager
def full_disk_in_one_line() -> Iterator[None]:
    """Ends the program with one line and exit code 1 if the disk is full, instead of a traceback."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        print(f"error: {error.strerror}; the same command resumes from the last checkpoint", file=sys.stderr)
        os._exit(1)  # nothing is left to flush to a full disk


# ---- a run that is under way -----------------------------------------------------------------------------------------
def write_atomically(path: Path, data: bytes, previous: Optional[Path] = None) -> None:
    """Writes a file so that a reader, or a crash at any time, finds the old content or the new, never a part.

    `previous`: where the old file is kept.
    """
    partial = path.with_name(f".{path.name}.partial")  # hidden from globs and from TensorBoard
    try:
        with open(partial, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:  # a full disk: give the room back
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    if previous and path.exists():
        os.replace(path, previous)
    os.replace(partial, path)


def _script(args: Any) -> str:
    """The path of the script whose arguments these are."""
    return str(sys.modules[type(args).__module__].__file__)


def _parent(args: Any) -> Tuple[bytes, int]:
    """The newest checkpoint of --resume-from's run, and its step. Exits 2 with one line if this run cannot use it.

    The networks have to be equal, and at least one iteration has to be left.
    """
    parent = Path(args.resume_from)
    manifest = read_json(parent / "manifest.json")
    before, script = manifest.get("arguments"), Path(_script(args)).stem
    if not isinstance(before, dict) or script_of(manifest) != script:
        fail(f"--resume-from {parent}: expected the directory of a run of {script}.py")
    for name in NETWORK:
        if name in before and before[name] != getattr(args, name, before[name]):
            fail(
                f"--resume-from {parent} has run with --{name.replace('_', '-')} {before[name]}, not "
                f"{getattr(args, name)}: expected the same network"
            )
    for path in checkpoints(parent):
        checkpoint = try_to_load(path, "cpu")
        if checkpoint:
            check_format(path, checkpoint)
            step, batch_size = checkpoint["run"]["global_step"], args.num_envs * args.num_steps
            if args.total_timesteps < step + batch_size:
                fail(
                    f"--total-timesteps {args.total_timesteps} leaves no iteration after the {step} steps of "
                    f"--resume-from {parent}: expected at least {step + batch_size}"
                )
            return path.read_bytes(), step
    fail(f"--resume-from {parent} has no checkpoint that can be read: expected the directory of a run with one")


def _manifest(args: Any, device: Any) -> Dict[str, Any]:
    import importlib.metadata

    import torch

    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    commit, dirty, _ = subprocess.run(git, capture_output=True).stdout.decode().strip().partition("-dirty")
    versions = {package.metadata["Name"]: package.version for package in importlib.metadata.distributions()}
    return {
        "arguments": vars(args),
        "command": shlex.join([sys.executable, *sys.argv]),
        "git": {"commit": commit or None, "dirty": bool(dirty)},
        "versions": {"python": platform.python_version(), **versions},
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu {platform.machine()}",
        "threads": torch.get_num_threads(),
        "start": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


class Run:
    """The run directory of a training script, from its claim to done.json.

        run = rundir.Run(args, device)                          # claims the directory; exits if the run is finished
        run.restore(agent=agent, optimizer=optimizer, rng=rng, state=state)
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

    Attributes: `path`; `schedule`, the shapes of the batches; `total_steps`, whole iterations only; `global_step`,
    environment steps done; `episodes`, the
    number of finished games; `games`, (return, length) of the last 100; `new_returns`, of the games that have ended
    since the last log point; `ended`.
    """

    def __init__(self, args: Any, device: Any) -> None:
        self.args = args
        self.global_step, self.episodes, self.games, self.new_returns = 0, 0, [], []
        self._finished: Any = 0  # games that each environment has finished: an array (num_envs,) from the first on
        self.exit_code, self.failure = 0, ""
        self.ended = False
        self._signals: List[int] = []
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            signal.signal(signum, self._request_stop)
        args.run_name = devices.gather(args.run_name)[0]  # the default name has the time in it
        self.path = Path(args.runs_dir, args.run_name)
        claimed: Any = None
        if devices.RANK == 0:
            try:
                claimed = self._claim(device)
            except SystemExit as end:  # finished or refused: the other processes have to know
                claimed = end.code
        claimed = devices.gather(claimed)[0]
        if isinstance(claimed, int):
            sys.exit(claimed)
        name, parent_step = claimed
        self._checkpoint = load_checkpoint(self.path / name, device) if name else None
        wall_seconds, self._wandb_id = 0.0, None
        text = getattr(args, "schedule", None) or f"0:{args.num_envs}x{args.num_steps}"
        self.schedule = recipe.Schedule(text, args.total_timesteps, parent_step)
        self.total_steps = self.schedule.last_step
        # the first process of a run that goes on from another one's checkpoint: it counts its own games
        self._is_child, self._parent_step = False, parent_step
        if self._checkpoint and self._checkpoint["run"]["global_step"] == parent_step:
            self._is_child, self.global_step = True, parent_step
            print(f"{self.path}: goes on from {args.resume_from} at step {self.global_step:,}", flush=True)
        elif self._checkpoint:
            kept = self._checkpoint["run"]
            self.global_step, self.episodes, self.games = kept["global_step"], kept["episodes"], kept["games"]
            self._finished = kept["finished"].numpy()
            self.new_returns = kept.get("new_returns", [])
            wall_seconds, self._wandb_id = kept["wall_seconds"], kept["wandb_id"]
            print(f"{self.path}: resumes at step {self.global_step:,}", flush=True)
        self.ended = self.global_step >= self.total_steps  # only the games after the last step may be missing
        self._wall_seconds = wall_seconds
        self._parts: Dict[str, Any] = {}
        self._coverage: Dict[str, list] = {}
        self._start_clocks()

    def _request_stop(self, signum: int, frame: Any) -> None:
        if self.ended:  # the last checkpoint is written
            sys.exit(130 if signum == signal.SIGINT else 143)
        self._signals.append(signum)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C does not wait

    def _claim(self, device: Any) -> Tuple[str, int]:
        """Locks the directory, writes or compares the manifest, and cuts off the curves after the checkpoint.

        Returns the name of the checkpoint to resume from, "" if there is none, and the step at which --resume-from's
        run was left, 0 without it. Exits 0 if the run is finished, 2 if the name is taken by other arguments or by a
        live process, or if the run cannot go on from --resume-from's.
        """
        args = self.args
        begins = getattr(args, "resume_from", None) and not (self.path / "manifest.json").exists()
        parent_checkpoint, parent_step = _parent(args) if begins else (b"", 0)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = open(self.path / ".lock", "w")  # the kernel frees it when this process ends, however it ends
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fail(f"--run-name {args.run_name} {BUSY}: choose another name")
        except OSError as error:
            fail(f"--runs-dir {args.runs_dir} ({error.strerror}): expected a directory that can be written to")
        manifest = self.path / "manifest.json"
        if manifest.exists():
            before = json.loads(manifest.read_text())["arguments"]
            for name in vars(args).keys() - PLACE:
                if name in before and before[name] != getattr(args, name):  # an older manifest may lack one
                    fail(
                        f"--run-name {args.run_name} has run with --{name.replace('_', '-')} {before[name]}, not "
                        f"{getattr(args, name)}: use the same arguments or another name"
                    )
            parent_step = read_json(manifest).get("parent", {}).get("global_step", 0)
        else:
            content = _manifest(args, device)
            if begins:
                write_atomically(self.path / "checkpoint.pt", parent_checkpoint)
                content["parent"] = {"run": args.resume_from, "global_step": parent_step}
            write_atomically(manifest, json.dumps(content, indent=2).encode())
        if (self.path / "done.json").exists():
            print(f"{self.path} is finished: {' '.join((self.path / 'done.json').read_text().split())}")
            sys.exit(0)
        with contextlib.suppress(FileNotFoundError):
            (self.path / "failed.json").unlink()  # it may go better from the checkpoint, with other games
        name, step = "", -1
        for path in checkpoints(self.path):
            checkpoint = try_to_load(path, "cpu")
            if checkpoint:
                check_format(path, checkpoint)
                name, step = path.name, checkpoint["run"]["global_step"]
                break
        self._cut_curves(step)
        return name, parent_step

    def _cut_curves(self, last_step: int) -> None:
        """Removes the points after `last_step`: they will be written again."""
        paths = list(self.path.glob("events.out.tfevents.*"))
        if not paths:
            return
        from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        for path in paths:
            kept = io.BytesIO()
            for record in RawEventFileLoader(str(path)).Load():
                if Event.FromString(record).step <= last_step:
                    RecordWriter(kept).write(record)
            write_atomically(path, kept.getvalue())

    def exit_if_stopped(self) -> None:
        """Exits with 130 or 143 if a signal has come: for what is done before the first iteration."""
        received: List[int] = sum(devices.gather(list(self._signals)), [])
        if received:
            sys.exit(130 if received[0] == signal.SIGINT else 143)

    def _start_clocks(self) -> None:
        now = time.time()
        self._start_time = now - self._wall_seconds
        self._log_time = self._line_time = self._checkpoint_time = now
        self._log_step = self._line_step = self.global_step

    def restore(self, **parts: Any) -> None:
        """Names what a checkpoint keeps and, if there is a checkpoint, gives each part its state back.

        A part is a module or an optimiser (`state_dict`), a torch.Generator, or a SimpleNamespace of plain values and
        tensors. Then opens the curves, the progress bar and, with --track, the W&B run.
        """
        self._parts = parts
        if self._checkpoint:
            for name, part in parts.items():
                if name in self._checkpoint:  # a child may have a part that its parent had not
                    self._set_state(name, part, self._checkpoint[name])
            self._load_coverage()
        for group in [group for part in parts.values() for group in getattr(part, "param_groups", ())]:
            if self._is_child:  # it has a rate of its own
                rate = self.args.learning_rate
                group["lr"] = rate if isinstance(group["lr"], float) else group["lr"].fill_(rate)
        self._checkpoint = None  # free the memory
        self._events: Any = None
        if devices.RANK == 0:
            self._open_events()
        self._wandb = self._open_wandb() if self.args.track and devices.RANK == 0 else None
        from tqdm import tqdm

        self._bar = tqdm(
            total=self.total_steps,
            initial=self.global_step,
            disable=True if devices.RANK else None,
            dynamic_ncols=True,
            bar_format=self.args.env_id + " {percentage:3.0f}%|{bar}| {n:,}/{total:,} steps{postfix}  ETA {remaining}",
        )
        self._start_clocks()

    def _set_state(self, name: str, part: Any, state: Any) -> None:
        if isinstance(part, SimpleNamespace):
            vars(part).update(state)
        elif hasattr(part, "load_state_dict"):
            part.load_state_dict(state)
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
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        # one record a log point, written at once: SummaryWriter's queue can lose points that a checkpoint counts
        first = not any(self.path.glob("events.out.tfevents.*"))
        name = f"events.out.tfevents.{time.time():.6f}.{platform.node()}.{os.getpid()}"  # a new file each time
        self._events = open(self.path / name, "wb")
        self._described: Set[str] = set()  # tags that the file describes
        self._writer = RecordWriter(self._events)
        self._writer.write(Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())
        for card in tags.cards(read_json(self.path / "manifest.json"), self.args.run_name) if first else ():
            self._writer.write(Event(wall_time=time.time(), summary=card).SerializeToString())

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
        )
        self._wandb_id = run.id
        return run

    def add_games(self, games: List[Tuple[float, int]], finished: Any) -> None:
        """Adds the games that have ended in this process; under torchrun those of all processes.

        `games`: (return, length) of each, or of the last of them. `finished`: int array, how many games each
        environment of this process has finished since the last call.
        """
        import numpy as np

        some, parts = zip(*devices.gather((games, finished)))
        counts = np.concatenate(parts)
        # a schedule that has changed the number of environments has started their games anew
        self._finished = counts + (self._finished if np.size(self._finished) == len(counts) else 0)
        self.episodes += int(counts.sum())
        self.games = [*self.games, *sum(some, [])][-100:]
        self.new_returns += [score for part in some for score, _ in part]

    def mean_return(self) -> Optional[float]:
        """The mean return of the last 100 games; None before the first has ended."""
        import numpy as np

        return float(np.mean(self.games, 0)[0]) if self.games else None

    def mean_new_return(self) -> Optional[float]:
        """The mean return of the games that have ended since the last log point; None if none has."""
        return sum(self.new_returns) / len(self.new_returns) if self.new_returns else None

    def at_log_point(self, batch_size: int) -> bool:
        """Whether the last `batch_size` steps have reached the next of the --num-logs points of the curves."""
        before = (self.global_step - batch_size) * self.args.num_logs // self.total_steps
        return self.global_step * self.args.num_logs // self.total_steps > before

    def charts(self) -> Dict[str, float]:
        """The points of the curves about games and speed, by tag. No return before the first game has ended."""
        import numpy as np

        scalars = {
            "charts/episodes": self.episodes,
            "charts/min_episodes": int(self._finished.min()),  # of any environment
            "charts/SPS": (self.global_step - self._log_step) / (time.time() - self._log_time),
        }
        if self.games:
            scalars["charts/episodic_return"], scalars["charts/episodic_length"] = np.mean(self.games, 0).tolist()
        return scalars

    def log(self, scalars: Dict[str, float]) -> None:
        """Writes one point of every curve at the present step."""
        now = time.time()
        if self._events:
            from tensorboard.compat.proto.event_pb2 import Event
            from tensorboard.compat.proto.summary_pb2 import Summary

            summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()])
            for value in summary.value:
                if value.tag not in self._described:  # once a file is enough
                    value.metadata.summary_description = tags.description(value.tag)
                    value.metadata.plugin_data.plugin_name = "scalars"
                    value.metadata.data_class = 1  # DATA_CLASS_SCALAR; else TensorBoard's fast reader drops both
                    self._described.add(value.tag)
            self._writer.write(Event(wall_time=now, step=self.global_step, summary=summary).SerializeToString())
            self._events.flush()
        if self._wandb:
            self._wandb.log(scalars, step=self.global_step)
        self._log_time, self._log_step, self.new_returns = now, self.global_step, []

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

    def _load_coverage(self) -> None:
        import numpy as np

        if devices.RANK == 0 and (self.path / "coverage.npz").exists():
            with np.load(self.path / "coverage.npz") as saved:  # may be newer than the checkpoint, never older
                kept = saved["step"] <= self.global_step
                self._coverage = {name: [saved[name][kept]] for name in saved.files}

    def all_finite(self, suspects: Dict[str, Any]) -> bool:
        """Whether all tensors are finite, in all processes. If not: writes failed.json, and the run has ended.

        `suspects`: {name: tensor or float} in the order in which a bad value spreads; the first bad one is named.
        """
        import torch

        finite = torch.stack([torch.as_tensor(x).isfinite().all() for x in suspects.values()])
        counts = devices.sum_over_ranks(finite.int()).tolist()
        if min(counts) == devices.NUM_RANKS:
            return True
        self.failure = list(suspects)[counts.index(min(counts))]
        if devices.RANK == 0:
            content = {"tensor": self.failure, "global_step": self.global_step}
            write_atomically(self.path / "failed.json", json.dumps(content).encode())
        self.ended, self.exit_code = True, 3
        return False

    def end_iteration(self) -> None:
        """Shows progress, writes a checkpoint if one is due, and ends the run after the last step or a signal."""
        received: List[int] = sum(devices.gather(list(self._signals)), [])  # one list that decides for all processes
        finished, now = self.global_step >= self.total_steps, time.time()
        self._show_progress(now, finished)
        if received or finished or now - self._checkpoint_time >= 60 * self.args.checkpoint_minutes:
            self._save(now)
        if received and not finished:
            self.exit_code = 130 if received[0] == signal.SIGINT else 143
        self.ended = bool(received) or finished

    def _show_progress(self, now: float, finished: bool) -> None:
        from tqdm import tqdm

        sps = (self.global_step - self._line_step) / (now - self._line_time)
        score = self.mean_return()
        text = f"{sps:.0f} SPS  return " + ("-" if score is None else f"{score:.1f}")
        self._bar.set_postfix_str(text, refresh=False)
        self._bar.update(self.global_step - self._bar.n)
        if now - self._line_time >= 30 or finished:
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
            "games": self.games,
            "new_returns": self.new_returns,
            "finished": torch.from_numpy(self._finished),
            "wall_seconds": self._wall_seconds,
            "wandb_id": self._wandb_id,
        }
        parts = {name: self._state_of(part) for name, part in self._parts.items()}
        data = io.BytesIO()
        torch.save({"format": FORMAT, "run": kept, **parts}, data)
        write_atomically(self.path / "checkpoint.pt", data.getvalue(), previous=self.path / "checkpoint.prev.pt")

    def final_seeds(self) -> List[int]:
        """The seeds of the --eval-episodes games that the final network plays, in all processes; none if it is not."""
        return game_seeds(self.args.seed, "eval", 0, range(0 if self.exit_code else self.args.eval_episodes))

    def close(self, final_returns: Optional[List[float]] = None) -> NoReturn:
        """Finishes: done.json after the last step, a line that says how the run ended. Exits with its exit code.

        `final_returns`: of this process's games with the final network; done.json has their mean, its 95 % interval and
        their number, over all processes.
        """
        final_returns = sum(devices.gather(list(final_returns or [])), [])
        self._bar.close()
        if self._events:
            self._events.close()
        if devices.RANK > 0:
            sys.exit(self.exit_code)
        if self.exit_code == 0:
            if self.args.capture_video:
                self._record_video()
            done: Dict[str, Any] = {
                "global_step": self.global_step,
                "wall_seconds": self._wall_seconds,
                "sps": (self.global_step - self._parent_step) / self._wall_seconds,
                "episodic_return": self.mean_return(),
            }
            if final_returns:
                done["final_return"] = sum(final_returns) / len(final_returns)
                done["final_return_ci"] = bootstrap_ci(final_returns)
                done["final_episodes"] = len(final_returns)
            write_atomically(self.path / "done.json", json.dumps(done).encode())
            if self._wandb:
                self._wandb.summary.update(done)  # the final score is on no curve
            print(f"{self.path} is finished: {json.dumps(done)}")
        elif self.exit_code == 3:
            where = f"step {self.global_step:,}: {self.path / 'failed.json'}"
            print(f"error: {self.failure} is not finite at {where}", file=sys.stderr)
        else:
            print(f"{self.path} stopped at step {self.global_step:,}: the same command with this --run-name resumes it")
        if self._wandb:
            self._wandb.finish(exit_code=self.exit_code)
        sys.exit(self.exit_code)

    def _record_video(self) -> None:
        path = self.path / "episode.mp4"
        words = [sys.executable, str(ROOT / "scripts/evaluate.py"), str(self.path)]
        subprocess.run([*words, "--episodes", "1", "--video", str(path)])
        if self._wandb and path.exists():
            import wandb

            self._wandb.log({"episode": wandb.Video(str(path))})


def game_seeds(seed: int, purpose: str, step: int, games: Iterable[int]) -> List[int]:
    """The seeds, 0 to 2**31 - 1, of games by their number: seeds[i] is of game games[i].

    They differ between the games of one (seed, purpose, step); those of two such triples coincide by chance only.
    `step`: the steps done when the games begin, since games that restart must not repeat the first ones.
    """
    import numpy as np

    words = [seed, step, *purpose.encode()]
    start, stride = np.random.SeedSequence(words).generate_state(2, np.uint64).tolist()
    return [(start + game * (stride | 1)) % 2**31 for game in games]  # an odd stride: no two games of one run agree


def bootstrap_ci(values: List[float], resamples: int = 10000) -> Optional[List[float]]:
    """The 95 % percentile bootstrap interval, [low, high], of the mean of some numbers; None below two numbers."""
    import numpy as np

    if len(values) < 2:
        return None
    drawn = np.random.default_rng(0).choice(values, (resamples, len(values)))
    return np.percentile(drawn.mean(1), [2.5, 97.5]).tolist()


def progress_bar(total: int, unit: str, description: str) -> Any:
    """A bar on a terminal, in the first process; nothing elsewhere."""
    from tqdm import tqdm

    disable = True if devices.RANK else None
    return tqdm(total=total, unit=unit, desc=description, disable=disable, dynamic_ncols=True, leave=False)


def play(workers: Any, play_piece: Callable, seeds: List[int], description: str) -> List[float]:
    """This process's part of the results of games, one for each of the seeds, played in the threads of `workers`.

    play_piece(seeds, games, bar) plays `games`, a range of indices into `seeds`, and returns one number for each.
    """
    games = devices.share(len(seeds))
    if not games:  # more processes than games
        return []
    pieces = [games[piece] for piece in workers.pieces(len(games))]
    with progress_bar(len(games), "game", description) as bar:
        return sum(workers.map(lambda piece: play_piece(seeds, piece, bar), pieces), [])


# ---- reading run directories -----------------------------------------------------------------------------------------
def find_runs(root: Path) -> List[Path]:
    """Every run directory at any depth below `root`, sorted, each once. Follows links, but never in a circle."""
    seen, found = set(), []
    for folder, below, files in os.walk(root, followlinks=True):
        real = os.path.realpath(folder)
        below[:] = sorted(name for name in below if not name.startswith(".")) if real not in seen else []
        if real not in seen and "manifest.json" in files:
            found.append(Path(folder))
        seen.add(real)
    return sorted(found)


def read_json(path: Path) -> Dict[str, Any]:
    """The object in a JSON file; {} if there is none that can be read."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def script_of(manifest: Dict[str, Any]) -> Optional[str]:
    """The name of the script that a manifest's command ran, without .py; None if it names none."""
    try:
        words = shlex.split(str(manifest.get("command", "")))
    except ValueError:
        return None
    return next((Path(word).stem for word in words if word.endswith(".py")), None)


@functools.lru_cache(maxsize=None)
def default_arguments(script: str, env_id: str = "") -> Dict[str, Any]:
    """The defaults of a script's Args, and what recipe.py changes for `env_id`, read without importing it.

    `script`: the path of the file; {} if it is missing.
    """
    values: Dict[str, Any] = {}
    for node in ast.parse(Path(script).read_text()).body if Path(script).exists() else []:
        if isinstance(node, ast.ClassDef) and node.name == "Args":
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and field.value is not None:
                    with contextlib.suppress(ValueError):  # not a literal: exp_name
                        values[field.target.id] = ast.literal_eval(field.value)  # type: ignore[union-attr]
    if Path(script).stem == "ppo_isaacgym":
        values.update(recipe.task_defaults(env_id))
    elif Path(script).stem == "ppo_envpool":
        from support import worlds

        values.update(recipe.CONTINUOUS if worlds.has_continuous_actions(env_id) else {})
    return values


def checkpoints(run_dir: Path) -> List[Path]:
    """The checkpoints of a run that exist, newest first."""
    return [path for path in (run_dir / "checkpoint.pt", run_dir / "checkpoint.prev.pt") if path.exists()]


def try_to_load(path: Path, device: Any) -> Optional[Dict[str, Any]]:
    """The content of a checkpoint file, or None after a note if it is not whole."""
    import torch

    try:
        return torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # a file that is not whole breaks in many ways
        print(f"note: {path} cannot be read ({type(error).__name__})", file=sys.stderr)
        return None


def check_format(path: Path, checkpoint: Dict[str, Any]) -> None:
    """Exits 2 with one line if a checkpoint was written in another format."""
    found = checkpoint.get("format", 1)
    if found != FORMAT:
        commit = (read_json(path.parent / "manifest.json").get("git") or {}).get("commit")
        fail(
            f"{path} has format {found}, this version reads {FORMAT}: continue it with the code that began it"
            + (f" (commit {commit})" if commit else "")
            + ", or choose another --run-name"
        )


def load_checkpoint(path: Path, device: Any) -> Dict[str, Any]:
    """The content of a checkpoint file that is known to be whole."""
    checkpoint = try_to_load(path, device)
    if checkpoint is None:
        fail(f"{path} cannot be read")
    check_format(path, checkpoint)
    return checkpoint


def is_locked(path: Path) -> bool:
    """Whether a live process holds a lock on the file."""
    try:
        with open(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def is_alive(run_dir: Path) -> bool:
    """Whether a process works on the run, started by launch.py (which locks the log) or by hand (`.lock`)."""
    return is_locked(run_dir / "log.txt") or is_locked(run_dir / ".lock")


def log_end(run_dir: Path) -> Tuple[str, Optional[int]]:
    """The last line that the run wrote to log.txt, and the exit code of its last attempt (None: it has not ended)."""
    try:
        lines = (run_dir / "log.txt").read_bytes()[-65536:].decode(errors="replace").replace("\r", "\n").split("\n")
    except OSError:
        return "", None
    lines = [line.strip() for line in lines if line.strip()]
    code = re.fullmatch(r"\[launch .*\] exit code (-?\d+)", lines[-1]) if lines else None
    written = [line for line in lines if not re.match(r"\[launch |srun: error: .* Exited with exit code", line)]
    return (written[-1] if written else "no output"), int(code[1]) if code else None


def state(run_dir: Path) -> str:
    """done, running, diverged, failed, stale (begun, not done, not alive: the next launch resumes it) or missing."""
    if (run_dir / "done.json").exists():
        return "done"
    if is_alive(run_dir):
        return "running"
    if (run_dir / "failed.json").exists():
        return "diverged"
    if log_end(run_dir)[1] not in (None, 0, 130, 143):
        return "failed"
    return "stale" if (run_dir / "manifest.json").exists() else "missing"


# Event files are TFRecords: length (8 bytes), its CRC (4), a protocol buffer (Event), its CRC (4). A torn tail, as
# kill -9 leaves it, ends a file.
def _frames(path: Path) -> Iterator[Tuple[bytes, bytes]]:
    """(frame, its Event) of each whole record, undecoded."""
    data, at = Path(path).read_bytes(), 0
    while at + 12 <= len(data):
        end = at + 12 + struct.unpack_from("<Q", data, at)[0]
        if end + 4 > len(data) or end == at + 12:
            return
        yield data[at : end + 4], data[at + 12 : end]
        at = end + 4


def _head(event: bytes) -> Optional[Tuple[float, int, int]]:
    """Wall time and step of a serialised Event, without the slow import of tensorboard, and where they end.

    None if it is malformed.
    """
    if len(event) < 9 or event[0] != 0x09:  # field 1, a double: wall_time
        return None
    step = shift = 0
    end = 9
    if len(event) > 9 and event[9] == 0x10:  # field 2, a varint: step; absent at step 0
        for byte in event[10:]:
            step |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        end = 10 + shift // 7
    return struct.unpack("<d", event[1:9])[0], step, end


class _Layout(NamedTuple):
    """Where the numbers of a serialised Summary are. Other points of the same curves differ in these bytes only."""

    form: struct.Struct  # what is between the numbers, and the numbers, in turns
    between: Tuple[bytes, ...]
    tags: List[str]


def _layout_of(summary: bytes) -> Optional[_Layout]:
    """The _Layout of a Summary of plain scalars, with its field of Event; None for any other."""
    form, tags, at = "<", [], 1
    try:
        while summary[at] > 0x7F:  # its length, a varint
            at += 1
        start, at = 0, at + 1
        while at < len(summary):  # 0a, length of the value, 0a, length of the tag, tag, 15, the number as a float
            value_size, tag_size = summary[at + 1], summary[at + 3]
            number = at + 5 + tag_size
            marks = summary[at], summary[at + 2], summary[number - 1]
            if marks != (0x0A, 0x0A, 0x15) or max(value_size, tag_size) > 0x7F or value_size != tag_size + 7:
                return None
            tags.append(summary[at + 4 : number - 1].decode())
            form += f"{number - start}sf"
            start = at = number + 4
        read = struct.Struct(form)
        return _Layout(read, read.unpack(summary)[::2], tags) if summary[0] == 0x2A and tags else None
    except (IndexError, struct.error, UnicodeDecodeError):
        return None


def progress(run_dir: Path) -> Tuple[int, float]:
    """The last step on the curves, and steps per second of the run's latest process (0: not yet known)."""
    files = sorted(run_dir.glob("events.out.tfevents.*"), key=lambda path: path.stat().st_mtime)
    heads = [[head for _, event in _frames(path) for head in [_head(event)] if head] for path in files]
    points = [[(at, step) for at, step, _ in points if step] for points in heads]  # the first record has none
    step = max((step for some in points for _, step in some), default=0)
    if points and len(points[-1]) > 1:
        (first_time, first), (last_time, last) = points[-1][0], points[-1][-1]
        return step, (last - first) / max(last_time - first_time, 1e-9)
    return step, 0.0


def read_curves(paths: Iterable[Path]) -> Dict[str, Tuple[Any, Any]]:
    """{tag: (steps (P,) int64, values (P,) float32)} of one run's event files, oldest first.

    Of two points at one step the later written one is kept. tensorboard's own readers give the same, many times slower.
    """
    import numpy as np
    from google.protobuf.message import DecodeError
    from tensorboard.compat.proto.event_pb2 import Event

    kinds = {1: "f4", 2: "f8"}  # TensorFlow's DT_FLOAT and DT_DOUBLE
    columns: Dict[str, Dict[int, float]] = collections.defaultdict(dict)
    layouts: Dict[int, Tuple[_Layout, List[Dict[int, float]]]] = {}  # by length: the latest, and its columns
    for path in paths:
        for _, data in _frames(path):
            _, step, begin = _head(data) or (0.0, 0, 0)
            summary = data[begin:]
            layout, targets = layouts.get(len(summary), (None, []))
            numbers = layout.form.unpack(summary) if layout else ()
            if layout and numbers[::2] == layout.between:  # most points: no message has to be built
                for points, number in zip(targets, numbers[1::2]):
                    points[step] = number
                continue
            try:
                event = Event.FromString(data)
            except DecodeError:
                break
            layout = _layout_of(summary)
            if layout:
                layouts[len(summary)] = layout, [columns[tag] for tag in layout.tags]
            for value in event.summary.value:
                kind = value.WhichOneof("value")
                if value.metadata.plugin_data.plugin_name not in ("", "scalars"):
                    continue  # the run's arguments and its text
                if kind == "simple_value":
                    columns[value.tag][event.step] = value.simple_value
                elif kind == "tensor" and value.tensor.dtype in kinds:  # as TensorFlow 2 writes scalars
                    content = [*value.tensor.float_val, *value.tensor.double_val] or np.frombuffer(
                        value.tensor.tensor_content, kinds[value.tensor.dtype]
                    )
                    if len(content) == 1:
                        columns[value.tag][event.step] = content[0]
    curves = {}
    for tag, points in columns.items():
        steps = np.fromiter(points, np.int64, len(points))
        order = steps.argsort()
        curves[tag] = steps[order], np.fromiter(points.values(), np.float32, len(points))[order]
    return curves
