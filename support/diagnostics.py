"""What the scripts log of a batch, by tag, and on which rows: the functions of metrics.py put together.

The rules of metrics.py hold here too: inputs of any real dtype, arithmetic in float64, NaN instead of an exception,
leading axes and `valid` where a docstring says so, Python 3.8.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, Iterable, List, Sequence, Tuple

import torch
from torch import Tensor

import metrics


def network_diagnostics(
    features: Iterable[Tensor], activity: Sequence[Tensor], eps: float = 1e-5, valid: Any = None
) -> Dict[str, Any]:
    """Ranks and dormant units, by the names under which the scripts log them.

    features: the representation (..., M, D) of each encoder; valid (..., M). The second encoder's names begin with
    `feature_rank/critic_encoder`. activity: what says whether a unit is dormant, (..., units) of each layer: below
    `eps`, or tau times the mean of its layer.
    """
    out = {"dormant_neurons": percent_of_units(activity, lambda units: units < eps)}
    for tau in (0.0, 0.025, 0.1):  # the thresholds of Sokar et al. 2023
        out["dormant_neurons/tau_%g" % tau] = percent_of_units(activity, tau_dormant(tau))
    for encoder, feature in zip(("", "/critic_encoder"), features):
        for name, value in feature_ranks(feature, valid=valid).items():
            out[name.replace("feature_rank", "feature_rank" + encoder, 1)] = value
    return out


@torch.no_grad()
def diagnose_network(
    forward: Callable[[Tensor], Tuple[Tensor, List[List[Tensor]]]],
    inds: Tensor,
    chunk: int = 512,
    deviation: bool = False,
    map: Callable = map,
) -> Tuple[Tensor, Dict[str, float]]:
    """Runs a network on rows of a batch, chunk by chunk, and measures its layers.

    forward: maps row numbers (m,) to a pair: any output (m, ...), and for each encoder the list of its post-activation
    layers, the last of which is the representation (m, D). inds (M,) int64: the rows. chunk: rows at a time; only their
    activations are in memory. map: what takes the chunks, such as the map of a thread pool. Returns the output of all
    rows (M, ...) and {name: value}: `network_diagnostics` and the fraction of activations that are exactly zero.

    With `deviation` the activity of a unit is its standard deviation over the rows instead of mean |h|, and units below
    1e-3 are dormant. This is for Tanh and similar units: a saturated unit is silent although it is far from zero. It
    takes activations (M, units) only.
    """

    def measure(rows: Tensor) -> Tuple[Tensor, List[Tensor], List[Tensor], float]:
        output, encoders = forward(rows)
        layers = [layer for encoder in encoders for layer in encoder]
        if deviation:
            sums = [layer.double() for layer in layers]
            activity = [torch.stack([h.sum(0), h.square().sum(0)]) for h in sums]
        else:
            activity = [unit_activity(layer) * len(rows) for layer in layers]
        return output, [encoder[-1] for encoder in encoders], activity, metrics.zero_fraction(layers) * len(rows)

    outputs, features, activity, zeros = zip(*map(measure, inds.split(chunk)))
    num_rows = len(inds) or math.nan  # without rows every value is NaN
    activities = [sum(sums) / num_rows for sums in zip(*activity)]
    if deviation:
        activities = [(square - mean.square()).clamp(min=0.0).sqrt() for mean, square in activities]
    # a convolution's output is averaged over its places
    activities = [unit_activity(units[None]) for units in activities]
    eps = 1e-3 if deviation else 1e-5
    values = network_diagnostics([torch.cat(parts) for parts in zip(*features)], activities, eps)
    values["dormant_neurons/zero_fraction"] = sum(zeros) / num_rows
    return torch.cat(outputs), values


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


def join_moments(first: Tuple[Any, Any, float], second: Tuple[Any, Any, float]) -> Tuple[Any, Any, float]:
    """The moments (mean, variance, count) of two sets of rows together, from those of each (Chan, Golub and LeVeque
    1979). Variances divide by the count. A count of 0 in the second changes nothing."""
    (mean, var, count), (other_mean, other_var, other_count) = first, second
    if other_count == 0:
        return first
    delta, total = other_mean - mean, count + other_count
    squares = var * count + other_var * other_count + delta**2 * (count * other_count / total)
    return mean + delta * (other_count / total), squares / total, total


def policy_diagnostics(
    logits: Tensor, new_logits: Tensor, actions: Tensor, valid: Any = None, sizes: Sequence[int] = ()
) -> Tuple[Dict[str, Any], Any]:
    """ESS and policy variance of a categorical policy, by the names under which the scripts log them; and its KL.

    logits, new_logits (..., M, A): of the policy that acted and of the updated one. actions (..., M) int64, valid
    (..., M). The second result is `metrics.categorical_kl`. With `sizes` a policy is K independent categorical ones,
    whose numbers of logits these are, and actions are (..., M, K): the probability of an action is the product, the KL
    the sum, and the policy variance is that of the probabilities of all A values.
    """
    taken = actions.split(1, -1) if sizes else [actions[..., None]]
    sizes = list(sizes) or [logits.shape[-1]]
    policies = [x.detach().double().split(sizes, -1) for x in (logits, new_logits)]
    old, new = (torch.cat([torch.log_softmax(x, -1) for x in parts], -1) for parts in policies)
    log_ratios = [x.gather(-1, inds) for x, inds in zip((new - old).split(sizes, -1), taken)]
    ess, percent = _ess(torch.cat(log_ratios, -1).sum(-1), valid)
    values = {
        "ess": percent,
        "ess/samples": ess,
        "policy_variance": metrics.policy_variance(new.exp(), valid),
        "policy_variance/normalized": metrics.policy_variance_normalized(new.exp(), valid),
    }
    return values, sum(metrics.categorical_kl(logits, new_logits, valid) for logits, new_logits in zip(*policies))


def _ess(log_ratio: Tensor, valid: Any) -> Tuple[Any, Any]:
    """The effective sample size of log_ratio (..., M), in samples and in percent."""
    ess = metrics.effective_sample_size(log_ratio, valid)
    number = max(log_ratio.shape[-1], 1) if valid is None else valid.sum(-1).clamp(min=1)
    return ess, 100.0 * ess / number


def gaussian_policy_diagnostics(
    mean: Tensor, logstd: Tensor, new_mean: Tensor, new_logstd: Tensor, actions: Tensor, valid: Any = None
) -> Tuple[Dict[str, Any], Any]:
    """The same for a Gaussian policy, with the mean standard deviation. The second result is `metrics.gaussian_kl`.

    mean, new_mean (..., M, A), logstd, new_logstd (..., 1, A) or (..., M, A): of the policy that acted and of the
    updated one. actions (..., M, A), valid (..., M).
    """
    log_ratio: Any = 0.0
    for sign, center, scale in ((1.0, new_mean, new_logstd), (-1.0, mean, logstd)):
        center, scale = center.detach().double(), scale.detach().double()
        log_ratio = log_ratio - sign * (0.5 * ((actions - center) / scale.exp()).square() + scale).sum(-1)
    std = new_logstd.detach().exp()
    variance, share = metrics.gaussian_policy_variance(new_mean, std, valid)
    ess, percent = _ess(log_ratio, valid)
    values = {
        "ess": percent,
        "ess/samples": ess,
        "policy_variance": variance,
        "policy_variance/normalized": share,
        "policy_variance/std": metrics.as_number(std.flatten(-2).mean(-1)),
    }
    return values, metrics.gaussian_kl(mean, logstd, new_mean, new_logstd, valid)


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


def valid_and_probe(valid: Tensor, size: int, seed: int) -> Tuple[Tensor, Tensor]:
    """The row numbers of a batch where `valid` (B,) bool holds, and a sample of at most `size` of them: int64, sorted.

    seed: of the sample (`metrics.stratified_rows`).
    """
    rows = valid.nonzero().squeeze(-1)
    return rows, rows[metrics.stratified_rows(len(rows), size, seed)]


def native_and_probe(
    diagnose: Callable[[Tensor], Tuple[Dict[str, float], Any]],
    rows: Tensor,
    probe: Tensor,
    gradient: Iterable[Any],
    probe_gradient: Iterable[Any],
) -> Tuple[Dict[str, float], Any]:
    """What the scripts log below `diagnostics/` and `probe/`, by tag.

    diagnose: maps row numbers to a dict of diagnostics and any second result. rows, probe: those of `valid_and_probe`.
    gradient: of the last minibatch; probe_gradient: of the probe's rows. Returns the dict, and the second result for
    `rows`.
    """
    native, second = diagnose(rows)
    small = native if len(probe) == len(rows) else diagnose(probe)[0]
    return by_tag(native, gradient, small, probe_gradient), second


def by_tag(native: Dict[str, Any], gradient: Any, probe: Dict[str, Any], probe_gradient: Any) -> Dict[str, Any]:
    """Diagnostics of a batch and of the probe by tag, with the statistics of a gradient of each."""
    named = (("diagnostics", native, gradient), ("probe", probe, probe_gradient))
    return {
        f"{place}/{name}": value
        for place, values, gradients in named
        for name, value in {**values, **gradient_statistics(gradients)}.items()
    }


def column_sums(x: Tensor, valid: Any = None) -> Tensor:
    """Count, sum and sum of squares of each column of x (..., M, D): float64 (..., 3, D). valid (..., M).

    The results of several batches or processes can be added.
    """
    x = x.double()
    sums = [torch.ones_like(x), x, x.square()]
    return torch.stack([metrics.masked(column, valid).sum(-2) for column in sums], -2)


# ---- old: what the scripts use that have not been rewritten on the pattern of ppo_atari_envpool.py -------------------
explained_variance, stratified_rows = metrics.explained_variance, metrics.stratified_rows


def feature_ranks(features: Tensor, valid: Any = None) -> Dict[str, Any]:
    """All ranks, by their tags. features (..., N, D), valid (..., N)."""
    values = metrics.spectrum(features, valid)
    return {
        "feature_rank": metrics.feature_rank(values),
        "feature_rank/centered": metrics.feature_rank(values, centered=True),
        "feature_rank/srank": metrics.srank(values),
        "feature_rank/effective_rank": metrics.effective_rank(values),
        "feature_rank/rows": float(features.shape[-2]) if valid is None else valid.sum(-1).double(),
    }


def unit_activity(activation: Tensor) -> Tensor:
    """Mean |h| of each unit over the batch and, in a convolution, over space: (N, units, ...) -> (units,) float64.

    A unit of a convolution is a channel, as in Sokar et al.'s code. The mean of a batch is the mean of its chunks,
    weighted by their rows. So a script can process a batch in chunks, and need not store all its activations (11 GB at
    131072 Atari frames).
    """
    h = activation.detach().to(torch.promote_types(activation.dtype, torch.float32))
    return h.abs().mean(dim=[0] + list(range(2, h.dim()))).double()


def percent_of_units(activities: Iterable[Tensor], is_dormant: Callable[[Tensor], Tensor]) -> Any:
    """Percent of the units of all layers that are dormant; NaN if an activity is not finite or there is no unit.

    activities: (..., units) of each layer, as `unit_activity` gives them. is_dormant: maps such a tensor to bools.
    """
    dormant: Any = torch.zeros((), dtype=torch.float64)
    units = 0
    for activity in activities:
        finite = activity.sum(-1).isfinite()  # comparisons with NaN are False: the unit would count as alive
        layer = is_dormant(activity).sum(-1).double()
        dormant = dormant + torch.where(finite, layer, torch.full_like(layer, math.nan))
        units += activity.shape[-1]
    return metrics.as_number(100.0 * dormant / (units or math.nan))


def tau_dormant(tau: float) -> Callable[[Tensor], Tensor]:
    """For `percent_of_units`: which units (..., units) of a layer are at most tau times the mean of the layer."""
    return lambda activity: activity <= tau * activity.mean(-1, keepdim=True)


def weight_norms(model: torch.nn.Module, agents: bool = False) -> Dict[str, Any]:
    """weight_norm and that of each layer, by their tags. agents: the parameters have a leading axis of agents."""

    def norm(parameters: Iterable[Tensor]) -> Any:
        parameters = list(parameters)
        return metrics.weight_norm(torch.cat([x.flatten(1) for x in parameters], 1) if agents else parameters)

    layers = metrics.parameters_by_layer(model).items()
    return {"weight_norm": norm(model.parameters()), **{f"weight_norm/{name}": norm(part) for name, part in layers}}


def gradient_statistics(gradients: Any) -> Dict[str, Any]:
    """The three numbers of a gradient by their tags."""
    gradients = gradients if isinstance(gradients, Tensor) else list(gradients)
    return {
        "gradient_kurtosis": metrics.gradient_kurtosis(gradients),
        "gradient_kurtosis/nonzero": metrics.gradient_kurtosis_nonzero(gradients),
        "gradient_kurtosis/zero_fraction": metrics.gradient_zero_fraction(gradients),
    }


def gradient_noise_scales(
    gradient: Callable[[Tensor], Tensor],
    valid: Tensor,
    num_steps: int,
    seed: int,
    num_ranks: int = 1,
    joined: Callable[[Tensor, int], Tensor] = lambda x, dim: x,
) -> Any:
    """metrics.noise_scales of what `gradient` gives for groups of rows of a batch; joined: over processes."""
    num_envs = valid.shape[-1] // num_steps
    groups = metrics.environment_groups(num_steps, num_envs, max(1, metrics.NOISE_GROUPS // num_ranks))
    order = torch.randperm(groups.numel(), generator=torch.Generator().manual_seed(seed))
    groups, shuffled = torch.stack([groups, groups.flatten()[order].view_as(groups)]).to(valid.device)
    outer, inner = (joined(torch.stack([gradient(rows) for rows in part]), 0) for part in (groups, shuffled))
    counts = joined(valid[..., groups.flatten()].sum(-1).double()[None], 0).sum(0) / len(outer)
    return metrics.noise_scales(outer, inner, counts, num_envs // len(groups))
