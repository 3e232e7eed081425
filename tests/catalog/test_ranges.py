"""Every number that a profile or price file holds has a range, and every shipped one lies within."""

from typing import Any, get_args, get_type_hints

import pytest

from advisor.catalog.device_files import MeasuredGpu, MeasuredInstance, _Header
from advisor.catalog.owned import Purchase
from advisor.catalog.price_files import Machine
from advisor.catalog.ranges import range_of
from advisor.records.billing import BillingRule, Disk, Egress, Extras, GpuPackages, StartUp
from advisor.records.device import Cpu, Efficiency, FamilyEfficiency, Gpu

RECORDS = (
    Gpu, Cpu, Efficiency, FamilyEfficiency, MeasuredGpu, MeasuredInstance, Machine, Purchase, BillingRule, StartUp,
    Extras, Disk, Egress, GpuPackages, _Header,
)  # fmt: skip


@pytest.mark.parametrize("record", RECORDS)
def test_every_number_of_a_record_has_a_range(record: Any) -> None:
    for name, hint in get_type_hints(record).items():
        if {int, float} & {hint, *get_args(hint)}:
            within = range_of(name)
            assert 0 < within.least < within.most
            assert within.reason


def test_a_unit_that_is_part_of_another_is_not_taken_for_it() -> None:
    assert range_of("memory_bytes_per_s").most == 1e14
    assert range_of("memory_bytes").most == 2**50
    assert range_of("measured_read_bytes_per_s_8_vcpu").most == 1e14
    assert range_of("storage_usd_per_month").least == 1e-2


def test_a_quantity_without_a_known_unit_is_a_mistake_of_ours() -> None:
    with pytest.raises(KeyError):
        range_of("length_in_feet")
