import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from io import BytesIO
from pathlib import Path

import pytest

from advisor.serve.fork_server import ForkServer
from advisor.serve.frames import Frame, read_frame, receive_frame
from advisor.serve.pool import Pool, QueueFullError, WorkerDiedError, pool_of
from advisor.serve.worker import answer_frames, load
from tests.serve.conftest import WORKLOAD, children_of

FILES = json.dumps({"profiles": None, "prices": []}).encode()
REQUEST = json.dumps({"workload": WORKLOAD, "options": {"provider": "aws"}}).encode()


@pytest.mark.parametrize("frame", [Frame("recommend", b"{}"), Frame("200"), Frame("catalog", bytes(100_000))])
def test_a_frame_arrives_as_it_was_sent(frame: Frame) -> None:
    async def received() -> Frame:
        stream = asyncio.StreamReader()
        stream.feed_data(frame.packed())
        return await receive_frame(stream)

    assert read_frame(BytesIO(frame.packed())) == frame
    assert asyncio.run(received()) == frame


def test_half_a_frame_is_none() -> None:
    packed = Frame("recommend", b"{}").packed()
    assert [read_frame(BytesIO(packed[:size])) for size in range(len(packed))] == [None] * len(packed)


def test_a_worker_answers_from_the_catalog_it_was_sent_last() -> None:
    loaded = load(FILES)
    assert loaded.word == "catalog"
    questions = b"".join(one.packed() for one in (loaded, Frame("recommend", REQUEST), Frame("recommend", b"{")))
    replies = BytesIO()
    answer_frames(BytesIO(questions), replies)
    replies.seek(0)
    first, second = read_frame(replies), read_frame(replies)
    assert first is not None
    assert second is not None
    assert (first.word, second.word) == ("200", "400")
    assert {quote["provider"] for quote in json.loads(first.body)["quotes"]} == {"aws"}


def test_files_that_are_wrong_are_refused_with_the_hint(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("provider: 7\n")
    reply = load(json.dumps({"profiles": None, "prices": [str(wrong)]}).encode())
    message, _ = json.loads(reply.body)
    assert reply.word == "refused"
    assert message.startswith(f"{wrong}:1: ")


def run(check: Callable[[Pool], Awaitable[None]], *, count: int = 1, queue_count: int = 16) -> None:
    async def main() -> None:
        with pool_of(count, queue_count=queue_count) as pool:
            pool.set_catalog(load(FILES).body)
            pool.fill()
            try:
                await check(pool)
            finally:
                pool.close()

    asyncio.run(main())


async def is_answered(pool: Pool) -> bool:
    return (await pool.ask(Frame("recommend", REQUEST), time_limit_s=600)).word == "200"


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.01)


def test_a_worker_that_dies_or_is_late_is_replaced_and_the_next_question_is_answered() -> None:
    async def check(pool: Pool) -> None:
        with pytest.raises(WorkerDiedError):  # a mistake of ours ends the process, and the one asked after it
            await pool.ask(Frame("no such question"), time_limit_s=600)
        with pytest.raises(TimeoutError):
            await pool.ask(Frame("recommend", REQUEST), time_limit_s=0.0001)
        assert pool.died_count == 3
        assert await is_answered(pool)

    run(check)


def test_the_log_says_why_a_worker_ended_though_a_timeout_has_no_message(caplog: pytest.LogCaptureFixture) -> None:
    async def check(pool: Pool) -> None:
        with pytest.raises(TimeoutError):
            await pool.ask(Frame("recommend", REQUEST), time_limit_s=0.0001)

    run(check)
    (ended,) = (record for record in caplog.records if record.args and "recommend" in record.args)
    assert ended.getMessage().endswith("CancelledError")


def test_workers_killed_while_idle_are_seen_and_their_questions_answered_all_the_same() -> None:
    async def check(pool: Pool) -> None:
        assert await is_answered(pool)
        await until(lambda: len(children_of(pool.fork_server.pid)) == 2)
        for pid in children_of(pool.fork_server.pid):
            os.kill(pid, signal.SIGKILL)
        await until(lambda: pool.living_count == 0)
        assert [await is_answered(pool) for _ in range(3)] == [True] * 3
        assert (pool.living_count, pool.died_count) == (2, 2)

    run(check, count=2)


def test_a_question_whose_worker_is_killed_is_asked_once_more() -> None:
    async def check(pool: Pool) -> None:
        await until(lambda: len(children_of(pool.fork_server.pid)) == 1)
        (pid,) = children_of(pool.fork_server.pid)
        os.kill(pid, signal.SIGSTOP)  # it does not answer before it is killed
        asked = asyncio.create_task(is_answered(pool))
        await until(lambda: pool.pending_count == 1)
        os.kill(pid, signal.SIGKILL)
        assert await asked
        assert pool.died_count == 1

    run(check)


def test_where_no_worker_can_be_started_a_later_question_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: ForkServer) -> None:
        raise BlockingIOError("no more processes")

    async def check(pool: Pool) -> None:
        with monkeypatch.context() as broken:
            broken.setattr(ForkServer, "fork", refuse)
            with pytest.raises(TimeoutError):
                await pool.ask(Frame("recommend", REQUEST), time_limit_s=0.0001)
            for _ in range(3):
                with pytest.raises(WorkerDiedError):
                    await is_answered(pool)
            assert pool.living_count == 0
        assert await is_answered(pool)

    run(check)


def test_a_fork_server_that_is_killed_is_started_anew() -> None:
    async def check(pool: Pool) -> None:
        assert await is_answered(pool)
        for pid in (pool.fork_server.pid, *children_of(pool.fork_server.pid)):
            os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pool.fork_server.pid, os.WEXITED | os.WNOWAIT)
        assert [await is_answered(pool) for _ in range(2)] == [True] * 2

    run(check)


def test_waiting_for_a_worker_counts_towards_the_time_limit_and_costs_no_worker() -> None:
    async def check(pool: Pool) -> None:
        await until(lambda: len(children_of(pool.fork_server.pid)) == 1)
        (pid,) = children_of(pool.fork_server.pid)
        os.kill(pid, signal.SIGSTOP)
        first = asyncio.create_task(is_answered(pool))
        await until(lambda: pool.pending_count == 1)
        with pytest.raises(TimeoutError):
            await pool.ask(Frame("recommend", REQUEST), time_limit_s=0.01)
        assert (pool.died_count, pool.pending_count) == (0, 1)
        os.kill(pid, signal.SIGCONT)
        assert await first

    run(check)


def test_more_questions_than_may_wait_are_turned_away_and_given_up_ones_leave_room() -> None:
    async def check(pool: Pool) -> None:
        asked = [asyncio.create_task(is_answered(pool)) for _ in range(2)]
        await until(lambda: pool.pending_count == 2)
        with pytest.raises(QueueFullError):
            await is_answered(pool)
        asked[1].cancel()
        await until(lambda: pool.pending_count < 2)
        assert await is_answered(pool)
        assert await asked[0]
        assert pool.died_count == 0

    run(check, queue_count=2)
