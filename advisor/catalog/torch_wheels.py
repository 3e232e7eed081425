"""Finds the wheel of PyTorch that an offer needs: which one has code for its GPU and its CPU's architecture."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from advisor.catalog.device_files import read_by_key
from advisor.records.device import Architecture, Cpu, Gpu
from advisor.records.price import Offer, TorchWheel

_ARM_ISA = "asimd"
"""Linux lists it for every Arm CPU of 64 bits (docs.kernel.org/arch/arm64/elf_hwcaps.html)."""
_NAMES: Mapping[Architecture, str] = {"x86": "x86", "arm": "Arm"}
_WITH_PTX = "+PTX"
_CAPABILITY = re.compile(r"\d+\.\d+")
"""A GPU of the user's own may have another text there, and AMD's have none: nothing is said of their wheels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelCode:
    """The compute capabilities in the wheels of one torch release and CUDA version, by architecture of the CPU.

    They are separated by spaces and written as in TORCH_CUDA_ARCH_LIST; "" means that there is no such wheel.
    """

    x86: str = ""
    arm: str = ""

    def runs_on(self, compute_capability: str, architecture: Architecture) -> bool:
        """Return whether the wheel has code for the GPU: of its major version, or PTX, and no newer than the GPU."""
        major, minor = _version(compute_capability)
        for code in getattr(self, architecture).split():
            code_major, code_minor = _version(code.removesuffix(_WITH_PTX))
            if (code_major == major and code_minor <= minor) or (code.endswith(_WITH_PTX) and code_major < major):
                return True
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchRelease:
    """The wheels of one release by CUDA version; `pypi_x86` and `pypi_arm` name the version of `pip install torch`."""

    cuda: Mapping[str, WheelCode]
    source: str
    pypi_x86: str = ""
    pypi_arm: str = ""

    def wheels(self, architecture: Architecture) -> list[str]:
        """Return the CUDA versions in order of preference: PyPI's, then the newest."""
        on_pypi = getattr(self, f"pypi_{architecture}")
        return sorted(self.cuda, key=lambda cuda: (cuda == on_pypi, _version(cuda)), reverse=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchWheels:
    """The releases of PyTorch, newest first."""

    releases: Mapping[str, TorchRelease]

    def needed(self, compute_capability: str, architecture: Architecture) -> TorchWheel | None:
        """Return the first wheel with code for the GPU, in the newest release that has one; None if none has."""
        for torch, release in self.releases.items():
            for cuda in release.wheels(architecture):
                if release.cuda[cuda].runs_on(compute_capability, architecture):
                    return TorchWheel(torch=torch, cuda=cuda)
        return None

    def is_default(self, wheel: TorchWheel, architecture: Architecture) -> bool:
        """Return whether `pip install torch` installs the wheel: PyPI's of the newest release."""
        torch, release = next(iter(self.releases.items()))
        return wheel == TorchWheel(torch=torch, cuda=getattr(release, f"pypi_{architecture}"))


def read_torch_wheels(file: Path) -> TorchWheels:
    """Return the releases of the file, newest first; raise `ProfileError` at the first mistake."""
    releases = read_by_key(TorchRelease, file)
    return TorchWheels(releases=dict(sorted(releases.items(), key=lambda item: _version(item[0]), reverse=True)))


def with_wheels(
    offers: Iterable[Offer], wheels: TorchWheels, *, gpus: Mapping[str, Gpu], cpus: Mapping[str, Cpu]
) -> list[Offer]:
    """Return the offers with the architecture of their CPU, and the wheel that they need or why there is none."""
    return [
        _with_wheel(offer, wheels, gpu=gpus.get(offer.gpu or ""), cpu=cpus.get(offer.cpu or "")) for offer in offers
    ]


def _with_wheel(offer: Offer, wheels: TorchWheels, *, gpu: Gpu | None, cpu: Cpu | None) -> Offer:
    architecture = gpu.host_architecture if gpu else None
    if cpu is not None:
        architecture = "arm" if _ARM_ISA in cpu.isa else "x86"
    offer = replace(offer, architecture=architecture, stack=gpu.stack if gpu else None)
    capability = gpu.compute_capability if gpu else None
    if gpu is None or capability is None or not _CAPABILITY.fullmatch(capability):
        return offer
    assumed: Architecture = architecture or "x86"
    wheel = wheels.needed(capability, assumed)
    if wheel is None:
        return replace(offer, no_wheel=f"{gpu.name} (sm_{capability.replace('.', '')}) on {_NAMES[assumed]}")
    return offer if wheels.is_default(wheel, assumed) else replace(offer, wheel=wheel)


def _version(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor)
