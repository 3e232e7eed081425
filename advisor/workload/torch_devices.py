"""Prints torch's version, threads and GPUs as JSON; runs in a child process."""

import json
from typing import Any

import torch


def torch_devices() -> dict[str, Any]:
    """Return torch's version, the thread count of its operators, and the GPUs under torch's names."""
    return {"version": torch.__version__, "thread_count": torch.get_num_threads(), "gpus": [*_cuda(), *_mps()]}


def gpu_uuid(index: int) -> str | None:
    """Return the GPU's UUID as the driver writes it, or None if torch does not report it (before 2.5)."""
    uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None)
    return f"GPU-{uuid}" if uuid else None


def torch_name(name: str, *, uuid: str | None) -> str:
    """Return this process's torch name of the GPU that the driver lists as `name`; their orders may differ."""
    if uuid is None or not torch.cuda.is_available():
        return name
    return next((f"cuda:{index}" for index in range(torch.cuda.device_count()) if gpu_uuid(index) == uuid), name)


def _cuda() -> list[dict[str, Any]]:
    """Return NVIDIA's GPUs, or AMD's in a ROCm build, where torch calls them CUDA too."""
    found = []
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        properties = torch.cuda.get_device_properties(index)
        found.append(
            {
                "id": f"cuda:{index}",
                "name": properties.name,
                "memory_bytes": float(properties.total_memory),
                "driver": f"ROCm {torch.version.hip}" if torch.version.hip else None,
                "uuid": gpu_uuid(index),
            }
        )
    return found


def _mps() -> list[dict[str, Any]]:
    if not torch.backends.mps.is_available():
        return []
    return [{"id": "mps", "name": "Apple GPU", "memory_bytes": float(torch.mps.recommended_max_memory())}]


def main() -> None:
    """Print the devices on one line, the last line of output."""
    print(json.dumps(torch_devices()))  # noqa: T201 - a separate process, whose stdout is the answer
