from dataclasses import replace

import pytest

from advisor.predict.precision import (
    computed_dtype,
    computing_family,
    precisions_of,
    resolve_precision,
    stored_dtype,
    unit_of,
)
from advisor.predict.rates import sustained_flops_per_s
from advisor.records.device import DeviceKind, Precision
from advisor.records.script import Script
from tests.predict.toys import device, efficiency, operand, row


def with_units(**flops_per_s: float) -> dict[str, float]:
    return {"vector": 10e12, "fp32": 10e12, **flops_per_s}


@pytest.mark.parametrize(
    ("units", "expected"),
    [
        (with_units(bf16=80e12, fp16=80e12), "amp-bf16"),  # Ampere
        (with_units(fp16=80e12), "amp-fp16"),  # Volta, Turing: tensor cores
        (with_units(fp16=20e12), "fp32"),  # P100: two halves in a lane, no tensor cores
        (with_units(), "fp32"),
    ],
)
def test_autocast_is_bf16_where_native_else_fp16_on_tensor_cores(units: dict[str, float], expected: Precision) -> None:
    plain = device(peak_flops_per_s=units)
    assert resolve_precision("auto", plain) == expected
    assert precisions_of("auto", plain, rows=()) == tuple(dict.fromkeys(("fp32", expected)))


def test_autocast_is_bf16_where_a_compiler_of_whole_models_casts() -> None:
    neuron = replace(device(peak_flops_per_s=with_units(bf16=95e12, fp16=95e12)), stack="torch-neuronx")
    for choice in ("auto", "amp-bf16", "half", "bf16"):
        assert resolve_precision(choice, neuron) == "bf16"
    assert resolve_precision("fp16", neuron) == "fp16"
    assert precisions_of("auto", neuron, rows=()) == ("fp32", "bf16")


def test_auto_compares_autocast_with_the_fp32_of_torchs_defaults() -> None:
    ampere, turing = (device(peak_flops_per_s=with_units(fp16=80e12, **more)) for more in ({"tf32": 40e12}, {}))
    conv, product = row("aten.convolution", family="conv"), row("aten.mm", family="matmul")
    assert precisions_of("auto", ampere, rows=(product, conv)) == ("cudnn-tf32", "amp-fp16")
    assert precisions_of("auto", ampere, rows=(product,)) == ("fp32", "amp-fp16")  # nothing that cuDNN runs
    assert precisions_of("auto", turing, rows=(conv,)) == ("fp32", "amp-fp16")
    assert precisions_of("fp16", device(kind="cpu", peak_flops_per_s=with_units()), rows=()) == ()


def test_auto_leaves_out_autocast_where_torch_refuses_it() -> None:
    """Encoder layers on CPUs, on a batch that is nested because of its padding."""
    cpu, gpu = (device(kind=kind, peak_flops_per_s=with_units(bf16=80e12)) for kind in ("cpu", "gpu"))
    layer = row("encoder_layer", family="attention")
    mask = row("aten._nested_tensor_from_mask_left_aligned", family="reduction")
    assert precisions_of("auto", cpu, rows=(mask, layer)) == ("fp32",)
    assert precisions_of("auto", cpu, rows=(layer,)) == ("fp32", "amp-bf16")
    assert precisions_of("auto", gpu, rows=(mask, layer)) == ("fp32", "amp-bf16")
    assert precisions_of("amp-bf16", cpu, rows=(mask, layer)) == ("amp-bf16",)


def test_a_cpu_refuses_a_precision_without_a_unit() -> None:
    plain = device(kind="cpu", peak_flops_per_s=with_units())
    assert resolve_precision("amp-bf16", plain) is None
    assert resolve_precision("fp16", plain) is None
    assert resolve_precision("fp32", plain) == "fp32"


def test_a_gpu_without_a_unit_for_half_stores_in_half_and_computes_in_fp32() -> None:
    plain = device(peak_flops_per_s=with_units())
    choices: tuple[Precision, ...] = ("amp-fp16", "amp-bf16", "fp16", "bf16")
    assert [resolve_precision(choice, plain) for choice in choices] == list(choices)
    assert sustained_flops_per_s(plain, efficiency(), unit="bf16") == 10e12  # the rate of fp32


def test_tf32_is_a_permission_that_other_devices_ignore() -> None:
    assert resolve_precision("tf32", device(peak_flops_per_s=with_units())) == "fp32"
    assert resolve_precision("tf32", device(peak_flops_per_s=with_units(tf32=40e12))) == "tf32"


def test_autocast_stores_only_low_operands_in_half() -> None:
    assert stored_dtype(operand(2, low=True), width="autocast") == "float16"
    assert stored_dtype(operand(2), width="autocast") == "float32"
    assert stored_dtype(operand(2, low=True), width="full") == "float32"


def test_pure_half_stores_every_float_in_half_and_no_integer() -> None:
    assert stored_dtype(operand(2), width="half") == "float16"
    assert stored_dtype(operand(2, dtype="int64"), width="half") == "int64"


def test_autocast_runs_low_operators_in_half_and_full_ones_in_fp32() -> None:
    low_input = operand(2, low=True)
    assert computed_dtype(width="autocast", autocast="low")(operand(2)) == "float16"
    assert computed_dtype(width="autocast", autocast="full")(low_input) == "float32"
    assert computed_dtype(width="autocast", autocast="widest")(low_input) == "float16"


@pytest.mark.parametrize(
    ("family", "dtype", "precision", "unit"),
    [
        ("matmul", "float32", "fp32", "fp32"),
        ("matmul", "float32", "tf32", "tf32"),
        ("conv", "float32", "cudnn-tf32", "tf32"),
        ("matmul", "float32", "cudnn-tf32", "fp32"),
        ("conv", "float32", "amp-bf16", "tf32"),  # outside of autocast
        ("matmul", "float32", "amp-fp16", "fp32"),
        ("conv", "float16", "amp-bf16", "bf16"),
        ("conv", "float16", "amp-fp16", "fp16"),
        ("matmul", "bfloat16", "fp32", "bf16"),  # a model that is in bf16 itself
        ("pointwise", "float16", "amp-fp16", "vector"),
        ("matmul", "float64", "fp32", "fp64"),
        ("pointwise", "float64", "fp32", "fp64"),
    ],
)
def test_an_operator_computes_on_the_unit_of_its_family_and_dtype(
    family: str, dtype: str, precision: Precision, unit: str
) -> None:
    assert unit_of(family, kind="gpu", dtype=dtype, precision=precision) == unit


def test_a_cpu_computes_an_lstm_as_a_convolution_and_other_recurrent_layers_as_products() -> None:
    assert [
        computing_family(row("rnn", family="rnn", attributes={"mode": mode}), kind="cpu") for mode in ("lstm", "gru")
    ] == [
        "rnn",
        "matmul",
    ]
    assert computing_family(row("aten.mkldnn_rnn_layer", family="rnn"), kind="cpu") == "rnn"
    assert computing_family(row("aten.relu", family="pointwise"), kind="cpu") == "pointwise"


@pytest.mark.parametrize(
    ("family", "unit"), [("matmul", "fp32"), ("rnn", "vector"), ("conv", "vector"), ("attention", "vector")]
)
def test_a_cpu_computes_in_fp32_by_blas_or_on_its_whole_vectors(family: str, unit: str) -> None:
    assert unit_of(family, kind="cpu", dtype="float32", precision="fp32") == unit


@pytest.mark.parametrize(
    ("kind", "units", "expected"),
    [
        ("gpu", with_units(bf16=80e12, fp16=80e12), "bf16"),
        ("gpu", with_units(fp16=80e12), "fp16"),
        ("gpu", with_units(), "fp16"),  # stored so, computed in fp32
        ("cpu", with_units(bf16=1e12), "bf16"),
        ("cpu", with_units(), "fp32"),
    ],
)
def test_half_is_the_whole_model_in_what_the_device_has(
    kind: DeviceKind, units: dict[str, float], expected: Precision
) -> None:
    assert resolve_precision("half", device(kind=kind, peak_flops_per_s=units)) == expected


def test_a_script_runs_in_its_own_precision_unless_another_is_asked_for() -> None:
    gpu = device(peak_flops_per_s=with_units(tf32=40e12, bf16=80e12))
    cpu = device(kind="cpu", peak_flops_per_s=with_units(bf16=4e12))
    script = Script(gpu_precision="amp-bf16", cpu_precision="fp32")
    assert precisions_of("auto", gpu, rows=(), script=script) == ("amp-bf16",)
    assert precisions_of("auto", cpu, rows=(), script=script) == ("fp32",)
    assert precisions_of("bf16", cpu, rows=(), script=script) == ("bf16",)
    free = Script(gpu_precision=None, cpu_precision=None)
    assert precisions_of("auto", gpu, rows=(), script=free) == ("fp32", "amp-bf16")
    plain = Script(gpu_precision="cudnn-tf32", cpu_precision="fp32")  # torch's default uses TF32 in cuDNN alone
    assert precisions_of("auto", gpu, rows=(), script=plain) == ("fp32",)
