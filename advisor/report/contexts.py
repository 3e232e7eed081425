"""Shows how many requests at a time a machine serves at each length of context."""

from collections.abc import Iterator

from advisor import units
from advisor.records.answer import ContextPoint, ContextSweep, Recommendation
from advisor.report.amounts import count_text, money_text
from advisor.report.content import Section, Table
from advisor.report.tables import ColumnOf, column, numbers, table_of

_TITLE = "Concurrency by context length"
_NOTES = (
    "context: prompt and answer together, answers of {output} tokens; max: most requests in flight that memory and the "
    "engine allow; knee: requests in flight, of those that surely fit, above which throughput rises by less than 5 %. "
    "Machines, times, tokens/s and cost are at the knee, at full load; per Mtok: per million tokens of prompts and "
    "answers."
)


def context_tables(recommendation: Recommendation) -> Iterator[Table]:
    """Yield the table of the best machines, for a served language model."""
    rate, sweeps, generation = (
        recommendation.exchange_rate, recommendation.context_sweeps, recommendation.job.generation
    )  # fmt: skip
    rows = [(sweep, point) for sweep in sweeps for point in sweep.points]
    if not rows or generation is None:
        return
    columns: tuple[ColumnOf[tuple[ContextSweep, ContextPoint]], ...] = (
        column("machine", lambda row: _machine(*row), shortens_to=24),
        numbers("context", lambda row: row[1].context_tokens, _tokens),
        numbers("max", lambda row: row[1].most_in_flight, count_text),
        numbers("knee", lambda row: row[1].in_flight or None, count_text),
        numbers("TTFT", lambda row: row[1].ttft_s, units.format_duration, drop_order=1),
        numbers("TPOT", lambda row: row[1].tpot_s, units.format_duration, drop_order=2),
        numbers("tokens/s", lambda row: row[1].output_tokens_per_s, units.format_rate),
        numbers("per Mtok", lambda row: row[1].usd_per_million_tokens, money_text(rate, digits=3)),
    )
    note = _NOTES.format(output=count_text(generation.output_tokens))
    yield table_of(rows, columns, title=_TITLE, notes=(note,))


def contexts_section(recommendation: Recommendation) -> Section:
    """Return the section on concurrency by context; empty unless a language model is served."""
    return Section(id="contexts", title=_TITLE, tables=tuple(context_tables(recommendation)))


def _machine(sweep: ContextSweep, point: ContextPoint) -> str:
    """Return the name of the machine in its first row, and where another number of them works together."""
    place = sweep.points.index(point)
    if place and (not point.in_flight or point.machine_count == sweep.points[place - 1].machine_count):
        return ""
    times = f"{point.machine_count}x " if point.machine_count > 1 else ""
    return f"{sweep.provider} {times}{sweep.instance}"


def _tokens(count: int) -> str:
    return f"{count // 1024}k" if count % 1024 == 0 else count_text(count)
