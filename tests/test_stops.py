"""Whole runs that are stopped, killed or starved: every run directory stays readable, and the run goes on."""

import contextlib
import importlib
import json
import math
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
import torch
from conftest import (
    STEPS,
    check_complete,
    command,
    curves,
    curves_csv,
    load_checkpoint,
    raw_steps,
    refusal,
    run,
    start,
    wait_for,
)

from support import rundir


@pytest.mark.parametrize(
    "signum,code",
    [
        (signal.SIGTERM, 143),
        pytest.param(signal.SIGUSR1, 143, marks=pytest.mark.once),
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.once),
    ],
)
def test_signals(script, tmp_path, signum, code):
    # iterations of the small tasks are short: with diagnostics, and twice as many, the signal comes before the last
    steps, run_dir = STEPS[: 8 if script == "ppo_envpool.py" else 4], tmp_path / "run"
    words = ("--checkpoint-minutes", 1000, "--total-timesteps", steps[-1])
    words += () if script == "ppo_envpool.py" else ("--no-diagnostics",)
    process = start(script, tmp_path, *words)
    wait_for(lambda: run_dir.exists() and raw_steps(run_dir), process)
    process.send_signal(signum)
    out, err = process.communicate(timeout=120)
    assert process.returncode == code and "resumes" in out and "Traceback" not in err
    step = load_checkpoint(run_dir)["run"]["global_step"]
    assert 0 < step < steps[-1] and raw_steps(run_dir)[-1] == step and step % 128 == 0
    assert not (run_dir / "done.json").exists()
    again = run(script, tmp_path, *words)
    assert f"resumes at step {step:,}" in again.stdout
    check_complete(run_dir, steps)


@pytest.mark.once
def test_kill_9_again_and_again(script, tmp_path):
    """Before the first checkpoint, between checkpoints with points that no checkpoint knows, and with broken files."""
    run_dir, words = tmp_path / "run", ("--checkpoint-minutes", 0, "--no-diagnostics")
    process = start(script, tmp_path, *words)
    wait_for((run_dir / "manifest.json").exists, process)
    process.kill()
    process.wait()
    process = start(script, tmp_path, *words)
    wait_for(lambda: (run_dir / "checkpoint.prev.pt").exists() and len(raw_steps(run_dir)) >= 4, process)
    process.kill()
    process.wait()
    assert not (run_dir / "done.json").exists()
    # the newest checkpoint cut in half, so that the one before it counts; the record being written cut in half too
    data = (run_dir / "checkpoint.pt").read_bytes()
    (run_dir / "checkpoint.pt").write_bytes(data[: len(data) // 2])
    before = load_checkpoint(run_dir, "checkpoint.prev.pt")["run"]["global_step"]
    newest = max(run_dir.glob("events.out.tfevents.*"), key=lambda path: path.stat().st_mtime)
    with open(newest, "ab") as file:
        file.write(newest.read_bytes()[24:200])
    with open(run_dir / "curves.csv", "a") as file:
        file.write("1024,1.0,0.5")
    os.mkfifo(run_dir / "log.txt")  # nobody waits for what it will say
    again = run(script, tmp_path, *words, "--checkpoint-minutes", 5)  # safer or not, it is the same run
    assert "checkpoint.pt cannot be read" in again.stderr
    assert f"resumes at step {before:,}" in again.stdout
    check_complete(run_dir)


@pytest.fixture
def reopen(finished, script, tmp_path, monkeypatch):
    """Copies the finished run to `name`, does `damage` to the copy as if it had been killed there, and claims it again.
    Gives the directory and the step that it would resume from."""
    run_dir, _ = finished
    module = importlib.import_module(script[: -len(".py")])

    def open_copy(name, damage):
        copy = tmp_path / name / "run"
        shutil.copytree(run_dir, copy, ignore=shutil.ignore_patterns("done.json"))
        damage(copy)
        args = module.parse_args(command(script, copy.parent, "--probe-size", 100)[2:])
        monkeypatch.setattr(signal, "signal", lambda *handler: None)  # those of this process stay
        return copy, rundir.Run(args, torch.device("cpu")).global_step

    return open_copy


@pytest.mark.once
def test_killed_while_it_resumes(reopen):
    """A resume cuts the event files and writes each as a hidden `….partial` first: one that a kill leaves there is no
    event file, wherever the directory lists it. Its place depends on a hash of its name, so several are tried."""
    for i in range(8):

        def leave_partial(copy, i=i):
            (path,) = copy.glob("events.out.tfevents.*")
            path = path.rename(copy / f"events.out.tfevents.17952503{i:02d}.host.{11000 + 7 * i}")
            shutil.copy(path, copy / f".{path.name}.partial")
            (copy / "failed.json").write_text("{}")  # it may go better from here

        copy, step = reopen(str(i), leave_partial)
        assert step == 1024 and raw_steps(copy) == STEPS
        assert not list(copy.glob(".*.partial")) and not (copy / "failed.json").exists()


@pytest.mark.once
@pytest.mark.parametrize("tail", [b"\0" * 4096, bytes(range(256)) * 16, b"\x18"])
def test_broken_end_of_an_event_file(reopen, tail):
    """Zeros, as a file system may leave them after a loss of power, garbage, and a single byte of the next record."""

    def append(copy):
        (path,) = copy.glob("events.out.tfevents.*")
        path.write_bytes(path.read_bytes() + tail)

    copy, _ = reopen("copy", append)
    assert raw_steps(copy) == STEPS and [step for step, _ in curves(copy)["losses/grad_norm"]] == STEPS


@pytest.mark.once
@pytest.mark.parametrize("name,place", [("curves.csv", "curves.csv"), ("events.*", "the event files")])
def test_a_point_that_a_checkpoint_counts_is_missing(reopen, name, place, capsys):
    def cut(copy):
        (path,) = copy.glob(name)
        os.truncate(path, path.stat().st_size - 20)

    reopen("copy", cut)
    assert f"7 of the 8 points up to step 1,024 are left in {place}: a file has been damaged" in capsys.readouterr().err


@pytest.mark.once
def test_a_run_without_curves_csv(reopen):
    """It began before there was such a file, and gets one."""
    copy, _ = reopen("older", lambda copy: (copy / "curves.csv").unlink())
    assert str(sorted(curves_csv(copy).items())) == str(sorted(curves(copy).items()))


BOTH = "checkpoint.pt checkpoint.prev.pt"


@pytest.mark.once
@pytest.mark.parametrize(
    "names,content",
    [
        ("manifest.json", "{"),
        ("manifest.json", None),
        ("done.json", ""),
        ("coverage.npz", "PK"),
        ("coverage.npz", ""),
        ("curves.csv", "step,wall_time,x\nno number,1,1\n"),
        ("curves.csv", "a directory"),
        ("events.out.tfevents.1.a", "a directory"),
        (BOTH, ""),
        (BOTH, "\0" * 4096),
        ("checkpoint.pt", Path("/proc/self/mem")),  # an I/O error, after which no older one is taken
    ],
)
def test_a_broken_file_stops_the_run(reopen, names, content, tmp_path, capsys):
    """One line that names it, and nothing is touched."""

    def break_it(copy):
        (copy / "failed.json").write_text("{}")
        shutil.copy(copy / "checkpoint.pt", copy / "checkpoint.prev.pt")
        for name in names.split():
            (copy / name).unlink(missing_ok=True)
            if content == "a directory":
                (copy / name).mkdir()
            elif isinstance(content, Path):
                (copy / name).symlink_to(content)
            elif content is not None:
                (copy / name).write_text(content)

    with pytest.raises(SystemExit) as end:
        reopen("copy", break_it)
    *notes, error = capsys.readouterr().err.splitlines()
    assert end.value.code == 2 and error.startswith("error: ") and (names in error or names == BOTH)
    assert not notes or names == BOTH and "checkpoint" in error
    if content == "a directory":
        (tmp_path / "copy/run" / names).rmdir()
    assert raw_steps(tmp_path / "copy/run") == STEPS and (tmp_path / "copy/run/failed.json").exists()


@pytest.mark.once
def test_a_checkpoint_of_another_format(reopen, tmp_path, capsys):
    """One line, and the curves stay as they are: the run can go on with the code that began it."""

    def age(copy):
        torch.save({**load_checkpoint(copy), "format": 1}, copy / "checkpoint.pt")

    error = refusal(capsys, reopen, "old", age)
    assert "has format 1, this version reads 3: continue it with the code that began it (commit " in error
    assert raw_steps(tmp_path / "old/run") == STEPS


@pytest.mark.once
def test_one_process_a_directory(script, tmp_path):
    process = start(script, tmp_path, "--total-timesteps", 1000000)
    try:
        wait_for((tmp_path / "run/manifest.json").exists, process)
        second = run(script, tmp_path, "--total-timesteps", 1000000, code=2)
        assert second.stderr == "error: --run-name run is being written by a live process: choose another name\n"
    finally:
        process.kill()
        process.wait()


def test_not_finite(script, tmp_path):
    """A rate of 1e9 blows the network up. The run says where, and keeps the checkpoint from before it."""
    run_dir = tmp_path / "run"
    words = ("--learning-rate", 1e9, "--max-grad-norm", 1e9, "--checkpoint-minutes", 0)
    if script == "ppo_envpool.py":  # Tanh has no large outputs
        words += ("--activation", "relu")
    done = run(script, tmp_path, *words, code=3)
    failed = json.loads((run_dir / "failed.json").read_text())
    assert failed["tensor"] in done.stderr and f"step {failed['global_step']:,}" in done.stderr
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert not (run_dir / "done.json").exists()
    if (run_dir / "checkpoint.pt").exists():
        checkpoint = load_checkpoint(run_dir)
        assert checkpoint["run"]["global_step"] < failed["global_step"]
        assert all(tensor.isfinite().all() for tensor in checkpoint["agent"].values())
    assert all(math.isfinite(value) for _, value in curves(run_dir).get("losses/grad_norm", []))


def test_batches_without_a_valid_row(script, tmp_path):
    """One game, one step per iteration: each end of a life gives a batch without a valid row. NaN, and on it goes."""
    if script == "ppo_procgen.py":
        pytest.skip("its games are long, and its text is the same")
    words = ("--num-envs", 1, "--num-steps", 1, "--num-minibatches", 1, "--total-timesteps", 40)
    run(script, tmp_path, *words)
    scalars = {tag: dict(points) for tag, points in curves(tmp_path / "run").items()}
    rows = scalars["diagnostics/feature_rank/rows"]
    empty = [step for step in rows if not rows[step] > 0]
    assert 0 < len(empty) < 10 and len(rows) == 40
    nan, zero = ["diagnostics/feature_rank", "probe/dormant_neurons"], ["losses/grad_norm"]
    if script == "ppo_rnd_envpool.py":
        nan, zero = [*nan, "charts/intrinsic_reward", "probe/ess", "outer/kl_behavior"], [*zero, "losses/fwd_loss"]
        moments = load_checkpoint(tmp_path / "run")["log"]["sum_moments"]
        assert moments[2] == pytest.approx(40 - len(empty), abs=0.01)
    for tag in nan:
        assert [step for step in rows if math.isnan(scalars[tag][step])] == empty, tag
    for tag in zero:
        assert all(scalars[tag][step] == 0 for step in empty), tag


@contextlib.contextmanager
def small_disk(path, options):
    words = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)]
    mounted = subprocess.run(words, capture_output=True)
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.once
@pytest.mark.parametrize(
    "options,checkpoint_minutes,left",
    [
        ("size={room}", 0, 128),  # one checkpoint fits, two do not
        # the event file fills the disk, in the middle of a record
        ("size=16k", 1000, None),
        # room enough, but no new file: coverage.npz cannot be opened
        ("nr_inodes=5", 0, None),
    ],
)
def test_full_disk(finished, script, tmp_path, options, checkpoint_minutes, left):
    steps, run_dir = STEPS[:3], tmp_path / "run"
    words = ("--checkpoint-minutes", checkpoint_minutes, "--total-timesteps", steps[-1])
    size, coverage = ((finished[0] / name).stat().st_size for name in ("checkpoint.pt", "coverage.npz"))
    with small_disk(tmp_path, options.format(room=size * 3 // 2 + coverage // 4)):
        done = run(script, tmp_path, *words, code=1)
        assert done.stderr == "error: No space left on device; the same command resumes from the last checkpoint\n"
        assert json.loads((run_dir / "manifest.json").read_text()) and not (run_dir / "done.json").exists()
        assert raw_steps(run_dir)[:1] in ([128], []), "the curves cannot be read"
        assert not list(run_dir.glob(".*.partial")), "it keeps room that it does not need"
        if left:
            assert load_checkpoint(run_dir)["run"]["global_step"] == left
        subprocess.run(["mount", "-o", "remount,size=300m,nr_inodes=1000", str(tmp_path)], check=True)
        again = run(script, tmp_path, *words)
        assert (f"resumes at step {left}" in again.stdout) == bool(left)
        check_complete(run_dir, steps)
