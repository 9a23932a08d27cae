"""How much of the state space do the configurations of a sweep visit? UMAP of their `coverage.npz`, and Cvg.

    python scripts/umap_coverage.py --runs runs/coverage --out figures/
    python scripts/umap_coverage.py --runs runs/coverage --out figures/ --input features    # the networks' own features

P1 (Mayor et al. 2025, arXiv 2506.03404, fig. 2 and 9, B.7) gives neither the input of its UMAP, nor its settings, its
box or its grid. The choices here make configurations comparable:

1. One joint UMAP per game, of equally many rows of every run. Separate ones hide concentration, for UMAP evens it out.
2. Its input needs no network: frames averaged over 4 x 4 pixels (84 x 84 -> 21 x 21), or standardised observations; of
   these the first 50 principal components, each different picture once. UMAP has 15 neighbours and min_dist 0.5.
   Features come from each run's own encoder, so that their coverage also compares encoders. They are an option, and the
   figure says so.
3. One bounding box: the 0.1 % and 99.9 % quantiles of all rows. Points outside are moved to its edge.
4. Cvg of each run at several grids and UMAP seeds. The table has next to it what as many uniform points would cover:
   1 - (1 - 1/G^2)^n. Figure and claims use the grid where that is nearest to 1/2: near 0 or 1 no difference can show.
5. Three measures without UMAP: Cvg of the first two principal components; the share of distinct rows of UMAP's input at
   8 grey levels; the mean distance to the 5th neighbour in the run, over the root-mean-square distance of all rows from
   their mean.

Rows are spread evenly over each run, so Cvg is of all states that the run has trained on, not of one batch. Writes
coverage.png and .pdf (up to four games), with several games coverage_<game>.png and .pdf, coverage.csv (every number,
one per line) and coverage_claims.csv; prints both tables. Intervals and verdicts are those of figures.py: a verdict
needs ten seeds, or five in each of six games.
"""

from launching.root import ROOT  # noqa: F401

import itertools
import math
import os
import sys
import textwrap
import warnings
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Tuple

import numpy as np
import pandas as pd
import torch
from analysis import training_runs
from analysis.claims import Claims, in_words
from analysis.comparisons import judge
from analysis.estimates import evidence, interval, mean
from analysis.look import PAGE, plt
from analysis.scores import Scores
from analysis.suite import label_of
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler
from typing_extensions import Annotated

import metrics
from support import reading
from support.arguments import Range, Seed, fail, parse, writable
from support.progress import progress_bar

COMPONENTS = 50  # principal components that UMAP gets
# UMAP's default of min_dist, 0.1, packs each scene of a game into one cell: on Breakout it halves Cvg and the
# differences. Its 500 epochs for small data change nothing but the time.
NEIGHBORS, MIN_DIST, EPOCHS = 15, 0.5, 200
NEAR = 5  # the distance to this neighbour measures how far apart the rows of a run lie
MEASURES = ("umap_cvg", "pca_cvg", "distinct", "neighbor_distance")
GAMES_A_PAGE, PANELS_A_ROW = 4, 6


@dataclass
class Args:
    runs: Path  # the directory that has the runs at any depth
    out: Path = Path("figures")  # the directory for figures and tables
    input: Literal["frames", "features"] = "frames"  # what UMAP gets: frames, or the features of each run's network
    rows: Annotated[int, Range(100, 30000)] = 10000  # rows of a game at most, over all of its runs
    grids: Tuple[Annotated[int, Range(2, 1000)], ...] = (16, 32, 50)  # cells on each side: G
    umap_seeds: Annotated[int, Range(1, 100)] = 3  # the number of seeds of UMAP
    seed: Seed = 0  # the first of them, and the seed of the choice of rows


def parse_args(argv):
    """Returns checked Args; exits 2 with one line on bad input."""
    args = parse(Args, argv, __doc__)
    if not os.path.isdir(args.runs):  # Path.is_dir raises OSError if a name is too long
        fail(f"--runs {args.runs}: expected a directory with runs below it")
    args.grids = sorted(set(args.grids))
    if not args.grids:
        fail("--grids is empty: expected at least one number")
    with writable("out", args.out):
        pass
    return args


def note(message):
    print(f"note: {message}", file=sys.stderr)


# ---- runs ------------------------------------------------------------------------------------------------------------
@dataclass
class CoverageRun:
    """A run: what its manifest says, and what is in its coverage.npz. Rows are in the order of the steps."""

    path: Path
    script: str
    arguments: dict
    num_rows: int
    last_step: int
    row_shapes: dict  # {"frames": (84, 84), (64, 64, 3) or, of observations, (D,); "features": (D,)}
    label: str = ""  # its configuration, in words, as in figures.py

    @property
    def n_by_t(self):
        return self.arguments["num_envs"], self.arguments["num_steps"]

    @property
    def seed(self):
        return self.arguments["seed"]

    @property
    def variant(self):
        """What the label says beside N and T."""
        return self.label.partition(" ")[2]


def read_arrays(path):
    """The arrays of a coverage.npz: uint8 frames or float observations (n, …), features (n, D), values, steps (n,).

    ValueError with the reason if they cannot be used.
    """
    try:
        data = reading.read_arrays(path / "coverage.npz")
        arrays = {
            "frames": data["frame"] if "frame" in data else data["obs"],
            "features": data["feature"],
            "values": data["value"],
            "steps": data["step"],
        }
    except FileNotFoundError:
        raise ValueError("it has no coverage.npz (a run writes it with its first checkpoint)") from None
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"its coverage.npz cannot be read ({type(error).__name__})") from None
    if len(set(map(len, arrays.values()))) > 1 or not len(arrays["steps"]):
        raise ValueError("its coverage.npz has no rows, or not as many of each array")
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise ValueError(f"not all {name} in its coverage.npz are finite")
    return arrays


def load_run(path):
    """The CoverageRun of a directory, or None after a note if it cannot be used."""
    try:
        manifest = training_runs.Manifest(reading.read_files(path).manifest)
        arrays = read_arrays(path)
    except (OSError, ValueError) as error:
        note(f"{reading.shown(path)} left out: {error}")
        return None
    last_step = int(arrays["steps"][-1])
    if not (path / "done.json").exists():
        total = manifest.arguments["total_timesteps"]
        note(f"{path} is not finished: its rows end at step {last_step:,} of {total:,}")
    row_shapes = {name: arrays[name].shape[1:] for name in ("frames", "features")}
    return CoverageRun(path, manifest.script, manifest.arguments, len(arrays["steps"]), last_step, row_shapes)


def load_runs(root):
    """{game: its runs}, each with its variant, sorted by configuration and seed."""
    games = defaultdict(list)
    for path in reading.find_runs(root):
        run = load_run(path)
        if run:
            games[run.arguments["env_id"]].append(run)
    if not games:
        fail(f"--runs {root}: no run with a coverage.npz below it; expected a directory of runs")
    for game, runs in games.items():
        set_labels(runs)
        kept = {}
        for run in runs:
            first = kept.setdefault((run.label, run.seed), run)
            if first is not run:
                note(f"{run.path} left out: {first.path} is the same configuration and seed")
        games[game] = in_order(kept.values())
    return dict(sorted(games.items()))


def set_labels(runs):
    """Sets the label of each run of one game: its configuration, and its script if there are several."""
    varied = training_runs.differing_arguments([[run.arguments for run in runs]])
    several = len({run.script for run in runs}) > 1
    for run in runs:
        run.label = label_of(training_runs.configuration(run.arguments, varied)) + f" {run.script}" * several


def in_order(runs):
    """The runs sorted by configuration, then by seed.

    First the base: P1's 8 x 128, or the smallest batch of the fewest environments. Then those with its batch size, then
    the others by N.
    """
    n_by_ts = {run.n_by_t for run in runs}
    base = (8, 128) if (8, 128) in n_by_ts else min(n_by_ts, key=lambda n_by_t: (math.prod(n_by_t), n_by_t[0]))

    def place(run):
        other_batch = math.prod(run.n_by_t) != math.prod(base)
        return run.n_by_t != base, other_batch, *run.n_by_t, run.label, run.seed

    return sorted(runs, key=place)


# ---- measures --------------------------------------------------------------------------------------------------------
def area_mean(frames, factor):
    """Means over squares of factor x factor pixels: (n, H, W) or (n, H, W, C) uint8 -> (n, H/f, W/f, C) float32."""
    n, h, w = frames.shape[:3]
    squares = frames.reshape(n, h // factor, factor, w // factor, factor, -1)
    return squares.mean((2, 4), dtype=np.float32)


def is_picture(rows):
    return rows.dtype == np.uint8 and rows.ndim > 2


def embed_input(rows):
    """Rows (n, …) as numbers (n, D) float64, for the principal components: pictures' area means, else standardised."""
    if is_picture(rows):
        return area_mean(rows, 4).reshape(len(rows), -1).astype(np.float64)
    return StandardScaler().fit_transform(rows.reshape(len(rows), -1).astype(np.float64))


def distinct_share(numbers, pictures):
    """The share of the rows of `embed_input` (n, D) that differ, at 8 grey levels or a quarter of a deviation."""
    cells = np.floor(numbers / 32 if pictures else numbers * 4).astype(np.int8)
    return len(np.unique(cells, axis=0)) / len(cells)


def principal_components(x):
    """The scores of x (n, D) on its first K principal components, at most COMPONENTS, (n, K) float64, largest first."""
    solver = "covariance_eigh" if x.shape[1] <= x.shape[0] else "full"
    with np.errstate(invalid="ignore"):  # the share that each explains of no variance, if all rows are equal
        scores = PCA(min(COMPONENTS, *x.shape), svd_solver=solver).fit_transform(x)
    largest = np.abs(scores).argmax(0)  # the sign of a component is arbitrary: fix it
    return scores * np.where(scores[largest, np.arange(scores.shape[1])] < 0, -1.0, 1.0)


def neighbors(x, count):
    """The `count` nearest other rows of each row of x (n, K), the nearest first: indices and distances, (n, count)."""
    distances, indices = NearestNeighbors(n_neighbors=count, algorithm="brute").fit(x).kneighbors()
    return indices, distances


def umap_points(x, seed):
    """UMAP of principal components x (n, K) to the plane, (n, 2) float32.

    The neighbours are exact and the layout starts from the first two components, so that the seed affects only UMAP's
    own sampling. UMAP's spectral start is not reproducible where the graph has several parts, as the scenes of a game.
    """
    count = min(NEIGHBORS, len(x) - 1)
    if count < 2:
        return np.zeros((len(x), 2), np.float32)  # one or two pictures: nothing to lay out
    with warnings.catch_warnings():  # a seed makes UMAP slower, and given neighbours allow no new rows: both are meant
        warnings.simplefilter("ignore")
        import umap  # here: it takes five seconds, and the compilation of the first fit ten

        indices, distances = neighbors(x, count - 1)
        indices = np.column_stack([np.arange(len(x)), indices])  # UMAP counts the row itself, and expects it first
        distances = np.column_stack([np.zeros(len(x)), distances])
        start = np.pad(x[:, :2], ((0, 0), (0, max(0, 2 - x.shape[1]))))
        start *= 10.0 / max(np.abs(start).max(), 1e-12)
        start += np.random.default_rng(seed).normal(0, 1e-3, start.shape)
        model = umap.UMAP(
            n_neighbors=count,
            min_dist=MIN_DIST,
            n_epochs=EPOCHS,
            random_state=seed,
            n_jobs=1,
            init=start.astype(np.float32),
            precomputed_knn=(indices, distances.astype(np.float32)),
        )
        return model.fit_transform(x.astype(np.float32))


def to_unit_square(points):
    """Scales points (n, 2) to the unit square by one box: the 0.1 % and 99.9 % quantiles of each axis.

    Points outside the box are moved to its edge. A constant axis becomes 1/2.
    """
    low, high = np.quantile(points, [0.001, 0.999], axis=0)
    size = high - low
    return np.where(size > 0, np.clip((points - low) / np.where(size > 0, size, 1.0), 0.0, 1.0), 0.5)


def uniform_coverage(num_points, grid):
    """The expected Cvg of uniform random points."""
    return 1.0 - (1.0 - 1.0 / grid**2) ** num_points


def headline_grid(num_points, grids):
    """The grid that uniform points fill nearest to a half: there differences show best. Of equals the finer one."""
    return min(grids, key=lambda grid: (abs(uniform_coverage(num_points, grid) - 0.5), -grid))


def measure_game(runs, args, num_rows, bar):
    """Measures all runs of one game in one embedding.

    Returns the lines of coverage.csv as dicts, the points of the first UMAP seed, (runs, num_rows, 2) in the unit
    square, and their critic values, (runs, num_rows). bar: updated after each fit.
    """
    rows, values = [], []
    for run in runs:  # one after another: the frames of a whole sweep do not fit in memory
        inds = metrics.stratified_rows(run.num_rows, num_rows, seed=args.seed).numpy()
        arrays = read_arrays(run.path)
        rows.append(arrays[args.input][inds])
        values.append(arrays["values"][inds])
    rows = np.concatenate(rows)
    numbers = embed_input(rows)
    x = principal_components(numbers)
    # the copies of one picture would be each other's only neighbours: UMAP gets each picture once
    _, first, place = np.unique(numbers, axis=0, return_index=True, return_inverse=True)
    embeddings = {("pca", ""): np.pad(x[:, :2], ((0, 0), (0, max(0, 2 - x.shape[1]))))}
    for seed in range(args.seed, args.seed + args.umap_seeds):
        embeddings["umap", seed] = umap_points(x[first], seed)[place]
        bar.update()
    squares = {key: to_unit_square(points).reshape(len(runs), num_rows, 2) for key, points in embeddings.items()}
    radius = math.sqrt(np.square(x).sum(1).mean()) or 1.0
    lines = []
    for i, run in enumerate(runs):
        about = {
            "env_id": run.arguments["env_id"],
            "script": run.script,
            "configuration": run.label,
            "num_envs": run.n_by_t[0],
            "num_steps": run.n_by_t[1],
            "variant": run.variant,
            "seed": run.seed,
            "rows": num_rows,
            "last_step": run.last_step,
            "input": args.input,
        }

        def add(measure, value, grid="", umap_seed="", uniform="", about=about):
            numbers = {"measure": measure, "grid": grid, "umap_seed": umap_seed, "value": float(value)}
            lines.append({**about, **numbers, "uniform": uniform})

        rows_of_run = slice(i * num_rows, (i + 1) * num_rows)
        _, distances = neighbors(x[rows_of_run], min(NEAR, num_rows - 1))
        add("distinct", distinct_share(numbers[rows_of_run], is_picture(rows)))
        add("neighbor_distance", distances[:, -1].mean() / radius)
        for (kind, seed), points in squares.items():
            for grid in args.grids:
                cvg = metrics.coverage(torch.from_numpy(points[i]), grid)
                add(f"{kind}_cvg", cvg, grid, seed, uniform_coverage(num_rows, grid))
    return lines, squares["umap", args.seed], np.stack(values)


# ---- claims ----------------------------------------------------------------------------------------------------------
def scores_of(table, grid):
    """The Scores of coverage.csv at one grid: a column per measure, of Cvg the mean over UMAP seeds."""
    rows = table[table["grid"].isin([grid, ""])]
    keys = ["num_envs", "num_steps", "variant", "env_id", "seed"]
    runs = rows.pivot_table("value", keys, "measure").reset_index().rename(columns={"env_id": "game"})
    return Scores(runs, ("num_envs", "num_steps", "variant"))


def slope_against_log2(num_envs):
    """A statistic of samples, one for each of `num_envs`: the least-squares slope of their means against log2 N."""
    doublings = np.log2(num_envs)
    weights = (doublings - doublings.mean()) / np.square(doublings - doublings.mean()).sum()
    return lambda *samples: sum(weight * mean(sample) for weight, sample in zip(weights, samples))


def find_pair(scores):
    """P1's two N x T with one batch size, (8, 128) and (128, 8), or else the pair that is farthest apart; or None."""

    def preference(pair):
        return [one.n_by_t for one in pair] == [(8, 128), (128, 8)], pair[1]["num_envs"] / pair[0]["num_envs"]

    pairs = [
        (long, wide)
        for long, wide in itertools.permutations(scores.configs, 2)
        if (long.batch_size, long["variant"]) == (wide.batch_size, wide["variant"])
        and long["num_envs"] < wide["num_envs"]
    ]
    return max(pairs, key=preference, default=None)


def find_claims(scores, grid):
    """P1's two claims about coverage, for the N x T that the runs have, by each measure. grid: the G of the Scores."""
    pair = find_pair(scores)
    family = max((scores.family("num_envs", config) for config in scores.configs), key=len)
    claims, num_envs = Claims(scores), [config["num_envs"] for config in family]

    def more(configs, measure):
        tasks = [task for task in scores.tasks if all(scores.count(config, task) for config in configs)]
        quantity = f"{measure} G={grid}" if "cvg" in measure else measure
        return {"quantity": quantity, "side": "more", "column": measure, "tasks": tasks, "by_task": False}

    for measure in MEASURES if pair else ():
        text = "({}, {}) covers more than ({}, {})".format(*pair[1].n_by_t, *pair[0].n_by_t)
        claims.compare(text, *pair[::-1], **more(pair, measure))
    for measure in MEASURES if len(family) > 1 else ():

        def test(view, measure=measure):
            slope = slope_against_log2(num_envs)
            return judge(evidence(slope, [view.sample(config, measure) for config in family]), "more")

        text = f"coverage rises with N = {' '.join(map(str, num_envs))} at T = {family[0]['num_steps']}, per doubling"
        claims.add(text, test, family, **more(family, measure))
    return claims


# ---- output ----------------------------------------------------------------------------------------------------------
def span(numbers):
    """The one number of a collection, or "smallest to largest"."""
    return " to ".join(f"{number:,}" for number in sorted({min(numbers), max(numbers)}))


def summarize(table, grid):
    """A row for each game and configuration: means over its runs at one grid.

    `Cvg`, and its range over UMAP seeds, `low` and `high`; its 95 % interval over the runs' seeds, `from` and `to`;
    `uniform`: what as many uniform random points give. And the measures without UMAP.
    """
    rows = []
    at_grid = table[table["grid"].isin([grid, ""])]
    for (game, label), part in at_grid.groupby(["env_id", "configuration"], sort=False):
        cvg = part[part["measure"] == "umap_cvg"]
        by_umap_seed = cvg.groupby("umap_seed")["value"].mean()
        by_run = cvg.groupby("seed")["value"].mean().to_numpy()
        others = part[part["measure"] != "umap_cvg"].groupby("measure", sort=False)["value"].mean()
        numbers = {"Cvg": by_umap_seed.mean(), "low": by_umap_seed.min(), "high": by_umap_seed.max()}
        numbers |= dict(zip(("from", "to"), interval(mean, [[by_run]])[1:]))
        numbers |= {"uniform": cvg["uniform"].iloc[0], **others}
        rows.append({"game": game, "configuration": label, "seeds": len(by_run), "rows": cvg["rows"].iloc[0]} | numbers)
    return pd.DataFrame(rows)


def print_tables(summary, claims, grid):
    print(
        f"\nCvg at G = {grid}: mean over runs and UMAP seeds, its range over UMAP seeds, 95 % CI over the runs'\n"
        "seeds; uniform: what as many uniform random points give"
    )
    print(summary.to_string(index=False, float_format="{:.3f}".format, na_rep="-"))
    print("\nclaims of P1 (Mayor et al. 2025), for these runs; 95 % CIs: Student's t over the seeds")
    for claim in claims:
        verdict = claim.verdict or f"no verdict: needs {claim.needs}"
        print(f"  {claim.text} | {claim.quantity} {in_words(claim.estimate)} | {verdict}")
    if not claims:
        print("  none: they need two N x T with one batch size, or two N with one T, in the same game")


def panel_title(row, side, columns):
    """The label of a configuration and its Cvg, in lines that fit a panel of `side` inches. row: of the summary."""
    separator = " " if columns < 5 else "\n"
    cvg = f"Cvg={row['Cvg']:.2f}{separator}(uniform {row['uniform']:.2f})"
    return f"{textwrap.fill(row['configuration'], int(16 * side))}\n{cvg}"


def draw(path, games, drawn, table, summary, grid, args):
    """One panel per configuration, the base first, one block of rows per game; writes path.png and path.pdf.

    drawn: {game: (points (runs, n, 2), values (runs, n))}. All panels of a game have the same axes, colours and number
    of points: of configurations with more seeds than another, the first ones are drawn.
    """
    indices = {game: defaultdict(list) for game in games}  # {game: {label: indices of its runs}}
    for game, runs in games.items():
        for i, run in enumerate(runs):
            indices[game][run.label].append(i)
    columns = min(PANELS_A_ROW, max(2, *map(len, indices.values())))
    num_rows = [-(-len(found) // columns) for found in indices.values()]
    side = (PAGE - 0.9) / columns  # a panel's side, inches
    titles = {
        (row["game"], row["configuration"]): panel_title(row, side, columns)
        for row in summary[summary["game"].isin(list(games))].to_dict("records")
    }
    title_lines = max(title.count("\n") + 1 for title in titles.values())
    height = sum(num_rows) * (side + 0.11 * title_lines + 0.2) + 0.3
    figure = plt.figure(figsize=(PAGE, height), layout="constrained")
    figure.get_layout_engine().set(rect=(0, 0, 1, 1 - 0.06 / height))  # or the first titles touch the edge
    blocks = figure.subfigures(len(games), 1, squeeze=False, height_ratios=num_rows)[:, 0]
    for block, count, game in zip(blocks, num_rows, games):
        axes = block.subplots(count, columns, squeeze=False).ravel()
        scatter = draw_game(axes, indices[game], *drawn[game])
        for axis, label in zip(axes, indices[game]):
            axis.set_title(titles[game, label], fontsize=7)
        axes[0].set_ylabel(game.removesuffix("-v5"), fontsize=8)
        bar = block.colorbar(scatter, ax=axes, pad=0.01, aspect=14, fraction=0.05)
        bar.set_label("critic value", fontsize=7)
        bar.ax.tick_params(labelsize=6, length=2)
    rows = table[table["env_id"].isin(list(games))]
    what = {"frames": "down-sampled frames", "features": "features (each run's own encoder: compares encoders)"}
    figure.supxlabel(
        f"one UMAP per game of {what[args.input]}; Cvg: G={grid}, {span(rows['rows'])} rows of each run, "
        f"{span(rows['last_step'])} steps, UMAP seeds: {args.umap_seeds}",
        fontsize=6.5,
    )
    for suffix in ("png", "pdf"):
        figure.savefig(f"{path}.{suffix}", dpi=300)
    plt.close(figure)


def draw_game(axes, indices, points, values):
    """The scatter of each configuration in its panel; hides the panels that are left. Returns one of the scatters."""
    low, high = np.quantile(values, [0.01, 0.99])
    num_runs = min(map(len, indices.values()))
    for axis, inds in zip(axes, indices.values()):
        shuffled = np.random.default_rng(0).permutation(num_runs * points.shape[1])  # no run hides another
        xy, colour = points[inds[:num_runs]].reshape(-1, 2)[shuffled], values[inds[:num_runs]].reshape(-1)[shuffled]
        scatter = axis.scatter(
            *xy.T,
            c=colour,
            s=1 if len(xy) > 1500 else 3,
            vmin=low,
            vmax=high,
            cmap="viridis",
            linewidths=0,
            rasterized=True,
        )
        axis.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xticks=[], yticks=[], aspect="equal")
        axis.spines[:].set_visible(True)
    for axis in axes[len(indices) :]:
        axis.set_visible(False)
    return scatter


# ---- main ------------------------------------------------------------------------------------------------------------
def rows_per_run(game, runs, most):
    """The number of rows that every run of a game gives: as many as the one with the fewest has, and `most` in all."""
    counts, steps = [run.num_rows for run in runs], [run.last_step for run in runs]
    if len(set(counts)) > 1:
        fewest = min(runs, key=lambda run: run.num_rows)
        note(f"{game}: the runs have {span(counts)} rows: {min(counts):,} of each at most, as {fewest.path} has")
    if len(set(steps)) > 1:
        note(f"{game}: the runs end between steps {span(steps)}: a longer one has had time to see more")
    count = min(min(counts), most // len(runs))
    if count * len(runs) < 10 or count < 2:
        fail(f"{game}: {count} rows of each of {len(runs)} runs are too few: expected longer runs or more --rows")
    return count


def measure_all(games, args, num_rows):
    """coverage.csv as a DataFrame, and {game: (points, values)} to draw."""
    lines, drawn = [], {}
    bar = progress_bar(len(games) * args.umap_seeds, "fit", "UMAP")
    for game, runs in games.items():
        lines_of_game, *drawn[game] = measure_game(runs, args, num_rows[game], bar)
        lines += lines_of_game
    bar.close()
    return pd.DataFrame(lines), drawn


def main(args):
    games = load_runs(args.runs)
    for game, runs in games.items():
        if len({run.row_shapes[args.input] for run in runs}) > 1:
            fail(f"--runs {args.runs}: {args.input} of {game} differ in shape: expected runs of one script")
    num_rows = {game: rows_per_run(game, runs, args.rows) for game, runs in games.items()}
    if args.input == "features":
        note("each run has its own encoder: coverage of features compares encoders as much as states")
    grid = headline_grid(float(np.median(list(num_rows.values()))), args.grids)
    table, drawn = measure_all(games, args, num_rows)
    claims, summary = find_claims(scores_of(table, grid), grid), summarize(table, grid)
    table.to_csv(args.out / "coverage.csv", index=False)
    if claims:
        pd.DataFrame(claims.rows()).to_csv(args.out / "coverage_claims.csv", index=False)
    print_tables(summary, claims, grid)
    pages = {"coverage": list(games)[:GAMES_A_PAGE]}
    if len(games) > 1:
        pages.update({f"coverage_{game}": [game] for game in games})
    for name, shown in pages.items():
        draw(args.out / name, {game: games[game] for game in shown}, drawn, table, summary, grid, args)
    names = ["coverage.csv", *(["coverage_claims.csv"] if claims else []), *(f"{name}.png .pdf" for name in pages)]
    print(f"\n{args.out}/: {' '.join(names)}")


if __name__ == "__main__":
    main(parse_args(sys.argv[1:]))
