"""Draws the tasks of the atlas, by the rule that results/CLAIMS.md registers.

    python results/atlas/tasks.py speeds    # measures every candidate: writes speeds.csv (half an hour of one core)
    python results/atlas/tasks.py draw      # draws with seed 0 from what speeds.csv has: writes tasks.csv
    python results/atlas/tasks.py random    # plays 1000 random episodes of a task: adds to random.csv

Candidates are EnvPool's tasks that ppo_envpool.py plays, in the newest version of each name, without the eight tasks of
the older studies. speeds.csv has the environment steps per CPU-second of each: 32 environments, one thread, random
actions, seeds from 0. A task that cannot be made, or makes no 32 x 50 steps in a minute, has none, and the reason
beside it. A task needs SLOWEST steps per CPU-second to be drawn.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT  # noqa: F401

import multiprocessing
import random
import re
import time
from dataclasses import dataclass
from typing import Literal, Tuple

import numpy as np
import pandas as pd
from tyro.conf import Positional

from support import arguments
from support.envs import tasks
from support.envs.envpool import families
from support.envs.episodes import env_seeds
from support.envs.spaces import Unplayable

HERE = Path(__file__).resolve().parent
OLDER = (  # the six tasks of results/map and the two of held_out (results/small), with which nothing here may be tuned
    "CartPole-v1",
    "Acrobot-v1",
    "LunarLander-v3",
    "MiniGrid-DoorKey-5x5-v0",
    "PendulumSwingup-v1",
    "CartpoleSwingup-v1",
    "Catch-v0",
    "MiniGrid-DoorKey-8x8-v0",
)
SLOWEST = 8000  # environment steps per CPU-second
PLACES = {  # family: how many of its tasks are drawn
    "classic control": 3,
    "Box2D": 2,
    "toy text": 5,
    "Gym's MuJoCo": 5,
    "DeepMind Control": 15,
    "MiniGrid": 6,
    "BabyAI": 4,
}
ENVS, STEPS, SECONDS = 32, 50, 60  # of a measurement: environments, the least steps of each, the most time
EPISODES = 1000  # of random play


@dataclass
class Args:
    what: Positional[Literal["speeds", "draw", "random"]]  # what to write
    tasks: Tuple[str, ...] = ()  # of random: these; default: the forty that were drawn first


# ---- candidates ------------------------------------------------------------------------------------------------------
def candidates():
    """{task: its family} of all that may be drawn, if they are fast enough."""
    found = {}
    for name, module in sorted(families().items(), key=lambda item: version(item[0])):
        words = tasks.TRAINED.get(module)
        if words is None or "/" in name:  # phys2d/CartPole-v1 is another program of CartPole
            continue
        try:
            observation, _ = tasks.rows_of(name)
        except Unplayable:
            continue
        if observation.images:  # CarRacing: no script here played it when the tasks were drawn
            continue
        found[re.sub(r"-v\d+$", "", name)] = name, "BabyAI" if name.startswith("BabyAI") else words
    return {name: words for name, words in sorted(found.values()) if name not in OLDER}


def version(name):
    """The number behind the last -v."""
    return int(re.search(r"-v(\d+)$", name)[1])


# ---- speeds ----------------------------------------------------------------------------------------------------------
def measure(task, pipe):
    """In a process of its own: sends the environment steps per CPU-second of a task, or why there are none."""
    try:
        envs = tasks.make(task, list(range(ENVS)), num_threads=1)
        generator, space = np.random.default_rng(0), tasks.spaces(task)[1]
        envs.reset()
        start, steps = time.process_time(), 0
        while time.process_time() - start < 1 or steps < STEPS:
            envs.step(random_actions(generator, space, ENVS))
            steps += 1
        pipe.send(round(ENVS * steps / (time.process_time() - start)))
    except Exception as error:  # whatever EnvPool raises
        pipe.send(f"{type(error).__name__}: {error}".splitlines()[0])


def speeds():
    """A row for each candidate: task, family, steps per CPU-second, and why there are none."""
    rows, context = [], multiprocessing.get_context("spawn")
    for task, family in candidates().items():
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=measure, args=(task, there))
        process.start()
        there.close()
        try:
            found = here.recv() if here.poll(SECONDS) else f"no {ENVS} x {STEPS} steps in {SECONDS} seconds"
        except EOFError:
            found = "EnvPool ends the process"
        process.kill()
        process.join()
        speed, reason = (found, "") if isinstance(found, int) else (None, found)
        rows.append({"task": task, "family": family, "steps_per_cpu_second": speed, "left_out": reason})
        print(task, found, flush=True)
    return pd.DataFrame(rows).astype({"steps_per_cpu_second": "Int64"})


# ---- the draw --------------------------------------------------------------------------------------------------------
def draw(speeds):
    """The tasks in the order in which they were drawn, a row each: family, order, task, drawn or reserve."""
    rows, generator = [], random.Random(0)
    for family, places in PLACES.items():
        fast = speeds[(speeds["family"] == family) & (speeds["steps_per_cpu_second"] >= SLOWEST)]
        names = sorted(fast["task"])
        for order, task in enumerate(generator.sample(names, len(names)), 1):
            rows.append({"family": family, "order": order, "task": task, "place": order <= places})
    return pd.DataFrame(rows)


def drawn(table):
    """The tasks that have a place in a table as `draw` makes it."""
    return list(table[table["place"]]["task"])


# ---- random policy ---------------------------------------------------------------------------------------------------
def random_actions(generator, space, number):
    """Actions (number, ...), each drawn uniformly from a space, Discrete or Box. generator: NumPy's."""
    if hasattr(space, "n"):
        return generator.integers(space.n, size=number)
    return generator.uniform(space.low, space.high, (number, *space.shape)).astype(np.float32)


def play_randomly(task):
    """A row of random.csv: EPISODES whole episodes of random actions, one in each environment.

    random, deviation: the mean return and the standard deviation of a return; length: the mean length; early: how many
    of the rewards that are not 0 came before an episode's last step.
    """
    seeds = env_seeds(1, "random", 0, range(EPISODES))
    envs, generator = tasks.make(task, seeds, num_threads=1), np.random.default_rng(1)
    returns, lengths, early = np.zeros(EPISODES), np.zeros(EPISODES), 0
    envs.reset()
    playing = np.ones(EPISODES, dtype=bool)
    while playing.any():
        actions = random_actions(generator, tasks.spaces(task)[1], EPISODES)
        _, rewards, terminated, truncated, _ = envs.step(actions)
        over = terminated | truncated
        returns += rewards * playing
        lengths += playing
        early += int(((rewards != 0) & playing & ~over).sum())
        playing &= ~over
    numbers = {"random": returns.mean(), "deviation": returns.std(ddof=1), "length": lengths.mean()}
    return {"task": task, **{name: float(f"{x:.6g}") for name, x in numbers.items()}, "early": early}


def main(args):
    if args.what == "speeds":
        speeds().to_csv(HERE / "speeds.csv", index=False, lineterminator="\n")
    elif args.what == "draw":
        draw(pd.read_csv(HERE / "speeds.csv")).to_csv(HERE / "tasks.csv", index=False, lineterminator="\n")
    else:
        path = HERE / "random.csv"
        rows = pd.read_csv(path).to_dict("records") if path.exists() else []
        for task in args.tasks or drawn(pd.read_csv(HERE / "tasks.csv")):
            if task not in {row["task"] for row in rows}:
                rows.append(play_randomly(task))
                print(rows[-1], flush=True)
                pd.DataFrame(rows).to_csv(path, index=False, lineterminator="\n")


if __name__ == "__main__":
    main(arguments.parse(Args, sys.argv[1:], __doc__))
