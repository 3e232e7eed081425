import itertools
import logging
import time
from collections.abc import Iterator

import pytest
from pydantic import BaseModel

from advisor.errors import ExitCode, NetworkError, UsageError
from advisor.refresh import client as client_module
from advisor.refresh.client import Request, key_from_environment, text_lines
from tests.refresh.conftest import Answer, Server, Waits, json_answer


class Page(BaseModel):
    numbers: list[int]
    following: str = ""


def body_of(chunks: Iterator[bytes]) -> bytes:
    return b"".join(chunks)


def test_a_passing_failure_is_tried_again_after_longer_and_longer_waits(server: Server, waits: Waits) -> None:
    url = server.answer("/list", *[Answer(status=status) for status in (500, 503, 502)], Answer(b"prices"))
    with waits.client() as client:
        assert client.read(Request(url=url), body_of).body == b"prices"
    assert waits.seconds == [1.0, 2.0, 4.0]


def test_a_server_that_asks_for_time_gets_it_up_to_a_minute(server: Server, waits: Waits) -> None:
    answers = [Answer(status=429, headers={"Retry-After": after}) for after in ("7", "86400", "tomorrow")]
    url = server.answer("/list", *answers, Answer(b"prices"))
    with waits.client() as client:
        client.read(Request(url=url), body_of)
    assert waits.seconds == [7.0, 60.0, 4.0]


def test_a_failure_that_stays_is_a_network_error_with_the_address(server: Server, waits: Waits) -> None:
    url = server.answer("/list", Answer(status=429))
    with waits.client() as client, pytest.raises(NetworkError, match="/list: HTTP 429") as caught:
        client.read(Request(url=url), body_of)
    assert (caught.value.exit_code, caught.value.hint) == (ExitCode.NETWORK, "tried 4 times; try again later")
    assert len(server.asked) == 4


@pytest.mark.parametrize(("status", "hint"), [(404, "may have moved"), (401, "API key"), (403, "API key")])
def test_a_failure_that_cannot_pass_is_not_tried_again(server: Server, waits: Waits, status: int, hint: str) -> None:
    url = server.answer("/list", Answer(status=status))
    with waits.client() as client, pytest.raises(NetworkError, match=f"HTTP {status}") as caught:
        client.read(Request(url=url), body_of)
    assert hint in caught.value.hint
    assert waits.seconds == []


def test_a_body_that_was_cut_short_is_read_again_from_its_start(server: Server, waits: Waits) -> None:
    url = server.answer("/list", Answer(b"pri", claimed_length=6), Answer(b"prices"))
    with waits.client() as client:
        assert client.read(Request(url=url), body_of).body == b"prices"
    assert waits.seconds == [1.0]


def test_nobody_at_the_address_is_a_network_error(server: Server, waits: Waits) -> None:
    server.close()
    with waits.client() as client, pytest.raises(NetworkError, match=r"no connection to 127\.0\.0\.1") as caught:
        client.read(Request(url=server.url), body_of)
    assert "HTTPS_PROXY" in caught.value.hint


def dripping(start: bytes = b"") -> Iterator[bytes]:
    yield start
    while True:
        time.sleep(0.02)
        yield b"x"


@pytest.mark.parametrize("is_in_head", [False, True])
def test_an_answer_that_comes_byte_by_byte_is_given_up_at_the_deadline(
    server: Server, waits: Waits, is_in_head: bool
) -> None:
    url = server.answer("/list", Answer(dripping(b"HTTP/1.1 200 OK\r\nX-Long: "), is_without_head=is_in_head))
    with waits.client() as client, pytest.raises(NetworkError, match=r"/list: .*\bcomplete\b"):
        client.read(Request(url=url), body_of, longest_s=0.2)
    assert len(server.asked) == 1


def test_all_answers_of_a_refresh_together_have_a_deadline(
    server: Server, waits: Waits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_LONGEST_REFRESH_S", 0.2)
    url = server.answer("/list", Answer(dripping()))
    with waits.client() as client, pytest.raises(NetworkError, match="was not complete after"):
        client.json(Request(url=url), Page)


def test_a_next_page_that_is_no_address_is_refused(server: Server, waits: Waits) -> None:
    with waits.client() as client, pytest.raises(NetworkError, match=r"Invalid port") as caught:
        client.json(Request(url="http://somewhere:else"), Page)
    assert caught.value.hint == "the list may have moved"


def test_redirects_are_followed_but_not_for_ever(server: Server, waits: Waits) -> None:
    url = server.answer("/old", Answer(status=302, headers={"Location": "/new"}))
    server.answer("/new", Answer(b"prices"))
    loop = server.answer("/loop", Answer(status=302, headers={"Location": "/loop"}))
    with waits.client() as client:
        assert client.read(Request(url=url), body_of).body == b"prices"
        with pytest.raises(NetworkError, match="too many redirects"):
            client.read(Request(url=loop), body_of)


def test_a_key_goes_to_its_server_alone_and_into_no_message_or_log(
    server: Server, waits: Waits, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = server.answer("/list", Answer(status=302, headers={"Location": "/elsewhere"}))
    server.answer("/elsewhere", Answer(b"prices"))
    request = Request(url=url, key_headers={"X-Key": "s3cr3t"})
    with waits.client() as client, pytest.raises(NetworkError, match="HTTP 302") as caught:
        client.read(request, body_of)
    assert [asked.path for asked in server.asked] == ["/list"]
    assert server.asked[0].headers["X-Key"] == "s3cr3t"
    told = f"{caught.value} {caught.value.hint} {request!r}"
    assert "s3cr3t" not in told
    assert caplog.records
    assert "s3cr3t" not in caplog.text


def test_a_list_that_has_not_changed_is_not_sent_again(server: Server, waits: Waits) -> None:
    url = server.answer("/list", Answer(b"prices", headers={"ETag": '"v1"'}))
    with waits.client() as client:
        first = client.read(Request(url=url), body_of)
        again = client.read(Request(url=url, etag=first.etag), body_of)
        other = client.read(Request(url=url, etag='"v0"'), body_of)
    assert (first.body, first.etag) == (b"prices", '"v1"')
    assert (again.body, again.etag) == (None, '"v1"')
    assert other.body == b"prices"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"<html>Sorry</html>", "the answer is not JSON"),
        (b'{"numbers": [1, 2', "the answer is not JSON"),
        (b"\xff\xfe", "the answer is not JSON"),
        (b"[" * 10**5, "the answer is not JSON"),
        (b'{"numbers": [' + b"9" * 5000 + b"]}", "the answer is not JSON"),
        (b"[]", ": input should be a dictionary"),
        (b'{"numbers": [1, "two"]}', "numbers.1: input should be a valid integer"),
        (b"{}", "numbers: field required"),
    ],
)
def test_an_answer_of_another_shape_says_where(server: Server, waits: Waits, body: bytes, problem: str) -> None:
    url = server.answer("/list", Answer(body))
    with waits.client() as client, pytest.raises(NetworkError) as caught:
        client.json(Request(url=url), Page)
    assert problem in caught.value.message


def test_a_body_without_end_is_given_up(server: Server, waits: Waits, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_MOST_JSON_BYTES", 10**6)
    url = server.answer("/list", Answer(itertools.repeat(b" " * 1000)))
    with waits.client() as client, pytest.raises(NetworkError, match="more than 1,000,000 bytes"):
        client.json(Request(url=url), Page)


def following(server: Server, page: Page) -> Request | None:
    return Request(url=f"{server.url}/list", params={"page": page.following}) if page.following else None


def test_every_page_is_read_in_order(server: Server, waits: Waits) -> None:
    url = server.answer("/list", json_answer({"numbers": [1], "following": "b"}), json_answer({"numbers": [2]}))
    with waits.client() as client:
        pages = list(client.pages(Request(url=url), Page, following=lambda page: following(server, page)))
    assert [page.numbers for page in pages] == [[1], [2]]
    assert [asked.query for asked in server.asked] == [{}, {"page": ["b"]}]


def test_a_page_that_names_itself_does_not_keep_us(server: Server, waits: Waits) -> None:
    url = server.answer("/list", json_answer({"numbers": [1], "following": "a"}))
    with waits.client() as client, pytest.raises(NetworkError, match="its pages do not end"):
        list(client.pages(Request(url=url), Page, following=lambda page: following(server, page)))
    assert len(server.asked) == 2


def test_pages_that_name_ever_new_ones_do_not_keep_us(
    server: Server, waits: Waits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_MOST_PAGES", 5)
    url = server.answer("/list", *[json_answer({"numbers": [], "following": str(page)}) for page in range(9)])
    with waits.client() as client, pytest.raises(NetworkError, match="its pages do not end"):
        list(client.pages(Request(url=url), Page, following=lambda page: following(server, page)))
    assert len(server.asked) == 5


def test_lines_are_whole_wherever_the_body_is_cut() -> None:
    body = "a,é\r\nb\n\nc".encode()
    for size in range(1, len(body) + 1):
        chunks = (body[start : start + size] for start in range(0, len(body), size))
        assert list(text_lines(chunks)) == ["a,é\r\n", "b\n", "\n", "c"]


def test_a_line_without_end_is_given_up() -> None:
    with pytest.raises(NetworkError, match=r"\bline\b.*\btoo long"):
        list(text_lines(itertools.repeat(b"x" * 10**5)))


def test_a_key_that_is_not_set_is_asked_for_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOME_KEY", raising=False)
    with pytest.raises(UsageError, match="SOME_KEY is not set"):
        key_from_environment("SOME_KEY")
    monkeypatch.setenv("SOME_KEY", "s3cr3t")
    assert key_from_environment("SOME_KEY") == "s3cr3t"
