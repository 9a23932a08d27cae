"""What was looked for in the atlas after its runs: page.py writes it into the page as a table.

Scores are of scale R, a number per task, Student's t over the tasks that count. "Left out" means that two seeds of step
1 choose and the third judges, in turn. Some fifteen contrasts were looked at, so a p-value of 0.005 is strong and not
conclusive. The second look (results/CLAIMS.md) asks the same of fresh seeds.
"""

import numpy as np

from results.atlas import claims as atlas

FEW, MIDDLE, MANY = atlas.N_BY_TS  # 8 x 128, 32 x 32, 128 x 8
BY_BUDGET = {50_000: 8e-3, 150_000: 4e-3, 450_000: 2e-3, 900_000: 1e-3}  # 8 x 128's rates, of the pages until November
FIXED = 2e-3
FIXED_BEST = "best of three at 0.002"  # a column of by_budget.csv
USUAL = atlas.RATES[2:6]  # 1e-3 to 8e-3


class Both:
    """A task with the scores of step 1, {(N, T, rate): (3,)}, and of step 2; `runs` are its rows of step 1."""

    def __init__(self, runs, task):
        self.task, self.settings, self.later = task, task.settings, task.scores
        first = atlas.returns_of(runs, task.name, atlas.CHOOSING)
        training = atlas.returns_of(runs, task.name, atlas.CHOOSING, "episodic_return")
        zero, one = atlas.scale_of(task.name, task.settings.top)
        self.scores = {setting: (values - zero) / (one - zero) for setting, values in first.items()}
        self.training = training

    def at(self, n_by_t, rate):
        """The mean score of a setting in step 1."""
        return self.scores[(*n_by_t, rate)].mean()

    def left_out(self, number):
        """The mean of number(chosen from two seeds, {setting: score of the third}) over the three seeds."""
        found = []
        for seed in range(3):
            means = {setting: np.delete(values, seed).mean() for setting, values in self.scores.items()}
            found.append(number(atlas.chosen(means), {setting: x[seed] for setting, x in self.scores.items()}))
        return np.mean(found)

    def raised(self):
        """FIXED minus the default, 2.5e-4, at 8 x 128."""
        return self.at(FEW, FIXED) - self.at(FEW, atlas.RATES[0])

    def tuned_on_top(self, n_by_t=FEW):
        """Tuning the rate for the task minus FIXED: the mean of step 2's tuned score and of the left-out one."""
        later = self.later[self.settings.tuned[n_by_t]].mean() - self.at(n_by_t, FIXED)
        return (later + self.left_out(lambda best, of: of[best[0][n_by_t]] - of[(*n_by_t, FIXED)])) / 2

    def a1(self, default):
        """A1 if the default were another rate: the mean of step 2's and of the left-out one."""

        def number(best, of):
            tuned, everything = best[0][FEW], best[1]
            return of[tuned] - of[(*FEW, default)] - (of[everything] - of[tuned])

        tuned, everything = (self.later[x].mean() for x in (self.settings.tuned[FEW], self.settings.best))
        later = tuned - self.at(FEW, default) - (everything - tuned)
        return (later + self.left_out(number)) / 2

    def few_minus_many(self, rates=atlas.RATES):
        return np.mean([self.at(FEW, rate) - self.at(MANY, rate) for rate in rates])

    def best_of_three(self, rate=None):
        """Of step 1's seeds at 8 x 128 and a rate, that of the budget: the best in training minus their mean."""
        setting = (*FEW, rate or BY_BUDGET[self.task.budget])
        kept = int(np.argmax(np.nan_to_num(self.training[setting], nan=-np.inf)))
        return self.scores[setting][kept] - self.scores[setting].mean()


def both_steps(every, runs):
    """A Both of each of all Tasks that counts."""
    return [Both(runs, task) for task in every if task.learned and not task.solved]


def rows(every, runs):
    """(what, its number on each task) of the table."""
    tasks = both_steps(every, runs)
    short, long = ([x for x in tasks if (x.task.budget < 300_000) == is_short] for is_short in (True, False))
    yield (
        "8 x 128 at 2e-3, for all tasks, minus at 2.5e-4",
        [x.at(FEW, FIXED) - x.at(FEW, atlas.RATES[0]) for x in tasks],
    )
    yield "tuning the rate of 8 x 128 for each task, beyond 2e-3", [x.tuned_on_top() for x in tasks]
    for default in (5e-4, 1e-3, 2e-3, 4e-3):
        yield f"A1, if the default were {default:.0e}".replace("e-0", "e-"), [x.a1(default) for x in tasks]
    yield "8 x 128 minus 32 x 32, both at 2e-3", [x.at(FEW, FIXED) - x.at(MIDDLE, FIXED) for x in tasks]
    rule = [x.at(FEW, BY_BUDGET[x.task.budget]) - x.at(FEW, FIXED) for x in tasks]
    yield "8 x 128 at 8e-3 to 1e-3 by budget minus at 2e-3", rule
    yield "8 x 128 minus 128 x 8 at one rate, mean of seven rates", [x.few_minus_many() for x in tasks]
    yield "the same, 1e-3 to 8e-3, budgets up to 150,000", [x.few_minus_many(USUAL) for x in short]
    yield "the same, budgets of 450,000 and more", [x.few_minus_many(USUAL) for x in long]
    yield "the best network of three seeds minus one run", [x.best_of_three() for x in tasks]


def by_budget(every, runs):
    """A row for each budget: mean scores of 8 x 128 over its tasks, and of the best of three seeds at 2e-3."""
    for budget in atlas.BUDGETS:
        tasks = [x for x in both_steps(every, runs) if x.task.budget == budget]
        scores = {f"{rate:g}": np.mean([x.at(FEW, rate) for x in tasks]) for rate in (atlas.RATES[0], FIXED)}
        kept = FIXED_BEST, np.mean([x.at(FEW, FIXED) + x.best_of_three(FIXED) for x in tasks])
        yield {"steps": budget, "tasks": len(tasks), **{name: round(x, 3) for name, x in (*scores.items(), kept)}}
