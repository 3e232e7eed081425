"""`advise profile`."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from advisor.records.answer import Group, GroupBy, WorkloadSummary
from advisor.records.options import Options, ScriptOptions
from advisor.records.workload import MemoryLine, Operand, Row, SecondCount, StoredBytes, Workload
from advisor.workload.file import workload_from_json
from tests.cli.conftest import Result
from tests.report.toys import recommendation
from tests.says import assert_says

Advise = Callable[..., Result]


def _row(phase: Any) -> Row:
    matrix = Operand(shape=(8, 8), dtype="float32")
    return Row(
        op="aten.mm",
        family="matmul",
        phase=phase,
        module="fc",
        inputs=(matrix, matrix),
        outputs=(matrix,),
        attributes={},
        count=1,
    )


WORKLOAD = Workload(
    schema_version=1,
    name="toy",
    mode="training",
    batch=8,
    batch_is_affine=False,
    traced_batches=(8,),
    method="fake",
    torch_version="2.13.0",
    parameter_count=64,
    parameter_bytes=256,
    optimizer=None,
    inputs=(),
    rows=(_row("forward"), _row("backward")),
    memory=(
        MemoryLine(
            phase="forward",
            parameters=StoredBytes(full=(256.0, 0.0)),
            buffers=StoredBytes(),
            gradients=StoredBytes(),
            optimizer_state=StoredBytes(),
            activations=StoredBytes(),
            temporaries=StoredBytes(),
        ),
    ),
    unknown_ops={},
    assumptions=(),
)


@dataclass(frozen=True, kw_only=True)
class _Profile:
    """Return the answer of the pipeline, with groups that tell how many rows and which batch they are of."""

    workload: Workload = WORKLOAD
    second_count: SecondCount | None = None
    summary: WorkloadSummary = field(default_factory=lambda: recommendation().workload)

    def groups(self, by: GroupBy) -> tuple[Group, ...]:
        flops = float(len(self.workload.rows))
        name = f"{by} at {self.workload.batch}"
        return (Group(name=name, flops=flops, read_bytes=0.0, write_bytes=0.0, op_count=1, flops_ratio=1.0),)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []

    def profile_source(source: str, options: Options, **more: Any) -> _Profile:
        calls.append({"source": source, "options": options, **more})
        second = SecondCount(batch=2, flops=1.0, flops_by_op={}, unsupported_ops={})
        return _Profile(second_count=second if more["second_count"] else None)

    module = ModuleType("advisor.question.from_source")
    module.profile_source = profile_source  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "advisor.question.from_source", module)
    return calls


def test_the_flags_reach_the_pipeline(advise: Advise, asked: list[dict[str, Any]]) -> None:
    assert advise("profile", "model.py", "--mode", "training", "--batch", "8", "--run", "--", "x").code == 0
    assert asked == [
        {
            "source": "model.py",
            "options": ScriptOptions(mode="training", batch="8", given=frozenset({"mode", "batch"})),
            "run": True,
            "script_args": ("x",),
            "second_count": False,
        }
    ]


@pytest.mark.parametrize("by", ["module", "family", "phase"])
def test_the_rows_are_added_up_as_asked(advise: Advise, asked: list[dict[str, Any]], by: str) -> None:
    lines = advise("profile", "model.py", "--by", by).out.splitlines()
    assert any(line.startswith(f"{by} at 8 ") for line in lines)


def test_without_a_wish_the_rows_are_added_up_by_module(advise: Advise, asked: list[dict[str, Any]]) -> None:
    assert "module at 8 " in advise("profile", "model.py").out


def test_the_second_count_stands_beside_our_forward_at_its_batch(advise: Advise, asked: list[dict[str, Any]]) -> None:
    text = advise("profile", "model.py", "--second-count").out
    assert_says(text, "fvcore", "forward", "batch 2")
    # One of the two rows is forward, so one of our FLOP beside one of fvcore's.
    assert "all          1 FLOP  1 FLOP          100 %\n" in text
    assert "family at 2  1 FLOP  0 FLOP            0 %\n" in text


@pytest.mark.parametrize("to_file", [False, True])
def test_json_is_the_workload_itself(
    advise: Advise, asked: list[dict[str, Any]], tmp_path: Path, to_file: bool
) -> None:
    path = tmp_path / "workload.json"
    result = advise("profile", "model.py", "-o", str(path) if to_file else "json")
    document = json.loads(path.read_text() if to_file else result.out)
    assert workload_from_json(document) == WORKLOAD


def test_the_second_count_is_in_the_json_too(advise: Advise, asked: list[dict[str, Any]]) -> None:
    document = json.loads(advise("profile", "model.py", "--second-count", "-o", "json").out)
    assert document["second_count"] == {"batch": 2, "flops": 1.0, "flops_by_op": {}, "unsupported_ops": {}}
    assert workload_from_json(document) == WORKLOAD


def test_csv_is_no_format_of_a_profile(advise: Advise, asked: list[dict[str, Any]]) -> None:
    result = advise("profile", "model.py", "-o", "csv")
    assert (result.code, asked) == (2, [])
    assert_says(result.err, "error:", "csv", "hint:", "table (*.txt)", "json (*.json)")


def test_a_flag_of_the_ranking_is_no_flag_of_the_profile(advise: Advise, asked: list[dict[str, Any]]) -> None:
    result = advise("profile", "model.py", "--provider", "aws")
    assert result.code == 2
    assert_says(result.err, "error:", "--provider")
