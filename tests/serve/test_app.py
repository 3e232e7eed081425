"""The routes before a pool that does as a test says."""

from typing import Any

import httpx
import pytest

from advisor.serve.app import make_app
from advisor.serve.frames import Frame
from advisor.serve.pool import QueueFullError, WorkerDiedError
from advisor.serve.settings import Settings
from tests.serve.test_guard import JSON, Prices, error_of, run


class Pool(Prices):
    """Answers each question with `outcome`, or raises it."""

    count = 2

    def __init__(self, outcome: Frame | Exception, *, living_count: int = 2) -> None:
        self.outcome, self.living_count = outcome, living_count
        self.filled_count = 0

    async def ask(self, question: Frame, *, time_limit_s: float) -> Frame:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    def fill(self) -> None:
        self.filled_count += 1


def responses(pool: Any, *requests: tuple[str, str]) -> list[httpx.Response]:
    guard = make_app(Settings(), pool=pool, prices=Prices())  # type: ignore[arg-type]

    async def ask(client: httpx.AsyncClient) -> list[httpx.Response]:
        return [await client.request(method, path, content=b"{}", headers=JSON) for method, path in requests]

    return run(ask, guard)


@pytest.mark.parametrize(
    ("outcome", "status", "code"),
    [(QueueFullError("16 questions"), 429, "busy"), (TimeoutError(), 503, "too-long")],
)
def test_what_could_be_answered_later_is_refused_with_when_to_ask_again(
    outcome: Exception, status: int, code: str
) -> None:
    for response in responses(Pool(outcome), ("POST", "/v1/recommend"), ("GET", "/v1/devices")):
        assert (response.status_code, error_of(response)["code"]) == (status, code)
        assert int(response.headers["retry-after"]) > 0


def test_a_question_that_ends_its_workers_is_a_mistake_of_the_service() -> None:
    (response,) = responses(Pool(WorkerDiedError("died")), ("POST", "/v1/recommend"))
    assert (response.status_code, error_of(response)["code"]) == (500, "internal")


@pytest.mark.parametrize(
    ("living_count", "status", "told"), [(2, 200, "ok"), (1, 200, "workers-died"), (0, 503, "workers-died")]
)
def test_health_counts_the_living_workers_and_has_dead_ones_replaced(living_count: int, status: int, told: str) -> None:
    pool = Pool(Frame("200"), living_count=living_count)
    (response,) = responses(pool, ("GET", "/healthz"))
    health = response.json()
    assert (response.status_code, health["status"], health["workers"]) == (status, told, living_count)
    assert pool.filled_count == 1


def test_head_is_answered_like_get() -> None:
    asked = [(method, path) for path in ("/healthz", "/", "/v1/recommend") for method in ("GET", "HEAD")]
    found = [(one.status_code, one.headers["content-length"]) for one in responses(Pool(Frame("200")), *asked)]
    assert found[::2] == found[1::2]
    assert [status for status, _ in found[::2]] == [200, 200, 405]
