"""Draws the figures of gradient_correlation.py from its tables."""

import itertools

import numpy as np
from analysis.look import BLUE, COLUMN, GREEN, ORANGE, PAGE, SKY, VERMILLION, plt
from gradient_claims import (
    NAMES,
    bias_squares,
    by_policy,
    by_seed,
    difference,
    relative_bias,
    seed_evidence,
    select,
)
from gradient_measures import BATCH, BIAS_STEPS, focus_iterations

# settings also differ in the line, kinds of pairs in the fill of the markers
SETTING_STYLE = {"4x256": ("black", "-", "o"), "16x64": (VERMILLION, "--", "s")}
ACROSS_COLOR = {"4x256": "0.55", "16x64": ORANGE}
START_COLOR = {
    ("4x256", "staggered"): "black",
    ("4x256", "together"): "0.6",
    ("16x64", "staggered"): VERMILLION,
    ("16x64", "together"): ORANGE,
}
LAMBDA_COLORS, LAMBDA_LINES = (SKY, GREEN, ORANGE, "black"), ("-", "--", "-.", ":")


# ---- parts of a figure -----------------------------------------------------------------------------------------------
def last_step(args):
    """The environment step of the later checkpoint of the two that the post shows."""
    return focus_iterations(args)[-1] * BATCH


def legend_above(fig, ax, columns):
    fig.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=columns)


def lambda_axis(axes, lambdas):
    """Puts the values of lambda, evenly spaced, on the x-axis of each panel."""
    for ax in axes:
        ax.set_xticks(range(len(lambdas)), [f"{lam:g}" for lam in lambdas])
        ax.set_xlabel("$\\lambda$")


def share_below(ax, table, color, line, label):
    """Draws the share of cosines below x from the counts of a histogram over [-1, 1]. Returns x and it, (bins,) each.

    In densities two kinds look alike if their means differ by some hundredths, and peaks hide each other.
    """
    x, share = table["cosine"].to_numpy(), table["count"].cumsum().to_numpy() / max(table["count"].sum(), 1)
    x = x + (x[1] - x[0]) / 2  # upper edges of the bins
    ax.plot(x, share, color=color, linestyle=line, label=label, linewidth=1)
    ax.set_xticks([-1, 0, 1])
    ax.set(xlim=(-1, 1), ylim=(0, 1))
    return x, share


def pair_distributions(ax, table):
    """Draws the share of cosines below x within and across trajectories, and fills the area between."""
    kinds = (("across", ORANGE, "--"), ("within", BLUE, "-"))
    found = [share_below(ax, select(table, kind=kind), color, line, kind) for kind, color, line in kinds]
    ax.fill_between(found[0][0], *(share for _, share in found), color="0.8", linewidth=0)
    if not table["count"].any():  # 64 rows with an episode's end in the middle
        ax.text(0, 0.5, "no pairs", ha="center", transform=ax.get_xaxis_transform())


# ---- figures ---------------------------------------------------------------------------------------------------------
def draw_returns(args, tables):
    fig, ax = plt.subplots(figsize=(COLUMN, 2.1))
    table = tables["returns"].assign(bin=lambda x: x["step"] // (args.steps / 25))
    for setting, group in table.groupby("setting", sort=False):
        curve = group.groupby(["bin", "seed"])["return"].mean().unstack()
        x = (curve.index + 0.5) * args.steps / 25 / 1000
        color, line, _ = SETTING_STYLE[setting]
        ax.plot(x, curve.mean(1), color=color, linestyle=line, label=f"{setting}, {curve.shape[1]} seeds")
        ax.fill_between(x, curve.min(1), curve.max(1), color=color, alpha=0.15, linewidth=0)
    ax.set(xlabel="environment steps (thousands)", ylabel="return of an episode", title="mean and range of the seeds")
    ax.legend(loc="lower right")
    return fig


def draw_densities(args, tables, setting):
    table = select(tables["lag_density"], setting=setting, **{"lambda": args.main_lambda})
    steps, lags = sorted(table["step"].unique()), sorted(table["lag"].unique())
    size = (PAGE, 1.45 * len(steps) + 0.5)
    fig, axes = plt.subplots(len(steps), len(lags), figsize=size, sharex=True, sharey="row", squeeze=False)
    for row, step in zip(axes, steps):
        for ax, lag in zip(row, lags):
            pair_distributions(ax, select(table, step=step, lag=lag))
        row[0].set_ylabel(f"step {step:,}\nshare below")
    for ax, lag in zip(axes[0], lags):
        ax.set_title(f"lag {lag}")
    fig.supxlabel(f"cosine of two centred gradients ({setting})", fontsize=8)
    legend_above(fig, axes[0, 0], 2)
    return fig


def draw_lag_curves(args, tables):
    """Means over all policies, and the middle 80 % of them."""
    fig, axes = plt.subplots(1, 3, figsize=(PAGE, 2.4))
    table = select(tables["lag_curve"], **{"lambda": args.main_lambda})
    labels = {"cosine": "cosine", "absolute": "|cosine|", "covariance": "covariance-based correlation"}
    for ax, (column, label) in zip(axes, labels.items()):
        for (setting, kind), group in table.groupby(["setting", "kind"], sort=False):
            lags = group.groupby("lag")[column]
            color, line, marker = SETTING_STYLE[setting]
            color = color if kind == "within" else ACROSS_COLOR[setting]
            face = color if kind == "within" else "white"
            style = {"color": color, "linestyle": line, "marker": marker, "markerfacecolor": face}
            ax.plot(lags.mean(), label=f"{kind}, {setting}", **style)
            low, high = lags.quantile(0.1), lags.quantile(0.9)
            ax.fill_between(low.index, low, high, color=color, alpha=0.13, linewidth=0)
        ax.set(xscale="log", ylabel=label)
        ax.set_xticks(args.lags, args.lags)
        ax.minorticks_off()
        ax.axhline(0, color="0.8", linewidth=0.6, zorder=0)
    fig.supxlabel("lag (steps); mean and middle 80 % of all policies", fontsize=8)
    legend_above(fig, axes[0], 4)
    return fig


def draw_heat_maps(args, tables, grid):
    """5 x 5 maps of the first seed at the last step. grid: {row label: {column label: fields of the map's records}}."""
    step, seed = last_step(args), args.seeds[0]
    table = select(tables["batch_cosines"], seed=seed, step=step)
    num_columns = len(next(iter(grid.values())))
    size = (1.55 * num_columns + 0.6, 1.5 * len(grid) + 0.2)
    fig, axes = plt.subplots(len(grid), num_columns, figsize=size, squeeze=False, sharex=True, sharey=True)
    for row, (row_label, maps) in zip(axes, grid.items()):
        for ax, fields in zip(row, maps.values()):
            image = draw_heat_map(ax, select(table, **fields))
        row[0].set_ylabel(row_label)
    for ax, label in zip(axes[0], next(iter(grid.values()))):
        ax.set_title(label)
    fig.colorbar(image, ax=axes, shrink=0.8, label=f"cosine of batch means, step {step:,}", aspect=30)
    return fig


def draw_heat_map(ax, table):
    """Draws the cosines of five batches as a matrix with numbers. Returns the image."""
    matrix = np.eye(5)
    for entry in table.to_dict("records"):
        matrix[entry["i"], entry["j"]] = matrix[entry["j"], entry["i"]] = entry["cosine"]
    image = ax.imshow(matrix, vmin=-1, vmax=1, cmap="RdBu_r")
    for i, j in itertools.product(range(5), repeat=2):
        text = f"{matrix[i, j]:.1f}".replace("-0.0", "0.0")
        color = "white" if abs(matrix[i, j]) > 0.6 else "black"
        ax.text(j, i, text, ha="center", va="center", fontsize=5.5, color=color)
    ax.set(xticks=range(5), yticks=range(5))
    ax.grid(False)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    return image


def batch_fields(setting, kind, lam):
    """The fields of batch_cosines for the policies of one setting; fresh batches have the N x T of the setting."""
    fields = {"setting": setting, "kind": kind, "lambda": lam}
    return fields if kind == "minibatches" else {**fields, "shape": setting}


def draw_heat_maps_by_kind(args, tables):
    kinds = {"minibatches of\none rollout": "minibatches", "fresh rollouts": "fresh, together"}
    grid = {
        label: {setting: batch_fields(setting, kind, args.main_lambda) for setting in NAMES}
        for label, kind in kinds.items()
    }
    return draw_heat_maps(args, tables, grid)


def draw_heat_maps_by_lambda(args, tables):
    grid = {
        setting: {f"$\\lambda$ = {lam:g}": batch_fields(setting, "fresh, together", lam) for lam in args.lambdas}
        for setting in NAMES
    }
    return draw_heat_maps(args, tables, grid)


def draw_lambda_far(args, tables):
    step, lag = last_step(args), args.lags[-1]
    fig, axes = plt.subplots(2, len(args.lambdas), figsize=(PAGE, 3.1), sharex=True, squeeze=False)
    for row, setting in zip(axes, NAMES):
        table = select(tables["lag_density"], setting=setting, step=step, lag=lag)
        for ax, lam in zip(row, args.lambdas):
            pair_distributions(ax, select(table, **{"lambda": lam}))
        row[0].set_ylabel(f"{setting}\nshare below")
    for ax, lam in zip(axes[0], args.lambdas):
        ax.set_title(f"$\\lambda$ = {lam:g}")
    legend_above(fig, axes[0, 0], 2)
    fig.supxlabel(f"cosine of two centred gradients, lag {lag}, step {step:,}", fontsize=8)
    return fig


def draw_mean_cosines(args, tables):
    """The cosines at the last step, and their root mean square: mean and middle 80 % of all policies."""
    step, lambdas = last_step(args), sorted(args.lambdas)
    fig, axes = plt.subplots(1, 3, figsize=(PAGE, 2.4))
    for ax, setting in zip(axes, NAMES):
        for lam, color, line in zip(lambdas, itertools.cycle(LAMBDA_COLORS), itertools.cycle(LAMBDA_LINES)):
            table = select(tables["mean_density"], setting=setting, step=step, **{"lambda": lam})
            share_below(ax, table, color, line, f"$\\lambda$ = {lam:g}")
        ax.set(xlabel="cosine to the batch mean", title=f"{setting}, step {step:,}")
    axes[0].set_ylabel("share below")
    legend_above(fig, axes[0], 4)
    for setting, group in tables["mean_cosine"].groupby("setting", sort=False):
        rms = group.groupby("lambda")["rms"]
        color, line, marker = SETTING_STYLE[setting]
        places = range(len(lambdas))
        axes[2].plot(places, rms.mean(), color=color, linestyle=line, marker=marker, label=setting)
        axes[2].fill_between(places, rms.quantile(0.1), rms.quantile(0.9), color=color, alpha=0.13, linewidth=0)
    lambda_axis(axes[2:], lambdas)
    axes[2].set(ylabel="RMS cosine to the mean", title="all steps: mean, middle 80 %", ylim=(0, None))
    axes[2].legend()
    return fig


def draw_variance(args, tables):
    """Term 2 in units of Term 1, and the effective sample size: median and middle 80 % of all policies."""
    fig, axes = plt.subplots(1, 2, figsize=(PAGE, 2.5))
    table = tables["variance"]
    table = table.assign(share=table["covariance"] / table["individual"])
    for k, ((name, start), color) in enumerate(START_COLOR.items()):
        x = np.arange(len(args.lambdas)) + (k - 1.5) * 0.17
        lambdas = select(table, shape=name, start=start).groupby("lambda")
        for ax, column in zip(axes, ("share", "ess")):
            middle, low, high = (lambdas[column].quantile(q) for q in (0.5, 0.1, 0.9))
            style = {"fmt": SETTING_STYLE[name][2], "color": color, "elinewidth": 1}
            ax.errorbar(x, middle, [middle - low, high - middle], label=f"{name}, {start}", **style)
    for ax, null, label in zip(axes, (0, 1), ("covariance term / individual term", "effective sample size / NT")):
        ax.axhline(null, color="0.7", linewidth=0.8, zorder=0)
        ax.set_ylabel(label)
    lambda_axis(axes, sorted(args.lambdas))
    fig.supxlabel("median and middle 80 % of all policies", fontsize=8)
    legend_above(fig, axes[0], 4)
    return fig


def direction(moments):
    """The cosine of E[G] to the true gradient, from their inner product and squared norms (3, …, seeds)."""
    inner, norm2, truth2 = moments.mean(-1)
    return inner / np.sqrt(np.maximum(norm2 * truth2, 1e-12))


def draw_bias(args, tables):
    """Bias, direction of E[G] and variance of one sample with their intervals, over the policies of both settings."""
    fig, axes = plt.subplots(1, 3, figsize=(PAGE, 2.4))
    lambdas, x = sorted(args.lambdas), np.arange(len(args.lambdas))

    def moments(lam, T, *columns):
        return np.stack([by_seed(by_policy(tables["bias"], column, T=T, **{"lambda": lam})) for column in columns])

    for k, (T, color, marker) in enumerate(zip(BIAS_STEPS, LAMBDA_COLORS, "osD^")):
        panels = (
            (relative_bias, [bias_squares(tables["bias"], (lam, T)) for lam in lambdas]),
            (direction, [moments(lam, T, "inner", "norm2", "truth2") for lam in lambdas]),
            (difference, [moments(lam, T, "sample_variance")[0] for lam in lambdas]),
        )
        for ax, (statistic, samples) in zip(axes, panels):
            found = np.array([seed_evidence(statistic, [values]).estimate for values in samples]).T
            found[~np.isfinite(found)] = np.nan  # noise hides the true gradient: not drawn
            bars, style = np.abs(found[1:] - found[0]), {"color": color, "marker": marker}
            ax.errorbar(x + (k - 1.5) * 0.07, found[0], bars, elinewidth=0.8, label=f"T = {T}", **style)
    for ax, label in zip(axes, ("|bias| / |true gradient|", "cosine of E[G] to the truth", "variance of one sample")):
        ax.set_ylabel(label)
    lambda_axis(axes, lambdas)
    axes[0].set_ylim(0, None)
    axes[2].set_yscale("log")
    fig.supxlabel("95 % intervals over the seeds", fontsize=8)
    legend_above(fig, axes[0], 4)
    return fig


def draw_all(args, tables):
    """Returns {name: figure}."""
    return {
        "returns": draw_returns(args, tables),
        **{f"densities_{setting}": draw_densities(args, tables, setting) for setting in NAMES},
        "lag_curves": draw_lag_curves(args, tables),
        "heat_maps": draw_heat_maps_by_kind(args, tables),
        "heat_maps_lambda": draw_heat_maps_by_lambda(args, tables),
        "lambda_lag": draw_lambda_far(args, tables),
        "mean_cosines": draw_mean_cosines(args, tables),
        "variance": draw_variance(args, tables),
        "bias": draw_bias(args, tables),
    }
