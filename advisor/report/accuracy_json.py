"""Renders the accuracy of predictions as JSON."""

from typing import Any

from advisor.records.measurement import Accuracy, FailedRow
from advisor.report.as_json import to_json, to_plain


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
        "failed": [_failure(row) for row in accuracy.failed],
        "notes": list(accuracy.notes),
    }
    if with_rows:
        document["rows"] = accuracy.predicted
    return to_json(document)


def _failure(row: FailedRow) -> dict[str, Any]:
    measurement = row.measurement
    return {
        "file": measurement.file,
        "line": measurement.line,
        "model": measurement.model,
        "device": measurement.device,
        "reason": row.reason,
    }
