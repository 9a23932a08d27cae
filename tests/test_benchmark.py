"""scripts/benchmark.py: its arithmetic on planted numbers, its contract with peers, and one tiny run. No test asserts a
speed: those are ratios within one run, in results/benchmark/."""

import contextlib
import json
import shlex
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import ROOT, wait_for

from scripts import benchmark

PPO = benchmark.ATARI
PRINTS = shlex.join([sys.executable, "-c", "for i in range(4): print('SPS:', 100)"])


def test_limit_is_one_thing_after_the_other():
    # 1 ms in the environment, 2 ms of inference, 4 epochs of 3 ms of training: 15 ms a step
    assert benchmark.limit(1000, 500, 1000 / 3, 4) == pytest.approx(1000 / 15)


def record(round_, section, **fields):
    return {"round": round_, "section": section, "shape": "4x8", "script": PPO, **fields}


def planted():
    """Two rounds: in the second all is half as fast, which the ratios must not show."""
    records = []
    for round_, speed in ((1, 1.0), (2, 0.5)):
        ours = {"precision": "bf16", "flags": "", "peak_bytes": 2e9, "iterations": 4, "log_steps": 10000}
        records += [
            record(round_, "env", sps=1000 * speed),
            record(
                round_,
                "network",
                precision="bf16",
                inference=500 * speed,
                training=1000 / 3 * speed,
                minibatch_size=8,
                update_epochs=4,
            ),
            record(round_, "scripts", diagnostics=True, sps=50 * speed, **ours),
            record(round_, "scripts", diagnostics=False, sps=60 * speed, **ours),
            record(round_, "peers", name="slow", sps=(25 if round_ == 1 else 20) * speed, peak_bytes=8e9),
            record(round_, "peers", name="broken", error="no module"),
            record(round_, "ranks", precision="bf16", ranks=1, sps=40 * speed, peak_bytes=1e9),
            record(round_, "ranks", precision="bf16", ranks=2, sps=60 * speed, peak_bytes=2e9),
        ]
    records.append(record(3, "env", error="left out: --minutes 1"))  # not missing: there are other rounds
    records.append(record(1, "growth", precision="bf16", sps=32.0, peak_bytes=1e9, iterations=2))
    records.append({"round": 1, "section": "storage", "script": PPO, "name": "ours", "bytes_per_transition": 28275.0})
    return records


def test_ratios_are_of_each_round():
    summary = benchmark.summarize(planted())
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
    # the second half of 4 iterations of 32 steps: 64 steps with one log point
    (cost,) = summary["diagnostics"]
    assert cost["on_against_off"]["median"] == pytest.approx(50 / 60)
    assert cost["seconds_per_log_point"]["min"] == pytest.approx(64 / 50 - 64 / 60)
    share = cost["seconds_per_log_point"]["min"]  # of the round at full speed
    assert cost["share_by_default"]["min"] == pytest.approx(share / (share + 10000 / 60))
    assert len(summary["errors"]) == 2 and "no module" in summary["errors"][0]
    text = benchmark.render(summary, benchmark.describe_machine())
    assert max(map(len, text.splitlines()[2:])) <= 120
    for expected in ("2.25 (2.00 to 2.50)", "0.75 (0.75 to 0.75)", "28,275", "1,000", "no module"):
        assert expected in text


def test_speed_is_that_of_the_second_half():
    # written at the start and at log points: 10 s for the first 100 steps, 4 s for the second
    assert benchmark.speed_of([(1000.0, 0), (1010.0, 100), (1014.0, 200)]) == 25
    assert benchmark.speed_of([(1000.0, 0), (1010.0, 100)]) == 10
    # printed since the start: 100 steps in 10 s, 200 in 14 s
    assert benchmark.speed_of_second_half([10.0, 200 / 14]) == pytest.approx(25)
    # a first iteration of 6 s, and five of 4 s, of 100 steps each: the last three
    speeds = [100 * i / (2 + 4 * i) for i in range(1, 7)]
    assert benchmark.speed_of_second_half(speeds) == pytest.approx(25)
    assert benchmark.speed_of_second_half([7.0]) == 7


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
    measured = benchmark.measure_peer(shlex.join(["echo", printed]), 60, 0)
    assert measured["sps"] == speed


def wait_until_gone(pid):
    """A signal takes a moment, and who is to bury an orphan may not be there: a zombie is gone."""
    deadline = time.time() + 30
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        while open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "Z":
            assert time.time() < deadline, f"process {pid} lives on"
            time.sleep(0.05)


def test_a_peer_is_ended_in_time_and_what_it_printed_counts(tmp_path):
    command = f"echo SPS: 50; sleep 60 & echo $! >{tmp_path / 'pid'}; wait"
    begin = time.time()
    measured = benchmark.measure_peer(command, 2, 0)
    assert measured["sps"] == 50 and measured["ended"] and time.time() - begin < 30
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
    assert why in benchmark.measure_peer(command, 60, 0)["error"]


def test_storage_counts_what_has_the_shape_of_a_rollout(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\nimport numpy as np\nimport torch\n"
        "N, T = map(int, sys.argv[1:])\n"
        "obs = torch.zeros((T, N, 84), dtype=torch.uint8)\n"
        "rewards = np.zeros((T, N), dtype=np.float32)\n"
        "rewards = np.ones((T, N), dtype=np.float32)  # replaces: not 4 bytes more\n"
        "other = torch.zeros(1000, N)\n"
    )
    command = f"{sys.executable} {program} {benchmark.TINY[0]} {benchmark.TINY[1]}"
    assert benchmark.measure_storage(command, 300) == {"bytes_per_transition": 88}
    assert "runs no .py" in benchmark.measure_storage("echo hello", 60)["error"]


def test_sb3_adapter():
    pytest.importorskip("stable_baselines3")
    module, args = benchmark.load(PPO, 4, 8)
    envs = benchmark.sb3_adapter(module.make_envs(args, 1), 4)
    obs = envs.reset()
    assert obs.shape == (4, 4, 84, 84) and obs.dtype == np.uint8 and envs.num_envs == 4
    rng, was_done, ends = np.random.default_rng(0), np.zeros(4, dtype=bool), 0
    for _ in range(300):
        obs, rewards, dones, infos = envs.step(rng.integers(4, size=4))
        assert obs.shape == (4, 4, 84, 84) and rewards.shape == dones.shape == (4,) and len(infos) == 4
        assert not rewards[was_done].any() and not dones[was_done].any()  # EnvPool's reset row is a row like others
        was_done, ends = dones, ends + dones.sum()
    assert ends > 4
    envs.close()


def test_sb3_adapter_at_a_time_limit():
    pytest.importorskip("stable_baselines3")
    module, args = benchmark.load(PPO, 2, 8)
    real = module.make_envs(args, 1)
    obs = np.arange(2, dtype=np.uint8)
    stand_in = SimpleNamespace(
        observation_space=real.observation_space,
        action_space=real.action_space,
        close=real.close,
        step=lambda actions: (obs, np.zeros(2), np.array([True, False]), np.array([True, True]), {}),
    )
    *_, dones, infos = benchmark.sb3_adapter(stand_in, 2).step(np.zeros(2, dtype=np.int64))
    assert dones.all() and infos[0] == {}  # the first one died: nothing to bootstrap
    assert infos[1] == {"TimeLimit.truncated": True, "terminal_observation": 1}


@pytest.mark.parametrize(
    "flags, message",
    [
        ("--shapes 128", "128 is no shape"),
        ("--sections all", "env, network"),
        ("--rounds 0", "at least 1"),
        ("--seconds nan", "at least 0.1"),
        ("--scripts x.py", "ppo_procgen.py"),
        ("--shapes 3x3", "does not divide"),
        ("--flags=--frobnicate", "--frobnicate"),
        ("--peer echo", "NAME=COMMAND"),
        ("--peer x={game}", "{env_id}"),
        ("--peer sb3=x", "differ"),
        ("--out results", ".json"),
        ("--frobnicate", "--frobnicate"),
    ],
)
def test_bad_input_is_one_line(flags, message, capsys):
    with pytest.raises(SystemExit) as end:
        benchmark.parse_args(flags.split())
    printed = capsys.readouterr().err
    assert end.value.code == 2 and printed.startswith("error: ") and printed.count("\n") == 1 and message in printed


SMALL = [
    "--scripts",
    PPO,
    "--shapes",
    "4x8",
    "--seconds",
    "0.1",
    "--rounds",
    "1",
    "--precisions",
    "fp32",
    "--num-threads",
    "1",
]


def test_a_small_run(tmp_path):
    out = tmp_path / "deeper" / "out.json"
    sections = "env,network,scripts,peers"
    assert (
        benchmark.main(
            [*SMALL, "--sections", sections, "--out", str(out), "--peer", f"good={PRINTS}", "--peer", "bad=exit 3"]
        )
        == 0
    )
    results = json.loads(out.read_text())
    assert set(results) == {"command", "machine", "settings", "summary", "records"}
    assert set(results["summary"]) == {"parts", "end_to_end", "diagnostics", "ranks", "growth", "storage", "errors"}
    assert results["machine"]["cores"] >= 1 and results["machine"]["versions"]["torch"]
    rows = {(row["name"], row.get("diagnostics")): row for row in results["summary"]["end_to_end"]}
    for diagnostics in (True, False):
        ours = rows["ours", diagnostics]
        assert ours["sps"]["median"] > 0 and ours["of_limit"]["n"] == 1 and ours["against"]["good"]["n"] == 1
        assert ours["peak_bytes"]["median"] > 2e8  # PyTorch alone is larger
    if rows.pop(("sb3", None), None):  # where it is installed
        assert ours["against"]["sb3"]["median"] > 0
    assert len(results["summary"]["errors"]) == 1 and "bad" in results["summary"]["errors"][0]
    assert PPO in out.with_suffix(".md").read_text()


def test_ctrl_c_keeps_what_was_measured(tmp_path):
    pid = tmp_path / "pid"
    words = [
        sys.executable,
        ROOT / "scripts/benchmark.py",
        *SMALL,
        "--sections",
        "peers",
        "--no-sb3",
        "--out",
        tmp_path / "out.json",
        "--peer",
        f"first={PRINTS}",
        "--peer",
        f"second=echo $$ >{pid}; sleep 600",
    ]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: pid.exists() and pid.read_text(), process)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert [row["sps"] for row in json.loads((tmp_path / "out.json").read_text())["records"]] == [100]
    wait_until_gone(int(pid.read_text()))
