"""Writes the sentences about the cost of a quote: what it includes, what it leaves out, and the terms of its price."""

from collections.abc import Iterator, Mapping

from advisor import units
from advisor.records.answer import CostPart, Job, Quote
from advisor.records.price import ExchangeRate, PriceKind
from advisor.records.sample_words import samples_text

_PART_NAMES: Mapping[CostPart, str] = {
    "compute": "compute",
    "start-up": "start-up",
    "lost-work": "expected lost work",
    "billing-increments": "billing increments",
    "idle-time": "idle time",
    "storage": "storage",
    "egress": "egress",
    "tax": "tax",
    "quota": "quota",
    "availability": "availability",
}
_PAID_NAMES: Mapping[PriceKind, str] = {
    "on_demand": "on-demand",
    "spot": "spot",
    "commit_1y": "1-year commitment",
    "commit_3y": "3-year commitment",
    "owned": "own hardware",
}


def covered_cost(quote: Quote, job: Job, *, rate: ExchangeRate | None) -> str:
    """Return the cost and its parts: "$4.10 for 90 epochs, on-demand; includes compute; prices of 2026-07-20."."""
    *parts, last = (_PART_NAMES[part] for part in quote.covers)
    covered = f"{', '.join(parts)} and {last}" if parts else last
    missing = ", ".join(_PART_NAMES[part] for part in quote.not_covered)
    cost = units.format_money(quote.job_usd.mid, rate=rate)
    return (
        f"{cost} for {_size(job)}, {_PAID_NAMES[quote.price_kind]}; includes {covered}; prices of {quote.price_date}"
        + (f"; not included: {missing}." if missing else ".")
    )


def _size(job: Job) -> str:
    """Return the size of the job as the user gave it."""
    if job.requests_per_day is not None:
        return f"one month at {load_text(job)}"
    for count, name in ((job.epochs, "epoch"), (job.steps, "step"), (job.tokens, "token")):
        if count is not None:
            return f"{count:,} {name}{'' if count == 1 else 's'}"
    return samples_text(job.samples, job.generation)


def load_text(job: Job) -> str:
    """Return the load of a service as the user gave it."""
    if job.requests_per_second is not None:
        return f"{job.requests_per_second:,.10g} requests/s"
    return f"{job.requests_per_day:,} requests per day"


def cost_notes(best: Quote, job: Job) -> Iterator[str]:
    """Yield notes on start-up, waiting, load, interruptions and commitment."""
    if "start-up" in best.covers:
        where = f"measured on {best.provider}" if best.start_up_measured else "the median of the measured clouds"
        gpu = "; with a GPU it may take longer" if best.device.kind == "gpu" else ""
        yield (
            f"start-up: {units.format_duration(best.start_up_s)} from the create call to the boot script, {where}, "
            f"mostly on instances without a GPU{gpu}; installing packages and fetching data take extra time."
        )
    if best.wait_s:
        wait = units.format_duration(best.wait_s)
        yield f"availability: the time includes {wait} of waiting for the machine, as set in your overlay."
    if job.requests_per_day is not None:
        count = best.instance_count
        carry = "1 instance is" if count == 1 else f"{count:,} instances are"
        unit = "per day" if job.requests_per_second is None else "per second"
        yield f"{carry} enough for an even load; if the load has peaks, give the peak rate in requests {unit}."
    if best.price_kind == "spot":
        yield _spot(best, job)
    if best.commitment_usd is not None:
        years = "one year" if best.price_kind == "commit_1y" else "three years"
        yield (
            f"the price requires a commitment of {years}: {units.format_usd(best.commitment_usd)} in total, used or "
            "not; the cost counts only the hours of this job."
        )


def _spot(best: Quote, job: Job) -> str:
    """Return how often the provider reclaims such an instance, and how much work the job is expected to lose."""
    if best.interruption is None:
        return "spot: the provider may reclaim the instance at any time; how often is not known, so no loss is counted."
    rate = f"spot: {best.interruption} of such instances were reclaimed within a month"
    if job.assumed:
        return f"{rate}; no loss is counted."
    if job.requests_per_day is not None:
        return f"{rate}; the service then waits for a new one."
    saved = (
        "without --checkpoint-every, a reclaim loses all work"
        if job.checkpoint_every_s is None
        else f"with a checkpoint every {units.format_duration(job.checkpoint_every_s)}"
    )
    return f"{rate}; {saved}; expected loss: {units.format_duration(best.lost_s)}."
