"""Prepares the markets on which an answer prices its jobs."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date

from advisor.cost.at_hand import fleet_at_hand, join, join_fleets, selection_at_hand
from advisor.cost.market import Market
from advisor.cost.selection import select_offers
from advisor.predict.capability import fleet_of
from advisor.question.record import Question
from advisor.records.answer import Job
from advisor.records.machine import LOCAL, LocalDevice


def markets_of(
    question: Question, *, job: Job, here: Sequence[LocalDevice] = (), today: date | None = None
) -> tuple[Market, Market]:
    """Return the market of the offers that the options leave, and that of the devices `here`, which are in both fleets.

    The first has the devices `here` as offers too if the options ask for them. The age of prices is counted from
    `today`.
    """
    options, catalog = question.options, question.catalog
    selection = select_offers(
        catalog.offers, options=options, price_kind=job.price, today=today, errors=catalog.price_errors
    )
    fleet = fleet_of(selection.offers, gpus=catalog.gpus, cpus=catalog.cpus)
    own, own_fleet = selection_at_hand(here, offers=catalog.offers), fleet_at_hand(fleet, here)
    fleet = replace(fleet, devices=own_fleet.devices)
    if LOCAL in options.device:
        selection, fleet = join(own, selection), join_fleets(own_fleet, fleet)
    return Market(selection, fleet=fleet, billing=catalog.billing), Market(
        own, fleet=own_fleet, billing=catalog.billing
    )
