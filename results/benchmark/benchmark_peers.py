"""The programs that benchmark.py compares the scripts with, and how it runs any program as a process.

stable-baselines3's PPO runs in a process of its own and prints its speed as it goes:

    python results/benchmark/benchmark_peers.py Breakout-v5 128 8 100000
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT  # noqa: F401

import contextlib
import importlib
import inspect
import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
from typing import NamedTuple

import numpy as np
import torch

from support import arguments, catalog
from support.envs.envpool import families
from support.envs.episodes import env_seeds

CORES = torch.get_num_threads()
EWMA = "ppo_ewma_atari_envpool.py"  # which runs under torchrun; alone it is as fast as ATARI
SCRIPTS = tuple(f"{name}.py" for name, script in catalog.SCRIPTS.items() if script.envpool and f"{name}.py" != EWMA)
# stable-baselines3 is a peer of both; a --peer that names no script is a peer of the first
ATARI, SMALL = "ppo_atari_envpool.py", "ppo_envpool.py"
# RND's normaliser takes 50 random rollouts before the first iteration: a short run takes one
EXTRA_ARGUMENTS = {
    "ppo_rnd_envpool.py": ["--num-iterations-obs-norm-init", "1"],
    SMALL: ["--learning-rate", "2.5e-4"],  # its default depends on the steps
}
SPEED = re.compile(r"(?:SPS|sps|steps/s)\W{1,3}([\d,]+(?:\.\d+)?)|([\d,]+(?:\.\d+)?) ?(?:SPS|sps|steps/s)\b")
GPU = torch.cuda.is_available()
INTERRUPTS = []  # the signals noted by noted_interrupts


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
        return self.command.format(
            env_id=env_id, num_envs=setting.num_envs, num_steps=setting.num_steps, total_timesteps=total_timesteps
        )


def parse_peer(text):
    """The Peer in "[SCRIPT.py:]NAME=COMMAND". Exits 2 with one line if the text has another form."""
    match = re.fullmatch(r"(?:([\w.]+\.py):)?([\w. -]+)=(.+)", text, re.DOTALL)
    if not match:
        arguments.fail(f"--peer {text}: expected NAME=COMMAND or SCRIPT.py:NAME=COMMAND")
    peer = Peer(match[1] or ATARI, match[2], " ".join(match[3].split()))
    if peer.script not in SCRIPTS:
        arguments.fail(f"--peer {text}: expected one of {', '.join(SCRIPTS)}")
    try:
        peer.command_for("Breakout-v5", Setting(1, 1), 1)
    except (KeyError, IndexError, ValueError):
        arguments.fail(
            f"--peer {text}: expected no braces but {{env_id}}, {{num_envs}}, {{num_steps}} and {{total_timesteps}}"
        )
    return peer


def environments(module, args, num_envs):
    """The environments that a script trains with, in as many threads as PyTorch has, or had before it used a GPU."""
    threads = {"num_threads": CORES if GPU else torch.get_num_threads()}
    takes = inspect.signature(module.make_envs).parameters.keys() & threads  # those of ppo_envpool.py are in args
    return module.make_envs(args, env_seeds(args.seed, "train", 0, range(num_envs)), **(threads if takes else {}))


def load(script, setting, *flags):
    """The script as a module, and its checked arguments."""
    module = importlib.import_module(script[: -len(".py")])
    words = ["--num-envs", str(setting.num_envs), "--num-steps", str(setting.num_steps)]
    return module, module.parse_args([*words, *EXTRA_ARGUMENTS.get(script, []), *flags])


# ---- processes -------------------------------------------------------------------------------------------------------
def descendants(pid):
    """The process and its living descendants."""
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError):
            found += map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split())
    return found


@contextlib.contextmanager
def noted_interrupts():
    """Notes SIGINT and SIGTERM for raise_if_interrupted. An exception inside Popen would leave its child alive."""
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(signum, lambda signum, frame: INTERRUPTS.append(signum)) for signum in signals]
    try:
        yield
    finally:
        INTERRUPTS.clear()
        for signum, handler in zip(signals, before):
            signal.signal(signum, handler)


def raise_if_interrupted():
    if INTERRUPTS:
        raise KeyboardInterrupt


def run_process(words, seconds, num_threads=0):
    """Runs a command for at most `seconds`, then ends all of its processes. num_threads: 0 takes the program's default.

    Returns {"code": exit code, or None if it had to be ended, "output": stdout and stderr, "peak_bytes", "gpu_bytes"}.
    """
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    if num_threads:
        env["OMP_NUM_THREADS"] = str(num_threads)
    # VmHWM and not ru_maxrss, which counts the size of this process until the child executes its program
    peaks, num_polls, gpu_bytes = {}, {}, 0
    gpu_free = torch.cuda.mem_get_info()[0] if GPU else 0
    with tempfile.TemporaryFile("w+") as output:
        child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=env, start_new_session=True
        )
        try:
            deadline = time.monotonic() + seconds
            while child.poll() is None and time.monotonic() < deadline:
                raise_if_interrupted()
                for pid in descendants(child.pid):
                    with contextlib.suppress(OSError, TypeError):  # it has ended
                        status = Path(f"/proc/{pid}/status").read_text()
                        peaks[pid] = 1024 * int(re.search(r"VmHWM:\s*(\d+) kB", status)[1])
                        num_polls[pid] = num_polls.get(pid, 0) + 1
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
    # until a child executes its own program it reports the memory of its parent: leave out short-lived processes
    lasting = [peak for pid, peak in peaks.items() if num_polls[pid] >= 10]
    return {
        "code": code,
        "output": text,
        "gpu_bytes": gpu_bytes if GPU else None,
        "peak_bytes": sum(lasting) or max(peaks.values(), default=0),
    }


def last_line(text):
    return next((line.strip()[:200] for line in reversed(text.splitlines()) if line.strip()), "no output")


def why_it_failed(ended, seconds):
    """One line on a process that failed. ended: the result of run_process."""
    return last_line(ended["output"]) if ended["code"] else f"had not ended after {seconds:.0f} s"


# ---- peers -----------------------------------------------------------------------------------------------------------
def speed_of_second_half(speeds):
    """Steps/s in the second half of a run, from the mean speeds since its start, printed at equal intervals.

    After all lines the run has made s steps in s / speeds[-1] seconds. After half of the lines it had made fraction * s
    steps in fraction * s / speeds[half - 1] seconds. A single line gives its own speed.
    """
    half = len(speeds) // 2
    fraction = half / len(speeds)
    seconds_per_step = 1 / speeds[-1] - fraction / speeds[half - 1]  # of the second half, over the steps of the whole
    return (1 - fraction) / seconds_per_step if half and seconds_per_step > 0 else speeds[-1]


def measure_peer(command, seconds, num_threads):
    """Runs the command of a peer. Returns its speed and memory, or {"error": its last line}."""
    ended = run_process(["/bin/sh", "-c", command], seconds, num_threads)
    if ended["code"]:
        return {"error": why_it_failed(ended, seconds)}
    speeds = [float((match[1] or match[2]).replace(",", "")) for match in SPEED.finditer(ended["output"])]
    speeds = [speed for speed in speeds if speed > 0]
    if not speeds:
        return {"error": f"printed no steps/s: {last_line(ended['output'])}"}
    return {
        "sps": speed_of_second_half(speeds),
        "lines": len(speeds),
        "ended": ended["code"] is None,
        "peak_bytes": ended["peak_bytes"],
        "gpu_bytes": ended["gpu_bytes"],
    }


def sb3_peer(script):
    """stable-baselines3's PPO as a Peer of one of the scripts."""
    program = shlex.join([sys.executable, str(Path(__file__).resolve())])
    return Peer(script, "sb3", program + " {env_id} {num_envs} {num_steps} {total_timesteps}")


def sb3_adapter(envs, num_envs):
    """EnvPool's environments with the interface that stable-baselines3 expects.

    With `done`, SB3 expects the first observation of the next episode, and the last one of the old episode in `infos`.
    EnvPool returns the last one, and the first one in the autoreset step, which ignores its action. As in CleanRL that
    step is an ordinary transition with reward 0: nothing is copied, and SB3 makes as many steps as the others. At a
    time limit SB3 gets the observation from which it bootstraps.
    """
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
            raise NotImplementedError("EnvPool's environments have no attributes of their own")

        def env_method(self, method_name, *method_args, indices=None, **method_kwargs):
            raise NotImplementedError("EnvPool's environments have no methods of their own")

        def env_is_wrapped(self, wrapper_class, indices=None):
            return [False] * self.num_envs

    return Adapter()


def run_sb3(env_id, setting, total_timesteps):
    """Trains SB3's PPO with the script's network and hyper-parameters. Prints `SPS: ...` after each rollout."""
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

    atari = families().get(env_id) == "envpool.atari"
    module, args = load(ATARI if atari else SMALL, setting, "--env-id", env_id)
    envs = environments(module, args, setting.num_envs)
    model = PPO(
        "CnnPolicy" if atari else "MlpPolicy",
        sb3_adapter(envs, setting.num_envs),
        n_steps=setting.num_steps,
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


if __name__ == "__main__":
    run_sb3(sys.argv[1], Setting(int(sys.argv[2]), int(sys.argv[3])), int(sys.argv[4]))
