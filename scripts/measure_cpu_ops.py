"""Time single operators on this machine's CPU: nothing in, one CSV row per operator and size out.

`python scripts/measure_cpu_ops.py --threads 2 --out tests/data/measured/own/cpu_ops.csv`

Each time is the least of several blocks, so that other work on the machine disturbs little. The peak is what the
profile's clock and SIMD width give; the read bandwidth is measured here, as a sum over an array larger than any cache.
"""

import argparse
import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional
from torch.utils.benchmark import Timer

READ_ELEMENTS = 1 << 27  # 512 MB, as lmbench's bw_mem in SpareCores' measurements


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An operator ready to run, with its FLOP and the bytes it must move."""

    family: str
    label: str
    flops: float
    moved_bytes: float
    run: Callable[[], torch.Tensor]


def matmul_cases() -> Iterator[Case]:
    """Linear layers over 1 to 2,048 rows."""
    for rows in (1, 8, 64, 512, 2048):
        for k, n in ((768, 768), (768, 3072), (3072, 768), (4096, 4096)):
            a, weight, bias = torch.randn(rows, k), torch.randn(n, k), torch.randn(n)
            yield Case(
                family="matmul",
                label=f"linear {rows}x{k}x{n}",
                flops=2 * rows * k * n,
                moved_bytes=4 * (rows * k + k * n + n + rows * n),
                run=lambda a=a, weight=weight, bias=bias: functional.linear(a, weight, bias),
            )


def conv_cases() -> Iterator[Case]:
    """The convolutions of ResNet-50 and of MobileNet's kind, at batch 1 and 16."""
    shapes = (
        # channels in, out, size, kernel, stride, groups
        (3, 64, 224, 7, 2, 1), (64, 64, 56, 1, 1, 1), (64, 64, 56, 3, 1, 1), (64, 256, 56, 1, 1, 1),
        (128, 128, 28, 3, 1, 1), (256, 512, 28, 1, 2, 1), (256, 256, 14, 3, 1, 1), (1024, 256, 14, 1, 1, 1),
        (512, 512, 7, 3, 1, 1), (2048, 512, 7, 1, 1, 1), (96, 96, 56, 3, 1, 96), (384, 384, 14, 3, 1, 384),
    )  # fmt: skip
    for batch in (1, 16):
        for c_in, c_out, size, kernel, stride, groups in shapes:
            data, weight = torch.randn(batch, c_in, size, size), torch.randn(c_out, c_in // groups, kernel, kernel)
            out = (size + 2 * (kernel // 2) - kernel) // stride + 1
            yield Case(
                family="conv",
                label=f"conv {batch}x{c_in}x{size}x{size} {c_out} k{kernel} s{stride} g{groups}",
                flops=2 * batch * c_out * out**2 * c_in // groups * kernel**2,
                moved_bytes=4 * (data.numel() + weight.numel() + batch * c_out * out**2),
                run=lambda data=data, weight=weight, kernel=kernel, stride=stride, groups=groups: functional.conv2d(
                    data, weight, stride=stride, padding=kernel // 2, groups=groups
                ),
            )


def attention_cases() -> Iterator[Case]:
    """Self-attention of 12 heads of 64."""
    for batch, length in ((1, 128), (1, 512), (1, 1024), (4, 512), (8, 197)):
        query, key, value = (torch.randn(batch, 12, length, 64) for _ in range(3))
        yield Case(
            family="attention",
            label=f"attention {batch}x12x{length}x64",
            flops=4 * batch * 12 * length**2 * 64,
            moved_bytes=4 * 4 * query.numel(),
            run=lambda query=query, key=key, value=value: functional.scaled_dot_product_attention(query, key, value),
        )


def streaming_cases() -> Iterator[Case]:
    """Pointwise operators, norms, softmax and reductions over 1 to 256 MB and, for the dispatch, over one element."""
    for elements in (1, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26):
        data, other = torch.randn(elements), torch.randn(elements)
        yield _streaming("pointwise", "add", elements, 3, lambda data=data, other=other: data + other)
        yield _streaming("pointwise", "relu", elements, 2, lambda data=data: torch.relu(data))
        yield _streaming("pointwise", "gelu", elements, 2, lambda data=data: functional.gelu(data))
        if elements == 1:
            continue
        yield _streaming("reduction", "sum", elements, 1, lambda data=data: data.sum())
        table = data.view(-1, 1024)
        yield _streaming("softmax", "softmax", elements, 2, lambda table=table: table.softmax(-1))
        yield _streaming("norm", "layer_norm", elements, 2, lambda table=table: functional.layer_norm(table, (1024,)))


def _streaming(family: str, label: str, elements: int, passes: int, run: Callable[[], torch.Tensor]) -> Case:
    return Case(
        family=family, label=f"{label} {elements}", flops=elements, moved_bytes=4.0 * passes * elements, run=run
    )


def least_s(run: Callable[[], torch.Tensor], *, threads: int) -> float:
    """The least time of one call over blocks of at least 50 ms."""
    timer = Timer("run()", globals={"run": run}, num_threads=threads)
    once_s = timer.timeit(1).mean
    number = max(1, int(0.05 / once_s))
    return float(min(timer.timeit(number).mean for _ in range(5)))


def main() -> None:
    """Measure every case and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--cpu", required=True, help="its name")
    parser.add_argument("--peak-flops-per-s", type=float, required=True, help="of the threads' cores, fp32")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    large = torch.randn(READ_ELEMENTS)
    read_s = least_s(large.sum, threads=arguments.threads)
    read_bytes_per_s = 4 * READ_ELEMENTS / read_s
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with torch.inference_mode(), arguments.out.open("w", newline="") as file:
        writer = csv.writer(file)
        header = ("cpu", "threads", "torch", "peak_flops_per_s", "read_bytes_per_s", "family", "case", "flops", "bytes")
        writer.writerow((*header, "least_s"))
        for cases in (matmul_cases(), conv_cases(), attention_cases(), streaming_cases()):
            for case in cases:
                measured_s = least_s(case.run, threads=arguments.threads)
                fixed = (arguments.cpu, arguments.threads, torch.__version__, arguments.peak_flops_per_s)
                work = (case.family, case.label, case.flops, case.moved_bytes)
                writer.writerow((*fixed, f"{read_bytes_per_s:.4g}", *work, f"{measured_s:.4g}"))


if __name__ == "__main__":
    main()
