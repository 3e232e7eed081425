"""Finds changes that make the same job cheaper, each ranked and priced like any other job."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, get_args

from advisor.answers.ranking import rank
from advisor.predict.weights import with_weights
from advisor.question.record import Question
from advisor.records.answer import Quote, Recommendation
from advisor.records.device import Precision
from advisor.records.explained_step import Change, ChangeKind
from advisor.records.generation import WeightFormat
from advisor.records.options import Options
from advisor.records.workload import Workload

MOST_SHOWN = 3
_LEAST_SAVED_RATIO = 0.01
"""Smaller savings are not worth a line."""


def saving_changes(quote: Quote, recommendation: Recommendation, question: Question) -> tuple[Change, ...]:
    """Return the changes that save most on the instance of `quote`, or the move to the best one; largest saving first.

    `recommendation` is the ranking of `question`.
    """
    catalog = question.catalog
    same_offer = replace(catalog, offers=tuple(offer for offer in catalog.offers if offer.id == quote.id), rejected=())
    alone = replace(question.without_machine(), catalog=same_offer)
    best_of_kind: dict[ChangeKind, Change] = {}
    for kind, alternative in _alternatives(quote, _of_same_size(alone, recommendation)):
        changed = rank(alternative).best
        if changed is None:
            continue
        change = _change(kind, quote, changed, weights=alternative.options.weights)
        known = best_of_kind.get(kind)
        if known is None or change.saved_usd > known.saved_usd:
            best_of_kind[kind] = change
    if recommendation.quotes:
        trusted = [one for one in recommendation.quotes if one.may_lead]
        cheapest = min(trusted or recommendation.quotes, key=lambda one: one.job_usd.mid)
        best_of_kind["instance"] = _change("instance", quote, cheapest)
    saving = [change for change in best_of_kind.values() if change.saved_ratio >= _LEAST_SAVED_RATIO]
    return tuple(sorted(saving, key=lambda change: -change.saved_usd)[:MOST_SHOWN])


def _of_same_size(question: Question, recommendation: Recommendation) -> Question:
    """Return the question with the job's size in samples: the same steps at another batch would be another job."""
    if question.options.steps is None:
        return question
    return replace(question, options=replace(question.options, steps=None, samples=recommendation.job.samples))


def _alternatives(quote: Quote, question: Question) -> Iterator[tuple[ChangeKind, Question]]:
    """Yield the same job with one thing changed."""
    workload, options = question.workload, question.options

    def changed(*, traced: Workload = workload, **options_changed: Any) -> Question:
        return replace(question, options=replace(options, **options_changed), workload=traced)

    if workload.generation is not None:
        if workload.generation.weights == "auto":
            for weights in get_args(WeightFormat):
                yield "weights", changed(traced=with_weights(workload, weights), weights=weights)
        return
    for precision in get_args(Precision):
        if precision != quote.precision:
            yield "precision", changed(precision=precision)
    if options.compile == "eager":
        yield "compile", changed(compile="compile")
    if options.layout == "nchw" and any(row.family == "conv" for row in workload.rows):
        yield "layout", changed(layout="nhwc")
    if workload.batch_is_affine:
        yield "batch", changed(batch="auto")
    if question.trace_fused is not None and _has_plain_attention(workload, options):
        yield "attention", changed(traced=question.trace_fused(), attention="fused")


def _has_plain_attention(workload: Workload, options: Options) -> bool:
    """Return whether the model may write attention scores to memory: it has a softmax, and no fused kernel."""
    ops = {row.op for row in workload.rows}
    return options.attention != "fused" and "attention" not in ops and any("softmax" in op for op in ops)


def _change(kind: ChangeKind, quote: Quote, changed: Quote, *, weights: WeightFormat = "auto") -> Change:
    to = {
        "precision": changed.precision,
        "batch": str(changed.batch),
        "layout": "nhwc",
        "compile": "compile",
        "attention": "fused",
        "weights": weights,
        "instance": f"{changed.provider} {changed.instance}",
    }
    saved_usd = quote.job_usd.mid - changed.job_usd.mid
    return Change(
        kind=kind,
        to=to[kind],
        step_s=changed.step_s,
        batch=changed.batch,
        job_usd=changed.job_usd,
        saved_usd=saved_usd,
        saved_ratio=saved_usd / quote.job_usd.mid if quote.job_usd.mid else 0.0,
    )
