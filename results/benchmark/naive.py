"""PPO as one writes it in an afternoon, for benchmark_packs.py: the same algorithm as ppo_envpool.py, eager PyTorch.

    python results/benchmark/naive.py CartPole-v1 8 128 100000    # task, environments, steps of a rollout, steps of all

No diagnostics, run directory, resumption or evaluation; EnvPool's autoreset steps are trained on. Prints the mean
return of the last 100 episodes.
"""

import sys

import envpool
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

env_id, num_envs, num_steps, total_steps = sys.argv[1], *map(int, sys.argv[2:5])
torch.manual_seed(1)
torch.set_num_threads(1)
envs = envpool.make(env_id, env_type="gymnasium", num_envs=num_envs, num_threads=1, seed=1)
inputs, num_actions = envs.observation_space.shape[0], int(envs.action_space.n)


def layer(inputs, outputs, gain=2**0.5):
    linear = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.zeros_(linear.bias)
    return linear


actor = nn.Sequential(layer(inputs, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, num_actions, 0.01))
critic = nn.Sequential(layer(inputs, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 1, 1.0))
parameters = [*actor.parameters(), *critic.parameters()]
optimizer = torch.optim.Adam(parameters, lr=2.5e-4, eps=1e-5, fused=True)
obs = torch.zeros(num_steps, num_envs, inputs)
actions, logprobs, rewards, dones, values = (torch.zeros(num_steps, num_envs) for _ in range(5))
next_obs, next_done = torch.as_tensor(envs.reset()[0], dtype=torch.float32), torch.zeros(num_envs)
running, returns, batch = np.zeros(num_envs), [], num_envs * num_steps
iterations = total_steps // batch
for iteration in range(iterations):
    optimizer.param_groups[0]["lr"] = 2.5e-4 * (1 - iteration / iterations)
    for t in range(num_steps):
        obs[t], dones[t] = next_obs, next_done
        with torch.no_grad():
            policy = Categorical(logits=actor(next_obs))
            actions[t] = action = policy.sample()
            logprobs[t], values[t] = policy.log_prob(action), critic(next_obs).flatten()
        seen, reward, terminated, truncated, _ = envs.step(action.numpy().astype(np.int32))
        rewards[t], done = torch.as_tensor(reward), terminated | truncated
        next_obs, next_done = torch.as_tensor(seen, dtype=torch.float32), torch.as_tensor(done, dtype=torch.float32)
        running += reward
        returns += running[done].tolist()
        running[done] = 0
    with torch.no_grad():
        advantages, last = torch.zeros_like(rewards), 0
        next_value, alive = critic(next_obs).flatten(), 1 - next_done
        for t in reversed(range(num_steps)):
            delta = rewards[t] + 0.99 * next_value * alive - values[t]
            advantages[t] = last = delta + 0.99 * 0.95 * alive * last
            next_value, alive = values[t], 1 - dones[t]
    columns = [x.flatten(0, 1) for x in (obs, actions, logprobs, advantages, advantages + values, values)]
    for _ in range(4):
        for rows in torch.randperm(batch).split(batch // 4):
            b_obs, b_actions, b_logprobs, b_advantages, b_returns, b_values = (x[rows] for x in columns)
            policy, value = Categorical(logits=actor(b_obs)), critic(b_obs).flatten()
            ratio = (policy.log_prob(b_actions) - b_logprobs).exp()
            b_advantages = (b_advantages - b_advantages.mean()) / (b_advantages.std() + 1e-8)
            policy_loss = -torch.min(b_advantages * ratio, b_advantages * ratio.clamp(0.8, 1.2)).mean()
            clipped = b_values + (value - b_values).clamp(-0.2, 0.2)
            value_loss = 0.5 * torch.max((value - b_returns) ** 2, (clipped - b_returns) ** 2).mean()
            loss = policy_loss - 0.01 * policy.entropy().mean() + 0.5 * value_loss
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 0.5)
            optimizer.step()
print(f"{np.mean(returns[-100:]):.1f}")
