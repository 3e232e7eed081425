"""Sets up torch's devices for real runs of a step, and prints them as JSON in a child process."""

import ctypes
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch

from advisor.records.device import Layout, Precision
from advisor.workload.patching import switched


def main() -> None:
    """Print torch's version, its thread count and the GPUs under torch's names as JSON, on the last line of output.

    AMD's GPUs are CUDA devices too in a ROCm build.
    """
    gpus: list[dict[str, Any]] = []
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        properties = torch.cuda.get_device_properties(index)
        gpus.append(
            {
                "id": f"cuda:{index}",
                "name": properties.name,
                "memory_bytes": float(properties.total_memory),
                "driver": f"ROCm {torch.version.hip}" if torch.version.hip else None,
                "uuid": gpu_uuid(index),
            }
        )
    if torch.backends.mps.is_available():
        gpus.append({"id": "mps", "name": "Apple GPU", "memory_bytes": float(torch.mps.recommended_max_memory())})
    seen = {"version": torch.__version__, "thread_count": torch.get_num_threads(), "gpus": gpus}
    print(json.dumps(seen))  # noqa: T201 - a separate process, whose stdout is the answer


def gpu_uuid(index: int) -> str | None:
    """Return the GPU's UUID as the driver writes it, or None if torch does not report it (before 2.5)."""
    uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None)
    return f"GPU-{uuid}" if uuid else None


def torch_name(name: str, *, uuid: str | None) -> str:
    """Return this process's torch name of the GPU that the driver lists as `name`; their orders may differ."""
    if uuid is None or not torch.cuda.is_available():
        return name
    return next((f"cuda:{index}" for index in range(torch.cuda.device_count()) if gpu_uuid(index) == uuid), name)


AUTOCAST_OF: Mapping[torch.dtype | None, Precision] = {torch.float16: "amp-fp16", torch.bfloat16: "amp-bf16"}
HALF_OF: Mapping[torch.dtype | None, Precision] = {torch.float16: "fp16", torch.bfloat16: "bf16"}
"""The precision of a step under autocast to a dtype, and of one whose model is in it."""
_IMAGE_DIMS = 4


def plain_precision() -> Precision:
    """Return what torch's settings for TF32 make of fp32 on a GPU that has it."""
    matmul = torch.backends.cuda.matmul
    if hasattr(matmul, "fp32_precision"):  # since torch 2.9; the older functions fail once this has been set
        conv = torch.backends.cudnn.conv.fp32_precision  # type: ignore[attr-defined]
        return "tf32" if matmul.fp32_precision == "tf32" else "cudnn-tf32" if conv == "tf32" else "fp32"
    if torch.get_float32_matmul_precision() != "highest":
        return "tf32"
    return "cudnn-tf32" if torch.backends.cudnn.allow_tf32 else "fp32"


def layout_of(tensors: Iterable[torch.Tensor]) -> Layout:
    """Return "nhwc" if any image or weight is channels-last."""
    images = (one for one in tensors if one.dim() == _IMAGE_DIMS)
    is_nhwc = any(one.is_contiguous(memory_format=torch.channels_last) and not one.is_contiguous() for one in images)
    return "nhwc" if is_nhwc else "nchw"


def device_problem(device: torch.device) -> str:
    """Return why torch cannot use the device, or "" if it can."""
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        return f"torch {torch.__version__} sees {torch.cuda.device_count()} CUDA devices"
    if device.type == "mps" and not torch.backends.mps.is_available():
        return f"torch {torch.__version__} sees no MPS device"
    return ""


def whole_dtype(precision: Precision) -> torch.dtype | None:
    """Return the dtype to cast the whole model and its inputs to, or None to leave them unchanged."""
    return next((dtype for dtype, half in HALF_OF.items() if half == precision), None)


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[Any]:
    """Return an autocast context for "amp-fp16" and "amp-bf16", and an empty context for other precisions."""
    dtype = next((dtype for dtype, autocast in AUTOCAST_OF.items() if autocast == precision), None)
    return torch.autocast(device.type, dtype=dtype) if dtype else nullcontext()


@contextmanager
def float32_products(precision: Precision) -> Iterator[None]:
    """Allow TF32 inside as the precision says, everywhere or in cuDNN alone."""
    cudnn = torch.backends.cudnn
    setting, allowed = "high" if precision == "tf32" else "highest", precision in ("cudnn-tf32", "tf32")
    with (
        switched(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, setting),
        switched(lambda: cudnn.allow_tf32, partial(setattr, cudnn, "allow_tf32"), allowed),
    ):
        yield


def synchronizer(device: torch.device) -> Callable[[], None]:
    """Return a function that waits until the device has finished all queued work."""
    if device.type == "cuda":
        return lambda: torch.cuda.synchronize(device)
    return torch.mps.synchronize if device.type == "mps" else lambda: None


def keep_freed_memory() -> None:
    """Make glibc keep freed memory by raising M_MMAP_THRESHOLD (-3) and M_TRIM_THRESHOLD (-1) to the maximum.

    Otherwise it returns each freed block above 32 MB to the kernel, and on a virtual machine the page faults of the
    next one can take ten times as long as the operator. All measurements behind the shipped efficiencies use this
    setting. See mallopt(3).
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        for parameter in (-3, -1):
            libc.mallopt(parameter, 2**31 - 1)
