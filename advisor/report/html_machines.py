"""Makes the report's section on time and cost by number of machines."""

from collections.abc import Callable

from advisor.records.answer import Interval, MachinePoint, MachineSweep, Recommendation
from advisor.records.price import ExchangeRate
from advisor.report.html_parts import Axis, Chart, Point, Rule, Section, Series, Table, TableColumn, Unit
from advisor.report.machine_text import MACHINE_HEADINGS, machine_cells, machine_note
from advisor.report.money import in_currency


def machines_section(recommendation: Recommendation) -> Section:
    """Return the section on using more machines of the best offer; empty if only one was allowed."""
    sweep, rate = recommendation.machine_sweep, recommendation.exchange_rate
    if sweep is None or len(sweep.points) < 2:
        return Section(id="machines", title="Machines")
    table = _table(sweep, rate=rate)
    deadline_s = recommendation.job.limits.deadline_s

    def chart(title: str, unit: Unit, amount: Callable[[MachinePoint], Interval]) -> Chart:
        return Chart(
            title=title,
            x=Axis(label="machines", unit="count"),
            y=Axis(label=title.lower(), unit=unit),
            series=(_series(sweep, amount, rate=rate),),
            rules=(Rule(x=sweep.instance_count, name="in the ranking"),),
            table=table,
        )

    return Section(
        id="machines",
        title="Machines",
        lead=(
            f"The whole job on {sweep.provider} {sweep.instance}. Bands are 90 % intervals.",
            machine_note(sweep, deadline_s=deadline_s),
        ),
        plots=(
            chart("Time of the job", "s", lambda point: point.job_s),
            chart("Cost of the job", "money", lambda point: in_currency(point.job_usd, rate=rate)),
        ),
    )


def _series(sweep: MachineSweep, amount: Callable[[MachinePoint], Interval], *, rate: ExchangeRate | None) -> Series:
    points = []
    for one in sweep.points:
        height = amount(one)
        cells = zip(MACHINE_HEADINGS, machine_cells(one, sweep, rate=rate), strict=True)
        text = "\n".join(f"{header}: {cell}" for header, cell in cells if cell)
        points.append(Point(x=one.instance_count, y=height.mid, y_low=height.low, y_high=height.high, text=text))
    return Series(name=sweep.instance, color=1, symbol="circle", points=tuple(points), has_line=True)


def _table(sweep: MachineSweep, *, rate: ExchangeRate | None) -> Table:
    points = sweep.points
    keys: dict[str, tuple[float | None, ...]] = {
        "machines": tuple(point.instance_count for point in points),
        "GPUs": tuple(point.gpus_used for point in points),
        "time": tuple(point.job_s.mid for point in points),
        "cost": tuple(point.job_usd.mid for point in points),
        "efficiency": tuple(point.scaling_efficiency_ratio for point in points),
        "memory": tuple(point.peak_memory_bytes for point in points),
    }
    return Table(
        title="Numbers of machines",
        columns=tuple(
            TableColumn(header=header, is_number=header in keys, keys=keys.get(header, ()))
            for header in MACHINE_HEADINGS
        ),
        rows=tuple(machine_cells(point, sweep, rate=rate) for point in points),
    )
