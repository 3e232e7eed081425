"""Reads the hardware that the user owns and computes its cost per hour of use.

owned:
  gpu-box:
    machine: {vcpus: 32, memory_gib: 128, gpu: rtx-4090, gpu_count: 1}
    power_w: 550                     # of the whole machine under load
    electricity_usd_per_kwh: 0.30
    date: 2026-11-01
    region: EU                       # optional
    purchase_usd: 3200               # these three together, to decide a purchase; what is paid already decides nothing
    lifetime_years: 4
    used_percent: 40                 # share of all hours in use
"""

from dataclasses import dataclass

from advisor.catalog.fields import read_number, read_record
from advisor.catalog.price_files import Machine, PriceRow, read_date
from advisor.catalog.strict_yaml import Node
from advisor.records.price import Price

OWN_PROVIDER = "own"
_HOURS_PER_YEAR = 8760
"""365 days; clouds bill a month as a twelfth of this, 730 h."""
_RUNNING_KEYS = ("power_w", "electricity_usd_per_kwh")
_PURCHASE_KEYS = ("purchase_usd", "lifetime_years", "used_percent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Purchase:
    """A purchase that is being decided."""

    purchase_usd: float
    lifetime_years: float
    used_percent: float

    @property
    def usd_per_hour(self) -> float:
        """The price spread over all hours of use."""
        return self.purchase_usd / (self.lifetime_years * _HOURS_PER_YEAR * self.used_percent / 100)

    def __str__(self) -> str:
        return f"${self.purchase_usd:,.0f} over {self.lifetime_years:g} years at {self.used_percent:g} % of the hours, "


def read_owned_rows(owned: Node) -> tuple[PriceRow, ...]:
    """Return one row for each machine under `owned`; raise `ProfileError` at the first mistake."""
    return tuple(_read_owned(entry) for entry in owned.entries())


def _read_owned(node: Node) -> PriceRow:
    required = ("machine", "date", *_RUNNING_KEYS)
    node.check_keys(
        (*required, "region", *_PURCHASE_KEYS), required=required, hint="`advise prices init` shows all keys"
    )
    power_w, electricity_usd = (float(read_number(node[key], zero_allowed=key != "power_w")) for key in _RUNNING_KEYS)
    running_usd_per_hour = power_w / 1000 * electricity_usd
    purchase = _read_purchase(node)
    price = Price(
        kind="owned",
        usd_per_hour=running_usd_per_hour + (purchase.usd_per_hour if purchase else 0.0),
        date=read_date(node["date"]),
        source=f"{node.where}: {purchase or ''}{power_w:g} W at ${electricity_usd:g}/kWh",
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
        purchase_usd=purchase.purchase_usd if purchase else None,
        running_usd_per_hour=running_usd_per_hour,
    )


def _read_purchase(node: Node) -> Purchase | None:
    """Return the purchase to decide, or None for a machine that is there already."""
    given = [key for key in _PURCHASE_KEYS if key in node]
    if not given:
        return None
    if missing := [key for key in _PURCHASE_KEYS if key not in given]:
        hint = (
            f"to decide a purchase give {' and '.join(missing)} too; for a machine that you have, leave all three out"
        )
        raise node[given[0]].error(f"{', '.join(missing)} missing", hint=hint)
    if node["purchase_usd"].value == 0:
        hint = "leave purchase_usd, lifetime_years and used_percent out for a machine that is paid"
        raise node["purchase_usd"].error("expected more than 0 dollars, found 0", hint=hint)
    purchase = Purchase(**{key: float(read_number(node[key])) for key in _PURCHASE_KEYS})
    if purchase.used_percent > 100:
        message = f"expected at most 100, found {purchase.used_percent:g}"
        raise node["used_percent"].error(message, hint="give the percentage of all hours in use, such as 40")
    return purchase
