"""P1's reviewers: does the final score rise with N?"""

from analysis.claims import NO_FINAL_SCORES, Claims
from analysis.drawing import DYNAMICS, RETURNS, against, curve_panels, diagnostics_panels, task_grid
from analysis.estimates import kendall, nothing
from analysis.sheets import N_LINE

FIGURE = "P1's reviewers"
VARIES = ("num_envs",)


def claims(suite):
    found = Claims(suite)
    family = suite.family("num_envs")
    groups = []
    if suite.can_compare(family):
        groups = [[suite.values(config, task) for config in family] for task in suite.tasks]
    levels = [config["num_envs"] for config in family]
    text = "the final score rises with N (the reviewers' question: P1 claims no trend)"
    tau = kendall(levels, groups) if groups else nothing(NO_FINAL_SCORES)
    found.trend(text, tau, levels, groups, "more", family, family="primary")
    for start in [level for level in (256, 512) if level in levels[:-1]] or levels[-2:-1]:
        above = [config for config in family if config["num_envs"] > start]
        at = [config for config in family if config["num_envs"] == start]
        found.compare(
            f"N beyond {start} still gains",
            above,
            at * len(above),
            f"mean(N > {start}) - mean(N = {start}), mean over N = {' '.join(str(c['num_envs']) for c in above)}",
        )
    found.diagnostics()
    return found


def sheets(suite):
    family, base = suite.family("num_envs"), suite.base
    lines = [
        against("num_envs", family, {**N_LINE, "label": None}),
        against("num_envs", [base], dict(color="black", zorder=4)),
    ]
    yield curve_panels(suite, [], [(f"N (T = {base['num_steps']})", "log", lines)])
    yield curve_panels(suite, [("", family, "n_by_t")], part="curves")
    yield task_grid(suite, "games", family, RETURNS + DYNAMICS)
    yield diagnostics_panels(suite)
