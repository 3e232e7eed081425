"""Writes the answer of the README's first command into the README's ```text block.

`python scripts/write_demo.py` runs the command as a new user would, on this machine and today, and dates the block. It
leaves out the assumptions and the lower rows of the ranking, and puts `[...]` in the place of each. The test repeats it
for that date and without a local machine, so that it passes anywhere and on any day.
"""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
MODEL = "examples/resnet50.py"
COMMAND = f"advise {MODEL}"
_COLUMNS = 80
_LAST_SECTION = "\nLeft out ("
"""The README shows the answer up to here and says in a sentence what follows."""
_CUT = "[...]"
_ASSUMPTIONS = re.compile(r"^Assumes:\n(?: .*\n)+", flags=re.MULTILINE)
_MARKS = re.compile(r"^~ too close.*?(?=^Row )", flags=re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"(?<=^```text\n).*?(?=^```)", flags=re.MULTILINE | re.DOTALL)
_DAY = re.compile(r"(?<=This is the answer of )\d{4}-\d{2}-\d{2}")
_PROGRAM = """
import sys
from datetime import date
from functools import partial
from advisor.answers import ranking
from advisor.cli.main import main
ranking.rank = partial(ranking.rank, today=date.fromisoformat(sys.argv.pop(1)))
main()
"""


def demo(day: str, *, flags: Sequence[str] = ()) -> str:
    """Return the command and the beginning of its answer on `day`, as a terminal of 80 columns shows it."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, day, MODEL, *flags],
        cwd=ROOT,
        env=os.environ | {"COLUMNS": str(_COLUMNS), "XDG_CONFIG_HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=True,
    )
    answer, heading, _ = done.stdout.partition(_LAST_SECTION)
    if not heading:
        raise ValueError(f"the answer has no section {_LAST_SECTION.strip()!r}")
    return f"$ {COMMAND}\n\n{_shortened(answer)}"


def _shortened(answer: str) -> str:
    answer, assumptions_count = _ASSUMPTIONS.subn(f"{_CUT}\n", answer)
    answer, marks_count = _MARKS.subn(f"{_CUT}\n", answer)
    if (assumptions_count, marks_count) != (1, 1):
        raise ValueError("the answer has no assumptions, or does not explain its marks before a row")
    return f"{answer.rstrip()}\n\n{_CUT}\n"


def shown() -> str:
    """Return the command and the answer that the README shows."""
    found = _BLOCK.search(README.read_text(encoding="utf-8"))
    if found is None:
        raise ValueError("README.md has no ```text block")
    return found.group()


def shown_day() -> str:
    """Return the day on which the answer that the README shows was computed, as YYYY-MM-DD."""
    found = _DAY.search(README.read_text(encoding="utf-8"))
    if found is None:
        raise ValueError("README.md does not date its ```text block")
    return found.group()


if __name__ == "__main__":
    text = README.read_text(encoding="utf-8")
    today = date.today().isoformat()
    answer = demo(today)
    text = _BLOCK.sub(lambda _: answer, text, count=1)
    README.write_text(_DAY.sub(today, text, count=1), encoding="utf-8")
    print(f"wrote {README}")
