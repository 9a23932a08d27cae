"""The experiments of results/: their final scores, and the claims that rest on them.

`load("shape")` is the module results/shape/claims.py. It has

    VARIES                 the columns that tell its configurations apart
    FIXED                  what its runs have in place of ARGUMENTS: {argument: value}
    GROWS                  True if scores.csv keeps the rows of runs whose directories are gone (optional)
    ALSO                   experiments whose runs with the same fixed arguments count too (optional)
    arguments(run, runs)   the arguments of a run, or None for one that does not count (optional)
    measure(run)           further columns of scores.csv: {name: number} (optional)
    table(folder)          the table of its runs, where they are in other files than scores.csv (optional)
    claims(scores)         its ExperimentClaims
    draw(scores)           its picture (optional)

scores.csv has a row a run: game, seed, VARIES, `steps`, `final_return`, `score` (0: a random policy, 1: the reference
return of support/small_worlds.csv), `half_return` (the training return of the last 100 games at half of the steps),
what `measure` adds, `start` (when the run began; empty where its directory is gone) and `commit` (of the code).
"""

from launching.root import ROOT

import copy
import importlib.util

import numpy as np
import pandas as pd

from analysis import training_runs
from analysis.claims import BY_GAME, PRIMARY, SECONDARY, Claim, Claims
from analysis.comparisons import SEEDS_FOR_A_VERDICT, difference, judge, share_solved
from analysis.estimates import UNDECIDED, detectable, evidence, mean
from support import arguments, catalog

RESULTS = ROOT / "results"
REPS = 4000  # bootstrap draws
SMALLEST_EFFECT = 0.05  # of a score
ARGUMENTS = {  # of ppo_envpool.py with its defaults, but for the steps: what an experiment may set
    "num_envs": 8,
    "num_steps": 128,
    "num_minibatches": 4,
    "update_epochs": 4,
    "learning_rate": 2.5e-4,
    "anneal_lr": True,
    "schedule": "",
    "prox_com": "",
    "mask_resets": True,
    "total_timesteps": 100_000,
}
ESTIMATE = "estimate"  # the family of numbers about which nothing was claimed
SOLVED_OR_NOT = ("MiniGrid-DoorKey-5x5",)  # games that a run solves or does not: a mean over runs hides that


# ---- tables of runs --------------------------------------------------------------------------------------------------
def load(name):
    """The module results/NAME/claims.py."""
    path = RESULTS / name / "claims.py"
    if not path.exists():
        known = sorted(path.parent.name for path in RESULTS.glob("*/claims.py"))
        arguments.fail(f"{name} is no experiment of results/: expected one of {', '.join(known)}")
    spec = importlib.util.spec_from_file_location(f"results.{name}.claims", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def collect(code, runs_dir, path=None):
    """The table of the finished runs below a directory that played final games, sorted; path: of the old table."""
    rows, references = [], catalog.small_table()
    runs, unread = training_runs.read_runs(runs_dir)
    for line in unread:
        print(line)
    for run in runs:
        given = code.arguments(run, runs) if hasattr(code, "arguments") else run.arguments
        if not run.evaluated or given is None:
            continue
        for name, value in {**ARGUMENTS, **code.FIXED}.items():
            its = "" if given.get(name) is None else given[name]
            if name not in (*code.VARIES, "num_minibatches") and its != value:
                arguments.fail(f"{runs_dir / run.name} has {name} = {its}: expected {value}")
        low, high = references[run.game]
        final, (steps, returns) = run.done["final_return"], run.curve(training_runs.RETURN)
        half = returns[steps <= run.arguments["total_timesteps"] / 2]
        rows.append(
            {
                "game": run.game,
                "seed": run.arguments["seed"],
                **{name: given[name] for name in code.VARIES},
                "steps": run.done["global_step"],
                "final_return": round(final, 4),
                "score": round((final - low) / (high - low), 5),
                "half_return": round(float(half[-1]), 4) if len(half) else "",
                **(code.measure(run) if hasattr(code, "measure") else {}),
                "start": run.manifest.get("start", ""),
                "commit": (run.manifest.get("git") or {}).get("commit", "")[:7],
            }
        )
    if not rows:
        arguments.fail(f"--runs {runs_dir}: expected finished runs with final games")
    keys = ["game", "seed", *code.VARIES]
    if path and getattr(code, "GROWS", False) and path.exists():
        known = {tuple(row[key] for key in keys) for row in rows}
        old = pd.read_csv(path, keep_default_na=False).to_dict("records")
        rows += [row for row in old if tuple(row[key] for key in keys) not in known]
    return pd.DataFrame(sorted(rows, key=lambda row: [row[key] for key in keys]))


def write_csv(table, path):
    table.to_csv(path, index=False, lineterminator="\n")


def read(code, path):
    """scores.csv with a column for each of ARGUMENTS and `minibatch_size`, in rows."""
    table = pd.read_csv(path, dtype={"start": str, "commit": str})
    for name in table.select_dtypes("object"):
        table[name] = table[name].fillna("")
    for name, value in {**ARGUMENTS, **code.FIXED}.items():
        if name not in table:
            table[name] = value
    if "minibatch_size" not in table:
        table["minibatch_size"] = table["num_envs"] * table["num_steps"] // table["num_minibatches"]
    return table


def runs_of(code, folder):
    """The table of an experiment's runs, each once: its own in a folder, and those of ALSO with the same FIXED."""
    if hasattr(code, "table"):
        return code.table(folder)
    path = folder / "scores.csv"
    others = [(load(name), RESULTS / name / "scores.csv") for name in getattr(code, "ALSO", ())]
    tables = [read(*one) for one in ([(code, path)] if path.exists() else []) + others]
    if not tables:
        arguments.fail(f"{path} does not exist: expected --runs, or --out with that file")
    table = pd.concat(tables, ignore_index=True)
    expected = {**ARGUMENTS, **code.FIXED}
    if "minibatch_size" not in expected:
        expected["minibatch_size"] = table["num_envs"] * table["num_steps"] // expected["num_minibatches"]
    for name, value in expected.items():
        if name not in (*code.VARIES, "num_minibatches"):
            table = table[table[name] == (value if np.isscalar(value) else value[table.index])]
    return table.drop_duplicates(["game", "seed", *code.VARIES]).reset_index(drop=True)


class Scores:
    """Final scores by configuration, game and seed. `games`, `configs`: sorted; `varies`: what a configuration is."""

    def __init__(self, table, varies, folder=None):
        """table: a row a run; varies: the columns that tell configurations apart; folder: where other files are."""
        self.games, self.varies, self.folder = sorted(table["game"].unique()), tuple(varies), folder
        names = set(self.varies) - {"num_envs", "num_steps"}
        keys = [training_runs.configuration(row, names) for row in table.to_dict("records")]
        self._rows = {}  # {(configuration, game): its rows by seed}
        for key, rows in table.groupby([pd.Series(keys, table.index), "game"], sort=False):
            self._rows[key] = rows.sort_values("seed")
        self.configs = sorted(set(keys), key=lambda config: [(isinstance(x, str), x) for _, x in config.items])

    def where(self, **values):
        """The configurations with these values, sorted."""
        return [config for config in self.configs if all(config[name] == value for name, value in values.items())]

    def one(self, **values):
        """The only configuration with these values."""
        found = self.where(**values)
        if len(found) != 1:
            words = " ".join(f"{name}={value}" for name, value in values.items())
            arguments.fail(f"{words}: expected one configuration, found {len(found)}")
        return found[0]

    def sample(self, config, column="score"):
        """A sample (estimates.py): an array (seeds,) a game."""
        return [self._rows[config, game][column].to_numpy(float) for game in self.games]

    def has(self, config):
        """Whether the configuration has runs in each of the games."""
        return all((config, game) in self._rows for game in self.games)

    def seeds(self, configs):
        """The fewest seeds that one of the configurations has in a game."""
        pairs = [(config, game) for config in configs for game in self.games]
        return min(len(self._rows[pair]) for pair in pairs if pair in self._rows)

    def in_games(self, games):
        """The same scores in some of the games."""
        view = copy.copy(self)
        view.games = list(games)
        return view

    def in_game(self, game):
        return self.in_games([game])

    def means(self):
        """A row for each configuration and game: the mean score with its 95 % interval, and who solved the game."""
        rows = []
        for config in self.configs:
            for game in self.games:
                if (config, game) not in self._rows:
                    continue
                scores = self._rows[config, game]["score"].to_numpy(float)
                found, solved = evidence(mean, [[scores]], REPS).estimate, ["", "", ""]
                if game in SOLVED_OR_NOT:
                    solved = [f"{x:.2f}" for x in share_solved(scores)]
                rows.append(
                    {
                        "game": game,
                        **{name: config[name] for name in self.varies},
                        "seeds": len(scores),
                        **dict(zip(("mean", "low", "high"), (f"{x:.3f}" for x in found), strict=True)),
                        **dict(zip(("solved", "solved_low", "solved_high"), solved, strict=True)),
                    }
                )
        return pd.DataFrame(rows)


def number(value):
    """With four digits; nothing smaller than 1e-9."""
    return f"{round(value, 9) + 0.0:.4g}"


# ---- claims ----------------------------------------------------------------------------------------------------------
class ExperimentClaims(Claims):
    """Collects the claims of an experiment, each with its numbers in each game."""

    def __init__(self, scores):
        super().__init__()
        self.scores = scores

    def add(self, name, text, test, configs, primary=False, games=None, by_game=True, family="", quantity="score"):
        """Adds one claim.

        test: a function of Scores, gives a Tested of the configurations. games: those of the claim; None: all.
        by_game: whether the number of each game follows. family: if neither PRIMARY nor SECONDARY.
        """
        view = self.scores.in_games(games or self.scores.games)
        self._add(name, text, test, view, configs, family or (PRIMARY if primary else SECONDARY), quantity)
        for game in view.games if by_game and len(view.games) > 1 else ():
            self._add(name, text, test, view.in_game(game), configs, BY_GAME, quantity)

    def _add(self, name, text, test, view, configs, family, quantity):
        seeds, game = view.seeds(configs), view.games[0] if len(view.games) == 1 else ""
        needs = "" if seeds >= SEEDS_FOR_A_VERDICT else f"{SEEDS_FOR_A_VERDICT} seeds"
        claim = Claim(text, quantity, test(view), "", family=family, needs=needs, name=name, seeds=seeds, game=game)
        self.append(claim)

    def compare(self, name, text, first, second, side="more", column="score", **more):
        """Adds a claim on the mean of a column of the first configuration minus that of the second."""

        def test(view):
            return judge(evidence(difference, [view.sample(config, column) for config in (first, second)], REPS), side)

        self.add(name, text, test, [first, second], **more)

    def rows(self):
        """The rows of verdicts.csv. A row in one game, an estimate, and a claim with too few seeds have no verdict."""
        for claim, (holds, fails) in zip(self, self.chances()):
            tested, word = claim.tested, claim.verdict
            judged, least = claim.family in (PRIMARY, SECONDARY) and not claim.needs, detectable(tested.estimate)
            if word == UNDECIDED and "at the edge" in tested.remark:
                word = f"{UNDECIDED}: at the edge"
            yield {
                "name": claim.name,
                "family": claim.family,
                "claim": claim.text,
                "game": claim.game,
                "quantity": claim.quantity,
                "seeds": claim.seeds,
                "value": number(tested.estimate.value),
                "low": number(tested.estimate.low),
                "high": number(tested.estimate.high),
                "verdict": word if judged else "",
                "p_holm": f"{holds:.4f}" if judged else "",
                "p_holm_opposite": f"{fails:.4f}" if judged else "",
                "detectable": f"{least:.2g}" if judged and word == UNDECIDED and least > 1e-9 else "",
                "remark": "" if claim.family == BY_GAME else "; ".join(filter(None, (tested.remark, tested.why))),
            }
