"""Refuses to time a step that does not fit in the free memory."""

from advisor.calibrate.step_request import MeasureRequest
from advisor.errors import UsageError
from advisor.units import format_bytes


def check_room(request: MeasureRequest, *, free_bytes: float | None) -> None:
    """Raise `UsageError` if the device has less free memory than the step is predicted to need; None: unknown."""
    if free_bytes is not None and request.needed_bytes > free_bytes:
        raise UsageError(
            f"the step needs {format_bytes(request.needed_bytes)} with a copy of the parameters, but only "
            f"{format_bytes(free_bytes)} are free",
            hint="choose a smaller batch",
        )
