"""LunarLander: are there good rates above those that the map tried, and what makes 128 x 8 lose what it has learned?"""

import copy

import numpy as np
from analysis.claims import Claims
from analysis.comparisons import difference
from analysis.estimates import evidence, mean
from analysis.experiment import load
from analysis.look import BLUE, PAGE, plt

MAP = load("map")
TASK = "LunarLander-v3"
VARIES = ("num_envs", "num_steps", "learning_rate", "total_timesteps", "change")
FIXED = {"minibatch_size": 256, "anneal_lr": (True, False)}
ALSO = ("map",)
NONE, STAGGERED = "", "games out of phase"
CHANGES = {  # {argument: {value: what a run with it changes}}
    "clip_vloss": {False: "no value clipping"},
    "ent_coef": {0.0: "no entropy bonus"},
    "anneal_lr": {False: "constant rate"},
    "max_grad_norm": {1e9: "no gradient clipping"},
    "norm_reward": {True: "normalised rewards"},
    "gae_lambda": {1.0: "λ = 1", 0.8: "λ = 0.8"},
}
UNIT = "final return"


def arguments(run, runs):
    """The run's arguments, and `change`: in which of CHANGES it is not as the map's runs."""
    found = [words[run.arguments[name]] for name, words in CHANGES.items() if run.arguments[name] in words]
    if "stagger" in run.name:  # the arguments are the same: stagger.py of commit 4a4161c
        found.append(STAGGERED)
    return {**run.arguments, "change": ", ".join(found)}


def table(runs):
    """The runs of LunarLander. `score`: the final return."""
    return runs[runs["game"] == TASK].assign(score=lambda rows: rows["final_return"])


def collapse(scores):
    """{words: a configuration at 2e-3 and 300,000 steps}: 128 x 8, its changes, 128 x 32 and 8 x 128."""
    setting = {"learning_rate": 2e-3, "total_timesteps": 300_000}
    changed = [config for config in scores.where(num_envs=128, num_steps=8, **setting) if config["change"] != NONE]
    return {
        "128×8": scores.one(num_envs=128, num_steps=8, change=NONE, **setting),
        **{config["change"]: config for config in sorted(changed, key=lambda config: config["change"])},
        "128×32, λ = 0.8": scores.one(num_envs=128, num_steps=32, change="λ = 0.8", **setting),
        "128×32": scores.one(num_envs=128, num_steps=32, change=NONE, **setting),
        "8×128": scores.one(num_envs=8, num_steps=128, change=NONE, **setting),
        "8×128, no value clipping": scores.one(num_envs=8, num_steps=128, change="no value clipping", **setting),
    }


def unchanged(scores):
    """The scores of the configurations without changes, the map's among them."""
    view = copy.copy(scores)
    view.configs = scores.where(change=NONE)
    return view


def of_peaks(number):
    """The statistic: the largest mean of the first `number` samples minus the largest mean of the others."""

    def difference(*samples):
        means = [mean(sample) for sample in samples]
        return np.max(means[:number], 0) - np.max(means[number:], 0)

    return difference


def claims(scores):
    found, settings = Claims(scores), collapse(scores)
    base = settings["128×8"]

    def add(name, text, statistic, configs):
        found.estimate(text, statistic, configs, name=name, quantity=UNIT)

    for words, config in settings.items():
        add("return", f"{words}, 2e-3, 300,000 steps", mean, [config])
    for words, config in settings.items():
        if config is not base:
            add("change", f"{words} minus 128×8", difference, [config, base])
    pair = [settings["128×32, λ = 0.8"], settings["128×32"]]
    add("change", "128×32: λ = 0.8 minus 0.95", difference, pair)
    for budget in MAP.BUDGETS:
        few, many = ([*MAP.rates_of(unchanged(scores), n_by_t, budget).values()] for n_by_t in ((8, 128), (128, 8)))
        add("best", f"128×8 minus 8×128 at the best rates, {budget:,} steps", of_peaks(len(many)), [*many, *few])
    return found


def draw(scores):
    """What each change does to 128 x 8, and the returns of six N x T against the rate at three budgets."""
    figure, axes = plt.subplots(1, 4, figsize=(PAGE, 2.6), width_ratios=[1.2, 1, 1, 1])
    settings = collapse(scores)
    for y, config in enumerate(reversed(settings.values())):
        one = evidence(mean, [scores.sample(config)]).estimate
        axes[0].errorbar(one.value, y, xerr=one.ends, color=BLUE, marker="o")
    axes[0].set_yticks(range(len(settings)), list(reversed(settings)))
    axes[0].set(xlabel=UNIT, title="rate 2e-3, 300,000 steps")
    for budget, axis in zip(MAP.BUDGETS, axes[1:], strict=True):
        axis.sharey(axes[1])
        MAP.curves(axis, unchanged(scores), budget)
        axis.set(xlabel="learning rate", title=f"{budget:,} steps")
    axes[1].set(ylabel=UNIT, ylim=(-200, 280))  # too high a rate ends far below a random policy
    figure.legend(*axes[1].get_legend_handles_labels(), loc="outside upper center", ncols=len(MAP.N_BY_TS), title="N×T")
    return figure
