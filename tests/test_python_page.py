"""The examples of the page on Python run."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "python.md").read_text(encoding="utf-8")


def example(heading: str) -> str:
    """Return the first example below a heading of the page."""
    (section,) = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^```python\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL)[0]


def test_the_example_of_fits_prints_its_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    exec(example('Before `.to("cuda")`'), names := {})
    assert names["answer"].fits
    assert " ".join(capsys.readouterr().out.split()).count(". ") == 0
