"""Adds data loading to predicted steps, from the time that one vCPU takes to load a sample.

Workers on all vCPUs load the next batches while the step runs (PyTorch's `DataLoader` with `num_workers`). The process
of each GPU keeps one vCPU busy: it dispatches, or spins until the GPU is done (CUDA runtime API,
`cudaDeviceScheduleAuto`). A host with no vCPU left loads on one. So a step takes the longer of the GPU's time and the
loading time.
Without workers (`num_workers=0`) the process of each GPU loads its share of a batch before its step.
A CPU computes and loads on the same cores. If loading gets a share x of them, computing takes T / (1 - x) and loading
L / x, where T and L are the times on all cores. Neither waits for the other at x = L / (T + L), and both take T + L.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from advisor.records.answer import BOUNDS
from advisor.records.device import Device
from advisor.records.prediction import USES, FloatArray, IndexArray, Predictions

_HOST_VCPUS = 1.0
"""vCPUs of the host that do not load data, per GPU in use."""


def loading_s(
    devices: Sequence[Device],
    *,
    batches: IndexArray,
    loader_s_per_sample: float,
    loader_workers: int | None = None,
    machines: FloatArray | float = 1.0,
    gpus: FloatArray | float = 1.0,
) -> FloatArray:
    """Return the seconds to load a batch, (devices, batches); infinite if the vCPU count is unknown.

    The batch is split over `machines`, each with `gpus` in use, whose processes have `loader_workers` each.
    """
    all_vcpus = np.array([device.vcpu_count or 0.0 for device in devices])[:, np.newaxis]
    is_gpu = np.array([device.kind == "gpu" for device in devices], dtype=np.bool_)[:, np.newaxis]
    hosting = 0.0 if loader_workers == 0 else _HOST_VCPUS * gpus  # without workers, the GPUs' own processes load
    vcpus = np.where(is_gpu, np.maximum(all_vcpus - hosting, np.minimum(all_vcpus, 1.0)), all_vcpus)
    if loader_workers is not None:  # a machine whose vCPUs are not known is taken to have one for each worker
        asked = max(1, loader_workers) * gpus
        vcpus = np.where(all_vcpus > 0, np.minimum(vcpus, asked), asked)
    work_s = np.broadcast_to(batches * loader_s_per_sample / machines, (len(devices), len(batches)))
    seconds: FloatArray = np.divide(work_s, vcpus, out=np.full(work_s.shape, np.inf), where=vcpus > 0)
    return seconds


def with_loader(
    predictions: Predictions, *, loader_s_per_sample: float, loader_workers: int | None = None
) -> Predictions:
    """Return the predictions with data loading on the devices' own machines.

    Each process has `loader_workers`, by default one for each vCPU; with 0 it loads a batch before its step.
    The loading time is the user's figure and has no error. A device with an unknown number of vCPUs fits nothing.
    """
    machines, gpus = _machines_and_gpus(predictions)
    load = partial(
        loading_s,
        predictions.devices,
        batches=predictions.batches,
        loader_s_per_sample=loader_s_per_sample,
        machines=machines,
        gpus=gpus,
    )
    load_s = load(loader_workers=loader_workers)
    is_gpu = np.array([device.kind == "gpu" for device in predictions.devices], dtype=np.bool_)[:, np.newaxis]
    # Of all the cores of a CPU.
    shared_s = np.where(is_gpu, 0.0, load() if loader_workers is None else np.minimum(load(), load_s))

    def fed(alone_s: FloatArray, load_s: FloatArray = load_s) -> FloatArray:
        if loader_workers == 0:
            return alone_s + load_s
        return np.maximum(alone_s + shared_s, load_s)

    alone_s = predictions.step_s
    step_s = fed(alone_s)
    in_use = np.divide(alone_s, step_s, out=np.ones_like(step_s), where=np.isfinite(step_s))
    # The share of a relative error of the device's time that reaches the step.
    share = in_use if loader_workers == 0 else np.where(load_s > alone_s + shared_s, 0.0, in_use)
    is_waiting = load_s > alone_s
    uses = {name: getattr(predictions, name) for name in USES}
    work_s = predictions.batches * loader_s_per_sample
    scaling = predictions.scaling
    if scaling is not None:  # one GPU waits for its loader, too
        one_gpu_s = fed(
            scaling.efficiency_ratio * gpus * machines * alone_s,
            load(machines=1.0, gpus=1.0, loader_workers=loader_workers),
        )
        ratio = np.divide(one_gpu_s, gpus * machines * step_s, out=np.ones_like(step_s), where=np.isfinite(step_s))
        scaling = replace(scaling, efficiency_ratio=ratio)
    return replace(
        predictions,
        step_s=step_s,
        step_low_s=fed(predictions.step_low_s),
        step_high_s=fed(predictions.step_high_s),
        log_spread=predictions.log_spread * share,
        own_log_spread=predictions.own_log_spread * share,
        host_log_spread=None if predictions.host_log_spread is None else predictions.host_log_spread * share,
        bound=np.where(is_waiting, BOUNDS.index("loader"), predictions.bound),
        fits=predictions.fits & np.isfinite(load_s),
        **{name: ratio * in_use for name, ratio in uses.items() if ratio is not None},
        scaling=scaling,
        loader_vcpus=np.where(is_gpu, _HOST_VCPUS * gpus + work_s / machines / alone_s, work_s / step_s),
    )


def _machines_and_gpus(predictions: Predictions) -> tuple[FloatArray, FloatArray]:
    """Return the number of machines that load the batch and of GPUs in use on each, (devices, batches)."""
    scaling = predictions.scaling
    if scaling is None:
        ones = np.ones((len(predictions.devices), len(predictions.batches)))
        return ones, ones
    machines = np.array([plan.machines for plan in scaling.plans], dtype=np.float64)[scaling.plan]
    gpus = np.array([plan.gpu_count for plan in scaling.plans], dtype=np.float64)
    return machines, gpus[scaling.plan] / machines
