"""Makes the answers on devices: this machine's with their calibrations, its checkup, and the ratios fitted for one."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime

from advisor import units
from advisor.records.calibration import TIMED_HERE, Calibration, Collected
from advisor.records.device import Device
from advisor.records.machine import Check, Inventory, LocalDevice, Machine
from advisor.records.measurement import OwnFit
from advisor.report.content import Block, Listing, Paragraph, Warnings
from advisor.report.tables import ColumnOf, column, more_note, numbers, table_of


def inventory_content(inventory: Inventory) -> Iterator[Block]:
    """Yield what this process may use of the machine, its devices, and what could not be read."""
    version, threads = inventory.torch.version, inventory.torch.thread_count
    used = (f"torch {version} uses {_counted(threads, 'thread')}.",) if version else ()
    yield Paragraph(title=_cpu_sentence(inventory.machine), sentences=used)
    yield table_of(inventory.devices, _columns(inventory), highlighted=0)
    notes = [f"{local.id}, {local.name}: {local.note}" for local in inventory.devices if local.note]
    yield Listing(title="Notes", items=(*notes, *inventory.notes))
    yield table_of(
        inventory.others,
        (
            column("id", lambda profile: profile.id),
            column("device", lambda profile: profile.name),
            numbers("memory GB/s", lambda profile: profile.memory_bytes_per_s / 1e9, units.format_significant),
        ),
        title=f"Other devices with a profile ({len(inventory.others):,})",
    )


def _cpu_sentence(machine: Machine) -> str:
    """Return the CPU by its own name, with what this process may use of it."""
    parts = [f"{_counted(machine.core_count, 'core')} and {_counted(machine.thread_count, 'thread')} for this process"]
    parts += [
        f"{name} {units.format_bytes(size_bytes)}"
        for name, size_bytes in (("L2", machine.l2_bytes), ("L3", machine.l3_bytes), ("memory", machine.memory_bytes))
        if size_bytes is not None
    ]
    parts += [", ".join(machine.isa)] if machine.isa else []
    return f"{machine.cpu_name or 'Unnamed CPU'}: {'; '.join(parts)}."


def _columns(inventory: Inventory) -> tuple[ColumnOf[LocalDevice], ...]:
    """Return the figures used in predictions: from the profile, for the cores and memory of this machine."""

    def figure(
        header: str, value: Callable[[Device], float | None], text: Callable[[float], str] = units.format_significant
    ) -> ColumnOf[LocalDevice]:
        return numbers(header, lambda local: value(local.device) if local.device else None, text, missing="")

    def calibrated(local: LocalDevice) -> str:
        return inventory.calibrated_at.get(local.device.id, "no")[:10] if local.device else ""

    return (
        column("here", lambda local: local.id),
        column("device", lambda local: local.name),
        column("profile", lambda local: local.profile.id if local.profile else "none"),
        figure("cores", lambda device: device.core_count),
        figure("memory", lambda device: device.memory_bytes, units.format_bytes),
        figure("GB/s", lambda device: device.memory_bytes_per_s / 1e9),
        figure("fp32 TFLOP/s", lambda device: device.peak_flops_per_s["fp32"] / 1e12),
        figure("half", _half_tflops_per_s),
        column("calibrated", calibrated),
    )


def _half_tflops_per_s(device: Device) -> float | None:
    peak = max((device.peak_flops_per_s.get(unit, 0.0) for unit in ("fp16", "bf16")), default=0.0)
    return peak / 1e12 or None


def _counted(count: float, noun: str) -> str:
    return f"{units.format_significant(count)} {noun}{'' if count == 1 else 's'}"


def checkup_content(checks: Sequence[Check]) -> Iterator[Block]:
    """Yield every check in order, its fix on a row of its own, then the verdict."""
    rows: list[tuple[str, str, str]] = []
    for check in checks:
        rows.append(("FAILS" if check.state == "fails" else check.state, check.name, check.found))
        rows += [("", "", f"-> {check.remedy}")] if check.remedy else []
    yield table_of(
        rows,
        (
            column("state", lambda row: row[0]),
            column("check", lambda row: row[1]),
            column("result -> fix", lambda row: row[2]),
        ),
    )
    failed = ", ".join(check.name for check in checks if check.state == "fails")
    if failed:
        yield Paragraph(title=f"The main job cannot run: {failed}.", style="alarm")
    else:
        yield Paragraph(title="The main job can run on this machine.")


_UNITS_OF_AGE = ((86400, "day"), (3600, "hour"), (60, "minute"))


def calibration_content(calibration: Calibration, *, now: datetime | None = None) -> Iterator[Block]:
    """Yield the device, age and error of a calibration, then what each family reaches at each precision."""
    sentences = [
        f"{calibration.n} of {calibration.planned_count} operators and small networks timed with torch "
        f"{calibration.key.torch}; median error of the fit {units.format_ratio(calibration.median_ape)}."
    ]
    if calibration.host_to_device_bytes_per_s is not None:
        gb_per_s = units.format_significant(calibration.host_to_device_bytes_per_s / 1e9)
        sentences.append(f"Inputs are copied to the device at {gb_per_s} GB/s.")
    title = f"{target_text(calibration)}: calibrated {age_text(calibration, now=now)}"
    yield Paragraph(title=title, sentences=tuple(sentences))
    yield Warnings(items=calibration.warnings)
    for efficiency in calibration.efficiencies:
        yield table_of(
            [item for item in sorted(efficiency.families.items()) if item[1].source == TIMED_HERE],
            (
                column("family", lambda row: row[0]),
                numbers("of peak", lambda row: row[1].compute_ratio, units.format_ratio),
                numbers("of bandwidth", lambda row: row[1].memory_ratio, units.format_ratio),
                numbers("operators", lambda row: row[1].n, str),
            ),
            title=f"{efficiency.precision}, per operator: dispatch overhead "
            f"{units.format_duration(efficiency.dispatch_s)} and launch overhead "
            f"{units.format_duration(efficiency.launch_s)}.",
        )


def collected_content(collected: Collected) -> Iterator[Block]:
    """Yield a table with one row per profile."""
    yield table_of(
        collected.devices,
        (
            column("device", lambda one: one.device),
            numbers("cores", lambda one: one.core_count, lambda count: f"{count:g}", missing=""),
            column("precisions", lambda one: ", ".join(one.precisions)),
            column("torch", lambda one: ", ".join(one.torch)),
            column("timed", lambda one: one.at[:10]),
            column("profile", lambda one: one.file.name),
        ),
    )


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


_WEAK_LOG_SIGMA = 0.12
"""Above this, close to the prior's 0.15, the measurements have hardly narrowed the ratio."""


def own_fit_sentences(fit: OwnFit) -> Iterable[str]:
    """Yield what the ratios were fitted to, and the mean error without and with them."""
    yield f"Fitted to {fit.n:,} measured steps of {fit.model_count:,} models, with a prior of 1 +- 15 %."
    yield (
        f"Mean error: {units.format_ratio(fit.mape_without)} without the two ratios, {units.format_ratio(fit.mape)} "
        f"with them, {units.format_ratio(fit.left_out_mape)} on each model with ratios fitted to the other models."
    )


def own_fit_content(fit: OwnFit, *, top: int) -> Iterator[Block]:
    """Yield both ratios in a table, the sentences, and the rows that could not be predicted."""
    figures = (
        ("sustained_compute_ratio", fit.profile.sustained_compute_ratio, fit.compute_log_sigma),
        ("sustained_memory_ratio", fit.profile.sustained_memory_ratio, fit.memory_log_sigma),
    )
    yield Paragraph(title=f"{fit.profile.name} ({fit.profile.id})")
    yield table_of(
        [(name, ratio, sigma) for name, ratio, sigma in figures if ratio is not None],
        (
            column("figure", lambda row: row[0]),
            numbers("value", lambda row: row[1], lambda ratio: f"{ratio:.3f}"),
            numbers("+-", lambda row: row[2], units.format_ratio),
            column("", lambda row: "hardly determined by the rows" if row[2] > _WEAK_LOG_SIGMA else ""),
        ),
    )
    yield Paragraph(sentences=tuple(own_fit_sentences(fit)))
    failed = [f"{row.measurement.file}:{row.measurement.line}: {row.reason}" for row in fit.failed[:top]]
    yield Listing(title="Not predicted", items=(*failed, *more_note(len(fit.failed), top=top, what=" rows")))
