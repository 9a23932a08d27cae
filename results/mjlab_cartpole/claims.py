"""mjlab's Cartpole-Balance: environments that start in phase, and four times as many of them in P3's ways."""

from launching.root import ROOT

import pandas as pd
from analysis import panels
from analysis.comparisons import gain_difference, judge
from analysis.estimates import evidence
from analysis.experiment import ExperimentClaims
from analysis.look import COLORS, PAGE, plt

from support import reading, recipe

TASK, STEPS = "Mjlab-Cartpole-Balance", 1_310_720  # steps of a run of lag
VARIES = ("study", "num_envs", "arm")
WAYS = BASE, MORE, BIGGER, SQRT = ("base", "more-minibatches", "bigger-minibatches", "sqrt-lr")
FIXED = {}
UNIT = "final return, of 50"


def rows(folder):
    """A dict a run of phase.csv, ways.csv, lag.csv (its last point) and returns.csv."""
    studies = [pd.read_csv(folder / f"{name}.csv").assign(study=name) for name in ("phase", "ways", "lag", "returns")]
    for row in pd.concat(studies, ignore_index=True).to_dict("records"):
        if row["study"] == "lag" and row["steps"] < STEPS:
            continue
        started = {True: "staggered", False: "together"}.get(row["stagger_resets"], "staggered")
        arm = {"ways": row["way"], "returns": row["program"]}.get(row["study"], started)
        found = {name: row[name] for name in ("num_envs", "study", "episodic_return", "final_return")}
        found |= {"game": "Cartpole-Balance", "env_id": TASK, "arm": arm, "stagger_resets": started == "staggered"}
        found |= {"seed": 1 if row["study"] == "lag" else int(row["seed"]), "global_step": row["steps"]}
        found |= {"script": "rsl_rl" if arm == "rsl_rl" else "ppo_isaacgym", "total_timesteps": row["steps"]}
        yield {**found, "num_steps": 32} if arm == "rsl_rl" else {**arguments_of(found), **found}


def arguments_of(row):
    """The other arguments of a run of ppo_isaacgym.py: the task's defaults, and what P3's ways make of them."""
    given = reading.default_arguments(str(ROOT / "ppo_isaacgym.py"), TASK)
    number, rate = given["num_minibatches"], given["learning_rate"]
    size = row["num_envs"] * given["num_steps"] // number
    if row["arm"] in WAYS[1:]:
        size, number, rate = recipe.scaled(row["num_envs"], 64, given["num_steps"], number, rate, row["arm"])
    found = {name: given[name] for name in ("num_steps", "update_epochs", "anneal_lr", "mask_resets")}
    return {**found, "minibatch_size": size, "num_minibatches": number, "learning_rate": rate}


def table(runs):
    """The runs of phase and ways. `score`: the final return."""
    return runs[runs["study"].isin(["phase", "ways"])].assign(score=lambda rows: rows["final_return"])


def claims(scores):
    found = ExperimentClaims(scores)
    few, many = (
        [scores.one(study="phase", num_envs=n, arm=arm) for arm in ("staggered", "together")] for n in (256, 1024)
    )
    base, more, bigger, sqrt = (scores.one(study="ways", arm=way) for way in WAYS)
    for name, text, pair in (
        ("H1", "out of phase is better than together, 256 environments", few),
        ("H2", "out of phase is better than together, 1024 environments", many),
        ("G1", "with 4 times the environments more minibatches beat bigger ones", (more, bigger)),
        (
            "G2",
            "with 4 times the environments more minibatches beat the square-root rule",
            (more, sqrt),
        ),
        ("G3", "256 environments with more minibatches beat 64 at equal data", (more, base)),
    ):
        found.compare(name, text, *pair, primary=True, quantity=UNIT)

    def larger(view):
        return judge(evidence(gain_difference, [view.sample(config) for config in many + few]), "more")

    text = "the gain of starting out of phase is larger at 1024 environments than at 256"
    found.add("H3", text, larger, many + few, quantity=UNIT)
    return found


def draw(scores):
    """Every run, and the means, of both studies."""
    figure, axes = plt.subplots(1, 2, figsize=(PAGE, 2.4), sharey=True)
    studies = {
        "1,310,720 steps": [
            (f"{n}\n{words}", scores.one(study="phase", num_envs=n, arm=arm))
            for n in (256, 1024)
            for arm, words in (("staggered", "out of phase"), ("together", "together"))
        ],
        "327,680 steps": [
            (f"{config['num_envs']}\n{way.replace('-', ' ', 1).replace(' mini', chr(10) + 'mini')}", config)
            for way in WAYS
            for config in [scores.one(study="ways", arm=way)]
        ],
    }
    for axis, (title, configs), color in zip(axes, studies.items(), COLORS):
        panels.points(axis, range(len(configs)), [scores.sample(config)[0] for _, config in configs], color, "")
        axis.set_xticks(range(len(configs)), [label for label, _ in configs])
        axis.set(title=title, xlim=(-0.5, len(configs) - 0.5), ylim=(0, 52))
        axis.grid(False, axis="x")
    axes[0].set_ylabel(UNIT)
    figure.supxlabel("environments; open: fewer than ten seeds", fontsize=8)
    return figure
