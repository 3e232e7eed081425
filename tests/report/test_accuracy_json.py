import json

from advisor.answers.accuracy_score import score
from advisor.report.accuracy import render_accuracy_json
from tests.answers.toys import failed, predicted

ACCURACY = score([predicted(1.25)], [failed("no kernels", line=7)])
SCORE_KEYS = {
    "n", "failed_count", "mape", "median_ape", "p90_ape", "bias", "kendall", "coverage_90", "roofline_mape",
    "constant_mape", "half_width_ratio", "own_figures_count", "mape_without_own_figures",
}  # fmt: skip


def test_groups_stand_beside_their_values_and_overall_has_what_is_of_devices() -> None:
    document = json.loads(render_accuracy_json(ACCURACY, with_rows=False))
    assert document.keys() == {"groups", "overall", "failed", "notes"}
    assert [group["by"] for group in document["groups"]] == [
        {"known": "device"},
        {"known": "not predicted"},
        {"generation": "Turing"},
        {"device": "t4"},
        {"kind": "gpu"},
        {"mode": "inference"},
        {"precision": "fp32"},
        {"family": "timm:resnet"},
    ]
    assert all(group.keys() == SCORE_KEYS | {"by"} for group in document["groups"])
    assert document["overall"].keys() == SCORE_KEYS | {
        "kendall_devices",
        "cheapest_right_ratio",
        "mean_extra_cost_ratio",
    }
    # Errors of 0.25 and, failed, 1.
    assert document["overall"]["mape"] == 0.625


def test_what_failed_is_listed_with_its_place_and_reason() -> None:
    document = json.loads(render_accuracy_json(ACCURACY, with_rows=False))
    assert document["failed"] == [
        {"file": "mine.csv", "line": 7, "model": "timm:resnet50@224", "device": "t4", "reason": "no kernels"}
    ]


def test_rows_are_added_where_asked() -> None:
    (row,) = json.loads(render_accuracy_json(ACCURACY, with_rows=True))["rows"]
    assert (row["predicted_s"], row["measurement"]["step_s"], row["device"]) == (1.25, 1.0, "t4")
