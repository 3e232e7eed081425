"""An option out of its range is refused at every door: the command line, the keywords of Python and a request."""

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from advisor.errors import DocumentError, UsageError
from advisor.question.option_values import checked_options
from advisor.records.flag_values import flag_name, value_type
from advisor.records.options import Options
from advisor.serve.options import ALLOWED
from advisor.serve.options import options_of as requested
from tests.cli.conftest import Pipeline, Result, advise, pipeline

__all__ = ["advise", "pipeline"]  # the fixtures of the command line

Advise = Callable[..., Result]
NUMERIC = [field.name for field in fields(Options) if value_type(field.type) in (int, float)]
BAD = (-5, -5.0, 0, math.nan, math.inf, -math.inf, 1e300, 5e-324, 10**40, 10**5000, True, "", "many", "1e999", [3], {})


@pytest.mark.parametrize("name", NUMERIC)
@pytest.mark.parametrize(
    "value", BAD, ids=lambda value: f"{type(value).__name__}-{value!r:.10}" if value != 10**5000 else "huge"
)
def test_a_number_out_of_its_range_is_refused_at_all_three_doors(
    advise: Advise, pipeline: Pipeline, name: str, value: Any
) -> None:
    if name == "loader_workers" and value == 0 and value is not False:
        return  # a loader without workers loads in the process of the step
    with pytest.raises(UsageError, match=f"^{name}: "):
        checked_options(**{name: value})
    if name in ALLOWED:
        with pytest.raises(DocumentError) as caught:
            requested({name: value})
        assert caught.value.key == f"options.{name}"
    if value != 10**5000 and not isinstance(value, (bool, list, dict)):
        result = advise("model.py", f"{flag_name(name)}={value}")
        assert result.code == 2
        assert flag_name(name) in result.err
        assert pipeline.asked == []


@pytest.mark.parametrize("name", NUMERIC)
def test_a_number_in_its_range_is_taken_at_all_three_doors(advise: Advise, pipeline: Pipeline, name: str) -> None:
    if name in ("max_utilization", "acceptance_rate", "draft_cost"):
        values: tuple[Any, ...] = (0.5, "0.5", np.float32(0.5))
    else:
        values = (3, "3", np.int64(3), np.float32(3))
    expected = values[0]
    for value in values:
        assert getattr(checked_options(**{name: value}), name) == expected
    if name in ALLOWED:
        assert getattr(requested({name: expected}), name) == expected
    advise("model.py", f"{flag_name(name)}={expected}")
    assert getattr(pipeline.asked[0]["options"], name) == expected


def test_a_provider_may_be_called_as_people_call_it_at_all_three_doors(advise: Advise, pipeline: Pipeline) -> None:
    called = "Amazon,google,Microsoft Azure,Lambda Labs,vast.ai,salad"
    expected = ("aws", "gcp", "azure", "lambda", "vast-ai", "salad")
    assert checked_options(provider=called.split(",")).provider == expected
    assert requested({"provider": called}).provider == expected
    advise("model.py", "--provider", called)
    assert pipeline.asked[0]["options"].provider == expected


def test_architectures_and_instances_are_taken_at_all_three_doors(advise: Advise, pipeline: Pipeline) -> None:
    given = {"arch": "Arm", "instance": "c7g.xlarge,aws/us-east-1/g5.xlarge"}
    expected = (("arm",), ("c7g.xlarge", "aws/us-east-1/g5.xlarge"))
    advise("model.py", "--arch", given["arch"], "--instance", given["instance"])
    doors = checked_options(arch="Arm", instance=given["instance"]), requested(given), pipeline.asked[0]["options"]
    assert [(found.arch, found.instance) for found in doors] == [expected] * 3
