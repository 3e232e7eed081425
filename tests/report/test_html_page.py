"""The report in a browser, opened from disk."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.report.html import render_report
from tests.browser import Watched, watched_page
from tests.report.report_toys import report
from tests.report.test_html import HOSTILE
from tests.report.toys import GENOA, L4, T4, quote, recommendation, rejection

pytestmark = pytest.mark.slow
SIZES = {"phone": {"width": 390, "height": 844}, "desktop": {"width": 1280, "height": 900}}
MANY = [quote(f"i{number}", kind="gpu", device="L4", usd=3.0 + number, provider="gcp") for number in range(40)]


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[Watched]:
    """L4 at $0.42, T4 at $0.45 and a CPU at $2.86, then 40 of gcp."""
    file = tmp_path / "report.html"
    file.write_text(
        render_report(report(recommendation(replace(L4, on_pareto_front=True), T4, GENOA, *MANY))), encoding="utf-8"
    )
    with watched_page(viewport=SIZES["desktop"]) as seen:
        seen.page.goto(file.as_uri())
        seen.page.wait_for_selector("#accuracy summary")
        yield seen
        assert seen.complaints == []
        assert seen.requests == [file.as_uri()]


def column(seen: Watched, header: str) -> list[str]:
    """The cells of a column of the ranking, as they stand."""
    place = seen.page.locator("#ranking th").all_inner_texts().index(header) + 1
    texts: list[str] = seen.page.locator(f"#ranking tbody td:nth-child({place})").all_inner_texts()
    return texts


def test_a_heading_sorts_up_and_down(shown: Watched) -> None:
    heading = shown.page.locator("#ranking th button", has_text="per million").first
    assert column(shown, "per million")[:2] == ["$0.42", "$0.45"]
    heading.click()
    heading.click()
    assert column(shown, "per million")[:2] == ["$42.00", "$41.00"]  # 3 + 39 and 3 + 38
    heading.press("Enter")
    assert column(shown, "per million")[:2] == ["$0.42", "$0.45"]
    assert shown.page.locator("#ranking th[aria-sort=ascending]").count() == 1


def test_a_search_and_a_choice_leave_what_matches(shown: Watched) -> None:
    status = shown.page.locator("#ranking [role=status]")
    assert status.inner_text() == "25 of 43 rows"
    shown.page.locator("#ranking button.more").click()
    assert status.inner_text() == "43 of 43 rows"
    shown.page.get_by_label("search").first.fill("epyc xlarge")
    assert column(shown, "instance") == ["c7a.xlarge"]
    shown.page.get_by_label("search").first.fill("")
    shown.page.locator("#ranking").get_by_label("provider").select_option("aws")
    assert column(shown, "instance") == ["g6.xlarge", "g4dn.xlarge", "c7a.xlarge"]


def test_every_plot_is_drawn_and_has_its_table(shown: Watched) -> None:
    figures = shown.page.locator("figure")
    assert figures.count() == 9  # cost, 2 x modules, 2 x roofline, memory, 2 x batch, break-even
    for index in range(figures.count()):
        assert figures.nth(index).locator(".canvas svg").count() == 1
        assert figures.nth(index).locator("details table tbody tr").count() > 0
    assert shown.page.locator("#break-even .canvas").get_by_text("10", exact=True).count() > 0


def test_who_points_at_a_plot_sees_its_numbers(shown: Watched) -> None:
    bars = shown.page.locator("#modules .canvas").first
    bars.scroll_into_view_if_needed()
    bars.hover(position={"x": 60, "y": 40})
    shown.page.wait_for_selector("#modules [aria-label=tip] text")
    assert "7.5 ms, compute-bound" in " ".join(bars.locator("[aria-label=tip] text").all_text_contents())


def test_a_point_of_the_pareto_front_has_its_name_under_the_pointer(shown: Watched) -> None:
    points = shown.page.locator("#cost-time .canvas [aria-label=dot] path")
    points.last.hover(force=True)
    shown.page.wait_for_selector("#cost-time [aria-label=tip] text")
    assert "aws g6.xlarge" in " ".join(shown.page.locator("#cost-time [aria-label=tip] text").all_text_contents())


def test_the_arrow_keys_go_from_point_to_point(shown: Watched) -> None:
    shown.page.locator("#cost-time figure summary").focus()
    shown.page.keyboard.press("Shift+Tab")
    spoken, ringed = shown.page.locator("#cost-time .spoken"), shown.page.locator("#cost-time [aria-label=tip] text")
    assert "aws g6.xlarge" in spoken.text_content()
    assert "aws g6.xlarge" in " ".join(ringed.all_text_contents())
    shown.page.locator("#batches figure summary").first.focus()
    shown.page.keyboard.press("Shift+Tab")
    spoken = shown.page.locator("#batches .spoken").first
    at_first = spoken.text_content()
    shown.page.keyboard.press("ArrowRight")
    assert "batch 100" in spoken.text_content()
    shown.page.keyboard.press("ArrowLeft")
    assert spoken.text_content() == at_first
    shown.page.keyboard.press("End")
    shown.page.keyboard.press("ArrowRight")
    assert spoken.text_content() == at_first  # after the last comes the first
    shown.page.keyboard.press("Escape")
    assert spoken.text_content() == ""


def test_only_a_long_table_can_be_sorted_and_only_a_wide_one_takes_the_focus(shown: Watched) -> None:
    assert shown.page.locator("#cost-time th").count() > 0
    assert shown.page.locator("#cost-time th button").count() == 0
    shown.page.locator("#cost-time figure summary").click()
    # The page sets them after the layout, which a busy browser delays.
    shown.page.locator('#cost-time .scroll[tabindex="-1"]').wait_for()
    shown.page.locator('#ranking .scroll[tabindex="0"]').wait_for()


def test_a_table_wider_than_its_box_says_that_it_scrolls(shown: Watched) -> None:
    shown.page.locator("#accuracy summary").click()
    hint = shown.page.locator("#accuracy .note", has_text="sideways")
    hint.wait_for(state="hidden")
    shown.page.set_viewport_size(SIZES["phone"])
    hint.wait_for(state="visible")


def test_the_headline_is_one_line_on_a_desktop(shown: Watched) -> None:
    headline = shown.page.locator(".headline")
    line_height = float(headline.evaluate("one => parseFloat(getComputedStyle(one).lineHeight)"))
    assert headline.bounding_box()["height"] < 1.5 * line_height


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_the_screen(tmp_path: Path, size: str, scheme: str) -> None:
    file = tmp_path / "report.html"
    file.write_text(render_report(report()), encoding="utf-8")
    with watched_page(viewport=SIZES[size], color_scheme=scheme) as seen:
        seen.page.goto(file.as_uri())
        seen.page.wait_for_selector("#accuracy summary")
        assert seen.page.evaluate("document.documentElement.scrollWidth") == SIZES[size]["width"]
        assert seen.complaints == []


def test_a_hostile_name_is_shown_as_text(tmp_path: Path) -> None:
    odd = quote(HOSTILE, kind="gpu", device=HOSTILE, usd=1.0, provider=HOSTILE)
    answer = recommendation(
        odd, rejected=(rejection(HOSTILE, code="does-not-fit", reason=HOSTILE),), name=HOSTILE, warnings=(HOSTILE,)
    )
    file = tmp_path / "report.html"
    file.write_text(render_report(report(answer)), encoding="utf-8")
    with watched_page() as seen:
        seen.page.on("dialog", lambda dialog: seen.complaints.append(dialog.message))
        seen.page.goto(file.as_uri())
        seen.page.wait_for_selector("#accuracy summary")
        assert seen.page.locator("h1").inner_text() == f"{HOSTILE}: inference"
        assert seen.page.locator("#ranking tbody td:nth-child(2)").first.text_content() == HOSTILE
        assert seen.page.locator("img").count() == 0
        assert (seen.complaints, seen.requests) == ([], [file.as_uri()])
