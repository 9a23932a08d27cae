"""Carries out jobs on this machine: a process each, watched until it ends, tried again if it crashes."""

import contextlib
import ctypes
import fcntl
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections import Counter

from tqdm import tqdm

from support.reading import log_end, progress, state
from support.rundir import BUSY

tqdm.monitor_interval = 0  # no second thread: a child dies with the thread that started it (die_with_parent)
LIBC = ctypes.CDLL(None)


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
