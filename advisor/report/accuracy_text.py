"""Renders the accuracy of predictions as text: overall, by group, and the rows that could not be predicted."""

from collections.abc import Iterable, Sequence

from advisor import units
from advisor.records.measurement import Accuracy, FailedRow, Score, ScoredGroup
from advisor.report.text_page import Heading, Page
from advisor.report.view import View

_HEADINGS = ("n", "mean", "med.", "90th", "bias", "in 90", "roof", "FLOP", "tau")
_WITHOUT_OWN_HEADING = "bare"
_LEGEND = (
    "In percent. mean, med., 90th: mean, median and 90th percentile of |predicted / measured - 1|, where a failed row "
    "counts as 100; bias: the geometric mean of predicted / measured, minus 1; in 90: the share of measurements inside "
    "the stated 90 % interval; roof and FLOP: the mean error of the plain roofline, and of FLOP times one constant.",
    "tau: Kendall's rank correlation between predicted and measured step times on one device.",
)
_WITHOUT_OWN_LEGEND = "bare: the mean error without the ratios that `advise fit-device` fitted for single devices."


def render_accuracy(accuracy: Accuracy, *, view: View) -> str:
    """Return the scores of all rows and of every group, then the `view.top` most frequent reasons of failed rows."""
    page = Page(width=view.width, color=view.color)
    overall = accuracy.overall
    has_own = overall.own_figures_count > 0
    page.line(
        f"Mean error {units.format_ratio(overall.mape)}, median {units.format_ratio(overall.median_ape)}, "
        f"over {overall.n:,} measured steps ({overall.failed_count:,} could not be predicted).",
        style="bold",
    )
    for sentence in _devices(accuracy):
        page.line(sentence)
    page.blank()
    for name, groups in _by_grouping(accuracy.groups).items():
        shown = groups[: view.top]
        rows = [("all", overall), *((group.by[name], group.score) for group in shown)]
        headings = (*_HEADINGS, _WITHOUT_OWN_HEADING) if has_own else _HEADINGS
        page.table(
            [Heading(text=name), *(Heading(text=text, is_number=True) for text in headings)],
            [(label, *_cells(score), *([_without_own(score)] if has_own else [])) for label, score in rows],
        )
        if len(groups) > view.top:
            page.line(f"{len(groups) - view.top:,} more (--top {len(groups)} shows all).", style="dim")
        page.blank()
    for line in (*_LEGEND, _WITHOUT_OWN_LEGEND) if has_own else _LEGEND:
        page.line(line, style="dim")
    reasons = _reasons(accuracy.failed)
    page.titled_list("Not predicted:", reasons[: view.top])
    if len(reasons) > view.top:
        page.line(f"{len(reasons) - view.top:,} more reasons (-o json lists every row).", style="dim")
    page.titled_list("Notes:", accuracy.notes)
    return page.text()


def _devices(accuracy: Accuracy) -> Iterable[str]:
    overall = accuracy.overall
    if overall.mape_without_own_figures is not None:
        yield (
            f"{overall.own_figures_count:,} of them ran on devices with fitted ratios (advise fit-device); without, "
            f"the mean error is {units.format_ratio(overall.mape_without_own_figures)}."
        )
    if accuracy.kendall_devices is not None:
        yield f"Rank correlation of the devices for the same step: tau {accuracy.kendall_devices:.2f}."
    if accuracy.cheapest_right_ratio is not None and accuracy.mean_extra_cost_ratio is not None:
        yield (
            f"The cheapest measured device is predicted correctly for "
            f"{units.format_ratio(accuracy.cheapest_right_ratio)} of the steps; on average, the choice costs "
            f"{units.format_ratio(accuracy.mean_extra_cost_ratio)} more than the best."
        )


def _by_grouping(groups: Iterable[ScoredGroup]) -> dict[str, list[ScoredGroup]]:
    """Return the groups of each grouping, the largest first."""
    found: dict[str, list[ScoredGroup]] = {}
    for group in groups:
        (name,) = group.by
        found.setdefault(name, []).append(group)
    return {name: sorted(members, key=lambda group: -group.score.n) for name, members in found.items()}


def _cells(score: Score) -> tuple[str, ...]:
    return (
        str(score.n),  # no thousands separator, to leave room for the names
        *map(_percent, (score.mape, score.median_ape, score.p90_ape)),
        "" if score.bias is None else f"{score.bias * 100:+.1f}",
        "" if score.coverage_90 is None else _percent(score.coverage_90),
        *map(_percent, (score.roofline_mape, score.constant_mape)),
        "" if score.kendall is None else f"{score.kendall:.2f}",
    )


def _without_own(score: Score) -> str:
    return "" if score.mape_without_own_figures is None else _percent(score.mape_without_own_figures)


def _percent(ratio: float) -> str:
    return f"{ratio * 100:.1f}"


def _reasons(failed: Sequence[FailedRow]) -> list[str]:
    """Return the first line of each reason with its number of rows, the most frequent first."""
    rows: dict[str, list[FailedRow]] = {}
    for row in failed:
        rows.setdefault(row.reason.partition("\n")[0], []).append(row)
    return [
        f"{len(members):,} rows, first {members[0].measurement.file}:{members[0].measurement.line}: {reason}"
        for reason, members in sorted(rows.items(), key=lambda item: -len(item[1]))
    ]
