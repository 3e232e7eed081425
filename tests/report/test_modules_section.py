"""Time by module, and why."""

from dataclasses import replace

import pytest

from advisor.report.content import Bars
from advisor.report.explanation import modules_section, why_section
from tests.report.report_toys import ON_CPU, ON_GPU
from tests.report.test_explanation import group, step
from tests.says import assert_says


def test_modules_beyond_the_longest_are_one_bar() -> None:
    # 15 modules of 1 ms: 12 bars and one of 3 ms.
    modules = tuple(group(f"layer{number}", 0.001, step_s=0.015) for number in range(15))
    (bars,) = modules_section([replace(ON_GPU, step=step(modules=modules))]).plots
    assert isinstance(bars, Bars)
    assert [bar.name for bar in bars.bars[:2]] == ["layer0", "layer1"]
    assert (bars.bars[12].name, bars.bars[12].parts[0].value) == ("3 more", pytest.approx(0.003))
    assert len(bars.table.rows) == 15


def test_why_says_what_sets_the_pace_of_each_device() -> None:
    why = why_section([ON_GPU, ON_CPU], rate=None)
    on_gpu, on_cpu = (listing.title for listing in why.lists)
    assert_says(on_gpu, "GPU", "aws g6.xlarge", "L4", "10 ms [8-12.5]")
    assert_says(on_cpu, "CPU", "aws c7a.xlarge", "AMD EPYC 9R14", "400 ms [320-500]")
