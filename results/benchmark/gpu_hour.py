"""What a GPU shows in ten minutes: the Atari scripts beside CleanRL's and LeanRL's on one machine, and EnvPool alone.

    bash sweeps/gpu_hour.sh          # on a machine with an NVIDIA GPU and nothing else to do
    bash sweeps/gpu_hour.sh --cpu    # tries all of it on a CPU: a few environments, no --cuda-graphs

Each row of the table is a process of its own, ended after the seconds that its row has. Its speed is the median, with
the lowest and the highest, of its points: steps/s between two log points of ours (2,048 steps without diagnostics,
10,240 with), in two iterations of CleanRL's, in ten of LeanRL's. The first third is warm-up and left out. A row that
fails is named with its last line, and the others go on; one that would end after --minutes is left out.

CleanRL's and LeanRL's scripts are not in this repository. Without them their rows are left out, and the commands that
fetch them are printed. They are taken at the commits below and edited for EnvPool 1.0 (envpool_1.sed).

The table is printed at the end. --out gets it as JSON after each row: an object a row, each with its machine, versions
and commit, so that the files of several machines can be joined.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT

import hashlib
import json
import re
import shlex
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from typing import NamedTuple

from benchmark import describe_machine
from benchmark_peers import (
    GPU,
    Setting,
    last_line,
    noted_interrupts,
    raise_if_interrupted,
    run_process,
    why_it_failed,
)

from support import reading
from support.arguments import NonNegative, fail, parse, writable

STUDY = "results/benchmark"
PASSIVE = "OMP_WAIT_POLICY=PASSIVE"
EVERY = {True: 10240, False: 2048}  # steps from one log point of ours to the next, with diagnostics and without
THREADS = (1, 4, 8, 16)  # of EnvPool
REPOSITORIES = {  # name: where it is, the commit, the script, and the hash that git has for the script
    "CleanRL": (
        "https://github.com/vwxyzjn/cleanrl",
        "fe8d8a0",
        "cleanrl/ppo_atari_envpool.py",
        "1be166fba98d5a3ad3cb2a793f682f6dfa172354",
    ),
    "LeanRL": (
        "https://github.com/meta-pytorch/LeanRL",
        "760837e",
        "leanrl/ppo_atari_envpool_torchcompile.py",
        "869cbca7ec9955fe103db3d60e77a7ae6c107118",
    ),
}


@dataclass
class Args:
    cpu: bool = False  # tries the program on a CPU, with a few environments
    only: str = ""  # measures only the rows whose description contains this
    minutes: NonNegative = 10.0  # for all rows
    row_seconds: NonNegative = 0.0  # for each row, in place of its own
    peers: Path = Path("/tmp")  # the directory that has, or has not, cleanrl and LeanRL
    out: Path = Path("gpu_hour.json")  # the JSON file


class Row(NamedTuple):
    """One measurement."""

    program: str  # a script, a peer, or what else
    shape: str  # N x T, or N
    flags: str
    seconds: int
    env: str = ""  # NAME=VALUE

    def __str__(self):
        return " ".join(filter(None, (self.program, self.shape, self.flags, self.env)))


def plan(cpu):
    """The rows, in the order in which they are measured: what decides most comes first."""
    narrow, wide = ("2x16", "4x8") if cpu else ("8x128", "128x8")
    ppo, pqn = "ppo_atari_envpool.py", "pqn_atari_envpool.py"
    plain, graphs = "--no-diagnostics", "--no-diagnostics --cuda-graphs"
    rows = [Row("EnvPool alone", shape.split("x")[0], f"{n} threads", 5) for shape in (narrow, wide) for n in THREADS]
    for shape in (narrow, wide):
        rows += [Row(ppo, shape, plain, 20), Row("CleanRL", shape, "", 22), Row("LeanRL", shape, "", 24)]
        rows += [Row(ppo, shape, graphs, 22), Row("LeanRL", shape, "--cudagraphs", 26)]
    rows += [
        Row(program, narrow, flags, 22, PASSIVE) for program, flags in ((ppo, plain), (ppo, graphs), ("CleanRL", ""))
    ]
    rows += [Row(ppo, narrow, f"{graphs} --num-threads 4", 22), Row(ppo, narrow, "--cuda-graphs", 26)]
    rows += [Row(pqn, narrow, plain, 20), Row(pqn, narrow, graphs, 22)]
    rows += [Row("rollout", shape.split("x")[0], "" if cpu else "--cuda", 14) for shape in (narrow, wide)]
    rows += [Row("LeanRL", narrow, "--compile --cudagraphs", 65), Row("tests for a GPU", "", "", 60)]
    return rows


# ---- commands --------------------------------------------------------------------------------------------------------
def fetch_commands(args):
    """The shell commands that fetch the peers' repositories."""
    lines = []
    for name, (url, commit, *_) in REPOSITORIES.items():
        folder = shlex.quote(str(args.peers / Path(url).name))
        lines.append(f"git clone -q {url} {folder} && git -C {folder} checkout -q {commit}  # {name}")
    return lines


def ported(args, name, folder):
    """Writes a peer's script, edited for EnvPool 1.0, to a folder. Returns the path; None if it is not there.

    ValueError if it is there in another version.
    """
    url, commit, script, blob = REPOSITORIES[name]
    path = args.peers / Path(url).name / script
    if not path.exists():
        return None
    content = path.read_bytes()
    if hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest() != blob:
        raise ValueError(f"{path} is not that of commit {commit}")
    target = Path(folder, f"{name}.py")
    text = subprocess.run(["sed", "-f", str(ROOT / STUDY / "envpool_1.sed")], input=content, capture_output=True)
    target.write_bytes(text.stdout)
    return target


def command(args, row, folder):
    """The words of a row's command; [] if a peer's script is missing. folder: an empty one for what it writes."""
    program, (num_envs, _, num_steps) = row.program, row.shape.partition("x")
    shape = ["--num-envs", num_envs, "--num-steps", num_steps, *(["--no-cuda"] if args.cpu else [])]
    if program.endswith(".py"):
        total = 10**7
        logs = total // (64 if args.cpu else EVERY["--no-diagnostics" not in row.flags])
        words = [str(ROOT / program), *shape, "--total-timesteps", str(total), "--num-logs", str(logs)]
        words += ["--runs-dir", str(folder), "--run-name", "run", *row.flags.split()]
    elif program in REPOSITORIES:
        path = ported(args, program, folder)
        if path is None:
            return []
        words = [str(path), *shape, *row.flags.split()]
    elif program == "EnvPool alone":
        words = [f"{STUDY}/envpool_alone.py", "Breakout-v5", num_envs, row.flags.split()[0], "2.5"]
    elif program == "rollout":
        frames = 16 * int(num_envs) if args.cpu else 1024
        words = [f"{STUDY}/benchmark_rollout.py", "--envs", num_envs, "--frames", str(frames), "--rounds", "3"]
        words += row.flags.split()
    else:
        words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_cuda.py"]
    prefix = ["env", row.env] if row.env else []
    return [*prefix, sys.executable, *words]


# ---- what a process has shown ----------------------------------------------------------------------------------------
def speeds_of_means(means, steps):
    """Steps/s of each pair of lines, from the mean steps/s since the start that each line has; `steps` a line."""
    seconds = [(i + 1) * steps / mean for i, mean in enumerate(means)][::2]
    return [2 * steps / (later - sooner) for sooner, later in zip(seconds, seconds[1:]) if later > sooner]


def points_of(row, output, folder):
    """Steps/s at each point of a row, and what its last lines say if it has no such points."""
    if row.program.endswith(".py"):
        return [float(x) for x in reading.read_curves(Path(folder, "run")).get("charts/SPS", [(), ()])[1]]
    if row.program == "CleanRL":
        setting = Setting(*map(int, row.shape.split("x")))
        return speeds_of_means([int(x) for x in re.findall(r"^SPS: ([1-9]\d*)", output, re.M)], setting.batch_size)
    if row.program == "LeanRL":
        found = [float(x) for x in re.findall(r"speed: +([\d.]+) sps", output)]
        return [x for x, before in zip(found, [None, *found]) if x != before]  # a bar draws the same number often
    if row.program == "EnvPool alone":
        return [float(x) for x in re.findall(r"([\d.]+) steps/s", output)]
    return []


def measure(args, row):
    """Runs a row's command. Returns what the JSON has beside the row, with `error`, `left_out`, `says` or `median`."""
    seconds = args.row_seconds or row.seconds
    with tempfile.TemporaryDirectory(prefix="gpu-hour-") as folder:
        words = command(args, row, folder)
        if not words:
            return {"command": "", "left_out": f"{row.program} is not in {args.peers}"}
        ended = run_process(words, seconds)
        points = points_of(row, ended["output"], folder)
    found = {"command": shlex.join(words), "points": points, "gpu_bytes": ended["gpu_bytes"]}
    if ended["code"]:
        return {**found, "error": why_it_failed(ended, seconds)}
    warm = points[max(1, len(points) // 3) :]
    if warm:
        return {**found, "median": statistics.median(warm), "lowest": min(warm), "highest": max(warm)}
    if row.program in ("rollout", "tests for a GPU") and ended["code"] == 0:
        return {**found, "says": last_line(ended["output"])}
    return {**found, "error": f"no speed within {seconds:g} s: {last_line(ended['output'])}"}


# ---- the table -------------------------------------------------------------------------------------------------------
def render(rows):
    """The table, in Markdown. The last column is the ratio to CleanRL's script with the same N x T and environment."""
    cleanrl = {(x["shape"], x["env"]): x["median"] for x in rows if x["program"] == "CleanRL" and "median" in x}
    lines = ["| program | N x T | flags | steps/s | points | times CleanRL |", "|---|---|---|---|---|---|"]
    for x in rows:
        if "median" in x:
            speed = f"{x['median']:,.0f} ({x['lowest']:,.0f} to {x['highest']:,.0f})"
        else:
            speed = next(f"{key.replace('_', ' ')}: {x[key]}" for key in ("error", "left_out", "says") if key in x)
        beside = cleanrl.get((x["shape"], ""))
        ratio = f"{x['median'] / beside:.2f}" if beside and "median" in x else ""
        flags = " ".join(filter(None, (x["flags"], x["env"])))
        lines.append(f"| {x['program']} | {x['shape']} | {flags} | {speed} | {len(x.get('points', []))} | {ratio} |")
    return "\n".join(lines)


def main(args):
    """Measures, prints and writes the table. Returns the exit code: 1 if a row has failed."""
    if not (GPU or args.cpu):
        fail("here is no NVIDIA GPU: --cpu tries the program on a CPU")
    chosen = [row for row in plan(args.cpu) if args.only in str(row)]
    if not chosen:
        fail(f"--only {args.only}: no row has this; expected a part of one of: {'; '.join(map(str, plan(args.cpu)))}")
    machine, rows, code = describe_machine(), [], 0
    whose = {"versions": machine.pop("versions"), "commit": machine.pop("commit"), "machine": machine}
    start = time.monotonic()
    print(f"at most {args.minutes:g} minutes, {len(chosen)} rows", flush=True)
    with writable("out", args.out.parent):
        pass
    try:
        with noted_interrupts():
            for row in chosen:
                raise_if_interrupted()
                if args.cpu and "graphs" in row.flags:
                    found = {"left_out": "needs a GPU"}
                elif time.monotonic() - start + (args.row_seconds or row.seconds) > 60 * args.minutes:
                    found = {"left_out": f"--minutes {args.minutes:g}"}
                else:
                    try:
                        found = measure(args, row)
                    except (OSError, RuntimeError, ValueError) as error:
                        found = {"error": f"{type(error).__name__}: {last_line(str(error))}"}
                rows.append({**row._asdict(), **found, **whose})
                args.out.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
                print(f"{(time.monotonic() - start) / 60:5.1f} min  {render(rows[-1:]).splitlines()[-1]}", flush=True)
    except KeyboardInterrupt:
        print("interrupted: the rows so far follow", flush=True)
        code = 130
    print(f"\n{render(rows)}\n\nwritten: {args.out}", flush=True)
    if any("is not in" in x.get("left_out", "") for x in rows):
        print("\nThe peers' rows need:\n" + "\n".join(fetch_commands(args)), flush=True)
    return code or int(any("error" in x for x in rows))


if __name__ == "__main__":
    sys.exit(main(parse(Args, sys.argv[1:], __doc__)))
