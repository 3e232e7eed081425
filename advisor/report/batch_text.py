"""Adds a table of step time and cost for each batch size on the best instances."""

from advisor import units
from advisor.records.answer import BatchPoint, BatchSweep, Recommendation
from advisor.records.generation import Generation
from advisor.records.price import ExchangeRate
from advisor.report.interval_text import interval_text
from advisor.report.text_page import Heading, Page

_HEADINGS = ("batch", "step [90 %]", "samples/s", "per million", "memory", "bound")
_OF_TOKENS = ("in flight", "TTFT", "TPOT", "tokens/s", "per Mtok", "memory", "bound")


def add_batch_tables(page: Page, recommendation: Recommendation) -> None:
    """Add the tables if the user asked to compare several sizes; with `auto` or no size there is nothing to compare."""
    if not _is_comparison(recommendation.job.batch):
        return
    generation = recommendation.job.generation
    for sweep in recommendation.batch_sweeps:
        page.blank()
        over = "requests in flight" if generation else "batch"
        where = f"{sweep.provider} {sweep.instance} ({sweep.device.name})"
        page.line(f"By {over} on {where}, {sweep.precision}:", style="bold")
        page.table(
            [Heading(text=text, is_number=text != "bound") for text in (_OF_TOKENS if generation else _HEADINGS)],
            [
                _token_cells(point, sweep, generation, rate=recommendation.exchange_rate)
                if generation
                else _cells(point, sweep, rate=recommendation.exchange_rate)
                for point in sweep.points
            ],
            first_row_style="",
        )
    if recommendation.batch_sweeps:
        what = "input and output tokens" if generation else "samples"
        page.line(f"* used in the ranking; cost per million {what}, compute time only.", style="dim")


def _is_comparison(batch: str) -> bool:
    return ".." in batch or "," in batch


def _cells(point: BatchPoint, sweep: BatchSweep, *, rate: ExchangeRate | None) -> tuple[str, ...]:
    return (
        _batch(point, sweep),
        interval_text(point.step_s),
        units.format_rate(point.samples_per_s),
        units.format_money(point.usd_per_million_samples, rate=rate),
        _memory(point, sweep),
        point.bound,
    )


def _token_cells(
    point: BatchPoint, sweep: BatchSweep, generation: Generation, *, rate: ExchangeRate | None
) -> tuple[str, ...]:
    usd = point.usd_per_million_samples / generation.token_count
    return (
        _batch(point, sweep),
        *("-" if time_s is None else units.format_duration(time_s) for time_s in (point.ttft_s, point.tpot_s)),
        units.format_rate(point.samples_per_s * generation.output_tokens),
        units.format_money(usd, rate=rate, digits=3),
        _memory(point, sweep),
        point.bound,
    )


def _batch(point: BatchPoint, sweep: BatchSweep) -> str:
    return f"{'*' if point.batch == sweep.batch else ''}{point.batch:,}"


def _memory(point: BatchPoint, sweep: BatchSweep) -> str:
    share = units.format_ratio(point.peak_memory_bytes / sweep.device_memory_bytes)
    return share if point.fits else f"{share}: does not fit"
