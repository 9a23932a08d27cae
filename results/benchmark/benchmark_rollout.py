"""What the host does in a step of ppo_atari_envpool.py beside EnvPool: its rollout with a network that costs nothing.

    python results/benchmark/benchmark_rollout.py --out results/benchmark/rollout.csv    # run nothing else beside it

The script itself runs, with one matrix product of the last row of each frame in place of its network. After each
rollout EnvPool's environments make as many steps alone, in the same threads: envs.step with random actions, and nothing
else. So both are measured within a second or two, and `ratio` is the median of the ratios of these pairs. What remains
is copies of frames, actions and rewards, and some ten calls of PyTorch.

as on a GPU   one thread steps all environments at once, and EnvPool has `threads` of them
as on a CPU   `threads` threads step a piece of the environments each, whose EnvPool has one thread (devices.Workers)

Times are medians of a step of all environments, in microseconds: of a clock, and of the CPU in all threads of the
process. With --cuda the network and the rollout are on the GPU: then the times have its launches and waits too.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT  # noqa: F401

import contextlib
import csv
import multiprocessing
import os
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Optional, Tuple

import numpy as np
import torch

from support import devices
from support.arguments import Count, Threads, parse, writable

ARRANGEMENTS = ("as on a GPU", "as on a CPU")
WARM_UP = 2  # calls of Workers.map: the environments' first reset, and a rollout


@dataclass
class Args:
    envs: Tuple[Count, ...] = (8, 128)  # numbers of environments
    rounds: Count = 7  # pairs of a rollout and of as many steps of EnvPool alone
    frames: Count = 4096  # of a rollout, over all environments
    threads: Threads = 0  # EnvPool's threads; 0: as many as cores
    env_id: str = "Breakout-v5"  # EnvPool's Atari game
    cuda: bool = False  # the network and the rollout on the GPU
    out: Optional[Path] = None  # a CSV file


class OneProduct(torch.nn.Module):
    """Returns what the script's network does, from one product of the last row of pixels, (N, 336) @ (336, A)."""

    def __init__(self, num_actions):
        super().__init__()
        self.actor = torch.nn.Linear(84 * 4, num_actions)

    def forward(self, obs):
        logits = self.actor(obs[:, -1].flatten(1).float())
        return logits, logits[:, 0], [[logits]]


class Pairs:
    """Carries out a rollout as devices.Workers.map does, then as many steps of its environments alone.

    rollouts, alone: (seconds, CPU-seconds) of a step.
    """

    def __init__(self, num_steps, num_actions):
        self.rollouts, self.alone, self.calls, self.num_steps = [], [], 0, num_steps
        self.actions = np.random.default_rng(1).integers(0, num_actions, (num_steps, 1024), dtype=np.int32)
        self.map = devices.Workers.map

    def seconds(self, function):
        wall, cpu = time.perf_counter(), time.process_time()
        result = function()
        return result, ((time.perf_counter() - wall) / self.num_steps, (time.process_time() - cpu) / self.num_steps)

    def step_alone(self, pool):
        number = pool.config["num_envs"]
        for action in self.actions:
            pool.step(action[:number])

    def __call__(self, workers, function, *sequences):
        sequences = [list(items) for items in sequences]
        if not hasattr(sequences[0][0], "step"):  # pieces of a minibatch
            return self.map(workers, function, *sequences)
        self.calls += 1
        result, of_rollout = self.seconds(lambda: self.map(workers, function, *sequences))
        if self.calls > WARM_UP:
            self.rollouts.append(of_rollout)
            self.alone.append(self.seconds(lambda: self.map(workers, self.step_alone, sequences[0]))[1])
        return result


def measure(args, arrangement, num_envs):
    """Runs the script, in this process. Returns a row of the CSV file."""
    import ppo_atari_envpool as script

    num_steps = max(2, args.frames // num_envs)
    flags = (
        f"--env-id {args.env_id} --num-envs {num_envs} --num-steps {num_steps} --update-epochs 1 --num-minibatches 1"
    )
    flags += f" --total-timesteps {(WARM_UP - 1 + args.rounds) * num_envs * num_steps} --num-logs 1 --no-diagnostics"
    of_gpu = arrangement == ARRANGEMENTS[0]
    flags += f" --num-threads {1 if of_gpu and not args.cuda else args.threads} --{'' if args.cuda else 'no-'}cuda"
    if of_gpu and not args.cuda:
        make = script.make_envpool
        script.make_envpool = lambda env_id, seeds, _, **options: make(env_id, seeds, args.threads, **options)
        devices.Workers.pieces = lambda workers, number, size=32: [slice(0, number)]
    num_actions = int(script.library().make_spec(args.env_id).action_space.n)
    script.make_agent = lambda args, device="cpu": OneProduct(num_actions).to(device)
    pairs = Pairs(num_steps, num_actions)
    devices.Workers.map = lambda workers, *arguments: pairs(workers, *arguments)
    with tempfile.TemporaryDirectory() as runs_dir:
        words = [*flags.split(), "--runs-dir", runs_dir, "--run-name", "rollout"]
        with contextlib.suppress(SystemExit):
            script.main(script.parse_args(words))
    assert len(pairs.rollouts) == args.rounds, "the script ended early"
    row = {
        "arrangement": arrangement + (" with one" if args.cuda else ""),
        "num_envs": num_envs,
        "threads": args.threads,
    }
    row["rounds"] = args.rounds
    for name, place in (("", 0), ("cpu_", 1)):
        both = [(rollout[place], alone[place]) for rollout, alone in zip(pairs.rollouts, pairs.alone)]
        row[f"{name}rollout_us"], row[f"{name}envpool_us"] = (round(1e6 * statistics.median(x)) for x in zip(*both))
        ratios = [rollout / alone for rollout, alone in both]
        row[f"{name}ratio"] = round(statistics.median(ratios), 3)
        row[f"{name}ratio_low"], row[f"{name}ratio_high"] = round(min(ratios), 3), round(max(ratios), 3)
    return {**row, "load": round(os.getloadavg()[0], 1)}


def main(args):
    args.threads = args.threads or devices.default_threads()
    table = []
    with writable("out", args.out.parent) if args.out else contextlib.nullcontext():
        for num_envs in args.envs:
            for arrangement in ARRANGEMENTS[: 1 if args.cuda else 2]:
                with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                    table.append(pool.submit(measure, args, arrangement, num_envs).result())
                print(*(f"{name}={value}" for name, value in table[-1].items()), flush=True)
        if args.out:
            with args.out.open("w", newline="") as file:
                writer = csv.DictWriter(file, table[0], lineterminator="\n")
                writer.writeheader()
                writer.writerows(table)


if __name__ == "__main__":
    main(parse(Args, sys.argv[1:], __doc__))
