"""The scripts learn. Each case is a game and a budget at which a policy that does not learn cannot pass."""

import json

import pytest
from conftest import curves, run

LEARNS = [
    # Road Runner's random policy scores 11.5 (Mnih et al. 2015); seeds 1, 2 and 3 reached 105, 115 and 88
    ("ppo_atari_envpool.py", "--env-id RoadRunner-v5 --total-timesteps 36864 --num-envs 16 --num-steps 64 "
     "--learning-rate 5e-4 --update-epochs 4", 50),
    ("pqn_atari_envpool.py", "--env-id RoadRunner-v5 --total-timesteps 36864 --num-envs 16 --num-steps 64 "
     "--learning-rate 5e-4 --update-epochs 4", 40),  # seed 1 reached 84
]


@pytest.mark.parametrize("script,words,score", LEARNS)
def test_the_return_rises(script, words, score, tmp_path):
    run(script, tmp_path, *words.split(), "--no-diagnostics", "--num-logs", 8)
    returns = [value for _, value in curves(tmp_path / "run")["charts/episodic_return"]]
    assert json.loads((tmp_path / "run/done.json").read_text())["episodic_return"] == pytest.approx(returns[-1])
    assert returns[-1] > score, returns
    assert returns[-1] > 2 * returns[1], f"it stands still: {returns}"
