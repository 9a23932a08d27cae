"""metrics.py against values worked out by hand, SciPy, and the properties that its definitions imply.

The hand-worked inputs are chosen where the definitions disagree, so that a test of one cannot pass with another.
"""

import math

import hypothesis.strategies as st
import pytest
import scipy.stats
import torch
import torch.nn as nn
from hypothesis import assume, given
from tensors import NAN, approx, factors, orthogonal, rand, randn, seeds, shuffled

import metrics
import ppo_atari_envpool
import pqn_atari_envpool


def ranks_of(features, tau=0.99, delta=0.01):
    """All ranks of a matrix by their tags, from one Spectrum; those of the raw matrix are the same."""
    values = metrics.spectrum(features)
    ranks = {
        "feature_rank": metrics.feature_rank(values, tau),
        "feature_rank/centered": metrics.feature_rank(values, tau, centered=True),
        "feature_rank/srank": metrics.srank(values, delta),
        "feature_rank/effective_rank": metrics.effective_rank(values),
    }
    raw = metrics.feature_rank(features, tau), metrics.feature_rank(features, tau, centered=True)
    raw += metrics.srank(features, delta), metrics.effective_rank(features)
    assert raw == approx(tuple(ranks.values()))
    return ranks


def norms_of(model):
    """weight_norm and that of each layer, as the scripts log them."""
    layers = metrics.parameters_by_layer(model)
    own = [p for p in model.parameters() if p.requires_grad]
    return {
        "weight_norm": metrics.weight_norm(own),
        **{f"weight_norm/{name}": metrics.weight_norm(layer) for name, layer in layers.items()},
    }


def activity_of_units(layer):
    (units,) = metrics.activity([layer]).of_units()
    return units.tolist()


# ---- inputs ----------------------------------------------------------------------------------------------------------


# name -> (call on one float tensor of shape (6, 3), does zeros((6, 3)) have an answer)
ON_ONE_TENSOR = {
    "feature_rank": metrics.feature_rank,
    "feature_rank, centered": lambda x: metrics.feature_rank(x, centered=True),
    "srank": metrics.srank,
    "effective_rank": metrics.effective_rank,
    "dormant_neurons": lambda x: metrics.dormant_neurons([x]),
    "dormant_neurons_tau": lambda x: metrics.dormant_neurons_tau([x], 0.1),
    "zero_fraction": lambda x: metrics.zero_fraction([x]),
    "weight_norm": lambda x: metrics.weight_norm([x]),
    "gradient_kurtosis": lambda x: metrics.gradient_kurtosis([x]),
    "gradient_kurtosis_nonzero": lambda x: metrics.gradient_kurtosis_nonzero([x]),
    "gradient_zero_fraction": lambda x: metrics.gradient_zero_fraction([x]),
    "effective_sample_size": lambda x: metrics.effective_sample_size(x[:, 0]),
    "categorical_kl": lambda x: metrics.categorical_kl(x, x.flip(0)),
    "gaussian_kl": lambda x: metrics.gaussian_kl(x, 0.0 * x, x.flip(0), 0.0 * x),
    "policy_variance": metrics.policy_variance,
    "policy_variance_normalized": metrics.policy_variance_normalized,
    "gaussian_policy_variance": lambda x: metrics.gaussian_policy_variance(x, x.abs() + 1)[0],
    "gaussian_policy_variance, R": lambda x: metrics.gaussian_policy_variance(x, x.abs() + 1)[1],
    "coverage": lambda x: metrics.coverage(x[:, :2], 4),
    "explained_variance": lambda x: metrics.explained_variance(x[:, 0], x[:, 2]),
    "dormant_neurons, by deviation": lambda x: metrics.dormant_neurons(metrics.activity([x], deviation=True), 1e-3),
}
on_one_tensor = pytest.mark.parametrize("metric", ON_ONE_TENSOR.values(), ids=ON_ONE_TENSOR.keys())


@on_one_tensor
def test_any_dtype_with_grad_and_the_input_untouched(metric):
    x = torch.tensor([[1, 0, 3], [0, 0, 1], [2, 0, 0], [0, 0, 5], [1, 0, 1], [4, 0, 0]], dtype=torch.float64)
    expected = metric(x)
    assert math.isfinite(expected)
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.uint8):  # these hold the entries exactly
        assert metric(x.to(dtype)) == approx(expected, rel=1e-6), dtype
    leaf = x.clone().requires_grad_()
    value = metric(leaf * 1.0)
    assert type(value) is float and value == expected
    before = x.clone()
    metric(x)
    assert torch.equal(x, before)


@on_one_tensor
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_one_bad_entry_gives_nan_and_no_exception(metric, bad):
    x = rand(6, 3)
    x[0, 0] = bad  # the first row and column are in every slice above
    assert math.isnan(metric(x))


@on_one_tensor
def test_nothing_to_measure_gives_nan(metric):
    expected = 0.0 if metric is ON_ONE_TENSOR["coverage"] else NAN
    assert metric(torch.zeros(0, 3)) == approx(expected)


def test_no_tensor_at_all_gives_nan():
    lists = (metrics.dormant_neurons, metrics.zero_fraction, metrics.weight_norm, metrics.gradient_kurtosis)
    for metric in lists + (metrics.gradient_kurtosis_nonzero, metrics.gradient_zero_fraction):
        assert math.isnan(metric([])), metric
    assert math.isnan(metrics.gradient_kurtosis([None]))


# ---- feature rank ----------------------------------------------------------------------------------------------------
HADAMARD = torch.tensor(scipy.linalg.hadamard(8), dtype=torch.float64) / math.sqrt(8)  # column 0 is constant


def by_svd(features, tau=0.99, delta=0.01):
    """The definitions written down a second time, from a float64 SVD."""
    features = features.double()
    s = torch.linalg.svdvals(features)
    c = torch.linalg.svdvals(features - features.mean(0))
    p = s / s.sum()
    return {
        "feature_rank": float((s.square().cumsum(0) / s.square().sum() < tau).sum() + 1),
        "feature_rank/centered": float((c.square().cumsum(0) / c.square().sum() < tau).sum() + 1),
        "feature_rank/srank": float((p.cumsum(0) < 1 - delta).sum() + 1),
        "feature_rank/effective_rank": torch.special.entr(p).sum().exp().item(),
    }


@pytest.mark.parametrize("columns", [5, 20])
def test_a_spectrum_on_which_all_four_ranks_differ(columns):
    """With more rows than features, and with fewer."""
    # Squares 400, 9, 4, 1, 1 of 415: 400, 409, 413 pass 410.85 at 3. Unsquared 20, 3, 2, 1, 1 of 27: 26.73 needs all 5.
    # Column 0 of the Hadamard matrix is constant, so that centring removes the 20: 9, 4, 1, 1 of 15 pass 14.85 at 4.
    singular_values = torch.tensor([20.0, 3, 2, 1, 1], dtype=torch.float64)
    features = (HADAMARD[:, :5] * singular_values) @ orthogonal(columns, 0)[:5]
    entropy = 20 / 27 * math.log(27 / 20) + 1 / 9 * math.log(9) + 2 / 27 * math.log(27 / 2) + 2 / 27 * math.log(27)
    expected = {"feature_rank": 3.0, "feature_rank/centered": 4.0, "feature_rank/srank": 5.0}
    expected["feature_rank/effective_rank"] = approx(math.exp(entropy))  # 2.468; of the squares it would be 1.20
    assert ranks_of(features) == expected
    # 20 of 27 is 74 %, 400 of 415 is 96 %, 409 is 98.6 %
    assert [metrics.feature_rank(features, tau) for tau in (0.96, 0.98, 0.99, 1.0)] == [1, 2, 3, 5]
    assert [metrics.srank(features, delta) for delta in (0.3, 0.2, 0.1, 0.05)] == [1, 2, 3, 4]


@pytest.mark.parametrize("shape", [(300, 40), (40, 300), (64, 64), (1, 5), (5, 1), (1, 1), (2, 2)])
def test_gram_route_equals_svd_route(shape):
    features = torch.relu(randn(*shape, seed=3) @ orthogonal(shape[1], 4) + 0.3) + 0.01
    expected = by_svd(features)
    if shape[0] == 1:
        expected["feature_rank/centered"] = 0.0  # one row has no variance
    assert ranks_of(features) == {key: approx(value, rel=1e-8) for key, value in expected.items()}


@pytest.mark.parametrize("shape", [(50, 8), (8, 50)])
def test_the_size_of_the_chunks_does_not_matter(monkeypatch, shape):
    features = randn(shape[0], 3, seed=1) @ randn(3, shape[1], seed=2) + 50.0  # a wrong mean would show
    whole = ranks_of(features)
    assert whole["feature_rank/centered"] == 3.0
    monkeypatch.setattr(metrics, "GRAM_CHUNK", 7)  # the last chunk is short
    assert ranks_of(features) == {key: approx(value) for key, value in whole.items()}


def test_float32_features_are_not_multiplied_in_float32():
    # Rank 31 with a fast decay. A float32 Gram matrix adds 2e-4 of the largest singular value in each of the other 97
    # directions: small in the squares, but the two ranks that are not squared would see them all.
    spectrum = torch.logspace(0, -4, 31, dtype=torch.float64)
    features = (torch.linalg.qr(randn(512, 31, seed=1)).Q * spectrum @ orthogonal(128, 2)[:31]).float()
    expected = by_svd(features)
    assert expected["feature_rank/srank"] < 25
    assert ranks_of(features) == {key: approx(value, rel=1e-3) for key, value in expected.items()}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ranks_of(features) == {key: approx(value, rel=1e-3) for key, value in expected.items()}


def test_equal_directions_count_exactly():
    identities = [c * torch.eye(size, dtype=torch.float64) for size in (100, 200, 500) for c in (0.1, 0.3, 0.7, 3.3)]
    for q in identities + [orthogonal(10, 5), orthogonal(512, 5)]:  # .99 * 100 is a tie: rounding would say 99 or 100
        size = len(q)
        ranks = ranks_of(q)
        assert ranks["feature_rank"] == ranks["feature_rank/srank"] == math.ceil(0.99 * size)
        assert ranks["feature_rank/effective_rank"] == approx(size)


def test_degenerate_features():
    assert set(ranks_of(torch.zeros(9, 4)).values()) == {0}
    for shape in ((200, 16), (16, 200)):  # identical rows: centring leaves only rounding, which is not a rank
        ranks = ranks_of((1e3 * randn(1, shape[1])).expand(shape))
        assert ranks["feature_rank/centered"] == 0.0
        assert ranks["feature_rank"] == ranks["feature_rank/srank"] == 1.0
        assert ranks["feature_rank/effective_rank"] == approx(1.0)
    assert math.isnan(metrics.feature_rank(torch.full((3, 3), 1e200, dtype=torch.float64)))  # overflows when squared


def test_an_eigensolver_that_fails_costs_a_point_not_a_run(monkeypatch):
    def fail(matrix):
        assert matrix.isfinite().all(), "some LAPACKs raise, some hang"
        raise torch.linalg.LinAlgError("did not converge")

    monkeypatch.setattr(torch.linalg, "eigvalsh", fail)
    for features in (randn(9, 4), torch.full((9, 4), NAN)):
        assert all(math.isnan(value) for value in ranks_of(features).values())


# ---- dormant neurons -------------------------------------------------------------------------------------------------
def test_dormant_neurons_by_hand():
    # Mean |h| of the units: 0, 8e-6, 1, 3 and, in the second layer, 0, 2.
    first = torch.tensor([[0, 1.6e-5, 2, 1], [0, 0, 0, -5]])
    layers = [first, torch.tensor([[0.0, 1.0], [0.0, 3.0]])]
    assert activity_of_units(first) == approx([0, 8e-6, 1, 3])
    assert metrics.dormant_neurons(layers) == approx(100 * 3 / 6)  # among all units: a mean over layers would be 50, 50
    assert metrics.dormant_neurons(layers, eps=1e-6) == approx(100 * 2 / 6)
    # The first layer's mean is 1.000002, so that the unit at 1 scores just below 1 and the one at 8e-6 scores 8e-6.
    assert metrics.dormant_neurons_tau(layers, 0.0) == approx(100 * 2 / 6)
    assert metrics.dormant_neurons_tau(layers, 0.1) == approx(100 * 3 / 6)
    assert metrics.dormant_neurons_tau(layers, 1.0) == approx(100 * 4 / 6)
    # Half of the zeros: first layer 2 + 1 + 1 + 0 of 8 entries and 4 units, second 2 of 4 and 2 units.
    assert metrics.zero_fraction(layers) == approx((4 * 4 / 8 + 2 * 2 / 4) / 6)


def test_conv_channel_with_one_live_position_is_alive():
    h = torch.zeros(4, 3, 5, 5)
    h[2, 1, 4, 0] = 1.0
    assert activity_of_units(h) == approx([0, 1 / 100, 0], rel=1e-6)
    assert metrics.dormant_neurons([h]) == metrics.dormant_neurons_tau([h], 0.0) == approx(200 / 3)
    assert metrics.zero_fraction([h]) == approx(299 / 300)


def test_an_all_dead_layer_is_wholly_dormant():
    layers = [torch.zeros(8, 4), torch.rand(8, 4) + 0.1]
    for tau in (0.0, 0.025, 0.1):
        assert metrics.dormant_neurons_tau(layers, tau) == 50.0
        assert metrics.dormant_neurons_tau(layers[:1], tau) == 100.0
    assert metrics.dormant_neurons(layers) == 50.0


def test_thresholds_eps_is_strict_and_tau_is_not():
    assert metrics.dormant_neurons([torch.tensor([[0.9e-5, 1.1e-5]])]) == 50.0  # the default, P1's "e.g. 1e-5"
    h = torch.tensor([[0.5, 1.5]], dtype=torch.float64)  # scores .5 and 1.5
    assert metrics.dormant_neurons([h], eps=0.5) == 0.0
    assert metrics.dormant_neurons([h], eps=math.nextafter(0.5, 1)) == 50.0
    assert metrics.dormant_neurons_tau([h], 0.5) == 50.0
    assert metrics.dormant_neurons_tau([h], math.nextafter(0.5, 0)) == 0.0


def test_low_precision_activations_are_averaged_in_more():
    h = torch.zeros(4096, 2, dtype=torch.bfloat16)
    h[:, 0], h[0, 1] = 1.0, 1.0
    assert activity_of_units(h) == approx([1.0, 1 / 4096])
    assert activity_of_units(torch.full((4, 2), 6e4, dtype=torch.float16)) == [6e4 // 32 * 32] * 2
    assert activity_of_units(torch.full((4, 2), 200, dtype=torch.uint8)) == [200, 200]


@given(seeds, st.integers(2, 30), st.integers(1, 12), st.floats(0, 2), st.sampled_from([(), (3,), (2, 3)]))
def test_dormant_properties(seed, rows, units, threshold, space):
    scale = torch.logspace(0, -6, units, dtype=torch.float64).view(1, units, *(1 for _ in space))
    h = torch.relu(randn(rows, units, *space, seed=seed) - threshold) * scale
    layers = [h, torch.relu(randn(rows, 5, seed=seed + 1))]
    taus, epss = (0.0, 0.025, 0.1, 0.5, 1.0), (1e-9, 1e-7, 1e-5, 1e-3, 1e9)
    by_tau = [metrics.dormant_neurons_tau(layers, tau) for tau in taus]
    by_eps = [metrics.dormant_neurons(layers, eps) for eps in epss]
    assert by_tau == sorted(by_tau) and by_eps == sorted(by_eps) and by_eps[-1] == 100.0
    scaled = [4 * layers[0], layers[1] / 64]  # each layer has its own scale
    assert [metrics.dormant_neurons_tau(scaled, tau) for tau in taus] == approx(by_tau)
    # parts of the rows
    parts = metrics.joined(metrics.activity([x[i : i + 7] for x in layers]) for i in range(0, rows, 7))
    assert [metrics.dormant_neurons_tau(parts, tau) for tau in taus] == approx(by_tau)
    assert [metrics.dormant_neurons(parts, eps) for eps in epss] == approx(by_eps)
    assert metrics.zero_fraction(parts) == approx(metrics.zero_fraction(layers))
    # a unit's deviation, of all rows and places
    by_row = h.transpose(0, 1).flatten(1)
    deviations = metrics.joined(metrics.activity([h[i : i + 7]], deviation=True) for i in range(0, rows, 7))
    assert deviations.of_units()[0].tolist() == approx(by_row.std(1, unbiased=False).tolist(), abs=1e-7)


# ---- weight norm -----------------------------------------------------------------------------------------------------
def test_the_weight_norm_of_ppos_network_at_initialisation():
    # An orthogonal matrix with gain g and k rows (k <= columns) has squared norm g^2 k.
    layers = {
        "network_0": 8,
        "network_2": math.sqrt(128),
        "network_4": math.sqrt(128),
        "network_7": 32,
        "actor": 0.01 * math.sqrt(6),
        "critic": 1,
    }
    assert norms_of(ppo_atari_envpool.Agent(6)) == {
        "weight_norm": approx(math.sqrt(2 * (32 + 64 + 64 + 512) + 1e-4 * 6 + 1), rel=1e-5),  # 36.67
        **{"weight_norm/" + name: approx(value, rel=1e-5) for name, value in layers.items()},
    }


def test_layer_norm_gains_are_told_apart():
    norms = norms_of(pqn_atari_envpool.QNetwork(6))
    gains = 32 * 20 * 20 + 64 * 9 * 9 + 64 * 7 * 7 + 512
    weights = 2 * (32 + 64 + 64 + 512 + 6)
    assert gains == 21632 and norms["weight_norm/normalization"] == approx(math.sqrt(gains), rel=1e-5)  # 147.1
    assert norms["weight_norm/without_normalization"] == approx(math.sqrt(weights), rel=1e-5)  # 36.8
    assert norms["weight_norm"] == approx(math.sqrt(gains + weights), rel=1e-5)  # 151.6
    assert norms["weight_norm/network_1"] == approx(math.sqrt(32 * 20 * 20), rel=1e-5)


@pytest.mark.parametrize("layer", [nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.BatchNorm1d(4), nn.BatchNorm2d(4)])
def test_each_kind_of_normalisation_layer(layer):
    norms = norms_of(nn.Sequential(nn.Linear(4, 4), layer))
    assert norms["weight_norm/normalization"] == approx(2.0)
    assert "weight_norm/normalization" not in norms_of(nn.Sequential(nn.Linear(4, 4)))


def test_shared_frozen_compiled_and_own_parameters():
    model = nn.Module()
    model.a, model.b = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
    model.again, model.b.weight = model.a, model.a.weight  # a module met twice, and a tensor with two owners
    model.logstd = nn.Parameter(torch.full((1, 4), 2.0))
    model.frozen = nn.Linear(5, 5).requires_grad_(False)
    nn.init.ones_(model.a.weight)
    expected = {"weight_norm": 5.0, "weight_norm/logstd": 4.0, "weight_norm/a": 3.0}
    assert norms_of(model) == expected
    assert metrics.weight_norm(model.parameters()) > 5.0  # counts what it is given
    wrapper = nn.Module()
    wrapper._orig_mod = model  # what torch.compile returns
    assert norms_of(wrapper) == expected
    model.a.weight.data[0, 0] = math.inf
    assert math.isnan(norms_of(model)["weight_norm"])
    assert math.isnan(metrics.weight_norm([torch.ones(2) / 0]))
    assert math.isnan(norms_of(nn.ReLU())["weight_norm"])


def test_weight_norm_is_summed_in_float64():
    assert metrics.weight_norm([torch.full((100,), 1e30)]) == approx(1e31, rel=1e-6)
    assert metrics.weight_norm([torch.full((4096,), 300.0, dtype=torch.float16)]) == approx(300 * 64)
    assert metrics.weight_norm([torch.tensor([3.0, 0.0]), torch.tensor([[-4.0]]), torch.tensor(12.0)]) == approx(13.0)


# ---- gradient kurtosis -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("max_norm", [0.5, 1e3])
def test_gradients_as_they_were_before_clipping(max_norm):
    parameter, before = torch.nn.Parameter(torch.zeros(50).double()), randn(50)
    parameter.grad = before.clone()
    norm = torch.nn.utils.clip_grad_norm_([parameter], max_norm)
    assert torch.equal(parameter.grad, before) == (max_norm > norm)
    torch.testing.assert_close(metrics.unclipped([parameter.grad], norm, max_norm), [before])


def test_gradient_kurtosis_by_hand():
    # ln|g| = -1, 0, 0, 1 about 0: fourth moment 1/2, variance 1/2, K = 2. Dividing by the variance once would give 1,
    # by its fourth power 8, the excess -1.
    gradients = [torch.tensor([1 / math.e, -1.0], dtype=torch.float64), None, torch.tensor([[1.0, -math.e]]).double()]
    assert metrics.gradient_kurtosis(gradients, eps=0.0) == approx(2.0)
    assert metrics.gradient_kurtosis_nonzero(gradients) == approx(2.0)
    # A zero is a fifth value, at ln eps = -1.
    gradients[0] = torch.tensor([1 / math.e, -1.0, 0.0], dtype=torch.float64)
    assert metrics.gradient_kurtosis_nonzero(gradients) == approx(2.0)
    assert metrics.gradient_zero_fraction(gradients) == approx(0.2)


def test_zeros_bend_the_kurtosis_both_ways():
    # Fraction p of zeros far from the rest is a two-point distribution: K -> 1 / (p (1 - p)) - 3.
    n = 10000
    for p in (0.01, 0.1, 0.5, 0.9):
        g = torch.full((n,), 1.0, dtype=torch.float64)
        g[: int(p * n)] = 0.0
        assert metrics.gradient_kurtosis([g]) == approx(1 / (p * (1 - p)) - 3, rel=1e-6)
        assert metrics.gradient_zero_fraction([g]) == approx(p)
        assert math.isnan(metrics.gradient_kurtosis_nonzero([g]))  # all the same
    g = 1e-4 * randn(200000)
    values = []
    for p in (0.0, 0.01, 0.5, 0.9):
        g[: int(p * len(g))] = 0.0
        values.append(metrics.gradient_kurtosis([g]))
        assert metrics.gradient_kurtosis_nonzero([g]) == approx(7.0, rel=0.15)
    assert values == approx([6.6, 16.0, 1.09, 8.7], rel=0.1)  # up, down, up


def test_degenerate_gradients():
    zeros = torch.zeros(50)
    assert math.isnan(metrics.gradient_kurtosis([zeros])) and math.isnan(metrics.gradient_kurtosis_nonzero([zeros]))
    assert metrics.gradient_zero_fraction([zeros]) == 1.0
    assert metrics.gradient_kurtosis([1 + 1e-6 * randn(10000)]) == approx(3.0, rel=0.1)  # small is not constant
    assert math.isnan(metrics.gradient_kurtosis([torch.tensor([0.1, -0.1] * 500)]))  # constant |g|
    assert math.isnan(metrics.gradient_kurtosis([torch.tensor([0.3])]))
    assert math.isnan(metrics.gradient_kurtosis([torch.tensor([0.0, 1.0])], eps=0.0))  # ln 0
    assert metrics.gradient_zero_fraction([torch.tensor([-0.0, 1e-45, 1.0, 0.0])]) == 0.5  # subnormals are not zero


def test_real_gradients_as_tensors_or_as_one_vector():
    model = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 1))
    with torch.no_grad():
        model[0].bias[:5] = -100.0  # five dead units
    model(randn(32, 6, dtype=torch.float32)).square().mean().backward()
    gradients = [p.grad for p in model.parameters()]
    copies = [g.clone() for g in gradients]
    agents = torch.stack([torch.cat([g.flatten() for g in gradients]), torch.ones(161)])
    for metric in (metrics.gradient_kurtosis, metrics.gradient_kurtosis_nonzero, metrics.gradient_zero_fraction):
        assert metric(agents)[0].item() == approx(metric(gradients)) and metric(agents[1]) == approx(
            metric(agents)[1].item()
        )
    assert metrics.weight_norm(agents).tolist() == approx([metrics.weight_norm(gradients), math.sqrt(161)])
    assert metrics.gradient_zero_fraction(gradients) >= 5 * (6 + 1 + 1) / 161
    assert all(torch.equal(g, copy) for g, copy in zip(gradients, copies))
    assert metrics.gradient_kurtosis(gradients, eps=1e-3) != metrics.gradient_kurtosis(gradients)


@given(seeds, st.integers(5, 200), st.floats(0, 0.9), factors)
def test_kurtosis_properties(seed, size, sparsity, factor):
    g = randn(size, seed=seed).exp() * randn(size, seed=seed + 1)
    g[rand(size, seed=seed + 2) < sparsity] = 0.0
    assume(torch.count_nonzero(g) >= 3)
    kurtosis, nonzero = metrics.gradient_kurtosis([g], eps=1e-3), metrics.gradient_kurtosis_nonzero([g])
    log = torch.log(g.abs() + 1e-3)
    assert kurtosis == approx(scipy.stats.kurtosis(log.numpy(), fisher=False, bias=True))
    assert kurtosis >= 1 + scipy.stats.skew(log.numpy()) ** 2 - 1e-9
    assert nonzero == approx(scipy.stats.kurtosis(g[g != 0].abs().log().numpy(), fisher=False, bias=True))
    assert metrics.gradient_zero_fraction([g]) == approx((g == 0).double().mean().item())
    signs = torch.sign(randn(size, seed=seed + 3))
    for same in ([signs * g], [shuffled(g, seed)], [g, g], [g[:2], g[2:].view(1, -1)]):
        assert metrics.gradient_kurtosis(same, eps=1e-3) == approx(kurtosis)
        assert metrics.gradient_kurtosis_nonzero(same) == approx(nonzero)
    assert metrics.gradient_kurtosis_nonzero([factor * g]) == approx(nonzero, rel=1e-6)
    assert metrics.gradient_kurtosis([factor * g], eps=factor * 1e-3) == approx(kurtosis, rel=1e-6)


# ---- coverage --------------------------------------------------------------------------------------------------------
def test_coverage_by_hand():
    points = torch.tensor([[0.0, 0.0], [0.49, 0.49], [0.5, 0.0], [1.0, 1.0]])
    assert metrics.coverage(points, 1) == 1.0
    assert metrics.coverage(points, 2) == 3 / 4  # 1.0 is in the last cell
    assert metrics.coverage(points, 4) == 4 / 16
    # (x, y) and (y, x) are different cells, as are (0, 3) and (1, 0) on a grid where x + y or 3 x + y agree
    assert metrics.coverage(torch.tensor([[0.1, 0.9], [0.9, 0.1], [0.4, 0.1]]), 3) == approx(3 / 9)
    assert metrics.coverage(torch.tensor([[-0.1, 1.1], [0.1, 0.9]]), 4) == 1 / 16  # outside: the nearest cell
    assert metrics.coverage(torch.zeros(0, 2), 8) == metrics.coverage(torch.tensor([]), 8) == 0.0
    assert math.isnan(metrics.coverage(torch.tensor([[0.5, NAN]]), 8))


def numbers_of(hidden, logits, other, log_ratio, values, returns, std, valid=None):
    """What the curves of small tasks have, of rows (..., N, ...) that are valid."""
    spectrum, activity = metrics.spectrum(hidden, valid), metrics.activity([hidden, logits.abs()], valid)
    return {
        "rank": metrics.feature_rank(spectrum),
        "centered": metrics.feature_rank(spectrum, centered=True),
        "effective": metrics.effective_rank(spectrum),
        "dormant": metrics.dormant_neurons(activity, eps=0.35),
        "deviation": metrics.dormant_neurons(metrics.activity([logits], valid, deviation=True), eps=1.0),
        "tau": metrics.dormant_neurons_tau(activity, 0.9),
        "zero": metrics.zero_fraction(activity),
        "ess": metrics.effective_sample_size(log_ratio, valid),
        "variance": metrics.policy_variance(logits.softmax(-1), valid),
        "normalized": metrics.policy_variance_normalized(logits.softmax(-1), valid),
        "gaussian": metrics.gaussian_policy_variance(logits, std, valid)[1],
        "kl": metrics.categorical_kl(logits, other, valid),
        "gaussian_kl": metrics.gaussian_kl(logits, std.log(), other, std.log() + 0.1, valid),
        "explained": metrics.explained_variance(values, returns, valid),
    }


def test_of_agents_only_the_valid_rows_count():
    """Each number of S agents is that of each agent's valid rows alone; the other rows hold large numbers."""
    valid = rand(3, 40, seed=1) < torch.tensor([0.9, 0.5, 0.2])[:, None]
    columns = [randn(3, 40, 6, seed=2).relu(), *(randn(3, 40, 4, seed=seed) for seed in (3, 4))]
    columns += [randn(3, 40, seed=seed) for seed in (5, 6, 7)]
    columns = [torch.where(valid.view(3, 40, *[1] * (x.dim() - 2)), x, 9.0) for x in columns]
    std = rand(3, 1, 4, seed=8) + 0.5
    together = numbers_of(*columns, std, valid)
    for agent, own in enumerate(valid):
        alone = numbers_of(*(x[agent][own] for x in columns), std[agent])
        assert {name: x[agent].item() for name, x in together.items()} == approx(alone)
