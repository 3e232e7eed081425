"""Measures the cost of elementwise functions, loops, pools, MKL's copies and the softmax of attention on this CPU.

    python scripts/measure_functions.py --clock-ghz 2.96

Prints the figures of cpu_loops.py, unfolded.py, `_ON_CPU` in composite_kernels.py and `_PACKED_CYCLES` in lowering.py,
all in advisor/predict. It runs on tensors that fit in a cache close to the core, but for the widest linear layers, and
takes the 20th percentile of many runs, which other load affects least. Everything runs on one thread, and loops and
MKL's copies on two as well: what torch or MKL does not parallelize then shows twice the cycles. --clock-ghz is the
core's clock under load, which some hypervisors hide.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from time import perf_counter

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

_NUMEL = 2**14
"""128 KiB of fp32 input and output."""
_RUNS, _CALLS = 60, 40
_FUNCTIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "hardswish": functional.hardswish,
    "leaky_relu": functional.leaky_relu,
    "div": lambda x: x / 1.5,
    "rsqrt": torch.rsqrt,
    "sqrt": torch.sqrt,
    "silu": functional.silu,
    "sigmoid": torch.sigmoid,
    "gelu": functional.gelu,
    "exp": torch.exp,
    "log": torch.log,
    "sin": torch.sin,
    "cos": torch.cos,
    "erf": torch.erf,
    "softplus": functional.softplus,
    "tanh": torch.tanh,
    "mish": functional.mish,
    "elu": lambda x: functional.elu(-x),
    "expm1": torch.expm1,
    "log1p": torch.log1p,
    "log_sigmoid": functional.logsigmoid,
    "remainder": lambda x: x.remainder(1.0),
    "fmod": lambda x: x.fmod(1.0),
    "floor_divide": lambda x: torch.floor_divide(x, 1.5),
    "atan2": lambda x: torch.atan2(x, x),
    "hypot": lambda x: torch.hypot(x, x),
    "logaddexp": lambda x: torch.logaddexp(x, x),
    "xlogy": lambda x: torch.xlogy(x, x),
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "erfinv": lambda x: torch.erfinv(x / 10),
    "celu": lambda x: functional.celu(-x),
    "log2": torch.log2,
    "log10": torch.log10,
    "exp2": torch.exp2,
    "logaddexp2": lambda x: torch.logaddexp2(x, x),
    "erfc": torch.erfc,
    "tan": torch.tan,
    "atan": torch.atan,
    "asin": lambda x: torch.asin(x / 10),
    "acos": lambda x: torch.acos(x / 10),
    "asinh": torch.asinh,
    "acosh": lambda x: torch.acosh(x + 1),
    "atanh": lambda x: torch.atanh(x / 10),
    "sinc": torch.sinc,
    "logit": lambda x: torch.logit(x / 10),
    "i0": torch.i0,
    "special_entr": torch.special.entr,
    "trunc": torch.trunc,
    "copysign": lambda x: torch.copysign(x, x),
    "special_xlog1py": lambda x: torch.special.xlog1py(x, x),
    "lgamma": torch.lgamma,
    "digamma": torch.digamma,
    "gt": lambda x: x > 1,
    "eq": lambda x: x == 1,
    "glu": lambda x: functional.glu(torch.cat((x, x)), 0),
    "binary_cross_entropy_with_logits": lambda x: functional.binary_cross_entropy_with_logits(x, x, reduction="none"),
}
_GRADIENTS = (
    "relu", "hardswish", "sigmoid", "silu", "gelu", "tanh", "mish", "elu", "log_sigmoid", "softplus", "glu",
)  # fmt: skip
_LOOP_NUMEL = 2**18
_LENGTHS = (32, 64, 128, 197, 256, 512, 1024, 1500)
_ATTENTION_FLOPS = 1e9


def seconds_of(call: Callable[[], object], *, runs: int = _RUNS, calls: int = _CALLS) -> float:
    """Return the 20th percentile of the duration of one call."""
    call()
    found = []
    for _ in range(runs):
        start = perf_counter()
        for _ in range(calls):
            call()
        found.append((perf_counter() - start) / calls)
    return float(np.quantile(found, 0.2))


def show_functions(dtype: torch.dtype) -> None:
    """Print each function's time relative to an addition, both without the time of a call on a single element."""
    x = torch.rand(_NUMEL).to(dtype) * 4 + 0.1
    one = x[:1].clone()
    added_s = seconds_of(lambda: x + x) - seconds_of(lambda: one + one)
    for name, function in _FUNCTIONS.items():
        own_s = seconds_of(lambda f=function: f(x)) - seconds_of(lambda f=function: f(one))  # type: ignore[misc]
        print(f"{dtype} {name} {own_s / added_s:.1f}", flush=True)
    for name in _GRADIENTS:
        times_s = []
        for value in (x, one):
            leaf = value.clone().requires_grad_()
            result, gradient = _FUNCTIONS[name](leaf), torch.ones_like(value)
            times_s.append(
                seconds_of(lambda r=result, i=leaf, g=gradient: torch.autograd.grad(r, i, g, retain_graph=True))  # type: ignore[misc]
            )
        print(f"{dtype} {name}_backward {(times_s[0] - times_s[1]) / added_s:.1f}", flush=True)


def loops(dtype: torch.dtype) -> Iterator[tuple[str, float, Callable[[], object]]]:
    """Yield the name, the count of elements and the call of each loop of advisor/predict/cpu_loops.py."""
    numel = float(_LOOP_NUMEL)
    x, y = torch.rand(2, 512, 512).to(dtype)
    rows, table = torch.rand(2, 4096, 64).to(dtype)
    places = (torch.arange(4096) * 7919).remainder(4096)
    image, wide = torch.rand(1, 64, 64, 64).to(dtype), torch.rand(64, 4096).to(dtype)
    edges = torch.linspace(0, 1, 64).to(dtype)
    classes = torch.rand(1, 16, 128, 128).to(dtype)
    targets = torch.randint(16, (1, 128, 128))
    columns = functional.unfold(image, 3, padding=1)
    mask, full = x > y, x > -1
    grid, pixels = (torch.rand(1, 64, 64, 2) * 2 - 1).to(dtype), image.permute(0, 2, 3, 1).contiguous()
    yield "masked_fill", numel, lambda: x.masked_fill(y > x, 0.0)
    yield "where", numel, lambda: torch.where(y > x, x, y)
    yield "index, rows", numel, lambda: table[places]
    yield "index, columns", numel, lambda: wide[:, places]
    yield "gather", numel, lambda: wide.gather(1, places.expand(64, 4096))
    yield "index_put, adding", numel, lambda: table.index_put_((places,), rows, accumulate=True)
    yield "index_put", numel, lambda: table.index_put_((places,), rows)
    for width in (16, 512):
        yield f"max with its index, rows of {width}", numel, lambda w=width: x.view(-1, w).max(-1)  # type: ignore[misc]
        yield f"argmax, rows of {width}", numel, lambda w=width: x.view(-1, w).argmax(-1)  # type: ignore[misc]
    yield "argmax of 16 classes", numel, lambda: classes.argmax(1)
    yield "median", numel, lambda: x.median(-1)
    yield "any, random rows of 512", numel, lambda: mask.any(-1)
    yield "all of rows that are", numel, lambda: full.all(-1)
    yield "count_nonzero", numel, lambda: x.count_nonzero(-1)
    yield "norm, channels", numel, lambda: image.norm(dim=1)
    yield "cumsum, last dimension", numel, lambda: x.cumsum(-1)
    yield "cumsum, first dimension", numel, lambda: x.cumsum(0)
    for width in (64, 512):
        yield f"cummax, rows of {width}", numel, lambda w=width: x.view(-1, w).cummax(-1)  # type: ignore[misc]
    yield "logcumsumexp", numel, lambda: x.logcumsumexp(-1)
    yield "stack, last dimension", 2 * numel, lambda: torch.stack((x, x), -1)
    for width, k in ((64, 8), (512, 1), (512, 8), (512, 16), (4096, 1), (4096, 8), (4096, 64), (32_768, 500)):
        yield f"topk, {k} of {width}", numel, lambda w=width, k=k: x.view(-1, w).topk(k, -1)  # type: ignore[misc]
    yield "searchsorted, each of 6 comparisons", 6 * numel, lambda: torch.searchsorted(edges, x)
    for width in (8, 16, 64):
        yield f"softmax, rows of {width}", numel, lambda w=width: x.view(-1, w).softmax(-1)  # type: ignore[misc]
        done = x.view(-1, width).softmax(-1)
        yield (
            f"softmax backward, rows of {width}",
            numel,
            lambda d=done: torch._softmax_backward_data(d, d, -1, d.dtype),  # type: ignore[misc]
        )
    yield "adaptive average, window of 2 x 2", numel / 4, lambda: functional.adaptive_avg_pool2d(image, 32)
    yield "adaptive average, window of 8 x 8", numel / 64, lambda: functional.adaptive_avg_pool2d(image, 8)
    yield "adaptive maximum", numel, lambda: functional.adaptive_max_pool2d(image, 1)
    yield "im2col", 9 * numel, lambda: functional.unfold(image, 3, padding=1)
    yield "col2im", 9 * numel, lambda: functional.fold(columns, (64, 64), 3, padding=1)
    yield "pixel_shuffle", numel, lambda: functional.pixel_shuffle(image, 2)
    yield "upsample_linear1d", 2 * numel, lambda: functional.interpolate(wide[None], scale_factor=2, mode="linear")
    small, large = image[:, :, :28, :28].contiguous(), image
    for mode in ("nearest", "bilinear"):
        for name, source, count in (("small", small, 5.0 * small.numel()), ("large", large, 4.0 * large.numel())):
            yield (
                f"{mode} of {name} images",
                count,
                lambda s=source, m=mode: functional.interpolate(s, scale_factor=2, mode=m),  # type: ignore[misc]
            )
    for mode in ("bilinear", "nearest", "bicubic"):
        yield (
            f"grid_sample, {mode}",
            numel,
            lambda m=mode: functional.grid_sample(image, grid, mode=m, align_corners=False),  # type: ignore[misc]
        )
    yield "to channels-last", numel, lambda: image.permute(0, 2, 3, 1).contiguous()
    yield "and back", numel, lambda: pixels.permute(0, 3, 1, 2).contiguous()
    yield "adding the transpose", numel, lambda: x + y.t()
    if dtype == torch.float32:
        affine = torch.rand(4, 2, 3)
        yield "affine_grid", 2.0**15, lambda: functional.affine_grid(affine, [4, 1, 64, 64], align_corners=False)
        for scale in (0.25, 0.5, 2.0):
            yield (
                f"antialiased bilinear x{scale}",
                numel,
                lambda s=scale: functional.interpolate(image, scale_factor=s, mode="bilinear", antialias=True),  # type: ignore[misc]
            )
    yield "nll_loss2d", float(targets.numel()), lambda: functional.nll_loss(classes, targets)
    yield "bernoulli", numel, lambda: torch.empty_like(x).bernoulli_(0.9)
    yield "rand", numel, lambda: torch.rand_like(x)
    yield "randn", numel, lambda: torch.randn_like(x)
    yield "randint", numel, lambda: torch.randint(100, (512, 512))
    yield "exponential", numel, lambda: torch.empty_like(x).exponential_()


def gradient_loops(dtype: torch.dtype) -> Iterator[tuple[str, float, Callable[[], object]]]:
    """Yield the same of the loops that only a backward pass has."""
    image = torch.rand(1, 64, 64, 64).to(dtype)
    grid = (torch.rand(1, 64, 64, 2) * 2 - 1).to(dtype)
    classes = torch.rand(1, 16, 128, 128).to(dtype)
    targets = torch.randint(16, (1, 128, 128))
    numel = float(image.numel())
    cases: list[tuple[str, float, Tensor, Callable[[Tensor], Tensor]]] = [
        ("adaptive average, window of 2 x 2", numel / 4, image, lambda x: functional.adaptive_avg_pool2d(x, 32)),
        ("adaptive average, window of 8 x 8", numel / 64, image, lambda x: functional.adaptive_avg_pool2d(x, 8)),
        ("grid_sample", numel, image, lambda x: functional.grid_sample(x, grid, align_corners=False)),
        ("nll_loss2d", float(targets.numel()), classes, lambda x: functional.nll_loss(x, targets)),
    ]
    for name, count, source, function in cases:
        leaf = source.clone().requires_grad_()
        result = function(leaf)
        gradient = torch.ones_like(result)
        yield (
            f"{name}, backward",
            count,
            lambda r=result, i=leaf, g=gradient: torch.autograd.grad(r, i, g, retain_graph=True),  # type: ignore[misc]
        )


def show_loops(dtype: torch.dtype, *, clock_hz: float) -> None:
    """Print the cycles of a thread for each element, with one thread and with two."""
    for name, count, call in (*loops(dtype), *gradient_loops(dtype)):
        cycles = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            cycles.append(seconds_of(call, runs=25, calls=1) * clock_hz * threads / count)
        print(f"{dtype} {name}: {cycles[0]:.1f} cycles, {cycles[1]:.1f} with two threads", flush=True)
    torch.set_num_threads(1)


def show_pools(dtype: torch.dtype, *, clock_hz: float) -> None:
    """Print the cycles of a window of 2-D and 3-D pools, channels first, and of its gradient."""
    plane, volume = torch.randn(1, 16, 64, 64).to(dtype), torch.randn(1, 4, 16, 32, 32).to(dtype)
    windows = ((1, 2), (2, 2), (3, 3), (5, 5))
    cubes = ((2, 2, 2), (3, 3, 3))
    cases: list[tuple[Tensor, Callable[..., Tensor], Sequence[tuple[int, ...]]]] = [
        (plane, functional.max_pool2d, windows),
        (plane, functional.avg_pool2d, windows),
        (volume, functional.max_pool3d, cubes),
    ]
    if dtype == torch.float32:
        cases.append((volume, functional.avg_pool3d, cubes))
    for image, pool, size in ((image, pool, size) for image, pool, sizes in cases for size in sizes):
        leaf = image.clone().requires_grad_()
        result = pool(leaf, size, stride=1)
        gradient = torch.ones_like(result)
        backward = partial(torch.autograd.grad, result, leaf, gradient, retain_graph=True)
        timed_s = [seconds_of(call, runs=25, calls=3) for call in (partial(pool, image, size, stride=1), backward)]
        cycles = [seconds * clock_hz / result.numel() for seconds in timed_s]
        print(f"{dtype} {pool.__name__} {size}: {cycles[0]:.0f} cycles a window, gradient {cycles[1]:.0f}", flush=True)


def show_unfolding(*, clock_hz: float) -> None:
    """Print the cycles to unfold an element for a convolution that torch leaves to MKL, with few output channels.

    From the time of the convolution without that of its product.
    """
    for size, channels, stride in (
        ((8, 8), 256, 1), ((16, 16), 64, 1), ((32, 32), 16, 1), ((32, 32), 16, 2), ((16, 16, 16), 32, 1),
        ((8, 28, 28), 64, 2),
    ):  # fmt: skip
        image, weight = torch.randn(1, channels, *size), torch.randn(8, channels, *[3] * len(size))
        convolve = functional.conv2d if len(size) == 2 else functional.conv3d
        with torch.inference_mode():
            result = convolve(image, weight, stride=stride, padding=1)
            rows, columns = weight.view(8, -1), torch.randn(weight[0].numel(), result[0, 0].numel())
            whole_s = seconds_of(partial(convolve, image, weight, stride=stride, padding=1), calls=3)
            product_s = seconds_of(partial(torch.mm, rows, columns), calls=3)
        cycles = (whole_s - product_s) * clock_hz / columns.numel()
        print(f"unfolding {channels} x {size}, stride {stride}: {cycles:.1f} cycles an element", flush=True)


def show_packing(*, clock_hz: float) -> None:
    """Print the cycles of a linear layer for each of its weights that do not grow with its rows: its time at 0 rows."""
    counts = (16, 32, 64, 128, 256)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for width in (256, 1024, 4096):
            weight = torch.randn(width, width)
            layers = (partial(functional.linear, torch.randn(rows, width), weight) for rows in counts)
            _, at_once_s = np.polyfit(counts, [seconds_of(layer, runs=9, calls=2) for layer in layers], 1)
            cycles = at_once_s * clock_hz * threads / weight.numel()
            print(f"packing {width} x {width}, {threads} threads: {cycles:.2f} cycles a weight", flush=True)
    torch.set_num_threads(1)


def show_attention(dtype: torch.dtype, head_dim: int) -> None:
    """Print the rate at every length, and c of seconds = (length + c) x queries x seconds per key, by least squares."""
    per_key_s = []
    for length in _LENGTHS:
        heads = max(1, round(_ATTENTION_FLOPS / (4 * length**2 * head_dim)))
        q, k, v = (torch.randn(1, heads, length, head_dim, dtype=dtype) for _ in range(3))
        own_s = seconds_of(
            lambda a=q, b=k, c=v: functional.scaled_dot_product_attention(a, b, c),  # type: ignore[misc]
            runs=15,
            calls=1,
        )
        per_key_s.append(own_s / (heads * length**2))
        print(f"{dtype} head {head_dim} length {length} {4 * head_dim / per_key_s[-1] / 1e9:.0f} GFLOP/s", flush=True)
    slope, at_once = np.polyfit(1 / np.array(_LENGTHS), per_key_s, 1, w=1 / np.array(per_key_s))
    print(f"{dtype} head {head_dim}: the fixed cost of a query equals {slope / at_once:.0f} keys")


def main() -> None:
    """Measure and print all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clock-ghz", type=float, required=True, help="clock of a core under load")
    clock_hz = parser.parse_args().clock_ghz * 1e9
    torch.set_num_threads(1)
    for dtype in (torch.float32, torch.bfloat16):
        show_loops(dtype, clock_hz=clock_hz)
        show_pools(dtype, clock_hz=clock_hz)
    show_unfolding(clock_hz=clock_hz)
    show_packing(clock_hz=clock_hz)
    for dtype in (torch.float32, torch.bfloat16):
        show_functions(dtype)
        for head_dim in (32, 64, 128):
            show_attention(dtype, head_dim)


if __name__ == "__main__":
    main()
