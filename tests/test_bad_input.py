"""Bad input ends with one line that names the flag and what was expected, exit code 2, and no run directory."""

import importlib
import re
import sys

import pytest
from conftest import FIRST, ROOT, TRIED, command, environment, run_forked
from typing_extensions import get_type_hints

from support import arguments, catalog
from support.arguments import Pattern, Range

BAD = [  # the words, and what the one line must say
    ("--num-envz 8", "--num-envz"),
    ("stray", "stray"),
    ("--prox-com 3", "--prox-com is of ppo_ewma_atari_envpool.py, ppo_envpool.py and ppo_isaacgym.py: expected one"),
    ("--num-envs eight", "--num-envs"),
    ("--num-envs", "--num-envs"),
    ("--num-envs 0", "--num-envs 0 is out of range: expected 1 to"),
    ("--total-timesteps 100", "--total-timesteps 100 is less than one batch: expected at least 128"),
    ("--learning-rate -0.1", "--learning-rate -0.1 is out of range: expected 0 to"),
    ("--learning-rate nan", "--learning-rate nan"),
    ("--gamma 1.5", "--gamma 1.5 is out of range: expected 0 to 1"),
    ("--num-minibatches 3", "--num-minibatches 3 does not divide the batch of 128 = 4 envs x 32 steps"),
    ("--max-grad-norm 0", "--max-grad-norm"),
    ("--seed -1", "--seed"),
    ("--env-id Breakot-v5", "--env-id Breakot-v5 is not an Atari game of EnvPool; near: Breakout-v5"),
    ("--env-id Pendulum-v1", "--env-id Pendulum-v1"),
    ("--env-id BreakoutNoFrameskip-v4", "Breakout-v5"),
    ("--run-name .", "--run-name . is not a directory below --runs-dir"),
    ("--track", "--track"),
    ("--num-steps 1.5e0", "--num-steps 1.5e0: expected a whole number"),
    ("--total-timesteps 99999999999999999999", "--total-timesteps 99999999999999999999 is out of range: expected 1 to"),
    ("--num-threads 99999", "--num-threads 99999 is out of range: expected 0 to 1,024"),
    ("--run-name a/../../elsewhere", "--run-name a/../../elsewhere"),
    ("--anneal-lr False", "--anneal-lr"),  # what CleanRL's users know as a value is a pair of flags
    # 56 TB of frames: an input, not a crash of the allocator
    ("--num-steps 2000000000 --num-envs 1 --total-timesteps 4000000000", "--num-steps"),
]


def check(stderr, says):
    assert stderr.startswith("error: ") and stderr.count("\n") == 1 and stderr.endswith("\n"), stderr
    assert says in stderr, stderr


# test_sync.py holds the other arguments, their types and their limits to one text in all scripts
OF_EACH = ("stray", "--env-id Breakot", "--total-timesteps 100 ", "--num-minibatches 3", "--num-steps 2000000000")


def lines_of(script):
    """The lines of BAD for a script: all for the first, for the others those that its own text answers."""
    for words, says in BAD:
        if words.startswith("--env-id") and script in ("ppo_envpool.py", "ppo_procgen.py"):  # in their own tests
            continue
        if script == FIRST or f"{words} ".startswith(OF_EACH):
            yield script, words, says


@pytest.mark.parametrize("script,words,says", [line for script in TRIED for line in lines_of(script)])
def test_bad_input(script, words, says, tmp_path, capsys, monkeypatch):
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", "/dev/null")
    words = command(script, tmp_path / "runs")[2:] + words.split()
    with pytest.raises(SystemExit) as end:
        importlib.import_module(script[: -len(".py")]).parse_args(words)
    assert end.value.code == 2
    check(capsys.readouterr().err, says)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", [*catalog.SCRIPTS])
def test_every_number_has_limits(name):
    """The lines above have one of each type."""
    for field, hint in get_type_hints(importlib.import_module(name).Args, include_extras=True).items():
        if re.search(r"\b(int|float)\b", str(hint)) and field != "hidden_sizes":  # which has a check of its own
            assert any(isinstance(limit, (Range, Pattern)) for limit in arguments._limits(hint)), field


@pytest.mark.once
@pytest.mark.parametrize(
    "one,other", [("--num-minibatches 4", "--minibatch-size 64"), ("--minibatch_size=64", "--num_minibatches=4")]
)
def test_both_minibatch_flags(script, one, other, capsys):
    with pytest.raises(SystemExit) as end:
        importlib.import_module(script[: -len(".py")]).parse_args([*one.split(), *other.split()])
    assert end.value.code == 2
    check(capsys.readouterr().err, "--num-minibatches and --minibatch-size exclude each other")


@pytest.mark.once
def test_minibatch_size_must_divide(script, capsys):
    with pytest.raises(SystemExit) as end:
        importlib.import_module(script[: -len(".py")]).parse_args(["--minibatch-size", "100"])
    assert end.value.code == 2
    check(capsys.readouterr().err, "--minibatch-size 100 does not divide the batch of ")


@pytest.mark.once
def test_a_line_break_in_a_value(script, capsys):
    with pytest.raises(SystemExit) as end:
        importlib.import_module(script[: -len(".py")]).parse_args(["--env-id", "Break\nout-v5"])
    assert end.value.code == 2
    check(capsys.readouterr().err, "--env-id Break")


def test_as_a_user_sees_it(script, tmp_path):
    """The program itself: the exit code, one line, nothing on stdout, nothing left behind."""
    (tmp_path / "file").write_text("")
    for words, says in [(["--learning-rate", "-1"], "--learning-rate -1"), (["--runs-dir", "file"], "--runs-dir file")]:
        done = run_forked([*command(script, "runs"), *words], tmp_path, environment())
        assert done.returncode == 2 and done.stdout == ""
        check(done.stderr, says)
        assert [path.name for path in tmp_path.iterdir()] == ["file"]
    shown = run_forked([sys.executable, str(ROOT / script), "--help"], tmp_path, environment())
    assert shown.returncode == 0 and "--num-envs INT" in shown.stdout
