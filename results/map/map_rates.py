"""The runs that results/map still needs, by the table of all runs.

    python results/map/map_rates.py --games CartPole-v1 --steps 100000    # GAME N T RATE SEED of each run
    python results/map/map_rates.py --games CartPole-v1 --steps 100000 --seeds 1 2

The plan is in results/map/claims.py: six N x T at the same eight learning rates at 100,000 and 300,000 steps, and no
further runs at 900,000. sweeps/map.sh runs what this prints.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT  # noqa: F401

from dataclasses import dataclass
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
    table: Path = experiment.DATASET  # what has run


def parse_args(argv):
    """Returns checked Args; exits 2 with one line on bad input."""
    return arguments.parse(Args, argv, __doc__)


def main(args):
    code = experiment.load("map")
    table = pd.DataFrame(columns=["game", "seed", *code.VARIES])
    if args.table.exists():
        table = experiment.read_dataset(args.table)
        table = table[["map" in names.split() for names in table["experiment"]]]
    for task in args.games:
        name = catalog.task_name(task)
        for setting in code.missing(table, name, args.steps, args.seeds):
            print(task, *(f"{value:g}" for value in setting))


if __name__ == "__main__":
    main(parse_args(sys.argv[1:]))
