"""The numbers of the README's table follow from results/runs.csv.gz, computed here with NumPy and csv alone."""

import csv
import gzip
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
GAMES = ("Acrobot-v1", "CartPole-v1", "MiniGrid-DoorKey-5x5")
REPS = 4000
AT_5E4 = {"schedule": ""}  # the runs of shape at this rate are those of schedule with one shape
ROWS = {  # of the README: the experiment, and what the runs of the first and of the second mean have
    "128 x 8 minus 8 x 128, rate 2.5e-4": ("shape", {"num_envs": 128}, {"num_envs": 8}, {"learning_rate": 2.5e-4}),
    "128 x 8 minus 8 x 128, rate 5e-4": (
        "schedule",
        {"num_envs": 128, "num_steps": 8},
        {"num_envs": 8, "num_steps": 128},
        AT_5E4,
    ),
    "128 x 8 minus 8 x 128, rate 1e-3": ("shape", {"num_envs": 128}, {"num_envs": 8}, {"learning_rate": 1e-3}),
    "8 epochs minus 4, at 8 x 128": (
        "reuse",
        {"update_epochs": 8},
        {"update_epochs": 4},
        {"num_envs": 8, "num_steps": 128},
    ),
    "128 x 32: 64 minibatches minus 4": (
        "outer_loop",
        {"minibatch_size": 64},
        {"minibatch_size": 1024},
        {"num_envs": 128, "learning_rate": 2.5e-4},
    ),
    "128 x 32: 64 minibatches minus 4 at 4 times the rate": (
        "outer_loop",
        {"minibatch_size": 64, "learning_rate": 2.5e-4},
        {"minibatch_size": 1024, "learning_rate": 1e-3},
        {"num_envs": 128},
    ),
    "64 x 16 minus 4 x 16, four minibatches": (
        "trend",
        {"num_envs": 64, "minibatch_size": 256},
        {"num_envs": 4, "minibatch_size": 16},
        {},
    ),
}


with gzip.open(ROOT / "results" / "runs.csv.gz", "rt", newline="") as file:
    DATASET = list(csv.DictReader(file))


def runs(experiment, **wanted):
    """[(game, seed, score)] of the runs whose columns have these values."""
    return sorted(
        (row["game"], int(row["seed"]), float(row["score"]))
        for row in DATASET
        if experiment in row["experiment"].split()
        and all(row[name] == value if value == "" else float(row[name]) == value for name, value in wanted.items())
    )


def samples(experiment, **wanted):
    """The scores by game, in the order of the seeds."""
    found = runs(experiment, **wanted)
    return [np.array([score for name, _, score in found if name == game]) for game in GAMES]


def cell(first, second):
    """The mean over games of the first sample minus that of the second with its interval: n - 1 of n seeds."""
    rng = np.random.RandomState(0)
    means = []
    for scores in (*first, *second):
        places = rng.randint(len(scores), size=(REPS, len(scores) - 1))
        means.append(scores[places].mean(1))
    half = len(first)
    value = np.mean([x.mean() for x in first]) - np.mean([x.mean() for x in second])
    low, high = np.percentile(np.mean(means[:half], 0) - np.mean(means[half:], 0), [2.5, 97.5])
    return f"{value:+.2f} [{low:.2f}, {high:.2f}]".replace("-0.00", "0.00")


def table():
    """{label: the other cells} of the table of what was found."""
    lines = README.split("## What was found")[1].split("\n## ")[0].splitlines()
    rows = [[word.strip() for word in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return {label: cells for label, *cells in rows[1:]}


def test_the_table_has_these_rows():
    assert set(table()) == set(ROWS)


@pytest.mark.parametrize("label", ROWS)
def test_a_row_follows_from_the_runs(label):
    experiment, one, other, both = ROWS[label]
    first, second = samples(experiment, **one, **both), samples(experiment, **other, **both)
    link, seeds, *cells = table()[label]
    assert {len(scores) for scores in first + second} == {int(seeds)}
    of_games = [cell([a], [b]) for a, b in zip(first, second)]
    assert cells == [*of_games, cell(first, second)]
    assert (ROOT / re.search(r"\((.*)\)", link)[1]).exists()


def test_the_share_that_learning_rate_times_gradient_steps_explains():
    """R² over configurations of a quadratic in log2(learning rate x gradient steps), and of a line in log2 N."""
    names = ("num_envs", "num_steps", "minibatch_size", "update_epochs", "learning_rate", "global_step")
    scores = {}
    for row in DATASET:
        six = {"shape", "schedule", "trend", "outer_loop", "rates", "reuse"} & set(row["experiment"].split())
        if six and not row["schedule"]:
            key = tuple(float(row[name]) for name in names)
            scores.setdefault(key, {}).setdefault(row["game"], {})[row["seed"]] = float(row["score"])
    by_game = [[np.mean(list(seeds.values())) for seeds in games.values()] for games in scores.values()]
    means = np.array(by_game).mean(1)
    N, T, size, epochs, rate, steps = np.array(list(scores), float).T
    product, number = np.log2(rate * steps / (N * T) * epochs * (N * T / size)), np.log2(N)

    def explained(*columns):
        design = np.column_stack([np.ones(len(means)), *columns])
        rest = means - design @ np.linalg.lstsq(design, means, rcond=None)[0]
        return round(100 * (1 - rest.var() / means.var()))

    said = r"explains (\d+) % of the variance of the mean score over (\d+) configurations, and N alone (\d+) %"
    found = re.search(said, " ".join(README.split()))
    assert [int(number) for number in found.groups()] == [explained(product, product**2), len(means), explained(number)]


SHOWN = re.compile(r"([+-]?[\d.]+)( times| %)? \[(-?[\d.]+), (-?[\d.]+)\]")


def test_what_was_seen_of_the_papers_stands_in_the_tables():
    """Each number with an interval is, as rounded, that of a row with one of the names in the last cell."""
    text = (ROOT / "results" / "README.md").read_text().split("## What the papers say")[1]
    found = 0
    for line in text.splitlines():
        if not re.match(r"\| P\d ", line):
            continue
        *_, seen, _, _, where = (cell.strip() for cell in line.strip("|").split("|"))
        names, known = set(re.findall(r"\b[A-Z]\d+\b", where)), []
        for first, last in re.findall(r"\b([A-Z]\d+) to ([A-Z]\d+)\b", where):
            names |= {f"{first[0]}{i}" for i in range(int(first[1:]), int(last[1:]) + 1)}
        for folder in re.findall(r"\((\w+)/README.md\)", where):
            for path in [
                *(ROOT / "results" / folder).glob("verdicts.csv"),
                *(ROOT / "results" / folder).glob("find*.csv"),
            ]:
                rows = csv.DictReader(path.read_text().splitlines())
                known += [
                    [float(row[x]) for x in ("value", "low", "high")]
                    for row in rows
                    if row.get("name", "") in {"", *names}
                ]
        for value, unit, low, high in SHOWN.findall(seen) if known else ():
            scale, found = 100 if unit == " %" else 1, found + 1
            assert any(
                all(
                    abs(scale * x - float(y)) <= 0.5001 * 10.0 ** -len(y.partition(".")[2])
                    for x, y in zip(row, (value, low, high))
                )
                for row in known
            ), line
    assert found > 30
