"""Over forty tasks: what does tuning the learning rate buy, and what does tuning N x T buy beside it? A1 to A6.

The design, its constants, and what step 1 has chosen are here too: the runs were made from them. The unit of every
test is the task: a task's number is made of means over the seeds of step 2.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from analysis.claims import ESTIMATE, SECONDARY, Claims
from analysis.comparisons import Tested, difference, judge
from analysis.estimates import (
    ALPHA,
    SUPPORTED,
    UNDECIDED,
    Estimate,
    bootstrap,
    evidence,
    mean,
    nothing,
    percentile_interval,
    verdict,
)
from analysis.experiment import REPS
from analysis.look import BLUE, PAGE, SKY, plt
from scipy import optimize, stats

from support import catalog
from support.arguments import fail

HERE = Path(__file__).resolve().parent
VARIES = ("num_envs", "num_steps", "learning_rate", "total_timesteps")
FIXED = {"minibatch_size": 256, "update_epochs": 4}

N_BY_TS = ((8, 128), (32, 32), (128, 8))
RATES = tuple(2.5e-4 * 2**k for k in range(7))
DEFAULT, MANY, CONSTANT = (8, 128, 2.5e-4), (128, 8, 2.5e-4), (32, 32, 2e-3)  # N, T and learning rate
BUDGETS = (50_000, 150_000, 450_000, 900_000)
PILOT_SEEDS, CHOOSING, TESTING, REPEATING = (1001, 1002), range(1, 4), range(101, 111), range(201, 211)
FEWEST = 6  # judging seeds, if hours are short
SOLVED, EQUAL = 0.95, 0.05  # the score from which a setting has solved a task; the margin of "about equal"
ERRORS = 3  # standard errors above random play from which a setting has learned something


# ---- tables ----------------------------------------------------------------------------------------------------------
def table_of(name):
    """A CSV of this folder; None before it is there."""
    path = HERE / name
    return pd.read_csv(path) if path.exists() else None


def rows(folder):
    """The runs of all blocks, one dict each: for the table of all runs, once every task has run."""
    for path in sorted((folder / "blocks").glob("*.csv")) if all_have_run() else ():
        yield from pd.read_csv(path, dtype={"start": str, "commit": str}).to_dict("records")


def all_have_run():
    """Whether both steps of every task are in its block, step 2 with FEWEST seeds or more."""
    return tasks() is not None and all(map(has_run, tasks()))


def has_run(task):
    block = table_of(f"blocks/{task}.csv")
    chosen_from = {} if block is None else returns_of(block, task, CHOOSING)
    if [len(values) for values in chosen_from.values()].count(len(CHOOSING)) < len(N_BY_TS) * len(RATES):
        return False
    tested = returns_of(block, task, TESTING)
    return all(len(tested.get(setting, ())) >= FEWEST for setting in settings_of(chosen_from).tested)


def random_play():
    """random.csv by task: of 1,000 random episodes mean return, deviation, length, and rewards before the last step."""
    return table_of("random.csv").set_index("task")


def tasks():
    """{task: its budget}, in the order in which they run: a task of each family in turn; None before all have one."""
    budgets, failed = table_of("budgets.csv"), table_of("left_out.csv")
    if budgets is None:
        return None
    found = budgets[budgets["rises"] & ~budgets["task"].isin([] if failed is None else failed["task"])]
    found = found.iloc[np.argsort(found.groupby("family", sort=False).cumcount(), kind="stable")]
    return dict(zip(found["task"], found["budget"].astype(int)))


# ---- step 1 ----------------------------------------------------------------------------------------------------------
def chosen(means, rates=RATES):
    """({N x T: its best setting}, the best of all), by {(N, T, rate): mean return}; of equal ones the lower rate."""
    best = {n_by_t: max(((*n_by_t, rate) for rate in rates), key=lambda setting: means[setting]) for n_by_t in N_BY_TS}
    return best, max(best.values(), key=lambda setting: means[setting])


def require(returns, settings, words):
    """Ends the program with one line if one of some settings has no returns. words: of what."""
    lacking = [setting for setting in settings if setting not in returns]
    if lacking:
        fail(f"atlas: {words} has no runs of {lacking[0]} (N, T, rate): expected runs of all settings")


class Settings(NamedTuple):
    """What step 1 has chosen for a task, each (N, T, rate), and its best mean return."""

    tuned: dict  # {N x T: at its best rate}
    best: tuple  # of all
    at_default: tuple  # the best N x T at the default rate
    top: float

    @property
    def tested(self):
        """The settings that step 2 tests: six, and the best N x T at the default rate where it is another."""
        return list(dict.fromkeys([*self.tuned.values(), DEFAULT, MANY, CONSTANT, self.at_default]))


def settings_of(returns, task=""):
    """The Settings of a task by the final returns of step 1, {(N, T, rate): array (seeds,)}.

    Ends the program with one line where a setting has no runs.
    """
    require(returns, [(*n_by_t, rate) for n_by_t in N_BY_TS for rate in RATES], f"step 1 of {task}")
    means = {setting: float(np.mean(values)) for setting, values in returns.items()}
    tuned, best = chosen(means)
    return Settings(tuned, best, chosen(means, RATES[:1])[1], means[best])


def returns_of(runs, task, seeds, column="final_return"):
    """{(N, T, rate): the returns (seeds,) of some seeds of a task}, those of diverged runs as random play."""
    own = runs[(runs["env_id"] == task) & runs["seed"].isin(seeds)].sort_values("seed")
    values = own[column].where(own["state"] != "diverged").fillna(random_play().loc[task, "random"])
    columns = [own[name] for name in ("num_envs", "num_steps", "learning_rate")]
    return {(int(n), int(t), rate): of.to_numpy(float) for (n, t, rate), of in values.groupby(columns)}


# ---- step 2: a task's numbers ----------------------------------------------------------------------------------------
class Task(NamedTuple):
    """What a task has shown. Scores are arrays (seeds,) by (N, T, rate)."""

    name: str
    budget: int
    settings: Settings
    scores: dict
    learned: bool
    solved: bool

    def tuned(self, n_by_t):
        return self.scores[self.settings.tuned[n_by_t]]

    def difference(self, first, second):
        """The mean of the first scores minus that of the second, and the variance of its error."""
        value = first.mean() - second.mean()
        return value, first.var(ddof=1) / len(first) + second.var(ddof=1) / len(second)


def scale_of(task, top, references=True):
    """The returns that score 0 and 1 on a task. top: the best mean of step 1; references: scale R, else B."""
    known = catalog.small_table().get(catalog.task_name(task)) if references else None
    return known or (random_play().loc[task, "random"], top)


def measure(runs, task, budget, references=True, column="final_return", seeds=TESTING):
    """The Task of a name. references: 1 is the reference of small_worlds.csv where there is one (scale R; else B)."""
    play, settings = random_play().loc[task], settings_of(returns_of(runs, task, CHOOSING), task)
    zero, one = scale_of(task, settings.top, references)
    returns = returns_of(runs, task, seeds, column)
    require(returns, settings.tested, f"step 2 of {task}")
    error = play["deviation"] / 1000**0.5
    learned = any(
        values.mean() - play["random"] > ERRORS * np.hypot(values.std(ddof=1) / len(values) ** 0.5, error)
        for values in returns.values()
    )
    scores = {setting: (values - zero) / ((one - zero) or np.nan) for setting, values in returns.items()}
    solved = all(scores[setting].mean() >= SOLVED for setting in settings.tested)
    return Task(task, budget, settings, scores, learned, solved)


def atlas(runs, references=True, column="final_return"):
    """All Tasks, and those that count: by their final returns on scale R learned, and not solved by every setting."""
    every = [measure(runs, task, budget, references, column) for task, budget in tasks().items()]
    final = [measure(runs, task, budget) for task, budget in tasks().items()]
    return every, [task for task, one in zip(every, final, strict=True) if one.learned and not one.solved]


# ---- the claims ------------------------------------------------------------------------------------------------------
def rate_gain(task):
    """What tuning the rate buys at 8 x 128."""
    return task.tuned((8, 128)).mean() - task.scores[DEFAULT].mean()


def n_by_t_gain(task):
    """What tuning N x T buys beside the rate: the setting that step 1 found best minus 8 x 128 at its rate."""
    return task.scores[task.settings.best].mean() - task.tuned((8, 128)).mean()


def many_gain(task):
    """128 x 8 minus 8 x 128, each at its own rate: (difference, variance of its error)."""
    return task.difference(task.tuned((128, 8)), task.tuned((8, 128)))


def constant_gain(task):
    """32 x 32 at 2e-3 minus the default."""
    return task.scores[CONSTANT].mean() - task.scores[DEFAULT].mean()


def over_tasks(values, side="more"):
    """The Tested of one number per task: Student's t."""
    return judge(evidence(mean, [[np.asarray(values, float)]]), side)


def about_equal(values):
    """Whether the 90 % interval of a mean over tasks lies within EQUAL of 0."""
    values = np.asarray(values, float)
    half = stats.t.ppf(0.95, len(values) - 1) * stats.sem(values)
    return bool(abs(values.mean()) + half < EQUAL)


class Heterogeneity(NamedTuple):
    """Random effects of one difference per task: the tasks' true differences are N(mean, tau2)."""

    mean: float
    error: float  # of the mean
    tau2: float  # variance over tasks beyond the seeds' noise
    low: float  # of the prediction interval of a new task's true difference (Higgins et al. 2009)
    high: float


def dersimonian_laird(values, variances):
    """tau^2 by DerSimonian and Laird (1986), as registered. Tasks with little noise decide it."""
    weights = 1 / variances
    fixed = (weights * values).sum() / weights.sum()
    q, scale = (weights * (values - fixed) ** 2).sum(), weights.sum() - (weights**2).sum() / weights.sum()
    return max(0.0, (q - (len(values) - 1)) / scale)


def paule_mandel(values, variances):
    """tau^2 by Paule and Mandel (1982): with it the weighted sum of squares is n - 1, its expectation."""

    def excess(tau2):
        weights = 1 / (variances + tau2)
        return (weights * (values - (weights * values).sum() / weights.sum()) ** 2).sum() - (len(values) - 1)

    return optimize.brentq(excess, 0, np.ptp(values) ** 2 + 1) if excess(0.0) > 0 else 0.0


def heterogeneity(values, variances, tau2_of=dersimonian_laird):
    """The Heterogeneity of differences (n,) with the variances of their errors (n,)."""
    values, variances = np.asarray(values, float), np.maximum(variances, 1e-6)  # two settings without any noise
    tau2 = tau2_of(values, variances)
    weights = 1 / (variances + tau2)
    center, error = (weights * values).sum() / weights.sum(), weights.sum() ** -0.5
    half = stats.t.ppf(0.975, len(values) - 2) * (tau2 + error**2) ** 0.5
    return Heterogeneity(center, error, tau2, center - half, center + half)


def inside_when_left_out(values, variances, tau2_of=dersimonian_laird):
    """How many tasks lie within the prediction interval of the others."""
    found = 0
    for i, value in enumerate(values):
        others = heterogeneity(np.delete(values, i), np.delete(variances, i), tau2_of)
        half = stats.t.ppf(0.975, len(values) - 3) * (others.tau2 + others.error**2 + variances[i]) ** 0.5
        found += abs(value - others.mean) <= half
    return found


def differ(pairs, reps=10_000, seed=0):
    """The p-value of A3: the variance over tasks of a difference, against labels permuted within each task.

    pairs: per task the scores of both settings, (seeds,) each. The mean difference is taken away first, so that what is
    left is exchangeable if all tasks have the same one.
    """
    rng = np.random.default_rng(seed)
    values = np.array([first.mean() - second.mean() for first, second in pairs])
    drawn = []
    for first, second in pairs:
        both = np.concatenate([first - values.mean(), second])
        mixed = rng.permuted(np.tile(both, (reps, 1)), axis=1)
        drawn.append(mixed[:, : len(first)].mean(1) - mixed[:, len(first) :].mean(1))
    null = np.var(drawn, axis=0, ddof=1)
    return float((1 + (null >= values.var(ddof=1)).sum()) / (1 + reps))


def agree(of_references, of_best):
    """The Tested on scale R, undecided unless the verdict on scale B is the same."""
    if of_references.verdict == of_best.verdict:
        return of_references
    return of_references.undecided(f"on scale B {of_best.verdict}: {of_best.estimate.value:.3f}")


def known_before(task, runs):
    """{name: what is known of a task before a search}: A5."""
    play = random_play().loc[task.name]
    default = runs[(runs["env_id"] == task.name) & runs["seed"].isin(CHOOSING)]
    for name, value in zip(VARIES, DEFAULT):
        default = default[default[name] == value]
    return {
        "log10 of the length of a random episode": np.log10(play["length"]),
        "random play is paid in the last step only": float(play["early"] == 0),
        "continuous actions": float(task.name in catalog.CONTINUOUS),
        "log10 of the gradient noise scale": np.log10(default["noise_scale"].clip(lower=1).mean()),
    }


def left_out_r2(x, y):
    """R^2 of a line in x, (n,), fitted without the task that it predicts; below 0 if the others' mean is better."""
    rest = np.zeros(len(y))
    for i in range(len(y)):
        others = np.arange(len(y)) != i
        rest[i] = y[i] - np.polyval(np.polyfit(x[others], y[others], 1), x[i])
    of_mean = (y - y.mean()) * len(y) / (len(y) - 1)  # the mean of the others as the prediction
    return float(1 - (rest**2).sum() / (of_mean**2).sum())


def slope(x, y):
    """The Tested of a line's slope, and its R^2 with each task left out in turn."""
    known = np.isfinite(x)
    x, y = x[known], y[known]
    if len(x) < 4 or not np.ptp(x):
        return judge(nothing("the same on all tasks"), "more")
    fit = stats.linregress(x, y)
    half = stats.t.ppf(0.975, len(x) - 2) * fit.stderr
    one = Estimate(fit.slope, fit.slope - half, fit.slope + half)
    chances = (fit.pvalue, 1.0) if fit.slope > 0 else (1.0, fit.pvalue)
    return Tested(one, verdict(one.low, one.high, "more"), chances, remark=f"R2 left out {left_out_r2(x, y):.2f}")


BESIDE = {  # estimates beside the claims: the numbers of the sheet
    "score of the default": lambda task: task.scores[DEFAULT].mean(),
    "score of the best N x T at the default rate": lambda task: task.scores[task.settings.at_default].mean(),
    "score of 8x128 at its tuned rate": lambda task: task.tuned((8, 128)).mean(),
    "score with both tuned": lambda task: task.scores[task.settings.best].mean(),
    "what the rate buys": rate_gain,
    "what N x T buys beside it": n_by_t_gain,
    "score of 32x32 at 2e-3": lambda task: task.scores[CONSTANT].mean(),
    "8x128 at its tuned rate minus 32x32 at 2e-3": lambda task: (
        task.tuned((8, 128)).mean() - task.scores[CONSTANT].mean()
    ),
}


def claims(scores):
    """A1 to A5 as CLAIMS.md registers them; A6 was judged by a program of commit 645d5f2 (results/advise)."""
    found, runs = Claims(scores), scores.table
    counted, of_best = (atlas(runs, references)[1] for references in (True, False))
    area = atlas(runs, column="mean_return")[1]
    names = [catalog.task_name(task.name) for task in counted]
    seeds = min(len(values) for task in counted for values in task.scores.values())

    def add(name, text, tested, family="", **more):
        claim = {"tasks": names, "by_task": False, "primary": not family, "family": family, **more}
        claim |= {"seeds": seeds, "needs": ""}  # Student's t is of the tasks, so it needs no ten seeds
        found.add(text, lambda view: tested, scores.configs, name=name, **claim)

    def gain_of_many(task):
        return many_gain(task)[0]

    def rate_over_n_by_t(task):
        return rate_gain(task) - n_by_t_gain(task)

    values, variances = map(np.array, zip(*(many_gain(task) for task in counted)))
    primary = {
        "A1": ("tuning the rate buys more than tuning N x T beside it", rate_over_n_by_t),
        "A2": ("128x8 beats 8x128, each at its own rate", gain_of_many),
        "A4": ("32x32 at 2e-3 beats the default", constant_gain),
    }
    for name, (text, number) in primary.items():
        numbers = [[number(task) for task in of_scale] for of_scale in (counted, of_best)]
        tested = agree(*map(over_tasks, numbers))
        words = [tested.remark, "about equal" * (name == "A2" and all(map(about_equal, numbers)))]
        low, high = percentile_interval(bootstrap(mean, [[np.array(numbers[0])]], REPS))
        words.append(f"bootstrap over tasks [{low:.3f}, {high:.3f}]")
        add(name, text, tested._replace(remark="; ".join(filter(None, words))))
        test = over_tasks([number(task) for task in area])
        add(name, f"{text}, by the mean return over the training", test, family=ESTIMATE)
    spread, chance = heterogeneity(values, variances), differ([(t.tuned((128, 8)), t.tuned((8, 128))) for t in counted])
    remark = (
        f"a new task: {spread.mean:.3f} [{spread.low:.3f}, {spread.high:.3f}]; "
        f"{inside_when_left_out(values, variances)} of {len(values)} tasks within that of the others"
    )
    word, deviation = SUPPORTED if chance < ALPHA else UNDECIDED, Estimate(spread.tau2**0.5, np.nan, np.nan)
    tested = Tested(deviation, word, (chance, 1.0), remark=remark)
    quantity = "score, standard deviation over tasks"
    add("A3", "tasks differ in 128x8 - 8x128 beyond the seeds' noise", tested, quantity=quantity)
    known = pd.DataFrame([known_before(task, runs) for task in counted])
    for name in known:
        add("A5", f"128x8 - 8x128 depends on: {name}", slope(known[name].to_numpy(), values), family=SECONDARY)
    for name, number in BESIDE.items():
        add("beside", name, over_tasks([number(task) for task in counted])._replace(verdict=UNDECIDED), family=ESTIMATE)
    return found


# ---- the pictures ----------------------------------------------------------------------------------------------------
def draw(scores):
    """scores: what each step gains, and 8 x 128 minus 128 x 8; forest: 128 x 8 minus 8 x 128 of each task."""
    every, counted = atlas(scores.table)
    return {"scores": draw_steps(every, scores.table), "forest": draw_forest(counted)}


def draw_steps(every, runs):
    """Bars with intervals over tasks. What was looked for after the runs is lighter (after.py)."""
    from results.atlas import after  # it imports this module

    tasks = after.both_steps(every, runs)
    gains = {
        "2e-3 for all\nin place of\nthe default 2.5e-4": ([t.raised() for t in tasks], SKY),
        "the rate tuned\nfor each task\non top": ([t.tuned_on_top() for t in tasks], SKY),
        "N×T tuned\non top": ([n_by_t_gain(t.task) for t in tasks], BLUE),
        "the best network\nof three seeds\nkept": ([t.best_of_three() for t in tasks], SKY),
    }
    differences = {
        "at one rate\nfor both": ([t.few_minus_many() for t in tasks], SKY),
        "each at its\nown rate": ([-many_gain(t.task)[0] for t in tasks], BLUE),
    }
    figure, (left, right) = plt.subplots(1, 2, figsize=(PAGE, 3.2), width_ratios=(2, 1), sharey=True)
    for axes, bars in ((left, gains), (right, differences)):
        for place, (values, color) in enumerate(bars.values()):
            one = over_tasks(values).estimate
            axes.bar(place, one.value, width=0.6, color=color)
            axes.errorbar(place, one.value, yerr=one.ends, color="black", lw=1)
            axes.text(place, max(one.high, 0) + 0.012, f"{one.value:+.2f}", ha="center", fontsize=8)
        axes.axhline(0, color="0.4", lw=0.6)
        axes.set_xticks(range(len(bars)), bars, fontsize=7)
    left.set(ylabel="score", title="What each step gains, PPO at 8×128")
    right.set(title="8×128 minus 128×8")
    text = f"Mean of {len(tasks)} small tasks, 95 % intervals over tasks. Light blue: looked for after the runs."
    figure.supxlabel(text, fontsize=7, color="0.3")
    return figure


def draw_forest(counted):
    """128 x 8 minus 8 x 128 of each task, and where a new task is expected."""
    figure, right = plt.subplots(figsize=(PAGE, 4.6))
    order = sorted(counted, key=lambda task: many_gain(task)[0])
    values, variances = map(np.array, zip(*(many_gain(task) for task in order)))
    spread = heterogeneity(values, variances)
    wider = heterogeneity(values, variances, paule_mandel)
    right.axvspan(wider.low, wider.high, color=SKY, alpha=0.15, lw=0, label="where a new task is expected")
    right.axvspan(spread.low, spread.high, color=SKY, alpha=0.35, lw=0, label="the same by the registered method")
    right.axvline(spread.mean, color=SKY)
    right.axvline(0, color="0.4", lw=0.6)
    for y, task in enumerate(order):
        one = evidence(difference, [[task.tuned((128, 8))], [task.tuned((8, 128))]]).estimate
        right.plot([one.low, one.high], [y, y], color="0.5", lw=0.8)
        right.plot(one.value, y, "o", ms=3, color="black")
    names = [task.name.removeprefix("MiniGrid-").rsplit("-v", 1)[0] for task in order]
    right.set_yticks(range(len(order)), names, fontsize=5.5)
    right.set(xlabel="128×8 minus 8×128, each at its own rate (score)", ylim=(-0.7, len(order) - 0.3))
    right.legend(loc="lower right", fontsize=6)
    return figure
