"""ppo_envpool.py and support/envs: targets, what is observed, rates, names, normalisers, a run of each family."""

import gc
import itertools
import json
import os
import signal
import sys
import time

import evaluate
import gymnasium
import numpy as np
import pytest
import torch
from analysis import training_runs
from conftest import ROOT, Recorder, curves, load_checkpoint, refusal, train_here
from launching import jobs

import ppo_atari_envpool
import ppo_envpool as ppo
import ppo_procgen
from support import reading, recipe
from support.envs import processes, tasks

SIZE = "--num-envs 4 --num-steps 64 --total-timesteps 256 --run-name r --num-logs 4"


def arguments(tmp_path, words):
    return ppo.parse_args([*SIZE.split(), "--runs-dir", str(tmp_path), *words.split()])


def run_here(tmp_path, words):
    """Runs the script in this process. Returns its arguments."""
    args = arguments(tmp_path, words)
    train_here(ppo, args)
    return args


def test_a_clock_that_is_set_back(tmp_path, monkeypatch):
    """A minute whenever it is asked: the speed, and the seconds of the run, are those of another clock."""
    clock = itertools.count(2e9, -60)
    monkeypatch.setattr(time, "time", lambda: next(clock))
    args = run_here(tmp_path, "--total-timesteps 512 --num-steps 32 --num-minibatches 1 --no-diagnostics")
    run_dir = tmp_path / args.run_name
    done = json.loads((run_dir / "done.json").read_text())
    assert done["wall_seconds"] > 0 and done["sps"] > 0
    assert (reading.read_curves(run_dir)["charts/SPS"][1] > 0).all() and reading.progress(run_dir)[:2] == (512, 0.0)


def make_agent(env_id, *words, seeds=(3,)):
    return ppo.make_agent(ppo.parse_args(["--env-id", env_id, *words]), seeds)


# ---- targets: test_targets.py has CleanRL's update -------------------------------------------------------------------
def test_gae_has_the_bits_of_the_other_scripts():
    rng = np.random.default_rng(0)
    rewards, values, next_values = rng.normal(size=(3, 50, 4)).astype(np.float32)
    ended = rng.random((50, 4)) < 0.2
    truncations = ended & (rng.random((50, 4)) < 0.5)
    valid = np.concatenate([np.ones((1, 4), bool), ~ended[:-1]])
    arrays = (rewards, values, ended & ~truncations, truncations, next_values, valid)
    ours = ppo.gae(*arrays, 0.99, 0.95)
    theirs = ppo_atari_envpool.gae(*map(torch.from_numpy, arrays), 0.99, 0.95)
    for mine, other in zip(ours, theirs):
        assert np.array_equal(mine, other.numpy()) and mine.dtype == np.float32


# ---- the network -----------------------------------------------------------------------------------------------------
def test_encoders_share_nothing():
    agent = make_agent("CartPole-v1")
    _, values, layers = agent(torch.randn(1, 5, 4))
    assert [tuple(layer.shape) for layer in layers] == [(1, 2, 5, 64)] * 2
    values.sum().backward()
    for stack in agent.network:
        assert (stack.weight.grad[0, 0] == 0).all() and (stack.weight.grad[0, 1] != 0).any()
    gain = agent.network[1].weight[0, 0].double()
    torch.testing.assert_close(gain @ gain.t(), 2 * torch.eye(64).double(), rtol=0, atol=1e-5)  # CleanRL's orthogonal


def test_directions_and_integers_are_one_hot():
    agent = make_agent("MiniGrid-Empty-5x5-v0", "--shared-encoder")
    x, _ = agent.inputs(torch.tensor([[[3, *[0] * 7 * 7 * 3]]], dtype=torch.uint8))
    assert x[0, 0, -4:].tolist() == [0, 0, 0, 1]
    lake = make_agent("FrozenLake-v1")
    x, _ = lake.inputs(torch.tensor([[[0], [15]]], dtype=torch.int32))
    assert torch.equal(x[0], torch.eye(16)[[0, 15]])


def test_the_convolution_is_pytorchs():
    """Sums of rows of a table do what a convolution of the one-hot cells does, for each encoder; so do their gradients,
    here of three agents side by side."""
    agent = make_agent("MiniGrid-DoorKey-5x5-v0", "--activation", "relu", seeds=[1, 2, 3])
    obs = torch.from_numpy(tasks.make("MiniGrid-DoorKey-5x5-v0", [[1, 2], [3, 4], [5, 6]], 1).reset()[0])
    convolution = agent.convolution
    _, (layer,) = agent.inputs(obs)
    cells = obs[..., 1:].long().unflatten(-1, (7, 7, 3)) + torch.tensor([0, 11, 17])
    cells = torch.nn.functional.one_hot(cells, 20).sum(4).permute(0, 1, 4, 2, 3).float()  # (S, B, values, 7, 7)
    for s, i in itertools.product(range(3), range(2)):
        kernels = convolution.weight[s, i].view(20, 3, 3, 16).permute(3, 0, 1, 2)
        expected = torch.nn.functional.conv2d(cells[s], kernels, convolution.bias[s, i, 0], stride=2).relu()
        torch.testing.assert_close(layer[s, i], expected.flatten(2))
        ours, theirs = (
            torch.autograd.grad(x.square().sum(), convolution.weight, retain_graph=True)[0]
            for x in (layer[s, i], expected)
        )
        torch.testing.assert_close(ours, theirs)
        assert (ours[s, i] != 0).any()


# ---- one's own task --------------------------------------------------------------------------------------------------
class Counter(gymnasium.Env):
    """Ends after 6 steps, with a death if its seed is odd, else by gymnasium's time limit; pays 100, -1, -1, …"""

    observation_space = gymnasium.spaces.Dict(
        {"b": gymnasium.spaces.Box(-1e3, 1e3, (1, 2)), "a": gymnasium.spaces.Box(-1e3, 1e3, (1,), np.float64)}
    )
    action_space = gymnasium.spaces.Box(-0.5, 0.5, (2,))

    def observe(self):
        return {"b": np.array([[self.t, self.odd]], np.float32), "a": np.array([10.0 * self.t])}

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.odd = seed % 2
        self.t = 0
        return self.observe(), {}

    def step(self, action):
        assert self.action_space.contains(action.astype(np.float32)), action
        self.t += 1
        return self.observe(), 100.0 if self.t == 1 else -1.0, bool(self.odd and self.t == 6), False, {}


gymnasium.register("Counter-v0", Counter, max_episode_steps=6)


def record_steps_and_targets(monkeypatch):
    """The Recorder of a run's environments, and a list of the first six inputs of each call of `gae`, without S."""
    recorder, seen, gae = Recorder(ppo.make_envs), [], ppo.gae

    def record_gae(*inputs):
        seen.append([x[:, 0].copy() for x in inputs[:6]])
        return gae(*inputs)

    monkeypatch.setattr(ppo, "make_envs", recorder)
    monkeypatch.setattr(ppo, "gae", record_gae)
    return recorder, seen


def played(recorder):
    """What the environments of the only agent did, (T, N, ...)."""
    steps = recorder.played()
    return type(steps)(**{name: x[:, 0] for name, x in vars(steps).items()})


def test_ones_own_task(tmp_path, monkeypatch):
    """Its observations, ends, returns, normalised rewards and moments are those of gymnasium's environments."""
    recorder, seen = record_steps_and_targets(monkeypatch)
    words = "--env-id gymnasium:test_envpool:Counter-v0 --num-steps 62 --total-timesteps 496 --num-minibatches 4"
    run_here(tmp_path, words + " --update-epochs 1")
    steps = played(recorder)
    rewards, values, terminations, truncations, next_values, valid = map(np.concatenate, zip(*seen))
    time = np.arange(124) % 7  # six steps and an autoreset step, which the second rollout begins with
    odd = np.array(recorder.pools[0].seeds[0]) % 2 == 1
    assert 0 < odd.sum() < 4
    after = (time + 1) % 7  # what the steps led to
    for i in range(4):  # in the order of the sorted names: a, b
        assert np.array_equal(steps.obs[:, i].numpy(), np.stack([10 * after, after, 0 * time + odd[i]], 1))
    assert np.array_equal(valid, np.repeat(time[:, None] != 6, 4, 1))
    assert np.array_equal(terminations, (time == 5)[:, None] & odd)
    assert np.array_equal(truncations, np.repeat((time == 5)[:, None], 4, 1))  # a death in the limit's step is both
    scalars = {tag: dict(points) for tag, points in curves(tmp_path / "r").items()}
    assert set(scalars["charts/episodic_return"].values()) == {95.0}
    assert set(scalars["charts/episodic_length"].values()) == {6.0}
    assert scalars["charts/episodes"] == {248: 36.0, 496: 68.0}
    # the rewards of training: divided by the deviation of the discounted returns so far, at most 10
    raw, running, moments = np.where(time == 0, 100.0, np.where(time == 6, 0.0, -1.0)), 0.0, []
    for t in range(124):
        running = running * 0.99 + raw[t]
        moments += [running] * (4 if time[t] < 6 else 0)
        if t >= 20:  # until then the variance with which the sums begin can be seen
            expected = np.clip(raw[t] / np.std(moments), -10, 10)
            assert rewards[t].tolist() == pytest.approx([expected] * 4, rel=2e-3), t
        running *= time[t] != 5
    # the moments of the observations, of valid rows, in the order of the sorted names: a, b
    agent = {name: x[0] for name, x in load_checkpoint(tmp_path / "r")["agent"].items()}
    step = np.concatenate([[0], (time[:-1] + 1) % 7])  # what `a` and `b` showed before each step
    rows = np.stack([np.tile(10.0 * step[:, None], 4), np.tile(step[:, None], 4), np.tile(odd, (124, 1))], -1)[valid]
    assert agent["obs_sums"][0].tolist() == [1 + valid.sum()] * 3
    mean = np.concatenate([rows, np.zeros((1, 3))]).mean(0)
    np.testing.assert_allclose(agent["obs_mean"][0], mean, rtol=1e-5)
    square = np.concatenate([rows**2, np.ones((1, 3))]).mean(0)
    np.testing.assert_allclose(agent["obs_std"][0], np.sqrt(square - mean**2 + 1e-8), rtol=1e-5)


def test_values_are_of_what_was_seen_and_of_what_each_step_led_to(tmp_path, monkeypatch):
    """With a rate of 0 the network stays as it is: each value follows from the environments' own observations."""
    recorder, seen = record_steps_and_targets(monkeypatch)
    run_here(tmp_path, "--total-timesteps 512 --learning-rate 0 --update-epochs 1 --no-diagnostics")
    steps, agent = played(recorder), make_agent("CartPole-v1")
    agent.load_state_dict(load_checkpoint(tmp_path / "r")["agent"])
    with torch.no_grad():
        seen_obs = [torch.from_numpy(recorder.pools[0].obs[0]), *steps.obs]
        expected = np.stack([agent(obs[None])[1][0].numpy() for obs in seen_obs])
    _, values, terminations, truncations, next_values, valid = map(np.concatenate, zip(*seen))
    np.testing.assert_allclose(values, expected[:-1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(next_values, expected[1:], rtol=1e-4, atol=1e-5)
    assert np.array_equal(terminations, steps.terminated) and np.array_equal(truncations, steps.truncated)
    assert np.array_equal(valid[1:], ~(terminations | truncations)[:-1]) and valid[0].all() and not valid.all()


def test_normalisers_survive_a_resume(tmp_path):
    """Killed after half of it, a run goes on with the moments of that half."""
    words = "--env-id gymnasium:test_envpool:Counter-v0 --num-minibatches 4 --update-epochs 1 --total-timesteps 512"
    run_here(tmp_path, words + " --checkpoint-minutes 0")
    os.replace(tmp_path / "r/checkpoint.prev.pt", tmp_path / "r/checkpoint.pt")
    (tmp_path / "r/done.json").unlink()
    half = load_checkpoint(tmp_path / "r")
    gc.collect()  # the first run's lock
    run_here(tmp_path, words + " --checkpoint-minutes 0")
    whole = load_checkpoint(tmp_path / "r")
    for checkpoint, rows in ((half, 4 * 55), (whole, 8 * 55)):  # each seventh of 64 steps is an autoreset step
        assert checkpoint["agent"]["obs_sums"][0, 0].tolist() == [1 + rows] * 3
        assert checkpoint["log"]["reward_moments"][0, 2] == pytest.approx(rows)
    assert not torch.equal(half["agent"]["obs_mean"], torch.zeros(1, 1, 3))


def test_rewards_are_normalised_as_in_procgen():
    """There they are gym's, of one agent. Of two, each is as if alone, from one rollout to the next, over ends."""
    rng = np.random.default_rng(0)
    ends, valid = rng.random((2, 40, 2, 3)) < [[[[0.2]]], [[[0.9]]]]
    rewards, gamma = rng.normal(size=(40, 2, 3)).astype(np.float32) * valid, np.array([[0.9], [0.5]])
    discounted, moments = np.zeros((2, 3)), np.array([[0.0, 1.0, 1e-4]] * 2)
    found = np.concatenate(
        [
            ppo.normalize_rewards(rewards[part], ends[part], valid[part], discounted, moments, gamma)
            for part in (slice(15), slice(15, 40))
        ]
    )
    for s in range(2):
        of_agent = (x[:, s] for x in (rewards, ends, valid))
        alone = ppo_procgen.normalize_rewards(*of_agent, np.zeros(3), (0.0, 1.0, 1e-4), gamma[s, 0])
        np.testing.assert_allclose(found[:, s], alone[0], rtol=1e-5)
        np.testing.assert_allclose(discounted[s], alone[1], rtol=1e-5)
        np.testing.assert_allclose(moments[s], alone[2], rtol=1e-5)


def test_the_reward_of_an_autoreset_step_is_discarded(tmp_path, monkeypatch):
    """DeepMind Control's Cartpole pays about 0.5 in it, which may not begin the return of the next episode."""
    recorder, seen = record_steps_and_targets(monkeypatch)
    words = "--env-id CartpoleBalance-v1 --num-steps 1002 --total-timesteps 4008 --num-minibatches 4 --update-epochs 1"
    run_here(tmp_path, words + " --no-norm-reward --no-diagnostics")
    paid = played(recorder).raw.numpy()
    assert (paid[1000] > 0).all() and (seen[0][0][1000] == 0).all()
    scalars = {tag: points[-1][1] for tag, points in curves(tmp_path / "r").items()}
    assert scalars["charts/reward"] == pytest.approx(np.delete(paid, 1000, 0).mean())
    assert scalars["charts/episodic_return"] == pytest.approx(paid[:1000].sum(0).mean())


# ---- names -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "env_id,says",
    [
        ("Breakout-v5", "is not for ppo_envpool.py: expected python ppo_atari_envpool.py --env-id Breakout-v5"),
        ("ALE/Breakout-v5", "expected python ppo_atari_envpool.py --env-id Breakout-v5"),
        ("BreakoutNoFrameskip-v4", "expected python ppo_atari_envpool.py --env-id Breakout-v5"),
        ("BigfishHard-v0", "expected python ppo_procgen.py --env-id BigfishHard-v0"),
        ("procgen:procgen-coinrun-v0", "expected python ppo_procgen.py --env-id coinrun"),
        ("Mjlab-Cartpole-Balance", "expected python ppo_isaacgym.py --env-id Mjlab-Cartpole-Balance"),
        ("Hoper-v5", "is not a task of EnvPool; near: Hopper-v5"),
        ("MiniGrid-DoorKey-5x5", "near: MiniGrid-DoorKey-5x5-v0"),
        ("MetaWorld/Assembly-v3", "is one of envpool.mujoco.metaworld, which has not been tried here"),
        ("", "is not a task of EnvPool"),
        ("gymnasium:CartPole-v1", "is incomplete: expected gymnasium:MODULE:ID"),
        ("gymnasium:no_such_module:X-v0", "cannot be made (ModuleNotFoundError: No module named 'no_such_module')"),
        ("gymnasium::NoSuchGame-v0", "cannot be made (NameNotFound"),
    ],
)
def test_names_that_cannot_be_played(env_id, says, capsys):
    error = refusal(capsys, ppo.parse_args, ["--env-id", env_id])
    assert error.startswith("error: --env-id") and says in error


def test_the_number_of_processes(monkeypatch):
    numbers = [processes.num_workers(*case) for case in ((1e-5, 64, 8), (2e-3, 64, 8), (2e-3, 4, 8))]
    assert numbers == [1, 8, 4]
    cores = len(os.sched_getaffinity(0))
    for variables, number in ({}, cores), ({"OMP_NUM_THREADS": "1"}, 1), ({"OMP_NUM_THREADS": "9999,2"}, cores):
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert processes.share_of_cores() == number
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")  # torchrun
    assert processes.share_of_cores() == cores
    with pytest.raises(SystemExit):
        ppo.parse_args(["--env-workers", "2"])  # EnvPool's environments run in threads


def test_defaults_by_the_kind_of_actions():
    """…also where the launcher and the figures read them, without an import of the script."""
    for env_id in ("CartPole-v1", "Hopper-v5", "CheetahRun-v1", "CarRacing-v3"):
        continuous, image = env_id != "CartPole-v1", env_id == "CarRacing-v3"
        args = vars(ppo.parse_args(["--env-id", env_id]))
        table = reading.default_arguments(str(ROOT / "ppo_envpool.py"), env_id)
        for name in ("num_minibatches", "update_epochs", "ent_coef", "norm_obs", "total_timesteps"):
            assert args[name] == table[name], name
        for name in ("hidden_sizes", "activation", "shared_encoder"):
            assert list(args[name]) == list(table[name]) if name == "hidden_sizes" else args[name] == table[name], name
        assert args["num_minibatches"] == (32 if continuous else 4)
        assert args["norm_reward"] is continuous and args["norm_obs"] is (continuous and not image)
        assert args["shared_encoder"] is image
    task = str(ROOT / "ppo_envpool.py"), "gymnasium::Pendulum-v1"  # its module would have to be imported
    assert (tasks.default_arguments(*task)["norm_obs"], reading.default_arguments(*task)["norm_obs"]) == (True, False)


@pytest.mark.parametrize(
    "words,rate",
    [  # 4e-3 x sqrt(150,000 / steps) x (16 / 1024) / k, and k
        ("", 2.2e-3),  # 4 / 256
        ("--env-id Hopper-v5", 7.7e-5),  # 10 / 32
        ("--minibatch-size 1024", 8.8e-3),  # 4 / 1024
        ("--schedule 0:32x32,0.5:8x8 --minibatch-size 64 --update-epochs 1", 2.2e-3),  # 1 / 64
        ("--num-envs 32 --scaling sqrt-lr", 4.4e-3),  # of the base 4 / 256, whose rate is doubled
        ("--env-id=Hopper-v5 --learning-rate=1e-3", 1e-3),
        ("--learning_rate 2.5e-4 --minibatch-size 64", 2.5e-4),
    ],
)
def test_the_rate_is_the_laws(words, rate):
    """…for the launcher too."""
    assert ppo.parse_args(words.split()).learning_rate == rate
    assert jobs.Job(f"python ppo_envpool.py --run-name r {words}").args["learning_rate"] == rate
    defaults = reading.default_arguments(str(ROOT / "ppo_envpool.py"), "CartPole-v1")
    assert training_runs.fill_in(defaults)["learning_rate"] == 2.2e-3


@pytest.mark.parametrize(
    "script, given, rate",
    [
        ("ppo_atari_envpool", {}, None),  # 4.9e-4 for ten million steps, and it has 2.5e-4
        ("ppo_atari_envpool", {"total_timesteps": 500_000}, "0.0022"),
        ("ppo_atari_envpool", {"total_timesteps": 500_000, "learning_rate": 2e-2}, "0.0022"),
        ("ppo_atari_envpool", {"total_timesteps": 500_000, "learning_rate": 2e-3}, None),
        ("ppo_procgen", {}, "0.0033"),
        ("ppo_isaacgym", {}, "0.036"),
        ("ppo_isaacgym", {"desired_kl": 0.01}, None),
        ("pqn_atari_envpool", {"total_timesteps": 500_000}, None),  # no PPO
        ("ppo_envpool", {"total_timesteps": 500_000, "learning_rate": 2.5e-4}, None),
    ],
)
def test_a_script_with_cleanrls_rate_names_the_laws_if_it_is_another(script, given, rate):
    arguments = {**reading.default_arguments(str(ROOT / f"{script}.py")), "eval_episodes": 0, **given}
    arguments["minibatch_size"] = arguments["num_envs"] * arguments["num_steps"] // arguments["num_minibatches"]
    said = [line for line in recipe.plan(script, arguments, recipe.schedule_of(arguments), 0) if "second_look" in line]
    assert len(said) == (rate is not None) and all(f"the learning rate {rate};" in line for line in said)


def test_a_run_keeps_the_rate_that_it_began_with(tmp_path, monkeypatch, capsys):
    """One that began when the default was another, in its middle; the law is for runs that begin now."""
    words = f"{SIZE} --total-timesteps 1024 --no-diagnostics --checkpoint-minutes 0 --runs-dir {tmp_path}".split()

    def run(*more, code=0):
        gc.collect()  # the lock of the run before
        monkeypatch.setattr(sys, "argv", ["ppo_envpool.py", *words, *more])
        with pytest.raises(SystemExit) as end:
            ppo.main(ppo.parse_args(sys.argv[1:]))
        assert end.value.code == code
        return capsys.readouterr()

    said = run("--run-name", "new").out.splitlines()[0]
    assert said.startswith("4 iterations") and "; learning rate 0.012, the law's for these steps" in said
    assert json.loads((tmp_path / "new/manifest.json").read_text())["arguments"]["learning_rate"] == 0.012
    with monkeypatch.context() as patch:
        patch.setattr(recipe, "law_rate", lambda *_: 2.5e-4)
        collect, calls = ppo.collect_steps, itertools.count()

        def interrupted(*args):
            if next(calls) == 1:
                signal.raise_signal(signal.SIGTERM)
            return collect(*args)

        patch.setattr(ppo, "collect_steps", interrupted)
        run(code=143)
    said = run().out
    assert f"{tmp_path}/r: keeps its learning rate 0.00025; a new run has 0.012\n" in said and "the law's" not in said
    rates = [2.5e-4 * (1 - i / 4) for i in range(4)]
    assert [rate for _, rate in curves(tmp_path / "r")["charts/learning_rate"]] == pytest.approx(rates)
    assert "--learning-rate 0.00025, not 0.001: use" in run("--learning-rate", "1e-3", code=2).err
    said = run("--run-name", "named", "--learning-rate", "1e-3").out
    assert "learning rate" not in said
    assert "--learning-rate 0.001, not 0.012: use" in run("--run-name", "named", code=2).err


@pytest.mark.parametrize(
    "words,says",
    [
        ("--env-id FrozenLake-v1 --norm-obs", "--norm-obs: FrozenLake-v1 observes no vector"),
        ("--hidden-sizes 0", "--hidden-sizes"),
        ("--activation gelu", "--activation"),
    ],
)
def test_flags_that_no_other_script_has(words, says, capsys):
    assert says in refusal(capsys, ppo.parse_args, words.split())


@pytest.mark.parametrize("activation", ["tanh", "elu"])
def test_a_saturated_tanh_is_dormant(tmp_path, activation):
    """A huge rate leaves large weights: tanh units then answer 1 or -1 whatever they see, others do not."""
    run_here(tmp_path, f"--num-steps 32 --total-timesteps 256 --learning-rate 10 --activation {activation}")
    _, dormant = curves(tmp_path / "r")["probe/dormant_neurons"][-1]
    assert dormant > 20 if activation == "tanh" else dormant == 0


# ---- families --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "env_id", ["LunarLander-v3", "FrozenLake-v1", "MiniGrid-DoorKey-5x5-v0", "CheetahRun-v1", "Hopper-v5", "Catch-v0"]
)
def test_a_run_of_each_family(env_id, tmp_path, capsys):
    """Classic control has its whole runs in test_runs.py. Evaluated, too: two episodes of the final network."""
    run_here(tmp_path, f"--env-id {env_id} --num-minibatches 4 --update-epochs 1")
    scalars = {tag: [value for _, value in points] for tag, points in curves(tmp_path / "r").items()}
    for tag, values in scalars.items():
        assert np.isfinite(values).all() or tag == "losses/explained_variance", tag
    assert scalars["diagnostics/dormant_neurons"][0] < 100 and scalars["losses/grad_norm"][0] > 0
    observation, _ = tasks.rows_of(env_id)
    with np.load(tmp_path / "r/coverage.npz") as coverage:
        assert coverage["obs"].dtype == observation.dtype and coverage["obs"].shape[1] == observation.width
        assert coverage["feature"].shape[1] == 64
    capsys.readouterr()
    if env_id != "CheetahRun-v1":  # its episodes have a thousand steps
        results = []
        for num_envs in ("1", "2"):
            evaluate.main(evaluate.parse_args([str(tmp_path / "r"), "--episodes", "2", "--num-envs", num_envs]))
            results.append(json.loads(capsys.readouterr().out))
        one, two = results
        assert one["scores"] == pytest.approx(two["scores"], rel=1e-4) and len(one["scores"]) == 2  # rounding: Hopper
        assert (one["normalized"] is None) == (env_id in ("FrozenLake-v1", "Hopper-v5"))  # the table has the others


def test_a_film_that_cannot_be_made_is_one_line(tmp_path, capsys):
    run_here(tmp_path, "--env-id Catch-v0 --no-diagnostics")
    capsys.readouterr()
    words = [str(tmp_path / "r"), "--episodes", "1", "--video", str(tmp_path / "film.gif")]
    error = refusal(capsys, evaluate.main, evaluate.parse_args(words))
    assert error.startswith("error: --video: Catch-v0 cannot be drawn")


def test_the_actions_follow_the_policy():
    """argmax(logits + Gumbel noise) has the policy's probabilities; mean + std * noise its mean and deviation."""
    generator = torch.Generator().manual_seed(1)
    logits = np.log(np.array([0.5, 0.3, 0.2], np.float32))
    actions = ppo.sample(logits, ppo.draw_noise((20000, 3), False, generator).numpy(), None)
    assert np.bincount(actions) / 20000 == pytest.approx([0.5, 0.3, 0.2], abs=0.02)
    std = np.array([[2.0, 0.1]], np.float32)
    actions = ppo.sample(np.array([[1.0, -1.0]]), ppo.draw_noise((20000, 2), True, generator).numpy(), std)
    assert actions.mean(0) == pytest.approx([1.0, -1.0], abs=0.05) and actions.std(0) == pytest.approx(std[0], rel=0.03)
