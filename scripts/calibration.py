"""How often each kind of claim is wrong, and how often it finds what is there: simulated sweeps with known answers.

    python scripts/calibration.py                        # the table of docs/reproducing.md, some 20 CPU-minutes
    python scripts/calibration.py --kinds "the best of"  # the kinds whose name has these words

Every kind of claim that a program of this repository judges is tried with its own functions, on scores that are drawn
from the committed results/*/scores.csv. In a null all configurations of a game get their scores from one common pool:
all runs of an experiment in that game, or those of one of its configurations, which each simulated sweep chooses anew.
A claim with a margin is tried where the truth lies exactly at the margin, so that no verdict is right. Counted, for 5,
10 and 20 seeds, are the shares of simulated sweeps in which the claim is *supported* and in which it is *contradicted*,
in percent, the largest over the pools. Nominal is 2.5 on each side.

Power: the share that supports a claim which is true by 0.1 or by 0.2 of a score (of one with a margin: by so much from
the margin's edge; of a correlation: of the range of the quantity), with ten seeds; the range over the pools.
"""

from launching.root import ROOT

import csv
import sys
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Tuple

import numpy as np
import pandas as pd
from advise import level_with_best
from analysis import comparisons
from analysis.comparisons import Tested, judge, judge_each
from analysis.estimates import CONTRADICTED, SUPPORTED, UNDECIDED, Estimate, evidence, iqm, mean, several
from plasticity import spearman, spearman_within
from studies.gradient_claims import NO_BIAS, bias_difference, relative_bias
from umap_coverage import slope_against_log2

from support import arguments
from support.arguments import Count, Seed

SEEDS = (5, 10, 20)
EFFECTS = (0.1, 0.2)
LEVELS = (4, 8, 16, 32, 64, 128, 256)  # N of shape's seven configurations
MARGIN = 0.05  # in results/
SHARE = 0.1  # of the base's score: the margin in the figures of the papers
DIAGNOSTICS = ("feature_rank", "weight_norm", "gradient_kurtosis", "policy_variance", "ess")  # no one has dormant units


@dataclass
class Args:
    kinds: Tuple[str, ...] = ()  # words: the kinds whose name has one of them; all if empty
    simulations: Count = 1000  # simulated sweeps for each number
    reps: Count = 400  # bootstrap resamples
    seed: Seed = 0  # of everything


# ---- pools of scores -------------------------------------------------------------------------------------------------
def read_rows(experiment):
    """{game: {configuration: [row, ...]}} of results/EXPERIMENT/scores.csv: what it varies stands before `steps`."""
    found = defaultdict(lambda: defaultdict(list))
    with open(ROOT / "results" / experiment / "scores.csv", newline="") as file:
        for row in csv.DictReader(file):
            names = list(row)
            varied = names[names.index("seed") + 1 : names.index("steps")]
            found[row["game"]][tuple(row[name] for name in varied)].append(row)
    return found


def read_pools():
    """{name: function(rng) -> one array of scores a game}."""
    cells = {}
    for experiment in ("shape", "masks", "outer_loop", "trend", "schedule", "switch", "reuse"):
        cells[experiment] = [
            [np.array([float(row["score"]) for row in rows]) for rows in of_game.values()]
            for _, of_game in sorted(read_rows(experiment).items())
        ]
    pools = {}
    for experiment, games in cells.items():
        pools[experiment] = lambda rng, games=games: [np.concatenate(game) for game in games]
        pools[f"{experiment}, cells"] = lambda rng, games=games: [game[rng.randint(len(game))] for game in games]
    every = [game for games in cells.values() for game in games]

    def some(rng, count):
        """A configuration of each of so many games, whichever experiment they are of."""
        chosen = [every[i] for i in rng.randint(len(every), size=count)]
        return [game[rng.randint(len(game))] for game in chosen]

    return {**pools, "one game": partial(some, count=1), "ten games": partial(some, count=10)}


class Trial:
    """One simulated sweep: `pool` has the scores of each game, from which every configuration draws its own."""

    def __init__(self, rng, pool, seeds, reps):
        self.rng, self.pool, self.seeds, self.reps = rng, pool, seeds, reps

    def sample(self, shift=0.0):
        """The scores of a configuration, shifted: one array (seeds,) a game."""
        return [self.rng.choice(scores, self.seeds) + shift for scores in self.pool]

    def samples(self, *shifts):
        return [self.sample(shift) for shift in shifts]

    def judge(self, statistic, samples, side="more", margin=0.0):
        return judge(evidence(statistic, samples, self.reps), side, margin)

    def judge_each(self, statistic, samples, side="more", margin=0.0):
        return judge_each(several(statistic, samples, self.reps), side, margin)


# ---- kinds of claims: functions (trial, effect) -> Tested ------------------------------------------------------------
def difference(trial, effect):
    return trial.judge(comparisons.difference, trial.samples(effect, 0))


def difference_of_iqms(trial, effect):
    return trial.judge(partial(comparisons.difference, pool=iqm), trial.samples(effect, 0))


def gain_difference(trial, effect):
    return trial.judge(comparisons.gain_difference, trial.samples(effect, 0, 0, 0))


def not_less(trial, effect):
    return trial.judge(comparisons.difference, trial.samples(effect - MARGIN, 0), "not less", MARGIN)


def not_less_than_base(trial, effect, side="not less"):
    """With the margin of the figures, a share of the base's score as it is measured."""
    true = SHARE * np.mean([scores.mean() for scores in trial.pool])
    shift = effect - true if side == "not less" else max(0.0, true - effect)
    other, base = trial.samples(shift, 0)
    margin = SHARE * abs(float(mean(base)))
    return trial.judge(comparisons.difference, [other, base], side, margin)


def little(trial, effect):
    """Power: of no difference at all."""
    return not_less_than_base(trial, effect, "little")


def each_of_three(trial, effect):
    return trial.judge_each(comparisons.over_each, trial.samples(effect, 0, 0, 0))


def each_of_six(trial, effect):
    return trial.judge_each(comparisons.over_each, trial.samples(effect, *[0] * 6))


def about_the_best(trial, effect):
    """One of four rates that other runs have chosen, against the other three."""
    return trial.judge_each(comparisons.over_each, trial.samples(effect - MARGIN, 0, 0, 0), "not less", MARGIN)


def best_of(trial, first, second, side="more", margin=0.0):
    """comparisons.judge_best without the rule of the edge, of samples with these shifts."""
    samples = trial.samples(*first, *second)
    return comparisons._judge_maxima(samples, len(first), side, margin, mean, trial.reps, 0)


def best_flat(trial, effect):
    """Four rates against six, all equal."""
    return best_of(trial, [effect] * 4, [0] * 6)


def best_peaked(trial, effect):
    """One good rate of four against four equal ones."""
    return best_of(trial, [effect, *[effect - 0.3] * 3], [0] * 4)


def best_of_peaks(trial, effect):
    """As the programs do it: two configurations, whose scores fall by 0.15 a step from the best of five rates."""
    falls = {rate: -0.15 * abs(place - 2) for place, rate in enumerate((1, 2, 4, 8, 16))}
    rows = [{rate: trial.sample(fall + shift) for rate, fall in falls.items()} for shift in (effect, 0)]
    return comparisons.judge_best(("one", rows[0]), ("other", rows[1]), reps=trial.reps)


def best_below_margin(trial, effect):
    return best_of(trial, [effect - MARGIN] * 4, [0] * 4, "not less", MARGIN)


def best_shape_stays(trial, effect):
    """Seven shapes at three rates. The first is clearly the best at the default; the others pass it at the next one."""
    grid = {
        str(i): {1: trial.sample(-0.5), 2: trial.sample(-0.6), 4: trial.sample(), 8: trial.sample(-0.5)}
        for i in range(6)
    }
    first = {1: -0.5, 2: effect - MARGIN, 4: effect - MARGIN - 0.2, 8: -0.5}
    grid["first"] = {rate: trial.sample(shift) for rate, shift in first.items()}
    return comparisons.judge_default(grid, 2, MARGIN, reps=trial.reps)


def search(trial, effect):
    """Of 21 cells all but the first are equal; the searches pick the first."""
    cells = trial.samples(effect - MARGIN, *[0] * 20)
    picks = [np.zeros(trial.seeds, int) for _ in trial.pool]
    return comparisons.judge_choice(cells, picks, MARGIN, reps=trial.reps)


def decided_best(trial, effect):
    """scripts/advise.py: the best of four candidates is told apart from each of the others; none is, or the first."""
    scores = {name: trial.sample(effect * (name == 0))[0] for name in range(4)}
    results = dict(sorted(scores.items(), key=lambda item: -item[1].mean()))
    tied = level_with_best({name: SimpleNamespace(scores=x) for name, x in results.items()})
    word = UNDECIDED if tied else SUPPORTED if next(iter(results)) == 0 else CONTRADICTED
    return Tested(Estimate(np.nan, np.nan, np.nan), word)


def trend(trial, effect):
    samples = trial.samples(*effect * np.linspace(0, 1, len(LEVELS)))
    groups = [list(of_game) for of_game in zip(*samples)]
    return comparisons.judge_trend(LEVELS, groups, "more", reps=trial.reps)


def slope(trial, effect):
    """scripts/umap_coverage.py: the least-squares slope against log2 N."""
    return trial.judge(slope_against_log2(LEVELS), trial.samples(*effect * np.linspace(0, 1, len(LEVELS))))


GRID = np.linspace(-1, 1, 7)


def places(trial):
    """log DDR of seven configurations, a factor of ten apart at the ends."""
    return [[np.full(trial.seeds, x / 2) + trial.rng.normal(0, 0.02, trial.seeds) for _ in trial.pool] for x in GRID]


def inverted_u(trial, effect):
    """Effect: how far both ends of seven configurations are below the top."""
    return trial.judge(comparisons.curvature, [*trial.samples(*-effect * GRID**2), *places(trial)], "less")


def best_place_moves(trial, effect):
    """The best of seven configurations at two budgets: by `effect` the third, and then the fifth."""
    halves = [[*trial.samples(*effect * (np.arange(7) == top)), *places(trial)] for top in (2, 4)]

    def shift(*drawn):
        return comparisons.best_place(*drawn[14:]) - comparisons.best_place(*drawn[:14])

    return trial.judge(shift, [*halves[0], *halves[1]])


def noise_against_best(trial, effect, games=8):
    """The noise scale and the best of four N in each quarter of a run, by the mean return so far; each game's own best
    N is better by `effect`, and the larger the noisier the game is."""
    noise = np.arange(games)[:, None] + np.linspace(0, 1, 4)
    best = []
    for game in range(games):
        scores = trial.rng.choice(
            trial.pool[trial.rng.randint(len(trial.pool))], (4, trial.seeds, 4)
        )  # N, seeds, quarters
        scores = scores + effect * (np.arange(4) == game * 4 // games)[:, None, None]
        so_far = scores.cumsum(-1) / np.arange(1, 5)
        best.append(so_far.mean(1).argmax(0))
    return comparisons.judge_ranks(noise, np.array(best, float))


# ---- kinds whose data are no scores ----------------------------------------------------------------------------------
class Diagnostics:
    """The runs of shape at the default rate: each draws its diagnostic from the ten runs of its game that are
    nearest in score, so that it follows the score, and N only through the score."""

    def __init__(self):
        self.games = []
        for of_game in read_rows("shape").values():
            rows = sorted((row for rows in of_game.values() for row in rows), key=lambda row: float(row["score"]))
            scores = np.array([float(row["score"]) for row in rows])
            values = {name: np.array([float(row[name]) for row in rows]) for name in DIAGNOSTICS}
            default = [float(row["learning_rate"]) == 2.5e-4 for row in rows]
            at = [[i for i, row in enumerate(rows) if default[i] and float(row["num_envs"]) == N] for N in LEVELS]
            self.games.append((scores, values, at))

    def __call__(self, trial, effect):
        name = DIAGNOSTICS[trial.rng.randint(len(DIAGNOSTICS))]
        levels = [[np.full(trial.seeds, N) for N in LEVELS]] * len(self.games)
        values, given = [], []
        for scores, of_runs, at in self.games:
            size = np.ptp(np.percentile(of_runs[name], [5, 95]))
            values.append([])
            given.append([])
            for place, runs in enumerate(at):
                drawn = trial.rng.choice(runs, trial.seeds)
                near = np.clip(drawn - 5, 0, len(scores) - 10) + trial.rng.randint(10, size=trial.seeds)
                values[-1].append(of_runs[name][near] + effect * size * place / (len(LEVELS) - 1))
                given[-1].append(scores[drawn])
        return judge(comparisons.partial_correlation(levels, values, given, reps=trial.reps), "more")


class Plasticity:
    """The slowdown of runs and a diagnostic that has nothing to do with it, drawn each on its own, in a game or, with
    `within`, in each of its configurations."""

    def __init__(self, within):
        self.within, table = within, pd.read_csv(ROOT / "results/plasticity/plasticity.csv")
        pair = ["probe/weight_norm", "slowdown"]
        self.games = [
            [rows[pair].to_numpy().T for _, rows in of_game.groupby("configuration")]
            for _, of_game in table.dropna(subset=pair).groupby("game")
        ]

    def __call__(self, trial, effect):
        sample = []
        for cells in self.games:
            pools = cells if self.within else [np.concatenate(cells, axis=1)] * len(cells)
            drawn = [np.stack([trial.rng.choice(values, trial.seeds) for values in pool]) for pool in pools]
            x, y = np.concatenate(drawn, axis=1)
            y = y + effect * np.ptp(np.percentile(y, [5, 95])) * x.argsort().argsort() / x.size
            sample.append(np.stack([x, y, np.repeat(np.arange(len(cells)), trial.seeds)]))
        return trial.judge(spearman_within if self.within else spearman, [sample])


class Gradients:
    """The squares of bias and gradient of scripts/gradient_correlation.py; a seed is a mean over as many policies."""

    def __init__(self):
        table = pd.read_csv(ROOT / "results/gradient_correlation/bias.csv")
        self.policies = len(table[(table["T"] == 256) & (table["lambda"] == 1)]) // table["seed"].nunique()
        self.rows = {
            key: rows[["bias2", "truth2"]].to_numpy().T for key, rows in table.groupby(["T", "lambda"], sort=False)
        }

    def squares(self, trial, key, shift=0.0):
        """(2, seeds) of a condition (T, lambda), its squared bias shifted."""
        rows = self.rows[key]
        drawn = rows[:, trial.rng.randint(rows.shape[1], size=(trial.seeds, self.policies))].mean(-1)
        return drawn + [[shift], [0]]

    def mean(self, trial, effect):
        """The logarithm of a ratio, as of two variances: policies of one condition, centred."""
        logs = np.log(self.rows[256, 1][1])
        values = trial.rng.choice(logs - logs.mean(), (trial.seeds, self.policies)).mean(-1)
        return trial.judge(lambda sample: sample[0].mean(-1), [[values + effect]])

    def no_bias(self, trial, effect):
        """Relative bias of exactly NO_BIAS, or none."""
        bias2, truth2 = self.rows[256, 1].mean(-1)
        true = max(0.0, NO_BIAS - effect) ** 2 * truth2
        squares = self.squares(trial, (256, 1), true - bias2)
        return trial.judge(lambda sample: relative_bias(sample[0]), [[squares]], "little", NO_BIAS)

    def less_bias(self, trial, effect):
        """Two conditions of equal bias, or the first with a relative bias that is larger by `effect`."""
        bias2, truth2 = self.rows[64, 0.95].mean(-1)
        larger = (np.sqrt(max(bias2, 0) / truth2) + effect) ** 2 * truth2 - bias2 if effect else 0.0
        squares = np.concatenate([self.squares(trial, (64, 0.95), shift) for shift in (larger, 0)])
        return trial.judge(lambda sample: bias_difference(sample[0]), [[squares]])


def share(trial, effect):
    """The interval of the share of solved runs: wrong where it lies above or below the true one."""
    scores = trial.pool[0] + effect
    true = float(np.mean(scores >= comparisons.SOLVED))
    _, low, high = comparisons.share_solved(trial.rng.choice(scores, trial.seeds))
    word = SUPPORTED if low > true else CONTRADICTED if high < true else UNDECIDED
    return Tested(Estimate(np.nan, np.nan, np.nan), word)


SOME = ["shape", "masks", "outer_loop, cells", "trend, cells"]
TWO = ["shape", "outer_loop, cells"]
gradients = Gradients()
KINDS = {  # name: (function, pools)
    "difference of means": (difference, [*SOME, "one game", "ten games"]),
    "difference of IQMs": (difference_of_iqms, ["one game", "shape", "ten games"]),
    "difference of gains": (gain_difference, [*SOME, "one game", "ten games"]),
    "not below by 0.05": (not_less, [*SOME, "one game", "ten games"]),
    "not below by a tenth of the base": (not_less_than_base, ["one game", "shape", "ten games"]),
    "changes little, by a tenth of the base": (little, ["one game", "shape", "ten games"]),
    "beats each of three": (each_of_three, SOME),
    "beats each of six": (each_of_six, TWO),
    "about the best of four (each, 0.05)": (about_the_best, SOME),
    "the best of 4 rates beats the best of 6, flat": (best_flat, SOME),
    "the best of 4 rates beats the best of 4, peaked and flat": (best_peaked, SOME),
    "the best of 5 rates beats the best of 5, both peaked": (best_of_peaks, SOME),
    "the best of rates is not below by 0.05": (best_below_margin, SOME),
    "the best shape at the default rate stays": (best_shape_stays, TWO),
    "regret of a search is below 0.05": (search, TWO),
    "advise: the best of four is decided": (decided_best, ["one game"]),
    "trend in N (τ, no turning back)": (trend, [*TWO, "one game"]),
    "slope against log2 N": (slope, [*TWO, "one game"]),
    "inverted U": (inverted_u, [*TWO, "one game"]),
    "the best place moves": (best_place_moves, TWO),
    "rank correlation over 3 games": (partial(noise_against_best, games=3), ["shape"]),
    "rank correlation over 8 games": (noise_against_best, ["shape"]),
    "partial correlation given the score": (Diagnostics(), ["shape"]),
    "Spearman's correlation over runs": (Plasticity(within=False), ["shape"]),
    "Spearman's correlation within configurations": (Plasticity(within=True), ["shape"]),
    "mean of a logarithm (gradients)": (gradients.mean, ["shape"]),
    "bias of gradients: none": (gradients.no_bias, ["shape"]),
    "bias of gradients: less": (gradients.less_bias, ["shape"]),
    "share of solved runs (its interval)": (share, ["one game"]),
}


def rates(kind, pool, seeds, effect, args):
    """(supported, contradicted) in percent of the simulated sweeps."""
    rng = np.random.RandomState(args.seed)
    words = [kind(Trial(rng, pool(rng), seeds, args.reps), effect).verdict for _ in range(args.simulations)]
    return np.array([100 * np.mean([word == one for word in words]) for one in (SUPPORTED, CONTRADICTED)])


def parse_args(argv):
    """Returns checked Args; exits 2 with one line on bad input."""
    return arguments.parse(Args, argv, __doc__)


def main(args):
    pools = read_pools()
    print("| kind | wrong with 5 seeds | 10 | 20 | finds 0.1 | finds 0.2 |\n|---|---|---|---|---|---|")
    for name, (kind, names) in KINDS.items():
        if args.kinds and not any(word in name for word in args.kinds):
            continue
        cells = []
        for seeds in SEEDS:
            worst = np.max([rates(kind, pools[pool], seeds, 0.0, args) for pool in names], axis=0)
            cells.append("{:.1f} / {:.1f}".format(*worst))
        for effect in EFFECTS:
            found = sorted(rates(kind, pools[pool], 10, effect, args)[0] for pool in names)
            cells.append(" to ".join(f"{power:.0f}" for power in sorted({found[0], found[-1]})))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(parse_args(sys.argv[1:]))
