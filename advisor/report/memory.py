"""Makes the answer on whether a step fits in memory, and the report's section on the peak memory by part."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

from advisor import units
from advisor.records.device_memory import DeviceMemory, MemoryAnswer, MemoryPart, MemoryTerm, Remedy, Verdict
from advisor.records.generation import Generation
from advisor.records.report_contents import DeviceDetail
from advisor.records.sample_words import at_batch_text, batch_text
from advisor.records.scale import Plan
from advisor.report.content import Axis, Bar, Bars, Block, Color, Listing, Paragraph, Part, Section
from advisor.report.marks import STEP_NAMES
from advisor.report.quote_notes import plan_label
from advisor.report.tables import ColumnOf, column, more_note, numbers, table_of

_GROUPS: Mapping[str, tuple[Color, tuple[MemoryPart, ...]]] = {
    "parameters": (1, ("parameters", "buffers", "half copies", "draft model")),
    "gradients": (2, ("gradients",)),
    "KV cache": (2, ("KV cache",)),
    "optimizer state": (3, ("optimizer state",)),
    "activations": (4, ("activations",)),
    "temporaries and workspaces": (5, ("temporaries", "workspaces")),
    "allocator": (6, ("allocator",)),
    "process, CUDA context": (7, ("process",)),
}
"""The parts that a bar distinguishes; the table has every part."""


def memory_content(answer: MemoryAnswer, *, top: int = 10) -> Iterator[Block]:
    """Yield the `top` devices around the border between fitting and not fitting, then the closest one in detail."""
    # The largest device that may not fit the step, or the smallest device if all fit.
    device = next((device for device in reversed(answer.devices) if device.verdict != "fits"), answer.devices[0])
    yield Paragraph(title=_headline(answer))
    yield table_of(
        _around(device, answer.devices, top=top),
        _device_columns(answer),
        notes=more_note(len(answer.devices), top=top),
    )
    yield table_of(
        device.terms, _TERM_COLUMNS, title=f"On {device.name} in {device.precision}, at the peak ({device.phase})"
    )
    yield Listing(
        title=f"Ways to need less than {units.format_bytes(device.peak_bytes)}",
        items=tuple(_remedies(device, answer.generation)),
    )
    yield Listing(title="Notes", items=answer.notes)


def need_text(answer: MemoryAnswer) -> str:
    """Return whether the step fits the first device, and how much of its memory it needs, as a clause."""
    device = answer.devices[0]
    fits = "may fit" if device.verdict == "tight" else device.verdict
    needs = f"{_step_text(answer)} {fits} {device.name} in {device.precision}: it needs {_peak(device)}"
    where = _on_each(device.plan)
    if device.verdict == "does not fit":
        excess = units.format_bytes(device.peak_bytes - device.usable_bytes)
        return f"{needs}{where}, {excess} more than the {units.format_bytes(device.usable_bytes)} available"
    return f"{needs} of {units.format_bytes(device.memory_bytes)}{where}{_usable(device, answer.generation)}"


def _usable(device: DeviceMemory, generation: Generation | None) -> str:
    """Return the part of a device's memory that an engine takes, as a clause; nothing if it is all of it."""
    if generation is None or generation.engine is None or device.usable_bytes == device.memory_bytes:
        return ""
    return f", of which {generation.engine.name} uses {units.format_bytes(device.usable_bytes)}"


def _step_text(answer: MemoryAnswer) -> str:
    optimizer = f" with {answer.optimizer}" if answer.optimizer else ""
    what = STEP_NAMES[answer.mode] if answer.generation is None else "LLM serving"
    return f"{answer.workload}: {what}{optimizer} {at_batch_text(answer.batch, answer.generation)}"


def _headline(answer: MemoryAnswer) -> str:
    if len(answer.devices) == 1:
        return f"{need_text(answer)}."
    counts = Counter(device.verdict for device in answer.devices)
    listed = ", ".join(f"{counts[verdict]:,} {verdict}" for verdict in get_args(Verdict) if counts[verdict])
    return f"{_step_text(answer)}, verdicts for {len(answer.devices):,} devices: {listed}."


def _on_each(plan: Plan | None) -> str:
    return "" if plan is None or plan.gpu_count == 1 else f" on each of {plan.gpu_count} GPUs ({plan_label(plan)})"


def _peak(device: DeviceMemory) -> str:
    return units.format_interval_bytes(device.peak_bytes, device.peak_low_bytes, device.peak_high_bytes)


def _device_columns(answer: MemoryAnswer) -> tuple[ColumnOf[DeviceMemory], ...]:
    plan: ColumnOf[DeviceMemory] = column("plan", lambda device: plan_label(device.plan), drop_order=4)
    usable: ColumnOf[DeviceMemory] = numbers(
        "usable", lambda device: device.usable_bytes, units.format_bytes, drop_order=3
    )
    return (
        column("device", lambda device: device.name, shortens_to=24),
        *([plan] if any(device.plan for device in answer.devices) else []),
        numbers("memory", lambda device: device.memory_bytes, units.format_bytes, drop_order=2),
        *([usable] if any(_usable(device, answer.generation) for device in answer.devices) else []),
        column("precision", lambda device: device.precision, drop_order=1),
        column("peak [range]", _peak, lambda device: device.peak_bytes),
        column("verdict", lambda device: device.verdict),
        column(_largest_name(answer.generation), _largest, lambda device: device.largest_batch),
    )


def _largest_name(generation: Generation | None) -> str:
    return "largest batch" if generation is None else "most in flight"


def _largest(device: DeviceMemory) -> str:
    if device.largest_batch == device.largest_batch_at_most:
        return f"{device.largest_batch:,}"
    return f"{device.largest_batch:,}-{device.largest_batch_at_most:,}"


def _around(device: DeviceMemory, devices: Sequence[DeviceMemory], *, top: int) -> Sequence[DeviceMemory]:
    """Return `top` devices, centred on the given one."""
    start = max(0, min(devices.index(device) - top // 2, len(devices) - top))
    return devices[start : start + top]


def _term_bytes(term: MemoryTerm) -> str:
    if term.low_bytes == term.high_bytes:
        return units.format_bytes(term.mid_bytes)
    return _term_range(term)


def _term_range(term: MemoryTerm) -> str:
    return f"{units.format_bytes(term.low_bytes)} - {units.format_bytes(term.high_bytes)}"


_TERM_COLUMNS: Sequence[ColumnOf[MemoryTerm]] = (
    column("part", lambda term: term.part),
    column("bytes", _term_bytes, lambda term: term.mid_bytes),
    column("source", lambda term: term.source),
)


def _remedies(device: DeviceMemory, generation: Generation | None) -> Iterator[str]:
    for remedy in device.remedies:
        yield f"{remedy.name}: {_remedy(remedy, generation)}"
    if not device.remedies:
        fewer = "a smaller batch" if generation is None else "fewer requests in flight"
        yield f"no known change: choose {fewer}, a smaller model or a larger device."


def _remedy(remedy: Remedy, generation: Generation | None) -> str:
    again = f" with {units.format_ratio(remedy.extra_flops_ratio)} more FLOP" if remedy.extra_flops_ratio else ""
    largest = f"{_largest_name(generation)} {remedy.largest_batch:,}"
    if not remedy.largest_batch:
        largest = f"no {'batch' if generation is None else 'request'} is sure to fit"
    return (
        f"{remedy.change} needs {units.format_bytes(remedy.peak_bytes)}, "
        f"{units.format_bytes(remedy.saved_bytes)} less{again}: {remedy.verdict}; {largest}."
    )


def memory_section(details: Sequence[DeviceDetail], *, generation: Generation | None = None) -> Section:
    """Return the section on the peak memory of the priced step, compared with the device's memory."""
    found = [(detail.role, detail.memory) for detail in details if detail.memory is not None]
    verb = "is" if generation is None else "are"
    rows = [(f"{role}: {memory.device.name}", term) for role, memory in found for term in memory.terms]
    bars = Bars(
        title="Peak memory of a step",
        notes=tuple(
            f"{role}: {memory.device.name}, {batch_text(memory.batch, generation)} in {memory.precision}; up to "
            f"{batch_text(memory.largest_batch, generation)} {verb} sure to fit."
            for role, memory in found
        ),
        x=Axis(label="bytes", unit="bytes", is_log=False),
        bars=tuple(_bar(role, memory) for role, memory in found),
        table=table_of(rows, _ROW_COLUMNS, title="Memory by part"),
    )
    lead = "Peak memory of the priced step. The mark is the memory of the device."
    return Section(id="memory", title="Memory", lead=(lead,), plots=(bars,))


def _bar(role: str, memory: DeviceMemory) -> Bar:
    mid = {term.part: term.mid_bytes for term in memory.terms}
    sizes = {name: sum(mid.get(part, 0.0) for part in parts) for name, (_, parts) in _GROUPS.items()}
    return Bar(
        name=role,
        note=f"{units.format_bytes(memory.peak_bytes)} of {units.format_bytes(memory.usable_bytes)}: {memory.verdict}",
        parts=tuple(
            Part(
                name=name,
                value=size_bytes,
                color=_GROUPS[name][0],
                text=f"{role}, {memory.device.name}\n{name}: {units.format_bytes(size_bytes)}",
            )
            for name, size_bytes in sizes.items()
            if size_bytes > 0
        ),
        limit=memory.usable_bytes,
        limit_text=f"{memory.device.name} has {units.format_bytes(memory.usable_bytes)}",
    )


_ROW_COLUMNS: Sequence[ColumnOf[tuple[str, MemoryTerm]]] = (
    column("device", lambda row: row[0], is_choice=True),
    column("part", lambda row: row[1].part),
    numbers("bytes", lambda row: row[1].mid_bytes, units.format_bytes),
    column("least to most", lambda row: _term_range(row[1]), lambda row: row[1].high_bytes),
    column("source", lambda row: row[1].source),
)
"""The columns of one part of the memory of one device, named with its role."""
