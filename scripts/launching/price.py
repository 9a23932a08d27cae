"""What jobs will cost: their steps, and the hours that these take."""

import statistics
from collections import Counter
from pathlib import Path

from launching.jobs import owner
from launching.pool import pack_key
from support import catalog
from support.reading import read_json, state


def estimate(jobs, sps, at_a_time, threads, together):
    """Yields lines: the number of runs, their steps, and the hours with `at_a_time` processes of `threads` threads.

    `sps`: steps/s of one process if the user has given it, else None. together: the runs of a process, at most. A step
    of a final game (--eval-episodes) counts like a step of training.
    """
    left = [job for job in jobs if state(owner(job)) != "done"]
    yield f"{len(jobs):,} runs, {sum(job.steps for job in jobs):,} steps; {len(jobs) - len(left):,} runs are finished"
    for script in sorted({job.script for job in left}):
        steps = sum(job.steps for job in left if job.script == script)
        games = sum(job.eval_episodes for job in left if job.script == script)
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
            hours = (steps + games * known.game_steps) / rate / at_a_time / 3600
            hours = f"{hours:,.1f}" if hours >= 0.1 else f"{hours:.2g}"
            speed = f"{at_a_time} processes at a time, at {rate:,.0f} steps/s each ({source}): {hours} hours"
        else:
            speed = "speed not measured yet: --sps or SPS=… gives the hours"
        final_games = f" and {games:,} final games of some {known.game_steps:,} steps" if games else ""
        yield f"{Path(script).name}: {steps:,} steps{final_games}, {speed}"
