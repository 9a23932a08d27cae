"""What metrics.py measures of policies: importance ratios, divergence, gradient noise, variance; and of which rows."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from tensors import NAN, approx, rand, randn, seeds, shuffled

import metrics
from support import diagnostics

# ---- importance ratios -----------------------------------------------------------------------------------------------
log_ratios = st.lists(st.floats(-30, 30), min_size=1, max_size=50)


def test_effective_sample_size_by_hand():
    log_ratio = torch.tensor([1.0, 2.0, 3.0, 6.0], dtype=torch.float64).log()
    assert metrics.effective_sample_size(log_ratio) == approx(144 / 50)
    agents = torch.stack([log_ratio, torch.zeros(4).double(), log_ratio - 5e3])  # each is measured alone
    assert metrics.effective_sample_size(agents).tolist() == approx([144 / 50, 4, 144 / 50])
    # a weight of zero is still a sample
    log_ratio = torch.tensor([0.0, -math.inf, 0.0, -math.inf])
    assert metrics.effective_sample_size(log_ratio) == 2.0


def test_effective_sample_size_at_the_edges():
    for n in (1, 3, 1000, 131072):
        assert metrics.effective_sample_size(torch.zeros(n)) == n  # exactly: theta_new = theta_old
        assert metrics.effective_sample_size(torch.full((n,), -0.3)) == n
    rounding = max(metrics.effective_sample_size(1e-9 * randn(7, seed=seed)) for seed in range(50))
    assert rounding <= 7.0  # seed 5 has 7 + 2e-15 before the clamp
    assert metrics.effective_sample_size(torch.tensor([0.0, -1e4, -math.inf])) == 1.0
    assert metrics.effective_sample_size(torch.tensor([5e3, 5e3, -5e3])) == 2.0  # exp(5000) overflows
    assert metrics.effective_sample_size(torch.tensor([-5e3, -5e3])) == 2.0  # exp(-5000) is 0
    for bad in ([-math.inf] * 3, [0.0, math.nan], [math.inf, 0.0], [-math.inf, math.nan], []):
        assert math.isnan(metrics.effective_sample_size(torch.tensor(bad)))


@given(log_ratios, seeds, st.integers(2, 4), st.floats(-500, 500))
def test_effective_sample_size_properties(values, seed, copies, shift):
    log_ratio = torch.tensor(values, dtype=torch.float64)
    n, ess = len(values), metrics.effective_sample_size(log_ratio)
    weights = torch.softmax(log_ratio, 0)
    assert 1 <= ess <= n
    assert ess == approx(1 / weights.square().sum().item())  # the paper's form
    assert metrics.effective_sample_size(log_ratio + shift) == approx(ess, rel=1e-8)
    assert metrics.effective_sample_size(shuffled(log_ratio, seed)) == approx(ess)
    assert metrics.effective_sample_size(log_ratio.repeat(copies)) == approx(copies * ess)
    padded = torch.cat([log_ratio, torch.tensor([-math.inf])])
    assert metrics.effective_sample_size(padded) == approx(ess)


def test_kl_of_categoricals():
    """KL(p || q), not KL(q || p)."""
    logits, new_logits = 3 * rand(5, 3), 6 * rand(5, 3, seed=1)
    old, new = (torch.distributions.Categorical(logits=x) for x in (logits, new_logits))
    expected = torch.distributions.kl_divergence(old, new).mean().item()
    assert metrics.categorical_kl(logits, new_logits) == approx(expected)
    assert metrics.categorical_kl(logits, logits + 1.0) < 1e-15


def test_kl_of_gaussians():
    mean, logstd, new_mean, new_logstd = rand(5, 2), rand(1, 2) - 1.0, rand(5, 2, seed=1), rand(1, 2, seed=2)
    old, new = (
        torch.distributions.Normal(m, s.exp().expand(5, 2)) for m, s in ((mean, logstd), (new_mean, new_logstd))
    )
    expected = torch.distributions.kl_divergence(old, new).sum(-1)
    torch.testing.assert_close(metrics.gaussian_kls(mean, logstd, new_mean, new_logstd), expected)
    assert metrics.gaussian_kl(mean, logstd, new_mean, new_logstd) == approx(expected.mean().item())
    assert not metrics.gaussian_kls(mean, logstd, mean, logstd).any()  # exactly 0


def test_kl_at_the_edges():
    never = torch.tensor([[0.0, -math.inf]])
    assert metrics.categorical_kl(never, torch.zeros(1, 2)) == approx(math.log(2))  # 0 ln 0 = 0
    assert math.isnan(metrics.categorical_kl(torch.zeros(1, 2), never))
    assert math.isnan(metrics.categorical_kl(torch.zeros(0, 2), torch.zeros(0, 2)))
    empty = torch.zeros(0, 2)
    assert math.isnan(metrics.gaussian_kl(empty, torch.zeros(1, 2), empty, torch.zeros(1, 2)))


def test_ddr():
    assert metrics.ddr(1024, 0.5) == 2048.0
    assert metrics.ddr(1024, torch.tensor(0.25)) == 4096.0
    assert metrics.ddr(2048, 0.25) == 2 * metrics.ddr(1024, 0.25) and type(metrics.ddr(1, 1)) is float
    assert math.isfinite(metrics.ddr(1024, 0.0)) and metrics.ddr(1024, 0.0) == metrics.ddr(1024, -1e-15) > 1e12
    assert math.isnan(metrics.ddr(1024, math.nan)) and math.isnan(metrics.ddr(1024, math.inf))


def test_the_outer_loop_over_a_window():
    points = [(100 + i, 0.1 * 2.0**-i, 1.0, None) for i in range(12)]
    out = metrics.outer_loop(points, window=10)
    expected = sum(100 + i for i in range(2, 12)) / sum(0.1 * 2.0**-i for i in range(2, 12))
    assert out == {"kl_behavior": 0.1 * 2.0**-11, "ddr": approx(expected), "plateau": 0.0}
    out = metrics.outer_loop([*points, (0, math.nan, 1.0, None)], window=10)  # a batch without valid rows
    assert math.isnan(out["kl_behavior"]) and math.isfinite(out["ddr"])


def test_plateau():
    noise = [math.sin(12.9898 * i) for i in range(40)]
    ones, flat = [1.0] * 40, [50 + x for x in noise]
    assert metrics.plateau(flat, ones, ones, 20) == 1.0
    assert metrics.plateau([0.2 * i + x for i, x in enumerate(noise)], ones, ones, 20) == 0.0, "it still rises"
    assert metrics.plateau([-0.2 * i + x for i, x in enumerate(noise)], ones, ones, 20) == 0.0, "it falls"
    faded = [1.0] * 20 + [0.1] * 20
    assert metrics.plateau(flat, faded, ones, 20) == metrics.plateau(flat, ones, faded, 20) == 0.0, "nothing moves"
    assert metrics.plateau(flat, faded[::-1], ones, 20) == 1.0
    assert metrics.plateau(flat[:19], ones[:19], ones[:19], 20) == 0.0, "too soon"
    few = [x if i % 3 == 0 else None for i, x in enumerate(flat)]
    assert metrics.plateau(few, ones, ones, 20) == 0.0 and metrics.plateau(few, ones, ones, 40) == 1.0
    slower = [1.0] * 40 + [0.3] * 40  # below half of its mean of 0.65, also where most points have no return
    assert metrics.plateau([None] * 40 + few, slower, slower, 40) == 0.0
    rose = [10.0 * min(i, 20) + x for i, x in enumerate(noise)]
    assert metrics.plateau(rose, ones, ones, 20) == 1.0, "only the window counts"
    x = torch.arange(10.0) - 4.5
    rest = torch.tensor([1.0, -1.0] * 5)
    rest = rest - x * (rest @ x) / (x @ x)  # what the line leaves: its slope is 0
    error = (rest @ rest / 8 / (x @ x)).sqrt()  # of 10 points and a line, 8 degrees of freedom
    for slope, flat in ((1.95, 1.0), (2.05, 0.0)):
        assert metrics.plateau((slope * error * x + rest).tolist(), ones, ones, 10) == flat, slope


# ---- gradient noise --------------------------------------------------------------------------------------------------
def test_gradient_noise_is_unbiased():
    """Gradients with a known mean and covariance: both estimates are within 2 % on average over 3000 measurements."""
    generator = torch.Generator().manual_seed(0)
    mean, std = rand(30), 0.5 + rand(30, seed=1)
    samples = mean + std * torch.randn(8, 3000, 30, generator=generator, dtype=torch.float64)
    found = torch.stack(metrics.gradient_noise(samples), 1)  # as of 3000 agents
    expected = torch.stack([mean.square().sum(), std.square().sum()])
    torch.testing.assert_close(found.mean(0).double(), expected, rtol=0.02, atol=0)
    alone = torch.stack(metrics.gradient_noise(samples[:, 7]))
    torch.testing.assert_close(alone, found[7])
    assert all(map(math.isnan, metrics.gradient_noise(samples[:1, 0])))


def noise_scales(rows, valid, num_steps):
    """metrics.noise_scales of the means of rows (T N, P), a row being its own gradient; in groups as in the scripts."""
    num_envs = len(valid) // num_steps
    groups = metrics.environment_groups(num_steps, num_envs, metrics.NOISE_GROUPS)
    order = torch.randperm(groups.numel(), generator=torch.Generator().manual_seed(0))
    outer, inner = (
        torch.stack([rows[inds][valid[inds]].mean(0) for inds in part])
        for part in (groups, groups.flatten()[order].view_as(groups))
    )
    return metrics.noise_scales(outer, inner, valid[groups.flatten()].sum() / len(groups), num_envs // len(groups))


def test_noise_scales_tell_environments_from_steps():
    """Rows g = G + a + b, a of the environment and b of the row: the outer noise has both, the inner one hardly a."""
    T, N, P = 16, 64, 20
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(*size, P, generator=generator, dtype=torch.float64) for size in ((1, N), (T, N)))
    rows = (1.0 + a + b).flatten(0, 1)
    valid = torch.arange(T * N) // N < T - 4  # the last four steps of each are no rows
    out = noise_scales(rows, valid, T)
    assert out["grad_noise_scale/envs"] == approx(1 + 1 / 12, rel=0.25)  # tr = P (1 + 1 / 12) for one environment
    assert out["grad_noise_scale"] == approx(12 * out["grad_noise_scale/envs"])
    assert out["grad_noise_scale/inner"] == approx(2, rel=0.4) and out["grad_noise_scale/dominated"] == 0
    assert out["grad_noise_scale"] == approx(out["grad_noise_scale/noise"] / out["grad_noise_scale/signal"])
    rows = rows - rows[valid].mean(0)  # no gradient at all
    out = noise_scales(rows, valid, T)
    assert out["grad_noise_scale/dominated"] == 1 and out["grad_noise_scale/signal"] < 0
    assert not {"grad_noise_scale", "grad_noise_scale/envs", "grad_noise_scale/inner"} & out.keys()
    assert noise_scales(rows, valid[:T], T) == {}  # one environment


@pytest.mark.parametrize("num_envs", [2, 3, 7, 19])
def test_the_noise_in_environments_is_that_in_samples(num_envs):
    """12 of an environment's 16 rows count, however many environments make a group."""
    rows = 1 + 0.1 * torch.randn(16 * num_envs, 20, generator=torch.Generator().manual_seed(0))
    out = noise_scales(rows, torch.arange(16 * num_envs) // num_envs < 12, 16)
    assert out["grad_noise_scale"] == approx(12 * out["grad_noise_scale/envs"]) and out["grad_noise_scale"] > 0


def test_the_noise_of_each_agent_alone():
    gradients, rows = 1 + randn(2, 8, 3, 5), torch.tensor([12.0, 12.0, 6.0])
    found = metrics.noise_scales(*gradients, rows, 2)
    assert len(found) == 3
    for s in range(3):
        assert found[s] == approx(metrics.noise_scales(*gradients[:, :, s], rows[s], 2))


def test_each_noise_scale_is_there_if_its_own_signal_is_positive():
    for signal, inner_signal in ((2.0, -1.0), (-2.0, 1.0), (2.0, 1.0)):
        out = metrics._noise_scales(3, 12.0, signal, 4.0, inner_signal, 5.0)
        assert out.get("grad_noise_scale") == (24.0 if signal > 0 else None)
        assert out.get("grad_noise_scale/envs") == (6.0 if signal > 0 else None)
        assert out.get("grad_noise_scale/inner") == (60.0 if inner_signal > 0 else None)


def test_groups_are_of_whole_environments():
    groups = metrics.environment_groups(num_steps=3, num_envs=19, max_groups=8)
    assert groups.shape == (8, 6) and len(set(groups.flatten().tolist())) == 48
    assert [sorted({row % 19 for row in group}) for group in groups.tolist()] == [[2 * i, 2 * i + 1] for i in range(8)]
    assert metrics.environment_groups(4, 3, 8).tolist() == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]


# ---- policy variance -------------------------------------------------------------------------------------------------
def test_policy_variance_by_hand():
    # Action 0: .2, .6 (variance .04 with 1/B, .08 with 1/(B - 1)); action 1: .8, .4 (the same); action 2 never.
    probs = torch.tensor([[0.2, 0.8, 0.0], [0.6, 0.4, 0.0]], dtype=torch.float64)
    assert metrics.policy_variance(probs) == approx((0.04 + 0.04 + 0) / 3)
    assert metrics.policy_variance_normalized(probs) == approx((0.04 + 0.04) / (1 - 0.4**2 - 0.6**2))


def test_policy_variance_at_the_edges():
    for num_actions in (2, 6, 18):
        one_hot = torch.eye(num_actions).repeat(5, 1)  # the largest possible
        assert metrics.policy_variance(one_hot) == approx((num_actions - 1) / num_actions**2)
        assert metrics.policy_variance_normalized(one_hot) == approx(1.0)
        for row in (one_hot[:1], torch.full((1, num_actions), 1 / num_actions)):  # collapsed and uniform alike
            assert metrics.policy_variance(row.repeat(7, 1)) == 0.0
            assert metrics.policy_variance_normalized(row.repeat(7, 1)) == 0.0
    saturated = torch.softmax(torch.tensor([[200.0, 0, 0], [190.0, 0, 0]]), -1)
    assert 0.0 <= metrics.policy_variance_normalized(saturated) <= 1.0


@given(seeds, st.integers(1, 20), st.integers(1, 8), st.floats(0.01, 30))
def test_policy_variance_properties(seed, states, num_actions, sharpness):
    logits = sharpness * randn(states, num_actions, seed=seed)
    probs = torch.softmax(logits, -1)
    v, normalized = metrics.policy_variance(probs), metrics.policy_variance_normalized(probs)
    assert 0 <= v <= (num_actions - 1) / num_actions**2 + 1e-12 and 0 <= normalized <= 1 + 1e-9
    # the law of total variance of the one-hot action: total = explained + E_s[p (1 - p)]
    unexplained = (probs * (1 - probs)).sum(1).mean().item()
    if num_actions > 1 and states > 1:
        assert normalized == approx(num_actions * v / (num_actions * v + unexplained), rel=1e-6)
    shift = 100 * randn(states, 1, seed=seed + 1)
    renamed = shuffled(probs.t(), seed).t()
    for same in (shuffled(probs, seed), renamed, probs.repeat(3, 1), torch.softmax(logits + shift, -1)):
        assert metrics.policy_variance(same) == approx(v, rel=1e-8)
        assert metrics.policy_variance_normalized(same) == approx(normalized, rel=1e-8)


def test_gaussian_policy_variance_by_hand():
    mean = torch.tensor([[1.0, 0.0], [3.0, 0.0]], dtype=torch.float64)  # Var_s 1 and 0, mean 1/2
    v, r = metrics.gaussian_policy_variance(mean, torch.tensor([[1.0, 0.0], [2.0, 1.0]]))  # E[std^2] = 6 / 4
    assert (v, r) == (approx(0.5), approx(0.5 / 2.0))
    for std in (torch.tensor([[1.0, 1.0]]), torch.ones(2), torch.ones(2, 2), torch.tensor(1.0)):  # state-independent
        assert metrics.gaussian_policy_variance(mean, std) == (approx(0.5), approx(1 / 3))
    assert metrics.gaussian_policy_variance(mean, torch.zeros(2)) == (approx(0.5), 1.0)
    assert metrics.gaussian_policy_variance(torch.ones(3, 2), torch.ones(2)) == (0.0, 0.0)
    assert metrics.gaussian_policy_variance(torch.ones(3, 2), torch.zeros(2)) == (0.0, 0.0)  # no variance at all
    for bad in (
        metrics.gaussian_policy_variance(mean, torch.full((2,), NAN)),
        metrics.gaussian_policy_variance(torch.zeros(0, 2), torch.ones(2)),
    ):
        assert all(math.isnan(value) for value in bad)


# ---- the critic, and the rows that are measured ----------------------------------------------------------------------
def test_explained_variance():
    returns = torch.tensor([1.0, 2.0, 3.0, 6.0])
    assert metrics.explained_variance(returns, returns) == 1.0
    assert metrics.explained_variance(returns + 5, returns) == 1.0  # a constant error is not variance
    assert metrics.explained_variance(torch.zeros(4), returns) == 0.0
    assert metrics.explained_variance(-returns, returns) == approx(-3.0)
    assert math.isnan(metrics.explained_variance(returns, torch.ones(4)))


@given(st.integers(0, 300), st.integers(0, 300), seeds)
def test_stratified_rows_take_one_of_each_stretch(num_rows, size, seed):
    rows = metrics.stratified_rows(num_rows, size, seed)
    assert rows.dtype == torch.int64 and len(rows) == min(num_rows, size)
    assert torch.equal(rows, metrics.stratified_rows(num_rows, size, seed))
    if len(rows) > 0:
        assert 0 <= rows[0] and rows[-1] < num_rows and bool((rows.diff() > 0).all())
        starts = torch.arange(len(rows)) * num_rows // len(rows)
        assert bool((rows >= starts).all()) and bool((rows[:-1] < starts[1:]).all())


def test_stratified_rows_leave_the_global_generator_alone():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    counts = sum(torch.bincount(metrics.stratified_rows(10, 5, seed), minlength=10) for seed in range(400))
    assert torch.equal(torch.rand(3), expected)
    assert counts.sum() == 2000 and counts.min() > 140 and counts.max() < 260  # every row as likely as any other


def test_probe_rows_of_agents_with_few_valid_rows():
    valid = torch.tensor([[True] * 8, [False, True, True, False, False, True, False, False], [False] * 8])
    inds, counted = diagnostics.probe_rows(valid, 5, seed=0)
    assert inds.shape == (3, 5) and counted.sum(1).tolist() == [5, 3, 0]
    assert inds[1][counted[1]].tolist() == [1, 2, 5] and len(inds[0].unique()) == 5
