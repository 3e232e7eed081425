"""Caches a parsed catalog as a JSON file, which loads ten times as fast as parsing the YAML.

The key is a hash of the content of every file in force and of the code that reads them, so entries never expire. A
cache file that is unreadable, truncated or invalid is ignored.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from advisor.catalog.ranges import range_of
from advisor.errors import ProfileError
from advisor.files.own_code import code_digest
from advisor.files.regular_file import read_regular_file
from advisor.files.whole_file import replace_whole
from advisor.records.price import Catalog

_OWN_FILE = 0o600
"""Readable only by this user, because overlays may contain confidential prices."""
_KEPT_COUNT = 8
"""Number of cached catalogs to keep: one for each recently used set of overlays."""


def content_key(files: Iterable[Path], *, roles: str) -> str:
    """Return a hash of the paths and bytes of `files`, in order, and of the code that turns them into a catalog.

    `roles` says what each file stands for, since the same file may hold list prices or the user's own. Raise
    `ProfileError` for a file that cannot be read.
    """
    digest = hashlib.sha256(f"{code_digest('catalog', 'records')} {roles}".encode())
    for file in files:
        try:
            content = read_regular_file(file)
        except OSError as error:
            message = error.strerror or "cannot be read"
            raise ProfileError(message, where=str(file), hint="check the path and its permissions") from None
        digest.update(f"{file} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def read_cached(folder: Path, *, key: str) -> Catalog | None:
    """Return the catalog stored under `key`, or None if it is missing or damaged; it then counts as recently used."""
    file = folder / f"catalog-{key}.json"
    try:
        stored_digest, _, payload = read_regular_file(file).partition(b"\n")
    except OSError:
        return None
    with contextlib.suppress(OSError):  # another user's folder
        os.utime(file)
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
    _check_values([catalog], Catalog, name="catalog")
    priced = (*catalog.offers, *catalog.unpredicted)
    for day in {*catalog.own_dates, *(price.date for offer in priced for price in offer.prices)}:
        date.fromisoformat(day)
    for offer in catalog.offers:
        if offer.gpu is None:
            _ = catalog.cpus[offer.cpu or ""].id, (offer.vcpus or 0) + (offer.memory_bytes or 0)
        elif offer.gpu not in catalog.gpus or offer.gpu_count < 1:
            raise LookupError(offer.gpu)
        if any(price.usd_per_hour == 0 and price.kind != "owned" for price in offer.prices):
            raise ValueError("a price of 0")


def _check_values(values: Sequence[Any], hint: Any, *, name: str) -> None:
    """Check all values of a field at once, which is fast because thousands share few types."""
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if type(None) in options:
        values = [value for value in values if value is not None]
    (kind,) = (option for option in options if option is not type(None))
    found = {type(value) for value in values}
    if is_dataclass(kind):
        for field_name, field_hint in get_type_hints(kind).items() if values else ():
            _check_values([getattr(record, field_name) for record in values], field_hint, name=field_name)
    elif get_origin(kind) is tuple:
        _check_values([item for value in values for item in value], get_args(kind)[0], name=name)
    elif get_origin(kind) is Mapping:
        _check_values([key for value in values for key in value], str, name=name)
        _check_values([item for value in values for item in value.values()], get_args(kind)[1], name=name)
    elif get_origin(kind) is Literal:
        if not set(values) <= set(get_args(kind)):
            raise ValueError(name)
    elif not found <= ({int, float} if kind is float else {kind}):
        raise TypeError(name)
    elif kind is str:
        "".join(values).encode()  # a lone surrogate raises an error
    elif kind in (int, float) and values:
        within = range_of(name)
        if not all(within.least <= value <= within.most for value in set(values) - {0}):
            raise ValueError(name)


def write_cached(catalog: Catalog, folder: Path, *, key: str) -> None:
    """Store the catalog under `key` atomically and remove the oldest entries; ignore a folder that is not writable."""
    payload = catalog_to_json(catalog)
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        content = hashlib.sha256(payload).hexdigest().encode() + b"\n" + payload
        replace_whole(content, folder / f"catalog-{key}.json", mode=_OWN_FILE)
        newest_first = sorted(folder.glob("catalog-*.json"), key=lambda file: file.stat().st_mtime, reverse=True)
        for outdated in newest_first[_KEPT_COUNT:]:
            outdated.unlink()


def catalog_to_json(catalog: Catalog) -> bytes:
    """Return the catalog as JSON, with every record as an object of the fields that differ from their defaults."""
    return json.dumps(catalog, default=_to_object, separators=(",", ":"), ensure_ascii=False).encode()


def catalog_from_json(payload: bytes) -> Catalog:
    """Return the catalog from JSON, the inverse of `catalog_to_json`; values are not checked here."""
    catalog: Catalog = _reader_of(Catalog)(json.loads(payload))
    return catalog


@cache
def _reader_of(hint: Any) -> Any:
    """Return the function that makes a value of the type from JSON; None if it is the same in JSON."""
    if isinstance(hint, type) and is_dataclass(hint):
        readers = {name: read for name, kind in get_type_hints(hint).items() if (read := _reader_of(kind))}

        def read_record(values: dict[str, Any]) -> Any:
            for name, read in readers.items():
                if name in values:
                    values[name] = read(values[name])
            return hint(**values)

        return read_record
    kinds = [kind for kind in get_args(hint) if kind not in (type(None), Ellipsis)]
    item = _reader_of(kinds[-1]) if kinds and get_origin(hint) is not Literal else None
    if get_origin(hint) is tuple:
        return (lambda values: tuple([item(value) for value in values])) if item else tuple
    if get_origin(hint) is Mapping and item:
        return lambda values: {key: item(value) for key, value in values.items()}
    return (lambda value: None if value is None else item(value)) if item else None


def _to_object(record: Any) -> dict[str, Any]:
    return {name: value for name, default in _defaults(record.__class__) if (value := getattr(record, name)) != default}


@cache
def _defaults(kind: type[Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((field.name, field.default) for field in fields(kind))
