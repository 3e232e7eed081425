"""Measures the cost of elementwise functions, pooling and the softmax of attention on this CPU.

    python scripts/measure_functions.py

Prints the figures of `_ON_CPU` in advisor/predict/composite_kernels.py. It runs one thread on tensors that fit in a
cache close to the core, and takes the 20th percentile of many runs, which other load affects least.
"""

from collections.abc import Callable, Mapping
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
}
_GRADIENTS = ("relu", "hardswish", "sigmoid", "silu", "gelu", "tanh", "mish")
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


def show_pools() -> None:
    """Print the time per element of a pooling window, by layout, for an image of 64 channels and 56 x 56 pixels."""
    for layout in (torch.contiguous_format, torch.channels_last):
        image = torch.rand(1, 64, 56, 56).to(memory_format=layout)
        for pool in (functional.max_pool2d, functional.avg_pool2d):
            for kernel_size, stride in ((3, 1), (3, 2), (2, 2)):
                own_s = seconds_of(
                    lambda p=pool, x=image, k=kernel_size, s=stride: p(x, k, s),  # type: ignore[misc]
                    calls=1,
                )
                per_element_s = own_s / (pool(image, kernel_size, stride).numel() * kernel_size**2)
                name = f"{pool.__name__} {kernel_size}x{kernel_size}, stride {stride}"
                print(f"{layout} {name}: {per_element_s * 1e9:.2f} ns", flush=True)


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
    torch.set_num_threads(1)
    show_pools()
    for dtype in (torch.float32, torch.bfloat16):
        show_functions(dtype)
        for head_dim in (32, 64, 128):
            show_attention(dtype, head_dim)


if __name__ == "__main__":
    main()
