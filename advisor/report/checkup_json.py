"""Checks as JSON."""

import json
from collections.abc import Sequence

from advisor.records.checkup import Check
from advisor.report.as_json import to_plain


def render_checkup_json(checks: Sequence[Check]) -> str:
    """One object with every check in the order they were made."""
    return json.dumps({"checks": to_plain(tuple(checks))}, indent=2) + "\n"
