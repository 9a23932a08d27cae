"""What the scripts take for granted about EnvPool, asserted on EnvPool itself: a new version may not break it."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import envpool
import numpy as np
import pytest
import torch

from support import catalog
from support.envs import tasks
from support.envs.envpool import make_envpool, make_raw

RESET_FIELDS = ("elapsed_step", "lives", "reward", "terminated")


def make(game, num_envs=2, seed=1, threads=1, **options):
    """The environments as the scripts make them."""
    options = {"episodic_life": True, "reward_clip": True, **options}
    return envpool.make(game, env_type="gymnasium", num_envs=num_envs, num_threads=threads, seed=seed, **options)


def random_actions(envs, num_steps, num_envs, seed=0):
    """(T, N) int32, from a generator of its own: two plays with one seed get the same actions."""
    return np.random.default_rng(seed).integers(0, envs.action_space.n, (num_steps, num_envs)).astype(np.int32)


def play(envs, actions):
    """Steps through the actions; returns {name: (T, N, …)} of all that comes back, and the first observation."""
    first, _ = envs.reset()
    rows = []
    for action in actions:
        obs, rewards, terminations, truncations, info = envs.step(action)
        rows.append(
            {
                "obs": obs,
                "rewards": rewards,
                "terminations": terminations,
                "truncations": truncations,
                "score": breakout_score(info["ram"]),
                **{f"info_{name}": info[name] for name in RESET_FIELDS},
            }
        )
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}, first


def breakout_score(ram):
    """The score that the console itself keeps, binary coded decimals in two bytes; of other games, no meaning."""
    return (ram[:, 76] & 15) * 100 + (ram[:, 77] >> 4) * 10 + (ram[:, 77] & 15).astype(int)


@pytest.fixture(scope="module")
def breakout():
    """300 random steps of four games of Breakout; lives and games are lost on the way."""
    envs = make("Breakout-v5", 4)
    played, first = play(envs, random_actions(envs, 300, 4))
    played["done"] = played["terminations"] | played["truncations"]
    played["reset_row"] = np.concatenate([np.zeros((1, 4), bool), played["done"][:-1]])
    played["before"] = np.concatenate([first[None], played["obs"][:-1]])
    assert played["reset_row"].sum() > 20 and played["info_terminated"].sum() > 4, "too few ends to prove a thing"
    return played


# ---- frames ----------------------------------------------------------------------------------------------------------
def test_envpool_is_imported_without_matplotlib_and_makes_its_jumanji_tasks_afterwards():
    program = """
import sys
from support.envs.envpool import families, library
assert families()["Game2048-v1"] == "envpool.jumanji" and not {"matplotlib", "envpool.jumanji"} & set(sys.modules)
assert library().make("Game2048-v1", env_type="gymnasium", num_envs=2, num_threads=1).reset()
"""
    subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parent.parent, check=True)


def test_the_newest_frame_is_the_last(breakout):
    """…and the three before it are those of the step before: coverage.npz keeps the last one."""
    inside = ~breakout["reset_row"]
    assert np.array_equal(breakout["obs"][inside][:, :3], breakout["before"][inside][:, 1:])
    assert not np.array_equal(breakout["obs"][inside][:, 3], breakout["obs"][inside][:, 2])


def test_frames_are_not_overwritten_by_the_next_step():
    """The scripts hand the array to torch.from_numpy, which copies nothing, and step on."""
    envs = make("Pong-v5", 2)
    obs, _ = envs.reset()
    kept, copies = [torch.from_numpy(obs)], [obs.copy()]
    for action in random_actions(envs, 60, 2):
        obs, *_ = envs.step(action)
        kept.append(torch.from_numpy(obs))
        copies.append(obs.copy())
    for tensor, copy in zip(kept, copies):
        assert np.array_equal(tensor.numpy(), copy), "a later step wrote into an array that was returned before"
    assert any(not np.array_equal(copies[0], copy) for copy in copies), "nothing moved: the test proved nothing"


# ---- the end of a life and of a game ---------------------------------------------------------------------------------
def test_the_step_after_done_pays_nothing_and_ends_nothing(breakout):
    row = breakout["reset_row"]
    assert (breakout["rewards"][row] == 0).all() and (breakout["info_reward"][row] == 0).all()
    assert not breakout["done"][row].any() and not breakout["info_terminated"][row].any()
    assert (breakout["rewards"] != 0).any(), "no reward at all: the test proved nothing"


def test_the_step_after_done_ignores_its_action():
    """Two pools with one seed: other actions in the autoreset steps, and nowhere else, lead to the same episodes."""
    plain, changed = make("Breakout-v5", 3), make("Breakout-v5", 3)
    plain.reset(), changed.reset()
    done, resets = np.zeros(3, bool), 0  # no step has come before the first: nothing to reset
    for action in random_actions(plain, 300, 3):
        resets += done.sum()
        obs, rewards, terminations, truncations, info = plain.step(action)
        there = changed.step(np.where(done, (action + 1) % 4, action).astype(np.int32))
        for mine, theirs in zip((obs, rewards, terminations, truncations), there):
            assert np.array_equal(mine, theirs)
        assert np.array_equal(info["lives"], there[4]["lives"])
        done = terminations | truncations
    assert resets > 10


# ---- the time limit --------------------------------------------------------------------------------------------------
def test_returns_of_whole_games_are_the_scores_on_the_screen():
    """The scripts' account, sums of info["reward"] up to info["terminated"] or truncated, against the console's own
    score: over lost lives, games that end, and games that the time limit cuts."""
    envs = make("Breakout-v5", 4, max_episode_steps=125)
    played, _ = play(envs, random_actions(envs, 500, 4))
    returns, ends = np.zeros(4), {"over": [], "limit": []}
    for t in range(500):
        returns += played["info_reward"][t]
        for i in np.flatnonzero(played["info_terminated"][t] | played["truncations"][t]):
            assert returns[i] == played["score"][t, i], f"game {i} at step {t}"
            ends["limit" if played["truncations"][t, i] else "over"].append(returns[i])
            returns[i] = 0
    assert min(map(len, ends.values())) >= 1 and max(ends["limit"]) > 0, f"too few ends to prove a thing: {ends}"


# ---- rewards and seeds -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("game", ["SpaceInvaders-v5", "Qbert-v5"])
def test_rewards_are_clipped_and_info_has_them_raw(game):
    envs = make(game, 4)
    played, _ = play(envs, random_actions(envs, 200, 4))
    assert (played["info_reward"] > 1).any(), "no large reward: the test proved nothing"
    assert np.array_equal(played["rewards"], np.sign(played["info_reward"]))


def test_one_seed_one_play_whatever_the_threads():
    actions = random_actions(make("Breakout-v5", 1), 150, 4)
    one, first = play(make("Breakout-v5", 4, threads=1), actions)
    for threads, seed in ((1, 1), (2, 1), (2, 1), (1, 2)):
        again, first_again = play(make("Breakout-v5", 4, seed=seed, threads=threads), actions)
        same = np.array_equal(first, first_again) and all(np.array_equal(one[name], again[name]) for name in one)
        assert same == (seed == 1), f"seed {seed}, {threads} threads"


@pytest.mark.parametrize("name,options", [("Breakout-v5", {"max_episode_steps": 40}), ("BigfishEasy-v0", {})])
def test_a_step_is_envpools_own(name, options):
    """make_envpool leaves out the Python around it; also with actions that are int64, as NumPy makes them."""
    ours, own = (make(name, [1, 2], 1, **options) for make in (make_envpool, make_raw))
    assert np.array_equal(ours.reset()[0], own.reset()[0])
    for action in np.random.default_rng(0).integers(0, own.action_space.n, (150, 2)):
        (*mine, my_info), (*theirs, info) = ours.step(action), own.step(action)
        for x, y in zip(mine, theirs):
            assert np.array_equal(x, y) and x.dtype == y.dtype
        compared = [key for key in my_info if key in info and key != "env_id"]
        assert len(compared) >= 3 and all(np.array_equal(my_info[key], info[key]) for key in compared)


def test_games_of_one_pool_differ():
    """Each has a seed of its own, also at the largest seed that the scripts accept."""
    for seed in (1, 2**31 - 1):
        envs = make("Breakout-v5", 4, seed=seed)
        played, _ = play(envs, np.ones((60, 4), dtype=np.int32))  # FIRE, and nothing else
        assert len({played["obs"][:, i].tobytes() for i in range(4)}) > 1, f"seed {seed}: four times the same game"


# ---- small tasks -----------------------------------------------------------------------------------------------------
SMALL_TASKS = {  # one of each family: its time limit
    "CartPole-v1": 500,
    "Acrobot-v1": 500,
    "LunarLander-v3": 1000,
    "FrozenLake-v1": 100,
    "MiniGrid-Empty-5x5-v0": 100,
    "CheetahRun-v1": 1000,
    "Hopper-v5": 1000,
}


LIMITS = {**SMALL_TASKS, "Pong-v5": 27000}  # 108,000 frames, to which record_episode plays


def play_task(envs, num_steps, num_envs, seed=0):
    """Random actions; returns rewards, terminations, truncations, elapsed steps (T, N) and the observations."""
    envs.reset()
    rng, rows, space = np.random.default_rng(seed), [], envs.action_space
    for _ in range(num_steps):
        if hasattr(space, "n"):
            action = rng.integers(0, space.n, num_envs).astype(np.int32)
        else:
            action = rng.uniform(space.low, space.high, (num_envs, *space.shape))
        obs, reward, terminated, truncated, info = envs.step(action)
        leaves = [obs[key].reshape(num_envs, -1) for key in sorted(obs)] if isinstance(obs, dict) else [obs]
        flat = np.concatenate([leaf.reshape(num_envs, -1) for leaf in leaves], 1).astype(np.float64)
        rows.append((reward, terminated, truncated, info["elapsed_step"], flat))
    return [np.stack(column) for column in zip(*rows)]


def small_task(name, seeds, **options):
    return envpool.make(name, env_type="gymnasium", num_envs=len(seeds), num_threads=1, seed=seeds, **options)


@pytest.mark.parametrize("name", LIMITS)
def test_the_time_limit_shows_in_truncated_alone(name):
    """…and the step after any end only resets: it ends nothing, and its clock is 0."""
    limit = 30 if name == "Pong-v5" else 4  # its first frames are all the same
    envs = small_task(name, [1, 2, 3], max_episode_steps=limit)
    _, terminated, truncated, elapsed, obs = play_task(envs, 4 * limit, 3)
    done = terminated | truncated
    assert truncated.any() and not (terminated & truncated).any()
    assert (elapsed[truncated] == limit).all() and not (done & (elapsed < limit) & ~terminated).any()
    steps, places = np.nonzero(done[:-1])
    assert (elapsed[steps + 1, places] == 0).all() and not done[steps + 1, places].any()
    assert small_task(name, [1]).spec.config.max_episode_steps == LIMITS[name]
    # the observation at the limit is the last of the episode: with a later limit the episode goes on from it
    later = play_task(small_task(name, [1, 2, 3], max_episode_steps=50), limit + 1, 3)[-1]
    same = ~terminated[: limit - 1].any(0)
    assert np.array_equal(obs[:limit, same], later[:limit, same])


def test_only_deepmind_control_has_a_reward_in_the_autoreset_step():
    """ppo_envpool.py leaves that reward out of the returns."""
    paid = {}
    for name in SMALL_TASKS:
        reward, terminated, truncated, _, _ = play_task(small_task(name, [1, 2, 3], max_episode_steps=7), 60, 3)
        after = np.concatenate([np.zeros((1, 3), bool), (terminated | truncated)[:-1]])
        paid[name] = bool((reward[after] != 0).any())
    assert paid == {name: name == "CheetahRun-v1" for name in SMALL_TASKS}


@pytest.mark.parametrize("name", SMALL_TASKS)
def test_the_environments_give_what_step_gives(name):
    """It calls EnvPool's C++ functions itself: the same episodes, observations in the order of their sorted names."""
    ours, envs = tasks.make(name, [5, 6], 1), small_task(name, [5, 6])
    obs, (first, _) = ours.reset()[0], envs.reset()
    rng, ends, (observation, actions) = np.random.default_rng(0), 0, tasks.rows_of(name)
    number, continuous = actions.outputs, actions.continuous
    for _ in range(120):
        parts = [first[key] for key in sorted(first) if key != "mission"] if isinstance(first, dict) else [first]
        assert np.array_equal(obs, np.concatenate([part.reshape(2, -1) for part in parts], 1))
        assert obs.shape == (2, observation.width)
        # actions beyond the bounds are clipped to them
        action = 3 * rng.normal(size=(2, number)) if continuous else rng.integers(0, number, 2)
        obs, *rest, _ = ours.step(action)
        bounded = action.clip(-1, 1) if continuous else action.astype(np.int32)
        first, *expected, _ = envs.step(bounded)
        for mine, theirs in zip(rest, expected):
            assert np.array_equal(mine, theirs) and mine.dtype == theirs.dtype
        ends += (expected[1] | expected[2]).sum()
    assert ends or SMALL_TASKS[name] > 120


@pytest.mark.parametrize("name", ["FishSwim-v1", "ManipulatorBringBall-v1", "SwimmerSwimmer6-v1"])
def test_deepmind_control_is_the_same_without_its_textures(name, monkeypatch, tmp_path):
    """Over the end of an episode; with no room for the files without them, the environments have them."""
    plays = []
    for folder in (tmp_path, tmp_path / "none"):
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        plays.append(play_task(make_raw(name, [5, 6], 1, max_episode_steps=60), 150, 2))
    assert not list(tmp_path.iterdir())
    for play in plays:
        for mine, theirs in zip(play, play_task(small_task(name, [5, 6], max_episode_steps=60), 150, 2)):
            assert np.array_equal(mine, theirs)


def test_an_environment_of_deepmind_control_takes_less_than_a_megabyte():
    """12 MB with the sky that MuJoCo paints."""

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident()
    envs = tasks.make("PendulumSwingup-v1", list(range(100)), 1)
    assert resident() - before < 100 * catalog.memory("ppo_envpool.py", "PendulumSwingup-v1").env
    envs.close()


@pytest.mark.parametrize("name", ["CartPole-v1", "MiniGrid-DoorKey-8x8-v0", "CheetahRun-v1"])
def test_two_seeds_are_two_levels_and_one_seed_is_one(name):
    """Each environment of a pool has the level of its seed, wherever it is."""
    rows = tasks.make(name, [7, 8, 7], 1).reset()[0]
    again = tasks.make(name, [8, 7], 1).reset()[0]
    assert np.array_equal(rows[0], rows[2]) and not np.array_equal(rows[0], rows[1])
    assert np.array_equal(again, rows[[1, 0]])


def test_minigrids_values_are_those_that_the_network_knows():
    """11 objects, 6 colours, 3 states and 4 directions: ppo_envpool.py makes them one-hot."""
    highest = np.zeros(3, int)
    for name in ("DoorKey-8x8", "KeyCorridorS4R3", "Dynamic-Obstacles-6x6", "LavaCrossingS9N2", "ObstructedMaze-1Dlhb"):
        envs = small_task(f"MiniGrid-{name}-v0", [1, 2])
        envs.reset()
        for action in random_actions(envs, 40, 2):
            obs, *_ = envs.step(action)
            highest = np.maximum(highest, obs["image"].reshape(-1, 3).max(0))
            assert obs["image"].shape == (2, 7, 7, 3) and obs["direction"].max() < 4
    assert (highest < (11, 6, 3)).all() and (highest >= (8, 5, 2)).all()
