"""Tensors that the tests of metrics.py and support/diagnostics.py share, and how often Hypothesis tries."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import settings

settings.register_profile("metrics", deadline=None, derandomize=True, database=None, max_examples=200)
settings.load_profile("metrics")

seeds = st.integers(0, 2**31 - 1)
factors = st.floats(1e-3, 1e3)
NAN = math.nan


def randn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def rand(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def shuffled(tensor, seed):
    return tensor[torch.randperm(len(tensor), generator=torch.Generator().manual_seed(seed))]


def orthogonal(size, seed):
    return torch.linalg.qr(randn(size, size, seed=seed)).Q


def approx(value, rel=1e-9, abs=1e-12):
    return pytest.approx(value, rel=rel, abs=abs, nan_ok=True)
