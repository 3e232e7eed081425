"""Compares two recommendations: the step, its time and the cost of the job before and after a change."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from advisor.answers.figure_changes import change, counted_changes, predicted_change
from advisor.records.answer import JobLimits, Quote, Recommendation
from advisor.records.change import COMPARISON_SCHEMA_VERSION, Change, Comparison, InstanceChange
from advisor.records.generation import Generation

_NESTED = (JobLimits, Generation)
"""Parts of a job that are records themselves."""
_OF_MODEL = ("head_count", "kv_head_count")
"""Fields of a job that describe the model; they are compared with the step."""


def compare_answers(base: Recommendation, new: Recommendation) -> Comparison:
    """Compare the counts, the best offers, and the base's best offer with what it costs now."""
    cheapest = same = None
    if base.best and new.best:
        cheapest = _instance_change(base.best, new.best)
        now = next((quote for quote in new.quotes if quote.id == base.best.id), None)
        if now is not None and now.id != new.best.id:
            same = _instance_change(base.best, now)
    return Comparison(
        schema_version=COMPARISON_SCHEMA_VERSION,
        kind="answers",
        base=base.workload.name,
        new=new.workload.name,
        counted=counted_changes(base.workload.totals, new.workload.totals),
        cheapest=cheapest,
        same_instance=same,
        modules=(),
        notes=tuple(_notes(base, new)),
    )


def cost_rise_ratio(comparison: Comparison) -> float:
    """Return by how much the cheapest cost of the job rises: 0.1 is 10 %; below 0 it falls.

    Infinite where no instance does the new job, or where what was free costs something now.
    """
    if comparison.cheapest is None:
        return float("inf")
    (cost,) = (one for one in comparison.cheapest.changes if one.measure == "job_usd")
    if cost.ratio is None:
        return float("inf") if cost.after > 0 else 0.0
    return cost.ratio - 1


def _instance_change(before: Quote, after: Quote) -> InstanceChange:
    price = change("usd_per_hour", before.usd_per_hour, after.usd_per_hour)
    return InstanceChange(
        before=_name(before),
        after=_name(after),
        changes=(
            predicted_change("step_s", before.step_s, after.step_s),
            *_token_changes(before, after),
            *((price,) if price.before != price.after else ()),
            predicted_change("job_s", before.job_s, after.job_s),
            predicted_change("job_usd", before.job_usd, after.job_usd),
        ),
    )


def _token_changes(before: Quote, after: Quote) -> Iterator[Change]:
    """Compare two served language models."""
    if before.tokens and after.tokens:
        yield predicted_change("ttft_s", before.tokens.ttft_s, after.tokens.ttft_s)
        yield predicted_change("tpot_s", before.tokens.tpot_s, after.tokens.tpot_s)
        yield change(
            "usd_per_million_tokens", before.tokens.usd_per_million_tokens, after.tokens.usd_per_million_tokens
        )


def _name(quote: Quote) -> str:
    return f"{quote.provider} {quote.instance} in {quote.region}, batch {quote.batch}, {quote.precision}"


def _notes(base: Recommendation, new: Recommendation) -> Iterator[str]:
    """Return warnings about differences that make the two hard to compare."""
    for name, before, after in _differing_fields(base.job, new.job):
        yield f"the jobs differ: {name} {before} before, {after} now"
    if base.workload.totals.batch != new.workload.totals.batch:
        yield f"the steps are of batch {base.workload.totals.batch} before, {new.workload.totals.batch} now"
    for when, answer in (("before", base), ("now", new)):
        if answer.best is None:
            yield f"no instance does the job within the limits {when}"
        if answer.workload.unknown_ops:
            yield f"without a formula {when}: {', '.join(sorted(answer.workload.unknown_ops))}"


def _differing_fields(before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    """Compare two records of one type; None stands for a side without this part."""
    for field in fields(before or after):
        old, new = (None if one is None else getattr(one, field.name) for one in (before, after))
        if isinstance(old, _NESTED) or isinstance(new, _NESTED):
            yield from _differing_fields(old, new)
        elif old != new and field.name not in _OF_MODEL:
            yield field.name, old, new
