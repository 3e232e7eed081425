"""Makes the answer on where the time of a step goes, and the report's sections on it."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from string import ascii_uppercase
from typing import TypeAlias

from advisor import units
from advisor.records.answer import BOUNDS, Interval
from advisor.records.energy import Watts
from advisor.records.explained_step import ChangeKind, ExplainedGroup, ExplainedStep, Explanation, WhyUnfused
from advisor.records.generation import Generation
from advisor.records.price import ExchangeRate
from advisor.records.report_contents import DeviceDetail
from advisor.records.sample_words import at_batch_text, samples_text
from advisor.records.scale import Plan
from advisor.report.amounts import interval_text, money_text
from advisor.report.content import (
    Axis,
    Bar,
    Bars,
    Block,
    Chart,
    Listing,
    Paragraph,
    Part,
    Point,
    Section,
    Series,
    Table,
    Warnings,
)
from advisor.report.emissions import co2_interval
from advisor.report.marks import BOUND_MARKS, BOUND_NAMES, STEP_NAMES, detail_name
from advisor.report.tables import ColumnOf, column, more_note, numbers, table_of

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
    "none: on this instance no other precision, batch, layout or attention saves 1 %, nor does torch.compile; nor does "
    "another instance with the same settings."
)
_NOTHING_SAVES_OF_SERVICE = "none: neither weights of fewer bits nor another instance saves 1 %."
_PACES: Mapping[str, str] = {
    "engine": "the passes of the engine take {kernels}, with its launches and its scheduler.",
    "plan": "the passes of the engine take {kernels} on each GPU, with its launches and its scheduler, and the GPUs "
    "take {exchange} to exchange results and to wait for the slowest.",
    "cpu": "the kernels take {kernels} and their dispatch {dispatch}, on the same cores.",
    "cpu, loading": "the kernels take {kernels}, their dispatch {dispatch} and data loading {loading}, on the same "
    "cores.",
    "gpu": "the kernels take {kernels}, which hides their dispatch by the host ({dispatch}) and the copies of the "
    "inputs ({transfer}).",
    "paging": "the kernels take {kernels}, which hides their dispatch by the host ({dispatch}) and the copies of the "
    "inputs ({transfer}); the copies of the optimizer's state from and to the host take {paging} more.",
    "loader": "loading a batch takes the host {loading}, and the GPU waits: its kernels take {kernels}, their dispatch "
    "by the host {dispatch} and the copies of the inputs {transfer}.",
    "dispatch": "the host takes {dispatch} to dispatch the operators, and the GPU waits: its kernels take {kernels} "
    "and the copies of the inputs {transfer}.",
    "transfer": "the copies of the inputs take {transfer}, and the GPU waits: its kernels take {kernels} and their "
    "dispatch by the host {dispatch}.",
}
"""Sentences on what limits the time of a step: of a served model, by kind of device, or by what a GPU waits for."""
_WHY_UNFUSED: Mapping[WhyUnfused, str] = {
    "asked": "`--attention eager` asks for it",
    "dims": "fused kernels take (samples, heads, length, width), and its operands do not have 4 dimensions",
    "rows": "fused kernels take rows whose elements are adjacent in memory; call `.contiguous()` on the permuted "
    "operand or mask",
    "shared": "samples or heads share keys or values by broadcasting, which fused kernels do not do; `.expand()` them "
    "to the shape of the queries, or set `enable_gqa`",
    "own": "the model computes it from products and a softmax, as `nn.MultiheadAttention` does with "
    "`need_weights=True`; `scaled_dot_product_attention` is one kernel",
    "dropout": "torch has no fused kernel with dropout for CPUs",
    "fast path": "torch's fast path for encoders has no fused attention on CPUs",
}
_LEAST_PHASE_RATIO = 0.005
"""Phases with a smaller share of the time would show as 0 %."""
_LEGEND = (
    "FLOP/B: arithmetic intensity / ridge point; at the ridge point, compute at the peak of the unit that does most of "
    "the FLOP takes as long as memory traffic at full bandwidth (both from the datasheet).",
    "roofline: achieved share of the plain roofline; above 100 % if caches or Winograd convolutions save work that it "
    "counts.",
)


_SHOWN_MODULES = 12
_NAMED_COUNT = 3
_SHOWN_RATIO = 0.01
"""Families with a smaller share of the time are only in the table of the roofline."""
_LABELLED_RATIO = 0.05
"""Families with a smaller share of the time are named only under the pointer."""


def explanation_content(explanation: Explanation, *, top: int = 10) -> Iterator[Block]:
    """Yield the step on each device in sentences, then its `top` longest families and modules."""
    yield from (_one if len(explanation.steps) == 1 else _side_by_side)(explanation, top)
    yield Listing(title="Notes", items=explanation.notes)
    yield Warnings(items=explanation.warnings)


def _one(explanation: Explanation, top: int) -> Iterator[Block]:
    (step,) = explanation.steps
    yield Paragraph(title=f"{explanation.workload}: {_what(explanation)} on {_headline(step, explanation)}")
    yield Listing(title="Why", items=tuple(reasons(step)))
    yield _savings_of(explanation, step)
    yield _groups_table(step.total, step.families, (column("family", _name), *_TIMES, *_COUNTS, *_ROOFLINE), top=top)
    yield _groups_table(step.total, step.modules, (column("module", _name), *_TIMES, *_ROOFLINE[1:]), top=top)
    yield Paragraph(sentences=_LEGEND, style="faint")


def _groups_table(
    total: ExplainedGroup, groups: Sequence[ExplainedGroup], columns: Sequence[ColumnOf[ExplainedGroup]], *, top: int
) -> Table:
    with_share = f" with {units.format_ratio(sum(group.time_ratio for group in groups[top:]))} of the time"
    notes = more_note(len(groups), top=top, what=with_share)
    return table_of((total, *groups[:top]), columns, notes=notes, highlighted=0)


def _what(explanation: Explanation) -> str:
    return STEP_NAMES[explanation.mode] if explanation.generation is None else "one request"


def _headline(step: ExplainedStep, explanation: Explanation) -> str:
    time, at = interval_text(step.step_s), at_batch_text(step.batch, explanation.generation)
    to_end = "" if explanation.generation is None else " end to end"
    return f"{_device(step)} takes {time}{to_end} {at} in {step.precision}: {BOUND_NAMES[step.bound]}."


def _device(step: ExplainedStep) -> str:
    """Return the offer with its device: "aws g6.xlarge (L4)", "aws c7a.xlarge (AMD EPYC 9R14, 4 cores)"."""
    device = step.device
    if device.kind == "cpu":
        cores = "1 core" if step.core_count == 1 else f"{units.format_significant(step.core_count)} cores"
        return f"{step.name} ({device.name}, {cores})"
    return f"{step.name} ({f'1 of {device.count} ' if device.count > 1 else ''}{device.name})"


def reasons(step: ExplainedStep) -> Iterable[str]:
    """Yield what limits the step, its share of the roofline, its phases, sequential chains and unfused attention."""
    total = step.total
    yield _pace(step)
    if step.timed_ratio != 1.0:
        yield (
            "the time rests on steps timed on this machine; its parts are as predicted, all multiplied by "
            f"{units.format_significant(step.timed_ratio)}."
        )
    if step.plan is not None:
        yield f"the plan: {_shares(step.plan, step.batch)}. FLOP, bytes and times are of the part of one GPU."
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
    for unfused in step.unfused:
        modules = ", ".join(module or "the model" for module in unfused.modules[:_NAMED_COUNT])
        more = f" and {len(unfused.modules) - _NAMED_COUNT} more" if len(unfused.modules) > _NAMED_COUNT else ""
        yield f"attention in {modules}{more} is not fused and writes its scores to memory: {_WHY_UNFUSED[unfused.why]}."
    if step.power is not None:
        yield f"the machine draws {_watts(step.power)}."
    if step.energy_kwh is not None:
        yield f"the job uses {_emissions(step.energy_kwh, step.co2_kg)}."


def _shares(plan: Plan, batch: int) -> str:
    """Return how GPUs share the requests: "2 copies of the model, each on 4 tensor-parallel GPUs, 32 requests each"."""
    copies, each = ("1 copy", "") if plan.data == 1 else (f"{plan.data} copies", " each")
    ways = f"{plan.tensor} tensor-parallel GPUs" if plan.tensor > 1 else "one GPU"
    stages = f" for each of {plan.pipeline} stages of layers" if plan.pipeline > 1 else ""
    machines = f" of {plan.machines} machines" if plan.machines > 1 else ""
    experts = f", whose experts {plan.expert} copies divide" if plan.expert > 1 else ""
    requests = f"{math.ceil(batch / plan.data):,} requests{each}"
    return f"{copies} of the model{',' if each else ''}{each} on {ways}{stages}{machines}, {requests}{experts}"


def _watts(power: Watts) -> str:
    """Return the power of a machine and its parts; those of GPUs only if it has one."""
    of_gpu = (
        ("idle GPUs", power.idle_gpu_w),
        ("compute", power.compute_w),
        ("memory traffic", power.memory_w),
        ("launches and overheads", power.overhead_w),
    )
    of_host = (("the idle rest of the server", power.idle_host_w), ("its busy cores", power.busy_host_w))
    parts = (*(of_gpu if power.idle_gpu_w else ()), *of_host)
    listed = ", ".join(f"{name} {units.format_significant(watts)} W" for name, watts in parts)
    return f"{units.format_significant(power.total_w)} W: {listed}"


def _emissions(energy_kwh: Interval, co2_kg: Interval | None) -> str:
    energy = f"{units.format_kwh(energy_kwh.mid)}, without PUE"
    if co2_kg is None:
        return f"{energy}; the CO2 of the local grid is not known"
    return f"{energy}, and emits {co2_interval(co2_kg)} of CO2"


def _savings(step: ExplainedStep, title: str, *, rate: ExchangeRate | None, generation: Generation | None) -> Listing:
    """Return the changes that save money, if any; nothing for a device that cannot be rented."""
    if step.job_usd is None:
        return Listing(title=title, items=())
    money = money_text(rate)
    changes = tuple(
        f"{_CHANGES[change.kind].format(change.to)} saves {units.format_ratio(change.saved_ratio)} "
        f"({money(change.saved_usd)}), to {money(change.job_usd.mid)}."
        for change in step.changes
    )
    nothing = _NOTHING_SAVES if generation is None else _NOTHING_SAVES_OF_SERVICE
    return Listing(title=title.format(money(step.job_usd.mid)), items=changes or (nothing,))


def _savings_of(explanation: Explanation, step: ExplainedStep, *, start: str = "Largest savings") -> Listing:
    done = samples_text(explanation.samples, explanation.generation)
    title = f"{start} on {{}} for {done}"
    return _savings(step, title, rate=explanation.exchange_rate, generation=explanation.generation)


def _pace(step: ExplainedStep) -> str:
    if not step.total.dispatch_s:
        pace = _PACES["plan" if step.exchange_s else "engine"]
    elif step.device.kind == "cpu":
        pace = _PACES["cpu, loading" if step.loading_s else "cpu"]
    else:
        pace = _PACES["paging"] if step.paging_s else _PACES.get(step.bound, _PACES["gpu"])
    return pace.format(
        kernels=units.format_duration(step.total.kernels_s),
        dispatch=units.format_duration(step.total.dispatch_s),
        transfer=units.format_duration(step.transfer_s),
        paging=units.format_duration(step.paging_s),
        loading=units.format_duration(step.loading_s),
        exchange=units.format_duration(step.exchange_s),
    )


def _intensity(group: ExplainedGroup) -> str:
    """Return intensity and ridge point, as in "838 / 78", or "-" for a group without FLOP."""
    if group.flops_per_byte is None or group.ridge_flops_per_byte is None:
        return "-"
    return f"{_two_digits(group.flops_per_byte)} / {_two_digits(group.ridge_flops_per_byte)}"


def _two_digits(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else units.format_significant(number, digits=2)


def _name(group: ExplainedGroup) -> str:
    return group.name


_TIMES: tuple[ColumnOf[ExplainedGroup], ...] = (
    numbers("time", lambda group: group.time_s, units.format_duration),
    numbers("share", lambda group: group.time_ratio, units.format_ratio),
    column("bound", lambda group: group.bound),
)
_COUNTS: tuple[ColumnOf[ExplainedGroup], ...] = (
    numbers("FLOP", lambda group: group.flops, lambda flops: units.format_flops(flops).removesuffix("FLOP").rstrip()),
    numbers("bytes", lambda group: group.moved_bytes, units.format_bytes),
)
_ROOFLINE: tuple[ColumnOf[ExplainedGroup], ...] = (
    column("FLOP/B", _intensity, lambda group: group.flops_per_byte),
    numbers("roofline", lambda group: group.roofline_ratio, units.format_ratio),
)


_Line: TypeAlias = tuple[str, tuple[float, ...], tuple[str, ...]]
"""The name of a group, and its time and its bound on every device ("-" on a device that has no such group)."""


def _side_by_side(explanation: Explanation, top: int) -> Iterator[Block]:
    """Compare the devices, each named by a letter; if their batch sizes differ, the tables show time per sample."""
    steps = explanation.steps
    by_letter = dict(zip(ascii_uppercase, steps, strict=False))
    yield Listing(
        title=f"{explanation.workload}: {_what(explanation)} on",
        items=tuple(f"{letter}  {_headline(step, explanation)}" for letter, step in by_letter.items()),
    )
    for letter, step in by_letter.items():
        yield Listing(title=f"Why {letter}", items=tuple(reasons(step)))
    for letter, step in by_letter.items():
        yield _savings_of(explanation, step, start=f"{letter}: largest savings")
    per_sample = len({step.batch for step in steps}) > 1
    divisors = [step.batch if per_sample else 1 for step in steps]
    totals = _lines([[step.total] for step in steps], divisors=divisors)
    sample = "sample" if explanation.generation is None else "request"
    yield Paragraph(title=f"Time per {sample if per_sample else 'step'}, largest difference first.")
    for name, groups in (("family", [step.families for step in steps]), ("module", [step.modules for step in steps])):
        lines = _lines(groups, divisors=divisors)
        yield table_of(
            (*totals, *lines[:top]),
            _line_columns(name, len(steps)),
            notes=more_note(len(lines), top=top),
            highlighted=0,
        )


def _lines(groups: Sequence[Sequence[ExplainedGroup]], *, divisors: Sequence[int]) -> list[_Line]:
    """Return the groups by name, largest difference first, with each device's times divided by its divisor."""
    by_name = [{group.name: group for group in members} for members in groups]
    lines: list[_Line] = []
    for name in dict.fromkeys(group.name for members in groups for group in members):
        found = [members.get(name) for members in by_name]
        times_s = (group.time_s / divisor if group else 0.0 for group, divisor in zip(found, divisors, strict=True))
        lines.append((name, tuple(times_s), tuple(group.bound if group else "-" for group in found)))
    return sorted(lines, key=lambda line: min(line[1]) - max(line[1]))


def _line_columns(name: str, count: int) -> list[ColumnOf[_Line]]:
    """Return a column for each device; for two devices, also their bounds and the difference."""

    def time(at: int) -> ColumnOf[_Line]:
        return numbers(ascii_uppercase[at], lambda line: line[1][at], units.format_duration)

    def bound(at: int) -> ColumnOf[_Line]:
        return column("bound", lambda line: line[2][at])

    def signed(seconds: float) -> str:
        return f"{'-' if seconds < 0 else ''}{units.format_duration(abs(seconds))}"

    named: ColumnOf[_Line] = column(name, lambda line: line[0])
    if count != 2:
        return [named, *map(time, range(count))]
    saved: ColumnOf[_Line] = numbers("A - B", lambda line: line[1][0] - line[1][1], signed)
    return [named, time(0), bound(0), time(1), bound(1), saved]


def why_section(
    details: Sequence[DeviceDetail], *, rate: ExchangeRate | None, generation: Generation | None = None
) -> Section:
    """Return the section on what limits the step on each device, and what would save money."""
    lists = []
    for detail in details:
        step = detail.step
        time = f"{interval_text(step.step_s)} {at_batch_text(step.batch, generation)}"
        lists.append(Listing(title=f"{detail_name(detail)}: {time}", items=tuple(reasons(step))))
        title = f"Largest savings on {{}} with the {detail.role}"
        lists.append(_savings(step, title, rate=rate, generation=generation))
    return Section(id="why", title="Why", lists=tuple(lists))


def modules_section(details: Sequence[DeviceDetail], *, generation: Generation | None = None) -> Section:
    """Return the section on the time of a step by module."""
    lead = "Longest first. Repeated layers of equal shape share one line."
    plots = tuple(_modules(detail, generation) for detail in details)
    return Section(id="modules", title="Time by module", lead=(lead,), plots=plots)


def _modules(detail: DeviceDetail, generation: Generation | None) -> Bars:
    step = detail.step
    bars = []
    for group in step.modules[:_SHOWN_MODULES]:
        time, bound = units.format_duration(group.time_s), BOUND_NAMES[group.bound]
        text = f"{group.name}\n{time}, {bound}"
        part = Part(name=bound, value=group.time_s, color=BOUND_MARKS[group.bound][0], text=text)
        note = f"{time}, {units.format_ratio(group.time_ratio)}, {group.bound}"
        bars.append(Bar(name=group.name, note=note, parts=(part,)))
    if rest := step.modules[_SHOWN_MODULES:]:
        rest_s, name = sum(group.time_s for group in rest), f"{len(rest):,} more"
        note = f"{units.format_duration(rest_s)}, {units.format_ratio(sum(group.time_ratio for group in rest))}"
        part = Part(name="more", value=rest_s, color=7, text=f"{name}\n{note}")
        bars.append(Bar(name=name, note=note, parts=(part,)))
    return Bars(
        title=(f"{detail_name(detail)}, a step {at_batch_text(step.batch, generation)}: {interval_text(step.step_s)}"),
        x=Axis(label="time", unit="s", is_log=False),
        bars=tuple(bars),
        table=table_of(step.modules, (column("module", _name), *_TIMES), title="Modules"),
    )


def roofline_section(details: Sequence[DeviceDetail]) -> Section:
    """Return the section that plots each operator family by its arithmetic intensity, under the device's roof."""
    lead = (
        "Left of the ridge point, operators are memory-bound; right of it, compute-bound (Williams, Waterman and "
        "Patterson, 2009). The roof is from the datasheet. Points above it are served by caches. Points far below it "
        "wait for the host or reach a small share of the peak. Families with less than 1 % of the time are only in the "
        "tables."
    )
    return Section(id="roofline", title="Roofline", lead=(lead,), plots=tuple(map(_roofline, details)))


def _roofline(detail: DeviceDetail) -> Chart:
    step = detail.step
    shown = [group for group in step.families if group.flops_per_byte and group.time_ratio >= _SHOWN_RATIO]
    columns: tuple[ColumnOf[ExplainedGroup], ...] = (
        column("family", _name),
        *_TIMES,
        *_COUNTS,
        numbers("FLOP/B", lambda group: group.flops_per_byte, lambda ratio: f"{ratio:,.3g}" if ratio else "-"),
        numbers("of the roofline", lambda group: group.roofline_ratio, units.format_ratio),
    )
    return Chart(
        title=detail_name(detail),
        x=Axis(label="FLOP per byte moved", unit="flops_per_byte"),
        y=Axis(label="FLOP/s", unit="flops_per_s"),
        series=(*_roofs(step, shown), *_families(shown)),
        table=table_of(step.families, columns, title="Operator families"),
    )


def _roofs(step: ExplainedStep, groups: Sequence[ExplainedGroup]) -> Iterable[Series]:
    """Yield one roof per compute unit in use: it rises with the bandwidth and is flat from the ridge point on."""
    bandwidth = step.memory_bytes_per_s
    intensities = [group.flops_per_byte for group in groups if group.flops_per_byte]
    ridges = sorted({group.ridge_flops_per_byte for group in groups if group.ridge_flops_per_byte})
    if not ridges:
        return
    left, right = min(*intensities, ridges[0]) / 3, max(*intensities, ridges[-1]) * 10
    for ridge, higher in zip(ridges, (*ridges[1:], math.inf), strict=True):
        peak = ridge * bandwidth
        text = f"{units.format_flops(peak)}/s, {units.format_bytes(bandwidth)}/s\nridge at {ridge:,.3g} FLOP/B"
        corners = ((left, left * bandwidth), (ridge, peak), (right, peak))
        *rise, end = (Point(x=x, y=y, text=text) for x, y in corners)
        named = replace(end, name=f"{units.format_flops(peak)}/s" if higher > 2 * ridge else "")  # else they overlap
        yield Series(name="roof", color=7, symbol=None, points=(*rise, named), has_line=True)


def _families(groups: Sequence[ExplainedGroup]) -> Iterable[Series]:
    for bound in BOUNDS:
        points = tuple(_family_point(group) for group in groups if group.bound == bound)
        color, symbol = BOUND_MARKS[bound]
        if points:
            yield Series(name=BOUND_NAMES[bound], color=color, symbol=symbol, points=points)


def _family_point(group: ExplainedGroup) -> Point:
    rate = group.flops / group.time_s
    text = (
        f"{group.name}: {units.format_ratio(group.time_ratio)} of the time\n{units.format_flops(rate)}/s at "
        f"{group.flops_per_byte:,.3g} FLOP/B\n{BOUND_NAMES[group.bound]}"
    )
    name = group.name if group.time_ratio >= _LABELLED_RATIO else ""
    return Point(x=group.flops_per_byte or 0.0, y=rate, name=name, text=text)
