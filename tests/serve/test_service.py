"""A real server asked over HTTP."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serve.conftest import ROOT, WORKLOAD, Server
from tests.serve.mutations import broken_requests

Start = Callable[..., Any]


def advise(*arguments: str, cwd: Path) -> str:
    environment = os.environ | {"XDG_CONFIG_HOME": str(cwd / "config")}
    done = subprocess.run(
        [sys.executable, "-m", "advisor", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    return done.stdout


def until(is_so: Callable[[], bool], *, limit_s: float = 300) -> None:
    end_s = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("path", "command", "flags", "options"),
    [
        ("recommend", ["rank"], [], {}),
        (
            "recommend",
            ["rank"],
            ["--samples", "5e6", "--price", "spot", "--checkpoint-every", "30m", "--provider", "aws,gcp"],
            {"samples": "5e6", "price": "spot", "checkpoint_every": 1800, "provider": ["aws", "gcp"]},
        ),
        ("explain", ["explain"], ["--batch", "16"], {"batch": 16}),
        ("breakeven", ["breakeven"], [], {}),
    ],
)  # fmt: skip
def test_the_answer_is_the_commands_to_the_last_digit(
    server: Server, tmp_path: Path, path: str, command: list[str], flags: list[str], options: dict[str, Any]
) -> None:
    # Saved here by one process, ranked there by another: `repr` of every float is the same.
    saved = tmp_path / "workload.json"
    advise("profile", str(ROOT / "examples" / "mlp.py"), "-o", str(saved), cwd=tmp_path)
    printed = advise(*command, str(saved), *flags, "-o", "json", cwd=tmp_path)
    answered = server.post(f"/v1/{path}", {"workload": json.loads(saved.read_text()), "options": options})
    assert answered.status_code == 200, answered.text
    assert json.dumps(answered.json()) == json.dumps(json.loads(printed))


def test_the_answer_for_a_model_is_that_for_its_saved_workload(tmp_path: Path) -> None:
    saved = tmp_path / "workload.json"
    model = str(ROOT / "examples" / "mlp.py")
    advise("profile", model, "-o", str(saved), cwd=tmp_path)
    here, there = (
        json.loads(advise(source, "--no-local", "-o", "json", cwd=tmp_path)) for source in (model, str(saved))
    )
    assert here == there


def test_the_example_of_the_description_is_what_profile_writes(tmp_path: Path) -> None:
    saved = tmp_path / "workload.json"
    advise("profile", str(ROOT / "examples" / "mlp.py"), "-o", str(saved), cwd=tmp_path)
    assert {**json.loads(saved.read_text()), "torch_version": WORKLOAD["torch_version"]} == WORKLOAD


def test_what_takes_no_workload_is_read(server: Server, tmp_path: Path) -> None:
    assert {gpu["id"] for gpu in server.get("/v1/devices").json()["gpus"]} >= {"l4", "t4"}
    assert server.get("/v1/accuracy").json()["overall"]["n"] == 172
    offers = server.get("/v1/offers", params={"provider": ["aws"], "device": "l4"})
    assert offers.json() == json.loads(
        advise("prices", "list", "--provider", "aws", "--device", "l4", "-o", "json", cwd=tmp_path)
    )
    health = server.get("/healthz").json()
    assert (health["status"], health["prices_problem"]) == ("ok", "")
    head = httpx.head(f"{server.url}/healthz", timeout=300)
    assert (head.status_code, head.content) == (200, b"")
    counted = server.get("/metrics").text
    assert 'advise_requests_total{method="GET",path="/healthz",status="200"}' in counted
    assert 'advise_requests_total{method="HEAD",path="/healthz",status="200"}' in counted


def test_what_is_asked_wrongly_is_refused_with_the_field(server: Server) -> None:
    refused = (
        (server.get("/v1/offers", params={"prices": "/etc/passwd"}), 422, "query.prices"),
        (server.get("/v1/offers", params={"tier": "cheap"}), 422, "options.tier"),
        (server.get("/v1/offers", params={"region": ["x"] * 21}), 422, "query.region"),
        (server.get("/v1/nothing"), 404, ""),
        (server.get("/v1/recommend"), 405, ""),
        (server.post("/v1/recommend", {"workload": {}}), 422, "workload.schema_version"),
        (server.post("/v1/recommend", {"workload": WORKLOAD, "options": {"max_usd": 1}}), 422, "options.max_usd"),
    )
    for response, status, field in refused:
        assert response.status_code == status
        error = response.json()["error"]
        assert error["field"] == field
        assert error["message"]
        assert "--" not in error["message"] + error["hint"]


def test_the_description_names_every_route_and_status(server: Server) -> None:
    paths = server.get("/openapi.json").json()["paths"]
    assert sorted(paths) == [
        "/healthz", "/metrics", "/v1/accuracy", "/v1/breakeven", "/v1/devices", "/v1/explain", "/v1/offers",
        "/v1/recommend",
    ]  # fmt: skip
    assert set(paths["/v1/recommend"]["post"]["responses"]) == {
        "200", "400", "401", "408", "413", "415", "421", "422", "429", "500", "503",
    }  # fmt: skip


def test_a_body_of_fifty_megabytes_is_refused_and_the_server_lives(server: Server) -> None:
    def parts() -> Any:
        for _ in range(50):
            yield b" " * 1_000_000

    # The server answers and closes; a client that is still sending may see the one or the other.
    with suppress(httpx.WriteError, httpx.ReadError):
        headers = {"content-type": "application/json"}
        response = httpx.post(f"{server.url}/v1/recommend", content=parts(), headers=headers, timeout=300)
        assert response.status_code == 413
    assert server.get("/healthz").json()["status"] == "ok"
    until(lambda: 'path="/v1/recommend",status="413"} ' in server.get("/metrics").text)


def test_broken_requests_are_refused_and_the_server_lives(server: Server) -> None:
    _break(server, count=40, seed=2)


@pytest.mark.slow
def test_a_thousand_broken_requests_are_refused_and_the_server_lives(server: Server) -> None:
    _break(server, count=1000, seed=3)


def _break(server: Server, *, count: int, seed: int) -> None:
    replaced_before = _workers_replaced(server)
    with httpx.Client(base_url=server.url, headers={"content-type": "application/json"}, timeout=300) as client:
        for body in broken_requests({"workload": WORKLOAD}, count=count, seed=seed):
            response = client.post("/v1/recommend", content=body)
            assert response.status_code in (200, 400, 422), response.text
            assert response.status_code == 200 or response.json()["error"]["message"]
    assert _workers_replaced(server) == replaced_before
    assert server.post("/v1/recommend", {"workload": WORKLOAD}).status_code == 200


def _workers_replaced(server: Server) -> float:
    (line,) = [line for line in server.get("/metrics").text.splitlines() if line.startswith("advise_workers_replaced ")]
    return float(line.split()[1])


def test_what_is_in_flight_when_it_is_told_to_end_is_answered(start: Start) -> None:
    with start("--time-limit", "10m") as server, ThreadPoolExecutor(4) as threads:
        until(lambda: len(server.workers()) == 1)
        (worker,) = server.workers()
        os.kill(worker, signal.SIGSTOP)  # all four are in flight when the server is told, however busy this machine is
        asked = [threads.submit(server.post, "/v1/breakeven", {"workload": WORKLOAD}) for _ in range(4)]
        until(lambda: "advise_in_flight 4.0" in server.get("/metrics").text)
        server.process.send_signal(signal.SIGTERM)
        os.kill(worker, signal.SIGCONT)
        assert [one.result().status_code for one in asked] == [200] * 4
        assert server.stop() == 0


def test_a_worker_that_is_killed_while_idle_is_seen_and_replaced(start: Start) -> None:
    with start() as server:
        assert server.get("/healthz").json()["workers"] == 1
        for _ in range(2):
            (worker,) = server.workers()
            os.kill(worker, signal.SIGKILL)
            assert server.post("/v1/recommend", {"workload": WORKLOAD}).status_code == 200
        (worker,) = server.workers()
        os.kill(worker, signal.SIGKILL)
        until(lambda: not server.workers())
        sick, well = server.get("/healthz"), server.get("/healthz")
        assert (sick.status_code, sick.json()["status"], sick.json()["workers"]) == (503, "workers-died", 0)
        assert (well.status_code, well.json()["status"], well.json()["workers"]) == (200, "ok", 1)


def test_questions_whose_clients_have_gone_are_dropped(start: Start) -> None:
    body = json.dumps({"workload": WORKLOAD}).encode()
    head = b"POST /v1/breakeven HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: "
    with start("--time-limit", "10m") as server:
        until(lambda: len(server.workers()) == 1)
        os.kill(server.workers()[0], signal.SIGSTOP)
        clients = [socket.create_connection(server.address) for _ in range(8)]
        for client in clients:
            client.sendall(head + str(len(body)).encode() + b"\r\n\r\n" + body)
        until(lambda: "advise_in_flight 8.0" in server.get("/metrics").text)
        for client in clients:
            client.close()
        until(lambda: "advise_in_flight 0.0" in server.get("/metrics").text)
        assert server.post("/v1/recommend", {"workload": WORKLOAD}).status_code == 200
        assert 'path="/v1/breakeven",status="499"} 8.0' in server.get("/metrics").text


def test_bodies_that_do_not_arrive_take_no_place_in_the_queue(start: Start) -> None:
    head = b"POST /v1/recommend HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    with start() as server:
        clients = [socket.create_connection(server.address) for _ in range(40)]
        for client in clients:
            client.sendall(head + b"content-length: 9\r\n\r\n{")
        assert server.post("/v1/recommend", {"workload": WORKLOAD}).status_code == 200
        for client in clients:
            client.close()


def test_clients_that_never_read_keep_no_place_in_the_queue(start: Start) -> None:
    request = b"GET /v1/devices HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with start() as server:
        clients = [socket.create_connection(server.address) for _ in range(20)]
        for client in clients:
            client.sendall(request * 60)  # answers of 180 KB each: more than a socket holds
        until(lambda: "advise_in_flight 0.0" in server.get("/metrics").text)
        assert server.post("/v1/recommend", {"workload": WORKLOAD}).status_code == 200
        for client in clients:
            client.close()


def test_the_address_that_it_listens_on_is_a_name_of_the_service(start: Start) -> None:
    with start("--host", "127.0.0.2") as server:
        assert server.url.startswith("http://127.0.0.2:")
        assert server.get("/healthz").status_code == 200
        assert server.get("/healthz", headers={"host": "127.0.0.3"}).status_code == 421


def test_control_characters_in_a_file_make_no_line_of_the_log(start: Start, tmp_path: Path) -> None:
    with start() as server:
        (tmp_path / "advisor.yaml").write_text('"a\\n2031-01-01 00:00:00,000 ERROR forged\\e[31m": 7\n')
        until(lambda: server.get("/healthz").json()["status"] == "stale-prices")
        log = server.log.read_text()
        assert "forged" in log
        assert not [line for line in log.splitlines() if line.startswith("2031")]
        assert "\x1b" not in log


def test_answers_that_take_too_long_are_given_up_and_their_worker_replaced(start: Start) -> None:
    with start("--time-limit", "1ms") as server, ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(server.post, "/v1/recommend", {"workload": WORKLOAD}) for _ in range(8)]
        for response in (one.result() for one in asked):
            assert response.status_code == 503
            assert response.json()["error"]["code"] == "too-long"
            assert int(response.headers["retry-after"]) > 0
        assert re.search(r"advise_workers_replaced [1-8]\.0", server.get("/metrics").text)
        assert server.get("/healthz").json()["status"] == "ok"


def test_with_a_token_strangers_learn_no_file_names(start: Start, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    with start("--token-file", str(token)) as server:
        assert server.get("/v1/devices").status_code == 401
        with_token = server.get("/v1/devices", headers={"authorization": "Bearer 0123456789abcdef"})
        assert with_token.status_code == 200
        (tmp_path / "advisor.yaml").write_text("provider: 7\n")
        until(lambda: server.get("/healthz").json()["status"] == "stale-prices")
        assert server.get("/healthz").json()["prices_problem"] == "see the log"
        assert "advisor.yaml:1: " in server.log.read_text()


def test_prices_that_change_are_loaded_anew_and_a_wrong_edit_changes_nothing(start: Start, tmp_path: Path) -> None:
    overlay = tmp_path / "advisor.yaml"
    example = (ROOT / "examples" / "advisor.yaml").read_text()

    def price(server: Server) -> float:
        offers = server.get("/v1/offers", params={"provider": "my-lab"})
        return float(offers.json()["prices"][0]["usd_per_hour"]) if offers.status_code == 200 else 0.0

    with start() as server:
        assert price(server) == 0.0
        overlay.write_text(example)
        until(lambda: price(server) == 0.35)
        overlay.write_text(example.replace("on_demand: 0.35", "on_demand: cheap"))
        until(lambda: server.get("/healthz").json()["status"] == "stale-prices")
        assert re.search(r"advisor\.yaml:\d+: .*cheap", server.get("/healthz").json()["prices_problem"])
        assert price(server) == 0.35
        assert "advise_prices_stale 1.0" in server.get("/metrics").text
        overlay.write_text(example.replace("on_demand: 0.35", "on_demand: 0.36"))
        until(lambda: price(server) == 0.36)
        assert server.get("/healthz").json()["status"] == "ok"
        assert "stay in force" in server.log.read_text()


def test_a_mistake_in_the_first_prices_keeps_it_from_starting(tmp_path: Path) -> None:
    (tmp_path / "advisor.yaml").write_text("provider: 7\n")
    done = subprocess.run(
        [sys.executable, "-m", "advisor", "serve", "--port", "0"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert re.search(r"error: .*advisor\.yaml:1: ", done.stderr)
    assert "Traceback" not in done.stderr


def test_a_port_in_use_is_said_so(server: Server, tmp_path: Path) -> None:
    port = server.url.rsplit(":", 1)[1]
    done = subprocess.run(
        [sys.executable, "-m", "advisor", "serve", "--port", port],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "cannot listen" in done.stderr) == (2, True)
