"""How much faster several agents in one process are: whole commands of ppo_envpool.py with one and with many, in turn.

    python results/benchmark/benchmark_packs.py --out results/benchmark/packs.csv
    python results/benchmark/benchmark_packs.py --tasks CartPole-v1 --shapes 8x128 --sizes 1 16 \\
        --peer "CleanRL=python ppo.py --num-envs {num_envs} --num-steps {num_steps} --total-timesteps {steps}" \\
               "rejax=python results/benchmark/jax_peers.py rejax {size} {num_envs} {num_steps} {steps}"

Each agent makes --steps steps and, as in the sweeps, has 20 log points with all diagnostics and 50 evaluation episodes.
The time includes imports, checkpoints and event files. Speeds are trained steps of all agents, per second and per
CPU-second of the process with its threads; the latter depends little on other programs. The speed of a machine drifts,
so what is compared runs in turn, A B C A B C ..., and a ratio is the median of the ratios of single rounds, with their
range. A --peer trains one agent, or {size} agents if its command has {size}. Prints the table; --out has one row per
command.
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

from support import catalog
from support.arguments import Count, NByT, Pattern, Steps, fail, parse, writable

Peer = Annotated[str, Pattern(r"[\w-]+=\S[\s\S]*", "NAME=COMMAND")]


@dataclass
class Args:
    tasks: Tuple[str, ...] = ("CartPole-v1", "MiniGrid-DoorKey-5x5-v0", "LunarLander-v3", "Hopper-v4")  # EnvPool's
    shapes: Tuple[NByT, ...] = ("8x128", "32x32", "128x8")  # environments x steps of a rollout, for each agent
    sizes: Tuple[Count, ...] = (1, 4, 16, 64)  # agents in a process
    steps: Steps = 100_000  # steps of each agent
    rounds: Count = 3  # repetitions of everything
    minutes: Count = 60  # starts no command after this time
    peer: Tuple[Peer, ...] = ()  # NAME=COMMAND with {env_id}, {num_envs}, {num_steps}, {steps}, {size}
    out: Optional[Path] = None  # a CSV file


def parse_args(argv):
    """Returns checked Args, with `shapes` as [(N, T), ...] and `peer` as {name: command}."""
    args = parse(Args, argv, __doc__)
    args.shapes = [tuple(map(int, setting.split("x"))) for setting in args.shapes]
    args.peer = dict(peer.split("=", 1) for peer in args.peer)
    return args


def ours(env_id, setting, size, steps, runs_dir):
    """The command that trains `size` agents."""
    flags = f"--env-id {env_id} --num-envs {setting[0]} --num-steps {setting[1]} --total-timesteps {steps}"
    agents = f"--num-seeds {size} --num-logs 20 --eval-episodes 50 --runs-dir {runs_dir} --run-name run"
    rate = f"--learning-rate {catalog.cleanrl_rate(env_id)}"
    return [sys.executable, str(ROOT / "ppo_envpool.py"), *f"{flags} {rate} {agents}".split()]


def measure(words):
    """Seconds and CPU-seconds of a command. Ends the program if the command fails."""
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
    """Yields (program, agents) of each command of a round, for one task and setting."""
    for program in ("ppo_envpool", *args.peer):
        many = program not in args.peer or "{size}" in args.peer[program]
        yield from ((program, size) for size in (args.sizes if many else (1,)))


def rows(args):
    """Yields one row per command: program, task, N, T, size, round, seconds and speeds."""
    end = time.monotonic() + 60 * args.minutes
    for number in range(1, args.rounds + 1):
        for env_id in args.tasks:
            for setting in args.shapes:
                for program, size in commands(args):
                    if time.monotonic() > end:
                        return
                    with tempfile.TemporaryDirectory() as runs_dir:
                        words = ours(env_id, setting, size, args.steps, runs_dir)
                        if program in args.peer:
                            values = dict(zip(("num_envs", "num_steps"), setting), env_id=env_id)
                            values.update(steps=args.steps, size=size)
                            words = shlex.split(os.path.expanduser(args.peer[program].format(**values)))
                        seconds, cpu = measure(words)
                    row = {"program": program, "task": env_id, "num_envs": setting[0], "num_steps": setting[1]}
                    row.update(size=size, round=number, seconds=round(seconds, 2), cpu_seconds=round(cpu, 2))
                    row.update(steps_per_s=round(args.steps * size / seconds))
                    row.update(steps_per_cpu_s=round(args.steps * size / cpu))
                    print(*row.values(), flush=True)
                    yield row


def summary(table):
    """A table of medians, with the ratio of each program to one agent of ours in the same round, and its range."""
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
