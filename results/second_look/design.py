"""The design of the second look, as results/CLAIMS.md registers it: which runs each experiment has, and their scores.

plan.py makes the runs, claims.py tests the claims. A block is what one experiment asks of one task; its runs stand in
blocks/EXPERIMENT/TASK.csv. The order of `blocks` is the order in which they run.
"""

import random
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from support import catalog, recipe

HERE = Path(__file__).resolve().parent
ATLAS = HERE.parent / "atlas"

SEEDS = range(301, 311)  # of E1; all tasks have the first FEWEST before one has more
FEWEST = 6
FEWER = 3  # the same of E2, E4, E5, E7 and E8, and
FEWEST_SB3 = 2  # of sb3
TUNED_SEEDS = range(311, 314)  # of E3
RATES = tuple(1.25e-4 * 2**i for i in range(11))  # of E3, the same for every k
NEW_BUDGETS = (200_000, 800_000)  # of E4
MINATAR = ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")  # E5
MINATAR_STEPS = 1_000_000
SLOWEST = 4000  # environment steps per CPU-second of E4's tasks, once a family has none of the atlas's speed left
NUM_NEW, NUM_GRIDS, NUM_TUNED = 20, 8, 10  # tasks of E4, of MiniGrid and BabyAI among them, and of E3
NUM_LONGEST = 10  # tasks of E6
ONE_LENGTH = ("Pendulum-v1", "NChain-v0", "HalfCheetah-v5", "Swimmer-v5", "Reacher-v5")  # and DeepMind Control's tasks
GRIDS = ("MiniGrid", "BabyAI")


class Setting(NamedTuple):
    """What a run does beside its task and seed."""

    num_envs: int
    num_steps: int
    minibatch_size: int
    update_epochs: int
    learning_rate: float
    total_timesteps: int
    sb3: bool = False  # stable-baselines3's defaults otherwise


KEYS = [*Setting._fields[:-1], "anneal_lr", "seed"]  # of a row in a block; sb3 is the only setting that anneals nothing


class Block(NamedTuple):
    arm: str  # E1 to E9
    task: str
    runs: list  # (name of the setting, Setting, seed)


def key(row):
    """What tells the runs of a block apart: the numbers of KEYS."""
    return tuple(float(row[name]) for name in KEYS)


def key_of(one, seed):
    """The same of a Setting and a seed."""
    return key({**one._asdict(), "anneal_lr": not one.sb3, "seed": seed})


# ---- settings --------------------------------------------------------------------------------------------------------
def law(steps, minibatch_size=256, update_epochs=4):
    """The law's rate for a budget: recipe.law_rate, in which k is update_epochs / minibatch_size."""
    return recipe.law_rate(steps, update_epochs / minibatch_size)


def setting(n_by_t, rate, steps, minibatch_size=256, update_epochs=4):
    return Setting(*n_by_t, minibatch_size, update_epochs, rate, steps)


def sb3(steps):
    """PPO's defaults in stable-baselines3, which are RL Zoo's for a task that it does not list."""
    return Setting(1, 2048, 64, 10, 3e-4, steps, sb3=True)


def flags(one):
    """The flags of ppo_envpool.py for a Setting."""
    words = ["--num-envs", one.num_envs, "--num-steps", one.num_steps, "--minibatch-size", one.minibatch_size]
    words += ["--update-epochs", one.update_epochs, "--learning-rate", f"{one.learning_rate:g}"]
    words += ["--total-timesteps", one.total_timesteps]
    if one.sb3:
        words += ["--no-anneal-lr", "--ent-coef", 0, "--no-clip-vloss", "--no-norm-obs", "--no-norm-reward"]
    return list(map(str, words))


FEW, MIDDLE, MANY, MORE = (8, 128), (32, 32), (128, 8), (32, 128)  # N x T; the last has four times the batch
K_ARMS = ((256, 1), (256, 4), (256, 16), (64, 4), (1024, 4))  # of E3: rows of a minibatch and epochs


def same_budgets(steps):
    """E1, but for sb3: {name: Setting}, as all of these."""
    return {
        "default": setting(FEW, 2.5e-4, steps),
        "2e-3": setting(FEW, 2e-3, steps),
        "law": setting(FEW, law(steps), steps),
        "many, 2e-3": setting(MANY, 2e-3, steps),
        "many, law": setting(MANY, law(steps), steps),
        "middle, 2e-3": setting(MIDDLE, 2e-3, steps),
    }


def most_have(steps):
    """E1's other part."""
    return {"sb3": sb3(steps)}


def longer(steps):
    """E2: three times the budget."""
    return {"default": setting(FEW, 2.5e-4, 3 * steps), "law": setting(FEW, law(3 * steps), 3 * steps)}


def adam_steps(steps):
    """E3: k by epochs and by minibatches, each at eleven rates."""
    return {
        f"{rows} rows, {epochs} epochs, {rate:g}": setting(FEW, rate, steps, rows, epochs)
        for rows, epochs in K_ARMS
        for rate in RATES
    }


def new_tasks(steps):
    """E4, at one of its two budgets."""
    return {name: one for name, one in same_budgets(steps).items() if name in ("default", "2e-3", "law", "many, 2e-3")}


def images(steps):
    """E5."""
    names = {"default": (FEW, 2.5e-4), "law": (FEW, law(steps)), "many, law": (MANY, law(steps))}
    return {name: setting(*one, steps) for name, one in {**names, "middle, law": (MIDDLE, law(steps))}.items()}


def more_environments(steps):
    """E7: 32 x 128 with four minibatches of 1024 rows, and with sixteen of 256."""
    return {
        "four, default": setting(MORE, 2.5e-4, steps, 1024),
        "four, law of 8 x 128": setting(MORE, law(steps), steps, 1024),
        "four, law": setting(MORE, law(steps, 1024), steps, 1024),
        "sixteen, default": setting(MORE, 2.5e-4, steps),
        "sixteen, law": setting(MORE, law(steps), steps),
    }


def staggered(steps):
    """E6: the starts of the environments are staggered (staggered.py). E9 has the same on other tasks."""
    return {"many, 2e-3, staggered": setting(MANY, 2e-3, steps)}


def few_staggered(steps):
    """E9's other setting."""
    return {"2e-3, staggered": setting(FEW, 2e-3, steps)}


def real_actions(steps):
    """E8: ppo_envpool.py's epochs and minibatches for real actions, k 20 times that of E1."""
    rates = {
        "law": law(steps, 32, 10),
        "square root": float(f"{law(steps) / 20**0.5:.1e}"),
        "law of 256 rows": law(steps),
    }
    return {name: setting(FEW, rate, steps, 32, 10) for name, rate in rates.items()}


# ---- tasks -----------------------------------------------------------------------------------------------------------
def table_of(name):
    """A CSV of the atlas."""
    return pd.read_csv(ATLAS / f"{name}.csv")


def budgets():
    """{task: its budget} of the atlas's forty, in the order in which they ran: a task of each family in turn."""
    found = table_of("budgets")
    found = found[found["rises"]]
    turn = found.groupby("family", sort=False).cumcount()
    found = found.iloc[turn.argsort(kind="stable")]
    return dict(zip(found["task"], found["budget"].astype(int)))


NOT_COUNTED = (  # in the atlas: three that no setting learned, and one that all solved
    "BabyAI-KeyCorridorS3R1-v0",
    "PointMassEasy-v1",
    "HopperHop-v1",
    "LqrLqr21-v1",
)


def counted():
    """The 36 of the forty that the atlas's claims count, {task: budget}."""
    return {task: steps for task, steps in budgets().items() if task not in NOT_COUNTED}


def tuned_tasks():
    """E3's ten, {task: budget}."""
    short = sorted(task for task, steps in counted().items() if steps <= 150_000)
    return {task: budgets()[task] for task in random.Random(1).sample(short, NUM_TUNED)}


def real_tasks():
    """E8's: those with real actions of the counted ones with budgets up to 150,000, {task: budget}."""
    short = {task: steps for task, steps in counted().items() if steps <= 150_000}
    return {task: steps for task, steps in short.items() if task in catalog.CONTINUOUS}


def longest_tasks():
    """E6's ten of the counted tasks, those with the largest budgets, {task: budget}."""
    return dict(sorted(counted().items(), key=lambda one: -one[1])[:NUM_LONGEST])


def one_length():
    """The counted tasks whose episodes all have the same length, whatever the policy does."""
    return [task for task in counted() if task in catalog.DMC or task in ONE_LENGTH]


def fresh_tasks():
    """E4's twenty: of each family in turn the next in the atlas's drawn order that had no pilot.

    MiniGrid and BabyAI give at most NUM_GRIDS together. Once the other families have no task of the atlas's speed left,
    tasks of at least SLOWEST steps per CPU-second follow, drawn by random.Random(1) from their sorted names.
    """
    drawn, speeds, piloted = table_of("tasks"), table_of("speeds"), set(table_of("budgets")["task"])
    left = {
        family: [task for task in of_family["task"] if task not in piloted]
        for family, of_family in drawn.groupby("family", sort=False)
    }
    slow = speeds[speeds["steps_per_cpu_second"].ge(SLOWEST) & ~speeds["task"].isin(drawn["task"])]
    slow = sorted(slow[~slow["family"].isin(GRIDS)]["task"])
    found, grids = [], 0
    while any(left.values()) and len(found) < NUM_NEW:
        for family, names in left.items():
            if names and (family not in GRIDS or grids < NUM_GRIDS):
                found.append(names.pop(0))
                grids += family in GRIDS
        if grids == NUM_GRIDS and not any(names for family, names in left.items() if family not in GRIDS):
            break
    return [*found, *random.Random(1).sample(slow, NUM_NEW - len(found))][:NUM_NEW]


# ---- blocks ----------------------------------------------------------------------------------------------------------
def blocks():
    """All blocks in the order in which they run. A task comes again where it gets more seeds, or sb3."""
    forty, fewer, more = budgets(), SEEDS[:FEWER], SEEDS[FEWER:5]
    long_enough = {task: steps for task, steps in forty.items() if steps >= 150_000}
    minatar = {f"gymnasium:minatar_tasks:MinAtar/{game}-v1": MINATAR_STEPS for game in MINATAR}
    found = []

    def add(arm, tasks, settings, seeds):
        for task, budgets in tasks.items():
            named = [(name, one) for steps in np.atleast_1d(budgets).tolist() for name, one in settings(steps).items()]
            found.append(Block(arm, task, [(name, one, seed) for name, one in named for seed in seeds]))

    fresh = dict.fromkeys(fresh_tasks(), NEW_BUDGETS)
    add("E1", forty, same_budgets, SEEDS[:FEWEST])
    add("E3", tuned_tasks(), adam_steps, TUNED_SEEDS)
    add("E8", real_tasks(), real_actions, fewer)
    add("E4", fresh, new_tasks, fewer)
    add("E2", forty, longer, fewer)
    add("E1", forty, most_have, SEEDS[:FEWEST_SB3])
    add("E7", long_enough, more_environments, fewer)
    add("E5", minatar, images, fewer)
    add("E6", longest_tasks(), staggered, SEEDS[:FEWEST])
    others = {task: steps for task, steps in counted().items() if task not in longest_tasks()}
    add("E9", others, lambda steps: {**staggered(steps), **few_staggered(steps)}, SEEDS[:FEWEST])
    add("E9", longest_tasks(), few_staggered, SEEDS[:FEWEST])
    add("E2", forty, longer, SEEDS[FEWER:6])
    add("E1", forty, most_have, SEEDS[FEWEST_SB3:4])
    add("E7", long_enough, more_environments, more)
    add("E4", fresh, new_tasks, more)
    add("E5", minatar, images, more)
    add("E1", forty, same_budgets, SEEDS[FEWEST:])
    return found
