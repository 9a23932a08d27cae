"""The tests of results/CLAIMS.md: final scores of an experiment's runs, the verdict of each claim, and a picture.

    python results/answers.py shape --runs runs/shape_rate    # reads the runs; writes results/shape/scores.csv first
    python results/answers.py shape                           # from scores.csv: verdicts.csv and scores.png
    python results/answers.py masks --runs runs/masks

scores.csv has one row a run: game, seed, what the experiment varies, `final_return`, `score` (0: a random policy, 1:
the reference return of scripts/small_worlds.csv), `half_return` (the training return of the last 100 games at half of
the steps) and `commit`. A verdict is of the interval that draws n - 1 of n seeds (scripts/estimates.py).
"""

import argparse
import csv
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE.parent / "scripts"))
import analysis  # noqa: E402
import estimates  # noqa: E402
from estimates import ALPHA, evidence, holm, iqm, p_values, verdict  # noqa: E402

import rundir  # noqa: E402

FEWEST_SEEDS = 5  # fewer give no verdict (CLAIMS.md)
SMALLEST_EFFECT = 0.05
REPS = 4000
VARIES = {"shape": ("num_envs", "num_steps", "learning_rate"), "masks": ("num_envs", "num_steps", "mask_resets")}
DOORKEY = "MiniGrid-DoorKey-5x5"


# ---- from runs to scores.csv -----------------------------------------------------------------------------------------
def collect(experiment, runs_dir):
    """Yields a dict for each finished run below `runs_dir` that played final games."""
    references = analysis.small_table()
    for run_dir in rundir.find_runs(runs_dir):
        done = rundir.read_json(run_dir / "done.json")
        if "final_return" not in done:
            continue
        manifest = rundir.read_json(run_dir / "manifest.json")
        arguments = manifest["arguments"]
        game = analysis.game_name(arguments["env_id"])
        low, high = references[game]
        steps, returns = rundir.read_curves(run_dir.glob("events*")).get("charts/episodic_return", ([], []))
        half = [value for step, value in zip(steps, returns, strict=True) if step <= arguments["total_timesteps"] / 2]
        yield {
            "game": game,
            "seed": arguments["seed"],
            **{name: arguments[name] for name in VARIES[experiment]},
            "steps": done["global_step"],
            "final_return": round(done["final_return"], 4),
            "score": round((done["final_return"] - low) / (high - low), 5),
            "half_return": round(float(half[-1]), 4) if half else "",
            "commit": manifest["git"]["commit"][:7],
        }


def write_csv(path, rows):
    with open(path, "w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def read_scores(path, names):
    """{(values of `names`): {game: {seed: score}}}, with numbers and booleans read as such."""
    scores = {}
    with open(path) as file:
        for row in csv.DictReader(file):
            config = tuple({"True": True, "False": False}.get(row[name]) for name in names)
            config = tuple(
                float(row[name]) if value is None else value for name, value in zip(names, config, strict=True)
            )
            scores.setdefault(config, {}).setdefault(row["game"], {})[int(row["seed"])] = float(row["score"])
    return scores


# ---- claims ----------------------------------------------------------------------------------------------------------
class Experiment:
    """Scores of complete seeds: those that every configuration has, in each game."""

    def __init__(self, scores):
        self.games = sorted({game for by_game in scores.values() for game in by_game})
        self.configs = sorted(scores)
        self.seeds = {
            game: sorted(set.intersection(*(set(scores[config].get(game, ())) for config in self.configs)))
            for game in self.games
        }
        for game, seeds in self.seeds.items():
            if not seeds:
                rundir.fail(f"{game}: expected a seed with a score in each of the {len(self.configs)} configurations")
        self.scores = scores
        self.claims = []

    def sample(self, config, games):
        return [np.array([self.scores[config][game][seed] for seed in self.seeds[game]]) for game in games]

    def test(self, name, claim, statistic, configs, games=None, side="more", margin=0.0, primary=True):
        """Judges one claim. statistic: of a list with one sample a configuration."""
        games = games or self.games
        samples = [self.sample(config, games) for config in configs]
        found = evidence(lambda *drawn: statistic(drawn), samples, REPS)
        seeds = min(len(self.seeds[game]) for game in games)
        enough = seeds >= FEWEST_SEEDS
        self.claims.append(
            {
                "name": name,
                "primary": primary,
                "claim": claim,
                "seeds": seeds,
                "value": found.value,
                "low": found.estimate.low,
                "high": found.estimate.high,
                "verdict": verdict(*found.estimate[1:], side, margin) if enough else "too few seeds",
                "p": p_values(found.draws, side, margin),
            }
        )

    def rows(self):
        """The claims as rows of verdicts.csv, the p-values of the primary ones adjusted together."""
        primary = [claim for claim in self.claims if claim["primary"]]
        adjusted = [holm([claim["p"][side] for claim in primary]) for side in (0, 1)]
        for claim in self.claims:
            chances = ["", ""]
            if claim["primary"]:
                chances = [f"{adjusted[side][primary.index(claim)]:.4f}" for side in (0, 1)]
            yield {
                **{key: claim[key] for key in ("name", "primary", "claim", "seeds")},
                **{key: f"{claim[key]:+.3f}" for key in ("value", "low", "high")},
                "half_width": f"{(claim['high'] - claim['low']) / 2:.3f}",
                "verdict": claim["verdict"],
                "p_holm": chances[0],
                "p_holm_opposite": chances[1],
            }


def shape_claims(experiment):
    rates = sorted({config[2] for config in experiment.configs})
    shapes = sorted({config[:2] for config in experiment.configs})
    default = 2.5e-4
    of_shape = {shape: [(*shape, rate) for rate in rates] for shape in shapes}
    long, middle, wide = (8.0, 128.0), (32.0, 32.0), (128.0, 8.0)

    def at_own_rate(samples):
        """The largest IQM of consecutive groups of samples, one a rate: (…, groups)."""
        scores = [iqm(sample) for sample in samples]
        return [np.max(scores[i : i + len(rates)], axis=0) for i in range(0, len(scores), len(rates))]

    def gain(samples):
        first, second = at_own_rate(samples)
        return first - second

    def beats(name, first, second, games=None, primary=True):
        text = f"{first[0]:.0f}x{first[1]:.0f} beats {second[0]:.0f}x{second[1]:.0f}, each at its own best rate"
        text += f", in {', '.join(games)}" if games else ""
        experiment.test(name, text, gain, of_shape[first] + of_shape[second], games, primary=primary)

    def loss_of_default(samples):
        own = np.stack(at_own_rate(samples))
        at_default = np.stack([iqm(sample) for sample in samples[rates.index(default) :: len(rates)]])
        return np.take_along_axis(own, at_default.argmax(0)[None], 0)[0] - own.max(0)

    def more_on_the_sparse_game(samples):
        sparse = gain([sample[:1] for sample in samples])
        return sparse - gain([sample[1:] for sample in samples])

    beats("S1", wide, long)
    every = [config for shape in shapes for config in of_shape[shape]]
    text = f"the best shape at a rate of {default} is about the best of all at its own rate"
    experiment.test("S2", text, loss_of_default, every, side="not less", margin=SMALLEST_EFFECT)
    for name, game in zip(("S3", "S4", "S5"), ("CartPole-v1", "Acrobot-v1", DOORKEY), strict=True):
        beats(name, wide, long, [game], primary=False)
    beats("S6", middle, long)
    beats("S7", middle, wide)
    games = [DOORKEY, *(game for game in experiment.games if game != DOORKEY)]
    text = "32x32 beats 128x8 by more on the sparse game than on the others, each at its own best rate"
    experiment.test("S8", text, more_on_the_sparse_game, of_shape[middle] + of_shape[wide], games)
    for name, rate in zip(("E1", "E2"), rates, strict=True):
        text = f"added after the runs: 128x8 beats 8x128 at a rate of {rate:g}"
        pair = [(*wide, rate), (*long, rate)]
        experiment.test(name, text, lambda samples: iqm(samples[0]) - iqm(samples[1]), pair, primary=False)


def masks_claims(experiment):
    def gain(samples):
        return iqm(samples[0]) - iqm(samples[1])

    pairs = {shape: [(*shape, True), (*shape, False)] for shape in ((8.0, 128.0), (128.0, 8.0))}
    for name, (shape, pair) in zip(("M1", "M2"), pairs.items(), strict=True):
        text = f"masking reset rows improves the final score at {shape[0]:.0f}x{shape[1]:.0f}"
        experiment.test(name, text, gain, pair)
    long, wide = pairs.values()
    text = "the effect is larger at 128x8 than at 8x128"
    experiment.test("M3", text, lambda samples: gain(samples[:2]) - gain(samples[2:]), wide + long)


# ---- pictures --------------------------------------------------------------------------------------------------------
def draw(experiment, title, xs, label_of_x, lines):
    """A panel a game, and one of all: the IQM of each configuration with its 95 % interval.

    xs: values on the axis; lines: {label: [configuration of each x]}.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from look import LOOK

    plt.rcParams.update(LOOK)
    games = [*experiment.games, None]
    figure, axes = plt.subplots(1, len(games), figsize=(2.4 * len(games), 2.6), sharey=True)
    colors = ("#0072b2", "#d55e00", "#009e73")
    for axis, game in zip(axes, games, strict=True):
        for place, (label, configs) in enumerate(lines.items()):
            samples = [experiment.sample(config, [game] if game else experiment.games) for config in configs]
            found = [estimates.interval(iqm, [sample], REPS) for sample in samples]
            places = np.arange(len(xs)) + 0.08 * (place - (len(lines) - 1) / 2)
            values = np.array([estimate.value for estimate in found])
            ends = np.abs(np.array([[estimate.low, estimate.high] for estimate in found]).T - values)
            axis.errorbar(places, values, ends, color=colors[place], marker="o", ms=3, capsize=2, label=label)
        seeds = len(experiment.seeds[game]) if game else min(len(seeds) for seeds in experiment.seeds.values())
        axis.set_title(f"{game or 'all games'} ({seeds} seeds)")
        axis.set_xticks(range(len(xs)), xs, rotation=45)
        axis.set_xlabel(label_of_x)
    axes[0].set_ylabel("final score, IQM\n0: random, 1: reference")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(lines))
    figure.suptitle(title)
    return figure


def draw_shape(experiment):
    shapes = sorted({config[:2] for config in experiment.configs})
    lines = {
        f"learning rate {rate:g}": [(*shape, rate) for shape in shapes]
        for rate in sorted({config[2] for config in experiment.configs})
    }
    names = [f"{n:.0f}×{t:.0f}" for n, t in shapes]
    return draw(experiment, "PPO at one batch of 1024 steps, 100,000 steps", names, "N_envs × N_RO", lines)


def draw_masks(experiment):
    shapes = sorted({config[:2] for config in experiment.configs})
    lines = {
        name: [(*shape, masked) for shape in shapes]
        for name, masked in (("reset rows masked", True), ("trained on", False))
    }
    names = [f"{n:.0f}×{t:.0f}" for n, t in shapes]
    return draw(experiment, "Masking the reset rows, 100,000 steps", names, "N_envs × N_RO", lines)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", choices=sorted(VARIES))
    parser.add_argument("--runs", type=Path, help="the sweep's run directories: reads them and writes scores.csv first")
    parser.add_argument("--out", type=Path, help="where the files are (default: results/EXPERIMENT)")
    args = parser.parse_args(argv)
    out = args.out or HERE / args.experiment
    if args.runs:
        rows = sorted(collect(args.experiment, args.runs), key=lambda row: [str(value) for value in row.values()])
        if not rows:
            rundir.fail(f"--runs {args.runs}: expected finished runs with final games")
        write_csv(out / "scores.csv", rows)
    if not (out / "scores.csv").exists():
        rundir.fail(f"{out / 'scores.csv'} does not exist: expected --runs, or --out with that file")
    experiment = Experiment(read_scores(out / "scores.csv", VARIES[args.experiment]))
    {"shape": shape_claims, "masks": masks_claims}[args.experiment](experiment)
    rows = list(experiment.rows())
    write_csv(out / "verdicts.csv", rows)
    for row in rows:
        print(
            f"{row['name']}{'*' if row['primary'] else ' '} {row['claim']}: {row['value']} "
            f"[{row['low']}, {row['high']}], {row['seeds']} seeds: {row['verdict']}"
            + (f"; Holm p {row['p_holm']}, of the opposite {row['p_holm_opposite']}" if row["primary"] else "")
        )
    print(f"* primary; p below {ALPHA} holds after Holm's correction")
    figure = {"shape": draw_shape, "masks": draw_masks}[args.experiment](experiment)
    figure.savefig(out / "scores.png", dpi=150)


if __name__ == "__main__":
    main()
