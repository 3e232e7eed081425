"""Networks that run without gradients before the trained one are part of a script's step if each step runs them."""

from pathlib import Path
from textwrap import dedent

import pytest

from advisor.records.workload import Workload
from advisor.workload.script_trace import trace_script
from tests.workload.tracing import op_counts

HEAD = """
import torch
from torch import nn

def net():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))

model, teacher, x = net(), net(), torch.randn(4, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def update(target):
    (model(x) - target).square().mean().backward()
    optimizer.step()

@torch.no_grad()
def target_of(x):
    return teacher(x)

"""
OWN_CALLS = 2
"""The linear layers of one network."""


def traced(folder: Path, body: str) -> Workload:
    path = folder / "script.py"
    path.write_text(HEAD + dedent(body), encoding="utf-8")
    return trace_script(path, [], mode="training")


@pytest.mark.parametrize(
    "body",
    [
        """
        for _ in range(1000):
            with torch.no_grad():
                target = teacher(x)
            update(target)
        """,
        """
        for _ in range(1000):
            update(target_of(x))
        """,
        """
        def step():
            target = target_of(x)
            update(target)

        while True:
            step()
        """,
        """
        update(target_of(x))
        """,
        """
        for index in range(1000):
            if index % 2 == 0:
                update(target_of(x))
        """,
        """
        distills = True
        for index in range(1000):
            if distills:
                target = target_of(x)
            update(target)
        """,
    ],
)
def test_a_teacher_that_runs_first_is_counted(tmp_path: Path, body: str) -> None:
    workload = traced(tmp_path, body)
    assert op_counts(workload)["aten.addmm"] == 2 * OWN_CALLS
    assert workload.parameter_count == 8 * 16 + 16 + 16 * 4 + 4
    assert workload.memory[0].parameters.full[0] == 2 * 4 * workload.parameter_count
    assert any("counted: Sequential" in note for note in workload.assumptions)


@pytest.mark.parametrize(
    "body",
    [
        """
        target = target_of(x)
        for _ in range(1000):
            update(target)
        """,
        """
        for _ in range(10):
            target = target_of(x)
        update(target)
        """,
        """
        for epoch in range(1000):
            target = target_of(x)
            for _ in range(1000):
                update(target)
        """,
        """
        target = 0
        for index in range(1000):
            if index % 100 == 0:
                target_of(x)
            update(target)
        """,
        """
        for index in range(1000):
            if index in (0, 500):
                target = target_of(x)
            update(target)
        """,
        """
        for index in range(1000):
            for _ in range(100):
                target = target_of(x)
            update(target)
        """,
    ],
)
def test_what_is_no_part_of_each_step_is_not(tmp_path: Path, body: str) -> None:
    workload = traced(tmp_path, body)
    assert op_counts(workload)["aten.addmm"] == OWN_CALLS
    assert any(note.startswith("not counted: 1") and "without gradients" in note for note in workload.assumptions)


def test_what_cannot_be_repeated_is_not_counted(tmp_path: Path) -> None:
    workload = traced(
        tmp_path,
        """
        class Cached(nn.Linear):
            def forward(self, x, cache):
                return super().forward(x)

        cached = Cached(8, 4)
        for _ in range(1000):
            with torch.no_grad():
                target = cached(x, object())
            update(target)
        """,
    )
    assert op_counts(workload)["aten.addmm"] == OWN_CALLS
    assert "not counted: 1 call without gradients before the first step" in workload.assumptions


def test_a_network_that_does_not_take_zeros_is_not_counted(tmp_path: Path) -> None:
    workload = traced(
        tmp_path,
        """
        class Picky(nn.Linear):
            def forward(self, x):
                assert x.abs().sum().item() > 0
                return super().forward(x)

        picky = Picky(8, 4)
        for _ in range(1000):
            with torch.no_grad():
                target = picky(x)
            update(target)
        """,
    )
    assert op_counts(workload)["aten.addmm"] == OWN_CALLS
    assert "not counted: 1 call without gradients before the first step" in workload.assumptions


def test_the_models_own_pseudo_labels_are_counted(tmp_path: Path) -> None:
    workload = traced(
        tmp_path,
        """
        for _ in range(1000):
            with torch.no_grad():
                target = model(x)
            update(target)
        """,
    )
    assert op_counts(workload)["aten.addmm"] == 2 * OWN_CALLS
    assert workload.batch == 4


@pytest.mark.parametrize(("dtype", "in_fp32"), [("float32", True), ("bfloat16", False)])
def test_outside_of_the_autocast_of_the_step_it_computes_in_its_own_precision(
    tmp_path: Path, dtype: str, in_fp32: bool
) -> None:
    workload = traced(
        tmp_path,
        f"""
        teacher.to(torch.{dtype})
        for _ in range(1000):
            target = target_of(x.to(torch.{dtype}))
            with torch.autocast("cuda", dtype=torch.bfloat16):
                update(target)
        """,
    )
    products = [row for row in workload.rows if row.op == "aten.addmm"]
    assert [bool(row.attributes.get("in_full")) for row in products] == [in_fp32] * 2 + [False] * 2


def test_where_the_script_switches_autocast_off_inside_autocast_it_computes_in_fp32(tmp_path: Path) -> None:
    workload = traced(
        tmp_path,
        """
        for _ in range(1000):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                with torch.autocast("cuda", enabled=False):
                    target = target_of(x)
                update(target)
        """,
    )
    products = [row for row in workload.rows if row.op == "aten.addmm"]
    assert [bool(row.attributes.get("in_full")) for row in products] == [True] * 2 + [False] * 2
