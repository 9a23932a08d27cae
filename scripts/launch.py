"""Runs the commands on stdin, one run a line, on this machine or as one Slurm job array; every `sweeps/*.sh` ends here.

    bash sweeps/fixed_budget.sh --dry-run                           # what would be run, and for how long
    bash sweeps/fixed_budget.sh --gpus 0,1,2,3 --jobs-per-gpu 2     # here
    bash sweeps/fixed_budget.sh --slurm --partition gpu --time 2-0 --gpus-per-task 1 --cpus-per-task 8
    bash sweeps/fixed_budget.sh --status                            # from any shell, also while it runs
    python scripts/launch.py status                                 # of everything below runs/

The same line again is the recovery from anything: finished runs are skipped, interrupted ones resume from their
checkpoint, what another launcher or Slurm is running is left to it. What is known of a run lies in its directory:
`done.json`, `failed.json` and the script's own lock, and here `log.txt`, the output of every attempt, with a line of
`[launch …]` before and after each. Who writes the log holds a lock on it, so that no two launchers take one run.

Two sweeps that need the same run (the same script and arguments) share it: the first to come owns it, and the other
has a relative link to its directory. The owners' names lie in `<runs dir>/.launch`.
"""

import argparse
import ast
import contextlib
import ctypes
import fcntl
import functools
import getpass
import hashlib
import itertools
import json
import os
import re
import shlex
import signal
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from tqdm import tqdm

tqdm.monitor_interval = 0  # no second thread: children die with the thread that started them (die_with_parent)
LIBC = ctypes.CDLL(None)
BUSY = "is being written by a live process"  # what a script says when the run's directory is taken
PLACE = {"run_name", "runs_dir", "num_threads"}  # where a run runs, not what it is
MAX_REQUEUES = 100  # a run that needs more time limits than this is stuck
# README's steps/s at the defaults in float32 on two cores of an AMD EPYC: until anything has been measured here
README_SPS = {
    "ppo_atari_envpool.py": 481,
    "pqn_atari_envpool.py": 403,
    "ppo_procgen.py": 165,
    "ppo_rnd_envpool.py": 208,
}
# Bytes of a process, of an environment, of a row of the batch and of a row of the minibatch, measured as peak RSS
ATARI, PROCGEN = (1.0e9, 1.3e6, 28.3e3, 150e3), (1.2e9, 0.4e6, 12.4e3, 1.2e6)
MEMORY = {
    "ppo_atari_envpool.py": ATARI,
    "pqn_atari_envpool.py": ATARI,
    "ppo_rnd_envpool.py": ATARI,
    "ppo_procgen.py": PROCGEN,
}


def fail(message):
    """Ends the program with one line and exit code 2: bad input."""
    print("error:", " ".join(str(message).split()), file=sys.stderr)
    sys.exit(2)


# ---- commands --------------------------------------------------------------------------------------------------------
@functools.lru_cache(maxsize=None)
def defaults(script, env_id):
    """The defaults of the script's Args and of its TASKS for env_id, read without importing it; {} without a script."""
    values = {}
    for node in ast.parse(Path(script).read_text()).body if Path(script).exists() else []:
        if isinstance(node, ast.ClassDef) and node.name == "Args":
            values = {
                field.target.id: ast.literal_eval(field.value)
                for field in node.body
                if isinstance(field, ast.AnnAssign) and isinstance(field.value, (ast.Constant, ast.UnaryOp))
            }
        elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "TASKS":
            for prefix, task in zip(node.value.keys, node.value.values):
                if env_id.startswith(prefix.value):
                    values.update({word.arg: ast.literal_eval(word.value) for word in task.keywords})
    return values


def parse_flags(words):
    """{argument: value} of a command's `--key value`, `--key=value`, `--key` and `--no-key`."""
    flags = {}
    for i, word in enumerate(words):
        if not word.startswith("--"):
            continue
        key, equals, value = word[2:].partition("=")
        if not equals:
            value = " ".join(itertools.takewhile(lambda word: not word.startswith("--"), words[i + 1 :]))
        with contextlib.suppress(ValueError, SyntaxError):
            value = ast.literal_eval(value)
        if value == "":
            key, value = (key[3:], False) if key.startswith("no-") else (key, True)
        flags[key.replace("-", "_")] = value
    return flags


class Run:
    """One line of stdin."""

    def __init__(self, line):
        self.words = shlex.split(line)
        scripts = [i for i, word in enumerate(self.words) if word.endswith(".py")]
        if not scripts:
            fail(f"stdin: `{line}` runs no .py script: python SCRIPT.py --run-name NAME … is accepted")
        self.script = self.words[scripts[0]]
        self.flags = parse_flags(self.words[scripts[0] + 1 :])
        if "run_name" not in self.flags:
            fail(f"stdin: `{line}` has no --run-name: each run needs its own")
        self.args = {**defaults(self.script, str(self.flags.get("env_id"))), **self.flags}
        self.name, self.runs_dir = str(self.args["run_name"]), Path(str(self.args.get("runs_dir", "runs")))
        for key in ("total_timesteps", "num_envs", "num_steps"):
            if not isinstance(self.args.get(key), int) or self.args[key] < 1:
                fail(f"--{key.replace('_', '-')} of {self.name} is {self.args.get(key)}: a whole number is accepted")
        self.steps, self.batch = self.args["total_timesteps"], self.args["num_envs"] * self.args["num_steps"]
        if self.steps < self.batch:
            fail(
                f"--total-timesteps {self.steps} of {self.name} is less than one batch of {self.args['num_envs']} envs"
                f" x {self.args['num_steps']} steps: at least {self.batch} is accepted"
            )
        self.final_step = self.steps // self.batch * self.batch
        self.path = self.runs_dir / self.name  # `claim` moves it, if another sweep has the same run

    @property
    def minibatch_size(self):
        return self.args.get("minibatch_size") or self.batch // (self.args.get("num_minibatches") or 1)

    @property
    def key(self):
        """Equal for two runs exactly if they do the same."""
        what = {
            name: float(value) if isinstance(value, int) else value
            for name, value in self.args.items()
            if name not in PLACE | {"num_minibatches"}
        }
        what.update(script=Path(self.script).name, minibatch_size=self.minibatch_size)
        return hashlib.sha1(json.dumps(what, sort_keys=True).encode()).hexdigest()

    def command(self):
        """The words to execute: this Python, and the name of the directory that `claim` found."""
        words = [sys.executable if word in ("python", "python3") else word for word in self.words]
        name = str(self.path.relative_to(self.runs_dir))
        return [
            name if before == "--run-name" else f"--run-name={name}" if word.startswith("--run-name=") else word
            for before, word in zip(["", *words], words)
        ]

    def differs(self, run_dir):
        """The first argument that the run in this directory was started with and this command contradicts, or None."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            before = json.loads((run_dir / "manifest.json").read_text())["arguments"]
            for name, value in self.flags.items():
                if name not in PLACE and before.get(name, value) != value:
                    return f"--{name.replace('_', '-')} {before[name]}, not {value}"
        return None


def read_runs(lines):
    """The runs of all lines, checked as a whole before any is started."""
    runs = [Run(line) for line in map(str.strip, lines) if line and line[0] != "#"]
    if not runs:
        fail("stdin: no commands: one a line is accepted, as `bash sweeps/fixed_budget.sh` pipes them in")
    for name, count in Counter(run.name for run in runs).items():
        if count > 1:
            fail(f"--run-name {name} is given to {count} commands: each needs its own")
    if len({run.runs_dir for run in runs}) > 1:
        fail("--runs-dir differs between the commands: one for all is accepted")
    return runs


# ---- run directories -------------------------------------------------------------------------------------------------
def owner(run):
    """The directory that holds this run, wherever a sweep has begun it; its own if none has."""
    own = run.runs_dir / run.name
    if own.is_dir() and not own.is_symlink():
        return own
    with contextlib.suppress(OSError):
        other = run.runs_dir / (run.runs_dir / ".launch" / run.key).read_text()
        if not run.differs(other):
            return other
    return own


def claim(run):
    """Gives the run its directory, for all sweeps: a link where another sweep has it."""
    own, note = run.runs_dir / run.name, run.runs_dir / ".launch" / run.key
    note.parent.mkdir(parents=True, exist_ok=True)
    own.parent.mkdir(parents=True, exist_ok=True)
    partial = note.with_name(f".{note.name}.{socket.gethostname()}.{os.getpid()}")
    partial.write_text(run.name)
    with contextlib.suppress(FileExistsError):
        os.link(partial, note)  # of several launchers one succeeds
    run.path = owner(run)
    if run.path == own:
        os.replace(partial, note)
        if own.is_symlink():  # to a run that has other arguments by now
            own.unlink()
    else:
        partial.unlink()
        partial.symlink_to(os.path.relpath(run.path.resolve(), own.parent.resolve()))
        os.replace(partial, own)
    partial.unlink(missing_ok=True)  # os.replace leaves it where it is another name of the note


def is_locked(path):
    try:
        with open(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def is_alive(run_dir):
    """Whether a process works on the run, started here (it locks the log) or by hand (the script locks `.lock`)."""
    return is_locked(run_dir / "log.txt") or is_locked(run_dir / ".lock")


def log_end(run_dir):
    """The last line that the run wrote to its log, and the exit code if its last attempt has ended, else None."""
    try:
        lines = (run_dir / "log.txt").read_bytes()[-65536:].decode(errors="replace").replace("\r", "\n").split("\n")
    except OSError:
        return "", None
    lines = [line.strip() for line in lines if line.strip()]
    code = re.fullmatch(r"\[launch .*\] exit code (-?\d+)", lines[-1]) if lines else None
    said = [line for line in lines if not re.match(r"\[launch |srun: error: .* Exited with exit code", line)]
    return (said[-1] if said else "no output"), code and int(code[1])


def state(run_dir):
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


def points(path):
    """(wall time, step) of each record of an event file: the head of TensorBoard's Event, without its slow import."""
    with open(path, "rb") as file:
        while True:
            head = file.read(12)
            length = struct.unpack("<Q", head[:8])[0] if len(head) == 12 else 0
            data = file.read(length + 4)
            if not length or len(data) < length + 4:
                return
            if data[0] == 0x09 and data[9] == 0x10:  # wall_time, then step as a varint
                step = shift = 0
                for byte in data[10:]:
                    step |= (byte & 0x7F) << shift
                    shift += 7
                    if byte < 0x80:
                        break
                yield struct.unpack("<d", data[1:9])[0], step


def progress(run_dir):
    """The last step on the curves, and steps/s of the run's latest process (0: not yet known)."""
    files = sorted(run_dir.glob("events.out.tfevents.*"), key=lambda path: path.stat().st_mtime)
    found = [list(points(path)) for path in files]
    step = max((step for points in found for _, step in points), default=0)
    if found and len(found[-1]) > 1:
        (first_time, first), (last_time, last) = found[-1][0], found[-1][-1]
        return step, (last - first) / max(last_time - first_time, 1e-9)
    return step, 0.0


# ---- what it takes ---------------------------------------------------------------------------------------------------
def estimate(runs, sps, slots, threads):
    """Lines: the number of runs, their steps, and the hours that they take in so many slots of so many threads."""
    left = [run for run in runs if state(owner(run)) != "done"]
    yield f"{len(runs):,} runs, {sum(run.steps for run in runs):,} steps; {len(runs) - len(left):,} runs are finished"
    for script in sorted({run.script for run in left}):
        steps = sum(run.steps for run in left if run.script == script)
        done = [
            json.loads(path.read_text())["sps"]
            for run in runs
            if run.script == script
            for path in [owner(run) / "done.json"]
            if path.exists()
        ]
        rate, source = sps, "given"
        if not sps and done:
            rate, source = statistics.median(done), "the median of the finished ones"
        elif not sps:
            rate = README_SPS.get(Path(script).name, 0) * min(threads, 2) / 2
            source = "README's, by cores; --sps or SPS=… gives yours"
        if rate:
            yield (
                f"{script}: {steps:,} steps, {slots} runs at a time, at {rate:,.0f} steps/s each ({source}): "
                f"{steps / rate / slots / 3600:,.1f} hours"
            )
        else:
            yield f"{script}: {steps:,} steps, speed not measured yet: --sps or SPS=… gives the hours"


def memory(run, num_envs, on_gpu):
    """Bytes of host and of GPU memory that the run takes with so many environments."""
    process, env, row, minibatch_row = MEMORY.get(Path(run.script).name, (0, 0, 0, 0))
    batch = num_envs * run.args["num_steps"]
    minibatch = run.args.get("minibatch_size") or batch / (run.args.get("num_minibatches") or 1)
    host, device = process + num_envs * env, batch * row + minibatch * minibatch_row
    return (host, device) if on_gpu else (host + device, 0)


def too_large(runs, slots, host_bytes, gpu_bytes, jobs_per_gpu):
    """The error of the first run that does not fit beside its like, with the number of environments that does."""

    def fits(run, num_envs):
        host, device = memory(run, num_envs, gpu_bytes > 0)
        return host * slots <= host_bytes and device * jobs_per_gpu <= gpu_bytes

    for run in sorted(runs, key=lambda run: -run.batch):
        num_envs = run.args["num_envs"]
        if not fits(run, num_envs):
            largest, too_many = 0, num_envs
            while too_many - largest > 1:
                middle = (largest + too_many) // 2
                largest, too_many = (middle, too_many) if fits(run, middle) else (largest, middle)
            need = " and ".join(
                f"{x / 1e9:.1f} GB of {place} memory"
                for x, place in zip(memory(run, num_envs, gpu_bytes > 0), ("main", "GPU"))
                if x
            )
            return (
                f"--num-envs {num_envs} of {run.name} needs {need}, {slots} at a time: "
                f"at most {largest} is accepted here" + (", or fewer --workers" if slots > 1 else "")
            )
    return None


def available_bytes():
    with open("/proc/meminfo") as file:
        return 1024 * int(re.search(r"MemAvailable: +(\d+)", file.read())[1])


def gpus_here():
    """{index: bytes} of the GPUs that CUDA_VISIBLE_DEVICES leaves; {} where there are none."""
    words = ["nvidia-smi", "--query-gpu=index,memory.total", "--format=csv,noheader,nounits"]
    try:
        lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
        gpus = {index: 2**20 * int(size) for index, size in (line.split(", ") for line in lines)}
    except (OSError, subprocess.CalledProcessError, ValueError):
        return {}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return gpus if visible is None else {index: gpus[index] for index in visible.split(",") if index in gpus}


def make_slots(options, runs):
    """One dict of environment variables for each run that may run at a time, and a check that so many fit."""
    cores, sizes = len(os.sched_getaffinity(0)), gpus_here()
    host_bytes = available_bytes()
    if options.workers and not options.gpus:
        slots, gpu_bytes = [{} for _ in range(options.workers)], 0
    elif options.gpus or sizes:
        gpus = options.gpus.split(",") if options.gpus else list(sizes)
        gpu_bytes = min((sizes[gpu] for gpu in gpus if gpu in sizes), default=float("inf"))
        slots = [{"CUDA_VISIBLE_DEVICES": gpu} for _ in range(options.jobs_per_gpu) for gpu in gpus]
    else:
        largest = max(memory(run, run.args["num_envs"], False)[0] for run in runs)
        fitting = max(1, int(host_bytes / largest)) if largest else cores
        slots, gpu_bytes = [{} for _ in range(min(cores, fitting))], 0
    slots = slots[: len(runs)]
    # a run waits for its environments and its network in turn: idle threads that spin would take the others' time
    threads = str(max(1, cores // len(slots)))
    slots = [{**slot, "OMP_NUM_THREADS": threads, "OMP_WAIT_POLICY": "PASSIVE"} for slot in slots]
    return slots, too_large(runs, len(slots), host_bytes, gpu_bytes, options.jobs_per_gpu)


# ---- this machine ----------------------------------------------------------------------------------------------------
def die_with_parent():
    """In the child: SIGTERM, so a checkpoint, when the launcher goes, even by kill -9."""
    if sys.platform == "linux":
        LIBC.prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


class Job:
    """A process that carries out a run."""

    def __init__(self, run, slot):
        """Raises BlockingIOError if someone else has the run, OSError if its log cannot be written."""
        self.run, self.slot = run, slot
        run.path.mkdir(parents=True, exist_ok=True)
        self.log = open(run.path / "log.txt", "ab")
        try:
            # the child inherits the file and with it the lock: it holds until both have ended
            fcntl.flock(self.log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.note(shlex.join(run.command()))
            self.start = self.log.tell()
            # a session of its own: Ctrl-C reaches the launcher alone, which passes on a SIGTERM
            self.process = subprocess.Popen(
                run.command(),
                stdin=subprocess.DEVNULL,
                stdout=self.log,
                stderr=self.log,
                env={**os.environ, **slot},
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        except OSError:
            self.log.close()
            raise

    def note(self, text):
        self.log.write(f"[launch {time.strftime('%Y-%m-%dT%H:%M:%S')} {socket.gethostname()}] {text}\n".encode())
        self.log.flush()

    def outcome(self):
        """done, diverged, failed, crashed or busy, once the process has ended; None before."""
        code = self.process.poll()
        if code is None:
            return None
        output = (self.run.path / "log.txt").read_bytes()[self.start :]
        with contextlib.suppress(OSError):  # a full disk: the exit code is known here all the same
            self.note(f"exit code {code}")
        with contextlib.suppress(OSError):
            self.log.close()
        if code == 2:
            return "busy" if BUSY.encode() in output else "failed"
        if code == 0:
            return "done" if (self.run.path / "done.json").exists() else "failed"
        return "diverged" if code == 3 else "crashed"


class Pool:
    """All runs of one launch: which wait, which run where, and how each ended."""

    def __init__(self, runs, slots, retry_diverged):
        self.runs, self.free, self.jobs = runs, list(slots), []
        self.ended = {}  # run -> skipped, done, diverged or failed
        self.why = {}  # run -> what to say of its failure
        self.crashes = Counter()
        self.signals = []
        self.over = {"done": "skipped"} if retry_diverged else {"done": "skipped", "diverged": "diverged"}
        self.waiting = [run for run in runs if not self.settle(run, state(run.path))]
        self.steps = {run: run.final_step if run in self.ended else progress(run.path)[0] for run in runs}
        self.bar = tqdm(
            total=sum(run.final_step for run in runs),
            initial=sum(self.steps.values()),
            disable=None,
            dynamic_ncols=True,
            bar_format="{percentage:3.0f}%|{bar}| {n:,}/{total:,} steps{postfix}",
        )
        self.shown = 0.0

    def end(self, run, outcome, why=""):
        self.ended[run] = outcome
        if outcome in ("diverged", "failed"):
            self.why[run] = why or log_end(run.path)[0]

    def settle(self, run, before):
        """Whether the run, in the state `before`, is over."""
        if before in self.over:
            self.end(run, self.over[before])
        return before in self.over

    def say(self, word, run, more=""):
        self.bar.write(f"{word:9} {run.name}  {more}".rstrip())
        sys.stdout.flush()

    def start_next(self):
        """Starts the first waiting run that no one else has. Returns whether there was one."""
        for run in list(self.waiting):
            before = state(run.path)
            if before == "running":
                continue
            if self.settle(run, before):  # another launcher, or a sweep that shares it, has ended it meanwhile
                self.waiting.remove(run)
                continue
            try:
                job = Job(run, self.free[0])
            except BlockingIOError:
                continue
            except OSError as error:
                self.waiting.remove(run)
                self.end(run, "failed", f"{error.strerror}: {run.path / 'log.txt'}")
                self.say("failed", run, self.why[run])
                continue
            self.waiting.remove(run)
            self.jobs.append(job)
            self.free.pop(0)
            self.say("resumes" if (run.path / "checkpoint.pt").exists() else "starts", run)
            return True
        return False

    def collect(self):
        """Takes leave of the processes that have ended."""
        over = [(job, outcome) for job in self.jobs for outcome in [job.outcome()] if outcome]
        for job, outcome in over:
            run = job.run
            self.jobs.remove(job)
            self.free.append(job.slot)
            self.steps[run] = progress(run.path)[0]
            if self.signals and outcome == "crashed":
                self.waiting.append(run)
                self.say("stopped", run, f"at step {self.steps[run]:,}")
            elif outcome == "busy":
                self.waiting.append(run)
            elif outcome == "crashed" and not self.crashes[run]:
                self.crashes[run] += 1
                self.waiting.insert(0, run)
                self.say("retries", run, f"exit code {job.process.returncode}: {log_end(run.path)[0]}")
            else:
                self.end(run, "failed" if outcome == "crashed" else outcome)
                self.say(self.ended[run], run, self.why.get(run, ""))

    def show(self, every):
        """The bar on a terminal; elsewhere a line now and then."""
        if time.time() - self.shown < every:
            return
        self.shown = time.time()
        rate, running = 0.0, [job.run for job in self.jobs]
        running += self.waiting if self.free else []  # someone else runs those
        for run in running:
            self.steps[run], speed = progress(run.path)
            rate += speed
        self.bar.n = sum(self.steps.values())
        counts = Counter(self.ended.values())
        left = tqdm.format_interval((self.bar.total - self.bar.n) / rate) if rate else "?"
        text = (
            f"{len(self.jobs)} running  {counts['done'] + counts['skipped']} done  "
            f"{counts['failed'] + counts['diverged']} failed  {len(self.waiting)} waiting  "
            f"{rate:,.0f} steps/s  ETA {left}"
        )
        self.bar.set_postfix_str(text, refresh=False)
        self.bar.refresh()
        if self.bar.disable:
            print(f"{self.bar.n:,}/{self.bar.total:,} steps  {text}", flush=True)

    def work(self):
        """Runs everything. A signal stops it once the runs have written their checkpoints, a second one at once."""
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, lambda signum, frame: self.signals.append(signum))
        heard = 0
        while self.jobs or (self.waiting and not self.signals):
            self.collect()
            while self.free and not self.signals and self.start_next():
                pass
            if len(self.signals) > heard:
                heard = len(self.signals)
                for job in self.jobs:
                    job.process.send_signal(signal.SIGTERM if heard == 1 else signal.SIGKILL)
                print(f"stopping {len(self.jobs)} runs at their next checkpoint; once more kills them", flush=True)
            self.show(every=60 if self.bar.disable else 5)
            time.sleep(0.2)
        self.show(every=0)
        self.bar.close()


def summary(pool, figure):
    """Prints how each run ended. Returns the exit code."""
    counts = Counter(pool.ended.values())
    print(
        f"\n{len(pool.runs)} runs: {counts['done']} done, {counts['failed']} failed, {counts['diverged']} diverged, "
        f"{counts['skipped']} skipped (finished before), {len(pool.waiting)} left"
    )
    for run, why in pool.why.items():
        print(f"  {pool.ended[run]:9} {run.name}  {why}\n            {run.path / 'log.txt'}")
    if counts["diverged"]:
        print("diverged runs are not tried again; --retry-diverged goes on from their last good checkpoint")
    if pool.signals:
        print("stopped; the same command goes on from the checkpoints")
        return 130 if pool.signals[0] == signal.SIGINT else 143
    print("figure:", figure)
    return 1 if pool.why else 0


def figure_commands(runs):
    """What draws the figures of these runs: of each sweep among them, or of any that the caller chooses."""
    names, runs_dir = {run.name.split("/")[0] for run in runs}, runs[0].runs_dir
    folder = Path(__file__).resolve().parent.parent / "sweeps"
    sweeps = sorted(name for name in names if (folder / f"{name}.sh").exists())
    places = [(name, runs_dir / name) for name in sweeps]
    if names - set(sweeps):  # SWEEP: the name of a file in sweeps/
        shared = len(names) == 1 and all("/" in run.name for run in runs)
        places.append(("SWEEP", runs_dir / min(names) if shared else runs_dir))
    return "; ".join(f"python scripts/figures.py {name} --runs {place} --out figures/" for name, place in places)


# ---- Slurm -----------------------------------------------------------------------------------------------------------
ARRAY = """#!/bin/bash
{sbatch}
{names}
# Each task is one run. USR1 comes to the step two minutes before the time limit: the run writes its checkpoint, exits
# with 143, and is queued again. scancel also ends this shell, so that nothing is queued again.
dirs=(
{dirs}
)
commands=(
{commands}
)
dir=${{dirs[SLURM_ARRAY_TASK_ID]}} command=${{commands[SLURM_ARRAY_TASK_ID]}}
mkdir -p "$dir" && exec >>"$dir/log.txt" 2>&1 || exit 1
flock -w 10 1 || exit 0  # someone else runs it
note() {{ echo "[launch $(date +%Y-%m-%dT%H:%M:%S) $(hostname)] $*"; }}
export OMP_NUM_THREADS=${{SLURM_CPUS_PER_TASK:-1}} OMP_WAIT_POLICY=PASSIVE
export SRUN_CPUS_PER_TASK=${{SLURM_CPUS_PER_TASK:-1}}  # since Slurm 22.05 srun does not take it from the job

for attempt in 1 2; do
    note "$command"
    srun --ntasks=1 bash -c "exec $command"
    code=$?
    note "exit code $code"
    case $code in
        0 | 2 | 3) exit $code ;;  # finished, refused, diverged: once more would end the same
        143)
            [ "${{SLURM_RESTART_COUNT:-0}}" -ge {max_requeues} ] && exit $code
            scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}"
            exit $code ;;
    esac
done
exit $code
"""


def array_script(runs, options):
    """The text for sbatch: one array job, one task a run."""
    sweep = runs[0].name.split("/")[0]
    folder = (runs[0].runs_dir / ".launch").resolve()
    throttle = f"%{options.array_parallelism}" if options.array_parallelism else ""
    flags = {
        "job-name": sweep,
        "array": f"0-{len(runs) - 1}{throttle}",
        "signal": "USR1@120",
        "open-mode": "append",
        "ntasks": 1,
        "chdir": os.getcwd(),
        "output": folder / f"{sweep}.slurm.out",
        "partition": options.partition,
        "time": options.time,
        "gpus-per-task": options.gpus_per_task,
        "cpus-per-task": options.cpus_per_task,
        "mem": options.mem,
    }
    lines = [f"#SBATCH --{name}={value}" for name, value in flags.items() if value is not None]
    lines += ["#SBATCH --requeue", *(f"#SBATCH {word}" for word in shlex.split(options.sbatch))]
    dirs, commands = [str(run.path.resolve()) for run in runs], [shlex.join(run.command()) for run in runs]
    return ARRAY.format(
        sbatch="\n".join(lines),
        names="\n".join(f"#RUN {path}" for path in dirs),
        dirs="\n".join(map(shlex.quote, dirs)),
        commands="\n".join(map(shlex.quote, commands)),
        max_requeues=MAX_REQUEUES,
    )


def slurm(*words):
    """The output of a Slurm command; its complaint ends the program."""
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        fail(f"--slurm: there is no {words[0]} on this machine: a login node of a Slurm cluster is accepted")
    except subprocess.CalledProcessError as error:
        fail(f"--slurm: {error.stderr}")


def queued():
    """The directories of the runs that wait or run in this user's job arrays: the submitted script lists them."""
    found = set()
    for line in slurm("squeue", "--user", getpass.getuser(), "--noheader", "--array", "--format=%K %o").splitlines():
        index, _, path = line.strip().partition(" ")
        with contextlib.suppress(OSError, ValueError, IndexError):
            lines = Path(path).read_text().splitlines()
            found.add([name[len("#RUN ") :] for name in lines if name.startswith("#RUN ")][int(index)])
    return found


def submit(runs, already, options, figure):
    """Queues what is neither finished nor running nor `already` queued. Returns the exit code."""
    states = {run: state(run.path) for run in runs}
    todo = {}
    for run in runs:
        path = str(run.path.resolve())
        wanted = states[run] in ("missing", "stale", "failed") or (states[run] == "diverged" and options.retry_diverged)
        if wanted and path not in already:
            todo[path] = run  # once, if two lines share it
    counts = Counter(states.values())
    print(
        f"{len(runs)} runs: {counts['done']} finished, {counts['diverged']} diverged, "
        f"{sum(str(run.path.resolve()) in already for run in runs)} queued or running, {len(todo)} to submit"
    )
    if todo:
        text = array_script(list(todo.values()), options)
        path = runs[0].runs_dir.resolve() / ".launch" / f"{runs[0].name.split('/')[0]}.{time.time_ns()}.sbatch"
        path.write_text(text)
        job = slurm("sbatch", "--parsable", str(path)).strip()
        print(
            f"submitted job array {job}: squeue --job {job}   scancel {job}\n"
            "the same command with --status in place of --slurm … shows how far it is; "
            "the same command again submits what is missing then"
        )
    print("figure:", figure)
    return 0


# ---- status ----------------------------------------------------------------------------------------------------------
def status(named):
    """Prints a table from the run directories alone. `named`: {name: (directory, final step or None)}."""
    counts, left, rate = Counter(), 0, 0.0
    for name, (run_dir, total) in sorted(named.items()):
        word = state(run_dir)
        counts[word] += 1
        if total is None:
            arguments = json.loads((run_dir / "manifest.json").read_text())["arguments"]
            batch = arguments["num_envs"] * arguments["num_steps"]
            total = arguments["total_timesteps"] // batch * batch
        step, speed = progress(run_dir)
        more = f"{step:,}/{total:,} steps"
        if word == "running":
            rate += speed
            more += f"  {speed:,.0f} steps/s  ETA {tqdm.format_interval((total - step) / speed) if speed else '?'}"
        elif word in ("failed", "diverged"):
            more += f"  {log_end(run_dir)[0]}"
        if word not in ("done", "diverged"):
            left += total - step
        print(f"{word:9} {name}  {more}")
    words = ("done", "running", "stale", "failed", "diverged", "missing")
    eta = tqdm.format_interval(left / rate) if rate else "?" if left else "-"
    print(
        f"{len(named)} runs: "
        + ", ".join(f"{counts[word]} {word}" for word in words)
        + f"; {left:,} steps left at {rate:,.0f} steps/s, ETA {eta}"
    )


def scan(runs_dir):
    """What `status` takes, of every run below a folder."""
    folders = [path.parent for depth in ("*", "*/*", "*/*/*") for path in Path(runs_dir).glob(f"{depth}/manifest.json")]
    return {str(path.relative_to(runs_dir)): (path, None) for path in folders}


# ---- main ------------------------------------------------------------------------------------------------------------
class Parser(argparse.ArgumentParser):
    def error(self, message):
        fail(message)


def positive(text):
    """The type of a count."""
    number = float(text)
    if not number > 0:
        raise argparse.ArgumentTypeError(f"{text}: a positive number is accepted")
    return number if number % 1 else int(number)


def parse_options(argv):
    parser = Parser(description=__doc__.split("\n")[0], allow_abbrev=False)
    add = parser.add_argument
    add("action", nargs="?", choices=["run", "status"], default="run", help="status: the same as --status")
    add("--dry-run", action="store_true", help="print every command, the number of runs, the steps and the hours")
    add("--status", action="store_true", help="print the state of every run; without commands on stdin, of --runs-dir")
    add("--runs-dir", default="runs", help="where `status` without commands on stdin looks (default runs)")
    add("--workers", type=positive, metavar="K", help="runs at a time (default: GPUs x --jobs-per-gpu, or the cores)")
    add("--gpus", metavar="0,1", help="the GPUs to use (default: all, if there are any)")
    add("--jobs-per-gpu", type=positive, default=1, metavar="J", help="runs at a time on each GPU (default 1)")
    add("--retry-diverged", action="store_true", help="run again what ended in a loss, … that was not finite")
    add("--sps", type=positive, default=os.environ.get("SPS"), help="steps/s of one run, for the hours (or SPS=…)")
    add("--slurm", action="store_true", help="submit one Slurm job array instead of running here")
    add("--partition", help="Slurm's")
    add("--time", help="Slurm's: the limit of one task, after which it is queued again")
    add("--gpus-per-task", type=positive, help="Slurm's")
    add("--cpus-per-task", type=positive, help="Slurm's; also the threads of a run")
    add("--mem", metavar="32G", help="Slurm's: memory of one task")
    add("--array-parallelism", type=positive, metavar="K", help="tasks at a time")
    add("--sbatch", default="", metavar="'--account=x --qos=y'", help="more options of sbatch")
    options = parser.parse_args(argv)
    options.status |= options.action == "status"
    if options.workers and options.gpus:
        fail("--workers and --gpus exclude each other: with --gpus, --jobs-per-gpu is accepted")
    return options


def main(argv):
    options = parse_options(argv)
    lines = [] if sys.stdin.isatty() else sys.stdin.readlines()
    if options.status and not any(map(str.strip, lines)):
        return status(scan(options.runs_dir))
    runs = read_runs(lines)
    if options.status:
        return status({run.name: (owner(run), run.final_step) for run in runs})
    slots, complaint = make_slots(options, runs)
    if options.slurm:
        slots = [{"OMP_NUM_THREADS": options.cpus_per_task or 1}] * (options.array_parallelism or len(runs))
        number, unit = re.fullmatch(r"(\d+)([KMGT]?)B?", (options.mem or "0").upper()).groups()
        host_bytes = int(number) * 1024 ** " KMGT".index(unit or "M") or float("inf")
        complaint = too_large(runs, 1, host_bytes, float("inf") if options.gpus_per_task else 0, 1)
    if options.dry_run:
        for run in runs:
            print(shlex.join(run.words))
        print(*estimate(runs, options.sps, len(slots), int(slots[0]["OMP_NUM_THREADS"])), sep="\n")
        if complaint:
            print("it would be refused here:", complaint)
        if options.slurm:
            print(array_script(runs, options))
        return 0
    if complaint:
        fail(complaint)
    for script in {run.script for run in runs}:
        if not Path(script).exists():
            fail(f"stdin: there is no {script} in {os.getcwd()}: the repository's root is the place to start from")
    for run in runs:
        path = owner(run)
        difference = None if path.is_symlink() else run.differs(path)
        if difference:
            fail(f"--run-name {run.name} has run with {difference}: RUNS_DIR=… keeps two versions of a sweep apart")
    already = queued() if options.slurm else set()
    try:
        for run in runs:
            claim(run)
    except OSError as error:
        fail(f"--runs-dir {runs[0].runs_dir} ({error.strerror}): a directory that can be written to is accepted")
    figure = figure_commands(runs)
    if options.slurm:
        return submit(runs, already, options, figure)
    pool = Pool(runs, slots, options.retry_diverged)
    pool.work()
    return summary(pool, figure)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `… | head` is no error
    sys.exit(main(sys.argv[1:]))
