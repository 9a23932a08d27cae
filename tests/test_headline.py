"""The numbers of the README's advice and findings follow from results/runs.csv.gz, computed with NumPy alone."""

import csv
import gzip
import itertools
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
ADVICE, FOUND = (
    " ".join(README.split(f"## {title}")[1].split("\n## ")[0].split())
    for title in ("What should I do?", "What was found")
)
GAMES = ("Acrobot-v1", "CartPole-v1", "MiniGrid-DoorKey-5x5")
OPEN = (*GAMES, "CartpoleSwingup-v1", "LunarLander-v3", "PendulumSwingup-v1")
UNSATURATED = OPEN[3:]
REPS = 4000
NOISE = 0.015  # how far the end of an interval moves with other draws


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


def number(value, plus=True):
    return f"{value:{'+' if plus else ''}.2f}".replace("-0.00", "0.00")


@pytest.mark.parametrize(
    "text, experiment, first, second, both",
    [
        ("8 epochs beat 4 by", "reuse", {"update_epochs": 8}, {"update_epochs": 4}, {"num_envs": 8, "num_steps": 128}),
        (
            "64 minibatches beat 4 by",
            "outer_loop",
            {"minibatch_size": 64},
            {"minibatch_size": 1024},
            {"num_envs": 128, "learning_rate": 2.5e-4},
        ),
        (
            "rate, the difference is",
            "outer_loop",
            {"minibatch_size": 64, "learning_rate": 2.5e-4},
            {"minibatch_size": 1024, "learning_rate": 1e-3},
            {"num_envs": 128},
        ),
    ],
)
def test_the_smaller_studies(text, experiment, first, second, both):
    pair = samples(experiment, **first, **both), samples(experiment, **second, **both)
    assert {len(scores) for scores in pair[0] + pair[1]} == {10}
    assert f"{text} {cell(*pair).lstrip('+')}" in ADVICE
    if "minibatches" in text or "epochs" in text:  # "and in each of them"
        assert min(x.mean() - y.mean() for x, y in zip(*pair)) > 0.05


# ---- the map ---------------------------------------------------------------------------------------------------------
def read_map():
    """{(game, steps, N, T): {rate: the scores of seeds 1 to 10}}."""
    cells = {}
    for row in DATASET:
        if "map" in row["experiment"].split():
            key = (row["game"], *(int(float(row[name])) for name in ("total_timesteps", "num_envs", "num_steps")))
            scores = cells.setdefault(key, {}).setdefault(float(row["learning_rate"]), np.full(10, np.nan))
            scores[int(float(row["seed"])) - 1] = float(row["score"])
    return cells


MAP = read_map()


def at_best(game, steps, N, T):
    """The scores of seeds 2, 4, ... at the rate that seeds 1, 3, ... choose."""
    return max(MAP[game, steps, N, T].values(), key=lambda scores: scores[0::2].mean())[1::2]


def map_rows():
    """{claim: (verdict, of the mean, of each task)} of the README's table."""
    lines = README.split("## What was found")[1].split("\n## ")[0].splitlines()
    rows = [[word.strip() for word in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return {claim: rest for claim, *rest in rows[1:]}


@pytest.mark.parametrize("factor, large", [("many environments", (128, 32)), ("long rollouts", (8, 128))])
def test_whether_the_budget_changes_what_helps(factor, large):
    gains, draws, rng = [], [], np.random.RandomState(1)
    for game in UNSATURATED:
        cells = [at_best(game, steps, *shape) for steps in (900_000, 100_000) for shape in (large, (8, 32))]
        gains.append(np.dot([1, -1, -1, 1], [scores.mean() for scores in cells]))
        drawn = [scores[rng.randint(5, size=(REPS, 4))].mean(1) for scores in cells]
        draws.append(np.dot([1, -1, -1, 1], drawn))
    verdict, mean, by_task = map_rows()[f"{factor} help more at 900,000 steps than at 100,000"]
    assert verdict == "undecided"
    ends = [float(x) for x in re.findall(r"-?\d\.\d\d", mean)]
    assert np.allclose(ends[1:], np.percentile(np.mean(draws, 0), [2.5, 97.5]), atol=NOISE)
    assert mean.startswith(number(np.mean(gains)) + " [") and ends[1] < 0 < ends[2]
    names = [game.split("-")[0] for game in UNSATURATED]
    assert by_task == ", ".join(f"{name} {number(gain)}" for name, gain in zip(names, gains))


def test_how_far_shapes_are_apart_at_equal_rates():
    rates, shapes = 2.5e-4 * 2.0 ** np.arange(-1, 4), ((8, 32), (128, 32), (32, 32), (128, 8))

    def level(game, shape):
        return np.mean([MAP[(game, 100_000, *shape)][rate].mean() for rate in rates])

    gaps = np.array([[level(game, shape) - level(game, (8, 128)) for shape in shapes] for game in OPEN])
    verdict, mean, by_task = map_rows()["at equal rates no shape is 0.10 from 8 x 128, at 100,000 steps"]
    farthest = dict(zip(OPEN, gaps[np.arange(len(OPEN)), np.abs(gaps).argmax(1)]))
    assert verdict == "supported" and mean.startswith(number(gaps.mean(0)[np.abs(gaps.mean(0)).argmax()]))
    low, high = min(farthest, key=farthest.get), max(farthest, key=farthest.get)
    assert (low, high) == ("MiniGrid-DoorKey-5x5", "Acrobot-v1")
    assert by_task == f"from {number(farthest[low])} on DoorKey to {number(farthest[high])} on Acrobot"


def test_the_rate_turns_a_sign():
    many, few = (MAP[("LunarLander-v3", 300_000, *shape)] for shape in ((128, 8), (8, 128)))
    seen = [number(many[rate].mean() - few[rate].mean()) for rate in (2.5e-4, 5e-4, 2e-3)]
    row = map_rows()["the sign of 128 x 8 minus 8 x 128 belongs to the task, not to the rate"]
    told = f"LunarLander {seen[0]}, {seen[1]} and {seen[2]} at 2.5e-4, 5e-4 and 2e-3"
    assert row == ["contradicted", "", told]


def test_the_map_has_ten_seeds_in_each_cell():
    scores = np.array(list(itertools.chain(*(cells.values() for cells in MAP.values()))))
    assert not np.isnan(scores).any()
    assert f"{scores.size:,} runs" in FOUND


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
