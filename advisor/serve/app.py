"""The routes: each asks a worker and hands its reply on."""

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
    """The service as an ASGI application."""
    app = FastAPI(
        title="device-advisor",
        version=__version__,
        summary="Which CPU or GPU instance does a PyTorch job for the least money, how sure is that, and why.",
        docs_url=None,  # those pages load their code from another site
        redoc_url=None,
    )
    metrics = Metrics(prices=prices, pool=pool)

    async def ask(question: str, body: bytes) -> Response:
        try:
            reply = await pool.ask(Frame(question, body), time_limit_s=settings.time_limit_s)
        except QueueFullError as error:
            problem = Problem(status=429, code="busy", message=str(error), hint="ask again in a second")
            return _response(problem, headers=_RETRY)
        except TimeoutError:
            message = f"the answer took longer than {settings.time_limit_s:g} s, the wait for a worker included"
            problem = Problem(status=503, code="too-long", message=message, hint="ask again, or for fewer batch sizes")
            return _response(problem, headers=_RETRY)
        except WorkerDiedError:
            message = "this request ended the process that worked on it"
            return _response(Problem(status=500, code="internal", message=message, hint="see the service's log"))
        return Response(reply.body, status_code=int(reply.word), media_type="application/json")

    _add_questions(app, ask)
    _add_reads(app, ask)
    add_page(app, ask)

    @app.get("/healthz", responses=HEALTH)
    async def healthz(response: Response) -> dict[str, Any]:
        """Whether it answers, since when its prices are in force, and what is wrong with a later edit of them.

        Workers that died are replaced when somebody looks or asks; 503 where none was left. It is answered without a
        token, so where there is one the log alone names files.
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
        """Counts for Prometheus."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    app.add_exception_handler(HTTPException, _http_problem)
    app.add_exception_handler(RequestValidationError, _query_problem)
    with_schemas(app)
    paths = {route.path for route in app.routes if hasattr(route, "path")}
    return Guard(app, settings=settings, metrics=metrics, paths=paths)


def _add_questions(app: FastAPI, ask: Ask) -> None:
    """What takes a workload."""
    for question, about in (
        ("recommend", "Rank every offer for the workload: what `advise workload.json -o json` prints."),
        ("explain", "Where the time of a step goes: what `advise explain workload.json -o json` prints."),
        ("breakeven", "Where CPU and GPU cost the same: what `advise breakeven workload.json -o json` prints."),
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
    """What takes no workload."""

    @app.get("/v1/devices", responses=QUESTION_RESPONSES["devices"], response_class=Response)
    async def devices() -> Response:
        """Every GPU and CPU model that a profile describes."""
        return await ask("devices", b"")

    @app.get("/v1/accuracy", responses=QUESTION_RESPONSES["accuracy"], response_class=Response)
    async def accuracy() -> Response:
        """How far predictions are from measured steps: what `advise validate -o json` prints of the shipped sample."""
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
        """The prices in force, cheapest first: what `advise prices list -o json` prints. Names as in its flags."""
        given = {"provider": provider, "region": region, "tier": tier, "device": device}
        options = {**given, "price": price, "max_price_age": max_price_age}
        for name in request.query_params:
            if name not in options:
                message = f"unknown parameter {name!r:.80}"
                return _response(Problem(status=422, code="invalid", field=f"query.{name:.80}", message=message))
        return await ask("offers", json.dumps(options).encode())


async def _http_problem(_: Request, error: Exception) -> Response:
    """No such route, or not by that method."""
    if not isinstance(error, HTTPException):
        raise error
    code = {404: "not-found", 405: "not-allowed"}.get(error.status_code, "invalid")
    problem = Problem(status=error.status_code, code=code, message=str(error.detail).lower(), hint="see /openapi.json")
    return _response(problem, headers=error.headers)


async def _query_problem(_: Request, error: Exception) -> Response:
    """A parameter of the query that is not what it should be."""
    if not isinstance(error, RequestValidationError):
        raise error
    first = error.errors()[0]
    field = ".".join(map(str, first["loc"]))
    return _response(Problem(status=422, code="invalid", field=field, message=first["msg"].lower()))


def _response(problem: Problem, *, headers: Any = None) -> Response:
    return Response(problem.body(), status_code=problem.status, media_type="application/json", headers=headers)
