"""What a run begins from: its arguments, code and machine, as its manifest has them, and the run that it goes on from.

Python 3.8, for Isaac Gym.
"""

from __future__ import annotations

import platform
import shlex
import sys
import time
from pathlib import Path
from typing import Any, Dict, Sequence, Tuple

from support.arguments import NETWORK, PACK, fail, from_start
from support.reading.files import newest_checkpoint, read_bytes, read_json
from support.reading.manifests import script_of
from support.versions import commit_and_versions


def parent_of(args: Any) -> Tuple[bytes, Dict[str, Any]]:
    """The newest checkpoint of --resume-from's run, and what the manifest keeps of that run: where, step and seed.

    Exits 2 with one line if this run cannot use it: the networks have to be equal, and at least one iteration has to be
    left.
    """
    parent = from_start(args.resume_from)
    found = read_json(parent / "manifest.json")
    before, script = found.get("arguments"), Path(str(sys.modules[type(args).__module__].__file__)).stem
    if not isinstance(before, dict) or script_of(found) != script:
        fail(f"--resume-from {args.resume_from}: expected the directory of a run of {script}.py")
    for name in NETWORK:
        if name in before and before[name] != getattr(args, name, before[name]):
            fail(
                f"--resume-from {args.resume_from} has run with --{name.replace('_', '-')} {before[name]}, not "
                f"{getattr(args, name)}: expected the same network"
            )
    newest = newest_checkpoint(parent)
    if not newest:
        fail(f"--resume-from {args.resume_from} has no checkpoint: expected the directory of a run with one")
    path, checkpoint = newest
    step, batch_size = checkpoint["run"]["global_step"], args.num_envs * args.num_steps
    if args.total_timesteps < step + batch_size:
        fail(
            f"--total-timesteps {args.total_timesteps} leaves no iteration after the {step} steps of "
            f"--resume-from {args.resume_from}: expected at least {step + batch_size}"
        )
    return read_bytes(path), {"run": args.resume_from, "global_step": step, "seed": before.get("seed", args.seed)}


def manifest(args: Any, device: Any, words: Sequence[str]) -> Dict[str, Any]:
    import torch

    commit, versions = commit_and_versions()
    command = shlex.join([sys.executable, sys.argv[0], *words])
    return {
        "arguments": {name: value for name, value in vars(args).items() if name not in PACK},
        "command": command.encode(errors="backslashreplace").decode(),  # this repository may be in any folder
        "git": commit,
        "versions": versions,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu {platform.machine()}",
        "threads": torch.get_num_threads(),
        "start": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
