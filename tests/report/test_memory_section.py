"""Memory bars."""

from dataclasses import replace
from typing import get_args

import pytest

from advisor.records.device_memory import MemoryPart, MemoryTerm
from advisor.records.generation import Generation
from advisor.report.content import Bars
from advisor.report.memory import memory_section
from tests.report.report_toys import ON_CPU, ON_GPU
from tests.says import assert_says

GIB = 2**30


def test_parts_add_up_to_the_peak_and_the_mark_is_what_the_device_has() -> None:
    (bars,) = memory_section([ON_GPU]).plots
    assert isinstance(bars, Bars)
    (bar,) = bars.bars
    # 2 GiB of parameters and 1 GiB of buffers stand together.
    assert [(part.name, part.value / GIB) for part in bar.parts] == [("parameters", 3), ("process, CUDA context", 1)]
    assert (bar.limit or 0) / GIB == 24
    assert bar.note == "4 GiB of 24 GiB: fits"
    (note,) = bars.notes
    assert_says(note, "GPU", "L4", "batch 64", "amp-bf16", "batch 512")
    assert [row[1:4] for row in bars.table.rows] == [
        ("parameters", "2 GiB", "0 B - 4 GiB"),
        ("buffers", "1 GiB", "0 B - 2 GiB"),
        ("process", "1 GiB", "0 B - 2 GiB"),
    ]


def test_of_a_language_model_in_service_it_is_of_the_requests_in_flight() -> None:
    (bars,) = memory_section([ON_GPU], generation=Generation(prompt_tokens=8, output_tokens=2)).plots
    (note,) = bars.notes
    assert_says(note, "GPU", "L4", "64 requests", "amp-bf16", "512 requests")
    assert "batch" not in note


@pytest.mark.parametrize("part", get_args(MemoryPart))
def test_every_part_of_the_memory_is_in_the_bar(part: MemoryPart) -> None:
    assert ON_GPU.memory is not None
    term = MemoryTerm(part=part, mid_bytes=GIB, low_bytes=GIB, high_bytes=GIB, source="by hand")
    (bars,) = memory_section([replace(ON_GPU, memory=replace(ON_GPU.memory, terms=(term,)))]).plots
    assert isinstance(bars, Bars)
    assert [one.value for one in bars.bars[0].parts] == [GIB]


def test_a_device_whose_memory_is_not_known_has_no_bar() -> None:
    assert memory_section([ON_CPU, replace(ON_GPU, memory=None)]).plots == ()
