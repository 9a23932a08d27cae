"""What the programs in this directory share: runs read from disk, configurations, and reference scores.

Statistics and verdicts are in estimates.py. This module imports neither torch nor matplotlib.

    runs, unread = training_runs.read_runs(runs_dir)
    steps, returns = runs[0].curve(training_runs.RETURN)
"""

from launching.root import ROOT

import json
import os
import sys
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from tqdm import tqdm

from support import catalog, reading, recipe
from support.arguments import PLACE

RETURN, MIN_EPISODES, EPISODES = "charts/episodic_return", "charts/min_episodes", "charts/episodes"
AXES = {"steps": "environment steps", "gradient_steps": "gradient steps", "hours": "wall-clock hours"}
REACHED = 0.98  # share of its budget from which a run counts as finished
ENOUGH_EPISODES = 2  # episodes of each environment: before them the last 100 episodes are mostly short ones

# Arguments that say where and how a run is carried out, or what follows from others: they make no configuration.
NO_CONFIGURATION = PLACE | {
    "seed",
    "env_id",
    "exp_name",
    "track",
    "wandb_project_name",
    "wandb_entity",
    "capture_video",
    "cuda",
    "torch_deterministic",
    "num_logs",
    "probe_size",
    "diagnostics",
    "compile",
    "cuda_graphs",
    "tf32",
    "batch_size",
    "num_iterations",
    "eval_envs",
    "eval_episodes",
    "scale_from",  # --scaling derives the minibatches and the rate, which the manifest has as well
    "scaling",
}

# Weights of log10(1 + score in percent) in the estimate of the median over 57 games (Aitchison et al. 2023, arXiv
# 2210.02019; the table of the authors' notebook)
ATARI_10 = {
    "Amidar": 0.082464,
    "Bowling": 0.055903,
    "Frostbite": 0.069126,
    "KungFuMaster": 0.098617,
    "Riverraid": 0.048594,
    "BattleZone": 0.188820,
    "DoubleDunk": 0.085192,
    "NameThisGame": 0.128697,
    "Phoenix": 0.164327,
    "Qbert": 0.059229,
}
ATARI_5 = {
    "BattleZone": 0.381975,
    "DoubleDunk": 0.067910,
    "NameThisGame": 0.310804,
    "Phoenix": 0.124126,
    "Qbert": 0.080485,
}


# ---- scores ----------------------------------------------------------------------------------------------------------
def median_57(sample, games, weights):
    """The estimate of the median over all 57 games, in percent, from ten or five of them (Aitchison et al. 2023).

    sample: human-normalised scores, one array (…, seeds) per game. games: their names. weights: ATARI_10 or ATARI_5.
    """
    logs = [weights[game] * np.log10(1 + np.maximum(0, 100 * x.mean(-1))) for game, x in zip(games, sample)]
    return 10 ** np.sum(logs, axis=0) - 1


# ---- configurations --------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Configuration:
    """What tells runs of one task apart: N, T and the other arguments that differ, as ((argument, value), …)."""

    items: tuple

    def __getitem__(self, argument):
        return dict(self.items)[argument]

    def replace(self, **changes):
        """The configuration with other values of some of its arguments."""
        return Configuration(tuple((argument, changes.get(argument, value)) for argument, value in self.items))

    @property
    def batch_size(self):
        return self["num_envs"] * self["num_steps"]

    @property
    def n_by_t(self):
        return self["num_envs"], self["num_steps"]

    def others(self):
        """{argument: value} of the arguments beside N and T."""
        return {argument: value for argument, value in self.items if argument not in ("num_envs", "num_steps")}


def hashable(value):
    """A manifest's value in a form that can be in a set."""
    return json.dumps(value) if isinstance(value, (list, dict)) else value


def configuration(arguments, names):
    """The Configuration of a run's arguments: N, T and the arguments in `names`."""
    return Configuration(
        tuple((name, hashable(arguments.get(name))) for name in ("num_envs", "num_steps", *sorted(names)))
    )


def differing_arguments(groups):
    """The names of the arguments, beside N and T, that differ within any of the groups.

    groups: lists of runs' arguments. The size and the number of minibatches follow from each other: only one of them is
    returned, the number if it alone tells the runs apart.
    """
    most = {}  # argument: the largest number of its values within a group
    for group in groups:
        for name in set().union(*group) - NO_CONFIGURATION:
            count = len({hashable(arguments.get(name)) for arguments in group})
            most[name] = max(most.get(name, 0), count)
    names = {name for name, count in most.items() if count > 1} - {"num_envs", "num_steps"}
    if {"minibatch_size", "num_minibatches"} <= names:
        names.remove("num_minibatches")
    elif "minibatch_size" in names:
        names.remove("minibatch_size")
    return names


# ---- runs ------------------------------------------------------------------------------------------------------------
class Manifest:
    """What the content of manifest.json says: `script`, `env_id`, `task`, and `arguments` over the script's defaults.

    ValueError if its batch or its schedule cannot be used.
    """

    def __init__(self, content):
        given = content["arguments"]
        self.script = reading.script_of(content) or str(given.get("exp_name") or "")
        if not (ROOT / f"{self.script}.py").exists():
            self.script = catalog.script_of(str(given.get("env_id") or "*-v5"))
        path = str(ROOT / f"{self.script}.py")
        self.env_id = str(given.get("env_id") or reading.default_arguments(path)["env_id"])
        self.arguments = {**reading.default_arguments(path, self.env_id), "env_id": self.env_id, **given}
        try:
            self.arguments = fill_in(self.arguments)
            self.batch_size = self.arguments["num_envs"] * self.arguments["num_steps"]
            begin = content.get("parent", {}).get("global_step", 0)
            self.total_steps = recipe.schedule_of(self.arguments, begin).last_step
        except (KeyError, TypeError, ValueError) as error:  # a script without a default, or one that is null
            raise ValueError(f"manifest.json: arguments: no batch follows from them ({error!s:.200})") from None
        self.task = catalog.task_name(self.env_id)


def fill_in(arguments):
    """The arguments with both the size and the number of minibatches: the size decides if it is given; and with the
    law's learning rate if theirs is a default that follows from the others."""
    batch_size = arguments["num_envs"] * arguments["num_steps"]
    minibatch_size = arguments.get("minibatch_size") or batch_size // arguments["num_minibatches"]
    rate = arguments.get("learning_rate", 0)
    return {
        **arguments,
        **({"learning_rate": recipe.default_rate(arguments)} if rate is None else {}),
        "minibatch_size": minibatch_size,
        "num_minibatches": batch_size // minibatch_size,
    }


@dataclass
class TrainingRun:
    """A run as it is analysed."""

    name: str  # the path below --runs
    script: str
    task: str  # as task_name gives it
    arguments: dict  # the manifest's, over the script's defaults
    curves: dict  # as reading.read_curves gives them
    done: dict  # the content of done.json, {} without it
    manifest: dict = field(default_factory=dict)  # the content of manifest.json
    state: str = "done"  # in the words of reading.state
    failure: str = ""  # why it has failed or diverged, in one line
    diverged: bool = False  # whether there is a failed.json, or its last return is not finite
    diverged_at: int = 0  # the step of that
    target: float = 0.0  # the step at which the run is compared with others
    by_evaluation: bool = False  # whether its final score is that of `--eval-episodes`, else of the last 100 episodes

    @property
    def finished(self):
        """Whether it has a final score: evaluation episodes, or a curve up to the step at which it is compared."""
        has_score = self.evaluated if self.by_evaluation else 0 < self.end >= REACHED * self.target
        return has_score and not self.diverged

    @property
    def evaluated(self):
        """Whether the final network has played evaluation episodes (`--eval-episodes`)."""
        return self.done.get("final_return") is not None

    def curve(self, tag, axis="steps"):
        """x (P,) and values (P,) of a tag, finite ones only. axis: one of AXES."""
        steps, values = self.curves.get(tag, (np.zeros(0), np.zeros(0)))
        keep = np.isfinite(values)
        return self.on_axis(steps[keep], axis), values[keep].astype(float)

    def last(self, tag):
        """The last value of a tag; NaN if there is none."""
        _, values = self.curve(tag)
        return float(values[-1]) if len(values) else np.nan

    def mean_of_second_half(self, tag):
        """The mean of a tag over the second half of the run; NaN if the tag does not come to the run's end."""
        steps, values = self.curve(tag)
        if not len(steps) or steps[-1] < REACHED * self.target:
            return np.nan
        return float(values[steps >= self.target / 2].mean())

    def on_axis(self, steps, axis):
        """Environment steps (P,) as steps, as gradient steps or as hours of computing."""
        if axis == "gradient_steps":
            return self._gradient_steps(steps)
        if axis == "hours":
            return self._hours(steps)
        return np.asarray(steps, float)

    def _gradient_steps(self, steps):
        at, count = self.curves.get("charts/gradient_steps", (np.zeros(0), np.zeros(0)))
        if len(at):
            return np.interp(steps, [0, *at], [0, *count])
        arguments = self.arguments
        iterations = steps / (arguments["num_envs"] * arguments["num_steps"])
        return iterations * arguments["update_epochs"] * arguments["num_minibatches"]

    def _hours(self, steps):
        """Summed from the speed: the clock of the events also counts the time between two attempts of a run."""
        at, sps = self.curve("charts/SPS")
        if not len(at):
            return np.full(len(steps), np.nan)
        seconds = np.cumsum([0, *np.diff(at, prepend=0) / np.maximum(sps, 1e-9)])
        return np.interp(steps, [0, *at], seconds / 3600)

    @cached_property
    def row(self):
        """Its row in the table of all runs (docs/data.md), by the arguments over the script's defaults."""
        row = reading.row_of(reading.Files(self.manifest, self.done, {}, self.state), self.curves, self.name)
        return {name: self.arguments.get(name, row[name]) for name in reading.COLUMNS}

    @cached_property
    def end(self):
        """The last step with a return; 0 if no episode has ended."""
        steps, _ = self.curve(RETURN)
        return int(steps[-1]) if len(steps) else 0

    @property
    def ends_in_nan(self):
        """Whether the last return on the curve is not finite."""
        _, values = self.curves.get(RETURN, (np.zeros(0), np.zeros(0)))
        return bool(len(values)) and not np.isfinite(values[-1])

    @property
    def final(self):
        """The final score, a return; None if the run is not finished.

        done.json's `final_return` with `by_evaluation`, else the mean of the last 100 finished episodes at the target.
        """
        if not self.finished:
            return None
        return float(self.done["final_return"] if self.by_evaluation else np.interp(self.target, *self.curve(RETURN)))

    def enough_episodes_from(self, axis="steps"):
        """Where on the axis each environment has finished ENOUGH_EPISODES episodes.

        Infinite if that is not reached, 0 for an old run that does not say how many episodes it has finished.
        """
        if MIN_EPISODES in self.curves:
            x, fewest = self.curve(MIN_EPISODES, axis)
        elif EPISODES in self.curves:
            x, episodes = self.curve(EPISODES, axis)
            fewest = episodes / self.arguments["num_envs"]  # on average: the fewest are fewer
        else:
            return 0.0
        return float(min(x[fewest >= ENOUGH_EPISODES], default=np.inf))

    @property
    def too_few_episodes(self):
        """Whether the final score is of the last 100 episodes and some environment has finished too few of them."""
        return self.finished and not self.by_evaluation and self.enough_episodes_from() > self.target


def read_run(run_dir, name):
    """The TrainingRun in a directory. ValueError if a file is not as a run writes it."""
    manifest, done, failed, state = reading.read_files(run_dir)
    known = Manifest(manifest)
    run = TrainingRun(
        name=name,
        script=known.script,
        task=known.task,
        arguments=known.arguments,
        curves=reading.read_curves(run_dir),
        done=done,
        manifest=manifest,
        state=state,
        failure=reading.log_end(run_dir)[0] if state == "failed" else "",
        diverged=state == "diverged",
        target=done.get("global_step") or known.total_steps,
    )
    run.diverged_at = failed.get("global_step", run.end)
    if run.diverged:
        run.failure = f"{failed.get('tensor', 'a number')} is not finite at step {run.diverged_at:,}"
        if "step" in failed:
            run.failure += f"; first at step {failed['step']:,}, in environment {failed.get('environment', 0)}"
    run.diverged |= run.ends_in_nan
    return run


def read_runs(root):
    """All TrainingRuns below a directory, links included, each once; and a line for each that cannot be read."""
    links = reading.lost_runs(root)
    runs = []
    unread = [
        f"{reading.shown(link.relative_to(root))}: not read (a link to {os.readlink(link)}, which has been deleted)"
        for link in links
    ]
    found = reading.find_runs(root)
    for run_dir in tqdm(found, desc="reading", unit=" runs", disable=not sys.stderr.isatty(), leave=False):
        name = reading.shown(run_dir.relative_to(root))
        try:
            runs.append(read_run(run_dir, name))
        except (OSError, ValueError) as error:
            unread.append(f"{name}: not read ({error})")
    return runs, unread
