"""results/benchmark: its arithmetic on planted numbers, its contract with peers, and one tiny measurement.

No test asserts a speed: what is published are ratios within one round."""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import ROOT, refusal, study, wait_for

benchmark = study("benchmark", "benchmark")
benchmark_peers = study("benchmark", "benchmark_peers")
benchmark_profile = study("benchmark", "benchmark_profile")
benchmark_tables = study("benchmark", "benchmark_tables")
PPO = benchmark_peers.ATARI
PRINTS = shlex.join([sys.executable, "-c", "for i in range(4): print('SPS:', 100)"])


def test_limit_is_one_thing_after_the_other():
    # 1 ms in the environment, 2 ms of inference, 4 epochs of 3 ms of training: 15 ms a step
    assert benchmark_tables.limit(1000, 500, 1000 / 3, 4) == pytest.approx(1000 / 15)


def record(round_number, section, **fields):
    return {"round": round_number, "section": section, "shape": "4x8", "script": PPO, **fields}


def planted():
    """Two rounds: in the second all is half as fast, which the ratios must not show."""
    records = []
    for round_number, speed in ((1, 1.0), (2, 0.5)):
        ours = {"precision": "bf16", "flags": "", "peak_bytes": 2e9, "iterations": 4, "log_steps": 10000}
        network = {"inference": 500 * speed, "training": 1000 / 3 * speed, "minibatch_size": 8, "update_epochs": 4}
        slow = {"sps": (25 if round_number == 1 else 20) * speed, "peak_bytes": 8e9}
        records += [
            record(round_number, "env", sps=1000 * speed),
            record(round_number, "network", precision="bf16", **network),
            record(round_number, "scripts", diagnostics=True, sps=50 * speed, **ours),
            record(round_number, "scripts", diagnostics=False, sps=60 * speed, **ours),
            record(round_number, "peers", name="slow", **slow),
            record(round_number, "peers", name="broken", error="no module"),
            record(round_number, "ranks", precision="bf16", ranks=1, sps=40 * speed, peak_bytes=1e9),
            record(round_number, "ranks", precision="bf16", ranks=2, sps=60 * speed, peak_bytes=2e9),
            record(round_number, "pairs", precision="fp32", runs=1, sps=30 * speed, peak_bytes=1e9),
            record(round_number, "pairs", precision="fp32", runs=2, sps=54 * speed, peak_bytes=2e9),
            record(round_number, "busy", name="ours", precision="bf16", neighbours=0, sps=50 * speed),
            record(round_number, "busy", name="ours", precision="bf16", neighbours=1, sps=30 * speed),
            record(round_number, "busy", name="slow", neighbours=0, sps=25 * speed),
            record(round_number, "busy", name="slow", neighbours=1, sps=5 * speed),
        ]
    records.append(record(3, "env", error="left out: --minutes 1"))  # not missing: there are other rounds
    records.append(record(1, "growth", precision="bf16", sps=32.0, peak_bytes=1e9, iterations=2))
    return records


def test_ratios_are_of_each_round():
    summary = benchmark_tables.summarize(planted())
    (part,) = summary["parts"]
    assert part["limit"] == {
        "median": pytest.approx(50),
        "min": pytest.approx(100 / 3),
        "max": pytest.approx(200 / 3),
        "n": 2,
    }
    rows = {(row["name"], row.get("diagnostics")): row for row in summary["end_to_end"]}
    ours, slow = rows["ours", True], rows["slow", None]
    assert ours["sps"] == {"median": 37.5, "min": 25, "max": 50, "n": 2}
    assert ours["of_limit"] == {key: 2 if key == "n" else pytest.approx(0.75) for key in ("median", "min", "max", "n")}
    assert ours["against"] == {
        "slow": {"median": pytest.approx(2.25), "min": 2, "max": pytest.approx(2.5), "n": 2},
        "broken": None,
    }
    assert slow["against"]["slow"]["median"] == 1 and rows["broken", None]["sps"] is None
    ranks = {row["ranks"]: row["against_one"]["median"] for row in summary["ranks"]}
    assert ranks == {1: 1, 2: 1.5}
    assert [(row["runs"], row["against_one"]["median"]) for row in summary["pairs"]] == [(1, 1), (2, 1.8)]
    busy = {row["name"]: row for row in summary["busy"]}
    assert (busy["ours"]["kept"]["median"], busy["slow"]["kept"]["median"]) == (0.6, 0.2)
    assert busy["ours"]["against"] == {"slow": {"median": 6, "min": 6, "max": 6, "n": 2}}
    assert not busy["slow"]["against"]
    # the second half of 4 iterations of 32 steps: 64 steps with one log point
    (cost,) = summary["diagnostics"]
    assert cost["on_against_off"]["median"] == pytest.approx(50 / 60)
    assert cost["seconds_per_log_point"]["min"] == pytest.approx(64 / 50 - 64 / 60)
    share = cost["seconds_per_log_point"]["min"]  # the round at full speed
    assert cost["share_by_default"]["min"] == pytest.approx(share / (share + 10000 / 60))
    assert len(summary["errors"]) == 2 and "no module" in summary["errors"][0]
    text = benchmark_tables.render(summary, benchmark.describe_machine())
    assert max(map(len, text.splitlines()[2:])) <= 120
    for expected in ("2.25 (2.00 to 2.50)", "0.75 (0.75 to 0.75)", "1,000", "no module"):
        assert expected in text


@pytest.mark.parametrize("path", sorted(ROOT.glob("results/benchmark/*.json")), ids=lambda path: path.stem)
def test_committed_summaries_are_of_the_committed_records(path):
    results = json.loads(path.read_text())
    summary = benchmark_tables.summarize(results["records"])
    both = summary.keys() & results["summary"].keys()  # sections may be newer, and `storage` is gone
    assert len(both) >= 6 and {name: summary[name] for name in both} == {
        name: results["summary"][name] for name in both
    }
    assert benchmark_tables.render(summary, results["machine"]).count("\n| ") > 3


def test_speed_of_a_peer_is_that_of_its_second_half():
    # printed since the start: 100 steps in 10 s, 200 in 14 s
    assert benchmark_peers.speed_of_second_half([10.0, 200 / 14]) == pytest.approx(25)
    # a first iteration of 6 s, and five of 4 s, of 100 steps each: the last three
    speeds = [100 * i / (2 + 4 * i) for i in range(1, 7)]
    assert benchmark_peers.speed_of_second_half(speeds) == pytest.approx(25)
    assert benchmark_peers.speed_of_second_half([7.0]) == 7


@pytest.mark.parametrize(
    "printed, speed",
    [
        ("SPS: 123", 123),
        ("global_step=4096\nSPS: 1,234.5", 1234.5),
        ("speed: 3728.12 sps, reward: 5.00", 3728.12),
        ('{"global_step": 12288, "sps": 771.5}', 771.5),
        ("at 400 steps/s", 400),
    ],
)
def test_what_a_peer_may_print(printed, speed):
    measured = benchmark_peers.measure_peer(shlex.join(["echo", printed]), 60, 0)
    assert measured["sps"] == speed


def wait_until_gone(pid):
    """Waits until a process has ended. An orphan may stay a zombie: nobody may be there to reap it."""
    deadline = time.time() + 30
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        while open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "Z":
            assert time.time() < deadline, f"process {pid} lives on"
            time.sleep(0.05)


def test_a_peer_is_ended_in_time_and_what_it_printed_counts(tmp_path):
    command = f"echo SPS: 50; sleep 600 & echo $! >{tmp_path / 'pid'}; wait"
    measured = benchmark_peers.measure_peer(command, 2, 0)
    assert measured["sps"] == 50 and measured["ended"]
    pid = int((tmp_path / "pid").read_text())  # its whole group is gone, not only the shell
    wait_until_gone(pid)


@pytest.mark.parametrize(
    "command, why",
    [
        ("echo started; echo no such game >&2; exit 3", "no such game"),
        ("echo hello", "no steps/s: hello"),
        ("no-such-program-anywhere", "not found"),
    ],
)
def test_a_peer_that_fails_says_why(command, why):
    assert why in benchmark_peers.measure_peer(command, 60, 0)["error"]


def test_sb3_adapter():
    pytest.importorskip("stable_baselines3")
    module, args = benchmark_peers.load(PPO, benchmark_peers.Setting(4, 8))
    envs = benchmark_peers.sb3_adapter(module.make_envs(args, [1, 2, 3, 4]), 4)
    obs = envs.reset()
    assert obs.shape == (4, 4, 84, 84) and obs.dtype == np.uint8 and envs.num_envs == 4
    rng, was_done, ends = np.random.default_rng(0), np.zeros(4, dtype=bool), 0
    for _ in range(300):
        obs, rewards, dones, infos = envs.step(rng.integers(4, size=4))
        assert obs.shape == (4, 4, 84, 84) and rewards.shape == dones.shape == (4,) and len(infos) == 4
        assert not rewards[was_done].any() and not dones[was_done].any()  # an autoreset step is a row like others
        was_done, ends = dones, ends + dones.sum()
    assert ends > 4
    envs.close()


def test_sb3_adapter_at_a_time_limit():
    pytest.importorskip("stable_baselines3")
    module, args = benchmark_peers.load(PPO, benchmark_peers.Setting(2, 8))
    real = module.make_envs(args, [1, 2])
    obs = np.arange(2, dtype=np.uint8)
    stand_in = SimpleNamespace(
        observation_space=real.observation_space,
        action_space=real.action_space,
        close=real.close,
        step=lambda actions: (obs, np.zeros(2), np.array([True, False]), np.array([True, True]), {}),
    )
    *_, dones, infos = benchmark_peers.sb3_adapter(stand_in, 2).step(np.zeros(2, dtype=np.int64))
    assert dones.all() and infos[0] == {}  # the first one died: nothing to bootstrap
    assert infos[1] == {"TimeLimit.truncated": True, "terminal_observation": 1}


@pytest.mark.parametrize(
    "flags, message",
    [
        ("--shapes 128", "--shapes 128: expected N x T"),
        ("--sections all", "env,network"),
        ("--rounds 0", "--rounds 0 is out of range: expected 1 to"),
        ("--rounds 1.5", "--rounds"),
        ("--seconds nan", "expected 0.1 to"),
        ("--scripts x.py", "ppo_procgen.py"),
        ("--shapes 3x3", "does not divide"),
        ("--flags=--frobnicate", "--frobnicate"),
        ("--peer echo", "NAME=COMMAND"),
        ("--peer x={game}", "{env_id}"),
        ("--peer x.py:a=b", "expected one of ppo_atari"),
        ("--peer sb3=x", "differ"),
        ("--out results", ".json"),
        ("--frobnicate", "--frobnicate"),
    ],
)
def test_bad_input_is_one_line(flags, message, capsys):
    assert message in refusal(capsys, benchmark.parse_args, flags.split())


SMALL = f"--scripts {PPO} --shapes 4x8 --seconds 0.1 --rounds 1 --precisions fp32 --num-threads 1".split()


def test_a_small_measurement(tmp_path):
    out = tmp_path / "deeper" / "out.json"
    words = [*SMALL, "--sections", "env,network,scripts,peers", "--out", str(out)]
    assert benchmark.main(benchmark.parse_args([*words, "--peer", f"good={PRINTS}", "--peer", "failing=exit 3"])) == 0
    results = json.loads(out.read_text())
    assert set(results) == {"command", "machine", "settings", "summary", "records"}
    assert set(results["summary"]) == set("parts end_to_end diagnostics pairs busy ranks growth errors".split())
    assert results["machine"]["cores"] >= 1 and results["machine"]["versions"]["torch"]
    rows = {(row["name"], row.get("diagnostics")): row for row in results["summary"]["end_to_end"]}
    for diagnostics in (True, False):
        ours = rows["ours", diagnostics]
        assert ours["sps"]["median"] > 0 and ours["of_limit"]["n"] == 1 and ours["against"]["good"]["n"] == 1
        assert ours["peak_bytes"]["median"] > 2e8  # PyTorch alone is larger
    if rows.pop(("sb3", None), None):  # where it is installed
        assert ours["against"]["sb3"]["median"] > 0
    assert len(results["summary"]["errors"]) == 1 and "failing" in results["summary"]["errors"][0]
    assert PPO in out.with_suffix(".md").read_text()


def test_a_busy_process_lasts_as_long_as_the_measurement():
    """It computes: its CPU time grows. It is gone when the measurement has ended, or failed."""

    def look():
        seen.extend(set(benchmark_peers.descendants(os.getpid())) - before)
        while int(Path(f"/proc/{seen[0]}/stat").read_text().rsplit(")", 1)[1].split()[11]) < 3:
            pass
        raise OSError

    seen, before = [], set(benchmark_peers.descendants(os.getpid()))
    with pytest.raises(OSError):
        benchmark.beside(1, look)
    assert len(seen) == 1 and not Path(f"/proc/{seen[0]}").exists() and benchmark.beside(0, lambda: 7) == 7


def test_one_iteration_has_a_speed():
    setting = benchmark_peers.Setting(4, 8)
    measured = benchmark.measure_script(PPO, setting, 1, 300, 1, ["--no-diagnostics"])
    assert measured["sps"] > 0 and measured["iterations"] == 1


@pytest.mark.parametrize("script", benchmark.SCRIPTS)
def test_each_script_is_measured_alone(script):
    setting = benchmark_peers.Setting(4, 8)
    assert benchmark.measure_env(script, setting, 0.01)["sps"] > 0
    precision = benchmark.precisions_of(script, ["bf16"])[0]
    network = benchmark.measure_network(script, setting, precision, 0.01)
    assert network["inference"] > 0 and network["training"] > 0 and 32 % network["minibatch_size"] == 0


def test_runs_at_once_are_summed():
    both = threading.Barrier(2)

    def measure():
        both.wait(timeout=60)  # for the other
        return {"sps": 3.0, "iterations": 4, "peak_bytes": 5, "gpu_bytes": None}

    assert benchmark.at_once(2, measure) == {"sps": 6.0, "peak_bytes": 10}
    assert benchmark.at_once(2, lambda: {"error": "why"}) == {"error": "why"}


def test_ctrl_c_keeps_what_was_measured(tmp_path):
    pid, out = tmp_path / "pid", tmp_path / "out.json"
    peers = ["--peer", f"first={PRINTS}", "--peer", f"second=echo $$ >{pid}; sleep 600"]
    words = [sys.executable, benchmark.__file__, *SMALL, "--sections", "peers", "--no-sb3", "--out", out]
    process = subprocess.Popen([*words, *peers], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: pid.exists() and pid.read_text(), process)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert [row["sps"] for row in json.loads(out.read_text())["records"]] == [100]
    wait_until_gone(int(pid.read_text()))


def test_a_profile_counts_a_part_without_those_inside_it(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(benchmark_profile.time, "process_time", lambda: now[0])

    def work(seconds, *inner):
        now[0] += seconds
        for name in inner:
            getattr(script, name)()

    script = SimpleNamespace(sample=lambda: work(1), collect_steps=lambda: work(2, "sample"), gae=lambda: work(4))
    clock = benchmark_profile.Clock()
    for name in ("sample", "collect_steps", "gae"):
        clock.put_around(script, name, benchmark_profile.PARTS["script"][name])
    work(8, "sample")  # the start has all of it: no rollout has begun
    work(0, "collect_steps", "gae")
    work(16)
    clock.switch("start")
    found = {kind: seconds for kind, seconds in clock.seconds.items() if seconds}
    assert found == {"start": 9, "other of rollout": 2, "sampling": 1, "targets": 4, "bookkeeping": 16}


def test_what_a_profile_times_is_there():
    owners = benchmark_profile.owners()
    for owner, names in benchmark_profile.PARTS.items():
        assert all(callable(getattr(owners[owner], name)) for name in names)
