"""Where the time of a step goes as JSON: every group of every device, in base units, ratios as 0.09."""

import json

from advisor.records.explanation import Explanation
from advisor.report.as_json import to_plain


def render_explanation_json(explanation: Explanation) -> str:
    """The whole record, field by field; a number that is not finite is an error of ours."""
    return json.dumps(to_plain(explanation), indent=2, allow_nan=False) + "\n"
