"""P1: the default rate is about the best at N x 2."""

from analysis.claims import Claims
from analysis.estimates import MARGIN
from analysis.parts import changes_little, n_by_t_name, sensitivity, settings_of
from analysis.suite import short

FIGURE = "P1, Fig. 11"
VARIES = ("learning_rate",)
IQM = True


def claims(suite):
    found = Claims(suite)
    settings, families = settings_of(suite, "learning_rate")
    rows = []
    for setting in settings:
        default = setting["learning_rate"]
        for config in [config for config in families[setting] if config != setting]:
            value = short(config["learning_rate"])
            row = found.compare(
                f"  lr {value} is no better than lr {short(default)} at {n_by_t_name(setting)}",
                [setting],
                [config],
                f"mean({short(default)}) - mean({value}) > -{MARGIN:.0%} of the base",
                "not less",
            )
            rows.append(row)
    found.all_together(f"lr {short(suite.base['learning_rate'])} is about the best", rows, "not less", primary=True)
    changes_little(suite, found, "learning_rate")
    return found


def sheets(suite):
    yield from sensitivity(suite, "learning_rate", "learning rate")
