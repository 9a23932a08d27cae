"""Parts of several sweeps: claims and panels of more environments and longer rollouts, and of one argument."""

from analysis.drawing import against, curve_panels, tasks_at
from analysis.estimates import MARGIN
from analysis.sheets import N_LINE, T_LINE, styles
from analysis.suite import MEASURES, SHORT_NAMES, short


# ---- claims ----------------------------------------------------------------------------------------------------------
def mean_over(factors):
    return "mean over k = " + " ".join(f"{k:g}" for k in factors)


def scaling(suite, claims, side="more"):
    """P1's comparisons of the base, N-scaling and T-scaling: over all factors, then factor by factor."""
    n_scaled, t_scaled = suite.scaled("num_envs"), suite.scaled("num_steps")
    factors = sorted(set(n_scaled) & set(t_scaled))
    if t_scaled:
        claims.compare(
            "N-scaling beats T-scaling",
            [n_scaled[k] for k in factors],
            [t_scaled[k] for k in factors],
            f"mean(N×k) - mean(T×k), {mean_over(factors)}",
            primary=side == "more" and not claims,
        )
    for k in factors if len(factors) > 1 else []:
        claims.compare(f"  N×{k:g} beats T×{k:g}", [n_scaled[k]], [t_scaled[k]], f"mean(N×{k:g}) - mean(T×{k:g})")
    words = {"more": "beats the base", "little": "gains little over the base", "not less": "is not below the base"}
    for letter, scaled in (("N", n_scaled), ("T", t_scaled)):
        if scaled:
            claims.compare(
                f"{letter}-scaling {words[side]}",
                list(scaled.values()),
                [suite.base] * len(scaled),
                f"mean({letter}×k) - mean(base), {mean_over(scaled)}",
                side,
                primary=side == "not less" and letter == "N" and not claims,
            )


def sample_efficiency(suite, claims):
    """P1's gains in mid-training: area under the curve, half the budget, and the steps to a threshold."""
    n_scaled, t_scaled = suite.scaled("num_envs"), suite.scaled("num_steps")
    factors = sorted(set(n_scaled) & set(t_scaled))
    pairs = [("N-scaling", list(n_scaled.values()), "the base", [suite.base] * len(n_scaled), n_scaled)]
    if factors:
        pairs += [("N-scaling", [n_scaled[k] for k in factors], "T-scaling", [t_scaled[k] for k in factors], factors)]
    for name, better, other_name, worse, over in pairs if n_scaled else []:
        for measure, side in (("area", "more"), ("half", "more"), ("steps", "less")):
            claims.compare(
                f"{name} learns faster than {other_name}: {MEASURES[measure]}",
                better,
                worse,
                f"mean(N×k) - mean({'base' if other_name == 'the base' else 'T×k'}), {mean_over(over)}",
                side,
                measure,
            )


def settings_of(suite, name):
    """The configurations with the base's value of an argument, and {setting: its family in the argument}."""
    settings = list(dict.fromkeys(config.replace(**{name: suite.base[name]}) for config in suite.configs))
    return settings, {setting: suite.family(name, setting) for setting in settings}


def n_by_t_name(config):
    return "{}×{}".format(*config.n_by_t)


def changes_little(suite, claims, name):
    """Rows for an argument that changes little: each of its values against the base's, at each setting."""
    default, rows = suite.base[name], []
    settings, families = settings_of(suite, name)
    for setting in settings:
        for config in [config for config in families[setting] if config[name] != default]:
            row = claims.compare(
                f"  {SHORT_NAMES[name]} {short(config[name])} changes little at {n_by_t_name(setting)}",
                [config],
                [setting],
                f"mean({short(config[name])}) - mean({short(default)}) inside ±{MARGIN:.0%} of the base",
                "little",
            )
            rows.append(row)
    claims.all_together(f"{SHORT_NAMES[name]} changes little, all of these together", rows, "little")


# ---- figures ---------------------------------------------------------------------------------------------------------
def more_environments(suite):
    return "more environments", suite.family("num_envs"), "n_by_t"


def one_batch(suite):
    return "one batch", suite.same_batch(), "n_by_t"


def against_factor(suite):
    """The panel of final scores against the factor by which N or T is scaled, if one of them is."""
    lines = []
    for name, style in (("num_envs", N_LINE), ("num_steps", T_LINE)):
        family = suite.family(name)
        if len(family) > 1:
            lines.append((family, [config[name] / suite.base[name] for config in family], style))
    if len(lines) == 1:
        ((family, factors, style),) = lines
        return [(f"factor of {style['label']}", "log", [(family, factors, {**style, "label": None})])]
    return [("factor of N or T", "log", lines)] if lines else []


def sensitivity(suite, name, xlabel):
    """Final scores and curves against an argument, at each of the other settings."""
    settings, families = settings_of(suite, name)
    style = styles(suite, settings) if len(settings) > 1 else {settings[0]: dict(color="black")}
    lines = [against(name, family, style[setting]) for setting, family in families.items()]
    panels = [(suite.in_multiples(setting), family, name) for setting, family in families.items()]
    yield curve_panels(suite, panels, [(xlabel, "each", lines)])
    for setting in settings:
        yield tasks_at(suite, setting, name)
