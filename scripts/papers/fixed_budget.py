"""A batch of one size, from many environments or from long rollouts: P1 compares the base with N and T exchanged."""

from analysis.claims import Claims
from analysis.drawing import DYNAMICS, RETURNS, against, curve_panels, diagnostics_panels, task_grid
from analysis.sheets import BLACK
from analysis.suite import label_of

FIGURE = "P1, Fig. 1a"
VARIES = ("num_envs", "num_steps")
IQM = True


def claims(suite):
    found = Claims(suite)
    base, others = suite.base, [config for config in suite.same_batch() if config != suite.base]
    exchanged = [config for config in others if config.n_by_t == base.n_by_t[::-1]]
    first = (exchanged or others[-1:])[:1]
    found.compare(
        f"{label_of(first[0]) if first else 'more environments'} beats {label_of(base)}",
        first,
        [base],
        "mean - mean(base)",
        primary=True,
    )
    for config in [config for config in others if config not in first]:
        found.compare(f"  {label_of(config)} beats {label_of(base)}", [config], [base], "mean - mean(base)")
    found.diagnostics()
    return found


def sheets(suite):
    configs = suite.same_batch()
    finals = [("N at one batch", "log", [against("num_envs", configs, BLACK)])] if len(configs) > 2 else []
    yield curve_panels(suite, [("", configs, "n_by_t")], finals)
    yield task_grid(suite, "games", configs, RETURNS + DYNAMICS)
    yield diagnostics_panels(suite)
