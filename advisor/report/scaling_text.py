"""A quote in, how its step is spread over several GPUs out, as a sentence."""

from collections.abc import Iterator, Mapping

from advisor import units
from advisor.records.answer import Job, Quote
from advisor.records.scale import Plan, Sharding

_SHARDINGS: Mapping[Sharding, str] = {
    "none": "data parallel (DDP)",
    "zero1": "data parallel with the optimizer's state divided (ZeRO-1)",
    "zero2": "data parallel with state and gradients divided (ZeRO-2)",
    "zero3": "fully sharded (FSDP)",
}


def scaling_notes(quote: Quote, job: Job) -> Iterator[str]:
    """What the plan is, how well it scales, and what one GPU holds; nothing of a device alone in one pass."""
    plan = quote.plan
    if plan is None:
        return
    if quote.gpus_used <= 1:
        yield f"its batch of {quote.batch:,} {_passes(plan)}."
        return
    per_gpu = f"its batch of {quote.batch:,} is that of all GPUs{_passes(plan, before=' and ')}"
    if job.mode == "inference" and plan.data > 1:
        yield f"each of {quote.gpus_used} GPUs runs a copy of the model; {per_gpu}."
        return
    how = _SHARDINGS[plan.sharding]
    if plan.tensor > 1:
        how = "tensor parallel, which the model's code has to allow for,"
    if plan.pipeline > 1:
        how = "in a pipeline, which the model's code has to allow for,"
    efficiency = units.format_ratio(quote.scaling_efficiency_ratio or 1.0)
    memory = units.format_bytes(quote.peak_memory_bytes)
    yield (
        f"it runs {how} on {quote.gpus_used} GPUs at a scaling efficiency of {efficiency}, {memory} on each; {per_gpu}."
    )


def _passes(plan: Plan, *, before: str = "") -> str:
    """How often each GPU passes before a step, and whether it computes again what it did not keep."""
    words = [f"runs in {plan.accumulate} passes"] if plan.accumulate > 1 else []
    words += ["keeps checkpoints of activations"] if plan.checkpoint_activations else []
    return before + " and ".join(words) if words else ""
