"""What an observation and an action of a task are: gymnasium's spaces as rows of numbers. Python 3.8.

`Envs` is the interface of all environments of ppo_envpool.py. It gets a seed for each environment: N of them, or S
lists of N for S agents. Every array then has the shape (N, ...) or (S, N, ...); N stands for both here. `shape` is (N,)
or (S, N), and the object has these methods:

    reset() -> obs, info
    step(action) -> obs, reward (N,), terminated (N,), truncated (N,), info

action: (N, ...), of what `Actions` says; floats are clipped to the bounds of the action space. obs: (N, width), of what
`Observation` says. The step after an end is an autoreset step: its action is ignored, and its reward belongs to no
episode.

The actions of the agents in `retired` are 0: theirs may not be finite any more.
"""

import sys
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

IMAGE, MISSION = (7, 7, 3), "mission"  # MiniGrid's image, and what is left out of its observation
MAX_WIDTH = 4096  # numbers in an observation without its images; EnvPool's largest is a dog with a ball, 239
MAX_SCALE = 65535.0  # an image whose bounds are wider is taken as it is
MAX_BOUND = 1e6  # an action whose bounds are wider has none, as far as the policy goes
ADVICE = {  # what would help where a space is refused
    "Text": "its words as numbers, or gymnasium.wrappers.FilterObservation, which leaves it out",
    "Sequence": "a Box of a fixed length, with a mask of what is there",
    "Graph": "its nodes and links as Boxes of a fixed size",
}


class Unplayable(ValueError):
    """Why a task cannot be trained here; the text goes on after `--env-id NAME`."""


# ---- observations ----------------------------------------------------------------------------------------------------
class Image(NamedTuple):
    """An entry of three dimensions. In a row its channels come first."""

    channels: int
    height: int
    width: int
    channels_last: bool  # in the environment
    scale: float  # the network sees the image divided by this number

    @property
    def large(self) -> bool:
        """Whether the convolutions of Mnih et al. 2015 fit in it."""
        return min(self.height, self.width) >= 36


class Entry(NamedTuple):
    """A part of an observation that is neither a dict nor a tuple: columns `start` to `stop` of a row."""

    path: Tuple[Any, ...]  # the keys and places that lead to it
    space: Any
    start: int
    stop: int
    image: Optional[Image] = None
    as_it_is: bool = True  # a row has its numbers as the environment has them, in their order

    @property
    def name(self) -> str:
        """As in Python after the observation: ["a"][1]; "" for an observation that is one entry."""
        return "".join(f'["{key}"]' if isinstance(key, str) else f"[{key}]" for key in self.path)

    def of(self, obs: Any) -> Any:
        """This entry of an observation, or of many."""
        for key in self.path:
            obs = obs[key]
        return obs

    def columns(self, parts: Any, number: int) -> Any:
        """What a number of observations have as this entry, as columns of their rows: (number, stop - start).

        Raises ValueError for a value that the space does not have.
        """
        if self.as_it_is:
            return parts.reshape(number, -1)
        import numpy as np
        from gymnasium.spaces import Discrete, MultiDiscrete, OneOf, utils

        space = self.space
        if isinstance(space, OneOf):
            return np.stack([utils.flatten(space, part) for part in parts])
        if isinstance(space, (Discrete, MultiDiscrete)):
            sizes = np.ravel(getattr(space, "nvec", getattr(space, "n", 0)))
            values = (parts - space.start).reshape(number, -1)
            refuse_outside(values, sizes, space, f"an observation{self.name}")
            rows: Any = np.zeros((number, self.stop - self.start), np.uint8)
            rows[np.arange(number)[:, None], values + (np.cumsum(sizes) - sizes)] = 1
            return rows
        return np.moveaxis(parts, -1, 1).reshape(number, -1)  # an image's channels come first


class Observation(NamedTuple):
    """What an observation is as a row of numbers, before any network has seen it.

    A row of a vector begins with all entries but the images, as gymnasium.spaces.utils.flatten gives them, in its
    order; the images follow.
    """

    kind: str  # vector; index (one integer below `values`); grid (MiniGrid's direction, then its image, row by row)
    width: int  # numbers in a row
    dtype: str
    values: int = 0  # how many values an index has
    entries: Tuple[Entry, ...] = ()  # in the order of a row
    vector: int = 0  # numbers before the images
    images: Tuple[Any, ...] = ()  # those of the entries that have an image

    def rows(self, parts: Any, number: int) -> Any:
        """A number of observations as rows (number, width), not of `dtype` yet. parts: what they have as each entry.

        Raises ValueError for a value that a space does not have.
        """
        import numpy as np

        if self.kind == "index":
            space = self.entries[0].space
            values = (parts[0] - space.start).reshape(number, 1)
            refuse_outside(values, self.values, space, "an observation")
            return values
        rows = [entry.columns(part, number) for entry, part in zip(self.entries, parts)]
        return np.concatenate(rows, axis=-1) if len(rows) > 1 else rows[0]

    def row(self, obs: Any) -> Any:
        """One observation, as the environment gives it, as a row (1, width)."""
        import numpy as np
        from gymnasium.spaces import OneOf

        parts = [(entry.of(obs), isinstance(entry.space, OneOf)) for entry in self.entries]
        return self.rows([[x] if is_one_of else np.asarray(x)[None] for x, is_one_of in parts], 1).astype(self.dtype)

    def named(self, rows: Any) -> Dict[str, Any]:
        """The columns of rows (..., width) by the entries' names: obs, or obs["a"] and so on."""
        return {f"obs{entry.name}": rows[..., entry.start : entry.stop] for entry in self.entries}

    @property
    def real(self) -> List[bool]:
        """Which numbers of the vector are real, not one-hot or bits: those that --norm-obs normalises."""
        from gymnasium.spaces import Box, OneOf

        return [
            isinstance(entry.space, (Box, OneOf))
            for entry in self.entries
            for _ in range(0 if entry.image else entry.stop - entry.start)
        ]


def observation_of(space: Any) -> Observation:
    """What the observations of a space are as rows. Raises Unplayable."""
    from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, flatdim

    if isinstance(space, Discrete):
        return Observation("index", 1, "int32", int(space.n), (Entry((), space, 0, 1),), 1)
    if isinstance(space, Dict) and space.keys() - {MISSION} == {"direction", "image"} and space["image"].shape == IMAGE:
        parts = Entry(("direction",), space["direction"], 0, 1), Entry(("image",), space["image"], 1, 148)
        return Observation("grid", 148, "uint8", 0, parts, 148)
    entries: List[Entry] = []
    width = 0
    for path, leaf in sorted(_leaves(space, "observes"), key=lambda part: _image_of(part[1]) is not None):  # stable
        stop = width + flatdim(leaf)
        image = _image_of(leaf)
        as_it_is = isinstance(leaf, (Box, MultiBinary)) and not (image and image.channels_last)
        entries.append(Entry(path, leaf, width, stop, image, as_it_is))
        width = stop
        if not entries[-1].image and width > MAX_WIDTH:
            shape = "" if len(leaf.shape or ()) != 2 else ", or an image, which has three dimensions"
            raise Unplayable(f"observes {_where(path)}{width:,} numbers: expected at most {MAX_WIDTH:,}{shape}")
    if not width:
        raise Unplayable(f"observes {space}, which has no numbers: expected one at least")
    small = all(not isinstance(x.space, Box) or x.space.dtype in ("uint8", "bool") for x in entries)
    images = tuple(entry for entry in entries if entry.image)
    vector = images[0].start if images else width
    return Observation("vector", width, "uint8" if small and images else "float32", 0, tuple(entries), vector, images)


def _leaves(space: Any, verb: str, path: Tuple[Any, ...] = ()) -> Iterator[Tuple[Tuple[Any, ...], Any]]:
    """(path, space) of the parts of a space that are neither dicts nor tuples, in gymnasium's order.

    Raises Unplayable, whose text begins with the verb, at one that cannot be flattened.
    """
    from gymnasium import spaces

    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, part in parts:
            yield from _leaves(part, verb, (*path, key))
        return
    if isinstance(space, spaces.OneOf):
        for _ in _leaves(spaces.Tuple(space.spaces), verb, path):
            pass
    elif not isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        kind = type(space).__name__
        text = f"Text({space.max_length})" if isinstance(space, spaces.Text) else kind
        raise Unplayable(f"{verb} {_where(path)}{text}: expected {ADVICE.get(kind, 'a space of gymnasium')}")
    yield path, space


def _where(path: Tuple[Any, ...]) -> str:
    """Where in nested dicts and tuples an entry is, in words, before what it is."""
    parts = [f'a dict whose "{key}" is ' if isinstance(key, str) else f"a tuple whose entry {key} is " for key in path]
    return "".join(parts)


def _image_of(space: Any) -> Optional[Image]:
    """The Image that an entry is; None if it is none: it has not three dimensions, or less than 3 x 3 places.

    The channels are on the side of the axis that differs from two equal ones, else on that of the shorter one.
    """
    import numpy as np
    from gymnasium.spaces import Box

    if not isinstance(space, Box) or len(space.shape) != 3:
        return None
    first, middle, last = space.shape
    channels_last = first == middle or (middle != last and last <= first)
    channels, height, width = (last, first, middle) if channels_last else (first, middle, last)
    if min(height, width) < 3:
        return None
    largest = float(np.maximum(np.abs(space.low.astype(float)), np.abs(space.high.astype(float))).max())
    return Image(channels, height, width, channels_last, largest if 0 < largest <= MAX_SCALE else 1.0)


def refuse_outside(values: Any, sizes: Any, space: Any, what: str) -> None:
    """Raises ValueError unless each of the values, (N, K) integers without their start, is one of the K sizes."""
    wrong = ((values < 0) | (values >= sizes)).any(-1)
    if wrong.any():
        import numpy as np

        found = (values[wrong][0] + np.ravel(getattr(space, "start", 0))).tolist()
        raise ValueError(f"{what} is {found[0] if len(found) == 1 else found}, which {space} does not have")


# ---- actions ---------------------------------------------------------------------------------------------------------
class Actions(NamedTuple):
    """What an action is as numbers: the outputs of a policy that it is drawn from, and itself."""

    kind: str  # categorical: one integer below sizes[0]; categoricals: K integers; gaussian: sizes[0] real numbers
    sizes: Tuple[int, ...]  # outputs for each categorical variable; for all Gaussian ones
    centers: Tuple[float, ...] = ()  # of each real number: the middle of its bounds, 0 if it has none
    halves: Tuple[float, ...] = ()  # and half of their distance, 1 if it has none

    @property
    def outputs(self) -> int:
        return sum(self.sizes)

    @property
    def continuous(self) -> bool:
        return self.kind == "gaussian"

    @property
    def shape(self) -> Tuple[int, ...]:
        """Of one action: (), (K,) or (A,)."""
        return {"categorical": (), "categoricals": (len(self.sizes),), "gaussian": self.sizes}[self.kind]

    @property
    def parts(self) -> Tuple[int, ...]:
        """The sizes of K categorical variables; () for a single one, and for Gaussian ones."""
        return self.sizes if self.kind == "categoricals" else ()

    @property
    def dtype(self) -> str:
        return "float32" if self.continuous else "int64"


def actions_of(space: Any) -> Actions:
    """What the actions of a space are. Raises Unplayable."""
    import numpy as np
    from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

    size = int(np.prod(space.shape or ()))
    if isinstance(space, Discrete):
        return Actions("categorical", (int(space.n),))
    if isinstance(space, MultiDiscrete) and size:
        return Actions("categoricals", tuple(np.ravel(space.nvec).tolist()))
    if isinstance(space, MultiBinary) and size:
        return Actions("categoricals", (2,) * size)
    if isinstance(space, Box) and space.dtype.kind == "f" and size:
        bounds: Any = np.stack([np.ravel(space.low), np.ravel(space.high)]).astype(float)
        low, high = bounds
        bounded = (low < high) & (low >= -MAX_BOUND) & (high <= MAX_BOUND)
        least, most = np.where(bounded, bounds, 0.0)  # without the infinite ones, whose sum is no number
        centers = np.where(bounded, (least + most) / 2, np.clip(0.0, low, high))
        halves = np.where(bounded, (most - least) / 2, 1.0)
        return Actions("gaussian", (size,), tuple(centers.tolist()), tuple(halves.tolist()))
    advice = (
        "MultiDiscrete for whole numbers" if isinstance(space, Box) else "a wrapper that joins them in one of these"
    )
    expected = f"expected Discrete, MultiDiscrete, MultiBinary or a Box of real numbers; {advice} would help"
    raise Unplayable(f"has the actions {space}: {expected}")


# ---- environments ----------------------------------------------------------------------------------------------------
class Envs:
    """Environments whose observations are rows of numbers and whose actions stay within their bounds.

    spaces: the observation space and the action space of one environment; seeds: (N,) or (S, N).
    """

    def __init__(self, spaces: Tuple[Any, Any], seeds: Any) -> None:
        import numpy as np

        self.observation_space, self.action_space = spaces
        self.shape = np.shape(seeds)
        self.seeds: List[int] = np.ravel(seeds).tolist()
        self.envs: Any = None  # the maker's environments
        self.observation, self.actions = observation_of(spaces[0]), actions_of(spaces[1])
        self.start = getattr(spaces[1], "start", 0)  # of discrete actions
        self.starts_at_0 = not np.any(self.start)
        self.retired: List[int] = []

    def step(self, action: Any) -> Tuple[Any, Any, Any, Any, Dict[str, Any]]:
        if self.retired:
            action[self.retired] = 0
        obs, reward, terminated, truncated, info = self.advance(self.taken(action))
        reward, terminated, truncated = (x.reshape(self.shape) for x in (reward, terminated, truncated))
        return obs, reward, terminated, truncated, info

    def advance(self, action: Any) -> Tuple[Any, Any, Any, Any, Dict[str, Any]]:
        """One step of the maker's environments."""
        raise NotImplementedError

    def reset(self) -> Tuple[Any, Dict[str, Any]]:
        raise NotImplementedError

    def rows(self, parts: List[Any]) -> Any:
        """The observations as (N, width). parts: what the environments have as each of observation.entries."""
        rows = self.observation.rows(parts, len(self.seeds))
        return rows.reshape(*self.shape, self.observation.width)

    def close(self) -> None:
        self.envs.close()

    def taken(self, action: Any) -> Any:
        """The actions as the maker takes them: one after the other, in the space's shape, dtype and range."""
        space = self.action_space
        if self.actions.continuous:
            return action.reshape(-1, *space.shape).clip(space.low, space.high).astype(space.dtype, copy=False)
        if self.actions.kind == "categoricals":
            try:
                refuse_outside(action.reshape(-1, action.shape[-1]), self.actions.sizes, space, "an action")
            except ValueError as error:
                sys.exit(f"error: {error}")
        action = action.reshape(-1, *space.shape)
        return (action if self.starts_at_0 else action + self.start).astype(space.dtype, copy=False)
