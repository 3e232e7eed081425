import json

from pydantic import TypeAdapter

from advisor.records.explanation import Explanation
from advisor.report.explanation_json import render_explanation_json
from tests.report.test_explanation_text import explanation, step


def test_what_is_printed_reads_back_as_the_same_explanation() -> None:
    answer = explanation(step(), step(2))
    assert TypeAdapter(Explanation).validate_json(render_explanation_json(answer)) == answer


def test_a_step_has_the_keys_that_scripts_rely_on() -> None:
    (found,) = json.loads(render_explanation_json(explanation(step())))["steps"]
    assert set(found) >= {"name", "device", "batch", "precision", "step_s", "bound", "families", "modules", "phases"}
    assert set(found["step_s"]) == {"mid", "low", "high"}
    assert set(found["families"][0]) >= {
        "name", "time_s", "time_ratio", "bound", "flops", "moved_bytes", "flops_per_byte", "ridge_flops_per_byte",
        "roofline_s", "roofline_ratio",
    }  # fmt: skip
