"""The README's commands run, its example is the program's answer, and its links lead somewhere."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.write_demo import COMMAND, demo, shown, shown_day

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    return tmp_path


def test_every_command_answers(folder: Path) -> None:
    lines = [line for block in blocks("console") for line in block.splitlines()]
    assert all(line.startswith(("$ ", "# ")) for line in lines)
    commands = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    assert len(commands) >= 6
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "advise"
        done = subprocess.run(
            [sys.executable, "-m", "advisor", *arguments], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"


def test_the_model_file_it_shows_is_ranked(folder: Path) -> None:
    (source,) = (block for block in blocks("python") if "def get_model" in block)
    (folder / "model.py").write_text(source)
    for mode in ("inference", "training"):
        arguments = [sys.executable, "-m", "advisor", "model.py", "--mode", mode, "-o", "csv"]
        done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_the_answer_it_shows_is_that_of_the_command_above_it() -> None:
    """The README's answer also has the local machine of whoever wrote it, on lines of its own."""
    assert shown().splitlines()[0] == f"$ {COMMAND}"
    words = " ".join(shown().split())
    missing = [
        line for line in demo(shown_day(), flags=["--no-local"]).splitlines() if " ".join(line.split()) not in words
    ]
    assert not missing, "run make docs"


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    for target, _, anchor in re.findall(r"\]\(([^)#\s]*)(#([^)\s]*))?\)", page.read_text(encoding="utf-8")):
        if target.startswith("http"):
            continue
        file = page.parent / target if target else page
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}, (
                anchor
            )


def test_the_overlay_that_the_page_on_prices_shows_is_the_example() -> None:
    page = (ROOT / "docs" / "prices.md").read_text(encoding="utf-8")
    (_, overlay) = re.findall(r"^```yaml\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    assert overlay == (ROOT / "examples" / "advisor.yaml").read_text(encoding="utf-8")
