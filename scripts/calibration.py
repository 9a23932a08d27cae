"""How often each kind of claim is wrong, and how often it finds what is there: simulated sweeps with known answers.

    python scripts/calibration.py            # the table of docs/reproducing.md, some minutes on one core

A final score is a game's own level times a log-normal number (sigma 0.5). In the null of a kind of claim nothing
differs, or, for "changes little" and "not below", the difference is exactly the margin. Counted is how often the 95 %
interval (n - 1 of n seeds) decides for the claim or against it where neither is true: 5 % would be right. For claims
with a margin counted is how often they are *supported* at the edge of the margin: 2.5 % would be right. Power is how
often the claim is supported if it is true by the stated effect.
"""

from launching.root import ROOT  # noqa: F401

import sys
from dataclasses import dataclass
from typing import Annotated, Tuple

import numpy as np
from analysis.comparisons import quadratic, split
from analysis.estimates import CONTRADICTED, SUPPORTED, evidence, iqm, kendall, reversals, verdict

from support import arguments
from support.arguments import Count, Pattern, Seed

SIGMA = 0.5  # of the logarithm of a score
EFFECT = 0.3  # of the base's IQM: the true difference where power is counted
MARGIN = 0.1  # of the base's IQM
LEVELS = (8, 16, 32, 64)  # of N, in a trend
SIZES = ("3x1", "3x2", "5x1", "5x3", "10x5", "20x5")  # seeds x games
SIZE = Pattern("([3-9]|[1-9][0-9]{1,2}|1000)x([1-9][0-9]{0,2}|1000)", "seeds x games, as 5x3; 3 to 1000 x 1 to 1000")


@dataclass
class Args:
    simulations: Count = 400  # simulated sweeps for each number
    reps: Count = 400  # bootstrap resamples
    sizes: Tuple[Annotated[str, SIZE], ...] = SIZES  # seeds x games
    seed: Seed = 0  # of everything


def scores(rng, size, factors):
    """A sample for each factor: one array (seeds,) a game, of its level times the factor times noise."""
    seeds, games = size
    levels = np.exp(rng.normal(0, 0.7, games))
    return [[level * factor * rng.lognormal(0, SIGMA, seeds) for level in levels] for factor in factors]


def of_difference(samples, side, margin, reps, seed):
    bounds = evidence(lambda one, other: iqm(one) - iqm(other), samples, reps, seed).estimate[1:]
    return verdict(*bounds, side, margin)


# ---- kinds of claims: functions (rng, size, effect, reps) -> verdict -------------------------------------------------
def difference(rng, size, effect, reps):
    return of_difference(scores(rng, size, [1 + effect, 1]), "more", 0, reps, rng.randint(2**31))


def gain(rng, size, effect, reps):
    samples = scores(rng, size, [1 + effect, 1, 1, 1])
    found = evidence(lambda a, b, c, d: iqm(a) - iqm(b) - iqm(c) + iqm(d), samples, reps, rng.randint(2**31))
    return verdict(*found.estimate[1:], "more")


def little(rng, size, effect, reps):
    """effect 0: a difference of exactly the margin; else none."""
    samples = scores(rng, size, [1 if effect else 1 + MARGIN, 1])
    return of_difference(samples, "little", MARGIN * _true_iqm(samples), reps, rng.randint(2**31))


def not_less(rng, size, effect, reps):
    """effect 0: exactly the margin below; else none."""
    samples = scores(rng, size, [1 if effect else 1 - MARGIN, 1])
    return of_difference(samples, "not less", MARGIN * _true_iqm(samples), reps, rng.randint(2**31))


def _true_iqm(samples):
    return abs(float(iqm(samples[-1])))  # of the base, as measured: the programs do not know the true one either


def trend(rng, size, effect, reps):
    """effect: the largest N's gain; Kendall's tau and no significant fall at the end."""
    samples = scores(rng, size, [1 + effect * i / (len(LEVELS) - 1) for i in range(len(LEVELS))])
    groups = [[sample[game] for sample in samples] for game in range(size[1])]
    seed = rng.randint(2**31)
    word = verdict(*kendall(LEVELS, groups, None, reps, seed).estimate[1:], "more")
    return CONTRADICTED if word == SUPPORTED and reversals(LEVELS, groups, "more", reps, seed) else word


def inverted_u(rng, size, effect, reps):
    """Seven DDRs, a factor of ten apart at the ends; effect: how far both ends are below the top."""
    place = np.linspace(-1, 1, 7)
    ddrs = [[np.full(size[0], x / 2) + rng.normal(0, 0.02, size[0])] * size[1] for x in place]
    samples = [*scores(rng, size, 1 - effect * place**2), *ddrs]
    found = evidence(lambda *drawn: quadratic(*split(drawn))[0], samples, reps, rng.randint(2**31))
    return verdict(*found.estimate[1:], "less")


KINDS = {
    "difference of IQMs": difference,
    "difference of gains": gain,
    "rising with N, no fall at the end": trend,
    "inverted U": inverted_u,
    "changes little (at the margin)": little,
    "not below (at the margin)": not_less,
}
AT_THE_MARGIN = (little, not_less)


def parse_args(argv):
    """Returns checked Args, with `sizes` as [(seeds, games), …]; exits 2 with one line on bad input."""
    args = arguments.parse(Args, argv, __doc__)
    args.sizes = [tuple(map(int, size.split("x"))) for size in args.sizes]
    return args


def rate(kind, size, effect, args):
    """The share of simulated sweeps, in percent, in which the claim is decided for (or, in a null, either way)."""
    rng = np.random.RandomState(args.seed)
    wrong = {SUPPORTED} if effect or kind in AT_THE_MARGIN else {SUPPORTED, CONTRADICTED}
    return 100 * np.mean([kind(rng, size, effect, args.reps) in wrong for _ in range(args.simulations)])


def main(args):
    header = [f"{seeds} x {games}" for seeds, games in args.sizes]
    for title, effect in (("decided although nothing is there, %", 0.0), (f"power at {EFFECT:.0%}, %", EFFECT)):
        print(f"| {title}; seeds x games | {' | '.join(header)} |")
        print("|---" * (1 + len(header)) + "|", flush=True)
        for name, kind in KINDS.items():
            rates = [f"{rate(kind, size, effect, args):.0f}" for size in args.sizes]
            print(f"| {name} | {' | '.join(rates)} |", flush=True)
        print()


if __name__ == "__main__":
    main(parse_args(sys.argv[1:]))
