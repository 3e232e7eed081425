"""vLLM's file has the figures that scripts fit to its kernels, and they help on GPUs left out of the fit."""

import math
import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("scipy")

from advisor.catalog.overlay import load_catalog

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ROOT / "profiles" / "engines" / "vllm.yaml"

Fit = Callable[[str], tuple[str, str]]


@pytest.fixture
def fitted(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Fit:
    """Run a script of `make fit` on a copy of the engine's file; return the file that it writes, and what it prints."""

    def run(script: str) -> tuple[str, str]:
        engine = tmp_path / "vllm.yaml"
        engine.write_text(SHIPPED.read_text())
        measured = ROOT / "tests" / "data" / "measured" / "kernels"
        monkeypatch.syspath_prepend(ROOT / "scripts")
        monkeypatch.setattr(sys, "argv", ["fit", "--measured", str(measured), "--engine", str(engine)])
        import_module(script).main()
        return engine.read_text(), capsys.readouterr().out

    return run


def test_ratios_of_narrow_kernels_are_those_of_their_fit_and_hold_on_a_gpu_left_out(fitted: Fit) -> None:
    text, printed = fitted("fit_narrow_kernels")

    def ratios(text: str) -> list[float]:
        return [float(value) for value in re.findall(r"(?:_ratio|quantizing_\w+): ([\d.]+)$", text, flags=re.MULTILINE)]

    assert ratios(text) == pytest.approx(ratios(SHIPPED.read_text()), rel=0.05)

    def spread(text: str) -> float:
        return float(re.findall(r"^  fp8_w8a8:\n(?:    .*\n)*?    log_spread: (.*)$", text, flags=re.MULTILINE)[0])

    # A standard deviation: the root mean square of the errors on three GPUs left out, which have as many rows each.
    large = [float(error) for error in re.findall(r"fp8 on .*FLOP: .* rms ([\d.]+)", printed)]
    assert spread(text) == pytest.approx(math.hypot(*large) / math.sqrt(3), abs=0.01)
    assert spread(SHIPPED.read_text()) == pytest.approx(spread(text), abs=0.02)
    errors = re.findall(r"fp8 on ([\w-]+), left out: mean ([\d.]+)%", printed)
    assert {name for name, _ in errors} == {"b200", "h100-sxm5-80gb", "l40s"}
    assert all(float(error) < 30 for _, error in errors), errors


def test_ratios_are_of_kernels_that_were_measured() -> None:
    kernels = load_catalog().engines["vllm"].weight_kernels
    assert all(0.5 < kernels[name].compute_ratio < 1 for name in ("fp8_w8a8", "nvfp4_w4a4"))
    assert all(0.7 < kernels[name].memory_ratio <= 1 for name in ("fp8_w8a8", "nvfp4_w4a4"))


def test_the_throughput_of_experts_is_that_of_its_fit_and_helps_on_gpus_left_out(fitted: Fit) -> None:
    text, printed = fitted("fit_experts")

    def block(text: str) -> list[float]:
        found = re.search(r"^experts:\n  compute_ratio: (.*)\n  log_spread: (.*)\n", text, flags=re.MULTILINE)
        assert found is not None
        return [float(value) for value in found.groups()]

    assert block(text) == pytest.approx(block(SHIPPED.read_text()), rel=0.05)
    # The spread is a standard deviation: the root mean square of the errors, not their mean size.
    assert block(text)[1] == float(re.findall(r"^left out: .* rms ([\d.]+)", printed, flags=re.MULTILINE)[0])
    errors = dict(re.findall(r"^ *(.+?)(?:, ratio .*)?: mean ([\d.]+)%", printed, flags=re.MULTILINE))
    assert float(errors["left out"]) < float(errors["as other matmuls"])
    assert {name for name in errors if name.endswith(" left out")} == {
        f"{name} left out" for name in ("a100-sxm4-80gb", "b200", "h100-sxm5-80gb", "l40s")
    }
