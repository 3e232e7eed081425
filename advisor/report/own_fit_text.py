"""The two figures that a device has of its own as text: what they are, how sure, and what they are worth."""

from collections.abc import Iterable

from advisor import units
from advisor.records.measurement import OwnFit
from advisor.report.text_page import Heading, Page
from advisor.report.view import View

_UNTOLD_LOG_SIGMA = 0.12
"""So near to the prior's 0.15 that the rows have said little."""


def own_fit_sentences(fit: OwnFit) -> Iterable[str]:
    """On what the figures were fitted, and the mean errors without and with them."""
    yield f"Fitted on {fit.n:,} measured steps of {fit.model_count:,} models, around 1 with a prior of 15 %."
    yield (
        f"Mean error: {units.format_ratio(fit.mape_without)} without the two figures, "
        f"{units.format_ratio(fit.mape)} with them, "
        f"{units.format_ratio(fit.left_out_mape)} on each model with those fitted on other models."
    )


def render_own_fit(fit: OwnFit, *, view: View) -> str:
    """Both figures in a table, the sentences, and what could not be predicted."""
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
    return "the rows say little of it" if sigma > _UNTOLD_LOG_SIGMA else ""
