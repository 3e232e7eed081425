"""Writes first screens: the README's example, and docs/first-screens.md.

`python scripts/write_demo.py` runs every command as a new user would, at 80 columns and today, and dates both. The
lower rows of the ranking and the notes below it are cut at `[...]`. The README's answer has this machine in it, which
its test leaves out.
"""

import os
import re
import shlex
import subprocess
import sys
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
PAGE = ROOT / "docs" / "first-screens.md"
COMMAND = "advise examples/resnet50.py"
_COLUMNS = 80
_ROW_COUNT = 5
_CUT = "[...]"
_RANKING = re.compile(rf"^ *#  provider .*\n(?:.*\n){{{_ROW_COUNT}}}", flags=re.MULTILINE)
_BLOCK = re.compile(r"(?<=^```text\n).*?(?=^```)", flags=re.MULTILINE | re.DOTALL)
_DAY = re.compile(r"(?<=answer of )\d{4}-\d{2}-\d{2}|(?<=answers of )\d{4}-\d{2}-\d{2}")
_PROGRAM = """
import sys
from datetime import date
from functools import partial
from advisor.answers import ranking
from advisor.cli.main import main
ranking.rank = partial(ranking.rank, today=date.fromisoformat(sys.argv.pop(1)))
main()
"""
MODELS = {
    "A small transformer, trained on ten million samples": (
        "advise examples/transformer.py --mode training --samples 1e7 --no-local"
    ),
    "An LSTM, trained for ten epochs": (
        "advise examples/lstm.py --mode training --samples 25000 --epochs 10 --no-local"
    ),
    "GPT-2, trained on a million sequences": (
        "advise hf:examples/configs/gpt2.json --mode training --samples 1e6 --no-local"
    ),
    "BERT in inference": "advise hf:examples/configs/bert_base.json --no-local",
    "A language model in service": (
        "advise hf:examples/configs/llama3_8b.json --prompt-tokens 1024 --output-tokens 256 \\\n"
        "    --requests-per-second 5 --max-tpot 50ms --no-local"
    ),
    "A training script as it runs": "advise examples/train.py --run --loader-s-per-sample 10us --no-local",
}
QUESTIONS = {
    "Which machine is cheapest on AWS?": "advise examples/resnet50.py --provider aws --no-local",
    "Can it be trained for $50 by tomorrow?": (
        "advise examples/resnet50.py --mode training --samples 1281167 --epochs 90 \\\n"
        "    --batch 256 --deadline 24h --max-usd 50 --no-local"
    ),
    "I own two RTX 3090: should I rent?": (
        "advise examples/resnet50.py --mode training --samples 1281167 --epochs 90 \\\n"
        "    --batch 256 --prices examples/owned.yaml --no-local"
    ),
    "What serves BERT at 50 requests a second with a p99 under 100 ms?": (
        "advise hf:examples/configs/bert_base.json --requests-per-second 50 --p99 100ms \\\n    --no-local"
    ),
    "Is a GPU worth it for my small MLP?": "advise examples/mlp.py --no-local",
}
_HEADER = """# First screens

Written by `scripts/write_demo.py`; do not edit. These are the answers of {day} at 80 columns, up to the first rows of
the ranking; the other rows and the notes below them are cut at `{cut}`. `--no-local` leaves out the machine that ran
the commands, so that everyone gets the same answers with the same prices. In the last screen `--loader-s-per-sample`
replaces the time of the script's data loader, which would be measured on this machine. From run to run it changes the
costs by a few percent; where the CPU and the GPU cost nearly the same, the break-even can then move by a factor of ten.
The [README](../README.md) has the screen of a convolutional network in inference.
"""


def first_screen(command: str, day: str) -> str:
    """Return the command and the beginning of its answer on `day`, as a terminal of 80 columns shows it."""
    _, *arguments = shlex.split(command.replace("\\\n", ""))
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, day, *arguments],
        cwd=ROOT,
        env=os.environ | {"COLUMNS": str(_COLUMNS), "XDG_CONFIG_HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=True,
    )
    ranking = _RANKING.search(done.stdout)
    if ranking is None:
        raise ValueError(f"the answer of {command!r} has no ranking of more than {_ROW_COUNT} rows")
    return f"$ {command}\n\n{done.stdout[: ranking.end()]}{_CUT}\n"


def page(day: str) -> str:
    """Return docs/first-screens.md."""
    questions = [part for title, command in QUESTIONS.items() for part in _entry(f"## {title}", command, day)]
    models = [part for title, command in MODELS.items() for part in _entry(f"### {title}", command, day)]
    return "\n".join((_HEADER.format(day=day, cut=_CUT), *questions, "## Six jobs\n", *models))


def _entry(heading: str, command: str, day: str) -> tuple[str, str]:
    return f"{heading}\n", f"```text\n{first_screen(command, day)}```\n"


def shown(file: Path = README) -> list[str]:
    """Return the commands with their answers that the file shows."""
    return _BLOCK.findall(file.read_text(encoding="utf-8"))


def shown_day(file: Path = README) -> str:
    """Return the day on which the answers that the file shows were computed, as YYYY-MM-DD."""
    found = _DAY.search(file.read_text(encoding="utf-8"))
    if found is None:
        raise ValueError(f"{file.name} does not date its answers")
    return found.group()


if __name__ == "__main__":
    today = date.today().isoformat()
    answer = first_screen(COMMAND, today)
    text = _BLOCK.sub(lambda _: answer, README.read_text(encoding="utf-8"), count=1)
    README.write_text(_DAY.sub(today, text, count=1), encoding="utf-8")
    PAGE.write_text(page(today), encoding="utf-8")
    print(f"wrote {README} and {PAGE}")
