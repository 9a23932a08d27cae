"""results/second_look: the public settings beside the law, computed again from the CSV with NumPy alone."""

import csv
import math
import re

import numpy as np
import pytest
from conftest import ROOT, refusal, study

from support.envs import tasks
from support.envs.episodes import env_seeds

HERE = ROOT / "results" / "second_look"
TEXT = ["set", "source", "commit", "file", "task", "atlas", "called", "remark", "steps_run"]  # columns


@pytest.fixture(scope="module")
def settings():
    """The rows of public_settings.csv, numbers as floats."""
    with open(HERE / "public_settings.csv", newline="") as file:
        return [{x: value if x in TEXT else float(value) for x, value in row.items()} for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def tables():
    """{name of a table in public.md: {first cell: the other cells}}."""
    found = re.findall(r"<!-- public\.py: (\w+) -->\n(.*?)<!-- end -->", (HERE / "public.md").read_text(), re.S)
    rows = {name: [line.strip("| ").split("|") for line in text.strip().split("\n")[2:]] for name, text in found}
    return {name: {cells[0].strip(): [x.strip() for x in cells[1:]] for cells in lines} for name, lines in rows.items()}


def strict(row):
    return row["set"] == "strict"


def tuned(row):
    return row["set"] != "untuned"


# ---- the columns -----------------------------------------------------------------------------------------------------
def test_derived_columns_follow_from_the_facts(settings):
    assert len(settings) == 58
    for row in settings:
        adam_steps = row["steps"] * row["epochs"] / row["minibatch"]
        falls = row["anneal"] * adam_steps  # Adam steps over which the rate falls
        path = falls * (row["rate"] + row["final_rate"]) / 2 + (adam_steps - falls) * row["final_rate"]
        k = row["epochs"] / row["minibatch"]
        law = float(f"{4e-3 * math.sqrt(150_000 / row['steps']) * (16 / 1024) / k:.1e}")
        expected = {
            "batch": row["num_envs"] * row["num_steps"],
            "k": k,
            "adam_steps": adam_steps,
            "path": path,
            "mean_rate": path / adam_steps,
            "law": law,
            "times_law": 2 * path / adam_steps / law,
        }
        assert {x: row[x] for x in expected} == pytest.approx(expected, rel=1e-6), row["task"]
        assert row["minibatch"] <= row["batch"] and row["anneal"] <= 1
        assert (row["anneal"] == 0) == (row["rate"] == row["final_rate"])


def test_what_a_file_says_decides_where_its_setting_stands(settings):
    for row in settings:
        says_so = row["called"].lower().startswith("# tuned")
        assert says_so == strict(row), row["task"]


# ---- the numbers of the page -----------------------------------------------------------------------------------------
def fitted(rows):
    """The cells of a fit: number, slopes on log budget and log k with two standard errors, R²."""
    y = np.log([row["mean_rate"] for row in rows])
    x = np.array([[1, math.log(row["steps"]), math.log(row["k"])] for row in rows])
    inverse = np.linalg.inv(x.T @ x)
    slopes = inverse @ x.T @ y
    squares = np.sum((y - x @ slopes) ** 2)
    errors = 2 * np.sqrt(squares / (len(y) - 3) * np.diag(inverse))
    r2 = 1 - squares / (len(y) * np.var(y))
    return [str(len(y)), *(f"{slopes[i]:.2f} ± {errors[i]:.2f}" for i in (1, 2)), f"{r2:.2f}"]


@pytest.mark.parametrize(
    "name, belongs",
    [
        ("a: called tuned by their files", strict),
        ("a and CarRacing, of which the law was made", lambda row: strict(row) or row["task"] == "CarRacing-v3"),
        ("a and b", tuned),
        ("a and b, above 6 million steps", lambda row: tuned(row) and row["steps"] > 6e6),
    ],
)
def test_fits_of_the_page(settings, tables, name, belongs):
    assert tables["fits"][name][:4] == fitted([row for row in settings if belongs(row)])


def test_the_law_was_made_of_these_numbers(tables):
    slopes = tables["fits"]["a and CarRacing, of which the law was made"][1:4]
    assert slopes == ["-0.60 ± 0.25", "-1.01 ± 0.23", "0.78"]  # results/CLAIMS.md, second_look


def test_comparison_of_the_page(settings, tables):
    rows = [row for row in settings if strict(row)]
    times = np.array([row["times_law"] for row in rows])
    near = np.sum((times >= 1 / 3) & (times <= 3))
    spreads = [np.std(np.log10([row[x] for row in rows]), ddof=1) for x in ("mean_rate", "path", "times_law")]
    numbers = [str(len(rows)), f"{np.exp(np.mean(np.log(times))):.2f}", str(near), *(f"{x:.2f}" for x in spreads)]
    assert tables["compared"]["a: called tuned by their files"][:6] == numbers
    text = " ".join((HERE / "public.md").read_text().split())
    count, mean, near = numbers[:3]
    assert f"{count} settings of PPO that their own files call tuned lie around the law: {mean} times" in text
    assert f"{near} of them within three times" in text


def test_the_page_has_the_tables_of_the_program(capsys):
    public = study("second_look", "public")
    settings, best = public.read(), public.atlas_best()
    text = public.TEXT.read_text()
    assert public.filled(text, settings, best) == text, "run `python results/second_look/public.py`"
    error = refusal(capsys, public.filled, text.replace("<!-- end -->", ""), settings, best)
    assert "<!-- public.py: fits -->" in error


def test_a_task_without_known_random_steps_is_refused(capsys):
    words = "--env-id gymnasium:gymnasium:CartPole-v1 --total-timesteps 2048".split()
    error = refusal(capsys, study("second_look", "staggered").parse_args, words)
    assert error.endswith("expected a task of EnvPool with one discrete action or real ones\n")


def test_staggered_environments_are_at_different_steps_and_go_on_from_there():
    staggered = study("second_look", "staggered")
    envs = tasks.make("CartPole-v1", [env_seeds(seed, "train", 0, range(8)) for seed in (1, 2)], 1)
    envs.reset()
    obs = staggered.stagger(envs, np.random.default_rng(0))
    after, _, ended, *_ = envs.step(np.zeros((2, 8), np.int64))
    np.testing.assert_allclose(after[..., 0], obs[..., 0] + 0.02 * obs[..., 1], atol=1e-6)  # each its own cart
    pool = envs.envs
    pool._send([pool.all_env_ids, pool.all_env_ids, np.zeros(16, np.int32)])
    steps = pool._recv()[pool._state_keys.index("elapsed_step")][~ended.ravel()]
    assert len(set(steps)) > 4 and steps.max() < 60


def test_a_task_whose_runs_cannot_start_is_named_and_left_out(tmp_path):
    plan = study("second_look", "plan")
    block = plan.design.blocks()[0]
    args = plan.Args("run", runs_dir=tmp_path / "runs", blocks=tmp_path / "blocks")
    log = args.runs_dir / plan.run_name(block, *block.runs[0][1:]) / "log.txt"
    log.parent.mkdir(parents=True)
    log.write_text("error: it cannot be made\n[launch] exit code 2\n")
    assert plan.missing(block, args.blocks) == block.runs
    plan.take(block, args, 1)
    assert plan.left_out(args.blocks) == {(block.arm, block.task): "error: it cannot be made"}
    assert plan.missing(block, args.blocks) == [] and [path.name for path in args.blocks.iterdir()] == ["left_out.csv"]
