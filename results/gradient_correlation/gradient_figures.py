"""Draws the figures of gradient_correlation.py from its tables."""

import itertools

import numpy as np
from analysis.estimates import evidence
from analysis.look import BLUE, COLUMN, GREEN, ORANGE, PAGE, SKY, VERMILLION, plt
from gradient_measures import BATCH, BIAS_STEPS, SETTINGS, focus_iterations

NAMES = tuple(f"{N}x{T}" for N, T in SETTINGS)
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
def select(table, **fields):
    """The rows of a table that have all of these fields. lam: its column lambda."""
    fields = {"lambda" if name == "lam" else name: value for name, value in fields.items()}
    return table[np.logical_and.reduce([table[name] == value for name, value in fields.items()])]


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


def draw_pairs(rows, columns, table, title):
    """A panel for each row and column: the share of cosines below x within and across trajectories.

    rows, columns: {label: the fields that select them in the table}.
    """
    size = (PAGE, 1.45 * len(rows) + 0.5)
    fig, axes = plt.subplots(len(rows), len(columns), figsize=size, sharex=True, sharey=True, squeeze=False)
    for row, (label, of_row) in zip(axes, rows.items()):
        for ax, of_column in zip(row, columns.values()):
            panel = select(table, **of_row, **of_column)
            kinds = (("across", ORANGE, "--"), ("within", BLUE, "-"))
            found = [share_below(ax, select(panel, kind=kind), color, line, kind) for kind, color, line in kinds]
            ax.fill_between(found[0][0], *(share for _, share in found), color="0.8", linewidth=0)
            if not panel["count"].any():  # 64 rows with an episode's end in the middle
                ax.text(0, 0.5, "no pairs", ha="center", transform=ax.get_xaxis_transform())
        row[0].set_ylabel(f"{label}\nshare below")
    for ax, label in zip(axes[0], columns):
        ax.set_title(label)
    fig.supxlabel(f"cosine of two centred gradients, {title}", fontsize=8)
    legend_above(fig, axes[0, 0], 2)
    return fig


def draw_heat_maps(args, table, rows, columns):
    """5 x 5 maps of the cosines of batch means: the first seed at the last step. rows, columns: as in draw_pairs."""
    step = last_step(args)
    table = select(table, seed=args.seeds[0], step=step)
    size = (1.55 * len(columns) + 0.6, 1.5 * len(rows) + 0.2)
    fig, axes = plt.subplots(len(rows), len(columns), figsize=size, squeeze=False, sharex=True, sharey=True)
    for row, (label, of_row) in zip(axes, rows.items()):
        for ax, of_column in zip(row, columns.values()):
            found = select(table, **of_row, **of_column)
            # fresh batches have the N x T of the setting
            image = draw_heat_map(ax, found[found["shape"].isna() | (found["shape"] == found["setting"])])
        row[0].set_ylabel(label)
    for ax, label in zip(axes[0], columns):
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


def draw_lag_curves(args, tables):
    """Means over all policies, and the middle 80 % of them."""
    fig, axes = plt.subplots(1, 3, figsize=(PAGE, 2.4))
    table = select(tables["lag_curve"], lam=args.main_lambda)
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


def draw_mean_cosines(args, tables):
    """The cosines at the last step, and their root mean square: mean and middle 80 % of all policies."""
    step, lambdas = last_step(args), sorted(args.lambdas)
    fig, axes = plt.subplots(1, 3, figsize=(PAGE, 2.4))
    for ax, setting in zip(axes, NAMES):
        for lam, color, line in zip(lambdas, itertools.cycle(LAMBDA_COLORS), itertools.cycle(LAMBDA_LINES)):
            table = select(tables["mean_density"], setting=setting, step=step, lam=lam)
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


def relative_bias(bias2, truth2):
    """|bias| / |true gradient|, (...,), from unbiased estimates of both squares, (..., seeds): means first.

    Infinite where noise hides the true gradient: its estimated square is not positive.
    """
    bias2, truth2 = bias2.mean(-1), truth2.mean(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(truth2 > 0, np.sqrt(np.maximum(bias2, 0) / truth2), np.inf)


def direction(inner, norm2, truth2):
    """The cosine of E[G] to the true gradient, (...,), from their inner product and squared norms, (..., seeds)."""
    return inner.mean(-1) / np.sqrt(np.maximum(norm2.mean(-1) * truth2.mean(-1), 1e-12))


BIAS_PANELS = {  # label: a statistic of columns of the table bias, each the means over the policies of a seed
    "|bias| / |true gradient|": (relative_bias, ["bias2", "truth2"]),
    "cosine of E[G] to the truth": (direction, ["inner", "norm2", "truth2"]),
    "variance of one sample": (lambda variances: variances.mean(-1), ["sample_variance"]),
}


def draw_bias(args, tables):
    """Bias, direction of E[G] and variance of one sample with 95 % intervals, over the policies of both settings."""
    fig, axes = plt.subplots(1, 3, figsize=(PAGE, 2.4))
    lambdas, x = sorted(args.lambdas), np.arange(len(args.lambdas))
    for k, (T, color, marker) in enumerate(zip(BIAS_STEPS, LAMBDA_COLORS, "osD^")):
        for ax, (label, (statistic, columns)) in zip(axes, BIAS_PANELS.items()):
            found = []
            for lam in lambdas:
                means = select(tables["bias"], T=T, lam=lam).groupby("seed")[columns].mean()
                of_seeds = evidence(lambda part, of=statistic: of(*part[0]), [[means.to_numpy().T]])
                found.append(of_seeds.estimate)
            found = np.array(found).T
            found[~np.isfinite(found)] = np.nan  # noise hides the true gradient: not drawn
            bars, style = np.abs(found[1:] - found[0]), {"color": color, "marker": marker}
            ax.errorbar(x + (k - 1.5) * 0.07, found[0], bars, elinewidth=0.8, label=f"T = {T}", **style)
            ax.set_ylabel(label)
    lambda_axis(axes, lambdas)
    axes[0].set_ylim(0, None)
    axes[2].set_yscale("log")
    fig.supxlabel("95 % intervals over the seeds", fontsize=8)
    legend_above(fig, axes[0], 4)
    return fig


def draw_all(args, tables):
    """Returns {name: figure}."""
    pairs, cosines = tables["lag_density"], tables["batch_cosines"]
    figures = {name: draw(args, tables) for name, draw in FIGURES.items()}
    steps = {f"step {i * BATCH:,}": {"step": i * BATCH} for i in focus_iterations(args)}
    lags = {f"lag {lag}": {"lag": lag, "lam": args.main_lambda} for lag in args.lags}
    for setting in NAMES:
        figures[f"densities_{setting}"] = draw_pairs(steps, lags, select(pairs, setting=setting), setting)
    settings = {setting: {"setting": setting} for setting in NAMES}
    by_lambda = {f"$\\lambda$ = {lam:g}": {"lam": lam} for lam in args.lambdas}
    step, lag = last_step(args), args.lags[-1]
    far = select(pairs, step=step, lag=lag)
    figures["lambda_lag"] = draw_pairs(settings, by_lambda, far, f"lag {lag}, step {step:,}")
    fresh = {"kind": "fresh, together"}
    kinds = {"minibatches of\none rollout": {"kind": "minibatches"}, "fresh rollouts": fresh}
    figures["heat_maps"] = draw_heat_maps(args, select(cosines, lam=args.main_lambda), kinds, settings)
    figures["heat_maps_lambda"] = draw_heat_maps(args, select(cosines, **fresh), settings, by_lambda)
    return figures


FIGURES = {
    "returns": draw_returns,
    "lag_curves": draw_lag_curves,
    "mean_cosines": draw_mean_cosines,
    "variance": draw_variance,
    "bias": draw_bias,
}
