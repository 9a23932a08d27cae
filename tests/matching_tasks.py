"""Tasks for the tests: a target is shown in some kind of space, and an action that matches it pays 1.

`Observe-NAME-v0` shows one of four targets in the space NAME, and acts with Discrete(4). `Act-NAME-v0` shows the action
that pays as a vector, and acts in the space NAME: each part of an action that matches pays its share of 1. Both check
that an action comes in the dtype, the shape and the range of its space.
"""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, OneOf, Tuple

EPISODE = 8  # steps


def square(shape, dtype, value, k, axis):
    """An image with a bright quarter: its k-th. axis: of the channels."""
    image = np.zeros(shape, dtype)
    places = np.moveaxis(image, axis, -1)  # a view
    half = [side // 2 for side in places.shape[:2]]
    rows, columns = (slice(i * side, (i + 1) * side) for i, side in zip(divmod(k, 2), half))
    places[rows, columns] = value
    return image


def image(shape, dtype, high, axis=-1):
    return Box(0, high, shape, dtype), lambda k, rng: square(shape, dtype, high, k, axis)


def vector(rng, *shape):
    return rng.normal(size=shape).astype(np.float32).clip(-1, 1)


NOISE = Box(-1, 1, (2,))
PICTURE = Box(0, 255, (10, 10, 3), np.uint8)
OBSERVATIONS = {  # the space, and what a target 0 to 3 looks like in it
    "Tuple": (Tuple([NOISE, Discrete(4)]), lambda k, rng: (vector(rng, 2), k)),
    "NestedDict": (
        Dict(a=Dict(c=NOISE, b=Discrete(2, start=5)), d=Tuple([MultiBinary(1), Discrete(3)])),
        lambda k, rng: {
            "a": {"c": vector(rng, 2), "b": 5 + k % 2},
            "d": (np.array([k // 2], np.int8), int(rng.integers(3))),
        },
    ),
    "MixedDict": (
        Dict(n=Discrete(3), m=MultiDiscrete([2, 2]), b=MultiBinary(2), x=NOISE, i=PICTURE),
        lambda k, rng: {
            "n": int(rng.integers(3)),
            "m": np.array([k // 2, rng.integers(2)]),
            "b": rng.integers(0, 2, 2).astype(np.int8),
            "x": vector(rng, 2),
            "i": square((10, 10, 3), np.uint8, 255, k % 2, -1),
        },
    ),
    "Discrete": (Discrete(4, start=-2), lambda k, rng: k - 2),
    "MultiDiscrete": (MultiDiscrete([2, 3, 2]), lambda k, rng: np.array([k % 2, rng.integers(3), k // 2])),
    "MultiDiscrete2D": (
        MultiDiscrete([[2, 3], [2, 5]], start=[[1, 0], [-4, 7]]),
        lambda k, rng: np.array([[1 + k % 2, rng.integers(3)], [k // 2 - 4, 7 + rng.integers(5)]]),
    ),
    "MultiBinary": (MultiBinary(3), lambda k, rng: np.array([k % 2, rng.integers(2), k // 2], np.int8)),
    "MultiBinary2D": (
        MultiBinary((2, 2)),
        lambda k, rng: np.array([[k % 2, rng.integers(2)], [rng.integers(2), k // 2]], np.int8),
    ),
    "Scalar": (Box(0, 3, ()), lambda k, rng: np.array(k, np.float32)),
    "Matrix": (Box(-3, 3, (2, 3)), lambda k, rng: np.array([[k % 2, 0, 1], [0, k // 2, 0]], np.float32)),
    "Integers": (Box(0, 3, (2,), np.int64), lambda k, rng: np.array([k, rng.integers(4)])),
    "Bytes": (Box(0, 255, (4,), np.uint8), lambda k, rng: 255 * (np.arange(4) == k).astype(np.uint8)),
    "Float64": (Box(-9, 9, (3,), np.float64), lambda k, rng: np.array([k % 2, k // 2, rng.normal()]).clip(-9, 9)),
    "OneOf": (
        OneOf([Discrete(4), Box(0, 1, (3,))]),
        lambda k, rng: (
            (np.int64(0), np.int64(k))
            if rng.random() < 0.5
            else (np.int64(1), np.array([k % 2, k // 2, rng.random()], np.float32))
        ),
    ),
    "SmallBytes": image((10, 10, 3), np.uint8, 255),
    "SmallBits": image((10, 10, 4), np.bool_, 1),
    "SmallFloats": image((4, 12, 10), np.float32, 1, 0),
    "LargeBytes": image((84, 84, 3), np.uint8, 255),
    "LargeBytesFirst": image((4, 84, 84), np.uint8, 255, 0),
    "LargeFloats": image((3, 64, 48), np.float32, 1, 0),
    "ImageBesideVector": (
        Dict(image=Box(0, 255, (1, 40, 40), np.uint8), speed=NOISE),
        lambda k, rng: {
            "image": square((1, 40, 40), np.uint8, 255, k % 2, 0),
            "speed": np.array([k // 2 - 0.5, rng.normal()], np.float32).clip(-1, 1),
        },
    ),
}
ACTIONS = {
    "Discrete": Discrete(4, start=3),
    "Scalar": Box(-1, 1, ()),
    "Matrix": Box(-1, 1, (2, 3)),
    "Float64": Box(-0.1, 0.3, (2,), np.float64),
    "Float16": Box(-1, 1, (2,), np.float16),
    "MultiDiscrete": MultiDiscrete([3, 2, 4], start=[2, 0, -1]),
    "MultiDiscrete2D": MultiDiscrete([[3, 2], [2, 2]], start=[[1, 0], [0, 5]], dtype=np.int32),
    "MultiDiscreteColumn": MultiDiscrete([[3], [3]]),
    "MultiBinary": MultiBinary(3),
    "MultiBinary2D": MultiBinary((2, 2)),
}


class Match(gymnasium.Env):
    """observation, action: names of OBSERVATIONS and ACTIONS; one of them is given."""

    def __init__(self, observation=None, action=None):
        self.observation_space, self.show = OBSERVATIONS.get(observation, (None, None))
        self.action_space = ACTIONS[action] if action else Discrete(4)
        if action:
            size = gymnasium.spaces.flatdim(self.action_space)
            self.observation_space = Box(-9, 9, (size,))

    def look(self):
        if self.show:
            self.target = int(self.np_random.integers(4))
            return self.show(self.target, self.np_random)
        space = self.action_space
        if isinstance(space, Box):  # not at the bounds, where each action beyond them would match
            self.target = np.asarray(self.np_random.uniform(0.8 * space.low, 0.8 * space.high), space.dtype)
            return (self.target / space.high).astype(np.float32).reshape(-1)
        space._np_random = self.np_random
        self.target = space.sample()
        return gymnasium.spaces.flatten(space, self.target).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = EPISODE
        return self.look(), {}

    def step(self, action):
        space, action = self.action_space, np.asarray(action)
        inside = space.contains(action[()] if isinstance(space, Discrete) else action)
        assert inside and action.dtype == space.dtype and action.shape == space.shape, (action, space)
        matches = action == self.target
        if isinstance(space, Box):
            matches = np.abs(action - self.target) < 0.25 * (space.high - space.low)
        self.left -= 1
        return self.look(), float(np.mean(matches)), self.left == 0, False, {}


for name in OBSERVATIONS:
    gymnasium.register(f"Observe-{name}-v0", Match, kwargs={"observation": name})
for name in ACTIONS:
    gymnasium.register(f"Act-{name}-v0", Match, kwargs={"action": name})
