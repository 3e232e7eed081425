"""The chart and the page of `advise validate`."""

from datetime import date
from xml.etree import ElementTree

import pytest

from advisor.answers.accuracy_score import score
from advisor.errors import UsageError
from advisor.report.accuracy_page import accuracy_document, predicted_against_measured
from advisor.report.html import render_document
from advisor.report.svg import chart_svg
from tests.answers.toys import failed, predicted

ACCURACY = score(
    [
        predicted(0.01, 0.01),
        predicted(0.02, 0.1, known="vendor"),
        predicted(1.0, 1.0, model="<script>", known="vendor"),
    ],
    [failed()],
)
SVG = "{http://www.w3.org/2000/svg}"


def test_points_are_grouped_by_what_was_known_above_the_diagonal_and_its_band() -> None:
    diagonal, device, vendor = predicted_against_measured(ACCURACY).series
    assert [(point.x, point.y, point.y_low, point.y_high) for point in diagonal.points] == [
        (0.01, 0.01, 0.0075, 0.0125),
        (1.0, 1.0, 0.75, 1.25),
    ]
    assert [(point.x, point.y) for point in device.points] == [(0.01, 0.01)]
    assert [(point.x, point.y) for point in vendor.points] == [(0.1, 0.02), (1.0, 1.0)]


def test_the_drawing_has_a_dot_for_each_row_on_the_diagonal_where_it_is_exact() -> None:
    drawing = ElementTree.fromstring(chart_svg(predicted_against_measured(ACCURACY)))
    paths = [path.attrib["d"] for path in drawing.iter(f"{SVG}path")]
    line, *dots = paths[-3:]
    # From 76 to 880 and 660 to 64 with 3 / 106 of each at both ends: 0.01 s is at (98.8, 643.1), 1 s at (857.2, 80.9).
    assert line == "M98.8 643.1L857.2 80.9"
    # 0.1 s is half way in log; 0.02 s is ln 2 / ln 100 = 0.1505 of 562.3 above 643.1.
    assert dots == ["M98.8 643.1h0", "M478.0 558.5h0M857.2 80.9h0"]


def test_without_a_prediction_there_is_no_drawing_but_a_page_with_the_reasons() -> None:
    nothing = score([], [failed()])
    with pytest.raises(UsageError):
        predicted_against_measured(nothing)
    assert [one.id for one in accuracy_document(nothing, made_on=date(2026, 1, 1)).sections] == ["scores", "failed"]


def test_the_page_has_a_table_for_each_grouping_and_every_row_beside_the_chart() -> None:
    document = accuracy_document(ACCURACY, made_on=date(2026, 1, 1))
    chart, scores, failures = document.sections
    assert len(chart.plots[0].table.rows) == 3
    assert [table.columns[0].header for table in scores.tables] == [
        "known", "generation", "device", "kind", "mode", "precision", "family",
    ]  # fmt: skip
    assert len(failures.lists[0].items) == 1
    assert "<script>, batch" not in render_document(document)
