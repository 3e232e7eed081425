from dataclasses import replace

import pytest

from advisor.errors import UsageError
from advisor.records.generation import Generation
from advisor.records.scale import Plan, Sharding, Spreading
from advisor.records.workload import Operand, Workload
from advisor.scale.plans import gpu_counts, machine_counts, plans_of, served_plans
from tests.scale.toys import workload

SHARDINGS: tuple[Sharding, ...] = ("none", "zero1", "zero2", "zero3")


def test_the_powers_of_two_and_all_gpus_are_tried() -> None:
    assert gpu_counts(8, asked=Spreading()) == [1, 2, 4, 8]
    assert gpu_counts(6, asked=Spreading()) == [1, 2, 4, 6]
    assert gpu_counts(8, asked=Spreading(max_gpus=3)) == [1, 2, 3]
    assert gpu_counts(8, asked=Spreading(gpus=4)) == [4]
    assert gpu_counts(2, asked=Spreading(gpus=4)) == []


def test_machines_are_tried_where_their_network_is_known() -> None:
    assert machine_counts(has_network=True, asked=Spreading(max_machines=64)) == [1, 2, 4, 8, 16, 32, 64]
    assert machine_counts(has_network=False, asked=Spreading(max_machines=64)) == [1]


def test_training_may_be_sharded_and_a_model_with_blocks_divided() -> None:
    found = list(plans_of(workload(), gpu_count=4, machines=1, asked=Spreading()))
    assert [plan.sharding for plan in found[:4]] == ["none", "zero1", "zero2", "zero3"]
    by_two = [plan for plan in found if 2 in (plan.tensor, plan.pipeline)]
    assert by_two == [
        *(Plan(tensor=2, data=2, sharding=sharding) for sharding in SHARDINGS),
        *(Plan(pipeline=2, data=2, sharding=sharding, accumulate=8) for sharding in SHARDINGS[:2]),
    ]
    assert found[-2:] == [Plan(tensor=4), Plan(pipeline=4, accumulate=16)]
    assert len(found) == 4 + 6 + 2


def test_a_model_without_blocks_is_not_divided() -> None:
    found = list(plans_of(replace(workload(), blocks=()), gpu_count=4, machines=1, asked=Spreading()))
    assert {(plan.tensor, plan.pipeline) for plan in found} == {(1, 1)}


def test_a_model_is_divided_inside_machines_and_its_groups_are_spread_over_all() -> None:
    found = list(plans_of(workload(), gpu_count=4, machines=2, asked=Spreading()))
    assert {(plan.data, plan.tensor, plan.pipeline) for plan in found} == {
        (8, 1, 1), (4, 2, 1), (2, 4, 1), (4, 1, 2), (2, 1, 4),
    }  # fmt: skip


def test_powers_of_two_that_go_into_the_gpus_of_a_machine_divide_a_model() -> None:
    found = list(plans_of(workload(), gpu_count=6, machines=1, asked=Spreading()))
    assert {plan.tensor for plan in found} == {1, 2, 6}


def test_a_pipeline_has_a_block_for_each_stage() -> None:
    # 4 blocks do not divide into 8 stages.
    found = list(plans_of(workload(), gpu_count=8, machines=1, asked=Spreading()))
    assert {plan.pipeline for plan in found} == {1, 2, 4}


def test_exactly_so_many_machines_may_be_asked_for() -> None:
    assert machine_counts(has_network=True, asked=Spreading(max_machines=64, machines=16)) == [16]
    assert machine_counts(has_network=False, asked=Spreading(max_machines=64, machines=16)) == []


def test_sparse_gradients_leave_copies_with_all_tables() -> None:
    large = workload()
    (optimizer,) = large.rows
    parts = (Operand(shape=(1, (0.0, 2.0)), dtype="int64"), Operand(shape=((0.0, 2.0), 8), dtype="float32"))
    sparse = replace(large, rows=(replace(optimizer, inputs=parts),))
    assert list(plans_of(sparse, gpu_count=4, machines=1, asked=Spreading())) == [Plan(data=4)]
    with pytest.raises(UsageError, match="sparse gradients"):
        list(plans_of(sparse, gpu_count=4, machines=1, asked=Spreading(sharding="zero3")))


def test_inference_accumulates_nothing() -> None:
    still = replace(workload(), mode="inference", blocks=())
    assert list(plans_of(still, gpu_count=4, machines=1, asked=Spreading(accumulate=8))) == [Plan(data=4)]


def copied(served: Workload, *, gpu_count: int) -> list[Plan]:
    """The plans without a pipeline."""
    return [plan for plan in served_plans(served, gpu_count=gpu_count, asked=Spreading()) if plan.pipeline == 1]


def test_a_model_in_service_is_copied_tensor_parallel_or_both() -> None:
    served = replace(workload(), mode="inference", generation=Generation(prompt_tokens=8, output_tokens=2))
    assert list(served_plans(served, gpu_count=4, asked=Spreading())) == [
        Plan(data=4),
        Plan(data=2, tensor=2),
        Plan(tensor=4),
    ]
    # 14 heads are not divided by 4, nor by 6.
    odd = replace(served, generation=Generation(prompt_tokens=8, output_tokens=2, head_count=14))
    assert [plan.tensor for plan in copied(odd, gpu_count=4)] == [1, 2]
    assert copied(odd, gpu_count=6) == [Plan(data=6), Plan(data=3, tensor=2)]


def test_gpus_have_whole_heads_of_keys_and_values_or_share_one() -> None:
    # 40 heads go into 2, 4 and 8; 10 of keys and values neither into 4 nor 4 into them.
    phi = Generation(prompt_tokens=8, output_tokens=2, head_count=40, kv_head_count=10)
    served = replace(workload(), mode="inference", generation=phi)
    assert {plan.tensor for plan in served_plans(served, gpu_count=8, asked=Spreading())} == {1, 2}
    shared = replace(served, generation=replace(phi, kv_head_count=2))
    assert {plan.tensor for plan in served_plans(shared, gpu_count=8, asked=Spreading())} == {1, 2, 4, 8}
