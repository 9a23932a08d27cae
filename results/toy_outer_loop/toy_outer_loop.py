"""P3's toy of the outer loop: noisy gradient descent on a quadratic, and the plateau that each step size reaches.

    python results/toy_outer_loop/toy_outer_loop.py --out figures/
    python results/toy_outer_loop/toy_outer_loop.py --step-sizes 0.02 0.2 --samples 1 100 --paths 1000

P3 (Beukman et al. 2026, arXiv 2603.06009, fig. 1 to 3) explains PPO's plateaus by an outer loop whose step is too large
for the noise of its batches. Its toy minimises x^T x in 50 dimensions by gradient descent. Each gradient has noise of
standard deviation 3 / sqrt(50) in each coordinate. With step size h and the mean of B samples per step:

    x <- x - h (2 x + xi) = (1 - 2 h) x - h xi,    xi ~ N(0, 9 / (50 B)) in each coordinate
    E|x_k|^2 = r^k |x_0|^2 + (1 - r^k) P,          r = (1 - 2 h)^2,    P = 9 h / (4 (1 - h) B)

P is the plateau for 0 < h < 1: in one coordinate the variance v solves v = r v + 9 h^2 / (50 B), and 1 - r is
4 h (1 - h). A smaller step and more samples both lower it; the smaller step also takes longer to reach it. The algebra
is ours: P3 shows paths only, as -|x|. Its text gives neither the starting point nor the step sizes; ours are x_0 = 1 in
each coordinate and the defaults below.

This is an analogy and not a model of PPO: no theorem links the two, as P3 says too.

Writes toy_outer_loop.png and toy_outer_loop.csv. The CSV has one row per point: the root of the mean of |x|^2 over the
paths, one path, the expectation, and the measured and the analytic plateau. Prints the plateaus: the mean of |x|^2 over
the second half of the steps and over all paths, with its 95 % bootstrap interval over paths. Takes ten seconds on one
core.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT  # noqa: F401

import math
from dataclasses import dataclass
from typing import Tuple

import numpy as np
import pandas as pd
from analysis.estimates import interval, mean
from analysis.look import BLUES, ORANGES, PAGE, plt, ramp, save
from typing_extensions import Annotated

from support import arguments, progress
from support.arguments import Range, Seed

DIMENSIONS, NOISE = 50, 3.0  # norm of the noise: 3 / sqrt(50) in each of 50 coordinates
POINTS = 60  # points of a drawn curve, at most
ROOT_MEAN_SQUARE, ONE_PATH, EXPECTED = "root mean square", "one path", "expected"  # quantities in |x|
MEASURED, ANALYTIC = "plateau measured", "plateau analytic"  # quantities in |x|^2
DASHES = dict(color="black", lw=0.7, ls=(0, (4, 2)))  # how the formulas are drawn
ON_PLATEAU = 0.01  # a plateau counts as reached if E|x|^2 exceeds it by less than this share where the mean begins
COLUMNS = ["step_size", "samples", "quantity", "step", "value", "ci_low", "ci_high"]


@dataclass
class Args:
    out: Path = Path("figures")  # the directory for the picture and the table
    step_sizes: Tuple[float, ...] = (0.01, 0.03, 0.1, 0.3)  # h: between 0 and 1
    samples: Tuple[int, ...] = (1, 4, 16, 64)  # B: gradients averaged per step
    steps: Annotated[int, Range(2, 10**6)] = 1000  # steps of gradient descent
    paths: Annotated[int, Range(3, 10**5)] = 100  # independent repetitions
    seed: Seed = 1  # seeds the noise


def parse_args(argv):
    """Returns checked Args; exits 2 with one line on bad input. Touches no file."""
    args = arguments.parse(Args, argv, __doc__)
    for h in args.step_sizes:
        if not 1e-6 <= h <= 0.999:
            arguments.fail(
                f"--step-sizes {h}: expected numbers from 1e-6 to 0.999; at 1 and above the noise has no plateau"
            )
    for count in args.samples:
        if not 1 <= count <= 10**9:
            arguments.fail(f"--samples {count}: expected whole numbers from 1 to 1,000,000,000")
    if not args.step_sizes or not args.samples:
        arguments.fail("--step-sizes and --samples: expected at least one number each")
    if args.steps * args.paths > 10**8:
        arguments.fail(f"--steps {args.steps} x --paths {args.paths}: expected a product of at most 100,000,000")
    args.step_sizes, args.samples = sorted(set(args.step_sizes)), sorted(set(args.samples))
    return args


# ---- the toy ---------------------------------------------------------------------------------------------------------
def plateau(h, samples):
    """E|x|^2 in the limit: 9 h / (4 (1 - h) B)."""
    return NOISE**2 * h / (4 * (1 - h) * samples)


def expected(h, samples, steps):
    """E|x_k|^2 at each of `steps`, (K,): r^k |x_0|^2 + (1 - r^k) P."""
    remaining = (1 - 2 * h) ** (2 * np.asarray(steps, float))
    return remaining * DIMENSIONS + (1 - remaining) * plateau(h, samples)


def descend(h, samples, steps, paths, seed):
    """|x_k|^2 of independent paths, (steps + 1, paths): row 0 is the start."""
    rng = np.random.default_rng([seed, samples])
    x = np.ones((paths, DIMENSIONS))
    squares = np.empty((steps + 1, paths))
    squares[0] = DIMENSIONS
    deviation = NOISE / math.sqrt(DIMENSIONS * samples)
    for step in range(1, steps + 1):
        gradient = 2 * x + deviation * rng.standard_normal(x.shape)
        x = x - h * gradient
        squares[step] = (x * x).sum(1)
    return squares


def measure(args):
    """The tidy table of every number that is drawn or printed: COLUMNS, one row per point."""
    kept = np.unique(np.geomspace(1, args.steps + 1, POINTS).astype(int)) - 1
    half, frames = args.steps // 2, []
    settings = [(h, samples) for h in args.step_sizes for samples in args.samples]
    with progress.progress_bar(len(settings), "setting", "descends") as bar:
        for h, samples in settings:
            squares = descend(h, samples, args.steps, args.paths, args.seed)
            curves = {
                ROOT_MEAN_SQUARE: np.sqrt(squares[kept].mean(1)),
                ONE_PATH: np.sqrt(squares[kept, 0]),
                EXPECTED: np.sqrt(expected(h, samples, kept)),
            }
            for quantity, values in curves.items():
                frames.append(pd.DataFrame({"quantity": quantity, "step": kept, "value": values}))
            value, low, high = interval(mean, [[squares[half + 1 :].mean(0)]])
            row = {"quantity": MEASURED, "step": args.steps, "value": value, "ci_low": low, "ci_high": high}
            frames.append(pd.DataFrame([row, {"quantity": ANALYTIC, "value": plateau(h, samples)}]))
            for frame in frames[-len(curves) - 1 :]:
                frame[["step_size", "samples"]] = h, samples
            bar.update()
    return pd.concat(frames).reindex(columns=COLUMNS)


# ---- what is shown ---------------------------------------------------------------------------------------------------
def select(table, quantity, **setting):
    """The rows of one quantity; setting: the step size and the number of samples, if only one of each is wanted."""
    keep = table["quantity"] == quantity
    for name, value in setting.items():
        keep &= table[name] == value
    return table[keep]


def describe(table, steps):
    """Yields the lines of the table of plateaus; marks the settings that have not reached theirs."""
    yield f"E|x|^2 over steps {steps // 2 + 1:,} to {steps:,}, and 9 h / (4 (1 - h) B)"
    yield f"{'h':>8} {'B':>8} {'measured':>12} {'95 % CI':>25} {'analytic':>12} {'ratio':>7}"
    for row in select(table, MEASURED).itertuples():
        analytic = plateau(row.step_size, row.samples)
        limits = f"{row.ci_low:.4g} to {row.ci_high:.4g}"
        begins = expected(row.step_size, row.samples, [steps // 2 + 1])[0]
        late = "" if begins < (1 + ON_PLATEAU) * analytic else "  not reached: expected more --steps"
        yield (
            f"{row.step_size:8g} {row.samples:8.0f} {row.value:12.4g} {limits:>25} {analytic:12.4g} "
            f"{row.value / analytic:7.3f}{late}"
        )


def beside(ax, x, y, text, color):
    """Labels a curve at its right end."""
    ax.annotate(text, (x, y), xytext=(3, 0), textcoords="offset points", color=color, fontsize=6.5, va="center")


def draw(table, path):
    """Draws the picture from a table as `measure` returns it, and from nothing else."""
    figure, axes = plt.subplots(1, 3, figsize=(PAGE, 2.4))
    sizes, counts = sorted(table["step_size"].unique()), sorted(table["samples"].unique())
    largest, of_counts = sizes[-1], ramp(ORANGES, len(counts))
    panels = (
        (axes[0], [(h, counts[0]) for h in sizes], ramp(BLUES, len(sizes)), "h={0:g}", f"B = {counts[0]:g}"),
        (axes[1], [(largest, b) for b in counts], of_counts, "B={1:g}", f"h = {largest:g}"),
    )
    for ax, settings, colors, label, title in panels:
        for (h, samples), color in zip(settings, colors):
            setting = {"step_size": h, "samples": samples}
            one, curve = select(table, ONE_PATH, **setting), select(table, ROOT_MEAN_SQUARE, **setting)
            ax.plot(one["step"] + 1, one["value"], color=color, lw=0.5, alpha=0.5)
            ax.plot(curve["step"] + 1, curve["value"], color=color)
            dashes = select(table, EXPECTED, **setting)
            ax.plot(dashes["step"] + 1, dashes["value"], zorder=3, **DASHES)
            beside(ax, curve["step"].iloc[-1] + 1, math.sqrt(plateau(h, samples)), label.format(h, samples), color)
        ax.set(xscale="log", yscale="log", xlabel="step + 1", title=title)
    axes[0].set_ylabel(r"$\|x\|$")
    lines = np.geomspace(sizes[0] / 1.5, min(largest * 1.5, 0.99), POINTS)
    for samples, color in zip(counts, of_counts):
        rows = select(table, MEASURED, samples=samples)
        bars = np.maximum([rows["value"] - rows["ci_low"], rows["ci_high"] - rows["value"]], 0)
        axes[2].errorbar(rows["step_size"], rows["value"], bars, color=color, fmt="o", ms=3)
        axes[2].plot(lines, plateau(lines, samples), zorder=3, **DASHES)
        beside(axes[2], lines[-1], plateau(lines[-1], samples), f"B={samples:g}", color)
    axes[2].set(xscale="log", yscale="log", xlabel="step size h", title="the plateau")
    axes[2].set_ylabel(r"$E\|x\|^2$")
    note = r"thick: root mean square of all paths; thin: one path; dashed: the formula; right: $P = 9h / (4 (1 - h) B)$"
    figure.supxlabel(note, fontsize=7)
    save(figure, path)


def main(args):
    with arguments.writable("out", args.out):
        table = measure(args)
        table.to_csv(args.out / "toy_outer_loop.csv", index=False, float_format="%.5g")
        draw(pd.read_csv(args.out / "toy_outer_loop.csv"), args.out / "toy_outer_loop")
    print(*describe(table, args.steps), sep="\n")


if __name__ == "__main__":
    main(parse_args(sys.argv[1:]))
