"""Reads the hardware that the user owns and computes its cost per hour of use.

owned:
  gpu-box:
    machine: {vcpus: 32, memory_gib: 128, gpu: rtx-4090, gpu_count: 1}
    purchase_usd: 3200
    lifetime_years: 4
    power_w: 550                     # of the whole machine under load
    electricity_usd_per_kwh: 0.30
    used_percent: 40                 # share of all hours in use
    date: 2026-11-01
    region: EU                       # optional
"""

from dataclasses import dataclass

from advisor.catalog.fields import read_number, read_record
from advisor.catalog.price_files import Machine, PriceRow, read_date
from advisor.catalog.strict_yaml import Node
from advisor.records.price import Price

OWN_PROVIDER = "own"
_HOURS_PER_YEAR = 8760
"""365 days; clouds bill a month as a twelfth of this, 730 h."""
_NUMBER_KEYS = ("purchase_usd", "lifetime_years", "power_w", "electricity_usd_per_kwh", "used_percent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """The costs of a machine for its owner."""

    purchase_usd: float
    lifetime_years: float
    power_w: float
    electricity_usd_per_kwh: float
    used_percent: float

    @property
    def running_usd_per_hour(self) -> float:
        """The electricity cost per hour of use."""
        return self.power_w / 1000 * self.electricity_usd_per_kwh

    @property
    def usd_per_hour(self) -> float:
        """The cost per hour of use: the purchase price spread over all hours of use, plus electricity."""
        hours_used = self.lifetime_years * _HOURS_PER_YEAR * self.used_percent / 100
        return self.purchase_usd / hours_used + self.running_usd_per_hour

    def __str__(self) -> str:
        return (
            f"${self.purchase_usd:,.0f} over {self.lifetime_years:g} years at {self.used_percent:g} % of the hours, "
            f"{self.power_w:g} W at ${self.electricity_usd_per_kwh:g}/kWh"
        )


def read_owned_rows(owned: Node) -> tuple[PriceRow, ...]:
    """Return one row for each machine under `owned`; raise `ProfileError` at the first mistake."""
    return tuple(_read_owned(entry) for entry in owned.entries())


def _read_owned(node: Node) -> PriceRow:
    required = ("machine", "date", *_NUMBER_KEYS)
    node.check_keys((*required, "region"), required=required, hint="`advise prices init` shows all keys")
    if node["purchase_usd"].value == 0:
        hint = "give its resale value today: keeping it costs that much, even if it is paid off"
        raise node["purchase_usd"].error("expected more than 0 dollars, found 0", hint=hint)
    ownership = Ownership(
        **{key: float(read_number(node[key], zero_allowed=key.startswith("electricity"))) for key in _NUMBER_KEYS}
    )
    if ownership.used_percent > 100:
        message = f"expected at most 100, found {ownership.used_percent:g}"
        raise node["used_percent"].error(message, hint="give the percentage of all hours in use, such as 40")
    price = Price(
        kind="owned",
        usd_per_hour=ownership.usd_per_hour,
        date=read_date(node["date"]),
        source=f"{node.where}: {ownership}",
        basis="own_hardware",
    )
    return PriceRow(
        provider=OWN_PROVIDER,
        instance=node.key,
        region=OWN_PROVIDER,
        geo=node.get("region", "any").text(),
        tier="owned",
        machine=read_record(Machine, node["machine"]),
        price_per="machine",
        prices=(price,),
        interruption=None,
        billed_separately=None,
        node=node,
        purchase_usd=ownership.purchase_usd,
        running_usd_per_hour=ownership.running_usd_per_hour,
    )
