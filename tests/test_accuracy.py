"""Predictions beside published step times; docs/accuracy.md shows the same table."""

import sys
from pathlib import Path

from advisor.answers.validation import validate
from advisor.records.measurement import Accuracy
from advisor.records.options import Options

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "tests" / "data" / "measured" / "sample.csv"
LARGEST_MAPE = 0.20
LEAST_COVERAGE = 0.80


def test_the_sample_is_predicted_within_its_bounds_and_the_page_says_how_well() -> None:
    accuracy = validate([SAMPLE], Options())
    assert not accuracy.failed
    assert accuracy.overall.mape < LARGEST_MAPE
    assert accuracy.overall.mape < accuracy.overall.roofline_mape / 2
    assert accuracy.overall.coverage_90 is not None
    assert accuracy.overall.coverage_90 > LEAST_COVERAGE
    assert _table(accuracy) in (ROOT / "docs" / "accuracy.md").read_text(), "run make accuracy"


def _table(accuracy: Accuracy) -> str:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        from write_accuracy import table
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    return str(table(accuracy))
