"""scripts/evaluate.py: its games against EnvPool's pixel by pixel, what it counts, and what it refuses.

The runs are directories with an untrained network; tests/test_procgen.py evaluates a run that was trained.
"""

import dataclasses
import importlib
import json
from types import SimpleNamespace

import envpool
import evaluate
import imageio.v2 as imageio
import numpy as np
import pytest
import torch

from support import catalog, reading

ATARI = ("ppo_atari_envpool", "pqn_atari_envpool", "ppo_rnd_envpool")


def make_run(folder, script="ppo_atari_envpool", **arguments):
    """A run directory of Breakout with the network that the script starts from."""
    module = importlib.import_module(script)
    arguments = {**dataclasses.asdict(module.Args()), "env_id": "Breakout-v5", **arguments}
    torch.manual_seed(1)
    agent = module.make_agent(SimpleNamespace(**arguments))
    folder.mkdir(exist_ok=True)
    manifest = {"arguments": arguments, "command": f"python {script}.py --seed 1"}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    checkpoint = {"format": reading.FORMAT, "run": {"global_step": 7}, "agent": agent.state_dict()}
    torch.save(checkpoint, folder / "checkpoint.pt")
    return folder


def play(capsys, *words):
    """Runs the program in this process. Returns what its line of JSON says, and stderr."""
    evaluate.main(evaluate.parse_args(list(map(str, words))))
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    return json.loads(out), err


def refused(capsys, *words):
    """Returns the one line with which the program ends."""
    with pytest.raises(SystemExit) as end:
        evaluate.main(evaluate.parse_args(list(map(str, words))))
    out, err = capsys.readouterr()
    assert end.value.code == 2 and out == ""
    return err


# ---- two emulators ---------------------------------------------------------------------------------------------------
class FoundFrames:
    """Replaces a game's generator: finds how many of 1 to 30 frames EnvPool has drawn before a life."""

    def __init__(self, game):
        self.game, self.drawn = game, []

    def integers(self, low, high):
        assert (low, high) == (1, 31)
        ale = self.game.ale
        before, score, lives = ale.cloneState(), self.game.score, self.game.lives
        for count in range(low, high):
            self.game.begin_life(count)
            same = np.array_equal(ale.getRAM(), self.ram)
            ale.restoreState(before)
            self.game.score, self.game.lives = score, lives
            if same:
                self.drawn.append(count)
                return count
        raise AssertionError("no number of frames before this life leads to EnvPool's console")


@pytest.mark.parametrize("name", ["Breakout-v5", "Pong-v5", "Qbert-v5", "Amidar-v5"])
def test_both_emulators_show_the_same_pixels(name, monkeypatch):
    """And pay the same rewards, in whole games with all lives, given the same actions and frames before each life."""
    envs = envpool.make(
        name, env_type="gymnasium", num_envs=1, num_threads=1, episodic_life=True, reward_clip=True, seed=3
    )
    game = evaluate.AtariGame(SimpleNamespace(env_id=name))
    found = FoundFrames(game)
    game.lives = 0
    monkeypatch.setattr(np.random, "default_rng", lambda seed: found)
    obs, info = envs.reset()
    found.ram = info["ram"][0]
    assert np.array_equal(game.reset(1), obs[0].transpose(1, 2, 0))
    score, actions = 0.0, np.random.RandomState(0).randint(envs.action_space.n, size=900)
    for step, action in enumerate(actions):
        obs, _, terminated, _, info = envs.step(np.array([action], np.int32))
        score += info["reward"][0]
        over = bool(info["terminated"][0])
        if terminated[0] and not over:  # a life, not the game
            obs, _, _, _, info = envs.step(np.array([0], np.int32))
        found.ram = info["ram"][0]
        frames, ended = game.step(action)
        assert ended == over and game.score == score, step
        if over:
            break
        assert np.array_equal(frames, obs[0].transpose(1, 2, 0)), step
    lives = {"Breakout-v5": 5, "Pong-v5": 1, "Qbert-v5": 4, "Amidar-v5": 3}[name]
    assert len(found.drawn) >= lives and step > 30 and score != 0


def test_a_game_ends_at_the_time_limit(monkeypatch):
    monkeypatch.setattr(evaluate, "MAX_STEPS", 40)
    game = evaluate.AtariGame(SimpleNamespace(env_id="Pong-v5"))
    game.reset(5)
    assert [game.step(0)[1] for _ in range(40)] == [False] * 39 + [True]


def test_the_same_seed_is_the_same_game_and_another_is_not():
    game = evaluate.AtariGame(SimpleNamespace(env_id="Breakout-v5"))

    def frames(seed):
        return np.stack([game.reset(seed), *(game.step(action)[0] for action in [2, 3, 0, 2] * 10)])

    assert np.array_equal(frames(1), frames(1)) and not np.array_equal(frames(1), frames(4))


class ClockGame:
    """Replaces AtariGame: the game of seed s lasts 1 + (s % 7) ** 2 steps and scores s."""

    def __init__(self, args, video):
        self.video = video

    def reset(self, seed):
        self.score, self.left = seed, 1 + (seed % 7) ** 2
        return np.zeros((84, 84, 4), np.uint8)

    def step(self, action):
        self.left -= 1
        return np.zeros((84, 84, 4), np.uint8), self.left == 0


@pytest.mark.parametrize("num_envs", [1, 4, 100])
def test_no_game_is_lost_for_being_long(num_envs, monkeypatch):
    """The first games to end are short ones: every game that was begun counts, once."""
    monkeypatch.setattr(evaluate, "AtariGame", ClockGame)
    args = SimpleNamespace(env_id="Breakout-v5")
    scores = evaluate.play_atari(lambda obs: np.zeros(len(obs), int), args, 30, num_envs, 100, None)
    assert sorted(scores) == list(range(100, 130))


# ---- numbers ---------------------------------------------------------------------------------------------------------
def test_normalized_scores():
    """The references by hand: Breakout 1.7 and 30.5, Skiing's are negative; CartPole 22.58 and 500, bigfish 1, 40."""
    atari, small = catalog.scale("ppo_atari_envpool"), catalog.scale("ppo_envpool")
    result = evaluate.summarize("Breakout-v5", [1.7, 30.5], atari)
    assert result["normalized"] == pytest.approx(0.5) and "human_at30" in result["scale"]
    assert result["ci95"] == pytest.approx([16.1 - 12.706 * 14.4, 16.1 + 12.706 * 14.4], rel=1e-4)  # Student's t
    assert result["normalized_ci95"] == pytest.approx([0.5 - 12.706 / 2, 0.5 + 12.706 / 2], rel=1e-4)
    assert evaluate.summarize("Skiing-v5", [-17098.1], atari)["normalized"] == pytest.approx(0.0)
    assert evaluate.summarize("Skiing-v5", [-4336.9], atari)["normalized"] == pytest.approx(1.0)
    assert evaluate.summarize("Skiing-v5", [-4336.9], atari)["normalized_ci95"] is None  # one game has no interval
    result = evaluate.summarize("CartPole-v1", [22.58, 500.0], small)
    assert result["normalized"] == pytest.approx(0.5) and "small_worlds" in result["scale"]
    procgen = catalog.scale("ppo_procgen")
    assert evaluate.summarize("BigfishEasy-v0", [40.0], procgen)["normalized"] == pytest.approx(1.0)
    outside = [("Carnival-v5", atari), ("bigfish", atari), ("gymnasium:my:Task-v0", small), ("Mjlab-Ant", None)]
    for name, scale in outside:
        result = evaluate.summarize(name, [1.0, 2.0], scale)
        assert result["mean"] == 1.5 and result["normalized"] is result["normalized_ci95"] is result["scale"] is None


# ---- whole evaluations -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("script", ATARI)
def test_every_atari_script_on_both_emulators(script, tmp_path, capsys):
    run_dir = make_run(tmp_path, script)
    for words, emulator in ((), "ale-py"), (("--envpool",), "envpool"):
        result, _ = play(capsys, run_dir, "--episodes", 3, "--num-envs", 2, *words)
        assert result["emulator"] == emulator and result["episodes"] == len(result["scores"]) == 3
        assert result["global_step"] == 7 and result["env_id"] == "Breakout-v5"
        assert result["mean"] == pytest.approx(np.mean(result["scores"]))
        assert result["normalized"] == pytest.approx((result["mean"] - 1.7) / 28.8)


def test_sampled_and_greedy(tmp_path, capsys):
    """The same seed gives the same games; an untrained policy is nearly uniform, its most likely action is not."""
    run_dir = make_run(tmp_path)
    sampled, again = (play(capsys, run_dir, "--episodes", 4, "--num-envs", 4)[0] for _ in range(2))
    assert sampled == again and not sampled["greedy"]
    greedy = play(capsys, run_dir, "--episodes", 4, "--num-envs", 4, "--greedy")[0]
    assert greedy["greedy"] and greedy["scores"] != sampled["scores"]


def test_the_actions_of_a_network_with_known_outputs():
    """The last of four actions is the best: PQN leaves it in epsilon of all steps for any of the four."""
    logits = torch.tensor([0.1, 0.2, 0.3, 0.4]).log()
    obs, agent = np.zeros((10_000, 1), np.float32), lambda obs: (logits.expand(len(obs), 4), None)
    pqn, ppo = SimpleNamespace(start_e=1.0, end_e=0.04), SimpleNamespace()
    for args, greedy, expected in (
        (pqn, False, [0.01, 0.01, 0.01, 0.97]),
        (ppo, False, [0.1, 0.2, 0.3, 0.4]),
        (pqn, True, [0, 0, 0, 1]),
        (ppo, True, [0, 0, 0, 1]),
    ):
        actions = evaluate.make_policy(agent, args, greedy, seed=1)(obs)
        shares = np.bincount(actions, minlength=4) / len(obs)
        assert shares == pytest.approx(expected, abs=0.02 if max(expected) < 0.9 else 0.004)
    words = [evaluate.how_it_acts(args, greedy) for args in (pqn, ppo) for greedy in (False, True)]
    assert words[0] == "epsilon-greedy, epsilon 0.04" and words[1] == words[3] != words[2]


def test_scores_on_envpool_do_not_depend_on_the_number_at_a_time(tmp_path, capsys):
    run_dir = make_run(tmp_path)
    one, three = (play(capsys, run_dir, "--envpool", "--episodes", 3, "--num-envs", n)[0]["scores"] for n in (1, 3))
    assert one == three and len(set(one)) > 1


@pytest.mark.parametrize("task", ["gymnasium:run.evil:CartPole-v1", "gymnasium::run.evil:CartPole-v1"])
def test_no_code_from_a_run_directory(task, tmp_path, capsys, monkeypatch):
    """…even where Python would find it, and with --trust. What is imported is named before."""
    run_dir = make_run(tmp_path / "run")
    manifest = json.loads((run_dir / "manifest.json").read_text())
    manifest["arguments"]["env_id"], manifest["command"] = task, "python ppo_envpool.py"
    (run_dir / "manifest.json").write_text(json.dumps(manifest))
    (run_dir / "evil.py").write_text("import pathlib; pathlib.Path(__file__).with_name('trace').touch()")
    monkeypatch.syspath_prepend(tmp_path)
    assert "run.evil, which came with the run" in refused(capsys, run_dir)
    said = refused(capsys, run_dir, "--trust").splitlines()
    assert said[0] == f"note: {run_dir}: its task is of the module run.evil, which is imported now"
    assert f"is code in the run directory {run_dir}" in said[1] and not (run_dir / "trace").exists()


@pytest.mark.parametrize("suffix", ["gif", "mp4"])
def test_film_in_colour(suffix, tmp_path, capsys):
    path = tmp_path / f"film.{suffix}"
    play(capsys, make_run(tmp_path), "--episodes", 1, "--video", path)
    frames = np.stack([frame[..., :3] for frame in imageio.get_reader(path)])
    assert frames.shape[1:] == (420, 320, 3) and len(frames) > 40
    assert (frames.max(-1).astype(int) - frames.min(-1)).max() > 80, "grey"
    assert any(not np.array_equal(frames[0], frame) for frame in frames), "nothing moves"


def test_broken_checkpoints(tmp_path, capsys):
    run_dir = make_run(tmp_path)
    whole = (run_dir / "checkpoint.pt").read_bytes()
    (run_dir / "checkpoint.prev.pt").write_bytes(whole)
    (run_dir / "checkpoint.pt").write_bytes(whole[: len(whole) // 2])
    result, err = play(capsys, run_dir, "--episodes", 1)
    assert result["global_step"] == 7 and err.startswith("note: ") and "checkpoint.pt cannot be read" in err
    (run_dir / "checkpoint.prev.pt").write_bytes(b"")
    assert refused(capsys, run_dir).splitlines()[-1].startswith("error: ")
    for name in ("checkpoint.pt", "checkpoint.prev.pt"):
        (run_dir / name).unlink()
    assert "has no checkpoint.pt: expected" in refused(capsys, run_dir)
    make_run(tmp_path)
    checkpoint = torch.load(run_dir / "checkpoint.pt", weights_only=True)
    old = {**checkpoint["run"], "agent": checkpoint["agent"]}  # before the format had a number
    torch.save(old, run_dir / "checkpoint.pt")
    line = refused(capsys, run_dir)
    assert line.startswith("error: ") and line.count("\n") == 1 and "has format 1, this version reads" in line
    make_run(tmp_path)
    manifest = json.loads((run_dir / "manifest.json").read_text())
    manifest["arguments"]["shared_encoder"] = False  # the weights are of another network
    (run_dir / "manifest.json").write_text(json.dumps(manifest))
    assert "does not fit the network" in refused(capsys, run_dir)


@pytest.mark.parametrize(
    "words, said",
    [
        (["--episodes", "0"], "--episodes 0 is out of range: expected 1 to 10,000"),
        (["--video", "film.avi"], "film.avi"),
        (["--video", "/nowhere/a.gif"], "/nowhere"),
        (["--train-levels"], "--train-levels"),
        (["--envpool", "--video", "a.gif"], "--envpool"),
    ],
)
def test_bad_arguments_are_one_line(words, said, tmp_path, capsys):
    line = refused(capsys, make_run(tmp_path), *words)
    assert line.startswith("error: ") and line.count("\n") == 1 and said in line
    assert not list(tmp_path.glob("*.gif"))


@pytest.mark.parametrize(
    "text", [None, "{", '{"arguments": {}}', '{"arguments": {"env_id": "x"}, "command": "python other.py"}']
)
def test_what_is_no_run_is_one_line(text, tmp_path, capsys):
    if text is not None:
        (tmp_path / "manifest.json").write_text(text)
    line = refused(capsys, tmp_path)
    assert line.startswith("error: ") and line.count("\n") == 1 and str(tmp_path) in line
