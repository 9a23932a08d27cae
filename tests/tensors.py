"""Tensors and a network that the tests of metrics.py and of the scripts share, and how often Hypothesis tries."""

import math

import hypothesis.strategies as st
import pytest
import torch
import torch.nn as nn
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


def nature(channels, activation, *rest):
    """The trunk of Mnih et al. 2015 as CleanRL writes it, NCHW; its flat output has 3136 numbers of 84 x 84 frames."""
    layers = [nn.Conv2d(channels, 32, 8, stride=4), nn.Conv2d(32, 64, 4, stride=2), nn.Conv2d(64, 64, 3, stride=1)]
    return nn.Sequential(*[part for layer in layers for part in (layer, activation())], nn.Flatten(), *rest)
