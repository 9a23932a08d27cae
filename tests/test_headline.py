"""The numbers of the README follow from the table of all runs, computed with NumPy and SciPy alone."""

import csv
import gzip
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

ROOT = Path(__file__).parent.parent
README = " ".join((ROOT / "README.md").read_text().split())
TASKS = ("Acrobot-v1", "CartPole-v1", "MiniGrid-DoorKey-5x5")
OPEN = (*TASKS, "CartpoleSwingup-v1", "LunarLander-v3", "PendulumSwingup-v1")
N_BY_TS = ((8, 32), (8, 128), (128, 32), (128, 128), (32, 32), (128, 8))
DEFAULT = 2.5e-4


def read(name):
    with gzip.open(ROOT / "results" / name, "rt", newline="") as file:
        return list(csv.DictReader(file))


DATASET = [*read("runs.csv.gz"), *read("earlier_runs.csv.gz")]


def samples(experiment, **wanted):
    """The scores of an experiment's runs whose columns have these values: an array per task, by seed."""
    found = sorted(
        (row["game"], int(float(row["seed"])), float(row["score"]))
        for row in DATASET
        if experiment in row["experiment"].split() and all(float(row[name]) == value for name, value in wanted.items())
    )
    return [np.array([score for name, _, score in found if name == task]) for task in TASKS]


def in_words(first, second):
    """The mean over tasks of the first samples minus that of the second, with Welch's interval."""
    value = np.mean([x.mean() for x in first]) - np.mean([x.mean() for x in second])
    parts = np.array([(x.var(ddof=1) / len(x) / len(first) ** 2, len(x) - 1) for x in (*first, *second)])
    error, freedom = parts[:, 0].sum() ** 0.5, parts[:, 0].sum() ** 2 / (parts[:, 0] ** 2 / parts[:, 1]).sum()
    half = stats.t.ppf(0.975, freedom) * error
    return f"{value:.2f} [{value - half:.2f}, {value + half:.2f}]"


MORE = {"minibatch_size": 64, "learning_rate": DEFAULT}
BIGGER = {"minibatch_size": 1024, "learning_rate": DEFAULT}


@pytest.mark.parametrize(
    "text, bigger",
    [("64 minibatches beat 4 by", BIGGER), ("the difference is", {**BIGGER, "learning_rate": 4 * DEFAULT})],
)
def test_more_environments_need_more_minibatches_or_a_higher_rate(text, bigger):
    pair = [samples("outer_loop", num_envs=128, **way) for way in (MORE, bigger)]
    assert {len(scores) for scores in pair[0] + pair[1]} == {10}
    assert f"{text} {in_words(*pair)}" in README


# ---- the map, 100,000 steps ------------------------------------------------------------------------------------------
def read_map():
    """{task: {(N, T, rate): the scores of seeds 1 to 10}}."""
    settings = {task: {} for task in OPEN}
    for row in DATASET:
        if "map" in row["experiment"].split() and float(row["total_timesteps"]) == 100_000:
            key = (*(int(float(row[name])) for name in ("num_envs", "num_steps")), float(row["learning_rate"]))
            scores = settings[row["game"]].setdefault(key, np.full(10, np.nan))
            scores[int(float(row["seed"])) - 1] = float(row["score"])
    return settings


MAP = read_map()


def tuned(task, n_by_ts=N_BY_TS, rates=None):
    """The mean score of the best setting of some, where either half of the seeds chooses for the other."""
    settings = {key: x for key, x in MAP[task].items() if key[:2] in n_by_ts and (rates is None or key[2] in rates)}
    scores = []
    for half in (0, 1):
        best = max(settings, key=lambda key: settings[key][half::2].mean())
        scores.append(settings[best][1 - half :: 2].mean())
    return np.mean(scores)


def test_every_n_by_t_has_the_same_eight_rates_and_ten_seeds():
    for settings in MAP.values():
        assert len(settings) == 48 and {key[2] for key in settings} == {DEFAULT * 2.0**k for k in range(-1, 7)}
        assert not np.isnan(list(settings.values())).any()


def test_the_four_bars():
    bars = [
        np.mean([MAP[task][8, 128, DEFAULT].mean() for task in OPEN]),
        np.mean([tuned(task, rates=[DEFAULT]) for task in OPEN]),
        np.mean([tuned(task, n_by_ts=[(8, 128)]) for task in OPEN]),
        np.mean([tuned(task) for task in OPEN]),
    ]
    said = (
        "the default has {:.2f}, the best N x T at the default rate {:.2f}, the default N x T at its best rate {:.2f}, "
    )
    assert (said + "both tuned {:.2f}").format(*bars) in README


def test_the_best_rate_is_never_the_default():
    factors = []
    for task in OPEN:
        for n_by_t in N_BY_TS:
            rates = {key[2]: scores.mean() for key, scores in MAP[task].items() if key[:2] == n_by_t}
            factors.append(max(rates, key=rates.get) / DEFAULT)
    assert min(factors) > 1
    assert f"the best rate at 100,000 steps was {min(factors):.0f} to {max(factors):.0f} times the default" in README


def test_what_to_begin_with():
    means = [
        np.mean([MAP[task][key].mean() for task in OPEN]) for key in ((8, 128, 2e-3), (32, 32, 2e-3), (8, 128, DEFAULT))
    ]
    assert "At 2e-3 they score {:.2f} and {:.2f} in 100,000 steps, the default {:.2f}".format(*means) in README


def test_what_many_environments_change():
    gains = [tuned(task, n_by_ts=[(128, 8)]) - tuned(task, n_by_ts=[(8, 128)]) for task in OPEN]
    assert f"each at its tuned rate, is {min(gains):+.2f} to {max(gains):+.2f} on the six tasks" in README


def test_what_ten_seeds_find():
    page = (ROOT / "docs" / "data.md").read_text().split("**3. ")[0].split("ten seeds find  seeds")[1]
    lines = [line.split() for line in page.splitlines() if re.match(r"(Acrobot|CartPole|MiniGrid)\S+ +0", line)]
    rows = {task: found for task, _, found, *_ in lines}
    said = "a difference of {} on Acrobot, {} on CartPole and {} on DoorKey".format(*(rows[task] for task in TASKS))
    assert said in README


def test_the_verdicts_beside_the_registered_claims_are_those_of_the_tables():
    """Those of outer_loop, data_reuse and advise; fewer than ten seeds give none."""
    checked = []
    for section in re.split(r"^##+ ", (ROOT / "results" / "CLAIMS.md").read_text(), flags=re.M)[1:]:
        table = ROOT / "results" / re.match(r"\w+", section)[0] / "verdicts.csv"
        if "| verdict |" not in section or not table.exists():
            continue
        tested = list(csv.DictReader(table.read_text().splitlines()))
        for name, said in re.findall(r"^\| ([A-Z]\d)\*?(?:, \w+)? \|.*\| (\w+)[^|]*\|$", section, re.M):
            rows = [row for row in tested if row["name"] == name and row["family"] in ("primary", "secondary")]
            assert {row["verdict"] or "none" for row in rows} == {said}, name
            checked.append(name)
    assert {"O1", "O5", "R2", "R3", "V1"} <= set(checked)


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
