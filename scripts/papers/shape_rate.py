"""P1's central claim, each N x T at its tuned learning rate: N and T exchanged, N = 128, against the base."""

import numpy as np
from analysis.claims import Claims
from analysis.comparisons import difference, halves, judge, judge_best, judge_maxima, unless_at_the_edge
from analysis.drawing import curve_panels, diagnostics_panels, sheet_of_tasks
from analysis.estimates import MARGIN, interval, mean, nothing, resampled, unit_of
from analysis.look import BLUES, DASHED, VERMILLION, plt
from analysis.parts import settings_of
from analysis.sheets import mark_ticks
from analysis.suite import BAND_REPS, short

FIGURE = "P1's central claim, each N x T at its tuned learning rate"
VARIES = ("num_envs", "num_steps", "learning_rate")


def grid_of_rates(suite):
    """{(N, T): {learning rate: configuration}} of what is in the aggregates, by N: the base's batch, all else equal."""
    base, found = suite.base, {}
    settings, families = settings_of(suite, "learning_rate")
    for setting in sorted(settings, key=lambda setting: setting["num_envs"]):
        rates = {config["learning_rate"]: config for config in families[setting] if config in suite.scored}
        if rates and setting.batch_size == base.batch_size and setting.others() == base.others():
            found[setting.n_by_t] = rates
    return found


def samples_at_rates(suite, grid):
    """{name of an N x T: {learning rate: sample}} of such a grid, as comparisons.py takes it."""
    return {
        "{}×{}".format(*n_by_t): {rate: suite.sample(config) for rate, config in rates.items()}
        for n_by_t, rates in grid.items()
    }


def best_n_by_t_stays(found, grid, base):
    """The claim that who tunes N x T at the default rate finds the best N x T. grid: with that rate in each."""
    default = base["learning_rate"]

    def loss(view):
        return judge_default(samples_at_rates(view, grid), default, view.margin("not less"))

    found.add(
        f"the best N x T at the default rate ({short(default)}) is about the best at its own rate",
        loss,
        [config for rates in grid.values() for config in rates.values()] if len(grid) > 1 else [],
        quantity=f"that N x T at its best rate - the best other N x T > -{MARGIN:.0%} of the base",
        side="not less",
    )


def judge_default(grid, default, margin):
    """The Tested of: the best N x T at the default rate is about the best of all, each at its own best rate.

    grid: {name of an N x T: {learning rate: sample}}, the default rate in each. Half of the seeds choose the N x T at
    the default rate; on the other half its best rate is compared with every rate of all others, as by `judge_best`.
    """
    samples = [sample for rates in grid.values() for sample in rates.values()]
    choosing, testing = halves([rates[default] for rates in grid.values()])[0], halves(samples)[1]
    if min((x.shape[-1] for sample in choosing for x in sample), default=0) < 1:
        return judge(nothing("half of the seeds choose: expected two or more"), "not less", margin)
    chosen = list(grid)[int(np.argmax([float(mean(sample)) for sample in choosing]))]
    names = [name for name, rates in grid.items() for _ in rates]
    own = [sample for name, sample in zip(names, testing) if name == chosen]
    others = [sample for name, sample in zip(names, testing) if name != chosen]
    tested = judge_maxima(own, others, "not less", margin, unit_of(samples))  # half of the seeds, all tasks
    tested = unless_at_the_edge(tested, grid)
    return tested._replace(remark="; ".join(filter(None, [f"half of the seeds chose {chosen}", tested.remark])))


def claims(suite):
    found = Claims(suite)
    grid, base = grid_of_rates(suite), suite.base
    n_by_ts = list(grid)
    exchanged = base.n_by_t[::-1] if base.n_by_t[::-1] in grid else n_by_ts[-1] if n_by_ts else base.n_by_t
    long, wide = sorted([base.n_by_t, exchanged])
    pair = {n_by_t: grid[n_by_t] for n_by_t in (wide, long) if n_by_t in grid}
    configs = [config for rates in pair.values() for config in rates.values()]

    def wide_over_long(view):
        return judge_best(*samples_at_rates(view, pair).items())

    names = ["{}×{}".format(*n_by_t) for n_by_t in (wide, long)]
    found.add(
        f"N beats T at a fixed batch: {names[0]} beats {names[1]}, each at its own best rate",
        wide_over_long,
        configs if len(pair) == 2 else [],
        quantity=f"max over rates of mean({names[0]}) - max over rates of mean({names[1]})",
        side="more",
        primary=True,
    )
    for rate in sorted(set.intersection(*map(set, pair.values()))) if len(pair) == 2 else []:
        of_rate = [[grid[n_by_t][rate]] for n_by_t in (wide, long)]
        quantity = f"mean - mean at lr {short(rate)}"
        found.compare(f"  {names[0]} beats {names[1]} at lr {short(rate)}", *of_rate, quantity)
    best_n_by_t_stays(found, {n_by_t: rates for n_by_t, rates in grid.items() if base["learning_rate"] in rates}, base)
    found.diagnostics()
    return found


def sheets(suite):
    grid = grid_of_rates(suite)
    yield scores_at_own_rates(suite, grid)
    yield map_of_scores(suite, grid)
    yield curve_panels(
        suite, [(f"lr {short(suite.base['learning_rate'])}", suite.same_batch(), "n_by_t")], part="curves"
    )
    yield diagnostics_panels(suite)


def at_best(counts):
    """A statistic: the score of the best of each group of configurations, (groups, …). counts: the groups' sizes.

    For pictures: each draw of a bootstrap chooses anew, so that the choice is part of the noise. It flatters groups
    with several good configurations; a verdict is by `judge_best`.
    """
    ends = np.cumsum(counts)[:-1]

    def best(*samples):
        scores = np.stack([mean(sample) for sample in samples])
        return np.stack([of_group.max(0) for of_group in np.split(scores, ends)])

    return best


def scores_at_own_rates(suite, grid):
    """Final scores against N at one batch, in all tasks and in each: each N x T at its best rate, and at the base's.

    grid: {(N, T): {learning rate: configuration}}. Each draw of the bootstrap chooses the rates anew.
    """
    default = suite.base["learning_rate"]
    sheet, panels = sheet_of_tasks(suite, "", 0.8, 1.5, sharex=True)
    lines = [
        ({n_by_t: rates for n_by_t, rates in grid.items() if default in rates}, True, f"all at lr {short(default)}"),
        (grid, False, "each at its best rate"),
    ]
    for ax, task, view, leftmost, lowest in panels:
        for part, fixed, label in lines:
            of_line = {n_by_t: {default: rates[default]} if fixed else rates for n_by_t, rates in part.items()}
            configs = [config for rates in of_line.values() for config in rates.values()]
            if not view.can_compare(configs):
                continue
            estimate = interval(
                at_best([len(rates) for rates in of_line.values()]),
                [view.sample(config) for config in configs],
                BAND_REPS,
                view.seed,
            )
            for rates, *numbers in zip(of_line.values(), *estimate):
                chosen = max(rates.values(), key=lambda config: view.final_score(config).value)
                sheet.record(
                    chosen, task, f"final {suite.pool_name}, {label}", chosen["num_envs"], *numbers, x_column="x"
                )
            style = dict(color="black", ls=DASHED, zorder=2) if fixed else dict(color=BLUES[1], zorder=3)
            beside = 0.96 if fixed else 1.04  # so that bars do not cover each other
            x = [N * beside for N, _ in of_line]
            sheet.points(ax, x, list(zip(*estimate)), {**style, "label": label})
        ax.set_xlabel("N at one batch" if lowest else "")
        ax.set_ylabel(f"final {suite.pool_name}\n({suite.unit_words})" if leftmost else "")
        sheet.finish(ax, "no final\nscores yet")
        mark_ticks(ax, [N for N, _ in grid] or [1])
    sheet.has_runs = True
    sheet.caption = (
        f"The {suite.pool_name} of the final scores against N, with T so that all batches have the same size, with "
        "95 % intervals. Each N x T has its best learning rate, or all have the base's."
    )
    return sheet


def map_of_scores(suite, grid):
    """Final score of each N x T (rows) at each learning rate (columns), in all tasks and in each.

    The best setting is framed. `≈`: the interval (n - 1 of n seeds) of the best minus this one includes 0. The best is
    the best of these runs, which flatters it a little. grid: as for `scores_at_own_rates`.
    """
    n_by_ts, rates = list(grid), sorted({rate for of_n_by_t in grid.values() for rate in of_n_by_t})
    sheet, panels = sheet_of_tasks(suite, "map", 0.6, 0.5 + 0.19 * len(n_by_ts))
    for ax, task, view, leftmost, lowest in panels:
        found = [config for of_n_by_t in grid.values() for config in of_n_by_t.values() if view.can_compare([config])]
        if not found:
            sheet.finish(ax, "no final\nscores yet")
            continue
        scores = np.full((len(n_by_ts), len(rates)), np.nan)
        for config in found:
            scores[n_by_ts.index(config.n_by_t), rates.index(config["learning_rate"])] = view.final_score(config).value
        ax.imshow(scores, cmap="Blues", aspect="auto")
        best = max(found, key=lambda config: view.final_score(config).value)
        for config in found:
            row, column = n_by_ts.index(config.n_by_t), rates.index(config["learning_rate"])
            tied = config != best and _is_tied(view, best, config)
            dark = scores[row, column] > 0.4 * np.nanmin(scores) + 0.6 * np.nanmax(scores)
            text = f"{scores[row, column]:.2f}{' ≈' * tied}"
            ax.text(column, row, text, ha="center", va="center", fontsize=6.5, color="white" if dark else "black")
            if config == best:
                ax.add_patch(
                    plt.Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, ec=VERMILLION, lw=1.5, zorder=3)
                )
            more = {"best": config == best, "tied": tied}
            sheet.record(
                config, task, f"final {suite.pool_name}", rates[column], *view.final_score(config), x_column="x", **more
            )
        ax.grid(False)
        ax.set_xticks(range(len(rates)), [short(rate) for rate in rates])
        ax.set_yticks(range(len(n_by_ts)), ["{}×{}".format(*n_by_t) for n_by_t in n_by_ts] if leftmost else [])
        ax.set_xlabel("learning rate" if lowest else "")
        ax.set_ylabel("N×T" if leftmost else "")
    sheet.figure.supxlabel("framed: best; ≈: its difference to the best has a 95 % CI that includes 0", fontsize=7)
    sheet.caption = f"The {suite.pool_name} of the final scores of each N x T (rows) at each learning rate (columns)."
    return sheet


def _is_tied(suite, best, config):
    """Whether the interval of the best minus this one includes 0. False where there are too few seeds for one."""
    samples = [suite.sample(best), suite.sample(config)]
    return bool(resampled(difference, samples, BAND_REPS, suite.seed).estimate.low <= 0)
