"""A service of one's own and an API with the same model."""

from collections.abc import Callable

import pytest

from advisor.cost.api_comparison import api_price_of, compare_with_api, request_usd
from advisor.cost.by_kind import ByKind
from advisor.errors import UsageError
from advisor.records.answer import Job
from advisor.records.generation import Generation
from advisor.records.price import ApiPrice
from tests.cost.crossings_toys import kind_cost, times
from tests.cost.toys import job as job_of

GENERATION = Generation(prompt_tokens=1000, output_tokens=500)


def machines(*, usd_per_month: float, requests_per_day: int, **intervals: float) -> Callable[[Job], ByKind]:
    """One kind of GPU machine; each serves so many requests."""

    def cheapest(job: Job) -> ByKind:
        count = -(-(job.requests_per_day or 0) // requests_per_day)
        ends = {name: times(count * usd_per_month, ratio) for name, ratio in intervals.items()}
        return {"gpu": kind_cost("gpu", count * usd_per_month, **ends)}

    return cheapest


def job(generation: Generation | None = GENERATION, *, requests_per_day: int | None = None) -> Job:
    return job_of(generation=generation, requests_per_day=requests_per_day)


def test_a_request_pays_for_its_tokens_and_less_for_those_cached() -> None:
    price = ApiPrice(input_usd_per_mtok=2.0, output_usd_per_mtok=6.0, cached_usd_per_mtok=0.5, date="", source="")
    # 1,000 x 2 + 500 x 6 = 5,000 millionths of a dollar; with 600 cached: 400 x 2 + 600 x 0.5 + 3,000 = 4,100.
    assert request_usd(price, GENERATION) == pytest.approx(5000e-6)
    cached = Generation(prompt_tokens=1000, output_tokens=500, prefix_cached_tokens=600)
    assert request_usd(price, cached) == pytest.approx(4100e-6)


def test_a_service_is_cheaper_once_the_api_charges_its_monthly_rent() -> None:
    # A request costs 5,000 millionths; 730 hours are 30.4167 days: 730 / 0.005 / 30.4167 = 4,800 requests per day.
    found = compare_with_api(
        "2,6", machines(usd_per_month=730.0, requests_per_day=10_000, own_usd=2.0), known={}, job=job()
    )
    assert found is not None
    assert found.crossing is not None
    assert found.crossing.at == pytest.approx(4800, abs=1)
    # At half and at twice the rent: 2,400 and 9,600.
    assert found.crossing.low == pytest.approx(2400, abs=1)
    assert found.crossing.high == pytest.approx(9600, abs=1)
    assert found.own.job_usd.mid == 730.0
    assert found.usd_per_month is None
    served = compare_with_api(
        "2,6", machines(usd_per_month=730.0, requests_per_day=10_000), known={}, job=job(requests_per_day=24)
    )
    assert served is not None
    assert served.usd_per_month == pytest.approx(730 * 0.005)


def test_tax_is_on_the_api_as_on_the_service() -> None:
    # 730 $ and a request of 5,000 millionths, both 19 % more: the crossing at 4,800 requests per day stays.
    found = compare_with_api(
        "2,6",
        machines(usd_per_month=730.0 * 1.19, requests_per_day=10_000),
        known={},
        job=job(),
        tax_percent=19.0,
    )
    assert found is not None
    assert found.crossing is not None
    assert found.crossing.at == pytest.approx(4800, abs=1)
    assert found.usd_per_request == pytest.approx(0.00595)


def test_a_service_whose_machines_are_never_full_enough_is_cheaper_at_no_load() -> None:
    # A machine serves 4,000 requests per day, for which the API charges 4,000 x 30.4167 x 0.005 = $608.
    found = compare_with_api("2,6", machines(usd_per_month=730.0, requests_per_day=4000), known={}, job=job())
    assert found is not None
    assert found.crossing is None
    assert found.requests_per_day == 10**9  # the most that is tried
    assert found.own_usd_per_request == pytest.approx(730 / (4000 * 730 / 24), rel=1e-3)


def test_free_hardware_is_cheaper_from_the_first_request_on() -> None:
    found = compare_with_api("2,6", machines(usd_per_month=0.0, requests_per_day=10), known={}, job=job())
    assert found is not None
    assert found.crossing is not None
    assert found.crossing.at == 1


def test_nothing_is_compared_unless_asked_for_a_language_model() -> None:
    own = machines(usd_per_month=730.0, requests_per_day=10)
    assert compare_with_api("", own, known={}, job=job()) is None
    assert compare_with_api("2,6", own, known={}, job=job(None)) is None
    assert compare_with_api("2,6", lambda job: {}, known={}, job=job()) is None


def test_a_price_is_a_name_or_numbers() -> None:
    known = {"one": ApiPrice(input_usd_per_mtok=1.0, output_usd_per_mtok=2.0, date="2026-01-01", source="a page")}
    assert api_price_of("one", known) is known["one"]
    assert api_price_of("0.2,$0.6, 0.1", known).cached_usd_per_mtok == 0.1
    for wrong in ("two", "1", "1,2,3,4", "1,-2", "1,nan"):
        with pytest.raises(UsageError, match="--api-usd-per-mtok"):
            api_price_of(wrong, known)
