"""Every operator family of `advisor/ops`, as models of one or a few layers in several sizes.

`operators.py::operator(case='lstm 512x32')` is the model of one case. `scripts/measure_steps.py` times all of them.
Inputs that the model differentiates need gradients, so that layers without parameters have a backward pass too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model and its inputs."""

    make: Callable[[], nn.Module]
    inputs: Callable[[int], Any]
    """Batch size -> inputs."""


class Call(nn.Module):
    """A function of tensors, which differentiates with respect to its floating-point inputs."""

    def __init__(self, function: Callable[..., Any], *modules: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.modules_used = nn.ModuleList(modules)
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, *inputs: Tensor) -> Any:
        """Call the function."""
        if torch.is_grad_enabled():
            inputs = tuple(one.detach().requires_grad_() if one.is_floating_point() else one for one in inputs)
        return self.function(*inputs)


def _call(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Case:
    """Return a function of random tensors; the shapes are without the batch."""
    return Case(
        make=lambda: Call(function),
        inputs=lambda batch: tuple(torch.randn(batch, *shape) for shape in shapes),
    )


def _layers(make: Callable[[], nn.Module], shape: tuple[int, ...], *, count: int = 2) -> Case:
    """Return layers in a row, each with its own weights, so that the next weights are not in a near cache."""
    return Case(
        make=lambda: nn.Sequential(*(make() for _ in range(count))), inputs=lambda batch: torch.randn(batch, *shape)
    )


def _layer(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> Case:
    return _layers(make, shape, count=1)


def _indexed(make: Callable[[], nn.Module], words: int, count: int) -> Case:
    """Return a layer of `count` indices per sample, below `words`."""
    return Case(make=make, inputs=lambda batch: torch.randint(words, (batch, count)))


def _conv(channels: int, filters: int, kernel: int, side: int, *, groups: int = 1, stride: int = 1) -> Case:
    def make() -> nn.Module:
        return nn.Conv2d(channels, filters, kernel, stride, kernel // 2, groups=groups, bias=False)

    return _layers(make, (channels, side, side), count=2 if channels == filters and stride == 1 else 1)


def _up(channels: int, filters: int, kernel: int, side: int) -> Case:
    """Return a transposed convolution of stride 2."""

    def make() -> nn.Module:
        return nn.ConvTranspose2d(channels, filters, kernel, 2, kernel // 2 - 1 if kernel > 2 else 0)

    return _layer(make, (channels, side, side))


def _linears(inputs: int, outputs: int, *, count: int, tokens: int = 1) -> Case:
    shape = (inputs,) if tokens == 1 else (tokens, inputs)
    return _layers(lambda: nn.Linear(inputs, outputs), shape, count=count)


def _recurrent(layer: Callable[..., nn.Module], width: int, length: int, **options: Any) -> Case:
    """Return a recurrent layer over sequences, whose output is that of all time steps."""

    def build() -> nn.Module:
        made = layer(width, width, batch_first=True, **options)
        return Call(lambda x: made(x)[0], made)

    return Case(make=build, inputs=lambda batch: torch.randn(batch, length, width))


def _resized(mode: str) -> Case:
    return _call(lambda x: functional.interpolate(x, scale_factor=2, mode=mode), (64, 28, 28))


def _attention(heads: int, length: int, width: int, **options: Any) -> Case:
    def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        attended: Tensor = functional.scaled_dot_product_attention(queries, keys, values, **options)
        return attended

    return _call(attend, *[(heads, length, width)] * 3)


def _gathered(x: Tensor) -> Tensor:
    """Return the columns of x in reverse order, by index."""
    return x.index_select(1, torch.arange(x.shape[1] - 1, -1, -1, device=x.device))


def _scattered(x: Tensor) -> Tensor:
    """Return the sums of every fourth column."""
    sums = torch.zeros(x.shape[0], x.shape[1] // 4, device=x.device, dtype=x.dtype)
    index = torch.arange(x.shape[1], device=x.device).remainder(x.shape[1] // 4).expand_as(x)
    return sums.scatter_add(1, index, x)


def _cross_entropy(scores: Tensor) -> Tensor:
    return functional.cross_entropy(scores, scores.new_zeros(len(scores), dtype=torch.long))


def _solved(x: Tensor) -> Tensor:
    matrix = x @ x.transpose(-1, -2) + x.shape[-1] * torch.eye(x.shape[-1], device=x.device)
    solved: Tensor = torch.linalg.solve(matrix, x)
    return solved


def _created(x: Tensor) -> Tensor:
    return torch.zeros_like(x) + torch.arange(x.shape[-1], device=x.device, dtype=x.dtype)


FAMILIES: Mapping[str, Mapping[str, Case]] = {
    "matmul": {
        "linear 128x128": _linears(128, 128, count=1),
        "linear 4096x1": _linears(4096, 1, count=1),
        **{f"linears {width}": _linears(width, width, count=4) for width in (256, 1024, 2048)},
        "linears 768 of 128 tokens": _linears(768, 768, count=4, tokens=128),
        "bmm 16x32x64x32": _call(torch.matmul, (16, 32, 64), (16, 64, 32)),
        "bmm 8x256x64x256": _call(torch.matmul, (8, 256, 64), (8, 64, 256)),
        "bmm 4x1x128x512": _call(torch.matmul, (4, 1, 128), (4, 128, 512)),
    },
    "conv": {
        "conv 3-64 7x7/2 of 112": _conv(3, 64, 7, 112, stride=2),
        "conv 32-32 3x3 of 56": _conv(32, 32, 3, 56),
        "conv 64-64 3x3 of 56": _conv(64, 64, 3, 56),
        "conv 256-256 3x3 of 14": _conv(256, 256, 3, 14),
        "conv 512-512 3x3 of 7": _conv(512, 512, 3, 7),
        "conv 64-256 1x1 of 56": _conv(64, 256, 1, 56),
        "conv 1024-1024 1x1 of 7": _conv(1024, 1024, 1, 7),
        "conv 64-3 3x3 of 112": _conv(64, 3, 3, 112),
        "conv 128-128 3x3 of 28, 4 groups": _conv(128, 128, 3, 28, groups=4),
        "conv 256-256 3x3 of 14, 32 groups": _conv(256, 256, 3, 14, groups=32),
        "conv 144-144 3x3 of 56, depthwise": _conv(144, 144, 3, 56, groups=144),
        "conv 240-240 5x5 of 14, depthwise": _conv(240, 240, 5, 14, groups=240),
        "conv 96-96 7x7 of 56, depthwise": _conv(96, 96, 7, 56, groups=96),
        "conv1d 128-128 9 of 512": _layers(lambda: nn.Conv1d(128, 128, 9, padding=4), (128, 512)),
        "conv3d 16-16 3x3x3 of 16": _layers(lambda: nn.Conv3d(16, 16, 3, padding=1), (16, 16, 16, 16)),
        "up 64-32 2x2 of 32": _up(64, 32, 2, 32),
        "up 256-128 2x2 of 16": _up(256, 128, 2, 16),
        "up 256-128 4x4 of 16": _up(256, 128, 4, 16),
        "up 64-3 4x4 of 32": _up(64, 3, 4, 32),
        "up 512-256 4x4 of 4": _up(512, 256, 4, 4),
    },
    "rnn": {
        **{
            f"lstm {width}x{length}": _recurrent(nn.LSTM, width, length)
            for width, length in ((64, 64), (256, 32), (512, 32), (1024, 16))
        },
        "lstm 256x32, 2 layers, both ways": _recurrent(nn.LSTM, 256, 32, num_layers=2, bidirectional=True),
        **{
            f"gru {width}x{length}": _recurrent(nn.GRU, width, length)
            for width, length in ((128, 32), (512, 32), (1024, 16))
        },
        "rnn 256x32": _recurrent(nn.RNN, 256, 32),
    },
    "attention": {
        "attention 12x197x64": _attention(12, 197, 64),
        "attention 8x1024x64": _attention(8, 1024, 64),
        "attention 8x512x64, causal": _attention(8, 512, 64, is_causal=True),
        "attention 3x49x32": _attention(3, 49, 32),
        "attention 16x128x128": _attention(16, 128, 128),
    },
    "embedding": {
        "embedding 30000x768": _indexed(lambda: nn.Embedding(30_000, 768), 30_000, 128),
        "embedding 1000000x64": _indexed(lambda: nn.Embedding(1_000_000, 64), 1_000_000, 128),
        "embedding 1000000x64, warm": _indexed(lambda: nn.Embedding(1_000_000, 64), 1_000, 128),
        "bag 1000000x64": _indexed(lambda: nn.EmbeddingBag(1_000_000, 64), 1_000_000, 64),
        "bag 1000x64": _indexed(lambda: nn.EmbeddingBag(1_000, 64), 1_000, 64),
    },
    "norm": {
        "batch norm 64 of 56": _layers(lambda: nn.BatchNorm2d(64), (64, 56, 56)),
        "batch norm 512 of 7": _layers(lambda: nn.BatchNorm2d(512), (512, 7, 7)),
        "layer norm 768": _layers(lambda: nn.LayerNorm(768), (128, 768)),
        "group norm 32 of 128x28": _layers(lambda: nn.GroupNorm(32, 128), (128, 28, 28)),
        "instance norm 64 of 56": _layers(lambda: nn.InstanceNorm2d(64), (64, 56, 56)),
    },
    "softmax": {
        "softmax 12x197x197": _call(lambda x: x.softmax(-1), (12, 197, 197)),
        "log softmax 32000": _call(lambda x: x.log_softmax(-1), (32_000,)),
    },
    "loss": {
        "cross entropy 1000": _call(_cross_entropy, (1000,)),
        "cross entropy 32000": _call(_cross_entropy, (32_000,)),
    },
    "pool": {
        "max pool 64 3x3/2 of 112": _call(lambda x: functional.max_pool2d(x, 3, 2, 1), (64, 112, 112)),
        "avg pool 128 2x2 of 28": _call(lambda x: functional.avg_pool2d(x, 2), (128, 28, 28)),
    },
    "interpolate": {f"{mode} x2 of 64x28": _resized(mode) for mode in ("nearest", "bilinear", "bicubic")},
    "gather": {
        "index select 4096": _call(_gathered, (4096,)),
        "scatter add 4096": _call(_scattered, (4096,)),
    },
    "sort": {
        "sort 1000": _call(lambda x: x.sort(-1).values, (1000,)),
        "top 10 of 32000": _call(lambda x: x.topk(10, -1).values, (32_000,)),
    },
    "scan": {"cumulative sum 4096": _call(lambda x: x.cumsum(-1), (4096,))},
    "reduction": {
        "adaptive avg pool 512 of 14": _call(lambda x: functional.adaptive_avg_pool2d(x, 1), (512, 14, 14)),
        "mean 512 of 14": _call(lambda x: x.mean((2, 3)), (512, 14, 14)),
        "sum 4096": _call(lambda x: x.sum(-1), (4096,)),
        "max 4096": _call(lambda x: x.amax(-1), (4096,)),
        "variance 128x768": _call(lambda x: x.var(-1), (128, 768)),
    },
    "pointwise": {
        "rms norm 1024": _layers(lambda: nn.RMSNorm(1024), (128, 1024)),
        **{
            f"{name} 200704": _call(function, (200_704,))
            for name, function in (
                ("relu", torch.relu),
                ("gelu", functional.gelu),
                ("silu", functional.silu),
                ("exp", torch.exp),
                ("tanh", torch.tanh),
                ("sigmoid", torch.sigmoid),
                ("square root", lambda x: (x * x + 1).sqrt()),
            )
        },
        "add 200704": _call(torch.add, (200_704,), (200_704,)),
        "add 2000000": _call(torch.add, (2_000_000,), (2_000_000,)),
        "where 200704": _call(lambda x: torch.where(x > 0, x, 0.5), (200_704,)),
        "divide 200704": _call(torch.div, (200_704,), (200_704,)),
    },
    "copy": {
        "transpose 128x768": _call(lambda x: x.transpose(1, 2).contiguous(), (128, 768)),
        "roll 196x384": _call(lambda x: x.roll(3, 1), (196, 384)),
        "concatenate 2 of 64x56": _call(lambda x, y: torch.cat((x, y), 1), *[(64, 56, 56)] * 2),
        "pad 64x56": _call(lambda x: functional.pad(x, (1, 1, 1, 1)), (64, 56, 56)),
        "channels last 64x56": _call(lambda x: x.contiguous(memory_format=torch.channels_last), (64, 56, 56)),
    },
    "random": {"dropout 200704": _call(lambda x: functional.dropout(x, 0.1, training=True), (200_704,))},
    "creation": {"zeros and range 200704": _call(_created, (200_704,))},
    "fft": {
        "rfft2 16x64": _call(lambda x: torch.fft.rfft2(x).abs(), (16, 64, 64)),
        "rfft 4096": _call(lambda x: torch.fft.rfft(x).abs(), (4096,)),
    },
    "linalg": {"solve 32": _call(_solved, (32, 32)), "solve 128": _call(_solved, (128, 128))},
}
"""Cases by the family of `advisor/ops` that takes most of their time."""
NOT_TIMED: Mapping[str, str] = {
    "view": "it takes no time",
    "optimizer": "the steps of whole models in training contain it",
    "quantized": "torch's own quantized layers need a backend that differs between CPUs",
    "gate": "a kernel of serving engines, which plain torch does not have",
    "rms_norm": "a kernel of serving engines, which plain torch does not have",
    "rotary": "a kernel of serving engines, which plain torch does not have",
}
"""The other families, each with the reason."""
CASES: Mapping[str, Case] = {name: case for cases in FAMILIES.values() for name, case in cases.items()}


def operator(case: str) -> nn.Module:
    """Return the model of a case."""
    return CASES[case].make()


def example_inputs(batch: int = 16, case: str = "linears 1024") -> Any:
    """Return random inputs of a case."""
    return CASES[case].inputs(batch)


def loss(output: Tensor, inputs: Any) -> Tensor:
    """Return the mean square of the output."""
    return output.float().square().mean()
