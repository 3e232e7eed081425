"""The container of the service: its commands work, and so does the image if a container engine is installed."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.serve.conftest import ROOT, serving

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
IMAGE = "device-advisor-test"


def instruction(name: str) -> str:
    """The arguments of the last instruction of this name."""
    return [line.partition(" ")[2].strip() for line in DOCKERFILE.splitlines() if line.startswith(f"{name} ")][-1]


def test_everything_that_the_build_copies_or_packs_is_sent_to_it() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    sent = {line[1:] for line in lines if line.startswith("!")}
    assert lines[0] == "*"
    assert all((ROOT / name).exists() for name in sent)
    assert {
        "advisor",
        "profiles",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "NOTICE",
        "requirements-service.txt",
    } <= sent


def test_it_runs_as_another_user_than_root_and_its_health_check_accepts_the_service_and_nothing_else(
    tmp_path: Path,
) -> None:
    user = instruction("USER")
    assert user.split(":")[0].isdigit()
    assert int(user.split(":")[0]) > 0
    _, program, code = json.loads(instruction("HEALTHCHECK").partition("CMD ")[2])
    assert program == "-c"
    with serving(tmp_path) as service:
        check = [sys.executable, program, code.replace("http://localhost:8000", service.url)]
        assert subprocess.run(check, capture_output=True, check=False).returncode == 0
    assert subprocess.run(check, capture_output=True, check=False).returncode != 0


def test_its_command_has_flags_that_the_service_knows(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef", encoding="utf-8")
    program, command, *arguments = json.loads(instruction("ENTRYPOINT"))
    assert (program, command) == ("advise", "serve")
    given = [str(token) if each.startswith("/run/secrets/") else each for each in arguments]
    given[given.index("--host") + 1] = "127.0.0.1"  # tests listen on no other address
    with serving(tmp_path, *given) as service:
        assert httpx.get(f"http://localhost:{service.address[1]}/healthz").status_code == 200


@pytest.fixture
def image() -> Iterator[str]:
    if (
        shutil.which("docker") is None
        or subprocess.run(["docker", "info"], capture_output=True, check=False).returncode
    ):
        pytest.skip("no container engine is at hand")
    subprocess.run(["docker", "build", "--tag", IMAGE, str(ROOT)], check=True)
    yield IMAGE
    subprocess.run(["docker", "image", "rm", "--force", IMAGE], check=False)


@pytest.mark.slow
def test_the_image_becomes_healthy_on_a_read_only_file_system(image: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef", encoding="utf-8")
    token.chmod(0o644)
    options = ["--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--network", "none", "--health-interval", "2s"]
    mount = ["--volume", f"{token}:/run/secrets/advisor-token:ro"]
    run = subprocess.run(
        ["docker", "run", "--detach", *options, *mount, image], check=True, capture_output=True, text=True
    )
    container = run.stdout.strip()
    try:
        for _ in range(60):
            inspect = ["docker", "inspect", "--format", "{{.State.Health.Status}}", container]
            state = subprocess.run(inspect, check=True, capture_output=True, text=True).stdout.strip()
            if state == "healthy":
                break
            time.sleep(1)
        assert state == "healthy"
    finally:
        subprocess.run(["docker", "rm", "--force", container], check=True, capture_output=True)
