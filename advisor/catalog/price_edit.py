"""Updates the values of a price file from a provider's current price list; nothing else in it changes."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from advisor.catalog.price_files import RENTED_KINDS, Machine, PriceRow
from advisor.records.price import ListedPrice, ListedType, Listing, ListSource, PriceKind

_LARGEST_CHANGE = 3.0
"""The largest real change, AWS's cut of P4 and P5 prices in 2025, was a factor of 1.8. A price per GPU instead of per
machine differs by a factor of 4 or 8."""


def listed_types(rows: list[PriceRow], *, gpu_ids: Mapping[str, str]) -> dict[str, ListedType]:
    """Return the instance types in the rows of a file."""
    types = {}
    for row in rows:
        machine = row.machine or Machine()
        types[row.instance] = ListedType(
            instance=row.instance,
            vcpus=machine.vcpus,
            memory_bytes=machine.memory_bytes,
            gpu=gpu_ids.get(machine.gpu or ""),
            gpu_count=machine.gpu_count,
            tier=row.tier or "neocloud",
        )
    return types


def etags_of(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the ETags of the lists that the file was written from, by URL."""
    return {source["from"]: source["etag"] for source in values.get("sources", {}).values() if "etag" in source}


def with_listing(values: Mapping[str, Any], listing: Listing, *, today: str) -> dict[str, Any]:
    """Return the values with the listed prices, dated `today`, marked as the complete list of the provider.

    A listed price replaces the one in the file and clears its flags. A price that is no longer in a complete list is
    dropped, and so is a row without an on-demand price. A spot price above on-demand is left out. A price that differs
    from the last trusted one by more than a factor of three is marked as suspect, and `trusted` keeps the old price
    until the list returns to it. Without a trusted price, a suspect price stays suspect while the list repeats it.
    """
    new = deepcopy(dict(values))
    instances = new["instances"]
    source_keys = {key: f"{key}-{today}" for key in listing.sources}
    per_gpu = new.get("price_per") == "gpu"
    _drop_unlisted(instances, listing)
    for listed in listing.prices:
        entry = instances.get(listed.instance)
        if entry is not None:
            gpu_count = entry.get("machine", {}).get("gpu_count", 1) if per_gpu else 1
            line = entry["usd_per_hour"].setdefault(listed.region, {})
            _set_price(line, listed, usd=round(listed.usd_per_hour / gpu_count, 6), source=source_keys[listed.source])
    for line in _lines(instances):
        _leave_out_dear_spot(line)
    sources = dict(new.get("sources", {}))
    sources |= {source_keys[key]: _source_entry(source, today=today) for key, source in listing.sources.items()}
    _date_unchanged(instances, sources, unchanged=listing.unchanged, today=today)
    new["instances"] = {name: entry for name, entry in instances.items() if entry["usd_per_hour"]}
    used = {_source_key(line[kind]) for line in _lines(new["instances"]) for kind in RENTED_KINDS if kind in line}
    new["sources"] = {key: source for key, source in sources.items() if key in used}
    instances = new.pop("instances")
    return {**new, "complete": True, "instances": instances}


def jumped_rows(values: Mapping[str, Any], listing: Listing) -> set[tuple[str, str]]:
    """Return the (instance, region) rows that `with_listing` marked because their price is far from the trusted one."""
    rows = {(listed.instance, listed.region) for listed in listing.prices}
    return {
        (instance, region)
        for instance, entry in values["instances"].items()
        for region, line in entry["usd_per_hour"].items()
        if (instance, region) in rows and "trusted" in line
    }


def _drop_unlisted(instances: Mapping[str, Any], listing: Listing) -> None:
    listed = {(one.instance, one.region, one.kind) for one in listing.prices}
    for name, entry in instances.items():
        for region, line in list(entry["usd_per_hour"].items()):
            gone = [
                kind
                for kind in RENTED_KINDS
                if (name, region, kind) in listing.covered and (name, region, kind) not in listed
            ]
            for kind in gone:
                line.pop(kind, None)
                _clear_doubts(line, kind)
            if "on_demand" in gone:
                del entry["usd_per_hour"][region]


def _set_price(line: dict[str, Any], listed: ListedPrice, *, usd: float, source: str) -> None:
    kind = listed.kind
    old_usd, trusted_usd = _usd(line[kind]) if kind in line else None, _trusted_usd(line, kind)
    line[kind] = [usd, source]
    if listed.interruption_percent:
        line["interruption_percent"] = listed.interruption_percent
    if trusted_usd is None:
        is_doubtful = usd == old_usd and kind in line.get("suspect", [])
    else:
        is_doubtful = not trusted_usd / _LARGEST_CHANGE <= usd <= trusted_usd * _LARGEST_CHANGE
    if not is_doubtful:
        _clear_doubts(line, kind)
    elif kind not in line.get("suspect", []):
        line["suspect"] = [*line.get("suspect", []), kind]
        line["trusted"] = {**line.get("trusted", {}), kind: trusted_usd}
        _add_note(line, f"{kind} was {trusted_usd}: a change by more than {_LARGEST_CHANGE:g} times")


def _trusted_usd(line: Mapping[str, Any], kind: PriceKind) -> float | None:
    """Return the last price that was not doubtful, or None."""
    if kind in line.get("trusted", {}):
        return float(line["trusted"][kind])
    is_doubtful = any(kind in line.get(flag, []) for flag in ("stale", "suspect"))
    return None if is_doubtful or kind not in line else _usd(line[kind])


def _usd(price: Any) -> float:
    """Return the dollars of `0.93`, which has the date of the file, or of `[0.93, key of a source]`."""
    return float(price[0] if isinstance(price, list) else price)


def _source_key(price: Any) -> str:
    """Return the key of a price's source; nothing if it has the date of the file."""
    return str(price[1]) if isinstance(price, list) else ""


def _clear_doubts(line: dict[str, Any], kind: PriceKind) -> None:
    """Remove the flags and the trusted price of a replaced price; the note goes with the last flag."""
    was_flagged = any(kind in line.get(flag, []) for flag in ("stale", "suspect"))
    for flag in ("stale", "suspect"):
        line[flag] = [other for other in line.get(flag, []) if other != kind]
        if not line[flag]:
            del line[flag]
    trusted = {other: usd for other, usd in line.pop("trusted", {}).items() if other != kind}
    if trusted:
        line["trusted"] = trusted
    if was_flagged and "stale" not in line and "suspect" not in line:
        line.pop("note", None)


def _leave_out_dear_spot(line: dict[str, Any]) -> None:
    if "spot" in line and "on_demand" in line and _usd(line["spot"]) > _usd(line["on_demand"]):
        _clear_doubts(line, "spot")
        _add_note(line, f"source lists spot {_usd(line.pop('spot'))} above on-demand: left out")


def _add_note(line: dict[str, Any], note: str) -> None:
    if note not in line.get("note", ""):
        line["note"] = f"{line['note']}; {note}" if "note" in line else note


def _source_entry(source: ListSource, *, today: str) -> dict[str, str]:
    entry = {"date": today, "from": source.url}
    if source.how:
        entry["how"] = source.how
    if source.basis != "list":
        entry["basis"] = source.basis
    if source.etag:
        entry["etag"] = source.etag
    return entry


def _date_unchanged(
    instances: Mapping[str, Any], sources: dict[str, Any], *, unchanged: tuple[str, ...], today: str
) -> None:
    """Set the date of prices from unchanged lists to today."""
    renamed = {}
    for key, source in list(sources.items()):
        if source["from"] in unchanged:
            renamed[key] = f"{key.removesuffix(source['date'])}{today}"
            sources[renamed[key]] = {**sources.pop(key), "date": today}
    for line in _lines(instances):
        for kind in RENTED_KINDS:
            if kind in line and (key := _source_key(line[kind])) in renamed:
                line[kind] = [line[kind][0], renamed[key]]


def _lines(instances: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for entry in instances.values():
        yield from entry["usd_per_hour"].values()
