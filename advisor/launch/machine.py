"""A quote and an engine's names of GPUs in, why the engine cannot launch it out."""

from collections.abc import Collection, Mapping

from advisor.records.answer import Quote

TYPED_PROVIDERS = frozenset({"aws", "azure", "gcp"})
"""Their own names of machines are ours; of other providers a machine is found by its GPU."""


def why_unknown(quote: Quote, *, providers: Collection[str], gpu_names: Mapping[str, str]) -> str:
    """Which of the quote's names the engine does not have; "" where it has all."""
    if quote.provider not in providers:
        return f"it knows no {quote.provider}"
    if quote.tier == "marketplace":
        return "a marketplace's hosts are not of one kind"
    if quote.device.kind == "gpu" and quote.device.id not in gpu_names:
        return f"it has no name for the {quote.device.name}"
    if quote.device.kind == "cpu" and quote.provider not in TYPED_PROVIDERS:
        return f"{quote.provider}'s machines are known to it by their GPUs"
    return ""


def own_type(quote: Quote) -> str | None:
    """The provider's own name of the machine, where it is known; Google's GPUs stand beside it, not in it."""
    return quote.instance.partition("+")[0] if quote.provider in TYPED_PROVIDERS else None
