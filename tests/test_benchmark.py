"""results/benchmark: its arithmetic on planted numbers, its contract with peers, and one tiny measurement.

No test asserts a speed: what is published are ratios within one round."""

import contextlib
import json
import shlex
import signal
import subprocess
import sys
import time

import pytest
from conftest import refusal, study, wait_for

benchmark = study("benchmark", "benchmark")
PPO = benchmark.ATARI
PRINTS = shlex.join([sys.executable, "-c", "for i in range(4): print('SPS:', 100)"])
SMALL = f"--scripts {PPO} --shapes 4x8 --seconds 0.1 --rounds 1 --num-threads 1".split()


def test_ratios_are_of_each_round():
    """Two rounds: in the second all is half as fast, which the ratios must not show."""
    records = []
    for number, speed in ((1, 1.0), (2, 0.5)):
        of_round = {benchmark.ALONE: 1000 * speed, "ours": 50 * speed, "slow": (25 if number == 1 else 20) * speed}
        what = {"round": number, "shape": "4x8", "script": PPO}
        records += [{**what, "name": name, "sps": sps} for name, sps in of_round.items()]
        records.append({**what, "name": "broken", "error": "no module"})
    records[-2] |= {"peak_bytes": 8e9}
    late = {"round": 3, "shape": "4x8", "script": PPO, "error": "left out: --minutes 1"}
    records += [{**late, "name": "ours"}, {**late, "name": "late"}]  # of the first there are other rounds
    records.append({**late, "name": "slow", "error": "exit code 1"})  # that is one, though two rounds have a speed
    text = benchmark.render(records, benchmark.describe_machine())
    rows = {line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ")[1:] for line in text.splitlines()}
    assert rows["ours"] == ["38 (25 to 50)", "0.05 (0.05 to 0.05)", "2.25 (2.00 to 2.50)", "-", "-", "-"]
    assert rows["slow"][2:] == ["1.00 (1.00 to 1.00)", "-", "-", "8.0"]
    rounds = [line[:9] for line in text.split("Not measured:")[1].split("\n") if line]
    assert rounds == ["- round 1", "- round 2", "- round 3", "- round 3"] and "slow: exit code 1" in text
    assert "broken: no module" in text and "late: left out" in text and "ours: left out" not in text


def test_speed_of_a_peer_is_that_of_its_second_half():
    # printed since the start: 100 steps in 10 s, 200 in 14 s
    assert benchmark.speed_of_second_half([10.0, 200 / 14]) == pytest.approx(25)
    # a first iteration of 6 s, and five of 4 s, of 100 steps each: the last three
    speeds = [100 * i / (2 + 4 * i) for i in range(1, 7)]
    assert benchmark.speed_of_second_half(speeds) == pytest.approx(25)
    assert benchmark.speed_of_second_half([7.0]) == 7


@pytest.mark.parametrize(
    "printed, speed",
    [
        ("global_step=4096\nSPS: 1,234.5", 1234.5),
        ("speed: 3728.12 sps, reward: 5.00", 3728.12),
        ('{"global_step": 12288, "sps": 771.5}', 771.5),
        ("at 400 steps/s", 400),
    ],
)
def test_what_a_peer_may_print(printed, speed):
    measured = benchmark.measure_peer(shlex.join(["echo", printed]), 60)
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
    measured = benchmark.measure_peer(command, 2)
    assert measured["sps"] == 50 and measured["ended"]
    pid = int((tmp_path / "pid").read_text())  # its whole group is gone, not only the shell
    wait_until_gone(pid)


@pytest.mark.parametrize(
    "command, why",
    [("echo started; echo no such game >&2; exit 3", "no such game"), ("echo hello", "no steps/s: hello")],
)
def test_a_peer_that_fails_says_why(command, why):
    assert why in benchmark.measure_peer(command, 60)["error"]


@pytest.mark.parametrize(
    "flags, message",
    [
        ("--scripts x.py", "ppo_procgen.py"),
        ("--shapes 3x3", "does not divide"),
        ("--flags=--frobnicate", "--frobnicate"),
        ("--peer echo", "NAME=COMMAND"),
        ("--peer x={game}", "{env_id}"),
        ("--peer x.py:a=b", "expected one of ppo_atari"),
        ("--out results", ".json"),
    ],
)
def test_bad_input_is_one_line(flags, message, capsys):
    assert message in refusal(capsys, benchmark.parse_args, flags.split())


def test_a_small_measurement(tmp_path):
    out = tmp_path / "deeper" / "out.json"
    peers = ["--peer", f"good={PRINTS}", "--peer", "failing=exit 3"]
    assert benchmark.main(benchmark.parse_args([*SMALL, "--out", str(out), *peers])) == 0
    results = json.loads(out.read_text())
    assert results["machine"]["cores"] >= 1 and results["machine"]["versions"]["torch"]
    rows = {row["name"]: row for row in results["records"]}
    assert rows[benchmark.ALONE]["sps"] > 0 and rows["good"]["sps"] == 100 and "error" in rows["failing"]
    for name in ("ours", "ours --no-diagnostics"):
        assert rows[name]["sps"] > 0 and rows[name]["peak_bytes"] > 2e8  # PyTorch alone is larger
    assert PPO in out.with_suffix(".md").read_text()


@pytest.mark.parametrize("script", benchmark.SCRIPTS)
def test_the_environments_of_each_script_are_measured_alone(script):
    assert benchmark.measure_envpool(script, benchmark.Setting(4, 8), 0.01)["sps"] > 0


def test_ctrl_c_keeps_what_was_measured(tmp_path):
    pid, out = tmp_path / "pid", tmp_path / "out.json"
    peers = ["--peer", f"first={PRINTS}", "--peer", f"second=echo $$ >{pid}; sleep 600"]
    process = subprocess.Popen(
        [sys.executable, benchmark.__file__, *SMALL, "--out", out, *peers],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: pid.exists() and pid.read_text(), process)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert [row["sps"] for row in json.loads(out.read_text())["records"]][-1] == 100
    wait_until_gone(int(pid.read_text()))
