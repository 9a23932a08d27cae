"""support/ without a training run: ranges of arguments, seeds of episodes, log points, the interval of a mean."""

import io
import json
import os
import resource
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Optional

import numpy as np
import pytest
import torch
from conftest import refusal
from scipy import stats

import ppo_envpool
from support import arguments, devices, progress, reading, rundir
from support.envs.episodes import Episodes, env_seeds, mean_interval


@dataclass
class Args:
    num_envs: arguments.Count = 8  # how many
    rate: arguments.Fraction = 0.5  # how fast
    target: Optional[arguments.Positive] = None  # how far


@pytest.mark.parametrize(
    "words,says",
    [
        ("--num-envs 0", "--num-envs 0 is out of range: expected 1 to 2,147,483,647"),
        ("--rate 1.5", "--rate 1.5 is out of range: expected 0 to 1"),
        ("--rate nan", "--rate nan is out of range"),
        ("--target 1e13", "--target 10000000000000.0 is out of range: expected 1e-12 to 1,000,000,000,000"),
        ("--num-envs True", "--num-envs takes no value: expected --num-envs or --no-num-envs"),
        ("--nonsense", "--nonsense"),
    ],
)
def test_ranges(words, says, capsys):
    assert says in refusal(capsys, arguments.parse, Args, words.split(), "What it does.")


def test_values_inside_their_ranges():
    assert arguments.parse(Args, ["--num-envs", "1", "--rate", "1"], "") == Args(1, 1.0, None)
    assert arguments.parse(Args, ["--target", "None"], "", default=Args(target=2.0)).target is None


def test_seeds_of_games():
    """Seeds are independent: no two episodes of a run agree, those of two runs agree by chance only, and the number of
    processes changes nothing."""
    starts = [(seed, purpose, step) for seed in range(5) for purpose in ("train", "eval") for step in (0, 1024)]
    runs = [env_seeds(*start, range(8 * 1024)) for start in starts]
    for seeds in runs:
        assert len(set(seeds)) == 8192 and 0 <= min(seeds) and max(seeds) < 2**31
    everything = np.concatenate(runs)
    pairs = len(everything) ** 2 / 2 / 2**31  # equal pairs that chance gives: 6.2
    assert len(everything) - len(np.unique(everything)) < 4 * pairs
    by_process = [env_seeds(*starts[0], range(1024 * rank, 1024 * (rank + 1))) for rank in range(8)]
    assert sum(by_process, []) == runs[0]
    assert all(np.diff(np.sort(seeds)).max() < 2**31 / 400 for seeds in runs), "seeds leave a large gap"


@pytest.mark.parametrize("number,processes", [(8, 1), (8, 2), (7, 3), (2, 4), (0, 3)])
def test_shares_of_processes(number, processes, monkeypatch):
    monkeypatch.setattr(devices, "NUM_RANKS", processes)
    parts = []
    for rank in range(processes):
        monkeypatch.setattr(devices, "RANK", rank)
        parts.append(list(devices.share(number)))
    assert sum(parts, []) == list(range(number))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize(
    "batches,num_logs",
    [([128] * 8, 3), ([128] * 8, 100), ([64, 64, 128, 256, 512], 4), ([1024] * 200, ppo_envpool.Args.num_logs)],
)
def test_log_points(batches, num_logs):
    """As many points as asked for, or one an iteration; the last step has one, also if the batch changes on the way."""
    run = object.__new__(rundir.Run)
    run.args, run.total_steps, run.global_step = type("", (), {"num_logs": num_logs}), sum(batches), 0
    points = []
    for batch in batches:
        run.global_step += batch
        points += [run.global_step] * run.at_log_point(batch)
    assert points[-1] == run.total_steps and len(points) == min(num_logs, len(batches), len(points))
    assert len(points) >= min(num_logs, len(batches)) - (len(set(batches)) > 1)
    assert len(points) <= 100  # by default ppo_envpool.py's diagnostics cost less than a tenth


def test_the_first_tensor_that_is_not_finite_in_any_process(tmp_path, monkeypatch):
    """What the gradients have carried into all processes comes later."""
    run = object.__new__(rundir.Run)
    run.path, run.global_step = tmp_path, 64
    monkeypatch.setattr(devices, "NUM_RANKS", 2)
    monkeypatch.setattr(devices, "sum_over_ranks", lambda finite: finite + torch.tensor([1, 0, 0]))
    assert not run.all_finite({"rewards": 1.0, "obs": 2.0, "loss": float("nan")})
    assert (run.failure, run.exit_code) == ("obs", 3)


def test_where_a_number_was_first_not_finite(tmp_path, monkeypatch):
    """By the order of time, then of environments; of tensors (T, N, ...) and (T N, ...), over all processes."""
    run = object.__new__(rundir.Run)
    run.path, run.global_step = tmp_path, 1020
    rewards, obs = torch.zeros(5, 4), torch.zeros(5, 4, 3)
    obs[2, 3, 1], obs[3, 0, 0] = np.nan, np.inf
    for bad in (obs, obs.flatten(0, 1)):
        assert not run.all_finite({"rewards": rewards, "obs": bad, "loss": torch.tensor(np.nan)})
        failed = json.loads((tmp_path / "failed.json").read_text())
        assert failed == {"tensor": "obs", "global_step": 1020, "step": 1008, "environment": 3}
    assert not run.all_finite({"rewards": rewards, "loss": torch.tensor(np.nan), "parameters": torch.tensor([np.nan])})
    assert json.loads((tmp_path / "failed.json").read_text()) == {"tensor": "loss", "global_step": 1020}
    for before, expected in (((2, 3, 1), 5), ((2, 5, 0), 5), ((2, 2, 0), 0)):  # of a process with two environments
        monkeypatch.setattr(devices, "gather", lambda own, before=before: [before, own])
        assert not run.all_finite({"rewards": rewards, "obs": obs})
        assert run._failed_at == {"step": 1020 - 3 * 6, "environment": expected}


def test_random_numbers_go_on_but_those_of_a_child_with_a_seed_of_its_own():
    run, state = object.__new__(rundir.Run), torch.Generator().manual_seed(0).get_state()
    run.args, run.global_step = SimpleNamespace(seed=3), 8
    for run._is_child, run._draws_anew in ((False, False), (False, True), (True, False), (True, True)):
        rng = torch.Generator()  # _is_child: it has only its parent's checkpoint; later its own has its own numbers
        run._set_state("rng", rng, state)
        assert torch.equal(rng.get_state(), state) != (run._is_child and run._draws_anew)


def test_what_keeps_a_run_from_writing_is_one_line(tmp_path, monkeypatch, capsys):
    """A file-size limit, and a directory that has been moved. Other errors keep their traceback."""
    monkeypatch.setattr(os, "_exit", sys.exit)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.raises(SystemExit) as end, rundir.full_disk_in_one_line():
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
        try:
            reading.write_atomically(tmp_path / "checkpoint.pt", bytes(8192))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert end.value.code == 1 and not list(tmp_path.iterdir())
    assert capsys.readouterr().err == "error: File too large; the same command resumes from the last checkpoint\n"
    with pytest.raises(SystemExit), rundir.full_disk_in_one_line():
        reading.write_atomically(tmp_path / "gone" / "checkpoint.pt", b"")
    moved = f"{tmp_path}/gone has been moved or deleted; the same command with its new --run-name resumes from the last"
    assert moved in capsys.readouterr().err
    with pytest.raises(FileNotFoundError), rundir.full_disk_in_one_line():
        open(tmp_path / "checkpoint.pt")


@pytest.mark.parametrize("commit,says", [("0123456789abcdef", "0123456789ab"), (None, "645d5f2")])
def test_a_run_with_an_option_that_is_gone(commit, says, tmp_path, capsys):
    """It would go on without it, and say nothing."""
    args = ppo_envpool.parse_args(f"--run-name r --runs-dir {tmp_path}".split())
    before = {name: value for name, value in vars(args).items() if name not in arguments.PACK}
    content = {"arguments": {**before, "momentum": 0.9, "unused": None}, "git": {"commit": commit, "dirty": False}}
    (tmp_path / "r").mkdir()
    (tmp_path / "r/manifest.json").write_text(json.dumps(content))
    error = refusal(capsys, rundir.Run, args, torch.device("cpu"))
    assert f"--run-name r has run with --momentum 0.9, now gone: commit {says} resumes it" in error


def test_evaluation_episodes_without_a_finite_mean_are_left_out(tmp_path, capsys):
    """Such a number would make done.json one that no program reads."""
    run = object.__new__(rundir.Run)
    run.path = run.name = tmp_path
    run.args, run.alone = SimpleNamespace(capture_video=False), False
    run._lock = io.StringIO()
    run._events = run._meter = run._wandb = None
    run.exit_code, run.global_step, run.parent_step, run._wall_seconds, run.latest = 0, 8, 2, 2.0, [(1.0, 4)]
    done = run.finish([1.0, np.nan])
    assert done == {"global_step": 8, "wall_seconds": 2.0, "sps": 3.0, "episodic_return": 1.0}
    assert (
        reading.read_object(tmp_path / "done.json") == done and "have the mean nan: left out" in capsys.readouterr().err
    )


def test_games_are_counted_by_environment():
    run = object.__new__(rundir.Run)
    run.episodes, run.latest, run.new_returns, run.earned, run._finished = 0, [], [], (0.0, 0), 0
    run.global_step = run._log_step = run._log_time = 0
    run._events = run._wandb = run._best = None
    run.add_episodes([(1.0, 10), (3.0, 30)], np.array([2, 0, 0]), 6.0, 60)
    assert (run.episodes, run.charts()["charts/min_episodes"], run.mean_return()) == (2, 0, 2.0)
    assert run.mean_new_return() == 2.0 and run.new_returns == [1.0, 3.0]
    run.add_episodes([(5.0, 50)] * 100, np.array([0, 150, 1]), 3.0, 30)  # the last 100 of 151
    assert run.charts()["charts/reward"] == 0.1
    assert (run.episodes, run.charts()["charts/min_episodes"], run.mean_return()) == (153, 1, 5.0)
    run.log({})
    run.add_episodes([], np.array([4, 2]), 4.0, 8)  # a schedule has changed the number of environments
    assert run.charts()["charts/reward"] == 0.5 and run.mean_new_return() is None  # since the last log point
    assert (run.charts()["charts/episodes"], run.charts()["charts/min_episodes"]) == (159, 2)
    assert run.charts()["charts/episodic_length"] == 50.0


def test_sums_since_the_last_log_point():
    log = rundir.Stats(counted=0)
    for x in (1.0, 4.0):
        log.add({"a": torch.tensor(x), "b": x})
    log.add({"b": 4.0})
    again = rundir.Stats(**vars(log))  # as a checkpoint gives it back
    assert log.means() == again.means() == {"a": 2.5, "b": 3.0} and again.counted == 0
    assert log.means() == {}


def test_whole_episodes_over_two_rollouts():
    """Environment 0 ends an episode at t=1 and resets in row 2; 1 ends one at t=3; where episodes began before, the
    first of each is not counted."""
    rewards = np.array([[1.0, 1.0], [2.0, 1.0], [0.0, 1.0], [4.0, 1.0]], np.float32)
    ended = np.array([[0, 0], [1, 0], [0, 0], [0, 1]], bool)
    valid = np.array([[1, 1], [1, 1], [0, 1], [1, 1]], bool)
    for whole, first in ((True, [(3.0, 2), (4.0, 4)]), (False, [])):
        episodes = Episodes(2, whole)
        ended_now, finished, earned, steps = episodes.add(rewards, ended, valid)
        assert (ended_now, finished.tolist(), earned, steps) == (first, [1, 1] if whole else [0, 0], 11.0, 7)
        ended_now, finished, *_ = episodes.add(rewards, ended, valid)
        assert (ended_now, finished.tolist()) == ([(7.0, 3), (4.0, 4)], [1, 1])
    episodes = Episodes((2, 1))  # the same environments, each of an agent of its own
    ended_now, finished, earned, steps = episodes.add(rewards[..., None], ended[..., None], valid[..., None])
    assert (ended_now, finished.tolist(), earned, steps) == ([[(3.0, 2)], [(4.0, 4)]], [[1], [1]], [7.0, 4.0], [3, 4])


def test_games_without_a_terminal_say_how_far_they_are(monkeypatch, capsys):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0)
    with progress.progress_bar(2000, "episode", "evaluation episodes") as bar:
        bar.update(0), bar.update(1500)
    assert capsys.readouterr().err == "evaluation episodes: 0 of 2,000\nevaluation episodes: 1,500 of 2,000\n"


def test_interval_of_a_mean_covers_it_with_few_numbers_too():
    draws = np.random.default_rng(1).normal(10, 2, (2000, 3))
    low, high = np.transpose([mean_interval(values) for values in draws])
    assert np.mean((low <= 10) & (10 <= high)) == pytest.approx(0.95, abs=0.02)
    assert mean_interval([1.0]) is None and mean_interval([3.0, 3.0]) == [3.0, 3.0]
    for number in (2, 3, 50, 2000):
        values = draws.flatten()[:number]
        assert mean_interval(values) == pytest.approx(
            stats.t.interval(0.95, number - 1, values.mean(), stats.sem(values))
        )


def test_defaults_are_read_without_an_import():
    values = reading.default_arguments(str(rundir.ROOT / "ppo_atari_envpool.py"))
    import ppo_atari_envpool

    theirs = vars(ppo_atari_envpool.Args())
    assert {**values, "exp_name": theirs["exp_name"]} == theirs
    assert reading.default_arguments("no/such/script.py") == {} and "ppo_atari_envpool" in sys.modules
