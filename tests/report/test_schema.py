"""docs/answer.schema.json is the schema of what is printed."""

import json

from pydantic import TypeAdapter

from advisor.records.answer import Recommendation
from advisor.report.as_json import render
from advisor.report.content import View
from scripts.write_schema import SCHEMA, schema
from tests.report.toys import L4, recommendation


def test_the_schema_is_that_of_the_records() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == schema(), "run python scripts/write_schema.py"


def test_what_is_printed_reads_back_as_the_same_answer() -> None:
    answer = recommendation(L4)

    assert TypeAdapter(Recommendation).validate_json(render(answer, View())) == answer


def test_a_quote_has_the_keys_that_scripts_rely_on() -> None:
    (quote,) = json.loads(render(recommendation(L4), View()))["quotes"]

    assert set(quote) >= {
        "id", "provider", "tier", "region", "instance", "vcpus", "device", "gpus_used", "price_kind", "price_basis",
        "usd_per_hour", "price_date", "precision", "compile", "batch", "step_s", "samples_per_s",
        "usd_per_million_samples", "job_usd", "peak_memory_bytes", "fits", "bound", "time_source", "chance_cheapest",
        "indistinguishable",
    }  # fmt: skip
    assert set(quote["device"]) == {"id", "name", "kind", "count"}
    assert set(quote["step_s"]) == set(quote["job_usd"]) == {"mid", "low", "high"}
