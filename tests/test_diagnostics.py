"""support/diagnostics.py: the tags, against the functions of metrics.py, and the rows that are measured."""

import math

import hypothesis.strategies as st
import torch
from hypothesis import given
from tensors import approx, rand, randn, seeds

import metrics
from support import diagnostics


def test_explained_variance():
    returns = torch.tensor([1.0, 2.0, 3.0, 6.0])
    assert metrics.explained_variance(returns, returns) == 1.0
    assert metrics.explained_variance(returns + 5, returns) == 1.0  # a constant error is not variance
    assert metrics.explained_variance(torch.zeros(4), returns) == 0.0
    assert metrics.explained_variance(-returns, returns) == approx(-3.0)
    assert math.isnan(metrics.explained_variance(returns, torch.ones(4)))


def test_what_the_scripts_log():
    features, activity = torch.relu(randn(32, 6)), [diagnostics.unit_activity(torch.relu(randn(32, 6)))[None]]
    one = diagnostics.network_diagnostics([features], activity)
    two = diagnostics.network_diagnostics([features, features[:9]], activity)
    assert {k: v for k, v in one.items() if k.startswith("feature")} == diagnostics.feature_ranks(features)
    assert one.items() <= two.items() and len(two) == len(one) + 5
    assert two["feature_rank/critic_encoder/rows"] == 9
    assert two["feature_rank/critic_encoder"] == metrics.feature_rank(features[:9])
    assert one["dormant_neurons"] == metrics.dormant_neurons(activity)
    assert [one["dormant_neurons/tau_" + tau] for tau in ("0", "0.025", "0.1")] == [
        metrics.dormant_neurons_tau(activity, tau) for tau in (0.0, 0.025, 0.1)
    ]


def test_policy_diagnostics_by_their_tags():
    logits, new_logits, actions = rand(6, 3), 3 * rand(6, 3, seed=1), torch.tensor([0, 1, 2, 0, 1, 2])
    probs, old = new_logits.softmax(-1), logits.softmax(-1)
    log_ratio = (probs / old).gather(-1, actions[:, None]).log()
    values, kl = diagnostics.policy_diagnostics(logits, new_logits, actions)
    assert values == {
        "ess": approx(100 * metrics.effective_sample_size(log_ratio.flatten()) / 6),
        "ess/samples": approx(metrics.effective_sample_size(log_ratio.flatten())),
        "policy_variance": approx(metrics.policy_variance(probs)),
        "policy_variance/normalized": approx(metrics.policy_variance_normalized(probs)),
    }
    assert kl == approx((old * (old / probs).log()).sum(-1).mean().item())
    rows = torch.tensor([[0, 7, 1, 2, 3, 8, 4, 5]])  # two more, which do not count, as of an agent among several
    more = (torch.cat([x, x[:1].expand(3, *x.shape[1:])])[rows] for x in (logits, new_logits, actions))
    masked, masked_kl = diagnostics.policy_diagnostics(*more, valid=rows < 6)
    assert {name: x.item() for name, x in masked.items()} == approx(values) and masked_kl.item() == approx(kl)


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
