"""Defines a task that runs a program on rented machines, independent of the launcher."""

from dataclasses import dataclass

from advisor.records.answer import QuotedDevice
from advisor.records.device import Architecture
from advisor.records.price import PriceKind, Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchMachine:
    """The machines to rent: `instance_count` of one type, with one process per GPU for `gpus_used` GPUs in all.

    - `gpu_vendor`: as in the GPU's profile; "" for a CPU
    - `has_part`: its GPU is a part of one, such as a vGPU
    - `architecture`: of the CPU; None if not known, which counts as x86
    - `vcpus`: of one machine; None if not known
    - `peak_memory_bytes`: predicted for one device; 0 if nothing was predicted
    """

    provider: str
    tier: Tier
    region: str
    instance: str
    device: QuotedDevice
    price_kind: PriceKind
    gpu_vendor: str
    has_part: bool = False
    instance_count: int = 1
    gpus_used: int = 1
    architecture: Architecture | None = None
    vcpus: int | None = None
    peak_memory_bytes: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTask:
    """A program to run on rented machines.

    - `setup`: shell commands to run first
    - `script`: file or module with its arguments, run by `interpreter`
    - `python`: a version such as "3.11"
    - `folder`: the folder copied to each machine, in which the commands run, relative to the task file's folder
    - `variables`: environment variables of this machine that the program reads
    - `port`: of a service, the port on which it listens; None for a task that ends
    - `replica_count`: of a service, the number of machines, each with the whole program
    - `max_duration_s`: None if the length of the job is not known
    - `max_usd_per_hour`: limit for one machine
    - `alternatives`: the next best machines that run the same commands, in the same region at the same kind of price
    - `image`: a container image that has the folder; "" for one that has Python only
    """

    name: str
    machine: LaunchMachine
    setup: tuple[str, ...]
    script: str
    python: str
    folder: str
    idle_minutes: int
    max_duration_s: float | None = None
    max_usd_per_hour: float | None = None
    interpreter: str = "python"
    variables: tuple[str, ...] = ()
    port: int | None = None
    replica_count: int = 1
    alternatives: tuple[LaunchMachine, ...] = ()
    image: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFile:
    """The text of a task file, the command that runs it (without the file name), and notes for the user."""

    text: str
    command: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetTask:
    """The task file that calibrates one machine type; `name` names the file and the rented machine."""

    name: str
    text: str
