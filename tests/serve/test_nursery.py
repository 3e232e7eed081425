"""Processes that are forked from one that has imported everything: they answer, end when told, and outlive nobody."""

import os
import signal
import socket
from collections.abc import Iterator

import pytest

from advisor.serve.frames import Frame, read_frame
from advisor.serve.nursery import Nursery
from tests.serve.test_worker import FILES


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    started = Nursery()
    yield started
    started.end()


def loaded(worker: socket.socket) -> str:
    with worker.makefile("rwb") as stream:
        stream.write(Frame("load", FILES).packed())
        stream.flush()
        reply = read_frame(stream)
    return reply.word if reply else "nothing"


def is_gone(worker: socket.socket) -> bool:
    worker.settimeout(30)
    try:
        return worker.recv(1) == b""
    except ConnectionResetError:  # it had not read all that it was sent
        return True


def test_every_worker_answers_on_a_socket_of_its_own(nursery: Nursery) -> None:
    (first, one), (second, other) = nursery.fork(), nursery.fork()
    with one, other:
        assert first != second
        assert [loaded(one), loaded(other)] == ["catalog", "catalog"]


def test_a_worker_that_is_killed_lets_go_of_its_socket_and_the_others_live(nursery: Nursery) -> None:
    (number, killed), (_, left) = nursery.fork(), nursery.fork()
    with killed, left:
        nursery.kill(number)
        assert is_gone(killed)
        assert loaded(left) == "catalog"


def test_workers_end_with_the_nursery() -> None:
    nursery = Nursery()
    workers = [nursery.fork()[1] for _ in range(2)]
    nursery.end()
    assert [is_gone(worker) for worker in workers] == [True, True]
    for worker in workers:
        worker.close()


def test_a_nursery_that_died_is_started_anew(nursery: Nursery) -> None:
    number, before = nursery.fork()
    with before:
        assert loaded(before) == "catalog"
        os.kill(nursery.pid, signal.SIGKILL)
        os.waitid(os.P_PID, nursery.pid, os.WEXITED | os.WNOWAIT)
        nursery.kill(number)  # nobody is there to do it, and that is no mistake
        _, after = nursery.fork()
    with after:
        assert loaded(after) == "catalog"
