"""Run directories with known curves, for the tests of what reads and draws runs."""

import json

import figures
import numpy as np
import pandas as pd
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from support import catalog

GAMES = ["Breakout", "Qbert", "Pong"]
POINTS = 8


def write_curves(run_dir, rows):
    """The curves.csv of a run; rows: [(step, {tag: value}), …]."""
    tags = dict.fromkeys(tag for _, scalars in rows for tag in scalars)
    lines = [["step", "wall_time", *tags]]
    for step, scalars in rows:
        cells = [f"{np.float32(scalars[tag]):.9g}" if tag in scalars else "" for tag in tags]
        lines.append([str(step), f"{step:.6f}", *cells])
    (run_dir / "curves.csv").write_text("".join(",".join(line) + "\n" for line in lines))


def write_events(path, rows):
    """The same as an event file, where a run has no curves.csv."""
    with open(path, "wb") as file:
        writer = RecordWriter(file)
        for step, scalars in rows:
            summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()])
            writer.write(Event(wall_time=step, step=step, summary=summary).SerializeToString())


def write_run(
    path,
    score,
    steps=1024,
    script="ppo_atari_envpool",
    game="Breakout",
    seed=1,
    scalars=None,
    points=POINTS,
    last=None,
    done=True,
    fewest=None,
    final=None,
    parent=None,
    **args,
):
    """A run with a human-normalised score that rises to `score` at the last point.

    scalars: {tag: value at every point}. fewest: charts/min_episodes at each point. final: the mean of 20 evaluation
    episodes.
    parent: (directory, last step) of the run that it goes on from.
    """
    path.mkdir(parents=True)
    suffix = "-v5" if game in catalog.human_table() else ""
    arguments = {
        "env_id": game + suffix,
        "seed": seed,
        "num_envs": 8,
        "num_steps": 16,
        "total_timesteps": steps,
        **args,
    }
    content, first = {"arguments": arguments, "command": f"python {script}.py --x"}, 0
    if parent:
        arguments["resume_from"], first = str(parent[0]), parent[1]
        content["parent"] = {"run": str(parent[0]), "global_step": first}
    (path / "manifest.json").write_text(json.dumps(content))
    zero, one = catalog.human_table().get(game, (0, 1))
    batch = arguments["num_envs"] * arguments["num_steps"]
    steps = steps // batch * batch or steps  # whole iterations
    rows = []
    for i in range(1, (last or points) + 1):
        values = {
            "charts/episodic_return": zero + (one - zero) * score * (i / points) ** 0.5,
            "charts/SPS": 100.0,
            "charts/gradient_steps": steps * i / points / batch * 16,
        }
        if fewest:
            values["charts/min_episodes"] = float(fewest[i - 1])
        rows.append((first + (steps - first) * i // points, {**values, **(scalars or {})}))
    write_curves(path, rows)
    if done:
        content = {"global_step": steps, "episodic_return": 0.0}
        if final is not None:
            content.update(final_return=zero + (one - zero) * final, final_episodes=20)
        (path / "done.json").write_text(json.dumps(content))
    return path


def plant(root, n_by_ts, score, seeds=10, games=GAMES, noise=0.05, scalars=lambda n_by_t, noise: {}, **args):
    """Runs of every game, N x T and seed with score((N, T)) and noise of a fixed seed; directory names say nothing."""
    rng, n = np.random.RandomState(0), 0
    for game in games:
        for N, T in n_by_ts:
            for seed in range(1, seeds + 1):
                n += 1
                write_run(
                    root / f"x{n}",
                    score((N, T)) + rng.normal(0, noise),
                    game=game,
                    seed=seed,
                    num_envs=N,
                    num_steps=T,
                    scalars=scalars((N, T), rng.normal(0, 1)),
                    **args,
                )
    return root


def plant_pair(root, **wide):
    """fixed_budget with ten seeds: curves say that 32x4 is worse than 8x16. wide: more for the runs of 32x4."""
    for seed in range(1, 11):
        common = dict(seed=seed, fewest=[0, 1, 2, 3, 4, 5, 6, 7])
        write_run(root / f"base{seed}", 1.0 + seed / 1000, **{**common, "final": wide.get("final") and 1.0})
        write_run(root / f"wide{seed}", 0.5 + seed / 1000, num_envs=32, num_steps=4, **{**common, **wide})


def draw(sweep, runs, out, *extra, images=False, reps=200):
    """The claims, by text, of the command in this process."""
    words = [sweep, "--runs", str(runs), "--out", str(out), "--reps", str(reps), *map(str, extra)]
    words += [] if images else ["--no-images"]
    figures.main(figures.parse_args(words))
    table = pd.read_csv(out / f"{sweep}_claims.csv")
    return table.set_index("claim").fillna({"no_ci": "", "verdict": "", "holm_verdict": "", "needs": "", "remark": ""})


def claim(table, text):
    found = [index for index in table.index if text in index]
    assert len(found) == 1, (text, list(table.index))
    return table.loc[found[0]]
