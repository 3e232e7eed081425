"""A language model in service in the text, the tables and the columns of every format."""

import csv
from dataclasses import replace
from io import StringIO

from advisor.cost.quotes import quoted_fields
from advisor.records.answer import ContextPoint, ContextSweep, Interval, Quote, Recommendation, TokenQuote
from advisor.records.generation import Generation
from advisor.records.scale import Plan
from advisor.report import as_csv, as_markdown, sentence
from advisor.report.content import View
from advisor.report.contexts import context_tables, contexts_section
from advisor.report.notebook import to_fragment
from advisor.report.quote_columns import RankedQuote, columns_for, table_rows
from advisor.report.quote_notes import load_text, scaling_notes, service_settings, token_notes
from advisor.report.recommendation import recommendation_content
from tests.report.toys import GENOA, L4, T4, recommendation, render_text
from tests.says import assert_says

TOKENS = TokenQuote(
    ttft_s=Interval(mid=0.12, low=0.1, high=0.15),
    tpot_s=Interval(mid=0.025, low=0.02, high=0.03),
    decode_s=0.0153,
    output_tokens_per_s=1310.0,
    usd_per_million_output_tokens=0.0825,
    usd_per_million_tokens=0.0165,
    kv_cache_bytes=5 * 2**30,
    weight_bytes=15 * 2**30,
    compute_bound_from=256,
)
TOY = recommendation(L4, T4, GENOA)
GENERATION = Generation(prompt_tokens=1024, output_tokens=256)


def served(quote: Quote) -> Quote:
    return replace(quote, tokens=TOKENS, batch=32, precision="bf16")


def answer() -> Recommendation:
    """The toy answer, as if it served 5 requests per second."""
    quotes = tuple(map(served, TOY.quotes))
    job = replace(
        TOY.job,
        generation=GENERATION,
        precision="half",
        batch="auto",
        requests_per_day=432_000,
        requests_per_second=5.0,
        assumed=False,
    )
    return replace(TOY, quotes=quotes, best=quotes[0], job=job)


def flat(text: str) -> str:
    return " ".join(text.split())


def test_the_headline_says_the_load_and_what_tokens_cost() -> None:
    headline = sentence.headline(answer())
    assert_says(headline, "serves", "5 requests/s", "$0.0165")


def test_large_loads_are_written_out() -> None:
    job = replace(answer().job, requests_per_second=12_500.5)
    assert load_text(job) == "12,500.5 requests/s"


def test_the_table_has_columns_of_tokens_and_fits_80_characters() -> None:
    text = render_text(answer(), width=80, color=False)

    assert max(map(len, text.splitlines())) <= 80
    (head,) = (line for line in text.splitlines() if line.lstrip().startswith("#"))
    assert head.split() == ["#", "provider", "instance", "per", "h", "TTFT", "TPOT", "per", "Mtok", "cost", "P(best)"]
    assert_says(text.partition(head)[2], "120 ms", "25 ms")


def test_wide_tables_have_them_all() -> None:
    headers = [column.header for column in columns_for(rows())]
    assert headers == [
        *("#", "provider", "instance", "device", "region", "per h", "in flight", "precision", "TTFT", "TPOT"),
        *("tokens/s", "per Mtok", "cost", "cost [90 %]", "P(best)", "memory", "bound", "price date"),
    ]
    cells = {column.header: column.cell(rows()[0]) for column in columns_for(rows())}
    assert (cells["in flight"], cells["TTFT"], cells["tokens/s"]) == ("32", "120 ms", "1,310")
    assert (cells["per Mtok"], cells["TPOT"]) == ("$0.0165", "25 ms")


def rows() -> tuple[RankedQuote, ...]:
    return table_rows(answer(), top=3)


def test_other_answers_keep_their_columns() -> None:
    sized = replace(TOY, job=replace(TOY.job, assumed=False))
    headers, of_none = ([column.header for column in columns_for(rows)] for rows in (table_rows(sized, top=3), ()))
    assert headers == of_none
    assert {"batch", "time", "samples/s"} <= set(headers)


def test_what_the_service_was_understood_to_be_stands_first() -> None:
    first, *_ = sentence.basis(answer())
    assert_says(first, "1,024", "256", "half", "bf16", "fp16", "fp32", "on-demand")
    assert service_settings(TOY.job) is None
    narrow = replace(answer().job, batch="8", generation=replace(GENERATION, weights="int4"))
    settings = service_settings(narrow)
    assert settings is not None
    assert_says(settings, "8 requests", "int4", "128")
    gguf = service_settings(replace(narrow, generation=replace(GENERATION, weights="q4_k_m"))) or ""
    assert_says(gguf, "q4_k_m", "output and embedding")
    assert "block weights" not in gguf
    for batch, requests in (("100000", "100,000 requests"), ("1..256", "1..256 requests")):
        assert_says(service_settings(replace(narrow, batch=batch)) or "", requests)


def test_the_tokens_of_the_best_are_told_in_sentences() -> None:
    notes = list(token_notes(answer().quotes[0], answer().job, rate=None))
    times, prices, memory, bound = notes
    assert_says(times, "120 ms [100-150]", "25 ms [20-30]", "15.3 ms")
    assert_says(prices, "$0.0825", "output tokens", "$0.0165", "input")
    assert_says(memory, "KV cache", "32 requests", "5 GiB", "weights", "15 GiB")
    assert_says(bound, "bandwidth-bound", "256 requests", "compute-bound")
    never = replace(answer().quotes[0], tokens=replace(TOKENS, compute_bound_from=None))
    *_, bound = token_notes(never, answer().job, rate=None)
    assert_says(bound, "bandwidth-bound")
    assert "compute-bound" not in bound


def test_a_request_by_itself_waits_for_no_other_prompt() -> None:
    alone = replace(answer().quotes[0], tokens=replace(TOKENS, decode_s=TOKENS.tpot_s.mid))
    first, *_ = token_notes(alone, answer().job, rate=None)
    assert_says(first, "120 ms [100-150]", "25 ms [20-30]")
    assert first.count(" ms ") == 2


def test_a_single_request_is_one() -> None:
    alone = replace(answer(), best=replace(answer().quotes[0], batch=1), job=replace(answer().job, batch="1"))
    told = " ".join(sentence.basis(alone))
    assert_says(told, "256", "1 request", "1 request", "bf16", "1 request", "5 GiB")


def test_a_load_with_peaks_is_given_in_the_unit_that_was_asked_in() -> None:
    by_day = replace(answer(), job=replace(answer().job, requests_per_second=None))
    assert_says(" ".join(sentence.basis(answer())), "peak", "requests per second")
    assert_says(" ".join(sentence.basis(by_day)), "peak", "requests per day")


def test_the_size_of_the_job_is_in_requests() -> None:
    job = replace(answer().job, samples=20_000, requests_per_second=None, requests_per_day=None)
    sized = replace(answer(), job=job)
    assert_says(sentence.headline(sized), "answers", "20,000 requests", "$0.42")
    assert_says(" ".join(sentence.basis(sized)), "20,000 requests", "on-demand")


def test_copies_and_their_gpus_are_counted() -> None:
    for plan, facts in (
        (Plan(data=2, tensor=4), ("2 copies", "tensor parallel", "4 GPUs")),
        (Plan(tensor=8), ("one copy", "tensor parallel", "8 GPUs")),
        (Plan(data=8), ("each", "8 GPUs", "copy")),
    ):
        quote = replace(answer().quotes[0], plan=plan, gpus_used=8)
        (note,) = scaling_notes(quote, answer().job)
        assert_says(note, *facts, "32 requests", "all GPUs")


def test_markdown_and_notebooks_have_the_same_columns() -> None:
    assert "| TTFT | TPOT | tokens/s |" in as_markdown.render(answer(), View(width=80))
    assert ">TPOT</th>" in to_fragment(recommendation_content(answer(), top=10))


def test_csv_has_a_column_for_each_figure_and_none_where_there_is_none() -> None:
    with_tokens, without = (
        next(csv.DictReader(StringIO(as_csv.render(each, View(width=80))))) for each in (answer(), TOY)
    )
    assert with_tokens.keys() == without.keys()
    assert with_tokens["tokens_tpot_s_low"] == "0.02"
    assert with_tokens["tokens_compute_bound_from"] == "256"
    assert without["tokens_tpot_s_low"] == without["plan_tensor"] == ""
    divided = replace(answer(), quotes=(replace(answer().quotes[0], plan=Plan(tensor=4)),))
    row = next(csv.DictReader(StringIO(as_csv.render(divided, View(width=80)))))
    assert (row["plan_tensor"], row["job_samples"]) == ("4", str(answer().job.samples))


def test_a_service_shows_the_percentiles_of_its_load() -> None:
    queued = replace(TOKENS, ttft_p50_s=0.11, ttft_p99_s=0.31, tpot_p50_s=0.021, tpot_p99_s=0.027)
    quotes = tuple(replace(quote, tokens=queued) for quote in answer().quotes)
    found = replace(answer(), quotes=quotes, best=quotes[0])

    text = render_text(found, width=80, color=False)
    (head,) = (line for line in text.splitlines() if line.lstrip().startswith("#"))
    assert "TPOT p99" in head
    times, *_ = token_notes(quotes[0], found.job, rate=None)
    assert_says(times, "110 ms", "310 ms", "21 ms", "27 ms")


def test_a_percentile_with_a_limit_is_shown() -> None:
    queued = replace(TOKENS, ttft_p50_s=0.11, ttft_p95_s=0.23, ttft_p99_s=0.31, tpot_p50_s=0.021, tpot_p99_s=0.027)
    quotes = tuple(replace(quote, tokens=queued) for quote in answer().quotes)
    job = replace(answer().job, limits=replace(answer().job.limits, max_ttft_s=0.3, ttft_of="p95"))
    text = render_text(replace(answer(), quotes=quotes, best=quotes[0], job=job), width=100, color=False)
    (head,) = (line for line in text.splitlines() if line.lstrip().startswith("#"))
    assert "TTFT p95" in head
    times, *_ = token_notes(quotes[0], job, rate=None)
    assert_says(times, "110 ms", "230 ms (p95)", "310 ms")


def contexts() -> Recommendation:
    best = answer().quotes[0]
    points = (
        ContextPoint(
            context_tokens=131072,
            most_in_flight=12,
            in_flight=8,
            output_tokens_per_s=123.0,
            usd_per_million_tokens=0.05,
            ttft_s=1.0,
            tpot_s=0.1,
        ),
        ContextPoint(context_tokens=200000),
    )
    long = replace(best, instance="a_very_long_name_of_an_instance_type")
    return replace(answer(), context_sweeps=(ContextSweep(points=points, **quoted_fields(long, ContextSweep)),))


def test_users_by_context_keep_every_figure_that_decides_at_80_characters() -> None:
    (table,) = context_tables(contexts())
    kept = [column.header for column in table.columns if column.drop_order is None]
    assert kept == ["machine", "context", "max", "knee", "tokens/s", "per Mtok"]
    text = render_text(contexts(), width=80, color=False)
    shown = text.partition(table.title)[2]
    head = shown.splitlines()[1]
    assert all(header in head for header in kept)
    assert max(map(len, text.splitlines())) <= 80
    assert_says(shown, "128k", "12", "123", "$0.05")
    # A context that does not fit says so with a dash, not with a cost of nothing.
    assert shown.splitlines()[3].split()[-2:] == ["-", "-"]


def test_users_by_context_name_as_many_machines_as_work_together() -> None:
    (sweep,) = contexts().context_sweeps
    served, too_long = sweep.points
    counts = (2, 2, 4, 4)
    points = [replace(served, context_tokens=place, machine_count=count) for place, count in enumerate(counts, start=1)]
    found = replace(contexts(), context_sweeps=(replace(sweep, instance="m1", points=(*points, too_long)),))
    (table,) = context_tables(found)
    (machines,) = (column for column in table.columns if column.header == "machine")
    place = table.columns.index(machines)
    name = sweep.provider
    assert [row[place] for row in table.rows] == [f"{name} 2x m1", "", f"{name} 4x m1", "", ""]


def test_the_report_and_markdown_have_the_same_table() -> None:
    (table,) = context_tables(contexts())
    (shown,) = contexts_section(contexts()).tables
    assert shown == table
    assert table.title in as_markdown.render(contexts(), View(width=80))
    assert not list(context_tables(answer()))
    assert not contexts_section(answer()).tables
