"""Selected offers and the predictions of their devices in, quotes from the cheapest to the dearest out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor.cost.cheapest import compare_costs
from advisor.cost.selection import PricedOffer, Selection, rejection
from advisor.records.answer import BOUNDS, Interval, Job, Quote, QuotedDevice
from advisor.records.prediction import Fleet, FloatArray, IndexArray, Predictions
from advisor.records.price import Offer, Rejection

_SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Quotes, cheapest first, one per instance type; `notes` say what the offers set apart would save."""

    quotes: tuple[Quote, ...]
    rejected: tuple[Rejection, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _BestBatch:
    """The batch that finishes the job soonest on each device, and with it the cheapest; arrays are (devices,)."""

    index: IndexArray
    step_count: FloatArray
    job_s: FloatArray


def rank(selection: Selection, *, fleet: Fleet, predictions: Predictions, job: Job) -> Ranking:
    """Price the job on every selected offer; `fleet` is of `selection.offers` and `predictions` of `fleet.devices`.

    Rejection codes beside those of the selection: "no-device-profile", "no-native-precision", "does-not-fit" and
    "dearer-region" (every type is quoted once, in its cheapest region).
    """
    best_batch = _best_batches(predictions, samples=job.samples)
    usd_per_hour = np.array([priced.price.usd_per_hour for priced in selection.priced])
    job_s = np.append(best_batch.job_s, np.inf)[fleet.device_index]  # index -1, no device, is the infinity
    job_usd = usd_per_hour * job_s / _SECONDS_PER_HOUR

    may_win = np.arange(len(job_usd)) < selection.may_win_count
    order = _cheapest_first(selection.priced, job_usd)
    feasible = [index for index in order if may_win[index] and np.isfinite(job_usd[index])]
    chosen, dearer = _one_per_type(selection.priced, feasible)
    quotes = _quotes(selection.priced, chosen, fleet=fleet, predictions=predictions, best_batch=best_batch, job=job)
    impossible = [index for index in range(selection.may_win_count) if not np.isfinite(job_usd[index])]
    return Ranking(
        quotes=quotes,
        rejected=(
            *selection.rejected,
            *selection.apart,
            *_reject_impossible(selection.priced, impossible, fleet=fleet, predictions=predictions),
            *dearer,
        ),
        notes=_savings(selection, job_usd, quotes=quotes),
    )


def _best_batches(predictions: Predictions, *, samples: int) -> _BestBatch:
    step_counts = np.ceil(samples / predictions.batches)
    job_s = np.where(predictions.fits, step_counts * predictions.step_s, np.inf)
    index = np.argmin(job_s, axis=1)
    return _BestBatch(index=index, step_count=step_counts[index], job_s=job_s[np.arange(len(index)), index])


def _cheapest_first(priced: Sequence[PricedOffer], job_usd: FloatArray) -> IndexArray:
    """Indices by cost; equal costs by id, so that the order of the offers does not matter."""
    return np.lexsort((np.array([item.offer.id for item in priced]), job_usd))


def _one_per_type(priced: Sequence[PricedOffer], feasible: Sequence[int]) -> tuple[list[int], list[Rejection]]:
    """The first of each instance type, and the rejections of its other regions."""
    region_by_type: dict[tuple[str, str, str], str] = {}
    chosen: list[int] = []
    dearer: list[Rejection] = []
    for index in feasible:
        offer = priced[index].offer
        key = (offer.provider, offer.instance, offer.tier)
        if key in region_by_type:
            dearer.append(
                rejection(offer, code="dearer-region", reason=f"costs the same or less in {region_by_type[key]}")
            )
        else:
            region_by_type[key] = offer.region
            chosen.append(index)
    return chosen, dearer


def _quotes(
    priced: Sequence[PricedOffer],
    chosen: Sequence[int],
    *,
    fleet: Fleet,
    predictions: Predictions,
    best_batch: _BestBatch,
    job: Job,
) -> tuple[Quote, ...]:
    if not chosen:
        return ()
    devices = fleet.device_index[np.array(chosen)]
    batches = best_batch.index[devices]
    step_s = np.stack(
        [times[devices, batches] for times in (predictions.step_s, predictions.step_low_s, predictions.step_high_s)]
    )
    job_s = step_s * best_batch.step_count[devices]
    usd_per_s = np.array([priced[index].price.usd_per_hour for index in chosen]) / _SECONDS_PER_HOUR
    job_usd = job_s * usd_per_s
    batch_sizes = predictions.batches[batches]
    comparison = compare_costs(
        job_usd[0],
        own_log_spread=predictions.own_log_spread[devices, batches],
        step=_same_steps(predictions, devices, batch_sizes=batch_sizes, step_s=step_s[0]),
    )
    samples_per_s = batch_sizes / step_s[0]
    usd_per_million = usd_per_s / samples_per_s * 1e6
    bounds = predictions.bound[devices, batches]
    peak_bytes = predictions.peak_memory_bytes[devices, batches]
    quotes = []
    for position, index in enumerate(chosen):
        offer, price = priced[index].offer, priced[index].price
        device = predictions.devices[devices[position]]
        precision = predictions.precisions[devices[position]]
        if precision is None:
            raise ValueError(f"{device.id} was ranked without a precision")
        quotes.append(
            Quote(
                id=offer.id,
                provider=offer.provider,
                tier=offer.tier,
                region=offer.region,
                instance=offer.instance,
                vcpus=offer.vcpus,
                device=QuotedDevice(id=device.id, name=device.name, kind=device.kind, count=max(1, offer.gpu_count)),
                gpus_used=1 if device.kind == "gpu" else 0,
                price_kind=price.kind,
                price_basis=price.basis,
                usd_per_hour=price.usd_per_hour,
                price_date=price.date,
                precision=precision,
                compile=predictions.compile,
                batch=int(batch_sizes[position]),
                step_s=_interval(step_s, position),
                samples_per_s=float(samples_per_s[position]),
                usd_per_million_samples=float(usd_per_million[position]),
                job_usd=_interval(job_usd, position),
                job_s=_interval(job_s, position),
                peak_memory_bytes=float(peak_bytes[position]),
                device_memory_bytes=device.memory_bytes,
                fits=True,
                bound=BOUNDS[bounds[position]],
                time_source=predictions.time_sources[devices[position]],
                chance_cheapest=float(comparison.chance_cheapest[position]),
                indistinguishable=bool(comparison.indistinguishable[position]),
            )
        )
    return tuple(quotes)


def _interval(mid_low_high: FloatArray, position: int) -> Interval:
    mid, low, high = mid_low_high[:, position].tolist()
    return Interval(mid=mid, low=low, high=high)


def _same_steps(
    predictions: Predictions, devices: IndexArray, *, batch_sizes: IndexArray, step_s: FloatArray
) -> IndexArray:
    """Numbers the distinct steps, from 0 in the order of the quotes.

    A device is one whatever the cloud: where only the rate of copies to it differs, the step is the same unless they
    bound it.
    """
    ids = [predictions.devices[index].id for index in devices]
    numbers: dict[tuple[str, int, float], int] = {}
    keys = zip(ids, batch_sizes.tolist(), step_s.tolist(), strict=True)
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.intp)


def _reject_impossible(
    priced: Sequence[PricedOffer], impossible: Sequence[int], *, fleet: Fleet, predictions: Predictions
) -> list[Rejection]:
    rejected = []
    for index in impossible:
        offer, device_index = priced[index].offer, int(fleet.device_index[index])
        if device_index < 0:
            rejected.append(rejection(offer, code="no-device-profile", reason=fleet.problems[index]))
        elif predictions.precisions[device_index] is None:
            name = predictions.devices[device_index].name
            reason = f"{name} has no unit for the precision asked for, or no kernels for quantized operators"
            rejected.append(rejection(offer, code="no-native-precision", reason=reason))
        else:
            rejected.append(_too_small(offer, device_index, predictions=predictions))
    return rejected


def _too_small(offer: Offer, device_index: int, *, predictions: Predictions) -> Rejection:
    needed_gb = predictions.peak_memory_bytes[device_index].min() / 1e9
    batch = predictions.batches[predictions.peak_memory_bytes[device_index].argmin()]
    has_gb = predictions.devices[device_index].memory_bytes / 1e9
    reason = f"needs {needed_gb:.1f} GB at batch {batch}, has {has_gb:.1f} GB"
    return rejection(offer, code="does-not-fit", reason=reason)


def _savings(selection: Selection, job_usd: FloatArray, *, quotes: Sequence[Quote]) -> tuple[str, ...]:
    """One sentence for each reason to set offers apart: the cheapest of them, if it is cheaper than the best quote."""
    notes = []
    for code, title in (("marketplace", "marketplaces"), ("billed-separately", "offers that bill parts separately")):
        members = [
            selection.may_win_count + index for index, reason in enumerate(selection.apart) if reason.code == code
        ]
        members = [index for index in members if np.isfinite(job_usd[index])]
        if not members or not quotes:
            continue
        cheapest = min(members, key=lambda index: (job_usd[index], selection.priced[index].offer.id))
        saving = 1 - job_usd[cheapest] / quotes[0].job_usd.mid
        if saving > 0:
            offer = selection.priced[cheapest].offer
            notes.append(
                f"{title} are left out; they would save up to {saving:.0%} ({offer.provider} {offer.instance})"
            )
    return tuple(notes)
