"""Which shape of 1024 steps? Seven shapes at three learning rates, of which schedule and advise have runs of 5e-4."""

from analysis.comparisons import at_best, judge, judge_best, judge_default
from analysis.estimates import resampled
from analysis.experiment import REPS, SMALLEST_EFFECT, ExperimentClaims
from analysis.panels import facets

VARIES = ("num_envs", "num_steps", "learning_rate")
FIXED = {}
ALSO = ("schedule", "advise")
RATES = (2.5e-4, 5e-4, 1e-3)
LONG, MIDDLE, WIDE = 8, 32, 128  # N; T is 1024 / N
DOORKEY = "MiniGrid-DoorKey-5x5"


def name_of(num_envs):
    return f"{num_envs}x{1024 // num_envs}"


def grid(view, num_envs):
    """{learning rate: the sample of the shape}, of the rates at which it has runs in each game."""
    return {
        config["learning_rate"]: view.sample(config) for config in view.where(num_envs=num_envs) if view.has(config)
    }


def own_rates(first, second):
    return lambda view: judge_best(*((name_of(n), grid(view, n)) for n in (first, second)))


def best_at_default(view):
    shapes = sorted({config["num_envs"] for config in view.configs})
    return judge_default({name_of(n): grid(view, n) for n in shapes}, RATES[0], SMALLEST_EFFECT)


def more_on_doorkey(view):
    """The gain of the middle over the wide shape on DoorKey, the last game, minus that on the others: an estimate."""
    middle, wide = grid(view, MIDDLE), grid(view, WIDE)
    best = at_best([len(middle), len(wide)])

    def gain(samples):
        best_middle, best_wide = best(*samples)
        return best_middle - best_wide

    def more(*samples):
        return gain([sample[-1:] for sample in samples]) - gain([sample[:-1] for sample in samples])

    tested = judge(resampled(more, [*middle.values(), *wide.values()], REPS), "more")
    return tested.undecided("no test of a difference of maxima is right: an estimate")


def claims(scores):
    found = ExperimentClaims(scores)

    def beats(name, first, second, games=None):
        text = f"{name_of(first)} beats {name_of(second)}, each at its own best rate"
        configs = [*scores.where(num_envs=first), *scores.where(num_envs=second)]
        found.add(
            name, text, own_rates(first, second), configs, primary=games is None, games=games, by_game=name != "S1"
        )

    beats("S1", WIDE, LONG)
    for name, game in (("S3", "CartPole-v1"), ("S4", "Acrobot-v1"), ("S5", DOORKEY)):
        beats(name, WIDE, LONG, [game])
    text = f"the best shape at a rate of {RATES[0]:g} is about the best of all, each at its own best rate"
    everywhere = [config for config in scores.configs if scores.has(config)]
    found.add("S2", text, best_at_default, everywhere, by_game=False)
    beats("S6", MIDDLE, LONG)
    beats("S7", MIDDLE, WIDE)
    text = "32x32 beats 128x8 by more on DoorKey than on the others, each at its own best rate"
    pair = [*scores.where(num_envs=MIDDLE), *scores.where(num_envs=WIDE)]
    found.add("S8", text, more_on_doorkey, pair, by_game=False)
    for name, rate in zip(("E1", "E3", "E2"), RATES, strict=True):
        pair = [scores.one(num_envs=n, learning_rate=rate) for n in (WIDE, LONG)]
        found.compare(name, f"128x8 beats 8x128 at a rate of {rate:g} (added after the runs)", *pair)
    return found


def draw(scores):
    shapes = sorted({config["num_envs"] for config in scores.configs})
    rows = {
        f"rate {rate:g}": [next(iter(scores.where(num_envs=n, learning_rate=rate)), None) for n in shapes]
        for rate in RATES
    }
    title = "PPO at one batch of 1024 steps, 100,000 steps a run: every run, and the mean with its 95 % interval"
    return facets(scores, rows, [name_of(n).replace("x", "×") for n in shapes], "environments × steps (N × T)", title)
