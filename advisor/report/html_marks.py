"""Defines the names, colours and symbols of devices and bounds in all plots of a report."""

from collections.abc import Mapping

from advisor.records.answer import Bound
from advisor.records.explained_step import ExplainedStep
from advisor.records.report_contents import CloseLook, Role
from advisor.report.html_parts import (
    Color,
    Symbol,
)
from advisor.report.interval_text import interval_text

BOUND_MARKS: Mapping[Bound, tuple[Color, Symbol]] = {
    "compute": (1, "circle"),
    "memory": (2, "triangle"),
    "launch": (3, "square"),
    "dispatch": (4, "diamond"),
    "transfer": (5, "cross"),
    "loader": (6, "star"),
    "communication": (7, "wye"),
}
ROLE_MARKS: Mapping[Role, tuple[Color, Symbol]] = {
    "best GPU": (1, "triangle"),
    "best CPU": (2, "circle"),
    "at hand": (4, "star"),
}


def device_name(look: CloseLook) -> str:
    """Return the label of a device, such as "best GPU: aws g6.xlarge (L4)"."""
    return f"{look.role}: {look.step.name} ({look.step.device.name})"


def step_time(step: ExplainedStep) -> str:
    """Return the time of a step, such as "10 ms [8-12.5]"."""
    return interval_text(step.step_s)
