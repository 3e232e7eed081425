"""The shipped throughput of grouped matmuls of experts is that of its fit, and helps on GPUs left out, on average."""

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("scipy")

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ROOT / "profiles" / "engines" / "vllm.yaml"


def test_the_shipped_ratio_is_that_of_the_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    import fit_experts

    engine = tmp_path / "vllm.yaml"
    engine.write_text(SHIPPED.read_text())
    measured = ROOT / "tests" / "data" / "measured" / "kernels"
    monkeypatch.setattr(sys, "argv", ["fit", "--measured", str(measured), "--engine", str(engine)])
    fit_experts.main()

    def block(text: str) -> list[float]:
        found = re.search(r"^experts:\n  compute_ratio: (.*)\n  log_spread: (.*)\n", text, flags=re.MULTILINE)
        assert found is not None
        return [float(value) for value in found.groups()]

    assert block(engine.read_text()) == pytest.approx(block(SHIPPED.read_text()), rel=0.05)
    errors = dict(re.findall(r"^ *(.+?)(?:, ratio .*)?: mean ([\d.]+)%", capsys.readouterr().out, flags=re.MULTILINE))
    assert float(errors["left out"]) < float(errors["as other matmuls"])
    assert {name for name in errors if name.endswith(" left out")} == {
        f"{name} left out" for name in ("a100-sxm4-80gb", "b200", "h100-sxm5-80gb", "l40s")
    }
