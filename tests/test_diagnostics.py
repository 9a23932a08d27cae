"""How good the critic is, and the rows that are measured."""

import math

import hypothesis.strategies as st
import torch
from hypothesis import given
from tensors import approx, seeds

import metrics
from support import diagnostics


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
