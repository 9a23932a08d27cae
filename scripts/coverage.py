"""How much of the state space do the configurations of a sweep visit? UMAP of their `coverage.npz`, and Cvg.

    python scripts/coverage.py --runs runs/coverage --out figures/
    python scripts/coverage.py --runs runs/coverage --out figures/ --input features    # the networks' own features

P1 (Mayor et al. 2025, arXiv 2506.03404, fig. 2 and 9, B.7) gives neither the input of its UMAP, nor its settings, its
box or its grid. The choices here, each so that configurations compare:

1. One joint UMAP per game, of equally many rows of every run: separate ones hide concentration, for UMAP evens it out.
2. Its input needs no network: frames down-sampled 4 x 4 (84 x 84 -> 21 x 21; observations that are no pictures:
   standardised), the first 50 principal components, each picture once. UMAP has 15 neighbours and min_dist 0.5.
   Features come from each run's own encoder, so that coverage of them compares encoders; they are an option, and the
   figure says so.
3. One bounding box: the 0.1 % and 99.9 % quantiles of all rows, what is outside on its edge.
4. Cvg of each run at several grids and UMAP seeds. Uniform points alone give 1 - (1 - 1/G^2)^n, which stands beside it;
   figure and claims use the grid where that is nearest to 1/2, as nothing shows at 0 or 1.
5. Beside it three measures without UMAP: Cvg of the first two principal components; the share of distinct rows of
   UMAP's input at 8 grey levels; and the mean distance to the 5th neighbour in the run, over the root-mean-square
   distance of all rows from their mean.

Rows are spread evenly over each run, so Cvg is of all states that the run has trained on, not of one batch. Writes
coverage.png and .pdf (up to four games), with several games coverage_<game>.png and .pdf, coverage.csv (every number,
one a line) and coverage_claims.csv; prints both tables. Intervals are bootstraps over seeds, stratified by game: below
three seeds there is none, and no claim is more than undecided.
"""

import argparse
import csv
import json
import math
import os
import shlex
import sys
import textwrap
import time
import warnings
import zipfile
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # draws without a screen
import matplotlib.pyplot as plt
import numpy as np
import torch
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import metrics

if __name__ == "coverage":  # a script in this folder imports numba, which looks for the package of this name
    raise ImportError("this is scripts/coverage.py, not the package that measures tests")

COMPONENTS = 50  # of the principal components that UMAP gets
# UMAP's default of min_dist, 0.1, packs each scene of a game into one cell: on Breakout it halves Cvg and what differs.
# Its 500 epochs for small data change nothing but the time.
NEIGHBORS, MIN_DIST, EPOCHS = 15, 0.5, 200
NEAR = 5  # whose distance measures how far apart a run's rows lie
MIN_SEEDS = 3  # that a bootstrap over seeds needs
RESAMPLES = 2000
GAMES_A_PAGE, PANELS_A_ROW, WIDTH = 4, 6, 6.75  # the width of ICML's two columns, inches
PLACE = {  # where and how a run runs, and what the label of every configuration has anyway
    "exp_name",
    "seed",
    "torch_deterministic",
    "cuda",
    "track",
    "wandb_project_name",
    "wandb_entity",
    "capture_video",
    "run_name",
    "runs_dir",
    "num_logs",
    "diagnostics",
    "probe_size",
    "checkpoint_minutes",
    "num_threads",
    "num_envs",
    "num_steps",
    "minibatch_size",
}  # the last follows from num_minibatches
FIELDS = (
    "env_id",
    "script",
    "configuration",
    "num_envs",
    "num_steps",
    "variant",
    "seed",
    "rows",
    "last_step",
    "input",
    "measure",
    "grid",
    "umap_seed",
    "value",
    "uniform",
)


@dataclass
class Run:
    """A run: what its manifest says, and what is in its coverage.npz, whose rows are in the order of the steps."""

    path: Path
    script: str
    arguments: dict
    num_rows: int
    last_step: int
    shapes: dict  # of one row: {"frames": (84, 84), (64, 64, 3) or, of observations, (D,); "features": (D,)}
    variant: str = ""  # what tells it from other runs of the same N and T

    @property
    def shape(self):
        return self.arguments["num_envs"], self.arguments["num_steps"]

    @property
    def label(self):
        return "N={}, T={}".format(*self.shape) + (", " + self.variant if self.variant else "")


def fail(message):
    """Ends the program with one line and exit code 2: bad input."""
    print("error:", " ".join(str(message).split()), file=sys.stderr)
    sys.exit(2)


def note(message):
    print(f"note: {message}", file=sys.stderr)


# ---- runs ------------------------------------------------------------------------------------------------------------
def run_dirs(root):
    """Every run directory at any depth below `root`, sorted, once each. Links are followed, but never in a circle."""
    seen, found = set(), []
    for folder, below, files in os.walk(root, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:
            below.clear()
            continue
        seen.add(real)
        if "manifest.json" in files:
            found.append(Path(folder))
    return sorted(found)


def read(path):
    """The arrays of a coverage.npz: uint8 frames or float observations (n, …), features (n, D), values, steps (n,)."""
    with np.load(path / "coverage.npz") as data:
        return {
            "frames": data["frame"] if "frame" in data else data["obs"],
            "features": data["feature"],
            "values": data["value"],
            "steps": data["step"],
        }


def load_run(path):
    """Returns the Run of a directory, or None after a note if it has nothing to offer."""
    try:
        manifest = json.loads((path / "manifest.json").read_text())
        script = next(Path(word).stem for word in shlex.split(manifest["command"]) if word.endswith(".py"))
        arguments = manifest["arguments"]
        total = arguments["total_timesteps"]
        if not {"env_id", "seed", "num_envs", "num_steps"} <= arguments.keys():
            raise KeyError
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StopIteration):
        note(f"{path} left out: its manifest.json is not that of a run")
        return None
    try:
        arrays = read(path)
    except FileNotFoundError:
        note(f"{path} left out: it has no coverage.npz (a run writes it with its first checkpoint)")
        return None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        note(f"{path} left out: its coverage.npz cannot be read ({type(error).__name__})")
        return None
    if len(set(map(len, arrays.values()))) > 1 or not len(arrays["steps"]):
        note(f"{path} left out: its coverage.npz has no rows, or not as many of each array")
        return None
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            note(f"{path} left out: not all {name} in its coverage.npz are finite")
            return None
    last_step = int(arrays["steps"][-1])
    if not (path / "done.json").exists():
        note(f"{path} is not finished: its rows end at step {last_step:,} of {total:,}")
    shapes = {name: arrays[name].shape[1:] for name in ("frames", "features")}
    return Run(path, script, arguments, len(arrays["steps"]), last_step, shapes)


def load_runs(root):
    """Returns {game: its runs}, each with its variant, sorted by configuration and seed."""
    games = defaultdict(list)
    for path in run_dirs(root):
        run = load_run(path)
        if run:
            games[run.arguments["env_id"]].append(run)
    if not games:
        fail(f"--runs {root}: no run with a coverage.npz is below it; a directory of runs is accepted")
    for game, runs in games.items():
        label_runs(runs)
        once = {}
        for run in runs:
            first = once.setdefault((run.label, run.arguments["seed"]), run)
            if first is not run:
                note(f"{run.path} left out: {first.path} is the same configuration and seed")
        games[game] = order(list(once.values()))
    return dict(sorted(games.items()))


def label_runs(runs):
    """Sets the variant of each run of one game: of the arguments in which runs of one N and T differ, those that are
    not as in most runs; and the script, if there are several."""
    differ = set()
    for shape in {run.shape for run in runs}:
        group = [run.arguments for run in runs if run.shape == shape]
        names = set().union(*group) - PLACE
        differ |= {name for name in names if len({json.dumps(arguments.get(name)) for arguments in group}) > 1}
    several = len({run.script for run in runs}) > 1
    usual = {name: Counter(run.arguments.get(name) for run in runs).most_common(1)[0][0] for name in differ}
    for run in runs:
        words = [
            f"{name.replace('_', '-')} {run.arguments.get(name)}"
            for name in sorted(differ)
            if run.arguments.get(name) != usual[name]
        ]
        run.variant = ", ".join([run.script] * several + words)


def order(runs):
    """The runs sorted by configuration: the base (P1's 8 x 128, or the smallest batch of the fewest environments), then
    those with its batch size, then by N; within a configuration by seed."""
    shapes = {run.shape for run in runs}
    base = (8, 128) if (8, 128) in shapes else min(shapes, key=lambda shape: (shape[0] * shape[1], shape[0]))

    def place(run):
        n, t = run.shape
        return run.shape != base, n * t != base[0] * base[1], n, t, run.label, run.arguments["seed"]

    return sorted(runs, key=place)


# ---- measures --------------------------------------------------------------------------------------------------------
def area_mean(frames, factor):
    """(n, H, W) or (n, H, W, C) uint8 -> float32, each factor x factor square its mean."""
    n, h, w = frames.shape[:3]
    squares = frames.reshape(n, h // factor, factor, w // factor, factor, -1)
    return squares.mean((2, 4), dtype=np.float32)


def is_picture(rows):
    return rows.dtype == np.uint8 and rows.ndim > 2


def embed_input(rows):
    """What UMAP gets of frames, observations or features (n, …), before the principal components, (n, D) float64: a
    picture's area means, or standardised numbers."""
    if is_picture(rows):
        return area_mean(rows, 4).reshape(len(rows), -1).astype(np.float64)
    return standardize(rows.reshape(len(rows), -1))


def standardize(x):
    """(n, D) -> zero mean and unit deviation in each column, float64; a constant column is 0."""
    x = x.astype(np.float64)
    std = x.std(0)
    return (x - x.mean(0)) / np.where(std > 0, std, 1.0)


def distinct_share(numbers, pictures):
    """The share of the rows of `embed_input` (n, D) that differ, at 8 grey levels or a quarter of a deviation."""
    cells = np.floor(numbers / 32 if pictures else numbers * 4).astype(np.int8)
    return len(np.unique(cells, axis=0)) / len(cells)


def principal_components(x, count=COMPONENTS):
    """(n, D) -> the scores of the first min(count, n, D) principal components, (n, K) float64, largest first."""
    x = x - x.mean(0)
    if x.shape[1] <= x.shape[0]:
        _, vectors = np.linalg.eigh(x.T @ x)
        scores = x @ vectors[:, ::-1][:, :count]
    else:
        eigenvalues, vectors = np.linalg.eigh(x @ x.T)
        scores = (vectors * np.sqrt(np.clip(eigenvalues, 0, None)))[:, ::-1][:, :count]
    largest = np.abs(scores).argmax(0)  # the sign of an eigenvector is the library's whim
    return scores * np.where(scores[largest, np.arange(scores.shape[1])] < 0, -1.0, 1.0)


def neighbors(x, count):
    """The `count` nearest rows of each row of x (n, K), itself among them: indices and distances, (n, count)."""
    x = torch.from_numpy(np.ascontiguousarray(x))
    found = [
        torch.cdist(chunk, x, compute_mode="donot_use_mm_for_euclid_dist").topk(count, largest=False)
        for chunk in x.split(1000)
    ]
    return (torch.cat([part.indices for part in found]).numpy(), torch.cat([part.values for part in found]).numpy())


def umap_points(x, seed):
    """UMAP of x (n, K), principal components, to the plane, (n, 2) float32.

    The neighbours are exact and the layout starts from the first two components, so that only its own sampling has a
    seed. UMAP's spectral start does not repeat itself where the graph falls apart, as that of a game's scenes does."""
    count = min(NEIGHBORS, len(x) - 1)
    if count < 2:
        return np.zeros((len(x), 2), np.float32)  # one or two pictures: nothing to lay out
    with warnings.catch_warnings():  # of what a seed costs, and that no new rows can be added later
        warnings.simplefilter("ignore")
        import umap  # here: it takes five seconds, and the compilation of the first fit ten

        indices, distances = neighbors(x, count)
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
    """Scales points (n, 2) by one box around all of them: the 0.1 % and 99.9 % quantiles of each axis, what is outside
    on its edge. A constant axis is 1/2."""
    low, high = np.quantile(points, [0.001, 0.999], axis=0)
    size = high - low
    return np.where(size > 0, np.clip((points - low) / np.where(size > 0, size, 1.0), 0.0, 1.0), 0.5)


def uniform_coverage(num_points, grid):
    """The expected Cvg of uniform random points."""
    return 1.0 - (1.0 - 1.0 / grid**2) ** num_points


def headline_grid(num_points, grids):
    """The grid that can show most: uniform points fill it nearest to a half."""
    return min(grids, key=lambda grid: (abs(uniform_coverage(num_points, grid) - 0.5), -grid))


def measure_game(runs, options, num_rows, report):
    """Measures all runs of one game in one embedding. Returns the lines of coverage.csv as dicts, the points of the
    first UMAP seed, (runs, num_rows, 2) in the unit square, and their critic values, (runs, num_rows)."""
    rows, values = [], []
    for run in runs:  # one after another: the frames of a whole sweep do not fit in memory
        inds, arrays = metrics.stratified_rows(run.num_rows, num_rows, seed=options.seed).numpy(), read(run.path)
        rows.append(arrays[options.input][inds])
        values.append(arrays["values"][inds])
    rows = np.concatenate(rows)
    numbers = embed_input(rows)
    x = principal_components(numbers)
    # the same picture many times over would be its own only neighbours: UMAP sees each once, and each row has its place
    _, first, place = np.unique(numbers, axis=0, return_index=True, return_inverse=True)
    embeddings = {("pca", ""): np.pad(x[:, :2], ((0, 0), (0, max(0, 2 - x.shape[1]))))}
    for seed in range(options.seed, options.seed + options.umap_seeds):
        start = time.time()
        embeddings["umap", seed] = umap_points(x[first], seed)[place]
        report(f"UMAP seed {seed} of {len(x):,} rows, {len(first):,} of them different, {time.time() - start:.0f} s")
    squares = {key: to_unit_square(points).reshape(len(runs), num_rows, 2) for key, points in embeddings.items()}
    radius = math.sqrt(np.square(x).sum(1).mean()) or 1.0
    lines = []
    for i, run in enumerate(runs):
        mine = slice(i * num_rows, (i + 1) * num_rows)
        near = neighbors(x[mine], min(NEAR + 1, num_rows))[1][:, -1].mean() / radius  # one is the row itself
        found = [
            ("distinct", "", "", distinct_share(numbers[mine], is_picture(rows)), ""),
            ("neighbor_distance", "", "", near, ""),
        ]
        for (kind, seed), points in squares.items():
            found += [
                (
                    f"{kind}_cvg",
                    grid,
                    seed,
                    metrics.coverage(torch.from_numpy(points[i]), grid),
                    uniform_coverage(num_rows, grid),
                )
                for grid in options.grids
            ]
        lines += [
            dict(
                zip(
                    FIELDS,
                    (
                        run.arguments["env_id"],
                        run.script,
                        run.label,
                        *run.shape,
                        run.variant,
                        run.arguments["seed"],
                        num_rows,
                        run.last_step,
                        options.input,
                        *measured,
                    ),
                )
            )
            for measured in found
        ]
    return lines, squares["umap", options.seed], np.stack(values)


# ---- claims ----------------------------------------------------------------------------------------------------------
def run_means(lines, measure, grid):
    """{game: {(N, T, variant): {seed: value}}}, a mean over UMAP seeds where there are several."""
    found = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for line in lines:
        if line["measure"] == measure and line["grid"] in (grid, ""):
            shape = line["num_envs"], line["num_steps"], line["variant"]
            found[line["env_id"]][shape][line["seed"]].append(line["value"])
    return {
        game: {
            shape: {seed: float(np.mean(values)) for seed, values in seeds.items()} for shape, seeds in shapes.items()
        }
        for game, shapes in found.items()
    }


def stratified_bootstrap(groups, statistic, seed=0):
    """The 95 % percentile interval of `statistic` of the means, resampled within each group of runs.

    groups: {game: {configuration: array of one value a seed}}; statistic: of {game: {configuration: mean, or an array
    of them}}. None if any group has fewer than MIN_SEEDS; with as few as that it is too narrow rather than too wide."""
    if min(len(values) for shapes in groups.values() for values in shapes.values()) < MIN_SEEDS:
        return None
    rng = np.random.default_rng(seed)
    return np.quantile(
        statistic(
            {
                game: {shape: rng.choice(values, (RESAMPLES, len(values))).mean(1) for shape, values in shapes.items()}
                for game, shapes in groups.items()
            }
        ),
        [0.025, 0.975],
    ).tolist()


def difference(means):
    """The mean over games of (second configuration - first)."""
    return np.mean([second - first for first, second in (shapes.values() for shapes in means.values())], axis=0)


def slope(means):
    """The mean over games of the least-squares slope of the configurations against log2 N."""
    slopes = []
    for shapes in means.values():
        doublings = np.log2([shape[0] for shape in shapes])
        weights = (doublings - doublings.mean()) / np.square(doublings - doublings.mean()).sum()
        slopes.append(sum(weight * values for weight, values in zip(weights, shapes.values())))
    return np.mean(slopes, axis=0)


def claims(lines, grid):
    """P1's two claims about coverage, tried on whatever shapes the runs have, by each measure: dicts, one a row."""
    budget = span({line["last_step"] for line in lines}) + " steps"
    count = Counter((line["num_envs"], line["num_steps"], line["variant"]) for line in lines)
    pairs = [(a, b) for a in count for b in count if a[0] * a[1] == b[0] * b[1] and a[0] < b[0] and a[2] == b[2]]
    rungs = defaultdict(list)
    for shape in sorted(count):
        rungs[shape[1:]].append(shape)
    ladder = max(rungs.values(), key=lambda shapes: (len(shapes), sum(map(count.get, shapes))))
    tried = []
    if pairs:  # P1's own, or the pair that is farthest apart
        a, b = max(
            pairs,
            key=lambda pair: (
                pair[0][:2] == (8, 128) and pair[1][:2] == (128, 8),
                pair[1][0] / pair[0][0],
                count[pair[0]] + count[pair[1]],
            ),
        )
        tried.append((f"({b[0]}, {b[1]}) covers more than ({a[0]}, {a[1]})", (a, b), difference, "difference"))
    if len(ladder) > 1:
        tried.append(
            (
                f"coverage rises with N = {' '.join(str(shape[0]) for shape in ladder)} at T = {ladder[0][1]}",
                ladder,
                slope,
                "per doubling of N",
            )
        )
    table = []
    for claim, shapes, statistic, unit in tried:
        for measure in ("umap_cvg", "pca_cvg", "distinct", "neighbor_distance"):
            found = run_means(lines, measure, grid)
            groups = {
                game: {shape: np.array(list(configurations[shape].values())) for shape in shapes}
                for game, configurations in found.items()
                if all(shape in configurations for shape in shapes)
            }
            if not groups:
                continue
            means = {game: {shape: values.mean() for shape, values in each.items()} for game, each in groups.items()}
            interval = stratified_bootstrap(groups, statistic)
            verdict = (
                "undecided"
                if interval is None or interval[0] <= 0 <= interval[1]
                else "supported"
                if interval[0] > 0
                else "not supported"
            )
            seeds = min(len(values) for each in groups.values() for values in each.values())
            table.append(
                {
                    "claim": claim,
                    "measure": measure,
                    "grid": grid if "cvg" in measure else "",
                    "unit": unit,
                    "estimate": float(statistic(means)),
                    "ci_low": interval[0] if interval else "",
                    "ci_high": interval[1] if interval else "",
                    "verdict": verdict,
                    "games": len(groups),
                    "seeds": seeds,
                    "budget": budget,
                }
            )
    return table


# ---- output ----------------------------------------------------------------------------------------------------------
def write_csv(path, table, fields):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, fields)
        writer.writeheader()
        writer.writerows(table)


def summary(lines, grid, game, label):
    """Of one configuration at the headline grid: mean Cvg, its half-range over UMAP seeds, and the uniform points'."""
    mine = [line for line in lines if line["env_id"] == game and line["configuration"] == label]
    cvg = [line for line in mine if line["measure"] == "umap_cvg" and line["grid"] == grid]
    by_seed = [
        np.mean([line["value"] for line in cvg if line["umap_seed"] == seed])
        for seed in sorted({line["umap_seed"] for line in cvg})
    ]
    others = {
        name: np.mean([line["value"] for line in mine if line["measure"] == name and line["grid"] in (grid, "")])
        for name in ("pca_cvg", "distinct", "neighbor_distance")
    }
    runs = [np.mean([line["value"] for line in cvg if line["seed"] == seed]) for seed in {line["seed"] for line in cvg}]
    return {
        "mean": np.mean(by_seed),
        "low": min(by_seed),
        "high": max(by_seed),
        "uniform": cvg[0]["uniform"],
        "rows": cvg[0]["rows"],
        "seeds": len(runs),
        "ci95": bootstrap_mean(runs),
        **others,
    }


def bootstrap_mean(values):
    """The 95 % interval of the mean over seeds; None below MIN_SEEDS."""
    return stratified_bootstrap({"": {"": np.array(values)}}, lambda means: means[""][""])


def print_tables(lines, games, grid, table):
    print(
        f"\nCvg at G = {grid}: mean over runs and UMAP seeds [range over UMAP seeds], 95 % CI over the runs' seeds;\n"
        "uniform: what as many uniform random points give; PCA, distinct, neighbor distance: without UMAP"
    )
    width = max(len(run.label) for runs in games.values() for run in runs)
    print(
        f"{'game':<24} {'configuration':<{width}} seeds  rows    Cvg [umap seeds]    95 % CI           uniform    "
        "PCA  distinct  neighbor distance"
    )
    for game, runs in games.items():
        for label in dict.fromkeys(run.label for run in runs):
            s = summary(lines, grid, game, label)
            interval = "[{:.3f}, {:.3f}]".format(*s["ci95"]) if s["ci95"] else f"- (< {MIN_SEEDS} seeds)"
            print(
                f"{game:<24} {label:<{width}} {s['seeds']:>5} {s['rows']:>5}  {s['mean']:.3f} "
                f"[{s['low']:.3f}, {s['high']:.3f}]  {interval:<16} {s['uniform']:>8.3f}  {s['pca_cvg']:.3f}"
                f"  {s['distinct']:>8.3f}  {s['neighbor_distance']:>8.3f}"
            )
    print("\nclaims of P1 (Mayor et al. 2025), as these runs have them")
    for row in table:
        interval = (
            f"95 % CI [{row['ci_low']:+.4f}, {row['ci_high']:+.4f}]"
            if row["ci_low"] != ""
            else f"no CI: {row['seeds']} seed{'s' * (row['seeds'] > 1)}, {MIN_SEEDS} are needed"
        )
        at = f"{row['measure']} G={row['grid']}" if row["grid"] else row["measure"]
        print(
            f"  {row['claim']} | {at} | {row['unit']} {row['estimate']:+.4f}, {interval} | {row['verdict']} | "
            f"{row['games']} game{'s' * (row['games'] > 1)}, {row['seeds']} seed{'s' * (row['seeds'] > 1)}, "
            f"{row['budget']}"
        )
    if not table:
        print("  none: they need two shapes with one batch size, or two N with one T, in the same game")


def draw(path, games, drawn, lines, grid, options):
    """One panel a configuration, the base first, one block of rows a game; writes path.png and path.pdf.

    drawn: {game: (points (runs, n, 2), values (runs, n))}. All panels of a game have the same axes, colours and number
    of points: of configurations with more seeds than another, the first ones are drawn."""
    labels = {game: list(dict.fromkeys(run.label for run in runs)) for game, runs in games.items()}
    columns = min(PANELS_A_ROW, max(2, *map(len, labels.values())))
    num_rows = [-(-len(found) // columns) for found in labels.values()]
    side = (WIDTH - 0.9) / columns  # of a panel, inches
    between = " " if columns < 5 else "\n"
    titles = {
        game: {
            label: textwrap.fill(label, int(16 * side))
            + "\nCvg={mean:.2f}{}(uniform {uniform:.2f})".format(between, **summary(lines, grid, game, label))
            for label in found
        }
        for game, found in labels.items()
    }
    words = max(title.count("\n") + 1 for found in titles.values() for title in found.values())
    height = sum(num_rows) * (side + 0.11 * words + 0.2) + 0.3
    figure = plt.figure(figsize=(WIDTH, height), layout="constrained")
    figure.get_layout_engine().set(rect=(0, 0, 1, 1 - 0.06 / height))  # or the first titles touch the edge
    blocks = figure.subfigures(len(games), 1, squeeze=False, height_ratios=num_rows)[:, 0]
    for block, count, (game, runs) in zip(blocks, num_rows, games.items()):
        points, values = drawn[game]
        low, high = np.quantile(values, [0.01, 0.99])
        mine = {label: [i for i, run in enumerate(runs) if run.label == label] for label in labels[game]}
        shown = min(map(len, mine.values()))
        axes = block.subplots(count, columns, squeeze=False).ravel()
        for axis, (label, inds) in zip(axes, mine.items()):
            shuffled = np.random.default_rng(0).permutation(shown * points.shape[1])  # no run lies on top of another
            xy, colour = points[inds[:shown]].reshape(-1, 2)[shuffled], values[inds[:shown]].reshape(-1)[shuffled]
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
            axis.set_title(titles[game][label], fontsize=7)
            axis.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xticks=[], yticks=[], aspect="equal")
        for axis in axes[len(mine) :]:
            axis.set_visible(False)
        axes[0].set_ylabel(game.removesuffix("-v5"), fontsize=8)
        bar = block.colorbar(scatter, ax=axes, pad=0.01, aspect=14, fraction=0.05)
        bar.set_label("critic value", fontsize=7)
        bar.ax.tick_params(labelsize=6, length=2)
    of_these = [line for line in lines if line["env_id"] in games]
    counts, steps = ({line[name] for line in of_these} for name in ("rows", "last_step"))
    what = {"frames": "down-sampled frames", "features": "features (each run's own encoder: compares encoders)"}
    figure.supxlabel(
        f"one UMAP a game of {what[options.input]}; Cvg: G={grid}, {span(counts)} rows of each run, "
        f"{span(steps)} steps, {options.umap_seeds} UMAP seed{'s' * (options.umap_seeds > 1)}",
        fontsize=6.5,
    )
    for suffix in ("png", "pdf"):
        figure.savefig(f"{path}.{suffix}", dpi=300)
    plt.close(figure)


def span(numbers):
    """The one number of a set, or "smallest to largest"."""
    return " to ".join(f"{number:,}" for number in sorted({min(numbers), max(numbers)}))


# ---- main ------------------------------------------------------------------------------------------------------------
def parse_args(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.error = fail
    parser.add_argument("--runs", type=Path, required=True, help="the directory below which the runs are")
    parser.add_argument("--out", type=Path, default=Path("figures"), help="where figures and tables are written")
    parser.add_argument(
        "--input",
        choices=("frames", "features"),
        default="frames",
        help="what UMAP gets: down-sampled frames, or the features of each run's own network",
    )
    parser.add_argument("--rows", type=int, default=10000, help="rows of a game at most, over all of its runs")
    parser.add_argument("--grids", type=int, nargs="+", default=[16, 32, 50], help="cells on each side: G")
    parser.add_argument("--umap-seeds", type=int, default=3, help="the number of UMAP's seeds")
    parser.add_argument("--seed", type=int, default=0, help="the first of them, and that of the choice of rows")
    options = parser.parse_args(argv)
    if not options.runs.is_dir():
        fail(f"--runs {options.runs} is no directory: one with runs below it is accepted")
    for flag, value, low, high in (
        ("rows", options.rows, 100, 30000),
        ("umap-seeds", options.umap_seeds, 1, 100),
        ("seed", options.seed, 0, 2**31),
        *(("grids", g, 2, 1000) for g in options.grids),
    ):
        if not low <= value <= high:
            fail(f"--{flag} {value} is out of range: {low} to {high} is accepted")
    options.grids = sorted(set(options.grids))
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"--out {options.out} ({error.strerror}): a directory that can be written to is accepted")
    return options


def rows_a_run(game, runs, cap):
    """The number of rows that every run of a game gives: as many as the one with the fewest has, and `cap` in all."""
    counts, steps = ({getattr(run, name) for run in runs} for name in ("num_rows", "last_step"))
    if len(counts) > 1:
        fewest = min(runs, key=lambda run: run.num_rows)
        note(f"{game}: the runs have {span(counts)} rows: {min(counts):,} of each at most, as {fewest.path} has")
    if len(steps) > 1:
        note(f"{game}: the runs end between steps {span(steps)}: a longer one has had time to see more")
    count = min(min(counts), cap // len(runs))
    if count * len(runs) < 10 or count < 2:
        fail(f"{game}: {count} rows of each of {len(runs)} runs are too few: longer runs or more --rows are accepted")
    return count


def main(options):
    games = load_runs(options.runs)
    for game, runs in games.items():
        if len({run.shapes[options.input] for run in runs}) > 1:
            fail(f"--runs {options.runs}: {options.input} of {game} differ in shape: those of one script are accepted")
    num_rows = {game: rows_a_run(game, runs, options.rows) for game, runs in games.items()}
    if options.input == "features":
        note("each run has its own encoder: coverage of features compares encoders as much as states")
    grid = headline_grid(float(np.median(list(num_rows.values()))), options.grids)
    lines, drawn = [], {}
    bar = tqdm(total=len(games) * options.umap_seeds, disable=None, dynamic_ncols=True, unit="fit")
    for game, runs in games.items():

        def report(text, game=game):
            bar.set_description_str(f"{game}: {text}")
            bar.update()
            if bar.disable:
                print(f"{game}: {text}", file=sys.stderr, flush=True)

        found, *drawn[game] = measure_game(runs, options, num_rows[game], report)
        lines += found
    bar.close()
    table = claims(lines, grid)
    plt.rcParams.update({"font.size": 8, "pdf.fonttype": 42, "axes.linewidth": 0.5})
    write_csv(options.out / "coverage.csv", lines, FIELDS)
    if table:
        write_csv(options.out / "coverage_claims.csv", table, list(table[0]))
    print_tables(lines, games, grid, table)
    pages = {"coverage": list(games)[:GAMES_A_PAGE]}
    if len(games) > 1:
        pages.update({f"coverage_{game}": [game] for game in games})
    for name, shown in pages.items():
        draw(options.out / name, {game: games[game] for game in shown}, drawn, lines, grid, options)
    print(
        f"\n{options.out}/: coverage.csv {'coverage_claims.csv ' * bool(table)}"
        f"{' '.join(f'{name}.png .pdf' for name in pages)}"
    )


if __name__ == "__main__":
    main(parse_args(sys.argv[1:]))
