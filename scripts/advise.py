"""How many environments, how long a rollout, which learning rate for my task? Tries some, and says what is best.

    python scripts/advise.py --env-id CartPole-v1 --steps 2e5 --dry-run           # an answer without a run, and a price
    python scripts/advise.py --env-id CartPole-v1 --steps 2e5 --workers 2         # the same line again resumes it
    python scripts/advise.py --env-id CartPole-v1 --steps 2e5 --gamma 0.95        # arguments of the script for all runs
    python scripts/advise.py --env-id CartPole-v1 --steps 2e5 --one-run           # a hint
    python scripts/advise.py --env-id gymnasium:my_module:MyTask-v0 --steps 2e5 --env-kwargs '{"size": 3}'

A setting is (N, T, learning rate): six N x T around the script's default at six rates, or --shapes and --rates. All
have minibatches of the same size. A run makes --steps, as the learning rate is annealed over a run and a short one says
little about a long one. What is known of other tasks (results/runs.csv.gz) is the prior of a Gaussian process; each
round updates it and draws the next runs by Thompson's sampling (analysis/prior.py has the formulas, and
results/advise how far they are right). The search ends after --runs, or when the answer is as sure as --sure.

It first prints what other tasks say without a run. A search was not shown to beat that on 36 tasks (results/advise).

The answer is the setting with the highest expected return, and the probability that it gains at least 95 % of what the
best setting of the grid gains; a gain is the mean return of --eval-episodes episodes of the final network minus that of
an untrained one. A diverged run has the lowest return of all. The runs of the task itself that the table may have are
not used.

The runs are carried out as scripts/launch.py does it: finished ones are skipped, interrupted ones resume, and those of
one N x T share a process. Writes advise_TASK.png, .csv (a row for each setting) and .txt, which it also prints.
"""

from launching.root import ROOT

import dataclasses
import functools
import hashlib
import importlib
import os
import re
import shlex
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Optional, Tuple

import numpy as np
import pandas as pd
from analysis import experiment, prior, training_runs
from launching import options
from launching.jobs import check_before_start, claim, parse_flags, read_jobs
from launching.machines import this_machine
from launching.pool import Pool
from launching.price import estimate
from typing_extensions import Annotated

from support import catalog, reading
from support.arguments import Evaluation, Fraction, NByT, Positive, Range, Seed, fail, parse, return_to_start, writable
from support.envs import tasks

FACTORS = ((1, 4), (1, 1), (4, 4), (16, 16), (16, 4), (16, 1))  # (N times, T divided by) against the default's
RATES = (0.5, 1, 2, 4, 8, 16)  # times the default's
MIN_ITERATIONS = 8  # a run with fewer says nothing
AT_A_TIME = 6  # runs of a round for each worker, of one N x T for each
GRID_SEEDS = 10  # seeds in the exhaustive grid that the price is compared with
DRAWS = 4000
NUM_LOGS = 20  # points of each run's curves
OURS = {  # arguments of a script that advise sets, or that would change what it compares
    *("num_envs", "num_steps", "learning_rate", "total_timesteps", "num_logs", "run_name", "num_seeds", "runs"),
    *("num_minibatches", "schedule", "scaling", "scale_from", "resume_from"),
}
TAGS = {"ddr": "outer/ddr", "noise_scale": "outer/grad_noise_scale", "episode_steps": "charts/episodic_length"}


@dataclass
class Args:
    env_id: str  # the task: as of --env-id of the script that plays it
    steps: Annotated[float, Range(1, 1e15)]  # environment steps of the run that you want to make, such as 2e6
    runs: Annotated[int, Range(1, 10000)] = 24  # the most runs to make, each of --steps steps
    sure: Fraction = 0.9  # ends the search when the answer has this probability
    one_run: bool = False  # makes a single run, of the setting that is best on other tasks: a hint
    out: Path = Path("figures")  # the directory for the picture and the table
    runs_dir: Path = Path("runs")  # the directory that holds the run directories, below advise/
    workers: Optional[Annotated[int, Range(1, 10000)]] = None  # processes at a time; default: GPUs or cores
    seed: Seed = 1  # each setting's first seed: another one repeats the whole search
    shapes: Tuple[NByT, ...] = ()  # N x T of the settings, such as 8x128 32x32
    rates: Tuple[Positive, ...] = ()  # learning rates of the settings
    eval_episodes: Annotated[Evaluation, Range(1, 100000)] = 20  # whole episodes that each final network plays
    dry_run: bool = False  # prints the plan, and what other tasks say, and ends


def parse_args(argv):
    """Returns checked Args, with `script`, `flags`, `settings` and others; exits 2 with one line on bad input.

    `flags` are the words that are no arguments of this program: the script's own. Touches no file.
    """
    words, flags = split_flags(argv)
    args = parse(Args, words, __doc__)
    args.steps, args.flags, args.runs = int(args.steps), flags, 1 if args.one_run else args.runs
    if not re.fullmatch(r"[\w:./-]{1,150}", args.env_id, re.ASCII):
        fail(f"--env-id {args.env_id!r}: expected the name of a task")
    args.script = f"{catalog.script_of(args.env_id)}.py"
    args.env_kwargs = tasks.options_of_command(flags)
    args.default_arguments = functools.partial(tasks.default_arguments, env_kwargs=args.env_kwargs)
    if args.script == "ppo_envpool.py":
        tasks.check_env_id(args.env_id, args.env_kwargs)
    taken = sorted(OURS & parse_flags(flags).keys())
    if taken:
        fail(
            f"--{taken[0].replace('_', '-')} is set by the search: expected --steps, --shapes, --rates or no such flag"
        )
    args.settings = settings_of(args)
    if flags:  # the script's own parser looks at each N x T
        module = importlib.import_module(Path(args.script).stem)
        for setting in {one.n_by_t: one for one in args.settings}.values():
            module.parse_args(shlex.split(command(args, setting, args.steps, args.seed))[2:])
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


# ---- settings --------------------------------------------------------------------------------------------------------
class Setting(NamedTuple):
    """What is searched over."""

    num_envs: int
    num_steps: int
    learning_rate: float

    @property
    def n_by_t(self):
        return f"{self.num_envs}x{self.num_steps}"

    @property
    def batch_size(self):
        return self.num_envs * self.num_steps

    def __str__(self):
        return f"{self.n_by_t} at the rate {self.learning_rate:g}"


def settings_of(args):
    """The Settings of the command line, or those around the script's default; sets args.shapes, rates, defaults.

    Default N x T whose runs would be shorter than MIN_ITERATIONS, or that the minibatches do not divide, are left out.
    Ends the program with one line if a given N x T is such a one, or if there are not two settings.
    """
    args.defaults = {**args.default_arguments(str(ROOT / args.script), args.env_id), **parse_flags(args.flags)}
    number, length, rate = (args.defaults[name] for name in ("num_envs", "num_steps", "learning_rate"))
    rows = args.defaults.get("minibatch_size") or number * length // args.defaults["num_minibatches"]
    args.defaults["minibatch_size"] = rows
    n_by_ts = [(number * times, length // part) for times, part in FACTORS if length % part == 0]
    if args.shapes:
        n_by_ts = [tuple(map(int, n_by_t.split("x"))) for n_by_t in args.shapes]
    n_by_ts, most = sorted(set(n_by_ts)), args.steps // MIN_ITERATIONS
    fitting = [(n, t) for n, t in n_by_ts if n * t <= most and n * t % rows == 0]
    if fitting != n_by_ts and (args.shapes or not fitting):
        (n, t), *_ = [n_by_t for n_by_t in reversed(n_by_ts) if n_by_t not in fitting]
        more = f"--steps {MIN_ITERATIONS * n * t} or more, which are {MIN_ITERATIONS} iterations, or " * (n * t > most)
        fail(
            f"--steps {args.steps:,} with {n}x{t} and minibatches of {rows}: expected {more}--shapes whose "
            f"N x T are a multiple of {rows} and {most:,} at most"
        )
    args.shapes, args.left_out = fitting, [n_by_t for n_by_t in n_by_ts if n_by_t not in fitting]
    args.rates = sorted(set(args.rates or [rate * times for times in RATES]))
    found = [Setting(*n_by_t, rate) for n_by_t in args.shapes for rate in args.rates]
    if len(found) < 2:
        fail(f"--shapes and --rates: one setting, {found[0]}: expected two or more")
    return found


def settings_table(args):
    """The settings as analysis/prior.py takes them."""
    table = pd.DataFrame(args.settings)
    for name in prior.SETTING[4:]:
        table[name] = args.defaults.get(name, 1)  # PQN's epochs
    return table.assign(total_timesteps=args.steps)


# ---- the search ------------------------------------------------------------------------------------------------------
@dataclass
class Found:
    """What the runs of a search gave."""

    returns: list  # an array (runs,) for each setting
    zero: float  # the return of the untrained network
    measured: list  # for each setting {name of TAGS: mean over the runs' second halves}
    draws: np.ndarray  # draws of the gains, (DRAWS, settings): analysis/prior.py

    @property
    def best(self):
        return int(self.draws.mean(0).argmax())


def search(args, before, play):
    """Rounds of runs until there are --runs, or the answer is sure. Returns the Found.

    before: the prior.Prior. play(requests): what the runs of [(place of the setting or None, seed)] gave, a list of
    (return, measured); NaN for a diverged run, None for one that has failed. A None for the setting asks for an
    untrained network.
    """
    rng, made, zero, lowest = np.random.default_rng(args.seed), 0, np.nan, np.inf
    asked, returns, measured = (
        np.zeros(len(args.settings), int),
        [[] for _ in args.settings],
        [{} for _ in args.settings],
    )
    n_by_ts, workers = [setting.n_by_t for setting in args.settings], args.workers or len(os.sched_getaffinity(0))
    draws = prior.posterior(before, returns, DRAWS, rng)
    while made < args.runs:
        number = min(AT_A_TIME * workers, -(-args.runs // 2), args.runs - made)  # two rounds at least
        if args.one_run:
            places = [int(draws.mean(0).argmax())]
        else:
            places = prior.next_runs(draws, n_by_ts, workers, number)
        requests = [] if made else [(None, args.seed)]
        for place in places:
            requests.append((place, args.seed + int(asked[place])))
            asked[place] += 1
        made += len(places)
        for (place, _), (value, numbers) in zip(requests, play(requests), strict=True):
            if place is None:
                zero = value
            elif value is not None:
                returns[place].append(value)
                measured[place] = measured[place] or numbers
        if zero is None or not np.isfinite(zero):
            fail(f"--env-id {args.env_id}: the run of an untrained network has failed")
        lowest = min([zero, *(value for values in returns for value in values if np.isfinite(value))])
        returns = [[value if np.isfinite(value) else lowest for value in values] for values in returns]
        draws = prior.posterior(before, [np.array(values) - zero for values in returns], DRAWS, rng)
        best = int(draws.mean(0).argmax())
        chance = prior.close_to_best(draws)[best]
        print(f"{made} of {args.runs} runs: {args.settings[best]}, P = {chance:.2f}", flush=True)
        if chance >= args.sure:
            break
    return Found(returns, zero, measured, draws)


# ---- runs ------------------------------------------------------------------------------------------------------------
def command(args, setting, steps, seed=None, rate=None):
    """The command of a run of a setting, the recommended one without `seed`. rate: in place of the setting's."""
    rate = setting.learning_rate if rate is None else rate
    flags = {
        "env-id": args.env_id,
        "total-timesteps": steps,
        "num-envs": setting.num_envs,
        "num-steps": setting.num_steps,
        "minibatch-size": args.defaults["minibatch_size"],
        "learning-rate": f"{rate:g}",
    }
    if "minibatch_size" in parse_flags(args.flags):
        del flags["minibatch-size"]
    script = args.script
    if seed is not None:
        task = f"{args.env_id.replace('/', '_')}__k{steps}"
        if args.flags:  # their runs are others
            task += "__" + hashlib.sha1(" ".join(args.flags).encode()).hexdigest()[:6]
        flags["run-name"] = f"advise/{task}/n{setting.num_envs}_t{setting.num_steps}_lr{rate:g}__s{seed}"
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


def line_of(args, place, seed):
    """The command of a run that `search` asks for. An untrained network: one iteration at the rate 0."""
    if place is None:
        first = args.settings[0]
        return command(args, first, first.batch_size, seed, rate=0)
    return command(args, args.settings[place], args.steps, seed)


def player(args):
    """The function `play` of `search` that makes the runs, and reads them."""

    def play(requests):
        return [read_result(job) for job in carry_out([line_of(args, *request) for request in requests], args)]

    return play


def chosen_options(args):
    """The Options of launch.py that stand for this program's."""
    return options.parse_args(["--workers", str(args.workers)] if args.workers else [])


def carry_out(lines, args):
    """Makes the runs of these commands, as launch.py does. Returns the jobs; ends the program if a signal has come."""
    jobs = read_jobs(lines, args.default_arguments)
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


def read_result(job):
    """(return, {name of TAGS: mean over the second half}) of a run; NaN if it has diverged, None if it has failed."""
    if not (job.path / "manifest.json").exists():  # it has failed before its first step
        return None, {}
    run = training_runs.read_run(job.path, job.name)
    if run.diverged:
        return np.nan, {}
    if not run.done:
        return None, {}
    numbers = {name: second_half(run, tag) for name, tag in TAGS.items()}
    return run.done["final_return"], {name: value for name, value in numbers.items() if np.isfinite(value)}


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
    """A row for each setting, the best first. The expected return and its interval are of the model."""
    low, high = found.zero + np.percentile(found.draws, [2.5, 97.5], axis=0)
    columns = {
        "runs": [len(values) for values in found.returns],
        "mean_return": [np.mean(values) if values else np.nan for values in found.returns],
        **{"expected": found.zero + found.draws.mean(0), "low": low, "high": high},
        "p_best": np.bincount(found.draws.argmax(1), minlength=len(args.settings)) / len(found.draws),
        "p_close": prior.close_to_best(found.draws),
    }
    return pd.DataFrame(args.settings).assign(**columns).sort_values("expected", ascending=False)


def plan_lines(args):
    """Yields the plan and its price."""
    grid = GRID_SEEDS * len(args.settings)
    yield (
        f"{args.env_id} with {args.script}: {len(args.settings)} settings, {len(args.shapes)} N x T at "
        f"{len(args.rates)} rates, minibatches of {args.defaults['minibatch_size']} rows"
    )
    for n, t in args.left_out:
        yield f"  {n}x{t} is left out: fewer than {MIN_ITERATIONS} iterations, or no whole minibatches"
    yield (
        f"  at most {args.runs} runs of your length, {args.runs * args.steps:,} steps: {args.runs / grid:.0%} of the "
        f"exhaustive grid's {grid} runs ({len(args.settings)} settings x {GRID_SEEDS} seeds)"
    )
    places = [round(i * len(args.settings) / args.runs) % len(args.settings) for i in range(args.runs)]
    jobs = read_jobs([line_of(args, place, args.seed + i) for i, place in enumerate(places)], args.default_arguments)
    chosen = chosen_options(args)
    machine = this_machine(chosen, jobs)
    threads = int(machine.slots[0]["OMP_NUM_THREADS"])
    _, *lines = estimate(jobs, chosen.sps, len(machine.slots), threads, AT_A_TIME)
    yield from (f"  {line}" for line in lines)


def report(args, found, table, products):
    """Yields the lines of the answer. products: what prior.Tasks.best_products says of other tasks."""
    yield f"an untrained network returns {found.zero:.4g}; expected return [95 %], P(within 5 % of the best), runs"
    for row in table.head(8).itertuples():
        name = f"{row.num_envs}x{row.num_steps}"
        numbers = f"{row.expected:.4g} [{row.low:.4g}, {row.high:.4g}]"
        yield f"  {name:>9} rate {row.learning_rate:<9.4g} {numbers:30} {row.p_close:.2f}  {row.runs}"
    made, grid = int(table["runs"].sum()), GRID_SEEDS * len(args.settings)
    if not made:
        yield "no recommendation: no run has finished"
        return
    best, word = args.settings[found.best], "a hint, from one run" if args.one_run else "answer"
    chance = table["p_close"].iloc[0]
    yield f"{word}: {best}; within 5 % of the best of {len(args.settings)} settings with the probability {chance:.2f}"
    yield f"  {command(args, best, args.steps)}"
    yield from edges(args, best)
    yield from hints(args, best, found.measured[found.best], products)
    yield f"used {made * args.steps:,} steps, {made} runs, {made / grid:.0%} of the exhaustive grid"
    yield how_good()


def how_good():
    """What replays of such searches on other tasks have shown (results/advise), in one line."""
    regret, brier = (pd.read_csv(experiment.RESULTS / "advise" / f"atlas_{name}.csv") for name in ("regret", "brier"))
    fewest = regret[regret["share"] == regret["share"].min()].set_index("method")
    ours, guess, others = (
        "{:.3f} [{:.3f}, {:.3f}]".format(*fewest.loc[name, ["regret", "low", "high"]])
        for name in ("advise, atlas", "prior, no run", "random")
    )
    score, constant = brier.loc[brier["share"].idxmin(), ["brier", "brier_of_a_constant"]]
    return (
        f"how good such answers were: on {fewest.loc['random', 'tasks']} other tasks {ours} of a score below the "
        f"exhaustive grid's, of what is said without a run {guess}, of as many random settings {others}; Brier score "
        f"of the probability {score:.3f}, of a constant {constant:.3f} (results/advise)"
    )


def edges(args, setting):
    """Yields what to try next if the setting is at an edge of the rates, or of the tried N or T."""
    rate, name = setting.learning_rate, setting.n_by_t
    beyond = [4 * rate, 2 * rate] * (rate == max(args.rates)) + [rate / 2, rate / 4] * (rate == min(args.rates))
    if beyond:
        tried = " ".join(f"{x:g}" for x in sorted({*beyond, rate}))
        yield f"  at the edge of the grid: no rate beyond {rate:g} was tried: try --shapes {name} --rates {tried}"
    for axis, i in (("N", 0), ("T", 1)):
        values, own = sorted({n_by_t[i] for n_by_t in args.shapes}), setting[i]
        further = [2 * own] * (own == values[-1]) + [own // 2] * (own == values[0] and own > 1)
        n_by_ts = [list(setting[:2]) for _ in further]
        for n_by_t, value in zip(n_by_ts, further):
            n_by_t[i] = value
        words = " ".join(f"{n}x{t}" for n, t in n_by_ts if n * t % args.defaults["minibatch_size"] == 0)
        if words:
            yield f"  at the edge of the grid: no {axis} beyond {own} was tried: try --shapes {name} {words}"


def hints(args, setting, measured, products):
    """Yields what was measured of a setting's first run, and what it says about N, T and the rate: hints."""
    horizon = 1 / max(
        1 - args.defaults["gamma"] * args.defaults.get("gae_lambda", args.defaults.get("q_lambda", 0)), 1e-9
    )
    yield f"  T: {setting.num_steps / horizon:.2g} times the horizon 1 / (1 - gamma lambda) = {horizon:.3g} steps"
    if "episode_steps" in measured:
        length = measured["episode_steps"]
        yield f"  T: {setting.num_steps / length:.2g} of an episode of {length:.4g} steps"
    row = settings_table(args).iloc[[args.settings.index(setting)]]
    updates = int(prior.gradient_steps(row)[0])
    yield (
        f"  rate x gradient steps: {setting.learning_rate * updates:.3g}, {updates:,} gradient steps; the best of "
        f"{len(products)} other tasks have {min(products):.2g} to {max(products):.2g}"
    )
    if "ddr" in measured:
        yield f"  DDR: {measured['ddr']:,.0f} samples for each nat between two policies (P3: too few end on a plateau)"
    if "noise_scale" in measured:
        scale = measured["noise_scale"]
        word = "noise prevails, a larger batch may help" if scale > setting.batch_size else "more samples add little"
        yield f"  gradient noise scale: {scale:,.0f} samples, batch {setting.batch_size:,}: {word}"


def draw(args, found, path):
    """A panel per N x T: the returns of the runs and the expected return against the rate, with its 95 % interval."""
    from analysis.look import BLUE, PAGE, VERMILLION, plt  # matplotlib takes a second: not for --help

    width = PAGE * max(1, len(args.shapes) / 8)
    figure, axes = plt.subplots(1, len(args.shapes), figsize=(width, 2.2), sharey=True, squeeze=False)
    low, high = found.zero + np.percentile(found.draws, [2.5, 97.5], axis=0)
    expected = found.zero + found.draws.mean(0)
    for axis, n_by_t in zip(axes[0], args.shapes, strict=True):
        places = [i for i, setting in enumerate(args.settings) if (setting.num_envs, setting.num_steps) == n_by_t]
        axis.fill_between(args.rates, low[places], high[places], color=BLUE, alpha=0.2, lw=0)
        axis.plot(args.rates, expected[places], color=BLUE)
        for place in places:
            values = found.returns[place]
            axis.plot([args.settings[place].learning_rate] * len(values), values, ".", color="0.3", ms=3)
        if found.best in places:
            axis.plot(args.settings[found.best].learning_rate, expected[found.best], "o", color=VERMILLION)
        axis.set_xscale("log")
        ticks = [args.rates[0], args.rates[-1]]
        axis.set_xticks(ticks, [f"{tick:.2g}" for tick in ticks])
        axis.set_xticks([], minor=True)
        axis.set(xlabel="learning rate", title=f"{n_by_t[0]} × {n_by_t[1]}")
    axes[0, 0].set_ylabel("return")
    figure.suptitle(f"{args.env_id}, {args.steps:,} steps: runs, and what the model expects with 95 %", fontsize=8)
    figure.savefig(path)
    plt.close(figure)


def known_runs():
    """The runs that the prior is made of: those of the older studies, and those of the atlas's first step."""
    runs, atlas = reading.load(experiment.DATASET), experiment.load("atlas")
    return pd.concat([prior.known_runs(runs), atlas.step_1(experiment.runs_of(atlas, runs))])


def first_guess(args, before):
    """Yields what the runs of other tasks say before the first run. before: the prior.Prior."""
    best = args.settings[int(before.mean.argmax())]
    yield f"without a run, other tasks say: {best}; a search was not shown to beat that (results/advise)"
    yield f"  {command(args, best, args.steps)}"


def main(args):
    return_to_start()
    plan_text = "\n".join(plan_lines(args))
    print(plan_text, flush=True)
    known = known_runs()
    tasks = prior.Tasks(known[known["game"] != catalog.task_name(args.env_id)])
    before = tasks.prior(settings_table(args))
    guess = "\n".join(first_guess(args, before))
    print(guess, flush=True)
    if args.dry_run:
        return
    found = search(args, before, player(args))
    table = table_of(args, found)
    lines = list(report(args, found, table, tasks.best_products()))
    name = f"advise_{catalog.task_name(args.env_id).replace(':', '_')}"
    with writable("out", args.out):
        table.to_csv(args.out / f"{name}.csv", index=False, float_format="%.6g")
        (args.out / f"{name}.txt").write_text("\n".join([plan_text, guess, *lines]) + "\n")
        draw(args, found, args.out / f"{name}.png")
    print(*lines, sep="\n")


if __name__ == "__main__":
    main(parse_args(sys.argv[1:]))
