"""Lists the prices in force, those of one instance type, and the differences between two catalogs."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

from advisor.catalog.find import device_ids
from advisor.catalog.invariants import date_warnings
from advisor.catalog.overlay import shipped_layer
from advisor.catalog.parse import check_file, parse_catalog
from advisor.cost.job import price_kind_of
from advisor.cost.selection import check_names, offer_filter, price_marks
from advisor.errors import NothingFitsError, UsageError, did_you_mean
from advisor.records.options import Options
from advisor.records.price import ANY_REGION, Catalog, Offer, PriceChange, PricedOffer, PriceKind
from advisor.records.rejection import Cause


def list_prices(catalog: Catalog, options: Options, *, today: date) -> tuple[PricedOffer, ...]:
    """Return the price of every offer within the limits of `options`, cheapest first; offers without one are left out.

    Raises `UsageError` for an unknown provider, region or device.
    """
    check_names(options, catalog.offers)
    why_excluded = _filter(catalog, options)
    within = [offer for offer in catalog.offers if why_excluded(offer) is None]
    return tuple(
        sorted(
            _priced(within, options, kinds=(price_kind_of(options), "owned"), today=today),
            key=lambda priced: (priced.price.usd_per_hour, priced.offer.id),
        )
    )


def no_price_error(catalog: Catalog, options: Options) -> NothingFitsError:
    """Return the error of a list without a price; it names a line of an overlay that rules out what is asked for."""
    hint, why_excluded = "remove some of the limits", _filter(catalog, options)
    causes = (why_excluded(offer) for offer in catalog.offers if offer.region == ANY_REGION)
    if any(cause is not None and cause.code == "other-region" for cause in causes):
        hint += f", or add --region {ANY_REGION}: most lists of GPU clouds name no regions"
    ruled_out = (offer for offer in catalog.offers if (cause := why_excluded(offer)) and cause.code == "excluded")
    if offer := next(ruled_out, None):
        hint += f", or change your overlay ({offer.id}: {offer.excluded})"
    return NothingFitsError("no price is within these limits", hint=hint)


def _filter(catalog: Catalog, options: Options) -> Callable[[Offer], Cause | None]:
    return offer_filter(replace(options, device=device_ids(catalog, options.device)))


def show_prices(catalog: Catalog, name: str, options: Options, *, today: date) -> tuple[PricedOffer, ...]:
    """Return every price of an instance type, or of the offer with that id, in every region.

    Raises `UsageError` for an unknown name.
    """
    wanted = name.lower()
    rented = (*catalog.offers, *catalog.unpredicted)
    offers = [offer for offer in rented if wanted in (offer.instance.lower(), offer.id.lower())]
    if not offers:
        known = (offer.instance for offer in rented)
        hint = did_you_mean(name, known, otherwise="`advise prices list` has all", most=3)
        raise UsageError(f"no provider rents {name!r}", hint=hint)
    reasons = {rejection.id: rejection.reason for rejection in catalog.rejected}
    return tuple(
        replace(priced, unpredicted=reasons.get(priced.offer.id, ""))
        for priced in _priced(offers, options, kinds=None, today=today)
    )


def price_changes(before: Iterable[Offer], after: Iterable[Offer]) -> tuple[PriceChange, ...]:
    """Return the prices whose dollars, date, source or marks differ, by id."""
    old, new = (
        {(offer.id, price.kind): price for offer in offers for price in offer.prices} for offers in (before, after)
    )
    return tuple(
        PriceChange(offer_id=key[0], kind=key[1], before=old.get(key), after=new.get(key))
        for key in sorted({**old, **new})
        if old.get(key) != new.get(key)
    )


def changes_of_ours(catalog: Catalog) -> tuple[PriceChange, ...]:
    """Return the shipped prices that the overlays of `catalog` change."""
    return price_changes(parse_catalog([shipped_layer()]).offers, catalog.offers)


def validate_file(file: Path, *, today: date) -> tuple[str, tuple[str, ...]]:
    """Return one sentence on the contents of a profile, price or overlay file, and its prices that are not credible.

    Raises `UsageError` for a missing file, `ProfileError` at its first mistake.
    """
    if not os.path.lexists(file):
        raise UsageError(f"{file}: no such file", hint="name a YAML file of prices, terms or a device")
    holds, catalog = check_file(file)
    sentence = f"{file} is valid: {holds}"
    if catalog is None:
        return sentence, ()
    changes = changes_of_ours(catalog)
    excluded = sum(offer.excluded is not None for offer in catalog.offers)
    if changes or excluded:
        differ = "price differs" if len(changes) == 1 else "prices differ"
        sentence += f"; {len(changes):,} {differ} from ours, {excluded:,} offers are ruled out"
    return sentence, (*catalog.doubts, *date_warnings(catalog, today=today))


def _priced(
    offers: Sequence[Offer], options: Options, *, kinds: Sequence[PriceKind] | None, today: date
) -> Iterable[PricedOffer]:
    for offer in offers:
        for price in offer.prices:
            if kinds is None or price.kind in kinds:
                marks = price_marks(price, today=today, max_age_days=options.max_price_age)
                yield PricedOffer(offer=offer, price=price, marks=marks)
