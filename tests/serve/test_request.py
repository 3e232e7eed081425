import copy
import json
from typing import Any

import pytest

from advisor.errors import DocumentError, LoadError, UsageError
from advisor.records.options import GivenOptions
from advisor.serve.options import ALLOWED, options_of
from advisor.serve.problem import problem_of
from advisor.serve.request import read_request
from tests.serve.conftest import WORKLOAD
from tests.serve.mutations import OPTIONS


def read(options: Any = None, **more: Any) -> Any:
    return read_request(json.dumps({"workload": WORKLOAD, "options": options or {}} | more).encode())


def test_options_are_the_flags_as_text_numbers_or_lists() -> None:
    found = options_of(
        {
            "samples": "1e6",
            "epochs": 3,
            "max_usd": 0.00001,
            "deadline": "24h",
            "max_latency": 0.05,
            "batch": 16,
            "provider": "aws,gcp",
            "region": ["EU", "US"],
            "strict": True,
            "price": "SPOT",
            "tokens": None,
        }
    )
    assert found == GivenOptions(
        samples=1_000_000,
        epochs=3,
        max_usd=0.00001,
        deadline=86400.0,
        max_latency=0.05,
        batch="16",
        provider=("aws", "gcp"),
        region=("EU", "US"),
        strict=True,
        price="spot",
        given=frozenset(
            (
                "samples",
                "epochs",
                "max_usd",
                "deadline",
                "max_latency",
                "batch",
                "provider",
                "region",
                "strict",
                "price",
            )
        ),
    )


def test_the_mode_is_the_workloads() -> None:
    assert read().options.mode == WORKLOAD["mode"] == "inference"
    with pytest.raises(UsageError, match="saved inference step"):
        read({"mode": "training"})
    training = {**WORKLOAD, "mode": "training"}
    assert read({}, workload=training).options.mode == "training"
    with pytest.raises(UsageError, match="saved training step"):
        read({"mode": "inference"}, workload=training)


@pytest.mark.parametrize("name", ["profiles", "prices"])
def test_no_option_names_a_file(name: str) -> None:
    with pytest.raises(DocumentError, match="cannot be set here") as caught:
        options_of({name: "/etc/passwd"})
    assert problem_of(caught.value).field == f"options.{name}"


def test_an_option_that_cannot_be_read_is_named_once() -> None:
    with pytest.raises(DocumentError) as caught:
        options_of({"deadline": "6 hours"})
    assert caught.value.message.count("deadline") == 1
    assert problem_of(caught.value).field == "options.deadline"


def test_every_option_that_names_files_is_refused() -> None:
    # An option that takes a path says FILE or DIR in its help.
    named = [name for name, field in ALLOWED.items() if field.metadata["metavar"] in ("FILE", "DIR")]
    assert named == []


@pytest.mark.parametrize(("name", "value"), [pair for pair in OPTIONS if pair[0] in ALLOWED and pair[0] != "layout"])
def test_a_wrong_option_is_refused_by_its_name(name: str, value: Any) -> None:
    problem = None
    try:
        options_of({name: value})
    except DocumentError as error:
        problem = problem_of(error)
    if problem is None:  # what only the catalog, or the job as a whole, can refuse
        assert name in ("batch", "provider", "region", "device", "currency", "epochs", "deadline")
    else:
        assert problem.field == f"options.{name}"
        assert problem.status == 422


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (("batch",), 0, "workload.batch"),
        (("rows", "count", 0), -1, "workload.rows.0 ("),
        (("rows", "count", 0), 1e300, "workload.rows.0.count"),
        (("rows", "inputs", 0, 0, "shape", 0), -7, "workload.rows.0 ("),
        (("rows",), [], "workload.rows"),
        (("schema_version",), 99, "workload.schema_version"),
        (("memory",), [], "workload.memory"),
    ],
)
def test_a_wrong_field_of_the_workload_is_named(path: tuple[Any, ...], value: Any, field: str) -> None:
    workload = copy.deepcopy(WORKLOAD)
    place = workload
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(DocumentError) as caught:
        read_request(json.dumps({"workload": workload}).encode())
    assert problem_of(caught.value).field.startswith(field)


def test_what_is_missing_or_unknown_is_named() -> None:
    with pytest.raises(DocumentError, match="workload: missing"):
        read_request(b"{}")
    with pytest.raises(DocumentError, match="unknown key 'workloads'") as caught:
        read_request(b'{"workloads": {}}')
    assert caught.value.hint == "did you mean workload?"
    with pytest.raises(DocumentError, match="unknown key 'on'"):
        read(on=["t4"])
    with pytest.raises(DocumentError, match="expected an object"):
        read_request(b"[]")


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"a": NaN}', b'{"a": 1e999}', b"[" * 100_000, b"9" * 5000])
def test_what_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(LoadError) as caught:
        read_request(body)
    assert not isinstance(caught.value, DocumentError)


def test_the_workload_of_a_request_is_checked_as_a_files_is() -> None:
    text = json.dumps({"workload": WORKLOAD}).replace('"schema_version"', '"batch": 64, "schema_version"', 1)
    with pytest.raises(LoadError, match="'batch' is repeated"):
        read_request(text.encode())
    falling = copy.deepcopy(WORKLOAD)
    falling["rows"]["inputs"][0][0]["shape"][0] = [6400, -99]
    with pytest.raises(DocumentError, match="falls"):
        read_request(json.dumps({"workload": falling}).encode())
    unknown = copy.deepcopy(WORKLOAD)
    unknown["rows"]["op"][0], unknown["rows"]["family"][0] = "own.thing", "unknown"
    asked = read_request(json.dumps({"workload": unknown | {"unknown_ops": {}}}).encode())
    assert asked.workload.unknown_ops == {"own.thing": unknown["rows"]["count"][0]}


def test_names_may_be_asked_of_where_they_are_explained() -> None:
    asked = read_request(json.dumps({"workload": WORKLOAD, "on": ["t4", "l4"]}).encode(), takes_on=True)
    assert asked.on == ("t4", "l4")
    with pytest.raises(DocumentError, match="on: found"):
        read_request(json.dumps({"workload": WORKLOAD, "on": [3]}).encode(), takes_on=True)


def test_more_rows_than_any_model_has_are_refused() -> None:
    workload = copy.deepcopy(WORKLOAD)
    rows = workload["rows"]
    for name in rows:
        rows[name] = (rows[name] * 10_001)[:10_001]
    with pytest.raises(DocumentError, match="10,001 rows, but at most 10,000"):
        read_request(json.dumps({"workload": workload}).encode())
