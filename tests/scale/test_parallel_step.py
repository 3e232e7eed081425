from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.records.prediction import PARTS
from advisor.records.scale import Plan, Sharding
from advisor.scale.collectives import all_gather_s, all_reduce_s, send_s
from advisor.scale.parallel_step import Alone, Spread, one_gpu_s, spread_step
from tests.cost.toys import predictions
from tests.predict.toys import device
from tests.scale.toys import alone, fabric, traffic

STEP = {"forward": 0.5, "block_forward": 0.5, "inner_forward": 2.0, "backward": 1.0, "block_backward": 1.0}
WHOLE = alone(**STEP, inner_backward=4.0, optimizer=1.0)
"""3 s of forward, 6 s of backward, 1 s of the optimizer; between norms and residual additions 2 s and 4 s."""
HOST = {"forward": 2.0, "inner_forward": 4.0, "backward": 3.5, "inner_backward": 10.0, "optimizer": 0.5}
HOST_BOUND = alone(**STEP, inner_backward=4.0, optimizer=1.0, dispatch_s=HOST)
"""The kernels of `WHOLE`, which wait for 20 s of dispatch: forward 6 s, backward 13.5 s and the optimizer 0.5 s."""
TIMES = st.floats(min_value=0.0, max_value=10.0)
PLANS = [
    Plan(data=4),
    Plan(data=4, sharding="zero1"),
    Plan(data=4, sharding="zero2", accumulate=2),
    Plan(data=4, sharding="zero3", checkpoint_activations=True),
    Plan(tensor=4),
    Plan(pipeline=4, accumulate=8),
    Plan(tensor=2, data=2),
    Plan(tensor=2, data=2, sharding="zero2", accumulate=2, checkpoint_activations=True),
    Plan(tensor=2, data=2, sharding="zero3"),
    Plan(pipeline=2, data=2, sharding="zero1", accumulate=8),
]
SHARDINGS: tuple[Sharding, ...] = ("none", "zero1", "zero2", "zero3")


def spread(plan: Plan, *, gb_per_s: float = 100.0, whole: Alone = WHOLE) -> Spread:
    return spread_step(whole, plan, traffic=traffic(), fabric=fabric(gpus=4, gb_per_s=gb_per_s))


def busy_s(whole: Alone, plan: Plan) -> float:
    """The time without waiting for other GPUs."""
    found = spread(plan, whole=whole)
    return second(found.step_s - found.waiting_s)


def second(array: np.ndarray) -> float:
    return float(array[0, 0])


@given(st.lists(TIMES, min_size=len(PARTS), max_size=len(PARTS)), st.floats(min_value=1e-6, max_value=10.0))
def test_one_gpu_in_one_pass_is_as_alone_to_the_last_digit(parts_s: list[float], step_s: float) -> None:
    whole = Alone(step_s=np.array([[step_s]]), work_s=np.array([parts_s])[..., np.newaxis, np.newaxis])
    found = spread_step(whole, Plan(), traffic=traffic(), fabric=fabric(gpus=1))
    assert (second(found.step_s), second(found.waiting_s)) == (step_s, 0.0)


def test_data_parallel_waits_for_its_last_bucket() -> None:
    # 10 buckets of 100 MB: 1.5 ms each, and 6 s of backward to hide them behind.
    bucket_s = float(all_reduce_s(1e8, fabric(gpus=4)))
    found = spread(Plan(data=4))
    assert second(found.waiting_s) == pytest.approx(bucket_s)
    assert second(found.step_s) == pytest.approx(10.0 + bucket_s)


def test_sparse_gradients_are_gathered_after_backward() -> None:
    # The rows of 4 GPUs, 1 MB each in two passes, in two calls for each of 2 tables.
    sent = traffic(sparse_bytes=np.array([1e6]), sparse_count=2)
    found = spread_step(WHOLE, Plan(data=4, accumulate=2), traffic=sent, fabric=fabric(gpus=4))
    dense = spread(Plan(data=4, accumulate=2))
    added_s = 4 * float(all_gather_s(2e6, fabric(gpus=4)))
    assert second(found.waiting_s) == pytest.approx(second(dense.waiting_s) + added_s)


def test_passes_repeat_all_but_the_optimizer_and_the_reduction_of_gradients() -> None:
    # 3 x 9 s and 1 s; one bucket as before.
    assert second(spread(Plan(data=4, accumulate=3)).step_s) == pytest.approx(
        28.0 + float(all_reduce_s(1e8, fabric(gpus=4)))
    )


def test_zero_1_steps_a_quarter_and_hands_it_round() -> None:
    # The optimizer takes 1/4 s; a bucket is reduced to its owner only, then 1 GB of parameters is gathered.
    expected_s = 9.25 + float(all_gather_s(1e8, fabric(gpus=4))) + float(all_gather_s(1e9, fabric(gpus=4)))
    assert second(spread(Plan(data=4, sharding="zero1")).step_s) == pytest.approx(expected_s)


def test_fsdp_waits_for_the_first_unit_of_forward_and_the_last_of_backward() -> None:
    # 9 blocks and the rest: units of 100 MB; backward gathers each again and reduces it.
    unit_s = float(all_gather_s(1e8, fabric(gpus=4)))
    assert second(spread(Plan(data=4, sharding="zero3")).step_s) == pytest.approx(9.25 + 3 * unit_s)


def test_fsdp_over_a_slow_link_takes_as_long_as_its_traffic() -> None:
    # 0.1 GB/s: gathering 1 GB takes 7.5 s > 3 s of forward, gathering and reducing 15 s > 6 s of backward.
    found = spread(Plan(data=4, sharding="zero3"), gb_per_s=0.1)
    assert second(found.step_s) == pytest.approx(0.25 + 7.5 + 15.0, rel=1e-3)


def test_checkpoints_run_the_blocks_forward_again() -> None:
    # 0.5 + 2 s of the 3 s of forward are in blocks.
    more_s = second(spread(Plan(data=4, checkpoint_activations=True)).step_s) - second(spread(Plan(data=4)).step_s)
    assert more_s == pytest.approx(2.5)


def test_tensor_parallelism_divides_what_lies_between_norms_and_additions() -> None:
    # 10 s - 3/4 x (2 + 4 s, and half of the optimizer's 1 s, since blocks have half of the parameters);
    # 9 blocks x 2 all-reduces x 2 directions of 100 MB.
    expected_s = 10.0 - 0.75 * 6.5 + 36 * float(all_reduce_s(1e8, fabric(gpus=4)))
    assert second(spread(Plan(tensor=4)).step_s) == pytest.approx(expected_s)


def test_groups_that_divide_the_blocks_are_data_parallel_with_each_other() -> None:
    # Half of 2 + 4 s and of the optimizer's half: 10 - 3 - 0.25 s; 36 all-reduces of 100 MB between 2 GPUs. Of the
    # gradients, half are of blocks: 3/4 in 8 buckets, of which the last, 100 MB, is left over after backward.
    pair = fabric(gpus=2)
    expected_s = 6.75 + 36 * float(all_reduce_s(1e8, pair)) + float(all_reduce_s(1e8, pair))
    assert second(spread(Plan(tensor=2, data=2)).step_s) == pytest.approx(expected_s)


def test_pairs_of_groups_share_the_network_of_their_machines() -> None:
    # Two machines of 2 GPUs that divide the model: each GPU reduces with its like at half of 0.1 GB/s. Of 750 MB in 8
    # buckets the first is ready at 1/8 of backward, 4 s and its all-reduces; from then on the link is never idle.
    links = fabric(gpus=2, machines=2, network_gb_per_s=0.1)
    found = spread_step(WHOLE, Plan(machines=2, tensor=2, data=2), traffic=traffic(), fabric=links)
    tensor_all_reduce_s = 18 * float(all_reduce_s(1e8, fabric(gpus=2)))
    half = fabric(gpus=1, machines=2, network_gb_per_s=0.05)
    all_s = 7 * float(all_reduce_s(6.5e8 / 7, half)) + float(all_reduce_s(1e8, half))
    expected_s = (6.75 + 2 * tensor_all_reduce_s) - (4 + tensor_all_reduce_s) * 7 / 8 + all_s
    assert second(found.step_s) == pytest.approx(expected_s)


def test_pipelines_side_by_side_add_their_stages_gradients_up_in_the_end() -> None:
    # 8 passes of 9 s through 2 stages: (8 + 2 - 1) / 2 x 9 s = 40.5 s, half the optimizer's, 2 sends, and half of the
    # gradients.
    pair = fabric(gpus=2)
    expected_s = 40.5 + 0.5 + 2 * float(send_s(1e8, pair.inside)) + float(all_reduce_s(5e8, pair))
    assert second(spread(Plan(pipeline=2, data=2, accumulate=8)).step_s) == pytest.approx(expected_s)


@given(st.lists(TIMES, min_size=len(PARTS), max_size=len(PARTS)), st.sampled_from(SHARDINGS), st.booleans())
def test_one_group_has_nobody_to_share_with_to_the_last_digit(
    parts_s: list[float], sharding: Sharding, checkpoints: bool
) -> None:
    work_s = np.array([parts_s])[..., np.newaxis, np.newaxis] + 1e-6
    whole = Alone(step_s=work_s[0].sum(axis=0), work_s=work_s)

    def found(plan: Plan) -> Spread:
        return spread_step(whole, plan, traffic=traffic(), fabric=fabric(gpus=4))

    for plain in (Plan(tensor=4), Plan(pipeline=4, accumulate=8)):
        alone_in_it = replace(plain, checkpoint_activations=checkpoints)
        shared = replace(alone_in_it, sharding=sharding)
        assert second(found(shared).step_s) == second(found(alone_in_it).step_s)
        assert second(found(shared).waiting_s) == second(found(alone_in_it).waiting_s)


def test_a_pipeline_of_four_stages_and_one_pass_is_as_slow_as_one_gpu() -> None:
    # 9 s, a quarter of the optimizer's, and 3 sends there and 3 back.
    expected_s = 9.25 + 6 * float(send_s(1e8, fabric(gpus=4).inside))
    assert second(spread(Plan(pipeline=4)).step_s) == pytest.approx(expected_s)


def test_more_passes_fill_the_pipeline() -> None:
    # 12 passes of 9 s: (12 + 4 - 1) / 4 x 9 s = 33.75 s, and the optimizer and the sends.
    expected_s = 33.75 + 0.25 + 6 * float(send_s(1e8, fabric(gpus=4).inside))
    assert second(spread(Plan(pipeline=4, accumulate=12)).step_s) == pytest.approx(expected_s)


def test_replicas_for_inference_do_not_wait() -> None:
    found = spread_step(
        alone(inner_forward=2.0), Plan(data=4), traffic=traffic(gradient_bytes=0.0), fabric=fabric(gpus=4)
    )
    assert (second(found.step_s), second(found.waiting_s)) == (2.0, 0.0)


@pytest.mark.parametrize("plan", PLANS, ids=str)
@given(gb_per_s=st.floats(min_value=0.01, max_value=1e4))
def test_doubling_the_link_never_slows_a_step(plan: Plan, gb_per_s: float) -> None:
    assert second(spread(plan, gb_per_s=2 * gb_per_s).step_s) <= second(spread(plan, gb_per_s=gb_per_s).step_s)


@pytest.mark.parametrize("sharding", SHARDINGS)
@given(gb_per_s=st.floats(min_value=0.01, max_value=1e4), ways=st.sampled_from([1, 2, 4]))
def test_doubling_the_network_never_slows_groups_over_machines(sharding: Sharding, gb_per_s: float, ways: int) -> None:
    def step_s(ratio: float) -> float:
        links = fabric(gpus=4, machines=4, network_gb_per_s=ratio * gb_per_s)
        plan = Plan(machines=4, tensor=ways, data=16 // ways, sharding=sharding)
        return second(spread_step(WHOLE, plan, traffic=traffic(), fabric=links).step_s)

    assert step_s(2.0) <= step_s(1.0)


@pytest.mark.parametrize("plan", PLANS, ids=str)
@given(gb_per_s=st.floats(min_value=0.01, max_value=1e4))
def test_no_step_is_faster_than_its_work_divided_among_a_group(plan: Plan, gb_per_s: float) -> None:
    # 9 s a pass, 2.5 s more with checkpoints, and 1 s of the optimizer, of which a shard is done.
    optimizer_s = 1.0 if plan.sharding == "none" else 1 / plan.data
    work_s = plan.accumulate * (9.0 + 2.5 * plan.checkpoint_activations) + optimizer_s
    least_s = work_s / (plan.tensor * plan.pipeline)
    assert second(spread(plan, gb_per_s=gb_per_s).step_s) >= least_s * (1 - 1e-12)


@pytest.mark.parametrize("plan", [Plan(), Plan(accumulate=3), Plan(accumulate=3, checkpoint_activations=True)], ids=str)
def test_one_gpu_computes_all_passes_of_a_step_one_after_the_other(plan: Plan) -> None:
    # Of 10 s a pass, 6 s are forward in blocks; the optimizer, 1 s, runs once.
    part_s = [
        {"forward": 1.0, "inner_forward": 6.0, "backward": 2.0, "optimizer": 1.0}.get(name, 0.0) for name in PARTS
    ]
    single = predictions(device(), step_s=[[10.0]], part_ratio=np.array([part_s])[..., np.newaxis, np.newaxis] / 10)
    found_s = second(one_gpu_s(plan, alone=single, rows=[0], at=np.array([0])))
    assert found_s == pytest.approx(plan.accumulate * (9.0 + 6.0 * plan.checkpoint_activations) + 1.0)


@pytest.mark.parametrize(
    "plan", [Plan(data=4), *(Plan(data=4, sharding=one) for one in SHARDINGS), Plan(tensor=4)], ids=str
)
def test_a_host_dispatches_as_many_kernels_whatever_share_of_the_work_they_do(plan: Plan) -> None:
    assert busy_s(HOST_BOUND, plan) == pytest.approx(20.0)


@pytest.mark.parametrize(
    ("plan", "expected_s"), [(Plan(accumulate=4), 78.5), (Plan(checkpoint_activations=True), 24.0)]
)
def test_a_host_dispatches_every_pass_and_the_optimizer_once(plan: Plan, expected_s: float) -> None:
    # 4 x 19.5 s and 0.5 s; or 20 s and once more the 4 s of forward in blocks.
    assert busy_s(HOST_BOUND, plan) == pytest.approx(expected_s)


def test_sharding_saves_kernels_until_the_host_takes_longer() -> None:
    # 9 s of kernels in the optimizer and 2 s besides, 8 s of dispatch: 2 + 9 / 2 < 8 s < 11 s.
    whole = alone(inner_forward=2.0, optimizer=9.0, dispatch_s={"inner_forward": 7.0, "optimizer": 1.0})
    assert busy_s(whole, Plan(data=4)) == pytest.approx(11.0)
    assert busy_s(whole, Plan(data=2, sharding="zero1")) == pytest.approx(8.0)


def test_passes_wait_for_the_host_though_one_with_the_optimizer_does_not() -> None:
    # As before: 4 passes take 4 x 2 + 9 = 17 s of kernels and 4 x 7 + 1 = 29 s of dispatch.
    whole = alone(inner_forward=2.0, optimizer=9.0, dispatch_s={"inner_forward": 7.0, "optimizer": 1.0})
    assert busy_s(whole, Plan(accumulate=4)) == pytest.approx(29.0)


def test_every_pass_copies_its_inputs() -> None:
    whole = alone(inner_forward=2.0, optimizer=1.0, copies_s=5.0)
    assert busy_s(whole, Plan(accumulate=4, checkpoint_activations=True)) == pytest.approx(20.0)


def test_stages_of_a_pipeline_share_the_dispatch() -> None:
    # 12 passes of 19.5 s: (12 + 4 - 1) / 4 x 19.5 s, a quarter of the optimizer's 0.5 s, and 6 sends.
    expected_s = 73.125 + 0.125 + 6 * float(send_s(1e8, fabric(gpus=4).inside))
    assert second(spread(Plan(pipeline=4, accumulate=12), whole=HOST_BOUND).step_s) == pytest.approx(expected_s)


def test_gradients_travel_while_the_host_dispatches_backward() -> None:
    # 1 GB/s: a bucket of 100 MB takes 0.15 s, and 10 of them 1.5 s. Backward's kernels take 1 s, but its dispatch takes
    # 13.5 s, so only the last bucket is left over.
    whole = alone(inner_forward=0.5, inner_backward=1.0, dispatch_s=HOST)
    bucket_s = float(all_reduce_s(1e8, fabric(gpus=4, gb_per_s=1.0)))
    assert second(spread(Plan(data=4), gb_per_s=1.0, whole=whole).waiting_s) == pytest.approx(bucket_s)


@given(
    st.lists(TIMES, min_size=len(PARTS), max_size=len(PARTS)),
    st.lists(TIMES, min_size=len(PARTS), max_size=len(PARTS)),
    st.sampled_from(SHARDINGS),
    st.sampled_from([2, 4, 8]),
    st.integers(min_value=1, max_value=4),
)
def test_sharding_saves_at_most_the_optimizers_kernels_and_no_dispatch(
    kernels_s: list[float], dispatch_s: list[float], sharding: Sharding, data: int, passes: int
) -> None:
    by_part = [dict(zip(PARTS, one, strict=True)) for one in (kernels_s, dispatch_s)]
    whole = alone(**by_part[0], dispatch_s=by_part[1])

    def step_s(plan: Plan) -> float:
        return second(spread_step(whole, plan, traffic=traffic(), fabric=fabric(gpus=plan.data)).step_s)

    one_s, sharded_s = step_s(Plan(accumulate=passes)), step_s(Plan(data=data, accumulate=passes, sharding=sharding))
    of_optimizer_s = [one["optimizer"] for one in by_part]
    saved_s = 0.0 if sharding == "none" else (1 - 1 / data) * of_optimizer_s[0]
    assert sharded_s >= (one_s - saved_s) * (1 - 1e-9)
    assert sharded_s >= (passes * (sum(dispatch_s) - of_optimizer_s[1]) + of_optimizer_s[1]) * (1 - 1e-9)
