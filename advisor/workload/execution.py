"""How a step runs for real: its precision, its end on a device that works by itself, what becomes of freed memory."""

import ctypes
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from advisor.records.device import Precision

_AUTOCAST: Mapping[Precision, torch.dtype] = {"amp-fp16": torch.float16, "amp-bf16": torch.bfloat16}
_WHOLE: Mapping[Precision, torch.dtype] = {"fp16": torch.float16, "bf16": torch.bfloat16}


def device_problem(device: torch.device) -> str:
    """Why torch cannot use the device; "" where it can."""
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        return f"torch {torch.__version__} sees {torch.cuda.device_count()} CUDA devices"
    if device.type == "mps" and not torch.backends.mps.is_available():
        return f"torch {torch.__version__} sees no MPS device"
    return ""


def whole_dtype(precision: Precision) -> torch.dtype | None:
    """What the whole model and its inputs are cast to; None where they stay as they are."""
    return _WHOLE.get(precision)


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[Any]:
    """Autocast where the precision is one of its."""
    dtype = _AUTOCAST.get(precision)
    return torch.autocast(device.type, dtype=dtype) if dtype else nullcontext()


@contextmanager
def float32_products(precision: Precision) -> Iterator[None]:
    """TF32 inside for "tf32", and for nothing else; as it was afterwards."""
    before, cudnn_before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        torch.backends.cudnn.allow_tf32 = cudnn_before


def synchronizer(device: torch.device) -> Callable[[], None]:
    """What waits until the device has done all that was asked of it."""
    if device.type == "cuda":
        return lambda: torch.cuda.synchronize(device)
    return torch.mps.synchronize if device.type == "mps" else lambda: None


def keep_freed_memory() -> None:
    """Let glibc keep what is freed: mallopt(3), its thresholds for M_MMAP (-3) and M_TRIM (-1) as high as they go.

    Else it returns each freed block above 32 MB to the kernel, and the page faults of the next one can take ten times
    what the operator does on a virtual machine. Every measurement that the shipped efficiencies come from does so.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        for parameter in (-3, -1):
            libc.mallopt(parameter, 2**31 - 1)
