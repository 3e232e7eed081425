"""The models of single operators: every family of formulas is timed, in a model that spends its time in it."""

from pathlib import Path

import pytest

from advisor.answers.measurement_file import read_measurements
from advisor.ops.registry import formulas
from advisor.records.workload import Workload
from advisor.workload.spawn import ProfileRequest
from advisor.workload.trace_many import trace_many
from scripts.nets.operators import FAMILIES, NOT_TIMED

FILE = Path(__file__).parents[1] / "scripts/nets/operators.py"
MEASURED = Path(__file__).parent / "data/measured/own/operator_steps.csv"


def test_a_family_of_formulas_is_timed_or_says_why_it_is_not() -> None:
    missing = {formula.family for formula in formulas()} - {*FAMILIES, *NOT_TIMED}
    assert not missing, f"add a case to {FILE.name}"


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_cases_of_a_family_can_be_traced_and_contain_it(family: str) -> None:
    trained = {row.model.rpartition("::")[2] for row in read_measurements(MEASURED) if row.mode == "training"}
    requests = [
        ProfileRequest(source=f"{FILE}::{call}", mode="training" if call in trained else "inference", timeout_s=120.0)
        for call in (f"operator(case={case!r})" for case in FAMILIES[family])
    ]
    for request, outcome in trace_many(requests).items():
        assert isinstance(outcome, Workload), (request.source, outcome)
        assert family in {row.family for row in outcome.rows}, request.source
