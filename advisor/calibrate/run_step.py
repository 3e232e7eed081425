"""Runs and times the real step of a loaded model."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from advisor.calibrate.noise import OthersLoad
from advisor.calibrate.repeat_timing import USUAL_REPEATS, Repeats, time_step
from advisor.calibrate.step_process import MeasureRequest
from advisor.errors import UsageError
from advisor.machine.limits import free_memory_bytes
from advisor.records.device import Layout
from advisor.records.timing import StepTiming
from advisor.workload.companions import companions_of
from advisor.workload.fakes import untouched, with_tensors
from advisor.workload.lazy_modules import initialized
from advisor.workload.loaded import LoadedModel, batch_value, in_mode, loss_of, optimizer_of
from advisor.workload.patching import switched
from advisor.workload.torch_devices import (
    autocast,
    device_problem,
    float32_products,
    synchronizer,
    torch_name,
    whole_dtype,
)

_IMAGE_DIMS = 4


def time_loaded(
    loaded: LoadedModel,
    request: MeasureRequest,
    *,
    repeats: Repeats = USUAL_REPEATS,
    then: Callable[[Callable[[], None]], None] | None = None,
) -> StepTiming:
    """Time some steps of the model on the device, with its inputs on the device already.

    `then` is called with the step after its timing, while the model is still on the device.

    The steps run on copies of the parameters. The model, its buffers, optimizer state, random generators and torch's
    settings are unchanged afterwards. Raises what the model's code raises, and `UsageError` if torch cannot use the
    device or the device has less free memory than the step is predicted to need.
    """
    device = torch.device(torch_name(request.device, uuid=request.gpu_uuid))
    if problem := device_problem(device):
        raise UsageError(problem, hint="`advise doctor` says what is missing")
    request.check_memory(free_bytes=_free_bytes(device))
    loaded = initialized(loaded, mode=request.mode)
    functions = (loaded.loss, loaded.optimizer, loaded.train_step) if request.mode == "training" else ()
    objects = [loaded.model, *companions_of(loaded.model, functions)]
    threads = switched(torch.get_num_threads, torch.set_num_threads, request.thread_count or torch.get_num_threads())
    # torch's math path writes the scores of attention to memory.
    attention = sdpa_kernel(SDPBackend.MATH) if request.attention == "eager" else nullcontext()
    with untouched(objects), float32_products(request.precision), attention:
        dtype = whole_dtype(request.precision)
        with_tensors(objects, partial(_placed, device=device, dtype=dtype, layout=request.layout))
        # A loss makes its labels on the default device; setting the CPU would slow down every operator.
        with nullcontext() if device.type == "cpu" else device, threads:
            step, load = step_of(loaded, request, device=device), OthersLoad()
            timing = time_step(step, budget_s=request.budget_s, batch=request.batch or loaded.batch, repeats=repeats)
            timing = replace(timing, others_cpu_count=load.cpu_count())
            if then is not None:
                then(step)
            return timing


def _free_bytes(device: torch.device) -> float | None:
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    return free_memory_bytes() if device.type == "cpu" else None


def _placed(tensor: torch.Tensor, *, device: torch.device, dtype: torch.dtype | None, layout: Layout) -> torch.Tensor:
    """Return a copy on the device, in the dtype and layout of the timed model."""
    is_image = layout == "nhwc" and tensor.dim() == _IMAGE_DIMS
    values = tensor.detach().to(
        device,
        dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype,
        copy=True,
        memory_format=torch.channels_last if is_image else torch.preserve_format,
    )
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(values, requires_grad=tensor.requires_grad)
    return values


def step_of(loaded: LoadedModel, request: MeasureRequest, *, device: torch.device) -> Callable[[], None]:
    """Return a function that runs one step of a model whose tensors are on the device, and returns when it is done."""
    model = in_mode(loaded.model, request.mode)
    for module in model.modules():
        if isinstance(module, nn.RNNBase):
            module.flatten_parameters()  # cuDNN needs contiguous weights
    # Not `model.compile`, which leaves a bare `nn.Sequential` as it is.
    run: Any = torch.compile(model, dynamic=False) if request.compile == "compile" else model
    place = partial(_placed, device=device, dtype=whole_dtype(request.precision), layout=request.layout)
    args, kwargs = inputs = pytree.tree_map_only(torch.Tensor, place, loaded.make_inputs(request.batch or loaded.batch))
    synchronize, given = synchronizer(device), batch_value(inputs)

    def infer() -> None:
        with torch.inference_mode(), autocast(request.precision, device):
            run(*args, **kwargs)
        synchronize()

    if request.mode == "inference":
        return infer
    if loaded.train_step is not None:
        train_step = loaded.train_step

        def train_by_its_own() -> None:
            with autocast(request.precision, device):
                train_step(run, given)
            synchronize()

        return train_by_its_own
    optimizer = optimizer_of(loaded)

    def train() -> None:
        model.zero_grad()
        with autocast(request.precision, device):
            loss = loss_of(loaded, run(*args, **kwargs), given)
        loss.backward()
        optimizer.step()
        synchronize()

    return train
