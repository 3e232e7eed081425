from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from advisor.predict.precision import Width
from advisor.predict.row_work import count_rows
from advisor.predict.step_memory import (
    SpreadBytes,
    StepMemory,
    added,
    all_gradients,
    gathered,
    gradient_bytes,
    scaled,
    step_memory,
    verdict_of,
)
from advisor.records.device import DeviceKind
from advisor.records.workload import Mode, Row, StoredBytes, TakenRatios, Workload
from tests.predict.toys import linear_row, memory_line, operand, row, workload
from tests.scale.toys import workload as scale_workload
from tests.workload.tracing import mlp, traced

BATCHES = np.array([1.0, 10.0])
CONTEXT = (287_047_680 + 666_632_192) / 2
"""The middle between a CUDA context without kernels and one with all of torch's."""


def memory(toy: Workload, *, width: Width = "full", kind: DeviceKind = "gpu") -> StepMemory:
    return step_memory(toy, batches=BATCHES, width=width, kind=kind)


def peaks(toy: Workload, **how: Any) -> list[float]:
    return memory(toy, **how).total.mid.tolist()


def optimizer_row(**attributes: Any) -> Row:
    """AdamW on 1000 parameters: two fp32 values of state each."""
    return row(
        "optimizer",
        family="optimizer",
        phase="optimizer",
        attributes={
            "name": "AdamW",
            "element_count": 1000,
            "tensor_count": 4,
            "calls_per_tensor": 10.0,
            "flops_per_element": 0.0,
            "read_bytes_per_element": 16.0,
            "loop_read_bytes_per_element": 16.0,
            "loop_write_bytes_per_element": 12.0,
            "state_bytes_per_element": 8.0,
            "write_bytes_per_element": 12.0,
            **attributes,
        },
    )


def test_the_peak_is_the_worst_moment_at_each_batch() -> None:
    constant = memory_line(parameters=StoredBytes(full=(2e9, 0.0)))
    growing = memory_line(phase="backward", activations=StoredBytes(full=(0.0, 1e9)))
    found = memory(workload(memory=(constant, growing)))
    # 2 GB at batch 1, 10 x 1 GB at batch 10.
    assert found.total.mid.tolist() == [2e9 + CONTEXT, 10e9 + CONTEXT]
    assert found.moments.tolist() == [0, 1]
    assert found.parts["parameters"].mid.tolist() == [2e9, 0]
    assert found.parts["activations"].mid.tolist() == [0, 10e9]


@pytest.mark.parametrize(("width", "expected"), [("full", 15e9), ("autocast", 14e9), ("half", 7e9)])
def test_autocast_halves_what_it_stores_low_and_pure_half_every_float(width: Width, expected: float) -> None:
    # Under autocast 1 of `low`, 2, 8 and 3 GB; in half 1 + 1 + 8 / 4 + 3.
    line = memory_line(
        activations=StoredBytes(low=(2e9, 0.0), full=(2e9, 0.0), double=(8e9, 0.0), other=(3e9, 0.0)),
    )
    assert peaks(workload(memory=(line,)), width=width)[0] == expected + CONTEXT


def test_autocast_keeps_half_copies_of_the_weights_until_the_optimizer_runs() -> None:
    # The bias (16) and weight (8 x 16) of 2 layers in half: 2 x 144 x 2 bytes.
    during = workload(linear_row(count=2), memory=(memory_line(phase="backward"),))
    assert memory(during, width="autocast").parts["half copies"].mid.tolist() == [576, 576]
    after = workload(linear_row(count=2), memory=(memory_line(phase="optimizer"),))
    assert memory(after, width="autocast").parts["half copies"].mid.tolist() == [0, 0]


def test_products_need_the_workspace_of_cublas() -> None:
    found = memory(workload(linear_row())).parts["workspaces"]
    assert (found.low[0], found.high[0]) == (8_519_680, 33_554_432)


def test_a_convolution_needs_up_to_a_copy_of_its_operands() -> None:
    image, weight, result = operand((0.0, 1.0), 3, 10, 10), operand(4, 3, 3, 3), operand((0.0, 1.0), 4, 8, 8)
    conv = row("aten.convolution", (image, weight), (result,), family="conv")
    # In fp32 a sample has 300 and 256 numbers, the weight 108.
    found = memory(workload(conv)).parts["workspaces"]
    assert found.low.tolist() == [0, 0]
    assert found.high.tolist() == [4 * (556 + 108), 4 * (5560 + 108)]


def test_the_allocator_of_cuda_gives_its_reserve_back_where_it_is_short() -> None:
    line = memory_line(activations=StoredBytes(full=(1e9, 0.0)))
    found = memory(workload(memory=(line,), taken=TakenRatios(heap=1.0, cache=1.2))).parts["allocator"]
    assert (found.low[0], found.mid[0], found.high[0]) == pytest.approx((0, 0.1e9, 0.2e9))


def test_memory_may_grow_with_the_square_of_the_batch() -> None:
    # 1 GB, 2 a sample and 3 a pair of samples: at 1 and at 10 samples 6 and 321 GB; 3 and 161 of them in half.
    toy = workload(memory=(memory_line(activations=StoredBytes(low=(1e9, 2e9, 3e9))),))
    assert peaks(toy) == [6e9 + CONTEXT, 321e9 + CONTEXT]
    assert peaks(toy, width="autocast") == [3e9 + CONTEXT, 160.5e9 + CONTEXT]


@pytest.mark.parametrize(("kind", "expected"), [("gpu", [0.5, 10.8]), ("cpu", [0.9, 21.4])])
def test_allocators_have_an_overhead_of_their_own_on_squares(kind: DeviceKind, expected: list[float]) -> None:
    # At 1 sample 1 GB of other tensors and 2 GB of squares, at 10 samples 2 and 200 GB.
    line = memory_line(parameters=StoredBytes(full=(8e9 / 9, 0.0)), activations=StoredBytes(full=(0.0, 1e9 / 9, 2e9)))
    toy = workload(
        memory=(line,),
        taken=TakenRatios(heap=1.7, cache=1.8),
        squared_taken=TakenRatios(heap=1.1, cache=1.1),
    )
    # A GPU takes half of 0.8 x 1 + 0.1 x 2, and of 0.8 x 2 + 0.1 x 200; a CPU all of 0.7 x 1 + 0.1 x 2, and so on.
    found = memory(toy, kind=kind).parts["allocator"].mid / 1e9
    assert found.tolist() == pytest.approx(expected)


def test_a_heap_keeps_what_it_has() -> None:
    line = memory_line(activations=StoredBytes(full=(1e9, 0.0)))
    found = memory(workload(memory=(line,), taken=TakenRatios(heap=1.5, cache=1.0)), kind="cpu").parts["allocator"]
    # Off by 17 % of the tensors in 90 % of the steps measured.
    assert (found.low[0], found.mid[0], found.high[0]) == pytest.approx((0.33e9, 0.5e9, 0.67e9))


def test_a_cpu_holds_the_system_and_torch() -> None:
    found = memory(workload(), kind="cpu").parts["process"]
    assert (found.low[0], found.high[0]) == (0.5e9, 1e9)


def temporaries(*rows: Row, loop_bytes: float, kind: DeviceKind = "gpu") -> float:
    line = memory_line(phase="optimizer", temporaries=StoredBytes(full=(loop_bytes, 0.0)))
    return float(memory(workload(*rows, memory=(line,)), kind=kind).parts["temporaries"].mid[0])


def test_on_cuda_optimizers_have_intermediates_of_all_parameters_at_once() -> None:
    # 4 parameters of 1000 bytes on average; the loop holds two intermediates of the largest, of 1250 bytes.
    assert temporaries(optimizer_row(), loop_bytes=2500) == 4000
    assert temporaries(optimizer_row(), loop_bytes=2500, kind="cpu") == 2500
    assert temporaries(optimizer_row(calls_per_tensor=1.0), loop_bytes=100) == 100


def test_on_cuda_one_list_takes_the_place_of_what_a_loop_holds() -> None:
    # One parameter of 4000 bytes: the loop holds two intermediates at a time, the list is one. Muon has no list.
    assert temporaries(optimizer_row(tensor_count=1), loop_bytes=8000) == 4000
    assert temporaries(optimizer_row(tensor_count=1, name="Muon"), loop_bytes=8000) == 8000
    assert temporaries(optimizer_row(tensor_count=1), optimizer_row(name="Muon"), loop_bytes=8000) == 8000


def test_optimizers_that_work_in_place_have_no_intermediates_on_cuda() -> None:
    # SGD with momentum makes 3 calls for each parameter, fused AdamW 2 for a single one: kernel and step count.
    assert temporaries(optimizer_row(name="SGD", calls_per_tensor=3.0), loop_bytes=0) == 0
    assert temporaries(optimizer_row(tensor_count=1, calls_per_tensor=2.0), loop_bytes=0) == 0


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        (torch.optim.AdamW, 4 * 4096 * 4),
        (partial(torch.optim.AdamW, fused=True), 0),
        (partial(torch.optim.SGD, lr=0.1, momentum=0.9), 0),
        (partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.1), 4 * 4096 * 4),
    ],
)
def test_the_trace_tells_which_optimizer_has_a_list_on_cuda(optimizer: Any, expected: float) -> None:
    # 4 weights of 64 x 64 in fp32. torch's foreach loops copy them once, for AdamW's root and for SGD's weight decay.
    deep = nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(4)))
    toy = traced(deep, lambda batch: torch.zeros(batch, 64), mode="training", optimizer=optimizer)
    step = replace(toy, memory=tuple(line for line in toy.memory if line.phase == "optimizer"))
    assert memory(step).parts["temporaries"].mid[0] == expected


def test_parameters_with_sparse_gradients_are_updated_one_by_one() -> None:
    line = memory_line(phase="optimizer", temporaries=StoredBytes(full=(100.0, 0.0)))
    sparse = replace(optimizer_row(), inputs=(operand(1, (0.0, 1.0), dtype="int64"), operand((0.0, 1.0), 4)))
    assert memory(workload(sparse, memory=(line,))).parts["temporaries"].mid[0] == 100


def test_attention_with_dropout_keeps_its_scores_on_a_cpu() -> None:
    tokens = operand((0.0, 1.0), 2, 5, 7)
    attention = row(
        "attention", (tokens, tokens, tokens), (tokens, operand((0.0, 1.0), 2, 5)), family="attention",
        attributes={"dropout_ratio": 0.1, "causal": False},
    )  # fmt: skip
    backward = row("attention_backward", (tokens,) * 4, (tokens,) * 3, family="attention", phase="backward")
    # 2 heads x 5 x 5 scores a sample in fp32, three times: of softmax, of the mask, of their product.
    step = workload(attention, backward)
    assert memory(step, kind="cpu").parts["activations"].mid.tolist() == [600, 6000]
    assert memory(step).parts["activations"].mid.tolist() == [0, 0]
    assert memory(replace(step, rows=(attention,)), kind="cpu").parts["activations"].mid.tolist() == [0, 0]


def test_gradients_are_what_optimizers_write_of_the_parameters() -> None:
    # 1000 parameters: 12 bytes are written, of which 8 are state.
    assert gradient_bytes(workload(optimizer_row())) == 4000


@pytest.mark.parametrize(
    ("memory_bytes", "expected"), [(99, "does not fit"), (100, "tight"), (119, "tight"), (120, "fits")]
)
def test_a_peak_is_tight_where_its_spread_holds_the_memory(memory_bytes: float, expected: str) -> None:
    peak = SpreadBytes.between(np.array([100.0]), np.array([120.0]))
    assert verdict_of(peak, memory_bytes=memory_bytes) == expected


def test_every_part_says_where_it_comes_from() -> None:
    for kind in ("gpu", "cpu"):
        found = memory(workload(linear_row()), kind=kind)  # type: ignore[arg-type]
        assert all(found.source_of(part) for part in found.parts)
        assert found.source_of("process") != found.source_of("parameters") == "counted in the trace"


# Sums and parts of what is stored

PART = StoredBytes(low=(2.0, 4.0), full=(6.0, 0.0), other=(0.0, 8.0))


def test_a_share_is_of_every_kind_of_memory() -> None:
    assert scaled(PART, 0.5) == StoredBytes(low=(1.0, 2.0), full=(3.0, 0.0), other=(0.0, 4.0))


def test_a_sum_is_of_each_kind_by_itself() -> None:
    # 2 + 1 and 4 + 1; the rest as it was.
    assert added([PART, StoredBytes(low=(1.0, 1.0))]) == StoredBytes(low=(3.0, 5.0), full=(6.0, 0.0), other=(0.0, 8.0))
    assert added([]) == StoredBytes()


def test_squares_are_scaled_and_added_like_the_rest() -> None:
    squared = StoredBytes(low=(2.0, 4.0, 6.0))
    assert scaled(squared, 0.5).low == (1.0, 2.0, 3.0)
    assert added([PART, squared, squared]).low == (6.0, 12.0, 12.0)


def test_gradients_are_as_large_as_the_parameters_that_the_optimizer_writes() -> None:
    # 120 parameters of 4 bytes.
    assert all_gradients(scale_workload()) == StoredBytes(full=(480.0, 0.0))
    # A quarter of those in the trace is in float64, whatever grows with the square of the batch.
    mixed = memory_line(phase="optimizer", gradients=StoredBytes(full=(360.0, 0.0, 0.0), double=(120.0, 0.0)))
    expected = StoredBytes(full=(360.0, 0.0), double=(120.0, 0.0))
    assert all_gradients(scale_workload(memory=(memory_line(), mixed))) == expected


def test_fsdp_gathers_what_lies_outside_of_blocks_and_two_of_them() -> None:
    # 480 - 400 outside, and 2 x 100.
    assert gathered(scale_workload(), width="full") == StoredBytes(low=(280.0, 0.0))


def test_fsdp_gathers_float64_in_a_quarter_under_autocast() -> None:
    double = scale_workload(memory=(memory_line(parameters=StoredBytes(double=(480.0, 0.0))),))
    # Autocast counts half of `low`: 70 bytes for 280 bytes of float64.
    assert gathered(double, width="autocast") == StoredBytes(low=(140.0, 0.0))
    assert gathered(double, width="full") == StoredBytes(low=(280.0, 0.0))


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_model_in_float64_takes_the_same_memory_in_half_as_one_in_fp32(mode: Mode) -> None:
    """`model.half()` converts both to 16 bits; the bytes that the rows move are the same too."""

    def in_half(dtype: torch.dtype) -> tuple[list[list[float]], list[float]]:
        step = traced(
            mlp().to(dtype),
            lambda batch: torch.zeros(batch, 8, dtype=dtype),
            mode=mode,
            loss=lambda output, batch: output.mean(),
        )
        parts = memory(step, width="half").parts
        work = count_rows(step, batches=BATCHES, width="half").rows
        moved = [float(np.sum(one.cost.read_bytes)) for one in work if one.row.phase != "optimizer"]
        return [parts[name].mid.tolist() for name in ("parameters", "gradients", "activations")], moved

    assert in_half(torch.float64) == in_half(torch.float32)
