"""Makes the tables and the report's sections of throughput and cost by batch size, and by the number of machines."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from advisor import units
from advisor.records.answer import BatchPoint, BatchSweep, Interval, MachinePoint, MachineSweep, Recommendation
from advisor.records.generation import Generation
from advisor.records.price import ExchangeRate
from advisor.records.report_contents import DeviceDetail
from advisor.report.amounts import count_text, in_currency, interval_text, money_text
from advisor.report.content import Axis, Chart, Rule, Section, Series, Table, Unit, interval_points
from advisor.report.marks import ROLE_MARKS, detail_name
from advisor.report.quote_notes import plan_label
from advisor.report.tables import ColumnOf, column, numbers, starred, table_of

_Row: TypeAlias = tuple[DeviceDetail, BatchPoint]
"""A device at one batch size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Output:
    """The words for a batch, its output and what is paid for, and the number of outputs and paid units per sample."""

    batch: str = "batch size"
    batch_heading: str = "batch"
    time_heading: str = "step [90 %]"
    made: str = "samples"
    made_count: int = 1
    paid: str = "samples"
    paid_count: int = 1
    usd_digits: int = 2

    def per_s(self, point: BatchPoint) -> float:
        """Return the output per second."""
        return point.samples_per_s * self.made_count

    def usd(self, point: BatchPoint) -> float:
        """Return the dollars per million paid units."""
        return point.usd_per_million_samples / self.paid_count


def _output(generation: Generation | None) -> _Output:
    if generation is None:
        return _Output()
    return _Output(
        batch="requests in flight",
        batch_heading="in flight",
        time_heading="TTFT, TPOT",
        made="output tokens",
        made_count=generation.output_tokens,
        paid="tokens",
        paid_count=generation.token_count,
        usd_digits=3,
    )


def batch_tables(recommendation: Recommendation) -> Iterator[Table]:
    """Yield a table per swept offer if the user asked to compare several sizes; * marks the size in the ranking."""
    job, sweeps = recommendation.job, recommendation.batch_sweeps
    if ".." not in job.batch and "," not in job.batch:  # one size or `auto`: nothing to compare
        return
    paid = "samples" if job.generation is None else "input and output tokens"
    note = f"* used in the ranking; cost per million {paid}, compute time only."
    over = "batch" if job.generation is None else "requests in flight"
    for sweep in sweeps:
        yield table_of(
            sweep.points,
            _sweep_columns(sweep, job.generation, rate=recommendation.exchange_rate),
            title=f"By {over} on {sweep.provider} {sweep.instance} ({sweep.device.name}), {sweep.precision}",
            notes=[note] if sweep is sweeps[-1] else [],
        )


def _sweep_columns(
    sweep: BatchSweep, generation: Generation | None, *, rate: ExchangeRate | None
) -> tuple[ColumnOf[BatchPoint], ...]:
    def memory(one: BatchPoint) -> str:
        share = units.format_ratio(one.peak_memory_bytes / sweep.device_memory_bytes)
        return share if one.fits else f"{share}: does not fit"

    by = _output(generation)
    batch: ColumnOf[BatchPoint] = numbers(by.batch_heading, lambda one: one.batch, count_text)
    times: tuple[ColumnOf[BatchPoint], ...] = (
        numbers("TTFT", lambda one: one.ttft_s, units.format_duration),
        numbers("TPOT", lambda one: one.tpot_s, units.format_duration),
    )
    if generation is None:
        times = (numbers("step [90 %]", lambda one: one.step_s, interval_text),)
    return (
        starred(batch, lambda one: one.batch == sweep.batch),
        *times,
        numbers("samples/s" if generation is None else "tokens/s", by.per_s, units.format_rate),
        numbers("per million" if generation is None else "per Mtok", by.usd, money_text(rate, digits=by.usd_digits)),
        column("memory", memory, lambda one: one.peak_memory_bytes),
        column("bound", lambda one: one.bound),
    )


def batches_section(
    details: Sequence[DeviceDetail], *, rate: ExchangeRate | None, generation: Generation | None = None
) -> Section:
    """Return the section on throughput and cost by batch size."""
    by = _output(generation)
    swept = [detail for detail in details if len(detail.batches) > 1]
    paid = [detail for detail in swept if detail.quote.usd_per_hour]  # a logarithmic axis has no 0
    columns = _detail_columns(by, rate=rate)
    rows = [(detail, point) for detail in swept for point in detail.batches]
    table = table_of(rows, columns, title=f"By {by.batch}")

    def chart(title: str, y: Axis, height: Callable[[BatchPoint], Interval], *, of: Sequence[DeviceDetail]) -> Chart:
        series = []
        for detail in of:
            shown = [(detail, point) for point in detail.batches if point.fits]
            points = interval_points((row[1].batch, height(row[1]), text(row)) for row in shown)
            color, symbol = ROLE_MARKS[detail.role]
            series.append(Series(name=detail_name(detail), color=color, symbol=symbol, points=points, has_line=True))
        return Chart(title=title, x=Axis(label=by.batch, unit="count"), y=y, series=tuple(series), table=table)

    def text(row: _Row) -> str:
        of = f"{row[0].step.name}, {by.batch_heading} {row[1].batch:,}"
        return "\n".join((of, *(one.cell(row) for one in columns[2:])))

    def throughput(one: BatchPoint) -> Interval:
        mid, step_s = by.per_s(one), one.step_s
        return Interval(mid=mid, low=mid * step_s.mid / step_s.high, high=mid * step_s.mid / step_s.low)

    def cost(one: BatchPoint) -> Interval:
        mid, step_s = by.usd(one), one.step_s
        usd = Interval(mid=mid, low=mid * step_s.low / step_s.mid, high=mid * step_s.high / step_s.mid)
        return in_currency(usd, rate=rate)

    per_s = Axis(label=f"{by.made}/s", unit="per_s")
    charts = (
        chart(f"{by.made.capitalize()} per second", per_s, throughput, of=swept),
        chart(f"Cost per million {by.paid}", Axis(label="cost", unit="money"), cost, of=paid),
    )
    lead = "Each device is always busy; batch sizes go up to what fits its memory. Bands are 90 % intervals."
    return Section(id="batches", title=by.batch.capitalize(), lead=(lead,), plots=charts)


def _detail_columns(by: _Output, *, rate: ExchangeRate | None) -> tuple[ColumnOf[_Row], ...]:
    per_million = money_text(rate, digits=by.usd_digits)

    def memory(row: _Row) -> str:
        return units.format_bytes(row[1].peak_memory_bytes) + ("" if row[1].fits else ", does not fit")

    def times(row: _Row) -> str:
        point = row[1]
        if point.ttft_s is None or point.tpot_s is None:
            return interval_text(point.step_s)
        return f"{units.format_duration(point.ttft_s)}, {units.format_duration(point.tpot_s)}"

    return (
        column("device", lambda row: row[0].role, is_choice=True),
        numbers(by.batch_heading, lambda row: row[1].batch, count_text),
        column(by.time_heading, times, lambda row: row[1].step_s.mid),
        numbers("throughput", lambda row: by.per_s(row[1]), lambda per_s: f"{units.format_rate(per_s)} {by.made}/s"),
        numbers("cost", lambda row: by.usd(row[1]), lambda usd: f"{per_million(usd)} per million"),
        column("memory", memory, lambda row: row[1].peak_memory_bytes),
        column("bound", lambda row: row[1].bound),
    )


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
        return Section(id="machines", title="Machines")
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

    return Section(
        id="machines",
        title="Machines",
        lead=(
            f"The whole job on {sweep.provider} {sweep.instance}. Bands are 90 % intervals.",
            _note(sweep, deadline_s=recommendation.job.limits.deadline_s),
        ),
        plots=(
            chart("Time of the job", "s", lambda one: one.job_s),
            chart("Cost of the job", "money", lambda one: in_currency(one.job_usd, rate=rate)),
        ),
    )


def _note(sweep: MachineSweep, *, deadline_s: float | None) -> str:
    """Return the meaning of the marks, and how many machines memory and deadline require."""
    sentences = [
        "* used in the ranking; efficiency is the speed-up over one GPU divided by the number of GPUs, memory the used "
        "share of one GPU's memory."
    ]
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
