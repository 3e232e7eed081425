"""Defines the power of GPUs and CPUs, the intensity of the grid, and the energy of a job."""

from collections.abc import Mapping
from dataclasses import dataclass

from advisor.records.device import ANY


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPower:
    """The power of a GPU over its limit (TDP), by the shares of the time that its parts are in use.

    - `idle_ratio`: power of an idle GPU
    - `compute_ratio`, `memory_ratio`, `overhead_ratio`: added if compute, memory traffic, or launches and other
      overheads on the GPU take all of the time
    - `most_ratio`: upper bound of the sum
    - `log_spread`, `unseen_log_spread`: standard deviation of log(measured / predicted) of the GPUs in `fitted_on`, and
      of all others
    - `idle_log_spread`: the same for idle power
    """

    idle_ratio: float
    compute_ratio: float
    memory_ratio: float
    overhead_ratio: float
    most_ratio: float
    log_spread: float
    unseen_log_spread: float
    idle_log_spread: float
    fitted_on: tuple[str, ...] = ()
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuPower:
    """Watts of a server for each physical core at the wall: CPU, memory, fans, power supply."""

    idle_w_per_core: float
    busy_w_per_core: float
    log_spread: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuPowers:
    """The watts of servers by generation of their CPU; `ANY` is for all others.

    `unknown_vcpus_per_gpu`: vCPUs per GPU assumed for the host where the offer does not give them.
    """

    unknown_vcpus_per_gpu: float
    cpus: Mapping[str, CpuPower]

    def of(self, cpu: str | None) -> CpuPower:
        """Return the watts of a CPU, or those for all others."""
        return self.cpus.get(cpu or ANY) or self.cpus[ANY]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The location-based intensity of a region's grid, an annual average.

    - `pue`: power usage effectiveness of the data centre; None: not published, so only the machine counts
    - `place`: regions at one place share its error
    - `year`: of the figure; None if its source does not say
    """

    gco2_per_kwh: float
    pue: float | None = None
    place: str
    year: int | None = None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Grids:
    """The grids by PROVIDER/REGION; `log_spread`: standard deviation of log(intensity) between sources."""

    log_spread: float
    regions: Mapping[str, Grid]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watts:
    """Mean power of one machine while a step runs, by part; without the cooling and losses of a data centre.

    - `idle_gpu_w`: what all its GPUs draw when idle
    - `compute_w`, `memory_w`, `overhead_w`: added by compute, memory traffic, and launches and other overheads on GPUs
    - `idle_host_w`: the rest of the machine when idle; `busy_host_w`: added by the CPU while it works
    """

    idle_gpu_w: float
    compute_w: float
    memory_w: float
    overhead_w: float
    idle_host_w: float
    busy_host_w: float

    @property
    def idle_w(self) -> float:
        """Return the power while nothing runs."""
        return self.idle_gpu_w + self.idle_host_w

    @property
    def total_w(self) -> float:
        """Return the sum."""
        return self.idle_w + self.compute_w + self.memory_w + self.overhead_w + self.busy_host_w


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyData:
    """The data that energy and CO2 are computed from; without its data, a figure is not known."""

    gpu: GpuPower | None = None
    cpu: CpuPowers | None = None
    grids: Grids | None = None
