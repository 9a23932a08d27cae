"""Do P1's six diagnostics move with N at equal rows and equal gradient steps? The runs of the study `shape`.

A claim each, how far it moves in its own unit, and what the score says. A run's value is the mean of its `probe/`
points in the second half of the training. ESS is shown as 100 - ESS, in percent of the rows: it is nearly 0, and what
matters is how far from 0.
"""

import numpy as np
from analysis.claims import ESTIMATE, Claims
from analysis.comparisons import effect, judge, judge_trend
from analysis.estimates import LACKING, evidence, kendall, mean, nothing, of_groups
from analysis.look import COLORS, PAGE, plt
from analysis.suite import DIAGNOSTICS
from matplotlib.ticker import NullFormatter
from scipy.stats import rankdata

VARIES = ("num_envs", "num_steps", "learning_rate")
FIXED = {}
ALSO = ("shape",)
PROBES = {name: (label, sign) for name, (label, sign) in DIAGNOSTICS.items() if name != "ess"}
PROBES["ess"] = "100 - ESS (%)", -DIAGNOSTICS["ess"][1]
UNITS = {"dormant_neurons": "% of the units", "ess": "% of the rows"}


def partial_correlation(first, second, given):
    """Rank correlation of two quantities at an equal third one, the mean over tasks: Evidence.

    The correlation, over all runs of a task, of what is left of the ranks of both after least-squares fits on a cubic
    in the rank of the third; 0 where nothing is left. A straight line, as in Spearman's partial correlation, leaves
    part of a curved dependence on the third quantity, and finds a correlation where there is none in up to a fourth of
    all cases. Average ranks are taken once, of all runs. first, second, given:
    of the same runs, one list per task of C arrays (seeds,), one per configuration.
    """
    if not all(np.isfinite(x).all() for sample in (first, second, given) for of_task in sample for x in of_task):
        return nothing(LACKING)
    ranked = []
    for of_task in zip(first, second, given, strict=True):
        ends = np.cumsum([len(x) for x in of_task[0]])[:-1]
        ranks = np.stack([rankdata(np.concatenate(arrays)) for arrays in of_task])
        ranks = (ranks - ranks.mean(-1, keepdims=True)) / ranks.shape[-1]  # about -0.5 to 0.5
        ranked.append(np.split(ranks, ends, axis=-1))
    if not ranked:
        return nothing("nothing to compare")

    def correlation(*tasks):
        by_task = []
        for arrays in tasks:
            x, y, z = np.concatenate(arrays, axis=-1)  # each (…, runs)
            powers = np.stack([z**power for power in range(4)], -1)
            both, across = np.stack([x, y], -1), powers.swapaxes(-1, -2)
            rest = both - powers @ (np.linalg.pinv(across @ powers, hermitian=True) @ (across @ both))
            by_task.append(pearson(rest[..., 0], rest[..., 1]))
        return np.mean(by_task, axis=0)

    return of_groups(correlation, ranked)


def pearson(x, y):
    """Pearson's correlation along the last axis, (…,); 0 where x or y is constant."""
    x, y = x - x.mean(-1, keepdims=True), y - y.mean(-1, keepdims=True)
    scale = np.sqrt((x * x).sum(-1) * (y * y).sum(-1))
    return np.where(scale > 1e-9, (x * y).sum(-1) / np.maximum(scale, 1e-9), 0.0)


def rates(scores):
    """{learning rate: its configurations, those with runs in all tasks}."""
    found = [config for config in scores.configs if scores.has(config)]
    return {
        rate: [c for c in found if c["learning_rate"] == rate] for rate in sorted({c["learning_rate"] for c in found})
    }


def of(view, config, name):
    """A sample of a diagnostic."""
    return [100 - values if name == "ess" else values for values in view.sample(config, name)]


def add(found, names, configs, words, primary):
    """Adds what P1 says of each diagnostic, and three estimates beside it.

    names: of the claims. configs: the configurations, which differ in N. words: where, as " at a rate of 0.001".
    """
    levels = [config["num_envs"] for config in configs]
    ends = f"at N = {max(levels)} minus at N = {min(levels)}"

    def groups(view, values):
        """One list per task, with an array (seeds,) per configuration."""
        return [list(of_task) for of_task in zip(*map(values, configs), strict=True)]

    for name, (diagnostic, (label, sign)) in zip(names, PROBES.items(), strict=True):
        side, way = ("more", "rises") if sign > 0 else ("less", "falls")

        def three(view, diagnostic=diagnostic):
            """The groups of the diagnostic, of N and of the score."""
            values = groups(view, lambda config: of(view, config, diagnostic))
            scores = groups(view, view.sample)
            return values, [[np.full(len(x), n) for x, n in zip(task, levels)] for task in values], scores

        def trend(view, three=three, side=side):
            values = three(view)[0]
            return judge_trend(kendall(levels, values), levels, values, side)

        def size(view, three=three, side=side):
            return judge(effect(levels, three(view)[0]), side)

        def given_score(view, three=three, side=side):
            values, numbers, scores = three(view)
            return judge(partial_correlation(numbers, values, scores), side)

        def given_number(view, three=three):
            values, numbers, scores = three(view)
            return judge(partial_correlation(scores, values, numbers), "more")

        text = f"{label.removesuffix(' (%)')} {way} with N{words}"
        found.add(text, trend, configs, name=name, primary=primary, quantity="Kendall's tau with N")
        for test, quantity in (
            (size, f"{ends}, {UNITS.get(diagnostic, 'in its own unit')}"),
            (given_score, "rank correlation with N, given the score"),
            (given_number, "rank correlation with the score, given N"),
        ):
            found.add(text, test, configs, name=name, family=ESTIMATE, quantity=quantity)


def claims(scores):
    found = Claims(scores)
    names = [f"D{i}" for i in range(1, 13)]
    for i, (rate, configs) in enumerate(rates(scores).items()):
        add(found, names[6 * i : 6 * i + 6], configs, f" at a rate of {rate:g}", primary=i == 0)
    return found


def draw(scores):
    """A row per task, a column per diagnostic: the mean over the seeds against N, with its 95 % interval."""
    lines = {f"learning rate {rate:g}": configs for rate, configs in rates(scores).items()}
    figure, axes = plt.subplots(
        len(scores.tasks), len(PROBES), figsize=(PAGE, 0.9 + 1.2 * len(scores.tasks)), sharex=True, squeeze=False
    )
    for row, task in zip(axes, scores.tasks, strict=True):
        view = scores.in_task(task)
        for axis, name in zip(row, PROBES, strict=True):
            for (label, configs), color, marker in zip(lines.items(), COLORS, "os^"):
                found = [evidence(mean, [of(view, config, name)]).estimate for config in configs]
                values = np.array([estimate.value for estimate in found])
                ends = np.abs(np.array([[estimate.low, estimate.high] for estimate in found]).T - values)
                places = [config["num_envs"] for config in configs]
                axis.errorbar(places, values, ends, color=color, marker=marker, ms=3, capsize=2, label=label)
            numbers = sorted({config["num_envs"] for configs in lines.values() for config in configs})[::2]
            axis.set_xscale("log", base=2)
            axis.set_xticks(numbers, [f"{n}" for n in numbers])
            axis.minorticks_off()
            if name == "ess":
                axis.set_yscale("log")
                axis.yaxis.set_minor_formatter(NullFormatter())
            elif not np.ptp(axis.dataLim.intervaly):
                axis.set_ylim(-0.1, 1)
        row[0].set_ylabel(task)
    for axis, (label, sign) in zip(axes[0], PROBES.values(), strict=True):
        axis.set_title(f"{label}\nP1: {'rises' if sign > 0 else 'falls'}")
    figure.supxlabel("environments (N)", fontsize=8)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower right", ncols=len(lines))
    figure.suptitle("P1's diagnostics at one batch of 1024 steps: equal rows and gradient steps", fontsize=8)
    return figure
