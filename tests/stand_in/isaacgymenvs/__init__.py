"""Stands in for IsaacGymEnvs: `make` and what it returns have the interface and the late reset of its tasks.

Read from isaacgymenvs/tasks/base/vec_task.py, cartpole.py and ant.py. What a caller can trip over is kept:
- `reset()` computes nothing: it returns zeros, and `reset_buf` is 1 at first, so the first `step` resets.
- The step that ends an episode returns its true last observation. The next one resets: its action is without effect on
  the new episode, and its reward is that of the new episode's first observation.
- rewards and resets are the task's own buffers, which the next step overwrites; resets are int64, not bool.
- `time_outs` is the time limit and any reset: a death in the time limit's own step is one, too.
"""

from types import SimpleNamespace

import torch


class VecTask:
    num_states = 0
    max_episode_length = 500

    def __init__(self, num_envs, device):
        self.num_envs, self.device = num_envs, device
        self.observation_space = SimpleNamespace(shape=(self.num_obs,))
        self.action_space = SimpleNamespace(shape=(self.num_actions,))
        self.obs_buf = torch.zeros(num_envs, self.num_obs, device=device)
        self.states_buf = torch.zeros(num_envs, self.num_states, device=device)
        self.rew_buf = torch.zeros(num_envs, device=device)
        self.reset_buf = torch.ones(num_envs, device=device, dtype=torch.long)
        self.progress_buf = torch.zeros(num_envs, device=device, dtype=torch.long)
        self.obs_dict, self.extras = {}, {}

    def observe(self):
        self.obs_dict["obs"] = self.obs_buf.clone()
        if self.num_states > 0:
            self.obs_dict["states"] = self.states_buf.clone()
        return self.obs_dict

    def reset(self):
        return self.observe()

    def step(self, actions):
        assert actions.shape == (self.num_envs, self.num_actions) and actions.abs().max() <= 1.0
        self.pre_physics_step(actions)
        self.progress_buf += 1
        env_ids = self.reset_buf.nonzero().squeeze(-1)
        if len(env_ids) > 0:
            self.reset_idx(env_ids)
            self.progress_buf[env_ids] = 0
            self.reset_buf[env_ids] = 0
        self.post_physics_step()
        time_outs = (self.progress_buf >= self.max_episode_length - 1) & (self.reset_buf != 0)
        self.extras["time_outs"] = time_outs
        return self.observe(), self.rew_buf, self.reset_buf, self.extras


class Cartpole(VecTask):
    """A pole on a cart: enough of a task to be learnt."""

    num_obs, num_actions = 4, 1

    def __init__(self, num_envs, device):
        super().__init__(num_envs, device)
        self.state = torch.zeros(num_envs, 4, device=device)  # cart position and velocity, pole angle and velocity

    def reset_idx(self, env_ids):
        self.state[env_ids] = 0.2 * (torch.rand(len(env_ids), 4, device=self.device) - 0.5)

    def pre_physics_step(self, actions):
        position, velocity, angle, spin = self.state.unbind(1)
        push = 10.0 * actions[:, 0]
        spin_rate = 15.0 * torch.sin(angle) - 1.5 * push * torch.cos(angle)
        rates = torch.stack([velocity, push, spin, spin_rate], dim=1)
        self.state = self.state + 0.0166 * rates

    def post_physics_step(self):
        self.obs_buf[:] = self.state
        position, velocity, angle, spin = self.state.unbind(1)
        lost = (position.abs() > 3.0) | (angle.abs() > 1.57)
        reward = 1.0 - angle.square() - 0.01 * velocity.abs() - 0.005 * spin.abs()
        self.rew_buf[:] = torch.where(lost, torch.full_like(reward, -2.0), reward)
        self.reset_buf[:] = (lost | (self.progress_buf >= self.max_episode_length - 1)).long()


class Ant(VecTask):
    """No physics: a clock, in which every number can be told in advance. Environment n observes (n, steps since the
    reset), its critic the negatives; the reward is steps + 1. The even ones die at step 3, the others time out at 5."""

    num_obs, num_states, num_actions = 2, 2, 3
    max_episode_length = 6

    def reset_idx(self, env_ids):
        pass

    def pre_physics_step(self, actions):
        pass

    def post_physics_step(self):
        numbers = torch.arange(self.num_envs, device=self.device)
        self.obs_buf[:] = torch.stack([numbers, self.progress_buf], dim=1)
        self.states_buf[:] = -self.obs_buf
        self.rew_buf[:] = self.progress_buf + 1.0
        dead = (numbers % 2 == 0) & (self.progress_buf >= 3)
        self.reset_buf[:] = (dead | (self.progress_buf >= self.max_episode_length - 1)).long()


def make(
    seed,
    task,
    num_envs,
    sim_device,
    rl_device,
    graphics_device_id=-1,
    headless=False,
    multi_gpu=False,
    virtual_screen_capture=False,
    force_render=True,
    cfg=None,
):
    assert sim_device == rl_device
    return {"Cartpole": Cartpole, "Ant": Ant}[task](num_envs, sim_device)
