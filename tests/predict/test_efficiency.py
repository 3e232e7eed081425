import pytest

from advisor.catalog.load import load_catalog
from advisor.predict.efficiency import ANY, efficiency_of
from advisor.records.device import Efficiency, Precision
from tests.predict.toys import device, efficiency

FITS = (
    efficiency(source="any"),
    efficiency(source="any fp32", precision="fp32"),
    efficiency(source="generation", generation="First"),
    efficiency(source="generation fp32", generation="First", precision="fp32"),
    efficiency(source="cpu", kind="cpu"),
)


@pytest.mark.parametrize(
    ("generation", "precision", "expected"),
    [
        ("First", "fp32", "generation fp32"),
        ("First", "amp-bf16", "generation"),
        ("Second", "fp32", "any fp32"),
        ("Second", "tf32", "any"),
    ],
)
def test_the_most_specific_fit_wins_generation_before_precision(
    generation: str, precision: Precision, expected: str
) -> None:
    for fits in (FITS, FITS[::-1]):
        assert efficiency_of(device(generation=generation), precision=precision, efficiencies=fits).source == expected


def test_a_fit_for_another_vendor_or_kind_never_applies() -> None:
    others = (efficiency(vendor="Other"), efficiency(kind="cpu"))
    with pytest.raises(ValueError, match="no efficiency"):
        efficiency_of(device(), precision="fp32", efficiencies=others)


SHIPPED = load_catalog().efficiencies


@pytest.mark.parametrize("fit", SHIPPED, ids=lambda fit: f"{fit.kind}-{fit.generation}-{fit.precision}")
def test_a_shipped_efficiency_is_physical_and_sourced(fit: Efficiency) -> None:
    assert ANY in fit.families
    assert fit.source
    assert fit.fitted_on
    assert 0 <= fit.overlap_ratio <= 1
    assert fit.dispatch_s > 0
    assert fit.device_log_spread > 0
    for name, entry in fit.families.items():
        assert 0 < entry.compute_ratio <= 1, name
        assert 0 < entry.memory_ratio <= 1, name
        assert entry.log_spread >= 0, name
        assert entry.n > 0 or entry.source.startswith("as "), name


def test_every_shipped_device_has_a_shipped_efficiency() -> None:
    for kind in ("cpu", "gpu"):
        unheard_of = device(kind=kind, generation="of tomorrow")  # type: ignore[arg-type]
        for precision in ("fp32", "tf32", "amp-fp16", "amp-bf16", "bf16", "fp16"):
            efficiency_of(unheard_of, precision=precision, efficiencies=SHIPPED)  # type: ignore[arg-type]
