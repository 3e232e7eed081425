"""Reads calibration files: the first document is a header, each other one is an efficiency."""

from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path

from advisor.catalog.device_files import read_efficiency
from advisor.catalog.fields import read_record
from advisor.catalog.strict_yaml import read_documents
from advisor.errors import ProfileError
from advisor.records.calibration import Calibration, CalibrationKey


@dataclass(frozen=True, slots=True, kw_only=True)
class _Header(CalibrationKey):
    """The header of a calibration file: the key and the other fields."""

    at: str
    n: int
    planned_count: int
    median_ape: float
    warnings: tuple[str, ...] = ()
    host_to_device_bytes_per_s: float | None = None
    precisions: tuple[str, ...] = ()


def read_calibration(file: Path) -> Calibration:
    """Return the calibration in a file; raise `ProfileError` if it is unreadable or invalid."""
    documents = read_documents(file)
    if len(documents) < 2:
        raise ProfileError("the file has no efficiencies", where=str(file), hint="calibrate again")
    first, *others = (document.root for document in documents)
    header = read_record(_Header, first, zero_allowed=("median_ape",))
    try:
        has_zone = datetime.fromisoformat(header.at).tzinfo is not None
    except ValueError:
        raise first["at"].error(f"{header.at!r} is not a date and time", hint="calibrate again") from None
    if not has_zone:
        raise first["at"].error(f"{header.at!r} has no time zone", hint="calibrate again")
    efficiencies = tuple(read_efficiency(root) for root in others)
    found = tuple(one.precision for one in efficiencies)
    if header.precisions and found != header.precisions:
        words = f"efficiencies of {', '.join(header.precisions)} should follow, but found {', '.join(found)}"
        raise first["precisions"].error(words, hint="the file is truncated: calibrate again")
    return Calibration(
        key=CalibrationKey(**{field.name: getattr(header, field.name) for field in fields(CalibrationKey)}),
        at=header.at,
        n=header.n,
        planned_count=header.planned_count,
        median_ape=header.median_ape,
        warnings=header.warnings,
        host_to_device_bytes_per_s=header.host_to_device_bytes_per_s,
        efficiencies=efficiencies,
    )
