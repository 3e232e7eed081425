"""Makes the sentence on whether a step fits one device."""

from collections.abc import Iterator

from advisor import units
from advisor.records.device_memory import DeviceMemory, FitAnswer, MemoryAnswer
from advisor.records.sample_words import batch_text
from advisor.report.content import Block, Paragraph
from advisor.report.memory import need_text


def fit_content(answer: FitAnswer) -> Iterator[Block]:
    """Yield the verdict, the memory that is left or missing, and the largest batch or what would make the step fit."""
    if answer.memory is None:
        yield Paragraph(title=f"It is not known whether the step fits {answer.on}: {answer.reason}")
    else:
        yield Paragraph(title=f"{need_text(answer.memory)}{_rest(answer, answer.memory, answer.memory.devices[0])}.")


def _rest(answer: FitAnswer, memory: MemoryAnswer, device: DeviceMemory) -> str:
    largest = batch_text(device.largest_batch, memory.generation)
    if answer.fits:
        margin = units.format_bytes(device.usable_bytes - device.peak_bytes)
        return f", {margin} to spare; up to {largest} {'is' if memory.generation is None else 'are'} sure to fit"
    ways = [remedy.change for remedy in answer.remedies]
    ways += [largest] if device.largest_batch else []
    if larger := answer.larger:
        ways.append(f"{larger.name} ({units.format_bytes(larger.memory_bytes)})")
    *others, last = ways or ["no known change"]
    return f"; it surely fits with {'; '.join([*others, f'or {last}' if others else last])}"
