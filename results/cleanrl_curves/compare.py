"""CleanRL's ppo.py and ppo_continuous_action.py beside ppo_envpool.py: are the curves the same?

    python results/cleanrl_curves/compare.py --cleanrl /tmp/cleanrl    # trains both, 5 seeds, then the next line
    python results/cleanrl_curves/compare.py                           # from curves.csv: the table and curves.png

README.md says how CleanRL was ported. Both programs get one thread and the same shape. CleanRL plays gymnasium's copy
of a game, ppo_envpool.py EnvPool's. A point is the mean return of the last 100 games, as both count them; the table has
the mean over seeds of the point at the end and of the area under the curve, with the 95 % interval of the difference.
"""

import argparse
import csv
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]
from estimates import mean, verdict_interval  # noqa: E402

import rundir  # noqa: E402

GAMES = {  # game: (CleanRL's script, shape, steps)
    "CartPole-v1": ("ppo.py", (8, 128), 200000),
    "Acrobot-v1": ("ppo.py", (8, 128), 200000),
    "Hopper-v4": ("ppo_continuous_action.py", (1, 2048), 40960),
}
SEEDS = range(1, 6)
POINTS = 20
PROGRAMS = ("CleanRL", "ppo_envpool.py")


def run(command, folder):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", *map(str, command), "--no-cuda"]
    subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True
    )


def train(cleanrl):
    """Yields rows (game, program, seed, step, return)."""
    for seed in SEEDS:
        for game, (script, (num_envs, num_steps), total) in GAMES.items():
            flags = (
                f"--env-id {game} --num-envs {num_envs} --num-steps {num_steps} --total-timesteps {total} --seed {seed}"
            )
            grid = np.arange(1, POINTS + 1) * total // POINTS
            with tempfile.TemporaryDirectory() as folder:
                run([cleanrl / "cleanrl" / script, *flags.split()], folder)
                curves = rundir.read_curves(Path(folder).glob("runs/*/events*"))
                steps, returns = curves["charts/episodic_return"]  # a point a game
                for step in grid:
                    games = np.searchsorted(steps, step, "right")
                    if games:
                        yield game, PROGRAMS[0], seed, step, np.mean(returns[max(0, games - 100) : games])
            with tempfile.TemporaryDirectory() as folder:
                words = f"{flags} --num-logs {POINTS} --num-threads 1 --runs-dir {folder} --run-name run"
                run([ROOT / "ppo_envpool.py", *words.split()], folder)
                steps, returns = rundir.read_curves(Path(folder).glob("run/events*"))["charts/episodic_return"]
                for step in grid:
                    points = np.searchsorted(steps, step, "right")
                    if points:
                        yield game, PROGRAMS[1], seed, step, returns[points - 1]


def read(path):
    """{game: {program: (seeds, POINTS) returns}}, NaN before the first finished game."""
    curves = {game: {program: np.full((len(SEEDS), POINTS), np.nan) for program in PROGRAMS} for game in GAMES}
    with open(path) as file:
        for row in csv.DictReader(file):
            place = int(row["step"]) * POINTS // GAMES[row["game"]][2] - 1
            curves[row["game"]][row["program"]][int(row["seed"]) - 1, place] = float(row["return"])
    return curves


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cleanrl", type=Path, help="a checkout of CleanRL, ported: trains again")
    args = parser.parse_args()
    if args.cleanrl:
        with open(HERE / "curves.csv", "w", newline="") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(("game", "program", "seed", "step", "return"))
            for *row, value in train(args.cleanrl.resolve()):
                table.writerow((*row, f"{value:.2f}"))
                file.flush()
    curves = read(HERE / "curves.csv")
    print("game         measure  CleanRL    ours       ours - CleanRL, 95 % CI")
    for game, by_program in curves.items():
        for name, measure in (("final", lambda x: x[:, -1]), ("area", lambda x: np.nanmean(x, axis=1))):
            theirs, ours = (measure(by_program[program]) for program in PROGRAMS)
            found = verdict_interval(lambda x, y: mean(x) - mean(y), [[ours], [theirs]])
            print(
                f"{game:12} {name:8} {theirs.mean():<10.1f} {ours.mean():<10.1f} "
                f"{found.value:.1f} [{found.low:.1f}, {found.high:.1f}]"
            )

    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from look import LOOK

    plt.rcParams.update(LOOK)
    figure, axes = plt.subplots(1, len(GAMES), figsize=(2.6 * len(GAMES), 2.4))
    for axis, (game, by_program) in zip(axes, curves.items(), strict=True):
        steps = np.arange(1, POINTS + 1) * GAMES[game][2] / POINTS
        for (program, values), color in zip(by_program.items(), ("#d55e00", "#0072b2"), strict=True):
            for curve in values:
                axis.plot(steps / 1000, curve, color=color, lw=0.6, alpha=0.4)
            axis.plot(steps / 1000, values.mean(0), color=color, label=program)
        axis.set_title(f"{game}, {GAMES[game][1][0]}×{GAMES[game][1][1]}")
        axis.set_xlabel("thousand steps")
    axes[0].set_ylabel("return, last 100 games\nmean and 5 seeds")
    axes[0].legend()
    figure.savefig(HERE / "curves.png", dpi=150)


if __name__ == "__main__":
    main()
