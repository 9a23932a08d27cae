"""Runs jobs on this machine: one process per run, or one for several runs that can train together (a pack).

Runs of `ppo_envpool.py` that differ only in `support.arguments.OWN` share a process, which trains them several times
faster than one process each. States are read from the run directories, never from a pack's exit code.
"""

import contextlib
import ctypes
import fcntl
import json
import math
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter

from tqdm import tqdm

from launching.machines import TOGETHER, runs_that_fit
from support import catalog
from support.arguments import ALONE, OWN
from support.reading import CURVES, Progress, is_done, log_end, no_link, progress, state
from support.rundir import BUSY
from support.signals import handle

tqdm.monitor_interval = 0  # no second thread: a child dies with the thread that started it (die_with_parent)
LIBC = ctypes.CDLL(None)


def pack_key(job):
    """Equal for two jobs that can share a process; None for a job that cannot share one."""
    if catalog.script(job.script).pack == 1 or str(job.args.get("schedule")).startswith("noise"):
        return None
    if any(job.args.get(name, value) != value for name, value in ALONE.items()):
        return None
    shared = {name: value for name, value in job.args.items() if name not in OWN}
    return json.dumps([job.script, shared], sort_keys=True, default=str)


def progress_of(job):
    """How far a job has come; that of a job that has not begun if its curves cannot be read, as the run will report."""
    with contextlib.suppress(OSError):
        return progress(job.path)
    return Progress(job.first_step, 0.0)


def die_with_parent():
    """In the child: asks for a SIGTERM, which makes it write a checkpoint, when the launcher ends, even by kill -9."""
    if sys.platform == "linux":
        LIBC.prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


class Attempt:
    """A process that runs one job or a pack of them.

    The output of a pack goes to the log of its first run. The other logs say so, and how their own run ended.
    """

    def __init__(self, jobs, slot):
        """Raises BlockingIOError if other launchers work on all of the runs, OSError if a log cannot be written."""
        self.slot, self.logs, self.list = slot, {}, None
        self.sizes, self.grown = None, 0.0  # size of each curves.csv, and when it last grew
        for job in jobs:
            with contextlib.suppress(BlockingIOError):
                self.logs[job] = self.locked(job)
        if not self.logs:
            raise BlockingIOError
        self.jobs = list(self.logs)
        first, *others = self.jobs
        try:
            for job in self.jobs:
                self.note(job, shlex.join(job.command()))
            for job in others:
                self.note(job, f"in one process with {len(others)} others, whose output is in {first.path / 'log.txt'}")
            self.start = self.logs[first].tell()
            # in a session of its own: Ctrl-C reaches only the launcher, which sends SIGTERM
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=self.logs[first],
                stderr=self.logs[first],
                env={**os.environ, **slot},
                start_new_session=True,
                preexec_fn=die_with_parent,
                pass_fds=[log.fileno() for log in self.logs.values()],  # and with them the locks
            )
        except OSError:
            self.close()
            raise

    @staticmethod
    def locked(job):
        """The log of a run, open and locked until both this process and the child have ended."""
        job.path.mkdir(parents=True, exist_ok=True)
        log = open(job.path / "log.txt", "ab", opener=no_link)
        try:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            log.close()
            raise
        return log

    def command(self):
        if len(self.jobs) == 1:
            return self.jobs[0].command()
        self.list = tempfile.NamedTemporaryFile("w", prefix="runs_", suffix=".txt", encoding="utf-8")
        words = [job.command() for job in self.jobs]
        place = next(i for i, word in enumerate(words[0]) if word.endswith(".py")) + 1
        self.list.writelines(shlex.join(line[place:]) + "\n" for line in words)
        self.list.flush()
        return [*words[0][:place], "--runs", self.list.name]

    def close(self):
        for log in self.logs.values():
            with contextlib.suppress(OSError):
                log.close()
        if self.list:
            self.list.close()

    def note(self, job, text):
        log = self.logs[job]
        log.write(f"[launch {time.strftime('%Y-%m-%dT%H:%M:%S')} {socket.gethostname()}] {text}\n".encode())
        log.flush()

    def seconds_without_progress(self):
        """Seconds since this was first called, or since a curves.csv of its runs or the output has last grown."""
        paths = [self.jobs[0].path / "log.txt", *(job.path / CURVES for job in self.jobs)]
        sizes = [path.stat().st_size for path in paths if path.exists()]
        if sizes != self.sizes:
            self.sizes, self.grown = sizes, time.monotonic()
        return time.monotonic() - self.grown

    def kill(self, reason):
        """Kills the process and its children at once, even a stopped one."""
        with contextlib.suppress(OSError):  # a full disk
            self.logs[self.jobs[0]].write(f"{reason}\n".encode())
            self.logs[self.jobs[0]].flush()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def outcomes(self):
        """{job: done, diverged, failed, crashed or busy}, once the process has ended; {} before."""
        code = self.process.poll()
        if code is None:
            return {}
        with open(self.jobs[0].path / "log.txt", "rb") as log:
            log.seek(self.start)
            lines = log.read().decode(errors="replace").splitlines()
        found = {job: self.outcome(job, code, lines) for job in self.jobs}
        for job, (_, own_code, said) in found.items():
            with contextlib.suppress(OSError):  # a full disk: the outcome is known here all the same
                if job is not self.jobs[0] and said:
                    self.logs[job].write(f"{said}\n".encode())
                self.note(job, f"exit code {own_code if own_code >= 0 else 128 - own_code}")  # as a shell says
        self.close()
        return {job: outcome for job, (outcome, _, _) in found.items()}

    def outcome(self, job, code, lines):
        """The outcome of a job, the exit code that it would have had alone, and the line of the log that says so."""
        name = rf"(?<!\w){re.escape(str(job.args['run_name']))}(?!\w)"  # s1 is not s10
        about = [line for line in lines if len(self.jobs) == 1 or re.search(name, line)]
        said = (about or lines or [""])[-1]
        if is_done(job.path):
            return "done", 0, said
        if any(BUSY in line for line in about):
            return "busy", 2, said
        if (job.path / "failed.json").exists():  # this attempt's; torchrun's exit code is 1
            return "diverged", 3, said
        if code in (0, 2, 3):  # the process ended normally, without this run
            return "failed", 2, said
        return "crashed", code, said


class Pool:
    """All jobs of one launch: which wait, which run, and how the others ended.

    machine: where they run (machines.py). together: the largest number of runs in one process. timeout: minutes
    without a new point or output after which a process is killed; None: no limit.
    """

    def __init__(self, jobs, machine, retry_diverged, together=TOGETHER, timeout=None):
        self.jobs, self.free_slots, self.attempts = jobs, list(machine.slots), []
        self.machine, self.together, self.timeout = machine, together, timeout
        self.ended = {}  # job -> skipped, done, diverged or failed
        self.reasons = {}  # job -> why it has diverged or failed
        self.crashes = Counter()
        self.signals, self.last_signal = [], -math.inf
        self.settled = {"done": "skipped"}  # state of a run that needs no start -> how it is counted
        if not retry_diverged:
            self.settled["diverged"] = "diverged"
        self.waiting = [job for job in jobs if not self.is_settled(job, state(job.path))]
        self.steps = {job: job.final_step if job in self.ended else progress_of(job).step for job in jobs}
        self.bar = tqdm(
            total=sum(job.final_step - job.first_step for job in jobs),
            initial=self.steps_made(),
            disable=None,
            dynamic_ncols=True,
            bar_format="{percentage:3.0f}%|{bar}| {n:,}/{total:,} steps{postfix}",
        )
        self.last_shown, self.start = -math.inf, time.monotonic()
        self.steps_at_start = self.steps_made()

    def steps_made(self):
        """The steps of all jobs so far; a child's without its parent's."""
        return sum(max(0, self.steps[job] - job.first_step) for job in self.jobs)

    def end(self, job, outcome, reason=""):
        self.ended[job] = outcome
        if outcome in ("diverged", "failed"):
            self.reasons[job] = reason or log_end(job.path)[0]

    def is_settled(self, job, found):
        """Whether a run in this state is not started again. If so, notes how it is counted."""
        if found in self.settled:
            self.end(job, self.settled[found])
        return found in self.settled

    def announce(self, word, job, more=""):
        self.bar.write(f"{word:9} {job.name}  {more}".rstrip())
        sys.stdout.flush()

    def ready(self):
        """Yields the waiting jobs that can start and that nobody else works on; ends those that never can."""
        for job in list(self.waiting):
            found = state(job.path)
            if found == "running":
                continue
            if self.is_settled(job, found):  # finished by another launcher, or by a sweep that shares the run
                self.waiting.remove(job)
            elif not job.waits:
                yield job
            elif job.parent in self.ended:
                self.waiting.remove(job)
                self.end(job, "failed", f"--resume-from {job.parent.name}, which has {self.ended[job.parent]}")
                self.announce("failed", job, self.reasons[job])

    def next_pack(self):
        """The first job that can start, with as many that can share its process as leave no core idle."""
        ready = self.ready()
        first = next(ready, None)
        if first is None:
            return []
        key = None if self.crashes[first] else pack_key(first)  # after a crash of a pack its runs are tried one by one
        size = min(self.together, math.ceil(len(self.waiting) / len(self.free_slots)))
        size = min(size, runs_that_fit(first, self.machine.main_bytes))
        pack = [first]
        while key and len(pack) < size:
            job = next(ready, None)
            if job is None:
                break
            if not self.crashes[job] and pack_key(job) == key:
                pack.append(job)
        return pack

    def start_next(self):
        """Starts the next job or pack. Returns whether there was one."""
        pack = self.next_pack()
        if not pack:
            return False
        try:
            attempt = Attempt(pack, self.free_slots[0])
        except BlockingIOError:  # taken by another launcher a moment ago
            return False
        except OSError as error:
            for job in pack:
                self.waiting.remove(job)
                self.end(job, "failed", f"{error.strerror}: {job.path / 'log.txt'}")
                self.announce("failed", job, self.reasons[job])
            return True
        self.attempts.append(attempt)
        self.free_slots.pop(0)
        for job in attempt.jobs:
            self.waiting.remove(job)
            self.announce("resumes" if (job.path / "checkpoint.pt").exists() else "starts", job)
        return True

    def end_hung(self):
        """Kills the processes without progress for `timeout` minutes, which then count as crashed."""
        for attempt in self.attempts if self.timeout else ():
            if attempt.seconds_without_progress() > 60 * self.timeout:
                attempt.kill(f"error: no new point of a curve and no output for {self.timeout:g} minutes (--timeout)")

    def collect(self):
        """Handles the attempts that ended. Returns whether there were any."""
        outcomes = {attempt: attempt.outcomes() for attempt in self.attempts}
        self.attempts = [attempt for attempt, of_jobs in outcomes.items() if not of_jobs]
        for attempt, of_jobs in outcomes.items():
            if of_jobs:
                self.free_slots.append(attempt.slot)
            for job, outcome in of_jobs.items():
                self.steps[job] = progress_of(job).step
                self.conclude(job, outcome, attempt.process.returncode)
        return any(outcomes.values())

    def conclude(self, job, outcome, code):
        """Decides whether a job whose process ended is tried again."""
        if self.signals and outcome == "crashed":
            self.waiting.append(job)
            self.announce("stopped", job, f"at step {self.steps[job]:,}")
        elif outcome == "busy":
            self.waiting.append(job)
        elif outcome == "crashed" and not self.crashes[job]:
            self.crashes[job] += 1
            self.waiting.insert(0, job)
            self.announce("retries", job, f"exit code {code}: {log_end(job.path)[0]}")
        else:
            self.end(job, "failed" if outcome == "crashed" else outcome)
            self.announce(self.ended[job], job, self.reasons.get(job, ""))

    def show(self, every):
        """Updates the bar, or prints a line where there is no terminal, if `every` seconds have passed."""
        if time.monotonic() - self.last_shown < every:
            return
        self.last_shown = time.monotonic()
        rate, running = 0.0, [job for attempt in self.attempts for job in attempt.jobs]
        for job in running + (self.waiting if self.free_slots else []):  # another launcher works on those
            found = progress_of(job)
            self.steps[job] = found.step
            rate += 0 if found.stalled else found.speed
        self.bar.n = self.steps_made()
        rate = rate or (self.bar.n - self.steps_at_start) / max(1.0, time.monotonic() - self.start)  # for short runs
        counts = Counter(self.ended.values())
        text = (
            f"{len(running)} running  {counts['done'] + counts['skipped']} done  "
            f"{counts['failed'] + counts['diverged']} failed  {len(self.waiting)} waiting  "
            f"{rate:,.0f} steps/s  ETA {time_left(self.bar.total - self.bar.n, rate)}"
        )
        self.bar.set_postfix_str(text, refresh=False)
        self.bar.refresh()
        if self.bar.disable:
            print(f"{self.bar.n:,}/{self.bar.total:,} steps  {text}", flush=True)

    def take_signal(self, signum, frame):
        """Signals within a second are one: `timeout` sends its signal to the launcher and to the launcher's group."""
        now = time.monotonic()
        if now - self.last_signal > 1:
            self.signals.append(signum)
        self.last_signal = now

    def work(self):
        """Runs all jobs. A first signal stops the runs at their next checkpoint, a later one kills them."""
        handle((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), self.take_signal)
        handled, next_look = 0, 0.0
        while self.attempts or (self.waiting and not self.signals):
            if self.collect() or time.monotonic() >= next_look:  # looking at all waiting jobs takes time
                while self.free_slots and not self.signals and self.start_next():
                    pass
                self.end_hung()
                next_look = time.monotonic() + 1
            if len(self.signals) > handled:
                handled = len(self.signals)
                for attempt in self.attempts:
                    attempt.process.send_signal(signal.SIGTERM if handled == 1 else signal.SIGKILL)
                running = sum(len(attempt.jobs) for attempt in self.attempts)
                print(f"stopping {running} runs at their next checkpoint; once more kills them", flush=True)
            self.show(every=60 if self.bar.disable else 5)
            time.sleep(0.05)
        self.show(every=0)
        self.bar.close()


def time_left(steps, rate):
    """The time for so many steps at `rate` steps/s, as 1:02:03; "?" if the rate is unknown, "-" if none are left."""
    return "-" if not steps else tqdm.format_interval(steps / rate) if rate else "?"
