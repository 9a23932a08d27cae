"""What the runs share, which is this machine's GPUs, cores and memory or those of a Slurm task, and what a run needs.

launch.py asks for the `Machine` and refuses runs that do not fit on it.
"""

import bisect
import os
import subprocess
from typing import NamedTuple

from launching import slurm_array
from support import catalog, devices

TOGETHER = 20  # runs in one process: 64 are 16 % faster than 16 (results/benchmark), and lose more in a crash


class Machine(NamedTuple):
    """Where the runs take place."""

    slots: list  # for each run that may run at the same time, its environment variables
    main_bytes: float  # main memory for each of them
    gpu_bytes: float  # GPU memory for each of them; 0: they run on the CPU


def memory(job, num_envs, on_gpu):
    """Bytes of main memory and of GPU memory that the job would need with `num_envs` environments.

    The evaluation episodes come on top, each in an environment of its own, while the training's still exist.
    """
    process, env, row, minibatch_row = catalog.memory(job.script, str(job.args.get("env_id")))
    batch_size = num_envs * job.args["num_steps"]
    main = process + (num_envs + job.eval_episodes) * env
    tensors = batch_size * row + job.minibatch_size(batch_size) * minibatch_row
    return (main, catalog.GPU_PROCESS + tensors) if on_gpu else (main + tensors, 0)


def runs_that_fit(job, main_bytes):
    """How many runs like this one fit in a process with so much main memory; at least one."""
    process = catalog.memory(job.script, str(job.args.get("env_id"))).process
    each = memory(job, job.args["num_envs"], on_gpu=False)[0] - process
    return max(1, int((main_bytes - process) / max(each, 1)))


def cores_of(job):
    """The cores that the flags of a run ask for, 1 by default."""
    asked = [str(job.args.get(name)) for name in ("num_threads", "env_workers")]
    return max([1, *(int(number) for number in asked if number.isdecimal())])  # the script refuses what is no number


def too_large(jobs, machine):
    """One line about the largest job that does not fit on the machine; None if all fit."""
    on_gpu = machine.gpu_bytes > 0

    def exceeds(job, num_envs):
        main, gpu = memory(job, num_envs, on_gpu)
        return main > machine.main_bytes or gpu > machine.gpu_bytes

    for job in sorted(jobs, key=lambda job: -job.batch_size):
        num_envs = job.args["num_envs"]
        if exceeds(job, num_envs):
            fitting = bisect.bisect_left(range(1, num_envs), True, key=lambda fewer: exceeds(job, fewer))
            main, gpu = memory(job, num_envs, on_gpu)
            need = f"{main / 1e9:.1f} GB of main memory" + (f" and {gpu / 1e9:.1f} GB of GPU memory" if gpu else "")
            return (
                f"--num-envs {num_envs} of {job.name} needs {need}, and {len(machine.slots)} run at a time: "
                + (f"expected at most {fitting}" if fitting else "even one environment does not fit")
                + (", or fewer --workers" if len(machine.slots) > 1 else "")
            )
    return None


def gpus_here():
    """{index: bytes} of the GPUs that CUDA_VISIBLE_DEVICES allows; {} if there are none."""
    words = ["nvidia-smi", "--query-gpu=index,memory.total", "--format=csv,noheader,nounits"]
    try:
        lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
        gpus = {index: 2**20 * int(size) for index, size in (line.split(", ") for line in lines)}
    except (OSError, subprocess.CalledProcessError, ValueError):
        return {}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return gpus if visible is None else {index: gpus[index] for index in visible.split(",") if index in gpus}


def this_machine(options, jobs):
    """This computer as a Machine: --workers runs, or one per GPU, or as many as cores and memory allow."""
    cores, gpus, main_bytes, gpu_bytes = len(os.sched_getaffinity(0)), gpus_here(), devices.available_bytes(), 0
    if options.workers:
        slots = [{}] * options.workers
    elif options.gpus or gpus:
        chosen = options.gpus.split(",") if options.gpus else list(gpus)
        gpu_bytes = min((gpus[gpu] for gpu in chosen if gpu in gpus), default=float("inf")) / options.jobs_per_gpu
        slots = [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in chosen] * options.jobs_per_gpu
    else:
        largest = max(memory(job, job.args["num_envs"], on_gpu=False)[0] for job in jobs)
        fitting = max(1, int(main_bytes / largest)) if largest else cores
        slots = [{}] * min(max(1, cores // max(map(cores_of, jobs))), fitting)
    slots = slots[: len(jobs)]
    # a run waits for its environments and its network in turn, and idle threads that spin would slow other runs down
    threads = {"OMP_NUM_THREADS": str(max(1, cores // len(slots))), "OMP_WAIT_POLICY": "PASSIVE"}
    return Machine([{**slot, **threads} for slot in slots], main_bytes / len(slots), gpu_bytes)


def slurm_machine(options, jobs):
    """The Machine of the tasks of the job array."""
    slots = [{"OMP_NUM_THREADS": str(options.cpus_per_task or 1)}] * (options.array_parallelism or len(jobs))
    main_bytes = slurm_array.memory_bytes(options.mem or "0")
    return Machine(slots[: len(jobs)], main_bytes, float("inf") if options.gpus_per_task else 0)
