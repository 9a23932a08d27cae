"""mjlab's Cartpole-Balance: environments that start in phase, and four times as many of them in P3's ways."""

import pandas as pd
from analysis.comparisons import gain_difference, judge
from analysis.estimates import evidence
from analysis.experiment import REPS, ExperimentClaims

VARIES = ("study", "num_envs", "arm")
WAYS = BASE, MORE, BIGGER, SQRT = ("base", "more-minibatches", "bigger-minibatches", "sqrt-lr")
UNIT = "final return, of 50"


def table(folder):
    """A row a run of phase.csv and ways.csv. `score`: the final return."""
    phase, ways = (pd.read_csv(folder / f"{name}.csv").assign(study=name) for name in ("phase", "ways"))
    phase["arm"] = phase["stagger_resets"].map({True: "staggered", False: "together"})
    ways["arm"] = ways["way"]
    return pd.concat([phase, ways], ignore_index=True).assign(
        game="Cartpole-Balance", score=lambda rows: rows["final_return"]
    )


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
        return judge(evidence(gain_difference, [view.sample(config) for config in many + few], REPS), "more")

    text = "the gain of starting out of phase is larger at 1024 environments than at 256"
    found.add("H3", text, larger, many + few, quantity=UNIT)
    return found
