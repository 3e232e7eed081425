"""Reads prices from the catalog that SkyPilot keeps on this disk, a CSV file for each cloud; uses no network.

Columns (SkyPilot 0.14.1, sky/catalog/data_fetchers): InstanceType, vCPUs, AcceleratorName, AcceleratorCount, GpuInfo,
Price and SpotPrice in dollars per hour, Region, AvailabilityZone. A row is a type in a zone; at Google, machines and
GPUs are rows of their own, and a machine with GPUs costs the sum. A price of 0 means that none is known.
"""

import ast
import csv
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from advisor.errors import NetworkError, UsageError
from advisor.files.regular_file import read_regular_file
from advisor.records.price import ANY_REGION, ListedPrice, ListedType, Listing, ListSource, PriceKind, Wanted
from advisor.refresh.match import rows_of_gpu
from advisor.refresh.providers.gcp import WITH_DISKS

NAME = "skypilot"
_COLUMNS: Mapping[PriceKind, str] = {"on_demand": "Price", "spot": "SpotPrice"}
_NEEDED = {"InstanceType", "vCPUs", "AcceleratorName", "AcceleratorCount", "Price", "SpotPrice", "Region"}
_MOST_BYTES = 256 * 2**20
"""AWS's list has a row for each of some 800 types in each zone of 30 regions."""
_VERSION = re.compile(r"v(\d+)")
GOOGLES_GPUS = {
    "a100-sxm4-40gb": "A100", "a100-sxm4-80gb": "A100-80GB", "l4": "L4", "p100-pcie-16gb": "P100", "p4": "P4",
    "rtx-pro-6000-blackwell-server": "RTXPRO6000", "t4": "T4", "v100-sxm2-16gb": "V100",
}  # fmt: skip
"""SkyPilot's names by device id (sky/catalog/data_fetchers/fetch_gcp.py); a test compares them with those at launch."""
_LAMBDAS_TYPE = re.compile(r"gpu_\d+x_(.+)")
"""A type of Lambda, such as gpu_8x_a100_80gb_sxm4."""

_Rows = list[dict[str, str]]
_Prices = Iterator[ListedPrice]


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudCatalog:
    """The list of a provider in SkyPilot's catalog, and the day on which SkyPilot fetched it."""

    provider: str
    file: Path
    fetched: date


def catalogs() -> tuple[CloudCatalog, ...]:
    """Return the lists of the newest catalog on this disk; raise `UsageError` if there is none."""
    home = os.environ.get("SKY_RUNTIME_DIR", "~")
    folder = Path(home).expanduser() / ".sky" / "catalogs"
    versions = [(int(number[1]), one) for one in folder.glob("v*") if (number := _VERSION.fullmatch(one.name))]
    for _, newest in sorted(versions, reverse=True):
        if found := tuple(_catalogs_in(newest)):
            return found
    raise UsageError(
        f"there is no catalog of SkyPilot in {folder}",
        hint="SkyPilot fetches it when it is used: run `sky gpus list` once",
    )


def listing(catalog: CloudCatalog, wanted: Wanted) -> Listing:
    """Return the catalog's on-demand and spot prices for rows of the price file.

    A spot price is that of the cheapest zone. Raises `NetworkError` for a file in another format.
    """
    rows = _read(catalog.file)
    prices = tuple(_PRICES[catalog.provider](rows, wanted))
    return Listing(
        sources={NAME: ListSource(url=f"SkyPilot's catalog {catalog.file.parent.parent.name}/{catalog.provider}")},
        prices=prices,
        covered=frozenset((one.instance, one.region, one.kind) for one in prices),  # the catalog lacks some types
    )


def _catalogs_in(folder: Path) -> Iterator[CloudCatalog]:
    for provider in _PRICES:
        file = folder / provider / "vms.csv"
        if file.is_file():
            # SkyPilot also touches this file when a fetch fails, but the digest only when one succeeds.
            digest = folder / ".meta" / provider / "vms.csv.md5"
            yield CloudCatalog(
                provider=provider,
                file=file,
                fetched=date.fromtimestamp((digest if digest.is_file() else file).stat().st_mtime),
            )


def _read(file: Path) -> _Rows:
    try:
        text = read_regular_file(file, most_bytes=_MOST_BYTES).decode(errors="replace")
    except OSError as error:
        raise NetworkError(f"{file}: {error.strerror}", hint="remove it: SkyPilot fetches it again") from error
    reader = csv.DictReader(io.StringIO(text))
    if missing := _NEEDED - {*(reader.fieldnames or ())}:
        hint = "the format of SkyPilot's catalog may have changed"
        raise NetworkError(f"{file}: no column {', '.join(sorted(missing))}", hint=hint)
    try:
        return [{name: value or "" for name, value in row.items() if isinstance(name, str)} for row in reader]
    except csv.Error as error:
        raise NetworkError(f"{file}: {error}", hint="remove it: SkyPilot fetches it again") from error


def _by_type(rows: _Rows, wanted: Wanted) -> _Prices:
    """Yield the prices of types whose names are the provider's own, GPUs included."""
    for (instance, region), usd in _cheapest(rows, lambda row: row["InstanceType"]).items():
        if (instance, region) in wanted.rows:
            yield from _listed(instance, region, usd)


def _googles(rows: _Rows, wanted: Wanted) -> _Prices:
    """Yield the sum of a machine and its GPUs; types with local disks cost more than that."""
    machines = _cheapest(rows, lambda row: row["InstanceType"])
    gpus = _cheapest(rows, lambda row: "" if row["InstanceType"] else _gpus(row["AcceleratorName"], _count(row)))
    for instance, region in sorted(wanted.rows):
        listed, machine = wanted.types[instance], machines.get((instance.partition("+")[0], region))
        if machine is None or WITH_DISKS.match(instance):
            continue
        if listed.gpu is None:
            yield from _listed(instance, region, machine)
        elif name := GOOGLES_GPUS.get(listed.gpu):
            of_gpus = gpus.get((_gpus(name, listed.gpu_count), region), {})
            yield from _listed(
                instance, region, {kind: machine[kind] + of_gpus[kind] for kind in machine.keys() & of_gpus.keys()}
            )


def _lambdas(rows: _Rows, wanted: Wanted) -> _Prices:
    """Yield the prices of types with the same GPU, GPU count and vCPUs; they are the same in every region."""
    named = [row | {"Region": ANY_REGION} for row in rows]
    by_type = {row["InstanceType"]: row for row in named}
    for (name, _), usd in _cheapest(named, lambda row: row["InstanceType"]).items():
        row, match = by_type[name], _LAMBDAS_TYPE.fullmatch(name)
        gpu = match[1].replace("_", " ") if match else row["AcceleratorName"]
        for instance, region in rows_of_gpu(gpu, wanted, memory_gib=_gpu_gib(row)):
            if _is_alike(wanted.types[instance], row):
                yield from _listed(instance, region, usd)


_PRICES = {"aws": _by_type, "azure": _by_type, "gcp": _googles, "lambda": _lambdas}
"""By provider: how its rows are matched with those of the price file."""


def _is_alike(listed: ListedType, row: Mapping[str, str]) -> bool:
    return listed.gpu_count == _count(row) and listed.vcpus in (None, _number(row["vCPUs"]))


def _listed(instance: str, region: str, usd: Mapping[PriceKind, float]) -> _Prices:
    for kind, amount in usd.items():
        yield ListedPrice(instance=instance, region=region, kind=kind, usd_per_hour=round(amount, 6), source=NAME)


def _cheapest(
    rows: Iterable[Mapping[str, str]], name_of: Callable[[Mapping[str, str]], str]
) -> dict[tuple[str, str], dict[PriceKind, float]]:
    """Return the lowest price of each kind over the zones, by name and region; rows without a name are skipped."""
    found: dict[tuple[str, str], dict[PriceKind, float]] = {}
    for row in rows:
        if name := name_of(row):
            for kind, column in _COLUMNS.items():
                usd = _number(row[column])
                if usd > 0:
                    of_row = found.setdefault((name, row["Region"]), {})
                    of_row[kind] = min(usd, of_row.get(kind, usd))
    return found


def _gpus(name: str, count: float) -> str:
    return f"{name}:{count:g}" if name else ""


def _count(row: Mapping[str, str]) -> float:
    return _number(row["AcceleratorCount"])


def _gpu_gib(row: Mapping[str, str]) -> float | None:
    """Return the memory of one GPU from a literal like {'Gpus': [{'MemoryInfo': {'SizeInMiB': 24576}}]}."""
    try:
        return float(ast.literal_eval(row.get("GpuInfo", ""))["Gpus"][0]["MemoryInfo"]["SizeInMiB"]) / 1024
    except (ValueError, SyntaxError, LookupError, TypeError, MemoryError, RecursionError):
        return None


def _number(text: str) -> float:
    """Return a finite number of at least 0; 0 for anything else, which is how an unknown price is written."""
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if 0 < value < float("inf") else 0.0
