"""A sweep over the batch agrees with real traces at its sizes: FLOP and bytes within 1 %."""

from dataclasses import replace
from pathlib import Path

import pytest

from advisor.records.workload import Mode
from advisor.workload.sources import load
from advisor.workload.summary import totals
from advisor.workload.trace import trace

EXAMPLES = Path(__file__).parents[1] / "examples"
SEED_CASES = ("mlp.py", "small_cnn.py", "lstm.py", "transformer.py", "word_embedding.py")
INSTALLED = (
    "torchvision:resnet50",
    "torchvision:mobilenet_v3_small",
    "timm:vit_tiny_patch16_224",
    "timm:convnext_atto",
)
BATCHES = (2, 24, 100)


def assert_sweep_agrees(source: str, mode: Mode) -> None:
    loaded = load(source, mode=mode, specs=())
    swept = trace(loaded, mode=mode, batch=None)
    assert swept.batch_is_affine
    for batch in BATCHES:
        alone = trace(replace(loaded, batch=batch, batch_is_fixed=True), mode=mode, batch=batch)
        assert alone.traced_batches == (batch,)
        expected, found = totals(alone, batch=batch), totals(swept, batch=batch)
        for name in ("flops", "read_bytes", "write_bytes", "peak_memory_bytes"):
            assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=0.01)


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("name", SEED_CASES)
def test_of_the_seed_cases(name: str, mode: Mode) -> None:
    assert_sweep_agrees(str(EXAMPLES / name), mode)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("source", INSTALLED)
def test_of_installed_models(source: str, mode: Mode) -> None:
    pytest.importorskip(source.partition(":")[0])
    assert_sweep_agrees(source, mode)
