"""The answer in a notebook."""

from html.parser import HTMLParser

import pytest

from advisor.records.answer import Recommendation
from advisor.records.displayed import Displayed
from advisor.report.content import Column, Listing, Table
from advisor.report.notebook import to_fragment
from advisor.report.recommendation import recommendation_content
from tests.report.report_toys import break_even
from tests.report.test_explanation import explanation
from tests.report.test_explanation import step as explained_step
from tests.report.test_memory import answer as memory_answer
from tests.report.test_memory import on
from tests.report.toys import GENOA, L4, T4, quote, recommendation
from tests.says import assert_says


def render_html(answer: Recommendation) -> str:
    return to_fragment(recommendation_content(answer, top=10))


class _Elements(HTMLParser):
    """Counts elements and checks that each is closed in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.counts: dict[str, int] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.counts[tag] = self.counts.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_fragment_has_a_headline_and_a_row_for_each_quote() -> None:
    html = render_html(recommendation(L4, T4, GENOA, warnings=("old",)))
    elements = _Elements()
    elements.feed(html)
    assert elements.open == []
    assert elements.counts["tr"] == 4  # a head and three quotes
    assert elements.counts["td"] == 3 * elements.counts["th"]
    assert html.startswith("<p><strong>aws g6.xlarge (1x L4) ")
    assert_says(html.partition("</strong>")[0], "a million samples", "$0.42")
    assert "<p>Warning: old</p>" in html


def test_a_short_list_is_open_and_words_are_aligned_to_the_left() -> None:
    long, short, folded = (
        Listing(title="", items=("one",) * count, more=more) for count, more in ((6, ()), (5, ()), (1, ("two",)))
    )
    assert [to_fragment([one]).startswith("<details open>") for one in (long, short, folded)] == [False, True, False]
    columns = (Column(header="name"), Column(header="count", is_number=True))
    html = to_fragment([Table(title="", columns=columns, rows=(("one", "1"),))])
    assert html.count("text-align:left") == 2  # a head and a cell


def test_a_name_is_text_not_html() -> None:
    html = render_html(recommendation(quote("<img src=x>", kind="gpu", device="L4", usd=1.0), name="<b>"))
    assert "<img" not in html
    assert "<b>" not in html
    assert "&lt;img src=x&gt;" in html


ANSWERS: dict[str, Displayed] = {
    "recommend": recommendation(L4, T4),
    "explain": explanation(explained_step()),
    "memory": memory_answer(on("L4", 24.0)),
    "breakeven": break_even(),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_every_answer_of_python_is_displayed_in_a_notebook(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tables have the cells of the same answer in a terminal that is wide enough for all of them."""
    monkeypatch.setenv("COLUMNS", "400")
    answer = ANSWERS[name]
    cells = _Cells()
    cells.feed(answer._repr_html_())
    assert len(cells.texts) > 3
    shown = " ".join(repr(answer).split())
    assert [text for text in cells.texts if " ".join(text.split()) not in shown] == []


class _Cells(_Elements):
    """Collects the text of table cells."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def handle_data(self, data: str) -> None:
        if self.open[-1] in ("td", "th"):
            self.texts.append(data)
