"""Random play of the tasks of E4 and E5, 0 of their scores: random.csv, as the atlas has it of its own tasks.

python results/second_look/random_play.py
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT  # noqa: F401

from types import SimpleNamespace

import numpy as np
import pandas as pd

from results.second_look import design
from support import progress
from support.envs import tasks
from support.envs.episodes import env_seeds, run_episodes

EPISODES = 1000
HERE = Path(__file__).resolve().parent


def play(task):
    """A row of random.csv: the mean and the deviation of the returns of EPISODES random episodes."""
    space, generator = tasks.spaces(task)[1], np.random.default_rng(1)

    def act(obs, playing):
        if hasattr(space, "n"):
            return generator.integers(space.n, size=len(obs))
        return generator.uniform(space.low, space.high, (len(obs), *space.shape)).astype(np.float32)

    limit = tasks.eval_max_steps(SimpleNamespace(env_id=task, env_kwargs="{}", eval_max_steps=None))
    with progress.progress_bar(EPISODES, "episode", task) as bar:
        returns = run_episodes(tasks.make(task, env_seeds(1, "random", 0, range(EPISODES)), 1), act, bar, limit)
    numbers = {"random": np.mean(returns), "deviation": np.std(returns, ddof=1)}
    return {"task": task, **{name: float(f"{x:.6g}") for name, x in numbers.items()}}


if __name__ == "__main__":
    path = HERE / "random.csv"
    rows = pd.read_csv(path).to_dict("records") if path.exists() else []
    fresh = {block.task: None for block in design.blocks() if block.arm in ("E4", "E5")}
    for task in fresh:
        if task not in {row["task"] for row in rows}:
            rows.append(play(task))
            print(rows[-1], flush=True)
            pd.DataFrame(rows).to_csv(path, index=False, lineterminator="\n")
