"""A quote and its job in, sentences out: what the cost holds, what it leaves out, what comes with the price."""

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
    """The cost with all that it holds: "$4.10 for 90 epochs, on-demand, compute and start-up, prices of 2026-07-20"."""
    *parts, last = (_PART_NAMES[part] for part in quote.covers)
    covered = f"{', '.join(parts)} and {last}" if parts else last
    missing = ", ".join(_PART_NAMES[part] for part in quote.not_covered)
    cost = units.format_money(quote.job_usd.mid, rate=rate)
    return f"{cost} for {_size(job)}, {_PAID_NAMES[quote.price_kind]}, {covered}, prices of {quote.price_date}" + (
        f"; not covered: {missing}." if missing else "."
    )


def _size(job: Job) -> str:
    """The job as the user gave its size."""
    if job.requests_per_day is not None:
        return f"a month of {load_text(job)}"
    for count, name in ((job.epochs, "epoch"), (job.steps, "step"), (job.tokens, "token")):
        if count is not None:
            return f"{count:,} {name}{'' if count == 1 else 's'}"
    return samples_text(job.samples, job.generation)


def load_text(job: Job) -> str:
    """The load of a service as the user gave it."""
    if job.requests_per_second is not None:
        return f"{job.requests_per_second:,.10g} requests/s"
    return f"{job.requests_per_day:,} requests a day"


def cost_notes(best: Quote, job: Job) -> Iterator[str]:
    """What comes with the price, and what the start-up was measured on."""
    if "start-up" in best.covers:
        where = f"measured on {best.provider}" if best.start_up_measured else "the median of the clouds measured"
        gpu = "; with a GPU it may take longer" if best.device.kind == "gpu" else ""
        yield (
            f"start-up: {units.format_duration(best.start_up_s)} from the create call to the boot script, {where}, "
            f"mostly on instances without a GPU{gpu}; installing packages and fetching data come on top."
        )
    if best.wait_s:
        wait = units.format_duration(best.wait_s)
        yield f"availability: {wait} until the machine is to be had, by your overlay, are part of the time."
    if job.requests_per_day is not None:
        count = best.instance_count
        carry = "1 instance carries" if count == 1 else f"{count:,} instances carry"
        unit = "a day" if job.requests_per_second is None else "a second"
        yield f"{carry} an even load; for one with peaks give the peak's rate as requests {unit}."
    if best.price_kind == "spot":
        yield _spot(best, job)
    if best.commitment_usd is not None:
        years = "a year" if best.price_kind == "commit_1y" else "three years"
        yield (
            f"the price is for a commitment of {years}: {units.format_usd(best.commitment_usd)} in all, used or not; "
            "the cost is the share of the hours that the job takes."
        )


def _spot(best: Quote, job: Job) -> str:
    """How often the provider takes such an instance back, and what the job then loses."""
    if best.interruption is None:
        return "spot: the provider may take the instance back at any time, how often is not known; no loss is counted."
    rate = f"spot: {best.interruption} of such instances were taken back within a month"
    if job.assumed:
        return f"{rate}; no loss is counted."
    if job.requests_per_day is not None:
        return f"{rate}; the service then waits for another."
    saved = (
        "without --checkpoint-every all work is then lost"
        if job.checkpoint_every_s is None
        else f"with a checkpoint every {units.format_duration(job.checkpoint_every_s)}"
    )
    return f"{rate}; {saved}: {units.format_duration(best.lost_s)} of it expected."
