"""The question without this machine, and at other batch sizes."""

from dataclasses import replace

import pytest

from advisor.errors import UsageError
from advisor.question.from_source import question_of
from advisor.records.machine import LOCAL
from advisor.records.options import Options
from advisor.records.workload import Workload
from tests.answers.test_break_even import catalog
from tests.machines import machine
from tests.predict.toys import workload


def test_without_the_machine_nothing_asks_for_it() -> None:
    options = Options(device=(LOCAL, "t4"), measure=True)
    question = question_of(workload(), options, catalog=catalog(), machine=machine()).without_machine()
    assert (question.machine, question.measuring) == (None, None)
    assert question.options == Options(device=("t4",))


def test_a_workload_that_does_not_hold_at_other_batches_is_traced_once_at_each() -> None:
    traced: list[int] = []
    fixed = replace(workload(), batch=2, batch_is_affine=False)

    def trace_at(batch: int) -> Workload:
        traced.append(batch)
        return replace(fixed, batch=min(batch, 8))

    question = question_of(fixed, Options(batch="2,8,9"), catalog=catalog(), trace_at=trace_at)
    assert [question.at_batch(batch).batch for batch in (2, 8, 8)] == [2, 8, 8]
    assert traced == [8]
    for asked in (question, replace(question, trace_at=None)):
        with pytest.raises(UsageError, match=r"\b2\b.*\b9\b"):
            asked.at_batch(9)
