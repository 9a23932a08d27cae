"""The options of scripts/launch.py, in a file of their own: tyro searches the whole file for the fields' comments."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Optional

from tyro.conf import FlagCreatePairsOff, Positional, arg

from launching import slurm_array
from launching.machines import TOGETHER
from support.arguments import Pattern, Range, fail, parse

DESCRIPTION = "Runs the commands on stdin, one training run per line, on this machine or as one Slurm job array."
Number = Annotated[Optional[int], Range(1, 10_000), arg(metavar="K")]
Runs = Annotated[int, Range(1, 10_000), arg(metavar="K")]
Flag = Annotated[bool, FlagCreatePairsOff]  # without a --no-flag
Speed = Annotated[Optional[float], Range(1e-3, 1e9), arg(metavar="X")]
Minutes = Annotated[Optional[float], Range(1e-3, 1e6), arg(metavar="MINUTES")]
Gpus = Annotated[Optional[str], Pattern(r"[\w-]+(,[\w-]+)*", "the numbers of GPUs, such as 0,1"), arg(metavar="0,1")]
Word = Annotated[Optional[str], Pattern(r"[^\s#]+", "a word without spaces"), arg(metavar="NAME")]
TIME = "a time as Slurm writes it: 90 (minutes), 12:00:00, 2-0 (days-hours)"
Time = Annotated[Optional[str], Pattern(f"(?i:{slurm_array.TIME})", TIME), arg(metavar="TIME")]
MEMORY = "a whole number, in MB or with K, M, G or T after it, such as 32G"
Memory = Annotated[Optional[str], Pattern(f"(?i:{slurm_array.MEMORY})", MEMORY), arg(metavar="32G")]
SBATCH = "options of sbatch, such as '--account=x --qos=y'"
Sbatch = Annotated[Optional[str], Pattern("-[ -~]+", SBATCH), arg(metavar="'--account=x --qos=y'")]


@dataclass
class Options:
    action: Positional[Literal["run", "status"]] = "run"  # status: as --status
    dry_run: Flag = False  # prints every command and the price (runs, steps, time), and stops
    status: Flag = False  # prints the state of every run; without commands on stdin, of those below --runs-dir
    runs_dir: Path = Path("runs")  # where `status` without commands on stdin looks
    workers: Number = None  # runs at the same time (default: GPUs x --jobs-per-gpu, or as many as there are cores for)
    together: Runs = TOGETHER  # runs of ppo_envpool.py in one process, at most
    gpus: Gpus = None  # the GPUs to use (default: all, if there are any)
    jobs_per_gpu: Runs = 1  # runs at the same time on each GPU
    timeout: Minutes = None  # kills a run that logs no point and prints nothing for this long, and tries it once more
    retry_diverged: Flag = False  # resumes the runs that stopped at a number that was not finite
    sps: Speed = None  # steps/s of one run, for the hours (or SPS=… in the environment)
    slurm: Flag = False  # submits one Slurm job array instead of running here
    partition: Word = None  # Slurm: the partition
    time: Time = None  # Slurm: the time limit of a task, which is then queued again
    gpus_per_task: Number = None  # Slurm: GPUs of a task
    cpus_per_task: Number = None  # Slurm: cores of a task, and threads of its run
    mem: Memory = None  # Slurm: memory of a task
    array_parallelism: Number = None  # Slurm: tasks at the same time
    sbatch: Sbatch = None  # Slurm: more options of sbatch


def parse_args(argv):
    """Returns checked Options; exits 2 with one line on bad input."""
    words = list(argv)
    if "--sbatch" in words[:-1]:  # its value begins with - and would be taken for a flag
        place = words.index("--sbatch")
        words[place : place + 2] = [f"--sbatch={words[place + 1]}"]
    if os.environ.get("SPS"):
        words = ["--sps", os.environ["SPS"], *words]  # the later of two flags counts
    options = parse(Options, words, DESCRIPTION)
    options.status |= options.action == "status"
    if options.workers and options.gpus:
        fail("--workers and --gpus exclude each other: expected --jobs-per-gpu with --gpus")
    if options.timeout and options.slurm:
        fail("--timeout and --slurm exclude each other: expected --time")
    return options
