import asyncio
import json
from io import BytesIO
from pathlib import Path

import pytest

from advisor.serve.frames import Frame, read_frame
from advisor.serve.pool import WorkerDiedError, pool_of, receive_frame
from advisor.serve.worker import answer_frames, load
from tests.serve.conftest import WORKLOAD

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


def test_a_worker_that_dies_or_is_late_is_replaced_and_the_next_question_is_answered() -> None:
    async def main() -> None:
        with pool_of(1) as pool:
            await pool.connect()
            with pytest.raises(WorkerDiedError):  # no catalog was sent: a mistake of ours ends the process
                await pool.ask(Frame("recommend", REQUEST), time_limit_s=60)
            pool.set_catalog(load(FILES).body)
            with pytest.raises(TimeoutError):
                await pool.ask(Frame("recommend", REQUEST), time_limit_s=0.0001)
            assert pool.died_count == 2
            reply = await pool.ask(Frame("recommend", REQUEST), time_limit_s=60)
            assert reply.word == "200"
            await pool.disconnect()

    asyncio.run(main())
