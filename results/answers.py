"""The tests of results/CLAIMS.md: final scores of an experiment's runs, the verdict of each claim, and a picture.

    python results/answers.py shape --runs runs/shape_rate    # reads the runs; writes results/shape/scores.csv first
    python results/answers.py shape                           # from scores.csv: verdicts.csv and scores.png
    python results/answers.py masks --runs runs/masks         # likewise the others
    python results/answers.py shape --first-seed 6            # prints the verdicts of the later seeds, writes nothing
    python results/answers.py advise --runs runs/shape_rate --searches figures/advise    # also writes searches.csv

scores.csv has one row a run: game, seed, what the experiment varies, `final_return`, `score` (0: a random policy, 1:
the reference return of scripts/small_worlds.csv), `half_return` (the training return of the last 100 games at half of
the steps) and `commit`. Those of diagnostics and trend also have P1's six diagnostics, each the mean of its `probe/`
points in the second half of the run. That of outer_loop has `ddr`, the last `outer/ddr`, `ddr_mean`, the harmonic mean
of all its points, and, up to each quarter q of a run, `return_q` (the mean of the points of the training return),
`signal_q` and `noise_q` (the sums of `outer/grad_noise_scale/signal` and `/noise`). A verdict is of the interval that
draws n - 1 of n seeds (scripts/estimates.py). verdicts.csv also has, for each difference of scores, the power that its
test had: the chance of *supported* if the true difference is 0.05 (or, of "not below -0.05", if it is 0), and
`detectable`, the difference at which that chance is 0.8. Both take the estimate to be normal, with the standard error
that the interval implies.
"""

import argparse
import csv
import re
import statistics
import sys
from functools import partial
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE.parent / "scripts"))
from analysis import estimates, suite, training_runs  # noqa: E402
from analysis.estimates import (  # noqa: E402
    ALPHA,
    comparable_pairs,
    evidence,
    holm,
    iqm,
    p_values,
    pair_correlation,
    verdict,
)
from analysis.look import COLORS, plt  # noqa: E402

from support import reading  # noqa: E402
from support.arguments import fail  # noqa: E402

NORMAL = statistics.NormalDist()
FEWEST_SEEDS = 5  # fewer give no verdict (CLAIMS.md)
SMALLEST_EFFECT = 0.05
REPS = 4000
VARIES = {
    "shape": ("num_envs", "num_steps", "learning_rate"),
    "masks": ("num_envs", "num_steps", "mask_resets"),
    "schedule": ("num_envs", "num_steps", "schedule"),
    "outer_loop": ("num_envs", "minibatch_size", "learning_rate"),
    "rates": ("num_envs", "minibatch_size", "learning_rate"),
    "switch": ("com_before", "prox_com"),
    "reuse": ("num_envs", "num_steps", "update_epochs"),
    "diagnostics": ("num_envs", "num_steps", "learning_rate"),
    "trend": ("num_envs", "minibatch_size"),
    "advise": ("num_envs", "num_steps", "learning_rate"),
}
QUARTERS = (1, 2, 3, 4)
DOORKEY = "MiniGrid-DoorKey-5x5"
PROBED = {  # P1's diagnostics, and how it says that they move when N grows
    "feature_rank": "rises",
    "dormant_neurons": "falls",
    "weight_norm": "falls",
    "gradient_kurtosis": "falls",
    "policy_variance": "falls",
    "ess": "rises",
}


# ---- from runs to scores.csv -----------------------------------------------------------------------------------------
def collect(experiment, runs_dir):
    """Yields a dict for each finished run below `runs_dir` that played final games."""
    references = training_runs.small_table()
    for run_dir in reading.find_runs(runs_dir):
        done = reading.read_json(run_dir / "done.json")
        if "final_return" not in done:
            continue
        manifest = reading.read_json(run_dir / "manifest.json")
        arguments = manifest["arguments"]
        if experiment == "switch":  # the children only
            if not arguments["resume_from"]:
                continue
            parent = reading.read_json(run_dir.parent / Path(arguments["resume_from"]).name / "manifest.json")
            arguments["com_before"] = parent["arguments"]["prox_com"]
        game = training_runs.game_name(arguments["env_id"])
        low, high = references[game]
        curves = reading.read_curves(run_dir)
        half = up_to(curves, "charts/episodic_return", arguments["total_timesteps"] / 2)
        yield {
            "game": game,
            "seed": arguments["seed"],
            **{name: arguments.get(name) for name in VARIES[experiment]},
            "steps": done["global_step"],
            "final_return": round(done["final_return"], 4),
            "score": round((done["final_return"] - low) / (high - low), 5),
            "half_return": round(float(half[-1]), 4) if len(half) else "",
            **(of_outer_loop(curves, arguments["total_timesteps"]) if experiment == "outer_loop" else {}),
            **(of_probe(curves, arguments["total_timesteps"]) if experiment in ("diagnostics", "trend") else {}),
            "commit": manifest["git"]["commit"][:7],
        }


def read_searches(folder):
    """A dict for each text that scripts/advise.py wrote below `folder`/SEED: what it recommends, and its cost."""
    for path in sorted(path for path in folder.glob("*/advise_*.txt") if path.parent.name.isdecimal()):
        text = path.read_text()
        words = re.search(r"^  python (.*)$", text, re.MULTILINE)[1].split()
        found = dict(zip(words[1::2], words[2::2]))
        yield {
            "game": training_runs.game_name(found["--env-id"]),
            "seed": int(path.parent.name),
            **{name: found["--" + name.replace("_", "-")] for name in VARIES["advise"]},
            "decided": "undecided" not in text,
            "steps": int(re.search(r"^used ([\d,]+) steps", text, re.MULTILINE)[1].replace(",", "")),
        }


def up_to(curves, tag, last):
    """The values of a curve up to the step `last`."""
    steps, values = curves.get(tag, (np.zeros(0), np.zeros(0)))
    return values[steps <= last]


def of_outer_loop(curves, total):
    ddr = curves["outer/ddr"][1]
    columns = {"ddr": float(f"{ddr[-1]:.6g}"), "ddr_mean": float(f"{statistics.harmonic_mean(ddr.tolist()):.6g}")}
    for q in QUARTERS:
        returns = up_to(curves, "charts/episodic_return", total * q / 4)
        columns[f"return_{q}"] = round(float(returns.mean()), 4) if len(returns) else np.nan  # no game has ended yet
        for part in ("signal", "noise"):
            measured = up_to(curves, f"outer/grad_noise_scale/{part}", total * q / 4)
            columns[f"{part}_{q}"] = float(f"{measured.sum():.6g}")
    return columns


def of_probe(curves, total):
    columns = {}
    for name in PROBED:
        steps, values = curves[f"probe/{name}"]
        columns[name] = float(f"{values[steps > total / 2].mean():.6g}")
    return columns


def write_csv(path, rows):
    with open(path, "w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def plain(text):
    """A cell as a number or a boolean, if it is one."""
    try:
        return {"True": True, "False": False}[text] if text in ("True", "False") else float(text)
    except ValueError:
        return text


def read_scores(path, names):
    """{(values of `names`): {game: {seed: the row}}}, with numbers and booleans read as such."""
    scores = {}
    with open(path) as file:
        for cells in csv.DictReader(file):
            row = {name: plain(cell) for name, cell in cells.items()}
            config = tuple(row[name] for name in names)
            scores.setdefault(config, {}).setdefault(row["game"], {})[int(row["seed"])] = row
    return scores


# ---- claims ----------------------------------------------------------------------------------------------------------
class Experiment:
    """Scores of complete seeds, from `first_seed` on: those that every configuration has, in each game.

    scores: see read_scores; folder: where the other files of the experiment are.
    """

    def __init__(self, scores, folder, first_seed=0):
        self.games = sorted({game for by_game in scores.values() for game in by_game})
        self.configs = sorted(scores)
        self.seeds = {
            game: sorted(
                seed
                for seed in set.intersection(*(set(scores[config].get(game, ())) for config in self.configs))
                if seed >= first_seed
            )
            for game in self.games
        }
        for game, seeds in self.seeds.items():
            if not seeds:
                fail(f"{game}: expected a seed with a score in each of the {len(self.configs)} configurations")
        self.scores, self.folder = scores, folder
        self.claims = []

    def sample(self, config, games, column="score"):
        """A sample (scripts/estimates.py): an array (seeds,) a game."""
        return [np.array([self.scores[config][game][seed][column] for seed in self.seeds[game]]) for game in games]

    def test(self, name, claim, statistic, configs, games=None, side="more", margin=0.0, primary=True, columns=()):
        """Judges one claim. statistic: of a list with one sample a configuration.

        columns: of numbers that each run has beside its score. The arrays of the samples then are (1 + columns, seeds).
        """
        games = games or self.games
        samples = [self.sample(config, games) for config in configs]
        if columns:
            samples = [
                [np.stack(of_game) for of_game in zip(*(self.sample(config, games, c) for c in ("score", *columns)))]
                for config in configs
            ]
        found = evidence(lambda *drawn: statistic(drawn), samples, REPS)
        self.add(name, claim, found, self.fewest_seeds(games), side, margin, primary, not columns)

    def fewest_seeds(self, games=None):
        return min(len(self.seeds[game]) for game in games or self.games)

    def add(self, name, claim, found, seeds, side, margin=0.0, primary=True, of_scores=True):
        """Adds the verdict on a claim from its Evidence."""
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
                "of_scores": of_scores,
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
            power = detectable = ""
            if claim["of_scores"]:
                error = (claim["high"] - claim["low"]) / 2 / NORMAL.inv_cdf(1 - ALPHA / 2)
                power = f"{NORMAL.cdf(SMALLEST_EFFECT / error - NORMAL.inv_cdf(1 - ALPHA / 2)):.2f}"
                detectable = f"{error * (NORMAL.inv_cdf(1 - ALPHA / 2) + NORMAL.inv_cdf(0.8)):.3f}"
            yield {
                **{key: claim[key] for key in ("name", "primary", "claim", "seeds")},
                **{key: f"{claim[key]:+.3f}" for key in ("value", "low", "high")},
                "half_width": f"{(claim['high'] - claim['low']) / 2:.3f}",
                "verdict": claim["verdict"],
                "p_holm": chances[0],
                "p_holm_opposite": chances[1],
                "power": power,
                "detectable": detectable,
            }


def gain(samples):
    return iqm(samples[0]) - iqm(samples[1])


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

    def gain_at_own_rate(samples):
        first, second = at_own_rate(samples)
        return first - second

    def beats(name, first, second, games=None, primary=True):
        text = f"{first[0]:.0f}x{first[1]:.0f} beats {second[0]:.0f}x{second[1]:.0f}, each at its own best rate"
        text += f", in {', '.join(games)}" if games else ""
        experiment.test(name, text, gain_at_own_rate, of_shape[first] + of_shape[second], games, primary=primary)

    def loss_of_default(samples):
        own = np.stack(at_own_rate(samples))
        at_default = np.stack([iqm(sample) for sample in samples[rates.index(default) :: len(rates)]])
        return np.take_along_axis(own, at_default.argmax(0)[None], 0)[0] - own.max(0)

    def more_on_the_sparse_game(samples):
        sparse = gain_at_own_rate([sample[:1] for sample in samples])
        return sparse - gain_at_own_rate([sample[1:] for sample in samples])

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
    pairs = {shape: [(*shape, True), (*shape, False)] for shape in ((8.0, 128.0), (128.0, 8.0))}
    for name, (shape, pair) in zip(("M1", "M2"), pairs.items(), strict=True):
        text = f"masking reset rows improves the final score at {shape[0]:.0f}x{shape[1]:.0f}"
        experiment.test(name, text, gain, pair)
    long, wide = pairs.values()
    text = "the effect is larger at 128x8 than at 8x128"
    experiment.test("M3", text, lambda samples: gain(samples[:2]) - gain(samples[2:]), wide + long)


def schedule_claims(experiment):
    fixed = [config for config in experiment.configs if not config[2]]
    named = {schedule_name(config): config for config in experiment.configs}

    def over_the_best(samples):
        return iqm(samples[0]) - np.max([iqm(sample) for sample in samples[1:]], axis=0)

    for name, schedule in (("C1", "growing N"), ("C2", "growing batch"), ("C3", "N led by noise")):
        text = f"{schedule} beats the best fixed shape"
        experiment.test(name, text, over_the_best, [named[schedule], *fixed])
    experiment.test("C4", "growing N beats growing T", gain, [named["growing N"], named["growing T"]])


def schedule_name(config):
    num_envs, num_steps, schedule = config
    return suite.name_of_schedule(schedule) if schedule else f"{num_envs:.0f}×{num_steps:.0f}"


def switch_claims(experiment):
    low, high = sorted({com for _, com in experiment.configs})
    text = f"raising the com from {low:g} to {high:g} ends above staying at {low:g}"
    experiment.test("W1", text, gain, [(low, high), (low, low)])
    text = f"lowering the com from {high:g} to {low:g} ends below staying at {high:g}"
    experiment.test("W2", text, gain, [(high, low), (high, high)], side="less")


def reuse_claims(experiment):
    base, more_envs, more_steps = (8.0, 128.0), (16.0, 128.0), (8.0, 256.0)
    experiment.test("R1", "at 8x128 8 epochs are worse than 4", gain, [(*base, 8.0), (*base, 4.0)], side="less")
    experiment.test("R2", "at 8 epochs 16x128 is better than 8x128", gain, [(*more_envs, 8.0), (*base, 8.0)])
    experiment.test("R3", "at 8 epochs 16x128 is better than 8x256", gain, [(*more_envs, 8.0), (*more_steps, 8.0)])


def moves_with_envs(experiment, names, configs, where, primary):
    """A claim for each diagnostic: how Kendall's tau of N and its values, over pairs that differ in N, lies."""
    tau = pair_correlation(comparable_pairs([config[0] for config in configs]))

    def statistic(samples):  # one a configuration, each an array (2, …, seeds) a game -> one a game, each of C arrays
        return tau(*([array[1] for array in of_game] for of_game in zip(*samples, strict=True)))

    for name, (diagnostic, way) in zip(names, PROBED.items(), strict=True):
        text = f"{diagnostic.replace('_', ' ')} {way} with N{where}"
        side = "more" if way == "rises" else "less"
        experiment.test(name, text, statistic, configs, side=side, primary=primary, columns=(diagnostic,))


def diagnostics_claims(experiment):
    names = [f"D{i}" for i in range(1, 13)]
    for i, rate in enumerate(sorted({config[2] for config in experiment.configs})):
        configs = [config for config in experiment.configs if config[2] == rate]
        moves_with_envs(experiment, names[6 * i : 6 * i + 6], configs, f" at a rate of {rate:g}", i == 0)


def rules(experiment):
    """{(rule, N): configuration} of trend: how the batch is cut into minibatches."""
    found = {}
    for config in experiment.configs:
        num_envs, minibatch_size = config
        if minibatch_size == 64:
            found["64 rows", num_envs] = config
        if minibatch_size == 4 * num_envs:  # a quarter of the batch of T = 16
            found["four", num_envs] = config
    return found


def trend_claims(experiment):
    config_of = rules(experiment)
    numbers = sorted({num_envs for _, num_envs in config_of})

    def beats(name, rule, text, first, second, side="more"):
        text = f"with {'four minibatches' if rule == 'four' else 'minibatches of 64 rows'} {text}"
        experiment.test(name, text, gain, [config_of[rule, first], config_of[rule, second]], side=side)

    beats("T1", "64 rows", f"N = {numbers[-1]:.0f} beats N = {numbers[0]:.0f}", numbers[-1], numbers[0])
    beats("T2", "four", f"N = {numbers[-1]:.0f} is below N = {numbers[-2]:.0f}", numbers[-1], numbers[-2], "less")
    beats("T3", "four", f"N = {numbers[2]:.0f} beats N = {numbers[0]:.0f}", numbers[2], numbers[0])
    configs = [config_of["64 rows", n] for n in numbers[2:]]
    moves_with_envs(experiment, [f"T{i}" for i in range(4, 10)], configs, " from 64 to 1024, 64 rows", False)


def advise_claims(experiment):
    """V1: the score of the recommended cell minus that of the best cell of the grid, the mean over the searches."""
    with open(experiment.folder / "searches.csv") as file:
        searches = list(csv.DictReader(file))
    picks = {game: [] for game in experiment.games}
    for row in searches:
        config = tuple(float(row[name]) for name in VARIES["advise"])
        picks[row["game"]].append(experiment.configs.index(config))

    def regret(*samples):
        by_game = []
        for *cells, picked in zip(*samples, strict=True):
            means = np.stack([cell.mean(-1) for cell in cells])  # (cells, …)
            by_game.append(np.take_along_axis(means, np.moveaxis(picked, -1, 0), 0).mean(0) - means.max(0))
        return np.mean(by_game, axis=0)

    for name, games in zip(("V1", "V2", "V3"), [experiment.games, *([game] for game in experiment.games)]):
        samples = [experiment.sample(config, games) for config in experiment.configs]
        searched = [np.array(picks[game]) for game in games]
        seeds = min(*map(len, searched), experiment.fewest_seeds(games))
        text = f"the recommended cell is less than {SMALLEST_EFFECT} below the best of the grid"
        text += f", in {', '.join(games)}" if name != "V1" else ""
        found = evidence(regret, [*samples, searched], REPS)
        experiment.add(name, text, found, seeds, "not less", SMALLEST_EFFECT, name == "V1")


WAYS = ("more minibatches", "bigger", "bigger, sqrt rate")


def ways(experiment):
    """{(way, N): configuration} of outer_loop: how the batch of N environments is cut into minibatches."""
    by_size = {num_envs: {} for num_envs, *_ in experiment.configs}
    for config in experiment.configs:
        by_size[config[0]].setdefault(config[1], []).append(config)
    (base,) = (config for config in experiment.configs if len(by_size[config[0]]) == 1)
    found = {}
    for num_envs, minibatch_size, rate in experiment.configs:
        config = (num_envs, minibatch_size, rate)
        way = WAYS[0] if minibatch_size == base[1] else WAYS[1] if rate == base[2] else WAYS[2]
        for name in WAYS if config == base else (way,):
            found[name, num_envs] = config
    return found


def outer_loop_claims(experiment):
    config_of = ways(experiment)
    fewest, most = min(n for _, n in config_of), max(n for _, n in config_of)

    def beats(name, text, first, second, num_envs):
        experiment.test(name, text, gain, [config_of[first, num_envs], config_of[second, num_envs]])

    more, bigger, sqrt = WAYS
    beats("O1", f"at N = {most:.0f} more minibatches beat bigger ones", more, bigger, most)
    beats("O2", f"at N = {most:.0f} more minibatches beat bigger ones with the square-root rule", more, sqrt, most)
    text = "the score is an inverted U in log DDR"
    experiment.test("O3", text, curvature, experiment.configs, side="less", columns=("ddr",))
    beats("O5", f"at N = {fewest:.0f} minibatches of the base's size beat smaller ones", more, bigger, fewest)
    text = "the top of the U is at a higher DDR at the end than at a quarter of the steps"
    names = ("ddr_mean", "return_1", "return_4")
    experiment.test("O4", text, move_of_the_top, experiment.configs, primary=False, columns=names)
    experiment.claims.append(noise_against_best(experiment, {n: config_of[more, n] for way, n in config_of}))


def curvature(samples):
    """The coefficient of the square in a fit of the score on (1, z, z^2), z = log DDR, the mean over games: (…,).

    samples: one a configuration, each a list with an array (2, …, seeds) a game: score and DDR.
    """
    by_game = []
    for arrays in zip(*samples, strict=True):
        scores, ddr = np.concatenate(arrays, axis=-1)
        z = np.log(ddr) - np.log(ddr).mean(-1, keepdims=True)
        design = np.stack([np.ones_like(z), z, z**2], -1)  # (…, runs, 3)
        gram = design.swapaxes(-1, -2) @ design
        by_game.append(np.linalg.solve(gram, (design * scores[..., None]).sum(-2)[..., None])[..., 2, 0])
    return np.mean(by_game, axis=0)


def move_of_the_top(samples):
    """log DDR of the configuration with the largest mean return at the end minus that of the best early: (…,).

    samples: one a configuration, each a list with an array (4, …, seeds) a game: score, DDR, and the early and the last
    return, NaN where no game has ended. The mean over games.
    """
    by_game = []
    for arrays in zip(*samples, strict=True):
        _, ddr, *returns = np.stack(arrays, axis=1)  # each (configurations, …, seeds)
        z = np.log(ddr).mean(-1)
        ended = [~np.isnan(array) for array in returns]
        means = [
            np.where(some.any(-1), np.where(some, array, 0).sum(-1) / np.maximum(some.sum(-1), 1), -np.inf)
            for array, some in zip(returns, ended, strict=True)
        ]
        early, last = (np.take_along_axis(z, mean.argmax(0)[None], 0)[0] for mean in means)
        by_game.append(last - early)
    return np.mean(by_game, axis=0)


def ways_at_rates(experiment):
    """{way: {learning rate: configuration}} of rates."""
    found = {"base, 8 environments": {}, "more minibatches, 128": {}, "bigger minibatches, 128": {}}
    base, more, bigger = found.values()
    for config in experiment.configs:
        num_envs, minibatch_size, rate = config
        way = base if num_envs == 8 else more if minibatch_size == 64 else bigger
        way[rate] = config
    return found


def rates_claims(experiment):
    base, more, bigger = ways_at_rates(experiment).values()

    def best(samples):
        return np.max([iqm(sample) for sample in samples], axis=0)

    def best_over_best(samples, number):
        """number: of the samples of the first way."""
        return best(samples[:number]) - best(samples[number:])

    def best_of_base(samples):
        """At the rate that is best for the base: the second part of the samples minus the best of the third."""
        rate = np.argmax([iqm(sample) for sample in samples[: len(base)]], axis=0)
        there = np.stack([iqm(sample) for sample in samples[len(base) : 2 * len(base)]])
        return np.take_along_axis(there, rate[None], 0)[0] - best(samples[2 * len(base) :])

    def configs(*of_ways):
        return [config for way in of_ways for config in way.values()]

    text = "at N = 128 more minibatches beat bigger ones, each at its own best rate"
    experiment.test("U1", text, partial(best_over_best, number=len(more)), configs(more, bigger))
    about = {"side": "not less", "margin": SMALLEST_EFFECT}
    text = "at N = 128 more minibatches are about as good as the base, each at its own best rate"
    experiment.test("U2", text, partial(best_over_best, number=len(more)), configs(more, base), **about)
    square_root = {rate: bigger[4 * rate] for rate in base}
    text = "at N = 128 the best rate of the base times 4 is about the best for bigger minibatches"
    experiment.test("U3", text, best_of_base, configs(base, square_root, bigger), **about)
    text = "at N = 128 the best rate of the base is about the best for more minibatches"
    experiment.test("U4", text, best_of_base, configs(base, {rate: more[rate] for rate in base}, more), **about)


def noise_against_best(experiment, config_of):
    """O6: over cells of game x quarter of the run, the noise scale in environments and the N of the largest return."""
    from scipy.stats import spearmanr

    at, num_steps = sorted(config_of)[-2], 32
    scales, best = [], []
    for game in experiment.games:
        for q in QUARTERS:
            noise, signal = (experiment.sample(config_of[at], [game], f"{part}_{q}")[0] for part in ("noise", "signal"))
            scales.append(noise.sum() / signal.sum() / num_steps if signal.sum() > 0 else np.inf)
            returns = {n: experiment.sample(config, [game], f"return_{q}")[0] for n, config in config_of.items()}
            means = {n: np.nanmean(values) for n, values in returns.items() if not np.isnan(values).all()}
            best.append(max(means, key=means.__getitem__))
            print(f"  {game}, quarter {q}: noise scale {scales[-1]:.3g} environments, best N {best[-1]:.0f}")
    ranks = [float(np.searchsorted(sorted(scales), scale)) for scale in scales]
    found = float(spearmanr(ranks, best).statistic)
    rng = np.random.default_rng(0)
    by_chance = np.array([spearmanr(ranks, rng.permutation(best)).statistic for _ in range(REPS)])
    p = [(1 + (by_chance >= found).sum()) / (REPS + 1), (1 + (by_chance <= found).sum()) / (REPS + 1)]
    decided = "supported" if p[0] < ALPHA else "not supported" if p[1] < ALPHA else "undecided"
    return {
        "name": "O6",
        "primary": False,
        "claim": f"the noise scale predicts the best N: rank correlation over {len(best)} cells; p {p[0]:.3f}",
        "seeds": experiment.fewest_seeds(),
        "value": found,
        "low": float(np.percentile(by_chance, 2.5)),  # of the permutations, not of the value
        "high": float(np.percentile(by_chance, 97.5)),
        "verdict": decided,
        "p": p,
        "of_scores": False,
    }


# ---- pictures --------------------------------------------------------------------------------------------------------
NAMES = {"dormant_neurons": "dormant neurons, %", "ess": "ESS, % of the rows"}


def errorbar(axis, places, found, color, label, ls="-"):
    """Draws Estimates, one a place."""
    values = np.array([estimate.value for estimate in found])
    ends = np.abs(np.array([[estimate.low, estimate.high] for estimate in found]).T - values)
    axis.errorbar(places, values, ends, color=color, marker="o", ms=3, capsize=2, ls=ls, label=label)


def draw(experiment, title, xs, label_of_x, lines):
    """A panel a game, and one of all: the IQM of each configuration with its 95 % interval.

    xs: values on the axis; lines: {label: [configuration of each x, or None]}. Values of a single line are in no order.
    """
    games = [*experiment.games, None] if len(experiment.games) > 1 else experiment.games
    figure, axes = plt.subplots(1, len(games), figsize=(max(5.0, 2.4 * len(games)), 2.6), sharey=True, squeeze=False)
    for axis, game in zip(axes[0], games, strict=True):
        for place, (label, configs) in enumerate(lines.items()):
            there = [i for i, config in enumerate(configs) if config]
            samples = [experiment.sample(configs[i], [game] if game else experiment.games) for i in there]
            found = [estimates.interval(iqm, [sample], REPS) for sample in samples]
            places = np.array(there) + 0.08 * (place - (len(lines) - 1) / 2)
            errorbar(axis, places, found, COLORS[place], label, "-" if len(lines) > 1 else "")
        seeds = len(experiment.seeds[game]) if game else experiment.fewest_seeds()
        axis.set_title(f"{game or 'all games'} ({seeds} seeds)")
        axis.set_xticks(range(len(xs)), xs, rotation=45)
        axis.set_xlabel(label_of_x)
    axes[0, 0].set_ylabel("final score, IQM\n0: random, 1: reference")
    if len(lines) > 1:
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(lines))
    figure.suptitle(title)
    return figure


def draw_shape(experiment, title="PPO at one batch of 1024 steps, 100,000 steps"):
    shapes = sorted({config[:2] for config in experiment.configs})
    lines = {
        f"learning rate {rate:g}": [(*shape, rate) for shape in shapes]
        for rate in sorted({config[2] for config in experiment.configs})
    }
    names = [f"{n:.0f}×{t:.0f}" for n, t in shapes]
    return draw(experiment, title, names, "N_envs × N_RO", lines)


def draw_masks(experiment):
    shapes = sorted({config[:2] for config in experiment.configs})
    lines = {
        name: [(*shape, masked) for shape in shapes]
        for name, masked in (("reset rows masked", True), ("trained on", False))
    }
    names = [f"{n:.0f}×{t:.0f}" for n, t in shapes]
    return draw(experiment, "Masking the reset rows, 100,000 steps", names, "N_envs × N_RO", lines)


def draw_schedule(experiment):
    configs = sorted(experiment.configs, key=lambda config: (bool(config[2]), config))
    names = [schedule_name(config) for config in configs]
    return draw(experiment, "N and T that change in training, 100,000 steps", names, "", {"": configs})


def draw_outer_loop(experiment):
    config_of = ways(experiment)
    numbers = sorted({num_envs for _, num_envs in config_of})
    lines = {way: [config_of[way, n] for n in numbers] for way in WAYS}
    names = [f"{n:.0f}" for n in numbers]
    return draw(experiment, "Three ways to use N environments at T = 32, 100,000 steps", names, "N_envs", lines)


def draw_rates(experiment):
    found = ways_at_rates(experiment)
    rates = sorted({rate for way in found.values() for rate in way})
    lines = {name: [way.get(rate) for rate in rates] for name, way in found.items()}
    return draw(experiment, "Each way at several rates, T = 32, 100,000 steps", rates, "learning rate", lines)


def draw_switch(experiment):
    coms = sorted({com for _, com in experiment.configs})
    lines = {f"com {com:g} until the switch": [(com, after) for after in coms] for com in coms}
    title = "The age of the proximal policy, changed at 50,000 of 100,000 steps"
    return draw(experiment, title, [f"{com:g}" for com in coms], "com after the switch", lines)


def draw_reuse(experiment):
    epochs = sorted({config[2] for config in experiment.configs})
    lines = {
        f"{n:.0f}×{t:.0f}": [(n, t, count) for count in epochs]
        for n, t in sorted({config[:2] for config in experiment.configs})
    }
    return draw(experiment, "More epochs, 100,000 steps", [f"{count:.0f}" for count in epochs], "epochs", lines)


def draw_diagnostics(experiment):
    lines = {
        f"learning rate {rate:g}": [config for config in experiment.configs if config[2] == rate]
        for rate in sorted({config[2] for config in experiment.configs})
    }
    seeds = experiment.fewest_seeds()
    title = f"P1's diagnostics at one batch of 1024 steps: equal rows and gradient steps, {seeds} seeds"
    return draw_probes(experiment, title, lines)


def draw_probes(experiment, title, lines):
    """A row a game, a column a diagnostic: the mean over the seeds against N, with its 95 % interval."""
    figure, axes = plt.subplots(
        len(experiment.games), len(PROBED), figsize=(1.8 * len(PROBED), 1.6 * len(experiment.games)), sharex=True
    )
    for row, game in zip(axes, experiment.games, strict=True):
        for axis, name in zip(row, PROBED, strict=True):
            for color, (label, configs) in zip(COLORS, lines.items()):
                samples = [experiment.sample(config, [game], name) for config in configs]
                found = [estimates.interval(estimates.mean, [sample], REPS) for sample in samples]
                errorbar(axis, [config[0] for config in configs], found, color, label)
            numbers = sorted({config[0] for configs in lines.values() for config in configs})[::2]
            axis.set_xscale("log", base=4)
            axis.set_xticks(numbers, [f"{n:.0f}" for n in numbers])
            axis.minorticks_off()
            axis.ticklabel_format(axis="y", useOffset=False)
            if not np.ptp(axis.dataLim.intervaly):
                axis.set_ylim(-0.1, 1)
        row[0].set_ylabel(game)
    for axis, (name, way) in zip(axes[0], PROBED.items(), strict=True):
        axis.set_title(f"{NAMES.get(name, name.replace('_', ' '))}\nP1: {way}")
    figure.supxlabel("N_envs")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower right", ncols=len(lines))
    figure.suptitle(title)
    return figure


def draw_trend(experiment):
    config_of = rules(experiment)
    numbers = sorted({num_envs for _, num_envs in config_of})
    lines = {
        name: [config_of[rule, n] for n in numbers]
        for rule, name in (("four", "four minibatches"), ("64 rows", "minibatches of 64 rows"))
    }
    return draw(experiment, "PPO at T = 16, 163,840 steps", [f"{n:.0f}" for n in numbers], "N_envs", lines)


EXPERIMENTS = {  # what judges one, and what draws it
    "shape": (shape_claims, draw_shape),
    "masks": (masks_claims, draw_masks),
    "schedule": (schedule_claims, draw_schedule),
    "outer_loop": (outer_loop_claims, draw_outer_loop),
    "rates": (rates_claims, draw_rates),
    "switch": (switch_claims, draw_switch),
    "reuse": (reuse_claims, draw_reuse),
    "diagnostics": (diagnostics_claims, draw_diagnostics),
    "trend": (trend_claims, draw_trend),
    "advise": (advise_claims, partial(draw_shape, title="The exhaustive grid, 100,000 steps")),
}


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", choices=sorted(VARIES))
    parser.add_argument("--runs", type=Path, help="the sweep's run directories: reads them and writes scores.csv first")
    parser.add_argument("--searches", type=Path, help="of advise: SEED/advise_GAME.txt below it; writes searches.csv")
    parser.add_argument("--out", type=Path, help="where the files are (default: results/EXPERIMENT)")
    parser.add_argument("--first-seed", type=int, default=0, help="leaves out earlier seeds, and writes nothing")
    args = parser.parse_args(argv)
    out = args.out or HERE / args.experiment
    out.mkdir(exist_ok=True)
    if args.runs:
        rows = sorted(collect(args.experiment, args.runs), key=lambda row: [str(value) for value in row.values()])
        if not rows:
            fail(f"--runs {args.runs}: expected finished runs with final games")
        write_csv(out / "scores.csv", rows)
    if not (out / "scores.csv").exists():
        fail(f"{out / 'scores.csv'} does not exist: expected --runs, or --out with that file")
    if args.searches:
        searches = list(read_searches(args.searches)) if args.experiment == "advise" else []
        if not searches:
            fail(f"--searches {args.searches}: expected advise, and SEED/advise_GAME.txt below the directory")
        write_csv(out / "searches.csv", searches)
    experiment = Experiment(read_scores(out / "scores.csv", VARIES[args.experiment]), out, args.first_seed)
    judge, draw_experiment = EXPERIMENTS[args.experiment]
    judge(experiment)
    rows = list(experiment.rows())
    for row in rows:
        print(
            f"{row['name']}{'*' if row['primary'] else ' '} {row['claim']}: {row['value']} "
            f"[{row['low']}, {row['high']}], {row['seeds']} seeds: {row['verdict']}"
            + (f"; power {row['power']}, detectable {row['detectable']}" if row["power"] else "")
            + (f"; Holm p {row['p_holm']}, of the opposite {row['p_holm_opposite']}" if row["primary"] else "")
        )
    print(f"* primary; p below {ALPHA} holds after Holm's correction")
    if args.first_seed:
        return
    write_csv(out / "verdicts.csv", rows)
    figure = draw_experiment(experiment)
    figure.savefig(out / "scores.png", dpi=150)


if __name__ == "__main__":
    main()
