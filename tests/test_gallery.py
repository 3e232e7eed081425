"""The gallery says of each model what the answer says, and lists models that ship."""

import sys
from dataclasses import replace
from datetime import date
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.report.test_situations import situation
from tests.report.toys import recommendation

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
import write_gallery  # noqa: E402

ANSWER = replace(
    recommendation(),
    situations=(
        situation("busy", cpu_usd=3.6, gpu_usd=1.0),
        situation("once", cpu_usd=1.0, gpu_usd=2.0, crossing=17_612),
        situation("service", cpu_usd=25.0, gpu_usd=375.0, at=1),
    ),
)
ENTRY = write_gallery.Entry(name="acme/<net> & co", answer=ANSWER)


def test_each_use_has_a_table_with_both_kinds_the_cheaper_one_and_where_it_changes() -> None:
    busy, once, service = write_gallery.tables([[ENTRY], []])[:3]
    assert busy.rows == (("acme/<net> & co", "GPU 3.6x", "aws g6.xlarge", "$1.00/M [1.00-1.00]", "aws c7a.xlarge", "$3.60/M [3.60-3.60]"),)  # fmt: skip  # noqa: E501
    assert [once.rows[0][1], once.rows[0][-1]] == ["CPU 2x", "17,600 [1-?]"]
    assert [service.rows[0][1], service.rows[0][-1]] == ["CPU 15x", "never"]


def test_a_kind_that_is_not_surely_cheaper_is_said_to_cost_about_the_same() -> None:
    close = replace(ANSWER, situations=(situation("busy", cpu_usd=1.05, gpu_usd=1.0, width=1.3),))
    (table, *_) = write_gallery.tables([[replace(ENTRY, answer=close)], []])
    assert table.rows[0][1] == "about the same"


def test_the_html_page_has_every_table_under_a_heading_of_its_own() -> None:
    groups = [[ENTRY], [replace(ENTRY, name="acme/llm")]]
    sections = write_gallery.document(groups, today=date(2026, 11, 26)).sections
    assert len({one.id for one in sections}) == len({one.title for one in sections}) == 6
    html = write_gallery.render_document(write_gallery.document(groups, today=date(2026, 11, 26)))
    assert "acme/llm" in html
    assert ENTRY.name not in html  # escaped


def test_a_badge_is_well_formed_and_names_the_cheapest() -> None:
    badge = ElementTree.fromstring(write_gallery.badge_svg(ENTRY))
    assert badge.get("height") == "20"
    assert [text.text for text in badge.iter("{http://www.w3.org/2000/svg}text")] == [
        "<net> & co",
        "aws g6.xlarge $1.00 per million samples",
    ]


@pytest.mark.parametrize("name", [*write_gallery.MODELS, *write_gallery.SERVED])
def test_every_model_ships_and_has_its_rows_and_its_badge(name: str) -> None:
    file = name.replace("/", "--")
    assert (ROOT / f"advisor/workload/model_configs/{file}.json").is_file()
    assert (ROOT / f"docs/gallery/{file}.svg").is_file()
    assert (ROOT / "docs/gallery.md").read_text(encoding="utf-8").count(f"| {name} |") == 3
