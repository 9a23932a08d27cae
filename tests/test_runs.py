"""Whole runs of each training script: what they write, and what their options do. test_stops.py: how they end early."""

import fcntl
import functools
import importlib
import json
import math
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

import imageio.v2 as imageio
import numpy as np
import pytest
import torch
from conftest import (
    LEVELS,
    ROOT,
    STEPS,
    check_complete,
    command,
    curves,
    curves_csv,
    environment,
    load_checkpoint,
    raw_steps,
    run,
)
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import DATA_CLASS_SCALAR
from tensorboard.context import RequestContext
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.hparams import backend_context, list_session_groups
from tensorboard.plugins.hparams.api_pb2 import ListSessionGroupsRequest, Status
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from support import arguments, progress, reading, tags
from support.envs.episodes import env_seeds

NETWORK = ("feature_rank", "dormant_neurons", "weight_norm", "gradient_kurtosis")
NETWORK += ("feature_rank/centered", "dormant_neurons/tau_0.025", "gradient_kurtosis/nonzero")
POLICY = ("ess", "ess/samples", "policy_variance", "policy_variance/normalized")
EVERY = {
    *(f"charts/{tag}" for tag in "episodic_return episodic_length episodes min_episodes reward SPS".split()),
    *(f"charts/{tag}" for tag in "learning_rate gradient_steps".split()),
    *(f"{place}/{tag}" for place in ("diagnostics", "probe") for tag in NETWORK),
    *("losses/explained_variance", "losses/grad_norm"),
}
PPO = {
    *(f"losses/{tag}" for tag in "policy_loss value_loss entropy approx_kl old_approx_kl clipfrac".split()),
    *(f"{place}/{tag}" for place in ("diagnostics", "probe") for tag in POLICY),
}
MOVED = {"outer/kl_behavior", "outer/ddr"}
OUTER = {*MOVED, "outer/plateau", *(f"outer/grad_noise_scale/{tag}" for tag in ("dominated", "signal", "noise"))}
TAGS = {  # what each script logs beside what every script does
    "ppo_atari_envpool.py": PPO,
    "pqn_atari_envpool.py": {"losses/td_loss", "losses/q_values", "charts/epsilon", "outer/greedy_churn"},
    "ppo_procgen.py": PPO
    | MOVED
    | {"charts/eval_episodic_return", "charts/eval_train_return", "charts/generalization_gap"},
    "ppo_rnd_envpool.py": PPO | MOVED | {"losses/int_value_loss", "losses/fwd_loss", "charts/intrinsic_reward"},
    "ppo_envpool.py": PPO | OUTER,
}
COVERAGE = {  # the name, shape and type of an observation in coverage.npz, and the length of a feature
    "ppo_procgen.py": ("frame", (64, 64, 3), np.uint8, 256),
    "ppo_rnd_envpool.py": ("frame", (84, 84), np.uint8, 448),
    "ppo_envpool.py": ("obs", (4,), np.float32, 64),
}
ATARI_COVERAGE = ("frame", (84, 84), np.uint8, 512)
AFTER_A_GAME = ("charts/episodic_", "charts/eval_", "charts/generalization_gap")  # curves that begin when one has ended


def check_same_weights(run_dir, other):
    weights, others = (load_checkpoint(path)["agent"] for path in (run_dir, other))
    assert weights.keys() == others.keys() and not [x for x in weights if not torch.equal(weights[x], others[x])]


# ---- what a run writes -----------------------------------------------------------------------------------------------
def test_curves(finished, script):
    run_dir, _ = finished
    check_complete(run_dir)
    scalars = curves(run_dir)
    assert not (EVERY | TAGS[script]) - set(scalars), f"missing: {(EVERY | TAGS[script]) - set(scalars)}"
    unasked = {tag for tags in TAGS.values() for tag in tags} - TAGS[script]
    assert not unasked & set(scalars), f"of another algorithm: {unasked & set(scalars)}"
    for tag, points in scalars.items():
        steps, values = zip(*points)
        assert all(map(math.isfinite, values)), f"{tag}: {values}"
        if tag.startswith("outer/grad_noise_scale"):  # at most each 20th iteration
            assert list(steps) == STEPS[:1]
        elif not tag.startswith(AFTER_A_GAME):  # which begin when the first game ends
            assert list(steps) == STEPS, tag
    # each tag is named in the script, but for the layers', which are the network's, and for what rundir.Run counts
    of_run = ("charts/episod", "charts/min_episodes", "charts/reward", "charts/SPS")
    named = [tag for tag in scalars if "weight_norm/" not in tag and not tag.startswith(of_run)]
    words, text = {word for tag in named for word in tag.split("/")}, (ROOT / script).read_text()
    assert not {word for word in words if re.sub("tau_.*", "tau_{", word) not in text}
    rows = dict(scalars["diagnostics/feature_rank/rows"])
    assert all(100 < rows[step] <= 128 for step in STEPS)  # the valid rows of the batch
    assert {value for _, value in scalars["probe/feature_rank/rows"]} == {100}
    assert scalars["charts/episodes"][-1][1] >= 1
    if TAGS[script] >= PPO:
        assert all(0 < value <= 100 for _, value in scalars["diagnostics/ess"])
    if TAGS[script] >= MOVED:
        kl, ddr = (np.array([value for _, value in scalars[tag]]) for tag in ("outer/kl_behavior", "outer/ddr"))
        counts = np.array([rows[step] for step in STEPS])
        sums = (np.cumsum(counts) / np.cumsum(kl), counts / kl)
        np.testing.assert_allclose(ddr, sums[0 if TAGS[script] >= OUTER else 1], rtol=1e-4)


def test_files(finished, script):
    run_dir, _ = finished
    manifest = json.loads((run_dir / "manifest.json").read_text())
    assert manifest["arguments"]["num_envs"] == 4 and manifest["arguments"]["minibatch_size"] == 32
    module = importlib.import_module(script[: -len(".py")])
    assert manifest["arguments"].keys() == vars(module.Args()).keys() - arguments.PACK
    assert script in manifest["command"]
    assert {"commit", "dirty"} == set(manifest["git"])
    assert {"python", "torch", "envpool", "numpy"} <= set(manifest["versions"])
    assert re.fullmatch(r"[0-9a-f]{40}", manifest["git"]["commit"] or "0" * 40)
    assert isinstance(manifest["git"]["dirty"], bool)
    assert manifest["device"] and time.strptime(manifest["start"], "%Y-%m-%dT%H:%M:%S%z")
    done = json.loads((run_dir / "done.json").read_text())
    types = {"global_step": int, "wall_seconds": float, "sps": float, "episodic_return": float}
    assert {name: type(value) for name, value in done.items()} == types
    assert done["sps"] == pytest.approx(done["global_step"] / done["wall_seconds"])
    assert done["episodic_return"] == pytest.approx(curves(run_dir)["charts/episodic_return"][-1][1])
    assert not list(run_dir.glob(".*.partial"))
    name, shape, dtype, feature = COVERAGE.get(script, ATARI_COVERAGE)
    with np.load(run_dir / "coverage.npz") as coverage:
        count = len(coverage["step"])
        assert count == 8 * 100  # all rows of the probe at each point: fewer than the budget of 4096
        assert coverage[name].shape == (count, *shape) and coverage[name].dtype == dtype
        assert coverage["feature"].shape == (count, feature) and coverage["value"].shape == (count,)
        assert coverage["feature"].dtype == np.float16 and coverage["value"].dtype == np.float32
        assert set(coverage) == {name, "feature", "value", "step"}
        assert coverage[name].std() > 0 and np.isfinite(coverage["value"]).all()
        assert (np.diff(coverage["step"]) >= 0).all()


def make_network(script):
    """The network of the small run of a script, with the weights of seed 1 after torch.manual_seed(1)."""
    module = importlib.import_module(script[: -len(".py")])
    if script == "ppo_envpool.py":
        return module.make_agent(module.Args(), [1])
    network = module.Agent if TAGS[script] >= PPO else module.QNetwork
    return network(15 if script == "ppo_procgen.py" else 4)


def test_the_network_has_moved(finished, script):
    """Every parameter, and from the start that the seed gives: from any other it would be far away."""
    run_dir, _ = finished
    torch.manual_seed(1)
    start_weights = make_network(script).state_dict()
    weights = load_checkpoint(run_dir)["agent"]
    assert weights.keys() == start_weights.keys()
    assert not [name for name, tensor in weights.items() if torch.equal(tensor, start_weights[name])]
    for name, tensor in weights.items():
        if name.endswith("weight"):
            assert (tensor - start_weights[name]).norm() < 0.5 * start_weights[name].norm() + 0.1, name
    checkpoint = load_checkpoint(run_dir)
    assert checkpoint["format"] == reading.FORMAT and checkpoint["run"]["global_step"] == 1024
    norms = curves(run_dir)["diagnostics/weight_norm"]
    total = torch.stack([w.double().square().sum() for w in weights.values()]).sum().sqrt().item()
    assert norms[-1][1] == pytest.approx(total, rel=1e-6) and norms[0][1] != norms[-1][1]
    optimizer = checkpoint["optimizer"]  # PyTorch's Adam, or one of several agents
    steps = optimizer["steps"] if "steps" in optimizer else [state["step"] for state in optimizer["state"].values()]
    assert all(step == 32 for step in steps)


def test_points_and_coverage_have_their_budget(tmp_path):
    """Fewer points than iterations, spread evenly; more rows to look at than coverage.npz has room for."""
    script, words = "ppo_envpool.py", ("--no-diagnostics", "--total-timesteps", 5120)
    run(script, tmp_path, *words, "--num-envs", 16, "--num-steps", 64, "--probe-size", 5000)
    with np.load(tmp_path / "run/coverage.npz") as coverage:
        steps, counts = np.unique(coverage["step"], return_counts=True)
    assert steps.tolist() == [1024, 2048, 3072, 4096, 5120] and counts.tolist() == [819, 819, 819, 819, 820]
    (tmp_path / "few").mkdir()
    run(script, tmp_path / "few", "--no-diagnostics", "--total-timesteps", 640, "--num-logs", 3)
    assert raw_steps(tmp_path / "few/run") == [256, 512, 640]
    scalars = curves(tmp_path / "few/run")
    assert all(
        [step for step, _ in points] == [256, 512, 640]
        for tag, points in scalars.items()
        if not tag.startswith(AFTER_A_GAME)
    )


def test_log_lines_without_a_terminal(finished):
    """A line of progress each LINE_SECONDS, at the end, and none per episode or iteration."""
    run_dir, done = finished
    assert "\r" not in done.stdout + done.stderr and "\x1b" not in done.stdout + done.stderr
    sometimes = ("this CPU ", "note: the law of ")  # on some machines, of some scripts
    lines = [line for line in done.stdout.splitlines() if not line.startswith(sometimes)]
    shown = [line for line in lines if " SPS " in line]
    seconds = reading.read_json(run_dir / "done.json")["wall_seconds"]
    assert len(lines) - len(shown) <= 4 and len(shown) <= 1 + seconds / progress.LINE_SECONDS, lines
    assert re.search(r"1,024/1,024 steps +\d+ SPS +return [\d.-]+ +ETA", shown[-1]), lines


def test_what_tensorboard_shows_beside_the_curves(finished):
    """Each tag has its line, and each run its arguments and its command, once; readers of curves do not see them."""
    accumulator = EventAccumulator(str(finished[0]))
    accumulator.Reload()
    for tag in accumulator.Tags()["scalars"]:
        assert accumulator.SummaryMetadata(tag).summary_description == tags.description(tag) != "", tag
    for path in finished[0].glob("events*"):  # without the class TensorBoard's fast reader shows no description
        events = [Event.FromString(record) for record in RawEventFileLoader(str(path)).Load()]
        described = [value for event in events for value in event.summary.value if value.metadata.summary_description]
        assert described and all(value.metadata.data_class == DATA_CLASS_SCALAR for value in described)
    assert set(accumulator.Tags()["tensors"]) == {"_hparams_/experiment", "_hparams_/session_start_info", "run"}
    (card,) = accumulator.Tensors("run")
    assert b"--run-name run" in card.tensor_proto.string_val[0]
    plugin = HParamsPluginData.FromString(
        accumulator.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    )
    arguments = plugin.session_start_info.hparams
    assert [arguments[name].number_value for name in ("num_envs", "num_steps", "batch_size", "seed")] == [4, 32, 128, 1]
    content = accumulator.SummaryMetadata("_hparams_/experiment").plugin_data.content
    columns = HParamsPluginData.FromString(content).experiment.hparam_infos
    assert {info.name for info in columns if info.differs} == set(tags.SHOWN) < {info.name for info in columns}
    assert reading.read_curves(finished[0]).keys() == set(accumulator.Tags()["scalars"])


def table_of_runs(logdir):
    """{run: {metric: value}}, as TensorBoard's own HParams plugin answers the table of runs."""
    multiplexer = EventMultiplexer().AddRunsFromDirectory(str(logdir))
    multiplexer.Reload()
    context = TBContext(data_provider=MultiplexerDataProvider(multiplexer, str(logdir)))
    request = ListSessionGroupsRequest(slice_size=10, allowed_statuses=[Status.Value("STATUS_UNKNOWN")])
    answer = list_session_groups.Handler(RequestContext(), backend_context.Context(context), "", request).run()
    return {
        group.name: {metric.name.tag: metric.value for metric in group.metric_values} for group in answer.session_groups
    }


def test_a_finished_run_stays_as_it_is(finished, script):
    run_dir, _ = finished
    before = {path.name: path.stat().st_mtime_ns for path in run_dir.iterdir() if path.name != ".lock"}
    words = ("--probe-size", 100, *LEVELS.get(script, ()))
    again = run(script, run_dir.parent, *words)
    assert "finished" in again.stdout
    other = run(script, run_dir.parent, *words, "--gamma", 0.5, code=2)
    assert re.match(r"error: --run-name run has run with --gamma 0.999?, not 0.5", other.stderr)
    assert other.stderr.count("\n") == 1
    assert before == {path.name: path.stat().st_mtime_ns for path in run_dir.iterdir() if path.name != ".lock"}


@pytest.fixture(scope="module")
def option(script, tmp_path_factory):
    """Runs two iterations with some options, once, and gives the run directory. Fewer rows for the probe than valid
    ones, to tell it from the batch."""

    @functools.lru_cache(maxsize=None)
    def run_with(*words):
        folder = tmp_path_factory.mktemp("option")
        run(script, folder, "--total-timesteps", 256, "--probe-size", 100, *words)
        return folder / "run"

    return run_with


def test_evaluation_episodes(option, script, tmp_path):
    """--eval-episodes: whole games of the final network, the same when they were interrupted and are played again, and
    each the same alone as beside the others. Training has the same bits whether diagnostics look at it or not."""
    words = ("--total-timesteps", 256, "--no-diagnostics", "--eval-episodes", 2)
    run_dir = tmp_path / "run"
    run(script, tmp_path, *words)
    before = (run_dir / "done.json").read_text()
    (run_dir / "done.json").unlink()
    again = run(script, tmp_path, *words)
    assert "resumes at step 256" in again.stdout and (run_dir / "done.json").read_text() == before
    assert raw_steps(run_dir) == [128, 256]
    events = [event for path in reading.event_files(run_dir) for _, event in reading.records(path)]
    assert sum(map(tags.is_final_card, events)) == 1
    check_same_weights(run_dir, option())
    blind, seen = curves(run_dir), curves(option())
    assert not [tag for tag in blind if tag.split("/")[0] in ("diagnostics", "probe", "outer")]
    assert {tag: blind[tag] for tag in blind.keys() - {"charts/SPS"}}.items() <= seen.items()
    done = json.loads(before)
    assert (
        done["final_episodes"] == 2 and done["final_return_ci"][0] <= done["final_return"] <= done["final_return_ci"][1]
    )
    assert table_of_runs(tmp_path)["run"][tags.FINAL_RETURN] == pytest.approx(done["final_return"], rel=1e-6)
    assert tags.FINAL_RETURN not in blind | curves_csv(run_dir)
    (run_dir / "curves.csv").rename(tmp_path / "curves.csv")  # reading makes it again from the events
    assert reading.read_curves(run_dir).keys() == blind.keys()
    assert (run_dir / "curves.csv").read_bytes() == (tmp_path / "curves.csv").read_bytes()
    module = importlib.import_module(script[: -len(".py")])
    args = module.parse_args(command(script, tmp_path, *words)[2:])
    agent = make_network(script)
    agent.load_state_dict(load_checkpoint(run_dir)["agent"])
    seeds = env_seeds(1, "eval", 0, range(2))
    device = torch.device("cpu")
    bar = progress.progress_bar(2, "game", "")
    if script == "ppo_envpool.py":  # the run has played both at once, with an axis of agents
        alone = [module.play_episodes(agent, args, device, [seeds], range(i, i + 1), bar) for i in range(2)]
        returns = [score for ((score,),) in alone]
    else:  # each in a piece alone
        returns = module.play_episodes(agent, args, device, seeds, range(2), bar)
    assert len(returns) == 2 and np.mean(returns) == pytest.approx(done["final_return"])


# ---- the same seed ---------------------------------------------------------------------------------------------------
def test_the_same_seed_gives_the_same_bits(option, script):
    """…with one thread or two, and whether checkpoints are written or not."""
    words = LEVELS.get(script, ())
    one, two = option(*words), option(*words, "--checkpoint-minutes", 0, "--num-threads", 2)
    first, second = curves(one), curves(two)
    assert first.keys() == second.keys()
    for tag in first.keys() - {"charts/SPS"}:
        assert first[tag] == second[tag], tag
    check_same_weights(one, two)


@pytest.mark.once
def test_another_seed_gives_another_run(finished, script, tmp_path):
    run(script, tmp_path, "--no-diagnostics", "--seed", 2, "--total-timesteps", 128)
    assert curves(tmp_path / "run")["losses/grad_norm"][0] != curves(finished[0])["losses/grad_norm"][0]


# ---- watching --------------------------------------------------------------------------------------------------------
@pytest.mark.once
def test_progress_bar_on_a_terminal(script, tmp_path):
    master, slave = pty.openpty()
    words = command(script, tmp_path, "--no-diagnostics", "--total-timesteps", 256)
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 150, 0, 0))
    env = environment(TERM="xterm")
    process = subprocess.Popen(words, stdout=slave, stderr=slave, cwd=tmp_path, env=env)
    os.close(slave)
    shown, deadline = b"", time.time() + 120
    while time.time() < deadline:
        if select.select([master], [], [], 1)[0]:
            try:
                shown += os.read(master, 65536)
            except OSError:  # the other end is closed
                break
    assert process.wait(timeout=60) == 0
    bars = [line for line in shown.decode().split("\r") if "%|" in line]
    assert re.search(r"100%\|.*256/256 steps, \d+ SPS +return [\d.-]+ +ETA", bars[-1]), bars[-1]


def test_video(script, tmp_path):
    words = ("--env-id", "MiniGrid-DoorKey-5x5-v0") if script == "ppo_envpool.py" else ()  # games of CartPole are short
    done = run(script, tmp_path, "--no-diagnostics", "--capture-video", "--total-timesteps", 128, *words)
    video = np.stack([frame for _, frame in zip(range(30), imageio.get_reader(tmp_path / "run/episode.mp4"))])
    score = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    assert score["episodes"] == 1 and len(video) == 30
    assert (video[..., 0].astype(int) != video[..., 2]).mean() > 0.01, "not in colour"
    assert (video[0] != video[-1]).any(), "nothing moves"


# ---- options ---------------------------------------------------------------------------------------------------------
def last(run_dir, tag):
    return curves(run_dir)[tag][-1][1]


@pytest.mark.once
def test_options_of_the_loop(option):
    by_number = option("--update-epochs", 2, "--num-logs", 1, "--no-diagnostics")
    assert last(by_number, "charts/gradient_steps") == 16 and raw_steps(by_number) == [256]
    by_size = option("--update-epochs", 2, "--minibatch-size", 16, "--no-anneal-lr", "--no-diagnostics")
    assert last(by_size, "charts/gradient_steps") == 32
    assert json.loads((by_size / "manifest.json").read_text())["arguments"]["num_minibatches"] == 8
    assert [value for _, value in curves(by_size)["charts/learning_rate"]] == pytest.approx([2.5e-4] * 2)


def test_masks(option):
    runs = option(), option("--no-mask-resets")
    masked, unmasked = (curves(run_dir)["diagnostics/feature_rank/rows"] for run_dir in runs)
    assert all(value == 128 for _, value in unmasked) and any(value < 128 for _, value in masked)


def test_bf16(option, script):
    """On 32 rows: a CPU without bfloat16 emulates it, slowly."""
    if script == "ppo_envpool.py":
        pytest.skip("it has no --bf16")
    size = ("--num-steps", 8, "--total-timesteps", 32, "--no-diagnostics")
    plain, half = (load_checkpoint(option(*size, *flag))["agent"] for flag in ((), ("--bf16",)))
    assert all(tensor.dtype == torch.float32 for tensor in half.values())
    first = next(iter(half))
    assert 0 < (half[first] - plain[first]).norm() < 1


def test_ppo_options(option, script):
    if not TAGS[script] >= PPO:
        pytest.skip("options of PPO")
    # the first epoch's last minibatch moves more than this KL, so no second epoch begins
    words = ("--update-epochs", 4, "--target-kl", 1e-12, "--learning-rate", 0.01, "--no-anneal-lr")
    separate = option(*words, "--no-shared-encoder")
    assert last(separate, "charts/gradient_steps") == 8
    assert [value for _, value in curves(separate)["charts/learning_rate"]] == pytest.approx([0.01] * 2)
    if script == "ppo_envpool.py":  # one of two encoders by default, side by side in its tensors
        shared = option("--shared-encoder")
        sizes = [load_checkpoint(run_dir)["agent"]["network.0.weight"].shape[1] for run_dir in (shared, separate)]
        assert sizes == [1, 2] and "diagnostics/feature_rank/critic_encoder" not in curves(shared)
    else:
        assert any(name.startswith("critic_network") for name in load_checkpoint(separate)["agent"])
    assert "diagnostics/feature_rank/critic_encoder" in curves(separate)


def test_pqn_options(option, script):
    if script != "pqn_atari_envpool.py":
        pytest.skip("options of PQN")
    greedy = option("--start-e", 0, "--end-e", 0, "--layer-norm", "channels", "--no-anneal-lr", "--no-diagnostics")
    weights, scalars = load_checkpoint(greedy)["agent"], curves(greedy)
    assert [weights[f"network.{i}.weight"].numel() for i in (1, 4, 7, 11)] == [32, 64, 64, 512]
    assert [value for _, value in scalars["charts/epsilon"]] == [0, 0]
    assert [value for _, value in scalars["charts/learning_rate"]] == pytest.approx([2.5e-4] * 2)
    plain, *others = (
        load_checkpoint(option("--no-diagnostics", *flag))["agent"]["network.0.weight"]
        for flag in ((), ("--q-lambda", 0), ("--td-coef", 0.5), ("--exploration-fraction", 1))
    )
    assert all(0 < (other - plain).norm() < 5 for other in others)
