"""Isaac Gym and mjlab behind one interface, and which of their tasks ppo_isaacgym.py can run.

Import this module before torch: Isaac Gym refuses to be imported after it. Python 3.8, for Isaac Gym.

MjlabEnvs and IsaacGymEnvs have these attributes and methods, in which N is the number of environments:

    sizes: the widths of the actor's observation, of the critic's own (0: it has none) and of the action
    episode_length: steps to the time limit
    reset(steps_done) -> next_obs (N, D), next_valid
    set_ages(ages (N,) int64): the first episode of environment n ends as if it had begun ages[n] steps before `reset`
    step(action (N, A)) -> next_obs (N, D), reward (N,), terminated (N,), truncated (N,), next_valid, ended, last_obs

Observations have the actor's columns first, then the critic's. `next_valid`, (N,) or one bool, says whether the next
step is a real one, not only a reset. `ended` has the indices of the environments that this step has reset, `last_obs`
the observations that they had before it.
"""

import contextlib
import difflib
import io
import os
import re
import sys

try:
    if re.search("--env[-_]id[= ]Mjlab-", " ".join(sys.argv)):
        raise ImportError("not asked for")
    import isaacgym  # noqa: F401 - it refuses to be imported after torch
    import isaacgymenvs
except ImportError as error:
    isaacgymenvs, no_isaacgym = None, str(error)
import torch

from support import arguments

# Isaac Gym's tasks that reset one step late and observe plain vectors. AnymalTerrain and the HumanoidAMP tasks reset in
# another way, AllegroHandDextreme's observations are a dict, and some of the files in cfg/task are no tasks.
ISAACGYM_TASKS = (
    *("AllegroHand", "AllegroHandFF", "AllegroHandLSTM", "Ant", "Anymal", "BallBalance", "Cartpole", "FrankaCabinet"),
    *("FrankaCubeStack", "Humanoid", "Ingenuity", "Quadcopter", "ShadowHand", "ShadowHandOpenAI_FF"),
    *("ShadowHandOpenAI_LSTM", "Trifinger"),
)


def tasks_of(env_id):
    """(tasks, missing): the tasks of the simulator that `env_id` names; why none runs here, or None if they do."""
    on_mjlab = env_id.startswith("Mjlab-")
    if isaacgymenvs and not on_mjlab:
        return ISAACGYM_TASKS, None
    tasks = mjlab_tasks()
    if on_mjlab:
        return tasks, None if tasks else "runs on mjlab, which is not here: pip install -r requirements-mjlab.txt"
    here = " ".join(tasks) or "after pip install -r requirements-mjlab.txt, Mjlab-Cartpole-Balance and others"
    return tasks, (
        f"runs on Isaac Gym, which is not here ({no_isaacgym}): NVIDIA has it, after a login, for Python 3.6 to 3.8 at "
        f"developer.nvidia.com/isaac-gym. What runs now: {here}"
    )


def check_env_id(env_id):
    """Refuses a task whose simulator is not installed, and what is not a task of it, with the nearest names."""
    tasks, missing = tasks_of(env_id)
    if missing:
        arguments.fail(f"--env-id {env_id} {missing}")
    if env_id not in tasks:
        near = " ".join(difflib.get_close_matches(env_id, tasks, 3, 0.3) or tasks)
        arguments.fail(f"--env-id {env_id} is not a task that runs here; near: {near}")


def mjlab_tasks():
    """mjlab's tasks, without those that need a camera's encoder or a motion file; [] if mjlab is not installed."""
    os.environ.setdefault("MUJOCO_GL", "disable")  # training draws nothing, and must not need EGL
    try:
        import warp

        warp.config.log_level = warp.LOG_ERROR  # it would report each kernel in the middle of the progress bar
        import mjlab.tasks.registry as registry
    except ImportError:
        return []
    cfgs = {task: registry.load_env_cfg(task) for task in registry.list_tasks()}
    return [task for task, cfg in cfgs.items() if not {"camera", "motion"} & {*cfg.observations, *cfg.commands}]


def play(envs, steps_done, act, bar):
    """Plays one whole episode in each of N environments. act: maps observations (N, D) to actions (N, A).

    Returns the raw returns, a list of floats. `bar` shows the progress.
    """
    obs, _ = envs.reset(steps_done)
    returns = torch.zeros(len(obs), device=obs.device)
    playing = torch.ones(len(obs), dtype=torch.bool, device=obs.device)
    while playing.any():
        obs, reward, terminated, truncated, *_ = envs.step(act(obs))
        returns += torch.where(playing, reward, 0.0)
        over = playing & (terminated | truncated)
        playing &= ~over
        bar.update(int(over.sum()))
    return returns.tolist()


class MjlabEnvs:
    """mjlab. It is told not to reset by itself, which would lose the last observations: `step` does it."""

    def __init__(self, args, num_envs, seed, device, render_mode=None):
        from mjlab.envs import ManagerBasedRlEnv
        from mjlab.tasks.registry import load_env_cfg

        cfg = load_env_cfg(args.env_id)
        cfg.scene.num_envs, cfg.seed, cfg.auto_reset = num_envs, seed, False
        with contextlib.redirect_stdout(io.StringIO()):  # it prints tables
            self.env = ManagerBasedRlEnv(cfg, str(device), render_mode)
        spaces = self.env.single_observation_space.spaces
        self.sizes = spaces["actor"].shape + spaces["critic"].shape + self.env.single_action_space.shape
        self.episode_length = self.env.max_episode_length

    def reset(self, steps_done):
        self.env.common_step_counter = steps_done  # its curricula depend on it
        obs, _ = self.env.reset()
        return torch.cat([obs["actor"], obs["critic"]], dim=1), True

    def set_ages(self, ages):
        self.env.episode_length_buf[:] = ages

    def step(self, action):
        obs, reward, terminated, truncated, _ = self.env.step(action)  # mjlab's actions have no bounds
        next_obs = torch.cat([obs["actor"], obs["critic"]], dim=1)
        ended = (terminated | truncated).nonzero().squeeze(-1)  # waits for the GPU, as mjlab's own step has done
        last_obs = next_obs[ended]
        if len(ended) > 0:
            obs, _ = self.env.reset(env_ids=ended)
            next_obs[ended] = torch.cat([obs["actor"], obs["critic"]], dim=1)[ended]
        terminated = terminated | (truncated & self.env.cfg.is_finite_horizon)  # such a limit is part of the task
        return next_obs, reward, terminated, truncated, True, ended, last_obs


class IsaacGymEnvs:
    """Isaac Gym. `done` comes with the last observation. The next step resets: its row mixes two episodes."""

    def __init__(self, args, num_envs, seed, device):
        torch.manual_seed(seed)  # its tasks draw from torch's generator
        self.env = isaacgymenvs.make(
            seed, args.env_id, num_envs, str(device), str(device), device.index or 0, True, force_render=False
        )
        self.sizes = (*self.env.observation_space.shape, self.env.num_states, *self.env.action_space.shape)
        self.episode_length = self.env.max_episode_length - 1  # the step that resets counts, too
        self.ages = None

    def reset(self, steps_done):
        return torch.cat([*self.env.reset().values()], dim=1), False  # zeros: the first step resets

    def set_ages(self, ages):
        self.ages = ages  # the first step sets all ages to 0: they are added after it

    def step(self, action):
        obs, reward, done, extras = self.env.step(action.clamp(-1.0, 1.0))  # the bounds of every task
        if self.ages is not None:
            self.env.progress_buf += self.ages
            self.ages = None
        done, time_outs = done.bool(), extras["time_outs"].bool()
        return torch.cat([*obs.values()], dim=1), reward, done & ~time_outs, done & time_outs, ~done, (), None
