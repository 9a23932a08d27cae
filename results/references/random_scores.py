"""Measures the mean return of uniformly random actions on the small tasks of ppo_envpool.py.

    python results/references/random_scores.py --games CartPole-v1 Acrobot-v1

Prints one line per task: its name, the mean return, and the half-width of its 95 % interval. The means are the column
`random` of support/small_worlds.csv. Each of 1000 environments runs one whole episode, so that short episodes do not
count more than long ones.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT  # noqa: F401

from dataclasses import dataclass
from typing import Annotated, Tuple

import numpy as np

from support import arguments
from support.arguments import Range
from support.envs import tasks
from support.envs.episodes import env_seeds
from support.envs.spaces import Unplayable


@dataclass
class Args:
    games: Tuple[str, ...] = ("CartPole-v1",)  # tasks, by their --env-id
    episodes: Annotated[int, Range(2, 10**5)] = 1000  # episodes of each task
    seed: Annotated[int, Range(0, 2**30 - 1)] = 1  # seeds the environments and the actions


def parse_args(argv):
    """Returns checked Args; exits 2 with one line on bad input."""
    args = arguments.parse(Args, argv, __doc__)
    for env_id in args.games:
        try:
            tasks.rows_of(env_id)
        except Unplayable as error:
            arguments.fail(f"--games {env_id} {error}")
    return args


def play_randomly(env_id, episodes, seed):
    """Returns (episodes,) of whole episodes with uniformly random actions, one per environment."""
    envs = tasks.make(env_id, env_seeds(seed, "random", 0, range(episodes)), num_threads=1)
    generator, space = np.random.default_rng(seed), tasks.spaces(env_id)[1]
    envs.reset()
    returns, playing = np.zeros(episodes), np.ones(episodes, dtype=bool)
    while playing.any():
        if hasattr(space, "n"):
            actions = generator.integers(space.n, size=episodes)
        else:
            actions = generator.uniform(space.low, space.high, (episodes, *space.shape)).astype(np.float32)
        _, rewards, terminated, truncated, _ = envs.step(actions)
        returns += rewards * playing
        playing &= ~(terminated | truncated)
    return returns


def main(args):
    for env_id in args.games:
        returns = play_randomly(env_id, args.episodes, args.seed)
        half_width = 1.96 * returns.std(ddof=1) / len(returns) ** 0.5
        print(f"{env_id},{returns.mean():.4g},{half_width:.2g}", flush=True)


if __name__ == "__main__":
    main(parse_args(sys.argv[1:]))
