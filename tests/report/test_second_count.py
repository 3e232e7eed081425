"""Our count beside fvcore's."""

import pytest

from advisor.records.answer import Group
from advisor.records.workload import SecondCount
from advisor.report.content import View
from advisor.report.profile import second_count_content
from advisor.report.terminal import to_text
from tests.says import assert_says


def group(name: str, *, flops: float) -> Group:
    return Group(name=name, flops=flops, read_bytes=0.0, write_bytes=0.0, op_count=1, flops_ratio=0.0)


SECOND = SecondCount(
    batch=2,
    flops=8.5e9,
    flops_by_op={"conv": 8e9, "linear": 2e8, "addmm": 2e8, "novel": 1e8},
    unsupported_ops={"aten::add_": 16, "aten::scaled_dot_product_attention": 12, "aten::gelu": 16},
)


def test_families_that_differ_most_come_first_and_what_fvcore_misses_is_listed() -> None:
    # attention: 1e9 against nothing; novel: nothing against 1e8; conv and matmul (2e8 + 2e8) agree; no views.
    # All: 9.4e9 against 8.5e9, 90 %.
    forward = (
        group("conv", flops=8e9),
        group("attention", flops=1e9),
        group("matmul", flops=4e8),
        group("view", flops=0.0),
    )
    first, *lines = to_text(second_count_content(SECOND, forward), View()).splitlines()
    assert_says(first, "fvcore", "forward", "batch 2")
    assert lines[:6] == [
        "family          FLOP     fvcore  fvcore / ours",
        "all        9.4 GFLOP  8.5 GFLOP           90 %",
        "attention    1 GFLOP     0 FLOP            0 %",
        "novel         0 FLOP  100 MFLOP              -",
        "conv         8 GFLOP    8 GFLOP          100 %",
        "matmul     400 MFLOP  400 MFLOP          100 %",
    ]
    assert lines[-3:] == [
        "  aten::add_ x16",
        "  aten::gelu x16",
        "  aten::scaled_dot_product_attention x12",
    ]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fvcore's import uses torch.jit.script
def test_every_operator_that_fvcore_counts_by_default_has_a_family() -> None:
    from fvcore.nn.flop_count import _DEFAULT_SUPPORTED_OPS

    from advisor.report.profile import _FAMILIES

    counted = {name.removeprefix("aten::").removeprefix("_") for name, count in _DEFAULT_SUPPORTED_OPS.items() if count}
    assert counted - _FAMILIES.keys() == {"convolution"}  # fvcore reports it as "conv"
