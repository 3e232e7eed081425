from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.predict.kernel_time import (
    LOAD_S,
    TERMS,
    Kernels,
    KernelTimes,
    Rates,
    kernel_times,
    smooth_maximum,
    utilisation,
)
from tests.predict.toys import kernels

TERMS_OF_CALLS = sorted(name for name, term in TERMS.items() if term.of in ("call", "step's kernels"))
WORK = st.just(0.0) | st.floats(1e-9, 1e15)
BYTES = st.just(0.0) | st.floats(1.0, 1e12)
FACTOR = st.floats(1.0, 100.0)
RATIO = st.floats(0.0, 1.0)
BYTE_FIELDS = (
    "data_bytes",
    "weight_bytes",
    "passed_bytes",
    "transposed_bytes",
    "always_transposed_bytes",
    "repacked_bytes",
)


def rates(**changes: Any) -> Rates:
    """100 FLOP/s and 100 byte/s on 4 cores, 400 byte/s from a cache of nothing; everything at its peak."""
    values: dict[str, Any] = {
        "flops_per_s": 100.0, "memory_bytes_per_s": 100.0, "narrow_bytes_per_s": 0.0, "cache_bytes": 0.0,
        "cache_bytes_per_s": 400.0, "core_count": 4.0, "full_core_count": 4.0, "lone_block_ratio": 1.0,
        "core_bytes_per_s": np.inf, "direct_flops_per_s": np.inf, "reread_ratio": 1.0, "launch_s": 0.0,
        "overlap_ratio": 1.0, "edge_ramp": 0.0, "depth_ramp": 0.0, "tile_rows": 128.0, "tile_columns": 128.0,
        "wave_ratio": 0.0, "winograd_speedup": 1.0, "transposed_ratio": 0.0, "always_transposed_ratio": 0.0,
        "near_cache_bytes": 0.0, "repack_ratio": 0.0, "cache_kept_ratio": 0.0, "join_s": 0.0, "library_s": 0.0,
        "cycle_s": 0.0, "uses_matrix_unit": 0.0, "addition_cycles": 0.0, "page_s": 0.0, "issue_cycle_s": 0.0,
        "fft_share": 0.0,
    }  # fmt: skip
    return Rates(**{name: np.array(value) for name, value in (values | changes).items()})


def product(*, groups: float = 1.0, m: float, n: float, k: float = 128.0) -> Kernels:
    """A product of floats with its FLOP and bytes, two operands and a result."""
    sizes = {name: np.array([[float(value)]]) for name, value in (("groups", groups), ("m", m), ("n", n), ("k", k))}
    flops, data_bytes = 2 * groups * m * n * k, 4 * groups * (m * k + m * n)
    weight_bytes = np.array([[4 * groups * k * n]])
    return kernels(flops=[[flops]], data_bytes=[[data_bytes]], weight_bytes=weight_bytes, **sizes)


def moving(**moved_bytes: float) -> Kernels:
    """A kernel that only moves bytes."""
    step = {name: np.array([moved_bytes.pop(name, 0.0)]) for name in ("parameter_bytes",)}
    fields = {name: np.array([[value]]) for name, value in moved_bytes.items()}
    return kernels(flops=[[0.0]], **({"data_bytes": [[0.0]]} | fields | step))


def test_what_is_read_over_and_over_comes_from_the_nearest_cache_that_holds_its_set() -> None:
    """100 byte/s from memory, 400 from a cache of 1,000 bytes, twice that from the 200 that are the cores' own."""

    def seconds(set_bytes: float) -> float:
        revisiting = moving(revisited_bytes=8_000.0, revisited_set_bytes=set_bytes)
        return total_s(revisiting, rates(cache_bytes=1_000.0, near_cache_bytes=200.0))

    assert seconds(200.0) == pytest.approx(8_000 / 800)
    assert seconds(800.0) == pytest.approx(2_000 / 800 + 6_000 / 400)  # a quarter of the set is near
    assert seconds(2_000.0) == pytest.approx(800 / 800 + 3_200 / 400 + 4_000 / 100)  # half of it is in memory


def test_a_call_into_a_library_takes_time_beside_its_launch() -> None:
    calls = kernels(flops=[[0.0]], data_bytes=[[0.0]], launches=np.array([[2.0]]), library_calls=np.array([[1.0]]))
    assert total_s(calls, rates(launch_s=0.25, library_s=3.0)) == pytest.approx(2 * 0.25 + 3.0)


def test_every_page_that_is_mapped_anew_takes_a_fault_beside_the_work() -> None:
    moved = moving(data_bytes=8_192.0, mapped_bytes=8_192.0)
    assert total_s(moved, rates(page_s=3.0)) == pytest.approx(8_192 / 100 + 2 * 3.0)
    assert total_s(moved, rates(page_s=3.0)) - total_s(moved, rates()) == pytest.approx(2 * 3.0)


def test_threads_that_start_and_end_together_take_time_beside_the_launch() -> None:
    calls = kernels(flops=[[0.0]], data_bytes=[[0.0]], launches=np.array([[2.0]]), joins=np.array([[1.0]]))
    assert total_s(calls, rates(launch_s=0.25, join_s=3.0)) == pytest.approx(2 * 0.25 + 3.0)


def test_a_loop_over_elements_is_shared_by_the_cores_unless_it_is_serial() -> None:
    loop = kernels(flops=[[100.0]], data_bytes=[[0.0]], scalar_cycles=np.array([[80.0]]))
    assert total_s(loop, rates(cycle_s=0.5)) == pytest.approx(1.0 + 80 * 0.5 / 4)
    on_unit = kernels(flops=[[100.0]], data_bytes=[[0.0]], matrix_unit_cycles=np.array([[80.0]]))
    assert total_s(on_unit, rates(cycle_s=0.5, uses_matrix_unit=1.0)) == total_s(loop, rates(cycle_s=0.5))
    added = kernels(flops=[[100.0]], data_bytes=[[0.0]], indexed_additions=np.array([[10.0]]))
    assert total_s(added, rates(cycle_s=0.5, addition_cycles=8.0)) == total_s(loop, rates(cycle_s=0.5))
    serial = kernels(flops=[[100.0]], data_bytes=[[0.0]], serial_cycles=np.array([[80.0]]))
    assert total_s(serial, rates(cycle_s=0.5)) == pytest.approx(1.0 + 80 * 0.5)


def test_what_a_batch_norm_keeps_is_not_read_again() -> None:
    norm = kernels(flops=[[0.0]], data_bytes=[[300.0]], reread_bytes=np.array([[100.0]]))
    assert total_s(norm, rates(reread_ratio=1.0)) == pytest.approx(3.0)
    assert total_s(norm, rates(reread_ratio=0.0)) == pytest.approx(2.0)


def test_few_threads_wait_for_what_they_load_where_memory_would_not_be_busy() -> None:
    def upsampling(*, waiting_s: float) -> Kernels:
        return kernels(flops=[[0.0]], data_bytes=[[300.0]], sequential_loads=np.array([[waiting_s / LOAD_S]]))

    assert total_s(upsampling(waiting_s=5.0), rates()) == pytest.approx(5.0)
    assert total_s(upsampling(waiting_s=1.0), rates()) == pytest.approx(3.0)


def test_instructions_of_a_streaming_kernel_are_hidden_behind_its_memory_unless_they_take_longer() -> None:
    """300 bytes take 3 s, and 40 cycles on 4 cores 10 of them."""
    norm = kernels(flops=[[0.0]], data_bytes=[[300.0]], issue_cycles=np.array([[40.0]]))
    assert total_s(norm, rates(issue_cycle_s=0.5)) == pytest.approx(5.0)
    assert total_s(norm, rates(issue_cycle_s=0.1)) == pytest.approx(3.0)


def test_a_copy_to_another_layout_reads_and_writes() -> None:
    norm = kernels(flops=[[0.0]], data_bytes=[[300.0]], passed_bytes=np.array([[100.0]]))
    assert total_s(norm, rates()) == pytest.approx(3.0 + 2.0)


def test_copies_before_and_after_a_kernel_are_not_hidden_behind_it() -> None:
    product = kernels(flops=[[1000.0]], data_bytes=[[300.0]], passed_bytes=np.array([[100.0]]))
    assert total_s(product, rates(overlap_ratio=1.0)) == pytest.approx(10.0 + 2.0)


def test_a_direct_kernel_computes_at_its_own_rate() -> None:
    direct = kernels(flops=[[100.0]], data_bytes=[[0.0]], direct_flops=np.array([[50.0]]))
    assert total_s(direct, rates(direct_flops_per_s=5.0)) == pytest.approx(10.0)


def test_a_function_computes_as_much_longer_as_its_flop_take() -> None:
    function = kernels(flops=[[100.0]], data_bytes=[[0.0]], flop_ratio=np.array([[10.0]]))
    assert total_s(function, rates()) == pytest.approx(10.0)


@pytest.mark.parametrize("name", TERMS_OF_CALLS)
def test_every_term_of_a_call_changes_its_time(name: str) -> None:
    """A product of 128 or more in each dimension, whose work is small: a length of 1 and any other 1e12 differ."""
    ratios = ("reread_ratio", "transposed_ratio", "always_transposed_ratio", "repack_ratio", "cache_kept_ratio")
    seconds = {"launch_s": 1.0, "join_s": 1.0, "library_s": 1.0, "cycle_s": 1.0, "uses_matrix_unit": 1.0, "page_s": 1.0}
    seconds |= {"core_bytes_per_s": 50.0, "direct_flops_per_s": 5.0, "issue_cycle_s": 1.0, "addition_cycles": 1.0}
    ramps = {"edge_ramp": 8.0, "depth_ramp": 8.0, "wave_ratio": 1.0, "overlap_ratio": 0.0, "cache_bytes": 1e3}
    term = TERMS[name]
    plain = kernels(
        flops=[[1e3]],
        data_bytes=[[1e3]],
        weight_bytes=np.array([[1e3]]),
        revisited_bytes=np.array([[1e3]]),
        revisited_set_bytes=np.array([[1.0]]),
        **{length: np.array([[128.0]]) for length in ("m", "n", "k")},
    )
    value = 1.0 if term.default == 1e9 else 1e12
    changed = replace(plain, **{name: np.full_like(getattr(plain, name), value)})
    at = rates(**dict.fromkeys(ratios, 0.5), **seconds, **ramps)
    assert total_s(changed, at) != total_s(plain, at)


def total_s(work: Kernels, at: Rates) -> float:
    return float(kernel_times(work, at).total_s.item())


def memory_s(work: Kernels, at: Rates) -> float:
    return float(kernel_times(work, at).memory_s.item())


def test_without_overlap_both_times_add_and_with_it_the_longer_hides_the_shorter() -> None:
    compute_s, memory_s = np.array([3.0]), np.array([1.0])
    assert smooth_maximum(compute_s, memory_s, overlap=0.0)[0] == pytest.approx(4.0)
    assert smooth_maximum(compute_s, memory_s, overlap=1.0)[0] == pytest.approx(3.0)


def test_a_product_of_one_tile_of_rows_reads_its_parameters_as_a_copy_is_read() -> None:
    # 400 bytes of parameters at 200 byte/s and 100 of data at 100; 129 rows are two tiles: 5 s.
    narrow, wide = (
        kernels(flops=[[0.0]], data_bytes=[[100.0]], weight_bytes=np.array([[400.0]]), m=np.array([[rows]]))
        for rows in (128.0, 129.0)
    )
    assert memory_s(narrow, rates(narrow_bytes_per_s=200.0)) == pytest.approx(3.0)
    assert memory_s(wide, rates(narrow_bytes_per_s=200.0)) == pytest.approx(5.0)
    # It is never slower for it.
    assert memory_s(narrow, rates(narrow_bytes_per_s=50.0)) == pytest.approx(5.0)


def by_token(tokens: float, data_bytes: float) -> Kernels:
    """A kernel that gives each token a block of threads."""
    return kernels(flops=[[0.0]], data_bytes=[[data_bytes]], blocks=np.array([[tokens]]))


@pytest.mark.parametrize(
    ("tokens", "seconds"),
    [
        (1.0, 40.0),  # one core moves 10 byte/s
        (2.0, 20.0),
        (3.0, 400 / 30),
        (6.0, 400 / 30),  # the four cores hold the threads of three
    ],
)
def test_threads_that_wait_for_their_bytes_take_as_long_as_the_busy_cores_need(tokens: float, seconds: float) -> None:
    at = rates(core_bytes_per_s=10.0, full_core_count=3.0)
    assert memory_s(by_token(tokens, 400.0), at) == pytest.approx(seconds)


def test_a_core_with_one_block_is_as_fast_as_its_clock() -> None:
    at = rates(core_bytes_per_s=10.0, full_core_count=3.0, lone_block_ratio=1.25)
    assert memory_s(by_token(1.0, 400.0), at) == pytest.approx(32.0)
    assert memory_s(by_token(100.0, 400.0), at) == pytest.approx(400 / 30)


def test_memory_bounds_what_the_threads_could_move() -> None:
    # 400 bytes at 100 byte/s; the cores could do 3 x 1000.
    assert memory_s(by_token(8.0, 400.0), rates(core_bytes_per_s=1000.0, full_core_count=3.0)) == pytest.approx(4.0)


@given(
    st.floats(1.0, 1e5),
    st.floats(1.0, 1e9),
    FACTOR,
    st.sampled_from(["core_bytes_per_s", "full_core_count", "lone_block_ratio", "memory_bytes_per_s"]),
)
def test_more_tokens_never_take_less_time_and_a_better_device_never_more(
    tokens: float, data_bytes: float, more: float, name: str
) -> None:
    at = {"core_bytes_per_s": 10.0, "full_core_count": 3.0, "lone_block_ratio": 1.0, "memory_bytes_per_s": 100.0}
    before = memory_s(by_token(tokens, data_bytes), rates(**at))
    assert memory_s(by_token(tokens * more, data_bytes * more), rates(**at)) >= before * (1 - 1e-9)
    assert memory_s(by_token(tokens, data_bytes), rates(**(at | {name: at[name] * more}))) <= before * (1 + 1e-9)


def test_where_both_are_equal_a_share_of_the_second_shows() -> None:
    # (1 + 1 + sqrt(0 + 4 x 0.25^2)) / 2 = (2 + 0.5) / 2
    assert smooth_maximum(np.array([1.0]), np.array([1.0]), overlap=0.75)[0] == pytest.approx(1.25)


@given(WORK, WORK, st.floats(0, 1), st.floats(1, 10))
def test_the_smooth_maximum_grows_with_either_time(compute: float, memory: float, overlap: float, more: float) -> None:
    compute_s, memory_s = np.array([compute]), np.array([memory])
    before = smooth_maximum(compute_s, memory_s, overlap=overlap)[0]
    assert smooth_maximum(compute_s * more, memory_s, overlap=overlap)[0] >= before * (1 - 1e-9)
    assert max(compute, memory) * (1 - 1e-9) <= before <= (compute + memory) * (1 + 1e-9)


def test_narrow_and_shallow_products_ramp_up() -> None:
    # Half the rate at m = 8, 3/4 of it at n = 24, half of it at k = 10: 1/2 x 3/4 x 1/2.
    found = utilisation(product(m=8, n=24, k=10), rates(edge_ramp=8.0, depth_ramp=10.0))
    assert found.item() == pytest.approx(3 / 16)


@pytest.mark.parametrize(
    ("tiles", "share"),
    [
        (8, 1.0),  # two full waves on 4 cores
        (7, 7 / 8),  # one core of four without a tile in the second wave; quarter tiles would cost 1.2
        (5, 1 / 1.2),  # 5 of 8 in whole tiles; 20 quarter tiles are 5 full waves, at 1.2 of the time
        (1, 1 / 1.2),  # 4 quarter tiles
    ],
)
def test_cores_without_a_tile_in_the_last_wave_idle(tiles: int, share: float) -> None:
    assert utilisation(product(m=128 * tiles, n=128), rates(wave_ratio=1.0)).item() == pytest.approx(share)
    square_root = utilisation(product(m=128 * tiles, n=128), rates(wave_ratio=0.5)).item()
    assert square_root == pytest.approx(share**0.5)


def test_most_cores_idle_where_even_quarter_tiles_are_too_few() -> None:
    # 4 quarter tiles on 16 cores: 1.2 x 16 / 4.
    assert utilisation(product(m=128, n=128), rates(wave_ratio=1.0, core_count=16.0)).item() == pytest.approx(1 / 4.8)


def test_a_dimension_below_a_tile_takes_a_whole_one_and_groups_have_their_own() -> None:
    at = rates(wave_ratio=1.0, core_count=64.0)
    # 3 groups of 4 x 1 tiles are 12 whole or 48 quarter tiles on 64 cores: 1.2 x 64 / 48.
    assert utilisation(product(groups=3, m=512, n=64), at).item() == pytest.approx(48 / 64 / 1.2)


def test_a_kernel_that_is_no_product_fills_the_device() -> None:
    found = utilisation(moving(data_bytes=1.0), rates(wave_ratio=1.0, edge_ramp=50.0, depth_ramp=50.0))
    assert found.item() == pytest.approx(1.0, abs=1e-6)


def test_compute_takes_its_flops_at_the_rate_that_it_reaches() -> None:
    # 2 x 128^3 FLOP at 100 / 1.2 FLOP/s.
    found = kernel_times(product(m=128, n=128), rates(wave_ratio=1.0))
    assert found.compute_s.item() == pytest.approx(2 * 128**3 * 1.2 / 100)


def test_winograds_algorithm_saves_flops_where_there_is_one() -> None:
    work = kernels(flops=[[100.0], [100.0]], data_bytes=[[0.0], [0.0]], can_winograd=np.array([True, False]))
    assert kernel_times(work, rates(winograd_speedup=2.0)).compute_s.tolist() == [[0.5], [1.0]]


def test_fourier_transforms_save_flops_where_the_device_uses_them() -> None:
    work = kernels(flops=[[100.0], [100.0]], data_bytes=[[0.0], [0.0]], fft_speedup=np.array([4.0, 1.0]))
    assert kernel_times(work, rates(fft_share=1.0)).compute_s.tolist() == [[0.25], [1.0]]
    assert kernel_times(work, rates(fft_share=0.0)).compute_s.tolist() == [[1.0], [1.0]]


def test_data_that_fits_the_cache_comes_from_it() -> None:
    # Half of 100 bytes of cache are kept: 40 of 40 bytes at 400 byte/s; of 200, 50 at 400 and 150 at 100.
    at = rates(cache_bytes=100.0, cache_kept_ratio=0.5)
    assert memory_s(moving(data_bytes=40.0), at) == pytest.approx(0.1)
    assert memory_s(moving(data_bytes=200.0), at) == pytest.approx(1.5 + 0.125)


def test_a_parameter_is_in_the_cache_as_far_as_all_of_them_fit() -> None:
    # 50 bytes are kept of the step's 200: of these 80, 20 at 400 byte/s and 60 at 100.
    at = rates(cache_bytes=100.0, cache_kept_ratio=0.5)
    assert memory_s(moving(weight_bytes=80.0, parameter_bytes=200.0), at) == pytest.approx(0.6 + 0.05)
    assert memory_s(moving(weight_bytes=40.0, parameter_bytes=40.0), at) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("moved", "ratio", "seconds"),
    [
        ("transposed_bytes", "transposed_ratio", 0.5),  # a quarter of 100 bytes, read and written at 100 byte/s
        ("always_transposed_bytes", "always_transposed_ratio", 0.5),
        ("repacked_bytes", "repack_ratio", 0.5),
    ],
)
def test_transposed_images_and_repacked_weights_move_their_share_through_memory(
    moved: str, ratio: str, seconds: float
) -> None:
    plain = moving(**{moved: 100.0})
    assert memory_s(plain, rates(**{ratio: 0.0})) == 0.0
    assert memory_s(plain, rates(**{ratio: 0.25})) == pytest.approx(seconds)
    cached = rates(**{ratio: 0.25, "cache_bytes": 1e9, "cache_kept_ratio": 1.0})
    assert memory_s(plain, cached) == pytest.approx(seconds)


def test_a_transposition_takes_the_cycles_of_its_instructions_where_memory_is_faster() -> None:
    # 50 halves take 22.5 cycles on 4 cores, and 200 bytes 2 seconds at 100 byte/s.
    plain = moving(always_transposed_bytes=100.0)
    assert memory_s(plain, rates(always_transposed_ratio=1.0, issue_cycle_s=0.1)) == pytest.approx(2.0)
    assert memory_s(plain, rates(always_transposed_ratio=1.0, issue_cycle_s=1.0)) == pytest.approx(22.5 / 4)


def test_a_copy_of_an_operand_is_not_hidden_behind_the_instructions_of_the_kernel() -> None:
    # 100 bytes are read and written once more; their 40 cycles on 4 cores may take longer.
    work = replace(moving(data_bytes=100.0, passed_bytes=100.0), issue_cycles=np.array([[40.0]]))
    assert memory_s(work, rates(issue_cycle_s=1.0)) == pytest.approx(10.0 + 2.0)
    slow = replace(work, passed_cycles=np.array([[40.0]]))
    assert memory_s(slow, rates(issue_cycle_s=1.0)) == pytest.approx(10.0 + 10.0)
    assert memory_s(slow, rates()) == pytest.approx(1.0 + 2.0)


def test_a_kernel_without_tiles_computes_at_its_rate_where_instructions_limit_it() -> None:
    """Elsewhere another library's kernel runs, with tiles and perhaps direct."""
    ramps = {"edge_ramp": 128.0, "direct_flops_per_s": 1.0}
    work = replace(product(m=128, n=128), is_untiled=np.array([True]), direct_flops=np.array([[1e9]]))
    by_torch = kernel_times(work, rates(issue_cycle_s=1e-9, **ramps)).compute_s.item()
    assert by_torch == pytest.approx(work.flops.item() / 100)
    assert kernel_times(work, rates(**ramps)).compute_s.item() == 1e9


def test_launches_add_to_the_roofline() -> None:
    work = kernels(flops=[[100.0]], data_bytes=[[50.0]], launches=np.array([[3.0]]))
    found = kernel_times(work, rates(launch_s=0.5))
    assert (found.compute_s.item(), found.memory_s.item(), found.launch_s.item()) == (1.0, 0.5, 1.5)
    assert found.total_s.item() == pytest.approx(1.0 + 1.5)
    without_overlap = kernel_times(work, rates(launch_s=0.5, overlap_ratio=0.0))
    assert without_overlap.total_s.item() == pytest.approx(1.0 + 0.5 + 1.5)


def test_work_on_one_core_is_compute_time_and_a_call_of_a_library_is_launch_overhead() -> None:
    def found(name: str) -> tuple[float, float, float, float]:
        work = kernels(flops=[[100.0]], data_bytes=[[50.0]], **{name: np.array([[80.0]])})
        times = kernel_times(work, rates(cycle_s=0.5, overlap_ratio=1.0))
        return times.compute_s.item(), times.memory_s.item(), times.launch_s.item(), times.total_s.item()

    # 1 s of shared work overlaps with 0.5 s of memory accesses; 80 cycles of 0.5 s overlap with nothing.
    assert found("serial_cycles") == pytest.approx((41.0, 0.5, 0.0, 41.0))
    assert found("call_cycles") == pytest.approx((1.0, 0.5, 40.0, 41.0))


def test_devices_and_kernels_broadcast() -> None:
    work = kernels(flops=[[100.0, 200.0], [0.0, 0.0]], data_bytes=[[0.0, 0.0], [300.0, 600.0]])
    found: KernelTimes = kernel_times(work, rates(flops_per_s=np.array([[[100.0]], [[50.0]], [[25.0]]])))
    assert found.total_s.tolist() == [[[1, 2], [3, 6]], [[2, 4], [3, 6]], [[4, 8], [3, 6]]]


def test_flat_kernels_each_run_at_their_own_rates() -> None:
    work = kernels(flops=[[100.0], [100.0]], data_bytes=[[0.0], [0.0]], can_winograd=np.array([True, False]))
    at = rates(flops_per_s=np.array([[100.0], [50.0]]), winograd_speedup=2.0)
    assert kernel_times(work, at).total_s.tolist() == [[0.5], [2.0]]


A_RATE = st.builds(
    rates,
    cache_bytes=BYTES,
    core_count=st.integers(1, 200).map(float),
    overlap_ratio=RATIO,
    edge_ramp=st.floats(0, 64),
    depth_ramp=st.floats(0, 64),
    wave_ratio=RATIO,
    cache_kept_ratio=RATIO,
    transposed_ratio=RATIO,
    always_transposed_ratio=RATIO,
    repack_ratio=RATIO,
    launch_s=RATIO,
)


def no_faster(after: float, before: float) -> bool:
    return after >= before * (1 - 1e-9)


@given(A_RATE, WORK, BYTES, FACTOR)
def test_more_flop_is_never_faster(at: Rates, flops: float, data_bytes: float, more: float) -> None:
    few, many = (kernels(flops=[[work]], data_bytes=[[data_bytes]]) for work in (flops, flops * more))
    assert no_faster(total_s(many, at), total_s(few, at))


@given(A_RATE, WORK, BYTES, BYTES, FACTOR, st.sampled_from(BYTE_FIELDS))
def test_more_bytes_of_any_sort_are_never_faster(
    at: Rates, flops: float, moved_bytes: float, parameter_bytes: float, more: float, name: str
) -> None:
    few, many = (
        replace(moving(**{name: moved, "parameter_bytes": parameter_bytes}), flops=np.array([[flops]]))
        for moved in (moved_bytes, moved_bytes * more)
    )
    assert no_faster(total_s(many, at), total_s(few, at))


@given(
    A_RATE,
    st.floats(0.0, 1.0),
    st.floats(0.0, 64.0),
    st.integers(1, 5000),
    st.integers(1, 5000),
    st.integers(1, 4096),
    st.integers(1, 4096),
)
def test_a_larger_batch_is_never_faster(
    at: Rates, ratio: float, ramp: float, first: int, second: int, n: int, k: int
) -> None:
    few, many = sorted((first, second))
    at = replace(at, wave_ratio=np.array(ratio), edge_ramp=np.array(ramp))
    assert no_faster(total_s(product(m=many, n=n, k=k), at), total_s(product(m=few, n=n, k=k), at))


@given(
    A_RATE,
    st.integers(1, 5000),
    st.integers(1, 5000),
    st.integers(1, 5000),
    st.sampled_from(("flops_per_s", "memory_bytes_per_s", "cache_bytes_per_s", "winograd_speedup")),
    FACTOR,
)
def test_a_faster_device_is_never_slower(at: Rates, m: int, n: int, k: int, name: str, faster: float) -> None:
    work = replace(product(m=m, n=n, k=k), can_winograd=np.array([True]), parameter_bytes=np.array([1e6]))
    assert no_faster(total_s(work, at), total_s(work, replace(at, **{name: getattr(at, name) * faster})))


@given(A_RATE, BYTES, BYTES, BYTES, BYTES, FACTOR)
def test_more_of_a_cache_that_is_faster_than_memory_is_never_slower(
    at: Rates, data_bytes: float, weight_bytes: float, parameter_bytes: float, cache_bytes: float, more: float
) -> None:
    work = moving(data_bytes=data_bytes, weight_bytes=weight_bytes, parameter_bytes=weight_bytes + parameter_bytes)
    small, large = (replace(at, cache_bytes=np.array(size)) for size in (cache_bytes, cache_bytes * more))
    assert no_faster(total_s(work, small), total_s(work, large))


@given(A_RATE, st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 64))
def test_no_product_exceeds_its_rate(at: Rates, m: int, n: int, k: int, groups: int) -> None:
    assert 0 < utilisation(product(groups=groups, m=m, n=n, k=k), at).item() <= 1 + 1e-9


def test_a_kernel_takes_as_long_beside_others_as_alone() -> None:
    """A matmul, a copy and repeated reads on two devices, with rates of their own for each kernel."""
    terms = [
        {"flops": 4e3, "data_bytes": 80.0, "groups": 1.0, "m": 8.0, "n": 25.0, "k": 10.0},
        {"flops": 0.0, "data_bytes": 300.0},
        {"flops": 50.0, "data_bytes": 40.0, "revisited_bytes": 800.0, "revisited_set_bytes": 500.0},
    ]

    def of(*chosen: int) -> Kernels:
        names = {name for index in chosen for name in terms[index]}
        return kernels(
            **{name: np.array([[terms[index].get(name, TERMS[name].default)] for index in chosen]) for name in names}
        )

    ramps = {"edge_ramp": 8.0, "depth_ramp": 8.0, "wave_ratio": 1.0, "cache_bytes": 100.0, "near_cache_bytes": 10.0}
    flops_per_s = np.array([[[100.0], [90.0], [80.0]], [[50.0], [40.0], [30.0]]])
    together = kernel_times(of(0, 1, 2), rates(flops_per_s=flops_per_s, **ramps)).total_s
    for index in range(3):
        alone = kernel_times(of(index), rates(flops_per_s=flops_per_s[:, [index]], **ramps)).total_s
        assert together[:, index].tolist() == alone[:, 0].tolist()
