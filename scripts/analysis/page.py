"""The report of a sweep: one HTML file that asks for nothing from outside, and the same tables for LaTeX.

    text = page.html(sweep, reference, judged, unread, svgs)
    text = page.latex(sweep, judged)

judged: [(Suite, Claims), …], one a script. svgs: {name: text of an SVG image}. Everything is inside the file: styles,
images, and the script that sorts and filters the table of runs. It works from file:// and without JavaScript too.
"""

import shlex
from collections import Counter
from html import escape
from pathlib import Path

import numpy as np

from analysis.claims import PRIMARY
from analysis.estimates import NOT_SUPPORTED, SUPPORTED
from analysis.suite import SHORT_NAMES, short
from analysis.tables import (
    ABOUT_CLAIMS,
    ABOUT_CORRELATIONS,
    about,
    as_latex,
    bounds,
    claims_table,
    correlations_table,
    found_correlations,
    number,
    scores_table,
)

PACKAGES = ("python", "torch", "numpy", "envpool", "mjlab", "mujoco", "tensorboard")  # whose versions are listed
SIGNS = {SUPPORTED: ("✓", "yes"), NOT_SUPPORTED: ("✗", "no")}  # of verdicts: (mark, class)
STYLE = """
:root { color-scheme: light; font: 15px/1.45 system-ui, sans-serif; }
body { max-width: 1180px; margin: 0 auto; padding: 0 20px 60px; color: #1a1a1a; background: #fff; }
h1 { font-size: 26px; margin: 28px 0 2px; } h2 { font-size: 19px; margin: 34px 0 8px; }
h3 { font-size: 15px; margin: 22px 0 6px; } p { margin: 6px 0; max-width: 90ch; } .dim { color: #5f6670; }
nav a { margin-right: 16px; color: #0b5394; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 4px 10px 4px 0; border-bottom: 1px solid #e4e6ea;
  vertical-align: top; }
th { color: #5f6670; font-weight: 600; white-space: nowrap; background: #fff; }
td.number { text-align: right; white-space: nowrap; } td.wide { white-space: nowrap; }
tr.primary td { background: #f3f7fc; font-weight: 600; } tr.part td:first-child { padding-left: 18px; }
.chip { display: inline-block; padding: 0 8px; border-radius: 9px; white-space: nowrap; background: #eceef1; }
.chip.yes { background: #d3e5f7; color: #08396b; } .chip.no { background: #fbdfc8; color: #7a2e00; }
.scroll { overflow-x: auto; } .note { color: #7a2e00; }
.runs { max-height: 640px; overflow: auto; border: 1px solid #d5d8dd; } .runs th { position: sticky; top: 0; }
.runs th, .runs td { padding-left: 8px; } .runs button { all: unset; cursor: pointer; font-weight: 600; }
.runs button:focus-visible { outline: 2px solid #0b5394; } code { font: 12px/1.4 ui-monospace, monospace; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font: 12px/1.4 ui-monospace, monospace; margin: 4px 0; }
input[type=search] { font: inherit; padding: 4px 8px; width: 320px; border: 1px solid #b9bec6; border-radius: 4px; }
figure { margin: 8px 0 26px; }
figure svg { width: 100%; max-width: 900px; height: auto; } figcaption { font-size: 13px; }
"""
SCRIPT = """
for (const box of document.querySelectorAll('.filter')) {
  const table = document.getElementById(box.dataset.table), body = table.tBodies[0], count = box.nextElementSibling;
  const rows = [...body.rows];
  box.addEventListener('input', () => {
    const words = box.value.toLowerCase().split(/\\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word));
      shown += !row.hidden;
    }
    count.textContent = shown + ' of ' + rows.length + ' runs';
  });
  table.tHead.addEventListener('click', event => {
    const head = event.target.closest('th');
    if (!head) return;
    const column = head.cellIndex, down = head.getAttribute('aria-sort') === 'ascending';
    for (const other of table.tHead.rows[0].cells) other.removeAttribute('aria-sort');
    head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
    const value = row => { const cell = row.cells[column]; return cell.dataset.value ?? cell.textContent; };
    rows.sort((one, other) => {
      const a = value(one), b = value(other), x = parseFloat(a), y = parseFloat(b);
      const order = isNaN(x) || isNaN(y) ? isNaN(x) - isNaN(y) || a.localeCompare(b) : x - y;
      return down ? -order : order;
    });
    body.append(...rows);
  });
}
"""


# ---- pieces ----------------------------------------------------------------------------------------------------------
def rows_of(table):
    """The HTML of a table (header, rows)."""
    header, rows = table
    lines = ["<div class=scroll><table>", "<thead><tr>", *(f"<th>{escape(str(word))}</th>" for word in header)]
    lines.append("</tr></thead><tbody>")
    for row in rows:
        lines.append("<tr>" + "".join(f"<td class=wide>{escape(str(word))}</td>" for word in row) + "</tr>")
    return [*lines, "</tbody></table></div>"]


def chip(verdict, more=""):
    mark, name = SIGNS.get(verdict, ("?", "open"))
    return f'<span class="chip {name}">{mark} {escape(verdict)}{escape(more)}</span>'


def forest(claim):
    """An SVG of a claim's interval: the line is 0, the grey band the margin."""
    value, low, high = claim.estimate
    if not np.isfinite(low):
        return ""
    reach = 1.08 * max(abs(low), abs(high), 1.5 * claim.margin, 1e-12)

    def x(number):
        return round(70 + 68 * number / reach, 1)

    band = ""
    if claim.margin:
        left, right = x(-claim.margin), 138 if claim.side == "not less" else x(claim.margin)
        band = f'<rect x="{left}" y="0" width="{right - left:.1f}" height="16" fill="#e4e6ea"/>'
    return (
        f'<svg width="140" height="16" role="img" aria-label="{escape(bounds(low, high))}">{band}'
        '<line x1="70" x2="70" y1="0" y2="16" stroke="#9aa0a8"/>'
        f'<line x1="{x(low)}" x2="{x(high)}" y1="8" y2="8" stroke="#1a1a1a" stroke-width="2"/>'
        f'<circle cx="{x(value)}" cy="8" r="3.5" fill="#1a1a1a"/></svg>'
    )


def claims_rows(claims):
    """The HTML of the claims, the primary one first."""
    lines = ["<div class=scroll><table><thead><tr>"]
    header = ["claim", "verdict", "after Holm", "interval", "value [95 % CI]", "P(improvement)", "power", "value is"]
    lines += [f"<th>{word}</th>" for word in header] + ["</tr></thead><tbody>"]
    both = list(zip(claims, claims.adjusted()))
    for claim, adjusted in sorted(both, key=lambda pair: pair[0].family != PRIMARY):
        value, low, high = claim.estimate
        ci = bounds(low, high) if np.isfinite(low) else f"no CI: {claim.evidence.why}"
        chance = ""
        if np.isfinite(claim.improvement.value):
            chance = f"{number(claim.improvement.value)} {bounds(*claim.improvement[1:])}"
        name = "primary" if claim.family == PRIMARY else "part" if claim.text.startswith("  ") else ""
        text = escape(claim.text.strip())
        if claim.remark:
            text += f"<br><span class=note>{escape(claim.remark)}</span>"
        cells = [
            f"<td>{text}</td>",
            f"<td>{chip(claim.verdict, f': needs {claim.needs}' if claim.needs else '')}</td>",
            f"<td>{chip(adjusted)}</td>",
            f"<td>{forest(claim)}</td>",
            f"<td class=wide>{number(value)} {escape(ci)}</td>",
            f"<td class=wide>{escape(chance)}</td>",
            f"<td>{number(claim.power) if np.isfinite(claim.power) else ''}</td>",
            f"<td class=dim>{escape(claim.quantity)}</td>",
        ]
        lines.append(f"<tr class='{name}'>{''.join(cells)}</tr>")
    return [*lines, "</tbody></table></div>"]


# ---- the table of runs -----------------------------------------------------------------------------------------------
def speed(run):
    """Steps per second: of the whole run, or the last on its curve; NaN if none is known."""
    if run.done.get("sps"):
        return float(run.done["sps"])
    _, values = run.curve("charts/SPS")
    return float(values[-1]) if len(values) else np.nan


def last_return(run):
    """The final score of a finished run, else the last return on its curve; NaN if there is none."""
    if run.finished:
        return run.final
    _, values = run.curve("charts/episodic_return")
    return float(values[-1]) if len(values) else np.nan


def runs_table(suite, identifier):
    """The HTML of the table of runs: a click on a column's head sorts, words in the box filter."""
    others = [name for name in suite.names if name not in ("num_envs", "num_steps")]
    header = ["game", "N", "T", *(SHORT_NAMES.get(name, name) for name in others), "seed", "state", "step", "SPS"]
    header += ["return", "failure", "command"]
    lines = [
        f"<p><input class=filter type=search data-table={identifier} placeholder='filter: words of a row' "
        f"aria-label='filter the runs'> <span class=dim>{len(suite.runs)} runs</span></p>",
        f"<div class=runs><table id={identifier}><thead><tr>",
        *(f"<th><button>{escape(word)}</button></th>" for word in header),
        "</tr></thead><tbody>",
    ]
    for (config, game, seed), run in sorted(suite.runs.items(), key=lambda item: (item[0][1], item[1].name)):
        cells = [f"<td>{escape(game)}</td>"]
        values = [config["num_envs"], config["num_steps"], *(config[name] for name in others), seed]
        cells += [f"<td class=number data-value='{escape(str(value))}'>{escape(short(value))}</td>" for value in values]
        cells.append(f"<td>{run.state}</td>")
        for value, text in (
            (run.end, f"{run.end:,}"),
            (speed(run), f"{speed(run):,.0f}"),
            (last_return(run), number(last_return(run))),
        ):
            cells.append(f"<td class=number data-value='{value}'>{text if np.isfinite(value) else ''}</td>")
        cells.append(f"<td class=note>{escape(run.failure)}</td>")
        command = escape(command_of(run.manifest))
        cells.append(f"<td><details><summary>{escape(run.name)}</summary><pre>{command}</pre></details></td>")
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return [*lines, "</tbody></table></div>"]


def command_of(manifest):
    """The command of a run, with `python` in place of that machine's path to it."""
    try:
        words = shlex.split(str(manifest.get("command", "")))
    except ValueError:
        return str(manifest["command"])
    if words and Path(words[0]).name.startswith("python"):
        words[0] = "python"
    return shlex.join(words)


def origins(judged):
    """(header, rows): with which code, versions and device how many of the runs were made."""
    counts = Counter()
    for suite, _ in judged:
        for run in suite.runs.values():
            manifest = run.manifest
            git, versions = manifest.get("git") or {}, manifest.get("versions") or {}
            commit = str(git.get("commit") or "unknown") + (" and changes" if git.get("dirty") else "")
            packages = ", ".join(f"{name} {versions[name]}" for name in PACKAGES if name in versions)
            counts[commit, packages, str(manifest.get("device") or "")] += 1
    rows = [[str(count), *words] for words, count in counts.most_common()]
    return ["runs", "commit", "versions", "device"], rows


# ---- the documents ---------------------------------------------------------------------------------------------------
def html(sweep, reference, judged, unread, svgs, how=""):
    """The text of the report. how: the command that has made it."""
    title = f"{escape(sweep)}: {escape(reference)}"
    lines = [
        "<!doctype html>",
        "<html lang=en><head><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>{title}</title><style>{STYLE}</style></head><body>",
        f"<h1>{escape(sweep)}</h1><p class=dim>{escape(reference)}</p>",
        "<nav><a href='#claims'>claims</a><a href='#figures'>figures</a><a href='#scores'>scores</a>"
        "<a href='#runs'>runs</a><a href='#origin'>how to make it again</a></nav>",
        "<h2 id=claims>Claims</h2>",
    ]
    for suite, claims in judged:
        _, *rest = about(suite, reference)
        lines.append(f"<h3>{escape(suite.script)}.py</h3>")
        lines += claims_rows(claims) if claims else ["<p>This sweep has no claims of its own.</p>"]
        lines.append(f"<p class=dim>{escape(ABOUT_CLAIMS)}</p>" if claims else "")
        lines.append("<details open><summary>how it is judged, and what is missing</summary>")
        lines += [f"<p class={'note' if line.startswith('!') else 'dim'}>{escape(line)}</p>" for line in rest]
        lines.append("</details>")
    lines += [f"<p class=note>not read: {escape(line)}</p>" for line in unread]
    lines.append("<h2 id=figures>Figures</h2>")
    for name, svg in svgs.items():
        lines.append(f"<figure>{svg}<figcaption class=dim>{escape(name)}</figcaption></figure>")
    lines.append("<h2 id=scores>Scores</h2>")
    for suite, _ in judged:
        lines += [f"<h3>{escape(suite.script)}.py</h3>", *rows_of(scores_table(suite))]
        correlations = found_correlations(suite)
        if correlations:
            lines += [f"<p class=dim>{escape(ABOUT_CORRELATIONS)}</p>", *rows_of(correlations_table(correlations))]
    lines.append("<h2 id=runs>Runs</h2>")
    for i, (suite, _) in enumerate(judged):
        lines += [f"<h3>{escape(suite.script)}.py</h3>", *runs_table(suite, f"runs{i}")]
    lines += ["<h2 id=origin>How to make it again</h2>", f"<pre>{escape(how)}</pre>"]
    lines.append("<p>Each run's own command is in the table of runs. The code and the versions that made them:</p>")
    lines += [*rows_of(origins(judged)), f"<script>{SCRIPT}</script>", "</body></html>"]
    return "\n".join(line for line in lines if line) + "\n"


def latex(sweep, judged):
    """The tables of scores and of claims, for a document with the package booktabs."""
    lines = ["% needs \\usepackage{booktabs}"]
    for suite, claims in judged:
        where = f"{sweep}, {suite.script}.py, {suite.budget:,} environment steps"
        lines += as_latex(scores_table(suite), f"Scores of {where}: {suite.scale}.")
        if claims:
            lines += ["", *as_latex(claims_table(claims), f"Claims of {where}. {ABOUT_CLAIMS}.")]
        lines.append("")
    return "\n".join(lines)
