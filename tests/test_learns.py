"""The scripts learn. Each case is a game and a budget at which a policy that does not learn cannot pass."""

import json
import os
from pathlib import Path

import pytest
from conftest import curves, run

BF16 = "--bf16" if "avx512_bf16" in Path("/proc/cpuinfo").read_text() else ""  # elsewhere it is emulated, and slow
ROAD_RUNNER = (
    "--env-id RoadRunner-v5 --total-timesteps 49152 --num-envs 16 --num-steps 64 --learning-rate 5e-4 "
    f"--update-epochs 4 {BF16}"
)
CART_POLE = "--total-timesteps 50176 --num-envs 8 --num-steps 128 --update-epochs 4 --learning-rate 1e-3"
LEARNS = [  # the words, and a return that is out of reach of a random policy at any of the eight points
    ("ppo_atari_envpool.py", ROAD_RUNNER, 40),  # it scores 11.5 (Mnih et al. 2015), the mean of 100 games +- 3
    ("ppo_envpool.py", CART_POLE, 150),  # it lasts 22 steps
    pytest.param(
        "pqn_atari_envpool.py",
        ROAD_RUNNER,
        40,
        marks=pytest.mark.skipif("ALL_TESTS" not in os.environ, reason="two minutes: ALL_TESTS=1 runs it"),
    ),
]


@pytest.mark.timeout(2400)  # a minute where the CPU computes in bfloat16, six on a slow one that does not
@pytest.mark.parametrize("script,words,level", LEARNS)
def test_the_return_rises(script, words, level, tmp_path):
    run(script, tmp_path, *words.split(), "--no-diagnostics", "--num-logs", 8)
    returns = [value for _, value in curves(tmp_path / "run")["charts/episodic_return"]]
    assert json.loads((tmp_path / "run/done.json").read_text())["episodic_return"] == pytest.approx(returns[-1])
    assert max(returns) > level, returns
