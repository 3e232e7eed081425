"""What the machine at hand is, as far as it says so itself."""

from collections.abc import Mapping
from dataclasses import dataclass

from advisor.records.device import Cpu, Device, Gpu

BUS_ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""For a process that is to count GPUs as the driver does: by itself CUDA puts the fastest of unlike cards first."""
LOCAL = "local"
"""What `--device` calls the machine at hand, and the provider of its quotes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalGpu:
    """One GPU that torch can use here: `id` is torch's name of it, "cuda:0" or "mps".

    `memory_bytes` is what a process can see of it. None: nothing at hand could be asked for it.
    """

    id: str
    name: str
    memory_bytes: float | None = None
    driver: str | None = None
    power_limit_w: float | None = None
    uuid: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What this process may use of the machine it runs on. None: it could not be read; `notes` say why.

    `cpu_name` is what /proc/cpuinfo calls it; `cpu_signature` is vendor, family and model as CPUID counts them
    ("AuthenticAMD 26 2"), or implementer and part of an Arm core ("0x41 0xd0c"): a virtual machine may hide the name.
    `core_count` counts physical cores, of a hybrid CPU the performance cores, and `thread_count` hardware threads; both
    are of this process alone: its affinity mask and its cgroup's CPU quota, a share of a core where the quota is one.
    `affinity_count` are the hardware threads of the mask, whatever the quota; None: as many as `thread_count`.
    The clocks are the rated one of all cores and the highest of one, where the kernel names them. `l2_bytes` and
    `l3_bytes` are of all caches that these cores reach, `memory_bytes` the least of the machine's and its cgroup's.
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
    """What torch says of itself: its version, the threads of its operators and its GPUs.

    `problem` says why it says nothing, and then `version` is "".
    """

    version: str = ""
    thread_count: int = 0
    gpus: tuple[LocalGpu, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalDevice:
    """A device of the machine at hand as far as prediction knows it: `id` is torch's name, "cpu", "cuda:0" or "mps".

    `device` is what this process may use of it, None where nothing can be predicted. Without a `profile` of its own the
    figures are those of others of its kind, and `Device.log_spread` says how far these lie apart. `note` says why.
    `thread_count` is of the host: hardware threads that this process may use, and `affinity_count` as the machine's.
    `uuid` is a GPU's.
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
    """The machine at hand, what torch makes of it, and its devices beside their profiles.

    `calibrated_at` has the time (UTC, ISO 8601) of the calibration in force by the id of `LocalDevice.device`. `others`
    are profiles of devices that are not here, where they were asked for. `notes` are the machine's, torch's, and those
    of calibrations that cannot be read.
    """

    machine: Machine
    torch: TorchSeen
    devices: tuple[LocalDevice, ...]
    calibrated_at: Mapping[str, str]
    others: tuple[Gpu | Cpu, ...]
    notes: tuple[str, ...]
