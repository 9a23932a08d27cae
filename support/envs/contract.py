"""What a task has to return from reset and step, and what is wrong with what it has returned, in words. Python 3.8."""

import contextlib
import inspect
from typing import Any, Callable, Sequence

from support.envs.spaces import Entry, refuse_outside

RESET = ("observation", "info")
STEP = ("observation", "reward", "terminated", "truncated", "info")
GYMNASIUMS = {"TimeLimit", "OrderEnforcing", "PassiveEnvChecker"}  # what gymnasium.make wraps around a task


class Watch:
    """Keeps what an environment of gymnasium.make has returned last, before gymnasium's own wrappers look at it.

    Attributes: `task`, the environment without these wrappers; `method`, the one that has returned, "" while it runs
    and after it has raised an error; `returned`.
    """

    def __init__(self, env: Any, entries: Sequence[Entry]) -> None:
        """entries: those of the declared observations."""
        self.entries = entries
        while type(env).__name__ in GYMNASIUMS:
            env = env.env
        self.task, self.method, self.returned = env, "", None
        for method in ("reset", "step"):
            setattr(env, method, self._kept(method, getattr(env, method)))

    def _kept(self, method: str, function: Callable) -> Callable:
        def kept(*args: Any, **kwargs: Any) -> Any:
            self.method = ""
            self.returned = function(*args, **kwargs)
            self.method = method
            return self.returned

        return kept

    def objection(self) -> str:
        """What is wrong with the last values, what is expected, and where the task has its method; "" if nothing is."""
        if not self.method:
            return ""
        found = objection(self.method, self.returned, self.entries)
        return found and found + self._place()

    def _place(self) -> str:
        """Where the task, or what it wraps, has the method, in brackets; "" if no Python file has it."""
        for env in (self.task, self.task.unwrapped):
            code = getattr(inspect.unwrap(getattr(type(env), self.method)), "__code__", None)
            if code and "site-packages" not in code.co_filename:
                return f" ({self.method}, {code.co_filename} line {code.co_firstlineno})"
        return ""


def objection(method: str, returned: Any, entries: Sequence[Entry]) -> str:
    """What is wrong with what a task has returned from `reset` or `step`, and what is expected; "" if nothing is."""
    names = STEP if method == "step" else RESET
    expected = f"expected ({', '.join(names)})"
    if not isinstance(returned, (tuple, list)):
        return f"{method} returns {described(returned)}: {expected}"
    if len(returned) != len(names):
        return f"{method} returns {len(returned)} value{'s' * (len(returned) != 1)}: {expected}"
    parts = dict(zip(names, returned))
    if not isinstance(parts["info"], dict):
        return f"{method} returns {described(parts['info'])} as info: expected a dict"
    if method == "step" and getattr(numbers(parts["reward"]), "shape", None) != ():
        return f"step returns {described(parts['reward'])} as reward: expected a number"
    for name in STEP[2:4] if method == "step" else ():
        value = numbers(parts[name])
        if value is None or value.size != 1 or value not in (0, 1):
            return f"step returns {described(parts[name])} as {name}: expected True or False"
    return next(filter(None, (of_observation(parts["observation"], entry) for entry in entries)), "")


def of_observation(obs: Any, entry: Entry) -> str:
    """What is wrong with an entry of an observation; "" if nothing is."""
    import numpy as np
    from gymnasium.spaces import Box, MultiBinary, OneOf

    part, space = obs, entry.space
    for i, key in enumerate(entry.path):
        where = f"an observation{entry._replace(path=entry.path[:i]).name}"
        try:
            part = part[key]
        except (KeyError, IndexError, TypeError):
            lacks = f"has no {key!r}" if isinstance(part, dict) else f"is {described(part)}"
            return f"{where} {lacks}: expected one with [{key!r}]"
    where = f"an observation{entry.name}"
    if isinstance(space, OneOf):
        return "" if space.contains(part) else f"{where} is {described(part)}: expected one of {space}"
    array = numbers(part)
    if array is None:
        return f"{where} is {described(part)}: expected numbers of {space}"
    if array.shape != space.shape:
        return f"{where} has the shape {array.shape}, and {space.shape} was declared"
    if space.dtype.kind != "f" and array.dtype != space.dtype:
        with np.errstate(invalid="ignore"):
            lost = array[array.astype(space.dtype) != array]
        if lost.size:
            return f"{where} has {lost.flat[0]} of {array.dtype}: expected {space.dtype}, as was declared"
    if not isinstance(space, (Box, MultiBinary)):
        sizes = np.ravel(getattr(space, "nvec", getattr(space, "n", 0)))
        try:
            refuse_outside((array - space.start).reshape(1, -1), sizes, space, where)
        except ValueError as error:
            return str(error)
    return ""


def numbers(value: Any) -> Any:
    """A value as an array of real numbers, bits or booleans; None if it is something else."""
    import numpy as np

    with contextlib.suppress(Exception):  # whatever the value's own conversion raises
        array = np.asarray(value)
        if array.dtype.kind in "biuf":
            return array
    return None


def described(value: Any) -> str:
    """A value in few words."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape:
        return f"an array of shape {shape}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    if value is None or isinstance(value, (bool, int, float, str)) or shape == ():
        text = repr(value)
        return text if len(text) <= 40 else f"{text[:40]}..."
    return f"a {type(value).__name__}"
