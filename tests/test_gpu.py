"""Every script whole on the stand-in for a GPU (stand_in/gpu.py): devices, generators, and the waits of the host.

test_cuda.py has what only a real one shows.
"""

import json
import shutil
import sys

import pytest
import torch
from conftest import ROOT, STAND_IN, Forked, curves, environment, load_checkpoint, run_forked, two_ranks

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="the stand-in needs a C++ compiler")
T = 4
N_BY_T = f"--num-envs 4 --num-steps {T} "
SIZE = f"{N_BY_T}--total-timesteps {3 * 4 * T} --update-epochs 1 --num-minibatches 2 --num-logs 1 "
SIZE += "--probe-size 8 --num-threads 2 --run-name run "
RND, EVAL = "--env-id Breakout-v5 --num-iterations-obs-norm-init 1 ", " --eval-episodes 1"
ACTIONS = {'action = part.actions[t].to("cpu", torch.int32).numpy()': T}
FINITE = {"counts = devices.sum_over_ranks(finite.int()).tolist()": 1}
EPISODES = {"steps = steps.cpu().numpy()  # the first wait for the GPU": 1}
MOMENTS = {
    "for step_moments in zip(means, squares / divisors, counts.tolist()):": 1,
    "stats.sum_moments = diagnostics.merge_moments(stats.sum_moments, sums[valid].double())": 1,
}
SIMULATOR = "obs, reward, done, extras = self.env.step(action.clamp(-1.0, 1.0))  # the bounds of every task"
ACTOR = {
    "flat = torch.cat([x.flatten().double() for x in tensors]).cpu()  # float32 is exact in float64": 1,
    "noise = torch.stack(noise, 1).cpu().numpy()  # (T, S, N, A)": 1,
    "finite = torch.stack([torch.stack(found).all(0).cpu() for found in places.values()]).all(0)  # (S,)": 1,
}
# script and flags; the lines at which the host waits in an iteration without a log point; and how often more with one
CASES = {
    "ewma": ("ppo_ewma_atari_envpool.py", "--prox-com 3 --no-shared-encoder --bf16" + EVAL, {**ACTIONS, **FINITE}, 14),
    "pqn": ("pqn_atari_envpool.py", "--bf16" + EVAL, {**ACTIONS, **FINITE}, 10),
    "procgen": ("ppo_procgen.py", "--env-id bigfish --no-shared-encoder" + EVAL, {**ACTIONS, **FINITE}, 12),
    "rnd": ("ppo_rnd_envpool.py", RND + "--no-shared-encoder" + EVAL, {**ACTIONS, **MOMENTS, **FINITE}, 12),
    "ant": ("ppo_isaacgym.py", "--env-id Ant --prox-com 2 --norm-obs", {SIMULATOR: 2 * T, **EPISODES, **FINITE}, 14),
    "cartpole": ("ppo_envpool.py", "--prox-com 3 --norm-obs --norm-reward --eval-episodes 2", ACTOR, 14),
    "continuous": ("ppo_envpool.py", "--env-id Pendulum-v1 --shared-encoder", ACTOR, 14),
    "grid": ("ppo_envpool.py", "--env-id MiniGrid-Empty-5x5-v0 --num-seeds 2", ACTOR, 19),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The compiled part of the stand-in."""
    path = tmp_path_factory.mktemp("library") / "gpu.so"
    sys.path.insert(0, str(STAND_IN))
    import gpu

    gpu.build(path)
    return str(path)


def start(library, folder, script, words, **env):
    """Starts a script on the stand-in; its waits go to waits.json in the folder."""
    size = SIZE.replace(N_BY_T, "") if "--schedule" in words else SIZE
    words = [*size.split(), "--runs-dir", str(folder), *words.split()]
    program = [str(STAND_IN / "gpu.py"), library, str(folder / "waits.json"), str(ROOT / script), *words]
    return Forked([sys.executable, *program], folder, environment(MUJOCO_GL="disable", **env), library)


def run(library, folder, script, words, **env):
    """Runs a script to its end on the stand-in. Returns what it has printed and, of each iteration, its waits."""
    process = start(library, folder, script, words, **env)
    out, err = process.communicate()
    assert process.returncode == 0, out + err
    return out, json.loads((folder / "waits.json").read_text())


def by_line(waits):
    """{line of code: number}, without the files."""
    return {line.partition(": ")[2]: number for line, number in waits.items()}


@pytest.mark.parametrize("name", CASES)
def test_a_run_and_its_waits(library, name, tmp_path):
    """The last of three iterations has the log point. The waits of the first are of the setup, too."""
    script, words, expected, at_a_log_point = CASES[name]
    _, iterations = run(library, tmp_path, script, words)
    iterations = iterations[:: len(iterations) // 3]  # with several seeds each run ends its iteration
    assert [x["log_point"] for x in iterations[:2]] == [False, False]
    assert by_line(iterations[1]["waits"]) == expected
    assert iterations[1]["threads"] == 1 and not iterations[1]["pins"]  # PyTorch's; memory is pinned at the start
    waits = by_line(iterations[2]["waits"])
    assert iterations[2]["log_point"] and waits.items() >= expected.items()
    assert sum(waits.values()) - sum(expected.values()) == at_a_log_point, waits


@pytest.mark.parametrize("script,words", [("ppo_atari_envpool.py", ""), ("ppo_envpool.py", "--norm-obs")])
def test_the_same_numbers_as_on_the_cpu(library, script, words, tmp_path):
    """The stand-in's generators draw what a CPU's do: noise, shuffles, losses and networks agree up to rounding."""
    for name in ("gpu", "cpu"):
        (tmp_path / name).mkdir()
    run(library, tmp_path / "gpu", script, words + " --num-logs 3")
    done = run_forked(
        [sys.executable, str(ROOT / script), *SIZE.split(), *words.split(), "--num-logs", "3"],
        tmp_path / "cpu",
        environment(),
    )
    assert done.returncode == 0, done.stderr
    gpu, cpu = (curves(tmp_path / path) for path in ("gpu/run", "cpu/runs/run"))
    assert gpu.keys() == cpu.keys()
    for tag in gpu.keys() - {"charts/SPS"}:
        (steps, values), (expected_steps, expected) = zip(*gpu[tag]), zip(*cpu[tag])
        assert steps == expected_steps and values == pytest.approx(expected, rel=1e-2, abs=1e-4, nan_ok=True), tag


@pytest.mark.parametrize(
    "script,words",
    [
        ("ppo_rnd_envpool.py", RND),
        ("ppo_isaacgym.py", "--env-id Ant --norm-obs --prox-com 2 "),
        ("ppo_envpool.py", "--norm-obs --norm-reward --prox-com 2 --schedule 0:4x4,0.5:2x8 "),
        ("ppo_envpool.py", "--env-id Pendulum-v1 --schedule noise:2-2x8 "),
    ],
)
def test_a_run_goes_on(library, script, words, tmp_path):
    """From a checkpoint of the GPU, and from one of the CPU, whose generator is of another kind."""
    words += "--checkpoint-minutes 0 --num-logs 3"
    run(library, tmp_path, script, words)
    run_dir = tmp_path / "run"

    def as_if_killed():
        (run_dir / "done.json").unlink()
        (run_dir / "checkpoint.prev.pt").rename(run_dir / "checkpoint.pt")

    as_if_killed()
    out, _ = run(library, tmp_path, script, words)
    assert "resumes at step 32" in out and "a new seed" not in out
    as_if_killed()
    checkpoint = load_checkpoint(run_dir)
    states = checkpoint["rng"]
    checkpoint["rng"] = torch.Generator().get_state() if torch.is_tensor(states) else [torch.Generator().get_state()]
    torch.save(checkpoint, run_dir / "checkpoint.pt")
    out, _ = run(library, tmp_path, script, words)
    assert "is of another kind of device: rng gets a new seed" in out
    assert [step for step, _ in curves(run_dir)["losses/grad_norm"]] == [16, 32, 48]


def test_a_child_of_another_run(library, tmp_path):
    words = "--num-envs 4 --update-epochs 1 --checkpoint-minutes 0 --num-logs 1000 "
    run(library, tmp_path, "ppo_envpool.py", words)
    child = words + f"--resume-from {tmp_path}/run --run-name child --total-timesteps 80 --learning-rate 1e-3"
    run(library, tmp_path, "ppo_envpool.py", child)
    assert [step for step, _ in curves(tmp_path / "child")["charts/learning_rate"]] == [64, 80]


def test_two_processes(library, tmp_path):
    """torchrun's, each with a GPU of its own; they talk as on a CPU."""
    folders = [tmp_path / rank for rank in "01"]
    for folder in folders:
        folder.mkdir()
    ranks = [{**rank, "LOCAL_RANK": "0"} for rank in two_ranks()]
    script, words = "ppo_ewma_atari_envpool.py", f"--num-logs 3 --runs-dir {tmp_path}/runs"
    processes = [start(library, folder, script, words, **rank) for folder, rank in zip(folders, ranks)]
    for process in processes:
        out, err = process.communicate()
        assert process.returncode == 0, out + err
    assert [step for step, _ in curves(tmp_path / "runs/run")["losses/grad_norm"]] == [16, 32, 48]
