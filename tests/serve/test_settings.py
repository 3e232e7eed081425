import resource
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import UsageError
from advisor.serve.settings import Settings, answering_to, checked_settings

TOKEN = "0123456789abcdef"


def settings(host: str = "127.0.0.1", **given: Any) -> Settings:
    defaults = {"port": 0, "token_file": None, "allowed_hosts": (), "worker_count": 2, "time_limit_s": 10.0}
    return checked_settings(host=host, profiles=None, prices=(), **{**defaults, **given})


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    return file


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_this_machine_alone_needs_no_token(host: str) -> None:
    assert settings(host).token is None
    assert "localhost" in settings(host).allowed_hosts


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.5", "::", "example.org", ""])
def test_another_address_without_a_token_is_refused(host: str) -> None:
    with pytest.raises(UsageError, match="no token is set") as caught:
        settings(host)
    assert "--token-file" in caught.value.hint


def test_an_address_is_a_name_of_the_service_and_no_other_is(token_file: Path) -> None:
    found = settings("10.0.0.5", token_file=token_file, allowed_hosts=("Advisor.Internal",))
    assert found.allowed_hosts == ("10.0.0.5", "advisor.internal")
    assert found.token == TOKEN


@pytest.mark.parametrize(("address", "name"), [("127.0.0.2", "127.0.0.2"), ("::1", "[::1]"), ("10.0.0.5", "10.0.0.5")])
def test_the_address_that_is_listened_on_is_a_name_of_the_service(address: str, name: str) -> None:
    assert answering_to(settings("localhost"), address).allowed_hosts[-1] == name


def test_any_address_is_no_name(token_file: Path) -> None:
    found = settings("0.0.0.0", token_file=token_file, allowed_hosts=("a.example",))
    assert answering_to(found, "0.0.0.0").allowed_hosts == ("a.example",)


@pytest.mark.parametrize(("file_count", "connection_count"), [(resource.RLIM_INFINITY, 288), (1024, 288), (100, 50)])
def test_connections_leave_half_of_the_open_files_to_the_service(
    monkeypatch: pytest.MonkeyPatch, file_count: int, connection_count: int
) -> None:
    # Two workers: 2 x 16 requests in the queue and 256 more.
    monkeypatch.setattr(resource, "getrlimit", lambda _: (file_count, file_count))
    assert settings().connection_count == connection_count


def test_all_addresses_at_once_need_a_name(token_file: Path) -> None:
    with pytest.raises(UsageError, match="host name"):
        settings("0.0.0.0", token_file=token_file)
    assert settings("0.0.0.0", token_file=token_file, allowed_hosts=("a.example",)).allowed_hosts == ("a.example",)


@pytest.mark.parametrize("text", ["", "short", "two words of a token", "tökentökentökentöken", "a" * 20 + "\n" + "b"])
def test_a_token_that_is_short_or_no_word_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    with pytest.raises(UsageError, match="16 ASCII characters"):
        settings(token_file=file)


def test_a_token_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        settings(token_file=tmp_path / "none")
