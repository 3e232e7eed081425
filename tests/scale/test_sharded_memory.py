from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.predict.step_memory import StepMemory
from advisor.records.fine_tuning import FineTuning
from advisor.records.generation import Generation
from advisor.records.scale import Plan, Sharding
from advisor.records.workload import Operand, Row, StoredBytes, Workload
from advisor.scale.sharded_memory import memory_of_one
from tests.scale.toys import workload

SHARDINGS = st.sampled_from(["zero1", "zero2", "zero3"])


def tensor_bytes(plan: Plan, *, batch: float = 2.0, width: str = "full") -> float:
    """Without what libraries and the process add."""
    parts = memory_of_one(workload(), plan, batches=np.array([batch]), width=width).parts  # type: ignore[arg-type]
    counted = ("parameters", "gradients", "optimizer state", "activations", "temporaries")
    return sum(float(parts[part].mid[0]) for part in counted)


def test_one_gpu_holds_what_the_trace_counted() -> None:
    # At the optimizer's step: 480 of parameters, of gradients, and 960 of state; 45 a sample were kept before.
    assert tensor_bytes(Plan()) == 480 + 480 + 960


def test_ddp_keeps_its_buckets_beside_the_gradients() -> None:
    assert tensor_bytes(Plan(data=4)) == 480 + 480 + 960 + 480


def test_ddp_keeps_its_buckets_beside_the_list_of_a_foreach_optimizer() -> None:
    # 4 parameters of 120 bytes, of which a for-loop holds 240 at a time and the list all 480.
    toy = workload()
    [optimizer] = toy.rows
    attributes = {**optimizer.attributes, "name": "AdamW", "tensor_count": 4, "calls_per_tensor": 9}
    step = replace(toy.memory[1], temporaries=StoredBytes(full=(240.0, 0.0)))
    toy = replace(toy, rows=(replace(optimizer, attributes=attributes),), memory=(step,))
    parts = memory_of_one(toy, Plan(data=4), batches=np.array([2.0]), width="full").parts
    assert (parts["gradients"].mid[0], parts["temporaries"].mid[0]) == (480 + 480, 480)


def test_each_stage_of_zero_divides_one_thing_more() -> None:
    # 960 / 4 of state; then 480 / 4 of gradients, and now the moment before backward is the fullest:
    # 480 + 240 + 2 samples x 45.
    assert tensor_bytes(Plan(data=4, sharding="zero1")) == 480 + 480 + 240
    assert tensor_bytes(Plan(data=4, sharding="zero2")) == max(480 + 120 + 240, 480 + 240 + 90)


def test_fsdp_gathers_what_is_outside_of_blocks_and_two_blocks() -> None:
    # 480 / 4 + 80 + 2 x 100 of parameters, 960 / 4 of state, 2 x 45 of activations; none of the gradients yet.
    assert tensor_bytes(Plan(data=4, sharding="zero3")) == 120 + 280 + 240 + 90


def test_fsdp_under_autocast_gathers_in_half_and_keeps_the_activations_of_autocast() -> None:
    # As above, but gathered parameters are half as wide.
    assert tensor_bytes(Plan(data=4, sharding="zero3"), width="autocast") == 120 + 140 + 240 + 90


def test_fsdp_saves_nothing_of_large_temporaries() -> None:
    # Of a sample, 45 of activations, and 1000 of temporaries in fp32, as a norm's are under autocast.
    backward, optimizer = workload().memory
    wide = workload(memory=(replace(backward, temporaries=StoredBytes(full=(0.0, 1000.0))), optimizer))

    def peak(plan: Plan) -> StepMemory:
        return memory_of_one(wide, plan, batches=np.array([2.0]), width="autocast")

    one, sharded = peak(Plan()), peak(Plan(data=4, sharding="zero3"))
    assert one.allocated[0] - sharded.allocated[0] == (480 + 960) - (120 + 140 + 240)
    # Without autocast all that a sample needs is half as wide: the lower bound.
    spread = [sharded.parts[name] for name in ("activations", "temporaries")]
    assert [part.mid[0] - part.low[0] for part in spread] == pytest.approx([2 * 45 / 2, 2 * 1000 / 2])


def test_autocast_copies_no_weights_that_fsdp_has_gathered_in_half() -> None:
    # The linear layer's weights are 64 x 64, of which autocast keeps a copy of 2 bytes each.
    fixed = {"dtype": "float32", "low": False}
    weight = Operand(shape=(64, 64), **fixed)
    linear = Row(
        op="aten.mm",
        family="matmul",
        phase="forward",
        module="layers.*",
        inputs=(Operand(shape=((0, 1), 64), **fixed), weight),
        outputs=(Operand(shape=((0, 1), 64), dtype="float32", low=True),),
        attributes={},
        count=1,
    )
    toy = workload(rows=(*workload().rows, linear))

    def copies(plan: Plan) -> float:
        parts = memory_of_one(toy, plan, batches=np.array([2.0]), width="autocast").parts
        return float(parts["half copies"].mid[0])

    # The batch makes backward the worst moment; the optimizer's has no copies.
    assert copies(Plan(data=4, sharding="zero2")) == 2 * 64 * 64
    assert copies(Plan(data=4, sharding="zero3")) == 0


def test_passes_keep_the_gradients_of_those_before() -> None:
    # When backward begins: 480 + 960 + 480 of gradients + 2 x 45.
    assert tensor_bytes(Plan(accumulate=2)) == 480 + 960 + 480 + 90


def test_checkpoints_keep_what_blocks_hand_on_and_one_block() -> None:
    # 5 outside of blocks and 8 of results a sample; the block's 10 come when the 5 are gone.
    plan = Plan(data=4, sharding="zero3", checkpoint_activations=True)
    assert tensor_bytes(plan) == 120 + 280 + 240 + 2 * (8 + 10)


CHECKPOINTED = Plan(data=4, sharding="zero3", checkpoint_activations=True)


def tuned(**how: Any) -> StepMemory:
    """At batch 10, where the checkpoints decide."""
    toy = workload(fine_tuning=FineTuning(**{"method": "lora", **how}))
    return memory_of_one(toy, CHECKPOINTED, batches=np.array([10.0]), width="full")


def test_reentrant_checkpoints_of_frozen_blocks_hold_gradients_of_the_inputs_too() -> None:
    # Four blocks hand on 2 each a sample: the gradients of all but the last block's input and the one in use.
    held = float(tuned(reentrant=True).allocated[0] - tuned(reentrant=False).allocated[0])
    assert held == 10 * 2 * (4 - 2)
    trained = tuned(reentrant=True, method="full").allocated[0]
    assert trained == tuned(reentrant=False).allocated[0]


def test_where_checkpoints_may_be_reentrant_only_the_upper_bound_grows() -> None:
    unknown, without, held = tuned(), tuned(reentrant=False), tuned(reentrant=True)
    assert (unknown.total.low[0], unknown.total.mid[0]) == (without.total.low[0], without.total.mid[0])
    assert unknown.total.high[0] == pytest.approx(held.total.high[0])
    assert held.total.high[0] > without.total.high[0]


def test_shards_in_fp32_are_twice_as_large_as_the_16_bits_that_were_traced() -> None:
    def states(*, has_shards: bool) -> float:
        toy = workload(fine_tuning=FineTuning(method="full", fp32_shards=has_shards))
        parts = memory_of_one(toy, CHECKPOINTED, batches=np.array([2.0]), width="traced").parts
        return float(parts["parameters"].mid[0] + parts["optimizer state"].mid[0])

    # 120 of parameters and 240 of state in a shard; the 280 that are gathered are as wide as before.
    assert states(has_shards=False) == 120 + 240 + 280
    assert states(has_shards=True) == 2 * (120 + 240) + 280


def test_communicators_of_several_gpus_may_hold_buffers() -> None:
    def high(plan: Plan) -> float:
        return float(memory_of_one(workload(), plan, batches=np.array([2.0]), width="full").parts["process"].high[0])

    assert high(Plan(data=2)) == high(Plan(tensor=4)) == pytest.approx(high(Plan(accumulate=2)) + 0.93e9)


def test_sharded_steps_with_checkpoints_may_lose_24_percent_of_what_is_reserved() -> None:
    def of_allocator(plan: Plan) -> float:
        memory = memory_of_one(workload(), plan, batches=np.array([2.0]), width="full")
        return float(memory.parts["allocator"].high[0] / memory.allocated[0])

    assert of_allocator(CHECKPOINTED) == pytest.approx(0.24 / 0.76)
    assert of_allocator(replace(CHECKPOINTED, sharding="zero1")) < 0.01


def test_tensor_parallelism_divides_the_blocks_and_what_they_make_inside() -> None:
    # 400 of 480 are divided by 4: 180 of parameters, 360 of state; of what blocks keep, 40 - 2 x 8 = 24 become 6.
    assert tensor_bytes(Plan(tensor=4), batch=10.0) == pytest.approx(180 + 360 + 10 * (45 - 18))


def test_data_parallel_groups_shard_what_tensor_parallelism_has_left() -> None:
    # By 2 the blocks: 280 of parameters, 560 of state. Then by 2 of FSDP: 140 and 280, beside them what is gathered,
    # 80 + 2 x 50. Of what blocks keep, 24 become 12: 2 samples x 33.
    plan = Plan(tensor=2, data=2, sharding="zero3")
    assert tensor_bytes(plan) == pytest.approx(140 + 280 + 180 + 2 * 33)
    # DDP: at the optimizer's step 280 + 280 + 560, and buckets of 280.
    assert tensor_bytes(Plan(tensor=2, data=2)) == pytest.approx(280 + 280 + 560 + 280)


def test_with_checkpoints_tensor_parallelism_divides_the_inside_of_one_block() -> None:
    # 8 of results and 10 of the block a sample, of which 10 - 2 x 2 = 6 are halved.
    plan = Plan(tensor=2, data=2, sharding="zero3", checkpoint_activations=True)
    assert tensor_bytes(plan) == pytest.approx(140 + 280 + 180 + 2 * (8 + 7))


def test_pipelines_side_by_side_shard_the_state_of_their_stages() -> None:
    # A stage: 240 of parameters and of gradients, 480 of state, of which zero1 leaves 240, and its buckets do not
    # count: 4 passes of 2 samples x 45, of which half are its own.
    plan = Plan(pipeline=2, data=2, sharding="zero1", accumulate=4)
    assert tensor_bytes(plan) == pytest.approx(240 + 240 + 240 + 180)


def test_a_stage_has_its_part_and_the_activations_of_all_passes() -> None:
    # 480 / 4, 960 / 4, gradients 480 / 4, and 8 passes of 2 samples x 45, of which a quarter are its own.
    assert tensor_bytes(Plan(pipeline=4, accumulate=8)) == 120 + 240 + 120 + 180


@given(SHARDINGS, st.integers(2, 64), st.integers(1, 512))
def test_more_gpus_never_raise_the_memory_of_one(sharding: Sharding, gpus: int, batch: int) -> None:
    def peak_bytes(count: int) -> float:
        return tensor_bytes(Plan(data=count, sharding=sharding), batch=float(-(-batch // count)))

    assert peak_bytes(2 * gpus) <= peak_bytes(gpus)


@given(SHARDINGS, st.sampled_from([1, 2, 4]), st.integers(1, 6), st.integers(1, 512), st.booleans())
def test_more_groups_or_larger_ones_never_raise_the_memory_of_one(
    sharding: Sharding, ways: int, exponent: int, batch: int, checkpoints: bool
) -> None:
    def peak_bytes(groups: int, tensor: int) -> float:
        plan = Plan(data=groups, tensor=tensor, sharding=sharding, checkpoint_activations=checkpoints)
        return tensor_bytes(plan, batch=float(-(-batch // groups)))

    groups = 1 << exponent
    assert peak_bytes(2 * groups, ways) <= peak_bytes(groups, ways)
    assert peak_bytes(groups, 2 * ways) <= peak_bytes(groups, ways)


@given(st.sampled_from(["full", "autocast", "half"]), st.integers(1, 64))
def test_every_stage_of_zero_holds_no_more_than_ddp(width: str, gpus: int) -> None:
    plans = [Plan(data=2 * gpus, sharding=sharding) for sharding in ("none", "zero1", "zero2")]  # type: ignore[arg-type]
    sizes = [tensor_bytes(plan, width=width) for plan in plans]
    assert sizes == sorted(sizes, reverse=True)


def test_an_inference_replica_is_a_whole_model() -> None:
    still = replace(workload(), mode="inference", rows=())
    parts = memory_of_one(still, Plan(data=8), batches=np.array([1.0]), width="full").parts
    assert float(parts["parameters"].mid[0]) == 480


def served(*, kv_head_count: int) -> Workload:
    """The toy as a language model in service, with 100 bytes of cache for each request."""
    generation = Generation(prompt_tokens=8, output_tokens=2, kv_head_count=kv_head_count)
    lines = tuple(
        replace(line, optimizer_state=StoredBytes(), kv_cache=StoredBytes(full=(0.0, 100.0)), phase="prefill")
        for line in workload().memory[:1]
    )
    return replace(workload(), mode="inference", rows=(), memory=lines, generation=generation)


def test_engines_divide_all_weights_and_the_heads_of_the_cache() -> None:
    parts = memory_of_one(served(kv_head_count=2), Plan(data=2, tensor=4), batches=np.array([3.0]), width="full").parts

    # 480 bytes over 4 GPUs; two heads lie on two of them, and on the others again: half of 3 requests' caches on each.
    assert parts["parameters"].mid[0] == 120.0
    assert parts["KV cache"].mid[0] == 150.0


@given(st.sampled_from([1, 2, 8]), st.integers(0, 2), st.integers(1, 2), st.integers(1, 256))
def test_more_gpus_of_an_engine_never_raise_the_memory_of_one(
    heads: int, exponent: int, copies: int, requests: int
) -> None:
    model, ways = served(kv_head_count=heads), 1 << exponent

    def peak_bytes(tensor: int, data: int) -> float:
        batches = np.array([float(-(-requests // data))])
        of_one = memory_of_one(model, Plan(tensor=tensor, data=data), batches=batches, width="half")
        return float(of_one.total.mid[0])

    assert peak_bytes(2 * ways, copies) <= peak_bytes(ways, copies)
    assert peak_bytes(ways, 2 * copies) <= peak_bytes(ways, copies)
