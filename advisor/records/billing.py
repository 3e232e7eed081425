"""Defines what a job costs beyond its computing time: start-up, billing increments and the user's extra costs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class BillingRule:
    """How a provider bills machine time: in whole increments, and at least `minimum_s`."""

    increment_s: float
    minimum_s: float = 0.0
    basis: Literal["published", "general_knowledge"]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartUp:
    """Start-up times of one cloud, measured on `sample_count` instances, nearly all without a GPU.

    Times run from the create call to the first line of the boot script, or to a running container, which includes apt,
    Docker and the image download.
    """

    sample_count: int
    boot_script_median_s: float
    boot_script_p10_s: float
    boot_script_p90_s: float
    container_running_median_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """Costs from the user's overlay that no price list contains; None: not known and not in the cost.

    - `storage_usd_per_month`: the disks of one machine
    - `egress_usd`: all results of the job, or of a month of the service
    - `tax_percent`: tax on the whole cost
    """

    storage_usd_per_month: float | None = None
    egress_usd: float | None = None
    tax_percent: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Billing:
    """Billing rules and start-up times by provider; a provider that is missing has none known."""

    rules: Mapping[str, BillingRule] = field(default_factory=dict)
    start_ups: Mapping[str, StartUp] = field(default_factory=dict)
    extras: Extras = Extras()
