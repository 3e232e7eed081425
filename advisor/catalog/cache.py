"""A parsed catalog to a file and back, as JSON: loading it again costs a tenth of parsing the YAML.

The key is a hash of the content of every file in force and of the code that reads them, so nothing ever has to be
declared outdated. A file that cannot be read, was cut short or holds something else is ignored.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import advisor.records.device
import advisor.records.price
from advisor.records.device import Cpu, Efficiency, FamilyEfficiency, Gpu
from advisor.records.price import Catalog, Offer, Price, Rejection

RecordT = TypeVar("RecordT")

_KEPT_COUNT = 8
"""Catalogs kept: one for each of the last sets of overlays used."""


def content_key(files: Iterable[Path]) -> str:
    """A hash of the paths and bytes of `files`, in order, and of the code that turns them into a catalog."""
    records = (advisor.records.device.__file__, advisor.records.price.__file__)
    code = (*sorted(Path(__file__).parent.glob("*.py")), *(Path(file) for file in records))
    digest = hashlib.sha256()
    for file in (*code, *files):
        content = file.read_bytes()
        digest.update(f"{file} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def read_cached(folder: Path, *, key: str) -> Catalog | None:
    """The catalog stored under `key`, or None where there is none that is whole."""
    try:
        stored_digest, _, payload = _cache_file(folder, key=key).read_bytes().partition(b"\n")
    except OSError:
        return None
    if hashlib.sha256(payload).hexdigest().encode() != stored_digest:
        return None
    return catalog_from_json(payload)


def write_cached(catalog: Catalog, folder: Path, *, key: str) -> None:
    """Store the catalog under `key` in one step, and remove the oldest; a folder that cannot be written is let be."""
    payload = catalog_to_json(catalog)
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, prefix=".catalog-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(payload).hexdigest().encode() + b"\n" + payload)
            Path(name).replace(_cache_file(folder, key=key))
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
        newest_first = sorted(folder.glob("catalog-*.json"), key=lambda file: file.stat().st_mtime, reverse=True)
        for outdated in newest_first[_KEPT_COUNT:]:
            outdated.unlink()


def _cache_file(folder: Path, *, key: str) -> Path:
    return folder / f"catalog-{key}.json"


def catalog_to_json(catalog: Catalog) -> bytes:
    """Each record as the list of its fields.

    The prices of all offers stand in one table, in the order of the offers, which keep their number; the texts that
    thousands of prices share stand in another.
    """
    texts: dict[str, int] = {}
    prices = [_values(price) for offer in catalog.offers for price in offer.prices]
    for price in prices:
        for position in _SHARED_TEXT_POSITIONS:
            price[position] = texts.setdefault(price[position], len(texts))
    offers = [_values(offer) for offer in catalog.offers]
    for offer in offers:
        offer[_PRICES_POSITION] = len(offer[_PRICES_POSITION])
    document = {
        "gpus": list(catalog.gpus.values()),
        "cpus": list(catalog.cpus.values()),
        "efficiencies": catalog.efficiencies,
        "texts": list(texts),
        "prices": prices,
        "offers": offers,
        "rejected": catalog.rejected,
        "overlays": catalog.overlays,
    }
    return json.dumps(document, default=_values, separators=(",", ":"), ensure_ascii=False).encode()


def catalog_from_json(payload: bytes) -> Catalog:
    """The inverse of `catalog_to_json`."""
    document = json.loads(payload)
    texts: list[str] = document["texts"]
    prices = _records(Price, document["prices"], source=texts.__getitem__, note=texts.__getitem__)

    def families(rows: Mapping[str, list[Any]]) -> dict[str, FamilyEfficiency]:
        return dict(zip(rows, _records(FamilyEfficiency, rows.values()), strict=True))

    return Catalog(
        gpus={gpu.id: gpu for gpu in _records(Gpu, document["gpus"], aliases=tuple)},
        cpus={cpu.id: cpu for cpu in _records(Cpu, document["cpus"], aliases=tuple, isa=tuple)},
        efficiencies=tuple(_records(Efficiency, document["efficiencies"], families=families, fitted_on=tuple)),
        offers=tuple(_records(Offer, document["offers"], prices=lambda count: tuple(islice(prices, count)))),
        rejected=tuple(_records(Rejection, document["rejected"])),
        overlays=tuple(document["overlays"]),
    )


def _names(record: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(record))


_SHARED_TEXT_POSITIONS = (_names(Price).index("source"), _names(Price).index("note"))
_PRICES_POSITION = _names(Offer).index("prices")


def _values(record: Any) -> list[Any]:
    return [getattr(record, name) for name in _names(record)]


def _records(
    record: Callable[..., RecordT], rows: Iterable[list[Any]], **converters: Callable[[Any], Any]
) -> Iterator[RecordT]:
    """Rows of fields in order; `converters` make of a field's value what JSON has no type for."""
    names = _names(record)
    positions = [(names.index(name), convert) for name, convert in converters.items()]
    for row in rows:
        for position, convert in positions:
            row[position] = convert(row[position])
        yield record(**dict(zip(names, row, strict=True)))
