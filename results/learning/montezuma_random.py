"""How often random play finds the key of Montezuma's Revenge.

python results/learning/montezuma_random.py 729600    # prints steps, finished games, and those with a reward
"""

import sys

import envpool
import numpy as np

N = 64


def main(steps):
    options = {"episodic_life": True, "reward_clip": True, "repeat_action_probability": 0.25}  # as ppo_rnd_envpool.py
    envs = envpool.make("MontezumaRevenge-v5", env_type="gymnasium", num_envs=N, num_threads=2, seed=11, **options)
    envs.reset()
    rng = np.random.default_rng(5)
    games, found, rewarded = 0, 0, np.zeros(N, bool)
    for _ in range(steps // N):
        _, _, _, truncated, info = envs.step(rng.integers(18, size=N, dtype=np.int32))
        rewarded |= info["reward"] > 0
        over = (info["terminated"] > 0) | truncated
        games, found = games + int(over.sum()), found + int(rewarded[over].sum())
        rewarded[over] = False
    print(f"{steps // N * N} steps, {games} games, {found} with a reward")


if __name__ == "__main__":
    main(int(sys.argv[1]))
