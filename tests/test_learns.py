"""The scripts learn. Each case is a task and a budget at which a policy that does not learn cannot pass."""

import importlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
from conftest import curves, run, train_here

BF16 = "--bf16" if "avx512_bf16" in Path("/proc/cpuinfo").read_text() else ""  # elsewhere it is emulated, and slow
ROAD_RUNNER = (
    "--env-id RoadRunner-v5 --total-timesteps 49152 --num-envs 16 --num-steps 64 --learning-rate 5e-4 "
    f"--update-epochs 4 {BF16}"
)
CART_POLE = "--total-timesteps 16384 --num-envs 8 --num-steps 64 --update-epochs 4 --learning-rate 3e-3"
slow = pytest.mark.skipif("ALL_TESTS" not in os.environ, reason="minutes: ALL_TESTS=1 runs it")
LEARNS = [  # the words, and a return that is out of reach of a random policy at any of the eight points
    ("ppo_envpool.py", CART_POLE, 100),  # it lasts 22 steps; seeds 1 to 4 end at 139 to 144
    # it scores 11.5 (Mnih et al. 2015), the mean of 100 games +- 3
    pytest.param("ppo_atari_envpool.py", ROAD_RUNNER, 40, marks=slow),
    pytest.param("pqn_atari_envpool.py", ROAD_RUNNER, 40, marks=slow),
]


@pytest.mark.timeout(2400)  # a minute where the CPU computes in bfloat16, six on a slow one that does not
@pytest.mark.parametrize("script,words,level", LEARNS)
def test_the_return_rises(script, words, level, tmp_path):
    run(script, tmp_path, *words.split(), "--no-diagnostics", "--num-logs", 8)
    returns = [value for _, value in curves(tmp_path / "run")["charts/episodic_return"]]
    assert json.loads((tmp_path / "run/done.json").read_text())["episodic_return"] == pytest.approx(returns[-1])
    assert max(returns) > level, returns


class TwoLooks:
    """A make_envs whose rewards networks learn in seconds: 1 for one action in half of the environments, 1 for
    another in the others, whose frames are inverted. A policy that does not look gets half of them.
    """

    def __init__(self, make_envs, actions):
        self.make_envs, self.actions, self.calls = make_envs, actions, 0

    def __call__(self, args, seeds, num_threads):
        envs, inverted = self.make_envs(args, seeds, num_threads), self.calls % 2
        self.calls += 1
        step, reset, done = envs.step, envs.reset, np.zeros(len(seeds), bool)

        def look(obs):
            return 255 - obs if inverted else obs

        def step_of_the_task(actions):
            obs, _, terminated, truncated, info = step(actions)
            reward = ((actions == self.actions[inverted]) & ~done).astype(np.float32)  # none in an autoreset step
            np.logical_or(terminated, truncated, out=done)
            return look(obs), reward, terminated, truncated, {**info, "reward": reward}

        envs.step, envs.reset = step_of_the_task, lambda: (look(reset()[0]), {})
        return envs


@pytest.mark.parametrize(
    "script,actions,words",
    [
        # seeds 1 to 4 end at 0.82 to 0.94
        ("ppo_atari_envpool", (2, 3), "--total-timesteps 1536"),
        # 0.87 to 0.90 at this step of longer runs
        ("pqn_atari_envpool", (2, 3), "--total-timesteps 768 --end-e 0.1 --exploration-fraction 0.5"),
        # 0.92 to 0.97
        ("ppo_rnd_envpool", (2, 3), "--env-id Breakout-v5 --total-timesteps 1536 --num-iterations-obs-norm-init 1"),
        # 0.99 to 1.00; one of 15 actions is paid
        ("ppo_procgen", (7, 1), "--env-id bigfish --total-timesteps 3072"),
    ],
)
def test_from_pixels(script, actions, words, tmp_path, monkeypatch):
    """The reward of a step at the last of the points, 256 steps apart."""
    module = importlib.import_module(script)
    words += " --num-envs 16 --num-steps 16 --update-epochs 2 --minibatch-size 64 --learning-rate 1e-3 --gamma 0.5"
    words += f" --no-diagnostics --num-logs 12 --num-threads 1 --runs-dir {tmp_path} --run-name run"
    monkeypatch.setattr(module, "make_envs", TwoLooks(module.make_envs, actions))
    train_here(module, module.parse_args(words.split()))
    rewards = [value for _, value in curves(tmp_path / "run")["charts/reward"]]
    assert rewards[-1] > 0.7, rewards
