"""The times of tokens worked out by hand: a toy model on a device of 1 TFLOP/s and 100 GB/s without any overhead."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from advisor.predict.step_time import predict
from advisor.records.device import Device
from advisor.records.generation import Generation
from advisor.records.prediction import IndexArray, Predictions, Scaling, TokenTimes
from advisor.records.scale import Plan
from advisor.records.workload import Blocks, Operand, Phase, Row, StoredBytes, Workload
from advisor.scale.tokens import part_of_generation, token_clock, with_token_times
from tests.predict.toys import NOTHING, device, efficiency, memory_line, operand
from tests.predict.toys import workload as toy

PASSES = 10
PER_REQUEST = (0.0, 1.0)
DEVICE = device()


def generation() -> Workload:
    """Two layers of a matrix of 1000 x 1000 and of attention of 8 heads to 2 of keys, 64 wide, 150 tokens long.

    Prompts of 100 tokens, answers of 11: the first of them comes with the prompt, 10 passes give the others.
    """

    def row(op: str, phase: Phase, inputs: Sequence[Operand], result: Operand, *, count: int) -> Row:
        return Row(
            op=op,
            family="attention" if op == "attention" else "matmul",
            phase=phase,
            module="layers.*.mlp",
            inputs=tuple(inputs),
            outputs=(result,),
            attributes={},
            count=count,
        )

    weight = operand(1000, 1000)
    read, written = (operand((0.0, tokens), 1000) for tokens in (100.0, 1.0))
    query, cached = operand(PER_REQUEST, 8, 1, 64), operand(PER_REQUEST, 2, 150, 64, kept=True)

    def blocks(phase: Phase, count: int, tokens: int) -> Blocks:
        results = StoredBytes(full=(0.0, 4.0 * 1000 * tokens * count))
        return Blocks(
            path="layers.*",
            count=count,
            parameter_bytes=0,
            largest_parameter_bytes=0,
            kept=NOTHING,
            largest_kept=NOTHING,
            results=results,
            phase=phase,
        )

    kept = {"parameters": StoredBytes(full=(8e6, 0.0)), "kv_cache": StoredBytes(full=(0.0, 2e5))}
    return toy(
        row("aten.mm", "prefill", (read, weight), read, count=2),
        row("aten.mm", "decode", (written, weight), written, count=2 * PASSES),
        row("attention", "decode", (query, cached, cached), query, count=2 * PASSES),
        memory=(memory_line(phase="prefill", **kept),),
        blocks=(blocks("prefill", 2, 100), blocks("decode", 2 * PASSES, 1)),
        generation=Generation(prompt_tokens=100, output_tokens=PASSES + 1, head_count=8, kv_head_count=2),
    )


def predicted(
    batches: Sequence[int], *, on: Device = DEVICE, workload: Workload | None = None, plan: Plan | None = None
) -> tuple[Predictions, TokenTimes]:
    """The steps on one device, or as `plan` says, and the times of their tokens."""
    workload = workload or generation()

    def predict_part(part: Workload, sizes: IndexArray) -> Predictions:
        return predict(part, devices=[on], efficiencies=[efficiency()], batches=sizes, precision="bf16")

    steps = predict_part(workload, np.array(batches))
    if plan is not None:
        shape = steps.step_s.shape
        scaling = Scaling(plans=(plan,), plan=np.zeros(shape, dtype=np.intp), efficiency_ratio=np.ones(shape))
        steps = replace(steps, scaling=scaling)
    clock = token_clock(workload, batches=steps.batches, plans=[plan or Plan()], predict_part=predict_part)
    found = with_token_times(steps, clock)
    assert found.tokens is not None
    return found, found.tokens


def pass_us(requests: int) -> float:
    # Two matrices of 2 MB in half, results and inputs of 2 kB each: 40 us + 0.08 us for each request, and it computes
    # 4 us for each; two caches of 76.8 kB with queries and results of 2048 B: 1.57696 us for each.
    return max(40 + 0.08 * requests, 4.0 * requests) + 1.57696 * requests


def test_one_request_waits_for_its_prompt_and_then_for_passes_alone() -> None:
    _, tokens = predicted([1])

    # 100 tokens x 2 MFLOP x 2 layers at 1 TFLOP/s: 400 us.
    assert tokens.first_s[0, 0] == pytest.approx(400e-6)
    assert tokens.pass_s[0, 0] == pytest.approx(pass_us(1) * 1e-6)
    assert tokens.between_s[0, 0] == pytest.approx(pass_us(1) * 1e-6)


def test_prompts_of_others_come_between_tokens() -> None:
    predictions, tokens = predicted([4])

    assert predictions.step_s[0, 0] == pytest.approx((4 * 400 + PASSES * pass_us(4)) * 1e-6)
    # The pass under way, then the own prompt; 3 of 4 prompts are read while the 10 other tokens are written.
    assert tokens.first_s[0, 0] == pytest.approx((400 + pass_us(4)) * 1e-6)
    assert tokens.between_s[0, 0] == pytest.approx((pass_us(4) + 3 * 400 / PASSES) * 1e-6)


def test_decode_is_bound_by_computing_from_the_first_power_of_two_on() -> None:
    # Computing takes 4 us and 0.6144 us of attention for each request, memory 40 us and 1.657 us: equal at 13.5.
    _, tokens = predicted([1])
    assert tokens.compute_bound_from[0, 0] == 16


def test_caches_may_keep_decode_bound_by_memory_for_ever() -> None:
    workload = generation()
    long = operand(PER_REQUEST, 2, 15_000, 64, kept=True)
    rows = tuple(
        replace(row, inputs=(row.inputs[0], long, long)) if row.op == "attention" else row for row in workload.rows
    )
    # 154 us of memory for each request, and 65 us of computing
    _, tokens = predicted([1], workload=replace(workload, rows=rows))
    assert math.isinf(tokens.compute_bound_from[0, 0])


def test_the_cache_is_of_all_requests_and_the_weights_are_of_one_copy() -> None:
    _, tokens = predicted([1, 8])

    # Traced in fp32, stored in half.
    assert tokens.kv_cache_bytes.tolist() == [[1e5, 8e5]]
    assert tokens.weight_bytes.tolist() == [[4e6, 4e6]]


def test_replicas_have_their_part_of_the_requests() -> None:
    _, tokens = predicted([4], plan=Plan(data=4))

    assert tokens.pass_s[0, 0] == pytest.approx(pass_us(1) * 1e-6)
    assert tokens.compute_bound_from[0, 0] == 4 * 16  # on all four


def test_tensor_parallel_gpus_divide_a_pass_and_sum_twice_in_each_block() -> None:
    _, tokens = predicted([1], on=device(gpu_count=2, nvlink_bytes_per_s=1e11), plan=Plan(tensor=2))

    # 4 all-reduces of 1000 values of 2 bytes over 2 GPUs: 8.4 us each for the call, 2 steps of 3.4 us, and 2 x 1/2 of
    # 2 kB at 100 GB/s, 0.02 us.
    waiting_us = 4 * (8.4 + 2 * 3.4 + 0.02)
    assert tokens.pass_s[0, 0] == pytest.approx((pass_us(1) / 2 + waiting_us) * 1e-6)


def test_of_gpus_that_outnumber_the_heads_of_keys_some_read_the_same() -> None:
    _, tokens = predicted([1], on=device(gpu_count=4, nvlink_bytes_per_s=1e11), plan=Plan(tensor=4))

    # As above among 4 GPUs: 4 all-reduces of a tree, 8.4 us, 2 x 3 steps of 3.4 us and 2 x 2 kB at 100 GB/s, 0.04 us;
    # or of a ring, which has as many steps and moves 2 x 3/4 of 2 kB, 0.03 us. Each computes a quarter of the 40.08 us
    # of its matrices, and reads one of two heads: half of 1.57696 us.
    waiting_us = 4 * (8.4 + 2 * 3 * 3.4 + 0.03)
    assert tokens.pass_s[0, 0] == pytest.approx(((pass_us(1) - 1.57696) / 4 + 1.57696 / 2 + waiting_us) * 1e-6)
    assert tokens.kv_cache_bytes.tolist() == [[2e5]]  # each head twice


def test_a_part_is_a_step_by_itself() -> None:
    decode = part_of_generation(generation(), "decode")

    assert [row.count for row in decode.rows] == [2, 2]
    assert [(blocks.count, blocks.results.full) for blocks in decode.blocks] == [(2, (0.0, 8000.0))]
    assert decode.generation is None


def test_a_workload_that_generates_nothing_has_no_parts() -> None:
    with pytest.raises(ValueError, match="generates nothing"):
        part_of_generation(toy(), "decode")
