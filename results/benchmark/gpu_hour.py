"""What a GPU shows in ten minutes: the Atari scripts beside CleanRL's and LeanRL's on one machine, and EnvPool alone.

    make gpu             # on a machine with an NVIDIA GPU and nothing else to do
    make gpu GPU=--cpu   # tries it on a CPU, with a few environments and without CUDA graphs

Each row of the table is a process that is ended after `seconds`. Its speed is the median, with the lowest and the
highest, of its points: steps/s between two log points of ours, in an iteration of CleanRL's and in ten of LeanRL's. The
first third of three or more points is left out as warm-up.

CleanRL's and LeanRL's scripts are edited for EnvPool 1.0 or newer by envpool_1.sed. If --peers does not have their
repositories, their rows are left out, and the commands that fetch them are printed.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT

import json
import re
import shlex
import statistics
import subprocess
import tempfile
from dataclasses import dataclass
from typing import NamedTuple

from benchmark import Setting, describe_machine, envpool_alone, last_line, run_process

from support.arguments import NonNegative, fail, parse, writable
from support.reading import read_curves

PPO, PQN = "ppo_atari_envpool.py", "pqn_atari_envpool.py"
PEERS = {  # repository, commit, script
    "CleanRL": ("https://github.com/vwxyzjn/cleanrl", "fe8d8a0", "cleanrl/ppo_atari_envpool.py"),
    "LeanRL": ("https://github.com/meta-pytorch/LeanRL", "760837e", "leanrl/ppo_atari_envpool_torchcompile.py"),
}


@dataclass
class Args:
    cpu: bool = False  # tries the program on a CPU
    only: str = ""  # measures only the rows whose description contains this
    row_seconds: NonNegative = 0.0  # for each row, in place of its own
    peers: Path = Path("/tmp")  # the directory with the peers' repositories
    out: Path = Path("gpu.json")  # the JSON file


class Row(NamedTuple):
    """One measurement."""

    program: str
    shape: str  # N x T, or N
    flags: str  # with the variables of the environment first
    seconds: float = 22.0


def plan(cpu):
    """The rows, in the order in which they are measured. On a CPU none has --cuda-graphs, which needs a GPU."""
    narrow, wide = ("2x16", "4x8") if cpu else ("8x128", "128x8")
    plain, graphs, passive = "--no-diagnostics", "--no-diagnostics --cuda-graphs", "OMP_WAIT_POLICY=PASSIVE"
    rows = []
    for shape in (narrow, wide):
        rows += [Row("EnvPool alone", shape.split("x")[0], f"num_threads {n}", 5.0) for n in (1, 4, 8, 16)]
    for shape in (narrow, wide):
        rows += [Row("CleanRL", shape, ""), Row(PPO, shape, plain), Row("LeanRL", shape, "")]
        rows += [Row(PPO, shape, graphs), Row("LeanRL", shape, "--cudagraphs")]
    rows += [Row(PPO, narrow, f"{passive} {plain}"), Row(PPO, narrow, f"{passive} {graphs}")]
    rows += [Row(PPO, narrow, "--cuda-graphs", 40.0), Row(PQN, narrow, plain), Row(PQN, narrow, graphs)]
    rows += [Row("LeanRL", narrow, "--compile --cudagraphs", 65.0), Row("tests/test_cuda.py", "", "", 90.0)]
    return [row for row in rows if not (cpu and "graphs" in row.flags)]


# ---- one row ---------------------------------------------------------------------------------------------------------
def script(row, peers, folder):
    """The path of a row's script; a peer's is written to the folder. None if the peer's repository is not there."""
    if row.program not in PEERS:
        return ROOT / row.program
    url, commit, path = PEERS[row.program]
    git = ["git", "-C", str(peers / Path(url).name), "show", f"{commit}:{path}"]
    text = subprocess.run(git, capture_output=True).stdout
    sed = ["sed", "-f", str(Path(__file__).with_name("envpool_1.sed"))]
    target = Path(folder, f"{row.program}.py")
    target.write_bytes(subprocess.run(sed, input=text, capture_output=True, check=True).stdout)
    return target if text else None


def arguments(row, cpu, folder):
    """The words behind a row's script. Ours logs each 2,048 steps (CPU: 64), with diagnostics each 10,240."""
    num_envs, num_steps = row.shape.split("x")
    words = ["--num-envs", num_envs, "--num-steps", num_steps, *(["--no-cuda"] if cpu else [])]
    if row.program not in PEERS:
        total, num_logs = 5000 * (64 if cpu else 2048), 5000 if "--no-diagnostics" in row.flags else 1000
        words += f"--total-timesteps {total} --num-logs {num_logs} --run-name run --runs-dir".split() + [folder]
    return words + [word for word in row.flags.split() if word.startswith("--")]


def points_of(row, output, folder):
    """Steps/s at each point of a row."""
    if row.program == "CleanRL":  # it prints the mean since its start, in each iteration
        num_envs, num_steps = map(int, row.shape.split("x"))
        means = [float(mean) for mean in re.findall(r"^SPS: ([1-9]\d*)", output, re.M)]
        seconds = [i * num_envs * num_steps / mean for i, mean in enumerate(means, 1)]
        return [num_envs * num_steps / (b - a) for a, b in zip(seconds, seconds[1:]) if b > a]
    if row.program == "LeanRL":  # its bar repeats a number until the next one
        found = re.findall(r"speed: +([\d.]+) sps", output)
        return [float(x) for x, before in zip(found, ["", *found]) if x != before]
    return [float(x) for x in read_curves(Path(folder, "run")).get("charts/SPS", [(), ()])[1]]


def spread(points):
    """The median, the lowest and the highest of the points but their first third; {} without any."""
    warm = points[len(points) // 3 :]
    return {"median": statistics.median(warm), "lowest": min(warm), "highest": max(warm)} if warm else {}


def measure(row, args):
    """Runs a row. Returns what the JSON file has of it: its points and their median, or what it `says` without any."""
    seconds, found = args.row_seconds or row.seconds, row._asdict()
    if row.program == "EnvPool alone":
        points = envpool_alone(PPO, Setting(int(row.shape), 8), seconds, int(row.flags.split()[1]), 6)
        return {**found, "points": points, **spread(points)}
    with tempfile.TemporaryDirectory(prefix="gpu-hour-") as folder:
        path = script(row, args.peers, folder)
        if path is None:
            return {**found, "says": f"not in {args.peers}"}
        variables = [word for word in row.flags.split() if not word.startswith("--")]
        words = arguments(row, args.cpu, folder) if row.shape else ["-q", "-p", "no:cacheprovider"]
        words = [sys.executable, *([] if row.shape else ["-m", "pytest"]), str(path), *words]
        ended = run_process(["env", *variables, *words], seconds, folder=folder)
        points = points_of(row, ended["output"], folder) if row.shape and not ended["code"] else []
    says = ("" if ended["code"] is not None else f"ended after {seconds:g} s: ") + last_line(ended["output"])
    found.update(command=shlex.join(words), exit_code=ended["code"], says=says.replace("|", " "))
    return {**found, "points": points, **spread(points)}


# ---- the table -------------------------------------------------------------------------------------------------------
def render(rows):
    """The table, in Markdown. The last column is the ratio to CleanRL's script with the same N x T."""
    cleanrl = {x["shape"]: x["median"] for x in rows if x["program"] == "CleanRL" and "median" in x}
    lines = ["| program | N x T | flags | steps/s | times CleanRL |", "|---|---|---|---|---|"]
    for x in rows:
        speed, ratio = x.get("says", ""), ""
        if "median" in x:
            speed = f"{x['median']:,.0f} ({x['lowest']:,.0f} to {x['highest']:,.0f})"
            ratio = f"{x['median'] / cleanrl[x['shape']]:.2f}" if x["shape"] in cleanrl else ""
        lines.append(f"| {x['program']} | {x['shape']} | {x['flags']} | {speed} | {ratio} |")
    return "\n".join(lines)


def main(args):
    found_on, rows = describe_machine(), []
    if not (found_on["gpu"] or args.cpu):
        fail("here is no NVIDIA GPU: --cpu tries the program on a CPU")
    chosen = [row for row in plan(args.cpu) if args.only in " ".join(row[:3])]
    with writable("out", args.out.parent):
        pass
    for i, row in enumerate(chosen, 1):
        rows.append(measure(row, args))
        args.out.write_text(json.dumps({"machine": found_on, "rows": rows}, indent=1) + "\n")
        print(f"{i} of {len(chosen)}  {render(rows).splitlines()[-1]}", flush=True)
    print(f"\n{render(rows)}\n\nwritten: {args.out}")
    if any("not in" in row.get("says", "") for row in rows):
        print("\nThe peers' rows need:")
        for url, *_ in PEERS.values():
            print(f"git clone {url} {shlex.quote(str(args.peers / Path(url).name))}")


if __name__ == "__main__":
    main(parse(Args, sys.argv[1:], __doc__))
