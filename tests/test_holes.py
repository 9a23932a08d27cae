"""Sweeps and studies with holes, as experiments have them by nature: every figure and every claim says what is there.

A diverged run, a missing seed, a missing setting, a missing curve, a task of one seed.
"""

import math
import types
import warnings

import figures
import judge
import numpy as np
import pytest
from analysis import comparisons, estimates, experiment, statement, sweeps
from analysis.claims import Claims
from analysis.drawing import diagnostics_panels
from analysis.scores import NoScores, Scores
from analysis.suite import DIAGNOSTICS
from papers import scaling_data
from planted_runs import write_run
from test_figures import GRIDS

from support import catalog

SEEDS = (1, 2, 3, 4)
OTHER = {  # a second task of each script
    "ppo_procgen": "coinrun",
    "ppo_envpool": "Acrobot-v1",
    "ppo_isaacgym": "Mjlab-Cartpole-Swingup",
}
CURVES = ("outer/", "diagnostics/", "probe/", "charts/episodic_return", "charts/gradient_steps")


def plant(root, sweep, missing, without=()):
    """The runs of a sweep in two tasks. missing: {(task, setting, seed)}, each counted from 0, that do not exist.

    without: starts of the tags that the last setting's first run lacks. Its second run has diverged.
    """
    script, games, grid = GRIDS.get(sweep, GRIDS["scaling_data"])
    games = [games[0], *games[1:2]] if len(games) > 1 else [games[0], OTHER.get(script, "Seaquest")]
    for task, game in enumerate(games):
        for setting, args in enumerate(grid):
            for seed in SEEDS:
                if (task, setting, seed) in missing:
                    continue
                scalars = {
                    f"{place}/{name}": setting + seed / 9 for place in ("diagnostics", "probe") for name in DIAGNOSTICS
                }
                scalars |= {"outer/ddr": 1000.0 * (setting + 1) * seed}
                scalars |= {tag: 1.0 for tag, _ in scaling_data.UNSEEN[1:] if script == "ppo_procgen"}
                scalars |= {f"outer/grad_noise_scale/{part}": float(seed) for part in ("signal", "noise")}
                last = task == 0 and setting == len(grid) - 1
                path = write_run(
                    root / f"{task}_{setting}_{seed}",
                    1.0 + setting / 5 + seed / 100,
                    game=game,
                    script=script,
                    seed=seed,
                    scalars=scalars,
                    done=not (last and seed == 2),
                    **args,
                )
                if last and seed == 2:
                    (path / "failed.json").write_text('{"tensor": "logits", "global_step": 640}')
                if last and seed == 1 and without:
                    rows = [line.split(",") for line in (path / "curves.csv").read_text().splitlines()]
                    kept = [i for i, tag in enumerate(rows[0]) if not tag.startswith(without)]
                    (path / "curves.csv").write_text("".join(",".join(row[i] for i in kept) + "\n" for row in rows))


def claims_of(sweep, root, out):
    args = figures.parse_args([sweep, "--runs", str(root), "--out", str(out), "--reps", "20"])
    (_, runs, unread) = figures.read(args)[sweep]
    assert not unread
    return figures.suites_and_claims(sweep, runs, statement.read(args.runs), args)


@pytest.mark.parametrize("sweep", sweeps.names())
def test_a_sweep_with_holes(sweep, tmp_path):
    """Its claims are made, its tables printed and its images drawn, whichever of its runs are not there."""
    count = len(GRIDS.get(sweep, GRIDS["scaling_data"])[2])
    last = count - 1
    holes = {
        "a seed and curves": ({(0, last, 4)}, CURVES),
        "a setting in one task": ({(1, last, seed) for seed in SEEDS}, ()),
        "one seed": ({(1, setting, seed) for setting in range(count) for seed in SEEDS[1:]}, ()),
    }
    if last:
        holes["a setting"] = {(task, last, seed) for task in (0, 1) for seed in SEEDS}, ()
        holes["a setting in either task"] = {x for seed in SEEDS for x in ((0, last, seed), (1, 0, seed))}, ()
    for name, (missing, without) in holes.items():
        plant(tmp_path / name, sweep, missing, without)
        tested = claims_of(sweep, tmp_path / name, tmp_path)
        for suite, claims in tested:
            assert len(list(claims.rows())) == len(claims) and list(figures.report(suite, claims, "", True))
            for claim in claims:
                said = claim.tested.why or claim.tested.remark or claim.needs
                assert np.isfinite(claim.estimate.value) or said, (name, claim.text)
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # such as NumPy's, of a mean over no runs
                for config in suite.configs:
                    suite.aggregate(config, "steps")
        if name == "a seed and curves":
            check_images(sweep, figures.sheets_of(sweep, tested, "steps"))


def check_images(sweep, sheets):
    names = set()
    for name, sheet in sheets:
        names.add(name)
        used = [ax for ax in sheet.axes.flat if ax.axison]
        assert all(ax.lines or ax.collections or ax.texts for ax in used)  # a text says why a panel is empty
        has_runs = name != "decoupled_games"  # those have separate encoders
        assert any(ax.lines or ax.images for ax in used) == bool(sheet.rows) == has_runs
        assert sheet.figure.get_figheight() <= 9
        sheet.close()
    assert {sweep, f"{sweep}_profiles"} - {"coverage"} <= names and (f"{sweep}_unseen" in names) == (sweep == "procgen")


def test_diagnostics_that_cannot_be_compared_are_named(tmp_path):
    """One is 0 at the base, one is not in all settings: rows of the claims say so, and the image has no empty panel."""
    dormant, rank = "diagnostics/dormant_neurons", "diagnostics/feature_rank"
    for setting, args in enumerate(({}, {"num_envs": 16, "num_steps": 8})):
        for seed in SEEDS:
            scalars = {"diagnostics/ess": 99.0 - setting, "probe/ess": 99.0 - setting, dormant: 0.0}
            scalars |= {rank: 5.0} if setting == 0 else {}
            write_run(tmp_path / f"runs/{setting}_{seed}", 1.0, seed=seed, scalars=scalars, **args)
    ((suite, claims),) = claims_of("fixed_budget", tmp_path / "runs", tmp_path)
    found = {claim.text: claim.tested for claim in claims}
    assert found["feature rank rises with N (full batch)"].why == "in no task do all settings have it"
    assert found["dormant neurons (%) falls with N (full batch)"].estimate.value == 0
    sheet = diagnostics_panels(suite)
    assert [axis.get_title() for axis in sheet.axes.flat] == ["100 - ESS", ""] and all(a.lines for a in sheet.axes.flat)
    note = "not drawn: feature rank: not in all settings; dormant neurons: 0 at the base"
    assert sheet.figure.get_supxlabel() == note
    sheet.close()


def test_the_outer_loop_without_its_diverged_runs_has_numbers(tmp_path):
    """Its settings have unequal seeds then: the inverted U, where its top moves, and what the noise scale predicts."""
    plant(tmp_path / "runs", "outer_loop", set())
    ((_, claims),) = claims_of("outer_loop", tmp_path / "runs", tmp_path)
    by_text = {claim.text.strip(): claim for claim in claims if not claim.task}
    for text in ("the score is an inverted U in log DDR", "the top of the U is at a higher DDR at the end"):
        whole, without = [claim for words, claim in by_text.items() if words.startswith(text)]
        assert whole.tested.why == "a run has no outer/ddr" and math.isnan(whole.estimate.value)
        assert "without the diverged runs" in without.text and np.isfinite(without.estimate.value)
    assert by_text["the noise scale predicts the best N"].tested.why in ("", "constant")


# ---- tables ----------------------------------------------------------------------------------------------------------
def test_a_claim_that_misses_scores_says_which():
    rows = [
        {"game": game, "num_envs": n, "num_steps": 8, "seed": seed, "score": float(n + seed)}
        for game in "AB"
        for n in (1, 2)
        for seed in range(10)
    ]
    table = experiment.pd.DataFrame(rows)
    scores = Scores(table[~((table["game"] == "B") & (table["num_envs"] == 2))], ("num_envs", "num_steps"))
    one, two = scores.configs
    with pytest.raises(NoScores):
        scores.sample(two)
    found = list(experiment_claims(scores, two, one).rows())
    assert [row["value"] for row in found] == ["nan", "1", "nan"] and found[0]["remark"] == "no scores of 2×8 in B"
    assert found[1]["verdict"] == "" and catalog.task_name("A") == found[1]["game"]


def test_judge_says_what_is_missing(tmp_path, monkeypatch, capsys):
    """A run without a score, fewer runs than at the last call, rows that are gone; and no row at all."""
    rows = [
        {"game": "Task", "num_envs": n, "num_steps": 8, "seed": seed, "score": n + seed / 9}
        for n in (1, 2)
        for seed in range(10)
    ]
    whole = experiment.pd.DataFrame(rows)
    code = types.SimpleNamespace(name="some", VARIES=("num_envs", "num_steps"))
    code.claims = lambda scores: two_beats_one(scores)
    monkeypatch.setattr(experiment, "runs_of", lambda code, table: table)
    says = {}
    holed = whole.assign(score=whole["score"].where((whole["seed"] != 3) | (whole["num_envs"] == 1)))
    for name, table in {"whole": whole, "holed": holed, "half": whole[whole["num_envs"] == 1]}.items():
        monkeypatch.setattr(judge, "take_in", lambda *_, table=table: table)
        if name == "half":
            with pytest.raises(SystemExit):
                judge.judge(judge.Args("some"), code, tmp_path)
        else:
            judge.judge(judge.Args("some"), code, tmp_path)
        says[name] = [line for line in "".join(capsys.readouterr()).splitlines() if line[:1] == "!" or "error" in line]
    assert says["whole"] == [] and says["holed"] == [
        "! without a score, so left out: Task num_envs=2 num_steps=8 seed 3",
        "! fewer runs than in the last means.csv: 9 of 10 of Task num_envs=2 num_steps=8",
    ]
    assert says["half"] == ["error: some: these runs allow none of its claims: expected runs of all its settings"]


def two_beats_one(scores):
    return experiment_claims(scores, *scores.configs[::-1]) if len(scores.configs) == 2 else Claims(scores)


def test_a_number_that_is_none_is_no_evidence():
    """A run without the quantity: no correlation, no best; a comparison with NaN would count as a draw, or decide."""
    whole, holed = np.arange(10.0), np.array([*np.arange(9.0), np.nan])
    lacking = estimates.kendall([1, 2], [[whole, holed]]), comparisons.effect([1, 2], [[whole, holed]])
    assert [found.why for found in lacking] == [estimates.LACKING] * 2
    rates = [2.5e-4, 5e-4, 1e-3]
    for first, second in ((holed, whole + 20), (whole + 20, holed)):
        pair = [(name, dict.fromkeys(rates, [values])) for name, values in (("a", first), ("b", second))]
        tested = comparisons.judge_best(*pair)
        assert (tested.verdict, tested.why, tested.remark) == ("undecided", estimates.LACKING, "")


def experiment_claims(scores, better, worse):
    claims = Claims(scores)
    claims.compare("two beats one", better, worse)
    return claims
