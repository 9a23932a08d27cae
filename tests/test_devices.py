"""The threads that share out a run's work: devices.Workers."""

import copy
import os
import threading
from collections import namedtuple
from types import SimpleNamespace

import pytest
import torch

from support import devices
from support.reading.manifests import difference

CPU = torch.device("cpu")
Rows = namedtuple("Rows", "x y")


@pytest.fixture(params=[1, 2, 3])
def workers(request):
    return devices.Workers(SimpleNamespace(num_threads=request.param), CPU)


def test_bf16_hint():
    """One of the two choices is slow on any Linux machine, and only that one gets a hint."""
    hints = [devices.bf16_hint(bf16) for bf16 in (False, True)]
    assert hints.count(None) == 1 and "--bf16" in str(hints)


@pytest.mark.parametrize(
    "number,size,expected",
    [(8, 32, 2), (32, 32, 2), (128, 32, 4), (1024, 32, 16), (1, 32, 1), (0, 32, 1), (256, 128, 2), (1024, 128, 8)],
)
def test_pieces_follow_from_the_work_alone(workers, number, size, expected):
    pieces = workers.pieces(number, size)
    assert len(pieces) == expected
    assert [i for piece in pieces for i in range(number)[piece]] == list(range(number))
    lengths = [len(range(number)[piece]) for piece in pieces]
    assert max(lengths) - min(lengths) <= 1
    assert devices.Workers(SimpleNamespace(num_threads=1), torch.device("cuda")).pieces(number, size) == [
        slice(0, number)
    ]


def test_each_thread_computes_alone_and_in_the_callers_grad_mode(workers):
    """Grad mode and the number of PyTorch's threads are settings of a thread: a new one has gradients and all cores."""
    threads = set()

    def look(i):
        threads.add(threading.get_ident())
        return i, torch.get_num_threads(), torch.is_grad_enabled()

    assert workers.map(look, range(5)) == [(i, 1, True) for i in range(5)]
    with torch.no_grad():
        assert workers.map(look, range(5)) == [(i, 1, False) for i in range(5)]
    assert torch.get_num_threads() == 1
    assert (threading.get_ident() in threads) == (workers._threads is None)


def test_an_error_in_a_piece_reaches_the_caller(workers):
    with pytest.raises(ZeroDivisionError):
        workers.map(lambda i: 1 / i, [1, 0, 2])


def test_the_sum_does_not_depend_on_the_number_of_threads(workers):
    """…and equals what one piece gives, up to rounding."""
    generator = torch.Generator().manual_seed(0)
    rows = Rows(torch.randn(600, 5, generator=generator), torch.randn(40, generator=generator))  # of two lengths
    weight = torch.randn(5, generator=generator)

    def function(rows):
        return [(rows.x * weight).sum(0), rows.x.sum()], {"squares": rows.x.square().sum()}

    total, named = workers.summed(function, rows)
    pieces = [Rows(*piece) for piece in zip(rows.x.split(150), rows.y.split(10))]
    parts = [function(piece) for piece in pieces]
    _, products = workers.summed(lambda rows: ([torch.zeros(1)], {"product": rows.x.sum() * rows.y.sum()}), rows)
    assert torch.equal(products["product"], sum(piece.x.sum() * piece.y.sum() for piece in pieces))
    assert torch.equal(total[0], ((parts[0][0][0] + parts[1][0][0]) + parts[2][0][0]) + parts[3][0][0])
    whole, whole_named = function(rows)
    torch.testing.assert_close(total, whole, rtol=1e-5, atol=1e-3)
    torch.testing.assert_close(named, whole_named, rtol=1e-5, atol=1e-3)


def test_each_process_of_torchrun_gets_its_share_of_the_cores(monkeypatch):
    """torchrun sets OMP_NUM_THREADS to 1: the games of a GPU would have one thread."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(32)), raising=False)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert devices.default_threads() == 8
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    assert devices.default_threads() == torch.get_num_threads()


def test_a_process_without_rows_has_no_part_in_the_mean(monkeypatch):
    parts = [(0, float("nan")), (1, 5.0), (3, 1.0)]
    monkeypatch.setattr(devices, "gather", lambda own: parts)
    assert devices.mean_over_ranks(1, 5.0) == (4, 2.0)
    del parts[1:]
    number, mean = devices.mean_over_ranks(0, float("nan"))
    assert number == 0 and mean != mean


@pytest.mark.parametrize("graphs", [False, True])
def test_an_optimizer_goes_on_with_cuda_graphs_or_without(graphs):
    """With graphs the rate is a tensor. The second optimiser keeps its own kind, and gets the first one's moments."""

    def adam(graphs, rate):
        weight = torch.nn.Parameter(torch.ones(3))
        lr = torch.tensor(rate) if graphs else rate
        return weight, torch.optim.Adam([weight], lr=lr, fused=True, capturable=graphs)

    def step(weight, optimizer, gradient):
        weight.grad = torch.tensor(gradient)
        optimizer.step()

    weight, first = adam(graphs, 0.5)
    step(weight, first, [1.0, -2.0, 3.0])
    other, second = adam(not graphs, 0.25)
    other.data.copy_(weight)
    devices.load_optimizer(second, copy.deepcopy(first.state_dict()))
    group = second.param_groups[0]
    assert isinstance(group["lr"], float) == graphs and float(group["lr"]) == 0.5 and group["capturable"] != graphs
    for gradient in ([1.0, 1.0, -1.0], [0.5, 2.0, 1.0]):
        step(weight, first, gradient)
        step(other, second, gradient)
    torch.testing.assert_close(other, weight)
    assert first.param_groups[0]["capturable"] == graphs
    before = {"cuda_graphs": graphs, "bf16": False}
    assert difference(before, {**before, "cuda_graphs": not graphs}) == ""
    assert difference(before, {**before, "bf16": True}) == "--bf16 False, not True"
