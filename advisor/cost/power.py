"""Computes the power of machines, the energy of a job on each offer, and the CO2 of the grid there."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from advisor.cost.job_cost import JobCosts
from advisor.cost.offer_terms import OfferTerms
from advisor.cost.service import of_plans
from advisor.records.answer import Job
from advisor.records.device import Device
from advisor.records.energy import CpuPowers, EnergyData, GpuPower, Grid, Watts
from advisor.records.prediction import USES, FloatArray, IndexArray, Predictions
from advisor.records.price import Offer, PricedOffer

JOULES_PER_KWH = 3.6e6
_GRAMS_PER_KG = 1e3
WATTS_PER_KW = 1e3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MachinePower:
    """Watts of one machine of each offer, (offers,), NaN where they are not known; the fields are those of `Watts`.

    `log_spread` and `idle_log_spread` are standard deviations of log(measured / predicted) of `load_w` and of `idle_w`.
    """

    idle_gpu_w: FloatArray
    compute_w: FloatArray
    memory_w: FloatArray
    overhead_w: FloatArray
    idle_host_w: FloatArray
    busy_host_w: FloatArray
    log_spread: FloatArray
    idle_log_spread: FloatArray

    @property
    def idle_w(self) -> FloatArray:
        """Return the watts while nothing runs."""
        return self.idle_gpu_w + self.idle_host_w

    @property
    def load_w(self) -> FloatArray:
        """Return the watts while the step runs."""
        return self.idle_w + self.compute_w + self.memory_w + self.overhead_w + self.busy_host_w

    def parts(self) -> list[Watts | None]:
        """Return the watts of each offer; None where they are not known."""
        names = [one.name for one in fields(Watts)]
        rows = np.stack([getattr(self, name) for name in names], axis=1).tolist()
        known = (~np.isnan(self.load_w)).tolist()
        return [
            Watts(**dict(zip(names, row, strict=True))) if is_known else None
            for row, is_known in zip(rows, known, strict=True)
        ]


def load_ratios(power: GpuPower, uses: Sequence[FloatArray]) -> list[FloatArray]:
    """Return what compute, memory traffic and overheads add to an idle GPU's power, over its limit.

    `uses` are their shares of the step's time, which may overlap. Each draws its power for its share of the time; the
    power limit bounds the sum.
    """
    coefficients = (power.compute_ratio, power.memory_ratio, power.overhead_ratio)
    loads = [coefficient * use for coefficient, use in zip(coefficients, uses, strict=True)]
    total = sum(loads, start=np.zeros_like(loads[0]))
    most = power.most_ratio - power.idle_ratio
    kept = np.minimum(1.0, most / np.maximum(total, most))
    return [kept * load for load in loads]


def machine_power(
    priced: Sequence[PricedOffer],
    *,
    device: IndexArray,
    batch: IndexArray,
    predictions: Predictions,
    energy: EnergyData,
) -> MachinePower:
    """Return the power of each offer's machine at this step, given as indices of device and batch, (offers,).

    GPUs that the plan does not use idle. The process of each GPU keeps one vCPU of the host busy, besides those that
    load data; a CPU that computes is busy as a whole. The host has the server's power at the wall, in proportion to its
    cores. While the step runs, a machine draws the power that its owner has measured under load, if there is one; while
    it is idle, the predicted power, at most the measured one.
    """
    count = len(priced)
    if not predictions.devices:
        return MachinePower(**{one.name: np.full(count, np.nan) for one in fields(MachinePower)})
    distinct, place = np.unique(device, return_inverse=True)
    devices = [predictions.devices[index] for index in distinct.tolist()]

    def of_device(value: Callable[[Device], float | None]) -> FloatArray:
        figures = (value(one) for one in devices)
        return np.array([np.nan if one is None else one for one in figures], dtype=np.float64)[place]

    is_gpu = of_device(lambda one: one.kind == "gpu") > 0
    gpus = of_device(lambda one: one.gpu_count) * is_gpu
    tdp_w = np.where(is_gpu, of_device(lambda one: one.tdp_w), 0.0)
    used = is_gpu * of_plans(predictions, lambda plan: plan.gpu_count / plan.machines)[device, batch]
    gpu, of_parts = energy.gpu, [getattr(predictions, name) for name in USES]
    if gpu is None or any(part is None for part in of_parts):
        nothing = np.where(is_gpu, np.nan, 0.0)
        idle_gpu_w, loads_w, gpu_spread = nothing, [nothing] * len(USES), nothing
    else:
        idle_gpu_w = gpus * gpu.idle_ratio * tdp_w
        loads_w = [used * ratio * tdp_w for ratio in load_ratios(gpu, [part[device, batch] for part in of_parts])]
        fitted_on = frozenset(gpu.fitted_on)
        gpu_spread = np.where(of_device(lambda one: one.id in fitted_on), gpu.log_spread, gpu.unseen_log_spread)
    idle_host_w, busy_host_w, host_spread = _host_power(
        priced,
        energy.cpu,
        gpus=gpus,
        cores=of_device(lambda one: one.core_count),
        busy_vcpus=used if predictions.loader_vcpus is None else predictions.loader_vcpus[device, batch],
    )
    gpu_w, host_w = idle_gpu_w + sum(loads_w, start=np.zeros(count)), idle_host_w + busy_host_w
    total_w, idle_w = gpu_w + host_w, idle_gpu_w + idle_host_w
    log_spread = np.hypot(gpu_w * gpu_spread, host_w * host_spread) / total_w
    idle_gpu_spread = 0.0 if gpu is None else gpu.idle_log_spread
    idle_log_spread = np.hypot(idle_gpu_w * idle_gpu_spread, idle_host_w * host_spread) / idle_w
    own_w = np.array([np.nan if one.offer.power_w is None else one.offer.power_w for one in priced])
    is_own = ~np.isnan(own_w)
    idle_ratio = np.where(is_own, np.minimum(1.0, own_w / idle_w), 1.0)
    load_ratio = np.where(is_own, (own_w - idle_ratio * idle_w) / (total_w - idle_w), 1.0)
    log_spread[is_own] = 0.0
    parts_w = [
        idle_ratio * idle_gpu_w,
        *(load_ratio * load_w for load_w in loads_w),
        idle_ratio * idle_host_w,
        load_ratio * busy_host_w,
    ]
    names = (one.name for one in fields(Watts))
    parts = dict(zip(names, parts_w, strict=True))
    return MachinePower(**parts, log_spread=log_spread, idle_log_spread=idle_log_spread)


def _host_power(
    priced: Sequence[PricedOffer],
    powers: CpuPowers | None,
    *,
    gpus: FloatArray,
    cores: FloatArray,
    busy_vcpus: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the idle watts of hosts, what is added while the step runs, and the spread of their sum, (offers,).

    `cores` are those of a machine without `gpus`.
    """
    if powers is None:
        nothing = np.full(len(priced), np.nan)
        return nothing, nothing, nothing
    usual = powers.unknown_vcpus_per_gpu
    vcpus = np.array([np.nan if one.offer.vcpus is None else one.offer.vcpus for one in priced])
    vcpus = np.where(np.isnan(vcpus), usual * gpus, vcpus)
    threads_per_core = np.array([one.offer.usual_threads_per_core for one in priced])
    cores = np.where(gpus > 0, vcpus / threads_per_core, cores)
    busy = np.where(gpus > 0, np.minimum(busy_vcpus / np.maximum(vcpus, 1.0), 1.0), 1.0)
    found = [powers.of(one.offer.cpu) for one in priced]
    idle_w = cores * np.array([one.idle_w_per_core for one in found])
    busy_w = cores * np.array([one.busy_w_per_core for one in found])
    return idle_w, (busy_w - idle_w) * busy, np.array([one.log_spread for one in found])


def grid_of(energy: EnergyData, offer: Offer) -> Grid | None:
    """Return the grid of the offer's region, or the figure that its owner gives; None if neither is known."""
    if offer.gco2_per_kwh is not None:
        return Grid(gco2_per_kwh=offer.gco2_per_kwh, place=offer.id, source="own figure")
    return None if energy.grids is None else energy.grids.regions.get(_grid_key(offer))


def _grid_key(offer: Offer) -> str:
    return f"{offer.provider}/{offer.region}"


def grids_of(energy: EnergyData, offers: Iterable[Offer]) -> Mapping[str, Grid]:
    """Return the grids of the offers by PROVIDER/REGION, or by an offer's id if its owner gives the figure."""
    distinct = {_grid_key(offer) if offer.gco2_per_kwh is None else offer.id: offer for offer in offers}
    grids = ((key, grid_of(energy, offer)) for key, offer in distinct.items())
    return {key: grid for key, grid in grids if grid is not None}


def co2_kg_per_kwh(energy: EnergyData, priced: Sequence[PricedOffer]) -> FloatArray:
    """Return the CO2 of a kWh at the machine, with the PUE of the data centre where it is published; NaN if unknown."""
    return np.array(
        [
            np.nan if grid is None else grid.gco2_per_kwh * (grid.pue or 1.0) / _GRAMS_PER_KG
            for grid in (grid_of(energy, one.offer) for one in priced)
        ]
    )


def energy_kwh(costs: JobCosts, *, terms: OfferTerms, power: MachinePower, job: Job) -> tuple[FloatArray, FloatArray]:
    """Return the energy of all machines while they compute and while they are idle, (offers,) each.

    It is that of the job, or of a month of the service. A machine that starts, or waits for requests, is idle. The wait
    for an instance, and time that is only billed, use no energy. NaN for an offer that cannot do the job.
    """
    on_s = np.where(np.isfinite(costs.job_s), costs.job_s, np.nan) - terms.wait_s
    start_up_s = terms.start_up_s if job.requests_per_day is None else 0.0
    busy_s = np.maximum(on_s * (1 - costs.idle_ratio) - start_up_s, 0.0)
    machine_kwh = costs.instance_count / JOULES_PER_KWH
    return machine_kwh * power.load_w * busy_s, machine_kwh * power.idle_w * (on_s - busy_s)


def why_unknown(energy: EnergyData, offer: Offer) -> str:
    """Return why the CO2 of an offer is not known."""
    if grid_of(energy, offer) is None:
        return f"the CO2 of the grid is not known in {offer.provider} {offer.region}"
    return f"the power of its {offer.gpu or offer.cpu or 'machine'} is not known"
