"""How correlated are PPO's per-sample gradients along a trajectory, and what does that cost? Pendulum-v1, minutes.

    python results/gradient_correlation/gradient_correlation.py --out results/gradient_correlation

Repeats the experiments of the blog post "Effect of Parallel Environments and Rollout Steps in PPO" (P2) with intervals,
and measures what the post only states. PPO trains on EnvPool's Pendulum-v1 with batches of 1024 steps and several
seeds, once with 4 environments x 256 steps and once with 16 x 64. At checkpoints, before the update, every ratio is 1
and PPO's gradient is the plain policy gradient. There torch.func gives the gradient of each sample,

    g_i = A_i grad log pi(a_i | s_i),      G = (1 / NT) sum_i g_i,

over the policy's 4,482 parameters. A is GAE's advantage, neither centred nor scaled. G points uphill; the post's
gradient has the other sign, which changes no cosine and no variance. The post leaves some choices open. Ours are:

1. PPO: two tanh layers of 64 each for actor and critic, a log-std that does not depend on the state, gamma 0.99, lambda
   0.95, Adam at 3e-4 falling to 0, 10 epochs of minibatches of 256, advantages normalised per minibatch (in training
   only). Observations are divided by (1, 1, 8) and rewards by 50: constants, so that gradients compare across
   checkpoints.
2. EnvPool clips actions to [-2, 2]; log pi is that of the action as sampled. Episodes are truncated after 200 steps.
   The last step bootstraps from the value of the true last observation. The autoreset step after it is no sample.
3. A pair of lag k within a trajectory is rows t and t + k of one environment and one episode. A pair across
   trajectories is row t and row t + k of another environment: the lag is the same, only the trajectory differs.
4. "Five batches from the rollout buffer" can mean two things, and both are measured: five disjoint random minibatches
   of one rollout, and five fresh rollouts of the frozen policy.
5. Fresh batches are cut from independent episodes of the frozen policy, joined by autoreset steps as in training. In
   training all environments start together, so a batch sees one phase of the episode (`together`). If each has a phase
   of its own (`staggered`), environments are independent, as the post assumes. Phases are uniform in both.
6. The true gradient uses the same states and actions, and advantages that sum the rewards that follow. The simulation
   continues past step 200 until gamma^k < 0.01; from there V of the last state stands in for the rest.

gradient_measures.py trains and measures, gradient_claims.py tests the post's claims, gradient_figures.py draws.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT  # noqa: F401

import contextlib
import io
import multiprocessing
import os
import signal
import tempfile
import time
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from dataclasses import dataclass
from typing import Annotated, Tuple

import pandas as pd
from analysis import look
from gradient_claims import as_text, find
from gradient_figures import draw_all
from gradient_measures import (
    BATCH,
    SETTINGS,
    checkpoint_iterations,
    focus_iterations,
    fresh_iterations,
    init_worker,
    measure,
    train,
)
from tqdm import tqdm

from support import arguments
from support.arguments import Count, Fraction, NonNegative, Positive, Range, fail, writable

TABLES = ("returns", "lag_curve", "lag_density", "mean_cosine", "mean_density", "batch_cosines", "variance", "bias")


# ---- Args ------------------------------------------------------------------------------------------------------------
@dataclass
class Args:
    out: Path = Path("results/gradient_correlation")  # the directory for tables and figures
    seeds: Tuple[int, ...] = (1, 2, 3, 4)  # the seeds of the training runs, in each setting
    steps: Count = 501760  # environment steps of a run, over all environments: a multiple of 1024
    checkpoints: Count = 20  # measured points of a run, evenly spaced back from its end; with 20, two are the post's
    fresh_every: Count = 4  # fresh rollouts at every such checkpoint (variance, bias, heat maps)
    groups: Annotated[int, Range(5, 1024)] = 16  # fresh rollouts there, in groups of 4 batches of 1024 steps
    lags: Tuple[int, ...] = (1, 3, 5, 7, 10, 40)  # steps between the two gradients of a pair
    lambdas: Tuple[float, ...] = (0.0, 0.5, 0.95, 1.0)  # values of GAE's lambda to measure
    main_lambda: Fraction = 0.95  # GAE's lambda in training, and in figures and claims that name no other
    gamma: Annotated[float, Range(0, 0.9999)] = 0.99  # the discount factor
    learning_rate: NonNegative = 3e-4  # the learning rate of Adam, falling linearly to 0
    update_epochs: Count = 10  # passes over each batch
    minibatch_size: Annotated[int, Range(2, 2**31 - 1)] = 256  # rows per minibatch
    clip_coef: NonNegative = 0.2  # the clipping coefficient of the policy ratio
    vf_coef: NonNegative = 0.5  # the coefficient of the value loss
    max_grad_norm: Positive = 0.5  # the gradient's norm is clipped to this
    workers: Annotated[int, Range(1, 1024)] = 2  # processes, of one thread each
    redraw: bool = False  # makes findings and figures from the tables in --out, without training


def parse_args(argv):
    """Returns checked Args; exits 2 with one line on bad input. Touches no file."""
    args = arguments.parse(Args, argv, __doc__)

    def given(values):
        return " ".join(map(str, values))

    if args.steps % BATCH:
        fail(f"--steps {args.steps}: expected a multiple of {BATCH}")
    if not args.seeds or len(set(args.seeds)) < len(args.seeds) or not all(0 <= seed < 2**31 for seed in args.seeds):
        fail(f"--seeds {given(args.seeds)}: expected different integers from 0 to {2**31 - 1}")
    if not args.lags or list(args.lags) != sorted(set(args.lags)) or not 1 <= args.lags[0] <= args.lags[-1] <= 63:
        fail(f"--lags {given(args.lags)}: expected increasing integers from 1 to 63")
    different = len(args.lambdas) == len(set(args.lambdas)) >= 2
    if not different or args.main_lambda not in args.lambdas or not all(0 <= x <= 1 for x in args.lambdas):
        expected = f"two or more different numbers from 0 to 1, --main-lambda {args.main_lambda} among them"
        fail(f"--lambdas {given(args.lambdas)}: expected {expected}")
    if os.path.exists(args.out) and not os.path.isdir(args.out):  # Path.exists raises OSError on too long a name
        fail(f"--out {args.out} is a file: expected a directory")
    return args


# ---- training and measuring, on several processes --------------------------------------------------------------------
def run_all(args):
    """Trains and measures on `workers` processes. Returns {name: DataFrame}, the same for any number of workers."""
    context = multiprocessing.get_context("spawn")
    queue, stopped = context.Queue(), context.Event()
    measured, fresh = checkpoint_iterations(args), fresh_iterations(args)
    units = {"train": len(SETTINGS) * (args.steps // BATCH), "measure": len(SETTINGS) * len(args.seeds) * len(measured)}
    pool = ProcessPoolExecutor(args.workers, context, init_worker, (queue, stopped))
    # Ctrl-C is noted here and raised in collect: raised inside the pool's locks, it could leave one locked for ever
    interrupts = []
    handler = signal.signal(signal.SIGINT, lambda *_: interrupts.append(True))
    try:
        futures = [pool.submit(train, args, *setting) for setting in SETTINGS]
        trained = collect(futures, queue, units["train"], "train", interrupts)
        checkpoints = [checkpoint for of_setting, _ in trained for checkpoint in of_setting]
        with_fresh = [checkpoint["step"] // BATCH in fresh for checkpoint in checkpoints]
        futures = [pool.submit(measure, args, *job) for job in zip(checkpoints, with_fresh)]
        results = collect(futures, queue, units["measure"], "measure", interrupts)
    finally:
        stopped.set()
        pool.shutdown(cancel_futures=True)
        signal.signal(signal.SIGINT, handler)
    tables = {"returns": returns_table([episodes for _, episodes in trained])}
    for name in ("lag_curve", "mean_cosine", "batch_cosines", "variance", "bias"):
        tables[name] = pd.DataFrame([row for result in results for row in result.get(name, [])])
    focus = [i * BATCH for i in focus_iterations(args)]
    for name, columns in (("lag_density", ["lambda", "lag", "kind"]), ("mean_density", ["lambda"])):
        rows = pd.DataFrame([row for result in results for row in result[name] if row["step"] in focus])
        tables[name] = rows.groupby(["setting", "step", *columns, "cosine"], as_index=False)["count"].sum()
    return tables


def returns_table(episodes):
    """A table with one row per episode. episodes: for each setting a list of (seed, step, return)."""
    return pd.DataFrame(
        [
            {"setting": f"{N}x{T}", "seed": seed, "step": step, "return": value}
            for (N, T), of_setting in zip(SETTINGS, episodes)
            for seed, step, value in of_setting
        ]
    )


def collect(futures, queue, num_units, phase, interrupts):
    """The results of the futures in their order. Shows progress: a bar on a terminal, ten lines elsewhere.

    Raises KeyboardInterrupt once `interrupts` is not empty.
    """
    terminal = sys.stderr.isatty()
    bar = tqdm(total=num_units, desc=phase, disable=not terminal, smoothing=0.1)
    start, begun = time.time(), 0
    while True:
        finished, running = wait(futures, timeout=0.5, return_when=FIRST_EXCEPTION)
        if interrupts:
            raise KeyboardInterrupt
        while not queue.empty():
            queue.get()
            bar.update()
            begun += 1
            if not terminal and begun % max(1, num_units // 10) == 0:
                print(f"{phase}: {begun}/{num_units}, {time.time() - start:.0f} s", file=sys.stderr, flush=True)
        for future in finished:
            future.result()  # raises what it raised
        if not running:
            bar.close()
            return [future.result() for future in futures]


# ---- main ------------------------------------------------------------------------------------------------------------
def csv(table):
    """The text of a table's file."""
    return table.to_csv(index=False, float_format="%.6g")


def write(out, texts, figures):
    """Writes {file name: text} and {name: figure}: all into a hidden directory first, then each into its place."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".gradient_correlation-", dir=out) as partial:
        for name, text in texts.items():
            Path(partial, name).write_text(text)
        for name, figure in figures.items():
            look.save(figure, Path(partial, name))
        for file in Path(partial).iterdir():
            os.replace(file, out / file.name)


def check_out(out):
    """Ends the program before the training if the directory cannot be written to. Leaves nothing behind."""
    made = [folder for folder in (out, *out.parents) if not os.path.exists(folder)]
    try:
        with writable("out", out), tempfile.TemporaryFile(dir=out):
            pass
    finally:
        for folder in made:
            with contextlib.suppress(OSError):  # it was not made
                folder.rmdir()


def main(args):
    if args.redraw:
        try:
            tables = {name: pd.read_csv(args.out / f"{name}.csv") for name in TABLES}
        except OSError as error:
            fail(f"--redraw: {error.filename} is missing: expected --out with all tables of an earlier run")
    else:
        check_out(args.out)
        texts = {f"{name}.csv": csv(table) for name, table in run_all(args).items()}
        write(args.out, texts, {})  # first, so that --redraw can go on from here if a figure fails
        tables = {name: pd.read_csv(io.StringIO(texts[f"{name}.csv"])) for name in TABLES}
    findings = find(args, tables)
    text = as_text(args, findings)
    write(args.out, {"findings.csv": csv(findings), "findings.txt": text}, draw_all(args, tables))
    print(text, end="")


if __name__ == "__main__":
    try:
        main(parse_args(sys.argv[1:]))
    except KeyboardInterrupt:
        print("interrupted: nothing was written", file=sys.stderr)
        sys.exit(130)
