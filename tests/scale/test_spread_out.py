import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.errors import UsageError
from advisor.records.answer import Z_90
from advisor.records.device import Device
from advisor.records.prediction import PARTS, FloatArray, IndexArray, Predictions, TokenTimes
from advisor.records.scale import Plan, Spreading
from advisor.records.workload import Workload
from advisor.scale.best_plans import Lateness, never_late
from advisor.scale.spread_out import IndivisibleBatchError, PredictAt, planned_steps, under_best_plans
from tests.predict.toys import device
from tests.scale.toys import workload

BATCHES = np.array([8, 64], dtype=np.intp)
ALONE = device()
FOUR = device(gpu_count=4, nvlink_bytes_per_s=1e11)
CONTEXT_BYTES = 0.6e9
SMALL_BYTES = CONTEXT_BYTES


def predictor(devices: Sequence[Device], *, optimizer_ratio: float = 0.0) -> PredictAt:
    """0.1 s a sample, of which a fifth is forward, four fifths backward; any memory is that of the process."""

    def predict_at(sizes: IndexArray) -> Predictions:
        step_s = np.tile(0.1 * sizes, (len(devices), 1))
        ratios = {"inner_forward": 0.2, "inner_backward": 0.8 - optimizer_ratio, "optimizer": optimizer_ratio}
        part_ratio = np.array([[np.full_like(step_s, ratios.get(name, 0.0)) for name in PARTS]])
        return Predictions(
            devices=tuple(devices),
            precisions=np.full(step_s.shape, "fp32", dtype=np.object_),
            time_sources=np.full(step_s.shape, "datasheet", dtype=np.object_),
            compile="eager",
            batches=sizes,
            step_s=step_s,
            step_low_s=0.5 * step_s,
            step_high_s=2.0 * step_s,
            log_spread=np.full_like(step_s, 0.4),
            own_log_spread=np.full_like(step_s, 0.1),
            bound=np.zeros(step_s.shape, dtype=np.intp),
            peak_memory_bytes=np.full_like(step_s, 1e9),
            fits=np.ones(step_s.shape, dtype=np.bool_),
            part_ratio=part_ratio,
        )

    return predict_at


def spread(
    *devices: Device,
    of: Workload | None = None,
    batches: IndexArray = BATCHES,
    lateness: Lateness = never_late,
    start_up_s: float = 0.0,
    **asked: Any,
) -> Predictions:
    steps = planned_steps(
        of or workload(), devices=devices, batches=batches, predict_at=predictor(devices), asked=Spreading(**asked)
    )
    return under_best_plans(steps, lateness=lateness, start_up_s=start_up_s)


def within(limit_s: float) -> Lateness:
    """Steps may take so long."""
    return lambda step_s, members, servers, machines, tokens: step_s / limit_s


def plans(predictions: Predictions, device: int) -> list[Plan]:
    scaling = predictions.scaling
    assert scaling is not None
    return [scaling.plans[index] for index in scaling.plan[device]]


def test_devices_alone_in_their_machines_are_as_predicted() -> None:
    found, alone = spread(ALONE), predictor([ALONE])(BATCHES)
    assert found.scaling is None
    assert found.step_s.tolist() == alone.step_s.tolist()
    assert found.peak_memory_bytes.tolist() == alone.peak_memory_bytes.tolist()


def test_one_gpu_beside_machines_with_more_is_the_single_device_to_the_digit() -> None:
    found, alone = spread(ALONE, FOUR), predictor([ALONE, FOUR])(BATCHES)
    assert found.step_s[0].tolist() == alone.step_s[0].tolist()
    assert plans(found, 0) == [Plan(), Plan()]


def test_four_gpus_take_a_quarter_of_the_global_batch_each() -> None:
    # 2 and 16 samples on each: 0.2 s and 1.6 s, and some microseconds for a bucket of 480 bytes.
    found = spread(FOUR)
    assert plans(found, 0) == [Plan(data=4), Plan(data=4)]
    assert found.step_s[0] == pytest.approx([0.2, 1.6], abs=1e-4)
    assert (found.step_s[0] > [0.2, 1.6]).all()
    assert found.batches.tolist() == [8, 64]


def test_of_equal_steps_a_service_by_time_has_the_most_copies_of_the_model() -> None:
    def dispatched(sizes: IndexArray) -> Predictions:
        single = predictor([FOUR])(sizes)
        assert single.part_ratio is not None
        forward = np.zeros_like(single.part_ratio)
        forward[:, PARTS.index("inner_forward")] = 1.0
        return replace(single, step_s=np.full((1, len(sizes)), 0.5), part_ratio=forward)

    steps = planned_steps(
        workload(mode="inference"), devices=[FOUR], batches=BATCHES, predict_at=dispatched, asked=Spreading()
    )
    assert plans(under_best_plans(steps, by_cost=False, is_service=True), 0) == [Plan(data=4)] * 2
    assert plans(under_best_plans(steps, by_cost=False), 0) == [Plan()] * 2
    assert plans(under_best_plans(steps, is_service=True), 0) == [Plan()] * 2


def test_efficiency_is_the_speed_up_over_one_gpu_with_the_whole_batch() -> None:
    # 1.6 s of dispatch in every pass: 64 samples take 8 s on one GPU, and 16 on each of four 3.2 s: 2.5 times as fast.
    def dispatched(sizes: IndexArray) -> Predictions:
        single = predictor([ALONE, FOUR])(sizes)
        return replace(single, step_s=single.step_s + 1.6)

    found = under_best_plans(
        planned_steps(workload(), devices=[ALONE, FOUR], batches=BATCHES, predict_at=dispatched, asked=Spreading())
    )
    assert found.scaling is not None
    assert plans(found, 1)[1] == Plan(data=4)
    assert found.scaling.efficiency_ratio[:, 1] == pytest.approx([1.0, 2.5 / 4], rel=1e-4)


def test_one_gpu_in_several_passes_has_the_efficiency_of_one_gpu() -> None:
    found = spread(ALONE, accumulate=2)
    assert found.scaling is not None
    assert found.scaling.efficiency_ratio.tolist() == [[1.0, 1.0]]


def test_the_interval_grows_with_the_step_and_has_the_errors_of_scaling_and_of_links() -> None:
    found = spread(FOUR)
    assert found.log_spread == pytest.approx(np.full((1, 2), np.hypot(0.4, 0.05)), rel=1e-3)  # nobody waits
    assert found.own_log_spread == pytest.approx(np.full((1, 2), np.hypot(0.1, 0.05)), rel=1e-3)
    wider = np.exp(Z_90 * (found.log_spread - 0.4))
    assert found.step_low_s / found.step_s == pytest.approx(0.5 / wider)
    assert found.step_high_s / found.step_s == pytest.approx(2.0 * wider)
    waiting = spread(replace(FOUR, nvlink_bytes_per_s=100.0), batches=np.array([8]), gpus=4)
    assert waiting.log_spread.item() > math.hypot(0.4, 0.05, 0.2 / 2)  # for more than half of the step
    alone = spread(ALONE, FOUR, gpus=1)
    assert alone.log_spread == pytest.approx(np.full((2, 2), 0.4))


def test_where_the_link_is_slow_one_gpu_does_the_step() -> None:
    # 480 bytes of gradients at 100 bytes/s: seconds, for a step of 0.8 s.
    found = spread(replace(FOUR, nvlink_bytes_per_s=100.0), batches=np.array([8]))
    assert plans(found, 0) == [Plan()]


def test_a_step_that_waits_more_than_it_works_is_bound_by_communication() -> None:
    found = spread(replace(FOUR, nvlink_bytes_per_s=100.0), batches=np.array([8]), gpus=4)
    assert found.bound.tolist() == [[6]]


@pytest.mark.parametrize(("asked", "data"), [({"gpus": 2}, 2), ({"max_gpus": 2}, 2), ({"max_gpus": 3}, 3)])
def test_no_more_gpus_are_used_than_asked_for(asked: dict[str, int], data: int) -> None:
    assert {plan.data for plan in plans(spread(FOUR, **asked), 0)} == {data}


def test_a_machine_with_fewer_gpus_than_asked_for_does_nothing() -> None:
    found = spread(ALONE, FOUR, gpus=4)
    assert not found.fits[0].any()
    assert found.fits[1].all()


def test_more_gpus_than_any_machine_has_are_refused() -> None:
    with pytest.raises(UsageError, match="--gpus 8: no device that was asked for has more than 4 "):
        spread(ALONE, FOUR, gpus=8)


def test_sharding_is_chosen_where_it_alone_fits() -> None:
    # 1 GB of parameters, 2 of state and 1 of gradients, beside some 0.5 GB of the process: 5 GB with DDP's buckets.
    large = _times(workload(), 1e9 / 480)
    found = spread(replace(FOUR, memory_bytes=2.5e9), of=large, batches=np.array([8]))
    assert {plan.sharding for plan in plans(found, 0)} == {"zero3"}
    assert found.fits.all()


def test_sharding_is_chosen_unasked_where_it_is_faster_so_that_no_limit_makes_the_step_cheaper() -> None:
    def found(lateness: Lateness = never_late, **asked: Any) -> Predictions:
        predict_at = predictor([FOUR], optimizer_ratio=0.4)
        asking, batches = Spreading(gpus=4, **asked), np.array([64])
        steps = planned_steps(workload(), devices=[FOUR], batches=batches, predict_at=predict_at, asked=asking)
        return under_best_plans(steps, lateness=lateness)

    # The optimizer is 40 % of the step, and four GPUs that shard its state each do a quarter of it.
    asked_s = {
        sharding: float(found(sharding=sharding).step_s[0, 0]) for sharding in ("none", "zero1", "zero2", "zero3")
    }
    assert asked_s["zero1"] < asked_s["none"]
    assert found().step_s[0, 0] == min(asked_s.values())
    assert found(within((asked_s["none"] + asked_s["zero1"]) / 2)).step_s[0, 0] == found().step_s[0, 0]


def test_a_step_that_differs_under_fsdp_is_the_same_unasked_as_asked_for() -> None:
    def twice_as_fast(sizes: IndexArray) -> Predictions:
        alone = predictor([FOUR])(sizes)
        return replace(alone, **{name: getattr(alone, name) / 2 for name in ("step_s", "step_low_s", "step_high_s")})

    slow, fast, batches = workload(), _times(workload(), 0.5), np.array([16, 64])
    both = planned_steps(
        replace(slow, under_fsdp=fast),
        devices=[FOUR],
        batches=batches,
        predict_at=predictor([FOUR]),
        predict_under_fsdp=twice_as_fast,
        asked=Spreading(gpus=4),
    )
    asked = Spreading(gpus=4, sharding="zero3")
    alone = planned_steps(fast, devices=[FOUR], batches=batches, predict_at=twice_as_fast, asked=asked)
    unasked, expected = under_best_plans(both), under_best_plans(alone)
    assert plans(unasked, 0) == plans(expected, 0) == [Plan(data=4, sharding="zero3")] * 2
    assert unasked.scaling is not None
    assert expected.scaling is not None
    assert unasked.scaling.efficiency_ratio.tolist() == expected.scaling.efficiency_ratio.tolist()
    for name in ("batches", "step_s", "step_low_s", "step_high_s", "peak_memory_bytes"):
        assert getattr(unasked, name).tolist() == getattr(expected, name).tolist()


def test_nothing_is_sharded_where_that_saves_no_time() -> None:
    assert {plan.sharding for plan in plans(spread(FOUR, gpus=4), 0)} == {"none"}


def test_one_machine_that_shards_wins_over_two_that_need_not_and_must_both_start() -> None:
    # Every byte 1e8 times. DDP when backward begins: 480 + 960 + 480 of buckets, and 45 for each of 16 samples on one
    # machine: 264 GB. On two, the optimizer's step decides: 480 + 480 + 960 + 480, 240 GB.
    large = _times(workload(), 1e8)
    networked = replace(FOUR, memory_bytes=255e9, nvlink_bytes_per_s=1e15, network_bytes_per_s=1e13)
    found = spread(networked, of=large, batches=np.array([64]), max_machines=2, start_up_s=0.5)
    assert plans(found, 0)[0].machines == 1
    assert plans(found, 0)[0].sharding != "none"


def test_the_sharding_asked_for_is_taken() -> None:
    assert {plan.sharding for plan in plans(spread(FOUR, sharding="zero2", gpus=4), 0)} == {"zero2"}


def test_a_model_is_divided_only_where_no_data_parallel_plan_fits() -> None:
    # 16 samples of 45 x 2e6 bytes on each GPU are too much; with all 64 on each of 4 a stage keeps a quarter.
    wide = _times(workload(), 2e6)
    roomy, small = replace(FOUR, memory_bytes=100e9), replace(FOUR, memory_bytes=2.5e9)
    found = spread(roomy, small, of=wide, batches=np.array([64]))
    assert plans(found, 0)[0].data == 4
    assert plans(found, 1)[0].tensor * plans(found, 1)[0].pipeline == 4


def test_replicas_serve_inference() -> None:
    still = replace(workload(), mode="inference")
    assert plans(spread(FOUR, of=still), 0) == [Plan(data=4), Plan(data=4)]


def test_passes_are_those_asked_for_on_one_gpu_too() -> None:
    # 2 passes of 4 samples: as long as one of 8, since nothing but samples takes time here.
    found = spread(ALONE, accumulate=2)
    assert plans(found, 0) == [Plan(accumulate=2), Plan(accumulate=2)]
    assert found.step_s[0] == pytest.approx([0.8, 6.4])


def test_groups_of_a_machine_divide_a_model_where_no_one_way_fits() -> None:
    # 4 samples, every byte 1e7 times. FSDP: 120 + 240 of shards, 280 gathered, 45 of activations: 6.85 GB. Tensor 4:
    # at the optimizer's step 180 + 180 + 360: 7.2 GB. Tensor 2 and FSDP by 2: 140 + 280, 80 + 100 gathered, 2 samples
    # of 33: 6.66 GB. The process has 0.5 GB beside.
    large = _times(workload(), 1e7)
    found = spread(replace(FOUR, memory_bytes=7.27e9), of=large, batches=np.array([4]))
    assert found.fits.all()
    assert plans(found, 0) == [Plan(tensor=2, data=2, sharding="zero3")]


def test_a_plan_that_is_no_division_wins_wherever_it_fits() -> None:
    large = _times(workload(), 1e7)
    found = spread(replace(FOUR, memory_bytes=7.6e9), of=large, batches=np.array([4]))
    assert plans(found, 0) == [Plan(data=4, sharding="zero3")]


def test_more_passes_than_samples_are_refused() -> None:
    with pytest.raises(UsageError, match="--accumulate 100: "):
        spread(ALONE, accumulate=100)


def test_a_step_known_at_its_own_batch_alone_runs_on_one_gpu() -> None:
    stiff = replace(workload(), batch_is_affine=False)
    assert plans(spread(FOUR, of=stiff, batches=np.array([8])), 0) == [Plan()]
    with pytest.raises(UsageError, match="its batch of 8 cannot be divided"):
        spread(FOUR, of=stiff, batches=np.array([8]), gpus=4)
    # States of 19.2 GB, of which 80 / 480 is on every GPU, leave 7.2 GB on each of four; 8 samples add 3.6 GB at most.
    large = _times(stiff, 1e7)
    found = spread(replace(FOUR, memory_bytes=12e9), of=large, batches=np.array([8]), gpus=4)
    assert found.fits.all()
    assert {plan.tensor for plan in plans(found, 0)} == {4}


def test_a_model_that_some_gpu_holds_is_not_split_because_its_batch_cannot_be_divided() -> None:
    stiff = _times(replace(workload(), batch_is_affine=False), 1e7)
    roomy, small, tiny = (replace(FOUR, memory_bytes=memory_bytes) for memory_bytes in (100e9, 7.6e9, 1e9))
    for devices in ([roomy, small], [tiny]):  # too large even for four
        with pytest.raises(IndivisibleBatchError, match="its batch of 8 cannot be divided"):
            spread(*devices, of=stiff, batches=np.array([8]), gpus=4)


def test_each_gpu_may_take_the_only_batch_known() -> None:
    assert workload().batch == 8
    stiff = replace(workload(), batch_is_affine=False)
    found = spread(FOUR, of=stiff, batches=np.array([32]), gpus=4)
    usual = spread(FOUR, batches=np.array([32]), gpus=4)
    assert plans(found, 0) == [Plan(data=4)]
    assert found.batches.tolist() == [32]
    assert found.step_s.tolist() == usual.step_s.tolist()
    assert found.scaling is not None
    assert usual.scaling is not None
    # Four steps of 8 samples take 4 x 0.8 s one after the other, as one of 32 does here.
    assert found.scaling.efficiency_ratio == pytest.approx(usual.scaling.efficiency_ratio)


def test_machines_are_added_until_the_deadline_is_kept() -> None:
    # 64 samples: 1.6 s on 4 GPUs, 0.8 s on 8, 0.4 s on 16. One machine costs least.
    networked = replace(FOUR, network_bytes_per_s=1e10)
    at_ease, in_haste, too_late = (
        spread(networked, batches=np.array([64]), max_machines=8, lateness=within(limit_s))
        for limit_s in (math.inf, 0.5, 1e-9)
    )
    assert [found.machines for found in (plans(one, 0)[0] for one in (at_ease, in_haste, too_late))] == [1, 4, 8]


def test_a_plan_in_time_wins_over_one_that_is_sooner() -> None:
    # What is held against the limit need not be the step: of a language model in service, it is the first token.
    def copies_are_late(
        step_s: FloatArray, members: Sequence[int], servers: FloatArray, machines: FloatArray, tokens: TokenTimes | None
    ) -> FloatArray:
        return np.full_like(step_s, 0.5 * servers)

    still = replace(workload(), mode="inference")
    assert {plan.data for plan in plans(spread(FOUR, of=still), 0)} == {4}
    assert {plan.data for plan in plans(spread(FOUR, of=still, lateness=copies_are_late), 0)} == {2}


def test_where_no_plan_is_in_time_the_one_that_is_least_late_tells_how_much_is_missing() -> None:
    def all_are_late(
        step_s: FloatArray, members: Sequence[int], servers: FloatArray, machines: FloatArray, tokens: TokenTimes | None
    ) -> FloatArray:
        return np.full_like(step_s, 1.0 + servers)

    still = replace(workload(), mode="inference")
    assert plans(spread(FOUR, of=still, lateness=all_are_late), 0) == [Plan(), Plan()]


def test_machines_without_a_known_network_stay_single() -> None:
    assert {plan.machines for plan in plans(spread(FOUR, max_machines=8), 0)} == {1}


def _times(small: Workload, ratio: float) -> Workload:
    """The same model, every byte of it `ratio` times."""

    def stored(part: Any) -> Any:
        return replace(part, full=(part.full[0] * ratio, part.full[1] * ratio))

    lines = tuple(
        replace(
            line,
            parameters=stored(line.parameters),
            gradients=stored(line.gradients),
            optimizer_state=stored(line.optimizer_state),
            activations=stored(line.activations),
        )
        for line in small.memory
    )
    blocks = tuple(
        replace(
            one,
            parameter_bytes=int(one.parameter_bytes * ratio),
            largest_parameter_bytes=int(one.largest_parameter_bytes * ratio),
            kept=stored(one.kept),
            largest_kept=stored(one.largest_kept),
            results=stored(one.results),
        )
        for one in small.blocks
    )
    rows = tuple(
        replace(row, attributes={**row.attributes, "element_count": row.attributes["element_count"] * ratio})  # type: ignore[operator]
        for row in small.rows
    )
    return replace(small, memory=lines, blocks=blocks, rows=rows, parameter_bytes=int(small.parameter_bytes * ratio))
