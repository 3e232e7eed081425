"""Watts of machines, and the energy and CO2 of jobs on them, by hand."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.cost.power import load_ratios, machine_power
from advisor.cost.rank_offers import Ranking
from advisor.records.answer import JobLimits
from advisor.records.billing import Billing
from advisor.records.energy import CpuPower, CpuPowers, EnergyData, GpuPower, Grid, Grids
from advisor.records.prediction import Scaling
from advisor.records.price import Offer
from advisor.records.scale import Plan
from tests.cost import toys

GPU = GpuPower(
    idle_ratio=0.1,
    compute_ratio=0.8,
    memory_ratio=0.4,
    overhead_ratio=0.3,
    most_ratio=0.95,
    log_spread=0.1,
    unseen_log_spread=0.3,
    idle_log_spread=0.5,
    fitted_on=("seen",),
    source="by hand",
)
XEON = CpuPower(idle_w_per_core=2.0, busy_w_per_core=6.0, log_spread=0.2, source="by hand")
OTHER = CpuPower(idle_w_per_core=1.0, busy_w_per_core=4.0, log_spread=0.5, source="by hand")
CPUS = CpuPowers(unknown_vcpus_per_gpu=16, cpus={"xeon": XEON, "*": OTHER})
GRIDS = Grids(
    log_spread=0.0,
    regions={
        "acme/us-1": Grid(gco2_per_kwh=400, pue=1.25, place="here", source="by hand"),
        "acme/eu-1": Grid(gco2_per_kwh=50, place="there", year=2024, source="by hand"),
    },
)
ENERGY = EnergyData(gpu=GPU, cpu=CPUS, grids=GRIDS)
CARD = toys.device("seen", kind="gpu", tdp_w=400.0)
SHARES = {
    "compute_ratio": np.array([[0.5]]),
    "memory_ratio": np.array([[0.5]]),
    "overhead_ratio": np.array([[0.1]]),
}


def gpu_offer(instance: str = "m1", **changes: Any) -> Offer:
    return toys.offer(instance, **({"gpu": "seen", "gpu_count": 1} | changes))


def power_of(offer: Offer, device: Any = CARD, energy: EnergyData = ENERGY, **changes: Any) -> Any:
    predictions = toys.predictions(device, step_s=[[1.0]], **(SHARES | changes))
    (priced,) = toys.selection(offer).priced
    nobody = np.zeros(1, dtype=np.intp)
    return machine_power([priced], device=nobody, batch=nobody, predictions=predictions, energy=energy)


def test_each_part_of_a_gpu_draws_its_power_for_its_share_of_the_time() -> None:
    compute, memory, overhead = load_ratios(GPU, [np.array([0.5]), np.array([0.5]), np.array([0.1])])
    assert (compute[0], memory[0], overhead[0]) == (pytest.approx(0.4), pytest.approx(0.2), pytest.approx(0.03))


def test_the_power_limit_bounds_the_sum_and_keeps_the_proportions() -> None:
    compute, memory, _ = load_ratios(GPU, [np.array([1.0]), np.array([1.0]), np.array([0.0])])
    # 0.95 - 0.1 = 0.85 are left for 0.8 + 0.4 = 1.2, so two thirds of it are compute
    assert (compute[0], memory[0]) == (pytest.approx(0.85 * 2 / 3), pytest.approx(0.85 / 3))


def test_a_gpu_machine_draws_idle_load_and_its_share_of_the_server() -> None:
    power = power_of(gpu_offer(gpu_count=1))
    # GPU: 400 W x (0.1 idle + 0.4 + 0.2 + 0.03); host: 8 vCPUs = 4 cores x 2 W idle, and one vCPU of 8 busy adds
    # 4 cores x (6 - 2) W / 8
    (watts,) = power.parts()
    assert (watts.idle_gpu_w, watts.compute_w, watts.memory_w) == (40, pytest.approx(160), pytest.approx(80))
    assert (watts.overhead_w, watts.idle_host_w, watts.busy_host_w) == (pytest.approx(12), 8, 2)
    assert (power.load_w[0], power.idle_w[0], watts.total_w) == (pytest.approx(302), 48, pytest.approx(302))
    # sqrt((292 x 0.1)^2 + (10 x 0.2)^2) / 302
    assert power.log_spread[0] == pytest.approx(math.hypot(29.2, 2.0) / 302)


def test_gpus_that_the_plan_does_not_use_idle() -> None:
    several = toys.device("seen", kind="gpu", tdp_w=400.0, gpu_count=4)
    power = power_of(gpu_offer(gpu_count=4), several)
    # 4 x 40 W idle, and one GPU adds 252 W
    assert power.load_w[0] - 10 == pytest.approx(160 + 252)


def test_the_gpus_of_a_plan_all_work() -> None:
    several = toys.device("seen", kind="gpu", tdp_w=400.0, gpu_count=4)
    only = np.zeros((1, 1), dtype=np.intp)
    plan = Scaling(plans=(Plan(machines=2, data=8),), plan=only, efficiency_ratio=np.ones((1, 1)))
    power = power_of(gpu_offer(gpu_count=4), several, scaling=plan)
    # on each of two machines 4 GPUs work, and 4 of 8 vCPUs of the host
    assert power.load_w[0] == pytest.approx(160 + 4 * 252 + 8 + 4 * 4 / 2)


def test_a_cpu_that_computes_is_busy_as_a_whole() -> None:
    power = power_of(toys.offer(), toys.device("xeon"))
    assert (power.load_w[0], power.idle_w[0]) == (4 * 6, 4 * 2)


def test_a_host_of_which_nothing_is_known_is_the_usual_one() -> None:
    power = power_of(gpu_offer(vcpus=None, threads_per_core=None, cpu=None))
    # 16 vCPUs = 8 cores of any CPU: 8 x 1 W idle, and 8 x 3 W x 1/16 busy
    assert (power.idle_host_w[0], power.busy_host_w[0]) == (8, 1.5)


def test_an_unseen_gpu_has_a_wider_interval() -> None:
    unseen = power_of(gpu_offer(gpu="new"), toys.device("new", kind="gpu", tdp_w=400.0))
    assert unseen.log_spread[0] > 2 * power_of(gpu_offer()).log_spread[0]


@pytest.mark.parametrize(
    ("offer", "device", "energy"),
    [
        (gpu_offer(), toys.device("seen", kind="gpu"), ENERGY),
        (gpu_offer(), CARD, EnergyData(cpu=CPUS)),
        (toys.offer(), toys.device("xeon"), EnergyData(gpu=GPU)),
    ],
)
def test_what_is_not_known_is_not_a_number(offer: Offer, device: Any, energy: EnergyData) -> None:
    power = power_of(offer, device, energy)
    assert np.isnan(power.load_w[0])
    assert power.parts() == [None]


def test_a_machine_whose_owner_measured_it_draws_that() -> None:
    predicted, power = power_of(gpu_offer()), power_of(gpu_offer(power_w=604.0))
    # The measured watts are those under load; idle it draws the predicted 48 W, with their error.
    assert (power.load_w[0], power.log_spread[0]) == (pytest.approx(604), 0)
    assert (power.idle_w[0], power.idle_log_spread[0]) == (48, predicted.idle_log_spread[0])
    (watts,) = power.parts()
    # 604 - 48 W instead of 302 - 48 W are divided as predicted: 160 W of compute become 350 W.
    assert watts.compute_w == pytest.approx(160 * 556 / 254)


def test_a_machine_draws_no_more_when_idle_than_its_owner_measured_under_load() -> None:
    power = power_of(gpu_offer(power_w=24.0))
    assert (power.load_w[0], power.idle_w[0]) == (pytest.approx(24), pytest.approx(24))


def ranked(*offers: Offer, device: Any = CARD, step_s: float = 36.0, billing: Any = None, **job: Any) -> Ranking:
    """Rank one GPU in several offers: 100 steps of one sample."""
    return toys.rank(
        toys.selection(*offers),
        fleet=toys.fleet(*(0 for _ in offers), devices=(device,)),
        predictions=toys.predictions(device, step_s=[[step_s]], **SHARES),
        job=toys.job(100, **job),
        billing=replace(billing or Billing(), energy=ENERGY),
    )


def test_the_energy_and_the_co2_of_a_job() -> None:
    (quote,) = ranked(gpu_offer()).quotes
    assert quote.energy_kwh is not None
    assert quote.co2_kg is not None
    # an hour at 302 W is 0.302 kWh; x PUE 1.25 x 400 g = 151 g
    assert quote.energy_kwh.mid == pytest.approx(0.302)
    assert quote.co2_kg.mid == pytest.approx(0.151)
    # the time is within 10 % (a tenth more is 1.1), the power within its spread; both are independent
    spread = math.hypot(math.log(1.1), 1.645 * math.hypot(29.2, 2.0) / 302)
    assert quote.energy_kwh.high == pytest.approx(0.302 * math.exp(spread), rel=1e-3)
    assert quote.power is not None
    assert quote.power.total_w == pytest.approx(302)


def test_a_machine_that_starts_is_idle() -> None:
    (quote,) = ranked(gpu_offer(), billing=toys.billing(start_up_s=3600.0)).quotes
    assert quote.energy_kwh is not None
    # an hour of start-up at 48 W, then one of computing at 302 W
    assert quote.energy_kwh.mid == pytest.approx(0.048 + 0.302)


def test_a_service_draws_idle_power_between_its_requests() -> None:
    # 1,200 requests a day of 36 s each keep a machine busy for half of it
    (quote,) = ranked(gpu_offer(), requests_per_day=1200).quotes
    assert quote.energy_kwh is not None
    assert (quote.instance_count, quote.idle_ratio) == (1, pytest.approx(0.5))
    # 730 hours, half at 302 W and half at 48 W
    assert quote.energy_kwh.mid == pytest.approx(730 * (0.302 + 0.048) / 2)
    (rare,) = ranked(gpu_offer(), requests_per_day=12).quotes
    assert rare.energy_kwh is not None
    # busy for 0.5 % of the time: 48 W, of which 40 W have a spread of 0.5 and 8 W one of 0.2
    spread = 1.645 * math.hypot(40 * 0.5, 8 * 0.2) / 48
    assert rare.energy_kwh.high / rare.energy_kwh.mid == pytest.approx(math.exp(spread), rel=0.03)


def test_a_region_without_a_figure_has_no_co2_but_energy() -> None:
    (quote,) = ranked(gpu_offer(region="moon-1")).quotes
    assert quote.co2_kg is None
    assert quote.energy_kwh is not None


def test_a_limit_on_co2_leaves_out_what_emits_more_and_what_is_not_known() -> None:
    here, there, moon = (gpu_offer(f"m{place}", region=place) for place in ("us-1", "eu-1", "moon-1"))
    ranking = ranked(here, there, moon, limits=JobLimits(max_co2_kg=0.1))
    # 151 g in us-1; 0.302 kWh x 50 g = 15.1 g in eu-1, whose PUE is not known
    assert [quote.region for quote in ranking.quotes] == ["eu-1"]
    assert toys.said(ranking.rejected) == [
        ("mmoon-1", "unknown-co2", "the CO2 of the grid is not known in acme moon-1"),
        ("mus-1", "over-max-co2", "emits 151 g, 51 g more than --max-co2 100 g"),
    ]


def test_an_offer_that_cannot_do_the_job_is_left_out_for_that_and_not_for_its_co2() -> None:
    ranking = ranked(gpu_offer(), step_s=math.inf, objective="co2")
    assert not ranking.quotes
    assert [one.code for one in ranking.rejected] == ["does-not-fit"]


def test_a_limit_on_co2_says_that_the_power_is_not_known() -> None:
    card = toys.device("seen", kind="gpu")
    ranking = ranked(gpu_offer(), device=card, limits=JobLimits(max_co2_kg=10.0))
    assert toys.said(ranking.rejected) == [("m1", "unknown-co2", "the power of its seen is not known")]


def test_ranking_by_co2_puts_the_lowest_first_and_leaves_out_what_is_not_known() -> None:
    cheap, clean, moon = (
        gpu_offer(f"m{place}", region=place, usd_per_hour=usd)
        for place, usd in (("us-1", 1.0), ("eu-1", 5.0), ("moon-1", 0.5))
    )
    ranking = ranked(cheap, clean, moon, objective="co2")
    assert [quote.region for quote in ranking.quotes] == ["eu-1", "us-1"]
    assert [one.code for one in ranking.rejected] == ["unknown-co2"]
    # one is cheaper and the other cleaner
    assert [quote.on_co2_front for quote in ranking.quotes] == [True, True]


def test_the_front_of_cost_and_co2_has_only_known_figures() -> None:
    clean, dirty, moon = (
        gpu_offer(f"m{place}", region=place, usd_per_hour=usd)
        for place, usd in (("eu-1", 1.0), ("us-1", 5.0), ("moon-1", 0.5))
    )
    fronts = {quote.region: quote.on_co2_front for quote in ranked(clean, dirty, moon).quotes}
    assert fronts == {"eu-1": True, "us-1": False, "moon-1": False}


def test_the_electricity_of_an_owned_machine_is_that_of_its_power() -> None:
    own = gpu_offer(
        tier="owned",
        prices=(toys.price(1.0, kind="owned", basis="own_hardware"),),
        running_usd_per_hour=0.4,
        electricity_usd_per_kwh=0.5,
        gco2_per_kwh=100.0,
    )
    (quote,) = ranked(own).quotes
    assert quote.co2_kg is not None
    # 1.0 $/h were read with 0.4 $/h of electricity at full load; at 302 W it is 0.151 $/h
    assert quote.usd_per_hour == pytest.approx(0.6 + 0.151)
    assert quote.job_usd.mid == pytest.approx(0.751)
    assert quote.co2_kg.mid == pytest.approx(0.0302)


def test_a_service_on_an_owned_machine_pays_for_idle_watts_between_its_requests() -> None:
    def cost(power_w: float | None, *, requests_per_day: int) -> Any:
        own = gpu_offer(
            tier="owned",
            prices=(toys.price(1.0, kind="owned", basis="own_hardware"),),
            running_usd_per_hour=0.4,
            electricity_usd_per_kwh=0.5,
            power_w=power_w,
        )
        (quote,) = ranked(own, requests_per_day=requests_per_day).quotes
        return quote

    # Busy for half of 730 hours: 0.6 $/h without electricity, 302 or 800 W while it computes, 48 W while it is idle.
    for power_w, load_kw in ((None, 0.302), (800.0, 0.8)):
        half = cost(power_w, requests_per_day=1200)
        mean_usd_per_hour = 0.6 + 0.5 * (load_kw + 0.048) / 2
        assert half.job_usd.mid == pytest.approx(730 * mean_usd_per_hour)
        assert half.usd_per_hour == pytest.approx(mean_usd_per_hour)
        assert half.job_parts_usd.idle_time == pytest.approx(365 * (0.6 + 0.5 * 0.048))
        assert half.energy_kwh.mid == pytest.approx(730 * (load_kw + 0.048) / 2)
    # Busy for 0.5 %, the measured watts under load hardly matter.
    measured, predicted = (cost(power_w, requests_per_day=12).job_usd.mid for power_w in (800.0, None))
    assert measured - predicted == pytest.approx(0.005 * 730 * 0.5 * 0.498)


@pytest.mark.parametrize("power_w", [None, 800.0])
@pytest.mark.parametrize("job", [{}, {"requests_per_day": 1200}, {"requests_per_day": 12}])
def test_the_cost_of_electricity_is_as_uncertain_as_the_energy(power_w: float | None, job: dict[str, Any]) -> None:
    own = gpu_offer(
        tier="owned",
        prices=(toys.price(0.4, kind="owned", basis="own_hardware"),),
        running_usd_per_hour=0.4,
        electricity_usd_per_kwh=0.5,
        power_w=power_w,
    )
    (quote,) = ranked(own, **job).quotes
    for end in ("low", "mid", "high"):
        assert getattr(quote.job_usd, end) == pytest.approx(0.5 * getattr(quote.energy_kwh, end))


def test_the_error_of_the_watts_concerns_the_electricity_of_an_owned_machine_and_not_its_purchase() -> None:
    own = gpu_offer(
        tier="owned",
        prices=(toys.price(1.0, kind="owned", basis="own_hardware"),),
        running_usd_per_hour=0.4,
        electricity_usd_per_kwh=0.5,
    )
    (quote,) = ranked(own).quotes
    # 0.6 of 0.751 dollars have no error; the rest has sqrt((292 x 0.1)^2 + (10 x 0.2)^2) / 302. The time errs by 1.1.
    spread = math.hypot(math.log(1.1), 1.645 * 0.151 / 0.751 * math.hypot(29.2, 2.0) / 302)
    assert quote.job_usd.high == pytest.approx(0.751 * math.exp(spread), rel=1e-3)


def test_an_owned_machine_with_predicted_watts_may_be_dearer_than_a_rented_one() -> None:
    def chance(power_w: float | None) -> float:
        own = gpu_offer(
            "own",
            tier="owned",
            prices=(toys.price(0.4, kind="owned", basis="own_hardware"),),
            running_usd_per_hour=0.4,
            electricity_usd_per_kwh=0.5,
            power_w=power_w,
        )
        # On the same GPU, so that an error of the time does not change their order.
        found = {one.instance: one for one in ranked(own, gpu_offer("rented", usd_per_hour=0.16)).quotes}
        return found["own"].chance_cheapest

    # 302 W at 0.5 $/kWh cost 0.151 $/h. With a spread of 0.0969 it is less than 0.16 with the normal distribution at
    # ln(0.16 / 0.151) / 0.0969 = 0.597: 72.5 %.
    assert chance(302.0) == 1
    assert chance(None) == pytest.approx(0.725, abs=0.01)
