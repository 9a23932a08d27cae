"""How much of the score is learning rate x gradient steps? All configurations of six experiments on three tasks.

Read from runs that were made for other questions; nothing was claimed before. The runs with a fixed N x T of
the studies shape, schedule, trend, outer_loop, rates and data_reuse. A fit is of the mean score of a configuration,
least squares.
"""

import numpy as np
from analysis.claims import Claims
from analysis.estimates import evidence, mean
from analysis.look import PAGE, plt

VARIES = ("num_envs", "num_steps", "minibatch_size", "update_epochs", "learning_rate", "total_timesteps")
FIXED = {}
ALSO = ("shape", "schedule", "trend", "outer_loop", "rates", "data_reuse")


def steps_of(config):
    """The gradient steps of a run: whole iterations, each with so many epochs of so many minibatches."""
    iterations = config["total_timesteps"] // config.batch_size
    return iterations * config["update_epochs"] * (config.batch_size // config["minibatch_size"])


def explained(columns):
    """The statistic R² of a least-squares fit of the mean scores (C,) on columns (C, …) and a constant."""
    design = np.column_stack([np.ones(len(columns[0])), *columns])
    hat = design @ np.linalg.pinv(design)

    def r_squared(*samples):
        scores = np.stack([mean(sample) for sample in samples])  # (C, …)
        return 1 - (scores - np.tensordot(hat, scores, 1)).var(0) / scores.var(0)

    return r_squared


def predictors(configs):
    """{words: the columns of a fit}."""
    rate, number, length = (np.log2([c[name] for c in configs]) for name in ("learning_rate", "num_envs", "num_steps"))
    steps = np.log2([steps_of(config) for config in configs])
    product = rate + steps
    return {
        "learning rate x gradient steps": [product, product**2],
        "the number of environments": [number],
        "learning rate x gradient steps, N and T": [product, product**2, number, length],
        "the learning rate": [rate, rate**2],
        "gradient steps": [steps, steps**2],
    }


def claims(scores):
    found = Claims(scores)
    configs = [config for config in scores.configs if scores.has(config)]

    for i, (words, columns) in enumerate(predictors(configs).items(), 1):
        text = f"explained by {words}, {len(configs)} configurations"
        found.estimate(text, explained(columns), configs, name=f"F{i}", quantity="R² of the mean score")
    return found


def draw(scores):
    """A panel per task and one of their mean: each configuration against learning rate x gradient steps; the fit."""
    configs = [config for config in scores.configs if scores.has(config)]
    product = np.array([config["learning_rate"] * steps_of(config) for config in configs])
    numbers = np.log2([config["num_envs"] for config in configs])
    colors = plt.get_cmap("cividis")
    figure, axes = plt.subplots(2, 2, figsize=(PAGE, 4.6), sharex=True, sharey=True)
    views = {task: scores.in_task(task) for task in scores.tasks} | {"mean of the tasks": scores}
    for (name, view), axis in zip(views.items(), axes.flat):
        found = [evidence(mean, [view.sample(config)]).estimate for config in configs]
        for x, number, one in zip(product, numbers, found, strict=True):
            color = colors(number / numbers.max())
            axis.errorbar(x, one.value, one.ends, color=color, marker="o", ms=4, lw=0.8)
        fit = np.polyfit(np.log2(product), [one.value for one in found], 2)
        curve = np.linspace(np.log2(product.min()), np.log2(product.max()), 100)
        axis.plot(2**curve, np.polyval(fit, curve), color="black", lw=1, zorder=0)
        r_squared = explained([np.log2(product), np.log2(product) ** 2])(*(view.sample(c) for c in configs))
        axis.set_title(f"{name}: R² {r_squared:.2f}")
        axis.set_xscale("log", base=2)
        axis.set_ylim(-0.08, 1.08)
    for axis in axes[:, 0]:
        axis.set_ylabel("mean score")
    for axis in axes[1]:
        axis.set_xticks([2.0**k for k in range(-4, 4, 2)], [f"{2.0**k:g}" for k in range(-4, 4, 2)])
    figure.supxlabel("learning rate × gradient steps", fontsize=8)
    scale = plt.cm.ScalarMappable(plt.Normalize(0, numbers.max()), colors)
    bar = figure.colorbar(scale, ax=axes, label="environments (N)", shrink=0.6)
    bar.set_ticks(range(0, 11, 2), labels=[f"{2**k}" for k in range(0, 11, 2)])
    figure.suptitle(f"{len(configs)} configurations of six experiments, 98,304 to 163,840 steps", fontsize=8)
    return figure
