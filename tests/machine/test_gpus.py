"""GPUs by NVML and by nvidia-smi, each played by a stand-in: what they say, and what they refuse."""

import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from advisor.machine.gpus import read_nvidia_gpus
from advisor.records.machine import LocalGpu
from tests.says import assert_says

SMI_LINES = """GPU-aaaa, NVIDIA GeForce RTX 4090, 24564, 550.54.14, 450.00, [N/A]
GPU-bbbb, NVIDIA A100-SXM4-40GB, 40960, 550.54.14, 400.00, Disabled
"""


class NvmlError(Exception):
    """As `pynvml.NVMLError`."""


class Nvml(ModuleType):
    """The part of `pynvml` that is asked: handles are the indices of `cards`."""

    NVMLError = NvmlError

    def __init__(self, *cards: dict[str, Any], starts: bool = True) -> None:
        super().__init__("pynvml")
        self.cards, self.starts, self.is_shut_down = cards, starts, False

    def nvmlInit(self) -> None:  # noqa: N802 - NVML's own names
        if not self.starts:
            raise NvmlError("Driver Not Loaded")

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.is_shut_down = True

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "550.54.14"

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def __getattr__(self, name: str) -> Any:
        def ask(handle: int) -> Any:
            if name not in self.cards[handle]:
                raise NvmlError("Not Supported")
            return self.cards[handle][name]

        return ask


RTX_4090 = {
    "nvmlDeviceGetName": "NVIDIA GeForce RTX 4090",
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=25757220864),
    "nvmlDeviceGetEnforcedPowerLimit": 350_000,
    "nvmlDeviceGetUUID": "GPU-aaaa",
}


@pytest.fixture(autouse=True)
def no_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As on a machine without an NVIDIA driver."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def install_nvml(monkeypatch: pytest.MonkeyPatch, nvml: Nvml) -> Nvml:
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    return nvml


def install_smi(folder: Path, *, prints: str, code: int = 0) -> None:
    program = folder / "nvidia-smi"
    (folder / "answer").write_text(prints)
    program.write_text(f'#!/bin/sh\nwhile IFS= read -r line; do echo "$line"; done < {folder}/answer\nexit {code}\n')
    program.chmod(0o755)


def test_without_a_driver_there_are_none_and_it_is_said() -> None:
    found = read_nvidia_gpus()

    assert found.gpus == ()
    (note,) = found.notes
    assert_says(note, "no NVIDIA driver", "NVML", "nvidia-smi")


def test_nvml_tells_memory_driver_and_power_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = install_nvml(monkeypatch, Nvml(RTX_4090))

    found = read_nvidia_gpus()

    assert found.gpus == (
        LocalGpu(
            id="cuda:0",
            name="NVIDIA GeForce RTX 4090",
            memory_bytes=25757220864.0,
            driver="550.54.14",
            power_limit_w=350.0,
            uuid="GPU-aaaa",
        ),
    )
    assert nvml.is_shut_down


def test_what_nvml_may_not_tell_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    install_nvml(monkeypatch, Nvml({"nvmlDeviceGetName": "NVIDIA T4"}))

    (gpu,) = read_nvidia_gpus().gpus

    assert (gpu.memory_bytes, gpu.power_limit_w, gpu.uuid) == (None, None, None)


def test_nvml_without_permission_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = install_nvml(monkeypatch, Nvml({}))  # the card has not even a name

    found = read_nvidia_gpus()

    (note,) = found.notes
    assert found.gpus == ()
    assert_says(note, "NVML", "Not Supported")
    assert nvml.is_shut_down


def test_where_nothing_answers_nvmls_own_words_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    install_nvml(monkeypatch, Nvml(starts=False))

    (note,) = read_nvidia_gpus().notes

    assert_says(note, "NVML", "nvidia-smi", "NVML: Driver Not Loaded")


def test_where_nvml_does_not_start_nvidia_smi_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install_nvml(monkeypatch, Nvml(starts=False))
    install_smi(tmp_path, prints=SMI_LINES)

    found = read_nvidia_gpus()

    assert [(gpu.id, gpu.name) for gpu in found.gpus] == [
        ("cuda:0", "NVIDIA GeForce RTX 4090"),
        ("cuda:1", "NVIDIA A100-SXM4-40GB"),
    ]
    assert found.gpus[1].memory_bytes == 40 * 2**30  # 40,960 MiB
    assert found.gpus[1].power_limit_w == 400.0


def test_nvidia_smi_that_fails_is_quoted(tmp_path: Path) -> None:
    install_smi(tmp_path, prints="NVIDIA-SMI has failed because it couldn't communicate with the driver.\n", code=9)

    found = read_nvidia_gpus()

    assert found.gpus == ()
    assert found.notes[0].startswith("nvidia-smi failed: NVIDIA-SMI has failed")


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        ("1,0", ["cuda:0 NVIDIA A100-SXM4-40GB", "cuda:1 NVIDIA GeForce RTX 4090"]),
        ("GPU-bb", ["cuda:0 NVIDIA A100-SXM4-40GB"]),
        ("0,7,1", ["cuda:0 NVIDIA GeForce RTX 4090"]),  # what follows a wrong index is invisible
        ("", []),
        ("-1", []),
    ],
)
def test_cuda_visible_devices_chooses_and_orders(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, visible: str, names: list[str]
) -> None:
    install_smi(tmp_path, prints=SMI_LINES)
    monkeypatch.setitem(os.environ, "CUDA_VISIBLE_DEVICES", visible)

    assert [f"{gpu.id} {gpu.name}" for gpu in read_nvidia_gpus().gpus] == names


def test_a_gpu_divided_by_mig_is_left_out_and_said(tmp_path: Path) -> None:
    install_smi(tmp_path, prints=SMI_LINES.replace("Disabled", "Enabled"))

    found = read_nvidia_gpus()

    assert [gpu.id for gpu in found.gpus] == ["cuda:0"]
    (note,) = found.notes
    assert_says(note, "cuda:1", "NVIDIA A100-SXM4-40GB", "MIG")
