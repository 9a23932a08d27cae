"""Trains CleanRL's ppo.py and ppo_continuous_action.py beside ppo_envpool.py: the runs that curves.csv lacks.

    python results/cleanrl_curves/compare.py --cleanrl /tmp/cleanrl
    python scripts/judge.py cleanrl_curves                              # what they say

README.md says how CleanRL was ported. Both programs get one thread and the same N x T. CleanRL steps gymnasium's copy
of a task, ppo_envpool.py EnvPool's, and on two tasks gymnasium's too. A point is the mean return of the last 100
episodes, as both count them.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT

import csv
import itertools
import os
import subprocess
import tempfile
from dataclasses import dataclass

import numpy as np

from support import arguments, catalog, reading

HERE = Path(__file__).resolve().parent
TASKS = {  # task: (CleanRL's script, N x T, steps)
    "CartPole-v1": ("ppo.py", (8, 128), 200000),
    "Acrobot-v1": ("ppo.py", (8, 128), 200000),
    "LunarLander-v3": ("ppo.py", (8, 128), 200000),
    "Hopper-v4": ("ppo_continuous_action.py", (1, 2048), 40960),
}
SEEDS = range(1, 6)
POINTS = 20
CLEANRL, OURS_GYMNASIUM = "CleanRL", "ppo_envpool.py, gymnasium's game"
PROGRAMS = (CLEANRL, "ppo_envpool.py", OURS_GYMNASIUM)
OF_BOTH_MAKERS = ("CartPole-v1", "Acrobot-v1")


@dataclass
class Args:
    cleanrl: Path  # a checkout of CleanRL, ported


def run(command, folder):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", *map(str, command)]
    subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True
    )


def missing():
    """Yields (task, program, seed) of the runs that curves.csv lacks."""
    with open(HERE / "curves.csv") as file:
        there = {(row["game"], row["program"], int(row["seed"])) for row in csv.DictReader(file)}
    for run in itertools.product(TASKS, PROGRAMS, SEEDS):
        if run not in there and (run[1] != OURS_GYMNASIUM or run[0] in OF_BOTH_MAKERS):
            yield run


def train(cleanrl, task, program, seed):
    """Yields the points (step, return) of one run."""
    script, (num_envs, num_steps), total = TASKS[task]
    flags = f"--num-envs {num_envs} --num-steps {num_steps} --total-timesteps {total} --seed {seed}".split()
    with tempfile.TemporaryDirectory() as folder:
        if program == CLEANRL:
            run([cleanrl / "cleanrl" / script, "--env-id", task, *flags, "--no-cuda"], folder)
            curves = reading.read_curves(next(Path(folder).glob("runs/*")))
        else:
            env_id = f"gymnasium::{task}" if program == OURS_GYMNASIUM else task
            words = f"--num-logs {POINTS} --num-threads 1 --no-cuda --runs-dir {folder} --run-name run".split()
            words += ["--learning-rate", str(catalog.cleanrl_rate(task))]
            run([ROOT / "ppo_envpool.py", "--env-id", env_id, *flags, *words], folder)
            curves = reading.read_curves(Path(folder, "run"))
    steps, returns = curves["charts/episodic_return"]
    if program != CLEANRL:
        yield from zip(steps, returns, strict=True)
        return
    for step in np.arange(1, POINTS + 1) * total // POINTS:  # from one point per episode
        episodes = np.searchsorted(steps, step, "right")
        if episodes:
            yield step, np.mean(returns[max(0, episodes - 100) : episodes])


def main(args):
    for task, program, seed in missing():
        points = list(train(args.cleanrl.resolve(), task, program, seed))
        with open(HERE / "curves.csv", "a", newline="") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerows((task, program, seed, step, f"{value:.2f}") for step, value in points)


if __name__ == "__main__":
    main(arguments.parse(Args, sys.argv[1:], __doc__))
