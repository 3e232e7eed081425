"""Renders prices and price changes as tables for a terminal."""

from collections import Counter
from collections.abc import Sequence

from advisor import units
from advisor.records.price import ExchangeRate, Offer, Price, PriceChange, PricedOffer
from advisor.report.money import rate_note
from advisor.report.text_page import Heading, Page
from advisor.report.view import View

_DIGITS = 4
_UNCHANGED_RATIO = 5e-4
"""A smaller change would show as 0.0 %; it counts as a change of date or source only."""


def render_price_list(
    rows: Sequence[PricedOffer], *, rate: ExchangeRate | None, view: View, notes: Sequence[str] = ()
) -> str:
    """Return a table of the first `view.top` prices, one per line."""
    page = Page(width=view.width, color=view.color)
    page.table(
        [*map(_text, ("provider", "instance", "region", "device")), _number(_per_hour(rate)), *_DATE_HEADINGS],
        [
            (
                row.offer.provider,
                row.offer.instance,
                row.offer.region,
                _device(row.offer),
                _amount(row.price, rate=rate),
                *_date_cells(row),
            )
            for row in rows[: view.top]
        ],
    )
    if len(rows) > view.top:
        page.line(f"{len(rows) - view.top:,} more (--top {len(rows)} shows all).", style="dim")
    _add_notes(page, rows, rate=rate)
    page.titled_list("Notes:", notes)
    return page.text()


def render_prices_of(
    rows: Sequence[PricedOffer], *, rate: ExchangeRate | None, view: View, notes: Sequence[str] = ()
) -> str:
    """Return every price of one instance type: kind, region, date, marks, and the number of its source below."""
    page = Page(width=view.width, color=view.color)
    for title in dict.fromkeys(_title(row.offer) for row in rows):
        page.line(title, style="bold")
    page.blank()
    numbers: dict[str, int] = {}
    page.table(
        [
            *map(_text, ("provider", "region", "kind")),
            _number(_per_hour(rate)),
            *_DATE_HEADINGS,
            _number("source"),
        ],
        [
            (
                row.offer.provider,
                row.offer.region,
                row.price.kind,
                _amount(row.price, rate=rate),
                *_date_cells(row),
                f"[{numbers.setdefault(_source(row), len(numbers) + 1)}]",
            )
            for row in rows
        ],
    )
    page.titled_list("Sources:", (f"[{number}] {source}" for source, number in numbers.items()))
    _add_notes(page, rows, rate=rate)
    page.titled_list("Notes:", notes)
    return page.text()


def render_changes(changes: Sequence[PriceChange], *, rate: ExchangeRate | None, view: View) -> str:
    """Return the `view.top` largest price changes, then how many prices only changed their date or source."""
    page = Page(width=view.width, color=view.color)
    moved = [change for change in changes if _ratio(change) is None or abs(_ratio(change) or 0) >= _UNCHANGED_RATIO]
    moved.sort(key=lambda change: (_ratio(change) is None, -abs(_ratio(change) or 0), change.offer_id, change.kind))
    if moved:
        page.table(
            [*map(_text, ("offer", "kind")), *map(_number, ("before", "after", "change"))],
            [
                (
                    change.offer_id,
                    change.kind,
                    _amount(change.before, rate=rate),
                    _amount(change.after, rate=rate),
                    _change(change),
                )
                for change in moved[: view.top]
            ],
        )
    if len(moved) > view.top:
        page.line(f"{len(moved) - view.top:,} more (--top {len(moved)} shows all).", style="dim")
    prices, marked = "price" if len(moved) == 1 else "prices", len(changes) - len(moved)
    page.line(f"{len(moved):,} {prices} changed; {marked:,} changed only in date, source or marks.")
    for note in rate_note(rate):
        page.line(note, style="dim")
    return page.text()


def excluded_lines(offers: Sequence[Offer]) -> tuple[str, ...]:
    """Return how many offers each of the user's exclusions rules out."""
    counts = Counter(offer.excluded for offer in offers if offer.excluded)
    return tuple(f"{count:,} offers: {reason}" for reason, count in counts.most_common())


def _text(title: str) -> Heading:
    return Heading(text=title)


def _number(title: str) -> Heading:
    return Heading(text=title, is_number=True)


_DATE_HEADINGS = (_text("date"), _text("marks"))


def _per_hour(rate: ExchangeRate | None) -> str:
    return f"{'$' if rate is None else rate.currency}/h"


def _amount(price: Price | None, *, rate: ExchangeRate | None) -> str:
    if price is None:
        return "-"
    text = units.format_money(price.usd_per_hour, rate=rate, digits=_DIGITS)
    return text.lstrip("$") if rate is None else text.removeprefix(f"{rate.currency} ")


def _date_cells(row: PricedOffer) -> tuple[str, str]:
    marks = [*row.marks, *(["EXCLUDED"] if row.offer.excluded else [])]
    return row.price.date, " ".join(marks)


def _source(row: PricedOffer) -> str:
    return "; ".join(part for part in (row.price.source, row.price.note, row.offer.excluded) if part)


def _title(offer: Offer) -> str:
    parts = [_device(offer)] if offer.gpu or offer.cpu else []
    parts += [f"{offer.vcpus} vCPU"] if offer.vcpus else []
    parts += [units.format_bytes(offer.memory_bytes)] if offer.memory_bytes else []
    return f"{offer.provider} {offer.instance}: {', '.join(parts)}"


def _device(offer: Offer) -> str:
    return f"{offer.gpu_count}x {offer.gpu}" if offer.gpu else f"{offer.cpu}"


def _add_notes(page: Page, rows: Sequence[PricedOffer], *, rate: ExchangeRate | None) -> None:
    marks = sorted({mark for row in rows for mark in row.marks})
    meaning = {
        "OLD": "OLD: older than --max-price-age.",
        "STALE": "STALE: known to be out of date; --drop-prices none includes it.",
        "SUSPECT": "SUSPECT: implausible; --drop-prices none includes it.",
    }
    for note in (*(meaning[mark] for mark in marks), *rate_note(rate)):
        page.line(note, style="dim")


def _ratio(change: PriceChange) -> float | None:
    """Return the relative rise of the price, or None if it exists on only one side."""
    if change.before is None or change.after is None:
        return None
    return change.after.usd_per_hour / change.before.usd_per_hour - 1


def _change(change: PriceChange) -> str:
    ratio = _ratio(change)
    if ratio is None:
        return "new" if change.before is None else "gone"
    return f"{ratio:+.1%}"
