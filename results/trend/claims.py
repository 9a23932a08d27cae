"""Does more N go on to help at a fixed T? N = 4 to 1024 at T = 16 with four minibatches or minibatches of 64 rows."""

from analysis import probes
from analysis.experiment import ExperimentClaims
from analysis.panels import facets

VARIES = ("num_envs", "minibatch_size")
FIXED = {"num_steps": 16, "total_timesteps": 163_840}
FOUR, ROWS = RULES = ("four minibatches", "minibatches of 64 rows")
NUMBERS = (4, 16, 64, 256, 1024)


def of(scores, rule, num_envs):
    return scores.one(num_envs=num_envs, minibatch_size=64 if rule == ROWS else 4 * num_envs)


def claims(scores):
    found = ExperimentClaims(scores)

    def beats(name, rule, text, first, second, side="more"):
        pair = [of(scores, rule, n) for n in (first, second)]
        found.compare(name, f"with {rule} {text}", *pair, side=side, primary=True)

    beats("T1", ROWS, "N = 1024 beats N = 4", 1024, 4)
    beats("T2", FOUR, "N = 1024 is below N = 256", 1024, 256, "less")
    beats("T3", FOUR, "N = 64 beats N = 4", 64, 4)
    configs = [of(scores, ROWS, n) for n in (64, 256, 1024)]
    probes.add(found, ["T4", "T5", "T6", "T7", "T8", "T9"], configs, " from 64 to 1024, minibatches of 64 rows")
    return found


def draw(scores):
    rows = {rule.replace(" of", "\nof"): [of(scores, rule, n) for n in NUMBERS] for rule in RULES}
    title = "PPO at T = 16, learning rate 2.5e-4, 163,840 steps"
    return facets(scores, rows, [f"{n}" for n in NUMBERS], "environments (N)", title)
