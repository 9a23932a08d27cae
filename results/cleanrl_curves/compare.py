"""CleanRL's ppo.py and ppo_continuous_action.py beside ppo_envpool.py: are the curves the same?

    python results/cleanrl_curves/compare.py --cleanrl /tmp/cleanrl    # trains what curves.csv lacks, then:
    python results/cleanrl_curves/compare.py                           # from curves.csv: the table and curves.png

README.md says how CleanRL was ported. Both programs get one thread and the same shape. CleanRL plays gymnasium's copy
of a game, ppo_envpool.py EnvPool's, and on two games gymnasium's too. A point is the mean return of the last 100 games,
as both count them; the table has the mean over seeds of the point at the end and of the area under the curve, with the
95 % interval of each difference.
"""

import csv
import itertools
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]
from analysis.estimates import mean, verdict_interval  # noqa: E402
from analysis.look import BLUE, GREEN, VERMILLION, plt  # noqa: E402

from support import arguments, reading  # noqa: E402

GAMES = {  # game: (CleanRL's script, shape, steps)
    "CartPole-v1": ("ppo.py", (8, 128), 200000),
    "Acrobot-v1": ("ppo.py", (8, 128), 200000),
    "LunarLander-v3": ("ppo.py", (8, 128), 200000),
    "Hopper-v4": ("ppo_continuous_action.py", (1, 2048), 40960),
}
SEEDS = range(1, 6)
POINTS = 20
CLEANRL, OURS_GYMNASIUM = "CleanRL", "ppo_envpool.py, gymnasium's game"
PROGRAMS = (CLEANRL, "ppo_envpool.py", OURS_GYMNASIUM)
OF_BOTH_MAKERS = ("CartPole-v1", "Acrobot-v1")


@dataclass
class Args:
    cleanrl: Optional[Path] = None  # a checkout of CleanRL, ported: trains what curves.csv lacks


def run(command, folder):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", *map(str, command)]
    subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True
    )


def missing():
    """Yields (game, program, seed) of the runs that curves.csv lacks."""
    with open(HERE / "curves.csv") as file:
        there = {(row["game"], row["program"], int(row["seed"])) for row in csv.DictReader(file)}
    for run in itertools.product(GAMES, PROGRAMS, SEEDS):
        if run not in there and (run[1] != OURS_GYMNASIUM or run[0] in OF_BOTH_MAKERS):
            yield run


def train(cleanrl, game, program, seed):
    """Yields the points (step, return) of one run."""
    script, (num_envs, num_steps), total = GAMES[game]
    flags = f"--num-envs {num_envs} --num-steps {num_steps} --total-timesteps {total} --seed {seed}".split()
    with tempfile.TemporaryDirectory() as folder:
        if program == CLEANRL:
            run([cleanrl / "cleanrl" / script, "--env-id", game, *flags, "--no-cuda"], folder)
            curves = reading.read_curves(next(Path(folder).glob("runs/*")))
        else:
            env_id = f"gymnasium::{game}" if program == OURS_GYMNASIUM else game
            words = f"--num-logs {POINTS} --num-threads 1 --no-cuda --runs-dir {folder} --run-name run".split()
            run([ROOT / "ppo_envpool.py", "--env-id", env_id, *flags, *words], folder)
            curves = reading.read_curves(Path(folder, "run"))
    steps, returns = curves["charts/episodic_return"]
    if program != CLEANRL:
        yield from zip(steps, returns, strict=True)
        return
    for step in np.arange(1, POINTS + 1) * total // POINTS:  # from a point a game
        games = np.searchsorted(steps, step, "right")
        if games:
            yield step, np.mean(returns[max(0, games - 100) : games])


def read(path):
    """{game: {program: (seeds, POINTS) returns}}, NaN where there is no point.

    A point of ppo_envpool.py is at the end of an iteration, less than one after the step that it stands for.
    """
    curves = {game: {} for game in GAMES}
    with open(path) as file:
        for row in csv.DictReader(file):
            place = round(int(row["step"]) * POINTS / GAMES[row["game"]][2]) - 1
            empty = np.full((len(SEEDS), POINTS), np.nan)
            curve = curves[row["game"]].setdefault(row["program"], empty)
            curve[int(row["seed"]) - 1, place] = float(row["return"])
    return curves


def main(args):
    for game, program, seed in missing() if args.cleanrl else ():
        points = list(train(args.cleanrl.resolve(), game, program, seed))
        with open(HERE / "curves.csv", "a", newline="") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerows((game, program, seed, step, f"{value:.2f}") for step, value in points)
    curves = read(HERE / "curves.csv")
    print("game            measure  one                               another         difference, 95 % CI")
    for game, by_program in curves.items():
        common = ~np.isnan(np.concatenate(list(by_program.values()))).any(0)  # the points that all runs have
        for name in ("final", "area"):
            for one, other in itertools.combinations(reversed(by_program), 2):
                pair = (by_program[program] for program in (one, other))
                ours, theirs = (x[:, -1] if name == "final" else x[:, common].mean(1) for x in pair)
                found = verdict_interval(lambda x, y: mean(x) - mean(y), [[ours], [theirs]])
                print(
                    f"{game:15} {name:8} {ours.mean():<7.1f}{one:26.26} {theirs.mean():<7.1f}{other:15} "
                    f"{found.value:.1f} [{found.low:.1f}, {found.high:.1f}]"
                )

    figure, axes = plt.subplots(1, len(GAMES), figsize=(2.6 * len(GAMES), 2.4))
    for axis, (game, by_program) in zip(axes, curves.items(), strict=True):
        steps = np.arange(1, POINTS + 1) * GAMES[game][2] / POINTS
        for (program, values), color in zip(by_program.items(), (VERMILLION, BLUE, GREEN)):
            there = ~np.isnan(values).any(0)
            for curve in values:
                axis.plot(steps[there] / 1000, curve[there], color=color, lw=0.6, alpha=0.4)
            axis.plot(steps[there] / 1000, values[:, there].mean(0), color=color, label=program)
        axis.set_title(f"{game}, {GAMES[game][1][0]}×{GAMES[game][1][1]}")
        axis.set_xlabel("thousand steps")
    axes[0].set_ylabel("return, last 100 games\nmean and 5 seeds")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(HERE / "curves.png")


if __name__ == "__main__":
    main(arguments.parse(Args, sys.argv[1:], __doc__))
