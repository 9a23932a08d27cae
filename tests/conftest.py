"""What the tests of whole runs share. The training scripts are run as a user runs them, in processes of their own."""

import atexit
import functools
import importlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event

from support import arguments

torch.set_num_threads(1)
signal.signal(signal.SIGINT, signal.default_int_handler)  # who is started in the background ignores it, and all below
ROOT = Path(__file__).parent.parent
STAND_IN = ROOT / "tests/stand_in"
# the smallest run of each script in which every part of it is reached: 8 iterations, and whole games end
SIZE = "--num-envs 4 --num-steps 32 --total-timesteps 1024 --update-epochs 1 "
SMALL = {
    "ppo_atari_envpool.py": SIZE,
    "ppo_ewma_atari_envpool.py": SIZE,
    "pqn_atari_envpool.py": SIZE,
    "ppo_procgen.py": SIZE + "--env-id bigfish --num-minibatches 4 --anneal-lr --learning-rate 2.5e-4",
    "ppo_envpool.py": SIZE + "--learning-rate 2.5e-4",
    "ppo_rnd_envpool.py": SIZE + "--env-id Breakout-v5 --num-iterations-obs-norm-init 1 --learning-rate 2.5e-4",
}
STEPS = [128 * i for i in range(1, 9)]  # where the curves of a small run have their points
# for the curves of unseen levels; StarPilot's games are half as long as BigFish's
LEVELS = {"ppo_procgen.py": ("--env-id", "starpilot", "--num-levels", 5, "--eval-envs", 1)}

# What rests on text that test_sync.py holds to be the same in every script is tried on this one: marked `once`.
FIRST = "ppo_atari_envpool.py"
# test_outer.py and test_torchrun.py have what it does beside that one
SISTER = "ppo_ewma_atari_envpool.py"
TRIED = [name for name in SMALL if name != SISTER]


@pytest.fixture(scope="module", params=TRIED)
def script(request):
    return request.param


@pytest.fixture
def isaacgym(monkeypatch):
    """Gives this process the stand-in. The script cannot import it here: torch is loaded."""
    from support import simulators

    spec = importlib.util.spec_from_file_location("isaacgymenvs", STAND_IN / "isaacgymenvs/__init__.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(simulators, "isaacgymenvs", module)


@pytest.fixture(autouse=True)
def started_here(monkeypatch):
    """A test that changes the working directory stands for a program that is started there."""
    chdir = monkeypatch.chdir

    def start_there(path):
        chdir(path)
        monkeypatch.setattr(arguments, "START", Path(path))

    monkeypatch.chdir = start_there


def pytest_collection_modifyitems(items):
    """Leaves out the copies of a test marked `once` that would run on any but the first script."""
    items[:] = [
        item
        for item in items
        if not item.get_closest_marker("once") or item.callspec.params.get("script", FIRST) == FIRST
    ]


def study(name, program):
    """A module of results/NAME/, imported with that folder first on the path, as when Python runs a program there.

    Every study has a claims.py: that of another one makes way.
    """
    folder = ROOT / "results" / name
    if folder not in Path(getattr(sys.modules.get(program), "__file__", folder / program)).parents:
        del sys.modules[program]
    sys.path.insert(0, str(folder))
    try:
        module = importlib.import_module(program)
    finally:
        sys.path.remove(str(folder))
    assert Path(module.__file__).parent == folder, f"{program} is also the name of {module.__file__}"
    sys.path.append(str(folder))  # for what the module imports later
    return module


def refusal(capsys, function, *inputs):
    """What a call says that ends with exit code 2 and one line, as bad input has to."""
    with pytest.raises(SystemExit) as end:
        function(*inputs)
    error = capsys.readouterr().err
    assert end.value.code == 2 and error.startswith("error: ") and error.count("\n") == 1
    return error


def command(script, runs_dir, *extra):
    """The command of a small run; a later flag of `extra` overrides an earlier one."""
    words = [*SMALL[script].split(), "--runs-dir", str(runs_dir), "--run-name", "run"]
    return [sys.executable, str(ROOT / script), *words, *map(str, extra)]


def environment(**extra):
    """One thread a process, so that a run does not fight the tests, and no account that may lie on this machine."""
    hidden = ("WANDB_API_KEY", "WANDB_MODE")
    env = {key: value for key, value in os.environ.items() if key not in hidden}
    return {**env, "OMP_NUM_THREADS": "1", "NETRC": "/dev/null", **extra}


@functools.lru_cache(maxsize=None)
def fork_server(*library):
    """The process of fork_server.py: one for all tests of this process. library: what it loads before PyTorch."""
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("fork_server.py")), *library],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    atexit.register(server.kill)
    return server


class Forked:
    """What the tests use of subprocess.Popen(words, …), without the seconds that the imports take."""

    def __init__(self, words, cwd, env, *library):
        self.args, self.returncode, self.library = words, None, library
        self.outputs = [tempfile.NamedTemporaryFile("r") for _ in range(2)]
        stdout, stderr = (output.name for output in self.outputs)
        self.pid = self.ask({"argv": words[1:], "cwd": str(cwd), "env": env, "stdout": stdout, "stderr": stderr})

    def ask(self, message):
        server = fork_server(*self.library)
        print(json.dumps(message), file=server.stdin, flush=True)
        return json.loads(server.stdout.readline())

    def poll(self):
        if self.returncode is None:
            self.returncode = self.ask({"wait": self.pid})
        return self.returncode

    def wait(self, timeout=900):
        deadline = time.time() + timeout
        while self.poll() is None:
            if time.time() > deadline:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(0.02)
        return self.returncode

    def communicate(self, timeout=900):
        self.wait(timeout)
        return [output.read() for output in self.outputs]

    def send_signal(self, signum):
        if self.poll() is None:
            os.kill(self.pid, signum)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def run_forked(words, cwd, env):
    """What subprocess.run would return."""
    process = Forked(words, cwd, env)
    stdout, stderr = process.communicate()
    return subprocess.CompletedProcess(words, process.returncode, stdout, stderr)


def run(script, runs_dir, *extra, code=0, **env):
    """Runs the script to its end, in another working directory, and checks the exit code."""
    words = command(script, runs_dir, *extra)
    done = run_forked(words, runs_dir, environment(**env))
    assert done.returncode == code, f"exit code {done.returncode}, not {code}\n{done.stdout}\n{done.stderr}"
    return done


def train_here(module, args, code=0):
    """Runs a script in this process, whose handlers of signals stay, to its end, and checks the exit code."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as end:
        patch.setattr(sys, "argv", [module.__file__])  # as the manifest's command
        patch.setattr(signal, "signal", lambda *handler: None)
        module.main(args)
    assert end.value.code == code


def two_ranks():
    """What torchrun would put into the environments of two processes on this machine."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        group = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(free.getsockname()[1])}
    return [{**group, "RANK": rank, "LOCAL_RANK": rank} for rank in "01"]


def start(script, runs_dir, *extra, **env):
    return Forked(command(script, runs_dir, *extra), runs_dir, environment(**env))


def wait_for(condition, process, seconds=120):
    """Polls until the condition holds. Fails if the process ends first: then the test would prove nothing."""
    deadline = time.time() + seconds
    while not condition():
        assert process.poll() is None, f"the run ended too soon:\n{process.communicate()}"
        assert time.time() < deadline, "the run did not come so far"
        time.sleep(0.02)


def curves(run_dir):
    """{tag: [(step, value), …]} as TensorBoard shows it, not thinned."""
    accumulator = EventAccumulator(str(run_dir), size_guidance={"scalars": 0})
    accumulator.Reload()
    tags = accumulator.Tags()["scalars"]
    return {tag: [(event.step, event.value) for event in accumulator.Scalars(tag)] for tag in tags}


def curves_csv(run_dir):
    """The same of curves.csv, whose every line has to be whole."""
    text = (Path(run_dir) / "curves.csv").read_text()
    assert text.endswith("\n")
    _, _, *tags = text.split("\n")[0].split(",")
    found = {tag: [] for tag in tags}
    for line in text.splitlines()[1:]:
        step, _, *cells = line.split(",")
        for tag, cell in zip(tags, cells, strict=True):
            if cell:
                found[tag].append((int(step), torch.tensor(float(cell)).item()))
    return found


def raw_steps(run_dir):
    """The steps of every record in every event file: nothing is hidden from this view. The order is that of the names,
    as in TensorBoard; the times of the files say nothing, for each resume writes all of them again."""
    steps = []
    for path in sorted(Path(run_dir).glob("events.out.tfevents.*")):
        records = [Event.FromString(record) for record in RawEventFileLoader(str(path)).Load()]
        points = [event for event in records if any(value.HasField("simple_value") for value in event.summary.value)]
        steps += [event.step for event in points]
    return steps


def load_checkpoint(run_dir, name="checkpoint.pt"):
    return torch.load(Path(run_dir) / name, weights_only=True)


@pytest.fixture(scope="module")
def finished(script, tmp_path_factory):
    """One finished run with every default but its size, and a few rows for the probe to tell it from the batch."""
    folder = tmp_path_factory.mktemp("finished")
    done = run(script, folder, "--probe-size", 100, *LEVELS.get(script, ()))
    return folder / "run", done


def check_complete(run_dir, steps=STEPS):
    """The run is finished, and its curves have every point once."""
    assert json.loads((run_dir / "done.json").read_text())["global_step"] == steps[-1]
    assert raw_steps(run_dir) == steps
    scalars = curves(run_dir)
    assert str(sorted(scalars.items())) == str(sorted(curves_csv(run_dir).items()))  # as text: NaN equals itself
    assert [step for step, _ in scalars["losses/grad_norm"]] == steps
    assert [value for _, value in scalars["charts/gradient_steps"]] == [4 * i for i in range(1, len(steps) + 1)]
    rates = [2.5e-4 * (1 - i / len(steps)) for i in range(len(steps))]
    assert [value for _, value in scalars["charts/learning_rate"]] == pytest.approx(rates)
    with np.load(run_dir / "coverage.npz") as coverage:
        assert sorted(set(coverage["step"])) == steps and len(coverage["step"]) <= 4096


class Recorder:
    """A make_envs whose environments keep what they were given and what they gave.

    `pools` has one entry for each call: its args and seeds, what `reset` returned, and the steps.
    """

    def __init__(self, make_envs):
        self.make_envs, self.pools = make_envs, []

    def __call__(self, args, seeds, *num_threads):
        envs = self.make_envs(args, seeds, *num_threads)
        pool = SimpleNamespace(args=args, seeds=seeds, steps=[])
        step, reset = envs.step, envs.reset

        def recorded_reset():
            pool.obs, pool.info = reset()
            return pool.obs, pool.info

        def recorded_step(actions):
            obs, reward, terminated, truncated, info = step(actions)
            raw, over = info.get("reward", reward), info.get("terminated", terminated).astype(bool)
            row = (actions, obs, reward, terminated, truncated, raw, over)
            pool.steps.append([torch.tensor(x) for x in row])
            return obs, reward, terminated, truncated, info

        envs.reset, envs.step = recorded_reset, recorded_step
        self.pools.append(pool)
        return envs

    def played(self):
        """What all environments did, side by side, as tensors (T, N, ...); obs[t] follows actions[t]."""
        names = ("actions", "obs", "rewards", "terminated", "truncated", "raw", "over")
        pools = [[torch.stack(rows) for rows in zip(*pool.steps)] for pool in self.pools]
        return SimpleNamespace(**dict(zip(names, (torch.cat(parts, 1) for parts in zip(*pools)))))
