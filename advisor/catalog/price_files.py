"""Reads price files into rows: one instance type in one region, with its prices and their sources.

Built-in and user files have the same format (a user's file may also contain `terms`):

    provider: aws
    tier: hyperscaler          # optional for a known provider
    price_per: machine         # or gpu: the price is multiplied by gpu_count
    price_basis: list
    regions: {us-east-1: US}
    sources:
      invoice: {date: 2026-09-01, from: "our invoice of September"}
    date: 2026-09-01           # of prices without a source
    complete: true             # the provider sells nothing else: rows only in later files are dropped
    instances:
      g5.xlarge:
        machine: {vcpus: 4, memory_gib: 16, gpu: a10g, gpu_count: 1}    # optional for a known type
        usd_per_hour:
          us-east-1: {on_demand: 0.93, spot: [0.41, invoice]}

If a refresh finds a suspect price, it adds the last trusted one to the line: `trusted: {on_demand: 0.93}`.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any, Literal, get_args

from advisor.catalog.fields import (
    check_keys,
    read_choice,
    read_mapping,
    read_number,
    read_record,
    read_text,
)
from advisor.catalog.strict_yaml import Document, KeyPath, did_you_mean
from advisor.records.price import Price, PriceBasis, PriceKind, Tier

RENTED_KINDS: tuple[PriceKind, ...] = ("on_demand", "spot", "commit_1y", "commit_3y")
_FILE_KEYS = ("provider", "tier", "price_per", "price_basis", "regions", "sources", "date", "complete", "instances")
_SOURCE_KEYS = ("date", "from", "how", "basis", "etag")
"""A refresh sends `etag` back to the server, which then does not resend an unchanged list."""
_INSTANCE_KEYS = ("machine", "tier", "billed_separately", "usd_per_hour")
_ROW_KEYS = frozenset((*RENTED_KINDS, "stale", "suspect", "trusted", "interruption_percent", "note"))
_FIRST_CLOUD_PRICE = "2006-08-25"
"""The public beta of Amazon EC2; an older date is a mistake."""
_FUTURE_DAYS_ALLOWED = 366
"""Prices may be announced in advance and clocks may be wrong; a later date is a mistake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The hardware of an instance type, from its file. `accelerator` names an accelerator without a profile."""

    vcpus: int | None = None
    usable_vcpus: int | None = None
    memory_bytes: float | None = None
    threads_per_core: int | None = None
    cpu: str | None = None
    gpu: str | None = None
    gpu_count: int = 1
    gpu_share: str | None = None
    network_bytes_per_s: float | None = None
    accelerator: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRow:
    """One instance type in one region. If a field is None, the next file with this type supplies it.

    With `is_of_complete_list`, the provider sells only the types in this file. `purchase_usd` and
    `running_usd_per_hour` are for owned hardware.
    """

    provider: str
    instance: str
    region: str
    geo: str | None
    tier: Tier | None
    machine: Machine | None
    price_per: Literal["machine", "gpu"]
    prices: tuple[Price, ...]
    interruption: str | None
    billed_separately: str | None
    document: Document
    path: KeyPath
    is_of_complete_list: bool = False
    purchase_usd: float | None = None
    running_usd_per_hour: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    text: str
    date: str
    basis: PriceBasis


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    """The keys at the top of a file, which apply to all of its rows."""

    provider: str
    tier: Tier | None
    price_per: Literal["machine", "gpu"]
    is_complete: bool
    geos: Mapping[str, str]
    sources: Mapping[str, _Source]
    default_source: _Source | None


def read_price_rows(document: Document, *, basis: PriceBasis = "list") -> Iterator[PriceRow]:
    """Yield every row of one price file; raise `ProfileError` at the first mistake.

    `basis` is the default of a file without `price_basis`.
    """
    values = check_keys(document, (), document.values, known=_FILE_KEYS)
    head = _read_head(document, values, basis=basis)
    for instance, entry in read_mapping(document, ("instances",), values.get("instances")).items():
        yield from _read_instance(document, head, instance, entry)


def _read_head(document: Document, values: Mapping[str, Any], *, basis: PriceBasis) -> _Head:
    basis = _read_basis(document, ("price_basis",), values.get("price_basis", basis))
    if "provider" not in values:
        raise document.error(
            (), "provider is missing", hint="add the provider of these prices, such as `provider: aws`"
        )
    sources = {
        key: _read_source(document, ("sources", key), entry, basis=basis)
        for key, entry in read_mapping(document, ("sources",), values.get("sources", {})).items()
    }
    default_source = None
    if "date" in values:
        default_source = _Source(text=document.label, date=read_date(document, ("date",), values["date"]), basis=basis)
    return _Head(
        provider=read_text(document, ("provider",), values["provider"]),
        tier=_read_tier(document, (), values),
        price_per=read_choice(document, ("price_per",), values.get("price_per", "machine"), choices=("machine", "gpu")),
        is_complete=_read_flag(document, ("complete",), values.get("complete", False)),
        geos={
            region: read_text(document, ("regions", region), geo)
            for region, geo in read_mapping(document, ("regions",), values.get("regions", {})).items()
        },
        sources=sources,
        default_source=default_source,
    )


def _read_tier(document: Document, path: KeyPath, values: Mapping[str, Any]) -> Tier | None:
    if "tier" not in values:
        return None
    tier: Tier = read_choice(document, (*path, "tier"), values["tier"], choices=get_args(Tier))
    return tier


def _read_basis(document: Document, path: KeyPath, value: Any) -> PriceBasis:
    basis: PriceBasis = read_choice(document, path, value, choices=get_args(PriceBasis))
    return basis


def _read_flag(document: Document, path: KeyPath, value: Any) -> bool:
    if not isinstance(value, bool):
        raise document.error(path, f"expected true or false, found {value!r}", hint="write true, or remove the key")
    return value


def _read_source(document: Document, path: KeyPath, entry: Any, *, basis: PriceBasis) -> _Source:
    values = check_keys(document, path, entry, known=_SOURCE_KEYS)
    for key in ("date", "from"):
        if key not in values:
            raise document.error(path, f"{key} is missing", hint="write {date: 2026-09-01, from: where it was read}")
    text = read_text(document, (*path, "from"), values["from"])
    if "how" in values:
        text = f"{text}; {read_text(document, (*path, 'how'), values['how'])}"
    return _Source(
        text=text,
        date=read_date(document, (*path, "date"), values["date"]),
        basis=_read_basis(document, (*path, "basis"), values.get("basis", basis)),
    )


def read_date(document: Document, path: KeyPath, value: Any) -> str:
    """Return the value if it is a plausible date of a cloud price; raise `ProfileError` otherwise."""
    hint = "use the form 2026-09-01"
    if not isinstance(value, str) or not re.fullmatch(r"\d{4}-\d{2}-\d{2}", value):
        raise document.error(path, f"expected a date, found {value!r}", hint=hint)
    try:
        found = date.fromisoformat(value)
    except ValueError as error:
        raise document.error(path, f"{value} is not a date: {error}", hint=hint) from None
    latest = date.today() + timedelta(days=_FUTURE_DAYS_ALLOWED)
    if not date.fromisoformat(_FIRST_CLOUD_PRICE) <= found <= latest:
        raise document.error(path, f"{value} cannot be the date of a cloud price", hint=f"correct the year; {hint}")
    return value


def _read_instance(document: Document, head: _Head, instance: str, entry: Any) -> Iterator[PriceRow]:
    path = ("instances", instance)
    values = check_keys(document, path, entry, known=_INSTANCE_KEYS)
    machine = None
    if "machine" in values:
        machine = read_record(Machine, document, (*path, "machine"), values["machine"])
    separately = _read_note(document, path, values, key="billed_separately")
    for region, line in read_mapping(document, (*path, "usd_per_hour"), values.get("usd_per_hour")).items():
        here = (*path, "usd_per_hour", region)
        line_values = check_keys(document, here, line, known=_ROW_KEYS)
        interruption = _read_note(document, here, line_values, key="interruption_percent")
        yield PriceRow(
            provider=head.provider,
            instance=instance,
            region=region,
            geo=head.geos.get(region),
            tier=_read_tier(document, path, values) or head.tier,
            machine=machine,
            price_per=head.price_per,
            prices=_read_prices(document, here, line_values, head=head),
            interruption=f"{interruption} %" if interruption else None,
            billed_separately=separately,
            document=document,
            path=here,
            is_of_complete_list=head.is_complete,
        )


def _read_note(document: Document, path: KeyPath, values: Mapping[str, Any], *, key: str) -> str | None:
    return read_text(document, (*path, key), values[key]) if key in values else None


def _read_prices(document: Document, path: KeyPath, line: Mapping[str, Any], *, head: _Head) -> tuple[Price, ...]:
    """Return the prices of one line as written, for a machine or for one GPU."""
    note = _read_note(document, path, line, key="note") or ""
    prices = {
        kind: _read_price(document, (*path, kind), line[kind], kind=kind, head=head, note=note)
        for kind in RENTED_KINDS
        if kind in line
    }
    if not prices:
        raise document.error(path, "no price in this line", hint=f"add one of {', '.join(RENTED_KINDS)}")
    trusted_path = (*path, "trusted")
    trusted = check_keys(document, trusted_path, line.get("trusted", {}), known=RENTED_KINDS)
    for kind, value in trusted.items():
        read_number(document, (*trusted_path, kind), value, quantity="usd_per_hour")
    on_demand = prices.get("on_demand")
    for kind, price in prices.items():
        if on_demand is None or price.usd_per_hour <= on_demand.usd_per_hour:
            continue
        if kind == "spot":
            message = f"spot {price.usd_per_hour} is above on-demand {on_demand.usd_per_hour}"
            raise document.error((*path, kind), message, hint="correct one of the two, or remove the spot price")
        # Commitments may cost more than on-demand, if they were priced before a cut of the on-demand price.
        prices[kind] = replace(price, suspect=True)
    for kind in _read_kinds(document, (*path, "stale"), line.get("stale", []), given=prices):
        prices[kind] = replace(prices[kind], stale=True)
    for kind in _read_kinds(document, (*path, "suspect"), line.get("suspect", []), given=prices):
        prices[kind] = replace(prices[kind], suspect=True)
    return tuple(prices.values())


def _read_kinds(document: Document, path: KeyPath, value: Any, *, given: Collection[PriceKind]) -> Sequence[PriceKind]:
    """Return the prices of the line that a flag applies to."""
    if not isinstance(value, list):
        raise document.error(path, f"expected a list, found {value!r}", hint="write [on_demand]")
    for index, kind in enumerate(value):
        if not isinstance(kind, str) or kind not in given:
            message = f"{kind!r} is not a price of this line"
            raise document.error((*path, index), message, hint=did_you_mean(str(kind), known=given))
    return value


def _read_price(document: Document, path: KeyPath, value: Any, *, kind: PriceKind, head: _Head, note: str) -> Price:
    """Read a price: `0.93`, with the date at the top of the file, or `[0.93, key of a source]`."""
    source = head.default_source
    if isinstance(value, list):
        if len(value) != 2:
            raise document.error(path, f"expected [dollars, source], found {value!r}", hint="write [0.93, my-source]")
        value, key = value
        source = head.sources.get(read_text(document, (*path, 1), key))
        if source is None:
            message = f"no source {key!r} at the top of the file"
            raise document.error(path, message, hint=did_you_mean(str(key), known=head.sources))
    if source is None:
        raise document.error(path, "this price has no date", hint="add `date: 2026-09-01` at the top of the file")
    return Price(
        kind=kind,
        usd_per_hour=float(read_number(document, path, value, quantity="usd_per_hour")),
        date=source.date,
        source=source.text,
        basis=source.basis,
        note=note,
    )
