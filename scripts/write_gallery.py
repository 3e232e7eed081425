"""Writes the gallery: for well-known models, when to use a CPU and when a GPU, and what the best of each costs.

    python scripts/write_gallery.py

Writes docs/gallery.md, docs/gallery.html (not in the repository), whose tables can be sorted, and a badge for each
model in docs/gallery/.
"""

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from xml.sax.saxutils import escape

from advisor import units
from advisor.answers.ranking import rank
from advisor.files.whole_file import write_whole
from advisor.question.from_source import catalog_of, profile_source, question_of
from advisor.records.answer import Contender, Interval, Recommendation, Situation, SituationKind
from advisor.records.options import Options
from advisor.records.price import Catalog
from advisor.records.sample_words import samples_noun
from advisor.report.amounts import money_interval, number_text
from advisor.report.break_even import is_too_close
from advisor.report.content import Document, Section, Table
from advisor.report.html import render_document
from advisor.report.situations import busy_unit, times_cheaper
from advisor.report.tables import ColumnOf, column, table_of

DOCS = Path(__file__).resolve().parents[1] / "docs"
MODELS = (
    "sentence-transformers/all-MiniLM-L6-v2",
    "BAAI/bge-base-en-v1.5",
    "distilbert/distilbert-base-uncased",
    "google-bert/bert-base-uncased",
    "google-bert/bert-large-uncased",
    "FacebookAI/roberta-base",
    "FacebookAI/xlm-roberta-base",
    "google-t5/t5-small",
    "google-t5/t5-base",
    "microsoft/resnet-50",
    "google/vit-base-patch16-224",
    "openai/clip-vit-base-patch32",
    "openai/whisper-small",
    "openai/whisper-large-v3",
)
SERVED = (
    "HuggingFaceTB/SmolLM2-135M",
    "Qwen/Qwen2.5-0.5B",
    "meta-llama/Llama-3.2-1B",
    "Qwen/Qwen2.5-1.5B",
    "google/gemma-2-2b",
    "meta-llama/Llama-3.2-3B",
    "microsoft/Phi-3-mini-4k-instruct",
    "Qwen/Qwen3-4B",
    "mistralai/Mistral-7B-v0.3",
    "Qwen/Qwen2.5-7B",
    "meta-llama/Llama-3.1-8B",
    "google/gemma-2-9b",
    "Qwen/Qwen2.5-14B",
    "microsoft/phi-4",
    "Qwen/Qwen2.5-32B",
    "mistralai/Mixtral-8x7B-v0.1",
    "meta-llama/Llama-3.1-70B",
    "Qwen/Qwen2.5-72B",
)
"""Language models, by size: their requests have a prompt and an answer of these tokens."""
PROMPT_TOKENS, ANSWER_TOKENS = 1024, 256
_SINGLE = Options(no_local=True)
_REQUESTS = Options(no_local=True, prompt_tokens=PROMPT_TOKENS, output_tokens=ANSWER_TOKENS)
_USES: Mapping[SituationKind, str] = {"busy": "at full load", "once": "a job of a million", "service": "a service"}
_FROM: Mapping[SituationKind, str] = {"once": "a GPU from a job of", "service": "a GPU from requests a day"}
_TITLES = {
    "Models that answer in one pass": "A sample is an image, 30 s of speech, or a text as long as the model takes, at "
    "most 512 tokens.",
    "Language models in service": f"A request has a prompt of {PROMPT_TOKENS:,} tokens and an answer of "
    f"{ANSWER_TOKENS}; vLLM serves the model in 16 bits.",
}
_BADGE_CHARACTER_PX, _BADGE_MARGIN_PX = 6.6, 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A model of the gallery and its answer."""

    name: str
    answer: Recommendation

    @property
    def badge(self) -> str:
        """Return the name of its badge's file."""
        return f"{self.name.replace('/', '--')}.svg"


def main() -> None:
    """Write the page, the HTML file and the badges."""
    catalog, today = catalog_of(Options()), date.today()
    groups = [entries(names, options, catalog) for names, options in ((MODELS, _SINGLE), (SERVED, _REQUESTS))]
    write_whole(page(groups, today=today), DOCS / "gallery.md")
    write_whole(render_document(document(groups, today=today)), DOCS / "gallery.html")
    badges = DOCS / "gallery"
    shutil.rmtree(badges, ignore_errors=True)
    badges.mkdir()
    for entry in (entry for group in groups for entry in group):
        write_whole(badge_svg(entry), badges / entry.badge)


def entries(names: Sequence[str], options: Options, catalog: Catalog) -> list[Entry]:
    """Return the answers for these models; two are traced at a time, each in a process of its own."""
    with ThreadPoolExecutor(2) as pool:
        workloads = list(pool.map(lambda name: profile_source(f"hf:{name}", options).workload, names))
    return [
        Entry(name=name, answer=rank(question_of(workload, options, catalog=catalog)))
        for name, workload in zip(names, workloads, strict=True)
    ]


def page(groups: Sequence[Sequence[Entry]], *, today: date) -> str:
    """Return docs/gallery.md."""
    lines = [
        "# Gallery: when to use a CPU and when a GPU",
        "",
        f"Written by `scripts/write_gallery.py` on {today}, from configs that ship with advise; it also writes",
        "`docs/gallery.html`, whose tables can be sorted. For each model: the cheapest GPU and the cheapest CPU whose",
        "price can be trusted, their costs [with 90 % intervals], which kind is cheaper and by how much, and the size",
        "above which a GPU is cheaper. Prices are on-demand. Costs at full load are per million (M) or billion (B)",
        "samples, and for language models in service per million requests. The cost of a service is that of the",
        "cheapest machine that holds the model, always on, at one request a day. `advise hf:NAME` answers for your",
        "job, region and prices. Each model has a badge in `docs/gallery/`, such as",
        "[this one](gallery/google-bert--bert-base-uncased.svg).",
    ]
    for table in tables(groups):
        widths = ["---"] * len(table.columns)
        rows = [[one.header for one in table.columns], widths, *table.rows]
        lines += ["", f"## {table.title}", "", *table.notes, ""]
        lines += [f"| {' | '.join(cell or ' ' for cell in row)} |" for row in rows]
    return "\n".join((*lines, ""))


def document(groups: Sequence[Sequence[Entry]], *, today: date) -> Document:
    """Return the HTML page's contents."""
    return Document(
        title="When to use a CPU and when a GPU",
        headline=f"{sum(map(len, groups))} well-known models",
        answer="The cheapest CPU and the cheapest GPU instance for each, at full load, for one job, and as a service.",
        figures=(),
        warnings=(),
        sections=tuple(_section(table) for table in tables(groups)),
        money="$",
        footer=f"Predicted by advise on {today}, in US dollars, with 90 % intervals.",
    )


def _section(table: Table) -> Section:
    return Section(id=re.sub(r"\W+", "-", table.title.lower()), title=table.title, tables=(table,))


def tables(groups: Sequence[Sequence[Entry]]) -> list[Table]:
    """Return a table for each use of each group of models."""
    return [
        table_of(rows_of(group, kind), tuple(_columns(kind)), title=f"{title}: {use}", notes=(note,))
        for group, (title, note) in zip(groups, _TITLES.items(), strict=True)
        for kind, use in _USES.items()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One use of a model in which both a CPU and a GPU can work."""

    name: str
    situation: Situation
    cpu: Contender
    gpu: Contender
    ratio: Interval
    """Cost on the CPU over that on the GPU."""


def rows_of(group: Sequence[Entry], kind: SituationKind) -> Iterator[Row]:
    """Yield a row for each model."""
    for entry in group:
        for one in entry.answer.situations:
            cpu, gpu, ratio = one.point.cpu, one.point.gpu, one.point.cost_ratio
            if one.kind == kind and cpu is not None and gpu is not None and ratio is not None:
                yield Row(name=entry.name, situation=one, cpu=cpu, gpu=gpu, ratio=ratio)


def _columns(kind: SituationKind) -> Iterator[ColumnOf[Row]]:
    yield column("model", lambda row: row.name)
    yield column("cheaper", _cheaper, lambda row: row.ratio.mid)
    yield column("best GPU", lambda row: row.gpu.name)
    yield column("its cost", lambda row: _cost(row.gpu, row), lambda row: row.gpu.job_usd.mid)
    yield column("best CPU", lambda row: row.cpu.name)
    yield column("its cost", lambda row: _cost(row.cpu, row), lambda row: row.cpu.job_usd.mid)
    if kind != "busy":
        yield column(_FROM[kind], _crossing, lambda row: next((float(one.at) for one in row.situation.crossings), None))


def _cheaper(row: Row) -> str:
    if is_too_close(row.ratio):
        return "about the same"
    return f"{'GPU' if row.ratio.mid > 1 else 'CPU'} {times_cheaper(row.ratio)}"


def _crossing(row: Row) -> str:
    """Return from where on a GPU is cheaper: "48,800 [35,100-67,900]", "always" or "never"."""
    crossings = row.situation.crossings
    if not crossings:
        return "always" if row.ratio.mid > 1 else "never"
    first = crossings[0]
    if first.cheaper != "gpu":
        return f"below {number_text(first.at)}"
    low, high = ("?" if end is None else number_text(end) for end in (first.low, first.high))
    gpu = None if row.situation.at_crossing is None else row.situation.at_crossing.gpu
    perhaps = "perhaps " if gpu is not None and not gpu.is_candidate else ""
    return f"{perhaps}{number_text(first.at)} [{low}-{high}]{' (changes again)' if len(crossings) > 1 else ''}"


def _cost(side: Contender, row: Row) -> str:
    if row.situation.kind != "busy":
        return money_interval(side.job_usd, rate=None)
    unit = busy_unit(row.situation)
    usd, _, ends = money_interval(unit.of(side.job_usd), rate=None).partition(" ")
    return f"{usd}/{unit.symbol} {ends}"


def badge_svg(entry: Entry) -> str:
    """Return a badge of two fields, 20 pixels high: the model, and the cheapest instance at full load."""
    model, said = entry.name.partition("/")[2], "no CPU or no GPU can run it"
    for row in rows_of([entry], "busy"):
        side = min(row.cpu, row.gpu, key=lambda one: one.job_usd.mid)
        unit = busy_unit(row.situation)
        noun = samples_noun(entry.answer.job.generation)
        said = f"{side.name} {units.format_usd(unit.of(side.job_usd).mid)} per {unit.name} {noun}"
    widths = [2 * _BADGE_MARGIN_PX + _BADGE_CHARACTER_PX * len(text) for text in (model, said)]
    whole = sum(widths)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole:.0f}" height="20" role="img" '
        f'aria-label="{escape(model)}: {escape(said)}" font-family="Verdana, DejaVu Sans, sans-serif" font-size="11">'
        f'<clipPath id="round"><rect width="{whole:.0f}" height="20" rx="3"/></clipPath><g clip-path="url(#round)">'
        f'<rect width="{whole:.0f}" height="20" fill="#24292f"/>'
        f'<rect x="{widths[0]:.0f}" width="{widths[1]:.0f}" height="20" fill="#0b6e4f"/></g><g fill="#fff">'
        f'<text x="{_BADGE_MARGIN_PX}" y="14" textLength="{widths[0] - 2 * _BADGE_MARGIN_PX:.0f}">'
        f"{escape(model)}</text>"
        f'<text x="{widths[0] + _BADGE_MARGIN_PX:.0f}" y="14" '
        f'textLength="{widths[1] - 2 * _BADGE_MARGIN_PX:.0f}">{escape(said)}</text></g></svg>\n'
    )


if __name__ == "__main__":
    main()
