"""The second look: what should somebody do? L1 to L22 as results/CLAIMS.md registers them; the runs are in blocks/.

A task's number is made of means over seeds; Student's t over tasks. An experiment counts once it has run on all tasks
with the first of their seeds; a claim is made once all of its experiments count.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from analysis.claims import ESTIMATE, PRIMARY, SECONDARY, Claims
from analysis.comparisons import Tested, judge
from analysis.estimates import ALPHA, CONTRADICTED, SUPPORTED, UNDECIDED, Estimate, evidence, holm, mean, verdict
from analysis.look import BLUE, PAGE, VERMILLION, plt
from scipy import stats

from results.second_look import design
from support import catalog

HERE = Path(__file__).resolve().parent
VARIES = ("arm", *design.KEYS[:6], "anneal_lr")
FIXED = {}
EQUAL = 0.05  # the margin of "about equal"
LOWEST = -1.0  # of a score in E4
ERRORS = 3  # standard errors above random play from which a setting has learned something
NEAR = 0.1  # L4: a rate within this score of the best one belongs to the top
WITHIN = 0.35  # L4: the margin around the slope of -1
REACH = 1.2  # of the picture, in scores
DIAGNOSTICS = {  # name: column, its words, P1's direction with more environments
    "L7": ("feature_rank", "the feature rank rises", 1),
    "L8": ("dormant_neurons", "dormant neurons fall", -1),
    "L9": ("weight_norm", "the weight norm falls", -1),
    "L10": ("gradient_kurtosis", "the gradient kurtosis falls", -1),
    "L11": ("policy_variance", "the policy variance falls", -1),
    "L12": ("ess", "ESS rises", 1),
}
CHANGES = {  # from one of E1's settings to another: N x T at one rate, then the rate at one N x T
    "8 x 128 to 128 x 8, at 2e-3": ("2e-3", "many, 2e-3"),
    "8 x 128 to 128 x 8, at the law's rate": ("law", "many, law"),
    "8 x 128 to 32 x 32, at 2e-3": ("2e-3", "middle, 2e-3"),
    "2.5e-4 to 2e-3, at 8 x 128": ("default", "2e-3"),
}
N_BY_T, *_, RATE = CHANGES
MORE = {  # the same to 32 x 128, of E1 and E7: P1's own axis
    "8 x 128 to 32 x 128, four minibatches, at the rate of 8 x 128": (("E1", "law"), ("E7", "four, law of 8 x 128")),
    "the same, at its own rate": (("E1", "law"), ("E7", "four, law")),
    "the same, sixteen minibatches and the rate of 8 x 128": (("E1", "law"), ("E7", "sixteen, law")),
}
IMAGES = {  # the same on images
    "8 x 128 to 128 x 8, at the law's rate": (("E5", "law"), ("E5", "many, law")),
    "8 x 128 to 32 x 32, at the law's rate": (("E5", "law"), ("E5", "middle, law")),
    "2.5e-4 to the law's rate, at 8 x 128": (("E5", "default"), ("E5", "law")),
}
OTHER_ARMS = {  # words of a claim: the experiments whose seeds it counts, the fewest of a setting
    "without a pilot": {"E4"},
    "three times as long": {"E1", "E2"},
    "to 32x128": {"E1", "E7"},
    "staggered": {"E1", "E6", "E9"},
}
AXES = {  # of L7 to L12: few and many environments, each (experiment, setting)
    "8x128 to 128x8 at 2e-3": (("E1", "2e-3"), ("E1", "many, 2e-3")),
    "8x128 to 32x128 with four minibatches, at one rate": (("E1", "law"), ("E7", "four, law of 8 x 128")),
}


# ---- runs ------------------------------------------------------------------------------------------------------------
def read_blocks(folder):
    """All runs of the blocks, as far as they have run."""
    paths = sorted((folder / "blocks").glob("E*/*.csv"))
    return pd.concat([pd.read_csv(path, dtype={"start": str, "commit": str}) for path in paths], ignore_index=True)


def named(runs):
    """The runs with the `name` of their setting in design.py."""
    names = {
        (block.arm, block.task, *design.key_of(one, seed)): name
        for block in design.blocks()
        for name, one, seed in block.runs
    }
    keys = zip(runs["arm"], runs["env_id"], *(runs[name].astype(float) for name in design.KEYS), strict=True)
    return runs.assign(name=[names[key] for key in keys])


def complete(runs, left_out=frozenset()):
    """The experiments, "sb3" apart, that have run on all tasks with the first of their seeds.

    left_out: the (experiment, task) with a run that failed.
    """
    there = set(zip(runs["arm"], runs["env_id"], *(runs[name].astype(float) for name in design.KEYS), strict=True))
    seen, lacking = set(), set()
    for block in design.blocks():
        arm = "sb3" if block.runs[0][0] == "sb3" else block.arm
        wanted = {(block.arm, block.task, *design.key_of(one, seed)) for _, one, seed in block.runs}
        if (arm, block.task) not in seen and (block.arm, block.task) not in left_out and not wanted <= there:
            lacking.add(arm)
        seen.add((arm, block.task))  # what comes later is further seeds
    return {arm for arm, _ in seen} - lacking


def rows(folder):
    """The runs for the table of all: those of the experiments that count."""
    if not list((folder / "blocks").glob("E*/*.csv")):
        return
    runs, path = read_blocks(folder), folder / "blocks" / "left_out.csv"
    failed = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=["arm", "task"])
    counts = complete(runs, set(zip(failed["arm"], failed["task"], strict=True)))
    arms = runs["arm"].where(runs["anneal_lr"].astype(bool), "sb3")
    yield from runs[arms.isin(counts)].to_dict("records")


# ---- scores ----------------------------------------------------------------------------------------------------------
def random_play():
    """A row a task, of the atlas's and of those of E4 and E5: the mean return of random play, and its deviation."""
    tables = [design.table_of("random"), pd.read_csv(HERE / "random.csv")]
    return pd.concat(tables).drop_duplicates("task").set_index("task")


def scale_r():
    """{task: (return that scores 0, that scores 1)} of the forty, as the atlas has them on scale R."""
    blocks = [pd.read_csv(design.ATLAS / "blocks" / f"{task}.csv") for task in design.budgets()]
    atlas, play = pd.concat(blocks), random_play()["random"]
    atlas = atlas[atlas["seed"].isin((1, 2, 3))]
    returns = atlas["final_return"].where(atlas["state"] != "diverged", atlas["env_id"].map(play))
    keys = [atlas[name] for name in ("env_id", "num_envs", "num_steps", "learning_rate")]
    best, known = returns.groupby(keys).mean().groupby("env_id").max(), catalog.small_table()
    return {task: known.get(catalog.task_name(task)) or (play[task], best[task]) for task in design.budgets()}


def table(runs):
    """The runs with the columns `name` and `score`; `unclipped` is E4's score without a lower bound.

    A diverged run has the return of random play, and no diagnostic.
    """
    play, known, found = random_play(), scale_r(), []
    diverged = runs["state"] == "diverged"
    runs = named(runs).assign(final_return=runs["final_return"].where(~diverged, runs["env_id"].map(play["random"])))
    runs.loc[diverged, [*(column for column, _, _ in DIAGNOSTICS.values()), "noise_scale"]] = np.nan
    for (arm, task), own in runs.groupby(["arm", "env_id"], sort=False):
        zero = play.loc[task, "random"]
        if arm == "E4":
            one = best_of_other_seeds(own)
        elif arm == "E5":
            one = own.groupby("name")["final_return"].mean().max()
        else:
            zero, one = known[task]
        scores = (own["final_return"] - zero) / (one - zero)
        found.append(own.assign(score=scores.clip(lower=LOWEST) if arm == "E4" else scores, unclipped=scores))
    return pd.concat(found)


def best_of_other_seeds(own):
    """For each run of a task the highest mean return of a setting and budget over the other seeds."""
    returns = own.pivot(index="seed", columns=["name", "total_timesteps"], values="final_return")
    best = {seed: returns.drop(index=seed).mean().max() for seed in returns.index}
    return own["seed"].map(best)


def learned(own):
    """Whether a setting of a task, at one of its budgets, is above random play by ERRORS standard errors."""
    play = random_play().loc[own["env_id"].iloc[0]]
    returns = own.groupby(["name", "total_timesteps"])["final_return"]
    error = np.hypot(returns.std() / returns.count() ** 0.5, play["deviation"] / 1000**0.5)
    return bool((returns.mean() - play["random"] > ERRORS * error).any())


def means(runs, arm, column="score", tasks=None):
    """A row a task, a column a setting: means over the seeds of an experiment's runs. tasks: these only."""
    own = runs[runs["arm"] == arm]
    found = own.pivot_table(index="env_id", columns="name", values=column, sort=False)
    return found if tasks is None else found.loc[[task for task in found.index if task in tasks]]


# ---- tests -----------------------------------------------------------------------------------------------------------
def over_tasks(values, margin=EQUAL):
    """The Tested of one number per task, claimed to be above 0: Student's t. Says whether it is about 0."""
    values = np.asarray(values, float)
    tested = judge(evidence(mean, [[values]]), "more")
    half = stats.t.ppf(0.95, len(values) - 1) * stats.sem(values)
    words = f"{len(values)} tasks" + "; about equal" * bool(abs(values.mean()) + half < margin)
    return tested._replace(remark=words)


def sign_test(effects, direction):
    """The Tested of a diagnostic that moves in a direction, 1 or -1, on more tasks than in the other.

    effects: a number per task. The estimate is their median, without an interval; the p-values are before Holm.
    """
    effects = np.asarray(effects, float)
    effects = effects[np.isfinite(effects)]
    with_it, against = (int((direction * sign * effects > 0).sum()) for sign in (1, -1))
    chance = stats.binomtest(with_it, with_it + against).pvalue if with_it + against else 1.0
    chances = (chance, 1.0) if with_it > against else (1.0, chance)
    remark = f"in P1's direction on {with_it} of {len(effects)} tasks, against it on {against}"
    return Tested(Estimate(float(np.median(effects)), np.nan, np.nan), UNDECIDED, chances, remark=remark)


def after_holm(found):
    """Tested with verdicts by the p-values corrected for their number, which the remark has."""
    sides = [holm([one.chances[side] for one in found]) for side in (0, 1)]
    for one, holds, fails in zip(found, *sides, strict=True):
        word = SUPPORTED if holds < ALPHA else CONTRADICTED if fails < ALPHA else UNDECIDED
        remark = f"{one.remark}; p {min(holds, fails):.2g} after Holm over {len(found)}"
        yield one._replace(verdict=word, remark=remark)


def effect(few, many):
    """The mean of many minus that of few, (seeds,) each, in their pooled standard deviations; NaN without any."""
    if min(len(few), len(many)) < 2:
        return np.nan
    spread = np.sqrt((few.var(ddof=1) + many.var(ddof=1)) / 2)
    difference = many.mean() - few.mean()
    return difference / spread if spread > 0 else np.nan if difference else 0.0


# ---- L4: the best rate and k -----------------------------------------------------------------------------------------
def center(scores):
    """The best rate, log2 of its multiple of the lowest: the middle of those within NEAR of the best. (..., rates)."""
    near = scores >= scores.max(-1, keepdims=True) - NEAR
    return (near * np.arange(scores.shape[-1])).sum(-1) / near.sum(-1)


def vertex(scores):
    """The same by the vertex of a parabola through the scores of the rates, (rates,), kept within the grid."""
    places = np.arange(len(scores))
    a, b, _ = np.polyfit(places, scores, 2)
    return float(np.clip(-b / (2 * a), 0, places[-1])) if a < 0 else float(np.argmax(scores))


def of_k(runs):
    """{task: scores (5 arms, 11 rates, 3 seeds)} of E3, the arms in the order of design.K_ARMS."""
    own, found = runs[runs["arm"] == "E3"], {}
    for task, of_task in own.groupby("env_id", sort=False):
        scores = of_task.set_index(["name", "seed"])["score"]
        named = list(design.adam_steps(design.budgets()[task]))
        values = [[scores[name, seed] for seed in design.TUNED_SEEDS] for name in named]
        found[task] = np.reshape(values, (len(design.K_ARMS), len(design.RATES), len(design.TUNED_SEEDS)))
    return found


def slopes(best):
    """The slopes of log best rate on log k, by epochs and by minibatches. best: (5,), log2, in the order of K_ARMS."""
    one_epoch, _, sixteen, small, large = best
    return (sixteen - one_epoch) / 4, (small - large) / 4  # from k / 4 to 4 k


def slope_is_one(values):
    """The Tested of L4: the mean slope over tasks lies within WITHIN of -1."""
    one = over_tasks(values).estimate
    low, high = one.low + 1, one.high + 1
    error, freedom = stats.sem(values), len(values) - 1
    away = one.value + 1
    holds = max(stats.t.sf((WITHIN - away) / error, freedom), stats.t.sf((WITHIN + away) / error, freedom))
    fails = min(1.0, 2 * stats.t.sf(max(abs(away) - WITHIN, 0) / error, freedom))
    inside = [f"{value:g}" for value in (-0.5, 0) if one.low <= value <= one.high]
    remark = f"{len(values)} tasks; in the interval, of -0.5 and 0: {', '.join(inside) or 'neither'}"
    return Tested(one, verdict(low, high, "little", WITHIN), (min(1.0, 2 * holds), fails), remark=remark)


def own_best(scores, arm):
    """The score of an arm at its own best rate: two seeds choose, the third judges, in turn. scores: of a task."""
    values = []
    for judge_seed in range(scores.shape[-1]):
        chosen = np.delete(scores[arm], judge_seed, -1).mean(-1).argmax()
        values.append(scores[arm, chosen, judge_seed])
    return np.mean(values)


# ---- the claims ------------------------------------------------------------------------------------------------------
def best_of_threes(runs):
    """The mean final score of the kept networks on each task: of each three seeds of E1's law the best in training."""
    own, found = runs[(runs["arm"] == "E1") & (runs["name"] == "law")], {}
    for task, of_task in own.groupby("env_id", sort=False):
        ordered = of_task.sort_values("seed")
        threes = [ordered.iloc[i : i + 3] for i in range(0, len(ordered) - 2, 3)]
        kept = [three.loc[three["episodic_return"].fillna(-np.inf).idxmax()] for three in threes]
        found[task] = float(np.mean([run["score"] for run in kept]))
    return pd.Series(found)


def starts(runs):
    """A row for each task that counts: the scores at 2e-3 with staggered starts of 8 x 128 and 128 x 8 (E6 and E9)."""
    own = runs[runs["arm"].isin(("E6", "E9"))]
    found = own.pivot_table(index="env_id", columns="name", values="score")
    found = found.rename(columns={"2e-3, staggered": "few", "many, 2e-3, staggered": "many"})
    return found.loc[list(design.counted())]


def budgets_of(tasks):
    return np.log2([design.budgets()[task] for task in tasks])


def claims(scores):
    """L1 to L22, as far as their experiments count."""
    found, runs = Claims(scores), scores.table
    counts, counted = set(runs["arm"]), design.counted()
    e1 = means(runs, "E1", tasks=counted)

    def add(name, text, tested, family=SECONDARY, quantity="score"):
        of_name = {"L4": "E3", "L4b": "E3", "L15": "E5", "L17": "E7", "L18": "E8"}.get(name, "E1")
        arms = next((arms for words, arms in OTHER_ARMS.items() if words in text), {of_name})
        own = runs[runs["arm"].isin(arms) & ((runs["name"] != "sb3") | (name == "L14"))]
        seeds = int(own.groupby(["arm", "env_id", "name", "total_timesteps"]).size().min())
        claim = {"name": name, "family": family, "quantity": quantity, "seeds": seeds, "needs": "", "by_task": False}
        found.add(text, lambda view: tested, scores.configs, **claim)

    if "E4" in counts:
        fresh = runs[runs["arm"] == "E4"]
        good = [task for task, own in fresh.groupby("env_id", sort=False) if learned(own)]
        by_budget = fresh.pivot_table(index="env_id", columns=["name", "total_timesteps"], values="score", sort=False)
        unclipped = fresh.pivot_table(index="env_id", columns="name", values="unclipped", sort=False)
        e4 = means(runs, "E4")  # of both budgets
        raised, text = e4["law"] - e4["default"], "on tasks without a pilot 8x128 at the law's rate beats 2.5e-4"
        add("L1", text, over_tasks(raised[good]), PRIMARY)
        every = raised.where(raised.index.isin(good), 0.0)
        add("L1", f"{text}: with the tasks that no setting learned, as 0", over_tasks(every), ESTIMATE)
        lower = (unclipped["law"] - unclipped["default"])[good]
        add("L1", f"{text}: without a lowest score", over_tasks(lower), ESTIMATE)
        for steps in design.NEW_BUDGETS:
            values = (by_budget["law", steps] - by_budget["default", steps])[good]
            add("L1", f"{text}: in {steps:,} steps", over_tasks(values), ESTIMATE)
    if "E1" in counts:
        many = e1["2e-3"] - e1["many, 2e-3"]
        add("L2", "at one rate, 2e-3, 8x128 beats 128x8", over_tasks(many), PRIMARY)
        add("L2", "the same at the law's rate", over_tasks(e1["law"] - e1["many, law"]), ESTIMATE)
        if "E4" in counts:
            values = (e4["2e-3"] - e4["many, 2e-3"])[good]
            add("L2", "the same at 2e-3, on tasks without a pilot", over_tasks(values), ESTIMATE)
        kept = best_of_threes(runs)[e1.index]
        if "E2" in counts:
            longer = means(runs, "E2", tasks=counted)["law"]
            text = "the best of three runs beats one three times as long"
            add("L3", text, over_tasks(kept[longer.index] - longer), PRIMARY)
        add("L3", "the best of three runs minus one of them", over_tasks(kept - e1["law"]), ESTIMATE)
    if "E3" in counts:
        of_task = of_k(runs)
        both = np.array([slopes(center(one.mean(-1))) for one in of_task.values()])
        text = "the best rate falls as 1 / k"
        add("L4", text, slope_is_one(both.mean(1)), PRIMARY, "slope of log rate on log k")
        add("L4", f"{text}: k by epochs", slope_is_one(both[:, 0]), ESTIMATE, "slope of log rate on log k")
        add("L4", f"{text}: k by minibatches", slope_is_one(both[:, 1]), ESTIMATE, "slope of log rate on log k")
        tops = np.array([slopes([vertex(arm) for arm in one.mean(-1)]) for one in of_task.values()]).mean(1)
        add("L4", f"{text}: by parabolas", slope_is_one(tops), ESTIMATE, "slope of log rate on log k")
        of_arm = np.array([[own_best(one, arm) for arm in range(len(design.K_ARMS))] for one in of_task.values()])
        add("L4b", "16 epochs minus 4, each at its own best rate", over_tasks(of_arm[:, 2] - of_arm[:, 1]))
        add("L4b", "minibatches of 1024 rows minus 256, likewise", over_tasks(of_arm[:, 4] - of_arm[:, 1]))
    if "E1" in counts:
        add("L5", "the law beats 2e-3", over_tasks(e1["law"] - e1["2e-3"]))
        if "E4" in counts:
            add("L5", "the same on tasks without a pilot", over_tasks((e4["law"] - e4["2e-3"])[good]), ESTIMATE)
        fit = stats.linregress(budgets_of(many.index), many)
        half = stats.t.ppf(0.975, len(many) - 2) * fit.stderr
        one = Estimate(fit.slope, fit.slope - half, fit.slope + half)
        chances = (fit.pvalue, 1.0) if fit.slope > 0 else (1.0, fit.pvalue)
        grows = Tested(one, verdict(one.low, one.high, "more"), chances, remark=f"{len(many)} tasks")
        add("L6", "8x128 minus 128x8 at 2e-3 grows with the budget", grows, quantity="score a doubling of the budget")
    for axis, (few, many) in AXES.items():
        if {few[0], many[0]} <= counts:
            tested = [sign_test(effects(runs, few, many, column), sign) for column, _, sign in DIAGNOSTICS.values()]
            tested = after_holm(tested)
            for (name, (_, words, _)), one in zip(DIAGNOSTICS.items(), tested, strict=True):
                add(name, f"{words}, {axis}", one, quantity="standard deviations over seeds, median of the tasks")
    if "E1" in counts:
        for column in (*(column for column, _, _ in DIAGNOSTICS.values()), "noise_scale"):
            tested = over_tasks(rank_correlations(runs, column), margin=0.0)
            add("L13", f"{column} and the final return within a setting", tested, ESTIMATE, "Spearman's rho")
        if "sb3" in e1:
            add("L14", "the law beats stable-baselines3's default", over_tasks(e1["law"] - e1["sb3"]))
    if "E5" in counts:
        e5 = means(runs, "E5")
        add("L15", "images: the law minus 2.5e-4", over_tasks(e5["law"] - e5["default"]), ESTIMATE)
        add("L15", "images: 8x128 minus 128x8 at the law's rate", over_tasks(e5["law"] - e5["many, law"]), ESTIMATE)
        for column, words, sign in DIAGNOSTICS.values():
            one = sign_test(effects(runs, ("E5", "law"), ("E5", "many, law"), column), sign)
            add("L15", f"images: {words}", one, ESTIMATE, "standard deviations over seeds, median of the tasks")
    if "E1" in counts:
        law = runs[(runs["arm"] == "E1") & (runs["name"] == "law") & runs["best_final_return"].notna()]
        zero_one = pd.DataFrame(scale_r(), index=["zero", "one"]).T
        gain = (law["best_final_return"] - law["final_return"]) / law["env_id"].map(zero_one["one"] - zero_one["zero"])
        gain = gain.groupby(law["env_id"], sort=False).mean()
        tested = over_tasks(gain[[task for task in gain.index if task in counted]])
        add("L16", "the best network of a run beats its last one", tested)
    if "E7" in counts:
        e7 = means(runs, "E7", tasks=counted)
        values = e7["four, law"] - e7["four, law of 8 x 128"]
        add("L17", "32x128, four minibatches: its own law beats the rate of 8x128", over_tasks(values))
        add("L17", "four minibatches minus sixteen, each at its law", over_tasks(e7["four, law"] - e7["sixteen, law"]))
    if "E8" in counts:
        e8 = means(runs, "E8")
        values = e8["square root"] - e8["law"]
        add("L18", "10 epochs of 32 rows: the square root of k beats the law", over_tasks(values))
        values = e8["law of 256 rows"] - e8["square root"]
        add("L18", "the same without k minus the square root", over_tasks(values), ESTIMATE)
        values = e8["square root"] - e1["law"][e8.index]
        add("L18", "10 epochs of 32 rows at the square root minus 4 of 256 at the law", over_tasks(values), ESTIMATE)
    if "E6" in counts:
        e6 = means(runs, "E6")["many, 2e-3, staggered"]
        own = e1.loc[e6.index]
        add("L19", "128x8 at 2e-3: staggered starts beat none", over_tasks(e6 - own["many, 2e-3"]))
        add("L19", "8x128 minus 128x8 at 2e-3, staggered", over_tasks(own["2e-3"] - e6), ESTIMATE)
        without = own["2e-3"] - own["many, 2e-3"]
        add("L19", "8x128 minus 128x8 at 2e-3, not staggered, on these tasks", over_tasks(without), ESTIMATE)
    if {"E6", "E9"} <= counts:
        of_starts = starts(runs)
        gain, longest, alike = of_starts["many"] - e1["many, 2e-3"], design.longest_tasks(), design.one_length()
        fresh = gain[[task for task in gain.index if task not in longest]]
        add("L20", "128x8 at 2e-3: staggered starts beat none, on the 26 other tasks", over_tasks(fresh))
        text = "128x8 at 2e-3: staggered starts beat none, on the 13 of these with episodes of one length"
        add("L21", text, over_tasks(fresh[[task for task in fresh.index if task in alike]]))
        varied = fresh[[task for task in fresh.index if task not in alike]]
        add("L21", "the same on the 13 of these with episodes of several lengths", over_tasks(varied), ESTIMATE)
        few = of_starts["few"] - e1["2e-3"]
        add("L22", "8x128 at 2e-3: staggered starts beat none", over_tasks(few))
        both = of_starts["few"] - of_starts["many"]
        add("L22", "8x128 minus 128x8 at 2e-3, both staggered", over_tasks(both), ESTIMATE)
    return found


def effects(runs, few, many, column):
    """{task: a number}: how far a diagnostic moves from few to many environments, in deviations over seeds."""
    sides = []
    for arm, name in (few, many):
        own = runs[(runs["arm"] == arm) & (runs["name"] == name)]
        sides.append({task: of[column].dropna().to_numpy(float) for task, of in own.groupby("env_id", sort=False)})
    return pd.Series({task: effect(sides[0][task], sides[1][task]) for task in sides[1] if task in sides[0]})


def rank_correlations(runs, column):
    """A number per task: Spearman's rho of a diagnostic with the final return over the seeds, mean over E1's settings.

    A setting in which one of both does not vary says nothing, and a task without another one is left out.
    """
    found = []
    for _, of_task in runs[runs["arm"] == "E1"].groupby("env_id", sort=False):
        rhos = []
        for _, own in of_task.groupby("name"):
            own = own[[column, "final_return"]].dropna()
            if len(own) > 2 and (own.nunique() > 1).all():
                rhos.append(own.rank().corr().iloc[0, 1])
        found += [np.mean(rhos)] if rhos else []
    return found


# ---- the picture -----------------------------------------------------------------------------------------------------
def gains(runs):
    """{label: a number per task} of what each step gains at 8 x 128, and of few environments instead of many."""
    counts, tasks = set(runs["arm"]), design.counted()
    steps, n_by_t = {}, {}
    if "E1" in counts:
        e1 = means(runs, "E1", tasks=tasks)
        steps["2e-3 in place of 2.5e-4"] = e1["2e-3"] - e1["default"]
        steps["the law's rate in place of 2.5e-4"] = e1["law"] - e1["default"]
        n_by_t["at 2e-3"] = e1["2e-3"] - e1["many, 2e-3"]
        n_by_t["at the law's rate"] = e1["law"] - e1["many, law"]
    if "E4" in counts:
        fresh = runs[runs["arm"] == "E4"]
        good = [task for task, own in fresh.groupby("env_id", sort=False) if learned(own)]
        e4 = means(runs, "E4").loc[good]
        steps["the same on new tasks"] = e4["law"] - e4["default"]
        n_by_t["at 2e-3, new tasks"] = e4["2e-3"] - e4["many, 2e-3"]
    if "E5" in counts:
        e5 = means(runs, "E5")
        steps["the same on images"] = e5["law"] - e5["default"]
        n_by_t["at the law's rate, images"] = e5["law"] - e5["many, law"]
    if {"E1", "E6", "E9"} <= counts:
        of_starts = starts(runs)
        n_by_t["at 2e-3, staggered starts for both"] = of_starts["few"] - of_starts["many"]
    if "E1" in counts:
        steps["the law's rate: the best of three seeds"] = best_of_threes(runs)[e1.index] - e1["law"]
        if "E2" in counts:
            longer = means(runs, "E2", tasks=tasks)["law"]
            steps["the law's rate: three times the steps"] = longer - e1["law"][longer.index]
        if "sb3" in e1:
            steps["the law in place of SB3's default"] = e1["law"] - e1["sb3"]
    return steps, n_by_t


def draw(scores):
    """Means with intervals over tasks, and a dot a task; then on how many tasks each diagnostic rises and falls."""
    steps, n_by_t = gains(scores.table)
    figure, (left, right) = plt.subplots(1, 2, figsize=(PAGE, 3.4), width_ratios=(1.6, 1))
    bars = {**steps, "8×128 minus 128×8:": None, **n_by_t}
    for place, (label, values) in enumerate(bars.items()):
        if values is None:
            continue
        one, color = over_tasks(values).estimate, BLUE if label in steps else VERMILLION
        left.barh(place, one.value, height=0.55, color=color, alpha=0.85)
        heights = place + np.linspace(0.3, -0.3, len(values))
        left.plot(np.clip(sorted(values), -REACH, REACH), heights, ".", ms=2, color="0.5")
        left.plot([one.low, one.high], [place, place], color="black", lw=1.2)
        left.text(REACH + 0.05, place, f"{one.value:+.2f}", va="center", fontsize=7)
    left.axvline(0, color="0.4", lw=0.6)
    left.set_yticks(range(len(bars)), bars)
    left.tick_params(axis="y", length=0)
    left.set(xlim=(-REACH - 0.05, REACH + 0.3), xlabel="gain of score", ylim=(len(bars) - 0.4, -0.6))
    left.set_title("What each step gains, PPO at 8×128", loc="left")
    for place, (column, _, _) in enumerate(DIAGNOSTICS.values()):
        for offset, change, color in ((-0.2, RATE, BLUE), (0.2, N_BY_T, VERMILLION)):
            before, after = CHANGES[change]
            values = effects(scores.table, ("E1", before), ("E1", after), column)
            for sign in (1, -1):
                right.barh(place + offset, sign * (sign * values > 0).sum(), height=0.36, color=color, alpha=0.85)
    labels = [column.replace("_", " ").replace("ess", "ESS") for column, _, _ in DIAGNOSTICS.values()]
    right.axvline(0, color="0.4", lw=0.6)
    right.set_yticks(range(len(DIAGNOSTICS)), labels)
    right.tick_params(axis="y", length=0)
    ticks = (-40, -20, 0, 20, 40)
    right.set(ylim=(len(DIAGNOSTICS) - 0.4, -0.6), xlim=(-41, 41), xlabel="tasks: it falls, it rises")
    right.set_xticks(ticks, map(abs, ticks))
    right.set_title("What moves the network", loc="left")
    text = f"Left: black is the 95 % interval of the mean over tasks, a dot a task, beyond ±{REACH} at the edge.\n"
    text += "Right: blue is the rate, 2.5e-4 to 2e-3 at 8×128; orange is N×T, 8×128 to 128×8 at 2e-3."
    figure.supxlabel(text, fontsize=7, color="0.3")
    return figure
