"""Do N and T that change during training beat the best shape that is kept?"""

from analysis.comparisons import judge_each, over_each
from analysis.estimates import several
from analysis.experiment import ExperimentClaims
from analysis.panels import facets
from analysis.suite import name_of_schedule

VARIES = ("num_envs", "num_steps", "schedule")
FIXED = {"learning_rate": 5e-4, "minibatch_size": 256}


def claims(scores):
    found = ExperimentClaims(scores)
    fixed = scores.where(schedule="")
    named = {name_of_schedule(config["schedule"]): config for config in scores.configs if config["schedule"]}
    for name, schedule in (("C1", "growing N"), ("C2", "growing batch"), ("C3", "N led by noise")):
        configs = [named[schedule], *fixed]

        def beats_each(view, configs=configs):
            return judge_each(several(over_each, [view.sample(config) for config in configs]), "more")

        found.add(name, f"{schedule} beats each of the fixed shapes", beats_each, configs, primary=True)
    found.compare("C4", "growing N beats growing T", named["growing N"], named["growing T"], primary=True)
    return found


def draw(scores):
    configs = sorted(scores.configs, key=lambda config: (config["schedule"] != "", config.shape))
    names = [
        name_of_schedule(config["schedule"]) if config["schedule"] else "{}×{}".format(*config.shape)
        for config in configs
    ]
    title = "N and T that are kept or change in training, learning rate 5e-4, 100,000 steps"
    return facets(scores, {"": configs}, names, "", title, joined=False)
