"""support/layers.py against PyTorch's own functions."""

import torch

from support import layers


def test_tanh():
    special = torch.tensor([-torch.inf, -1e30, -88.0, -10.0, -1e-20, 0.0, 1e-20, 10.0, 88.0, 1e30, torch.inf])
    x = torch.cat([special, torch.linspace(-12, 12, 4001), torch.logspace(-8, 1, 501)]).requires_grad_()
    expected = x.detach().double().tanh()
    (slope,) = torch.autograd.grad(layers.tanh(x).sum(), x)
    torch.testing.assert_close(layers.tanh(x).detach().double(), expected, rtol=3e-7, atol=2e-7)
    torch.testing.assert_close(slope.double(), 1 - expected**2, rtol=0, atol=4e-7)
    assert layers.tanh(torch.tensor([torch.nan])).isnan().all(), "a run that diverges is seen"
