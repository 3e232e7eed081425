"""Single operators as models, for the tables of operator times: `operators.py::linear_512_2048` and the like.

A name is the operator and its sizes without the batch; of a pointwise operator the elements are the batch, since torch
runs it on contiguous tensors as on one dimension. Operands are made where they are used, and not filled: the published
times hold neither their copy to the device nor their making. The input has no bytes and says how large the batch is.
No bias: NeuSight's fastest products and convolutions leave no time to pass over their output again.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import advisor.workload.engine_kernels  # noqa: F401 - which defines torch.ops.engine


class Operator(nn.Module):
    """A function of tensors that have these shapes behind their batch dimension."""

    def __init__(self, function: Callable[..., Any], *shapes: tuple[int, ...]) -> None:
        super().__init__()
        self.function = function
        self.shapes = shapes

    def forward(self, samples: Tensor) -> Any:
        return self.function(*(torch.empty(len(samples), *shape, device=samples.device) for shape in self.shapes))


class ChannelsLast(nn.Module):
    """A convolution of images whose channels are their last dimension, without a copy."""

    def __init__(self, convolution: nn.Module) -> None:
        super().__init__()
        self.convolution = convolution

    def forward(self, images: Tensor) -> Any:
        return self.convolution(images.movedim(-1, 1))


def _unary(function: Callable[..., Tensor]) -> Callable[..., nn.Module]:
    return lambda: Operator(function, ())


def _binary(function: Callable[..., Tensor]) -> Callable[..., nn.Module]:
    return lambda: Operator(function, (), ())


_OPERATORS: dict[str, Callable[..., nn.Module]] = {
    "add": _binary(torch.add),
    "add_number": _unary(lambda x: x + 1.5),
    "div": _binary(torch.div),
    "div_number": _unary(lambda x: x / 1.5),
    "mul": _binary(torch.mul),
    "mul_number": _unary(lambda x: x * 1.5),
    "pow": _binary(torch.pow),
    "gelu": _unary(nn.functional.gelu),
    "relu": _unary(nn.functional.relu),
    "tanh": _unary(torch.tanh),
    "leaky_relu": _unary(nn.functional.leaky_relu),
    "prelu": lambda: Operator(nn.PReLU(), ()),
    "selu": _unary(nn.functional.selu),
    "sigmoid": _unary(torch.sigmoid),
    "softplus": _unary(nn.functional.softplus),
    # of all elements; and of (batch, n, inner) over n
    "sum_all": _unary(torch.sum),
    "sum_over": lambda n, inner: Operator(lambda x: x.sum(dim=1), (n, inner)),
    "sum_first": lambda inner: Operator(lambda x: x.sum(dim=0), (inner,)),
    # (batch, width) and (batch, other), along the width or the batch
    "cat": lambda width, other: Operator(lambda x, y: torch.cat([x, y], dim=1), (width,), (other,)),
    "cat_first": lambda width: Operator(lambda x, y: torch.cat([x, y]), (width,), (width,)),
    # (batch, width), along the width
    "softmax": lambda width: Operator(lambda x: x.softmax(dim=-1), (width,)),
    "layer_norm": lambda width: Operator(nn.LayerNorm(width), (width,)),
    # (batch, k) by the weight's (n, k)
    "linear": lambda k, n: Operator(nn.Linear(k, n, bias=False), (k,)),
    "linear_bias": lambda k, n: Operator(nn.Linear(k, n), (k,)),
    # (batch, m, k) by (batch, k, n)
    "bmm": lambda m, n, k: Operator(torch.bmm, (m, k), (k, n)),
    # (batch, width): the kernels of serving engines
    "rms_norm": lambda width: Operator(lambda x: torch.ops.engine.norm(x, []), (width,)),
    "rotary": lambda queries, keys: Operator(torch.ops.engine.rotary, (queries,), (keys,)),
    "silu_and_mul": lambda width: Operator(torch.ops.engine.gate, (width,), (width,)),
    # 3x3, stride 1, padding 1, over a square of `side`
    "conv": lambda channels, filters, side: Operator(
        nn.Conv2d(channels, filters, kernel_size=3, padding=1, bias=False), (channels, side, side)
    ),
    # k x k and k, stride 1, no padding, channels last
    "conv2d_last": lambda channels, filters, k, side: Operator(
        ChannelsLast(nn.Conv2d(channels, filters, k, bias=False)), (side, side, channels)
    ),
    "conv1d_last": lambda channels, filters, k, length: Operator(
        ChannelsLast(nn.Conv1d(channels, filters, k, bias=False)), (length, channels)
    ),
}


def __getattr__(name: str) -> Callable[[], nn.Module]:
    """The operator that `name` spells out, ready to be built."""
    kind = name.rstrip("_0123456789")
    if kind not in _OPERATORS:
        raise AttributeError(name)
    sizes = [int(size) for size in name.removeprefix(kind).split("_") if size]
    return lambda: _OPERATORS[kind](*sizes)


def example_inputs(batch: int) -> Tensor:
    """A tensor of this batch without elements."""
    return torch.empty(batch, 0)
