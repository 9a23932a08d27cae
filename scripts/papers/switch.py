"""P3: what a com (PPO-EWMA) reaches does not depend on the com before, up or down."""

import itertools

import numpy as np
from analysis.claims import Claims
from analysis.drawing import RETURNS, sheet_of_tasks, task_grid
from analysis.estimates import MARGIN
from analysis.look import BLUES, DASHED, DOTTED, GRAY, ramp
from analysis.training_runs import AXES

FIGURE = "P3, Fig. 3a"
VARIES = ("prox_com", "total_timesteps", "resume_from")
OUTER = [("outer/kl_behavior", "KL of an update"), ("losses/grad_norm", "gradient norm")]


def by_com(suite):
    """Of the sweep `switch`: {com: configuration} of the parents, {(com before, com after): configuration}."""
    parents, children = {}, {}
    for config, _, _ in suite.runs:
        if config["resume_from"] is None and config["prox_com"] is not None:
            parents[config["prox_com"]] = config
    for (config, _, _), run in suite.runs.items():
        before = suite.parents[run.name].arguments["prox_com"] if run.name in suite.parents else None
        if before in parents and config["prox_com"] is not None:
            children[before, config["prox_com"]] = config
    return dict(sorted(parents.items())), dict(sorted(children.items()))


def claims(suite):
    found = Claims(suite)
    parents, children = by_com(suite)
    for low, high in itertools.combinations(parents, 2):
        raised, lowered, low_throughout, high_throughout = (
            [children[pair]] if pair in children else []
            for pair in ((low, high), (high, low), (low, low), (high, high))
        )
        found.compare(
            f"P3: raising the com from {low:g} to {high:g} ends above staying at {low:g}",
            raised,
            low_throughout,
            f"mean({low:g}, then {high:g}) - mean({low:g} throughout)",
            primary=not found,
        )
        found.compare(
            f"  raised to {high:g} it ends no lower than {high:g} throughout",
            raised,
            high_throughout,
            f"mean({low:g}, then {high:g}) - mean({high:g} throughout) > -{MARGIN:.0%} of the base",
            "not less",
        )
        found.compare(
            f"P3: lowering the com from {high:g} to {low:g} ends below staying at {high:g}",
            lowered,
            high_throughout,
            f"mean({high:g}, then {low:g}) - mean({high:g} throughout)",
            "less",
        )
        found.compare(
            f"  lowered to {low:g} it ends close to {low:g} throughout",
            lowered,
            low_throughout,
            f"mean({high:g}, then {low:g}) - mean({low:g} throughout) inside ±{MARGIN:.0%} of the base",
            "little",
        )
        found.compare(
            f"  at the switch com {low:g} is below com {high:g}",
            [parents[low]],
            [parents[high]],
            f"mean({low:g}) - mean({high:g}) of the parents",
            "less",
        )
    return found


def curves_by_task(suite, style, mark=None):
    """Curves of the score in all tasks together, if there are several, and in each.

    mark: the x of a vertical line, or None. style: {configuration: Line2D properties}.
    """
    sheet, panels = sheet_of_tasks(suite, "", 1.0, 1.5, sharex=suite.axis != "steps")
    for ax, task, view, leftmost, lowest in panels:
        for config, line in style.items():
            until = view.dotted_until(config, view.tasks, sheet.axis)
            sheet.curve(ax, config, task, suite.pool_name, view.aggregate(config, sheet.axis), line, until)
        if mark is not None:
            ax.axvline(mark, color=GRAY, lw=0.8, ls=DOTTED, zorder=1)
        ax.set_ylabel(f"{suite.pool_name} ({suite.unit_words})" if leftmost else "")
        sheet.finish_curves(ax, x_label=lowest)
    sheet.has_runs = True
    sheet.caption = (
        f"The {suite.pool_name} of the scores, in all tasks together and in each, against "
        f"{AXES[sheet.axis]}, with its 95 % interval."
    )
    if mark is not None:
        sheet.caption += " The vertical line is the step at which the settings change."
    return sheet


def sheets(suite):
    """Fig. 3a: parents, and their children from the switch on. The colour is that of the com, also after the switch."""
    parents, children = by_com(suite)
    coms = sorted({*parents, *(com for _, com in children)})
    colors = dict(zip(coms, ["black", *ramp(BLUES, len(coms) - 1)]))
    style = {config: dict(color=colors[com], label=f"com {com:g}") for com, config in parents.items()}
    for (before, com), config in children.items():
        changed = dict(ls=DASHED, label=f"{before:g} → {com:g}", zorder=3)
        style[config] = {"color": colors[com], **(changed if before != com else {"label": f"com {com:g}"})}
    switches = [
        run.on_axis([run.manifest["parent"]["global_step"]], suite.axis)
        for run in suite.runs.values()
        if run.manifest.get("parent") and suite.axis != "hours"  # every run has its own speed
    ]
    yield curves_by_task(suite, style, np.mean(switches) if switches else None)
    yield task_grid(suite, "games", list(style), RETURNS + OUTER, style)
