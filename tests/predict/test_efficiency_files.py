"""The shipped efficiencies are what the fit makes of the measured data."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"
SHIPPED = ROOT / "profiles" / "efficiency"


@pytest.mark.slow
@pytest.mark.skipif(not DATA.exists(), reason="the measured data is not beside the project")
def test_fitting_again_writes_the_same_files(tmp_path: Path) -> None:
    command = [sys.executable, "scripts/fit_efficiency.py", "--data", str(DATA), "--out", str(tmp_path)]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    written = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert written == {file.name: file.read_text() for file in SHIPPED.iterdir()}
