"""Compares two recommendations or two workloads: a step and the cost of its job before and after a change."""

from collections.abc import Iterator, Sequence
from dataclasses import Field, fields, replace
from pathlib import Path
from typing import Any

from advisor.errors import DocumentError, UsageError
from advisor.files.json_text import read_as, read_json
from advisor.records.answer import (
    ANSWER_SCHEMA_VERSION,
    Group,
    Interval,
    JobLimits,
    Quote,
    Recommendation,
    Totals,
)
from advisor.records.change import (
    COMPARISON_SCHEMA_VERSION,
    Change,
    Comparison,
    InstanceChange,
    Measure,
    ModuleChange,
)
from advisor.records.flag_values import flag_name
from advisor.records.generation import Generation
from advisor.records.options import Options
from advisor.records.workload import Workload
from advisor.units import format_duration
from advisor.workload.file import workload_from_json
from advisor.workload.summary import group_rows, totals

_HINT = "compare what `advise SOURCE -o answer.json` writes, or what `advise profile SOURCE -o workload.json` does"
_SELECTIONS = ("other-provider", "other-region", "other-tier", "other-instance", "other-arch", "other-device")
"""The reasons of offers that the flags of the same names leave out."""
_OPTIONS = frozenset(field.name for field in fields(Options))
_NESTED = (JobLimits, Generation)
"""Parts of a job that are records themselves."""
_MODEL_FIELDS = (
    "weight_bytes",
    "trained_bytes",
    "head_count",
    "kv_head_count",
    "cached",
    "most_tokens",
    "published_weights",
    "traced_tokens",
    "encoder_tokens",
    "start_tokens",
    "truncates_sampling",
    "engine",
)
"""Fields of a job that describe the model; they are compared with the step."""


def compare_files(base: Path, new: Path) -> Comparison:
    """Compare two answers, or two saved workloads. Raises `AdvisorError` if they are of different kinds."""
    before, after = _read(base), _read(new)
    if isinstance(before, Recommendation) and isinstance(after, Recommendation):
        return compare_answers(before, after)
    if isinstance(before, Workload) and isinstance(after, Workload):
        return compare_workloads(before, after)
    raise UsageError(f"{base} and {new}: one is an answer, the other a workload", hint=_HINT)


def read_base(file: Path) -> Recommendation:
    """Read the answer that a later one is compared with; raise `AdvisorError` if the file holds none."""
    base = _read(file)
    if not isinstance(base, Recommendation):
        hint = "save the base with `advise SOURCE -o base.json`"
        raise UsageError(f"--compare-to {file}: it holds a workload, not an answer", hint=hint)
    return base


def _read(file: Path) -> Recommendation | Workload:
    document = read_json(file, hint=_HINT)
    if isinstance(document, dict) and "rows" in document:
        return workload_from_json(document, where=str(file))
    found = document.get("schema_version") if isinstance(document, dict) else None
    if found != ANSWER_SCHEMA_VERSION:
        problem = f"found {found!r:.80}, this program reads {ANSWER_SCHEMA_VERSION}"
        raise DocumentError(problem, where=str(file), key="schema_version", hint=_HINT)
    return read_as(Recommendation, document, where=str(file), hint=_HINT)


def compare_workloads(base: Workload, new: Workload) -> Comparison:
    """Compare two steps, each at its own batch, as a whole and by module."""
    differing = [("mode", base.mode, new.mode), ("batch", base.batch, new.batch)]
    return Comparison(
        schema_version=COMPARISON_SCHEMA_VERSION,
        kind="workloads",
        base=base.name,
        new=new.name,
        counted=_counted_changes(totals(base, batch=base.batch), totals(new, batch=new.batch)),
        cheapest=None,
        new_fits=None,
        same_instance=None,
        modules=_module_changes(*(group_rows(one, by="module", batch=one.batch) for one in (base, new))),
        notes=tuple(
            f"the steps are of {'batch ' if name == 'batch' else ''}{before} before, {after} now"
            for name, before, after in differing
            if before != after
        ),
    )


def compare_answers(base: Recommendation, new: Recommendation) -> Comparison:
    """Compare the counts, the best offers, and the base's best offer with what it costs now."""
    cheapest = same = None
    if base.best and new.best:
        compares_time = not _has_service(base, new)
        cheapest = _instance_change(base.best, new.best, compares_time=compares_time)
        now = next((quote for quote in new.quotes if quote.id == base.best.id), None)
        if now is not None and now.id != new.best.id:
            same = _instance_change(base.best, now, compares_time=compares_time)
    return Comparison(
        schema_version=COMPARISON_SCHEMA_VERSION,
        kind="answers",
        base=base.workload.name,
        new=new.workload.name,
        counted=_counted_changes(base.workload.totals, new.workload.totals),
        cheapest=cheapest,
        new_fits=new.best is not None,
        same_instance=same,
        modules=(),
        notes=tuple(_notes(base, new)),
        exchange_rate=new.exchange_rate,
    )


def cost_rise_ratio(comparison: Comparison) -> float:
    """Return by how much the cheapest cost of the job rises: 0.1 is 10 %; below 0 it falls.

    Infinite if no instance can do the new job, or if a free job now has a cost; 0 if only the old
    job had no instance.
    """
    if comparison.cheapest is None:
        return 0.0 if comparison.new_fits else float("inf")
    (cost,) = (one for one in comparison.cheapest.changes if one.measure == "job_usd")
    if cost.ratio is None:
        return float("inf") if cost.after > 0 else 0.0
    return cost.ratio - 1


def _has_service(base: Recommendation, new: Recommendation) -> bool:
    """Return whether one of the answers is on a service, whose job is a month; its time and samples are not given."""
    return any(answer.job.requests_per_day is not None for answer in (base, new))


def _instance_change(before: Quote, after: Quote, *, compares_time: bool) -> InstanceChange:
    price = _change("usd_per_hour", before.usd_per_hour, after.usd_per_hour)
    return InstanceChange(
        before=_name(before),
        after=_name(after),
        changes=(
            _predicted_change("step_s", before.step_s, after.step_s),
            *_token_changes(before, after),
            *((price,) if price.before != price.after else ()),
            *((_predicted_change("job_s", before.job_s, after.job_s),) if compares_time else ()),
            _predicted_change("job_usd", before.job_usd, after.job_usd),
        ),
    )


def _token_changes(before: Quote, after: Quote) -> Iterator[Change]:
    """Compare two served language models."""
    old, new = before.tokens, after.tokens
    if old and new:
        yield _predicted_change("ttft_s", old.ttft_s, new.ttft_s)
        yield _predicted_change("tpot_s", old.tpot_s, new.tpot_s)
        yield _change("usd_per_million_tokens", old.usd_per_million_tokens, new.usd_per_million_tokens)


def _name(quote: Quote) -> str:
    return f"{quote.provider} {quote.instance} in {quote.region}, batch {quote.batch}, {quote.precision}"


def _notes(base: Recommendation, new: Recommendation) -> Iterator[str]:
    """Return warnings about differences that make the two hard to compare."""
    for name, before, after in _differing_fields(base.job, new.job):
        if name == "--samples" and _has_service(base, new):
            continue
        yield f"the jobs differ: {name} {before} before, {after} now"
    for flag in _differing_selections(base, new):
        yield f"the offers differ: {flag} is not the same"
    if base.workload.totals.batch != new.workload.totals.batch:
        yield f"the steps are of batch {base.workload.totals.batch} before, {new.workload.totals.batch} now"
    for when, answer in (("before", base), ("now", new)):
        if answer.best is None:
            yield f"no instance does the job within the limits {when}"
        if answer.workload.unknown_ops:
            yield f"without a formula {when}: {', '.join(sorted(answer.workload.unknown_ops))}"


def _differing_fields(before: Any, after: Any) -> Iterator[tuple[str, str, str]]:
    """Compare two records of one type; None stands for a side without this part."""
    for field in fields(before or after):
        old, new = (None if one is None else getattr(one, field.name) for one in (before, after))
        if isinstance(old, _NESTED) or isinstance(new, _NESTED):
            yield from _differing_fields(old, new)
        elif old != new and field.name not in _MODEL_FIELDS:
            yield _flag_of(field), _value_text(old, name=field.name), _value_text(new, name=field.name)


def _flag_of(field: Field[Any]) -> str:
    """Return the flag that sets a field of a job, or its name in words if none does."""
    option = field.metadata.get("option", field.name)
    named = next((name for name in (option, option.removesuffix("_s")) if name in _OPTIONS), None)
    return flag_name(named) if named else option.replace("_", " ")


def _value_text(value: Any, *, name: str) -> str:
    if value is None:
        return "none"
    if isinstance(value, float):
        return format_duration(value) if name.endswith("_s") else f"{value:g}"
    return str(value)


def _differing_selections(base: Recommendation, new: Recommendation) -> list[str]:
    """Return the flags that leave out, of the offers that both answers know, one in only one of them."""
    before, after = (
        {**{quote.id: "" for quote in answer.quotes}, **{one.id: one.code for one in answer.rejected}}
        for answer in (base, new)
    )
    found: dict[str, None] = {}
    for identifier in before.keys() & after.keys():
        codes = {code for code in (before[identifier], after[identifier]) if code in _SELECTIONS}
        if len(codes) == 1 and before[identifier] != after[identifier]:
            found[f"--{codes.pop().removeprefix('other-')}"] = None
    return sorted(found)


def _change(measure: Measure, before: float, after: float) -> Change:
    """Return the change of a figure that is known exactly."""
    return Change(measure=measure, before=before, after=after, ratio=after / before if before else None)


def _predicted_change(measure: Measure, before: Interval, after: Interval) -> Change:
    return replace(_change(measure, before.mid, after.mid), is_inside_interval=before.low <= after.mid <= before.high)


def _counted_changes(before: Totals, after: Totals) -> tuple[Change, ...]:
    """Return the changes of FLOP, bytes and memory of one step."""
    return (
        _change("flops", before.flops, after.flops),
        _change("moved_bytes", before.read_bytes + before.write_bytes, after.read_bytes + after.write_bytes),
        _change("parameter_count", before.parameter_count, after.parameter_count),
        _change("peak_memory_bytes", before.peak_memory_bytes, after.peak_memory_bytes),
    )


def _module_changes(before: Sequence[Group], after: Sequence[Group]) -> tuple[ModuleChange, ...]:
    """Return the modules whose FLOP or bytes differ; largest difference in FLOP, then in bytes, first."""
    old, new = (
        {group.name: (group.flops, group.read_bytes + group.write_bytes) for group in groups}
        for groups in (before, after)
    )
    differing = []
    for name in {**old, **new}:
        (old_flops, old_bytes), (new_flops, new_bytes) = old.get(name, (0.0, 0.0)), new.get(name, (0.0, 0.0))
        if (old_flops, old_bytes) != (new_flops, new_bytes):
            flops, moved = _change("flops", old_flops, new_flops), _change("moved_bytes", old_bytes, new_bytes)
            differing.append(ModuleChange(name=name, flops=flops, moved_bytes=moved))

    def order(one: ModuleChange) -> tuple[float, float, str]:
        flops, moved = one.flops.after - one.flops.before, one.moved_bytes.after - one.moved_bytes.before
        return -abs(flops), -abs(moved), one.name

    return tuple(sorted(differing, key=order))
