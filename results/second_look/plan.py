"""Makes the runs of the second look that are still missing, block by block: one experiment on one task.

    python results/second_look/plan.py status                       # how many runs of each experiment are done
    nice -n 19 python results/second_look/plan.py run --after 'git commit -qam "second look: what has ended so far"'

A finished block is a file below blocks/, and its run directories go. The same command goes on from there: it resumes an
interrupted block from its checkpoints. SIGTERM and Ctrl-C stop the runs with a checkpoint. A task with a run that fails
twice, or that cannot be made, is named in left_out.csv and gets no further runs; the others go on. The design is in
design.py.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT

import os
import shlex
import shutil
import signal
import subprocess
from collections import Counter
from dataclasses import dataclass
from typing import Literal, Optional, Tuple

import pandas as pd
import torch
from analysis import training_runs
from tyro.conf import Positional

import ppo_envpool
from results.second_look import design
from results.second_look.design import key, key_of
from support import arguments, progress, reading
from support.arguments import Count
from support.envs.episodes import env_seeds

HERE = Path(__file__).resolve().parent
EVAL_EPISODES, POINTS = 20, 20  # of each run
FIRST = ("experiment", "arm", "script", "state", "env_id", "game", *design.KEYS)  # columns of a block
BEST = ("best_return", "best_step", "best_final_return")  # columns of a run whose best network was evaluated
STOPPED = (130, 143)  # exit codes of the launcher after a signal


@dataclass
class Args:
    what: Positional[Literal["status", "run"]]  # see above
    runs_dir: Path = Path("runs")  # where the run directories are until their block has ended
    blocks: Path = HERE / "blocks"  # where the finished blocks stand
    arms: Tuple[str, ...] = (
        "E1",
        "E2",
        "E3",
        "E4",
        "E5",
        "E6",
        "E7",
        "E8",
        "E9",
    )  # the experiments whose runs are made
    workers: Count = 2  # processes that train side by side
    after: Optional[str] = None  # a shell command that runs after each block, such as a commit


# ---- what is there ---------------------------------------------------------------------------------------------------
def file_of(task):
    return task.removeprefix("gymnasium:minatar_tasks:").replace("/", "-") + ".csv"


def rows_of(path):
    """The rows of a block, dicts by key; {} before it has any."""
    rows = pd.read_csv(path, dtype={"start": str, "commit": str}).to_dict("records") if path.exists() else []
    return {key(row): row for row in rows}


def left_out(folder):
    """{(experiment, task): why} of the tasks with a run that failed."""
    path = folder / "left_out.csv"
    table = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=["arm", "task", "why"])
    return {(row["arm"], row["task"]): row["why"] for _, row in table.iterrows()}


def missing(block, folder):
    """The (name, Setting, seed) of a block that have no row yet; none if its task is left out."""
    if (block.arm, block.task) in left_out(folder):
        return []
    there = rows_of(folder / block.arm / file_of(block.task))
    return [run for run in block.runs if key_of(*run[1:]) not in there]


# ---- runs ------------------------------------------------------------------------------------------------------------
def command(block, one, seed):
    """The command line of one run."""
    words = ["python", script_of(block), "--env-id", block.task, "--seed", seed, *design.flags(one)]
    words += ["--num-logs", POINTS, "--eval-episodes", EVAL_EPISODES]
    return shlex.join(map(str, [*words, "--run-name", run_name(block, one, seed)]))


def run_name(block, one, seed):
    name = f"n{one.num_envs}_t{one.num_steps}_m{one.minibatch_size}_e{one.update_epochs}"
    return f"{folder_of(block)}/{name}_lr{one.learning_rate:g}_{one.total_timesteps}__s{seed}"


def script_of(block):
    return "results/second_look/staggered.py" if block.arm in ("E6", "E9") else "ppo_envpool.py"


def folder_of(block):
    return f"second_look_{block.arm}_{file_of(block.task).removesuffix('.csv')}"


def make(block, todo, args):
    """Trains the runs of a block that are missing. Returns the exit code; signals reach the program too.

    That is scripts/launch.py. It puts only runs of ppo_envpool.py in one process; staggered.py gets its lines itself.
    """
    lines = [f"{command(block, one, seed)} --runs-dir {shlex.quote(str(args.runs_dir))}" for _, one, seed in todo]
    words = [sys.executable, "scripts/launch.py", "--workers", args.workers, "--together", 33, "--timeout", 60]
    if script_of(block) != "ppo_envpool.py":
        lines = [shlex.join(shlex.split(line)[2:]) for line in lines]
        listed = args.runs_dir.resolve() / f"{folder_of(block)}.txt"
        listed.parent.mkdir(parents=True, exist_ok=True)
        listed.write_text("\n".join(lines))
        words = [sys.executable, script_of(block), "--runs", listed]
    paths = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])  # of minatar_tasks.py
    environment = {**os.environ, "PYTHONPATH": paths}
    launcher = subprocess.Popen(list(map(str, words)), stdin=subprocess.PIPE, cwd=ROOT, env=environment)
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda signum, frame: launcher.send_signal(signum))
    launcher.communicate("\n".join(lines).encode())
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, signal.SIG_DFL)
    return launcher.returncode


def best_returns(runs_dir, runs):
    """What best.pt of each run holds: {run's name: (training return, step, mean return of evaluation episodes)}.

    runs: of one setting. The best network plays the episodes by which the last one was evaluated: they chose neither.
    """
    found = {run.name: torch.load(runs_dir / run.name / "best.pt", weights_only=True) for run in runs}
    args = ppo_envpool.parse_args(shlex.split(runs[0].manifest["command"])[2:])
    seeds = [run.arguments["seed"] for run in runs]
    agent = ppo_envpool.make_agent(args, seeds)
    for name, value in agent.state_dict().items():
        value.copy_(torch.cat([best["agent"][name] for best in found.values()]))
    of_agents = [env_seeds(seed, "eval", 0, range(EVAL_EPISODES)) for seed in seeds]
    with progress.progress_bar(EVAL_EPISODES * len(seeds), "episode", "best networks") as bar:
        cpu = torch.device("cpu")
        returns = ppo_envpool.play_episodes(agent, args, cpu, of_agents, range(EVAL_EPISODES), bar)
    values = (sum(of_run) / len(of_run) for of_run in returns)
    best = ((name, of_run["run"]) for name, of_run in found.items())
    return {name: (kept["episodic_return"], kept["global_step"], value) for (name, kept), value in zip(best, values)}


def take(block, args, code):
    """Adds the runs of a block that are done or have diverged to its file; leaves its task out if one has no result.

    code: what `make` has returned.
    """
    root = args.runs_dir / folder_of(block)
    runs, unread = training_runs.read_runs(root)
    print(*unread, sep="\n" if unread else "", end="\n" * bool(unread))
    path = args.blocks / block.arm / file_of(block.task)
    rows = rows_of(path)
    law = {key_of(one, seed) for name, one, seed in block.runs if block.arm == "E1" and name == "law"}
    judged = [run for run in runs if run.evaluated and key(run.arguments) in law]
    judged = [run for run in judged if (root / run.name / "best.pt").exists()]
    best = best_returns(root, judged) if judged else {}
    for run in runs:
        if not (run.evaluated or run.diverged):
            continue
        row = reading.row_of(reading.Files(run.manifest, run.done, {}, run.state), run.curves, run.name)
        row |= {"experiment": "second_look", "arm": block.arm, "commit": (row["commit"] or "")[:7]}
        columns = (*FIRST, *(name for name in reading.COLUMNS if name not in (*FIRST, "run")))
        of_best = dict(zip(BEST, best.get(run.name, (None, None, None)), strict=True))
        rows[key(row)] = {**{name: row[name] for name in columns}, **of_best}
    if rows:
        path.parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame([rows[one] for one in sorted(rows)]).to_csv(path, index=False, lineterminator="\n")
    lacking = [run for run in block.runs if key_of(*run[1:]) not in rows]
    if lacking:
        known = {**left_out(args.blocks), (block.arm, block.task): why_not(block, *lacking[0][1:], args.runs_dir, code)}
        table = pd.DataFrame([{"arm": arm, "task": task, "why": why} for (arm, task), why in known.items()])
        args.blocks.mkdir(parents=True, exist_ok=True)
        table.to_csv(args.blocks / "left_out.csv", index=False, lineterminator="\n")
        print(f"{block.arm} {block.task} is left out: {known[block.arm, block.task]}", flush=True)


def why_not(block, one, seed, runs_dir, code):
    """The error of a run that has ended without a result, or the launcher's last line about it, or the exit code."""
    log = runs_dir / run_name(block, one, seed) / "log.txt"
    lines = [line for line in log.read_text(errors="replace").split("\n") if line.strip()] if log.exists() else []
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or [f"{script_of(block)} ended with exit code {code}"])[-1]


# ---- main ------------------------------------------------------------------------------------------------------------
def status(args):
    """Prints how many runs and steps of each experiment are done."""
    done, planned = Counter(), Counter()
    for block in design.blocks():
        left = missing(block, args.blocks)
        for run in block.runs:
            one = run[1]
            planned[block.arm, "runs"] += 1
            planned[block.arm, "steps"] += one.total_timesteps
            if run not in left:
                done[block.arm, "runs"] += 1
                done[block.arm, "steps"] += one.total_timesteps
    for arm in sorted({arm for arm, _ in planned}):
        steps = f"{done[arm, 'steps'] / 1e6:,.0f} of {planned[arm, 'steps'] / 1e6:,.0f} million steps"
        print(f"{arm}: {done[arm, 'runs']:,} of {planned[arm, 'runs']:,} runs, {steps}")
    for (arm, task), why in left_out(args.blocks).items():
        print(f"{arm} {task} is left out: {why}")


def main(args):
    if args.what == "status":
        return status(args)
    for block in design.blocks():
        todo = missing(block, args.blocks) if block.arm in args.arms else []
        if todo:
            print(f"{block.arm} {block.task}: {len(todo)} runs", flush=True)
            code = make(block, todo, args)
            if code in STOPPED or code < 0:
                return code
            take(block, args, code)
            shutil.rmtree(args.runs_dir / folder_of(block), ignore_errors=True)
            if args.after:
                subprocess.run(args.after, shell=True)


if __name__ == "__main__":
    sys.exit(main(arguments.parse(Args, sys.argv[1:], __doc__)))
