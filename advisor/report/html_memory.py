"""Makes the report's section on the peak memory of a step, as a bar of parts for each device."""

from collections.abc import Mapping, Sequence

from advisor import units
from advisor.records.device_memory import DeviceMemory, MemoryPart
from advisor.records.generation import Generation
from advisor.records.report_contents import CloseLook
from advisor.records.sample_words import batch_text
from advisor.report.html_parts import Axis, Bar, Bars, Color, Part, Section, Table, TableColumn

_GROUPS: Mapping[str, tuple[Color, tuple[MemoryPart, ...]]] = {
    "parameters": (1, ("parameters", "buffers", "half copies")),
    "gradients": (2, ("gradients",)),
    "KV cache": (2, ("KV cache",)),
    "optimizer state": (3, ("optimizer state",)),
    "activations": (4, ("activations",)),
    "temporaries and workspaces": (5, ("temporaries", "workspaces")),
    "allocator": (6, ("allocator",)),
    "process, CUDA context": (7, ("process",)),
}
"""The parts that a bar distinguishes; the table has every part."""


def memory_section(looks: Sequence[CloseLook], *, generation: Generation | None = None) -> Section:
    """Return the section on the peak memory of the priced step, compared with the device's memory."""
    found = [(look, look.memory) for look in looks if look.memory is not None]
    if not found:
        return Section(id="memory", title="Memory")
    verb = "is" if generation is None else "are"
    bars = Bars(
        title="Peak memory of a step",
        notes=tuple(
            f"{look.role}: {memory.device.name}, {batch_text(memory.batch, generation)} in {memory.precision}; up to "
            f"{batch_text(memory.largest_batch, generation)} {verb} sure to fit."
            for look, memory in found
        ),
        x=Axis(label="bytes", unit="bytes", is_log=False),
        bars=tuple(_bar(look, memory) for look, memory in found),
        table=_table(found),
    )
    lead = "Peak memory of the priced step. The mark is the memory of the device."
    return Section(id="memory", title="Memory", lead=(lead,), plots=(bars,))


def _bar(look: CloseLook, memory: DeviceMemory) -> Bar:
    mid = {term.part: term.mid_bytes for term in memory.terms}
    parts = []
    for name, (color, members) in _GROUPS.items():
        size_bytes = sum(mid.get(member, 0.0) for member in members)
        if size_bytes > 0:
            text = f"{look.role}, {memory.device.name}\n{name}: {units.format_bytes(size_bytes)}"
            parts.append(Part(name=name, value=size_bytes, color=color, text=text))
    return Bar(
        name=look.role,
        note=f"{units.format_bytes(memory.peak_bytes)} of {units.format_bytes(memory.memory_bytes)}: {memory.verdict}",
        parts=tuple(parts),
        limit=memory.memory_bytes,
        limit_text=f"{memory.device.name} has {units.format_bytes(memory.memory_bytes)}",
    )


def _table(found: Sequence[tuple[CloseLook, DeviceMemory]]) -> Table:
    rows = [(look, memory, term) for look, memory in found for term in memory.terms]
    return Table(
        title="Memory by part",
        columns=(
            TableColumn(header="device", is_choice=True),
            TableColumn(header="part"),
            TableColumn(header="bytes", is_number=True, keys=tuple(term.mid_bytes for _, _, term in rows)),
            TableColumn(header="least to most", is_number=True, keys=tuple(term.high_bytes for _, _, term in rows)),
            TableColumn(header="source"),
        ),
        rows=tuple(
            (
                f"{look.role}: {memory.device.name}",
                term.part,
                units.format_bytes(term.mid_bytes),
                f"{units.format_bytes(term.low_bytes)} - {units.format_bytes(term.high_bytes)}",
                term.source,
            )
            for look, memory, term in rows
        ),
    )
