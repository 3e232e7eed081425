"""What the cheapest CPU and the cheapest GPU cost in, by how much the GPU is ahead out, and how sure that is.

An error of the prediction has two parts (`advisor.cost.cheapest`). What the model, its trace and its counts get wrong
makes both devices slower or faster alike: of that only the difference counts by which it reaches the one more than the
other. What is a device's own is independent of the other's, and the two add as independent errors do.
"""

import math
from dataclasses import dataclass

from advisor.records.answer import Z_90, Interval
from advisor.records.break_even_curves import KindCost


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """log(amount of the CPU / amount of the GPU), and the ends of its 90 % interval.

    Positive where the GPU is ahead, infinite where only one of both does the job.
    """

    mid: float
    low: float
    high: float

    @property
    def ratio(self) -> Interval | None:
        """How many times as much on the CPU; None where only one of both does the job."""
        if not math.isfinite(self.mid):
            return None
        return Interval(mid=math.exp(self.mid), low=math.exp(self.low), high=math.exp(self.high))


def cost_margin(cpu: KindCost | None, gpu: KindCost | None) -> Margin | None:
    """Of the cost of the job; None where neither does it."""
    if cpu is None or gpu is None:
        return None if cpu is gpu else _sure(math.inf if cpu is None else -math.inf)
    cpu_usd, gpu_usd = cpu.quote.job_usd.mid, gpu.quote.job_usd.mid
    if not cpu_usd or not gpu_usd:  # hardware of one's own whose electricity has no price
        return _sure(0.0 if cpu_usd == gpu_usd else math.copysign(math.inf, cpu_usd - gpu_usd))
    return _margin(
        math.log(cpu_usd / gpu_usd),
        own=(_log_ends(cpu.own_usd), _log_ends(gpu.own_usd)),
        shared=(_log_ends(cpu.shared_usd), _log_ends(gpu.shared_usd)),
    )


def speed_margin(cpu: KindCost, gpu: KindCost) -> Margin:
    """Of the time of a sample: how many times faster the GPU is."""
    return _margin(
        math.log(gpu.quote.samples_per_s / cpu.quote.samples_per_s),
        own=(_half_widths(cpu.own_log_spread), _half_widths(gpu.own_log_spread)),
        shared=(_half_widths(cpu.shared_log_spread), _half_widths(gpu.shared_log_spread)),
    )


_Ends = tuple[float, float]
"""Of an interval's logarithm, beside its middle: less than 0, and more."""


def _margin(mid: float, *, own: tuple[_Ends, _Ends], shared: tuple[_Ends, _Ends]) -> Margin:
    """The margin with the errors of the CPU and of the GPU."""
    (cpu_low, cpu_high), (gpu_low, gpu_high) = own
    together = [cpu_end - gpu_end for cpu_end, gpu_end in zip(*shared, strict=True)]
    return Margin(
        mid=mid,
        low=mid - math.hypot(cpu_low, gpu_high, min(*together, 0.0)),
        high=mid + math.hypot(cpu_high, gpu_low, max(*together, 0.0)),
    )


def _sure(mid: float) -> Margin:
    return Margin(mid=mid, low=mid, high=mid)


def _log_ends(amount: Interval) -> _Ends:
    return math.log(amount.low / amount.mid), math.log(amount.high / amount.mid)


def _half_widths(log_spread: float) -> _Ends:
    return -Z_90 * log_spread, Z_90 * log_spread
