"""P3: the score is an inverted U in log DDR, and its top moves up with the budget."""

import numpy as np
from analysis.claims import NO_FINAL_SCORES, PRIMARY, Claims
from analysis.comparisons import curvature, judge, quadratic, split
from analysis.drawing import BAND_POINTS, against, curve_panels
from analysis.estimates import evidence, nothing, resampled
from analysis.look import BLUES, ramp
from analysis.sheets import Sheet
from analysis.suite import short
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

FIGURE = "P3, Fig. 5 and 8"
VARIES = ("clip_coef", "update_epochs", "total_timesteps")


def log_ddr(suite, config):
    """log10 of the DDR (samples per unit of KL) of the runs in the tasks of the aggregates: one array per task."""
    return [np.log10(np.maximum(suite.second_half_means(config, task, "outer/ddr"), 1e-9)) for task in suite.tasks]


def best_place(*samples):
    """The place of the configuration with the highest score, (…,), of samples as `split` takes them."""
    scores, places = split(samples)
    return np.take_along_axis(places, scores.argmax(0)[None], 0)[0]


def by_budget(suite):
    """{budget: its configurations with a final score and a DDR}, in the order of the budgets."""
    with_ddr = [config for config in suite.scored if suite.tasks and all(x.size for x in log_ddr(suite, config))]
    budgets = sorted({config["total_timesteps"] for config in suite.scored})
    return {budget: [config for config in with_ddr if config["total_timesteps"] == budget] for budget in budgets}


def edge_of(scores, ddrs):
    """A remark if the best of the configurations, (C,), or the parabola's top is at the grid's edge; else ""."""
    top = float(quadratic(scores, ddrs)[1])
    if ddrs[scores.argmax()] in (ddrs.min(), ddrs.max()):
        return f"the best configuration is at the grid's edge, log10 DDR {ddrs[scores.argmax()]:.2f}"
    return "" if ddrs.min() < top < ddrs.max() else "the parabola's top is outside the grid"


def best_ddr_moves(suite, rows, by_budget, samples):
    """P3's claim that the best DDR rises with the budget."""
    budgets, tested = sorted(samples), judge(nothing(NO_FINAL_SCORES), "more")
    if len(budgets) > 1:
        smallest, largest = samples[budgets[0]], samples[budgets[-1]]

        def shift(*drawn):
            return best_place(*drawn[len(smallest) :]) - best_place(*drawn[: len(smallest)])

        tested = judge(resampled(shift, [*smallest, *largest], min(suite.reps, 1000), suite.seed), "more")
        edges = [
            f"{short(budget)} steps: {edge}"
            for budget in (budgets[0], budgets[-1])
            if (edge := edge_of(*split(samples[budget])))
        ]
        if edges:
            tested = tested.undecided(f"at the edge: {'; '.join(edges)}")
    rows.row(
        "P3: the best DDR (samples per unit of KL) rises with the budget",
        tested,
        [config for configs in by_budget.values() for config in configs],
        quantity="log10 of the best DDR, at the largest - at the smallest budget",
        side="more",
        family=PRIMARY,
    )


def claims(suite):
    found = Claims(suite)
    configs_of = by_budget(suite)
    samples = {
        budget: [*(suite.sample(config) for config in configs), *(log_ddr(suite, config) for config in configs)]
        for budget, configs in configs_of.items()
        if len(configs) > 3
    }
    best_ddr_moves(suite, found, {budget: configs_of[budget] for budget in samples}, samples)
    for budget, sample in samples.items():
        tested = judge(evidence(curvature, sample), "less")
        edge = edge_of(*split(sample))
        if edge:
            tested = tested.undecided(f"at the edge: {edge}")
        text = f"P3: at {short(budget)} steps the score is an inverted U in log DDR"
        found.row(text, tested, configs_of[budget], quantity="curvature of the parabola", side="less")
    return found


def points_of_runs(suite, by_budget):
    """P3's Fig. 8: the final score of each run against its own DDR, a colour per budget, and each budget's parabola.

    by_budget: {budget: (its configurations, colour)}.
    """
    sheet = Sheet(suite, "", 1, 2, 2.8)
    for ax, logarithmic in zip(sheet.axes[0], (True, False)):
        for budget, (configs, color) in by_budget.items():
            style = dict(color=color, label=f"{short(budget)} steps", ls="none")
            means = []
            for config in configs:
                ddrs, scores = _points(suite, config)
                if not len(ddrs):
                    continue
                if logarithmic:
                    ax.plot(ddrs, scores, ".", ms=2.5, alpha=0.6, color=color)
                    sheet.record(config, "all", "score of a run", ddrs, scores, x_column="ddr")
                means.append((np.log10(ddrs).mean(), scores.mean()))
                ax.plot(10 ** means[-1][0], means[-1][1], "o", color=color, mec="white", mew=0.5, ms=5, zorder=3)
            sheet.legend[style["label"]] = {**style, "marker": "o"}
            if len(means) > 3:
                x, y = np.array(sorted(means)).T
                fit = np.polyfit(x, y, 2)
                line = np.linspace(x[0], x[-1], BAND_POINTS)
                ax.plot(10**line, np.polyval(fit, line), color=color, lw=0.8)
        ax.set(xscale="log", xlabel="DDR: samples per unit of KL (log)")
        ax.set_title("a dot per run" if logarithmic else "means")
        sheet.finish(ax, "no DDR\nlogged")
        low, high = ax.get_xlim()
        ax.xaxis.set_major_locator(LogLocator(10, (1, 2, 5) if high < 100 * low else (1,)))  # room for seven labels
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
        ax.xaxis.set_minor_locator(NullLocator())
    sheet.axes[0][0].set_ylabel(f"final score ({suite.unit_words})")
    sheet.caption = (
        "Final scores against the data-to-divergence ratio (DDR: samples per nat of policy change), a colour a "
        "budget. A large dot is the mean of a configuration; the parabola is fitted to these means."
    )
    return sheet


def _points(suite, config):
    """The DDRs (R,) and final scores (R,) of the finished runs of a configuration."""
    found = [
        (run.mean_of_second_half("outer/ddr"), suite.score(run.final, task))
        for task in suite.tasks
        for run in suite.of(config, task)
        if run.finished
    ]
    found = [(ddr, score) for ddr, score in found if np.isfinite(ddr) and ddr > 0]
    return np.array(found).reshape(-1, 2).T


def sheets(suite):
    """Fig. 5: curves with their plateaus, at each budget; Fig. 8: a dot per run, and a parabola per budget."""
    name, found = "total_timesteps", by_budget(suite)
    budgets = sorted({config[name] for config in suite.configs})
    colors = dict(zip(budgets, [*ramp(BLUES, len(budgets) - 1), "black"]))
    clip_lines, epoch_lines, panels = [], [], []
    for budget in budgets:
        style = dict(color=colors[budget], label=f"{short(budget)} steps")
        for argument, lines in (("clip_coef", clip_lines), ("update_epochs", epoch_lines)):
            families = [suite.family(argument, config) for config in suite.configs if config[name] == budget]
            lines.append(against(argument, max(families, key=len), style))  # the setting at which it was varied most
        panels.append((f"{short(budget)} steps", clip_lines[-1][0], "clip_coef"))
    yield points_of_runs(suite, {budget: (configs, colors[budget]) for budget, configs in found.items()})
    yield curve_panels(suite, panels[-3:], part="curves")
    settings = [("clip coefficient", "log", clip_lines), ("epochs", "log", epoch_lines)]
    settings = [panel for panel in settings if any(len(configs) > 1 for configs, _, _ in panel[2])]
    if settings:
        yield curve_panels(suite, [], settings, part="settings")
