"""P3's outer loop: the recipe for more environments, PPO-EWMA, the switch of a run, and schedules of shapes."""

from fractions import Fraction

import pytest

import ppo_envpool
import recipe


# ---- the recipe ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("num_envs", [2, 8, 32, 128, 1024])
@pytest.mark.parametrize("scaling", ["more-minibatches", "bigger-minibatches", "sqrt-lr", "hybrid:1/2", "hybrid:2"])
def test_the_recipe_keeps_its_invariants(scaling, num_envs):
    base_size, base_number, c = 8 * 128 // 8, 8, Fraction(num_envs, 8)
    size, number, rate = recipe.scaled(num_envs, 8, 128, base_number, 1e-3, scaling)
    assert size * number == num_envs * 128, "a row in no minibatch"
    b = {"more-minibatches": 1, "hybrid:1/2": Fraction(1, 2), "hybrid:2": 2}.get(scaling, c)
    assert size == base_size * b, "samples a minibatch"
    assert Fraction(number, num_envs) == Fraction(base_number, 8) / b, "gradient steps a transition"
    assert rate == pytest.approx(1e-3 * (float(b) ** 0.5 if scaling[:6] in ("sqrt-l", "hybrid") else 1))


def parsed(words, **expected):
    args = ppo_envpool.parse_args(words.split())
    assert {name: getattr(args, name) for name in expected} == expected
    return args


def test_the_recipe_in_a_command(capsys):
    parsed("--num-envs 32 --scale-from 8", minibatch_size=256, num_minibatches=16, learning_rate=2.5e-4)
    assert capsys.readouterr().out == (
        "--scaling more-minibatches from 8 to 32 environments: 16 minibatches of 256 rows, learning rate 0.00025\n"
    )
    parsed("--num-envs 2 --scaling more-minibatches", minibatch_size=256, num_minibatches=1, scale_from=8)
    parsed("--num-envs 2 --scaling sqrt-lr --learning-rate 4e-4", minibatch_size=64, learning_rate=2e-4)
    parsed("--num-envs 64 --scaling hybrid:4", minibatch_size=1024, num_minibatches=8, learning_rate=5e-4)
    hopper = "--env-id Hopper-v5 --num-envs 16 --scaling bigger-minibatches"  # 32 minibatches by default
    parsed(hopper, minibatch_size=64, num_minibatches=32, learning_rate=3e-4)
    parsed("--num-envs 32 --num-minibatches 8 --scale-from 16", minibatch_size=256, num_minibatches=16)
    parsed("--num-envs 32", minibatch_size=1024, num_minibatches=4, scale_from=None, scaling=None)


@pytest.mark.parametrize(
    "words,says",
    [
        ("--scaling linear", "--scaling linear: expected more-minibatches, bigger-minibatches, sqrt-lr, hybrid:B"),
        ("--scaling hybrid:0", "--scaling hybrid:0: expected"),
        ("--scaling hybrid:x", "--scaling hybrid:x: expected"),
        ("--num-envs 1 --scaling more-minibatches", "gives 0.5 minibatches of 256 rows: expected whole numbers"),
        ("--scale-from 8 --minibatch-size 256", "--scaling and --minibatch-size exclude each other"),
    ],
)
def test_what_the_recipe_refuses(words, says, capsys):
    with pytest.raises(SystemExit) as end:
        ppo_envpool.parse_args(words.split())
    error = capsys.readouterr().err
    assert end.value.code == 2 and error.startswith("error: --") and error.count("\n") == 1 and says in error
