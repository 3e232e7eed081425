"""Selects the offers that may be ranked, and gives the cause for leaving out each other one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from advisor.cost.leading import best_of
from advisor.cost.price_trust import price_trust
from advisor.errors import UsageError, did_you_mean
from advisor.records.answer import Quote
from advisor.records.options import DropPrices, Options
from advisor.records.price import (
    ANY_REGION,
    Offer,
    Price,
    PricedOffer,
    PriceErrors,
    PriceKind,
    PriceMark,
    PriceSource,
    Rejected,
)
from advisor.records.rejection import Cause, RejectionCode

_MARK_CODES: dict[PriceMark, RejectionCode] = {"STALE": "stale-price", "SUSPECT": "suspect-price", "OLD": "old-price"}
_SHOWN_PAGES = 2
_DROPPED_MARKS: dict[DropPrices, tuple[PriceMark, ...]] = {
    "none": (),
    "flagged": ("STALE", "SUSPECT"),
    "old": ("STALE", "SUSPECT", "OLD"),
}

_CLOSE_TYPE = 0.8
"""Similarity from which an instance type is suggested; most types of a cloud share half their letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Offers with the price to pay. Only the first `may_win_count` of them may be ranked.

    The others are priced only to say what they would save; `apart` has one rejection for each of them, in order.
    """

    priced: tuple[PricedOffer, ...]
    apart: tuple[Rejected, ...]
    rejected: tuple[Rejected, ...]

    @property
    def may_win_count(self) -> int:
        """The number of offers that may be ranked."""
        return len(self.priced) - len(self.apart)

    @property
    def offers(self) -> tuple[Offer, ...]:
        """The offers of `priced`."""
        return tuple(priced.offer for priced in self.priced)


def select_offers(
    offers: Sequence[Offer],
    *,
    options: Options,
    price_kind: PriceKind,
    errors: PriceErrors,
    today: date | None = None,
) -> Selection:
    """Apply the limits of `options` to the offers; `options.device` holds "cpu", "gpu" or device ids.

    Owned hardware has one price for every `price_kind`. The age of prices is counted up to `today`, by default the
    current date; `errors` says how far prices of an age are off. Raises `UsageError` for a provider, region or instance
    that no offer has.
    """
    check_names(options, offers)
    selected: list[PricedOffer] = []
    set_apart: list[PricedOffer] = []
    apart: list[Rejected] = []
    rejected: list[Rejected] = []
    why_excluded, devices = offer_filter(options), _folded(options.device)
    today = today or date.today()
    trust = price_trust(offers, errors=errors, today=today)
    for offer in offers:
        price = next((price for price in offer.prices if price.kind in (price_kind, "owned")), None)
        if cause := why_excluded(offer):
            rejected.append(Rejected(offer=offer, causes=(cause,)))
            continue
        if offer.no_wheel is not None:
            rejected.append(Rejected(offer=offer, causes=(Cause(code="no-torch-wheel", what=offer.no_wheel),)))
            continue
        if price is None:
            cause = Cause(code="no-price", what=price_kind.replace("_", "-"))
            rejected.append(Rejected(offer=offer, causes=(cause,)))
            continue
        marks = price_marks(price, today=today, max_age_days=options.max_price_age)
        dropped = next((mark for mark in marks if mark in _DROPPED_MARKS[options.drop_prices]), None)
        log_spread, is_trusted = trust(price, offer.tier)
        priced = PricedOffer(offer=offer, price=price, marks=marks, log_spread=log_spread, is_trusted=is_trusted)
        if dropped is not None:
            cause = Cause(code=_MARK_CODES[dropped], what=price.date, note=price.note)
            rejected.append(Rejected(offer=offer, causes=(cause,)))
        elif cause := _why_apart(
            offer,
            is_chosen=bool(options.tier or options.provider or options.instance),
            is_named=bool(options.instance) or (offer.gpu or "").lower() in devices,
        ):
            set_apart.append(priced)
            apart.append(Rejected(offer=offer, causes=(cause,)))
        else:
            selected.append(priced)
    return Selection(priced=(*selected, *set_apart), apart=tuple(apart), rejected=tuple(rejected))


def check_names(options: Options, offers: Sequence[Offer]) -> None:
    """Raise `UsageError` for a provider, region or instance that no offer has."""
    if options.provider:
        _check_known("provider", options.provider, {offer.provider for offer in offers})
    if options.region:
        _check_known("region", options.region, {name for offer in offers for name in (offer.region, offer.geo)})
    if options.instance:
        known = {name for offer in offers for name in (offer.instance, offer.id)}
        hint = "`advise prices list` lists the types, `advise prices show NAME` says why one cannot be predicted"
        _check_known("instance", options.instance, known, otherwise=hint, cutoff=_CLOSE_TYPE)


def offer_filter(options: Options) -> Callable[[Offer], Cause | None]:
    """Return a function that gives the first cause to exclude an offer, None for an offer that the user wants."""
    named = (options.provider, options.region, options.instance, options.device)
    providers, regions, instances, devices = map(_folded, named)
    least_gpus = options.gpus or 0

    def why_excluded(offer: Offer) -> Cause | None:
        if providers and offer.provider.lower() not in providers:
            return Cause(code="other-provider", what=offer.provider)
        if regions and regions.isdisjoint((offer.region.lower(), offer.geo.lower())):
            unnamed = " (its list names no region)" if offer.region == ANY_REGION else ""
            return Cause(code="other-region", what=f"{offer.region}{unnamed}")
        if options.tier and offer.tier not in options.tier:
            return Cause(code="other-tier", what=offer.tier)
        if instances and instances.isdisjoint((offer.instance.lower(), offer.id.lower())):
            return Cause(code="other-instance", what=offer.instance)
        if options.arch and (offer.architecture or "x86") not in options.arch:
            return Cause(code="other-arch", what=offer.architecture or "x86")
        if offer.gpu_count < least_gpus:
            return Cause(code="too-few-gpus", needed=least_gpus, available=offer.gpu_count)
        device = offer.gpu or offer.cpu or ""
        if devices and devices.isdisjoint((offer.kind, device.lower())):
            return Cause(code="other-device", what=device)
        if offer.excluded is not None:  # last, so that the overlay's line is named only for what the flags let in
            return Cause(code="excluded", what=offer.excluded)
        return None

    return why_excluded


def price_marks(price: Price, *, today: date, max_age_days: int) -> tuple[PriceMark, ...]:
    """Return STALE and SUSPECT as the price file says, and OLD if the price is older than `max_age_days`."""
    is_old = (today - date.fromisoformat(price.date)).days > max_age_days
    marks: tuple[tuple[PriceMark, bool], ...] = (("STALE", price.stale), ("SUSPECT", price.suspect), ("OLD", is_old))
    return tuple(mark for mark, holds in marks if holds)


def mark_warnings(quotes: Sequence[Quote], *, max_age_days: int, sources: Mapping[str, PriceSource]) -> tuple[str, ...]:
    """Return one sentence if prices in the ranking are doubtful, else nothing."""
    marked = [quote for quote in quotes if quote.price_marks]
    if not marked:
        return ()
    why: dict[PriceMark, str] = {
        "OLD": f"more than {max_age_days} days old (OLD; --max-price-age)",
        "STALE": "known to be out of date (STALE)",
        "SUSPECT": "not credible (SUSPECT)",
    }
    marks = {mark for quote in marked for mark in quote.price_marks}
    named = " or ".join(text for mark, text in why.items() if mark in marks)
    first = best_of(quotes)
    best = f", including that of the best offer ({first.price_date})" if first is not None and first.price_marks else ""
    return (f"{len(marked):,} of {len(quotes):,} ranked prices are {named}{best}. {_remedy(marked, sources)}",)


def _remedy(marked: Sequence[Quote], sources: Mapping[str, PriceSource]) -> str:
    """Return how to renew the marked prices, by the command or from the provider's page, and how to leave them out."""
    known = {quote.provider: sources[quote.provider] for quote in marked if quote.provider in sources}
    fetched = [provider for provider, source in known.items() if source.refresh == "command"]
    by_hand = [f"{provider} {source.page}" for provider, source in known.items() if source.refresh != "command"]
    remedies = [f"fetch current ones with `advise prices refresh` ({', '.join(sorted(fetched))})"] if fetched else []
    if by_hand:
        more = f" and {len(by_hand) - _SHOWN_PAGES} more" if len(by_hand) > _SHOWN_PAGES else ""
        remedies.append(f"look them up by hand ({', '.join(by_hand[:_SHOWN_PAGES])}{more})")
    *others, last = (*remedies, "leave them out with --drop-prices old")
    said = f"{', '.join(others)} or {last}" if others else last
    return f"{said[:1].upper()}{said[1:]}"


def _folded(names: Sequence[str]) -> frozenset[str]:
    return frozenset(name.lower() for name in names)


def _why_apart(offer: Offer, *, is_chosen: bool, is_named: bool) -> Cause | None:
    """Return why the offer may not win; `is_chosen` and `is_named` say that it was asked for, by group or by name."""
    if offer.billed_separately is not None:
        return Cause(code="billed-separately", what=offer.billed_separately)
    if offer.stack is not None and not is_named:
        return Cause(code="other-stack", what=offer.stack)
    return Cause(code="marketplace") if offer.tier == "marketplace" and not is_chosen else None


def _check_known(flag: str, asked: Sequence[str], known: set[str], *, otherwise: str = "", cutoff: float = 0.6) -> None:
    folded = {name.lower() for name in known}
    for name in asked:
        if name.lower() not in folded:
            hint = did_you_mean(name, known, otherwise=otherwise, cutoff=cutoff)
            raise UsageError(f"--{flag} {name}: no offer has it", hint=hint)
