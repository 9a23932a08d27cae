"""The runs that results/map still needs, of what results/map/scores.csv has.

    python scripts/map_rates.py --games CartPole-v1 --steps 100000    # prints GAME N T RATE SEED, a run a line
    python scripts/map_rates.py --games CartPole-v1 --steps 100000 --seeds 1 2

The plan is in results/map/claims.py: six shapes at five learning rates, or at the three around the best one of the next
smaller budget; and, once all seeds of them have run, the next rate where the best one is an edge. sweeps/map.sh runs
what this prints.
"""

from launching.root import ROOT  # noqa: F401

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Tuple

import pandas as pd
from analysis import experiment

from support import arguments, catalog
from support.arguments import Seed


@dataclass
class Args:
    games: Tuple[str, ...]  # the tasks, as of --env-id
    steps: Literal[100_000, 300_000, 900_000] = 100_000  # the budget of a run
    seeds: Tuple[Seed, ...] = tuple(range(1, 11))  # those of the runs to print
    table: Path = experiment.RESULTS / "map" / "scores.csv"  # what has run


def parse_args(argv):
    """Returns checked Args; exits 2 with one line on bad input."""
    return arguments.parse(Args, argv, __doc__)


def main(args):
    code = experiment.load("map")
    nothing = pd.DataFrame(columns=["game", "seed", "score", *code.VARIES])
    table = experiment.read(code, args.table) if args.table.exists() else nothing
    for game in args.games:
        for run in code.missing(table, catalog.game_name(game), args.steps, args.seeds):
            print(game, *(f"{value:g}" for value in run))


if __name__ == "__main__":
    main(parse_args(sys.argv[1:]))
