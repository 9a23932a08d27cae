"""What an observation and an action of a task are: gymnasium's spaces as rows of numbers. Python 3.8.

`Envs` is the interface of all environments of ppo_envpool.py. It gets a seed for each environment: N of them, or S
lists of N for S agents. Every array then has the shape (N, ...) or (S, N, ...); N stands for both here. `shape` is (N,)
or (S, N), and the object has these methods:

    reset() -> obs, info
    step(action) -> obs, reward (N,), terminated (N,), truncated (N,), info

action: (N,) integers, or (N, A) floats, which are clipped to the bounds of the action space. obs: (N, width), of what
`Observation` says. The step after an end is an autoreset step: its action is ignored, and its reward belongs to no
episode.

The actions, observations and rewards of the agents in `retired` are 0: theirs may not be finite any more.
"""

from typing import Any, Dict, List, NamedTuple, Tuple

IMAGE, MISSION = (7, 7, 3), "mission"  # MiniGrid's image, and what is left out of its observation
MAX_WIDTH = 4096  # numbers in an observation; the largest here is DeepMind Control's dog with a ball, 239


class Unplayable(ValueError):
    """Why a task cannot be trained here; the text goes on after `--env-id NAME`."""


class Observation(NamedTuple):
    """What an observation is as a row of numbers, before any network has seen it."""

    kind: str  # vector; index (one integer below `values`); grid (MiniGrid's direction, then its image, row by row)
    width: int  # numbers in a row
    dtype: str
    values: int = 0  # how many values an index has


def observation_of(space: Any) -> Observation:
    """What the observations of a space are as rows. Raises Unplayable."""
    from gymnasium.spaces import Box, Discrete

    if isinstance(space, Discrete):
        return Observation("index", 1, "int32", int(space.n))
    parts = getattr(space, "spaces", {"": space})
    if isinstance(parts, dict) and parts.keys() - {MISSION} == {"direction", "image"} and parts["image"].shape == IMAGE:
        return Observation("grid", 1 + 7 * 7 * 3, "uint8")
    boxes = list(parts.values()) if isinstance(parts, dict) else [space]
    if not all(isinstance(box, Box) for box in boxes):
        raise Unplayable(f"observes {space}: expected a vector, an integer, MiniGrid's grid or a dict of vectors")
    if any(len(box.shape) > 2 for box in boxes):
        raise Unplayable("observes pixels, and no script here plays it: expected a vector or MiniGrid's grid")
    width = sum(_size(box) for box in boxes)
    if width > MAX_WIDTH:
        raise Unplayable(f"observes {width:,} numbers: expected at most {MAX_WIDTH:,}")
    return Observation("vector", width, "float32")


def _size(box: Any) -> int:
    size = 1
    for length in box.shape:
        size *= int(length)
    return size


def num_actions_of(space: Any) -> Tuple[int, bool]:
    """The number of actions, or of an action's dimensions, and whether it is the latter. Raises Unplayable."""
    from gymnasium.spaces import Box, Discrete

    if isinstance(space, Discrete) and space.start == 0:
        return int(space.n), False
    if isinstance(space, Box) and len(space.shape) == 1 and space.dtype.kind == "f":
        return space.shape[0], True
    raise Unplayable(f"has the actions {space}: expected Discrete, or a vector of real numbers")


class Envs:
    """Environments whose observations are rows of numbers and whose actions stay within their bounds.

    spaces: the observation space and the action space of one environment; seeds: (N,) or (S, N).
    """

    def __init__(self, spaces: Tuple[Any, Any], seeds: Any) -> None:
        import numpy as np

        self.observation_space, self.action_space = space, actions = spaces
        self.shape = np.shape(seeds)
        self.seeds: List[int] = np.ravel(seeds).tolist()
        self.envs: Any = None  # the maker's environments
        self.keys = [key for key in sorted(getattr(space, "spaces", ())) if key != MISSION]  # a dict's keys
        self.start = int(getattr(space, "start", 0))  # the lowest index
        self.bounds = (actions.low, actions.high) if num_actions_of(actions)[1] else None
        self.retired: List[int] = []

    def step(self, action: Any) -> Tuple[Any, Any, Any, Any, Dict[str, Any]]:
        if self.retired:
            action[self.retired] = 0
        obs, reward, terminated, truncated, info = self.advance(self.clipped(action))
        reward, terminated, truncated = (x.reshape(self.shape) for x in (reward, terminated, truncated))
        if self.retired:
            obs[self.retired] = reward[self.retired] = 0
        return obs, reward, terminated, truncated, info

    def advance(self, action: Any) -> Tuple[Any, Any, Any, Any, Dict[str, Any]]:
        """One step of the maker's environments."""
        raise NotImplementedError

    def reset(self) -> Tuple[Any, Dict[str, Any]]:
        raise NotImplementedError

    def rows(self, parts: List[Any]) -> Any:
        """The observations (N, ...), or the parts of a dict in the order of their sorted names, as (N, width)."""
        import numpy as np

        rows = [part.reshape(*self.shape, -1) for part in parts]
        if len(rows) > 1:
            return np.concatenate(rows, axis=-1)
        return rows[0] - self.start if self.start else rows[0]

    def close(self) -> None:
        self.envs.close()

    def clipped(self, action: Any) -> Any:
        """The actions as the maker takes them: one after the other, and within their bounds."""
        return action.reshape(-1, action.shape[-1]).clip(*self.bounds) if self.bounds else action.ravel()
