"""Predicts the steps of a question at several batch sizes, tracing the model again where one trace does not hold."""

from collections.abc import Sequence

import numpy as np

from advisor.cost.market import DeviceTerms, Market
from advisor.predict.batches import batches_of
from advisor.predict.join import join_batches
from advisor.question.record import Question
from advisor.records.answer import Job
from advisor.records.device import Device
from advisor.records.prediction import IndexArray, Predictions
from advisor.scale.kept_steps import KeptSteps
from advisor.scale.predict_on_all import predict_on_all, predict_with_growing_batches


def predict_at(
    question: Question,
    batches: IndexArray,
    *,
    devices: Sequence[Device],
    job: Job,
    terms: DeviceTerms | None = None,
    kept: KeptSteps | None = None,
) -> Predictions:
    """Predict the steps at these global batches; the arguments are as `predict_on_all` takes them."""
    workload = question.workload
    alike = question.holds_at_any_batch
    return join_batches(
        [
            predict_on_all(
                workload if alike else question.at_batch(int(some[0])),
                devices=devices,
                efficiencies=question.catalog.efficiencies,
                batches=some,
                options=question.options,
                job=job,
                terms=terms,
                correct=question.correct,
                kept=kept,
            )
            for some in ([batches] if alike else np.split(batches, len(batches)))
        ]
    )


def predict_asked(question: Question, market: Market, *, job: Job, kept: KeptSteps | None = None) -> Predictions:
    """Predict the steps at the batches of `--batch` on every device of the market, for this job."""
    devices, terms = market.fleet.devices, market.on_devices(job)
    batches = batches_of(question.workload, question.options)
    if not question.holds_at_any_batch:
        return predict_at(question, batches, devices=devices, job=job, terms=terms, kept=kept)
    return predict_with_growing_batches(
        question.workload,
        devices=devices,
        efficiencies=question.catalog.efficiencies,
        batches=batches,
        options=question.options,
        job=job,
        terms=terms,
        correct=question.correct,
        kept=kept,
    )
