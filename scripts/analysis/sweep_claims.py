"""What the papers claim of each sweep, as rows with numbers and verdicts (claims.py).

    claims = Claims(suite)
    sweep_claims.fixed_budget(suite, claims)

A function a sweep, with the same name as the function in figures.py that draws it. The first row is the primary one.
"""

import itertools

import numpy as np

from analysis.claims import NO_FINAL_SCORES, PRIMARY
from analysis.comparisons import (
    best_place,
    curvature,
    judge,
    judge_best,
    judge_default,
    judge_each,
    over_each,
    quadratic,
    split,
)
from analysis.estimates import MARGIN, evidence, kendall, nothing, resampled, several
from analysis.suite import MEASURES, SHORT_NAMES, label_of, name_of_schedule, short


# ---- parts of several sweeps -----------------------------------------------------------------------------------------
def mean_over(factors):
    return "mean over k = " + " ".join(f"{k:g}" for k in factors)


def scaling(suite, claims, side="more"):
    """P1's comparisons of the base, N-scaling and T-scaling: over all factors, then factor by factor."""
    n_scaled, t_scaled = suite.scaled("num_envs"), suite.scaled("num_steps")
    factors = sorted(set(n_scaled) & set(t_scaled))
    if t_scaled:
        claims.compare(
            "N-scaling beats T-scaling",
            [n_scaled[k] for k in factors],
            [t_scaled[k] for k in factors],
            f"IQM(N×k) - IQM(T×k), {mean_over(factors)}",
            primary=side == "more" and not claims,
        )
    for k in factors if len(factors) > 1 else []:
        claims.compare(f"  N×{k:g} beats T×{k:g}", [n_scaled[k]], [t_scaled[k]], f"IQM(N×{k:g}) - IQM(T×{k:g})")
    words = {"more": "beats the base", "little": "gains little over the base", "not less": "is not below the base"}
    for letter, scaled in (("N", n_scaled), ("T", t_scaled)):
        if scaled:
            claims.compare(
                f"{letter}-scaling {words[side]}",
                list(scaled.values()),
                [suite.base] * len(scaled),
                f"IQM({letter}×k) - IQM(base), {mean_over(scaled)}",
                side,
                primary=side == "not less" and letter == "N" and not claims,
            )


def sample_efficiency(suite, claims):
    """P1's gains in mid-training: area under the curve, half the budget, and the steps to a threshold."""
    n_scaled, t_scaled = suite.scaled("num_envs"), suite.scaled("num_steps")
    factors = sorted(set(n_scaled) & set(t_scaled))
    pairs = [("N-scaling", list(n_scaled.values()), "the base", [suite.base] * len(n_scaled), n_scaled)]
    if factors:
        pairs += [("N-scaling", [n_scaled[k] for k in factors], "T-scaling", [t_scaled[k] for k in factors], factors)]
    for name, better, other_name, worse, over in pairs if n_scaled else []:
        for measure, side in (("area", "more"), ("half", "more"), ("steps", "less")):
            claims.compare(
                f"{name} learns faster than {other_name}: {MEASURES[measure]}",
                better,
                worse,
                f"IQM(N×k) - IQM({'base' if other_name == 'the base' else 'T×k'}), {mean_over(over)}",
                side,
                measure,
            )


# ---- the sweeps ------------------------------------------------------------------------------------------------------
def any_sweep(suite, claims):
    """A sweep of one's own: every configuration against the base."""
    others = [config for config in suite.configs if config != suite.base]
    for config in others:
        quantity = f"mean({label_of(config)}) - mean(base)"
        claims.compare(f"{label_of(config)} beats the base", [config], [suite.base], quantity, primary=len(others) == 1)
    for config in others:
        quantity = f"mean({label_of(config)}) - mean(base) inside ±{MARGIN:.0%} of the base"
        claims.compare(f"{label_of(config)} is close to the base", [config], [suite.base], quantity, "little")
    claims.diagnostics()


def fixed_budget(suite, claims):
    """P1 compares the base with its N and T exchanged; without such runs, with the most environments."""
    base, others = suite.base, [config for config in suite.same_batch() if config != suite.base]
    exchanged = [config for config in others if config.n_by_t == base.n_by_t[::-1]]
    first = (exchanged or others[-1:])[:1]
    claims.compare(
        f"{label_of(first[0]) if first else 'more environments'} beats {label_of(base)}",
        first,
        [base],
        "IQM - IQM(base)",
        primary=True,
    )
    for config in [config for config in others if config not in first]:
        claims.compare(f"  {label_of(config)} beats {label_of(base)}", [config], [base], "IQM - IQM(base)")
    claims.diagnostics()


def scaling_data(suite, claims):
    scaling(suite, claims)
    sample_efficiency(suite, claims)
    claims.diagnostics()


def pqn(suite, claims):
    scaling(suite, claims, "little")
    claims.diagnostics()


def isaacgym(suite, claims):
    configs = suite.same_batch()
    if len(configs) > 1:
        claims.compare(
            f"many environments win at one batch: {label_of(configs[-1])} beats {label_of(configs[0])}",
            configs[-1:],
            configs[:1],
            "IQM(most environments) - IQM(longest rollouts)",
            primary=True,
        )
    scaling(suite, claims)
    claims.diagnostics()


def hard_exploration(suite, claims):
    """P1: "equivalent or improved", in each of the tasks."""
    n_scaled = suite.scaled("num_envs")
    if n_scaled:
        claims.compare(
            "N-scaling is equivalent or improves",
            list(n_scaled.values()),
            [suite.base] * len(n_scaled),
            f"IQM(N×k) - IQM(base) > -{MARGIN:.0%} of the base, {mean_over(n_scaled)}",
            "not less",
            primary=True,
            by_task=True,
        )
    scaling(suite, claims)
    sample_efficiency(suite, claims)
    claims.diagnostics()


def coverage(suite, claims):
    """scripts/umap_coverage.py has the claims."""


def num_envs_trend(suite, claims):
    family = suite.family("num_envs")
    groups = []
    if suite.can_compare(family):
        groups = [[suite.finals(config, task) for config in family] for task in suite.tasks]
    levels = [config["num_envs"] for config in family]
    text = "the final score rises with N (the reviewers' question: P1 claims no trend)"
    tau = kendall(levels, groups) if groups else nothing(NO_FINAL_SCORES)
    claims.trend(text, tau, levels, groups, "more", family, family="primary")
    for start in [level for level in (256, 512) if level in levels[:-1]] or levels[-2:-1]:
        above = [config for config in family if config["num_envs"] > start]
        at = [config for config in family if config["num_envs"] == start]
        claims.compare(
            f"N beyond {start} still gains",
            above,
            at * len(above),
            f"mean(N > {start}) - mean(N = {start}), mean over N = {' '.join(str(c['num_envs']) for c in above)}",
        )
    claims.diagnostics()


def decoupled(suite, claims):
    shared = suite.base.replace(shared_encoder=True)
    separate = suite.base.replace(shared_encoder=False)
    doubled = list(suite.scaled("num_envs").values())[:1]  # N x 2
    shared_doubled = [config.replace(shared_encoder=True) for config in doubled]
    separate_doubled = [config.replace(shared_encoder=False) for config in doubled]
    claims.compare(
        "separate encoders collapse at the base", [separate], [shared], "IQM(separate) - IQM(shared)", "less"
    )
    claims.compare(
        "separate encoders recover at N × 2",
        separate_doubled,
        [separate],
        "IQM(separate, N×2) - IQM(separate, base)",
        primary=True,
    )
    claims.compare(
        "  at N × 2 separate encoders are not below shared ones",
        separate_doubled,
        shared_doubled,
        f"IQM(separate, N×2) - IQM(shared, N×2) > -{MARGIN:.0%} of the base",
        "not less",
    )
    claims.compare_gains(
        "separate encoders gain more from N × 2 than shared ones",
        [*separate_doubled, separate],
        [*shared_doubled, shared],
        "gain(separate) - gain(shared)",
        "more",
    )


def learning_rate(suite, claims):
    """P1: the default rate is about the best at N x 2."""
    settings, families = settings_of(suite, "learning_rate")
    rows = []
    for setting in settings:
        default = setting["learning_rate"]
        for config in [config for config in families[setting] if config != setting]:
            value = short(config["learning_rate"])
            row = claims.compare(
                f"  lr {value} is no better than lr {short(default)} at {n_by_t_name(setting)}",
                [setting],
                [config],
                f"IQM({short(default)}) - IQM({value}) > -{MARGIN:.0%} of the base",
                "not less",
            )
            rows.append(row)
    claims.all_together(f"lr {short(suite.base['learning_rate'])} is about the best", rows, "not less", primary=True)
    _changes_little(suite, claims, "learning_rate")


def grid_of_rates(suite):
    """{(N, T): {learning rate: configuration}} of what is in the aggregates, by N: the base's batch, all else equal."""
    base, found = suite.base, {}
    settings, families = settings_of(suite, "learning_rate")
    for setting in sorted(settings, key=lambda setting: setting["num_envs"]):
        rates = {config["learning_rate"]: config for config in families[setting] if config in suite.scored}
        if rates and setting.batch_size == base.batch_size and setting.others() == base.others():
            found[setting.n_by_t] = rates
    return found


def samples_at_rates(suite, grid):
    """{name of an N x T: {learning rate: sample}} of such a grid, as comparisons.py takes it."""
    return {
        "{}×{}".format(*n_by_t): {rate: suite.sample(config) for rate, config in rates.items()}
        for n_by_t, rates in grid.items()
    }


def shape_rate(suite, claims):
    """P1's central claim, each N x T at its tuned learning rate: N and T exchanged, N = 128, against the base."""
    grid, base = grid_of_rates(suite), suite.base
    n_by_ts = list(grid)
    exchanged = base.n_by_t[::-1] if base.n_by_t[::-1] in grid else n_by_ts[-1] if n_by_ts else base.n_by_t
    long, wide = sorted([base.n_by_t, exchanged])
    pair = {n_by_t: grid[n_by_t] for n_by_t in (wide, long) if n_by_t in grid}
    configs = [config for rates in pair.values() for config in rates.values()]

    def wide_over_long(view):
        return judge_best(*samples_at_rates(view, pair).items())

    names = ["{}×{}".format(*n_by_t) for n_by_t in (wide, long)]
    claims.add(
        f"N beats T at a fixed batch: {names[0]} beats {names[1]}, each at its own best rate",
        wide_over_long,
        configs if len(pair) == 2 else [],
        quantity=f"max over rates of mean({names[0]}) - max over rates of mean({names[1]})",
        side="more",
        primary=True,
    )
    for rate in sorted(set.intersection(*map(set, pair.values()))) if len(pair) == 2 else []:
        of_rate = [[grid[n_by_t][rate]] for n_by_t in (wide, long)]
        quantity = f"mean - mean at lr {short(rate)}"
        claims.compare(f"  {names[0]} beats {names[1]} at lr {short(rate)}", *of_rate, quantity)
    _best_n_by_t_stays(
        claims, {n_by_t: rates for n_by_t, rates in grid.items() if base["learning_rate"] in rates}, base
    )
    claims.diagnostics()


def _best_n_by_t_stays(claims, grid, base):
    """The claim that who tunes N x T at the default rate finds the best N x T. grid: with that rate in each."""
    default = base["learning_rate"]

    def loss(view):
        return judge_default(samples_at_rates(view, grid), default, view.margin("not less"))

    claims.add(
        f"the best N x T at the default rate ({short(default)}) is about the best at its own rate",
        loss,
        [config for rates in grid.values() for config in rates.values()] if len(grid) > 1 else [],
        quantity=f"that N x T at its best rate - the best other N x T > -{MARGIN:.0%} of the base",
        side="not less",
    )


def gamma(suite, claims):
    """P1: the gain of T x 2 does not depend on gamma."""
    settings, families = settings_of(suite, "gamma")
    base, default, rows = suite.base, suite.base["gamma"], []
    for setting in [setting for setting in settings if setting != base]:
        for config in [config for config in families[base] if config["gamma"] != default]:
            value = short(config["gamma"])
            row = claims.compare_gains(
                f"  the gain of {suite.in_multiples(setting)} is the same at γ {value}",
                [setting.replace(gamma=config["gamma"]), config],
                [setting, base],
                f"gain({value}) - gain({short(default)}) inside ±{MARGIN:.0%} of the base",
                "little",
            )
            rows.append(row)
    claims.all_together("the gain of a longer rollout does not depend on γ", rows, "little")
    _changes_little(suite, claims, "gamma")


def settings_of(suite, name):
    """The configurations with the base's value of an argument, and {setting: its family in the argument}."""
    settings = list(dict.fromkeys(config.replace(**{name: suite.base[name]}) for config in suite.configs))
    return settings, {setting: suite.family(name, setting) for setting in settings}


def n_by_t_name(config):
    return "{}×{}".format(*config.n_by_t)


def _changes_little(suite, claims, name):
    """Rows for an argument that changes little: each of its values against the base's, at each setting."""
    default, rows = suite.base[name], []
    settings, families = settings_of(suite, name)
    for setting in settings:
        for config in [config for config in families[setting] if config[name] != default]:
            row = claims.compare(
                f"  {SHORT_NAMES[name]} {short(config[name])} changes little at {n_by_t_name(setting)}",
                [config],
                [setting],
                f"IQM({short(config[name])}) - IQM({short(default)}) inside ±{MARGIN:.0%} of the base",
                "little",
            )
            rows.append(row)
    claims.all_together(f"{SHORT_NAMES[name]} changes little, all of these together", rows, "little")


# ---- P3 --------------------------------------------------------------------------------------------------------------
def log_ddr(suite, config):
    """log10 of the DDR (samples per unit of KL) of the runs in the tasks of the aggregates: one array per task."""
    return [np.log10(np.maximum(suite.second_half_means(config, task, "outer/ddr"), 1e-9)) for task in suite.tasks]


def by_budget(suite):
    """{budget: its configurations with a final score and a DDR}, in the order of the budgets."""
    with_ddr = [config for config in suite.scored if suite.tasks and all(x.size for x in log_ddr(suite, config))]
    budgets = sorted({config["total_timesteps"] for config in suite.scored})
    return {budget: [config for config in with_ddr if config["total_timesteps"] == budget] for budget in budgets}


def step_size(suite, claims):
    """P3: the score is an inverted U in log DDR, and its top moves up with the budget."""
    found = by_budget(suite)
    samples = {
        budget: [*(suite.sample(config) for config in configs), *(log_ddr(suite, config) for config in configs)]
        for budget, configs in found.items()
        if len(configs) > 3
    }
    _best_ddr_moves(suite, claims, {budget: found[budget] for budget in samples}, samples)
    for budget, sample in samples.items():
        tested = judge(evidence(curvature, sample), "less")
        edge = edge_of(*split(sample))
        if edge:
            tested = tested.undecided(f"at the edge: {edge}")
        text = f"P3: at {short(budget)} steps the score is an inverted U in log DDR"
        claims.row(text, tested, found[budget], quantity="curvature of the parabola", side="less")


def edge_of(scores, ddrs):
    """A remark if the best of the configurations, (C,), or the parabola's top is at the grid's edge; else ""."""
    top = float(quadratic(scores, ddrs)[1])
    if ddrs[scores.argmax()] in (ddrs.min(), ddrs.max()):
        return f"the best configuration is at the grid's edge, log10 DDR {ddrs[scores.argmax()]:.2f}"
    return "" if ddrs.min() < top < ddrs.max() else "the parabola's top is outside the grid"


def _best_ddr_moves(suite, claims, found, samples):
    """P3's claim that the best DDR rises with the budget."""
    budgets, tested = sorted(samples), judge(nothing(NO_FINAL_SCORES), "more")
    if len(budgets) > 1:
        smallest, largest = samples[budgets[0]], samples[budgets[-1]]

        def shift(*drawn):
            return best_place(*drawn[len(smallest) :]) - best_place(*drawn[: len(smallest)])

        tested = judge(resampled(shift, [*smallest, *largest], min(suite.reps, 1000), suite.seed), "more")
        edges = [
            f"{short(budget)} steps: {edge}"
            for budget in (budgets[0], budgets[-1])
            if (edge := edge_of(*split(samples[budget])))
        ]
        if edges:
            tested = tested.undecided(f"at the edge: {'; '.join(edges)}")
    claims.row(
        "P3: the best DDR (samples per unit of KL) rises with the budget",
        tested,
        [config for configs in found.values() for config in configs],
        quantity="log10 of the best DDR, at the largest - at the smallest budget",
        side="more",
        family=PRIMARY,
    )


def by_schedule(suite):
    """(configurations of one N x T, {name of a schedule: its configuration})."""
    fixed = [config for config in suite.configs if not config["schedule"]]
    return fixed, {name_of_schedule(config["schedule"]): config for config in suite.configs if config["schedule"]}


def schedule(suite, claims):
    """P1's future work: do N and T that change in training beat the best N x T that is kept?"""
    fixed, scheduled = by_schedule(suite)

    for name, config in scheduled.items():

        def over_the_fixed(view, config=config):
            samples = [view.sample(x) for x in (config, *fixed)]
            return judge_each(several(over_each, samples), "more")

        claims.add(
            f"{name} beats the best fixed N x T",
            over_the_fixed,
            [config, *fixed] if fixed else [],
            quantity="mean - mean of each fixed N x T, the smallest",
            side="more",
            primary=True,
        )
    pair = [[scheduled[name]] if name in scheduled else [] for name in ("growing N", "growing T")]
    claims.compare("growing N beats growing T", *pair, "mean - mean", primary=True)


def by_com(suite):
    """Of the sweep `switch`: {com: configuration} of the parents, {(com before, com after): configuration}."""
    parents, children = {}, {}
    for config, _, _ in suite.runs:
        if config["resume_from"] is None and config["prox_com"] is not None:
            parents[config["prox_com"]] = config
    for (config, _, _), run in suite.runs.items():
        before = suite.parents[run.name].arguments["prox_com"] if run.name in suite.parents else None
        if before in parents and config["prox_com"] is not None:
            children[before, config["prox_com"]] = config
    return dict(sorted(parents.items())), dict(sorted(children.items()))


def switch(suite, claims):
    """P3: what a com reaches does not depend on the com before, up or down."""
    parents, children = by_com(suite)
    for low, high in itertools.combinations(parents, 2):
        raised, lowered, low_throughout, high_throughout = (
            [children[pair]] if pair in children else []
            for pair in ((low, high), (high, low), (low, low), (high, high))
        )
        claims.compare(
            f"P3: raising the com from {low:g} to {high:g} ends above staying at {low:g}",
            raised,
            low_throughout,
            f"mean({low:g}, then {high:g}) - mean({low:g} throughout)",
            primary=not claims,
        )
        claims.compare(
            f"  raised to {high:g} it ends no lower than {high:g} throughout",
            raised,
            high_throughout,
            f"mean({low:g}, then {high:g}) - mean({high:g} throughout) > -{MARGIN:.0%} of the base",
            "not less",
        )
        claims.compare(
            f"P3: lowering the com from {high:g} to {low:g} ends below staying at {high:g}",
            lowered,
            high_throughout,
            f"mean({high:g}, then {low:g}) - mean({high:g} throughout)",
            "less",
        )
        claims.compare(
            f"  lowered to {low:g} it ends close to {low:g} throughout",
            lowered,
            low_throughout,
            f"mean({high:g}, then {low:g}) - mean({low:g} throughout) inside ±{MARGIN:.0%} of the base",
            "little",
        )
        claims.compare(
            f"  at the switch com {low:g} is below com {high:g}",
            [parents[low]],
            [parents[high]],
            f"mean({low:g}) - mean({high:g}) of the parents",
            "less",
        )


CLAIMS = {  # the sweeps that have claims of their own
    "fixed_budget": fixed_budget,
    "scaling_data": scaling_data,
    "coverage": coverage,
    "decoupled": decoupled,
    "learning_rate": learning_rate,
    "gamma": gamma,
    "shape_rate": shape_rate,
    "pqn": pqn,
    "procgen": scaling_data,
    "isaacgym": isaacgym,
    "hard_exploration": hard_exploration,
    "rnd": scaling_data,
    "num_envs_trend": num_envs_trend,
    "step_size": step_size,
    "switch": switch,
    "schedule": schedule,
}
