"""Does it matter to train on the reset row? Two shapes with and without `--mask-resets`."""

from analysis.comparisons import gain_difference, judge
from analysis.estimates import evidence
from analysis.experiment import ExperimentClaims
from analysis.panels import facets

VARIES = ("num_envs", "num_steps", "mask_resets")
FIXED = {}


def claims(scores):
    found = ExperimentClaims(scores)
    long, wide = ([scores.one(num_envs=n, mask_resets=masked) for masked in (True, False)] for n in (8, 128))
    found.compare("M1", "masking reset rows improves the final score at 8x128", *long, primary=True)
    found.compare("M2", "masking reset rows improves the final score at 128x8", *wide, primary=True)

    def larger(view):
        return judge(evidence(gain_difference, [view.sample(config) for config in wide + long]), "more")

    found.add("M3", "the effect is larger at 128x8 than at 8x128", larger, wide + long, primary=True)
    return found


def draw(scores):
    rows = {
        name: [scores.one(num_envs=n, mask_resets=masked) for n in (8, 128)]
        for name, masked in (("masked", True), ("trained on", False))
    }
    title = "EnvPool's reset rows, masked or trained on, 100,000 steps"
    return facets(scores, rows, ["8×128", "128×8"], "environments × steps (N × T)", title, joined=False)
