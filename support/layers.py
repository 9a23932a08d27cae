"""Layers, convolutions, ELU, tanh and Adam for S agents at once, each as if it were alone. Python 3.8.

What an agent computes has the same bits whatever the others are, and whether there are others:

- A product of matrices is of two slices or more; of one slice it takes another kernel, which rounds differently.
- A convolution, or a large layer, is one call for each agent: as a group of a larger call it would take another path.
- MKL_CBWR=AUTO,STRICT has MKL round alike wherever a slice begins in memory. MKL reads it at its first product.
- F.elu, torch.sigmoid and PyTorch's fused Adam round differently at the end of a tensor: they are not used. So does
  torch.exp2, whose input is padded.
"""

from __future__ import annotations

import contextlib
import math
import os
from typing import Any, Callable, Dict, Iterable, Iterator, Optional, Sequence, Tuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

from support import devices

os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")
FEW = 16  # MKL takes up to six times as long for a matrix with fewer columns
ONE, TWICE_LOG2_E = torch.tensor(1.0), torch.tensor(2.0 / math.log(2.0))  # PyTorch copies a Python number at each call


def elu(x: Tensor) -> Tensor:
    """x where it is positive, exp(x) - 1 elsewhere."""
    return torch.where(x > 0, x, torch.expm1(x.clamp(max=0.0)))


def joined(tensors: Iterable[Tensor]) -> Tensor:
    """Tensors (S, ...) as one, (S, P)."""
    return torch.cat([x.flatten(1) for x in tensors], 1)


def _of_two(product: Callable[..., Tensor], *slices: Tensor) -> Tensor:
    """A product of matrices of G slices, with the only slice twice if G is 1."""
    if len(slices[0]) > 1:
        return product(*slices)
    return product(*(x.expand(2, -1, -1) for x in slices))[:1]


def _product(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """torch.baddbmm, which MKL gets without a matrix of FEW columns."""
    if weight.shape[2] == 1:
        return (x * weight.transpose(1, 2)).sum(2, keepdim=True) + bias
    if weight.shape[2] < FEW:
        weight = weight.transpose(1, 2).contiguous().transpose(1, 2)
    return _of_two(torch.baddbmm, bias, x, weight)


class _Linear(torch.autograd.Function):
    """_product, with gradients that are written so too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tuple[Optional[Tensor], Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        of_x, by_column = None, weight.transpose(1, 2)
        if ctx.needs_input_grad[0]:
            of_x = gradient * by_column if weight.shape[2] == 1 else _of_two(torch.bmm, gradient, by_column)
        if weight.shape[2] < FEW:
            of_weight = _of_two(torch.bmm, gradient.transpose(1, 2), x).transpose(1, 2)
        else:
            of_weight = _of_two(torch.bmm, x.transpose(1, 2), gradient)
        return of_x, of_weight, gradient.sum(1, keepdim=True)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x weight + bias of G slices: (G, B, inputs), (G, inputs, outputs), (G, 1, outputs) -> (G, B, outputs)."""
    return _Linear.apply(x, weight, bias) if torch.is_grad_enabled() else _product(x, weight, bias)


def large_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The same for layers that take longer than a call of PyTorch: a call for each slice, and none twice."""
    return torch.stack([torch.addmm(b, rows, w) for rows, w, b in zip(x, weight, bias)])


def _tanh(x: Tensor) -> Tensor:
    """torch.tanh by exp2: on an AMD CPU MKL's own tanh takes four times as long, more than the layer's product."""
    padding = -x.numel() % 64  # exp2 rounds differently at the end of a tensor, where no vector is full
    power = F.pad(x.flatten(), (0, padding)) if padding else x
    y = power.mul(TWICE_LOG2_E).exp2_().add_(ONE).reciprocal_()
    torch.add(ONE, y, alpha=-2.0, out=y)
    return y[:-padding].view(x.shape) if padding else y


class _Tanh(torch.autograd.Function):
    """_tanh, with its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = _tanh(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return torch.ops.aten.tanh_backward(gradient, y)


def tanh(x: Tensor) -> Tensor:
    """The hyperbolic tangent, to 2e-7."""
    if x.device.type != "cpu":
        return torch.tanh(x)
    return _Tanh.apply(x) if torch.is_grad_enabled() else _tanh(x)


class _SumOfRows(torch.autograd.Function):
    """F.embedding_bag with a gradient that does not sort all rows, which takes longer on a CPU."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.size = table.shape
        return F.embedding_bag(rows, table, mode="sum")

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tuple[Tensor, None]:
        (rows,) = ctx.saved_tensors
        if gradient.device.type == "cpu" and not torch.compiler.is_compiling():
            return torch.from_numpy(_sums_at(rows.numpy(), gradient.numpy(), ctx.size[0])), None
        of_each = gradient.repeat_interleave(rows.shape[1], 0)
        return gradient.new_zeros(ctx.size).index_add_(0, rows.flatten().long(), of_each), None


def _sums_at(rows: np.ndarray, values: np.ndarray, number: int) -> np.ndarray:
    """(number, D): row r is the sum of the values, (B, D), that have r among their rows, (B, K).

    Takes a sixth of the time of index_add_.
    """
    from scipy import sparse  # 0.15 CPU-seconds, for grids only

    ends = np.arange(0, rows.size + 1, rows.shape[1])
    counts = sparse.csr_matrix((np.ones(rows.size, values.dtype), rows.ravel(), ends), shape=(len(rows), number))
    return np.asarray(counts.T @ values)


def sum_of_rows(table: Tensor, rows: Tensor) -> Tensor:
    """Sums of rows of a table: (R, D), and their numbers (B, K), int32 or int64 -> (B, D)."""
    if torch.compiler.is_exporting():  # ONNX has no embedding_bag
        return table[rows.long()].sum(1)
    return _SumOfRows.apply(table, rows)


class Layer(nn.Module):
    """A layer of each of E encoders of S agents. weight: (S, E, inputs, outputs), bias: (S, E, 1, outputs)."""

    kept: Optional[Tuple[Tensor, Tensor]] = None  # what slices() returns, within `constant`

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        """Without nn.Module's hooks: they take 8 % of the time of the network in a rollout."""
        return self.forward(x)

    def slices(self) -> Tuple[Tensor, Tensor]:
        """The weight and the bias in the form that forward computes with."""
        raise NotImplementedError


@contextlib.contextmanager
def constant(module: nn.Module) -> Iterator[None]:
    """In this context no weight of the module changes: its layers make their slices once, for many calls."""
    layers = [layer for layer in module.modules() if isinstance(layer, Layer)]
    for layer in layers:
        layer.kept = layer.slices()
    try:
        yield
    finally:
        for layer in layers:
            layer.kept = None


class Linear(Layer):
    """`linear` or, for a large layer, `large_linear`. layers: S lists of E nn.Linear, which give the first weights."""

    def __init__(self, layers: Sequence[Sequence[nn.Linear]], large: bool) -> None:
        weights = [torch.stack([layer.weight.detach().t() for layer in agent]) for agent in layers]
        biases = [torch.stack([layer.bias.detach()[None] for layer in agent]) for agent in layers]
        super().__init__(nn.Parameter(torch.stack(weights)), nn.Parameter(torch.stack(biases)))
        self.function = large_linear if large else linear

    def slices(self) -> Tuple[Tensor, Tensor]:
        """(S E, inputs, outputs), (S E, 1, outputs)."""
        return self.weight.flatten(0, 1), self.bias.flatten(0, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(S E, B, inputs) -> (S E, B, outputs)."""
        weight, bias = self.kept or self.slices()
        return self.function(x, weight, bias)


class GridConvolution(Layer):
    """F.conv2d with kernels of 3 x 3 cells and a stride of 2 over grids of 7 x 7 one-hot cells, for S agents at once.

    layer: a Linear of E encoders with 9 inputs for each of the values; values: how many each of a cell's numbers has.
    A cell adds a row of weights for each of its numbers at each of nine places. So the output is a sum of rows of a
    table, which has a row for each combination of a cell's numbers and each place.
    """

    def __init__(self, layer: Linear, values: Sequence[int]) -> None:
        super().__init__(layer.weight, layer.bias)
        self.values = tuple(values)
        cells = torch.arange(7 * 7).view(7, 7).unfold(0, 3, 2).unfold(1, 3, 2)  # those of each patch
        self.register_buffer("cells", cells.flatten(), persistent=False)
        self.register_buffer("places", torch.arange(9, dtype=torch.int32), persistent=False)  # in a patch

    def slices(self) -> Tuple[Tensor, Tensor]:
        """The table, (rows, E outputs), and the bias, (S, 1, E outputs): the encoders' kernels are columns of one."""
        weight, bias = (x.transpose(1, 2).flatten(2) for x in (self.weight, self.bias))
        objects, colors, states = weight.unflatten(1, (-1, 9)).split(self.values, 1)  # (S, values, 9, E outputs)
        return (objects[:, :, None, None] + colors[:, None, :, None] + states[:, None, None]).flatten(0, 4), bias

    def forward(self, grids: Tensor) -> Tensor:
        """grids: (S, B, 49, 3) whole numbers -> (S, E, B, outputs, 9)."""
        table, bias = self.kept or self.slices()
        objects, colors, states = grids.int().unbind(-1)
        agents = torch.arange(len(grids), dtype=torch.int32, device=grids.device)[:, None, None]
        cells = ((agents * self.values[0] + objects) * self.values[1] + colors) * self.values[2] + states
        rows = (9 * cells).index_select(-1, self.cells).view(-1, 9) + self.places
        x = sum_of_rows(table, rows).view(len(grids), -1, bias.shape[-1]) + bias
        return x.view(len(grids), -1, 9, self.weight.shape[1], x.shape[-1] // self.weight.shape[1]).permute(
            0, 3, 1, 4, 2
        )


class Convolution(Layer):
    """F.conv2d for S agents at once, with E encoders each. A call for each agent takes a third of the time of a product
    of matrices that are cut from the images.

    layer: a Linear of E encoders with C size size inputs; size: of the kernels; stride: between two of their places.
    """

    def __init__(self, layer: Linear, size: int, stride: int) -> None:
        super().__init__(layer.weight, layer.bias)
        self.size, self.stride = size, stride

    def slices(self) -> Tuple[Tensor, Tensor]:
        """The kernels (S, E outputs, C, size, size), and the biases (S, E outputs)."""
        kernels = self.weight.transpose(2, 3).flatten(1, 2).unflatten(2, (-1, self.size, self.size))
        return kernels.contiguous(), self.bias.flatten(1)

    def forward(self, images: Tensor) -> Tensor:
        """images: (S, B, C, H, W), which all encoders see, or (S, B, E C, H, W) -> (S, B, E outputs, H', W')."""
        slices = self.kept or self.slices()
        groups = images.shape[2] // slices[0].shape[2]
        of_agents = zip(images, *slices)
        return torch.stack([F.conv2d(x, kernels, bias, self.stride, groups=groups) for x, kernels, bias in of_agents])


class Maker:
    """Makes the layers of S agents, one after the other; an agent's first weights are those that it would get alone.

    They are what PyTorch's generator gives after the agent's seed. init(layer, std) initialises an nn.Linear.
    """

    def __init__(self, seeds: Sequence[int], init: Callable[[nn.Linear, float], nn.Linear]) -> None:
        self.init, self.states = init, [torch.manual_seed(seed).get_state() for seed in seeds]

    def __call__(self, number: int, inputs: int, outputs: int, std: float = 2**0.5, large: bool = False) -> Linear:
        """The next layer, with these inputs and outputs, of a number of encoders of each agent."""
        of_agents = []
        for s, state in enumerate(self.states):
            torch.set_rng_state(state)
            of_agents.append([self.init(nn.Linear(inputs, outputs), std) for _ in range(number)])
            self.states[s] = torch.get_rng_state()
        return Linear(of_agents, large)

    def grid_convolution(self, number: int, values: Sequence[int], outputs: int) -> GridConvolution:
        """The next layer: a convolution of grids, whose cells have numbers below these values."""
        return GridConvolution(self(number, 9 * sum(values), outputs), values)

    def convolutions(
        self, number: int, image: Sequence[int], kernels: Sequence[Tuple[int, int, int]]
    ) -> Tuple[nn.ModuleList, int]:
        """The next layers: convolutions of an image (C, H, W, ...), one after the other.

        kernels: their number, size and stride in each layer. Returns the layers, and how many numbers leave the last.
        """
        channels, *sides = image[:3]
        layers = nn.ModuleList()
        for outputs, size, stride in kernels:
            layers.append(Convolution(self(number, channels * size * size, outputs), size, stride))
            channels, sides = outputs, [(side - size) // stride + 1 for side in sides]
        return layers, channels * math.prod(sides)


class Adam:
    """Adam (Kingma and Ba 2015) with a learning rate for each of S agents: torch.optim.Adam, betas (0.9, 0.999).

    The parameters of the module, (S, ...) each, become views of one tensor (S, P): few calls of PyTorch a step then.

    Attributes: `learning_rate`, (S, 1) float64; `parameters`, `mean` and `square`, (S, P); `steps`, (S, 1) float64.
    """

    def __init__(self, module: nn.Module, learning_rate: Tensor, eps: float = 1e-5) -> None:
        self.learning_rate, self.eps = learning_rate, eps
        views = list(module.parameters())
        self.parameters = joined(view.detach() for view in views)
        for view, part in zip(views, self.parameters.split([view[0].numel() for view in views], 1)):
            view.data = part.view(view.shape)
        self.steps = torch.zeros(len(self.parameters), 1, dtype=torch.float64)
        self.mean, self.square = torch.zeros_like(self.parameters), torch.zeros_like(self.parameters)

    @torch.no_grad()
    def step(self, gradient: Tensor) -> None:
        """gradient: (S, P)."""
        self.mean.lerp_(gradient, 1 - 0.9)
        self.square.mul_(0.999).addcmul_(gradient, gradient, value=1 - 0.999)
        steps, rate = self.steps.numpy(), self.learning_rate.numpy()  # PyTorch takes longer for a few numbers
        steps += 1
        scalars = np.stack([np.sqrt(1 - 0.999**steps), -rate / (1 - 0.9**steps)]).astype(np.float32)
        root, rate = devices.to_device(scalars, gradient.device)
        self.parameters.addcdiv_(self.mean * rate, self.square.sqrt().div_(root).add_(self.eps))

    def state_dict(self) -> Dict[str, Any]:
        return {"steps": self.steps, "mean": self.mean, "square": self.square}
