"""Which arguments a run begins with: defaults that depend on the task. Pure arithmetic; imports nothing. Python 3.8."""

from typing import Any, Dict

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
