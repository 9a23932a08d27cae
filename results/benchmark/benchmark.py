"""How fast the scripts are on this machine, beside other programs that do the same work, and EnvPool alone.

    python results/benchmark/benchmark.py                                  # at most 18 minutes (--minutes)
    python results/benchmark/benchmark.py --scripts ppo_atari_envpool.py --shapes 128x8,8x128 --rounds 5 --minutes 40 \\
        --flags=--bf16 --peer "cleanrl=python ~/cleanrl/ppo_atari_envpool.py --env-id {env_id} --num-envs {num_envs}
                --num-steps {num_steps} --total-timesteps {total_timesteps}"

EnvPool alone steps with random actions: no program that waits for each step is faster. A script runs as a user runs it,
in a process of its own, with diagnostics and without, and once more with each --flags. It logs half-way and at the end;
its speed is that of the second half, without start-up and warm-up, with one log point. A --peer is a command that
prints its mean steps/s since its start as it goes (`SPS: 123`). It makes as many steps, and its speed is that of the
second half too. It is ended after four times the time that the steps should take, plus half a minute.

The speed of a machine drifts by 20 % within minutes. So what is compared is measured in turn, A B C A B C ..., and a
ratio is the median of the ratios of single rounds, with their range. --seconds is on two cores of an AMD EPYC: a faster
machine needs more. Memory is the peak resident size of a process (VmHWM), with its children.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT

import contextlib
import importlib
import inspect
import itertools
import json
import os
import platform
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Tuple

import numpy as np
import torch
from tqdm import tqdm
from typing_extensions import Annotated
from tyro.conf import UseAppendAction

from support import catalog, reading
from support.arguments import Count, NByTs, NonNegative, Pattern, Range, Threads, fail, parse, writable
from support.envs.episodes import env_seeds
from support.versions import commit_and_versions

SISTER = "ppo_ewma_atari_envpool.py"  # by default as fast as ATARI
SCRIPTS = tuple(f"{name}.py" for name, script in catalog.SCRIPTS.items() if script.envpool and f"{name}.py" != SISTER)
ATARI = "ppo_atari_envpool.py"  # a --peer that names no script is a peer of this one
# RND's normaliser takes 50 random rollouts before the first iteration: a short run takes one
EXTRA_ARGUMENTS = {
    "ppo_rnd_envpool.py": ["--num-iterations-obs-norm-init", "1"],
    "ppo_envpool.py": ["--learning-rate", "2.5e-4"],  # its default depends on the steps
}
SPEED = re.compile(r"(?:SPS|sps|steps/s)\W{1,3}([\d,]+(?:\.\d+)?)|([\d,]+(?:\.\d+)?) ?(?:SPS|sps|steps/s)\b")
GPU = torch.cuda.is_available()
INTERRUPTS = []  # the signals that have come: an exception inside Popen would leave its child alive
ALONE = "EnvPool alone"


class Setting(NamedTuple):
    """N x T: environments and steps of a rollout."""

    num_envs: int
    num_steps: int

    def __str__(self):
        return f"{self.num_envs}x{self.num_steps}"

    @property
    def batch_size(self):
        return self.num_envs * self.num_steps


class Peer(NamedTuple):
    """A program by others that does the work of one of the scripts."""

    script: str  # the script to compare it with
    name: str
    command: str  # with {env_id}, {num_envs}, {num_steps} and {total_timesteps} in it

    def command_for(self, env_id, setting, total_timesteps):
        return self.command.format(env_id=env_id, total_timesteps=total_timesteps, **setting._asdict())


# ---- arguments -------------------------------------------------------------------------------------------------------
A_SCRIPT = "|".join(map(re.escape, SCRIPTS))
Scripts = Annotated[str, Pattern(f"({A_SCRIPT})(,({A_SCRIPT}))*", f"some of {','.join(SCRIPTS)}, commas between them")]


@dataclass
class Args:
    scripts: Scripts = ",".join(SCRIPTS)  # the scripts to measure
    shapes: NByTs = "128x8"  # environments x steps of a rollout
    rounds: Count = 3  # repetitions of everything
    seconds: Annotated[float, Range(0.1, 1e9)] = 20.0  # of training in each process, as it is known of two cores
    minutes: NonNegative = 18.0  # for the whole benchmark; leaves out what would not end in time
    num_threads: Threads = 0  # CPU threads of every program; 0: its own default
    flags: UseAppendAction[Tuple[str, ...]] = ()  # also measures the scripts with these flags: --flags=--bf16
    # SCRIPT:NAME=COMMAND or NAME=COMMAND: a command that prints its steps/s; {env_id} {num_envs} {num_steps}
    # {total_timesteps} are filled in
    peer: UseAppendAction[Tuple[str, ...]] = ()
    out: Path = Path("results/benchmark/results.json")  # the JSON file; writes the tables beside it, as .md


def parse_peer(text):
    """The Peer in "[SCRIPT.py:]NAME=COMMAND". Exits 2 with one line if the text has another form."""
    match = re.fullmatch(r"(?:([\w.]+\.py):)?([\w. -]+)=(.+)", text, re.DOTALL)
    if not match:
        fail(f"--peer {text}: expected NAME=COMMAND or SCRIPT.py:NAME=COMMAND")
    peer = Peer(match[1] or ATARI, match[2], " ".join(match[3].split()))
    if peer.script not in SCRIPTS:
        fail(f"--peer {text}: expected one of {', '.join(SCRIPTS)}")
    try:
        peer.command_for("Breakout-v5", Setting(1, 1), 1)
    except (KeyError, IndexError, ValueError):
        fail(f"--peer {text}: expected no braces but {{env_id}}, {{num_envs}}, {{num_steps}} and {{total_timesteps}}")
    return peer


def parse_args(argv):
    """Returns checked Args, with lists in place of words; exits 2 with one line on bad input."""
    args = parse(Args, argv, __doc__)
    args.scripts = args.scripts.split(",")
    args.shapes = [Setting(*map(int, shape.split("x"))) for shape in args.shapes.split(",")]
    args.peer = [parse_peer(text) for text in args.peer]
    names = [peer.name for peer in args.peer]
    if len({ALONE, *names}) < len(names) + 1:
        fail(f"--peer {' '.join(names)}: expected names that differ")
    if args.out.suffix != ".json" or os.path.isdir(args.out):
        fail(f"--out {args.out}: expected the name of a .json file")
    for script, setting, flags in itertools.product(args.scripts, args.shapes, ["", *args.flags]):
        load(script, setting, *shlex.split(flags))  # refuses now what a script would refuse
    return args


def load(script, setting, *flags):
    """The script as a module, and its checked arguments."""
    module = importlib.import_module(script[: -len(".py")])
    words = ["--num-envs", str(setting.num_envs), "--num-steps", str(setting.num_steps)]
    return module, module.parse_args([*words, *EXTRA_ARGUMENTS.get(script, []), *flags])


# ---- processes -------------------------------------------------------------------------------------------------------
def peak_bytes(pid):
    """The peak resident size of a process and its living children, theirs included."""
    with contextlib.suppress(OSError, TypeError):  # it has ended
        status = Path(f"/proc/{pid}/status").read_text()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return 1024 * int(re.search(r"VmHWM:\s*(\d+) kB", status)[1]) + sum(map(peak_bytes, children))
    return 0


def raise_if_interrupted():
    if INTERRUPTS:
        raise KeyboardInterrupt


def run_process(words, seconds, num_threads=0, folder=None):
    """Runs a command for at most `seconds`, then ends all of its processes. num_threads: 0 takes the program's default.

    Returns {"code": exit code, or None if it had to be ended, "output": stdout and stderr, "peak_bytes", "gpu_bytes"}.
    """
    env = {**os.environ, "PYTHONUNBUFFERED": "1", "WANDB_MODE": "disabled"}
    if num_threads:
        env["OMP_NUM_THREADS"] = str(num_threads)
    peak, gpu_bytes, gpu_free = 0, 0, torch.cuda.mem_get_info()[0] if GPU else 0
    with tempfile.TemporaryFile("w+") as output:
        streams = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
        child = subprocess.Popen(list(map(str, words)), env=env, cwd=folder, start_new_session=True, **streams)
        try:
            deadline = time.monotonic() + seconds
            while child.poll() is None and time.monotonic() < deadline:
                raise_if_interrupted()
                peak = max(peak, peak_bytes(child.pid))
                if GPU:
                    gpu_bytes = max(gpu_bytes, gpu_free - torch.cuda.mem_get_info()[0])
                time.sleep(0.1)
            code = child.poll()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        output.seek(0)
        text = output.read()
    return {"code": code, "output": text, "peak_bytes": peak, "gpu_bytes": gpu_bytes if GPU else None}


def last_line(text):
    return next((line.strip()[:200] for line in reversed(text.splitlines()) if line.strip()), "no output")


def why_it_failed(ended, seconds):
    """One line on a process that failed. ended: the result of run_process."""
    return last_line(ended["output"]) if ended["code"] else f"had not ended after {seconds:.0f} s"


# ---- measurements ----------------------------------------------------------------------------------------------------
def envpool_alone(script, setting, seconds, num_threads, num_points=1):
    """Steps/s of the script's environments alone, with random actions, in equal parts of the time."""
    module, args = load(script, setting)
    threads = {"num_threads": num_threads}
    takes = inspect.signature(module.make_envs).parameters.keys() & threads  # those of ppo_envpool.py are in args
    seeds = env_seeds(args.seed, "train", 0, range(setting.num_envs))
    envs = module.make_envs(args, seeds, **(threads if takes else {}))
    envs.reset()
    size = (1000, setting.num_envs)
    actions = np.random.default_rng(0).integers(envs.action_space.n, size=size, dtype=np.int32)
    envs.step(actions[0])
    points = []
    for _ in range(num_points):
        start, steps = time.perf_counter(), 0
        while steps == 0 or time.perf_counter() - start < seconds / num_points:
            envs.step(actions[steps % len(actions)])
            steps += 1
        points.append(steps * setting.num_envs / (time.perf_counter() - start))
    envs.close()
    return points


def measure_envpool(script, setting, seconds):
    """The same in as many threads as PyTorch has."""
    return {"sps": envpool_alone(script, setting, seconds, torch.get_num_threads())[0]}


def measure_script(script, setting, iterations, seconds, num_threads=0, flags=()):
    """Runs a script from start to end. Returns its speed and memory, or {"error": its last line}."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as runs_dir:
        words = [sys.executable, ROOT / script, "--num-envs", setting.num_envs, "--num-steps", setting.num_steps]
        words += ["--total-timesteps", iterations * setting.batch_size, "--num-logs", min(2, iterations)]
        words += ["--runs-dir", runs_dir, "--run-name", "measured", *EXTRA_ARGUMENTS.get(script, []), *flags]
        words += ["--num-threads", num_threads] if num_threads else []
        ended = run_process(words, seconds, num_threads)
        curves = reading.read_curves(Path(runs_dir, "measured"))
    if ended["code"] != 0:
        return {"error": why_it_failed(ended, seconds)}
    speed = float(curves["charts/SPS"][1][-1])  # since the previous log point
    return {"sps": speed, "peak_bytes": ended["peak_bytes"], "gpu_bytes": ended["gpu_bytes"]}


def speed_of_second_half(speeds):
    """Steps/s in the second half of a run, from the mean speeds since its start, printed at equal intervals.

    After all lines the run has made s steps in s / speeds[-1] seconds. After half of the lines it had made fraction * s
    steps in fraction * s / speeds[half - 1] seconds. A single line gives its own speed.
    """
    half = len(speeds) // 2
    fraction = half / len(speeds)
    seconds_per_step = 1 / speeds[-1] - fraction / speeds[half - 1]  # of the second half, over the steps of the whole
    return (1 - fraction) / seconds_per_step if half and seconds_per_step > 0 else speeds[-1]


def measure_peer(command, seconds, num_threads=0):
    """Runs the command of a peer. Returns its speed and memory, or {"error": its last line}."""
    ended = run_process(["/bin/sh", "-c", command], seconds, num_threads)
    if ended["code"]:
        return {"error": why_it_failed(ended, seconds)}
    speeds = [float((match[1] or match[2]).replace(",", "")) for match in SPEED.finditer(ended["output"])]
    speeds = [speed for speed in speeds if speed > 0]
    if not speeds:
        return {"error": f"printed no steps/s: {last_line(ended['output'])}"}
    speed = speed_of_second_half(speeds)
    return {"sps": speed, "ended": ended["code"] is None, "peak_bytes": ended["peak_bytes"]}


def measurements(args):
    """Yields of one round (what is measured, the seconds that it may take, a function that measures it)."""
    for setting, script in itertools.product(args.shapes, args.scripts):
        what = {"shape": str(setting), "script": script}
        yield {**what, "name": ALONE}, 2, partial(measure_envpool, script, setting, min(2.0, args.seconds / 10))
        speed = catalog.script(script).speed
        iterations = max(4, 2 * round(args.seconds * speed / (2 * setting.batch_size)))  # the second half is measured
        steps = iterations * setting.batch_size
        seconds = steps / speed
        for peer in args.peer:
            if peer.script == script:
                command = peer.command_for(load(script, setting)[1].env_id, setting, steps)
                function = partial(measure_peer, command, 30 + 4 * seconds, args.num_threads)
                yield {**what, "name": peer.name}, 2 * (seconds + 10), function
        for flags in ("", "--no-diagnostics", *args.flags):
            words = script, setting, iterations, 300 + 20 * seconds, args.num_threads, shlex.split(flags)
            yield {**what, "name": f"ours {flags}".strip()}, seconds + 10, partial(measure_script, *words)


def measure(args, records):
    """Appends one record per measurement to `records`, round by round, while there is time."""
    start, last_seconds = time.monotonic(), {}
    bar = tqdm(disable=None, unit="measurement", dynamic_ncols=True)
    for number in range(1, args.rounds + 1):
        for what, seconds, function in measurements(args):
            raise_if_interrupted()
            name, begin = " ".join(what.values()), time.monotonic()
            if begin - start + last_seconds.get(name, seconds) > 60 * args.minutes:
                records.append({"round": number, **what, "error": f"left out: --minutes {args.minutes:g}"})
                continue
            bar.set_postfix_str(name)
            load_before = round(os.getloadavg()[0], 2)
            try:
                found = function()
            except (OSError, RuntimeError, MemoryError) as error:
                found = {"error": f"{type(error).__name__}: {last_line(str(error))}"}
            last_seconds[name] = time.monotonic() - begin
            records.append({"round": number, **what, **found, "load": load_before})
            bar.update()
            said = f"error: {found['error']}" if "error" in found else f"{found['sps']:,.0f} steps/s"
            bar.write(f"{(time.monotonic() - start) / 60:5.1f} min  round {number}  {name:<60}  {said}")
            sys.stdout.flush()
    bar.close()


# ---- the table -------------------------------------------------------------------------------------------------------
def spread(values, form=",.0f"):
    """The median, and the range in brackets, as text; "-" without values."""
    if not values:
        return "-"
    text = f"{statistics.median(values):{form}}"
    return text if len(values) == 1 else f"{text} ({min(values):{form}} to {max(values):{form}})"


def render(records, machine):
    """The tables as Markdown: one for each N x T and script."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items() if version)
    where = f"{machine['cpu']}, {machine['cores']} cores, {machine['gpu'] or 'no GPU'}; {versions}; "
    where += f"commit {str(machine['commit'])[:10]}{' and changes' if machine['dirty'] else ''}, {machine['start']}"
    parts = [where, "Medians over the rounds, and in brackets their range."]
    for shape, script in dict.fromkeys((x["shape"], x["script"]) for x in records):
        speeds, memory = {}, {}  # by name: {round: number}
        for x in records:
            if (x["shape"], x["script"]) == (shape, script):
                speeds.setdefault(x["name"], {}).update({x["round"]: x["sps"]} if "sps" in x else {})
                memory.setdefault(x["name"], []).extend([x["peak_bytes"] / 1e9] if "peak_bytes" in x else [])
        others = [name for name in speeds if not name.startswith("ours")]
        lines = [["", "steps/s", *(f"times {name}" for name in others), "peak GB"], ["---"] * (len(others) + 3)]
        for name, of_round in speeds.items():
            ratios = [[of_round[i] / speeds[x][i] for i in of_round if i in speeds[x]] for x in others]
            cells = [spread(list(of_round.values())), *(spread(x, ".2f") for x in ratios), spread(memory[name], ".1f")]
            lines.append([name, *cells])
        parts += [f"{script}, {shape}:", "\n".join("| " + " | ".join(line) + " |" for line in lines)]
    measured = {(x["shape"], x["script"], x["name"]) for x in records if "sps" in x}
    errors = [x for x in records if "error" in x]
    errors = [  # what only some rounds had no time for is no error
        f"- round {x['round']}, {x['script']}, {x['shape']}, {x['name']}: {x['error']}"
        for x in errors
        if not x["error"].startswith("left out") or (x["shape"], x["script"], x["name"]) not in measured
    ]
    return "\n\n".join([*parts, *(["Not measured:", "\n".join(errors)] if errors else [])]) + "\n"


def describe_machine():
    """The GPU and its driver, the CPU and its cores, the commit and versions."""
    commit, versions = commit_and_versions()
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu = subprocess.run(query, capture_output=True, text=True).stdout.strip() if shutil.which(query[0]) else None
    return {
        "cpu": cpu[1] if cpu else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "gpu": gpu,
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        **commit,
        "versions": {name: versions.get(name) for name in ("python", "torch", "envpool", "numpy", "tensordict")},
        "start": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "load": os.getloadavg()[0],
        "environment": {name: os.environ[name] for name in os.environ if re.match("OMP_|GOMP_|MKL_|KMP_", name)},
    }


def main(args):
    """Measures, writes the JSON file and the tables. Returns the exit code."""
    if args.num_threads:
        torch.set_num_threads(args.num_threads)
    machine, records, code = describe_machine(), [], 0
    if machine["load"] > 0.5:
        print(f"note: the load average is {machine['load']:.1f}: other programs slow down the benchmark", flush=True)
    with writable("out", args.out.parent):
        pass
    try:
        measure(args, records)
    except KeyboardInterrupt:
        print("interrupted: the results so far follow", flush=True)
        code = 130
    results = {"command": shlex.join(sys.argv), "machine": machine, "settings": vars(args), "records": records}
    args.out.write_text(json.dumps(results, indent=1, default=str) + "\n")
    args.out.with_suffix(".md").write_text(render(records, machine))
    print(f"\n{render(records, machine)}\nwritten: {args.out} and {args.out.with_suffix('.md')}")
    return code


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: INTERRUPTS.append(number))
    sys.exit(main(parse_args(sys.argv[1:])))
