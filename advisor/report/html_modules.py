"""Makes the report's sections on why a step takes as long as it does, and on its time by module."""

from collections.abc import Sequence

from advisor import units
from advisor.records.generation import Generation
from advisor.records.price import ExchangeRate
from advisor.records.report_contents import CloseLook
from advisor.records.sample_words import at_batch_text
from advisor.report.explanation_text import reasons, saving_sentences
from advisor.report.html_marks import BOUND_MARKS, device_name, step_time
from advisor.report.html_parts import (
    Axis,
    Bar,
    Bars,
    Listing,
    Part,
    Section,
    Table,
    TableColumn,
)

_SHOWN_MODULES = 12


def why_section(
    looks: Sequence[CloseLook], *, rate: ExchangeRate | None, generation: Generation | None = None
) -> Section:
    """Return the section on what limits the step on each device, and what would save money."""
    lists = []
    for look in looks:
        lists.append(Listing(title=f"{device_name(look)}: {step_time(look.step)}", items=tuple(reasons(look.step))))
        if look.step.job_usd is not None:
            cost = units.format_money(look.step.job_usd.mid, rate=rate)
            title = f"Largest savings, of {cost} on the {look.role}"
            lists.append(Listing(title=title, items=saving_sentences(look.step, rate=rate, generation=generation)))
    return Section(id="why", title="Why", lists=tuple(lists))


def modules_section(looks: Sequence[CloseLook], *, generation: Generation | None = None) -> Section:
    """Return the section on the time of a step by module."""
    plots = tuple(_modules(look, generation) for look in looks)
    lead = ("Longest first. Repeated layers of equal shape share one line.",)
    return Section(id="modules", title="Time by module", lead=lead, plots=plots)


def _modules(look: CloseLook, generation: Generation | None) -> Bars:
    step, at = look.step, at_batch_text(look.step.batch, generation)
    shown, rest = step.modules[:_SHOWN_MODULES], step.modules[_SHOWN_MODULES:]
    bars = [
        Bar(
            name=group.name,
            note=f"{units.format_duration(group.time_s)}, {units.format_ratio(group.time_ratio)}, {group.bound}",
            parts=(
                Part(
                    name=f"bound by {group.bound}",
                    value=group.time_s,
                    color=BOUND_MARKS[group.bound][0],
                    text=f"{group.name}\n{units.format_duration(group.time_s)}, bound by {group.bound}",
                ),
            ),
        )
        for group in shown
    ]
    if rest:
        rest_s = sum(group.time_s for group in rest)
        note = f"{units.format_duration(rest_s)}, {units.format_ratio(sum(group.time_ratio for group in rest))}"
        name = f"{len(rest):,} more"
        part = Part(name="more", value=rest_s, color=7, text=f"{name}\n{note}")
        bars.append(Bar(name=name, note=note, parts=(part,)))
    return Bars(
        title=f"{device_name(look)}, a step {at}: {step_time(step)}",
        x=Axis(label="time", unit="s", is_log=False),
        bars=tuple(bars),
        table=Table(
            title="Modules",
            columns=(
                TableColumn(header="module"),
                TableColumn(header="time", is_number=True, keys=tuple(group.time_s for group in step.modules)),
                TableColumn(header="share", is_number=True, keys=tuple(group.time_ratio for group in step.modules)),
                TableColumn(header="bound"),
            ),
            rows=tuple(
                (
                    group.name,
                    units.format_duration(group.time_s),
                    units.format_ratio(group.time_ratio),
                    group.bound,
                )
                for group in step.modules
            ),
        ),
    )
