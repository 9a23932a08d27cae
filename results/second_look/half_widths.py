"""The half-widths to expect of L1 to L5, L17 and L19 to L22, simulated from the runs of the atlas: half_widths.csv.

    python results/second_look/half_widths.py

A simulated study draws as many tasks of the atlas as its claim has, with replacement. A task's difference between two
settings is that of the atlas, shrunken by the share of the variance over tasks that is the seeds'; its seeds scatter as
the two settings' seeds did there. Step 1 has three seeds of each setting.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT

import numpy as np
import pandas as pd
from scipy import stats

from results.second_look import design
from support import reading

HERE = Path(__file__).resolve().parent
STUDIES = 2000
FEW, MANY = (8, 128), (128, 8)


def scores():
    """{(N, T, rate): scores (36, 3)} of step 1 on scale B, tasks in the order of their names."""
    runs = reading.load(ROOT / "results" / "runs.csv.gz")
    runs = runs[runs["experiment"].eq("atlas") & runs["seed"].between(1, 3) & runs["env_id"].isin(design.counted())]
    play = design.table_of("random").set_index("task")["random"]
    runs = runs.assign(final_return=runs["final_return"].where(runs["state"] != "diverged", runs["env_id"].map(play)))
    means = runs.groupby(["env_id", "num_envs", "num_steps", "learning_rate"])["final_return"].mean()
    zero, one = runs["env_id"].map(play), runs["env_id"].map(means.groupby("env_id").max())
    runs = runs.assign(scored=((runs["final_return"] - zero) / (one - zero)).clip(lower=-1))
    settings = runs.groupby(["num_envs", "num_steps", "learning_rate"])
    return {
        (int(n), int(t), rate): of.pivot(index="env_id", columns="seed", values="scored").to_numpy()
        for (n, t, rate), of in settings
    }


def half_width(values):
    return stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)


def of_difference(first, second, num_tasks, seeds, rng):
    """The mean half-width of first minus second, scores (36, 3), with two numbers of seeds and num_tasks tasks."""
    difference = first.mean(1) - second.mean(1)
    noise = first.var(1, ddof=1), second.var(1, ddof=1)
    variance = difference.var(ddof=1)
    tau2 = max(0.0, variance - sum(noise).mean() / 3)
    shrunken = difference.mean() + (difference - difference.mean()) * (tau2 / variance if variance else 0.0) ** 0.5
    found = []
    for _ in range(STUDIES):
        task = rng.integers(len(difference), size=num_tasks)
        error = (noise[0][task] / seeds[0] + noise[1][task] / seeds[1]) ** 0.5
        found.append(half_width(shrunken[task] + error * rng.standard_normal(num_tasks)))
    return np.mean(found)


def center(means):
    """L4's best rate, log2: the mean over the rates, (..., rates), whose score is within 0.1 of the best one."""
    near = means >= means.max(-1, keepdims=True) - 0.1
    return (near * np.arange(means.shape[-1])).sum(-1) / near.sum(-1)


def of_slope(of_rates, num_tasks, rng, spread=0.3):
    """The mean half-width of L4's slope: two axes of three k each. of_rates: scores (36, rates, 3) of one setting.

    spread: the deviation over tasks of the true slope, assumed; the scatter of a center is that of seeds drawn anew.
    """
    found = []
    for _ in range(STUDIES):
        task = rng.integers(len(of_rates), size=num_tasks)
        seeds = rng.integers(3, size=(5, num_tasks, of_rates.shape[1], 3))  # five arms
        drawn = center(np.take_along_axis(of_rates[task][None], seeds, -1).mean(-1))  # (5, tasks)
        error = ((drawn[0] - drawn[1]) + (drawn[2] - drawn[3])) / 2 / 4  # from k/4 to 4k are four doublings
        found.append(half_width(error + spread * rng.standard_normal(num_tasks)))
    return np.mean(found)


def main():
    of, rng = scores(), np.random.default_rng(0)
    at = {2.5e-4 * 2**k: of[(*FEW, 2.5e-4 * 2**k)] for k in range(7)}
    default, fixed, law, high, many = at[2.5e-4], at[2e-3], at[4e-3], at[8e-3], of[(*MANY, 2e-3)]
    differences = [  # name, what, two settings, tasks, seeds of each
        ("L1", "law minus 2.5e-4: 20 new tasks, 3 seeds at 2 budgets", law, default, 20, (6, 6)),
        ("L1", "the same, if 12 of them are learned", law, default, 12, (6, 6)),
        ("L2", "128 x 8 minus 8 x 128 at 2e-3, 6 seeds", many, fixed, 36, (6, 6)),
        ("L2", "the same, 10 seeds", many, fixed, 36, (10, 10)),
        ("L3", "two bests of three minus 6 runs, tasks as in 8e-3 minus 4e-3", high, law, 36, (2, 6)),
        ("L3", "the same, minus 3 runs", high, law, 36, (2, 3)),
        ("L5", "law minus 2e-3, 6 seeds, tasks as in 4e-3 minus 2e-3", law, fixed, 36, (6, 6)),
        ("L17", "two rates of 32 x 128, 5 seeds, tasks as in 8e-3 minus 2e-3", high, fixed, 27, (5, 5)),
        ("L17", "the same, 3 seeds", high, fixed, 27, (3, 3)),
    ]
    rows = [(name, what, of_difference(*others, rng)) for name, what, *others in differences]
    rows.append(("L4", "slope of log rate on log k, 10 tasks", of_slope(np.stack(list(at.values()), 1), 10, rng)))
    tasks = sorted(design.counted())
    longest = np.array([task in design.longest_tasks() for task in tasks])
    alike = ~longest & [task in design.one_length() for task in tasks]
    twice = {  # the seeds' noise alone: both settings are the same one
        ("L19", "128 x 8 at 2e-3 twice, 6 seeds, 10 tasks"): many[longest],
        ("L20", "the same, the 26 others"): many[~longest],
        ("L21", "the same, the 13 of these with episodes of one length"): many[alike],
        ("L22", "8 x 128 at 2e-3 twice, 6 seeds, 36 tasks"): fixed,
    }
    rows += [(*words, of_difference(own, own, len(own), (6, 6), rng)) for words, own in twice.items()]
    table = pd.DataFrame(rows, columns=["claim", "what", "half_width"]).round({"half_width": 2})
    table.to_csv(HERE / "half_widths.csv", index=False, lineterminator="\n")
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
