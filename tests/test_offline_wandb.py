"""scripts/offline_wandb.py: what W&B's files of a real run give is what its event files give."""

import signal

import numpy as np
import planted_runs  # noqa: F401 - puts scripts/ on the path
import pytest
from analysis import training_runs
from conftest import load_checkpoint, raw_steps, run, start, wait_for

# isort: split
import figures
import offline_wandb


@pytest.fixture(scope="module")
def tracked(tmp_path_factory):
    """A run of eight points that SIGTERM has stopped, and that was resumed to its end: two files of one run."""
    root = tmp_path_factory.mktemp("tracked")
    words = ("--track", "--no-diagnostics", "--checkpoint-minutes", 0, "--eval-episodes", 2)
    words += ("--num-steps", 1024, "--total-timesteps", 8 * 4096)
    run_dir, process = root / "run", start("ppo_envpool.py", root, *words, WANDB_MODE="offline")
    wait_for(lambda: (run_dir / "checkpoint.pt").exists() and len(raw_steps(run_dir)) >= 2, process)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == 143
    run("ppo_envpool.py", root, *words, WANDB_MODE="offline")
    return run_dir


def test_a_resumed_run_is_read_as_from_its_event_files(tracked, tmp_path):
    files = offline_wandb.find(tracked)
    assert len(files) == 2
    (offline,), unread = training_runs.read_offline(tracked)
    (expected,), _ = training_runs.read_runs(tracked, training_runs.Cache([]))
    assert not unread and len(expected.curves["losses/grad_norm"][0]) == 8
    assert offline.curves.keys() == expected.curves.keys()
    for tag, (steps, values) in expected.curves.items():
        assert offline.curves[tag][0].tolist() == steps.tolist()
        assert np.array_equal(offline.curves[tag][1], values, equal_nan=True), tag
    for name in ("script", "game", "arguments", "state", "failure", "diverged", "diverged_at", "target"):
        assert getattr(offline, name) == getattr(expected, name), name
    assert {key: offline.done[key] for key in expected.done} == expected.done and offline.evaluated
    assert offline.manifest["command"] == expected.manifest["command"]
    assert offline.manifest["versions"]["torch"] == expected.manifest["versions"]["torch"]
    attempts = [offline_wandb.Attempt(path) for path in files]
    assert {attempt.run_id for attempt in attempts} == {load_checkpoint(tracked)["run"]["wandb_id"]}
    assert sum(len(attempt.columns["losses/grad_norm"]) for attempt in attempts) == 8  # none of them twice
    figures.main(figures.parse_args(["mine", "--wandb-dir", str(tracked), "--out", str(tmp_path), "--no-images"]))
    assert "1 runs, 1 at their budget" in (tmp_path / "mine.txt").read_text()


def test_a_file_that_breaks_off_gives_what_comes_before(tracked, tmp_path):
    first, last = (path.read_bytes() for path in sorted(offline_wandb.find(tracked), key=lambda path: path.parent.name))
    path = tmp_path / "wandb" / "offline-run-1" / "run-a.wandb"
    path.parent.mkdir(parents=True)

    def read(data):
        path.write_bytes(data)
        return training_runs.read_offline(tmp_path)

    (whole,), _ = read(last)
    begin = last.rindex(b"losses/grad_norm")  # in the last point, or the summary after it
    (cut,), unread = read(last[:begin])
    assert whole.state == "done" and cut.state == "stale" and not cut.finished and not cut.done
    points = len(cut.curves["losses/grad_norm"][0])
    assert len(whole.curves["losses/grad_norm"][0]) - 1 <= points and points
    assert "breaks off at byte" in unread[0] and "offline-run-1" in unread[0]
    wrong = bytearray(last)
    wrong[begin] ^= 1
    (damaged,), unread = read(bytes(wrong))
    assert damaged.state == "stale" and "is damaged at byte" in unread[0]
    assert len(damaged.curves["losses/grad_norm"][0]) == points
    for data in (b"", b"no file of W&B", first[:20]):
        runs, unread = read(data)
        assert not runs and "not read" in unread[0]


def test_one_line_where_there_is_nothing_to_read(tmp_path, capsys):
    folder = tmp_path / "offline-run-1"
    for words, expected in (
        ((), "no offline-run-*/run-*.wandb below it"),
        ((folder / "run-a.wandb",), "run-a.wandb: not read (it is no offline file of W&B)"),
    ):
        for path in words:
            folder.mkdir()
            path.write_text("something else")
        with pytest.raises(SystemExit) as end:
            figures.main(figures.parse_args(["mine", "--wandb-dir", str(tmp_path), "--out", str(tmp_path / "out")]))
        message = capsys.readouterr().err
        assert end.value.code == 2 and message.startswith("error: --wandb-dir") and message.count("\n") == 1
        assert expected in message
