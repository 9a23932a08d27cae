"""Which arguments a run begins with: defaults that depend on the task, and P3's recipe for more environments.

P3 is Beukman et al. 2026, arXiv 2603.06009. Pure arithmetic. Python 3.8.
"""

import math
from fractions import Fraction
from typing import Any, Dict, Tuple

WAYS = ("more-minibatches", "bigger-minibatches", "sqrt-lr", "hybrid:B")  # of --scaling

# Defaults of ppo_envpool.py where actions are continuous, other than those of its Args.
CONTINUOUS: Dict[str, Any] = dict(
    total_timesteps=1_000_000,
    learning_rate=3e-4,
    num_minibatches=32,
    update_epochs=10,
    ent_coef=0.0,
    norm_obs=True,
    norm_reward=True,
)

# Defaults of ppo_isaacgym.py for the tasks whose names begin so, later entries first: those of mjlab's own
# configurations of rsl_rl. Total steps are its iterations x steps x 4096 environments, as in its documented commands.
TASKS: Dict[str, Dict[str, Any]] = {
    "Mjlab-": dict(
        num_envs=4096,
        total_timesteps=983_040_000,
        num_steps=24,
        num_minibatches=4,
        update_epochs=5,
        learning_rate=1e-3,
        desired_kl=0.01,
        ent_coef=0.01,
        clip_vloss=True,
        norm_obs=True,
        hidden_sizes=(512, 256, 128),
        activation="elu",
        orthogonal_init=False,
    ),
    "Mjlab-Cartpole": dict(total_timesteps=65_536_000, num_steps=32, norm_obs=False, hidden_sizes=(64, 64)),
    "Mjlab-Lift-Cube": dict(total_timesteps=491_520_000, ent_coef=0.005),
    "Mjlab-Velocity-Flat-Unitree-G1": dict(total_timesteps=2_949_120_000),
    "Mjlab-Velocity-Rough-Unitree-G1": dict(total_timesteps=2_949_120_000),
}


def task_defaults(env_id: str) -> Dict[str, Any]:
    """Those of TASKS for one task; {} if it has none of its own."""
    return {name: value for task in TASKS if env_id.startswith(task) for name, value in TASKS[task].items()}


def scaled(
    num_envs: int, scale_from: int, num_steps: int, num_minibatches: int, learning_rate: float, scaling: str
) -> Tuple[int, int, float]:
    """P3's ways to spend a batch of c = num_envs / scale_from times as many rows (section 5 and Fig. 9).

    num_minibatches, learning_rate: those of the base, which has `scale_from` environments; num_steps: of both. The
    minibatches become b times as large, their number c / b times as large, and the learning rate a times:

        more-minibatches    b = 1, a = 1: P3's advice
        bigger-minibatches  b = c, a = 1
        sqrt-lr             b = c, a = sqrt(b)
        hybrid:B            b = B, a = sqrt(b): for hardware that more-minibatches would leave idle

    c may be below 1. Returns (minibatch_size, num_minibatches, learning_rate). ValueError, with what was expected, if
    the way is unknown or a number is not whole.
    """
    c = Fraction(num_envs, scale_from)
    if scaling in WAYS[:3]:
        b = Fraction(1) if scaling == WAYS[0] else c
    else:
        try:
            b = Fraction(scaling[len("hybrid:") :] if scaling.startswith("hybrid:") else "")
        except (ValueError, ZeroDivisionError):
            b = Fraction(0)
        if b <= 0:
            raise ValueError(f"--scaling {scaling}: expected {', '.join(WAYS)} with a positive number B")
    size, number = Fraction(scale_from * num_steps, num_minibatches) * b, num_minibatches * c / b
    if size.denominator > 1 or number.denominator > 1:
        raise ValueError(
            f"--scaling {scaling} from {scale_from} to {num_envs} environments gives {_decimal(number)} minibatches of "
            f"{_decimal(size)} rows: expected whole numbers; choose another --num-envs or --scale-from"
        )
    return int(size), int(number), learning_rate * (1.0 if scaling in WAYS[:2] else math.sqrt(b))


def _decimal(number: Fraction) -> str:
    return f"{float(number):g}"
