"""results/answers.py: the committed verdicts and the picture follow from the committed scores."""

import shutil
import subprocess
import sys

from conftest import ROOT


def test_a_result_is_made_again_from_its_csv(tmp_path):
    shutil.copy(ROOT / "results" / "shape" / "scores.csv", tmp_path)
    command = [sys.executable, "results/answers.py", "shape", "--out", str(tmp_path)]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    verdicts = (tmp_path / "verdicts.csv").read_text()
    assert verdicts == (ROOT / "results" / "shape" / "verdicts.csv").read_text()
    assert (tmp_path / "scores.png").stat().st_size > 10000
    for name in [line.split(",")[0] for line in verdicts.splitlines()[1:]]:  # each claim has a row in CLAIMS.md
        assert name in (ROOT / "results" / "CLAIMS.md").read_text() and name in output
    rows = (tmp_path / "scores.csv").read_text().splitlines()
    kept = [row for row in rows if not row.startswith("Acrobot-v1,5,8,128,")]
    (tmp_path / "scores.csv").write_text("\n".join(kept))
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "S4" in output and "4 seeds: too few seeds" in output  # a seed counts only if every configuration has it
