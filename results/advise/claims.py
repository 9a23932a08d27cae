"""Does a quarter of the steps find a good N x T? What scripts/advise.py recommended, against the exhaustive grid."""

import csv
import itertools

import numpy as np
from analysis.claims import Claims
from analysis.comparisons import halves, judge
from analysis.drawing import facets
from analysis.estimates import SEED, nothing, resampled
from analysis.experiment import REPS, SMALLEST_EFFECT
from analysis.scores import NoScores

VARIES = ("num_envs", "num_steps", "learning_rate")
FIXED = {}
ALSO = ("shape", "schedule")  # more seeds of some settings
STEPS = 1024  # N x T of all
TASKS = ["Acrobot-v1", "MiniGrid-DoorKey-5x5"]


def picks(view):
    """For each task the places in `view.configs` of what the searches recommend: arrays (searches,)."""
    found = {task: [] for task in view.tasks}
    with open(view.folder / "searches.csv") as file:
        for row in csv.DictReader(file):
            if row["game"] in found:
                setting = view.first(**{name: float(row[name]) for name in VARIES})
                if setting is None:
                    raise NoScores("{num_envs}×{num_steps} at {learning_rate}, which a search recommends".format(**row))
                found[row["game"]].append(view.configs.index(setting))
    return [np.array(places) for places in found.values()]


def regret(view):
    numbers, rates = ({config[name] for config in view.configs} for name in ("num_envs", "learning_rate"))
    for number, rate in itertools.product(sorted(numbers), sorted(rates)):  # the best of a grid with a hole is another
        if not view.where(num_envs=number, learning_rate=rate):
            raise NoScores(f"{number}×{STEPS // number} at {rate:g}")
    samples = [view.sample(config) for config in view.configs]
    return judge_choice(samples, picks(view), SMALLEST_EFFECT, REPS)


def judge_choice(samples, picks, margin, reps):
    """The Tested of: what a search picks is less than `margin` below the best setting of the grid, mean over tasks.

    samples: one per setting, a list with one array (seeds,) per task. picks: one array per task, (searches,), of the
    indices of the settings that were picked; searches are drawn as seeds are. The best setting of a task is chosen by
    half of the seeds, and the other half test it: the best of many by the same seeds is partly luck.
    """
    choosing, testing = halves(samples)
    if min(x.shape[-1] for sample in choosing for x in sample) < 1:
        return judge(nothing("half of the seeds choose: expected two or more"), "not less", margin)
    best = [int(np.argmax([sample[task].mean() for sample in choosing])) for task in range(len(picks))]

    def regret(*drawn):
        *settings, picked = drawn
        by_task = []
        for task, places in enumerate(picked):
            means = np.stack([setting[task].mean(-1) for setting in settings])
            found = np.take_along_axis(means, np.moveaxis(places, -1, 0), 0).mean(0)
            by_task.append(found - means[best[task]])
        return np.mean(by_task, axis=0)

    return judge(resampled(regret, [*testing, picks], reps, unit=SEED), "not less", margin)


def claims(scores):
    found = Claims(scores)
    text = f"the recommended cell is less than {SMALLEST_EFFECT} below the best cell of the grid"
    quantity = "score, the recommended cells minus the cell that half of the grid's seeds choose"
    for name, tasks in (("V1", TASKS), ("V2", TASKS[:1]), ("V3", TASKS[1:])):
        found.add(
            text, regret, scores.configs, name=name, primary=name == "V1", tasks=tasks, by_task=False, quantity=quantity
        )
    return found


def draw(scores):
    numbers = sorted({config["num_envs"] for config in scores.configs})
    rates = sorted({config["learning_rate"] for config in scores.configs})
    rows = {f"rate {rate:g}": [scores.first(num_envs=n, learning_rate=rate) for n in numbers] for rate in rates}
    labels = [f"{n}×{STEPS // n}" for n in numbers]
    return facets(
        scores.in_tasks(TASKS), rows, labels, "environments × steps (N × T)", "The exhaustive grid, 100,000 steps"
    )
