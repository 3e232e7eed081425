"""Defines the HTTP routes; each one passes the request to a worker and returns its reply."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from advisor import __version__
from advisor.records.answer import Recommendation
from advisor.records.break_even_curves import BreakEven
from advisor.records.explained_step import Explanation
from advisor.serve.catalog_in_force import PricesInForce
from advisor.serve.frames import Frame
from advisor.serve.guard import Guard, Metrics, refusal
from advisor.serve.openapi import HEALTH, add_request_schemas, body_of, responses
from advisor.serve.page import QUESTIONS, add_files
from advisor.serve.pool import Pool, QueueFullError, WorkerDiedError
from advisor.serve.problem import Problem
from advisor.serve.settings import Settings

_RETRY = {"retry-after": "1"}
_Names = Annotated[list[str], Field(max_length=20)]


class OfferFlags(BaseModel):
    """The flags of `advise prices list` that a request for offers may set."""

    model_config = ConfigDict(extra="forbid")

    provider: _Names = []
    region: _Names = []
    tier: _Names = []
    device: _Names = []
    price: str | None = None
    max_price_age: str | None = None


_ROUTES: Mapping[str, tuple[type | None, str, str]] = {
    "recommend": (
        Recommendation, "Request", "Rank every offer for the workload, like `advise workload.json -o json`."
    ),
    "explain": (
        Explanation,
        "ExplainRequest",
        "Show where the time of a step goes, like `advise explain workload.json -o json`.",
    ),
    "breakeven": (
        BreakEven, "Request", "Find where CPU and GPU cost the same, like `advise breakeven workload.json -o json`."
    ),
    "devices": (None, "", "List every GPU and CPU model that has a profile."),
    "accuracy": (
        None, "", "Return the accuracy on the shipped sample of measured steps, like `advise validate -o json`."
    ),
}  # fmt: skip
"""By question: the record of its answer, the schema of its body, and its description."""


def make_app(settings: Settings, *, pool: Pool, prices: PricesInForce) -> Guard:
    """Return the service as an ASGI application."""
    app = FastAPI(
        title="device-advisor",
        version=__version__,
        summary="Finds the CPU or GPU instance that runs a PyTorch job for the least money.",
        docs_url=None,  # these pages load code from another site
        redoc_url=None,
        exception_handlers={HTTPException: _http_problem, RequestValidationError: _query_problem},
    )
    metrics = Metrics(prices=prices, pool=pool)

    async def ask(question: str, body: bytes) -> Response:
        try:
            reply = await pool.ask(Frame(question, body), time_limit_s=settings.time_limit_s)
        except QueueFullError as error:
            problem = Problem(status=429, code="busy", message=str(error), hint="try again in a second")
            return refusal(problem, headers=_RETRY)
        except TimeoutError:
            message = f"the answer took longer than {settings.time_limit_s:g} s, including the wait for a worker"
            hint = (
                "a large max_machines, limits and many batch sizes take longest: leave some out, or start the service "
                "with a longer --time-limit; try again if it was busy"
            )
            return refusal(Problem(status=503, code="too-long", message=message, hint=hint), headers=_RETRY)
        except WorkerDiedError:
            message = "the worker process died while it handled this request"
            return refusal(Problem(status=500, code="internal", message=message, hint="see the log of the service"))
        return Response(reply.body, status_code=int(reply.word), media_type="application/json")

    def route_to(question: str) -> Callable[[Request], Awaitable[Response]]:
        async def route(request: Request) -> Response:
            return await ask(question, await request.body())

        return route

    for question, (record, body, about) in _ROUTES.items():
        app.add_api_route(
            f"/v1/{question}",
            route_to(question),
            methods=["POST" if body else "GET"],
            name=question,
            description=about,
            responses=responses(record, takes_body=bool(body)),
            openapi_extra=body_of(body) if body else None,
            response_class=Response,
        )
    for question in QUESTIONS:
        app.add_api_route(f"/page/{question}", route_to(question), methods=["POST"], include_in_schema=False)
    add_files(app)

    @app.get("/v1/offers", responses=responses(None, takes_body=False), response_class=Response)
    async def offers(flags: Annotated[OfferFlags, Query()]) -> Response:
        """List the prices in force, cheapest first, like `advise prices list -o json`; parameters are its flags."""
        return await ask("offers", flags.model_dump_json().encode())

    @app.get("/healthz", responses=HEALTH)
    async def healthz(response: Response) -> dict[str, Any]:
        """Return the state of the service: its workers, the load time of its prices, and any mistake in a later edit.

        Dead workers are replaced on each call of this route and on each question; the status is 503 if none was alive.
        This route needs no token, so a service with a token names files only in its log.
        """
        living_count = pool.living_count
        response.status_code = 200 if living_count else 503
        pool.fill()
        return {
            "status": "workers-died" if living_count < pool.count else "stale-prices" if prices.problem else "ok",
            "workers": living_count,
            "version": __version__,
            "prices_loaded_at": prices.loaded_at.isoformat(timespec="seconds"),
            "prices_problem": prices.problem if settings.token is None or not prices.problem else "see the log",
        }

    @app.get("/metrics", response_class=Response)
    async def read_metrics() -> Response:
        """Return the metrics for Prometheus."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    add_request_schemas(app)
    paths = {route.path for route in app.routes if hasattr(route, "path")}
    return Guard(app, settings=settings, metrics=metrics, paths=paths)


async def _http_problem(_: Request, error: HTTPException) -> Response:
    """Answer a request for an unknown route or method."""
    code = {404: "not-found", 405: "not-allowed"}.get(error.status_code, "invalid")
    problem = Problem(status=error.status_code, code=code, message=str(error.detail).lower(), hint="see /openapi.json")
    return refusal(problem, headers=error.headers)


async def _query_problem(_: Request, error: RequestValidationError) -> Response:
    """Answer a request with an invalid query parameter."""
    first = error.errors()[0]
    field = ".".join(map(str, first["loc"]))
    return refusal(Problem(status=422, code="invalid", field=field[:90], message=first["msg"].lower()))
