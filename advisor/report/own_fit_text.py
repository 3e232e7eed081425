"""Renders the two ratios fitted for a device, with their uncertainty and their effect on the error."""

from collections.abc import Iterable

from advisor import units
from advisor.records.measurement import OwnFit
from advisor.report.text_page import Heading, Page
from advisor.report.view import View

_WEAK_LOG_SIGMA = 0.12
"""Above this, close to the prior's 0.15, the measurements have hardly narrowed the ratio."""


def own_fit_sentences(fit: OwnFit) -> Iterable[str]:
    """Yield what the ratios were fitted to, and the mean error without and with them."""
    yield f"Fitted to {fit.n:,} measured steps of {fit.model_count:,} models, with a prior of 1 +- 15 %."
    yield (
        f"Mean error: {units.format_ratio(fit.mape_without)} without the two ratios, "
        f"{units.format_ratio(fit.mape)} with them, "
        f"{units.format_ratio(fit.left_out_mape)} on each model with ratios fitted to the other models."
    )


def render_own_fit(fit: OwnFit, *, view: View) -> str:
    """Return both ratios in a table, the sentences, and the rows that could not be predicted."""
    page = Page(width=view.width, color=view.color)
    page.line(f"{fit.profile.name} ({fit.profile.id})", style="bold")
    page.blank()
    figures = (
        ("sustained_compute_ratio", fit.profile.sustained_compute_ratio, fit.compute_log_sigma),
        ("sustained_memory_ratio", fit.profile.sustained_memory_ratio, fit.memory_log_sigma),
    )
    page.table(
        [
            Heading(text="figure"),
            Heading(text="value", is_number=True),
            Heading(text="+-", is_number=True),
            Heading(text=""),
        ],
        [
            (name, f"{ratio:.3f}", units.format_ratio(sigma), _remark(sigma))
            for name, ratio, sigma in figures
            if ratio is not None
        ],
    )
    page.blank()
    for sentence in own_fit_sentences(fit):
        page.line(sentence)
    page.titled_list(
        "Not predicted:",
        (f"{row.measurement.file}:{row.measurement.line}: {row.reason}" for row in fit.failed[: view.top]),
    )
    if len(fit.failed) > view.top:
        page.line(f"{len(fit.failed) - view.top:,} more rows (--top {len(fit.failed)} shows all).", style="dim")
    return page.text()


def _remark(sigma: float) -> str:
    return "hardly determined by the rows" if sigma > _WEAK_LOG_SIGMA else ""
