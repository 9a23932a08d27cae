"""Do P1's six diagnostics move with N at equal rows and equal gradient steps? The runs of shape."""

from analysis import probes
from analysis.claims import Claims

VARIES = ("num_envs", "num_steps", "learning_rate")
FIXED = {}
ALSO = ("shape",)


def rates(scores):
    return {rate: scores.where(learning_rate=rate) for rate in sorted({c["learning_rate"] for c in scores.configs})}


def claims(scores):
    found = Claims(scores)
    names = [f"D{i}" for i in range(1, 13)]
    for i, (rate, configs) in enumerate(rates(scores).items()):
        probes.add(found, names[6 * i : 6 * i + 6], configs, f" at a rate of {rate:g}", primary=i == 0)
    return found


def draw(scores):
    lines = {f"learning rate {rate:g}": configs for rate, configs in rates(scores).items()}
    return probes.draw(scores, lines, "P1's diagnostics at one batch of 1024 steps: equal rows and gradient steps")
