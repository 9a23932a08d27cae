"""The table of runs that claims are tested on, by setting, task and seed, wherever the runs were read from.

A row is a run: the columns of docs/data.md, those of its setting, and its score. `Scores` takes a table such as
results/runs.csv.gz; suite.py's `Suite` makes one of run directories, and draws their curves.
"""

import copy

import numpy as np

from analysis import training_runs
from analysis.comparisons import needed, share_solved
from analysis.estimates import NO_ESTIMATE, evidence, mean
from support import arguments

SOLVED_OR_NOT = ("MiniGrid-DoorKey-5x5",)  # tasks that a run solves or does not: a mean over runs hides that


def multiple_of(letter, value, base):
    """E.g. "N×2" or "N/2" for a value of N that is twice or half the base's; "" if neither divides the other."""
    if value % base == 0:
        return f"{letter}×{value // base}"
    if base % value == 0:
        return f"{letter}/{base // value}"
    return ""


class NoScores(LookupError):
    """A configuration has no scores in a task."""


class Scores:
    """Scores of runs. `tasks`: those of a sample; `configs`: sorted; `base`: the one that others are compared with.

    `by_task`: whether each claim is followed by the same in each task. `lacking`: the runs, rows of a table, without a
    score that others of their task have: they count as if they were not there.
    """

    by_task = True

    def __init__(self, table, varies, folder=None, base=None):
        """table: a row per run; varies: the columns that tell configurations apart; folder: where other files are.

        base: {column: value} of the base's, or None.
        """
        self.table, self.varies, self.folder = table, tuple(varies), folder
        self.tasks = sorted(table["game"].unique())
        lacks = np.zeros(len(table), bool)
        if "score" in table:
            lacks = (table["score"].isna() & (table.groupby("game")["score"].transform("count") > 0)).to_numpy()
        self.lacking = table[lacks]
        self.take(table[~lacks].to_dict("records"))
        configs = {config for config, _ in self._rows}
        self.configs = sorted(configs, key=lambda config: [(isinstance(x, str), x) for _, x in config.items])
        self.base = self.one(**base) if base else None

    def take(self, rows):
        """Keeps the rows of the table, dicts, by configuration and task, in the order of their seeds."""
        self._rows, names = {}, set(self.varies) - {"num_envs", "num_steps"}
        for row in sorted(rows, key=lambda row: row["seed"]):
            self._rows.setdefault((training_runs.configuration(row, names), row["game"]), []).append(row)

    # ---- values ------------------------------------------------------------------------------------------------------
    def values(self, config, task, column="score"):
        """A number of each run of a configuration in a task, (seeds,). Raises NoScores."""
        if not self.count(config, task):
            raise NoScores(f"{'×'.join(map(str, config.n_by_t))} in {task}")
        return np.array([row[column] for row in self._rows[config, task]], float)

    def sample(self, config, column="score"):
        """A sample (estimates.py): an array (seeds,) per task."""
        return [self.values(config, task, column) for task in self.tasks]

    def count(self, config, task):
        """How many runs of a configuration have a score in a task."""
        return len(self._rows.get((config, task), ()))

    def has(self, config):
        """Whether the configuration has scores in each of the tasks."""
        return all(self.count(config, task) for task in self.tasks)

    def seeds(self, configs):
        """The fewest seeds that one of the configurations has in a task in which it has any; 0 without one."""
        counts = [self.count(config, task) for config in configs for task in self.tasks]
        return min(filter(None, counts), default=0)

    def needs(self, configs):
        """What a verdict on the configurations needs, e.g. "10 seeds"; "" if there is enough."""
        return needed(len(self.tasks), self.seeds(configs))

    # ---- what a claim asks of runs that were read from directories ---------------------------------------------------
    def can_compare(self, configs):
        """Whether there are configurations, and the claims may be tested on them."""
        return bool(configs)

    def any_diverged(self, configs):
        """Whether a run of the configurations has diverged, so that the claims are also tested without such runs."""
        return False

    def margin(self, side, column="score"):
        """What counts as little, for the sides that have a margin; else 0."""
        return 0.0

    def improvement(self, pairs):
        """The Estimate of P(improvement), where the rows of the claims have it."""
        return NO_ESTIMATE

    def reason_to_doubt(self, configs, column="score"):
        """Why the numbers of the configurations decide nothing; "" if they do."""
        return ""

    # ---- some of the configurations, some of the tasks ---------------------------------------------------------------
    def where(self, **values):
        """The configurations with these values, sorted."""
        return [config for config in self.configs if all(config[name] == value for name, value in values.items())]

    def first(self, **values):
        """The first configuration with these values; None without one."""
        return next(iter(self.where(**values)), None)

    def one(self, **values):
        """The only configuration with these values. Ends the program with one line without it."""
        found = self.where(**values)
        if len(found) != 1:
            words = " ".join(f"{name}={value}" for name, value in values.items())
            arguments.fail(f"{words}: expected one configuration, found {len(found)}")
        return found[0]

    def in_tasks(self, tasks):
        """The same scores in some of the tasks."""
        view = copy.copy(self)
        view.tasks = list(tasks)
        return view

    def in_task(self, task):
        return self.in_tasks([task])

    def in_multiples(self, config):
        """N x T in multiples of the base's where one of the two is the base's: N×2, T/4, or else 16×64."""
        (N, T), (base_N, base_T) = config.n_by_t, self.base.n_by_t
        multiple = ""
        if T == base_T and N != base_N:
            multiple = multiple_of("N", N, base_N)
        elif N == base_N and T != base_T:
            multiple = multiple_of("T", T, base_T)
        return multiple or f"{N}×{T}"

    def family(self, name, at=None):
        """The configurations that differ from `at` (the base) at most in one argument, in its order."""
        at = at or self.base
        found = [config for config in self.configs if config.replace(**{name: at[name]}) == at]
        return sorted(found, key=lambda config: config[name])

    def scaled(self, name):
        """{factor: configuration} for N or T times more than the base's, all else equal."""
        base = self.base[name]
        return {config[name] / base: config for config in self.family(name) if config[name] > base}

    def same_batch(self):
        """The configurations with the base's batch size and other arguments, by N."""
        base = self.base
        found = [
            config
            for config in self.configs
            if config.batch_size == base.batch_size and config.others() == base.others()
        ]
        return sorted(found, key=lambda config: config["num_envs"])

    def scaled_alone(self):
        """The configurations that scale N alone or T alone."""
        return list(dict.fromkeys([*self.family("num_envs"), *self.family("num_steps")]))

    # ---- the table ---
    def means(self):
        """A row, a dict, for each configuration and task: the mean score with its 95 % interval, and who solved it."""
        rows = []
        for config in self.configs:
            for task in self.tasks:
                if not self.count(config, task):
                    continue
                scores = self.values(config, task)
                found, solved = evidence(mean, [[scores]]).estimate, ["", "", ""]
                if task in SOLVED_OR_NOT:
                    solved = [f"{x:.2f}" for x in share_solved(scores)]
                rows.append(
                    {
                        "game": task,
                        **{name: config[name] for name in self.varies},
                        "seeds": len(scores),
                        **dict(zip(("mean", "low", "high"), (f"{x:.3f}" for x in found), strict=True)),
                        **dict(zip(("solved", "solved_low", "solved_high"), solved, strict=True)),
                    }
                )
        return rows
