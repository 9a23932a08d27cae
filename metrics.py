"""What a number means: learning-dynamics diagnostics as pure functions of tensors.

A diagnostic with two definitions makes two curves incomparable, so each is defined here and nowhere else. "P1" is Mayor
et al., ICML 2025 (arXiv 2506.03404), whose Appendix B names them; "P3" is Beukman et al., 2026 (arXiv 2603.06009).
Docstrings give the definition and the reading taken where a paper is ambiguous; docs/diagnostics.md says how the
numbers mislead.

Rules that hold for every function:
- Input of any real dtype, on CPU or CUDA, with or without grad, is left as it is. The arithmetic is float64 (means over
  activations: at least float32), so bf16, autocast and TF32 do not reach it.
- Output is a Python float (or a dict or tuple of them). A diagnostic must not end a long run: NaN or inf in, or nothing
  to measure, gives NaN instead of an exception, unless the docstring says otherwise.
- Python 3.8, for Isaac Gym.
"""

import math

import torch

BATCH_NORMS = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d, torch.nn.SyncBatchNorm)
NORMALIZATION_LAYERS = (torch.nn.LayerNorm, torch.nn.GroupNorm) + BATCH_NORMS
GRAM_CHUNK = 4096  # rows cast to float64 at a time: 16 MB at D = 512, whatever the batch size
SPECTRUM_FLOOR = 1e-13  # of ||Phi||_F^2: above the rounding of a float64 Gram matrix, below what float32 features hold
THRESHOLD_SLACK = 1e-12  # relative, so that a tie (99 of 100 equal directions at tau = .99) does not hang on rounding


def _finite(value):
    return value if math.isfinite(value) else math.nan


# ---- feature rank ----------------------------------------------------------------------------------------------------
def _spectra(features, *centerings):
    """(N, D) -> for each flag in `centerings` the min(N, D) singular values, descending float64; [NaN] if undefined.

    The squared singular values are the eigenvalues of Phi^T Phi, or of the smaller Phi Phi^T if N < D. One pass over
    the rows serves every definition, faster than an SVD and in memory that does not grow with N. It squares the
    condition number, which float64 affords and float32 does not (there rounding alone moves an srank of 30 to 46).
    """
    undefined = torch.full((1,), math.nan, dtype=torch.float64)
    if features.numel() == 0:
        return [undefined for _ in centerings]
    num_rows, num_columns = features.shape
    matrix = features.detach() if num_rows >= num_columns else features.detach().t()
    gram, total = 0.0, 0.0
    for chunk in matrix.split(GRAM_CHUNK):
        chunk = chunk.double()
        gram, total = gram + chunk.t() @ chunk, total + chunk.sum(0)
    gram, total = gram.cpu(), total.cpu()  # at this size LAPACK is as fast as cuSOLVER, and deterministic
    energy = gram.trace().item()
    if not math.isfinite(energy):  # eigvalsh raises on NaN
        return [undefined for _ in centerings]
    spectra = []
    for centered in centerings:
        if not centered:
            centered_gram = gram
        elif num_rows >= num_columns:
            centered_gram = gram - torch.outer(total, total) / num_rows  # Phi^T Phi - N mu mu^T
        else:  # both sides of Phi Phi^T index samples
            centered_gram = gram - gram.mean(0, keepdim=True) - gram.mean(1, keepdim=True) + gram.mean()
        try:
            eigenvalues = torch.linalg.eigvalsh(centered_gram).flip(0)
        except torch.linalg.LinAlgError:  # did not converge: lose the point, not the run
            spectra.append(undefined)
            continue
        # The floor refers to the uncentred energy: what centring leaves of constant features is rounding of that size.
        spectra.append(eigenvalues.where(eigenvalues > SPECTRUM_FLOOR * energy, torch.zeros_like(eigenvalues)).sqrt())
    return spectra


def _num_directions(weights, share):
    """Smallest k such that the first k of the descending `weights` hold `share` of their sum; 0 if the sum is 0."""
    total = weights.sum().item()
    if not total > 0.0:
        return total  # 0 or NaN
    short = (weights.cumsum(0) < share * total * (1.0 - THRESHOLD_SLACK)).sum().item()
    return float(min(short + 1, len(weights)))


def _entropy_rank(singular_values):
    total = singular_values.sum().item()
    if not total > 0.0:
        return total  # 0 or NaN
    shares = singular_values[singular_values > 0.0] / total
    return math.exp(-(shares * shares.log()).sum().item())


def feature_rank(features, tau=0.99, centered=False):
    """Number of directions that hold a share `tau` of the squared singular values (P1 B.1, after Yang et al. 2019).

    features (N, D): penultimate activations after the ReLU. From 1 to min(N, D), and 0 for an all-zero matrix.

    P1 says "principal components" and "total variance", which would centre the columns; the code it cites (Moalla et
    al. 2024) does not, nor does this by default. The mean of ReLU features is one large direction that takes most of
    the energy, so the two can differ by a lot; `centered=True` is the rank in the sense of PCA. For one and the same
    network the rank grows with N: compare at equal N only.
    """
    (singular_values,) = _spectra(features, centered)
    return _num_directions(singular_values.square(), tau)


def srank(features, delta=0.01):
    """Number of directions that hold a share 1 - delta of the singular values, not squared (Kumar et al. 2021).

    features (N, D). From feature_rank(features, 1 - delta) to min(N, D), and 0 for an all-zero matrix. Not the "stable
    rank" of linear algebra.
    """
    (singular_values,) = _spectra(features, False)
    return _num_directions(singular_values, 1.0 - delta)


def effective_rank(features):
    """exp of the entropy of the singular values, not squared, divided by their sum (Roy & Vetterli 2007).

    features (N, D). In [1, min(N, D)] and without a threshold; 0 for an all-zero matrix.
    """
    (singular_values,) = _spectra(features, False)
    return _entropy_rank(singular_values)


def feature_ranks(features, tau=0.99, delta=0.01):
    """The ranks above from one Gram matrix, for logging: (N, D) -> dict. `rows` is N, which bounds and biases them."""
    singular_values, centered_values = _spectra(features, False, True)
    return {
        "feature_rank": _num_directions(singular_values.square(), tau),
        "feature_rank/centered": _num_directions(centered_values.square(), tau),
        "feature_rank/srank": _num_directions(singular_values, 1.0 - delta),
        "feature_rank/effective_rank": _entropy_rank(singular_values),
        "feature_rank/rows": float(features.shape[0]),
    }


# ---- dormant neurons -------------------------------------------------------------------------------------------------
def unit_activity(activation):
    """Mean |h| of each unit over the batch and, in a conv layer, over space: (N, units, ...) -> (units,) float64.

    A conv unit is a channel, as in Sokar et al.'s code. The mean over a batch is the row-weighted mean over its chunks,
    so a script can accumulate it and need not hold the activations of a whole batch (11 GB at 131072 Atari frames).
    """
    h = activation.detach().to(torch.promote_types(activation.dtype, torch.float32))
    return h.abs().mean(dim=[0] + list(range(2, h.dim()))).double()


def _percent_of_units(activations, is_dormant):
    dormant = units = 0
    for activation in activations:
        activity = unit_activity(activation)
        if not math.isfinite(activity.sum().item()):  # every comparison with NaN is False: it would count as alive
            return math.nan
        dormant += is_dormant(activity).sum().item()
        units += activity.numel()
    return 100.0 * dormant / units if units > 0 else math.nan


def dormant_neurons(activations, eps=1e-5):
    """Percent of the units of all layers whose mean |h| is below `eps` (P1 B.2).

    activations: list of post-activation layers (N, units, ...), units on axis 1, averaged by `unit_activity`. A layer
    may be one row (1, units) of mean |h| that was accumulated over chunks: the answer is that of the full batch.

    P1 says "following Sokar et al." but does not divide by the layer's mean, and leaves a_i open for a batch and a conv
    channel; mean |h| is Sokar's. Undivided, it depends on the scale of the activations, hence on the weight norm. For
    ReLU-like units only: |h| says nothing of a saturated tanh.
    """
    return _percent_of_units(activations, lambda activity: activity < eps)


def dormant_neurons_tau(activations, tau):
    """Percent of tau-dormant units: mean |h| <= tau times the mean over the units of the layer (Sokar et al. 2023).

    Input as for `dormant_neurons`, chunk averages included. Invariant to a positive rescaling of a layer. tau = 0
    counts the units that are zero on every row, which more rows can only lower. The product instead of the score's
    quotient makes an all-dead layer count as 100 %, where 0/0 would count as 0 %.
    """
    return _percent_of_units(activations, lambda activity: activity <= tau * activity.mean())


def zero_fraction(activations):
    """Probability in [0, 1] that a random unit is exactly zero at a random row and position: sparsity, not dormancy.

    A list of layers (N, units, ...) as above; each unit of each layer weighs the same, so it is at least
    dormant_neurons_tau(activations, 0) / 100. It needs the activations themselves: averages have lost it. Over chunks,
    average it weighted by rows.
    """
    zeros = units = 0.0
    for activation in activations:
        h = activation.detach()
        if h.numel() == 0 or not all(math.isfinite(extreme.item()) for extreme in torch.aminmax(h)):
            return math.nan
        zeros += h.shape[1] * torch.count_nonzero(h == 0).item() / h.numel()
        units += h.shape[1]
    return zeros / units if units > 0.0 else math.nan


# ---- weight norm -----------------------------------------------------------------------------------------------------
def weight_norm(parameters):
    """Euclidean norm of all entries of an iterable of tensors, e.g. model.parameters(): weights and biases (P1 B.3).

    P1 says "the weights of the layer" but draws one curve; this is the norm of them all, as in Moalla et al. 2024.
    """
    flat = [parameter.detach().double().flatten() for parameter in parameters]
    return _finite(math.sqrt(sum(torch.dot(p, p).item() for p in flat))) if any(map(len, flat)) else math.nan


def weight_norms(model):
    """Norms of the trainable parameters of a module and of its parts, for logging: dict of floats.

    "weight_norm" is the total and "weight_norm/<layer>" each submodule that owns parameters, dots turned into
    underscores (a parameter of the model itself, such as actor_logstd, goes by its own name): total^2 = sum of layer^2.
    A shared parameter counts once, where it is met first. Normalisation layers, if any, add "weight_norm/normalization"
    and "weight_norm/without_normalization": a gain starts at 1, and the 21632 gains of CleanRL's PQN (norm 147) hide
    the rest (37).
    """
    parts, seen = {"weight_norm": []}, set()
    for module_name, module in model.named_modules():
        path = [word for word in module_name.split(".") if word != "_orig_mod"]  # what torch.compile puts in between
        kind = "normalization" if isinstance(module, NORMALIZATION_LAYERS) else "without_normalization"
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad and id(parameter) not in seen:
                seen.add(id(parameter))
                for part in ("", "/" + ("_".join(path) or name), "/" + kind):
                    parts.setdefault("weight_norm" + part, []).append(parameter)
    if "weight_norm/normalization" not in parts:
        parts.pop("weight_norm/without_normalization", None)
    return {part: weight_norm(parameters) for part, parameters in parts.items()}


# ---- gradient kurtosis -----------------------------------------------------------------------------------------------
def _magnitudes(gradients):
    flat = [gradient.detach().flatten() for gradient in gradients if gradient is not None]
    return torch.cat(flat).double().abs_() if flat else torch.zeros(0, dtype=torch.float64)  # in place: cat has copied


def _kurtosis(values):
    """Pearson kurtosis with population moments, 3 for a normal; overwrites `values`. NaN if they are constant."""
    square = values.sub_(values.mean()).square_()
    variance = square.mean().item()
    return torch.dot(square, square).item() / len(square) / variance**2 if variance >= 1e-24 else math.nan


def _nonzero_kurtosis(magnitudes):
    return _kurtosis(magnitudes.masked_select(magnitudes != 0.0).log_())


def _zero_fraction(magnitudes):
    if len(magnitudes) == 0 or not math.isfinite(magnitudes.sum().item()):
        return math.nan
    return torch.count_nonzero(magnitudes == 0.0).item() / len(magnitudes)


def gradient_kurtosis(gradients, eps=1e-8):
    """Kurtosis of L = ln(|g| + eps) over all entries g of one gradient (P1 B.4): mean((L - mu)^4) / mean((L - mu)^2)^2.

    gradients: an iterable of tensors, e.g. (p.grad for p in model.parameters()), None skipped, pooled into one vector.
    At least 1; 3 for a normal L; NaN for a constant L (Var(L) < 1e-24), so for all-zero gradients.

    P1 calls sigma_L the variance yet divides by sigma_L^4: read it as the standard deviation. Eps, pooling and
    minibatch are not given. "High kurtosis = heavy tails" does not follow after the logarithm: K is led by the
    gradients near zero, and as eps -> 0 a Gaussian g gives 7, Student's t3 6, Laplace 5.4, Cauchy 5. Exact zeros (dead
    units) are a spike at ln(eps) that raises it if they are few or many and lowers it in between, so read it beside the
    two below. Scale-free if |g| >> eps only.
    """
    return _kurtosis(_magnitudes(gradients).add_(eps).log_())


def gradient_kurtosis_nonzero(gradients):
    """Kurtosis of ln|g| over the entries that are not exactly zero: no eps, hence scale-free; blind to dead units."""
    return _nonzero_kurtosis(_magnitudes(gradients))


def gradient_zero_fraction(gradients):
    """Fraction, in [0, 1], of the entries of a gradient that are exactly zero. gradients: as above."""
    return _zero_fraction(_magnitudes(gradients))


def gradient_statistics(gradients, eps=1e-8):
    """The three above from one copy of the gradient, for logging: iterable of tensors -> dict of floats."""
    magnitudes = _magnitudes(gradients)
    zeros, nonzero = _zero_fraction(magnitudes), _nonzero_kurtosis(magnitudes)  # first: the next line overwrites
    kurtosis = _kurtosis(magnitudes.add_(eps).log_())
    return {
        "gradient_kurtosis": kurtosis,
        "gradient_kurtosis/nonzero": nonzero,
        "gradient_kurtosis/zero_fraction": zeros,
    }


# ---- importance ratios: effective sample size and divergence ---------------------------------------------------------
def effective_sample_size(log_ratio):
    """(sum r)^2 / sum r^2, in samples, from 1 to N (P1 B.5, Martino et al. 2017).

    log_ratio: ln r, r = pi_new(a|s) / pi_behavior(a|s), any shape, one per sample (sum over action dimensions first).
    Its maximum is taken off, so nothing overflows. -inf is a weight of 0, but not all may be; +inf or NaN gives NaN.
    Equal ratios give exactly N. It is N / (1 + CV^2), the spread of the weights; correlation in time is not in it.
    """
    log_weights = log_ratio.detach().double().flatten()
    largest = log_weights.max().item() if len(log_weights) > 0 else math.nan  # NaN wins a max
    if not math.isfinite(largest):
        return math.nan
    weights = (log_weights - largest).exp()
    ess = weights.sum().item() ** 2 / torch.dot(weights, weights).item()
    return min(max(ess, 1.0), float(len(weights)))  # against rounding only


def effective_sample_size_percent(log_ratio):
    """100 ESS / N (P1 B.5), in [100 / N, 100]: the one to compare across batch sizes. log_ratio: as above."""
    return 100.0 * effective_sample_size(log_ratio) / max(log_ratio.numel(), 1)


def kl_behavior(log_ratio):
    """KL(pi_behavior || pi_new) in nats, by k3 = mean((r - 1) - ln r), r = pi_new(a|s) / pi_behavior(a|s).

    log_ratio: ln r, any shape, for actions drawn from pi_behavior. Unbiased, and no term is negative (Schulman,
    "Approximating KL divergence", 2020). The choice is ours: P3 states neither direction nor estimator. NaN if any ln r
    is not finite, or too large for exp.
    """
    log_ratio = log_ratio.detach().double()
    return _finite((torch.expm1(log_ratio) - log_ratio).mean().item())


def ddr(num_samples, kl):
    """Data-to-divergence ratio: samples per nat of divergence from the behaviour policy (P3, fig. 8).

    num_samples: transitions collected for this update, counted once whatever the number of epochs (P3 does not say).
    kl: `kl_behavior`; NaN if not finite. To aggregate, divide the sums: a mean of ratios is led by the iterations that
    barely moved.
    """
    kl = float(kl)
    # The floor only keeps 0 out of the denominator: rounding of float32 log-probabilities alone gives k3 around 1e-14.
    return num_samples / max(kl, 1e-12) if math.isfinite(kl) else math.nan


# ---- policy variance -------------------------------------------------------------------------------------------------
def _moments_over_states(values):
    """(B, K) -> mean and population variance of each column, float64."""
    values = values.detach().double()
    mean = values.mean(0)
    return mean, (values - mean).square().mean(0)


def policy_variance(probs):
    """Variance over states (1/B) of each action's probability, averaged over the actions (P1 B.6). probs (B, A).

    In [0, (A - 1) / A^2], so it shrinks with A. It measures how far the policy depends on the state: 0 if it is the
    same everywhere, be it uniform or collapsed onto one action. Neither entropy nor change. Moalla et al.: 1/(B - 1).
    """
    _, variance = _moments_over_states(probs)
    return _finite(variance.mean().item())


def policy_variance_normalized(probs):
    """Share, in [0, 1], of the variance of the one-hot action that the state explains: comparable across A.

    probs (B, A). sum_a Var_s[p_a] / sum_a m_a (1 - m_a) with m = E_s[p], the law of total variance; the denominator is
    1 - ||m||^2. 0 where that is 0, i.e. one action always.
    """
    mean, variance = _moments_over_states(probs)
    explained, total = variance.sum().item(), (mean * (1.0 - mean)).sum().item()
    if not math.isfinite(explained):
        return math.nan
    return explained / total if total > 0.0 else 0.0


def gaussian_policy_variance(mean, std):
    """The two above for a Gaussian policy: mean (B, K), std broadcastable to it -> (v, R).

    v: Var_s[mean], averaged over the K dimensions; in squared action units, so scale the actions to one range.
    R = v / (v + mean of std^2), in [0, 1], scale-free: the share of the action's variance that the state explains; 0 if
    there is none. P1 B.6 is discrete. Moalla et al. average Var_s over mean and std; a state-independent std halves it.
    """
    _, variance = _moments_over_states(mean)
    explained, noise = variance.mean().item(), std.detach().double().square().expand(mean.shape).mean().item()
    if not math.isfinite(explained + noise):
        return math.nan, math.nan
    return explained, (explained / (explained + noise) if explained > 0.0 else 0.0)


# ---- coverage --------------------------------------------------------------------------------------------------------
def coverage(points, grid):
    """Fraction of the grid x grid cells of the unit square that hold a point (P1 B.7); P1 does not give the grid.

    points (N, 2) in [0, 1]: 1.0 is in the last cell, a point outside in the nearest. No points: 0. Uniform points give
    1 - (1 - 1/grid^2)^N, so compare at equal N, in one joint embedding with one bounding box.
    """
    if points.numel() == 0:
        return 0.0
    points = points.detach().double()
    if not torch.isfinite(points).all():
        return math.nan
    cells = (points * grid).floor().clamp(0, grid - 1).long()
    return len((cells[:, 0] * grid + cells[:, 1]).unique()) / float(grid * grid)


# ---- what the scripts log, and on which rows -------------------------------------------------------------------------
def explained_variance(values, returns):
    """1 - Var(returns - values) / Var(returns) of two (M,) tensors: 1 is a perfect critic, 0 as good as a constant.

    NaN if all returns are equal.
    """
    returns = returns.detach().double()
    _, residual = _moments_over_states(returns - values.detach().double())
    _, total = _moments_over_states(returns)
    return _finite(1.0 - residual.item() / total.item()) if total.item() > 0.0 else math.nan


def network_diagnostics(features, activity):
    """Ranks and dormant units as the scripts log them: {name: value}.

    `features`: the (M, D) representation of each encoder; those of the first keep the plain names, a second encoder's
    stand under `feature_rank/critic_encoder`. `activity`: mean |h| of every layer's units, each (1, units).
    """
    out = {"dormant_neurons": dormant_neurons(activity)}
    for tau in (0.0, 0.025, 0.1):  # the thresholds of Sokar et al. 2023
        out["dormant_neurons/tau_%g" % tau] = dormant_neurons_tau(activity, tau)
    for encoder, feature in zip(("", "/critic_encoder"), features):
        for name, value in feature_ranks(feature).items():
            out[name.replace("feature_rank", "feature_rank" + encoder, 1)] = value
    return out


@torch.no_grad()
def diagnose_network(forward, inds, chunk=2048, deviation=False):
    """Looks at rows of a batch through a network, by chunks, so that no layer's output is held for more than one.

    `forward` maps row numbers (m,) to a pair: any output (m, ...), and for each encoder the list of its post-activation
    layers, the last of them the representation (m, D). `inds` (M,) int64 are the rows. Returns the output of all rows
    (M, ...) and {name: value}: `network_diagnostics` and the fraction of activations that are exactly zero.

    With `deviation` a unit's activity is its standard deviation over the rows in place of mean |h|, and a dormant
    one has less than 1e-3: for Tanh and the like, where a unit that is saturated is silent though far from zero.
    Activations (M, units) only.
    """
    outputs, features, activity, zeros = [], [], [], 0.0
    for rows in inds.split(chunk):
        output, encoders = forward(rows)
        layers = [layer for encoder in encoders for layer in encoder]
        outputs.append(output)
        features.append([encoder[-1] for encoder in encoders])
        if deviation:
            sums = [layer.double() for layer in layers]
            activity.append([torch.stack([h.sum(0), h.square().sum(0)]) for h in sums])
        else:
            activity.append([unit_activity(layer) * len(rows) for layer in layers])
        zeros += zero_fraction(layers) * len(rows) / len(inds)
    features = [torch.cat(parts) for parts in zip(*features)]
    activity = [sum(sums) / len(inds) for sums in zip(*activity)]
    if deviation:
        activity = [(square - mean.square()).clamp(min=0.0).sqrt() for mean, square in activity]
    activity = [row[None] for row in activity]
    values = {**network_diagnostics(features, activity), "dormant_neurons/zero_fraction": zeros}
    if deviation:
        values["dormant_neurons"] = dormant_neurons(activity, eps=1e-3)
    return torch.cat(outputs), values


def merge_moments(moments, batch):
    """Joins the moments of what was seen before with those of a batch (Chan, Golub and LeVeque 1979).

    `moments` is (mean, variance, count); `batch` is a numpy array or a tensor whose first axis is joined, and whose
    other axes are those of mean and variance. Variances divide by the count. An empty batch changes nothing.
    """
    mean, var, count = moments
    if len(batch) == 0:
        return moments
    batch_mean = batch.mean(0)
    batch_var = ((batch - batch_mean) ** 2).mean(0)
    delta, total = batch_mean - mean, count + len(batch)
    squares = var * count + batch_var * len(batch) + delta**2 * (count * len(batch) / total)
    return mean + delta * (len(batch) / total), squares / total, total


def policy_diagnostics(probs, log_ratio):
    """Dispersion of a categorical policy and of its importance weights as the scripts log them: {name: value}.

    `probs` (M, A) under the updated policy, `log_ratio` (M,) of the actions taken, new over old.
    """
    return {
        "ess": effective_sample_size_percent(log_ratio),
        "ess/samples": effective_sample_size(log_ratio),
        "policy_variance": policy_variance(probs),
        "policy_variance/normalized": policy_variance_normalized(probs),
    }


def gaussian_policy_diagnostics(mean, std, log_ratio):
    """Dispersion of a Gaussian policy and of its importance weights as the scripts log them: {name: value}.

    `mean` (M, A) and `std` (1, A) or (M, A) under the updated policy, `log_ratio` (M,) of the actions taken, new over
    old.
    """
    variance, share = gaussian_policy_variance(mean, std)
    return {
        "ess": effective_sample_size_percent(log_ratio),
        "ess/samples": effective_sample_size(log_ratio),
        "policy_variance": variance,
        "policy_variance/normalized": share,
        "policy_variance/std": std.mean().item(),
    }


def stratified_rows(num_rows, size, seed):
    """Picks min(size, num_rows) different rows of a batch, one at random from each of that many equal stretches of it.

    A batch is time-major, so the sample covers time evenly and the environments without bias. Draws from a generator
    of its own, so that looking does not change a run. Returns sorted int64 indices on the CPU.
    """
    size = min(size, num_rows)
    jitter = torch.rand(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    edges = torch.arange(size + 1) * num_rows // max(size, 1)  # stretches of whole rows, none of them empty
    return edges[:-1] + (jitter * (edges[1:] - edges[:-1])).long()


def column_sums(x):
    """Count, sum and sum of squares of each column of x (M, D), float64 (3, D): they add up over batches, processes."""
    x = x.double()
    return torch.stack([torch.ones_like(x).sum(0), x.sum(0), x.square().sum(0)])
