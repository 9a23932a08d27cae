"""docs/data.md: its Python prints what stands behind it, and its columns are those of the table of runs.

`PYTHONPATH=.:scripts python tests/test_data.py` writes what is printed today.
"""

import contextlib
import io
import re
from pathlib import Path

from analysis import experiment

from support import reading

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "data.md"
BLOCK = re.compile(r"(```python\n(.*?)```\n)(\n```text\n.*?```\n)?", re.S)


def with_outputs(text):
    """The page with what each block of Python prints, in one session."""
    names = {}

    def run(found):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(found[2], names)
        output = "".join(f"{line.rstrip()}\n" for line in printed.getvalue().splitlines())
        return found[1] + (f"\n```text\n{output}```\n" if output else "")

    return BLOCK.sub(run, text)


def test_the_five_questions_are_answered(monkeypatch):
    monkeypatch.chdir(ROOT)
    text = PAGE.read_text()
    assert text.count("```text") == 5
    assert with_outputs(text) == text, "run `PYTHONPATH=.:scripts python tests/test_data.py`"


def test_a_setting_and_seed_has_one_row_and_a_task_one_name():
    runs = reading.load(ROOT / "results" / "runs.csv.gz")
    assert not runs.duplicated(["script", "game", "seed", *experiment.SETTING]).any()
    assert (runs.groupby("env_id").game.nunique() == 1).all()
    assert "64 64" not in set(runs.hidden_sizes)  # the default is empty
    both = experiment.read_dataset(experiment.DATASET)
    assert both.duplicated(["script", "game", "seed", *experiment.SETTING]).sum() == len(both) - len(runs) > 0


def test_the_page_has_the_columns_in_their_order():
    table = PAGE.read_text().split("## Columns")[1].split("Behind these")[0]
    explained = [name for line in table.splitlines() for name in re.findall(r"`(\w+)`", line.split(" | ")[0])]
    assert tuple(explained) == reading.COLUMNS


def test_every_column_is_explained():
    runs = reading.load(ROOT / "results" / "runs.csv.gz")
    table = PAGE.read_text().split("## Columns")[1].split("**What is empty.**")[0]
    explained = {name for line in table.splitlines() for name in re.findall(r"`(\w+)`", line.split(" | ")[0])}
    quarters = {f"{name}{q}" for name in ("return_", "signal_", "noise_") for q in (1, 2, 3, 4)}
    assert explained - {"return_q", "signal_q", "noise_q"} | quarters == set(runs.columns)


if __name__ == "__main__":
    PAGE.write_text(with_outputs(PAGE.read_text()))
