"""What runs on an NVIDIA GPU only: CUDA graphs compute what eager PyTorch does, and the host waits for nothing but the
actions. Skipped, and so unproven, on a machine without one; what the flags say without one is tested everywhere."""

import importlib
import sys
import warnings

import pytest
import torch
from conftest import command, curves, run, study

FLAGGED = ["ppo_atari_envpool.py", "pqn_atari_envpool.py"]  # the scripts with --cuda-graphs
RADAM = FLAGGED[1:]
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


def sync_warnings(caught):
    return [w for w in caught if "synchroniz" in str(w.message)]


@pytest.fixture(params=FLAGGED)
def script(request):
    return request.param


@pytest.mark.once
@pytest.mark.skipif(torch.cuda.is_available(), reason="here is a GPU")
def test_graphs_without_a_gpu(script, tmp_path):
    done = run(script, tmp_path, "--cuda-graphs", code=2)
    assert done.stderr == "error: --cuda-graphs needs an NVIDIA GPU and one process: use --no-cuda-graphs\n"
    done = run(script, tmp_path, "--compile", code=2, CXX="no-such-compiler")
    assert done.stderr.startswith("error: --compile needs a C++ compiler") and done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_make_gpu(monkeypatch, tmp_path):
    """Our scripts take the arguments of their rows. Speeds in what peers print, ratios, and a row without a speed."""
    gpu_hour = study("benchmark", "gpu_hour")
    monkeypatch.setattr("support.devices.missing", lambda args: None)  # a GPU
    rows = gpu_hour.plan(cpu=False)
    assert {row.program for row in rows} > {*FLAGGED, *gpu_hour.PEERS} and sum(row.seconds for row in rows) < 600
    for row in rows:
        if row.program in FLAGGED:
            importlib.import_module(row.program[:-3]).parse_args(gpu_hour.arguments(row, False, str(tmp_path)))
    rows = [gpu_hour.Row("CleanRL", "8x128", ""), gpu_hour.Row("LeanRL", "8x128", ""), gpu_hour.Row("x", "", "")]
    means = "\n".join(f"SPS: {mean}" for mean in (512, 512, 640, 640))  # after 2, 4, 4.8 and 6.4 seconds
    bars = "speed: 900.0 sps\rspeed: 900.0 sps\rspeed: 1536.0 sps\r"
    slow, fast = (gpu_hour.points_of(row, text, "") for row, text in zip(rows, (means, bars)))
    assert slow == pytest.approx([512, 1280, 640]) and fast == [900, 1536]
    spread = [gpu_hour.spread(points) for points in (slow, fast[1:], [])]
    table = gpu_hour.render([{**row._asdict(), **found, "says": "why"} for row, found in zip(rows, spread)])
    assert [line.split(" | ")[-2:] for line in table.splitlines()[2:]] == [
        ["960 (640 to 1,280)", "1.00 |"],
        ["1,536 (1,536 to 1,536)", "1.60 |"],
        ["why", " |"],
    ]


@needs_gpu
def test_graphed_updates_compute_the_same(script, tmp_path):
    """One iteration of 52 updates, the first three eager and the rest replayed: equal means of every loss.

    Within 1 % for PQN: with graphs PyTorch's RAdam computes its rectification in float32, which makes steps 6 to 20
    smaller by 0.1 to 0.6 %. That alone, on a CPU, changes the gradient's norm here by 0.4 %.
    """
    flags = ("--total-timesteps", 128, "--update-epochs", 13, "--num-minibatches", 4, "--no-tf32")
    run(script, tmp_path, *flags, "--run-name", "eager")
    run(script, tmp_path, *flags, "--run-name", "graphs", "--cuda-graphs")
    eager, graphs = curves(tmp_path / "eager"), curves(tmp_path / "graphs")
    tags = [tag for tag in eager if tag.startswith("losses/")]
    assert len(tags) > 3
    for tag in tags:
        near = pytest.approx([value for _, value in eager[tag]], abs=1e-4, rel=1e-2 if script in RADAM else None)
        assert [value for _, value in graphs[tag]] == near, tag


@needs_gpu
@pytest.mark.parametrize("graphs", ["--no-cuda-graphs", "--cuda-graphs"])
def test_the_host_waits_for_the_actions_only(script, tmp_path, graphs, monkeypatch):
    """PyTorch names every wait: one a step in the rollouts, none in the updates. The last of 8 iterations is looked at:
    by then every graph is captured."""
    module = importlib.import_module(script[:-3])
    words = command(script, tmp_path, graphs, "--no-diagnostics", "--num-logs", 1)[2:]
    waits = {"rollout": [], "update": []}
    iteration, place = 0, None

    def enter(name):
        nonlocal place
        if iteration == 8 and place:
            waits[place] += sync_warnings(caught)
        caught.clear()
        place = name
        torch.cuda.set_sync_debug_mode("warn" if name else "default")

    make_envs, randperm = module.make_envs, torch.randperm
    explained_variance = module.metrics.explained_variance

    def envs_that_tell(args, *seeds_and_threads):
        envs = make_envs(args, *seeds_and_threads)
        step, count = envs.step, 0

        def told_step(actions):
            nonlocal count, iteration
            if args.num_envs == 4 and count % 32 == 0:  # the first step of a rollout has waited for its actions
                iteration = count // 32 + 1
                enter("rollout")
            count += 1
            result = step(actions)
            if args.num_envs == 4 and count % 32 == 0:
                enter(None)
            return result

        envs.step = told_step
        return envs

    def told_randperm(*inputs, **options):
        enter("update")
        return randperm(*inputs, **options)

    def told_explained_variance(*inputs):
        enter(None)
        return explained_variance(*inputs)

    monkeypatch.setattr(module, "make_envs", envs_that_tell)
    monkeypatch.setattr(torch, "randperm", told_randperm)
    monkeypatch.setattr(module.metrics, "explained_variance", told_explained_variance)
    monkeypatch.setattr(sys, "argv", [script, *words])
    with warnings.catch_warnings(record=True) as caught, pytest.raises(SystemExit) as end:
        warnings.simplefilter("always")
        module.main(module.parse_args(words))
    assert end.value.code == 0
    assert len(waits["rollout"]) == 31 and not waits["update"]
