"""The jobs of a launch: the commands on stdin, checked, and the run directories they belong to."""

import ast
import contextlib
import hashlib
import itertools
import json
import os
import shlex
import socket
import sys
from collections import Counter
from pathlib import Path

from launching.machines import too_large
from support import recipe
from support.arguments import PLACE, check_run_name, check_text, fail, json_object, whole_number
from support.reading import begun_with, default_arguments, difference, no_link, read_json, state


# ---- commands --------------------------------------------------------------------------------------------------------
def parse_value(text):
    """The number, boolean or None that a word of a command means, a JSON object as manifests have it, or the word."""
    number = whole_number(text)
    if number is not None:
        return number
    with contextlib.suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError, OverflowError):
        value = ast.literal_eval(text)
        if value is None or isinstance(value, (bool, int, float)) and float(value) == value:
            return value
    with contextlib.suppress(ValueError):
        return json_object(text)
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


class Job:
    """One command of stdin: a training run to carry out.

    Attributes: `words`, the command; `script`; `flags`, what the command says; `defaults` of the script, and `args`,
    the defaults with the flags in their place; `guesses`, whether some defaults depend on a task whose module is not
    imported; `name` and `runs_dir`; `path`, the run directory (`claim` changes it if another sweep owns the run);
    `parent`, the job that it continues, if that is in the list too, and `first_step`, where the parent ends.
    """

    parent, first_step = None, 0

    def __init__(self, line, defaults=default_arguments):
        check_text("stdin:", line)
        try:
            self.words = shlex.split(line)
        except ValueError as error:
            fail(f"stdin: `{line}` cannot be parsed ({error}): expected one shell command per line")
        scripts = [i for i, word in enumerate(self.words) if word.endswith(".py")]
        if not scripts:
            fail(f"stdin: `{line}` runs no .py script: expected python SCRIPT.py --run-name NAME …")
        self.script = self.words[scripts[0]]
        self.flags = parse_flags(self.words[scripts[0] + 1 :])
        if "run_name" not in self.flags:
            fail(f"stdin: `{line}` has no --run-name: expected a name of its own for each run")
        env_id = str(self.flags.get("env_id"))
        try:
            json_object(str(self.flags.get("env_kwargs", "{}")))
        except ValueError as error:
            fail(f"{error} (in the command of {self.flags['run_name']})")
        self.defaults = defaults(self.script, env_id)
        self.guesses = env_id.startswith("gymnasium:") and defaults is default_arguments
        self.args = {**self.defaults, **self.flags}
        self.name, self.runs_dir = str(self.args["run_name"]), Path(str(self.args.get("runs_dir", "runs")))
        self.path = self.runs_dir / self.name
        check_run_name(self.name)
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
        try:
            schedule = recipe.schedule_of(self.args)
        except ValueError as error:
            fail(f"{error} (in the command of {self.name})")
        _, self.args["num_envs"], self.args["num_steps"] = schedule.phases[0]
        if self.args.get("schedule"):
            self.args["schedule"] = schedule.text
        scales = self.args.get("scale_from") or self.args.get("scaling")
        if scales:
            self.args["scale_from"] = self.args.get("scale_from") or self.defaults["num_envs"]
        if self.takes_law:
            try:
                self.args["learning_rate"] = recipe.default_rate(self.args)
            except (TypeError, ZeroDivisionError) as error:
                fail(f"no learning rate follows from the arguments of {self.name} ({error})")
        if scales:
            self.scale()
        self.steps, self.batch_size = self.args["total_timesteps"], self.args["num_envs"] * self.args["num_steps"]
        self.final_step = schedule.last_step
        self.eval_episodes = self.args.get("eval_episodes", 0)
        if type(self.eval_episodes) is not int or self.eval_episodes < 0:
            fail(f"--eval-episodes {self.eval_episodes} of {self.name}: expected a whole number of at least 0")
        if self.steps < self.batch_size:
            fail(
                f"--total-timesteps {self.steps} of {self.name} is less than one batch of {self.args['num_envs']} envs "
                f"x {self.args['num_steps']} steps: expected at least {self.batch_size}"
            )

    @property
    def takes_law(self):
        """Whether the learning rate is the script's default, and that the law's."""
        return self.defaults.get("learning_rate", 0) is None and self.flags.get("learning_rate") is None

    def scale(self):
        """Sets what --scaling and --scale-from ask for, as the script does."""
        way = self.args["scaling"] = str(self.args.get("scaling") or recipe.WAYS[0])
        sizes = [self.args["num_envs"], self.args["scale_from"], self.args["num_steps"], self.args["num_minibatches"]]
        try:
            size, number, rate = recipe.scaled(*sizes, self.args["learning_rate"], way)
        except (TypeError, ValueError) as error:
            fail(f"{error} (in the command of {self.name})")
        self.args.update(minibatch_size=size, num_minibatches=number, learning_rate=rate)

    def go_on_from(self, parent):
        self.parent, self.first_step = parent, parent.final_step
        self.final_step = recipe.schedule_of(self.args, self.first_step).last_step
        self.steps = self.args["total_timesteps"] - parent.args["total_timesteps"]

    @property
    def waits(self):
        """Whether its parent is not done yet."""
        return bool(self.parent) and state(self.parent.path) != "done"

    def minibatch_size(self, batch_size):
        """Rows of a minibatch of a batch of `batch_size` rows."""
        return self.args.get("minibatch_size") or batch_size // (self.args.get("num_minibatches") or 1)

    @property
    def computes(self):
        """The arguments as a manifest has them, with the size of a minibatch in place of `num_minibatches`."""
        args = {name: value for name, value in self.args.items() if name not in PLACE | {"num_minibatches"}}
        return {**args, "minibatch_size": self.minibatch_size(self.batch_size)}

    @property
    def key(self):
        """A hash of what the run computes: two jobs that compute the same have the same hash."""
        relevant = {**self.computes, "script": Path(self.script).name}
        for name, value in relevant.items():
            if isinstance(value, int):  # 1 and 1.0 are the same value of an argument
                relevant[name] = float(value)
        return hashlib.sha1(json.dumps(relevant, sort_keys=True).encode()).hexdigest()

    def command(self):
        """The words to execute: with this Python, and with the owner's --run-name if the run is shared."""
        words = [sys.executable if word in ("python", "python3") else word for word in self.words]
        if self.path == self.runs_dir / self.name:
            return words
        return [*words, "--run-name", str(self.path.relative_to(self.runs_dir))]  # the later of two flags counts

    def differs(self, run_dir):
        """The first argument for which the run in this directory had another value, as text; "" if there is none.

        An argument that its manifest lacks is newer than the run, which had the default.
        """
        manifest = read_json(run_dir / "manifest.json")
        before = manifest.get("arguments")
        if not isinstance(before, dict):  # nothing has run there
            return ""
        now = self.computes
        own_rate = begun_with(manifest, self.words) if self.takes_law else None
        if own_rate is not None:
            now["learning_rate"] = own_rate
        if self.guesses:
            now = {name: now[name] for name in self.flags if name in now}
        return difference({**self.defaults, "minibatch_size": now.get("minibatch_size"), **before}, now)


def read_jobs(lines, defaults=default_arguments):
    """The jobs of all lines, all checked before the first is started.

    defaults: reading.default_arguments, or that of envs.tasks, which may import the module of a task.
    """
    stripped = [line.strip(" \t\r\n") for line in lines]  # not what else Unicode has: a name may end with it
    jobs = [Job(line, defaults) for line in stripped if line and line[0] != "#"]
    if not jobs:
        fail("stdin: no commands: expected one per line, as `bash sweeps/fixed_budget.sh` pipes them in")
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


def other_runs(jobs):
    """One line on the first job whose directory holds a run with other arguments; "" if there is none."""
    for job in jobs:
        path = owner(job)
        changed = "" if path.is_symlink() else job.differs(path)
        if changed:
            return (
                f"--run-name {job.name} has run with {changed}: use the same arguments, "
                "or RUNS_DIR=… for another version of the sweep"
            )
    return ""


def check_before_start(jobs, machine):
    """Ends the program if a job cannot run here: too little memory, no script, another run in its directory."""
    problem = too_large(jobs, machine)
    if problem:
        fail(problem)
    for script in {job.script for job in jobs}:
        if not Path(script).exists():
            fail(f"stdin: there is no {script} in {os.getcwd()}: expected to be started in the repository's root")
    problem = other_runs(jobs)
    if problem:
        fail(problem)


# ---- run directories -------------------------------------------------------------------------------------------------
def owner(job):
    """The directory that holds this run: its own, or that of a sweep that started the same run before."""
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
    partial.unlink(missing_ok=True)
    with open(partial, "x", opener=no_link) as file:
        file.write(job.name)
    with contextlib.suppress(FileExistsError):
        os.link(partial, note)  # exactly one of several launchers succeeds
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
