"""Does a change of the outer step move PPO off its plateau? Children of runs whose com is kept or changed."""

from pathlib import Path

from analysis.experiment import ExperimentClaims
from analysis.panels import facets

VARIES = ("com_before", "prox_com")
FIXED = {"learning_rate": 1e-3, "anneal_lr": False}
LOW, HIGH = 0.5, 16.0


def arguments(run, runs):
    """Those of a child, with its parent's com; None for a parent."""
    if not run.arguments["resume_from"]:
        return None
    name = Path(run.arguments["resume_from"]).name
    (parent,) = (other for other in runs if Path(other.name).name == name)
    return {**run.arguments, "com_before": parent.arguments["prox_com"]}


def claims(scores):
    found = ExperimentClaims(scores)
    child = {(a, b): scores.one(com_before=a, prox_com=b) for a in (LOW, HIGH) for b in (LOW, HIGH)}
    text = f"raising the com from {LOW:g} to {HIGH:g} ends above staying at {LOW:g}"
    found.compare("W1", text, child[LOW, HIGH], child[LOW, LOW], primary=True)
    text = f"lowering the com from {HIGH:g} to {LOW:g} ends below staying at {HIGH:g}"
    found.compare("W2", text, child[HIGH, LOW], child[HIGH, HIGH], side="less", primary=True)
    return found


def draw(scores):
    rows = {
        f"com {before:g} before": [scores.one(com_before=before, prox_com=after) for after in (LOW, HIGH)]
        for before in (LOW, HIGH)
    }
    title = "The age of the proximal policy, changed at 50,000 of 100,000 steps"
    return facets(scores, rows, [f"{LOW:g}", f"{HIGH:g}"], "com after the switch", title, joined=False)
