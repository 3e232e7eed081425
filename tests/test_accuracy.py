"""Predictions beside published step times; docs/accuracy.md shows the same table.

Intervals are meant to hold 90 % of the steps, and the page gives 12 % as the sample's mean error, 6 % as its median.
"""

import math
import sys
from pathlib import Path

import pytest
from fit import is_fitted

from advisor.answers.validation import validate
from advisor.records.answer import Z_90
from advisor.records.measurement import Accuracy, PredictedRow
from advisor.records.options import Options

ROOT = Path(__file__).resolve().parents[1]
MEASURED = ROOT / "tests" / "data" / "measured"
SAMPLE, EXAMPLES = MEASURED / "sample.csv", MEASURED / "deep_learning_examples.csv"
DASHBOARD = MEASURED / "inductor_dashboard.csv"
LARGEST_MAPE, LARGEST_MEDIAN = 0.13, 0.07
"""One point above the figures of docs/accuracy.md, which are rounded: a refit that loses more fails."""
STATED = 0.90


def least_coverage(n: int) -> float:
    """Return the coverage that 19 of 20 samples of n rows exceed if intervals hold 90 % of all: 86 % for 172 rows."""
    return STATED - Z_90 * math.sqrt(STATED * (1 - STATED) / n)


def of_today(row: PredictedRow) -> bool:
    """Return whether the row's kernels are like today's.

    cuDNN of 2020 ran 16-bit and TF32 kernels several times slower, and the fit hardly counts these rows.
    """
    return not row.measurement.source.startswith("ryujaehun") or row.measurement.precision == "fp32"


def test_the_sample_is_predicted_within_its_bounds_and_the_page_says_how_well() -> None:
    accuracy = validate([SAMPLE], Options())
    assert not accuracy.failed
    assert accuracy.overall.mape < LARGEST_MAPE
    assert accuracy.overall.median_ape < LARGEST_MEDIAN
    assert accuracy.overall.mape < accuracy.overall.roofline_mape / 2
    inside = [row.low_s <= row.measurement.step_s <= row.high_s for row in accuracy.predicted if of_today(row)]
    assert sum(inside) / len(inside) > least_coverage(len(inside))
    assert _table(accuracy) in (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8"), "run make accuracy"


@pytest.mark.slow  # traces BERT, WaveGlow and three ResNets
def test_what_a_cloud_timed_is_predicted_without_a_fit_as_well_as_the_page_says() -> None:
    rows = [row for row in validate([EXAMPLES], Options()).predicted if row.measurement.source.startswith("lambdal/")]
    apes = [abs(row.predicted_s / row.measurement.step_s - 1) for row in rows]
    assert len(rows) == 91
    assert sum(apes) / len(apes) < 0.096  # one point above docs/internals/accuracy-steps.md
    inside = [row.low_s <= row.measurement.step_s <= row.high_s for row in rows]
    assert sum(inside) / len(inside) > least_coverage(len(inside))


@pytest.mark.slow  # traces 70 models
def test_the_models_that_no_fit_took_are_predicted_on_many_cores_as_well_as_the_page_says() -> None:
    rows = [
        row
        for row in validate([DASHBOARD], Options()).predicted
        if not is_fitted(row.measurement) and not row.measurement.device.endswith("@1")
    ]
    apes = [abs(row.predicted_s / row.measurement.step_s - 1) for row in rows]
    assert len(rows) == 49
    assert sum(apes) / len(apes) < 0.20  # one point above docs/internals/accuracy-steps.md
    inside = [row.low_s <= row.measurement.step_s <= row.high_s for row in rows]
    assert sum(inside) / len(inside) > least_coverage(len(inside))


def _table(accuracy: Accuracy) -> str:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        from write_accuracy import table
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    return str(table(accuracy))
