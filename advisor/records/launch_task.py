"""What a task file says, whatever engine reads it."""

from dataclasses import dataclass

from advisor.records.answer import QuotedDevice
from advisor.records.price import PriceKind, Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchMachine:
    """What is rented: `instance_count` machines of one type, and a process for each of `gpus_used` on all of them."""

    provider: str
    tier: Tier
    region: str
    instance: str
    device: QuotedDevice
    price_kind: PriceKind
    instance_count: int = 1
    gpus_used: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTask:
    """A program on rented machines.

    `setup` are lines of shell, and `script` is the end of one that `interpreter` begins, the file or module with its
    arguments; they are run in the folder that is copied to each machine: `folder`, as seen from the task file's.
    `python` is a version such as "3.11".
    `max_duration_s` None: the length of the job is not known. `max_usd_per_hour` is of one machine.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFile:
    """The text of a task file, the command that runs it but for the file's name, and what the user should know."""

    text: str
    command: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetTask:
    """The task file that calibrates one type of machine; `name` is that of the file, and of the rented machine."""

    name: str
    text: str
