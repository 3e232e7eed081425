"""Where the time of a step goes as text for a terminal: on one device in full, on several side by side."""

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

_STEPS = {"inference": "a step of inference", "training": "a training step"}
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
_NOTHING_SAVES = "nothing: no other precision, batch, layout, attention or instance, nor torch.compile, saves 1 %."
_NOTHING_SAVES_OF_SERVICE = "nothing: neither narrower weights nor another instance save 1 %."
_LEAST_PHASE_RATIO = 0.005
"""Less is 0 %."""
_LEGEND = (
    "FLOP/B: arithmetic intensity / ridge point, at which the peak of the unit that does most of the FLOP and the "
    "bandwidth, both from the datasheet, take the same time.",
    "roofline: the share of the plain roofline that is reached; above 100 % where caches or Winograd's convolutions "
    "save what it counts.",
)


def render_explanation(explanation: Explanation, *, view: View) -> str:
    """The step on each device in sentences, then its `view.top` longest families and modules."""
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
    """The name with what computes: "aws g6.xlarge (L4)", "aws c7a.xlarge (AMD EPYC 9R14, 4 cores)"."""
    device = step.device
    if device.kind == "cpu":
        cores = "1 core" if step.core_count == 1 else f"{units.format_significant(step.core_count)} cores"
        return f"{step.name} ({device.name}, {cores})"
    return f"{step.name} ({f'1 of {device.count} ' if device.count > 1 else ''}{device.name})"


def reasons(step: ExplainedStep) -> Iterable[str]:
    """What sets the pace, how far that is from the roofline, and what no table shows."""
    total = step.total
    yield _pace(step)
    if total.roofline_ratio is not None:
        yield (
            "the plain roofline, every operator at the datasheet's peak or bandwidth, is "
            f"{units.format_duration(total.roofline_s)}: {units.format_ratio(total.roofline_ratio)} of it is reached."
        )
    if len(step.phases) > 1:
        shown = [group for group in step.phases if group.time_ratio >= _LEAST_PHASE_RATIO]
        phases = ", ".join(f"{group.name} {units.format_ratio(group.time_ratio)}" for group in shown)
        yield f"by phase: {phases}."
    for chain in step.sequential:
        direction = "backward" if chain.op.endswith("backward") else "forward"
        yield (
            f"{chain.module or 'the model'}, {direction}: the time steps of its recurrent layers are "
            f"{chain.kernel_count:,} kernels one after the other, which a GPU cannot run side by side."
        )


def _savings(page: Page, step: ExplainedStep, explanation: Explanation, *, where: str = "") -> None:
    """Each change with what the whole job then costs; nothing of a device that nobody rents out."""
    if step.job_usd is None:
        return
    rate = explanation.exchange_rate
    cost = units.format_money(step.job_usd.mid, rate=rate)
    done = samples_text(explanation.samples, explanation.generation)
    title = f"What would save most{where} of {cost} for {done}:"
    page.titled_list(title, saving_sentences(step, rate=rate, generation=explanation.generation))


def saving_sentences(
    step: ExplainedStep, *, rate: ExchangeRate | None, generation: Generation | None = None
) -> tuple[str, ...]:
    """One for each change, or one that says that there is none."""

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
            return f"its kernels take {kernels}, and their dispatch {dispatch} on the same cores."
        loading = units.format_duration(step.loading_s)
        return f"its kernels take {kernels}, their dispatch {dispatch} and loading data {loading} on the same cores."
    if step.bound == "loader":
        return (
            f"the loading of a batch takes its host {units.format_duration(step.loading_s)}, and the GPU waits: its "
            f"kernels take {kernels}, their dispatch by the host {dispatch}, the copies of the inputs {transfer}."
        )
    if step.bound == "dispatch":
        return (
            f"the host takes {dispatch} to dispatch the operators, and the GPU waits: its kernels take {kernels}, the "
            f"copies of the inputs {transfer}."
        )
    if step.bound == "transfer":
        return (
            f"the copies of the inputs take {transfer}, and the GPU waits: its kernels take {kernels}, their dispatch "
            f"by the host {dispatch}."
        )
    return (
        f"its kernels take {kernels}; behind them hide their dispatch by the host, {dispatch}, and the copies of the "
        f"inputs, {transfer}."
    )


def _intensity(group: ExplainedGroup) -> str:
    """ "838 / 78"; without FLOP there is no ridge."""
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
_COLUMNS = {"family": tuple(_CELLS), "module": ("time", "share", "bound", "roofline")}  # paths of modules are long


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """One group on every device: its time, and what bounds it ("-" on a device that has no such group)."""

    name: str
    times_s: tuple[float, ...]
    bounds: tuple[str, ...]


def _side_by_side(page: Page, explanation: Explanation, *, view: View) -> None:
    """Each device by a letter; where their batches differ, the tables are of one sample."""
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
    page.line(f"Time of one {sample if per_sample else 'step'}; what differs most comes first.", style="bold")
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
    """The groups of every device by name, the largest difference first; each device's times over its divisor."""
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
    """Of two devices also what bounds each group, and what the second one saves."""
    return ("A", "bound", "B", "bound", "A - B") if count == 2 else ascii_uppercase[:count]


def _comparison_cells(line: _Line) -> tuple[str, ...]:
    times = [units.format_duration(time_s) for time_s in line.times_s]
    if len(times) != 2:
        return (line.name, *times)
    saved_s = line.times_s[0] - line.times_s[1]
    saved = f"{'-' if saved_s < 0 else ''}{units.format_duration(abs(saved_s))}"
    return (line.name, times[0], line.bounds[0], times[1], line.bounds[1], saved)
