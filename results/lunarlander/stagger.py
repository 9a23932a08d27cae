"""ppo_envpool.py with environments out of phase: each has played 1000 random actions before the first rollout.

    python results/lunarlander/stagger.py --env-id LunarLander-v3 --num-envs 128 --num-steps 8 --minibatch-size 256 \\
        --learning-rate 2e-3 --total-timesteps 300000 --num-seeds 10 --num-logs 20 --eval-episodes 50 \\
        --runs-dir runs/lunarlander --run-name stagger
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT  # noqa: F401

import numpy as np

import ppo_envpool

RANDOM_ACTIONS = 1000
make_envs, made = ppo_envpool.make_envs, []


def staggered(args, seeds):
    """The episodes of the training out of phase; evaluation episodes begin as always."""
    envs = make_envs(args, seeds)
    if not made:
        reset, rng = envs.reset, np.random.default_rng(0)

        def reset_and_play():
            obs, info = reset()
            for _ in range(RANDOM_ACTIONS):
                obs = envs.step(rng.integers(0, envs.action_space.n, envs.shape))[0]
            return obs, info

        envs.reset = reset_and_play
    made.append(envs)
    return envs


if __name__ == "__main__":
    ppo_envpool.make_envs = staggered
    ppo_envpool.main(ppo_envpool.parse_args(sys.argv[1:]))
