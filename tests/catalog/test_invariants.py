import math
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from advisor.catalog.invariants import broken_device_invariants, broken_invariants, catalog_warnings
from advisor.catalog.overlay import load_catalog
from advisor.errors import ProfileError
from advisor.records.price import Catalog, Offer, Price
from tests.says import assert_says

TODAY = date(2026, 9, 30)


def price(kind: str, usd_per_hour: float, **changes: object) -> Price:
    values: dict[str, object] = {"date": "2026-01-01", "source": "the list"}
    return Price(kind=kind, usd_per_hour=usd_per_hour, **(values | changes))  # type: ignore[arg-type]


def machine(*prices: Price, instance: str = "g1", gpu_count: int = 1) -> Offer:
    return Offer(
        id=f"acme/us/{instance}",
        provider="acme",
        tier="neocloud",
        region="us",
        geo="US",
        instance=instance,
        vcpus=8,
        threads_per_core=2,
        memory_bytes=32e9,
        cpu=None,
        gpu="l4",
        gpu_count=gpu_count,
        prices=prices,
    )


@pytest.mark.parametrize(
    ("prices", "problem"),
    [
        ([price("on_demand", 0.0)], "on_demand of 0.0 dollars per hour"),
        ([price("on_demand", math.nan)], "on_demand of nan dollars per hour"),
        ([price("on_demand", math.inf)], "on_demand of inf dollars per hour"),
        ([price("on_demand", -1.0)], "on_demand of -1.0 dollars per hour"),
        ([price("on_demand", 2377.0)], "on_demand of 2377.0 dollars per hour"),  # the total of a year
        ([price("on_demand", 1.0), price("spot", 1.1)], "spot of 1.1 is above on-demand of 1.0"),
        ([price("on_demand", 1.0), price("commit_1y", 1.1)], "commit_1y of 1.1 is above on-demand of 1.0"),
        ([price("on_demand", 1.0), price("commit_3y", 0.1)], "commit_3y of 0.1 is less than 15% of on-demand of 1.0"),
        ([price("on_demand", 1.0, date="2026-10-01")], "on_demand is dated 2026-10-01, after today"),
    ],
)
def test_a_price_that_cannot_be_right_is_named_with_its_offer(prices: list[Price], problem: str) -> None:
    assert broken_invariants([machine(*prices)], today=TODAY) == (f"acme/us/g1: {problem}",)


def test_a_price_per_gpu_that_is_taken_for_that_of_the_machine_is_found() -> None:
    one, two = machine(price("on_demand", 2.0)), machine(price("on_demand", 4.0), instance="g2", gpu_count=2)
    # 8 GPUs for the 2.00 of one: 0.25 each
    eight = machine(price("on_demand", 2.0), instance="g8", gpu_count=8)
    (broken,) = broken_invariants([one, two, eight], today=TODAY)
    assert_says(broken, "acme/us/g8", "on_demand", "0.250", "8 GPUs", "2.000")
    assert broken_invariants([one, two, replace(eight, prices=(price("on_demand", 16.0),))], today=TODAY) == ()


def test_a_price_that_says_itself_that_it_is_wrong_breaks_none() -> None:
    doubtful = [price("on_demand", 1.0), price("spot", 3.0, suspect=True), price("commit_3y", 5.0, stale=True)]
    assert broken_invariants([machine(*doubtful)], today=TODAY) == ()


# Files of a user


def overlay(home: Path, text: str) -> Catalog:
    (home / "work/advisor.yaml").write_text(text)
    return load_catalog(cwd=home / "work")


def own_price(usd: object, *, instance: str = "g6.xlarge", kind: str = "on_demand", day: str = "2026-01-01") -> str:
    return f"provider: aws\ndate: {day}\ninstances:\n  {instance}: {{usd_per_hour: {{us-east-1: {{{kind}: {usd}}}}}}}\n"


def test_a_price_far_from_ours_of_the_same_offer_is_doubted(home: Path) -> None:
    # Ours is 0.8048 on demand: five times of it are 4.02, a fifth 0.16.
    for usd, is_doubted in ((61, True), (4.1, True), (3.9, False), (0.7, False), (0.17, False), (0.15, True)):
        doubts = overlay(home, own_price(usd)).doubts
        assert bool(doubts) == is_doubted, usd
        assert all("aws/us-east-1/g6.xlarge" in doubt and "0.8048" in doubt for doubt in doubts)


def test_a_commitment_of_the_user_above_on_demand_is_doubted_and_ranked(home: Path) -> None:
    catalog = overlay(home, own_price("0.61, commit_1y: 0.8"))
    (doubt,) = catalog.doubts
    assert_says(doubt, "g6.xlarge", "commit_1y of 0.8", "0.61")
    assert not any(price.suspect for offer in catalog.offers for price in offer.prices if price.basis == "own_rate")
    assert overlay(home, own_price("0.61, commit_1y: 0.6")).doubts == ()


def test_a_machine_of_the_user_that_cannot_be_predicted_is_doubted(home: Path) -> None:
    row = "usd_per_hour: {x: {on_demand: 0.8}}"
    text = f"provider: lab\ntier: neocloud\ndate: 2026-11-01\ninstances: {{a: {{machine: {{vcpus: 4}}, {row}}}}}\n"
    (doubt,) = overlay(home, text).doubts
    assert_says(doubt, "lab/x/a", "CPU is unknown")


def test_a_price_of_a_new_offer_is_compared_with_all_of_the_same_gpu(home: Path) -> None:
    text = (
        "provider: mine\ntier: neocloud\ndate: 2026-01-01\ninstances:\n"
        "  box: {{machine: {{vcpus: 8, memory_gib: 32, gpu: l4, gpu_count: {count}}},"
        " usd_per_hour: {{here: {{on_demand: {usd}}}}}}}\n"
    )
    # L4s are listed at 0.13 to 4.93 each; four times beyond are 0.0325 and 19.7.
    for count, usd, is_doubted in ((1, 20, True), (2, 20, False), (1, 0.05, False), (1, 0.03, True), (8, 0.2, True)):
        assert bool(overlay(home, text.format(count=count, usd=usd)).doubts) == is_doubted, (count, usd)


def test_a_discount_that_leaves_nearly_nothing_is_doubted(home: Path) -> None:
    catalog = overlay(home, "discounts: [{provider: aws, percent: 99}]\n")
    assert len(catalog.doubts) > 1000
    assert len(catalog_warnings(catalog, today=TODAY)) == 6  # five, and the count of the rest
    assert overlay(home, "discounts: [{provider: aws, percent: 70}]\n").doubts == ()


@pytest.mark.parametrize("usd", ["1e-12", "5e-324", "1e300", "1e308", "9" * 5000, "-1", ".nan", ".inf", "0"])
def test_a_price_that_no_machine_can_have_is_refused(home: Path, usd: str) -> None:
    with pytest.raises(ProfileError) as caught:
        overlay(home, own_price(usd))
    assert "advisor.yaml:4: instances.g6.xlarge.usd_per_hour.us-east-1.on_demand" in caught.value.message
    assert caught.value.hint


def test_a_price_of_a_day_to_come_is_a_warning(home: Path) -> None:
    catalog = overlay(home, own_price(0.8, day="2027-03-01"))
    (warning,) = catalog_warnings(catalog, today=date(2027, 2, 28))
    assert "2027-03-01" in warning
    assert catalog_warnings(catalog, today=date(2027, 3, 1)) == ()


def test_an_exchange_rate_of_a_day_to_come_is_a_warning(home: Path) -> None:
    catalog = overlay(home, "exchange_rates: {EUR: {usd: 1.16, date: 2027-03-01}}")
    (warning,) = catalog_warnings(catalog, today=date(2027, 2, 28))
    assert_says(warning, "2027-03-01", "EUR")
    assert catalog_warnings(catalog, today=date(2027, 3, 1)) == ()


def device(home: Path, **changes: object) -> Catalog:
    figures: dict[str, object] = {
        "id": "t4", "name": "T4", "vendor": "NVIDIA", "generation": "Turing", "sm_count": 40, "boost_mhz": 1590,
        "memory_gib": 15, "memory_gb_per_s": 320, "fp32_tflops": 8.14, "fp16_tensor_tflops": 65.1, "source": "mine",
    }  # fmt: skip
    file = home / "own/devices/gpu/t4.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{key}: {value}\n" for key, value in (figures | changes).items()))
    return load_catalog(cwd=home / "work", profiles=home / "own")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("memory_gb_per_s", "1e308"), ("sm_count", "1e20"), ("memory_gib", "1e12"), ("boost_mhz", "1e-30"),
        ("fp32_tflops", "1e10"), ("sustained_compute_ratio", "1e9"), ("tdp_w", "5e-324"),
    ],
)  # fmt: skip
def test_a_figure_that_no_device_can_have_is_refused_at_its_line(home: Path, key: str, value: str) -> None:
    with pytest.raises(ProfileError) as caught:
        device(home, **{key: value})
    assert f": {key}: " in caught.value.message


@pytest.mark.parametrize(
    ("key", "value"),
    [("memory_gb_per_s", 800), ("sm_count", 5), ("memory_gib", 64), ("fp16_tensor_tflops", 650), ("boost_mhz", 300)],
)
def test_a_figure_far_from_ours_of_the_same_device_is_doubted(home: Path, key: str, value: float) -> None:
    assert device(home).doubts == ()
    assert any(doubt.startswith("t4: ") for doubt in device(home, **{key: value}).doubts)


def test_a_doubted_figure_is_given_in_a_unit_of_files_and_twice_ours_is_doubted(home: Path) -> None:
    (bandwidth,) = device(home, memory_gb_per_s=1000).doubts
    assert_says(bandwidth, "t4: memory_gb_per_s", "1000")
    # Ours is 1,590 MHz, which is also too fast for the FLOP.
    assert_says(device(home, boost_mhz=3180).doubts[0], "t4: boost_ghz", "3.18", "1.59")


def test_figures_of_a_new_device_that_contradict_each_other_are_doubted(home: Path) -> None:
    assert device(home, id="toy").doubts == ()
    # 8.14e12 / (4 x 1.59e9) = 1280 FLOP for an SM and cycle; 10 GB/s read 16 GB 0.6 times a second.
    for key, value in (("sm_count", 4), ("memory_gb_per_s", 10), ("tf32_tensor_tflops", 80)):
        (doubt,) = device(home, id="toy", **{key: value}).doubts
        assert doubt.startswith("toy: ")


def test_clocks_of_a_cpu_that_do_not_rise_are_found(shipped: Catalog) -> None:
    cpu = next(cpu for cpu in shipped.cpus.values() if cpu.base_hz and cpu.boost_hz)
    assert broken_device_invariants([cpu]) == ()
    assert len(broken_device_invariants([replace(cpu, boost_hz=cpu.base_hz - 1e8)])) == 1  # type: ignore[operator]


@pytest.mark.parametrize(("capability", "is_doubted"), [("7.5", False), ("99.0", True), ("10.0", True)])
def test_a_power_limit_that_no_prediction_uses_is_doubted(home: Path, capability: str, is_doubted: bool) -> None:
    """No energy of a FLOP is known for 99.0, which does not exist, nor for 10.0, whose parts publish too little."""
    doubts = device(home, tdp_w=70, compute_capability=f'"{capability}"').doubts
    assert [capability in doubt and "tdp_w" in doubt for doubt in doubts] == [True] * is_doubted
    assert any("tdp_w" in doubt for doubt in device(home, tdp_w=70).doubts)  # no compute capability at all
