"""evaluate.py --export: the network in a file of its own says what the script's network says."""

import functools
import json
import operator

import evaluate
import gymnasium
import matching_tasks  # noqa: F401 - registers tasks
import numpy as np
import pytest
import torch
from conftest import ROOT, refusal
from test_envpool import run_here
from test_spaces import task

import ppo_envpool as ppo
from support.envs import tasks

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
    evaluate.main(evaluate.parse_args([str(tmp_path / "r"), "--export", str(path)]))
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


@pytest.mark.parametrize("name", ["policy.pt", "no/such/policy.onnx"])
def test_a_file_that_cannot_be_written(name, tmp_path, capsys):
    says = refusal(capsys, evaluate.parse_args, ["run", "--export", str(tmp_path / name)])
    assert f"--export {tmp_path / name}: expected a .onnx file in a directory" in says
