"""Packs: runs that train in one process have the bits, the files and the ends that they would have alone."""

import gc
import json
import re
import shlex
import shutil
import sys
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch
from conftest import load_checkpoint

import ppo_envpool as ppo
from support import pack, reading, rundir, tags

# Awkward sizes: 3 environments, 7 steps, minibatches of 7 rows, 10 units; 6 iterations, of which each is a log point.
TINY = "--num-envs 3 --num-steps 7 --num-minibatches 3 --update-epochs 2 --total-timesteps 126 --hidden-sizes 10 9 "
TINY += "--eval-episodes 2 --probe-size 16"
OWN = (  # what five runs have of their own
    "--seed 1 --learning-rate 1e-2",
    "--seed 2 --gamma 0.9 --gae-lambda 0.8 --clip-coef 0.05",
    "--seed 3 --ent-coef 0.1 --vf-coef 0.2 --max-grad-norm 0.05",
    "--seed 3 --learning-rate 1e-4",
    "--seed 2147483647 --clip-coef 0 --learning-rate 0.1",
)


class Five(gymnasium.Env):
    """Five actions; observes what was done; ends at random."""

    observation_space = gymnasium.spaces.Box(-9, 9, (3,))
    action_space = gymnasium.spaces.Discrete(5)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.normal(size=3).astype(np.float32), {}

    def step(self, action):
        obs = self.np_random.normal(size=3).astype(np.float32)
        obs[0] += action
        return obs, float(obs[0]), bool(self.np_random.random() < 0.2), False, {}


gymnasium.register("Five-v0", Five, max_episode_steps=9)


class Fragile(gymnasium.Env):
    """Observes infinity after an action at a bound, refuses NaN as an action, and ends after three that are not 0."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Box(-9, 9, (1,))

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 3
        return np.zeros(2, np.float32), {}

    def step(self, action):
        assert np.isfinite(action).all()
        self.left -= action[0] != 0
        return np.full(2, np.inf if abs(action[0]) == 9 else 0.5, np.float32), 1.0, self.left == 0, False, {}


gymnasium.register("Fragile-v0", Fragile)


def train(*words, code=0):
    """Runs the script in this process, and checks its exit code."""
    gc.collect()  # the locks of the runs before
    argv = [str(word) for word in words]
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as end:
        patch.setattr(sys, "argv", ["ppo_envpool.py", *argv])
        ppo.main(ppo.parse_args(argv))
    assert end.value.code == code


def train_together(folder, lines, code=0):
    """Trains the runs of these lines in one process."""
    folder.mkdir(exist_ok=True)
    (folder / "runs.txt").write_text("\n".join(lines))
    train("--runs", folder / "runs.txt", code=code)


def leaves(state, name=""):
    """(name, value) of all that a nested state holds."""
    if isinstance(state, dict):
        for key, value in state.items():
            yield from leaves(value, f"{name}/{key}")
    elif isinstance(state, (list, tuple)):
        for i, value in enumerate(state):
            yield from leaves(value, f"{name}/{i}")
    else:
        yield name, state


def check_same(one, other):
    """Two runs have the same checkpoint, curves, coverage and evaluation episodes, bit for bit."""
    states = [dict(leaves(load_checkpoint(run))) for run in (one, other)]
    assert states[0].keys() == states[1].keys()
    differ = []
    for name in states[0].keys() - {"/run/wall_seconds", "/run/wandb_id"}:
        x, y = (state[name] for state in states)
        same = x == y
        if isinstance(x, torch.Tensor):
            same = x.shape == y.shape and torch.equal(x, y)
        if not same:
            differ.append(name)
    curves = [reading.read_curves(run) for run in (one, other)]
    for tag in curves[0].keys() ^ curves[1].keys():
        differ.append(tag)
    for tag in (curves[0].keys() & curves[1].keys()) - {"charts/SPS"}:
        if not all(np.array_equal(x, y, equal_nan=True) for x, y in zip(curves[0][tag], curves[1][tag])):
            differ.append(tag)
    coverage = [np.load(run / "coverage.npz") for run in (one, other)]
    for name in coverage[0].files:
        if not np.array_equal(coverage[0][name], coverage[1][name]):
            differ.append(name)
    done = [json.loads((run / "done.json").read_text()) for run in (one, other)]
    for name in done[0].keys() - {"wall_seconds", "sps"}:
        if done[0][name] != done[1][name]:
            differ.append(name)
    assert not differ, (str(one), differ)


@pytest.mark.parametrize(
    "words",
    [
        "--env-id CartPole-v1",
        "--env-id CartPole-v1 --shared-encoder --activation elu --prox-com 4 --no-mask-resets --no-norm-adv",
        "--env-id MiniGrid-DoorKey-5x5-v0 --activation relu",
        "--env-id MiniGrid-DoorKey-5x5-v0 --shared-encoder",
        "--env-id FrozenLake-v1 --activation elu --shared-encoder",
        "--env-id Pendulum-v1 --norm-obs --norm-reward --num-minibatches 3 --update-epochs 2",
        "--env-id Hopper-v5 --norm-obs --norm-reward --num-minibatches 3 --update-epochs 2 --prox-com 2",
        "--env-id gymnasium:test_pack:Five-v0 --activation relu --hidden-sizes 10 --no-clip-vloss",
        "--env-id gymnasium:test_pack:Five-v0 --shared-encoder --scale-from 1 --scaling sqrt-lr --num-minibatches 1",
        "--env-id LunarLander-v3 --hidden-sizes 33 17 5",
        "--env-id CheetahRun-v1 --num-minibatches 3 --update-epochs 2 --eval-episodes 0",
    ],
)
def test_a_run_has_the_same_bits_alone_and_in_any_company(words, tmp_path):
    lines = [f"{TINY} {words} {own} --runs-dir {tmp_path} --run-name" for own in OWN]
    train_together(tmp_path / "five", [f"{line} five/{i}" for i, line in enumerate(lines)])
    train_together(tmp_path / "two", [f"{lines[i]} two/{i} --num-threads 2" for i in (4, 1)])
    train(*shlex.split(f"{lines[2]} alone/2"))
    check_same(tmp_path / "two/4", tmp_path / "five/4")
    check_same(tmp_path / "two/1", tmp_path / "five/1")
    check_same(tmp_path / "alone/2", tmp_path / "five/2")


def test_one_bad_number_ends_the_run_of_its_agent(tmp_path):
    """Wherever it stands: here in the last step of the second of two environments."""
    runs = [object.__new__(rundir.Run) for _ in range(3)]
    for s, run in enumerate(runs):
        run.path, run.global_step, run.ended = tmp_path / str(s), 10, False
        run.path.mkdir()
    several = object.__new__(pack.Pack)
    several.members, several.diverged = runs, []
    rewards, loss = torch.zeros(3, 5, 2), torch.zeros(3, 1)
    rewards[1, 4, 1] = np.nan
    several.stop_diverged({"rewards": rewards, "loss": loss})
    assert several.diverged == [1] and [run.ended for run in runs] == [False, True, False]
    failed = {"tensor": "rewards", "global_step": 10, "step": 8, "environment": 1}
    assert json.loads((tmp_path / "1/failed.json").read_text()) == failed and not list(tmp_path.glob("[02]/*"))


@pytest.mark.skipif(not shutil.which("g++"), reason="torch.compile needs a C++ compiler")
def test_a_compiled_run_learns_the_same_up_to_rounding(tmp_path, capsys):
    """Its rounding would depend on who shares its process, so nobody does."""
    words = shlex.split(f"{TINY} --env-id CartPole-v1 --num-threads 1 --runs-dir {tmp_path} --run-name")
    train(*words, "eager")
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    train(*words, "compiled", "--compile")
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > graphs
    eager, compiled = (load_checkpoint(tmp_path / name)["agent"] for name in ("eager", "compiled"))
    torch.testing.assert_close(compiled, eager, rtol=0, atol=1e-5)
    train(*words, "two", "--compile", "--num-seeds", 2, code=2)
    assert capsys.readouterr().err.startswith("error: --compile trains one run in a process")


def test_a_file_of_one_run(tmp_path):
    line = f"{TINY} --env-id CartPole-v1 {OWN[2]} --runs-dir {tmp_path} --run-name"
    train_together(tmp_path / "one", [f"{line} one/2"])
    train(*shlex.split(f"{line} alone/2"))
    check_same(tmp_path / "one/2", tmp_path / "alone/2")


def test_how_the_runs_of_a_pack_end(tmp_path, capsys):
    """Seeds from one flag; a run that diverges beside a good one; refused lines. The worst is the exit code."""
    words = f"{TINY} --env-id gymnasium:test_pack:Five-v0 --activation relu --runs-dir {tmp_path}"
    train(*shlex.split(words), "--num-seeds", 2, "--seed", 5, "--run-name", "X")
    manifest = json.loads((tmp_path / "X/s6/manifest.json").read_text())
    assert manifest["arguments"]["seed"] == 6 and not {"num_seeds", "runs"} & manifest["arguments"].keys()
    alone = shlex.split(manifest["command"])[2:]
    assert alone[-4:] == ["--seed", "6", "--run-name", "X/s6"] and "--num-seeds" not in alone
    said = capsys.readouterr().out
    summary, head, *rows, best = said.splitlines()[-5:]
    assert summary.startswith("2 of 2 runs are finished: final_return") and head.split()[:2] == ["seed", "state"]
    done = [json.loads((tmp_path / f"X/s{seed}/done.json").read_text()) for seed in (5, 6)]
    for seed, row, result in zip((5, 6), rows, done, strict=True):
        low, high = result["final_return_ci"]
        cells = f"{seed} done {result['episodic_return']:.6g} {result['final_return']:.6g} [{low:.6g}, {high:.6g}]"
        assert row.split() == cells.split()
    number = 5 + (done[1]["episodic_return"] > done[0]["episodic_return"])
    assert best.startswith(f"{tmp_path}/X: s{number} is the best of 2, ") and f"evaluate.py {tmp_path}/X" in best
    train(*shlex.split(words), "--num-seeds", 2, "--run-name", "X/s5", code=2)
    assert f"{tmp_path}/X/s5 is a run: expected another name" in capsys.readouterr().err

    good, bad, refused = (f"{words} --run-name {name}" for name in ("good", "bad", "refused --gamma 7"))
    bad += " --learning-rate 1e12"
    train_together(tmp_path / "lines", [good, bad, refused, f"{words} --seed 5 --run-name X/s5"], code=3)
    said = capsys.readouterr()
    assert f"{tmp_path}/X/s5 is finished" in said.out and "2 of 4 runs are finished" in said.out
    assert re.search(r"error: --gamma 7.0 .*--run-name refused", said.err) and not (tmp_path / "refused").exists()
    assert f"_loss is not finite at step 21: {tmp_path}/bad/failed.json" in said.err
    assert not (tmp_path / "bad/done.json").exists()
    train(*shlex.split(f"{words} --run-name alone"))
    check_same(tmp_path / "good", tmp_path / "alone")
    train_together(tmp_path / "lines", [refused, good], code=2)
    train_together(tmp_path / "lines", [refused, refused], code=2)
    assert "0 of 2 runs are finished\n" in capsys.readouterr().out


def test_a_diverged_run_plays_no_evaluation_episodes(tmp_path, capsys):
    """Its normalisation is not finite any more: its actions could end the evaluation of the others."""
    words = f"{TINY} --env-id gymnasium:test_pack:Fragile-v0 --norm-obs --init-std 0.1 --eval-max-steps 20"
    words += f" --runs-dir {tmp_path}"
    lines = [f"{words} --run-name good --learning-rate 0", f"{words} --run-name bad --learning-rate 1 --ent-coef 9"]
    train_together(tmp_path / "lines", lines, code=3)
    assert json.loads((tmp_path / "bad/failed.json").read_text())["tensor"] == "obs"
    assert json.loads((tmp_path / "good/done.json").read_text())["final_return"] == 3
    assert "are cut" not in capsys.readouterr().out
    for run, number in (("good", 1), ("bad", 0)):
        events = [event for path in reading.event_files(tmp_path / run) for _, event in reading.records(path)]
        assert sum(map(tags.is_final_card, events)) == number


def test_stopped_runs_play_no_evaluation_episodes():
    several, closed = object.__new__(pack.Pack), []
    args = SimpleNamespace(seed=1, eval_episodes=2)
    several.members, several._meter = [SimpleNamespace(args=args, exit_code=143, finish=closed.append)], None
    several.finish(None)
    assert closed == [[]]
