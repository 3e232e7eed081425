"""A request and the memory that is free in, a refusal out where its step would not fit."""

from advisor.calibrate.step_request import MeasureRequest
from advisor.errors import UsageError
from advisor.units import format_bytes


def check_room(request: MeasureRequest, *, free_bytes: float | None) -> None:
    """Raise `UsageError` where less is free on the device than the step is predicted to need; None: not known."""
    if free_bytes is not None and request.needed_bytes > free_bytes:
        raise UsageError(
            f"its step needs {format_bytes(request.needed_bytes)} with a copy of the parameters, "
            f"{format_bytes(free_bytes)} are free",
            hint="choose a smaller batch",
        )
