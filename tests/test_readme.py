"""The README's commands run, its example is the program's answer, and its links lead somewhere."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.write_demo import COMMAND, MODELS, PAGE, QUESTIONS, first_screen, shown, shown_day

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


def test_it_is_a_landing_page() -> None:
    assert len(README.splitlines()) <= 150


def test_the_answer_it_shows_is_that_of_the_command_above_it() -> None:
    """The README's answer also has the local machine of whoever wrote it, on lines of its own."""
    (answer,) = shown()
    assert answer.splitlines()[0] == f"$ {COMMAND}"
    words = " ".join(answer.split())
    expected = first_screen(f"{COMMAND} --no-local", shown_day()).splitlines()[1:]
    assert not [line for line in expected if " ".join(line.split()) not in words], "run make docs"


def test_the_page_of_first_screens_has_every_command_and_is_cut_only_below_the_ranking() -> None:
    screens = shown(PAGE)
    assert [screen.partition("\n\n")[0] for screen in screens] == [
        f"$ {command}" for command in (*QUESTIONS.values(), *MODELS.values())
    ]
    for screen in screens:
        assert screen.endswith("\n[...]\n")
        assert screen.count("[...]") == 1
        answer = screen.partition("\n\n")[2].splitlines()
        assert max(map(len, answer)) <= 80
        assert len(answer) <= 45


@pytest.mark.slow
@pytest.mark.parametrize("command", [*QUESTIONS.values(), *MODELS.values()])
def test_the_page_of_first_screens_shows_the_answers_of_its_commands(command: str) -> None:
    assert first_screen(command, shown_day(PAGE)) in shown(PAGE), "run make docs"


@pytest.mark.slow
def test_the_curve_over_machines_that_the_page_on_scale_shows_is_that_of_its_commands(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    (commands,) = (block for block in re.findall(r"^```console\n(.*?)^```", page, re.M | re.S) if "llama.json" in block)
    (curve,) = (block for block in re.findall(r"^```text\n(.*?)^```", page, re.M | re.S) if "machines  GPUs" in block)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for command in commands.replace("\\\n", "").splitlines():
        _, *arguments = shlex.split(command.removeprefix("$ "))
        arguments = [sys.executable, "-m", "advisor", *arguments]
        done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=True)
    rows = [line for line in curve.splitlines() if "DDP" in line or "FSDP" in line]
    assert len(rows) == 7
    assert not [row for row in rows if row not in done.stdout.splitlines()]


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


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


def test_the_overlays_that_the_page_on_prices_shows_are_the_examples() -> None:
    page = (ROOT / "docs" / "prices.md").read_text(encoding="utf-8")
    overlays = re.findall(r"^```yaml\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    examples = [(ROOT / "examples" / name).read_text(encoding="utf-8") for name in ("owned.yaml", "advisor.yaml")]
    assert overlays == examples
