"""Defines the names, colours and symbols of devices and bounds in all plots of a report."""

from collections.abc import Mapping

from advisor.records.answer import Bound
from advisor.records.device import Architecture, DeviceKind
from advisor.records.report_contents import DeviceDetail, Role
from advisor.records.workload import Mode
from advisor.report.content import Color, Symbol

KIND_NAMES: Mapping[DeviceKind, str] = {"cpu": "CPU", "gpu": "GPU"}
STEP_NAMES: Mapping[Mode, str] = {"inference": "an inference step", "training": "a training step"}
KIND_MARKS: Mapping[DeviceKind, tuple[Color, Symbol]] = {"gpu": (1, "triangle"), "cpu": (2, "circle")}
ROLE_MARKS: Mapping[Role, tuple[Color, Symbol]] = {
    "best GPU": KIND_MARKS["gpu"],
    "best CPU": KIND_MARKS["cpu"],
    "at hand": (4, "star"),
}
BOUND_MARKS: Mapping[Bound, tuple[Color, Symbol]] = {
    "compute": (1, "circle"),
    "memory": (2, "triangle"),
    "launch": (3, "square"),
    "dispatch": (4, "diamond"),
    "transfer": (5, "cross"),
    "loader": (6, "star"),
    "communication": (7, "wye"),
}
BOUND_NAMES: Mapping[Bound, str] = {
    "compute": "compute-bound",
    "memory": "bandwidth-bound",
    "launch": "launch-bound",
    "dispatch": "dispatch-bound",
    "transfer": "transfer-bound",
    "loader": "loader-bound",
    "communication": "communication-bound",
}


def detail_name(detail: DeviceDetail) -> str:
    """Return the label of a device, such as "best GPU: aws g6.xlarge (L4)"."""
    return f"{detail.role}: {detail.step.name} ({detail.step.device.name})"


def arm_mark(architecture: Architecture | None) -> str:
    """Return the mark behind the name of a machine with an Arm CPU, for which packages may have no wheel."""
    return " [Arm]" if architecture == "arm" else ""
