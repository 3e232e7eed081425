import logging
from io import StringIO

import pytest

from advisor.serve.log import RateLimit, log_handler

FORGED = "\n2031-01-01 00:00:00,000 ERROR forged\x1b[31m\r\x00\u2028x"


@pytest.fixture
def stream() -> StringIO:
    return StringIO()


@pytest.fixture
def log(stream: StringIO) -> logging.Logger:
    logger = logging.Logger("test")
    logger.addHandler(log_handler(stream))
    return logger


def test_a_message_is_one_line_whatever_is_in_it(log: logging.Logger, stream: StringIO) -> None:
    log.warning("worker ended at %s", FORGED)
    assert len(stream.getvalue().splitlines()) == 1
    assert stream.getvalue()[:-1].isprintable()


def test_the_lines_of_an_exception_are_indented_and_hold_no_control_characters(
    log: logging.Logger, stream: StringIO
) -> None:
    try:
        raise ValueError(FORGED)
    except ValueError:
        log.exception("failed")
    first, *others = stream.getvalue().splitlines()
    assert first.endswith("failed")
    assert any("forged" in line for line in others)
    assert all(line.startswith("    ") and line.isprintable() for line in others)


def test_a_message_of_megabytes_is_cut(log: logging.Logger, stream: StringIO) -> None:
    log.error("x" * 5_000_000)
    assert len(stream.getvalue()) < 3_000


def test_a_place_logs_twenty_times_a_minute_and_says_what_was_left_out() -> None:
    now_s = 0.0
    limit = RateLimit(clock=lambda: now_s)

    def record(line: int) -> logging.LogRecord:
        return logging.LogRecord("test", logging.ERROR, "file.py", line, "message %d", (7,), None)

    assert [limit.filter(record(1)) for _ in range(1_000)].count(True) == 20
    assert limit.filter(record(2))
    now_s = 60.0
    first = record(1)
    assert limit.filter(first)
    assert "980 " in first.getMessage()
    assert [limit.filter(record(1)) for _ in range(1_000)].count(True) == 19
