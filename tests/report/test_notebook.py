"""The answer in a notebook."""

from html.parser import HTMLParser

from advisor.records.answer import Recommendation
from advisor.report.notebook import to_fragment
from advisor.report.recommendation import recommendation_content
from tests.report.toys import GENOA, L4, T4, quote, recommendation


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
    assert html.startswith("<p><strong>aws g6.xlarge (1x L4) processes 1,000,000 samples for $0.42")
    assert "<p>Warning: old</p>" in html


def test_a_name_is_text_not_html() -> None:
    html = render_html(recommendation(quote("<img src=x>", kind="gpu", device="L4", usd=1.0), name="<b>"))
    assert "<img" not in html
    assert "<b>" not in html
    assert "&lt;img src=x&gt;" in html
