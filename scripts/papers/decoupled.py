"""Separate encoders of policy and value: P1 has them collapse at the base and recover at N x 2."""

from analysis.claims import Claims
from analysis.drawing import curve_panels, task_grid
from analysis.estimates import MARGIN
from analysis.training_runs import RETURN

FIGURE = "P1, Fig. 5"
VARIES = ("num_envs", "shared_encoder")
IQM = True


def claims(suite):
    found = Claims(suite)
    shared = suite.base.replace(shared_encoder=True)
    separate = suite.base.replace(shared_encoder=False)
    doubled = list(suite.scaled("num_envs").values())[:1]  # N x 2
    shared_doubled = [config.replace(shared_encoder=True) for config in doubled]
    separate_doubled = [config.replace(shared_encoder=False) for config in doubled]
    found.compare(
        "separate encoders collapse at the base", [separate], [shared], "mean(separate) - mean(shared)", "less"
    )
    found.compare(
        "separate encoders recover at N × 2",
        separate_doubled,
        [separate],
        "mean(separate, N×2) - mean(separate, base)",
        primary=True,
    )
    found.compare(
        "  at N × 2 separate encoders are not below shared ones",
        separate_doubled,
        shared_doubled,
        f"mean(separate, N×2) - mean(shared, N×2) > -{MARGIN:.0%} of the base",
        "not less",
    )
    found.compare_gains(
        "separate encoders gain more from N × 2 than shared ones",
        [*separate_doubled, separate],
        [*shared_doubled, shared],
        "gain(separate) - gain(shared)",
        "more",
    )
    return found


def sheets(suite):
    with_shared = [config for config in suite.configs if config["shared_encoder"] is True]
    with_separate = [config for config in suite.configs if config["shared_encoder"] is False]
    panels = [("shared encoder", with_shared, "n_by_t"), ("separate encoders", with_separate, "n_by_t")]
    yield curve_panels(suite, panels)
    yield task_grid(suite, "games", with_separate, [(RETURN, "return,\nseparate encoders")])
    yield task_grid(suite, "games_shared", with_shared, [(RETURN, "return,\nshared encoder")])
