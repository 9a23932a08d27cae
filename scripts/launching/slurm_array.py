"""Submits the runs of scripts/launch.py as one Slurm job array.

Slurm starts the tasks, signals them before their time limit and queues them again. Many clusters keep no accounting, so
the state of a run comes from squeue and the run directory alone.
"""

import contextlib
import getpass
import os
import re
import shlex
import subprocess
import time
from collections import Counter
from pathlib import Path

from support.arguments import fail
from support.reading import state

MAX_REQUEUES = 100  # a run that reached so many time limits makes no progress
GRACE = 90  # seconds for the checkpoint, of the 120 before the time limit
TIME = r"\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}|infinite|unlimited"  # what --time may be
MEMORY = r"(\d{1,12})(?:([KMGT])B?)?"  # what --mem may be


def memory_bytes(text):
    """Bytes of memory as Slurm reads --mem: a number of MB, or of the unit behind it. 0 means all of a node's."""
    number, unit = re.fullmatch(MEMORY, text.upper()).groups()
    return int(number) * 1024 ** " KMGT".index(unit or "M") or float("inf")


ARRAY = """#!/bin/bash
{sbatch}
{names}
# Each task is one run. Two minutes before the time limit Slurm sends USR1 to this shell, which sends TERM to the job
# step: the run writes its checkpoint, and the task is queued again; also if the checkpoint takes too long, from the one
# before. scancel ends this shell too: nothing is queued again.
dirs=(
{dirs}
)
commands=(
{commands}
)
dir=${{dirs[SLURM_ARRAY_TASK_ID]}} command=${{commands[SLURM_ARRAY_TASK_ID]}}
mkdir -p "$dir" && [ ! -L "$dir/log.txt" ] && exec 3>&1 >>"$dir/log.txt" 2>&1 || exit 1
flock -w 300 1 || {{ echo "error: $dir/log.txt is locked: another launcher works on this run" >&3; exit 1; }}
exec 3>&-
note() {{ echo "[launch $(date +%Y-%m-%dT%H:%M:%S) $(hostname)] $*"; }}
export OMP_NUM_THREADS=${{SLURM_CPUS_PER_TASK:-1}} OMP_WAIT_POLICY=PASSIVE
export SRUN_CPUS_PER_TASK=${{SLURM_CPUS_PER_TASK:-1}}  # since Slurm 22.05 srun does not take it from the job

again() {{
    task=${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID
    [ "${{SLURM_RESTART_COUNT:-0}}" -ge {max_requeues} ] || scontrol requeue "$task"
    exit 143
}}
stop() {{
    told=1
    scancel --signal=TERM "$SLURM_JOB_ID" >/dev/null 2>&1 &  # it tries for minutes if the step has just ended
    scancel=$!
    for ((second = 0; second < {grace}; second++)); do
        kill -0 "$step" 2>/dev/null || {{ kill $scancel 2>/dev/null; return; }}
        sleep 1
    done
    note "no checkpoint in {grace} s: the task is queued again, and resumes from the one before"
    again
}}
trap stop USR1

told=""
for attempt in 1 2; do
    note "$command"
    srun --ntasks=1 bash -c "exec $command" &
    step=$!
    wait $step
    code=$?
    [ -z "$told" ] || {{ wait $step; code=$?; }}  # USR1 has ended the first wait
    note "exit code $code"
    case $code in 0 | 2 | 3) exit $code ;; esac  # finished, refused, diverged: a second attempt would end as this one
    [ ! -e "$dir/failed.json" ] || exit 3  # diverged: the code of torchrun is 1
    if [ -n "$told" ] || [ $code = 143 ]; then again; fi
done
exit $code
"""


def script(jobs, options):
    """The script for sbatch: one array with one task per run."""
    sweep = jobs[0].name.split("/")[0]
    folder = (jobs[0].runs_dir / ".launch").resolve()
    throttle = f"%{options.array_parallelism}" if options.array_parallelism else ""
    flags = {
        "job-name": sweep,
        "array": f"0-{len(jobs) - 1}{throttle}",
        "signal": "B:USR1@120",
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
    lines = [f"#SBATCH --{name}={shlex.quote(str(value))}" for name, value in flags.items() if value is not None]
    lines += ["#SBATCH --requeue", *([f"#SBATCH {options.sbatch}"] if options.sbatch else [])]
    dirs, commands = [str(job.path.resolve()) for job in jobs], [shlex.join(job.command()) for job in jobs]
    return ARRAY.format(
        sbatch="\n".join(lines),
        names="\n".join(f"#RUN {path}" for path in dirs),
        dirs="\n".join(map(shlex.quote, dirs)),
        commands="\n".join(map(shlex.quote, commands)),
        max_requeues=MAX_REQUEUES,
        grace=GRACE,
    )


def call(*words):
    """The output of a Slurm command. If it fails, ends the program with its message."""
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        fail(f"--slurm: there is no {words[0]} on this machine: expected a login node of a Slurm cluster")
    except subprocess.CalledProcessError as error:
        fail(f"--slurm: {error.stderr}")


def queued():
    """The directories of the runs that are queued or running in this user's job arrays.

    squeue names the submitted script, which lists them in `#RUN` lines, one per index of the array.
    """
    found = set()
    for line in call("squeue", "--user", getpass.getuser(), "--noheader", "--array", "--format=%K %o").splitlines():
        index, _, path = line.strip().partition(" ")
        with contextlib.suppress(OSError, ValueError, IndexError):
            lines = Path(path).read_text().split("\n")
            found.add([name[len("#RUN ") :] for name in lines if name.startswith("#RUN ")][int(index)])
    return found


def submit(jobs, in_queue, options, figure):
    """Submits the runs that are neither finished, running nor queued. Returns the exit code."""
    startable = {"missing", "stale", "failed"} | ({"diverged"} if options.retry_diverged else set())
    states = {job: state(job.path) for job in jobs}
    directories = {job: str(job.path.resolve()) for job in jobs}
    to_submit = {}  # by directory: a run that two lines share is submitted once
    for job in jobs:
        if states[job] in startable and directories[job] not in in_queue and not job.waits:
            to_submit[directories[job]] = job
    counts = Counter(states.values())
    print(
        f"{len(jobs)} runs: {counts['done']} finished, {counts['diverged']} diverged, "
        f"{sum(path in in_queue for path in directories.values())} queued or running, {len(to_submit)} to submit"
    )
    waiting = sum(job.waits for job in jobs)
    if waiting:
        print(f"{waiting} runs continue runs that are not done: give the same command again to submit them then")
    if to_submit:
        text = script(list(to_submit.values()), options)
        path = jobs[0].runs_dir.resolve() / ".launch" / f"{jobs[0].name.split('/')[0]}.{time.time_ns()}.sbatch"
        path.write_text(text)
        array = call("sbatch", "--parsable", str(path)).strip()
        print(
            f"submitted job array {array}: squeue --job {array}   scancel {array}\n"
            "the same command with --status in place of --slurm … shows the progress; "
            "the same command again submits what is then missing"
        )
    print("figure:", figure)
    return 0
