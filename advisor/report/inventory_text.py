"""Renders the devices of this machine as text, with their profiles and calibrations."""

from collections.abc import Iterator, Sequence

from advisor import units
from advisor.records.device import Cpu, Gpu
from advisor.records.machine import Inventory, LocalDevice, Machine
from advisor.report.text_page import Heading, Page
from advisor.report.view import View

_HEADINGS = (
    Heading(text="here"),
    Heading(text="device"),
    Heading(text="profile"),
    Heading(text="cores", is_number=True),
    Heading(text="memory", is_number=True),
    Heading(text="GB/s", is_number=True),
    Heading(text="fp32 TFLOP/s", is_number=True),
    Heading(text="half", is_number=True),
    Heading(text="calibrated"),
)
_KNOWN_HEADINGS = (Heading(text="id"), Heading(text="device"), Heading(text="memory GB/s", is_number=True))


def render_inventory(inventory: Inventory, *, view: View) -> str:
    """Return what this process may use of the machine, its devices, and what could not be read."""
    page = Page(width=view.width, color=view.color)
    page.line(_cpu_sentence(inventory.machine), style="bold")
    if inventory.torch.version:
        page.line(f"torch {inventory.torch.version} uses {_counted(inventory.torch.thread_count, 'thread')}.")
    page.blank()
    page.table(_HEADINGS, [_cells(local, inventory) for local in inventory.devices])
    page.titled_list("Notes:", [*_device_notes(inventory.devices), *inventory.notes])
    if inventory.others:
        page.blank()
        page.line(f"Other devices with a profile ({len(inventory.others):,}):", style="bold")
        page.table(_KNOWN_HEADINGS, [_known_cells(profile) for profile in inventory.others])
    return page.text()


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


def _cells(local: LocalDevice, inventory: Inventory) -> tuple[str, ...]:
    """Return the figures used in predictions: from the profile, for the cores and memory of this machine."""
    device = local.device
    if device is None:
        return (local.id, local.name, local.profile.id if local.profile else "none", *[""] * 5, "")
    half = max((device.peak_flops_per_s.get(unit, 0.0) for unit in ("fp16", "bf16")), default=0.0)
    return (
        local.id,
        local.name,
        local.profile.id if local.profile else "none",
        units.format_significant(device.core_count),
        units.format_bytes(device.memory_bytes),
        units.format_significant(device.memory_bytes_per_s / 1e9),
        units.format_significant(device.peak_flops_per_s["fp32"] / 1e12),
        units.format_significant(half / 1e12) if half else "",
        inventory.calibrated_at.get(device.id, "no")[:10],
    )


def _device_notes(devices: Sequence[LocalDevice]) -> Iterator[str]:
    for local in devices:
        if local.note:
            yield f"{local.id}, {local.name}: {local.note}"


def _known_cells(profile: Gpu | Cpu) -> tuple[str, ...]:
    return (profile.id, profile.name, units.format_significant(profile.memory_bytes_per_s / 1e9))


def _counted(count: float, noun: str) -> str:
    return f"{units.format_significant(count)} {noun}{'' if count == 1 else 's'}"
