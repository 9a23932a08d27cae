"""What a pack gains: whole commands of ppo_envpool.py with one agent and with many, in turn.

    python results/benchmark/benchmark_packs.py --out results/benchmark/packs.csv
    python results/benchmark/benchmark_packs.py --tasks CartPole-v1 --shapes 8x128 --sizes 1 16 \\
        --peer "CleanRL=python ppo.py --num-envs {num_envs} --num-steps {num_steps} --total-timesteps {steps}" \\
               "rejax=python results/benchmark/jax_peers.py rejax {size} {num_envs} {num_steps} {steps}"

A run has --steps steps, 20 points of all diagnostics and 50 final games, as the sweeps' runs do. Imports, checkpoints
and event files count too. Speeds are trained steps of all agents, by second and by CPU-second of the process and its
threads: what else the machine does hardly changes the latter. A machine's speed drifts, so what is compared runs in
turn, A B C A B C ..., and a ratio is the median of the rounds' own ratios, with their range. A --peer trains one agent,
or as many as its {size} says. The table is printed; --out has one row a command.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT

import contextlib
import os
import shlex
import subprocess
import tempfile
import time
from dataclasses import dataclass
from typing import Annotated, Optional, Tuple

import pandas as pd

from support.arguments import Count, Pattern, Shape, Steps, fail, parse, writable

Peer = Annotated[str, Pattern(r"[\w-]+=\S[\s\S]*", "NAME=COMMAND")]


@dataclass
class Args:
    tasks: Tuple[str, ...] = ("CartPole-v1", "MiniGrid-DoorKey-5x5-v0", "LunarLander-v3", "Hopper-v4")  # EnvPool's
    shapes: Tuple[Shape, ...] = ("8x128", "32x32", "128x8")  # environments x steps of each agent
    sizes: Tuple[Count, ...] = (1, 4, 16, 64)  # agents in a process
    steps: Steps = 100_000  # each agent's steps
    rounds: Count = 3  # how often everything is measured
    minutes: Count = 60  # no command is started later
    peer: Tuple[Peer, ...] = ()  # NAME=COMMAND with {env_id}, {num_envs}, {num_steps}, {steps}, {size}
    out: Optional[Path] = None  # a CSV


def parse_args(argv):
    """Returns checked Args, with `shapes` as [(N, T), ...] and `peer` as {name: command}."""
    args = parse(Args, argv, __doc__)
    args.shapes = [tuple(map(int, shape.split("x"))) for shape in args.shapes]
    args.peer = dict(peer.split("=", 1) for peer in args.peer)
    return args


def ours(env_id, shape, size, steps, runs_dir):
    """The command of `size` agents."""
    flags = f"--env-id {env_id} --num-envs {shape[0]} --num-steps {shape[1]} --total-timesteps {steps}"
    pack = f"--num-seeds {size} --num-logs 20 --eval-episodes 50 --runs-dir {runs_dir} --run-name run"
    return [sys.executable, str(ROOT / "ppo_envpool.py"), *f"{flags} {pack}".split()]


def measure(words):
    """The seconds and CPU-seconds of a command. Ends the program if it fails."""
    start = time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    error = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        fail(
            f"`{shlex.join(words)}` ends with exit code {process.returncode}: {(error.strip() or '-').splitlines()[-1]}"
        )
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime


def commands(args):
    """Yields (program, agents) of each command of a round, for each task and shape."""
    for program in ("ppo_envpool", *args.peer):
        many = program not in args.peer or "{size}" in args.peer[program]
        yield from ((program, size) for size in (args.sizes if many else (1,)))


def rows(args):
    """Yields one row a command: program, task, N, T, size, round, seconds and speeds."""
    end = time.monotonic() + 60 * args.minutes
    for number in range(1, args.rounds + 1):
        for env_id in args.tasks:
            for shape in args.shapes:
                for program, size in commands(args):
                    if time.monotonic() > end:
                        return
                    with tempfile.TemporaryDirectory() as runs_dir:
                        words = ours(env_id, shape, size, args.steps, runs_dir)
                        if program in args.peer:
                            values = dict(zip(("num_envs", "num_steps"), shape), env_id=env_id)
                            values.update(steps=args.steps, size=size)
                            words = shlex.split(os.path.expanduser(args.peer[program].format(**values)))
                        seconds, cpu = measure(words)
                    row = {"program": program, "task": env_id, "num_envs": shape[0], "num_steps": shape[1]}
                    row.update(size=size, round=number, seconds=round(seconds, 2), cpu_seconds=round(cpu, 2))
                    row.update(steps_per_s=round(args.steps * size / seconds))
                    row.update(steps_per_cpu_s=round(args.steps * size / cpu))
                    print(*row.values(), flush=True)
                    yield row


def summary(table):
    """A table of medians, with each program's ratio to one agent of ours in the same round, and its range."""
    keys = ["task", "num_envs", "num_steps"]
    single = table[(table.program == "ppo_envpool") & (table["size"] == 1)].set_index([*keys, "round"])
    table = table.join(single.steps_per_cpu_s.rename("single"), on=[*keys, "round"])
    table["ratio"] = table.steps_per_cpu_s / table.single
    groups = table.groupby([*keys, "program", "size"], sort=False)
    found = groups[["steps_per_s", "steps_per_cpu_s", "ratio"]].median()
    return found.assign(low=groups.ratio.min(), high=groups.ratio.max(), rounds=groups["round"].nunique()).round(2)


def main(args):
    with writable("out", args.out.parent) if args.out else contextlib.nullcontext():
        table = pd.DataFrame(rows(args))
        if args.out:
            table.to_csv(args.out, index=False)
    print(summary(table).to_string())


if __name__ == "__main__":
    main(parse_args(sys.argv[1:]))
