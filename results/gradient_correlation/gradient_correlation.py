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

gradient_measures.py trains and measures, gradient_figures.py draws.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT  # noqa: F401

from dataclasses import dataclass
from typing import Annotated, Tuple

import pandas as pd
from analysis import look
from gradient_figures import draw_all
from gradient_measures import BATCH, SETTINGS, focus_iterations, train
from joblib import Parallel, delayed

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
    main_lambda: Fraction = 0.95  # GAE's lambda in training, and in figures that name no other
    gamma: Annotated[float, Range(0, 0.9999)] = 0.99  # the discount factor
    learning_rate: NonNegative = 3e-4  # the learning rate of Adam, falling linearly to 0
    update_epochs: Count = 10  # passes over each batch
    minibatch_size: Annotated[int, Range(2, 2**31 - 1)] = 256  # rows per minibatch
    clip_coef: NonNegative = 0.2  # the clipping coefficient of the policy ratio
    vf_coef: NonNegative = 0.5  # the coefficient of the value loss
    max_grad_norm: Positive = 0.5  # the gradient's norm is clipped to this
    workers: Annotated[int, Range(1, 2)] = 2  # processes, of one thread each: one for each setting
    redraw: bool = False  # draws the figures from the tables in --out, without training


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
    return args


# ---- main ------------------------------------------------------------------------------------------------------------
def run_all(args):
    """Trains and measures both settings. Returns {name: DataFrame}."""
    results = Parallel(args.workers)(delayed(train)(args, N, T) for N, T in SETTINGS)
    tables = {name: pd.DataFrame([row for result in results for row in result.get(name, ())]) for name in TABLES}
    focus = [i * BATCH for i in focus_iterations(args)]
    for name, columns in (("lag_density", ["lambda", "lag", "kind"]), ("mean_density", ["lambda"])):
        rows = tables[name][tables[name]["step"].isin(focus)]
        tables[name] = rows.groupby(["setting", "step", *columns, "cosine"], as_index=False)["count"].sum()
    return tables


def main(args):
    if not args.redraw:
        with writable("out", args.out):  # before the training
            pass
        for name, table in run_all(args).items():
            table.to_csv(args.out / f"{name}.csv", index=False, float_format="%.6g")
    try:
        tables = {name: pd.read_csv(args.out / f"{name}.csv") for name in TABLES}
    except OSError as error:
        fail(f"--redraw: {error.filename} is missing: expected --out with all tables of an earlier run")
    for name, figure in draw_all(args, tables).items():
        look.save(figure, args.out / f"{name}.png")


if __name__ == "__main__":
    try:
        main(parse_args(sys.argv[1:]))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
