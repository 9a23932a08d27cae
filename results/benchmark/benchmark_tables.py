"""The summary of benchmark.py's records, and its tables.

A record is one measurement, a dict. It has "round" and "section", what was measured ("shape", which is N x T, "script",
"precision", "diagnostics", "flags", "name", "runs", "ranks", "neighbours"), and the results ("sps", "peak_bytes", ...)
or an "error". All comparisons are ratios within a round, since the speed of a machine drifts by 20 % within minutes.

A spread is {"median", "min", "max", "n"} of the values of several rounds.
"""

import statistics

DIAGNOSTICS = {True: "diagnostics", False: "no diagnostics"}
LEFT_OUT = "left out: "  # begins the error of a measurement for which no time was left


def limit(env_sps, inference, training, update_epochs):
    """Steps/s of a script that steps environments, acts and learns in turn and does nothing else. Rates in rows/s."""
    return 1.0 / (1.0 / env_sps + 1.0 / inference + update_epochs / training)


def batch_size(n_by_t):
    """N times T, from the N x T of a record, such as "128x8"."""
    num_envs, num_steps = map(int, n_by_t.split("x"))
    return num_envs * num_steps


def title(record):
    """One line on what a record measures, the same in every round."""
    words = [
        record["section"],
        record.get("shape"),
        record["script"],
        record.get("name"),
        record.get("precision"),
        DIAGNOSTICS.get(record.get("diagnostics")),
        f"{record['runs']} at once" if "runs" in record else None,
        f"{record['ranks']} ranks" if "ranks" in record else None,
        "beside a busy process" if record.get("neighbours") else None,
        record.get("flags"),
    ]
    return " ".join(word for word in words if word)


# ---- records to spreads ----------------------------------------------------------------------------------------------
def by_round(records, result="sps", **fields):
    """{round: result} of the records that have all of these fields."""
    return {
        record["round"]: record[result]
        for record in records
        if result in record and all(record.get(name) == value for name, value in fields.items())
    }


def spread(values):
    """The spread of {round: value}; None without a round."""
    values = list(values.values())
    if not values:
        return None
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "n": len(values)}


def ratios(numerators, denominators):
    """The spread of numerator / denominator over the rounds that have both; None without such a round."""
    return spread({r: numerators[r] / denominators[r] for r in numerators.keys() & denominators.keys()})


def distinct(records, section, *names):
    """The distinct values of these fields in a section, in order, each as {name: value}."""
    found = (tuple(record.get(name) for name in names) for record in records if record["section"] == section)
    return [dict(zip(names, values)) for values in dict.fromkeys(found)]


def limits(records, shape, script, precision):
    """{round: steps/s}: the limit of a script at an N x T and a precision."""
    env = by_round(records, section="env", shape=shape, script=script)
    network = {"section": "network", "shape": shape, "script": script, "precision": precision}
    rates = [by_round(records, name, **network) for name in ("inference", "training", "update_epochs")]
    return {r: limit(env[r], *(rate[r] for rate in rates)) for r in env.keys() & rates[0].keys()}


# ---- the summary: a list of rows for each table ----------------------------------------------------------------------
def summarize_parts(records):
    """Environment and network alone, and the limit that follows. Rates in rows/s."""
    rows = []
    for network in distinct(records, "network", "shape", "script", "precision"):
        env = by_round(records, section="env", shape=network["shape"], script=network["script"])
        row = {**network, "env": spread(env)}
        for rate in ("inference", "training"):
            row[rate] = spread(by_round(records, rate, section="network", **network))
        rows.append({**row, "limit": spread(limits(records, **network))})
    return rows


def program_row(records, section, program):
    """The speed of a program, in steps/s and against each peer that does the same work, and its memory."""
    speed = by_round(records, section=section, **program)
    against = {}
    for peer in distinct(records, "peers", "shape", "script", "name"):
        if (peer["shape"], peer["script"]) == (program["shape"], program["script"]):
            against[peer["name"]] = ratios(speed, by_round(records, section="peers", **peer))
    memory = by_round(records, "peak_bytes", section=section, **program)
    return {"name": "ours", **program, "sps": spread(speed), "against": against, "peak_bytes": spread(memory)}


def summarize_programs(records):
    """Peers and scripts end to end; scripts also against their limit."""
    rows = []
    for peer in distinct(records, "peers", "shape", "script", "name"):
        rows.append(program_row(records, "peers", peer))
    for script in distinct(records, "scripts", "shape", "script", "precision", "diagnostics", "flags"):
        speed = by_round(records, section="scripts", **script)
        bound = limits(records, script["shape"], script["script"], script["precision"])
        rows.append({**program_row(records, "scripts", script), "of_limit": ratios(speed, bound)})
    return rows


def summarize_diagnostics(records):
    """The cost of diagnostics: seconds per log point, and the share of a run with the default number of points."""
    rows = []
    for script in distinct(records, "scripts", "shape", "script", "precision"):
        fields = {"section": "scripts", **script, "flags": ""}
        on, off = (by_round(records, diagnostics=value, **fields) for value in (True, False))
        if not on.keys() & off.keys():
            continue
        iterations = by_round(records, "iterations", diagnostics=True, **fields)
        log_steps = by_round(records, "log_steps", diagnostics=True, **fields)
        seconds, shares = {}, {}
        for r in on.keys() & off.keys():
            measured_steps = (iterations[r] - iterations[r] // 2) * batch_size(script["shape"])  # with one log point
            seconds[r] = (1 / on[r] - 1 / off[r]) * measured_steps
            steps_between = max(batch_size(script["shape"]), log_steps[r])
            shares[r] = seconds[r] / (seconds[r] + steps_between / off[r])
        rows.append(
            {
                **script,
                "on_against_off": ratios(on, off),
                "seconds_per_log_point": spread(seconds),
                "log_steps": max(batch_size(script["shape"]), *log_steps.values()),
                "share_by_default": spread(shares),
            }
        )
    return rows


def summarize_busy(records):
    """Each program alone and beside one busy process; ours there also against each peer."""
    rows = []
    for program in distinct(records, "busy", "shape", "script", "name", "precision"):
        alone, busy = (by_round(records, section="busy", neighbours=n, **program) for n in (0, 1))
        against = {}
        if program["name"] == "ours":
            for peer in distinct(records, "busy", "script", "name"):
                theirs = {"section": "busy", "shape": program["shape"], "neighbours": 1, **peer}
                if peer["name"] != "ours" and peer["script"] == program["script"]:
                    against[peer["name"]] = ratios(busy, by_round(records, **theirs))
        kept = ratios(busy, alone)
        rows.append({**program, "alone": spread(alone), "busy": spread(busy), "kept": kept, "against": against})
    return rows


def summarize_processes(records, section, number):
    """Several processes against one. number: the field with their number, "ranks" of torchrun or "runs" at once."""
    rows = []
    for program in distinct(records, section, "shape", "script", "precision", number):
        speed = by_round(records, section=section, **program)
        one = by_round(records, section=section, **{**program, number: 1})
        memory = by_round(records, "peak_bytes", section=section, **program)
        rows.append({**program, "sps": spread(speed), "against_one": ratios(speed, one), "peak_bytes": spread(memory)})
    return rows


def summarize_growth(records):
    """How cost grows with N: the records themselves, since only the first round has them."""
    rows = [record for record in records if record["section"] == "growth" and "error" not in record]
    return [{name: value for name, value in row.items() if name != "section"} for row in rows]


def summarize(records):
    """A dict of lists: parts, end_to_end, diagnostics, pairs, busy, ranks, growth, errors.

    A measurement that only some rounds had no time for is no error.
    """
    measured = {title(record) for record in records if "error" not in record}
    failed = [record for record in records if "error" in record]
    return {
        "parts": summarize_parts(records),
        "end_to_end": summarize_programs(records),
        "diagnostics": summarize_diagnostics(records),
        "busy": summarize_busy(records),
        "pairs": summarize_processes(records, "pairs", "runs"),
        "ranks": summarize_processes(records, "ranks", "ranks"),
        "growth": summarize_growth(records),
        "errors": [
            f"round {record['round']} {title(record)}: {record['error']}"
            for record in failed
            if not (record["error"].startswith(LEFT_OUT) and title(record) in measured)
        ],
    }


# ---- the summary as text ---------------------------------------------------------------------------------------------
def shown(spread, form=",.0f"):
    """A spread as text: its median, and its range in brackets; "-" for None."""
    if not spread:
        return "-"
    text = f"{spread['median']:{form}}"
    return text if spread["n"] == 1 else f"{text} ({spread['min']:{form}} to {spread['max']:{form}})"


def gigabytes(spread):
    return f"{spread['median'] / 1e9:.1f}" if spread else "-"


def variant(row):
    """What distinguishes a program from the others in its table."""
    if row["name"] != "ours":
        return row["name"]
    return " ".join(filter(None, [row["precision"], row["flags"], "" if row["diagnostics"] else "--no-diagnostics"]))


SCRIPT = {"N x T": lambda row: row["shape"], "script": lambda row: row["script"], "": lambda row: row["precision"]}
AGAINST_ONE = {  # columns of several processes
    "times one": lambda row: shown(row["against_one"], ".2f"),
    "peak GB of all": lambda row: gigabytes(row["peak_bytes"]),
}
# {section of the summary: (caption, {column: function from a row to its text})}
TABLES = {
    "parts": (
        "Alone: the environment, the network (inference on N rows, training on a minibatch; rows/s), and the limit "
        "they imply.",
        {
            **SCRIPT,
            "environment": lambda row: shown(row["env"]),
            "inference": lambda row: shown(row["inference"]),
            "training": lambda row: shown(row["training"]),
            "limit": lambda row: shown(row["limit"]),
        },
    ),
    "diagnostics": (
        "What diagnostics cost: here, each time, and as a share of a run with the script's default points.",
        {
            **SCRIPT,
            "SPS on / off": lambda row: shown(row["on_against_off"], ".2f"),
            "seconds each": lambda row: shown(row["seconds_per_log_point"], ".2f"),
            "every": lambda row: f"{row['log_steps']:,} steps",
            "share": lambda row: shown(row["share_by_default"], ".1%"),
        },
    ),
    "busy": (
        "SPS alone and beside one process that keeps a core busy; the last column is ours against each peer there.",
        {
            "N x T": lambda row: row["shape"],
            "script": lambda row: row["script"],
            "": lambda row: row["precision"] or row["name"],
            "alone": lambda row: shown(row["alone"]),
            "beside": lambda row: shown(row["busy"]),
            "kept": lambda row: shown(row["kept"], ".2f"),
            "times": lambda row: ", ".join(f"{peer} {shown(x, '.1f')}" for peer, x in row["against"].items()) or "-",
        },
    ),
    "pairs": (
        "Runs of one thread: one, and the sum of two at once.",
        {
            **SCRIPT,
            "runs": lambda row: str(row["runs"]),
            "SPS of all": lambda row: shown(row["sps"]),
            **AGAINST_ONE,
        },
    ),
    "ranks": (
        "Processes of torchrun on this machine.",
        {
            **SCRIPT,
            "processes": lambda row: str(row["ranks"]),
            "SPS": lambda row: shown(row["sps"]),
            **AGAINST_ONE,
        },
    ),
    "growth": (
        "How cost grows with N, once.",
        {
            **SCRIPT,
            "SPS": lambda row: f"{row['sps']:,.0f}",
            "ms per iteration": lambda row: f"{1e3 * batch_size(row['shape']) / row['sps']:,.0f}",
            "peak GB": lambda row: f"{row['peak_bytes'] / 1e9:.1f}",
        },
    ),
}


def program_columns(peers):
    """The columns of a table of programs that do the same work: {column: function from a row to its text}."""
    return {
        "": variant,
        "SPS": lambda row: shown(row["sps"]),
        "of the limit": lambda row: shown(row.get("of_limit"), ".2f"),
        **{f"times {peer}": lambda row, peer=peer: shown(row["against"][peer], ".2f") for peer in peers},
        "peak GB": lambda row: gigabytes(row["peak_bytes"]),
    }


def table(rows, columns):
    """Lines of Markdown with padded columns, which also read well as plain text."""
    lines = [[*columns], *([text_of(row) for text_of in columns.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join("| " + " | ".join(text.ljust(width) for text, width in zip(line, widths)) + " |" for line in lines)


def render(summary, machine):
    """The tables as Markdown."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    commit = str(machine["commit"])[:10] + (" and changes" if machine["dirty"] else "")
    parts = [
        f"{machine['cpu']}, {machine['cores']} cores, {machine['gpu'] or 'no GPU'}; {versions}; "
        f"commit {commit}, {machine['start']}",
        "Medians over the rounds, and in brackets their range. SPS: environment steps per second.",
    ]
    tables = {
        name: [heading, table(summary[name], columns)] for name, (heading, columns) in TABLES.items() if summary[name]
    }
    parts += tables.pop("parts", [])
    for n_by_t, script in dict.fromkeys((row["shape"], row["script"]) for row in summary["end_to_end"]):
        rows = [row for row in summary["end_to_end"] if (row["shape"], row["script"]) == (n_by_t, script)]
        parts.append(f"{script}, {n_by_t} (environments x steps), end to end.")
        parts.append(table(rows, program_columns(rows[0]["against"])))
    parts += [text for heading_and_table in tables.values() for text in heading_and_table]
    if summary["errors"]:
        parts += ["Not measured:", "\n".join(f"- {line}" for line in summary["errors"])]
    return "\n\n".join(parts) + "\n"
