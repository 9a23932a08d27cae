"""What RND's bonus is for: a corridor of 24 frames without any reward, walked by ppo_rnd_envpool.py as it is.

    python results/learning/rnd_corridor.py --int-coef 1 --seed 1 --runs-dir runs/learning/rnd_corridor \\
        --run-name bonus__s1

At each place one in four actions, another one at each place, leads to the next place; all others lead one place back.
Each place has a frame of its own, of random blocks. An episode ends after 200 steps. So a random walk drifts back, and
a policy without a bonus has nothing to learn from. The places take the part of Montezuma's rooms: charts/rooms has how
many were entered in any environment. The flags are those of ppo_rnd_envpool.py, with other defaults.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT  # noqa: F401

import numpy as np

import ppo_rnd_envpool as rnd

PLACES, STEPS = 24, 200
DEFAULTS = "--num-envs 16 --num-steps 32 --num-minibatches 4 --total-timesteps 40960 --num-iterations-obs-norm-init 2"
DEFAULTS += " --num-logs 80 --learning-rate 5e-4 --num-threads 1 --eval-episodes 0"


class Corridor:
    """N environments with what the script needs of EnvPool's: reset, step, and in `info` the console's RAM."""

    def __init__(self, args, seeds):
        rng = np.random.default_rng(0)  # the same corridor in every run
        blocks = rng.integers(0, 256, (PLACES, 12, 12), dtype=np.uint8)
        self.frames = np.kron(blocks, np.ones((7, 7), np.uint8))
        self.keys = rng.integers(0, 4, PLACES)
        self.bytes = rnd.ROOM_BYTES[args.env_id]
        self.num_envs = len(seeds)

    def observe(self):
        """Four equal frames: (N, 4, 84, 84) uint8."""
        return np.repeat(self.frames[self.place][:, None], 4, axis=1)

    def reset(self):
        self.place, self.time = np.zeros(self.num_envs, int), np.zeros(self.num_envs, int)
        return self.observe(), {}

    def step(self, actions):
        again = self.time == STEPS  # the step after an episode only resets
        ahead = np.where(actions % 4 == self.keys[self.place], 1, -1)
        self.place = np.where(again, 0, (self.place + ahead).clip(0, PLACES - 1))
        self.time = np.where(again, 0, self.time + 1)
        ram = np.zeros((self.num_envs, 128), np.uint8)
        ram[:, self.bytes[0]] = self.place
        nothing, truncated = np.zeros(self.num_envs, np.float32), self.time == STEPS
        info = {"reward": nothing, "terminated": np.zeros(self.num_envs, bool), "ram": ram}
        return self.observe(), nothing, info["terminated"], truncated, info

    def close(self):
        pass


if __name__ == "__main__":
    rnd.make_envs = Corridor
    rnd.main(rnd.parse_args([*DEFAULTS.split(), *sys.argv[1:]]))
