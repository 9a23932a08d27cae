"""Where the CPU-seconds of ppo_envpool.py go: whole runs of the script itself, with a clock around its parts.

    python results/benchmark/benchmark_profile.py --out results/benchmark/profile.csv

A part's time is that of the process with EnvPool's threads, without the parts inside it; what no part has is
bookkeeping. As in benchmark_packs.py a run has 20 log points with all diagnostics and 50 evaluation episodes. `calls`
are PyTorch's operations in one update, views included. `floor` is what would remain of the time if a run were matrix
products and environments alone: the products of all updates at the speed of a large one (32 times 256 x 64 x 64) on
this core, and EnvPool's steps with random actions. Prints a line per run; --out has the same as a table.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT  # noqa: F401

import contextlib
import csv
import multiprocessing
import tempfile
import time
from dataclasses import dataclass
from typing import Annotated, Optional, Tuple

from support import catalog
from support.arguments import Count, Pattern, Steps, parse, writable

Setting = Annotated[str, Pattern(r"\S+:[1-9]\d*x[1-9]\d*", "TASK:NxT")]

KINDS = (
    "start,environment,policy,sampling,other of rollout,targets,gather,forward,backward,clip and Adam,bookkeeping,"
    "log point,evaluation and end"
).split(",")
PARTS = {  # what the script calls, by object and name: its kind. A forward pass is the rollout's, or of what calls it
    "script": {
        "collect_steps": "other of rollout",
        "sample": "sampling",
        "draw_noise": "sampling",
        "normalize_rewards": "targets",
        "gae": "targets",
        "batch_of": "targets",
        "minibatches": "gather",
        "ppo_loss": "forward",
        "gradient": "backward",
        "update": "clip and Adam",
        "gradient_noise": "log point",
        "diagnose": "log point",
    },
    "Pack": {"log": "log point", "add_coverage": "log point", "finish": "evaluation and end"},
    "Envs": {"step": "environment"},
    "Agent": {"forward": "policy"},
    "torch": {"randperm": "gather"},
}
WHOLE = ("log point", "evaluation and end", "start", "counting")  # parts inside these are theirs


@dataclass
class Args:
    settings: Tuple[Setting, ...] = (  # a task of EnvPool with discrete actions: environments x steps of a rollout
        "CartPole-v1:8x128",
        "CartPole-v1:64x16",
        "CartPole-v1:128x8",
        "LunarLander-v3:8x128",
        "MiniGrid-DoorKey-5x5-v0:8x128",
    )
    sizes: Tuple[Count, ...] = (1, 16)  # agents in a process
    steps: Steps = 100_000  # steps of each agent
    out: Optional[Path] = None  # a CSV file


def owners():
    """The objects of PARTS."""
    import torch

    import ppo_envpool as script
    from support.envs.spaces import Envs
    from support.pack import Pack

    return {"script": script, "Pack": Pack, "Envs": Envs, "Agent": script.Agent, "torch": torch}


class Clock:
    """Adds the CPU time of this process to the kind of work that is under way."""

    def __init__(self):
        self.seconds, self.kind, self.last = dict.fromkeys([*KINDS, "counting"], 0.0), "start", 0.0

    def switch(self, kind):
        """Begins another kind of work. Returns the one before."""
        now = time.process_time()
        self.seconds[self.kind] += now - self.last
        self.last, before, self.kind = now, self.kind, kind
        return before

    def put_around(self, owner, name, kind):
        """Replaces the function `name` of an object by one that counts as `kind`."""
        function = getattr(owner, name)

        def timed(*args, **kwargs):
            first = self.kind == "start" and name == "collect_steps"
            if self.kind in WHOLE and not first or name == "forward" and self.kind != "other of rollout":
                return function(*args, **kwargs)
            before = self.switch(kind)
            try:
                return function(*args, **kwargs)
            finally:
                self.switch("bookkeeping" if before == "start" else before)

        setattr(owner, name, timed)


def count_once(script, clock, found):
    """Replaces script.update by one that counts in its 20th call: operations, and floating-point ones of products."""
    update = script.update

    def counted(*args):
        found["updates"] += 1
        if found["updates"] != 20:
            return update(*args)
        before = clock.switch("counting")  # with its imports
        from torch.utils._python_dispatch import TorchDispatchMode
        from torch.utils.flop_counter import FlopCounterMode

        class Calls(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                found["calls"] += 1
                return function(*args, **(kwargs or {}))

        with FlopCounterMode(display=False) as flops, Calls():
            result = update(*args)
        found["flops"] = flops.get_total_flops()
        clock.switch(before)
        return result

    script.update = counted


def speed():
    """Floating-point operations of a large product of matrices per second, on one thread."""
    import torch

    x, y = torch.randn(32, 256, 64), torch.randn(32, 64, 64)
    times = []
    for _ in range(200):
        start = time.process_time()
        x.bmm(y)
        times.append(time.process_time() - start)
    return 2 * 32 * 256 * 64 * 64 / sorted(times)[100]


def environment_alone(script, argv, size, num_envs):
    """CPU-seconds of a step of all environments, with random actions of a task with discrete ones."""
    import numpy as np

    args = script.parse_args(argv)
    envs = script.make_envs(args, np.arange(size * num_envs).reshape(size, num_envs).tolist())
    envs.reset()
    actions = np.random.default_rng(1).integers(0, script.make_agent(args).actions.outputs, (500, size, num_envs))
    start = time.process_time()
    for action in actions:
        envs.step(action)
    return (time.process_time() - start) / len(actions)


def run(setting):
    """Trains once, in this process. Returns the row of the CSV file."""
    env_id, num_envs, num_steps, size, steps = setting
    clock, found = Clock(), {"calls": 0, "updates": 0, "flops": 0}
    found_in = owners()
    script = found_in["script"]
    count_once(script, clock, found)
    for owner, names in PARTS.items():
        for name, kind in names.items():
            clock.put_around(found_in[owner], name, kind)
    with tempfile.TemporaryDirectory() as runs_dir:
        flags = f"--env-id {env_id} --num-envs {num_envs} --num-steps {num_steps} --total-timesteps {steps}"
        flags += f" --learning-rate {catalog.cleanrl_rate(env_id)}"
        agents = f"--num-seeds {size} --num-logs 20 --eval-episodes 50 --runs-dir {runs_dir} --run-name run"
        sys.argv = ["ppo_envpool.py", *f"{flags} {agents}".split()]
        with contextlib.suppress(SystemExit):
            script.main(script.parse_args(sys.argv[1:]))
    clock.switch("start")
    total, batch = sum(clock.seconds[kind] for kind in KINDS), num_envs * num_steps
    seconds = found["updates"] * found["flops"] / speed()
    seconds += steps // batch * num_steps * environment_alone(script, sys.argv[1:], size, num_envs)
    row = {"task": env_id, "num_envs": num_envs, "num_steps": num_steps, "size": size, "cpu_seconds": round(total, 2)}
    row.update({kind: round(100 * clock.seconds[kind] / total, 1) for kind in KINDS})
    return {**row, "calls": found["calls"], "floor": round(100 * seconds / total, 1)}


def main(args):
    table = []
    with writable("out", args.out.parent) if args.out else contextlib.nullcontext():
        for setting in args.settings:
            env_id, n_by_t = setting.split(":")
            for size in args.sizes:
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    table.append(pool.apply(run, ((env_id, *map(int, n_by_t.split("x")), size, args.steps),)))
                print(*(f"{name}={value}" for name, value in table[-1].items()), flush=True)
        if args.out:
            with args.out.open("w", newline="") as file:
                writer = csv.DictWriter(file, table[0], lineterminator="\n")
                writer.writeheader()
                writer.writerows(table)


if __name__ == "__main__":
    main(parse(Args, sys.argv[1:], __doc__))
