"""How often does the prediction interval of a new task hold it? Simulated atlases with the noise of the real one.

    python results/atlas/new_task.py        # after `judge.py atlas`; writes new_task.csv, which page.py reads

An atlas has as many tasks as count in the real one. Each draws the variance of its error from theirs; the estimate of
this variance has ten degrees of freedom, that of two settings with six seeds. Its true difference is drawn with the
standard deviation `tau`: the same on all tasks, or proportional to the task's noise, as on tasks that are quiet because
they have a ceiling.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT  # noqa: F401

import itertools

import claims as atlas
import numpy as np
import pandas as pd
from analysis import experiment

from support import reading

TAUS, ATLASES, NEW, FREEDOM = (0.05, 0.1, 0.2), 2000, 200, 10
METHODS = {"DerSimonian and Laird": atlas.dersimonian_laird, "Paule and Mandel": atlas.paule_mandel}
SPREADS = ("the same on all tasks", "proportional to the noise")


def coverage(variances, rng, atlases=ATLASES):
    """A row per method, tau and spread: the share of new tasks whose true difference lies within the interval."""
    found = []
    for tau, spread in itertools.product(TAUS, SPREADS):
        inside = dict.fromkeys(METHODS, 0.0)
        for _ in range(atlases):
            own, new = (np.maximum(rng.choice(variances, n), 1e-6) for n in (len(variances), NEW))
            scale = [tau * (x / variances.mean()) ** 0.5 if spread == SPREADS[1] else tau for x in (own, new)]
            seen = rng.normal(0, scale[0], len(own)) + rng.normal(0, own**0.5)
            true, estimated = rng.normal(0, scale[1], NEW), own * rng.chisquare(FREEDOM, len(own)) / FREEDOM
            for name, method in METHODS.items():
                interval = atlas.heterogeneity(seen, estimated, method)
                inside[name] += np.mean((interval.low <= true) & (true <= interval.high)) / atlases
        found += [{"method": name, "tau": tau, "spread": spread, "inside": inside[name]} for name in METHODS]
    return pd.DataFrame(found)


def main():
    table = reading.load(experiment.DATASET)
    counted = atlas.atlas(table[table["experiment"].str.split().map(lambda words: "atlas" in words)])[1]
    variances = np.array([atlas.many_gain(task)[1] for task in counted])
    experiment.write_csv(coverage(variances, np.random.default_rng(0)).round(3), atlas.HERE / "new_task.csv")


if __name__ == "__main__":
    main()
