"""The JSON of an answer: the contract that scripts depend on."""

import json
from dataclasses import replace
from types import MappingProxyType

import pytest
from pydantic import TypeAdapter

from advisor.records.explained_step import Explanation
from advisor.report.as_json import render, to_json
from advisor.report.content import View
from tests.report.test_explanation import explanation, step
from tests.report.test_inventory import inventory
from tests.report.toys import GENOA, L4, T4, recommendation, rejection

ANSWER = recommendation(
    L4, T4, GENOA, rejected=(rejection("p5", code="too-few-gpus", reason="has 1 GPU, not 8"),), warnings=("old",)
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
            "better_if_price_holds",
            "better_if_prediction_holds",
            "best_in_auto",
            "chance_by_device",
            "best_by_tier",
            "best_rented",
            "situations",
            "api",
            "choices",
            "alternatives",
            "at_hand",
            "measured",
            "batch_sweeps",
            "machine_sweep",
            "context_sweeps",
            "exchange_rate",
            "grids",
        )
    ]
    assert list(document["quotes"][0]) == [
        *("id", "provider", "tier", "region", "instance", "vcpus", "device", "gpus_used", "price_kind", "price_basis"),
        *(
            "price_adjustment",
            "usd_per_hour",
            "price_date",
            "price_marks",
            "precision",
            "compile",
            "batch",
            "step_s",
            "samples_per_s",
        ),
        *("usd_per_million_samples", "job_usd", "job_s", "peak_memory_bytes", "device_memory_bytes", "fits", "bound"),
        *(
            "time_source",
            "chance_cheapest",
            "indistinguishable",
            "chance_among_trusted",
            "price_is_trusted",
            "is_candidate",
            "may_lead",
        ),
        *("on_pareto_front", "architecture", "wheel"),
        *(
            "instance_count",
            "idle_ratio",
            "p50_s",
            "p99_s",
            "server_count",
            "wait_s",
            "start_up_s",
            "software_s",
            "weights_s",
            "start_up_measured",
            "lost_s",
        ),
        *("interruption", "interruption_is_assumed", "commitment_usd", "loader_vcpus", "is_tight", "host_cpu", "plan"),
        *("scaling_efficiency_ratio", "tokens"),
        *("power", "energy_kwh", "co2_kg", "on_co2_front"),
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
            "code": "too-few-gpus",
            "reason": "has 1 GPU, not 8",
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
    assert json.loads(to_json(MappingProxyType({"aten.foo": (1, 2)}))) == {"aten.foo": [1, 2]}


def test_the_machine_and_devices_at_hand_are_there_in_base_units() -> None:
    document = json.loads(to_json(inventory()))

    assert document["machine"]["memory_bytes"] == 32e9
    cpu, t4, unknown = document["devices"]
    assert (cpu["device"]["core_count"], t4["profile"]["id"], unknown["device"]) == (8.0, "t4", None)
    assert document["calibrated_at"] == {"t4": "2026-11-18T09:30:00+00:00"}


def test_what_is_printed_reads_back_as_the_same_explanation() -> None:
    answer = explanation(step(), step(2))
    assert TypeAdapter(Explanation).validate_json(to_json(answer)) == answer


def test_a_step_has_the_keys_that_scripts_rely_on() -> None:
    (found,) = json.loads(to_json(explanation(step())))["steps"]
    assert set(found) >= {"name", "device", "batch", "precision", "step_s", "bound", "families", "modules", "phases"}
    assert set(found["step_s"]) == {"mid", "low", "high"}
    assert set(found["families"][0]) >= {
        "name", "time_s", "time_ratio", "bound", "flops", "moved_bytes", "flops_per_byte", "ridge_flops_per_byte",
        "roofline_s", "roofline_ratio",
    }  # fmt: skip
