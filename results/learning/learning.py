"""What each script was seen to learn: curves, pictures, and the table of README.md, from long runs.

    python results/learning/learning.py --runs runs/learning    # reads the runs EXPERIMENT/RUN, and does the rest
    python results/learning/learning.py                         # pictures and table, from the files of this folder

Of an experiment, EXPERIMENT.csv has a row per run and log point, and EXPERIMENT.png has the return and P1's
six diagnostics over the whole of each run. runs.csv has a row per run, evaluations.csv one per run and evaluation: that
of the run itself (`final`), and those that `scripts/evaluate.py RUN > RUN/evaluation_NAME.json` wrote. published.csv
has curves of others, read off their pictures. Of a run that is under way, or was stopped, what there is counts. A curve
with a gap, or with a step that comes twice, is refused.
"""

import json
import re
import sys
from pathlib import Path
from typing import NamedTuple, Optional

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT  # noqa: F401

from dataclasses import dataclass

import numpy as np
import pandas as pd
from analysis.look import COLORS, DASHED, GRAY, PAGE, plt, save
from analysis.suite import SHOWN
from scipy import stats

from support import arguments, catalog, reading

HERE = Path(__file__).resolve().parent
TEXT = HERE / "README.md"
BEGIN, END = "<!-- results/learning/learning.py writes this table -->\n", "<!-- end of the table -->\n"
RETURN = "episodic_return"
DIAGNOSTICS = {f"diagnostics/{name}": name for name in SHOWN}


class Experiment(NamedTuple):
    title: str
    others: str = ""  # what others publish for it, for the table
    also: str = ""  # a tag that says what was learned, in place of the return, which the picture has below


EXPERIMENTS = {
    "breakout": Experiment("PPO, Breakout", "CleanRL 389.57 ± 29.62 (2022), 211.24 ± 151.84 (2023), three seeds each"),
    "minatar": Experiment("PPO, MinAtar's Breakout", "DQN 9.2, actor-critic 9.9 and 7.4 (Young and Tian 2019)"),
    "pqn_breakout": Experiment("PQN, Breakout", "CleanRL 384.85 ± 12.39, three seeds"),
    "pqn_pong": Experiment("PQN, Pong", "CleanRL 20.49 ± 0.11 after 10 million steps, three seeds"),
    "procgen_starpilot": Experiment(
        "PPO, StarPilot, 200 levels", "CleanRL 30.99 ± 1.96 after 25 million steps, three seeds"
    ),
    "rnd_montezuma": Experiment("RND, Montezuma's Revenge", also="charts/rooms"),
    "rnd_corridor": Experiment("RND, a corridor of 24 frames without reward", also="charts/rooms"),
    "isaac_swingup": Experiment("PPO, mjlab's Cartpole-Swingup"),
}


@dataclass
class Args:
    runs: Optional[Path] = None  # the directory with a directory for each experiment, which has one for each run


# ---- from run directories to the files of this folder ----------------------------------------------------------------
def curve_of(run_dir, also=""):
    """The curve of a run: a DataFrame with the columns step, episodic_return, the six diagnostics and `also`.

    ValueError where a step comes twice, or where a log point is missing of those that --num-logs asks for.
    """
    tags = {"charts/episodic_return": RETURN, **DIAGNOSTICS, also: also.split("/")[-1]}
    curves = reading.read_curves(run_dir)
    columns = {name: pd.Series(curves[tag][1], curves[tag][0]) for tag, name in tags.items() if tag in curves}
    twice = [name for name, column in columns.items() if not column.index.is_unique]
    table = pd.DataFrame() if twice else pd.DataFrame(columns).rename_axis("step").reset_index()
    given = reading.read_files(run_dir)[0]["arguments"]
    batch = given["num_envs"] * given["num_steps"]
    ends = np.arange(0, table["step"].max() + 1 if len(table) else 1, batch)  # of the iterations
    parts = ends * given["num_logs"] // (given["total_timesteps"] // batch * batch)
    if twice or list(table["step"]) != list(ends[1:][np.diff(parts) > 0]):
        raise ValueError(f"{run_dir}: expected a curve without gap or duplicate")
    return table


def row_of(run_dir):
    """A row of runs.csv."""
    manifest, done, _, word = reading.read_files(run_dir)
    given = manifest["arguments"]
    found = None if done else reading.newest_checkpoint(run_dir)
    seconds = done["wall_seconds"] if done else found[1]["run"]["wall_seconds"] if found else None
    script = reading.script_of(manifest)
    names = ("env_id", "num_envs", "num_steps", "seed")
    attempts = len(list(run_dir.glob("events.out.tfevents.*")))
    return {
        "experiment": run_dir.parent.name,
        "run": run_dir.name,
        "script": f"{script}.py",
        **{name: given[name] for name in names},
        "total_timesteps": given["total_timesteps"],
        "state": word,
        "start": manifest["start"],
        "hours": round(seconds / 3600, 4) if seconds else None,
        "interruptions": attempts - 1,
        "commit": manifest["git"]["commit"][:7],
        "command": " ".join(["python", *str(manifest["command"]).split()[1:]]),
    }


def evaluations_of(run_dir):
    """Yields a row of evaluations.csv for each evaluation of a run."""
    of = {"experiment": run_dir.parent.name, "run": run_dir.name}
    done = reading.read_files(run_dir)[1] or {}
    if done.get("final_return") is not None:
        low, high = done["final_return_ci"] or (None, None)
        yield {**of, "name": "final", "mean": done["final_return"], "low": low, "high": high}
    for path in sorted(run_dir.glob("evaluation_*.json")):
        found = json.loads(path.read_text())
        low, high = found["ci95"] or (None, None)
        name = path.stem.split("_", 1)[1]
        yield {**of, "name": name, "mean": found["mean"], "low": low, "high": high}


def take(folder):
    """Writes what the runs of a folder say into the files here. Rows of other runs stay."""
    for name in sorted(path.name for path in folder.iterdir() if path.is_dir()):
        if name not in EXPERIMENTS:
            arguments.fail(f"{folder / name}: expected one of {', '.join(EXPERIMENTS)}")
        run_dirs = [path for path in sorted((folder / name).iterdir()) if (path / "manifest.json").exists()]
        if not run_dirs:
            arguments.fail(f"{folder / name}: expected the directory of a run in it")
        curves = {path.name: curve_of(path, EXPERIMENTS[name].also) for path in run_dirs}
        path = HERE / f"{name}.csv"
        there = pd.read_csv(path) if path.exists() else pd.DataFrame({"run": []})
        table = pd.concat(
            [there[~there["run"].isin(curves)], *(curve.assign(run=run) for run, curve in curves.items())]
        )
        table.to_csv(path, index=False, float_format="%.6g", lineterminator="\n")
        rows = {
            "runs": [row_of(path) for path in run_dirs],
            "evaluations": [row for path in run_dirs for row in evaluations_of(path)],
        }
        for file, own in rows.items():
            there = pd.read_csv(HERE / f"{file}.csv", dtype=str)
            there = there[(there["experiment"] != name) | ~there["run"].isin(curves)]
            there = pd.concat([there, pd.DataFrame(own).astype(str).replace("None", "")])
            there.to_csv(HERE / f"{file}.csv", index=False, lineterminator="\n")


def words(run):
    """The name of a run directory in words: 128x8_run2__s1 is "128 x 8, run 2, seed 1"."""
    run = run.replace("nobonus", "no bonus").replace("__s", ", seed ")
    run = re.sub(r"_run(?=\d)", ", run ", run).replace("_", " ")
    return re.sub(r"^s(?=\d)", "seed ", re.sub(r"(?<=\d)x(?=\d)", " x ", run))


def settings_of(runs):
    """The settings of runs, whose names are a Series or an Index: a name without its seed."""
    return runs.str.replace(r"(__)?s\d+$", "", regex=True)


# ---- pictures --------------------------------------------------------------------------------------------------------
def draw(name):
    """The picture of an experiment: the return, beside published curves, and the six diagnostics."""
    experiment, table = EXPERIMENTS[name], pd.read_csv(HERE / f"{name}.csv")
    published = pd.read_csv(HERE / "published.csv", comment="#")
    published = published[(published["experiment"] == name) & (published["step"] <= table["step"].max())]
    first, below = (experiment.also.split("/")[-1], {"A": RETURN}) if experiment.also else (RETURN, {})
    panels = {**dict(zip("012345", SHOWN)), **below}
    rows = ["RRR", "012", "345", *["AAA"] * bool(experiment.also)]
    heights = [1.6, *[1] * (len(rows) - 1)]
    figure, axes = plt.subplot_mosaic(";".join(rows), figsize=(PAGE, 1.2 * sum(heights) + 1.3), height_ratios=heights)
    for (label, of), color in zip(published.groupby("series"), (GRAY, "black", "tan")):
        axes["R"].plot(of["step"] / 1e6, of["return"], color=color, ls=DASHED, lw=1, label=label)
    settings = settings_of(table["run"]).str.replace(r"_run\d+$", "", regex=True)
    for (setting, runs), color in zip(table.groupby(settings, sort=False), COLORS):
        names = list(dict.fromkeys(runs["run"]))
        several = f"one seed, {len(names)} runs" if "_run" in names[0] else f"{len(names)} seeds"
        label = words(names[0]) if len(names) == 1 else f"{words(setting)}, {several}".lstrip(", ")
        for run, of in runs.groupby("run"):
            steps = of["step"] / 1e6
            axes["R"].plot(steps, of[first], color=color, lw=0.9, label=label if run == names[0] else None)
            for place, column in panels.items():
                if column not in of:  # of a policy, which PQN does not have
                    axes[place].set_axis_off()
                    continue
                values = 100 - of[column] if column == "ess" else of[column]
                axes[place].plot(steps, values, color=color, lw=0.7)
    label = "return of the last 100 episodes" if first == RETURN else f"{first} entered"
    axes["R"].set(ylabel=label, title=experiment.title)
    axes["R"].set_ylim(bottom=0 if experiment.also else None)
    axes["R"].legend(ncols=2)
    for place, column in panels.items():
        axes[place].set(title=SHOWN.get(column, "return of the last 100 episodes") * axes[place].axison)
    if "ess" in table:
        # single batches with a large ratio stand far above the rest
        axes[str(list(SHOWN).index("ess"))].set_yscale("log")
    for axis in axes.values():
        axis.set_xlim(0, table["step"].max() / 1e6)
    figure.supxlabel("million steps", fontsize=8)
    save(figure, HERE / name)


# ---- the table -------------------------------------------------------------------------------------------------------
def number(mean, low, high):
    digits = 0 if abs(float(mean)) >= 100 else 1 if abs(float(mean)) >= 1 else 2
    texts = [f"{float(x):.{digits}f}" for x in (mean, low, high) if x != ""]
    return texts[0] + (" [{}, {}]".format(*texts[1:]) if texts[1:] else "")


def over_seeds(values):
    """The mean of one number per seed with Student's interval; of two seeds, whose interval is wide, both numbers."""
    if len(values) == 2:
        return " and ".join(f"{value:g}" for value in values) + " (2 seeds)"
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    mean = values.mean()
    return f"{number(mean, mean - half, mean + half)} ({len(values)} seeds)"


def result(runs, evaluations, curve, also=""):
    """What the runs of an experiment came to: one run or two with intervals over episodes, more over seeds.

    also: the column that is the result in place of the evaluations: its last value.
    """
    texts = []
    last = curve.groupby("run", sort=False).last()
    short = runs[runs["state"] != "done"]
    if also:
        for setting, of in last.groupby(settings_of(last.index), sort=False):
            found = over_seeds(of[also]) if len(of) > 1 else f"{of[also].iloc[0]:g} (1 seed)"
            texts.append(f"{also} entered, {words(setting)}: {found}")
        if len(short):
            steps = last.loc[short["run"], "step"]
            span = " to ".join(dict.fromkeys((f"{steps.min():,.0f}", f"{steps.max():,.0f}")))
            texts.append(f"{len(short)} runs at {span} of {int(short['total_timesteps'].iloc[0]):,} steps")
        return "; ".join(texts)
    settings = settings_of(evaluations["run"])
    for (name, setting), of in evaluations.groupby(["name", settings], sort=False):
        label = f"{words(setting)}: " if settings_of(runs["run"]).nunique() > 1 else ""
        means = of["mean"].astype(float).to_numpy()
        where = "" if name == "final" else f" on {name.replace('_', ' ')}"
        if len(means) <= 2:
            each = [number(*row) for row in of[["mean", "low", "high"]].to_numpy()]
            found = " and ".join(each) + " (2 seeds)" * (len(each) == 2)
        else:
            found = over_seeds(means)
        texts.append(label + found + where)
    for run, steps in zip(short["run"], short["total_timesteps"]):
        of = last.loc[run]
        value = "" if run in set(evaluations["run"]) else f" {of[RETURN]:.3g}"
        texts.append(f"{words(run)}:{value} at {of['step']:,.0f} of {int(steps):,} steps")
    return "; ".join(texts)


def table():
    """The rows of the table, Markdown without links: a row per experiment."""
    runs, evaluations = (pd.read_csv(HERE / f"{name}.csv", dtype=str).fillna("") for name in ("runs", "evaluations"))
    yield "| script | task | N x T, steps | evaluation episodes | random play | others | hours | commit |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, experiment in EXPERIMENTS.items():
        of = runs[runs["experiment"] == name]
        if of.empty:
            continue
        first = of.iloc[0]
        scale = catalog.scale(Path(first["script"]).stem, catalog.procgen_mode(first.to_dict()))
        random = (scale.returns if scale else {}).get(catalog.task_name(first["env_id"]), ("",))[0]
        n_by_ts = ", ".join(dict.fromkeys(f"{n} x {t}" for n, t in zip(of["num_envs"], of["num_steps"])))
        once = of.drop_duplicates(["start", "hours"])  # seeds that one process trained have the same
        hours = sum(float(hours) for hours in once["hours"] if hours)
        curves, also = pd.read_csv(HERE / f"{name}.csv"), experiment.also.split("/")[-1]
        found = result(of, evaluations[evaluations["experiment"] == name], curves, also)
        yield " | ".join(
            [
                f"| `{first['script']}`",
                experiment.title.split(", ", 1)[1],
                f"{n_by_ts}; {int(first['total_timesteps']):,}",
                found,
                "" if also else f"{random}",
                experiment.others,
                f"{hours:.1f}" if hours else "",
                ", ".join(dict.fromkeys(of["commit"])) + " |",
            ]
        )


def write_table():
    text = TEXT.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        arguments.fail(f"{TEXT}: expected the lines {BEGIN.strip()} and {END.strip()} once each")
    before, rest = text.split(BEGIN)
    TEXT.write_text(before + BEGIN + "\n" + "\n".join(table()) + "\n\n" + END + rest.split(END)[1])


def main(args):
    if args.runs:
        take(args.runs)
    for name in EXPERIMENTS:
        if (HERE / f"{name}.csv").exists():
            draw(name)
    write_table()


if __name__ == "__main__":
    main(arguments.parse(Args, sys.argv[1:], __doc__))
