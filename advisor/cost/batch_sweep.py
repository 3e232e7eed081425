"""Shows the time and the cost of every batch size on the best quotes."""

from collections.abc import Sequence

import numpy as np

from advisor.cost.leading import best_of
from advisor.cost.quotes import busy_usd_per_hour, plan_at, quoted_fields
from advisor.cost.selection import Selection
from advisor.cost.service import SECONDS_PER_HOUR
from advisor.records.answer import BOUNDS, BatchPoint, BatchSweep, Interval, Quote
from advisor.records.prediction import BoolArray, Fleet, Predictions
from advisor.records.scale import Plan

_MOST_SWEEPS = 6


def batch_sweeps(
    quotes: Sequence[Quote], *, selection: Selection, fleet: Fleet, predictions: Predictions, named: Sequence[str] = ()
) -> tuple[BatchSweep, ...]:
    """Return sweeps over the batch for the best quote, the first of the other device kind, and the devices `named`.

    `fleet` belongs to the offers of `selection`. Return nothing if there is only one batch size.
    """
    best = best_of(quotes)
    if len(predictions.batches) < 2 or best is None:
        return ()
    of_kind = {quote.device.kind: quote for quote in reversed(quotes)}
    of_device = {quote.device.id: quote for quote in reversed(quotes)}
    wanted = [best, *of_kind.values(), *(of_device[name] for name in named if name in of_device)]
    chosen = list({quote.id: quote for quote in wanted}.values())[:_MOST_SWEEPS]
    devices = dict(zip((offer.id for offer in selection.offers), fleet.device_index.tolist(), strict=True))
    sweeps = []
    for quote in chosen:
        device = devices[quote.id]
        is_alike = _family_of(quote, device, predictions)
        points = batch_points(predictions, device, usd_per_hour=busy_usd_per_hour(quote), among=is_alike)
        if len(points) > 1:
            sweeps.append(BatchSweep(points=points, **quoted_fields(quote, BatchSweep)))
    return tuple(sweeps)


def _family_of(quote: Quote, device: int, predictions: Predictions) -> BoolArray:
    """Return the batches, (batches,), of the family of plans from which the quote's is."""
    scaling = predictions.scaling
    if scaling is None or scaling.family is None:
        return np.ones(len(predictions.batches), dtype=np.bool_)
    is_quoted = [scaling.plans[number] == (quote.plan or Plan()) for number in scaling.plan[device].tolist()]
    at = int(np.argmax(is_quoted & (predictions.batches == quote.batch)))
    is_alike: BoolArray = scaling.family == scaling.family[at]
    return is_alike


def batch_points(
    predictions: Predictions, device: int, *, usd_per_hour: float, among: BoolArray | bool = True
) -> tuple[BatchPoint, ...]:
    """Return the step at every predicted batch on the device with this index, rented at `usd_per_hour`.

    Batches that cannot be divided among its GPUs, or are not `among` these, are left out.
    """
    return tuple(
        _point(predictions, device, index, usd_per_hour=usd_per_hour)
        for index in np.flatnonzero(np.isfinite(predictions.step_s[device]) & among).tolist()
    )


def _point(predictions: Predictions, device: int, index: int, *, usd_per_hour: float) -> BatchPoint:
    batch, step_s = int(predictions.batches[index]), float(predictions.step_s[device, index])
    tokens, plan = predictions.tokens, plan_at(predictions, (device, index)) or Plan()
    return BatchPoint(
        batch=batch,
        step_s=Interval(
            mid=step_s,
            low=float(predictions.step_low_s[device, index]),
            high=float(predictions.step_high_s[device, index]),
        ),
        samples_per_s=batch / step_s,
        usd_per_million_samples=plan.machines * usd_per_hour / SECONDS_PER_HOUR * step_s / batch * 1e6,
        peak_memory_bytes=float(predictions.peak_memory_bytes[device, index]),
        fits=bool(predictions.fits[device, index]),
        bound=BOUNDS[predictions.bound[device, index]],
        ttft_s=None if tokens is None else float(tokens.first_s[device, index]),
        tpot_s=None if tokens is None else float(tokens.between_s[device, index]),
    )
