"""What to type for a task of your own: N, T, the learning rate and the seeds, by what other tasks say; no run is made.

    python scripts/advise.py --env-id CartPole-v1 --steps 2e5
    python scripts/advise.py --env-id gymnasium:my_module:MyTask-v0 --steps 2e5 --minibatch-size 64

Prints a command, its price here, and what 36 tasks of results/atlas scored. The rate is the law's (support/recipe.py).
Three seeds share a process, and the network of the best one is kept. A search over settings was tried and was not shown
to gain more than such a look-up (results/advise).
"""

from launching.root import ROOT

import shlex
import sys
from dataclasses import dataclass

import pandas as pd
from launching.jobs import read_jobs
from launching.machines import TOGETHER
from launching.price import estimate
from typing_extensions import Annotated

from support import recipe
from support.arguments import Count, Range, fail, parse, return_to_start
from support.envs import tasks

SEEN = (50_000, 900_000)  # the budgets of the tasks that the advice comes from


@dataclass
class Args:
    env_id: str  # the task: the --env-id of ppo_envpool.py
    steps: Annotated[float, Range(1, 1e15)]  # environment steps of the run, such as 2e6
    minibatch_size: Count = 256  # rows of a minibatch
    update_epochs: Count = 4  # passes over each batch
    seeds: Annotated[int, Range(1, 1000)] = 3  # runs, of which the best network is kept


def parse_args(argv):
    """Returns checked Args; exits 2 with one line on bad input."""
    args = parse(Args, argv, __doc__)
    tasks.check_env_id(args.env_id)
    if 1024 % args.minibatch_size:
        fail(f"--minibatch-size {args.minibatch_size}: expected a number of rows that divides 8 x 128")
    return args


def command(args):
    """The command line, and the name of its runs."""
    rate = recipe.law_rate(int(args.steps), args.update_epochs / args.minibatch_size)
    name = args.env_id.split(":")[-1].replace("/", "-")
    words = ["--env-id", args.env_id, "--total-timesteps", int(args.steps), "--num-envs", 8, "--num-steps", 128]
    words += ["--minibatch-size", args.minibatch_size, "--update-epochs", args.update_epochs, "--learning-rate", rate]
    words += ["--num-seeds", args.seeds, "--run-name", name]
    return shlex.join(map(str, ["python", "ppo_envpool.py", *words])), name


def what_others_got(steps):
    """Lines: the scores of the atlas's tasks with the budget nearest to `steps`."""
    table = pd.read_csv(ROOT / "results" / "atlas" / "by_budget.csv")
    row = table.loc[(table["steps"] / steps).map(lambda ratio: max(ratio, 1 / ratio)).idxmin()]
    default, fixed, kept = row.iloc[2:]
    yield f"{row['tasks']:.0f} tasks of {row['steps']:,.0f} steps scored at 8 x 128 (0: random play, 1: a good return):"
    yield f"  {default:.2f} at 2.5e-4, {fixed:.2f} at 2e-3, {kept:.2f} as the best of three at 2e-3 (results/atlas)"
    yield "  from 1e-3 to 8e-3 their mean score is flat: a factor of two in the rate does not matter much"


def main(args):
    return_to_start()
    line, name = command(args)
    print(f"{line}\npython scripts/evaluate.py runs/{name}    # plays the best network of the {args.seeds}\n")
    one_by_one = (line.replace(f"name {name}", f"name {name}/s{seed} --seed {seed}") for seed in range(args.seeds))
    print(*estimate(read_jobs(one_by_one), None, 1, 1, TOGETHER), *what_others_got(args.steps), sep="\n")
    if not SEEN[0] <= args.steps <= SEEN[1]:
        print(f"note: a guess, since the runs behind it made {SEEN[0]:,} to {SEEN[1]:,} steps")


if __name__ == "__main__":
    main(parse_args(sys.argv[1:]))
