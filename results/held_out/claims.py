"""Does the rule of results/held_out/map_rule.py find good settings of tasks that it was not fitted to?"""

import csv

from analysis.claims import Claims
from analysis.comparisons import difference, judge, judge_each, over_each
from analysis.estimates import evidence, several
from analysis.experiment import SMALLEST_EFFECT

VARIES = ("num_envs", "num_steps", "learning_rate", "total_timesteps")
FIXED = {"minibatch_size": 256}
SHORT = 100_000  # the budget of the first predictions
WORDS = {"default": "the script's default", "constant": "the best constant cell of the other tasks"}


def predicted(scores):
    """{budget: {task: {name: configuration}}} of predictions.csv, of the budgets whose settings have all run."""
    with open(scores.folder / "predictions.csv") as file:
        rows = list(csv.DictReader(file))
    found = {}
    for budget in sorted({int(row["total_timesteps"]) for row in rows}):
        own = [row for row in rows if int(row["total_timesteps"]) == budget]
        settings = {task: {} for task in scores.tasks}
        for row in own:
            for config in scores.where(**{name: float(row[name]) for name in VARIES}):
                if scores.in_task(row["game"]).has(config):
                    settings[row["game"]][row["cell"]] = config
        if sum(map(len, settings.values())) == len(own):
            found[budget] = settings
    return found


def claims(scores):
    found = Claims(scores)
    for budget, settings in predicted(scores).items():
        names, where = (("R1", "R2", "R3"), "") if budget == SHORT else (("R4", "R5", "R6"), f", {budget:,} steps")
        _add(found, scores, settings, names, where, budget)
    return found


def _add(found, scores, settings, names, where, budget):
    """Adds the three claims on the settings of one budget, the first two primary at SHORT."""
    configs = scores.where(total_timesteps=budget)

    def samples(view, name):
        """The scores of a setting in each task: the rule may say another one for each."""
        return [view.in_task(task).sample(settings[task][name])[0] for task in view.tasks]

    for name, (other, words) in zip(names, WORDS.items()):

        def gains(view, other=other):
            return judge(evidence(difference, [samples(view, "predicted"), samples(view, other)]), "more")

        found.add(f"the predicted cell beats {words}{where}", gains, configs, name=name, primary=budget == SHORT)

    def none_is_better(view):
        others = [name for name in settings[view.tasks[0]] if name != "predicted"]
        every = [samples(view, name) for name in ("predicted", *others) if all(name in settings[g] for g in view.tasks)]
        return judge_each(several(over_each, every), "not less", SMALLEST_EFFECT)

    text = f"no cell that was tried is more than {SMALLEST_EFFECT} above the predicted one{where}"
    for task in scores.tasks:
        found.add(text, none_is_better, configs, name=names[2], tasks=[task], by_task=False)
