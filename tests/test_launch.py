"""scripts/launch.py and sweeps/: real runs, and everything that can happen to them and to the launcher."""

import fcntl
import io
import json
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from collections import Counter

import launch
import pytest
from analysis import sweeps
from conftest import ROOT, environment, raw_steps, refusal, wait_for
from launching import jobs, machines, options, pool, price

import ppo_envpool
from support import catalog, reading
from support.envs import tasks

BILLION = 10**9
SWEEPS = {  # runs, and environment steps of all of them
    "coverage": (300, 30 * BILLION),
    "data_reuse": (450, 45 * BILLION),
    "decoupled": (200, 20 * BILLION),
    "fixed_budget": (100, 10 * BILLION),
    "gamma": (500, 50 * BILLION),
    "hard_exploration": (120, 12 * BILLION),
    "isaacgym": (90, 9 * BILLION),
    "learning_rate": (250, 25 * BILLION),
    "num_envs_trend": (550, 55 * BILLION),
    "outer_loop": (400, 40 * BILLION),
    "pqn": (250, 25 * BILLION),
    "procgen": (50, 5 * BILLION),
    "raise_rate": (150, 30_000_000),
    "rnd": (120, 12 * BILLION),
    "scaling_data": (450, 45 * BILLION),
    "schedule": (350, 70_000_000),
    "shape_rate": (1050, 210_000_000),
    "step_size": (960, 320 * (100000000 + 33333333 + 10000000)),
    "switch": (240, 12 * BILLION),
}


LONG = 1024  # steps of a run that is interrupted


def line(runs_dir, name, *extra, steps=256, script="ppo_atari_envpool.py"):
    """A command for stdin: a small run with a checkpoint after each of its iterations of 128 steps."""
    size = "--num-envs 4 --num-steps 32 --update-epochs 1 --no-diagnostics --checkpoint-minutes 0".split()
    words = ["python", script, *size, "--total-timesteps", steps, "--runs-dir", runs_dir, "--run-name", name, *extra]
    return shlex.join(map(str, words))


def short(runs_dir, name, *extra, steps=1):
    """A command for stdin of a script that trains nothing: what the launcher does can be seen in a moment."""
    words = ["python", "tests/stand_in/train.py", "--num-envs", 1, "--num-steps", 1, "--total-timesteps", steps]
    return shlex.join(map(str, [*words, "--runs-dir", runs_dir, "--run-name", name, *extra]))


def start(lines, *options, under=(), **env):
    """A launcher with these commands on its stdin. under: the words of a command that starts it."""
    words = [*under, sys.executable, "scripts/launch.py", *map(str, options)]
    process = subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env=environment(**env),
    )
    process.stdin.write("\n".join(lines) + "\n")
    process.stdin.close()
    process.stdin = None  # for communicate
    return process


def finish(process, code=0):
    """Its whole output, once it has ended with this exit code."""
    out = process.communicate(timeout=900)[0]
    assert process.returncode == code, f"exit code {process.returncode}, not {code}\n{out}"
    return out


def refused(capsys, monkeypatch, lines, *options):
    """The one line that the launcher, in this process, says to what it does not accept."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines) + "\n"))
    return refusal(capsys, launch.main, list(map(str, options)))


def sweep(name, *options, code=0, **env):
    words = ["bash", str(ROOT / "sweeps" / f"{name}.sh"), *options]
    hidden = ("GAMES", "SEEDS", "STEPS", "FULL", "BASE", "SPS", "FLAGS")
    env = {
        key: value
        for key, value in environment(PYTHON=sys.executable, **env).items()
        if key not in hidden or key in env
    }
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=env)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def pid(run_dir):
    """The process that writes the newest event file."""
    newest = max(run_dir.glob("events.out.tfevents.*"), key=lambda path: path.stat().st_mtime)
    return int(newest.name.rsplit(".", 1)[1])


def attempts(run_dir):
    """How often the run was started: the lines before its attempts in the log."""
    return len(re.findall(r"^\[launch \S+ \S+\] \S+ \S+\.py ", (run_dir / "log.txt").read_text(), re.M))


# ---- what is run -----------------------------------------------------------------------------------------------------
def test_the_grids_of_all_sweeps(tmp_path, monkeypatch):
    """The runs and steps of each are those of its header. The base is one run, which sweeps share."""
    monkeypatch.chdir(ROOT)
    phoenix = {}  # the runs of this game and seed
    for name, (runs, steps) in SWEEPS.items():
        shown = sweep(name, "--dry-run", RUNS_DIR=str(tmp_path))
        found = [jobs.Job(words) for words in shown.splitlines() if words.startswith("python ")]
        assert len(found) == runs and f"{runs:,} runs, {steps:,} steps; 0 runs are finished" in shown, name
        assert all(re.fullmatch(rf"{name}/\S+__n\d+_t\d+\S*__s\d+", job.name) for job in found), name
        assert len({job.key for job in found}) == runs, f"two runs of {name} are the same"
        header = (ROOT / "sweeps" / f"{name}.sh").read_text()
        words = f"{steps / BILLION:.0f} billion" if steps >= BILLION else f"{steps / 1e6:.0f} million"
        assert f"{runs} runs, {words} steps" in header, name
        phoenix[name] = {job.key for job in found if (job.args["env_id"], job.args["seed"]) == ("Phoenix-v5", 1)}
    assert not list(tmp_path.iterdir())
    ppo = "fixed_budget scaling_data coverage data_reuse decoupled gamma hard_exploration num_envs_trend"
    for names in (ppo, "outer_loop step_size"):  # P3's are of ppo_ewma_atari_envpool.py
        assert len(set.intersection(*(phoenix[name] for name in names.split()))) == 1
    assert phoenix["coverage"] <= phoenix["fixed_budget"] | phoenix["scaling_data"]
    assert len(phoenix["learning_rate"] & phoenix["scaling_data"]) == 1


def test_every_sweep_of_the_papers_is_in_all():
    files = {path.stem for path in (ROOT / "sweeps").glob("*.sh")} - {"lib", "all", "smoke"}
    assert files >= {*SWEEPS, *sweeps.names()}
    assert all(name in (ROOT / "sweeps/all.sh").read_text() for name in sweeps.names())


def test_scaling_a_sweep():
    shown = sweep("fixed_budget", "--dry-run", GAMES="Pong-v5 Breakout-v5", SEEDS="1 2", STEPS="20000", SPS="100")
    assert "8 runs, 160,000 steps" in shown and "at 100 steps/s each (given)" in shown
    assert "8 runs, 160,000 steps" in sweep(
        "fixed_budget", "--dry-run", GAMES="Pong-v5 Breakout-v5", SEEDS="1 2", STEPS="2e4"
    )
    assert "700 runs" not in shown and "350 runs" in sweep("fixed_budget", "--dry-run", FULL="1")
    assert "--bf16" in sweep("pqn", "--dry-run", SEEDS="1", FLAGS="--bf16").splitlines()[0]


@pytest.mark.parametrize(
    "variable,value,says",
    [
        ("RUNS_DIR", "-x", "a directory without a quote or a - before it"),
        ("SEEDS", "1,2", "whole numbers with spaces between them"),
        ("SHAPES", "8", "N x T, such as 8x128, with spaces between several"),
        ("GAMES", "*.md", "names of tasks with spaces between them"),
        ("STEPS", "10 20", "one, not several"),
        ("STEPS", "1.5e0", "whole numbers above 0 with spaces between them"),
    ],
)
def test_variables_of_a_sweep_are_checked(variable, value, says):
    assert sweep("fixed_budget", "--dry-run", code=2, **{variable: value}) == (
        f"error: {variable}={value}: expected {says}\n"
    )


def test_a_folder_with_a_space(tmp_path):
    shown = sweep("switch", "--dry-run", GAMES="Pong-v5", SEEDS="1", STEPS="20000", RUNS_DIR=f"{tmp_path}/a b")
    given = [jobs.parse_flags(shlex.split(words)) for words in shown.splitlines() if words.startswith("python ")]
    assert {flags["runs_dir"] for flags in given} == {f"{tmp_path}/a b"}
    assert given[1]["resume_from"] == f"{tmp_path}/a b/{given[0]['run_name']}"
    job = jobs.Job(f"python ppo_envpool.py --run-name s/a --runs-dir '{tmp_path}/a b'")
    assert shlex.split(launch.figure_commands([job]))[4] == f"{tmp_path}/a b/s"


def test_the_parents_and_children_of_the_switch(tmp_path):
    """Each parent is resumed with each com; the total of a child's steps is the whole, of which it makes half."""
    size = dict(GAMES="Pong-v5", SEEDS="1 2", STEPS="20000", RUNS_DIR=str(tmp_path), COMS="8 64")
    shown = sweep("switch", "--dry-run", "--slurm", "--cpus-per-task", "1", **size)
    flags = [jobs.parse_flags(words.split()) for words in shown.splitlines() if words.startswith("python ")]
    parents = {words["run_name"]: words for words in flags if "resume_from" not in words}
    children = [words for words in flags if "resume_from" in words]
    found = Counter()
    for child in children:
        parent = parents[os.path.relpath(child["resume_from"], tmp_path)]
        assert parent["seed"] == child["seed"] and (parent["total_timesteps"], child["total_timesteps"]) == (
            10000,
            20000,
        )
        found[parent["prox_com"], child["prox_com"]] += 1
    assert found == {(8, 8): 2, (8, 64): 2, (64, 64): 2, (64, 8): 2} and len(parents) == 4
    assert not any(words["anneal_lr"] for words in flags)
    assert "12 runs, 120,000 steps" in shown
    assert "#SBATCH --array=0-3\n" in shown and "_then" not in shown[shown.index("#!/bin/bash") :]


def test_the_last_step_is_that_of_the_schedule(tmp_path):
    """In a job, in a child that goes on from it, and in the status of what is in a directory."""
    flags = ["--schedule", "0:8x32,0.3333:32x32,0.6667:128x32"]
    parent, child = jobs.read_jobs(
        [
            f"python ppo_envpool.py --run-name s/a --runs-dir {tmp_path} --total-timesteps 200000 {' '.join(flags)}",
            f"python ppo_envpool.py --run-name s/b --runs-dir {tmp_path} --total-timesteps 300000 --num-envs 3 "
            f"--num-steps 128 --resume-from {tmp_path}/s/a",
        ]
    )
    assert (parent.final_step, parent.args["num_envs"], parent.args["num_steps"]) == (198912, 8, 32)
    assert (child.first_step, child.final_step) == (198912, 198912 + (300000 - 198912) // 384 * 384)
    given = {"num_envs": 8, "num_steps": 32, "total_timesteps": 200000, "schedule": flags[1]}
    for name, content in (("a", {"arguments": given}), ("other", {"arguments": {"seed": 1}})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(json.dumps(content))
    assert {name: last for name, (_, _, last) in launch.runs_below(tmp_path).items()} == {"a": 198912, "other": 0}


@pytest.mark.parametrize(
    "seconds, words",
    [
        (0.4, "less than a second"),
        (100, "1.7 minutes"),
        (5400, "1.5 hours"),
        (242 * 86400, "242 days"),
        (1e8, "1,157 days"),
    ],
)
def test_a_time_is_given_in_the_unit_that_fits(seconds, words):
    assert price.duration(seconds) == words


def test_runs_that_share_a_process_make_its_steps_together(tmp_path):
    """Four are finished and made 100 steps/s each: four of those that are left make 400, two make 200."""
    words = f"python ppo_envpool.py --runs-dir {tmp_path} --total-timesteps 1024 --run-name s/"
    eight = [f"{words}{i} --seed {i}" for i in range(8)]
    for i in range(4):
        (tmp_path / f"s/{i}").mkdir(parents=True)
        (tmp_path / f"s/{i}/done.json").write_text('{"sps": 100}')
    for lines, together, rate in ((eight, 4, 400), (eight, 3, 300), (eight, 1, 100), (eight[:6], 4, 200)):
        _, line = price.estimate(jobs.read_jobs(lines), None, 1, 1, together)
        assert f"at {rate:,} steps/s each (the median of the finished runs)" in line


def test_evaluation_episodes_are_asked_for_and_counted(tmp_path):
    size = dict(GAMES="Pong-v5", SEEDS="1", STEPS="36000", SPS="100", RUNS_DIR=str(tmp_path))
    shown = sweep("fixed_budget", "--dry-run", "--workers", "1", **size)
    assert shown.count(" --eval-episodes 100 ") == 2
    hours = (2 * 36000 + 2 * 100 * catalog.ATARI_EPISODE) / 100 / 3600
    assert (
        "72,000 steps and 200 evaluation episodes of some 5,000 steps" in shown
        and f"(given): {hours:.1f} hours" in shown
    )
    shown = sweep("fixed_budget", "--dry-run", "--workers", "1", EVAL_EPISODES="0", **size)
    assert shown.count(" --eval-episodes 0 ") == 2 and "episodes of" not in shown and "(given): 12 minutes" in shown
    shown = sweep("isaacgym", "--dry-run", **{**size, "GAMES": "Ant Mjlab-Cartpole-Balance", "STEPS": "100000000"})
    asked = {(words.split()[3], words.split()[13]) for words in shown.splitlines() if words.startswith("python ")}
    assert asked == {("Ant", "0"), ("Mjlab-Cartpole-Balance", "100")}  # Isaac Gym cannot play them


@pytest.mark.parametrize(
    "lines,options,message",
    [
        ([], (), "stdin: no commands"),
        (["echo hello"], (), "runs no .py script"),
        (["python ppo_atari_envpool.py --seed 1"], (), "no --run-name"),
        ([line("x", "a"), line("x", "a", "--seed", 2)], (), "--run-name a is given to 2 commands"),
        ([line("x", "a"), line("y", "b")], (), "--runs-dir differs"),
        (
            [line("x", "a", steps=127)],
            (),
            "--total-timesteps 127 of a is less than one batch of 4 envs x 32 steps: expected at least 128",
        ),
        (
            [line("x", "a", "--num-envs", 2**20, steps=2**30)],
            ("--workers", 1),
            r"--num-envs 1048576 of a needs [\d.]+ GB of main memory, and 1 run at a time: expected at most \d+",
        ),
        ([line("x", "a").replace("ppo_atari", "no_such")], (), "there is no no_such_envpool.py"),
        ([line("x", "a")], ("--workers", 0), "--workers 0 is out of range: expected 1 to 10,000"),
        ([line("x", "a")], ("--workers", 1, "--gpus", 0), "--workers and --gpus exclude each other"),
        ([line("/proc/x", "a")], (), "--runs-dir /proc/x"),
        ([line("x", "../a")], (), "--run-name ../a is not a directory below --runs-dir"),
        ([line("x", "a" * 300)], (), "expected a name of at most 200 bytes"),
        ([line("x", "a", "--num-minibatches", "x")], (), "--num-minibatches x of a: expected a whole number"),
        ([line("x", "a") + " 'quoted"], (), "cannot be parsed"),
        ([line("x", "a")], ("--gpus", "0,,1"), "--gpus 0,,1: expected the numbers of GPUs, such as 0,1"),
        ([line("x", "a")], ("stat",), "invalid choice 'stat' for argument 'action'"),
        ([], ("status", "--runs-dir", "x"), "--runs-dir x: expected a directory with runs in it"),
    ],
)
def test_bad_input(lines, options, message, capsys, monkeypatch):
    error = refused(capsys, monkeypatch, lines, *options)
    assert re.search(message, error), error
    assert not (ROOT / "x").exists()


# ---- what happens to runs --------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    """A sweep with a training that is killed by -9, and runs of a moment: one that diverges, one that the script
    refuses, and a good one."""
    runs = tmp_path_factory.mktemp("faulty")
    lines = [
        line(runs, "s/killed", steps=LONG),
        short(runs, "s/good", "--seed", 2),
        short(runs, "s/diverges", "--diverges", 1),
        short(runs, "s/refused", "--refuses", 1),
    ]
    process = start(lines, "--workers", 2)
    wait_for(lambda: (runs / "s/killed/checkpoint.prev.pt").exists(), process, seconds=600)
    os.kill(pid(runs / "s/killed"), signal.SIGKILL)
    return runs, lines, finish(process, code=1)


def test_it_goes_on_past_failures(faulty):
    runs, _, out = faulty
    assert (runs / "s/good/done.json").exists() and (runs / "s/killed/done.json").exists()
    assert raw_steps(runs / "s/killed") == list(range(128, LONG + 1, 128)), "every point once"
    assert attempts(runs / "s/killed") == 2 and "retries   s/killed  exit code -9" in out
    assert attempts(runs / "s/diverges") == attempts(runs / "s/refused") == attempts(runs / "s/good") == 1
    table = out[out.index("4 runs: ") :]
    assert table.startswith("4 runs: 2 done, 1 failed, 1 diverged, 0 skipped (finished before), 0 left")
    assert "diverged  s/diverges  error: logits is not finite" in table
    assert "failed    s/refused  error: --refuses 1: expected nothing" in table
    assert f"python scripts/figures.py s --runs {runs}/s --out figures/" in table
    assert "\x1b" not in out and "\r" not in out
    *_, last = re.findall(r"([\d,]+) steps/s  ETA", out)  # nothing runs any more, but there was a speed
    assert last != "0"


def test_the_command_of_a_figure():
    def commands(*names):
        return launch.figure_commands([jobs.Job(line("runs", name)) for name in names])

    gamma = "python scripts/figures.py gamma --runs runs/gamma --out figures/"
    assert commands("gamma/a__s1", "gamma/a__s2") == gamma
    assert commands("gamma/a__s1", "other") == gamma + "; python scripts/figures.py SWEEP --runs runs --out figures/"


def test_launched_again(faulty):
    runs, lines, _ = faulty
    out = finish(start(lines, "--workers", 2), code=1)
    assert "4 runs: 0 done, 1 failed, 1 diverged, 2 skipped" in out and "starts    s/refused" in out
    assert attempts(runs / "s/diverges") == 1, "what diverged would diverge again"
    again = finish(start(lines[2:3], "--retry-diverged"), code=1)
    assert "0 done, 0 failed, 1 diverged" in again and attempts(runs / "s/diverges") == 2


def test_status(faulty):
    runs, lines, _ = faulty
    out = finish(start([*lines, line(runs, "s/later")], "--status"))
    words = {words[1]: words[0] for words in map(str.split, out.splitlines()[:-1])}
    assert words == {
        "s/good": "done",
        "s/killed": "done",
        "s/diverges": "diverged",
        "s/refused": "failed",
        "s/later": "missing",
    }
    assert out.splitlines()[-1].startswith("5 runs: 2 done, 0 running, 0 stale, 1 failed, 1 diverged, 1 missing")
    scanned = finish(start([], "status", "--runs-dir", runs))
    assert f"done      s/killed  {LONG:,}/{LONG:,} steps" in scanned
    assert "failed    s/refused  0/0 steps  error: --refuses 1: expected nothing" in scanned
    assert reading.progress(runs / "s/killed").step == LONG


def test_an_identical_run_is_shared(faulty):
    runs, lines, _ = faulty
    twin = line(runs, "t/twin", "--gamma", 0.99, "--num-minibatches", 4, steps=LONG)  # both are the defaults
    out = finish(start([twin, lines[0]]))
    assert "0 done, 0 failed, 0 diverged, 2 skipped" in out
    assert os.readlink(runs / "t/twin") == "../s/killed" and attempts(runs / "s/killed") == 2
    assert finish(start([twin], "--status")).startswith("done      t/twin")
    refused = finish(start([line(runs, "s/killed", "--seed", 3, steps=LONG)]), code=2)
    assert "--run-name s/killed has run with --seed 1, not 3: use the same arguments" in refused
    assert sorted(path.name for path in (runs / ".launch").iterdir() if path.name[0] == ".") == []


@pytest.mark.parametrize(
    "flags",
    [
        "",
        "--num-envs 16 --scaling sqrt-lr --scale-from 4 --hidden-sizes 32 16",
        "--schedule noise --no-anneal-lr",
        "--env-id gymnasium::Pendulum-v1 --minibatch-size 64 --target-kl 0.01",
    ],
)
def test_a_run_with_other_arguments_is_not_that_run(flags, tmp_path):
    """All arguments count, as the script has them: those that the command leaves to their defaults too."""
    theirs = vars(ppo_envpool.parse_args(["--run-name", "s/a", *flags.split()]))
    for name, value, says in (("seed", 1, ""), ("gamma", 0.5, "--gamma 0.5, not 0.99"), ("num_logs", None, "")):
        before = {**theirs, name: value}
        before = {name: value for name, value in before.items() if value is not None}  # an older version's
        (tmp_path / "manifest.json").write_text(json.dumps({"arguments": before}))
        job = jobs.Job(f"python ppo_envpool.py --run-name s/a {flags}", tasks.default_arguments)
        assert job.differs(tmp_path) == says
    for named, says in (("", ""), ("--learning-rate 3e-4", f"--learning-rate 0.0003, not {theirs['learning_rate']}")):
        manifest = {"arguments": {**theirs, "learning_rate": 3e-4}, "command": f"python ppo_envpool.py {named}"}
        (tmp_path / "manifest.json").write_text(json.dumps(manifest))
        assert job.differs(tmp_path) == says  # a run that has begun with another default keeps its rate
    (tmp_path / "manifest.json").write_text(json.dumps({"arguments": theirs}))
    job = jobs.Job(f"python ppo_envpool.py --run-name s/a {flags}")  # as in a dry run, which imports no task
    assert job.guesses == ("gymnasium" in flags) and job.differs(tmp_path) == ""


def test_a_child_waits_for_its_parent(tmp_path, capsys):
    """A child that begins before its parent is done fails."""
    runs = tmp_path / "runs"
    lines = [
        short(runs, "s/parent", "--until", runs / "s/other/manifest.json", steps=100),  # they run side by side
        short(runs, "s/child", "--resume-from", runs / "s/parent", steps=150),
        short(runs, "s/grandchild", "--resume-from", f"{runs}/./s/child", steps=175),
        short(runs, "s/other", steps=10),
        short(runs, "s/refused", "--refuses", 1, steps=10),
        short(runs, "s/orphan", "--resume-from", runs / "s/refused", steps=20),
    ]
    assert "6 missing; 205 steps left" in finish(start(lines, "--status"))  # a child's without its parent's
    out = finish(start(lines, "--workers", 2), code=1)
    assert "6 runs: 4 done, 2 failed" in out
    assert "failed    s/orphan  --resume-from s/refused, which has failed" in out
    found = jobs.read_jobs(lines)
    assert [job.steps for job in found] == [100, 50, 25, 10, 10, 10] and [job.waits for job in found] == [False] * 5 + [
        True
    ]
    with pytest.raises(SystemExit):
        jobs.read_jobs(lines[1::-1])
    says = f"--resume-from {runs}/s/parent of s/child: expected the command of that run before this one"
    assert says in capsys.readouterr().err


def test_the_bar_on_a_terminal(faulty):
    """…and what is finished costs no process."""
    runs, lines, _ = faulty
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 150, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "scripts/launch.py"],
        stdin=subprocess.PIPE,
        stdout=slave,
        stderr=slave,
        cwd=ROOT,
        env=environment(TERM="xterm"),
    )
    process.communicate(lines[0].encode(), timeout=60)
    os.close(slave)
    shown = os.read(master, 65536).decode()
    os.close(master)
    assert re.search(r"100%\|.*1,024/1,024 steps, 0 running +1 done +0 failed +0 waiting +0 steps/s +ETA", shown), shown


def test_full_disk(tmp_path):
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(tmp_path)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.decode().strip()}")
    try:
        lines = [short(tmp_path, "s/run", "--bytes", 300_000)]
        out = finish(start(lines), code=1)
        assert "retries   s/run" in out and "failed    s/run  error: No space left on device" in out
        assert attempts(tmp_path / "s/run") == 2
        subprocess.run(["mount", "-o", "remount,size=100m", str(tmp_path)], check=True)
        assert "1 done" in finish(start(lines))
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


# ---- what happens to launchers ---------------------------------------------------------------------------------------
def test_two_launchers_one_of_them_killed(tmp_path):
    """The second takes only what the first is not running, and all of it once the first is gone."""
    lines = [short(tmp_path, "s/a", "--stops", 1), short(tmp_path, "s/b")]
    first, second = tmp_path / "s/a", tmp_path / "s/b"
    one = start(lines, "--gpus", 30, "--jobs-per-gpu", 1)
    wait_for((first / "manifest.json").exists, one)
    two = start(lines, "--gpus", "31,32")  # no such cards: the runs take the CPU
    wait_for((second / "done.json").exists, two)
    given = {run: json.loads((run / "manifest.json").read_text())["environment"] for run in (first, second)}
    assert "running   s/a" in finish(start(lines, "--status"))
    assert [given[run]["CUDA_VISIBLE_DEVICES"] for run in (first, second)] == ["30", "31"]
    threads = max(1, len(os.sched_getaffinity(0)) // 2)
    assert given[second]["OMP_NUM_THREADS"] == str(threads) and attempts(first) == 1
    one.kill()
    one.wait()
    assert "2 runs: 2 done" in finish(two)
    assert attempts(first) == 2 and attempts(second) == 1
    assert "resumes at step" in (first / "log.txt").read_text(), "the run outlived its launcher without a checkpoint"


def test_a_run_that_hangs(tmp_path, capsys):
    """The status says so; with --timeout it is killed and tried once more."""
    hung, now = tmp_path / "s/hung", time.time()
    hung.mkdir(parents=True)
    (hung / "manifest.json").write_text('{"arguments": {}}')
    rows = [f"{step},{now - 900 + 30 * step}\n" for step in range(10)]  # the last one 630 s ago
    (hung / "curves.csv").write_text("step,wall_time\n" + "".join(rows))
    (hung / f"events.out.tfevents.{now - 1000}.host.1").touch()
    with open(hung / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        launch.status({"s/hung": (hung, 0, 100), "s/evaluation": (hung, 0, 9)})
    out = capsys.readouterr().out
    assert "stalled   s/hung  9/100 steps  last point 10:3" in out and "running   s/evaluation  9/9 steps" in out
    (tmp_path / "s/run/curves.csv").mkdir(parents=True)  # which is for the run to complain about
    process = start([short(tmp_path, "s/run", "--until", "never")], "--timeout", 0.001)
    says = "failed    s/run  error: no new point of a curve and no output for 0.001 minutes (--timeout)"
    assert says in finish(process, code=1) and attempts(tmp_path / "s/run") == 2

    attempt = object.__new__(pool.Attempt)
    attempt.jobs, attempt.sizes = [jobs.Job(short(tmp_path, "s/run"))], None
    attempt.seconds_without_progress()
    attempt.grown -= 1e9
    assert attempt.seconds_without_progress() > 1e8
    with open(tmp_path / "s/run/log.txt", "a") as log:
        log.write("evaluation: 1 of 100 episodes")
    assert attempt.seconds_without_progress() < 1e8


def test_nohup(tmp_path):
    """What is ignored stays ignored."""
    process = start([short(tmp_path, "s/run", "--until", tmp_path / "file")], under=["nohup"])
    wait_for((tmp_path / "s/run/manifest.json").exists, process)
    process.send_signal(signal.SIGHUP)
    (tmp_path / "file").touch()
    assert "1 done" in finish(process)


def test_ctrl_c(tmp_path):
    lines, run_dir = [short(tmp_path, "s/run", "--stops", 1), short(tmp_path, "s/next")], tmp_path / "s/run"
    process = start(lines, "--workers", 1)
    wait_for((run_dir / "manifest.json").exists, process)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)  # at once, as from `timeout`, which sends two: no request to kill
    out = finish(process, code=130)
    assert "stopped   s/run  at step" in out and "the same command resumes" in out and "starts    s/next" not in out
    assert "exit code 143" in (run_dir / "log.txt").read_text() and not reading.is_locked(run_dir / "log.txt")
    assert reading.state(run_dir) == "stale" and reading.state(tmp_path / "s/next") == "missing"
    assert "1 done" in finish(start(lines[:1]))
    assert "resumes at step" in (run_dir / "log.txt").read_text() and attempts(run_dir) == 2

    early = jobs.Job(short(tmp_path, "s/early", "--until", "never"))
    attempt = pool.Attempt([early], {})
    attempt.process.send_signal(signal.SIGINT)  # before the run can handle it
    attempt.process.wait()
    assert attempt.outcomes() == {early: "crashed"} and reading.state(early.path) in ("stale", "missing")


def test_what_a_pack_says_about_each_of_its_runs():
    attempt = object.__new__(pool.Attempt)
    attempt.jobs = [jobs.Job(line("runs", f"s/a__s{seed}")) for seed in (1, 10)]
    said = ["error: --run-name s/a__s1 is bad", "error: --run-name s/a__s10 is being written by a live process", "end"]
    assert [attempt.outcome(job, 2, said) for job in attempt.jobs] == [("failed", 2, said[0]), ("busy", 2, said[1])]


TASK = '''
import gymnasium, numpy, os
class Task(gymnasium.Env):
    """One step per episode. Where there is no file `crashed`, the hundredth step of a process makes it, and crashes."""
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), numpy.float32)
    action_space = gymnasium.spaces.Discrete(2)
    steps = 0
    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return numpy.zeros(2, numpy.float32), {}
    def step(self, action):
        Task.steps += 1
        if Task.steps == 100 and not os.path.exists(os.environ["CRASHED"]):
            open(os.environ["CRASHED"], "w").close()
            os._exit(9)
        return numpy.zeros(2, numpy.float32), 1.0, True, False, {}
gymnasium.register("Task-v0", Task)
'''


def test_a_pack_that_crashes_is_tried_run_by_run(tmp_path):
    (tmp_path / "crashing_task.py").write_text(TASK)
    task = ("--env-id", "gymnasium:crashing_task:Task-v0", "--num-minibatches", "1")
    lines = [line(tmp_path, f"s{seed}", *task, "--seed", seed, script="ppo_envpool.py") for seed in (1, 2)]
    env = {"PYTHONPATH": str(tmp_path), "CRASHED": str(tmp_path / "crashed")}
    text = finish(start(lines, "--workers", 1, **env))
    assert "2 runs: 2 done, 0 failed" in text
    assert [attempts(tmp_path / f"s{seed}") for seed in (1, 2)] == [2, 2]
    assert (tmp_path / "s2" / "log.txt").read_text().count("in one process with 1 others") == 1


def test_a_pack_fits_into_memory(tmp_path):
    """An environment of DogFetch takes 150 MB, and each evaluation episode has one."""

    def fitting(task, *flags):
        text = line(tmp_path, "a", "--env-id", task, "--num-envs", 8, *flags, steps=4096, script="ppo_envpool.py")
        return machines.runs_that_fit(jobs.Job(text), 10e9)

    assert fitting("CartPole-v1") > 100
    assert [fitting("DogFetch-v1", "--eval-episodes", n) for n in (0, 8)] == [7, 3]


def test_gpu_memory_of_small_runs(tmp_path):
    """Twenty runs of Atari fit on 40 GB of GPU memory, not thirty: each has CUDA's own, beside tensors of 67 MB."""
    job = jobs.Job(line(tmp_path, "a", "--num-envs", 8, "--num-steps", 128, steps=4096))
    fits = [machines.too_large([job], machines.Machine([{}], 1e12, 40e9 / n)) is None for n in (20, 30)]
    assert fits == [True, False]


def test_runs_of_several_cores_share_them(monkeypatch):
    monkeypatch.setattr(machines, "gpus_here", dict)
    for flag in ("--num-threads", "--env-workers"):
        of_all = [jobs.Job(f"{line('runs', f's/{i}', script='ppo_envpool.py')} {flag} 9999") for i in range(2)]
        (slot,) = machines.this_machine(options.parse_args([]), of_all).slots
        assert slot["OMP_NUM_THREADS"] == str(len(os.sched_getaffinity(0)))


def test_one_run_a_process(tmp_path):
    lines = [
        line(tmp_path, f"s{seed}", "--env-id", "CartPole-v1", "--seed", seed, script="ppo_envpool.py")
        for seed in (1, 2)
    ]
    finish(start(lines, "--workers", 1, "--together", 1))
    assert all("in one process" not in (tmp_path / f"s{seed}" / "log.txt").read_text() for seed in (1, 2))
    assert (tmp_path / "s1" / "curves.csv").read_text() != (tmp_path / "s2" / "curves.csv").read_text()
