"""Do more environments undo the harm of more epochs? 4 and 8 epochs at 8x128, with N x 2 and with T x 2."""

from analysis.claims import Claims
from analysis.panels import facets

VARIES = ("num_envs", "num_steps", "update_epochs")
FIXED = {}
SHAPES = BASE, MORE_ENVS, MORE_STEPS = (8, 128), (16, 128), (8, 256)


def of(scores, shape, epochs):
    return scores.one(num_envs=shape[0], num_steps=shape[1], update_epochs=epochs)


def claims(scores):
    found = Claims(scores)
    base, more_envs, more_steps = (of(scores, shape, 8) for shape in SHAPES)
    fewer_epochs = of(scores, BASE, 4)
    found.compare("at 8x128 8 epochs are worse than 4", base, fewer_epochs, name="R1", side="less", primary=True)
    found.compare("at 8 epochs 16x128 is better than 8x128", more_envs, base, name="R2", primary=True)
    found.compare("at 8 epochs 16x128 is better than 8x256", more_envs, more_steps, name="R3", primary=True)
    return found


def draw(scores):
    rows = {"{}×{}".format(*shape): [of(scores, shape, epochs) for epochs in (4, 8)] for shape in SHAPES}
    return facets(scores, rows, ["4", "8"], "epochs", "More epochs, learning rate 2.5e-4, 100,000 steps", joined=False)
