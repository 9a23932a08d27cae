"""The three ways of outer_loop at 128 environments, each at its own best learning rate."""

from analysis.comparisons import judge_best, judge_each, over_each, unless_at_the_edge
from analysis.estimates import mean, several
from analysis.experiment import SMALLEST_EFFECT, ExperimentClaims
from analysis.panels import facets
from analysis.suite import short

VARIES = ("num_envs", "minibatch_size", "learning_rate")
FIXED = {"num_steps": 32}
BASE, MORE, BIGGER = (8, 64), (128, 64), (128, 1024)  # environments, rows of a minibatch
NAMES = {BASE: "base, N = 8", MORE: "more minibatches", BIGGER: "bigger minibatches"}


def rates(scores, way):
    """{learning rate: configuration} of a way."""
    configs = scores.where(num_envs=way[0], minibatch_size=way[1])
    return {config["learning_rate"]: config for config in configs}


def grid(view, way):
    return {rate: view.sample(config) for rate, config in rates(view, way).items()}


def own_rates(first, second, side="more", margin=0.0):
    return lambda view: judge_best(
        *((NAMES[way], grid(view, way)) for way in (first, second)), side=side, margin=margin
    )


def moved_rate(way, factor):
    """The test that `factor` times the base's best rate is about the best for a way.

    The way at that rate is compared with the way at each of its other rates. The base's runs choose the rate, and other
    runs judge it.
    """

    def test(view):
        base, moved = grid(view, BASE), grid(view, way)
        rate = max(base, key=lambda rate: float(mean(base[rate])))
        samples = [moved.pop(factor * rate), *moved.values()]
        tested = judge_each(several(over_each, samples), "not less", SMALLEST_EFFECT)
        return unless_at_the_edge(tested, {NAMES[BASE]: base, NAMES[way]: grid(view, way)})

    return test


def claims(scores):
    found = ExperimentClaims(scores)

    def add(name, text, test, *ways):
        configs = [config for way in ways for config in rates(scores, way).values()]
        found.add(name, f"at N = 128 {text}", test, configs, primary=True, by_game=name < "U3")

    text = "more minibatches beat bigger ones, each at its own best rate"
    add("U1", text, own_rates(MORE, BIGGER), MORE, BIGGER)
    text = "more minibatches are not below the base by more than 0.05, each at its own best rate"
    add("U2", text, own_rates(MORE, BASE, "not less", SMALLEST_EFFECT), MORE, BASE)
    text = "four times the best rate of the base is about the best for bigger minibatches"
    add("U3", text, moved_rate(BIGGER, 4), BASE, BIGGER)
    add("U4", "the best rate of the base is about the best for more minibatches", moved_rate(MORE, 1), BASE, MORE)
    return found


def draw(scores):
    every = sorted({config["learning_rate"] for config in scores.configs})
    rows = {name: [rates(scores, way).get(rate) for rate in every] for way, name in NAMES.items()}
    title = "Each way at several learning rates, T = 32, 100,000 steps"
    return facets(scores, rows, [short(rate) for rate in every], "learning rate", title)
