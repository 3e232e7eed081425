"""Work in a fork of the process, and what happens if the fork fails."""

import os
import signal
from functools import partial

import pytest

from advisor.workload.dependencies import are_all_known, recorded_dependencies
from advisor.workload.forked import can_fork, forked

pytestmark = pytest.mark.skipif(not can_fork(), reason="no fork is safe here, or there is no core for it")


def test_the_result_is_that_of_the_fork() -> None:
    with forked(os.getpid) as result:
        assert result() != os.getpid()


def test_it_is_no_program_whose_result_may_change_unseen() -> None:
    with recorded_dependencies() as found, forked(os.getpid) as result:
        result()
        assert are_all_known(found)
        os.waitpid(os.fork() or os._exit(0), 0)  # type: ignore[func-returns-value]
    assert not are_all_known(found)


def fail_in_fork(parent: int, how: str) -> int:
    if os.getpid() != parent:
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise MemoryError
    return 7


@pytest.mark.parametrize("how", ["killed", "raises"])
def test_what_fails_in_the_fork_is_done_here(how: str, capfd: pytest.CaptureFixture[str]) -> None:
    with forked(partial(fail_in_fork, os.getpid(), how)) as result:
        assert result() == 7
    assert capfd.readouterr() == ("", "")


def test_a_fork_that_nobody_waits_for_ends_with_the_context() -> None:
    reader, writer = os.pipe()

    def wait_forever() -> None:
        os.write(writer, b"begun")
        signal.pause()

    with forked(wait_forever):
        assert os.read(reader, 5) == b"begun"
    os.close(writer)
    assert os.read(reader, 1) == b""  # no other process has the pipe
    os.close(reader)
