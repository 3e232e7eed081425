"""Defines the options that a request may set, and an example workload.

This module imports little, so that the service starts fast.
"""

from pathlib import Path
from typing import Any

from advisor.question.json_options import read_options, schema_of_options, settable
from advisor.records.options import NOT_SERVED, Options

ALLOWED = settable(NOT_SERVED)
EXAMPLE_WORKLOAD = Path(__file__).parent / "example_workload.json"
HINT = 'a request is {"workload": {...}, "options": {...}}'


def options_of(document: Any) -> Options:
    """Return the options of a request; raise `DocumentError` for one that it may not set or that cannot be read."""
    return read_options(document, refused=NOT_SERVED)


def options_schema() -> dict[str, Any]:
    """Return the JSON schema of the options of a request."""
    return schema_of_options(refused=NOT_SERVED)
