"""Run in a child process: nothing in, what torch is and which GPUs it can use on stdout, as JSON."""

import json
from typing import Any

import torch


def torch_devices() -> dict[str, Any]:
    """Version, threads of its operators, and the GPUs by torch's own names."""
    return {"version": torch.__version__, "thread_count": torch.get_num_threads(), "gpus": [*_cuda(), *_mps()]}


def gpu_uuid(index: int) -> str | None:
    """As the driver writes it; None where torch does not say (before 2.5)."""
    uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None)
    return f"GPU-{uuid}" if uuid else None


def torch_name(name: str, *, uuid: str | None) -> str:
    """What torch calls, in this process, the GPU that the driver counts as `name`: they may count in another order."""
    if uuid is None or not torch.cuda.is_available():
        return name
    return next((f"cuda:{index}" for index in range(torch.cuda.device_count()) if gpu_uuid(index) == uuid), name)


def _cuda() -> list[dict[str, Any]]:
    """NVIDIA's, and AMD's in a ROCm build, which torch calls CUDA too."""
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
    """Print them on one line, the last that this process prints."""
    print(json.dumps(torch_devices()))  # noqa: T201 - a process of its own, whose stdout is the answer
