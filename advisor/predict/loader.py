"""Predicted steps and how long one vCPU takes to load a sample in, steps that wait for their data out.

Workers on all vCPUs load the next batches while the step runs (PyTorch's `DataLoader` with `num_workers`). Each GPU's
process keeps one vCPU for itself: it dispatches, or spins until the GPU is done (CUDA runtime API,
`cudaDeviceScheduleAuto`).
So a step takes the longer of the GPU's time and the loading. A CPU computes and loads on the same cores: where loading
has the share x of them, computing takes T / (1 - x) and loading L / x, with T and L their times on all of them. Neither
waits for the other at x = L / (T + L), and then both take T + L.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from advisor.records.answer import BOUNDS
from advisor.records.device import Device
from advisor.records.prediction import FloatArray, IndexArray, Predictions

_HOST_VCPUS = 1.0
"""Of the host, those that do not load for each GPU in use."""


def loading_s(
    devices: Sequence[Device],
    *,
    batches: IndexArray,
    loader_s_per_sample: float,
    machines: FloatArray | float = 1.0,
    gpus: FloatArray | float = 1.0,
) -> FloatArray:
    """Seconds that loading a batch takes on the vCPUs that may do so, (devices, batches); infinite where not known.

    `machines` share it, and `gpus` of each are in use.
    """
    all_vcpus = np.array([device.vcpu_count or 0.0 for device in devices])[:, np.newaxis]
    is_gpu = np.array([device.kind == "gpu" for device in devices], dtype=np.bool_)[:, np.newaxis]
    hosting = _HOST_VCPUS * gpus
    vcpus = np.where(is_gpu & (all_vcpus > hosting), all_vcpus - hosting, all_vcpus)
    work_s = np.broadcast_to(batches * loader_s_per_sample / machines, (len(devices), len(batches)))
    seconds: FloatArray = np.divide(work_s, vcpus, out=np.full(work_s.shape, np.inf), where=vcpus > 0)
    return seconds


def with_loader(predictions: Predictions, *, loader_s_per_sample: float) -> Predictions:
    """The same steps, fed by their own machines. How long loading takes is the user's figure and has no error.

    A device whose vCPUs are not known fits nothing.
    """
    machines, gpus = _machines_and_gpus(predictions)
    load_s = loading_s(
        predictions.devices,
        batches=predictions.batches,
        loader_s_per_sample=loader_s_per_sample,
        machines=machines,
        gpus=gpus,
    )
    is_gpu = np.array([device.kind == "gpu" for device in predictions.devices], dtype=np.bool_)[:, np.newaxis]

    def fed(alone_s: FloatArray) -> FloatArray:
        return np.where(is_gpu, np.maximum(alone_s, load_s), alone_s + load_s)

    alone_s = predictions.step_s
    step_s = fed(alone_s)
    # How much of a relative error of the device's time reaches the step.
    share = np.divide(alone_s, step_s, out=np.ones_like(step_s), where=np.isfinite(step_s))
    share = np.where(is_gpu & (share < 1), 0.0, share)
    is_waiting = load_s > alone_s
    work_s = predictions.batches * loader_s_per_sample
    return replace(
        predictions,
        step_s=step_s,
        step_low_s=fed(predictions.step_low_s),
        step_high_s=fed(predictions.step_high_s),
        log_spread=predictions.log_spread * share,
        own_log_spread=predictions.own_log_spread * share,
        bound=np.where(is_waiting, BOUNDS.index("loader"), predictions.bound),
        fits=predictions.fits & np.isfinite(load_s),
        loader_vcpus=np.where(is_gpu, _HOST_VCPUS * gpus + work_s / machines / alone_s, work_s / step_s),
    )


def _machines_and_gpus(predictions: Predictions) -> tuple[FloatArray, FloatArray]:
    """How many machines load the batch, and how many GPUs of each have a process of their own, (devices, batches)."""
    scaling = predictions.scaling
    if scaling is None:
        ones = np.ones((len(predictions.devices), len(predictions.batches)))
        return ones, ones
    machines = np.array([plan.machines for plan in scaling.plans], dtype=np.float64)[scaling.plan]
    gpus = np.array([plan.data * plan.tensor * plan.pipeline for plan in scaling.plans], dtype=np.float64)
    return machines, gpus[scaling.plan] / machines
