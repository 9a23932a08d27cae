"""What a sweep states of itself: its base, and the arguments that it varies. Kept beside its runs, in sweep.json.

The functions `base_is` and `varies` of sweeps/lib.sh write such lines in front of a sweep's commands:

    # base ppo_atari_envpool.py --num-envs 8 --num-steps 128
    # varies num_envs num_steps

launch.py records them in the directories that the sweep's runs go to, and the programs that draw read them there. A
sweep with runs of several scripts has a base for each.
"""

import json
import shlex
import sys
from pathlib import Path

from support import reading

NAME = "sweep.json"


def parse(lines, parse_flags):
    """{"base": {script: {argument: value}}, "varies": [argument, …]} of the lines; {} if none is a statement.

    parse_flags: the function that reads the flags of a command, words to {argument: value}.
    """
    stated = {}
    for line in lines:
        words = line.split()
        if words[:2] == ["#", "base"] and len(words) > 2:
            words = shlex.split(line)
            stated.setdefault("base", {})[Path(words[2]).stem] = parse_flags(words[3:])
        elif words[:2] == ["#", "varies"]:
            stated.setdefault("varies", []).extend(words[2:])
    return stated


def record(folder, stated):
    """Writes what is stated into a sweep's directory; bases of other scripts that are there already are kept."""
    before = read(folder)
    merged = {
        "base": {**before["base"], **stated.get("base", {})},
        "varies": sorted({*before["varies"], *stated.get("varies", [])}),
    }
    if merged != before:
        folder.mkdir(parents=True, exist_ok=True)
        reading.write_atomically(folder / NAME, json.dumps(merged, indent=1).encode())


def read(folder):
    """What `record` has written there: {"base": {…}, "varies": […]}, both empty if there is nothing readable."""
    try:
        content = reading.read_object(folder / NAME)
    except (OSError, ValueError) as error:
        print(f"note: {reading.shown(folder)} states no base: {error}", file=sys.stderr)
        content = {}
    return {"base": content.get("base", {}), "varies": content.get("varies", [])}
