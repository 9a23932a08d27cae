"""How fast the scripts are, against the limit that environment and network set, and against other programs.

    python results/benchmark/benchmark.py                                  # at most 18 minutes (--minutes)
    python results/benchmark/benchmark.py --scripts ppo_atari_envpool.py --shapes 128x8,8x128 --rounds 5 --minutes 40 \\
        --peer "cleanrl=python ~/cleanrl/ppo_atari_envpool.py --num-envs {num_envs} --num-steps {num_steps}
                --total-timesteps {total_timesteps}"

The speed of a machine drifts by 20 % within minutes. So what is compared is measured in turn, A B C A B C ..., and a
ratio is the median of the ratios of single rounds, with their range. Sections:

env      EnvPool alone with random actions, in steps/s.
network  The script's network alone, in rows/s: inference on N rows without gradients; training on a minibatch, which is
         forward and backward of the mean of all outputs. No gather, no loss, no clipping, no optimiser. RND's two
         networks run together with the policy's, in training on the share of rows that the predictor learns. With `env`
         it gives the limit of a script that does one after the other: 1 / limit = 1 / env + 1 / inference +
         update_epochs / training.
scripts  Each script as a user runs it, in a process of its own, with diagnostics on and off. It logs half-way and at
         the end; the speed is that of the second half, without start-up and warm-up, with one log point.
peers    stable-baselines3's PPO, if it is installed, and every `--peer`: a command that prints its mean steps/s since
         its start as it goes (`SPS: 123`). Its speed is that of the second half too, over as many steps as the script
         in float32. A peer is ended after four times the time that the limit promises, plus half a minute.
pairs    ppo_envpool.py, which takes one thread: one run, and the sum of two at once.
busy     Each script in its fastest precision, and each peer: alone, and then beside one process that keeps a core busy.
ranks    ppo_ewma_atari_envpool.py under torchrun with one and two processes on the same cores or GPUs.
growth   How time and memory grow with N at a fixed T.

Memory is the peak resident size of a process (VmHWM), summed over the processes of torchrun. On a GPU with tensordict
installed, `network` is replayed as CUDA graphs.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT

import contextlib
import importlib.metadata
import importlib.util
import itertools
import json
import os
import platform
import re
import shlex
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Callable, NamedTuple, Tuple

import numpy as np
import torch
from benchmark_peers import (
    ATARI,
    EWMA,
    EXTRA_ARGUMENTS,
    GPU,
    SCRIPTS,
    SMALL,
    Setting,
    environments,
    last_line,
    load,
    measure_peer,
    noted_interrupts,
    parse_peer,
    raise_if_interrupted,
    run_process,
    sb3_peer,
    why_it_failed,
)
from benchmark_tables import LEFT_OUT, limit, render, summarize, title
from tqdm import tqdm
from typing_extensions import Annotated
from tyro.conf import UseAppendAction

from support import devices, reading
from support.arguments import Count, NByTs, NonNegative, Pattern, Range, Threads, fail, parse, writable

SECTIONS = ("env", "network", "scripts", "peers", "pairs", "busy", "ranks", "growth")
PRECISIONS = {"fp32": [], "bf16": ["--bf16"]}
# keeps a core busy until its parent ends
BUSY = [sys.executable, "-c", "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"]
START_SECONDS = 10  # for imports, starting the environments and ending: only to estimate what still fits
CUDA_GRAPHS = GPU and importlib.util.find_spec("tensordict") is not None


# ---- arguments -------------------------------------------------------------------------------------------------------
def words_of(choices):
    """The Pattern of one or several of these words, separated by commas."""
    one = "|".join(map(re.escape, choices))
    return Pattern(f"({one})(,({one}))*", f"some of {','.join(choices)}, with commas between them")


@dataclass
class Args:
    sections: Annotated[str, words_of(SECTIONS)] = ",".join(SECTIONS)  # what to measure: see the list above
    scripts: Annotated[str, words_of(SCRIPTS)] = ",".join(SCRIPTS)  # the scripts to measure
    shapes: NByTs = "128x8"  # environments x steps of a rollout
    precisions: Annotated[str, words_of(PRECISIONS)] = "fp32,bf16"  # without and with the scripts' --bf16
    growth: NByTs = ",".join(f"{2**k}x8" for k in range(3, 11))  # what `growth` measures
    rounds: Count = 3  # repetitions of everything but `growth`
    seconds: Annotated[float, Range(0.1, 1e9)] = 10.0  # seconds of training in each process
    minutes: NonNegative = 18.0  # minutes for the whole benchmark; leaves out what would not end in time
    num_threads: Threads = 0  # CPU threads of every program; 0: its own default
    out: Path = Path("results/benchmark/results.json")  # the JSON file; writes the tables beside it, as .md
    # SCRIPT:NAME=COMMAND or NAME=COMMAND: a command that prints its steps/s; {env_id} {num_envs} {num_steps}
    # {total_timesteps} are filled in
    peer: UseAppendAction[Tuple[str, ...]] = ()
    flags: UseAppendAction[Tuple[str, ...]] = ()  # also measures the scripts with these flags: --flags=--compile
    sb3: bool = True  # also measures stable-baselines3, where it is installed


def parse_args(argv):
    """Returns checked Args, with lists in place of words; exits 2 with one line on bad input."""
    args = parse(Args, argv, __doc__)
    for name in ("sections", "scripts", "precisions"):
        setattr(args, name, getattr(args, name).split(","))
    for name in ("shapes", "growth"):
        setattr(args, name, [Setting(*map(int, setting.split("x"))) for setting in getattr(args, name).split(",")])
    args.peer = [parse_peer(text) for text in args.peer]
    if args.out.suffix != ".json" or os.path.isdir(args.out):
        fail(f"--out {args.out}: expected the name of a .json file")
    names = [peer.name for peer in args.peer]
    if len({"sb3", "ours", *names}) < len(names) + 2:
        fail(f"--peer {' '.join(names)}: expected names that differ from each other, from sb3 and from ours")
    for script, setting, flags in itertools.product(args.scripts, args.shapes, ["", *args.flags]):
        load(script, setting, *shlex.split(flags))  # refuses now what a script would refuse
    for setting in args.growth:
        load(ATARI, setting)
    if args.sb3 and importlib.util.find_spec("stable_baselines3"):
        args.peer += [sb3_peer(script) for script in (ATARI, SMALL) if script in args.scripts]
    return args


def precisions_of(script, chosen):
    """The chosen precisions that the script has; float32, which every script has, if there are none."""
    args = importlib.import_module(script[: -len(".py")]).Args
    return [name for name in chosen if name == "fp32" or hasattr(args, "bf16")] or ["fp32"]


# ---- environment and network alone -----------------------------------------------------------------------------------
def rate(step, rows, seconds):
    """Rows/s of step() over `seconds`, after one call to warm up, or the four that a CUDA graph needs."""
    for _ in range(4 if GPU else 1):
        step()
    if GPU:
        torch.cuda.synchronize()
    start, calls = time.perf_counter(), 0
    while calls == 0 or time.perf_counter() - start < seconds:
        step()
        calls += 1
    if GPU:
        torch.cuda.synchronize()
    return calls * rows / (time.perf_counter() - start)


def measure_env(script, setting, seconds):
    """Steps/s of the script's environments alone."""
    module, args = load(script, setting)
    envs = environments(module, args, setting.num_envs)
    envs.reset()
    size = (1000, setting.num_envs)
    actions = itertools.cycle(np.random.default_rng(0).integers(envs.action_space.n, size=size, dtype="i4"))
    sps = rate(lambda: envs.step(next(actions)), setting.num_envs, seconds)
    envs.close()
    return {"env_id": args.env_id, "sps": sps}


def measure_network(script, setting, precision, seconds):
    """Rows/s of the script's network alone."""
    module, args = load(script, setting, *PRECISIONS[precision])
    device = devices.set_up(args)
    num_rows, axis = max(setting.num_envs, args.minibatch_size), 0
    if script == SMALL:
        (observation, _), axis = module.tasks.rows_of(args.env_id), 1  # axis 0 is of agents
        agent = module.make_agent(args).to(device)
        obs = torch.zeros((1, num_rows, observation.width), dtype=getattr(torch, observation.dtype), device=device)
    else:
        agent = module.make_agent(args, device)
        obs = torch.randint(256, (num_rows, *module.OBS_SHAPE), dtype=torch.uint8, device=device)
    modules = [agent]
    if hasattr(module, "RNDModel"):
        modules.append(module.RNDModel().to(device, memory_format=torch.channels_last))
    moments = (torch.zeros(84, 84, device=device), torch.ones(84, 84, device=device), 1.0)

    def forward(obs, share=1.0):
        outputs = [x for x in agent(obs) if torch.is_tensor(x)]  # the rest is the hidden layers
        outputs += [rnd(obs[: round(share * len(obs)), ..., -1], moments) for rnd in modules[1:]]
        return sum(x.mean() for x in outputs)

    def train(obs):
        for each in modules:
            each.zero_grad()
        mean = forward(obs, getattr(args, "update_proportion", 1.0))
        mean.backward()
        return mean.detach()

    infer, train = devices.graphed(forward, CUDA_GRAPHS), devices.graphed(train, CUDA_GRAPHS)
    acting, learning = (obs.narrow(axis, 0, rows) for rows in (setting.num_envs, args.minibatch_size))
    with torch.no_grad():
        inference = rate(lambda: infer(acting), setting.num_envs, seconds)
    training = rate(lambda: train(learning), args.minibatch_size, seconds)
    return {
        "inference": inference,
        "training": training,
        "minibatch_size": args.minibatch_size,
        "update_epochs": args.update_epochs,
    }


# ---- scripts ---------------------------------------------------------------------------------------------------------
def script_words(script, setting, iterations, runs_dir, *flags):
    """The command line after `python` of a training run with the directory runs_dir/measured."""
    words = [ROOT / script, "--num-envs", setting.num_envs, "--num-steps", setting.num_steps]
    words += ["--total-timesteps", iterations * setting.batch_size, "--num-logs", min(2, iterations)]
    words += ["--runs-dir", runs_dir, "--run-name", "measured", *EXTRA_ARGUMENTS.get(script, []), *flags]
    return [str(word) for word in words]


def measure_script(script, setting, iterations, seconds, num_threads, flags=(), ranks=None):
    """Runs a script from start to end. Returns its speed and memory, or {"error": its last line}.

    ranks: the number of torchrun's processes; None runs the script without torchrun.
    """
    python = [sys.executable]
    if ranks:
        python += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        num_threads = max(1, (num_threads or torch.get_num_threads()) // ranks)  # torchrun's default is one each
    if num_threads:
        flags = [*flags, "--num-threads", num_threads]
    with tempfile.TemporaryDirectory(prefix="benchmark-") as runs_dir:
        words = [*python, *script_words(script, setting, iterations, runs_dir, *flags)]
        ended = run_process(words, seconds, num_threads)
        curves = reading.read_curves(Path(runs_dir, "measured"))
    if ended["code"] != 0:
        return {"error": why_it_failed(ended, seconds)}
    return {
        "sps": float(curves["charts/SPS"][1][-1]),  # since the previous log point
        "iterations": iterations,
        "peak_bytes": ended["peak_bytes"],
        "gpu_bytes": ended["gpu_bytes"],
    }


def at_once(runs, measure):
    """Several measure() at once: the sums of their speeds and of their memory, or the first {"error"}."""
    with ThreadPoolExecutor(runs) as pool:
        found = list(pool.map(lambda _: measure(), range(runs)))
    errors = [result for result in found if "error" in result]
    return errors[0] if errors else {name: sum(result[name] for result in found) for name in ("sps", "peak_bytes")}


def beside(neighbours, measure):
    """measure() beside this number of processes that keep a core busy each."""
    busy = [subprocess.Popen(BUSY) for _ in range(neighbours)]
    try:
        return measure()
    finally:
        for process in busy:
            process.kill()
            process.wait()


# ---- the measurements ------------------------------------------------------------------------------------------------
class Task(NamedTuple):
    """One measurement."""

    what: dict  # fields of its record: what is measured
    seconds: float  # expected
    measure: Callable[[], dict]  # returns further fields of its record: what was found


class Plan:
    """The measurements and their order."""

    def __init__(self, args):
        self.args, self.estimates, self.start = args, {}, time.monotonic()
        self.seconds_alone = min(2.0, args.seconds / 10)  # for an environment or a network

    def fastest(self, script):
        """The faster precision on this machine, which may only emulate bfloat16."""
        precisions = precisions_of(script, self.args.precisions)
        slow = devices.bf16_hint(True) and not GPU
        return next((x for x in precisions if (x == "bf16") != bool(slow)), precisions[0])

    def estimate(self, script, setting, precision):
        """The limit in steps/s, from a quarter of a second for each part. It decides how long a process runs."""
        key = (script, setting, precision)
        if key not in self.estimates:
            seconds = min(0.25, self.seconds_alone)
            network = measure_network(script, setting, precision, seconds)
            env = measure_env(script, setting, seconds)
            self.estimates[key] = limit(env["sps"], network["inference"], network["training"], network["update_epochs"])
        return self.estimates[key]

    def iterations(self, script, setting, precision):
        """The iterations that train for --seconds: an even number, since half of them are measured."""
        sps = self.estimate(script, setting, precision)
        return max(4, 2 * round(self.args.seconds * sps / (2 * setting.batch_size)))

    def training_task(self, what, setting, iterations, sps, flags, ranks=None):
        """The Task that runs a script for some iterations. sps: its estimated speed in steps/s."""
        expected = iterations * setting.batch_size / sps
        time_limit = 300 + 20 * expected  # for a process that hangs
        measure = partial(
            measure_script, what["script"], setting, iterations, time_limit, self.args.num_threads, flags, ranks
        )
        return Task(what, expected + START_SECONDS, measure)

    def variants(self, script):
        """(precision, diagnostics, flags) of each way to run a script. Each costs one process per round.

        Runs without diagnostics and with further flags are in the fastest precision only, where diagnostics take the
        largest share of the time.
        """
        flags, fastest = [*self.args.flags], self.fastest(script)
        if CUDA_GRAPHS and "--cuda-graphs" not in flags and script != SMALL:
            flags.append("--cuda-graphs")
        return [
            *((precision, True, "") for precision in precisions_of(script, self.args.precisions)),
            (fastest, False, ""),
            *((fastest, True, flag) for flag in flags),
        ]

    def env_tasks(self, script, setting):
        what = {"shape": str(setting), "section": "env", "script": script}
        yield Task(what, self.seconds_alone, partial(measure_env, script, setting, self.seconds_alone))

    def network_tasks(self, script, setting):
        for precision in precisions_of(script, self.args.precisions):
            what = {"shape": str(setting), "section": "network", "script": script, "precision": precision}
            measure = partial(measure_network, script, setting, precision, self.seconds_alone)
            yield Task(what, 2 * self.seconds_alone, measure)

    def script_tasks(self, script, setting):
        module, _ = load(script, setting)
        for precision, diagnostics, flags in self.variants(script):
            what = {
                "shape": str(setting),
                "section": "scripts",
                "script": script,
                "precision": precision,
                "diagnostics": diagnostics,
                "flags": flags,
                "log_steps": module.Args.total_timesteps // module.Args.num_logs,  # between log points by default
            }
            words = [*PRECISIONS[precision], *shlex.split(flags), *([] if diagnostics else ["--no-diagnostics"])]
            iterations, sps = self.iterations(script, setting, precision), self.estimate(script, setting, precision)
            yield self.training_task(what, setting, iterations, sps, words)

    def peer_task(self, section, peer, setting):
        """The Task that runs a peer for as many iterations as the script in float32."""
        what = {"shape": str(setting), "section": section, "script": peer.script, "name": peer.name}
        module, _ = load(peer.script, setting)
        total_timesteps = self.iterations(peer.script, setting, "fp32") * setting.batch_size
        expected = total_timesteps / self.estimate(peer.script, setting, "fp32")
        command = peer.command_for(module.Args.env_id, setting, total_timesteps)
        measure = partial(measure_peer, command, 30 + 4 * expected, self.args.num_threads)
        return Task(what, 2 * (expected + START_SECONDS), measure)

    def peer_tasks(self, setting):
        for peer in self.args.peer:
            yield self.peer_task("peers", peer, setting)

    def pair_tasks(self, setting):
        what = {"shape": str(setting), "section": "pairs", "script": SMALL, "precision": "fp32"}
        iterations, sps = self.iterations(SMALL, setting, "fp32"), self.estimate(SMALL, setting, "fp32")
        task = self.training_task(what, setting, iterations, sps, [])
        for runs in (1, 2):
            yield task._replace(what={**what, "runs": runs}, measure=partial(at_once, runs, task.measure))

    def busy_tasks(self, setting):
        """Each program alone and, right after that, beside one busy process."""
        programs = []
        for script in self.args.scripts:
            precision = self.fastest(script)
            what = {"shape": str(setting), "section": "busy", "script": script, "name": "ours", "precision": precision}
            iterations, sps = (f(script, setting, precision) for f in (self.iterations, self.estimate))
            programs.append(self.training_task(what, setting, iterations, sps, PRECISIONS[precision]))
        programs += [self.peer_task("busy", peer, setting) for peer in self.args.peer]
        for task in programs:
            for neighbours in (0, 1):
                measure = partial(beside, neighbours, task.measure)
                yield task._replace(what={**task.what, "neighbours": neighbours}, measure=measure)

    def rank_tasks(self, setting):
        precision = self.fastest(ATARI)
        flags = ["--no-diagnostics", *PRECISIONS[precision]]
        for ranks in (1, 2):
            what = {"shape": str(setting), "section": "ranks", "script": EWMA, "precision": precision}
            iterations, sps = self.iterations(ATARI, setting, precision), self.estimate(ATARI, setting, precision)
            yield self.training_task({**what, "ranks": ranks}, setting, iterations, sps, flags, ranks)

    def growth_tasks(self):
        """Half as long as the other tasks; one iteration if its batch takes longer than that."""
        precision = self.fastest(ATARI)
        for setting in self.args.growth:
            what = {"section": "growth", "shape": str(setting), "script": ATARI, "precision": precision}
            similar = Setting(min(setting.num_envs, 128), min(setting.num_steps, 32))  # a large batch is slow to try
            sps = self.estimate(ATARI, similar, precision)
            iterations = self.args.seconds / 2 * sps / setting.batch_size
            iterations = 1 if iterations < 0.5 else max(2, 2 * round(iterations / 2))
            flags = ["--no-diagnostics", *PRECISIONS[precision]]
            yield self.training_task(what, setting, iterations, sps, flags)

    def tasks(self, first_round):
        """Yields the tasks of one round. Tasks that are compared with each other follow each other."""
        sections = self.args.sections
        per_script = {"env": self.env_tasks, "network": self.network_tasks, "scripts": self.script_tasks}
        for setting in self.args.shapes:
            for script in self.args.scripts:
                for section, tasks in per_script.items():
                    if section in sections:
                        yield from tasks(script, setting)
            if "peers" in sections:
                yield from self.peer_tasks(setting)
            if "pairs" in sections and SMALL in self.args.scripts:
                yield from self.pair_tasks(setting)
            if "busy" in sections:
                yield from self.busy_tasks(setting)
            if "ranks" in sections:
                yield from self.rank_tasks(setting)
        if "growth" in sections and first_round:
            yield from self.growth_tasks()

    def measure(self, records):
        """Appends one record per measurement to `records`, round by round, while there is time."""
        last_seconds = {}  # by title: the time of the measurement in the previous round
        bar = tqdm(disable=None, unit="measurement", dynamic_ncols=True)
        for round_number in range(1, self.args.rounds + 1):
            for task in self.tasks(first_round=round_number == 1):
                raise_if_interrupted()
                name = title(task.what)
                elapsed = time.monotonic() - self.start
                if elapsed + last_seconds.get(name, task.seconds) > 60 * self.args.minutes:
                    error = f"{LEFT_OUT}--minutes {self.args.minutes:g}"
                    records.append({"round": round_number, **task.what, "error": error})
                    continue
                bar.set_postfix_str(name)
                load_before, begin = os.getloadavg()[0], time.monotonic()
                try:
                    found = task.measure()
                except (OSError, RuntimeError, MemoryError) as error:
                    found = {"error": f"{type(error).__name__}: {last_line(str(error))}"}
                last_seconds[name] = time.monotonic() - begin
                timing = {"seconds": round(last_seconds[name], 2), "load": round(load_before, 2)}
                records.append({"round": round_number, **task.what, **found, **timing})
                bar.update()
                minutes = (time.monotonic() - self.start) / 60
                bar.write(f"{minutes:5.1f} min  round {round_number}  {name:<62}  {in_words(found)}")
                sys.stdout.flush()
        bar.close()


def in_words(found):
    """The main results of a measurement, as text."""
    if "error" in found:
        return f"error: {found['error']}"
    names = [name for name in ("sps", "inference", "training") if name in found]
    return "  ".join(f"{name} {found[name]:,.0f}" for name in names)


# ---- main ------------------------------------------------------------------------------------------------------------
def describe_machine():
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    commit, dirty, _ = subprocess.run(git, capture_output=True, text=True).stdout.strip().partition("-dirty")
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    versions = {}
    for name in ("torch", "envpool", "numpy", "stable-baselines3"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return {
        "cpu": cpu[1] if cpu else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if GPU else None,
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "commit": commit or None,
        "dirty": bool(dirty),
        "versions": {"python": platform.python_version(), **versions},
        "start": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "load": os.getloadavg()[0],
        "environment": {name: os.environ[name] for name in os.environ if re.match("OMP_|GOMP_|MKL_|KMP_", name)},
    }


def main(args):
    """Measures, writes the JSON file and the tables. Returns the exit code."""
    if args.num_threads:
        torch.set_num_threads(args.num_threads)
    machine, records = describe_machine(), []
    if machine["load"] > 0.5:
        print(
            f"note: the load average is {machine['load']:.1f}: other programs slow down the benchmark",
            flush=True,
        )
    with writable("out", args.out.parent):
        pass
    code = 0
    try:
        with noted_interrupts():
            Plan(args).measure(records)
    except KeyboardInterrupt:
        print("interrupted: the results so far follow", flush=True)
        code = 130
    summary = summarize(records)
    results = {
        "command": shlex.join(sys.argv),
        "machine": machine,
        "settings": vars(args),
        "summary": summary,
        "records": records,
    }
    args.out.write_text(json.dumps(results, indent=1, default=str) + "\n")
    args.out.with_suffix(".md").write_text(render(summary, machine))
    print(f"\n{render(summary, machine)}\nwritten: {args.out} and {args.out.with_suffix('.md')}")
    return code


if __name__ == "__main__":
    sys.exit(main(parse_args(sys.argv[1:])))
