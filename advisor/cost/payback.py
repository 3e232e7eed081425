"""Computes after how many hours of use buying a machine is cheaper than renting one."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from advisor import units
from advisor.cost.batch_choice import BatchChoice
from advisor.cost.leading import best_of
from advisor.cost.market import Market
from advisor.cost.offer_terms import usd_per_hour_of
from advisor.cost.rank_offers import rank
from advisor.cost.service import SECONDS_PER_HOUR
from advisor.records.answer import Job, Quote
from advisor.records.prediction import Predictions
from advisor.records.price import ExchangeRate, Offer
from advisor.records.price_words import if_price_holds


def payback_hours(*, purchase_usd: float, running_usd_per_hour: float, rent_usd_per_hour: float) -> float | None:
    """Return the hours of use after which the saved rent, less electricity, equals the purchase price; None: never.

    `rent_usd_per_hour` is the rent for the work that the owned machine does in an hour.
    """
    saved_usd_per_hour = rent_usd_per_hour - running_usd_per_hour
    return purchase_usd / saved_usd_per_hour if saved_usd_per_hour > 0 else None


def life_hours(*, purchase_usd: float, running_usd_per_hour: float, usd_per_hour: float) -> float:
    """Return the hours of use in the machine's life: the years that the overlay gives, at its use.

    `usd_per_hour` is the cost of an hour of use with its share of the purchase price, from which the hours follow.
    """
    return purchase_usd / (usd_per_hour - running_usd_per_hour)


def best_rented(
    market: Market, quotes: Iterable[Quote], *, predictions: Predictions, job: Job, choice: BatchChoice
) -> Quote | None:
    """Return the best offer of a ranking without owned hardware, which must not keep a rented one from leading.

    None if none of the `quotes` is of owned hardware.
    """
    selection, fleet = market.selection, market.fleet
    if all(quote.tier != "owned" for quote in quotes):
        return None
    kept = [index for index, one in enumerate(selection.priced) if one.offer.tier != "owned"]
    rented = replace(
        selection,
        priced=tuple(selection.priced[index] for index in kept),
        apart=tuple(one for one in selection.apart if one.offer.tier != "owned"),
    )
    of_rented = replace(
        fleet, device_index=fleet.device_index[kept], problems=tuple(fleet.problems[index] for index in kept)
    )
    rented_market = Market(rented, fleet=of_rented, billing=market.billing)
    return best_of(rank(rented_market, predictions=predictions, job=job, choice=choice).quotes)


def owned_notes(
    quotes: Sequence[Quote],
    offers: Iterable[Offer],
    *,
    rented: Quote | None,
    job: Job,
    rate: ExchangeRate | None = None,
) -> tuple[str, ...]:
    """Return one sentence for each owned machine in the ranking, compared with the best rented offer.

    A machine whose purchase is being decided pays back or not; for the others the job counts. Money is in the currency
    of `rate`, None for dollars.
    """
    owned = {offer.id: offer for offer in offers if offer.tier == "owned"}
    if rented is None:
        return ()
    notes = []
    for quote in quotes:
        offer = owned.get(quote.id)
        if offer is not None and offer.running_usd_per_hour is not None:
            running_usd = offer.running_usd_per_hour
            if offer.electricity_usd_per_kwh is not None:  # the offer's price is that at full load
                running_usd += quote.usd_per_hour - usd_per_hour_of(offer, offer.prices[0], job=job)
            if offer.purchase_usd is None:
                notes.append(_at_home(quote, rented=rented, is_measured=offer.power_w is not None, rate=rate))
            else:
                notes.append(
                    _payback(quote, rented, purchase_usd=offer.purchase_usd, running_usd=running_usd, rate=rate)
                )
    return tuple(notes)


def _at_home(quote: Quote, *, rented: Quote, is_measured: bool, rate: ExchangeRate | None) -> str:
    def outcome(one: Quote) -> str:
        money, time = units.format_money(one.job_usd.mid, rate=rate), units.format_duration(one.time_s)
        return f"{money} in {time}" if one.p99_s is None else f"{money} per month with a p99 of {time}"

    power = ""
    if quote.power is not None and quote.idle_ratio:
        busy_w, idle_w = (f"{watts:,.0f} W" for watts in (quote.power.total_w, quote.power.idle_w))
        busy, idle = (
            (f"the measured {busy_w}", f"a predicted {idle_w}") if is_measured else (f"a predicted {busy_w}", idle_w)
        )
        power = f" at {busy} while it computes and {idle} while it waits for requests"
    return (
        f"your own {quote.instance}: {outcome(quote)}, of electricity alone{power}; the best rented offer, "
        f"{rented.provider} {rented.instance}: {outcome(rented)}{if_price_holds(rented)}"
    )


def _payback(quote: Quote, rented: Quote, *, purchase_usd: float, running_usd: float, rate: ExchangeRate | None) -> str:
    rent_usd_per_hour = _working_usd(rented) / quote.job_s.mid * SECONDS_PER_HOUR
    running_usd_per_hour = running_usd * quote.instance_count
    hours = payback_hours(
        purchase_usd=purchase_usd * quote.instance_count,
        running_usd_per_hour=running_usd_per_hour,
        rent_usd_per_hour=rent_usd_per_hour,
    )
    rent = (
        f"one hour of its work costs {units.format_money(rent_usd_per_hour, rate=rate)} on rented {rented.provider} "
        f"{rented.instance}{if_price_holds(rented)}, and "
        f"{units.format_money(running_usd_per_hour, rate=rate)} for its own electricity"
    )
    if hours is None:
        return f"your own {quote.instance} never pays back with this job: {rent}"
    life = life_hours(
        purchase_usd=purchase_usd,
        running_usd_per_hour=running_usd,
        usd_per_hour=quote.usd_per_hour,
    )
    if hours > life:
        return f"your own {quote.instance} never pays back within its life of {life:,.0f} hours of use: {rent}"
    return f"your own {quote.instance} pays back after {hours:,.0f} hours of use: {rent}"


def _working_usd(quote: Quote) -> float:
    """Return what the job costs without start-up, rounding and egress, which one more hour of work does not add."""
    parts = quote.job_parts_usd
    working_usd = parts.compute + parts.lost_work + parts.idle_time
    storage_usd = parts.storage * working_usd / (working_usd + parts.start_up + parts.billing_increments)
    untaxed_usd = quote.job_usd.mid - parts.tax
    return (working_usd + storage_usd) * quote.job_usd.mid / untaxed_usd
