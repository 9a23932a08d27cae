"""What the host does in a step of ppo_atari_envpool.py beside EnvPool: a rollout with a network that costs nothing.

    python results/benchmark/benchmark_rollout.py --out results/benchmark/rollout.csv    # beside no other program

The script itself runs, with one matrix product of the last row of each frame in place of its network. What remains are
copies of frames, actions and rewards, and some ten calls of PyTorch. After each rollout its environments make as many
steps alone, in the same threads: EnvPool's own step with random actions. `ratio` is the median of the ratios of these
pairs, so that a machine whose speed drifts does not show in it.

as on a GPU   one thread steps all environments at once, and EnvPool has `threads` of them
as on a CPU   `threads` threads step a piece of the environments each, whose EnvPool has one (devices.Workers)

Times are of one step of all environments, medians in microseconds: of the clock, of the CPU in all threads (EnvPool's
spin while they wait), and of the CPU in the thread that calls, which on a GPU does one thing after the other. With
--cuda the rollout is on the GPU, and the times have the launches and the waits. README.md beside --out gets the table.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT  # noqa: F401

import contextlib
import csv
import multiprocessing
import os
import re
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
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time, "caller": time.thread_time}
PLACE = re.compile(r"(?<=<!-- benchmark_rollout.py -->\n).*?(?=<!-- end -->)", re.S)  # of the table in README.md
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
    """In place of devices.Workers.map: carries out a rollout, then as many steps of its environments alone.

    rollouts, alone: of each pair the seconds of a step, by CLOCKS.
    """

    def __init__(self, num_steps, actions):
        self.rollouts, self.alone, self.calls = [], [], 0
        self.num_steps, self.actions = num_steps, actions
        self.map = devices.Workers.map

    def timed(self, function):
        """What the function returns, and its seconds per step."""
        start = [clock() for clock in CLOCKS.values()]
        result = function()
        return result, [(clock() - begin) / self.num_steps for clock, begin in zip(CLOCKS.values(), start)]

    def step_alone(self, pool):
        for action in self.actions:
            pool.envs.step(action[: len(pool.envs)])

    def __call__(self, workers, function, *sequences):
        sequences = [list(items) for items in sequences]
        if not hasattr(sequences[0][0], "step"):  # pieces of a minibatch
            return self.map(workers, function, *sequences)
        self.calls += 1
        result, of_rollout = self.timed(lambda: self.map(workers, function, *sequences))
        if self.calls > WARM_UP:
            _, of_envpool = self.timed(lambda: self.map(workers, self.step_alone, sequences[0]))
            self.rollouts.append(of_rollout)
            self.alone.append(of_envpool)
        return result


def measure(args, arrangement, num_envs):
    """Runs the script, in this process. Returns a row of the CSV file."""
    import ppo_atari_envpool as script

    num_steps, as_on_gpu = max(2, args.frames // num_envs), arrangement == ARRANGEMENTS[0]
    flags = f"--env-id {args.env_id} --num-envs {num_envs} --num-steps {num_steps} --num-logs 1 --no-diagnostics"
    flags += f" --update-epochs 1 --num-minibatches 1 --{'' if args.cuda else 'no-'}cuda"
    flags += f" --num-threads {1 if as_on_gpu and not args.cuda else args.threads}"
    flags += f" --total-timesteps {(WARM_UP - 1 + args.rounds) * num_envs * num_steps}"
    if as_on_gpu and not args.cuda:
        devices.env_threads = lambda *_: args.threads
        devices.Workers.pieces = lambda workers, number, size=32: [slice(0, number)]
    num_actions = int(script.library().make_spec(args.env_id).action_space.n)
    script.make_agent = lambda args, device="cpu": OneProduct(num_actions).to(device)
    pairs = Pairs(num_steps, np.random.default_rng(1).integers(0, num_actions, (num_steps, num_envs), dtype=np.int32))
    devices.Workers.map = lambda workers, *arguments: pairs(workers, *arguments)
    with tempfile.TemporaryDirectory() as runs_dir:
        words = [*flags.split(), "--runs-dir", runs_dir, "--run-name", "rollout"]
        with contextlib.suppress(SystemExit):
            script.main(script.parse_args(words))
    if len(pairs.rollouts) != args.rounds:
        raise RuntimeError("the script ended early")
    row = {"device": "cuda" if args.cuda else "cpu", "arrangement": arrangement, "num_envs": num_envs}
    row.update(threads=args.threads, rounds=args.rounds, load=round(os.getloadavg()[0], 1))
    for i, clock in enumerate(CLOCKS):
        both = [(rollout[i], alone[i]) for rollout, alone in zip(pairs.rollouts, pairs.alone)]
        row[f"{clock}_rollout"], row[f"{clock}_envpool"] = (round(1e6 * statistics.median(x)) for x in zip(*both))
        if clock != "caller" or as_on_gpu:  # where threads do the work, the calling one waits
            ratios = [rollout / alone for rollout, alone in both]
            row[f"{clock}_ratio"] = round(statistics.median(ratios), 3)
            row[f"{clock}_lowest"], row[f"{clock}_highest"] = round(min(ratios), 3), round(max(ratios), 3)
    return row


def render(rows):
    """The table in Markdown of the rows of the CSV file."""
    lines = [
        "| environments | arrangement | us a step | EnvPool alone | ratio | of CPU time | of the calling thread's |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [row["num_envs"], row["arrangement"], *(f"{int(row[f'wall_{x}']):,}" for x in ("rollout", "envpool"))]
        for clock in CLOCKS:
            numbers = [row.get(f"{clock}_{name}") for name in ("ratio", "lowest", "highest")]
            cells.append("{:.2f} ({:.2f} to {:.2f})".format(*map(float, numbers)) if numbers[0] else "")
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


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
            page = args.out.with_name("README.md")
            if page.exists():
                page.write_text(PLACE.sub(lambda _: render(table), page.read_text()))
    print(f"\n{render(table)}", end="")


if __name__ == "__main__":
    main(parse(Args, sys.argv[1:], __doc__))
