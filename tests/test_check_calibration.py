"""The script that holds a calibration to real steps: how far two calibrations are apart."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from check_calibration import difference

from advisor.records.calibration import TIMED_HERE, Calibration
from tests.calibrate.toys import calibration
from tests.predict.toys import efficiency, family


def made(*, matmul_ratio: float, dispatch_s: float) -> Calibration:
    timed = replace(family(compute_ratio=matmul_ratio, memory_ratio=0.5), source=TIMED_HERE)
    shipped = replace(family(compute_ratio=100 * matmul_ratio), source="as shipped")
    own = efficiency(
        kind="cpu",
        precision="fp32",
        dispatch_s=dispatch_s,
        overlap_ratio=1.0,
        families={"matmul": timed, "fft": shipped},
    )
    return calibration(efficiencies=[own])


def test_the_median_is_over_what_follows_the_operators() -> None:
    first, second = made(matmul_ratio=0.5, dispatch_s=1e-6), made(matmul_ratio=0.6, dispatch_s=1.3e-6)

    # What matmul computes at, +20 %; the host's times are held, and fft was not timed.
    assert difference(first, second) == pytest.approx(0.2)
    assert difference(first, first) == 0.0
