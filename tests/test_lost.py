"""Nothing lost: whatever ends a run, it keeps its last complete iteration. Nothing of another's: what runs and what is
written is the user's own. Runs are in this process, as a script's last lines start them."""

import copy
import errno
import io
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch
from conftest import ROOT, check_complete, curves_csv, load_checkpoint, raw_steps, refusal
from planted_runs import write_run  # puts scripts/ on the path
from test_pack import leaves

# isort: split
import evaluate
import launch
from launching import pool

import ppo_atari_envpool as ppo_atari
import ppo_envpool as ppo
from support import arguments, command_lines, events, pack, progress, reading, rundir, signals
from support.envs import gymnasium as own
from support.envs.spaces import Unplayable

SIZE = "--num-envs 4 --num-steps 32 --update-epochs 1 --total-timesteps 1024 --learning-rate 2.5e-4 "
SIZE += "--checkpoint-minutes 1000 --no-diagnostics"
STEPS = [128 * i for i in range(1, 9)]


class Task(gymnasium.Env):
    """Episodes of nine steps. `last`: the steps of an environment after which `then` happens, once in each attempt."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    left = 0  # attempts that end so

    def __init__(self, last=10**9, then="raise", render_mode=None):
        self.last, self.then, self.steps = last, then, 0

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        self.steps += 1
        obs = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        if self.steps > self.last and Task.left > 0:
            if self.then == "raise":
                Task.left -= 1
                raise RuntimeError("the connection is lost")
            if self.then == "nan":
                obs[:] = np.nan
        return obs, float(obs[0]), bool(self.steps % 9 == 0), False, {}


gymnasium.register("Lost-v0", Task)


def train(*words, script=ppo):
    """The script with these words, as its last lines run it. Returns the exit code; of a text 1, as Python's."""
    argv = [str(word) for line in words for word in str(line).split()]
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as end:
        patch.setattr(sys, "argv", [script.__file__, *argv])
        patch.setattr(signal, "signal", lambda *handler: None)  # those of this process stay
        with rundir.full_disk_in_one_line():
            script.main(script.parse_args(argv))
    return end.value.code if isinstance(end.value.code, int) else 1


def lost(last, then="raise"):
    options = json.dumps({"last": last, "then": then}).replace(" ", "")
    return f"{SIZE} --env-id gymnasium:test_lost:Lost-v0 --env-kwargs {options} --env-workers 1"


# ---- the last complete iteration -------------------------------------------------------------------------------------
def test_a_task_that_raises_again_and_again_gets_further_each_time(tmp_path, monkeypatch, capsys):
    """An environment raises in its 80th step, which is in the third iteration of each process."""
    monkeypatch.setattr(Task, "left", 3)
    words = (lost(80), f"--runs-dir {tmp_path} --run-name run")
    for step in (256, 512, 768):
        assert train(*words) == 1
        out = capsys.readouterr().out.splitlines()[-1]
        assert out == f"{tmp_path}/run stopped at step {step}: the same command with this --run-name resumes it"
        assert load_checkpoint(tmp_path / "run")["run"]["global_step"] == step
    assert train(*words) == 0
    check_complete(tmp_path / "run")


def test_what_is_kept_is_what_a_checkpoint_would_hold(tmp_path, monkeypatch):
    """Bit for bit: weights, moments, random numbers, sums since the last log point, episodes. Of a pack, too."""
    words = f"{lost(80)} --num-logs 2 --norm-obs --norm-reward --prox-com 2 --runs-dir {tmp_path}"
    for name, more in (("kept", ""), ("saved", "--checkpoint-minutes 0")):
        monkeypatch.setattr(Task, "left", 1)
        assert train(words, more, "--num-seeds 2 --run-name", name) == 1
    for seed in ("s1", "s2"):
        kept, saved = (dict(leaves(load_checkpoint(tmp_path / name / seed))) for name in ("kept", "saved"))
        assert kept.keys() == saved.keys() and saved["/run/global_step"] == 256 and "/log/sums/policy_loss" in kept
        for name in kept.keys() - {"/run/wall_seconds"}:
            same = torch.equal if isinstance(kept[name], torch.Tensor) else lambda x, y: x == y
            assert same(kept[name], saved[name]), name


def test_a_number_that_is_not_finite_leaves_the_iteration_before_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Task, "left", 1)
    assert train(lost(80, "nan"), f"--runs-dir {tmp_path} --run-name run") == 3
    assert capsys.readouterr().err.endswith(f"{tmp_path}/run/failed.json; checkpoint of step 256\n")
    checkpoint = load_checkpoint(tmp_path / "run")
    assert checkpoint["run"]["global_step"] == 256
    assert all(torch.isfinite(x).all() for _, x in leaves(checkpoint) if isinstance(x, torch.Tensor))


def test_a_run_that_has_nothing_to_keep_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Task, "left", 1)
    assert train(lost(25), f"--runs-dir {tmp_path} --run-name run") == 1  # after the 20 steps of the probe
    expected = "run stopped, and no iteration is complete: the same command with this --run-name starts over"
    assert capsys.readouterr().out.splitlines()[-1] == f"{tmp_path}/{expected}"
    assert train(lost(25), f"--runs-dir {tmp_path} --run-name run") == 0


def test_copies_take_a_hundredth_of_the_time(monkeypatch):
    copies = rundir.Copies()
    assert copies.due
    copies._spent = 0.6  # the first tenth of a second is free
    assert not copies.due
    copies._start -= 49
    assert not copies.due
    copies._start -= 2
    assert copies.due


# ---- within an iteration ---------------------------------------------------------------------------------------------
@pytest.fixture
def begun(tmp_path, monkeypatch):
    """Begins a run, and gives it with a state to train."""
    monkeypatch.setattr(signal, "signal", lambda *handler: None)

    def begin():
        args = ppo.parse_args([*f"{SIZE} --runs-dir {tmp_path} --run-name run".split()])
        run, stats = rundir.Run(args, torch.device("cpu")), rundir.Stats(weights=torch.zeros(3))
        run.restore(log=stats)
        return run, stats

    return begin


def iterate(run, stats):
    run.global_step += 128
    run.add_episodes([(1.0, 9)], np.ones(4, int), 2.0, 128)
    stats.weights += 1
    run.log({"a": run.global_step, **run.charts()})
    run.end_iteration()


def test_a_signal_within_a_long_iteration(begun, tmp_path, capsys):
    """The run stops at a step or a minibatch, not before PATIENCE, and no number of the iteration is kept."""
    run, stats = begun()
    with pytest.raises(SystemExit) as end, rundir.full_disk_in_one_line():
        iterate(run, stats)
        iterate(run, stats)
        run.tick(4)
        run._signals._handle(signal.SIGTERM, None)
        run.tick(8)
        run.global_step += 128
        run.add_episodes([(5.0, 9)], np.ones(4, int), 9.0, 128)
        stats.weights += 1
        run._signals._time -= signals.PATIENCE
        run.tick()
        raise AssertionError("it goes on")
    assert end.value.code == 143
    assert "run stopped at step 256: the same" in capsys.readouterr().out.splitlines()[-1]
    kept = load_checkpoint(tmp_path / "run")
    assert kept["run"]["global_step"] == 256 and kept["log"]["weights"].tolist() == [2, 2, 2]
    again, stats = begun()
    assert (again.global_step, again.episodes, again.latest) == (256, 8, [(1.0, 9)] * 2)
    for _ in range(6):
        iterate(again, stats)
    assert raw_steps(tmp_path / "run") == STEPS and stats.weights.tolist() == [8, 8, 8] and again.ended
    again.finish()


def test_a_script_looks_at_each_step_and_at_each_minibatch(tmp_path, monkeypatch):
    """In two threads, each with a piece of the environments: the signal ends the program from any of them."""
    ticks, tick = [], rundir.Run.tick

    def recorded(run, steps=0):
        ticks.append(steps)
        if len(ticks) == 32 + 5:  # in the second rollout
            run._signals._handle(signal.SIGTERM, None)
        tick(run, steps)

    monkeypatch.setattr(rundir.Run, "tick", recorded)
    monkeypatch.setattr(signals, "PATIENCE", 0.0)
    words = (
        "--num-envs 4 --num-steps 8 --num-threads 2 --total-timesteps 128 --no-diagnostics --checkpoint-minutes 1000"
    )
    assert train(f"{words} --runs-dir {tmp_path} --run-name run", script=ppo_atari) == 143
    first, after = ticks[:32], ticks[32:]
    assert sorted(first[:16]) == sorted(2 * [4 * t for t in range(1, 9)]) and first[16:] == [0] * 16
    assert load_checkpoint(tmp_path / "run")["run"]["global_step"] == 32 and len(after) <= 7


def test_an_iteration_that_ends_soon_after_a_signal_is_kept_whole(begun, tmp_path):
    run, stats = begun()
    run._signals._handle(signal.SIGTERM, None)
    run.tick(4)
    iterate(run, stats)
    assert run.ended and run.exit_code == 143 and load_checkpoint(tmp_path / "run")["run"]["global_step"] == 128
    run.finish()


def test_processes_of_torchrun_stop_together_at_the_end_of_the_iteration(begun, monkeypatch):
    run, _ = begun()
    run._signals._handle(signal.SIGTERM, None)
    run._signals._time -= signals.PATIENCE
    monkeypatch.setattr(rundir.devices, "NUM_RANKS", 2)
    run.tick(4)


def test_a_closed_terminal_is_a_signal_like_others(monkeypatch):
    handled = []
    monkeypatch.setattr(signal, "getsignal", lambda signum: signal.SIG_DFL)
    monkeypatch.setattr(signal, "signal", lambda signum, handler: handled.append(signum))
    signals.Signals()
    assert signal.SIGHUP in handled


def test_progress_within_an_iteration(monkeypatch, capsys):
    """Steps of the rollout, then the minibatches; the speed is that of the whole process."""
    meter = progress.Meter("Task-v0", 1000, 100, 2)
    meter.within(150, False, lambda: 1.0)
    assert not capsys.readouterr().out
    monkeypatch.setattr(progress, "LINE_SECONDS", 0)
    meter.start = (time.monotonic() - 10, 100)
    meter.within(150, False, lambda: 1.0)
    meter.within(200, True, lambda: None)
    meter.within(200, True, lambda: None)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "Task-v0 x 2 300/2,000 steps  10 SPS  return 1.0  ETA 02:50",
        "Task-v0 x 2 400/2,000 steps  20 SPS  return -  ETA 01:20  minibatch 1",
        "Task-v0 x 2 400/2,000 steps  20 SPS  return -  ETA 01:20  minibatch 2",
    ]
    meter.after(200, 2, 3.0, False)
    assert "minibatch" not in capsys.readouterr().out


# ---- an output that nobody reads -------------------------------------------------------------------------------------
def gone():
    """A stream whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    return open(writer, "w", buffering=1)


@pytest.mark.parametrize(
    "stream", [gone, lambda: io.TextIOWrapper(io.BytesIO(), encoding="ascii", line_buffering=True)]
)
def test_a_run_finishes_without_a_reader(stream, tmp_path, monkeypatch):
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, stream())
    assert train(f"{SIZE} --runs-dir {tmp_path} --run-name émo💥ji") == 0
    assert json.loads((tmp_path / "émo💥ji/done.json").read_text())["global_step"] == 1024
    assert train(f"{SIZE} --runs-dir {tmp_path} --run-name émo💥ji") == 0


def test_python_ends_well_without_a_reader():
    """Its own last flush would fail, and end in exit code 120. Descriptors that are closed are not given to files."""
    code = (
        "import os, sys; from support.progress import unbroken_output\n"
        "with unbroken_output():\n"
        "    print('x'); os.write(2, b'y'); print('é', file=sys.stderr)\n"
        "    assert os.open('/dev/zero', 0) > 2\n"
        "    sys.exit(7)"
    )
    words = ["bash", "-c", '"$0" -c "$1" | true; "$0" -c "$1" >&-; echo ${PIPESTATUS[0]} $?', sys.executable, code]
    env = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    env["PYTHONIOENCODING"] = "ascii"
    done = subprocess.run(words, capture_output=True, cwd=ROOT, env=env)
    assert done.stdout.split()[-1:] == [b"7"] and done.stderr.count(b"\\xe9") == 2, done
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    pipe = subprocess.Popen([sys.executable, "-c", code], **pipes, cwd=ROOT, env=env)
    pipe.stdout.close()
    assert pipe.wait(60) == 7 and b"Error" not in pipe.stderr.read()


def test_a_checkpoint_comes_before_any_print(begun, tmp_path, monkeypatch):
    run, stats = begun()
    monkeypatch.setattr(progress.Meter, "after", lambda *words: 1 / 0)
    run._signals._handle(signal.SIGTERM, None)
    with pytest.raises(ZeroDivisionError):
        iterate(run, stats)
    assert load_checkpoint(tmp_path / "run")["run"]["global_step"] == 128


# ---- what a checkpoint holds -----------------------------------------------------------------------------------------
OF_A_PROCESS = {  # attributes of a Run that a resumed run has anew, or that its arguments give
    *("args", "alone", "name", "path", "schedule", "total_steps", "parent_step", "checkpoint", "ended", "exit_code"),
    *("failure", "is_open", "copies", "by_law", "_best", "_words", "_signals", "_failed_at", "_is_child"),
    *("_draws_anew", "_parts"),
    *("_curves", "_events", "_wandb", "_meter", "_lock", "_coverage", "_unsaved", "_saved_step"),
    *("_log_time", "_log_step", "_checkpoint_time", "_start_time"),
}


def test_a_resumed_run_has_all_that_the_stopped_one_had(begun, tmp_path):
    """Every attribute of a Run is in a checkpoint, or named above; also between two log points."""
    run, stats = begun()
    iterate(run, stats)
    run._start_time -= 1000
    run.global_step += 128
    run.add_episodes([(5.0, 9), (7.0, 3)], np.array([2, 0, 1, 0]), 9.5, 120)
    stats.add({"loss": torch.tensor(3.0)})
    run._signals._handle(signal.SIGTERM, None)
    run.end_iteration()
    before, sums = copy.deepcopy({k: v for k, v in vars(run).items() if k not in OF_A_PROCESS}), dict(vars(stats))
    run.finish()
    again, more = begun()
    after = {name: value for name, value in vars(again).items() if name not in OF_A_PROCESS}
    assert str(after) == str(before) and str(vars(more)) == str(sums)
    assert after["new_returns"] == [5.0, 7.0] and after["earned"] == (9.5, 120) and after["_wall_seconds"] > 1000
    for _ in range(6):
        iterate(again, more)
    done = again.finish()
    assert done["wall_seconds"] > 1000 and done["sps"] < 1.1
    assert curves_csv(tmp_path / "run")["charts/reward"][1] == (384, torch.tensor((9.5 + 2) / (120 + 128)).item())


# ---- os.chdir --------------------------------------------------------------------------------------------------------
MOVES = """
import os, gymnasium, numpy
open("beside.txt").close()  # each process that imports this begins where the program did
os.chdir({folder!r})
class Moves(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Discrete(2)
    def reset(self, seed=None, options=None):
        self.steps = 0
        return numpy.zeros(2, "float32"), {{}}
    def step(self, action):
        self.steps += 1
        os.chdir("/" if self.steps == 5 else {folder!r})
        return numpy.zeros(2, "float32"), 1.0, self.steps == 9, False, {{}}
gymnasium.register("Moves-v0", Moves)
"""


@pytest.fixture
def moves(tmp_path, monkeypatch):
    """The working directory, with a task whose module and whose steps call os.chdir."""
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir(), elsewhere.mkdir()
    (here / "moves.py").write_text(MOVES.format(folder=str(elsewhere)))
    (here / "beside.txt").touch()
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "moves", raising=False)
    own.declared.cache_clear(), own.probe.cache_clear()
    monkeypatch.chdir(here)
    yield here
    assert not list(elsewhere.iterdir()) and not Path("/runs").exists()


@pytest.mark.parametrize("more", ["--env-workers 1", "--env-workers 2", "--num-seeds 2 --env-workers 1"])
def test_a_task_that_goes_elsewhere(moves, more, capsys):
    assert train(f"{SIZE} --env-id gymnasium:moves:Moves-v0 --run-name mine {more}") == 0
    assert len(list(moves.glob("runs/mine/**/done.json"))) == (2 if "seeds" in more else 1)
    if "workers 1" in more and "seeds" not in more:
        assert "runs/mine is finished" in capsys.readouterr().out
        os.chdir(moves)
        evaluate.main(evaluate.parse_args(["runs/mine", "--episodes", "1"]))


def test_a_launcher_comes_back_from_a_task_that_goes_elsewhere(moves, monkeypatch, capsys):
    words = f"python ppo_envpool.py {SIZE} --env-id gymnasium:moves:Moves-v0 --run-name mine"
    monkeypatch.setattr(sys, "stdin", io.StringIO(words + "\n"))
    assert f"there is no ppo_envpool.py in {moves}: expected" in refusal(capsys, launch.main, [])
    assert "moves" in sys.modules


# ---- whose code runs -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("module", "run", "file", "refused"),
    [
        ("my_task", "runs/mine", "my_task.py", False),
        ("my_tasks.reach", "runs/sweep/mine", "my_tasks/reach.py", False),
        ("my_task", "../runs/mine", "my_task.py", False),  # the runs are elsewhere
        ("theirs.payload", "theirs/run1", "theirs/payload.py", True),  # beside it
        ("theirs.payload", "theirs/runs/a/run1", "theirs/payload.py", True),  # above it
        ("theirs.code.payload", "theirs/runs/run1", "theirs/code/payload.py", True),
        ("theirs.run1.payload", "theirs/run1", "theirs/run1/payload.py", True),  # inside
        ("payload", "run1", "payload.py", True),
        ("theirs", "theirs/run1", "theirs/__init__.py", True),
        ("link.payload", "link/run1", "theirs/payload.py", True),
        ("theirs.out.payload", "theirs/run1", "elsewhere/payload.py", True),  # theirs/out is a link to it
        ("no_such", "theirs/run1", "theirs/payload.py", False),  # gymnasium will say so
        ("gymnasium", "theirs/run1", "theirs/payload.py", False),
        (".payload", "theirs/run1", "theirs/payload.py", False),  # no name of a module
    ],
)
def test_code_that_came_with_a_run(module, run, file, refused, tmp_path, monkeypatch):
    """cwd is the folder of theirs/; a module on PYTHONPATH has the same rules."""
    for searched in ("cwd", "PYTHONPATH"):
        here = tmp_path / searched / "here"
        for path in (here / file, here / run / "x"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        if "link" in module:
            (here / "link").rename(here / "theirs2"), (here / "theirs/run1").mkdir(parents=True, exist_ok=True)
            (here / "link").symlink_to("theirs")
        if "out" in module:
            (here / "theirs/out").symlink_to("../elsewhere")
        with monkeypatch.context() as patch:
            patch.setattr(sys, "path", [*sys.path, *([str(here)] if searched == "PYTHONPATH" else [])])
            patch.chdir(here if searched == "cwd" else tmp_path)
            patch.setattr(arguments, "START", here if searched == "cwd" else tmp_path)
            try:
                own.check_trusted(f"gymnasium:{module}:X-v0", here / run)
                assert not refused
            except Unplayable as error:
                assert refused and f"of the module {module}, which came with the run" in str(error)


def test_theirs_is_played_with_trust_alone(tmp_path, monkeypatch, capsys):
    run = write_run(tmp_path / "theirs/run1", 1.0, script="ppo_envpool", env_id="gymnasium:theirs.payload:Pay-v0")
    torch.save({"format": reading.FORMAT, "run": {"global_step": 7}, "agent": {}}, run / "checkpoint.pt")
    (tmp_path / "theirs/payload.py").write_text("import pathlib; pathlib.Path(__file__).with_name('trace').touch()")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    error = refusal(capsys, evaluate.main, evaluate.parse_args(["theirs/run1"]))
    assert "error: theirs/run1: its task is of the module theirs.payload, which came with the run" in error
    assert not (tmp_path / "theirs/trace").exists()
    with pytest.raises(SystemExit):
        evaluate.main(evaluate.parse_args(["theirs/run1", "--trust"]))
    assert (tmp_path / "theirs/trace").exists()


# ---- whose files are written -----------------------------------------------------------------------------------------
def test_no_link_in_a_run_directory_is_followed(tmp_path, monkeypatch, capsys):
    """A link in the place of each file that a run, its resume, or a launcher writes, and of what each is at first."""
    words = f"{SIZE} --runs-dir {tmp_path} --run-name"
    assert train(words, "other") == 0
    names = {path.name for path in (tmp_path / "other").iterdir() if "tfevents" not in path.name}
    assert {"curves.csv", "checkpoint.pt", "coverage.npz", "manifest.json", "done.json", ".lock"} <= names
    victim, run = tmp_path / "victim", tmp_path / "run"
    victim.write_text("precious")
    run.mkdir()
    for name in names - {".lock"}:
        (run / f".{name}.partial").symlink_to(victim)
    monkeypatch.setattr(Task, "left", 1)
    assert train(lost(80), f"--runs-dir {tmp_path} --run-name run") == 1
    for path in (*run.glob("events*"), run / "checkpoint.pt"):
        (run / f".{path.name}.partial").symlink_to(victim)
    (run / "checkpoint.prev.pt").symlink_to(victim)
    assert train(lost(80), f"--runs-dir {tmp_path} --run-name run") == 0
    assert victim.read_text() == "precious"
    for name in (".lock", "log.txt"):
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(victim)
    capsys.readouterr()
    (run / "done.json").unlink()
    assert train(words, "run") == 2
    assert capsys.readouterr().err == f"error: {run}/.lock is no file: expected nothing in its place\n"
    with pytest.raises(OSError, match="it is a link"):
        pool.Attempt.locked(SimpleNamespace(path=run))
    assert victim.read_text() == "precious"


# ---- names -----------------------------------------------------------------------------------------------------------
BAD = ["a\0b", "bad\udcffname", "a\u2028b", "a\x85b", "a\x1b[31m", "a\tb", "a\rb"]


@pytest.mark.parametrize("name", BAD)
def test_a_name_that_no_line_can_hold(name, tmp_path, monkeypatch, capsys):
    """One line, and nothing is made; the other runs of --runs start, and launch.py's line names what is wrong."""
    said = refusal(capsys, ppo.parse_args, [*f"{SIZE} --runs-dir {tmp_path} --run-name".split(), name])
    assert said.isascii()
    if name != "a\tb":  # two words there
        lines = "".join(f"{SIZE} --runs-dir {tmp_path} --run-name {x}\n" for x in ("one", name, "two"))
        (tmp_path / "runs.txt").write_bytes(lines.encode(errors="surrogateescape"))
        monkeypatch.setattr(sys, "argv", ["ppo_envpool.py", "--runs", str(tmp_path / "runs.txt")])
        if name != "a\rb":  # a space to a shell
            args = ppo.parse_args(sys.argv[1:])
            found = command_lines.lines(args, ppo.parse_args)
            assert [line and line.args.run_name for line in found] == ["one", None, "two"]
            error = capsys.readouterr().err
            assert error.startswith("error: ") and len(error.splitlines()) == 1
            data = "".join(f"python ppo_envpool.py {line}\n" for line in lines.splitlines(True)[:1])
            data += f"python ppo_envpool.py {SIZE} --runs-dir {tmp_path} --run-name {name}\n"
            stdin = io.TextIOWrapper(io.BytesIO(data.encode(errors="surrogateescape")))
            monkeypatch.setattr(sys, "stdin", stdin)
            assert refusal(capsys, launch.main, []).isascii()
    assert {path.name for path in tmp_path.iterdir()} <= {"runs.txt"}


def test_a_line_that_is_no_command_stops_no_other(tmp_path, monkeypatch, capsys):
    lines = f"{SIZE} --run-name one\n# 'a remark\n{SIZE} --run-name 'two\n\n{SIZE} --run-name three"
    (tmp_path / "runs.txt").write_text(lines)
    monkeypatch.setattr(sys, "argv", ["ppo_envpool.py", "--runs", str(tmp_path / "runs.txt")])
    found = command_lines.lines(ppo.parse_args(sys.argv[1:]), ppo.parse_args)
    assert [line and line.args.run_name for line in found] == ["one", None, "three"]
    assert "No closing quotation" in capsys.readouterr().err


def test_a_directory_that_no_manifest_can_name(tmp_path, capsys):
    said = refusal(capsys, ppo.parse_args, [*SIZE.split(), "--runs-dir", f"{tmp_path}/r\udcffns"])
    assert "--runs-dir" in said and "expected text in UTF-8" in said and not list(tmp_path.iterdir())


# ---- what a machine lacks --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_directory_that_cannot_be_written_to(number, begun, tmp_path, monkeypatch, capsys):
    run, stats = begun()
    iterate(run, stats)
    run._signals._handle(signal.SIGTERM, None)
    run.end_iteration()
    run.finish()

    def refused(path, *more, **words):
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(events, "write_atomically", refused)
    assert refusal(capsys, begun).startswith(f"error: {tmp_path}/run/events")
    assert raw_steps(tmp_path / "run") == [128]


def test_too_few_files_for_so_many_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (64, 64))
    monkeypatch.setattr(resource, "setrlimit", lambda *limits: None)
    assert train(f"{SIZE} --runs-dir {tmp_path} --run-name run --num-seeds 30") == 2
    error = capsys.readouterr().err
    assert "30 runs in one process need 90 more open files, and `ulimit -n` is 64: expected at most" in error
    assert error.count("\n") == 1 and not list(tmp_path.iterdir())
    pack._allow_files(1)


def test_the_newest_event_file_is_the_last_whatever_the_clock_says(tmp_path, monkeypatch):
    names = []
    for hours in (0, -24, 24):
        monkeypatch.setattr(time, "time", lambda hours=hours: 1.8e9 + 3600 * hours)
        events.EventsFile(tmp_path, list).close()
        (new,) = {path.name for path in reading.event_files(tmp_path)} - set(names)
        names.append(new)
    assert [path.name for path in reading.event_files(tmp_path)] == names


def test_wandb_writes_where_the_user_says(begun, tmp_path, monkeypatch, capsys):
    """Two offline parts of one run are sent by one command: W&B's own text names the last part."""
    run, _ = begun()
    monkeypatch.delenv("WANDB_DIR", raising=False)
    assert run._wandb_dir == tmp_path / "run"
    monkeypatch.setenv("WANDB_DIR", "my runs")
    monkeypatch.chdir(tmp_path)
    for part in ("offline-run-1-abc", "offline-run-2-abc", "offline-run-3-other"):
        (tmp_path / "my runs/wandb" / part).mkdir(parents=True)
    run._wandb, run._wandb_id, run.exit_code = SimpleNamespace(finish=lambda exit_code: None), "abc", 143
    run.finish()
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.endswith(f"its 2 parts to W&B in their order: wandb sync '{tmp_path}/my runs/wandb'/offline-run-*-abc")
