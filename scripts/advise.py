"""How many environments, and how long a rollout, for my task? Tries them by successive halving, and says what won.

    python scripts/advise.py --env-id CartPole-v1 --steps 2e5 --dry-run           # the plan and its cost
    python scripts/advise.py --env-id CartPole-v1 --steps 2e5 --workers 2         # the same line again resumes it
    python scripts/advise.py --env-id CartPole-v1 --steps 2e5 --gamma 0.95       # arguments of the script for all runs

A candidate is (N, T, minibatch size, learning rate): seven shapes of the script's default batch, three rates, two
minibatch sizes, unless --shapes, --rates or --minibatch-sizes give others. All candidates make short runs; the best go
on to longer ones (successive halving, Jamieson and Talwalkar 2016, arXiv 1502.07943), and the last rung has --steps:

    candidates of rung r + 1 = max(2, candidates of rung r // eta),    steps of rung r = steps / eta^(last rung - r)

eta is the smallest whole number with which all runs together make at most --budget of the steps of the exhaustive grid
(shapes x rates x --seeds runs of --steps). The learning rate is annealed over each run, so a short run cannot be
extended: each rung begins anew, with seeds of its own, and every step of it is counted. Final games are not counted.

A score is the mean return of --eval-episodes games of the final network. A candidate's is the mean over its seeds; a
diverged run has the worst score of its rung. The best is told apart from the others of the last rung by the 95 %
bootstrap interval of the difference (n - 1 of n seeds, Holm's correction). If it cannot be, the answer is "undecided",
and the command is that of the fastest of those that are level. Early rungs favour what learns fast at first: what wins
only at --steps can be lost there. Hours are those of one run, beside the other --workers; --hours leaves out candidates
whose run of --steps would take longer at their measured speed.

The runs are carried out as scripts/launch.py does it: finished ones are skipped, interrupted ones resume. Writes
advise_GAME.png, .csv (a row for each candidate and rung) and .txt, which it also prints.
"""

from launching.root import ROOT

import copy
import dataclasses
import hashlib
import importlib
import math
import re
import shlex
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Optional, Tuple

import numpy as np
import pandas as pd
from analysis import training_runs
from analysis.comparisons import RUNS_FOR_A_VERDICT
from analysis.estimates import ALPHA, Estimate, evidence, holm, interval, mean, p_values
from launching import options
from launching.jobs import check_before_start, claim, parse_flags, read_jobs
from launching.machines import this_machine
from launching.pool import Pool
from launching.price import estimate
from typing_extensions import Annotated

from support import catalog, worlds
from support.arguments import Count, Evaluation, Positive, Range, Seed, Shape, fail, parse, writable

LENGTHS, RATES = (256, 128, 64, 32, 16, 8, 4), (2.5e-4, 5e-4, 1e-3)  # T and learning rates of the default candidates
MIN_ITERATIONS = 8  # of the shortest runs: below that they say nothing
LARGEST_ETA = 64
STYLES = ("{:,}", "{:.2g}", "{}")  # of the numbers on the x-axes: steps, hours, N
NUM_LOGS = 20  # points of each run's curves
OURS = {  # arguments of a script that advise sets, or that would change what it compares
    *("num_envs", "num_steps", "minibatch_size", "num_minibatches", "learning_rate", "total_timesteps", "num_logs"),
    *("schedule", "scaling", "scale_from", "run_name", "num_seeds", "runs", "resume_from"),
}
TAGS = {"ddr": "outer/ddr", "noise_scale": "outer/grad_noise_scale", "game_steps": "charts/episodic_length"}


@dataclass
class Args:
    env_id: str  # the task: as of --env-id of the script that plays it
    steps: Annotated[float, Range(1, 1e15)]  # environment steps of the run that you want to make, such as 2e6
    hours: Optional[Positive] = None  # leaves out candidates whose run would take longer on this machine
    out: Path = Path("figures")  # the directory for the picture and the table
    runs_dir: Path = Path("runs")  # the directory that holds the run directories, below advise/
    workers: Optional[Annotated[int, Range(1, 10000)]] = None  # runs at a time; default: GPUs or cores
    budget: Annotated[float, Range(0.001, 1000)] = 0.25  # of the steps of the exhaustive grid, at most
    seeds: Annotated[int, Range(RUNS_FOR_A_VERDICT, 1000)] = (
        5  # runs of each candidate in the last rung; half of it before
    )
    seed: Seed = 1  # the first of them: another one repeats the whole search
    shapes: Tuple[Shape, ...] = ()  # N x T of the candidates, such as 8x128 32x32
    rates: Tuple[Positive, ...] = RATES  # learning rates of the candidates
    minibatch_sizes: Tuple[Count, ...] = ()  # of the candidates; default: the script's, and a quarter of it
    eval_episodes: Evaluation = 20  # whole games that each final network plays; 0: the last 100 games of the training
    dry_run: bool = False  # prints the plan and ends


def parse_args(argv):
    """Returns checked Args, with `script`, `flags` and `candidates`; exits 2 with one line on bad input.

    `flags` are the words that are no arguments of this program: the script's own. Touches no file.
    """
    words, flags = split_flags(argv)
    args = parse(Args, words, __doc__)
    args.steps, args.flags = int(args.steps), flags
    if not re.fullmatch(r"[\w:./-]{1,150}", args.env_id, re.ASCII):
        fail(f"--env-id {args.env_id!r}: expected the name of a task")
    args.script = f"{catalog.script_of(args.env_id)}.py"
    if args.script == "ppo_envpool.py":
        worlds.check_env_id(args.env_id)
    args.candidates = candidates_of(args, worlds.default_arguments(str(ROOT / args.script), args.env_id))
    args.rungs = plan(args, len(args.candidates))
    if not args.rungs:
        refuse(args)
    if args.flags:
        check_flags(args)
    return args


def split_flags(argv):
    """(the words of this program's arguments, the words of the script's): each --flag with the words after it."""
    own = {field.name for field in dataclasses.fields(Args)} | {"help"}
    words, flags = [], []
    part = words
    for word in argv:
        if word.startswith("--"):
            name = word[2:].partition("=")[0].replace("-", "_")
            part = words if name.removeprefix("no_") in own else flags
        part.append(word)
    return words, flags


def check_flags(args):
    """Ends the program with one line if the script refuses the flags, or if they are what is searched over."""
    taken = sorted(OURS & parse_flags(args.flags).keys())
    if taken:
        fail(
            f"--{taken[0].replace('_', '-')} is set by the search: expected --steps, --shapes, --rates or no such flag"
        )
    module = importlib.import_module(Path(args.script).stem)
    for shape in {(one.num_envs, one.num_steps): one for one in args.candidates}.values():
        module.parse_args(shlex.split(command(args, shape, args.steps, args.seed))[2:])


def refuse(args):
    """Ends the program with one line that says which --steps, or which number of candidates, would do."""
    tried = copy.copy(args)
    while not plan(tried, len(args.candidates)) and tried.steps < 1e15:
        tried.steps = math.ceil(tried.steps * 1.1)
    fitting = [count for count in range(2, len(args.candidates)) if plan(args, count)]
    batch = max(candidate.batch_size for candidate in args.candidates)
    fail(
        f"--steps {args.steps:,} with --budget {args.budget:g} is too little for {len(args.candidates)} candidates of "
        f"{MIN_ITERATIONS} iterations of up to {batch:,} steps in each run: expected "
        + (f"--steps {tried.steps} or more, " if tried.steps < 1e15 else "")
        + (f"{fitting[-1]} candidates or fewer by --shapes, --rates or --minibatch-sizes, " if fitting else "")
        + "smaller --shapes or a larger --budget"
    )


# ---- candidates and rungs --------------------------------------------------------------------------------------------
class Candidate(NamedTuple):
    """What is searched over."""

    num_envs: int
    num_steps: int
    minibatch_size: int
    learning_rate: float

    @property
    def batch_size(self):
        return self.num_envs * self.num_steps

    def __str__(self):
        return f"{self.num_envs}x{self.num_steps} minibatch {self.minibatch_size} rate {self.learning_rate:g}"


class Rung(NamedTuple):
    """Runs of equal length."""

    steps: int
    count: int  # candidates, at most
    seeds: int


@dataclass
class Result:
    """What the runs of a candidate in a rung gave."""

    scores: np.ndarray  # (seeds,), NaN where a run has diverged; fewer if runs have failed
    hours: float = np.nan  # of one run, the mean
    steps: int = 0  # of one run
    measured: dict = field(default_factory=dict)  # {name of TAGS: mean over the runs' second halves}

    @property
    def mean(self):
        return float(self.scores.mean()) if len(self.scores) else -np.inf

    def hours_of(self, steps):
        """The hours of a run of so many steps at this speed."""
        return self.hours * steps / max(self.steps, 1)


def candidates_of(args, defaults):
    """The Candidates of the command line, or those of the defaults. Exits 2 with one line if there are not two."""
    batch = defaults["num_envs"] * defaults["num_steps"]
    shapes = [(batch // length, length) for length in LENGTHS if batch % length == 0]
    if args.shapes:
        shapes = [tuple(map(int, shape.split("x"))) for shape in args.shapes]
    args.shapes = sorted(set(shapes))
    args.rates = sorted(set(args.rates))
    usual = defaults.get("minibatch_size") or batch // defaults["num_minibatches"]
    sizes = args.minibatch_sizes or (usual, usual // 4 if usual >= 256 else usual * 4)
    args.minibatch_sizes = sorted(set(sizes))
    found = [
        Candidate(*shape, size, rate)
        for shape in args.shapes
        for size in args.minibatch_sizes
        for rate in args.rates
        if shape[0] * shape[1] % size == 0
    ]
    if len(found) < 2:
        fail(
            f"--minibatch-sizes {args.minibatch_sizes} x --shapes x --rates give {len(found)} candidates: expected two"
        )
    return found


def plan(args, count):
    """The Rungs within the budget, three or else two, with the smallest eta; [] if there are none."""
    few = max(2, -(-args.seeds // 2))
    allowed = args.budget * grid_steps(args)
    shortest = MIN_ITERATIONS * max(candidate.batch_size for candidate in args.candidates)
    for number in (3, 2):
        for eta in range(2, LARGEST_ETA + 1):
            rungs, left = [], count
            for place in range(number):
                last = place == number - 1
                rungs.append(Rung(args.steps // eta ** (number - 1 - place), left, args.seeds if last else few))
                left = max(2, left // eta)
            if rungs[0].steps >= shortest and sum(map(cost, rungs)) <= allowed:
                return rungs
    return []


def cost(rung):
    return rung.steps * rung.count * rung.seeds


def grid_steps(args):
    """The steps of the exhaustive grid."""
    return len(args.shapes) * len(args.rates) * args.seeds * args.steps


# ---- the search ------------------------------------------------------------------------------------------------------
def halve(candidates, rungs, play, allowed=lambda result: True):
    """Successive halving. Returns a list with {candidate: Result} of each rung, the best candidate first.

    play(candidates, place): the Results of the candidates in rung `place`, {candidate: Result}. allowed(result):
    whether a candidate may go on; if none may, all may.
    """
    found, left = [], list(candidates)
    for place, rung in enumerate(rungs):
        results = ranked(play(left[: rung.count], place))
        found.append(results)
        left = [candidate for candidate, result in results.items() if allowed(result)] or list(results)
    return found


def ranked(results):
    """The Results in the order of their means, the best first; a diverged run has the worst score of all."""
    scores = np.concatenate([result.scores for result in results.values()])
    worst = scores[np.isfinite(scores)].min() if np.isfinite(scores).any() else 0.0
    for result in results.values():
        result.scores = np.where(np.isfinite(result.scores), result.scores, worst)
    return dict(sorted(results.items(), key=lambda item: -item[1].mean))


def level_with_best(results):
    """{candidate: Estimate of best - candidate} of those in the last rung that cannot be told apart from the best."""
    (_, best), *others = results.items()
    if not others:
        return {}
    differences = [
        evidence(lambda one, other: mean(one) - mean(other), [[best.scores], [result.scores]])
        for _, result in others
        if len(result.scores)
    ]
    scored = [candidate for candidate, result in others if len(result.scores)]
    chances = holm([p_values(difference.draws, "more")[0] for difference in differences])
    found = zip(scored, differences, chances)
    return {candidate: difference.estimate for candidate, difference, chance in found if chance >= ALPHA}


def frontier(points):
    """The keys of the points (cost, score) that no other beats: with at most its cost and a higher score."""
    kept, best = [], -np.inf
    for key, (_, score) in sorted(points.items(), key=lambda item: (item[1][0], -item[1][1])):
        if score > best:
            kept.append(key)
            best = score
    return kept


# ---- runs ------------------------------------------------------------------------------------------------------------
def command(args, candidate, steps, seed=None):
    """The command of a run of a candidate, the recommended one without `seed`."""
    flags = {
        "env-id": args.env_id,
        "total-timesteps": steps,
        "num-envs": candidate.num_envs,
        "num-steps": candidate.num_steps,
        "minibatch-size": candidate.minibatch_size,
        "learning-rate": f"{candidate.learning_rate:g}",
    }
    script = args.script
    if seed is not None:
        task = f"{args.env_id.replace('/', '_')}__k{steps}"
        if args.flags:  # their runs are others
            task += "__" + hashlib.sha1(" ".join(args.flags).encode()).hexdigest()[:6]
        shape = f"n{candidate.num_envs}_t{candidate.num_steps}_m{candidate.minibatch_size}"
        flags["run-name"] = f"advise/{task}/{shape}_lr{candidate.learning_rate:g}__s{seed}"
        flags.update({"runs-dir": args.runs_dir, "seed": seed, "num-logs": NUM_LOGS})
        flags["eval-episodes"] = args.eval_episodes
        script = ROOT / script
    return " ".join(
        [
            "python",
            shlex.quote(str(script)),
            *(f"--{key} {shlex.quote(str(value))}" for key, value in flags.items()),
            *map(shlex.quote, args.flags),
        ]
    )


def player(args):
    """The function `play` of `halve` that makes the runs, and reads them."""

    def play(candidates, place):
        seeds = args.rungs[place].seeds
        print(f"rung {place + 1} of {len(args.rungs)}: {len(candidates)} candidates x {seeds} seeds", flush=True)
        jobs = carry_out(lines_of(args, candidates, place), args)
        parts = [jobs[i * seeds :][:seeds] for i in range(len(candidates))]
        return {candidate: read_result(part) for candidate, part in zip(candidates, parts)}

    return play


def lines_of(args, candidates, place):
    """The commands of the runs of these candidates in rung `place`, those of a candidate together."""
    rung = args.rungs[place]
    seeds = [args.seed + 1000 * place + i for i in range(rung.seeds)]
    return [command(args, one, rung.steps, seed) for one in candidates for seed in seeds]


def chosen_options(args):
    """The Options of launch.py that stand for this program's."""
    return options.parse_args(["--workers", str(args.workers)] if args.workers else [])


def carry_out(lines, args):
    """Makes the runs of these commands, as launch.py does. Returns the jobs; ends the program if a signal has come."""
    jobs = read_jobs(lines, worlds.default_arguments)
    machine = this_machine(chosen_options(args), jobs)
    check_before_start(jobs, machine)
    with writable("runs-dir", jobs[0].runs_dir):
        for job in jobs:
            claim(job)
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    pool = Pool(jobs, machine, retry_diverged=False)
    pool.work()
    for signum, handler in before.items():
        signal.signal(signum, handler)
    for job, reason in pool.reasons.items():
        print(f"note: {job.name} has {pool.ended[job]}: {reason}", file=sys.stderr)
    if pool.signals:
        print("stopped: the same command goes on from the checkpoints")
        sys.exit(130 if pool.signals[0] == signal.SIGINT else 143)
    return jobs


def read_result(jobs):
    """The Result of the runs of one candidate."""
    scores, hours, measured = [], [], {name: [] for name in TAGS}
    for job in jobs:
        if not (job.path / "manifest.json").exists():  # it has failed before its first step
            continue
        run = training_runs.read_run(job.path, job.name)
        score = run.done.get("final_return", run.done.get("episodic_return"))
        if run.diverged:
            scores.append(np.nan)
        elif run.done:
            scores.append(np.nan if score is None else score)  # no game has ended
            hours.append(run.done["wall_seconds"] / 3600)
            for name, tag in TAGS.items():
                measured[name].append(second_half(run, tag))
    means = {name: float(np.mean(values)) for name, values in measured.items() if values and np.isfinite(values).all()}
    return Result(np.array(scores, float), float(np.mean(hours)) if hours else np.nan, jobs[0].final_step, means)


def second_half(run, tag):
    """A tag over the second half of a run: its mean; of the DDR the harmonic mean, which is all samples over all KL.

    The rate falls to 0, the DDR then grows without bound, and its mean would be that of the last point.
    """
    steps, values = run.curve(tag)
    values = values[steps >= run.target / 2]
    if not len(values):
        return np.nan
    return float(1 / np.mean(1 / np.maximum(values, 1e-9))) if tag == TAGS["ddr"] else float(values.mean())


# ---- what is shown ---------------------------------------------------------------------------------------------------
def table_of(args, found):
    """A row for each candidate in each rung."""
    points = {(place, one): result for place, results in enumerate(found) for one, result in results.items()}
    on = {
        axis: set(frontier({key: (getattr(result, axis), result.mean) for key, result in points.items()}))
        for axis in ("steps", "hours")
    }
    rows = []
    for (place, candidate), result in points.items():
        scored = len(result.scores) > 0
        value, low, high = interval(mean, [[result.scores]]) if scored else Estimate(np.nan, np.nan, np.nan)
        went_on = place + 1 < len(found) and candidate in found[place + 1]
        row = {"rung": place + 1, "run_steps": result.steps, **candidate._asdict(), "seeds": len(result.scores)}
        row.update(score=float(value), ci_low=float(low), ci_high=float(high), hours=result.hours, went_on=went_on)
        row.update({f"frontier_{axis}": (place, candidate) in keys for axis, keys in on.items()})
        rows.append({**row, **{name: result.measured.get(name, np.nan) for name in TAGS}})
    return pd.DataFrame(rows)


def plan_lines(args):
    """Yields the plan."""
    total = sum(map(cost, args.rungs))
    yield (
        f"{args.env_id} with {args.script}: {len(args.candidates)} candidates "
        f"({len(args.shapes)} shapes x {len(args.rates)} rates x {len(args.minibatch_sizes)} minibatch sizes)"
    )
    for place, rung in enumerate(args.rungs):
        runs = f"{rung.count:3} candidates x {rung.seeds} seeds x {rung.steps:,} steps"
        yield f"  rung {place + 1}: {runs} = {cost(rung):,}"
    yield (
        f"  {total:,} steps, {total / grid_steps(args):.0%} of the exhaustive grid's {grid_steps(args):,} "
        f"({len(args.shapes)} shapes x {len(args.rates)} rates x {args.seeds} seeds)"
    )
    yield f"  in all {total / args.steps:.3g} runs of your length; final games are not among these steps"
    yield from price(args)


def price(args):
    """Yields what the search costs on this machine, as `launch.py --dry-run` says it; finished runs are free."""
    jobs = [
        job
        for place, rung in enumerate(args.rungs)
        for job in read_jobs(lines_of(args, args.candidates[: rung.count], place), worlds.default_arguments)
    ]
    chosen = chosen_options(args)
    machine = this_machine(chosen, jobs)
    threads = int(machine.slots[0]["OMP_NUM_THREADS"])
    for line in estimate(jobs, chosen.sps, len(machine.slots), threads, chosen.together):
        yield f"  {line}"


def report(args, found, table):
    """Yields the lines of the answer."""
    for place, rows in table.groupby("rung"):
        yield f"rung {place}, {rows['run_steps'].max():,} steps a run: mean return [95 % CI], hours a run"
        for row in rows.itertuples():
            name = f"{row.num_envs}x{row.num_steps}"
            yield (
                f"  {name:>9} minibatch {row.minibatch_size:5} rate {row.learning_rate:<8g} {number(row):34} "
                f"{row.hours:8.3g} h{'  goes on' if row.went_on else ''}"
            )
    for axis in ("steps", "hours"):
        yield f"frontier of return against {axis}"
        for row in table[table[f"frontier_{axis}"]].sort_values("run_steps" if axis == "steps" else axis).itertuples():
            at = f"{row.run_steps:,} steps" if axis == "steps" else f"{row.hours:.3g} h"
            candidate = Candidate(row.num_envs, row.num_steps, row.minibatch_size, row.learning_rate)
            yield f"  {at:>16}: {number(row):34} {candidate}"
    yield from answer(args, found[-1])
    used = sum(result.steps * len(result.scores) for results in found for result in results.values())
    yield f"used {used:,} steps, {used / grid_steps(args):.0%} of the exhaustive grid"


def number(row):
    """A score with its interval, as text."""
    return f"{row.score:.4g}" + ("" if np.isnan(row.ci_low) else f" [{row.ci_low:.4g}, {row.ci_high:.4g}]")


def answer(args, results):
    """Yields the recommendation and its reasons."""
    best, level = next(iter(results)), level_with_best(results)
    if not np.isfinite(results[best].mean):
        yield "no recommendation: no run of the last rung has finished"
        return
    if level:
        for other, (value, low, high) in level.items():
            bounds = f"[{low:.4g}, {high:.4g}]" if np.isfinite(low) else "without an interval"
            yield f"undecided: {best} is ahead of {other} by {value:.4g} {bounds}"
        chosen = min((best, *level), key=lambda candidate: np.nan_to_num(results[candidate].hours, nan=np.inf))
        yield f"this is the fastest of these {1 + len(level)}, which cannot be told apart; more --seeds may decide:"
    else:
        chosen = best
        yield "decided: its difference to each other candidate of the last rung has a 95 % CI above 0:"
    yield f"  {command(args, chosen, args.steps)}"
    hours = results[chosen].hours_of(args.steps)
    yield f"  {hours:.3g} hours here" + (
        f", more than --hours {args.hours:g}: no candidate is faster" if args.hours and hours > args.hours else ""
    )
    yield from edges(args, chosen)
    yield from reasons(args, chosen, results[chosen].measured)


def edges(args, candidate):
    """Yields what to try next if the candidate is at an edge of the rates, or of the shapes' N or T."""
    rate, name = candidate.learning_rate, f"{candidate.num_envs}x{candidate.num_steps}"
    beyond = [4 * rate, 2 * rate] * (rate == max(args.rates)) + [rate / 2, rate / 4] * (rate == min(args.rates))
    if beyond:
        tried = " ".join(f"{x:g}" for x in sorted({*beyond, rate}))
        yield f"  at the edge of the grid: no rate beyond {rate:g} was tried: try --shapes {name} --rates {tried}"
    for axis, i in (("N", 0), ("T", 1)):
        values, own = sorted({shape[i] for shape in args.shapes}), candidate[i]
        further = [2 * own] * (own == values[-1]) + [own // 2] * (own == values[0] and own > 1)
        shapes = [list(candidate[:2]) for _ in further]
        for shape, value in zip(shapes, further):
            shape[i] = value
        words = " ".join(f"{n}x{t}" for n, t in shapes if n * t % candidate.minibatch_size == 0)
        if words:
            yield f"  at the edge of the grid: no {axis} beyond {own} was tried: try --shapes {name} {words}"


def reasons(args, candidate, measured):
    """Yields what was measured of a candidate's runs that explains its rank."""
    arguments = worlds.default_arguments(str(ROOT / args.script), args.env_id)
    horizon = 1 / max(1 - arguments["gamma"] * arguments["gae_lambda"], 1e-9)
    yield f"  T: {candidate.num_steps / horizon:.2g} times GAE's horizon 1 / (1 - gamma lambda) = {horizon:.3g} steps"
    if "game_steps" in measured:
        yield f"  T: {candidate.num_steps / measured['game_steps']:.2g} of a game of {measured['game_steps']:.4g} steps"
    if "ddr" in measured:
        yield f"  DDR: {measured['ddr']:,.0f} samples for each nat between two policies (P3: too few end on a plateau)"
    if "noise_scale" in measured:
        scale = measured["noise_scale"]
        word = "noise prevails, a larger batch may help" if scale > candidate.batch_size else "more samples add little"
        yield f"  gradient noise scale: {scale:,.0f} samples, batch {candidate.batch_size:,}: {word}"
    else:
        yield f"  gradient noise scale: not measured ({TAGS['noise_scale']} is not in these runs)"


def draw(args, table, path):
    """Return against steps, against hours, and of the first rung against N; the frontier and its intervals in blue."""
    from analysis.look import BLUES, PAGE, plt, ramp  # matplotlib takes a second: not for --help

    figure, axes = plt.subplots(1, 3, figsize=(PAGE, 2.5), sharey=True)
    for ax, axis, x in zip(axes, ("steps", "hours"), ("run_steps", "hours")):
        ax.plot(table[x], table["score"], ".", color="0.7", ms=4, mec="none")
        best = table[table[f"frontier_{axis}"]].sort_values(x)
        bars = np.nan_to_num(np.maximum([best["score"] - best["ci_low"], best["ci_high"] - best["score"]], 0))
        ax.errorbar(best[x], best["score"], bars, fmt="o-", color=BLUES[1], ms=3)
        previous = None
        for row in best.itertuples():
            shape, place = f"{row.num_envs}×{row.num_steps}", (getattr(row, x), row.score)
            if shape != previous:  # equal labels of near points would cover each other
                ax.annotate(shape, place, xytext=(2, -8), textcoords="offset points", fontsize=6)
            previous = shape
        ax.set(xlabel=f"{axis} of a run", title=f"return against {axis}")
    first = table[table["rung"] == 1]
    rates = sorted(first["learning_rate"].unique())
    for rate, color in zip(rates, ramp(BLUES, len(rates))):
        for size, mark in zip(sorted(first["minibatch_size"].unique()), "os^vD" * len(first)):
            rows = first[(first["learning_rate"] == rate) & (first["minibatch_size"] == size)]
            axes[2].plot(rows["num_envs"], rows["score"], mark, color=color, ms=3, label=f"{rate:g}, {size}")
    hours = np.geomspace(table["hours"].min(), table["hours"].max(), 3) if table["hours"].notna().any() else []
    for ax, ticks, style in zip(
        axes, (table.groupby("rung")["run_steps"].max(), hours, first["num_envs"].unique()), STYLES
    ):
        ax.set_xscale("log")
        ax.set_xticks(ticks, [style.format(tick) for tick in ticks])
        ax.set_xticks([], minor=True)
    axes[2].set(xlabel="N", title=f"first rung: {first['run_steps'].max():,} steps")
    axes[2].legend(title="rate, minibatch", fontsize=5.5, title_fontsize=5.5, loc="best")
    axes[0].set_ylabel("mean return")
    figure.suptitle(f"{args.env_id}: blue is the frontier, with 95 % CIs over seeds; N×T where it changes", fontsize=8)
    figure.savefig(path)
    plt.close(figure)


def main(args):
    plan_text = "\n".join(plan_lines(args))
    print(plan_text, flush=True)
    if args.dry_run:
        return
    found = halve(
        args.candidates,
        args.rungs,
        player(args),
        lambda result: not args.hours or result.hours_of(args.steps) <= args.hours,
    )
    table = table_of(args, found)
    lines = list(report(args, found, table))
    name = f"advise_{catalog.game_name(args.env_id).replace(':', '_')}"
    with writable("out", args.out):
        table.to_csv(args.out / f"{name}.csv", index=False, float_format="%.6g")
        (args.out / f"{name}.txt").write_text("\n".join([plan_text, *lines]) + "\n")
        draw(args, table, args.out / f"{name}.png")
    print(*lines, sep="\n")


if __name__ == "__main__":
    main(parse_args(sys.argv[1:]))
