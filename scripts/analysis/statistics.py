"""Statistics that a study decides by and whose error rates calibration.py measures.

Each takes samples with any leading axes, so that one call serves all draws of a bootstrap.
"""

import numpy as np
from scipy.stats import rankdata

from analysis.comparisons import pearson


# ---- rank correlation, for results/plasticity ------------------------------------------------------------------------
def spearman(sample):
    """Spearman's rho, (...,), the mean over tasks. sample: one array (3, ..., runs) per task, of x, y and the
    configuration, which is not used. 0 if x or y is constant."""
    return np.mean([pearson(rankdata(x, axis=-1), rankdata(y, axis=-1)) for x, y, _ in sample], axis=0)


def spearman_within(sample):
    """As `spearman`, of the ranks less their mean in each configuration."""
    return np.mean(
        [pearson(centred(rankdata(x, axis=-1), c), centred(rankdata(y, axis=-1), c)) for x, y, c in sample], axis=0
    )


def centred(values, configurations):
    """values (..., runs) less their mean over the runs of the same configuration."""
    result = np.array(values, float)
    for configuration in np.unique(configurations):
        inside = configurations == configuration
        mean = (values * inside).sum(-1, keepdims=True) / np.maximum(inside.sum(-1, keepdims=True), 1)
        result -= mean * inside
    return result


# ---- bias of a gradient, for results/gradient_correlation ------------------------------------------------------------
def relative_bias(squares):
    """|bias| / |true gradient| from unbiased estimates of both squares, (2, ..., seeds): means over seeds first.

    Infinite where noise hides the true gradient: its estimated square is not positive.
    """
    bias2, truth2 = squares.mean(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(truth2 > 0, np.sqrt(np.maximum(bias2, 0) / truth2), np.inf)


def bias_difference(squares):
    """relative_bias of the first two rows of (4, ..., seeds), minus that of the last two; NaN if both are infinite."""
    with np.errstate(invalid="ignore"):
        return relative_bias(squares[:2]) - relative_bias(squares[2:])
