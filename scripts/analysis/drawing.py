"""The panels of a sweep's figures. Each function returns a sheet (sheets.py): an image, its caption and its CSV.

sheet = curve_panels(suite, [("more environments", suite.family("num_envs"), "n_by_t")])
sheet.save(out, "my_figure")
"""

import textwrap

import numpy as np

from analysis import training_runs
from analysis.comparisons import SEEDS_FOR_A_VERDICT
from analysis.estimates import MIN_SEEDS, evidence, interval, mean
from analysis.look import COLORS, PAGE, plt
from analysis.sheets import BASE, MOST_CURVES, N_LINE, T_LINE, Sheet, draw_line, fewer, mark_ticks, styles
from analysis.suite import BAND_REPS, SHOWN, as_shown, short
from analysis.training_runs import RETURN

LETTER = 0.07  # inches of a letter of a tick's label, with its share of the space between two labels
BAND_POINTS = 60  # points in a performance profile

RETURNS = [(RETURN, "return")]
DYNAMICS = [(f"diagnostics/{name}", SHOWN[name]) for name in list(SHOWN)[:4]]
POLICY = [(f"diagnostics/{name}", SHOWN[name]) for name in list(SHOWN)[4:]]


def curve_panels(suite, panels, finals=(), part="", axis=None):
    """Curves of the score in panels (title, configs, by), which share y; final scores in panels (xlabel, scale, lines).

    by: as for `styles`. A line is (configs, x, style). scale: `log`; `free`, log without marks at the values; `each`,
    the values as equally spaced marks; or `none`, no marks. The CSV also has every run's own curve and final score.
    """
    sheet = Sheet(suite, part, 1, len(panels) + len(finals), 2.5, axis)
    curve_axes, final_axes = np.split(sheet.axes[0], [len(panels)])
    for ax, (title, configs, by) in zip(curve_axes, panels):
        if ax is not curve_axes[0]:
            ax.sharey(curve_axes[0])
        drawn = fewer(suite, configs)
        style = styles(suite, drawn, by)
        for config in drawn:
            until = suite.dotted_until(config, suite.tasks, sheet.axis)
            sheet.curve(ax, config, "all", suite.pool_name, suite.aggregate(config, sheet.axis), style[config], until)
        ax.set_title(_with_count(title or _tasks_of(suite), drawn, configs))
        sheet.finish_curves(ax)
    sheet.axes[0][0].set_ylabel(f"{suite.pool_name} ({suite.unit_words})")
    words = _runs_of(suite, " and ".join(["bands"] * bool(panels) + ["bars"] * bool(finals)))
    sheet.figure.supxlabel(textwrap.fill(words, int(17 * sheet.figure.get_figwidth())), fontsize=6.5)
    sheet.label_directly(curve_axes)
    for ax, (xlabel, scale, lines) in zip(final_axes, finals):
        _draw_final_scores(sheet, ax, scale, lines)
        ax.set(xlabel=xlabel, ylabel=f"final {suite.pool_name}" + ("" if panels else f" ({suite.unit_words})"))
        sheet.finish(ax, "no final\nscores yet")
    sheet.has_runs = True
    if panels:
        sheet.caption = (
            f"The {suite.pool_name} of the scores over all tasks and seeds, against {training_runs.AXES[sheet.axis]}, "
            f"with its 95 % interval."
        )
    if finals:
        sheet.caption += (
            f" The {suite.pool_name} of the final scores, with its 95 % interval{', on the right' * bool(panels)}."
        )
    return sheet


def _runs_of(suite, bands):
    """How many seeds and steps the runs have, and what their `bands` are, in words."""
    counts = [suite.count(config, task) for config in suite.scored for task in suite.tasks] or [0]
    seeds = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    bands = f"; {bands}: 95 % bootstrap intervals" if max(counts) >= MIN_SEEDS else ""
    return f"{seeds} seed{'s' * (max(counts) != 1)} of each, {short(suite.nominal_budget)} steps{bands}"


def _tasks_of(suite):
    """The tasks that a picture pools, in words."""
    tasks = suite.tasks
    return ", ".join(tasks) if 0 < len(tasks) < 3 else f"{len(tasks)} tasks"


def _with_count(title, drawn, configs):
    """A panel's title, with the number of curves that are drawn if some are left out."""
    count = f"{len(drawn)} of {len(configs)}"
    if len(drawn) == len(configs):
        return title
    return f"{title} ({count})" if title else f"{count} configurations"


def _draw_final_scores(sheet, ax, scale, lines):
    marks = sorted({value for _, x, _ in lines for value in x})
    for i, (configs, x, style) in enumerate(lines):
        beside = i - (len(lines) - 1) / 2 if scale in ("log", "each") else 0  # so that lines do not cover each other
        if scale == "log":
            ax.set_xscale("log", base=2)
        places = [marks.index(value) + 0.08 * beside for value in x] if scale == "each" else None
        sheet.final_scores(ax, configs, x, style, places or [value * 1.05**beside for value in x])
    if scale == "each":
        ax.set_xticks(range(len(marks)), [short(mark) for mark in marks])
    elif scale == "none":
        ax.set_xticks([])
    elif scale == "log":
        mark_ticks(ax, marks)
    elif ax.lines:
        ax.set_xscale("log")


def sheet_of_tasks(suite, part, height, row_height, **options):
    """A sheet with a panel for all tasks together, if there are several, and one for each.

    Returns it, and of each panel (axes, task in the CSV, suite, whether it is the leftmost, whether the lowest).
    """
    places = [("all tasks", "all", suite)] if len(suite.tasks) != 1 else []
    places += [(task, task, suite.in_task(task)) for task in suite.tasks]
    columns = min(3, len(places))
    rows, panels = -(-len(places) // columns), []
    sheet = Sheet(suite, part, rows, columns, height + rows * row_height, **options)
    for i, (ax, (title, task, view)) in enumerate(zip(sheet.axes.flat, places)):
        ax.set_title(title)
        lowest = i + columns >= len(places)
        ax.tick_params(labelbottom=lowest)
        panels.append((ax, task, view, i % columns == 0, lowest))
    for ax in sheet.axes.flat[len(places) :]:
        ax.set_axis_off()
    return sheet, panels


def against(name, family, style):
    """A line of final scores against the values of an argument."""
    return family, [config[name] for config in family], style


def tasks_at(suite, config, name):
    """The image by task of the values of an argument at a configuration, which it names if that is not the base."""
    if config == suite.base:
        return task_grid(suite, "games", suite.family(name), RETURNS, name)
    words = suite.in_multiples(config)
    metrics = [(RETURN, f"return\nat {words}")]
    return task_grid(suite, f"games_{words.replace('×', 'x')}", suite.family(name, config), metrics, name)


def profiles(suite):
    """rliable's performance profiles: the share of runs, and of tasks' means, with a score above each tau."""
    in_order = dict.fromkeys([*suite.scaled_alone(), *suite.configs])  # N-scaling, then T-scaling
    scored = [config for config in in_order if suite.can_compare([config])]
    configs = fewer(suite, scored)
    if not configs:
        return None
    by = "configuration" if suite.varies[2:] else "n_by_t"
    style, sheet = styles(suite, configs, by), Sheet(suite, "profiles", 1, 2, 2.5, sharey=True)
    scores = np.concatenate([x for config in configs for x in suite.sample(config)])
    low, high = scores.min(), np.quantile(scores, 0.99)
    beyond = 0.05 * (high - low) or 0.05
    taus = np.linspace(low - beyond, high + beyond, BAND_POINTS)

    def of_runs(sample):
        return np.mean([(x > taus.reshape(-1, *[1] * x.ndim)).mean(-1) for x in sample], axis=0)

    def of_tasks(sample):
        return np.mean([x.mean(-1) > taus.reshape(-1, *[1] * (x.ndim - 1)) for x in sample], axis=0)

    for ax, statistic, name, title in (
        (sheet.axes[0][0], of_runs, "runs", "runs"),
        (sheet.axes[0][1], of_tasks, "games", "tasks as means over seeds"),
    ):
        for config in configs:
            value, low, high = interval(statistic, [suite.sample(config)], min(suite.reps, BAND_REPS), suite.seed)
            line = style[config]
            sheet.legend[line["label"]] = line
            ax.plot(taus, value, drawstyle="steps-post", **line)
            if len(configs) < MOST_CURVES:
                ax.fill_between(taus, low, high, step="post", color=line["color"], alpha=0.15, lw=0, zorder=1)
            sheet.record(config, "all", f"share of {name} above tau", taus, value, low, high, x_column="tau")
        ax.set(title=_with_count(title, configs, scored), xlabel=f"score τ ({suite.unit_words})", ylim=(-0.02, 1.02))
        sheet.finish(ax, "no final\nscores yet")
        ax.set_yticks(np.linspace(0, 1, 5))
    sheet.axes[0][0].set_ylabel("share with a score above τ")
    sheet.caption = (
        "Left: the share of runs with a score above the threshold τ. Right: the share of tasks whose mean over seeds "
        "is above τ. The higher a line, the better."
    )
    return sheet


def task_grid(suite, part, configs, metrics, by="n_by_t"):
    """A row per task, a column per metric; or, of one metric, tasks side by side: mean over seeds with its 95 % CI.

    metrics: [(tag, label)]; those that no run has are left out. Runs that ended early are thin lines to a cross, unless
    no other runs are there.
    """
    tasks, drawn = suite.shown, fewer(suite, configs)
    metrics = suite.records(metrics) or metrics[:1]
    one_metric = len(metrics) == 1
    if one_metric:
        columns = len(tasks) if len(tasks) < 5 else 4 if len(tasks) in (7, 8) else 5
        rows = -(-len(tasks) // columns)
        panels = [(task, *metrics[0]) for task in tasks]
    else:
        columns, rows = len(metrics), len(tasks)
        panels = [(task, tag, label) for task in tasks for tag, label in metrics]
    sheet = Sheet(suite, part, rows, columns, 0.6 + rows * (1.25 if rows > 2 else 1.5), sharex=suite.axis != "steps")
    if drawn != configs:
        sheet.figure.suptitle(_with_count("", drawn, configs), fontsize=8)
    not_here = "" if suite.base in drawn else BASE
    style = {
        config: {**line, "label": line["label"].removesuffix(not_here) + suite.missing_in(config, tasks)}
        for config, line in styles(suite, drawn, by).items()
    }
    for ax in sheet.axes.flat[len(panels) :]:
        ax.set_axis_off()
    for i, (ax, (task, tag, label)) in enumerate(zip(sheet.axes.flat, panels)):
        row, column = divmod(i, columns)
        ax.set_autoscale_on(False)  # once is enough, and not after each curve
        for config in drawn:
            until = suite.dotted_until(config, [task], sheet.axis) if tag == RETURN else None
            sheet.curve(ax, config, task, tag, suite.mean_curve(config, task, tag, sheet.axis), style[config], until)
            _draw_unfinished(sheet, ax, config, task, tag, style[config]["color"])
        ax.autoscale()
        if one_metric:
            ax.set_title(wrapped(task, 70 // columns))
            ax.set_ylabel("" if column else label)
        else:
            ax.set_title("" if row else label)
            ax.set_ylabel("" if column else wrapped(task))
        lowest = i + columns >= len(panels)
        sheet.finish_curves(ax, x_label=lowest)
        ax.xaxis.label.set_fontsize(7)
        ax.tick_params(labelbottom=lowest)
    sheet.figure.align_ylabels()
    sheet.caption = (
        f"Each task: the mean over seeds with its 95 % interval, against {training_runs.AXES[sheet.axis]}. A thin "
        "line to a cross is a run that ended early."
    )
    return sheet


def wrapped(task, width=14):
    """The name of a task in lines of some `width` letters; a longer word stays whole."""
    return textwrap.fill(task.replace("-", "- "), width, break_long_words=False).replace("- ", "-")


def _draw_unfinished(sheet, ax, config, task, tag, color):
    for run in sheet.suite.of(config, task):
        if run.end and run not in sheet.suite.drawn(config, task):
            x, y = run.curve(tag, sheet.axis)
            until = run.enough_episodes_from(sheet.axis) if tag == RETURN else 0.0
            y = as_shown(tag, y)
            draw_line(ax, x, y, until, lw=0.6, alpha=0.6, color=color)
            ax.plot(x[-1:], y[-1:], "x", ms=3, color=color)


def diagnostics_panels(suite):
    """Each diagnostic against the factor of N and of T, over the base's in its task: full batch above, probe below.

    Means over tasks. T times k has the batch and the gradient steps of N times k. None if there is nothing to compare.
    A diagnostic without a multiple has no panels; a note says why.
    """
    names = [tag.split("/")[1] for tag, _ in suite.records(DYNAMICS + POLICY)]
    n_family, n_label = suite.family("num_envs"), "N × factor"
    if len(n_family) == 1:
        n_family, n_label = suite.same_batch(), "N × factor at one batch"
    families = [
        (n_family, "num_envs", {**N_LINE, "label": n_label}),
        (suite.family("num_steps"), "num_steps", {**T_LINE, "label": "T × factor"}),
    ]
    families = [family for family in families if len(family[0]) > 1]
    why = {name: _why_no_multiples(suite, name, [configs for configs, *_ in families]) for name in names}
    names = [name for name in names if not why[name]]
    if not names or not families:
        return None
    x_label = "factor" if len(families) > 1 else families[0][2]["label"].replace(" at", "\nat")
    factors = sorted({config[arg] / suite.base[arg] for configs, arg, _ in families for config in configs})
    sheet = Sheet(suite, "diagnostics", 2, len(names), 3.2, sharex=True, sharey="col")
    for row, (place, place_label) in enumerate((("diagnostics", "full batch"), ("probe", "probe"))):
        for column, name in enumerate(names):
            ax = sheet.axes[row][column]
            for configs, arg, style in families:
                _draw_relative(sheet, ax, f"{place}/{name}", configs, arg, style)
            sheet.finish(ax, "no\nmultiple")
            if ax.lines:
                ax.plot(1, 1, "o", color="black", zorder=4)
                ax.axhline(1, color="black", lw=0.6, ls=":", zorder=1)
            mark_ticks(ax, factors if len(factors) < 4 else factors[:: -(-len(factors) // 3)])
            ax.set_title("" if row else textwrap.fill(_plain(name), 10))
            ax.set_xlabel(x_label if row else "")
            ax.set_ylabel("" if column else f"{place_label}\n(base = 1)")
    notes = "; ".join(f"{_plain(name)}: {words}" for name, words in why.items() if words)
    sheet.figure.supxlabel(f"not drawn: {notes}" if notes else "", fontsize=6.5)
    sheet.caption = (
        "Each diagnostic, its mean over the second half of a run and over the tasks, as a multiple of the base's, "
        "against the factor by which N or T grows. Above: measured on the run's own batch. Below: on a sample of one "
        "fixed size."
    )
    return sheet


def _plain(name):
    """A diagnostic as it is drawn, without its unit."""
    return SHOWN[name].removesuffix(" (%)")


def _why_no_multiples(suite, name, families):
    """Why a diagnostic has no multiples of the base's, native or on the probe, in any of the families; "" if it has."""
    tags = [f"{place}/{name}" for place in ("diagnostics", "probe")]
    if any(_of_base(suite, tag, configs) for tag in tags for configs in families):
        return ""
    values = [as_shown(tag, suite.second_half_means(suite.base, task, tag)) for tag in tags for task in suite.all_tasks]
    values = np.concatenate(values)
    if not values.size:
        return "not at the base"
    return "not in all settings" if values.any() else "0 at the base"


def _of_base(suite, tag, configs):
    """{task: the base's mean of a tag} where all of the configurations have it and the base's is not 0."""
    found = {}
    for task in suite.all_tasks:
        of_base = as_shown(tag, suite.second_half_means(suite.base, task, tag))
        if of_base.any() and all(suite.second_half_means(config, task, tag).size for config in configs):
            found[task] = abs(of_base.mean())
    return found


def _draw_relative(sheet, ax, tag, configs, arg, style):
    """The mean over tasks of a tag in multiples of the base's, against the factor of one argument."""
    suite = sheet.suite
    base_values = _of_base(suite, tag, configs)
    if not base_values:
        return
    factors, estimates = [config[arg] / suite.base[arg] for config in configs], []
    for config, factor in zip(configs, factors):
        sample = [
            as_shown(tag, suite.second_half_means(config, task, tag)) / value for task, value in base_values.items()
        ]
        estimates.append([float(x) for x in interval(mean, [sample], BAND_REPS, suite.seed)])
        sheet.record(config, "all", f"{tag} over the base's", factor, *estimates[-1], x_column="factor")
    sheet.points(ax, factors, estimates, style)


# ---- pictures of results/: scores.png --------------------------------------------------------------------------------
def facets(scores, rows, labels, xlabel, title, joined=True):
    """A row of panels for each of `rows`, a column for each task.

    rows: {title: [the configuration at each place of the x-axis, or None]}. labels: the places of the x-axis. joined:
    whether a line joins the means: not between categories. A point is a run; the mean has its 95 % interval.
    """
    figure, axes = plt.subplots(
        len(rows),
        len(scores.tasks),
        figsize=(PAGE, 0.75 + 1.25 * len(rows)),
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    for (name, configs), row, color in zip(rows.items(), axes, COLORS * len(rows)):
        for task, axis in zip(scores.tasks, row, strict=True):
            view = scores.in_task(task)
            places = [place for place, config in enumerate(configs) if config and view.has(config)]
            points(axis, places, [view.sample(configs[place])[0] for place in places], color, "-" if joined else "")
            axis.set_ylim(-0.08, 1.08)
            axis.set_yticks([0, 0.5, 1])
            axis.grid(False, axis="x")
        row[0].set_ylabel(f"{name}\nscore" if name else "score")
    for task, axis in zip(scores.tasks, axes[0], strict=True):
        axis.set_title(task)
    for axis in axes[-1]:
        axis.set_xticks(range(len(labels)), labels)
        if sum(map(len, labels)) * LETTER > PAGE / len(scores.tasks) - 0.5:  # they do not fit side by side
            axis.tick_params(axis="x", rotation=45)
            plt.setp(axis.get_xticklabels(), ha="right", rotation_mode="anchor")
        axis.set_xlim(-0.4, len(labels) - 0.6)
    few = scores.seeds([config for configs in rows.values() for config in configs if config]) < SEEDS_FOR_A_VERDICT
    figure.supxlabel(f"{xlabel}{'; open: fewer than ten seeds' * few}".removeprefix("; "), fontsize=8)
    figure.suptitle(title, fontsize=8)
    return figure


def points(axis, places, samples, color, line="-"):
    """Draws samples (seeds,): each run as a point, the mean with its 95 % interval, open with fewer than ten seeds."""
    for place, sample in zip(places, samples, strict=True):
        axis.plot(np.full(len(sample), place), sample, "o", color=color, ms=3, alpha=0.4, mec="none", zorder=1)
    axis.plot(places, [sample.mean() for sample in samples], color=color, ls=line or "none", zorder=2)
    for place, sample in zip(places, samples, strict=True):
        found, few = evidence(mean, [[sample]]).estimate, len(sample) < SEEDS_FOR_A_VERDICT
        face = "white" if few else color
        axis.errorbar(place, found.value, found.ends, color=color, marker="o", ms=4, mfc=face, capsize=2, zorder=3)
