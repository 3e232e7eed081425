"""Says why an engine cannot launch a machine, and by which name it knows the machine."""

from collections.abc import Collection

from advisor.records.answer import Quote
from advisor.records.launch_task import LaunchMachine

TYPED_PROVIDERS = frozenset({"aws", "azure", "gcp"})
"""Providers whose machines are selected by type name; machines of other providers are selected by GPU."""


def why_unknown(machine: LaunchMachine, *, providers: Collection[str], gpu_names: Collection[str]) -> str:
    """Return why the engine does not know the machine, or "" if it does."""
    if machine.provider not in providers:
        return f"it does not support {machine.provider}"
    if machine.tier == "marketplace":
        return "the hosts of a marketplace differ"
    if machine.has_part and machine.device.id not in gpu_names:
        return f"it asks for whole GPUs only, not for a part such as the {machine.device.name}"
    if machine.device.kind == "gpu" and machine.device.id not in gpu_names:
        return f"it has no name for the {machine.device.name}"
    if machine.device.kind == "cpu" and machine.provider not in TYPED_PROVIDERS:
        return f"it selects machines of {machine.provider} by GPU only"
    return ""


def own_type(machine: LaunchMachine | Quote) -> str | None:
    """Return the provider's type name, or None; for Google, it does not include the attached GPUs."""
    return machine.instance.partition("+")[0] if machine.provider in TYPED_PROVIDERS else None
