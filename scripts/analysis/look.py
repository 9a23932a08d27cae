"""What all figures have in common, as matplotlib's rcParams."""

LOOK = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # text stays text
    "lines.linewidth": 1.2,
    "figure.constrained_layout.use": True,
}
