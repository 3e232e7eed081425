"""What a task file says, whatever engine reads it."""

from dataclasses import dataclass

from advisor.records.answer import Quote


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTask:
    """The user's script on the instances of a quote.

    `setup` are lines of shell and `script` is the end of one, the file with its arguments; they are run in the folder
    that is copied to each machine: `folder`, as seen from the task file's. `python` is a version such as "3.11".
    `max_duration_s` None: the length of the job is not known. `max_usd_per_hour` is of one machine.
    """

    name: str
    quote: Quote
    setup: tuple[str, ...]
    script: str
    python: str
    folder: str
    idle_minutes: int
    max_duration_s: float | None
    max_usd_per_hour: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFile:
    """The text of a task file, the command that runs it but for the file's name, and what the user should know."""

    text: str
    command: str
    notes: tuple[str, ...]
