"""Draws a sweep: its figures (PNG, PDF), the tidy CSV behind each, and the papers' claims with their numbers.

    python scripts/figures.py scaling_data --runs runs/scaling_data --out figures/
    python scripts/figures.py all --runs runs --out figures/       # every sweep that has runs there
    python scripts/figures.py scaling_data --x gradient_steps      # or hours: the same against what confounds N

Runs are told apart by the arguments in their manifests: an argument that differs between runs of the same game makes a
configuration. A final score is the mean of the last 100 games at the end of the budget; who did not get there has none,
is named, and is in no number. Aggregates are rliable's (Agarwal et al. 2021) over games x seeds, human-normalised on
Atari by scripts/human_at30.csv. Games that a configuration lacks leave the aggregates of all; docs/reproducing.md has
the rest of the rules.
"""

import argparse
import contextlib
import csv
import json
import os
import shutil
import struct
import subprocess
import sys
import warnings
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from google.protobuf.message import DecodeError
from launch import Parser, defaults, fail, positive
from tensorboard.compat.proto.event_pb2 import Event
from tqdm import tqdm

ROOT = Path(__file__).resolve().parent.parent
matplotlib.use("Agg")  # draws without a screen
sys.path[:] = [path for path in sys.path if Path(path).resolve() != ROOT / "scripts"]  # numba wants another `coverage`
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator  # noqa: E402
from rliable import library as rly  # noqa: E402

RETURN = "charts/episodic_return"
# arguments that say where and how a run ran, or that follow from others: they make no configuration
PLACE = set(
    """seed env_id exp_name run_name runs_dir num_threads track wandb_project_name wandb_entity capture_video
    cuda torch_deterministic checkpoint_minutes num_logs probe_size diagnostics compile cuda_graphs tf32 batch_size
    num_iterations eval_envs""".split()
)
NO_FINALS = "no final scores of these configurations"
ABOUT = {  # what a sweep varies: in its configurations even if the runs that are there have one value of it
    "data_reuse": {"update_epochs"},
    "decoupled": {"shared_encoder"},
    "learning_rate": {"learning_rate"},
    "gamma": {"gamma"},
    "outer_loop": {"learning_rate", "minibatch_size"},
    "step_size": {"clip_coef", "update_epochs", "total_timesteps"},
}
MIN_SEEDS = 3  # a game, on average: a bootstrap of fewer runs is too narrow to be believed
MARGIN = 0.1  # of the base's IQM: a difference inside it is "little"
GRID = 100  # points of a drawn curve
DIAGNOSTICS = {  # tag: (label, P1's claim: the sign of its correlation with N)
    "feature_rank": ("feature rank", 1),
    "dormant_neurons": ("dormant neurons (%)", -1),
    "weight_norm": ("weight norm", -1),
    "gradient_kurtosis": ("gradient kurtosis", -1),
    "policy_variance": ("policy variance", -1),
    "ess": ("ESS (%)", 1),
}
# log10(1 + percent) weights of the 57-game median's estimate: Aitchison et al. 2023, the table of the authors' notebook
ATARI_10 = {
    "Amidar": 0.082464,
    "Bowling": 0.055903,
    "Frostbite": 0.069126,
    "KungFuMaster": 0.098617,
    "Riverraid": 0.048594,
    "BattleZone": 0.188820,
    "DoubleDunk": 0.085192,
    "NameThisGame": 0.128697,
    "Phoenix": 0.164327,
    "Qbert": 0.059229,
}
ATARI_5 = {
    "BattleZone": 0.381975,
    "DoubleDunk": 0.067910,
    "NameThisGame": 0.310804,
    "Phoenix": 0.124126,
    "Qbert": 0.080485,
}
# Procgen's R_min and R_max: Cobbe et al. 2020, Appendix C
PROCGEN_EASY = dict(
    coinrun=(5, 10),
    starpilot=(2.5, 64),
    caveflyer=(3.5, 12),
    dodgeball=(1.5, 19),
    fruitbot=(-1.5, 32.4),
    chaser=(0.5, 13),
    miner=(1.5, 13),
    jumper=(3, 10),
    leaper=(3, 10),
    maze=(5, 10),
    bigfish=(1, 40),
    heist=(3.5, 10),
    climber=(2, 12.6),
    plunder=(4.5, 30),
    ninja=(3.5, 10),
    bossfight=(0.5, 13),
)
PROCGEN_HARD = dict(
    coinrun=(5, 10),
    starpilot=(1.5, 35),
    caveflyer=(2, 13.4),
    dodgeball=(1.5, 19),
    fruitbot=(-0.5, 27.2),
    chaser=(0.5, 14.2),
    miner=(1.5, 20),
    jumper=(1, 10),
    leaper=(1.5, 10),
    maze=(4, 10),
    bigfish=(0, 40),
    heist=(2, 10),
    climber=(1, 12.6),
    plunder=(3, 30),
    ninja=(2, 10),
    bossfight=(0.5, 13),
)


KINDS = {1: "f4", 2: "f8"}  # TensorFlow's DT_FLOAT and DT_DOUBLE


# ---- reading ---------------------------------------------------------------------------------------------------------
def read_events(paths):
    """{tag: (steps (P,) int64, values (P,) float32)} of one run's event files, oldest first.

    Of two points at one step the later written stays. A file's torn tail (kill -9) ends it. The framing is TFRecord's:
    length (8 bytes), its CRC (4), the record, its CRC (4). tensorboard's own readers give the same, ten times slower.
    """
    columns = defaultdict(dict)
    for path in paths:
        data, at = Path(path).read_bytes(), 0
        while at + 12 <= len(data):
            end = at + 12 + struct.unpack_from("<Q", data, at)[0]
            if end + 4 > len(data):
                break
            try:
                event = Event.FromString(data[at + 12 : end])
            except DecodeError:
                break
            at, step = end + 4, event.step
            for value in event.summary.value:
                kind = value.WhichOneof("value")
                if kind == "simple_value":
                    columns[value.tag][step] = value.simple_value
                elif kind == "tensor" and value.tensor.dtype in KINDS:  # as TensorFlow 2 and its like write scalars
                    content = [*value.tensor.float_val, *value.tensor.double_val] or np.frombuffer(
                        value.tensor.tensor_content, KINDS[value.tensor.dtype]
                    )
                    if len(content) == 1:
                        columns[value.tag][step] = content[0]
    curves = {}
    for tag, points in columns.items():
        steps = np.fromiter(points, np.int64, len(points))
        order = steps.argsort()
        curves[tag] = steps[order], np.fromiter(points.values(), np.float32, len(points))[order]
    return curves


class Cache:
    """Curves by run directory in one .npz. A run counts as unchanged if its event files' names, sizes and times are."""

    def __init__(self, paths):
        self.paths, self.kept, self.fresh, self.changed = list(paths), {}, {}, False
        for path in self.paths:
            with contextlib.suppress(Exception):  # a cache that cannot be read, for whatever reason, is made anew
                with np.load(path) as data:
                    steps, values = data["steps"], data["values"]
                    for run_dir, (signature, tags) in json.loads(str(data["index"])).items():
                        self.kept[run_dir] = (
                            signature,
                            {tag: (steps[a : a + n], values[b : b + n]) for tag, (a, b, n) in tags.items()},
                        )
                break

    def curves(self, run_dir):
        """`read_events` of everything in the directory, from the cache if nothing has changed."""
        files = sorted(entry.path for entry in os.scandir(run_dir) if entry.name.startswith("events.out.tfevents"))
        signature = [[os.path.basename(path), os.stat(path).st_size, os.stat(path).st_mtime_ns] for path in files]
        if run_dir not in self.fresh:
            kept = self.kept.get(run_dir)
            if not kept or kept[0] != signature:
                kept, self.changed = (signature, read_events(files)), True
            self.fresh[run_dir] = kept
        return self.fresh[run_dir][1]

    def save(self):
        """Writes what was read to the first of the paths that can be written; a run's equal steps are stored once."""
        if not self.changed:
            return
        index, steps, values, num_steps, num_values = {}, [], [], 0, 0
        for run_dir, (signature, curves) in self.fresh.items():
            tags, seen = {}, {}
            for tag, (run_steps, run_values) in curves.items():
                key = run_steps.tobytes()
                if key not in seen:
                    seen[key], num_steps = num_steps, num_steps + len(run_steps)
                    steps.append(run_steps)
                tags[tag] = seen[key], num_values, len(run_values)
                values.append(run_values)
                num_values += len(run_values)
            index[run_dir] = signature, tags
        for path in self.paths:
            partial = path.with_name(f"{path.stem}.{os.getpid()}.npz")
            with contextlib.suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                np.savez(
                    partial,
                    index=np.array(json.dumps(index)),
                    steps=np.concatenate([*steps, np.zeros(0, int)]),
                    values=np.concatenate([*values, np.zeros(0, np.float32)]),
                )
                os.replace(partial, path)
                return


@dataclass
class Run:
    name: str  # the path below --runs
    script: str
    game: str  # without the suffixes of its emulators: Breakout
    args: dict  # of the manifest, over the script's defaults
    curves: dict  # read_events'
    done: dict  # done.json's
    diverged: object  # failed.json's content, true if there is one
    target: float = 0.0  # steps at which it is judged
    finished: bool = False

    def curve(self, tag, x="steps"):
        """x (P,) and values (P,) of a tag, finite ones only. x: `steps`, `gradient_steps` or `hours`."""
        steps, values = self.curves.get(tag, (np.zeros(0), np.zeros(0)))
        keep = np.isfinite(values)
        return self.x(steps[keep], x), values[keep].astype(float)

    def x(self, steps, kind):
        if kind == "gradient_steps":
            at, done = self.curves.get("charts/gradient_steps", (np.zeros(0), np.zeros(0)))
            if not len(at):
                args = self.args
                return steps / (args["num_envs"] * args["num_steps"]) * args["update_epochs"] * args["num_minibatches"]
            return np.interp(steps, [0, *at], [0, *done])
        if kind == "hours":  # the events' own clock also runs while a run is stopped
            at, sps = self.curve("charts/SPS")
            if not len(at):
                return np.full(len(steps), np.nan)
            return np.interp(steps, [0, *at], np.cumsum([0, *np.diff(at, prepend=0) / np.maximum(sps, 1e-9)]) / 3600)
        return np.asarray(steps, float)

    @property
    def end(self):
        """The last step with a return; 0 if no game ended."""
        steps, _ = self.curve(RETURN)
        return int(steps[-1]) if len(steps) else 0

    @property
    def final(self):
        """The mean return of the last 100 games at the target, or None for a run that did not get there."""
        return float(np.interp(self.target, *self.curve(RETURN))) if self.finished else None


def load_json(path):
    try:
        content = json.loads(path.read_text())
        return content if isinstance(content, dict) else {}
    except (OSError, ValueError):
        return {}


def read_run(run_dir, name, cache):
    """The Run in a directory; what its manifest leaves out is the script's default."""
    manifest = load_json(run_dir / "manifest.json")
    given = manifest.get("arguments") if isinstance(manifest.get("arguments"), dict) else {}
    scripts = [word for word in str(manifest.get("command", "")).split() if word.endswith(".py")]
    script = Path(scripts[0]).stem if scripts else str(given.get("exp_name") or "")
    if not (ROOT / f"{script}.py").exists():
        script = "ppo_isaacgym" if "Mjlab" in str(given.get("env_id")) else "ppo_atari_envpool"
    path = str(ROOT / f"{script}.py")
    env_id = str(given.get("env_id") or defaults(path, "")["env_id"])
    args = {**defaults(path, env_id), "env_id": env_id, **given}
    batch = args["num_envs"] * args["num_steps"]
    args["minibatch_size"] = args.get("minibatch_size") or batch // args["num_minibatches"]
    args["num_minibatches"] = batch // args["minibatch_size"]
    game = env_id.split("/")[-1]
    for end in ("-v0", "-v4", "-v5", "NoFrameskip", "Easy", "Hard"):
        game = game[: -len(end)] if game.endswith(end) else game
    game = game.lower() if script == "ppo_procgen" else game.removeprefix("Mjlab-")
    done = load_json(run_dir / "done.json")
    failed = load_json(run_dir / "failed.json") or (run_dir / "failed.json").exists()
    steps = done.get("global_step") or (given.get("total_timesteps") or 0) // batch * batch
    return Run(
        name, script, game, args, cache.curves(os.path.realpath(run_dir)), done, not done and failed, target=steps
    )


def read_runs(runs_dir, cache):
    """All runs below a directory, links included, each once; and the names of those that cannot be read."""
    found, seen, bad = [], set(), []
    for folder, folders, files in os.walk(runs_dir, followlinks=True):
        real = os.path.realpath(folder)
        folders[:] = sorted(name for name in folders if name[0] != ".") if real not in seen else []
        if real not in seen and "manifest.json" in files:
            found.append(Path(folder))
        seen.add(real)
    runs = []
    for run_dir in tqdm(found, desc="reading", unit=" runs", disable=not sys.stderr.isatty(), leave=False):
        name = str(run_dir.relative_to(runs_dir))
        try:
            runs.append(read_run(run_dir, name, cache))
        except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError) as error:
            bad.append(f"{name}: not read ({type(error).__name__}: {error})")
    return runs, bad


# ---- statistics ------------------------------------------------------------------------------------------------------
# A sample is a list with one array a game, (…, seeds): the games may have different numbers of seeds, and every
# statistic gives each game the same weight. On complete matrices they are exactly rliable's (tests/test_figures.py).
def iqm(sample):
    """The mean of the middle half of all runs of all games (…), as rliable.metrics.aggregate_iqm."""
    values = np.concatenate(sample, axis=-1)
    weights = np.concatenate([np.full(x.shape[-1], 1 / x.shape[-1] / len(sample)) for x in sample])
    order = values.argsort(-1)
    ends = weights[order].cumsum(-1)
    cut = len(weights) // 4 / len(weights)
    kept = np.clip(ends, cut, 1 - cut) - np.clip(ends - weights[order], cut, 1 - cut)
    return (np.take_along_axis(values, order, -1) * kept).sum(-1) / kept.sum(-1)


def mean(sample):
    return np.mean([x.mean(-1) for x in sample], axis=0)


def median(sample):
    """The median over games of the mean over seeds, as rliable.metrics.aggregate_median."""
    return np.median([x.mean(-1) for x in sample], axis=0)


def optimality_gap(sample):
    """How far the runs stay below a score of 1, as rliable.metrics.aggregate_optimality_gap."""
    return 1 - mean([np.minimum(x, 1) for x in sample])


def improvement(sample, other):
    """P(a run of `sample` scores higher than one of `other`), mean over games, as rliable's."""
    return np.mean(
        [(np.sign(x[..., :, None] - y[..., None, :]) / 2 + 0.5).mean((-2, -1)) for x, y in zip(sample, other)], axis=0
    )


def median_57(sample, games, weights):
    """The estimate of the median over all 57 games, in percent, from ten or five of them (Aitchison et al. 2023)."""
    logs = [weights[game] * np.log10(1 + np.maximum(0, 100 * x.mean(-1))) for game, x in zip(games, sample)]
    return 10 ** np.sum(logs, axis=0) - 1


def carries(samples):
    """Whether the samples carry a CI: MIN_SEEDS seeds a game on average, and two at least in every game."""
    counts = [[x.shape[-1] for x in sample] for sample in samples]
    return all(count and min(count) >= 2 and np.mean(count) >= MIN_SEEDS for count in counts)


def interval(func, samples, reps, seed=0):
    """Point estimate and 95 % percentile bootstrap CI of func(*samples), stratified by game: value, low, high.

    Through rliable where all games have equally many seeds; curves and unequal seeds by `resampled`, the same bootstrap
    on ragged lists of whole runs. low and high are NaN where the data cannot carry a CI.
    """
    value = np.asarray(func(*samples), float)
    if not carries(samples):
        return value, np.full_like(value, np.nan), np.full_like(value, np.nan)
    if all(x.ndim == 1 and x.shape == sample[0].shape for sample in samples for x in sample):
        state = np.random.get_state()
        np.random.seed(seed)  # rliable 1.2 draws from numpy's global generator, whatever random_state says
        scores = [np.stack(sample, axis=1) for sample in samples]  # (seeds, games)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # arch's, of how rliable calls it
            _, bounds = rly.get_interval_estimates(
                {"": scores[0] if len(scores) == 1 else scores},
                lambda *scores: func(*[list(x.T) for x in scores]),
                reps=reps,
                random_state=np.random.RandomState(seed),
            )
        np.random.set_state(state)
        return value, *bounds[""]
    return value, *np.percentile(resampled(func, samples, reps, seed), [2.5, 97.5], axis=-1)


def resampled(func, samples, reps, seed, fewer=0):
    """func of `reps` bootstrap samples, (…, reps): in each game whole runs are drawn with replacement, as many as there
    are or `fewer`."""
    rng = np.random.RandomState(seed)
    drawn = [[x[..., rng.randint(x.shape[-1], size=(reps, x.shape[-1] - fewer))] for x in sample] for sample in samples]
    return func(*drawn)


def verdict_interval(func, samples, reps, seed=0):
    """As `interval`, for what a verdict hangs on: of n seeds a game n - 1 are drawn (Rao and Wu 1988).

    The plain bootstrap's variance is (n - 1) / n of the unbiased one, too small where seeds are few: of equal
    configurations its CI tells 7 % apart at 5 seeds x 10 games and 14 % at 3 x 10, this one 4 % and 5 %.
    """
    value = np.asarray(func(*samples), float)
    if not carries(samples):
        return value, np.full_like(value, np.nan), np.full_like(value, np.nan)
    return value, *np.percentile(resampled(func, samples, reps, seed, fewer=1), [2.5, 97.5], axis=-1)


def kendall(levels, groups, control=None, reps=2000, seed=0):
    """Rank correlation of `levels` with a quantity, mean over games, with a 95 % CI: value, low, high.

    Kendall's tau over the pairs of runs whose levels differ (Somers' D): P(larger at the higher level) - P(smaller).
    Of constants it is 0, and, unlike Spearman's rho, it is not moved by the ties that a bootstrap makes.
    levels: (C,) of the configurations, as N. groups: one list a game of C arrays (seeds,) of the quantity, resampled
    within each. control: (C,) where given, only pairs of equal control count: N at a fixed batch, say.
    """
    pairs = [
        (i, j)
        for i, low in enumerate(levels)
        for j, high in enumerate(levels)
        if low < high and (control is None or control[i] == control[j])
    ]

    def statistic(*groups):
        return np.mean(
            [
                np.mean(
                    [np.sign(group[j][..., :, None] - group[i][..., None, :]).mean((-2, -1)) for i, j in pairs], axis=0
                )
                for group in groups
            ],
            axis=0,
        )

    if not pairs or not groups:
        return (np.nan,) * 3
    value = float(statistic(*groups))
    if not carries(groups):
        return value, np.nan, np.nan
    return value, *np.percentile(resampled(statistic, groups, reps, seed, fewer=1), [2.5, 97.5])


def verdict(low, high, side, margin=0.0):
    """*supported*, *not supported* or *undecided*: where a difference's CI lies.

    side: `more` and `less`: than 0; `little`: inside ±margin; `not less`: above -margin.
    """
    if not np.isfinite([low, high]).all():
        return "undecided"
    if side == "less":
        low, high = -high, -low
    if side == "little":
        yes, no = -margin < low and high < margin, low > margin or high < -margin
    elif side == "not less":
        yes, no = low > -margin, high < -margin
    else:
        yes, no = low > 0, high < 0
    return "supported" if yes else "not supported" if no else "undecided"


# ---- sweeps ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Config:
    """What tells runs of one game apart: N, T and the other arguments that differ, as ((argument, value), …)."""

    items: tuple

    def __getitem__(self, name):
        return dict(self.items)[name]

    def but(self, **changes):
        """The same with other values of arguments that it has."""
        return Config(tuple((name, changes.get(name, value)) for name, value in self.items))

    @property
    def batch(self):
        return self["num_envs"] * self["num_steps"]

    def others(self):
        """The arguments beside N and T."""
        return {name: value for name, value in self.items if name not in ("num_envs", "num_steps")}


def plain(value):
    """A manifest's value as something that hashes and sorts with its like."""
    return json.dumps(value) if isinstance(value, (list, dict)) else value


def sort_key(config):
    numbers = [
        (isinstance(value, str), str(value) if isinstance(value, str) else float(value or 0))
        for value in config.others().values()
    ]
    return numbers, config.batch, config["num_envs"]


class Suite:
    """The runs of one script in a sweep, grouped, judged and normalised."""

    def __init__(self, sweep, script, runs, base=None, reps=2000, seed=0, x="steps"):
        self.sweep, self.script, self.reps, self.seed, self.kind, self.notes = sweep, script, reps, seed, x, []
        values = defaultdict(set)
        for game in {run.game for run in runs}:
            mine = [run.args for run in runs if run.game == game]
            for name in set().union(*mine) - PLACE:
                values[name] = max(values[name], {plain(args.get(name)) for args in mine}, key=len)
        varying = {name for name, found in values.items() if len(found) > 1} - {"num_envs", "num_steps"}
        if varying >= {"minibatch_size", "num_minibatches"}:
            varying.remove("num_minibatches")  # N, T and the size give it
        elif "minibatch_size" in varying:
            varying.remove("minibatch_size")  # N, T and the number give it
        varying |= ABOUT.get(sweep, set())
        self.names = ["num_envs", "num_steps", *sorted(varying)]
        self.runs, self.twice = {}, []
        for run in sorted(runs, key=lambda run: (run.end, bool(run.done))):  # of two of one seed the longer one
            config = Config(tuple((name, plain(run.args.get(name))) for name in self.names))
            key = config, run.game, run.args["seed"]
            if key in self.runs:
                self.notes.append(f"{self.runs[key].name}: left out, {run.name} has the same arguments")
            self.runs[key] = run
        self.configs = sorted({config for config, _, _ in self.runs}, key=sort_key)
        self.games = sorted({game for _, game, _ in self.runs})
        self.seeds = sorted({seed for _, _, seed in self.runs})
        self.base = self.find_base(base)
        self.judge()
        self.normalise()

    def find_base(self, base):
        """--base, or what has the most of the script's defaults; then the smallest batch, then what others scale."""
        env_id = next(iter(self.runs.values())).args["env_id"]
        default = defaults(str(ROOT / f"{self.script}.py"), env_id)

        def rank(config):
            others = [other for other in self.configs if other.others() == config.others()]
            scaled = sum(
                (other["num_envs"] == config["num_envs"]) != (other["num_steps"] == config["num_steps"])
                for other in others
            )
            matches = sum(default.get(name) == value for name, value in config.others().items())
            matches += all(default.get(name) == config[name] for name in ("num_envs", "num_steps"))
            budget = config.others().get("total_timesteps", 0)
            return -matches, config.batch, -scaled, config["num_envs"], -budget, sort_key(config)

        found = self.configs
        if base:
            found = [config for config in found if (config["num_envs"], config["num_steps"]) == base]
            if not found:
                shapes = sorted({f"{config['num_envs']}x{config['num_steps']}" for config in self.configs})
                fail(f"--base {base[0]}x{base[1]} has no runs in {self.sweep}: {' '.join(shapes)} is accepted")
        return min(found, key=rank)

    def judge(self):
        """Which runs have reached the budget at which they are judged, and what is said of the others."""
        runs = list(self.runs.values())
        ends = [run.end for run in runs if run.end]
        self.budget = max([run.target for run in runs] + [0])
        for run in runs:
            run.target = run.target or self.budget or max(ends, default=0)
            run.finished = bool(run.end) and run.end >= 0.98 * run.target and not run.diverged
        if ends and not any(run.finished for run in runs):
            common = max(ends) if np.median(ends) >= 0.98 * max(ends) else min(ends)
            for run in runs:
                run.target, run.finished = common, run.end >= 0.98 * common and not run.diverged
            self.notes.append(f"no run has reached its budget: everything is judged at step {common:,}")
        self.budget = max(run.target for run in runs)
        for (config, game, seed), run in self.runs.items():
            _, values = self.curve_of(run)
            what = f"{run.name} ({self.label(config)}, {game}, seed {seed})"
            if run.diverged:
                at = run.diverged.get("global_step", run.end) if isinstance(run.diverged, dict) else run.end
                self.notes.append(
                    f"{what}: diverged at step {at:,} (failed.json); it has no final score, which "
                    "favours its configuration"
                )
            elif not run.finished:
                bad = len(values) and not np.isfinite(values[-1])
                why = "its returns are not finite from there" if bad else "unfinished"
                self.notes.append(
                    f"{what}: ends at step {run.end:,} of {run.target:,.0f}: {why}; no final score"
                    if run.end
                    else f"{what}: {'not finite' if bad else 'no game has ended'}; no score"
                )
        for config in self.configs:
            lacks = {
                game: [seed for seed in self.seeds if (config, game, seed) not in self.runs] for game in self.games
            }
            absent = [f"{game} seed {' '.join(map(str, seeds))}" for game, seeds in lacks.items() if seeds]
            if absent:
                self.notes.append(f"missing of {self.label(config)}: {', '.join(absent)}")

    @staticmethod
    def curve_of(run):
        return run.curves.get(RETURN, (np.zeros(0), np.zeros(0)))

    def normalise(self):
        """Sets `zero` and `unit` of each game: a score is (return - zero) / unit; and the games of the aggregates."""
        self.zero, self.unit = dict.fromkeys(self.games, 0.0), {}
        if self.script == "ppo_procgen":
            hard = any(run.args.get("distribution_mode") == "hard" for run in self.runs.values())
            table, self.scale = (
                (PROCGEN_HARD if hard else PROCGEN_EASY),
                f"normalised by Cobbe et al. 2020's R_min and R_max ({'hard' if hard else 'easy'})",
            )
        elif self.script == "ppo_isaacgym":
            table, self.scale = (
                {},
                (
                    "returns over the base's mean final return in each task (there is no human "
                    "reference); the CI holds that constant"
                ),
            )
            for game in self.games:
                finals = [
                    run.final
                    for (config, its, _), run in self.runs.items()
                    if its == game and run.finished and config == self.base
                ]
                table[game] = (0.0, abs(np.mean(finals))) if finals and np.mean(finals) else (0.0, 1.0)
        else:
            table, self.scale = human_scores(), "human-normalised by human_at30 (dqn_zoo; scripts/human_at30.csv)"
        for game in self.games:
            if game in table:
                self.zero[game], self.unit[game] = table[game][0], table[game][1] - table[game][0]
            else:
                self.notes.append(f"{game}: not in the table of scores; drawn, in no aggregate")
        ranked = [game for game in self.games if game in self.unit]
        self.scored = [config for config in self.configs if any(self.finals(config, game).size for game in ranked)]
        while True:
            self.common = [game for game in ranked if all(self.finals(config, game).size for config in self.scored)]
            has = {config: sum(self.finals(config, game).size > 0 for game in ranked) for config in self.scored}
            most = max(has.values(), default=0)
            if 2 * len(self.common) >= most:
                break
            self.scored.remove(min(has, key=has.get))  # one that has hardly begun is no reason to leave games out
        for config in self.configs:
            if config not in self.scored:
                self.notes.append(f"{self.label(config)}: in no aggregate, too few of its games have a final score")
        left = [game for game in ranked if game not in self.common]
        if left and self.scored:
            self.notes.append(f"in no aggregate, since a configuration has no final score there: {', '.join(left)}")

    def finals(self, config, game, raw=False):
        """Final scores (seeds,), or the raw returns."""
        finals = np.array([run.final for run in self.of(config, game) if run.finished])
        return finals if raw else (finals - self.zero[game]) / self.unit.get(game, 1.0)

    def of(self, config, game):
        return [self.runs[config, game, seed] for seed in self.seeds if (config, game, seed) in self.runs]

    def sample(self, config):
        return [self.finals(config, game) for game in self.common]

    # names and families
    def shape(self, config):
        """N x T in multiples of the base's where one of the two is the base's."""
        N, T, n, t = config["num_envs"], config["num_steps"], self.base["num_envs"], self.base["num_steps"]
        for letter, mine, its, same in (("N", N, n, T == t), ("T", T, t, N == n)):
            if same and mine != its and (mine % its == 0 or its % mine == 0):
                return f"{letter}×{mine // its}" if mine > its else f"{letter}/{its // mine}"
        return f"{N}×{T}"

    def label(self, config):
        words = [
            {True: "shared", False: "separate"}[value]
            if name == "shared_encoder"
            else f"{NAMES.get(name, name)} {short(value)}"
            for name, value in config.others().items()
        ]
        return " ".join([f"{config['num_envs']}×{config['num_steps']}", *words])

    def family(self, name, at=None, where=None):
        """The configurations that differ from `at` (the base) at most in one argument, in its order."""
        at = at or self.base
        found = [config for config in self.configs if config.but(**{name: at[name]}) == at]
        return sorted(found, key=lambda config: config[name])

    def scaled(self, name):
        """{factor: configuration} for N or T times more than the base's, all else equal."""
        base = self.base[name]
        return {config[name] / base: config for config in self.family(name) if config[name] > base}

    def same_batch(self):
        """The configurations with the base's batch and other arguments, by N."""
        return sorted(
            (
                config
                for config in self.configs
                if config.batch == self.base.batch and config.others() == self.base.others()
            ),
            key=lambda config: config["num_envs"],
        )

    # curves
    def drawn(self, config, game):
        """The runs behind a curve: the finished ones, or where there is none all in which a game has ended, or all."""
        runs = self.of(config, game)
        return [run for run in runs if run.finished] or [run for run in runs if run.end] or runs

    def grid(self, runs, tag):
        """Where the runs' curves are compared: for steps one grid for all configurations, else the runs' own range."""
        if self.kind == "steps":
            return np.linspace(0, self.budget, GRID + 1)[1:]
        lasts = [x[-1] for x, _ in (run.curve(tag, self.kind) for run in runs) if len(x)]
        last = min(lasts, default=1.0)
        return np.geomspace(last / 1000, last, GRID) if self.kind == "gradient_steps" else np.linspace(0, last, GRID)

    def curves(self, runs, tag, grid):
        """(P, runs) by linear interpolation; NaN before a run's first point and after its last."""
        columns = []
        for run in runs:
            x, y = run.curve(tag, self.kind)
            if len(x) and self.kind == "steps" and x[-1] >= 0.98 * grid[-1]:
                x[-1] = max(x[-1], grid[-1])  # the last whole iteration ends up to a batch before the budget
            columns.append(np.interp(grid, x, y, left=np.nan, right=np.nan) if len(x) else np.full(len(grid), np.nan))
        return np.stack(columns, axis=-1) if columns else np.full((len(grid), 0), np.nan)

    @lru_cache(maxsize=None)  # noqa: B019 - suites live as long as the program
    def final_iqm(self, config):
        """The final IQM over the common games: value, low, high."""
        estimate = interval(lambda sample: np.array([iqm(sample)]), [self.sample(config)], self.reps, self.seed)
        return tuple(float(x[0]) for x in estimate)

    @lru_cache(maxsize=None)  # noqa: B019
    def aggregate(self, config, kind):
        """x, IQM, low, high (P,) over the common games, where every run of the curve has a value; kind: self.kind."""
        runs = {game: self.drawn(config, game) for game in self.common}
        if not self.common or not all(run.end for run in sum(runs.values(), [])):
            return (np.zeros(0),) * 4
        grid = self.grid(sum(runs.values(), []), RETURN)
        sample = [(self.curves(runs[game], RETURN, grid) - self.zero[game]) / self.unit[game] for game in self.common]
        keep = np.all([np.isfinite(x).all(-1) for x in sample], axis=0)
        return grid[keep], *interval(iqm, [[x[keep] for x in sample]], min(self.reps, 500), self.seed)

    def mean_curve(self, config, game, tag):
        """x, mean, low, high (P,) over the seeds of one game, in raw units."""
        runs = [run for run in self.drawn(config, game) if len(run.curve(tag)[0])]
        if not runs:
            return (np.zeros(0),) * 4
        grid = self.grid(runs, tag)
        values = self.curves(runs, tag, grid)
        keep = np.isfinite(values).all(-1)
        return grid[keep], *interval(mean, [[values[keep]]], min(self.reps, 500), self.seed)

    def late(self, config, game, tag):
        """(seeds,) the mean of a diagnostic over the second half of each run that has come so far."""
        means = []
        for run in self.of(config, game):
            steps, values = run.curve(tag)
            if len(steps) and steps[-1] >= 0.98 * run.target and not run.diverged:
                means.append(values[steps >= run.target / 2].mean())
        return np.array(means)


NAMES = {
    "update_epochs": "epochs",
    "learning_rate": "lr",
    "gamma": "γ",
    "clip_coef": "clip",
    "total_timesteps": "budget",
    "minibatch_size": "minibatch",
    "num_minibatches": "minibatches",
}


def short(value):
    """A number as a label has it: 2.5e-4, 100k, 10M."""
    if isinstance(value, float) and 0 < abs(value) < 1e-2:
        digits, exponent = f"{value:.2e}".split("e")
        return f"{float(digits):g}e{int(exponent)}"
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) >= 10000:
        power = min(int(np.log10(abs(value)) // 3), 4)
        return f"{value / 1000**power:.3g}{' kMGT'[power]}".replace("G", "B")
    return f"{value:g}" if isinstance(value, float) else str(value)


@lru_cache(maxsize=None)
def human_scores():
    """{game: (random, human)} of the 57 games, dqn_zoo's human_at30."""
    with open(ROOT / "scripts" / "human_at30.csv") as file:
        rows = list(csv.DictReader(line for line in file if line[0] != "#"))
    return {row["game"]: (float(row["random"]), float(row["human"])) for row in rows}


# ---- claims ----------------------------------------------------------------------------------------------------------
@dataclass
class Claim:
    """A row of the table. value, low, high: of `what`; p: P(improvement) with its CI, where two sides are compared."""

    text: str
    what: str
    value: float
    low: float
    high: float
    side: str
    margin: float = 0.0
    p: tuple = (np.nan, np.nan, np.nan)
    why: str = ""  # there is no CI
    budget: float = 0.0
    script: str = ""
    verdict: str = field(default="", init=False)

    def __post_init__(self):
        self.verdict = verdict(self.low, self.high, self.side, self.margin)


class Claims(list):
    """Collects the rows of a suite."""

    def __init__(self, suite):
        super().__init__()
        self.suite = suite

    def add(self, text, what, estimate, side, **more):
        value, low, high = estimate
        suite = self.suite
        self.append(Claim(text, what, value, low, high, side, budget=suite.budget, script=suite.script, **more))

    def absent(self, text, what, side="more"):
        self.add(text, what, (np.nan,) * 3, side, why=NO_FINALS)

    def compare(self, text, plus, minus, what, side="more"):
        """The mean IQM of the configurations in `plus` minus that of `minus`; with P(improvement) pair by pair.

        `little` and `not less` have a margin of MARGIN times the base's IQM.
        """
        suite, wanted = self.suite, [*plus, *minus]
        if not plus or not minus or not suite.common or not set(wanted) <= set(suite.scored):
            return self.absent(text, what, side)
        once, pairs = list(dict.fromkeys(wanted)), len(plus) == len(minus)  # one resample of each, if it stands twice
        samples = [suite.sample(config) for config in once]

        def difference(*samples):
            score = {config: iqm(sample) for config, sample in zip(once, samples)}
            return np.mean([score[c] for c in plus], axis=0) - np.mean([score[c] for c in minus], axis=0)

        def chance(*samples):
            drawn = dict(zip(once, samples))
            return np.array([np.mean([improvement(drawn[c], drawn[d]) for c, d in zip(plus, minus)], axis=0)])

        estimate = [float(x) for x in verdict_interval(difference, samples, suite.reps, suite.seed)]
        p = [x[0] for x in interval(chance, samples, suite.reps, suite.seed)] if pairs else (np.nan,) * 3
        self.add(text, what, estimate, side, margin=self.margin(side), why=self.why(samples), p=tuple(p))

    def gain(self, text, pair, other, what, side):
        """(IQM of pair[0] - of pair[1]) - (of other[0] - of other[1])."""
        suite, wanted = self.suite, [*pair, *other]
        if len(wanted) != 4 or not suite.common or not set(wanted) <= set(suite.scored):
            return self.absent(text, what, side)
        samples = [suite.sample(config) for config in wanted]
        estimate = verdict_interval(
            lambda a, b, c, d: iqm(a) - iqm(b) - iqm(c) + iqm(d), samples, suite.reps, suite.seed
        )
        self.add(text, what, [float(x) for x in estimate], side, margin=self.margin(side), why=self.why(samples))

    def margin(self, side):
        base = self.suite.base
        return (
            MARGIN * abs(float(iqm(self.suite.sample(base))))
            if side in ("little", "not less") and base in self.suite.scored
            else 0.0
        )

    @staticmethod
    def why(samples):
        fewest = min((x.shape[-1] for sample in samples for x in sample), default=0)
        return "" if carries(samples) else f"{fewest} seed{'s' * (fewest != 1)}"

    def diagnostics(self):
        """P1's six claims on N-scaling, each on the native batch and on the probe."""
        for row in correlations(self.suite):
            label, side = DIAGNOSTICS[row["metric"].split("/")[1]]
            batch = "native batch" if row["metric"].startswith("diag") else "probe, equal rows"
            if not np.isfinite(row["N"][0]):
                continue
            self.add(
                f"{label} {'rises' if side > 0 else 'falls'} with N ({batch})",
                "Kendall's τ with N",
                row["N"],
                "more" if side > 0 else "less",
                why="" if np.isfinite(row["N"][1]) else row["why"],
            )


@lru_cache(maxsize=None)
def correlations(suite):
    """Rows {metric, N, T, fixed: (tau, low, high)} of each diagnostic, native and probe.

    N and T: over the base and what scales that one of them (at the same factors T has N's batches and gradient steps).
    fixed: N, over those of all these runs, and of the base's batch in other shapes, that have one batch. Where nothing
    scales N, N is over the base's batch too.
    """
    rows, base = [], suite.base
    n_family, t_family = suite.family("num_envs"), suite.family("num_steps")
    n_family = n_family if len(n_family) > 1 else suite.same_batch()
    everything = list(dict.fromkeys([*n_family, *t_family, *suite.same_batch()]))
    for tag in [f"{place}/{name}" for name in DIAGNOSTICS for place in ("diagnostics", "probe")]:
        row = {"metric": tag, "why": ""}
        for key, configs, level in (
            ("N", n_family, "num_envs"),
            ("T", t_family, "num_steps"),
            ("fixed", everything, "num_envs"),
        ):
            games = [game for game in suite.games if all(suite.late(c, game, tag).size for c in configs)]
            groups = [[suite.late(config, game, tag) for config in configs] for game in games]
            batches = [c.batch for c in configs] if key == "fixed" else None
            row[key] = kendall([c[level] for c in configs], groups, batches, min(suite.reps, 1000), suite.seed)
            row["why"] = row["why"] or Claims.why(groups)
        if any(suite.late(base, game, tag).size for game in suite.games):
            rows.append(row)
    return rows


# ---- drawing ---------------------------------------------------------------------------------------------------------
COLUMN, PAGE = 3.25, 6.75  # widths in inches of a column and of a page (ICML)
BLUES, ORANGES = ("#7CC4EE", "#0B3C6F"), ("#F2B134", "#8C2D04")  # of N and of T, light to dark: safe for colour-blind
DASH = (0, (4, 1.5))
N_LINE, T_LINE = dict(color=BLUES[1], ls="-", label="N"), dict(color=ORANGES[1], ls=DASH, label="T")
X_LABELS = {"steps": "environment steps", "gradient_steps": "gradient steps", "hours": "wall-clock hours"}
RETURNS = [(RETURN, "return")]
DYNAMICS = [(f"diagnostics/{name}", DIAGNOSTICS[name][0]) for name in list(DIAGNOSTICS)[:4]]
POLICY = [(f"diagnostics/{name}", DIAGNOSTICS[name][0]) for name in list(DIAGNOSTICS)[4:]]
plt.rcParams.update(
    {
        "font.size": 8,
        "axes.titlesize": 8,
        "axes.labelsize": 8,
        "legend.fontsize": 7,
        "xtick.labelsize": 7,
        "ytick.labelsize": 7,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.linewidth": 0.6,
        "xtick.major.width": 0.6,
        "ytick.major.width": 0.6,
        "xtick.major.size": 2.5,
        "ytick.major.size": 2.5,
        "lines.linewidth": 1.2,
        "lines.markersize": 3.5,
        "legend.frameon": False,
        "legend.handlelength": 1.8,
        "legend.columnspacing": 1.2,
        "legend.handletextpad": 0.5,
        "figure.constrained_layout.use": True,
        "savefig.dpi": 200,
        "pdf.fonttype": 42,
        "axes.grid": True,
        "grid.color": "#E6E6E6",
        "grid.linewidth": 0.4,
        "axes.axisbelow": True,
        "axes.formatter.useoffset": False,
    }
)


def ramp(ends, n):
    """n colours from light to dark."""
    first, last = (np.array(matplotlib.colors.to_rgb(color)) for color in ends)
    return [tuple(first + (last - first) * k) for k in (np.linspace(0, 1, n) if n > 1 else [0.55])]


def styles(suite, configs, by="shape"):
    """{config: Line2D properties}: the base's shape black, more environments blue, longer rollouts orange and dashed.

    by: an argument in place of the shape, its default black; or such a dictionary.
    """
    if isinstance(by, dict):
        return by
    base, found = suite.base, {}
    if by != "shape":
        levels = sorted({config[by] for config in configs})
        palette = dict(zip(levels, plt.get_cmap("viridis")(np.linspace(0.05, 0.9, len(levels)))))
        return {
            config: dict(
                color="black" if config[by] == base[by] else palette[config[by]],
                zorder=2 + (config[by] == base[by]),
                label=f"{NAMES.get(by, by)} {short(config[by])}",
            )
            for config in configs
        }
    for more, ends, dash in ((True, BLUES, "-"), (False, ORANGES, DASH)):  # more of N, or less of T
        keys = {}
        for config in configs:
            n, t = config["num_envs"] / base["num_envs"], config["num_steps"] / base["num_steps"]
            if (n, t) != (1, 1) and ((n, -t) > (1, -1)) is more:
                keys[config] = abs(np.log2(n)), abs(np.log2(t)), suite.shape(config)
        colors = dict(zip(sorted(set(keys.values())), ramp(ends, len(set(keys.values())))))
        found.update({config: dict(color=colors[key], ls=dash, label=key[2]) for config, key in keys.items()})
    label = f"{base['num_envs']}×{base['num_steps']} (base)"
    return {**{config: dict(color="black", zorder=3, label=label) for config in configs}, **found}


class Sheet:
    """One image and the tidy CSV behind it: a row is what is drawn at one x of one curve."""

    def __init__(self, suite, part, rows, columns, height, **options):
        self.suite, self.part, self.rows, self.labels = suite, part, [], {}
        self.axis = "step" if suite.kind == "steps" else suite.kind
        size = PAGE if columns > 1 else COLUMN, height
        self.figure, self.axes = plt.subplots(rows, columns, figsize=size, squeeze=False, **options)

    def record(self, config, game, metric, x, value, low=None, high=None, seed=None, axis=None):
        frame = {
            "sweep": self.suite.sweep,
            "script": self.suite.script,
            "game": game,
            **dict(config.items),
            "seed": seed,
            axis or self.axis: x,
            "metric": metric,
            "value": value,
            "ci_low": low,
            "ci_high": high,
        }
        self.rows += [pd.DataFrame(frame, index=np.arange(np.size(x)))] if np.size(x) else []

    def curve(self, ax, config, game, metric, curve, style):
        """A line with its band; a lone point as a dot."""
        x, value, low, high = curve
        self.labels[style["label"]] = style
        if len(x):
            ax.plot(x, value, marker="o" if len(x) == 1 else None, **style)
            if np.isfinite(low).any():
                ax.fill_between(x, low, high, color=style["color"], alpha=0.2, lw=0, zorder=1)
            self.record(config, game, metric, x, value, low, high)

    def points(self, ax, x, estimates, style):
        """Estimates (value, low, high) against x, with error bars where there is a CI."""
        if len(x):
            value, low, high = np.array(estimates).T
            if style.get("label"):
                self.labels[style["label"]] = {**style, "marker": "o"}
            bars = np.nan_to_num(np.stack([value - low, high - value])).clip(0)
            ax.errorbar(x, value, bars, marker="o", capsize=2, elinewidth=0.8, **style)

    def finals(self, ax, configs, x, style):
        """Final IQM of those of the configurations that have one."""
        suite, shown = self.suite, []
        for config, where in zip(configs, x):
            if config in suite.scored and suite.common:
                shown.append((where, *suite.final_iqm(config)))
                self.record(config, "all", "final IQM", *shown[-1], axis="x")
        self.points(ax, [row[0] for row in shown], [row[1:] for row in shown], style)

    def dress(self, ax, labelled=True):
        """The axes of curves."""
        if self.suite.kind == "gradient_steps" and ax.lines:
            ax.set_xscale("log")
        elif self.suite.kind == "steps":
            end = self.suite.budget
            ax.set_xlim(0, end * 1.03)
            ax.set_xticks([0, end / 2, end], ["0", short(end / 2), short(end)])
        else:
            ax.xaxis.set_major_locator(MaxNLocator(3))
        text = FuncFormatter(lambda y, _: (short(y) if abs(y) >= 10000 else f"{y:g}").replace("-", "−"))
        ax.yaxis.set_major_formatter(text)
        ax.set_xlabel(X_LABELS[self.suite.kind] if labelled else "")
        self.end(ax, "no game has\nended yet")

    def end(self, ax, nothing):
        """Few ticks, and a word in a panel that has nothing to show."""
        ax.yaxis.set_major_locator(MaxNLocator(4))
        if not ax.lines and not ax.collections:
            ax.text(0.5, 0.5, nothing, transform=ax.transAxes, ha="center", va="center", color="#777777", fontsize=7)
            ax.set_yticks([])

    def save(self, out, name):
        handles = [plt.Line2D([], [], **style) for style in self.labels.values()]
        if len(handles) > 1:
            columns = min(len(handles), int(self.figure.get_figwidth() / 1.05))
            self.figure.legend(handles=handles, loc="outside lower center", ncols=columns)
        self.figure.savefig(out / f"{name}.png")
        self.figure.set_layout_engine("none")  # it stays as it has been laid out
        self.figure.savefig(out / f"{name}.pdf")
        plt.close(self.figure)
        first = ["sweep", "script", "game", *self.suite.names, "seed", self.axis]
        first += ["metric", "value", "ci_low", "ci_high"]
        table = pd.concat([frame.dropna(axis=1, how="all") for frame in self.rows]) if self.rows else pd.DataFrame()
        table.reindex(columns=[*first, *sorted(set(table) - set(first))]).to_csv(out / f"{name}.csv", index=False)


def ticks(ax, values, base=2):
    """Marks values on a logarithmic x-axis, each second of many."""
    values = sorted(set(values))
    values = values if len(values) <= 6 else values[::2]
    ax.set_xscale("log", base=base)
    ax.set_xticks(values, [short(value) for value in values])
    ax.xaxis.set_minor_locator(NullLocator())


def curve_panels(suite, panels, finals=(), part=""):
    """IQM curves in panels (title, configs, by) that share y, then final IQM in panels (xlabel, scale, lines).

    A line is (configs, x, style); the scale `log`, `free` (log without marks) or `each` (x as equally spaced marks).
    The CSV also has every run's own curve and final score.
    """
    n = len(panels)
    sheet = Sheet(suite, part, 1, n + len(finals), 2.5)
    top = sheet.axes[0]
    for ax, (title, configs, by) in zip(top, panels):
        if ax is not top[0]:
            ax.sharey(top[0])
        style = styles(suite, configs, by)
        for config in configs:
            sheet.curve(ax, config, "all", "IQM", suite.aggregate(config, suite.kind), style[config])
        ax.set_title(title)
        sheet.dress(ax)
    human = "" if suite.script in ("ppo_procgen", "ppo_isaacgym") else "human-normalised "
    top[0].set_ylabel(f"{human}IQM")
    for ax, (xlabel, scale, lines) in zip(top[n:], finals):
        marks = sorted({value for _, x, _ in lines for value in x})
        for configs, x, style in lines:
            sheet.finals(ax, configs, [marks.index(value) for value in x] if scale == "each" else x, style)
        if scale == "each":
            ax.set_xticks(range(len(marks)), [short(mark) for mark in marks])
        elif scale == "log":
            ticks(ax, marks)
        elif ax.lines:
            ax.set_xscale("log")
        ax.set(xlabel=xlabel, ylabel=f"final {human}IQM" if not n else "final IQM")
        sheet.end(ax, "no final\nscores yet")
    for (config, game, seed), run in suite.runs.items():
        grid = suite.grid([run], RETURN)
        values = suite.curves([run], RETURN, grid)[:, 0]
        keep = np.isfinite(values)
        sheet.record(config, game, "episodic_return", grid[keep], values[keep], seed=seed)
        if run.finished:
            sheet.record(config, game, "final episodic_return", run.target, run.final, seed=seed, axis="step")
            if game in suite.unit:
                score = (run.final - suite.zero[game]) / suite.unit[game]
                sheet.record(config, game, "final score", run.target, score, seed=seed, axis="step")
    return sheet


def game_grid(suite, part, configs, metrics, by="shape"):
    """A row a game, a column a metric; or, of one metric, games side by side: mean over seeds with its 95 % CI.

    Runs that ended early are thin lines to a cross, unless they are all there is.
    """
    games = suite.games
    metrics = [
        (tag, label) for tag, label in metrics if tag == RETURN or any(tag in run.curves for run in suite.runs.values())
    ]
    flat = len(metrics) == 1
    columns = len(metrics) if not flat else len(games) if len(games) < 5 else 4 if len(games) in (7, 8) else 5
    rows = -(-len(games) // columns) if flat else len(games)
    sheet = Sheet(suite, part, rows, columns, 0.6 + rows * (1.25 if rows > 2 else 1.5), sharex=True)
    style = styles(suite, configs, by)
    for i, ax in enumerate(sheet.axes.flat):
        row, column = divmod(i, columns)
        if flat and i >= len(games):
            ax.set_axis_off()
            continue
        game, (tag, label) = (games[i], metrics[0]) if flat else (games[row], metrics[column])
        for config in configs:
            sheet.curve(ax, config, game, tag, suite.mean_curve(config, game, tag), style[config])
            for run in suite.of(config, game):
                if run.end and run not in suite.drawn(config, game):
                    x, y = run.curve(tag, suite.kind)
                    ax.plot(x, y, lw=0.6, alpha=0.6, color=style[config]["color"])
                    ax.plot(x[-1:], y[-1:], "x", ms=3, color=style[config]["color"])
        ax.set_title(game if flat else label if row == 0 else "")
        ax.set_ylabel("" if column else label if flat else game)
        lowest = i + columns >= (len(games) if flat else rows * columns)
        sheet.dress(ax, lowest)
        ax.xaxis.label.set_fontsize(7)
        ax.tick_params(labelbottom=lowest)
    sheet.figure.align_ylabels()
    return sheet


def diagnostics_panels(suite):
    """Each diagnostic against the factor of N and of T, over the base's in the same game: native above, probe below.

    Means over games; the line of T has the same batches and gradient steps as that of N.
    """
    names = [name for name in DIAGNOSTICS if any(f"diagnostics/{name}" in run.curves for run in suite.runs.values())]
    n_family = suite.family("num_envs")
    n_family, label = (n_family, "N × factor") if len(n_family) > 1 else (suite.same_batch(), "N × factor at one batch")
    families = [
        (configs, arg, {**line, "label": text})
        for configs, arg, line, text in (
            (n_family, "num_envs", N_LINE, label),
            (suite.family("num_steps"), "num_steps", T_LINE, "T × factor"),
        )
        if len(configs) > 1
    ]
    if not names or not families:
        return None
    sheet = Sheet(suite, "diagnostics", 2, len(names), 3.2, sharex=True, sharey="col")
    for (row, place), (column, name) in [(r, c) for r in enumerate(("diagnostics", "probe")) for c in enumerate(names)]:
        ax, tag = sheet.axes[row][column], f"{place}/{name}"
        for configs, arg, style in families:
            games = [
                game
                for game in suite.games
                if all(suite.late(c, game, tag).size for c in configs) and suite.late(suite.base, game, tag).any()
            ]  # nothing is a multiple of 0
            unit = {game: abs(suite.late(suite.base, game, tag).mean()) for game in games}
            x, shown = [config[arg] / suite.base[arg] for config in configs] if games else [], []
            for config, factor in zip(configs, x):
                sample = [suite.late(config, game, tag) / unit[game] for game in games]
                shown.append([float(y[0]) for y in interval(lambda s: np.array([mean(s)]), [sample], 500, suite.seed)])
                sheet.record(config, "all", f"{tag} over the base's", factor, *shown[-1], axis="factor")
            sheet.points(ax, x, shown, style)
        sheet.end(ax, "0 at\nthe base")
        if ax.lines:
            ax.plot(1, 1, "o", color="black", zorder=4)
            ax.axhline(1, color="black", lw=0.6, ls=":", zorder=1)
        factors = sorted({config[arg] / suite.base[arg] for configs, arg, _ in families for config in configs})
        ticks(ax, factors if len(factors) < 4 else factors[:: -(-len(factors) // 3)])
        ax.set_title(DIAGNOSTICS[name][0].replace(" (%)", "").replace(" ", "\n") if row == 0 else "")
        ax.set_xlabel("factor" if row else "")
        ax.set_ylabel("" if column else ("native batch" if row == 0 else "probe") + "\n(base = 1)")
    return sheet


# ---- the figures: each takes a suite and its empty table of claims, and yields sheets --------------------------------
def more_environments(suite):
    return "more environments", suite.family("num_envs"), "shape"


def longer_rollouts(suite):
    return "longer rollouts", suite.family("num_steps"), "shape"


def one_batch(suite):
    return "one batch", suite.same_batch(), "shape"


def all_shapes(suite):
    return list(dict.fromkeys([*suite.family("num_envs"), *suite.family("num_steps")]))


def against_factor(suite):
    """Final IQM against the factor by which N or T is scaled."""
    lines = [
        (suite.family(arg), [config[arg] / suite.base[arg] for config in suite.family(arg)], line)
        for arg, line in (("num_envs", N_LINE), ("num_steps", T_LINE))
        if len(suite.family(arg)) > 1
    ]
    return [("factor of N or T" if len(lines) > 1 else "factor", "log", lines)] if lines else []


def n_against_t(suite, claims, side="more"):
    """P1's comparisons of the base, N-scaling and T-scaling, over all factors, then factor by factor."""
    n, t = suite.scaled("num_envs"), suite.scaled("num_steps")
    both = sorted(set(n) & set(t))

    def over(factors):
        return "mean over k = " + " ".join(f"{k:g}" for k in factors)

    if t:
        claims.compare(
            "N-scaling beats T-scaling",
            [n[k] for k in both],
            [t[k] for k in both],
            f"IQM(N×k) - IQM(T×k), {over(both)}",
        )
    for k in both if len(both) > 1 else []:
        claims.compare(f"  N×{k:g} beats T×{k:g}", [n[k]], [t[k]], f"IQM(N×{k:g}) - IQM(T×{k:g})")
    words = "beats the base" if side == "more" else "gains little over the base"
    for letter, family in (("N", n), ("T", t)):
        if family:
            claims.compare(
                f"{letter}-scaling {words}",
                list(family.values()),
                [suite.base] * len(family),
                f"IQM({letter}×k) - IQM(base), {over(family)}",
                side,
            )
    claims.diagnostics()


def fixed_budget(suite, claims):
    shapes = suite.same_batch()
    most = shapes[-1]
    claims.compare(
        f"{suite.label(most)} beats {suite.label(suite.base)}",
        [most] if most != suite.base else [],
        [suite.base],
        "IQM(most environments) - IQM(base)",
    )
    claims.diagnostics()
    line = shapes, [config["num_envs"] for config in shapes], dict(color="black", ls="-")
    yield curve_panels(suite, [("", shapes, "shape")], [("N at one batch", "log", [line])] if len(shapes) > 2 else [])
    yield game_grid(suite, "games", shapes, RETURNS + DYNAMICS)
    yield diagnostics_panels(suite)


def scaling_data(suite, claims, side="more"):
    n_against_t(suite, claims, side)
    yield curve_panels(suite, [more_environments(suite), longer_rollouts(suite)], against_factor(suite))
    yield game_grid(suite, "games", all_shapes(suite), RETURNS + DYNAMICS)
    if suite.script == "ppo_atari_envpool":  # Fig. 4
        yield game_grid(suite, "policy", all_shapes(suite), RETURNS + POLICY)
    yield diagnostics_panels(suite)


def pqn(suite, claims):
    yield from scaling_data(suite, claims, "little")


def isaacgym(suite, claims):
    shapes = suite.same_batch()
    if len(shapes) > 1:
        claims.compare(
            f"many environments win at one batch: {suite.label(shapes[-1])} beats {suite.label(shapes[0])}",
            shapes[-1:],
            shapes[:1],
            "IQM(most environments) - IQM(longest rollouts)",
        )
    n_against_t(suite, claims)
    yield curve_panels(suite, [one_batch(suite), more_environments(suite)], against_factor(suite))
    yield game_grid(suite, "fixed", shapes, RETURNS)
    yield game_grid(suite, "games", suite.family("num_envs"), RETURNS + DYNAMICS)
    yield diagnostics_panels(suite)


def exploration(suite, claims):
    n_against_t(suite, claims)
    shapes = all_shapes(suite)
    yield curve_panels(suite, [("", shapes, "shape")], against_factor(suite))
    if suite.script == "ppo_rnd_envpool":
        yield game_grid(suite, "games", shapes, RETURNS)
        yield game_grid(suite, "dynamics", shapes, [("charts/intrinsic_reward", "intrinsic reward"), *DYNAMICS])
    else:
        yield game_grid(suite, "games", shapes, RETURNS + DYNAMICS)
    yield diagnostics_panels(suite)


def coverage(suite, claims):
    yield curve_panels(suite, [one_batch(suite), more_environments(suite)], part="returns")
    yield game_grid(suite, "returns_games", suite.configs, RETURNS)


def num_envs_trend(suite, claims):
    family, base = suite.family("num_envs"), suite.base
    text = "the final score rises with N (the reviewers' question: P1 claims no trend)"
    groups = [[suite.finals(config, game) for config in family] for game in suite.common]
    complete = suite.common and set(family) <= set(suite.scored)
    estimate = (
        kendall([config["num_envs"] for config in family], groups, None, min(suite.reps, 1000), suite.seed)
        if complete
        else (np.nan,) * 3
    )
    claims.add(text, "Kendall's τ with N", estimate, "more", why=claims.why(groups) if complete else NO_FINALS)
    claims.diagnostics()
    lines = [
        (family, [config["num_envs"] for config in family], {**N_LINE, "label": None}),
        ([base], [base["num_envs"]], dict(color="black", zorder=4)),
    ]
    yield curve_panels(suite, [], [(f"N (T = {base['num_steps']})", "log", lines)])
    yield curve_panels(suite, [("", family, "shape")], part="curves")
    yield game_grid(suite, "games", family, RETURNS + DYNAMICS)
    yield diagnostics_panels(suite)


def data_reuse(suite, claims):
    base, name = suite.base, "update_epochs"
    epochs = [config[name] for config in suite.family(name)]
    n, t = (list(suite.scaled(arg).values())[:1] for arg in ("num_envs", "num_steps"))
    for e in [e for e in epochs if e > base[name]]:
        worse, n_e, t_e = ([config.but(**{name: e}) for config in configs] for configs in ([base], n, t))
        claims.compare(
            f"{e} epochs cost performance at the base",
            worse,
            [base],
            f"IQM(base, {e}) - IQM(base, {base[name]})",
            "less",
        )
        claims.compare(
            f"doubling N undoes the loss at {e} epochs",
            n_e,
            [base],
            f"IQM(N×2, {e}) - IQM(base, {base[name]}) > -{MARGIN:.0%} of the base",
            "not less",
        )
        claims.compare(f"  N×2 beats the base at {e} epochs", n_e, worse, f"IQM(N×2, {e}) - IQM(base, {e})")
        claims.compare(f"  N×2 beats T×2 at {e} epochs", n_e, t_e, f"IQM(N×2, {e}) - IQM(T×2, {e})")
    style = styles(suite, [base, *n, *t])
    lines = [
        (family, [config[name] for config in family], style[at]) for at in style for family in [suite.family(name, at)]
    ]
    yield curve_panels(
        suite,
        [(f"{e} epochs", [config for config in suite.configs if config[name] == e], "shape") for e in epochs],
        [("epochs", "log", lines)],
    )
    for at in style:
        part = "games" if at == base else f"games_{suite.shape(at).replace('×', 'x')}"
        yield game_grid(suite, part, suite.family(name, at), RETURNS, name)


def decoupled(suite, claims):
    name, n = "shared_encoder", list(suite.scaled("num_envs").values())[:1]
    base, n = suite.base.but(**{name: True}), [config.but(**{name: True}) for config in n]
    apart, n_apart = base.but(**{name: False}), [config.but(**{name: False}) for config in n]
    claims.compare("separate encoders collapse at the base", [apart], [base], "IQM(separate) - IQM(shared)", "less")
    claims.compare("separate encoders recover at N × 2", n_apart, [apart], "IQM(separate, N×2) - IQM(separate, base)")
    claims.compare(
        "  at N × 2 separate encoders are not below shared ones",
        n_apart,
        n,
        f"IQM(separate, N×2) - IQM(shared, N×2) > -{MARGIN:.0%} of the base",
        "not less",
    )
    claims.gain(
        "separate encoders gain more from N × 2 than shared ones",
        [*n_apart, apart],
        [*n, base],
        "gain(separate) - gain(shared)",
        "more",
    )
    sides = {
        title: [config for config in suite.configs if config[name] is shared]
        for title, shared in (("shared encoder", True), ("separate encoders", False))
    }
    yield curve_panels(suite, [(title, configs, "shape") for title, configs in sides.items()])
    yield game_grid(suite, "games", sides["separate encoders"], RETURNS)
    yield game_grid(suite, "games_shared", sides["shared encoder"], RETURNS)


def sensitivity(name, xlabel):
    """A figure of final IQM and curves against an argument that is said to change little."""

    def draw(suite, claims):
        default = suite.base[name]
        families = {
            at: suite.family(name, at)
            for at in dict.fromkeys(config.but(**{name: default}) for config in suite.configs)
        }
        for at, family in families.items():
            for config in [config for config in family if config[name] != default]:
                shape, value = f"{at['num_envs']}×{at['num_steps']}", short(config[name])
                claims.compare(
                    f"{NAMES[name]} {value} changes little at {shape}",
                    [config],
                    [at],
                    f"IQM({value}) - IQM({short(default)}) inside ±{MARGIN:.0%} of the base",
                    "little",
                )
        if claims:
            words = {claim.verdict for claim in claims}
            claims.add(
                f"{NAMES[name]} changes little, all of these together",
                "the largest; the span of all CIs",
                (
                    max((claim.value for claim in claims), key=abs),
                    min(claim.low for claim in claims),
                    max(claim.high for claim in claims),
                ),
                "little",
                margin=claims.margin("little"),
                why=claims[0].why,
            )
            claims[-1].verdict = (
                "supported" if words == {"supported"} else "not supported" if "not supported" in words else "undecided"
            )
        for at in [at for at in families if at != suite.base]:
            for config in [config for config in suite.family(name) if config[name] != default]:
                text = f"the gain of {suite.shape(at)} is the same at {NAMES[name]} {short(config[name])}"
                claims.gain(
                    text,
                    [at.but(**{name: config[name]}), config],
                    [at, suite.base],
                    f"gain({short(config[name])}) - gain({short(default)})",
                    "little",
                )
        style = styles(suite, list(families))
        lines = [
            (family, [config[name] for config in family], style[at] if len(families) > 1 else dict(color="black"))
            for at, family in families.items()
        ]
        yield curve_panels(
            suite,
            [(f"{at['num_envs']}×{at['num_steps']}", family, name) for at, family in families.items()],
            [(xlabel, "each", lines)],
        )
        for at, family in families.items():
            part = "games" if at == suite.base else f"games_{suite.shape(at).replace('×', 'x')}"
            yield game_grid(suite, part, family, RETURNS, name)

    return draw


WAYS = {
    "more minibatches": dict(color="#0072B2", ls="-"),
    "bigger minibatches": dict(color="#D55E00", ls=DASH),
    "bigger, lr × √c": dict(color="#009E73", ls=(0, (1, 1))),
}


def ways(suite):
    """{(c, way): configuration}: P3's three ways to spend a batch c times larger (OUTER_LOOP: c scales N, T stays)."""
    found, base = {}, suite.base
    for config in suite.configs:
        c = config["num_envs"] / base["num_envs"]
        count = [x.batch // x["minibatch_size"] for x in (config, base)]
        rate = config["learning_rate"] / base["learning_rate"]
        if c == 1 or config["num_steps"] != base["num_steps"]:
            continue
        if np.isclose(count[0] / count[1], c) and np.isclose(rate, 1, rtol=1e-3):
            found[c, "more minibatches"] = config
        elif count[0] == count[1] and np.isclose(rate, 1, rtol=1e-3):
            found[c, "bigger minibatches"] = config
        elif count[0] == count[1] and np.isclose(rate, c**0.5, rtol=1e-3):
            found[c, "bigger, lr × √c"] = config
    return found


def outer_loop(suite, claims):
    found, base = ways(suite), suite.base
    factors = sorted({c for c, _ in found})
    for one, other in (
        ("more minibatches", "bigger minibatches"),
        ("more minibatches", "bigger, lr × √c"),
        ("bigger, lr × √c", "bigger minibatches"),
    ):
        up = [c for c in factors if c > 1 and (c, one) in found and (c, other) in found]
        claims.compare(
            f"P3: {one} beats {other}",
            [found[c, one] for c in up],
            [found[c, other] for c in up],
            f"IQM - IQM, mean over c = {' '.join(f'{c:g}' for c in up)}",
        )
    style = {
        base: dict(color="black", label="base (c = 1)", zorder=3),
        **{config: {**WAYS[way], "label": way} for (_, way), config in found.items()},
    }
    panels = [
        (f"c = {c:g}", [base, *(config for (its, _), config in found.items() if its == c)], style) for c in factors
    ] or [("", [base], style)]
    lines = []
    for way, line in WAYS.items():
        configs = {1.0: base, **{c: config for (c, its), config in found.items() if its == way}}
        if len(configs) > 1:
            lines.append(([configs[c] for c in sorted(configs)], sorted(configs), {**line, "label": way}))
    yield curve_panels(suite, panels, [("factor c of N", "log", lines)] if lines else [])
    if suite.kind == "steps":
        suite.kind = "hours"
        yield curve_panels(suite, panels, [("factor c of N", "log", lines)] if lines else [], part="hours")
        suite.kind = "steps"


def step_size(suite, claims):
    def budget(config):
        return config["total_timesteps"]

    def ratios(config):
        """log10 DDR (samples per unit of KL) of each game's runs."""
        return [np.log10(np.maximum(suite.late(config, game, "outer/ddr"), 1e-9)) for game in suite.common]

    def best(configs, samples):
        """log10 DDR of the configuration with the highest IQM; samples: the scores of each, then their DDRs."""
        scores = np.stack([iqm(sample) for sample in samples[: len(configs)]])
        logs = np.stack([mean(sample) for sample in samples[len(configs) :]])
        return np.take_along_axis(logs, scores.argmax(0)[None], 0)[0]

    usable = [config for config in suite.scored if suite.common and all(x.size for x in ratios(config))]
    budgets = sorted({budget(config) for config in suite.scored})
    colors = dict(zip(budgets, [*ramp(BLUES, len(budgets) - 1), "black"] if len(budgets) > 1 else ["black"]))
    at = {b: [config for config in usable if budget(config) == b] for b in budgets}
    ends = [b for b in budgets if len(at[b]) > 2]
    estimate, why = (np.nan,) * 3, NO_FINALS
    if len(ends) > 1:
        low, high = at[ends[0]], at[ends[-1]]
        samples = [x for side in (low, high) for x in [*map(suite.sample, side), *map(ratios, side)]]
        estimate = [
            float(x)
            for x in verdict_interval(
                lambda *s: best(high, s[2 * len(low) :]) - best(low, s[: 2 * len(low)]),
                samples,
                min(suite.reps, 1000),
                suite.seed,
            )
        ]
        why = claims.why(samples)
    claims.add(
        "P3: the best DDR (samples per unit of KL) rises with the budget",
        "log10 of the best DDR, at the largest - at the smallest budget",
        estimate,
        "more",
        why=why,
    )
    lines = {"outer/ddr": [], "clip_coef": [], "update_epochs": []}
    for b in budgets:
        style = dict(color=colors[b], label=f"{short(b)} steps")
        x = [float(10 ** mean(ratios(config))) for config in at[b]]
        lines["outer/ddr"].append((at[b], x, {**style, "ls": "none"}))
        for name in ("clip_coef", "update_epochs"):  # where it was varied: epochs at one clip range, not at each
            families = [suite.family(name, config) for config in suite.configs if budget(config) == b]
            family = max(families, key=len)
            lines[name].append((family, [config[name] for config in family], style))
    yield curve_panels(
        suite,
        [],
        [
            ("DDR: samples per unit of KL", "free", lines["outer/ddr"]),
            ("clip coefficient", "log", lines["clip_coef"]),
            ("epochs", "log", lines["update_epochs"]),
        ],
    )


SWEEPS = {  # the paper's figure; what draws it
    "fixed_budget": ("P1, Fig. 1a", fixed_budget),
    "scaling_data": ("P1, Fig. 1b, 3, 4, 10, 17", scaling_data),
    "data_reuse": ("P1, Fig. 1c", data_reuse),
    "coverage": ("P1, Fig. 2 and 9: the returns of their runs; scripts/coverage.py draws the figures", coverage),
    "decoupled": ("P1, Fig. 5", decoupled),
    "learning_rate": ("P1, Fig. 11", sensitivity("learning_rate", "learning rate")),
    "gamma": ("P1, Fig. 12", sensitivity("gamma", "discount factor γ")),
    "pqn": ("P1, Fig. 6, 13, 14", pqn),
    "procgen": ("P1, Fig. 8", scaling_data),
    "isaacgym": ("P1, Fig. 7 and 18", isaacgym),
    "hard_exploration": ("P1, Fig. 15", exploration),
    "rnd": ("P1, Fig. 16", exploration),
    "num_envs_trend": ("P1's reviewers", num_envs_trend),
    "outer_loop": ("P3, Fig. 9", outer_loop),
    "step_size": ("P3, Fig. 5 and 8", step_size),
}


# ---- tables ----------------------------------------------------------------------------------------------------------
def number(value):
    return "-" if not np.isfinite(value) else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def bounds(low, high):
    return f"[{number(low)}, {number(high)}]" if np.isfinite(low) else "no CI"


def table(header, rows):
    """Lines of columns as wide as their contents."""
    widths = [max(len(str(row[i])) for row in [header, *rows]) for i in range(len(header))]
    return ["  ".join(str(word).ljust(width) for word, width in zip(row, widths)).rstrip() for row in [header, *rows]]


def scores_table(suite):
    """Final aggregates of each configuration, with what it costs in updates."""
    weights = next((weights for weights in (ATARI_10, ATARI_5) if set(weights) <= set(suite.common)), None)
    header, rows = ["configuration", "runs", "IQM", "95 % CI", "median", "opt. gap"], []
    header += [f"57-game median (Atari-{len(weights)} regression), %"] if weights else []
    header += ["batch", "iterations", "gradient steps"]

    def aggregates(sample):
        extra = [median_57(sample, suite.common, weights)] if weights else []
        return np.array([iqm(sample), median(sample), optimality_gap(sample), *extra])

    for config in suite.configs:
        runs = [run for (its, _, _), run in suite.runs.items() if its == config]
        row = [
            suite.label(config) + (" (base)" if config == suite.base else ""),
            f"{sum(run.finished for run in runs)}/{len(runs)}",
        ]
        if config in suite.scored and suite.common:
            value, low, high = interval(aggregates, [suite.sample(config)], suite.reps, suite.seed)
            row += [number(value[0]), bounds(low[0], high[0]), number(value[1]), number(value[2])]
            row += [f"{number(value[3])} {bounds(low[3], high[3])}"] if weights else []
        else:
            row += ["-"] * (5 if weights else 4)
        run = runs[0]
        iterations = run.target / config.batch
        steps = run.x(np.array([run.target]), "gradient_steps")[0]
        rows.append([*row, f"{config.batch:,}", f"{iterations:,.0f}", f"{steps:,.0f}"])
    return table(header, rows)


def claims_table(claims):
    rows = []
    for claim in claims:
        p = (
            ""
            if not np.isfinite(claim.p[0])
            else f"{number(claim.p[0])}" + (f" {bounds(*claim.p[1:])}" if np.isfinite(claim.p[1]) else "")
        )
        ci = bounds(claim.low, claim.high) if np.isfinite(claim.low) else f"no CI: {claim.why}"
        rows.append([claim.text, number(claim.value), ci, p, claim.verdict, claim.what])
    return table(["claim", "value", "95 % CI", "P(improvement)", "verdict", "value is"], rows)


def report(suite, claims):
    """The lines of a suite: what was read, what is missing, the aggregates, the claims and the correlations."""
    reference, runs = SWEEPS[suite.sweep][0], suite.runs.values()
    finished = sum(run.finished for run in runs)
    yield f"== {suite.sweep}: {reference}; {suite.script}.py"
    yield (
        f"{len(runs)} runs, {finished} at their budget: {len(suite.configs)} configurations, {len(suite.games)} "
        f"games, seeds {' '.join(map(str, suite.seeds))}; base {suite.label(suite.base)}"
    )
    yield f"judged at {suite.budget:,.0f} environment steps: the order of configurations depends on the budget"
    yield f"scores: {suite.scale}; final: the mean of the last 100 games"
    complete = len({len(x) for config in suite.scored for x in suite.sample(config)}) < 2
    yield (
        f"aggregates over {len(suite.common)} games: {', '.join(suite.common) or 'none'}; CIs: 95 % percentile "
        f"bootstrap over seeds within games, {suite.reps} resamples, "
        + (
            "rliable's"
            if complete
            else "on ragged lists (unequal seeds: each game has the same weight; rliable takes complete matrices only)"
        )
        + f"; none below {MIN_SEEDS} seeds a game; of claims and correlations n - 1 of n seeds are drawn (Rao, Wu)"
    )
    yield from (f"! {note}" for note in suite.notes[:20])
    if len(suite.notes) > 20:
        yield f"! … and {len(suite.notes) - 20} more of this kind"
    yield ""
    yield from scores_table(suite)
    if claims:
        yield ""
        yield from claims_table(claims)
    rows = [row for row in correlations(suite) if np.isfinite([row[key][0] for key in ("N", "T", "fixed")]).any()]
    if rows:

        def cell(estimate):
            return "-" if not np.isfinite(estimate[0]) else f"{estimate[0]:+.2f} {bounds(*estimate[1:])}"

        yield ""
        yield (
            "rank correlation (Kendall's τ, mean over games) of each diagnostic, its mean over the second half of "
            "a run. T-scaling has the batches and gradient steps of N-scaling: what N does beyond it is N's"
        )
        yield from table(
            ["diagnostic", "with N", "with T", "with N at a fixed batch"],
            [[row["metric"], *(cell(row[key]) for key in ("N", "T", "fixed"))] for row in rows],
        )
    yield ""


# ---- main ------------------------------------------------------------------------------------------------------------
def draw(sweep, runs, bad, options):
    """Draws one sweep's runs. Returns its claims."""
    scripts = Counter(run.script for run in runs)
    lines, rows, suffix = [f"! {text}" for text in bad], [], "" if options.x == "steps" else f"_{options.x}"
    for i, (script, _) in enumerate(scripts.most_common()):
        suite = Suite(
            sweep,
            script,
            [run for run in runs if run.script == script],
            options.base,
            options.reps,
            options.seed,
            options.x,
        )
        claims = Claims(suite)
        stem = sweep + (f"_{script.split('_')[1]}" if i else "")
        for sheet in SWEEPS[sweep][1](suite, claims):
            if sheet:  # there may be nothing to compare
                sheet.save(options.out, stem + (f"_{sheet.part}" if sheet.part else "") + suffix)
        lines += report(suite, claims)
        rows += claims
    text = "\n".join(lines)
    print(text)
    (options.out / f"{sweep}.txt").write_text(text + "\n")
    return [
        {
            "sweep": sweep,
            "script": c.script,
            "claim": c.text.strip(),
            "value": c.value,
            "ci_low": c.low,
            "ci_high": c.high,
            "p_improvement": c.p[0],
            "p_ci_low": c.p[1],
            "p_ci_high": c.p[2],
            "verdict": c.verdict,
            "budget": c.budget,
            "margin": c.margin,
            "no_ci": c.why,
            "value_is": c.what,
        }
        for c in rows
    ]


def shape_type(text):
    """The type of --base."""
    parts = text.split("x")
    if len(parts) != 2 or not all(part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"{text}: N x T as 8x128 is accepted")
    return tuple(map(int, parts))


def main(argv):
    parser = Parser(description=__doc__.split("\n")[0], allow_abbrev=False)
    add = parser.add_argument
    add("sweep", choices=[*SWEEPS, "all"], help="the sweep, or all that have runs below --runs")
    add("--runs", type=Path, help="the directory of its runs (default runs/<sweep>; for all: runs)")
    add("--out", type=Path, default=Path("figures"), help="the directory for what is drawn (default figures)")
    add("--x", choices=list(X_LABELS), default="steps", help="the x-axis of curves (default steps)")
    add("--base", type=shape_type, metavar="NxT", help="the base (default: what has most of the script's defaults)")
    add("--reps", type=positive, default=2000, help="bootstrap resamples (default 2000; a curve's band: at most 500)")
    add("--seed", type=int, default=0, help="the seed of the bootstrap (default 0)")
    add("--cache", type=Path, help="the file that keeps what was read (default .figures_cache.npz in --runs, or --out)")
    options = parser.parse_args(argv)
    runs_dir = options.runs or (Path("runs") if options.sweep == "all" else Path("runs") / options.sweep)
    if not runs_dir.is_dir():
        fail(f"--runs {runs_dir}: there is no such directory; the directory of a sweep's runs is accepted")
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"--out {options.out} ({error.strerror}): a directory that can be written to is accepted")
    name = ".figures_cache.npz"
    cache = Cache([options.cache] if options.cache else [runs_dir / name, options.out / name])
    folders = (
        {options.sweep: runs_dir}
        if options.sweep != "all"
        else {sweep: runs_dir / sweep for sweep in SWEEPS if (runs_dir / sweep).is_dir()}
    )
    found = {sweep: read_runs(folder, cache) for sweep, folder in folders.items()}
    cache.save()
    absent = [sweep for sweep in SWEEPS if not found.get(sweep, ([],))[0]] if options.sweep == "all" else []
    found = {sweep: content for sweep, content in found.items() if content[0]}
    if not found:
        fail(f"--runs {runs_dir}: no manifest.json of a run below it; the directory of a sweep's runs is accepted")
    rows = []
    for sweep, (runs, bad) in found.items():
        rows += draw(sweep, runs, bad, options)
        if sweep == "coverage" and (ROOT / "scripts" / "coverage.py").exists():
            command = [sys.executable, ROOT / "scripts" / "coverage.py", "--runs", folders[sweep], "--out", options.out]
            if subprocess.run(command).returncode:
                print("! scripts/coverage.py failed: coverage.png shows returns only")
                for path in options.out.glob("coverage_returns.*"):
                    shutil.copy(path, path.with_name(f"coverage{path.suffix}"))
    if options.sweep != "coverage":  # whose claims are scripts/coverage.py's
        pd.DataFrame(rows).to_csv(options.out / f"{options.sweep}_claims.csv", index=False)
    if absent:
        print("no runs of:", " ".join(absent))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
