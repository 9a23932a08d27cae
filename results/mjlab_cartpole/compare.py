"""ppo_isaacgym.py against mjlab's own trainer, rsl_rl, on Cartpole-Balance: many seeds, with the physics in NumPy.

    python results/mjlab_cartpole/compare.py check                               # NumPy's physics against MuJoCo's
    python results/mjlab_cartpole/compare.py returns > results/mjlab_cartpole/returns.csv
    python results/mjlab_cartpole/compare.py lag > results/mjlab_cartpole/lag.csv
    python results/mjlab_cartpole/compare.py phase > results/mjlab_cartpole/phase.csv
    python results/mjlab_cartpole/compare.py ways > results/mjlab_cartpole/ways.csv

On a CPU mjlab takes 80 ms for one step of 256 environments, this copy 1 ms. Both programs get the same environments,
from the same seed.

returns: of both programs, three seeds. Returns are counted here: the mean of the last 100 whole episodes, and the mean
    reward a step, times 1000 steps, of the last iteration.
lag: ppo_isaacgym.py with 64, 256 and 1024 environments and as many steps in all, started out of phase or together: the
    points of `charts/episodic_return` and `charts/reward`, and the final return of 100 whole games.
phase: the final returns of seeds 2 to 6 with 1024 and 256 environments, started out of phase or together.
ways: the final returns of seeds 1 to 5 with 64 environments, and with 256 in the three ways of P3, at a fixed learning
    rate. --seeds takes some of them, to run several at once.

`python scripts/judge.py mjlab_cartpole` judges H1 to H3 and G1 to G3 of results/CLAIMS.md, from phase.csv and ways.csv.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT  # noqa: F401

import contextlib
import csv
import dataclasses
import io
import math
import tempfile
from typing import Literal, Tuple

import numpy as np
import torch
from tyro.conf import Positional

from support import arguments

TASK = "Mjlab-Cartpole-Balance"
STEPS = 1310720  # in each run
STEPS_OF_WAYS = 327680
WAYS = ("base", "more-minibatches", "bigger-minibatches", "sqrt-lr")
LENGTH, STEP, SUBSTEPS = 1000, 0.01, 5  # an episode and a physical step, in seconds; physical steps in one of the task
# cart and pole: masses, damping; the pole's centre and its inertia about the hinge; the motor's gear
CART, POLE, CENTRE, INERTIA, GRAVITY, GEAR = 1.0, 0.1, 0.5, 0.0344245927672956, 9.81, 10.0
CART_DAMPING, POLE_DAMPING = 5e-4, 2e-6
# the soft limit of the rail: where it is, MuJoCo's impedance (solimp), and stiffness and damping from solref (0.08, 1)
LIMIT, IMPEDANCE, WIDTH, INVERSE_WEIGHT = 1.8, (0.9, 0.95), 0.001, 0.9733520544614127
STIFFNESS, DAMPING = 1 / (0.95 * 0.08) ** 2, 2 / (0.95 * 0.08)


def physical_step(position, angle, velocity, spin, control):
    """One step of MuJoCo's implicitfast integrator; all (N,) float64. Returns the new state."""
    sine, cosine = np.sin(angle), np.cos(angle)
    coupling = POLE * CENTRE * cosine
    cart_force = GEAR * control - CART_DAMPING * velocity + POLE * CENTRE * sine * spin**2
    pole_force = POLE * CENTRE * GRAVITY * sine - POLE_DAMPING * spin
    determinant = (CART + POLE) * INERTIA - coupling**2
    acceleration = (INERTIA * cart_force - coupling * pole_force) / determinant
    side, beyond = np.sign(position), np.abs(position) - LIMIT
    depth = np.clip(beyond / WIDTH, 0, 1)
    rise = np.where(depth < 0.5, 2 * depth**2, 1 - 2 * (1 - depth) ** 2)
    impedance = IMPEDANCE[0] + rise * (IMPEDANCE[1] - IMPEDANCE[0])
    softness = (1 - impedance) / impedance * INVERSE_WEIGHT
    wanted = DAMPING * side * velocity + STIFFNESS * impedance * beyond + side * acceleration
    push = np.maximum(wanted / (INERTIA / determinant + softness), 0)
    cart_force = cart_force - np.where(beyond > 0, side * push, 0)
    cart_mass, pole_mass = CART + POLE + STEP * CART_DAMPING, INERTIA + STEP * POLE_DAMPING
    determinant = cart_mass * pole_mass - coupling**2
    velocity = velocity + STEP * (pole_mass * cart_force - coupling * pole_force) / determinant
    spin = spin + STEP * (cart_mass * pole_force - coupling * cart_force) / determinant
    return position + STEP * velocity, angle + STEP * spin, velocity, spin


def bell(x, margin):
    """1 at 0 and 0.1 at the margin."""
    return np.exp(math.log(0.1) * (x / margin) ** 2)


class Cartpole:
    """mjlab's task; counts the returns of whole episodes."""

    def __init__(self, num_envs, seed):
        self.rng = np.random.default_rng(seed)
        self.state = np.zeros((4, num_envs))  # position, angle, velocity, spin
        self.ages = torch.zeros(num_envs, dtype=torch.int64)
        self.whole, self.sums = np.zeros(num_envs, dtype=bool), np.zeros(num_envs)
        self.returns, self.rewards = [], []
        self.restart(np.arange(num_envs))

    def restart(self, which):
        bounds = np.array([0.1, 0.034, 0.01, 0.01])[:, None]
        self.state[:, which] = self.rng.uniform(-bounds, bounds, (4, len(which)))
        self.ages[which], self.sums[which] = 0, 0

    def observe(self):
        position, angle, velocity, spin = self.state
        return torch.tensor(np.stack([position, np.cos(angle), np.sin(angle), velocity, spin], 1), dtype=torch.float32)

    def advance(self, action):
        """Returns the rewards (N,) float32 and the indices of the environments at their time limit."""
        action = action.double().numpy().ravel()
        for _ in range(SUBSTEPS):
            self.state = np.stack(physical_step(*self.state, np.clip(action, -1, 1)))
        position, angle, _, spin = self.state
        effort = (4 + np.clip(1 - 0.9 * action**2, 0, None)) / 5
        reward = (np.cos(angle) + 1) / 2 * (1 + bell(position, 2)) / 2 * effort * (1 + bell(spin, 5)) / 2 * 0.05
        self.ages += 1
        self.sums += reward
        self.rewards.append(reward.mean())
        over = np.flatnonzero(self.ages.numpy() >= LENGTH)
        self.returns += self.sums[over][self.whole[over]].tolist()
        self.whole[over] = True
        return torch.tensor(reward, dtype=torch.float32), over


class Ours:
    """The interface of simulators.py."""

    sizes, episode_length = (5, 5, 1), LENGTH

    def __init__(self, cartpole):
        self.cartpole = cartpole

    def observe(self):
        return self.cartpole.observe().repeat(1, 2)  # the actor's columns, then the critic's

    def reset(self, _):
        return self.observe(), True

    def set_ages(self, ages):
        self.cartpole.ages[:] = ages

    def step(self, action):
        reward, over = self.cartpole.advance(action)
        last_obs = self.observe()[over]
        self.cartpole.restart(over)
        truncated = torch.zeros(len(reward), dtype=torch.bool)
        truncated[over] = True
        return self.observe(), reward, torch.zeros_like(truncated), truncated, True, torch.from_numpy(over), last_obs


class Theirs:
    """The interface of rsl_rl."""

    num_actions, max_episode_length, device, cfg = 1, LENGTH, "cpu", {}

    def __init__(self, cartpole):
        self.cartpole, self.num_envs = cartpole, len(cartpole.ages)

    @property
    def episode_length_buf(self):
        return self.cartpole.ages

    @episode_length_buf.setter
    def episode_length_buf(self, ages):
        self.cartpole.ages[:] = ages

    def get_observations(self):
        from tensordict import TensorDict

        obs = self.cartpole.observe()
        return TensorDict({"actor": obs, "critic": obs}, batch_size=[len(obs)])

    def step(self, action):
        reward, over = self.cartpole.advance(action)
        self.cartpole.restart(over)
        time_outs = torch.zeros(len(reward), dtype=torch.bool)
        time_outs[over] = True
        return self.get_observations(), reward, time_outs.long(), {"time_outs": time_outs}


def train_ours(cartpole, seed, iterations):
    import ppo_isaacgym as ppo

    ppo.make_envs = lambda *_: Ours(cartpole)
    num_envs = len(cartpole.ages)
    with tempfile.TemporaryDirectory() as folder:
        words = f"--env-id {TASK} --num-envs {num_envs} --total-timesteps {iterations * 32 * num_envs} --seed {seed} "
        words += f"--no-diagnostics --num-logs 2 --num-threads 1 --runs-dir {folder}"
        with contextlib.suppress(SystemExit):
            ppo.main(ppo.parse_args(words.split()))


def train_and_play(num_envs, seed, steps, *flags):
    """Trains once. Returns the curves as reading.read_curves does, and the final return."""
    import ppo_isaacgym as ppo
    from support import reading

    ppo.make_envs = lambda args, number, seed, device: Ours(Cartpole(number, seed))
    with tempfile.TemporaryDirectory() as folder:
        words = f"--env-id {TASK} --num-envs {num_envs} --total-timesteps {steps} --num-logs 20 --eval-episodes 100 "
        words += f"--seed {seed} --no-diagnostics --num-threads 1 --runs-dir {folder} --run-name run"
        with contextlib.suppress(SystemExit):
            ppo.main(ppo.parse_args([*words.split(), *flags]))
        run = Path(folder, "run")
        return reading.read_curves(run), reading.read_json(run / "done.json")["final_return"]


def train_theirs(cartpole, seed, iterations):
    from mjlab.rl import MjlabOnPolicyRunner
    from mjlab.tasks.registry import load_rl_cfg

    torch.manual_seed(seed)
    runner = MjlabOnPolicyRunner(Theirs(cartpole), dataclasses.asdict(load_rl_cfg(TASK)), None, "cpu")
    runner.learn(iterations, init_at_random_ep_len=True)


def check():
    """The largest difference from MuJoCo after one step from 2000 random states, beyond the rail's limits too."""
    import mjlab.tasks.cartpole
    import mujoco

    model = mujoco.MjModel.from_xml_path(str(Path(mjlab.tasks.cartpole.__file__).with_name("cartpole.xml")))
    model.opt.timestep, model.opt.integrator = STEP, mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT
    rng = np.random.default_rng(0)
    states = rng.uniform(-1, 1, (2000, 4)) * [1.95, 4, 5, 15]
    controls, data, largest = rng.uniform(-1, 1, 2000), mujoco.MjData(model), 0.0
    ours = np.stack(physical_step(*states.T, controls), 1)
    for state, control, new in zip(states, controls, ours, strict=True):
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:], data.ctrl[:] = state[:2], state[2:], control
        mujoco.mj_step(model, data)
        largest = max(largest, np.abs(np.concatenate([data.qpos, data.qvel]) - new).max())
    print(f"largest difference: {largest:.1e}")


def returns(table):
    table.writerow(("program", "seed", "num_envs", "steps", "episodic_return", "reward_x_1000"))
    for seed in range(1, 4):
        for program, train in (("rsl_rl", train_theirs), ("ppo_isaacgym.py", train_ours)):
            cartpole = Cartpole(256, seed)
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                train(cartpole, seed, STEPS // 32 // 256)
            numbers = np.mean(cartpole.returns[-100:]), 1000 * np.mean(cartpole.rewards[-32:])
            table.writerow((program, seed, 256, STEPS, *(f"{number:.2f}" for number in numbers)))
            sys.stdout.flush()


def lag(table):
    table.writerow(("num_envs", "stagger_resets", "steps", "episodic_return", "reward_x_1000", "final_return"))
    for num_envs in (64, 256, 1024):
        for flag in ("--stagger-resets", "--no-stagger-resets"):
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                curves, final_return = train_and_play(num_envs, 1, STEPS, flag)
            found = {tag: dict(zip(*curves[f"charts/{tag}"], strict=True)) for tag in ("reward", "episodic_return")}
            for step, reward in found["reward"].items():
                mean_return = f"{found['episodic_return'][step]:.2f}" if step in found["episodic_return"] else ""
                final = f"{final_return:.2f}" if step == max(found["reward"]) else ""
                table.writerow((num_envs, flag == "--stagger-resets", step, mean_return, f"{1000 * reward:.2f}", final))
            sys.stdout.flush()


def phase(table):
    table.writerow(("num_envs", "stagger_resets", "seed", "steps", "final_return"))
    for seed in range(2, 7):
        for num_envs in (1024, 256):
            for flag in ("--stagger-resets", "--no-stagger-resets"):
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    _, final_return = train_and_play(num_envs, seed, STEPS, flag)
                table.writerow((num_envs, flag == "--stagger-resets", seed, STEPS, f"{final_return:.2f}"))
                sys.stdout.flush()


def ways(table, seeds):
    table.writerow(("num_envs", "way", "seed", "steps", "final_return"))
    for seed in seeds:
        for way in WAYS:
            num_envs, flags = (64, []) if way == "base" else (256, ["--scale-from", "64", "--scaling", way])
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                _, final_return = train_and_play(num_envs, seed, STEPS_OF_WAYS, "--desired-kl", "None", *flags)
            table.writerow((num_envs, way, seed, STEPS_OF_WAYS, f"{final_return:.2f}"))
            sys.stdout.flush()


@dataclasses.dataclass
class Args:
    part: Positional[Literal["check", "returns", "lag", "phase", "ways"]]  # what is run
    seeds: Tuple[arguments.Seed, ...] = (1, 2, 3, 4, 5)  # the seeds of ways


def main(args):
    torch.set_num_threads(1)
    table = csv.writer(sys.stdout, lineterminator="\n")
    if args.part == "check":
        check()
    elif args.part == "ways":
        ways(table, args.seeds)
    else:
        {"returns": returns, "lag": lag, "phase": phase}[args.part](table)


if __name__ == "__main__":
    main(arguments.parse(Args, sys.argv[1:], __doc__))
