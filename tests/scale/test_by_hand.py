"""The worked examples of docs/scale.md: a 7-billion-parameter model on A100 machines.

6,738,415,616 parameters, of which 32 blocks have 202,383,360 each; AdamW.
"""

from dataclasses import replace

import numpy as np
import pytest

from advisor.catalog.overlay import load_catalog
from advisor.predict.capability import gpu_device
from advisor.records.scale import Fabric, Plan
from advisor.records.workload import Blocks, MemoryLine, StoredBytes, Workload
from advisor.scale.collectives import all_reduce_s, hierarchical_all_reduce_s, ring_all_reduce_s
from advisor.scale.links import fabric_of
from advisor.scale.sharded_memory import memory_of_one
from tests.scale.toys import workload

PARAMETERS, BLOCK = 6_738_415_616, 202_383_360
HALF_BYTES = 2.0 * PARAMETERS
"""13.48 GB."""


def a100_fabric(machines: int) -> Fabric:
    """8 GPUs with NVLink at 600 GB/s in both directions, and a network of 400 Gbit/s."""
    gpu = load_catalog().gpus["a100-sxm4-80gb"]
    device = gpu_device(gpu, gpu_count=8, network_bytes_per_s=50e9)
    return fabric_of([device], Plan(machines=machines, data=8 * machines))


def test_all_gradients_in_half_around_one_machine() -> None:
    # 600 / 2 x 0.8 = 240 GB/s. 8.4 us + 2 x 7 x 3.4 us + (2 x 7 + 0.94) / 8 x 13.4768 GB / 240 GB/s
    # = 8.4 us + 47.6 us + 104.866 ms.
    assert ring_all_reduce_s(HALF_BYTES, a100_fabric(1)).item() == pytest.approx(104.922e-3, rel=1e-4)


def test_all_gradients_in_half_over_four_machines() -> None:
    # A ring: 8.4 us + 2 x (28 x 3.4 us + 3 x 14 us) + 2 x 31/32 x 13.4768 GB / 50 GB/s
    # = 8.4 us + 274.4 us + 522.227 ms.
    fabric = a100_fabric(4)
    assert ring_all_reduce_s(HALF_BYTES, fabric).item() == pytest.approx(522.51e-3, rel=1e-4)
    # A hierarchy: 2 x (8.4 us + 7 x 3.4 us + (7 + 0.94) / 8 x 13.4768 GB / 240 GB/s) inside machines and
    # 8.4 us + 2 x 3 x 14 us + 2 x 3/4 x 13.4768 GB / 50 GB/s between them = 111.528 ms + 404.397 ms: it is sooner.
    assert hierarchical_all_reduce_s(HALF_BYTES, fabric).item() == pytest.approx(515.93e-3, rel=1e-4)
    assert all_reduce_s(HALF_BYTES, fabric).item() == hierarchical_all_reduce_s(HALF_BYTES, fabric).item()


def seven_billion() -> Workload:
    """All parameters and AdamW's state always, all gradients at the optimizer's step; no activations."""

    def moment(line: MemoryLine) -> MemoryLine:
        whole = StoredBytes(full=(4.0 * PARAMETERS, 0.0))
        return replace(
            line,
            parameters=whole,
            gradients=whole if line.phase == "optimizer" else StoredBytes(),
            optimizer_state=StoredBytes(full=(8.0 * PARAMETERS, 0.0)),
            activations=StoredBytes(),
        )

    small = workload()
    blocks = Blocks(
        path="layers.*",
        count=32,
        parameter_bytes=32 * 4 * BLOCK,
        largest_parameter_bytes=4 * BLOCK,
        kept=StoredBytes(),
        largest_kept=StoredBytes(),
        results=StoredBytes(),
    )
    lines = tuple(map(moment, small.memory))
    return replace(small, memory=lines, blocks=(blocks,), parameter_bytes=4 * PARAMETERS)


def test_fsdp_on_64_gpus_holds_shards_and_what_it_has_gathered() -> None:
    # Shards: 4 bytes x 6.738e9 / 64 = 0.4212 GB of parameters, twice that of state. Gathered, in bf16: what is outside
    # of blocks, 6.738e9 - 32 x 0.2024e9 = 0.2621e9, and two blocks: 2 bytes x (0.2621e9 + 0.4048e9) = 1.3338 GB.
    parts = memory_of_one(
        seven_billion(), Plan(machines=8, data=64, sharding="zero3"), batches=np.array([1.0]), width="autocast"
    ).parts
    assert float(parts["parameters"].mid[0]) == pytest.approx(0.4212e9 + 1.3338e9, rel=1e-4)
    assert float(parts["optimizer state"].mid[0]) == pytest.approx(0.8423e9, rel=1e-4)
    # That is 2.597 GB before backward; at the optimizer's step 0.4212 + 0.4212 + 0.8423 = 1.685 GB are less.
    assert float(parts["gradients"].mid[0]) == 0.0
