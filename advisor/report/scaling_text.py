"""Describes how a step is spread over several GPUs, in a sentence or a few words."""

from collections.abc import Iterator, Mapping

from advisor import units
from advisor.records.answer import Job, Quote
from advisor.records.sample_words import batch_text
from advisor.records.scale import Plan, Sharding

_SHARDINGS: Mapping[Sharding, str] = {
    "none": "data parallel (DDP)",
    "zero1": "data parallel with sharded optimizer state (ZeRO-1)",
    "zero2": "data parallel with sharded optimizer state and gradients (ZeRO-2)",
    "zero3": "fully sharded (FSDP)",
}
_SHORT: Mapping[Sharding, str] = {"none": "DDP", "zero1": "ZeRO-1", "zero2": "ZeRO-2", "zero3": "FSDP"}


def scaling_notes(quote: Quote, job: Job) -> Iterator[str]:
    """Yield the plan, its scaling efficiency and the memory per GPU; nothing for one device without accumulation."""
    plan = quote.plan
    if plan is None:
        return
    if quote.gpus_used <= 1:
        yield f"its batch of {quote.batch:,} {_passes(plan)}."
        return
    per_gpu = f"its batch of {quote.batch:,} is for all GPUs{_passes(plan, before=' and ')}"
    if job.generation is not None:
        yield f"{_copies(plan)}; {batch_text(quote.batch, job.generation)} on all GPUs together."
        return
    if job.mode == "inference" and plan.data > 1:
        yield f"each of {quote.gpus_used} GPUs runs a copy of the model; {per_gpu}."
        return
    efficiency = units.format_ratio(quote.scaling_efficiency_ratio or 1.0)
    memory = units.format_bytes(quote.peak_memory_bytes)
    yield (
        f"it runs {_how(plan)} on {quote.gpus_used} GPUs at a scaling efficiency of {efficiency}, {memory} on each; "
        f"{per_gpu}."
    )


def _copies(plan: Plan) -> str:
    """Return how many copies of an LLM are served, and on how many GPUs each."""
    if plan.tensor == 1:
        return f"each of {plan.data} GPUs runs a copy of the model"
    on = f"tensor parallel on {plan.tensor} GPUs"
    return f"one copy of the model, {on}" if plan.data == 1 else f"{plan.data} copies of the model, {on} each"


def plan_label(plan: Plan | None) -> str:
    """Return a short plan, such as `FSDP`, `tensor 8` or `tensor 2 x DDP`; "" for a single GPU."""
    if plan is None or plan == Plan():
        return ""
    model = [f"{name} {ways}" for name, ways in (("tensor", plan.tensor), ("pipeline", plan.pipeline)) if ways > 1]
    data = [_SHORT[plan.sharding]] if plan.data > 1 else []
    return " x ".join(model + data)


def _how(plan: Plan) -> str:
    """Return how the model is split inside groups of GPUs, and how the groups work together."""
    if plan.tensor == 1 and plan.pipeline == 1:
        return _SHARDINGS[plan.sharding]
    how = "tensor parallel" if plan.tensor > 1 else "in a pipeline"
    allowed = "which the model's code must support,"
    if plan.data == 1:
        return f"{how}, {allowed}"
    ways = plan.tensor * plan.pipeline
    return f"{how} in groups of {ways}, {allowed} and {_SHARDINGS[plan.sharding]} between the groups,"


def _passes(plan: Plan, *, before: str = "") -> str:
    """Return the number of passes per step, and whether activations are checkpointed."""
    words = [f"runs in {plan.accumulate} passes"] if plan.accumulate > 1 else []
    words += ["uses activation checkpointing"] if plan.checkpoint_activations else []
    return before + " and ".join(words) if words else ""
