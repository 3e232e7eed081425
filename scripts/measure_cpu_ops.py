"""Time single operators on this machine's CPU: nothing in, one CSV row per operator and size out.

`python scripts/measure_cpu_ops.py --cpu NAME --clock-ghz 4.15 --fp32-flops-per-cycle 64 --out cpu_ops.csv`

One thread, so that neither the other cores' load nor barriers count. Each time is the least of several blocks. The
clock is that of a chain of dependent additions under the same load; the read bandwidth is measured here, as a sum over
an array larger than any cache. Set MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_ to 8000000000: glibc then keeps
freed memory, as a caching allocator does, and page faults do not hide the bandwidth.
"""

import argparse
import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.utils.benchmark import Timer

WORK_COLUMNS = ("family", "dtype", "case", "flops", "bytes")
READ_ELEMENTS = 1 << 27  # 512 MB, as lmbench's bw_mem in SpareCores' measurements


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An operator ready to run, with its FLOP and the bytes it must move."""

    family: str
    dtype: torch.dtype
    label: str
    flops: float
    moved_bytes: float
    run: Callable[[], torch.Tensor]


def matmul_cases(dtype: torch.dtype) -> Iterator[Case]:
    """Linear layers over 1 to 2,048 rows."""
    for rows in (1, 8, 64, 512, 2048):
        for k, n in ((768, 768), (768, 3072), (3072, 768), (4096, 4096)):
            a, weight, bias = (torch.randn(*shape, dtype=dtype) for shape in ((rows, k), (n, k), (n,)))
            yield Case(
                family="matmul",
                dtype=dtype,
                label=f"linear {rows}x{k}x{n}",
                flops=2 * rows * k * n,
                moved_bytes=dtype.itemsize * (rows * k + k * n + n + rows * n),
                run=partial(functional.linear, a, weight, bias),
            )


def conv_cases(dtype: torch.dtype) -> Iterator[Case]:
    """The convolutions of ResNet-50 and of MobileNet's kind, at batch 1 and 16."""
    shapes = (
        # channels in, out, size, kernel, stride, groups
        (3, 64, 224, 7, 2, 1), (64, 64, 56, 1, 1, 1), (64, 64, 56, 3, 1, 1), (64, 256, 56, 1, 1, 1),
        (128, 128, 28, 3, 1, 1), (256, 512, 28, 1, 2, 1), (256, 256, 14, 3, 1, 1), (1024, 256, 14, 1, 1, 1),
        (512, 512, 7, 3, 1, 1), (2048, 512, 7, 1, 1, 1), (96, 96, 56, 3, 1, 96), (384, 384, 14, 3, 1, 384),
    )  # fmt: skip
    for batch in (1, 16):
        for c_in, c_out, size, kernel, stride, groups in shapes:
            data = torch.randn(batch, c_in, size, size, dtype=dtype)
            weight = torch.randn(c_out, c_in // groups, kernel, kernel, dtype=dtype)
            out = (size + 2 * (kernel // 2) - kernel) // stride + 1
            yield Case(
                family="conv",
                dtype=dtype,
                label=f"conv {batch}x{c_in}x{size}x{size} {c_out} k{kernel} s{stride} g{groups}",
                flops=2 * batch * c_out * out**2 * c_in // groups * kernel**2,
                moved_bytes=dtype.itemsize * (data.numel() + weight.numel() + batch * c_out * out**2),
                run=partial(functional.conv2d, data, weight, stride=stride, padding=kernel // 2, groups=groups),
            )


def attention_cases(dtype: torch.dtype) -> Iterator[Case]:
    """Self-attention of 12 heads of 64."""
    for batch, length in ((1, 128), (1, 512), (1, 1024), (4, 512), (8, 197)):
        query, key, value = (torch.randn(batch, 12, length, 64, dtype=dtype) for _ in range(3))
        yield Case(
            family="attention",
            dtype=dtype,
            label=f"attention {batch}x12x{length}x64",
            flops=4 * batch * 12 * length**2 * 64,
            moved_bytes=4 * dtype.itemsize * query.numel(),
            run=partial(functional.scaled_dot_product_attention, query, key, value),
        )


def streaming_cases() -> Iterator[Case]:
    """Pointwise operators, norms, softmax and reductions over one element and 1 to 256 MB."""
    for elements in (1, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26):
        data, other = torch.randn(elements), torch.randn(elements)
        yield _streaming("pointwise", "add", elements, 3, partial(torch.add, data, other))
        yield _streaming("pointwise", "relu", elements, 2, partial(torch.relu, data))
        yield _streaming("pointwise", "gelu", elements, 2, partial(functional.gelu, data))
        if elements == 1:
            continue
        yield _streaming("reduction", "sum", elements, 1, partial(torch.sum, data))
        table = data.view(-1, 1024)
        yield _streaming("softmax", "softmax", elements, 2, partial(torch.softmax, table, -1))
        yield _streaming("norm", "layer_norm", elements, 2, partial(functional.layer_norm, table, (1024,)))


def dispatch_case() -> Case:
    """Forty modules too small to compute anything: what Python, torch.nn and the dispatcher take for each."""
    layers = [layer for _ in range(20) for layer in (nn.Linear(8, 8), nn.ReLU())]
    model, data = nn.Sequential(*layers).eval(), torch.randn(1, 8)
    return Case(
        family="dispatch",
        dtype=torch.float32,
        label=f"modules {len(layers)}",
        flops=0,
        moved_bytes=0,
        run=partial(model, data),
    )


def all_cases() -> Iterator[Case]:
    """Every operator; those that run on matrix units in bfloat16 too."""
    for dtype in (torch.float32, torch.bfloat16):
        for cases in (matmul_cases, conv_cases, attention_cases):
            yield from cases(dtype)
    yield from streaming_cases()
    yield dispatch_case()


def _streaming(family: str, label: str, elements: int, passes: int, run: Callable[[], torch.Tensor]) -> Case:
    return Case(
        family=family,
        dtype=torch.float32,
        label=f"{label} {elements}",
        flops=elements,
        moved_bytes=4.0 * passes * elements,
        run=run,
    )


def least_s(run: Callable[[], torch.Tensor]) -> float:
    """The least time of one call over blocks of 10 ms, a fraction of what the scheduler gives at once."""
    timer = Timer("run()", globals={"run": run}, num_threads=1)
    once_s = min(timer.timeit(1).mean for _ in range(2))
    number = max(1, int(0.01 / once_s))
    repeats = 5 if once_s > 0.1 else 25
    return float(min(timer.timeit(number).mean for _ in range(repeats)))


def main() -> None:
    """Measure every case and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu", required=True, help="its name")
    parser.add_argument("--clock-ghz", type=float, required=True)
    parser.add_argument("--fp32-flops-per-cycle", type=float, required=True, help="of one core")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    large = torch.randn(READ_ELEMENTS)
    read_bytes_per_s = 4 * READ_ELEMENTS / least_s(large.sum)
    fp32_flops_per_s = arguments.fp32_flops_per_cycle * arguments.clock_ghz * 1e9
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with torch.inference_mode(), arguments.out.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("cpu", "torch", "fp32_flops_per_s", "read_bytes_per_s", *WORK_COLUMNS, "least_s"))
        machine = (arguments.cpu, torch.__version__, f"{fp32_flops_per_s:.4g}", f"{read_bytes_per_s:.4g}")
        for case in all_cases():
            work = (case.family, str(case.dtype).removeprefix("torch."), case.label, case.flops, case.moved_bytes)
            writer.writerow((*machine, *work, f"{least_s(case.run):.4g}"))
            file.flush()


if __name__ == "__main__":
    main()
