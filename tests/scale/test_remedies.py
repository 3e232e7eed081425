"""A step of 1 GB of parameters and as much of gradients, 2 GB of state and 1 GB of activations a sample."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.catalog.overlay import load_catalog
from advisor.records.device import Device
from advisor.records.generation import Generation
from advisor.records.scale import Plan
from advisor.records.workload import Blocks, StoredBytes, Workload
from advisor.scale.remedies import Remedied, Step, largest_batches, remedies
from advisor.scale.spread_out import pass_batches
from tests.predict.test_step_memory import CONTEXT, optimizer_row
from tests.predict.toys import device, linear_row, memory_line, operand, row, workload
from tests.says import assert_says

GB = 10**9


def constant(size: float) -> StoredBytes:
    return StoredBytes(full=(float(size), 0.0))


def per_sample(size: float) -> StoredBytes:
    return StoredBytes(full=(0.0, float(size)))


BLOCKS = Blocks(
    path="layers.*",
    count=8,
    parameter_bytes=GB // 2,
    largest_parameter_bytes=GB // 16,
    kept=per_sample(0.8 * GB),
    largest_kept=per_sample(0.1 * GB),
    results=per_sample(0.2 * GB),
)


def net(**changes: Any) -> Workload:
    values: dict[str, Any] = {
        "mode": "training",
        "optimizer": "AdamW",
        "parameter_bytes": GB,
        "memory": (
            memory_line(
                phase="loss",
                parameters=constant(GB),
                optimizer_state=constant(2 * GB),
                activations=per_sample(GB),
            ),
        ),
        "blocks": (BLOCKS,),
    }
    # 250 million parameters, of which the optimizer writes 12 bytes, 8 of them state; fused, so without intermediates.
    optimizer = optimizer_row(element_count=GB // 4, calls_per_tensor=1.0)
    return workload(optimizer, **(values | changes))


def step(batch: int = 8, toy: Workload | None = None, **changes: Any) -> Step:
    return Step(**({"workload": toy or net(), "batch": batch, "width": "full", "kind": "gpu"} | changes))


def remedied(name: str, *, batch: int = 8, memory_bytes: float = 6 * GB, **changes: Any) -> Remedied | None:
    on: Device = device(memory_bytes=memory_bytes)
    found = {remedy.name: remedy for remedy in remedies(step(batch, **changes), device=on)}
    return found.get(name)  # type: ignore[call-overload,no-any-return]


def tensors(remedy: Remedied | None) -> float:
    """In GB, without the CUDA context."""
    assert remedy is not None
    return float(remedy.step.peak.mid[0] - CONTEXT) / GB


def test_the_step_itself_by_hand() -> None:
    # 1 + 2 GB, and 8 samples of 1 GB.
    assert float(step().peak.mid[0]) == 11 * GB + CONTEXT


def test_autocast_halves_what_it_stores_in_half() -> None:
    activations = StoredBytes(low=(0.0, 0.75 * GB), full=(0.0, 0.25 * GB))
    toy = net(memory=(memory_line(phase="loss", activations=activations),))
    # The 0.75 GB of a sample become 0.375.
    assert tensors(remedied("half precision", toy=toy)) == pytest.approx(8 * 0.625)


def test_inference_runs_whole_in_half() -> None:
    toy = net(mode="inference", memory=(memory_line(parameters=constant(2 * GB)),))
    assert tensors(remedied("half precision", toy=toy)) == 1


def test_a_cpu_without_a_unit_for_it_has_no_half_precision() -> None:
    halves = net(memory=(memory_line(phase="loss", activations=StoredBytes(low=(0.0, GB))),))
    with_unit, without = device(kind="cpu"), device(kind="cpu", peak_flops_per_s={"fp32": 1e12})
    assert _has_half(step(toy=halves, kind="cpu"), with_unit)
    assert not _has_half(step(toy=halves, kind="cpu"), without)


def _has_half(one: Step, on: Device) -> bool:
    return "half precision" in {found.name for found in remedies(one, device=on)}


def test_the_state_in_8_bits_has_a_byte_for_each_value_and_a_scale_for_256() -> None:
    # 2 GB in fp32 are 0.5 GB, and 4 bytes for 256 values 1/64 of that.
    assert tensors(remedied("8-bit optimizer")) == pytest.approx(1 + 0.5 * (1 + 1 / 64) + 8)


def test_accumulation_halves_the_batch_until_it_fits_and_keeps_the_gradients() -> None:
    # Batch 8 needs 3 + 1 + 8 GB with the gradients of the pass before, batch 4 8 GB, batch 2 6 GB, batch 1 5 GB.
    fits_8_gb = remedied("gradient accumulation", memory_bytes=10 * GB)  # at most 1.64 GB of context and driver
    assert fits_8_gb is not None
    assert (fits_8_gb.step.batch, fits_8_gb.change) == (4, "2 passes with 4 samples each")
    assert tensors(fits_8_gb) == 8
    assert remedied("gradient accumulation", memory_bytes=5.9 * GB).step.batch == 1  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("samples", "plan", "passes"),
    [
        (3, Plan(), 3),
        (5, Plan(), 5),
        (6, Plan(), 6),
        (8, Plan(), 8),
        # 7 samples on two GPUs are 4 and 3: in four passes, one would have none.
        (7, Plan(data=2), 3),
        # 5 samples in two passes are 3 and 2, and can be divided into four passes but not into six.
        (5, Plan(accumulate=2), 4),
    ],
)
def test_every_pass_of_every_gpu_has_a_sample(samples: int, plan: Plan, passes: int) -> None:
    (of_pass,) = pass_batches(np.array([samples]), plan).tolist()
    found = remedied("gradient accumulation", batch=of_pass, samples=samples, plan=plan, memory_bytes=1 * GB)
    assert found is not None
    assert (found.step.plan.accumulate, found.change.split()[0]) == (passes, str(passes))
    assert plan.data * passes <= samples


def test_nothing_is_accumulated_at_batch_1_or_in_inference() -> None:
    assert remedied("gradient accumulation", batch=1) is None
    assert remedied("gradient accumulation", toy=net(mode="inference")) is None


def test_checkpointed_blocks_keep_their_results_and_one_is_whole_at_a_time() -> None:
    # The blocks hold 0.8 of a sample's 1 GB; left are 0.2 outside and 0.2 of results. The 0.1 of the block that runs
    # again come when the 0.2 are gone.
    assert tensors(remedied("activation checkpointing")) == pytest.approx(3 + 8 * 0.4)


def test_where_blocks_are_done_checkpointing_saves_of_the_others_alone() -> None:
    half_way = memory_line(phase="backward", activations=per_sample(0.6 * GB), temporaries=per_sample(GB))
    toy = net(memory=(memory_line(phase="loss", activations=per_sample(GB)), half_way))
    # In backward nothing is known to be outside: 0.6 of the blocks' 0.8 become 0.15 of results and 0.1 of the one that
    # runs again; and 1 beside.
    assert tensors(remedied("activation checkpointing", toy=toy)) == pytest.approx(8 * 1.25)


def test_blocks_that_hold_nothing_more_than_their_results_are_not_checkpointed_again() -> None:
    held = per_sample(0.2 * GB)
    blocks = replace(BLOCKS, kept=held, largest_kept=held, results=held)
    assert remedied("activation checkpointing", toy=net(blocks=(blocks,))) is None
    assert remedied("activation checkpointing", toy=net(blocks=())) is None


def test_checkpointing_computes_the_blocks_again() -> None:
    rows = [replace(linear_row(), module=path) for path in ("layers.*.fc", "head")]
    found = remedied("activation checkpointing", toy=replace(net(), rows=(*net().rows, *rows)))
    # The two layers have as many FLOP, the optimizer none; one of them is in the blocks.
    assert found is not None
    assert found.extra_flops_ratio == 0.5


def test_sharding_divides_all_but_what_is_gathered() -> None:
    # Two GPUs: 0.5 GB of parameters, 1 of state, 4 samples; whole are the 0.5 GB outside blocks and 2 blocks of 1/16.
    found = remedied("sharding", memory_bytes=8 * GB)
    assert found is not None
    assert_says(found.change, "2 GPUs", "FSDP", "batch 4")
    assert tensors(found) == pytest.approx(0.5 + 1 + 4 + 0.5 + 2 / 16)


def test_more_gpus_where_two_are_not_enough() -> None:
    # Four: 0.25 + 0.5 + 2 + 0.625 GB.
    found = remedied("sharding", memory_bytes=5 * GB)
    assert found is not None
    assert found.change.startswith("4 GPUs")


def test_logits_in_chunks_are_another_trace_of_the_step() -> None:
    lean = memory_line(phase="loss", parameters=constant(GB), activations=per_sample(0.5 * GB))
    assert remedied("chunked logits") is None
    assert tensors(remedied("chunked logits", chunked=net(memory=(lean,)))) == 1 + 8 * 0.5
    assert remedied("chunked logits", chunked=net()) is None  # where other things decide it saves nothing


def test_a_cpu_is_offered_what_a_cpu_can_do() -> None:
    on = device(kind="cpu", memory_bytes=8 * GB)
    names = {one.name for one in remedies(step(kind="cpu"), device=on)}
    assert names == {"gradient accumulation", "activation checkpointing"}


def test_the_largest_batch_is_exact() -> None:
    # 3 GB, and 0.287 to 1.637 GB of context and driver, leave 15.36 to 16.71 GB of 20 for samples of 1 GB.
    assert largest_batches(step(), memory_bytes=20 * GB) == (15, 16)
    # 18.5 - 3 - 1.637 = 13.86; 18.5 - 3 - 0.287 = 15.2.
    assert largest_batches(step(), memory_bytes=18.5 * GB) == (13, 15)


def squared(per_sample_bytes: float, per_pair_bytes: float) -> Workload:
    """The net, with these activations."""
    [line] = net().memory
    return net(batch=8, memory=(replace(line, activations=StoredBytes(full=(0.0, per_sample_bytes, per_pair_bytes))),))


def test_the_largest_batch_of_a_step_that_compares_its_samples_is_exact() -> None:
    # The 15.36 to 16.71 GB that are left hold 1 GB for each pair of 3 or 4 samples.
    assert largest_batches(step(toy=squared(0.0, GB)), memory_bytes=20 * GB) == (3, 4)


def test_accumulation_helps_it_more() -> None:
    # With 1 + 2 + 1 GB of parameters, state and gradients, batch 4 needs 20 GB and batch 2 needs 8 GB.
    found = remedied("gradient accumulation", toy=squared(0.0, GB), memory_bytes=10 * GB)
    assert found is not None
    assert found.change == "4 passes with 2 samples each, which the loss compares only among themselves"


def test_checkpointing_leaves_its_squares_and_what_they_cover_of_a_block() -> None:
    # Outside of blocks a sample has 0.05 GB, and 0.01 with each of 8: more than the 0.1 of the block that runs again,
    # for which they are freed. 0.8 of a sample's 0.85 GB become 0.2 of results.
    found = remedied("activation checkpointing", toy=squared(0.85 * GB, 0.01 * GB))
    assert tensors(found) == pytest.approx(3 + 8 * 0.25 + 64 * 0.01)


def test_no_batch_fits_a_device_that_is_too_small() -> None:
    assert largest_batches(step(), memory_bytes=3 * GB) == (0, 0)


def test_a_step_of_one_batch_alone_fits_at_that_or_not() -> None:
    toy = net(batch_is_affine=False)
    assert largest_batches(step(8, toy=toy), memory_bytes=20 * GB) == (8, 8)
    assert largest_batches(step(8, toy=toy), memory_bytes=10 * GB) == (0, 0)


def served(**changes: Any) -> Workload:
    data, result = operand((0.0, 1.0), 10), operand((0.0, 1.0), 20)
    product = row("aten.mm", (data, operand(10, 20)), (result,), family="matmul", phase="prefill")
    return workload(
        replace(product, module="layers.*.up"),
        memory=(memory_line(phase="prefill", parameters=constant(2000), kv_cache=per_sample(100)),),
        generation=Generation(prompt_tokens=8, output_tokens=2, **changes),
    )


def test_a_model_in_service_may_have_narrow_weights_or_be_divided() -> None:
    vllm = load_catalog().engines["vllm"]
    kernel = replace(vllm.weight_kernels["int4_marlin"], on=(device().generation,))
    engine = replace(vllm, weight_kernels={"int4": kernel, "elsewhere": vllm.weight_kernels["nf4_bitsandbytes"]})
    one = step(4, served(kv_head_count=2, engine=engine))
    found = {each.name: each for each in remedies(one, device=device())}

    # 800 of 2000 bytes are 200 values in the block: 1200 + 103.90625 bytes; of two GPUs each has half of all.
    parts = {name: float(each.step.peak.mid[0]) - float(one.peak.mid[0]) for name, each in found.items()}
    assert parts["narrow weights"] == pytest.approx(1303.90625 - 2000)
    assert parts["sharding"] == pytest.approx(-1000 - 200)
    assert found["sharding"].change == "2 GPUs with tensor parallelism"


def test_a_head_of_the_cache_is_never_divided() -> None:
    one = step(4, served(kv_head_count=1))
    (sharding,) = (each for each in remedies(one, device=device()) if each.name == "sharding")
    assert float(one.peak.mid[0] - sharding.step.peak.mid[0]) == pytest.approx(1000)


def test_inference_is_split_where_the_model_has_blocks() -> None:
    # Half of the parameters are in blocks: two GPUs hold 0.5 and 0.25 GB of 1 GB.
    still = net(mode="inference", memory=(memory_line(parameters=constant(GB)),))
    assert tensors(remedied("sharding", toy=still)) == pytest.approx(0.75)
    assert remedied("sharding", toy=replace(still, blocks=())) is None


def test_the_largest_batch_of_a_plan_counts_all_devices_and_passes() -> None:
    # On one GPU 3 GB and 16 samples; two in DDP keep 1 GB of buckets beside the gradients, and two passes those: of
    # 20 GB, 5 GB and 2.57 of context, driver and NCCL leave 12 samples for each pass of each GPU.
    spread = step(plan=Plan(data=2, accumulate=2))
    assert largest_batches(spread, memory_bytes=20 * GB)[0] == 4 * 12
