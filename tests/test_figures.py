"""scripts/figures.py on runs with known answers: planted effects for verdicts, and every image that it draws."""

import json
import subprocess
import sys
from collections import defaultdict

import conftest
import numpy as np
import pandas as pd
import pytest
from conftest import ROOT
from planted_runs import (  # puts scripts/ on the path
    GAMES,
    claim,
    draw,
    plant,
    plant_pair,
    write_curves,
    write_events,
    write_run,
)

# isort: split
import figures
import launch
from analysis import drawing, experiment, sheets, training_runs
from analysis.suite import DIAGNOSTICS, Suite
from papers import scaling_data
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.summary.writer.record_writer import RecordWriter

from support import reading, tags


# ---- verdicts of whole sweeps ----------------------------------------------------------------------------------------
def test_a_planted_effect_is_found_and_a_null_is_undecided(tmp_path):
    n_by_ts = [(8, 16), (32, 4)]

    def scalars(n_by_t, noise):
        return {
            "diagnostics/feature_rank": n_by_t[0] + noise,
            "probe/feature_rank": 50 + noise,
            "diagnostics/weight_norm": n_by_t[0] + noise,
        }

    plant(tmp_path / "better", n_by_ts, lambda n_by_t: 1.0 + 0.3 * (n_by_t[0] > 8), scalars=scalars)
    table = draw("fixed_budget", tmp_path / "better", tmp_path / "1")
    better = claim(table, "32×4 beats 8×16")
    assert better.verdict == "supported" and better.ci_low > 0.2 and better.value == pytest.approx(0.3, abs=0.05)
    assert better.p_improvement > 0.9 and better.budget == 1024
    assert claim(table, "feature rank rises with N (full").verdict == "supported"
    assert claim(table, "feature rank rises with N (probe").verdict == "undecided"
    assert claim(table, "weight norm falls with N (full").verdict == "contradicted"

    plant(tmp_path / "worse", n_by_ts, lambda n_by_t: 1.0 - 0.3 * (n_by_t[0] > 8))
    assert claim(draw("fixed_budget", tmp_path / "worse", tmp_path / "2"), "beats").verdict == "contradicted"
    plant(tmp_path / "same", n_by_ts, lambda n_by_t: 1.0, noise=0.2)
    same = claim(draw("fixed_budget", tmp_path / "same", tmp_path / "3"), "beats")
    assert same.verdict == "undecided" and same.ci_low < 0 < same.ci_high


def test_the_claims_of_the_other_sweeps_find_what_is_planted(tmp_path):
    n_by_ts = [(8, 16), (16, 16), (8, 32)]
    plant(
        tmp_path / "s",
        n_by_ts,
        lambda n_by_t: {16: 1.6, 8: 1.0}[n_by_t[0]] + (n_by_t[1] == 32) * 0.2,
        games=GAMES[:1],
        scalars=lambda n_by_t, noise: {"diagnostics/feature_rank": n_by_t[0] * n_by_t[1] + noise},
    )
    table = draw("scaling_data", tmp_path / "s", tmp_path / "out")
    for text in ("N-scaling beats T-scaling", "N-scaling beats the base", "T-scaling beats the base"):
        assert claim(table, text).verdict == "supported"
    text = (tmp_path / "out" / "scaling_data.txt").read_text()
    rank = next(line for line in text.split("\n") if line.startswith("diagnostics/feature_rank"))
    assert rank.split("  ")[1:] and "+1.00 [1, 1]" in rank  # with N and with T alike: the batch is what it follows

    for seed in range(1, 11):
        noise = seed * 0.002
        for N, shared, score in ((8, True, 1.0), (8, False, 0.5), (16, True, 1.2), (16, False, 1.4)):
            write_run(
                tmp_path / "d" / f"{N}{shared}{seed}", score + noise, num_envs=N, seed=seed, shared_encoder=shared
            )
        for rate, score in ((1e-4, 1.02), (2.5e-4, 1.0), (1e-3, 0.6)):
            write_run(tmp_path / "l" / f"{rate}{seed}", score + noise, seed=seed, num_envs=16, learning_rate=rate)
    table = draw("decoupled", tmp_path / "d", tmp_path / "out")
    assert claim(table, "collapse at the base").verdict == "supported"
    assert claim(table, "recover at N × 2").verdict == "supported"
    assert claim(table, "gain more").value == pytest.approx(0.7, abs=0.01)
    table = draw("learning_rate", tmp_path / "l", tmp_path / "out")
    assert claim(table, "lr 1e-4 changes little").verdict == "supported"
    assert claim(table, "lr 1e-3 changes little").verdict == "contradicted"


# ---- what is missing -------------------------------------------------------------------------------------------------
def test_unequal_seeds_nan_divergence_short_curves_and_a_missing_game(tmp_path, capsys):
    runs = plant(tmp_path / "runs", [(8, 16), (32, 4)], lambda n_by_t: 1.0 + 0.5 * (n_by_t[0] > 8), seeds=5)
    byname = {
        (m["env_id"][:-3], m["num_envs"], m["seed"]): path
        for path in runs.iterdir()
        for m in [json.loads((path / "manifest.json").read_text())["arguments"]]
    }

    for file in byname["Breakout", 8, 5].iterdir():  # a seed that was never run
        file.unlink()
    write_curves(
        byname["Breakout", 8, 4],
        [
            (500, {"charts/episodic_return": 9.0}),  # a run that is not finite
            (1024, {"charts/episodic_return": float("nan")}),
        ],
    )
    write_curves(byname["Qbert", 32, 1], [(250, {"charts/episodic_return": 9e6})])  # a curve shorter than the rest
    (byname["Qbert", 32, 1] / "done.json").unlink()
    (byname["Qbert", 32, 2] / "done.json").unlink()  # this one's curve is whole: it counts
    (byname["Qbert", 32, 3] / "done.json").unlink()
    (byname["Qbert", 32, 3] / "failed.json").write_text('{"tensor": "logits", "global_step": 640}')
    for seed in range(1, 6):  # a game that a configuration lacks
        (byname["Pong", 32, seed] / "manifest.json").unlink()
    table = draw("fixed_budget", runs, tmp_path / "out", images=True)
    text = capsys.readouterr().out
    beats = claim(table, "beats 8×16, without the diverged runs")
    assert (
        beats.needs == "5 seeds in 6 tasks, or 10 seeds"
        and beats.value == pytest.approx(0.5, abs=0.06)
        and beats.ci_low > 0
    )
    for words in (
        "missing of 8×16: Breakout seed 5",
        "(8×16, Breakout, seed 4): diverged at step 500",
        "(32×4, Qbert, seed 1): ends at step 250 of 1,024: unfinished",
        "(32×4, Qbert, seed 3): diverged at step 640",
        "no final score there: Pong",
    ):
        assert words in text, words
    assert "Qbert, seed 2" not in text
    drawn = pd.read_csv(tmp_path / "out" / "fixed_budget.csv")
    curve = drawn[(drawn.metric == "IQM") & (drawn.num_envs == 32)]
    assert curve.step.max() == 1024 and np.isfinite(curve.value).all()
    finals = drawn[drawn.metric == "final score"]
    assert len(finals) == 30 - 5 - 1 - 1 - 2  # Pong at 32 x 4, never run, not finite, short and diverged
    assert "Pong" in set(finals.game)


def test_one_seed_gets_no_interval_and_no_verdict(tmp_path, capsys):
    plant(tmp_path / "runs", [(8, 16), (32, 4)], lambda n_by_t: float(n_by_t[0]), seeds=1)
    table = draw("fixed_budget", tmp_path / "runs", tmp_path / "out", images=True)
    assert set(table.verdict) == {""} and claim(table, "beats").no_ci == "1 seed"
    assert "no CI: 1 seed" in capsys.readouterr().out
    drawn = pd.read_csv(tmp_path / "out" / "fixed_budget.csv")
    assert drawn.ci_low.isna().all() and not drawn[drawn.metric == "IQM"].empty


def test_unfinished_sweeps_are_compared_where_all_runs_have_been(tmp_path, capsys):
    for i, last in enumerate((4, 6, 8)):
        write_run(tmp_path / "runs" / str(i), 1.0, seed=i, last=last, total_timesteps=10**6, done=False)
    draw("fixed_budget", tmp_path / "runs", tmp_path / "out", images=True)
    assert "no run has reached its budget: everything is compared at step 512" in capsys.readouterr().out
    finals = pd.read_csv(tmp_path / "out" / "fixed_budget.csv").query("metric == 'final score'")
    assert finals.value.tolist() == pytest.approx([0.5**0.5] * 3, abs=1e-3)


@pytest.mark.parametrize("kind", training_runs.AXES)
def test_runs_in_which_no_game_has_ended(tmp_path, capsys, kind):
    for i, N in enumerate((8, 16)):
        path = write_run(tmp_path / "runs" / str(i), 1.0, num_envs=N, scalars={"diagnostics/ess": 90.0})
        if N == 16:
            write_curves(path, [(step, {"diagnostics/ess": 95.0}) for step in (512, 1024)])
    draw("fixed_budget", tmp_path / "runs", tmp_path / "out", "--x", kind, images=True)
    assert "(16×16, Breakout, seed 1): no episode has ended; no score" in capsys.readouterr().out
    draw("scaling_data", tmp_path / "runs", tmp_path / "out", images=True)
    policy = pd.read_csv(tmp_path / "out" / "scaling_data_policy.csv")
    assert set(policy[policy.num_envs == 16].metric) == {"diagnostics/ess"}


def test_unknown_scalars_and_the_records_of_arguments_change_nothing(tmp_path, capsys):
    """HParams and the text that a run writes at step 0 (tags.py), and a tag that no program knows."""
    runs = plant(tmp_path / "runs", [(8, 16), (32, 4)], lambda n_by_t: 1.0 + (n_by_t[0] > 8), games=GAMES[:1])

    def shown():
        table = draw("fixed_budget", runs, tmp_path / "out")
        capsys.readouterr()
        launch.status(launch.runs_below(runs))
        return table.to_csv() + capsys.readouterr().out

    before = shown()
    for path in runs.glob("x*"):
        manifest = json.loads((path / "manifest.json").read_text())
        cards = tags.cards({**manifest, "git": {"commit": "0123abc", "dirty": True}}, path.name)
        points = defaultdict(dict)
        for tag, (steps, values) in reading.read_curves(path).items():
            for step, value in zip(steps, values):
                points[step][tag] = value
        rows = [*points.items(), (512, {"charts/unknown": float("nan")})]
        write_events(path / "events.out.tfevents.1700000000.host.1", rows)
        with open(path / "events.out.tfevents.1700000000.host.1", "ab") as file:
            for card in cards:
                RecordWriter(file).write(Event(wall_time=1.0, summary=card).SerializeToString())
        (path / "curves.csv").unlink()
    assert shown() == before
    curves, _ = training_runs.read_runs(runs)
    assert set(curves[0].curves) == {"charts/episodic_return", "charts/SPS", "charts/gradient_steps", "charts/unknown"}


# ---- evaluation episodes, and episodes that have not ended -----------------------------------------------------------
def test_the_final_score_is_that_of_the_evaluation_episodes_if_all_runs_have_it(tmp_path, capsys):
    plant_pair(tmp_path / "runs", final=1.5)
    beats = claim(draw("fixed_budget", tmp_path / "runs", tmp_path / "out", images=True), "beats")
    assert beats.value == pytest.approx(0.5, abs=1e-6) and beats.verdict == "supported"
    assert "final: final_return, the mean of 20 evaluation episodes of the final network" in capsys.readouterr().out
    drawn = pd.read_csv(tmp_path / "out" / "fixed_budget.csv").query("metric == 'final score' and num_envs == 32")
    assert drawn.value.tolist() == pytest.approx([1.5] * 10)

    done = tmp_path / "runs" / "base1" / "done.json"
    done.write_text(json.dumps({"global_step": 1024}))  # one run without them: the curves' ends compare
    beats = claim(draw("fixed_budget", tmp_path / "runs", tmp_path / "out"), "beats")
    assert beats.value == pytest.approx(-0.5, abs=1e-6) and beats.verdict == "contradicted"
    text = (tmp_path / "out" / "fixed_budget.txt").read_text()
    assert "final: the mean of the last 100 finished episodes, for all runs: only 19 of 20 have a final_return" in text


def test_evaluation_episodes_count_where_no_episode_has_ended_in_training(tmp_path):
    plant_pair(tmp_path / "runs", final=1.5)
    for path in tmp_path.glob("runs/wide*"):
        write_curves(path, [(1000, {"charts/min_episodes": 0.0})])
    beats = claim(draw("fixed_budget", tmp_path / "runs", tmp_path / "out"), "beats")
    assert beats.value == pytest.approx(0.5, abs=1e-6) and beats.verdict == "supported"


def test_a_score_of_unfinished_episodes_decides_nothing(tmp_path, capsys):
    few = [0, 0, 0, 0, 0, 1, 1, 1]
    plant_pair(tmp_path / "runs", fewest=few)
    beats = claim(draw("fixed_budget", tmp_path / "runs", tmp_path / "out"), "beats")
    assert beats.verdict == "undecided" and beats.value == pytest.approx(-0.5, abs=1e-6) and np.isnan(beats.ci_low)
    assert beats.no_ci == "fewer than 2 finished episodes per environment: 32×4"
    text = capsys.readouterr().out
    assert "! 32×4: some environments have finished fewer than 2 episodes" in text and "32×4 (too few episodes)" in text
    assert "! 8×16" not in text

    plant_pair(tmp_path / "enough", fewest=[*few[:-1], 2])
    assert claim(draw("fixed_budget", tmp_path / "enough", tmp_path / "out"), "beats").verdict == "contradicted"
    plant_pair(tmp_path / "evaluated", fewest=few, final=1.5)
    assert claim(draw("fixed_budget", tmp_path / "evaluated", tmp_path / "out"), "beats").verdict == "supported"
    plant_pair(tmp_path / "trend", fewest=few)
    table = draw("num_envs_trend", tmp_path / "trend", tmp_path / "out", "--base", "32x4")
    assert claim(table, "rises with N").no_ci == beats.no_ci


@pytest.mark.parametrize("kind, place", [("steps", 768), ("gradient_steps", 768 / 128 * 16)])
def test_curves_are_dotted_until_every_environment_has_finished_two_games(tmp_path, capsys, kind, place):
    for seed in (1, 2):  # the slower of two runs decides
        fewest = [0, 0, 0, 0, 1, 2, 2, 2] if seed == 2 else [0, 2, 2, 2, 2, 2, 2, 2]
        write_run(tmp_path / "runs" / f"base{seed}", 1.0, seed=seed, fewest=fewest)
        write_run(tmp_path / "runs" / f"old{seed}", 1.0, seed=seed, num_envs=32, num_steps=4)
    draw("fixed_budget", tmp_path / "runs", tmp_path / "out", "--x", kind, images=True)
    suffix = "" if kind == "steps" else f"_{kind}"
    for metric, name in (("IQM", "fixed_budget"), (training_runs.RETURN, "fixed_budget_games")):
        drawn = pd.read_csv(tmp_path / "out" / f"{name}{suffix}.csv").query(f"metric == '{metric}'")
        base, old = drawn[drawn.num_envs == 8], drawn[drawn.num_envs == 32]
        x = "step" if kind == "steps" else kind
        assert (base.dotted == (base[x] < place)).all() and base.dotted.any() and not base.dotted.all()
        assert len(old) and not old.dotted.any()  # older runs do not say
    assert "curves of the return are dotted until each environment" in capsys.readouterr().out


def test_a_dotted_start_joins_its_solid_rest():
    figure, ax = sheets.plt.subplots()
    sheets.draw_line(ax, np.arange(5.0), np.arange(5.0), 1.5, color="black")
    sheets.draw_line(ax, np.arange(5.0), np.arange(5.0), 0.0, color="black")
    sheets.draw_line(ax, np.arange(5.0), np.arange(5.0), np.inf, color="black")
    drawn = [(line.is_dashed(), line.get_xdata().tolist()) for line in ax.lines]
    whole = [0, 1, 2, 3, 4]
    assert drawn == [(True, [0, 1, 2]), (False, [2, 3, 4]), (False, whole), (True, whole)]
    sheets.plt.close(figure)


# ---- images ----------------------------------------------------------------------------------------------------------
GRIDS = {  # sweep: script, games, [(arguments that differ), …]; of any other sweep as of scaling_data
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
    "raise_rate": (
        "ppo_envpool",
        ["CartPole-v1"],
        [{}, {"learning_rate": 1e-3}, {"num_envs": 16, "learning_rate": 1e-3}],
    ),
    "shape_rate": (
        "ppo_envpool",
        ["CartPole-v1"],
        [{"num_envs": N, "num_steps": 128 // N, "learning_rate": rate} for N in (8, 16) for rate in (2.5e-4, 1e-3)],
    ),
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
        [{"clip_coef": c, "steps": s} for c in (0.1, 0.2, 0.4) for s in (1024, 512)],
    ),
    "switch": ("ppo_atari_envpool", ["Breakout"], [{"prox_com": com} for com in (2.0, 16.0)]),
    "schedule": ("ppo_envpool", ["CartPole-v1"], [{}, {"schedule": "0:8x16,0.5:16x8"}, {"schedule": "noise:8-16x16"}]),
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


SAVED = {"scaling_data", "coverage", "outer_loop", "step_size"}  # to files: that takes a second an image


def plant_sweep(root, sweep):
    """A run of each configuration in GRIDS."""
    script, games, grid = GRIDS.get(sweep, GRIDS["scaling_data"])
    for i, args in enumerate(grid):
        for game in games:
            scalars = {f"{place}/{name}": i + 1.0 for place in ("diagnostics", "probe") for name in DIAGNOSTICS}
            if script == "ppo_procgen":
                scalars.update({tag: 1.0 for tag, _ in scaling_data.UNSEEN[1:]})
            write_run(
                root / f"{game}{i}",
                1.0 + i / 5,
                game=game,
                script=script,
                scalars={**scalars, "outer/ddr": 1000.0 * (i + 1)},
                **args,
            )


def test_all_sweeps_are_drawn_into_files(tmp_path):
    """Several sweeps, one seed per run, by one command. What has no runs is listed."""
    for sweep in SAVED:
        plant_sweep(tmp_path / "runs" / sweep, sweep)
    words = ["all", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out"), "--reps", "50"]
    command = [sys.executable, str(ROOT / "scripts" / "figures.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=conftest.environment())
    assert done.returncode == 0, done.stdout + done.stderr
    out = tmp_path / "out"
    for sweep in SAVED:
        images = sorted(path for path in out.glob(f"{sweep}*.png"))
        assert out / f"{sweep}.png" in images
        for path in images:
            check_image(path)
        page = (out / f"{sweep}.html").read_text()
        assert all(f"<span class=dim>({path.stem})<" in page for path in images if path.stem != "coverage")
        assert f"== {sweep}: P" in done.stdout and (out / f"{sweep}.txt").read_text().startswith(f"== {sweep}")
    assert "no runs of: data_reuse decoupled fixed_budget" in done.stdout
    assert len(pd.read_csv(out / "all_claims.csv")) > 10


def test_a_sweep_without_a_figure_of_its_own(tmp_path, capsys):
    """Curves, final scores, diagnostics, claims and tables of any directory of runs: here of two precisions."""
    for bf16, score in ((False, 1.0), (True, 1.02)):
        for seed in range(10):
            scalars = {"diagnostics/ess": 90.0, "diagnostics/feature_rank": 100.0}
            write_run(tmp_path / "runs" / f"{bf16}{seed}", score + seed * 0.01, seed=seed, bf16=bf16, scalars=scalars)
    table = draw("precision", tmp_path / "runs", tmp_path / "out", images=True)
    assert claim(table, "8×16 bf16 True is close to the base").verdict == "supported"
    assert claim(table, "8×16 bf16 True beats the base").value == pytest.approx(0.02, abs=1e-6)
    text = capsys.readouterr().out
    assert "== precision" in text and "8×16 bf16 False (base)" in text and "8×16 bf16 True" in text
    for name in ("precision", "precision_games", "precision_policy"):
        check_image(tmp_path / "out" / f"{name}.png")
    drawn = pd.read_csv(tmp_path / "out" / "precision.csv").query("metric == 'final mean'")
    assert drawn.set_index("bf16").value.to_dict() == pytest.approx({False: 1.045, True: 1.065}, abs=1e-6)


def plant_switch(root, scores, games=GAMES[:2], seeds=3):
    """sweeps/switch.sh. scores: {(com,): of a parent, (com before, com): of a child}.

    The second game's are larger by 0.03.
    """
    for game in games:
        for seed in range(1, seeds + 1):
            for coms, score in scores.items():
                name, more = f"{game}_{'_'.join(map(str, coms))}_{seed}", dict(steps=512)
                if coms[1:]:  # the directories have moved since
                    more = dict(parent=(f"runs/switch/{game}_{coms[0]}_{seed}", 512))
                score_of_run = score + 0.03 * games.index(game) + seed / 1000
                write_run(root / name, score_of_run, game=game, seed=seed, prox_com=coms[-1], **more)
    return root


def test_parents_and_children_on_one_axis(tmp_path):
    scores = {(8,): 0.5, (512,): 0.9, (8, 8): 0.6, (8, 512): 1.3, (512, 8): 0.7, (512, 512): 1.2}
    plant_switch(tmp_path / "switch", scores)
    args = figures.parse_args(["switch", "--runs", str(tmp_path / "switch"), "--out", str(tmp_path), "--reps", "20"])
    (_, runs, _) = figures.read(args)["switch"]
    tested = figures.suites_and_claims("switch", runs, {"base": {}, "varies": []}, args)
    images = dict(figures.sheets_of("switch", tested, "steps"))
    sheet = images["switch"]
    assert [ax.get_title() for ax in sheet.axes.flat] == ["all tasks", *sorted(GAMES[:2])]
    blue = sheets.ramp(sheets.BLUES, 1)[0]
    expected = {  # the last score: the colour, whether it is dashed, and between which steps
        0.5: ("black", False, 0, 512),
        0.6: ("black", False, 512, 1024),
        0.7: ("black", True, 512, 1024),
        0.9: (blue, False, 0, 512),
        1.2: (blue, False, 512, 1024),
        1.3: (blue, True, 512, 1024),
    }
    tops = [max(line.get_ydata()[-1] for line in ax.lines if len(line.get_ydata()) > 2) for ax in sheet.axes.flat]
    assert tops == pytest.approx([1.317, 1.302, 1.332], abs=1e-3)
    for ax in sheet.axes.flat:
        (mark,) = [line for line in ax.lines if set(line.get_xdata()) == {512}]
        found = {round(line.get_ydata()[-1], 1): line for line in ax.lines if line is not mark}
        assert found.keys() == expected.keys()
        for score, (color, dashed, begin, end) in expected.items():
            line = found[score]
            assert (line.get_color(), line.is_dashed()) == (color, dashed), score
            assert begin < line.get_xdata()[0] < begin + 100 and end - 15 < line.get_xdata()[-1] <= end
    assert list(sheet.legend) == ["com 8", "com 512", "8 → 512", "512 → 8"]
    for sheet in images.values():
        sheet.close()


def test_the_claims_on_a_switch(tmp_path):
    scores = {(8,): 0.5, (512,): 0.9, (8, 8): 0.6, (8, 512): 1.2, (512, 8): 0.6, (512, 512): 1.2}
    table = draw("switch", plant_switch(tmp_path / "as in P3", scores, seeds=10), tmp_path / "out")
    assert len(table) == 5 and set(table.verdict) == {"supported"}
    raising, lowering = claim(table, "raising the com from 8 to 512"), claim(table, "lowering the com from 512 to 8")
    assert raising.value == pytest.approx(0.6) and lowering.value == pytest.approx(-0.6)
    assert raising.family == "primary" and raising.budget == 1024

    scores.update({(8,): 1.0, (8, 512): 0.4, (512, 8): 1.4})  # each child ends where P3's other one does, and beyond
    table = draw("switch", plant_switch(tmp_path / "other", scores, seeds=10), tmp_path / "out")
    assert len(table) == 5 and set(table.verdict) == {"contradicted"}
    plant_switch(tmp_path / "begun", {(8,): 0.5, (512,): 0.9, (8, 8): 0.6}, seeds=10)
    table = draw("switch", tmp_path / "begun", tmp_path / "out")
    assert dict(table.verdict.value_counts()) == {"undecided": 4, "supported": 1}
    plant_switch(tmp_path / "first", {(8,): 0.5})
    figures.main(
        figures.parse_args(["switch", "--runs", str(tmp_path / "first"), "--out", str(tmp_path), "--no-images"])
    )


def test_the_claims_on_schedules(tmp_path):
    """The best fixed N x T is the bar, and a schedule is known by its phases, not by its first N x T."""
    schedules = {
        "0:8x16,0.5:16x8": 0.9,
        "0:16x8,0.5:8x16": 0.6,
        "0:4x16,0.5:16x16": 1.4,
        "noise:4-16x16": 0.2,
    }
    for seed in range(1, 11):
        for num_envs, score in ((8, 0.7), (16, 1.0)):
            setting = dict(num_envs=num_envs, num_steps=128 // num_envs, minibatch_size=16)
            write_run(tmp_path / "runs" / f"{num_envs}_{seed}", score + seed / 1000, seed=seed, **setting)
        for i, (schedule, score) in enumerate(schedules.items()):
            setting = dict(num_envs=4, num_steps=16) if i > 1 else dict(num_envs=8 * (i + 1), num_steps=16 // (i + 1))
            setting.update(schedule=schedule, minibatch_size=16)
            write_run(tmp_path / "runs" / f"s{i}_{seed}", score + seed / 1000, seed=seed, **setting)
    table = draw("schedule", tmp_path / "runs", tmp_path / "out")
    values = {"growing N": -0.1, "growing T": -0.4, "growing batch": 0.4, "N led by noise": -0.8}
    for name, value in values.items():
        found = claim(table, f"{name} beats the best fixed N x T")
        assert found.value == pytest.approx(value, abs=1e-6) and found.family == "primary"
        assert found.verdict == ("supported" if value > 0 else "contradicted")
    assert claim(table, "growing N beats growing T").value == pytest.approx(0.3, abs=1e-6)


@pytest.mark.parametrize("kind", ["gradient_steps", "hours"])
def test_the_other_axes(tmp_path, kind):
    plant(tmp_path / "runs", [(8, 16), (16, 16)], lambda n_by_t: 1.0, games=["Pong"], seeds=3)
    draw("fixed_budget", tmp_path / "runs", tmp_path / "out", "--x", kind, images=True)
    check_image(tmp_path / "out" / f"fixed_budget_{kind}.png")
    drawn = pd.read_csv(tmp_path / "out" / f"fixed_budget_{kind}.csv").query("metric == 'IQM'")
    ends = drawn.groupby("num_envs")[kind].max()
    assert ends[8] == pytest.approx({"gradient_steps": 1024 / 128 * 16, "hours": 1024 / 100 / 3600}[kind])


def test_the_base_is_black_and_the_families_differ(tmp_path):
    for i, (N, T) in enumerate([(8, 16), (16, 16), (32, 16), (8, 32), (4, 16)]):
        write_run(tmp_path / str(i), 1.0, num_envs=N, num_steps=T)
    runs, _ = training_runs.read_runs(tmp_path)
    suite = Suite("scaling_data", "ppo_atari_envpool", runs, [(8, 16)])
    style = {suite.in_multiples(config): line for config, line in sheets.styles(suite, suite.configs).items()}
    assert style["8×16"]["color"] == "black" and "base" in style["8×16"]["label"]
    assert len({line["color"] for line in style.values()}) == 5
    assert style["N×2"]["ls"] == style["N×4"]["ls"] == style["N/2"]["ls"] != style["T×2"]["ls"]


# Machado, Oliveira and Fernandes 2009, severity 1: linear RGB as seen with a missing kind of cone
DEFICIENCIES = {
    "none": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def lab(color, deficiency):
    """CIE L*a*b* (D65) of a colour as it is seen."""
    rgb = np.array(sheets.plt.matplotlib.colors.to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(DEFICIENCIES[deficiency]) @ linear, 0, 1)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.array(to_xyz) @ seen / [0.9505, 1, 1.089]
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
def test_the_colours_of_a_panel_differ_for_everyone(deficiency):
    """By 10 or more in L*a*b*; 2.3 is a just noticeable difference. Blues and oranges also differ in their dashes."""
    count = sheets.MOST_CURVES - 1
    viridis = sheets.plt.get_cmap("viridis")(np.linspace(0.05, 0.9, count))
    for colors in (
        ["black", *sheets.ramp(sheets.BLUES, count)],
        ["black", *sheets.ramp(sheets.ORANGES, count)],
        ["black", *viridis],
        ["black", *(line["color"] for line in experiment.load("outer_loop").STYLES.values())],
        [sheets.N_LINE["color"], sheets.T_LINE["color"], "black"],
    ):
        points = [lab(color, deficiency) for color in colors]
        for i, point in enumerate(points):
            for other in points[:i]:
                assert np.linalg.norm(point - other) > 10


def test_many_curves_are_thinned_out_in_images_which_say_what_is_not_there(tmp_path):
    for i in range(9):
        write_run(tmp_path / str(i), 1.0, num_envs=2**i, steps=2**13)
    write_run(tmp_path / "qbert", 1.0, game="Qbert", steps=2**13)
    runs, _ = training_runs.read_runs(tmp_path)
    suite = Suite("num_envs_trend", "ppo_atari_envpool", runs, [(8, 16)])
    family = suite.family("num_envs")
    kept = [config["num_envs"] for config in sheets.fewer(suite, family)]
    assert len(kept) == sheets.MOST_CURVES and {1, 8, 256} <= set(kept) and kept == sorted(kept)
    assert sheets.fewer(suite, family[:6]) == family[:6]
    sheet = drawing.task_grid(suite, "games", family, drawing.RETURNS)
    assert sheet.figure.get_suptitle() == "6 of 9 configurations"
    assert {"8×16 (base)", "N×32 (not in Qbert)"} <= set(sheet.legend) and len(sheet.legend) == 6
    sheet.close()
    sheet = drawing.task_grid(suite, "games", family[:2], drawing.RETURNS)
    assert not sheet.figure.get_suptitle() and not any("(base)" in label for label in sheet.legend)
    sheet.close()


# ---- bad input and a real run ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "words, says",
    [
        (
            ["scaling_dat"],
            "runs/scaling_dat: expected the directory of a sweep's runs (near scaling_dat: scaling_data)",
        ),
        (["runs/mine", "--runs", "."], "runs/mine is a path"),
        ([], "sweep"),
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
        figures.main(figures.parse_args([*words, "--out", str(tmp_path / "out")]))
    error = capsys.readouterr().err
    assert end.value.code == 2 and error.startswith("error: ") and error.count("\n") == 1 and says in error


def test_from_real_runs_to_a_figure(tmp_path):
    for N, T in (4, 32), (8, 16):
        conftest.run(
            "ppo_envpool.py",
            tmp_path,
            "--num-envs",
            N,
            "--num-steps",
            T,
            "--total-timesteps",
            2048,
            "--run-name",
            f"sweep/{N}",
            "--num-logs",
            4,
        )
    table = draw("fixed_budget", tmp_path / "sweep", tmp_path / "out", images=True)
    assert claim(table, "8×16 beats 4×32").verdict == ""
    for name in ("fixed_budget", "fixed_budget_games", "fixed_budget_diagnostics"):
        check_image(tmp_path / "out" / f"{name}.png")
    drawn = pd.read_csv(tmp_path / "out" / "fixed_budget.csv").query("metric == 'final episodic_return'")
    for N in 4, 8:
        done = json.loads((tmp_path / "sweep" / str(N) / "done.json").read_text())
        assert drawn[drawn.num_envs == N].value.tolist() == [pytest.approx(done["episodic_return"], rel=1e-6)]
