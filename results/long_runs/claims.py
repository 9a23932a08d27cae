"""Does an N x T fall behind, or catch up, in ten million steps? Three N x T of one batch at two rates; no claims."""

import numpy as np
from analysis.claims import Claims
from analysis.experiment import load

MAP, of_peaks = load("map"), load("lunarlander").of_peaks
VARIES, FIXED, ALSO = MAP.VARIES, MAP.FIXED, ("map",)
N_BY_TS = MAP.BATCH_1024
LONGEST = 10_000_000


def table(runs):
    """The runs of the three N x T on the tasks with runs of LONGEST, the map's among them."""
    own = np.array([n_by_t in N_BY_TS for n_by_t in zip(runs["num_envs"], runs["num_steps"])])
    return runs[own & runs["game"].isin(runs[runs["total_timesteps"] == LONGEST]["game"])]


def at(view, n_by_t, budget):
    """The configurations of an N x T at a budget with the rates that ran at LONGEST, in a view of one task."""
    rates = MAP.rates_of(view, n_by_t, LONGEST)
    return [config for rate, config in MAP.rates_of(view, n_by_t, budget).items() if rate in rates]


def claims(scores):
    found = Claims(scores)

    def compare(text, first, second):
        """Adds the larger mean of the first configurations minus that of the second."""
        if first and second:
            found.estimate(text, of_peaks(len(first)), [*first, *second], name="long", tasks=[task])

    for task in scores.tasks:
        view = scores.in_task(task)
        for n_by_t in N_BY_TS:
            words = f"{n_by_t[0]}x{n_by_t[1]} at the better of its two rates: {LONGEST:,} steps minus {MAP.LONG:,}"
            compare(words, at(view, n_by_t, LONGEST), at(view, n_by_t, MAP.LONG))
        for budget in (MAP.LONG, LONGEST):
            for n_by_t in N_BY_TS[1:]:
                words = f"{n_by_t[0]}x{n_by_t[1]} minus 8x128 at {budget:,} steps, each at the better of its two rates"
                compare(words, at(view, n_by_t, budget), at(view, N_BY_TS[0], budget))
    return found


def draw(scores):
    return MAP.summary(scores, N_BY_TS, (*MAP.BUDGETS, LONGEST), top=1.2)
