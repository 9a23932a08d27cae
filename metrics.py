"""Learning-dynamics diagnostics: pure functions of tensors, the only module that the training scripts share.

A diagnostic with two definitions makes two curves incomparable, so each one is defined here and nowhere else.
"P1" is Mayor et al., ICML 2025 (arXiv 2506.03404), whose Appendix B names these metrics; the docstrings say where its text
is ambiguous and which reading is taken. "P3" is Beukman et al., 2026 (arXiv 2603.06009). docs/diagnostics.md says how to
read the numbers and how they mislead.

Rules that hold for every function:
- Input of any real dtype, on CPU or CUDA, with or without grad; the arithmetic is float64 (means over activations: at least
  float32), so autocast, bf16 and TF32 do not reach it. Inputs are never modified.
- Output is a Python float (or a dict or tuple of them). A diagnostic must not end a long run: NaN or inf in, or nothing to
  measure, gives NaN instead of an exception, unless the docstring says otherwise.
- No file, argument, logger or random number in sight. Python 3.8, for Isaac Gym.
"""

import math

import torch
import torch.nn as nn

# ---- rank of the features --------------------------------------------------------------------------------------------

GRAM_CHUNK = 4096  # rows cast to float64 at a time: 16 MB at D = 512, whatever the batch size
SPECTRUM_FLOOR = 1e-13  # of ||Phi||_F^2: above the rounding of a float64 Gram matrix, below what float32 features resolve
THRESHOLD_SLACK = 1e-12  # relative, so that an exact tie (99 of 100 equal directions at tau = .99) does not hang on rounding


def _gram_matrices(features):
    """features (N, D) -> Phi^T Phi and its column-centred version, (m, m) float64 on the CPU, m = min(N, D).

    The eigenvalues of Phi^T Phi and Phi Phi^T are the squared singular values of Phi, so the smaller one will do. Against an
    SVD this is several times faster and its memory does not grow with N. It squares the condition number, which float64
    affords and float32 does not: there the rounding alone moves srank from 30 to 46 on a rank-31 example.
    """
    num_rows, num_columns = features.shape
    wide = num_rows < num_columns
    matrix = features.t() if wide else features
    gram = torch.zeros(matrix.shape[1], matrix.shape[1], dtype=torch.float64, device=features.device)
    total = torch.zeros(matrix.shape[1], dtype=torch.float64, device=features.device)
    for chunk in matrix.split(GRAM_CHUNK):
        chunk = chunk.double()
        gram.addmm_(chunk.t(), chunk)
        total += chunk.sum(0)
    # On the CPU from here: 2 MB at D = 512, and LAPACK is as fast as cuSOLVER at this size and deterministic.
    gram, total = gram.cpu(), total.cpu()
    if wide:  # columns of `matrix` are samples: centre both sides of Phi Phi^T
        centered = gram - gram.mean(0, keepdim=True) - gram.mean(1, keepdim=True) + gram.mean()
    else:  # rows of `matrix` are samples: Phi^T Phi - N mu mu^T
        centered = gram - torch.outer(total, total) / num_rows
    return gram, centered


def _singular_values(gram, energy):
    """(m, m) Gram matrix -> (m,) singular values, descending; all NaN where there is no answer.

    `energy` is the trace of the *uncentred* Gram matrix: what centring leaves of constant features is rounding relative to it.
    """
    if not math.isfinite(energy):  # eigvalsh raises on NaN
        return torch.full((1,), math.nan, dtype=torch.float64)
    try:
        eigenvalues = torch.linalg.eigvalsh(gram).flip(0)
    except torch.linalg.LinAlgError:  # did not converge: lose the point, not the run
        return torch.full((1,), math.nan, dtype=torch.float64)
    return torch.where(eigenvalues > SPECTRUM_FLOOR * energy, eigenvalues, torch.zeros_like(eigenvalues)).sqrt()


def _spectrum(features, centered=False):
    if features.numel() == 0:
        return torch.full((1,), math.nan, dtype=torch.float64)
    gram, centered_gram = _gram_matrices(features)
    return _singular_values(centered_gram if centered else gram, gram.trace().item())


def _num_directions(weights, share):
    """Smallest k such that the k largest of `weights` (descending) hold `share` of their sum; 0 if the sum is 0."""
    total = weights.sum().item()
    if math.isnan(total):
        return math.nan
    if total == 0.0:
        return 0.0
    short = (weights.cumsum(0) < share * total * (1.0 - THRESHOLD_SLACK)).sum().item()
    return float(min(short + 1, len(weights)))


def _effective_rank(singular_values):
    total = singular_values.sum().item()
    if math.isnan(total):
        return math.nan
    if total == 0.0:
        return 0.0
    shares = singular_values[singular_values > 0.0] / total
    return math.exp(-(shares * shares.log()).sum().item())


@torch.no_grad()
def feature_rank(features, tau=0.99, centered=False):
    """Directions that hold a share `tau` of the squared singular values (approximate rank; P1 B.1, Yang et al. 2019).

    features (N, D): penultimate activations after the ReLU. A whole number from 1 to min(N, D); 0 for an all-zero matrix.
    At tau = .99 a perfectly isotropic layer of 512 units reaches 507.

    P1 says "principal components" and "total variance", which would centre the columns; the code it cites (Moalla et al. 2024)
    does not, and neither does the default here. The mean of ReLU features is one large direction that takes most of the
    uncentred energy, so the two can differ by a lot: `centered=True` is the rank in the sense of PCA. The rank grows with N
    for one and the same network: compare it at equal N only.
    """
    return _num_directions(_spectrum(features, centered).square(), tau)


@torch.no_grad()
def srank(features, delta=0.01):
    """Directions that hold a share 1 - delta of the singular values, not squared (Kumar et al. 2021); not the stable rank.

    features (N, D), uncentred. From feature_rank(features, 1 - delta) to min(N, D); 0 for an all-zero matrix.
    """
    return _num_directions(_spectrum(features), 1.0 - delta)


@torch.no_grad()
def effective_rank(features):
    """exp of the entropy of the normalised singular values, not squared (Roy & Vetterli 2007).

    features (N, D), uncentred. In [1, min(N, D)] and without a threshold; 0 for an all-zero matrix.
    """
    return _effective_rank(_spectrum(features))


@torch.no_grad()
def feature_ranks(features, tau=0.99, delta=0.01):
    """All of the above from one Gram matrix, for logging. features (N, D) -> dict; `rows` is N, which bounds every rank."""
    values = centered_values = torch.full((1,), math.nan, dtype=torch.float64)
    if features.numel() > 0:
        gram, centered_gram = _gram_matrices(features)
        energy = gram.trace().item()
        values, centered_values = _singular_values(gram, energy), _singular_values(centered_gram, energy)
    return {
        "feature_rank": _num_directions(values.square(), tau),
        "feature_rank/centered": _num_directions(centered_values.square(), tau),
        "feature_rank/srank": _num_directions(values, 1.0 - delta),
        "feature_rank/effective_rank": _effective_rank(values),
        "feature_rank/rows": float(features.shape[0]),
    }


# ---- dormant neurons -------------------------------------------------------------------------------------------------


@torch.no_grad()
def unit_activity(activation):
    """Mean |h| of each unit over the batch and, for a conv layer, over space: (N, units, ...) -> (units,) float64.

    A conv unit is a channel, as in Sokar et al.'s code. Not linear in h but linear in |h|: the activity of a large batch is
    the row-weighted mean of the activities of its chunks, so no script has to hold the activations of a whole batch.
    """
    wide = activation.to(torch.promote_types(activation.dtype, torch.float32))  # a bf16 mean would lose the small ones
    return wide.abs().mean(dim=[0] + list(range(2, wide.dim()))).double()


def _percent_of_units(activations, is_dormant):
    dormant = units = 0
    for activation in activations:
        activity = unit_activity(activation)
        if not torch.isfinite(activity).all():  # every comparison with NaN is False: it would count as alive
            return math.nan
        dormant += is_dormant(activity).sum().item()
        units += activity.numel()
    return 100.0 * dormant / units if units else math.nan


@torch.no_grad()
def dormant_neurons(activations, eps=1e-5):
    """Percent of units whose mean |h| is below `eps` (P1 B.2).

    activations: list of post-activation layers (N, units, ...), units on axis 1, averaged by `unit_activity`. The percentage
    is over the units of all layers together (NatureCNN: 32 + 64 + 64 + 512). A layer may be given as one row (1, units) of mean
    |h| accumulated over chunks: the answer is that of the full batch.

    P1 writes "following Sokar et al." but does not divide by the layer's mean, and does not define a_i over a batch or a conv
    channel; the mean |h| is Sokar's. Without the division the number depends on the scale of the activations, hence on the
    weight norm: see `dormant_neurons_tau`. For ReLU-like units only; |h| says nothing about a saturated tanh.
    """
    return _percent_of_units(activations, lambda activity: activity < eps)


@torch.no_grad()
def dormant_neurons_tau(activations, tau):
    """Percent of tau-dormant units: mean |h| <= tau times the mean over the layer's units (Sokar et al. 2023, eq. 1).

    Same input as `dormant_neurons`, chunk averages included. Invariant to a positive rescaling of any layer. tau = 0 counts the
    units that are zero on every row, which can only be fewer on a larger batch. A layer that is dead throughout counts
    as 100 % (a score of 0/0 would count as 0 %): hence the comparison without a division.
    """
    return _percent_of_units(activations, lambda activity: activity <= tau * activity.mean())


@torch.no_grad()
def zero_fraction(activations):
    """Probability, in [0, 1], that a unit is exactly zero at a random row (and position): sparsity, not dormancy.

    Same list of layers, every unit of every layer weighing the same, so that it is at least dormant_neurons_tau(., 0) / 100. It
    needs the activations themselves: chunk averages do not know it. A good sparse code and a dying layer look alike here.
    """
    zeros, units = 0.0, 0
    for activation in activations:
        if activation.numel() == 0 or not torch.isfinite(activation).all():
            return math.nan
        zeros += activation.shape[1] * (1.0 - torch.count_nonzero(activation).item() / activation.numel())
        units += activation.shape[1]
    return zeros / units if units else math.nan


# ---- weight norm -----------------------------------------------------------------------------------------------------

NORMALIZATION_LAYERS = (
    nn.LayerNorm, nn.GroupNorm, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm,
)  # fmt: skip


def _root_of_sum(squares):
    total = math.fsum(squares) if squares else math.nan
    return math.sqrt(total) if math.isfinite(total) else math.nan


def _sums_of_squares(parameters):
    squares = [torch.linalg.vector_norm(p, dtype=torch.float64).square() for p in parameters]
    return torch.stack(squares).tolist() if squares else []  # one transfer from the device, not one per parameter


@torch.no_grad()
def weight_norm(parameters):
    """Euclidean norm of all entries of an iterable of tensors, e.g. model.parameters(): weights and biases (P1 B.3).

    P1 speaks of "the weights of the layer" but draws one curve; this is the norm of them all, as in Moalla et al. 2024.
    """
    return _root_of_sum(_sums_of_squares(parameters))


@torch.no_grad()
def weight_norms(model):
    """The norm of a model's trainable parameters and its parts: module -> dict of floats.

    "weight_norm" is the total, "weight_norm/<layer>" the part of each submodule that owns parameters (dots become underscores;
    a parameter of the model itself, such as actor_logstd, goes by its own name), so total^2 = sum of layer^2. A shared
    parameter counts once, in the first layer that owns it. With normalisation layers there are also
    "weight_norm/normalization" and "weight_norm/without_normalization": the gains of LayerNorm start at one each, and those
    of PQN's Atari network alone have a norm of 147 at initialisation, which hides the 37 of everything else.
    """
    layers, owners, normalization, seen = [], [], [], set()
    for module_name, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad and id(parameter) not in seen:
                seen.add(id(parameter))
                owner = (module_name or name).replace("_orig_mod.", "")  # torch.compile's wrapper: same tags with and without
                owners.append(name if owner == "_orig_mod" else owner.replace(".", "_"))
                normalization.append(isinstance(module, NORMALIZATION_LAYERS))
                layers.append(parameter)
    squares = _sums_of_squares(layers)
    norms = {"weight_norm": _root_of_sum(squares)}
    for owner in dict.fromkeys(owners):  # in the order of the model
        norms["weight_norm/" + owner] = _root_of_sum([s for s, o in zip(squares, owners) if o == owner])
    if any(normalization):
        norms["weight_norm/normalization"] = _root_of_sum([s for s, n in zip(squares, normalization) if n])
        norms["weight_norm/without_normalization"] = _root_of_sum([s for s, n in zip(squares, normalization) if not n])
    return norms


# ---- gradient kurtosis -----------------------------------------------------------------------------------------------


def _gradient_magnitudes(gradients):
    flat = [gradient.flatten() for gradient in gradients if gradient is not None]
    return torch.cat(flat).double().abs_() if flat else torch.zeros(0, dtype=torch.float64)  # cat copies: in place is safe


def _kurtosis(values):
    """Pearson kurtosis with population moments; overwrites `values`. NaN if the variance is below 1e-24, or NaN."""
    square = values.sub_(values.mean()).square_()
    variance = square.mean().item()
    return torch.dot(square, square).item() / len(square) / variance**2 if variance >= 1e-24 else math.nan


def _nonzero_kurtosis(magnitudes):
    return _kurtosis(magnitudes.masked_select(magnitudes > 0.0).log_())


def _zero_fraction(magnitudes):
    if not math.isfinite(magnitudes.sum().item()) or len(magnitudes) == 0:
        return math.nan
    return 1.0 - torch.count_nonzero(magnitudes).item() / len(magnitudes)


@torch.no_grad()
def gradient_kurtosis(gradients, eps=1e-8):
    """Kurtosis of L = ln(|g| + eps) over all entries g of one gradient (P1 B.4): mean((L - mu)^4) / mean((L - mu)^2)^2.

    gradients: an iterable of tensors, e.g. (p.grad for p in model.parameters()), None skipped, pooled into one vector. Pearson's
    (a normal L gives 3), at least 1. NaN where L is constant (Var(L) < 1e-24): all-zero or all-equal gradients.

    P1 calls sigma_L the variance and divides by sigma_L^4: sigma_L is read as the standard deviation. P1 gives neither eps nor
    the pooling nor the minibatch. P1 also reads high values as heavy tails; after the logarithm that does not follow. The fourth
    moment of L is dominated by gradients near zero, and as eps -> 0 a Gaussian g gives 7, Student's t3 6, Laplace 5.4, Cauchy 5.
    Exact zeros (dead units) form a spike at ln eps that raises it or, in numbers, lowers it: read it beside
    `gradient_kurtosis_nonzero` and `gradient_zero_fraction`. Invariant to the scale of g only where |g| >> eps.
    """
    return _kurtosis(_gradient_magnitudes(gradients).add_(eps).log_())


@torch.no_grad()
def gradient_kurtosis_nonzero(gradients):
    """Kurtosis of ln |g| over the entries that are not exactly zero: no eps, hence scale-free and blind to dead units."""
    return _nonzero_kurtosis(_gradient_magnitudes(gradients))


@torch.no_grad()
def gradient_zero_fraction(gradients):
    """Fraction, in [0, 1], of the entries of a gradient that are exactly zero."""
    return _zero_fraction(_gradient_magnitudes(gradients))


@torch.no_grad()
def gradient_statistics(gradients, eps=1e-8):
    """The three above with one copy of the gradient, for logging: iterable of tensors -> dict of floats."""
    magnitudes = _gradient_magnitudes(gradients)
    return {
        "gradient_kurtosis/zero_fraction": _zero_fraction(magnitudes),
        "gradient_kurtosis/nonzero": _nonzero_kurtosis(magnitudes),
        "gradient_kurtosis": _kurtosis(magnitudes.add_(eps).log_()),  # last: overwrites
    }


# ---- importance ratios -----------------------------------------------------------------------------------------------


@torch.no_grad()
def effective_sample_size(log_ratio):
    """(sum r)^2 / sum r^2, in samples, from 1 to N (P1 B.5, Martino et al. 2017). r = pi_new(a|s) / pi_behavior(a|s).

    log_ratio: ln r of each sample, any shape; sum the log-probabilities over action dimensions first. It is shifted by its
    maximum (r -> c r changes nothing), so it cannot overflow. -inf is a weight of zero, but not all may be; +inf or NaN
    gives NaN. Equal ratios give exactly N: before the first update anything else is a mismatch between rollout and update.
    It measures the spread of the weights, 1 / (1 + CV^2), and knows nothing of the correlation along a trajectory.
    """
    log_weights = log_ratio.double().flatten()
    largest = log_weights.max().item() if log_weights.numel() > 0 else math.nan  # NaN wins a max
    if not math.isfinite(largest):
        return math.nan
    weights = (log_weights - largest).exp()
    ess = weights.sum().item() ** 2 / torch.dot(weights, weights).item()
    return min(max(ess, 1.0), float(len(weights)))  # rounding only


@torch.no_grad()
def effective_sample_size_percent(log_ratio):
    """100 ESS / N, in (0, 100] (P1 B.5): the version to compare across batch sizes. log_ratio as above."""
    return 100.0 * effective_sample_size(log_ratio) / max(log_ratio.numel(), 1)


@torch.no_grad()
def kl_behavior(log_ratio):
    """KL(pi_behavior || pi_new) in nats, estimated on actions of pi_behavior by k3 = mean((r - 1) - ln r), r = pi_new / pi_behavior.

    log_ratio: ln r, any shape. Unbiased and never negative, term by term (Schulman's "Approximating KL divergence", 2020).
    P3 does not state its direction or estimator. NaN if any ln r is not finite, or so large that r overflows.
    """
    log_ratio = log_ratio.double()
    kl = (torch.expm1(log_ratio) - log_ratio).mean().item()
    return kl if math.isfinite(kl) else math.nan


def ddr(num_samples, kl):
    """Data-to-divergence ratio: samples per nat of divergence from the behaviour policy (P3, sec. 4, fig. 8).

    num_samples: transitions collected for this update, each counted once whatever the number of epochs. kl: `kl_behavior`. To
    aggregate, divide the sums; the mean of ratios is led by the iterations that hardly moved. NaN if kl is not finite.
    """
    kl = float(kl)
    if not math.isfinite(kl):
        return math.nan
    return float(num_samples) / max(kl, 1e-12)  # below about 1e-13 the k3 of float32 log-probabilities is rounding


# ---- variance of the policy ------------------------------------------------------------------------------------------


def _variance_over_states(values):
    """(B, K) -> mean and population variance (1/B, as P1; Moalla et al. use 1/(B - 1)) of each column, float64."""
    values = values.double()
    mean = values.mean(0)
    return mean, (values - mean).square().mean(0)


@torch.no_grad()
def policy_variance(probs):
    """Variance over states of each action's probability, averaged over actions (P1 B.6). probs (B, A), rows summing to 1.

    In [0, (A - 1) / A^2], so it shrinks with the number of actions. It measures how much the policy depends on the state: 0 if it
    is the same everywhere, be it uniform or collapsed onto one action. Neither entropy nor change between updates.
    """
    variance = _variance_over_states(probs)[1].mean().item()
    return variance if math.isfinite(variance) else math.nan


@torch.no_grad()
def policy_variance_normalized(probs):
    """Share, in [0, 1], of the variance of the (one-hot) action that the state explains: comparable across numbers of actions.

    probs (B, A). sum_a Var_s[p_a] / sum_a m_a (1 - m_a) with m = E_s[p], the law of total variance; the denominator is
    1 - ||m||^2. 0 where it is 0, i.e. one action always.
    """
    mean, variance = _variance_over_states(probs)
    explained, total = variance.sum().item(), (mean * (1.0 - mean)).sum().item()
    if not math.isfinite(explained):
        return math.nan
    return explained / total if total > 0.0 else 0.0


@torch.no_grad()
def gaussian_policy_variance(mean, std):
    """The same two for a Gaussian policy: mean (B, K), std broadcastable to it, -> (v, R).

    v = mean over dimensions of Var_s[mean], in squared action units: give actions scaled to one range. R = v / (v + E[std^2]), in
    [0, 1] and scale-free, is the share of the action's variance that the state explains; 0 if there is no variance.
    P1 B.6 is for discrete actions. Moalla et al. average the variances of mean and std, which with a state-independent std is v/2.
    """
    variance = _variance_over_states(mean)[1].mean().item()
    noise = std.double().square().expand_as(mean).mean().item()
    if not math.isfinite(variance + noise):
        return math.nan, math.nan
    return variance, (variance / (variance + noise) if variance > 0.0 else 0.0)


# ---- coverage --------------------------------------------------------------------------------------------------------


@torch.no_grad()
def coverage(points, grid):
    """Fraction of the grid x grid cells of the unit square that hold a point (P1 B.7).

    points (N, 2) in [0, 1]; 1.0 belongs to the last cell and a point outside to the nearest. 0 if there is none, NaN if one
    is not finite. P1 does not give the grid. Uniform points give 1 - (1 - 1/grid^2)^N: compare at equal N and in one
    embedding with one bounding box only.
    """
    if points.numel() == 0:
        return 0.0
    if not torch.isfinite(points).all():
        return math.nan
    cells = (points.double() * grid).floor().clamp(0, grid - 1).long()
    return (cells[:, 0] * grid + cells[:, 1]).unique().numel() / float(grid * grid)
