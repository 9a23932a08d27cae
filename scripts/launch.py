"""Runs the commands on stdin, one training run a line, on this machine or as one Slurm job array.

Every `sweeps/*.sh` pipes its commands into this program:

    bash sweeps/fixed_budget.sh --dry-run                           # what would run, and for how long
    bash sweeps/fixed_budget.sh --gpus 0,1,2,3 --jobs-per-gpu 2     # on this machine
    bash sweeps/fixed_budget.sh --slurm --partition gpu --time 2-0 --gpus-per-task 1 --cpus-per-task 8
    bash sweeps/fixed_budget.sh --status                            # from any shell, also during the sweep
    python scripts/launch.py status                                 # all runs below runs/

After any failure, give the same command again: finished runs are skipped, interrupted runs resume from their
checkpoint, and runs that another launcher or Slurm is working on are left to it. The state of a run is in its
directory: `done.json`, `failed.json`, the script's own lock, and `log.txt`, which this program writes: the output of
every attempt between two lines that begin with `[launch`. The log is locked during an attempt, so that two launchers
never work on one run.

Two sweeps that need the same run (the same script with the same arguments) share it. The first to start it owns the
directory; the other gets a relative link to it. The owners' names are in `<runs dir>/.launch`.

A command with `--resume-from` another run of the same list waits until that run is done.
"""

from launching.root import ROOT

import argparse
import ast
import contextlib
import ctypes
import fcntl
import hashlib
import itertools
import json
import os
import re
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from analysis import statement
from launching import slurm_array
from launching.machines import slurm_machine, this_machine, too_large
from tqdm import tqdm

from support.arguments import PLACE, fail
from support.reading import default_arguments, find_runs, log_end, progress, read_json, state
from support.rundir import BUSY

tqdm.monitor_interval = 0  # no second thread: a child dies with the thread that started it (die_with_parent)
LIBC = ctypes.CDLL(None)
SPEEDS = {  # steps/s at the defaults in float32 on two cores of an AMD EPYC (results/benchmark)
    "ppo_atari_envpool.py": 481,
    "pqn_atari_envpool.py": 403,
    "ppo_procgen.py": 165,
    "ppo_rnd_envpool.py": 208,
}
ONE_THREAD = {"ppo_envpool.py": 13000}  # steps/s of a script that gains nothing from a second core: CartPole, 8 x 128
# Steps of a game of --eval-episodes, for the hours. Atari: a guess. A random policy's games have 80 to 700 steps
# (measured in Breakout, RoadRunner and MontezumaRevenge), those of trained networks more, at most 27,000. Others: the
# usual time limit, an upper estimate.
ATARI_GAME = 5000
GAME_STEPS = {"ppo_procgen.py": 1000, "ppo_isaacgym.py": 1000, "ppo_envpool.py": 500}  # other scripts play Atari


# ---- commands --------------------------------------------------------------------------------------------------------
def parse_value(text):
    """The number, boolean or None that a word of a command means, else the word itself."""
    with contextlib.suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError, OverflowError):
        value = ast.literal_eval(text)
        if value is None or isinstance(value, (bool, int, float)) and float(value) == value:
            return value
    return text


def parse_flags(words):
    """{argument: value} of a command's `--key value`, `--key=value`, `--key` and `--no-key`."""
    flags = {}
    for i, word in enumerate(words):
        if not word.startswith("--"):
            continue
        key, equals, text = word[2:].partition("=")
        key = key.replace("-", "_")
        if not equals:
            text = " ".join(itertools.takewhile(lambda word: not word.startswith("--"), words[i + 1 :]))
        if text:
            flags[key] = text if key in PLACE else parse_value(text)
        else:
            flags[key.removeprefix("no_")] = not key.startswith("no_")
    return flags


def final_step(arguments):
    """The steps that a run with these arguments makes: total_timesteps, cut to whole batches. 0 if any is missing."""
    batch_size = arguments.get("num_envs", 0) * arguments.get("num_steps", 0)
    return arguments.get("total_timesteps", 0) // batch_size * batch_size if batch_size else 0


class Job:
    """One command of stdin: a training run to carry out.

    Attributes: `words`, the command; `script`; `flags`, what the command says; `args`, the flags over the script's
    defaults; `name` and `runs_dir`; `path`, the run directory (`claim` changes it if another sweep owns the run);
    `parent`, the job that it goes on from, if that is in the list too, and `first_step`, where that one ends.
    """

    parent, first_step = None, 0

    def __init__(self, line):
        try:
            self.words = shlex.split(line)
        except ValueError as error:
            fail(f"stdin: `{line}` cannot be parsed ({error}): expected one shell command a line")
        scripts = [i for i, word in enumerate(self.words) if word.endswith(".py")]
        if not scripts:
            fail(f"stdin: `{line}` runs no .py script: expected python SCRIPT.py --run-name NAME …")
        self.script = self.words[scripts[0]]
        self.flags = parse_flags(self.words[scripts[0] + 1 :])
        if "run_name" not in self.flags:
            fail(f"stdin: `{line}` has no --run-name: expected a name of its own for each run")
        self.args = {**default_arguments(self.script, str(self.flags.get("env_id"))), **self.flags}
        self.name, self.runs_dir = str(self.args["run_name"]), Path(str(self.args.get("runs_dir", "runs")))
        self.path = self.runs_dir / self.name
        if Path(self.name).is_absolute() or ".." in Path(self.name).parts or not Path(self.name).parts:
            fail(f"--run-name {self.name} is not a directory below --runs-dir: expected a relative path without ..")
        if max(len(os.fsencode(part)) for part in self.path.parts) > 200:
            fail(f"--run-name {self.name}: expected a name of at most 200 bytes")
        self.read_sizes()

    def read_sizes(self):
        """Sets `steps` (to make), `batch_size`, `final_step`, `eval_episodes`. Ends the program on unusable values."""
        for key in ("total_timesteps", "num_envs", "num_steps", "num_minibatches", "minibatch_size"):
            value = self.args.get(key)
            if value is None and key in ("num_minibatches", "minibatch_size"):
                continue
            if type(value) is not int or value < 1:
                fail(f"--{key.replace('_', '-')} {value} of {self.name}: expected a whole number of at least 1")
        self.steps, self.batch_size = self.args["total_timesteps"], self.args["num_envs"] * self.args["num_steps"]
        self.final_step = final_step(self.args)
        self.eval_episodes = self.args.get("eval_episodes", 0)
        if type(self.eval_episodes) is not int or self.eval_episodes < 0:
            fail(f"--eval-episodes {self.eval_episodes} of {self.name}: expected a whole number of at least 0")
        if self.steps < self.batch_size:
            fail(
                f"--total-timesteps {self.steps} of {self.name} is less than one batch of {self.args['num_envs']} envs "
                f"x {self.args['num_steps']} steps: expected at least {self.batch_size}"
            )

    def go_on_from(self, parent):
        self.parent, self.first_step = parent, parent.final_step
        self.steps = self.args["total_timesteps"] - parent.args["total_timesteps"]

    @property
    def waits(self):
        """Whether the run that it goes on from is not done."""
        return bool(self.parent) and state(self.parent.path) != "done"

    def minibatch_size(self, batch_size):
        """Rows of a minibatch if the batch had `batch_size` rows."""
        return self.args.get("minibatch_size") or batch_size // (self.args.get("num_minibatches") or 1)

    @property
    def key(self):
        """A hash of what the run computes: equal for two jobs exactly if they do the same."""
        relevant = {name: value for name, value in self.args.items() if name not in PLACE | {"num_minibatches"}}
        relevant.update(script=Path(self.script).name, minibatch_size=self.minibatch_size(self.batch_size))
        for name, value in relevant.items():
            if isinstance(value, int):  # 1 and 1.0 are the same value of an argument
                relevant[name] = float(value)
        return hashlib.sha1(json.dumps(relevant, sort_keys=True).encode()).hexdigest()

    def command(self):
        """The words to execute: with this Python, and with the owner's --run-name if the run is shared."""
        words = [sys.executable if word in ("python", "python3") else word for word in self.words]
        if self.path == self.runs_dir / self.name:
            return words
        return [*words, "--run-name", str(self.path.relative_to(self.runs_dir))]  # of two, the later one counts

    def differs(self, run_dir):
        """The first argument for which the run in this directory had another value, as text; "" if there is none."""
        before = read_json(run_dir / "manifest.json").get("arguments", {})
        for name, value in self.flags.items():
            if name in before and name not in PLACE and before[name] != value and str(before[name]) != str(value):
                return f"--{name.replace('_', '-')} {before[name]}, not {value}"
        return ""


def read_jobs(lines):
    """The jobs of all lines, checked as a whole before any is started."""
    jobs = [Job(line) for line in map(str.strip, lines) if line and line[0] != "#"]
    if not jobs:
        fail("stdin: no commands: expected one a line, as `bash sweeps/fixed_budget.sh` pipes them in")
    for name, count in Counter(job.name for job in jobs).items():
        if count > 1:
            fail(f"--run-name {name} is given to {count} commands: expected a name of its own for each")
    if len({job.runs_dir for job in jobs}) > 1:
        fail("--runs-dir differs between the commands: expected one for all")
    places = {os.path.abspath(job.path): place for place, job in enumerate(jobs)}
    for place, job in enumerate(jobs):
        parent = job.args.get("resume_from")
        of_parent = None if parent is None else places.get(os.path.abspath(str(parent)))
        if of_parent is None:
            continue
        if of_parent >= place:  # so that no run waits for itself
            fail(f"--resume-from {parent} of {job.name}: expected the command of that run before this one")
        job.go_on_from(jobs[of_parent])
    return jobs


# ---- run directories -------------------------------------------------------------------------------------------------
def owner(job):
    """The directory that holds this run: its own, or that of the sweep which has started the same run before."""
    own = job.runs_dir / job.name
    if own.is_dir() and not own.is_symlink():
        return own
    with contextlib.suppress(OSError):
        other = job.runs_dir / (job.runs_dir / ".launch" / job.key).read_text()
        if not job.differs(other):
            return other
    return own


def claim(job):
    """Sets `job.path`. Makes this sweep the owner of the run, or a link to the directory of the sweep that owns it."""
    own, note = job.runs_dir / job.name, job.runs_dir / ".launch" / job.key
    note.parent.mkdir(parents=True, exist_ok=True)
    own.parent.mkdir(parents=True, exist_ok=True)
    partial = note.with_name(f".{note.name}.{socket.gethostname()}.{os.getpid()}")
    partial.write_text(job.name)
    with contextlib.suppress(FileExistsError):
        os.link(partial, note)  # of several launchers exactly one succeeds
    job.path = owner(job)
    if job.path == own:
        os.replace(partial, note)
        if own.is_symlink():  # to a run whose arguments have changed since
            own.unlink()
    else:
        partial.unlink()
        partial.symlink_to(os.path.relpath(job.path.resolve(), own.parent.resolve()))
        os.replace(partial, own)
    partial.unlink(missing_ok=True)  # os.replace does nothing if both names are links to one file


# ---- time ------------------------------------------------------------------------------------------------------------
def estimate(jobs, sps, at_a_time, threads):
    """Yields lines: the number of runs, their steps, and the hours with `at_a_time` runs of `threads` threads each.

    `sps`: steps/s of one run if the user has given it, else None. A step of a final game (--eval-episodes) counts like
    a step of training.
    """
    left = [job for job in jobs if state(owner(job)) != "done"]
    yield f"{len(jobs):,} runs, {sum(job.steps for job in jobs):,} steps; {len(jobs) - len(left):,} runs are finished"
    for script in sorted({job.script for job in left}):
        steps = sum(job.steps for job in left if job.script == script)
        games = sum(job.eval_episodes for job in left if job.script == script)
        game_steps = GAME_STEPS.get(Path(script).name, ATARI_GAME)
        finished = [read_json(owner(job) / "done.json").get("sps") for job in jobs if job.script == script]
        measured = [rate for rate in finished if rate]
        if sps:
            rate, source = sps, "given"
        elif measured:
            rate, source = statistics.median(measured), "the median of the finished runs"
        else:
            rate = ONE_THREAD.get(Path(script).name) or SPEEDS.get(Path(script).name, 0) * min(threads, 2) / 2
            source = "results/benchmark, by cores; --sps or SPS=… sets yours"
        if rate:
            hours = (steps + games * game_steps) / rate / at_a_time / 3600
            speed = f"{at_a_time} runs at a time, at {rate:,.0f} steps/s each ({source}): {hours:,.1f} hours"
        else:
            speed = "speed not measured yet: --sps or SPS=… gives the hours"
        final_games = f" and {games:,} final games of some {game_steps:,} steps" if games else ""
        yield f"{script}: {steps:,} steps{final_games}, {speed}"


# ---- on this machine -------------------------------------------------------------------------------------------------
def die_with_parent():
    """In the child: asks for SIGTERM, which writes a checkpoint, when the launcher ends, even by kill -9."""
    if sys.platform == "linux":
        LIBC.prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


class Attempt:
    """A process that carries out a job."""

    def __init__(self, job, slot):
        """Raises BlockingIOError if another launcher works on the run, OSError if its log cannot be written."""
        self.job, self.slot = job, slot
        job.path.mkdir(parents=True, exist_ok=True)
        self.log = open(job.path / "log.txt", "ab")
        try:
            # the child inherits the file and with it the lock, which holds until both processes have ended
            fcntl.flock(self.log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.note(shlex.join(job.command()))
            self.start = self.log.tell()
            # in a session of its own: Ctrl-C reaches only the launcher, which sends SIGTERM
            self.process = subprocess.Popen(
                job.command(),
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
        output = (self.job.path / "log.txt").read_bytes()[self.start :]
        with contextlib.suppress(OSError):  # a full disk: the exit code is known here all the same
            self.note(f"exit code {code}")
        with contextlib.suppress(OSError):
            self.log.close()
        if code == 2:
            return "busy" if BUSY.encode() in output else "failed"
        if code == 0:
            return "done" if (self.job.path / "done.json").exists() else "failed"
        return "diverged" if code == 3 else "crashed"


class Pool:
    """All jobs of one launch: which are waiting, which are under way, and how the others ended."""

    def __init__(self, jobs, slots, retry_diverged):
        self.jobs, self.free_slots, self.attempts = jobs, list(slots), []
        self.ended = {}  # job -> skipped, done, diverged or failed
        self.reasons = {}  # job -> why it has diverged or failed
        self.crashes = Counter()
        self.signals = []
        self.settled = {"done": "skipped"}  # state of a run that is not started -> how it counts
        if not retry_diverged:
            self.settled["diverged"] = "diverged"
        self.waiting = [job for job in jobs if not self.is_settled(job, state(job.path))]
        self.steps = {job: job.final_step if job in self.ended else progress(job.path)[0] for job in jobs}
        self.bar = tqdm(
            total=sum(job.final_step - job.first_step for job in jobs),
            initial=self.steps_made(),
            disable=None,
            dynamic_ncols=True,
            bar_format="{percentage:3.0f}%|{bar}| {n:,}/{total:,} steps{postfix}",
        )
        self.last_shown, self.start = 0.0, time.time()
        self.steps_at_start = self.steps_made()

    def steps_made(self):
        """The steps of all jobs so far; a child's without its parent's."""
        return sum(max(0, self.steps[job] - job.first_step) for job in self.jobs)

    def end(self, job, outcome, reason=""):
        self.ended[job] = outcome
        if outcome in ("diverged", "failed"):
            self.reasons[job] = reason or log_end(job.path)[0]

    def is_settled(self, job, found):
        """Whether a run that was found in this state is not started again. If so, notes how it counts."""
        if found in self.settled:
            self.end(job, self.settled[found])
        return found in self.settled

    def announce(self, word, job, more=""):
        self.bar.write(f"{word:9} {job.name}  {more}".rstrip())
        sys.stdout.flush()

    def start_next(self):
        """Starts the first waiting job that nobody else works on. Returns whether there was one."""
        for job in list(self.waiting):
            found = state(job.path)
            if found == "running":
                continue
            if self.is_settled(job, found):  # another launcher, or a sweep that shares the run, has finished it
                self.waiting.remove(job)
                continue
            if job.waits:
                if job.parent in self.ended:
                    self.waiting.remove(job)
                    self.end(job, "failed", f"--resume-from {job.parent.name}, which has {self.ended[job.parent]}")
                    self.announce("failed", job, self.reasons[job])
                continue
            try:
                attempt = Attempt(job, self.free_slots[0])
            except BlockingIOError:
                continue
            except OSError as error:
                self.waiting.remove(job)
                self.end(job, "failed", f"{error.strerror}: {job.path / 'log.txt'}")
                self.announce("failed", job, self.reasons[job])
                continue
            self.waiting.remove(job)
            self.attempts.append(attempt)
            self.free_slots.pop(0)
            self.announce("resumes" if (job.path / "checkpoint.pt").exists() else "starts", job)
            return True
        return False

    def collect(self):
        """Handles the attempts that have ended. Returns whether there were any."""
        outcomes = {attempt: attempt.outcome() for attempt in self.attempts}
        self.attempts = [attempt for attempt, outcome in outcomes.items() if outcome is None]
        for attempt, outcome in outcomes.items():
            if outcome:
                self.free_slots.append(attempt.slot)
                self.steps[attempt.job] = progress(attempt.job.path)[0]
                self.conclude(attempt, outcome)
        return any(outcomes.values())

    def conclude(self, attempt, outcome):
        """Decides whether the job of an attempt has ended or is tried again."""
        job = attempt.job
        if self.signals and outcome == "crashed":
            self.waiting.append(job)
            self.announce("stopped", job, f"at step {self.steps[job]:,}")
        elif outcome == "busy":
            self.waiting.append(job)
        elif outcome == "crashed" and not self.crashes[job]:
            self.crashes[job] += 1
            self.waiting.insert(0, job)
            self.announce("retries", job, f"exit code {attempt.process.returncode}: {log_end(job.path)[0]}")
        else:
            self.end(job, "failed" if outcome == "crashed" else outcome)
            self.announce(self.ended[job], job, self.reasons.get(job, ""))

    def show(self, every):
        """Updates the bar, or prints a line where there is no terminal, if `every` seconds have passed."""
        if time.time() - self.last_shown < every:
            return
        self.last_shown = time.time()
        rate, under_way = 0.0, [attempt.job for attempt in self.attempts]
        under_way += self.waiting if self.free_slots else []  # another launcher works on those
        for job in under_way:
            self.steps[job], speed = progress(job.path)
            rate += speed
        self.bar.n = self.steps_made()
        rate = rate or (self.bar.n - self.steps_at_start) / max(1.0, time.time() - self.start)  # of short runs
        counts = Counter(self.ended.values())
        text = (
            f"{len(self.attempts)} running  {counts['done'] + counts['skipped']} done  "
            f"{counts['failed'] + counts['diverged']} failed  {len(self.waiting)} waiting  "
            f"{rate:,.0f} steps/s  ETA {time_left(self.bar.total - self.bar.n, rate)}"
        )
        self.bar.set_postfix_str(text, refresh=False)
        self.bar.refresh()
        if self.bar.disable:
            print(f"{self.bar.n:,}/{self.bar.total:,} steps  {text}", flush=True)

    def work(self):
        """Carries out all jobs. The first signal stops the runs at their next checkpoint, a second one at once."""
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, lambda signum, frame: self.signals.append(signum))
        handled, next_look = 0, 0.0
        while self.attempts or (self.waiting and not self.signals):
            if self.collect() or time.time() >= next_look:  # a look at all that wait takes time
                while self.free_slots and not self.signals and self.start_next():
                    pass
                next_look = time.time() + 1
            if len(self.signals) > handled:
                handled = len(self.signals)
                for attempt in self.attempts:
                    attempt.process.send_signal(signal.SIGTERM if handled == 1 else signal.SIGKILL)
                print(f"stopping {len(self.attempts)} runs at their next checkpoint; once more kills them", flush=True)
            self.show(every=60 if self.bar.disable else 5)
            time.sleep(0.05)
        self.show(every=0)
        self.bar.close()


def time_left(steps, rate):
    """The time for so many steps at `rate` steps/s, as 1:02:03; "?" if the rate is not known, "-" if none are left."""
    return "-" if not steps else tqdm.format_interval(steps / rate) if rate else "?"


def summary(pool, figure):
    """Prints how each job ended. Returns the exit code."""
    counts = Counter(pool.ended.values())
    print(
        f"\n{len(pool.jobs)} runs: {counts['done']} done, {counts['failed']} failed, {counts['diverged']} diverged, "
        f"{counts['skipped']} skipped (finished before), {len(pool.waiting)} left"
    )
    for job, reason in pool.reasons.items():
        print(f"  {pool.ended[job]:9} {job.name}  {reason}\n            {job.path / 'log.txt'}")
    if counts["diverged"]:
        print("diverged runs are not started again; --retry-diverged resumes them from their last good checkpoint")
    if pool.signals:
        print("stopped: the same command resumes from the checkpoints")
        return 130 if pool.signals[0] == signal.SIGINT else 143
    print("figure:", figure)
    return 1 if pool.reasons else 0


def figure_commands(jobs):
    """The commands that draw the figures of these runs, one for each sweep among them; SWEEP: a name to fill in."""
    names, runs_dir = {job.name.split("/")[0] for job in jobs}, jobs[0].runs_dir
    sweeps = sorted(name for name in names if (ROOT / "sweeps" / f"{name}.sh").exists())
    places = [(name, runs_dir / name) for name in sweeps]
    if names - set(sweeps):
        in_one_folder = len(names) == 1 and all("/" in job.name for job in jobs)
        places.append(("SWEEP", runs_dir / min(names) if in_one_folder else runs_dir))
    return "; ".join(f"python scripts/figures.py {name} --runs {place} --out figures/" for name, place in places)


# ---- status ----------------------------------------------------------------------------------------------------------
def status(runs):
    """Prints a table from the run directories alone. `runs`: {name: (directory, its first step, its last step)}."""
    counts, left, rate = Counter(), 0, 0.0
    for name, (run_dir, first, total) in sorted(runs.items()):
        word = state(run_dir)
        counts[word] += 1
        step, speed = progress(run_dir)
        more = f"{step:,}/{total:,} steps"
        if word == "running":
            rate += speed
            more += f"  {speed:,.0f} steps/s  ETA {time_left(total - step, speed)}"
        elif word in ("failed", "diverged"):
            more += f"  {log_end(run_dir)[0]}"
        if word not in ("done", "diverged"):
            left += total - max(step, first)
        print(f"{word:9} {name}  {more}")
    words = ("done", "running", "stale", "failed", "diverged", "missing")
    print(
        f"{len(runs)} runs: "
        + ", ".join(f"{counts[word]} {word}" for word in words)
        + f"; {left:,} steps left at {rate:,.0f} steps/s, ETA {time_left(left, rate)}"
    )


def runs_below(runs_dir):
    """What `status` takes, of every run below a folder."""
    if not os.path.isdir(runs_dir):  # Path.is_dir raises OSError if a name is too long
        fail(f"--runs-dir {runs_dir}: expected a directory with runs in it")
    arguments = {run_dir: read_json(run_dir / "manifest.json").get("arguments", {}) for run_dir in find_runs(runs_dir)}
    return {str(path.relative_to(runs_dir)): (path, 0, final_step(given)) for path, given in arguments.items()}


# ---- command line ----------------------------------------------------------------------------------------------------
class Parser(argparse.ArgumentParser):
    def error(self, message):
        fail(re.sub(r"^argument (\S+):(?! expected)", r"\1", message).removeprefix("argument "))


def matching(pattern, expected):
    """The type of an argument that matches a regular expression, upper or lower case; else a line with `expected`."""

    def parse(text):
        if re.fullmatch(pattern, text, re.ASCII | re.IGNORECASE):
            return text
        raise argparse.ArgumentTypeError(f"{text}: expected {expected}")

    return parse


def number(kind, low, high):
    """The type of an argument that is an int or a float from low to high."""

    def parse(text):
        with contextlib.suppress(ValueError):
            if low <= kind(text) <= high:
                return kind(text)
        what = "a whole number from" if kind is int else "a number from"
        raise argparse.ArgumentTypeError(f"{text}: expected {what} {low:,} to {high:,}")

    return parse


def parse_args(argv):
    """Returns checked options; exits 2 with one line on bad input."""
    parser = Parser(description=__doc__.split("\n")[0], allow_abbrev=False)
    add, count = parser.add_argument, number(int, 1, 10_000)
    word = matching(r"[^\s#]+", "a word without spaces")
    add("action", nargs="?", type=matching("run|status", "run or status"), default="run", help="run or status")
    add("--dry-run", action="store_true", help="print every command, the number of runs, the steps and the hours")
    add("--status", action="store_true", help="print the state of every run; without commands on stdin, of --runs-dir")
    add("--runs-dir", type=Path, default="runs", help="where `status` without commands on stdin looks (default runs)")
    add("--workers", type=count, metavar="K", help="runs at a time (default: GPUs x --jobs-per-gpu, or the cores)")
    gpus = matching(r"[\w-]+(,[\w-]+)*", "the numbers of GPUs, such as 0,1")
    add("--gpus", type=gpus, metavar="0,1", help="the GPUs to use (default: all, if there are any)")
    add("--jobs-per-gpu", type=count, default=1, metavar="J", help="runs at a time on each GPU (default 1)")
    add("--retry-diverged", action="store_true", help="resume the runs that ended in a number that was not finite")
    sps, given = number(float, 1e-3, 1e9), os.environ.get("SPS") or None
    add("--sps", type=sps, default=given, metavar="X", help="steps/s of one run, for the hours (or SPS=…)")
    add("--slurm", action="store_true", help="submit one Slurm job array instead of running here")
    add("--partition", type=word, help="Slurm: the partition")
    limit = matching(slurm_array.TIME, "a time as Slurm writes it: 90 (minutes), 12:00:00, 2-0 (days-hours)")
    add("--time", type=limit, help="Slurm: the time limit of a task, after which it is queued again")
    add("--gpus-per-task", type=count, metavar="K", help="Slurm: GPUs of a task")
    add("--cpus-per-task", type=count, metavar="K", help="Slurm: cores of a task, and threads of its run")
    mem = matching(slurm_array.MEMORY, "a whole number, in MB or with K, M, G or T after it, such as 32G")
    add("--mem", type=mem, metavar="32G", help="Slurm: memory of a task")
    add("--array-parallelism", type=count, metavar="K", help="Slurm: tasks at a time")
    sbatch = matching("-[ -~]+", "options of sbatch, such as '--account=x --qos=y'")
    add("--sbatch", type=sbatch, metavar="'--account=x --qos=y'", help="Slurm: more options of sbatch")
    options = parser.parse_args(argv)
    options.status |= options.action == "status"
    if options.workers and options.gpus:
        fail("--workers and --gpus exclude each other: expected --jobs-per-gpu with --gpus")
    return options


def dry_run(jobs, machine, options):
    """Prints what would be done."""
    for job in jobs:
        print(shlex.join(job.words))
    threads = int(machine.slots[0]["OMP_NUM_THREADS"])
    print(*estimate(jobs, options.sps, len(machine.slots), threads), sep="\n")
    problem = too_large(jobs, machine)
    if problem:
        print("would be refused here:", problem)
    if options.slurm:
        print(slurm_array.script([job for job in jobs if not job.waits], options))


def check_before_start(jobs, machine):
    """Ends the program if a job cannot run here: memory, a missing script, a directory with another run in it."""
    problem = too_large(jobs, machine)
    if problem:
        fail(problem)
    for script in {job.script for job in jobs}:
        if not Path(script).exists():
            fail(f"stdin: there is no {script} in {os.getcwd()}: expected to be started in the repository's root")
    for job in jobs:
        path = owner(job)
        difference = "" if path.is_symlink() else job.differs(path)
        if difference:
            fail(
                f"--run-name {job.name} has run with {difference}: use the same arguments, "
                "or RUNS_DIR=… for another version of the sweep"
            )


def main(argv):
    options = parse_args(argv)
    lines = [] if sys.stdin.isatty() else sys.stdin.readlines()
    if options.status and not any(map(str.strip, lines)):
        return status(runs_below(options.runs_dir))
    jobs = read_jobs(lines)
    if options.status:
        return status({job.name: (owner(job), job.first_step, job.final_step) for job in jobs})
    machine = slurm_machine(options, jobs) if options.slurm else this_machine(options, jobs)
    if options.dry_run:
        return dry_run(jobs, machine, options)
    check_before_start(jobs, machine)
    in_queue = slurm_array.queued() if options.slurm else set()
    try:
        for job in jobs:
            claim(job)
        for name in {Path(job.name).parts[0] for job in jobs if "/" in job.name}:
            statement.record(jobs[0].runs_dir / name, statement.parse(lines, parse_flags))
    except OSError as error:
        fail(f"--runs-dir {jobs[0].runs_dir} ({error.strerror}): expected a directory that can be written to")
    figure = figure_commands(jobs)
    if options.slurm:
        return slurm_array.submit(jobs, in_queue, options, figure)
    pool = Pool(jobs, machine.slots, options.retry_diverged)
    pool.work()
    return summary(pool, figure)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `… | head` is no error
    sys.exit(main(sys.argv[1:]))
