"""The shipped ratios of kernels for narrow numbers are those of their fit; devices left out stay within its errors."""

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("scipy")

from advisor.catalog.overlay import load_catalog

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ROOT / "profiles" / "engines" / "vllm.yaml"


@pytest.fixture
def fitted(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """The file that a fit writes, and what it prints."""
    monkeypatch.syspath_prepend(ROOT / "scripts")
    import fit_narrow_kernels

    engine = tmp_path / "vllm.yaml"
    engine.write_text(SHIPPED.read_text())
    measured = ROOT / "tests" / "data" / "measured" / "kernels"
    monkeypatch.setattr(sys, "argv", ["fit", "--measured", str(measured), "--engine", str(engine)])
    fit_narrow_kernels.main()
    return engine.read_text(), capsys.readouterr().out


def test_the_shipped_ratios_are_those_of_the_fit(fitted: tuple[str, str]) -> None:
    def ratios(text: str) -> list[float]:
        return [float(value) for value in re.findall(r"(?:_ratio|quantizing_\w+): ([\d.]+)$", text, flags=re.MULTILINE)]

    assert ratios(fitted[0]) == pytest.approx(ratios(SHIPPED.read_text()), rel=0.05)


def test_products_in_fp8_on_a_gpu_left_out_are_off_by_less_than_30_percent(fitted: tuple[str, str]) -> None:
    errors = re.findall(r"fp8 on ([\w-]+), left out: mean ([\d.]+)%", fitted[1])
    assert {name for name, _ in errors} == {"b200", "h100-sxm5-80gb", "l40s"}
    assert all(float(error) < 30 for _, error in errors), errors


def test_ratios_are_of_kernels_that_were_measured() -> None:
    kernels = load_catalog().engines["vllm"].weight_kernels
    assert all(0.5 < kernels[name].compute_ratio < 1 for name in ("fp8_w8a8", "nvfp4_w4a4"))
    assert all(0.7 < kernels[name].memory_ratio <= 1 for name in ("fp8_w8a8", "nvfp4_w4a4"))
