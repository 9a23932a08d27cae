"""Can the networks of finished runs still learn, and which of P1's diagnostics tell?

    python results/plasticity/plasticity.py --runs runs/shape_rate --out results/plasticity/

P1 (Mayor et al. 2025, arXiv 2506.03404) reads feature rank, dormant neurons, weight norm and gradient kurtosis as signs
of lost plasticity. Its reviewers object that a dormant unit is not lost plasticity. This program measures plasticity
itself, as Lyle et al. 2022 (arXiv 2204.09560, target-fitting capacity) do: how fast does a network fit new targets?

1. Each task has one bank of states s_1 ... s_M, the same for all of its runs. It takes equally many rows of each run's
   coverage.npz (ppo_envpool.py), or states of a random policy (ppo_atari_envpool.py, whose coverage.npz has no stacks
   of frames).
2. The targets y(s) are random and the same for all networks: the sum of 32 cosines, with random directions and phases,
   of the first 8 principal components of the bank, each scaled to unit variance. y has mean 0 and variance 1 over the
   bank.
3. Each encoder of a network gets a new linear head, initialised at 0. A new Adam takes K steps on the mean of
   (head(encoder(s)) - y(s))^2 over the whole bank. This loss begins at 1; the lower it ends, the faster the network.
4. slowdown = loss of the run's network / loss of freshly initialised networks with the same architecture and the same
   normalisation of observations; a geometric mean over targets. At 1 the run's network is as plastic as a new one;
   above 1 it is slower.
5. Spearman's rank correlation of the slowdown with the last value of each diagnostic is taken over the runs of a task
   and averaged over tasks. `within` takes the ranks less their mean in each configuration, so that neither N, T nor the
   learning rate explains the correlation. Intervals are 95 %, by Student's t over the runs of each task. A verdict says
   whether the sign is P1's.

What it does not measure: whether the network could learn the later values and actions of its own task; what a new
optimiser would repair or spoil (the run's own Adam is not used); generalisation (the loss is on the states that are
fitted); the heads; the critic's encoder, in the correlations (P1's diagnostics are of the actor's; the table has both).
A fresh network has a smaller norm, so one step of Adam changes it more. That is part of the slowdown and not corrected
for. A correlation is no cause.

Writes plasticity.csv (one row per run), plasticity_correlations.csv and plasticity.png, and prints both tables. Lists
the runs that are not finished and leaves them out. At the defaults a network of ppo_envpool.py takes two or three
seconds of one core, one of Atari takes minutes.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "scripts"))
from launching.root import ROOT  # noqa: F401

import copy
import importlib
import os
from dataclasses import dataclass
from typing import Optional

import evaluate
import numpy as np
import pandas as pd
import torch
from analysis import training_runs
from analysis.claims import Claim, Claims
from analysis.comparisons import RUNS_FOR_A_VERDICT, judge
from analysis.estimates import evidence, interval, nothing
from analysis.look import BLUE, COLORS, PAGE, plt, save
from analysis.statistics import spearman, spearman_within
from analysis.suite import DIAGNOSTICS, label_of
from scipy.stats import rankdata
from typing_extensions import Annotated

from support import progress, reading
from support.arguments import Positive, Range, Seed, Threads, fail, parse, writable
from support.envs.episodes import env_seeds

SCRIPTS = ("ppo_envpool", "ppo_atari_envpool")
COSINES, COMPONENTS = 32, 8  # of a target
RANDOM_STEPS, RANDOM_ENVS = 128, 8  # of the random policy
SIDES = {
    1: "less",
    -1: "more",
}  # P1's sign of a correlation with N: the side claimed of that with the slowdown
MARKS = {"diagnostics": "o", "probe": "s"}
WORDS = {  # on all rows or on a sample of fixed size; over all runs or within configurations
    ("diagnostics", "all runs"): "all rows",
    ("probe", "all runs"): "sample",
    ("diagnostics", "within"): "all rows, within",
    ("probe", "within"): "sample, within",
}


@dataclass
class Args:
    runs: Optional[Path] = None  # the directory with the runs, at any depth; default: draws the tables in --out
    out: Path = Path("figures")  # the directory for the picture and the tables
    states: Annotated[int, Range(32, 65536)] = 512  # states in the bank of a task
    steps: Annotated[int, Range(1, 10**5)] = 200  # Adam's steps: K
    targets: Annotated[int, Range(1, 1000)] = 3  # random targets
    fresh: Annotated[int, Range(1, 1000)] = 3  # freshly initialised networks for each target
    learning_rate: Positive = 1e-3  # Adam's learning rate
    frequency: Positive = 1.0  # frequency of the cosines: larger ones make targets that are harder to fit
    num_threads: Threads = 1  # CPU threads of PyTorch; 0 takes every core
    seed: Seed = 1  # seeds the bank, the targets and the fresh networks


def parse_args(argv):
    """Returns checked Args; exits 2 with one line on bad input. Touches no file."""
    args = parse(Args, argv, __doc__)
    if args.runs and not os.path.isdir(args.runs):  # Path.is_dir raises OSError if a name is too long
        fail(f"--runs {args.runs}: expected a directory with runs below it")
    return args


def note(message):
    print(f"note: {message}", file=sys.stderr)


# ---- runs and networks -----------------------------------------------------------------------------------------------
def finished_runs(args):
    """The TrainingRuns that can be measured: finished, of one of SCRIPTS, with a checkpoint. Notes the others."""
    found, unread = training_runs.read_runs(args.runs)
    for line in unread:
        note(line)
    kept = []
    for run in found:
        if run.script not in SCRIPTS:
            note(f"{run.name} left out: a run of {run.script}.py, expected one of {', '.join(SCRIPTS)}")
        elif not run.done or not reading.checkpoints(args.runs / run.name):
            note(f"{run.name} left out: not finished, or no checkpoint")
        else:
            kept.append(run)
    if not kept:
        fail(f"--runs {args.runs}: expected finished runs of {' or '.join(SCRIPTS)} with checkpoints")
    return sorted(kept, key=lambda run: (run.game, run.name))


def trained_network(run_dir):
    """(network, its arguments, script) of a run, loaded as evaluate.py does, in float32."""
    checkpoint, args, script = evaluate.load(run_dir)
    args.bf16 = False
    return evaluate.trained_agent(checkpoint["agent"], script, args), args, script


def fresh_network(agent, args, script, seed):
    """A new network with the architecture and the normalisation of observations of `agent`."""
    module = importlib.import_module(script)
    if script == "ppo_envpool":
        fresh = module.make_agent(args, [seed])
    else:
        torch.manual_seed(seed)
        fresh = module.make_agent(args)
    for (_, buffer), (_, trained) in zip(fresh.named_buffers(), agent.named_buffers()):
        buffer.copy_(trained)
    return fresh


def architecture(agent, args, script):
    """A key that two runs share exactly if the fresh networks of one serve the other."""
    shapes = tuple((name, tuple(parameter.shape)) for name, parameter in agent.named_parameters())
    buffers = tuple(buffer.numpy().tobytes() for buffer in agent.buffers())
    return script, args.env_id, getattr(args, "activation", ""), shapes, buffers


def representation(agent, obs):
    """The last hidden layer of each encoder, (E, M, H): the actor's, then the critic's if it has its own."""
    if hasattr(agent, "num_encoders"):  # ppo_envpool.py's, with an axis of agents
        return agent(obs[None])[2][-1][0]
    return torch.stack([encoder[-1] for encoder in agent(obs)[2]])


# ---- states and targets ----------------------------------------------------------------------------------------------
def bank_of(runs, args):
    """The states of a task, a tensor (M, ...): the same for all of its runs."""
    rng = np.random.default_rng(args.seed)
    if runs[0].script == "ppo_atari_envpool":
        return torch.from_numpy(random_states(runs[0].arguments, args.states, rng))
    parts, quota = [], -(-args.states // len(runs))
    for run in runs:
        try:
            with np.load(args.runs / run.name / "coverage.npz") as data:
                rows = data["obs"]
        except (OSError, ValueError, KeyError) as error:
            fail(f"{args.runs / run.name} has no coverage.npz that can be read ({error}): expected a finished run")
        parts.append(rows[rng.permutation(len(rows))[:quota]])
    rows = np.concatenate(parts)
    return torch.from_numpy(rows[rng.permutation(len(rows))[: args.states]])


def random_states(arguments, number, rng):
    """States (number, 84, 84, 4) uint8 that a random policy sees in an Atari game."""
    module = importlib.import_module("ppo_atari_envpool")
    args = module.Args(**{name: arguments[name] for name in ("env_id", "seed")})
    seeds = env_seeds(args.seed, "bank", 0, range(RANDOM_ENVS))
    envs = module.make_envs(args, seeds)
    obs, rows = envs.reset()[0], []
    for _ in range(max(RANDOM_STEPS, -(-number // RANDOM_ENVS))):
        obs = envs.step(rng.integers(envs.action_space.n, size=RANDOM_ENVS))[0]
        rows.append(obs.transpose(0, 2, 3, 1))
    rows = np.concatenate(rows)
    return np.ascontiguousarray(rows[rng.permutation(len(rows))[:number]])


def random_targets(bank, number, frequency, seed):
    """Targets (number, M) float32, each with mean 0 and variance 1 over the states: point 2 of the docstring."""
    rows = bank.reshape(len(bank), -1).double()
    rows = rows - rows.mean(0)
    left, singular, _ = torch.linalg.svd(rows, full_matrices=False)
    kept = int((singular[:COMPONENTS] > 1e-6 * singular[0]).sum())
    z = left[:, : max(kept, 1)].numpy() * len(bank) ** 0.5  # (M, components), each of unit variance
    rng = np.random.default_rng(seed)
    directions = frequency * rng.standard_normal((number, COSINES, z.shape[1])) / z.shape[1] ** 0.5
    phases = rng.uniform(0, 2 * np.pi, (number, COSINES, 1))
    y = np.cos(directions @ z.T + phases).sum(1)
    y = y - y.mean(1, keepdims=True)
    return torch.from_numpy(y / np.maximum(y.std(1, keepdims=True), 1e-12)).float()


# ---- plasticity ------------------------------------------------------------------------------------------------------
def fit(agent, bank, target, steps, learning_rate):
    """The loss of each encoder after `steps` steps of Adam on target (M,): (E,) floats. Changes the network."""
    with torch.no_grad():
        num_encoders, _, units = representation(agent, bank[:1]).shape
    weight = torch.zeros(num_encoders, units, 1, requires_grad=True)
    bias = torch.zeros(num_encoders, 1, requires_grad=True)
    optimizer = torch.optim.Adam([*agent.parameters(), weight, bias], lr=learning_rate, fused=True)

    def losses():
        predictions = torch.bmm(representation(agent, bank), weight).squeeze(-1) + bias
        return (predictions - target).square().mean(1)

    for _ in range(steps):
        optimizer.zero_grad()
        losses().sum().backward()
        optimizer.step()
    with torch.no_grad():
        return losses().double().numpy()


def log_loss(agents, bank, target, args):
    """The mean over networks of the logarithm of their losses, (E,). Changes the networks."""
    losses = [fit(agent, bank, target, args.steps, args.learning_rate) for agent in agents]
    return np.log(np.maximum(losses, 1e-12)).mean(0)


def fresh_losses(agent, arguments, script, bank, targets, args):
    """`log_loss` of --fresh new networks for each target, (targets, E)."""
    found = []
    for i, target in enumerate(targets):
        seeds = range(args.seed + i * args.fresh, args.seed + (i + 1) * args.fresh)
        found.append(log_loss([fresh_network(agent, arguments, script, seed) for seed in seeds], bank, target, args))
    return np.array(found)


def measure(runs, args):
    """A table with one row per run: its loss, that of fresh networks, the slowdown, and P1's diagnostics."""
    tasks = sorted({run.game for run in runs})
    varied = training_runs.differing_arguments([[run.arguments for run in runs if run.game == task] for task in tasks])
    rows, bank, of_fresh, task = [], None, {}, None
    with progress.progress_bar(len(runs), "run", "fits") as bar:
        for run in runs:
            if task != (run.script, run.game):
                task = run.script, run.game
                bank = bank_of([other for other in runs if (other.script, other.game) == task], args)
                targets = random_targets(bank, args.targets, args.frequency, args.seed)
            agent, arguments, script = trained_network(args.runs / run.name)
            key = architecture(agent, arguments, script)
            if key not in of_fresh:
                of_fresh[key] = fresh_losses(agent, arguments, script, bank, targets, args)
            found = np.array([log_loss([copy.deepcopy(agent)], bank, target, args) for target in targets])
            slowdown = np.exp((found - of_fresh[key]).mean(0))
            config = training_runs.configuration(run.arguments, varied)
            row = {"run": run.name, "script": run.script, "game": run.game, **dict(config.items)}
            row.update(configuration=label_of(config), seed=run.arguments["seed"], states=len(bank))
            row.update(loss=np.exp(found.mean(0))[0], fresh_loss=np.exp(of_fresh[key].mean(0))[0], slowdown=slowdown[0])
            row["slowdown_critic"] = slowdown[1] if len(slowdown) > 1 else np.nan
            for tag in (f"{place}/{name}" for place in MARKS for name in DIAGNOSTICS):
                values = run.curve(tag)[1]
                row[tag] = values[-1] if len(values) else np.nan
            rows.append(row)
            bar.update()
    return pd.DataFrame(rows)


# ---- correlations ----------------------------------------------------------------------------------------------------
def sample_of(table, tag):
    """The sample that `spearman` takes: one array (3, runs) per task, of the runs that have the diagnostic."""
    arrays = []
    for _, rows in table.dropna(subset=[tag, "slowdown"]).groupby("game"):
        codes = pd.factorize(rows["configuration"])[0]
        arrays.append(np.array([rows[tag], rows["slowdown"], codes], float))
    return arrays


def correlations(table):
    """A table with one row per diagnostic, on all rows and on the probe, over all runs and within configurations.

    Holm's correction is over the rows of one kind.
    """
    rows = []
    for kind, statistic in (("all runs", spearman), ("within", spearman_within)):
        claims = Claims()
        for place in MARKS:
            for name, (label, sign) in DIAGNOSTICS.items():
                sample, side = sample_of(table, f"{place}/{name}"), SIDES[sign]
                claims.append(Claim(label, f"{place}/{name}", judge(evidence_of(statistic, sample), side), side))
                row = {"diagnostic": f"{place}/{name}", "label": label, "kind": kind}
                row.update(zip(("rho", "ci_low", "ci_high"), claims[-1].estimate))
                row.update(games=len(sample), runs=sum(x.shape[-1] for x in sample), P1=side)
                rows.append({**row, "why": claims[-1].tested.why, "verdict": claims[-1].verdict})
        for row, word in zip(rows[-len(claims) :], claims.adjusted(), strict=True):
            row["after_holm"] = word
    return pd.DataFrame(rows)


def evidence_of(statistic, sample):
    """The Evidence of a correlation, without an interval if the runs are too few or their values constant."""
    if not sample:
        return nothing("not logged")
    if all(np.ptp(x[0]) == 0 for x in sample):
        return nothing("constant")
    if min(x.shape[-1] for x in sample) < RUNS_FOR_A_VERDICT:
        return nothing(f"expected at least {RUNS_FOR_A_VERDICT} runs of each task")
    if statistic is spearman_within and min(x.shape[-1] / len(set(x[2])) for x in sample) < RUNS_FOR_A_VERDICT:
        return nothing(f"expected at least {RUNS_FOR_A_VERDICT} runs of each configuration")
    return evidence(statistic, [sample])


# ---- what is shown ---------------------------------------------------------------------------------------------------
def describe(table, found):
    """Yields the lines of both tables."""
    yield "slowdown: the loss of a run's network over that of a fresh one, after K steps; geometric mean [95 % CI]"
    for (task, label), rows in table.groupby(["game", "configuration"], sort=False):
        value, low, high = np.exp(interval(lambda sample: sample[0].mean(-1), [[np.log(rows["slowdown"].to_numpy())]]))
        bounds = "" if np.isnan(low) else f"[{low:.2f}, {high:.2f}]"
        yield f"  {task:24} {label:28} {len(rows):4} runs  {value:6.2f} {bounds}"
    yield "Spearman's correlation of the slowdown with the last value of each diagnostic, mean over tasks"
    for row in found.itertuples():
        number = f"{row.rho:6.2f} [{row.ci_low:5.2f}, {row.ci_high:5.2f}]" if not row.why else f"     - ({row.why})"
        claim = {"less": "negative", "more": "positive"}[row.P1]
        yield (
            f"  {row.kind:9} {row.diagnostic:30} {number:24} P1: {claim}  {row.verdict}"
            + (f"; after Holm {row.after_holm}" if row.after_holm != row.verdict else "")
        )


def draw(table, found, path):
    """The slowdown against each probed diagnostic, one dot per run; below, the correlations with their intervals."""
    figure, axes = plt.subplots(2, len(DIAGNOSTICS), figsize=(PAGE, 4.8), sharey="row", height_ratios=(1.2, 1))
    colors = dict(zip(sorted(table["game"].unique()), COLORS * len(table)))
    scale = "log" if table["slowdown"].max() > 10 * table["slowdown"].min() else "linear"
    for column, (name, (label, sign)) in enumerate(DIAGNOSTICS.items()):
        ax, below = axes[:, column]
        for task, rows in table.groupby("game"):
            rows = rows.dropna(subset=[f"probe/{name}"])
            x = rankdata(rows[f"probe/{name}"].to_numpy()) / max(len(rows), 1)
            ax.plot(x, rows["slowdown"], ".", ms=3, alpha=0.6, color=colors[task], label=task, mec="none")
        ax.axhline(1, color="black", lw=0.6, ls=":")
        ax.set(yscale=scale, title=label.replace(" (%)", "").replace(" ", "\n", 1), xlim=(-0.05, 1.05), xticks=[0, 1])
        for x, (place, kind) in enumerate(WORDS):
            rows = found[(found["diagnostic"] == f"{place}/{name}") & (found["kind"] == kind) & (found["why"] == "")]
            for row in rows.itertuples():
                bars = np.maximum([[row.rho - row.ci_low], [row.ci_high - row.rho]], 0)
                fill = "black" if kind == "all runs" else "white"
                below.errorbar(x, row.rho, bars, fmt=MARKS[place], color="black", mfc=fill, ms=3.5, lw=0.8)
        below.axhline(0, color="black", lw=0.6, ls=":")
        below.axhspan(*((-1, 0) if sign > 0 else (0, 1)), color=BLUE, alpha=0.08, lw=0)
        below.set(xlim=(-0.7, 3.7), ylim=(-1, 1))
        below.set_xticks(range(len(WORDS)), WORDS.values(), rotation=90)
        below.grid(False, axis="x")
        ax.set_xlabel("rank in its task")
    axes[0][0].set_ylabel("slowdown against\na fresh network")
    axes[1][0].set_ylabel("Spearman's ρ\nwith the slowdown")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 5), markerscale=3)
    figure.supxlabel(
        "above: one dot per run, diagnostics of probe/; below: 95 % intervals; shaded: P1's sign", fontsize=7
    )
    save(figure, path)


def main(args):
    with writable("out", args.out):
        pass
    torch.set_num_threads(args.num_threads or os.cpu_count())
    if args.runs:
        table = measure(finished_runs(args), args)
        table.to_csv(args.out / "plasticity.csv", index=False, float_format="%.9g")
        correlations(table).to_csv(args.out / "plasticity_correlations.csv", index=False, float_format="%.9g")
    try:
        table, found = (pd.read_csv(args.out / name) for name in ("plasticity.csv", "plasticity_correlations.csv"))
    except OSError as error:
        fail(f"{error.filename} is missing: expected --runs, or --out with the tables of an earlier call")
    found = found.fillna({"why": ""})
    draw(table, found, args.out / "plasticity")
    print(*describe(table, found), sep="\n")


if __name__ == "__main__":
    main(parse_args(sys.argv[1:]))
