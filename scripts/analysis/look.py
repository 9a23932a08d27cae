"""How all figures look: colours, lines, widths, and matplotlib's rcParams, which importing `plt` from here sets."""

import matplotlib
import numpy as np

matplotlib.use("Agg")  # draws without a screen
import matplotlib.pyplot as plt

COLUMN, PAGE = 3.25, 6.75  # widths in inches of a column and of a page (ICML)

# Okabe and Ito's colours, which readers with any colour blindness tell apart (jfly.uni-koeln.de/color, 2008)
BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
COLORS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, "black")
BLUES, ORANGES = ("#7CC4EE", "#0B3C6F"), ("#F2B134", "#8C2D04")  # N's and T's, light to dark
GRAY = "#777777"  # for notes

DASHED, DASH_DOTTED, DOTTED = (0, (4, 1.5)), (0, (4, 1, 1, 1)), (0, (1, 1.5))

plt.rcParams.update(
    {
        "font.size": 8,
        "axes.titlesize": 8,
        "axes.labelsize": 8,
        "legend.fontsize": 7,
        "xtick.labelsize": 7,
        "ytick.labelsize": 7,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.linewidth": 0.6,
        "xtick.major.width": 0.6,
        "ytick.major.width": 0.6,
        "xtick.major.size": 2.5,
        "ytick.major.size": 2.5,
        "lines.linewidth": 1.2,
        "lines.markersize": 3.5,
        "legend.frameon": False,
        "legend.handlelength": 1.8,
        "legend.columnspacing": 1.2,
        "legend.handletextpad": 0.5,
        "axes.grid": True,
        "grid.color": "#E6E6E6",
        "grid.linewidth": 0.4,
        "axes.axisbelow": True,
        "axes.formatter.useoffset": False,
        "axes.titley": 1.0,  # where it is; else matplotlib measures all ticks to see whether one is in its way
        "figure.constrained_layout.use": True,
        "savefig.dpi": 200,
        "pdf.fonttype": 42,  # text stays text, also in
        "svg.fonttype": "none",
    }
)


def ramp(ends, count):
    """`count` colours from light to dark, as RGB triples. ends: the two colours between which they lie."""
    first, last = (np.array(matplotlib.colors.to_rgb(color)) for color in ends)
    places = np.linspace(0, 1, count) if count > 1 else [0.55]
    return [tuple(first + (last - first) * place) for place in places]


def save(figure, path):
    """Writes path.png and closes the figure."""
    figure.savefig(path.with_suffix(".png"))
    plt.close(figure)
