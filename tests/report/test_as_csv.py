"""The CSV of an answer."""

import csv
from dataclasses import replace
from io import StringIO

from advisor.records.price import TorchWheel
from advisor.report.as_csv import render
from advisor.report.content import View
from tests.report.toys import GENOA, HERE, L4, quote, recommendation


def test_an_offer_says_its_architecture_and_the_wheel_that_it_needs() -> None:
    arm, old = replace(GENOA, architecture="arm"), replace(L4, wheel=TorchWheel(torch="2.14", cuda="12.6"))
    rows = list(csv.DictReader(StringIO(render(recommendation(arm, old), View(top=1)))))
    assert [row["architecture"] for row in rows] == ["arm", ""]
    assert [(row["wheel_torch"], row["wheel_cuda"]) for row in rows] == [("", ""), ("2.14", "12.6")]


def test_every_quote_is_one_line_under_names_with_units() -> None:
    rows = list(csv.DictReader(StringIO(render(recommendation(L4, GENOA), View(top=1)))))
    assert [row["rank"] for row in rows] == ["1", "2"]
    best = rows[0]
    assert (best["instance"], best["device_name"], best["step_s_high"], best["job_usd_mid"], best["fits"]) == (
        *("g6.xlarge", "L4", "0.128", "0.42", "true"),
    )
    assert (best["chance_cheapest"], best["indistinguishable"]) == ("0.614", "false")
    assert (best["job_samples"], best["coverage_ratio"]) == ("1000000", "1.0")


def test_a_spreadsheet_is_given_no_formula_to_run() -> None:
    for name in ("=HYPERLINK(1)", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"):
        evil = quote(name, kind="gpu", device="L4", usd=1.0)
        (row,) = csv.DictReader(StringIO(render(recommendation(evil), View())))
        assert row["instance"] == f"'{name}".replace("\t", " ").replace("\r", " ")


def test_a_negative_number_stays_a_number() -> None:
    (row,) = csv.DictReader(StringIO(render(recommendation(replace(L4, usd_per_million_samples=-0.5)), View())))
    assert row["usd_per_million_samples"] == "-0.5"


def test_a_comma_or_a_quote_in_a_name_stays_in_its_cell() -> None:
    odd = quote('a "b", c', kind="gpu", device="L4", usd=1.0)
    (row,) = csv.DictReader(StringIO(render(recommendation(odd), View())))
    assert row["instance"] == 'a "b", c'


def test_an_unknown_number_of_vcpus_is_an_empty_cell() -> None:
    (row,) = csv.DictReader(StringIO(render(recommendation(replace(L4, vcpus=None)), View())))
    assert row["vcpus"] == ""


def test_the_machine_at_hand_is_the_last_line_and_has_no_rank() -> None:
    rows = list(csv.DictReader(StringIO(render(recommendation(L4, GENOA, at_hand=HERE), View()))))

    assert [(row["rank"], row["provider"]) for row in rows] == [("1", "aws"), ("2", "aws"), ("", "local")]


def test_a_machine_at_hand_that_is_ranked_is_one_line() -> None:
    rows = list(csv.DictReader(StringIO(render(recommendation(HERE, L4, at_hand=HERE), View()))))

    assert [(row["rank"], row["provider"]) for row in rows] == [("1", "local"), ("2", "aws")]
