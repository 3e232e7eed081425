"""Defines the HTTP routes; each one passes the request to a worker and returns its reply."""

import json
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from advisor import __version__
from advisor.serve.asking import Ask, asking
from advisor.serve.catalog_in_force import PricesInForce
from advisor.serve.frames import Frame
from advisor.serve.guard import Guard
from advisor.serve.metrics import Metrics
from advisor.serve.openapi import HEALTH, QUESTION_RESPONSES, REQUEST_BODIES, with_schemas
from advisor.serve.page import add_page
from advisor.serve.pool import Pool, QueueFullError, WorkerDiedError
from advisor.serve.problem import Problem
from advisor.serve.settings import Settings

_RETRY = {"retry-after": "1"}
_Names = Annotated[list[str], Query(max_length=20)]


def make_app(settings: Settings, *, pool: Pool, prices: PricesInForce) -> Guard:
    """Return the service as an ASGI application."""
    app = FastAPI(
        title="device-advisor",
        version=__version__,
        summary="Finds the CPU or GPU instance that runs a PyTorch job for the least money.",
        docs_url=None,  # these pages load code from another site
        redoc_url=None,
    )
    metrics = Metrics(prices=prices, pool=pool)

    async def ask(question: str, body: bytes) -> Response:
        try:
            reply = await pool.ask(Frame(question, body), time_limit_s=settings.time_limit_s)
        except QueueFullError as error:
            problem = Problem(status=429, code="busy", message=str(error), hint="try again in a second")
            return _response(problem, headers=_RETRY)
        except TimeoutError:
            message = f"the answer took longer than {settings.time_limit_s:g} s, including the wait for a worker"
            problem = Problem(
                status=503, code="too-long", message=message, hint="try again, or ask for fewer batch sizes"
            )
            return _response(problem, headers=_RETRY)
        except WorkerDiedError:
            message = "the worker process died while it handled this request"
            return _response(Problem(status=500, code="internal", message=message, hint="see the log of the service"))
        return Response(reply.body, status_code=int(reply.word), media_type="application/json")

    _add_questions(app, ask)
    _add_reads(app, ask)
    add_page(app, ask)

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

    app.add_exception_handler(HTTPException, _http_problem)
    app.add_exception_handler(RequestValidationError, _query_problem)
    with_schemas(app)
    paths = {route.path for route in app.routes if hasattr(route, "path")}
    return Guard(app, settings=settings, metrics=metrics, paths=paths)


def _add_questions(app: FastAPI, ask: Ask) -> None:
    """Add the routes that take a workload."""
    for question, about in (
        ("recommend", "Rank every offer for the workload, like `advise workload.json -o json`."),
        ("explain", "Show where the time of a step goes, like `advise explain workload.json -o json`."),
        ("breakeven", "Find where CPU and GPU cost the same, like `advise breakeven workload.json -o json`."),
    ):
        app.add_api_route(
            f"/v1/{question}",
            asking(ask, question),
            methods=["POST"],
            name=question,
            description=about,
            responses=QUESTION_RESPONSES[question],
            openapi_extra={"requestBody": REQUEST_BODIES[question]},
            response_class=Response,
        )


def _add_reads(app: FastAPI, ask: Ask) -> None:
    """Add the routes that take no workload."""

    @app.get("/v1/devices", responses=QUESTION_RESPONSES["devices"], response_class=Response)
    async def devices() -> Response:
        """List every GPU and CPU model that has a profile."""
        return await ask("devices", b"")

    @app.get("/v1/accuracy", responses=QUESTION_RESPONSES["accuracy"], response_class=Response)
    async def accuracy() -> Response:
        """Return the accuracy on the shipped sample of measured steps, like `advise validate -o json`."""
        return await ask("accuracy", b"")

    @app.get("/v1/offers", responses=QUESTION_RESPONSES["offers"], response_class=Response)
    async def offers(
        request: Request,
        provider: _Names = [],  # noqa: B006 - FastAPI reads the default and copies it
        region: _Names = [],  # noqa: B006
        tier: _Names = [],  # noqa: B006
        device: _Names = [],  # noqa: B006
        price: str | None = None,
        max_price_age: str | None = None,
    ) -> Response:
        """List the prices in force, cheapest first, like `advise prices list -o json`; parameters are its flags."""
        given = {"provider": provider, "region": region, "tier": tier, "device": device}
        options = {**given, "price": price, "max_price_age": max_price_age}
        for name in request.query_params:
            if name not in options:
                message = f"unknown parameter {name!r:.80}"
                return _response(Problem(status=422, code="invalid", field=f"query.{name:.80}", message=message))
        return await ask("offers", json.dumps(options).encode())


async def _http_problem(_: Request, error: Exception) -> Response:
    """Answer a request for an unknown route or method."""
    if not isinstance(error, HTTPException):
        raise error
    code = {404: "not-found", 405: "not-allowed"}.get(error.status_code, "invalid")
    problem = Problem(status=error.status_code, code=code, message=str(error.detail).lower(), hint="see /openapi.json")
    return _response(problem, headers=error.headers)


async def _query_problem(_: Request, error: Exception) -> Response:
    """Answer a request with an invalid query parameter."""
    if not isinstance(error, RequestValidationError):
        raise error
    first = error.errors()[0]
    field = ".".join(map(str, first["loc"]))
    return _response(Problem(status=422, code="invalid", field=field, message=first["msg"].lower()))


def _response(problem: Problem, *, headers: Any = None) -> Response:
    return Response(problem.body(), status_code=problem.status, media_type="application/json", headers=headers)
