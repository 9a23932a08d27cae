"""Learning-dynamics diagnostics as pure functions of tensors: what the numbers in the curves mean.

Each diagnostic is defined here and nowhere else, and the scripts call these functions. P1 is Mayor et al., ICML 2025
(arXiv 2506.03404): its Appendix B introduces most of them. P3 is Beukman et al., 2026 (arXiv 2603.06009). Each
docstring gives the definition, and our choice where a paper leaves one open. docs/diagnostics.md explains how each
number can mislead.

Rules for all functions:
- Inputs may have any real dtype, on CPU or CUDA, with or without gradients. They are not modified. The arithmetic is in
  float64 (means over activations: at least float32), so bf16, autocast and TF32 do not affect it.
- Results are Python floats. Of inputs on a GPU a result is a tensor of no dimension there: the host then waits once,
  when it copies all of them (devices.numbers).
- A diagnostic must not end a long run: NaN or inf in the input, or nothing to measure, gives NaN and no exception,
  unless the docstring says otherwise.
- Where a docstring has (..., N), inputs may have leading axes, such as S agents: then a result is a float64 tensor with
  these axes. `valid` (..., N), bool, marks the rows that count; None: all. What is measured of one agent has the same
  bits whatever the others are: no sum crosses the leading axes, and a product of matrices has two slices or more.
- What is expensive and serves several numbers is computed once: `spectrum` of features, `activity` of activations. The
  functions take its result in place of the raw tensors.
- Python 3.8, for Isaac Gym.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Sequence, Tuple

import torch
from torch import Tensor

BATCH_NORMS = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d, torch.nn.SyncBatchNorm)
NORMALIZATION_LAYERS = (torch.nn.LayerNorm, torch.nn.GroupNorm) + BATCH_NORMS
NOISE_GROUPS = 8  # groups of environments, between which the gradient's noise is measured
GRAM_CHUNK = 4096  # rows cast to float64 at a time: 16 MB at D = 512 for any batch size
SPECTRUM_FLOOR = 1e-13  # share of ||Phi||_F^2: above a float64 Gram matrix's rounding, below what float32 resolves
THRESHOLD_SLACK = 1e-12  # relative: a tie (99 of 100 equal directions at tau = .99) must not depend on rounding


def as_number(x: Tensor) -> Any:
    """A 0-d tensor as a float, unless it is on a GPU, for which the host would wait; with leading axes as it is."""
    return x.item() if x.dim() == 0 and x.device.type == "cpu" else x


def nan_where(condition: Tensor, x: Tensor) -> Tensor:
    """x, with NaN where the condition holds."""
    return torch.where(condition, torch.full_like(x, math.nan), x)


def _finite_or_nan(x: Tensor) -> Tensor:
    return nan_where(~x.isfinite(), x)


def masked(x: Tensor, valid: Any) -> Tensor:
    """x (..., N, D) with 0 in the rows that are not valid (..., N); all rows are if it is None."""
    return x if valid is None else torch.where(valid[..., None], x, torch.zeros_like(x))


# ---- feature rank ----------------------------------------------------------------------------------------------------
class Spectrum(NamedTuple):
    """Singular values of features, in descending order, float64 (..., K) each; NaN where they are undefined."""

    plain: Tensor  # of the features as they are
    centered: Tensor  # of the features minus the mean of each column


def _products(x: Tensor) -> Tensor:
    """x^T x of each matrix of x (..., N, D): (..., D, D). One slice alone would be multiplied by another kernel."""
    if x.dim() > 2 and x.shape[:-2].numel() == 1:
        x = x.expand(2, *x.shape[1:])
        return (x.mT @ x)[:1]
    return x.mT @ x


def spectrum(features: Tensor, valid: Any = None) -> Spectrum:
    """The singular values of the valid rows of features (..., N, D), in one pass over the rows. valid is broadcast.

    Their squares are the eigenvalues of Phi^T Phi, or of the smaller Phi Phi^T if N < D and all rows are valid. This is
    faster than an SVD, and its memory does not grow with N. It squares the condition number. float64 has room for that;
    float32 does not (its rounding changes an srank of 30 to 46).
    """
    *leading, num_rows, num_columns = features.shape
    undefined = torch.full((*leading, 1), math.nan, dtype=torch.float64)
    if features.numel() == 0:
        return Spectrum(undefined, undefined)
    valid = valid if valid is None else valid.expand(features.shape[:-1])
    features = masked(features.detach(), valid)
    tall = num_rows >= num_columns or valid is not None
    gram: Any = 0.0
    total: Any = 0.0
    for chunk in (features if tall else features.mT).split(GRAM_CHUNK, -2):
        chunk = chunk.double()
        gram, total = gram + _products(chunk), total + chunk.sum(-2)
    # at this size LAPACK is as fast as cuSOLVER, and it is deterministic; one copy from a GPU brings all
    parts = [gram.flatten(-2), total] + ([] if valid is None else [valid.sum(-1, keepdim=True).double()])
    flat, total, *counts = torch.cat(parts, -1).cpu().split([part.shape[-1] for part in parts], -1)
    gram = flat.unflatten(-1, gram.shape[-2:])
    energy = gram.diagonal(dim1=-2, dim2=-1).sum(-1)
    defined = energy.isfinite()
    if valid is not None:
        defined &= counts[0][..., 0] > 0
    if not defined.any():
        return Spectrum(undefined, undefined)
    gram = torch.where(defined[..., None, None], gram, torch.zeros_like(gram))  # eigvalsh raises on NaN, or hangs
    total = torch.where(defined[..., None], total, torch.zeros_like(total))
    if tall:
        count = num_rows if valid is None else counts[0].clamp(min=1)[..., None]
        centered = gram - total[..., :, None] * total[..., None, :] / count  # Phi^T Phi - N mu mu^T
    else:  # rows and columns of Phi Phi^T are samples
        means = gram.mean(-2, keepdim=True)
        centered = gram - means - gram.mean(-1, keepdim=True) + means.mean(-1, keepdim=True)

    def singular_values(squared: Tensor) -> Tensor:
        try:
            eigenvalues = torch.linalg.eigvalsh(squared).flip(-1)
        except torch.linalg.LinAlgError:  # did not converge: lose this point and keep the run
            return undefined
        # the floor is relative to the uncentred energy: centring constant features leaves rounding errors of that size
        kept = eigenvalues.where(eigenvalues > SPECTRUM_FLOOR * energy[..., None], torch.zeros_like(eigenvalues))
        return nan_where(~defined[..., None], kept.sqrt())

    return Spectrum(singular_values(gram), singular_values(centered))


def _spectrum_of(features: Any) -> Spectrum:
    return features if isinstance(features, Spectrum) else spectrum(features)


def _num_directions(weights: Tensor, share: float) -> Any:
    """The smallest k such that the first k of the descending `weights` (..., K) hold `share` of their sum; 0 of 0."""
    total = weights.sum(-1)
    short = (weights.cumsum(-1) < share * total[..., None] * (1.0 - THRESHOLD_SLACK)).sum(-1)
    return as_number(torch.where(total > 0.0, (short + 1).clamp(max=weights.shape[-1]).double(), total))  # 0 or NaN


def feature_rank(features: Any, tau: float = 0.99, centered: bool = False) -> Any:
    """Number of directions that hold a share `tau` of the squared singular values (P1 B.1, after Yang et al. 2019).

    features (..., N, D): penultimate activations after the ReLU; or their Spectrum. The result is in 1 to min(N, D); 0
    for an all-zero matrix, and with `centered` for equal rows, of which one row is a case.

    P1 writes "principal components" and "total variance", which implies centred columns. The code that P1 cites (Moalla
    et al. 2024) does not centre, and this function does not by default. The mean of ReLU features is one large
    direction with most of the energy, so the two results can differ widely. `centered=True` gives the rank in the sense
    of PCA. The rank of one network grows with N: compare at equal N only.
    """
    values = _spectrum_of(features)
    return _num_directions((values.centered if centered else values.plain).square(), tau)


def srank(features: Any, delta: float = 0.01) -> Any:
    """Number of directions that hold a share 1 - delta of the singular values, not squared (Kumar et al. 2021).

    features: as for `feature_rank`. The result is in feature_rank(features, 1 - delta) to min(N, D); 0 for an all-zero
    matrix. It is not the "stable rank" of linear algebra.
    """
    return _num_directions(_spectrum_of(features).plain, 1.0 - delta)


def effective_rank(features: Any) -> Any:
    """exp(-sum p ln p), where p are the singular values (not squared) divided by their sum (Roy & Vetterli 2007).

    features: as for `feature_rank`. The result is in [1, min(N, D)]; 0 for an all-zero matrix. There is no threshold.
    """
    values = _spectrum_of(features).plain
    total = values.sum(-1)
    shares = values / total[..., None]
    entropy = -torch.where(shares > 0.0, shares * shares.log(), torch.zeros_like(shares)).sum(-1)
    return as_number(torch.where(total > 0.0, entropy.exp(), total))  # 0 or NaN


# ---- dormant neurons -------------------------------------------------------------------------------------------------
class Activity(NamedTuple):
    """What `dormant_neurons` needs of the activations of a batch, or of a part of it (`joined`)."""

    rows: Any  # how many; of S agents a float64 tensor (S,)
    sums: List[Tensor]  # of each layer (..., units): the sum over the rows of |h|, or of h if there are `squares`
    squares: List[Tensor]  # of each layer (..., units): that of h^2; [] where the activity of a unit is its mean |h|
    nonzero: Any  # the sum over the rows of how many units are not 0

    def of_units(self) -> List[Tensor]:
        """The activity of each unit, (..., units) float64 of each layer; NaN without rows."""
        rows = self.rows[..., None] if isinstance(self.rows, Tensor) else self.rows or math.nan
        means = [x / rows for x in self.sums]
        return [(y / rows - x.square()).clamp(min=0.0).sqrt() for x, y in zip(means, self.squares)] or means


def activity(activations: Iterable[Tensor], valid: Any = None, deviation: bool = False) -> Activity:
    """The activity of units: the mean of |h| over the valid rows or, with `deviation`, the standard deviation of h.

    activations: of each layer, after its nonlinearity, (..., N, units, ...), with the leading axes of valid (..., N).
    In a convolution a unit is a channel, as in Sokar et al.'s code, and places count like rows. `deviation` is for Tanh
    and similar units: a saturated one is silent although it is far from 0.

    The activations of a batch may not fit in memory (11 GB of 131072 Atari frames): `joined` takes those of its parts.
    """
    sums, squares, nonzero = [], [], 0.0  # type: List[Tensor], List[Tensor], Any
    rows: Any = 0
    for layer in activations:
        axis = 0 if valid is None else valid.dim() - 1  # of the rows
        h = layer.detach()[..., None].flatten(axis + 2)  # (..., N, units, places)
        places = h.shape[-1]
        if valid is None:
            rows = len(h)
            h, dims = h.to(torch.promote_types(h.dtype, torch.float32)), (0, 2)  # as a large layer lies in memory
        else:
            rows = valid.sum(-1).double()
            h = torch.where(valid[..., None, None], h, torch.zeros_like(h)).double()
            h, dims = h.transpose(axis, axis + 1).flatten(axis + 1)[..., None], (-2, -1)  # a sum takes one row
        sums.append((h if deviation else h.abs()).sum(dims).double() / places)
        if deviation:
            squares.append(h.double().square().sum(dims) / places)
        alive = torch.count_nonzero(h != 0) if valid is None else torch.count_nonzero(h, (-3, -2, -1))
        nonzero = nonzero + nan_where(~sums[-1].sum(-1).isfinite(), alive.double() / places)
    return Activity(rows, sums, squares, nonzero)


def joined(parts: Iterable[Activity]) -> Activity:
    """The Activity of a batch from those of its parts."""
    rows, sums, squares, nonzero = zip(*parts)
    return Activity(sum(rows), [sum(x) for x in zip(*sums)], [sum(x) for x in zip(*squares)], sum(nonzero))


def _activity_of(activations: Any) -> Activity:
    return activations if isinstance(activations, Activity) else activity(activations)


def _percent_of_units(activations: Any, is_dormant: Callable[[Tensor], Tensor]) -> Any:
    dormant: Any = torch.zeros((), dtype=torch.float64)
    units = 0
    for layer in _activity_of(activations).of_units():
        number = is_dormant(layer).sum(-1).double()
        dormant = dormant + nan_where(~layer.sum(-1).isfinite(), number)  # comparisons with NaN are False
        units += layer.shape[-1]
    return as_number(100.0 * dormant / (units or math.nan))


def dormant_neurons(activations: Any, eps: float = 1e-5) -> Any:
    """Percent of units, over all layers, with a mean |h| below `eps` (P1 B.2).

    activations: of each layer, after its ReLU, (N, units, ...); or their Activity.

    P1 follows Sokar et al. but does not divide by the layer's mean. So the number depends on the scale of the
    activations, and through it on the weight norm. P1 does not define a_i for a batch or a channel; mean |h| is Sokar
    et al.'s. Use it for ReLU-like units only; of others, such as Tanh, take the Activity with `deviation` and eps 1e-3.
    """
    return _percent_of_units(activations, lambda units: units < eps)


def dormant_neurons_tau(activations: Any, tau: float) -> Any:
    """Percent of tau-dormant units: mean |h| <= tau times the mean over the units of the layer (Sokar et al. 2023).

    activations: as for `dormant_neurons`. The result does not change if a layer is scaled by a positive factor. tau = 0
    counts units that are zero in every row; more rows can only lower that count. Sokar et al. divide by the layer's
    mean. The product used here counts an all-zero layer as 100 %, where 0 / 0 would count as 0 %.
    """
    return _percent_of_units(activations, lambda units: units <= tau * units.mean(-1, keepdim=True))


def zero_fraction(activations: Any) -> Any:
    """Probability, in [0, 1], that a random unit is exactly zero at a random row and place: sparsity, not dormancy.

    activations: as for `dormant_neurons`. Every unit of every layer has the same weight, so the result is at least
    dormant_neurons_tau(activations, 0) / 100.
    """
    found = _activity_of(activations)
    units = sum(x.shape[-1] for x in found.sums)
    rows = found.rows if isinstance(found.rows, Tensor) else found.rows or math.nan
    share = torch.as_tensor(found.nonzero / rows / (units or math.nan))
    return as_number(1.0 - share)


@torch.no_grad()
def inspect(
    network: Callable, obs: Tensor, rows: Tensor, map: Callable = map, deviation: bool = False
) -> Tuple[Tensor, List[Spectrum], Activity]:
    """What the diagnostics need of a network: its output on some rows of obs, Spectrum of its encoders, and Activity.

    network: maps obs (m, ...) to a tuple: first an output (m, ...), last for each encoder the list of its layers, after
    their nonlinearity, of which the last is the representation (m, D). rows (N,) int64; only the activations of 512 are
    in memory. map: what takes these parts, such as the map of a thread pool. deviation: as for `activity`.
    """

    def of_part(part: Tensor) -> Tuple[Tensor, List[Tensor], Activity]:
        output, *_, encoders = network(obs.index_select(0, part))
        layers = [layer for encoder in encoders for layer in encoder]
        return output, [encoder[-1] for encoder in encoders], activity(layers, deviation=deviation)

    outputs, features, activities = zip(*map(of_part, rows.split(512)))
    return torch.cat(outputs), [spectrum(torch.cat(parts)) for parts in zip(*features)], joined(activities)


# ---- weight norm -----------------------------------------------------------------------------------------------------
def _pooled(tensors: Any) -> Tensor:
    """All entries of some tensors as one float64 vector (P,), without None; of one tensor (..., P) its own."""
    if isinstance(tensors, Tensor):
        return tensors.detach().double()
    flat = [x.detach().flatten() for x in tensors if x is not None]
    return torch.cat(flat).double() if flat else torch.zeros(0, dtype=torch.float64)


def weight_norm(parameters: Any) -> Any:
    """Euclidean norm of all entries of the tensors, e.g. model.parameters(): weights and biases (P1 B.3).

    parameters: tensors, pooled into one vector; or one tensor (..., P). P1 writes "the weights of the layer" but draws
    one curve. This is the norm of all parameters, as in Moalla et al. 2024.
    """
    weights = _pooled(parameters)
    norm = weights.square().sum(-1).sqrt()
    return as_number(_finite_or_nan(norm) if weights.shape[-1] else torch.full_like(norm, math.nan))


def parameters_by_layer(model: torch.nn.Module) -> Dict[str, List[Tensor]]:
    """The trainable parameters of each submodule that owns some, by its name with underscores for dots.

    A parameter of the model itself, such as actor_logstd, has its own name. A shared parameter counts once, in the
    first layer that has it: the squares of the layers' norms add up to that of the model's.

    If there are normalisation layers, their parameters are also `normalization`, and all others
    `without_normalization`. A gain starts at 1, so the 21632 gains of CleanRL's PQN (norm 147) would hide all other
    weights (norm 37).
    """
    parts: Dict[str, List[Tensor]] = {}
    seen = set()
    for module_name, module in model.named_modules():
        path = [word for word in module_name.split(".") if word != "_orig_mod"]  # inserted by torch.compile
        kind = "normalization" if isinstance(module, NORMALIZATION_LAYERS) else "without_normalization"
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad and id(parameter) not in seen:
                seen.add(id(parameter))
                for part in ("_".join(path) or name, kind):
                    parts.setdefault(part, []).append(parameter)
    if "normalization" not in parts:
        parts.pop("without_normalization", None)
    return parts


# ---- gradient kurtosis -----------------------------------------------------------------------------------------------
def unclipped(gradients: Iterable[Any], norm: Any, max_norm: float) -> List[Tensor]:
    """The gradients as they were before clip_grad_norm_(..., max_norm), which found this norm, multiplied them."""
    factor = ((torch.as_tensor(norm).double() + 1e-6) / max_norm).clamp(min=1.0)
    return [gradient * factor for gradient in gradients]


def _kurtosis(values: Tensor, counted: Any = None) -> Any:
    """Pearson kurtosis over the last axis with population moments, 3 for a normal; NaN for constant values.

    counted: bool, of the shape of `values`, which are 0 elsewhere; None: all. Overwrites `values`.
    """
    if counted is None:
        number: Any = float(values.shape[-1] or math.nan)
        square = values.sub_(values.sum(-1, keepdim=True) / number).square_()
    else:
        number = counted.sum(-1).double()
        square = values.sub_(values.sum(-1, keepdim=True) / number[..., None]).square_().mul_(counted)
    variance = square.sum(-1) / number
    kurtosis = square.square_().sum(-1) / number / variance.square()
    return as_number(torch.where(variance >= 1e-24, kurtosis, torch.full_like(kurtosis, math.nan)))


def gradient_kurtosis(gradients: Any, eps: float = 1e-8) -> Any:
    """Kurtosis of L = ln(|g| + eps) over all entries g of one gradient (P1 B.4): mean((L - mu)^4) / mean((L - mu)^2)^2.

    gradients: tensors, e.g. (p.grad for p in model.parameters()), pooled into one vector without None; or one tensor
    (..., P). The result is at least 1, and 3 for a normal L. NaN if L is constant (Var(L) < 1e-24), as for an all-zero
    gradient.

    P1 calls sigma_L the variance but divides by sigma_L^4; here sigma_L is the standard deviation. P1 does not give
    eps, the pooling or the minibatch.

    P1 reads a high kurtosis as heavy tails. After the logarithm that does not follow, because entries near zero
    dominate K. For eps -> 0 a Gaussian g gives 7, Student's t3 6, Laplace 5.4 and Cauchy 5. Exact zeros (dead units)
    form a spike at ln(eps). Few or many of them raise K, a medium share lowers it: read K together with the two
    functions below. K does not depend on the scale of g only if |g| >> eps.
    """
    return _kurtosis(_pooled(gradients).abs().add_(eps).log_())


def gradient_kurtosis_nonzero(gradients: Any) -> Any:
    """Kurtosis of ln|g| over the entries that are not exactly zero. It has no eps and does not depend on the scale."""
    magnitudes = _pooled(gradients).abs()
    counted = magnitudes != 0.0
    return _kurtosis(torch.where(counted, magnitudes, torch.ones_like(magnitudes)).log_(), counted)


def gradient_zero_fraction(gradients: Any) -> Any:
    """Fraction, in [0, 1], of the entries of a gradient that are exactly zero. gradients: as above."""
    entries = _pooled(gradients)
    zeros = (entries == 0.0).sum(-1).double() / (entries.shape[-1] or math.nan)
    return as_number(nan_where(~entries.abs().sum(-1).isfinite(), zeros))


# ---- importance ratios: effective sample size and divergence ---------------------------------------------------------
def effective_sample_size(log_ratio: Tensor, valid: Any = None) -> Any:
    """(sum r)^2 / sum r^2, in samples, from 1 to N (P1 B.5, Martino et al. 2017). P1 draws percent of N.

    log_ratio (..., N): ln r with r = pi_new(a|s) / pi_behavior(a|s), one per sample (sum over action dimensions first).
    -inf is a weight of 0. +inf, NaN, or -inf in all samples gives NaN.

    It equals N / (1 + CV^2), where CV is the coefficient of variation of r: exactly N for equal ratios. It does not
    measure correlation in time.
    """
    log_ratio = log_ratio.detach().double()
    if log_ratio.shape[-1] == 0:
        return as_number(torch.full(log_ratio.shape[:-1], math.nan, dtype=torch.float64))
    if valid is not None:
        log_ratio = log_ratio.masked_fill(~valid, -math.inf)
    largest = log_ratio.amax(-1)  # the max of anything with NaN is NaN
    weights = (log_ratio - largest[..., None]).exp()  # cannot overflow
    ess = weights.sum(-1).square() / weights.square().sum(-1)
    number: Any = float(weights.shape[-1]) if valid is None else valid.sum(-1).double()
    ess = ess.clamp(min=1.0).clamp(max=number)  # rounding errors
    return as_number(nan_where(~largest.isfinite(), ess))


def _mean_of_rows(x: Tensor, valid: Any = None) -> Tensor:
    """The mean over the last axis of x (..., N), of the rows that are valid; NaN of none."""
    if valid is None:
        return x.mean(-1)
    return torch.where(valid, x, torch.zeros_like(x)).sum(-1) / valid.sum(-1)


def categorical_kl(logits: Tensor, new_logits: Tensor, valid: Any = None) -> Any:
    """KL(pi_behavior || pi_new) in nats, the mean over states of sum_a p_a (ln p_a - ln q_a): exact, not an estimate.

    logits, new_logits (..., M, A): of the policy that acted (p) and of the updated one (q), in the same states; valid
    (..., M). P3 gives neither the direction nor the estimator of its divergence; both are our choice. NaN if M is 0 or
    q_a is 0 where p_a is not.
    """
    old, new = (torch.log_softmax(x.detach().double(), -1) for x in (logits, new_logits))
    terms = torch.where(old > -math.inf, old.exp() * (old - new), torch.zeros_like(old))
    return _at_least_0(_mean_of_rows(terms.sum(-1), valid))


def _at_least_0(kl: Tensor) -> Any:
    """A KL whose sign rounding may have changed; NaN if it is not finite."""
    return as_number(_finite_or_nan(kl).clamp(min=0.0))


def gaussian_kls(mean: Tensor, logstd: Tensor, new_mean: Tensor, new_logstd: Tensor) -> Tensor:
    """KL(old || new) of independent Gaussians in each state, (..., M): the sum over the K dimensions of an action.

    Each dimension gives ln(s' / s) + (s^2 + (m - m')^2) / (2 s'^2) - 1/2, with s and m of the policy that acted, s' and
    m' of the updated one. Means (..., M, K), log standard deviations broadcastable to them.
    """
    variance_ratio = (2.0 * (logstd - new_logstd)).exp()  # exactly 1 where nothing has changed
    distance = ((mean - new_mean) / new_logstd.exp()).square()
    return (new_logstd - logstd + 0.5 * (variance_ratio + distance - 1.0)).sum(-1)


def gaussian_kl(mean: Tensor, logstd: Tensor, new_mean: Tensor, new_logstd: Tensor, valid: Any = None) -> Any:
    """The mean over states of `gaussian_kls`, in float64."""
    policies = (x.detach().double() for x in (mean, logstd, new_mean, new_logstd))
    return _at_least_0(_mean_of_rows(gaussian_kls(*policies), valid))


def ddr(num_samples: float, kl: Any) -> Any:
    """Data-to-divergence ratio num_samples / kl: samples per nat of divergence from the behaviour policy (P3, fig. 8).

    num_samples: transitions collected for this update, each counted once for any number of epochs (our choice; P3 does
    not say). kl: `categorical_kl` or `gaussian_kl`. NaN if kl is not finite. To average over iterations, divide the sum
    of samples by the sum of kl: in a mean of ratios the iterations that barely moved dominate.
    """
    kl = torch.as_tensor(kl, dtype=torch.float64)
    # The floor only avoids a division by 0: rounding of float32 logits alone gives a KL of about 1e-14.
    return as_number(torch.full_like(kl, num_samples) / _finite_or_nan(kl).clamp(min=1e-12))


def plateau(returns: Sequence[Any], kls: Sequence[float], grad_norms: Sequence[float], window: int) -> float:
    """1 if the return has stopped rising while the policy still moves, P3's mark of too long outer steps; else 0.

    One entry per log point, from the run's first on: the mean return of the episodes that ended since the point before
    (None if none did), the KL from the behaviour policy, and the norm of the gradient. It is 1 if all of these hold:

    - there are `window` points or more, and 10 of the last `window` have a return;
    - the slope of the least-squares line through those returns is at most two standard errors from 0;
    - over those points the KL and the gradient norm each average at least half of their mean since the first point.

    The thresholds are our choice. Few or noisy episodes have a wide interval, so a slow rise counts as none.
    """
    points = [(float(x), y) for x, y in enumerate(returns[-window:]) if y is not None]
    if len(returns) < window or len(points) < 10:
        return 0.0
    x, y = torch.tensor(points, dtype=torch.float64).t()
    x, y = x - x.mean(), y - y.mean()
    slope = torch.dot(x, y) / torch.dot(x, x)
    error = ((y - slope * x).square().sum() / (len(x) - 2) / torch.dot(x, x)).sqrt()
    means = [(sum(column[-window:]) / window, sum(column) / len(column)) for column in (kls, grad_norms)]
    up = all(recent >= 0.5 * overall > 0.0 for recent, overall in means)
    return float(up and slope.abs().item() <= 2.0 * error.item())


def outer_loop(points: Sequence[Tuple[int, float, float, Any]], window: int) -> Dict[str, float]:
    """`kl_behavior`, `ddr` and `plateau`, by the names under which the scripts log them.

    points: of each log point (rows of the batch, their KL, norm of the gradient, mean return of new episodes), from the
    run's first on. `kl_behavior` is of the last, `ddr` the ratio of the sums of rows and KLs over the last `window`.
    """
    rows, kls, grad_norms, returns = zip(*points)
    known = [kl if count else 0.0 for count, kl in zip(rows, kls)]  # a batch without rows has no KL
    return {
        "kl_behavior": kls[-1],
        "ddr": ddr(sum(rows[-window:]), sum(known[-window:])),
        "plateau": plateau(returns, known, grad_norms, window),
    }


# ---- gradient noise --------------------------------------------------------------------------------------------------
def environment_groups(num_steps: int, num_envs: int, max_groups: int) -> Tensor:
    """Cuts the rows of a time-major batch into disjoint groups of whole environments of one size: (K, M) int64.

    K is max_groups, or num_envs if that is less. Environments beyond K times the size of a group are left out.
    """
    groups = min(max_groups, num_envs)
    rows = torch.arange(num_steps * num_envs).view(num_steps, num_envs)[:, : num_envs // groups * groups]
    return rows.reshape(num_steps, groups, -1).transpose(0, 1).reshape(groups, -1)


def gradient_noise(gradients: Tensor) -> Tuple[Tensor, Tensor]:
    """Unbiased estimates (|G|^2, tr(C)) from the gradients g_k, (K, ..., P), of K groups of rows: (...) float64 each.

    G is the expectation of a group's gradient and C its covariance. With s = |sum g_k|^2 and q = sum |g_k|^2 they are
    (s - q) / (K (K - 1)) and (q - s / K) / (K - 1): the two-batch estimates of McCandlish et al. 2018, A.1, for batches
    of one group and of all K. The first can be negative. NaN for fewer than 2 groups.
    """
    k = len(gradients) if len(gradients) > 1 else math.nan
    total, q = 0.0, 0.0  # type: Any, Any
    for vector in gradients.detach():  # not all in float64 at once
        vector = vector.double()
        total, q = total + vector, q + vector.square().sum(-1)
    s = total.square().sum(-1)
    return (s - q) / (k * (k - 1.0)), (q - s / k) / (k - 1.0)


def noise_scales(outer: Tensor, inner: Tensor, rows: Tensor, num_envs: int) -> Any:
    """The noise of PPO's outer and inner loop, by the names under which the scripts log it: {name: float}.

    B = tr(Sigma) / |G|^2, with Sigma the covariance of the gradient of one sample, is the batch at which noise and
    gradient are equally long (McCandlish et al. 2018). P3's outer noise is that between rollouts: Sigma is measured
    between groups of whole environments, whose steps are correlated. Its inner noise is that between minibatches: here
    between groups of as many shuffled rows of the same environments.

    outer, inner (K, ..., P): the gradients of K such groups (`environment_groups`). rows (...): those that count in a
    group, on average. num_envs: of a group. Returns, of S agents a list of S,

    - `grad_noise_scale`: B in samples, between groups of environments; `/envs`: in environments; `/inner`: in samples,
      between groups of shuffled rows. Each is missing where its estimate of |G|^2 is not positive.
    - `/dominated`: 1 where the estimate of |G|^2 between environments is not positive, else 0.
    - `/signal` and `/noise`: the estimates of |G|^2 and of tr(Sigma) of one sample, whatever their signs. To average B
      over log points, divide the mean of the second by the mean of the first.

    {} if there are fewer than 2 groups, or if a gradient is not finite.
    """
    estimates = torch.stack([rows.double(), *gradient_noise(outer), *gradient_noise(inner)], -1).tolist()
    if rows.dim() == 0:
        return _noise_scales(num_envs, *estimates)
    return [_noise_scales(num_envs, *of_agent) for of_agent in estimates]


def _noise_scales(
    num_envs: int, rows: float, signal: float, noise: float, inner_signal: float, inner_noise: float
) -> Dict[str, float]:
    """The names of `gradient_noise_scales`, of groups of `num_envs` environments with `rows` rows on average."""
    if not math.isfinite(signal + noise):
        return {}
    name = "grad_noise_scale"
    out = {name + "/dominated": float(signal <= 0.0), name + "/signal": signal, name + "/noise": rows * noise}
    if signal > 0.0:
        out[name] = rows * noise / signal
        out[name + "/envs"] = num_envs * noise / signal
    if inner_signal > 0.0:
        out[name + "/inner"] = rows * inner_noise / inner_signal
    return out


# ---- policy variance -------------------------------------------------------------------------------------------------
def moments_over_states(values: Tensor, valid: Any = None) -> Tuple[Tensor, Tensor]:
    """Mean and population variance of each column of values (..., B, K): two float64 tensors (..., K)."""
    values = values.detach().double()
    if valid is None:
        mean = values.mean(-2)
        return mean, (values - mean[..., None, :]).square().mean(-2)
    count = valid.sum(-1).double()[..., None]
    mean = masked(values, valid).sum(-2) / count
    return mean, masked((values - mean[..., None, :]).square(), valid).sum(-2) / count


def policy_variance(probs: Tensor, valid: Any = None) -> Any:
    """Variance over states (with 1/B) of each action's probability, averaged over the actions (P1 B.6).

    probs (..., B, A), valid (..., B). The result is in [0, (A - 1) / A^2], so its maximum shrinks with A. It measures
    how much the policy depends on the state: it is 0 if the policy is the same in all states, uniform or not. It
    measures neither entropy nor change. Moalla et al. divide by B - 1.
    """
    _, variance = moments_over_states(probs, valid)
    return as_number(_finite_or_nan(variance.mean(-1)))


def policy_variance_normalized(probs: Tensor, valid: Any = None) -> Any:
    """Share, in [0, 1], of the variance of the one-hot action that the state explains; comparable across A.

    probs (..., B, A), valid (..., B). By the law of total variance it is sum_a Var_s[p_a] / sum_a m_a (1 - m_a) with
    m = E_s[p]. 0 if the denominator is 0, i.e. if the policy always takes one action.
    """
    mean, variance = moments_over_states(probs, valid)
    explained, total = variance.sum(-1), (mean * (1.0 - mean)).sum(-1)
    share = torch.where(total > 0.0, explained / total, torch.zeros_like(total))
    return as_number(nan_where(~explained.isfinite(), share))


def gaussian_policy_variance(mean: Tensor, std: Tensor, valid: Any = None) -> Tuple[Any, Any]:
    """The two numbers above for a Gaussian policy. mean (..., B, K), std broadcastable to it. Returns (v, R).

    v is Var_s[mean], averaged over the K dimensions, in squared units of the action: scale the actions to one range.
    R = v / (v + mean of std^2), in [0, 1], is the share of the action's variance that the state explains; 0 if v is 0.

    P1 defines discrete policies only. Moalla et al. average Var_s over mean and std, which halves v if std does not
    depend on the state.
    """
    _, variance = moments_over_states(mean, valid)
    explained = variance.mean(-1)
    noise = _mean_of_rows(std.detach().double().square().expand(mean.shape).mean(-1), valid)
    share = torch.where(explained > 0.0, explained / (explained + noise), torch.zeros_like(explained))
    bad = ~(explained + noise).isfinite()
    return as_number(nan_where(bad, explained)), as_number(nan_where(bad, share))


# ---- the critic and the probe ----------------------------------------------------------------------------------------
def explained_variance(values: Tensor, returns: Tensor, valid: Any = None) -> Any:
    """1 - Var(returns - values) / Var(returns), over the rows of values and returns (..., N).

    1 for a perfect critic, 0 for one as good as a constant. NaN if all returns are equal.
    """
    returns = returns.detach().double()[..., None]
    _, residual = moments_over_states(returns - values.detach().double()[..., None], valid)
    _, total = moments_over_states(returns, valid)
    share = nan_where(~(total > 0.0), 1.0 - residual / total)
    return as_number(_finite_or_nan(share.squeeze(-1)))


def stratified_rows(num_rows: int, size: int, seed: int) -> Tensor:
    """The probe: min(size, num_rows) different rows of a batch, one at random from each of that many equal stretches.

    Numbers of equally many rows compare across batch sizes. Batches are time-major, so the sample covers time evenly
    and all environments without bias. It uses a random generator of its own, so that measuring does not change a run.
    Returns sorted int64 indices on the CPU.
    """
    size = min(size, num_rows)
    jitter = torch.rand(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    edges = torch.arange(size + 1) * num_rows // max(size, 1)  # whole rows; no stretch is empty
    return edges[:-1] + (jitter * (edges[1:] - edges[:-1])).long()


# ---- coverage --------------------------------------------------------------------------------------------------------
def coverage(points: Tensor, grid: int) -> float:
    """Fraction of the grid x grid cells of the unit square that hold a point (P1 B.7). P1 does not give the grid.

    points (N, 2) in [0, 1]. 1.0 belongs to the last cell, a point outside the square to the nearest cell. 0 for no
    points. Uniform points give 1 - (1 - 1/grid^2)^N: compare at equal N, in one joint embedding with one bounding box.
    """
    if points.numel() == 0:
        return 0.0
    points = points.detach().double()
    if not torch.isfinite(points).all():
        return math.nan
    cells = (points * grid).floor().clamp(0, grid - 1).long()
    return len((cells[:, 0] * grid + cells[:, 1]).unique()) / float(grid * grid)
