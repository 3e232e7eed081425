"""Makes the table and the report's section of time and cost on 1, 2, 4, ... machines of the best offer."""

from collections.abc import Callable, Iterator

from advisor import units
from advisor.records.answer import Interval, MachinePoint, MachineSweep, Recommendation
from advisor.records.price import ExchangeRate
from advisor.report.amounts import count_text, in_currency, money_text
from advisor.report.content import Axis, Chart, Rule, Section, Series, Table, Unit, interval_points, section
from advisor.report.quote_notes import plan_label
from advisor.report.tables import ColumnOf, column, numbers, starred, table_of


def machine_tables(recommendation: Recommendation) -> Iterator[Table]:
    """Yield the table if several machines were allowed; * marks the number in the ranking."""
    sweep = recommendation.machine_sweep
    if sweep is not None:
        machines, *others = _columns(sweep, recommendation.exchange_rate)
        instance = f"{sweep.provider} {sweep.instance} ({sweep.device.count}x {sweep.device.name})"
        yield table_of(
            sweep.points,
            [starred(machines, lambda one: one.instance_count == sweep.instance_count), *others],
            title=f"By number of machines, {instance}, {sweep.precision}",
            notes=[_note(sweep, deadline_s=recommendation.job.limits.deadline_s)],
        )


def machines_section(recommendation: Recommendation) -> Section:
    """Return the section on using more machines of the best offer; empty if only one was allowed."""
    sweep, rate = recommendation.machine_sweep, recommendation.exchange_rate
    if sweep is None or len(sweep.points) < 2:
        return section("machines", "Machines")
    columns = _columns(sweep, rate)
    table = table_of(sweep.points, columns, title="Numbers of machines")

    def chart(title: str, unit: Unit, height: Callable[[MachinePoint], Interval]) -> Chart:
        points = interval_points((one.instance_count, height(one), text(one)) for one in sweep.points)
        return Chart(
            title=title,
            x=Axis(label="machines", unit="count"),
            y=Axis(label=title.lower(), unit=unit),
            series=(Series(name=sweep.instance, color=1, symbol="circle", points=points, has_line=True),),
            rules=(Rule(x=sweep.instance_count, name="in the ranking"),),
            table=table,
        )

    def text(one: MachinePoint) -> str:
        return "\n".join(f"{column.header}: {cell}" for column in columns if (cell := column.cell(one)))

    return section(
        "machines",
        "Machines",
        lead=[
            f"The whole job on {sweep.provider} {sweep.instance}. Bands are 90 % intervals.",
            _note(sweep, deadline_s=recommendation.job.limits.deadline_s),
        ],
        plots=[
            chart("Time of the job", "s", lambda one: one.job_s),
            chart("Cost of the job", "money", lambda one: in_currency(one.job_usd, rate=rate)),
        ],
    )


def _note(sweep: MachineSweep, *, deadline_s: float | None) -> str:
    """Return the meaning of the marks, and how many machines memory and deadline require."""
    sentences = ["* used in the ranking; memory is the used share of one GPU's memory."]
    fewest = sweep.points[0].instance_count
    if fewest > 1:
        sentences.append(f"The step does not fit on fewer than {fewest}.")
    if deadline_s is not None:
        keeping = [point.instance_count for point in sweep.points if point.keeps_deadline]
        demanded = f"requires {keeping[0]} or more" if keeping else "cannot be met"
        sentences.append(f"--deadline {units.format_duration(deadline_s)} {demanded}.")
    return " ".join(sentences)


def _columns(sweep: MachineSweep, rate: ExchangeRate | None) -> tuple[ColumnOf[MachinePoint], ...]:
    return (
        numbers("machines", lambda one: one.instance_count, count_text),
        numbers("GPUs", lambda one: one.gpus_used, count_text),
        numbers("time", lambda one: one.job_s.mid, units.format_duration),
        numbers("cost", lambda one: one.job_usd.mid, money_text(rate)),
        numbers("efficiency", lambda one: one.scaling_efficiency_ratio, units.format_ratio, missing=""),
        numbers("memory", lambda one: one.peak_memory_bytes / sweep.device_memory_bytes, units.format_ratio),
        column("plan", lambda one: plan_label(one.plan)),
    )
