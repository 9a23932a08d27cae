"""scripts/advise.py: the command that it prints can be typed, and has the law's rate."""

import math
import shlex

import pandas as pd
import pytest
from conftest import ROOT, refusal

# isort: split
import advise

import ppo_envpool


def said(capsys, words):
    """The command that advise.py prints, in words, and the rest of its text."""
    advise.main(advise.parse_args(words.split()))
    first, _, rest = capsys.readouterr().out.partition("\n")
    return shlex.split(first), rest


@pytest.mark.parametrize(
    "words, k",
    [
        ("--env-id CartPole-v1 --steps 2e5", 4 / 256),
        ("--env-id Pendulum-v1 --steps 5e4 --minibatch-size 64 --update-epochs 10", 10 / 64),
    ],
)
def test_the_command_has_the_laws_rate_for_its_epochs_and_minibatches(capsys, words, k):
    command, rest = said(capsys, words)
    steps = int(float(words.split()[3]))
    args = ppo_envpool.parse_args(command[2:])
    law = 4e-3 * math.sqrt(150_000 / steps) * (16 / 1024) / k
    assert args.learning_rate == pytest.approx(law, rel=0.05)
    assert (args.num_envs, args.num_steps, args.num_seeds) == (8, 128, 3) and args.total_timesteps == steps
    assert args.update_epochs / args.minibatch_size == k
    assert f"evaluate.py runs/{args.run_name}" in rest and f"3 runs, {3 * steps:,} steps" in rest


def test_it_says_what_tasks_of_the_nearest_budget_got_and_when_it_guesses(capsys):
    table = pd.read_csv(ROOT / "results" / "atlas" / "by_budget.csv").set_index("steps")
    rest = said(capsys, "--env-id CartPole-v1 --steps 2e5")[1]
    of_150k = table.loc[150_000]
    assert f"{of_150k['tasks']:.0f} tasks of 150,000 steps" in rest and f"{of_150k['0.002']:.2f} at 2e-3" in rest
    assert "note:" not in rest
    assert "a guess" in said(capsys, "--env-id CartPole-v1 --steps 5e6")[1]


@pytest.mark.parametrize(
    "words, says",
    [
        ("--env-id Pong-v5 --steps 2e5", "expected python ppo_atari_envpool.py --env-id Pong-v5"),
        ("--env-id CartPol-v1 --steps 2e5", "--env-id CartPol-v1"),
        ("--env-id CartPole-v1 --steps 2e5 --minibatch-size 100", "--minibatch-size 100: expected"),
    ],
)
def test_what_it_cannot_answer_is_refused_in_one_line(capsys, words, says):
    assert says in refusal(capsys, advise.parse_args, words.split())
