"""A rule for N, T and the learning rate, fitted to the tasks of results/map, and what it predicts for other tasks.

    python results/held_out/map_rule.py      # the rule's regret on each task and budget, fitted to the other tasks
    python results/held_out/map_rule.py --predict 300000    # predictions for the other tasks of the table of all runs

The mean score of task k at budget B with N environments, T steps and the learning rate r is, with
x = (log2 N, log2 T, log2 r) and t = log2 B minus its mean,

    s_kB(x) = a_kB + b·x + x·C x + t e·x + z_k·D x

where z_k are two numbers from runs of the default (8 x 128 at 2.5e-4) of 100,000 steps: log2 of the mean length of an
episode and log2 of the gradient noise scale, both in the second half of the run, over the tasks with mean 0 and
deviation 1. The fit is least squares over the settings of all tasks and budgets, with the penalty p |D|². With p = inf
z has no effect, and the rule is the same for all tasks. The simpler rule `constant` takes one setting for every budget:
the one with the best mean over the tasks at 100,000 steps, of those that all tasks have.

rule.csv has, for each task, budget and rule fitted to the other tasks, the setting and its regret. The odd seeds choose
the task's best setting; the regret is its mean score over the even seeds minus that of the rule's setting, and missing
if that did not run. With --predict, predictions.csv has the settings that results/held_out/held_out.sh runs, for the
tasks that have runs of the default and are not in the map: the setting of the rule with the smallest mean regret, its
neighbours (half and twice the rate, and the other N x T), the constant setting and the default. Rows of other budgets
stay.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT  # noqa: F401

import itertools
from dataclasses import dataclass
from typing import Tuple

import numpy as np
import pandas as pd
from analysis import experiment

from support import arguments, catalog, reading
from support.arguments import Count

SETTING = ["num_envs", "num_steps", "learning_rate"]
DEFAULT = (8, 128, 2.5e-4)
MEASURED = ["length", "noise_scale"]
CENTER = np.array([5.0, 5.0, -9.0])  # subtracted from x: near the middle of the grid
PENALTIES = (1.0, 10.0, 100.0, np.inf)
SEEDS = 10
SHORT = 100_000  # steps: all tasks have the same settings there


@dataclass
class Args:
    predict: Tuple[Count, ...] = ()  # the budgets to predict
    runs: Path = experiment.DATASET  # run directories, or a table of runs: the tasks to predict, with the default
    budgets: Tuple[Count, ...] = (100_000, 300_000, 900_000)  # those to fit the rule to
    table: Path = experiment.RESULTS / "map" / "scores.csv"  # what has run of the map
    out: Path = experiment.RESULTS / "held_out"  # the directory for the tables


def parse_args(argv):
    """Returns checked Args; exits 2 with one line on bad input."""
    return arguments.parse(Args, argv, __doc__)


# ---- the rule --------------------------------------------------------------------------------------------------------
def terms(settings):
    """(x (C, 3), all products of two of them (C, 6)) of settings (C, 3): N, T and the learning rate."""
    x = np.log2(np.asarray(settings, float)) - CENTER
    return x, np.stack([x[:, i] * x[:, j] for i in range(3) for j in range(i, 3)], axis=1)


class Rule:
    """Fitted to the settings of some tasks.

    table: a row per setting, with `game`, `total_timesteps`, SETTING and `score`; measured: a row per task, MEASURED by
    its name; penalty: p, above 0.
    """

    def __init__(self, table, measured, penalty):
        tasks = sorted(table["game"].unique())
        logs = np.log2(measured.loc[tasks, MEASURED].to_numpy(float))
        self.center, self.spread = logs.mean(0), logs.std(0)
        self.middle = np.log2(np.unique(table["total_timesteps"])).mean()
        own = pd.get_dummies(table["game"] + table["total_timesteps"].map(" {}".format)).to_numpy(float)
        of_task = np.log2(measured.loc[table["game"], MEASURED].to_numpy(float))
        columns, slopes = self._columns(table[SETTING], table["total_timesteps"].to_numpy(float), of_task)
        columns = np.concatenate([own, columns], axis=1)
        weights = np.zeros(columns.shape[1])
        weights[-slopes:] = np.sqrt(penalty) if np.isfinite(penalty) else 1e6
        rows = np.concatenate([columns, np.diag(weights)])
        scores = np.concatenate([table["score"].to_numpy(float), np.zeros(len(weights))])
        self.weights = np.linalg.lstsq(rows, scores, rcond=None)[0][own.shape[1] :]

    def _columns(self, settings, budgets, logs):
        """(The terms of x of C settings, (C, 18); how many of the last ones belong to z). logs: (C, 2)."""
        x, squares = terms(settings)
        t = np.log2(budgets) - self.middle
        z = (logs - self.center) / self.spread
        with_z = (z[:, :, None] * x[:, None, :]).reshape(len(x), -1)
        return np.concatenate([x, squares, t[:, None] * x, with_z], axis=1), with_z.shape[1]

    def scores(self, settings, budget, measured):
        """The scores of settings (C, 3) of a task, up to a constant. measured: its MEASURED."""
        logs = np.log2(np.asarray(measured, float))[None].repeat(len(settings), 0)
        return self._columns(settings, np.full(len(settings), float(budget)), logs)[0] @ self.weights

    def best(self, settings, budget, measured):
        """The setting, a tuple, with the highest score."""
        settings = np.asarray(settings, float)
        return tuple(settings[self.scores(settings, budget, measured).argmax()])


def constant(table, without=None):
    """The setting with the best mean score over the tasks but one at SHORT, of those that all tasks have there."""
    table = table[table["total_timesteps"] == SHORT]
    everywhere = table.groupby(SETTING)["game"].transform("count") == table["game"].nunique()
    return table[everywhere & (table["game"] != without)].groupby(SETTING)["score"].mean().idxmax()


# ---- how far it is right ---------------------------------------------------------------------------------------------
def settings_of(runs):
    """(A row per setting with all seeds: task, budget, SETTING, `score`, `odd`, `even` means; MEASURED by task)."""
    keys = ["game", "total_timesteps", *SETTING]
    table = runs.groupby(keys)["score"].agg(["mean", "count"]).rename(columns={"mean": "score"})
    for name, rest in (("odd", 1), ("even", 0)):
        table[name] = runs[runs["seed"] % 2 == rest].groupby(keys)["score"].mean()
    table = table[table["count"] >= SEEDS].drop(columns="count").reset_index()
    return table, measured_of(runs)


def measured_of(runs):
    """The MEASURED of each task that has runs of the default at SHORT, a row per task."""
    default = np.isclose(runs[SETTING].astype(float), DEFAULT).all(1) & (runs["total_timesteps"] == SHORT)
    return runs[default].groupby("game")[MEASURED].mean()


def left_out(table, measured):
    """rule.csv: a row for each task, budget and rule, fitted to the other tasks."""
    rows = []
    for (task, budget), own in table.groupby(["game", "total_timesteps"]):
        rest, own, numbers = table[table["game"] != task], own.set_index(SETTING), measured.loc[task]
        best = own.loc[own["odd"].idxmax(), "even"]
        picks = {f"p = {p:g}": Rule(rest, measured, p).best(list(own.index), budget, numbers) for p in PENALTIES}
        picks |= {"constant": constant(table, task), "default": DEFAULT}
        for name, setting in picks.items():
            N, T, rate = setting
            score, even = own[["score", "even"]].reindex([setting]).iloc[0]
            rows.append([task, budget, name, int(N), int(T), rate, round(score, 4), round(best - even, 4)])
    return pd.DataFrame(rows, columns=["game", "total_timesteps", "rule", *SETTING, "score", "regret"])


# ---- predictions -----------------------------------------------------------------------------------------------------
def predictions(table, measured, penalty, tasks, budgets):
    """predictions.csv. tasks: the MEASURED of each task to predict."""
    rule, rows = Rule(table, measured, penalty), []
    rates = sorted(table["learning_rate"].unique())
    n_by_ts = sorted(set(zip(table["num_envs"], table["num_steps"])))
    grid = [(*n_by_t, rate) for n_by_t in n_by_ts for rate in rates]
    for budget, (task, numbers) in itertools.product(budgets, tasks.iterrows()):
        N, T, rate = rule.best(grid, budget, numbers)
        settings = {"predicted": (N, T, rate), "half the rate": (N, T, rate / 2), "twice the rate": (N, T, rate * 2)}
        settings |= {f"shape {n}x{t}": (n, t, rate) for n, t in n_by_ts if (n, t) != (N, T)}
        settings |= {"constant": constant(table), "default": DEFAULT}
        best = rule.scores([settings["predicted"]], budget, numbers)[0]
        for name, setting in settings.items():
            gap = round(rule.scores([setting], budget, numbers)[0] - best, 3)
            rows.append([task, budget, name, int(setting[0]), int(setting[1]), setting[2], gap])
    return pd.DataFrame(rows, columns=["game", "total_timesteps", "cell", *SETTING, "minus_predicted"])


def of_default(path, known):
    """The MEASURED of each task with finished runs of the default below a path, but for the known ones."""
    try:
        runs = reading.load(path)
    except (OSError, ValueError) as error:
        arguments.fail(f"--runs {error}")
    runs = runs.assign(game=runs["env_id"].map(catalog.task_name))
    found = measured_of(runs[runs["state"].eq("done") & ~runs["game"].isin(known)]).dropna()
    if found.empty:
        arguments.fail(f"--runs {path}: expected the default, 8 x 128 at 2.5e-4, {SHORT} steps, on other tasks")
    return found


def main(args):
    try:
        runs = experiment.read(experiment.load("map"), args.table)
    except (OSError, ValueError) as error:
        arguments.fail(f"--table {args.table} cannot be read ({error}): expected a scores.csv of the map")
    table, measured = settings_of(runs[runs["total_timesteps"].isin(args.budgets)])
    if table.loc[table["total_timesteps"] == SHORT, "game"].nunique() < 3:
        arguments.fail(f"--table {args.table}: expected three tasks or more with all seeds at {SHORT} steps")
    tasks = of_default(args.runs, set(table["game"])) if args.predict else None
    found = left_out(table, measured)
    with arguments.writable("out", args.out):
        experiment.write_csv(found, args.out / "rule.csv")
    shown = found.pivot(index="rule", columns=["game", "total_timesteps"], values="regret")
    means = shown.dropna(axis=1).mean(axis=1)  # over those where each rule's setting has run
    print(shown.T.round(3).to_string(), means.round(3).to_string(), sep="\n\n")
    if tasks is None:
        return
    penalty = min(PENALTIES, key=lambda p: shown.loc[f"p = {p:g}"].mean())
    found = predictions(table, measured, penalty, tasks, args.predict)
    print(f"p = {penalty:g}\n{found.to_string(index=False)}")
    path = args.out / "predictions.csv"
    if path.exists():
        old = pd.read_csv(path)
        found = pd.concat([old[~old["total_timesteps"].isin(args.predict)], found])
    experiment.write_csv(found, path)


if __name__ == "__main__":
    main(parse_args(sys.argv[1:]))
