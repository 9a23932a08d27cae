"""The numbers of the README and of its studies follow from the table of all runs, with NumPy and SciPy alone."""

import csv
import gzip
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize, stats

ROOT = Path(__file__).parent.parent
README, ATLAS_PAGE, MAP_PAGE, OUTER_LOOP = (
    " ".join((ROOT / folder / "README.md").read_text().split())
    for folder in ("", "results/atlas", "results/map", "results/outer_loop")
)
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
    [
        ("at N = 128 more minibatches beat larger ones |", BIGGER),
        ("larger ones with the rate times sqrt(c) |", {**BIGGER, "learning_rate": 4 * DEFAULT}),
    ],
)
def test_more_environments_need_more_minibatches_or_a_higher_rate(text, bigger):
    pair = [samples("outer_loop", num_envs=128, **way) for way in (MORE, bigger)]
    assert {len(scores) for scores in pair[0] + pair[1]} == {10}
    assert f"{text} {in_words(*pair)}" in OUTER_LOOP


def over_tasks(x):
    """The mean of one number per task, with Student's interval."""
    return (x.mean(), *stats.t.interval(0.95, len(x) - 1, x.mean(), x.std(ddof=1) / len(x) ** 0.5))


def said(numbers, form="{:+.2f}"):
    """The pattern of "value [low, high]". The judge's percentiles of Student's t are exact to 0.1 % with 36 tasks."""
    value, low, high = (
        "|".join(sorted({re.escape(form_of.format(x + e)) for e in (-4e-4, 4e-4)}))
        for x, form_of in zip(numbers, (form, "{:.2f}", "{:.2f}"))
    )
    return rf"({value}) \[({low}), ({high})\]"


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


def test_what_tuning_buys_on_the_map():
    rate = [tuned(task, n_by_ts=[(8, 128)]) - MAP[task][8, 128, DEFAULT].mean() for task in OPEN]
    both = [tuned(task) - tuned(task, n_by_ts=[(8, 128)]) for task in OPEN]
    gained = [said(over_tasks(np.array(x)), "{:.2f}") for x in (rate, both)]
    words = "tuning the rate of 8 x 128 gains {} of a score. Tuning N x T as well gains another {}."
    assert re.search(words.format(*gained), MAP_PAGE)


def test_the_best_rate_is_never_the_default():
    factors = []
    for task in OPEN:
        for n_by_t in N_BY_TS:
            rates = {key[2]: scores.mean() for key, scores in MAP[task].items() if key[:2] == n_by_t}
            factors.append(max(rates, key=rates.get) / DEFAULT)
    assert min(factors) > 1
    assert f"**The best rate is {min(factors):.0f} to {max(factors):.0f} times the default**" in MAP_PAGE


def test_what_many_environments_change():
    gains = {task: tuned(task, n_by_ts=[(128, 8)]) - tuned(task, n_by_ts=[(8, 128)]) for task in OPEN}
    for task, name in (("MiniGrid-DoorKey-5x5", min), ("LunarLander-v3", max)):
        assert gains[task] == name(gains.values()) and f"| {gains[task]:+.2f} [" in MAP_PAGE


# ---- the atlas -------------------------------------------------------------------------------------------------------
def of_results(name, key):
    lines = (ROOT / name).read_text().splitlines()
    return {row[key]: row for row in csv.DictReader(line for line in lines if not line.startswith("#"))}


def read_atlas():
    """Of each task that counts, on scale R as CLAIMS.md registers it: (A1, A2, the variance of A2's error, A4, what the
    rate buys, what N x T buys beside it); the scores of the default, the tuned 8 x 128, and 32 x 32 at 2e-3; the tuned
    rates (tasks, 3)."""
    play, known = of_results("results/atlas/random.csv", "task"), of_results("support/small_worlds.csv", "game")
    returns = {}
    for row in DATASET:
        if "atlas" in row["experiment"].split():
            value = play[row["env_id"]]["random"] if row["state"] == "diverged" else row["final_return"]
            setting = int(float(row["num_envs"])), int(float(row["num_steps"])), float(row["learning_rate"])
            returns.setdefault(row["env_id"], {}).setdefault(setting, {})[int(float(row["seed"]))] = float(value)
    found, scores, rates = [], [], []
    for task, runs in returns.items():
        if len(runs) == 2:  # a pilot that did not rise
            continue
        first = {s: np.mean([of[seed] for seed in (1, 2, 3)]) for s, of in sorted(runs.items()) if s[0] != 16}
        best = {n: max((s for s in first if s[0] == n), key=first.get) for n in (8, 32, 128)}
        c = max(best.values(), key=first.get)
        zero, deviation = float(play[task]["random"]), float(play[task]["deviation"])
        last = {s: np.array([x for seed, x in sorted(of.items()) if 101 <= seed <= 110]) for s, of in runs.items()}
        last = {s: x for s, x in last.items() if len(x)}
        learned = any(
            x.mean() - zero > 3 * (x.var(ddof=1) / len(x) + deviation**2 / 1000) ** 0.5 for x in last.values()
        )
        one = first[c]
        if task in known:
            zero, one = float(known[task]["random"]), float(known[task]["best"])
        score = {s: (x - zero) / ((one - zero) or np.nan) for s, x in last.items()}
        if not learned or all(x.mean() >= 0.95 for x in score.values()):
            continue
        assert {len(x) for x in score.values()} <= {6, 10}
        eight, many = score[best[8]], score[best[128]]
        scores.append([score[8, 128, DEFAULT].mean(), eight.mean(), score[32, 32, 2e-3].mean()])
        rates.append([of[2] for of in best.values()])
        rate, n_by_t = eight.mean() - score[8, 128, DEFAULT].mean(), score[c].mean() - eight.mean()
        error = eight.var(ddof=1) / len(eight) + many.var(ddof=1) / len(many)
        constant = score[32, 32, 2e-3].mean() - score[8, 128, DEFAULT].mean()
        found.append((rate - n_by_t, many.mean() - eight.mean(), error, constant, rate, n_by_t))
    return np.array(found), np.array(scores), np.array(rates)


def new_task(x, variances, wider):
    """The mean, and the interval of a new task, with DerSimonian and Laird's variance or with Paule and Mandel's."""
    w = 1 / np.maximum(variances, 1e-6)

    def squares(w):
        return np.sum(w * (x - np.sum(w * x) / w.sum()) ** 2)

    tau2 = max(0.0, (squares(w) - len(x) + 1) / (w.sum() - np.sum(w**2) / w.sum()))
    if wider:
        tau2 = optimize.brentq(lambda tau2: squares(1 / (1 / w + tau2)) - len(x) + 1, 0, 10)
    w = 1 / (1 / w + tau2)
    center = np.sum(w * x) / w.sum()
    half = stats.t.ppf(0.975, len(x) - 2) * (tau2 + 1 / w.sum()) ** 0.5
    return center, center - half, center + half


def test_the_atlas_says_what_its_runs_say():
    """Its page and the README, from the table alone: A1, A2, A4, the gains, the interval of a new task."""
    tasks, scores, rates = read_atlas()
    usual = 100 * np.mean((rates >= 1e-3) & (rates <= 8e-3))
    a1, a2, variances, a4, rate, n_by_t = tasks.T
    for name, numbers in {"A1": a1, "A2": a2, "A4": a4}.items():
        assert re.search(rf"\| {name} \| [^|]* \| {said(over_tasks(numbers))} \|", ATLAS_PAGE), name
    registered, wider = (new_task(a2, variances, wider) for wider in (False, True))
    for name, numbers in (("DerSimonian and Laird", registered), ("Paule and Mandel", wider)):
        assert re.search(rf"\| {name} \| [\d.]+ \| {said(numbers)} \|", ATLAS_PAGE), name
    for text in (ATLAS_PAGE, README):
        gains = rf"gains {said(over_tasks(rate))} of a score.*beside it (gains )?{said(over_tasks(n_by_t))}"
        assert re.search(gains, text) and "between {1:+.2f} and {2:+.2f}".format(*wider) in text
    default, tuned, constant = scores.mean(axis=0)
    for words in (
        rf"On {len(tasks)} small tasks",
        rf"The default scores {default:.2f}, 8 x 128 at its tuned rate {tuned:.2f}\.",
        rf"Of the tuned rates {usual:.0f} % lie between 1e-3 and 8e-3",
        rf"It scores {constant:.2f}, {said(over_tasks(a4))} more than the default",
        rf"is {said(over_tasks(a2))} on average and {a2.min():.2f} to \{a2.max():+.2f} on single tasks",
    ):
        assert re.search(words, README), words


def test_the_verdicts_beside_the_registered_claims_are_those_of_the_tables():
    """Those of outer_loop, data_reuse, advise and the atlas; fewer than ten seeds give none."""
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
    assert {"O1", "O5", "R2", "R3", "V1", "A1", "A5"} <= set(checked)


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
