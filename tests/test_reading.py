"""support/reading.py: curves.csv and event files, all runs as a table, and that reading runs nobody's code."""

import fcntl
import io
import json
import os
import random
import re
import sys

import conftest
import numpy as np
import pandas as pd
import pytest
import torch
from conftest import ROOT
from planted_runs import draw, write_curves, write_events, write_run  # puts scripts/ on the path

# isort: split
import figures
import launch
from analysis import training_runs
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from support import reading


# ---- curves ----------------------------------------------------------------------------------------------------------
def test_reads_what_tensorboard_reads(tmp_path):
    torch_writer = pytest.importorskip("torch.utils.tensorboard")
    from tensorboard.compat.proto.tensor_pb2 import TensorProto

    with torch_writer.SummaryWriter(tmp_path) as writer:
        for step in range(5):
            writer.add_scalar("a", step * 0.5, step)
            writer.add_scalar("b", -step, step, new_style=True)
            writer.add_histogram("c", np.arange(3.0), step)
    tensor = Summary.Value(tag="d", tensor=TensorProto(dtype=1, tensor_content=np.float32(7).tobytes()))
    other = Summary.Value(tag="e", simple_value=1.0, metadata={"plugin_data": {"plugin_name": "hparams"}})  # no curve
    with open(next(tmp_path.glob("events*")), "ab") as file:
        RecordWriter(file).write(Event(step=9, summary=Summary(value=[tensor, other])).SerializeToString())
    curves = reading.read_curves(tmp_path)
    assert list(zip(*map(list, curves["a"]))) == conftest.curves(tmp_path)["a"] and len(curves["a"][0]) == 5
    assert [list(column) for column in curves["b"]] == [[0, 1, 2, 3, 4], [0, -1, -2, -3, -4]]  # a tensor
    assert set(curves) == set("abd") and curves["d"][1] == [7]
    assert not (tmp_path / "curves.csv").exists()  # it may go on: only a run that is done gets one


def same(curves, others):
    """Whether two runs' curves are equal, bit for bit."""
    parts = [{tag: [part.tobytes() for part in curve] for tag, curve in one.items()} for one in (curves, others)]
    return parts[0] == parts[1]


ODD = np.float32([np.nan, np.inf, -np.inf, -0.0, 3.4028235e38, 1e-45, 16777217, 1 / 3]).tolist()


def test_curves_are_the_float32_numbers_of_the_events(tmp_path):
    """Numbers that are hard to print, tags that begin late or end early, and one with a comma."""
    rows = [(1, {"x": 1.0, "finance": 2.0}), (2**53 - 1, {"x,y": 3.0})]
    rows += [(10 + i, {"x": value, "finance": 0.5}) for i, value in enumerate(ODD)]
    rng = np.random.default_rng(0).integers(0, 2**32, 1000, np.uint32).view(np.float32)
    rows += [(100 + i, {"random": value}) for i, value in enumerate(rng.tolist())]
    write_events(tmp_path / "events.out.tfevents.1", rows)
    curves = reading.read_curves(tmp_path)
    for tag in ("x", "finance", "x,y", "random"):
        steps, values = zip(*sorted((step, scalars[tag]) for step, scalars in rows if tag in scalars))
        expected = np.array(values, np.float32)
        assert curves[tag][0].tolist() == list(steps) and curves[tag][0].dtype == np.int64
        assert (curves[tag][1].view(np.uint32) == expected.view(np.uint32))[~np.isnan(expected)].all()
        assert np.isnan(curves[tag][1][np.isnan(expected)]).all()
    (tmp_path / "done.json").write_text("{}")
    assert same(reading.read_curves(tmp_path), curves) and same(reading.read_curves(tmp_path), curves)
    (tmp_path / "events.out.tfevents.1").unlink()  # from now on the file is all there is
    assert same(reading.read_curves(tmp_path), curves)


def test_appended_rows_are_those_of_the_events(tmp_path):
    """A tag that is new gets a column; a row is written whole, and a part of one does not count."""
    file = reading.CurvesFile(tmp_path, -1)
    assert reading.read_curves(tmp_path) == {} and reading.progress(tmp_path)[:2] == (0, 0.0)
    points = [(1, {"x": 1.0}), (2, {"x": ODD[0], "y": ODD[-1]}), (3, {"y": 5.0}), (4, {"z": 1.0})]
    for step, scalars in points:
        file.append(step, 100.0 + step, scalars)
    file.close()
    lines = ["step,wall_time,x,y,z", "1,101.000000,1,,", "2,102.000000,nan,0.333333343,", "3,103.000000,,5,"]
    path = tmp_path / "curves.csv"
    assert path.read_text() == "\n".join([*lines, "4,104.000000,,,1", ""])
    write_events(tmp_path / "events.out.tfevents.1", points)
    whole = reading.read_curves(tmp_path)
    assert reading.progress(tmp_path)[:2] == (4, 1.0)
    path.write_bytes(path.read_bytes()[:-1])
    assert reading.read_curves(tmp_path).keys() == {"x", "y"} and reading.progress(tmp_path)[:2] == (3, 1.0)
    reading.CurvesFile(tmp_path, 2).close()
    assert path.read_text() == "\n".join([*lines[:3], ""])
    path.unlink()
    assert same(reading.read_curves(tmp_path), whole)


def test_several_event_files_with_torn_tails_out_of_order(tmp_path):
    one, two = tmp_path / "events.out.tfevents.1", tmp_path / "events.out.tfevents.2"
    write_events(one, [(1, {"x": 1.0}), (3, {"x": 3.0}), (2, {"x": 2.0}), (4, {"x": 4.0, "y": 1.0})])
    write_events(two, [(4, {"x": 40.0}), (5, {"x": 5.0}), (6, {"x": 6.0})])
    two.write_bytes(two.read_bytes()[:-9])
    steps, values = reading.read_curves(tmp_path)["x"]
    assert steps.tolist() == [1, 2, 3, 4, 5] and values.tolist() == [1, 2, 3, 40, 5]
    assert reading.read_curves(tmp_path)["y"][0].tolist() == [4]
    two.write_bytes(b"not an event file at all, but long enough")
    assert reading.read_curves(tmp_path)["x"][0].tolist() == [1, 2, 3, 4]


def test_a_run_that_is_done_gets_a_curves_file(tmp_path):
    """Not while a process holds its lock; a folder that cannot be written to is read all the same."""
    write_events(tmp_path / "events.out.tfevents.1", [(1, {"x": 1.0})])
    (tmp_path / "done.json").write_text('{"global_step": 1}')
    with open(tmp_path / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert reading.read_curves(tmp_path)["x"][1] == [1] and not (tmp_path / "curves.csv").exists()
    assert reading.progress(tmp_path)[:2] == (1, 0.0)
    blocked = tmp_path / f".curves.csv.{os.getpid()}.partial"
    blocked.mkdir()  # as root may write everywhere, no mode of the folder would refuse
    assert reading.read_curves(tmp_path)["x"][1] == [1] and not (tmp_path / "curves.csv").exists()
    blocked.rmdir()
    assert reading.read_curves(tmp_path)["x"][1] == [1]
    assert (tmp_path / "curves.csv").read_text() == "step,wall_time,x\n1,1.000000,1\n"


# ---- all runs as a table ---------------------------------------------------------------------------------------------
def test_load(tmp_path):
    """Each argument, state and score of each run, at any depth; the curves in a second table."""
    write_run(tmp_path / "deep" / "er" / "a", 1.0, final=1.5, hidden_sizes=[64, 64], scalars={"x": 1.0})
    write_run(tmp_path / "b", 1.0, seed=2, script="ppo_envpool", done=False, scalars={"y": np.nan}, half_return=7.0)
    done = {"sps": 512.5, "wall_seconds": 2.0, "final_return_ci": [40.0, 50.0]}
    path = tmp_path / "deep" / "er" / "a" / "done.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **done}))
    manifest = json.loads((tmp_path / "b" / "manifest.json").read_text())
    more = {"git": {"commit": "0123abc", "dirty": False}, "start": "2026-01-01T00:00:00+0000"}
    (tmp_path / "b" / "manifest.json").write_text(json.dumps({**manifest, **more}))
    runs = reading.load(tmp_path).set_index("run")
    assert list(runs.index) == ["b", "deep/er/a"] and list(runs.state) == ["stale", "done"]
    a, b = runs.loc["deep/er/a"], runs.loc["b"]
    assert (a.script, a.env_id, a.seed) == ("ppo_atari_envpool", "Breakout-v5", 1)
    assert (a.num_envs, a.hidden_sizes) == (8, "64 64")
    assert (a.sps, a.wall_seconds, a.final_return_low, a.final_return_high) == (512.5, 2.0, 40.0, 50.0)
    assert a.final_return == pytest.approx(1.7 + 1.5 * 28.8) and a.final_episodes == 20 and a.global_step == 1024
    assert (b.script, b.commit, b.start, b.global_step) == ("ppo_envpool", "0123abc", more["start"], 1024)
    assert np.isnan(b.final_return) and np.isnan(b.sps)
    assert np.isnan(b.half_return), "it has an argument of this name, but no such result"
    reading.load(tmp_path).to_csv(tmp_path / "runs.csv.gz", index=False)
    pd.testing.assert_frame_equal(reading.load(tmp_path / "runs.csv.gz"), reading.load(tmp_path))
    with pytest.raises(ValueError, match="curves.csv is no table of runs: expected the columns"):
        reading.load(tmp_path / "b" / "curves.csv")
    again, curves = reading.load(str(tmp_path), curves=True)
    assert again.set_index("run").equals(runs) and curves.shape == (16, 8) and curves["x"].dtype == np.float32
    returns = curves[curves.run == "b"].set_index("step")["charts/episodic_return"]
    steps, values = reading.read_curves(tmp_path / "b")["charts/episodic_return"]
    assert returns.index.tolist() == steps.tolist() and returns.tolist() == values.tolist()
    assert curves[curves.run == "b"].x.isna().all() and curves.wall_time.tolist() == curves.step.tolist()


def test_a_log_point_at_half_the_budget_ends_the_first_half(tmp_path):
    write_run(tmp_path / "a", 1.0, steps=1024)
    tags = ("charts/episodic_length", "charts/episodic_return")
    write_curves(tmp_path / "a", [(256 * i, dict.fromkeys(tags, 10.0**i)) for i in range(1, 5)])
    run = reading.load(tmp_path).iloc[0]
    assert (run.half_return, run.mean_return, run.length) == (100, 11110 / 4, (1000 + 10000) / 2)


def manifest(field="git", value="null", **arguments):
    """A manifest with one field that is not as a run writes it, or with such arguments."""
    return f'{{"arguments": {json.dumps(arguments)}, "{field}": {value}}}'


BROKEN = {  # file -> contents that no run has written; test_fuzz_files.py has many more
    "manifest.json": ["", "[1]", '{"arguments": 5}', "\udcff", "{}", manifest(value='"0123abc"')]
    + [manifest("start", '"\\ud800"'), manifest("x", 1, learning_rate=np.inf), manifest("x", 1, num_logs=10**400)]
    + [manifest("x", 1, num_envs=0), manifest("x", 1, hidden_sizes=[[8]])],
    "done.json": ["", '{"global_step": "all"}', '{"final_return_ci": [1]}'],
    "failed.json": ["null", '{"global_step": {}}'],
    "curves.csv": ["", "step", "\udcff\n", "step,wall_time,x,y\n1,1,1\n", "step,wall_time,run\n1,1,1\n"]
    + ["step,wall_time,x,x\n1,1,1,1\n", "step,wall_time,x\n2,1,1\n1,1,1\n", "step,wall_time,x\n1,1,1e300\n"]
    + ["step,wall_time," + "x" * 200000 + "\n1,1,1\n"],
}


@pytest.mark.parametrize("name, content", [(name, content) for name in BROKEN for content in BROKEN[name]])
def test_a_broken_file_is_named_and_the_other_runs_are_read(tmp_path, capsys, name, content):
    for run in ("a", "b"):
        write_run(tmp_path / run, 1.0)
    (tmp_path / "a" / name).write_bytes(content.encode(errors="surrogateescape"))
    runs, curves = reading.load(tmp_path, curves=True)
    assert list(runs.run) == ["b"] and set(curves.run) == {"b"}
    error = capsys.readouterr().err
    assert error.startswith(f"note: {tmp_path / 'a'} is left out: {name}") and error.count("\n") == 1
    found, unread = training_runs.read_runs(tmp_path)
    assert [run.name for run in found] == ["b"] and len(unread) == 1 and unread[0].startswith(f"a: not read ({name}")


@pytest.mark.parametrize(
    "rows, says",
    [
        ("2,1,1,1\n3,1,,one\n", "y is 'one' in row 2: expected a number"),
        ("2,1,1,1\n3,?,,1\n", "wall_time is '?' in row 2: expected a number"),
        ("2,1,1,1\n1.5,1,1,1\n", "step is '1.5' in row 2: expected a whole number"),
        ("2,1,1,1\n" + "9" * 400 + ",1,1,1\n", "step is '" + "9" * 59 + " in row 2: expected a whole number"),
        ("2,1,1,1\n3,1,1\n", "row 2 has 3 cells: expected 4"),
    ],
)
def test_a_bad_cell_of_a_curve_is_named(tmp_path, rows, says):
    (tmp_path / "curves.csv").write_text("step,wall_time,x,y\n" + rows)
    with pytest.raises(ValueError, match=re.escape(f"curves.csv: {says}")):
        reading.read_curves(tmp_path)


def test_a_name_that_is_no_text_and_files_that_are_none(tmp_path, capsys):
    """A directory whose name is not UTF-8 is read; a pipe in a file's place is not waited for."""
    write_run(tmp_path / os.fsdecode(b"a\xff"), 1.0)
    for name in ("manifest.json", "curves.csv", "done.json", "log.txt"):
        write_run(tmp_path / name, 1.0)
        (tmp_path / name / name).unlink(missing_ok=True)
        os.mkfifo(tmp_path / name / name)
    runs = reading.load(tmp_path)
    assert list(runs.run) == ["a\N{REPLACEMENT CHARACTER}", "log.txt"] and runs.to_csv().encode()
    assert capsys.readouterr().err.count("it is no regular file") == 3
    assert reading.state(tmp_path / "log.txt") == "done" and reading.log_end(tmp_path / "log.txt") == ("", None)


def test_a_link_to_a_deleted_run_is_named(tmp_path, capsys):
    """As two sweeps share a run, and the one that owns it is deleted."""
    write_run(tmp_path / "a", 1.0)
    (tmp_path / "b").symlink_to("../other/b")
    assert list(reading.load(tmp_path).run) == ["a"]
    assert "b is left out: a link to ../other/b, which has been deleted" in capsys.readouterr().err
    found, unread = training_runs.read_runs(tmp_path)
    assert len(found) == 1 and unread == ["b: not read (a link to ../other/b, which has been deleted)"]
    launch.status(launch.runs_below(tmp_path))
    assert "missing   b" in capsys.readouterr().out


def test_load_of_nothing(tmp_path):
    runs, curves = reading.load(tmp_path, curves=True)
    assert runs.empty and curves.empty and {"run", "script", "state", "final_return"} <= set(runs) and "step" in curves
    with pytest.raises(FileNotFoundError, match="none is no directory"):
        reading.load(tmp_path / "none")


# ---- archives --------------------------------------------------------------------------------------------------------
def damages(whole):
    """A file cut at every hundredth of its length, and a hundred copies with one flipped bit."""
    yield from (whole[: len(whole) * i // 100] for i in range(100))
    places = random.Random(1).sample(range(8 * len(whole)), 100)
    for place in [
        *places,
        *(8 * (found.start() + 38) + 4 for found in re.finditer(b"PK\1\2", whole)),
    ]:  # a folder's mark
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        yield bytes(damaged)


def test_of_a_damaged_checkpoint_the_one_before_is_taken(tmp_path, capsys):
    """torch.load takes most flipped bits for other weights, and ends with OSError at half of the cuts."""
    weights = torch.rand(40, 50)
    torch.save({"format": reading.FORMAT, "age": "new", "weights": weights}, tmp_path / "checkpoint.pt")
    torch.save({"format": reading.FORMAT, "age": "old"}, tmp_path / "checkpoint.prev.pt")
    path, older = tmp_path / "checkpoint.pt", 0
    for damaged in damages(path.read_bytes()):
        path.write_bytes(damaged)
        _, checkpoint = reading.newest_checkpoint(tmp_path)
        if checkpoint["age"] == "old":
            assert re.fullmatch(
                r"note: \S+/checkpoint.pt cannot be read \(\w+\): it is damaged\n", capsys.readouterr().err
            )
            older += 1
        else:
            assert torch.equal(checkpoint["weights"], weights), "a damaged checkpoint is taken as whole"
    assert older > 170  # some bits of the padding between the parts mean nothing


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """Also after a power cut the name belongs to a whole file: the new one, or the one before."""
    done = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *args, name=name, real=real: (done.append(name), real(*args))[1])
    reading.write_atomically(tmp_path / "done.json", b"{}")
    assert done[:2] == ["fsync", "replace"] and (tmp_path / "done.json").read_bytes() == b"{}"


@pytest.mark.parametrize("stops_at, kept", [(1, b"1"), (2, b"2")])
def test_a_checkpoint_keeps_its_name_while_the_next_one_is_written(tmp_path, monkeypatch, stops_at, kept):
    """A kill -9 before either file has its new name leaves two; a file system without hard links works."""
    path, previous, calls, replace = tmp_path / "checkpoint.pt", tmp_path / "checkpoint.prev.pt", [], os.replace

    def stop(*names):
        calls.append(names)
        if len(calls) == stops_at:
            raise PermissionError
        replace(*names)

    for data in (b"1", b"2"):
        reading.write_atomically(path, data, previous)
    with monkeypatch.context() as context, pytest.raises(PermissionError):
        context.setattr(os, "replace", stop)
        reading.write_atomically(path, b"3", previous)
    assert (path.read_bytes(), previous.read_bytes()) == (b"2", kept)
    reading.write_atomically(path, b"3", previous)
    assert (path.read_bytes(), previous.read_bytes()) == (b"3", b"2") and len([*tmp_path.iterdir()]) == 2
    stops_at = len(calls) + 1
    monkeypatch.setattr(os, "link", stop)
    reading.write_atomically(path, b"4", previous)
    assert (path.read_bytes(), previous.read_bytes()) == (b"4", b"3")


def test_damaged_arrays_are_none(tmp_path):
    arrays = {"obs": np.arange(300).reshape(100, 3), "value": np.ones(100, np.float32)}
    for write in (np.savez, np.savez_compressed):
        write(tmp_path / "coverage.npz", **arrays)
        whole, refused = (tmp_path / "coverage.npz").read_bytes(), 0
        for damaged in damages(whole):
            (tmp_path / "coverage.npz").write_bytes(damaged)
            try:
                found = reading.read_arrays(tmp_path / "coverage.npz")
            except ValueError:
                refused += 1
            else:
                assert all(np.array_equal(found[name], array) for name, array in arrays.items())
        assert refused > 150


# ---- whose code runs -------------------------------------------------------------------------------------------------
def test_reading_runs_nobodys_code_and_needs_no_simulator(tmp_path, monkeypatch, capsys):
    """Figures, report, status and dry-run, of tasks that name a module, on a machine without EnvPool."""
    (tmp_path / "sidefx.py").write_text(f"open({str(tmp_path / 'effect')!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "envpool", None)  # importing it raises ImportError
    env_id, runs, out = "gymnasium:sidefx:Foo-v0", tmp_path / "runs" / "mine", tmp_path / "out"
    for seed in range(1, 4):
        for game in (env_id, "CheetahRun-v1"):
            for num_envs in (8, 16):
                place = runs / f"{game[-5:]}{num_envs}_{seed}"
                write_run(place, 1.0, script="ppo_envpool", game=game, seed=seed, num_envs=num_envs)
    draw("mine", runs, out)
    figures.main(figures.parse_args(["mine", "--html", "--runs", str(runs), "--out", str(out), "--reps", "100"]))
    assert (out / "mine.html").exists() and len(reading.load(runs)) == 12
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    launch.main(["status", "--runs-dir", str(runs)])
    words = f"python {ROOT}/ppo_envpool.py --env-id {env_id} --run-name mine/new --runs-dir {tmp_path}/runs\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(words))
    launch.main(["--dry-run"])
    assert "12 runs: 12 done" in capsys.readouterr().out and not (tmp_path / "effect").exists()
    __import__("sidefx")  # as this test has to be able to fail
    assert (tmp_path / "effect").exists()
