"""Which of several seeds evaluate.py takes, and what it says of the choice; and best.pt, which --best takes."""

import fcntl
import json
import shutil

import evaluate
import pytest
import torch
from test_evaluate import make_run, play, refused

import ppo_envpool
from support import reading, several_seeds
from support.envs.episodes import env_seeds


@pytest.fixture(scope="module")
def untrained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("untrained")
    return make_run(folder, "ppo_envpool", env_id="CartPole-v1", learning_rate=1e-3)


@pytest.fixture
def plant(untrained, tmp_path):
    """A function that makes a run of a seed in tmp_path/X, with the return in its done.json (None: no episode)."""

    def make(seed, *score, name=None, command=None, **arguments):
        run = tmp_path / "X" / (name or f"s{seed}")
        shutil.copytree(untrained, run)
        manifest = json.loads((run / "manifest.json").read_text())
        manifest["arguments"].update(seed=seed, run_name=f"X/{run.name}", **arguments)
        manifest["command"] = command or manifest["command"]
        (run / "manifest.json").write_text(json.dumps(manifest))
        if score:
            (run / "done.json").write_text(json.dumps({"global_step": 8, "episodic_return": score[0]}))
        return run

    return make


def choose(folder):
    """The name of the run that is taken, and what is said."""
    member, says = several_seeds.best(folder, several_seeds.members(folder))
    return member.name, says


def test_the_highest_return_is_taken_and_the_others_are_named(plant, tmp_path):
    plant(10, -3.0), plant(2, -1.5), plant(3, None)
    (plant(4) / "failed.json").write_text("{}")
    plant(5)
    (plant(6) / "log.txt").write_text("it broke\n[launch 2026] exit code 1\n")
    with open(plant(7) / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        name, says = choose(tmp_path / "X")
    assert name == "s2" and says == (
        f"{tmp_path}/X: s2 is the best of 2, the mean of its last 100 training returns is -1.5; left out: "
        "s3 (no episode has ended), s4 (diverged), s5 (not finished), s6 (failed), s7 (running)"
    )
    lines = several_seeds.table(several_seeds.members(tmp_path / "X"))
    assert [line.split()[:3] for line in lines[1:4]] == [
        ["2", "done", "-1.5"],
        ["3", "done", "-"],
        ["4", "diverged", "-"],
    ]


def test_of_equal_ones_the_lowest_seed(plant, tmp_path):
    plant(10, 500.0), plant(9, 500.0), plant(8, 499.0)
    name, says = choose(tmp_path / "X")
    assert name == "s9" and "is 500; so is that of s10, and the lowest seed is taken" in says


def test_runs_of_the_launcher(plant, tmp_path, capsys):
    """Their names say more, their directories may be links, and the machine may be another one."""
    plant(1, 20.0, name="CartPole__n8_t128__s1", num_threads=1, checkpoint_minutes=1.0)
    run = plant(2, 30.0, name="CartPole__n8_t128__s2", num_threads=2)
    run.rename(tmp_path / "elsewhere")
    run.symlink_to("../elsewhere")
    result, err = play(capsys, tmp_path / "X", "--episodes", 2)
    assert result["run_dir"] == str(run) and "CartPole__n8_t128__s2 is the best of 2" in result["chosen"]
    assert err.startswith(f"note: {result['chosen']}\n")


@pytest.mark.parametrize(
    "others, says",
    [
        ([], ": none of its runs is finished and has ended an episode: s1 (not finished): expected a finished run"),
        ([dict(seed=2, score=[None])], "episode: s1 (not finished), s2 (no episode has ended): expected"),
        (
            [dict(seed=2, score=[1.0], env_id="Acrobot-v1", clip_coef=0.1)],
            "s2 has run with --env-id Acrobot-v1, not CartPole-v1 as s1",
        ),
        ([dict(seed=2, score=[1.0], hidden_sizes=[9])], "s2 has run with --hidden-sizes 9, not 64 64 as s1: expected"),
        ([dict(seed=2, score=[1.0], command="python other.py")], "s2 is a run of other.py, s1 of ppo_envpool.py: exp"),
        ([dict(seed=1, score=[1.0], name="s1_copy")], "s1 and s1_copy have the same seed, 1: expected"),
    ],
)
def test_what_cannot_be_compared_is_one_line(others, says, plant, tmp_path, capsys):
    plant(1)
    for other in others:
        plant(other.pop("seed"), *other.pop("score"), **other)
    line = refused(capsys, tmp_path / "X")
    assert line.startswith(f"error: {tmp_path}/X: ") and line.count("\n") == 1 and says in line


def test_directories_that_are_no_runs(plant, tmp_path, capsys):
    (tmp_path / "X/s1").mkdir(parents=True)
    for folder in (tmp_path / "X", tmp_path / "nowhere"):
        line = refused(capsys, folder)
        assert line.startswith(f"error: {folder} has no manifest.json of a run: expected") and line.count("\n") == 1
    plant(2, 1.0)
    (tmp_path / "X/s3").mkdir()
    (tmp_path / "X/s3/manifest.json").write_text("{")
    line = refused(capsys, tmp_path / "X")
    assert line.startswith(f"error: {tmp_path}/X: s3 cannot be read (manifest.json: ") and line.count("\n") == 1


def test_a_best_run_without_a_readable_checkpoint_is_not_replaced_by_another(plant, tmp_path, capsys):
    plant(1, 1.0)
    best = plant(2, 2.0)
    (best / "checkpoint.pt").write_bytes(b"")
    said = refused(capsys, tmp_path / "X").splitlines()
    assert "s2 is the best of 2" in said[0]
    assert said[-1].startswith(f"error: {best}: checkpoint.pt cannot be read")
    (best / "checkpoint.pt").unlink()
    assert f"error: {best} has no checkpoint.pt" in refused(capsys, tmp_path / "X")


def test_the_episodes_are_others_than_those_of_the_choice(plant, tmp_path, capsys, monkeypatch):
    """…also where the run has the seed of evaluate.py's episodes."""
    plant(1000, 1.0)
    played, play_episodes = [], ppo_envpool.play_episodes

    def play_and_keep(agent, args, device, seeds, numbers, *others):
        played.extend(seeds[0][i] for i in numbers)
        return play_episodes(agent, args, device, seeds, numbers, *others)

    monkeypatch.setattr(ppo_envpool, "play_episodes", play_and_keep)
    play(capsys, tmp_path / "X", "--episodes", 20)
    assert len(set(played)) == 20
    for purpose in ("train", "eval"):
        assert not set(played) & set(env_seeds(1000, purpose, 0, range(1000)))


def test_best_takes_best_pt(plant, tmp_path, capsys):
    plant(1, 1.0)
    run = plant(2, 2.0)
    line = refused(capsys, run, "--best")
    assert (
        line.startswith(f"error: {run} has no best.pt: expected a run in which 100 episodes") and line.count("\n") == 1
    )
    newest = reading.load_checkpoint(run / "checkpoint.pt", "cpu")
    weights = {name: -x for name, x in newest["agent"].items()}
    torch.save({"format": reading.FORMAT, "run": {"global_step": 3}, "agent": weights}, run / "best.pt")
    result, _ = play(capsys, tmp_path / "X", "--best", "--episodes", 5, "--greedy")
    assert (result["network"], result["global_step"], result["run_dir"]) == ("best.pt", 3, str(run))
    other, _ = play(capsys, run, "--episodes", 5, "--greedy")
    assert (other["network"], other["global_step"], other["chosen"]) == ("checkpoint.pt", 7, None)
    assert result["scores"] != other["scores"]
    loaded = evaluate.load(run, best=True)
    assert all(torch.equal(loaded.checkpoint["agent"][name], x) for name, x in weights.items())
    (run / "best.pt").write_bytes(b"")
    assert refused(capsys, run, "--best").splitlines()[-1] == f"error: {run}/best.pt cannot be read"
