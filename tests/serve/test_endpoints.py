import json
import subprocess
import sys
from typing import Any

import pytest
from pydantic import TypeAdapter

from advisor.catalog.overlay import load_catalog
from advisor.records.answer import Recommendation
from advisor.records.price import Catalog
from advisor.serve.worker import QUESTIONS, answer
from advisor.workload.file import workload_to_json
from tests.generations import traced
from tests.serve.conftest import ROOT, WORKLOAD
from tests.serve.mutations import broken_requests


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog(cwd=ROOT / "tests")


def ask(question: str, document: object, catalog: Catalog) -> tuple[int, dict[str, object]]:
    reply = answer(question, json.dumps(document).encode(), catalog=catalog)
    return int(reply.word), json.loads(reply.body)


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_question_has_an_answer(question: str, catalog: Catalog) -> None:
    document = {} if question in ("devices", "offers", "accuracy") else {"workload": WORKLOAD}
    status, found = ask(question, document, catalog)
    assert status == 200
    assert found


def test_a_job_that_fits_nowhere_is_an_answer_without_a_best(catalog: Catalog) -> None:
    status, found = ask(
        "recommend", {"workload": WORKLOAD, "options": {"samples": 1_000_000, "max_usd": 1e-9}}, catalog
    )
    assert (status, found["best"]) == (200, None)


def test_a_mistake_names_the_option(catalog: Catalog) -> None:
    for options, field in (
        ({"provider": ["nobody"]}, "options.provider"),
        ({"batch": "0"}, "options.batch"),
        ({"epochs": 3}, "options.epochs"),
        ({"device": ["local"]}, "options.device"),
        ({"device": ["xyz"]}, "options.device"),
        ({"max_usd": -1}, "options.max_usd"),
    ):
        status, found = ask("recommend", {"workload": WORKLOAD, "options": options}, catalog)
        assert (status, found["error"]["field"]) == (422, field)  # type: ignore[index]


@pytest.mark.parametrize("options", [{}, {"device": ["l4"]}])
def test_a_mistake_in_the_devices_to_explain_names_their_key_and_no_flag(
    catalog: Catalog, options: dict[str, Any]
) -> None:
    status, found = ask("explain", {"workload": WORKLOAD, "on": ["xyz"], "options": options}, catalog)
    assert (status, found["error"]["field"]) == (422, "on")  # type: ignore[index]
    assert "--on" not in found["error"]["message"]  # type: ignore[index]


def test_nothing_to_explain_says_so(catalog: Catalog) -> None:
    status, found = ask("explain", {"workload": WORKLOAD, "options": {"samples": 1_000_000, "max_usd": 1e-9}}, catalog)
    assert (status, found["error"]["code"]) == (422, "nothing-fits")  # type: ignore[index]
    hint = found["error"]["hint"]  # type: ignore[index]
    assert "`recommend`" in hint
    assert "advise" not in hint


def test_offers_are_those_asked_for(catalog: Catalog) -> None:
    status, found = ask("offers", {"provider": ["aws"], "device": ["l4"]}, catalog)
    prices = found["prices"]
    assert status == 200
    assert isinstance(prices, list)
    assert {(row["provider"], row["device"]) for row in prices} == {("aws", "l4")}


def _answers_each(catalog: Catalog, *, count: int, seed: int) -> list[int]:
    """The statuses; what is answered at all is a whole answer, every number of it there."""
    whole = TypeAdapter(Recommendation)
    statuses = []
    for body in broken_requests({"workload": WORKLOAD}, count=count, seed=seed):
        reply = answer("recommend", body, catalog=catalog)
        if reply.word == "200":  # the new value happened to be one that may be
            whole.validate_json(reply.body)
        else:
            assert json.loads(reply.body)["error"]["message"]
        statuses.append(int(reply.word))
    return statuses


def test_broken_requests_are_refused_or_answered_in_full(catalog: Catalog) -> None:
    statuses = _answers_each(catalog, count=150, seed=1)
    assert set(statuses) <= {200, 400, 422}
    assert statuses.count(200) < len(statuses) / 5


def test_neither_torch_nor_yaml_nor_the_network_is_imported_to_answer() -> None:
    code = (
        "import json, sys; from pathlib import Path; from advisor.catalog.cache import catalog_from_json;"
        "from advisor.serve import worker; from advisor.serve.worker import answer;"
        "sent = json.dumps({'profiles': None, 'prices': []}).encode();"
        "worker.load(sent); before = set(sys.modules); catalog = catalog_from_json(worker.load(sent).body);"
        "body = json.dumps({'workload': json.loads(Path(sys.argv[1]).read_text())}).encode();"
        "assert answer('recommend', body, catalog=catalog).word == '200';"
        "print(sorted({'torch', 'fvcore', 'httpx'} & set(sys.modules)))"
    )
    example = str(ROOT / "advisor" / "serve" / "example_workload.json")
    done = subprocess.run([sys.executable, "-c", code, example], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "[]\n"


def test_a_language_model_in_service_is_ranked_with_its_options(catalog: Catalog) -> None:
    pytest.importorskip("transformers")
    workload = workload_to_json(traced("llama"))
    options = {"concurrency": 8, "weights": "int8", "max_tpot": "50ms", "requests_per_second": 2, "device": ["l4"]}
    status, found = ask("recommend", {"workload": workload, "options": options}, catalog)
    assert status == 200
    assert found["best"]["batch"] == 8  # type: ignore[index]
    assert found["best"]["tokens"]["tpot_s"]["mid"] <= 0.05  # type: ignore[index]
    assert found["job"]["generation"]["weights"] == "int8"  # type: ignore[index]

    for wrong, field in (
        ({"prompt_tokens": 5}, "options.prompt_tokens"),
        ({"concurrency": "0"}, "options.concurrency"),
    ):
        status, found = ask("recommend", {"workload": workload, "options": wrong}, catalog)
        assert (status, found["error"]["field"]) == (422, field)  # type: ignore[index]
