from dataclasses import replace

from advisor.answers.comparison import compare_answers
from advisor.records.change import Comparison
from advisor.records.price import ExchangeRate
from advisor.report.as_json import to_json
from advisor.report.as_markdown import to_markdown
from advisor.report.comparison import comparison_content, headline
from advisor.report.content import View
from advisor.report.terminal import to_text
from tests.answers.test_answer_changes import BASE, slower, with_flops
from tests.report.toys import L4, T4, recommendation
from tests.says import assert_says

GROWN = with_flops(recommendation(T4, slower(L4, 1.2)), 1.2 * 8.178e9)


def comparison() -> Comparison:
    return compare_answers(BASE, GROWN)


def test_the_text_says_what_changed_and_what_not() -> None:
    text = to_text(comparison_content(comparison(), top=10), View())
    assert_says(text, "resnet50", "20 % more FLOP", "7.1 % more", "within")
    assert_says(text, "aws g4dn.xlarge", "us-east-1", "batch 64", "amp-bf16", "aws g6.xlarge", "batch 64", "amp-bf16")
    parts = "\n".join(" ".join(line.split()) for line in text.splitlines()).split("\n\n")
    titles, tables = zip(*(part.split("\nbefore now change\n") for part in parts[1:]), strict=True)
    assert [table.splitlines() for table in tables] == [
        [
            "FLOP per step 8.18 GFLOP 9.81 GFLOP +20 %",
            "bytes read and written 286 MiB 286 MiB none",
            "parameters 25.6M 25.6M none",
            "peak memory, as traced 143 MiB 143 MiB none",
        ],
        [
            "step 115 ms 115 ms none",
            "price per hour $0.84 $0.90 +7.1 %",
            "time of the job 30 min 30 min none",
            "cost of the job $0.42 $0.45 +7.1 %, within the interval",
        ],
        [
            "step 115 ms 138 ms +20 %",
            "time of the job 30 min 36 min +20 %",
            "cost of the job $0.42 $0.504 +20 %",
        ],
    ]
    assert_says(titles[2], "before", "aws g6.xlarge", "us-east-1", "batch 64", "amp-bf16")


def test_money_is_in_the_currency_of_the_new_answer() -> None:
    euro = replace(GROWN, exchange_rate=ExchangeRate(currency="EUR", usd=1.25, date="2026-11-01"))
    text = to_text(comparison_content(compare_answers(BASE, euro), top=10), View())
    assert_says(text, "EUR 0.336", "EUR 0.36", "EUR 0.403")  # $0.42, $0.45 and $0.504
    assert "$" not in text


def test_the_headline_says_multiples_as_such_and_names_another_model() -> None:
    # 8.178e10 / 8.178e9 = 10.
    said = headline(compare_answers(BASE, with_flops(BASE, 8.178e10)))
    assert_says(said, "resnet50", "10 times", "FLOP")
    assert "%" not in said
    # A thousandth of the FLOP, at a cost that 0.42 / 0.03 = 14 times was; 0.42 / 0.0525 = 8 is 1 - 1 / 8 = 88 % less.
    small = compare_answers(BASE, with_flops(recommendation(slower(L4, 1 / 14)), 8.178e6))
    assert_says(headline(small), "1,000x fewer FLOP", "14x less")
    assert_says(to_text(comparison_content(small, top=10), View()), "/ 1,000", "/ 14")
    assert_says(headline(compare_answers(BASE, recommendation(slower(L4, 1 / 8)))), "88 % less")
    other = replace(BASE, workload=replace(BASE.workload, name="resnet18"))
    assert_says(headline(compare_answers(BASE, other)), "resnet18", "resnet50", "FLOP per step unchanged")
    unpriced = headline(compare_answers(BASE, recommendation()))
    assert_says(unpriced, "resnet50", "FLOP per step unchanged")
    assert "cost" not in unpriced


def test_markdown_has_a_table_for_each_of_the_texts() -> None:
    text = to_markdown(comparison_content(comparison(), top=10))
    assert_says(text.splitlines()[0], "resnet50", "20 % more FLOP")
    assert text.startswith("**")
    assert text.count("|---|---:|---:|---|") == 3
    assert "| cost of the job | \\$0.42 | \\$0.45 | +7.1 %, within the interval |" in text


def test_json_holds_the_ratios() -> None:
    text = to_json(comparison())
    assert '"schema_version": 1' in text
    assert '"is_inside_interval": true' in text
