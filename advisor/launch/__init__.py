"""Makes the values of a task file, with which an engine such as SkyPilot runs a task.

`engines/` has one file per engine, with these names: `command(task)`, the command that runs its file; `PROVIDERS`, the
providers it rents from; `why_not(machine)`, why it cannot launch a machine ("" if it can); `comments(task)`, notes for
the user, such as what happens to an idle machine; and `task_values(task)`, the content of its file.

`skypilot_time_estimator` is public; the rest serves the command line.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from advisor.launch.time_estimator import skypilot_time_estimator

__all__ = ["skypilot_time_estimator"]


def __getattr__(name: str) -> Any:
    """Import the public name on first use, so that `advise --help` does not pay for it."""
    if name in __all__:
        from advisor.launch.time_estimator import skypilot_time_estimator

        return skypilot_time_estimator
    raise AttributeError(f"module 'advisor.launch' has no attribute {name!r}")
