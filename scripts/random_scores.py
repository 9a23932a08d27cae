"""The mean return of a policy that draws every action uniformly, in the small worlds of ppo_envpool.py.

    python scripts/random_scores.py --games CartPole-v1 Acrobot-v1

Prints for each game its name, the mean, and the half-width of its 95 % interval: the column `random` of
support/small_worlds.csv. Each of 1000 environments plays one whole game, so that short games do not count more than
long ones.
"""

from launching.root import ROOT  # noqa: F401

import sys
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
    games: Tuple[str, ...] = ("CartPole-v1",)  # names as of --env-id
    episodes: Annotated[int, Range(2, 10**5)] = 1000  # games of each
    seed: Annotated[int, Range(0, 2**30 - 1)] = 1  # seeds the games and the actions


def parse_args(argv):
    """Returns checked Args; exits 2 with one line on bad input."""
    args = arguments.parse(Args, argv, __doc__)
    for env_id in args.games:
        try:
            tasks.observation(env_id), tasks.num_actions(env_id)
        except Unplayable as error:
            arguments.fail(f"--games {env_id} {error}")
    return args


def random_actions(generator, space, number):
    """Actions (number, ...), each drawn uniformly from a space, Discrete or Box. generator: NumPy's."""
    if hasattr(space, "n"):
        return generator.integers(space.n, size=number)
    return generator.uniform(space.low, space.high, (number, *space.shape)).astype(np.float32)


def play_randomly(env_id, episodes, seed):
    """The returns and the lengths, (episodes,), of whole episodes with random actions, one in each environment."""
    envs = tasks.make(env_id, env_seeds(seed, "random", 0, range(episodes)), num_threads=1)
    generator, space = np.random.default_rng(seed), tasks.spaces(env_id)[1]
    envs.reset()
    returns, lengths, playing = np.zeros(episodes), np.zeros(episodes), np.ones(episodes, dtype=bool)
    while playing.any():
        _, rewards, terminated, truncated, _ = envs.step(random_actions(generator, space, episodes))
        returns += rewards * playing
        lengths += playing
        playing &= ~(terminated | truncated)
    return returns, lengths


def main(args):
    for env_id in args.games:
        returns, _ = play_randomly(env_id, args.episodes, args.seed)
        half_width = 1.96 * returns.std(ddof=1) / len(returns) ** 0.5
        print(f"{env_id},{returns.mean():.4g},{half_width:.2g}", flush=True)


if __name__ == "__main__":
    main(parse_args(sys.argv[1:]))
