"""Running moments, sums of columns, and which rows of several agents are measured.

The rules of metrics.py hold here too: inputs of any real dtype, arithmetic in float64, NaN instead of an exception,
leading axes and `valid` where a docstring says so, Python 3.8.
"""

from __future__ import annotations

from typing import Any, Callable, Tuple

import torch
from torch import Tensor

import metrics


def merge_moments(moments: Tuple[Any, Any, float], batch: Any) -> Tuple[Any, Any, float]:
    """Adds a batch to running moments.

    moments: (mean, variance, count), where mean and variance have the shape of one row of the batch. batch: a NumPy
    array or a tensor (rows, ...). Returns the moments of all rows together. Variances divide by the count. An empty
    batch changes nothing.
    """
    if len(batch) == 0:
        return moments
    batch_mean = batch.mean(0)
    return join_moments(moments, (batch_mean, ((batch - batch_mean) ** 2).mean(0), len(batch)))


def join_moments(first: Tuple[Any, Any, Any], second: Tuple[Any, Any, Any]) -> Tuple[Any, Any, Any]:
    """The moments (mean, variance, count) of two sets of rows together, from those of each (Chan, Golub and LeVeque
    1979). Variances divide by the count. A count of 0 in the second changes nothing.

    Counts may be arrays, as moments of several agents have; then that of the first is above 0.
    """
    (mean, var, count), (other_mean, other_var, other_count) = first, second
    if isinstance(other_count, (int, float)) and other_count == 0:
        return first
    delta, total = other_mean - mean, count + other_count
    squares = var * count + other_var * other_count + delta**2 * (count * other_count / total)
    return mean + delta * (other_count / total), squares / total, total


def probe_rows(valid: Tensor, size: int, seed: int) -> Tuple[Tensor, Tensor]:
    """`metrics.stratified_rows` of the valid rows of each of S agents: (S, size) row numbers, and which of these count.

    valid (S, M). Where an agent has fewer valid rows than `size`, at most M, the rest does not count.
    """
    size = min(size, valid.shape[-1])
    inds, counts = torch.zeros(len(valid), size, dtype=torch.int64), []
    for of_agent, rows in zip(inds, map(torch.nonzero, valid.cpu())):
        rows = rows[metrics.stratified_rows(len(rows), size, seed), 0]
        of_agent[: len(rows)] = rows
        counts.append(len(rows))
    counted = torch.arange(size) < torch.tensor(counts)[:, None]
    return inds.to(valid.device), counted.to(valid.device)


def column_sums(x: Tensor, valid: Any = None) -> Tensor:
    """Count, sum and sum of squares of each column of x (..., M, D): float64 (..., 3, D). valid (..., M).

    The results of several batches or processes can be added.
    """
    x = x.double()
    sums = [torch.ones_like(x), x, x.square()]
    return torch.stack([metrics.masked(column, valid).sum(-2) for column in sums], -2)


def gradient_noise_scales(gradient: Callable[[Tensor], Tensor], valid: Tensor, num_steps: int, seed: int) -> Any:
    """metrics.noise_scales of what `gradient` gives for groups of rows of a batch. valid: (S, T N)."""
    num_envs = valid.shape[-1] // num_steps
    groups = metrics.environment_groups(num_steps, num_envs, metrics.NOISE_GROUPS)
    order = torch.randperm(groups.numel(), generator=torch.Generator().manual_seed(seed))
    groups, shuffled = torch.stack([groups, groups.flatten()[order].view_as(groups)]).to(valid.device)
    outer, inner = (torch.stack([gradient(rows) for rows in part]) for part in (groups, shuffled))
    counts = valid[..., groups.flatten()].sum(-1).double() / len(outer)
    return metrics.noise_scales(outer, inner, counts, num_envs // len(groups))
