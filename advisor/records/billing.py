"""Defines what a job costs beyond its computing time: start-up, billing increments and the user's extra costs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from advisor.records.energy import EnergyData


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
    """Figures from the user's overlay, which replace published ones; None: not given.

    - `software_s`: installing packages or pulling an image at the start of a machine; 0 if the image is there
    - `storage_usd_per_month`: the disks of one machine
    - `egress_usd`: all results of the job, or of a month of the service
    - `tax_percent`: tax on the whole cost
    """

    software_s: float | None = None
    storage_usd_per_month: float | None = None
    egress_usd: float | None = None
    tax_percent: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """The disk of a machine, rented as long as the machine; its rate of reading, if published."""

    size_bytes: float
    usd_per_month: float
    read_bytes_per_s: float | None = None
    date: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Egress:
    """The price of data out to the internet, after what is free each month."""

    usd_per_tb: float
    free_bytes: float
    date: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPackages:
    """The CUDA packages that only a machine with a GPU downloads, and the rate of downloading and unpacking them."""

    download_bytes: float
    pull_bytes_per_s: float
    date: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotInterruption:
    """The share of spot instances that is assumed to be interrupted within a month where a price has none."""

    share: str
    basis: Literal["assumed"]
    date: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraCosts:
    """Costs of a job in addition to machine hours, by provider; a missing provider publishes no figure.

    - `gpu_packages`, `spot_interruption`: the same for every provider
    """

    disks: Mapping[str, Disk] = field(default_factory=dict)
    egress: Mapping[str, Egress] = field(default_factory=dict)
    gpu_packages: GpuPackages | None = None
    spot_interruption: SpotInterruption | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Billing:
    """Billing rules, start-up times and extra costs by provider; a provider that is missing has none known.

    `energy`: the data for the electricity of owned machines, and for the energy and CO2 of all.
    """

    rules: Mapping[str, BillingRule] = field(default_factory=dict)
    start_ups: Mapping[str, StartUp] = field(default_factory=dict)
    extra_costs: ExtraCosts = field(default_factory=ExtraCosts)
    extras: Extras = Extras()
    energy: EnergyData = field(default_factory=EnergyData)
