"""Runs part of a trace in a fork of the process, at the same time as the rest."""

import os
import pickle
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from advisor.workload.dependencies import unrecorded

Result = TypeVar("Result")


def can_fork() -> bool:
    """Return whether a fork is safe and has a second core to run on; system libraries of macOS do not survive one."""
    return sys.platform == "linux" and len(os.sched_getaffinity(0)) > 1


@contextmanager
def forked(work: Callable[[], Result]) -> Iterator[Callable[[], Result]]:
    """Start `work` in a fork; yield a function that waits for its pickled result, or runs it here if the fork failed.

    The fork has only this thread, and ends with the context.
    """
    reader, writer = os.pipe()
    with warnings.catch_warnings(), unrecorded():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12, about other threads
        fork = os.fork()
    if fork == 0:
        try:
            with open(writer, "wb") as answer:
                pickle.dump(work(), answer, pickle.HIGHEST_PROTOCOL)
        finally:
            os._exit(0)
    os.close(writer)

    def result() -> Result:
        try:
            found: Result = pickle.load(pipe)  # noqa: S301 - of our own fork
        except (EOFError, pickle.UnpicklingError):
            found = work()
        return found

    with open(reader, "rb") as pipe:
        try:
            yield result
        finally:
            with suppress(ProcessLookupError):
                os.kill(fork, signal.SIGKILL)
            os.waitpid(fork, 0)
