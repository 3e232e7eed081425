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
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from itertools import pairwise
from typing import Literal, cast, get_args

from advisor.catalog.fields import read_number, read_record
from advisor.catalog.strict_yaml import Document, Node
from advisor.errors import did_you_mean
from advisor.records.price import Price, PriceBasis, PriceKind, Tier

RENTED_KINDS: tuple[PriceKind, ...] = ("on_demand", "spot", "commit_1y", "commit_3y")
_FILE_KEYS = ("provider", "tier", "price_per", "price_basis", "regions", "sources", "date", "complete", "instances")
_SOURCE_KEYS = ("date", "from", "how", "basis", "etag")
"""A refresh sends `etag` back to the server, which then does not resend an unchanged list."""
_INSTANCE_KEYS = ("machine", "tier", "billed_separately", "usd_per_hour")
_ROW_KEYS = frozenset((*RENTED_KINDS, "stale", "suspect", "trusted", "interruption_percent", "note"))
_SHARE = re.compile(r"[<>]?([\d.]+)|([\d.]+)-([\d.]+)")
_FIRST_CLOUD_PRICE = "2006-08-25"
"""The public beta of Amazon EC2; an older date is a mistake."""
_FUTURE_DAYS_ALLOWED = 366
"""Prices may be announced in advance and clocks may be wrong; a later date is a mistake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The hardware of an instance type, from its file.

    `accelerator` is a provider's name of a GPU or other device, and `no_profile` says why it has none.
    """

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
    no_profile: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRow:
    """One instance type in one region. If a field is None, the next file with this type supplies it.

    With `is_of_complete_list`, the provider sells only the types in this file. `purchase_usd` and the fields after it
    are for owned hardware.
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
    node: Node
    is_of_complete_list: bool = False
    purchase_usd: float | None = None
    running_usd_per_hour: float | None = None
    used_ratio: float = 1.0
    electricity_usd_per_kwh: float | None = None
    power_w: float | None = None
    gco2_per_kwh: float | None = None


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


def read_price_rows(
    document: Document, *, basis: PriceBasis = "list", other_keys: Collection[str] = ()
) -> Iterator[PriceRow]:
    """Yield every row of one price file; raise `ProfileError` at the first mistake.

    `basis` is the default of a file without `price_basis`. `other_keys` are those of documents of other kinds, which an
    unknown key may resemble.
    """
    root = document.root
    head = _read_head(root, basis=basis, other_keys=other_keys)
    for entry in root.get("instances", None).entries():
        yield from _read_instance(entry, head)


def _read_head(root: Node, *, basis: PriceBasis, other_keys: Collection[str]) -> _Head:
    root.check_keys(
        _FILE_KEYS,
        required=("provider",),
        hint="add the provider of these prices, such as `provider: aws`",
        elsewhere=other_keys,
    )
    basis = root.get("price_basis", basis).choice(get_args(PriceBasis))
    default_source = None
    if "date" in root:
        default_source = _Source(text=root.document.label, date=read_date(root["date"]), basis=basis)
    return _Head(
        provider=root["provider"].text(),
        tier=_read_tier(root),
        price_per=root.get("price_per", "machine").choice(("machine", "gpu")),
        is_complete=_read_flag(root.get("complete", False)),
        geos={region.key: region.text() for region in root.get("regions", {}).entries()},
        sources={source.key: _read_source(source, basis=basis) for source in root.get("sources", {}).entries()},
        default_source=default_source,
    )


def _read_tier(node: Node) -> Tier | None:
    return node["tier"].choice(get_args(Tier)) if "tier" in node else None


def _read_flag(node: Node) -> bool:
    if not isinstance(node.value, bool):
        raise node.error(f"expected true or false, found {node.value!r}", hint="write true, or remove the key")
    return node.value


def _read_source(node: Node, *, basis: PriceBasis) -> _Source:
    node.check_keys(_SOURCE_KEYS, required=("date", "from"), hint="write {date: 2026-09-01, from: where it was read}")
    text = node["from"].text()
    if "how" in node:
        text = f"{text}; {node['how'].text()}"
    return _Source(text=text, date=read_date(node["date"]), basis=node.get("basis", basis).choice(get_args(PriceBasis)))


def read_date(node: Node) -> str:
    """Return the value if it is a plausible date of a cloud price; raise `ProfileError` otherwise."""
    value, hint = node.value, "use the form 2026-09-01"
    if not isinstance(value, str) or not re.fullmatch(r"\d{4}-\d{2}-\d{2}", value):
        raise node.error(f"expected a date, found {value!r}", hint=hint)
    try:
        found = date.fromisoformat(value)
    except ValueError as error:
        raise node.error(f"{value} is not a date: {error}", hint=hint) from None
    latest = date.today() + timedelta(days=_FUTURE_DAYS_ALLOWED)
    if not date.fromisoformat(_FIRST_CLOUD_PRICE) <= found <= latest:
        raise node.error(f"{value} cannot be the date of a cloud price", hint=f"correct the year; {hint}")
    return value


def _read_instance(node: Node, head: _Head) -> Iterator[PriceRow]:
    node.check_keys(_INSTANCE_KEYS)
    machine = read_record(Machine, node["machine"]) if "machine" in node else None
    separately = _read_note(node, "billed_separately")
    for line in node.get("usd_per_hour", None).entries():
        line.check_keys(_ROW_KEYS)
        interruption = _read_interruption(line["interruption_percent"]) if "interruption_percent" in line else None
        yield PriceRow(
            provider=head.provider,
            instance=node.key,
            region=line.key,
            geo=head.geos.get(line.key),
            tier=_read_tier(node) or head.tier,
            machine=machine,
            price_per=head.price_per,
            prices=_read_prices(line, head=head),
            interruption=interruption,
            billed_separately=separately,
            node=line,
            is_of_complete_list=head.is_complete,
        )


def _read_interruption(node: Node) -> str:
    """Return the monthly share of interrupted instances, "5-10 %" or "<5 %"; a range ends below 100."""
    text = str(node.value)
    found = _SHARE.fullmatch(text)
    try:
        ends = [0.0, *(float(end) for end in found.groups() if end)] if found else []
    except ValueError:  # two points in a number
        ends = []
    if not ends or ends[-1] >= 100 or any(more <= less for less, more in pairwise(ends)):
        message = f"expected a percentage of instances below 100, or a range of it, found {node.value!r}"
        raise node.error(message, hint='write 7, "5-10", "<5" or ">20"')
    return f"{text} %"


def _read_note(node: Node, key: str) -> str | None:
    return node[key].text() if key in node else None


def _read_prices(line: Node, *, head: _Head) -> tuple[Price, ...]:
    """Return the prices of one line as written, for a machine or for one GPU."""
    note = _read_note(line, "note") or ""
    prices = {kind: _read_price(line[kind], kind=kind, head=head, note=note) for kind in RENTED_KINDS if kind in line}
    if not prices:
        raise line.error("no price in this line", hint=f"add one of {', '.join(RENTED_KINDS)}")
    trusted = line.get("trusted", {})
    trusted.check_keys(RENTED_KINDS)
    for entry in trusted.entries():
        read_number(entry, quantity="usd_per_hour")
    on_demand = prices.get("on_demand")
    for kind, price in prices.items():
        if on_demand is None or price.usd_per_hour <= on_demand.usd_per_hour:
            continue
        if kind == "spot":
            message = f"spot {price.usd_per_hour} is above on-demand {on_demand.usd_per_hour}"
            raise line[kind].error(message, hint="correct one of the two, or remove the spot price")
        # The provider may have cut the on-demand price since the commitment was listed. `with_doubts` warns about the
        # user's own commitments.
        if price.basis != "own_rate":
            why = f"{kind} {price.usd_per_hour} is above on-demand {on_demand.usd_per_hour}"
            prices[kind] = replace(price, suspect=True, note=note or why)
    for kind in _read_kinds(line.get("stale", []), given=prices):
        prices[kind] = replace(prices[kind], stale=True)
    for kind in _read_kinds(line.get("suspect", []), given=prices):
        prices[kind] = replace(prices[kind], suspect=True)
    return tuple(prices.values())


def _read_kinds(node: Node, *, given: Collection[PriceKind]) -> Iterator[PriceKind]:
    """Yield the prices of the line that a flag applies to."""
    for item in node.items(hint="write [on_demand]"):
        if not isinstance(item.value, str) or item.value not in given:
            hint = did_you_mean(str(item.value), given)
            raise item.error(f"{item.value!r} is not a price of this line", hint=hint)
        yield cast(PriceKind, item.value)


def _read_price(node: Node, *, kind: PriceKind, head: _Head, note: str) -> Price:
    """Read a price: `0.93`, with the date at the top of the file, or `[0.93, key of a source]`."""
    number, source = node, head.default_source
    if isinstance(node.value, list):
        if len(node.value) != 2:
            raise node.error(f"expected [dollars, source], found {node.value!r}", hint="write [0.93, my-source]")
        number = Node(document=node.document, path=node.path, value=node.value[0])
        key = node[1].text()
        source = head.sources.get(key)
        if source is None:
            raise node.error(f"no source {key!r} at the top of the file", hint=did_you_mean(key, head.sources))
    if source is None:
        raise node.error("this price has no date", hint="add `date: 2026-09-01` at the top of the file")
    return Price(
        kind=kind,
        usd_per_hour=float(read_number(number, quantity="usd_per_hour")),
        date=source.date,
        source=source.text,
        basis=source.basis,
        note=note,
    )
