"""Tasks of one's own: what they have to return, processes, and those that can be made once or are slow to reset."""

import json
import signal
import subprocess
import sys
from types import SimpleNamespace

import evaluate
import gymnasium
import numpy as np
import pytest
from conftest import ROOT, environment, refusal, train_here
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, OneOf, Tuple
from test_envpool import arguments, run_here

import ppo_envpool as ppo
from support.envs import contract, processes, tasks
from support.envs.gymnasium import GymnasiumEnvs
from support.envs.spaces import observation_of

TASKS = """
import gymnasium, json, numpy, time
class Task(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), numpy.float32)
    action_space = gymnasium.spaces.Discrete(2)
    alive = 0
    def __init__(self, length=5, reset=0.0, single=False, wrong="", after=0):
        self.length, self.seconds, self.single, self.wrong, self.after = length, reset, single, wrong, after
        if single and Task.alive:
            raise RuntimeError("one emulator in a process")
        Task.alive, self.steps = Task.alive + 1, 0
    def close(self):
        Task.alive -= 1
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.seconds:
            time.sleep(self.seconds)
        self.t = 0
        return numpy.zeros(2, numpy.float32), {"action_mask": 1} if self.wrong == "mask" else {}
    def fall(self):
        raise RuntimeError("the robot has fallen over")
    def step(self, action):
        self.t, self.steps = self.t + 1, self.steps + 1
        if self.wrong == "four" and self.steps > self.after:
            return numpy.zeros(2, numpy.float32), 1.0, False, {}
        if self.wrong == "raises" and self.steps > self.after:
            self.fall()
        return numpy.zeros(2, numpy.float32), float(action), self.t >= self.length, False, {"reward": -5.0}
gymnasium.register("Own-v0", Task, max_episode_steps=10_000)
gymnasium.register("Endless-v0", Task, kwargs={"length": 10**9})
"""
SMALL = "--num-minibatches 1 --no-diagnostics"
OWN = f"--env-id gymnasium:own_task:Own-v0 {SMALL}"


@pytest.fixture
def own_task(tmp_path, monkeypatch):
    """The working directory with the modules own_task, and my_task of the docs."""
    (tmp_path / "own_task.py").write_text(TASKS)
    page = (ROOT / "docs/running.md").read_text()
    (tmp_path / "my_task.py").write_text(page.split("```python\n")[1].split("```")[0])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "own_task", raising=False)
    monkeypatch.delitem(gymnasium.registry, "Own-v0", raising=False)
    monkeypatch.chdir(tmp_path)
    tasks.gymnasium.declared.cache_clear(), tasks.gymnasium.probe.cache_clear()
    return tmp_path


def options(**values):
    return ["--env-kwargs", json.dumps(values)]


# ---- what a task returns ---------------------------------------------------------------------------------------------
SPACE = Dict(
    a=Box(-1, 1, (2,)),
    b=MultiBinary(3),
    d=Discrete(3, start=2),
    m=MultiDiscrete([2, 3]),
    o=OneOf([Discrete(2), Box(0, 1, (2,))]),
    t=Tuple([Box(0, 255, (3, 3, 3), np.uint8), Dict(x=Box(-9, 9, (), np.int64))]),
)
OBS = {
    "a": [0.5, 1],  # numbers in a list are an array
    "b": np.array([0, 1, 1], np.int8),
    "d": 4,
    "m": (1, 2),
    "o": (np.int64(0), np.int64(1)),
    "t": (np.zeros((3, 3, 3), np.int64), {"x": 4.0}),
}
STEP = "expected (observation, reward, terminated, truncated, info)"
WRONG = {  # what is returned in place of a part, and what is said of it
    "reset": [
        (None, "reset returns None: expected (observation, info)"),
        (OBS, "reset returns a dict: expected (observation, info)"),
        (np.zeros(2), "reset returns an array of shape (2,): expected (observation, info)"),
        ((OBS,), "reset returns 1 value: expected (observation, info)"),
        ((OBS, None), "reset returns None as info: expected a dict"),
    ],
    "step": [
        (None, f"step returns None: {STEP}"),
        ((OBS, 1.0, False, {}), f"step returns 4 values: {STEP}"),
        ((OBS, 1.0, False, {}, False), "step returns False as info: expected a dict"),
        ((OBS, np.zeros(2), False, False, {}), "step returns an array of shape (2,) as reward: expected a number"),
        ((OBS, np.zeros(1), False, False, {}), "step returns an array of shape (1,) as reward: expected a number"),
        ((OBS, None, False, False, {}), "step returns None as reward: expected a number"),
        ((OBS, "1", False, False, {}), "step returns '1' as reward: expected a number"),
        ((OBS, 1.0, None, False, {}), "step returns None as terminated: expected True or False"),
        ((OBS, 1.0, False, 0.5, {}), "step returns 0.5 as truncated: expected True or False"),
    ],
    "observation": [
        (None, "an observation is None: expected one with ['a']"),
        ({**OBS, "a": [1.0]}, 'an observation["a"] has the shape (1,), and (2,) was declared'),
        ({**OBS, "a": "ab"}, "an observation[\"a\"] is 'ab': expected numbers of Box(-1.0, 1.0, (2,), float32)"),
        ({**OBS, "b": [0, 0.5, 1]}, 'an observation["b"] has 0.5 of float64: expected int8, as was declared'),
        ({**OBS, "d": 5}, 'an observation["d"] is 5, which Discrete(3, start=2) does not have'),
        ({**OBS, "d": 2.5}, 'an observation["d"] has 2.5 of float64: expected int64, as was declared'),
        ({**OBS, "m": [1, 3]}, 'an observation["m"] is [1, 3], which MultiDiscrete([2 3]) does not have'),
        ({**OBS, "o": 1}, 'an observation["o"] is 1: expected one of OneOf('),
        ({**OBS, "t": ()}, 'an observation["t"] is a tuple of 0: expected one with [1]'),
        ({**OBS, "t": (OBS["t"][0], {})}, "an observation[\"t\"][1] has no 'x': expected one with ['x']"),
        (
            {**OBS, "t": (np.full((3, 3, 3), 256), {"x": 1})},
            'an observation["t"][0] has 256 of int64: expected uint8, as was declared',
        ),
        ({key: OBS[key] for key in "abdmt"}, "an observation has no 'o': expected one with ['o']"),
    ],
}


@pytest.mark.parametrize(("method", "returned", "says"), [(name, *row) for name, rows in WRONG.items() for row in rows])
def test_what_is_wrong_with_what_a_task_returns(method, returned, says):
    entries = observation_of(SPACE).entries
    for name, others in (("reset", ({},)), ("step", (1, np.array(False), np.bool_(True), {}))):
        assert contract.objection(name, (OBS, *others), entries) == ""
        if method == "observation":
            assert contract.objection(name, (returned, *others), entries).startswith(says)
    if method != "observation":
        assert contract.objection(method, returned, entries) == says


def test_an_error_is_not_taken_for_what_was_returned_before():
    task, entries = SimpleNamespace(reset=lambda: None, step=lambda action: [][action]), observation_of(SPACE).entries
    watch = contract.Watch(task, entries)
    assert watch.objection() == "" and task.reset() is None
    assert contract.objection(watch.method, watch.returned, entries) == WRONG["reset"][0][1]
    with pytest.raises(IndexError):
        task.step(0)
    assert watch.objection() == ""


@pytest.mark.parametrize(("after", "workers"), [(0, 1), (200, 1), (200, 2)])
@pytest.mark.parametrize("wrong", ["four", "raises"])
def test_where_a_task_is_wrong(wrong, after, workers, own_task, capsys):
    """Before the training, in it, and in a process of its own: one line, with the file and the line."""
    words = f"{OWN} --env-workers {workers} --run-name x --runs-dir runs".split()
    with pytest.raises(SystemExit) as end:
        ppo.main(ppo.parse_args([*words, "--total-timesteps", "2048", *options(wrong=wrong, after=after)]))
    error = capsys.readouterr().err if end.value.code == 2 else f"{end.value.code}\n"
    raised = TASKS[: TASKS.index('raise RuntimeError("the robot')].count("\n") + 1
    place = f"{own_task}/own_task.py line"
    if wrong == "raises":
        says = f" raised RuntimeError: the robot has fallen over in fall, {place} {raised}"
    else:
        says = f": step returns 4 values: {STEP} (step, {place} {TASKS[: TASKS.index('def step')].count(chr(10)) + 1})"
    assert error.startswith(f"error: --env-id gymnasium:own_task:Own-v0{says}") and error.count("\n") == 1
    assert (own_task / "runs").exists() == bool(after)


def test_evaluation_episodes_of_a_task_without_a_time_limit_are_cut(own_task, capsys):
    task = f"--env-id gymnasium:own_task:Endless-v0 {SMALL} --total-timesteps 512 --eval-episodes 2"
    run_here(own_task, task + " --eval-max-steps 70")
    assert "note: 2 evaluation episodes have not ended and are cut at 70 steps" in capsys.readouterr().out
    final = json.loads((own_task / "r/done.json").read_text())["final_return"]
    assert 0 < final <= 70, "the sum of its rewards, not of its info's"
    for task, limit in (("gymnasium:own_task:Endless-v0", 27000), ("CliffWalking-v1", 27000), ("CartPole-v1", None)):
        assert tasks.eval_max_steps(ppo.parse_args(["--env-id", task])) == limit


def test_environments_in_several_processes_are_the_same(own_task):
    """…bit for bit, over resets; signals that stop a run leave the processes alone; the end of one is one line."""
    seeds, task = [[1, 2, 3], [4, 5, 6]], "gymnasium:my_task:Reach-v0"
    alone, several = tasks.make(task, seeds, 1), tasks.make(task, seeds, 1, env_workers=4)
    assert [type(alone), type(several)] == [GymnasiumEnvs, processes.EnvsInProcesses]
    assert np.array_equal(alone.reset()[0], several.reset()[0])
    for process in several.processes:
        process.send_signal(signal.SIGTERM)
    alone.retired = several.retired = [1]
    for action in np.random.default_rng(1).normal(size=(120, 2, 3, 1)).astype(np.float32):
        steps = [envs.step(action.copy())[:4] for envs in (alone, several)]
        assert all(one.dtype == other.dtype and np.array_equal(one, other) for one, other in zip(*steps))
    several.processes[1].kill()
    with pytest.raises(SystemExit, match="error: .* a process that steps its environments has ended"):
        several.step(action)
    several.close()
    assert [process.returncode for process in several.processes] == [0, -signal.SIGKILL, 0, 0]


def test_the_task_of_the_docs_is_learnt(own_task):
    """A policy that stays where it begins gets -25 on average in 50 steps; one that goes straight to 0 gets -3."""
    words = "--num-envs 8 --num-steps 128 --total-timesteps 8192 --num-minibatches 4 --no-diagnostics"
    run_here(own_task, f"--env-id gymnasium:my_task:Reach-v0 --eval-episodes 20 {words}")
    assert json.loads((own_task / "r/done.json").read_text())["final_return"] > -12


def test_action_masks_are_said_not_to_be_supported(own_task, capsys):
    arguments(own_task, OWN)
    assert capsys.readouterr().err == ""
    ppo.parse_args([*OWN.split(), *options(wrong="mask")])
    assert capsys.readouterr().err == (
        "note: gymnasium:own_task:Own-v0: action masks are not supported: every action may be drawn\n"
    )


@pytest.mark.parametrize("seeds", ["", "--num-seeds 2"])
def test_a_run_without_a_return_says_why(seeds, own_task, capsys):
    words = f"{OWN} {seeds} --num-envs 2 --num-steps 8 --total-timesteps 16 --run-name x"
    for task, says in (
        ("{}", ""),
        ('{"length":9}', "no episode has ended in 16 steps of 2 environments, so there is no return"),
    ):
        train_here(ppo, ppo.parse_args([*words.split(), "--runs-dir", task, "--env-kwargs", task]))
        notes = [line for line in capsys.readouterr().out.splitlines() if "so there is no return" in line]
        assert len(notes) == bool(says)
        assert not notes or notes[0].startswith("note: ") and says in notes[0]


NOISY = """
import ctypes, gymnasium, os
from own_task import Task
class Noisy(Task):
    def step(self, action):
        print("a step")
        ctypes.CDLL(None).printf(b"a step of C\\n")
        os.write(1, b"a step of another library\\n")
        return super().step(action)
    def __del__(self):
        print("the end")
gymnasium.register("Noisy-v0", Noisy)
"""


def test_one_line_of_json_whatever_the_task_prints(own_task, capfd):
    """In Python, in C, and when the program ends; and it says how the network acts."""
    (own_task / "noisy.py").write_text(NOISY)
    run_here(own_task, f"--env-id gymnasium:noisy:Noisy-v0 {SMALL}")
    capfd.readouterr()
    evaluate.main(evaluate.parse_args([str(own_task / "r"), "--trust", "--episodes", "2", "--greedy"]))
    out, err = capfd.readouterr()
    assert json.loads(out)["actions"] == "the most likely ones"
    assert {"a step", "a step of another library"} <= set(err.splitlines())
    words = [sys.executable, str(ROOT / "scripts/evaluate.py"), str(own_task / "r"), "--trust", "--episodes", "2"]
    done = subprocess.run(words, capture_output=True, text=True, env=environment(PYTHONUNBUFFERED=""))
    assert json.loads(done.stdout)["actions"] == "drawn, as in training"
    assert {"a step", "a step of C", "the end"} <= set(done.stderr.splitlines())


# ---- names -----------------------------------------------------------------------------------------------------------
def test_a_name_without_its_module(own_task, capsys):
    """What registers it is found in the working directory, without an import; or the form is said."""
    for folder, text in (("package", 'register(\n    id="Own/Far-v1", x=1)'), ("no-module", 'register("Hidden-v0")')):
        (own_task / folder).mkdir()
        (own_task / folder / "__init__.py").write_text(f"raise SystemExit\n{text}\n")
    (own_task / "bytes.py").write_bytes(b"\xff\x00")
    for name, says in {
        "Own-v0": "own_task.py registers it: expected --env-id gymnasium:own_task:Own-v0\n",
        "Own/Far-v1": "package/__init__.py registers it: expected --env-id gymnasium:package:Own/Far-v1\n",
        "Counter-v0": "gymnasium has it: expected --env-id gymnasium::Counter-v0\n",
        "Hidden-v0": "your module registers in gymnasium: expected gymnasium:MODULE:Hidden-v0\n",
        "wn-v0": "your module registers in gymnasium: expected gymnasium:MODULE:wn-v0\n",
    }.items():
        line = refusal(capsys, ppo.parse_args, ["--env-id", name])
        assert line.startswith(f"error: --env-id {name} is not a task of EnvPool") and line.endswith(says), line
    assert not {"own_task", "package"} & set(sys.modules)


# ---- environments that can be made once ------------------------------------------------------------------------------
def test_a_task_that_can_be_made_once(own_task, capsys):
    """Refused with more than one environment in a process; one trains, and plays its episodes one after another."""
    single = options(single=True)
    for words, number in (("--num-envs 8", 8), ("--num-envs 1 --num-seeds 3", 3), ("--num-envs 4 --env-workers 3", 4)):
        tasks.gymnasium.probe.cache_clear()
        says = refusal(capsys, ppo.parse_args, [*OWN.split(), *words.split(), "--runs-dir", "runs", *single])
        assert "cannot be made a second time in one process (RuntimeError: one emulator in a process)" in says
        assert f"expected --num-envs 1 and one seed, or --env-workers {number}, a process" in says
    assert not (own_task / "runs").exists()
    ppo.parse_args([*OWN.split(), "--num-envs", "4", "--env-workers", "4", *single])  # a process for each
    run_here(own_task, f"{OWN} --num-envs 1 --num-steps 64 --eval-episodes 3 --env-kwargs {single[1].replace(' ', '')}")
    run = json.loads((own_task / "r/done.json").read_text())
    capsys.readouterr()
    scores = []
    for episodes in ("1", "4"):
        evaluate.main(evaluate.parse_args([str(own_task / "r"), "--trust", "--episodes", episodes, "--num-envs", "4"]))
        scores.append(json.loads(capsys.readouterr().out)["scores"])
    assert run["final_episodes"] == 3 and [len(of_run) for of_run in scores] == [1, 4]
    manifest = json.loads((own_task / "r/manifest.json").read_text())
    manifest["arguments"]["env_kwargs"] = "{}"  # the same task where many can be made
    (own_task / "r/manifest.json").write_text(json.dumps(manifest))
    evaluate.main(evaluate.parse_args([str(own_task / "r"), "--trust", "--episodes", "4", "--num-envs", "4"]))
    assert json.loads(capsys.readouterr().out)["scores"] == scores[1]


def test_processes_that_cannot_make_their_environments(own_task, capsys):
    task, single = "gymnasium:own_task:Own-v0", json.dumps({"single": True})
    several = tasks.make(task, [1, 2, 3], 1, env_workers=2, env_kwargs=single)
    assert "a second time in one process (RuntimeError: one emulator" in refusal(capsys, several.reset)
    ones = tasks.make(task, [1, 2], 1, env_workers=2, env_kwargs=single)
    assert ones.reset()[0].shape == (2, 2)
    ones.close()
    (own_task / "own_task.py").write_text(TASKS.replace("if single and Task.alive", "if single"))
    others = tasks.make(task, [1, 2], 1, env_workers=2, env_kwargs=single)
    says = refusal(capsys, others.reset)
    assert (
        "cannot be made in several processes (RuntimeError: one emulator in a process): expected --num-envs 1" in says
    )


# ---- slow resets -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("task", "number"),
    [
        ({}, 1),
        ({"reset": 0.02}, 8),
        ({"reset": 0.02, "length": 5000}, 1),
        ({"reset": 0.0005, "length": 1}, 8),  # as long as that, in each step
    ],
)
def test_the_number_of_processes_counts_the_share_of_resets(own_task, task, number):
    """A step takes microseconds; 8 processes pay off from 0.2 ms on."""
    seconds = tasks.gymnasium.probe("gymnasium:own_task:Own-v0", json.dumps(task)).seconds
    assert processes.num_workers(seconds, 8, 8) == number
