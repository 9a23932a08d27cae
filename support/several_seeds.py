"""The runs of several seeds in one directory: which of them is the best, by its training. Python 3.8."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from support.reading.files import find_runs, read_files, shown
from support.reading.manifests import difference, script_of


class Member(NamedTuple):
    """A run among those of several seeds: its directory, the name of that in theirs, its state and its done.json."""

    path: Path
    name: str
    seed: int
    state: str
    done: Dict[str, Any]

    @property
    def score(self) -> Optional[float]:
        """The mean return of its last 100 training episodes; None if it is not finished, or no episode has ended."""
        return self.done.get("episodic_return")

    @property
    def why_not(self) -> str:
        """Why it has no score."""
        return {"done": "no episode has ended", "stale": "not finished"}.get(self.state, self.state)


def members(folder: Path) -> List[Member]:
    """The runs below a directory, by seed; [] if there are none.

    ValueError, which says what is wrong, if one cannot be read, or if they differ in more than their seeds.
    """
    found: List[Member] = []
    first: Tuple[Optional[str], Dict[str, Any]] = None, {}
    for path in find_runs(folder):
        name = shown(path.relative_to(folder))
        try:
            files = read_files(path)
        except (OSError, ValueError) as error:
            raise ValueError(f"{name} cannot be read ({error})") from None
        script, arguments = script_of(files.manifest), dict(files.manifest["arguments"])
        member = Member(path, name, arguments.pop("seed", 1), files.state, files.done)
        if not found:
            first = script, arguments
        if script != first[0]:
            raise ValueError(f"{name} is a run of {script}.py, {found[0].name} of {first[0]}.py")
        task, of_first = ({"env_id": x.get("env_id")} for x in (arguments, first[1]))
        differs = difference(task, of_first) or difference(arguments, first[1])
        if differs:
            raise ValueError(f"{name} has run with {differs} as {found[0].name}")
        same = [other.name for other in found if other.seed == member.seed]
        if same:
            raise ValueError(f"{same[0]} and {name} have the same seed, {member.seed}")
        found.append(member)
    return sorted(found, key=lambda member: member.seed)


def best(folder: Path, runs: List[Member]) -> Tuple[Member, str]:
    """The finished run with the highest mean return of its last 100 training episodes, and what to say of the choice.

    Of equal ones that of the lowest seed is taken. ValueError, which names each run's state, if none can be compared.
    """
    compared = [run for run in runs if run.score is not None]
    others = ", ".join(f"{run.name} ({run.why_not})" for run in runs if run.score is None)
    if not compared:
        raise ValueError(f"none of its runs is finished and has ended an episode: {others}")
    chosen = max(compared, key=lambda run: run.score)  # type: ignore[arg-type,return-value] # the first of equal ones
    says = f"{shown(folder)}: {chosen.name} is the best of {len(compared)}, "
    says += f"the mean of its last 100 training returns is {chosen.score:.6g}"
    equal = [run.name for run in compared if run.score == chosen.score and run is not chosen]
    says += f"; so is that of {', '.join(equal)}, and the lowest seed is taken" if equal else ""
    return chosen, says + (f"; left out: {others}" if others else "")


def table(runs: List[Member]) -> List[str]:
    """The lines of a table: seed, state, return of the last 100 training episodes, and of the evaluation episodes."""
    lines = [f"{'seed':>10}  {'state':12}  {'last 100 training returns':>25}  final_return"]
    for run in runs:
        score = "-" if run.score is None else f"{run.score:.6g}"
        final, interval = run.done.get("final_return"), run.done.get("final_return_ci")
        text = "-" if final is None else f"{final:.6g}"
        text += " [{:.6g}, {:.6g}]".format(*interval) if interval else ""
        state = "done" if run.state == "done" else run.why_not
        lines.append(f"{run.seed:10}  {state:12}  {score:>25}  {text}")
    return lines
