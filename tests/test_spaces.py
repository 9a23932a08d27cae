"""support/envs/spaces.py, and ppo_envpool.py in every space of gymnasium: flattened, acted in, learnt."""

import json
import math
import shlex
import sys
from types import SimpleNamespace

import evaluate
import gymnasium
import imageio.v2 as imageio
import matching_tasks
import numpy as np
import pytest
import torch
from analysis import statement
from conftest import ROOT, curves, load_checkpoint, refusal, train_here
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from launching.jobs import parse_flags, read_jobs
from test_envpool import SIZE, run_here
from test_pack import OWN, TINY, check_same, train, train_together

import metrics
import ppo_envpool as ppo
from support import layers
from support.envs import tasks
from support.envs.spaces import Envs, Unplayable, actions_of, observation_of

OBSERVE = [f"Observe-{name}-v0" for name in matching_tasks.OBSERVATIONS]
ACT = [f"Act-{name}-v0" for name in matching_tasks.ACTIONS]


def task(name):
    return f"gymnasium:matching_tasks:{name}"


# ---- observations ----------------------------------------------------------------------------------------------------
SIDES = st.one_of(st.lists(st.integers(1, 4), max_size=2), st.lists(st.integers(1, 2), max_size=4)).map(tuple)
FLOATS = st.sampled_from([np.float16, np.float32, np.float64])
INTEGERS = st.sampled_from([np.int8, np.int32, np.int64])


@st.composite
def multi_discretes(draw):
    shape = draw(SIDES.filter(len))
    size = math.prod(shape)
    numbers = st.integers(1, 4), st.integers(-3, 3)
    nvec, start = (np.reshape(draw(st.lists(x, min_size=size, max_size=size)), shape) for x in numbers)
    return spaces.MultiDiscrete(nvec, start=start, dtype=draw(INTEGERS))


LEAVES = st.one_of(
    st.builds(lambda shape, dtype: spaces.Box(-9, 9, shape, dtype), SIDES, FLOATS),
    st.builds(lambda shape, dtype: spaces.Box(0, 9, shape, dtype), SIDES, INTEGERS),
    st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 5), st.integers(-5, 5)),
    st.builds(spaces.MultiBinary, st.one_of(st.integers(1, 4), SIDES.filter(len))),
    multi_discretes(),
)
NESTED = st.recursive(
    LEAVES,
    lambda parts: st.one_of(
        st.lists(parts, min_size=1, max_size=3).map(spaces.Tuple),
        st.dictionaries(st.sampled_from("dacb"), parts, min_size=1).map(spaces.Dict),
        st.lists(LEAVES, min_size=1, max_size=3).map(spaces.OneOf),
    ),
    max_leaves=5,
)


class Shown(Envs):
    """Gives observations as SyncVectorEnv does."""

    def rows_of(self, samples):
        out = gymnasium.vector.utils.create_empty_array(self.observation_space, len(samples))
        obs = gymnasium.vector.utils.concatenate(self.observation_space, samples, out)
        return self.rows([entry.of(obs) for entry in self.observation.entries])


@settings(max_examples=150, deadline=None)
@given(space=NESTED, seed=st.integers(0, 99))
def test_rows_are_what_gymnasium_flattens(space, seed):
    space.seed(seed)
    envs, samples = Shown((space, spaces.Discrete(2)), [[1, 2], [3, 4], [5, 6]]), [space.sample() for _ in range(6)]
    rows, seen = envs.rows_of(samples), envs.observation
    expected = np.stack([spaces.flatten(space, sample) for sample in samples]).reshape(3, 2, -1)
    if seen.kind == "index":
        assert np.array_equal(np.eye(seen.values)[rows[..., 0]], expected)
        return
    assert not seen.images and rows.shape == (3, 2, seen.width)
    assert np.array_equal(rows.astype(seen.dtype), expected.astype(np.float32))


@pytest.mark.parametrize(
    ("shape", "channels", "large"),
    [
        ((84, 84, 3), 3, True),
        ((4, 84, 84), 4, True),
        ((10, 10, 16), 16, False),
        ((16, 10, 10), 16, False),
        ((3, 64, 48), 3, True),
        ((35, 90, 1), 1, False),
        ((36, 36, 36), 36, True),
    ],
)
def test_which_axis_the_channels_are(shape, channels, large):
    (entry,) = observation_of(spaces.Box(0, 255, shape, np.uint8)).images
    assert (entry.image.channels, entry.image.large) == (channels, large)


def test_images_follow_the_vector_with_their_channels_first():
    space = spaces.Dict(
        a=spaces.Box(0, 255, (4, 5, 2), np.uint8),
        b=spaces.Discrete(3, start=1),
        c=spaces.Box(0, 1, (2, 3, 3), np.uint8),
    )
    envs = Shown((space, spaces.Discrete(2)), [1, 2])
    samples, seen = [space.sample(), space.sample()], envs.observation
    rows = envs.rows_of(samples)
    assert (seen.vector, seen.width, seen.dtype) == (3, 3 + 40 + 18, "uint8") and not any(seen.real)
    assert [x.image[:3] for x in seen.images] == [(2, 4, 5), (2, 3, 3)]
    for row, sample in zip(rows, samples):
        images = [row[x.start : x.stop].reshape(x.image[:3]) for x in seen.images]
        assert np.array_equal(row[:3], np.eye(3)[sample["b"] - 1])
        assert np.array_equal(images[0], np.moveaxis(sample["a"], -1, 0)) and np.array_equal(images[1], sample["c"])
    assert [x.image.scale for x in seen.images] == [255, 1]
    whole = observation_of(spaces.Dict(a=space["a"], x=spaces.Box(-1, 1, (2,)), y=spaces.MultiBinary(2)))
    assert whole.dtype == "float32" and whole.real == [True, True, False, False]
    one_of = observation_of(spaces.OneOf([spaces.Discrete(4), spaces.Box(0, 1, (3,))]))
    assert one_of.real == [True] * one_of.width and one_of.width > 3  # its numbers are one or the other
    floats = [spaces.Box(low, high, (9, 9, 1)) for low, high in ((0, 1), (-1, 1), (0, 255), (-np.inf, np.inf))]
    assert [observation_of(x).images[0].image.scale for x in floats] == [1, 1, 255, 1]


@pytest.mark.parametrize(
    ("space", "says"),
    [
        (spaces.Dict(a=spaces.Box(0, 1, (2,)), b=spaces.Text(10)), 'observes a dict whose "b" is Text(10): expected '),
        (
            spaces.Tuple([spaces.Discrete(2), spaces.Dict(x=spaces.Sequence(spaces.Discrete(2)))]),
            'observes a tuple whose entry 1 is a dict whose "x" is Sequence: expected a Box of a fixed length',
        ),
        (spaces.Graph(spaces.Discrete(2), None), "observes Graph: expected its nodes"),
        (spaces.Box(0, 255, (84, 84), np.uint8), "observes 7,056 numbers: expected at most 4,096, or an image"),
        (spaces.Dict(), "which has no numbers"),
    ],
)
def test_refused_observations(space, says):
    with pytest.raises(Unplayable) as error:
        observation_of(space)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("space", "says"),
    [
        (spaces.Box(0, 3, (2,), np.int64), "MultiDiscrete for whole numbers would help"),
        (spaces.Dict(a=spaces.Discrete(2)), "a wrapper that joins them in one of these would help"),
    ],
)
def test_refused_actions(space, says):
    with pytest.raises(Unplayable) as error:
        actions_of(space)
    assert says in str(error.value)


# ---- actions ---------------------------------------------------------------------------------------------------------
def test_an_action_reaches_the_environment_in_its_range_or_is_one_line():
    """test_export.py compares it with the exported network's in each space; matching_tasks.py checks what it gets."""
    envs = Envs((spaces.Discrete(2), spaces.MultiDiscrete([3, 2], start=[1, 0], dtype=np.int32)), [1, 2])
    taken = envs.taken(np.array([[0, 1], [2, 0]]))
    assert taken.tolist() == [[1, 1], [3, 0]] and taken.dtype == np.int32
    for wrong in ([[0, 2], [0, 0]], [[0, 0], [-1, 0]]):
        with pytest.raises(SystemExit, match=r"^error: an action is \[.*, which MultiDiscrete.* does not have$"):
            envs.taken(np.array(wrong))


@pytest.mark.filterwarnings("error")
def test_a_policy_counts_in_half_widths_of_the_bounds_of_an_action(capsys):
    low, high = [-0.1, 2, 0, -np.inf, -3e38, 5, 7, -np.inf], [0.3, 4, np.inf, -1, 3e38, 5, np.inf, np.inf]
    acts = actions_of(spaces.Box(np.float32(low), np.float32(high)))
    assert acts.centers == pytest.approx((0.1, 3, 0, -1, 0, 5, 7, 0))  # what has no width or no bounds begins inside
    assert acts.halves == pytest.approx((0.2, 1, 1, 1, 1, 1, 1, 1))
    args = ppo.parse_args(["--env-id", task("Act-Float64-v0"), "--init-std", "0.7"])
    agent, plain = ppo.make_agent(args, (3, 4)), ppo.make_agent(args, (3, 4))
    torch.testing.assert_close(agent.actor_logstd.exp(), torch.full((2, 1, 2), 0.7 * 0.2))
    plain.action_range.copy_(torch.tensor([[0.0], [1.0]]))
    obs = torch.randn(2, 5, 2)
    torch.testing.assert_close(agent(obs)[0], 0.1 + 0.2 * plain(obs)[0])
    assert ppo.parse_args(["--env-id", task("Act-Scalar-v0")]).init_std == 0.5  # a task of the user's own
    assert ppo.parse_args(["--env-id", "Pendulum-v1"]).init_std == 1.0
    said = refusal(capsys, ppo.parse_args, ["--env-id", "CartPole-v1", "--init-std", "2"])
    assert said == "error: --init-std 2: CartPole-v1 has no real actions: expected no such flag\n"


def test_log_probabilities_of_independent_parts_add_up():
    torch.manual_seed(0)
    for sizes in ((3, 2, 4), (2, 2, 2)):
        logits, new = torch.randn(2, 7, 5, sum(sizes))[:, 0], torch.randn(2, 5, sum(sizes))
        actions = torch.stack([torch.randint(size, (2, 5)) for size in sizes], -1)
        policies = [torch.distributions.Categorical(logits=x) for x in logits.split(sizes, -1)]
        logprobs, entropy = ppo.categoricals(logits, sizes, actions)
        torch.testing.assert_close(logprobs, sum(p.log_prob(a) for p, a in zip(policies, actions.unbind(-1))))
        torch.testing.assert_close(entropy, sum(p.entropy() for p in policies))
        news = [torch.distributions.Categorical(logits=x) for x in new.split(sizes, -1)]
        agent = SimpleNamespace(continuous=False, logits=lambda outputs, sizes=sizes: outputs.split(sizes, -1))
        batch = SimpleNamespace(outputs=logits, valid=torch.ones(2, 5, dtype=torch.bool))
        kl = ppo.behavior_kl(agent, batch, new, None)
        expected = sum(torch.distributions.kl_divergence(*pair) for pair in zip(policies, news)).mean(-1)
        torch.testing.assert_close(kl.float(), expected)


def test_one_part_is_the_plain_policy():
    torch.manual_seed(0)
    logits, actions = torch.randn(2, 9, 4), torch.randint(4, (2, 9))
    for x, y in zip(ppo.categorical(logits, actions), ppo.categoricals(logits, (4,), actions[..., None])):
        assert torch.equal(x, y)


# ---- the network -----------------------------------------------------------------------------------------------------
def test_an_images_convolutions_are_pytorchs():
    """For each encoder of two agents, and so are their gradients."""
    torch.manual_seed(0)
    new = layers.Maker([1, 2], lambda layer, std: layer)
    convolutions, numbers = new.convolutions(2, (3, 9, 11), ((5, 3, 2), (4, 2, 1)))
    images = torch.randn(2, 7, 3, 9, 11)
    with torch.no_grad(), layers.constant(convolutions):  # nothing of it may stay
        convolutions[0].weight.neg_()
    x = images
    for layer in convolutions:
        x = layer(x).relu()
    x = x.unflatten(2, (2, -1))
    assert numbers == x[0, 0, 0].numel()
    for s in range(2):
        for e in range(2):
            expected = images[s]
            for layer, size in zip(convolutions, (3, 2)):
                kernels = layer.weight[s, e].t().unflatten(1, (-1, size, size))
                expected = torch.nn.functional.conv2d(expected, kernels, layer.bias[s, e, 0], layer.stride).relu()
            torch.testing.assert_close(x[s, :, e], expected)
            ours, theirs = (
                torch.autograd.grad(y.square().sum(), convolutions[0].weight, retain_graph=True)[0]
                for y in (x[s, :, e], expected)
            )
            torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("name", "units"), [("SmallBits", [16, 128]), ("LargeBytes", [32, 64, 64, 512])])
def test_the_diagnostics_see_the_convolutions(name, units):
    agent = ppo.make_agent(ppo.parse_args(["--env-id", task(f"Observe-{name}-v0")]), [1, 2])
    obs = tasks.make(task(f"Observe-{name}-v0"), [[1, 2, 3], [4, 5, 6]], 1).reset()[0]
    with torch.no_grad():
        _, _, hiddens = agent(torch.from_numpy(obs.astype(agent.observation.dtype)))
        assert [x.shape[3] for x in hiddens] == units and all(x.shape[:3] == (2, 1, 3) for x in hiddens)
        agent.convolutions[0][0].bias.fill_(-1e9)  # the first layer is silent
        hiddens = agent(torch.from_numpy(obs.astype(agent.observation.dtype)))[2]
        activity = metrics.activity([x[:, 0] for x in hiddens], torch.ones(2, 3, dtype=torch.bool))
        share = metrics.dormant_neurons(activity)
    assert (share >= 100 * units[0] / sum(units)).all()


def test_only_real_numbers_are_normalised(tmp_path):
    run_here(tmp_path, f"--env-id {task('Observe-MixedDict-v0')} --norm-obs --num-minibatches 1 --update-epochs 1")
    agent = load_checkpoint(tmp_path / "r")["agent"]
    mean, std = agent["obs_mean"][0, 0], agent["obs_std"][0, 0]
    assert mean.shape == (2 + 4 + 3 + 2,)  # b, m, n, x
    real = torch.arange(11) >= 9
    assert ((mean != 0) == real).all() and ((std != 1) == real).all()


# ---- whole runs ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", [*OBSERVE, *ACT])
def test_a_run_in_every_space(name, tmp_path, monkeypatch):
    """One iteration, with diagnostics and an evaluation episode; a film's size does not matter here."""
    run_here(
        tmp_path,
        f"--env-id {task(name)} --num-envs 2 --num-steps 16 --total-timesteps 32 --num-minibatches 2 --update-epochs 1 "
        "--eval-episodes 2 --probe-size 8",
    )
    scalars = {tag: [value for _, value in points] for tag, points in curves(tmp_path / "r").items()}
    for tag, values in scalars.items():
        assert np.isfinite(values).all() or tag == "losses/explained_variance" or "noise" in tag, tag
    assert 0 <= json.loads((tmp_path / "r/done.json").read_text())["final_return"] <= matching_tasks.EPISODE


@pytest.mark.parametrize(
    "name", ["Observe-SmallBytes-v0", "Observe-NestedDict-v0", "Act-MultiDiscrete-v0", "Act-Float64-v0"]
)
def test_what_is_shown_is_learnt(name, tmp_path):
    """A random policy gets a quarter, or what its parts are worth; 1 is perfect."""
    run_here(
        tmp_path,
        f"--env-id {task(name)} --num-envs 8 --num-steps 128 --total-timesteps 8192 --learning-rate 2e-3 "
        "--eval-episodes 20 --no-diagnostics",
    )
    assert json.loads((tmp_path / "r/done.json").read_text())["final_return"] > 0.6 * matching_tasks.EPISODE


@pytest.mark.parametrize(
    "words",
    ["Observe-LargeFloats-v0 --hidden-sizes 9", "Observe-MixedDict-v0 --no-shared-encoder", "Act-MultiDiscrete-v0"],
)
def test_the_same_bits_alone_and_in_company(words, tmp_path):
    """As in test_pack.py, for convolutions and for actions of several parts."""
    lines = [f"{TINY} --env-id {task(words)} {own} --runs-dir {tmp_path} --run-name" for own in OWN]
    train_together(tmp_path / "four", [f"{line} four/{i}" for i, line in enumerate(lines[:4])])
    train(*f"{lines[2]} alone/2".split())
    check_same(tmp_path / "alone/2", tmp_path / "four/2")


class Broken(matching_tasks.Match):
    def look(self):
        obs = super().look()
        obs["x"][1] = np.nan
        return obs


def test_a_number_that_is_not_finite_is_named(tmp_path, capsys):
    gymnasium.register("Broken-v0", Broken, kwargs={"observation": "MixedDict"})
    words = f"--env-id {task('Broken-v0')} --num-envs 2 --num-steps 8 --total-timesteps 16 --num-minibatches 1"
    words += f" --runs-dir {tmp_path} --run-name nan --env-workers 1"
    train_here(ppo, ppo.parse_args(words.split()), code=3)
    assert json.loads((tmp_path / "nan/failed.json").read_text())["tensor"] == 'obs["x"]'
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and 'obs["x"] is not finite' in error


# ---- --env-kwargs ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--env-kwargs", "[3]"], "--env-kwargs [3]: expected a JSON object in quotes, such as '{\"size\": 3}'"),
        (["--env-kwargs={size: 3}"], "--env-kwargs {size: 3}: expected a JSON object"),
        (
            ["--env-kwargs", '{"sise": 8}'],
            'with --env-kwargs {"sise": 8}: it has no sise: expected max_episode_steps size',
        ),
        (["--env-kwargs", '{"seed": 8}'], "it has no seed"),
        (["--env-kwargs", '{"size": "x"}'], 'with --env-kwargs {"size": "x"} cannot be made (TypeError'),
        (
            ["--env-id", "gymnasium::CartPole-v1", "--env-kwargs", '{"sise": 8}'],
            'with --env-kwargs {"sise": 8} cannot be made (TypeError: ',
        ),
    ],
)
def test_options_that_are_refused(words, says, capsys):
    assert says in refusal(capsys, ppo.parse_args, ["--env-id", "FrozenLake-v1", *words])


def test_options_reach_the_task_and_the_manifest(tmp_path, capsys):
    """EnvPool's and gymnasium's; another value under the same name is refused, the same in other words is not."""
    kwargs = "--env-kwargs", '{"size":8}'
    args = ppo.parse_args(["--env-id", "FrozenLake-v1", *kwargs])
    assert args.env_kwargs == '{"size": 8}' and ppo.make_agent(args).observation.values == 64
    assert tasks.make("FrozenLake-v1", [1], 1, env_kwargs=args.env_kwargs).observation.values == 64
    words = f"{SIZE} --env-id gymnasium::FrozenLake-v1 --runs-dir {tmp_path}".split()
    for text, code in (('{"map_name": "8x8"}', 0), ('{"map_name":"8x8"}', 0), ('{"map_name": "4x4"}', 2)):
        train_here(ppo, ppo.parse_args([*words, "--env-kwargs", text]), code)
    assert "has run with --env-kwargs" in capsys.readouterr().err
    manifest = json.loads((tmp_path / "r/manifest.json").read_text())
    assert manifest["arguments"]["env_kwargs"] == '{"map_name": "8x8"}'
    assert load_checkpoint(tmp_path / "r")["agent"]["network.0.weight"].shape[2] == 64
    (job,) = read_jobs([f'python ppo_envpool.py {shlex.join(words)} --env-kwargs \'{{"map_name":"8x8"}}\''])
    assert job.differs(tmp_path / "r") == ""
    (job,) = read_jobs([f"python ppo_envpool.py {shlex.join(words)} --env-kwargs '{{}}'"])
    assert "--env-kwargs" in job.differs(tmp_path / "r")


def test_a_sweeps_base_takes_options():
    stated = statement.parse(["# base ppo_envpool.py --num-envs 8 --env-kwargs '{\"a\": 1}'"], parse_flags)
    assert stated == {"base": {"ppo_envpool": {"num_envs": 8, "env_kwargs": '{"a": 1}'}}}


# ---- MinAtar ---------------------------------------------------------------------------------------------------------
def test_minatar(tmp_path, monkeypatch, capsys):
    """The worked example of docs/running.md: Breakout, a little better than random play, and its film."""
    pytest.importorskip("minatar")  # make test installs requirements-tasks.txt
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "results/learning")])
    words = "--env-id gymnasium:minatar_tasks:MinAtar/Breakout-v1 --num-envs 16 --num-steps 64 --total-timesteps 16384"
    run_here(tmp_path, f"{words} --learning-rate 2e-3 --eval-episodes 50 --no-diagnostics --env-workers 1")
    agent = load_checkpoint(tmp_path / "r")["agent"]
    assert agent["convolutions.0.0.weight"].shape == (1, 1, 4 * 9, 16)
    assert agent["network.0.weight"].shape == (1, 1, 16 * 8 * 8, 128)
    assert json.loads((tmp_path / "r/done.json").read_text())["final_return"] > 1  # random play: 0.5
    film = tmp_path / "film.gif"
    evaluate.main(evaluate.parse_args([str(tmp_path / "r"), "--episodes", "1", "--video", str(film)]))
    frame = imageio.mimread(film)[0]
    assert frame.shape[:2] == (160, 160) and frame.max() > 100
