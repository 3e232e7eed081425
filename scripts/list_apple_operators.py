"""Writes operators timed on the GPUs of Macs, as `advise validate` reads them.

    python scripts/list_apple_operators.py --data ../shared/data/measured/apple --out tests/data/measured/apple

Each time has one launch and one synchronization in it, which `scripts/fit_apple.py` fits. `LEFT_OUT` names the
operators that are left out, with the reasons. Few rows name the version of torch, but most name MLX's, which
tells their date.
"""

import argparse
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from measurement_table import read_csv, write_rows

from advisor.records.measurement import TimedStep

SOURCE = "TristanBilot/mlx-benchmark @ 85c53763"
_INDEXED = "the versions of torch and macOS decide its time, not the chip"
LEFT_OUT = {
    "Argmax": _INDEXED,
    "Gather": _INDEXED,
    "Scatter": _INDEXED,
    "ScatterMax": _INDEXED,
    "ScatterSum": _INDEXED,
    "Sort": _INDEXED,
    "BCE": "a loss of several kernels, by version of torch",
    "ScaledDotProductAttention": "on three Macs, with a mask that is made of it in an unusual way",
}
POINTWISE = {
    "LeakyReLU": "leaky_relu",
    "PReLU": "prelu",
    "ReLU": "relu",
    "SeLU": "selu",
    "Sigmoid": "sigmoid",
    "Softplus": "softplus",
    "SumAll": "sum_all",
}
MLX = re.compile(r"mlx:? (\d+)\.(\d+)")
RECENT_MLX = (0, 20)
"""Of November 2024; torch was 2.5."""
RECENT, OLD = "torch of 2024-11 or later", "torch of before 2024-11"
Shape = Sequence[int]


def operator_of(row: Mapping[str, str]) -> tuple[str, int]:
    """Return the name in `operators.py` and the batch."""
    kind = row["op"]
    first, *others = (tuple(map(int, shape.split("x"))) for shape in row["shapes"].split())
    axis = int(row["args"].removeprefix("axi=") or 0) % len(first) if "axi=" in row["args"] else 0
    if kind in POINTWISE:
        return POINTWISE[kind], math.prod(first)
    if kind in ("Conv1d", "Conv2d"):
        filters, k, channels = others[0][0], others[0][1], others[0][-1]
        return f"{kind.lower()}_last_{channels}_{filters}_{k}_{first[1]}", first[0]
    return (
        _along_an_axis(kind, first, axis=axis)
        if kind in ("LayerNorm", "Softmax", "Sum")
        else _product(kind, first, others, axis)
    )


def _along_an_axis(kind: str, shape: Shape, *, axis: int) -> tuple[str, int]:
    outer, width, inner = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    if kind == "Sum":
        return (f"sum_over_{width}_{inner}", outer) if axis else (f"sum_first_{inner}", width)
    return f"{'softmax' if kind == 'Softmax' else 'layer_norm'}_{shape[-1]}", math.prod(shape[:-1])


def _product(kind: str, first: Shape, others: Sequence[Shape], axis: int) -> tuple[str, int]:
    second = others[0]
    if kind == "Concat":
        return (f"cat_{first[1]}_{second[1]}", first[0]) if axis else (f"cat_first_{first[1]}", first[0])
    if kind == "MatMul" and len(second) > 2:
        return f"bmm_{first[1]}_{second[2]}_{first[2]}", first[0]
    n = others[1][0] if kind == "Linear" else second[1]
    return f"{'linear_bias' if kind == 'Linear' else 'linear'}_{first[-1]}_{n}", math.prod(first[:-1])


def age_of(section: str) -> str:
    """Return whether the source's heading of a Mac names an MLX of November 2024 or later."""
    version = MLX.search(section)
    return RECENT if version and (int(version[1]), int(version[2])) >= RECENT_MLX else OLD


def main() -> None:
    """Write `operators.csv`, and say how many published rows were left out and why."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    left_out: Counter[str] = Counter()
    kept = []
    rows = [row for row in read_csv(args.data / "mlx_benchmark_ops.csv") if row["backend"] == "mps"]
    for row in rows:
        if row["op"] in LEFT_OUT or not row["gpu_cores"]:
            left_out[LEFT_OUT.get(row["op"], "the number of GPU cores is not published")] += 1
            continue
        name, batch = operator_of(row)
        kept.append(
            TimedStep(
                model=f"../operators.py::{name}",
                mode="inference",
                precision="fp32",
                batch=batch,
                device=f"apple-{row['chip'].lower().replace(' ', '-')}-{row['gpu_cores']}-core-gpu",
                torch="",
                step_s=float(row["seconds"]),
                source=f"{SOURCE}, {age_of(row['section'])}",
            )
        )
    write_rows(args.out / "operators.csv", sorted(kept, key=lambda one: (one.device, one.model, one.batch)))
    print(f"{len(kept)} times of {len({(step.model, step.batch) for step in kept})} operators")
    for why, count in left_out.most_common():
        print(f"{count:4} left out: {why}")


if __name__ == "__main__":
    main()
