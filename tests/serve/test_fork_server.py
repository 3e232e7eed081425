"""Processes that are forked from one that has imported everything: they answer, end when told, and outlive nobody."""

import os
import signal
import socket
from collections.abc import Iterator

import pytest

from advisor.serve.fork_server import ForkServer
from advisor.serve.frames import Frame, read_frame
from tests.serve.test_worker import FILES


@pytest.fixture
def fork_server() -> Iterator[ForkServer]:
    started = ForkServer()
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


def test_every_worker_answers_on_a_socket_of_its_own(fork_server: ForkServer) -> None:
    (first, one), (second, other) = fork_server.fork(), fork_server.fork()
    with one, other:
        assert first != second
        assert [loaded(one), loaded(other)] == ["catalog", "catalog"]


def test_a_worker_that_is_killed_lets_go_of_its_socket_and_the_others_live(fork_server: ForkServer) -> None:
    (number, killed), (_, left) = fork_server.fork(), fork_server.fork()
    with killed, left:
        fork_server.kill(number)
        assert is_gone(killed)
        assert loaded(left) == "catalog"


def test_workers_end_with_the_fork_server() -> None:
    fork_server = ForkServer()
    workers = [fork_server.fork()[1] for _ in range(2)]
    fork_server.end()
    assert [is_gone(worker) for worker in workers] == [True, True]
    for worker in workers:
        worker.close()


def test_a_fork_server_that_died_is_started_anew(fork_server: ForkServer) -> None:
    number, before = fork_server.fork()
    with before:
        assert loaded(before) == "catalog"
        os.kill(fork_server.pid, signal.SIGKILL)
        os.waitid(os.P_PID, fork_server.pid, os.WEXITED | os.WNOWAIT)
        fork_server.kill(number)  # nobody is there to do it, and that is no mistake
        _, after = fork_server.fork()
    with after:
        assert loaded(after) == "catalog"
