"""The curves of the parents and children of sweeps/switch.sh: curves.png from curves.csv.

    python results/switch/curves.py --runs runs/switch    # reads the runs and writes curves.csv first
    python results/switch/curves.py

curves.csv has a row a point: game, seed, `com_before` and `com` (of the parent and of the child; empty `com`: the
parent's own curve), step, and the mean return of the last 100 games, 0 for a random policy and 1 for the reference
return of support/small_worlds.csv. Points before each environment has finished two games are left out: only short games
have ended there. A child's games are new.
"""

import csv
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]
from analysis.look import BLUE, VERMILLION, plt  # noqa: E402

from support import arguments, catalog, reading  # noqa: E402

SEEDS = 10  # a point is drawn where all have one
COLUMNS = ("game", "seed", "com_before", "com", "step", "score")
COLORS = {"0.5": BLUE, "16.0": VERMILLION}  # of the com in use


@dataclass
class Args:
    runs: Optional[Path] = None  # the sweep's run directories: reads them and writes curves.csv first


def points(runs_dir):
    """Yields the rows of curves.csv; a child's begin after its parent's last step."""
    references = catalog.small_table()
    manifests = {path.name: reading.read_json(path / "manifest.json") for path in reading.find_runs(runs_dir)}
    for name, manifest in sorted(manifests.items()):
        given = manifest["arguments"]
        parent = manifests[Path(given["resume_from"]).name]["arguments"] if given["resume_from"] else None
        game = catalog.game_name(given["env_id"])
        low, high = references[game]
        com = given["prox_com"]
        whose = (parent["prox_com"], com) if parent else (com, "")
        curves = reading.read_curves(runs_dir / name)
        fewest = dict(zip(*curves["charts/min_episodes"], strict=True))
        for step, value in zip(*curves["charts/episodic_return"], strict=True):
            if fewest[step] >= 2 and (not parent or step > parent["total_timesteps"]):
                yield game, given["seed"], *whose, step, f"{(value - low) / (high - low):.4f}"


def read(path):
    """{(game, com_before, com): {step: [a score a seed]}}, and the games."""
    curves = {}
    with open(path) as file:
        for row in csv.DictReader(file):
            of_config = curves.setdefault((row["game"], row["com_before"], row["com"]), {})
            of_config.setdefault(int(row["step"]), []).append(float(row["score"]))
    return curves, sorted({game for game, *_ in curves})


def draw(curves, games):
    """A panel a game: the mean over the seeds. Full lines keep the com, dashed ones change it at the switch."""
    figure, axes = plt.subplots(1, len(games), figsize=(2.6 * len(games), 2.6), sharey=True)
    for axis, game in zip(axes, games, strict=True):
        for (_, before, com), by_step in sorted(item for item in curves.items() if item[0][0] == game):
            steps = sorted(step for step, scores in by_step.items() if len(scores) == SEEDS)
            means = [np.mean(by_step[step]) for step in steps]
            if com:  # from where its parent stopped
                parent = curves[game, before, ""]
                steps, means = [max(parent), *steps], [np.mean(parent[max(parent)]), *means]
            label = f"com {before}" if not com else f"{before} to {com}" if com != before else None
            axis.plot(
                np.divide(steps, 1000), means, color=COLORS[com or before], ls="-" if com in ("", before) else "--",
                label=label,
            )  # fmt: skip
        axis.axvline(max(max(by_step) for key, by_step in curves.items() if key[2] == "") / 1000, color="0.8", lw=0.8)
        axis.set_title(game)
        axis.set_xlabel("thousand steps")
    axes[0].set_ylabel("training return, mean\n0: random, 1: reference")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def main(args):
    if args.runs:
        rows = list(points(args.runs))
        with open(HERE / "curves.csv", "w", newline="") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(COLUMNS)
            table.writerows(rows)
    draw(*read(HERE / "curves.csv")).savefig(HERE / "curves.png")


if __name__ == "__main__":
    main(arguments.parse(Args, sys.argv[1:], __doc__))
