"""ppo_isaacgym.py: whole runs on the stand-in and on mjlab, in several processes, killed, resumed; Python 3.8."""

import ast
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import (
    ROOT,
    STAND_IN,
    Forked,
    curves,
    environment,
    load_checkpoint,
    raw_steps,
    refusal,
    two_ranks,
    wait_for,
)

import ppo_isaacgym as ppo

SCRIPT = "ppo_isaacgym.py"
needs_mjlab = pytest.mark.skipif(importlib.util.find_spec("mjlab") is None, reason="requirements-mjlab.txt")


def command(runs_dir, words):
    return [str(ROOT / SCRIPT), *words.split(), "--runs-dir", str(runs_dir), "--run-name", "run"]


def start(runs_dir, words, **env):
    """Starts the script on the stand-in, in a process of its own."""
    return Forked(
        [sys.executable, str(STAND_IN / "forked.py"), *command(runs_dir, words)], runs_dir, environment(**env)
    )


def finish(process, code=0):
    """Waits for the end of a process, checks its exit code, and returns what it has printed."""
    out, err = process.communicate()
    assert process.returncode == code, f"exit code {process.returncode}, not {code}\n{out}\n{err}"
    return SimpleNamespace(stdout=out, stderr=err)


def run(runs_dir, words, code=0):
    return finish(start(runs_dir, words), code)


# ---- several processes -----------------------------------------------------------------------------------------------
def test_torchrun(tmp_path):
    """Two processes write one directory and print once; the episodes of both count."""
    words = "--env-id Ant --num-envs 4 --num-steps 16 --total-timesteps 128 --norm-obs --probe-size 8 "
    ranks = [start(tmp_path, words + "--no-stagger-resets", **rank) for rank in two_ranks()]
    first, second = (finish(rank).stdout for rank in ranks)
    assert first.count("is finished") == 1 and "128/128" in first and second == ""
    scalars = curves(tmp_path / "run")
    assert [step for step, _ in scalars["charts/episodes"]] == [64, 128]
    assert scalars["charts/episodes"][-1][1] == 2 * 13  # as in one process with these environments
    assert scalars["charts/episodic_return"][-1][1] == pytest.approx((8 * 9 + 5 * 20) / 13)
    assert scalars["outer/ddr"][0][1] * scalars["outer/kl_behavior"][0][1] == pytest.approx(2 * 25, rel=1e-4)
    weights = load_checkpoint(tmp_path / "run")["agent"]
    assert weights["obs_sums"][0, 0] == 1 + 2 * 50
    assert json.loads((tmp_path / "run/done.json").read_text())["global_step"] == 128


# ---- simulators ------------------------------------------------------------------------------------------------------
@needs_mjlab
def test_mjlab_run(tmp_path):
    """A real run: complete, and without output from Warp or mjlab."""
    words = "--env-id Mjlab-Cartpole-Balance --num-envs 8 --num-steps 8 --norm-obs --probe-size 16"
    words = [sys.executable, *command(tmp_path, words + " --total-timesteps 256")]
    done = finish(Forked(words, tmp_path, environment()))
    first = [line.split()[0] for line in done.stdout.splitlines() if not line.startswith("this CPU ")]
    # iterations, progress, end, and that no episode has ended; a slow machine has more lines of progress
    words = ["4", "note:", "Mjlab-Cartpole-Balance", f"{tmp_path}/run", "note:"]
    assert [word for i, word in enumerate(first) if first[i - 1 : i] != [word]] == words
    assert all("NVIDIA CUDA driver" in line for line in done.stderr.splitlines())  # Warp's own one line without a GPU
    scalars = curves(tmp_path / "run")
    assert all(np.isfinite([value for _, value in points]).all() for points in scalars.values())
    assert {"diagnostics/policy_variance/normalized", "probe/ess", "outer/ddr", "outer/plateau"} <= scalars.keys()
    rates = [value for _, value in scalars["charts/learning_rate"]]  # as float32, whose 1e-5 is below Python's
    assert len(set(rates)) > 1 and all(np.float32(1e-5) <= np.float32(rate) <= np.float32(1e-2) for rate in rates)
    with np.load(tmp_path / "run/coverage.npz") as coverage:
        assert coverage["obs"].shape[1] == 10 and coverage["feature"].shape[1] == 64
    assert load_checkpoint(tmp_path / "run")["agent"]["obs_sums"][0, 0] == 1 + 256


MISSING = """
import sys
sys.path.insert(1, {root!r})
import ppo_isaacgym as ppo
for env_id in ("Ant", "Humanoid", "Mjlab-Cartpole-Balance"):
    try:
        ppo.parse_args(["--env-id", env_id])
    except SystemExit as end:
        assert end.code == 2
"""


def test_missing_simulator(tmp_path):
    """One line, exit code 2 and no run directory, where neither simulator is installed."""
    (tmp_path / "warp.py").write_text("raise ImportError")
    (tmp_path / "parse.py").write_text(MISSING.format(root=str(ROOT)))
    process = Forked([sys.executable, str(tmp_path / "parse.py")], tmp_path, environment())
    done = finish(process)
    assert done.stdout == "" and not (tmp_path / "runs").exists()
    ant, humanoid, cartpole = done.stderr.splitlines()
    assert ant.startswith("error: --env-id Ant runs on Isaac Gym, which is not here (No module named 'isaacgym')")
    assert "developer.nvidia.com/isaac-gym" in humanoid and "Mjlab-" in humanoid
    says = "error: --env-id Mjlab-Cartpole-Balance runs on mjlab, which is not here: pip install -r requirements-mjlab"
    assert cartpole.startswith(says)


def test_isaac_gym_comes_before_torch_and_knows_its_tasks(tmp_path):
    """The stand-in refuses, as Isaac Gym does, to be imported after torch."""
    words = command(tmp_path, "--env-id Cartpole --num-envs 16 --total-timesteps 512 --no-diagnostics")
    env = environment(PYTHONPATH=str(STAND_IN))
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=tmp_path, env=env)
    assert done.returncode == 0 and "is finished" in done.stdout, done.stderr
    done = run(tmp_path, "--env-id Cartpol", code=2)
    assert done.stderr.startswith("error: --env-id Cartpol is not a task that runs here; near: Cartpole ")


def test_it_learns(tmp_path):
    """The stand-in's pole: a return of 30 at random, 498 at most."""
    run(tmp_path, "--env-id Cartpole --num-envs 64 --total-timesteps 65536 --no-diagnostics --num-logs 8")
    returns = [value for _, value in curves(tmp_path / "run")["charts/episodic_return"]]
    assert max(returns) > 250, returns


# ---- the contracts of every script -----------------------------------------------------------------------------------
SMALL = "--env-id Cartpole --num-envs 4 --num-steps 64 --total-timesteps 4096 --update-epochs 1 --num-minibatches 4 "
TAGS = {
    *(f"charts/{tag}" for tag in "episodic_return episodic_length episodes SPS learning_rate gradient_steps".split()),
    *(
        f"losses/{tag}"
        for tag in "policy_loss value_loss entropy approx_kl old_approx_kl clipfrac grad_norm "
        "explained_variance".split()
    ),
    *(
        f"{place}/{tag}"
        for place in ("diagnostics", "probe")
        for tag in "feature_rank dormant_neurons weight_norm gradient_kurtosis ess policy_variance".split()
    ),
    *("outer/kl_behavior", "outer/ddr", "outer/plateau", "outer/grad_noise_scale/noise"),
}


def test_stopped_and_resumed(tmp_path):
    """Every point once, whatever stopped the run; then it is finished, and other arguments are refused."""
    run_dir, words, points = tmp_path / "run", SMALL + "--checkpoint-minutes 0", 0
    for signum, code in ((signal.SIGTERM, 143), (signal.SIGKILL, -9)):
        process = start(tmp_path, words)
        enough = points + 2
        wait_for(
            lambda enough=enough: (run_dir / "checkpoint.pt").exists() and len(raw_steps(run_dir)) >= enough, process
        )
        process.send_signal(signum)
        assert "Traceback" not in finish(process, code).stderr
        step, points = load_checkpoint(run_dir)["run"]["global_step"], len(raw_steps(run_dir))
        assert 0 < step < 4096 and not (run_dir / "done.json").exists()
    assert f"resumes at step {step:,}" in run(tmp_path, words).stdout
    assert raw_steps(run_dir) == [256 * i for i in range(1, 17)]
    scalars = curves(run_dir)
    assert TAGS <= set(scalars), TAGS - set(scalars)
    assert all(np.isfinite([value for _, value in points]).all() for points in scalars.values())
    assert {"manifest.json", "done.json", "checkpoint.pt", "checkpoint.prev.pt", "coverage.npz"} <= {
        path.name for path in run_dir.iterdir()
    }
    assert "is finished" in run(tmp_path, words).stdout
    assert "has run with --gamma 0.99, not 0.5" in run(tmp_path, words + " --gamma 0.5", code=2).stderr


def test_the_same_seed_gives_the_same_bits(tmp_path):
    """Whatever the number of threads: each minibatch is cut into the same pieces."""
    runs = []
    for name, words in (("one", ""), ("two", " --num-threads 2"), ("blind", " --no-diagnostics")):
        (tmp_path / name).mkdir()
        run(tmp_path / name, SMALL.replace("4096", "512") + words)
        runs.append(curves(tmp_path / name / "run"))
    one, two, blind = runs
    assert all(one[tag] == two[tag] for tag in one if tag != "charts/SPS")
    assert all(one[tag] == blind[tag] for tag in blind if tag != "charts/SPS")
    assert not [tag for tag in blind if tag.split("/")[0] in ("diagnostics", "probe", "outer")]


def test_not_finite(tmp_path):
    done = run(tmp_path, SMALL + "--learning-rate 1e12 --max-grad-norm 1e12 --num-minibatches 1", code=3)
    failed = json.loads((tmp_path / "run/failed.json").read_text())
    assert done.stderr.startswith("error: ") and failed["tensor"] in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "words,says",
    [
        ("--hidden-sizes 8 0", "--hidden-sizes [8, 0]: expected one number or more, each 1 to 65,536"),
        ("--env-id Antt", "--env-id Antt is not a task that runs here; near: Ant"),
        ("--env-id FactoryBase", "--env-id FactoryBase is not a task that runs here"),
        (
            "--anneal-lr --desired-kl 0.01",
            "--desired-kl and --anneal-lr exclude each other: expected --desired-kl",
        ),
    ],
)
def test_bad_input(words, says, isaacgym, tmp_path, capsys):
    words = [*SMALL.split(), "--runs-dir", str(tmp_path / "runs"), *words.split()]
    assert says in refusal(capsys, ppo.parse_args, words)
    assert not list(tmp_path.iterdir())


# ---- Python 3.8 ------------------------------------------------------------------------------------------------------
IMPORTED = "arguments catalog devices diagnostics progress recipe rundir signals simulators tags".split()
READING = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("support/reading/*.py"))
FILES = [SCRIPT, "metrics.py", *(f"support/{part}.py" for part in IMPORTED), *READING, "support/envs/episodes.py"]


@pytest.mark.parametrize("name", FILES)
def test_python_3_8(name):
    """Isaac Gym ends at Python 3.8: by the grammar and, where there is one, by such an interpreter."""
    source = (ROOT / name).read_text()
    tree = ast.parse(source, feature_version=(3, 8))
    for node in ast.walk(tree):  # what parses, but is 3.9 or later when it runs
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            assert node.value.id not in ("list", "dict", "tuple", "set", "type"), ast.unparse(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            assert node.func.attr not in ("removeprefix", "removesuffix", "is_relative_to"), ast.unparse(node)
    candidates = [shutil.which("python3.8"), *Path.home().glob(".pyenv/versions/3.8*/bin/python")]
    for python in filter(None, candidates):
        done = subprocess.run(
            [python, "-c", f"compile(open({str(ROOT / name)!r}).read(), {name!r}, 'exec')"],
            capture_output=True,
            text=True,
            env={**os.environ, "PYENV_VERSION": ""},
        )
        assert done.returncode == 0 or "command not found" in done.stderr, done.stderr
