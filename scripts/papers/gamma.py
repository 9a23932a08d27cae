"""P1: the gain of T x 2 does not depend on the discount factor."""

from analysis.claims import Claims
from analysis.estimates import MARGIN
from analysis.parts import changes_little, sensitivity, settings_of
from analysis.suite import short

FIGURE = "P1, Fig. 12"
VARIES = ("num_steps", "gamma")
IQM = True


def claims(suite):
    found = Claims(suite)
    settings, families = settings_of(suite, "gamma")
    base, default, rows = suite.base, suite.base["gamma"], []
    for setting in [setting for setting in settings if setting != base]:
        for config in [config for config in families[base] if config["gamma"] != default]:
            value = short(config["gamma"])
            row = found.compare_gains(
                f"  the gain of {suite.in_multiples(setting)} is the same at γ {value}",
                [setting.replace(gamma=config["gamma"]), config],
                [setting, base],
                f"gain({value}) - gain({short(default)}) inside ±{MARGIN:.0%} of the base",
                "little",
            )
            rows.append(row)
    found.all_together("the gain of a longer rollout does not depend on γ", rows, "little")
    changes_little(suite, found, "gamma")
    return found


def sheets(suite):
    yield from sensitivity(suite, "gamma", "discount factor γ")
