"""A training job whose own batch is too slow for its deadline.

A step takes 0.4 s and 0.01 s a sample on the GPU: see tests/answers/test_break_even.py.
"""

from dataclasses import replace

from advisor.answers.ranking import rank
from advisor.question.from_source import question_of
from advisor.records.options import Options
from tests.answers.test_break_even import catalog, net
from tests.says import assert_says


def notes(deadline_s: float, *, batch: str = "") -> str:
    workload = replace(net(), mode="training", batch=2)
    options = Options(mode="training", samples=1024, precision="fp32", deadline=deadline_s, batch=batch)
    answer = rank(question_of(workload, options, catalog=catalog()))
    assert not answer.quotes
    return "\n".join(answer.notes)


def test_it_says_what_auto_and_the_smallest_batch_cost() -> None:
    # 512 steps of 0.42 s take 215 s. In batches of 1024: 0.4 + 10.24 = 10.64 s, $0.01064. At 16, 64 steps of 0.56 s
    # take 35.8 s; at 32, 32 steps of 0.72 s take 23.0 s.
    found = notes(30.0)
    assert_says(found, "--batch auto", "$0.011 in 10.6 s", "batch 1,024", "--batch 32", "$0.023 in 23 s")


def test_it_is_silent_where_no_batch_helps_or_the_batch_was_chosen() -> None:
    assert "--batch" not in notes(1.0)
    assert "--batch" not in notes(30.0, batch="2")
