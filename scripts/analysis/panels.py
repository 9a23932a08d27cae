"""The pictures of results/: every run as a point and the mean with its interval, in each game apart."""

import numpy as np

from analysis.comparisons import SEEDS_FOR_A_VERDICT
from analysis.estimates import evidence, interval, mean
from analysis.experiment import REPS
from analysis.look import COLORS, PAGE, plt

LETTER = 0.07  # inches of a letter of a tick's label, with its share of the space between two labels


def facets(scores, rows, labels, xlabel, title, joined=True, ylabel="score"):
    """A row of panels for each of `rows`, a column for each game.

    rows: {title: [the configuration at each place of the x-axis, or None]}. labels: the places of the x-axis. joined:
    whether a line joins the means: not between categories. A point is a run; the mean has its 95 % interval.
    """
    figure, axes = plt.subplots(
        len(rows),
        len(scores.games),
        figsize=(PAGE, 0.75 + 1.25 * len(rows)),
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    for (name, configs), row, color in zip(rows.items(), axes, COLORS * len(rows)):
        for game, axis in zip(scores.games, row, strict=True):
            view = scores.in_game(game)
            places = [place for place, config in enumerate(configs) if config and view.has(config)]
            points(axis, places, [view.sample(configs[place])[0] for place in places], color, "-" if joined else "")
            axis.set_ylim(-0.08, 1.08)
            axis.set_yticks([0, 0.5, 1])
            axis.grid(False, axis="x")
        row[0].set_ylabel(f"{name}\n{ylabel}" if name else ylabel)
    for game, axis in zip(scores.games, axes[0], strict=True):
        axis.set_title(game)
    for axis in axes[-1]:
        axis.set_xticks(range(len(labels)), labels)
        if sum(map(len, labels)) * LETTER > PAGE / len(scores.games) - 0.5:  # they do not fit side by side
            axis.tick_params(axis="x", rotation=45)
            plt.setp(axis.get_xticklabels(), ha="right", rotation_mode="anchor")
        axis.set_xlim(-0.4, len(labels) - 0.6)
    few = scores.seeds([config for configs in rows.values() for config in configs if config]) < SEEDS_FOR_A_VERDICT
    figure.supxlabel(f"{xlabel}{'; open: fewer than ten seeds' * few}".removeprefix("; "), fontsize=8)
    figure.suptitle(title, fontsize=8)
    return figure


def points(axis, places, samples, color, line="-"):
    """Draws samples (seeds,): each run as a point, the mean with its 95 % interval, open with fewer than ten seeds."""
    for place, sample in zip(places, samples, strict=True):
        axis.plot(np.full(len(sample), place), sample, "o", color=color, ms=3, alpha=0.4, mec="none", zorder=1)
    axis.plot(places, [sample.mean() for sample in samples], color=color, ls=line or "none", zorder=2)
    for place, sample in zip(places, samples, strict=True):
        found, few = evidence(mean, [[sample]]).estimate, len(sample) < SEEDS_FOR_A_VERDICT
        ends = np.abs([[found.value - found.low], [found.high - found.value]])
        axis.errorbar(
            place, found.value, ends, color=color, marker="o", ms=4, mfc="white" if few else color, capsize=2, zorder=3
        )


def curves(axis, steps, runs, color, label):
    """Draws runs (points, seeds): each as a thin line, and their mean with its 95 % interval."""
    axis.plot(steps, runs, color=color, lw=0.6, alpha=0.4)
    found = interval(mean, [[runs]], REPS)
    axis.fill_between(steps, found.low, found.high, color=color, alpha=0.15, lw=0)
    axis.plot(steps, found.value, color=color, label=label)
