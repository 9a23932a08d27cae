"""results/toy_outer_loop/toy_outer_loop.py against P3's plateau, and its picture from its table alone."""

import numpy as np
import pandas as pd
import pytest
from conftest import study

toy = study("toy_outer_loop", "toy_outer_loop")


def test_paths_follow_the_formula_to_its_plateau(tmp_path, capsys):
    words = "--step-sizes 0.3 0.05 0.001 --samples 9 1 --steps 200 --paths 150 --out".split()
    args = toy.parse_args([*words, str(tmp_path)])
    toy.main(args)
    table, lines = pd.read_csv(tmp_path / "toy_outer_loop.csv"), capsys.readouterr().out.splitlines()
    for h in (0.05, 0.3):
        for samples in (1, 9):
            (row,) = toy.select(table, toy.MEASURED, step_size=h, samples=samples).itertuples()
            assert row.value == pytest.approx(9 * h / (4 * (1 - h)) / samples, rel=0.05)
            assert row.ci_low < row.value < row.ci_high < 1.05 * row.value
            curves = [
                toy.select(table, quantity, step_size=h, samples=samples)
                for quantity in (toy.EXPECTED, "root mean square")
            ]
            assert np.allclose(*(curve["value"] for curve in curves), rtol=0.06)
            assert curves[1]["value"].iloc[0] == pytest.approx(50**0.5, rel=1e-4)
    late = [line.split()[:2] for line in lines if "not reached" in line]
    assert late == [["0.001", "1"], ["0.001", "9"]]
    assert (tmp_path / "toy_outer_loop.png").stat().st_size > 20_000
