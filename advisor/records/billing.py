"""What a job costs beside the hours of computing: start-up, increments, and what the user adds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class BillingRule:
    """How a provider bills the time of a machine: in whole increments, and at least the minimum."""

    increment_s: float
    minimum_s: float = 0.0
    basis: Literal["published", "general_knowledge"]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartUp:
    """Seconds from the create call on one cloud, measured on `sample_count` instances, nearly all without a GPU.

    To the first line of the boot script, and to a running container: apt, Docker and its image come between.
    """

    sample_count: int
    boot_script_median_s: float
    boot_script_p10_s: float
    boot_script_p90_s: float
    container_running_median_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """What no price list here holds, from the user's overlay; None: not known, so not in a cost.

    `storage_usd_per_month` is of the disks of one machine, `egress_usd` of all results of the job or of a month of the
    service, `tax_percent` on everything.
    """

    storage_usd_per_month: float | None = None
    egress_usd: float | None = None
    tax_percent: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Billing:
    """By provider. One without a rule or a start-up time has none that is known."""

    rules: Mapping[str, BillingRule] = field(default_factory=dict)
    start_ups: Mapping[str, StartUp] = field(default_factory=dict)
    extras: Extras = Extras()
