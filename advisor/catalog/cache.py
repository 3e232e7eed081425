"""Caches a parsed catalog as a JSON file, which loads ten times as fast as parsing the YAML.

The key is a hash of the content of every file in force and of the code that reads them, so entries never expire. A
cache file that is unreadable, truncated or invalid is ignored.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import date
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import advisor.records.billing
import advisor.records.device
import advisor.records.price
from advisor.catalog.ranges import range_of
from advisor.errors import ProfileError
from advisor.files.regular_file import read_regular_file
from advisor.files.whole_file import replace_whole
from advisor.records.billing import Billing, BillingRule, Disk, Egress, ExtraCosts, Extras, GpuPackages, StartUp
from advisor.records.device import Cpu, Efficiency, FamilyEfficiency, Gpu
from advisor.records.price import (
    Catalog,
    ExchangeRate,
    Offer,
    Price,
    PriceErrors,
    PriceSource,
    PriceSpread,
    Rejection,
    TorchWheel,
)

_OWN_FILE = 0o600
"""Readable only by this user, because overlays may contain confidential prices."""
_KEPT_COUNT = 8
"""Number of cached catalogs to keep: one for each recently used set of overlays."""


def content_key(files: Iterable[Path]) -> str:
    """Return a hash of the paths and bytes of `files`, in order, and of the code that turns them into a catalog.

    Raise `ProfileError` for a file that cannot be read.
    """
    records = (advisor.records.billing.__file__, advisor.records.device.__file__, advisor.records.price.__file__)
    code = (*sorted(Path(__file__).parent.glob("*.py")), *(Path(file) for file in records))
    digest = hashlib.sha256()
    for file in (*code, *files):
        try:
            content = read_regular_file(file)
        except OSError as error:
            message = error.strerror or "cannot be read"
            raise ProfileError(message, where=str(file), hint="check the path and its permissions") from None
        digest.update(f"{file} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def read_cached(folder: Path, *, key: str) -> Catalog | None:
    """Return the catalog stored under `key`, or None if it is missing or damaged."""
    try:
        stored_digest, _, payload = read_regular_file(_cache_file(folder, key=key)).partition(b"\n")
    except OSError:
        return None
    if hashlib.sha256(payload).hexdigest().encode() != stored_digest:
        return None
    try:
        catalog = catalog_from_json(payload)
        _check(catalog)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return None
    return catalog


def _check(catalog: Catalog) -> None:
    """Raise an error if a value does not have its field's type, or an offer names an unknown device."""
    parts = (catalog.gpus.values(), catalog.cpus.values(), catalog.offers, catalog.rejected, catalog.exchange_rates)
    families = (family for efficiency in catalog.efficiencies for family in efficiency.families.values())
    known = catalog.billing
    extra = known.extra_costs
    billing: tuple[Iterable[Any], ...] = (known.rules.values(), known.start_ups.values(), [known.extras])
    billing += (extra.disks.values(), extra.egress.values(), [extra.gpu_packages] if extra.gpu_packages else [])
    errors = catalog.price_errors
    spreads = (*errors.drift.values(), *errors.listing.values(), *([errors.trusted] if errors.trusted else []))
    prices = [price for offer in (*catalog.offers, *catalog.unpredicted) for price in offer.prices]
    others = (catalog.unpredicted, catalog.price_sources.values())
    for records in (*parts, *others, catalog.efficiencies, families, *billing, prices, spreads):
        _check_types(tuple(records))
    _check_values((*catalog.overlays, *catalog.doubts, *catalog.own_dates.values()), str, name="overlays")
    for day in {*catalog.own_dates, *(price.date for price in prices)}:
        date.fromisoformat(day)
    for offer in catalog.offers:
        if offer.gpu is None:
            _ = catalog.cpus[offer.cpu or ""].id, (offer.vcpus or 0) + (offer.memory_bytes or 0)
        elif offer.gpu not in catalog.gpus or offer.gpu_count < 1:
            raise LookupError(offer.gpu)
        if any(price.usd_per_hour == 0 for price in offer.prices):
            raise ValueError("a price of 0")


def _check_types(records: Sequence[Any]) -> None:
    """Check field by field over all records, which is fast because thousands share few types."""
    for name, hint in get_type_hints(type(records[0])).items() if records else ():
        options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        values = [getattr(record, name) for record in records]
        if type(None) in options:
            values = [value for value in values if value is not None]
        (kind,) = (option for option in options if option is not type(None))
        if get_origin(kind) is tuple:
            _check_values([item for value in values for item in value], get_args(kind)[0], name=name)
        elif get_origin(kind) is Mapping:
            _check_values([key for value in values for key in value], str, name=name)
            item_kind = get_args(kind)[1]
            _check_values([item for value in values for item in value.values()], item_kind, name=name)
        else:
            _check_values(values, kind, name=name)


def _check_values(values: Sequence[Any], kind: Any, *, name: str) -> None:
    found = {type(value) for value in values}
    if get_origin(kind) is Literal:
        if not set(values) <= set(get_args(kind)):
            raise ValueError(name)
    elif not found <= ({int, float} if kind is float else {kind}):
        raise TypeError(name)
    elif kind is str:
        "".join(values).encode()  # a lone surrogate raises an error
    elif kind in (int, float):
        within = range_of(name)
        if not all(within.least <= value <= within.most for value in set(values) - {0}):
            raise ValueError(name)


def write_cached(catalog: Catalog, folder: Path, *, key: str) -> None:
    """Store the catalog under `key` atomically and remove the oldest entries; ignore a folder that is not writable."""
    payload = catalog_to_json(catalog)
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        content = hashlib.sha256(payload).hexdigest().encode() + b"\n" + payload
        replace_whole(content, _cache_file(folder, key=key), mode=_OWN_FILE)
        newest_first = sorted(folder.glob("catalog-*.json"), key=lambda file: file.stat().st_mtime, reverse=True)
        for outdated in newest_first[_KEPT_COUNT:]:
            outdated.unlink()


def _cache_file(folder: Path, *, key: str) -> Path:
    return folder / f"catalog-{key}.json"


def catalog_to_json(catalog: Catalog) -> bytes:
    """Return the catalog as JSON, with every record as an object of the fields that differ from their defaults."""
    return json.dumps(catalog, default=_to_object, separators=(",", ":"), ensure_ascii=False).encode()


def catalog_from_json(payload: bytes) -> Catalog:
    """Return the catalog from JSON, the inverse of `catalog_to_json`; values are not checked here."""
    found = json.loads(payload)
    for efficiency in found["efficiencies"]:
        families = efficiency["families"].items()
        efficiency["families"] = {family: FamilyEfficiency(**values) for family, values in families}
    for offer in (*found["offers"], *found.get("unpredicted", ())):
        offer["prices"] = tuple([Price(**values) for values in offer["prices"]])
        if "wheel" in offer:
            offer["wheel"] = TorchWheel(**offer["wheel"])
    billing = found["billing"]
    extra = billing.get("extra_costs", {})
    packages = extra.get("gpu_packages")
    errors = found["price_errors"]
    trusted = errors.get("trusted")
    return Catalog(
        gpus={key: Gpu(**_with_tuples(values)) for key, values in found["gpus"].items()},
        cpus={key: Cpu(**_with_tuples(values)) for key, values in found["cpus"].items()},
        efficiencies=tuple(Efficiency(**_with_tuples(values)) for values in found["efficiencies"]),
        offers=tuple([Offer(**values) for values in found["offers"]]),
        rejected=tuple(Rejection(**values) for values in found["rejected"]),
        unpredicted=tuple([Offer(**values) for values in found.get("unpredicted", ())]),
        overlays=tuple(found["overlays"]),
        doubts=tuple(found.get("doubts", ())),
        own_dates=dict(found["own_dates"]),
        exchange_rates=tuple(ExchangeRate(**values) for values in found.get("exchange_rates", ())),
        billing=Billing(
            rules={provider: BillingRule(**values) for provider, values in billing["rules"].items()},
            start_ups={provider: StartUp(**values) for provider, values in billing["start_ups"].items()},
            extra_costs=ExtraCosts(
                disks={provider: Disk(**values) for provider, values in extra.get("disks", {}).items()},
                egress={provider: Egress(**values) for provider, values in extra.get("egress", {}).items()},
                gpu_packages=packages and GpuPackages(**packages),
            ),
            extras=Extras(**billing.get("extras", {})),
        ),
        price_errors=PriceErrors(
            drift={tier: PriceSpread(**values) for tier, values in errors["drift"].items()},
            listing={basis: PriceSpread(**values) for basis, values in errors["listing"].items()},
            trusted=trusted and PriceSpread(**trusted),
        ),
        price_sources={provider: PriceSource(**values) for provider, values in found["price_sources"].items()},
    )


def _to_object(record: Any) -> dict[str, Any]:
    return {name: value for name, default in _defaults(record.__class__) if (value := getattr(record, name)) != default}


@cache
def _defaults(kind: type[Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((field.name, field.default) for field in fields(kind))


def _with_tuples(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with lists as tuples, because the records have tuples and JSON has none."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
