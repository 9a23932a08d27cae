"""results/learning: the table of its page is that of the files, and a curve with a gap is refused."""

import os
import shutil
import signal
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import run, study

learning = study("learning", "learning")


def test_the_page_has_the_table_of_the_files():
    expected = "\n".join(learning.table())
    assert expected.count("\n") > 1
    assert learning.TEXT.read_text().split(learning.BEGIN)[1].split(learning.END)[0].strip() == expected


def test_the_hours_of_a_process_count_once():
    hours = {row.split(" | ")[1]: row.split(" | ")[6] for row in list(learning.table())[2:]}
    assert hours["MinAtar's Breakout"] == "0.2"  # five seeds in one process, 0.25
    assert hours["Montezuma's Revenge"] == "1.4"  # four processes that started together, two of them with 0.32


def test_the_numbers_of_two_settings_are_not_those_of_two_seeds():
    names = ["8x128__s1", "128x8__s1"]
    runs = pd.DataFrame({"run": names, "state": "done", "total_timesteps": "640"})
    numbers = pd.DataFrame({"run": names, "name": "final", "mean": ["1", "2"], "low": ["0", "1"], "high": ["2", "3"]})
    curve = pd.DataFrame({"run": names, "step": 640, "episodic_return": 2.0})
    assert learning.result(runs, numbers, curve) == "8 x 128: 1.0 [0.0, 2.0]; 128 x 8: 2.0 [1.0, 3.0]"
    runs.loc[1, "state"] = "stale"  # a number without its setting would be taken for that of both
    assert (
        learning.result(runs, numbers[:1], curve) == "8 x 128: 1.0 [0.0, 2.0]; 128 x 8, seed 1: 2 at 640 of 640 steps"
    )
    seeds = (frame.replace("128x8__s1", "8x128__s2") for frame in (runs[:2].assign(state="done"), numbers, curve))
    assert learning.result(*seeds) == "1.0 [0.0, 2.0] and 2.0 [1.0, 3.0] (2 seeds)"


def test_a_run_is_taken_in_and_a_curve_with_a_gap_is_refused(tmp_path, monkeypatch):
    for name in ("runs.csv", "evaluations.csv", "isaac_swingup.csv"):
        shutil.copy(learning.HERE / name, tmp_path)
    runs = tmp_path / "runs/isaac_swingup"
    runs.mkdir(parents=True)
    words = "--env-id CartPole-v1 --num-envs 8 --num-steps 16 --total-timesteps 1024 --num-logs 8 --eval-episodes 2"
    run("ppo_envpool.py", runs, *words.split())
    monkeypatch.setattr(learning, "HERE", tmp_path)
    other = (tmp_path / "isaac_swingup.csv").read_text()
    for _ in range(2):  # the second time its rows are replaced
        learning.take(tmp_path / "runs")
    assert (tmp_path / "isaac_swingup.csv").read_text().startswith(other)  # the curve of the other run stays
    curve = pd.read_csv(tmp_path / "isaac_swingup.csv").query("run == 'run'")
    assert list(curve["step"]) == list(range(128, 1025, 128)) and {"feature_rank", "ess"} <= set(curve)
    rows = [(tmp_path / name).read_text() for name in ("runs.csv", "evaluations.csv")]
    assert rows[0].count("isaac_swingup,run,ppo_envpool.py,CartPole-v1,8,16,1,1024,done,") == 1
    assert rows[1].count("isaac_swingup,run,final,") == 1
    assert all("isaac_swingup,256x32__s1," in text for text in rows)
    (runs / "run/done.json").unlink()
    assert learning.row_of(runs / "run")["hours"] is not None  # of an unfinished run, from its checkpoint
    path = runs / "run/curves.csv"
    kept = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in kept if ",512," not in line and not line.startswith("512,")))
    with pytest.raises(ValueError, match="without gap or duplicate"):
        learning.take(tmp_path / "runs")


def test_cleanrls_rnd_goes_on_from_its_checkpoint(tmp_path):
    """Five updates, stopped by SIGTERM in the second: the rows, the network and the random numbers are of one run."""
    watch = study("learning", "cleanrl_rnd")

    def names():
        torch.manual_seed(1)
        models = {name: torch.nn.Conv2d(1, 1, 1) for name in ("agent", "rnd_model")}
        moments = {name: SimpleNamespace(sum=0.0) for name in watch.MOMENTS}
        optimizer = torch.optim.Adam([*models["agent"].parameters()], lr=0.1)
        return {**models, **moments, "optimizer": optimizer, "num_updates": 5, "global_step": 0}

    def train(folder, stop_in=None):
        folder.mkdir(exist_ok=True)
        variables, watched = names(), watch.Watched(None)
        numbers = []
        for number in watch.updates(variables, watched, folder):
            numbers.append(number)
            variables["global_step"] += 8
            watched.rooms.add((number, 0))
            variables["obs_rms"].sum += np.random.random()
            loss = variables["agent"](torch.rand(1, 1, 1, 1)).sum()
            variables["optimizer"].zero_grad()
            loss.backward()
            variables["optimizer"].step()
            variables.update(entropy_loss=loss, forward_loss=torch.tensor(variables["obs_rms"].sum))
            if number == stop_in:
                os.kill(os.getpid(), signal.SIGTERM)
        return numbers

    handler = signal.getsignal(signal.SIGTERM)
    try:
        np.random.seed(1)
        assert train(tmp_path / "whole") == [1, 2, 3, 4, 5]
        np.random.seed(1)
        with pytest.raises(SystemExit) as end:
            train(tmp_path / "cut", stop_in=2)
        assert end.value.code == 143
        np.random.seed(2)  # another process
        assert train(tmp_path / "cut") == [3, 4, 5]
    finally:
        signal.signal(signal.SIGTERM, handler)
    curve = pd.read_csv(tmp_path / "cut/curve.csv")
    assert list(curve.columns) == list(watch.COLUMNS) and list(curve["step"]) == [8, 16, 24, 32, 40]
    assert list(curve["rooms"]) == [1, 2, 3, 4, 5]
    pd.testing.assert_frame_equal(curve, pd.read_csv(tmp_path / "whole/curve.csv"))


def test_the_rooms_and_returns_of_cleanrls_rnd():
    """Two environments: the second's life ends at its second step, and its return begins anew."""
    ram = np.zeros((2, 128), dtype=np.uint8)
    ended = np.zeros(2, dtype=bool)

    def step(actions):
        ram[:, 3] += actions
        return None, None, ended, ended, {"ram": ram.copy(), "reward": np.array([1.0, 2.0])}

    watched = study("learning", "cleanrl_rnd").Watched(SimpleNamespace(step=step, action_space=18))
    for last in (False, True, False):
        ended = np.array([False, last])
        watched.step(np.array([0, 1], dtype=np.uint8))
    assert watched.rooms == {(0, 0), (1, 0), (2, 0), (3, 0)} and watched.best == 4.0
    assert watched.returns.tolist() == [3.0, 2.0] and watched.action_space == 18
