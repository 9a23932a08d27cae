"""P1's future work: do N and T that change in training beat the best N x T that is kept?"""

from analysis.claims import Claims
from analysis.comparisons import judge_each, over_each
from analysis.drawing import RETURNS, curve_panels, task_grid
from analysis.estimates import several
from analysis.look import DASH_DOTTED
from analysis.sheets import styles
from analysis.suite import name_of_schedule

FIGURE = "P1's future work: N and T that change in training"
VARIES = ("num_envs", "num_steps", "schedule")


def by_schedule(suite):
    """(configurations of one N x T, {name of a schedule: its configuration})."""
    fixed = [config for config in suite.configs if not config["schedule"]]
    return fixed, {name_of_schedule(config["schedule"]): config for config in suite.configs if config["schedule"]}


def claims(suite):
    found = Claims(suite)
    fixed, scheduled = by_schedule(suite)

    for name, config in scheduled.items():

        def over_the_fixed(view, config=config):
            samples = [view.sample(x) for x in (config, *fixed)]
            return judge_each(several(over_each, samples), "more")

        found.add(
            f"{name} beats the best fixed N x T",
            over_the_fixed,
            [config, *fixed] if fixed else [],
            quantity="mean - mean of each fixed N x T, the smallest",
            side="more",
            primary=True,
        )
    pair = [[scheduled[name]] if name in scheduled else [] for name in ("growing N", "growing T")]
    found.compare("growing N beats growing T", *pair, "mean - mean", primary=True)
    return found


def sheets(suite):
    """Curves of the schedules beside the fixed N x T, and of each task with its N."""
    fixed, scheduled = by_schedule(suite)
    changing = styles(suite, list(scheduled.values()), "configuration")
    style = {**styles(suite, fixed), **{config: {**line, "ls": DASH_DOTTED} for config, line in changing.items()}}
    panels = [("fixed N×T", fixed, style), ("schedules", list(scheduled.values()), style)]
    yield curve_panels(suite, panels)
    yield task_grid(suite, "games", [*fixed, *scheduled.values()], [*RETURNS, ("charts/num_envs", "N")], style)
