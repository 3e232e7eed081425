"""Finds the batch sizes with which a training job keeps a deadline that it breaks at the source's own batch."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from advisor import units
from advisor.cost.leading import best_of
from advisor.cost.rank_offers import rank
from advisor.cost.selection import Selection
from advisor.predict.batches import batch_candidates
from advisor.predict.join import at_batches
from advisor.question.record import Question
from advisor.records.answer import Job, Quote
from advisor.records.prediction import Fleet, FloatArray
from advisor.scale.predict_on_all import predict_with_growing_batches


def batch_remedies(
    question: Question, *, selection: Selection, fleet: Fleet, job: Job, start_up_s: FloatArray | float
) -> Iterator[str]:
    """Yield what `--batch auto` and the smallest batch that keeps all limits would cost and take, if any does.

    `job` has no batch of the user's own, and no offer keeps its deadline. The job keeps its number of samples.
    """
    workload, options = question.workload, replace(question.options, batch="auto")
    batches = batch_candidates("auto", mode=options.mode, source_batch=workload.batch)
    auto = replace(job, batch="auto")
    predictions = predict_with_growing_batches(
        workload,
        devices=fleet.devices,
        efficiencies=question.catalog.efficiencies,
        batches=batches,
        options=options,
        job=auto,
        start_up_s=start_up_s,
    )

    billing = question.catalog.billing

    def best_at(batch: int) -> Quote | None:
        at = at_batches(predictions, np.array([batch], dtype=np.intp))
        return best_of(rank(selection, fleet=fleet, predictions=at, job=auto, billing=billing).quotes)

    chosen = best_of(rank(selection, fleet=fleet, predictions=predictions, job=auto, billing=billing).quotes)
    if chosen is None:
        return
    yield f"the job keeps its limits with --batch auto: {_outcome(chosen)}"
    smallest = next((one for one in map(best_at, predictions.batches.tolist()) if one is not None), None)
    if smallest is not None and smallest.batch != chosen.batch:
        yield f"the smallest batch of these that keeps them is --batch {smallest.batch}: {_outcome(smallest)}"


def _outcome(quote: Quote) -> str:
    usd, time = units.format_usd(quote.job_usd.mid), units.format_duration(quote.job_s.mid)
    return f"{usd} in {time} on {quote.provider} {quote.instance}, batch {quote.batch:,}"
