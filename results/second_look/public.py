"""The law beside settings that others have published: tables for public.md, and public.png.

    python results/second_look/public.py

public_settings.csv has a row for each setting of PPO that was read in other repositories: the columns FACTS, and
DERIVED, which this program computes and writes again. public_landscapes.csv has returns at six learning rates, of
HPO-RL-Bench.
The page has a line `<!-- public.py: NAME -->` before each table and `<!-- end -->` after it, NAME as in TABLES.

The law's rate falls to 0 over a run, while most public rates stay where they are. So means over Adam's steps are
compared: that of the law is half of its rate.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT  # noqa: F401

from typing import NamedTuple

import design
import half_widths
import numpy as np
import pandas as pd
from analysis import markdown
from analysis.look import GRAY, PAGE, VERMILLION, plt, ramp, save
from matplotlib.lines import Line2D

from support import recipe

HERE = Path(__file__).resolve().parent
TEXT = HERE / "public.md"
SETTINGS, LANDSCAPES = HERE / "public_settings.csv", HERE / "public_landscapes.csv"

# set: strict (the file calls this setting tuned), published (as good, without that word or for many tasks) or untuned
# atlas: its task there, or the nearest to it; called: the file's words
# steps: environment steps as the file states them, a repeated action counts once
# steps_run: what the code makes of them, where that is over 10 % more
# minibatch: rows; the rate falls linearly to final_rate over the share `anneal` of Adam's steps, and stays there
FACTS = ["set", "source", "commit", "file", "line", "task", "atlas", "called", "steps", "steps_run", "num_envs"]
FACTS += ["num_steps", "minibatch", "epochs", "rate", "final_rate", "anneal", "remark"]
DERIVED = ["batch", "k", "adam_steps", "mean_rate", "path", "law", "times_law"]
ATLAS_K = 4 / 256
TIMES = 3  # a rate that is so many times the law's, or one part in so many, is near
LARGE = 6_000_000  # steps
NAMES = {
    "DLR-RM/rl-baselines3-zoo": "rl-baselines3-zoo",
    "keraJLi/rejax": "rejax",
    "google/brax": "Brax",
    "google-deepmind/mujoco_playground": "MuJoCo Playground",
    "RobertTLange/gymnax-blines": "gymnax-blines",
}


# ---- the settings ----------------------------------------------------------------------------------------------------
def read(path=SETTINGS):
    """The facts of all settings, with the columns DERIVED made of them."""
    return derived(pd.read_csv(path, keep_default_na=False, usecols=FACTS)[FACTS])


def derived(facts):
    """k: Adam's steps per environment step; path: the sum of the rate over all of Adam's steps."""
    found = facts.copy()
    found["batch"] = found["num_envs"] * found["num_steps"]
    found["k"] = found["epochs"] / found["minibatch"]
    found["adam_steps"] = found["steps"] * found["k"]
    falling = (found["rate"] + found["final_rate"]) / 2
    found["mean_rate"] = found["anneal"] * falling + (1 - found["anneal"]) * found["final_rate"]
    found["path"] = found["adam_steps"] * found["mean_rate"]
    found["law"] = [recipe.law_rate(steps, k) for steps, k in zip(found["steps"], found["k"])]
    found["times_law"] = found["mean_rate"] / (found["law"] / 2)
    return found


def atlas_best():
    """36 tasks of the atlas at three N x T: task, N, T, steps, and the best of seven annealed rates (3 seeds' mean)."""
    scores, counted, found = half_widths.scores(), sorted(design.counted().items()), []
    for n, t in dict.fromkeys(key[:2] for key in scores):
        rates = np.array([rate for *n_by_t, rate in scores if n_by_t == [n, t]])
        best = rates[np.argmax([scores[n, t, rate].mean(axis=1) for rate in rates], axis=0)]
        found += [(task, n, t, steps, rate) for (task, steps), rate in zip(counted, best)]
    return pd.DataFrame(found, columns=["task", "num_envs", "num_steps", "steps", "rate"])


# ---- the fits --------------------------------------------------------------------------------------------------------
class Fit(NamedTuple):
    """Least squares of log rate on logs: slopes and twice their standard errors, by column."""

    slopes: list
    errors: list
    r2: float
    level: float  # the rate where all columns are at their reference


def fit(rates, *columns):
    """columns: (values (n,), reference) pairs. Classical standard errors: rows are taken as independent."""
    x = np.column_stack([np.ones(len(rates)), *(np.log(values / reference) for values, reference in columns)])
    y = np.log(rates)
    found = np.linalg.lstsq(x, y, rcond=None)[0]
    left = y - x @ found
    variance = left @ left / (len(y) - x.shape[1])
    errors = 2 * np.sqrt(np.diag(variance * np.linalg.inv(x.T @ x)))
    r2 = 1 - left @ left / np.sum((y - y.mean()) ** 2)
    return Fit(list(found[1:]), list(errors[1:]), r2, float(np.exp(found[0])))


def fit_settings(rows, *others):
    """Of the mean rate on budget, k and `others`; its level is at 150,000 steps and the atlas's k."""
    steps, k, rates = (rows[name].to_numpy(float) for name in ("steps", "k", "mean_rate"))
    return fit(rates, (steps, 150_000), (k, ATLAS_K), *others)


def fitted_groups(settings):
    """{name: its settings} of the fits, in the page's order."""
    strict, every = settings[settings["set"] == "strict"], settings[settings["set"] != "untuned"]
    of = strict["source"].map(NAMES)
    car_racing = every[every["task"] == "CarRacing-v3"]
    return {
        "a: called tuned by their files": strict,
        "a and CarRacing, of which the law was made": pd.concat([strict, car_racing]),
        "a, equal settings once": strict.drop_duplicates(["steps", "k", "mean_rate"]),
        "a, rl-baselines3-zoo only": strict[of == "rl-baselines3-zoo"],
        "a, rejax only": strict[of == "rejax"],
        "b: published as good, not in a": settings[settings["set"] == "published"],
        "a and b": every,
        f"a and b, up to {LARGE // 1_000_000} million steps": every[every["steps"] <= LARGE],
        f"a and b, above {LARGE // 1_000_000} million steps": every[every["steps"] > LARGE],
    }


# ---- the tables ------------------------------------------------------------------------------------------------------
def rate(value):
    """A learning rate as the pages write it: 2.5e-4, 1.6e-2, 1e-3."""
    number, power = f"{value:.1e}".split("e")
    return f"{number.removesuffix('.0')}e{int(power)}"


def slopes(one):
    """The slopes on budget and k of a Fit, with their errors, as two cells."""
    return " | ".join(f"{slope:.2f} ± {error:.2f}" for slope, error in list(zip(one.slopes, one.errors))[:2])


def fits_table(settings, best):
    at = "mean rate at 150,000 steps, k = 1/64"
    yield f"| settings | number | slope on log budget | slope on log k | R² | {at} |"
    yield "|---|---|---|---|---|---|"
    yield f"| the law | | -0.50 | -1.00 | | {rate(recipe.law_rate(150_000, ATLAS_K) / 2)} |"
    for name, rows in fitted_groups(settings).items():
        one = fit_settings(rows)
        yield f"| {name} | {len(rows)} | {slopes(one)} | {one.r2:.2f} | {rate(one.level)} |"
    strict = settings[settings["set"] == "strict"]
    of_rejax = np.exp(strict["source"].map(NAMES) == "rejax")  # a column of its log, 0 or 1: a constant of its own
    one = fit_settings(strict, (of_rejax, 1))
    yield f"| a, each repository with its own level | {len(strict)} | {slopes(one)} | {one.r2:.2f} | |"
    one = fit(best["rate"] / 2, (best["steps"].to_numpy(), 150_000))
    yield f"| the atlas's best rates | {len(best)} | {slopes(one)} | | {one.r2:.2f} | {rate(one.level)} |"


def compared_groups(settings):
    """{name: its settings} of the comparison with the law, in the page's order."""
    strict, every = settings[settings["set"] == "strict"], settings[settings["set"] != "untuned"]
    found = {"a: called tuned by their files": strict}
    for letter, rows in (("a", strict), ("b", settings[settings["set"] == "published"])):
        sources = rows.groupby("source", sort=False)
        found.update({f"{letter}, {NAMES[source]}": own for source, own in sources if len(own) > 1})
    found["a and b"] = every
    for low, high in ((0, LARGE), (LARGE, np.inf)):
        words = f"up to {high:,} steps" if np.isfinite(high) else f"above {low:,} steps"
        found[f"a and b, {words}"] = every[(every["steps"] > low) & (every["steps"] <= high)]
    return {**found, "nobody tuned them": settings[settings["set"] == "untuned"]}


def compared_table(settings, _):
    spread = "spread of the rate | of the sum | of times the law"
    yield f"| settings | number | times the law | within {TIMES} times | {spread} |"
    yield "|---|---|---|---|---|---|---|"
    for name, rows in compared_groups(settings).items():
        logs = np.log10(rows["times_law"])
        near = (np.abs(logs) <= np.log10(TIMES) + 1e-9).sum()
        spreads = " | ".join(f"{np.log10(rows[x]).std():.2f}" for x in ("mean_rate", "path", "times_law"))
        yield f"| {name} | {len(rows)} | {10 ** logs.mean():.2f} | {near} | {spreads} |"


def at_8_by_128(best):
    """{task: its row} of the atlas's best rates at 8 x 128."""
    return best[best["num_envs"] == 8].set_index("task")


def tasks_table(settings, best):
    """Tasks of the atlas that two repositories have tuned, each beside the atlas's best rate at 8 x 128."""
    here = at_8_by_128(best)
    yield "| | steps | 1 / k | rate | sum | times the law |"
    yield "|---|---|---|---|---|---|"
    for task, rows in settings[settings["set"] == "strict"].groupby("atlas"):
        if task not in here.index or rows["source"].nunique() < 2:
            continue
        steps, own = int(here.loc[task, "steps"]), here.loc[task, "rate"]
        law = recipe.law_rate(steps, ATLAS_K)
        numbers = f"{own / 2 * steps * ATLAS_K:.1f} | {own / law:.2f}"
        yield f"| **{task}**, atlas | {steps:,} | {1 / ATLAS_K:.0f} | {rate(own)} | {numbers} |"
        for _, row in rows.iterrows():
            numbers = f"{rate(row['rate'])} | {row['path']:.1f} | {row['times_law']:.2f}"
            yield f"| {NAMES[row['source']]}, {row['task']} | {row['steps']:,} | {1 / row['k']:.3g} | {numbers} |"


def landscapes():
    """The rows of HPO-RL-Bench, and the law's mean rate for the steps until then."""
    found = pd.read_csv(LANDSCAPES)
    k = found["epochs"] / found["minibatch"]
    return found.assign(law_mean=[recipe.law_rate(steps, one) / 2 for steps, one in zip(found["steps"], k)])


def landscapes_table(*_):
    yield "| task | steps | 1e-5 | 1e-4 | 1e-3 | best by the mean of 18 | the law's mean rate |"
    yield "|---|---|---|---|---|---|---|"
    for (task, steps), rows in landscapes().groupby(["task", "steps"], sort=False):
        at = rows.set_index("rate")
        cells = [
            f"**{at.loc[x, 'best']}**" if x == at["best"].idxmax() else at.loc[x, "best"] for x in (1e-5, 1e-4, 1e-3)
        ]
        words = " | ".join(map(str, [*cells, rate(at["mean"].idxmax()), rate(rows["law_mean"].iloc[0])]))
        yield f"| {task} | {steps:,} | {words} |"


TABLES = {"fits": fits_table, "compared": compared_table, "tasks": tasks_table, "landscapes": landscapes_table}


def filled(text, settings, best):
    """The text of the page with its tables."""
    tables = {name: table(settings, best) for name, table in TABLES.items()}
    return markdown.filled(TEXT, text, "public.py", tables)


# ---- the picture -----------------------------------------------------------------------------------------------------
DRAWN_K = np.array([1 / 4, 1 / 32, 1 / 256, 1 / 2048])  # of the lines; a setting has the colour of the nearest
SHADES = ramp(("#8FD3F4", "#08306B"), len(DRAWN_K))[::-1]
RINGED = "HalfCheetah-v5"  # a task of the atlas
RING = {"marker": "o", "ls": "", "color": "black", "mfc": "none", "ms": 7.5, "mew": 0.7}


def draw(settings, best):
    """Mean rates against budgets: left as they are, right times k / ATLAS_K, which the law's line should join."""
    shown, random = settings[settings["set"] != "untuned"], np.random.RandomState(0)
    colors = [SHADES[np.argmin(np.abs(np.log(DRAWN_K / k)))] for k in shown["k"]]
    apart = np.exp(random.uniform(-0.12, 0.12, len(shown)))  # else equal settings hide each other
    spread = np.exp(random.uniform(-0.2, 0.2, (2, len(best))))
    ends = np.array([1.5e4, 2e8])
    lines = {k: np.array([recipe.law_rate(steps, k) / 2 for steps in ends]) for k in (*DRAWN_K, ATLAS_K)}

    figure, (left, right) = plt.subplots(1, 2, figsize=(PAGE, 3.1), sharey=True, sharex=True)
    for k, color in zip(DRAWN_K, SHADES):
        left.plot(ends, lines[k], color=color, lw=1)
        left.text(2.3e8, lines[k][1], f"{1 / k:,.0f}", color=color, fontsize=7, va="center")
    right.fill_between(ends, lines[ATLAS_K] / TIMES, lines[ATLAS_K] * TIMES, color="#EEEEEE", lw=0, zorder=0)
    right.plot(ends, lines[ATLAS_K], color="black", lw=1)
    ringed = at_8_by_128(best).loc[RINGED]
    for axes, scale in ((left, np.ones(len(shown))), (right, shown["k"] / ATLAS_K)):
        axes.plot(best["steps"] * spread[0], best["rate"] / 2 * spread[1], ".", color=VERMILLION, ms=2, alpha=0.6)
        axes.plot(ringed["steps"], ringed["rate"] / 2, ".", color=VERMILLION, ms=4)
        axes.plot(ringed["steps"], ringed["rate"] / 2, zorder=4, **RING)
        rates = shown["mean_rate"] * scale
        for x, y, color, (_, row) in zip(shown["steps"] * apart, rates, colors, shown.iterrows()):
            strict = row["set"] == "strict"
            axes.plot(x, y, "o", color=color, mfc=color if strict else "white", ms=4, mew=0.8, zorder=3)
            if strict and row["atlas"] == RINGED:
                axes.plot(x, y, zorder=4, **RING)

    left.set(xscale="log", yscale="log", xlim=(1.2e4, 2.6e8), ylim=(2.5e-6, 5e-2))
    left.set(title="rates as published, and the law for four k", ylabel="learning rate, mean over the run")
    left.text(2.4e8, 4.4e-2, "environment steps\nper Adam step, 1 / k", fontsize=7, color=GRAY, va="top", ha="right")
    right.set(title=f"rates x k x {1 / ATLAS_K:.0f}: the law is one line")
    right.text(2.4e8, 3e-6, "Brax, MuJoCo Playground", fontsize=7, color=GRAY, ha="right")
    right.text(2.4e8, 2e-3, f"within {TIMES} times the law", fontsize=7, color=GRAY, ha="right")
    for axes in (left, right):
        axes.set_xlabel("budget, environment steps")
    dot = {"marker": "o", "ls": "", "ms": 4, "color": SHADES[0]}
    handles = [
        Line2D([], [], label="called tuned by its file", **dot),
        Line2D([], [], label="other published setting", mfc="white", mew=0.8, **dot),
        Line2D([], [], label="best rate of a task of the atlas", marker=".", ls="", ms=3, color=VERMILLION),
        Line2D([], [], label="HalfCheetah, tuned", **RING),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    save(figure, HERE / "public")


def main():
    settings, best = read(), atlas_best()
    digits = {name: settings[name].map("{:.8g}".format) for name in DERIVED}  # facts keep all that the files have
    settings.assign(**digits).to_csv(SETTINGS, index=False, lineterminator="\n")
    TEXT.write_text(filled(TEXT.read_text(), settings, best))
    draw(settings, best)


if __name__ == "__main__":
    main()
