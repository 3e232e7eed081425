"""Computes the time and the cost of a job on 1, 2, 4, ... machines of the best offer."""

from collections.abc import Callable, Sequence

import numpy as np

from advisor.cost.batch_choice import choose_batches
from advisor.cost.market import Market
from advisor.cost.quotes import quoted_fields, quotes_of
from advisor.cost.rank_offers import Ranking, cost_offers
from advisor.cost.selection import Selection
from advisor.predict.anchor import Correct, uncorrected
from advisor.records.answer import Job, MachinePoint, MachineSweep, Quote
from advisor.records.billing import Billing
from advisor.records.device import Efficiency
from advisor.records.options import Options
from advisor.records.prediction import Fleet, IndexArray, Predictions
from advisor.records.price import PricedOffer
from advisor.records.workload import Workload
from advisor.scale.predict_on_all import predict_by_machines


def sweep_machines(
    workload_at: Callable[[int], Workload],
    ranking: Ranking,
    *,
    market: Market,
    batches: IndexArray,
    efficiencies: Sequence[Efficiency],
    options: Options,
    job: Job,
    correct: Correct = uncorrected,
) -> MachineSweep | None:
    """Return the curve over the number of machines for the first quote with a known network, trusted prices first.

    Return None unless several machines were requested, and for LLM serving. Each number of machines has its own best
    plan and, without `--lengths`, its own best batch.
    """
    if options.max_machines == 1 or job.generation is not None:
        return None
    selection, fleet = market.selection, market.fleet
    place_of = {priced.offer.id: place for place, priced in enumerate(selection.priced)}
    for quote in sorted(ranking.quotes, key=lambda quote: not quote.may_lead):
        place = place_of[quote.id]
        device = fleet.devices[int(fleet.device_index[place])]
        if device.network_bytes_per_s is not None:
            workload = workload_at(quote.batch)
            if not workload.batch_is_affine:
                return None
            predictions = predict_by_machines(
                workload,
                device=device,
                efficiencies=efficiencies,
                batches=batches if options.lengths is None else np.array([quote.batch], dtype=np.intp),
                options=options,
                job=job,
                correct=correct,
            )
            return machine_sweep(
                quote, selection.priced[place], predictions=predictions, job=job, billing=market.billing
            )
    return None


def machine_sweep(
    quote: Quote, priced: PricedOffer, *, predictions: Predictions, job: Job, billing: Billing
) -> MachineSweep:
    """Return the curve over the number of machines of the quoted offer; each device of `predictions` is one number.

    Numbers of machines on which the step does not fit, or breaks a limit on the step, are left out.
    """
    count = len(predictions.devices)
    fleet = Fleet(devices=predictions.devices, device_index=np.arange(count), problems=("",) * count)
    alone = Market(Selection(priced=(priced,) * count, apart=(), rejected=()), fleet=fleet, billing=billing)
    costed = cost_offers(
        alone.selection.priced,
        fleet=fleet,
        predictions=predictions,
        choice=choose_batches(predictions, job=job, terms=alone.on_devices(job)),
        terms=alone.terms(job),
        job=job,
        energy=billing.energy,
    )
    possible = np.flatnonzero(np.isfinite(costed.costs.job_usd)).tolist()
    deadline_s = job.limits.deadline_s
    points = tuple(
        MachinePoint(
            keeps_deadline=deadline_s is None or one.job_s.mid <= deadline_s, **quoted_fields(one, MachinePoint)
        )
        for one in quotes_of(costed, possible, predictions=predictions, job=job, billing=billing)
    )
    return MachineSweep(points=points, **quoted_fields(quote, MachineSweep))
