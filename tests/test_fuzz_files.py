"""Random damage to the files of runs: each is read, or refused in one line that names it, and the others are read.

The seed is fixed: the same files every time. By hand, 1,000 of each kind:

    FUZZ_FILES=1000 FUZZ_SEED=2 python -m pytest -s tests/test_fuzz_files.py
"""

import contextlib
import copy
import io
import json
import os
import random

import pytest
from planted_runs import draw, write_run  # puts scripts/ on the path

# isort: split
import figures
from analysis import page, statement

from support import reading

FILES, SEED = int(os.environ.get("FUZZ_FILES", 100)), os.environ.get("FUZZ_SEED", "1")
ABSURD = [
    *(None, True, False, 0, 1, -1, 8, 2**31, 2**63, -(2**63), int("9" * 400), 0.5, 1e-320, 1.7e308),
    *(float("nan"), float("inf"), float("-inf"), "", " ", "0", "nan", "x" * 2000, "a\nb", "\0", "\x1b[31m", "\ud800"),
    *("$x$", "$", "\\", "%s", "{}", "<b>&", "💥", "٣", "../x", "a b", "Breakout-v5", "noise", "0:8x16", "1:2:3"),
    *("noise:8-4x1", "0:" + "9" * 50000, "9" * 5000, "ppo_envpool.py '", "no_such_script.py"),
    *([], [[]], [None], [1, 2], ["x"], [1, [2]], {}, {"": 1}, {"global_step": 1}, {"commit": 5}),
]
CELLS = ["", " 1", *'nan inf -inf 1e39 1e300 1e999 1_0 0x1 -1 0 x " 1,1 \0'.split(" "), "9" * 400]
CELLS += ["128", "step", "wall_time", "run", "charts/episodic_return", "$x$", "\udcff", "\r", "\n", "#", "1.5", "True"]


def places(content, path=()):
    """The path of every value inside a JSON value."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


def damaged_json(rng, text):
    """The text of a JSON file with a value or two that were never in it, without a field, or with bytes damaged."""
    if rng.random() < 0.1:
        place = rng.randrange(len(text))
        return (text[:place] + rng.choice(["", "\0", "{", "[" * 5000, ",", '"'] + [text[place + 1 :]])).encode()
    content = copy.deepcopy(json.loads(text))
    for _ in range(rng.choice((1, 1, 1, 2))):
        found = list(places(content))
        *path, key = rng.choice(found) if found else ("x",)
        inner = content
        for step in path:
            inner = inner[step]
        value = copy.deepcopy(rng.choice(ABSURD))
        if isinstance(inner, dict) and rng.random() < 0.15:
            inner[rng.choice(["x", "", "score", "run", "state", "parent", "git", "\ud800", "a\nb", "$x$"])] = value
        elif rng.random() < 0.1:
            del inner[key]
        else:
            inner[key] = value
    return json.dumps(rng.choice(ABSURD) if rng.random() < 0.02 else content).encode()


def damaged_csv(rng, text):
    """The text of a curves.csv with other cells, rows in another order, or bytes damaged."""
    rows = [line.split(",") for line in text.splitlines()]
    for _ in range(rng.choice((1, 1, 2, 5))):
        row = rng.choice(rows[:1] + rows)
        row[rng.randrange(len(row))] = rng.choice(CELLS)
    if rng.random() < 0.1:
        rng.shuffle(rows)
    if rng.random() < 0.1:
        rows.append(list(rng.choice(rows)))
    content = "".join(",".join(row) + "\n" for row in rows).encode(errors="surrogateescape")
    return content[: rng.randrange(len(content))] if rng.random() < 0.1 else content


def sweep_of(folder, **more):
    """A sweep of two N x T with a file of each kind."""
    for seed in (1, 2):
        for num_envs in (8, 16):
            write_run(
                folder / f"{num_envs}_{seed}", 1.0, num_envs=num_envs, num_steps=128 // num_envs, seed=seed, **more
            )
    base = {"ppo_atari_envpool": {"num_envs": 8, "num_steps": 16}}
    statement.record(folder, {"base": base, "varies": ["num_envs", "num_steps"]})


MORE = {  # what a run's own files have beside those of write_run
    "manifest.json": {
        "git": {"commit": "0123abc", "dirty": True},
        "versions": {"python": "3.11.7", "torch": "2.13.0"},
        "device": "cpu",
        "threads": 1,
        "start": "2026-11-26T00:00:00+0000",
    },
    "done.json": {"wall_seconds": 2.0, "sps": 512.5, "final_return_ci": [40.0, 50.0], "final_episodes": 20},
}
ARGUMENTS = dict(
    schedule=None, learning_rate=2.5e-4, gamma=0.99, minibatch_size=32, num_minibatches=4, hidden_sizes=[8]
)
ARGUMENTS.update(anneal_lr=True, activation="relu", update_epochs=4, resume_from=None)


def everything(folder):
    """What the programs make of a sweep's directory: the table of its runs, and its figures' numbers and report.

    Without the file that is damaged the numbers are always the same: they are left out.
    """
    args = figures.parse_args(["mine", "--runs", str(folder), "--out", str(folder), "--reps", "10", "--no-images"])
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        runs, curves = reading.load(folder, curves=True)
        runs.to_csv(io.BytesIO(), index=False), curves.to_csv(io.BytesIO(), index=False)
        ((_, found, unread),) = figures.read(args).values()
        stated, html = statement.read(folder), ""
        if not unread and stated["base"]:
            tested = figures.suites_and_claims("mine", found, stated, args)
            figures.print_tables("mine", tested, unread, args)
            html = page.html("mine", "", tested, unread, [], "")
    (html + "".join(unread) + out.getvalue()).encode()
    return runs, found, unread, err.getvalue()


@pytest.mark.parametrize("name", ["manifest.json", "done.json", "sweep.json", "curves.csv"])
def test_damaged_files_are_read_or_named_in_one_line(name, tmp_path):
    sweep_of(tmp_path, final=1.0, **ARGUMENTS)
    victim = tmp_path if name == "sweep.json" else tmp_path / "16_2"
    for other, fields in MORE.items():
        path = tmp_path / "16_2" / other
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    text, rng, refused, problems = (victim / name).read_text(), random.Random(f"{SEED} {name}"), 0, []
    for _ in range(FILES):
        damage = (damaged_csv if name == "curves.csv" else damaged_json)(rng, text)
        (victim / name).write_bytes(damage)
        try:
            runs, found, unread, err = everything(tmp_path)
            lines = [line for line in err.splitlines() if line.startswith("note: ")] + unread
            assert len(runs) >= 3 and len(found) >= 3, "the others are not read"
            assert err.count("\n") == err.count("note: ") and all(name in line for line in lines), lines
            # a schedule that is none is only text to the table
            assert bool(unread) == (len(found) == 3) and len(runs) >= len(found), (lines, len(runs), len(found))
            refused += bool(lines)
        except Exception as error:
            problems.append(f"{damage[:1500]!r}\n{type(error).__name__}: {error}"[:3000])
            if os.environ.get("FUZZ_TRACE"):
                raise
    print(f"{name}: {refused} of {FILES} refused, {len(problems)} problems")
    assert not problems, f"{len(problems)} of {FILES}\n\n" + "\n\n".join(problems[:10])
    assert 0 < refused < FILES


def test_a_value_that_would_be_a_formula_is_drawn_as_it_is(tmp_path):
    sweep_of(tmp_path / "runs", **ARGUMENTS)
    for path in tmp_path.glob("runs/16_*/manifest.json"):
        path.write_text(path.read_text().replace('"relu"', r'"$\\fra{x}$"'))
    draw("mine", tmp_path / "runs", tmp_path, images=True, reps=20)
    assert list(tmp_path.glob("mine*.png"))
