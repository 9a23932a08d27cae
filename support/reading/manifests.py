"""What a manifest says of a run: its script and its arguments, beside the defaults of that script.

The defaults are read from the text of the script: nothing here imports one. Python 3.8, for Isaac Gym.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import shlex
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from support import catalog, recipe
from support.arguments import LAUNCHES, PACK, PLACE, value_of


def _command(manifest: Mapping[str, Any]) -> List[str]:
    try:
        return shlex.split(str(manifest.get("command", "")))
    except ValueError:
        return []


def script_of(manifest: Dict[str, Any]) -> Optional[str]:
    """The name of the script that a manifest's command ran, without .py; None if it names none."""
    return next((Path(word).stem for word in _command(manifest) if word.endswith(".py")), None)


def names_rate(words: Sequence[str]) -> bool:
    """Whether a command names a learning rate, rather than taking its script's default."""
    return bool(value_of(words, "--learning-rate", ""))


def begun_with(manifest: Mapping[str, Any], words: Sequence[str]) -> Optional[float]:
    """The learning rate that a run has begun with and keeps: if neither its command nor this one names a rate.

    It may have begun when the default was another. None if the rate is as the command says.
    """
    rate = manifest["arguments"].get("learning_rate")
    return None if names_rate(words) or names_rate(_command(manifest)) else rate


@functools.lru_cache(maxsize=None)
def default_arguments(script: str, env_id: str = "") -> Dict[str, Any]:
    """The defaults of a script's Args, and what recipe.py changes for `env_id`, read without importing anything.

    `script`: the path of the file; {} if it is missing. Whether the actions of a task `gymnasium:MODULE:ID` are real
    numbers is not known here: its defaults are those of other actions.
    """
    values: Dict[str, Any] = {}
    for node in ast.parse(Path(script).read_text()).body if Path(script).exists() else []:
        if isinstance(node, ast.ClassDef) and node.name == "Args":
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and field.value is not None:
                    with contextlib.suppress(ValueError):  # not a literal: exp_name
                        values[field.target.id] = ast.literal_eval(field.value)  # type: ignore[union-attr]
    if Path(script).stem == "ppo_isaacgym":
        values.update(recipe.task_defaults(env_id))
    elif Path(script).stem == "ppo_envpool":
        images = env_id in catalog.IMAGES
        values.update(recipe.of_spaces(env_id in catalog.CONTINUOUS, not images, [True] if images else []))
    return values


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first argument of `now` that had another value `before`, as "--gamma 0.5, not 0.99"; "" if there is none.

    Arguments that only one of them has do not count, nor those of PLACE, PACK and LAUNCHES. A list is as on a
    command line.
    """
    for name in sorted(now.keys() & before.keys() - PLACE - PACK - LAUNCHES):
        old, new = (
            " ".join(map(str, value)) if isinstance(value, (list, tuple)) else value
            for value in (before[name], now[name])
        )
        if old != new and str(old) != str(new):
            return f"--{name.replace('_', '-')} {old}, not {new}"
    return ""
