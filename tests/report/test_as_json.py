"""The JSON of an answer: the contract that scripts depend on."""

import json
from dataclasses import replace
from types import MappingProxyType

import pytest

from advisor.report.as_json import render, to_plain
from advisor.report.view import View
from tests.report.toys import GENOA, L4, T4, recommendation, rejection

ANSWER = recommendation(
    L4, T4, GENOA, rejected=(rejection("p5", code="uses-1-of-n", reason="uses 1 of 8"),), warnings=("old",)
)


def test_the_keys_are_those_of_the_record_in_its_order() -> None:
    document = json.loads(render(ANSWER, View()))
    assert list(document) == [
        *(
            "schema_version",
            "job",
            "workload",
            "best",
            "quotes",
            "rejected",
            "notes",
            "warnings",
            "at_hand",
            "measured",
            "batch_sweeps",
            "exchange_rate",
        )
    ]
    assert list(document["quotes"][0]) == [
        *("id", "provider", "tier", "region", "instance", "vcpus", "device", "gpus_used", "price_kind", "price_basis"),
        *("usd_per_hour", "price_date", "price_marks", "precision", "compile", "batch", "step_s", "samples_per_s"),
        *("usd_per_million_samples", "job_usd", "job_s", "peak_memory_bytes", "device_memory_bytes", "fits", "bound"),
        *("time_source", "chance_cheapest", "indistinguishable"),
        *("on_pareto_front", "instance_count", "idle_ratio", "wait_s", "start_up_s", "start_up_measured", "lost_s"),
        *("interruption", "commitment_usd", "loader_vcpus", "is_tight", "plan", "scaling_efficiency_ratio"),
        *("job_parts_usd", "covers", "not_covered"),
    ]
    assert document["quotes"][0]["device"] == {"id": "l4", "name": "L4", "kind": "gpu", "count": 1}
    assert document["quotes"][0]["step_s"] == {"mid": 0.1152, "low": 0.104, "high": 0.128}
    assert document["job"]["assumed"] is True
    assert document["best"] == document["quotes"][0]
    assert document["rejected"] == [
        {
            "id": "aws/us-east-1/p5",
            "provider": "aws",
            "region": "us-east-1",
            "instance": "p5",
            "code": "uses-1-of-n",
            "reason": "uses 1 of 8",
        }
    ]


def test_every_quote_is_written_whatever_the_table_would_show() -> None:
    assert len(json.loads(render(ANSWER, View(top=1)))["quotes"]) == 3


def test_no_answer_is_a_best_of_null() -> None:
    assert json.loads(render(recommendation(), View()))["best"] is None


def test_a_number_that_is_not_finite_is_never_written() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        render(recommendation(replace(L4, samples_per_s=float("inf"))), View())


def test_any_mapping_becomes_an_object() -> None:
    assert to_plain(MappingProxyType({"aten.foo": (1, 2)})) == {"aten.foo": [1, 2]}
