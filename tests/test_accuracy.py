"""Predictions beside published step times; the README's table is this test's.

README says that 90 % intervals hold 90 % and that the sample is off by 12 % in the mean and 6 % at the median.
"""

import math
import sys
from pathlib import Path

from advisor.answers.validation import validate
from advisor.records.answer import Z_90
from advisor.records.measurement import Accuracy
from advisor.records.options import Options

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "tests" / "data" / "measured" / "sample.csv"
LARGEST_MAPE, LARGEST_MEDIAN = 0.13, 0.07
"""A point more than README says, which rounds to one: a refit that moves more is a loss."""
STATED = 0.90


def least_coverage(n: int) -> float:
    """What 19 of 20 samples of n rows hold at least if intervals hold 90 % of all: of 172 rows 86 %."""
    return STATED - Z_90 * math.sqrt(STATED * (1 - STATED) / n)


def test_the_sample_is_predicted_within_its_bounds_and_the_readme_says_how_well() -> None:
    accuracy = validate([SAMPLE], Options())
    assert not accuracy.failed
    assert accuracy.overall.mape < LARGEST_MAPE
    assert accuracy.overall.median_ape < LARGEST_MEDIAN
    assert accuracy.overall.mape < accuracy.overall.roofline_mape / 2
    assert accuracy.overall.coverage_90 is not None
    assert accuracy.overall.coverage_90 > least_coverage(accuracy.overall.n)
    assert _table(accuracy) in (ROOT / "README.md").read_text()


def _table(accuracy: Accuracy) -> str:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        from write_accuracy import table
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    return str(table(accuracy))
