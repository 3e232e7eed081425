"""The page at `/`: its files, its questions, and in a browser against the real server."""

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args

import httpx
import pytest

from advisor.records.generation import WeightFormat
from advisor.serve.options import ALLOWED, options_of
from advisor.serve.page import page_files
from advisor.workload.file import read_workload
from tests.browser import watched_page
from tests.serve.conftest import ROOT, WORKLOAD, Server

EXAMPLES = ROOT / "advisor" / "serve" / "page_files" / "examples"


def test_every_file_that_the_page_names_is_served(server: Server) -> None:
    page = server.get("/").text
    for path in page_files():
        assert server.get(path).status_code == 200
    named = {part.split('"')[0] for attribute in ('href="', 'src="') for part in page.split(attribute)[1:]}
    assert {path for path in named if path.startswith("/")} <= page_files().keys()


def test_the_page_may_load_from_its_own_server_alone(server: Server) -> None:
    headers = server.get("/").headers
    assert headers["content-security-policy"].startswith("default-src 'self'; ")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert server.get("/page/report.js").headers["content-type"] == "text/javascript; charset=utf-8"


def test_the_page_offers_the_examples_that_are_there() -> None:
    page = page_files()["/"].read_text()
    for example in EXAMPLES.glob("*.json"):
        assert f'<option value="{example.stem}">' in page
        assert read_workload(example).rows


class Settings(HTMLParser):
    """The names of the form's settings, each with the values that its menu offers."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, list[str]] = {}
        self._menu: list[str] = []
        self._is_text_the_value = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("input", "select") and given.get("name"):
            self._menu = self.values.setdefault(str(given["name"]), [])
        if tag == "option":
            self._is_text_the_value = "value" not in given
            self._menu += [given["value"] or ""] if "value" in given else []

    def handle_data(self, data: str) -> None:
        if self._is_text_the_value:
            self._menu.append(data)
            self._is_text_the_value = False


def test_every_setting_is_an_option_of_the_service_with_its_values() -> None:
    form = Settings()
    form.feed(page_files()["/"].read_text())
    del form.values["example"]
    assert {"max_tpot", "concurrency", "deadline"} <= form.values.keys() <= ALLOWED.keys()
    formats = [one for one in get_args(WeightFormat) if one != "auto" and not one.startswith("q")]  # without GGUF
    assert form.values["weights"] == ["", *formats]
    for name, values in form.values.items():
        for value in filter(None, values):
            options_of({name: value})


def test_the_answer_is_what_the_report_shows(server: Server) -> None:
    asked = {"workload": WORKLOAD, "options": {"provider": "aws", "samples": "1e9"}}
    report = server.post("/page/report", asked).json()
    answer = server.post("/v1/recommend", asked).json()
    assert answer["best"]["instance"] in report["headline"]
    ranking = next(section for section in report["sections"] if section["id"] == "ranking")
    assert len(ranking["tables"][0]["rows"]) == len(answer["quotes"])
    assert server.post("/page/break-even", asked).json()["id"] == "break-even"


def test_a_mistake_names_its_field(server: Server) -> None:
    reply = server.post("/page/report", {"workload": WORKLOAD, "options": {"deadline": "soon"}})
    assert (reply.status_code, reply.json()["error"]["field"]) == (422, "options.deadline")


def test_the_page_of_a_service_with_a_token_opens_and_its_questions_do_not(start: object, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    with start("--token-file", str(token)) as guarded:  # type: ignore[operator]
        assert httpx.get(f"{guarded.url}/").status_code == 200
        assert guarded.post("/page/report", {"workload": WORKLOAD}).status_code == 401


@pytest.mark.slow
def test_settings_change_the_answer_and_the_link_holds_them(server: Server) -> None:
    with watched_page(viewport={"width": 1280, "height": 900}) as seen:
        page = seen.page
        page.goto(f"{server.url}/#example=mlp&provider=aws")
        page.wait_for_selector("#break-even figure", timeout=60_000)
        assert page.get_by_role("textbox", name="Providers").input_value() == "aws"
        assert set(page.locator("#ranking tbody td:nth-child(2)").all_inner_texts()) == {"aws"}
        asked_before = seen.requests.count(f"{server.url}/page/report")
        page.get_by_role("textbox", name="Providers").fill("azure")
        page.get_by_role("textbox", name="Providers").fill("gcp")
        page.locator("#ranking tbody tr:first-child td:nth-child(2)", has_text="gcp").wait_for(timeout=60_000)
        assert page.url.endswith("#example=mlp&provider=gcp")
        assert seen.requests.count(f"{server.url}/page/report") == asked_before + 1
        page.get_by_role("textbox", name="Maximum per hour").fill("0.0001")
        page.locator(".headline", has_text="No instance").wait_for(timeout=60_000)
        assert page.locator("[role=alert]").is_hidden()  # that nothing fits is the answer
        page.get_by_role("textbox", name="Deadline").fill("soon")
        page.wait_for_selector("[role=alert]:not([hidden])")
        assert "is not a duration" in page.locator("[role=alert]").inner_text()
        assert page.locator("[role=alert]").inner_text().startswith("Deadline: ")
        assert page.locator("main").get_attribute("aria-busy") == "true"  # the answer is not to these settings
        assert page.get_by_role("textbox", name="Deadline").get_attribute("aria-invalid") == "true"
        refused = "Failed to load resource: the server responded with a status of 422 (Unprocessable Content)"
        assert set(seen.complaints) <= {refused, refused.replace("Content", "Entity")}
        assert all(url.startswith(f"{server.url}/") for url in seen.requests)


@pytest.mark.slow
def test_a_dropped_workload_is_answered_and_its_name_is_text(server: Server, tmp_path: Path) -> None:
    name = "</script><img src=x onerror=alert(1)>[red]\"'"
    file = tmp_path / "workload.json"
    file.write_text(json.dumps({**WORKLOAD, "name": name}))
    with watched_page(viewport={"width": 390, "height": 844}) as seen:
        page = seen.page
        page.goto(f"{server.url}/#example=mlp")
        page.wait_for_selector("#report h1", timeout=60_000)
        page.set_input_files("#file", str(file))
        page.locator("#report h1", has_text="img src").wait_for(timeout=60_000)
        assert page.locator("#report h1").inner_text() == f"{name}: inference"
        assert page.locator("img").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        tops = {part: page.locator(part).bounding_box()["y"] for part in (".headline", "#ranking", "#settings")}
        assert tops[".headline"] < 300  # on a phone the answer comes before the form
        assert tops["#ranking"] < tops["#settings"]
        page.get_by_role("button", name="Change the settings").click()
        assert page.locator("#settings").bounding_box()["y"] < 100
        to_answer = page.locator("#to-answer")
        assert to_answer.inner_text() == page.locator(".headline").inner_text()
        assert to_answer.bounding_box()["y"] < 844
        to_answer.click()
        assert 0 <= page.locator(".headline").bounding_box()["y"] < 300
        file.write_text("not JSON")
        page.set_input_files("#file", [])
        page.set_input_files("#file", str(file))
        page.wait_for_selector("[role=alert]:not([hidden])")
        assert "workload.json is not a workload" in page.locator("[role=alert]").inner_text()
        assert seen.complaints == []


@pytest.mark.slow
def test_the_settings_can_be_reached_and_named_without_a_mouse(server: Server) -> None:
    with watched_page() as seen:
        page = seen.page
        page.goto(f"{server.url}/#example=mlp")
        page.wait_for_selector("#report h1", timeout=60_000)
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the answer"
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.name") == "example"
        unnamed = page.evaluate(
            "[...document.querySelectorAll('input, select')].filter((one) => one.labels.length === 0).length"
        )
        assert unnamed == 0
