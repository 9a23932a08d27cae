"""The programs that benchmark.py compares the scripts with, and the processes in which it runs any program.

benchmark.py runs stable-baselines3's PPO in a process of its own, `python -m studies.benchmark_peers Breakout-v5 128 8
100000` in scripts/, which prints its speed as it goes.
"""

from launching.root import ROOT

import contextlib
import importlib
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from support import arguments, catalog
from support.envs.envpool import families
from support.envs.episodes import env_seeds

SCRIPTS = tuple(f"{name}.py" for name, script in catalog.SCRIPTS.items() if script.envpool)
# stable-baselines3 does the work of both, and --peer that of the first if it names none
ATARI, SMALL = "ppo_atari_envpool.py", "ppo_envpool.py"
# RND's normaliser plays 50 random rollouts before the first iteration: a short run plays one
EXTRA_ARGUMENTS = {"ppo_rnd_envpool.py": ["--num-iterations-obs-norm-init", "1"]}
SPEED = re.compile(r"(?:SPS|sps|steps/s)\W{1,3}([\d,]+(?:\.\d+)?)|([\d,]+(?:\.\d+)?) ?(?:SPS|sps|steps/s)\b")
GPU = torch.cuda.is_available()
INTERRUPTS = []  # the signals that noted_interrupts has received


class Shape(NamedTuple):
    """The shape of a rollout."""

    num_envs: int
    num_steps: int

    def __str__(self):
        return f"{self.num_envs}x{self.num_steps}"

    @property
    def batch_size(self):
        return self.num_envs * self.num_steps


class Peer(NamedTuple):
    """A program of others that does the same work as one of the scripts."""

    script: str  # the script that it is compared with
    name: str
    command: str  # with {env_id}, {num_envs}, {num_steps} and {total_timesteps} in it

    def command_for(self, env_id, shape, total_timesteps):
        return self.command.format(
            env_id=env_id, num_envs=shape.num_envs, num_steps=shape.num_steps, total_timesteps=total_timesteps
        )


def parse_peer(text):
    """The Peer that "[SCRIPT.py:]NAME=COMMAND" means. Exits 2 with one line if it means none."""
    match = re.fullmatch(r"(?:([\w.]+\.py):)?([\w. -]+)=(.+)", text, re.DOTALL)
    if not match:
        arguments.fail(f"--peer {text}: expected NAME=COMMAND or SCRIPT.py:NAME=COMMAND")
    peer = Peer(match[1] or ATARI, match[2], " ".join(match[3].split()))
    if peer.script not in SCRIPTS:
        arguments.fail(f"--peer {text}: expected one of {', '.join(SCRIPTS)}")
    try:
        peer.command_for("Breakout-v5", Shape(1, 1), 1)
    except (KeyError, IndexError, ValueError):
        arguments.fail(
            f"--peer {text}: expected no braces but {{env_id}}, {{num_envs}}, {{num_steps}} and {{total_timesteps}}"
        )
    return peer


def load(script, shape, *flags):
    """The script as a module, and its checked arguments."""
    module = importlib.import_module(script[: -len(".py")])
    words = ["--num-envs", str(shape.num_envs), "--num-steps", str(shape.num_steps)]
    return module, module.parse_args([*words, *EXTRA_ARGUMENTS.get(script, []), *flags])


# ---- processes -------------------------------------------------------------------------------------------------------
def descendants(pid):
    """The process and all living processes below it."""
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError):
            found += map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split())
    return found


@contextlib.contextmanager
def noted_interrupts():
    """Notes SIGINT and SIGTERM for raise_if_interrupted: raised inside Popen they would leave its child alive."""
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
    """Runs a command for at most `seconds` and ends all of its processes. `num_threads`: 0 leaves it to the program.

    Returns {"code": exit code, None if it had to be ended, "output": stdout and stderr, "peak_bytes", "gpu_bytes"}.
    """
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    if num_threads:
        env["OMP_NUM_THREADS"] = str(num_threads)
    # VmHWM, not ru_maxrss: until the child executes its program, ru_maxrss is the size of this process
    peaks, num_looks, gpu_bytes = {}, {}, 0
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
                        num_looks[pid] = num_looks.get(pid, 0) + 1
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
    # before a child executes its own program it shows the memory of its parent: leave out the short-lived ones
    lasting = [peak for pid, peak in peaks.items() if num_looks[pid] >= 10]
    return {
        "code": code,
        "output": text,
        "gpu_bytes": gpu_bytes if GPU else None,
        "peak_bytes": sum(lasting) or max(peaks.values(), default=0),
    }


def last_line(text):
    return next((line.strip()[:200] for line in reversed(text.splitlines()) if line.strip()), "no output")


def why_it_failed(ended, seconds):
    """One line about a process that did not finish: `ended` is what run_process returned."""
    return last_line(ended["output"]) if ended["code"] else f"had not ended after {seconds:.0f} s"


# ---- peers -----------------------------------------------------------------------------------------------------------
def speed_of_second_half(speeds):
    """Steps/s in the second half of a run, from the mean speeds since its start, printed at equal distances.

    After n of n lines the run has done s steps in s / speeds[-1] seconds; after half of the lines it had done
    fraction * s steps in fraction * s / speeds[half - 1] seconds. With one line: that speed.
    """
    half = len(speeds) // 2
    fraction = half / len(speeds)
    seconds_per_step = 1 / speeds[-1] - fraction / speeds[half - 1]  # the second half's, over the steps of the whole
    return (1 - fraction) / seconds_per_step if half and seconds_per_step > 0 else speeds[-1]


def measure_peer(command, seconds, num_threads):
    """Runs a peer's command. Returns its speed and memory, or {"error": its last line}."""
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
    folder, python = shlex.quote(str(ROOT / "scripts")), shlex.quote(sys.executable)
    program = f"PYTHONPATH={folder}:$PYTHONPATH {python} -m studies.benchmark_peers"
    return Peer(script, "sb3", program + " {env_id} {num_envs} {num_steps} {total_timesteps}")


def sb3_adapter(envs, num_envs):
    """EnvPool's environments as stable-baselines3 expects them.

    With `done` SB3 expects the first observation of the next game, and the last one of the old game in `infos`.
    EnvPool returns that last one, and the first one a step later, which ignores its action. As in CleanRL that step is
    an ordinary transition with reward 0: nothing is copied, and SB3 does as many steps as the others. At a time limit
    SB3 gets what it needs to bootstrap.
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
            raise NotImplementedError("EnvPool's games have no attributes of their own")

        def env_method(self, method_name, *method_args, indices=None, **method_kwargs):
            raise NotImplementedError("EnvPool's games have no methods of their own")

        def env_is_wrapped(self, wrapper_class, indices=None):
            return [False] * self.num_envs

    return Adapter()


def run_sb3(env_id, shape, total_timesteps):
    """Trains PPO with the network and the hyper-parameters of ours; prints `SPS: ...` after each rollout."""
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
    module, args = load(ATARI if atari else SMALL, shape, "--env-id", env_id)
    envs = module.make_envs(args, env_seeds(args.seed, "train", 0, range(shape.num_envs)))
    model = PPO(
        "CnnPolicy" if atari else "MlpPolicy",
        sb3_adapter(envs, shape.num_envs),
        n_steps=shape.num_steps,
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
    run_sb3(sys.argv[1], Shape(int(sys.argv[2]), int(sys.argv[3])), int(sys.argv[4]))
