"""Tensors that the tests of metrics.py and of the targets share, and how often Hypothesis tries."""

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


def columns(*rows):
    """One list for each environment, to a (T, N) tensor."""
    return torch.tensor(rows).t().contiguous()


def sequences():
    """Five steps in four environments; with gamma = lambda = 0.5 each target can be checked in the head.

    0: terminated at t=1, autoreset t=2.  1: truncated at t=1, autoreset t=2.  2: no end.  3: autoreset t=0, end at t=4.
    """
    F, T = False, True
    return dict(
        rewards=columns(*[[1.0, 2.0, 0.0, 3.0, 4.0]] * 4),
        values=columns(*[[10.0, 20.0, 30.0, 40.0, 50.0]] * 4),
        next_values=columns(*[[20.0, 30.0, 40.0, 50.0, 60.0]] * 4),
        terminations=columns([F, T, F, F, F], [F] * 5, [F] * 5, [F, F, F, F, T]),
        truncations=columns([F] * 5, [F, T, F, F, F], [F] * 5, [F] * 5),
        valid=columns([T, T, F, T, T], [T, T, F, T, T], [T] * 5, [F, T, T, T, T]),
    )
