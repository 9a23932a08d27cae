"""Measures what a step costs with the law's setting and with stable-baselines3's: writes cpu_seconds.csv.

    python results/second_look/cpu_seconds.py

Some of E1's tasks that count, drawn by random.Random(1). A number is the CPU-seconds of a process with LONG steps minus
those of one with SHORT steps, so that the start cancels. The settings take turns. Stop what else runs on the machine.
"""

import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT

import pandas as pd

from results.second_look import design
from support import progress

HERE = Path(__file__).resolve().parent
SHORT, LONG = 8_192, 32_768
ROUNDS, NUM_TASKS = 2, 6


def cpu_seconds(task, setting):
    """User and system time of a process that trains with a setting, its start included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        words = ["--env-id", task, *design.flags(setting), "--num-logs", "1", "--runs-dir", folder, "--run-name", "run"]
        subprocess.run([sys.executable, "ppo_envpool.py", *map(str, words)], cwd=ROOT, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    counted = design.counted()
    tasks, rows = random.Random(1).sample(sorted(counted), NUM_TASKS), []
    with progress.progress_bar(ROUNDS * NUM_TASKS * 4, "process", "CPU-seconds") as bar:
        for turn in range(ROUNDS):
            for task in tasks:
                steps = design.budgets()[task]
                for name, setting in {"law": design.same_budgets(steps)["law"], "sb3": design.sb3(steps)}.items():
                    seconds = []
                    for length in (SHORT, LONG):
                        seconds.append(cpu_seconds(task, setting._replace(total_timesteps=length)))
                        bar.update(1)
                    cost = 1e5 * (seconds[1] - seconds[0]) / (LONG - SHORT)
                    rows.append({"task": task, "setting": name, "round": turn, "seconds_per_100000": cost})
    pd.DataFrame(rows).round(2).to_csv(HERE / "cpu_seconds.csv", index=False, lineterminator="\n")


if __name__ == "__main__":
    main()
