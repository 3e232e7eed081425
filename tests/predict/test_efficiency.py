import pytest

from advisor.calibrate.own_efficiencies import WHOLE_STEPS
from advisor.catalog.overlay import load_catalog
from advisor.fit.coefficients import COMPUTING
from advisor.ops.registry import formulas
from advisor.predict.efficiency import efficiency_of, family_efficiency, precision_class
from advisor.predict.precision import MATRIX_FAMILIES
from advisor.records.device import ANY, Efficiency, Precision
from tests.predict.toys import KNOWN_FAMILIES, device, efficiency, family

FITS = (
    efficiency(source="any"),
    efficiency(source="any fp32", precision="fp32"),
    efficiency(source="generation", generation="First"),
    efficiency(source="generation fp32", generation="First", precision="fp32"),
    efficiency(source="cpu", kind="cpu"),
    efficiency(source="generation half", generation="Third", precision="half"),
    efficiency(source="any half", precision="half"),
    efficiency(source="Acme half", vendor="Acme", generation="Fourth", precision="half"),
    efficiency(source="generation half again", generation="Fourth", precision="half"),
)


@pytest.mark.parametrize(
    ("generation", "precision", "expected"),
    [
        ("First", "fp32", "generation fp32"),
        ("First", "amp-bf16", "any half"),
        ("First", "tf32", "generation"),
        ("Third", "amp-bf16", "generation half"),
        ("Third", "fp16", "generation half"),
        ("Third", "fp32", "any fp32"),
        ("Fourth", "fp16", "Acme half"),
        ("Second", "bf16", "any half"),
        ("Second", "fp32", "any fp32"),
        ("Second", "tf32", "any"),
    ],
)
def test_the_most_specific_fit_wins_precision_before_generation_before_vendor(
    generation: str, precision: Precision, expected: str
) -> None:
    for fits in (FITS, FITS[::-1]):
        assert efficiency_of(device(generation=generation), precision=precision, efficiencies=fits).source == expected


def test_a_fit_for_another_vendor_or_kind_never_applies() -> None:
    others = (efficiency(vendor="Other"), efficiency(kind="cpu"))
    with pytest.raises(ValueError, match="no efficiency"):
        efficiency_of(device(), precision="fp32", efficiencies=others)


@pytest.mark.parametrize("precision", ["amp-fp16", "amp-bf16", "fp16", "bf16"])
def test_all_that_runs_on_16_bit_units_is_of_one_class(precision: Precision) -> None:
    assert precision_class(precision) == "half"


def test_fp32_and_tf32_are_classes_of_their_own() -> None:
    precisions: tuple[Precision, ...] = ("fp32", "tf32")
    assert [precision_class(precision) for precision in precisions] == ["fp32", "tf32"]


@pytest.mark.parametrize(
    ("measured", "wanted", "expected"),
    [
        (("conv", "conv_backward", "conv_grouped", "conv_grouped_backward"), "conv_grouped_backward", None),
        (("conv", "conv_backward", "conv_grouped"), "conv_grouped_backward", "conv_grouped"),
        (("conv", "conv_backward"), "conv_grouped_backward", "conv_backward"),
        (("conv",), "conv_grouped_backward", "conv"),
        (("conv", "conv_depthwise"), "conv_depthwise_backward", "conv_depthwise"),
        (("conv",), "conv_depthwise_backward", "*"),  # runs outside matrix units, so nothing like `conv`
        (("conv",), "conv_depthwise", "*"),
        (("conv",), "conv_grouped", "conv"),
        (("conv",), "conv_backward", "conv"),
        (("attention", "matmul"), "attention_backward", "attention"),
        (("matmul",), "attention_backward", "matmul"),
        (("matmul",), "attention", "matmul"),
        (("matmul",), "rnn", "matmul"),
        (("norm",), "norm_backward", "norm"),
        (("pool",), "pool_backward", "pool"),
        (("softmax", "norm"), "loss", "softmax"),
        (("norm",), "loss", "norm"),
        (("gather",), "embedding", "gather"),
        (("matmul",), "sort", "*"),
    ],
)
def test_a_family_that_was_not_measured_takes_the_nearest_one_that_was(
    measured: tuple[str, ...], wanted: str, expected: str | None
) -> None:
    entries = {name: family(compute_ratio=0.1 + index / 100) for index, name in enumerate((*measured, ANY))}
    found = family_efficiency(efficiency(families=entries), wanted)
    assert found is entries[expected or wanted]


def test_entries_come_in_the_order_asked_for() -> None:
    entries = {"matmul": family(compute_ratio=0.5), ANY: family()}
    found = [family_efficiency(efficiency(families=entries), family) for family in ("copy", "matmul")]
    assert [entry.compute_ratio for entry in found] == [1.0, 0.5]


SHIPPED = load_catalog().efficiencies


@pytest.mark.parametrize("fit", SHIPPED, ids=lambda fit: f"{fit.kind}-{fit.generation}-{fit.precision}")
def test_a_shipped_efficiency_is_physical_and_sourced(fit: Efficiency) -> None:
    assert ANY in fit.families
    assert fit.source
    assert 0 <= fit.overlap_ratio <= 1
    assert fit.dispatch_s > 0
    assert fit.device_log_spread > 0
    most = 2.5 if fit.generation == WHOLE_STEPS else 1.2  # of one machine: at 4.15 GHz, rated 2.6, and from caches
    for name, entry in fit.families.items():
        assert 0 < entry.compute_ratio <= most, name
        assert 0 < entry.memory_ratio <= most, name
        assert entry.log_spread >= 0, name
        assert entry.source, name
        on_others = entry.source == "steps on others"
        assert entry.n > 0 or entry.log_spread > 0 or on_others, name  # what nobody measured is not certain


@pytest.mark.parametrize("fit", SHIPPED, ids=lambda fit: f"{fit.kind}-{fit.generation}-{fit.precision}")
def test_the_coefficients_of_a_shipped_efficiency_are_physical(fit: Efficiency) -> None:
    for ratio in (fit.wave_ratio, fit.nchw_transposed_ratio, fit.cache_kept_ratio):
        assert 0 <= ratio <= 1
    for positive in (fit.tile_rows, fit.tile_columns, fit.backward_dispatch_s):
        assert positive > 0
    for at_least_nothing in (fit.edge_ramp, fit.depth_ramp, fit.launch_s, fit.power_exponent):
        assert at_least_nothing >= 0
    assert fit.winograd_speedup >= 1
    assert fit.clock_ratio >= 1
    assert fit.workload_log_spread >= 0


def test_every_shipped_device_has_a_shipped_efficiency() -> None:
    for kind in ("cpu", "gpu"):
        unheard_of = device(kind=kind, generation="of tomorrow")  # type: ignore[arg-type]
        for precision in ("fp32", "tf32", "amp-fp16", "amp-bf16", "bf16", "fp16"):
            efficiency_of(unheard_of, precision=precision, efficiencies=SHIPPED)  # type: ignore[arg-type]


def test_products_with_narrow_weights_are_as_fast_as_others_and_as_uncertain_as_what_is_unknown() -> None:
    entries = {"matmul": family(compute_ratio=0.5, memory_ratio=0.9), ANY: family(log_spread=0.4)}
    found = family_efficiency(efficiency(families=entries), "matmul_quantized")
    assert (found.compute_ratio, found.memory_ratio, found.log_spread) == (0.5, 0.9, 0.4)


def test_attention_of_one_token_streams_as_most_families_do() -> None:
    entries = {"attention": family(memory_ratio=0.4), "matmul": family(), ANY: family(memory_ratio=0.8)}
    found = family_efficiency(efficiency(families=entries), "attention_of_one")
    assert found is entries[ANY]


def test_every_family_of_operators_is_measured_or_has_others_that_stand_for_it() -> None:
    general = [one for one in load_catalog().efficiencies if {one.vendor, one.generation, one.precision} == {ANY}]
    assert {one.kind for one in general} == {"cpu", "gpu"}
    families = {one.family for one in formulas()} - KNOWN_FAMILIES - {"view"}  # views cost nothing
    missing = {(family, one.kind) for one in general for family in families - one.families.keys()}
    assert missing == set(), "measure them (make fit), or add them to _STAND_INS of advisor/predict/efficiency.py"


def test_every_family_of_matrix_products_has_a_fitted_share_of_the_peak() -> None:
    missing = MATRIX_FAMILIES - set(COMPUTING)
    assert missing == set(), "add them to COMPUTING of advisor/fit/coefficients.py"
