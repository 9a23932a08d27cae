"""The claims of sweeps, on runs with known answers: what an audit found wrong, and what the papers say."""

import json
import shutil

import numpy as np
import pytest
from planted_runs import GAMES, claim, draw, plant, plant_pair, write_curves, write_run  # puts scripts/ on the path

# isort: split
from analysis import statement, training_runs
from analysis.claims import Claim
from analysis.comparisons import judge
from analysis.estimates import Estimate, Evidence, improvement
from analysis.suite import Suite
from launching.jobs import parse_flags
from papers import shape_rate


# ---- what an audit found wrong, planted ------------------------------------------------------------------------------
def plant_outer_loop(root):
    """P3's recipes on physics and on Atari in one directory, ten seeds: more minibatches win, sqrt is second."""
    for script, game, (N, T), rate in (
        ("ppo_isaacgym", "Mjlab-Cartpole-Balance", (4096, 16), 1e-3),
        ("ppo_atari_envpool", "Breakout", (8, 128), 2.5e-4),
    ):
        size = N * T // 4
        for seed in range(1, 11):
            for i, (factor, score, args) in enumerate(
                [
                    (0.25, 0.9, dict(minibatch_size=size, learning_rate=rate)),
                    (0.25, 0.5, dict(num_minibatches=4, learning_rate=rate)),
                    (1, 1.0, dict(minibatch_size=size, learning_rate=rate)),
                    (4, 1.6, dict(minibatch_size=size, learning_rate=rate)),
                    (4, 1.0, dict(num_minibatches=4, learning_rate=rate)),
                    (4, 1.3, dict(num_minibatches=4, learning_rate=2 * rate)),
                ]
            ):
                write_run(
                    root / f"{game}{i}{seed}",
                    score + seed / 1000,
                    steps=2**20,
                    script=script,
                    game=game,
                    seed=seed,
                    num_envs=int(factor * N),
                    num_steps=T,
                    **args,
                )
    return root


def test_the_base_is_what_the_sweep_states(tmp_path):
    """1024x16 has the smallest batch and as many of the script's defaults as 4096x16."""
    root = plant_outer_loop(tmp_path / "runs")
    lines = [
        "# base ppo_isaacgym.py --num-envs 4096 --num-steps 16 --num-minibatches 4 --learning-rate 0.001",
        "# base ppo_atari_envpool.py --num-envs 8 --num-steps 128 --num-minibatches 4 --learning-rate 0.00025",
        "# varies num_envs minibatch_size learning_rate",
    ]
    statement.record(root, statement.parse(lines, parse_flags))
    both = draw("outer_loop", root, tmp_path / "out").reset_index().set_index(["script", "claim"])
    for script in ("ppo_isaacgym", "ppo_atari_envpool"):
        table = both.loc[script]
        most, fewest = (16384, 1024) if script == "ppo_isaacgym" else (32, 2)
        for text in (
            f"at N = {most} more minibatches beat bigger ones",
            f"at N = {most} more minibatches beat bigger ones with the square-root rule",
            f"at N = {fewest} minibatches of the base's size beat smaller ones",
        ):
            assert table.loc[text].verdict == "supported"
        assert table.loc["the score is an inverted U in log DDR"].no_ci == "a run has no outer/ddr"
    (root / statement.NAME).unlink()  # without it: one N x T per script
    both = draw("outer_loop", root, tmp_path / "out", "--base", "8x128,4096x16")
    assert (both[both.index.str.startswith("at N =")].verdict == "supported").sum() == 6


def test_a_larger_grid_keeps_the_papers_pair(tmp_path):
    scores = {(8, 128): 1.0, (128, 8): 1.5, (256, 4): 0.5, (32, 32): 1.2}
    plant(tmp_path / "runs", list(scores), scores.get, games=GAMES[:1], noise=0.01)
    table = draw("fixed_budget", tmp_path / "runs", tmp_path / "out")
    assert claim(table, "128×8 beats 8×128").verdict == "supported"
    assert claim(table, "128×8 beats 8×128").family == "primary"
    assert claim(table, "256×4 beats 8×128").verdict == "contradicted"
    assert claim(table, "32×32 beats 8×128").verdict == "supported"


def test_five_seeds_in_six_games_are_a_verdict_on_the_mean_over_games(tmp_path):
    """P1's own figure has ten games of five seeds. In one game the gain is so large that the IQM does not see it."""
    games = ["Amidar", "BattleZone", "Bowling", "Breakout", "Phoenix", "Qbert"]
    for game in games:
        gain = {"Qbert": 0.9}.get(game, 0.3)
        root = tmp_path / "runs" / game
        plant(root, [(8, 16), (32, 4)], lambda n_by_t, gain=gain: 1 + gain * (n_by_t[0] > 8), 5, [game], 0.01)
    row = claim(draw("fixed_budget", tmp_path / "runs", tmp_path / "out"), "32×4 beats 8×16")
    assert (row.verdict, row.needs, row.seeds) == ("supported", "", 5) and row.value == pytest.approx(0.4, abs=0.02)
    half = 2.571 * np.std([0.3] * 5 + [0.9], ddof=1) / 6**0.5  # Student's t with five degrees of freedom
    assert row.ci_high - row.ci_low == pytest.approx(2 * half, abs=0.03)
    shutil.rmtree(tmp_path / "runs" / "Qbert")
    row = claim(draw("fixed_budget", tmp_path / "runs", tmp_path / "out"), "32×4 beats 8×16")
    assert (row.verdict, row.needs) == ("", "5 seeds in 6 tasks, or 10 seeds")


def test_a_trend_that_turns_back_is_none_and_saturation_is_a_row(tmp_path):
    """A peak at N = 64 and a collapse at 1024: Kendall's tau alone is above 0."""
    peak = {1: 0.1, 2: 0.2, 4: 0.3, 8: 0.4, 16: 0.5, 32: 0.6, 64: 1.0, 128: 0.9, 256: 0.85, 512: 0.8, 1024: 0.7}
    rank = {N: min(N, 64) + 0.0 for N in peak}
    n_by_ts = [(N, 8) for N in peak]
    for name, scores in (("peak", peak), ("rises", {N: np.log2(2 * N) for N in peak})):
        plant(
            tmp_path / name,
            n_by_ts,
            lambda n_by_t, scores=scores: scores[n_by_t[0]],
            games=GAMES[:1],
            noise=0.001,
            steps=2**13,
            scalars=lambda n_by_t, _, scores=scores: {
                "diagnostics/feature_rank": scores[n_by_t[0]],
                "probe/ess": rank[n_by_t[0]],
            },
        )
        statement.record(tmp_path / name, {"base": {"ppo_atari_envpool": {"num_envs": 8, "num_steps": 8}}})
    table = draw("num_envs_trend", tmp_path / "peak", tmp_path / "out", reps=1000)
    for text in ("the final score rises with N", "feature rank rises with N"):
        row = claim(table, text)
        assert (
            row.verdict == "contradicted" and row.ci_low > 0 and "larger at 64 128 256 512 than at 1024" in row.remark
        )
    assert claim(table, "N beyond 256 still gains").verdict == "contradicted"
    assert claim(table, "ESS (%) rises with N (probe").verdict == "supported"  # a plateau is no fall
    table = draw("num_envs_trend", tmp_path / "rises", tmp_path / "out")
    for text in ("the final score rises with N", "N beyond 256 still gains", "N beyond 512 still gains"):
        assert claim(table, text).verdict == "supported"


def test_a_diverged_run_counts_as_the_random_policy(tmp_path, capsys):
    """Two of five runs diverge: those that are left are the better ones, but the recipe is not."""
    for seed in range(1, 8):
        write_run(tmp_path / "runs" / f"base{seed}", 1.0 + seed / 1000, seed=seed)
        wide = write_run(
            tmp_path / "runs" / f"wide{seed}", 1.2 + seed / 1000, seed=seed, num_envs=32, num_steps=4, done=seed > 4
        )
        if seed <= 4:
            (wide / "failed.json").write_text('{"tensor": "logits", "global_step": 640}')
    table = draw("fixed_budget", tmp_path / "runs", tmp_path / "out")
    row = table.loc["32×4 beats 8×16"]
    assert row.value == pytest.approx((1.205 + 1.206 + 1.207) / 7 - 1.004, abs=1e-3)  # the mean, not the IQM
    row = table.loc["32×4 beats 8×16, without the diverged runs"]
    assert row.value == pytest.approx(0.2, abs=0.01)
    assert row.needs == "10 seeds" and row.verdict == row.holm_verdict == ""
    text = capsys.readouterr().out
    assert "diverged runs have the score of the random policy (human_at30's)" in text
    assert "diverged at step 640: it counts with the score of the random policy" in text


def test_a_diverged_run_of_a_task_without_a_table_of_scores(tmp_path):
    """Its score is the mean of all runs' first returns, here -800, not 0, which would be the best of all."""
    for seed in range(1, 6):
        for N in (8, 16):
            path = tmp_path / "runs" / f"{N}{seed}"
            write_run(path, 1.0, game="Pendulum-v1", seed=seed, num_envs=N, done=N == 8 or seed > 2)
            returns = [
                (step, {"charts/episodic_return": -900.0 + 100 * i}) for i, step in enumerate(range(128, 1025, 128), 1)
            ]
            write_curves(path, returns)
            if N == 16 and seed <= 2:
                (path / "failed.json").write_text('{"global_step": 640}')
    runs, _ = training_runs.read_runs(tmp_path / "runs")
    suite = Suite("any", "ppo_atari_envpool", runs)
    assert suite.random == {"Pendulum-v1": -800.0}
    assert suite.values(suite.configs[1], "Pendulum-v1").tolist() == [-8.0, -8.0, -1.0, -1.0, -1.0]


def test_runs_that_end_at_different_steps_are_compared_at_the_last_common_one(tmp_path, capsys):
    """Of a budget of 1,000 steps, batches of 8x16 make 896 and of 8x25 make 1,000: the curves are the same line."""
    for seed in range(1, 6):
        for T in (16, 25):
            path = write_run(tmp_path / "runs" / f"{T}{seed}", 1.0, steps=1000, num_steps=T, seed=seed)
            end = 1000 // (8 * T) * 8 * T
            steps = [*range(100, end, 100), end]
            write_curves(path, [(step, {"charts/episodic_return": step * 0.1}) for step in steps])
    table = draw("my_sweep", tmp_path / "runs", tmp_path / "out")
    assert claim(table, "8×25 beats the base").value == pytest.approx(0, abs=1e-6)
    assert "runs end at 896 to 1,000: all are compared at 896, the last step that all reach" in capsys.readouterr().out


def test_the_mean_number_of_games_counts_where_the_fewest_are_not_logged(tmp_path):
    plant_pair(tmp_path / "runs")
    for path in tmp_path.glob("runs/wide*"):
        rows = [(step, {"charts/episodic_return": 5.0, "charts/episodes": step / 20}) for step in (512, 1024)]
        write_curves(path, rows)
    beats = claim(draw("fixed_budget", tmp_path / "runs", tmp_path / "out"), "beats")
    assert beats.verdict == "undecided" and beats.no_ci == "fewer than 2 finished episodes per environment: 32×4"


# ---- the claims as the papers make them ------------------------------------------------------------------------------
def plant_grid(root, scores, seeds=10, noise=0.004, **common):
    """Runs of a grid, scores: [(arguments, score)], with seeds 1 to `seeds` around each score."""
    for i, (args, score) in enumerate(scores):
        for seed in range(1, seeds + 1):
            path = root / f"{i}_{seed}_{args.get('game', '')}"
            write_run(path, score + noise * (seed - (seeds + 1) / 2), seed=seed, **{**common, **args})
    return root


def test_gamma_and_the_learning_rate(tmp_path):
    """The gain of T x 2 is the same at each gamma, though gamma itself matters; the default rate is the best."""
    gains = [
        (dict(gamma=gamma, num_steps=T), level + 0.3 * (T == 32))
        for gamma, level in ((0.9, 0.6), (0.99, 1.0))
        for T in (16, 32)
    ]
    table = draw("gamma", plant_grid(tmp_path / "g", gains), tmp_path / "out", "--base", "8x16")
    assert claim(table, "the gain of a longer rollout does not depend on γ").verdict == "supported"
    assert claim(table, "γ changes little, all of these").verdict == "contradicted"
    gains[0] = gains[0][0], 0.9  # no gain at 0.9
    table = draw("gamma", plant_grid(tmp_path / "h", gains), tmp_path / "out", "--base", "8x16")
    assert claim(table, "the gain of a longer rollout does not depend on γ").verdict == "contradicted"
    for name, other, word in (("worse", 0.7, "supported"), ("better", 1.4, "contradicted")):
        rates = [(dict(learning_rate=2.5e-4), 1.0), (dict(learning_rate=1e-3), other)]
        table = draw("learning_rate", plant_grid(tmp_path / name, rates), tmp_path / "out")
        assert claim(table, "lr 2.5e-4 is about the best").verdict == word
        row = claim(table, "lr 1e-3 is no better than")
        assert row.power_if_equal > 0.9 and row.verdict == word


def test_each_n_by_t_at_its_own_learning_rate(tmp_path):
    """At 2.5e-4 8x16 is the best; at 5e-4 16x8 is better still in one game, and 32x4 as good as 8x16 in the other.

    Without the runs at 1e-3 the best rates of 16x8 and 32x4 are the highest that were tried: no verdict.
    """
    scores = {
        "Breakout": {(8, 16): (0.4, 1.0, 0.8, 0.6), (16, 8): (0.3, 0.8, 1.5, 0.9), (32, 4): (0.2, 0.5, 0.7, 0.4)},
        "Qbert": {(8, 16): (0.4, 1.0, 0.8, 0.6), (16, 8): (0.3, 0.5, 0.8, 0.4), (32, 4): (0.2, 0.4, 1.0005, 0.5)},
    }
    grid = [
        (dict(game=game, num_envs=N, num_steps=T, learning_rate=rate), score)
        for game, n_by_ts in scores.items()
        for (N, T), row in n_by_ts.items()
        for rate, score in zip((1.25e-4, 2.5e-4, 5e-4, 1e-3), row)
    ]
    plant_grid(tmp_path / "runs", grid)
    table = draw("shape_rate", tmp_path / "runs", tmp_path / "out", "--base", "8x16", "--by-game", reps=1000)
    own = "16×8 beats 8×16, each at its own best rate"
    assert table.loc[f"N beats T at a fixed batch: {own}"].family == "primary"
    for game, value, beats, stays in (
        ("Breakout", 0.5, "supported", "contradicted"),
        ("Qbert", -0.2, "contradicted", "supported"),
    ):
        row = claim(table, f"{own}: {game}")
        assert row.verdict == beats and row.value == pytest.approx(value, abs=1e-3)
        assert claim(table, f"16×8 beats 8×16 at lr 2.5e-4: {game}").verdict == "contradicted"
        assert claim(table, f"is about the best at its own rate: {game}").verdict == stays

    runs, _ = training_runs.read_runs(tmp_path / "runs")
    suite = Suite("shape_rate", "ppo_atari_envpool", runs, [(8, 16)], reps=100)
    sheet = shape_rate.map_of_scores(suite, shape_rate.grid_of_rates(suite))
    rows = {(row["game"], row["num_envs"], row["x"]): row for row, _ in sheet.rows}
    sheet.close()
    assert {key for key, row in rows.items() if row["best"] and key[0] != "all"} == {
        ("Breakout", 16, 5e-4),
        ("Qbert", 32, 5e-4),
    }
    assert {key for key, row in rows.items() if row["tied"] and key[0] != "all"} == {("Qbert", 8, 2.5e-4)}

    for path in [path.parent for path in tmp_path.glob("runs/*/manifest.json")]:
        if json.loads((path / "manifest.json").read_text())["arguments"]["learning_rate"] == 1e-3:
            shutil.rmtree(path)
    table = draw("shape_rate", tmp_path / "runs", tmp_path / "edge", "--base", "8x16", "--by-game")
    row = claim(table, f"{own}: Breakout")
    assert row.verdict == "undecided" and row.value == pytest.approx(0.5, abs=1e-3)
    assert row.remark == "at the edge: 16×8 is best at 0.0005, and no higher neighbour was tried"
    assert "at the edge" in claim(table, "is about the best at its own rate: Qbert").remark


def test_exploration_by_task_and_how_fast_it_learns(tmp_path):
    """N x 2 is better in one game and much worse in the other; its curves have the same form."""
    grid = [
        (dict(game=game, num_envs=N), score)
        for game, scores in (("Breakout", (1.0, 1.5)), ("Qbert", (1.0, 0.4)))
        for N, score in zip((8, 16), scores)
    ]
    table = draw("hard_exploration", plant_grid(tmp_path / "e", grid, steps=2**11), tmp_path / "out")
    assert claim(table, "equivalent or improves: Breakout").verdict == "supported"
    assert claim(table, "equivalent or improves: Qbert").verdict == "contradicted"
    assert claim(table, "equivalent or improves: Qbert").family == "by game"
    assert table.loc["N-scaling is equivalent or improves"].family == "primary"

    better = [(args, score) for args, score in grid if args["game"] == "Breakout"]
    table = draw("hard_exploration", plant_grid(tmp_path / "b", better, steps=2**11), tmp_path / "out")
    roots = np.sqrt(np.interp(np.arange(1, 101) / 100, [0.125, 1], [0.125, 1]))
    area = claim(table, "learns faster than the base: mean score")
    assert area.verdict == "supported" and area.value == pytest.approx(0.5 * roots.mean(), abs=0.03)
    half = claim(table, "learns faster than the base: score at half")
    assert half.verdict == "supported" and half.value == pytest.approx(0.5 * 0.5**0.5, abs=1e-3)
    steps = claim(table, "learns faster than the base: share of the budget")
    assert steps.verdict == "supported" and steps.value == pytest.approx(0.6**2 - 0.9**2, abs=0.03)


@pytest.mark.parametrize(
    "places, verdict, remark", [((-1, -0.5, 0, 0.5, 1), "supported", ""), ((0, 0.5, 1, 1.5, 2), "undecided", "edge")]
)
def test_the_inverted_u_and_a_top_at_the_edge_of_the_grid(tmp_path, places, verdict, remark):
    """Of two budgets; in the second case both tops are at the lower end of the grid."""
    for budget in (1024, 2048):
        top = 0.5 * (budget == 2048) if not remark else 0
        grid = [
            (dict(clip_coef=0.1 * (i + 1), scalars={"outer/ddr": 1000 * 10**x}), 1 - 0.3 * (x - top) ** 2 + 0.001 * i)
            for i, x in enumerate(places)
        ]
        plant_grid(tmp_path / "runs" / str(budget), grid, steps=budget, num_steps=16)
    table = draw("step_size", tmp_path / "runs", tmp_path / "out")
    for budget in ("1024", "2048"):
        row = claim(table, f"at {budget} steps the score is an inverted U")
        assert row.verdict == verdict and remark in str(row.remark) and row.value == pytest.approx(-0.3, abs=0.02)
    shift = claim(table, "the best DDR")
    assert shift.value == pytest.approx(0 if remark else 0.5, abs=1e-6) and remark in str(shift.remark)


def test_holm_counts_the_rows_and_a_contradiction_is_remarked(tmp_path):
    """One good configuration among nine nulls; and one with a larger IQM that most of its runs do not have."""
    rng = np.random.RandomState(3)
    grid = [(dict(num_steps=16 * k), 1.0) for k in range(1, 11)]
    root = tmp_path / "many"
    for i, (args, score) in enumerate(grid):
        for seed in range(1, 11):
            write_run(
                root / f"{i}_{seed}", score + 0.075 * (i == 4) + rng.normal(0, 0.05), seed=seed, steps=2**14, **args
            )
    table = draw("mine", root, tmp_path / "out", "--base", "8x16", reps=2000)
    beats = table[table.index.str.contains("beats")]
    assert (beats.holm_verdict == "undecided").sum() > (beats.verdict == "undecided").sum()
    assert not ((beats.holm_verdict != "undecided") & (beats.holm_verdict != beats.verdict)).any()

    for seed in range(1, 13):  # each game: 7 of 12 runs slightly worse, 5 much better
        write_run(tmp_path / "odd" / f"a{seed}", 1.0, seed=seed)
        write_run(tmp_path / "odd" / f"b{seed}", 0.99 if seed < 8 else 2.0, seed=seed, num_envs=16)
    runs, _ = training_runs.read_runs(tmp_path / "odd")
    suite = Suite("mine", "ppo_atari_envpool", runs, [(8, 16)], reps=300)
    sure = Evidence(0.3, np.full(300, 0.3))
    row = Claim("better", judge(sure, "more"), "", "more", improvement=improvement_of(suite))
    assert row.verdict == "supported" and "P(improvement) is 0.42" in row.remark
    # "less" holds, and most runs order them so, or the other way
    for chance, remarked in ((0.3, False), (0.7, True)):
        below = judge(Evidence(-0.3, np.full(300, -0.3)), "less")
        row = Claim("below", below, "", "less", improvement=Estimate(chance, 0.1, 0.9))
        assert row.verdict == "supported" and (f"P(improvement) is {chance:.2f}" in row.remark) == remarked
    assert not Claim(
        "worse", judge(sure, "not less", 0.1), "", "not less", 0.1, improvement=improvement_of(suite)
    ).remark


def improvement_of(suite):
    base, other = suite.configs
    return Estimate(float(improvement(suite.sample(other), suite.sample(base))), 0.1, 0.7)
