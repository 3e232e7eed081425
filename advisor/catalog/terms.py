"""Applies the user's own terms, such as discounts and exclusions, to the offers.

A document in a price file without a provider contains terms:

    discounts:                  # percent off price lists; the first line that matches a price counts
      - {provider: aws, family: g5, region: US, commitment: commit_1y, percent: 12}
    markup_percent: 3           # added by a reseller to list prices, after the discount
    exclude: {provider: [vast-ai], family: ["Standard_HB*"]}     # drops offers that match any of these
    only: {region: [EU, us-east-1]}                              # drops offers that do not match all of these
    exchange_rates:
      EUR: {usd: 1.16, date: 2026-11-01}
    owned: {...}                # see `owned`
    extras: {storage_usd_per_month: 20, egress_usd: 5, tax_percent: 19}     # see records.billing.Extras
    quota: [...]                # see `supply`
    availability: [...]

A list price is any price that is not the user's own. `scope` defines families.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from advisor.catalog.billing_files import read_extras
from advisor.catalog.fields import check_keys, read_choice, read_mapping, read_number
from advisor.catalog.owned import read_owned_rows
from advisor.catalog.price_files import RENTED_KINDS, PriceRow, read_date
from advisor.catalog.scope import Scope, check_names, read_lines, read_scope
from advisor.catalog.strict_yaml import Document, KeyPath
from advisor.catalog.supply import Availability, Quota, read_availabilities, read_quotas, with_supply
from advisor.records.billing import Extras
from advisor.records.price import ExchangeRate, Offer, Price, PriceKind, Rejection

TERM_KEYS = (
    "discounts", "markup_percent", "exclude", "only", "exchange_rates", "owned", "extras", "quota", "availability"
)  # fmt: skip
_CURRENCY_CODE = re.compile(r"[A-Z]{3}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Discount:
    """A discount of `percent` on one kind of price, or on all, of the offers in `scope`."""

    scope: Scope
    commitment: PriceKind | None
    percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Markup:
    """A markup of `percent` on every list price; `where` is its place in the file."""

    percent: float
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms of one document, or of several joined, where the first wins."""

    discounts: tuple[Discount, ...] = ()
    markup: Markup | None = None
    exclude: Scope | None = None
    only: Scope | None = None
    exchange_rates: tuple[ExchangeRate, ...] = ()
    owned: tuple[PriceRow, ...] = ()
    extras: Extras | None = None
    quotas: tuple[Quota, ...] = ()
    availabilities: tuple[Availability, ...] = ()


def is_terms(document: Document) -> bool:
    """Return True if the document contains terms instead of the prices of a provider."""
    return isinstance(document.values, Mapping) and any(key in document.values for key in TERM_KEYS)


def read_terms(document: Document) -> Terms:
    """Return the terms of one document; raise `ProfileError` at the first mistake."""
    if "provider" in read_mapping(document, (), document.values):
        hint = "separate the terms and the prices by a line of three hyphens"
        raise document.error(("provider",), "prices and terms in one document", hint=hint)
    values = check_keys(document, (), document.values, known=TERM_KEYS)
    markup = None
    if "markup_percent" in values:
        percent = read_number(
            document, ("markup_percent",), values["markup_percent"], quantity="markup_percent", zero_allowed=True
        )
        markup = Markup(percent=percent, where=document.where(("markup_percent",)))
    exclude, only = (
        read_scope(document, (key,), values[key]) if key in values else None for key in ("exclude", "only")
    )
    return Terms(
        discounts=read_lines(
            document,
            "discounts",
            values.get("discounts", []),
            read=_read_discount,
            keys=("commitment", "percent"),
            example="{provider: aws, percent: 12}",
        ),
        markup=markup,
        exclude=exclude,
        only=only,
        exchange_rates=_read_exchange_rates(document, values.get("exchange_rates", {})),
        owned=read_owned_rows(document, values.get("owned", {})),
        extras=read_extras(document, ("extras",), values["extras"]) if "extras" in values else None,
        quotas=read_quotas(document, values.get("quota", [])),
        availabilities=read_availabilities(document, values.get("availability", [])),
    )


def joined_terms(terms: Sequence[Terms]) -> Terms:
    """Join terms: all lines and exchange rates in order, and the first of everything else."""
    rates: dict[str, ExchangeRate] = {}
    for one in terms:
        for rate in one.exchange_rates:
            rates.setdefault(rate.currency, rate)
    return Terms(
        discounts=tuple(discount for one in terms for discount in one.discounts),
        markup=next((one.markup for one in terms if one.markup), None),
        exclude=next((one.exclude for one in terms if one.exclude), None),
        only=next((one.only for one in terms if one.only), None),
        exchange_rates=tuple(rates.values()),
        owned=tuple(row for one in terms for row in one.owned),
        extras=next((one.extras for one in terms if one.extras), None),
        quotas=tuple(quota for one in terms for quota in one.quotas),
        availabilities=tuple(availability for one in terms for availability in one.availabilities),
    )


def apply_terms(terms: Terms, offers: Iterable[Offer], *, rejected: Iterable[Rejection]) -> list[Offer]:
    """Return the offers with the user's prices, quotas, waiting times and exclusions.

    Raise `ProfileError` for a name that matches no offer and no rejected offer, and so has no effect.
    """
    offers = list(offers)
    scopes = [discount.scope for discount in terms.discounts]
    scopes += [quota.scope for quota in terms.quotas]
    scopes += [availability.scope for availability in terms.availabilities]
    scopes += [scope for scope in (terms.exclude, terms.only) if scope is not None]
    if scopes:
        check_names(scopes, offers=offers, rejected=list(rejected))
    return [_with_terms(offer, terms) for offer in offers]


def _with_terms(offer: Offer, terms: Terms) -> Offer:
    if offer.purchase_usd is not None:
        return offer
    offer = with_supply(offer, quotas=terms.quotas, availabilities=terms.availabilities)
    discounts = [discount for discount in terms.discounts if discount.scope.fits(offer)]
    prices = offer.prices
    if discounts or terms.markup:
        prices = tuple(_with_percents(price, discounts=discounts, markup=terms.markup) for price in offer.prices)
    excluded = _why_excluded(offer, terms)
    return replace(offer, prices=prices, excluded=excluded) if excluded or prices != offer.prices else offer


def _with_percents(price: Price, *, discounts: Sequence[Discount], markup: Markup | None) -> Price:
    """Return list price x (1 - discount) x (1 + markup), with both added to the source."""
    if price.basis == "own_rate":
        return price
    usd_per_hour, source = price.usd_per_hour, price.source
    discount = next((one for one in discounts if one.commitment in (None, price.kind)), None)
    if discount is not None:
        usd_per_hour *= 1 - discount.percent / 100
        source += f"; less {discount.percent:g} % ({discount.scope.document.where(discount.scope.path)})"
    if markup is not None:
        usd_per_hour *= 1 + markup.percent / 100
        source += f"; plus {markup.percent:g} % ({markup.where})"
    return replace(price, usd_per_hour=usd_per_hour, source=source)


def _why_excluded(offer: Offer, terms: Terms) -> str | None:
    if terms.exclude is not None:
        for key, fits in terms.exclude.fits_by(offer).items():
            if fits:
                return f"{terms.exclude.document.where(('exclude', key))} excludes it"
    if terms.only is not None:
        for key, fits in terms.only.fits_by(offer).items():
            if not fits:
                return f"{terms.only.document.where(('only', key))} does not include it"
    return None


def _read_discount(document: Document, path: KeyPath, values: Mapping[str, Any], scope: Scope) -> Discount:
    if "percent" not in values:
        raise document.error(path, "percent is missing", hint="add `percent: 12` for 12 % off")
    percent = read_number(document, (*path, "percent"), values["percent"], quantity="percent")
    if percent >= 100:
        hint = "write 12 for 12 % off"
        raise document.error((*path, "percent"), f"expected less than 100, found {percent:g}", hint=hint)
    commitment = None
    if "commitment" in values:
        here = (*path, "commitment")
        commitment = read_choice(document, here, values["commitment"], choices=RENTED_KINDS)
    return Discount(scope=scope, commitment=commitment, percent=percent)


def _read_exchange_rates(document: Document, value: Any) -> tuple[ExchangeRate, ...]:
    rates = []
    for code, entry in read_mapping(document, ("exchange_rates",), value).items():
        path = ("exchange_rates", code)
        values = check_keys(document, path, entry, known=("usd", "date"))
        if not _CURRENCY_CODE.fullmatch(code) or code == "USD":
            raise document.error(path, f"{code!r} is not the code of a currency other than USD", hint="for example EUR")
        for key in ("usd", "date"):
            if key not in values:
                hint = "write {usd: 1.16, date: 2026-11-01}: the value of one unit in dollars, and its date"
                raise document.error(path, f"{key} is missing", hint=hint)
        usd = float(read_number(document, (*path, "usd"), values["usd"], quantity="usd"))
        rates.append(ExchangeRate(currency=code, usd=usd, date=read_date(document, (*path, "date"), values["date"])))
    return tuple(rates)
