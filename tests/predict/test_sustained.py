from functools import cache
from pathlib import Path
from statistics import median

import pytest

from advisor.answers.measurement_file import read_measurements
from advisor.catalog.overlay import load_catalog
from advisor.predict.capability import gpu_device
from advisor.predict.sustained import (
    exceeds_rated_clock,
    has_narrow_tensor_cores,
    nvlink_bytes_per_s,
    peer_link_bytes_per_s,
    power_ratios,
    streaming_ratio,
)
from advisor.records.device import Gpu
from advisor.records.gpu_architecture import ARCHITECTURES
from tests.predict.test_capability import a_gpu

GPUS = load_catalog().gpus
OPERATORS = Path(__file__).parents[1] / "data/measured/neusight_ops.csv"


def test_a_t4_lacks_power_for_its_peak() -> None:
    # A FLOP of Turing takes 18.6 pJ on vector units and 2.1 pJ on tensor cores: 8.14 TFLOPS would draw 151.404 W and
    # 65.1 TFLOPS 136.71 W. A T4 has 70 W.
    ratios = power_ratios(GPUS["t4"])
    assert ratios["fp32"] == pytest.approx(70 / 151.404)
    assert ratios["fp16"] == pytest.approx(70 / 136.71)


def test_an_l4_lacks_power_for_its_peak() -> None:
    # A FLOP of Ada takes 5.4 pJ and 0.97 pJ: 30.29 TFLOPS would draw 163.566 W and 121.2 TFLOPS 117.564 W, of 72 W.
    ratios = power_ratios(GPUS["l4"])
    assert ratios["fp32"] == pytest.approx(72 / 163.566)
    assert ratios["fp16"] == ratios["bf16"] == ratios["tf32"] == pytest.approx(72 / 117.564)
    assert ratios["int8"] == ratios["fp8"] == ratios["fp16"]


@pytest.mark.parametrize("identifier", ["v100-pcie-16gb", "rtx-2080-ti", "a100-sxm4-40gb", "rtx-3090", "rtx-4090"])
def test_the_parts_that_the_energy_was_taken_from_have_the_power_for_fp32(identifier: str) -> None:
    # Within 1 %: datasheets round.
    assert power_ratios(GPUS[identifier])["fp32"] == pytest.approx(1.0, rel=0.01)


def test_a_gpu_without_tensor_cores_has_a_ratio_for_fp32_alone() -> None:
    # 11.3 TFLOPS at 22 pJ draw 248.6 W; a card of half of that has half the power.
    gpu = a_gpu(compute_capability="6.1", fp32_flops_per_s=11.3e12, tdp_w=124.3)
    assert power_ratios(gpu) == {"fp32": pytest.approx(0.5)}


@pytest.mark.parametrize("changes", [{"tdp_w": None}, {"compute_capability": None}, {"compute_capability": "99.0"}])
def test_nothing_is_said_of_a_gpu_whose_power_or_generation_is_unknown(changes: dict[str, object]) -> None:
    known: dict[str, object] = {"compute_capability": "7.5", "tdp_w": 70.0}
    assert power_ratios(a_gpu(**known))
    assert power_ratios(a_gpu(**(known | changes))) == {}


@pytest.mark.parametrize("gpu", [gpu for gpu in GPUS.values() if gpu.vendor == "NVIDIA"], ids=lambda gpu: gpu.id)
def test_every_shipped_gpu_of_nvidia_has_the_figures_of_its_architecture(gpu: Gpu) -> None:
    assert gpu.compute_capability in ARCHITECTURES, (
        f"{gpu.id}: add compute capability {gpu.compute_capability} to advisor/records/gpu_architecture.py, with "
        "the energy of a FLOP (TDP over peak of the part with the most power for each), contention, threads and NVLink"
    )


def test_only_these_shipped_gpus_have_no_power_limit() -> None:
    """No power or no energy of a FLOP is published for them."""
    without = {gpu.id for gpu in GPUS.values() if gpu.vendor == "NVIDIA" and not power_ratios(gpu)}
    known = {"k80", "b200", "b300", "gh200-96gb"}
    assert without == known, (
        f"{sorted(without - known)}: add `tdp_w` to the profile, and `joule_per_flop` of the compute capability to "
        "advisor/records/gpu_architecture.py"
    )


@pytest.mark.parametrize("gpu", GPUS.values(), ids=lambda gpu: gpu.id)
def test_no_shipped_gpu_sustains_more_than_its_datasheet_says(gpu: Gpu) -> None:
    assert all(0 < ratio <= 1 for ratio in power_ratios(gpu).values())
    assert 0 < streaming_ratio(gpu) < 1


PASSES = {"add": 3, "mul": 3, "div": 3, "add_number": 2, "mul_number": 2, "div_number": 2, "relu": 2}
"""How many floats an elementwise operator reads and writes for each of its result."""
LONG_S = 2e-4
"""Beside which a launch of 10 us takes 5 % at most."""
MEASURED_GPUS = ("p4", "t4", "p100-pcie-16gb", "v100-pcie-32gb", "a100-pcie-40gb")


@cache
def measured_shares() -> dict[str, float]:
    """The best of NeuSight's long elementwise operators on each GPU: bytes over seconds over the rated bandwidth."""
    best: dict[str, float] = {}
    for one in read_measurements(OPERATORS):
        passes = PASSES.get(one.model.partition("::")[2])
        if passes is not None and one.step_s >= LONG_S:
            share = 4 * passes * one.batch / one.step_s / GPUS[one.device].memory_bytes_per_s
            best[one.device] = max(best.get(one.device, 0.0), share)
    return best


@pytest.mark.parametrize("identifier", MEASURED_GPUS)
def test_copies_reach_the_share_of_the_bandwidth_that_was_measured(identifier: str) -> None:
    assert streaming_ratio(GPUS[identifier]) == pytest.approx(measured_shares()[identifier], abs=0.05)


@pytest.mark.parametrize("gpu", GPUS.values(), ids=lambda gpu: gpu.id)
def test_memories_that_nobody_measured_lie_between_those_that_somebody_did(gpu: Gpu) -> None:
    shares = [measured_shares()[identifier] for identifier in MEASURED_GPUS]
    assert min(shares) - 0.01 <= streaming_ratio(gpu) <= max(shares) + 0.01


def test_a_memory_of_unknown_kind_is_as_good_as_most() -> None:
    known = median(streaming_ratio(gpu) for gpu in GPUS.values() if gpu.memory_type is not None)
    assert streaming_ratio(a_gpu(memory_type=None)) == streaming_ratio(a_gpu(memory_type="HBM9"))
    assert streaming_ratio(a_gpu(memory_type=None)) == pytest.approx(known, abs=0.06)


@pytest.mark.parametrize("gpu", GPUS.values(), ids=lambda gpu: gpu.id)
def test_every_kind_of_memory_that_is_shipped_has_its_share(gpu: Gpu) -> None:
    is_fitted_alone = gpu.vendor == "Apple"  # what Macs share with the CPU: their own fit is relative to the default
    assert gpu.memory_type is None or is_fitted_alone or streaming_ratio(gpu) != 0.85


@pytest.mark.parametrize(
    ("name", "exceeds"),
    [
        ("GeForce RTX 3090", True),
        ("GeForce GTX 1080 Ti", True),
        ("TITAN RTX", True),
        ("RTX 6000 Ada", False),
        ("RTX A6000", False),
        ("RTX PRO 6000 Blackwell Server", False),
        ("Quadro RTX 8000", False),
        ("Tesla T4", False),
        ("A100 SXM4 80GB", False),
    ],
)
def test_cards_for_players_exceed_their_rated_clock_and_no_others(name: str, exceeds: bool) -> None:
    assert exceeds_rated_clock(a_gpu(name=name)) is exceeds


@pytest.mark.parametrize(
    ("identifier", "narrow"),
    [("rtx-3090", True), ("rtx-4090", True), ("rtx-2080-ti", True), ("a40", False), ("l4", False), ("mi100", False)],
)
def test_tensor_cores_of_geforce_are_narrow(identifier: str, narrow: bool) -> None:
    # 71 TFLOPS / 82 multiprocessors / 1.695 GHz = 511 FLOP per cycle of an RTX 3090; an A40: 149.7 / 84 / 1.74 = 1024.
    assert has_narrow_tensor_cores(GPUS[identifier]) is narrow


@pytest.mark.parametrize(
    ("identifier", "contention"),
    [
        *[("p100-pcie-16gb", 0.0), ("t4", 0.0), ("a100-sxm4-80gb", 0.0), ("mi210", 0.0)],
        *[("a10g", 1.0), ("l4", 1.0), ("rtx-5090", 1.0), ("h100-sxm5-80gb", 0.5), ("b200", 0.5)],
    ],
)
def test_lanes_for_fp32_that_other_instructions_compete_for(identifier: str, contention: float) -> None:
    # The guide's table: 64 multiply-adds in fp32 per cycle and multiprocessor on 8.0 for 4 warps issued, 128 on 8.6.
    assert gpu_device(GPUS[identifier]).issue_contention == contention


@pytest.mark.parametrize(("identifier", "by_fft"), [("h100-sxm5-80gb", True), ("h200-sxm-141gb", True), ("l4", False)])
def test_hopper_convolves_by_fft(identifier: str, by_fft: bool) -> None:
    assert gpu_device(GPUS[identifier]).convolves_by_fft is by_fft


def test_collectives_reach_three_quarters_of_amds_links() -> None:
    # 128 GB/s in both directions, of which RCCL counts on 48 of the 64 in one.
    assert peer_link_bytes_per_s(GPUS["mi300x"]) == pytest.approx(48e9)
    assert peer_link_bytes_per_s(GPUS["mi100"]) is None
    assert peer_link_bytes_per_s(GPUS["a100-sxm4-80gb"]) is None


def test_a_bridge_between_two_cards_does_not_link_a_machine() -> None:
    assert GPUS["a100-pcie-80gb"].nvlink_bytes_per_s == 600e9
    assert nvlink_bytes_per_s(GPUS["a100-pcie-80gb"]) is None
    assert nvlink_bytes_per_s(a_gpu()) is None


def test_every_shipped_gpu_with_nvlink_says_what_it_reaches() -> None:
    assert all(gpu.nvlink_reach is not None for gpu in GPUS.values() if gpu.nvlink_bytes_per_s is not None)
    assert all(nvlink_bytes_per_s(gpu) is not None for gpu in GPUS.values() if gpu.nvlink_reach == "machine")


@pytest.mark.parametrize(
    ("identifier", "threads"),
    [("v100-pcie-16gb", 2048), ("t4", 1024), ("a100-sxm4-80gb", 2048), ("a40", 1536), ("l4", 1536), ("mi100", 2048)],
)
def test_a_core_holds_as_many_threads_as_its_compute_capability_says(identifier: str, threads: int) -> None:
    assert gpu_device(GPUS[identifier]).resident_threads_per_core == threads


def test_collectives_reach_four_fifths_of_an_a100s_nvlink_in_one_direction() -> None:
    # 600 GB/s in both directions: 12 links of 25 GB/s in one, of which NCCL counts on 20 each.
    assert nvlink_bytes_per_s(GPUS["a100-sxm4-80gb"]) == pytest.approx(240e9)
    # 18 links of H100 at 20.6 GB/s.
    assert nvlink_bytes_per_s(GPUS["h100-sxm5-80gb"]) == pytest.approx(370.8e9)
