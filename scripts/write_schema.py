"""Write docs/answer.schema.json: the JSON Schema of what `advise -o json` prints, from the records themselves."""

import json
from pathlib import Path

from pydantic import TypeAdapter

from advisor.records.answer import Recommendation

SCHEMA = Path(__file__).resolve().parents[1] / "docs" / "answer.schema.json"


def schema() -> str:
    """The schema as text. Units are in the names: base units, ratios as 0.09."""
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The answer of `advise -o json`",
        **TypeAdapter(Recommendation).json_schema(mode="serialization"),
    }
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(schema(), encoding="utf-8")
