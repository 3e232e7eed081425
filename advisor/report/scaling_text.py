"""A quote in, how its step is spread over several GPUs out, as a sentence or a few words."""

from collections.abc import Iterator, Mapping

from advisor import units
from advisor.records.answer import Job, Quote
from advisor.records.sample_words import batch_text
from advisor.records.scale import Plan, Sharding

_SHARDINGS: Mapping[Sharding, str] = {
    "none": "data parallel (DDP)",
    "zero1": "data parallel with the optimizer's state divided (ZeRO-1)",
    "zero2": "data parallel with state and gradients divided (ZeRO-2)",
    "zero3": "fully sharded (FSDP)",
}
_SHORT: Mapping[Sharding, str] = {"none": "DDP", "zero1": "ZeRO-1", "zero2": "ZeRO-2", "zero3": "FSDP"}


def scaling_notes(quote: Quote, job: Job) -> Iterator[str]:
    """What the plan is, how well it scales, and what one GPU holds; nothing of a device alone in one pass."""
    plan = quote.plan
    if plan is None:
        return
    if quote.gpus_used <= 1:
        yield f"its batch of {quote.batch:,} {_passes(plan)}."
        return
    per_gpu = f"its batch of {quote.batch:,} is that of all GPUs{_passes(plan, before=' and ')}"
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
    """Of a language model in service: how many, on how many GPUs each."""
    if plan.tensor == 1:
        return f"each of {plan.data} GPUs runs a copy of the model"
    on = f"tensor parallel on {plan.tensor} GPUs"
    return f"one copy of the model, {on}" if plan.data == 1 else f"{plan.data} copies of the model, {on} each"


def plan_label(plan: Plan | None) -> str:
    """`FSDP`, `tensor 8`, `tensor 2 x DDP`; "" of a single GPU."""
    if plan is None or plan == Plan():
        return ""
    model = [f"{name} {ways}" for name, ways in (("tensor", plan.tensor), ("pipeline", plan.pipeline)) if ways > 1]
    data = [_SHORT[plan.sharding]] if plan.data > 1 else []
    return " x ".join(model + data)


def _how(plan: Plan) -> str:
    """Divided inside groups of GPUs, then what the groups do with each other."""
    if plan.tensor == 1 and plan.pipeline == 1:
        return _SHARDINGS[plan.sharding]
    how = "tensor parallel" if plan.tensor > 1 else "in a pipeline"
    allowed = "which the model's code has to allow for,"
    if plan.data == 1:
        return f"{how}, {allowed}"
    ways = plan.tensor * plan.pipeline
    return f"{how} in groups of {ways}, {allowed} and {_SHARDINGS[plan.sharding]} between these,"


def _passes(plan: Plan, *, before: str = "") -> str:
    """How often each GPU passes before a step, and whether it computes again what it did not keep."""
    words = [f"runs in {plan.accumulate} passes"] if plan.accumulate > 1 else []
    words += ["keeps checkpoints of activations"] if plan.checkpoint_activations else []
    return before + " and ".join(words) if words else ""
