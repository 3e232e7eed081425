"""Fetches a provider's prices of today, checks them, and rewrites its price file."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import platformdirs

from advisor.answers.price_list import price_changes
from advisor.catalog.find import find_rented_gpu
from advisor.catalog.invariants import broken_invariants
from advisor.catalog.offers import names_of
from advisor.catalog.overlay import Layer, shipped_layer, shipped_profiles
from advisor.catalog.parse import parse_catalog
from advisor.catalog.price_edit import etags_of, jumped_rows, listed_types, with_listing
from advisor.catalog.price_files import PriceRow, read_price_rows
from advisor.catalog.strict_yaml import Document, read_documents
from advisor.catalog.yaml_text import yaml_text
from advisor.errors import AdvisorError, NetworkError, ProfileError, UsageError
from advisor.files.whole_file import write_whole
from advisor.records.price import Catalog, Listing, Offer, PriceChange, Wanted
from advisor.refresh import skypilot
from advisor.refresh.client import Client
from advisor.refresh.providers import provider_module, providers

_LEAST_FOUND_RATIO = 0.8
"""A list with a smaller share of the expected rows was cut short, or its format has changed."""
_MOST_JUMPED_RATIO = 0.5
"""If more than this share of the known prices jump at once, the unit has changed, not the prices."""
_SHOWN_BROKEN_COUNT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Refreshed:
    """The file that was or would be written, the changes, and the entries of the provider's list that were refused."""

    file: Path
    changes: tuple[PriceChange, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllRefreshed:
    """Every provider whose prices can be fetched, done or failed, and the pages of the others."""

    done: Mapping[str, Refreshed]
    failed: Mapping[str, AdvisorError]
    by_hand: Mapping[str, str]


def refresh_all(*, today: date, is_dry_run: bool = False, make_client: Callable[[], Client] = Client) -> AllRefreshed:
    """Refresh every provider that can be; one that fails leaves its own file as it was and does not stop the others."""
    done: dict[str, Refreshed] = {}
    failed: dict[str, AdvisorError] = {}
    for provider in providers():
        try:
            done[provider] = refresh_prices(provider, today=today, is_dry_run=is_dry_run, make_client=make_client)
        except AdvisorError as error:
            failed[provider] = error
    sources = parse_catalog([shipped_layer()]).price_sources
    by_hand = {provider: source.page for provider, source in sources.items() if source.refresh == "by hand"}
    return AllRefreshed(done=done, failed=failed, by_hand=by_hand)


def refresh_prices(
    provider: str,
    *,
    file: Path | None = None,
    today: date,
    is_dry_run: bool = False,
    make_client: Callable[[], Client] = Client,
) -> Refreshed:
    """Fetch prices for the types and regions in the provider's price file, and rewrite the file.

    By default `file` is the provider's file in the user's config folder, which starts as a copy of ours. It is replaced
    atomically, after the new prices have passed the checks of every price file; any error leaves it unchanged. Raises
    `NetworkError` for a list that cannot be fetched or trusted, `UsageError` for a provider without one,
    `ProfileError` if the file is invalid already.
    """
    module = provider_module(provider)

    def fetch(wanted: Wanted) -> Listing:
        with make_client() as client:
            listing: Listing = module.fetch(client, wanted)
            return listing

    return _refreshed(provider, fetch, listed_on=today, command=provider, file=file, today=today, is_dry_run=is_dry_run)


def refresh_from_skypilot(*, today: date, is_dry_run: bool = False) -> AllRefreshed:
    """Refresh each provider in SkyPilot's catalog on this disk, without a network.

    Prices in the price file that are newer than the catalog stay. Raises `UsageError` if there is no catalog.
    """
    done: dict[str, Refreshed] = {}
    failed: dict[str, AdvisorError] = {}
    for catalog in skypilot.catalogs():
        try:
            done[catalog.provider] = _refreshed(
                catalog.provider,
                partial(skypilot.listing, catalog),
                listed_on=min(catalog.fetched, today),
                command=skypilot.NAME,
                today=today,
                is_dry_run=is_dry_run,
            )
        except AdvisorError as error:
            failed[catalog.provider] = error
    return AllRefreshed(done=done, failed=failed, by_hand={})


def _refreshed(
    provider: str,
    fetch: Callable[[Wanted], Listing],
    *,
    listed_on: date,
    command: str,
    file: Path | None = None,
    today: date,
    is_dry_run: bool,
) -> Refreshed:
    """Rewrite the provider's file, as `refresh_prices`, with prices of the date `listed_on`; newer rows stay."""
    target = file or platformdirs.user_config_path("advisor") / "profiles" / "prices" / f"{provider}.yaml"
    document = _base_document(provider, target, is_named=file is not None)
    every_row = list(read_price_rows(document))
    rows = every_row if listed_on == today else [row for row in every_row if not _is_newer(row, listed_on)]
    ours = parse_catalog([_our_layer(provider)])
    if every_row and not rows:
        return Refreshed(file=target, changes=(), problems=("every price is newer than the list: nothing changes",))
    listing = fetch(_wanted(rows, document.values, ours))
    _check_complete(listing, rows, provider=provider)

    values = with_listing(document.values, listing, today=listed_on.isoformat())
    _check_unit(values, listing, rows, provider=provider)
    text = yaml_text(values, comments=_comments(command, provider))
    before, after = (_offers(content, provider) for content in (yaml_text(document.values), text))
    broken = broken_invariants(after, today=today)
    if broken:
        listed = "; ".join(broken[:_SHOWN_BROKEN_COUNT])
        hint = "nothing was written: the provider's list cannot be right"
        raise NetworkError(f"{provider}: {len(broken):,} prices cannot be right: {listed}", hint=hint)
    if not is_dry_run:
        _write_at_once(text, target)
    return Refreshed(file=target, changes=price_changes(before, after), problems=listing.problems)


def _is_newer(row: PriceRow, day: date) -> bool:
    return any(price.date > day.isoformat() for price in row.prices if price.kind in ("on_demand", "spot"))


def _base_document(provider: str, target: Path, *, is_named: bool) -> Document:
    """Read the price file to refresh: the target if it exists, else ours."""
    shipped = shipped_profiles() / "prices" / f"{provider}.yaml"
    path = target if target.is_file() else shipped
    documents = read_documents(path)
    document = documents[0]
    if len(documents) != 1 or document.values.get("provider") != provider:
        hint = "name a file that holds the prices of this provider and nothing else"
        raise document.error((), f"expected one document with the prices of {provider}", hint=hint)
    if path == target and not is_named and not document.values.get("complete"):
        hint = "move its rows to advisor.yaml in your config folder, which wins over it"
        raise document.error((), "this file of your own is not a list that a refresh wrote", hint=hint)
    return document


def _wanted(rows: list[PriceRow], values: Mapping[str, Any], ours: Catalog) -> Wanted:
    def gpu_id(name: str, memory_gib: float | None) -> str | None:
        gpu = find_rented_gpu(ours, name, memory_gib=memory_gib)
        return gpu.id if gpu else None

    return Wanted(
        types=listed_types(rows, gpu_ids=names_of(ours.gpus)),
        regions=tuple(dict.fromkeys(row.region for row in rows)),
        rows=frozenset((row.instance, row.region) for row in rows),
        etags=etags_of(values),
        gpu_id=gpu_id,
        usd_on_demand={
            (row.instance, row.region): price.usd_per_hour
            for row in rows
            for price in row.prices
            if price.kind == "on_demand" and not (price.suspect or price.stale)
        },
    )


def _check_complete(listing: Listing, rows: list[PriceRow], *, provider: str) -> None:
    """Raise `NetworkError` for a list that has no known type, or too few of the expected rows."""
    if not listing.prices and not listing.unchanged:
        hint = "nothing was written; the list may have another shape than the one known"
        raise NetworkError(f"{provider}: the list has no price of any known type", hint=hint)
    due = {
        (row.instance, row.region)
        for row in rows
        if (row.instance, row.region, "on_demand") in listing.covered
        and any(price.kind == "on_demand" for price in row.prices)
    }
    found = {(one.instance, one.region) for one in listing.prices if one.kind == "on_demand"}
    if len(due & found) < _LEAST_FOUND_RATIO * len(due):
        hint = "nothing was written: the list was cut short, or has another shape than the one known"
        raise NetworkError(f"{provider}: the list has {len(due & found):,} of {len(due):,} known rows", hint=hint)


def _check_unit(values: Mapping[str, Any], listing: Listing, rows: list[PriceRow], *, provider: str) -> None:
    """Raise `NetworkError` if most prices of the list are far from the known ones: the unit may have changed."""
    listed = {(one.instance, one.region) for one in listing.prices}
    known = listed & {(row.instance, row.region) for row in rows}
    jumped = jumped_rows(values, listing)
    if len(jumped) > _MOST_JUMPED_RATIO * len(known):
        shown = ", ".join("/".join(row) for row in sorted(jumped)[:_SHOWN_BROKEN_COUNT])
        message = f"{provider}: {len(jumped):,} of {len(known):,} known rows jumped by more than 3 times: {shown}"
        hint = (
            "nothing was written: the list may be in another unit; a price that is right can be given in advisor.yaml"
        )
        raise NetworkError(message, hint=hint)


def _offers(text: str, provider: str) -> list[Offer]:
    """Return the offers that a price file makes with our devices."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / f"{provider}.yaml"
        file.write_text(text, encoding="utf-8")
        try:
            catalog = parse_catalog([Layer(name="", prices=(file,)), _our_layer(provider)])
        except ProfileError as error:
            message = error.message.removeprefix(f"{folder}/")
            raise NetworkError(f"the list cannot be right: {message}", hint="nothing was written") from None
    return [offer for offer in catalog.offers if offer.provider == provider]


def _our_layer(provider: str) -> Layer:
    """Return our devices and our prices of the provider; its own file may omit what ours says about its machines."""
    layer = shipped_layer()
    return replace(layer, prices=tuple(file for file in layer.prices if file.stem == provider))


def _comments(command: str, provider: str) -> tuple[str, ...]:
    return (
        f"Prices of {provider}, US dollars. One line per region: [dollars per hour, key of the source below].",
        f"Written by `advise prices refresh {command}`, which reads it and writes it anew.",
        "stale, suspect: prices of that line not to be trusted (`note` says why), left out of the ranking.",
        "trusted: the last price that was; take it and `suspect` from the line to believe the new one.",
    )


def _write_at_once(text: str, target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(text, target)
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}", hint="choose another place with -o") from error
