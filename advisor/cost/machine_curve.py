"""Computes the time and the cost of a job on 1, 2, 4, ... machines of one offer."""

import numpy as np

from advisor.cost.batch_choice import choose_batches
from advisor.cost.quotes import quotes_of
from advisor.cost.rank_offers import cost_offers
from advisor.records.answer import Job, MachinePoint, MachineSweep, Quote
from advisor.records.billing import Billing
from advisor.records.prediction import Fleet, Predictions
from advisor.records.price import PricedOffer


def machine_sweep(
    quote: Quote, priced: PricedOffer, *, predictions: Predictions, job: Job, billing: Billing
) -> MachineSweep:
    """Return the curve over the number of machines of the quoted offer; each device of `predictions` is one number.

    Numbers of machines on which the step does not fit, or breaks a limit on the step, are left out.
    """
    count = len(predictions.devices)
    costed = cost_offers(
        (priced,) * count,
        fleet=Fleet(devices=predictions.devices, device_index=np.arange(count), problems=("",) * count),
        predictions=predictions,
        choice=choose_batches(predictions, job=job),
        billing=billing,
        job=job,
    )
    possible = np.flatnonzero(np.isfinite(costed.costs.job_usd))
    return MachineSweep(
        id=quote.id,
        provider=quote.provider,
        instance=quote.instance,
        device=quote.device,
        precision=quote.precision,
        usd_per_hour=quote.usd_per_hour,
        instance_count=quote.instance_count,
        device_memory_bytes=quote.device_memory_bytes,
        points=tuple(
            _point(one, job) for one in quotes_of(costed, possible, predictions=predictions, job=job, billing=billing)
        ),
    )


def _point(quote: Quote, job: Job) -> MachinePoint:
    deadline_s = job.limits.deadline_s
    return MachinePoint(
        instance_count=quote.instance_count,
        gpus_used=quote.gpus_used,
        plan=quote.plan,
        batch=quote.batch,
        step_s=quote.step_s,
        job_s=quote.job_s,
        job_usd=quote.job_usd,
        scaling_efficiency_ratio=quote.scaling_efficiency_ratio,
        peak_memory_bytes=quote.peak_memory_bytes,
        keeps_deadline=deadline_s is None or quote.job_s.mid <= deadline_s,
    )
