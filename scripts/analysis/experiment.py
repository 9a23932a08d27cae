"""The claims of an experiment of results/, from its scores.csv.

    scores = Scores.read(HERE / "scores.csv", ("num_envs", "num_steps", "learning_rate"))
    claims = ExperimentClaims()
    wide, long = scores.samples([(128, 8, 5e-4), (8, 128, 5e-4)])
    claims.compare("E1", "128x8 beats 8x128 at 5e-4", [wide, long], games=scores.games)
    claims.write(HERE / "verdicts.csv")

scores.csv has one row a run: game, seed, the columns that the experiment varies, and `score`, besides others.
"""

import csv

import numpy as np

from analysis.claims import BY_GAME, PRIMARY, SECONDARY, Claim, Claims
from analysis.comparisons import SEEDS_FOR_A_VERDICT, Tested, difference, judge, judge_each
from analysis.estimates import evidence, several
from support import rundir

REPS = 4000


def plain(text):
    """A cell as a number or a boolean, if it is one."""
    try:
        return {"True": True, "False": False}[text] if text in ("True", "False") else float(text)
    except ValueError:
        return text


class Scores:
    """The rows of a scores.csv: those seeds of a game that all configurations have, from `first_seed` on.

    `games`, `configs` (tuples of the values of `varies`), sorted, and `seeds`, {game: its seeds}.
    """

    def __init__(self, rows, varies, first_seed=0):
        """rows: dicts. varies: the columns that make a configuration."""
        self.runs = {}  # {(configuration, game): {seed: row}}
        for row in rows:
            config = tuple(row[name] for name in varies)
            self.runs.setdefault((config, row["game"]), {})[int(row["seed"])] = row
        self.configs = sorted({config for config, _ in self.runs})
        self.games = sorted({game for _, game in self.runs})
        self.seeds = {}
        for game in self.games:
            common = set.intersection(*(set(self.runs.get((config, game), ())) for config in self.configs))
            self.seeds[game] = sorted(seed for seed in common if seed >= first_seed)
            if not self.seeds[game]:
                rundir.fail(f"{game}: expected a seed with a score in each of the {len(self.configs)} configurations")

    @classmethod
    def read(cls, path, varies, first_seed=0):
        """Reads a CSV, numbers and booleans as such."""
        try:
            with open(path, newline="") as file:
                rows = [{name: plain(cell) for name, cell in row.items()} for row in csv.DictReader(file)]
        except OSError as error:
            rundir.fail(f"{path} ({error.strerror}): expected the scores of an experiment")
        return cls(rows, varies, first_seed)

    def sample(self, config, column="score", games=None):
        """A column of a configuration as a sample: one array (seeds,) a game, NaN where the cell is empty."""
        by_seed = [(self.runs[config, game], self.seeds[game]) for game in games or self.games]
        cells = [[runs[seed][column] for seed in seeds] for runs, seeds in by_seed]
        return [np.array([np.nan if cell == "" else cell for cell in of_game], float) for of_game in cells]

    def samples(self, configs, column="score", games=None):
        """The sample of each of the configurations."""
        return [self.sample(config, column, games) for config in configs]

    def groups(self, configs, column, games=None):
        """A column of the configurations as `kendall` takes it: one list a game of arrays (seeds,)."""
        return [list(of_game) for of_game in zip(*self.samples(configs, column, games))]


class ExperimentClaims(Claims):
    """Collects the claims of an experiment. One with fewer than SEEDS_FOR_A_VERDICT seeds has no verdict."""

    def test(self, name, text, tested, samples, side="more", margin=0.0, primary=True, family="", remark=""):
        """Adds a claim. tested: its Tested, or its Evidence. samples: what it rests on, for the number of seeds.

        remark: words beside the verdict, as the effect of a correlation in its own unit.
        """
        seeds = min(x.shape[-1] for sample in samples for x in sample)
        needs = "" if seeds >= SEEDS_FOR_A_VERDICT else f"{SEEDS_FOR_A_VERDICT} seeds"
        tested = tested if isinstance(tested, Tested) else judge(tested, side, margin)
        tested = tested._replace(remark="; ".join(filter(None, [tested.remark, remark])))
        family = family or (PRIMARY if primary else SECONDARY)
        self.append(Claim(text, "", tested, side, margin, family=family, needs=needs, name=name, seeds=seeds))

    def compare(
        self, name, text, samples, statistic=difference, side="more", margin=0.0, primary=True, games=(), test=judge
    ):
        """Adds a claim on a statistic of the samples, and, if `games` has their names, on the same in each game.

        test: judge, or judge_each with a statistic that gives several numbers.
        """
        views = [(name, text, samples, "")]
        if len(games) > 1:
            views += [
                (f"{name} {game}", f"{text}, in {game}", [sample[i : i + 1] for sample in samples], BY_GAME)
                for i, game in enumerate(games)
            ]
        for own_name, words, parts, family in views:
            found = several(statistic, parts, REPS) if test is judge_each else evidence(statistic, parts, REPS)
            self.test(own_name, words, test(found, side, margin), parts, side, margin, primary, family)

    def print(self):
        """Prints a line a claim."""
        for row in self.verdict_rows():
            print(
                f"{row['name']}{'*' if row['primary'] else ' '} {row['claim']}: {row['value']} "
                f"[{row['low']}, {row['high']}], {row['seeds']} seeds: {row['verdict'] or 'no verdict'}"
                + (f"; Holm p {row['p_holm']}, of the opposite {row['p_holm_opposite']}" if row["p_holm"] else "")
                + (f"; detectable {row['detectable']}" if row["detectable"] else "")
                + (f"; {row['remark']}" if row["remark"] else "")
            )
        print("* primary; a p-value below 0.05 holds after Holm's correction")

    def write(self, path):
        """Writes verdicts.csv."""
        rows = list(self.verdict_rows())
        with open(path, "w", newline="") as file:
            table = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            table.writeheader()
            table.writerows(rows)
