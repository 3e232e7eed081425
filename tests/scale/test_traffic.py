from dataclasses import replace

import numpy as np
import pytest

from advisor.records.workload import Operand, Row, StoredBytes
from advisor.scale.traffic import traffic_of
from tests.predict.toys import memory_line
from tests.scale.toys import PARAMETER_BYTES, workload


def gradient_row(*shape: int) -> Row:
    return Row(
        op="aten.mm",
        family="matmul",
        phase="backward",
        module="",
        inputs=(),
        outputs=(Operand(shape=shape, dtype="float32"),),
        attributes={},
        count=1,
    )


def test_a_small_model_is_one_bucket() -> None:
    found = traffic_of(workload(), batches=np.array([2.0]), width="full")
    assert (found.gradient_bytes, found.bucket_count, found.last_bucket_bytes) == (480.0, 1, 480.0)


def test_half_precision_halves_what_travels_and_autocast_what_fsdp_sends() -> None:
    full, autocast, half = (
        traffic_of(workload(), batches=np.array([2.0]), width=width) for width in ("full", "autocast", "half")
    )
    assert (full.gradient_bytes, autocast.gradient_bytes, half.gradient_bytes) == (480.0, 480.0, 240.0)
    assert (full.gathered_bytes, autocast.gathered_bytes, half.gathered_bytes) == (480.0, 240.0, 240.0)


def test_half_precision_sends_a_quarter_of_float64() -> None:
    bytes_480 = StoredBytes(double=(480.0, 0.0))
    double = workload(memory=(memory_line(phase="optimizer", parameters=bytes_480, gradients=bytes_480),))
    full, autocast, half = (
        traffic_of(double, batches=np.array([2.0]), width=width) for width in ("full", "autocast", "half")
    )
    assert (full.gradient_bytes, autocast.gradient_bytes, half.gradient_bytes) == (480.0, 480.0, 120.0)
    assert (full.gathered_bytes, autocast.gathered_bytes, half.gathered_bytes) == (480.0, 120.0, 120.0)
    assert (full.scattered_bytes, autocast.scattered_bytes, half.scattered_bytes) == (480.0, 120.0, 120.0)


def test_blocks_hand_on_their_part_of_all_results() -> None:
    # 8 bytes a sample of all 4 blocks: 2 of one, 2 samples.
    found = traffic_of(workload(), batches=np.array([2.0]), width="full")
    assert found.result_bytes.tolist() == [4.0]
    assert found.block_count == 4
    assert found.block_ratio == pytest.approx(400 / PARAMETER_BYTES)


def test_the_gradient_that_comes_last_is_in_the_last_bucket_whole() -> None:
    # 100 MB of gradients: 4 buckets. The last gradient is of 10 x 1e6 values: 40 MB.
    large = workload()
    (optimizer,) = large.rows
    rows = (
        gradient_row(3, 3),
        gradient_row(10, 1_000_000),
        Row(
            op="optimizer",
            family="optimizer",
            phase="optimizer",
            module="",
            inputs=(),
            outputs=(),
            attributes={**optimizer.attributes, "element_count": 25_000_000},
            count=1,
        ),
    )
    found = traffic_of(workload(rows=rows), batches=np.array([2.0]), width="full")
    assert (found.gradient_bytes, found.bucket_count, found.last_bucket_bytes) == (1e8, 4, 4e7)


def test_sparse_gradients_send_the_rows_that_were_looked_up() -> None:
    # 2 rows of 8 values a sample, with an index each, in each of 3 tables: 3 x 2 x (32 + 8) bytes, 2 samples. The dense
    # gradients are the 480 bytes of the toy.
    toy = workload()
    (optimizer,) = toy.rows
    parts = (Operand(shape=(1, (0.0, 2.0)), dtype="int64"), Operand(shape=((0.0, 2.0), 8), dtype="float32"))
    sparse = replace(optimizer, inputs=parts, attributes={**optimizer.attributes, "element_count": 1e9}, count=3)
    found = traffic_of(workload(rows=(optimizer, sparse)), batches=np.array([2.0]), width="full")
    assert (found.gradient_bytes, found.sparse_bytes.tolist(), found.sparse_count) == (480.0, [480.0], 3)
    half = traffic_of(workload(rows=(optimizer, sparse)), batches=np.array([2.0]), width="half")
    assert half.sparse_bytes.tolist() == [3 * 2 * 2 * (16 + 8)]
