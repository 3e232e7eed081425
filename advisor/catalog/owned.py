"""Reads the hardware that the user owns and computes its cost per hour of use.

owned:
  gpu-box:
    machine: {vcpus: 32, memory_gib: 128, gpu: rtx-4090, gpu_count: 1}
    electricity_usd_per_kwh: 0.30
    power_w: 550                     # optional: measured power of the whole machine under load; idle, it is predicted
    gco2_per_kwh: 380                # optional: grams of CO2 per kWh of this electricity
    date: 2026-11-01
    region: EU                       # optional
    purchase_usd: 3200               # these three together, to decide a purchase; what is paid already decides nothing
    lifetime_years: 4
    used_percent: 40                 # share of all hours in use; a service uses all
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from advisor.catalog.fields import read_number, read_record
from advisor.catalog.price_files import Machine, PriceRow, read_date
from advisor.catalog.strict_yaml import Node
from advisor.records.device import Gpu
from advisor.records.energy import EnergyData
from advisor.records.price import Offer, Price

OWN_PROVIDER = "own"
_HOURS_PER_YEAR = 8760
"""365 days; clouds bill a month as a twelfth of this, 730 h."""
_WATTS_PER_KW = 1000
_PREDICTED_WATTS = "its predicted power"
"""Stands in the source of a price until `with_electricity` has computed the watts."""
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
    required = ("machine", "date", "electricity_usd_per_kwh")
    node.check_keys(
        (*required, "power_w", "gco2_per_kwh", "region", *_PURCHASE_KEYS),
        required=required,
        hint="`advise prices init` shows all keys",
    )
    electricity_usd = float(read_number(node["electricity_usd_per_kwh"], zero_allowed=True))
    power_w = float(read_number(node["power_w"])) if "power_w" in node else None
    running_usd_per_hour = (power_w or 0.0) / _WATTS_PER_KW * electricity_usd
    purchase = _read_purchase(node)
    machine = read_record(Machine, node["machine"])
    if machine.gpu is None and machine.accelerator is None:
        _check_cpu_machine(machine, node["machine"])
    watts = _PREDICTED_WATTS if power_w is None else f"{power_w:g} W under load"
    price = Price(
        kind="owned",
        usd_per_hour=running_usd_per_hour + (purchase.usd_per_hour if purchase else 0.0),
        date=read_date(node["date"]),
        source=f"{node.where}: {purchase or ''}{watts} at ${electricity_usd:g}/kWh",
        basis="own_hardware",
    )
    return PriceRow(
        provider=OWN_PROVIDER,
        instance=node.key,
        region=OWN_PROVIDER,
        geo=node.get("region", "any").text(),
        tier="owned",
        machine=machine,
        price_per="machine",
        prices=(price,),
        interruption=None,
        billed_separately=None,
        node=node,
        purchase_usd=purchase.purchase_usd if purchase else None,
        running_usd_per_hour=running_usd_per_hour,
        used_ratio=purchase.used_percent / 100 if purchase else 1.0,
        electricity_usd_per_kwh=electricity_usd,
        power_w=power_w,
        gco2_per_kwh=float(read_number(node["gco2_per_kwh"])) if "gco2_per_kwh" in node else None,
    )


def _check_cpu_machine(machine: Machine, node: Node) -> None:
    """Raise `ProfileError` if no step can be predicted on a machine without a GPU."""
    vcpus = machine.usable_vcpus or machine.vcpus
    needed = {"cpu": machine.cpu, "vcpus": vcpus, "memory_gib": machine.memory_bytes}
    if missing := [key for key, value in needed.items() if value is None]:
        hint = "name its GPU (gpu: rtx-4090), or give a machine without one cpu, vcpus and memory_gib"
        raise node.error(f"{', '.join(missing)} missing", hint=hint)


def with_electricity(
    offers: Iterable[Offer], *, rows: Sequence[PriceRow], gpus: Mapping[str, Gpu], energy: EnergyData
) -> list[Offer]:
    """Return the offers, with the electricity at full load in the price of owned machines without a measured power.

    A ranking replaces it with that at the power of the step. `rows` are those of the owned machines. Raises
    `ProfileError` if the power of one is not known.
    """
    nodes = {row.instance: row.node for row in reversed(rows)}  # the first row of a machine wins
    return [_with_electricity(offer, nodes, gpus=gpus, energy=energy) for offer in offers]


def _with_electricity(offer: Offer, nodes: Mapping[str, Node], *, gpus: Mapping[str, Gpu], energy: EnergyData) -> Offer:
    if offer.electricity_usd_per_kwh is None or offer.power_w is not None:
        return offer
    machine = nodes[offer.instance]["machine"]
    measured = "`power_w: 550`, the watts of the whole machine under load, if you measured them"
    if offer.vcpus is None:
        message = "vcpus is missing: the power of the machine is predicted from its GPUs and vCPUs"
        raise machine.error(message, hint=f"add `vcpus: 16` to the machine, or {measured}")
    tdp_w = gpus[offer.gpu].tdp_w if offer.gpu else 0.0
    if tdp_w is None or energy.cpu is None or (offer.gpu and energy.gpu is None):
        device = machine["gpu" if offer.gpu else "cpu"]
        raise device.error(f"the power of {offer.gpu or offer.cpu} is not known", hint=f"add {measured}")
    gpu_w = offer.gpu_count * tdp_w * energy.gpu.most_ratio if energy.gpu else 0.0
    watts = gpu_w + offer.vcpus / offer.usual_threads_per_core * energy.cpu.of(offer.cpu).busy_w_per_core
    running = watts / _WATTS_PER_KW * offer.electricity_usd_per_kwh
    prices = tuple(
        replace(
            price,
            usd_per_hour=price.usd_per_hour + running,
            source=price.source.replace(_PREDICTED_WATTS, f"at most {watts:.0f} W, as predicted for the step,"),
        )
        for price in offer.prices
    )
    return replace(offer, prices=prices, running_usd_per_hour=running)


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
