"""Draws a sweep: its figures (PNG, PDF), the tidy CSV behind each, and its claims with their numbers.

    python scripts/figures.py scaling_data --runs runs/scaling_data --out figures/
    python scripts/figures.py all --runs runs --out figures/       # every sweep that has runs there, and its report
    python scripts/figures.py my_sweep --runs runs/my_sweep        # a sweep of your own
    python scripts/figures.py scaling_data --x gradient_steps      # or hours: the same against what confounds N

Runs are told apart by the arguments in their manifests: an argument that differs between runs of the same task makes a
configuration. A final score is `final_return` of done.json (--eval-episodes) if all finished runs have it, else the
mean of the last 100 finished episodes at the end of the budget. Runs that have not come so far are listed and have no
final score. Aggregates are rliable's (Agarwal et al. 2021) over tasks x seeds, human-normalised on Atari by
support/human_at30.csv. docs/reproducing.md has the rest of the rules.

To add a figure: write a function here that takes a suite (suite.py: the runs) and yields sheets (drawing.py: an image
and its CSV), one in sweep_claims.py that adds the claims, and give both their lines in FIGURES and CLAIMS. The sweep
itself states its base and what it varies (statement.py).
"""

from launching.root import ROOT

import difflib
import os
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Optional, Tuple

import numpy as np
from analysis import page, statement, sweep_claims, training_runs
from analysis.claims import Claims
from analysis.drawing import (
    DYNAMICS,
    POLICY,
    RETURNS,
    against,
    curve_panels,
    curves_by_task,
    diagnostics_panels,
    map_of_scores,
    points_of_runs,
    profiles,
    scores_at_own_rates,
    task_grid,
    tasks_at,
)
from analysis.look import BLUES, DASH_DOTTED, DASHED, ramp
from analysis.sheets import BLACK, N_LINE, T_LINE, styles
from analysis.suite import Suite, short
from analysis.sweep_claims import settings_of
from analysis.tables import claims_csv, report, verdicts
from analysis.training_runs import RETURN
from tyro.conf import Positional

from support import arguments
from support.arguments import Count, NByTs, Seed

ALL = "all"


@dataclass
class Args:
    sweep: Positional[str]  # a sweep, also one of your own; or `all`: those of the papers with runs below --runs
    runs: Optional[Path] = None  # the directory of its runs (default runs/<sweep>; for all: runs)
    out: Path = Path("figures")  # the directory for what is drawn
    x: Literal["steps", "gradient_steps", "hours"] = "steps"  # the x-axis of curves
    base: Optional[NByTs] = None  # the base's N x T, as 8x128, or one per script: 8x128,4096x16 (default: sweep.json's)
    games: Tuple[str, ...] = ()  # the tasks of the images by task (default: four of P1's, or the first four)
    by_game: bool = False  # adds each comparison in each task to the table of claims
    images: bool = True  # draws; --no-images only prints and writes the tables
    reps: Count = 2000  # bootstrap resamples; the band of a curve has at most 500
    seed: Seed = 0  # the seed of the bootstrap


def parse_args(argv, args_class=Args, description=__doc__):
    """Returns checked Args; exits 2 with one line on bad input. `runs` is the directory to read, `base` [(N, T), …]."""
    args = arguments.parse(args_class, argv, description)
    args.base = [tuple(map(int, n_by_t.split("x"))) for n_by_t in args.base.split(",")] if args.base else []
    args.runs = args.runs or (Path("runs") if args.sweep == ALL else Path("runs", args.sweep))
    if Path(args.sweep).name != args.sweep:
        arguments.fail(f"{args.sweep} is a path: expected a name for what is drawn; the directory is given by --runs")
    if not os.path.isdir(args.runs):  # Path.is_dir raises OSError if a name is too long
        near = difflib.get_close_matches(args.sweep, [*FIGURES, ALL], 1)
        hint = f" (near {args.sweep}: {near[0]})" if near and near[0] != args.sweep else ""
        arguments.fail(f"--runs {args.runs}: expected the directory of a sweep's runs{hint}")
    with arguments.writable("out", args.out):
        pass
    return args


# ---- parts of several figures ----------------------------------------------------------------------------------------
def more_environments(suite):
    return "more environments", suite.family("num_envs"), "n_by_t"


def longer_rollouts(suite):
    return "longer rollouts", suite.family("num_steps"), "n_by_t"


def one_batch(suite):
    return "one batch", suite.same_batch(), "n_by_t"


def against_factor(suite):
    """The panel of final IQM against the factor by which N or T is scaled, if one of them is."""
    lines = []
    for name, style in (("num_envs", N_LINE), ("num_steps", T_LINE)):
        family = suite.family(name)
        if len(family) > 1:
            lines.append((family, [config[name] / suite.base[name] for config in family], style))
    if len(lines) == 1:
        ((family, factors, style),) = lines
        return [(f"factor of {style['label']}", "log", [(family, factors, {**style, "label": None})])]
    return [("factor of N or T", "log", lines)] if lines else []


def by_task(suite, metrics):
    """Images by task: of more environments, and of longer rollouts if the sweep has them."""
    n_family, t_family = suite.family("num_envs"), suite.family("num_steps")
    if len(n_family) > 1 or len(t_family) == 1:
        yield task_grid(suite, "games", n_family, metrics)
    if len(t_family) > 1:
        yield task_grid(suite, "games_rollouts", t_family, metrics)


# ---- the figures -----------------------------------------------------------------------------------------------------
def any_sweep(suite):
    """A sweep without a figure of its own."""
    by = "configuration" if suite.names[2:] else "n_by_t"
    style = styles(suite, suite.configs, by)
    points = [([config], [i], {**style[config], "ls": "none", "label": None}) for i, config in enumerate(suite.configs)]
    yield curve_panels(suite, [("", suite.configs, by)], [("configuration", "none", points)])
    yield task_grid(suite, "games", suite.configs, RETURNS + DYNAMICS, by)
    if suite.records(POLICY):
        yield task_grid(suite, "policy", suite.configs, RETURNS + POLICY, by)
    yield diagnostics_panels(suite)


def fixed_budget(suite):
    configs = suite.same_batch()
    finals = [("N at one batch", "log", [against("num_envs", configs, BLACK)])] if len(configs) > 2 else []
    yield curve_panels(suite, [("", configs, "n_by_t")], finals)
    yield task_grid(suite, "games", configs, RETURNS + DYNAMICS)
    yield diagnostics_panels(suite)


UNSEEN = [  # Procgen with --num-levels
    (RETURN, "return in training"),
    ("charts/eval_episodic_return", "return, unseen levels"),
    ("charts/generalization_gap", "training - unseen levels"),
]


def scaling_data(suite):
    yield curve_panels(suite, [more_environments(suite), longer_rollouts(suite)], against_factor(suite))
    yield from by_task(suite, RETURNS + DYNAMICS)
    if suite.script == "ppo_atari_envpool":  # Fig. 4
        yield task_grid(suite, "policy", suite.scaled_alone(), RETURNS + POLICY)
    if suite.records(UNSEEN)[1:]:
        yield task_grid(suite, "unseen", suite.scaled_alone(), UNSEEN)
    yield diagnostics_panels(suite)


def isaacgym(suite):
    yield curve_panels(suite, [one_batch(suite), more_environments(suite)], against_factor(suite))
    yield task_grid(suite, "fixed", suite.same_batch(), RETURNS)
    yield task_grid(suite, "games", suite.family("num_envs"), RETURNS + DYNAMICS)
    yield diagnostics_panels(suite)


def exploration(suite):
    configs = suite.scaled_alone()
    yield curve_panels(suite, [("", configs, "n_by_t")], against_factor(suite))
    if suite.script == "ppo_rnd_envpool":
        yield task_grid(suite, "games", configs, RETURNS)
        yield task_grid(suite, "dynamics", configs, [("charts/intrinsic_reward", "intrinsic reward"), *DYNAMICS])
    else:
        yield task_grid(suite, "games", configs, RETURNS + DYNAMICS)
    yield diagnostics_panels(suite)


def coverage(suite):
    yield curve_panels(suite, [one_batch(suite), more_environments(suite)], part="returns")
    yield task_grid(suite, "returns_games", suite.configs, RETURNS)


def num_envs_trend(suite):
    family, base = suite.family("num_envs"), suite.base
    lines = [
        against("num_envs", family, {**N_LINE, "label": None}),
        against("num_envs", [base], dict(color="black", zorder=4)),
    ]
    yield curve_panels(suite, [], [(f"N (T = {base['num_steps']})", "log", lines)])
    yield curve_panels(suite, [("", family, "n_by_t")], part="curves")
    yield task_grid(suite, "games", family, RETURNS + DYNAMICS)
    yield diagnostics_panels(suite)


def decoupled(suite):
    with_shared = [config for config in suite.configs if config["shared_encoder"] is True]
    with_separate = [config for config in suite.configs if config["shared_encoder"] is False]
    panels = [("shared encoder", with_shared, "n_by_t"), ("separate encoders", with_separate, "n_by_t")]
    yield curve_panels(suite, panels)
    yield task_grid(suite, "games", with_separate, [(RETURN, "return,\nseparate encoders")])
    yield task_grid(suite, "games_shared", with_shared, [(RETURN, "return,\nshared encoder")])


def sensitivity(suite, name, xlabel):
    """Final IQM and curves against an argument, at each of the other settings."""
    settings, families = settings_of(suite, name)
    style = styles(suite, settings) if len(settings) > 1 else {settings[0]: dict(color="black")}
    lines = [against(name, family, style[setting]) for setting, family in families.items()]
    panels = [(suite.in_multiples(setting), family, name) for setting, family in families.items()]
    yield curve_panels(suite, panels, [(xlabel, "each", lines)])
    for setting in settings:
        yield tasks_at(suite, setting, name)


def learning_rate(suite):
    yield from sensitivity(suite, "learning_rate", "learning rate")


def gamma(suite):
    yield from sensitivity(suite, "gamma", "discount factor γ")


def shape_rate(suite):
    grid = sweep_claims.grid_of_rates(suite)
    yield scores_at_own_rates(suite, grid)
    yield map_of_scores(suite, grid)
    yield curve_panels(
        suite, [(f"lr {short(suite.base['learning_rate'])}", suite.same_batch(), "n_by_t")], part="curves"
    )
    yield diagnostics_panels(suite)


def step_size(suite):
    """Fig. 5: curves with their plateaus, at each budget; Fig. 8: a dot per run, and a parabola per budget."""
    name, found = "total_timesteps", sweep_claims.by_budget(suite)
    budgets = sorted({config[name] for config in suite.configs})
    colors = dict(zip(budgets, [*ramp(BLUES, len(budgets) - 1), "black"]))
    clip_lines, epoch_lines, panels = [], [], []
    for budget in budgets:
        style = dict(color=colors[budget], label=f"{short(budget)} steps")
        for argument, lines in (("clip_coef", clip_lines), ("update_epochs", epoch_lines)):
            families = [suite.family(argument, config) for config in suite.configs if config[name] == budget]
            lines.append(against(argument, max(families, key=len), style))  # the setting at which it was varied most
        panels.append((f"{short(budget)} steps", clip_lines[-1][0], "clip_coef"))
    yield points_of_runs(suite, {budget: (configs, colors[budget]) for budget, configs in found.items()})
    yield curve_panels(suite, panels[-3:], part="curves")
    settings = [("clip coefficient", "log", clip_lines), ("epochs", "log", epoch_lines)]
    settings = [panel for panel in settings if any(len(configs) > 1 for configs, _, _ in panel[2])]
    if settings:
        yield curve_panels(suite, [], settings, part="settings")


OUTER = [("outer/kl_behavior", "KL of an update"), ("losses/grad_norm", "gradient norm")]


def switch(suite):
    """Fig. 3a: parents, and their children from the switch on. The colour is that of the com, also after the switch."""
    parents, children = sweep_claims.by_com(suite)
    coms = sorted({*parents, *(com for _, com in children)})
    colors = dict(zip(coms, ["black", *ramp(BLUES, len(coms) - 1)]))
    style = {config: dict(color=colors[com], label=f"com {com:g}") for com, config in parents.items()}
    for (before, com), config in children.items():
        changed = dict(ls=DASHED, label=f"{before:g} → {com:g}", zorder=3)
        style[config] = {"color": colors[com], **(changed if before != com else {"label": f"com {com:g}"})}
    switches = [
        run.on_axis([run.manifest["parent"]["global_step"]], suite.axis)
        for run in suite.runs.values()
        if run.manifest.get("parent") and suite.axis != "hours"  # every run has its own speed
    ]
    yield curves_by_task(suite, style, np.mean(switches) if switches else None)
    yield task_grid(suite, "games", list(style), RETURNS + OUTER, style)


def schedule(suite):
    """Curves of the schedules beside the fixed N x T, and of each task with its N."""
    fixed, scheduled = sweep_claims.by_schedule(suite)
    changing = styles(suite, list(scheduled.values()), "configuration")
    style = {**styles(suite, fixed), **{config: {**line, "ls": DASH_DOTTED} for config, line in changing.items()}}
    panels = [("fixed N×T", fixed, style), ("schedules", list(scheduled.values()), style)]
    yield curve_panels(suite, panels)
    yield task_grid(suite, "games", [*fixed, *scheduled.values()], [*RETURNS, ("charts/num_envs", "N")], style)


FIGURES = {  # sweep: (the paper's figure, what draws it), or None: results/SWEEP/claims.py has both, and the claims
    "fixed_budget": ("P1, Fig. 1a", fixed_budget),
    "scaling_data": ("P1, Fig. 1b, 3, 4, 10, 17", scaling_data),
    "data_reuse": None,
    "coverage": ("P1, Fig. 2 and 9: the returns of their runs; scripts/umap_coverage.py draws the figures", coverage),
    "decoupled": ("P1, Fig. 5", decoupled),
    "learning_rate": ("P1, Fig. 11", learning_rate),
    "gamma": ("P1, Fig. 12", gamma),
    "shape_rate": ("P1's central claim, each N x T at its tuned learning rate", shape_rate),
    "pqn": ("P1, Fig. 6, 13, 14", scaling_data),
    "procgen": ("P1, Fig. 8", scaling_data),
    "isaacgym": ("P1, Fig. 7 and 18", isaacgym),
    "hard_exploration": ("P1, Fig. 15", exploration),
    "rnd": ("P1, Fig. 16", exploration),
    "num_envs_trend": ("P1's reviewers", num_envs_trend),
    "outer_loop": None,
    "step_size": ("P3, Fig. 5 and 8", step_size),
    "switch": ("P3, Fig. 3a", switch),
    "schedule": ("P1's future work: N and T that change in training", schedule),
}


# ---- main ------------------------------------------------------------------------------------------------------------
def suites_and_claims(sweep, runs, stated, args):
    """The suite and the claims of each script in a sweep: the script with the most runs first."""
    tested, study = [], study_of(sweep)
    for script, _ in Counter(run.script for run in runs).most_common():
        of_script = [run for run in runs if run.script == script]
        shown = [task for task in args.games if task in {run.task for run in of_script}]
        suite = Suite(sweep, script, of_script, args.base, args.reps, args.seed, args.x, stated, shown, study)
        suite.by_task = args.by_game
        claims = Claims(suite)
        if study:
            claims = study.claims(suite)
        else:
            sweep_claims.CLAIMS.get(sweep, sweep_claims.any_sweep)(suite, claims)
        tested.append((suite, claims))
    tasks = {task for suite, _ in tested for task in suite.all_tasks}
    if not tasks >= set(args.games):
        arguments.fail(f"--games {' '.join(args.games)}: expected some of {' '.join(sorted(tasks))}")
    return tested


def sheets_of(sweep, tested, axis):
    """(file name without its ending, sheet) of each image of a sweep."""
    suffix = "" if axis == "steps" else f"_{axis}"
    for i, (suite, _) in enumerate(tested):
        stem = sweep if i == 0 else f"{sweep}_{suite.script.split('_')[1]}"
        for sheet in (*figure_of(sweep)[1](suite), profiles(suite)):
            if sheet:  # there may be nothing to compare
                yield stem + (f"_{sheet.part}" if sheet.part else "") + suffix, sheet


def study_of(sweep):
    """The module of the study that has the claims and the figures of a sweep, or None."""
    if FIGURES.get(sweep, any_sweep):
        return None
    from analysis import experiment  # pandas takes half a second: not for a report

    return experiment.load(sweep)


def figure_of(sweep):
    """(the paper's figure, what draws the sweep: a function of a suite that gives sheets)."""
    study = study_of(sweep)
    return (study.FIGURE, study.sheets) if study else FIGURES.get(sweep, ("a sweep of its own", any_sweep))


def draw(sweep, tested, unread, args):
    """Draws one sweep and prints its tables. Returns (name, caption, SVG) of its images, if all sweeps are drawn."""
    drawn = []
    for name, sheet in sheets_of(sweep, tested, args.x) if args.images else ():
        sheet.save(args.out, name)
        if args.sweep == ALL:
            drawn.append((name, sheet.caption, sheet.svg(name)))
        sheet.close()

    def lines(diagnostics):
        yield from (f"! {line}" for line in unread)
        for suite, claims in tested:
            yield from report(suite, claims, figure_of(sweep)[0], diagnostics)

    path = args.out / f"{sweep}.txt"
    path.write_text("\n".join([*lines(diagnostics=True), ""]))
    print(*lines(diagnostics=False), sep="\n")
    for suite, claims in tested:
        print(*verdicts(suite, claims), sep="\n")
    print(f"the diagnostics too: {path}")
    if args.images:
        print(f"the picture: {args.out / sweep}.png")
    return drawn


def draw_umap(runs_dir, out):
    """Runs scripts/umap_coverage.py; if it fails, the returns take its figure's place."""
    script = ROOT / "scripts" / "umap_coverage.py"
    if subprocess.run([sys.executable, script, "--runs", runs_dir, "--out", out]).returncode:
        print("! scripts/umap_coverage.py failed: coverage.png shows returns only")
        for path in out.glob("coverage_returns.*"):
            shutil.copy(path, path.with_name(f"coverage{path.suffix}"))


def read(args):
    """{sweep: (directory, runs, lines on what could not be read)} of the sweep, or of all that have runs."""
    folders = {args.sweep: args.runs}
    if args.sweep == ALL:
        folders = {sweep: args.runs / sweep for sweep in FIGURES if (args.runs / sweep).is_dir()}
    found = {sweep: (folder, *training_runs.read_runs(folder)) for sweep, folder in folders.items()}
    unread = [line for *_, lines in found.values() for line in lines]
    found = {sweep: (folder, runs, unread) for sweep, (folder, runs, unread) in found.items() if runs}
    if not found:
        why = f"no run below it can be read, {unread[0]}" if unread else "no manifest.json of a run below it"
        arguments.fail(f"--runs {args.runs}: {why}; expected the directory of a sweep's runs")
    return found


def main(args):
    found, rows = read(args), []
    for sweep, (folder, runs, unread) in found.items():
        tested = suites_and_claims(sweep, runs, statement.read(folder), args)
        drawn = draw(sweep, tested, unread, args)
        rows += [row for suite, claims in tested for row in claims_csv(suite, claims)]
        if sweep == "coverage" and args.images:
            draw_umap(folder, args.out)
        if args.sweep == ALL:
            how = f"python scripts/figures.py all --runs {args.runs} --out {args.out}"
            (args.out / f"{sweep}.html").write_text(page.html(sweep, figure_of(sweep)[0], tested, unread, drawn, how))
    if args.sweep != "coverage":  # its claims are those of umap_coverage.py
        import pandas as pd  # half a second: not for a report

        pd.DataFrame(rows).to_csv(args.out / f"{args.sweep}_claims.csv", index=False)
    absent = [sweep for sweep in FIGURES if sweep not in found] if args.sweep == ALL else []
    if absent:
        print("no runs of:", " ".join(absent))


if __name__ == "__main__":
    main(parse_args(sys.argv[1:]))
