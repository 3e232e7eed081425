"""The sentence on an offer that is left out."""

import re
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from advisor.cost.at_hand import fleet_at_hand, selection_at_hand
from advisor.records.device import Device
from advisor.records.machine import LocalDevice
from advisor.records.prediction import Predictions
from advisor.records.price import ExchangeRate, Rejected
from advisor.records.rejection import Cause, RejectionCode, local_notes, rejections
from tests.cost import toys
from tests.says import assert_says

CPU = toys.device("xeon")
OF_THE_CATALOG = {"fractional-gpu", "unknown-cpu", "incomplete-machine"}
"""Their sentences are made where the files are read."""


@pytest.mark.parametrize("code", sorted(set(get_args(RejectionCode)) - OF_THE_CATALOG))
def test_every_code_has_a_sentence(code: RejectionCode) -> None:
    cause = Cause(code=code, what="something", needed=2.0, available=1.0)
    (found,) = rejections([Rejected(offer=toys.offer("m1"), causes=(cause,))], None)
    assert (found.instance, found.code) == ("m1", code)
    assert found.reason


def test_the_page_on_costs_has_every_code() -> None:
    page = (Path(__file__).parents[2] / "docs" / "costs.md").read_text(encoding="utf-8")
    table = page.partition("| reason | why the offer is not ranked |")[2].partition("\n\n")[0]
    codes = [
        code
        for cell in re.findall(r"^\| (`.*?) \|", table, flags=re.MULTILINE)
        for code in cell.strip("`").split("`, `")
    ]
    assert sorted(codes) == sorted(get_args(RejectionCode))


def test_money_is_in_the_currency_of_the_answer_and_the_flag_in_dollars() -> None:
    cause = Cause(code="over-max-usd", needed=2.5, available=1.25)
    euro = ExchangeRate(currency="EUR", usd=1.25, date="2026-11-01")
    (found,) = rejections([Rejected(offer=toys.offer("m1"), causes=(cause,))], None, rate=euro)
    # 2.5 / 1.25 and 1.25 / 1.25
    assert_says(found.reason, "EUR 2.00", "EUR 1.00 more", "--max-usd $1.25", "EUR 1.00")


def local(identifier: str, device: Device | None, *, note: str = "") -> LocalDevice:
    return LocalDevice(id=identifier, name=identifier.upper(), thread_count=8, device=device, profile=None, note=note)


def notes(device: LocalDevice, *, predictions: Predictions) -> tuple[str, ...]:
    fleet = fleet_at_hand(toys.fleet(devices=()), [device])
    found = toys.rank(selection_at_hand([device], offers=()), fleet=fleet, predictions=predictions, job=toys.job())
    return local_notes([device], rejections(found.rejected, None))


@pytest.mark.parametrize(
    ("device", "said"),
    [
        (local("cpu", CPU), ()),
        (local("cpu", CPU, note="others stand in"), ("this machine's cpu, CPU: others stand in",)),
        (local("cuda:0", None, note="no profile"), ("this machine's cuda:0, CUDA:0: no profile",)),
    ],
)
def test_what_its_row_does_not_say_is_said(device: LocalDevice, said: tuple[str, ...]) -> None:
    devices = [device.device] if device.device else []
    predictions = toys.predictions(*devices, step_s=np.full((len(devices), 1), 2.0))

    assert notes(device, predictions=predictions) == said


def test_a_device_that_the_job_does_not_fit_says_so() -> None:
    small = toys.device("small", memory_bytes=0.5e9)
    predictions = toys.predictions(small, step_s=[[2.0]], fits=np.array([[False]]))
    device = local("cpu", small)

    # toys: a peak of 1 GB for each sample, which is 1e9 / 2^20 = 953.7 MiB
    (note,) = notes(device, predictions=predictions)
    assert_says(note, "machine's cpu", "CPU", "954 MiB", "batch 1", "477 MiB")
