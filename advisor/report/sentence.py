"""A recommendation in plain sentences: the headline, what it rests on, what was left out, the same in all formats."""

from collections import Counter
from collections.abc import Sequence

from advisor import units
from advisor.records.answer import Job, Quote, Recommendation, WorkloadSummary
from advisor.report.columns import RankedQuote, device_label, percent_chance

_KIND_NAMES = {"cpu": "CPU", "gpu": "GPU"}
_OTHER_KIND = {"cpu": "gpu", "gpu": "cpu"}
_PRICE_NAMES = {
    "on_demand": "on-demand prices",
    "spot": "spot prices",
    "commit_1y": "prices with a 1-year commitment",
    "commit_3y": "prices with a 3-year commitment",
}
_TIME_NAMES = {
    "measured": "measured",
    "calibrated": "calibrated on this device",
    "fitted": "predicted from operators measured on its generation",
    "datasheet": "predicted from its published figures",
}
_BASIS_NAMES = {
    "list": "list price",
    "published": "as published",
    "minimum_live_offer": "the cheapest offer then live",
}
_NAMED_RIVAL_COUNT = 3


def headline(recommendation: Recommendation) -> str:
    """The answer in one sentence: the instance, its cost, the margin over the other kind of device, and its rivals."""
    best = recommendation.best
    if best is None:
        return f"No instance does this job within the limits: {_offers(len(recommendation.rejected))} left out."
    verb = "trains on" if recommendation.job.mode == "training" else "does"
    cost = best.job_usd
    return (
        f"{best.provider} {best.instance} ({device_label(best)}) {verb} {recommendation.job.samples:,} samples for "
        f"{units.format_usd(cost.mid)} ({units.format_usd(cost.low)}-{units.format_usd(cost.high)}) "
        f"in {units.format_duration(best.job_s.mid)}{_margin(best, recommendation.quotes)}"
        f"{_rivals(best, recommendation.quotes)}."
    )


def _margin(best: Quote, quotes: Sequence[Quote]) -> str:
    """How the best of the other kind of device compares; intervals that overlap are no margin."""
    other_kind = _OTHER_KIND[best.device.kind]
    other = next((quote for quote in quotes if quote.device.kind == other_kind), None)
    if other is None:
        return f"; no {_KIND_NAMES[other_kind]} is in the ranking"
    rival = (
        f"the best {_KIND_NAMES[other_kind]} ({other.provider} {other.instance}, {units.format_usd(other.job_usd.mid)})"
    )
    if other.indistinguishable:
        return f", not clearly cheaper than {rival}: their intervals overlap"
    return f": a {_KIND_NAMES[best.device.kind]} is {_saving(best, other)} cheaper here than {rival}"


def _saving(best: Quote, other: Quote) -> str:
    ratio = other.job_usd.mid / best.job_usd.mid
    return units.format_times(ratio) if ratio >= 2 else units.format_ratio(1 - 1 / ratio)


def _rivals(best: Quote, quotes: Sequence[Quote]) -> str:
    """Which offers cannot be told apart from the best, the likeliest first, with the chance that each is cheapest."""
    rivals = sorted(
        (quote for quote in quotes[1:] if quote.indistinguishable), key=lambda quote: -quote.chance_cheapest
    )
    if not rivals:
        return ""
    named = [f"{rival.provider} {rival.instance} ({percent_chance(rival)})" for rival in rivals[:_NAMED_RIVAL_COUNT]]
    unnamed = f" and {len(rivals) - len(named):,} more" if len(rivals) > len(named) else ""
    others = "1 other" if len(rivals) == 1 else f"{len(rivals):,} others"
    return (
        f"; {others} cannot be told apart from the best (the cheapest with a chance of {percent_chance(best)}): "
        f"{', '.join(named)}{unnamed}"
    )


def basis(recommendation: Recommendation) -> tuple[str, ...]:
    """What the headline rests on: the job as understood, the step that was counted, and the notes of the pipeline."""
    return (
        _job(recommendation.job),
        *([] if recommendation.best is None else [_best(recommendation.best)]),
        _workload(recommendation.workload),
        *recommendation.workload.assumptions,
        *recommendation.notes,
    )


def _job(job: Job) -> str:
    batch = "the cheapest batch per device" if job.batch == "auto" else f"batch {job.batch}"
    precision = (
        "precision auto (bf16 or fp16 autocast where native, else fp32)" if job.precision == "auto" else job.precision
    )
    compiled = "torch.compile" if job.compile == "compile" else "eager"
    settings = f"{job.mode}, {batch}, {precision}, {compiled}, {job.layout.upper()}, {_PRICE_NAMES[job.price]}"
    if job.assumed:
        return f"{settings}; no job size was given, so {job.samples:,} samples with the device kept busy."
    return f"{settings}."


def _best(best: Quote) -> str:
    """What the best one's figures rest on, and what its cost covers."""
    return (
        f"the best: batch {best.batch:,}, {best.precision}; its time is {_TIME_NAMES[best.time_source]}, its price "
        f"({units.format_usd(best.usd_per_hour, digits=3)} an hour, {_BASIS_NAMES[best.price_basis]}) of "
        f"{best.price_date}; the cost covers the hours of computing, nothing else."
    )


def _workload(workload: WorkloadSummary) -> str:
    totals = workload.totals
    optimizer = f", {workload.optimizer}" if workload.optimizer else ""
    counted = (
        f"{workload.name}: {units.format_count(totals.parameter_count)} parameters{optimizer}, "
        f"{units.format_flops(totals.flops)} a step at batch {totals.batch:,}"
    )
    if not workload.unknown_ops:
        return f"{counted}; every operator has a formula."
    calls = ", ".join(f"{op} x{count}" for op, count in sorted(workload.unknown_ops.items()))
    return (
        f"{counted}; formulas cover {units.format_ratio(workload.coverage_ratio)} of the operator calls, "
        f"not {calls} (--strict fails on these)."
    )


def table_notes(rows: Sequence[RankedQuote], *, quote_count: int) -> tuple[str, ...]:
    """What the table does not say itself: rows that are not shown and intervals that overlap."""
    notes = []
    if any(row.quote.indistinguishable and row.rank > 1 for row in rows):
        notes.append(
            "~ cannot be told apart from the best: their costs overlap by the error that each device has of its own; "
            "cheapest is the chance of costing the least."
        )
    last = rows[-1] if rows else None
    if last is not None and last.rank > len(rows):
        notes.append(f"Row {last.rank} is the best {_KIND_NAMES[last.quote.device.kind]}.")
    if quote_count > len(rows):
        notes.append(f"{quote_count - len(rows):,} more in the ranking (--top {quote_count} shows all).")
    return tuple(notes)


def left_out(recommendation: Recommendation) -> tuple[str, ...]:
    """One sentence for each reason, commonest first, with its count and the first offer it struck."""
    counts = Counter(rejection.code for rejection in recommendation.rejected)
    first = {rejection.code: rejection for rejection in reversed(recommendation.rejected)}
    return tuple(
        f"{count:,} {code}: {first[code].provider} {first[code].instance}: {first[code].reason}"
        if count == 1
        else f"{count:,} {code}, such as {first[code].provider} {first[code].instance}: {first[code].reason}"
        for code, count in counts.most_common()
    )


def _offers(count: int) -> str:
    return "1 offer was" if count == 1 else f"{count:,} offers were"
