"""Are the map's numbers those of other seeds? Ten of its settings, drawn by chance and repeated."""

from analysis.claims import ESTIMATE, Claims
from analysis.comparisons import Tested, difference
from analysis.estimates import evidence

VARIES = ("num_envs", "num_steps", "learning_rate")
FIXED = {"minibatch_size": 256}
ALSO = ("map",)
FIRST_FRESH = 101  # seed


def claims(scores):
    found = Claims(scores)
    for task in scores.tasks:
        for config in scores.configs:
            view = scores.in_task(task)
            if not view.has(config) or view.sample(config, "seed")[0].max() < FIRST_FRESH:
                continue

            def repeated(view, config=config):
                values, seeds = view.sample(config)[0], view.sample(config, "seed")[0]
                samples = [[values[seeds >= FIRST_FRESH]], [values[seeds < FIRST_FRESH]]]
                return Tested(evidence(difference, samples).estimate)

            text = f"{config['num_envs']}x{config['num_steps']} at {config['learning_rate']:g}"
            quantity = "score, fresh seeds minus the map's"
            found.add(text, repeated, [config], name="repeat", tasks=[task], family=ESTIMATE, quantity=quantity)
    return found
