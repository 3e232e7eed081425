"""Selects the columns of a table of quotes; in LLM serving, with columns for tokens."""

from collections.abc import Callable, Sequence

from advisor import units
from advisor.records.answer import TokenQuote
from advisor.report.interval_text import interval_text
from advisor.report.quote_columns import COLUMNS, Column, RankedQuote


def columns_for(rows: Sequence[RankedQuote]) -> tuple[Column, ...]:
    """Return the columns for these rows."""
    return _TOKEN_COLUMNS if rows and rows[0].quote.tokens is not None else COLUMNS


def _of_tokens(figure: Callable[[TokenQuote], float]) -> Callable[[RankedQuote], float | None]:
    return lambda row: None if row.quote.tokens is None else figure(row.quote.tokens)


def _text(show: Callable[[TokenQuote, RankedQuote], str]) -> Callable[[RankedQuote], str]:
    return lambda row: "" if row.quote.tokens is None else show(row.quote.tokens, row)


_INSTEAD: dict[str, tuple[Column, ...]] = {
    "batch": (
        Column(
            header="in flight",
            cell=lambda row: f"{row.quote.batch:,}",
            number=lambda row: row.quote.batch,
            drop_order=7,
        ),
    ),
    "step [90 %]": (
        Column(
            header="TTFT",
            cell=_text(lambda tokens, row: units.format_duration(tokens.ttft_s.mid)),
            number=_of_tokens(lambda tokens: tokens.ttft_s.mid),
            drop_order=13,
        ),
        Column(
            header="TPOT [90 %]",
            cell=_text(lambda tokens, row: interval_text(tokens.tpot_s)),
            number=_of_tokens(lambda tokens: tokens.tpot_s.mid),
            drop_order=14,
        ),
    ),
    "samples/s": (
        Column(
            header="tokens/s",
            cell=_text(lambda tokens, row: units.format_rate(tokens.output_tokens_per_s)),
            number=_of_tokens(lambda tokens: tokens.output_tokens_per_s),
            drop_order=11,
        ),
    ),
    "cost": (
        Column(
            header="per Mtok",
            cell=_text(lambda tokens, row: units.format_money(tokens.usd_per_million_tokens, rate=row.rate, digits=3)),
            number=_of_tokens(lambda tokens: tokens.usd_per_million_tokens),
        ),
        *(column for column in COLUMNS if column.header == "cost"),
    ),
}
"""Replacements for standard columns, by heading."""
_TOKEN_COLUMNS = tuple(new for column in COLUMNS for new in _INSTEAD.get(column.header, (column,)))
