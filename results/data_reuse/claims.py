"""Do more environments undo the harm of more epochs? More epochs at a base, with N x 2 and with T x 2 (P1, Fig. 1c).

Registered for 8 epochs at 8x128; figures.py tests the same claims at each larger number of epochs, on any base.
"""

from analysis.claims import Claims
from analysis.drawing import against, curve_panels, facets, tasks_at
from analysis.sheets import styles

VARIES = ("num_envs", "num_steps", "update_epochs")
FIXED = {}
BASE = {"num_envs": 8, "num_steps": 128, "update_epochs": 4}
FIGURE = "P1, Fig. 1c"
IQM = True


def settings(scores):
    """The base, N x 2 and T x 2, of those with runs at the base's number of epochs."""
    doubled = [list(scores.scaled(name).values())[:1] for name in ("num_envs", "num_steps")]
    return [scores.base], *doubled


def claims(scores):
    found, base = Claims(scores), scores.base
    fewest = base["update_epochs"]
    for count in [config["update_epochs"] for config in scores.family("update_epochs")]:
        if count <= fewest:
            continue
        after = [[config.replace(update_epochs=count) for config in configs] for configs in settings(scores)]
        names = ["{}x{}".format(*configs[0].n_by_t) if configs else "" for configs in after]
        text = f"at {names[0]} {count} epochs are worse than {fewest}"
        found.compare(text, after[0], base, name="R1", side="less", primary=True)
        for name, other in (("R2", 0), ("R3", 2)):
            if after[1] and after[other]:
                text = f"at {count} epochs {names[1]} is better than {names[other]}"
                found.compare(text, after[1], after[other], name=name, primary=True)
    return found


def draw(scores):
    found = [config for configs in settings(scores) for config in configs]
    rows = {"{}×{}".format(*config.n_by_t): [config, config.replace(update_epochs=8)] for config in found}
    return facets(scores, rows, ["4", "8"], "epochs", "More epochs, learning rate 2.5e-4, 100,000 steps", joined=False)


def sheets(suite):
    """Curves by the number of epochs, with the final scores, and those of each task."""
    name, configs = "update_epochs", [config for of_setting in settings(suite) for config in of_setting]
    style = styles(suite, configs)
    lines = [against(name, suite.family(name, config), style[config]) for config in style]
    panels = [
        (f"{config[name]} epochs", [one for one in suite.configs if one[name] == config[name]], "n_by_t")
        for config in suite.family(name)
    ]
    yield curve_panels(suite, panels, [("epochs", "log", lines)])
    for config in style:
        yield tasks_at(suite, config, name)
