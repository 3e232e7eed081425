"""The profile of a model in a terminal."""

from collections.abc import Sequence
from dataclasses import replace

from advisor.records.answer import Group, GroupBy, WorkloadSummary
from advisor.report.content import View
from advisor.report.profile import profile_content
from advisor.report.terminal import to_text
from tests.report.toys import recommendation
from tests.says import assert_says


def render_profile(summary: WorkloadSummary, groups: Sequence[Group], *, by: GroupBy, view: View) -> str:
    return to_text(profile_content(summary, groups, by=by, top=view.top), view)


def group(name: str, *, flops: float, flops_ratio: float) -> Group:
    return Group(name=name, flops=flops, read_bytes=2**20, write_bytes=2**19, op_count=3, flops_ratio=flops_ratio)


GROUPS = (
    group("layer1.*.conv1", flops=6e9, flops_ratio=0.75),
    group("fc", flops=1.5e9, flops_ratio=0.19),
    group("", flops=5e8, flops_ratio=0.06),
)
SUMMARY = recommendation().workload


def test_the_totals_come_first_then_the_groups() -> None:
    # 2e8 bytes / 2^20 = 190.7 MiB, 1e8 = 95.4 MiB, 1.5e8 = 143.1 MiB
    lines = render_profile(SUMMARY, GROUPS, by="module", view=View(width=100)).splitlines()
    assert_says(
        " ".join(lines[:2]),
        *("resnet50", "8.18 GFLOP", "batch 1", "25.6M parameters"),
        *("reads", "191 MiB", "writes", "95.4 MiB", "143 MiB", "175"),
    )
    assert lines[2:8] == [
        "",
        "module                   FLOP  share   read  written  calls",
        "layer1.*.conv1        6 GFLOP   75 %  1 MiB  512 KiB      3",
        "fc                  1.5 GFLOP   19 %  1 MiB  512 KiB      3",
        "(the model itself)  500 MFLOP    6 %  1 MiB  512 KiB      3",
        "",
    ]
    assert_says(" ".join(lines[8:]), "fake tensors", "100 %")


def test_the_groups_beyond_the_top_are_added_up() -> None:
    # 19 % + 6 % = 25 %
    text = render_profile(SUMMARY, GROUPS, by="module", view=View(width=100, top=1))
    assert_says(text, "2 more", "25 %", "--top 3")
    assert "fc" not in text


def test_what_has_no_formula_is_listed() -> None:
    summary = replace(SUMMARY, coverage_ratio=0.98, unknown_ops={"aten.foo": 1200}, optimizer="AdamW")
    text = render_profile(summary, GROUPS, by="module", view=View(width=100))
    assert_says(text, "98 %", "aten.foo", "1,200 calls", "AdamW")


def test_the_optimizer_is_named_once() -> None:
    summary = replace(SUMMARY, optimizer="AdamW", assumptions=("optimizer: AdamW, because the file defines none",))
    assert render_profile(summary, GROUPS, by="module", view=View(width=100)).count("AdamW") == 1
