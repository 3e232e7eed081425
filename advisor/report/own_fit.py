"""Makes the answer on the two ratios fitted for a device, with their uncertainty and their effect on the error."""

from collections.abc import Iterable, Iterator, Sequence

from advisor.records.measurement import OwnFit
from advisor.report.content import Block, Listing, Paragraph
from advisor.report.tables import ColumnOf, column, more_note, numbers, table_of
from advisor.units import format_ratio

_WEAK_LOG_SIGMA = 0.12
"""Above this, close to the prior's 0.15, the measurements have hardly narrowed the ratio."""
_COLUMNS: Sequence[ColumnOf[tuple[str, float, float]]] = (
    column("figure", lambda row: row[0]),
    numbers("value", lambda row: row[1], lambda ratio: f"{ratio:.3f}"),
    numbers("+-", lambda row: row[2], format_ratio),
    column("", lambda row: "hardly determined by the rows" if row[2] > _WEAK_LOG_SIGMA else ""),
)


def own_fit_sentences(fit: OwnFit) -> Iterable[str]:
    """Yield what the ratios were fitted to, and the mean error without and with them."""
    yield f"Fitted to {fit.n:,} measured steps of {fit.model_count:,} models, with a prior of 1 +- 15 %."
    yield (
        f"Mean error: {format_ratio(fit.mape_without)} without the two ratios, {format_ratio(fit.mape)} with them, "
        f"{format_ratio(fit.left_out_mape)} on each model with ratios fitted to the other models."
    )


def own_fit_content(fit: OwnFit, *, top: int) -> Iterator[Block]:
    """Yield both ratios in a table, the sentences, and the rows that could not be predicted."""
    compute, memory = fit.profile.sustained_compute_ratio, fit.profile.sustained_memory_ratio
    figures = (
        ("sustained_compute_ratio", compute, fit.compute_log_sigma),
        ("sustained_memory_ratio", memory, fit.memory_log_sigma),
    )
    yield Paragraph(title=f"{fit.profile.name} ({fit.profile.id})")
    yield table_of([(name, ratio, sigma) for name, ratio, sigma in figures if ratio is not None], _COLUMNS)
    yield Paragraph(sentences=tuple(own_fit_sentences(fit)))
    failed = [f"{row.measurement.file}:{row.measurement.line}: {row.reason}" for row in fit.failed[:top]]
    yield Listing(title="Not predicted", items=(*failed, *more_note(len(fit.failed), top=top, what=" rows")))
