"""Describes this machine as its operating system and torch report it, and the results of its checkup."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from advisor.records.device import Cpu, Device, Gpu

BUS_ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""Environment that makes CUDA number GPUs like the driver; by default it puts the fastest GPU first."""
LOCAL = "local"
"""The name of this machine in `--device`, and the provider of its quotes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalGpu:
    """One GPU that torch can use on this machine; None means that the value could not be read.

    - `id`: torch's name for it, "cuda:0" or "mps"
    - `memory_bytes`: memory that a process can use
    """

    id: str
    name: str
    memory_bytes: float | None = None
    driver: str | None = None
    power_limit_w: float | None = None
    uuid: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The resources that this process may use; None means that the value could not be read, and `notes` say why.

    - `cpu_name`: the name in /proc/cpuinfo
    - `cpu_signature`: vendor, family and model from CPUID ("AuthenticAMD 26 2"), or implementer and part of an Arm core
      ("0x41 0xd0c"); it identifies the CPU if a virtual machine hides the name
    - `core_count`: physical cores, on a hybrid CPU only performance cores, within the affinity mask and the cgroup's
      CPU quota of this process; fractional if the quota is
    - `thread_count`: hardware threads within the same limits
    - `affinity_count`: hardware threads of the affinity mask alone; None: the same as `thread_count`
    - `base_hz`: rated clock of all cores
    - `boost_hz`: highest clock of a single core
    - `l2_bytes`, `l3_bytes`: all caches that these cores can use
    - `memory_bytes`: the lower of the machine's memory and the cgroup's limit
    """

    cpu_name: str | None = None
    cpu_signature: str | None = None
    isa: tuple[str, ...] = ()
    core_count: float
    thread_count: int
    affinity_count: int | None = None
    base_hz: float | None = None
    boost_hz: float | None = None
    l2_bytes: float | None = None
    l3_bytes: float | None = None
    memory_bytes: float | None = None
    is_virtual: bool = False
    gpus: tuple[LocalGpu, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchSeen:
    """Values that torch reports: its version, the number of threads of its operators, and its GPUs.

    If torch could not be asked, `problem` says why and `version` is "".
    """

    version: str = ""
    thread_count: int = 0
    gpus: tuple[LocalGpu, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalDevice:
    """A device of this machine.

    - `id`: torch's name for it, "cpu", "cuda:0" or "mps"
    - `thread_count`: hardware threads of the host that this process may use
    - `device`: what this process may use of it; None if it cannot be predicted, for the reason in `note`
    - `profile`: None if no profile describes it; `device` is then estimated from similar devices, with their spread in
      `Device.log_spread`
    - `affinity_count`: as in `Machine`
    - `uuid`: set for a GPU
    """

    id: str
    name: str
    thread_count: int
    device: Device | None
    profile: Gpu | Cpu | None
    note: str = ""
    affinity_count: int | None = None
    uuid: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """This machine, what torch reports, and the devices with their profiles.

    - `calibrated_at`: time (UTC, ISO 8601) of the calibration in use, by the id of `LocalDevice.device`
    - `others`: profiles of other devices, if requested
    - `notes`: notes about the machine, torch and calibrations that could not be read
    """

    machine: Machine
    torch: TorchSeen
    devices: tuple[LocalDevice, ...]
    calibrated_at: Mapping[str, str]
    others: tuple[Gpu | Cpu, ...]
    notes: tuple[str, ...]


CheckState = Literal["ok", "note", "missing", "fails"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of one check.

    - `state`: "note" is information; "missing" means that ranking works without it; "fails" means that it does not
    - `remedy`: what the user can do, if anything
    """

    name: str
    state: CheckState
    found: str
    remedy: str = ""
