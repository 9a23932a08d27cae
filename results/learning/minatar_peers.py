"""What ppo_envpool.py is seen beside on MinAtar's Breakout; results/benchmark/benchmark_packs.py times the commands.

    python results/learning/minatar_peers.py alone NUM_ENVS STEPS
    python results/learning/minatar_peers.py cleanrl /tmp/cleanrl/cleanrl/ppo.py NUM_ENVS NUM_STEPS STEPS [FLAG ...]

alone: the environments take random actions, and nothing is learned. cleanrl: CleanRL's ppo.py as it is, with
ppo_envpool.py's network for a small image in place of its two MLPs. Prints the mean return of its last episodes, about
100. Flags are those of ppo.py, such as `--seed 2 --learning-rate 1e-3`.
"""

import os
import sys
import tempfile
from pathlib import Path

import gymnasium
import minatar_tasks  # noqa: F401 - registers MinAtar
import numpy as np
import torch
from torch import nn

ENV_ID = "MinAtar/Breakout-v1"


def alone(num_envs, steps):
    envs = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make(ENV_ID) for _ in range(num_envs)])
    envs.reset(seed=1)
    rng = np.random.default_rng(1)
    for _ in range(steps // num_envs):
        envs.step(rng.integers(envs.single_action_space.n, size=num_envs))


class Agent(nn.Module):
    """16 kernels of 3 x 3 and 128 units that actor and critic share, with what ppo.py asks of its Agent."""

    def __init__(self, envs):
        super().__init__()
        rows, columns, channels = envs.single_observation_space.shape

        def initialised(layer, gain):
            nn.init.orthogonal_(layer.weight, gain)
            nn.init.zeros_(layer.bias)
            return layer

        self.network = nn.Sequential(
            initialised(nn.Conv2d(channels, 16, 3), 2**0.5),
            nn.ReLU(),
            nn.Flatten(),
            initialised(nn.Linear(16 * (rows - 2) * (columns - 2), 128), 2**0.5),
            nn.ReLU(),
        )
        self.actor = initialised(nn.Linear(128, int(envs.single_action_space.n)), 0.01)
        self.critic = initialised(nn.Linear(128, 1), 1.0)

    def get_value(self, x):
        return self.critic(self.network(x.permute(0, 3, 1, 2)))

    def get_action_and_value(self, x, action=None):
        x = self.network(x.permute(0, 3, 1, 2))
        policy = torch.distributions.Categorical(logits=self.actor(x))
        action = policy.sample() if action is None else action
        return action, policy.log_prob(action), policy.entropy(), self.critic(x)


def cleanrl(path, num_envs, num_steps, steps, *more):
    source = Path(path).read_text()
    assert source.count("agent = Agent(envs)") == 1, f"{path}: expected CleanRL's ppo.py"
    flags = f"--no-cuda --num-envs {num_envs} --num-steps {num_steps} --total-timesteps {steps}"
    sys.argv = [path, "--env-id", ENV_ID, *flags.split(), *more]
    names = {**globals(), "SmallImageAgent": Agent}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # it writes to runs/
        code = compile(source.replace("agent = Agent(envs)", "agent = SmallImageAgent(envs)"), path, "exec")
        exec(code, names)
    # ppo.py looks for returns where gymnasium had them before 1.0
    each = -(-100 // int(num_envs))
    returns = [game for env in names["envs"].envs for game in list(env.return_queue)[-each:]]
    print(f"return of the last {len(returns)} episodes: {np.mean(returns) if returns else np.nan:.2f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    name, *words = sys.argv[1:]
    if name == "alone":
        alone(*map(int, words))
    else:
        cleanrl(*words)
