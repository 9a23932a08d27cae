"""CleanRL's ppo_rnd_envpool.py with a row per update and a checkpoint: what Montezuma's Revenge is seen beside.

    python results/learning/cleanrl_rnd.py /tmp/cleanrl/cleanrl/ppo_rnd_envpool.py FOLDER [FLAG ...]

The script needs the edits of results/benchmark/README.md. Its loop over updates then writes FOLDER/curve.csv. SIGTERM
ends the run after the update under way, and the same command resumes from FOLDER/checkpoint.pt, which is also written
every ten minutes. As with ours, the environments then begin new episodes. Flags are those of the script.
"""

import csv
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch

ROOM_BYTES = [3, 57]  # of the RAM of Montezuma's Revenge, as in ppo_rnd_envpool.py
COLUMNS = ("step", "rooms", "best_return", "entropy", "forward_loss")
MODULES, MOMENTS = ("agent", "rnd_model", "optimizer"), ("obs_rms", "reward_rms", "discounted_reward")
SECONDS = 600  # between two checkpoints


class Watched:
    """The environments, with the rooms that were entered and the best return of a life."""

    def __init__(self, envs):
        self.envs, self.rooms, self.best, self.returns = envs, set(), 0.0, 0.0

    def __getattr__(self, name):
        return getattr(self.envs, name)

    def step(self, actions):
        result = self.envs.step(actions)
        _, _, terminated, truncated, info = result
        self.rooms.update(map(tuple, info["ram"][:, ROOM_BYTES].tolist()))
        self.returns = self.returns + info["reward"]
        self.best = max(self.best, float(np.max(self.returns)))
        self.returns = np.where(terminated | truncated, 0, self.returns)
        return result


def updates(names, watched, folder):
    """The numbers of the updates that are left: restores `names`, the script's variables, and saves them in between."""
    path, curve = folder / "checkpoint.pt", folder / "curve.csv"
    rows, first = [], 1
    for name in ("agent", "rnd_model"):  # rounds differently, no more, and makes 1.37 times the steps per second
        names[name].to(memory_format=torch.channels_last)
    if path.exists():
        saved = torch.load(path, weights_only=False)
        for name in MODULES:
            names[name].load_state_dict(saved[name])
        for name in MOMENTS:
            vars(names[name]).update(saved[name])
        names["global_step"] = saved["step"]
        rows, first, watched.rooms, watched.best = saved["rows"], saved["next"], saved["rooms"], saved["best"]
        torch.set_rng_state(saved["torch"])
        np.random.set_state(saved["numpy"])
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
    last = time.monotonic()
    for number in range(first, names["num_updates"] + 1):
        yield number
        losses = (names[name].item() for name in ("entropy_loss", "forward_loss"))
        rows.append((names["global_step"], len(watched.rooms), watched.best, *losses))
        if stopped or time.monotonic() - last > SECONDS or number == names["num_updates"]:
            saved = {name: names[name].state_dict() for name in MODULES}
            saved |= {name: vars(names[name]) for name in MOMENTS}
            saved |= {"step": names["global_step"], "rows": rows, "next": number + 1}
            saved |= {"rooms": watched.rooms, "best": watched.best}
            saved |= {"torch": torch.get_rng_state(), "numpy": np.random.get_state()}
            torch.save(saved, path.with_suffix(".tmp"))
            os.replace(path.with_suffix(".tmp"), path)
            with open(curve, "w", newline="") as file:
                csv.writer(file).writerows([COLUMNS, *rows])
            last = time.monotonic()
        if stopped:
            sys.exit(143)


def main(path, folder, *flags):
    source = Path(path).read_text()
    parts = {
        "envs = RecordEpisodeStatistics(envs)": "envs = RecordEpisodeStatistics(WATCH(envs))",
        "for update in range(1, num_updates + 1):": "for update in UPDATES(globals(), envs.env):",
    }
    for old, new in parts.items():
        assert source.count(old) == 1, f"{path}: expected CleanRL's ppo_rnd_envpool.py"
        source = source.replace(old, new)
    folder = Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)  # it writes to runs/
    sys.argv = [path, *flags]
    if (folder / "checkpoint.pt").exists():  # which has the moments of the frames
        sys.argv += ["--num-iterations-obs-norm-init", "0"]
    names = {"__name__": "__main__", "__file__": path, "WATCH": Watched}
    names["UPDATES"] = lambda names, watched: updates(names, watched, folder)
    exec(compile(source, path, "exec"), names)


if __name__ == "__main__":
    main(*sys.argv[1:])
