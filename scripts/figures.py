"""Draws a sweep: its figures (PNG, PDF), the tidy CSV behind each, and its claims with their numbers.

    python scripts/figures.py scaling_data --runs runs/scaling_data --out figures/
    python scripts/figures.py all --runs runs --out figures/       # every sweep below that has runs there
    python scripts/figures.py my_sweep --runs runs/my_sweep        # a sweep of your own
    python scripts/figures.py scaling_data --x gradient_steps      # or hours: the same against what confounds N

Runs are told apart by the arguments in their manifests: an argument that differs between runs of the same game makes a
configuration. A final score is `final_return` of done.json (--eval-episodes) if all finished runs have it, else the
mean of the last 100 finished games at the end of the budget. Runs that have not come so far are listed and have no
final score. Aggregates are rliable's (Agarwal et al. 2021) over games x seeds, human-normalised on Atari by
scripts/human_at30.csv. docs/reproducing.md has the rest of the rules.

To add a figure: write a function that takes a suite (suite.py: the runs) and its claims (claims.py), adds claims, and
yields sheets (drawing.py: an image and its CSV); then give it a line in FIGURES.
"""

import difflib
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Optional

import analysis
import numpy as np
import pandas as pd
from claims import NO_FINAL_SCORES, Claims, report
from drawing import (
    BLACK,
    BLUES,
    DASH_DOTTED,
    DASHED,
    DYNAMICS,
    N_LINE,
    POLICY,
    RETURNS,
    T_LINE,
    curve_panels,
    diagnostics_panels,
    game_grid,
    ramp,
    styles,
)
from estimates import MARGIN, NO_ESTIMATE, iqm, kendall, mean, too_few_seeds, verdict_interval
from suite import SHORT_NAMES, Suite, label_of, short
from tyro.conf import Positional

import rundir
from rundir import Count, Seed

ALL = "all"


@dataclass
class Args:
    sweep: Positional[str]  # a sweep, also one of your own; or `all`: those of the papers with runs below --runs
    runs: Optional[Path] = None  # the directory of its runs (default runs/<sweep>; for all: runs)
    out: Path = Path("figures")  # the directory for what is drawn
    x: Literal["steps", "gradient_steps", "hours"] = "steps"  # the x-axis of curves
    base: Optional[str] = None  # the base's shape, as 8x128 (default: what keeps most of the script's defaults)
    reps: Count = 2000  # bootstrap resamples; the band of a curve has at most 500
    seed: Seed = 0  # the seed of the bootstrap
    cache: Optional[Path] = None  # the file that keeps what was read (default .figures_cache.npz in --runs, or --out)


def parse_args(argv):
    """Returns checked Args, with `runs` filled in and `base` as (N, T); exits 2 with one line on bad input."""
    args = rundir.parse(Args, argv, __doc__)
    if args.base is not None:
        sides = re.fullmatch("([1-9][0-9]{0,9})x([1-9][0-9]{0,9})", args.base)
        if not sides:
            rundir.fail(f"--base {args.base}: expected N x T, as 8x128")
        args.base = tuple(map(int, sides.groups()))
    args.runs = args.runs or (Path("runs") if args.sweep == ALL else Path("runs", args.sweep))
    if Path(args.sweep).name != args.sweep:
        rundir.fail(f"{args.sweep} is a path: expected a name for what is drawn; the directory is given by --runs")
    if not os.path.isdir(args.runs):  # Path.is_dir raises OSError if a name is too long
        near = difflib.get_close_matches(args.sweep, [*FIGURES, ALL], 1)
        hint = f" (near {args.sweep}: {near[0]})" if near and near[0] != args.sweep else ""
        rundir.fail(f"--runs {args.runs}: expected the directory of a sweep's runs{hint}")
    try:
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        rundir.fail(f"--out {args.out} ({error.strerror}): expected a directory that can be written to")
    return args


# ---- parts of several figures ----------------------------------------------------------------------------------------
def more_environments(suite):
    return "more environments", suite.family("num_envs"), "shape"


def longer_rollouts(suite):
    return "longer rollouts", suite.family("num_steps"), "shape"


def one_batch(suite):
    return "one batch", suite.same_batch(), "shape"


def against(name, family, style):
    """A line of final IQM against the values of an argument."""
    return family, [config[name] for config in family], style


def against_factor(suite):
    """The panel of final IQM against the factor by which N or T is scaled, if one of them is."""
    lines = []
    for name, style in (("num_envs", N_LINE), ("num_steps", T_LINE)):
        family = suite.family(name)
        if len(family) > 1:
            lines.append((family, [config[name] / suite.base[name] for config in family], style))
    return [("factor of N or T" if len(lines) > 1 else "factor", "log", lines)] if lines else []


def part_of(suite, config):
    """The part of a file's name for the games at a configuration: games, games_Nx2."""
    return "games" if config == suite.base else f"games_{suite.shape(config).replace('×', 'x')}"


def mean_over(factors):
    return "mean over k = " + " ".join(f"{k:g}" for k in factors)


def claim_scaling(suite, claims, side="more"):
    """P1's comparisons of the base, N-scaling and T-scaling: over all factors, then factor by factor."""
    n_scaled, t_scaled = suite.scaled("num_envs"), suite.scaled("num_steps")
    factors = sorted(set(n_scaled) & set(t_scaled))
    if t_scaled:
        claims.compare(
            "N-scaling beats T-scaling",
            [n_scaled[k] for k in factors],
            [t_scaled[k] for k in factors],
            f"IQM(N×k) - IQM(T×k), {mean_over(factors)}",
        )
    for k in factors if len(factors) > 1 else []:
        claims.compare(f"  N×{k:g} beats T×{k:g}", [n_scaled[k]], [t_scaled[k]], f"IQM(N×{k:g}) - IQM(T×{k:g})")
    words = "beats the base" if side == "more" else "gains little over the base"
    for letter, scaled in (("N", n_scaled), ("T", t_scaled)):
        if scaled:
            claims.compare(
                f"{letter}-scaling {words}",
                list(scaled.values()),
                [suite.base] * len(scaled),
                f"IQM({letter}×k) - IQM(base), {mean_over(scaled)}",
                side,
            )
    claims.diagnostics()


# ---- the figures -----------------------------------------------------------------------------------------------------
def any_sweep(suite, claims):
    """A sweep without a figure of its own: every configuration against the base."""
    others = [config for config in suite.configs if config != suite.base]
    for config in others:
        quantity = f"IQM({label_of(config)}) - IQM(base)"
        claims.compare(f"{label_of(config)} beats the base", [config], [suite.base], quantity)
    for config in others:
        quantity = f"IQM({label_of(config)}) - IQM(base) inside ±{MARGIN:.0%} of the base"
        claims.compare(f"{label_of(config)} is close to the base", [config], [suite.base], quantity, "little")
    claims.diagnostics()
    by = "configuration" if suite.names[2:] else "shape"
    style = styles(suite, suite.configs, by)
    points = [([config], [i], {**style[config], "ls": "none", "label": None}) for i, config in enumerate(suite.configs)]
    yield curve_panels(suite, [("", suite.configs, by)], [("configuration", "none", points)])
    yield game_grid(suite, "games", suite.configs, RETURNS + DYNAMICS, by)
    if suite.records(POLICY):
        yield game_grid(suite, "policy", suite.configs, RETURNS + POLICY, by)
    yield diagnostics_panels(suite)


def fixed_budget(suite, claims):
    shapes = suite.same_batch()
    widest = shapes[-1]
    claims.compare(
        f"{label_of(widest)} beats {label_of(suite.base)}",
        [widest] if widest != suite.base else [],
        [suite.base],
        "IQM(most environments) - IQM(base)",
    )
    claims.diagnostics()
    finals = [("N at one batch", "log", [against("num_envs", shapes, BLACK)])] if len(shapes) > 2 else []
    yield curve_panels(suite, [("", shapes, "shape")], finals)
    yield game_grid(suite, "games", shapes, RETURNS + DYNAMICS)
    yield diagnostics_panels(suite)


def scaling_data(suite, claims, side="more"):
    claim_scaling(suite, claims, side)
    yield curve_panels(suite, [more_environments(suite), longer_rollouts(suite)], against_factor(suite))
    yield game_grid(suite, "games", suite.shapes(), RETURNS + DYNAMICS)
    if suite.script == "ppo_atari_envpool":  # Fig. 4
        yield game_grid(suite, "policy", suite.shapes(), RETURNS + POLICY)
    yield diagnostics_panels(suite)


def pqn(suite, claims):
    yield from scaling_data(suite, claims, "little")


def isaacgym(suite, claims):
    shapes = suite.same_batch()
    if len(shapes) > 1:
        claims.compare(
            f"many environments win at one batch: {label_of(shapes[-1])} beats {label_of(shapes[0])}",
            shapes[-1:],
            shapes[:1],
            "IQM(most environments) - IQM(longest rollouts)",
        )
    claim_scaling(suite, claims)
    yield curve_panels(suite, [one_batch(suite), more_environments(suite)], against_factor(suite))
    yield game_grid(suite, "fixed", shapes, RETURNS)
    yield game_grid(suite, "games", suite.family("num_envs"), RETURNS + DYNAMICS)
    yield diagnostics_panels(suite)


def exploration(suite, claims):
    claim_scaling(suite, claims)
    shapes = suite.shapes()
    yield curve_panels(suite, [("", shapes, "shape")], against_factor(suite))
    if suite.script == "ppo_rnd_envpool":
        yield game_grid(suite, "games", shapes, RETURNS)
        yield game_grid(suite, "dynamics", shapes, [("charts/intrinsic_reward", "intrinsic reward"), *DYNAMICS])
    else:
        yield game_grid(suite, "games", shapes, RETURNS + DYNAMICS)
    yield diagnostics_panels(suite)


def coverage(suite, claims):
    yield curve_panels(suite, [one_batch(suite), more_environments(suite)], part="returns")
    yield game_grid(suite, "returns_games", suite.configs, RETURNS)


def num_envs_trend(suite, claims):
    family, base = suite.family("num_envs"), suite.base
    estimate, why = NO_ESTIMATE, NO_FINAL_SCORES
    if suite.can_compare(family):
        groups = [[suite.finals(config, game) for config in family] for game in suite.common]
        levels = [config["num_envs"] for config in family]
        estimate = kendall(levels, groups, None, min(suite.reps, 1000), suite.seed)
        why = too_few_seeds(groups)
    text = "the final score rises with N (the reviewers' question: P1 claims no trend)"
    claims.add(text, "Kendall's τ with N", estimate, "more", family, no_interval=why)
    claims.diagnostics()
    lines = [
        against("num_envs", family, {**N_LINE, "label": None}),
        against("num_envs", [base], dict(color="black", zorder=4)),
    ]
    yield curve_panels(suite, [], [(f"N (T = {base['num_steps']})", "log", lines)])
    yield curve_panels(suite, [("", family, "shape")], part="curves")
    yield game_grid(suite, "games", family, RETURNS + DYNAMICS)
    yield diagnostics_panels(suite)


def data_reuse(suite, claims):
    base, name = suite.base, "update_epochs"
    epochs = [config[name] for config in suite.family(name)]
    more_envs = list(suite.scaled("num_envs").values())[:1]  # N x 2
    more_steps = list(suite.scaled("num_steps").values())[:1]  # T x 2
    for count in [count for count in epochs if count > base[name]]:
        claim_data_reuse(suite, claims, count, more_envs, more_steps)
    style = styles(suite, [base, *more_envs, *more_steps])
    lines = [against(name, suite.family(name, config), style[config]) for config in style]
    panels = [
        (f"{count} epochs", [config for config in suite.configs if config[name] == count], "shape") for count in epochs
    ]
    yield curve_panels(suite, panels, [("epochs", "log", lines)])
    for config in style:
        yield game_grid(suite, part_of(suite, config), suite.family(name, config), RETURNS, name)


def claim_data_reuse(suite, claims, count, more_envs, more_steps):
    """P1's claims at `count` epochs: what they cost at the base, and what N x 2 and T x 2 win back."""
    base, base_count = suite.base, suite.base["update_epochs"]
    base_after, envs_after, steps_after = (
        [config.replace(update_epochs=count) for config in configs] for configs in ([base], more_envs, more_steps)
    )
    claims.compare(
        f"{count} epochs cost performance at the base",
        base_after,
        [base],
        f"IQM(base, {count}) - IQM(base, {base_count})",
        "less",
    )
    claims.compare(
        f"doubling N undoes the loss at {count} epochs",
        envs_after,
        [base],
        f"IQM(N×2, {count}) - IQM(base, {base_count}) > -{MARGIN:.0%} of the base",
        "not less",
    )
    for text, other, other_name in (("the base", base_after, "base"), ("T×2", steps_after, "T×2")):
        quantity = f"IQM(N×2, {count}) - IQM({other_name}, {count})"
        claims.compare(f"  N×2 beats {text} at {count} epochs", envs_after, other, quantity)


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
    with_shared = [config for config in suite.configs if config["shared_encoder"] is True]
    with_separate = [config for config in suite.configs if config["shared_encoder"] is False]
    panels = [("shared encoder", with_shared, "shape"), ("separate encoders", with_separate, "shape")]
    yield curve_panels(suite, panels)
    yield game_grid(suite, "games", with_separate, RETURNS)
    yield game_grid(suite, "games_shared", with_shared, RETURNS)


def sensitivity(suite, claims, name, xlabel):
    """Final IQM and curves against an argument that is said to change little, at each of the other settings."""
    default = suite.base[name]
    settings = list(dict.fromkeys(config.replace(**{name: default}) for config in suite.configs))
    families = {setting: suite.family(name, setting) for setting in settings}
    for setting, family in families.items():
        for config in [config for config in family if config[name] != default]:
            claims.compare(
                f"{SHORT_NAMES[name]} {short(config[name])} changes little at {'{}×{}'.format(*setting.shape)}",
                [config],
                [setting],
                f"IQM({short(config[name])}) - IQM({short(default)}) inside ±{MARGIN:.0%} of the base",
                "little",
            )
    claims.all_together(f"{SHORT_NAMES[name]} changes little, all of these together")
    for setting in [setting for setting in settings if setting != suite.base]:
        for config in [config for config in families[suite.base] if config[name] != default]:
            value = short(config[name])
            claims.compare_gains(
                f"the gain of {suite.shape(setting)} is the same at {SHORT_NAMES[name]} {value}",
                [setting.replace(**{name: config[name]}), config],
                [setting, suite.base],
                f"gain({value}) - gain({short(default)})",
                "little",
            )
    style = styles(suite, settings) if len(settings) > 1 else {settings[0]: dict(color="black")}
    lines = [against(name, family, style[setting]) for setting, family in families.items()]
    panels = [("{}×{}".format(*setting.shape), family, name) for setting, family in families.items()]
    yield curve_panels(suite, panels, [(xlabel, "each", lines)])
    for setting, family in families.items():
        yield game_grid(suite, part_of(suite, setting), family, RETURNS, name)


def learning_rate(suite, claims):
    yield from sensitivity(suite, claims, "learning_rate", "learning rate")


def gamma(suite, claims):
    yield from sensitivity(suite, claims, "gamma", "discount factor γ")


# P3's three ways to spend a batch that is c times larger
MORE_MINIBATCHES, BIGGER, BIGGER_SQRT = "more minibatches", "bigger minibatches", "bigger, lr × √c"
RECIPES = {
    MORE_MINIBATCHES: dict(color="#0072B2", ls="-"),
    BIGGER: dict(color="#D55E00", ls=DASHED),
    BIGGER_SQRT: dict(color="#009E73", ls=DASH_DOTTED),
}


def recipe_of(config, base):
    """Which of P3's recipes scales the base to the configuration; None if none does (c scales N; T stays)."""
    c = config["num_envs"] / base["num_envs"]
    if c == 1 or config["num_steps"] != base["num_steps"]:
        return None
    count, base_count = (one.batch_size // one["minibatch_size"] for one in (config, base))
    rate = config["learning_rate"] / base["learning_rate"]
    if np.isclose(rate, 1, rtol=1e-3) and np.isclose(count / base_count, c):
        return MORE_MINIBATCHES
    if np.isclose(rate, 1, rtol=1e-3) and count == base_count:
        return BIGGER
    if np.isclose(rate, c**0.5, rtol=1e-3) and count == base_count:
        return BIGGER_SQRT
    return None


def outer_loop(suite, claims):
    base, found = suite.base, {}  # {configuration: (c, recipe)}
    for config in suite.configs:
        recipe = recipe_of(config, base)
        if recipe:
            found[config] = config["num_envs"] / base["num_envs"], recipe
    by_factor = {recipe: {c: config for config, (c, way) in found.items() if way == recipe} for recipe in RECIPES}
    factors = sorted({c for c, _ in found.values()})
    for better, worse in ((MORE_MINIBATCHES, BIGGER), (MORE_MINIBATCHES, BIGGER_SQRT), (BIGGER_SQRT, BIGGER)):
        above_one = [c for c in factors if c > 1 and c in by_factor[better] and c in by_factor[worse]]
        claims.compare(
            f"P3: {better} beats {worse}",
            [by_factor[better][c] for c in above_one],
            [by_factor[worse][c] for c in above_one],
            f"IQM - IQM, mean over c = {' '.join(f'{c:g}' for c in above_one)}",
        )
    style = {base: dict(color="black", label="base (c = 1)", zorder=3)}
    style.update({config: {**RECIPES[recipe], "label": recipe} for config, (_, recipe) in found.items()})
    panels = [
        (f"c = {c:g}", [base, *(config for config, (factor, _) in found.items() if factor == c)], style)
        for c in factors
    ]
    lines = []
    for recipe, configs in by_factor.items():
        if configs:
            factors_and_configs = sorted({1.0: base, **configs}.items())
            factors_of_line, configs_of_line = zip(*factors_and_configs)
            lines.append((configs_of_line, factors_of_line, {**RECIPES[recipe], "label": recipe}))
    panels, finals = panels or [("", [base], style)], [("factor c of N", "log", lines)] if lines else []
    yield curve_panels(suite, panels, finals)
    if suite.axis == "steps":
        yield curve_panels(suite, panels, finals, part="hours", axis="hours")


def log_ddr(suite, config):
    """log10 of the DDR (samples per unit of KL) of the runs in the games of the aggregates: one array a game."""
    return [np.log10(np.maximum(suite.second_half_means(config, game, "outer/ddr"), 1e-9)) for game in suite.common]


def claim_best_ddr(suite, claims, by_budget):
    """P3's claim that the best DDR rises with the budget. by_budget: {budget: configurations with a DDR}."""
    budgets = [budget for budget, configs in sorted(by_budget.items()) if len(configs) > 2]
    estimate, why = NO_ESTIMATE, NO_FINAL_SCORES
    if len(budgets) > 1:
        smallest, largest = by_budget[budgets[0]], by_budget[budgets[-1]]
        samples = []
        for configs in (smallest, largest):
            samples += [suite.sample(config) for config in configs]
            samples += [log_ddr(suite, config) for config in configs]

        def best(samples):
            """log10 DDR of the configuration with the highest IQM; samples: scores of each, then DDRs of each."""
            scores, ddrs = samples[: len(samples) // 2], samples[len(samples) // 2 :]
            highest = np.stack([iqm(sample) for sample in scores]).argmax(0)
            return np.take_along_axis(np.stack([mean(sample) for sample in ddrs]), highest[None], 0)[0]

        def shift(*samples):
            return best(samples[2 * len(smallest) :]) - best(samples[: 2 * len(smallest)])

        estimate = verdict_interval(shift, samples, min(suite.reps, 1000), suite.seed)
        why = too_few_seeds(samples)
    claims.add(
        "P3: the best DDR (samples per unit of KL) rises with the budget",
        "log10 of the best DDR, at the largest - at the smallest budget",
        estimate,
        "more",
        [config for configs in by_budget.values() for config in configs],
        no_interval=why,
    )


def step_size(suite, claims):
    name = "total_timesteps"
    budgets = sorted({config[name] for config in suite.scored})
    with_ddr = [config for config in suite.scored if suite.common and all(x.size for x in log_ddr(suite, config))]
    by_budget = {budget: [config for config in with_ddr if config[name] == budget] for budget in budgets}
    claim_best_ddr(suite, claims, by_budget)
    ddr_lines, clip_lines, epoch_lines = [], [], []
    for budget, color in zip(budgets, [*ramp(BLUES, len(budgets) - 1), "black"] if len(budgets) > 1 else ["black"]):
        style = dict(color=color, label=f"{short(budget)} steps")
        configs = by_budget[budget]
        ddr = [float(10 ** mean(log_ddr(suite, config))) for config in configs]
        ddr_lines.append((configs, ddr, {**style, "ls": "none"}))
        for argument, lines in (("clip_coef", clip_lines), ("update_epochs", epoch_lines)):
            families = [suite.family(argument, config) for config in suite.configs if config[name] == budget]
            lines.append(against(argument, max(families, key=len), style))  # the setting at which it was varied most
    yield curve_panels(
        suite,
        [],
        [
            ("DDR: samples per unit of KL", "free", ddr_lines),
            ("clip coefficient", "log", clip_lines),
            ("epochs", "log", epoch_lines),
        ],
    )


FIGURES = {  # sweep: (the paper's figure, what draws it)
    "fixed_budget": ("P1, Fig. 1a", fixed_budget),
    "scaling_data": ("P1, Fig. 1b, 3, 4, 10, 17", scaling_data),
    "data_reuse": ("P1, Fig. 1c", data_reuse),
    "coverage": ("P1, Fig. 2 and 9: the returns of their runs; scripts/umap_coverage.py draws the figures", coverage),
    "decoupled": ("P1, Fig. 5", decoupled),
    "learning_rate": ("P1, Fig. 11", learning_rate),
    "gamma": ("P1, Fig. 12", gamma),
    "pqn": ("P1, Fig. 6, 13, 14", pqn),
    "procgen": ("P1, Fig. 8", scaling_data),
    "isaacgym": ("P1, Fig. 7 and 18", isaacgym),
    "hard_exploration": ("P1, Fig. 15", exploration),
    "rnd": ("P1, Fig. 16", exploration),
    "num_envs_trend": ("P1's reviewers", num_envs_trend),
    "outer_loop": ("P3, Fig. 9", outer_loop),
    "step_size": ("P3, Fig. 5 and 8", step_size),
}


# ---- main ------------------------------------------------------------------------------------------------------------
def draw(sweep, runs, unread, args):
    """Draws one sweep's runs, prints its tables, and returns its claims as rows of a CSV. One suite a script."""
    reference, figure = FIGURES.get(sweep, ("a sweep of its own", any_sweep))
    lines, rows = [f"! {line}" for line in unread], []
    suffix = "" if args.x == "steps" else f"_{args.x}"
    for i, (script, _) in enumerate(Counter(run.script for run in runs).most_common()):
        runs_of_script = [run for run in runs if run.script == script]
        suite = Suite(sweep, script, runs_of_script, args.base, args.reps, args.seed, args.x)
        claims = Claims(suite)
        stem = sweep if i == 0 else f"{sweep}_{script.split('_')[1]}"
        for sheet in figure(suite, claims):
            if sheet:  # there may be nothing to compare
                sheet.save(args.out, stem + (f"_{sheet.part}" if sheet.part else "") + suffix)
        lines += report(suite, claims, reference)
        rows += claims.as_rows()
    text = "\n".join(lines)
    (args.out / f"{sweep}.txt").write_text(text + "\n")
    print(text)
    return rows


def draw_umap(runs_dir, out):
    """Runs scripts/umap_coverage.py; if it fails, the returns take its figure's place."""
    script = analysis.ROOT / "scripts" / "umap_coverage.py"
    if subprocess.run([sys.executable, script, "--runs", runs_dir, "--out", out]).returncode:
        print("! scripts/umap_coverage.py failed: coverage.png shows returns only")
        for path in out.glob("coverage_returns.*"):
            shutil.copy(path, path.with_name(f"coverage{path.suffix}"))


def main(args):
    folders = {args.sweep: args.runs}
    if args.sweep == ALL:
        folders = {sweep: args.runs / sweep for sweep in FIGURES if (args.runs / sweep).is_dir()}
    cache_name = ".figures_cache.npz"
    cache = analysis.Cache([args.cache] if args.cache else [args.runs / cache_name, args.out / cache_name])
    found = {sweep: analysis.read_runs(folder, cache) for sweep, folder in folders.items()}
    cache.save()
    found = {sweep: (runs, unread) for sweep, (runs, unread) in found.items() if runs}
    if not found:
        rundir.fail(f"--runs {args.runs}: no manifest.json of a run below it; expected the directory of a sweep's runs")
    rows = []
    for sweep, (runs, unread) in found.items():
        rows += draw(sweep, runs, unread, args)
        if sweep == "coverage":
            draw_umap(folders[sweep], args.out)
    if args.sweep != "coverage":  # its claims are those of umap_coverage.py
        pd.DataFrame(rows).to_csv(args.out / f"{args.sweep}_claims.csv", index=False)
    absent = [sweep for sweep in FIGURES if sweep not in found] if args.sweep == ALL else []
    if absent:
        print("no runs of:", " ".join(absent))


if __name__ == "__main__":
    main(parse_args(sys.argv[1:]))
