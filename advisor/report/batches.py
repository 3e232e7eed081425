"""Makes the tables and the report's section of throughput and cost by batch size; in LLM serving, per token."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from advisor import units
from advisor.records.answer import BatchPoint, BatchSweep, Interval, Recommendation
from advisor.records.generation import Generation
from advisor.records.price import ExchangeRate
from advisor.records.report_contents import DeviceDetail
from advisor.report.amounts import count_text, in_currency, interval_text, money_text
from advisor.report.content import Axis, Chart, Section, Series, Table, interval_points, section
from advisor.report.marks import ROLE_MARKS, detail_name
from advisor.report.tables import ColumnOf, column, numbers, starred, table_of


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


def _output_of(generation: Generation | None) -> _Output:
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

    by = _output_of(generation)
    batch: ColumnOf[BatchPoint] = numbers(by.batch_heading, lambda one: one.batch, count_text)
    times: tuple[ColumnOf[BatchPoint], ...] = (
        (numbers("step [90 %]", lambda one: one.step_s, interval_text),)
        if generation is None
        else (
            numbers("TTFT", lambda one: one.ttft_s, units.format_duration),
            numbers("TPOT", lambda one: one.tpot_s, units.format_duration),
        )
    )
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
    by = _output_of(generation)
    swept = [detail for detail in details if len(detail.batches) > 1]
    paid = [detail for detail in swept if detail.quote.usd_per_hour]  # a logarithmic axis has no 0
    columns = _detail_columns(by, rate=rate)
    rows = [_Row(detail=detail, point=point) for detail in swept for point in detail.batches]
    table = table_of(rows, columns, title=f"By {by.batch}")

    def chart(title: str, y: Axis, height: Callable[[BatchPoint], Interval], *, of: Sequence[DeviceDetail]) -> Chart:
        series = []
        for detail in of:
            shown = [row for row in rows if row.detail is detail and row.point.fits]
            points = interval_points((row.point.batch, height(row.point), text(row)) for row in shown)
            color, symbol = ROLE_MARKS[detail.role]
            series.append(Series(name=detail_name(detail), color=color, symbol=symbol, points=points, has_line=True))
        return Chart(title=title, x=Axis(label=by.batch, unit="count"), y=y, series=tuple(series), table=table)

    def text(row: _Row) -> str:
        of = f"{row.detail.step.name}, {by.batch_heading} {row.point.batch:,}"
        return "\n".join((of, *(one.cell(row) for one in columns[2:])))

    def throughput(one: BatchPoint) -> Interval:
        mid, step_s = by.per_s(one), one.step_s
        return Interval(mid=mid, low=mid * step_s.mid / step_s.high, high=mid * step_s.mid / step_s.low)

    def cost(one: BatchPoint) -> Interval:
        mid, step_s = by.usd(one), one.step_s
        usd = Interval(mid=mid, low=mid * step_s.low / step_s.mid, high=mid * step_s.high / step_s.mid)
        return in_currency(usd, rate=rate)

    made = f"{by.made.capitalize()} per second"
    charts = (
        chart(made, Axis(label=f"{by.made}/s", unit="per_s"), throughput, of=swept),
        chart(f"Cost per million {by.paid}", Axis(label="cost", unit="money"), cost, of=paid),
    )
    lead = "Each device is always busy; batch sizes go up to what fits its memory. Bands are 90 % intervals."
    return section("batches", by.batch.capitalize(), lead=[lead], plots=charts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A device at one batch size."""

    detail: DeviceDetail
    point: BatchPoint


def _detail_columns(by: _Output, *, rate: ExchangeRate | None) -> tuple[ColumnOf[_Row], ...]:
    per_million = money_text(rate, digits=by.usd_digits)

    def memory(row: _Row) -> str:
        return units.format_bytes(row.point.peak_memory_bytes) + ("" if row.point.fits else ", does not fit")

    return (
        column("device", lambda row: row.detail.role, is_choice=True),
        numbers(by.batch_heading, lambda row: row.point.batch, count_text),
        column(by.time_heading, _times, lambda row: row.point.step_s.mid),
        numbers("throughput", lambda row: by.per_s(row.point), lambda per_s: f"{units.format_rate(per_s)} {by.made}/s"),
        numbers("cost", lambda row: by.usd(row.point), lambda usd: f"{per_million(usd)} per million"),
        column("memory", memory, lambda row: row.point.peak_memory_bytes),
        column("bound", lambda row: row.point.bound),
    )


def _times(row: _Row) -> str:
    point = row.point
    if point.ttft_s is None or point.tpot_s is None:
        return interval_text(point.step_s)
    return f"{units.format_duration(point.ttft_s)}, {units.format_duration(point.tpot_s)}"
