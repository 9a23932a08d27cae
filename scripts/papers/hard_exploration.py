"""Games that are hard to explore: P1 has N-scaling equivalent or improved, in each of them."""

from analysis.claims import Claims
from analysis.drawing import DYNAMICS, RETURNS, curve_panels, diagnostics_panels, task_grid
from analysis.estimates import MARGIN
from analysis.parts import against_factor, mean_over, sample_efficiency, scaling

FIGURE = "P1, Fig. 15"
VARIES = ("num_envs",)
IQM = True


def claims(suite):
    found = Claims(suite)
    n_scaled = suite.scaled("num_envs")
    if n_scaled:
        found.compare(
            "N-scaling is equivalent or improves",
            list(n_scaled.values()),
            [suite.base] * len(n_scaled),
            f"mean(N×k) - mean(base) > -{MARGIN:.0%} of the base, {mean_over(n_scaled)}",
            "not less",
            primary=True,
            by_task=True,
        )
    scaling(suite, found)
    sample_efficiency(suite, found)
    found.diagnostics()
    return found


def sheets(suite):
    configs = suite.scaled_alone()
    yield curve_panels(suite, [("", configs, "n_by_t")], against_factor(suite))
    if suite.script == "ppo_rnd_envpool":
        yield task_grid(suite, "games", configs, RETURNS)
        yield task_grid(suite, "dynamics", configs, [("charts/intrinsic_reward", "intrinsic reward"), *DYNAMICS])
    else:
        yield task_grid(suite, "games", configs, RETURNS + DYNAMICS)
    yield diagnostics_panels(suite)
