"""Put a command and what it printed on one day into the README, between its ```text fences."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
_BLOCK = re.compile(r"(?<=^```text\n).*?(?=^```)", flags=re.MULTILINE | re.DOTALL)
COMMAND = "COLUMNS=100 advise examples/resnet50.py --no-local"
_DAY = "2026-09-06"
"""Of the newest price: with the clock, prices would grow old in the README."""
_PROGRAM = f"""
from datetime import date
from functools import partial
from advisor.answers import ranking
from advisor.cli.main import main
ranking.rank = partial(ranking.rank, today=date.fromisoformat("{_DAY}"))
main()
"""


def demo() -> str:
    """The command with its day, and its answer where nobody has overlays of their own."""
    words = shlex.split(COMMAND)
    start = words.index("advise")
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *words[start + 1 :]],
        cwd=ROOT,
        env=os.environ | dict(word.split("=", 1) for word in words[:start]) | {"XDG_CONFIG_HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=True,
    )
    return f"$ {COMMAND}    # on {_DAY}\n\n{done.stdout}"


def shown() -> str:
    """The command and the answer that the README shows."""
    found = _BLOCK.search(README.read_text(encoding="utf-8"))
    if found is None:
        raise ValueError("README.md has no ```text block")
    return found.group()


if __name__ == "__main__":
    text = README.read_text(encoding="utf-8")
    answer = demo()
    README.write_text(_BLOCK.sub(lambda _: answer, text, count=1), encoding="utf-8")
    print(f"wrote {README}")
