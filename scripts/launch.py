"""Runs the commands on stdin, one training run per line, on this machine or as one Slurm job array.

Every `sweeps/*.sh` pipes its commands into this program:

    bash sweeps/fixed_budget.sh --dry-run                           # what would run, and its price
    bash sweeps/fixed_budget.sh --gpus 0,1,2,3 --jobs-per-gpu 2     # on this machine
    bash sweeps/fixed_budget.sh --slurm --partition gpu --time 2-0 --gpus-per-task 1 --cpus-per-task 8
    bash sweeps/fixed_budget.sh --status                            # from any shell, also during the sweep
    python scripts/launch.py status                                 # all runs below runs/

After any failure, give the same command again: finished runs are skipped, interrupted runs resume from their
checkpoint, and runs that another launcher or Slurm is working on are left to it. The state of a run is in its
directory: `done.json`, `failed.json`, the script's own lock, and `log.txt`. This program writes the log: the output of
each attempt, between two lines that begin with `[launch`. It locks the log during an attempt, so that two launchers
never work on the same run.

Two sweeps that need the same run (the same script with the same arguments) share it. The first to start it owns the
directory, and the other gets a relative link to it. The owners' names are in `<runs dir>/.launch`.

A command that continues another run of the same list (`--resume-from`) waits until that run is done.
"""

from launching.root import ROOT  # noqa: F401

import contextlib
import os
import shlex
import signal
import sys
from collections import Counter
from pathlib import Path

from analysis import statement
from launching import slurm_array
from launching.jobs import check_before_start, claim, other_runs, owner, parse_flags, read_jobs
from launching.machines import slurm_machine, this_machine, too_large
from launching.options import parse_args
from launching.pool import Pool, time_left
from launching.price import estimate

from support import recipe
from support.arguments import fail, return_to_start, writable
from support.envs import tasks
from support.progress import unbroken_output
from support.reading import default_arguments, find_runs, log_end, lost_runs, progress, read_files, state


# ---- how it went -----------------------------------------------------------------------------------------------------
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
    """The commands that draw the figures of these runs, one per sweep; SWEEP is a name to fill in."""
    runs_dir, sweeps = jobs[0].runs_dir, sorted({job.name.split("/")[0] for job in jobs if "/" in job.name})
    places = [(sweep, runs_dir / sweep) for sweep in sweeps]
    if not all("/" in job.name for job in jobs):
        places.append(("SWEEP", runs_dir))
    return "; ".join(
        f"python scripts/figures.py {name} --runs {shlex.quote(str(place))} --out figures/" for name, place in places
    )


# ---- status ----------------------------------------------------------------------------------------------------------
def status(runs):
    """Prints a table from the run directories alone. `runs`: {name: (directory, its first step, its last step)}."""
    counts, left, rate = Counter(), 0, 0.0
    for name, (run_dir, first, total) in sorted(runs.items()):
        word = state(run_dir)
        try:
            found = progress(run_dir)
        except OSError as error:
            counts[word] += 1
            print(f"{word:9} {name}  {error}")
            continue
        step, more = found.step, f"{found.step:,}/{total:,} steps"
        if word == "running":
            if found.stalled and step < total:  # after the last step come evaluation episodes
                word = "stalled"
            else:
                rate += found.speed
                more += f"  {found.speed:,.0f} steps/s  ETA {time_left(total - step, found.speed)}"
            more += f"  last point {time_left(found.age, 1)} ago"
        elif word in ("failed", "diverged"):
            more += f"  {log_end(run_dir)[0]}"
        counts[word] += 1
        if word not in ("done", "diverged"):
            left += total - max(step, first)
        print(f"{word:9} {name}  {more}")
    words = ("done", "running", *(["stalled"] if counts["stalled"] else []), "stale", "failed", "diverged", "missing")
    print(
        f"{len(runs)} runs: "
        + ", ".join(f"{counts[word]} {word}" for word in words)
        + f"; {left:,} steps left at {rate:,.0f} steps/s, ETA {time_left(left, rate)}"
    )


def runs_below(runs_dir):
    """{name: (directory, first step, last step)} of every run below a folder, as for `status`."""
    if not os.path.isdir(runs_dir):  # Path.is_dir raises OSError if a name is too long
        fail(f"--runs-dir {runs_dir}: expected a directory with runs in it")
    begun = [log.parent for log in Path(runs_dir).rglob("log.txt") if not (log.parent / "manifest.json").exists()]
    refused = [path for path in begun if log_end(path)[1] is not None]  # launch.py wrote the log
    found = {str(path.relative_to(runs_dir)): (path, 0, 0) for path in (*lost_runs(runs_dir), *refused)}
    for path in find_runs(runs_dir):
        try:
            manifest = read_files(path).manifest
        except (OSError, ValueError) as error:
            print(f"note: {path} is left out: {error}", file=sys.stderr)
            continue
        begin = manifest.get("parent", {}).get("global_step", 0)
        last = 0  # if the manifest is not one of ours
        with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
            last = recipe.schedule_of(manifest["arguments"], begin).last_step
        found[str(path.relative_to(runs_dir))] = (path, begin, last)
    return found


# ---- main ------------------------------------------------------------------------------------------------------------
def price(jobs, machine, options):
    """The lines that say what the jobs cost on a machine."""
    threads = int(machine.slots[0]["OMP_NUM_THREADS"])
    return estimate(jobs, options.sps, len(machine.slots), threads, options.together)


def dry_run(jobs, machine, options):
    """Prints what would be done."""
    for job in jobs:
        print(shlex.join(job.words))
    print(*price(jobs, machine, options), sep="\n")
    for problem in filter(None, (too_large(jobs, machine), other_runs(jobs))):
        print("would be refused here:", problem)
    if any(job.guesses for job in jobs):
        print("note: a dry run imports no task: of runs that exist only the commands' own flags are compared")
    if options.slurm:
        print(slurm_array.script([job for job in jobs if not job.waits], options))


def read_lines(file):
    """The lines of a text file. Bytes that are no UTF-8 become halves of a pair, which Job refuses."""
    data = file.buffer.read().decode(errors="surrogateescape") if hasattr(file, "buffer") else file.read()
    return data.split("\n")


def main(argv):
    options = parse_args(argv)
    lines = [] if sys.stdin.isatty() else read_lines(sys.stdin)
    if options.status and not any(map(str.strip, lines)):
        return status(runs_below(options.runs_dir))
    starts = not (options.status or options.dry_run)  # else nothing is written and no module of a task imported
    jobs = read_jobs(lines, tasks.default_arguments if starts else default_arguments)
    return_to_start()
    if options.status:
        status({job.name: (owner(job), job.first_step, job.final_step) for job in jobs})
        problem = other_runs(jobs)
        return print("the same command would be refused:", problem) if problem else None
    machine = slurm_machine(options, jobs) if options.slurm else this_machine(options, jobs)
    if options.dry_run:
        return dry_run(jobs, machine, options)
    check_before_start(jobs, machine)
    in_queue = slurm_array.queued() if options.slurm else set()
    with writable("runs-dir", jobs[0].runs_dir):
        for job in jobs:
            claim(job)
        for name in {Path(job.name).parts[0] for job in jobs if "/" in job.name}:
            statement.record(jobs[0].runs_dir / name, statement.parse(lines, parse_flags))
    print(*price(jobs, machine, options), sep="\n", flush=True)
    figure = figure_commands(jobs)
    if options.slurm:
        return slurm_array.submit(jobs, in_queue, options, figure)
    pool = Pool(jobs, machine, options.retry_diverged, options.together, options.timeout)
    pool.work()
    return summary(pool, figure)


if __name__ == "__main__":
    with unbroken_output():  # `… | head` is no error, and ends no sweep
        sys.exit(main(sys.argv[1:]))
