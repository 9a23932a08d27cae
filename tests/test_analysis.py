"""scripts/analysis.py, estimates.py and suite.py: SciPy is the reference for statistics, tensorboard for reading."""

import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import ROOT
from planted_runs import write_curves, write_run  # puts scripts/ on the path
from scipy import stats

# isort: split
from analysis import comparisons, estimates, statement, sweeps, training_runs
from analysis.suite import Suite, parents_of
from launching.jobs import parse_flags

from support import reading


# ---- statistics ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seeds, tasks", [(4, 10), (6, 2), (8, 3), (1, 4)])
def test_the_aggregates_are_those_of_rliable(seeds, tasks):
    """Agarwal et al. 2021, in SciPy's and NumPy's words; the probability of improvement is Mann and Whitney's U."""
    x, y = np.random.RandomState(seeds).lognormal(size=(2, seeds, tasks)).round(1)  # some scores are equal
    sample, other = list(x.T), list(y.T)
    assert estimates.iqm(sample) == pytest.approx(stats.trim_mean(x, 0.25, axis=None), abs=1e-12)
    assert estimates.median(sample) == pytest.approx(np.median(x.mean(0)), abs=1e-12)
    assert estimates.optimality_gap(sample) == pytest.approx(np.mean(np.clip(1 - x, 0, None)), abs=1e-12)
    expected = stats.mannwhitneyu(x, y, axis=0).statistic.mean() / seeds**2
    assert estimates.improvement(sample, other) == pytest.approx(expected, abs=1e-12)


def test_the_intervals_are_those_of_a_bootstrap_within_tasks():
    """Both are percentiles of random draws, so they agree up to a part of their width."""
    x = np.random.RandomState(0).lognormal(size=(4, 10))

    def pooled(*tasks, axis):
        return stats.trim_mean(np.concatenate(tasks, axis), 0.25, axis=axis)

    expected = stats.bootstrap(tuple(x.T), pooled, n_resamples=4000, method="percentile", rng=3).confidence_interval
    value, low, high = estimates.interval(estimates.iqm, [list(x.T)], reps=4000, seed=3)
    assert value == pytest.approx(stats.trim_mean(x, 0.25, axis=None), abs=1e-12)
    assert (low, high) == pytest.approx(tuple(expected), abs=0.05 * (high - low))
    several = estimates.interval(lambda sample: np.array([estimates.iqm(sample), estimates.mean(sample)]), [list(x.T)])
    assert [bound.shape for bound in several] == [(2,)] * 3


def test_the_iqm_trims_the_same_share_of_any_number_of_runs():
    """Of 5 runs 1.25 at each end, so that the same runs taken three times, or fewer of them, have the same IQM."""
    assert estimates.iqm([np.array([10.0, 0, 1, 0, 10])]) == pytest.approx((0.75 * 0 + 1 + 0.75 * 10) / 2.5)
    tasks = list(np.random.RandomState(2).lognormal(size=(3, 5)))
    assert estimates.iqm([np.repeat(task, 3) for task in tasks]) == pytest.approx(estimates.iqm(tasks), abs=1e-12)


def test_every_game_has_the_same_weight_however_many_seeds_it_has():
    tasks = list(np.random.RandomState(1).normal(size=(4, 4)))
    twice = [np.repeat(tasks[0], 2), *tasks[1:]]
    assert estimates.iqm(twice) == pytest.approx(estimates.iqm(tasks), abs=1e-12)
    assert estimates.mean(twice) == pytest.approx(estimates.mean(tasks), abs=1e-12)
    assert estimates.optimality_gap(twice) == pytest.approx(estimates.optimality_gap(tasks), abs=1e-12)


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
    value, low, high = estimates.interval(estimates.iqm, [sample], 100)
    assert np.isfinite(value).all() and np.isfinite([low, high]).all() == carries


@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize("of", ["mean", "mean over tasks", "difference"])
def test_an_interval_of_few_seeds_covers_the_truth_in_95_percent(seeds, of):
    """Of normal scores; a percentile bootstrap covers 74 % with three seeds. Welch's degrees of freedom err upwards."""
    rng, deviations = np.random.RandomState(0), {"mean": [1.0], "mean over tasks": [1.0, 3.0]}.get(of, [1.0, 2.0])
    arrays = [rng.normal(0, deviation, (1500, seeds)) for deviation in deviations]
    samples = [[x] for x in arrays] if of == "difference" else [arrays]
    statistic = comparisons.difference if of == "difference" else estimates.mean
    low, high = estimates.percentile_interval(estimates.distribution(statistic, samples, draws=300)[1])
    covered = ((low <= 0) & (0 <= high)).mean()
    assert 0.93 < covered < 0.975


def test_the_evidence_of_means_is_the_t_test():
    x, y = np.random.RandomState(0).normal(size=(2, 6)) * [[1.0], [3.0]]
    value, low, high = estimates.evidence(estimates.mean, [[x]]).estimate
    expected = stats.t.interval(0.95, 5, x.mean(), stats.sem(x))
    assert value == pytest.approx(x.mean()) and (low, high) == pytest.approx(expected, abs=5e-3)
    found, expected = estimates.evidence(comparisons.difference, [[x], [y]]), stats.ttest_ind(x, y, equal_var=False)
    assert found.estimate[1:] == pytest.approx(tuple(expected.confidence_interval()), abs=5e-3)
    assert min(estimates.p_values(found.draws, "more")) == pytest.approx(expected.pvalue, abs=1e-3)


def test_kendall_of_planted_and_null_relations():
    rng = np.random.RandomState(0)
    levels, batches = [8, 16, 32, 8, 8], [1, 2, 4, 2, 4]
    up = [[rng.normal(level, 0.1, 5) for level in levels] for _ in range(4)]
    assert estimates.kendall(levels, up).estimate == (1.0, 1.0, 1.0)
    value, low, high = estimates.kendall(levels, [[-x for x in group] for group in up]).estimate
    assert (value, low, high) == (-1.0, -1.0, -1.0)
    value, low, high = estimates.kendall(levels, [[rng.normal(0, 1, 5) for _ in levels] for _ in range(4)]).estimate
    assert low < 0 < high and low < value < high
    # what follows the batch alone correlates with N, but not at a fixed batch
    batch = [[rng.normal(0, 0.1, 5) + b for b in batches] for _ in range(4)]
    assert estimates.kendall(levels, batch).estimate.low > 0.3
    value, low, high = estimates.kendall(levels, batch, batches).estimate
    assert low < 0 < high
    assert estimates.kendall(levels, [[np.full(5, 2.0)] * 5]).estimate == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    "low, high, side, margin, word",
    [
        (0.1, 0.3, "more", 0, "supported"),
        (-0.3, -0.1, "more", 0, "contradicted"),
        (-0.1, 0.3, "more", 0, "undecided"),
        (-0.3, -0.1, "less", 0, "supported"),
        (0.1, 0.3, "less", 0, "contradicted"),
        (-0.1, 0.1, "less", 0, "undecided"),
        (-0.05, 0.08, "little", 0.1, "supported"),
        (0.15, 0.2, "little", 0.1, "contradicted"),
        (-0.2, -0.15, "little", 0.1, "contradicted"),
        (0.05, 0.2, "little", 0.1, "undecided"),
        (-0.05, 0.5, "not less", 0.1, "supported"),
        (-0.5, -0.2, "not less", 0.1, "contradicted"),
        (-0.2, 0.5, "not less", 0.1, "undecided"),
        (0.0, 0.0, "more", 0, "undecided"),
        (np.nan, np.nan, "more", 0, "undecided"),
        (np.nan, np.nan, "little", 0.1, "undecided"),
    ],
)
def test_verdicts(low, high, side, margin, word):
    assert estimates.verdict(low, high, side, margin) == word


def test_the_regression_estimate_of_57_games():
    for weights in (training_runs.ATARI_10, training_runs.ATARI_5):  # human everywhere: 101^(sum of the weights) - 1
        estimate = training_runs.median_57([np.ones(3)] * len(weights), list(weights), weights)
        assert estimate == pytest.approx(101 ** sum(weights.values()) - 1)
    assert training_runs.median_57([np.full(3, -1.0)] * 5, list(training_runs.ATARI_5), training_runs.ATARI_5) == 0


# ---- reading ---------------------------------------------------------------------------------------------------------
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
    found, unread = training_runs.read_runs(runs)
    with_curves = sorted((run.task, run.arguments["seed"]) for run in found if run.curves)
    assert with_curves == [("Breakout", 1), ("Breakout", 2)]
    partial = next(run for run in found if run.name == "partial").arguments
    assert (partial["num_envs"], partial["num_steps"], partial["minibatch_size"]) == (8, 128, 256)
    assert [line.split(":")[0] for line in unread] == ["broken", "odd"]


def test_hours_count_only_the_time_that_the_run_ran():
    steps = np.array([100, 200, 300])
    curves = {"charts/SPS": (steps, np.array([1.0, 2.0, 4.0])), "charts/gradient_steps": (steps, np.array([5, 10, 15]))}
    run = training_runs.TrainingRun("", "", "", {}, curves, {})
    assert run.on_axis(np.array([100, 150, 300]), "hours") * 3600 == pytest.approx([100, 125, 175])
    assert run.on_axis(np.array([50, 300]), "gradient_steps") == pytest.approx([2.5, 15])
    arguments = {"num_envs": 2, "num_steps": 5, "update_epochs": 3, "num_minibatches": 4}
    run = training_runs.TrainingRun("", "", "", arguments, {}, {})
    assert run.on_axis(np.array([100]), "gradient_steps") == [120]


# ---- what a sweep states ---------------------------------------------------------------------------------------------
def stand_in(tmp_path):
    """A Python that runs modules, and that in place of launch.py prints what it gets."""
    stub = tmp_path / "python"
    stub.write_text(f"#!/bin/sh\n[ $1 = -m ] && exec {sys.executable} $@\nexec cat\n")  # support.catalog runs
    stub.chmod(0o755)
    return {"PATH": os.environ["PATH"], "PYTHON": str(stub), "SEEDS": "1"}


@pytest.mark.parametrize("flags,rates", [("", {2.5e-4, 3e-4}), ("--learning-rate 1e-3", {1e-3})])
def test_a_sweep_names_the_rate_of_small_tasks(tmp_path, flags, rates):
    """The script's default would depend on what the sweep varies."""
    env = {**stand_in(tmp_path), "GAMES": "CartPole-v1 CheetahRun-v1 Pong-v5", "FLAGS": flags}
    words = ["bash", str(ROOT / "sweeps/fixed_budget.sh")]
    text = subprocess.run(words, capture_output=True, text=True, check=True, env=env).stdout
    lines = [line for line in text.splitlines() if "ppo_envpool.py" in line]
    assert {line.count("--learning-rate") for line in lines} == {1} and lines[0].startswith("# base")
    assert {parse_flags(line.split()[2:])["learning_rate"] for line in lines} == rates
    assert flags or "--learning-rate" not in "".join(line for line in text.splitlines() if line not in lines)


@pytest.mark.parametrize("sweep", sweeps.names())
def test_a_sweep_states_a_base_that_it_runs_and_all_that_it_varies(tmp_path, sweep):
    """Of its commands, as they would reach the launcher."""
    text = subprocess.run(
        ["bash", str(ROOT / "sweeps" / f"{sweep}.sh")],
        capture_output=True,
        text=True,
        check=True,
        env={**stand_in(tmp_path), "FULL": "1"},
    ).stdout
    stated = statement.parse(text.splitlines(), parse_flags)
    by_script = {}
    for words in (line.split() for line in text.splitlines() if not line.startswith("#")):
        arguments = parse_flags(words[2:])
        defaults = reading.default_arguments(str(ROOT / words[1]), arguments["env_id"])
        full = training_runs.fill_in({**defaults, **arguments})
        by_script.setdefault(words[1].removesuffix(".py"), []).append(full)
    assert set(stated["base"]) >= set(by_script)  # GAMES may bring other scripts
    own = set(sweeps.load(sweep).VARIES)  # where the runs have no sweep.json
    assert own <= set(stated["varies"]) <= own | {"num_minibatches"}, "the shell file and the module say the same"
    for script, runs in by_script.items():
        of_game = [run for run in runs if run["env_id"] == runs[0]["env_id"]]
        varied = training_runs.differing_arguments([of_game])
        assert varied <= set(stated["varies"])
        for name in ("num_envs", "num_steps"):
            assert (len({run[name] for run in of_game}) > 1) == (name in stated["varies"])
        defaults = reading.default_arguments(str(ROOT / f"{script}.py"), runs[0]["env_id"])
        base = training_runs.fill_in({**defaults, **stated["base"][script]})
        assert training_runs.configuration(base, varied) in {
            training_runs.configuration(run, varied) for run in of_game
        }


def test_the_launcher_keeps_what_a_sweep_states_beside_its_runs(tmp_path):
    run = tmp_path / "mine" / "a"
    run.mkdir(parents=True)
    (run / "done.json").write_text("{}")
    statement.record(tmp_path / "mine", {"base": {"ppo_procgen": {"num_envs": 64}}, "varies": ["gamma"]})
    command = f"python ppo_atari_envpool.py --run-name mine/a --runs-dir {tmp_path}"
    lines = f"# base ppo_atari_envpool.py --num-envs 4 --gamma 0.9\n# varies num_envs\n# a remark\n{command}\n"
    words = [sys.executable, str(ROOT / "scripts" / "launch.py")]
    done = subprocess.run(words, input=lines, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert statement.read(tmp_path / "mine") == {
        "base": {"ppo_procgen": {"num_envs": 64}, "ppo_atari_envpool": {"num_envs": 4, "gamma": 0.9}},
        "varies": ["gamma", "num_envs"],
    }
    (tmp_path / "mine" / statement.NAME).write_text('{"base": [], "varies": 3}')
    assert statement.read(tmp_path / "mine") == statement.read(tmp_path) == {"base": {}, "varies": []}


# ---- configurations -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "n_by_ts, expected",
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
def test_the_base(tmp_path, n_by_ts, expected):
    for i, (N, T) in enumerate(n_by_ts):
        write_run(tmp_path / str(i), 1.0, num_envs=N, num_steps=T, points=1)
    runs, _ = training_runs.read_runs(tmp_path)
    suite = Suite("fixed_budget", "ppo_atari_envpool", runs)
    assert (suite.base["num_envs"], suite.base["num_steps"]) == expected
    suite = Suite("fixed_budget", "ppo_atari_envpool", runs, bases=n_by_ts[-1:])
    assert (suite.base["num_envs"], suite.base["num_steps"]) == n_by_ts[-1]


def test_a_parent_is_the_run_with_the_longest_end_of_its_path():
    """Also where the directories have moved, and another run has the same name somewhere else."""
    by_name = {name: SimpleNamespace(name=name, arguments={}) for name in ("b", "a/b", "c")}
    by_name["c"].arguments["resume_from"] = "runs/sweep/a/b"
    assert parents_of(by_name.values()) == {"c": by_name["a/b"]}


def test_configurations_are_what_differs_within_a_game(tmp_path):
    for game, rate in (("Breakout", 1e-4), ("Pong", 2e-4)):  # differs by task: no configuration
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
    runs, _ = training_runs.read_runs(tmp_path)
    suite = Suite("data_reuse", "ppo_atari_envpool", runs)
    assert suite.varies == ("num_envs", "num_steps", "update_epochs") and len(suite.configs) == 2
    assert suite.base["update_epochs"] == 4


@pytest.mark.parametrize(
    "others, names",
    [
        ([{"num_minibatches": 4}, {"num_minibatches": 8}], {"num_minibatches"}),
        (
            [{"minibatch_size": 32, "num_minibatches": 4}, {"minibatch_size": 16, "num_minibatches": 8}],
            {"minibatch_size"},
        ),
        ([{"minibatch_size": 32, "num_minibatches": 4}, {"minibatch_size": 64, "num_minibatches": 4}], set()),
        ([{"gamma": 0.9}, {}], {"gamma"}),
        ([{"sizes": [1]}, {"sizes": [2]}], {"sizes"}),
        ([{"eval_episodes": 0}, {"eval_episodes": 100}], set()),
        ([{"seed": 1, "run_name": "a", "num_threads": 1}, {"seed": 2, "run_name": "b", "num_threads": 2}], set()),
    ],
)
def test_arguments_that_make_configurations(others, names):
    runs = [{"num_envs": 8 * (i + 1), "num_steps": 16, **other} for i, other in enumerate(others)]
    assert training_runs.differing_arguments([runs]) == names
    assert training_runs.differing_arguments([runs[:1], runs[1:]]) == set()  # each on a task of its own
    one, other = (training_runs.configuration(run, names) for run in runs)
    assert one != other and len({one, other}) == 2 and one.batch_size == 128
    assert other.replace(**dict(one.items)) == one


def test_scores_of_each_kind_of_script(tmp_path):
    """Human-normalised on Atari, R_min and R_max on Procgen, else multiples of the base's mean final return."""
    for seed, score in enumerate((0.5, 1.5)):
        write_run(tmp_path / f"a{seed}", score, seed=seed)
        write_run(tmp_path / f"p{seed}", 20 * score, seed=seed, script="ppo_procgen", game="bigfish")
        for N in (8, 16):
            write_run(tmp_path / f"c{N}{seed}", 100 * score * N / 8, seed=seed, game="CartPole-v1", num_envs=N)
    runs, _ = training_runs.read_runs(tmp_path)
    by_task = {task: [run for run in runs if run.task == task] for task in ("Breakout", "bigfish", "CartPole-v1")}
    atari = Suite("any", "ppo_atari_envpool", by_task["Breakout"])
    assert atari.values(atari.base, "Breakout") == pytest.approx([0.5, 1.5])
    procgen = Suite("any", "ppo_procgen", by_task["bigfish"])
    assert procgen.values(procgen.base, "bigfish") == pytest.approx([9 / 39, 29 / 39])
    cartpole = Suite("any", "ppo_atari_envpool", by_task["CartPole-v1"])
    assert cartpole.values(cartpole.configs[1], "CartPole-v1") == pytest.approx([1.0, 3.0])
    assert cartpole.tasks == ["CartPole-v1"]


def test_before_the_first_finished_game_a_run_counts_as_the_random_policy(tmp_path):
    """Breakout's random policy has 1.7, a score of 0. The second run has diverged before any game has ended."""
    write_run(tmp_path / "a", 1.0, points=2)  # the first game ends at half the budget
    write_run(tmp_path / "b", 1.0, seed=2, done=False)
    (tmp_path / "b" / "failed.json").write_text('{"global_step": 512}')
    write_curves(tmp_path / "b", [(512, {"charts/SPS": 1.0})])
    runs, _ = training_runs.read_runs(tmp_path)
    suite = Suite("any", "ppo_atari_envpool", runs)
    area = np.interp(np.arange(1, 101) / 100, [0.5, 1], [0.5**0.5, 1], left=0).mean()
    assert suite.values(suite.base, "Breakout", "area") == pytest.approx([area, 0])
    assert suite.values(suite.base, "Breakout", "half") == pytest.approx([0.5**0.5, 0])
