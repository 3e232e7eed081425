"""Makes the content of a report, section by section, with all of its text."""

from collections.abc import Iterator

from advisor import units
from advisor.records.answer import Job, Quote, Recommendation
from advisor.records.report_contents import Report
from advisor.records.sample_words import batch_text, samples_noun
from advisor.report import sentence
from advisor.report.accuracy import accuracy_section
from advisor.report.amounts import in_unit, interval_text, is_rate, unit_of
from advisor.report.break_even import break_even_section
from advisor.report.content import Document, Figure
from advisor.report.contexts import contexts_section
from advisor.report.explanation import modules_section, roofline_section, why_section
from advisor.report.memory import memory_section
from advisor.report.prices import basis_name, prices_section
from advisor.report.quote_columns import device_label, instance_label
from advisor.report.recommendation import (
    amount_name,
    basis_section,
    cost_co2_section,
    cost_time_section,
    left_out_section,
    ranking_section,
)
from advisor.report.situations import when_section
from advisor.report.sweeps import batches_section, machines_section


def document_of(report: Report) -> Document:
    """Return the whole report, without the sections that have nothing to show."""
    recommendation, rate = report.recommendation, report.recommendation.exchange_rate
    details, generation = report.details, recommendation.job.generation
    sections = (
        when_section(recommendation),
        cost_time_section(recommendation),
        cost_co2_section(recommendation),
        ranking_section(recommendation),
        contexts_section(recommendation),
        why_section(details, rate=rate, generation=generation),
        modules_section(details, generation=generation),
        roofline_section(details),
        memory_section(details, generation=generation),
        batches_section(details, rate=rate, generation=generation),
        machines_section(recommendation),
        *(() if report.break_even is None else (break_even_section(report.break_even),)),
        basis_section(recommendation),
        prices_section(report.price_sources),
        left_out_section(recommendation),
        accuracy_section(report.accuracy, generation=generation),
    )
    return Document(
        title=f"{recommendation.workload.name}: {recommendation.job.mode}",
        headline=sentence.short_headline(recommendation),
        answer=sentence.headline(recommendation),
        figures=() if recommendation.best is None else _figures(recommendation.best, recommendation),
        warnings=recommendation.warnings,
        sections=tuple(section for section in sections if section.plots or section.tables or section.lists),
        money="$" if rate is None else f"{rate.currency} ",
        footer=f"device-advisor {report.version}, {report.made_on}",
    )


def _figures(best: Quote, recommendation: Recommendation) -> tuple[Figure, ...]:
    rate, cost = recommendation.exchange_rate, in_unit(best.job_usd, unit=unit_of(recommendation))
    return (
        Figure(
            name="instance",
            value=f"{best.provider} {instance_label(best)}",
            note=f"{device_label(best)}, {best.region}",
        ),
        Figure(
            name=amount_name("cost", recommendation),
            value=units.format_money(cost.mid, rate=rate),
            note="90 % interval {} to {}".format(
                *(units.format_money(end, rate=rate) for end in (cost.low, cost.high))
            ),
        ),
        *_times(best, recommendation.job),
        Figure(
            name="price",
            value=f"{units.format_money(best.usd_per_hour, rate=rate, digits=3)} per hour",
            note=" ".join((f"{basis_name(best)} of {best.price_date}", *best.price_marks)),
        ),
    )


def _times(best: Quote, job: Job) -> Iterator[Figure]:
    """Yield the time of the job, or the latency of a service, and in LLM serving the times per token."""
    batch, tokens = f"{batch_text(best.batch, job.generation)}, {best.precision}", best.tokens
    step = f"{interval_text(best.step_s)}, {batch}"
    if job.requests_per_day is None:
        note = f"step {step}" if tokens is None else batch
        rate = Figure(
            name=f"{samples_noun(job.generation)} per second", value=units.format_rate(best.samples_per_s), note=note
        )
        yield rate if is_rate(job) else Figure(name="time", value=units.format_duration(best.job_s.mid), note=note)
    elif tokens is None:
        note = f"p50 {units.format_duration(best.p50_s or 0.0)}; step {step}"
        yield Figure(name="p99", value=units.format_duration(best.p99_s or 0.0), note=note)
    if tokens is not None:
        first, between, at = interval_text(tokens.ttft_s), tokens.tpot_s.mid, ""
        if tokens.ttft_p99_s is not None and tokens.tpot_p99_s is not None:
            first, between, at = units.format_duration(tokens.ttft_p99_s), tokens.tpot_p99_s, " (p99)"
        note = f"first token after {first}{at}"
        yield Figure(name=f"time per output token{at}", value=units.format_duration(between), note=note)
