"""How often each kind of claim is wrong, and how often it finds what is there: simulated sweeps with known answers.

    python results/calibration/calibration.py                   # the table of README.md, ten minutes of one core
    python results/calibration/calibration.py --kinds "best of" # the kinds whose name has these words

Every kind of claim that a program of this repository tests is tried with its own functions, on scores that are drawn
from results/runs.csv.gz. In a null all configurations of a task get their scores from one common pool:
all runs of an experiment in that task, or those of one of its configurations, which each simulated sweep chooses anew.
Of ten tasks with five seeds or more the tasks are the unit (estimates.unit_of). There is also a null in which tasks
differ: in each of ten one configuration is better or worse by a number of its own, and by nothing in the mean.
A claim with a margin is tried where the truth lies exactly at the margin, so that no verdict is right. The numbers
are, for 3, 5, 10 and 20 seeds, the shares of simulated sweeps in which the claim is *supported* / *contradicted*, in
percent, the largest over the pools. 2.5 on each side is nominal.

Power, with ten seeds: the share that supports a claim which is true by 0.1 and by 0.2 of a score (of one with a margin:
by so much from the margin; of a correlation: of the range of the quantity), the mean over the pools and their range.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import Tuple

import numpy as np
import pandas as pd
from analysis import comparisons, experiment
from analysis.comparisons import judge
from analysis.estimates import (
    ALPHA,
    CONTRADICTED,
    SUPPORTED,
    UNDECIDED,
    bootstrap,
    distribution,
    mean,
    p_values,
)
from umap_coverage import slope_against_log2

from support import arguments
from support.arguments import Count, Seed

SEEDS = (3, 5, 10, 20)
EFFECTS = (0.1, 0.2)
CHUNK = 50  # sweeps that are simulated at once
LEVELS = (4, 8, 16, 32, 64, 128, 256)  # N of the seven configurations of the study `shape`
MARGIN = 0.05  # in results/
SPREAD = 0.2  # standard deviation over tasks of a difference
SHARE = 0.1  # share of the base's score: the margin in the papers' figures
EXPERIMENTS = {  # whose runs are drawn from, and the columns that tell their settings apart
    "shape": ("num_envs", "num_steps", "learning_rate"),
    "masks": ("num_envs", "num_steps", "mask_resets"),
    "outer_loop": ("num_envs", "minibatch_size", "learning_rate"),
    "trend": ("num_envs", "minibatch_size"),
    "schedule": ("num_envs", "num_steps", "schedule"),
    "switch": ("com_before", "prox_com"),
    "data_reuse": ("num_envs", "num_steps", "update_epochs"),
}
DIAGNOSTICS = ("feature_rank", "weight_norm", "gradient_kurtosis", "policy_variance", "ess")  # no one has dormant units


@dataclass
class Args:
    kinds: Tuple[str, ...] = ()  # words: the kinds whose name has one of them; all if empty
    simulations: Count = 1000  # simulated sweeps for each number
    reps: Count = 400  # points of the distribution that a verdict rests on
    seed: Seed = 0  # seeds all draws


# ---- pools of scores -------------------------------------------------------------------------------------------------
def read_rows(name):
    """{task: {setting: its rows}} of the runs of one of EXPERIMENTS, sorted as text."""
    varies, found = EXPERIMENTS[name], defaultdict(dict)
    runs = experiment.read_dataset(experiment.DATASET)
    runs = runs[[name in words.split() for words in runs["experiment"]]]
    runs = runs.sort_values(["game", "seed", *varies], key=lambda column: column.astype(str).where(column != ""))
    for (task, *config), rows in runs.groupby(["game", *varies], sort=False):
        found[task][tuple(config)] = rows
    return found


def read_pools():
    """{name: function(rng) -> one array of scores per task}."""
    settings = {}
    for name in EXPERIMENTS:
        settings[name] = [
            [rows["score"].to_numpy() for rows in of_task.values()] for _, of_task in sorted(read_rows(name).items())
        ]
    pools = {}
    for name, tasks in settings.items():
        pools[name] = lambda rng, tasks=tasks: [np.concatenate(task) for task in tasks]
        pools[f"{name}, settings"] = lambda rng, tasks=tasks: [task[rng.randint(len(task))] for task in tasks]
    every = [task for tasks in settings.values() for task in tasks]

    def some(rng, count):
        """A configuration of each of so many tasks, whichever experiment they are of."""
        chosen = [every[i] for i in rng.randint(len(every), size=count)]
        return [task[rng.randint(len(task))] for task in chosen]

    return {**pools, "one task": partial(some, count=1), "ten tasks": partial(some, count=10)}


class Trials:
    """Simulated sweeps, `size` at once. `pools`: of each sweep the scores of each task, from which all of its
    configurations draw their own."""

    def __init__(self, rng, pools, seeds, reps):
        self.rng, self.pools, self.seeds, self.reps, self.size = rng, pools, seeds, reps, len(pools)
        self.scores, self.starts, self.lengths = [], [], []
        for of_task in zip(*pools):
            self.scores.append(np.concatenate(of_task))
            self.lengths.append(np.array([[len(scores)] for scores in of_task]))
            self.starts.append(self.lengths[-1].cumsum()[:, None] - self.lengths[-1])

    def sample(self, shift=0.0):
        """The scores of a configuration, shifted: one array (size, seeds) per task. shift: a number, or (size, 1)
        of all tasks, or (tasks, size, 1)."""
        shifts = np.broadcast_to(shift, (len(self.scores), *np.shape(shift)[-2:]))
        return [
            scores[start + (self.rng.random_sample((self.size, self.seeds)) * length).astype(int)] + own
            for scores, start, length, own in zip(self.scores, self.starts, self.lengths, shifts)
        ]

    def samples(self, *shifts):
        return [self.sample(shift) for shift in shifts]

    def draws(self, statistic, samples):
        """The draws of a verdict, (…, size, reps): Student's t, as in estimates.evidence."""
        return distribution(statistic, samples, self.reps)[1]

    def judge(self, statistic, samples, side="more", margin=0.0):
        """The verdicts of comparisons.judge, (size,) words. margin: a number, or (size, 1)."""
        return words(*p_values(self.draws(statistic, samples), side, margin))

    def judge_table(self, statistic, samples, side="more", margin=0.0):
        """The verdicts of comparisons.judge_each and judge_maxima, of a statistic (rows, columns, …)."""
        return words(*comparisons.table_chances(self.draws(statistic, samples), side, margin))

    def each(self, verdict, *samples):
        """The verdicts of a function of the samples of one sweep, (size,) words."""
        return [verdict(*([[x[i] for x in sample] for sample in samples])) for i in range(self.size)]


def words(holds, fails):
    """Verdicts, (size,), of the p-values of the claims and of their opposites."""
    return np.where(holds < ALPHA, SUPPORTED, np.where(fails < ALPHA, CONTRADICTED, UNDECIDED))


# ---- kinds of claims: functions (trials, effect) -> verdicts ---------------------------------------------------------
def difference(trials, effect):
    return trials.judge(comparisons.difference, trials.samples(effect, 0))


def difference_where_tasks_differ(trials, effect):
    """The true differences of the tasks are normal around `effect`: with 0 none on tasks of this kind is right."""
    own = trials.rng.normal(effect, SPREAD, (len(trials.scores), trials.size, 1))
    return trials.judge(comparisons.difference, trials.samples(own, 0))


def gain_difference(trials, effect):
    return trials.judge(comparisons.gain_difference, trials.samples(effect, 0, 0, 0))


def not_less_than_base(trials, effect, side="not less"):
    """With the margin of the papers' figures, a share of the base's score as it is measured."""
    true = SHARE * np.array([[np.mean([scores.mean() for scores in pool])] for pool in trials.pools])
    shift = effect - true if side == "not less" else np.maximum(0.0, true - effect)
    other, base = trials.samples(shift, 0)
    return trials.judge(comparisons.difference, [other, base], side, SHARE * np.abs(mean(base))[:, None])


def little(trials, effect):
    """Power: of no difference at all, where the margin is smaller than the effect."""
    return not_less_than_base(trials, effect, "little")


def each_of(trials, effect, number):
    return trials.judge_table(comparisons.table_of(1), trials.samples(effect, *[0] * number))


def best_flat(trials, effect):
    """Four rates and six, all equal."""
    return trials.judge_table(comparisons.table_of(4), trials.samples(*[effect] * 4, *[0] * 6))


def best_peaked(trials, effect):
    """One good rate of four, and four equal ones."""
    return trials.judge_table(comparisons.table_of(4), trials.samples(effect, *[effect - 0.3] * 3, *[0] * 4))


def best_of_peaks(trials, effect):
    """Five rates each; the scores fall by 0.15 a step from the best one."""
    falls = -0.15 * np.abs(np.arange(5) - 2)
    return trials.judge_table(comparisons.table_of(5), trials.samples(*falls + effect, *falls))


def best_n_by_t_stays(trials, effect):
    """Seven N x T at four rates. The first is clearly the best at the default; the others pass it at the next one."""
    first = trials.samples(-0.5, effect - MARGIN, effect - MARGIN - 0.2, -0.5)
    others = [sample for _ in range(6) for sample in trials.samples(-0.5, -0.6, 0, -0.5)]

    def verdict(*samples):
        grid = {place: dict(zip((1, 2, 4, 8), samples[4 * place : 4 * place + 4])) for place in range(7)}
        return comparisons.judge_default(grid, 2, MARGIN).verdict

    return trials.each(verdict, *first, *others)


def search(trials, effect):
    """Of 21 settings all but the first are equal; the searches pick the first."""

    def verdict(*settings):
        picks = [np.zeros(trials.seeds, int) for _ in settings[0]]
        return comparisons.judge_choice(settings, picks, MARGIN, trials.reps).verdict

    return trials.each(verdict, *trials.samples(effect - MARGIN, *[0] * 20))


def trend(trials, effect):
    def verdict(*samples):
        groups = [list(of_task) for of_task in zip(*samples)]
        return comparisons.judge_trend(LEVELS, groups, "more").verdict

    return trials.each(verdict, *trials.samples(*effect * np.linspace(0, 1, len(LEVELS))))


def slope(trials, effect):
    """scripts/umap_coverage.py: the least-squares slope against log2 N."""
    return trials.judge(slope_against_log2(LEVELS), trials.samples(*effect * np.linspace(0, 1, len(LEVELS))))


GRID = np.linspace(-1, 1, 7)


def places(trials):
    """log DDR of seven configurations, a factor of ten apart at the ends."""
    shape = trials.size, trials.seeds
    return [[x / 2 + trials.rng.normal(0, 0.02, shape) for _ in trials.scores] for x in GRID]


def inverted_u(trials, effect):
    """Effect: how far both ends of seven configurations are below the top."""
    return trials.judge(comparisons.curvature, [*trials.samples(*-effect * GRID**2), *places(trials)], "less")


def best_place_moves(trials, effect):
    """The best of seven configurations at two budgets: by `effect` the third, and then the fifth."""
    early, late = ([*trials.samples(*effect * (np.arange(7) == top)), *places(trials)] for top in (2, 4))

    def shift(*drawn):
        return comparisons.best_place(*drawn[14:]) - comparisons.best_place(*drawn[:14])

    draws = bootstrap(shift, [*early, *late], trials.reps, left_out=1)  # a place jumps: estimates.resampled
    return words(*p_values(draws, "more", 0.0))


def noise_against_best(trials, effect, tasks=8):
    """The noise scale and the best of four N in each quarter of a run, by the mean return so far; each task's own best
    N is better by `effect`, and the larger the noisier the task is."""
    noise, found = np.arange(tasks)[:, None] + np.linspace(0, 1, 4), []
    for pool in trials.pools:
        best = []
        for task in range(tasks):
            scores = trials.rng.choice(pool[trials.rng.randint(len(pool))], (4, trials.seeds, 4))  # N, seeds, quarters
            scores = scores + effect * (np.arange(4) == task * 4 // tasks)[:, None, None]
            best.append((scores.cumsum(-1) / np.arange(1, 5)).mean(1).argmax(0))
        found.append(comparisons.judge_ranks(noise, np.array(best, float)).verdict)
    return found


# ---- kinds whose data are no scores ----------------------------------------------------------------------------------
class Diagnostics:
    """The runs of the study `shape` at the default rate: each draws its diagnostic from the ten runs of its task that
    are nearest in score, so that it follows the score, and N only through the score."""

    def __init__(self):
        self.tasks = []
        for of_task in read_rows("shape").values():
            rows = pd.concat(of_task.values()).sort_values("score", kind="stable")
            values = {name: rows[name].to_numpy() for name in DIAGNOSTICS}
            default = rows["learning_rate"] == 2.5e-4
            at = [np.flatnonzero(default & (rows["num_envs"] == N)).tolist() for N in LEVELS]
            self.tasks.append((rows["score"].to_numpy(), values, at))

    def __call__(self, trials, effect):
        return [self.verdict(trials, effect) for _ in range(trials.size)]

    def verdict(self, trials, effect):
        name = DIAGNOSTICS[trials.rng.randint(len(DIAGNOSTICS))]
        levels = [[np.full(trials.seeds, N) for N in LEVELS]] * len(self.tasks)
        values, given = [], []
        for scores, of_runs, at in self.tasks:
            size = np.ptp(np.percentile(of_runs[name], [5, 95]))
            values.append([])
            given.append([])
            for place, runs in enumerate(at):
                drawn = trials.rng.choice(runs, trials.seeds)
                near = np.clip(drawn - 5, 0, len(scores) - 11) + trials.rng.randint(10, size=trials.seeds)
                near += near >= drawn  # not its own
                values[-1].append(of_runs[name][near] + effect * size * place / (len(LEVELS) - 1))
                given[-1].append(scores[drawn])
        return judge(comparisons.partial_correlation(levels, values, given), "more").verdict


class Gradients:
    """The squares of bias and gradient of results/gradient_correlation; a seed is a mean over as many policies."""

    def __init__(self):
        table = pd.read_csv(ROOT / "results/gradient_correlation/bias.csv")
        condition = table[(table["T"] == 256) & (table["lambda"] == 1)]
        self.policies = len(condition) // table["seed"].nunique()
        self.logs = np.log(condition["sample_variance"].to_numpy())
        self.rows = {
            key: rows[["bias2", "truth2"]].to_numpy().T for key, rows in table.groupby(["T", "lambda"], sort=False)
        }

    def squares(self, trials, key, shift=0.0):
        """(2, size, seeds) of a condition (T, lambda), its squared bias shifted."""
        rows = self.rows[key]
        places = trials.rng.randint(rows.shape[1], size=(trials.size, trials.seeds, self.policies))
        return rows[:, places].mean(-1) + np.array([shift, 0])[:, None, None]

    def mean(self, trials, effect):
        """The logarithm of a variance: policies of one condition, centred."""
        shape = trials.size, trials.seeds, self.policies
        values = trials.rng.choice(self.logs - self.logs.mean(), shape).mean(-1)
        return trials.judge(mean, [[values + effect]])

    def less_bias(self, trials, effect):
        """Two conditions of equal bias, or the first with a relative bias that is larger by `effect`."""
        bias2, truth2 = self.rows[64, 0.95].mean(-1)
        larger = (np.sqrt(max(bias2, 0) / truth2) + effect) ** 2 * truth2 - bias2 if effect else 0.0
        squares = np.concatenate([self.squares(trials, (64, 0.95), shift) for shift in (larger, 0)])
        return trials.judge(lambda sample: comparisons.bias_difference(sample[0]), [[squares]])


def share(trials, effect):
    """The interval of the share of solved runs: wrong where it lies above or below the true one. It claims nothing."""
    found = []
    for pool, scores in zip(trials.pools, trials.sample()[0]):
        true = float(np.mean(pool[0] >= comparisons.SOLVED))
        _, low, high = comparisons.share_solved(scores)
        found.append(SUPPORTED if low > true else CONTRADICTED if high < true else UNDECIDED)
    return found


SOME = ["shape", "masks", "outer_loop, settings", "trend, settings"]
TWO = ["shape", "outer_loop, settings"]
TASKS = ["one task", "shape", "ten tasks"]
gradients = Gradients()
KINDS = {  # name: (function, pools). A claim "not below by 0.05" is a difference whose null is shifted: the same row
    "difference of means, not below by 0.05": (difference, [*SOME, "one task", "ten tasks"]),
    "difference of means, ten tasks that differ": (difference_where_tasks_differ, ["ten tasks"]),
    "difference of gains": (gain_difference, [*SOME, "one task", "ten tasks"]),
    "not below by a tenth of the base": (not_less_than_base, TASKS),
    "changes little, a tenth of the base": (little, TASKS),
    "beats each of three": (partial(each_of, number=3), SOME),
    "beats each of six": (partial(each_of, number=6), TWO),
    "own best rate: all rates equal, 4 and 6": (best_flat, TWO),
    "own best rate: one good rate, and four": (best_peaked, SOME),
    "own best rate: both fall from a best": (best_of_peaks, TWO),
    "the best N x T at the default rate stays": (best_n_by_t_stays, TWO),
    "regret of a search below 0.05": (search, TWO),
    "trend in N (tau, no turning back)": (trend, ["shape", "one task"]),
    "slope against log2 N": (slope, [*TWO, "one task"]),
    "inverted U": (inverted_u, [*TWO, "one task"]),
    "the best place moves": (best_place_moves, TWO),
    "rank correlation over 3 tasks": (partial(noise_against_best, tasks=3), ["shape"]),
    "rank correlation over 8 tasks": (noise_against_best, ["shape"]),
    "partial correlation given the score": (Diagnostics(), ["shape"]),
    "mean of a logarithm (gradients)": (gradients.mean, ["shape"]),
    "less bias of the gradient": (gradients.less_bias, ["shape"]),
    "interval of the share of solved runs": (share, ["one task"]),
}


def rates(kind, pool, seeds, effect, args):
    """(supported, contradicted) in percent of the simulated sweeps."""
    rng, found = np.random.RandomState(args.seed), []
    while len(found) < args.simulations:
        pools = [pool(rng) for _ in range(min(CHUNK, args.simulations - len(found)))]
        found += list(kind(Trials(rng, pools, seeds, args.reps), effect))
    return np.array([100 * np.mean([word == one for word in found]) for one in (SUPPORTED, CONTRADICTED)])


def parse_args(argv):
    """Returns checked Args; exits 2 with one line on bad input."""
    return arguments.parse(Args, argv, __doc__)


def main(args):
    pools = read_pools()
    print("| kind | wrong with 3 seeds | 5 | 10 | 20 | finds 0.1 | finds 0.2 |\n|---|---|---|---|---|---|---|")
    for name, (kind, names) in KINDS.items():
        if args.kinds and not any(word in name for word in args.kinds):
            continue
        row = []
        for seeds in SEEDS:
            worst = np.max([rates(kind, pools[pool], seeds, 0.0, args) for pool in names], axis=0)
            row.append("{:.1f} / {:.1f}".format(*worst))
        for effect in EFFECTS:
            if kind is share:
                row.append("")
                continue
            found = [rates(kind, pools[pool], 10, effect, args)[0] for pool in names]
            spread = f" ({min(found):.0f} to {max(found):.0f})" if len(found) > 1 else ""
            row.append(f"{np.mean(found):.0f}{spread}")
        print(f"| {name} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main(parse_args(sys.argv[1:]))
