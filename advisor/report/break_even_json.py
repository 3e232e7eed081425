"""Break-even as JSON: every point of every curve, in base units, ratios as 0.09."""

import json

from advisor.records.break_even import BreakEven
from advisor.report.as_json import to_plain


def render_break_even_json(break_even: BreakEven) -> str:
    """The whole record, field by field; a number that is not finite is an error of ours."""
    return json.dumps(to_plain(break_even), indent=2, allow_nan=False) + "\n"
