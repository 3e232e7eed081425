"""The report as one file."""

import json
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any

import pytest

from advisor.report.html import ASSETS, MODULES, PLOT_STYLE_HASH, asset, json_in_html, render_report
from tests.report.report_toys import report
from tests.report.toys import L4, quote, recommendation, rejection

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&\u2028[red]\"'"


class Parts(HTMLParser):
    """The text of every script and style, the policy, and all attributes that name another place."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[tuple[str, dict[str, str | None], str]] = []
        self.tags: list[str] = []
        self.places: list[str | None] = []
        self.policy = ""
        self._open: tuple[str, dict[str, str | None]] | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        self.places += [value for name, value in attrs if name in ("src", "href", "action")]
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"] or ""
        self._open = (tag, given) if tag in ("script", "style") else None

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts.append((*self._open, data))
            self._open = None

    @property
    def data(self) -> Any:
        (text,) = (text for _, given, text in self.texts if given.get("id") == "data")
        return json.loads(text)


def test_the_file_names_no_other_place() -> None:
    assert Parts(render_report(report())).places == []


def test_only_the_scripts_and_styles_of_the_file_itself_may_run() -> None:
    parts = Parts(render_report(report()))
    directives = dict(part.strip().split(" ", 1) for part in parts.policy.split(";"))
    assert directives["default-src"] == directives["base-uri"] == directives["form-action"] == "'none'"
    hashes = {
        kind: [
            f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
            for tag, given, text in parts.texts
            if tag == kind and given.get("type") != "application/json"
        ]
        for kind in ("script", "style")
    }
    assert directives["script-src"].split() == hashes["script"]
    assert directives["style-src"].split() == [*hashes["style"], PLOT_STYLE_HASH]


def test_a_hostile_name_stays_data() -> None:
    odd = quote(HOSTILE, kind="gpu", device=HOSTILE, usd=1.0, provider=HOSTILE)
    answer = recommendation(odd, rejected=(rejection(HOSTILE, code="does-not-fit", reason=HOSTILE),), name=HOSTILE)
    page = render_report(report(answer))
    harmless = Parts(render_report(report(recommendation(L4))))
    parts = Parts(page)
    assert parts.tags == harmless.tags
    assert parts.data["title"] == f"{HOSTILE}: inference"
    ranking = next(section for section in parts.data["sections"] if section["id"] == "ranking")
    assert ranking["tables"][0]["rows"][0][1] == HOSTILE
    assert "\u2028" not in page.partition('id="data">')[2]


def test_embedded_json_reads_back_as_it_was() -> None:
    value = {"a": [HOSTILE, 1.5, None, True], HOSTILE: "é"}
    text = json_in_html(value)
    assert json.loads(text) == value
    assert text.isascii()
    assert not set(text) & set("<>&")


def test_half_a_character_in_a_name_does_not_keep_the_file_from_being_written() -> None:
    assert render_report(report(recommendation(L4, name="half \ud800"))).encode()


def test_a_number_that_is_not_finite_is_an_error() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_in_html(float("nan"))


def test_the_library_and_what_it_leaves_room_for_are_small() -> None:
    # A ranking of 600 offers and 1,300 left out take 0.5 MB; together they stay below 1.5 MB.
    assert len(render_report(report())) < 0.5e6


def test_every_module_comes_after_those_that_it_imports() -> None:
    known: set[str] = set()
    for name in MODULES:
        known.add(name)
        imports = [line for line in asset(name).splitlines() if line.startswith("import ")]
        assert all(line.split('"./')[1].rstrip('";') in known - {name} for line in imports), name


def test_the_library_comes_with_its_licences() -> None:
    licence = (ASSETS / "plot.LICENSE").read_text()
    assert "Copyright 2020-2025 Observable, Inc." in licence
    assert "Mike Bostock" in licence
