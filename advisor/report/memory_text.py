"""Renders whether a step fits in memory: the verdict per device, the memory by part, and what would save memory."""

from collections.abc import Iterator, Sequence

from advisor import units
from advisor.records.device_memory import DeviceMemory, MemoryAnswer, MemoryTerm, Remedy, Verdict
from advisor.records.generation import Generation
from advisor.records.sample_words import at_batch_text
from advisor.report.text_page import Heading, Page
from advisor.report.view import View

_STEPS = {"inference": "an inference step", "training": "a training step"}
_COLUMNS = ("device", "memory", "precision", "peak [range]", "verdict")
_WORDS = ("device", "precision", "verdict")
_VERDICTS: tuple[Verdict, ...] = ("fits", "tight", "does not fit")


def render_memory(answer: MemoryAnswer, *, view: View) -> str:
    """Return the devices around the border between fitting and not fitting, then the closest one in detail."""
    page = Page(width=view.width, color=view.color)
    page.line(_headline(answer), style="bold")
    page.blank()
    shown = _around_border(answer.devices, top=view.top)
    page.table(
        [Heading(text=text, is_number=text not in _WORDS) for text in (*_COLUMNS, _largest_name(answer.generation))],
        [_device_cells(device) for device in shown],
        first_row_style="",
    )
    if len(shown) < len(answer.devices):
        page.line(f"{len(answer.devices) - len(shown):,} more (--top {len(answer.devices)} shows all).", style="dim")
    _in_full(page, _nearest_border(answer.devices), answer)
    page.titled_list("Notes:", answer.notes)
    return page.text()


def _headline(answer: MemoryAnswer) -> str:
    counts = {verdict: sum(device.verdict == verdict for device in answer.devices) for verdict in _VERDICTS}
    optimizer = f" with {answer.optimizer}" if answer.optimizer else ""
    what = _STEPS[answer.mode] if answer.generation is None else "LLM serving"
    step = f"{answer.workload}: {what}{optimizer} {at_batch_text(answer.batch, answer.generation)}"
    if len(answer.devices) == 1:
        (device,) = answer.devices
        return f"{step} {_sentence(device)}."
    listed = ", ".join(f"{count:,} {verdict}" for verdict, count in counts.items() if count)
    return f"{step}, verdicts for {len(answer.devices):,} devices: {listed}."


def _sentence(device: DeviceMemory) -> str:
    needed = f"needs {_spread(device)} of {units.format_bytes(device.memory_bytes)}"
    fits = {"fits": "fits", "tight": "may fit", "does not fit": "does not fit"}[device.verdict]
    return f"{fits} {device.name} in {device.precision}: it {needed}"


def _spread(device: DeviceMemory) -> str:
    return units.format_interval_bytes(device.peak_bytes, device.peak_low_bytes, device.peak_high_bytes)


def _device_cells(device: DeviceMemory) -> tuple[str, ...]:
    return (
        device.name,
        units.format_bytes(device.memory_bytes),
        device.precision,
        _spread(device),
        device.verdict,
        _largest(device),
    )


def _largest_name(generation: Generation | None) -> str:
    return "largest batch" if generation is None else "most in flight"


def _largest(device: DeviceMemory) -> str:
    if device.largest_batch == device.largest_batch_at_most:
        return f"{device.largest_batch:,}"
    return f"{device.largest_batch:,}-{device.largest_batch_at_most:,}"


def _around_border(devices: Sequence[DeviceMemory], *, top: int) -> Sequence[DeviceMemory]:
    """Return `top` devices, centred on the one closest to its limit."""
    border = devices.index(_nearest_border(devices))
    start = max(0, min(border - top // 2, len(devices) - top))
    return devices[start : start + top]


def _nearest_border(devices: Sequence[DeviceMemory]) -> DeviceMemory:
    """Return the largest device that may not fit the step, or the smallest device if all fit."""
    return next((device for device in reversed(devices) if device.verdict != "fits"), devices[0])


def _in_full(page: Page, device: DeviceMemory, answer: MemoryAnswer) -> None:
    page.blank()
    page.line(f"On {device.name} in {device.precision}, at the peak ({device.phase}):", style="bold")
    page.table(
        [Heading(text="part"), Heading(text="bytes", is_number=True), Heading(text="source")],
        [(term.part, _term_bytes(term), term.source) for term in device.terms],
        first_row_style="",
    )
    page.titled_list(
        f"Ways to need less than {units.format_bytes(device.peak_bytes)}:", _remedies(device, answer.generation)
    )


def _term_bytes(term: MemoryTerm) -> str:
    if term.low_bytes == term.high_bytes:
        return units.format_bytes(term.mid_bytes)
    return f"{units.format_bytes(term.low_bytes)} - {units.format_bytes(term.high_bytes)}"


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
