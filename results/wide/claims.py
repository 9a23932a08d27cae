"""Does the map change with hidden layers of 256 units? Each shape at its best rate, 256 units minus 64; no claims."""

import copy

import numpy as np
from analysis.comparisons import Tested, difference
from analysis.estimates import evidence
from analysis.experiment import ESTIMATE, REPS, ExperimentClaims, load
from analysis.look import PAGE, plt

MAP = load("map")
GAMES = ("CartPole-v1", "LunarLander-v3")
BUDGET = 300_000
VARIES = ("num_envs", "num_steps", "learning_rate", "hidden_sizes")
FIXED = {"minibatch_size": 256, "total_timesteps": BUDGET}
ALSO = ("map", "lunarlander")
NARROW, WIDE = "64 64", "256 256"
CORE = MAP.SHAPES[:4]  # they separate N from T


def arguments(run, runs):
    """The run's arguments, with hidden_sizes as on a command line."""
    return {**run.arguments, "hidden_sizes": " ".join(map(str, run.arguments["hidden_sizes"]))}


def table(runs):
    """The runs of both widths with the shapes and the tasks of the wide ones; those of 64 units have no hidden_sizes.

    Without the runs of lunarlander in which more than the rate was changed.
    """
    core = np.array([shape in CORE for shape in zip(runs["num_envs"], runs["num_steps"])])
    runs = runs[core & runs["game"].isin(GAMES) & (runs["change"] == "")]
    return runs.assign(hidden_sizes=runs["hidden_sizes"].replace("", NARROW))


def of_width(scores, hidden_sizes):
    """The scores of the configurations with these hidden layers."""
    view = copy.copy(scores)
    view.configs = scores.where(hidden_sizes=hidden_sizes)
    return view


def claims(scores):
    found = ExperimentClaims(scores)
    for game in scores.games:
        for shape in CORE:

            def wider(view, shape=shape):
                samples = [MAP.at_best(of_width(view, width), shape, BUDGET) for width in (WIDE, NARROW)]
                return Tested(evidence(difference, samples, REPS).estimate)

            text = f"{shape[0]}x{shape[1]} with 256 units minus 64, each at its best rate"
            configs = scores.where(num_envs=shape[0], num_steps=shape[1])
            found.add("width", text, wider, configs, games=[game], family=ESTIMATE)
    return found


def draw(scores):
    """Mean scores against the rate, a line a shape: each task with 64 and with 256 units."""
    figure, axes = plt.subplots(1, 2 * len(scores.games), figsize=(PAGE, 2.4), sharex=True, sharey=True)
    panels = [(game, width) for game in scores.games for width in (NARROW, WIDE)]
    for axis, (game, width) in zip(axes, panels):
        MAP.curves(axis, of_width(scores.in_game(game), width), BUDGET)
        axis.set_title(f"{game.split('-')[0]}, {width.split()[0]} units")
    axes[0].set_ylabel("score")
    axes[0].set_ylim(-0.2, 1.1)
    figure.supxlabel("learning rate", fontsize=8)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(CORE), title="N×T")
    return figure
