"""Requests to a served model worked out by hand: a toy model on a device of 1 TFLOP/s and 100 GB/s."""

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from advisor.errors import UsageError
from advisor.ops.matmul import CHOSEN_EXPERTS
from advisor.predict.join import at_batches
from advisor.predict.served_pass import COEFFICIENTS
from advisor.predict.time_breakdown import EXCHANGE, explain_step
from advisor.predict.weights import with_kv_cache, with_weights
from advisor.records.answer import Interval
from advisor.records.device import REFERENCE_CLOCK_HZ, Device
from advisor.records.engine import BatchLimits, Engine, ExpertKernels, NarrowKernel, PassCosts
from advisor.records.explained_step import PredictedStep
from advisor.records.generation import CacheFormat, Generation, WeightFormat
from advisor.records.options import Options
from advisor.records.prediction import Predictions, TokenTimes
from advisor.records.scale import Plan, Spreading
from advisor.records.workload import Blocks, Operand, Phase, Row, StoredBytes, Workload
from advisor.scale.collectives import send_s
from advisor.scale.links import inside_link
from advisor.scale.plans import served_plans
from advisor.scale.served import engine_precision, exchange_ratio, predict_served
from advisor.scale.served_model import ServedModel, part_of_generation
from advisor.scale.sharded_memory import memory_of_one
from tests.predict.toys import NOTHING, device, efficiency, memory_line, operand
from tests.predict.toys import workload as toy
from tests.scale.toys import KERNELS

PASSES = 10
PER_REQUEST = (0.0, 1.0)
DEVICE = device()
IDEAL = PassCosts(
    **dict.fromkeys(COEFFICIENTS, 0.0)
    | dict.fromkeys(("memory_ratio", "compute_ratio", "attention_ratio", "overlap_ratio"), 1.0),
    tpot_log_spread=0.2,
    known_log_spread=0.1,
    load_log_spread=0.3,
    ttft_log_spread=0.4,
    fitted_on=("other",),
)
"""An engine without overheads, on which compute and memory overlap fully."""
LIMITS = BatchLimits(max_num_seqs=64, max_num_batched_tokens=2048)
ENGINE = Engine(
    name="toy",
    version="1",
    source="test",
    limits={"cpu": LIMITS, "gpu": LIMITS, "large_gpu": LIMITS},
    large_gpu_bytes=1e12,
    not_large=(),
    memory_ratio=1.0,
    cpu_memory_ratio=1.0,
    cpu_nodes=1,
    block_tokens=1,
    streamed_ratio={DEVICE.generation: 1.0},
    fp16_isas=("avx2",),
    gpu_vendors=(DEVICE.vendor,),
    other_vendor_log_spread=0.5,
    all_reduce=KERNELS,
    experts=ExpertKernels(compute_ratio=1.0, log_spread=0.0),
    weight_kernels={},
    cache_kernels={},
    costs={"gpu": IDEAL, "avx2": IDEAL},
)


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
        generation=Generation(
            prompt_tokens=100, output_tokens=PASSES + 1, head_count=8, kv_head_count=2, engine=ENGINE
        ),
    )


def predicted(
    batches: Sequence[int],
    *,
    on: Device = DEVICE,
    workload: Workload | None = None,
    options: Options | None = None,
    asked: Spreading | None = None,
    **costs: float,
) -> tuple[Predictions, TokenTimes]:
    """Return the requests on one device, with some costs of the engine changed."""
    workload = workload or generation()
    if costs and workload.generation is not None:
        engine = replace(ENGINE, costs={"gpu": replace(IDEAL, **costs), "avx2": IDEAL})
        workload = replace(workload, generation=replace(workload.generation, engine=engine))
    found = predict_served(
        workload,
        devices=[on],
        efficiencies=[efficiency()],
        batches=np.array(batches),
        options=options or Options(precision="half", compile="compile"),
        asked=asked or Spreading(),
    )
    assert found.tokens is not None
    return found, found.tokens


def decode_us(requests: float) -> float:
    # Two matrices of 2 MB in half at 100 GB/s, 40 us, or 2 x 2 MFLOP for each request at 1 TFLOP/s; two caches of
    # 76.8 kB with queries and results of 2048 B, 1.57696 us; four results or inputs of 2 kB, 0.08 us.
    return max(40.0, 4.0 * requests) + 1.65696 * requests


def mixed_us(requests: float) -> float:
    # 100 tokens more: 400 us of computing, and 0.08 us each for inputs and results.
    return 400 + 4.0 * requests + 1.65696 * requests + 8.0


def test_one_request_waits_for_its_prompt_and_then_for_passes_alone() -> None:
    found, tokens = predicted([1])
    assert tokens.first_s[0, 0] == pytest.approx(408e-6)
    assert tokens.between_s[0, 0] == pytest.approx(decode_us(1) * 1e-6)
    assert found.step_s[0, 0] == pytest.approx((408 + PASSES * decode_us(1)) * 1e-6)


def test_prompts_of_others_come_between_tokens_and_hide_weights() -> None:
    _, tokens = predicted([4])
    # In the 10 passes of a request the prompts of the 3 others are read, which compute while the weights are read.
    between_us = decode_us(4) + 3 / PASSES * (mixed_us(4) - decode_us(4))
    assert tokens.pass_s[0, 0] == pytest.approx(decode_us(4) * 1e-6)
    assert tokens.between_s[0, 0] == pytest.approx(between_us * 1e-6)
    assert tokens.first_s[0, 0] == pytest.approx((mixed_us(3) + between_us / 2) * 1e-6)


def test_cached_tokens_of_a_prompt_are_not_computed_but_attended_to() -> None:
    workload = generation()
    assert workload.generation is not None
    cached = replace(workload, generation=replace(workload.generation, prefix_cached_tokens=60))
    _, tokens = predicted([1], workload=cached)
    # 40 of 100 tokens: 160 us of computing instead of 400, 3.2 us of inputs and results instead of 8.
    assert tokens.first_s[0, 0] == pytest.approx(163.2e-6)
    assert tokens.between_s[0, 0] == pytest.approx(decode_us(1) * 1e-6)
    whole, new = (
        ServedModel(with_prompt_attention(one)).work("prefill", "half", np.ones(1))
        for one in (workload, cached)
        if one.generation is not None
    )
    # 100 x 100 pairs of query and key, of which 60 x 60 are known.
    assert new.attention_flops == pytest.approx(0.64 * whole.attention_flops)


def with_prompt_attention(workload: Workload) -> Workload:
    """The same with the prompt's attention, 8 heads of 64."""
    tensor = operand(PER_REQUEST, 8, 100, 64)
    prompt = replace(workload.rows[-1], phase="prefill", inputs=(tensor, tensor, tensor), outputs=(tensor,), count=2)
    return replace(workload, rows=(*workload.rows, prompt))


def test_in_fp32_products_and_attention_run_on_the_unit_of_fp32() -> None:
    slow = replace(DEVICE, peak_flops_per_s={**DEVICE.peak_flops_per_s, "fp32": 1e11})
    cpu = replace(slow, kind="cpu", isa="avx2", node_bytes_per_s=DEVICE.memory_bytes_per_s)
    for on in (slow, cpu):
        _, narrow = predicted([32], on=on)
        _, wide = predicted([32], on=on, options=Options(precision="fp32", compile="compile"))
        assert narrow.pass_s[0, 0] == pytest.approx(decode_us(32) * 1e-6)
        # Ten times as long for 32 x 4 MFLOP of products, and twice the bytes of caches, queries and results: attention
        # computes 0.6144 MFLOP for each request, 6.1 us, while they are read in 3.2 us.
        assert wide.pass_s[0, 0] == pytest.approx(32 * (40 + 6.144 + 2 * 0.08) * 1e-6)


def test_a_prompt_over_the_budget_is_read_in_chunks_that_each_read_the_weights() -> None:
    small = replace(LIMITS, max_num_batched_tokens=50)
    workload = generation()
    assert workload.generation is not None
    engine = replace(ENGINE, limits=dict.fromkeys(("cpu", "gpu", "large_gpu"), small))
    workload = replace(workload, generation=replace(workload.generation, engine=engine))
    _, tokens = predicted([1], workload=workload, kernel_s=0.0)
    # Two passes of 200 us, longer than the 40 us of the weights, with 4 us of inputs and results each.
    assert tokens.first_s[0, 0] == pytest.approx(408e-6)


def test_overheads_are_per_kernel_pass_request_and_logit() -> None:
    _, alone = predicted([2])
    _, costly = predicted([2], pass_s=1e-3, request_s=1e-4, sampling_s=1e-5, million_logits_s=1.0)
    # 2 requests, each of which draws from the 1000 columns of the largest product: 2e-3 million logits.
    added_s = 1e-3 + 2e-4 + 1e-5 + 2e-3
    assert costly.pass_s[0, 0] - alone.pass_s[0, 0] == pytest.approx(added_s)


def test_serving_adds_to_the_first_token_alone() -> None:
    _, alone = predicted([1])
    _, costly = predicted([1], first_token_s=5e-3, prompt_token_s=1e-5)
    assert costly.first_s[0, 0] - alone.first_s[0, 0] == pytest.approx(5e-3 + 100 * 1e-5)
    assert costly.between_s[0, 0] == alone.between_s[0, 0]


def test_an_engine_runs_no_more_requests_than_its_limit() -> None:
    found, _ = predicted([64, 65])
    assert found.fits.tolist() == [[True, False]]
    assert np.isinf(found.step_s[0, 1])


def test_intervals_of_a_request_alone_and_of_a_loaded_engine_differ() -> None:
    found, tokens = predicted([1, 4])
    assert found.log_spread.tolist() == [[0.2, 0.3]]
    assert tokens.first_log_spread is not None
    assert tokens.first_log_spread.tolist() == [[0.4, 0.4]]


def test_a_gpu_of_a_vendor_that_the_engine_was_not_measured_on_has_wider_intervals_and_a_cpu_has_not() -> None:
    found, tokens = predicted([1, 4], on=replace(DEVICE, vendor="Other"))
    assert tokens.first_log_spread is not None
    spreads = (found.log_spread, found.own_log_spread, tokens.first_log_spread)
    alone = [np.hypot(one, 0.5) for one in (np.array([0.2, 0.3]), math.sqrt(0.2**2 - 0.1**2 / 2), np.array([0.4, 0.4]))]
    assert [spread[0].tolist() for spread in spreads] == [pytest.approx(np.broadcast_to(one, 2)) for one in alone]
    assert ENGINE.vendor_log_spread(device(kind="cpu", vendor="Other")) == 0.0


def test_a_generation_without_a_service_in_the_fit_has_wider_intervals() -> None:
    # Only the larger of this spread and that of a kernel counts.
    for workload, of_kernel in ((generation(), 0.0), (with_kernel("fp8"), 0.3)):
        if workload.generation is None or workload.generation.engine is None:
            raise ValueError("no engine")
        engine = replace(
            workload.generation.engine, other_generation_log_spread=0.4, other_generation_ttft_log_spread=0.7
        )
        served = replace(workload, generation=replace(workload.generation, engine=engine))
        found, tokens = predicted([1], workload=served)
        assert tokens.first_log_spread is not None
        assert found.log_spread[0, 0] == pytest.approx(math.hypot(0.2, 0.4))
        assert tokens.first_log_spread[0, 0] == pytest.approx(math.hypot(0.4, 0.7))
        seen = replace(engine, costs={"gpu": replace(IDEAL, fitted_generations=(DEVICE.generation,))})
        found, _ = predicted([1], workload=replace(workload, generation=replace(workload.generation, engine=seen)))
        assert found.log_spread[0, 0] == pytest.approx(math.hypot(0.2, of_kernel))


def test_only_what_was_measured_of_the_generation_the_kernel_and_the_plan_backs_a_time() -> None:
    # The kernels of the toy's generation were timed (`streamed_ratio`), but no pipeline was.
    def source(workload: Workload | None = None, on: Device = DEVICE, **asked: int) -> str:
        found, _ = predicted([8], on=on, workload=workload, asked=Spreading(**asked))
        return str(found.time_sources[0, 0])

    assert source() == source(on=TWO) == source(on=TWO, tensor=2) == "fitted"
    assert source(on=replace(DEVICE, generation="Other")) == "datasheet"
    assert source(on=TWO, pipeline=2) == "datasheet"
    assert source(with_kernel("fp8")) == source(with_kernel(kv_cache="fp8")) == "datasheet"
    assert source(with_kernel("fp8", measured_on=(DEVICE.generation,))) == "fitted"


def test_decode_is_bound_by_computing_from_the_first_power_of_two_on() -> None:
    # Computing takes 4 us and 0.6144 us of attention for each request, memory 40 us and 1.657 us: equal at 13.5.
    _, tokens = predicted([1])
    assert tokens.compute_bound_from[0, 0] == 16


def test_the_cache_is_of_all_requests_and_the_weights_are_of_one_copy() -> None:
    _, tokens = predicted([1, 8])
    assert tokens.kv_cache_bytes.tolist() == [[1e5, 8e5]]
    assert tokens.weight_bytes.tolist() == [[4e6, 4e6]]


def with_kernel(
    weights: WeightFormat = "auto", kv_cache: CacheFormat = "auto", *, costs: PassCosts = IDEAL, **kernel: Any
) -> Workload:
    """The model with weights or cache in a format, and one kernel for all of them."""
    fixed = {"formats": ("fp8", "int8", "nf4"), "on": (DEVICE.generation,), "runs": "test", "log_spread": 0.3}
    narrow = {"one": NarrowKernel(**fixed, source="test", **kernel)}
    engine = replace(ENGINE, weight_kernels=narrow, cache_kernels=narrow, costs={"gpu": costs, "avx2": costs})
    workload = generation()
    if workload.generation is None:
        raise ValueError("no generation")
    served = replace(workload, generation=replace(workload.generation, engine=engine))
    return with_kv_cache(with_weights(served, weights), kv_cache)


FP8 = replace(DEVICE, peak_flops_per_s={**DEVICE.peak_flops_per_s, "fp8": 4 * DEVICE.peak_flops_per_s["fp16"]})


def test_weights_in_fp8_are_read_in_half_the_time_and_multiplied_by_their_unit() -> None:
    _, one = predicted([1], workload=with_kernel("fp8"))
    # 20 us of weights instead of 40 us.
    assert one.pass_s[0, 0] == pytest.approx((decode_us(1) - 20) * 1e-6)
    assert one.weight_bytes[0, 0] == 2e6
    # 32 requests take 128 us to multiply in 16 bits, 32 us in a unit of four times the rate, 64 us at half its peak.
    read_us = 1.65696 * 32
    kernels: tuple[tuple[Device, dict[str, Any], float], ...] = (
        (DEVICE, {}, 128),
        (FP8, {"unit": "fp8"}, 32),
        (FP8, {"unit": "fp8", "compute_ratio": 0.5}, 64),
    )
    for on, kernel, busy_us in kernels:
        _, many = predicted([32], on=on, workload=with_kernel("fp8", **kernel))
        assert many.pass_s[0, 0] == pytest.approx((busy_us + read_us) * 1e-6)


def test_quantizing_inputs_takes_kernels_and_the_vector_unit() -> None:
    _, free = predicted([4], workload=with_kernel("int8"))
    _, quantized = predicted([4], workload=with_kernel("int8", quantizing_flops=100.0))
    # Two products, each with 4 x 1000 elements of input.
    added_s = 2 * 4000 * 100 / DEVICE.peak_flops_per_s["vector"]
    assert quantized.pass_s[0, 0] - free.pass_s[0, 0] == pytest.approx(added_s)
    costs = replace(IDEAL, kernel_s=1e-6)
    _, alone = predicted([4], workload=with_kernel("int8", costs=costs))
    _, launched = predicted([4], workload=with_kernel("int8", costs=costs, quantizing_kernels=2.0))
    added_s = 2 * 2 * 1e-6 * REFERENCE_CLOCK_HZ / DEVICE.clock_hz
    assert launched.pass_s[0, 0] - alone.pass_s[0, 0] == pytest.approx(added_s)


def test_expanded_weights_are_read_narrow_and_written_and_read_in_16_bits() -> None:
    # 2e6 weights in nf4: 1.03 MB, 10.3 us, for one token. For two tokens a kernel reads them and writes 4 MB, 50.3 us,
    # and then products read 4 MB, 40 us.
    nf4_us = 2e6 * (0.5 + 1 / 64 + 1 / 4096) / 1e5
    _, tokens = predicted([1, 2], workload=with_kernel("nf4", expanded_from_tokens=2))
    assert tokens.pass_s[0, 0] == pytest.approx((nf4_us + 1.65696) * 1e-6)
    assert tokens.pass_s[0, 1] == pytest.approx((nf4_us + 40 + 40 + 2 * 1.65696) * 1e-6)


def test_a_cache_in_fp8_is_read_in_half_the_time() -> None:
    _, wide = predicted([8])
    _, narrow = predicted([8], workload=with_kernel(kv_cache="fp8"))
    _, slow = predicted([8], workload=with_kernel(kv_cache="fp8", memory_ratio=0.5))
    # Each request reads 2 layers x 2 x 2 heads x 150 x 64 elements, 153.6 kB in 16 bits, at 100 GB/s.
    assert wide.pass_s[0, 0] - narrow.pass_s[0, 0] == pytest.approx(8 * 0.768e-6)
    assert slow.pass_s[0, 0] > narrow.pass_s[0, 0]
    assert narrow.kv_cache_bytes[0, 0] == wide.kv_cache_bytes[0, 0] / 2


def test_a_device_without_kernels_for_the_weights_is_left_out() -> None:
    other = replace(DEVICE, generation="Other")
    workload = with_kernel("fp8")
    found = predict_served(
        workload,
        devices=[DEVICE, other],
        efficiencies=[efficiency()],
        batches=np.array([1]),
        options=Options(precision="half", compile="compile"),
        asked=Spreading(),
    )
    assert found.fits.tolist() == [[True], [False]]
    assert found.precisions[1, 0] is None
    assert found.tokens is not None
    assert found.tokens.kernels == ("test", "")
    assert found.log_spread[0, 0] == pytest.approx(np.hypot(0.2, 0.3))
    nowhere, _ = predicted([1, 2], on=other, workload=workload)
    assert not nowhere.fits.any()
    assert np.isinf(nowhere.step_s).all()


def drafting(draft_tokens: int, acceptance_ratio: float, draft_cost_ratio: float = 0.0) -> Workload:
    """The model with speculative decoding."""
    workload = generation()
    if workload.generation is None:
        raise ValueError("no generation")
    drafts = replace(
        workload.generation,
        draft_tokens=draft_tokens,
        acceptance_ratio=acceptance_ratio,
        draft_cost_ratio=draft_cost_ratio,
    )
    return replace(workload, generation=drafts)


def test_a_pass_with_drafts_gives_as_many_tokens_as_leviathan_says() -> None:
    # (1 - 0.5^4) / (1 - 0.5) = 1.875 for three drafts; all of them and one more if each is accepted, one if none is.
    for count, accepted, tokens in ((3, 0.5, 1.875), (4, 1.0, 5.0), (4, 0.0, 1.0), (0, 0.7, 1.0)):
        found = drafting(count, accepted).generation
        assert found is not None
        assert found.tokens_per_pass == pytest.approx(tokens)


def test_a_pass_verifies_the_drafts_of_a_request_and_reads_its_cache_once() -> None:
    _, tokens = predicted([1], workload=drafting(3, 0.5))
    # The weights still take 40 us, and the cache of 1.57696 us hides behind computing: four tokens in attention at
    # 0.6144 us each. Inputs and results take 0.08 us for each.
    pass_us = 40 + 4 * 0.6144 + 4 * 0.08
    assert tokens.pass_s[0, 0] == pytest.approx(pass_us * 1e-6)
    assert tokens.between_s[0, 0] == pytest.approx(pass_us / 1.875 * 1e-6)
    assert tokens.undrafted_between_s is not None
    assert tokens.undrafted_between_s[0, 0] == pytest.approx(decode_us(1) * 1e-6)
    _, costly = predicted([1], workload=drafting(3, 0.5, draft_cost_ratio=0.1))
    # Three drafts of a tenth of a pass each.
    assert costly.between_s[0, 0] == pytest.approx((pass_us + 0.3 * decode_us(1)) / 1.875 * 1e-6)
    # The drafter reads the prompt in a tenth of 408 us.
    assert (tokens.first_s[0, 0], costly.first_s[0, 0]) == (pytest.approx(408e-6), pytest.approx(448.8e-6))


def test_drafts_help_while_weights_are_waited_for_and_hurt_where_computing_is() -> None:
    # With 32 requests, four tokens of each compute for 512 us instead of 128 us.
    _, tokens = predicted([1, 32], workload=drafting(3, 0.5))
    assert tokens.undrafted_between_s is not None
    speedup = tokens.undrafted_between_s / tokens.between_s
    assert speedup[0, 0] > 1.8
    assert speedup[0, 1] < 1


def test_the_weights_and_the_cache_of_a_draft_model_are_a_part_of_those_of_the_model() -> None:
    # 4 MB of weights and a cache of 0.1 MB in half, a tenth of each for a drafter that takes a tenth of a pass.
    plain, drafted, looked_up = (
        memory_of_one(workload, Plan(), batches=np.ones(1), width="half")
        for workload in (generation(), drafting(4, 0.7, 0.1), drafting(4, 0.7))
    )
    assert (drafted.total.mid - plain.total.mid).tolist() == pytest.approx([4.1e5])
    assert looked_up.total.mid.tolist() == plain.total.mid.tolist()


def test_without_drafts_nothing_is_compared() -> None:
    _, tokens = predicted([1, 8])
    assert tokens.undrafted_between_s is None


def test_more_accepted_drafts_are_never_slower_and_all_accepted_at_no_cost_give_what_the_passes_give() -> None:
    times = [predicted([4], workload=drafting(3, one))[1].between_s[0, 0] for one in (0.0, 0.3, 0.6, 1.0)]
    assert times == sorted(times, reverse=True)
    assert times[0] > times[-1]
    _, all_accepted = predicted([1], workload=drafting(3, 1.0))
    assert all_accepted.between_s[0, 0] == pytest.approx(all_accepted.pass_s[0, 0] / 4)


def test_requests_under_load_end_after_fewer_passes_with_drafts() -> None:
    # Ten tokens at 2.176 a pass: five passes.
    found = drafting(3, 0.6).generation
    assert found is not None
    assert found.tokens_per_pass == pytest.approx(2.176)
    assert found.decode_passes == 5
    _, tokens = predicted([4], workload=drafting(3, 0.6))
    assert tokens.passes_at is not None
    passes = tokens.passes_at(np.array([0]), np.array([0]))
    alone = list(passes.decoding).index(1)
    assert passes.pass_s[0, 0, alone] == pytest.approx((40 + 4 * 0.6144 + 4 * 0.08) * 1e-6)
    assert passes.budget_tokens[0] == LIMITS.max_num_batched_tokens / 4


TWO = device(gpu_count=2, nvlink_bytes_per_s=1e11)


def test_tensor_parallel_gpus_divide_a_pass_and_sum_twice_in_each_block() -> None:
    _, tokens = predicted([1], on=TWO, asked=Spreading(tensor=2), all_reduce_s=5e-6)
    _, free = predicted([1], on=TWO, asked=Spreading(tensor=2))
    # Weights, products and caches in two; 4 all-reduces of 2 kB in one shot: 2 us and 2 kB at 100 GB/s, and 5 us in
    # which they wait for each other.
    assert free.pass_s[0, 0] == pytest.approx(decode_us(1) / 2 * 1e-6)
    assert tokens.between_s[0, 0] == pytest.approx((decode_us(1) / 2 + 4 * (2 + 0.02 + 5)) * 1e-6)


def test_a_part_of_a_request_passes_between_the_gpus_of_a_plan() -> None:
    # One request: 10 passes and that of its prompt. Each has 4 all-reduces, in one shot of 2 us at 100 GB/s: of 2 kB in
    # decode and of 200 kB, 2 us more, for a prompt; 200 kB in two shots would take twice as long.
    precision = engine_precision(TWO, ENGINE, Options())
    found, _ = predicted([1], on=TWO, asked=Spreading(tensor=2))

    def ratio(plan: Plan) -> float:
        return exchange_ratio(generation(), TWO, precision=precision, plan=plan, batch=1, efficiencies=[efficiency()])

    exchanged_s = 4 * (PASSES * 2.02 + 4.0) * 1e-6
    assert ratio(Plan(tensor=2)) == pytest.approx(exchanged_s / found.step_s[0, 0])
    assert ratio(Plan()) == 0.0


def test_of_a_plan_the_part_of_one_gpu_is_explained() -> None:
    # Two copies on two GPUs each: 4 of 8 requests on a GPU, with half of each of two matrices of 1000 x 1000. For each
    # request 100 tokens of the prompt and 10 of the answer take 2 x 2e6 FLOP: 1.76 GFLOP, and a GPU does half of them.
    on = device(gpu_count=4, nvlink_bytes_per_s=1e11)
    step = PredictedStep(
        batch=8,
        precision="bf16",
        step_s=Interval(mid=1.0, low=0.9, high=1.1),
        bound="compute",
        time_source="fitted",
        plan=Plan(data=2, tensor=2),
        exchange_s=0.1,
    )
    explained, alone = (
        explain_step(generation(), one, name="toy", device=on, efficiencies=[efficiency()])
        for one in (step, replace(step, batch=4, plan=None, exchange_s=0.0))
    )
    families, whole = ({group.name: group for group in one.families} for one in (explained, alone))
    assert families["matmul"].flops == pytest.approx(0.88e9)
    assert families[EXCHANGE].time_s == 0.1
    assert families[EXCHANGE].bound == "communication"
    assert sum(group.time_s for group in explained.families) == pytest.approx(1.0)
    # A GPU has one of two heads of keys and values: half of the cache, and of the queries.
    assert whole["attention"].moved_bytes == pytest.approx(2 * families["attention"].moved_bytes)
    assert whole["attention"].flops == pytest.approx(2 * families["attention"].flops)


def test_the_efficiency_of_a_copy_is_its_speed_up_over_one_gpu_for_each_gpu() -> None:
    alone, _ = predicted([1])
    slowed, _ = predicted([1], on=TWO, asked=Spreading(tensor=2), all_reduce_s=5e-6)
    copies, _ = predicted([2], on=TWO, asked=Spreading(gpus=2, tensor=1))
    assert slowed.scaling is not None
    assert copies.scaling is not None
    assert slowed.scaling.efficiency_ratio[0, 0] == pytest.approx(alone.step_s[0, 0] / 2 / slowed.step_s[0, 0])
    assert slowed.scaling.efficiency_ratio[0, 0] < 0.9
    assert copies.scaling.efficiency_ratio[0, 0] == 1.0


def test_a_pipeline_runs_its_groups_of_requests_one_behind_the_other() -> None:
    found, tokens = predicted([8], on=TWO, asked=Spreading(pipeline=2))
    assert found.scaling is not None
    assert found.scaling.plans == (Plan(pipeline=2),)
    # A group of four requests passes both stages: as long as on one GPU.
    assert tokens.pass_s[0, 0] == pytest.approx(decode_us(4) * 1e-6)


def test_heads_that_do_not_divide_leave_pipelines_and_copies() -> None:
    workload = generation()
    assert workload.generation is not None
    ten = replace(workload, generation=replace(workload.generation, head_count=40, kv_head_count=10))
    plans = list(served_plans(ten, gpu_count=8, asked=Spreading()))
    assert {plan.tensor for plan in plans} == {1, 2}
    with pytest.raises(UsageError, match="40 query heads and 10 heads") as refused:
        predicted([8], on=device(gpu_count=8, nvlink_bytes_per_s=1e11), workload=ten, asked=Spreading(tensor=8))
    assert "one of 1, 2, 5," in str(refused.value.hint)


def test_a_plan_for_more_gpus_than_any_machine_has_is_refused() -> None:
    with pytest.raises(UsageError, match="groups of 8 GPUs"):
        predicted([8], on=TWO, asked=Spreading(tensor=2, pipeline=4))
    with pytest.raises(UsageError, match="--gpus 3: no device that was asked for has more than 2 "):
        predicted([8], on=TWO, asked=Spreading(gpus=3))
    with pytest.raises(UsageError, match="--gpus 1: the plan needs groups of 2 GPUs"):
        predicted([8], on=TWO, asked=Spreading(gpus=1, tensor=2))


def test_tensor_groups_in_two_stages_share_the_layers_and_then_each_layer() -> None:
    # Two groups of 4 requests, one behind the other: half of a pass of 4.
    four = device(gpu_count=4, nvlink_bytes_per_s=1e11)
    found, tokens = predicted([8], on=four, asked=Spreading(tensor=2, pipeline=2))
    assert found.scaling is not None
    assert found.scaling.plans == (Plan(tensor=2, pipeline=2),)
    assert tokens.pass_s[0, 0] == pytest.approx(decode_us(4) / 2 * 1e-6)
    # Of the memory, each holds a quarter of 4 MB of weights, and of 8 x 100 kB of caches.
    alone, _ = predicted([8], on=DEVICE)
    saved = alone.peak_memory_bytes[0, 0] - found.peak_memory_bytes[0, 0]
    assert saved == pytest.approx(0.75 * (4e6 + 8e5), rel=0.01)


def test_chunks_of_a_prompt_go_through_a_pipeline_one_behind_the_other() -> None:
    # Chunks of 64 tokens: 2 of 50. Alone, each takes half of a prompt's time; in two stages the second starts when the
    # first has left the first stage: 3 halves of one chunk's time, and three sends of 8.4 us, 3.4 us and 100 kB.
    small = BatchLimits(max_num_seqs=64, max_num_batched_tokens=64)
    workload = generation()
    assert workload.generation is not None
    engine = replace(ENGINE, limits=dict.fromkeys(("cpu", "gpu", "large_gpu"), small))
    chunked = replace(workload, generation=replace(workload.generation, engine=engine))
    _, alone = predicted([1], workload=chunked)
    _, staged = predicted([1], on=TWO, workload=chunked, asked=Spreading(pipeline=2))
    chunk_s = alone.first_s[0, 0] / 2
    sent_s = float(send_s(1e5, inside_link([TWO], ways=2)).item())
    assert staged.first_s[0, 0] == pytest.approx(1.5 * (chunk_s + sent_s))


NETWORKED = replace(TWO, network_bytes_per_s=1e10)


def test_machines_share_a_model_that_fits_none_of_them() -> None:
    # 4 GB of weights in half, and 0.5 GB of CUDA's on each GPU, in twice 2 GB, or in four times.
    workload, small = generation(), replace(NETWORKED, memory_bytes=2e9)
    line = replace(workload.memory[0], parameters=StoredBytes(full=(8e9, 0.0)))
    heavy = replace(workload, memory=(line,))
    one, _ = predicted([1], on=small, workload=heavy)
    two, tokens = predicted([1], on=small, workload=heavy, asked=Spreading(max_machines=2))
    assert not one.fits.any()
    assert two.fits.any()
    assert two.scaling is not None
    plan = two.scaling.plans[two.scaling.plan[0, 0]]
    assert (plan.machines, plan.gpu_count, plan.data) == (2, 4, 1)
    assert tokens.between_s[0, 0] > tokens.pass_s[0, 0]


def test_one_machine_is_taken_where_it_is_enough() -> None:
    found, _ = predicted([1], on=NETWORKED, asked=Spreading(max_machines=2))
    assert found.scaling is not None
    assert found.scaling.plans[found.scaling.plan[0, 0]].machines == 1


def test_each_family_of_plans_has_all_batches() -> None:
    apart = predict_served(
        generation(),
        devices=[DEVICE, NETWORKED],
        efficiencies=[efficiency()],
        batches=np.array([1, 4]),
        options=Options(precision="half", compile="compile"),
        asked=Spreading(max_machines=2),
        family_of=lambda plan: (plan.machines,),
    )
    assert apart.batches.tolist() == [1, 4, 1, 4]
    assert apart.scaling is not None
    assert apart.scaling.family is not None
    assert apart.scaling.family.tolist() == [0, 0, 1, 1]
    machines = np.array([plan.machines for plan in apart.scaling.plans])[apart.scaling.plan[1]]
    assert machines.tolist() == [1, 1, 2, 2]
    assert apart.fits.tolist() == [[True, True, False, False], [True] * 4]  # a machine without a network stays alone
    for place, machine_count in ((0, 1), (2, 2)):
        exactly, _ = predicted([1, 4], on=NETWORKED, asked=Spreading(machines=machine_count, max_machines=2))
        assert apart.step_s[1, place : place + 2].tolist() == exactly.step_s[0].tolist()


def test_machines_hand_on_their_layers_over_the_network() -> None:
    both = Spreading(machines=2, max_machines=2, tensor=2, pipeline=2)
    _, tokens = predicted([1], on=NETWORKED, asked=both)
    # Half of the pass; 4 all-reduces of 2 us and 2 kB at 100 GB/s; 2 kB over 10 GB/s with NCCL's 8.4 and 14 us.
    assert tokens.between_s[0, 0] == pytest.approx((decode_us(1) / 2 + 4 * 2.02 + 8.4 + 14 + 0.2) * 1e-6)


def test_gpus_without_links_may_form_pipelines_unasked() -> None:
    linked, pcie = (
        {plan.pipeline for plan in served_plans(generation(), gpu_count=2, asked=Spreading(), is_linked=is_linked)}
        for is_linked in (True, False)
    )
    assert linked == {1}
    assert pcie == {1, 2}


def mixture() -> Workload:
    """The model above with 4 experts in each of its two layers, 1000 x 100 and back, of which a token chooses one."""
    workload = generation()

    def product(phase: Phase, tokens: float, rows: int, columns: int, count: int) -> Row:
        return Row(
            op="aten._grouped_mm",
            family="matmul",
            phase=phase,
            module="layers.*.experts",
            inputs=(operand((0.0, tokens), rows), operand(4, rows, columns)),
            outputs=(operand((0.0, tokens), columns),),
            attributes={CHOSEN_EXPERTS: 1},
            count=count,
        )

    shapes = ((1000, 100), (100, 1000))
    rows = [product("prefill", 100.0, *shape, 2) for shape in shapes]
    rows += [product("decode", 1.0, *shape, 2 * PASSES) for shape in shapes]
    weights = StoredBytes(full=(8e6 + 2 * 2 * 4 * 4e5, 0.0))
    line = replace(workload.memory[0], parameters=weights)
    return replace(workload, rows=(*workload.rows, *rows), memory=(line,))


def test_products_of_experts_reach_less_of_the_peak_and_are_known_less_well() -> None:
    def of(experts: ExpertKernels) -> tuple[Predictions, TokenTimes]:
        workload = mixture()
        assert workload.generation is not None
        engine = replace(ENGINE, experts=experts)
        return predicted([1], workload=replace(workload, generation=replace(workload.generation, engine=engine)))

    plain, fast = of(ExpertKernels(compute_ratio=1.0, log_spread=0.0))
    found, slow = of(ExpertKernels(compute_ratio=0.5, log_spread=0.3))
    # 100 tokens of a prompt x one expert of 2 x 1000 x 100 weights in each of two layers: 80 MFLOP at 1 TFLOP/s.
    assert slow.first_s[0, 0] - fast.first_s[0, 0] == pytest.approx(80e-6)
    # A token alone waits for weights.
    assert slow.between_s[0, 0] == fast.between_s[0, 0]
    assert found.log_spread[0, 0] == pytest.approx(math.hypot(plain.log_spread[0, 0], 0.3))


def test_copies_that_divide_experts_read_those_that_all_their_tokens_choose() -> None:
    workload = mixture()
    assert workload.generation is not None
    model = ServedModel(workload)
    four = model.work("decode", "half", np.array([3.0]), expert=4)
    alone = model.work("decode", "half", np.array([3.0]))
    # Two layers: 2 MB; of 4 experts of 400 kB, 3 tokens choose 4 (1 - 0.75^3) = 2.3125, and 12 tokens 4 (1 - 0.75^12),
    # a quarter of which is here. The experts' input of 3 tokens, 3 x 1,100 x 2 bytes, counts with their weights.
    assert alone.weight_bytes[0] == pytest.approx(2 * (2e6 + 2.3125 * 4e5 + 6600))
    assert four.weight_bytes[0] == pytest.approx(2 * (2e6 + (1 - 0.75**12) * 4e5 + 6600))
    # The work on experts is that of as many tokens as without: 12 / 4.
    assert four.product_flops[0] == pytest.approx(alone.product_flops[0])
    assert (four.token_count[0], four.kernel_count[0]) == (alone.token_count[0], alone.kernel_count[0])
    # A prompt of one copy is worked on by all.
    prompts = [model.work("prefill", "half", np.ones(1), expert=ways).product_flops[0] for ways in (1, 4)]
    assert prompts[0] - prompts[1] == pytest.approx(0.75 * 2 * 2 * 2 * 100 * 1000 * 100)


def test_each_gpu_holds_its_part_of_the_experts_and_all_else() -> None:
    # 4 MB and 2 layers x 4 experts x 400 kB = 3.2 MB in half: a quarter of the latter.
    whole, part = (
        memory_of_one(mixture(), Plan(data=ways, expert=ways), batches=np.ones(1), width="half").parts["parameters"]
        for ways in (1, 4)
    )
    assert float(whole.mid[0]) == pytest.approx(7.2e6)
    assert float(part.mid[0]) == pytest.approx(4.8e6)


def test_tokens_go_to_their_experts_and_back_in_every_layer_of_them() -> None:
    four = device(gpu_count=4, nvlink_bytes_per_s=1e11)
    found, tokens = predicted([4], on=four, workload=mixture(), asked=Spreading(expert=4))
    assert found.scaling is not None
    assert found.scaling.plans == (Plan(data=4, expert=4),)
    # 2 kB each, to 4 (1 - 3/4) = 1 place: 8.4 + 3.4 us and (3 + 0.94) / 4 x 2 kB at 100 GB/s; 2 layers, there and back.
    exchange_us = 4 * (8.4 + 3.4 + 3.94 / 4 * 0.02)
    assert tokens.passes_at is not None
    passes = tokens.passes_at(np.array([0]), np.array([0]))
    all_four = passes.decoding.tolist().index(4.0)
    assert passes.pass_s[0, 0, all_four] == pytest.approx(tokens.pass_s[0, 0] + exchange_us * 1e-6)
    # The four wait for each other: they are one replica, and the prompts of any of 4 requests slow all of them.
    assert (passes.replica_count.item(), passes.most_in_flight.item()) == (1, 4)
    slowed_s = 3 / PASSES * (passes.pass_s[0, 1, all_four] - passes.pass_s[0, 0, all_four])
    assert tokens.between_s[0, 0] == pytest.approx(passes.pass_s[0, 0, all_four] + slowed_s)


def test_passes_are_computed_up_to_all_requests_that_may_be_in_flight() -> None:
    # Eight copies of the attention layers take 1,024 requests each.
    eight = device(gpu_count=8, nvlink_bytes_per_s=1e11, memory_bytes=1e12)
    _, tokens = predicted([8192], on=eight, workload=mixture(), asked=Spreading(expert=8))
    assert tokens.passes_at is not None
    passes = tokens.passes_at(np.array([0]), np.array([0]))
    assert passes.most_in_flight.item() == 8192
    assert passes.decoding[-1] == 8192
    assert (np.diff(passes.pass_s[0], axis=1) >= 0).all()


def test_the_passes_of_a_batch_that_is_taken_out_are_its_own() -> None:
    found, _ = predicted([1, 4, 8])
    tokens = at_batches(found, np.array([4, 8])).tokens
    assert tokens is not None
    assert tokens.passes_at is not None
    assert tokens.passes_at(np.array([0, 0]), np.array([0, 1])).most_in_flight.tolist() == [4, 8]


def test_no_devices_have_no_predictions() -> None:
    found = predict_served(
        generation(),
        devices=[],
        efficiencies=[efficiency()],
        batches=np.array([1, 2]),
        options=Options(precision="half", compile="compile"),
        asked=Spreading(tensor=2),
    )
    assert found.step_s.shape == found.fits.shape == (0, 2)
    assert found.scaling is None


def test_only_a_mixture_of_experts_can_divide_experts() -> None:
    with pytest.raises(UsageError, match="no experts"):
        predicted([2], on=TWO, asked=Spreading(expert=2))


def test_weights_are_in_16_bits_on_every_cpu() -> None:
    cpu = replace(DEVICE, kind="cpu")
    options = Options(precision="half")
    assert engine_precision(replace(cpu, isa="avx2"), ENGINE, options) == "fp16"
    assert engine_precision(replace(cpu, isa="avx512"), ENGINE, options) == "bf16"


def test_limits_depend_on_the_gpu() -> None:
    large = replace(LIMITS, max_num_seqs=1024)
    engine = replace(ENGINE, limits={"gpu": LIMITS, "large_gpu": large}, large_gpu_bytes=70e9, not_large=("a100",))
    h100, a100 = (replace(DEVICE, id=name, memory_bytes=80e9) for name in ("h100-sxm", "a100-sxm"))
    assert [engine.batch_limits(one).max_num_seqs for one in (h100, a100)] == [1024, 64]


def test_every_coefficient_changes_some_time() -> None:
    _, base = predicted([4], on=TWO, asked=Spreading(tensor=2))
    silent = {"kernel_core_s"}  # of CPUs alone
    for name in set(COEFFICIENTS) - silent:
        _, changed = predicted([4], on=TWO, asked=Spreading(tensor=2), **{name: getattr(IDEAL, name) * 0.1 or 1e-5})
        differs = any(
            (getattr(base, one.name) != getattr(changed, one.name)).any()
            for one in fields(TokenTimes)
            if one.name in ("first_s", "between_s")
        )
        assert differs, name


def test_a_part_is_a_step_by_itself() -> None:
    decode = part_of_generation(generation(), "decode")
    assert [row.count for row in decode.rows] == [2, 2]
    assert [(blocks.count, blocks.results.full) for blocks in decode.blocks] == [(2, (0.0, 8000.0))]
    assert decode.generation is None


def test_a_workload_that_generates_nothing_has_no_parts() -> None:
    with pytest.raises(ValueError, match="generates nothing"):
        part_of_generation(toy(), "decode")
