"""scripts/umap_coverage.py on runs with known coverage, and on real short ones.

A run is planted as a directory with a manifest and a coverage.npz. In all but two tests UMAP, which compiles for ten
seconds, is replaced by the first two principal components. The code around it is the same.
"""

import csv
import json
import os
import shutil

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
import umap_coverage
from conftest import run
from scipy import stats

RNG = np.random.default_rng(0)
ROOMS = np.kron(RNG.integers(0, 256, (24, 12, 12)), np.ones((7, 7))).astype(np.uint8)  # 24 pictures, far apart


def plant(folder, num_envs, num_steps, seed=1, rooms=8, rows=90, env_id="Breakout-v5", done=True, **changes):
    """A run that was in `rooms` rooms, each lit in its own way in every row. Returns its directory."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)  # the same rooms and the same seed are the same run
    room = rng.integers(rooms, size=rows)
    frames = np.clip(ROOMS[room] + rng.normal(0, 12, (rows, 84, 84)), 0, 255).astype(np.uint8)
    arrays = {
        "frame": frames,
        "feature": rng.normal(size=(rows, 16)).astype(np.float16),
        "value": room.astype(np.float32),
        "step": np.linspace(10, 2048, rows).astype(int),
    }
    arrays.update(changes.pop("arrays", {}))
    arguments = {
        "env_id": env_id,
        "num_envs": num_envs,
        "num_steps": num_steps,
        "seed": seed,
        "gamma": 0.99,
        "total_timesteps": 2048,
        "run_name": folder.name,
        **changes,
    }
    manifest = {"arguments": arguments, "command": "python ppo_atari_envpool.py --seed 1"}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    np.savez_compressed(folder / "coverage.npz", **arrays)
    if done:
        (folder / "done.json").write_text("{}")
    return folder


def plant_grid(root, rooms, seeds=(1, 2, 3), **options):
    """{(N, T): rooms} -> a run of each with each seed."""
    for (num_envs, num_steps), count in rooms.items():
        for seed in seeds:
            plant(root / f"{num_envs}_{num_steps}_{seed}", num_envs, num_steps, seed, count, **options)


def draw(root, out, *words):
    umap_coverage.main(umap_coverage.parse_args(["--runs", str(root), "--out", str(out), *map(str, words)]))


def table(path):
    with open(path) as file:
        return list(csv.DictReader(file))


@pytest.fixture
def plane(monkeypatch):
    """The first two principal components in place of UMAP, turned a little by the seed."""

    def points(x, seed):
        turn = np.array([[np.cos(seed), -np.sin(seed)], [np.sin(seed), np.cos(seed)]])
        return x[:, :2] @ turn

    monkeypatch.setattr(umap_coverage, "umap_points", points)


def refused(capsys, *words):
    with pytest.raises(SystemExit) as end:
        umap_coverage.main(umap_coverage.parse_args(list(map(str, words))))
    err = capsys.readouterr().err
    assert end.value.code == 2
    return err.splitlines()[-1]


# ---- measures --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("grid, count", [(16, 100), (32, 1024), (50, 400)])
def test_uniform_coverage_is_what_uniform_points_give(grid, count):
    rng = np.random.default_rng(0)
    cells = [len(np.unique(rng.integers(grid * grid, size=count))) / grid**2 for _ in range(400)]
    assert umap_coverage.uniform_coverage(count, grid) == pytest.approx(np.mean(cells), rel=0.01)


def test_headline_grid_is_the_one_that_can_show_most():
    found = [umap_coverage.headline_grid(count, [16, 32, 50]) for count in (30, 150, 800, 1800, 10**6)]
    assert found == [16, 16, 32, 50, 50]


def test_unit_square():
    """One box for all; an outlier in 2000 rows moves it by nothing; a constant axis does not divide by zero."""
    points = np.stack([np.linspace(-3, 5, 2000), np.full(2000, 7.0)], 1)
    square = umap_coverage.to_unit_square(points)
    assert square[:, 0].min() == 0 and square[:, 0].max() == 1 and (square[:, 1] == 0.5).all()
    assert square[1000, 0] == pytest.approx(0.5, abs=0.001)
    points[0] = 1e9
    again = umap_coverage.to_unit_square(points)
    assert again[0, 0] == 1 and again[1000:, 0] == pytest.approx(square[1000:, 0], abs=0.01)


def test_area_mean_and_distinct_share():
    frames = RNG.integers(0, 256, (5, 84, 84)).astype(np.uint8)
    means = umap_coverage.area_mean(frames, 4)
    assert means.shape == (5, 21, 21, 1)
    assert means[2, 3, 4, 0] == pytest.approx(frames[2, 12:16, 16:20].mean(), rel=1e-6)
    assert umap_coverage.embed_input(RNG.integers(0, 256, (5, 64, 64, 3)).astype(np.uint8)).shape == (5, 768)
    rows = umap_coverage.embed_input(ROOMS[[0, 1, 2, 1]])
    assert umap_coverage.distinct_share(rows, True) == 0.75
    assert umap_coverage.distinct_share(np.array([[0.0], [0.1], [1.0], [-1.0]]), False) == 0.75


# ---- runs ------------------------------------------------------------------------------------------------------------
def test_runs_are_found_once_at_any_depth(tmp_path, capsys, plane):
    plant(tmp_path / "a/b/first", 8, 128)
    plant(tmp_path / "second", 128, 8)
    os.symlink(tmp_path / "a/b/first", tmp_path / "link")
    os.symlink(tmp_path, tmp_path / "a/circle")
    shutil.copytree(tmp_path / "second", tmp_path / "zz_copy")
    (tmp_path / "empty").mkdir()
    games = umap_coverage.load_runs(tmp_path)
    assert [run.label for run in games["Breakout-v5"]] == ["8×128", "128×8"]
    assert "zz_copy left out" in capsys.readouterr().err


def test_what_is_left_out_is_named(tmp_path, capsys, plane):
    """…each with its reason, and the rest is drawn."""
    plant(tmp_path / "good", 8, 128)
    plant(tmp_path / "young", 16, 128, done=False)
    bad = np.linspace(0, 1, 90, dtype=np.float32)
    bad[40] = np.nan
    plant(tmp_path / "nan_value", 32, 128, arrays={"value": bad})
    plant(tmp_path / "inf_feature", 64, 128, arrays={"feature": np.full((90, 16), np.inf, np.float16)})
    plant(tmp_path / "ragged", 64, 64, arrays={"value": bad[:30]})
    os.remove(plant(tmp_path / "no_npz", 128, 128) / "coverage.npz")
    (plant(tmp_path / "half", 256, 128) / "coverage.npz").write_bytes(b"PK half of a file")
    (plant(tmp_path / "no_manifest", 4, 128) / "manifest.json").write_text("{")
    draw(tmp_path, tmp_path / "out", "--umap-seeds", 1)
    err = capsys.readouterr().err
    assert "young is not finished: its rows end at step 2,048 of 2,048" in err
    for name, why in (
        ("nan_value", "values"),
        ("inf_feature", "features"),
        ("ragged", "rows"),
        ("no_npz", "coverage.npz"),
        ("half", "cannot be read"),
        ("no_manifest", "manifest.json"),
    ):
        assert any(f"{name} left out" in line and why in line for line in err.splitlines()), name
    assert {line["configuration"] for line in table(tmp_path / "out/coverage.csv")} == {"8×128", "16×128"}


def test_configurations_come_from_the_arguments(tmp_path):
    """What else differs at one N and T is in the label; names of directories say nothing."""
    plant(tmp_path / "gamma", 8, 128, gamma=0.9)
    plant(tmp_path / "wrong_name__n99_t1", 8, 128)
    plant(tmp_path / "other", 16, 128)
    plant(tmp_path / "budget", 16, 128, total_timesteps=4096)
    labels = [run.label for run in umap_coverage.load_runs(tmp_path)["Breakout-v5"]]
    assert labels == [
        "8×128 γ 0.9 budget 2048",
        "8×128 γ 0.99 budget 2048",
        "16×128 γ 0.99 budget 2048",
        "16×128 γ 0.99 budget 4096",
    ]


def test_rows_are_equal_and_spread_over_the_run(tmp_path, capsys, plane):
    plant(tmp_path / "long", 8, 128, rows=300)
    plant(tmp_path / "short", 128, 8, rows=60)
    draw(tmp_path, tmp_path / "out", "--umap-seeds", 1)
    assert {line["rows"] for line in table(tmp_path / "out/coverage.csv")} == {"60"}
    assert "60 to 300 rows: 60 of each at most" in capsys.readouterr().err
    draw(tmp_path, tmp_path / "out", "--umap-seeds", 1, "--rows", 100)
    assert {line["rows"] for line in table(tmp_path / "out/coverage.csv")} == {"50"}


def test_one_embedding_and_one_box(tmp_path, plane):
    """The run in one room covers a corner of the box that the other one sets; alone it would fill its own."""
    plant(tmp_path / "runs/few", 8, 128, rooms=1)
    plant(tmp_path / "runs/many", 128, 8, rooms=24)

    def cvg(root, num_envs):
        draw(root, tmp_path / "out", "--umap-seeds", 1, "--grids", 8)
        lines = [line for line in table(tmp_path / "out/coverage.csv") if line["measure"] == "umap_cvg"]
        return next(float(line["value"]) for line in lines if line["num_envs"] == str(num_envs))

    joint = cvg(tmp_path / "runs", 8)
    assert joint < 0.3 * cvg(tmp_path / "runs", 128)
    shutil.rmtree(tmp_path / "runs/many")
    assert cvg(tmp_path / "runs", 8) > 3 * joint


# ---- claims ----------------------------------------------------------------------------------------------------------
def verdicts(root, out, monkeypatch):
    """The claims of a command, by its table; its figures are of other tests."""
    monkeypatch.setattr(umap_coverage, "draw", lambda *_: None)
    draw(root, out, "--umap-seeds", 2)
    return {line["claim"]: line for line in table(out / "coverage_claims.csv") if "umap_cvg" in line["quantity"]}


FIRST, SECOND = "(128, 8) covers more than (8, 128)", "coverage rises with N = 8 32 128 at T = 128, per doubling"


@pytest.mark.parametrize(
    "rooms, first, second",
    [
        ((3, 14, 7, 22), "supported", "supported"),
        ((22, 3, 10, 3), "contradicted", "contradicted"),
        ((9, 9, 9, 9), "undecided", "undecided"),
    ],
)
def test_planted_claims(rooms, first, second, tmp_path, plane, capsys, monkeypatch):
    """Rooms seen by (8, 128), (128, 8), (32, 128), (128, 128)."""
    n_by_ts = [(8, 128), (128, 8), (32, 128), (128, 128)]
    plant_grid(tmp_path / "a", dict(zip(n_by_ts, rooms)), seeds=range(1, 11), rows=50)
    found = verdicts(tmp_path, tmp_path / "out", monkeypatch)
    assert (found[FIRST]["verdict"], found[SECOND]["verdict"]) == (first, second)
    for claim in found.values():
        assert float(claim["low"]) <= float(claim["value"]) <= float(claim["high"]) and claim["seeds"] == "10"
    assert f"| {first}\n" in capsys.readouterr().out


def test_fewer_than_three_seeds_decide_nothing(tmp_path, plane, monkeypatch):
    plant_grid(tmp_path / "runs", {(8, 128): 2, (128, 8): 24}, seeds=(1, 2))
    claim = verdicts(tmp_path / "runs", tmp_path / "out", monkeypatch)[FIRST]
    assert claim["verdict"] == "" and claim["low"] == "nan" and float(claim["value"]) > 0


def test_the_slope_is_that_per_doubling_of_n():
    samples = [[np.full(3, 0.1 * k)] * 2 for k in range(4)]
    assert umap_coverage.slope_against_log2([8, 16, 32, 64])(*samples) == pytest.approx(0.1)


def test_claims_have_welchs_interval():
    values = {(8, 128): np.array([0.2, 0.3, 0.5]), (128, 8): np.array([0.4, 0.5, 0.6])}
    lines = [
        {
            "env_id": "Pong-v5",
            "num_envs": N,
            "num_steps": T,
            "variant": "",
            "seed": seed,
            "value": value,
            "measure": name,
        }
        for name in umap_coverage.MEASURES
        for (N, T), of_seeds in values.items()
        for seed, value in enumerate(of_seeds)
    ]
    table = pd.DataFrame(lines).assign(grid=16, umap_seed=0, last_step=100)
    claim, *_ = umap_coverage.find_claims(umap_coverage.scores_of(table, 16), 16)
    expected = stats.ttest_ind(values[128, 8], values[8, 128], equal_var=False).confidence_interval()
    assert claim.estimate == pytest.approx((1 / 6, *expected), abs=2e-3)


def test_baseline_and_grids_are_in_the_table(tmp_path, plane, capsys):
    plant_grid(tmp_path / "runs", {(8, 128): 3, (16, 128): 6})
    draw(tmp_path / "runs", tmp_path / "out", "--grids", 8, 16, "--umap-seeds", 2, "--seed", 5)
    lines = [line for line in table(tmp_path / "out/coverage.csv") if line["measure"] == "umap_cvg"]
    keys = {(line["configuration"], line["seed"], line["grid"], line["umap_seed"]) for line in lines}
    assert len(keys) == len(lines) == 2 * 3 * 2 * 2 and {line["umap_seed"] for line in lines} == {"5", "6"}
    for line in lines:
        cells = int(line["grid"]) ** 2
        assert float(line["uniform"]) == pytest.approx(1 - (1 - 1 / cells) ** int(line["rows"]))
        assert 1 / cells <= float(line["value"]) <= int(line["rows"]) / cells
    assert {line["measure"] for line in table(tmp_path / "out/coverage.csv")} == {
        "umap_cvg",
        "pca_cvg",
        "distinct",
        "neighbor_distance",
    }
    assert "0.297" in capsys.readouterr().out  # 1 - (1 - 1/256)^90


# ---- figures ---------------------------------------------------------------------------------------------------------
def check_image(path):
    image = matplotlib.image.imread(path)[..., :3]
    assert image.shape[1] == pytest.approx(6.75 * 300, abs=2) and (image.min(-1) < 0.9).mean() > 0.002
    assert (image.max(-1) - image.min(-1)).max() > 0.5, "no colour"
    assert path.with_suffix(".pdf").read_bytes().startswith(b"%PDF")


def test_files_of_several_games(tmp_path, plane):
    plant_grid(tmp_path / "runs", {(8, 128): 3, (128, 8): 6}, seeds=(1,))
    for game in ("Pong-v5", "Qbert-v5", "Alien-v5", "Amidar-v5"):
        plant(tmp_path / "runs" / game, 8, 128, env_id=game)
    draw(tmp_path / "runs", tmp_path / "out", "--umap-seeds", 1)
    names = {path.stem for path in (tmp_path / "out").glob("*.png")}
    assert names == {"coverage"} | {f"coverage_{game}-v5" for game in ("Breakout", "Pong", "Qbert", "Alien", "Amidar")}
    check_image(tmp_path / "out/coverage.png")


def test_constant_frames_and_observations(tmp_path, plane):
    """One picture all the time covers one cell; runs of ppo_isaacgym.py have observations."""
    arrays = {"frame": np.full((90, 84, 84), 9, np.uint8), "value": np.zeros(90, np.float32)}
    plant(tmp_path / "a/1", 8, 128, arrays=arrays)
    draw(tmp_path / "a", tmp_path / "out", "--umap-seeds", 1, "--grids", 16)
    values = {line["measure"]: float(line["value"]) for line in table(tmp_path / "out/coverage.csv")}
    assert values["umap_cvg"] == values["pca_cvg"] == 1 / 256 and values["distinct"] == 1 / 90
    path = plant(tmp_path / "b/1", 256, 16, env_id="Mjlab-Cartpole-Balance") / "coverage.npz"
    arrays = dict(np.load(path))
    arrays["obs"] = RNG.normal(size=(90, 5)).astype(np.float32)
    del arrays["frame"]
    np.savez(path, **arrays)
    draw(tmp_path / "b", tmp_path / "out", "--umap-seeds", 1)
    check_image(tmp_path / "out/coverage.png")


def test_umap_finds_the_rooms_and_repeats_itself(tmp_path):
    """The real UMAP: twice the rooms, more cells; the same numbers from the same seed, others from another."""
    plant_grid(tmp_path / "runs", {(8, 128): 4, (128, 8): 8}, rows=60)
    draw(tmp_path / "runs", tmp_path / "out", "--umap-seeds", 2)
    claim = table(tmp_path / "out/coverage_claims.csv")[0]
    assert claim["claim"] == FIRST and "umap_cvg" in claim["quantity"] and float(claim["low"]) > 0
    draw(tmp_path / "runs", tmp_path / "again", "--umap-seeds", 2)
    one = (tmp_path / "out/coverage.csv").read_text()
    assert one == (tmp_path / "again/coverage.csv").read_text()
    values = {
        seed: [line["value"] for line in table(tmp_path / "out/coverage.csv") if line["umap_seed"] == seed]
        for seed in "01"
    }
    assert values["0"] != values["1"]
    check_image(tmp_path / "out/coverage.png")


def test_from_real_runs_to_the_figure(tmp_path, capsys):
    """Two runs of a training script, and the real UMAP on the features of their networks."""
    for name, n_by_t in (("a", (2, 64)), ("b", (4, 32))):
        words = f"--run-name runs/{name} --num-envs {n_by_t[0]} --num-steps {n_by_t[1]} --total-timesteps 256".split()
        run("ppo_atari_envpool.py", tmp_path, *words, "--no-diagnostics")
    draw(tmp_path / "runs", tmp_path / "figures", "--umap-seeds", 1, "--input", "features")
    out, err = capsys.readouterr()
    assert "compares encoders" in err and "(4, 32) covers more than (2, 64)" in out
    assert "no verdict: needs 10 seeds" in out
    lines = table(tmp_path / "figures/coverage.csv")
    assert {(line["configuration"], line["env_id"], line["input"]) for line in lines} == {
        ("2×64", "Breakout-v5", "features"),
        ("4×32", "Breakout-v5", "features"),
    }
    check_image(tmp_path / "figures/coverage.png")


@pytest.mark.parametrize(
    "words, said",
    [
        (["--grids", "1"], "--grids 1"),
        ([], "no run"),
        (["--out", "/dev/null/x"], "/dev/null/x"),
        (["--runs", "nowhere"], "nowhere"),
    ],
)
def test_bad_input_is_one_line(words, said, tmp_path, capsys):
    line = refused(capsys, "--runs", tmp_path, "--out", tmp_path / "out", *words)
    assert line.startswith("error: ") and said in line


def test_runs_that_do_not_compare(tmp_path, capsys, plane):
    plant(tmp_path / "a", 8, 128)
    plant(tmp_path / "b", 16, 128, arrays={"frame": np.zeros((90, 64, 64, 3), np.uint8)})
    assert "differ in shape" in refused(capsys, "--runs", tmp_path, "--out", tmp_path / "out")
    plant(tmp_path / "few/a", 8, 128, rows=1)
    assert "too few" in refused(capsys, "--runs", tmp_path / "few", "--out", tmp_path / "out")
