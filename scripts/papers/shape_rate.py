"""P1's central claim, each N x T at its tuned learning rate: N and T exchanged, N = 128, against the base."""

from analysis.claims import Claims
from analysis.comparisons import judge_best, judge_default
from analysis.drawing import curve_panels, diagnostics_panels, map_of_scores, scores_at_own_rates
from analysis.estimates import MARGIN
from analysis.parts import settings_of
from analysis.suite import short

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
