"""Does --bf16 learn what float32 learns? Atari PPO on Road Runner."""

import pandas as pd
from analysis import panels
from analysis.experiment import ESTIMATE, ExperimentClaims
from analysis.look import BLUE, COLUMN, VERMILLION, plt

VARIES = ("bf16",)
FIXED = {"num_envs": 16, "num_steps": 64, "learning_rate": 5e-4, "total_timesteps": 49152}
NAMES = {"fp32": "float32", "bf16": "bfloat16"}


def table(runs):
    """The runs; `score`: the mean return of the last 100 games."""
    return runs.assign(score=runs["episodic_return"])


def claims(scores):
    found = ExperimentClaims(scores)
    pair = [scores.one(bf16=precision) for precision in (True, False)]
    found.compare("bf16", "bfloat16 minus float32", *pair, family=ESTIMATE, quantity="return at the end")
    return found


def draw(scores):
    """Every run, and the mean of each precision."""
    points = pd.read_csv(scores.folder / "curves.csv")
    figure, axis = plt.subplots(figsize=(COLUMN, 2.4))
    for (precision, name), color in zip(NAMES.items(), (VERMILLION, BLUE), strict=True):
        runs = points[points["precision"] == precision].pivot(index="step", columns="seed", values="episodic_return")
        panels.curves(axis, runs.index / 1000, runs.to_numpy(), color, name)
    axis.set(
        xlabel="thousand steps", ylabel="return, last 100 games", title="Road Runner: five runs, mean, 95 % interval"
    )
    axis.legend()
    return figure
