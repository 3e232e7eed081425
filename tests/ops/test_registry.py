import math
import re
import subprocess
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._inductor import lowering as inductor_lowering
from torch._inductor.decomposition import select_decomp_table

import advisor.ops
from advisor.ops.registry import (
    _LEFT_TO_TORCH,
    ITEMSIZE_BYTES,
    Call,
    Formula,
    Tensor,
    aten,
    autocast_of,
    formula,
    formula_of,
    formulas,
    larger,
    log2,
    smaller,
)

FAMILIES = {
    "matmul", "conv", "attention", "rnn", "embedding", "norm", "softmax", "pointwise", "reduction", "pool",
    "interpolate", "fft", "gather", "sort", "copy", "loss", "optimizer", "random", "view", "creation",
    "quantized", "scan", "linalg", "rms_norm", "rotary", "gate",
}  # fmt: skip
COMPOSITES = {
    "attention", "attention_backward", "rnn", "rnn_backward", "encoder_layer", "native_multi_head_attention",
    "optimizer", "engine.norm", "engine.rotary", "engine.gate",
}  # fmt: skip


def _schemas() -> Iterator[torch._C.FunctionSchema]:
    return iter(torch._C._jit_get_all_schemas())


def _tagged(tag: torch.Tag) -> set[str]:
    """Names of torch's operators with a tag."""
    names = set()
    for schema in _schemas():
        namespace, _, name = schema.name.partition("::")
        packet = getattr(torch.ops.aten, name, None) if namespace == "aten" else None
        overload = getattr(packet, schema.overload_name or "default", None)
        if tag in getattr(overload, "tags", ()):
            names.add(f"aten.{name}")
    return names


def test_every_family_has_formulas():
    assert {found.family for found in formulas()} == FAMILIES


def test_the_composites_have_formulas():
    assert all(formula_of(op) is not None for op in COMPOSITES)


def test_an_operator_has_one_formula():
    with pytest.raises(ValueError, match=r"aten\.mm has two formulas"):
        formula(*aten("mm"), family="matmul")(lambda call: call.streamed(flops=0))


def test_an_unknown_operator_has_none():
    assert formula_of("mine.op") is None
    assert formula_of("mine.op_") is None


def test_in_place_is_the_same_operator_unless_it_has_a_formula_of_its_own():
    assert formula_of("aten.relu_") is formula_of("aten.relu")
    assert formula_of("aten.__and__").op == "aten.__and__"


def test_every_name_of_torchs_own_exists_in_torch():
    known = {schema.name.replace("::", ".") for schema in _schemas()}
    ours = {found.op.removesuffix("[sparse]") for found in formulas() if found.op.startswith("aten.")}
    assert {op for op in ours if op not in known and f"{op}_" not in known} == set()


def test_every_attribute_is_an_argument_of_its_operator():
    arguments: dict[str, set[str]] = {}
    for schema in _schemas():
        names = arguments.setdefault(schema.name.replace("::", ".").removesuffix("_"), set())
        names.update(argument.name for argument in schema.arguments)

    def foreign(found: Formula) -> set[str]:
        return set(found.attributes) - arguments[found.op]

    assert {found.op: foreign(found) for found in formulas() if found.op in arguments and foreign(found)} == {}


def test_an_operator_that_returns_no_tensor_has_a_cost():
    inputs = (Tensor(shape=(2.0, 3.0), dtype="float32"),) * 2
    for schema in _schemas():
        found = formula_of(schema.name.replace("::", "."))
        if found is not None and not any("Tensor" in str(each.type) for each in schema.returns):
            assert found.cost(Call(op=found.op, inputs=inputs, outputs=(), attributes={})).write_bytes == 0


@pytest.mark.parametrize("tag", [torch.Tag.pointwise, torch.Tag.reduction, torch.Tag.core])
def test_every_operator_that_torch_tags_has_a_formula(tag):
    assert {op for op in _tagged(tag) if formula_of(op) is None} == set()


def _has_own_kernel(op: str) -> bool:
    """Return True if torch dispatches an overload of the operator and does not decompose it."""
    packet = getattr(torch.ops.aten, op.removeprefix("aten."), None)
    overloads = [getattr(packet, name) for name in packet.overloads()] if packet else []
    return any(torch._C._dispatch_has_kernel(one.name()) and not one._can_decompose() for one in overloads)


def test_every_variant_of_an_operator_with_a_formula_has_one_too():
    known = {schema.name.replace("::", ".") for schema in _schemas()}
    suffixes = ("_", "_out", "_functional", "_copy", "_backward")
    variants = {f"{found.op}{suffix}" for found in formulas() for suffix in suffixes} & known
    missing = {op for op in variants if formula_of(op) is None and _has_own_kernel(op)}
    assert missing == set(), "name them beside their operator in its family's file of advisor/ops"


def _autocast_list(macro: str) -> set[str]:
    """Operators in one of the lists of torch's header: `#define MACRO(_) _(conv1d) _(conv2d, input) ...`."""
    header = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"
    _, _, rest = header.read_text().partition(f"#define {macro}(_)")
    definition = re.match(r"(?:.*\\\n)*.*", rest).group()
    return {f"aten.{name}" for name in re.findall(r"_\((\w+)", definition)}


@pytest.mark.parametrize(
    ("macro", "policy"),
    [
        ("AT_FORALL_LOWER_PRECISION_FP", "low"),
        ("AT_FORALL_FP32", "full"),
        ("AT_FORALL_FP32_SET_OPT_DTYPE", "full"),
        ("AT_FORALL_PROMOTE", "widest"),
    ],
)
def test_autocast_treats_operators_as_torchs_lists_say(macro, policy):
    ours = {op: autocast_of(op, {}, on_cpu=False) for op in _autocast_list(macro) if formula_of(op) is not None}
    assert len(ours) >= 5
    assert ours == dict.fromkeys(ours, policy)


def test_torch_has_a_rule_for_what_cpus_compute_in_fp32_and_none_for_what_only_gpus_do():
    has_rule = torch._C._dispatch_has_kernel_for_dispatch_key
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
    listed = {name.partition(".")[0].replace("::", ".") for name in names if has_rule(name, "AutocastCPU")}

    only_on_gpus = {one.op for one in formulas() if one.autocast == "full on GPUs"}
    assert len(only_on_gpus) > 40
    assert only_on_gpus & listed == set()
    full = set(aten("mse_loss nll_loss binary_cross_entropy_with_logits cdist linalg_inv prod"))
    assert full <= listed
    assert {autocast_of(op, {}, on_cpu=True) for op in full} == {"full"}


def _dtypes() -> set[torch.dtype]:
    return {one for one in list(vars(torch).values()) if isinstance(one, torch.dtype)}


def test_every_dtype_of_torch_has_the_bytes_that_torch_stores_it_in():
    dtypes = _dtypes() - {torch.int4}  # "int4" is the format of quantized weights
    assert len(dtypes) >= 30
    ours = {dtype: ITEMSIZE_BYTES.get(str(dtype).removeprefix("torch.")) for dtype in dtypes}
    # Eight elements, because torch packs four of quint2x4 into a byte; its quantized dtypes and complex32 warn.
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        assert ours == {dtype: torch.empty(8, dtype=dtype).untyped_storage().nbytes() / 8 for dtype in dtypes}


def test_the_formulas_load_without_torch_or_numpy():
    program = (
        "import sys; from advisor.ops.registry import formula_of; formula_of('aten.mm'); "
        "sys.exit(bool({'torch', 'numpy', 'pydantic'} & set(sys.modules)))"
    )
    root = Path(advisor.ops.__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", program], cwd=root, check=False).returncode == 0


lengths = st.integers(min_value=0, max_value=2**40).map(float)


@given(lengths, lengths)
def test_larger_and_smaller_are_pythons_own_for_numbers(a, b):
    assert (larger(a, b), smaller(a, b)) == (max(a, b), min(a, b))


def test_they_work_element_by_element_for_arrays():
    array = np.array([1.0, 5.0])
    assert larger(array, 3.0).tolist() == [3.0, 5.0]
    assert smaller(array, 3.0).tolist() == [1.0, 3.0]


def test_the_logarithm_never_goes_below_zero():
    assert log2(8.0) == 3.0
    assert log2(1) == 0.0
    assert log2(0.0) == 0.0
    assert log2(np.array([0.0, 8.0])).tolist() == [0.0, 3.0]
    assert math.isclose(log2(10.0), 3.321928, rel_tol=1e-6)


def test_what_torch_compile_leaves_to_torch_is_not_fused() -> None:
    """Compares with Inductor's own tables, but for random numbers, which it draws itself by default."""

    def named(overloads: Iterable[object]) -> set[str]:
        return {".".join(str(overload).split(".")[:2]) for overload in overloads}

    left_to_torch = named(inductor_lowering.fallbacks) - named(select_decomp_table()) - {"aten.rand", "aten.randn"}
    assert {one.op for one in formulas() if one.fusable} & left_to_torch == set()
    fused = {op for op in _LEFT_TO_TORCH if op not in left_to_torch}
    assert fused == set()
