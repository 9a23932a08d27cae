"""More data for each update, from more environments or from longer rollouts: P1 compares both at equal data."""

from analysis.claims import Claims
from analysis.drawing import DYNAMICS, POLICY, RETURNS, curve_panels, diagnostics_panels, task_grid
from analysis.parts import against_factor, more_environments, sample_efficiency, scaling
from analysis.training_runs import RETURN

FIGURE = "P1, Fig. 1b, 3, 4, 10, 17"
VARIES = ("num_envs", "num_steps")
IQM = True
UNSEEN = [  # Procgen with --num-levels
    (RETURN, "return in training"),
    ("charts/eval_episodic_return", "return, unseen levels"),
    ("charts/generalization_gap", "training - unseen levels"),
]


def claims(suite):
    found = Claims(suite)
    scaling(suite, found)
    sample_efficiency(suite, found)
    found.diagnostics()
    return found


def sheets(suite):
    n_family, t_family = suite.family("num_envs"), suite.family("num_steps")
    panels = [more_environments(suite), ("longer rollouts", t_family, "n_by_t")]
    yield curve_panels(suite, panels, against_factor(suite))
    if len(n_family) > 1 or len(t_family) == 1:
        yield task_grid(suite, "games", n_family, RETURNS + DYNAMICS)
    if len(t_family) > 1:
        yield task_grid(suite, "games_rollouts", t_family, RETURNS + DYNAMICS)
    if suite.script == "ppo_atari_envpool":  # Fig. 4
        yield task_grid(suite, "policy", suite.scaled_alone(), RETURNS + POLICY)
    if suite.records(UNSEEN)[1:]:
        yield task_grid(suite, "unseen", suite.scaled_alone(), UNSEEN)
    yield diagnostics_panels(suite)
