"""The bias of a gradient, by which gradient_correlation decides and whose error rates calibration.py measures.

Each function takes samples with any leading axes, so that one call serves all draws of a bootstrap.
"""

import numpy as np


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
