"""Says in words that an offer rests on a doubtful price."""

from advisor.records.answer import Quote


def price_of_date(quote: Quote) -> str:
    """Return "price of 2026-07-20", or "spot price of 2026-07-20"."""
    return f"{'spot price' if quote.price_kind == 'spot' else 'price'} of {quote.price_date}"


def if_price_holds(quote: Quote) -> str:
    """Return ", if its price of 2026-05-24 still holds" for a doubtful price; "" for a trusted one."""
    return "" if quote.price_is_trusted else f", if its {price_of_date(quote)} still holds"
