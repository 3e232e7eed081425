"""Defines why offers are left out: the codes, the amounts behind them and the sentence of each code."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from advisor import units
from advisor.records.generation import Generation
from advisor.records.machine import LOCAL, LocalDevice
from advisor.records.sample_words import at_batch_text, samples_noun

if TYPE_CHECKING:
    from advisor.records.price import ExchangeRate, Rejected

RejectionCode = Literal[
    "no-device-profile", "fractional-gpu", "unknown-cpu", "incomplete-machine", "excluded", "other-provider",
    "other-region", "other-tier", "other-instance", "other-arch", "too-few-gpus", "other-device", "no-torch-wheel",
    "no-price", "stale-price", "suspect-price", "old-price", "marketplace", "billed-separately", "other-stack",
    "no-native-precision", "not-measured",
    "unknown-vcpus", "does-not-fit", "over-engine-limit", "over-latency", "over-ttft", "over-tpot", "over-p99",
    "under-throughput", "never-done", "over-quota", "only-machine", "over-deadline", "over-max-usd", "over-max-hourly",
    "unknown-co2", "over-max-co2", "pricier-region",
]  # fmt: skip
"""Reasons why an offer is not in the catalog, not selected or not ranked, in the order of the checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why an offer is left out; `_SENTENCES` has the sentence of each code.

    - `what`: what the sentence names, such as a region, a device or a date
    - `note`: what the price file says about its price
    - `needed`, `available`: the amount that the offer needs and what it has or the user allows, in base units
    - `batch`: the batch with these amounts
    - `within`: the limits that the offer keeps at that batch
    - `missing_kernels`: as `Generation.missing_kernels` returns them
    """

    code: RejectionCode
    what: str = ""
    note: str = ""
    needed: float | None = None
    available: float | None = None
    batch: int | None = None
    within: tuple[RejectionCode, ...] = ()
    missing_kernels: tuple[str, ...] = ()

    @property
    def ratio(self) -> float:
        """Return the amount needed over the amount available; infinity if no amount is enough or none is known."""
        return self.needed / self.available if self.needed and self.available else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """An offer that is not in the ranking; `code` is the group of the `reason`."""

    id: str
    provider: str
    region: str
    instance: str
    code: RejectionCode
    reason: str


_Sentence: TypeAlias = Callable[[Cause, Generation | None], str]
OTHER_FORMATS = "choose other --weights, another --kv-cache or another device"
"""The hint where kernels are missing."""
_TIME_FLAGS: dict[RejectionCode, str] = {
    "over-latency": "--max-latency", "over-ttft": "--max-ttft", "over-tpot": "--max-tpot",
    "over-p99": "--p99",
}  # fmt: skip


def rejections(
    rejected: "Iterable[Rejected]", generation: Generation | None, *, rate: "ExchangeRate | None" = None
) -> tuple[Rejection, ...]:
    """Return the rejected offers with their reasons; `generation` is that of the job, `rate` the currency of money."""
    return tuple(
        Rejection(
            id=one.offer.id,
            provider=one.offer.provider,
            region=one.offer.region,
            instance=one.offer.instance,
            code=one.code,
            reason="; ".join(sentence_of(cause, generation, rate=rate) for cause in one.causes),
        )
        for one in rejected
    )


def sentence_of(cause: Cause, generation: Generation | None, *, rate: "ExchangeRate | None" = None) -> str:
    """Return the cause in words; `generation` is that of the job, `rate` the currency of money."""
    if cause.code not in _OVER_USD:
        return _SENTENCES[cause.code](cause, generation)
    verb, flag = _OVER_USD[cause.code]
    if rate is not None:  # the flag is in dollars
        flag += f" {units.format_usd(_amounts(cause)[1])} ="
    return _over(verb, flag, lambda usd: units.format_money(usd, rate=rate))(cause, generation)


def local_notes(devices: Iterable[LocalDevice], rejected: Iterable[Rejection]) -> tuple[str, ...]:
    """Return one note per device of this machine that is missing from the ranking or has uncertain figures."""
    missing = {one.id: one.reason for one in rejected}
    reasons = [(local, missing.get(f"{LOCAL}/{local.id}", local.note)) for local in devices]
    return tuple(f"this machine's {local.id}, {local.name}: {why}" for local, why in reasons if why)


def _always(sentence: str) -> _Sentence:
    """Return the sentence with the `{what}` of the cause in its place."""
    return lambda cause, _: sentence.format(what=cause.what)


def _or_note(sentence: str) -> _Sentence:
    """Return the note of the price, or the sentence if it has none."""
    return lambda cause, _: cause.note or sentence.format(what=cause.what)


def _over(verb: str, flag: str, amount_text: Callable[[float], str]) -> _Sentence:
    """Return "takes 2 h at batch 8, 1 h more than --deadline 1 h"."""

    def sentence(cause: Cause, generation: Generation | None) -> str:
        needed, limit = _amounts(cause)
        at = "" if cause.batch is None else f" {at_batch_text(cause.batch, generation)}"
        more = f"{amount_text(needed - limit)} more than {flag} {amount_text(limit)}"
        return f"{verb} {amount_text(needed)}{at}, {more}{_together(cause)}"

    return sentence


def _together(cause: Cause) -> str:
    """Return how many machines the plan takes, if it is more than one."""
    return f", since its plan takes {cause.what} (--max-machines 1 asks for one)" if cause.what else ""


def _too_few_gpus(cause: Cause, _: Generation | None) -> str:
    needed, available = _amounts(cause)
    return f"has {available:.0f} GPU{'' if available == 1 else 's'}, needs {needed:.0f}"


def _never_done(cause: Cause, _: Generation | None) -> str:
    count, _most = _amounts(cause)
    return f"is interrupted {count:,.0f} times between two checkpoints; shorten --checkpoint-every"


def _over_quota(cause: Cause, _: Generation | None) -> str:
    needed, available = _amounts(cause)
    instances = "1 instance" if needed == 1 else f"{needed:,.0f} instances"
    return f"needs {instances}, but your quota allows {available:,.0f}{_together(cause)}"


def _only_machine(cause: Cause, _: Generation | None) -> str:
    needed, _available = _amounts(cause)
    return f"it cannot serve the load alone: {needed:,.0f} such machines would be needed"


def no_kernels_text(missing: Iterable[str], generation: Generation | None, *, on: str) -> str:
    """Return why devices cannot run the step; `missing` as `Generation.missing_kernels` returns it, `on` names them."""
    if generation is None or generation.engine is None:
        return f"{on} has no unit for this precision, or no kernels for quantized operators"
    formats = " and ".join(missing)
    if not formats:
        return f"{on} has no unit for this precision"
    return f"{generation.engine.name} has no kernels for {formats} on {on}"


def _does_not_fit(cause: Cause, generation: Generation | None) -> str:
    if cause.batch is None:
        return "the batch cannot be divided among its GPUs as requested"
    needed, has = (units.format_bytes(amount) for amount in _amounts(cause))
    engine = None if generation is None else generation.engine
    available = f"but {engine.name} uses at most {has} of its memory" if engine else f"has {has}"
    return f"needs {needed} {at_batch_text(cause.batch, generation)}, {available}"


def _over_engine_limit(cause: Cause, generation: Generation | None) -> str:
    needed, most = _amounts(cause)
    engine = generation.engine.name if generation and generation.engine else "the engine"
    return f"{engine} takes at most {most:,.0f} requests in flight for each copy of the model, not {needed:,.0f}"


def _under_throughput(cause: Cause, generation: Generation | None) -> str:
    least, reached = _amounts(cause)
    unit = samples_noun(generation)
    flags = "".join(f" within {_TIME_FLAGS[code]}" for code in cause.within)
    return (
        f"reaches at most {units.format_rate(reached)} {unit}/s{flags}, "
        f"{units.format_rate(least - reached)} fewer than --min-throughput {units.format_rate(least)}"
    )


def _amounts(cause: Cause) -> tuple[float, float]:
    if cause.needed is None or cause.available is None:
        raise ValueError(f"{cause.code} without its amounts")
    return cause.needed, cause.available


_SENTENCES: dict[RejectionCode, _Sentence] = {
    "excluded": _always("{what}"),
    "other-provider": _always("{what} is not in --provider"),
    "other-region": _always("{what} is not in --region"),
    "other-tier": _always("{what} is not in --tier"),
    "other-instance": _always("{what} is not in --instance"),
    "other-arch": _always("its CPU is {what}, which is not in --arch"),
    "other-device": _always("{what} is not in --device"),
    "too-few-gpus": _too_few_gpus,
    "no-torch-wheel": _always("no wheel of PyTorch has code for a {what}: PyTorch must be built from source"),
    "no-price": _always("has no {what} price"),
    "stale-price": _or_note("the price from {what} is known to be out of date"),
    "suspect-price": _or_note("the price from {what} is not credible"),
    "old-price": _always("the price dates from {what}"),
    "marketplace": _always("marketplace hosts vary; add --tier marketplace or --provider to rank them"),
    "billed-separately": _always("the price leaves out {what}"),
    "other-stack": _always(
        "needs {what} instead of PyTorch's own kernels; --device or --instance with its name ranks it"
    ),
    "no-device-profile": _always("{what}"),
    "no-native-precision": lambda cause, generation: no_kernels_text(cause.missing_kernels, generation, on=cause.what),
    "not-measured": _always("only inference in bf16, without decoding, was measured on {what}"),
    "unknown-vcpus": _always("its number of vCPUs is not known, so the time to load data cannot be predicted"),
    "does-not-fit": _does_not_fit,
    "over-engine-limit": _over_engine_limit,
    "over-latency": _over("takes", _TIME_FLAGS["over-latency"], units.format_duration),
    "over-ttft": _over("its first token takes", _TIME_FLAGS["over-ttft"], units.format_duration),
    "over-tpot": _over("a token takes", _TIME_FLAGS["over-tpot"], units.format_duration),
    "over-p99": _over("99 % of its requests take up to", _TIME_FLAGS["over-p99"], units.format_duration),
    "under-throughput": _under_throughput,
    "never-done": _never_done,
    "over-quota": _over_quota,
    "only-machine": _only_machine,
    "over-deadline": _over("takes", "--deadline", units.format_duration),
    "unknown-co2": _always("{what}"),
    "over-max-co2": _over("emits", "--max-co2", units.format_co2),
    "pricier-region": _always("costs the same or less in {what}"),
}
_OVER_USD: dict[RejectionCode, tuple[str, str]] = {
    "over-max-usd": ("costs", "--max-usd"), "over-max-hourly": ("costs per hour", "--max-hourly"),
}  # fmt: skip
"""The verb and the flag of the limits on money."""
