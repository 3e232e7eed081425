"""A comparison as JSON: the whole record, in base units, ratios as 1.09."""

import json

from advisor.records.comparison import Comparison
from advisor.report.as_json import to_plain


def render_comparison_json(comparison: Comparison) -> str:
    """Field by field; a number that is not finite is an error of ours."""
    return json.dumps(to_plain(comparison), indent=2, allow_nan=False) + "\n"
