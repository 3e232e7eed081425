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

A list price is any price that is not the user's own. A family is the start of an instance's name up to a separator (g5
matches g5.xlarge, not g5g.xlarge), or a pattern with *.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from advisor.catalog.fields import read_count, read_number, read_record
from advisor.catalog.owned import read_owned_rows
from advisor.catalog.price_files import RENTED_KINDS, PriceRow, read_date
from advisor.catalog.strict_yaml import Document, Node
from advisor.errors import did_you_mean
from advisor.records.billing import Extras
from advisor.records.price import ExchangeRate, Offer, Price, PriceKind
from advisor.records.rejection import Rejection

TERM_KEYS = (
    "discounts", "markup_percent", "exclude", "only", "exchange_rates", "owned", "extras", "quota", "availability"
)  # fmt: skip
_SECONDS_PER_MINUTE = 60
_CURRENCY_CODE = re.compile(r"[A-Z]{3}")
LineT = TypeVar("LineT")
SCOPE_KEYS = ("provider", "region", "family")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Names as the user wrote them: providers, regions or parts of the world, families. Empty means any."""

    provider: tuple[str, ...]
    region: tuple[str, ...]
    family: tuple[str, ...]
    node: Node

    def fits_by(self, offer: Offer) -> dict[str, bool]:
        """Return, for each key that is set, whether the offer matches one of its names."""
        region_names = (offer.region.lower(), offer.geo.lower())
        fits = {
            "provider": any(name.lower() == offer.provider for name in self.provider),
            "region": any(name.lower() in region_names for name in self.region),
            "family": any(is_of_family(offer.instance, name) for name in self.family),
        }
        return {key: fit for key, fit in fits.items() if getattr(self, key)}

    def fits(self, offer: Offer) -> bool:
        """Return True if the offer matches all keys that are set."""
        return all(self.fits_by(offer).values())


def is_of_family(instance: str, family: str) -> bool:
    """Return True if the family is the start of the instance's name up to a separator, or a matching pattern."""
    name, family = instance.lower(), family.lower()
    if "*" in family:
        return fnmatchcase(name, family)
    return name.startswith(family) and not name[len(family) : len(family) + 1].isalnum()


def _scope_of(node: Node) -> Scope:
    """Read the keys of a scope, each with one name or a list of names."""

    def names(key: str) -> tuple[str, ...]:
        found = node.get(key, [])
        items = found.value if isinstance(found.value, list) else [found.value]
        return tuple(replace(found, value=item).text() for item in items)

    return Scope(node=node, provider=names("provider"), region=names("region"), family=names("family"))


def _check_names(scopes: Sequence[Scope], *, offers: Sequence[Offer], rejected: Sequence[Rejection]) -> None:
    """Raise `ProfileError` for a name that matches no offer and no rejected offer, and so has no effect."""
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
                    hint = did_you_mean(name, names)
                    raise scope.node[key].error(f"no offer has {key} {name!r}", hint=hint)
        for family in scope.family:
            if not any(is_of_family(instance, family) for instance in instances):
                hint = 'write the start of the names up to a separator (g5), or a pattern ("Standard_ND*")'
                raise scope.node["family"].error(f"no instance matches {family!r}", hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Discount:
    """A discount of `percent` on one kind of price, or on all, of the offers in `scope`."""

    scope: Scope
    commitment: PriceKind | None
    percent: float


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
    """The terms of one document, or of several joined, where the first wins. `markup` is a percentage."""

    discounts: tuple[Discount, ...] = ()
    markup: Node | None = None
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
    if "provider" in root:
        hint = "separate the terms and the prices by a line of three hyphens"
        raise root["provider"].error("prices and terms in one document", hint=hint)
    root.check_keys(TERM_KEYS)
    extras = None
    if "extras" in root:
        extras = read_record(Extras, root["extras"], zero_allowed=[field.name for field in fields(Extras)])
    markup = None
    if "markup_percent" in root:
        markup = root["markup_percent"]
        read_number(markup, zero_allowed=True)

    def lines(key: str, read: Callable[[Node, Scope], LineT], *keys: str, example: str) -> tuple[LineT, ...]:
        found = []
        for line in root.get(key, []).items(hint=f"write `- {example}` lines"):
            line.check_keys((*SCOPE_KEYS, *keys))
            found.append(read(line, _scope_of(line)))
        return tuple(found)

    def scope(key: str) -> Scope | None:
        if key not in root:
            return None
        root[key].check_keys(SCOPE_KEYS)
        return _scope_of(root[key])

    return Terms(
        discounts=lines("discounts", _read_discount, "commitment", "percent", example="{provider: aws, percent: 12}"),
        markup=markup,
        exclude=scope("exclude"),
        only=scope("only"),
        exchange_rates=tuple(_read_exchange_rate(entry) for entry in root.get("exchange_rates", {}).entries()),
        owned=read_owned_rows(root.get("owned", {})),
        extras=extras,
        quotas=lines("quota", _read_quota, "vcpus", "gpus", example="{provider: aws, family: g5, vcpus: 32}"),
        availabilities=lines(
            "availability",
            _read_availability,
            "wait_minutes",
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
    lines: list[Discount | Quota | Availability] = [*terms.discounts, *terms.quotas, *terms.availabilities]
    scopes = [line.scope for line in lines]
    scopes += [scope for scope in (terms.exclude, terms.only) if scope is not None]
    if scopes:
        _check_names(scopes, offers=offers, rejected=list(rejected))
    return [_with_terms(offer, terms) for offer in offers]


def hidden_discounts(terms: Terms, offers: Sequence[Offer]) -> Iterator[str]:
    """Yield a sentence for each discount whose prices all match earlier lines of its document, and so has no effect."""
    for index, line in enumerate(terms.discounts):
        earlier = [
            one.scope
            for one in terms.discounts[:index]
            if one.scope.node.document is line.scope.node.document and one.commitment in (None, line.commitment)
        ]
        matched = [one for one in offers if line.scope.fits(one)]
        if matched and all(any(scope.fits(one) for scope in earlier) for one in matched):
            yield f"{line.scope.node.where} has no effect: earlier lines match all of its prices"


def _with_terms(offer: Offer, terms: Terms) -> Offer:
    if offer.tier == "owned":
        return offer
    changed: dict[str, Any] = {}
    allowed = (quota.instances(offer) for quota in terms.quotas if quota.scope.fits(offer))
    changed["quota_instances"] = next((count for count in allowed if count is not None), None)
    changed["wait_s"] = next((one.wait_s for one in terms.availabilities if one.scope.fits(offer)), None)
    changed["excluded"] = _why_excluded(offer, terms)
    discounts = [discount for discount in terms.discounts if discount.scope.fits(offer)]
    if discounts or terms.markup:
        changed["prices"] = tuple(_with_percents(one, discounts=discounts, markup=terms.markup) for one in offer.prices)
    return replace(offer, **changed) if any(value is not None for value in changed.values()) else offer


def _with_percents(price: Price, *, discounts: Sequence[Discount], markup: Node | None) -> Price:
    """Return list price x (1 - discount) x (1 + markup), which its adjustment and its source say."""
    if price.basis == "own_rate":
        return price
    usd_per_hour, source, changes = price.usd_per_hour, price.source, []
    discount = next((one for one in discounts if one.commitment in (None, price.kind)), None)
    if discount is not None:
        usd_per_hour *= 1 - discount.percent / 100
        changes.append(f"less {discount.percent:g} %")
        source += f"; {changes[-1]} ({discount.scope.node.where})"
    if markup is not None:
        usd_per_hour *= 1 + markup.value / 100
        changes.append(f"plus {markup.value:g} %")
        source += f"; {changes[-1]} ({markup.where})"
    return replace(price, usd_per_hour=usd_per_hour, source=source, adjustment=" ".join(changes))


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


def _read_exchange_rate(node: Node) -> ExchangeRate:
    hint = "write {usd: 1.16, date: 2026-11-01}: the value of one unit in dollars, and its date"
    node.check_keys(("usd", "date"), required=("usd", "date"), hint=hint)
    if not _CURRENCY_CODE.fullmatch(node.key) or node.key == "USD":
        raise node.error(f"{node.key!r} is not the code of a currency other than USD", hint="for example EUR")
    return ExchangeRate(currency=node.key, usd=float(read_number(node["usd"])), date=read_date(node["date"]))
