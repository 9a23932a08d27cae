"""results/answers.py: the committed verdicts and the picture follow from the committed scores."""

import re
import shutil
import sys

import numpy as np
import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "results"))
import answers


@pytest.mark.parametrize("experiment", answers.EXPERIMENTS)
def test_a_result_is_made_again_from_its_csv(experiment, tmp_path, capsys):
    for path in (ROOT / "results" / experiment).glob("s*.csv"):  # scores.csv, of advise searches.csv too
        shutil.copy(path, tmp_path)
    answers.main([experiment, "--out", str(tmp_path)])
    output, verdicts = capsys.readouterr().out, (tmp_path / "verdicts.csv").read_text()
    assert verdicts == (ROOT / "results" / experiment / "verdicts.csv").read_text()
    assert (tmp_path / "scores.png").stat().st_size > 10000
    for name in [line.split(",")[0] for line in verdicts.splitlines()[1:]]:  # each claim has a row in CLAIMS.md
        assert name in (ROOT / "results" / "CLAIMS.md").read_text() and name in output


def test_a_seed_counts_only_if_every_configuration_has_it(tmp_path, capsys):
    rows = (ROOT / "results/shape/scores.csv").read_text().splitlines()
    kept = [row for row in rows if not re.match("Acrobot-v1,([5-9]|10),8,128,", row)]
    (tmp_path / "scores.csv").write_text("\n".join(kept))
    answers.main(["shape", "--out", str(tmp_path)])
    output = capsys.readouterr().out
    assert "S4" in output and "4 seeds: too few seeds" in output


def test_the_curvature_of_known_parabolas():
    """Two games with coefficients -2 and 1 of the square, at other tops: the mean is -0.5, also of several draws."""
    ddr = np.exp(np.linspace(-1, 2, 4 * 3 * 5).reshape(4, 3, 5))  # configurations, draws, seeds
    games = [-2 * (np.log(ddr) - 0.5) ** 2 + 1, (np.log(ddr) + 3) ** 2]
    samples = [[np.stack([game[i], ddr[i]]) for game in games] for i in range(4)]
    assert answers.curvature(samples) == pytest.approx([-0.5] * 3)


def test_the_top_moves_as_planted():
    """In one game the best configuration goes from a DDR of 1 to e^2, in the other it stays: the mean move is 1.

    A game in which no run has ended early leaves the first configuration; a NaN counts for nothing.
    """
    ddr = np.exp([[0.0, 0.0], [2.0, 2.0], [1.0, 1.0]])
    early, late = [[5, 5], [1, np.nan], [0, 2]], [[5, 5], [6, 8], [0, 2]]
    moves = np.stack([ddr, ddr, np.array(early), np.array(late)], axis=1)
    stays = np.stack([ddr, ddr, np.array(early), np.array(early)], axis=1)
    samples = [[moves[i], stays[i]] for i in range(3)]
    assert answers.move_of_the_top(samples) == pytest.approx(1)


def test_the_three_ways_are_told_apart(tmp_path, capsys):
    """At N = 128 more minibatches have 0.8, bigger ones 0.1, with the root of the rate 0.6; at N = 2: 0.4, 0.9, 0.7.

    The noise scale is 200 environments in one game, where many have the largest return, and 2 in the other.
    """
    ways = {(8, 64, 2.5e-4): 0.5}
    ways |= {(128, 64, 2.5e-4): 0.8, (128, 1024, 2.5e-4): 0.1, (128, 1024, 1e-3): 0.6}
    ways |= {(2, 64, 2.5e-4): 0.4, (2, 16, 2.5e-4): 0.9, (2, 16, 1.25e-4): 0.7}
    parts = [f"{part}_{q}" for q in answers.QUARTERS for part in ("return", "signal", "noise")]
    rows = [
        ",".join(["game", "seed", "num_envs", "minibatch_size", "learning_rate", "score", "ddr", "ddr_mean", *parts])
    ]
    rng = np.random.default_rng(0)
    for game, sign in (("Acrobot-v1", 1), ("CartPole-v1", -1)):
        for (num_envs, size, rate), score in ways.items():
            for seed in range(1, 6):
                own = [num_envs * sign if size == 64 else 0, 1, 32 * 20 * 10**sign] * len(answers.QUARTERS)
                values = [num_envs, size, rate, score + rng.normal(0, 0.01), *rng.uniform(1e4, 1e5, 2), *own]
                rows.append(",".join(map(str, [game, seed, *values])))
    (tmp_path / "scores.csv").write_text("\n".join(rows))
    answers.main(["outer_loop", "--out", str(tmp_path)])
    output = capsys.readouterr().out
    found = {
        name: float(re.search(rf"^{name}.*?: ([-+][\d.]+) \[", output, re.MULTILINE)[1]) for name in ("O1", "O2", "O5")
    }
    assert found == pytest.approx({"O1": 0.7, "O2": 0.2, "O5": -0.5}, abs=0.02)
    assert "Acrobot-v1, quarter 1: noise scale 200 environments, best N 128" in output
    assert "CartPole-v1, quarter 1: noise scale 2 environments, best N 2" in output and "+1.000" in output


def test_the_rates_find_a_planted_difference(tmp_path, capsys):
    """The base is best at 2.5e-4, more minibatches at 1e-3 and 0.3 higher, bigger ones at 1e-3 and 0.1 higher."""
    best = {(8, 64): (2.5e-4, 0.5), (128, 64): (1e-3, 0.8), (128, 1024): (1e-3, 0.6)}
    rng = np.random.default_rng(0)
    rows = ["game,seed,num_envs,minibatch_size,learning_rate,score"]
    for (num_envs, size), (at, top) in best.items():
        for rate in [1.25e-4, 2.5e-4, 5e-4, 1e-3] + [2e-3, 4e-3] * (size == 1024):
            for seed in range(1, 7):
                score = top - 0.2 * abs(np.log2(rate / at)) + rng.normal(0, 0.02)
                rows.append(f"CartPole-v1,{seed},{num_envs},{size},{rate},{score}")
    (tmp_path / "scores.csv").write_text("\n".join(rows))
    answers.main(["rates", "--out", str(tmp_path)])
    found = {line.split("*")[0]: line for line in capsys.readouterr().out.splitlines()}
    values = {name: float(re.search(r": ([-+][\d.]+) \[", found[name])[1]) for name in ("U1", "U2", "U3", "U4")}
    assert values == pytest.approx({"U1": 0.2, "U2": 0.3, "U3": 0, "U4": -0.4}, abs=0.05)
    assert ": supported" in found["U1"] and ": supported" in found["U3"] and ": not supported" in found["U4"]
