"""Our question: what does a raised learning rate buy, and what does N x T do at that rate?"""

from analysis.claims import Claims
from analysis.drawing import curve_panels, diagnostics_panels
from analysis.sheets import styles
from analysis.suite import label_of

FIGURE = "our question: raise the rate first"
VARIES = ("num_envs", "num_steps", "learning_rate")


def raised(suite):
    """The configurations with another rate than the base's: the base's N x T first."""
    found = [config for config in suite.configs if config["learning_rate"] != suite.base["learning_rate"]]
    return sorted(found, key=lambda config: config.n_by_t != suite.base.n_by_t)


def claims(suite):
    found, others = Claims(suite), raised(suite)
    of_base = [config for config in others if config.n_by_t == suite.base.n_by_t]
    for config in of_base:
        text = f"{label_of(config)} beats {label_of(suite.base)}"
        found.compare(text, [config], [suite.base], "mean - mean(base)", primary=not found)
    for config in others:
        same_rate = [other for other in of_base if other["learning_rate"] == config["learning_rate"]]
        if config not in of_base and same_rate:
            text = f"  at that rate {label_of(config)} is below {label_of(same_rate[0])}"
            found.compare(text, [config], same_rate[:1], "mean - mean", "less")
    found.diagnostics()
    return found


def sheets(suite):
    configs = [config for config in [suite.base, *raised(suite)] if config in suite.configs]
    style = styles(suite, configs, "configuration")
    points = [([config], [i], {**style[config], "ls": "none", "label": None}) for i, config in enumerate(configs)]
    sheet = curve_panels(suite, [("", configs, "configuration")], [("", "none", points)])
    final = sheet.axes[0][-1]
    final.set_xticks(range(len(configs)), [label_of(config).replace(" ", "\n", 1) for config in configs])
    final.set(xlim=(-0.5, len(configs) - 0.5), ylim=(0, None))
    yield sheet
    yield diagnostics_panels(suite)
