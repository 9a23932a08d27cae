"""`--slurm` on a real Slurm of one node, which launching/slurm_local.sh starts: real runs in a real job array."""

import os
import re
import signal
import subprocess
import time

import pytest
from conftest import ROOT
from launching import slurm_array
from test_launch import LONG, attempts, finish, line, raw_steps, refused, short, start


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """The environment that reaches a running Slurm. With REQUIRE_SLURM, as in .ci/run, not having one is a failure."""
    folder, script = tmp_path_factory.mktemp("slurm"), str(ROOT / "scripts/launching/slurm_local.sh")
    started = subprocess.run(["bash", script, "start", str(folder)], capture_output=True, text=True)
    if started.returncode:
        reason = f"no Slurm here: {(started.stdout + started.stderr).strip()}"
        (pytest.fail if os.environ.get("REQUIRE_SLURM") else pytest.skip)(reason)
    yield {"SLURM_CONF": str(folder / "slurm.conf")}
    subprocess.run(["bash", script, "stop", str(folder)], check=True)


def until(condition, what, pause=0.1):
    """Polls: there is no process to wait for. `pause`: seconds; longer where each look is a process of its own."""
    deadline = time.time() + 900
    while not condition():
        assert time.time() < deadline, what
        time.sleep(pause)


def test_a_job_array(slurm, tmp_path):
    """One run, a training, is told of its time limit, one is cancelled, one fails, one is undisturbed; then the same
    line again."""
    names = ("limited", "cancelled", "failed", "good")
    limited, cancelled, failed, good = (tmp_path / "s" / name for name in names)
    lines = [
        line(tmp_path, "s/limited", steps=LONG),
        short(tmp_path, "s/cancelled", "--stops", 1),
        short(tmp_path, "s/failed", "--refuses", 1),
        short(tmp_path, "s/good"),
    ]
    options = ("--slurm", "--cpus-per-task", 1, "--time", 30, "--array-parallelism", 2)

    def tasks():
        """{index in the array: job id} of what is queued or running."""
        words = ["squeue", "--noheader", "--array", "--format=%K %A"]
        return dict(task.split() for task in subprocess.check_output(words, text=True, env=env).splitlines())

    def scancel(*words):
        done = subprocess.run(["scancel", *words], check=True, env=env, capture_output=True, text=True)
        assert not done.stderr

    env = {**os.environ, **slurm}
    out = finish(start(lines, *options, **slurm))
    assert "4 to submit" in out
    array = re.search(r"submitted job array (\d+):", out)[1]
    assert "4 queued or running, 0 to submit" in finish(start(lines, *options, **slurm))
    twin = short(tmp_path, "t/good")  # another sweep does not submit what this one has queued
    assert "1 queued or running, 0 to submit" in finish(start([twin], *options, **slurm))

    until(lambda: limited.exists() and raw_steps(limited), "the first task does not run")
    shell = f"job{int(tasks()['0']):05d}/slurm_script"
    # to the task's shell, as Slurm does two minutes before the limit
    os.kill(int(subprocess.check_output(["pgrep", "--oldest", "--full", shell])), signal.SIGUSR1)
    until((cancelled / "manifest.json").exists, "the second task does not run")
    scancel(f"{array}_1")
    until(lambda: not tasks(), "the array does not end", pause=1)

    assert (limited / "done.json").exists() and raw_steps(limited) == list(range(128, LONG + 1, 128))
    assert attempts(limited) == 2 and "resumes at step" in (limited / "log.txt").read_text()
    assert (good / "done.json").exists()
    assert attempts(good) == attempts(cancelled) == attempts(failed) == 1
    assert not (cancelled / "done.json").exists() and not (failed / "manifest.json").exists()
    shown = finish(start(lines, "--status"))
    assert "stale     s/cancelled" in shown
    assert "failed    s/failed  0/1 steps  error: --refuses 1: expected nothing" in shown

    out = finish(start(lines, *options, **slurm))
    assert "4 runs: 2 finished, 0 diverged, 0 queued or running, 2 to submit" in out
    until(lambda: not tasks(), "the second array does not end", pause=1)
    assert (
        (cancelled / "done.json").exists()
        and attempts(cancelled) == 2
        and attempts(limited) == 2
        and attempts(good) == 1
    )


def test_what_slurm_refuses(slurm, tmp_path):
    out = finish(start([line(tmp_path, "s/run")], "--slurm", "--partition", "no_such", **slurm), code=2)
    assert out.splitlines()[-1].startswith("error: --slurm: sbatch: error: invalid partition specified: no_such")


def test_the_array_that_would_be_submitted(tmp_path):
    """Needs no Slurm."""
    options = "--slurm --dry-run --partition gpu --time 2-0 --gpus-per-task 1 --cpus-per-task 8 --mem 32G".split()
    options += ["--array-parallelism", 20, "--sbatch", "--account=x --qos=y"]
    out = finish(start([line(tmp_path, "s/run")], *options))
    words = "partition=gpu time=2-0 gpus-per-task=1 cpus-per-task=8 mem=32G array=0-0%20 signal=B:USR1@120 requeue"
    for word in [*words.split(), "open-mode=append"]:
        assert f"#SBATCH --{word}\n" in out
    assert "#SBATCH --account=x --qos=y\n" in out
    assert subprocess.run(["bash", "-n"], input=out[out.index("#!/bin/bash") :], text=True).returncode == 0


@pytest.mark.parametrize(
    "option,value,expected",
    [
        ("--mem", "1.5G", "a whole number, in MB or with K, M, G or T after it, such as 32G"),
        ("--time", "2d", "a time as Slurm writes it: 90 (minutes), 12:00:00, 2-0 (days-hours)"),
        ("--gpus-per-task", "x", "a whole number"),
        ("--partition", "a b", "a word without spaces"),
        ("--sbatch", "x", "options of sbatch, such as '--account=x --qos=y'"),
    ],
)
def test_values_that_slurm_would_refuse(option, value, expected, tmp_path, capsys, monkeypatch):
    error = refused(capsys, monkeypatch, [short(tmp_path, "s/run")], "--slurm", "--dry-run", option, value)
    assert error == f"error: {option} {value}: expected {expected}\n"


def test_what_does_not_fit_into_the_memory_of_a_task(tmp_path, capsys, monkeypatch):
    huge = line(tmp_path, "s/run", "--num-envs", 8192, steps=2**20)
    error = refused(capsys, monkeypatch, [huge], "--slurm", "--mem", "8G")
    assert "--num-envs 8192 of s/run needs" in error


@pytest.mark.parametrize("text,size", [("64", 2**26), ("4K", 2**12), ("512m", 2**29), ("32GB", 2**35), ("1T", 2**40)])
def test_memory_as_slurm_reads_it(text, size):
    assert slurm_array.memory_bytes(text) == size


def test_no_memory_limit():
    assert slurm_array.memory_bytes("0") == float("inf")
