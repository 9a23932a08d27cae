"""Are the curves of ppo_envpool.py those of CleanRL's ppo.py and ppo_continuous_action.py? From curves.csv."""

import pandas as pd
from analysis.claims import ESTIMATE, Claims
from analysis.estimates import interval, mean
from analysis.experiment import REPS
from analysis.look import BLUE, GREEN, PAGE, VERMILLION, plt

from support import catalog

VARIES = ("program",)
FIXED = {}
CLEANRL, OURS, OURS_GYMNASIUM = "CleanRL", "ppo_envpool.py", "ppo_envpool.py, gymnasium's game"
COLORS = {CLEANRL: VERMILLION, OURS: BLUE, OURS_GYMNASIUM: GREEN}
POINTS, SHORT = 20, 50_000  # points in a curve; steps of the runs in twenty_seeds.csv
MEASURES = {"final": "return at the end", "area": "mean return over the curve"}


def curves(folder):
    """curves.csv with `point`, the number of the point from 1 to POINTS: each stands for a twentieth of the steps."""
    table = pd.read_csv(folder / "curves.csv")
    last = table.groupby("game")["step"].transform("max")
    return table.assign(point=(table["step"] * POINTS / last).round().astype(int))


def rows(folder):
    """A dict per run of curves.csv and of twenty_seeds.csv: the return at its end.

    Of curves.csv also the mean of the points that all runs of the task have.
    """
    points = curves(folder).pivot(index=["game", "program", "seed"], columns="point", values="return")
    areas = points.groupby("game", group_keys=False).apply(lambda rows: rows.dropna(axis=1).mean(axis=1))
    for (task, program, seed), area in areas.items():
        found = run(task, program, seed, 40_960 if task == "Hopper-v4" else 200_000)
        yield {**found, "episodic_return": points.loc[(task, program, seed), POINTS], "mean_return": area}
    for program, seed, value in pd.read_csv(folder / "twenty_seeds.csv").itertuples(index=False, name=None):
        yield {**run("CartPole-v1", program, seed, SHORT), "episodic_return": value}


def run(task, program, seed, steps):
    """What is known of a run before it began."""
    num_envs, num_steps = (1, 2048) if task == "Hopper-v4" else (8, 128)
    theirs = "ppo_continuous_action" if task == "Hopper-v4" else "ppo"
    return {
        "script": theirs if program == CLEANRL else "ppo_envpool",
        "env_id": f"gymnasium::{task}" if program == OURS_GYMNASIUM else task,
        **{
            "game": catalog.task_name(task),
            "program": program,
            "seed": seed,
            "num_envs": num_envs,
            "num_steps": num_steps,
        },
        "total_timesteps": steps,
        "global_step": steps // (num_envs * num_steps) * num_envs * num_steps,
    }


def table(runs):
    """The runs of curves.csv: a configuration is a program. `final`, `area` and `score`: returns."""
    runs = runs[runs["total_timesteps"] != SHORT].drop(columns=["num_envs", "num_steps"])
    return runs.assign(final=runs["episodic_return"], area=runs["mean_return"], score=runs["episodic_return"])


def claims(scores):
    found = Claims(scores)
    configs = {config["program"]: config for config in scores.configs}
    for task in scores.tasks:
        for column, quantity in MEASURES.items():
            for one, other in ((OURS, CLEANRL), (OURS_GYMNASIUM, CLEANRL), (OURS, OURS_GYMNASIUM)):
                pair = [configs[program] for program in (one, other) if program in configs]
                if len(pair) == 2 and all(scores.in_task(task).has(config) for config in pair):
                    text = f"{one} minus {other}"
                    more = {"tasks": [task], "column": column, "quantity": quantity, "family": ESTIMATE}
                    found.compare(text, *pair, name=f"{task} {column}", **more)
    return found


def draw(scores):
    """A panel per task: every run, and the mean with its 95 % interval."""
    table = curves(scores.folder)
    table["game"] = table["game"].map(catalog.task_name)
    figure, axes = plt.subplots(2, 2, figsize=(PAGE, 4))
    for task, axis in zip(scores.tasks, axes.flat):
        last = table.loc[table["game"] == task, "step"].max()
        for program, color in COLORS.items():
            rows = table[(table["game"] == task) & (table["program"] == program)]
            points = rows.pivot(index="point", columns="seed", values="return").dropna()
            if points.empty:
                continue
            steps, runs = points.index * last / POINTS / 1000, points.to_numpy()
            axis.plot(steps, runs, color=color, lw=0.6, alpha=0.4)
            found = interval(mean, [[runs]], REPS)
            axis.fill_between(steps, found.low, found.high, color=color, alpha=0.15, lw=0)
            axis.plot(steps, found.value, color=color, label=program)
        axis.set_title(f"{task}, {last:,} steps")
        axis.set_xlabel("thousand steps")
    for axis in axes[:, 0]:
        axis.set_ylabel("return, last 100 episodes")
    figure.suptitle(
        "CleanRL's scripts and ppo_envpool.py: five runs each, and the mean with its 95 % interval", fontsize=8
    )
    handles = {label: handle for axis in axes.flat for handle, label in zip(*axis.get_legend_handles_labels())}
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=3)
    return figure
