"""Which measured steps the shipped efficiencies are fitted to."""

from dataclasses import replace
from pathlib import Path

import pytest
from fit import FILES, is_fitted

from advisor.answers.measurement_file import read_measurements

MEASURED = Path(__file__).parent / "data/measured"
(OWN,) = (name for name in FILES if name.startswith("own/h100"))
ROWS = read_measurements(MEASURED / OWN)


@pytest.mark.parametrize(
    ("remark", "expected"), [("kernels fill 0.85", True), ("kernels fill 0.84", False), ("", False)]
)
def test_steps_of_an_own_gpu_are_fitted_that_its_host_did_not_delay(remark: str, expected: bool) -> None:
    assert is_fitted(replace(ROWS[0], source=f"own 2026-11-27; {remark} of the step")) is expected


def test_every_row_of_an_own_gpu_says_how_much_of_it_kernels_fill() -> None:
    assert all("kernels fill" in row.source for row in ROWS)
    assert 0 < sum(map(is_fitted, ROWS)) < len(ROWS)
