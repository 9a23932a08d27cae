"""Procgen: reward normalisation, the IMPALA network, the loop on real games, levels, and what EnvPool guarantees."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import envpool
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import ROOT, Recorder, command, curves, environment, refusal, run, train_here
from gymnasium.wrappers.utils import RunningMeanStd
from test_evaluate import play, refused

import ppo_procgen as procgen
from support import diagnostics

GAMES = (
    "bigfish bossfight caveflyer chaser climber coinrun dodgeball fruitbot heist jumper leaper maze miner ninja "
    "plunder starpilot"
).split()


# ---- reward normalisation --------------------------------------------------------------------------------------------
def test_normalize_rewards_by_hand():
    """One game: 1, then 2 and the end, an autoreset step, 3. With gamma 1/2 the sums are 1, 2.5, and then 3."""
    rewards = np.array([[1.0], [2.0], [0.0], [3.0]], dtype=np.float32)
    ends = np.array([[False], [True], [False], [False]])
    valid = np.array([[True], [True], [False], [True]])
    normalized, discounted, (mean, var, count) = procgen.normalize_rewards(
        rewards, ends, valid, np.zeros(1), (0.0, 1.0, 1e-9), 0.5
    )
    assert count == pytest.approx(3) and mean == pytest.approx(6.5 / 3) and discounted.tolist() == [3.0]
    assert var == pytest.approx(np.var([1.0, 2.5, 3.0]), rel=1e-6)
    assert normalized[0, 0] == 10.0  # one sum has no deviation yet: the clip is all that holds it
    assert normalized[1, 0] == pytest.approx(2 / np.std([1.0, 2.5]), rel=1e-5)
    assert normalized[2, 0] == 0.0
    assert normalized[3, 0] == pytest.approx(3 / np.std([1.0, 2.5, 3.0]), rel=1e-5)


def test_normalize_rewards_is_gyms():
    """Against gym's NormalizeReward, with its running mean and variance, an epsilon, a step at a time."""
    generator = np.random.default_rng(0)
    rewards = generator.normal(size=(50, 4)).astype(np.float32)
    ends = generator.random((50, 4)) < 0.1
    found, sums, expected = RunningMeanStd(), np.zeros(4), []
    for reward, end in zip(rewards, ends):
        sums = sums * 0.9 + reward
        found.update(sums)
        expected.append(np.clip(reward / np.sqrt(found.var + 1e-8), -10, 10))
        sums[end] = 0.0
    whole, discounted, moments = procgen.normalize_rewards(
        rewards, ends, np.ones_like(ends), np.zeros(4), (0.0, 1.0, 1e-4), 0.9
    )
    np.testing.assert_allclose(whole, expected, rtol=1e-5)
    np.testing.assert_allclose(discounted, sums)
    assert moments == pytest.approx((found.mean, found.var, found.count))


def test_merge_moments_is_that_of_the_whole():
    data = np.random.default_rng(1).normal(3.0, 2.0, size=(90, 2, 3))
    for convert in (np.asarray, torch.tensor):
        moments = (0.0, 1.0, 0)
        for part in np.split(data, [10, 10, 55]):  # one of them empty
            moments = diagnostics.merge_moments(moments, convert(part))
        mean, var, count = moments
        np.testing.assert_allclose(mean, data.mean(0), rtol=1e-12)
        np.testing.assert_allclose(var, data.var(0), rtol=1e-12)
        assert count == 90


# ---- the network -----------------------------------------------------------------------------------------------------
def test_the_network_is_cleanrls():
    """The weights under CleanRL's names, put through the network as CleanRL writes it."""
    torch.manual_seed(0)
    agent = procgen.Agent(15)
    weights = agent.state_dict()

    def conv(name, x):
        return F.conv2d(x, weights[f"{name}.weight"], weights[f"{name}.bias"], padding=1)

    obs = torch.randint(0, 256, (6, 64, 64, 3), dtype=torch.uint8)
    x, layers = obs.permute(0, 3, 1, 2).float() / 255, []
    for i in range(3):
        x = F.max_pool2d(conv(f"network.{i}.conv", x), kernel_size=3, stride=2, padding=1)
        for block in ("res_block0", "res_block1"):
            first = x.relu()
            second = conv(f"network.{i}.{block}.conv0", first).relu()
            layers += [first, second]
            x = x + conv(f"network.{i}.{block}.conv1", second)
    layers.append(x.relu())
    hidden = F.linear(x.flatten(1).relu(), weights["network.5.weight"], weights["network.5.bias"]).relu()
    with torch.no_grad():
        logits, value, hiddens = agent(obs)
        torch.testing.assert_close(logits, F.linear(hidden, weights["actor.weight"], weights["actor.bias"]))
        torch.testing.assert_close(value[:, None], F.linear(hidden, weights["critic.weight"], weights["critic.bias"]))
        assert len(hiddens[0]) == 14
        for ours, theirs in zip(hiddens[0], [*layers, hidden]):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
        half = procgen.Agent(15, bf16=True)
        half.load_state_dict(weights)
        assert (half(obs)[2][0][-1] - hidden).norm() < 0.05 * hidden.norm()
        separate = procgen.Agent(15, shared_encoder=False)
        assert [len(layers) for layers in separate(obs)[2]] == [14, 14]


# ---- what the rollout hands to the targets ---------------------------------------------------------------------------
def arguments(tmp_path, *words):
    return procgen.parse_args(command("ppo_procgen.py", tmp_path, *words)[2:])


# ---- games and levels ------------------------------------------------------------------------------------------------
def test_the_gap_is_of_whole_games_on_both_level_sets(tmp_path, monkeypatch):
    """Rollouts are far shorter than a game: each point still has the mean of 3 whole games on each level set."""
    words = "--env-id fruitbot --num-envs 2 --num-steps 4 --total-timesteps 16 --num-minibatches 1 --num-threads 1"
    args = arguments(tmp_path, *words.split(), "--num-levels", 2, "--eval-envs", 3, "--no-diagnostics")
    recorder = Recorder(procgen.make_envs)
    monkeypatch.setattr(procgen, "make_envs", recorder)
    train_here(procgen, args)
    means, seeds = {0: [], 2: []}, []
    training, evaluations = recorder.pools[:2], recorder.pools[2:]  # two pieces of one game each; 3 games in two pieces
    assert [len(pool.seeds) for pool in training + evaluations] == [1, 1] + [1, 2] * 4
    for pieces in zip(evaluations[::2], evaluations[1::2]):
        returns, levels = [], []
        for pool in pieces:
            rewards, terminated, truncated = (torch.stack(x).numpy() for x in list(zip(*pool.steps))[2:5])
            done = terminated | truncated
            first_end = done.argmax(0)  # the step that ends the first game of each environment
            assert done.any(0).all() and len(done) == first_end.max() + 1
            returns += [rewards[: last + 1, i].sum() for i, last in enumerate(first_end)]
            levels += pool.info["level_seed"].tolist()
        num_levels = pieces[0].args.num_levels
        means[num_levels].append(np.mean(returns))
        seeds.append([*pieces[0].seeds, *pieces[1].seeds])
        assert set(levels) <= {0, 1} if num_levels else min(levels) > 1
    found = curves(tmp_path / "run")
    for tag, expected in (("eval_episodic_return", means[0]), ("eval_train_return", means[2])):
        assert found[f"charts/{tag}"] == [(8, pytest.approx(expected[0])), (16, pytest.approx(expected[1]))]
    gap = [value for _, value in found["charts/generalization_gap"]]
    assert gap == pytest.approx(np.subtract(means[2], means[0]).tolist(), abs=1e-5)
    assert seeds[0] == seeds[1] != seeds[2]  # the same games on both level sets, other games at the next point


def test_the_sweep_can_have_finite_levels(tmp_path):
    words = ["bash", str(ROOT / "sweeps/procgen.sh"), "--dry-run"]
    lines = {}
    for levels in ("0", "200"):
        env = environment(NUM_LEVELS=levels, SEEDS="1", RUNS_DIR=str(tmp_path), PYTHON=sys.executable)
        done = subprocess.run(words, capture_output=True, text=True, env=env)
        assert done.returncode == 0, done.stderr
        lines[levels] = [line for line in done.stdout.splitlines() if line.startswith("python ppo_procgen.py")]
    assert len(lines["200"]) == len(lines["0"]) == 10
    assert all("--num-levels 200" in line and "_l200__s1" in line for line in lines["200"])
    assert not any("--num-levels" in line for line in lines["0"])


@pytest.mark.parametrize("game", GAMES)
def test_all_sixteen_games_easy_and_hard(game, tmp_path):
    for mode in ("easy", "hard"):
        args = arguments(tmp_path, "--env-id", game, "--distribution-mode", mode)
        envs = procgen.make_envs(args, seeds=[1, 2, 3, 4])
        obs, _ = envs.reset()
        assert obs.shape == (4, 64, 64, 3) and obs.dtype == np.uint8 and envs.action_space.n == 15
        obs, rewards, *_ = envs.step(np.zeros(4, dtype=np.int32))
        assert rewards.shape == (4,) and rewards.dtype == np.float32 and obs.std() > 0
        assert procgen.procgen_id(args) == f"{game.capitalize()}{mode.capitalize()}-v0"


def test_ids(tmp_path):
    assert procgen.procgen_id(arguments(tmp_path)) == "BigfishEasy-v0"
    assert procgen.procgen_id(arguments(tmp_path, "--env-id", "StarpilotHard-v0")) == "StarpilotHard-v0"
    assert (
        procgen.procgen_id(arguments(tmp_path, "--env-id", "maze", "--distribution-mode", "memory")) == "MazeMemory-v0"
    )


@pytest.mark.parametrize(
    "words,says",
    [
        ("--env-id bigfsh", "--env-id bigfsh (BigfshEasy-v0) is not a Procgen game of EnvPool; near: BigfishEasy-v0"),
        ("--env-id Breakout-v5", "--env-id Breakout-v5"),
        ("--env-id bigfish --distribution-mode memory", "--env-id bigfish (BigfishMemory-v0)"),
        ("--env-id bigfish --distribution-mode nightmare", "--distribution-mode"),
        ("--env-id BigfishEasy-v0 --distribution-mode hard", "--distribution-mode hard contradicts --env-id Bigfish"),
        ("--num-levels 0 --start-level 5", "--start-level 5 without --num-levels: expected --num-levels of 1 or more"),
        ("--num-levels -1", "--num-levels -1 is out of range: expected 0 to 1,073,741,824"),
        ("--eval-envs 1025", "--eval-envs 1025 is out of range: expected 0 to 1,024"),
    ],
)
def test_bad_levels_and_games(words, says, tmp_path, capsys):
    assert says in refusal(capsys, arguments, tmp_path / "runs", *words.split())
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="EnvPool's wheel brings its own Qt")
def test_without_qt(tmp_path):
    """A file that is no library, found before Debian's: what the loader says is not what the user needs to hear."""
    (tmp_path / "libQt5Gui.so.5").write_bytes(b"")
    words = command("ppo_procgen.py", tmp_path / "runs")
    done = subprocess.run(words, capture_output=True, text=True, env=environment(LD_LIBRARY_PATH=str(tmp_path)))
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: --env-id bigfish needs Qt 5")
    assert "apt-get install -y libqt5gui5" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_levels_are_those_asked_for(tmp_path):
    args = arguments(tmp_path, "--num-levels", 3, "--start-level", 10)
    envs = procgen.make_envs(args, seeds=list(range(8)))
    _, info = envs.reset()
    seen, actions = set(info["level_seed"].tolist()), np.random.default_rng(0)
    for _ in range(300):
        info = envs.step(actions.integers(15, size=8).astype(np.int32))[4]
        seen |= set(info["level_seed"].tolist())
    assert seen == {10, 11, 12}
    everything = procgen.make_envs(replace(args, num_levels=0, start_level=0), seeds=list(range(8)))
    assert min(everything.reset()[1]["level_seed"]) > 1000  # among 2**31: the test set hardly meets the training set


def test_the_time_limit_truncates_and_the_next_step_resets():
    """In the maze a player who stays meets the limit of 500 steps: the frame there is the last one of the episode."""
    envs = envpool.make("MazeEasy-v0", env_type="gymnasium", num_envs=2, num_threads=1, seed=1, channel_first=False)
    obs, _ = envs.reset()
    stay = np.full(2, 4, dtype=np.int32)
    for _ in range(499):
        obs, _, terminated, truncated, _ = envs.step(stay)
        assert not (terminated | truncated).any()
    last, rewards, terminated, truncated, _ = envs.step(stay)
    assert truncated.all() and not terminated.any() and np.array_equal(last, obs)
    first, rewards, terminated, truncated, info = envs.step(stay)
    assert not (terminated | truncated).any() and (rewards == 0).all() and (info["elapsed_step"] == 0).all()
    assert not np.array_equal(first, last)


# ---- evaluation ------------------------------------------------------------------------------------------------------
def test_evaluate_on_seen_and_unseen_levels(tmp_path, capsys):
    """The program in a process of its own, and its function in this one."""
    levels = ("--env-id", "starpilot", "--num-levels", 5, "--eval-envs", 1)
    run("ppo_procgen.py", tmp_path, "--no-diagnostics", "--total-timesteps", 128, *levels)
    words = [str(tmp_path / "run"), "--episodes", "8", "--num-envs", "4"]
    program = [sys.executable, str(ROOT / "scripts/evaluate.py"), *words]
    done = subprocess.run(program, capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr
    unseen = json.loads(done.stdout)
    assert unseen["episodes"] == len(unseen["scores"]) == 8 and unseen["env_id"] == "starpilot"
    low, high = unseen["ci95"]
    assert low <= unseen["mean"] <= high and unseen["mean"] == pytest.approx(np.mean(unseen["scores"]))
    again, _ = play(capsys, *words)
    assert again == unseen
    seen, _ = play(capsys, *words, "--train-levels")
    assert seen["scores"] != unseen["scores"]
    os.remove(tmp_path / "run/checkpoint.pt")
    assert refused(capsys, *words).count("\n") == 1
