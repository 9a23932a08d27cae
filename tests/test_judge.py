"""scripts/judge.py: what results/ publish follows from their tables; differences that are planted there are found."""

import csv
import json
import re
import shutil
from itertools import product

import judge
import numpy as np
import pandas as pd
import pytest
from analysis import experiment
from planted_runs import draw as figures_draw
from planted_runs import write_run

from support import arguments, reading

EXPERIMENTS = sorted(path.parent.name for path in experiment.RESULTS.glob("*/verdicts.csv"))
RUNS = experiment.read_dataset(experiment.DATASET)
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_result_is_made_again_from_its_tables(name, tmp_path, capsys):
    for path in (experiment.RESULTS / name).glob("*.csv"):
        if path.name not in ("verdicts.csv", "means.csv"):
            shutil.copy(path, tmp_path)
    for file in (experiment.DATASET, experiment.DATASET.with_name(experiment.EARLIER)):
        shutil.copy(file, tmp_path)
    words = [name, "--out", str(tmp_path), "--dataset", str(tmp_path / "runs.csv.gz")]
    judge.main(arguments.parse(judge.Args, words, ""))
    assert (tmp_path / "runs.csv.gz").read_bytes() == experiment.DATASET.read_bytes()
    assert "* primary" in capsys.readouterr().out
    for made in ("verdicts.csv", "means.csv"):
        assert (tmp_path / made).read_text() == (experiment.RESULTS / name / made).read_text()
    registered = (experiment.RESULTS / "CLAIMS.md").read_text()
    for row in rows_of(tmp_path / "verdicts.csv"):
        assert re.search(r"\b" + row["name"] + r"\b", registered) or not row["verdict"]
    if hasattr(experiment.load(name), "draw"):
        assert (tmp_path / "scores.png").stat().st_size > 10000


def rows_of(path):
    with open(path) as file:
        return list(csv.DictReader(file))


# ---- planted differences ---------------------------------------------------------------------------------------------
def verdicts_of(name, plant, seeds=10):
    """{claim: (value, verdict)} where plant(row), a dict, takes the place of columns of the experiment's own table."""
    code = experiment.load(name)
    table = experiment.runs_of(code, RUNS)
    first = table.drop_duplicates(["game", *code.VARIES]).to_dict("records")
    rows = [{**row, "seed": seed} for row in first for seed in range(1, seeds + 1)]
    planted = pd.DataFrame([{**row, **plant(row)} for row in rows])
    scores = experiment.scores_of(code, planted, experiment.RESULTS / name)
    found = {}
    for row in code.claims(scores).rows():
        found.setdefault(row["name"], (float(row["value"]), row["verdict"]))
    return found


def near(score):
    return {"score": score + RNG.normal(0, 0.01)}


def values(found, *names):
    return [found[name][0] for name in names]


def test_more_epochs_find_each_role():
    gains = {(8, 128): 0, (16, 128): 0.1, (8, 256): 0.3}

    def plant(row):
        return near(0.4 + (row["update_epochs"] == 8) * (gains[row["num_envs"], row["num_steps"]] - 0.2))

    found = verdicts_of("data_reuse", plant)
    assert values(found, "R1", "R2", "R3") == pytest.approx([-0.2, 0.1, -0.2], abs=0.02)
    assert [found[f"R{i}"][1] for i in (1, 2, 3)] == ["supported", "supported", "contradicted"]
    assert {verdict for _, verdict in verdicts_of("data_reuse", plant, seeds=9).values()} == {""}


def test_the_three_ways_are_told_apart():
    """At N = 128 more minibatches have 0.8, bigger ones 0.1, with the root of the rate 0.6; at N = 2: 0.4, 0.9, 0.7.

    The noise scale is 200 environments in one task, where many have the largest return, and 2 in the others. The score
    is 1 - log10(DDR)². In each task the best configuration goes from a DDR of 1 to 100.
    """
    ways = {(128, 64, 2.5e-4): 0.8, (128, 1024, 2.5e-4): 0.1, (128, 1024, 1e-3): 0.6}
    ways |= {(2, 64, 2.5e-4): 0.4, (2, 16, 2.5e-4): 0.9, (2, 16, 1.25e-4): 0.7}

    def plant(row):
        n, size, sign = row["num_envs"], row["minibatch_size"], 1 if row["game"] == "Acrobot-v1" else -1
        own = {"noise": 32 * 20 * 10**sign, "signal": 1, "return": n * sign if size == 64 else -1000}
        columns = {f"{part}_{q}": value for part, value in own.items() for q in (1, 2, 3, 4)}
        return {**near(ways.get((n, size, row["learning_rate"]), 0.5)), "ddr": 10.0, "ddr_mean": 10.0, **columns}

    found = verdicts_of("outer_loop", plant)
    assert values(found, "O1", "O2", "O5") == pytest.approx([0.7, 0.2, -0.5], abs=0.02)
    assert found["O6"][0] == pytest.approx(1) and found["O6"][1] == "undecided"  # no order of three tasks is rare
    places = {}

    def parabola(row):
        key = row["num_envs"], row["minibatch_size"], row["learning_rate"]
        place = places.setdefault(key, len(places) / 5 - 1)  # log10 DDR, from -1 on
        first = {f"return_{q}": -abs(place) for q in (1, 2, 3)}
        return {**near(1 - place**2), "ddr": 10**place, "ddr_mean": 10**place, **first, "return_4": place}

    found = verdicts_of("outer_loop", lambda row: {**plant(row), **parabola(row)})
    assert found["O3"][0] == pytest.approx(-1, abs=0.03) and found["O3"][1] == "supported"
    assert found["O4"][0] == pytest.approx(0.8, abs=0.01)


# ---- the same runs through figures.py --------------------------------------------------------------------------------
@pytest.mark.parametrize("seeds", [9, 10])
def test_figures_and_judge_say_the_same_of_the_same_runs(tmp_path, seeds):
    """P3's three ways at 1/4 and 4 times 8 x 32 environments: the same numbers, intervals and verdicts."""
    levels = {(8, 64, 1): 300, (2, 64, 1): 200, (2, 16, 1): 280, (2, 16, 0.5): 210}
    levels |= {(32, 64, 1): 400, (32, 256, 1): 250, (32, 256, 2): 390}
    rng = np.random.RandomState(0)
    for task in ("CartPole-v1", "Acrobot-v1"):
        for (n, size, factor), level in levels.items():
            for seed in range(1, seeds + 1):
                score, place = level + rng.normal(0, 40), -((level / 400 - 0.7) ** 2)
                scalars = {"outer/ddr": 10 ** (place + rng.normal(0, 0.05)), "outer/grad_noise_scale/noise": 64.0 * n}
                scalars["outer/grad_noise_scale/signal"] = 1.0
                args = dict(seed=seed, num_envs=n, num_steps=32, minibatch_size=size, learning_rate=2.5e-4 * factor)
                path = tmp_path / "runs" / f"{task}_{n}_{size}_{factor}_{seed}"
                write_run(path, score, 100_000, "ppo_envpool", task, scalars=scalars, final=score, **args)
    base = {"ppo_envpool": {"num_envs": 8, "num_steps": 32, "minibatch_size": 64, "learning_rate": 2.5e-4}}
    (tmp_path / "runs" / "sweep.json").write_text(json.dumps({"base": base, "varies": []}))
    words = [
        "outer_loop",
        "--runs",
        str(tmp_path / "runs"),
        "--out",
        str(tmp_path),
        "--dataset",
        str(tmp_path / "runs.csv.gz"),
    ]
    judge.main(arguments.parse(judge.Args, words, ""))
    by_judge = rows_of(tmp_path / "verdicts.csv")
    by_figures = figures_draw("outer_loop", tmp_path / "runs", tmp_path / "figures", "--by-game").reset_index()
    assert len(by_judge) == len(by_figures) > 12
    for one, (_, other) in zip(by_judge, by_figures.iterrows()):
        assert other.claim == (f"{one['claim']}: {one['game']}" if one["family"] == "by game" else one["claim"])
        for name, value in (("value", other.value), ("low", other.ci_low), ("high", other.ci_high)):
            assert float(one[name]) == pytest.approx(value, rel=1e-3, abs=1e-4, nan_ok=True)
        assert one["family"] == other.family and int(one["seeds"]) == other.seeds == seeds
        if one["family"] != "by game":
            assert one["verdict"] == other.verdict and bool(other.needs) == (seeds < 10)
    assert {row["verdict"] for row in by_judge} == (
        {"", "supported", "contradicted", "undecided"} if seeds > 9 else {""}
    )


# ---- from runs to the table of runs ----------------------------------------------------------------------------------
def small(path, final, start="2026-11-23T10:00:00+0000", **args):
    """A run of ppo_envpool.py on CartPole that has played evaluation episodes with this return."""
    fixed = dict(num_envs=8, num_steps=128, anneal_lr=True, resume_from=None, learning_rate=2.5e-4)
    write_run(path, 100.0, 100000, "ppo_envpool", "CartPole-v1", final=final, **{**fixed, **args})
    manifest = json.loads((path / "manifest.json").read_text())
    manifest.update(start=start, git={"commit": "0123456789abcdef"})
    (path / "manifest.json").write_text(json.dumps(manifest))


def take_in(name, tmp_path, *words):
    """The table of runs after the runs below tmp_path/runs were taken in."""
    words = [name, "--runs", str(tmp_path / "runs"), "--table-only", "--out", str(tmp_path), *words]
    judge.main(arguments.parse(judge.Args, [*words, "--dataset", str(tmp_path / "runs.csv.gz")], ""))
    return reading.load(tmp_path / "runs.csv.gz") if (tmp_path / "runs.csv.gz").exists() else None


def test_runs_are_taken_in_once(tmp_path, capsys):
    """The columns are those of the directories; runs whose directories are gone stay; the same runs, the same bytes."""
    for i, (epochs, seed) in enumerate(product((4, 8), (1, 2))):
        small(tmp_path / "runs" / f"x{i}", 50.0 * epochs + seed, update_epochs=epochs, seed=seed)
    small(tmp_path / "runs" / "unfinished", None, update_epochs=4, seed=3)
    small(tmp_path / "runs" / "wild", None, update_epochs=8, seed=3)
    (tmp_path / "runs/wild/done.json").unlink()
    (tmp_path / "runs/wild/failed.json").write_text('{"tensor": "logits", "global_step": 640}')
    table = take_in("data_reuse", tmp_path)
    left_out = [line for line in capsys.readouterr().out.splitlines() if line.startswith("!")]
    assert left_out == [
        "! unfinished: no evaluation episodes: left out",
        "! wild: diverged at step 640: left out",
    ]
    content = (tmp_path / "runs.csv.gz").read_bytes()
    assert [*zip(table.update_epochs, table.seed, table.final_return)] == [
        (4, 1, 201.0), (8, 1, 401.0), (4, 2, 202.0), (8, 2, 402.0)
    ]  # fmt: skip
    assert table.score[0] == pytest.approx((201 - 22.58) / (500 - 22.58), abs=1e-5)
    assert table.half_return[0] == pytest.approx(100 * 0.5**0.5, abs=0.01) and table.global_step[0] == 99328
    assert table.start[0] == "2026-11-23T10:00:00+0000" and table.commit[0] == "0123456789abcdef"
    below = reading.load(tmp_path / "runs").set_index("run")[list(reading.COLUMNS[2:])]
    same = ["script", "state", "env_id", "game", "score", "half_return", "mean_return", "gradient_steps", "commit"]
    pd.testing.assert_frame_equal(below.loc[table.run, same], table.set_index("run")[same])
    take_in("data_reuse", tmp_path)
    assert (tmp_path / "runs.csv.gz").read_bytes() == content
    shutil.rmtree(tmp_path / "runs" / "x0")
    small(tmp_path / "runs" / "x9", 5.0, update_epochs=8, seed=2)
    shutil.rmtree(tmp_path / "runs" / "x3")
    again = take_in("data_reuse", tmp_path)
    assert dict(zip(again.run, again.final_return)) == {"x0": 201.0, "x1": 202.0, "x2": 401.0, "x9": 5.0}
    shared = pd.concat([again.assign(experiment="outer_loop data_reuse")], ignore_index=True)
    experiment.write_dataset(shared, tmp_path / "runs.csv.gz")
    assert len(take_in("data_reuse", tmp_path)) == 4  # three settings and seeds have two runs
    both = experiment.read_dataset(tmp_path / "runs.csv.gz")
    assert sorted(both.experiment) == ["data_reuse"] * 3 + ["outer_loop"] * 3 + ["outer_loop data_reuse"]
    small(tmp_path / "runs" / "other", 1.0, update_epochs=4, seed=4, learning_rate=1e-3)
    with pytest.raises(SystemExit):
        take_in("data_reuse", tmp_path)
    assert "runs/other has learning_rate = 0.001: expected 0.00025" in capsys.readouterr().err


def test_a_study_may_vary_any_argument(tmp_path, monkeypatch):
    """Its settings are told apart in the table of all runs, with no line elsewhere."""
    (tmp_path / "horizon").mkdir()
    (tmp_path / "horizon" / "claims.py").write_text("VARIES, FIXED = ('gae_lambda',), {}\n")
    monkeypatch.setattr(experiment, "RESULTS", tmp_path)
    for i, (value, seed) in enumerate(product((0.8, 0.95), (1, 2))):
        small(tmp_path / "runs" / f"x{i}", 50.0 * i, gae_lambda=value, seed=seed)
    table = take_in("horizon", tmp_path)
    assert sorted(zip(table.gae_lambda, table.seed)) == [(0.8, 1), (0.8, 2), (0.95, 1), (0.95, 2)]
    assert not (tmp_path / experiment.EARLIER).exists()


def test_the_table_of_runs_has_what_the_experiments_own_files_have():
    """If this fails, `python scripts/judge.py all --table-only` takes their rows in."""
    code = experiment.load("cleanrl_curves")
    rows = experiment.own_rows(code, experiment.RESULTS / code.name)
    pd.testing.assert_frame_equal(experiment.merge(RUNS, rows, code, replace=True), RUNS)


@pytest.mark.parametrize(
    "words,message",
    [
        (["nothing"], "nothing is no experiment of results/: expected one of advise, "),
        (["data_reuse", "--dataset", "empty/runs.csv.gz"], "data_reuse has no runs in the table: expected --runs"),
        (["data_reuse", "--dataset", str(experiment.RESULTS / "map" / "means.csv")], "is no table of runs: expected"),
        (["all", "--first-seed", "6"], "all: expected the name of an experiment with --runs"),
        (["data_reuse", "--runs", "empty"], "--runs empty: expected finished runs with evaluation episodes"),
        (["data_reuse", "--first-seed", "11"], "--first-seed 11: expected a seed that has runs"),
    ],
)
def test_bad_input_ends_in_one_line(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit) as end:
        judge.main(arguments.parse(judge.Args, words, ""))
    assert end.value.code == 2 and message in capsys.readouterr().err
