"""Does the rule of scripts/map_rule.py find good settings of tasks that it was not fitted to?"""

import csv

from analysis.comparisons import difference, judge, judge_each, over_each
from analysis.estimates import evidence, several
from analysis.experiment import REPS, SMALLEST_EFFECT, ExperimentClaims

VARIES = ("num_envs", "num_steps", "learning_rate", "total_timesteps")
FIXED = {"minibatch_size": 256}


def predicted(scores):
    """{game: {name of a cell: its configuration}} of predictions.csv."""
    cells = {game: {} for game in scores.games}
    with open(scores.folder / "predictions.csv") as file:
        for row in csv.DictReader(file):
            cells[row["game"]][row["cell"]] = scores.one(**{name: float(row[name]) for name in VARIES})
    return cells


def claims(scores):
    found, cells = ExperimentClaims(scores), predicted(scores)

    def samples(view, name):
        """The scores of a cell in each game: the rule may say another one for each."""
        return [view.in_game(game).sample(cells[game][name])[0] for game in view.games]

    for name, other in (("R1", "default"), ("R2", "constant")):

        def gains(view, other=other):
            return judge(evidence(difference, [samples(view, "predicted"), samples(view, other)], REPS), "more")

        text = {"default": "the script's default", "constant": "the best constant cell of the other tasks"}[other]
        found.add(name, f"the predicted cell beats {text}", gains, scores.configs, primary=True)

    def level(view):
        names = [name for name in cells[view.games[0]] if name != "predicted"]
        every = [samples(view, name) for name in ("predicted", *names) if all(name in cells[g] for g in view.games)]
        return judge_each(several(over_each, every, REPS), "not less", SMALLEST_EFFECT)

    text = f"no cell that was tried is more than {SMALLEST_EFFECT} above the predicted one"
    for game in scores.games:
        found.add("R3", text, level, scores.configs, games=[game], by_game=False)
    return found
