"""Writes the headlines of today into the tables of docs/internals/headlines.md, beside those of the version before.

    python scripts/write_headlines.py

The column "before" is data: it is read from the page. Why a headline changed is what today's ranking says of the offer
that headed the answer before.
"""

import argparse
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

from advisor import units
from advisor.answers.break_even import break_even
from advisor.answers.ranking import rank
from advisor.errors import NothingFitsError
from advisor.question.from_source import question_from_source
from advisor.question.record import Question
from advisor.records.answer import Crossing, Quote, Recommendation
from advisor.records.options import Options

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "internals" / "headlines.md"
MODELS = {
    "MLP": "examples/mlp.py",
    "small CNN": "examples/small_cnn.py",
    "ResNet-50": "examples/resnet50.py",
    "LSTM": "examples/lstm.py",
    "transformer": "examples/transformer.py",
    "100 million words": "examples/word_embedding.py",
    "BERT": "hf:examples/configs/bert_base.json",
    "GPT-2": "hf:examples/configs/gpt2.json",
    "7-billion Llama": "hf:examples/configs/llama_7b.json",
    "Llama 3 8B": "hf:examples/configs/llama3_8b.json",
    "train.py (script)": "examples/train.py",
}
HEADLINES, CROSSINGS = "| job | tier |", "| model | over |"
_DAY = re.compile(r"(?<=are those of )\d{4}-\d{2}-\d{2}")
_TRACE_S = 1800.0
_CURVES = {"requests a day": "requests_per_day", "samples": "samples"}


def question_of(model: str, options: Options) -> Question:
    """Return the question about a model of `MODELS`, without this machine and without a script's data loader."""
    source, options = MODELS[model], replace(options, timeout=_TRACE_S)
    return question_from_source(source, options, run=source.endswith("train.py"), read_machine=None)


def headline(quote: Quote | None) -> str:
    """Return the offer and its cost per billion samples."""
    if quote is None:
        return "nothing fits"
    count = f"{quote.device.count}x " if quote.device.count > 1 else ""
    usd = float(f"{quote.usd_per_million_samples * 1e3:.2g}")
    return f"{quote.provider} {quote.instance} ({count}{quote.device.name}), {units.format_usd(usd)}"


def why(before: str, answer: Recommendation) -> str:
    """Return why the offer that headed the answer before does not head it today."""
    best = answer.best
    if best is None:
        return f"{'same: ' if before == headline(None) else ''}no machine has the memory"
    if before.rpartition(", $")[0] == headline(best).rpartition(", $")[0]:
        return "same"
    provider, device = before.split()[0], before.partition("(")[2].partition(")")[0].split("x ", 1)[-1]
    instance = before.partition(" (")[0].partition(" ")[2]
    quotes = [one for one in answer.quotes if one.provider == provider and one.device.name == device]
    old = next((one for one in quotes if instance in ("", one.instance)), None)
    if old is None:
        reasons = [one.code for one in answer.rejected if one.provider == provider and one.instance == instance]
        return f"left out: {reasons[0]}" if reasons else "no longer on offer"
    if not old.price_is_trusted:
        return f"price of {old.price_date} of a small provider's list is not trusted"
    if not old.may_lead and old.time_source == "datasheet":
        return "nobody measured the old one's generation; its upper bound saves too little"
    if not old.may_lead:
        return "the old one rents more than the job needs"
    return f"cheaper by today's prediction ({old.job_usd.mid / best.job_usd.mid:.2g}x)"


def headline_row(cells: list[str]) -> list[str]:
    """Return the row with the headline of today."""
    job, tier, before, *_ = cells
    model, mode = job.rsplit(", ", 1)
    options = Options(mode=mode, no_local=True, tier=() if tier == "all" else (tier,))  # type: ignore[arg-type]
    answer = rank(question_of(model, options))
    return [job, tier, before, headline(answer.best), why(before, answer)]


def crossing_row(cells: list[str]) -> list[str]:
    """Return the row with the break-even points of today, of all prices and of the fresh ones."""
    model, over, *before = cells
    all_prices, fresh = Options(no_local=True), Options(no_local=True, drop_prices="old")
    now = [crossing_of(model, over, options) for options in (all_prices, fresh)]
    return [model, over, *before[:2], *now]


def crossing_of(model: str, over: str, options: Options) -> str:
    """Return from where on a GPU is cheaper, with the interval; "never" if it is nowhere."""
    try:
        curves = break_even(question_of(model, options)).curves
    except NothingFitsError:
        return "never"
    found = [one for curve in curves if curve.kind == _CURVES[over] for one in curve.crossings if one.cheaper == "gpu"]
    return _text(found[0]) if found else "never"


def _text(crossing: Crossing) -> str:
    low, high = ("?" if end is None else units.format_count(end) for end in (crossing.low, crossing.high))
    return f"{units.format_count(crossing.at)} [{low} - {high}]"


def updated(lines: list[str]) -> Iterator[str]:
    """Yield the lines of the page with today's columns."""
    row_of = None
    for line in lines:
        if line.startswith((HEADLINES, CROSSINGS)):
            row_of = headline_row if line.startswith(HEADLINES) else crossing_row
        elif not line.startswith("|"):
            row_of = None
        elif row_of is not None and not line.startswith("| ---"):
            row = row_of([cell.strip() for cell in line.strip("|").split("|")])
            print(" | ".join(row), flush=True)
            yield f"| {' | '.join(row)} |"
            continue
        yield line


def main() -> None:
    """Rewrite the page."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    page = _DAY.sub(date.today().isoformat(), PAGE.read_text(encoding="utf-8"), count=1)
    PAGE.write_text("\n".join(updated(page.splitlines())) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
