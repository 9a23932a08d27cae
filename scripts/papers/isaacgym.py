"""Physics: many environments at one batch, and more of them."""

from analysis.claims import Claims
from analysis.drawing import DYNAMICS, RETURNS, curve_panels, diagnostics_panels, task_grid
from analysis.parts import against_factor, more_environments, one_batch, scaling
from analysis.suite import label_of

FIGURE = "P1, Fig. 7 and 18"
VARIES = ("num_envs", "num_steps")
IQM = True


def claims(suite):
    found = Claims(suite)
    configs = suite.same_batch()
    if len(configs) > 1:
        found.compare(
            f"many environments win at one batch: {label_of(configs[-1])} beats {label_of(configs[0])}",
            configs[-1:],
            configs[:1],
            "mean(most environments) - mean(longest rollouts)",
            primary=True,
        )
    scaling(suite, found)
    found.diagnostics()
    return found


def sheets(suite):
    yield curve_panels(suite, [one_batch(suite), more_environments(suite)], against_factor(suite))
    yield task_grid(suite, "fixed", suite.same_batch(), RETURNS)
    yield task_grid(suite, "games", suite.family("num_envs"), RETURNS + DYNAMICS)
    yield diagnostics_panels(suite)
