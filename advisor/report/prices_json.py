"""Renders prices and price changes as JSON in base units."""

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from advisor.records.price import Price, PriceChange, PricedOffer


def render_prices_json(rows: Sequence[PricedOffer]) -> str:
    """Return `{"prices": [...]}`; each price has its offer's id, provider, region, instance, device and marks."""
    return _document({"prices": [_priced(row) for row in rows]})


def render_changes_json(changes: Sequence[PriceChange]) -> str:
    """Return `{"changes": [{"id":, "kind":, "before":, "after":}]}`, with null for a side without the price."""
    return _document(
        {
            "changes": [
                {
                    "id": change.offer_id,
                    "kind": change.kind,
                    "before": None if change.before is None else _fields(change.before),
                    "after": None if change.after is None else _fields(change.after),
                }
                for change in changes
            ]
        }
    )


def _priced(row: PricedOffer) -> dict[str, Any]:
    offer = row.offer
    return {
        "id": offer.id,
        "provider": offer.provider,
        "tier": offer.tier,
        "region": offer.region,
        "instance": offer.instance,
        "device": offer.gpu or offer.cpu,
        "gpu_count": offer.gpu_count,
        **_fields(row.price),
        "marks": list(row.marks),
        "excluded": offer.excluded,
    }


def _fields(price: Price) -> dict[str, Any]:
    return {field.name: getattr(price, field.name) for field in fields(price)}


def _document(content: Any) -> str:
    return json.dumps(content, allow_nan=False, ensure_ascii=False, indent=1) + "\n"
