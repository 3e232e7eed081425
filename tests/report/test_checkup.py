"""Checks in a terminal and as JSON."""

import json

from advisor.records.machine import Check
from advisor.report.as_json import to_json
from advisor.report.content import View
from advisor.report.devices import checkup_content
from advisor.report.terminal import to_text
from tests.says import assert_says


def render_checkup(checks: tuple[Check, ...], *, view: View) -> str:
    return to_text(checkup_content(checks), view)


FINE = Check(name="torch", state="ok", found="2.9.0")
LESS = Check(name="timm", state="missing", found="optional", remedy="pip install timm")
BROKEN = Check(name="profiles", state="fails", found="a.yaml:1: no date", remedy="add one")


def test_every_check_is_a_line_with_its_remedy_below() -> None:
    assert render_checkup((FINE, LESS), view=View(width=80)).splitlines()[1:4] == [
        "ok       torch  2.9.0",
        "missing  timm   optional",
        "                -> pip install timm",
    ]


def test_what_fails_is_named_at_the_end() -> None:
    text = render_checkup((FINE, BROKEN), view=View(width=80))

    assert "FAILS  profiles  a.yaml:1: no date" in text
    assert_says(text.splitlines()[-1], "cannot", "profiles")


def test_json_holds_every_check() -> None:
    document = json.loads(to_json({"checks": (FINE, BROKEN)}))

    assert [check["state"] for check in document["checks"]] == ["ok", "fails"]
    assert document["checks"][1]["remedy"] == "add one"
