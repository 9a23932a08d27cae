"""evaluate.py --export: the network in a file of its own says what the script's network says."""

import functools
import json
import operator

import evaluate
import gymnasium
import matching_tasks
import numpy as np
import pytest
import torch
from conftest import ROOT, refusal
from gymnasium.spaces import Box, Dict, Discrete, Tuple
from test_envpool import run_here
from test_spaces import task

import ppo_envpool as ppo
from support import export
from support.envs import tasks
from support.envs.spaces import Envs, actions_of, observation_of

onnxruntime = pytest.importorskip("onnxruntime")  # make test installs requirements-tasks.txt
SMALL = "--num-envs 2 --num-steps 16 --total-timesteps 32 --num-minibatches 1 --update-epochs 1 --no-diagnostics"


def seen_by(env_id, number=100):
    """Observations of a task of gymnasium under random actions."""
    env = gymnasium.make(env_id.split(":")[2])
    env.action_space.seed(0)
    over, found = True, []
    while len(found) < number:
        if over:
            obs, over = env.reset(seed=len(found))[0], False
        else:
            obs, _, terminated, truncated, _ = env.step(env.action_space.sample())
            over = terminated or truncated
        found.append(obs)
    return found


@pytest.mark.parametrize(
    "words",
    [
        "gymnasium::Pendulum-v1 --activation elu",  # normalised, with bounds
        task("Observe-NestedDict-v0"),
        f"{task('Observe-MixedDict-v0')} --no-shared-encoder",  # an image beside vectors
        task("Act-MultiDiscrete2D-v0"),
    ],
)
def test_the_exported_network_is_the_scripts(words, tmp_path, capsys):
    run_here(tmp_path, f"--env-id {words} {SMALL}")
    path, env_id = tmp_path / "policy.onnx", words.split()[0]
    capsys.readouterr()
    evaluate.main(evaluate.parse_args([str(tmp_path / "r"), "--export", str(path)]))
    assert "the most likely one, as with --greedy" in json.loads(capsys.readouterr().out)["note"]
    card, session = json.loads(path.with_suffix(".json").read_text()), onnxruntime.InferenceSession(path)
    checkpoint, args, script, _ = evaluate.load(tmp_path / "r")
    agent = evaluate.trained_agent(checkpoint["agent"], script, args)
    space = tasks.spaces(env_id)[1]
    envs = tasks.make(env_id, [1], 1)
    taken = []
    envs.advance = lambda action: (taken.append(action[0]), (np.zeros(1),) * 4 + ({},))[1]
    observations = seen_by(env_id)
    assert card["env_id"] == env_id and card["global_step"] == 32
    for obs in observations:
        parts = [functools.reduce(operator.getitem, x["path"], obs) for x in card["inputs"]]
        parts = [np.asarray(part, x["dtype"]) for part, x in zip(parts, card["inputs"], strict=True)]
        assert [list(part.shape) for part in parts] == [x["shape"] for x in card["inputs"]]
        outputs, action = session.run(None, {x["name"]: part[None] for x, part in zip(card["inputs"], parts)})
        with torch.no_grad():
            expected = agent(torch.from_numpy(agent.observation.row(obs)[None]))[0][0].numpy()
        np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)
        envs.step(ppo.sample(expected, 0.0, ppo.action_std(agent), agent.actions.parts))
        assert action[0].dtype == taken[-1].dtype and action[0].shape == taken[-1].shape
        np.testing.assert_allclose(action[0].astype(float), taken[-1].astype(float), rtol=1e-3, atol=1e-4)
    several = session.run(None, {x["name"]: np.stack([part] * 3) for x, part in zip(card["inputs"], parts)})[0]
    assert several.shape == (3, agent.actions.outputs) and space.shape == tuple(card["actions"]["shape"])
    assert len({agent.observation.row(obs).tobytes() for obs in observations}) > 3, "one observation proves little"


def test_minigrids_grid_is_exported(tmp_path):
    """Here that of best.pt, of the best of several seeds."""
    run_here(tmp_path, f"--env-id MiniGrid-DoorKey-5x5-v0 {SMALL}")
    (tmp_path / "r/done.json").write_text('{"episodic_return": 0.5}')
    checkpoint, args, script, _ = evaluate.load(tmp_path / "r")
    best = {name: -x for name, x in checkpoint["agent"].items()}
    torch.save({**checkpoint, "run": {"global_step": 16}, "agent": best}, tmp_path / "r/best.pt")
    path = tmp_path / "policy.onnx"
    evaluate.main(evaluate.parse_args([str(tmp_path), "--best", "--export", str(path)]))
    card = json.loads(path.with_suffix(".json").read_text())
    assert (card["run_dir"], card["network"], card["global_step"]) == (str(tmp_path / "r"), "best.pt", 16)
    assert "r is the best of 1" in card["chosen"]
    agent = evaluate.trained_agent(best, script, args)
    rows = tasks.make("MiniGrid-DoorKey-5x5-v0", list(range(100)), 1).reset()[0]
    names = [x["name"] for x in card["inputs"]]
    parts = dict(zip(names, (rows[:, 0].astype(np.int64), rows[:, 1:].reshape(-1, 7, 7, 3)), strict=True))
    inputs = {x.name: parts[x.name].astype(x.type[7:-1]) for x in onnxruntime.InferenceSession(path).get_inputs()}
    outputs = onnxruntime.InferenceSession(path).run(["outputs"], inputs)[0]
    with torch.no_grad():
        np.testing.assert_allclose(outputs, agent(torch.from_numpy(rows)[None])[0][0], rtol=1e-4, atol=1e-5)


def test_the_lines_of_the_docs(tmp_path, monkeypatch):
    """Both programs of docs/running.md act in the task as the script's network does."""
    run_here(tmp_path, f"--env-id {task('Observe-MixedDict-v0')} {SMALL}")
    evaluate.main(evaluate.parse_args([str(tmp_path / "r"), "--export", str(tmp_path / "policy.onnx")]))
    page = (ROOT / "docs/running.md").read_text().split("## The network in your own program")[1]
    programs = [part.split("```")[0] for part in page.split("```python\n")[1:3]]
    actions = []
    for program in programs:
        names = {"obs": seen_by(task("Observe-MixedDict-v0"), 1)[0]}
        exec(program.replace("runs/NAME", str(tmp_path / "r")).replace("policy.", f"{tmp_path}/policy."), names)
        actions.append(int(names["action"]))
    assert actions[0] == actions[1]


# ---- names -----------------------------------------------------------------------------------------------------------
def agent_of(observation_space, action_space, *words):
    args = ppo.Args(**dict(zip(words[::2], words[1::2])))
    return ppo.Agent(observation_of(observation_space), actions_of(action_space), args, (1,))


def test_every_key_of_an_observation_can_be_loaded(tmp_path, capsys):
    """Those of the outputs, of inner values, with /, empty, and numbers beside the same in words."""
    part, path = Box(-1, 1, (2,)), tmp_path / "policy.onnx"
    keys = ("action", "outputs", "", "obs", "cat", "val_0", "linear", "agent.critic.weight", "0/0", "\u00e9 b\n")
    space = Dict({**dict.fromkeys(keys, part), "0": Tuple([part]), "a": Dict({"b": part}), "a/b": part})
    agent = agent_of(space, Discrete(3))
    export.write(agent, Discrete(3), path, {})
    card, session = json.loads(path.with_suffix(".json").read_text()), onnxruntime.InferenceSession(path)
    obs = space.sample()
    parts = {x["name"]: functools.reduce(operator.getitem, x["path"], obs)[None] for x in card["inputs"]}
    assert len(parts) == len(keys) + 3 and [x.name for x in session.get_inputs()] == list(parts)
    with torch.no_grad():
        expected = agent(torch.from_numpy(agent.observation.row(obs)[None]))[0][0].numpy()
    np.testing.assert_allclose(session.run(["outputs"], parts)[0], expected, rtol=1e-4, atol=1e-5)
    names = {tuple(x["path"]): x["name"] for x in card["inputs"]}
    assert names["action",] == "action_" and names["val_0",] in ("val_0", "val_0_") and names["a", "b"] == "a/b"
    assert 'note: obs["action"] is the input action_ of the network' in capsys.readouterr().err.splitlines()


def test_nothing_is_written_that_cannot_be_loaded(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(export, "input_names", lambda entries, taken: ["action"])
    agent, path = agent_of(Box(-1, 1, (2,)), Discrete(3)), tmp_path / "policy.onnx"
    says = refusal(capsys, export.write, agent, Discrete(3), path, {})
    assert "no program could load the network (" in says and "action" in says and not list(tmp_path.iterdir())


# ---- the card --------------------------------------------------------------------------------------------------------
UNBOUNDED = {"Unbounded": Box(-np.inf, np.inf, (2,)), "HalfBounded": Box(np.float32([-2, -np.inf]), np.float32([3, 1]))}
ACTIONS = {**matching_tasks.ACTIONS, **UNBOUNDED}


@pytest.mark.parametrize("name", ACTIONS)
def test_the_card_says_how_the_agent_acts(name):
    """What a program needs to draw an action, and the most likely action of outputs that are far off the bounds."""
    space, observed = ACTIONS[name], Box(-1, 1, (2,))
    agent = agent_of(observed, space, "init_std", 0.3)
    of_actions = json.loads(json.dumps(export.card(agent, space, ["obs"]), allow_nan=False))["actions"]
    assert of_actions["dtype"] == space.dtype and tuple(of_actions["shape"]) == space.shape
    if isinstance(space, Box):
        assert of_actions["std"] == pytest.approx(ppo.action_std(agent).ravel().tolist())
        for bound in ("low", "high"):
            expected = [None if np.isinf(x) else pytest.approx(float(x)) for x in np.ravel(getattr(space, bound))]
            assert of_actions[bound] == expected
    else:
        lowest = np.ravel(getattr(space, "start", 0))
        assert (np.array(of_actions["start"]) == lowest).all() and len(of_actions["start"]) == len(of_actions["sizes"])
        highest = lowest + of_actions["sizes"] - 1
        assert space.contains(highest.reshape(space.shape).astype(space.dtype)[()])
        assert not space.contains((highest + 1).reshape(space.shape).astype(space.dtype)[()])
    envs, rng = Envs((observed, space), [0] * 50), np.random.default_rng(0)
    outputs = 5 * rng.normal(size=(50, agent.actions.outputs)).astype(np.float32)
    std = np.float32(0) if agent.continuous else None
    taken = envs.taken(ppo.sample(outputs, 0.0, std, agent.actions.parts))
    action = export.Policy(agent, space).action(torch.from_numpy(outputs)).numpy()
    assert action.dtype == taken.dtype == space.dtype and np.array_equal(action, taken)
    assert all(space.contains(one[()] if isinstance(space, Discrete) else one) for one in action)


@pytest.mark.parametrize("name", matching_tasks.OBSERVATIONS)
def test_the_card_says_what_the_agent_observes(name):
    space, show = matching_tasks.OBSERVATIONS[name]
    agent, obs = agent_of(space, Discrete(4)), show(3, np.random.default_rng(0))
    inputs = export.card(agent, Discrete(4), list(map(str, range(9))))["inputs"]
    for x in inputs:
        part = functools.reduce(operator.getitem, x["path"], obs)
        of_part = functools.reduce(lambda inside, key: inside[key], x["path"], space)
        if name == "OneOf":
            part = gymnasium.spaces.flatten(space, part)
        assert x["shape"] == list(np.shape(part)) and x["space"] == str(of_part)
        assert np.array_equal(np.asarray(part, x["dtype"]), part)


def test_an_image_is_divided_by_its_bounds():
    """In the network as in the file: a picture of bytes is the same picture as one of 0 to 1."""
    picture = np.random.default_rng(0).integers(0, 256, (9, 8, 3), np.uint8)
    outputs = []
    for high, dtype in ((255, np.uint8), (1, np.float32), (50, np.float32)):
        agent = agent_of(Box(0, high, (9, 8, 3), dtype), Discrete(4))
        shown = (picture / 255 * high).round(0 if high > 50 else 6).astype(dtype)
        with torch.no_grad():
            outputs.append(agent(torch.from_numpy(agent.observation.row(shown)[None]))[0].flatten())
            outputs.append(export.Policy(agent, Discrete(4))(torch.from_numpy(shown[None]))[0].flatten())
    for other in outputs[1:]:
        torch.testing.assert_close(other, outputs[0], rtol=1e-4, atol=1e-6)
    assert outputs[0].std() > 1e-4


@pytest.mark.parametrize("name", ["policy.pt", "no/such/policy.onnx"])
def test_a_file_that_cannot_be_written(name, tmp_path, capsys):
    says = refusal(capsys, evaluate.parse_args, ["run", "--export", str(tmp_path / name)])
    assert f"--export {tmp_path / name}: expected a .onnx file in a directory" in says
