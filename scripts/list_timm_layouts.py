"""Put timm's times in NCHW and NHWC beside what the nets' convolutions move: published results in, a CSV out.

`python scripts/list_timm_layouts.py --data ../shared/data --out tests/data/measured/timm_layouts.csv`
"""

import argparse
import csv
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch

from advisor.predict.lowering import is_constant, operand_bytes
from advisor.records.workload import Workload
from advisor.workload.loaded import LoadedModel
from advisor.workload.trace import trace

RESULTS = "measured/timm/benchmark-infer-amp-{layout}-pt240-cu124-rtx3090.csv"
PREFIXES = (
    "densenet",
    "dla",
    "efficientnet",
    "hrnet",
    "mobilenet",
    "regnet",
    "resnet",
    "seresnet",
    "tf_efficientnetv2",
)
"""Nets of ordinary convolutions; ConvNeXt keeps its images in NHWC of its own accord."""
EVERY = 5
"""One net in five is enough, and takes a minute."""


def timm_results(data: Path, *, layout: str) -> dict[str, dict[str, str]]:
    """The rows of a published result by the net's name without its weights."""
    with (data / RESULTS.format(layout=layout)).open() as lines:
        return {row["model"].split(".")[0]: row for row in csv.DictReader(lines)}


def images(size: int, batch: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of an image classifier."""
    return (torch.empty(batch, 3, size, size),), {}


def workload_of(name: str, *, size: int) -> Workload:
    """One inference step of the net, without its weights."""
    with torch.device("meta"):
        model = timm.create_model(name)
    return trace(
        LoadedModel(
            name=name,
            model=model,
            make_inputs=partial(images, size),
            batch=8,
            batch_is_fixed=False,
            loss=None,
            optimizer=None,
            train_step=None,
            notes=(),
        ),
        mode="inference",
        batch=None,
    )


def conv_bytes(workload: Workload, *, batch: int) -> float:
    """What all convolutions read and write in half, without their weights."""
    batches = np.array([float(batch)])
    return sum(
        row.count * float(operand_bytes(operand, batches=batches, dtype="float16")[0])
        for row in workload.rows
        if row.family == "conv"
        for operand in (*row.inputs, *row.outputs)
        if not is_constant(operand)
    )


def main() -> None:
    """Write the row of every chosen net that was timed at one size and batch in both layouts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    nchw, nhwc = (timm_results(arguments.data, layout=layout) for layout in ("nchw", "nhwc"))
    names = sorted(name for name in nchw.keys() & nhwc.keys() if name.startswith(PREFIXES))
    with arguments.out.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("model", "image_size", "batch", "nchw_s", "nhwc_s", "conv_bytes"))
        for name in names[::EVERY]:
            rows = nchw[name], nhwc[name]
            (size, batch), other = ((int(row["infer_img_size"]), int(row["infer_batch_size"])) for row in rows)
            if (size, batch) != other:
                continue
            times_s = (f"{float(row['infer_step_time']) * 1e-3:.6g}" for row in rows)
            moved = conv_bytes(workload_of(name, size=size), batch=batch)
            writer.writerow((name, size, batch, *times_s, f"{moved:.6g}"))


if __name__ == "__main__":
    main()
