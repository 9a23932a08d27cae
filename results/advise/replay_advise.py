"""How good is scripts/advise.py on a new task? Replays its search on recorded runs, one task left out at a time.

    python results/advise/replay_advise.py                   # from results/runs.csv.gz, into results/advise
    python results/advise/replay_advise.py --replays 10      # a quick look
    python results/advise/replay_advise.py --tasks atlas     # A6, once the atlas has ended: atlas_regret.csv, …

For each task and budget of --steps with enough settings (minibatches of 256 rows, the map's epochs, at least five seeds
each): the model of analysis/prior.py is fitted to the other tasks. The seeds of each setting are split at random, in a
half for the search and a half that tests. A run of the search is the next seed of its half; a setting whose half is
used up gets no further run. Beside it, with as many runs on the same halves:

    random           a run each of settings drawn at random; the best score wins
    halving          a third of the runs for so many settings at random, a third for the best half of them, a third for
                     the best quarter; the best mean wins (sequential halving, Karnin et al. 2013, from a random start)
    grid, one seed   a run of every setting, however many runs the others have
    32x32 at 2e-3    no search at all
    prior, no run    what advise.py expects most of before its first run
    exhaustive       every setting with its whole half: what the others are compared with

The regret is the mean score, on the testing half, of what the exhaustive search picks minus that of what the search
picks; it is below 0 where the few runs were luckier. Means are over replays, then over tasks; intervals are Student's t
over tasks, which few tasks make wide. The reliability is the share of replays whose pick gains, on the testing half, at
most 5 % less than the exhaustive pick, against the probability that advise.py gives. Both halves are noisy, so even a
perfect forecast would not lie on the diagonal: the share is too low where scores vary from seed to seed.

With `--tasks atlas` the tasks are those that count for the atlas's claims, 21 settings each. Of a setting's three seeds
of step 1 two answer the search and one tests, at random for each setting. The prior of `advise` is made of the runs of
all other studies, that of `advise, atlas`, which advise.py has, also of step 1 of the atlas's other tasks. A6: the
second has less regret.

Writes replays.csv (a row per replay), regret.csv, reliability.csv, brier.csv and reliability.png.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT  # noqa: F401

import itertools
from dataclasses import dataclass
from functools import partial
from typing import Literal, Tuple

import numpy as np
import pandas as pd
from analysis import experiment, prior
from scipy.stats import t as student
from typing_extensions import Annotated

from support import arguments, catalog, reading
from support.arguments import Range, Seed, Steps

SHARES = {"map": (0.05, 0.1, 0.2), "atlas": (0.05, 0.1)}  # shares of the runs of a grid with SEEDS seeds
FEWEST_SEEDS = {"map": 5, "atlas": 3}
SEEDS, FEWEST_SETTINGS = 10, 12
AT_A_TIME, MOST_N_BY_TS, DRAWS = 12, 2, 1000  # as advise.py with two workers
EPOCHS = (4, 10)  # for discrete and for continuous actions
BINS = (0, 0.4, 0.6, 0.8, 1.0)
CONSTANT = (32, 32, 2e-3)  # N, T and learning rate: no search at all


@dataclass
class Args:
    out: Path = experiment.RESULTS / "advise"  # the directory for the tables and the picture
    dataset: Path = experiment.DATASET  # the table of all runs
    tasks: Literal["map", "atlas"] = "map"  # whose runs are replayed
    steps: Tuple[Steps, ...] = (100_000,)  # the budgets of the map's runs; two of them take many times as long
    replays: Annotated[int, Range(2, 10_000)] = 40  # searches for each task, budget, share and method
    seed: Seed = 0  # seeds the splits and the draws


def parse_args(argv):
    """Returns checked Args; exits 2 with one line on bad input."""
    return arguments.parse(Args, argv, __doc__)


def problems(table, fewest=FEWEST_SEEDS["map"]):
    """Yields (task, budget, settings, the scores of each), where FEWEST_SETTINGS have the fewest seeds or more."""
    same = table[(table["minibatch_size"] == 256) & table["update_epochs"].isin(EPOCHS)]
    for (task, budget), rows in same.groupby(["game", "total_timesteps"]):
        groups = rows.groupby(list(prior.SETTING))["score"]
        found = [(key, of.to_numpy(float)) for key, of in groups if len(of) >= fewest]
        if len(found) >= FEWEST_SETTINGS:
            settings, scores = zip(*found, strict=True)
            yield task, budget, pd.DataFrame(settings, columns=list(prior.SETTING)), scores


class Halves:
    """The scores of each setting, split at random: `search` gives them one by one, `test` has the others."""

    def __init__(self, scores, rng):
        mixed = [rng.permutation(values) for values in scores]
        self.search = [values[: (len(values) + 1) // 2] for values in mixed]
        self.test = np.array([values[(len(values) + 1) // 2 :].mean() for values in mixed])
        self.used = np.zeros(len(mixed), int)

    def run(self, setting):
        """One more run; False if there is none left."""
        left = self.used[setting] < len(self.search[setting])
        self.used[setting] += left
        return left

    def seen(self):
        return [values[:used] for values, used in zip(self.search, self.used, strict=True)]

    def best(self):
        """The setting with the highest mean so far."""
        return int(np.argmax([values.mean() if len(values) else -np.inf for values in self.seen()]))


def advise(before, n_by_ts, halves, number, rng):
    """The pick of advise.py with a prior, and the probability that it gives."""
    made = 0
    while True:
        draws = prior.posterior(before, halves.seen(), DRAWS, rng)
        if made >= number:
            pick = int(draws.mean(0).argmax())
            return pick, prior.close_to_best(draws)[pick]
        used_up = halves.used == [len(values) for values in halves.search]
        draws[:, used_up] = -np.inf
        asked = prior.next_runs(draws, n_by_ts, MOST_N_BY_TS, min(AT_A_TIME, number - made))
        made += max(sum(halves.run(setting) for setting in asked), 1)  # 1: nothing is left


def at_random(halves, number, rng):
    for setting in rng.permutation(len(halves.search))[:number]:
        halves.run(setting)
    return halves.best(), np.nan


def halving(halves, number, rng):
    left = list(rng.permutation(len(halves.search))[: max(2, number // 3)])
    for times in (1, 2, 4):
        for setting in left:
            for _ in range(times):
                halves.run(setting)
        means = [halves.seen()[setting].mean() for setting in left]
        left = [left[i] for i in np.argsort(means)[::-1][: max(1, len(left) // 2)]]
    return left[0], np.nan


def one_seed(halves, *_):
    """A grid with one seed, however many runs the others have."""
    for setting in range(len(halves.search)):
        halves.run(setting)
    return halves.best(), np.nan


def constant(place, *_):
    """One setting of all, without a run."""
    return place, np.nan


def no_run(search, halves, _, rng):
    """The pick of a search by advise.py before its first run."""
    return search(halves, 0, rng)[0], np.nan


METHODS = {"random": at_random, "halving": halving, "grid, one seed": one_seed}
ADVISE, OF_ATLAS, NO_SEARCH = "advise", "advise, atlas", "32x32 at 2e-3"
NO_RUN = "prior, no run"


def replay(table, replays, seed, known=None, tasks="map"):
    """A row for each replay of the tasks of a table.

    known: {name of a search by advise.py: the runs that its prior is made of, those of the task itself apart}; without
    it there is one, whose prior is made of the table. tasks: a key of SHARES and FEWEST_SEEDS.
    """
    rows, fitted = [], {}
    for task, budget, settings, scores in problems(table, FEWEST_SEEDS[tasks]):
        n_by_ts = [f"{n}x{t}" for n, t in zip(settings["num_envs"], settings["num_steps"], strict=True)]
        triples = list(settings[["num_envs", "num_steps", "learning_rate"]].itertuples(index=False, name=None))
        searches = {}
        for name, runs in (known or {ADVISE: table}).items():
            others = runs[runs["game"] != task]
            key = name, len(runs) - len(others) and task  # a prior without runs of the task is the same for all tasks
            fitted[key] = fitted.get(key) or prior.Tasks(others)
            searches[name] = partial(advise, fitted[key].prior(settings), n_by_ts)
        searches |= {**METHODS, NO_RUN: partial(no_run, searches[name])}
        if CONSTANT in triples:
            searches[NO_SEARCH] = partial(constant, triples.index(CONSTANT))
        for share in SHARES[tasks]:
            number = max(2, round(share * SEEDS * len(scores)))
            for (method, search), i in ((item, i) for item in searches.items() for i in range(replays)):
                halves = Halves(scores, np.random.default_rng([seed, i]))
                pick, chance = search(halves, number, np.random.default_rng([seed, i, 1]))
                best = int(np.argmax([values.mean() for values in halves.search]))
                gain, top = halves.test[pick], halves.test[best]
                row = {"game": task, "total_timesteps": budget, "settings": len(scores), "share": share}
                row |= {"method": method, "replay": i, "runs": int(halves.used.sum()), "regret": round(top - gain, 4)}
                rows.append({**row, "probability": round(chance, 3), "close": gain >= top - prior.CLOSE * abs(top)})
    return pd.DataFrame(rows)


def over_tasks(values):
    """(mean, low, high) of one number per task, Student's t; without an interval for a single task."""
    values = np.asarray(values, float)
    half = student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else np.nan
    return values.mean(), values.mean() - half, values.mean() + half


def regrets(rows, ours=ADVISE):
    """A row for each share and method: the mean regret over tasks, and the advantage over the method of `ours`."""
    by_task = rows.groupby(["share", "method", "game"])["regret"].mean()
    found = []
    for share in rows["share"].unique():
        for method in rows["method"].unique():
            own = by_task[share, method]
            columns = {"share": share, "method": method, "tasks": len(own)}
            columns |= dict(zip(("regret", "low", "high"), over_tasks(own), strict=True))
            more = over_tasks(own - by_task[share, ours]) if method != ours else [np.nan] * 3
            columns |= dict(zip(("more_than_advise", "more_low", "more_high"), more, strict=True))
            found.append({**columns, **own.to_dict()})
    return pd.DataFrame(found)


def reliability(rows, method=ADVISE):
    """A row for each bin of the probability: the means of it and of `close`, over the replays and tasks in the bin."""
    own = rows[rows["method"] == method]
    found = []
    for low, high in zip(BINS, BINS[1:], strict=False):
        inside = own[(own["probability"] > low) & (own["probability"] <= high)]
        if len(inside):
            by_task = inside.groupby("game")["close"].mean()
            share = over_tasks(by_task)
            row = {"from": low, "to": high, "tasks": len(by_task), "replays": len(inside)}
            row |= {"probability": inside.groupby("game")["probability"].mean().mean()}
            found.append({**row, **dict(zip(("close", "low", "high"), np.clip(share, 0, 1), strict=True))})
    return pd.DataFrame(found)


def brier(rows, method=ADVISE):
    """A row for each share: the Brier score of the probability, and of a constant, each a mean over tasks.

    The score is the mean of (probability - close)^2. The constant is how often the picks of the other tasks are close.
    """
    found = []
    for share, own in rows[rows["method"] == method].groupby("share"):
        by_task = own.groupby("game")["close"].mean()
        others = (by_task.sum() - by_task) / (len(by_task) - 1)
        errors = {
            "brier": (own["probability"] - own["close"]) ** 2,
            "brier_of_a_constant": (own["game"].map(others) - own["close"]) ** 2,
        }
        means = {name: error.groupby(own["game"]).mean().mean() for name, error in errors.items()}
        both = {"probability": own.groupby("game")["probability"].mean().mean(), "close": by_task.mean()}
        found.append({"share": share, **means, **both})
    return pd.DataFrame(found)


def draw(rows, table, path, method=ADVISE):
    from analysis.look import BLUE, COLORS, COLUMN, GRAY, plt, save  # matplotlib takes a second: not for --help

    figure, (left, right) = plt.subplots(1, 2, figsize=(2 * COLUMN, 2.6))
    own = rows[rows["method"] == method]
    left.plot([0, 1], [0, 1], color=GRAY, lw=0.8)
    few = own["game"].nunique() < len(COLORS)  # a colour and a name for each task
    for (task, inside), color in zip(own.groupby("game"), COLORS[1:] if few else itertools.repeat(GRAY)):
        bins = inside.groupby(pd.cut(inside["probability"], BINS), observed=True)[["probability", "close"]].mean()
        left.plot(bins["probability"], bins["close"], "o", color=color, ms=3, label=task if few else None)
    bars = np.abs(np.stack([table["close"] - table["low"], table["high"] - table["close"]]))
    left.errorbar(
        table["probability"], table["close"], np.nan_to_num(bars), color=BLUE, marker="s", label="mean of tasks"
    )
    left.set(xlabel="probability that advise.py gives", ylabel="share within 5 % of the best", xlim=(0, 1), ylim=(0, 1))
    left.legend(fontsize=6, loc="lower right")
    methods = rows["method"].unique()
    for i, (method, color) in enumerate(zip(methods, (BLUE, *COLORS[1:]), strict=False)):
        by_task = rows[rows["method"] == method].groupby(["share", "game"])["regret"].mean().unstack()
        if few:
            right.plot(by_task.index, by_task, ".", color=color, ms=4)
            right.plot(by_task.index, by_task.mean(axis=1), color=color, label=method)
        else:
            mean, low, _ = np.array([over_tasks(of) for of in by_task.to_numpy()]).T
            at = by_task.index + (i - len(methods) / 2) * 0.003  # side by side
            right.errorbar(at, mean, mean - low, color=color, marker="o", ms=3, ls="none", label=method)
    right.set(xlabel="runs, as a share of the grid's", ylabel="regret (score)", xticks=rows["share"].unique())
    right.legend(fontsize=6, loc="best" if few else "upper center")
    save(figure, path)


def tasks_of_atlas(runs):
    """Step 1 of the atlas: its runs with their scores on scale B, and the names of the tasks that count for A6."""
    atlas = experiment.load("atlas")
    if atlas.tasks() is None:
        arguments.fail("--tasks atlas: expected results/atlas/budgets.csv, which its pilots give")
    runs = experiment.runs_of(atlas, runs)
    return atlas.step_1(runs), [catalog.task_name(task.name) for task in atlas.atlas(runs)[1]]


def main(args):
    runs = reading.load(args.dataset)
    table = known = prior.known_runs(runs)
    table, method, prefix = table[table["total_timesteps"].isin(args.steps)], ADVISE, ""
    searches = {ADVISE: table}
    if args.tasks == "atlas":
        step_1, counted = tasks_of_atlas(runs)
        searches = {ADVISE: known, OF_ATLAS: pd.concat([known, step_1])}
        table, method, prefix = step_1[step_1["game"].isin(counted)], OF_ATLAS, "atlas_"
    elif not any(problems(table)):
        arguments.fail(f"--steps {' '.join(map(str, args.steps))}: expected a budget of results/map")
    rows = replay(table, args.replays, args.seed, searches, args.tasks)
    regret, reliable, right = regrets(rows, method), reliability(rows, method), brier(rows, method)
    print(*(made.round(3).to_string(index=False) for made in (regret, reliable, right)), sep="\n")
    with arguments.writable("out", args.out):
        for name, made in (
            ("replays", rows),
            ("regret", regret.round(4)),
            ("reliability", reliable.round(4)),
            ("brier", right.round(4)),
        ):
            experiment.write_csv(made, args.out / f"{prefix}{name}.csv")
        draw(rows, reliable, args.out / f"{prefix}reliability", method)


if __name__ == "__main__":
    main(parse_args(sys.argv[1:]))
