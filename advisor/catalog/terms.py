"""The user's own terms in, the offers as this user would pay for them out.

A document of a price file that names no provider holds terms:

    discounts:                  # percent off price lists; of those that fit a price the first counts
      - {provider: aws, family: g5, region: US, commitment: commit_1y, percent: 12}
    markup_percent: 3           # what a reseller adds to price lists, after the discount
    exclude: {provider: [vast-ai], family: ["Standard_HB*"]}     # offers that fit one of these are out
    only: {region: [EU, us-east-1]}                              # and so are those that do not fit all of these
    exchange_rates:
      EUR: {usd: 1.16, date: 2026-11-01}
    owned: {...}                # see `owned`
    extras: {storage_usd_per_month: 20, egress_usd: 5, tax_percent: 19}     # see records.billing.Extras

A price list is any price whose basis is not the user's own rate. A family is the start of an instance's name up to a
separator (g5 is g5.xlarge, not g5g.xlarge), or a pattern with *.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from advisor.catalog.billing import read_extras
from advisor.catalog.fields import check_keys, read_choice, read_mapping, read_number, read_text
from advisor.catalog.owned import read_owned_rows
from advisor.catalog.prices import RENTED_KINDS, PriceRow, read_date
from advisor.catalog.strict_yaml import Document, KeyPath, did_you_mean
from advisor.records.billing import Extras
from advisor.records.price import ExchangeRate, Offer, Price, PriceKind, Rejection

TERM_KEYS = ("discounts", "markup_percent", "exclude", "only", "exchange_rates", "owned", "extras")
_SCOPE_KEYS = ("provider", "region", "family")
_CURRENCY_CODE = re.compile(r"[A-Z]{3}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Names as the user wrote them: providers, regions or parts of the world, families. Empty: any."""

    provider: tuple[str, ...]
    region: tuple[str, ...]
    family: tuple[str, ...]
    document: Document
    path: KeyPath

    def fits_by(self, offer: Offer) -> dict[str, bool]:
        """For each key that is given, whether the offer fits one of its names."""
        region_names = (offer.region.lower(), offer.geo.lower())
        fits = {
            "provider": any(name.lower() == offer.provider for name in self.provider),
            "region": any(name.lower() in region_names for name in self.region),
            "family": any(is_of_family(offer.instance, name) for name in self.family),
        }
        return {key: fit for key, fit in fits.items() if getattr(self, key)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Discount:
    """`percent` off the prices of one kind, or of all, of the offers in `scope`."""

    scope: Scope
    commitment: PriceKind | None
    percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Markup:
    """`percent` on top of every price list; `where` it is written."""

    percent: float
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What one document says, or several together, first wins."""

    discounts: tuple[Discount, ...] = ()
    markup: Markup | None = None
    exclude: Scope | None = None
    only: Scope | None = None
    exchange_rates: tuple[ExchangeRate, ...] = ()
    owned: tuple[PriceRow, ...] = ()
    extras: Extras | None = None


def is_terms(document: Document) -> bool:
    """Whether the document holds terms, not the prices of a provider."""
    return isinstance(document.values, Mapping) and any(key in document.values for key in TERM_KEYS)


def read_terms(document: Document) -> Terms:
    """The terms of one document; raise `ProfileError` at the first thing that cannot be right."""
    if "provider" in read_mapping(document, (), document.values):
        hint = "put the terms into a document of their own, above a line of three hyphens"
        raise document.error(("provider",), "prices and terms in one document", hint=hint)
    values = check_keys(document, (), document.values, known=TERM_KEYS)
    markup = None
    if "markup_percent" in values:
        percent = read_number(document, ("markup_percent",), values["markup_percent"], zero_allowed=True)
        markup = Markup(percent=percent, where=document.where(("markup_percent",)))
    exclude, only = (
        _read_scope(document, (key,), values[key]) if key in values else None for key in ("exclude", "only")
    )
    return Terms(
        discounts=_read_discounts(document, values.get("discounts", [])),
        markup=markup,
        exclude=exclude,
        only=only,
        exchange_rates=_read_exchange_rates(document, values.get("exchange_rates", {})),
        owned=read_owned_rows(document, values.get("owned", {})),
        extras=read_extras(document, ("extras",), values["extras"]) if "extras" in values else None,
    )


def joined_terms(terms: Sequence[Terms]) -> Terms:
    """All discounts and exchange rates in order; of anything else the first."""
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
    )


def apply_terms(terms: Terms, offers: Iterable[Offer], *, rejected: Iterable[Rejection]) -> list[Offer]:
    """The offers with the user's prices, and why some are excluded; all others stay as they are.

    Raises `ProfileError` for a name that neither an offer nor a rejected one has: it would change nothing.
    """
    offers = list(offers)
    scopes = [discount.scope for discount in terms.discounts]
    scopes += [scope for scope in (terms.exclude, terms.only) if scope is not None]
    if scopes:
        _check_names(scopes, offers=offers, rejected=list(rejected))
    return [_with_terms(offer, terms) for offer in offers]


def is_of_family(instance: str, family: str) -> bool:
    """Whether the family is the start of the instance's name up to a separator, or its pattern."""
    name, family = instance.lower(), family.lower()
    if "*" in family:
        return fnmatchcase(name, family)
    return name.startswith(family) and not name[len(family) : len(family) + 1].isalnum()


def _with_terms(offer: Offer, terms: Terms) -> Offer:
    if offer.purchase_usd is not None:
        return offer
    discounts = [discount for discount in terms.discounts if all(discount.scope.fits_by(offer).values())]
    prices = offer.prices
    if discounts or terms.markup:
        prices = tuple(_with_percents(price, discounts=discounts, markup=terms.markup) for price in offer.prices)
    excluded = _why_excluded(offer, terms)
    return replace(offer, prices=prices, excluded=excluded) if excluded or prices != offer.prices else offer


def _with_percents(price: Price, *, discounts: Sequence[Discount], markup: Markup | None) -> Price:
    """List price x (1 - discount) x (1 + markup); the source says which."""
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
                return f"{terms.exclude.document.where(('exclude', key))} rules it out"
    if terms.only is not None:
        for key, fits in terms.only.fits_by(offer).items():
            if not fits:
                return f"{terms.only.document.where(('only', key))} does not name it"
    return None


def _check_names(scopes: Sequence[Scope], *, offers: Sequence[Offer], rejected: Sequence[Rejection]) -> None:
    rows: list[Offer | Rejection] = [*offers, *rejected]
    known = {
        "provider": {row.provider for row in rows},
        "region": {row.region for row in rows} | {offer.geo for offer in offers},
    }
    folded = {key: {name.lower() for name in names} for key, names in known.items()}
    instances = {row.instance for row in rows}
    for scope in scopes:
        for key, names in known.items():
            for name in getattr(scope, key):
                if name.lower() not in folded[key]:
                    hint = did_you_mean(name, known=names)
                    raise scope.document.error((*scope.path, key), f"no offer has the {key} {name!r}", hint=hint)
        for family in scope.family:
            if not any(is_of_family(instance, family) for instance in instances):
                hint = 'write the start of the names up to a separator (g5), or a pattern ("Standard_ND*")'
                raise scope.document.error((*scope.path, "family"), f"no instance is of {family!r}", hint=hint)


def _read_discounts(document: Document, value: Any) -> tuple[Discount, ...]:
    if not isinstance(value, list):
        hint = "write `- {provider: aws, percent: 12}` lines"
        raise document.error(("discounts",), f"expected a list, found {value!r}", hint=hint)
    return tuple(_read_discount(document, ("discounts", index), entry) for index, entry in enumerate(value))


def _read_discount(document: Document, path: KeyPath, entry: Any) -> Discount:
    values = check_keys(document, path, entry, known=(*_SCOPE_KEYS, "commitment", "percent"))
    if "percent" not in values:
        raise document.error(path, "percent is missing", hint="add `percent: 12` for 12 % off")
    percent = read_number(document, (*path, "percent"), values["percent"])
    if percent >= 100:
        hint = "what is free needs no ranking; write 12 for 12 % off"
        raise document.error((*path, "percent"), f"expected less than 100, found {percent:g}", hint=hint)
    commitment = None
    if "commitment" in values:
        here = (*path, "commitment")
        commitment = read_choice(document, here, values["commitment"], choices=RENTED_KINDS)
    scope = {key: values[key] for key in _SCOPE_KEYS if key in values}
    return Discount(scope=_read_scope(document, path, scope), commitment=commitment, percent=percent)


def _read_scope(document: Document, path: KeyPath, entry: Any) -> Scope:
    values = check_keys(document, path, entry, known=_SCOPE_KEYS)
    names = {key: _read_names(document, (*path, key), values.get(key, [])) for key in _SCOPE_KEYS}
    return Scope(document=document, path=path, **names)


def _read_names(document: Document, path: KeyPath, value: Any) -> tuple[str, ...]:
    """One name or a list of names."""
    items: Collection[Any] = value if isinstance(value, list) else [value]
    return tuple(read_text(document, path, item) for item in items)


def _read_exchange_rates(document: Document, value: Any) -> tuple[ExchangeRate, ...]:
    rates = []
    for code, entry in read_mapping(document, ("exchange_rates",), value).items():
        path = ("exchange_rates", code)
        values = check_keys(document, path, entry, known=("usd", "date"))
        if not _CURRENCY_CODE.fullmatch(code) or code == "USD":
            raise document.error(path, f"{code!r} is not the code of a currency beside the dollar", hint="write EUR")
        for key in ("usd", "date"):
            if key not in values:
                hint = "write {usd: 1.16, date: 2026-11-01}: the dollars that one unit was worth, and when"
                raise document.error(path, f"{key} is missing", hint=hint)
        usd = float(read_number(document, (*path, "usd"), values["usd"]))
        rates.append(ExchangeRate(currency=code, usd=usd, date=read_date(document, (*path, "date"), values["date"])))
    return tuple(rates)
