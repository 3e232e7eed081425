"""Describes what routes take and return in /openapi.json, from the same records that the commands use."""

import json
from dataclasses import MISSING, fields
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from advisor.question.json_options import NAMES_SCHEMA
from advisor.records.workload import Workload
from advisor.serve.options import EXAMPLE_WORKLOAD, options_schema

_REFUSALS = {
    400: "not JSON",
    401: "a token is required",
    408: "the body did not arrive in time",
    413: "the body is too large",
    415: "the body is not JSON",
    421: "unknown host name",
    422: "a field is wrong, or there is nothing to explain or to compare because no instance fits",
    429: "too many requests are waiting",
    500: "internal error; see the log of the service",
    503: "the answer took too long, including the wait for a worker",
}
_REFUSALS_OF_READS = (401, 421, 422, 429, 500, 503)


class Error(BaseModel):
    """A mistake in a request; `field` is the place in it, or "" if there is none."""

    code: str
    field: str
    message: str
    hint: str


class ErrorReply(BaseModel):
    """The body of every reply that is not an answer."""

    error: Error


def responses(answer: type | None, *, takes_body: bool) -> dict[int | str, dict[str, Any]]:
    """Describe the replies of a route: the record of its answer, or any object, and its refusals."""
    schema = {"model": answer} if answer else {"content": {"application/json": {"schema": {"type": "object"}}}}
    refusals = _REFUSALS if takes_body else _REFUSALS_OF_READS
    return {200: {"description": "the answer", **schema}} | _refusals(*refusals)


def _refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"description": _REFUSALS[status], "model": ErrorReply} for status in statuses}


HEALTH: dict[int | str, dict[str, Any]] = _refusals(421) | {503: {"description": "no worker was alive"}}


def body_of(schema: str) -> dict[str, Any]:
    """Describe the body of a route. FastAPI does not parse it, because that would keep the event loop busy."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": _ref(schema)}}}}


def add_request_schemas(app: FastAPI) -> None:
    """Add the schemas of bodies to the application's description, on the first request for it."""
    describe = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            describe()["components"]["schemas"].update(_request_schemas())
        return describe()

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way


def _request_schemas() -> dict[str, Any]:
    on = {**NAMES_SCHEMA, "description": "offers or devices, as in `--on`"}
    required = [field.name for field in fields(Workload) if field.default is field.default_factory is MISSING]
    about = "A workload, as written by `advise profile SOURCE -o workload.json`."
    return {
        "Request": _request_schema({}),
        "ExplainRequest": _request_schema({"on": on}),
        "Options": options_schema(),
        "Workload": {"type": "object", "description": about, "required": required},
    }


def _request_schema(more: dict[str, Any]) -> dict[str, Any]:
    workload = json.loads(EXAMPLE_WORKLOAD.read_text(encoding="utf-8"))
    return {
        "type": "object",
        "required": ["workload"],
        "additionalProperties": False,
        "properties": {"workload": _ref("Workload"), "options": _ref("Options"), **more},
        "example": {"workload": workload, "options": {"samples": "1e6"}},
    }


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}
