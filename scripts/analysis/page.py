"""The report of a sweep: one HTML file that asks for nothing from outside, and the same tables for LaTeX.

    text = page.html(sweep, reference, tested, unread, drawn)
    text = page.latex(sweep, tested)

tested: [(Suite, Claims), …], one per script. drawn: [(name, caption, text of an SVG image), …]. page.html is the
template. Everything is inside the file: styles, images, and the script that sorts and filters the table of runs. It
works from file:// and without JavaScript too.
"""

import re
import shlex
from collections import Counter
from pathlib import Path

import jinja2
import numpy as np
import pandas as pd

from analysis.claims import PRIMARY
from analysis.estimates import CONTRADICTED, SUPPORTED
from analysis.suite import SHORT_NAMES, SHOWN, short
from analysis.tables import (
    ABOUT_CLAIMS,
    ABOUT_CORRELATIONS,
    about,
    bounds,
    claims_table,
    correlations_table,
    found_correlations,
    number,
    scores_table,
)
from analysis.training_runs import RETURN
from support import tags

PACKAGES = ("python", "torch", "numpy", "envpool", "mjlab", "mujoco", "tensorboard")  # whose versions are listed
SIGNS = {SUPPORTED: ("✓", "yes"), CONTRADICTED: ("✗", "no")}  # {verdict: (mark, CSS class)}
MATH = {  # what LaTeX's text fonts lack
    "×": r"$\times$",
    "γ": r"$\gamma$",
    "τ": r"$\tau$",
    "√": r"$\surd$",
    "±": r"$\pm$",
    "²": r"$^2$",
    ">": r"$>$",
    "<": r"$<$",
    "−": r"$-$",
    "\u2003": r"\quad ",  # an em space
}

TERMS = [
    ("N", "parallel environments (--num-envs)"),
    ("T", "steps of each environment between two updates (--num-steps)"),
    ("N×T, as 8×128", "N environments of T steps each: the batch that one update learns from"),
    ("base", "the configuration that the others are compared with"),
    ("score", "a return on the scale that is named below the claims, to make tasks comparable"),
    (
        "IQM",
        "interquartile mean: the mean of the middle half of the scores of all tasks and seeds (Agarwal et al. 2021, "
        "arXiv 2108.13264)",
    ),
    (
        "95 % CI, [low, high]",
        "of scores a percentile bootstrap over seeds; of claims Student's t, over tasks or over seeds",
    ),
    ("P(improvement)", "the chance that a run of the first configuration scores higher, the mean over tasks"),
    ("τ, in a profile", "a threshold of the score: a profile shows which share of the runs is above it"),
    ("Kendall's τ", "rank correlation: 1 if two numbers always rise together, -1 if one falls when the other rises"),
    ("Holm", "correction for the number of claims, by which a verdict that holds is true of all of them at once"),
    ("P1", "Mayor et al., ICML 2025, arXiv 2506.03404: many environments beat long rollouts"),
    ("P2", "ICLR 2026 blog post on PPO's batch size: samples of one trajectory give correlated gradients"),
    ("P3", "Beukman et al. 2026, arXiv 2603.06009: PPO's outer loop as stochastic optimisation"),
    ("P4", "Bharthulwar, Tao and Su, NeurIPS 2025, arXiv 2511.21011: environments that start together hurt"),
]


# ---- claims ----------------------------------------------------------------------------------------------------------
def claim_rows(claims):
    """The claims as page.html shows them, the primary one first: (claim, its row of claims_table, forest)."""
    shown = sorted(zip(claims, claims.adjusted()), key=lambda pair: pair[0].family != PRIMARY)
    rows = zip(shown, claims_table(shown)[1])
    return [(claim, row, forest(claim) if np.isfinite(claim.estimate.low) else None) for (claim, _), row in rows]


def forest(claim):
    """Where the parts of a claim's interval are in an image 140 wide: 0 is at 70; `band`, the margin: (left, width)."""
    value, low, high = claim.estimate
    reach = 1.08 * max(abs(low), abs(high), 1.5 * claim.margin, 1e-12)

    def x(number):
        return round(70 + 68 * number / reach, 1)

    right = 138 if claim.side == "not less" else x(claim.margin)
    band = (x(-claim.margin), f"{right - x(-claim.margin):.1f}") if claim.margin else None
    return {"label": bounds(low, high), "band": band, "low": x(low), "high": x(high), "value": x(value)}


# ---- the table of runs -----------------------------------------------------------------------------------------------
def runs_table(suite):
    """The header of the table of runs, and its rows as page.html shows them. A column sorts by the value of a pair."""
    others = [name for name in suite.varies if name not in ("num_envs", "num_steps")]
    header = ["task", "N", "T", *(SHORT_NAMES.get(name, name) for name in others), "seed", "state", "step", "SPS"]
    header += ["return", "failure", "command"]
    rows = []
    for (config, _, seed), run in sorted(suite.runs.items(), key=lambda item: (item[0][1], item[1].name)):
        values = [config["num_envs"], config["num_steps"], *(config[name] for name in others), seed]
        sps = float(run.done.get("sps") or run.last("charts/SPS"))
        score = run.final if run.finished else run.last(RETURN)
        rows.append(
            {
                "run": run,
                "arguments": [(value, short(value)) for value in values],
                "numbers": [
                    (run.end, f"{run.end:,}"),
                    (sps, f"{sps:,.0f}" if np.isfinite(sps) else ""),
                    (score, number(score) if np.isfinite(score) else ""),
                ],
                "command": command_of(run.manifest),
            }
        )
    return header, rows


def command_of(manifest):
    """The command of a run, with `python` in place of that machine's path to it."""
    try:
        words = shlex.split(str(manifest.get("command", "")))
    except ValueError:
        return str(manifest["command"])
    if words and Path(words[0]).name.startswith("python"):
        words[0] = "python"
    return shlex.join(words)


def origins(tested):
    """(header, rows): with which code, versions and device how many of the runs were made."""
    counts = Counter()
    for suite, _ in tested:
        for run in suite.runs.values():
            manifest = run.manifest
            git, versions = manifest.get("git") or {}, manifest.get("versions") or {}
            commit = str(git.get("commit") or "unknown") + (" and changes" if git.get("dirty") else "")
            packages = ", ".join(f"{name} {versions[name]}" for name in PACKAGES if name in versions)
            counts[commit, packages, str(manifest.get("device") or "")] += 1
    rows = [[str(count), *words] for words, count in counts.most_common()]
    return ["runs", "commit", "versions", "device"], rows


# ---- the documents ---------------------------------------------------------------------------------------------------
def what_was_run(suite):
    """A line on the tasks, the budget, the seeds and the runs of a suite."""
    seeds = suite.all_seeds
    consecutive = len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1))
    of_seeds = f"{seeds[0]} to {seeds[-1]}" if consecutive else ", ".join(map(str, seeds))
    return (
        f"{suite.script}.py on {', '.join(suite.all_tasks)}; {suite.nominal_budget:,} environment steps a run; "
        f"seed{'s' * (len(seeds) > 1)} {of_seeds}; {len(suite.runs)} runs"
    )


def terms():
    """[(term, its meaning)] of the words that a report uses without explaining them."""
    diagnostics = [
        (SHOWN[name].partition(" (")[0] if name != "ess" else "ESS", tags.OF_NETWORK[name]) for name in SHOWN
    ]
    return [*TERMS, *diagnostics]


def html(sweep, reference, tested, unread, drawn, how=""):
    """The text of the report. how: the command that has made it."""
    parts = []
    for suite, claims in tested:
        _, *notes = about(suite, reference)
        correlations, (runs_header, runs) = found_correlations(suite), runs_table(suite)
        parts.append(
            {
                "script": f"{suite.script}.py",
                "run": what_was_run(suite),
                "claims": claim_rows(claims),
                "notes": notes,
                "scores": scores_table(suite),
                "correlations": correlations_table(correlations) if correlations else None,
                "runs_header": runs_header,
                "runs": runs,
            }
        )
    folder = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(
        loader=folder, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    return environment.get_template("page.html").render(
        sweep=sweep,
        reference=reference,
        parts=parts,
        unread=unread,
        drawn=drawn,
        how=how,
        origins=origins(tested),
        signs=SIGNS,
        terms=terms(),
        about_claims=ABOUT_CLAIMS,
        about_correlations=ABOUT_CORRELATIONS,
    )


def latex(sweep, tested):
    """The tables of scores and of claims, for a document with the package booktabs."""
    lines = ["% needs \\usepackage{booktabs}"]
    for suite, claims in tested:
        where = f"{sweep}, {suite.script}.py, {suite.budget:,} environment steps"
        lines.append(as_latex(scores_table(suite), f"Scores of {where}: {suite.scale}."))
        if claims:
            lines.append(as_latex(claims_table(zip(claims, claims.adjusted())), f"Claims of {where}. {ABOUT_CLAIMS}."))
    return "\n".join(lines)


def as_latex(table, caption):
    """The text of a table environment, in ASCII. An indented cell stays indented."""
    header, rows = table
    frame = pd.DataFrame([[str(word).replace("  ", "\u2003") for word in row] for row in rows], columns=header)
    style = frame.style.hide(axis="index").format(escape="latex").format_index(escape="latex", axis="columns")
    text = style.to_latex(
        hrules=True,
        column_format="l" * len(header),
        position_float="centering",
        caption=re.sub("[&%#_]", r"\\\g<0>", caption),
    )
    return text.replace(r"\centering", r"\centering\small").translate(str.maketrans(MATH))
