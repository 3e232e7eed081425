"""Put what `make demo` prints into the README, between its ```text fences."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
_BLOCK = re.compile(r"(?<=^```text\n).*?(?=^```)", flags=re.MULTILINE | re.DOTALL)


_DAY = "2026-09-06"
"""Of the newest price: with the clock, prices would grow old in the README."""
_PROGRAM = f"""
from datetime import date
from functools import partial
from advisor import pipeline
from advisor.cli.main import main
pipeline.rank_source = partial(pipeline.rank_source, today=date.fromisoformat("{_DAY}"))
main()
"""


def demo() -> str:
    """The answer for examples/resnet50.py of one day, 100 columns wide, without anyone's own overlays and machine."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, "examples/resnet50.py", "--no-local"],
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "100", "XDG_CONFIG_HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def shown() -> str:
    """The answer that the README shows."""
    found = _BLOCK.search(README.read_text(encoding="utf-8"))
    if found is None:
        raise ValueError("README.md has no ```text block")
    return found.group()


if __name__ == "__main__":
    text = README.read_text(encoding="utf-8")
    answer = demo()
    README.write_text(_BLOCK.sub(lambda _: answer, text, count=1), encoding="utf-8")
    print(f"wrote {README}")
