"""Where do many environments win, where do long rollouts, and does it depend on the budget?"""

import itertools
import re

import numpy as np
from analysis.claims import BY_TASK, ESTIMATE, Claims
from analysis.comparisons import SEEDS_FOR_A_VERDICT, Tested, difference, estimated, gain_difference, judge, judge_each
from analysis.estimates import (
    ALPHA,
    CONTRADICTED,
    SEED,
    SUPPORTED,
    UNDECIDED,
    Estimate,
    evidence,
    holm,
    mean,
    resampled,
)
from analysis.experiment import REPS
from analysis.look import BLUE, COLORS, DASHED, DOTTED, PAGE, plt
from analysis.suite import short

from support.arguments import fail

VARIES = ("num_envs", "num_steps", "learning_rate", "total_timesteps")
FIXED = {"minibatch_size": 256, "update_epochs": (4, 10)}  # 10: of the tasks with continuous actions
N_BY_TS = ((8, 32), (8, 128), (128, 32), (128, 128), (32, 32), (128, 8))  # the core, and the batch of 1024 beside it
ORDERED = tuple(n_by_t for n_by_t in N_BY_TS if n_by_t != (128, 128))  # it makes six iterations at the smallest budget
BATCH_1024 = ((8, 128), (32, 32), (128, 8))
BUDGETS = SHORT, MIDDLE, LONG = 100_000, 300_000, 900_000
RATES = tuple(2.5e-4 * 2.0**k for k in range(-1, 4))  # of the claims at equal rates
COMMON = tuple(2.5e-4 * 2.0**k for k in range(-1, 7))  # of every N x T at the two smaller budgets
SATURATED = 0.95
CLOSE = 0.10  # difference of scores
TASKS_WITH_A_SIGN = 5  # the least for K5


# ---- claims ----------------------------------------------------------------------------------------------------------
def rates_of(view, n_by_t, budget):
    """{learning rate: configuration} of an N x T at a budget, of those with runs in all tasks of the view."""
    found = view.where(num_envs=n_by_t[0], num_steps=n_by_t[1], total_timesteps=budget)
    return {config["learning_rate"]: config for config in found if view.has(config)}


def searched(view, n_by_ts, budget):
    """The learning rates at which some N x T are compared, in a view of one task: those that all of them have.

    Ends the program with one line if one was searched more widely than another at the two smaller budgets. At LONG the
    plan tried other rates with each N x T.
    """
    rates = [set(rates_of(view, n_by_t, budget)) for n_by_t in n_by_ts]
    if budget != LONG and any(one != rates[0] for one in rates):
        odd = sorted(set.union(*rates) - set.intersection(*rates))
        fail(
            f"map: {view.tasks[0]} at {budget:,} steps has {odd} with some N x T only: expected the same rates for all"
        )
    return sorted(set.intersection(*rates))


def cross_fitted(settings):
    """The scores of the best of some settings, one for each seed: either half of the seeds chooses for the other half.

    settings: {name: scores (seeds,)}, with the same seeds. Returns the names that the two halves chose, and the scores.
    """
    names, scores = [], []
    for half in (0, 1):
        names.append(max(settings, key=lambda name: settings[name][half::2].mean()))
        scores.append(settings[names[-1]][1 - half :: 2])
    return names, np.concatenate(scores)


def settings_of(view, n_by_ts, budget, rates):
    """{(N, T, rate): its scores} in a view of one task."""
    return {
        (*n_by_t, rate): view.sample(rates_of(view, n_by_t, budget)[rate])[0] for n_by_t in n_by_ts for rate in rates
    }


def at_best(view, n_by_t, budget, others=()):
    """The scores of an N x T at its best rate in each task, cross-fitted. others: those it is compared with."""
    tasks = [view.in_task(task) for task in view.tasks]
    return [
        cross_fitted(settings_of(one, [n_by_t], budget, searched(one, [n_by_t, *others], budget)))[1] for one in tasks
    ]


def best_scores(view, budget):
    """The mean score of each of ORDERED at its best rate, (len(ORDERED),), in a view of one task."""
    return np.array(
        [max(view.sample(config)[0].mean() for config in rates_of(view, s, budget).values()) for s in ORDERED]
    )


def unsaturated(scores, budgets):
    """The tasks in which, at each of the budgets, some N x T is not above SATURATED at its best rate."""
    return [
        task
        for task in scores.tasks
        if all(best_scores(scores.in_task(task), budget).min() <= SATURATED for budget in budgets)
    ]


def vertex(rates, means):
    """log2 of the rate at the top of a parabola through mean scores (rates, ...), inside the rates that were tried."""
    x = np.log2(rates)
    a, b, _ = np.polyfit(x - x.mean(), np.reshape(means, (len(x), -1)), 2)
    top = np.where(a < 0, -b / (2 * np.where(a < 0, a, -1.0)), np.where(means[-1] > means[0], np.inf, -np.inf))
    return x.mean() + np.clip(top, x[0] - x.mean(), x[-1] - x.mean()).reshape(np.shape(means)[1:])


def best_place(view, n_by_t, budget):
    """(statistic, samples): log2 of the best rate of an N x T at a budget, by `vertex`, the mean over tasks.

    Each task has rates of its own: at LONG those around its best one, at the others also those beyond an edge.
    """
    rates, samples = [], []
    for task in view.tasks:
        settings = sorted(rates_of(view.in_task(task), n_by_t, budget).items())
        rates.append([rate for rate, _ in settings])
        samples += [view.in_task(task).sample(config) for _, config in settings]

    def place(*drawn):
        means = iter([sample[0].mean(-1) for sample in drawn])
        return np.mean([vertex(of_task, [next(means) for _ in of_task]) for of_task in rates], axis=0)

    return place, samples


def tau(x, y):
    """Kendall's tau-a of two rows of numbers."""
    pairs = list(itertools.combinations(range(len(x)), 2))
    return sum(np.sign((x[i] - x[j]) * (y[i] - y[j])) for i, j in pairs) / len(pairs)


def order_is_kept(view):
    """Mean Kendall's tau between the orders of the N x T at SHORT and at LONG; null: a random order in each task."""
    rng, pairs = np.random.RandomState(0), []
    for task in view.tasks:
        own = view.in_task(task)
        pairs.append([best_scores(own, budget) for budget in (SHORT, LONG)])
    value = np.mean([tau(*pair) for pair in pairs])
    null = np.array([np.mean([tau(rng.permutation(x), y) for x, y in pairs]) for _ in range(REPS)])
    holds, fails = (2 * float((null * sign >= value * sign - 1e-9).mean()) for sign in (1, -1))
    word = SUPPORTED if holds < ALPHA else CONTRADICTED if fails < ALPHA else UNDECIDED
    return Tested(Estimate(float(value), np.nan, np.nan), word, (min(1.0, holds), min(1.0, fails)))


def finished(scores, *budgets, rates=COMMON):
    """The tasks in which every N x T has run at each of the budgets, at the smaller two with all of some rates."""

    def has(view, n_by_t, budget):
        found = rates_of(view, n_by_t, budget)
        return bool(found) if budget == LONG else set(rates) <= set(found)

    return [
        task
        for task in scores.tasks
        if all(has(scores.in_task(task), n_by_t, budget) for n_by_t in N_BY_TS for budget in budgets)
    ]


def configs_of(scores, n_by_t, *budgets):
    """The configurations of an N x T at some budgets, whichever tasks they ran in."""
    found = scores.where(num_envs=n_by_t[0], num_steps=n_by_t[1])
    return [config for config in found if config["total_timesteps"] in budgets]


def claims(scores):
    """K1 to K6, each on the tasks that have run at its budgets. K5 is registered at MIDDLE, at SHORT an estimate.

    The unit is the seed, as registered, also of six tasks.
    """
    found = Claims(scores)
    unsaturated_ends = tasks = unsaturated(scores.in_tasks(finished(scores, SHORT, LONG)), (SHORT, LONG))
    if tasks:
        ends = (("K1", "N", (128, 32)), ("K2", "T", (8, 128)))
        for name, factor, large in ends:
            settings = [(large, LONG), ((8, 32), LONG), (large, SHORT), ((8, 32), SHORT)]

            def effect_grows(view, settings=settings):
                samples = [at_best(view, *setting, [n_by_t for n_by_t, _ in settings]) for setting in settings]
                return judge(evidence(gain_difference, samples, SEED), "more")

            text = f"a larger {factor} helps more at {LONG:,} steps than at {SHORT:,}, each cell at its best rate"
            configs = [config for setting in settings for config in configs_of(scores, *setting)]
            found.add(text, effect_grows, configs, name=name, primary=True, tasks=tasks)
        text = f"the shapes' order at {SHORT:,} steps is kept at {LONG:,}"
        more = {"primary": True, "tasks": tasks, "by_task": False, "quantity": "Kendall's tau"}
        configs = [config for n_by_t in ORDERED for config in configs_of(scores, n_by_t, SHORT, LONG)]
        found.add(text, order_is_kept, configs, name="K6", **more)
    for budget in (SHORT, MIDDLE):
        tasks = unsaturated(scores.in_tasks(finished(scores, budget, rates=RATES)), (budget,))  # equal rates are enough
        if not tasks:
            continue
        common = rates_of(scores.in_tasks(tasks), (8, 128), budget)
        base = {rate: config for rate, config in common.items() if rate in RATES}
        others = [n_by_t for n_by_t in ORDERED if n_by_t != (8, 128)]

        def about_equal(view, base=base, budget=budget, others=others):
            parts = []
            for n_by_t in others:
                own = rates_of(view, n_by_t, budget)
                samples = [view.sample(own[rate]) for rate in base] + [view.sample(base[rate]) for rate in base]

                def gap(*drawn):
                    return np.mean([difference(*drawn[i :: len(base)]) for i in range(len(base))], axis=0)

                parts.append(evidence(gap, samples, SEED))
            return judge_each(parts, "little", CLOSE)

        text = f"at {budget:,} steps and equal rates the shapes are level with 8x128"
        configs = [config for n_by_t in ORDERED for config in configs_of(scores, n_by_t, budget)]
        more = {"primary": True, "tasks": tasks, "quantity": "score, the farthest shape"}
        found.add(text, about_equal, configs, name="K3", **more)
        family = "" if budget == MIDDLE else ESTIMATE
        text, quantity = f"at {budget:,} steps the sign of 128x8 - 8x128 belongs to the task, not to the rate", "tasks"
        both = [config for n_by_t in ((128, 8), (8, 128)) for config in configs_of(scores, n_by_t, budget)]
        more = {"tasks": tasks, "by_task": False, "family": family, "quantity": quantity}
        found.add(text, sign_belongs_to_task(budget), both, name="K5", **more)
        for task in tasks:
            view = scores.in_task(task)
            for rate in common_rates(view, budget):
                text = f"at {budget:,} steps and a rate of {rate:g} 128x8 is above 8x128"
                more = {"by_task": False, "family": BY_TASK, "tasks": [task]}
                found.add(text, sign_at(rate, budget), pair(view, rate, budget), name="K5", **more)
    for n_by_t in ORDERED if unsaturated_ends else ():

        def moves(view, n_by_t=n_by_t):
            (late, second), (early, first) = (best_place(view, n_by_t, budget) for budget in (LONG, SHORT))

            def shift(*drawn):
                return late(*drawn[: len(second)]) - early(*drawn[len(second) :])

            return judge(resampled(shift, [*second, *first], REPS, unit=SEED), "less")

        text = f"the best rate of {n_by_t[0]}x{n_by_t[1]} falls from {SHORT:,} to {LONG:,} steps"
        more = {"tasks": unsaturated_ends, "by_task": False, "quantity": "log2 of the rate"}
        found.add(text, moves, configs_of(scores, n_by_t, SHORT, LONG), name="K4", **more)
    for n_by_t, budget in itertools.product(BATCH_1024 if unsaturated_ends else (), (SHORT, LONG)):

        def top(view, n_by_t=n_by_t, budget=budget):
            place, samples = best_place(view, n_by_t, budget)
            return estimated(resampled(place, samples, REPS))

        text = f"the best rate of {n_by_t[0]}x{n_by_t[1]} at {budget:,} steps, beside K4"
        more = {"tasks": unsaturated_ends, "family": ESTIMATE, "quantity": "log2 of the rate"}
        found.add(text, top, configs_of(scores, n_by_t, budget), name="best rate", **more)
    return found


def sign_at(rate, budget):
    """The test of the difference of 128x8 and 8x128 at a rate, in a view of one task."""

    def test(view):
        return judge(evidence(difference, [view.sample(config) for config in pair(view, rate, budget)]), "more")

    return test


def pair(view, rate, budget):
    """128x8 and 8x128 at a rate; None where one of them has no runs in a task of the view."""
    found = [rates_of(view, n_by_t, budget).get(rate) for n_by_t in ((128, 8), (8, 128))]
    return None if None in found else found


def common_rates(view, budget):
    return sorted(rate for rate in rates_of(view, (8, 128), budget) if pair(view, rate, budget))


def sign_belongs_to_task(budget):
    """K5: a rule over the signs of all tasks and rates, after Holm's correction."""

    def test(view):
        rows = [
            (task, sign_at(rate, budget)(view.in_task(task)))
            for task in view.tasks
            for rate in common_rates(view.in_task(task), budget)
        ]
        signs = {task: [] for task in view.tasks}
        for (task, tested), chance in zip(rows, holm([min(tested.chances) for _, tested in rows])):
            if chance < ALPHA:
                signs[task].append(np.sign(tested.estimate.value))
        mixed = [task for task, found in signs.items() if len(set(found)) > 1]
        settled = [task for task, found in signs.items() if len(found) > 1 and task not in mixed]
        word = CONTRADICTED if mixed else SUPPORTED if len(settled) >= TASKS_WITH_A_SIGN else UNDECIDED
        remark = f"{sum(map(len, signs.values()))} of {len(rows)} differences are decided"
        return Tested(
            Estimate(len(settled), np.nan, np.nan),
            word,
            remark=remark + "; two signs in " * bool(mixed) + ", ".join(mixed),
        )

    return test


# ---- pictures --------------------------------------------------------------------------------------------------------
BARS = {  # what is tuned: (N x T to choose from, learning rates; None: all that the N x T have in common)
    "default\n8×128, 2.5e-4": (((8, 128),), (2.5e-4,)),
    "N×T tuned\nat the default rate": (N_BY_TS, (2.5e-4,)),
    "rate tuned\nat 8×128": (((8, 128),), None),
    "N×T and rate\ntuned": (N_BY_TS, None),
}


def what_tuning_buys(scores, budget=SHORT):
    """{a bar of BARS: the cross-fitted mean score of each task (tasks,)}, of the tasks with all runs of a budget."""
    found, done = {}, finished(scores, budget)
    for name, (n_by_ts, rates) in BARS.items():
        tasks = [scores.in_task(task) for task in done]
        settings = [settings_of(one, n_by_ts, budget, rates or searched(one, N_BY_TS, budget)) for one in tasks]
        found[name] = np.array([cross_fitted(of_task)[1].mean() for of_task in settings])
    return found


def bars(scores):
    """What tuning the rate and tuning N x T buy at SHORT: a bar is the mean over tasks, a dot a task.

    The interval is Student's t over the tasks: what a further task would add is the uncertainty that counts.
    """
    figure, axis = plt.subplots(figsize=(PAGE, 2.6))
    found = what_tuning_buys(scores)
    for place, values in enumerate(found.values()):
        one = evidence(mean, [[values]]).estimate
        axis.bar(place, one.value, width=0.55, color=BLUE, alpha=0.25 + 0.25 * place, zorder=2)
        axis.errorbar(place, one.value, yerr=one.ends, color="black", lw=1)
        axis.plot(place + np.linspace(-0.2, 0.2, len(values)), values, "o", ms=3, color="0.35", zorder=3)
        axis.text(place + 0.3, one.value, f"{one.value:.2f}", va="center", fontsize=8)
    axis.set_xticks(range(len(found)), list(found))
    axis.set(ylabel="score", ylim=(-0.05, 1.1))
    axis.set_title(
        f"PPO, {SHORT:,} steps, {len(values)} tasks. 0: a random policy, 1: a reference return.\n"
        "Bar: mean over tasks with its 95 % interval. Dot: a task, ten seeds; each half chooses for the other."
    )
    return figure


def summary(scores, n_by_ts=N_BY_TS, budgets=BUDGETS, top=1.1):
    """Against the budget, a column per task: the score of each N x T at its best rate, and that rate.

    Either half of the seeds chooses for the other. Hollow: fewer than ten seeds, which choose and are shown.
    """
    figure, axes = plt.subplots(
        2, len(scores.tasks), figsize=(PAGE, 3.4), sharex=True, sharey="row", squeeze=False, height_ratios=[3, 2]
    )
    for task, (above, below) in zip(scores.tasks, axes.T):
        for place, n_by_t in enumerate(n_by_ts):
            found = [(budget, *best_setting(scores.in_task(task), n_by_t, budget)) for budget in budgets]
            found = [setting for setting in found if setting[1] is not None]
            if not found:
                continue
            x = [budget * 1.09 ** (place - (len(n_by_ts) - 1) / 2) for budget, *_ in found]  # side by side
            look = {"color": COLORS[(8, 128, 32).index(n_by_t[0])], "ls": {8: DOTTED, 32: DASHED, 128: "-"}[n_by_t[1]]}
            above.plot(x, [one.value for *_, one, _ in found], label=f"{n_by_t[0]}×{n_by_t[1]}", lw=1, **look)
            below.plot(x, [rate for _, rate, *_ in found], lw=1, **look)
            for left, (_, rate, one, enough) in zip(x, found):
                dot = {"color": look["color"], "marker": "o", "ms": 2.5, "mfc": None if enough else "white"}
                above.errorbar(left, one.value, yerr=one.ends, lw=0.6, **dot)
                below.plot(left, rate, **dot)
        above.set_title(re.sub(r"^MiniGrid-|-v\d$", "", task), fontsize=7)
        below.axhline(RATES[1], color="0.6", lw=0.6, zorder=0)  # the default
    axes[0][0].set(ylabel="score at the best rate", ylim=(-0.05, top))
    axes[1][0].set(ylabel="best rate", xscale="log", yscale="log")
    steps = [f"{budget // 1000}k" if budget < 1e6 else f"{budget // 10**6}M" for budget in budgets]
    axes[1][0].set_xticks(budgets, steps)
    axes[1][0].set_xticks([], minor=True)
    axes[1][0].set_yticks([RATES[1] * 4**k for k in range(4)], [short(RATES[1] * 4**k) for k in range(4)])
    axes[1][0].set_yticks([], minor=True)
    figure.supxlabel("steps of a run", fontsize=8)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=len(n_by_ts), title="N×T")
    return figure


def best_setting(view, n_by_t, budget):
    """(the best rate of an N x T, the Estimate of its score there, whether it has seeds for a verdict), in one task.

    The rate is that of all seeds, the score is cross-fitted.
    """
    settings = settings_of(view, [n_by_t], budget, rates_of(view, n_by_t, budget))
    if not settings:
        return None, None, False
    best = max(settings, key=lambda setting: settings[setting].mean())
    enough = len(settings[best]) >= SEEDS_FOR_A_VERDICT
    shown = cross_fitted(settings)[1] if enough else settings[best]
    return best[2], evidence(mean, [[shown]]).estimate, enough


def draw(scores):
    """The pictures of the page: {file name: figure}."""
    return {"bars": bars(scores), "summary": summary(scores), "scores": every_rate(scores)}


def every_rate(scores):
    """Mean scores against the rate, of all tasks together and of each: a row per budget with the same rates for all."""
    budgets = [budget for budget in (SHORT, MIDDLE) if scores.where(total_timesteps=budget)] or [SHORT]
    views = {f"mean of {len(scores.tasks)} tasks": scores, **{task: scores.in_task(task) for task in scores.tasks}}
    others = [n_by_t for n_by_t in N_BY_TS if n_by_t not in BATCH_1024]
    words = ", ".join("{}×{}".format(*n_by_t) for n_by_t in others)
    figure, axes = plt.subplots(
        len(budgets),
        len(views),
        figsize=(PAGE, 1.0 + 1.6 * len(budgets)),
        sharex=True,
        sharey=True,
        squeeze=False,
        width_ratios=[1.5, *[1] * len(scores.tasks)],
    )
    for budget, row in zip(budgets, axes):
        for view, axis in zip(views.values(), row):
            for n_by_t, color in zip(BATCH_1024, (COLORS[0], COLORS[2], COLORS[1])):
                line(axis, view, n_by_t, budget, color=color, lw=1.4, label="{}×{}".format(*n_by_t))
            for n_by_t, label in zip(others, [f"of other batches: {words}", *[None] * len(others)]):
                line(axis, view, n_by_t, budget, color="0.75", lw=0.8, zorder=1, label=label)
            if not any(rates_of(view, n_by_t, budget) for n_by_t in N_BY_TS):
                axis.text(0.5, 0.5, "not run yet", transform=axis.transAxes, ha="center", color="0.5")
            axis.axvline(RATES[1], color="0.4", lw=0.6, ls=DOTTED, zorder=0)
        row[0].set_ylabel(f"score, {budget:,} steps")
    axes[0][0].set(xscale="log", ylim=(-0.05, 1.1))
    axes[0][0].set_xticks([RATES[1] * 8**k for k in range(3)], [short(RATES[1] * 8**k) for k in range(3)])
    axes[0][0].set_xticks([], minor=True)
    for axis in axes[-1]:
        axis.tick_params(axis="x", labelsize=6)
    for name, axis in zip(views, axes[0]):
        axis.set_title(re.sub(r"^MiniGrid-|-v\d$", "", name), fontsize=7)
    figure.supxlabel("learning rate (dotted: the default)", fontsize=8)
    figure.legend(*legend_of(axes.flat), loc="outside upper center", ncols=4, title="N×T")
    return figure


def line(axis, view, n_by_t, budget, **look):
    """The mean scores of an N x T against the rate."""
    settings = sorted(rates_of(view, n_by_t, budget).items())
    values = [evidence(mean, [view.sample(config)]).value for _, config in settings]
    axis.plot([rate for rate, _ in settings], values, marker="o" if len(settings) == 1 else "", ms=2.5, **look)


def legend_of(axes):
    """(handles, labels) of what any of the axes shows, each once."""
    found = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels())}
    return list(found.values()), list(found)


def curves(axis, view, budget):
    """Mean scores with their 95 % intervals against the rate: colour is N, style of the line T."""
    for n_by_t in N_BY_TS:
        settings = sorted(rates_of(view, n_by_t, budget).items())
        if not settings:
            continue
        found = [evidence(mean, [view.sample(config)]).estimate for _, config in settings]
        color = COLORS[(8, 128, 32).index(n_by_t[0])]
        style = {8: DOTTED, 32: DASHED, 128: "-"}[n_by_t[1]]
        rates = [rate for rate, _ in settings]
        dot = {"marker": "o", "ms": 2.5} if len(settings) == 1 else {}  # one rate makes no line
        axis.plot(rates, [one.value for one in found], color=color, ls=style, label=f"{n_by_t[0]}×{n_by_t[1]}", **dot)
        axis.fill_between(rates, [one.low for one in found], [one.high for one in found], color=color, alpha=0.12, lw=0)
    if not any(rates_of(view, n_by_t, budget) for n_by_t in N_BY_TS):
        axis.text(0.5, 0.5, "not run yet", transform=axis.transAxes, ha="center", color="0.5")
    axis.set_xscale("log", base=2)
    axis.set_xticks([RATES[1], RATES[4] * 2], [short(RATES[1]), short(RATES[4] * 2)])
    axis.set_xticks([], minor=True)
