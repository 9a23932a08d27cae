"""Does the map change with hidden layers of 256 units? Each shape at its best rate; no claims."""

import copy
import itertools

import numpy as np
from analysis.comparisons import Tested
from analysis.estimates import evidence
from analysis.experiment import ESTIMATE, ExperimentClaims, load
from analysis.look import PAGE, plt

MAP, of_peaks = load("map"), load("lunarlander").of_peaks
GAMES = ("CartPole-v1", "LunarLander-v3")
BUDGET = 300_000
VARIES = ("num_envs", "num_steps", "learning_rate", "total_timesteps", "hidden_sizes")
FIXED = {"minibatch_size": 256}
ALSO = ("map", "lunarlander")
WIDTHS = WIDE, NARROW = "256 256", "64 64"
CORE = MAP.SHAPES[:4]  # they separate N from T


def arguments(run, runs):
    """The run's arguments, with hidden_sizes as on a command line."""
    return {**run.arguments, "hidden_sizes": " ".join(map(str, run.arguments["hidden_sizes"]))}


def table(runs):
    """The runs of both widths with the shapes and the tasks of the wide ones; those of 64 units have no hidden_sizes.

    Without the runs of lunarlander in which more than the rate was changed.
    """
    core = np.array([shape in CORE for shape in zip(runs["num_envs"], runs["num_steps"])])
    core &= runs["game"].isin(GAMES) & (runs["total_timesteps"] == BUDGET)
    runs = runs[core & (runs["change"] == "")]
    return runs.assign(hidden_sizes=runs["hidden_sizes"].replace("", NARROW))


def of_width(scores, hidden_sizes):
    """The scores of the configurations with these hidden layers."""
    view = copy.copy(scores)
    view.configs = scores.where(hidden_sizes=hidden_sizes)
    return view


def rates_of(view, width, shape):
    """The configurations of a shape and a width in a view of one game, one for each learning rate."""
    found = of_width(view, width).where(num_envs=shape[0], num_steps=shape[1])
    return [config for config in found if view.has(config)]


def claims(scores):
    found = ExperimentClaims(scores)
    for game, shape in itertools.product(scores.games, CORE):
        wide, narrow = (rates_of(scores.in_game(game), width, shape) for width in WIDTHS)

        def wider(view, wide=wide, narrow=narrow):
            samples = [view.sample(config) for config in (*wide, *narrow)]
            return Tested(evidence(of_peaks(len(wide)), samples).estimate)

        if wide and narrow:
            text = f"{shape[0]}x{shape[1]} with 256 units minus 64, each at its best rate"
            found.add("width", text, wider, [*wide, *narrow], games=[game], family=ESTIMATE)
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
