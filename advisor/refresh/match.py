"""Matches the entries of a provider's list with the rows of its price file."""

from collections.abc import Iterable

from advisor.records.price import PriceKind, Wanted


def covered_prices(rows: Iterable[tuple[str, str]], *kinds: PriceKind) -> frozenset[tuple[str, str, PriceKind]]:
    """Return every kind of every (instance, region), for `Listing.covered` of a complete list."""
    return frozenset((instance, region, kind) for instance, region in rows for kind in kinds)


def rows_with_gpu(wanted: Wanted) -> tuple[tuple[str, str], ...]:
    """Return the (instance, region) rows whose GPU has a profile, so that a list can name it."""
    return tuple(sorted(row for row in wanted.rows if wanted.types[row[0]].gpu is not None))


def rows_of_gpu(name: str, wanted: Wanted, *, memory_gib: float | None = None) -> tuple[tuple[str, str], ...]:
    """Return the (instance, region) rows with the GPU called `name`, such as "A100 (40 GB SXM4)" or "RTX 4090"."""
    identifier = wanted.gpu_id(name, memory_gib)
    return tuple(sorted(row for row in wanted.rows if identifier and wanted.types[row[0]].gpu == identifier))
