from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.predict.kernel_time import BLAS_HALF, UNITS, Rates
from advisor.predict.rates import (
    addition_cycles,
    always_transposed_ratio,
    fft_share,
    join_s,
    launch_s,
    rate_table,
    sustained_bytes_per_s,
    sustained_flops_per_s,
    transposed_ratio,
    used_unit,
    uses_matrix_unit,
    winograd_speedup,
)
from advisor.records.device import Device, Efficiency
from advisor.records.prediction import IndexArray
from tests.predict.toys import device, efficiency, family


def rates_of(
    devices: list[Device],
    fits: list[Efficiency],
    *,
    families: Sequence[str],
    family: IndexArray,
    unit: IndexArray,
) -> Rates:
    """The rates of every device for every kernel, (devices, kernels, 1) or less."""
    return rate_table(devices, fits, families=families, units=unit.tolist()).at(
        np.arange(len(devices))[:, np.newaxis, np.newaxis],
        family=family[:, np.newaxis],
        unit=unit[:, np.newaxis],
    )


def rates(devices: list[Device], fits: list[Efficiency]) -> Rates:
    """For three kernels: a product in fp16, a copy on the vector units, a product in fp32."""
    units = [UNITS.index(unit) for unit in ("fp16", "vector", "fp32")]
    return rates_of(devices, fits, families=("copy", "matmul"), family=np.array([1, 0, 1]), unit=np.array(units))


def test_a_device_that_is_not_limited_sustains_its_peak() -> None:
    assert sustained_flops_per_s(device(), efficiency(power_exponent=0.5), unit="fp16") == 1e12


def test_a_unit_that_the_device_lacks_is_replaced_by_fp32() -> None:
    own = device(peak_flops_per_s={"vector": 1e12, "fp32": 2e12}, power_ratio={"fp32": 0.25})
    assert sustained_flops_per_s(own, efficiency(), unit="bf16") == 2e12
    assert sustained_flops_per_s(own, efficiency(power_exponent=0.5), unit="bf16") == 1e12  # sqrt(0.25) of it


@pytest.mark.parametrize(
    ("exponent", "share"),
    [(0.0, 1.0), (0.5, 0.5), (1.0, 0.25)],  # of a quarter of the power
)
def test_the_rate_falls_with_the_power_that_is_missing(exponent: float, share: float) -> None:
    own = device(power_ratio={"fp32": 1.0, "fp16": 0.25})
    fit = efficiency(power_exponent=exponent)
    assert sustained_flops_per_s(own, fit, unit="fp16") == pytest.approx(share * 1e12)
    assert sustained_flops_per_s(own, fit, unit="fp32") == 1e12


def test_vector_units_draw_the_power_of_fp32() -> None:
    own = device(power_ratio={"fp32": 0.25, "fp16": 1.0})
    assert sustained_flops_per_s(own, efficiency(power_exponent=0.5), unit="vector") == pytest.approx(0.5e12)


def test_only_a_card_that_exceeds_its_rated_clock_gains_by_it() -> None:
    fit = efficiency(clock_ratio=1.25)
    own = device(exceeds_rated_clock=True)
    assert sustained_flops_per_s(own, fit, unit="fp32") == 1.25e12
    # Products in fp32 that take every issue slot take all the power that there is, too; others do not.
    full = replace(own, issue_contention=1.0)
    assert sustained_flops_per_s(full, fit, unit="fp32") == 1e12
    assert sustained_flops_per_s(full, fit, unit="fp16") == sustained_flops_per_s(own, fit, unit="fp16")


def test_a_direct_kernel_computes_outside_tensor_cores() -> None:
    fit, own = efficiency(direct_ratio=0.25), device(peak_flops_per_s={"vector": 1e12, "fp16": 8e12})

    def rate(one: Device) -> float:
        indices = {"family": np.zeros(1, dtype=np.intp), "unit": np.full(1, UNITS.index("fp16"))}
        found = rates_of([one], [fit], families=("conv_grouped_backward",), **indices)
        return float(found.direct_flops_per_s.flat[0])

    assert rate(own) == 0.25e12
    assert rate(replace(own, kind="cpu")) == np.inf


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({"vendor": "NVIDIA"}, 0.0), ({"vendor": "AMD"}, 1.0), ({"vendor": "NVIDIA", "kind": "cpu"}, 1.0)],
)
def test_cudnn_alone_keeps_what_a_batch_norm_sums(changes: dict[str, Any], expected: float) -> None:
    assert rates([device(**changes)], [efficiency()]).reread_ratio.flat[0] == expected


def test_narrow_tensor_cores_reach_more_of_their_peak() -> None:
    fit, own = efficiency(narrow_tensor_speedup=1.25), device(has_narrow_tensor_cores=True)
    assert sustained_flops_per_s(own, fit, unit="fp16") / sustained_flops_per_s(device(), fit, unit="fp16") == 1.25
    assert sustained_flops_per_s(own, fit, unit="fp32") == sustained_flops_per_s(device(), fit, unit="fp32")


def test_a_matrix_unit_reaches_less_of_its_peak_and_leaves_images_that_torch_copies() -> None:
    own = device(kind="cpu", has_matrix_unit=True, peak_flops_per_s={"fp32": 1e12, "vector": 1e12, "bf16": 16e12})
    fit = efficiency(matrix_unit_ratio=0.25)
    assert sustained_flops_per_s(own, fit, unit="bf16") == pytest.approx(4e12)
    assert sustained_flops_per_s(own, fit, unit="vector") == pytest.approx(1e12)
    assert (uses_matrix_unit(own, fit, unit="bf16"), uses_matrix_unit(own, fit, unit="vector")) == (1, 0)
    assert uses_matrix_unit(replace(own, has_matrix_unit=False), fit, unit="bf16") == 0


def test_a_matrix_unit_reaches_as_much_of_its_peak_in_int8_as_in_bf16() -> None:
    own = device(kind="cpu", has_matrix_unit=True, peak_flops_per_s={"fp32": 1e12, "bf16": 16e12, "int8": 32e12})
    fit = efficiency(matrix_unit_ratio=0.25)
    assert [sustained_flops_per_s(own, fit, unit=unit) for unit in ("bf16", "int8")] == [4e12, 8e12]


def test_other_instructions_are_in_the_way_of_products_in_fp32_alone() -> None:
    fit = efficiency(shared_issue_ratio=0.64)
    for contention, ratio in ((0.0, 1.0), (0.5, 0.8), (1.0, 0.64)):
        own = device(issue_contention=contention)
        assert sustained_flops_per_s(own, fit, unit="fp32") == pytest.approx(ratio * 1e12)
        for unit in ("fp16", "vector"):
            assert sustained_flops_per_s(own, fit, unit=unit) == sustained_flops_per_s(device(), fit, unit=unit)


def test_a_devices_own_figures_scale_what_is_predicted_without_them() -> None:
    own = device(sustained_compute_ratio=0.5, sustained_memory_ratio=0.75)
    assert sustained_flops_per_s(own, efficiency(), unit="fp32") == 0.5e12
    assert sustained_bytes_per_s(own, efficiency()) == 0.75e11


def test_long_copies_reach_the_share_of_their_kind_of_memory() -> None:
    assert sustained_bytes_per_s(device(streaming_ratio=0.8), efficiency()) == pytest.approx(0.8e11)


def test_a_type_of_memory_has_its_own_fitted_share() -> None:
    fit = efficiency(memory_type_ratios={"GDDR6X": 1.1}, generation_memory_ratio=0.5)
    for memory_type, ratio in (("GDDR6X", 0.55), ("HBM9", 0.5), (None, 0.5)):
        assert sustained_bytes_per_s(device(memory_type=memory_type), fit) == pytest.approx(ratio * 1e11)


def test_a_cache_of_unknown_speed_is_three_times_as_fast_as_memory() -> None:
    devices = [device(), device(cache_bytes_per_s=5e11)]
    assert rates(devices, [efficiency()] * 2).cache_bytes_per_s.ravel().tolist() == [3e11, 5e11]


def test_every_kernel_runs_at_its_familys_share_of_its_own_unit() -> None:
    own = device(peak_flops_per_s={"vector": 1e12, "fp32": 2e12, "fp16": 8e12})
    fit = efficiency(families={"matmul": family(compute_ratio=0.5, memory_ratio=0.75), "*": family(memory_ratio=0.25)})
    found = rates([own, device()], [fit, efficiency()])
    assert found.flops_per_s[:, :, 0].tolist() == [[4e12, 1e12, 1e12], [1e12, 1e12, 1e12]]
    assert found.memory_bytes_per_s[:, :, 0].tolist() == [[0.75e11, 0.25e11, 0.75e11], [1e11, 1e11, 1e11]]
    assert found.flops_per_s.shape == (2, 3, 1)


def test_every_device_transposes_the_share_of_its_images() -> None:
    fits = [efficiency(nchw_transposed_ratio=0.25), efficiency(nchw_transposed_ratio=0.5)]
    devices = [device(kind="cpu"), device(kind="cpu")]
    assert rates(devices, fits).transposed_ratio[:, 0, 0].tolist() == [0.25, 0.5]


def test_a_gpu_transposes_images_for_tensor_cores_alone() -> None:
    """Without them halves are computed in fp32, as they come."""
    fit = efficiency(nchw_transposed_ratio=0.25)
    with_cores = device(peak_flops_per_s={"fp32": 1e13, "vector": 1e13, "fp16": 1e14})
    assert transposed_ratio(with_cores, fit, unit="fp16") == 0.25
    assert transposed_ratio(with_cores, fit, unit="fp32") == 0.0
    nvidia, amd = (replace(with_cores, vendor=vendor) for vendor in ("NVIDIA", "AMD"))
    assert [always_transposed_ratio(one, fit, unit="fp16") for one in (nvidia, amd)] == [1.0, 0.25]
    assert always_transposed_ratio(nvidia, fit, unit="fp32") == 0.0
    assert transposed_ratio(device(peak_flops_per_s={"fp32": 1e13, "vector": 1e13}), fit, unit="fp16") == 0.0


def test_winograd_is_of_fp32_and_outside_matrix_cores() -> None:
    fit = efficiency(winograd_speedup=2.0)
    nvidia = device(peak_flops_per_s={"fp32": 1e13, "vector": 1e13, "fp16": 1e14})
    amd = device(peak_flops_per_s={"fp32": 4e13, "vector": 2.5e13, "fp16": 1e14})
    mi210 = device(peak_flops_per_s={"fp32": 4.53e13, "vector": 2.26e13})
    assert winograd_speedup(nvidia, fit, unit="fp32") == 2.0
    assert winograd_speedup(nvidia, fit, unit="fp16") == 1.0
    assert winograd_speedup(nvidia, fit, unit="bf16") == 2.0  # which it has not, and computes in fp32
    assert winograd_speedup(amd, fit, unit="fp32") == pytest.approx(2.0 * 2.5 / 4.0)
    assert winograd_speedup(mi210, fit, unit="fp32") == 1.0  # its matrix cores are as fast without it
    assert not any(fft_share(one, fit, unit="fp32") for one in (nvidia, amd, mi210))


def test_fourier_transforms_take_the_place_of_winograd() -> None:
    fit = efficiency(winograd_speedup=2.0)
    hopper = device(peak_flops_per_s={"fp32": 1e13, "vector": 1e13, "fp16": 1e14}, convolves_by_fft=True)
    assert winograd_speedup(hopper, fit, unit="fp32") == 1.0
    assert [fft_share(hopper, fit, unit=unit) for unit in ("fp32", "vector", "fp16")] == [1.0, 1.0, 0.0]


COEFFICIENTS = {
    "overlap_ratio": 0.5, "edge_ramp": 3.0, "tile_rows": 256.0, "tile_columns": 64.0, "wave_ratio": 0.25,
    "cache_kept_ratio": 0.6, "repack_ratio": 0.875, "library_s": 2e-5, "page_s": 2e-6,
}  # fmt: skip


@pytest.mark.parametrize("name", COEFFICIENTS)
def test_a_coefficient_that_is_no_rate_is_passed_on_for_each_device(name: str) -> None:
    changes: dict[str, Any] = {name: COEFFICIENTS[name]}
    found = getattr(rates([device(), device()], [efficiency(), efficiency(**changes)]), name)
    assert found.shape == (2, 1, 1)
    assert found.ravel().tolist() == [getattr(efficiency(), name), COEFFICIENTS[name]]


def test_more_cores_take_longer_to_start_and_end_together() -> None:
    # 1 us x (4^0.5 - 1)
    fit = efficiency(launch_s=2e-6, join_s=1e-6)
    assert join_s(device(core_count=4), fit) == pytest.approx(1e-6)
    assert join_s(device(core_count=1), fit) == 0
    assert join_s(device(core_count=0.5), fit) == 0  # half a core has no second thread
    assert launch_s(device(core_count=4), fit) == launch_s(device(core_count=1), fit) == 2e-6
    assert launch_s(device(kind="cpu", host_time_ratio=1.5), fit) == 3e-6
    assert launch_s(device(kind="gpu", host_time_ratio=1.5), fit) == 2e-6  # the GPU's own
    devices = [device(core_count=1), device(core_count=4)]
    assert rates(devices, [fit, fit]).join_s[:, 0, 0].tolist() == pytest.approx([0, 1e-6])


def test_what_a_family_takes_beside_its_work_is_its_own_where_it_was_measured() -> None:
    own = replace(family(), launch_s=1e-6, core_bytes_per_s=5e9)
    fits = [efficiency(launch_s=2e-6, families={"norm": own, "*": family()}), efficiency(launch_s=3e-6)]
    found = rates_of(
        [device(), device()],
        fits,
        families=["matmul", "norm"],
        family=np.arange(2),
        unit=np.zeros(2, dtype=np.intp),
    )
    assert found.launch_s[:, :, 0].tolist() == [[2e-6, 1e-6], [3e-6, 3e-6]]
    assert found.core_bytes_per_s[:, :, 0].tolist() == [[np.inf, 5e9], [np.inf, np.inf]]


def test_cores_count_by_the_threads_that_they_hold_and_one_block_by_the_clock() -> None:
    # 84 cores of 1,536 threads are worth 63 of 2,048.
    found = rates([device(core_count=84, resident_threads_per_core=1536, clock_hz=2.82e9)], [efficiency()])
    assert (found.full_core_count.item(), found.lone_block_ratio.item()) == (63, 2)


def test_cores_and_cache_are_the_devices() -> None:
    found = rates([device(core_count=108, cache_bytes=40e6, cache_bytes_per_s=4e12)], [efficiency()])
    assert (found.core_count.item(), found.cache_bytes.item(), found.cache_bytes_per_s.item()) == (108, 40e6, 4e12)


def test_parameters_of_narrow_products_are_read_at_a_share_of_a_copys_rate() -> None:
    # 1e11 byte/s x 0.8 of long copies x 0.95
    large = device(streaming_ratio=0.8)
    (found,) = rates([large], [efficiency(narrow_product_ratio=0.95)]).narrow_bytes_per_s.ravel()
    assert found == pytest.approx(7.6e10)


@pytest.mark.parametrize(("vendor", "unit"), [("AMD", "fp32"), ("Intel", "bf16"), ("AWS", "bf16")])
def test_mkl_multiplies_bf16_as_fp32_on_amd(vendor: str, unit: str) -> None:
    own = device(kind="cpu", vendor=vendor, peak_flops_per_s={"fp32": 1e12, "vector": 1e12, "bf16": 2e12})
    assert used_unit(own, BLAS_HALF) == unit
    without = replace(own, peak_flops_per_s={"fp32": 1e12, "vector": 1e12})
    assert used_unit(without, BLAS_HALF) == "fp32"


@pytest.mark.parametrize(
    ("vendor", "core_count", "expected"), [("Intel", 2.0, 24), ("AMD", 2.0, 9), ("AMD", 1.0, 5), ("Intel", 1.0, 5)]
)
def test_threads_add_at_indices_by_a_locked_instruction_and_one_thread_needs_none(
    vendor: str, core_count: float, expected: float
) -> None:
    """A locked compare-and-swap takes a Zen 4 9 cycles and an Emerald Rapids 24."""
    own = device(kind="cpu", vendor=vendor, core_count=core_count)
    assert addition_cycles(own, efficiency()) == expected
