"""A rule for N, T and the learning rate, fitted to the tasks of results/map, and what it predicts for other tasks.

    python scripts/map_rule.py                         # how far the rule is right on each task, fitted to the others
    python scripts/map_rule.py --runs runs/held_out    # predictions for the tasks that have runs of the default there

The mean score of task k with N environments, T steps and the learning rate r is, with x = (log2 N, log2 T, log2 r),

    s_k(x) = a_k + b·x + x·C x + z_k·D x

where z_k are two numbers that a user can read off runs of the default (8 x 128 at 2.5e-4): log2 of the mean length of a
game and log2 of the gradient noise scale, both of the second half of the run, over the tasks with mean 0 and deviation
1. Least squares over the cells of all tasks at one budget, with the penalty p |D|². With p = inf z says nothing,
and the rule is the same for all tasks. `constant` is the simpler rule beside it: the cell with the best mean
over the tasks, of those that all tasks have.

Writes rule.csv: of each task and rule, fitted to the other tasks, the cell and its regret. The odd seeds choose the
best cell of the task, and the regret is its mean score over the even seeds minus that of the rule's cell. With --runs
also predictions.csv: the cells that sweeps/held_out.sh runs, those of the rule with the smallest mean regret, its
neighbours (half and twice the rate, and the other shapes), the constant cell and the default.
"""

from launching.root import ROOT  # noqa: F401

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import numpy as np
import pandas as pd
from analysis import experiment

from support import arguments, catalog, reading

CELL = ["num_envs", "num_steps", "learning_rate"]
DEFAULT = (8, 128, 2.5e-4)
MEASURED = ["length", "noise_scale"]
CENTER = np.array([5.0, 5.0, -9.0])  # of x, near the middle of the grid
PENALTIES = (1.0, 10.0, 100.0, np.inf)
SEEDS = 10


@dataclass
class Args:
    runs: Optional[Path] = None  # run directories of the tasks to predict, with some of the default
    steps: int = 100_000  # the budget
    table: Path = experiment.RESULTS / "map" / "scores.csv"  # what has run of the map
    out: Path = experiment.RESULTS / "held_out"  # the directory for the tables


def parse_args(argv):
    """Returns checked Args; exits 2 with one line on bad input."""
    return arguments.parse(Args, argv, __doc__)


# ---- the rule --------------------------------------------------------------------------------------------------------
def terms(cells):
    """(x (C, 3), all products of two of them (C, 6)) of cells (C, 3): N, T and the learning rate."""
    x = np.log2(np.asarray(cells, float)) - CENTER
    return x, np.stack([x[:, i] * x[:, j] for i in range(3) for j in range(i, 3)], axis=1)


class Rule:
    """Fitted to the cells of some tasks.

    table: a row a cell, with `game`, CELL and `score`; measured: a row a task, MEASURED by game; penalty: p, above 0.
    """

    def __init__(self, table, measured, penalty):
        games = sorted(table["game"].unique())
        logs = np.log2(measured.loc[games, MEASURED].to_numpy(float))
        self.center, self.spread = logs.mean(0), logs.std(0)
        x, squares = terms(table[CELL])
        own = (table["game"].to_numpy()[:, None] == np.array(games)).astype(float)
        with_z = self._interactions(x, own @ logs)
        columns = np.concatenate([own, x, squares, with_z], axis=1)
        weights = np.zeros(columns.shape[1])
        weights[len(weights) - with_z.shape[1] :] = np.sqrt(penalty) if np.isfinite(penalty) else 1e6
        rows = np.concatenate([columns, np.diag(weights)])
        scores = np.concatenate([table["score"].to_numpy(float), np.zeros(len(weights))])
        self.weights = np.linalg.lstsq(rows, scores, rcond=None)[0][len(games) :]

    def _interactions(self, x, logs):
        z = (logs - self.center) / self.spread
        return (z[:, :, None] * x[:, None, :]).reshape(len(x), -1)

    def scores(self, cells, measured):
        """The scores of cells (C, 3) of a task, up to a constant. measured: its MEASURED."""
        x, squares = terms(cells)
        logs = np.log2(np.asarray(measured, float))[None].repeat(len(x), 0)
        return np.concatenate([x, squares, self._interactions(x, logs)], axis=1) @ self.weights

    def best(self, cells, measured):
        """The cell, a tuple, with the highest score."""
        cells = np.asarray(cells, float)
        return tuple(cells[self.scores(cells, measured).argmax()])


def constant(table, without=None):
    """The cell with the best mean score over the games but one, of those that all games have."""
    everywhere = table.groupby(CELL)["game"].transform("count") == table["game"].nunique()
    return table[everywhere & (table["game"] != without)].groupby(CELL)["score"].mean().idxmax()


# ---- how far it is right ---------------------------------------------------------------------------------------------
def cells_of(runs):
    """(A row a cell with all seeds: game, CELL, `score`, `odd` and `even` seeds' means; MEASURED of each game)."""
    by_cell = runs.groupby(["game", *CELL])
    table = by_cell["score"].agg(["mean", "count"]).rename(columns={"mean": "score"})
    for name, rest in (("odd", 1), ("even", 0)):
        table[name] = runs[runs["seed"] % 2 == rest].groupby(["game", *CELL])["score"].mean()
    table = table[table["count"] >= SEEDS].drop(columns="count").reset_index()
    default = runs[np.isclose(runs[CELL].astype(float), DEFAULT).all(1)]
    return table, default.groupby("game")[MEASURED].mean()


def left_out(table, measured):
    """rule.csv: a row for each task and rule, fitted to the other tasks."""
    rows = []
    for game in sorted(table["game"].unique()):
        rest, own = table[table["game"] != game], table[table["game"] == game].set_index(CELL)
        best = own.loc[own["odd"].idxmax(), "even"]
        picks = {f"p = {p:g}": Rule(rest, measured, p).best(list(own.index), measured.loc[game]) for p in PENALTIES}
        picks |= {"constant": constant(table, game), "default": DEFAULT}
        for name, cell in picks.items():
            N, T, rate = cell
            regret = best - own.loc[cell, "even"]
            rows.append([game, name, int(N), int(T), rate, round(own.loc[cell, "score"], 4), round(regret, 4)])
    return pd.DataFrame(rows, columns=["game", "rule", *CELL, "score", "regret"])


# ---- predictions -----------------------------------------------------------------------------------------------------
def predictions(table, measured, penalty, tasks):
    """predictions.csv. tasks: the MEASURED of each task to predict."""
    rule, rows = Rule(table, measured, penalty), []
    rates = sorted(table["learning_rate"].unique())
    shapes = sorted(set(zip(table["num_envs"], table["num_steps"])))
    grid = [(*shape, rate) for shape in shapes for rate in rates]
    for game, numbers in tasks.iterrows():
        N, T, rate = rule.best(grid, numbers)
        cells = {"predicted": (N, T, rate), "half the rate": (N, T, rate / 2), "twice the rate": (N, T, rate * 2)}
        cells |= {f"shape {n}x{t}": (n, t, rate) for n, t in shapes if (n, t) != (N, T)}
        cells |= {"constant": constant(table), "default": DEFAULT}
        best = rule.scores([cells["predicted"]], numbers)[0]
        for name, cell in cells.items():
            gap = round(rule.scores([cell], numbers)[0] - best, 3)
            rows.append([game, name, int(cell[0]), int(cell[1]), cell[2], gap])
    return pd.DataFrame(rows, columns=["game", "cell", *CELL, "minus_predicted"])


def of_default(runs_dir):
    """The MEASURED of each task that has finished runs of the default below a directory."""
    try:
        runs = reading.load(runs_dir)
    except FileNotFoundError as error:
        arguments.fail(f"--runs {error}")
    runs = runs.assign(game=runs["env_id"].map(catalog.game_name))
    runs = runs[np.isclose(runs[CELL].astype(float), DEFAULT).all(1) & runs["state"].eq("done")]
    if runs.empty:
        arguments.fail(f"--runs {runs_dir}: expected finished runs of the default, 8 x 128 at 2.5e-4")
    return runs.groupby("game")[MEASURED].mean()


def main(args):
    tasks = of_default(args.runs) if args.runs else None
    try:
        runs = experiment.read(experiment.load("map"), args.table)
    except (OSError, ValueError) as error:
        arguments.fail(f"--table {args.table} cannot be read ({error}): expected a scores.csv of the map")
    table, measured = cells_of(runs[runs["total_timesteps"] == args.steps])
    if table["game"].nunique() < 3:
        arguments.fail(f"--table {args.table}: expected three tasks or more with all seeds at {args.steps} steps")
    found = left_out(table, measured)
    with arguments.writable("out", args.out):
        experiment.write_csv(found, args.out / "rule.csv")
    means = found.groupby("rule", sort=False)["regret"].mean()
    print(found.pivot(index="rule", columns="game", values="regret").loc[means.index].assign(mean=means).round(3))
    if tasks is None:
        return
    penalty = min(PENALTIES, key=lambda p: means[f"p = {p:g}"])
    found = predictions(table, measured, penalty, tasks)
    experiment.write_csv(found, args.out / "predictions.csv")
    print(f"p = {penalty:g}\n{found.to_string(index=False)}")


if __name__ == "__main__":
    main(parse_args(sys.argv[1:]))
