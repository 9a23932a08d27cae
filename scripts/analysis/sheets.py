"""The sheets on which the figures of a sweep are drawn: colours of configurations, an image, and the CSV behind it.

A sheet records every number that it draws, one row per point, so that the CSV is enough to draw the image again.
"""

import io

import numpy as np
import pandas as pd
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from analysis import training_runs
from analysis.look import BLUES, COLUMN, DASHED, DOTTED, GRAY, ORANGES, PAGE, plt, ramp
from analysis.suite import SHORT_NAMES, label_of, short
from analysis.training_runs import RETURN

MOST_CURVES = 6  # in a panel; the CSV has all
BASE = " (base)"  # ends the base's label in a legend; at its curve the colour says it
LONGEST_LABEL = 8  # letters of a label at the end of its curve: longer ones are in a legend
BLACK = dict(color="black", ls="-")
N_LINE, T_LINE = dict(color=BLUES[1], ls="-", label="N"), dict(color=ORANGES[1], ls=DASHED, label="T")


# ---- colours ---------------------------------------------------------------------------------------------------------
def styles(suite, configs, by="n_by_t"):
    """{configuration: Line2D properties, with a label}. The base is black.

    by: "n_by_t" (more environments blue, longer rollouts orange and dashed), "configuration" (one colour each), the
    name of an argument (one colour per value), or such a dictionary.
    """
    if isinstance(by, dict):
        return by
    if by == "n_by_t":
        return _styles_by_n_by_t(suite, configs)
    if by == "configuration":
        labels = {config: label_of(config) for config in configs}
        keys, base = {config: place for place, config in enumerate(configs)}, suite.base
        black = keys.get(base)
    else:
        labels = {config: f"{SHORT_NAMES.get(by, by)} {short(config[by])}" for config in configs}
        keys = {config: config[by] for config in configs}
        black = suite.base[by]
    levels = sorted(set(keys.values()))
    palette = dict(zip(levels, plt.get_cmap("viridis")(np.linspace(0.05, 0.9, len(levels)))))
    return {
        config: dict(
            color="black" if keys[config] == black else palette[keys[config]],
            zorder=3 if keys[config] == black else 2,
            label=labels[config] + (BASE if keys[config] == black else ""),
        )
        for config in configs
    }


def _styles_by_n_by_t(suite, configs):
    """More or fewer environments in blues, longer or shorter rollouts in oranges, dashed: both darker with N or T."""
    base = suite.base
    base_style = dict(color="black", zorder=3, label=f"{base['num_envs']}×{base['num_steps']}{BASE}")
    found = {config: base_style for config in configs}
    for environments, ends, dash in ((True, BLUES, "-"), (False, ORANGES, DASHED)):
        keys = {}  # equal keys, equal colours
        for config in configs:
            n, t = config["num_envs"] / base["num_envs"], config["num_steps"] / base["num_steps"]
            if (n, t) != (1, 1) and (t == 1 or (n > 1 and t != 1)) == environments:
                keys[config] = (*((n, -t) if environments else (t, -n)), suite.in_multiples(config))
        colors = dict(zip(sorted(set(keys.values())), ramp(ends, len(set(keys.values())))))
        found.update({config: dict(color=colors[key], ls=dash, label=key[2]) for config, key in keys.items()})
    return found


def fewer(suite, configs):
    """At most MOST_CURVES of the configurations for one panel: with the base and the ends, evenly spaced."""
    configs = list(configs)
    if len(configs) <= MOST_CURVES:
        return configs
    others = [config for config in configs if config != suite.base]
    count = MOST_CURVES - (suite.base in configs)
    kept = {others[round(place)] for place in np.linspace(0, len(others) - 1, count)} | {suite.base}
    return [config for config in configs if config in kept]


# ---- sheets ----------------------------------------------------------------------------------------------------------
class Sheet:
    """One image and the tidy CSV behind it: a row is what is drawn at one x of one curve."""

    def __init__(self, suite, part, rows, columns, height, axis=None, **options):
        """part: what its file name has after that of the sweep. axis: of its curves, in place of the suite's."""
        self.suite, self.part, self.axis = suite, part, axis or suite.axis
        self.caption = ""  # sentences on what the panels show
        self.x_column = "step" if self.axis == "steps" else self.axis
        self.labelled, self.direct = [], set()  # panels whose curves have labels at their ends, and those labels
        self.ends = {}  # {panel: [(last value, style) of each curve]}
        self.rows, self.legend, self.has_runs = [], {}, False  # has_runs: whether the CSV also has every run
        size = PAGE if columns > 1 else COLUMN, height
        self.figure, self.axes = plt.subplots(rows, columns, figsize=size, squeeze=False, **options)

    def record(self, config, task, metric, x, value, low=None, high=None, seed=None, x_column=None, **more):
        """Adds rows to the CSV: numbers, or arrays of equal length. more: further columns."""
        frame = {
            "sweep": self.suite.sweep,
            "script": self.suite.script,
            "game": task,
            **dict(config.items),
            "seed": seed,
            x_column or self.x_column: x,
            "metric": metric,
            "value": value,
            "ci_low": low,
            "ci_high": high,
            **more,
        }
        if np.size(x):
            self.rows.append((frame, np.size(x)))

    def curve(self, ax, config, task, metric, curve, style, dotted_until=None):
        """A line with its band; a lone point as a dot. curve: x and its Estimate.

        dotted_until: of a curve of the return, the x from which it is solid.
        """
        x, (value, low, high) = curve
        self.legend[style["label"]] = style
        if len(x):
            self.ends.setdefault(ax, []).append((value[-1], style))
            draw_line(ax, x, value, dotted_until or 0.0, marker="o" if len(x) == 1 else None, **style)
            if np.isfinite(low).any():
                ax.fill_between(x, low, high, color=style["color"], alpha=0.2, lw=0, zorder=1)
            more = {} if dotted_until is None else {"dotted": x < dotted_until}
            self.record(config, task, metric, x, value, low, high, **more)

    def points(self, ax, x, estimates, style):
        """Estimates against x, with error bars where there is an interval."""
        if len(x):
            value, low, high = np.array(estimates).T
            if style.get("label"):
                self.legend[style["label"]] = {**style, "marker": "o"}
            bars = np.nan_to_num(np.stack([value - low, high - value])).clip(0)
            ax.errorbar(x, value, bars, marker="o", capsize=2, elinewidth=0.8, **style)

    def final_scores(self, ax, configs, x, style, places):
        """The final score of those of the configurations that have one, drawn at `places`; the base in black."""
        base, drawn, estimates = self.suite.base, [], []
        for config, value, place in zip(configs, x, places):
            if self.suite.can_compare([config]):
                lines_meet = config == base and value > 0 and ax.get_xscale() == "log"
                drawn.append(value if lines_meet else place)
                estimates.append(self.suite.final_score(config))
                self.record(config, "all", f"final {self.suite.pool_name}", value, *estimates[-1], x_column="x")
                if config == base and style.get("ls") != "none":
                    self.points(ax, drawn[-1:], estimates[-1:], dict(color="black", ls="none", zorder=4))
        self.points(ax, drawn, estimates, style)

    def record_runs(self):
        """Every run's own curve and final score, for the CSV alone."""
        suite = self.suite
        for (config, task, seed), run in suite.runs.items():
            grid = suite.grid([run], RETURN, self.axis)
            values = suite.curves([run], RETURN, grid, self.axis)[:, 0]
            keep = np.isfinite(values)
            self.record(config, task, "episodic_return", grid[keep], values[keep], seed=seed)
            if run.finished:
                final = dict(seed=seed, x_column="step")
                metric = "final_return" if run.by_evaluation else "final episodic_return"
                self.record(config, task, metric, run.target, run.final, **final)
                if task in suite.unit:
                    self.record(config, task, "final score", run.target, suite.score(run.final, task), **final)

    def label_directly(self, axes):
        """Writes the labels of the curves at their ends, if in all of these panels they are few and short."""
        labels = {ax: [style["label"] for _, style in self.ends.get(ax, [])] for ax in axes}
        if all(
            0 < len(words) < MOST_CURVES and max(len(word.removesuffix(BASE)) for word in words) <= LONGEST_LABEL
            for words in labels.values()
        ):
            self.labelled, self.direct = list(axes), set().union(*labels.values())

    def _label_curves(self, ax):
        """Labels in the order of the ends, spread so that none covers another."""
        low, high = ax.get_ylim()
        height = ax.get_position().height * self.figure.get_figheight() * 72  # points, before the layout
        gap = 8 / height
        ends = sorted((((value - low) / (high - low), style) for value, style in self.ends[ax]), key=lambda end: end[0])
        places = [place for place, _ in ends]
        for i in range(1, len(places)):
            places[i] = max(places[i], places[i - 1] + gap)
        excess = max(0.0, places[-1] - 1)
        for place, (_, style) in zip(places, ends):
            ax.annotate(
                style["label"].removesuffix(BASE),
                (1.02, place - excess),
                xycoords="axes fraction",
                color=style["color"],
                fontsize=7,
                va="center",
            )

    def finish_curves(self, ax, x_label=True):
        """Scales and ticks of a panel of curves."""
        if self.axis == "gradient_steps" and ax.lines:
            ax.set_xscale("log")
        elif self.axis == "steps":
            end = self.suite.nominal_budget  # 100M, not the 99.9M of whole batches
            ax.set_xlim(0, end * 1.03)
            ax.set_xticks([0, end / 2, end], ["0", short(end / 2), short(end)])
        else:
            ax.xaxis.set_major_locator(MaxNLocator(3))
        number = FuncFormatter(lambda y, _: (short(y) if abs(y) >= 10000 else f"{y:g}").replace("-", "−"))
        ax.yaxis.set_major_formatter(number)
        ax.set_xlabel(training_runs.AXES[self.axis] if x_label else "")
        self.finish(ax, "no points\nlogged yet")

    def finish(self, ax, text_if_empty):
        """Few ticks, and a text in a panel that has nothing to show."""
        ax.yaxis.set_major_locator(MaxNLocator(4))
        if not ax.lines and not ax.collections:
            style = dict(ha="center", va="center", color=GRAY, fontsize=7)
            ax.text(0.5, 0.5, text_if_empty, transform=ax.transAxes, **style)
            ax.set_yticks([])

    def save(self, out, name):
        """Writes name.png, name.pdf and name.csv."""
        self.lay_out()
        self.figure.savefig(out / f"{name}.png")
        self.figure.savefig(out / f"{name}.pdf")
        if self.has_runs:
            self.record_runs()
        columns = ["sweep", "script", "game", *self.suite.varies, "seed", self.x_column]
        columns += ["metric", "value", "ci_low", "ci_high"]
        frames = [pd.DataFrame(frame, index=np.arange(size)).dropna(axis=1, how="all") for frame, size in self.rows]
        table = pd.concat(frames) if frames else pd.DataFrame()
        table.reindex(columns=[*columns, *sorted(set(table) - set(columns))]).to_csv(out / f"{name}.csv", index=False)

    def svg(self, name):
        """The text of an SVG element, with text as text. name: of the image; makes the element's ids its own."""
        self.lay_out()
        text = io.StringIO()
        with plt.rc_context({"svg.hashsalt": name}):
            # savefig would draw everything twice
            FigureCanvasSVG(self.figure).print_svg(text, metadata={"Date": None, "Creator": None})
        svg = text.getvalue()
        svg = svg[svg.index("<svg") :]  # without the XML's and the document type's declarations
        for attribute in ('id="', 'xlink:href="#', "url(#"):
            svg = svg.replace(attribute, f"{attribute}{name}-")
        return svg

    def close(self):
        plt.close(self.figure)

    def lay_out(self):
        """Puts the legend beside the panels and everything into its place, once: all formats are alike."""
        if self.figure.get_layout_engine() is None:
            return
        for ax in self.labelled:
            self._label_curves(ax)
        for axis in (axis for ax in self.figure.axes for axis in (ax.xaxis, ax.yaxis)):
            if not axis.get_label_text():
                axis.set_label_coords(0, 0)  # else matplotlib measures all ticks to place a label that is not there
                side = "labelbottom" if axis.axis_name == "x" else "labelleft"
                axis.set_in_layout(axis.get_tick_params()[side])  # nor to place what has no numbers either
        handles = [plt.Line2D([], [], **style) for style in self.legend.values() if style["label"] not in self.direct]
        if len(handles) > (not self.direct):
            widest = max(len(handle.get_label()) for handle in handles)
            most = max(1, int(self.figure.get_figwidth() / max(1.05, 0.06 * widest + 0.3)))  # a letter: 0.06 inches
            rows = -(-len(handles) // most)
            # a legend and words below the panels would cover each other
            place = "outside upper center" if self.figure.get_supxlabel() else "outside lower center"
            self.figure.legend(handles=handles, loc=place, ncols=-(-len(handles) // rows))
        for text in self.figure.findobj(plt.Text):
            if "$" in text.get_text() and "mathdefault" not in text.get_text():  # a value, and no power of ten
                text.set_parse_math(False)
        self.figure.get_layout_engine().execute(self.figure)
        self.figure.set_layout_engine("none")


def draw_line(ax, x, y, dotted_until, **style):
    """A line that is dotted up to its first point at `dotted_until` or later."""
    first = int(np.searchsorted(x, dotted_until))
    if first > 0:
        ax.plot(x[: first + 1], y[: first + 1], **{**style, "ls": DOTTED})
    if first < len(x):
        ax.plot(x[first:], y[first:], **style)


def mark_ticks(ax, values):
    """Marks values on a logarithmic x-axis, every second one of many."""
    values = sorted(set(values))
    values = values if len(values) <= 6 else values[::2]
    ax.set_xscale("log", base=2)
    ax.set_xticks(values, [short(value) for value in values])
    ax.xaxis.set_minor_locator(NullLocator())
