"""scripts/advise.py on planted tasks, runs that are already finished, and the replay of recorded runs."""

import importlib
import re

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT, study
from planted_runs import write_run  # puts scripts/ on the path

# isort: split
import advise
from analysis import prior
from launching import jobs

replay_advise = study("advise", "replay_advise")
WORDS = "--env-id CartPole-v1 --steps 2e5"


def table_of_tasks(tasks=4, seeds=3, noise=0.05):
    """Runs in which a score rises with the rate up to a top, which is not the same in each task."""
    rows, rng = [], np.random.default_rng(0)
    for task, (place, slope) in enumerate([(2.5, -0.03), (1, 0.04), (4, -0.06), (3, -0.01)][:tasks]):
        for n, t in ((8, 32), (8, 128), (32, 32), (128, 8)):
            for k in range(-1, 5):
                setting = dict(zip(prior.SETTING, (n, t, 2.5e-4 * 2**k, 100_000, 256, 4), strict=True))
                top = 0.9 - 0.04 * (k - place) ** 2 + slope * np.log2(n / 8)
                for seed in range(seeds):
                    score = top + noise * rng.normal()
                    rows.append({"game": f"g{task}", **setting, "seed": seed, "score": score})
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def table():
    return table_of_tasks()


@pytest.fixture(scope="module")
def tasks(table):
    return prior.Tasks(table[table["game"] != "g0"])


# ---- the model -------------------------------------------------------------------------------------------------------
def test_the_prior_knows_what_the_tasks_have_in_common(table, tasks):
    theta = tasks.theta + np.linspace(-0.2, 0.2, 8)
    gradient, step = tasks.objective(theta)[1], 1e-5 * np.eye(8)
    numeric = [(tasks.objective(theta + d)[0] - tasks.objective(theta - d)[0]) / 2e-5 for d in step]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-5)
    settings = table[table["game"] == "g0"].groupby(list(prior.SETTING))["score"].mean().reset_index()
    found = tasks.prior(settings)
    off = (settings["score"] - found.mean) / np.sqrt(np.diag(found.covariance))
    assert np.corrcoef(found.mean, settings["score"])[0, 1] > 0.6 and np.abs(off).max() < 4
    assert np.exp(found.log_noise[0]) == pytest.approx(0.05, rel=0.2)


def test_the_posterior_is_that_of_a_gaussian_whose_unit_and_noise_are_known():
    """Many runs fix the unit; then the means of the draws are those of one regression by hand, in any unit."""
    mean, covariance = np.array([0.2, 0.5, 0.8]), 0.04 * np.array([[1, 0.8, 0.1], [0.8, 1, 0.1], [0.1, 0.1, 1]])
    before, rng = prior.Prior(mean, covariance, (np.log(0.1), 1e-6)), np.random.default_rng(0)
    for unit in (1.0, 500.0):
        gains = [np.array([0.3, 0.5]) * unit, np.array([]), np.array([0.7, 0.9] * 20) * unit]
        draws = prior.posterior(before, gains, 20_000, np.random.default_rng(1)) / unit
        assert draws[:, [0, 2]].mean(0) == pytest.approx([0.39, 0.80], abs=0.02) and draws[:, 2].std() < 0.05
        assert (
            draws[:, 1].mean() > 0.55 and draws[:, 1].std() > draws[:, 0].std()
        )  # untried, but it knows from the first
    untried = prior.posterior(before, [[], [], []], 20_000, rng)
    assert untried.mean(0) == pytest.approx(mean, abs=0.01) and np.cov(untried.T) == pytest.approx(covariance, abs=2e-3)


def test_what_is_drawn_from_the_posterior():
    draws = np.array([[1.0, 0.96, 0.2], [0.5, 1.0, 0.2], [1.0, 0.90, 0.2], [0.1, 0.2, 2.0]])
    assert prior.close_to_best(draws).tolist() == [0.5, 0.5, 0.25]
    assert prior.close_to_best(-draws[3:]).tolist() == [1.0, 0.0, 0.0]
    assert prior.next_runs(draws, ["a", "b", "a"], 2, 4) == [0, 1, 0, 2]
    assert prior.next_runs(draws, ["a", "b", "c"], 1, 4) == [0, 0, 0, 0]


# ---- the search ------------------------------------------------------------------------------------------------------
def planted(args, quality, zero=20.0):
    """A `play` whose runs return 20 + 400 quality(setting), with noise; inf has failed, nan has diverged."""
    rng = np.random.default_rng(3)

    def value(place):
        score = 0 if place is None else quality(args.settings[place])
        return None if score == np.inf else zero + 400 * score + 20 * rng.normal() * (place is not None)

    return lambda requests: [(value(place), {}) for place, _ in requests]


def test_the_search_finds_the_planted_best_and_stops_when_it_is_sure(tasks, capsys):
    args = advise.parse_args([*WORDS.split(), "--runs", "60", "--workers", "2"])
    settings = advise.settings_table(args)
    assert len(args.settings) == 36 and set(settings.columns) == set(prior.SETTING)

    def quality(one):  # not where the other tasks have it
        return 0.8 - 0.05 * np.log2(one.learning_rate / 4e-3) ** 2 + 0.05 * np.log2(one.num_envs / 8)

    found = advise.search(args, tasks.prior(settings), planted(args, quality))
    made = sum(map(len, found.returns))
    best = args.settings[found.best]
    assert quality(best) >= 0.95 * max(map(quality, args.settings)) and best.num_envs == 128 and made < 60
    assert capsys.readouterr().out.count(" of 60 runs: ") == -(-made // 12)
    lines = list(advise.report(args, found, advise.table_of(args, found), tasks.best_products()))
    said = f"answer: {best}; within 5 % of the best of 36 settings"
    assert any(line.startswith(said) for line in lines)
    assert lines[-2].endswith(f"{made} runs, {made / 360:.0%} of the exhaustive grid")
    regret = pd.read_csv(ROOT / "results" / "advise" / "atlas_regret.csv").set_index(["share", "method"])["regret"]
    assert all(f"{regret[0.05, method]:.3f} [" in lines[-1] for method in ("advise, atlas", "prior, no run", "random"))
    again = advise.search(args, tasks.prior(settings), planted(args, quality))
    assert [list(values) for values in again.returns] == [list(values) for values in found.returns]  # so it resumes


def test_an_answer_from_runs_that_are_there(tasks, tmp_path):
    words = f"{WORDS} --shapes 8x128 32x32 --rates 5e-4 2.5e-4 --runs 8 --workers 1 --runs-dir {tmp_path} --gamma 0.9"
    args = advise.parse_args(words.split())
    for place, setting in [(None, None), *enumerate(args.settings)]:
        for seed in range(1, 8 if setting else 2):
            (job,) = jobs.read_jobs([advise.line_of(args, place, seed)])
            flags = {name: value for name, value in job.flags.items() if name not in ("env_id", "run_name")}
            final = 20.0 if place is None else 100.0 + seed + 300 * (setting == (8, 128, 5e-4))
            flags.update(script="ppo_envpool", game="CartPole-v1", steps=job.steps, final=final)
            scalars = {"outer/ddr": 40000.0, "charts/episodic_length": 64.0, "outer/grad_noise_scale": 4096.0}
            write_run(job.path, 1.0, scalars=scalars, **flags)
    found = advise.search(args, tasks.prior(advise.settings_table(args)), advise.player(args))
    assert found.zero == 20.0 and sum(map(len, found.returns)) in (4, 8)
    table = advise.table_of(args, found)
    lines = list(advise.report(args, found, table, tasks.best_products()))
    command = "python ppo_envpool.py --env-id CartPole-v1 --total-timesteps 200000 --num-envs 8 --num-steps 128"
    assert f"  {command} --minibatch-size 256 --learning-rate 0.0005 --gamma 0.9" in lines
    assert importlib.import_module("ppo_envpool").parse_args(command.split()[2:]).num_steps == 128
    text = "\n".join(lines)
    assert "DDR: 40,000 samples" in text and "2 of an episode of 64 steps" in text and "noise prevails" in text
    assert "the best of 3 other tasks have" in text and "no rate beyond 0.0005 was tried" in text
    advise.draw(args, found, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 10_000


def test_one_run_is_a_hint_unless_it_fails(tasks):
    args = advise.parse_args([*WORDS.split(), "--one-run"])
    for quality, says in ((0.9, "a hint, from one run: "), (np.nan, "a hint, from"), (np.inf, "no recommendation: ")):
        found = advise.search(args, tasks.prior(advise.settings_table(args)), planted(args, lambda _, q=quality: q))
        lines = list(advise.report(args, found, advise.table_of(args, found), tasks.best_products()))
        assert any(line.startswith(says) for line in lines)
        assert np.isfinite(found.draws).all() and sum(map(len, found.returns)) == (quality != np.inf)
        assert np.isfinite(quality) or sum(map(sum, found.returns)) in (20, 0)  # diverged, failed


# ---- command lines ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "words,says",
    [
        ("--shapes 8x32 128x128 --steps 1e5", "expected --steps 131072 or more, which are 8 iterations, or --shapes"),
        ("--shapes 8x8", "expected --shapes whose N x T are a multiple of 256 and 25,000 at most"),
        ("--shapes 8x32 --rates 1e-3", "one setting, 8x32 at the rate 0.001: expected two"),
        ("--gamma 2", "--gamma 2.0 is out of range"),
        ("--num-envs 4", "--num-envs is set by the search"),
        ("--no-such-flag 1", "--no-such-flag"),
    ],
)
def test_bad_input_ends_in_one_line(words, says, capsys):
    with pytest.raises(SystemExit) as end:
        advise.parse_args([*WORDS.split(), *words.split()])
    error = capsys.readouterr().err
    assert end.value.code == 2 and error.startswith("error: ") and error.count("\n") == 1 and says in error


def test_the_price_and_the_flags_of_the_script(tmp_path, capsys):
    words = f"{WORDS} --runs-dir {tmp_path} --gamma 0.95 --minibatch-size 64 --workers 2"
    args = advise.parse_args(words.split())
    advise.main(advise.parse_args([*words.split(), "--dry-run", "--steps", "1e5"]))
    shown = capsys.readouterr().out
    assert "128x128 is left out: fewer than 8 iterations" in shown and "30 settings, 5 N x T at 6 rates" in shown
    assert "24 runs of your length, 2,400,000 steps: 8% of the exhaustive grid's 300 runs" in shown
    guess, line = shown.splitlines()[-2:]
    assert re.match(r"without a run, other tasks say: \d+x\d+ at the rate 0\.\d+; ", guess) and "--seed" not in line
    assert line.startswith("  python ppo_envpool.py --env-id ") and "--gamma 0.95" in line
    assert "480 evaluation episodes" in shown and "2 processes at a time" in shown and not any(tmp_path.iterdir())
    (job,) = jobs.read_jobs([advise.command(args, args.settings[0], 200000, seed=1)])
    assert (job.args["gamma"], job.args["minibatch_size"], job.args["num_steps"]) == (0.95, 64, 32)
    args.flags = []
    assert job.name != jobs.read_jobs([advise.command(args, args.settings[0], 200000, seed=1)])[0].name


def test_what_to_try_at_an_edge_of_the_grid():
    args = advise.parse_args(f"{WORDS} --shapes 8x128 32x32 128x8 --rates 2.5e-4 5e-4 1e-3".split())
    inside, corner = advise.Setting(32, 32, 5e-4), advise.Setting(8, 128, 1e-3)
    assert not list(advise.edges(args, inside))
    rate, envs, length = advise.edges(args, corner)
    assert rate.endswith("no rate beyond 0.001 was tried: try --shapes 8x128 --rates 0.001 0.002 0.004")
    assert envs.endswith("try --shapes 8x128 4x128") and length.endswith("try --shapes 8x128 8x256")


# ---- replays ---------------------------------------------------------------------------------------------------------
def test_the_replay_leaves_one_task_out_and_tests_on_other_seeds(tmp_path, monkeypatch):
    for name, value in (("SHARES", {"map": (0.1,), "atlas": (0.1,)}), ("DRAWS", 200)):
        monkeypatch.setattr(replay_advise, name, value)
    table = table_of_tasks(tasks=3, seeds=6)
    rows = replay_advise.replay(table, 2, 0)
    methods = {"advise", replay_advise.NO_RUN, *replay_advise.METHODS} | (
        {replay_advise.NO_SEARCH} & set(rows["method"])
    )
    assert set(rows["method"]) == methods and len(rows) == 3 * len(methods) * 2
    searched = rows[rows["method"].isin(["advise", "random", "halving"])]
    assert set(rows["settings"]) == {24} and (searched["runs"] <= 24).all()
    assert searched.groupby("method")["regret"].mean().between(-0.05, 0.1).all()
    assert rows["probability"].notna().sum() == 6 and rows["probability"].dropna().between(0, 1).all()
    regret, reliable = replay_advise.regrets(rows), replay_advise.reliability(rows)
    own = regret[regret["method"] == "random"].iloc[0]
    assert own["regret"] == pytest.approx(own[["g0", "g1", "g2"]].mean()) and own["low"] < own["regret"] < own["high"]
    assert reliable["replays"].sum() == 6
    sure = rows[rows["method"] == "advise"].assign(probability=0.9, close=[True, True, True, False, True, True])
    right = replay_advise.brier(sure).iloc[0]  # 0.01 where it is close, 0.81 where not; the constant: 1, 3/4, 3/4
    assert right["brier"] == pytest.approx((5 * 0.01 + 0.81) / 6) and right["close"] == pytest.approx(5 / 6)
    # g1 is close in one of two and the others always: the constant is 1 there and 3/4 on g0 and g2
    assert right["brier_of_a_constant"] == pytest.approx((0.5 + 2 * 0.25**2) / 3)
    replay_advise.draw(rows, reliable, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 10_000
    halves = replay_advise.Halves([np.arange(6.0)] * 2, np.random.default_rng(0))
    assert [halves.run(0) for _ in range(4)] == [True, True, True, False]
    assert halves.test[0] + np.mean(halves.seen()[0]) == 5
