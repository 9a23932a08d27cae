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
LEARNS = [
    ("ppo_atari_envpool.py", ROAD_RUNNER),
    pytest.param(
        "pqn_atari_envpool.py",
        ROAD_RUNNER,
        marks=pytest.mark.skipif("ALL_TESTS" not in os.environ, reason="two minutes: ALL_TESTS=1 runs it"),
    ),
]


@pytest.mark.timeout(2400)  # a minute where the CPU computes in bfloat16, six on a slow one that does not
@pytest.mark.parametrize("script,words", LEARNS)
def test_the_return_rises(script, words, tmp_path):
    """Road Runner's random policy scores 11.5 (Mnih et al. 2015), and a mean of 100 of its games spreads by about 3: 40
    is out of its reach at any of the eight points."""
    run(script, tmp_path, *words.split(), "--no-diagnostics", "--num-logs", 8)
    returns = [value for _, value in curves(tmp_path / "run")["charts/episodic_return"]]
    assert json.loads((tmp_path / "run/done.json").read_text())["episodic_return"] == pytest.approx(returns[-1])
    assert max(returns) > 40, returns
