"""Requests that schemathesis makes up from the service's own description: no 5xx, no status that it does not name."""

import pytest

from tests.serve.conftest import Server


@pytest.mark.slow
def test_no_request_that_fits_or_breaks_the_description_surprises_the_service(server: Server) -> None:
    schemathesis = pytest.importorskip("schemathesis")
    from hypothesis import HealthCheck, Phase, given, settings

    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    checks = schemathesis.checks
    operations = [one.ok() for one in schema.get_all_operations()]
    assert len(operations) == 8
    for operation in operations:
        positive, negative = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
        takes_something = bool(list(operation.body) or list(operation.query))
        for mode in (positive, negative) if takes_something else (positive,):

            @settings(
                max_examples=50 if takes_something else 3,
                database=None,
                phases=[Phase.explicit, Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def ask(case: object) -> None:
                case.call_and_validate(  # type: ignore[attr-defined]
                    base_url=server.url,
                    checks=[
                        checks.not_a_server_error,
                        checks.status_code_conformance,
                        checks.response_schema_conformance,
                        checks.content_type_conformance,
                    ],
                )

            ask()
    assert server.get("/healthz").json()["status"] == "ok"
