"""Makes the answer on the accuracy of predictions, its JSON, and the report's section on it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from advisor.records.generation import Generation
from advisor.records.measurement import Accuracy, FailedRow, Score, ScoredGroup
from advisor.records.report_contents import AccuracyGroup
from advisor.report.amounts import count_text
from advisor.report.as_json import to_json, to_plain
from advisor.report.content import Block, Listing, Paragraph, Section, section
from advisor.report.tables import ColumnOf, column, more_note, numbers, table_of
from advisor.units import format_ratio

_LEGEND = (
    "In percent. mean, med., 90th: mean, median and 90th percentile of |predicted / measured - 1|, where a failed row "
    "counts as 100; bias: the geometric mean of predicted / measured, minus 1; in 90: the share of measurements inside "
    "the stated 90 % interval; roof and FLOP: the mean error of the plain roofline, and of FLOP times one constant.",
    "tau: Kendall's rank correlation between predicted and measured step times on one device.",
)
_WITHOUT_OWN_LEGEND = "bare: the mean error without the ratios that `advise fit-device` fitted for single devices."
_REPORTED: Mapping[str, str] = {"": "all", "device": "device", "kind": "kind", "mode": "mode"}
"""The groupings shown in a report."""
SERVED_ACCURACY = (
    "Single operators were measured: linear layers in fp16 (401 rows of Vidur's), off by 7.5 % in the mean on "
    "an A40 and by 8.9 % on an A100, each left out of the fit; RMS norms, rotary embeddings and gated activations "
    "(146 rows) by 9.8 % on an A40, fitted on an A100.",
    "Not measured: whole requests with their TTFT and TPOT, attention to a KV cache, weights in fp8, int8 and int4, "
    "what tensor parallel GPUs tell each other, language models on CPUs.",
)
"""The accuracy for LLM serving, of devices left out of the fit (docs/accuracy.md); language-models.md quotes it."""


def accuracy_content(accuracy: Accuracy, *, top: int) -> Iterator[Block]:
    """Yield the scores of all rows and of every group, then the `top` most frequent reasons of failed rows."""
    overall = accuracy.overall
    has_own = overall.own_figures_count > 0
    yield Paragraph(
        title=(
            f"Mean error {format_ratio(overall.mape)}, median {format_ratio(overall.median_ape)}, over {overall.n:,} "
            f"measured steps ({overall.failed_count:,} could not be predicted)."
        ),
        sentences=tuple(_devices(accuracy)),
    )
    for name, groups in _by_grouping(accuracy.groups).items():
        rows = [("all", overall), *((group.by[name], group.score) for group in groups[:top])]
        columns: list[ColumnOf[tuple[str, Score]]] = [
            column(name, lambda row: row[0]),
            *_SCORES,
            *([_BARE] if has_own else []),
        ]
        yield table_of(rows, columns, notes=more_note(len(groups), top=top), is_first_highlighted=True)
    yield Paragraph(sentences=(*_LEGEND, *([_WITHOUT_OWN_LEGEND] if has_own else [])), style="faint")
    reasons = _reasons(accuracy.failed)
    hidden = [f"{len(reasons) - top:,} more reasons (-o json lists every row)."] if len(reasons) > top else []
    yield Listing(title="Not predicted", items=(*reasons[:top], *hidden))
    yield Listing(title="Notes", items=accuracy.notes)


def render_accuracy_json(accuracy: Accuracy, *, with_rows: bool) -> str:
    """Return the scores of each group and of all rows as ratios; `with_rows` adds every prediction and measurement."""
    document: dict[str, Any] = {
        "groups": [{"by": dict(group.by), **to_plain(group.score)} for group in accuracy.groups],
        "overall": {
            **to_plain(accuracy.overall),
            "kendall_devices": accuracy.kendall_devices,
            "cheapest_right_ratio": accuracy.cheapest_right_ratio,
            "mean_extra_cost_ratio": accuracy.mean_extra_cost_ratio,
        },
        "failed": [
            {name: getattr(row.measurement, name) for name in ("file", "line", "model", "device")}
            | {"reason": row.reason}
            for row in accuracy.failed
        ],
        "notes": list(accuracy.notes),
    }
    if with_rows:
        document["rows"] = accuracy.predicted
    return to_json(document)


def _devices(accuracy: Accuracy) -> Iterable[str]:
    overall = accuracy.overall
    if overall.mape_without_own_figures is not None:
        yield (
            f"{overall.own_figures_count:,} of them ran on devices with fitted ratios (advise fit-device); without, "
            f"the mean error is {format_ratio(overall.mape_without_own_figures)}."
        )
    if accuracy.kendall_devices is not None:
        yield f"Rank correlation of the devices for the same step: tau {accuracy.kendall_devices:.2f}."
    if accuracy.cheapest_right_ratio is not None and accuracy.mean_extra_cost_ratio is not None:
        yield (
            f"The cheapest measured device is predicted correctly for {format_ratio(accuracy.cheapest_right_ratio)} of "
            f"the steps; on average, the choice costs {format_ratio(accuracy.mean_extra_cost_ratio)} more than the "
            "best."
        )


def _by_grouping(groups: Iterable[ScoredGroup]) -> dict[str, list[ScoredGroup]]:
    """Return the groups of each grouping, the largest first."""
    found: dict[str, list[ScoredGroup]] = {}
    for group in groups:
        (name,) = group.by
        found.setdefault(name, []).append(group)
    return {name: sorted(members, key=lambda group: -group.score.n) for name, members in found.items()}


def _percent(ratio: float) -> str:
    return f"{ratio * 100:.1f}"


def _score(
    header: str, value: Callable[[Score], float | None], text: Callable[[float], str] = _percent
) -> ColumnOf[tuple[str, Score]]:
    return numbers(header, lambda row: value(row[1]), text, missing="")


_SCORES: Sequence[ColumnOf[tuple[str, Score]]] = (
    _score("n", lambda score: score.n, str),  # no thousands separator, to leave room for the names
    _score("mean", lambda score: score.mape),
    _score("med.", lambda score: score.median_ape),
    _score("90th", lambda score: score.p90_ape),
    _score("bias", lambda score: score.bias, lambda bias: f"{bias * 100:+.1f}"),
    _score("in 90", lambda score: score.coverage_90),
    _score("roof", lambda score: score.roofline_mape),
    _score("FLOP", lambda score: score.constant_mape),
    _score("tau", lambda score: score.kendall, lambda tau: f"{tau:.2f}"),
)
_BARE = _score("bare", lambda score: score.mape_without_own_figures)


def _reasons(failed: Sequence[FailedRow]) -> list[str]:
    """Return the first line of each reason with its number of rows, the most frequent first."""
    rows: dict[str, list[FailedRow]] = {}
    for row in failed:
        rows.setdefault(row.reason.partition("\n")[0], []).append(row)
    return [
        f"{len(members):,} rows, first {members[0].measurement.file}:{members[0].measurement.line}: {reason}"
        for reason, members in sorted(rows.items(), key=lambda item: -len(item[1]))
    ]


def accuracy_section(groups: Sequence[AccuracyGroup], *, generation: Generation | None = None) -> Section:
    """Return the section on the error of predictions for measured steps; with `generation`, also on LLM serving."""
    shown = [group for group in groups if group.by in _REPORTED]
    errors = table_of(
        shown,
        _GROUP_COLUMNS,
        title="Errors by group",
        notes=[
            "Errors are |predicted / measured - 1| over published steps; bias is the geometric mean of predicted / "
            "measured, minus 1. Most of these devices were in the fit. Errors are larger on a device that was not, and "
            "the 90 % intervals are sized for such a device."
        ],
    )
    served = Listing(title="LLM serving", items=() if generation is None else SERVED_ACCURACY)
    lead = [_lead(group) for group in shown if not group.by]
    return section("accuracy", "How accurate this is", lead=lead, lists=[served], tables=[errors])


def _lead(group: AccuracyGroup) -> str:
    covered = group.coverage_90
    inside = "" if covered is None else f"; {format_ratio(covered)} are inside the 90 % interval"
    return (
        f"Over {group.n:,} measured steps the mean error is {format_ratio(group.mape)} and the median "
        f"{format_ratio(group.median_ape)}{inside}. The mean error of the plain roofline is "
        f"{format_ratio(group.roofline_mape)}."
    )


_GROUP_COLUMNS: Sequence[ColumnOf[AccuracyGroup]] = (
    column("by", lambda group: _REPORTED[group.by], is_choice=True),
    column("group", lambda group: group.name or "all"),
    numbers("steps", lambda group: group.n, count_text),
    numbers("mean error", lambda group: group.mape, format_ratio),
    numbers("median", lambda group: group.median_ape, format_ratio),
    numbers("bias", lambda group: group.bias, lambda bias: f"{bias:+.0%}".replace("%", " %")),
    numbers("inside 90 %", lambda group: group.coverage_90, format_ratio),
    numbers("plain roofline", lambda group: group.roofline_mape, format_ratio),
)
