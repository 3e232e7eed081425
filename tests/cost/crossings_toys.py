"""Costs with round numbers, for the tests of crossings."""

from dataclasses import replace
from typing import Any

from advisor.records.answer import Interval
from advisor.records.break_even_curves import KindCost
from advisor.records.device import DeviceKind
from tests.report.toys import quote


def kind_cost(kind: DeviceKind, usd: float, **changes: Any) -> KindCost:
    """The job costs `usd` whatever happens: 100 samples a second at $1 an hour."""
    sure = Interval(mid=usd, low=usd, high=usd)
    of_quote = {name: changes.pop(name) for name in ("samples_per_s", "usd_per_hour") if name in changes}
    toy = replace(
        quote(kind, kind=kind, device=kind, usd=usd), **({"usd_per_hour": 1.0, "samples_per_s": 100.0} | of_quote)
    )
    return KindCost(
        quote=lambda: toy,
        **(
            dict.fromkeys(("own_usd", "shared_usd", "price_usd"), sure)
            | {"own_log_spread": 0.0, "shared_log_spread": 0.0}
            | changes
        ),
    )


def times(usd: float, ratio: float) -> Interval:
    """An interval with its ends at `ratio` times less and more."""
    return Interval(mid=usd, low=usd / ratio, high=usd * ratio)
