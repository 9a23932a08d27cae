"""Draws this folder's curves, from the runs below a directory or from curves.csv.

    python results/bf16/compare.py [RUNS]

At each log point: the mean return over the seeds of each precision with its 95 % interval (Student's t), and that of
the difference of the two means (Welch's t).
"""

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy import stats
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

HERE = Path(__file__).parent


def read(runs):
    """A row for each point of each run: precision, seed, step, episodic_return (the mean of the last 100 games)."""
    rows = []
    for path in sorted(Path(runs).glob("*/done.json")):
        args = json.loads((path.parent / "manifest.json").read_text())["arguments"]
        events = EventAccumulator(str(path.parent), size_guidance={"scalars": 0})
        events.Reload()
        rows += [
            {
                "precision": "bf16" if args["bf16"] else "fp32",
                "seed": args["seed"],
                "step": event.step,
                "episodic_return": event.value,
            }
            for event in events.Scalars("charts/episodic_return")
        ]
    return pd.DataFrame(rows)


if len(sys.argv) > 1:
    read(sys.argv[1]).to_csv(HERE / "curves.csv", index=False, float_format="%.6g")
table = pd.read_csv(HERE / "curves.csv").pivot(index="step", columns=["precision", "seed"], values="episodic_return")
figure, axes = plt.subplots(figsize=(4.5, 3), layout="constrained")
means = {}
for precision, colour in (("fp32", "black"), ("bf16", "#0072B2")):
    values = table[precision].to_numpy()
    means[precision] = mean = values.mean(1)
    half = stats.t.ppf(0.975, values.shape[1] - 1) * values.std(1, ddof=1) / np.sqrt(values.shape[1])
    axes.plot(table.index, mean, color=colour, label=f"{precision}, {values.shape[1]} seeds")
    axes.fill_between(table.index, mean - half, mean + half, color=colour, alpha=0.2, lw=0)
    means[precision + "_half"] = half
axes.set(xlabel="steps", ylabel="return of the last 100 games")
axes.legend(frameon=False)
figure.savefig(HERE / "curves.png", dpi=200)
print("   step    fp32            bf16            bf16 - fp32")
for i, step in enumerate(table.index):
    welch = stats.ttest_ind(table["bf16"].iloc[i], table["fp32"].iloc[i], equal_var=False).confidence_interval()
    print(
        f"{step:7,} {means['fp32'][i]:7.1f} ± {means['fp32_half'][i]:5.1f} {means['bf16'][i]:7.1f} ± "
        f"{means['bf16_half'][i]:5.1f}   [{welch.low:.1f}, {welch.high:.1f}]"
    )
