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
