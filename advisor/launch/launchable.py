"""What is to be rented and an engine's names of GPUs in, why the engine cannot launch it out."""

from collections.abc import Collection, Mapping

from advisor.records.answer import Quote
from advisor.records.launch_task import LaunchMachine

TYPED_PROVIDERS = frozenset({"aws", "azure", "gcp"})
"""Their own names of machines are ours; of other providers a machine is found by its GPU."""


def machine_of(quote: Quote) -> LaunchMachine:
    """The machines that a quote is of."""
    return LaunchMachine(
        provider=quote.provider,
        tier=quote.tier,
        region=quote.region,
        instance=quote.instance,
        device=quote.device,
        price_kind=quote.price_kind,
        instance_count=quote.instance_count,
        gpus_used=quote.gpus_used,
    )


def why_unknown(machine: LaunchMachine, *, providers: Collection[str], gpu_names: Mapping[str, str]) -> str:
    """Which of the machine's names the engine does not have; "" where it has all."""
    if machine.provider not in providers:
        return f"it knows no {machine.provider}"
    if machine.tier == "marketplace":
        return "a marketplace's hosts are not of one kind"
    if machine.device.kind == "gpu" and machine.device.id not in gpu_names:
        return f"it has no name for the {machine.device.name}"
    if machine.device.kind == "cpu" and machine.provider not in TYPED_PROVIDERS:
        return f"{machine.provider}'s machines are known to it by their GPUs"
    return ""


def own_type(machine: LaunchMachine) -> str | None:
    """The provider's own name of the machine, where it is known; Google's GPUs stand beside it, not in it."""
    return machine.instance.partition("+")[0] if machine.provider in TYPED_PROVIDERS else None
