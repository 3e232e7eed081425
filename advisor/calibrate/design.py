"""Defines the modules that a calibration times, most informative first, since time may run out after any of them.

Sizes are those of layers in common nets, so that caches and tiles are filled in the same way.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from advisor.records.calibration import NET
from advisor.records.device import Precision
from advisor.records.workload import Mode

_TINY = "tiny"
"""Prefix of the probes that measure dispatch overhead; they have the same size on every device."""
_COMPUTING = (NET, _TINY, "linear", "bmm", "conv", "attention", "lstm")
"""Prefixes of the probes that compute, rather than only stream data."""
_MOST_ELEMENTS = 2**25
"""Largest input: 128 MiB in fp32, more than any cache."""
_REPEATS = 4
"""Layers in a row, each with its own weights, so that the next weights are not in a near cache, as in a net."""


class Call(nn.Module):
    """A function of tensors, with the modules that it uses."""

    def __init__(self, function: Callable[..., Tensor], *modules: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.modules_used = nn.ModuleList(modules)

    def forward(self, *tensors: Tensor) -> Tensor:
        """Call the function."""
        return self.function(*tensors)


class Residual(nn.Module):
    """A residual block, x + body(x)."""

    def __init__(self, *body: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*body)

    def forward(self, x: Tensor) -> Tensor:
        """Add the body's output to `x`."""
        result: Tensor = x + self.body(x)
        return result


class Attention(nn.Module):
    """Multi-head attention of (batch, length, width) with itself."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Attend."""
        batch, length, width = x.shape
        q, k, v = self.qkv(x).reshape(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        attended = functional.scaled_dot_product_attention(q, k, v)
        result: Tensor = self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A module that is timed as one step of `batch` samples."""

    name: str
    make: Callable[[], nn.Module]
    shapes: tuple[tuple[int, ...], ...]
    """Shapes of the inputs without the batch dimension."""
    batch: int
    mode: Mode = "inference"
    precision: Precision = "fp32"
    index_limit: int | None = None
    """If set, the inputs are indices below it."""

    def inputs(self, batch: int) -> tuple[Tensor, ...]:
        """Return random numbers, or random indices below `index_limit`."""
        if self.index_limit is not None:
            return tuple(torch.randint(self.index_limit, (batch, *shape)) for shape in self.shapes)
        return tuple(torch.randn(batch, *shape) for shape in self.shapes)


def probes(precisions: Sequence[Precision], *, size_factor: int) -> list[Probe]:
    """Return every probe, in rounds that each cover all precisions; batches are `size_factor` times those for a CPU.

    Probes that only stream data are timed only at the first precision.
    """
    return [
        _sized(replace(probe, precision=precision), size_factor=size_factor)
        for round_ in (_NETS, _CORE, _MORE)
        for precision in precisions
        for probe in round_
        if precision == precisions[0] or probe.name.startswith(_COMPUTING)
    ]


def _sized(probe: Probe, *, size_factor: int) -> Probe:
    if probe.name.startswith(_TINY):
        return probe
    most = _MOST_ELEMENTS // max(math.prod(shape) for shape in probe.shapes)
    return replace(probe, batch=max(probe.batch, min(probe.batch * size_factor, most)))


def _linear(batch: int, width: int, hidden: int) -> Probe:
    """Return linear layers from `width` to `hidden` and back, `_REPEATS` / 2 times."""

    def layers() -> nn.Module:
        pairs = ((nn.Linear(width, hidden), nn.Linear(hidden, width)) for _ in range(_REPEATS // 2))
        return nn.Sequential(*(layer for pair in pairs for layer in pair))

    return _module(f"linear {width}x{hidden}", layers, (width,), batch=batch)


def _convs(batch: int, channels: int, side: int, *, kernel: int = 3, groups: int = 1) -> Probe:
    def layers() -> nn.Module:
        return nn.Sequential(*(_conv(channels, channels, kernel, groups=groups) for _ in range(_REPEATS)))

    name = f"convolutions {channels} {kernel}x{kernel} of {side}x{side}, {groups} groups"
    return _module(name, layers, (channels, side, side), batch=batch)


def _call(name: str, function: Callable[..., Tensor], *shapes: tuple[int, ...], batch: int) -> Probe:
    return Probe(name=name, make=lambda: Call(function), shapes=shapes, batch=batch)


def _module(name: str, make: Callable[[], nn.Module], shape: tuple[int, ...], *, batch: int) -> Probe:
    return Probe(name=name, make=make, shapes=(shape,), batch=batch)


def _training(probe: Probe) -> Probe:
    return replace(probe, name=f"{probe.name}, training", mode="training")


def _normed(conv: nn.Conv2d, activation: nn.Module | None = None) -> list[nn.Module]:
    """Return the convolution, its norm and its activation."""
    return [conv, nn.BatchNorm2d(conv.out_channels), *([activation] if activation else [])]


def _conv(channels: int, filters: int, kernel: int = 1, *, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels, filters, kernel, stride, kernel // 2, groups=groups, bias=False)


def _bottleneck(width: int, middle: int) -> nn.Module:
    """Return ResNet's bottleneck block."""
    body = (
        *_normed(_conv(width, middle), nn.ReLU(inplace=True)),
        *_normed(_conv(middle, middle, 3), nn.ReLU(inplace=True)),
        *_normed(_conv(middle, width)),
    )
    return nn.Sequential(Residual(*body), nn.ReLU(inplace=True))


def _inverted(width: int, kernel: int) -> nn.Module:
    """Return the inverted bottleneck block of MobileNet and EfficientNet."""
    wide = 4 * width
    return Residual(
        *_normed(_conv(width, wide), nn.SiLU(inplace=True)),
        *_normed(_conv(wide, wide, kernel, groups=wide), nn.SiLU(inplace=True)),
        *_normed(_conv(wide, width)),
    )


def _residual_net() -> nn.Module:
    """Return ResNet-50 with one block per stage and half the width."""
    layers: list[nn.Module] = [
        *_normed(_conv(3, 32, 7, stride=2), nn.ReLU(inplace=True)),
        nn.MaxPool2d(3, 2, 1),
    ]
    before = 32
    for width in (128, 256, 512, 1024):
        stride = 1 if width == 128 else 2
        layers += [*_normed(_conv(before, width, stride=stride)), _bottleneck(width, width // 4)]
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000))


def _mobile_net() -> nn.Module:
    """Return MobileNet with two blocks per stage."""
    layers: list[nn.Module] = _normed(_conv(3, 16, 3, stride=2), nn.SiLU(inplace=True))
    before = 16
    for width, kernel in ((24, 3), (40, 5), (80, 3), (160, 5)):
        layers += [*_normed(_conv(before, width, 3, stride=2)), _inverted(width, kernel), _inverted(width, kernel)]
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000))


def _transformer(width: int, heads: int) -> nn.Module:
    """Return the pre-norm transformer block of ViT and GPT."""
    return nn.Sequential(
        Residual(nn.LayerNorm(width), Attention(width, heads)),
        Residual(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)),
    )


def _transformers(width: int, heads: int, count: int) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(*(_transformer(width, heads) for _ in range(count)))


def _lstm(width: int) -> nn.Module:
    lstm = nn.LSTM(width, width, batch_first=True)
    return Call(lambda x: lstm(x)[0], lstm)


_RESIDUAL = _module(f"{NET}bottlenecks", _residual_net, (3, 160, 160), batch=1)
_MOBILE = _module(f"{NET}inverted bottlenecks", _mobile_net, (3, 160, 160), batch=1)
_TRANSFORMER = _module(f"{NET}transformers 384", _transformers(384, 6, 3), (197, 384), batch=1)
_TINY_TRANSFORMER = _module("tiny transformers", _transformers(16, 2, _REPEATS), (4, 16), batch=1)

_NETS = (
    _RESIDUAL,
    _MOBILE,
    replace(_RESIDUAL, batch=8),
    replace(_MOBILE, batch=8),
    _TRANSFORMER,
    _TINY_TRANSFORMER,
    _call("relu of 4194304", torch.relu, (2**22,), batch=4),
)
"""Small nets and a probe of the memory bandwidth; five seconds are enough for these."""

_CORE = (
    _linear(128, 768, 3072),
    _convs(1, 64, 56),
    _convs(1, 256, 14, kernel=1),
    _convs(1, 144, 56, groups=144),
    _call("attention 12x197x64", functional.scaled_dot_product_attention, *[(12, 197, 64)] * 3, batch=1),
    _training(replace(_RESIDUAL, batch=2)),
    _training(_TRANSFORMER),
    _training(replace(_MOBILE, batch=2)),
    _training(_convs(2, 144, 56, groups=144)),
    _training(_convs(2, 240, 28, groups=10)),
    _training(_module("attention 3x197x64 with its products", lambda: Attention(192, 3), (197, 192), batch=4)),
    _module("batch norm", lambda: nn.BatchNorm2d(64), (64, 112, 112), batch=1),
    _module("layer norm", lambda: nn.LayerNorm(768), (197, 768), batch=1),
    _call("add", torch.add, (2**18,), (2**18,), batch=1),
    _call("gelu", functional.gelu, (197, 3072), batch=1),
    _linear(1, 1024, 4096),
    _module("lstm 512", lambda: _lstm(512), (16, 512), batch=4),
    _call("softmax", lambda x: x.softmax(-1), (12, 197, 197), batch=1),
    _call("transpose", lambda x: x.transpose(1, 2).contiguous(), (197, 768), batch=1),
    _module("max pool", lambda: nn.MaxPool2d(3, 2, 1), (64, 56, 56), batch=1),
)
"""The families in which most nets spend their time, forward and backward."""

_MORE = (
    _module(f"{NET}transformers 768", _transformers(768, 12, 2), (128, 768), batch=2),
    _training(_TINY_TRANSFORMER),
    _training(_module("batch norm", lambda: nn.BatchNorm2d(64), (64, 56, 56), batch=4)),
    _training(_module("layer norm", lambda: nn.LayerNorm(384), (197, 384), batch=8)),
    _convs(4, 512, 7),
    _convs(2, 128, 28),
    _convs(2, 128, 28, groups=32),
    _convs(2, 240, 28, groups=10),
    _linear(16, 1024, 4096),
    _linear(512, 512, 512),
    _convs(1, 240, 14, kernel=5, groups=240),
    _convs(4, 1024, 14, kernel=1),
    _convs(2, 32, 56, kernel=1),
    _call("bmm 196x64x196", torch.matmul, (6, 196, 64), (6, 64, 196), batch=2),
    _call("relu of 65536", torch.relu, (2**16,), batch=1),
    _call("relu of 1048576", torch.relu, (2**20,), batch=1),
    _call("add", torch.add, (2**21,), (2**21,), batch=4),
    _module("batch norm", lambda: nn.BatchNorm2d(256), (256, 56, 56), batch=8),
    _module("layer norm", lambda: nn.LayerNorm(384), (196, 384), batch=8),
    _call("mean", lambda x: x.mean((2, 3)), (512, 14, 14), batch=4),
    _call("cat", lambda x, y: torch.cat((x, y), 1), *[(64, 56, 56)] * 2, batch=2),
    _module("lstm 256", lambda: _lstm(256), (64, 256), batch=1),
    _module("lstm 256", lambda: _lstm(256), (64, 256), batch=16),
    replace(_module("embedding", lambda: nn.Embedding(30_000, 768), (128,), batch=4), index_limit=30_000),
    _training(_linear(256, 1024, 1024)),
    _call("attention 8x512x64", functional.scaled_dot_product_attention, *[(8, 512, 64)] * 3, batch=1),
    _training(_convs(4, 64, 28)),
    _convs(8, 64, 56),
    _linear(1024, 768, 768),
    _module("avg pool", lambda: nn.AvgPool2d(2), (64, 56, 56), batch=2),
)
"""Other sizes of the same families, and rarer families."""
