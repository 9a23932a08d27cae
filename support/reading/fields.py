"""What the JSON files of runs and sweeps hold, field by field: checked once, where they are read. Python 3.8."""

from __future__ import annotations

import re
import sys
from typing import Any, Callable, Dict, Mapping, NamedTuple, Tuple

from support.arguments import SCALARS

ANY = "*"  # in a table of fields: those that it does not name
LARGEST = 2**63 - 1  # of an integer, in NumPy, in pandas and among the arguments of the scripts


class Kind(NamedTuple):
    """What a value has to be, in words and as a test of it."""

    words: str
    holds: Callable[[Any], bool]


def _or_null(kind: Kind) -> Kind:
    return Kind(f"{kind.words} or null", lambda value: value is None or kind.holds(value))


def _whole(low: int, high: int) -> Kind:
    return Kind(f"a whole number of {low:,} to {high:,}", lambda value: type(value) is int and low <= value <= high)


def _list_of(kind: Kind, words: str) -> Kind:
    return Kind(words, lambda value: isinstance(value, list) and all(map(kind.holds, value)))


def _is_number(value: Any) -> bool:
    largest = {int: LARGEST, float: sys.float_info.max}.get(type(value), -1)
    return largest > 0 and abs(value) <= largest  # NaN fails this


def _is_text(value: Any) -> bool:
    """Whether it is text that a file can hold: half of a pair of \\u cannot be written."""
    return isinstance(value, str) and not re.search("[\ud800-\udfff]", value)


NUMBER, TEXT = Kind("a finite number of 64 bits", _is_number), Kind("text", _is_text)
COUNT, STEPS, SEED = _whole(1, 2**31 - 1), _whole(0, LARGEST), _whole(0, 2**31 - 1)
TASK = Kind("the name of a task", lambda value: isinstance(value, str) and bool(re.fullmatch(r"[\w.:/-]+", value)))
VALUE = Kind(
    "a finite number of 64 bits, text, true or false", lambda x: isinstance(x, bool) or _is_number(x) or _is_text(x)
)
VALUES = _list_of(_or_null(VALUE), "a list")
ARGUMENT = Kind(f"{VALUE.words}, null or a list", lambda x: x is None or VALUE.holds(x) or VALUES.holds(x))
PAIR = Kind("two finite numbers of 64 bits", lambda x: isinstance(x, list) and len(x) == 2 and all(map(_is_number, x)))

ARGUMENTS = {  # of a run, and of the base of a sweep: programs compute with those that have a line of their own
    "env_id": _or_null(TASK),
    **dict.fromkeys(("num_envs", "num_steps", "update_epochs"), COUNT),
    **dict.fromkeys(("num_minibatches", "minibatch_size"), _or_null(COUNT)),
    "total_timesteps": _whole(1, LARGEST),
    "seed": SEED,
    **dict.fromkeys(("schedule", "resume_from", "exp_name"), _or_null(TEXT)),
    **dict.fromkeys(SCALARS, NUMBER),
    ANY: ARGUMENT,
}
FIELDS: Dict[str, Mapping[str, Any]] = {  # of an object within an object: a table of its own
    "manifest.json": {
        "arguments": ARGUMENTS,
        "command": TEXT,
        "git": {"commit": _or_null(TEXT), "dirty": Kind("true or false", lambda value: isinstance(value, bool))},
        "versions": {ANY: _or_null(TEXT)},
        "device": TEXT,
        "start": TEXT,
        "parent": {"run": TEXT, "global_step": STEPS, "seed": SEED},
    },
    "done.json": {
        "global_step": STEPS,
        **dict.fromkeys(("wall_seconds", "sps", "episodic_return", "final_return"), _or_null(NUMBER)),
        "final_return_ci": _or_null(PAIR),
        "final_episodes": STEPS,
    },
    "failed.json": {"tensor": TEXT, **dict.fromkeys(("global_step", "step", "environment"), STEPS)},
    "sweep.json": {"base": {ANY: ARGUMENTS}, "varies": _list_of(TEXT, "a list of texts")},
}
REQUIRED = {"manifest.json": ("arguments",), "parent": ("global_step",)}  # other fields may be missing


def check(content: Any, file: str) -> None:
    """ValueError, which names the file and the field, if the content of a file of this name is not as in FIELDS."""
    _check_object(content, FIELDS[file], file, ())


def _check_object(content: Any, fields: Mapping[str, Any], file: str, path: Tuple[str, ...]) -> None:
    name = f"{file}: {'.'.join(path)}" if path else file
    if not isinstance(content, dict):
        raise ValueError(f"{name} is {ascii(content):.60}, expected an object")
    for key in REQUIRED.get(path[-1] if path else file, ()):
        if key not in content:
            raise ValueError(f"{name} has no {key}")
    for key, value in content.items():
        if not (_is_text(key) and key.isprintable()):
            raise ValueError(f"{name} has a field {ascii(key):.60}, expected printable text")
        kind = fields.get(key, fields.get(ANY))
        if isinstance(kind, Mapping):
            _check_object(value, kind, file, (*path, key))
        elif kind and not kind.holds(value):
            raise ValueError(f"{file}: {'.'.join((*path, key))} is {ascii(value):.60}, expected {kind.words}")
