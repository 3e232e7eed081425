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
    extras: {software_s: 0, storage_usd_per_month: 20, egress_usd: 5, tax_percent: 19}     # see records.billing.Extras
    quota:                      # the most you may run at once; the first line that matches an offer counts
      - {provider: aws, family: g5, vcpus: 32}
      - {provider: gcp, gpus: 1}
    availability:               # time from the request of a machine to its start
      - {provider: aws, region: us-east-1, family: p5, wait_minutes: 90}

A list price is any price that is not the user's own. `scope` defines families.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from advisor.catalog.fields import read_count, read_number, read_record
from advisor.catalog.owned import read_owned_rows
from advisor.catalog.price_files import RENTED_KINDS, PriceRow, read_date
from advisor.catalog.scope import Scope, check_names, read_lines, read_scope
from advisor.catalog.strict_yaml import Document, Node
from advisor.records.billing import Extras
from advisor.records.price import ExchangeRate, Offer, Price, PriceKind, Rejection

TERM_KEYS = (
    "discounts", "markup_percent", "exclude", "only", "exchange_rates", "owned", "extras", "quota", "availability"
)  # fmt: skip
_SECONDS_PER_MINUTE = 60
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
class Quota:
    """The most vCPUs or GPUs that may run at once on the offers in `scope`; None means no limit is given."""

    scope: Scope
    vcpus: int | None
    gpus: int | None

    def instances(self, offer: Offer) -> int | None:
        """Return how many of the offer's machines the quota allows, or None if it does not limit them."""
        limit, needed = (self.vcpus, offer.vcpus) if self.vcpus is not None else (self.gpus, offer.gpu_count)
        return limit // needed if limit is not None and needed else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """The waiting time for an offer in `scope`."""

    scope: Scope
    wait_s: float


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
    root = document.root
    if any(entry.key == "provider" for entry in root.entries()):
        hint = "separate the terms and the prices by a line of three hyphens"
        raise root["provider"].error("prices and terms in one document", hint=hint)
    root.check_keys(TERM_KEYS)
    markup = None
    if "markup_percent" in root:
        node = root["markup_percent"]
        markup = Markup(percent=read_number(node, zero_allowed=True), where=node.where)
    return Terms(
        discounts=read_lines(
            root.get("discounts", []),
            read=_read_discount,
            keys=("commitment", "percent"),
            example="{provider: aws, percent: 12}",
        ),
        markup=markup,
        exclude=read_scope(root["exclude"]) if "exclude" in root else None,
        only=read_scope(root["only"]) if "only" in root else None,
        exchange_rates=tuple(_read_exchange_rate(entry) for entry in root.get("exchange_rates", {}).entries()),
        owned=read_owned_rows(root.get("owned", {})),
        extras=_read_extras(root["extras"]) if "extras" in root else None,
        quotas=read_lines(
            root.get("quota", []),
            read=_read_quota,
            keys=("vcpus", "gpus"),
            example="{provider: aws, family: g5, vcpus: 32}",
        ),
        availabilities=read_lines(
            root.get("availability", []),
            read=_read_availability,
            keys=("wait_minutes",),
            example="{provider: aws, family: p5, wait_minutes: 90}",
        ),
    )


def joined_terms(terms: Sequence[Terms]) -> Terms:
    """Join terms: all lines and exchange rates in order, and the first of everything else."""
    joined: dict[str, Any] = {}
    for field in fields(Terms):
        values = [getattr(one, field.name) for one in terms]
        if field.default == ():
            joined[field.name] = tuple(line for lines in values for line in lines)
        else:
            joined[field.name] = next((value for value in values if value is not None), None)
    rates: dict[str, ExchangeRate] = {}
    for rate in joined["exchange_rates"]:
        rates.setdefault(rate.currency, rate)
    return Terms(**{**joined, "exchange_rates": tuple(rates.values())})


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
    if offer.tier == "owned":
        return offer
    offer = _with_supply(offer, quotas=terms.quotas, availabilities=terms.availabilities)
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
        source += f"; less {discount.percent:g} % ({discount.scope.node.where})"
    if markup is not None:
        usd_per_hour *= 1 + markup.percent / 100
        source += f"; plus {markup.percent:g} % ({markup.where})"
    return replace(price, usd_per_hour=usd_per_hour, source=source)


def _why_excluded(offer: Offer, terms: Terms) -> str | None:
    if terms.exclude is not None:
        for key, fits in terms.exclude.fits_by(offer).items():
            if fits:
                return f"{terms.exclude.node[key].where} excludes it"
    if terms.only is not None:
        for key, fits in terms.only.fits_by(offer).items():
            if not fits:
                return f"{terms.only.node[key].where} does not include it"
    return None


def _with_supply(offer: Offer, *, quotas: Sequence[Quota], availabilities: Sequence[Availability]) -> Offer:
    """Return the offer with its quota and waiting time, each from the first line that matches."""
    allowed = (quota.instances(offer) for quota in quotas if quota.scope.fits(offer))
    quota_instances = next((count for count in allowed if count is not None), None)
    wait_s = next((one.wait_s for one in availabilities if one.scope.fits(offer)), None)
    if quota_instances is None and wait_s is None:
        return offer
    return replace(offer, quota_instances=quota_instances, wait_s=wait_s)


def _read_discount(line: Node, scope: Scope) -> Discount:
    if "percent" not in line:
        raise line.error("percent is missing", hint="add `percent: 12` for 12 % off")
    percent = read_number(line["percent"])
    if percent >= 100:
        raise line["percent"].error(f"expected less than 100, found {percent:g}", hint="write 12 for 12 % off")
    commitment = line["commitment"].choice(RENTED_KINDS) if "commitment" in line else None
    return Discount(scope=scope, commitment=commitment, percent=percent)


def _read_quota(line: Node, scope: Scope) -> Quota:
    given = [key for key in ("vcpus", "gpus") if key in line]
    if len(given) != 1:
        found = "vcpus and gpus are both given" if given else "neither vcpus nor gpus is given"
        hint = "give one of them, as in `vcpus: 32` or `gpus: 1`: the most you may run at once"
        raise line.error(found, hint=hint)
    limits = {key: read_count(line[key], zero_allowed=True) for key in given}
    return Quota(scope=scope, vcpus=limits.get("vcpus"), gpus=limits.get("gpus"))


def _read_availability(line: Node, scope: Scope) -> Availability:
    if "wait_minutes" not in line:
        raise line.error("wait_minutes is missing", hint="add `wait_minutes: 90`, or 0 for no waiting time")
    minutes = read_number(line["wait_minutes"], zero_allowed=True)
    return Availability(scope=scope, wait_s=minutes * _SECONDS_PER_MINUTE)


def _read_extras(node: Node) -> Extras:
    """Return the user's costs in addition to the hours of machines; 0 is a valid value."""
    return read_record(Extras, node, zero_allowed=[field.name for field in fields(Extras)])


def _read_exchange_rate(node: Node) -> ExchangeRate:
    node.check_keys(("usd", "date"))
    if not _CURRENCY_CODE.fullmatch(node.key) or node.key == "USD":
        raise node.error(f"{node.key!r} is not the code of a currency other than USD", hint="for example EUR")
    hint = "write {usd: 1.16, date: 2026-11-01}: the value of one unit in dollars, and its date"
    node.check_keys(("usd", "date"), required=("usd", "date"), hint=hint)
    return ExchangeRate(currency=node.key, usd=float(read_number(node["usd"])), date=read_date(node["date"]))
