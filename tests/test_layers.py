"""support/layers.py against PyTorch's own functions."""

import pytest
import torch

from support import layers


@pytest.mark.parametrize("slices", [1, 3])
@pytest.mark.parametrize("inputs,outputs", [(4, 6), (6, 4), (6, 1), (1, 1)])
def test_linear(slices, inputs, outputs):
    torch.manual_seed(0)
    x, weight, bias = (torch.randn(slices, *size) for size in ((5, inputs), (inputs, outputs), (1, outputs)))
    for tensor in (x, weight, bias):
        tensor.requires_grad_()
    ours, theirs = layers.linear(x, weight, bias), x.double() @ weight.double() + bias.double()
    torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=1e-6)
    gradient = torch.randn_like(ours)
    found, expected = (torch.autograd.grad(y, (x, weight, bias), gradient.to(y.dtype)) for y in (ours, theirs))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        assert torch.equal(layers.linear(x, weight, bias), ours), "acting and training see the same outputs"


@pytest.mark.parametrize("inputs,outputs", [(64, 1), (64, 3), (1, 64)])
def test_a_slice_has_the_same_bits_alone(inputs, outputs):
    torch.manual_seed(0)
    slices = [torch.randn(3, *size) for size in ((256, inputs), (inputs, outputs), (1, outputs), (256, outputs))]

    def computed(x, weight, bias, gradient):
        of = [y.clone().requires_grad_() for y in (x, weight, bias)]
        y = layers.linear(*of)
        with torch.no_grad():
            return [layers.linear(*of), y.detach(), *torch.autograd.grad(y, of, gradient)]

    together = computed(*slices)
    for s in range(3):
        alone = computed(*(y[s : s + 1] for y in slices))
        assert all(torch.equal(a, b[s : s + 1]) for a, b in zip(alone, together))


@pytest.mark.parametrize("compiling", [False, True])
def test_the_gradient_of_a_sum_of_rows(compiling, monkeypatch):
    """Sparse on a CPU; added row by row on a GPU and with --compile. Rows occur in several sums, and twice in one."""
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: compiling)
    rows = torch.tensor([[0, 2, 2], [5, 1, 0], [2, 3, 1], [5, 5, 5]], dtype=torch.int32)
    table = torch.randn(7, 2, generator=torch.Generator().manual_seed(0)).requires_grad_()
    expected = torch.nn.functional.embedding_bag(rows, table, mode="sum")
    gradient = torch.arange(8.0).view(4, 2).square() - 3
    torch.testing.assert_close(layers.sum_of_rows(table, rows), expected)
    found, right = (torch.autograd.grad(y, table, gradient)[0] for y in (layers.sum_of_rows(table, rows), expected))
    torch.testing.assert_close(found, right)


def test_a_place_in_a_tensor_does_not_change_tanh():
    x = 5 * torch.randn(1003, generator=torch.Generator().manual_seed(0))
    whole = layers.tanh(x)
    for size in (1, 15, 31, 63, 64, 65, 700):
        for start in range(0, 1003 - size, 37):
            assert torch.equal(layers.tanh(x[start : start + size]), whole[start : start + size])


def test_tanh():
    special = torch.tensor([-torch.inf, -1e30, -88.0, -10.0, -1e-20, 0.0, 1e-20, 10.0, 88.0, 1e30, torch.inf])
    x = torch.cat([special, torch.linspace(-12, 12, 4001), torch.logspace(-8, 1, 501)]).requires_grad_()
    expected = x.detach().double().tanh()
    (slope,) = torch.autograd.grad(layers.tanh(x).sum(), x)
    torch.testing.assert_close(layers.tanh(x).detach().double(), expected, rtol=3e-7, atol=2e-7)
    torch.testing.assert_close(slope.double(), 1 - expected**2, rtol=0, atol=4e-7)
    assert layers.tanh(torch.tensor([torch.nan])).isnan().all(), "a run that diverges is seen"
