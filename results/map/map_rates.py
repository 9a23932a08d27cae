"""The runs that results/map still needs, of what results/map/scores.csv has.

    python results/map/map_rates.py --games CartPole-v1 --steps 100000    # GAME N T RATE SEED of each run
    python results/map/map_rates.py --games CartPole-v1 --steps 100000 --seeds 1 2
    python results/map/map_rates.py --games CartPole-v1 --steps 900000 --best 2    # the best rates: GAME N T RATE

The plan is in results/map/claims.py: six N x T at the same eight learning rates at 100,000 and 300,000 steps, and no
further runs at 900,000. sweeps/map.sh runs what this prints.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT  # noqa: F401

from dataclasses import dataclass
from typing import Literal, Optional, Tuple

import pandas as pd
from analysis import experiment
from analysis.comparisons import SEEDS_FOR_A_VERDICT

from support import arguments, catalog
from support.arguments import Count, Seed


@dataclass
class Args:
    games: Tuple[str, ...]  # the tasks, as of --env-id
    steps: Literal[100_000, 300_000, 900_000] = 100_000  # the budget of a run
    seeds: Tuple[Seed, ...] = tuple(range(1, 11))  # those of the runs to print
    best: Optional[Count] = None  # prints so many rates of each N x T: those with the best mean scores, of ten seeds
    table: Path = experiment.RESULTS / "map" / "scores.csv"  # what has run


def parse_args(argv):
    """Returns checked Args; exits 2 with one line on bad input."""
    return arguments.parse(Args, argv, __doc__)


def main(args):
    code = experiment.load("map")
    nothing = pd.DataFrame(columns=["game", "seed", "score", *code.VARIES])
    table = experiment.read(code, args.table) if args.table.exists() else nothing
    for task in args.games:
        name = catalog.task_name(task)
        if args.best:
            settings = best(table[(table["game"] == name) & (table["total_timesteps"] == args.steps)], args.best)
        else:
            settings = code.missing(table, name, args.steps, args.seeds)
        for setting in settings:
            print(task, *(f"{value:g}" for value in setting))


def best(rows, number):
    """The learning rates of each N x T with the best mean scores, of those with ten seeds: (N, T, rate)."""
    settings = rows.groupby(["num_envs", "num_steps", "learning_rate"])["score"].agg(["mean", "size"])
    settings = settings[settings["size"] >= SEEDS_FOR_A_VERDICT].sort_values("mean", ascending=False)
    return settings.groupby(level=[0, 1]).head(number).index


if __name__ == "__main__":
    main(parse_args(sys.argv[1:]))
