"""scripts/figures.py on runs with known answers: rliable is the reference for aggregates, plants for verdicts."""

import json
import os
import subprocess
import sys
import warnings

import conftest
import numpy as np
import pandas as pd
import pytest
from conftest import ROOT
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

sys.path.insert(0, str(ROOT / "scripts"))
import figures
from rliable import library as rly
from rliable import metrics as rliable_metrics

RANDOM, HUMAN = figures.human_scores()["Breakout"]
GAMES = ["Breakout", "Qbert", "Pong"]
POINTS = 8


def write_events(path, rows):
    """An event file as the training scripts write it; rows: [(step, {tag: value}), …]."""
    with open(path, "wb") as file:
        writer = RecordWriter(file)
        for step, scalars in rows:
            summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()])
            writer.write(Event(wall_time=step, step=step, summary=summary).SerializeToString())


def write_run(
    path,
    score,
    steps=1000,
    script="ppo_atari_envpool",
    game="Breakout",
    seed=1,
    scalars=None,
    points=POINTS,
    last=None,
    done=True,
    **args,
):
    """A run whose human-normalised score rises to `score` at the last point; scalars: {tag: value at every point}."""
    path.mkdir(parents=True)
    suffix = "-v5" if game in figures.human_scores() else ""
    arguments = {
        "env_id": game + suffix,
        "seed": seed,
        "num_envs": 8,
        "num_steps": 16,
        "total_timesteps": steps,
        **args,
    }
    (path / "manifest.json").write_text(json.dumps({"arguments": arguments, "command": f"python {script}.py --x"}))
    zero, one = figures.human_scores().get(game, (0, 1))
    batch = arguments["num_envs"] * arguments["num_steps"]
    rows = []
    for i in range(1, (last or points) + 1):
        values = {
            "charts/episodic_return": zero + (one - zero) * score * (i / points) ** 0.5,
            "charts/SPS": 100.0,
            "charts/gradient_steps": steps * i / points / batch * 16,
        }
        rows.append((steps * i // points, {**values, **(scalars or {})}))
    write_events(path / "events.out.tfevents.1700000000.host.1.0", rows)
    if done:
        (path / "done.json").write_text(json.dumps({"global_step": steps, "episodic_return": 0.0}))
    return path


def plant(root, shapes, score, seeds=5, games=GAMES, noise=0.05, scalars=lambda shape, noise: {}, **args):
    """Runs of every game, shape and seed with score(shape) and noise of a fixed seed, in directories of no meaning."""
    rng, n = np.random.RandomState(0), 0
    for game in games:
        for N, T in shapes:
            for seed in range(1, seeds + 1):
                n += 1
                write_run(
                    root / f"x{n}",
                    score((N, T)) + rng.normal(0, noise),
                    game=game,
                    seed=seed,
                    num_envs=N,
                    num_steps=T,
                    scalars=scalars((N, T), rng.normal(0, 1)),
                    **args,
                )
    return root


def draw(sweep, runs, out, *extra):
    """The claims, by text, of the command in this process."""
    figures.main([sweep, "--runs", str(runs), "--out", str(out), "--reps", "200", *map(str, extra)])
    table = pd.read_csv(out / f"{sweep}_claims.csv")
    return table.set_index("claim").fillna({"no_ci": ""})


def claim(table, text):
    found = [index for index in table.index if text in index]
    assert len(found) == 1, (text, list(table.index))
    return table.loc[found[0]]


# ---- statistics ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seeds, games", [(5, 10), (3, 1), (7, 3), (1, 4)])
def test_the_aggregates_are_rliables(seeds, games):
    x, y = np.random.RandomState(seeds).lognormal(size=(2, seeds, games))
    sample, other = list(x.T), list(y.T)
    assert figures.iqm(sample) == pytest.approx(rliable_metrics.aggregate_iqm(x), abs=1e-12)
    assert figures.median(sample) == pytest.approx(rliable_metrics.aggregate_median(x), abs=1e-12)
    assert figures.optimality_gap(sample) == pytest.approx(rliable_metrics.aggregate_optimality_gap(x), abs=1e-12)
    expected = rliable_metrics.probability_of_improvement(x, y)
    assert figures.improvement(sample, other) == pytest.approx(expected, abs=1e-12)


def test_the_intervals_are_rliables_and_the_ragged_bootstrap_agrees_with_them():
    x = np.random.RandomState(0).lognormal(size=(5, 10))

    def row(sample):
        return np.array([figures.iqm(sample)])

    value, low, high = figures.interval(row, [list(x.T)], reps=4000, seed=3)
    np.random.seed(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        points, bounds = rly.get_interval_estimates(
            {"": x}, lambda x: np.array([rliable_metrics.aggregate_iqm(x)]), reps=4000
        )
    assert [*value, *low, *high] == pytest.approx([*points[""], *bounds[""][0], *bounds[""][1]], abs=1e-12)
    ragged = np.percentile(figures.resampled(figures.iqm, [list(x.T)], 4000, 5), [2.5, 97.5])
    assert ragged == pytest.approx(bounds[""][:, 0], abs=0.08 * (high - low)[0])


def test_every_game_has_the_same_weight_however_many_seeds_it_has():
    games = list(np.random.RandomState(1).normal(size=(4, 4)))
    twice = [np.repeat(games[0], 2), *games[1:]]
    assert figures.iqm(twice) == pytest.approx(figures.iqm(games), abs=1e-12)
    assert figures.mean(twice) == pytest.approx(figures.mean(games), abs=1e-12)
    assert figures.optimality_gap(twice) == pytest.approx(figures.optimality_gap(games), abs=1e-12)


@pytest.mark.parametrize(
    "counts, carries",
    [
        ((5, 5), True),
        ((3,), True),
        ((2,), False),
        ((1,) * 10, False),
        ((2, 4), True),
        ((1, 9), False),
        ((2, 2, 2), False),
    ],
)
def test_no_interval_that_the_data_cannot_carry(counts, carries):
    sample = [np.arange(count) * 1.0 for count in counts]
    value, low, high = figures.interval(lambda sample: np.array([figures.iqm(sample)]), [sample], 100)
    assert np.isfinite(value).all() and np.isfinite([low, high]).all() == carries


def test_kendall_of_planted_and_null_relations():
    rng = np.random.RandomState(0)
    levels, batches = [8, 16, 32, 8, 8], [1, 2, 4, 2, 4]
    up = [[rng.normal(level, 0.1, 5) for level in levels] for _ in range(4)]
    assert figures.kendall(levels, up) == (1.0, 1.0, 1.0)
    value, low, high = figures.kendall(levels, [[-x for x in group] for group in up])
    assert (value, low, high) == (-1.0, -1.0, -1.0)
    value, low, high = figures.kendall(levels, [[rng.normal(0, 1, 5) for _ in levels] for _ in range(4)])
    assert low < 0 < high and low < value < high
    # what follows the batch alone correlates with N, but not at a fixed batch
    batch = [[rng.normal(0, 0.1, 5) + b for b in batches] for _ in range(4)]
    assert figures.kendall(levels, batch)[1] > 0.3
    value, low, high = figures.kendall(levels, batch, batches)
    assert low < 0 < high
    assert figures.kendall(levels, [[np.full(5, 2.0)] * 5]) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    "low, high, side, margin, word",
    [
        (0.1, 0.3, "more", 0, "supported"),
        (-0.3, -0.1, "more", 0, "not supported"),
        (-0.1, 0.3, "more", 0, "undecided"),
        (-0.3, -0.1, "less", 0, "supported"),
        (0.1, 0.3, "less", 0, "not supported"),
        (-0.1, 0.1, "less", 0, "undecided"),
        (-0.05, 0.08, "little", 0.1, "supported"),
        (0.15, 0.2, "little", 0.1, "not supported"),
        (-0.2, -0.15, "little", 0.1, "not supported"),
        (0.05, 0.2, "little", 0.1, "undecided"),
        (-0.05, 0.5, "not less", 0.1, "supported"),
        (-0.5, -0.2, "not less", 0.1, "not supported"),
        (-0.2, 0.5, "not less", 0.1, "undecided"),
        (0.0, 0.0, "more", 0, "undecided"),
        (np.nan, np.nan, "more", 0, "undecided"),
        (np.nan, np.nan, "little", 0.1, "undecided"),
    ],
)
def test_verdicts(low, high, side, margin, word):
    assert figures.verdict(low, high, side, margin) == word


def test_the_regression_estimate_of_57_games():
    for weights in (figures.ATARI_10, figures.ATARI_5):  # human everywhere: 101^(sum of the weights) - 1
        estimate = figures.median_57([np.ones(3)] * len(weights), list(weights), weights)
        assert estimate == pytest.approx(101 ** sum(weights.values()) - 1)
    assert figures.median_57([np.full(3, -1.0)] * 5, list(figures.ATARI_5), figures.ATARI_5) == 0


# ---- reading ---------------------------------------------------------------------------------------------------------
def test_reads_what_tensorboard_reads(tmp_path):
    torch_writer = pytest.importorskip("torch.utils.tensorboard")
    from tensorboard.compat.proto.tensor_pb2 import TensorProto

    with torch_writer.SummaryWriter(tmp_path) as writer:
        for step in range(5):
            writer.add_scalar("a", step * 0.5, step)
            writer.add_scalar("b", -step, step, new_style=True)
            writer.add_histogram("c", np.arange(3.0), step)
    tensor = Summary.Value(tag="d", tensor=TensorProto(dtype=1, tensor_content=np.float32(7).tobytes()))
    path = next(tmp_path.glob("events*"))
    with open(path, "ab") as file:
        RecordWriter(file).write(Event(step=9, summary=Summary(value=[tensor])).SerializeToString())
    curves = figures.read_events([path])
    assert list(zip(*map(list, curves["a"]))) == conftest.curves(tmp_path)["a"] and len(curves["a"][0]) == 5
    assert [list(column) for column in curves["b"]] == [[0, 1, 2, 3, 4], [0, -1, -2, -3, -4]]  # a tensor
    assert set(curves) == set("abd") and curves["d"][1] == [7]


def test_several_files_torn_tails_and_order(tmp_path):
    one, two = tmp_path / "events.out.tfevents.1", tmp_path / "events.out.tfevents.2"
    write_events(one, [(1, {"x": 1.0}), (3, {"x": 3.0}), (2, {"x": 2.0}), (4, {"x": 4.0})])
    write_events(two, [(4, {"x": 40.0}), (5, {"x": 5.0}), (6, {"x": 6.0})])
    two.write_bytes(two.read_bytes()[:-9])
    steps, values = figures.read_events([one, two])["x"]
    assert steps.tolist() == [1, 2, 3, 4, 5] and values.tolist() == [1, 2, 3, 40, 5]
    two.write_bytes(b"not an event file at all, but long enough")
    assert figures.read_events([one, two])["x"][0].tolist() == [1, 2, 3, 4]


def test_the_cache_answers_until_an_event_file_changes(tmp_path, monkeypatch):
    runs = plant(tmp_path / "runs", [(8, 16)], lambda shape: 1.0, seeds=2, games=["Pong"])

    def read():
        cache = figures.Cache([runs / "cache.npz"])
        found, _ = figures.read_runs(runs, cache)
        cache.save()
        return {run.name: run.curves for run in found}

    def refuse(paths):
        raise AssertionError(f"read again: {paths}")

    first, reader = read(), figures.read_events
    monkeypatch.setattr(figures, "read_events", refuse)
    second = read()
    assert first.keys() == second.keys() == {"x1", "x2"}
    for name, curves in first.items():
        assert curves.keys() == second[name].keys()
        assert all((np.array(curves[tag]) == np.array(second[name][tag])).all() for tag in curves)
    monkeypatch.setattr(figures, "read_events", reader)
    write_events(runs / "x1" / "events.out.tfevents.1800000000", [(2000, {"new": 1.0})])
    assert "new" in read()["x1"]
    (runs / "cache.npz").write_bytes(b"PK\x03\x04 broken")
    assert "new" in read()["x1"]
    figures.Cache([runs / "cache.npz"])
    assert json.loads(str(np.load(runs / "cache.npz")["index"]))


def test_links_nesting_partial_manifests_and_what_is_no_run(tmp_path):
    runs = tmp_path / "runs"
    write_run(tmp_path / "elsewhere" / "a", 1.0)
    write_run(runs / "deep" / "er" / "b", 1.0, seed=2)
    (runs / "sweep").mkdir()
    (runs / "sweep" / "link").symlink_to(os.path.relpath(tmp_path / "elsewhere" / "a", runs / "sweep"))
    (runs / "sweep" / "again").symlink_to(runs / "sweep" / "link")
    (runs / "loop").symlink_to(runs)
    (runs / ".launch").mkdir()
    (runs / "empty").mkdir()
    (runs / "partial").mkdir()
    (runs / "partial" / "manifest.json").write_text('{"arguments": {"seed": 3, "env_id": "Pong-v5"}}')
    (runs / "broken").mkdir()
    (runs / "broken" / "manifest.json").write_text("{")
    (runs / "odd").mkdir()
    (runs / "odd" / "manifest.json").write_text('{"arguments": {"num_envs": "many"}}')
    found, bad = figures.read_runs(runs, figures.Cache([]))
    assert sorted((run.game, run.args["seed"]) for run in found if run.curves) == [("Breakout", 1), ("Breakout", 2)]
    partial = next(run for run in found if run.name == "partial")
    assert (partial.args["num_envs"], partial.args["num_steps"], partial.args["minibatch_size"]) == (8, 128, 256)
    assert len(bad) == 1 and bad[0].startswith("odd: ")


def test_hours_count_only_the_time_that_the_run_ran():
    steps = np.array([100, 200, 300])
    curves = {"charts/SPS": (steps, np.array([1.0, 2.0, 4.0])), "charts/gradient_steps": (steps, np.array([5, 10, 15]))}
    run = figures.Run("", "", "", {}, curves, {}, False)
    assert run.x(np.array([100, 150, 300]), "hours") * 3600 == pytest.approx([100, 125, 175])
    assert run.x(np.array([50, 300]), "gradient_steps") == pytest.approx([2.5, 15])
    run = figures.Run(
        "", "", "", {"num_envs": 2, "num_steps": 5, "update_epochs": 3, "num_minibatches": 4}, {}, {}, False
    )
    assert run.x(np.array([100]), "gradient_steps") == [120]


# ---- which configurations there are ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "shapes, expected",
    [
        ([(8, 128), (128, 8)], (8, 128)),
        ([(4, 256), (8, 128), (16, 64), (128, 8), (256, 4)], (8, 128)),
        ([(8, 128), (16, 128), (8, 256)], (8, 128)),
        ([(1, 128), (2, 128), (8, 128), (1024, 128)], (8, 128)),
        ([(2, 32), (4, 16)], (2, 32)),
        ([(4, 32), (8, 16)], (4, 32)),
        ([(2, 32), (4, 32), (2, 64)], (2, 32)),
        ([(32, 16), (64, 16), (16, 32)], (32, 16)),
    ],
)
def test_the_base(tmp_path, shapes, expected):
    for i, (N, T) in enumerate(shapes):
        write_run(tmp_path / str(i), 1.0, num_envs=N, num_steps=T, points=1)
    runs, _ = figures.read_runs(tmp_path, figures.Cache([]))
    suite = figures.Suite("fixed_budget", "ppo_atari_envpool", runs)
    assert (suite.base["num_envs"], suite.base["num_steps"]) == expected
    suite = figures.Suite("fixed_budget", "ppo_atari_envpool", runs, base=shapes[-1])
    assert (suite.base["num_envs"], suite.base["num_steps"]) == shapes[-1]


def test_configurations_are_what_differs_within_a_game(tmp_path):
    for game, rate in (("Breakout", 1e-4), ("Pong", 2e-4)):  # differs by game: no configuration
        for epochs in (4, 8):
            write_run(
                tmp_path / f"{game}{epochs}",
                1.0,
                game=game,
                learning_rate=rate,
                update_epochs=epochs,
                num_logs=epochs,
                run_name=f"{epochs}",
                num_minibatches=4,
            )
    runs, _ = figures.read_runs(tmp_path, figures.Cache([]))
    suite = figures.Suite("data_reuse", "ppo_atari_envpool", runs)
    assert suite.names == ["num_envs", "num_steps", "update_epochs"] and len(suite.configs) == 2
    assert suite.base["update_epochs"] == 4


# ---- verdicts of whole sweeps ----------------------------------------------------------------------------------------
def test_a_planted_effect_is_found_and_a_null_is_undecided(tmp_path):
    shapes = [(8, 16), (32, 4)]

    def scalars(shape, noise):
        return {
            "diagnostics/feature_rank": shape[0] + noise,
            "probe/feature_rank": 50 + noise,
            "diagnostics/weight_norm": shape[0] + noise,
        }

    plant(tmp_path / "better", shapes, lambda shape: 1.0 + 0.3 * (shape[0] > 8), scalars=scalars)
    table = draw("fixed_budget", tmp_path / "better", tmp_path / "1")
    better = claim(table, "32×4 beats 8×16")
    assert better.verdict == "supported" and better.ci_low > 0.2 and better.value == pytest.approx(0.3, abs=0.05)
    assert better.p_improvement > 0.9 and better.budget == 1000
    assert claim(table, "feature rank rises with N (native").verdict == "supported"
    assert claim(table, "feature rank rises with N (probe").verdict == "undecided"
    assert claim(table, "weight norm falls with N (native").verdict == "not supported"

    plant(tmp_path / "worse", shapes, lambda shape: 1.0 - 0.3 * (shape[0] > 8))
    assert claim(draw("fixed_budget", tmp_path / "worse", tmp_path / "2"), "beats").verdict == "not supported"
    plant(tmp_path / "same", shapes, lambda shape: 1.0, noise=0.2)
    same = claim(draw("fixed_budget", tmp_path / "same", tmp_path / "3"), "beats")
    assert same.verdict == "undecided" and same.ci_low < 0 < same.ci_high


def test_the_claims_of_the_other_sweeps_find_what_is_planted(tmp_path):
    shapes = [(8, 16), (16, 16), (8, 32)]
    plant(
        tmp_path / "s",
        shapes,
        lambda shape: {16: 1.6, 8: 1.0}[shape[0]] + (shape[1] == 32) * 0.2,
        games=GAMES[:1],
        scalars=lambda shape, noise: {"diagnostics/feature_rank": shape[0] * shape[1] + noise},
    )
    table = draw("scaling_data", tmp_path / "s", tmp_path / "out")
    for text in ("N-scaling beats T-scaling", "N-scaling beats the base", "T-scaling beats the base"):
        assert claim(table, text).verdict == "supported"
    text = (tmp_path / "out" / "scaling_data.txt").read_text()
    rank = next(line for line in text.split("\n") if line.startswith("diagnostics/feature_rank"))
    assert rank.split("  ")[1:] and "+1.00 [1, 1]" in rank  # with N and with T alike: the batch is what it follows

    for seed in range(1, 6):
        noise = seed * 0.002
        for N, shared, score in ((8, True, 1.0), (8, False, 0.5), (16, True, 1.2), (16, False, 1.4)):
            write_run(
                tmp_path / "d" / f"{N}{shared}{seed}", score + noise, num_envs=N, seed=seed, shared_encoder=shared
            )
        for rate, score in ((1e-4, 1.02), (2.5e-4, 1.0), (1e-3, 0.6)):
            write_run(tmp_path / "l" / f"{rate}{seed}", score + noise, seed=seed, num_envs=16, learning_rate=rate)
        for N, epochs, score in ((8, 4, 1.0), (8, 8, 0.7), (16, 4, 1.2), (16, 8, 1.1)):
            write_run(tmp_path / "r" / f"{N}{epochs}{seed}", score + noise, seed=seed, num_envs=N, update_epochs=epochs)
    table = draw("decoupled", tmp_path / "d", tmp_path / "out")
    assert claim(table, "collapse at the base").verdict == "supported"
    assert claim(table, "recover at N × 2").verdict == "supported"
    assert claim(table, "gain more").value == pytest.approx(0.7, abs=0.01)
    table = draw("learning_rate", tmp_path / "l", tmp_path / "out")
    assert claim(table, "lr 1e-4 changes little").verdict == "supported"
    assert claim(table, "lr 1e-3 changes little").verdict == "not supported"
    table = draw("data_reuse", tmp_path / "r", tmp_path / "out")
    assert claim(table, "8 epochs cost performance").verdict == "supported"
    assert claim(table, "doubling N undoes the loss").verdict == "supported"


# ---- what is missing -------------------------------------------------------------------------------------------------
def test_unequal_seeds_nan_divergence_short_curves_and_a_missing_game(tmp_path, capsys):
    runs = plant(tmp_path / "runs", [(8, 16), (32, 4)], lambda shape: 1.0 + 0.5 * (shape[0] > 8), games=GAMES)
    byname = {
        (m["env_id"][:-3], m["num_envs"], m["seed"]): path
        for path in runs.iterdir()
        for m in [json.loads((path / "manifest.json").read_text())["arguments"]]
    }

    def events(key):
        return next(byname[key].glob("events*"))

    for file in byname["Breakout", 8, 5].iterdir():  # a seed that was never run
        file.unlink()
    write_events(
        events(("Breakout", 8, 4)),
        [
            (500, {"charts/episodic_return": 9.0}),  # a run that is not finite
            (1000, {"charts/episodic_return": float("nan")}),
        ],
    )
    write_events(events(("Qbert", 32, 1)), [(250, {"charts/episodic_return": 9e6})])  # a curve shorter than the rest
    (byname["Qbert", 32, 1] / "done.json").unlink()
    (byname["Qbert", 32, 2] / "done.json").unlink()  # this one's curve is whole: it counts
    (byname["Qbert", 32, 3] / "done.json").unlink()
    (byname["Qbert", 32, 3] / "failed.json").write_text('{"tensor": "logits", "global_step": 640}')
    for seed in range(1, 6):  # a game that a configuration lacks
        (byname["Pong", 32, seed] / "manifest.json").unlink()
    table = draw("fixed_budget", runs, tmp_path / "out")
    text = capsys.readouterr().out
    beats = claim(table, "beats")
    assert beats.verdict == "supported" and beats.value == pytest.approx(0.5, abs=0.06) and np.isfinite(beats.ci_low)
    for words in (
        "missing of 8×16: Breakout seed 5",
        "(8×16, Breakout, seed 4): ends at step 500 of 1,000: its returns are not finite",
        "(32×4, Qbert, seed 1): ends at step 250 of 896: unfinished",
        "(32×4, Qbert, seed 3): diverged at step 640",
        "no final score there: Pong",
        "on ragged lists",
    ):
        assert words in text, words
    assert "Qbert, seed 2" not in text
    drawn = pd.read_csv(tmp_path / "out" / "fixed_budget.csv")
    curve = drawn[(drawn.metric == "IQM") & (drawn.num_envs == 32)]
    assert curve.step.max() == 1000 and np.isfinite(curve.value).all()
    finals = drawn[drawn.metric == "final score"]
    assert len(finals) == 30 - 5 - 1 - 1 - 2  # Pong at 32 x 4, never run, not finite, short and diverged
    assert "Pong" in set(finals.game)


def test_one_seed_gets_no_interval_and_no_verdict(tmp_path, capsys):
    plant(tmp_path / "runs", [(8, 16), (32, 4)], lambda shape: float(shape[0]), seeds=1)
    table = draw("fixed_budget", tmp_path / "runs", tmp_path / "out")
    assert set(table.verdict) <= {"undecided"} and claim(table, "beats").no_ci == "1 seed"
    assert "no CI: 1 seed" in capsys.readouterr().out
    drawn = pd.read_csv(tmp_path / "out" / "fixed_budget.csv")
    assert drawn.ci_low.isna().all() and not drawn[drawn.metric == "IQM"].empty


def test_unfinished_sweeps_are_judged_where_all_runs_have_been(tmp_path, capsys):
    for i, last in enumerate((4, 6, 8)):
        write_run(tmp_path / "runs" / str(i), 1.0, seed=i, last=last, steps=800, total_timesteps=10**6, done=False)
    draw("fixed_budget", tmp_path / "runs", tmp_path / "out")
    assert "no run has reached its budget: everything is judged at step 400" in capsys.readouterr().out
    finals = pd.read_csv(tmp_path / "out" / "fixed_budget.csv").query("metric == 'final score'")
    assert finals.value.tolist() == pytest.approx([0.5**0.5] * 3, abs=1e-3)


@pytest.mark.parametrize("kind", figures.X_LABELS)
def test_runs_in_which_no_game_has_ended(tmp_path, capsys, kind):
    for i, N in enumerate((8, 16)):
        path = write_run(tmp_path / "runs" / str(i), 1.0, num_envs=N, scalars={"diagnostics/ess": 90.0})
        if N == 16:
            write_events(next(path.glob("events*")), [(step, {"diagnostics/ess": 95.0}) for step in (500, 1000)])
    draw("fixed_budget", tmp_path / "runs", tmp_path / "out", "--x", kind)
    assert "(16×16, Breakout, seed 1): no game has ended; no score" in capsys.readouterr().out
    draw("scaling_data", tmp_path / "runs", tmp_path / "out")
    policy = pd.read_csv(tmp_path / "out" / "scaling_data_policy.csv")
    assert set(policy[policy.num_envs == 16].metric) == {"diagnostics/ess"}


# ---- images ----------------------------------------------------------------------------------------------------------
GRIDS = {  # sweep: script, games, [(arguments that differ), …]
    "scaling_data": ("ppo_atari_envpool", ["Breakout"], [{}, {"num_envs": 16}, {"num_steps": 32}]),
    "coverage": ("ppo_atari_envpool", ["Breakout"], [{}, {"num_envs": 16}]),
    "data_reuse": ("ppo_atari_envpool", ["Breakout"], [{}]),  # only begun
    "decoupled": ("ppo_atari_envpool", ["Breakout"], [{}, {"num_envs": 16}]),
    "learning_rate": ("ppo_atari_envpool", ["Breakout"], [{}]),
    "gamma": ("ppo_atari_envpool", ["Breakout"], [{"gamma": g, "num_steps": t} for g in (0.9, 0.99) for t in (16, 32)]),
    "pqn": ("pqn_atari_envpool", ["Breakout"], [{}, {"num_envs": 16}]),
    "procgen": ("ppo_procgen", ["bigfish"], [{}, {"num_envs": 16}]),
    "isaacgym": ("ppo_isaacgym", ["Mjlab-Cartpole-Balance"], [{}, {"num_envs": 16}, {"num_envs": 4, "num_steps": 32}]),
    "hard_exploration": ("ppo_atari_envpool", ["Pitfall"], [{}, {"num_envs": 16}]),
    "rnd": ("ppo_rnd_envpool", ["Pitfall"], [{}, {"num_envs": 16}, {"num_steps": 32}]),
    "num_envs_trend": ("ppo_atari_envpool", ["Breakout"], [{"num_envs": N} for N in (4, 8, 16)]),
    "outer_loop": (
        "ppo_atari_envpool",
        ["Breakout"],
        [
            {"minibatch_size": 32},
            {"num_envs": 32, "minibatch_size": 32},
            {"num_envs": 32, "num_minibatches": 4},
            {"num_envs": 32, "num_minibatches": 4, "learning_rate": 5e-4},
        ],
    ),
    "step_size": (
        "ppo_atari_envpool",
        ["Breakout"],
        [{"clip_coef": c, "steps": s} for c in (0.1, 0.2, 0.4) for s in (1000, 500)],
    ),
}


def check_image(path):
    """A PNG that is not blank, of a column's or a page's width at 200 dpi, and its PDF with text that is text."""
    import matplotlib.image

    picture = matplotlib.image.imread(path)[..., :3]
    assert picture.shape[1] in (650, 1350) and 300 < picture.shape[0] < 3000
    assert 0.003 < (picture.min(-1) < 0.6).mean() < 0.5, path  # ink
    pdf = path.with_suffix(".pdf").read_bytes()
    assert pdf.startswith(b"%PDF") and b"/Type3" not in pdf
    table = pd.read_csv(path.with_suffix(".csv"))
    columns = "sweep script game num_envs num_steps seed metric value ci_low ci_high"
    assert set(columns.split()) <= set(table)


@pytest.fixture(scope="module")
def all_sweeps(tmp_path_factory):
    """Every sweep that is not drawn above, one seed a run, drawn by one command."""
    root = tmp_path_factory.mktemp("all")
    for sweep, (script, games, grid) in GRIDS.items():
        for i, args in enumerate(grid):
            for game in games:
                scalars = {
                    f"{place}/{name}": i + 1.0 for place in ("diagnostics", "probe") for name in figures.DIAGNOSTICS
                }
                write_run(
                    root / "runs" / sweep / f"{game}{i}",
                    1.0 + i / 5,
                    game=game,
                    script=script,
                    scalars={**scalars, "outer/ddr": 1000.0 * (i + 1)},
                    **args,
                )
    command = [
        sys.executable,
        str(ROOT / "scripts" / "figures.py"),
        "all",
        "--runs",
        str(root / "runs"),
        "--out",
        str(root / "out"),
        "--reps",
        "50",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, env=conftest.environment())
    assert done.returncode == 0, done.stdout + done.stderr
    return root / "out", done.stdout


@pytest.mark.parametrize("sweep", GRIDS)
def test_every_sweep_is_drawn(all_sweeps, sweep):
    out, text = all_sweeps
    images = sorted(path for path in out.glob(f"{sweep}*.png"))
    assert out / f"{sweep}.png" in images
    for path in images:
        check_image(path)
    assert f"== {sweep}: P" in text and (out / f"{sweep}.txt").read_text().startswith(f"== {sweep}")


def test_all_lists_what_has_no_runs(all_sweeps):
    assert "no runs of: fixed_budget\n" in all_sweeps[1]
    assert len(pd.read_csv(all_sweeps[0] / "all_claims.csv")) > 30


@pytest.mark.parametrize("kind", ["gradient_steps", "hours"])
def test_the_other_axes(tmp_path, kind):
    plant(tmp_path / "runs", [(8, 16), (16, 16)], lambda shape: 1.0, games=["Pong"], seeds=3)
    draw("fixed_budget", tmp_path / "runs", tmp_path / "out", "--x", kind)
    check_image(tmp_path / "out" / f"fixed_budget_{kind}.png")
    drawn = pd.read_csv(tmp_path / "out" / f"fixed_budget_{kind}.csv").query("metric == 'IQM'")
    ends = drawn.groupby("num_envs")[kind].max()
    assert ends[8] == pytest.approx({"gradient_steps": 1000 / 128 * 16, "hours": 1000 / 100 / 3600}[kind])


def test_the_base_is_black_and_the_families_differ(tmp_path):
    for i, (N, T) in enumerate([(8, 16), (16, 16), (32, 16), (8, 32)]):
        write_run(tmp_path / str(i), 1.0, num_envs=N, num_steps=T)
    runs, _ = figures.read_runs(tmp_path, figures.Cache([]))
    suite = figures.Suite("scaling_data", "ppo_atari_envpool", runs)
    style = {suite.shape(config): line for config, line in figures.styles(suite, suite.configs).items()}
    assert style["8×16"]["color"] == "black" and "base" in style["8×16"]["label"]
    assert len({line["color"] for line in style.values()}) == 4
    assert style["N×2"]["ls"] == style["N×4"]["ls"] != style["T×2"]["ls"]


# ---- bad input and a real run ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "words, says",
    [
        (["scaling"], "invalid choice"),
        (["gamma", "--runs", "nowhere"], "--runs nowhere"),
        (["gamma", "--runs", "."], "no manifest.json"),
        (["gamma", "--runs", ".", "--x", "epochs"], "--x"),
        (["gamma", "--runs", ".", "--base", "8"], "N x T"),
        (["gamma", "--runs", ".", "--reps", "0"], "--reps"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(tmp_path, monkeypatch, capsys, words, says):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        figures.main([*words, "--out", str(tmp_path / "out")])
    error = capsys.readouterr().err
    assert end.value.code == 2 and error.startswith("error: ") and error.count("\n") == 1 and says in error


def test_from_real_runs_to_a_figure(tmp_path):
    for N, T in (4, 32), (8, 16):
        conftest.run(
            "ppo_atari_envpool.py",
            tmp_path,
            "--num-envs",
            N,
            "--num-steps",
            T,
            "--total-timesteps",
            2048,
            "--run-name",
            f"sweep/{N}",
            "--env-id",
            "Breakout-v5",
            "--num-logs",
            4,
        )
    table = draw("fixed_budget", tmp_path / "sweep", tmp_path / "out")
    assert claim(table, "8×16 beats 4×32").verdict == "undecided"
    for name in ("fixed_budget", "fixed_budget_games", "fixed_budget_diagnostics"):
        check_image(tmp_path / "out" / f"{name}.png")
    drawn = pd.read_csv(tmp_path / "out" / "fixed_budget.csv").query("metric == 'final episodic_return'")
    for N in 4, 8:
        done = json.loads((tmp_path / "sweep" / str(N) / "done.json").read_text())
        assert drawn[drawn.num_envs == N].value.tolist() == [pytest.approx(done["episodic_return"], rel=1e-6)]
