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
one per line) and coverage_claims.csv; prints both tables. Intervals and verdicts are those of estimates.py: bootstraps
over seeds within games, Student's t for claims. Below three seeds there is no interval, and a verdict needs ten, or
five in each of six games.
"""

from launching.root import ROOT  # noqa: F401

import math
import os
import sys
import textwrap
import time
import warnings
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Tuple

import numpy as np
import pandas as pd
import torch
from analysis import training_runs
from analysis.comparisons import difference, judge
from analysis.estimates import MIN_SEEDS, evidence, interval, mean
from analysis.look import PAGE, plt
from analysis.scores import Scores
from analysis.suite import label_of
from analysis.tables import as_text
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler
from tqdm import tqdm
from typing_extensions import Annotated

import metrics
from support import reading
from support.arguments import Range, Seed, fail, parse, writable

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


def principal_components(x, count=COMPONENTS):
    """The scores of x (n, D) on its first K = min(count, n, D) principal components, (n, K) float64, largest first."""
    solver = "covariance_eigh" if x.shape[1] <= x.shape[0] else "full"
    with np.errstate(invalid="ignore"):  # the share that each explains of no variance, if all rows are equal
        scores = PCA(min(count, *x.shape), svd_solver=solver).fit_transform(x)
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


def measure_game(runs, args, num_rows, report):
    """Measures all runs of one game in one embedding.

    Returns the lines of coverage.csv as dicts, the points of the first UMAP seed, (runs, num_rows, 2) in the unit
    square, and their critic values, (runs, num_rows). report: called with a text after each fit.
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
        start = time.time()
        embeddings["umap", seed] = umap_points(x[first], seed)[place]
        report(f"UMAP seed {seed} of {len(x):,} rows, {len(first):,} of them different, {time.time() - start:.0f} s")
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

    def same_batch(long, wide):
        same = (long.batch_size, long["variant"]) == (wide.batch_size, wide["variant"])
        return same and long["num_envs"] < wide["num_envs"]

    def preference(pair):
        long, wide = pair
        is_p1s = long.n_by_t == (8, 128) and wide.n_by_t == (128, 8)
        return is_p1s, wide["num_envs"] / long["num_envs"], runs_of(scores, pair)

    pairs = [(long, wide) for long in scores.configs for wide in scores.configs if same_batch(long, wide)]
    return max(pairs, key=preference, default=None)


def find_family(scores):
    """The most configurations that differ in N alone, by N; of equally many those with the most runs."""
    families = [scores.family("num_envs", config) for config in scores.configs]
    return max(families, key=lambda family: (len(family), runs_of(scores, family)))


def runs_of(scores, configs):
    return sum(scores.count(config, game) for config in configs for game in scores.tasks)


def find_claims(table, grid):
    """P1's two claims about coverage, for the N x T that the runs have, by each measure: dicts, one per row.

    table: coverage.csv as a DataFrame. grid: the G of the claims.
    """
    scores = scores_of(table, grid)
    pair, family, claims = find_pair(scores), find_family(scores), []
    if pair:
        text = "({}, {}) covers more than ({}, {})".format(*pair[1].n_by_t, *pair[0].n_by_t)
        claims.append((text, pair[::-1], difference, "difference"))
    if len(family) > 1:
        num_envs = [config["num_envs"] for config in family]
        text = f"coverage rises with N = {' '.join(map(str, num_envs))} at T = {family[0]['num_steps']}"
        claims.append((text, family, slope_against_log2(num_envs), "per doubling of N"))
    rows = []
    for text, configs, statistic, unit in claims:
        view = scores.in_tasks([game for game in scores.tasks if all(scores.count(one, game) for one in configs)])
        for measure in MEASURES if view.tasks else ():
            tested = judge(evidence(statistic, [view.sample(config, measure) for config in configs]), "more")
            needs = view.needs(configs)
            rows.append(
                {
                    "claim": text,
                    "measure": measure,
                    "grid": grid if "cvg" in measure else "",
                    "unit": unit,
                    "estimate": float(tested.estimate.value),
                    "ci_low": float(tested.estimate.low),
                    "ci_high": float(tested.estimate.high),
                    "verdict": "" if needs else tested.verdict,
                    "needs": needs,
                    "games": len(view.tasks),
                    "seeds": view.seeds(configs),
                    "budget": span(table["last_step"]) + " steps",
                }
            )
    return rows


# ---- output ----------------------------------------------------------------------------------------------------------
def span(numbers):
    """The one number of a collection, or "smallest to largest"."""
    return " to ".join(f"{number:,}" for number in sorted({min(numbers), max(numbers)}))


def plural(count, word):
    return f"{count} {word}{'s' * (count != 1)}"


def summarize(table, grid, game, label):
    """The numbers of one configuration at one grid, means over its runs.

    `mean`, `low`, `high`: Cvg and its range over UMAP seeds. `ci95`: its interval over the runs' seeds. `uniform`: the
    Cvg of uniform points. And the measures without UMAP.
    """
    rows = table[(table["env_id"] == game) & (table["configuration"] == label) & table["grid"].isin([grid, ""])]
    cvg = rows[rows["measure"] == "umap_cvg"]
    by_umap_seed = cvg.groupby("umap_seed")["value"].mean()
    by_run = cvg.groupby("seed")["value"].mean().to_numpy()
    return {
        **rows.groupby("measure")["value"].mean(),
        "mean": by_umap_seed.mean(),
        "low": by_umap_seed.min(),
        "high": by_umap_seed.max(),
        "ci95": interval(mean, [[by_run]])[1:],
        "uniform": cvg["uniform"].iloc[0],
        "rows": cvg["rows"].iloc[0],
        "seeds": len(by_run),
    }


def print_tables(table, games, grid, claims):
    print(
        f"\nCvg at G = {grid}: mean over runs and UMAP seeds [range over UMAP seeds], 95 % CI over the runs' seeds;\n"
        "uniform: what as many uniform random points give; PCA, distinct, neighbor distance: without UMAP"
    )
    header = "game configuration seeds rows Cvg 95|%|CI uniform PCA distinct neighbor|distance"
    rows = []
    for game, runs in games.items():
        for label in dict.fromkeys(run.label for run in runs):
            s = summarize(table, grid, game, label)
            cvg, ci = "{mean:.3f} [{low:.3f}, {high:.3f}]".format(**s), "[{:.3f}, {:.3f}]".format(*s["ci95"])
            if not np.isfinite(s["ci95"]).all():
                ci = f"- (< {MIN_SEEDS} seeds)"
            others = [f"{s[name]:.3f}" for name in ("uniform", "pca_cvg", "distinct", "neighbor_distance")]
            rows.append([game, label, s["seeds"], s["rows"], cvg, ci, *others])
    print(*as_text(([word.replace("|", " ") for word in header.split()], rows)), sep="\n")
    print("\nclaims of P1 (Mayor et al. 2025), for these runs; 95 % CIs: Student's t over the seeds")
    for row in claims:
        ci = f"95 % CI [{row['ci_low']:+.4f}, {row['ci_high']:+.4f}]"
        if not np.isfinite(row["ci_low"]):
            ci = f"no CI: {plural(row['seeds'], 'seed')}, {MIN_SEEDS} are needed"
        at = f"{row['measure']} G={row['grid']}" if row["grid"] else row["measure"]
        print(
            f"  {row['claim']} | {at} | {row['unit']} {row['estimate']:+.4f}, {ci} | "
            f"{row['verdict'] or 'no verdict: needs ' + row['needs']} | "
            f"{plural(row['games'], 'game')}, {plural(row['seeds'], 'seed')}, {row['budget']}"
        )
    if not claims:
        print("  none: they need two N x T with one batch size, or two N with one T, in the same game")


def panel_title(table, grid, game, label, side, columns):
    """The label of a configuration and its Cvg, in lines that fit a panel of `side` inches."""
    summary = summarize(table, grid, game, label)
    separator = " " if columns < 5 else "\n"
    cvg = f"Cvg={summary['mean']:.2f}{separator}(uniform {summary['uniform']:.2f})"
    return f"{textwrap.fill(label, int(16 * side))}\n{cvg}"


def draw(path, games, drawn, table, grid, args):
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
        (game, label): panel_title(table, grid, game, label, side, columns)
        for game, found in indices.items()
        for label in found
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
        f"{span(rows['last_step'])} steps, {plural(args.umap_seeds, 'UMAP seed')}",
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
    bar = tqdm(total=len(games) * args.umap_seeds, disable=None, dynamic_ncols=True, unit="fit")
    for game, runs in games.items():

        def report(text, game=game):
            bar.set_description_str(f"{game}: {text}")
            bar.update()
            if bar.disable:
                print(f"{game}: {text}", file=sys.stderr, flush=True)

        lines_of_game, *drawn[game] = measure_game(runs, args, num_rows[game], report)
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
    claims = find_claims(table, grid)
    table.to_csv(args.out / "coverage.csv", index=False)
    if claims:
        pd.DataFrame(claims).to_csv(args.out / "coverage_claims.csv", index=False)
    print_tables(table, games, grid, claims)
    pages = {"coverage": list(games)[:GAMES_A_PAGE]}
    if len(games) > 1:
        pages.update({f"coverage_{game}": [game] for game in games})
    for name, shown in pages.items():
        draw(args.out / name, {game: games[game] for game in shown}, drawn, table, grid, args)
    names = ["coverage.csv", *(["coverage_claims.csv"] if claims else []), *(f"{name}.png .pdf" for name in pages)]
    print(f"\n{args.out}/: {' '.join(names)}")


if __name__ == "__main__":
    main(parse_args(sys.argv[1:]))
