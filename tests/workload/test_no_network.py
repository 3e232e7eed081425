import socket
import threading
import time
from pathlib import Path
from textwrap import dedent

import pytest

from advisor.errors import LoadError
from advisor.workload.no_network import NoNetworkError, network_refused
from tests.model_files import Write
from tests.workload.test_spawn import error_of, profile


def run(text: str) -> None:
    path = Path("theirs.py")
    path.write_text(dedent(text), encoding="utf-8")
    with network_refused():
        exec(compile(path.read_bytes(), str(path.resolve()), "exec"), {})


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("call", "host"),
    [
        ("socket.create_connection(('data.example.com', 80))", "data.example.com"),
        ("socket.gethostbyname('data.example.com')", "data.example.com"),
        ("with socket.socket() as one: one.connect(('192.0.2.1', 80))", "192.0.2.1"),
        ("with socket.socket(socket.AF_INET6) as one: one.connect(('2001:db8::1', 80))", "2001:db8::1"),
        ("with socket.socket(type=socket.SOCK_DGRAM) as one: one.sendto(b'', ('192.0.2.1', 80))", "192.0.2.1"),
        ("import urllib.request; urllib.request.urlopen('http://data.example.com/x')", "data.example.com"),
        ("import httpx; httpx.get('http://data.example.com/x', trust_env=False)", "data.example.com"),
    ],
)
def test_another_machine_is_refused_with_the_line(call: str, host: str) -> None:
    with pytest.raises(NoNetworkError, match=f"^theirs.py:3: the code asks for {host}") as caught:
        run(f"import socket\n\n{call}\n")
    assert isinstance(caught.value, LoadError)
    assert caught.value.hint


def test_this_machine_is_not_refused(tmp_path: Path) -> None:
    with network_refused(), socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as unix:
        socket.create_connection(("localhost", server.getsockname()[1])).close()
        with pytest.raises(FileNotFoundError):
            unix.connect(str(tmp_path / "none"))


def test_code_that_works_without_a_network_goes_on() -> None:
    run("""
        import urllib.request
        for host in ("a.example.com", "b.example.com"):
            if host[0] == "a":
                try:
                    urllib.request.urlopen(f"http://{host}")
                except OSError:
                    pass
    """)


def test_a_line_that_asks_again_ends_the_code_though_it_catches_every_exception() -> None:
    with pytest.raises(NoNetworkError, match=r"^theirs.py:6"):
        run("""
            import socket
            while True:
                try:
                    # asks until there is an answer
                    socket.gethostbyname("data.example.com")
                except Exception:
                    pass
        """)


def test_a_refusal_that_a_library_hides_is_what_the_user_is_told() -> None:
    with pytest.raises(NoNetworkError, match=r"data\.example\.com"):
        run("""
            import socket
            try:
                socket.gethostbyname("data.example.com")
            except OSError as error:
                raise RuntimeError("no data set") from None
        """)


def test_other_errors_pass_and_nothing_is_refused_outside() -> None:
    with pytest.raises(ZeroDivisionError):
        run("1 / 0")
    with socket.socket(type=socket.SOCK_DGRAM) as one:
        one.connect(("127.0.0.1", 9))


def test_threads_are_refused_too() -> None:
    found: list[OSError] = []

    def ask() -> None:
        try:
            socket.getaddrinfo("data.example.com", 80)
        except OSError as error:
            found.append(error)

    with network_refused():
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    assert [type(error) for error in found] == [NoNetworkError]


SCRIPT = """
    import sys
    import urllib.request
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    class Remote(Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            return torch.tensor(list(urllib.request.urlopen("http://data.example.com/x").read()[:3]))

    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in DataLoader(Remote(), batch_size=4, num_workers=2):
        model(batch).sum().backward()
        optimizer.step()
"""


def test_a_loader_that_downloads_is_refused_at_once_with_its_line(write: Write) -> None:
    error = error_of(write(SCRIPT), run=True, finds_mode=True)
    assert error.message.startswith("net.py:13: the code asks for data.example.com")
    assert error.exit_code == 4


def test_a_file_that_downloads_when_it_is_imported_is_refused_with_its_line(write: Write) -> None:
    text = """
        import requests
        from requests.adapters import HTTPAdapter, Retry
        session = requests.Session()
        session.mount("http://", HTTPAdapter(max_retries=Retry(5, backoff_factor=1)))
        session.get("http://data.example.com")
    """
    start_s = time.monotonic()
    error = error_of(write(text))
    assert error.message.startswith("net.py:6: the code asks for data.example.com")
    # five retries with pauses of 2, 4, 8 and 16 s would take 30 s
    assert time.monotonic() - start_s < 25


def test_libraries_are_told_to_stay_offline(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:3128")
    profile(
        write("""
            import os
            from torch import nn, zeros
            import urllib.request
            assert (os.environ["HF_HUB_OFFLINE"], os.environ["WANDB_MODE"]) == ("1", "disabled")
            assert "https" not in urllib.request.getproxies()
            model = nn.Linear(3, 2)
            example_inputs = zeros(4, 3)
        """)
    )
