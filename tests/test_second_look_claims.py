"""results/second_look: L1 to L4 computed again with NumPy and SciPy alone, from planted runs and from the real ones."""

import csv
import gzip

import numpy as np
import pandas as pd
import pytest
from analysis.look import plt
from analysis.scores import Scores
from conftest import ROOT, study
from scipy import stats

design = study("second_look", "design")

ATLAS = ROOT / "results" / "atlas"
LOOK = ROOT / "results" / "second_look"
NOT_COUNTED = ("BabyAI-KeyCorridorS3R1-v0", "PointMassEasy-v1", "HopperHop-v1", "LqrLqr21-v1")
GRID = 1.25e-4 * 2.0 ** np.arange(11)


def read(path):
    opened = gzip.open(path, "rt", newline="") if path.suffix == ".gz" else open(path, newline="")
    with opened as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def number(text):
    return float(text) if text not in ("", None) else np.nan


BUDGETS = {row["task"]: int(float(row["budget"])) for row in read(ATLAS / "budgets.csv") if row["rises"] == "True"}
PLAY = {row["task"]: row for path in (ATLAS, LOOK) for row in read(path / "random.csv")}
RANDOM = {task: float(row["random"]) for task, row in PLAY.items()}


def ends_of_the_scale():
    """{task: (return of random play, the reference or the highest mean of a setting in the atlas's step 1)}."""
    references = read(ROOT / "support" / "small_worlds.csv")
    known = {row["game"]: (float(row["random"]), float(row["best"])) for row in references if row["best"]}
    found = {}
    for task in BUDGETS:
        settings = {}
        for row in read(ATLAS / "blocks" / f"{task}.csv"):
            if int(row["seed"]) <= 3:
                value = RANDOM[task] if row["state"] == "diverged" else float(row["final_return"])
                key = tuple(row[name] for name in ("num_envs", "num_steps", "learning_rate"))
                settings.setdefault(key, []).append(value)
            found[task] = known.get(task) or (RANDOM[task], max(np.mean(values) for values in settings.values()))
    return found


ENDS = ends_of_the_scale()


def returns_of(rows, arm):
    """{task: {(setting, steps): {seed: row}}} of an experiment; a setting is (N, T, rows, epochs, rate, annealed)."""
    found = {}
    for row in rows:
        if row["arm"] == arm:
            names = ("num_envs", "num_steps", "minibatch_size", "update_epochs", "learning_rate")
            setting = (*(float(row[name]) for name in names), str(row["anneal_lr"]) == "True")
            key = (setting, int(float(row["total_timesteps"])))
            found.setdefault(row["env_id"], {}).setdefault(key, {})[int(float(row["seed"]))] = row
    return found


def final(row):
    return RANDOM[row["env_id"]] if row["state"] == "diverged" else number(row["final_return"])


def score(row):
    zero, one = ENDS[row["env_id"]]
    return (final(row) - zero) / (one - zero)


def law(steps, rows=256, epochs=4):
    return float(f"{4e-3 * (150_000 / steps) ** 0.5 * (16 / 1024) / (epochs / rows):.1e}")


def at(n, t, rate, rows=256, epochs=4):
    return (float(n), float(t), float(rows), float(epochs), rate, True)


def student(values):
    """The mean over tasks and its 95 % interval."""
    values = np.asarray(values, float)
    error = values.std(ddof=1) / len(values) ** 0.5
    half = stats.t.ppf(0.975, len(values) - 1) * error
    return values.mean(), values.mean() - half, values.mean() + half


def l1(rows):
    return student(of_new_tasks(rows, lambda steps: at(8, 128, 2.5e-4), lambda steps: at(8, 128, law(steps))))


def of_new_tasks(rows, in_place_of, take):
    """What a setting of E4 gains on another, each a function of the steps: a number for each task that was learned."""
    values = []
    for task, settings in returns_of(rows, "E4").items():
        returns = {key: {seed: final(row) for seed, row in own.items()} for key, own in settings.items()}
        sides = {}
        for name, setting in (("in place of", in_place_of), ("take", take)):
            of_name = []
            for steps in (200_000, 800_000):
                own = returns[setting(steps), steps]
                for seed, value in own.items():
                    best = max(np.mean([x for s, x in other.items() if s != seed]) for other in returns.values())
                    of_name.append(max((value - RANDOM[task]) / (best - RANDOM[task]), -1))
            sides[name] = np.mean(of_name)
        learned = False
        for own in returns.values():
            x = np.array(list(own.values()))
            error = np.hypot(x.std(ddof=1) / len(x) ** 0.5, float(PLAY[task]["deviation"]) / 1000**0.5)
            learned |= x.mean() - RANDOM[task] > 3 * error
        if learned:
            values.append(sides["take"] - sides["in place of"])
    return values


def on_one_scale(rows, in_place_of, take):
    """The same where some mean is half a deviation above random play, 1 being the best mean of all seeds."""
    values = []
    for task, settings in returns_of(rows, "E4").items():
        above = {key: np.mean([final(row) for row in own.values()]) - RANDOM[task] for key, own in settings.items()}
        best = max(above.values())
        if best > 0.5 * float(PLAY[task]["deviation"]):
            gains = [above[take, steps] - above[in_place_of, steps] for steps in (200_000, 800_000)]
            values.append(np.mean(gains) / best)
    return values


def of_e1(rows, task_settings):
    """Mean scores of E1's counted tasks: task_settings(steps) gives the settings to compare."""
    found = []
    for task, settings in returns_of(rows, "E1").items():
        if task not in NOT_COUNTED:
            steps = BUDGETS[task]
            own = [settings[setting, steps].values() for setting in task_settings(steps)]
            found.append([np.mean([score(row) for row in of_one]) for of_one in own])
    return np.array(found)


def l2(rows):
    few, many = of_e1(rows, lambda steps: (at(8, 128, 2e-3), at(128, 8, 2e-3))).T
    return student(few - many)


def l3(rows):
    return student([best - three_times for best, three_times, _ in with_e2(rows)])


def with_e2(rows):
    """Of each task that counts three scores at the law's rate: best of three runs, three times the steps, one run."""
    e1 = returns_of(rows, "E1")
    for task, settings in returns_of(rows, "E2").items():
        if task in NOT_COUNTED:
            continue
        steps = BUDGETS[task]
        short = e1[task][at(8, 128, law(steps)), steps]
        long = settings[at(8, 128, law(3 * steps)), 3 * steps]
        yield kept(short), *(np.mean([score(row) for row in own.values()]) for own in (long, short))


def longer(rows):
    """What three times the steps gain at the law's rate: a number for each of E2's tasks that count."""
    return [three_times - one_time for _, three_times, one_time in with_e2(rows)]


def law_by_rows(rows):
    """Mean scores of E7's tasks that count, with four minibatches: at the setting's own law, at that of 8 x 128."""
    values = []
    for task, settings in returns_of(rows, "E7").items():
        if task not in NOT_COUNTED:
            steps = BUDGETS[task]
            both = [settings[at(32, 128, law(steps, rows), 1024), steps].values() for rows in (1024, 256)]
            values.append([np.mean([score(row) for row in own]) for own in both])
    return np.array(values).T


def kept(by_seed):
    """The mean score of the runs that are kept, of each three seeds the best in training. by_seed: {seed: row}."""
    runs = [row for _, row in sorted(by_seed.items())]
    threes = [runs[i : i + 3] for i in range(0, 3 * (len(runs) // 3), 3)]
    in_training = [[number(row["episodic_return"]) for row in three] for three in threes]
    best = [np.argmax(np.nan_to_num(x, nan=-np.inf)) for x in in_training]
    return np.mean([score(three[i]) for three, i in zip(threes, best)])


def l4(rows):
    values = []
    for task, settings in returns_of(rows, "E3").items():
        tops = {}
        for setting in ((256, 1), (256, 4), (256, 16), (64, 4), (1024, 4)):
            x = np.array(
                [
                    np.mean([score(row) for row in settings[at(8, 128, rate, *setting), BUDGETS[task]].values()])
                    for rate in GRID
                ]
            )
            tops[setting] = np.log2(GRID)[x >= x.max() - 0.1].mean()
        epochs, minibatches = tops[256, 16] - tops[256, 1], tops[64, 4] - tops[1024, 4]
        values.append((epochs / 4 + minibatches / 4) / 2)
    return student(values)


RECOMPUTED = {"L1": l1, "L2": l2, "L3": l3, "L4": l4}


# ---- planted runs ----------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def planted():
    """A row a run of the design, with noise, effects of rate, N and k, a task of E4 that nothing learns, and a NaN."""
    rng, rows = np.random.default_rng(0), []
    blind = design.fresh_tasks()[3]
    for block in design.blocks():
        zero = RANDOM[block.task]
        zero, one = ENDS.get(block.task, (zero, zero + 5 * float(PLAY[block.task]["deviation"])))
        for _, setting, seed in block.runs:
            k = setting.update_epochs / setting.minibatch_size * 64
            away = np.log2(setting.learning_rate * k / 4e-3 * (setting.total_timesteps / 150_000) ** 0.5)
            value = 0.8 - 0.04 * away**2 - 0.1 * (setting.num_envs > 100) + rng.normal(0, 0.15)
            value = rng.normal(0, 0.01) if block.task == blind else value
            diverged = rng.random() < 0.01
            rows.append(
                {
                    **setting._asdict(),
                    **{"arm": block.arm, "env_id": block.task, "game": block.task, "seed": seed},
                    **{"anneal_lr": not setting.sb3, "state": "diverged" if diverged else "done"},
                    "final_return": np.nan if diverged else zero + value * (one - zero),
                    "episodic_return": np.nan if rng.random() < 0.05 else zero + rng.normal(),
                    "best_final_return": zero + rng.normal(0.8, 0.1) * (one - zero),
                    **{column: rng.normal(1, 0.3) for column in DIAGNOSTICS},
                }
            )
    return pd.DataFrame(rows)


DIAGNOSTICS = (
    *("feature_rank", "dormant_neurons", "weight_norm", "gradient_kurtosis", "policy_variance", "ess"),
    "noise_scale",
)


@pytest.fixture(scope="module")
def judged(planted):
    """{claim's text: its row of verdicts.csv} of the planted runs."""
    code = study("second_look", "claims")
    table = code.table(planted)
    return {row["claim"]: row for row in code.claims(Scores(table, code.VARIES)).rows() if not row["game"]}


TEXTS = {
    "L1": "on tasks without a pilot 8x128 at the law's rate beats 2.5e-4",
    "L2": "at one rate, 2e-3, 8x128 beats 128x8",
    "L3": "the best of three runs beats one three times as long",
    "L4": "the best rate falls as 1 / k",
}


@pytest.mark.parametrize("name", RECOMPUTED)
def test_a_primary_claim_of_planted_runs(planted, judged, name):
    found = RECOMPUTED[name](planted.to_dict("records"))
    row = judged[TEXTS[name]]
    assert [float(row[x]) for x in ("value", "low", "high")] == pytest.approx(found, abs=6e-4)


def staggered(rows, n=128.0, t=8.0):
    """{task: what staggered starts gain at an N x T} of the tasks that count."""
    found, e1 = {}, returns_of(rows, "E1")
    for arm in ("E6", "E9"):
        for task, settings in returns_of(rows, arm).items():
            key = (at(n, t, 2e-3), BUDGETS[task])
            if key in settings:
                means = [np.mean([score(row) for row in own[key].values()]) for own in (settings, e1[task])]
                found[task] = means[0] - means[1]
    return found


ONE_LENGTH = {"Pendulum-v1", "NChain-v0", "HalfCheetah-v5", "Swimmer-v5", "Reacher-v5"}
FAMILIES = {row["task"]: row["family"] for row in read(ATLAS / "budgets.csv")}


def of_staggered_starts(rows):
    """{claim: the numbers of its tasks}."""
    many, few = staggered(rows), staggered(rows, 8.0, 128.0)
    ten = [row["env_id"] for row in rows if row["arm"] == "E6"]
    fresh = {task: gain for task, gain in many.items() if task not in ten}
    alike = [gain for task, gain in fresh.items() if task in ONE_LENGTH or FAMILIES[task] == "DeepMind Control"]
    return {
        "128x8 at 2e-3: staggered starts beat none": [many[task] for task in set(ten)],
        "128x8 at 2e-3: staggered starts beat none, on the 26 other tasks": list(fresh.values()),
        "128x8 at 2e-3: staggered starts beat none, on the 13 of these with episodes of one length": alike,
        "8x128 at 2e-3: staggered starts beat none": list(few.values()),
    }


def test_staggered_starts_of_planted_runs(planted, judged):
    found = of_staggered_starts(planted.to_dict("records"))
    assert [len(values) for values in found.values()] == [10, 26, 13, 36]
    for text, values in found.items():
        row = judged[text]
        assert row["seeds"] == 6
        assert [float(row[x]) for x in ("value", "low", "high")] == pytest.approx(student(values), abs=6e-4)


OWN = [row for row in read(ROOT / "results" / "runs.csv.gz") if "second_look" in row["experiment"].split()]


def test_a_primary_claim_of_the_runs():
    """Those whose experiments have run on all tasks: what verdicts.csv says follows from runs.csv.gz."""
    path = LOOK / "verdicts.csv"
    verdicts = [row for row in read(path) if row["family"] == "primary" and not row["game"]] if path.exists() else []
    for row in verdicts:
        found = RECOMPUTED[row["name"]](OWN)
        assert [float(row[x]) for x in ("value", "low", "high")] == pytest.approx(found, abs=6e-4), row["name"]
    assert bool(OWN) == bool(verdicts)


def raised(_steps):
    return at(8, 128, 2e-3)


def by_law(steps):
    return at(8, 128, law(steps))


def gain_of(in_place_of, take):
    """The gain of a setting of E1 on another one, each a function of the steps."""
    first, second = of_e1(OWN, lambda steps: (in_place_of(steps), take(steps))).T
    return student(second - first)


def stable_baselines3(_steps):
    return (1.0, 2048.0, 64.0, 10.0, 3e-4, False)


def best_of_three_on_stable_baselines3():
    counted = {task: settings for task, settings in returns_of(OWN, "E1").items() if task not in NOT_COUNTED}
    values = []
    for task, settings in counted.items():
        default = settings[stable_baselines3(BUDGETS[task]), BUDGETS[task]].values()
        three = kept(settings[by_law(BUDGETS[task]), BUDGETS[task]])
        values.append(three - np.mean([score(row) for row in default]))
    return student(values)


def test_the_price_of_stable_baselines3_default():
    seconds = {}
    for row in read(LOOK / "cpu_seconds.csv"):
        seconds.setdefault(row["setting"], []).append(float(row["seconds_per_100000"]))
    ratio = np.mean(seconds["sb3"]) / np.mean(seconds["law"])
    for page in (ROOT / "README.md", LOOK / "README.md", ROOT / "results" / "README.md", ROOT / "CHANGELOG.md"):
        assert f"{ratio:.1f} times the CPU-seconds" in " ".join(page.read_text().split())
    assert f"{3 / ratio:.1f} of the default's CPU-seconds" in (ROOT / "README.md").read_text()


def long_at_the_default():
    """What 2.5e-4 scores with three times the steps, minus the law's rate with one."""
    values, e1 = [], returns_of(OWN, "E1")
    for task, settings in returns_of(OWN, "E2").items():
        if task not in NOT_COUNTED:
            steps = BUDGETS[task]
            runs = settings[at(8, 128, 2.5e-4), 3 * steps], e1[task][by_law(steps), steps]
            long, short = (np.mean([score(row) for row in own.values()]) for own in runs)
            values.append(long - short)
    return student(values)


def few_minus_many_staggered():
    """8 x 128 minus 128 x 8 with staggered starts: what both gain, added to E1's difference."""
    many, few = staggered(OWN), staggered(OWN, 8.0, 128.0)
    values, e1 = [], returns_of(OWN, "E1")
    for task in many:
        without = [e1[task][at(*n_by_t, 2e-3), BUDGETS[task]].values() for n_by_t in ((8, 128), (128, 8))]
        plain = [np.mean([score(row) for row in own]) for own in without]
        values.append(plain[0] + few[task] - plain[1] - many[task])
    return student(values)


def test_staggered_starts_of_the_runs():
    verdicts = {row["claim"]: row for row in read(LOOK / "verdicts.csv") if not row["game"]}
    for text, values in of_staggered_starts(OWN).items():
        found = [float(verdicts[text][x]) for x in ("value", "low", "high")]
        assert found == pytest.approx(student(values), abs=6e-4), text


def test_episodes_of_one_length_are_those_of_the_runs():
    lengths = {}
    for row in OWN:
        if row["arm"] == "E1" and row["length"]:
            lengths.setdefault(row["env_id"], set()).add(float(row["length"]))
    counted = [task for task in BUDGETS if task not in NOT_COUNTED]
    assert set(design.one_length()) == {task for task in counted if len(lengths[task]) == 1}


def on_images(in_place_of, take):
    """The gain of a setting of E5 on another one, each (N, T, rate), 1 being the highest mean of a game's settings."""
    values = []
    for task, settings in returns_of(OWN, "E5").items():
        means = {setting: np.mean([final(row) for row in own.values()]) for (setting, _), own in settings.items()}
        gain = means[at(*take)] - means[at(*in_place_of)]
        values.append(gain / (max(means.values()) - RANDOM[task]))
    return student(values)


def best_of_three():
    counted = {task: settings for task, settings in returns_of(OWN, "E1").items() if task not in NOT_COUNTED}
    by_seed = [settings[by_law(BUDGETS[task]), BUDGETS[task]] for task, settings in counted.items()]
    return student([kept(runs) - np.mean([score(row) for row in runs.values()]) for runs in by_seed])


@pytest.mark.parametrize(
    "row, found",
    [
        ("2.5e-4, CleanRL's rate | 2e-3", lambda: gain_of(lambda _: at(8, 128, 2.5e-4), raised)),
        (" | the law's rate: 4e-3 for 150,000 steps", lambda: gain_of(lambda _: at(8, 128, 2.5e-4), by_law)),
        (" | the law's rate, on 14 other tasks", lambda: l1(OWN)),
        (" | the law's rate, on five games", lambda: on_images((8, 128, 2.5e-4), (8, 128, law(1_000_000)))),
        ("2e-3 | the law's rate", lambda: gain_of(raised, by_law)),
        (" | the law's rate on the 14 others", lambda: student(of_new_tasks(OWN, raised, by_law))),
        ("one run | the best of three", best_of_three),
        ("stable-baselines3's default | the law's rate", lambda: gain_of(stable_baselines3, by_law)),
        (" | the best of three at the law's rate", best_of_three_on_stable_baselines3),
        (" | three times the steps", lambda: student(longer(OWN))),
        ("three times the steps | the best of three", lambda: l3(OWN)),
        ("the law's rate | 2.5e-4 with three times the steps", long_at_the_default),
        ("128 x 8 at 2e-3 | 8 x 128 at 2e-3", lambda: gain_of(lambda _: at(128, 8, 2e-3), raised)),
        (
            " | 8 x 128 at 2e-3, on 14 other tasks",
            lambda: student(of_new_tasks(OWN, lambda _: at(128, 8, 2e-3), raised)),
        ),
        (" | the same, both with staggered starts", few_minus_many_staggered),
        (
            "128 x 8 at the law's rate | 8 x 128 at it, on five games",
            lambda: on_images((128, 8, law(1_000_000)), (8, 128, law(1_000_000))),
        ),
        ("32 x 32 at 2e-3 | 8 x 128 at 2e-3", lambda: gain_of(lambda _: at(32, 32, 2e-3), raised)),
    ],
)
def test_what_the_readme_says_of_the_runs(row, found):
    value, low, high = found()
    assert f"{row} | {value:+.2f} [{low:.2f}, {high:.2f}] |" in (ROOT / "README.md").read_text()


def test_the_picture_has_a_bar_for_each_gain(planted):
    code = study("second_look", "claims")
    first = planted[(planted["arm"] == "E1") & planted["anneal_lr"]]
    for runs, bars in ((planted, 12), (first, 5)):
        figure = code.draw(Scores(code.table(runs), code.VARIES))
        left = figure.axes[0]
        assert len([text for text in left.texts if text.get_text()[0] in "+-"]) == bars
        plt.close(figure)


def test_the_tables_of_the_page(planted, judged):
    """Each row has the columns of its header; what a setting gains is computed again from the planted runs."""
    code, page = study("second_look", "claims"), study("second_look", "page")
    times = {"start": "2026-11-28T17:09:34+0000", "wall_seconds": 90.0, "global_step": planted["total_timesteps"]}
    runs = code.table(planted.assign(**times))
    verdicts = pd.DataFrame(judged.values()).replace({"low": {"nan": np.nan}, "high": {"nan": np.nan}})
    verdicts = verdicts.astype({name: float for name in ("value", "low", "high")})
    tables = {name: table for of_page in page.TABLES.values() for name, (_, table) in of_page.items()}
    found = {name: list(table(verdicts, runs)) for name, table in tables.items()}
    for lines in found.values():
        assert len({line.count("|") for line in lines}) == 1 and "nan" not in "".join(lines)
    raised, default = of_e1(planted.to_dict("records"), lambda steps: (at(8, 128, 2e-3), at(8, 128, 2.5e-4))).T
    value, low, high = student(raised - default)
    row = next(line for line in found["settings"] if line.startswith("| 8 x 128, 2e-3"))
    assert f"{raised.mean():.2f} | {value:+.2f} [{low:+.2f}, {high:+.2f}]" in row
    slopes = [np.mean([float(cell) for cell in line.split("|")[-3:-1]]) for line in found["best_rates"][2:]]
    assert np.mean(slopes) == pytest.approx(float(judged[TEXTS["L4"]]["value"]), abs=6e-3)
    e1 = planted[(planted["arm"] == "E1") & (planted["learning_rate"] == 2e-3) & (planted["state"] == "done")]
    ess = e1.pivot_table(index="env_id", columns="num_envs", values="ess")
    row = next(line for line in found["forty"] if line.startswith("| ESS"))
    assert row.startswith(f"| ESS, % | {(ess[128] > ess[8]).sum()} up, {(ess[128] < ess[8]).sum()} down;")
    e5 = planted[(planted["arm"] == "E5") & (planted["state"] == "done") & (planted["learning_rate"] == law(1_000_000))]
    ess = e5.pivot_table(index="env_id", columns="num_envs", values="ess")
    row = next(line for line in found["images_moves"] if line.startswith("| ESS"))
    assert row.startswith(f"| ESS, % | {(ess[128] > ess[8]).sum()} up, {(ess[128] < ess[8]).sum()} down;")
    ess = planted[planted["state"] == "done"].groupby(["arm", "env_id", "num_envs", "minibatch_size", "learning_rate"])
    ess = ess["ess"].mean()
    tasks = sorted(set(planted.loc[planted["arm"] == "E7", "env_id"]))
    rates = [law(BUDGETS[task]) for task in tasks]
    rises = [ess["E7", t, 32, 1024, rate] > ess["E1", t, 8, 256, rate] for t, rate in zip(tasks, rates, strict=True)]
    balance = pd.Series(np.where(rises, 1, -1), tasks).groupby(FAMILIES).sum()
    row = next(line for line in found["more_moves"] if line.startswith("| ESS"))
    assert row.startswith(f"| ESS, % | {sum(rises)} up, {len(tasks) - sum(rises)} down;")
    assert row.split(" | ")[4] == f"{(balance > 0).sum()} up, {(balance < 0).sum()} down"
    own, eights = law_by_rows(planted.to_dict("records"))
    assert " {:+.2f} [{:+.2f}, {:+.2f}] |".format(*student(own - eights)) in found["more_gains"][2]
    claimed = [line for line in found["staggered"] if "(L" in line]
    for line, values in zip(claimed, of_staggered_starts(planted.to_dict("records")).values(), strict=True):
        assert " {:+.2f} [{:+.2f}, {:+.2f}] |".format(*student(values)) in line
    assert sum(int(line.split("|")[2]) for line in found["families"][2:-1]) == len(raised)
    values = of_new_tasks(planted.to_dict("records"), lambda _: at(128, 8, 2e-3), lambda _: at(8, 128, 2e-3))
    value, low, high = student(values)
    cells = found["new_gains"][-1].split(" | ")
    assert cells[1:3] == [f"{value:+.2f} [{low:+.2f}, {high:+.2f}]", f"{sum(np.array(values) > 0)} of {len(values)}"]
    ends = sorted(student(np.delete(values, place)) for place in range(len(values)))
    assert [cell.split(",")[0] + cell.split(",")[1] for cell in cells[6:8]] == [
        f"{mean:+.2f} [{low:+.2f} {high:+.2f}]" for mean, low, high in (ends[0], ends[-1])
    ]
    scaled = student(on_one_scale(planted.to_dict("records"), at(128, 8, 2e-3), at(8, 128, 2e-3)))
    assert cells[8] == "{:+.2f} [{:+.2f}, {:+.2f}] |".format(*scaled)
    value, low, high = l3(planted.to_dict("records"))
    assert f" {value:+.2f} [{low:+.2f}, {high:+.2f}] |" in found["longer"][2]
    value, low, high = student(longer(planted.to_dict("records")))
    assert f" {value:+.2f} [{low:+.2f}, {high:+.2f}] |" in found["longer"][6]
    assert [judged[TEXTS[name]]["seeds"] for name in RECOMPUTED] == [5, 10, 6, 3]
    tasks = {name: {line.split(" ")[1] for line in found[name][2:]} for name in ("new", "not_learned")}
    assert len(tasks["new"]) == len(values) and tasks["new"] | tasks["not_learned"] == set(design.fresh_tasks())
    assert tasks["new"] & tasks["not_learned"] == {page.ODD}
    assert len(found["claims"]) == 2 + len(judged) and len(found["tasks"]) == 2 + len(BUDGETS)
