"""Toys: 1 TFLOP/s in every unit, 100 GB/s, copies at 10 GB/s, nothing lost; see tests/predict/toys.py."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.predict.loader import loading_s, with_loader
from advisor.predict.step_time import predict
from advisor.predict.time_breakdown import INPUTS, LOADING, PAGING, explain_step
from advisor.records.answer import BOUNDS, Interval
from advisor.records.device import Device, Efficiency
from advisor.records.explained_step import ExplainedGroup, ExplainedStep, PredictedStep
from advisor.records.generation import Generation
from advisor.records.workload import Operand, Row, Workload
from tests.predict.test_lowering import conv_row
from tests.predict.toys import device, efficiency, operand, row, workload

N = 10_000
PER_SAMPLE = (0.0, 1.0)


def product(*, module: str = "fc", **changes: Any) -> Row:
    """(N, N) x (N, N): 2 N^3 = 2e12 FLOP are 2 s; 3 N^2 floats = 1.2e9 bytes are 12 ms."""
    square = operand(N, N)
    return replace(row("aten.mm", (square, square), (square,), family="matmul", **changes), module=module)


def addition(*, module: str = "act", **changes: Any) -> Row:
    """N^2 + N^2 elements: 1e8 FLOP are 0.1 ms; 1.2e9 bytes are 12 ms."""
    square = operand(N, N)
    return replace(row("aten.add", (square, square), (square,), family="pointwise", **changes), module=module)


def explained(
    step: Workload,
    *,
    own: Device | None = None,
    fit: Efficiency | None = None,
    loader_s: float | None = None,
    recomputed_ratio: float = 0.0,
) -> ExplainedStep:
    """The step in fp32 at batch 1, predicted and taken apart; it takes longer by `recomputed_ratio`."""
    own = own or device()
    fits = [fit or efficiency(kind=own.kind)]
    batches = np.array([1])
    found = predict(step, devices=[own], efficiencies=fits, batches=batches, precision="fp32")
    found = with_loader(found, loader_s_per_sample=loader_s) if loader_s else found
    mid, low, high = (
        float(times[0, 0]) * (1 + recomputed_ratio) for times in (found.step_s, found.step_low_s, found.step_high_s)
    )
    predicted = PredictedStep(
        batch=1,
        precision="fp32",
        step_s=Interval(mid=mid, low=low, high=high),
        bound=BOUNDS[found.bound[0, 0]],
        time_source="datasheet",
        loading_s=float(loading_s([own], batches=batches, loader_s_per_sample=loader_s)[0, 0]) if loader_s else 0.0,
        checkpoint_activations=recomputed_ratio > 0,
    )
    return explain_step(step, predicted, name="toy", device=own, efficiencies=fits)


def generated(**drafts: Any) -> dict[str, ExplainedGroup]:
    """The families of an answer of 11 tokens; its rows take (1, 100) x (100, 100) and read a cache of 1000 elements."""
    data, cache = operand(PER_SAMPLE, 100), replace(operand(PER_SAMPLE, 1000), kept=True)
    rows = (
        row("aten.mm", (data, operand(100, 100)), (data,), family="matmul", phase="prefill"),
        row("aten.mm", (data, operand(100, 100)), (data,), family="matmul", phase="decode", count=10),
        row("aten.add", (cache, cache), (cache,), family="pointwise", phase="decode", count=10),
    )
    step = workload(*rows, generation=Generation(prompt_tokens=1, output_tokens=11, **drafts))
    predicted = PredictedStep(
        batch=1,
        precision="fp32",
        step_s=Interval(mid=1.0, low=1.0, high=1.0),
        bound="memory",
        time_source="datasheet",
        loading_s=0.0,
    )
    found = explain_step(step, predicted, name="toy", device=device(), efficiencies=[efficiency()])
    return by_name(found.families)


def by_name(groups: tuple[ExplainedGroup, ...]) -> dict[str, ExplainedGroup]:
    return {group.name: group for group in groups}


def test_time_goes_to_families_and_modules_the_longest_first() -> None:
    step = explained(workload(addition(count=3), product(module="fc"), product(module="head", count=2)))
    # 3 x 2 s of products, 3 x 12 ms of additions; 2 s in fc, 4 s in head, 36 ms in act.
    assert [(group.name, pytest.approx(group.time_s)) for group in step.families] == [
        ("matmul", 6.0), ("pointwise", 0.036),
    ]  # fmt: skip
    assert [(group.name, pytest.approx(group.time_s)) for group in step.modules] == [
        ("head", 4.0), ("fc", 2.0), ("act", 0.036),
    ]  # fmt: skip
    assert step.total.time_s == step.step_s.mid == pytest.approx(6.036)
    assert [group.op_count for group in step.families] == [3, 3]


def test_with_drafts_fewer_decode_passes_take_more_tokens_and_read_weights_and_cache_once_each() -> None:
    plain, drafted = generated(), generated(draft_tokens=3, acceptance_ratio=0.6)
    # 1 + 0.6 + 0.36 + 0.216 = 2.176 tokens a pass: 5 passes instead of 10, of 4 tokens instead of 1.
    assert (plain["matmul"].op_count, drafted["matmul"].op_count) == (1 + 10, 1 + 5)
    assert plain["matmul"].flops == pytest.approx((1 + 10) * 20_000)
    assert drafted["matmul"].flops == pytest.approx((1 + 5 * 4) * 20_000)
    # 40 kB of weights in each pass, and 800 bytes of data for each token, at 100 GB/s.
    assert plain["matmul"].roofline_s == pytest.approx(11 * 40_800 / 100e9)
    assert drafted["matmul"].roofline_s == pytest.approx((40_800 + 5 * 43_200) / 100e9)
    # 12 kB of a cache in each pass.
    assert plain["pointwise"].moved_bytes == pytest.approx(10 * 12_000)
    assert drafted["pointwise"].moved_bytes == pytest.approx(5 * 12_000)
    assert drafted["pointwise"].flops == pytest.approx(5 * 4 * 1000)


def test_a_step_names_its_host_whose_slower_clock_lengthens_its_dispatch() -> None:
    fit = efficiency(dispatch_s=0.5)
    slow = explained(workload(addition(count=3)), own=device(host_cpu="xeon", host_time_ratio=1.5), fit=fit)
    fast = explained(workload(addition(count=3)), fit=fit)
    assert (slow.host_cpu, fast.host_cpu) == ("xeon", None)
    assert fast.total.dispatch_s == pytest.approx(1.5)  # 3 calls of 0.5 s
    assert slow.total.dispatch_s == pytest.approx(2.25)


def test_each_group_is_bound_by_what_takes_longest_in_it() -> None:
    groups = by_name(explained(workload(product(), addition())).families)
    assert (groups["matmul"].bound, groups["pointwise"].bound) == ("compute", "memory")
    assert groups["matmul"].compute_s == pytest.approx(2.0)
    assert groups["pointwise"].memory_s == pytest.approx(0.012)
    slow_launch = by_name(explained(workload(product(), addition()), fit=efficiency(launch_s=1.0)).families)
    assert (slow_launch["matmul"].bound, slow_launch["pointwise"].bound) == ("compute", "launch")
    assert slow_launch["pointwise"].launch_s == pytest.approx(1.0)


def test_intensity_stands_beside_the_ridge_of_the_unit() -> None:
    own = device(peak_flops_per_s={"fp32": 1e12, "vector": 5e11})
    groups = by_name(explained(workload(product(), addition()), own=own).families)
    # 2e12 / 1.2e9 FLOP per byte against 1e12 / 1e11; 1e8 / 1.2e9 against 5e11 / 1e11.
    assert groups["matmul"].flops_per_byte == pytest.approx(2e12 / 1.2e9)
    assert groups["matmul"].ridge_flops_per_byte == 10.0
    assert groups["pointwise"].flops_per_byte == pytest.approx(1 / 12)
    assert groups["pointwise"].ridge_flops_per_byte == 5.0


def test_an_ideal_device_reaches_its_roofline_and_a_slow_one_a_share_of_it() -> None:
    ideal = explained(workload(product(), addition()))
    assert ideal.total.roofline_s == pytest.approx(2.012)
    assert ideal.total.roofline_ratio == pytest.approx(1.0)
    slow = explained(workload(product()), own=device(sustained_compute_ratio=0.25))
    assert slow.total.roofline_ratio == pytest.approx(0.25)


def test_on_a_cpu_dispatch_adds_to_every_group() -> None:
    own, fit = device(kind="cpu"), efficiency(kind="cpu", dispatch_s=0.1, backward_dispatch_s=0.03)
    step = explained(workload(addition(count=5), addition(module="loss", phase="backward")), own=own, fit=fit)
    # 5 x (0.1 + 0.012) in act, 0.03 + 0.012 in the backward of the loss.
    groups = by_name(step.modules)
    assert (groups["act"].time_s, groups["act"].bound) == (pytest.approx(0.56), "dispatch")
    assert (groups["act"].kernels_s, groups["act"].dispatch_s) == (pytest.approx(0.06), pytest.approx(0.5))
    assert groups["loss"].time_s == pytest.approx(0.042)
    assert step.step_s.mid == pytest.approx(0.602)


def test_where_dispatch_sets_the_pace_of_a_gpu_time_goes_where_operators_are_dispatched() -> None:
    step = explained(workload(product(), addition(count=9)), fit=efficiency(dispatch_s=1.0))
    # The host takes 10 x 1 s, the kernels 2 s + 9 x 12 ms.
    groups = by_name(step.families)
    assert step.bound == "dispatch"
    assert (groups["pointwise"].time_s, groups["matmul"].time_s) == (pytest.approx(9.0), pytest.approx(1.0))
    assert {group.bound for group in step.families} == {"dispatch"}
    assert step.total.kernels_s == pytest.approx(2.108)


def test_where_dispatch_hides_behind_kernels_it_takes_no_time() -> None:
    step = explained(workload(product(), addition(count=9)), fit=efficiency(dispatch_s=0.1))
    assert by_name(step.families)["pointwise"].time_s == pytest.approx(0.108)
    assert step.total.dispatch_s == pytest.approx(1.0)


def test_the_copies_of_a_paged_state_are_a_group() -> None:
    attributes = {
        "element_count": 1e8, "paged_bytes_per_element": 20.0, "flops_per_element": 0.0, "read_bytes_per_element": 0.0,
        "write_bytes_per_element": 0.0, "state_bytes_per_element": 0.0, "calls_per_tensor": 1.0, "tensor_count": 1,
    }  # fmt: skip
    optimizer = row("optimizer", family="optimizer", phase="optimizer", attributes=attributes)
    step = explained(workload(addition(), optimizer))
    paging = by_name(step.families)[PAGING]  # 2e9 bytes at 10 GB/s
    assert (paging.bound, paging.moved_bytes, step.paging_s) == ("transfer", 2e9, pytest.approx(0.2))
    assert sum(group.time_s for group in step.families) == pytest.approx(step.step_s.mid)


def test_where_copies_set_the_pace_the_wait_for_the_inputs_is_a_group() -> None:
    images = Operand(shape=(PER_SAMPLE, 10**9), dtype="float32")  # 4e9 bytes at 10 GB/s: 0.4 s
    step = explained(workload(addition(), inputs=(images,)))
    assert (step.bound, step.transfer_s) == ("transfer", pytest.approx(0.4))
    first, second = step.modules
    assert (first.name, first.bound, first.time_s) == (INPUTS, "transfer", pytest.approx(0.4 - 0.012))
    assert (first.moved_bytes, first.flops) == (4e9, 0.0)
    assert (second.name, second.time_s) == ("act", pytest.approx(0.012))


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
@pytest.mark.parametrize("dispatch_s", [1e-6, 10.0])
@pytest.mark.parametrize("input_numel", [1, 10**12])
def test_the_times_of_all_groups_add_up_to_the_step(kind: Any, dispatch_s: float, input_numel: int) -> None:
    inputs = (Operand(shape=(PER_SAMPLE, input_numel), dtype="float32"),)
    rows = (product(), addition(), addition(module="", phase="optimizer", count=7))
    fit = efficiency(kind=kind, dispatch_s=dispatch_s, launch_s=1e-3, overlap_ratio=0.5)
    step = explained(workload(*rows, inputs=inputs), own=device(kind=kind), fit=fit)
    for groups in (step.families, step.modules, step.phases):
        assert sum(group.time_s for group in groups) == pytest.approx(step.step_s.mid)
        assert sum(group.time_ratio for group in groups) == pytest.approx(1.0)


def test_the_forward_of_repeated_blocks_that_backward_recomputes_is_a_phase() -> None:
    rows = (product(module="h.*.fc"), addition(module="head"), product(module="h.*.fc", phase="backward", count=2))
    # A product takes 2 s and the addition 12 ms; of 6.012 s the blocks' forward is 2 s.
    step = explained(workload(*rows), recomputed_ratio=2 / 6.012)
    assert [(group.name, pytest.approx(group.time_s)) for group in step.phases] == [
        ("backward", 4.0), ("forward", 2.012), ("recomputation", 2.0),
    ]  # fmt: skip
    assert [(group.name, pytest.approx(group.time_s), group.op_count) for group in step.modules] == [
        ("h.*.fc", 8.0, 4), ("head", 0.012, 1),
    ]  # fmt: skip
    assert step.total.flops == pytest.approx(4 * 2e12 + 1e8)
    assert step.total.time_s == pytest.approx(8.012)


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
@pytest.mark.parametrize("dispatch_s", [1e-6, 10.0])
def test_the_groups_add_up_to_a_step_with_recomputation(kind: Any, dispatch_s: float) -> None:
    rows = (product(module="h.*.fc"), addition(count=3), product(module="h.*.fc", phase="backward", count=2))
    own, fit = device(kind=kind), efficiency(kind=kind, dispatch_s=dispatch_s, backward_dispatch_s=dispatch_s)
    plain = explained(workload(*rows), own=own, fit=fit)
    # The forward is a third of the blocks' kernels and calls. A GPU's kernels hide the dispatch, or it hides them.
    blocks, combined = by_name(plain.modules)["h.*.fc"], sum if kind == "cpu" else max
    whole_s = combined((plain.total.kernels_s, plain.total.dispatch_s))
    again_s = combined((plain.total.kernels_s + blocks.kernels_s / 3, plain.total.dispatch_s + blocks.dispatch_s / 3))
    step = explained(workload(*rows), own=own, fit=fit, recomputed_ratio=again_s / whole_s - 1)
    for groups in (step.families, step.modules, step.phases):
        assert sum(group.time_s for group in groups) == pytest.approx(step.step_s.mid)


def test_what_is_in_no_module_goes_by_its_phase() -> None:
    step = explained(workload(addition(module=""), addition(module="", phase="optimizer", count=2)))
    assert [group.name for group in step.modules] == ["(optimizer)", "(forward)"]
    assert [group.name for group in step.phases] == ["optimizer", "forward"]


def test_views_are_no_part_of_a_step() -> None:
    square = operand(N, N)
    view = replace(row("aten.view", (square,), (square,), family="view"), module="reshape")
    step = explained(workload(addition(), view))
    assert [group.name for group in step.modules] == ["act"]
    assert step.total.op_count == 1


def test_recurrent_layers_are_a_chain_on_a_gpu_alone() -> None:
    attributes = {
        "mode": "lstm", "input_size": 8, "hidden_size": 8, "proj_size": 0, "num_layers": 2, "bidirectional": False,
        "batch_first": True,
    }  # fmt: skip
    data = operand(PER_SAMPLE, 50, 8)
    weights = operand(32, 8)
    lstm = row("rnn", (data, weights), (data,), family="rnn", attributes=attributes, count=3)
    (chain,) = explained(workload(replace(lstm, module="lstm"))).sequential
    # Per layer one product for all inputs, then a product and the gates in each of 50 steps: 2 x (1 + 100), 3 times.
    assert (chain.module, chain.op, chain.kernel_count) == ("lstm", "rnn", 606)
    assert explained(workload(lstm), own=device(kind="cpu")).sequential == ()


def test_where_loading_sets_the_pace_the_wait_for_it_is_a_group() -> None:
    # 12 ms of the addition, 2 s of loading on a vCPU: its host has another.
    step = explained(workload(addition()), own=device(vcpu_count=2), loader_s=2.0)
    first, second = step.modules
    assert (step.bound, step.loading_s, step.step_s.mid) == ("loader", 2.0, 2.0)
    assert (first.name, first.bound, first.time_s) == (LOADING, "loader", pytest.approx(2.0 - 0.012))
    assert (second.name, second.time_s) == ("act", pytest.approx(0.012))


def test_a_cpu_always_spends_time_on_loading() -> None:
    # 2 s of work on four vCPUs are 0.5 s of all of them, beside 2.005 s of the product.
    step = explained(workload(product()), own=device(kind="cpu", vcpu_count=4), loader_s=2.0)
    groups = by_name(step.families)
    assert (step.bound, step.step_s.mid) == ("compute", pytest.approx(2.505))
    assert (groups["matmul"].time_s, groups[LOADING].time_s) == (pytest.approx(2.005), pytest.approx(0.5))
    assert sum(group.time_ratio for group in step.families) == pytest.approx(1.0)


@pytest.mark.parametrize("cores", [1, 1.5, 4])
def test_of_two_kernels_for_different_numbers_of_cores_only_one_counts(cores: float) -> None:
    """A 1 x 1 convolution from 300 to 5 channels of 10 x 10 pixels, which a single core leaves to MKL."""
    step = explained(workload(conv_row(inputs=300)), own=device(kind="cpu", core_count=cores))
    (group,) = step.families
    assert group.flops == 2 * 300 * 5 * 100
    assert group.time_s > 0
    assert group.moved_bytes >= 4 * (300 * 100 + 5 * 100 + 300 * 5)
    assert group.moved_bytes < 2 * 4 * (300 * 100 + 5 * 100 + 300 * 5)
