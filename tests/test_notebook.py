"""docs/demo.ipynb: its cells train, draw and test in one process, and ask `make demo`'s question."""

import json
import re
import subprocess
import sys

from conftest import ROOT, environment

NOTEBOOK = json.loads((ROOT / "docs/demo.ipynb").read_text())
CODE = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


def test_the_cells_train_draw_and_test(tmp_path):
    """With two seeds and two batches. Jupyter starts them in the notebook's folder, with a display of its own."""
    (tmp_path / "cells.py").write_text("\n\n".join(CODE))
    small = {"SEEDS": "1 2", "STEPS": "2048", "EVAL_EPISODES": "2", "FLAGS": "--num-logs 2 --no-diagnostics"}
    places = {"RUNS_DIR": str(tmp_path / "runs"), "FIGURES": str(tmp_path / "figures"), "MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, tmp_path / "cells.py"],
        cwd=ROOT / "docs",
        env=environment(**small, **places),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list((tmp_path / "runs").rglob("done.json"))) == 6
    assert (tmp_path / "figures/raise_rate.png").stat().st_size > 10_000
    verdict, about, number, *_ = done.stdout.splitlines()[-5:]
    assert re.fullmatch(r"8×128 lr .* beats 8×128 lr 2.5e-4: no verdict, it needs 10 seeds", verdict)
    assert about == "  CartPole-v1, 2,048 steps, 2 seeds" and re.fullmatch(r"  mean - .* = .*, no CI: 2 seeds", number)


def test_it_is_the_demo_and_keeps_no_outputs():
    settings = dict(re.findall(r'"([A-Z_]+)": "(.*)",', "\n".join(CODE)))
    demo = re.search(r"^DEMO +:= (.*)$", (ROOT / "Makefile").read_text(), re.M)[1]
    assert settings == {name: a or b for name, a, b in re.findall(r'([A-Z_]+)=(?:"([^"]*)"|(\S+))', demo)}
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in NOTEBOOK["cells"])
