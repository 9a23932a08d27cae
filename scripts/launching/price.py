"""What jobs will cost: their steps, and how long these take here."""

import statistics
from collections import Counter
from pathlib import Path

from launching.jobs import owner
from launching.pool import pack_key
from support import catalog
from support.reading import read_json, state

UNITS = (("days", 86400), ("hours", 3600), ("minutes", 60), ("seconds", 1))


def duration(seconds):
    """Seconds in the unit that fits: "242 days", "1.5 hours", "19 seconds"; "less than a second"."""
    for unit, size in UNITS:
        if seconds >= (1.5 if unit != "seconds" else 1) * size:
            number = seconds / size
            return f"{number:,.0f} {unit}" if number >= 10 or unit == "seconds" else f"{number:.1f} {unit}"
    return "less than a second"


def estimate(jobs, sps, at_a_time, threads, together):
    """Yields lines: the number of runs, their steps, and their time with `at_a_time` processes of `threads` threads.

    sps: steps/s of one process if the user gave it, else None. together: the most runs in one process. A step of an
    evaluation episode (--eval-episodes) counts as much as a step of training.
    """
    left = [job for job in jobs if state(owner(job)) != "done"]
    yield f"{len(jobs):,} runs, {sum(job.steps for job in jobs):,} steps; {len(jobs) - len(left):,} runs are finished"
    for script in sorted({job.script for job in left}):
        steps = sum(job.steps for job in left if job.script == script)
        episodes = sum(job.eval_episodes for job in left if job.script == script)
        known = catalog.script(script)
        packs = Counter(pack_key(job) for job in left if job.script == script)
        sizes = [min(together, packs[key]) if key else 1 for key in packs.elements()]  # agents in each run's process
        finished = [read_json(owner(job) / "done.json").get("sps") for job in jobs if job.script == script]
        measured = [rate for rate in finished if rate]
        if sps:
            rate, source = sps, "given"
        elif measured:
            rate, source = statistics.median(measured) * statistics.mean(sizes), "the median of the finished runs"
        else:
            rate = known.speed * min(threads, known.cores) / known.cores * statistics.mean(map(known.gain, sizes))
            source = "results/benchmark, by cores; --sps or SPS=… sets yours"
        if rate:
            time = duration((steps + episodes * known.episode_steps) / rate / at_a_time)
            speed = (
                f"{at_a_time} process{'es' * (at_a_time > 1)} at a time, at {rate:,.0f} steps/s each ({source}): {time}"
            )
        else:
            speed = "speed not measured yet: --sps or SPS=… gives the time"
        evaluation = f" and {episodes:,} evaluation episodes of some {known.episode_steps:,} steps" if episodes else ""
        yield f"{Path(script).name}: {steps:,} steps{evaluation}, {speed}"
