"""EnvPool's Atari alone: steps of all environments with random actions, and nothing else. Prints steps/s as it goes.

python results/benchmark/envpool_alone.py Breakout-v5 8 4 3    # 8 environments, 4 threads, 3 seconds
"""

import sys
import time

import envpool
import numpy as np

env_id, (num_envs, threads), seconds = sys.argv[1], map(int, sys.argv[2:4]), float(sys.argv[4])
options = {"num_envs": num_envs, "num_threads": threads, "seed": 1, "episodic_life": True, "reward_clip": True}
envs = envpool.make(env_id, env_type="gymnasium", **options)
envs.reset()
actions = np.random.default_rng(1).integers(0, envs.action_space.n, (1000, num_envs), dtype=np.int32)
end = time.perf_counter() + seconds
step = 0
while time.perf_counter() < end:
    start, first = time.perf_counter(), step
    while time.perf_counter() < start + seconds / 6:
        envs.step(actions[step % len(actions)])
        step += 1
    print(f"{(step - first) * num_envs / (time.perf_counter() - start):.1f} steps/s", flush=True)
