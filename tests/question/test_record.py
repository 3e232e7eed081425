"""The question without this machine."""

from advisor.question.from_source import question_of
from advisor.records.machine import LOCAL
from advisor.records.options import Options
from tests.answers.test_break_even import catalog
from tests.machines import machine
from tests.predict.toys import workload


def test_without_the_machine_nothing_asks_for_it() -> None:
    options = Options(device=(LOCAL, "t4"), measure=True)
    question = question_of(
        workload(), options, catalog=catalog(), machine=machine(), trace_at=lambda _: workload()
    ).without_machine()
    assert (question.machine, question.measuring, question.trace_at) == (None, None, None)
    assert question.options == Options(device=("t4",))
