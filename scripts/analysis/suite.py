"""The runs of one script in a sweep: grouped into configurations, compared at one budget, normalised, aggregated."""

from launching.root import ROOT

import copy
from functools import lru_cache
from pathlib import Path

import numpy as np

from analysis import training_runs
from analysis.estimates import (
    MARGIN,
    Estimate,
    bootstrap,
    enough_seeds,
    improvement,
    interval,
    iqm,
    mean,
    percentile_interval,
)
from analysis.scores import Scores
from analysis.training_runs import RETURN
from support import arguments, catalog, reading

POINTS = 100  # points in a drawn curve
BAND_REPS = 500  # resamples behind the band of a curve, at most
NO_CURVE = np.zeros(0), Estimate(*[np.zeros(0)] * 3)
SMALLEST_MARGIN = 0.01  # in scores: a tenth of the base's score says nothing where that is nearly 0
THRESHOLD = 0.9  # share of the way from the random policy to the base's last score: "steps to the threshold"
P1_GAMES = ("NameThisGame", "Phoenix", "BattleZone", "Qbert")  # P1 shows four games: it names the first two
MEASURES = {  # numbers of a run, in words; all but the first come from its training curve
    "score": "final score",
    "area": "mean score over the whole training",
    "half": "score at half the budget",
    "steps": f"share of the budget to {THRESHOLD:.0%} of the base's score",
}
DIAGNOSTICS = {  # tag below diagnostics/ and probe/: (label, P1's claim: the sign of its correlation with N)
    "feature_rank": ("feature rank", 1),
    "dormant_neurons": ("dormant neurons (%)", -1),
    "weight_norm": ("weight norm", -1),
    "gradient_kurtosis": ("gradient kurtosis", -1),
    "policy_variance": ("policy variance", -1),
    "ess": ("ESS (%)", 1),
}
SHOWN = {**{name: label for name, (label, _) in DIAGNOSTICS.items()}, "ess": "100 - ESS (%)"}  # as they are drawn
SHORT_NAMES = {
    "update_epochs": "epochs",
    "learning_rate": "lr",
    "gamma": "γ",
    "clip_coef": "clip",
    "prox_com": "com",
    "total_timesteps": "budget",
    "minibatch_size": "minibatch",
    "num_minibatches": "minibatches",
}


# ---- words for values ------------------------------------------------------------------------------------------------
def short(value):
    """A value as a label shows it: 2.5e-4, 100k, 10M."""
    if isinstance(value, float) and 0 < abs(value) < 1e-2:
        digits, exponent = f"{value:.2e}".split("e")
        return f"{float(digits):g}e{int(exponent)}"
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) >= 10000:
        power = min(int(np.log10(abs(value)) // 3), 4)
        return f"{value / 1000**power:.3g}{' kMGT'[power]}".replace("G", "B")
    return f"{value:g}" if isinstance(value, float) else str(value)


def as_shown(tag, values):
    """Values of a tag as they are drawn: of ESS what is missing to 100 %, since it hardly ever falls below 99."""
    return 100 - values if tag.split("/")[-1] == "ess" else values


def label_of(config):
    """E.g. "16×128 epochs 8"."""
    words = [f"{config['num_envs']}×{config['num_steps']}"]
    others = config.others()
    schedule = others.pop("schedule", None)
    if schedule:  # N x T and the number of minibatches are those of its first batch
        words = [name_of_schedule(schedule)]
        others.pop("num_minibatches", None)
    parent = others.pop("resume_from", None)
    for name, value in others.items():
        if name == "shared_encoder":
            words.append("shared" if value else "separate")
        else:
            words.append(f"{SHORT_NAMES.get(name, name)} {short(value)}")
    return " ".join(words) + (f", from {parent}" if parent else "")


def name_of_schedule(text):
    """What changes in a value of --schedule, in words: by its first and its last phase."""
    if text.startswith("noise"):
        return "N led by noise"
    n_by_ts = [[int(x) for x in phase.split(":")[1].split("x")] for phase in text.split(",")]
    first, last = n_by_ts[0], n_by_ts[-1]
    if first == last:
        return "N and T back to the first" if len(n_by_ts) > 1 else "a schedule of one N x T"
    if first[0] * first[1] != last[0] * last[1]:
        return "growing batch" if first[0] * first[1] < last[0] * last[1] else "shrinking batch"
    return "growing N" if first[0] < last[0] else "growing T"


def sort_key(config):
    """Orders configurations by their other arguments, then by batch size, then by N. Words come after numbers."""
    values = config.others().values()
    others = [(True, value) if isinstance(value, str) else (False, float(value or 0)) for value in values]
    return others, config.batch_size, config["num_envs"]


def parents_of(runs):
    """{name of a run: the run that its --resume-from names}. The directories may have moved: the path's end counts."""
    by_name, found = {run.name: run for run in runs}, {}
    for run in runs:
        parts = Path(run.arguments.get("resume_from") or "").parts
        ends = ["/".join(parts[first:]) for first in range(len(parts))]  # the longest first
        parent = next((by_name[end] for end in ends if end in by_name), None)
        if parent:
            found[run.name] = parent
    return found


class Suite(Scores):
    """The runs of one script in a sweep, and the table of their scores.

    Attributes beside those of Scores: `runs`, {(configuration, task, seed): TrainingRun}; `parents`, {name of a run:
    the run that it goes on from}; `all_tasks` and `all_seeds`, sorted; `budget`, the step at which the longest runs are
    compared, and `nominal_budget`, the steps that they were to make; `scored` and `tasks`, the configurations and the
    tasks of the aggregates; `pool` and `pool_name`, the statistic of a sample that is drawn: the mean over tasks, or
    the IQM where P1 draws it; `shown`, the tasks of the images by task; `scale`, what a score is, in words; `final_is`,
    what a final score is, in words; `too_few_episodes`, the configurations whose final scores decide nothing; `notes`,
    what a reader has to know of the runs.
    """

    def __init__(
        self, sweep, script, runs, bases=(), reps=2000, seed=0, axis="steps", stated=None, shown=(), module=None
    ):
        """bases: pairs (N, T), one of them the base's, or none. reps, seed: of bootstraps. axis: the x-axis of
        curves, one of training_runs.AXES. stated: as statement.read gives it, or None. shown: tasks, or none
        for four of them. module: what sweeps.load gives for the sweep, or None.
        """
        self.sweep, self.script, self.reps, self.seed, self.axis = sweep, script, reps, seed, axis
        self.notes, self.by_task = [], False
        self.pool, self.pool_name = (iqm, "IQM") if getattr(module, "IQM", False) else (mean, "mean")
        stated = stated or {"base": {}, "varies": []}
        self.parents, tasks = parents_of(runs), {run.task for run in runs}
        differing = training_runs.differing_arguments(
            [run.arguments for run in runs if run.task == task] for task in tasks
        )
        own = {id(run): self._with_parent(run, differing - {"resume_from"}) for run in runs}
        differing = training_runs.differing_arguments(
            [own[id(run)] for run in runs if run.task == task] for task in tasks
        )
        varied = differing | {*getattr(module, "VARIES", ()), *stated["varies"]} - {"num_envs", "num_steps"}
        self._note_mixed(differing, stated["varies"])
        self.varies = ("num_envs", "num_steps", *sorted(varied))
        self.runs = {}
        for run in sorted(runs, key=lambda run: (run.end, bool(run.done))):  # a seed's longer run is last and is kept
            key = training_runs.configuration(own[id(run)], varied), run.task, run.arguments["seed"]
            if key in self.runs:
                self.notes.append(f"{self.runs[key].name}: left out, {run.name} has the same arguments")
            self.runs[key] = run
        self.configs = sorted({config for config, _, _ in self.runs}, key=sort_key)
        self.all_tasks = sorted({task for _, task, _ in self.runs})
        self.all_seeds = sorted({seed for _, _, seed in self.runs})
        self.base = self._find_base(bases, stated["base"].get(script), varied)
        self._choose_steps()
        self._note_missing()
        self._set_scale()
        measure = getattr(module, "measure", lambda run: {})
        self._known = {run.name: {**run.row, **measure(run)} for run in self.runs.values()}
        self._tabulate(with_diverged=True)
        self.notes += self._choose_tasks()
        self.shown = self._choose_shown(shown)

    def _with_parent(self, run, names):
        """The arguments of a run, with the configuration of its parent in place of the parent's path."""
        if not run.arguments.get("resume_from"):
            return run.arguments
        words, parent = "another run", self.parents.get(run.name)
        if parent:
            config = training_runs.configuration(self._with_parent(parent, names), {*names, "resume_from"})
            words = label_of(config)
            if config.n_by_t == (run.arguments["num_envs"], run.arguments["num_steps"]):  # what it shares is not said
                words = words.partition(" ")[2] or words
        return {**run.arguments, "resume_from": words}

    def _note_mixed(self, differing, varies):
        """Notes arguments that differ between runs although the sweep does not vary them."""
        follow = {"minibatch_size", "num_minibatches"}  # from N, T and each other
        mixed = sorted(differing - set(varies) - (follow if follow & set(varies) else set()))
        if varies and mixed:
            self.notes.append(f"runs differ in {', '.join(mixed)}, which the sweep does not vary (sweep.json)")

    def _find_base(self, n_by_ts, stated, varied):
        """The configuration with one of the given N x T, or that the sweep states, or else a guess, which is noted."""
        candidates = [config for config in self.configs if not n_by_ts or config.n_by_t in n_by_ts]
        if not candidates:
            given = ",".join(f"{N}x{T}" for N, T in n_by_ts)
            there = " ".join(f"{N}x{T}" for N, T in sorted({config.n_by_t for config in self.configs}))
            arguments.fail(f"--base {given} has no runs of {self.script}.py in {self.sweep}: expected {there}")
        env_id = next(iter(self.runs.values())).arguments["env_id"]
        defaults = reading.default_arguments(str(ROOT / f"{self.script}.py"), env_id)
        if stated:
            base = training_runs.configuration(training_runs.fill_in({**defaults, **stated}), varied)
            if not n_by_ts or base.n_by_t in n_by_ts:
                if base not in self.configs:
                    self.notes.append(f"the base, {label_of(base)}, has no runs yet")
                return base
        base = min(candidates, key=lambda config: self._preference(config, defaults))
        if not n_by_ts and len(self.configs) > 1:
            self.notes.append(
                f"no sweep.json says what the base is: guessed to be {label_of(base)} (the script's defaults, then the "
                "smallest batch); --base NxT chooses another"
            )
        return base

    def _preference(self, config, defaults):
        """Sorts configurations by how well they would do as a base that nothing states.

        The most of the script's defaults, then the smallest batch, then the one that most others scale in N alone or in
        T alone, then the fewest environments, then the largest budget.
        """
        num_envs, num_steps = config.n_by_t
        others = config.others()
        siblings = [other for other in self.configs if other.others() == others]
        scale_one = [(other["num_envs"] == num_envs) != (other["num_steps"] == num_steps) for other in siblings]
        kept = sum(defaults.get(name) == value for name, value in others.items())
        kept += (defaults.get("num_envs"), defaults.get("num_steps")) == config.n_by_t
        budget = others.get("total_timesteps", 0)
        return -kept, config.batch_size, -sum(scale_one), num_envs, -budget, sort_key(config)

    # ---- which step, which score -------------------------------------------------------------------------------------
    def _choose_steps(self):
        """Decides at which step each run is compared, and which runs have come so far."""
        runs = list(self.runs.values())
        ends = [run.end for run in runs if run.end]
        longest = max(run.target for run in runs) or max(ends, default=0)
        targets = {}  # {budget: where its runs are to end}
        for run in runs:
            run.target, run.by_evaluation = run.target or longest, False
            targets.setdefault(run.arguments.get("total_timesteps"), set()).add(run.target)
        for run in runs:  # those of one budget are compared at the last step that all of them reach
            run.target = min(targets[run.arguments.get("total_timesteps")])
        own_ends = sorted(set().union(*(steps for steps in targets.values() if len(steps) > 1)))
        self._choose_final_score(runs)
        if own_ends:
            self.notes.append(
                f"batches do not divide the budget, and runs end at {own_ends[0]:,} to {own_ends[-1]:,}: "
                + (
                    "the evaluation episodes are of networks that were trained for so long"
                    if "final_return" in self.final_is
                    else f"all are compared at {max(run.target for run in runs):,}, the last step that all reach"
                )
            )
        if ends and not any(run.finished for run in runs):
            equally_far = np.median(ends) >= training_runs.REACHED * max(ends)
            reached = max(ends) if equally_far else min(ends)
            for run in runs:
                run.target = reached
            self.notes.append(f"no run has reached its budget: everything is compared at step {reached:,}")
        self.budget = max(run.target for run in runs)
        self.nominal_budget = max((run.arguments.get("total_timesteps") or 0 for run in runs), default=0)
        if not self.budget <= self.nominal_budget <= 1.5 * self.budget:
            self.nominal_budget = self.budget
        few = {config for (config, *_), run in self.runs.items() if run.too_few_episodes}
        self.too_few_episodes = [config for config in self.configs if config in few]
        for config in self.too_few_episodes:
            self.notes.append(
                f"{label_of(config)}: some environments have finished fewer than {training_runs.ENOUGH_EPISODES} "
                "episodes; its final score is mostly of short episodes, and claims on it are undecided (avoid it with "
                "--eval-episodes)"
            )

    def _choose_final_score(self, runs):
        """Chooses between the two final scores, the same for all runs, and sets `final_is`."""
        ended = [run for run in runs if run.finished or (run.evaluated and not run.diverged)]
        evaluated = [run for run in ended if run.evaluated]
        self.final_is = "the mean of the last 100 finished episodes"
        if evaluated and len(evaluated) == len(ended):
            numbers = sorted({run.done.get("final_episodes", 0) for run in ended})
            counts = " to ".join(f"{number:,}" for number in dict.fromkeys([numbers[0], numbers[-1]]))
            self.final_is = (
                f"final_return, the mean of {counts} evaluation episodes of the final network (--eval-episodes)"
            )
            for run in runs:
                run.by_evaluation = True
        elif evaluated:
            self.final_is += (
                f", for all runs: only {len(evaluated)} of {len(ended)} have a final_return (--eval-episodes), and the "
                "two do not compare"
            )

    def _note_missing(self):
        """Notes the runs without a final score, and the seeds that have no run."""
        for (config, task, seed), run in self.runs.items():
            where = f"{run.name} ({label_of(config)}, {task}, seed {seed})"
            if run.diverged:
                self.notes.append(
                    f"{where}: diverged at step {run.diverged_at:,}: it counts with the score of the random policy; "
                    "a second row of each claim leaves it out"
                )
            elif not run.finished and run.end:
                self.notes.append(f"{where}: ends at step {run.end:,} of {run.target:,.0f}: unfinished; no final score")
            elif not run.finished:
                self.notes.append(f"{where}: no episode has ended; no score")
        for config in self.configs:
            missing = []
            for task in self.all_tasks:
                seeds = [str(seed) for seed in self.all_seeds if (config, task, seed) not in self.runs]
                missing += [f"{task} seed {' '.join(seeds)}"] if seeds else []
            if missing:
                self.notes.append(f"missing of {label_of(config)}: {', '.join(missing)}")

    # ---- scores ------------------------------------------------------------------------------------------------------
    def _set_scale(self):
        """Sets `zero` and `unit` of each task, {task: return}: a score is (return - zero) / unit. And `random`."""
        modes = {catalog.procgen_mode(run.arguments) for run in self.runs.values()}
        known = catalog.scale(self.script, modes.pop() if len(modes) == 1 else "mixed")
        if known and not set(self.all_tasks) & set(known.returns):
            known = None
        if known:
            ranges, self.scale, self.unit_words, _ = known
        else:
            ranges = {task: (0.0, self._mean_final_of_base(task)) for task in self.all_tasks}
            self.scale = (
                "returns over the base's mean final return in each task (there is no human reference); the CI holds "
                "that constant"
            )
            self.unit_words = "return / base's"
        self.zero = {task: ranges[task][0] if task in ranges else 0.0 for task in self.all_tasks}
        self.unit = {task: ranges[task][1] - ranges[task][0] for task in self.all_tasks if task in ranges}
        self.random = {task: self.zero[task] if known else self._mean_first_return(task) for task in self.all_tasks}
        self.random_is = known.zero if known else "the mean of the runs' first returns"
        for task in self.all_tasks:
            if task not in self.unit:
                self.notes.append(f"{task}: not in the table of scores; drawn, in no aggregate")

    def _mean_final_of_base(self, task):
        """The absolute mean final return of the base, 1 if there is none or it is 0."""
        finals = [run.final for run in self.of(self.base, task) if run.finished]
        return abs(np.mean(finals)) if finals and np.mean(finals) else 1.0

    def _mean_first_return(self, task):
        """The mean over all runs of a task of the first return on their curves: nearly that of a random policy."""
        firsts = [run.curve(RETURN)[1][0] for key, run in self.runs.items() if key[1] == task and run.end]
        return float(np.mean(firsts)) if firsts else 0.0

    def _choose_tasks(self):
        """Chooses the configurations (`scored`) and the tasks (`common`) of the aggregates. Returns notes on them.

        Each of these configurations has a final score in each of these tasks. Tasks that some configuration has not
        finished are left out. If that leaves less than half of the tasks, the configuration that has finished the
        fewest is left out instead.
        """
        notes, ranked = [], [task for task in self.all_tasks if task in self.unit]
        scored_tasks = {config: {task for task in ranked if self.count(config, task)} for config in self.configs}
        self.scored = [config for config in self.configs if scored_tasks[config]]
        while True:
            self.tasks = [task for task in ranked if all(task in scored_tasks[config] for config in self.scored)]
            counts = {config: len(scored_tasks[config]) for config in self.scored}
            if 2 * len(self.tasks) >= max(counts.values(), default=0):
                break
            self.scored.remove(min(counts, key=counts.get))
        for config in self.configs:
            if config not in self.scored:
                notes.append(f"{label_of(config)}: in no aggregate, too few of its tasks have a final score")
        left_out = [task for task in ranked if task not in self.tasks]
        if left_out and self.scored:
            notes.append(f"in no aggregate, since a configuration has no final score there: {', '.join(left_out)}")
        return notes

    def _choose_shown(self, wanted):
        """The tasks of the images by task: those that are wanted, or four. Ends the program if one has no runs."""
        for task in wanted:
            if task not in self.all_tasks:
                arguments.fail(f"--games {task} has no runs of {self.script}.py: expected {' '.join(self.all_tasks)}")
        if wanted or len(self.all_tasks) <= len(P1_GAMES):
            return [task for task in self.all_tasks if not wanted or task in wanted]
        first = [task for task in P1_GAMES if task in self.all_tasks]
        return sorted([*first, *(task for task in self.all_tasks if task not in first)][: len(P1_GAMES)])

    # ---- views: the same runs, counted otherwise ---------------------------------------------------------------------
    def without_diverged(self):
        """The suite in which diverged runs have no score."""
        view = copy.copy(self)
        view._tabulate(with_diverged=False)
        view._choose_tasks()
        return view

    def any_diverged(self, configs):
        """Whether a run of the configurations, in the tasks of the aggregates, has diverged."""
        return any(run.diverged for config in configs for task in self.tasks for run in self.of(config, task))

    # ---- values ------------------------------------------------------------------------------------------------------
    def records(self, metrics):
        """Those of the metrics, [(tag, label)], that a run has on its curves, and the returns in any case."""
        tags = {RETURN}.union(*(run.curves for run in self.runs.values()))
        return [(tag, label) for tag, label in metrics if tag in tags]

    def score(self, returns, task):
        """Returns, a number or an array, as scores of the task."""
        return (returns - self.zero[task]) / self.unit.get(task, 1.0)

    def of(self, config, task):
        """The runs of a configuration in a task, by seed."""
        return [self.runs[config, task, seed] for seed in self.all_seeds if (config, task, seed) in self.runs]

    def missing_in(self, config, tasks):
        """Words on those of the tasks in which a configuration has no runs, e.g. " (not in Qbert)"; "" without one."""
        missing = [task for task in tasks if not self.of(config, task)]
        return f" (not in {', '.join(missing)})" if missing else ""

    def _tabulate(self, with_diverged):
        """Makes the table of the runs that have a final score, each with MEASURES and what the sweep's module measures.

        with_diverged: whether a diverged run has the score of a random policy, and nothing else; or no score.
        """
        counted = {key: run for key, run in self.runs.items() if run.finished or (run.diverged and with_diverged)}
        curves = {key: self._training_curve(run, key[1]) for key, run in counted.items()}
        bars, rows = {}, []
        for task, random in self.random.items():
            ends = [curve[-1] for (config, *where), curve in curves.items() if config == self.base and where[0] == task]
            bars[task] = random + THRESHOLD * max(0.0, float(np.mean(ends)) - random) if ends else np.inf
        for (config, task, seed), run in counted.items():
            known, curve = self._known[run.name], curves[config, task, seed]
            known = dict.fromkeys(known, np.nan) if run.diverged else known
            reached = np.flatnonzero(curve >= bars[task])
            rows.append(
                {
                    **known,
                    **dict(config.items),
                    "game": task,
                    "seed": seed,
                    "score": self.score(self.random[task] if run.diverged else run.final, task),
                    "area": self.score(curve.mean(), task),
                    "half": self.score(curve[POINTS // 2 - 1], task),
                    "steps": (reached[0] + 1) / POINTS if reached.size else 1.0,
                }
            )
        self.take(rows)

    def _training_curve(self, run, task):
        """Returns at POINTS steps up to the run's target, (POINTS,).

        Before its first finished episode and after it has diverged a run counts as the random policy.
        """
        grid = np.linspace(0, run.target, POINTS + 1)[1:]
        x, y = run.curve(RETURN)
        random = self.random[task]
        if not len(x):
            return np.full(POINTS, random)
        curve = np.interp(grid, x, y, left=random)
        return np.where(grid > run.diverged_at, random, curve) if run.diverged else curve

    def margin(self, side, column="score"):
        """MARGIN times the base's score for the sides that have a margin, else 0."""
        if side not in ("little", "not less") or self.base not in self.scored:
            return 0.0
        return max(MARGIN * abs(float(mean(self.sample(self.base, column)))), SMALLEST_MARGIN)

    def improvement(self, pairs):
        """The Estimate of P(improvement), the mean over pairs of a configuration and another; drawn as rliable does."""
        configs = list(dict.fromkeys([config for pair in zip(*pairs) for config in pair]))
        samples = [self.sample(config) for config in configs]

        def mean_improvement(*samples):
            drawn = dict(zip(configs, samples))
            return np.mean([improvement(drawn[one], drawn[other]) for one, other in pairs], axis=0)

        value = float(mean_improvement(*samples))
        if not enough_seeds(samples):
            return Estimate(value, np.nan, np.nan)
        draws = bootstrap(mean_improvement, samples, min(self.reps, 1000), self.seed)
        return Estimate(value, *map(float, percentile_interval(draws)))

    def can_compare(self, configs):
        """Whether there are configurations, and all of them are in the aggregates."""
        return bool(configs and self.tasks) and set(configs) <= set(self.scored)

    @lru_cache(maxsize=None)  # noqa: B019
    def final_score(self, config):
        """The Estimate of the final score over the common tasks, as it is drawn."""
        return Estimate(*map(float, interval(self.pool, [self.sample(config)], self.reps, self.seed)))

    def reason_to_doubt(self, configs, column="score"):
        """Why a measure of the configurations decides nothing; "" if it does."""
        doubtful = [label_of(config) for config in configs if self._is_doubtful(config, column)]
        if not doubtful:
            return ""
        until = "" if column == "score" else " by half the budget"
        labels = ", ".join(dict.fromkeys(doubtful))
        return f"fewer than {training_runs.ENOUGH_EPISODES} finished episodes per environment{until}: {labels}"

    def _is_doubtful(self, config, column):
        if column == "score":
            return config in self.too_few_episodes
        runs = [run for task in self.tasks for run in self.of(config, task)]
        return any(run.finished and run.enough_episodes_from() > run.target / 2 for run in runs)

    @lru_cache(maxsize=None)  # noqa: B019
    def second_half_means(self, config, task, tag):
        """The mean of a tag over the second half of each run that has come to its end, (seeds,)."""
        means = [run.mean_of_second_half(tag) for run in self.of(config, task) if not run.diverged]
        return np.array([value for value in means if np.isfinite(value)])

    # ---- curves ------------------------------------------------------------------------------------------------------
    def drawn(self, config, task):
        """The runs behind a curve: the finished ones; if there is none, those with a finished episode; else all."""
        runs = self.of(config, task)
        return [run for run in runs if run.finished] or [run for run in runs if run.end] or runs

    def grid(self, runs, tag, axis):
        """Where the runs' curves are compared, (P,): steps of the whole budget, or the range that all runs have."""
        if axis == "steps":
            return np.linspace(0, self.budget, POINTS + 1)[1:]
        ends = [x[-1] for x, _ in (run.curve(tag, axis) for run in runs) if len(x)]
        end = min(ends, default=1.0)
        return np.geomspace(end / 1000, end, POINTS) if axis == "gradient_steps" else np.linspace(0, end, POINTS)

    @staticmethod
    def curves(runs, tag, grid, axis):
        """The runs' values at the points of the grid, (P, runs), by linear interpolation.

        NaN before a run's first point and after its last.
        """
        columns = [np.full((len(grid), 0), np.nan)]
        for run in runs:
            x, y = run.curve(tag, axis)
            if not len(x):
                columns.append(np.full((len(grid), 1), np.nan))
                continue
            if axis == "steps" and x[-1] >= training_runs.REACHED * grid[-1]:
                x[-1] = max(x[-1], grid[-1])  # the last whole iteration ends up to a batch before the budget
            columns.append(np.interp(grid, x, y, left=np.nan, right=np.nan)[:, None])
        return np.concatenate(columns, axis=1)

    def dotted_until(self, config, tasks, axis):
        """Where on the axis every environment of the configuration's runs in the tasks has finished enough episodes."""
        runs = [run for task in tasks for run in self.drawn(config, task)]
        return max((run.enough_episodes_from(axis) for run in runs), default=0.0)

    @lru_cache(maxsize=None)  # noqa: B019
    def aggregate(self, config, axis):
        """x (P,) and the Estimate of the score over the common tasks, where every run of the curve has a value."""
        runs = {task: self.drawn(config, task) for task in self.tasks}
        all_runs = sum(runs.values(), [])
        if not self.tasks or not all(runs.values()) or not all(run.end for run in all_runs):
            return NO_CURVE
        grid = self.grid(all_runs, RETURN, axis)
        sample = [self.score(self.curves(runs[task], RETURN, grid, axis), task) for task in self.tasks]
        return self._with_band(grid, self.pool, sample)

    def mean_curve(self, config, task, tag, axis):
        """x (P,) and the Estimate of the mean over the seeds of one task, in the tag's own unit (as_shown)."""
        runs = [run for run in self.drawn(config, task) if len(run.curve(tag)[0])]
        if not runs:
            return NO_CURVE
        grid = self.grid(runs, tag, axis)
        return self._with_band(grid, mean, [as_shown(tag, self.curves(runs, tag, grid, axis))])

    def _with_band(self, grid, statistic, sample):
        """The grid, and the Estimate of a statistic of a sample with arrays (P, seeds), where all runs have a value."""
        keep = np.all([np.isfinite(x).all(-1) for x in sample], axis=0)
        return grid[keep], interval(statistic, [[x[keep] for x in sample]], min(self.reps, BAND_REPS), self.seed)
