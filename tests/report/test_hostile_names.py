"""Names come from workloads and price files that somebody else wrote: in no output are they more than text."""

import csv
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from io import StringIO

import pytest

from advisor.answers.comparison import compare_answers
from advisor.records.answer import Recommendation
from advisor.report.as_json import record_json, to_json
from advisor.report.as_markdown import to_markdown
from advisor.report.comparison import comparison_content
from advisor.report.content import View
from advisor.report.formats import format_module, format_names
from advisor.report.notebook import to_fragment
from advisor.report.profile import profile_content
from advisor.report.recommendation import recommendation_content
from advisor.report.terminal import to_text
from tests.report.toys import quote, recommendation, rejection

HOSTILE = (
    "=cmd|'/C calc'!A0",
    "+1+1",
    "-2+3",
    "@SUM(1)",
    "\t=1+1",
    "[red]x[/red]",
    "[link=http://evil.example]x[/link]",
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "a|b",
    "one\ntwo\r\nthree",
    "\x1b[31mred\x1b]0;title\x07",
    "](javascript:alert(1))",
    "`code` *bold* ![x](http://evil.example)",
    "\u202egnp.exe",
    "\u2028line",
    "\ud800",
)
WIDE = View(width=400)
FORMATS = {name: format_module(name).render for name in format_names()}
TEXTS = {
    **{name: lambda answer, render=render: render(answer, WIDE) for name, render in FORMATS.items()},
    "profile": lambda answer: to_text(profile_content(answer.workload, (), by="module", top=10), WIDE),
    "notebook": lambda answer: to_fragment(recommendation_content(answer, top=10)),
    "comparison": lambda answer: to_text(comparison_content(compare_answers(answer, answer), top=10), WIDE),
    "comparison markdown": lambda answer: to_markdown(comparison_content(compare_answers(answer, answer), top=10)),
    "comparison json": lambda answer: to_json(compare_answers(answer, answer)),
}


def answer(name: str) -> Recommendation:
    """`name` wherever a workload or a price file may put text of its own."""
    odd = quote(name, kind="gpu", device=name, usd=1.0, provider=name)
    odd = replace(odd, region=name, price_date=name, device=replace(odd.device, name=name))
    left_out = replace(rejection(name, code="no-price", reason=name), provider=name)
    return recommendation(odd, rejected=(left_out,), name=name, notes=(name,), warnings=(name,), unknown_ops={name: 2})


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_steers_no_terminal_and_splits_no_line(name: str, text: str) -> None:
    shown, plain = (TEXTS[text](answer(one)) for one in (name, "plain"))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e\u2028]", shown)
    if text not in ("notebook", "csv"):  # one is all on one line, the other's lines are its records
        assert len(shown.splitlines()) == len(plain.splitlines())


@pytest.mark.parametrize("name", ["[red]x[/red]", "[link=http://evil.example]x[/link]"])
@pytest.mark.parametrize("text", ["table", "profile", "comparison"])
def test_brackets_stand_as_they_are_on_a_terminal(name: str, text: str) -> None:
    assert name in TEXTS[text](answer(name))


@pytest.mark.parametrize("name", HOSTILE)
def test_no_cell_of_a_csv_is_a_formula(name: str) -> None:
    rows = list(csv.reader(StringIO(FORMATS["csv"](answer(name), WIDE))))
    assert {len(row) for row in rows} == {len(rows[0])}
    numbers = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?")
    for cell in (cell for row in rows for cell in row):
        assert numbers.fullmatch(cell) or not cell.lstrip().startswith(("=", "+", "-", "@", "\t", "\r")), cell


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, list[tuple[str, str | None]]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, attrs))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_adds_no_element_and_no_attribute_to_html(name: str) -> None:
    found, expected = _Tags(), _Tags()
    found.feed(TEXTS["notebook"](answer(name)))
    expected.feed(TEXTS["notebook"](answer("plain")))
    assert found.tags == expected.tags


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("text", ["markdown", "comparison markdown"])
def test_a_name_is_literal_in_markdown(name: str, text: str) -> None:
    shown = TEXTS[text](answer(name))
    tables = [line for line in shown.splitlines() if line.startswith("|")]
    plain = [line for line in TEXTS[text](answer("plain")).splitlines() if line.startswith("|")]
    unescaped = re.compile(r"(?<!\\)(?:\\\\)*\|")
    assert [len(unescaped.findall(line)) for line in tables] == [len(unescaped.findall(line)) for line in plain]
    assert not re.search(r"(?<!\\)[<`\]]", shown.replace("**", ""))


@pytest.mark.parametrize("name", HOSTILE)
def test_json_holds_the_name_as_it_is(name: str) -> None:
    assert json.loads(FORMATS["json"](answer(name), WIDE))["workload"]["name"] == name


@pytest.mark.parametrize("name", HOSTILE[:-1])
def test_the_services_json_holds_the_name_as_it_is(name: str) -> None:
    # The last one is no text that UTF-8 can hold; the service refuses it in a request.
    assert json.loads(record_json(answer(name)))["workload"]["name"] == name
