"""How fast the scripts are: against the limit that environment and network set, and against peers, in one run.

    python scripts/benchmark.py                                            # at most 18 minutes (--minutes)
    python scripts/benchmark.py --scripts ppo_atari_envpool.py --shapes 128x8,8x128 --rounds 5 --minutes 40 \\
        --peer "cleanrl=python ~/cleanrl/ppo_atari_envpool.py --num-envs {num_envs} --num-steps {num_steps}
                --total-timesteps {total_timesteps}"

A machine's speed drifts by 20 % within minutes. So all that is compared is measured in turn, A B C A B C …, and a ratio
is the median of the rounds' own ratios, with their range. Sections:

env      EnvPool alone, with random actions: steps/s.
network  the script's own network alone, in rows/s: inference on N rows without gradients; training on a minibatch,
         forward and backward of the mean of all outputs. No gather, no loss, no clipping, no optimiser. RND's two
         networks are passed with the policy's. With `env` it gives the limit of a script that does one after the other:
         1 / limit = 1 / env + 1 / inference + update_epochs / training.
scripts  each script as a user runs it, a process of its own, with diagnostics on and off. Two log points: half-way and
         at the end. The speed is that of the second half, so start-up and warm-up are out, and one log point is in.
peers    stable-baselines3's PPO, where it is installed, and every `--peer`: a command that prints its steps/s since its
         start as it goes (`SPS: 123`). Its second half, too, as many steps as the script in float32; it is ended once
         it has had the time that a quarter of the limit would need.
ranks    ppo_atari_envpool.py under torchrun with one and two processes on the same cores or GPUs.
growth   how time and memory grow with N at a fixed T.
storage  bytes per stored transition: of all NumPy and torch arrays of shape (T, N, …) that a program allocates with
         zeros, ones or empty, the most that it keeps at a time.

Memory is the peak resident size of a process (VmHWM), summed over the processes of torchrun. On CUDA `network` is
replayed as CUDA graphs. On a CPU it keeps freed memory, as large tensors that are mapped anew cost up to a third.
"""

import argparse
import contextlib
import ctypes
import importlib
import importlib.metadata
import importlib.util
import itertools
import json
import math
import os
import platform
import re
import runpy
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import weakref
from pathlib import Path

import numpy as np
import torch
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tqdm import tqdm

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))  # where the scripts are
SCRIPTS = ("ppo_atari_envpool.py", "pqn_atari_envpool.py", "ppo_procgen.py", "ppo_rnd_envpool.py")
SECTIONS = ("env", "network", "scripts", "peers", "ranks", "growth", "storage")
ATARI = SCRIPTS[0]  # the work that the peers do, unless `--peer` names another script
# what a short run has to leave out of its start
EXTRA = {"ppo_rnd_envpool.py": ["--num-iterations-obs-norm-init", "1"]}
PEER_SPEED = re.compile(r"(?:SPS|sps|steps/s)\W{1,3}([\d,]+(?:\.\d+)?)|([\d,]+(?:\.\d+)?) ?(?:SPS|sps|steps/s)\b")
BF16 = {"fp32": [], "bf16": ["--bf16"]}
TINY = (5, 8)  # N, T that `storage` looks at: no other array has this shape
START_SECONDS = 10  # what a process needs to import, to start its games and to end: only for the time left
GPU = torch.cuda.is_available()


def fail(message):
    """Ends the program with one line and exit code 2: bad input."""
    print("error:", " ".join(str(message).split()), file=sys.stderr)
    sys.exit(2)


# ---- arguments -------------------------------------------------------------------------------------------------------
def number(kind, low):
    def parse(text):
        value = kind(text)
        if not low <= value < 1e9:
            raise argparse.ArgumentTypeError(f"{text} is out of range: at least {low} is accepted")
        return value

    return parse


def shape(text):
    """(N, T) of "128x8"."""
    if not re.fullmatch(r"[1-9]\d{0,5}x[1-9]\d{0,5}", text):
        raise argparse.ArgumentTypeError(f"{text} is no shape: ENVSxSTEPS, as 128x8, is accepted")
    return tuple(map(int, text.split("x")))


def some_of(accepted):
    def parse(text):
        if text not in accepted:
            raise argparse.ArgumentTypeError(f"{text} is not known: {', '.join(accepted)} is accepted")
        return text

    return parse


def listed(parse):
    return lambda text: [parse(word) for word in text.split(",")]


def peer(text):
    """(script that does the same work, name, command) of "[script.py:]name=command"."""
    match = re.fullmatch(r"(?:([\w.]+\.py):)?([\w. -]+)=(.+)", text, re.DOTALL)
    if not match:
        raise argparse.ArgumentTypeError(f"{text} is no peer: NAME=COMMAND or SCRIPT.py:NAME=COMMAND is accepted")
    script, name, command = some_of(SCRIPTS)(match[1] or ATARI), match[2], " ".join(match[3].split())
    try:
        fill(command, "Breakout-v5", *TINY, 1)
    except (KeyError, IndexError, ValueError):
        raise argparse.ArgumentTypeError(
            f"{text}: {{env_id}} {{num_envs}} {{num_steps}} {{total_timesteps}} are what is filled in"
        ) from None
    return script, name, command


def fill(command, env_id, num_envs, num_steps, total_timesteps):
    return command.format(env_id=env_id, num_envs=num_envs, num_steps=num_steps, total_timesteps=total_timesteps)


def parse_args(argv):
    class Parser(argparse.ArgumentParser):
        def error(self, message):
            fail(message)

    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)

    def option(flag, parse, default, text):
        parser.add_argument(f"--{flag}", type=parse, default=parse(default), help=f"{text} (default {default})")

    option("sections", listed(some_of(SECTIONS)), ",".join(SECTIONS), "what to measure")
    option("scripts", listed(some_of(SCRIPTS)), ",".join(SCRIPTS), "which scripts")
    option("shapes", listed(shape), "128x8", "environments x steps of a rollout")
    option("precisions", listed(some_of(["fp32", "bf16"])), "fp32,bf16", "without and with the scripts' --bf16")
    option("growth", listed(shape), ",".join(f"{2**k}x8" for k in range(3, 11)), "the shapes of `growth`")
    option("rounds", number(int, 1), "3", "repeats of everything but `growth` and `storage`")
    option("seconds", number(float, 0.1), "10", "the length of a run: seconds of training, by what the limit promises")
    option("minutes", number(float, 0), "18", "nothing is begun that would not end within this time")
    option("num-threads", number(int, 0), "0", "CPU threads of every program; 0 leaves each to its own default")
    option("out", Path, "results/benchmark/results.json", "the JSON file; the tables are beside it, as .md")
    parser.add_argument(
        "--peer",
        type=peer,
        action="append",
        default=[],
        metavar="[SCRIPT:]NAME=COMMAND",
        help="a command that prints its steps/s; {env_id} {num_envs} {num_steps} {total_timesteps} are filled in",
    )
    parser.add_argument(
        "--flags",
        action="append",
        default=[],
        metavar="FLAGS",
        help="measures the scripts also with these flags: --flags=--compile; may be repeated",
    )
    parser.add_argument("--no-sb3", action="store_true", help="leaves stable-baselines3 out")
    args = parser.parse_args(argv)
    for script in args.scripts:  # what a script would refuse is refused now
        for (num_envs, num_steps), flags in itertools.product(args.shapes, ["", *args.flags]):
            load(script, num_envs, num_steps, *shlex.split(flags))
    for num_envs, num_steps in args.growth:
        load(ATARI, num_envs, num_steps)
    if args.out.suffix != ".json" or args.out.is_dir():
        fail(f"--out {args.out}: the name of a .json file is accepted")
    names = [name for _, name, _ in args.peer]
    if len({"sb3", *names}) <= len(names):
        fail(f"--peer {' '.join(names)}: names that differ from each other and from sb3 are accepted")
    if not args.no_sb3 and importlib.util.find_spec("stable_baselines3"):
        words = [
            sys.executable,
            os.path.abspath(__file__),
            "sb3",
            "{env_id}",
            "{num_envs}x{num_steps}",
            "{total_timesteps}",
        ]
        args.peer.append((ATARI, "sb3", " ".join(words)))
    return args


# ---- child processes -------------------------------------------------------------------------------------------------
def descendants(pid):
    """The process and all below it, of those that still live."""
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError):
            found += map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split())
    return found


def run_child(words, seconds, num_threads=0, **env):
    """Runs a command for at most `seconds` and ends all of its processes.

    Returns {"code": exit code or None if it had to be ended, "output", "peak_bytes", "gpu_bytes"}."""
    env = {**os.environ, "PYTHONUNBUFFERED": "1", **env}
    if num_threads:
        env["OMP_NUM_THREADS"] = str(num_threads)
    # ru_maxrss would begin with the size of this process, which the child is until it executes: VmHWM does not
    peaks, polls, gpu_bytes = {}, {}, 0
    gpu_before = torch.cuda.mem_get_info()[0] if GPU else 0
    with tempfile.TemporaryFile("w+") as output:
        child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=env, start_new_session=True
        )
        try:
            deadline = time.monotonic() + seconds
            while child.poll() is None and time.monotonic() < deadline:
                for pid in descendants(child.pid):
                    with contextlib.suppress(OSError, TypeError):  # it has ended
                        status = Path(f"/proc/{pid}/status").read_text()
                        peaks[pid] = 1024 * int(re.search(r"VmHWM:\s*(\d+) kB", status)[1])
                        polls[pid] = polls.get(pid, 0) + 1
                if GPU:
                    gpu_bytes = max(gpu_bytes, gpu_before - torch.cuda.mem_get_info()[0])
                time.sleep(0.1)
            code = child.poll()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        output.seek(0)
        text = output.read()
    # a helper on its way to another program shows the memory of the process that starts it: such are short
    lasting = [peak for pid, peak in peaks.items() if polls[pid] >= 10]
    return {
        "code": code,
        "output": text,
        "gpu_bytes": gpu_bytes if GPU else None,
        "peak_bytes": sum(lasting) or max(peaks.values(), default=0),
    }


def last_line(text):
    return next((line.strip()[:200] for line in reversed(text.splitlines()) if line.strip()), "no output")


# ---- environment and network alone -----------------------------------------------------------------------------------
def load(script, num_envs, num_steps, *flags):
    """The script as a module, and its checked arguments."""
    module = importlib.import_module(script[: -len(".py")])
    words = ["--num-envs", str(num_envs), "--num-steps", str(num_steps), *EXTRA.get(script, []), *flags]
    return module, module.parse_args(words)


def default_env_id(script):
    return importlib.import_module(script[: -len(".py")]).Args.env_id


def default_log_steps(script):
    """The distance of the log points of a run with the script's own defaults."""
    defaults = importlib.import_module(script[: -len(".py")]).Args
    return defaults.total_timesteps // defaults.num_logs


def rate(step, rows, seconds):
    """Rows per second of step(), called for so long, after a call to warm up; or four, as metrics.cuda_graphs needs."""
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


def measure_env(script, num_envs, num_steps, seconds):
    """Steps per second of the script's environments alone."""
    module, args = load(script, num_envs, num_steps)
    envs = module.make_envs(args, args.seed)
    envs.reset()
    actions = itertools.cycle(np.random.default_rng(0).integers(envs.action_space.n, size=(1000, num_envs), dtype="i4"))
    sps = rate(lambda: envs.step(next(actions)), num_envs, seconds)
    envs.close()
    return {"env_id": args.env_id, "sps": sps}


def measure_network(script, num_envs, num_steps, precision, seconds):
    """Rows per second of the script's network alone."""
    module, args = load(script, num_envs, num_steps)
    # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD: glibc would give 32 MB and more back to the kernel, which clears them anew
    ctypes.CDLL(None).mallopt(-3, 2**30), ctypes.CDLL(None).mallopt(-1, 2**30)
    device = torch.device("cuda" if GPU else "cpu")
    torch.backends.cudnn.deterministic = args.torch_deterministic
    agent_class = module.QNetwork if hasattr(module, "QNetwork") else module.Agent
    agent = agent_class(15, bf16=precision == "bf16").to(device, memory_format=torch.channels_last)
    modules = [agent]
    if hasattr(module, "RNDModel"):
        modules.append(module.RNDModel().to(device, memory_format=torch.channels_last))
    moments = (torch.zeros(84, 84, device=device), torch.ones(84, 84, device=device), 1.0)

    def forward(obs):
        outputs = [x for x in agent(obs) if torch.is_tensor(x)]  # the rest is the hidden layers
        return sum(x.mean() for x in [*outputs, *(rnd(obs[..., -1], moments) for rnd in modules[1:])])

    def train(obs):
        for each in modules:
            each.zero_grad()
        forward(obs).backward()

    graphed = module.metrics.cuda_graphs(GPU)
    infer, train = graphed(forward), graphed(train)
    obs = torch.randint(256, (max(num_envs, args.minibatch_size), *module.OBS_SHAPE), dtype=torch.uint8, device=device)
    with torch.no_grad():
        inference = rate(lambda: infer(obs[:num_envs]), num_envs, seconds)
    training = rate(lambda: train(obs[: args.minibatch_size]), args.minibatch_size, seconds)
    return {
        "inference": inference,
        "training": training,
        "minibatch_size": args.minibatch_size,
        "update_epochs": args.update_epochs,
    }


def limit(env_sps, inference, training, update_epochs):
    """Steps/s of a script that plays, decides and learns one after the other and does nothing else."""
    return 1.0 / (1.0 / env_sps + 1.0 / inference + update_epochs / training)


# ---- scripts ---------------------------------------------------------------------------------------------------------
def speed_of(points):
    """Steps/s between the first and the last log point of [(wall time, step)], whose first is the start; of all of the
    run if there is one point only."""
    (start, first), (end, last) = points[1] if len(points) > 2 else points[0], points[-1]
    return (last - first) / (end - start)


def measure_script(script, num_envs, num_steps, iterations, seconds, num_threads, flags=(), ranks=None):
    """Runs a script from its start to its end. Returns its speed and memory, or {"error": its last line}."""
    words = [sys.executable]
    if ranks:
        words += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks]
        num_threads = max(1, (num_threads or torch.get_num_threads()) // ranks)  # torchrun itself would take one each
    with tempfile.TemporaryDirectory(prefix="benchmark-") as runs_dir:
        words += [
            ROOT / script,
            "--num-envs",
            num_envs,
            "--num-steps",
            num_steps,
            *EXTRA.get(script, []),
            "--total-timesteps",
            iterations * num_envs * num_steps,
            "--num-logs",
            min(2, iterations),
            "--runs-dir",
            runs_dir,
            "--run-name",
            "run",
            *flags,
        ]
        if num_threads:
            words += ["--num-threads", num_threads]
        done = run_child([str(word) for word in words], seconds, num_threads)
        events = [
            Event.FromString(record)
            for path in Path(runs_dir).glob("run/events.out.tfevents.*")
            for record in RawEventFileLoader(str(path)).Load()
        ]
    if done["code"] != 0:
        return {"error": last_line(done["output"]) if done["code"] else f"had not ended after {seconds:.0f} s"}
    return {
        "sps": speed_of([(event.wall_time, event.step) for event in events]),
        "iterations": iterations,
        "peak_bytes": done["peak_bytes"],
        "gpu_bytes": done["gpu_bytes"],
    }


# ---- peers -----------------------------------------------------------------------------------------------------------
def speed_of_second_half(speeds):
    """What a program's speed was after half of its steps, from the speeds since its start that it has printed at equal
    distances: the times of s steps and of fraction * s steps are s / speeds[-1] and fraction * s / speeds[half]."""
    half = len(speeds) // 2
    fraction = half / len(speeds)
    time_left = 1 / speeds[-1] - fraction / speeds[half - 1]  # per step of the whole
    return (1 - fraction) / time_left if half and time_left > 0 else speeds[-1]


def measure_peer(command, seconds, num_threads):
    """Runs a peer's command. Returns its speed and memory, or {"error": its last line}."""
    done = run_child(["/bin/sh", "-c", command], seconds, num_threads)
    speeds = [float((match[1] or match[2]).replace(",", "")) for match in PEER_SPEED.finditer(done["output"])]
    speeds = [speed for speed in speeds if speed > 0]
    if done["code"] or not speeds:
        return {
            "error": last_line(done["output"]) if done["code"] else f"printed no steps/s: {last_line(done['output'])}"
        }
    return {
        "sps": speed_of_second_half(speeds),
        "lines": len(speeds),
        "ended": done["code"] is None,
        "peak_bytes": done["peak_bytes"],
        "gpu_bytes": done["gpu_bytes"],
    }


def sb3_adapter(envs, num_envs):
    """EnvPool's environments as stable-baselines3 wants them.

    With `done` SB3 expects the first observation of the next game, and the last of the old one in `infos`. EnvPool
    gives that last one, and the first a step later, whose action is ignored. Here as in CleanRL that step is an
    ordinary transition, with reward 0: nothing is copied, and SB3 does as many steps as the others. At a time limit
    SB3 gets what it needs to bootstrap."""
    from stable_baselines3.common.vec_env import VecEnv

    class Adapter(VecEnv):
        def __init__(self):
            super().__init__(num_envs, envs.observation_space, envs.action_space)

        def reset(self):
            return envs.reset()[0]

        def step_async(self, actions):
            self.actions = actions.astype(np.int32)

        def step_wait(self):
            obs, rewards, terminated, truncated, _ = envs.step(self.actions)
            infos = [{} for _ in range(self.num_envs)]
            for i in np.flatnonzero(truncated & ~terminated):
                infos[i] = {"TimeLimit.truncated": True, "terminal_observation": obs[i]}
            return obs, rewards, terminated | truncated, infos

        def close(self):
            envs.close()

        def get_attr(self, attr_name, indices=None):
            return [getattr(envs, attr_name, None)] * self.num_envs

        def set_attr(self, attr_name, value, indices=None):
            raise NotImplementedError("EnvPool's games have no attributes of their own")

        def env_method(self, method_name, *method_args, indices=None, **method_kwargs):
            raise NotImplementedError("EnvPool's games have no methods of their own")

        def env_is_wrapped(self, wrapper_class, indices=None):
            return [False] * self.num_envs

    return Adapter()


def run_sb3(env_id, num_envs, num_steps, total_timesteps):
    """The process of the peer: PPO's CnnPolicy with the hyper-parameters of the script; prints `SPS: …`."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback

    class Speed(BaseCallback):
        def _on_training_start(self):
            self.start = time.time()

        def _on_rollout_start(self):
            if self.num_timesteps:
                print(f"SPS: {self.num_timesteps / (time.time() - self.start):.1f}")

        def _on_training_end(self):
            self._on_rollout_start()

        def _on_step(self):
            return True

    module, args = load(ATARI, num_envs, num_steps, "--env-id", env_id)
    model = PPO(
        "CnnPolicy",
        sb3_adapter(module.make_envs(args, args.seed), num_envs),
        n_steps=num_steps,
        batch_size=args.minibatch_size,
        n_epochs=args.update_epochs,
        gamma=args.gamma,
        gae_lambda=args.gae_lambda,
        learning_rate=lambda remaining: remaining * args.learning_rate,
        clip_range=args.clip_coef,
        clip_range_vf=args.clip_coef if args.clip_vloss else None,
        ent_coef=args.ent_coef,
        vf_coef=args.vf_coef,
        max_grad_norm=args.max_grad_norm,
        seed=args.seed,
    )
    model.learn(total_timesteps, callback=Speed(), log_interval=None)


# ---- storage ---------------------------------------------------------------------------------------------------------
def trace_storage(script, argv):
    """The process that runs a program and prints the bytes of the arrays of shape (T, N, …) = TINY it keeps."""
    living, most = {}, 0

    def counted(allocate):
        def call(*args, **kwargs):
            nonlocal most
            most = max(most, sum(living.values()))  # before: an array that replaces another one counts once
            array = allocate(*args, **kwargs)
            if tuple(array.shape[:2]) == TINY[::-1]:
                living[id(array)] = array.nbytes
                weakref.finalize(array, living.pop, id(array), None)
            return array

        return call

    for library, name in itertools.product((np, torch), ("zeros", "ones", "empty")):
        setattr(library, name, counted(getattr(library, name)))
    sys.argv[:] = [script, *argv]
    sys.path[0] = str(Path(script).resolve().parent)
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        print(f"storage: {most / (TINY[0] * TINY[1])} bytes per transition")


def measure_storage(command, seconds):
    """Runs the command, of shape TINY, with its script under trace_storage. Returns its bytes, or {"error"}."""
    traced, scripts = re.subn(
        r"(\S+\.py)(?=\s|$)", rf"{shlex.quote(os.path.abspath(__file__))} storage \1", command, count=1
    )
    if not scripts:
        return {"error": "runs no .py script that could be looked into"}
    done = run_child(["/bin/sh", "-c", traced], seconds, OMP_NUM_THREADS="1")
    found = re.findall(r"^storage: ([\d.]+) bytes", done["output"], re.MULTILINE)
    if done["code"] or not found:
        return {"error": last_line(done["output"]) if done["code"] else f"had not ended after {seconds} s"}
    return {"bytes_per_transition": float(found[-1])}


# ---- the measurements ------------------------------------------------------------------------------------------------
def variants_of(args):
    """(precision, diagnostics, flags) of each way to run a script. Without diagnostics, whose share of the time is the
    largest in the fastest precision, and with further flags only in that: each way costs a run a round."""
    fastest = args.precisions[-1]
    flags = [*args.flags, *(["--cuda-graphs"] if GPU and "--cuda-graphs" not in args.flags else [])]
    return [
        *((precision, True, "") for precision in args.precisions),
        (fastest, False, ""),
        *((fastest, True, flag) for flag in flags),
    ]


class Plan:
    """What is measured, and in which order."""

    def __init__(self, args):
        self.args, self.estimates, self.start = args, {}, time.monotonic()
        self.alone = min(2.0, args.seconds / 10)  # seconds of each measurement in this process

    def estimate(self, script, num_envs, num_steps, precision):
        """The limit in steps/s, from a look of a quarter of a second a part: how long a run has to be."""
        key = (script, num_envs, num_steps, precision)
        if key not in self.estimates:
            seconds = min(0.25, self.alone)
            network = measure_network(script, num_envs, num_steps, precision, seconds)
            env = measure_env(script, num_envs, num_steps, seconds)
            self.estimates[key] = limit(env["sps"], network["inference"], network["training"], network["update_epochs"])
        return self.estimates[key]

    def run(self, script, num_envs, num_steps, sps, iterations, flags, ranks=None):
        seconds = 300 + 20 * iterations * num_envs * num_steps / sps  # a run that takes this long hangs
        return measure_script(script, num_envs, num_steps, iterations, seconds, self.args.num_threads, flags, ranks)

    def run_peer(self, script, command, num_envs, num_steps):
        sps, iterations = self.length(script, num_envs, num_steps, "fp32")
        total = iterations * num_envs * num_steps
        command = fill(command, default_env_id(script), num_envs, num_steps, total)
        return measure_peer(command, 30 + 4 * total / sps, self.args.num_threads)

    def length(self, script, num_envs, num_steps, precision):
        """The estimate of its speed, and the iterations of a run: an even number, as half of them are measured."""
        sps = self.estimate(script, num_envs, num_steps, precision)
        return sps, max(4, 2 * round(self.args.seconds * sps / (2 * num_envs * num_steps)))

    def run_growth(self, num_envs, num_steps, precision):
        """A shorter run; of a batch that takes longer than that, one iteration."""
        sps = self.estimate(ATARI, min(num_envs, 128), min(num_steps, 32), precision)
        wanted = self.args.seconds * sps / (num_envs * num_steps) / 2
        return self.run(
            ATARI,
            num_envs,
            num_steps,
            sps,
            1 if wanted < 0.5 else max(2, 2 * round(wanted / 2)),
            ["--no-diagnostics", *BF16[precision]],
        )

    def run_storage(self, script):
        N, T = TINY
        with tempfile.TemporaryDirectory(prefix="benchmark-") as runs_dir:
            words = [
                sys.executable,
                ROOT / script,
                "--num-envs",
                N,
                "--num-steps",
                T,
                "--total-timesteps",
                N * T,
                "--minibatch-size",
                N * T,
                "--runs-dir",
                runs_dir,
                "--run-name",
                "run",
                *EXTRA.get(script, []),
            ]
            return measure_storage(shlex.join(map(str, words)), 300)

    def tasks(self, first):
        """Yields (record without its measurement, expected seconds, function that measures) of one round."""
        args = self.args
        fastest = args.precisions[-1]

        def run_seconds(script, precision):
            sps, iterations = self.length(script, N, T, precision)
            return iterations * N * T / sps + START_SECONDS

        for N, T in args.shapes:
            tag = {"shape": f"{N}x{T}"}
            for script in args.scripts:
                if "env" in args.sections:
                    yield (
                        {**tag, "section": "env", "script": script},
                        self.alone,
                        lambda: measure_env(script, N, T, self.alone),
                    )
                for precision in args.precisions if "network" in args.sections else []:
                    yield (
                        {**tag, "section": "network", "script": script, "precision": precision},
                        2 * self.alone,
                        lambda: measure_network(script, N, T, precision, self.alone),
                    )
                for precision, diagnostics, flags in variants_of(args) if "scripts" in args.sections else []:
                    words = [*BF16[precision], *shlex.split(flags), *([] if diagnostics else ["--no-diagnostics"])]
                    yield (
                        {
                            **tag,
                            "section": "scripts",
                            "script": script,
                            "precision": precision,
                            "diagnostics": diagnostics,
                            "flags": flags,
                            "log_steps": default_log_steps(script),
                        },
                        run_seconds(script, precision),
                        lambda: self.run(script, N, T, *self.length(script, N, T, precision), words),
                    )
            for script, name, command in args.peer if "peers" in args.sections else []:
                yield (
                    {**tag, "section": "peers", "script": script, "name": name},
                    2 * run_seconds(script, "fp32"),
                    lambda: self.run_peer(script, command, N, T),
                )
            for ranks in (1, 2) if "ranks" in args.sections else []:
                yield (
                    {**tag, "section": "ranks", "script": ATARI, "precision": fastest, "ranks": ranks},
                    run_seconds(ATARI, fastest),
                    lambda: self.run(
                        ATARI, N, T, *self.length(ATARI, N, T, fastest), ["--no-diagnostics", *BF16[fastest]], ranks
                    ),
                )
        for script in args.scripts if first and "storage" in args.sections else []:
            yield (
                {"section": "storage", "script": script, "name": "ours"},
                START_SECONDS,
                lambda: self.run_storage(script),
            )
        for script, name, command in args.peer if first and "storage" in args.sections else []:
            yield (
                {"section": "storage", "script": script, "name": name},
                START_SECONDS,
                lambda: measure_storage(fill(command, default_env_id(script), *TINY, math.prod(TINY)), 300),
            )
        for N, T in args.growth if first and "growth" in args.sections else []:
            needed = N * T / self.estimate(ATARI, min(N, 128), min(T, 32), fastest)
            yield (
                {"section": "growth", "shape": f"{N}x{T}", "script": ATARI, "precision": fastest},
                max(args.seconds / 2, needed) + START_SECONDS,
                lambda: self.run_growth(N, T, fastest),
            )

    def measure(self, records):
        """Appends a record a measurement to `records`, round by round, as far as the time goes."""
        expected = {}  # seconds by what is measured, from the round before
        bar = tqdm(disable=None, unit="measurement", dynamic_ncols=True)
        for round_ in range(1, self.args.rounds + 1):
            for record, seconds, function in self.tasks(first=round_ == 1):
                name = title(record)
                seconds = expected.get(name, seconds)
                if time.monotonic() - self.start + seconds > 60 * self.args.minutes:
                    records.append({"round": round_, **record, "error": f"left out: --minutes {self.args.minutes:g}"})
                    continue
                bar.set_postfix_str(name)
                load_before, begin = os.getloadavg()[0], time.monotonic()
                try:
                    values = function()
                except (OSError, RuntimeError, MemoryError) as error:
                    values = {"error": f"{type(error).__name__}: {last_line(str(error))}"}
                expected[name] = time.monotonic() - begin
                records.append(
                    {
                        "round": round_,
                        **record,
                        **values,
                        "seconds": round(expected[name], 2),
                        "load": round(load_before, 2),
                    }
                )
                shown = "  ".join(
                    f"{key} {values[key]:,.0f}" if key != "error" else f"error: {values[key]}"
                    for key in ("sps", "inference", "training", "bytes_per_transition", "error")
                    if key in values
                )
                bar.update()
                bar.write(f"{(time.monotonic() - self.start) / 60:5.1f} min  round {round_}  {name:<62}  {shown}")
                sys.stdout.flush()
        bar.close()


def title(record):
    """What a record is of, in one line; equal for the repeats."""
    diagnostics = {True: "diagnostics", False: "no diagnostics"}.get(record.get("diagnostics"))
    ranks = f"{record['ranks']} ranks" if "ranks" in record else None
    words = [
        record["section"],
        record.get("shape"),
        record["script"],
        record.get("name"),
        record.get("precision"),
        diagnostics,
        ranks,
        record.get("flags"),
    ]
    return " ".join(word for word in words if word)


# ---- summary ---------------------------------------------------------------------------------------------------------
def spread(values):
    """{"median", "min", "max", "n"} of the numbers, or None of none."""
    values = list(values)
    if not values:
        return None
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "n": len(values)}


def by_round(records, key="sps", **wanted):
    """{round: value} of the records that have all of these fields."""
    return {
        record["round"]: record[key]
        for record in records
        if key in record and all(record.get(name) == value for name, value in wanted.items())
    }


def ratios(numerators, denominators):
    """The spread of the ratios of the rounds that have both; None if none has."""
    return spread(numerators[r] / denominators[r] for r in sorted(numerators.keys() & denominators.keys()))


def limits(records, **which):
    """{round: steps/s} of a script and precision at a shape."""
    env = by_round(records, section="env", shape=which["shape"], script=which["script"])
    parts = {
        key: by_round(records, key, section="network", **which) for key in ("inference", "training", "update_epochs")
    }
    return {r: limit(env[r], *(part[r] for part in parts.values())) for r in env.keys() & parts["training"].keys()}


def distinct(records, section, *names):
    """The different values of these fields among the section's records, in order."""
    return list(
        dict.fromkeys(tuple(record.get(name) for name in names) for record in records if record["section"] == section)
    )


def summarize(records):
    """What the records say: {"parts", "end_to_end", "diagnostics", "ranks", "growth", "storage", "errors"}, lists of
    dicts, whose numbers are spreads over the rounds: speeds in steps/s or rows/s, memory in bytes, ratios plain."""
    summary = {"parts": [], "end_to_end": [], "diagnostics": [], "ranks": [], "growth": [], "storage": []}
    for shape_, script, precision in distinct(records, "network", "shape", "script", "precision"):
        which = {"shape": shape_, "script": script, "precision": precision}
        summary["parts"].append(
            {
                **which,
                "env": spread(by_round(records, section="env", shape=shape_, script=script).values()),
                **{
                    key: spread(by_round(records, key, section="network", **which).values())
                    for key in ("inference", "training")
                },
                "limit": spread(limits(records, **which).values()),
            }
        )

    def row(shape_, script, own, memory, **names):
        """One program's line: its speed, and what it is of each peer that does the same work."""
        peers = {
            name: ratios(own, by_round(records, section="peers", shape=shape_, script=script, name=name))
            for peer_shape, peer_script, name in distinct(records, "peers", "shape", "script", "name")
            if (peer_shape, peer_script) == (shape_, script)
        }
        return {
            "shape": shape_,
            "script": script,
            **names,
            "sps": spread(own.values()),
            "against": peers,
            "peak_bytes": spread(memory.values()),
        }

    for shape_, script, name in distinct(records, "peers", "shape", "script", "name"):
        which = {"section": "peers", "shape": shape_, "script": script, "name": name}
        summary["end_to_end"].append(
            row(shape_, script, by_round(records, **which), by_round(records, "peak_bytes", **which), name=name)
        )
    fields = ("shape", "script", "precision", "diagnostics", "flags")
    for values in distinct(records, "scripts", *fields):
        which = dict(zip(fields, values))
        own = by_round(records, section="scripts", **which)
        memory = by_round(records, "peak_bytes", section="scripts", **which)
        bound = limits(records, shape=which["shape"], script=which["script"], precision=which["precision"])
        summary["end_to_end"].append(
            {
                **row(own=own, memory=memory, name="ours", shape_=which.pop("shape"), **which),
                "of_limit": ratios(own, bound),
            }
        )
    for shape_, script, precision in distinct(records, "scripts", "shape", "script", "precision"):
        which = {"section": "scripts", "shape": shape_, "script": script, "precision": precision, "flags": ""}
        on, off = (by_round(records, diagnostics=value, **which) for value in (True, False))
        rounds, batch_size = on.keys() & off.keys(), math.prod(shape(shape_))
        half, every = (by_round(records, key, diagnostics=True, **which) for key in ("iterations", "log_steps"))
        cost = {r: (1 / on[r] - 1 / off[r]) * (half[r] - half[r] // 2) * batch_size for r in rounds}
        if rounds:
            summary["diagnostics"].append(
                {
                    "shape": shape_,
                    "script": script,
                    "precision": precision,
                    "on_against_off": ratios(on, off),
                    "seconds_per_log_point": spread(cost.values()),
                    "log_steps": max(batch_size, *every.values()),
                    "share_by_default": spread(
                        cost[r] / (cost[r] + max(batch_size, every[r]) / off[r]) for r in rounds
                    ),
                }
            )
    for shape_, script, precision, ranks in distinct(records, "ranks", "shape", "script", "precision", "ranks"):
        which = {"section": "ranks", "shape": shape_, "script": script, "precision": precision}
        own, one = by_round(records, ranks=ranks, **which), by_round(records, ranks=1, **which)
        memory = by_round(records, "peak_bytes", ranks=ranks, **which)
        summary["ranks"].append(
            {
                "shape": shape_,
                "script": script,
                "precision": precision,
                "ranks": ranks,
                "sps": spread(own.values()),
                "against_one": ratios(own, one),
                "peak_bytes": spread(memory.values()),
            }
        )
    for record in records:
        if record["section"] in ("growth", "storage") and "error" not in record:
            summary[record["section"]].append({key: value for key, value in record.items() if key != "section"})
    measured = {title(record) for record in records if "error" not in record}
    summary["errors"] = [
        f"round {record['round']} {title(record)}: {record['error']}"
        for record in records
        if "error" in record and not (record["error"].startswith("left out") and title(record) in measured)
    ]
    return summary


def shown(value, form=",.0f"):
    """A spread as text: its median, and in brackets its range; a "-" of none."""
    if not value:
        return "-"
    text = f"{value['median']:{form}}"
    return text if value["n"] == 1 else f"{text} ({value['min']:{form}} to {value['max']:{form}})"


def table(header, rows):
    """Lines of Markdown with padded columns, which reads as plain text as well."""
    rows = [header, *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*rows)]
    rows.insert(1, ["-" * width for width in widths])
    return "\n".join("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in rows)


def render(summary, machine):
    """The tables as Markdown."""

    def gigabytes(row):
        return f"{row['peak_bytes']['median'] / 1e9:.1f}" if row["peak_bytes"] else "-"

    parts = [
        f"{machine['cpu']}, {machine['cores']} cores, {machine['gpu'] or 'no GPU'}; "
        + ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
        + f"; commit {str(machine['commit'])[:10]}{' and changes' * machine['dirty']}, {machine['start']}",
        "Medians over the rounds, and in brackets their range. SPS: environment steps per second.",
    ]
    if summary["parts"]:
        parts.append(
            "Alone: the environment, the network (inference on N rows, training on a minibatch; rows/s), and "
            "the limit they imply."
        )
        parts.append(
            table(
                ["shape", "script", "", "environment", "inference", "training", "limit"],
                [
                    [
                        row["shape"],
                        row["script"],
                        row["precision"],
                        *(shown(row[key]) for key in ("env", "inference", "training", "limit")),
                    ]
                    for row in summary["parts"]
                ],
            )
        )
    for shape_, script in dict.fromkeys((row["shape"], row["script"]) for row in summary["end_to_end"]):
        rows = [row for row in summary["end_to_end"] if (row["shape"], row["script"]) == (shape_, script)]
        names = list(dict.fromkeys(name for row in rows for name in row["against"]))
        lines = [
            [
                row["name"]
                if row["name"] != "ours"
                else " ".join(
                    filter(None, [row["precision"], row["flags"], None if row["diagnostics"] else "--no-diagnostics"])
                ),
                shown(row["sps"]),
                shown(row.get("of_limit"), ".2f"),
                *(shown(row["against"].get(name), ".2f") for name in names),
                gigabytes(row),
            ]
            for row in rows
        ]
        parts += [
            f"{script}, {shape_} (environments x steps), end to end.",
            table(["", "SPS", "of the limit", *(f"times {name}" for name in names), "peak GB"], lines),
        ]
    if summary["diagnostics"]:
        parts += [
            "What diagnostics cost: here, each time, and as a share of a run with the script's default points.",
            table(
                ["shape", "script", "", "SPS on / off", "seconds each", "every", "share"],
                [
                    [
                        row["shape"],
                        row["script"],
                        row["precision"],
                        shown(row["on_against_off"], ".2f"),
                        shown(row["seconds_per_log_point"], ".2f"),
                        f"{row['log_steps']:,} steps",
                        shown(row["share_by_default"], ".1%"),
                    ]
                    for row in summary["diagnostics"]
                ],
            ),
        ]
    if summary["ranks"]:
        parts += [
            "Processes of torchrun on this machine.",
            table(
                ["shape", "script", "", "processes", "SPS", "times one", "peak GB of all"],
                [
                    [
                        row["shape"],
                        row["script"],
                        row["precision"],
                        row["ranks"],
                        shown(row["sps"]),
                        shown(row["against_one"], ".2f"),
                        gigabytes(row),
                    ]
                    for row in summary["ranks"]
                ],
            ),
        ]
    if summary["growth"]:
        parts += [
            "How cost grows with N, once.",
            table(
                ["shape", "script", "", "SPS", "ms per iteration", "peak GB"],
                [
                    [
                        row["shape"],
                        row["script"],
                        row["precision"],
                        f"{row['sps']:,.0f}",
                        f"{1e3 * math.prod(shape(row['shape'])) / row['sps']:,.0f}",
                        f"{row['peak_bytes'] / 1e9:.1f}",
                    ]
                    for row in summary["growth"]
                ],
            ),
        ]
    if summary["storage"]:
        parts += [
            "Memory of a rollout.",
            table(
                ["script", "", "bytes per stored transition"],
                [[row["script"], row["name"], f"{row['bytes_per_transition']:,.0f}"] for row in summary["storage"]],
            ),
        ]
    if summary["errors"]:
        parts += ["Not measured:", "\n".join(f"- {line}" for line in summary["errors"])]
    return "\n\n".join(parts) + "\n"


def describe_machine():
    git = subprocess.run(
        ["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
        capture_output=True,
        text=True,
    )
    commit, dirty, _ = git.stdout.strip().partition("-dirty")
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


def main(argv):
    args = parse_args(argv)
    if args.num_threads:
        torch.set_num_threads(args.num_threads)
    machine, records = describe_machine(), []
    if machine["load"] > 0.5:
        print(f"note: the load average is {machine['load']:.1f}: what else runs here spoils the numbers", flush=True)
    try:
        args.out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"--out {args.out} ({error.strerror}): a file in a directory that can be written to is accepted")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it ends as Ctrl-C does: children too, results kept
    code = 0
    try:
        Plan(args).measure(records)
    except KeyboardInterrupt:
        print("interrupted: this is what has been measured", flush=True)
        code = 130
    summary = summarize(records)
    settings = {name: str(value) if isinstance(value, Path) else value for name, value in vars(args).items()}
    args.out.write_text(
        json.dumps(
            {
                "command": shlex.join(sys.argv),
                "machine": machine,
                "settings": settings,
                "summary": summary,
                "records": records,
            },
            indent=1,
        )
        + "\n"
    )
    args.out.with_suffix(".md").write_text(render(summary, machine))
    print(f"\n{render(summary, machine)}\n{args.out} and {args.out.with_suffix('.md')} are written")
    return code


if __name__ == "__main__":
    if sys.argv[1:2] == ["sb3"]:  # the two processes that this program starts of itself
        run_sb3(sys.argv[2], *shape(sys.argv[3]), int(sys.argv[4]))
    elif sys.argv[1:2] == ["storage"]:
        trace_storage(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(main(sys.argv[1:]))
