"""`-o json` of whatever a command answers: the whole record, field by field in its own order and in base units."""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from advisor.records.answer import Recommendation
from advisor.report.view import View

SUFFIX = ".json"


def render(recommendation: Recommendation, view: View) -> str:
    """Every quote and every rejection, whatever the view shows."""
    return to_json(recommendation)


def to_json(value: Any) -> str:
    """A record, or what holds some, as a document; a number that is not finite is an error of ours."""
    return json.dumps(to_plain(value), indent=2, allow_nan=False) + "\n"


def to_plain(value: Any) -> Any:
    """Records become dicts, tuples become lists; the rest is JSON already."""
    if is_dataclass(value):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    return value
