"""Predicts the steps of a question at several batch sizes, tracing the model again where one trace does not hold."""

from typing import Any

import numpy as np

from advisor.predict.batches import batches_of
from advisor.predict.join import join_batches
from advisor.question.record import Question
from advisor.records.prediction import IndexArray, Predictions
from advisor.scale.predict_on_all import predict_on_all, predict_with_growing_batches


def predict_at(question: Question, batches: IndexArray, **how: Any) -> Predictions:
    """Predict the steps at these global batches; `how` is as `predict_on_all` takes it."""
    how |= {"efficiencies": question.catalog.efficiencies, "options": question.options}
    if question.holds_at_any_batch:
        return predict_on_all(question.workload, batches=batches, **how)
    one_each = [np.array([batch], dtype=np.intp) for batch in batches]
    return join_batches([predict_on_all(question.at_batch(int(one[0])), batches=one, **how) for one in one_each])


def predict_asked(question: Question, **how: Any) -> Predictions:
    """Predict the steps at the batches of `--batch`; `how` is as `predict_with_growing_batches` takes it."""
    workload, options = question.workload, question.options
    batches = batches_of(workload, options)
    if not question.holds_at_any_batch:
        return predict_at(question, batches, **how)
    how |= {"efficiencies": question.catalog.efficiencies, "options": options}
    return predict_with_growing_batches(workload, batches=batches, **how)
