"""Makes the answers on calibrations: one machine's in full, and the profiles collected from a fleet."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from advisor import units
from advisor.records.calibration import TIMED_HERE, Calibration, Collected, CollectedDevice
from advisor.records.device import FamilyEfficiency
from advisor.report.content import Block, Paragraph, Warnings
from advisor.report.tables import ColumnOf, column, numbers, table_of

_UNITS_OF_AGE = ((86400, "day"), (3600, "hour"), (60, "minute"))
_FAMILY_COLUMNS: Sequence[ColumnOf[tuple[str, FamilyEfficiency]]] = (
    column("family", lambda row: row[0]),
    numbers("of peak", lambda row: row[1].compute_ratio, units.format_ratio),
    numbers("of bandwidth", lambda row: row[1].memory_ratio, units.format_ratio),
    numbers("operators", lambda row: row[1].n, str),
)
_COLLECTED_COLUMNS: Sequence[ColumnOf[CollectedDevice]] = (
    column("device", lambda one: one.device),
    numbers("cores", lambda one: one.core_count, lambda count: f"{count:g}", missing=""),
    column("precisions", lambda one: ", ".join(one.precisions)),
    column("torch", lambda one: ", ".join(one.torch)),
    column("timed", lambda one: one.at[:10]),
    column("profile", lambda one: one.file.name),
)


def calibration_content(calibration: Calibration, *, now: datetime | None = None) -> Iterator[Block]:
    """Yield the device, age and error of a calibration, then what each family reaches at each precision."""
    copied_bytes_per_s = calibration.host_to_device_bytes_per_s
    yield Paragraph(
        title=f"{target_text(calibration)}: calibrated {age_text(calibration, now=now)}",
        sentences=(
            f"{calibration.n} of {calibration.planned_count} operators and small networks timed with torch "
            f"{calibration.key.torch}; median error of the fit {units.format_ratio(calibration.median_ape)}.",
            *(
                []
                if copied_bytes_per_s is None
                else [f"Inputs are copied to the device at {units.format_significant(copied_bytes_per_s / 1e9)} GB/s."]
            ),
        ),
    )
    yield Warnings(items=calibration.warnings)
    for efficiency in calibration.efficiencies:
        timed = [item for item in sorted(efficiency.families.items()) if item[1].source == TIMED_HERE]
        title = (
            f"{efficiency.precision}, per operator: dispatch overhead {units.format_duration(efficiency.dispatch_s)} "
            f"and launch overhead {units.format_duration(efficiency.launch_s)}."
        )
        yield table_of(timed, _FAMILY_COLUMNS, title=title)


def collected_content(collected: Collected) -> Iterator[Block]:
    """Yield a table with one row per profile."""
    yield table_of(collected.devices, _COLLECTED_COLUMNS)


def target_text(calibration: Calibration) -> str:
    """Return the target of a calibration, such as `amd-epyc-9r45 with 2 cores`."""
    count = calibration.key.core_count
    cores = "" if count is None else f" with {count:g} core{'s' if count != 1 else ''}"
    return f"{calibration.key.device}{cores}"


def age_text(calibration: Calibration, *, now: datetime | None = None) -> str:
    """Return the age of a calibration, such as `3 days ago`."""
    age_s = ((now or datetime.now(UTC)) - datetime.fromisoformat(calibration.at)).total_seconds()
    for unit_s, unit in _UNITS_OF_AGE:
        count = int(age_s // unit_s)
        if count > 0:
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"
