"""Files of calibrations in, records out: the first document says on what, when and how well, each other is an
efficiency."""

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
    """What stands before the efficiencies: the key, and the rest beside it."""

    at: str
    n: int
    planned_count: int
    median_ape: float
    warnings: tuple[str, ...] = ()
    host_to_device_bytes_per_s: float | None = None
    precisions: tuple[str, ...] = ()


def read_calibration(file: Path) -> Calibration:
    """Read one; raise `ProfileError` where it cannot be read or is none."""
    documents = read_documents(file)
    if len(documents) < 2:
        raise ProfileError("no efficiencies in it", where=str(file), hint="calibrate again")
    first, *others = documents
    header = read_record(_Header, first, (), first.values, zero_allowed=("median_ape",))
    try:
        has_zone = datetime.fromisoformat(header.at).tzinfo is not None
    except ValueError:
        raise first.error(("at",), f"{header.at!r} is no date and time", hint="calibrate again") from None
    if not has_zone:
        raise first.error(("at",), f"{header.at!r} names no time zone", hint="calibrate again")
    efficiencies = tuple(read_efficiency(document) for document in others)
    found = tuple(one.precision for one in efficiencies)
    if header.precisions and found != header.precisions:
        words = f"efficiencies of {', '.join(header.precisions)} should follow, not of {', '.join(found)}"
        raise first.error(("precisions",), words, hint="the file is cut short: calibrate again")
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
