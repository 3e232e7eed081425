"""Whether a step fits as JSON: every device, part and remedy, in bytes, ratios as 0.09."""

import json

from advisor.records.memory import MemoryAnswer
from advisor.report.as_json import to_plain


def render_memory_json(answer: MemoryAnswer) -> str:
    """The whole record, field by field; a number that is not finite is an error of ours."""
    return json.dumps(to_plain(answer), indent=2, allow_nan=False) + "\n"
