"""best.pt: the network at the log point with the highest return of 100 episodes, through stops, kills and packs."""

import json
import re
import shlex
import shutil
import signal

import gymnasium
import numpy as np
import pytest
import torch
from conftest import load_checkpoint
from test_pack import train

from support import catalog, reading, rundir
from support.best import Best


class Peak(gymnasium.Env):
    """Episodes of two steps; the reward rises for 60 episodes of an environment, up to `height`, and falls again."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    height, last = 1.0, 10**9  # the highest reward, and the last episode with finite observations
    number = 0

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.number, self.steps = self.number + 1, 0
        return self.observe(), {}

    def observe(self):
        return np.full(2, self.np_random.uniform() if self.number <= self.last else np.nan, np.float32)

    def step(self, action):
        self.steps += 1
        return self.observe(), self.height * (60 - abs(60 - self.number)), self.steps == 2, False, {}


gymnasium.register("Peak-v0", Peak, max_episode_steps=9)
ITERATION = 3 * 8
WORDS = f"--env-id gymnasium:test_best:Peak-v0 --num-envs 3 --num-steps 8 --total-timesteps {40 * ITERATION} "
WORDS += "--num-minibatches 2 --update-epochs 1 --hidden-sizes 8 --checkpoint-minutes 0 --no-diagnostics --run-name "


@pytest.fixture
def saved(monkeypatch):
    """{(run, step): its network in the checkpoint of this step}, of the runs of the test."""
    found, save = {}, rundir.Run._save

    def keep(run, now):
        save(run, now)
        found[run.path.name, run.global_step] = load_checkpoint(run.path)["agent"]

    monkeypatch.setattr(rundir.Run, "_save", keep)
    return found


def check_best(run_dir, saved):
    """best.pt is the network of the highest point of the curve. Returns its step."""
    best, points = load_checkpoint(run_dir, "best.pt"), reading.read_curves(run_dir)
    steps, returns = points["charts/episodic_return"]
    counts = dict(zip(*points["charts/episodes"]))
    counted = np.array([counts[step] >= 100 for step in steps])
    i = np.argmax(np.where(counted, returns, -np.inf))
    assert best["run"]["global_step"] == steps[i] and np.float32(best["run"]["episodic_return"]) == returns[i]
    weights = saved[run_dir.name, steps[i]]
    assert best["format"] == reading.FORMAT and best["agent"].keys() == weights.keys()
    assert all(torch.equal(best["agent"][name], weights[name]) for name in weights)
    return steps[i]


def test_each_run_of_a_pack_keeps_its_best_while_it_is_stopped_and_resumed(tmp_path, monkeypatch, saved):
    """The second process has lower returns than the first, the third the highest of all."""
    words = [*shlex.split(WORDS), "X", "--num-seeds", 2, "--runs-dir", tmp_path]
    runs, log, found = [tmp_path / "X/s1", tmp_path / "X/s2"], rundir.Run.log, []

    def log_and_stop(run, scalars):
        log(run, scalars)
        if run.global_step == stop:
            run._signals.received.append(signal.SIGTERM)

    monkeypatch.setattr(rundir.Run, "log", log_and_stop)
    for stop, height in ((34 * ITERATION, 2.0), (36 * ITERATION, 1.0), (0, 90.0)):
        monkeypatch.setattr(Peak, "height", height)
        train(*words, code=143 if stop else 0)
        found.append([check_best(run, saved) for run in runs])
    assert found[0] == found[1] and max(found[0]) < 34 * ITERATION, "the best is neither the last nor of the second"
    assert found[2] == [40 * ITERATION] * 2
    one, other = (load_checkpoint(run, "best.pt")["agent"] for run in runs)
    assert not any(torch.equal(one[name], other[name]) for name in one if name.endswith("weight"))


def test_the_best_of_a_diverged_run_is_finite(tmp_path, monkeypatch, saved):
    """A child begins a best of its own, whatever its parent had."""
    monkeypatch.setattr(Peak, "last", 55)
    train(*shlex.split(WORDS), "bad", "--runs-dir", tmp_path, code=3)
    step = json.loads((tmp_path / "bad/failed.json").read_text())["global_step"]
    assert check_best(tmp_path / "bad", saved) == step - ITERATION, "the returns rose until then"
    assert all(x.isfinite().all() for x in load_checkpoint(tmp_path / "bad", "best.pt")["agent"].values())
    monkeypatch.setattr(Peak, "height", 0.5)
    (tmp_path / "child").mkdir()  # where a kill has left a file before the first checkpoint
    shutil.copy(tmp_path / "bad/best.pt", tmp_path / "child")
    train(*shlex.split(WORDS), "child", "--runs-dir", tmp_path, "--resume-from", tmp_path / "bad", code=0)
    assert check_best(tmp_path / "child", saved) > step


@pytest.mark.parametrize("script", catalog.SCRIPTS)
def test_every_script_keeps_a_network_that_plays(script):
    """rundir.Run finds it by its name among the parts of a checkpoint."""
    assert re.search(r"^    run\.restore\(agent=agent, ", (rundir.ROOT / f"{script}.py").read_text(), re.M)


def test_fewer_than_100_episodes_have_no_best(tmp_path):
    train(*shlex.split(WORDS), "short", "--runs-dir", tmp_path, "--total-timesteps", 8 * ITERATION)
    assert (tmp_path / "short/checkpoint.pt").exists() and not (tmp_path / "short/best.pt").exists()


def test_a_kill_before_the_checkpoint_loses_no_network(tmp_path, capsys):
    """best.pt may be ahead of the checkpoint: it has to be beaten. One that cannot be read has not."""
    first, again = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
    best = Best(tmp_path, goes_on=False)
    best.offer(3.0, 8, first)
    expected = first.bias.clone()
    first.bias.data += 1.0  # it learns on
    best.write()
    best = Best(tmp_path, goes_on=True)
    best.offer(3.0, 16, again)
    best.write()
    kept = load_checkpoint(tmp_path, "best.pt")
    assert kept["run"] == {"global_step": 8, "episodic_return": 3.0} and torch.equal(kept["agent"]["bias"], expected)
    best.offer(4.0, 24, again)
    best.offer(float("nan"), 32, first)
    best.write()
    assert load_checkpoint(tmp_path, "best.pt")["run"] == {"global_step": 24, "episodic_return": 4.0}
    whole = (tmp_path / "best.pt").read_bytes()
    (tmp_path / "best.pt").write_bytes(whole[:100])
    best = Best(tmp_path, goes_on=True)
    assert "best.pt cannot be read" in capsys.readouterr().err
    best.offer(-1.0, 32, first)
    best.write()
    assert load_checkpoint(tmp_path, "best.pt")["run"]["global_step"] == 32
    Best(tmp_path, goes_on=False)  # a run that begins anew, after a kill before its first checkpoint
    assert not list(tmp_path.iterdir())
