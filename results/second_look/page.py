"""Writes the tables of README.md and ../diagnostics/README.md, of the experiments that have run on all of their tasks.

    python scripts/judge.py second_look && python results/second_look/page.py

A page has a line `<!-- page.py: NAME -->` before each table and `<!-- end -->` after it, NAME as in TABLES.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT  # noqa: F401

from functools import partial

import numpy as np
import pandas as pd
from analysis import experiment, markdown
from analysis.estimates import ALPHA, CONTRADICTED, SUPPORTED
from scipy import stats

from results.second_look import claims, design
from support import arguments

HERE = Path(__file__).resolve().parent
PAGE = HERE / "README.md"
NETWORK = HERE.parent / "diagnostics" / "README.md"  # what the settings do to the network
SHORT = 150_000  # steps of the tasks that L3 is shown for apart
NEAR = 0.1  # scores that differ by less are called equal
ODD = "BabyAI-GoToOpen-v0"  # of E4, counted: the task that moves its means most
MEASURED = {
    "feature_rank": "feature rank",
    "dormant_neurons": "dormant neurons, %",
    "weight_norm": "weight norm",
    "gradient_kurtosis": "gradient kurtosis",
    "policy_variance": "policy variance",
    "ess": "ESS, %",
    "noise_scale": "gradient noise scale",
}
NAMES = {  # of the settings of E1, E2, E4 and E5: words of the tables
    "default": "8 x 128, 2.5e-4",
    "2e-3": "8 x 128, 2e-3",
    "law": "8 x 128, law",
    "many, 2e-3": "128 x 8, 2e-3",
    "many, law": "128 x 8, law",
    "middle, 2e-3": "32 x 32, 2e-3",
    "middle, law": "32 x 32, law",
    "sb3": "stable-baselines3's default",
    "default, E2": "8 x 128, 2.5e-4, three times the steps",
    "law, E2": "8 x 128, law, three times the steps",
}
EXPECTED = {  # (claim, beginning of its text): what half_widths.csv calls it
    ("L1", "on tasks"): "law minus 2.5e-4: 20 new tasks, 3 seeds at 2 budgets",
    ("L2", "at one rate"): "128 x 8 minus 8 x 128 at 2e-3, 6 seeds",
    ("L3", "the best of three runs beats"): "two bests of three minus 6 runs, tasks as in 8e-3 minus 4e-3",
    ("L4", "the best rate falls as 1 / k"): "slope of log rate on log k, 10 tasks",
    ("L5", "the law beats"): "law minus 2e-3, 6 seeds, tasks as in 4e-3 minus 2e-3",
    ("L17", "32x128, four"): "two rates of 32 x 128, 5 seeds, tasks as in 8e-3 minus 2e-3",
    ("L19", "128x8 at 2e-3"): "128 x 8 at 2e-3 twice, 6 seeds, 10 tasks",
    ("L20", "128x8 at 2e-3"): "the same, the 26 others",
    ("L21", "128x8 at 2e-3"): "the same, the 13 of these with episodes of one length",
    ("L22", "8x128 at 2e-3"): "8 x 128 at 2e-3 twice, 6 seeds, 36 tasks",
}
ARMS = " | ".join(f"{rows} rows, {epochs} epoch{'s' * (epochs > 1)}" for rows, epochs in design.K_ARMS)


def two(value):
    return f"{float(value):+.2f}"


def interval(values):
    """The mean of one number per task, and Student's 95 % interval."""
    low, high = stats.t.interval(0.95, len(values) - 1, values.mean(), stats.sem(values))
    return f"{two(values.mean())} [{two(low)}, {two(high)}]"


def claims_table(verdicts, _):
    widths = pd.read_csv(HERE / "half_widths.csv").set_index("what")["half_width"]
    yield "| | claim | estimate and 95 % interval | half-width, and as expected | seeds | verdict | |"
    yield "|---|---|---|---|---|---|---|"
    for row in verdicts.itertuples():
        interval, half = "", ""
        if np.isfinite(row.low):
            interval, half = f" [{two(row.low)}, {two(row.high)}]", f"{(row.high - row.low) / 2:.2f}"
        expected = [what for (name, text), what in EXPECTED.items() if row.name == name and row.claim.startswith(text)]
        if expected and row.family != "estimate":
            half += f", {widths[expected[0]]:.2f}"
        name = f"{row.name}*" if row.family == "primary" else row.name
        verdict = row.verdict if row.family != "estimate" else "estimate"
        chance = {SUPPORTED: row.p_holm, CONTRADICTED: row.p_holm_opposite}.get(verdict)
        verdict += ", not after Holm" * bool(chance and float(chance) >= ALPHA)
        corrected = f"; p {float(row.p_holm):.2g} after Holm" if row.family == "primary" and row.verdict else ""
        cells = [name, row.claim, f"{two(row.value)}{interval}", half, row.seeds, verdict, f"{row.remark}{corrected}"]
        yield f"| {' | '.join(map(str, cells))} |"


def settings_table(_, runs):
    """The mean score of each of E1's settings over the tasks that count, what it gains on two others, and its price.

    The price is that of 100,000 steps, the mean of the tasks of cpu_seconds.csv; the score is divided by its minutes.
    """
    means = claims.means(runs, "E1", tasks=design.counted())
    cost = pd.read_csv(HERE / "cpu_seconds.csv").groupby("setting")["seconds_per_100000"].mean()
    columns = ["score", "minus 8 x 128 at 2.5e-4", "better on", "minus 8 x 128 at 2e-3", "better on"]
    columns += ["CPU-seconds of 100,000 steps", "score per CPU-minute"]
    yield f"| setting | {' | '.join(columns)} |"
    yield "|---|" + "---|" * len(columns)
    for name, words in NAMES.items():
        if name not in means:
            continue
        cells = []
        for other in ("default", "2e-3"):
            gain = (means[name] - means[other]).to_numpy()
            cells += [interval(gain), f"{(gain > 0).sum()} of {len(gain)}"] if name != other else ["", ""]
        cells += [f"{cost[name]:.0f}", f"{60 * means[name].mean() / cost[name]:.2f}"] if name in cost else ["", ""]
        yield f"| {words} | {means[name].mean():.2f} | {' | '.join(cells)} |"


def tasks_table(_, runs):
    """The mean score of each task of E1, and of E2, with its 95 % interval over the seeds."""
    own = runs[runs["arm"].isin(("E1", "E2"))]
    found = of_tasks(own.assign(name=own["name"].where(own["arm"] == "E1", own["name"] + ", E2")))
    names, kept = [name for name in NAMES if name in found], claims.best_of_threes(runs)
    yield f"| task | steps | {' | '.join(NAMES[name] for name in names)} | law, best of three |"
    yield "|---|---|" + "---|" * (len(names) + 1)
    for task, steps in design.budgets().items():
        word = "" if task in design.counted() else " (not counted)"
        yield f"| {task}{word} | {steps:,} | {' | '.join(found.loc[task, name] for name in names)} | {kept[task]:.2f} |"


def of_tasks(own):
    """A row a task, a column a setting: the mean score of some runs and half of its 95 % interval over seeds."""

    def cell(scores):
        half = stats.t.ppf(0.975, len(scores) - 1) * stats.sem(scores)
        return f"{scores.mean():.2f} ± {half:.2f}"

    cells = own.groupby(["env_id", "name"], sort=False)["score"].agg(lambda scores: cell(scores.to_numpy()))
    return cells.unstack(sort=False)


def longer_table(_, runs):
    """What more steps, a raised rate and the best of three runs buy, over the tasks that count."""
    scores, long = (claims.means(runs, arm, tasks=design.counted()) for arm in ("E1", "E2"))
    kept = claims.best_of_threes(runs)[long.index]
    best, short = kept - long["law"], [task for task in long.index if design.budgets()[task] <= SHORT]
    raised, raised_long = scores["law"] - scores["default"], long["law"] - long["default"]
    rows = {
        "best of three runs, minus one of three times the steps (L3)": best,
        f"the same, the {len(short)} tasks of up to {SHORT:,} steps": best[short],
        f"the same, the {len(best) - len(short)} others": best.drop(short),
        "the same as in the first row, a mean score above 1 counted as 1": kept.clip(upper=1)
        - long["law"].clip(upper=1),
        "law: three times the steps, minus one": long["law"] - scores["law"],
        "2.5e-4: three times the steps, minus one": long["default"] - scores["default"],
        "law minus 2.5e-4, three times the steps": raised_long,
        "law minus 2.5e-4: with three times the steps, minus with one": raised_long - raised,
        "2.5e-4 with three times the steps, minus the law": long["default"] - scores["law"],
    }
    yield from gains_lines(rows)


def sb3_table(_, runs):
    """What the law gains on stable-baselines3's default, alone and with as many CPU-seconds or fewer."""
    scores, long = (claims.means(runs, arm, tasks=design.counted()) for arm in ("E1", "E2"))
    sb3 = scores["sb3"]
    short = [task for task in scores.index if design.budgets()[task] <= SHORT]
    gain = scores["law"] - sb3
    rows = {
        "law (L14)": gain,
        f"the same, the {len(short)} tasks of up to {SHORT:,} steps": gain[short],
        f"the same, the {len(gain) - len(short)} others": gain.drop(short),
        "2e-3": scores["2e-3"] - sb3,
        "2.5e-4": scores["default"] - sb3,
        "law, the best of three runs": claims.best_of_threes(runs)[scores.index] - sb3,
        "law, three times the steps": long["law"][scores.index] - sb3,
    }
    yield from gains_lines(rows)


def more_gains_table(_, runs):
    """What the rate, the minibatches and N buy at 32 x 128, over E7's tasks that count."""
    scores, more = (claims.means(runs, arm, tasks=design.counted()) for arm in ("E1", "E7"))
    few = scores.loc[more.index]
    rows = {
        "four minibatches: its own law, minus the rate of 8 x 128 (L17)": more["four, law"]
        - more["four, law of 8 x 128"],
        "each at its law: four minibatches, minus sixteen (L17)": more["four, law"] - more["sixteen, law"],
        "four minibatches: its own law, minus 2.5e-4": more["four, law"] - more["four, default"],
        "sixteen minibatches: law minus 2.5e-4": more["sixteen, law"] - more["sixteen, default"],
        "32 x 128, four minibatches, the rate of 8 x 128, minus 8 x 128": more["four, law of 8 x 128"] - few["law"],
        "32 x 128, four minibatches, its own law, minus 8 x 128": more["four, law"] - few["law"],
        "32 x 128, sixteen minibatches, minus 8 x 128, each at the law": more["sixteen, law"] - few["law"],
    }
    yield from gains_lines(rows)


def staggered_table(_, runs):
    """What staggered starts gain at 128 x 8 and 8 x 128, and how far 8 x 128 is above 128 x 8 with them and without."""
    found = of_starts(runs)
    many, few = found["128 x 8, staggered"] - found["128 x 8"], found["8 x 128, staggered"] - found["8 x 128"]
    plain, both = found["8 x 128"] - found["128 x 8"], found["8 x 128, staggered"] - found["128 x 8, staggered"]
    alike = found.index.isin(design.one_length())
    fresh = ~found.index.isin(design.longest_tasks())
    yield from gains_lines(
        {
            "128 x 8, staggered starts minus none: the ten tasks of E6 (L19)": many[~fresh],
            "the 26 others (L20)": many[fresh],
            "the 13 of these with episodes of one length (L21)": many[fresh & alike],
            "the 13 with episodes of several lengths": many[fresh & ~alike],
            "all 36": many,
            "8 x 128, staggered starts minus none (L22)": few,
            "the 17 with episodes of one length": few[alike],
            "the 19 others": few[~alike],
            "8 x 128 minus 128 x 8, no staggered starts": plain,
            "both staggered": both,
            "both staggered, minus none": both - plain,
            "the 17 with episodes of one length, no staggered starts": plain[alike],
            "both staggered, these 17": both[alike],
            "the 19 others, no staggered starts": plain[~alike],
            "both staggered, these 19": both[~alike],
        }
    )


def each_staggered_table(_, runs):
    """The mean scores of each task that counts, without staggered starts and with them."""
    found = of_starts(runs)
    yield f"| task | steps | episodes of one length | {' | '.join(found)} |"
    yield "|---|---|---|" + "---|" * len(found.columns)
    for task, row in found.iterrows():
        word = "yes" if task in design.one_length() else ""
        yield f"| {task} | {design.budgets()[task]:,} | {word} | {' | '.join(f'{value:.2f}' for value in row)} |"


def of_starts(runs):
    """A row for each task that counts: the mean scores at 2e-3, by N x T, without staggered starts and with them."""
    plain, staggered = claims.means(runs, "E1", tasks=design.counted()), claims.starts(runs)
    found = {}
    for words, name, side in (("8 x 128", "2e-3", "few"), ("128 x 8", "many, 2e-3", "many")):
        found |= {words: plain[name], f"{words}, staggered": staggered[side]}
    return pd.DataFrame(found).loc[list(design.counted())]


def images_table(_, runs):
    """The mean return of each game of MinAtar beside random play's, with its 95 % interval over the seeds."""
    own, play = runs[runs["arm"] == "E5"], claims.random_play()["random"]
    found = of_tasks(own.assign(score=own["final_return"]))
    yield f"| game | random play | {' | '.join(NAMES[name] for name in found)} |"
    yield "|---|---|" + "---|" * len(found.columns)
    for task, cells in found.iterrows():
        yield f"| {game_of(task)} | {play[task]:.2f} | {' | '.join(cells)} |"


def game_of(task):
    return task.split("/")[-1].removesuffix("-v1")


def images_gains_table(_, runs):
    """What E5's settings gain on each game of MinAtar and on the mean of the five: an estimate, no verdict."""
    scores = claims.means(runs, "E5")
    yield f"| | the five games | {' | '.join(map(game_of, scores.index))} |"
    yield "|---|---|" + "---|" * len(scores)
    for name, other in (("law", "default"), ("law", "many, law"), ("law", "middle, law")):
        gain = (scores[name] - scores[other]).to_numpy()
        yield f"| {NAMES[name]}, minus {NAMES[other]} | {interval(gain)} | {' | '.join(map(two, gain))} |"


def gains_lines(rows):
    """The lines of a table of gains, a number per task each, of the atlas's tasks. rows: {words: gains}."""
    family = design.table_of("budgets").set_index("task")["family"]
    yield "| | gain | better on | families as units | least without one task | most |"
    yield "|---|---|---|---|---|---|"
    for name, gain in rows.items():
        by_family = gain.groupby(family[gain.index]).mean().to_numpy()
        cells = [interval(gain.to_numpy()), f"{(gain > 0).sum()} of {len(gain)}", interval(by_family)]
        yield f"| {name} | {' | '.join([*cells, *without_one(gain)])} |"


def without_one(gain):
    """The interval of a gain without the task that raises its mean most, and without the one that lowers it most."""
    without = sorted((gain.drop(task).mean(), task) for task in gain.index)
    return [f"{interval(gain.drop(task).to_numpy())}, {task}" for _, task in (without[0], without[-1])]


def learned_tasks(runs):
    """E4's tasks that a setting has learned, in their order."""
    own = runs[runs["arm"] == "E4"]
    return [task for task, of_task in own.groupby("env_id", sort=False) if claims.learned(of_task)]


def of_experiment(arm):
    """The table of one experiment: a row a task and budget, a column a setting. Of E4 the tasks that were learned."""

    def table(_, runs):
        own = runs[runs["arm"] == arm]
        own = own[own["env_id"].isin(learned_tasks(runs))] if arm == "E4" else own
        names = list(own["name"].drop_duplicates())
        yield f"| task | steps | {' | '.join(NAMES[name] if arm == 'E4' else name for name in names)} |"
        yield "|---|---|" + "---|" * len(names)
        for (task, steps), of_task in own.groupby(["env_id", "total_timesteps"], sort=False):
            yield f"| {task} | {steps:,} | {' | '.join(of_tasks(of_task).loc[task, names])} |"

    return table


def new_gains_table(_, runs):
    """What E4's comparisons say on the tasks that were learned, and without the one task that moves them most."""
    good = learned_tasks(runs)
    means, own = claims.means(runs, "E4").loc[good], runs[runs["arm"] == "E4"]
    by_budget = own.pivot_table(index="env_id", columns=["total_timesteps", "name"], values="score").loc[good]
    returns = own.pivot_table(index="env_id", columns=["name", "total_timesteps"], values="final_return").loc[good]
    returns = returns.sub(claims.random_play()["random"][good], axis=0)
    plain = returns.div(returns.max(axis=1), axis=0).T.groupby(level="name").mean().T
    family = design.table_of("speeds").set_index("task")["family"]
    columns = [f"in {steps:,} steps" for steps in design.NEW_BUDGETS]
    columns = [
        f"{len(good)} tasks",
        "better on",
        *columns,
        "families as units",
        "least without one task",
        "most",
        "scaled by the best of all seeds",
    ]
    yield f"| | {' | '.join(columns)} |"
    yield "|---|" + "---|" * len(columns)
    for name, other in (("law", "default"), ("2e-3", "default"), ("law", "2e-3"), ("2e-3", "many, 2e-3")):
        gain = means[name] - means[other]
        cells = [interval(gain.to_numpy()), f"{(gain > 0).sum()} of {len(gain)}"]
        cells += [
            interval((by_budget[steps, name] - by_budget[steps, other]).to_numpy()) for steps in design.NEW_BUDGETS
        ]
        cells.append(interval(gain.groupby(family.reindex(gain.index)).mean().to_numpy()))
        cells += without_one(gain)
        cells.append(interval((plain[name] - plain[other]).to_numpy()))
        yield f"| {NAMES[name]}, minus {NAMES[other]} | {' | '.join(cells)} |"


def not_learned_table(_, runs):
    """The mean returns of E4's other tasks, whose scores mean nothing, and of ODD, beside random play's."""
    counted = [task for task in learned_tasks(runs) if task != ODD]
    own, play = runs[(runs["arm"] == "E4") & ~runs["env_id"].isin(counted)], claims.random_play()["random"]
    names = list(own["name"].drop_duplicates())
    yield f"| task | steps | random play | {' | '.join(NAMES[name] for name in names)} |"
    yield "|---|---|---|" + "---|" * len(names)
    for (task, steps), of_task in own.groupby(["env_id", "total_timesteps"], sort=False):
        returns = of_task.groupby("name")["final_return"].mean()
        yield f"| {task} | {steps:,} | {play[task]:.3g} | {' | '.join(f'{returns[name]:.3g}' for name in names)} |"


def k_table(_, runs):
    """L4 and L4b by arm of E3: the best rate, the score at an arm's own best rate, and what a run costs."""
    own, of_task = runs[runs["arm"] == "E3"], claims.of_k(runs)
    yield "| rows of a minibatch, epochs | k, of 256 rows and 4 epochs 1 | best rate | score at its best rate | time |"
    yield "|---|---|---|---|---|"
    seconds = own.groupby(["minibatch_size", "update_epochs", "env_id"])["wall_seconds"].mean()
    for arm, (rows, epochs) in enumerate(design.K_ARMS):
        places = [claims.center(scores[arm].mean(-1)) for scores in of_task.values()]
        best = design.RATES[0] * 2 ** np.mean(places)
        kept = np.array([claims.own_best(scores, arm) for scores in of_task.values()])
        time = (seconds[rows, epochs] / seconds[256, 4]).median()
        cells = [
            f"{rows}, {epochs}",
            f"{epochs / 4 * 256 / rows:g}",
            f"{best:.1e}",
            f"{kept.mean():.2f}",
            f"{time:.1f}",
        ]
        yield f"| {' | '.join(cells)} |"


def best_rates_table(_, runs):
    """Each task's best rate by arm of E3, and the slope of log rate on log k by epochs and by rows."""
    yield f"| task | steps | {ARMS} | slope, epochs | slope, rows |"
    yield "|---|---|" + "---|" * (len(design.K_ARMS) + 2)
    for task, scores in claims.of_k(runs).items():
        places = claims.center(scores.mean(-1))
        rates = [f"{design.RATES[0] * 2**place:.1e}" for place in places]
        cells = [task, f"{design.budgets()[task]:,}", *rates, *map(two, claims.slopes(places))]
        yield f"| {' | '.join(cells)} |"


def rules_table(_, runs):
    """What rules for the rate score in E3, each at the nearest rate of the grid; for each task two seeds may choose."""
    of_task, rates = claims.of_k(runs), np.log2(design.RATES)

    def by_k(exponent, task, scores, arm):
        rows, epochs = design.K_ARMS[arm]
        rate = design.law(design.budgets()[task]) / (epochs / 4 * 256 / rows) ** exponent
        return scores[arm, np.abs(rates - np.log2(rate)).argmin()].mean()

    rules = {
        "1 / k, the law": partial(by_k, 1),
        "1 / sqrt(k)": partial(by_k, 0.5),
        "not with k": partial(by_k, 0),
        "is 4e-3 for all": lambda task, scores, arm: scores[arm, design.RATES.index(4e-3)].mean(),
        "is tuned for each task": lambda task, scores, arm: claims.own_best(scores, arm),
    }
    yield f"| the rate falls as, or | {ARMS} | 256 rows, 4 epochs, minus the law | all, minus the law |"
    yield "|---|" + "---|" * (len(design.K_ARMS) + 2)
    law = None
    for name, rule in rules.items():
        found = [[rule(task, scores, arm) for arm in range(len(design.K_ARMS))] for task, scores in of_task.items()]
        found = np.array(found)
        law = found if law is None else law
        gains = [(found - law)[:, 1], (found - law).mean(1)]
        cells = [f"{mean:.2f}" for mean in found.mean(0)] + [interval(gain) if gain.any() else "" for gain in gains]
        yield f"| {name} | {' | '.join(cells)} |"


def shifted_table(_, runs):
    """What L4's method measures where the slope is known: 256 rows' and 4 epochs' curves, moved along the rates."""
    curves, rng = [scores[1] for scores in claims.of_k(runs).values()], np.random.default_rng(0)
    places = np.arange(len(design.RATES))
    yield "| true slope | measured, mean of 300 studies | deviation of a study |"
    yield "|---|---|---|"
    for slope in (-1, -0.5, 0):
        studies = []
        for _ in range(300):
            values = []
            for curve in curves:
                best = [
                    claims.center(curve[np.clip(places - moved, 0, places[-1])][:, rng.integers(3, size=3)].mean(-1))
                    for moved in np.rint(slope * np.array((-2, 0, 2, 2, -2))).astype(int)  # log2 k of design.K_ARMS
                ]
                values.append(np.mean(claims.slopes(best)))
            studies.append(np.mean(values))
        yield f"| {slope:g} | {np.mean(studies):.2f} | {np.std(studies):.2f} |"


def up_and_down(effects):
    """On how many tasks a diagnostic rises and falls."""
    return f"{(effects > 0).sum()} up, {(effects < 0).sum()} down"


def diagnostics_table(_, runs):
    """What N x T at one rate and the rate at one N x T do to the diagnostics of E1's runs, and L13's correlations.

    The last column but one: N x T again, of the tasks on which the mean scores of both differ by less than NEAR.
    """
    scores = claims.means(runs, "E1")
    few, many = claims.CHANGES[claims.N_BY_T]
    near = (scores[many] - scores[few]).abs() < NEAR
    columns = [*claims.CHANGES, f"the first, {near.sum()} tasks of equal score", "Spearman's rho with the return"]
    yield f"| | {' | '.join(columns)} |"
    yield "|---|" + "---|" * (len(claims.CHANGES) + 2)
    for column in MEASURED:
        each = {
            change: claims.effects(runs, ("E1", before), ("E1", after), column)
            for change, (before, after) in claims.CHANGES.items()
        }
        cells = [moved(effects) for effects in each.values()]
        cells.append(up_and_down(each[claims.N_BY_T][near]))
        rhos = np.array(claims.rank_correlations(runs, column))
        yield f"| {' | '.join([MEASURED[column], *cells, interval(rhos)])} |"


def families_table(_, runs):
    """By family: two gains of E1's counted tasks, and where N x T moves gradient kurtosis and ESS, of all forty."""
    family = design.table_of("budgets").set_index("task")["family"]
    scores, change = claims.means(runs, "E1", tasks=design.counted()), claims.CHANGES[claims.N_BY_T]
    raised, few = scores["2e-3"] - scores["default"], scores["2e-3"] - scores["many, 2e-3"]
    arms = [("E1", name) for name in change]
    moved = [claims.effects(runs, *arms, column) for column in ("gradient_kurtosis", "ess")]
    yield "| family | tasks | 2e-3 minus 2.5e-4 | 8 x 128 minus 128 x 8, at 2e-3 | kurtosis, at 128 x 8 | ESS |"
    yield "|---|---|---|---|---|---|"
    for name, gain in raised.groupby(family):
        counts = (up_and_down(effects[family.reindex(effects.index) == name]) for effects in moved)
        yield f"| {name} | {len(gain)} | {two(gain.mean())} | {two(few[gain.index].mean())} | {' | '.join(counts)} |"
    units = [interval(gains.groupby(family).mean().to_numpy()) for gains in (raised, few)]
    yield f"| mean of the families | | {' | '.join(units)} | | |"


def levels_of(arm):
    """The table with the median of each diagnostic over an experiment's runs with a setting."""

    def table(_, runs):
        own = runs[(runs["arm"] == arm) & (runs["name"] != "sb3")]
        names = [name for name in NAMES if name in set(own["name"])]
        medians = own.groupby("name")[list(MEASURED)].median()
        yield f"| | {' | '.join(NAMES[name] for name in names)} |"
        yield "|---|" + "---|" * len(names)
        for column, words in MEASURED.items():
            yield f"| {words} | {' | '.join(f'{medians.loc[name, column]:.3g}' for name in names)} |"

    return table


def moves_of(changes):
    """The table of how many tasks each diagnostic rises and falls on, with the median effect, for some changes."""

    def table(_, runs):
        yield f"| | {' | '.join(changes)} |"
        yield "|---|" + "---|" * len(changes)
        for column, words in MEASURED.items():
            each = (claims.effects(runs, *change, column) for change in changes.values())
            yield f"| {words} | {' | '.join(map(moved, each))} |"

    return table


def more_moves_table(verdicts, runs):
    """The same for E7, with the first change by family, and on the tasks whose mean scores differ by less than NEAR."""
    columns = list(moves_of(claims.MORE)(verdicts, runs))
    few, many = claims.MORE[next(iter(claims.MORE))]
    more = claims.means(runs, "E7")[many[1]]
    near = (more - claims.means(runs, "E1")[few[1]][more.index]).abs() < NEAR
    family = design.table_of("budgets").set_index("task")["family"]
    yield f"{columns[0]} the first, by family | the first, {near.sum()} tasks of equal score |"
    yield f"{columns[1]}---|---|"
    for line, column in zip(columns[2:], MEASURED, strict=True):
        effects = claims.effects(runs, few, many, column)
        by_family = np.sign(effects).groupby(family[effects.index]).sum()
        yield f"{line} {up_and_down(by_family)} | {up_and_down(effects[near])} |"


def moved(effects):
    return f"{up_and_down(effects)}; {two(np.nanmedian(effects))}"


def cost_table(_, runs):
    """Runs, steps and core-hours of each experiment: runs of a process start within seconds and end together."""
    yield "| experiment | tasks | runs | million steps | core-hours | diverged |"
    yield "|---|---|---|---|---|---|"
    for arm, own in runs.groupby("arm"):
        of = ["env_id", "num_envs", "num_steps", "minibatch_size", "update_epochs", "total_timesteps"]
        hours = 0.0
        for _, together in own.groupby(of):
            together = together.sort_values("start")
            later = pd.to_datetime(together["start"]).diff().dt.total_seconds()
            hours += together["wall_seconds"].groupby((~(later <= 10)).cumsum()).max().sum() / 3600
        numbers = [own["env_id"].nunique(), f"{len(own):,}", f"{own['global_step'].sum() / 1e6:,.0f}", f"{hours:.1f}"]
        yield f"| {arm} | {' | '.join(map(str, [*numbers, (own['state'] == 'diverged').sum()]))} |"


TABLES = {  # of each page: the experiment that a table needs, and what writes its lines
    PAGE: {
        "claims": ("E1", claims_table),
        "settings": ("E1", settings_table),
        "longer": ("E2", longer_table),
        "sb3": ("E1", sb3_table),
        "k": ("E3", k_table),
        "best_rates": ("E3", best_rates_table),
        "rules": ("E3", rules_table),
        "shifted": ("E3", shifted_table),
        "new_gains": ("E4", new_gains_table),
        "new": ("E4", of_experiment("E4")),
        "not_learned": ("E4", not_learned_table),
        "images_gains": ("E5", images_gains_table),
        "images": ("E5", images_table),
        "staggered": ("E9", staggered_table),
        "each_staggered": ("E9", each_staggered_table),
        "more_gains": ("E7", more_gains_table),
        "more": ("E7", of_experiment("E7")),
        "real": ("E8", of_experiment("E8")),
        "families": ("E1", families_table),
        "tasks": ("E1", tasks_table),
        "cost": ("E1", cost_table),
    },
    NETWORK: {
        "forty": ("E1", diagnostics_table),
        "levels": ("E1", levels_of("E1")),
        "more_moves": ("E7", more_moves_table),
        "images_moves": ("E5", moves_of(claims.IMAGES)),
        "images_levels": ("E5", levels_of("E5")),
    },
}


def main():
    if not (HERE / "verdicts.csv").exists():
        arguments.fail("no experiment has run on all of its tasks yet: expected `plan.py status` to have one")
    verdicts = pd.read_csv(HERE / "verdicts.csv", keep_default_na=False, na_values={"low": "nan", "high": "nan"})
    verdicts = verdicts[verdicts["game"] == ""]
    code = experiment.load("second_look")
    runs = experiment.runs_of(code, experiment.read_dataset(experiment.DATASET))
    for path, named in TABLES.items():
        tables = {
            name: table(verdicts, runs) if arm in set(runs["arm"]) else [f"{arm} is under way."]
            for name, (arm, table) in named.items()
        }
        path.write_text(markdown.filled(path, path.read_text(), "page.py", tables))


if __name__ == "__main__":
    main()
