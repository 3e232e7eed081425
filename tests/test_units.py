"""Numbers at the edges, each worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor import units
from advisor.errors import UsageError
from advisor.records.price import ExchangeRate


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120.0),
        ("0.5", 0.5),
        ("50ms", 0.05),
        ("90s", 90.0),
        ("24h", 86400.0),  # 24 x 3600
        ("1h30m", 5400.0),  # 3600 + 30 x 60
        ("2 min", 120.0),
        ("2d", 172800.0),  # 2 x 24 x 3600
    ],
)
def test_a_duration_is_read_in_seconds(text: str, seconds: float) -> None:
    assert units.parse_duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "soon", "5 parsecs", "-3s", "1h and 2m", "nan", "inf", "1e3"])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="is not a duration") as caught:
        units.parse_duration_s(text)
    assert "1h30m" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1", 1),
        (" 32 ", 32),
        ("1_000_000", 1_000_000),
        ("126,000", 126_000),
        ("1e6", 1_000_000),
        ("1.1E3", 1_100),
        ("200k", 200_000),
        ("1.1M", 1_100_000),  # 1.1 x 1e6 is not whole in floating point
        ("300B", 300 * 10**9),
        ("15t", 15 * 10**12),
    ],
)
def test_a_count_is_read_in_digits_with_an_exponent_or_a_suffix(text: str, count: int) -> None:
    assert units.parse_count(text) == count


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "1.5", "1.0001k", "1e-3", "12,00", "1,000k", "k", "1 k", "1kB", "many", "inf", "nan"]
)
def test_what_is_no_whole_number_from_1_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"\bwhole number\b.*\b1\b"):
        units.parse_count(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 us"),
        (2.5e-6, "2.5 us"),
        (0.0123, "12.3 ms"),
        (0.99999, "1 s"),  # rounds up to the next unit, not to "1000 ms"
        (59.0, "59 s"),
        (90.0, "1.5 min"),
        (5400.0, "1.5 h"),
        (86400.0 * 3, "3 days"),
    ],
)
def test_a_duration_is_shown_in_the_largest_unit_that_fits(seconds: float, text: str) -> None:
    assert units.format_duration(seconds) == text


def test_an_interval_keeps_the_unit_of_its_middle() -> None:
    # 0.9 ms is below one millisecond, yet it stays in ms beside 1.1 ms.
    assert units.format_interval_s(0.0011, 0.0009, 0.00131) == "1.1 ms [0.9-1.31]"
    assert units.format_interval_bytes(1.5 * 2**30, 2**30, 2**31) == "1.5 GiB [1-2]"


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),  # whole digits are never rounded away
        (16 * 2**30, "16 GiB"),
        (2**20, "1 MiB"),
        (24e9, "22.4 GiB"),  # 24e9 / 2^30 = 22.35
        (1.5 * 2**20, "1.5 MiB"),
    ],
)
def test_bytes_are_shown_in_binary_units(size_bytes: float, text: str) -> None:
    assert units.format_bytes(size_bytes) == text


@pytest.mark.parametrize(
    ("flops", "text"), [(0, "0 FLOP"), (4.1e9, "4.1 GFLOP"), (999.9e6, "1 GFLOP"), (8.178e9, "8.18 GFLOP")]
)
def test_flops_are_shown_with_a_prefix(flops: float, text: str) -> None:
    assert units.format_flops(flops) == text


@pytest.mark.parametrize(("count", "text"), [(7, "7"), (25557032, "25.6M"), (70e9, "70B"), (999.9e6, "1B")])
def test_counts_are_shown_with_a_prefix(count: float, text: str) -> None:
    assert units.format_count(count) == text


@pytest.mark.parametrize(
    ("usd", "text"),
    [
        (0.0, "$0"),
        (0.0042, "$0.0042"),
        (0.09, "$0.09"),  # no third decimal that says nothing
        (0.00000123, "$0.0000012"),
        (0.42, "$0.42"),
        (3.061, "$3.06"),
        (999.5, "$999.50"),
        (999.994, "$999.99"),
        (999.997, "$1,000"),
        (1234.6, "$1,235"),
    ],
)
def test_money_is_shown_with_two_digits_that_matter(usd: float, text: str) -> None:
    assert units.format_usd(usd) == text


def test_energy_and_mass_are_rounded_before_their_unit_is_chosen() -> None:
    assert [units.format_kwh(kwh) for kwh in (0.35, 0.9994, 0.99996, 1.2)] == ["350 Wh", "999 Wh", "1 kWh", "1.2 kWh"]
    assert [units.format_co2(kg) for kg in (0.9994, 0.99996, 999.96)] == ["999 g", "1 kg", "1 t"]


def test_an_hourly_price_keeps_its_third_digit() -> None:
    assert units.format_usd(0.526, digits=3) == "$0.526"
    assert units.format_usd(32.7726, digits=3) == "$32.77"


@pytest.mark.parametrize(
    ("ratio", "text"), [(0.0, "0 %"), (6e-9, "< 0.01 %"), (0.004, "0.4 %"), (0.09, "9 %"), (1.0, "100 %")]
)
def test_a_share_is_shown_as_percent(ratio: float, text: str) -> None:
    assert units.format_ratio(ratio) == text


@pytest.mark.parametrize(("ratio", "text"), [(6.83, "6.8x"), (1.0, "1x"), (120.4, "120x"), (34.2, "34x")])
def test_a_multiple_is_shown_with_two_digits(ratio: float, text: str) -> None:
    assert units.format_times(ratio) == text


@pytest.mark.parametrize(("per_s", "text"), [(0.5234, "0.523"), (12.34, "12.3"), (1236.0, "1,240"), (456.7, "457")])
def test_a_rate_is_shown_with_three_digits(per_s: float, text: str) -> None:
    assert units.format_rate(per_s) == text


@given(st.floats(min_value=1e-9, max_value=1e15))
def test_three_significant_digits_are_never_off_by_more_than_half_a_percent(value: float) -> None:
    # The third digit is right to half a unit: at worst 0.5 of 100.
    assert float(units.format_significant(value)) == pytest.approx(value, rel=0.005)


@given(st.floats(min_value=1e-6, max_value=1e4), st.sampled_from(["us", "ms", "s", "m", "h", "d"]))
def test_a_written_duration_scales_with_its_unit(number: float, unit: str) -> None:
    written = f"{number:f}"
    ratio = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}[unit]
    assert units.parse_duration_s(written + unit) == pytest.approx(float(written) * ratio)


def test_a_time_longer_than_thirty_years_is_refused() -> None:
    # 1e9 s / (365.25 x 86,400 s) = 31.7 years.
    assert units.parse_duration_s("1000000000") == 1e9
    with pytest.raises(UsageError, match="longer than 30 years"):
        units.parse_duration_s("20000d")


def test_a_count_of_more_than_1e15_is_refused() -> None:
    assert units.parse_count("1e15") == 10**15
    with pytest.raises(UsageError, match="more than 1e15"):
        units.parse_count("1e300")


def test_money_of_another_currency_has_its_code_and_as_many_digits_as_dollars() -> None:
    euro = ExchangeRate(currency="EUR", usd=1.25, date="2026-11-01")
    # 1 / 1.25 = 0.8; 0.005 / 1.25 = 0.004; 2,000 / 1.25 = 1,600
    assert [units.format_money(usd, rate=euro) for usd in (1.0, 0.005, 2000.0, 0.0)] == [
        "EUR 0.80",
        "EUR 0.004",
        "EUR 1,600",
        "EUR 0",
    ]
    assert units.format_money(1.0, rate=None) == "$1.00"


def test_days_are_a_whole_number_with_or_without_their_unit() -> None:
    assert units.parse_days("180") == units.parse_days(" 180D ") == 180
    for text in ("0", "-1", "1.5", "90h", ""):
        with pytest.raises(UsageError, match=r"\bdays\b"):
            units.parse_days(text)


def test_a_number_above_0_may_carry_a_dollar_sign() -> None:
    assert [units.parse_positive(text) for text in ("50", "$0.5", " 1e3 ")] == [50.0, 0.5, 1000.0]
    for text in ("0", "-1", "nan", "inf", "5 $", ""):
        with pytest.raises(UsageError, match="is not a number above 0"):
            units.parse_positive(text)


@pytest.mark.parametrize(("text", "ratio"), [("10%", 0.1), ("10 %", 0.1), ("0.25", 0.25), ("0", 0.0), ("150%", 1.5)])
def test_a_share_is_percent_or_a_ratio(text: str, ratio: float) -> None:
    assert units.parse_ratio(text) == pytest.approx(ratio)


@pytest.mark.parametrize("text", ["", "-1%", "ten", "10%%", "10% more", "nan", "inf%"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"\bpercentage\b"):
        units.parse_ratio(text)


@pytest.mark.parametrize(("text", "hint"), [("10", "10% or 1000%"), ("1", "1% or 100%"), (" 2.5 ", "2.5% or 250%")])
def test_a_share_of_1_or_more_needs_its_percent_sign(text: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        units.parse_ratio(text)
    assert refused.value.hint == f"write {hint}"
