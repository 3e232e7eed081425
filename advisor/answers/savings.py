"""A quote in, what would make the same job cheaper out: each change predicted, ranked and priced as `advise` would."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, get_args

from advisor.answers.ranking import rank_workload
from advisor.records.answer import Quote, Recommendation
from advisor.records.device import Precision
from advisor.records.explained_step import Change, ChangeKind
from advisor.records.generation import WeightFormat
from advisor.records.options import Options
from advisor.records.price import Catalog
from advisor.records.workload import Workload

MOST_SHOWN = 3
_LEAST_SAVED_RATIO = 0.01
"""Less does not show in percent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Alternative:
    """The same job with other options, or another trace of the model."""

    kind: ChangeKind
    options: Options
    workload: Workload


def saving_changes(
    quote: Quote,
    recommendation: Recommendation,
    *,
    workload: Workload,
    options: Options,
    catalog: Catalog,
    trace_fused: Callable[[], Workload] | None = None,
) -> tuple[Change, ...]:
    """The changes that save most on the instance of `quote`, and the best instance; the one that saves most first.

    `trace_fused` traces the model anew with fused attention; None: it cannot be had.
    """
    same_offer = replace(catalog, offers=tuple(offer for offer in catalog.offers if offer.id == quote.id), rejected=())
    best_of_kind: dict[ChangeKind, Change] = {}
    for alternative in _alternatives(
        quote, workload=workload, options=_of_same_size(options, recommendation), trace_fused=trace_fused
    ):
        changed = rank_workload(alternative.workload, alternative.options, catalog=same_offer).best
        if changed is None:
            continue
        change = _change(alternative.kind, quote, changed, weights=alternative.options.weights)
        known = best_of_kind.get(alternative.kind)
        if known is None or change.saved_usd > known.saved_usd:
            best_of_kind[alternative.kind] = change
    if recommendation.quotes:
        cheapest = min(recommendation.quotes, key=lambda one: one.job_usd.mid)
        best_of_kind["instance"] = _change("instance", quote, cheapest)
    saving = [change for change in best_of_kind.values() if change.saved_ratio >= _LEAST_SAVED_RATIO]
    return tuple(sorted(saving, key=lambda change: -change.saved_usd)[:MOST_SHOWN])


def _of_same_size(options: Options, recommendation: Recommendation) -> Options:
    """The options with the job's size in samples: steps of another batch would be another job."""
    if options.steps is None:
        return options
    return replace(options, steps=None, samples=recommendation.job.samples)


def _alternatives(
    quote: Quote, *, workload: Workload, options: Options, trace_fused: Callable[[], Workload] | None
) -> Iterator[_Alternative]:
    def changed(kind: ChangeKind, *, traced: Workload = workload, **options_changed: Any) -> _Alternative:
        return _Alternative(kind=kind, options=replace(options, **options_changed), workload=traced)

    if workload.generation is not None:
        if workload.generation.weights == "auto":
            for weights in get_args(WeightFormat):
                yield changed("weights", weights=weights)
        return
    for precision in get_args(Precision):
        if precision != quote.precision:
            yield changed("precision", precision=precision)
    if options.compile == "eager":
        yield changed("compile", compile="compile")
    if options.layout == "nchw" and any(row.family == "conv" for row in workload.rows):
        yield changed("layout", layout="nhwc")
    if workload.batch_is_affine:
        yield changed("batch", batch="auto")
    if trace_fused is not None and _has_plain_attention(workload, options):
        yield changed("attention", traced=trace_fused(), attention="fused")


def _has_plain_attention(workload: Workload, options: Options) -> bool:
    """Whether the model may have attention whose scores travel through memory: a softmax, and no fused kernel."""
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
