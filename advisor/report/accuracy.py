"""Makes the answer on the accuracy of predictions, its JSON, and the report's section on it."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

from advisor.records.device_memory import Verdict
from advisor.records.generation import Generation
from advisor.records.measurement import Accuracy, FailedRow, Known, Score, ScoredGroup
from advisor.records.report_contents import AccuracyGroup
from advisor.report.amounts import count_text
from advisor.report.as_json import as_dict, to_json
from advisor.report.content import Block, Listing, Paragraph, Section, Table
from advisor.report.tables import ColumnOf, column, more_note, numbers, table_of
from advisor.units import format_ratio

_LEGEND = (
    "In percent. mean, med., 90th: mean, median and 90th percentile of |predicted / measured - 1|, where a failed row "
    "counts as 100; bias: the geometric mean of predicted / measured, minus 1; in 90: the share of measurements inside "
    "the stated 90 % interval; roof and FLOP: the mean error of the plain roofline, and of FLOP times one constant.",
    "tau: Kendall's rank correlation between predicted and measured step times on one device.",
    "known: what was in the fit: the device itself, only another device of its generation, only another generation of "
    "its vendor, or nothing of its vendor; calibrated: a calibration of the machine applies. width: the median "
    "half-width of the 90 % intervals over the mean error, both in log; normal errors need 2.06.",
)
_WITHOUT_OWN_LEGEND = "bare: the mean error without the ratios that `advise fit-device` fitted for single devices."
_REPORTED: Mapping[str, str] = {"": "all", "device": "device", "known": "known", "kind": "kind", "mode": "mode"}
"""The groupings shown in a report."""
_KNOWN: Sequence[str] = get_args(Known)
_VERDICTS: Mapping[Verdict, str] = {"fits": "fit", "tight": "may or may not fit", "does not fit": "do not fit"}
SERVED_ACCURACY = (
    "vLLM 0.22.1 on machines of shapes left out of the fit: with one request, time per output token is off by 6 % on "
    "GPUs and by 12 to 26 % on CPUs; under load by 12 % and by 13 to 29 %; time to first token by 15 % and by 13 to "
    "30 %.",
    "A GPU and a CPU that the fit did not see (A10G, EPYC 7452): time per output token 6 and 20 %, time to first "
    "token 25 and 80 %.",
    "Services of older vLLM (0.10 to 0.17) on A100, H100 and H200 with models of 8 to 671 billion parameters, none of "
    "them in a fit: TPOT is predicted 18 % too short, the time for a token when hundreds of prompts are sent at once "
    "is off by 22 %, and TTFT is predicted at about half of the measured time. Not measured as services: weights in "
    "int8, int4, nf4 and nvfp4, narrow caches, pipelines, expert parallelism, several machines. Engines other than "
    "vLLM have no fit.",
)
"""The accuracy for LLM serving, of devices left out of the fit; docs/language-models.md quotes it."""


def accuracy_content(accuracy: Accuracy, *, top: int) -> Iterator[Block]:
    """Yield the scores of all rows and of every group, then the `top` most frequent reasons of failed rows."""
    yield Paragraph(title=accuracy_headline(accuracy), sentences=tuple(device_sentences(accuracy)))
    yield from score_tables(accuracy, top=top)
    if about_peaks := tuple(peak_sentences(accuracy)):
        yield Paragraph(title="Peak memory of fine-tuning", sentences=about_peaks)
    yield Paragraph(sentences=score_legend(accuracy), style="faint")
    yield from failure_listings(accuracy, top=top)


def accuracy_headline(accuracy: Accuracy) -> str:
    """Return the sentence on all rows."""
    overall = accuracy.overall
    return (
        f"Mean error {format_ratio(overall.mape)}, median {format_ratio(overall.median_ape)}, over {overall.n:,} "
        f"measured steps ({overall.failed_count:,} could not be predicted)."
    )


def score_tables(accuracy: Accuracy, *, top: int) -> Iterator[Table]:
    """Yield a table for each grouping, with all rows first and then the `top` largest groups."""
    bare = [_BARE] if accuracy.overall.own_figures_count else []
    for name, groups in _by_grouping(accuracy.groups).items():
        rows = [("all", accuracy.overall), *((group.by[name], group.score) for group in groups[:top])]
        scores = _INTERVAL_SCORES if name in _INTERVALS_SHOWN else (*_SCORES, *bare)
        columns: list[ColumnOf[tuple[str, Score]]] = [column(name, lambda row: row[0]), *scores]
        yield table_of(rows, columns, notes=more_note(len(groups), top=top), highlighted=0)


def score_legend(accuracy: Accuracy) -> tuple[str, ...]:
    """Return what the columns of the tables mean."""
    return (*_LEGEND, *([_WITHOUT_OWN_LEGEND] if accuracy.overall.own_figures_count else []))


def failure_listings(accuracy: Accuracy, *, top: int) -> Iterator[Listing]:
    """Yield the `top` most frequent reasons of failed rows, and the notes on the user's files."""
    reasons = _reasons(accuracy.failed)
    hidden = [f"{len(reasons) - top:,} more reasons (-o json lists every row)."] if len(reasons) > top else []
    yield Listing(title="Not predicted", items=(*reasons[:top], *hidden))
    yield Listing(title="Notes", items=accuracy.notes)


def render_accuracy_json(accuracy: Accuracy, *, with_rows: bool) -> str:
    """Return the scores of each group and of all rows as ratios; `with_rows` adds every prediction and measurement."""
    document: dict[str, Any] = {
        "groups": [{"by": dict(group.by), **as_dict(group.score)} for group in accuracy.groups],
        "overall": {
            **as_dict(accuracy.overall),
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
        document["peaks"] = accuracy.peaks
    return to_json(document)


def device_sentences(accuracy: Accuracy) -> Iterable[str]:
    """Yield sentences on the order of devices, and on ratios that were fitted for single devices."""
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


def peak_sentences(accuracy: Accuracy) -> Iterable[str]:
    """Yield sentences on the predicted peak memory of fine-tuning runs, and on those that ran out of memory."""
    ratios = [one.allocated_bytes / one.measured_bytes for one in accuracy.peaks if one.measured_bytes]
    if ratios:
        error = sum(abs(ratio - 1) for ratio in ratios) / len(ratios)
        bias = math.exp(sum(map(math.log, ratios)) / len(ratios)) - 1
        yield f"Mean error {format_ratio(error)} over {len(ratios):,} runs, bias {bias * 100:+.1f} %."
    for what, has_peak in (("ran", True), ("failed", False)):
        verdicts = Counter(one.verdict for one in accuracy.peaks if (one.measured_bytes is not None) == has_peak)
        if verdicts:
            parts = [f"{verdicts[verdict]:,} {words}" for verdict, words in _VERDICTS.items() if verdicts[verdict]]
            yield f"{verdicts.total():,} runs {what}; by the prediction {', '.join(parts)}."


def _by_grouping(groups: Iterable[ScoredGroup]) -> dict[str, list[ScoredGroup]]:
    """Return the groups of each grouping: those of `Known` in its order, others the largest first."""
    found: dict[str, list[ScoredGroup]] = {}
    for group in groups:
        (name,) = group.by
        found.setdefault(name, []).append(group)

    def place(group: ScoredGroup) -> float:
        if (known := group.by.get("known")) is None:
            return -group.score.n
        return _KNOWN.index(known) if known in _KNOWN else len(_KNOWN)

    return {name: sorted(members, key=place) for name, members in found.items()}


def _percent(ratio: float) -> str:
    return f"{ratio * 100:.1f}"


def _score(
    header: str, value: Callable[[Score], float | None], text: Callable[[float], str] = _percent
) -> ColumnOf[tuple[str, Score]]:
    return numbers(header, lambda row: value(row[1]), text, missing="")


_N = _score("n", lambda score: score.n, str)  # no thousands separator, to leave room for the names
_MEAN = _score("mean", lambda score: score.mape)
_MEDIAN = _score("med.", lambda score: score.median_ape)
_BIAS = _score("bias", lambda score: score.bias, lambda bias: f"{bias * 100:+.1f}")
_INSIDE = _score("in 90", lambda score: score.coverage_90)
_WIDTH = _score("width", lambda score: score.half_width_ratio, lambda ratio: f"{ratio:.2f}")
_INTERVALS_SHOWN = frozenset({"known", "generation"})
_INTERVAL_SCORES = (_N, _MEAN, _MEDIAN, _BIAS, _INSIDE, _WIDTH)
_SCORES: Sequence[ColumnOf[tuple[str, Score]]] = (
    *(_N, _MEAN, _MEDIAN),
    _score("90th", lambda score: score.p90_ape),
    *(_BIAS, _INSIDE),
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
    lead = (*(_lead(group) for group in shown if not group.by), "Errors by device, kind and mode")
    return Section(id="accuracy", title="Accuracy", lead=lead, lists=(served,), tables=(errors,), is_folded=True)


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
