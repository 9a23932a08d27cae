"""What a manifest says of the code that made a run. Python 3.8, for Isaac Gym."""

from __future__ import annotations

import functools
import platform
import subprocess
from pathlib import Path
from typing import Any, Dict, Tuple

ROOT = Path(__file__).resolve().parent.parent


@functools.lru_cache(maxsize=None)  # a pack's manifests need it once
def commit_and_versions() -> Tuple[Dict[str, Any], Dict[str, str]]:
    """The commit of this repository, and the versions of Python and of all packages."""
    import email
    import importlib.metadata

    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    commit, dirty, _ = subprocess.run(git, capture_output=True).stdout.decode().strip().partition("-dirty")
    versions = {}
    for package in importlib.metadata.distributions():
        text = package.read_text("METADATA") or package.read_text("PKG-INFO") or ""
        headers = email.message_from_string(text.partition("\n\n")[0])  # `package.metadata` parses the long text too
        versions[headers["Name"]] = headers["Version"]
    return {"commit": commit or None, "dirty": bool(dirty)}, {"python": platform.python_version(), **versions}
