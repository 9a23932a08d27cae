"""What each script is: its tasks, the length of their episodes, what a run needs, its speed, its scores.

The one table of these. It knows tasks by their names: nothing here imports a simulator or a user's module.
`python -m support.catalog` prints `script_of` and `rate_of` for sweeps/lib.sh. Python 3.8.
"""

import csv
import math
import re
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

HERE = Path(__file__).parent


# ---- scripts ---------------------------------------------------------------------------------------------------------
class Memory(NamedTuple):
    """Bytes that a run needs, measured as peak RSS."""

    process: float
    env: float  # an environment
    row: float  # a row of the batch
    minibatch_row: float


class Script(NamedTuple):
    """A training script. The key of SCRIPTS is its file without .py."""

    episode_steps: int  # steps of an evaluation episode
    memory: Memory = Memory(0, 0, 0, 0)  # 0: not measured
    speed: float = (
        0.0  # steps/s at the defaults in float32 on `cores` cores of an AMD EPYC (results/benchmark); 0: unknown
    )
    cores: int = 2  # more than these make a run no faster
    envpool: bool = True  # whether EnvPool plays its tasks
    pack: float = 1.0  # how many times the steps/s of a run a process of 16 makes (results/benchmark); 1: it trains one

    def gain(self, runs: int) -> float:
        """How many times the steps/s of one run a process makes that trains several: linear in log2, up to 16 runs."""
        return 1 + (self.pack - 1) * math.log2(min(runs, 16)) / 4


# Steps of an episode. Atari: a guess. A random policy's episodes have 80 to 700 steps (measured in Breakout, RoadRunner
# and MontezumaRevenge), those of trained networks more, up to 27,000. Others: the usual time limit, an upper estimate.
ATARI_EPISODE = 5000
ATARI, PROCGEN = Memory(1.0e9, 1.3e6, 28.3e3, 150e3), Memory(1.2e9, 0.4e6, 12.4e3, 1.2e6)
GPU_PROCESS = 1.8e9  # bytes of GPU memory that CUDA and its libraries take: Atari on an H200 had 1.1 to 1.8 GB in all
SMALL_TASKS = Memory(0.5e9, 0.1e6, 4e3, 4e3)  # an environment: 10 kB of CartPole; a row: of MiniGrid
MUJOCO_ENV, DOG_ENV = 1e6, 150e6  # bytes of an environment: Hopper and HumanoidRun; DogFetch, for its meshes
SCRIPTS = {
    "ppo_atari_envpool": Script(ATARI_EPISODE, ATARI, 481),
    "ppo_ewma_atari_envpool": Script(ATARI_EPISODE, ATARI, 481),  # without --prox-com
    "pqn_atari_envpool": Script(ATARI_EPISODE, ATARI, 403),
    "ppo_procgen": Script(1000, PROCGEN, 165),
    "ppo_rnd_envpool": Script(ATARI_EPISODE, ATARI, 208),
    "ppo_envpool": Script(500, SMALL_TASKS, 13000, cores=1, pack=4.5),  # CartPole, 8 x 128
    "ppo_isaacgym": Script(1000, envpool=False),
}


def script(path: str) -> Script:
    """The Script in a file; one of which nothing is known, if it is none of SCRIPTS."""
    return SCRIPTS.get(Path(path).stem, Script(ATARI_EPISODE))


def memory(path: str, env_id: str) -> Memory:
    """The Memory of a script that plays a task."""
    need = script(path).memory
    if env_id not in CONTINUOUS:  # few of these are not MuJoCo's
        return need
    return need._replace(env=DOG_ENV if env_id.startswith("Dog") else MUJOCO_ENV)


# ---- tasks -----------------------------------------------------------------------------------------------------------
class Family(NamedTuple):
    """A module of EnvPool."""

    script: str  # that plays its tasks
    words: str  # what a user calls them


FAMILIES = {
    "envpool.classic_control": Family("ppo_envpool", "classic control"),
    "envpool.box2d": Family("ppo_envpool", "Box2D"),
    "envpool.toy_text": Family("ppo_envpool", "toy text"),
    "envpool.minigrid": Family("ppo_envpool", "MiniGrid"),
    "envpool.mujoco.dmc": Family("ppo_envpool", "DeepMind Control"),
    "envpool.mujoco.gym": Family("ppo_envpool", "Gym's MuJoCo"),
    "envpool.atari": Family("ppo_atari_envpool", "Atari"),
    "envpool.procgen": Family("ppo_procgen", "Procgen"),
}

# DeepMind Control's tasks
DMC = frozenset(
    """
    AcrobotSwingup-v1 AcrobotSwingupSparse-v1 BallInCupCatch-v1 CartpoleBalance-v1 CartpoleBalanceSparse-v1
    CartpoleSwingup-v1 CartpoleSwingupSparse-v1 CartpoleThreePoles-v1 CartpoleTwoPoles-v1 CheetahRun-v1 DogFetch-v1
    DogRun-v1 DogStand-v1 DogTrot-v1 DogWalk-v1 FingerSpin-v1 FingerTurnEasy-v1 FingerTurnHard-v1 FishSwim-v1
    FishUpright-v1 HopperHop-v1 HopperStand-v1 HumanoidRun-v1 HumanoidRunPureState-v1 HumanoidStand-v1 HumanoidWalk-v1
    HumanoidCMURun-v1 HumanoidCMUStand-v1 HumanoidCMUWalk-v1 LqrLqr21-v1 LqrLqr62-v1 ManipulatorBringBall-v1
    ManipulatorBringPeg-v1 ManipulatorInsertBall-v1 ManipulatorInsertPeg-v1 PendulumSwingup-v1 PointMassEasy-v1
    PointMassHard-v1 QuadrupedEscape-v1 QuadrupedFetch-v1 QuadrupedRun-v1 QuadrupedWalk-v1 ReacherEasy-v1 ReacherHard-v1
    StackerStack2-v1 StackerStack4-v1 SwimmerSwimmer6-v1 SwimmerSwimmer15-v1 WalkerRun-v1 WalkerStand-v1 WalkerWalk-v1
    """.split()
)

# The tasks of ppo_envpool's families that observe an image
IMAGES = frozenset(("CarRacing-v2", "CarRacing-v3"))

# The tasks of ppo_envpool's families whose actions are real numbers
CONTINUOUS = DMC | frozenset(
    """
    CarRacing-v3 CarRacing-v2 BipedalWalker-v3 BipedalWalkerHardcore-v3 LunarLanderContinuous-v3
    LunarLanderContinuous-v2 Pendulum-v0 phys2d/Pendulum-v0 Pendulum-v1 MountainCarContinuous-v0 Ant-v3 Ant-v4 Ant-v5
    HalfCheetah-v3 HalfCheetah-v4 HalfCheetah-v5 Hopper-v3 Hopper-v4 Hopper-v5 Humanoid-v3 Humanoid-v4 Humanoid-v5
    HumanoidStandup-v2 HumanoidStandup-v4 HumanoidStandup-v5 InvertedDoublePendulum-v2 InvertedDoublePendulum-v4
    InvertedDoublePendulum-v5 InvertedPendulum-v2 InvertedPendulum-v4 InvertedPendulum-v5 Pusher-v2 Pusher-v4 Pusher-v5
    Reacher-v2 Reacher-v4 Reacher-v5 Swimmer-v3 Swimmer-v4 Swimmer-v5 Walker2d-v3 Walker2d-v4 Walker2d-v5
    """.split()
)

# R_min and R_max of Procgen's games, easy and hard: Cobbe et al. 2020, Appendix C
PROCGEN_SCORES: Dict[str, Dict[str, Tuple[float, float]]] = {
    "coinrun": {"easy": (5, 10), "hard": (5, 10)},
    "starpilot": {"easy": (2.5, 64), "hard": (1.5, 35)},
    "caveflyer": {"easy": (3.5, 12), "hard": (2, 13.4)},
    "dodgeball": {"easy": (1.5, 19), "hard": (1.5, 19)},
    "fruitbot": {"easy": (-1.5, 32.4), "hard": (-0.5, 27.2)},
    "chaser": {"easy": (0.5, 13), "hard": (0.5, 14.2)},
    "miner": {"easy": (1.5, 13), "hard": (1.5, 20)},
    "jumper": {"easy": (3, 10), "hard": (1, 10)},
    "leaper": {"easy": (3, 10), "hard": (1.5, 10)},
    "maze": {"easy": (5, 10), "hard": (4, 10)},
    "bigfish": {"easy": (1, 40), "hard": (0, 40)},
    "heist": {"easy": (3.5, 10), "hard": (2, 10)},
    "climber": {"easy": (2, 12.6), "hard": (1, 12.6)},
    "plunder": {"easy": (4.5, 30), "hard": (3, 30)},
    "ninja": {"easy": (3.5, 10), "hard": (2, 10)},
    "bossfight": {"easy": (0.5, 13), "hard": (0.5, 13)},
}

# The learning rates of CleanRL, which sweeps and studies name for ppo_envpool.py: for real actions, and for others
CONTINUOUS_RATE, DISCRETE_RATE = 3e-4, 2.5e-4


# The script that plays a task, by the first pattern that its name matches: the same patterns in bash and in fnmatch
PATTERNS = [
    ("Mjlab-*", "ppo_isaacgym"),
    ("gymnasium:*", "ppo_envpool"),
    *((f"[{game[0].upper()}{game[0]}]{game[1:]}*", "ppo_procgen") for game in PROCGEN_SCORES),
    *((name, "ppo_envpool") for name in sorted(CONTINUOUS)),  # some end in -v5
    ("*NoFrameskip-v4", "ppo_atari_envpool"),
    ("*-v5", "ppo_atari_envpool"),
    ("*-v[0-9]*", "ppo_envpool"),
    ("*", "ppo_isaacgym"),
]


def script_of(env_id: str) -> str:
    """The script that plays a task, without .py. A name that nobody knows has one too: it refuses the task."""
    return next(name for pattern, name in PATTERNS if fnmatchcase(env_id, pattern))


def task_name(env_id: str) -> str:
    """An id without what its emulator adds: Breakout for ALE/Breakout-v5, bigfish for BigfishEasy-v0."""
    name = env_id.split("/")[-1]
    for suffix in ("-v0", "-v4", "-v5", "NoFrameskip", "Easy", "Hard"):
        name = name[: -len(suffix)] if name.endswith(suffix) else name
    return name.lower() if name.lower() in PROCGEN_SCORES else re.sub("^Mjlab-", "", name)


# ---- scores ----------------------------------------------------------------------------------------------------------
class Scale(NamedTuple):
    """What makes returns of different tasks comparable: a score is (return - zero) / (one - zero)."""

    returns: Dict[str, Tuple[float, float]]  # {name of a task: (zero, one)}
    words: str
    units: str
    zero: str  # whose returns have the score 0


def _rows(name: str) -> List[Dict[str, str]]:
    with open(HERE / name) as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def _table(name: str, one: str) -> Dict[str, Tuple[float, float]]:
    return {task_name(row["game"]): (float(row["random"]), float(row[one])) for row in _rows(name)}


@lru_cache(maxsize=None)
def human_table() -> Dict[str, Tuple[float, float]]:
    """{game: (random, human)}: mean scores in the 57 games of Atari, from dqn_zoo's human_at30."""
    return _table("human_at30.csv", "human")


@lru_cache(maxsize=None)
def small_table() -> Dict[str, Tuple[float, float]]:
    """{task: (random, best)}: reference returns of the small tasks of ppo_envpool.py."""
    return _table("small_worlds.csv", "best")


@lru_cache(maxsize=None)
def small_ids() -> Dict[str, str]:
    """{name of a task: its id} of the small tasks that have a reference return."""
    return {task_name(row["game"]): row["game"] for row in _rows("small_worlds.csv")}


def procgen_mode(arguments: Mapping[str, Any]) -> str:
    """easy, hard, ...: of a run's --distribution-mode, or of an --env-id such as BigfishHard-v0."""
    named = re.search("[A-Z][a-z]+(?=-v)", arguments["env_id"])
    return arguments.get("distribution_mode") or (named[0].lower() if named else "easy")


def scale(script: str, mode: str = "easy") -> Optional[Scale]:
    """The Scale of a script's tasks; None if there is none. mode: of Procgen, which has one for easy and for hard."""
    if script == "ppo_isaacgym" or (script == "ppo_procgen" and mode not in ("easy", "hard")):
        return None
    if script == "ppo_procgen":
        words = f"normalised by Cobbe et al. 2020's R_min and R_max ({mode})"
        return Scale({game: modes[mode] for game, modes in PROCGEN_SCORES.items()}, words, "0 R_min, 1 R_max", "R_min")
    if script == "ppo_envpool":
        words = "normalised by the random policy and the best known return (support/small_worlds.csv)"
        return Scale(small_table(), words, "0 random, 1 best known", "small_worlds.csv's")
    words = "human-normalised by human_at30 (dqn_zoo; support/human_at30.csv)"
    return Scale(human_table(), words, "human-normalised", "human_at30's")


if __name__ == "__main__":
    cases = "".join(f"{pattern}) echo {name}.py ;;\n" for pattern, name in PATTERNS)
    print(f"script_of() {{\ncase $1 in\n{cases}esac\n}}")
    names = "|".join(sorted(CONTINUOUS))
    print(f"rate_of() {{\ncase $1 in {names}) echo {CONTINUOUS_RATE:.15g} ;; *) echo {DISCRETE_RATE:.15g} ;; esac\n}}")
