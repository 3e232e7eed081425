"""Selects the offers that may be ranked, and gives the reason for leaving out each other one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from itertools import repeat
from operator import attrgetter
from typing import TypeAlias

from advisor.cost.collector import collector_paused
from advisor.cost.price_marks import price_marks
from advisor.errors import UsageError
from advisor.records.columns import from_columns
from advisor.records.options import DropPrices, Options
from advisor.records.price import Offer, Price, PricedOffer, PriceKind, PriceMark, Rejection, RejectionCode

_Priced: TypeAlias = tuple[Offer, Price, tuple[PriceMark, ...]]
_MARK_CODES: dict[PriceMark, RejectionCode] = {"STALE": "stale-price", "SUSPECT": "suspect-price", "OLD": "old-price"}
_DROPPED_MARKS: dict[DropPrices, tuple[PriceMark, ...]] = {
    "none": (),
    "flagged": ("STALE", "SUSPECT"),
    "old": ("STALE", "SUSPECT", "OLD"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Offers with the price to pay. Only the first `may_win_count` of them may be ranked.

    The others are priced only to say what they would save; `apart` has one rejection for each of them, in order.
    """

    priced: tuple[PricedOffer, ...]
    may_win_count: int
    apart: tuple[Rejection, ...]
    rejected: tuple[Rejection, ...]

    @property
    def offers(self) -> tuple[Offer, ...]:
        """The offers of `priced`."""
        return tuple(priced.offer for priced in self.priced)


@collector_paused()
def select_offers(
    offers: Sequence[Offer], *, options: Options, price_kind: PriceKind, today: date | None = None
) -> Selection:
    """Apply the limits of `options` to the offers; `options.device` holds "cpu", "gpu" or device ids.

    Owned hardware has one price for every `price_kind`. The age of prices is counted up to `today`, by default the
    current date. Raises `UsageError` for a provider or region that no offer has.
    """
    check_names(options, offers)
    selected: list[_Priced] = []
    set_apart: list[_Priced] = []
    apart: list[Rejection] = []
    rejected: list[Rejection] = []
    limits = Limits.of(options)
    today = today or date.today()
    dropped = _DROPPED_MARKS[options.drop_prices]
    for offer in offers:
        price = _price_of(offer, price_kind)
        marks = price_marks(price, today=today, max_age_days=options.max_price_age) if price else ()
        unwanted = [mark for mark in marks if mark in dropped] if marks else ()
        outside = limits.exclude(offer) or _unusable(offer, price, price_kind=price_kind, unwanted=unwanted)
        if outside or price is None:
            code, reason = outside or ("no-price", "")
            rejected.append(rejection(offer, code=code, reason=reason))
        elif why := _why_apart(offer, is_chosen=bool(options.tier or options.provider)):
            set_apart.append((offer, price, marks))
            apart.append(rejection(offer, code=why[0], reason=why[1]))
        else:
            selected.append((offer, price, marks))
    return Selection(
        priced=tuple(_priced_offers([*selected, *set_apart])),
        may_win_count=len(selected),
        apart=tuple(apart),
        rejected=tuple(rejected),
    )


def check_names(options: Options, offers: Sequence[Offer]) -> None:
    """Raise `UsageError` for a provider or region that no offer has."""
    if options.provider:
        _check_known("provider", options.provider, {offer.provider for offer in offers})
    if options.region:
        _check_known("region", options.region, {name for offer in offers for name in (offer.region, offer.geo)})


def rejection(offer: Offer, *, code: RejectionCode, reason: str) -> Rejection:
    """Return the rejection of one offer."""
    return Rejection(
        id=offer.id, provider=offer.provider, region=offer.region, instance=offer.instance, code=code, reason=reason
    )


def reject_all(offers: Sequence[Offer], *, code: RejectionCode, reasons: Iterable[str]) -> list[Rejection]:
    """Return the rejections of many offers, each with its own reason."""
    columns = {name: map(attrgetter(name), offers) for name in ("id", "provider", "region", "instance")}
    return from_columns(Rejection, {**columns, "code": repeat(code), "reason": reasons}, count=len(offers))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The user's limits on offers, in lower case; an empty one excludes nothing."""

    providers: frozenset[str]
    regions: frozenset[str]
    tiers: frozenset[str]
    devices: frozenset[str]
    least_gpus: int = 0

    @classmethod
    def of(cls, options: Options) -> "Limits":
        """Return the limits that the options set."""
        return cls(
            providers=_folded(options.provider),
            regions=_folded(options.region),
            tiers=frozenset(options.tier),
            devices=_folded(options.device),
            least_gpus=options.gpus or 0,
        )

    def exclude(self, offer: Offer) -> tuple[RejectionCode, str] | None:
        """Return code and reason of the first limit that excludes the offer, else None."""
        if offer.excluded is not None:
            return "excluded", offer.excluded
        if self.providers and offer.provider.lower() not in self.providers:
            return "other-provider", f"{offer.provider} is not in --provider"
        if self.regions and self.regions.isdisjoint((offer.region.lower(), offer.geo.lower())):
            return "other-region", f"{offer.region} is not in --region"
        if self.tiers and offer.tier not in self.tiers:
            return "other-tier", f"{offer.tier} is not in --tier"
        kind = "cpu" if offer.gpu is None else "gpu"
        if offer.gpu_count < self.least_gpus:
            gpus = f"{offer.gpu_count} GPU{'' if offer.gpu_count == 1 else 's'}"
            return "too-few-gpus", f"has {gpus}, needs {self.least_gpus}"
        if self.devices and self.devices.isdisjoint((kind, (offer.gpu or offer.cpu or "").lower())):
            return "other-device", f"{offer.gpu or offer.cpu} is not in --device"
        return None


def _price_of(offer: Offer, kind: PriceKind) -> Price | None:
    for price in offer.prices:
        if price.kind in (kind, "owned"):
            return price
    return None


def _priced_offers(rows: Sequence[_Priced]) -> list[PricedOffer]:
    offers, prices, marks = ([row[column] for row in rows] for column in range(3))
    return from_columns(PricedOffer, {"offer": offers, "price": prices, "marks": marks}, count=len(rows))


def _folded(names: Sequence[str]) -> frozenset[str]:
    return frozenset(name.lower() for name in names)


def _unusable(
    offer: Offer, price: Price | None, *, price_kind: PriceKind, unwanted: Sequence[PriceMark]
) -> tuple[RejectionCode, str] | None:
    if price is None:
        return "no-price", f"has no {price_kind.replace('_', '-')} price"
    reasons: dict[PriceMark, str] = {
        "STALE": price.note or f"the price from {price.date} is known to be out of date",
        "SUSPECT": price.note or f"the price from {price.date} is not credible",
        "OLD": f"the price dates from {price.date}",
    }
    if unwanted:
        return _MARK_CODES[unwanted[0]], reasons[unwanted[0]]
    return None


def _why_apart(offer: Offer, *, is_chosen: bool) -> tuple[RejectionCode, str] | None:
    if offer.billed_separately is not None:
        return "billed-separately", f"the price leaves out {offer.billed_separately}"
    if offer.tier == "marketplace" and not is_chosen:
        return "marketplace", "marketplace hosts vary; add --tier marketplace or --provider to rank them"
    return None


def _check_known(flag: str, asked: Sequence[str], known: set[str]) -> None:
    folded = {name.lower(): name for name in known}
    for name in asked:
        if name.lower() not in folded:
            close = get_close_matches(name.lower(), folded, n=1)
            hint = f"did you mean {folded[close[0]]}?" if close else f"use one of {', '.join(sorted(known))}"
            raise UsageError(f"--{flag} {name}: no offer has it", hint=hint)
