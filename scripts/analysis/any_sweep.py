"""A sweep without a module of its own (sweeps.py): every setting against the base."""

from analysis.claims import Claims
from analysis.drawing import DYNAMICS, POLICY, RETURNS, curve_panels, diagnostics_panels, task_grid
from analysis.estimates import MARGIN
from analysis.sheets import styles
from analysis.suite import label_of

FIGURE = "a sweep of its own"
VARIES = ()


def claims(suite):
    found = Claims(suite)
    others = [config for config in suite.configs if config != suite.base]
    for config in others:
        quantity = f"mean({label_of(config)}) - mean(base)"
        found.compare(f"{label_of(config)} beats the base", [config], [suite.base], quantity, primary=len(others) == 1)
    for config in others:
        quantity = f"mean({label_of(config)}) - mean(base) inside ±{MARGIN:.0%} of the base"
        found.compare(f"{label_of(config)} is close to the base", [config], [suite.base], quantity, "little")
    found.diagnostics()
    return found


def sheets(suite):
    by = "configuration" if suite.varies[2:] else "n_by_t"
    style = styles(suite, suite.configs, by)
    points = [([config], [i], {**style[config], "ls": "none", "label": None}) for i, config in enumerate(suite.configs)]
    yield curve_panels(suite, [("", suite.configs, by)], [("configuration", "none", points)])
    yield task_grid(suite, "games", suite.configs, RETURNS + DYNAMICS, by)
    if suite.records(POLICY):
        yield task_grid(suite, "policy", suite.configs, RETURNS + POLICY, by)
    yield diagnostics_panels(suite)
