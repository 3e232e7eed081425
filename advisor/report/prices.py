"""Makes the answers on prices and price changes, their JSON, and the report's section on the sources of prices."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from advisor import units
from advisor.records.answer import Quote
from advisor.records.price import ExchangeRate, Offer, PriceBasis, PriceChange, PricedOffer, PriceMark
from advisor.records.report_contents import PriceSource
from advisor.report.amounts import count_text, rate_note
from advisor.report.as_json import as_dict
from advisor.report.content import Block, Listing, Paragraph, Section
from advisor.report.marks import arm_mark
from advisor.report.tables import ColumnOf, column, more_note, numbers, table_of

BASIS_NAMES: Mapping[PriceBasis, str] = {
    "list": "list price",
    "published": "as published",
    "minimum_live_offer": "cheapest live offer",
    "median_live_offer": "median of live offers",
    "own_rate": "your own price",
    "own_hardware": "cost of your hardware",
}
_SPOT_NAMES: Mapping[PriceBasis, str] = {
    **BASIS_NAMES,
    "list": "spot price",
    "published": "spot price as published",
}
_DIGITS = 4
_UNCHANGED_RATIO = 5e-4
"""A smaller change would show as 0.0 %; it counts as a change of date or source only."""
_MARKS: Mapping[PriceMark, str] = {
    "OLD": "OLD: older than --max-price-age.",
    "STALE": "STALE: known to be out of date; --drop-prices none includes it.",
    "SUSPECT": "SUSPECT: implausible; --drop-prices none includes it.",
}


def price_list_content(
    rows: Sequence[PricedOffer], *, rate: ExchangeRate | None, top: int, notes: tuple[str, ...] = ()
) -> Iterator[Block]:
    """Yield a table of the first `top` prices, one per line."""
    columns: tuple[ColumnOf[PricedOffer], ...] = (
        column("provider", lambda row: row.offer.provider),
        column("instance", lambda row: f"{row.offer.instance}{arm_mark(row.offer.architecture)}"),
        column("region", lambda row: row.offer.region),
        column("device", lambda row: _device(row.offer)),
        *_price_columns(rate),
    )
    table_notes = (*more_note(len(rows), top=top), *_notes(rows, rate=rate))
    yield table_of(rows[:top], columns, notes=table_notes, highlighted=0)
    yield Listing(title="Notes", items=notes)


def instance_prices_content(
    rows: Sequence[PricedOffer], *, rate: ExchangeRate | None, notes: tuple[str, ...] = ()
) -> Iterator[Block]:
    """Yield every price of one instance type: kind, region, date, marks, and the number of its source below."""
    title, *others = dict.fromkeys(_title(row.offer) for row in rows)
    reasons = dict.fromkeys(f"It cannot be predicted: {row.unpredicted}." for row in rows if row.unpredicted)
    yield Paragraph(title=title, sentences=(*others, *reasons))
    sources = tuple(dict.fromkeys(map(_source, rows)))
    columns: tuple[ColumnOf[PricedOffer], ...] = (
        column("provider", lambda row: row.offer.provider),
        column("region", lambda row: row.offer.region),
        column("kind", lambda row: row.price.kind),
        *_price_columns(rate),
        numbers("source", lambda row: sources.index(_source(row)) + 1, lambda number: f"[{number}]"),
    )
    yield table_of(rows, columns, notes=_notes(rows, rate=rate))
    items = tuple(f"[{number}] {source}" for number, source in enumerate(sources, start=1))
    yield Listing(title="Sources", items=items)
    yield Listing(title="Notes", items=notes)


def price_changes_content(
    changes: Sequence[PriceChange], *, rate: ExchangeRate | None, top: int, offers: Sequence[Offer] = ()
) -> Iterator[Block]:
    """Yield how many prices changed, the `top` largest changes, and what each of the user's exclusions rules out."""
    moved = [change for change in changes if _ratio(change) is None or abs(_ratio(change) or 0) >= _UNCHANGED_RATIO]
    moved.sort(key=lambda change: (_ratio(change) is None, -abs(_ratio(change) or 0), change.offer_id, change.kind))
    columns: tuple[ColumnOf[PriceChange], ...] = (
        column("offer", lambda change: change.offer_id),
        column("kind", lambda change: change.kind),
        numbers("before", lambda change: change.before.usd_per_hour if change.before else None, _amount(rate)),
        numbers("after", lambda change: change.after.usd_per_hour if change.after else None, _amount(rate)),
        column("change", _change, _ratio),
    )
    ruled_out = Counter(offer.excluded for offer in offers if offer.excluded)
    yield Paragraph(
        title=(
            f"{len(moved):,} {'price' if len(moved) == 1 else 'prices'} changed; {len(changes) - len(moved):,} changed "
            "only in date, source or marks."
        ),
        sentences=tuple(f"{count:,} offers: {reason}" for reason, count in ruled_out.most_common()),
    )
    yield table_of(moved[:top], columns, notes=(*more_note(len(moved), top=top), *rate_note(rate)))


def render_prices_json(rows: Sequence[PricedOffer]) -> str:
    """Return `{"prices": [...]}`; each price has its offer's id, provider, region, instance, device and marks."""
    prices = [
        {
            "id": row.offer.id,
            "provider": row.offer.provider,
            "tier": row.offer.tier,
            "region": row.offer.region,
            "instance": row.offer.instance,
            "device": row.offer.gpu or row.offer.cpu,
            "gpu_count": row.offer.gpu_count,
            "architecture": row.offer.architecture,
            **as_dict(row.price),
            "marks": list(row.marks),
            "excluded": row.offer.excluded,
            "unpredicted": row.unpredicted or None,
        }
        for row in rows
    ]
    return _document({"prices": prices})


def render_changes_json(changes: Sequence[PriceChange]) -> str:
    """Return `{"changes": [{"id":, "kind":, "before":, "after":}]}`, with null for a side without the price."""
    found = map(as_dict, changes)
    return _document({"changes": [{"id": change.pop("offer_id"), **change} for change in found]})


def _document(content: Any) -> str:
    return json.dumps(content, default=as_dict, allow_nan=False, ensure_ascii=False, indent=1) + "\n"


def prices_section(sources: Sequence[PriceSource]) -> Section:
    """Return the section on the sources and dates of the prices."""
    table = table_of(
        sources,
        (
            column("provider", lambda one: one.provider, is_choice=True),
            numbers("offers", lambda one: one.offer_count, count_text),
            column("dates", lambda one: _period(one.oldest, one.newest)),
            column("basis", lambda one: BASIS_NAMES[one.basis]),
            column("source", lambda one: one.source),
        ),
        title="Sources of prices",
    )
    oldest = min((one.oldest for one in sources), default="")
    newest = max((one.newest for one in sources), default="")
    lead = f"{sum(one.offer_count for one in sources):,} prices of {_period(oldest, newest)}, with their sources"
    return Section(id="prices", title="Prices", lead=(lead,), tables=(table,), is_folded=True)


def basis_name(quote: Quote) -> str:
    """Return what the price of a quote rests on, such as "list price less 12 %"; nobody lists a spot price."""
    names = _SPOT_NAMES if quote.price_kind == "spot" else BASIS_NAMES
    return f"{names[quote.price_basis]} {quote.price_adjustment}".rstrip()


def _period(oldest: str, newest: str) -> str:
    return oldest if oldest == newest else f"{oldest} to {newest}"


def _price_columns(rate: ExchangeRate | None) -> tuple[ColumnOf[PricedOffer], ...]:
    return (
        numbers(f"{'$' if rate is None else rate.currency}/h", lambda row: row.price.usd_per_hour, _amount(rate)),
        column("date", lambda row: row.price.date),
        column("marks", lambda row: " ".join((*row.marks, *(["EXCLUDED"] if row.offer.excluded else [])))),
    )


def _amount(rate: ExchangeRate | None) -> Callable[[float], str]:
    """Return the function that formats dollars in the currency of `rate`, without its name."""
    one_usd = 1.0 if rate is None else rate.usd
    return lambda usd: units.format_amount(usd / one_usd, digits=_DIGITS)


def _notes(rows: Sequence[PricedOffer], *, rate: ExchangeRate | None) -> tuple[str, ...]:
    marks = sorted({mark for row in rows for mark in row.marks})
    return (*(_MARKS[mark] for mark in marks), *rate_note(rate))


def _source(row: PricedOffer) -> str:
    return "; ".join(part for part in (row.price.source, row.price.note, row.offer.excluded) if part)


def _title(offer: Offer) -> str:
    parts = [_device(offer)] if offer.gpu or offer.cpu else []
    parts += [f"{offer.vcpus} vCPU"] if offer.vcpus else []
    parts += [units.format_bytes(offer.memory_bytes)] if offer.memory_bytes else []
    return f"{offer.provider} {offer.instance}: {', '.join(parts)}"


def _device(offer: Offer) -> str:
    return f"{offer.gpu_count}x {offer.gpu}" if offer.gpu else f"{offer.cpu}"


def _ratio(change: PriceChange) -> float | None:
    """Return the relative rise of the price, or None if it exists on only one side."""
    if change.before is None or change.after is None:
        return None
    return change.after.usd_per_hour / change.before.usd_per_hour - 1


def _change(change: PriceChange) -> str:
    if (ratio := _ratio(change)) is None:
        return "new" if change.before is None else "gone"
    return f"{ratio:+.1%}"
