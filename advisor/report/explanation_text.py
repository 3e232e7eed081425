"""Renders where the time of a step goes: on one device in full, or on several side by side."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase

from advisor import units
from advisor.records.explained_step import ChangeKind, ExplainedGroup, ExplainedStep, Explanation
from advisor.records.generation import Generation
from advisor.records.price import ExchangeRate
from advisor.records.sample_words import at_batch_text, samples_text
from advisor.report.interval_text import interval_text
from advisor.report.text_page import Heading, Page
from advisor.report.view import View

_STEPS = {"inference": "an inference step", "training": "a training step"}
_GROUPS: Mapping[str, Callable[[ExplainedStep], Sequence[ExplainedGroup]]] = {
    "family": lambda step: step.families,
    "module": lambda step: step.modules,
}
_CHANGES: Mapping[ChangeKind, str] = {
    "precision": "precision {}",
    "batch": "batch {}",
    "layout": "layout {}",
    "compile": "torch.compile",
    "attention": "{} attention",
    "weights": "weights in {}",
    "instance": "{}",
}
_NOTHING_SAVES = (
    "none: no other precision, batch, layout, attention or instance saves 1 %, and neither does torch.compile."
)
_NOTHING_SAVES_OF_SERVICE = "none: neither narrower weights nor another instance saves 1 %."
_LEAST_PHASE_RATIO = 0.005
"""Phases with a smaller share of the time would show as 0 %."""
_LEGEND = (
    "FLOP/B: arithmetic intensity / ridge point; at the ridge point, compute at the peak of the unit that does most of "
    "the FLOP takes as long as memory traffic at full bandwidth (both from the datasheet).",
    "roofline: achieved share of the plain roofline; above 100 % if caches or Winograd convolutions save work that it "
    "counts.",
)


def render_explanation(explanation: Explanation, *, view: View) -> str:
    """Return the step on each device in sentences, then its `view.top` longest families and modules."""
    page = Page(width=view.width, color=view.color)
    if len(explanation.steps) == 1:
        _one(page, explanation, view=view)
    else:
        _side_by_side(page, explanation, view=view)
    page.titled_list("Notes:", explanation.notes)
    page.titled_list("Warnings:", explanation.warnings, style="yellow")
    return page.text()


def _one(page: Page, explanation: Explanation, *, view: View) -> None:
    (step,) = explanation.steps
    page.line(f"{explanation.workload}: {_what(explanation)} on {_headline(step, explanation)}", style="bold")
    page.titled_list("Why:", reasons(step))
    _savings(page, step, explanation)
    for name, groups_of in _GROUPS.items():
        columns, groups = _COLUMNS[name], groups_of(step)
        page.blank()
        page.table(
            [Heading(text=name), *(_heading(text) for text in columns)],
            [
                (group.name, *(_CELLS[column](group) for column in columns))
                for group in (step.total, *groups[: view.top])
            ],
        )
        rest = groups[view.top :]
        if rest:
            share = units.format_ratio(sum(group.time_ratio for group in rest))
            page.line(f"{len(rest):,} more with {share} of the time (--top {len(groups)} shows all).", style="dim")
    page.blank()
    for line in _LEGEND:
        page.line(line, style="dim")


def _heading(text: str) -> Heading:
    return Heading(text=text, is_number=text != "bound")


def _what(explanation: Explanation) -> str:
    return _STEPS[explanation.mode] if explanation.generation is None else "an answer to each request in flight"


def _headline(step: ExplainedStep, explanation: Explanation) -> str:
    time, at = interval_text(step.step_s), at_batch_text(step.batch, explanation.generation)
    return f"{_device(step)} takes {time} {at} in {step.precision}, bound by {step.bound}."


def _device(step: ExplainedStep) -> str:
    """Return the offer with its device: "aws g6.xlarge (L4)", "aws c7a.xlarge (AMD EPYC 9R14, 4 cores)"."""
    device = step.device
    if device.kind == "cpu":
        cores = "1 core" if step.core_count == 1 else f"{units.format_significant(step.core_count)} cores"
        return f"{step.name} ({device.name}, {cores})"
    return f"{step.name} ({f'1 of {device.count} ' if device.count > 1 else ''}{device.name})"


def reasons(step: ExplainedStep) -> Iterable[str]:
    """Yield what limits the step, its achieved share of the roofline, its phases and its sequential chains."""
    total = step.total
    yield _pace(step)
    if total.roofline_ratio is not None:
        yield (
            "the plain roofline, with every operator at the datasheet's peak or bandwidth, is "
            f"{units.format_duration(total.roofline_s)}; the step runs at "
            f"{units.format_ratio(total.roofline_ratio)} of it."
        )
    if len(step.phases) > 1:
        shown = [group for group in step.phases if group.time_ratio >= _LEAST_PHASE_RATIO]
        phases = ", ".join(f"{group.name} {units.format_ratio(group.time_ratio)}" for group in shown)
        yield f"by phase: {phases}."
    for chain in step.sequential:
        direction = "backward" if chain.op.endswith("backward") else "forward"
        yield (
            f"{chain.module or 'the model'}, {direction}: the time steps of its recurrent layers are "
            f"{chain.kernel_count:,} kernels in sequence, which a GPU cannot run in parallel."
        )


def _savings(page: Page, step: ExplainedStep, explanation: Explanation, *, where: str = "") -> None:
    """List the changes that save money; nothing for a device that cannot be rented."""
    if step.job_usd is None:
        return
    rate = explanation.exchange_rate
    cost = units.format_money(step.job_usd.mid, rate=rate)
    done = samples_text(explanation.samples, explanation.generation)
    title = f"Largest savings{where}, of {cost} for {done}:"
    page.titled_list(title, saving_sentences(step, rate=rate, generation=explanation.generation))


def saving_sentences(
    step: ExplainedStep, *, rate: ExchangeRate | None, generation: Generation | None = None
) -> tuple[str, ...]:
    """Return one sentence per change, or one that says that nothing saves money."""

    def money(usd: float) -> str:
        return units.format_money(usd, rate=rate)

    changes = tuple(
        f"{_CHANGES[change.kind].format(change.to)}: {units.format_ratio(change.saved_ratio)} "
        f"({money(change.saved_usd)}), to {money(change.job_usd.mid)}."
        for change in step.changes
    )
    return changes or (_NOTHING_SAVES if generation is None else _NOTHING_SAVES_OF_SERVICE,)


def _pace(step: ExplainedStep) -> str:
    kernels, dispatch, transfer = (
        units.format_duration(seconds) for seconds in (step.total.kernels_s, step.total.dispatch_s, step.transfer_s)
    )
    if step.device.kind == "cpu":
        if not step.loading_s:
            return f"the kernels take {kernels} and their dispatch {dispatch}, on the same cores."
        loading = units.format_duration(step.loading_s)
        return f"the kernels take {kernels}, their dispatch {dispatch} and data loading {loading}, on the same cores."
    if step.bound == "loader":
        return (
            f"loading a batch takes the host {units.format_duration(step.loading_s)}, and the GPU waits: its "
            f"kernels take {kernels}, their dispatch by the host {dispatch} and the copies of the inputs {transfer}."
        )
    if step.bound == "dispatch":
        return (
            f"the host takes {dispatch} to dispatch the operators, and the GPU waits: its kernels take {kernels} and "
            f"the copies of the inputs {transfer}."
        )
    if step.bound == "transfer":
        return (
            f"the copies of the inputs take {transfer}, and the GPU waits: its kernels take {kernels} and their "
            f"dispatch by the host {dispatch}."
        )
    return (
        f"the kernels take {kernels}, which hides their dispatch by the host ({dispatch}) and the copies of the inputs "
        f"({transfer})."
    )


def _intensity(group: ExplainedGroup) -> str:
    """Return intensity and ridge point, as in "838 / 78", or "-" for a group without FLOP."""
    if group.flops_per_byte is None or group.ridge_flops_per_byte is None:
        return "-"
    return f"{_two_digits(group.flops_per_byte)} / {_two_digits(group.ridge_flops_per_byte)}"


def _two_digits(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else units.format_significant(number, digits=2)


_CELLS: Mapping[str, Callable[[ExplainedGroup], str]] = {
    "time": lambda group: units.format_duration(group.time_s),
    "share": lambda group: units.format_ratio(group.time_ratio),
    "bound": lambda group: group.bound,
    "FLOP": lambda group: units.format_count(group.flops),
    "bytes": lambda group: units.format_bytes(group.moved_bytes),
    "FLOP/B": _intensity,
    "roofline": lambda group: "-" if group.roofline_ratio is None else units.format_ratio(group.roofline_ratio),
}
_COLUMNS = {
    "family": tuple(_CELLS),
    "module": ("time", "share", "bound", "roofline"),
}  # few columns, because module paths are long


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """One group on every device: its time and its bound ("-" on a device that has no such group)."""

    name: str
    times_s: tuple[float, ...]
    bounds: tuple[str, ...]


def _side_by_side(page: Page, explanation: Explanation, *, view: View) -> None:
    """Compare the devices, each named by a letter; if their batch sizes differ, the tables show time per sample."""
    steps = explanation.steps
    by_letter = dict(zip(ascii_uppercase, steps, strict=False))
    page.line(f"{explanation.workload}: {_what(explanation)} on", style="bold")
    for letter, step in by_letter.items():
        page.line(f"{letter}  {_headline(step, explanation)}", indent=2)
    for letter, step in by_letter.items():
        page.titled_list(f"Why {letter}:", reasons(step))
    for letter, step in by_letter.items():
        _savings(page, step, explanation, where=f" on {letter}")
    per_sample = len({step.batch for step in steps}) > 1
    divisors = [step.batch if per_sample else 1 for step in steps]
    totals = _lines([[step.total] for step in steps], divisors=divisors)
    page.blank()
    sample = "sample" if explanation.generation is None else "request"
    page.line(f"Time per {sample if per_sample else 'step'}, largest difference first.", style="bold")
    for name, groups_of in _GROUPS.items():
        lines = _lines([groups_of(step) for step in steps], divisors=divisors)
        page.blank()
        page.table(
            [Heading(text=name), *map(_heading, _comparison_columns(len(steps)))],
            [_comparison_cells(line) for line in (*totals, *lines[: view.top])],
        )
        if len(lines) > view.top:
            page.line(f"{len(lines) - view.top:,} more (--top {len(lines)} shows all).", style="dim")


def _lines(groups: Sequence[Sequence[ExplainedGroup]], *, divisors: Sequence[int]) -> list[_Line]:
    """Return the groups by name, largest difference first, with each device's times divided by its divisor."""
    by_name = [{group.name: group for group in members} for members in groups]
    lines = []
    for name in dict.fromkeys(group.name for members in groups for group in members):
        found = [members.get(name) for members in by_name]
        pairs = zip(found, divisors, strict=True)
        lines.append(
            _Line(
                name=name,
                times_s=tuple(group.time_s / divisor if group else 0.0 for group, divisor in pairs),
                bounds=tuple(group.bound if group else "-" for group in found),
            )
        )
    return sorted(lines, key=lambda line: min(line.times_s) - max(line.times_s))


def _comparison_columns(count: int) -> Sequence[str]:
    """Return the column headings; for two devices, with the bounds and the difference."""
    return ("A", "bound", "B", "bound", "A - B") if count == 2 else ascii_uppercase[:count]


def _comparison_cells(line: _Line) -> tuple[str, ...]:
    times = [units.format_duration(time_s) for time_s in line.times_s]
    if len(times) != 2:
        return (line.name, *times)
    saved_s = line.times_s[0] - line.times_s[1]
    saved = f"{'-' if saved_s < 0 else ''}{units.format_duration(abs(saved_s))}"
    return (line.name, times[0], line.bounds[0], times[1], line.bounds[1], saved)
