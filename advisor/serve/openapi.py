"""Describes requests and answers in /openapi.json, from the same records that the commands use."""

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from fastapi import FastAPI

from advisor.records.workload import Workload
from advisor.serve.options import EXAMPLE_WORKLOAD, NAMES_SCHEMA, options_schema

_REFUSALS = {
    400: "not JSON",
    401: "a token is required",
    408: "the body did not arrive in time",
    413: "the body is too large",
    415: "the body is not JSON",
    421: "unknown host name",
    422: "a field is wrong, or no instance fits",
    429: "too many requests are waiting",
    500: "internal error; see the log of the service",
    503: "the answer took too long, including the wait for a worker",
}
_OF_READS = (401, 421, 422, 429, 500, 503)
_ANSWERS = {
    "recommend": ("advisor.records.answer", "Recommendation"),
    "explain": ("advisor.records.explained_step", "Explanation"),
    "breakeven": ("advisor.records.break_even_curves", "BreakEven"),
}


def _json_content(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"description": _REFUSALS[status], **_json_content(_ref("Problem"))} for status in statuses}


HEALTH = _refusals(421) | {503: {"description": "no worker was alive"}}
QUESTION_RESPONSES: Mapping[str, dict[int | str, dict[str, Any]]] = {
    **{
        question: {200: {"description": "the answer", **_json_content(_ref(record))}, **_refusals(*_REFUSALS)}
        for question, (_, record) in _ANSWERS.items()
    },
    **{
        question: {200: {"description": "the answer", **_json_content({"type": "object"})}, **_refusals(*_OF_READS)}
        for question in ("devices", "offers", "accuracy")
    },
}
REQUEST_BODIES = {
    question: {"required": True, **_json_content(_ref("ExplainRequest" if question == "explain" else "Request"))}
    for question in _ANSWERS
}


def with_schemas(app: FastAPI) -> None:
    """Add the schemas of all records to the application's description, on the first request for it."""
    describe = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = describe()
            document.setdefault("components", {}).setdefault("schemas", {}).update(_schemas())
        return describe()

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way


def _schemas() -> dict[str, Any]:
    from importlib import import_module

    from pydantic import TypeAdapter

    answers = [(name, TypeAdapter(getattr(import_module(module), name))) for module, name in _ANSWERS.values()]
    _, definitions = TypeAdapter.json_schemas(
        [(name, "serialization", adapter) for name, adapter in answers],
        ref_template="#/components/schemas/{model}",
    )
    text = {"type": "string"}
    on = {**NAMES_SCHEMA, "description": "offers or devices, as in `--on`"}
    example = {"workload": json.loads(EXAMPLE_WORKLOAD.read_text(encoding="utf-8")), "options": {"samples": "1e6"}}
    return {
        **definitions["$defs"],
        "Request": _request({}, example=example),
        "ExplainRequest": _request({"on": on}, example=example),
        "Options": options_schema(),
        "Workload": {
            "type": "object",
            "description": "A workload, as written by `advise profile SOURCE -o workload.json`.",
            "required": [one.name for one in fields(Workload) if one.default is one.default_factory is MISSING],
        },
        "Problem": {
            "type": "object",
            "required": ["error"],
            "properties": {
                "error": {
                    "type": "object",
                    "required": ["code", "field", "message", "hint"],
                    "properties": dict.fromkeys(("code", "field", "message", "hint"), text),
                }
            },
        },
    }


def _request(more: Mapping[str, Any], *, example: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["workload"],
        "additionalProperties": False,
        "properties": {"workload": _ref("Workload"), "options": _ref("Options"), **more},
        "example": example,
    }
