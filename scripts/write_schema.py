"""Writes docs/answer.schema.json, the JSON Schema of the output of `advise -o json`, from the records.

python scripts/write_schema.py
"""

import json
from pathlib import Path

from pydantic import TypeAdapter

from advisor.records.answer import Recommendation

SCHEMA = Path(__file__).resolve().parents[1] / "docs" / "answer.schema.json"


def schema() -> str:
    """Return the schema as text. Names contain the units: base units, and ratios such as 0.09."""
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The answer of `advise -o json`",
        **TypeAdapter(Recommendation).json_schema(mode="serialization"),
    }
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(schema(), encoding="utf-8")
