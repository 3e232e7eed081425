"""Computes the accuracy of the shipped efficiencies and writes it to docs/accuracy.md and profiles/accuracy.json.

    python scripts/write_accuracy.py --measured tests/data/measured             (prints the table of all measurements)
    python scripts/write_accuracy.py --measured tests/data/measured --sample    (writes both files from the sample)

`make accuracy` runs both. A test compares docs/accuracy.md with the sample.
"""

import argparse
from pathlib import Path

from fit import FILES

from advisor.answers.accuracy_score import score
from advisor.answers.validation import validate
from advisor.records.measurement import Accuracy, Score
from advisor.records.options import Options
from advisor.report.accuracy import render_accuracy_json

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = "sample.csv"
PAGE = ROOT / "docs" / "accuracy.md"
SHIPPED = ROOT / "profiles" / "accuracy.json"
_BEGIN, _END = "<!-- accuracy: written by `make accuracy` -->", "<!-- end of accuracy -->"
_HEAD = (
    "| measured on | how | n | mean error | median | bias | inside the 90 % interval | plain roofline |",
    "| --- | --- | --- | --- | --- | --- | --- | --- |",
)


def table(accuracy: Accuracy) -> str:
    """Return a Markdown table with a line for every device, precision and mode, and one for all."""
    groups: dict[tuple[str, str], list[object]] = {}
    for row in (*accuracy.predicted, *accuracy.failed):
        asked = row.measurement
        compiled = ", compiled" if asked.compile == "compile" else ""
        groups.setdefault((row.device, f"{asked.mode.replace('_', ' + ')}, {asked.precision}{compiled}"), []).append(
            row
        )
    lines = list(_HEAD)
    for (device, how), rows in sorted(groups.items()):
        members = set(map(id, rows))
        part = score(
            [row for row in accuracy.predicted if id(row) in members],
            [row for row in accuracy.failed if id(row) in members],
        )
        lines.append(_line(device, how, part.overall))
    lines.append(_line("all", "", accuracy.overall))
    return "\n".join(lines)


def _line(device: str, how: str, one: Score) -> str:
    bias = "" if one.bias is None else f"{one.bias:+.0%}"
    inside = "" if one.coverage_90 is None else f"{one.coverage_90:.0%}"
    cells = (
        device,
        how,
        str(one.n),
        f"{one.mape:.0%}",
        f"{one.median_ape:.0%}",
        bias,
        inside,
        f"{one.roofline_mape:.0%}",
    )
    return f"| {' | '.join(cells)} |"


def with_table(page: str, text: str) -> str:
    """Return the page with its table replaced."""
    before, begin, rest = page.partition(_BEGIN)
    if not begin:
        raise ValueError(f"the page has no line {_BEGIN!r}")
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n{text}\n{_END}{after}"


def main() -> None:
    """Validate, print, and with `--sample` write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", type=Path, required=True, help="folder with the tables of measurements")
    parser.add_argument("--sample", action="store_true", help="use only the sample, and write the two files")
    arguments = parser.parse_args()
    names = (SAMPLE,) if arguments.sample else FILES
    accuracy = validate([arguments.measured / name for name in names], Options())
    text = table(accuracy)
    print(text)
    if arguments.sample:
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), text), encoding="utf-8")
        SHIPPED.write_text(render_accuracy_json(accuracy, with_rows=False), encoding="utf-8")


if __name__ == "__main__":
    main()
