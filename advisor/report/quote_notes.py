"""Writes the sentences on a quote: tokens, GPUs, cost, data loading, and the steps measured on this machine."""

from collections.abc import Iterable, Iterator, Mapping
from typing import get_args

from advisor import units
from advisor.records.answer import CostPart, Job, MeasuredStep, Quote, TokenQuote
from advisor.records.generation import Generation, WeightFormat
from advisor.records.machine import LOCAL
from advisor.records.options import Statistic
from advisor.records.price import ExchangeRate, PriceKind, TorchWheel
from advisor.records.sample_words import at_batch_text, batch_text, samples_text
from advisor.records.scale import Plan, Sharding
from advisor.report.amounts import interval_text

_WEIGHTS: Mapping[WeightFormat, str] = {
    "auto": "weights in the same precision",
    "int4": "block weights in int4 with groups of 128",
    "nf4": "block weights in nf4 with groups of 64",
    "nvfp4": "block weights in nvfp4 with groups of 16",
    "mxfp4": "experts' weights in mxfp4 with groups of 32",
    **{
        name: f"weights in {name} (GGUF, with output and embedding)"
        for name in get_args(WeightFormat)
        if name.startswith("q")
    },
}
"""Formats of which more than the name is said."""
_PRECISIONS = {"half": "half (bf16 if native, else fp16, or fp32 on CPUs)"}
_SHARDINGS: Mapping[Sharding, str] = {
    "none": "data parallel (DDP)",
    "zero1": "data parallel with sharded optimizer state (ZeRO-1)",
    "zero2": "data parallel with sharded optimizer state and gradients (ZeRO-2)",
    "zero3": "fully sharded (FSDP)",
}
_SHORT: Mapping[Sharding, str] = {"none": "DDP", "zero1": "ZeRO-1", "zero2": "ZeRO-2", "zero3": "FSDP"}
_PART_NAMES: Mapping[CostPart, str] = {
    **{part: part.replace("-", " ") for part in get_args(CostPart)},
    "start-up": "start-up",
    "lost-work": "expected lost work",
}
_PAID_NAMES: Mapping[PriceKind, str] = {
    "on_demand": "on-demand",
    "spot": "spot",
    "commit_1y": "1-year commitment",
    "commit_3y": "3-year commitment",
    "owned": "own hardware",
}
COMMITMENT_NAMES: Mapping[PriceKind, str] = {"commit_1y": "one year", "commit_3y": "three years"}
_TWOFOLD = 2.0


def service_settings(job: Job) -> str | None:
    """Return the settings of the job, or None if it is not LLM serving."""
    generation = job.generation
    if generation is None:
        return None
    in_flight = f"{job.batch} requests in flight"
    if job.batch == "auto":
        in_flight = "the cheapest number of requests in flight"
    elif job.batch.isdecimal():
        in_flight = batch_text(int(job.batch), generation)
    engine = generation.engine
    by = f" by {engine.name} {engine.version}" if engine else ""
    cached = f" ({generation.prefix_cached_tokens:,} of them cached)" if generation.prefix_cached_tokens else ""
    drafts = ""
    if generation.draft_tokens:
        drafts = (
            f", {generation.draft_tokens} drafted tokens a pass, each accepted with "
            f"{units.format_ratio(generation.acceptance_ratio)} (drafting one takes "
            f"{units.format_significant(generation.draft_cost_ratio * 100)} % of a pass, and the drafter's weights and "
            "cache that share of the model's)"
        )
    return (
        f"LLM serving{by}: prompts of {generation.prompt_tokens:,} tokens{cached}, answers of "
        f"{generation.output_tokens:,}, {in_flight} per instance, "
        f"{_PRECISIONS.get(job.precision, job.precision)}, {_weights(generation)}{drafts}, continuous batching, fused "
        "kernels, decode in a CUDA graph on GPUs"
    )


def _weights(generation: Generation) -> str:
    """Return the formats of weights and KV cache."""
    of_blocks = f"block weights in {generation.weights}"
    cache = "" if generation.kv_cache == "auto" else f", KV cache in {generation.kv_cache}"
    return _WEIGHTS.get(generation.weights, of_blocks) + cache


def token_notes(best: Quote, job: Job, *, rate: ExchangeRate | None) -> Iterator[str]:
    """Yield the token times of the best offer, its price per token, its memory, and the bound of decode."""
    tokens = best.tokens
    if tokens is None or job.generation is None:
        return
    times = f"First token after {interval_text(tokens.ttft_s)}, then one every {interval_text(tokens.tpot_s)}"
    if tokens.tpot_s.mid > tokens.decode_s:
        alone = units.format_duration(tokens.decode_s)
        times += f"; a decode step alone takes {alone}, and prefill of other requests runs in between"
    if tokens.ttft_p50_s is not None:
        times = _percentiles(tokens, job)
    yield f"{times}."
    yield (
        f"{units.format_money(tokens.usd_per_million_output_tokens, rate=rate, digits=3)} per million output "
        f"tokens, {units.format_money(tokens.usd_per_million_tokens, rate=rate, digits=3)} per million input and "
        "output tokens."
    )
    yield (
        f"the KV cache of {batch_text(best.batch, job.generation)} takes at "
        f"most {units.format_bytes(tokens.kv_cache_bytes)}; one copy of the weights takes "
        f"{units.format_bytes(tokens.weight_bytes)}."
    )
    if tokens.undrafted_tpot_s is not None:
        yield _drafting(tokens, job.generation)
    if tokens.kernels:
        yield f"narrow numbers: {tokens.kernels}."
    if tokens.compute_bound_from is None:
        yield "decode is bandwidth-bound at any number of requests, because each one has its own KV cache to read."
    else:
        yield f"decode is bandwidth-bound below {tokens.compute_bound_from:,} requests, and compute-bound above."


def _drafting(tokens: TokenQuote, generation: Generation) -> str:
    """Return what speculative decoding gains or costs."""
    before, after = tokens.undrafted_tpot_s or 0.0, tokens.tpot_s.mid
    gain = f"{before / after:.2f} times as fast" if after <= before else f"{after / before:.2f} times as slow"
    return (
        f"speculative decoding gives {generation.tokens_per_pass:.2f} tokens a pass: one every "
        f"{units.format_duration(after)} instead of {units.format_duration(before)}, {gain}, with these requests."
    )


def _percentiles(tokens: TokenQuote, job: Job) -> str:
    """Return the times of tokens under the load of a service, with the percentiles that have limits."""

    def times(name: str, limited: Statistic) -> str:
        shown = dict.fromkeys(("p50", "p99") if limited == "mean" else ("p50", limited, "p99"))
        of = [f"{units.format_duration(getattr(tokens, f'{name}_{one}_s'))} ({one})" for one in shown]
        return f"{', '.join(of[:-1])} to {of[-1]}"

    first, between = times("ttft", job.limits.ttft_of), times("tpot", job.limits.tpot_of)
    return f"First token after {first}, then one every {between} under this load"


def scaling_notes(quote: Quote, job: Job) -> Iterator[str]:
    """Yield idle GPUs, the plan, its scaling efficiency and the memory per GPU; of one device only its passes."""
    plan = quote.plan
    is_step = job.generation is None and job.requests_per_day is None
    if is_step and quote.device.kind == "gpu" and quote.gpus_used < quote.device.count:
        yield f"it uses {quote.gpus_used} of the machine's {quote.device.count} GPUs."
    if plan is None:
        return
    if quote.gpus_used <= 1:
        yield f"its batch of {quote.batch:,} {_passes(plan)}."
        return
    devices = f"{quote.device.name}s" if quote.device.name.endswith(" core") else "GPUs"
    per_gpu = f"its batch of {quote.batch:,} is for all {devices}{_passes(plan, before=' and ')}"
    if job.generation is not None:
        yield f"{_copies(plan)}; {batch_text(quote.batch, job.generation)} on all GPUs together."
        return
    if job.mode == "inference" and plan.data > 1:
        yield f"each of {quote.gpus_used} {devices} runs a copy of the model; {per_gpu}."
        return
    efficiency = units.format_ratio(quote.scaling_efficiency_ratio or 1.0)
    memory = units.format_bytes(quote.peak_memory_bytes)
    yield (
        f"it runs {_how(plan)} on {quote.gpus_used} GPUs at a scaling efficiency of {efficiency}, {memory} on each; "
        f"{per_gpu}."
    )


def _copies(plan: Plan) -> str:
    """Return how many copies of an LLM are served, and on how many GPUs each."""
    whole = plan.tensor == plan.pipeline == 1
    ways = [f"{plan.pipeline} stages of layers"] if plan.pipeline > 1 else []
    ways += [f"tensor parallel on {plan.tensor} GPUs"] if plan.tensor > 1 else []
    if plan.expert > 1:
        ways += [f"its experts divided over {plan.expert * plan.tensor * plan.pipeline} GPUs"]
    over = f" on {plan.machines} machines together" if plan.machines > 1 else ""
    what = "attention layers" if plan.expert > 1 else "model"
    if plan.data == 1:
        return f"one copy of the {what}{over}, {', '.join(ways)}"
    if whole and plan.expert == 1:
        return f"each of {plan.data} GPUs runs a copy of the model"
    return f"{plan.data} copies of the {what}{over}, {', '.join(ways)}"


def plan_label(plan: Plan | None) -> str:
    """Return a short plan, such as `FSDP`, `tensor 8` or `tensor 2 x DDP`; "" for a single GPU."""
    if plan is None or plan == Plan():
        return ""
    divided = (("tensor", plan.tensor), ("pipeline", plan.pipeline), ("expert", plan.expert))
    model = [f"{name} {ways}" for name, ways in divided if ways > 1]
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


def covered_cost(quote: Quote, job: Job, *, rate: ExchangeRate | None) -> str:
    """Return the cost and its parts: "$4 for 90 epochs, on-demand; includes compute $4; prices of 2026-07-20."."""

    def named(part: CostPart) -> str:
        usd: float = getattr(quote.job_parts_usd, part.replace("-", "_"), 0.0)  # quota and availability have none
        return f"{_PART_NAMES[part]} {units.format_money(usd, rate=rate)}" if usd else _PART_NAMES[part]

    *parts, last = map(named, quote.covers)
    covered = f"{', '.join(parts)} and {last}" if parts else last
    missing = ", ".join(_PART_NAMES[part] for part in quote.not_covered)
    cost, size = units.format_money(quote.job_usd.mid, rate=rate), _size(job, batch=quote.batch)
    return f"{cost} for {size}, {_PAID_NAMES[quote.price_kind]}; includes {covered}; prices of {quote.price_date}" + (
        f"; not included: {missing}." if missing else "."
    )


def _size(job: Job, *, batch: int) -> str:
    """Return the size of the job as the user gave it; steps of another batch than this one also as samples."""
    if job.requests_per_day is not None:
        return f"one month at {load_text(job)}"
    if job.steps is not None and job.steps * batch != job.samples:
        return f"{samples_text(job.samples, job.generation)} ({_counted_steps(job)})"
    for count, name in ((job.epochs, "epoch"), (job.steps, "step"), (job.tokens, "token")):
        if count is not None:
            return _counted(count, name)
    return samples_text(job.samples, job.generation)


def _counted(count: int, name: str) -> str:
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def _counted_steps(job: Job) -> str:
    """Return the steps that the user gave, with the batch at which they are counted: "100 steps at batch 8"."""
    steps = job.steps or 1
    return f"{_counted(steps, 'step')} {at_batch_text(job.samples // steps, job.generation)}"


def steps_note(job: Job) -> str:
    """Return at which batch the steps of the job are counted, unless it is the batch of every quote; else ""."""
    if job.steps is None or (job.batch.isdecimal() and int(job.batch) * job.steps == job.samples):
        return ""
    return f"the job is {samples_text(job.samples, job.generation)} at any batch ({_counted_steps(job)})"


def load_text(job: Job) -> str:
    """Return the load of a service as the user gave it."""
    if job.requests_per_second is not None:
        return f"{job.requests_per_second:,.10g} requests/s"
    return f"{job.requests_per_day:,} requests per day"


def cost_notes(best: Quote, job: Job) -> Iterator[str]:
    """Yield notes on start-up and on the load of a service."""
    if "start-up" in best.covers:
        where = f"as measured on {best.provider}" if best.start_up_measured else "the median of the measured clouds"
        parts = (
            (
                best.start_up_s - best.software_s - best.weights_s,
                f"to boot ({where}, mostly on machines without a GPU)",
            ),
            (best.software_s, "to install packages or pull an image"),
            (best.weights_s, f"to read {units.format_bytes(job.weight_bytes)} of weights from the disk"),
        )
        listed = ", ".join(f"{units.format_duration(seconds)} {what}" for seconds, what in parts if seconds > 0)
        yield (
            f"start-up: {units.format_duration(best.start_up_s)}: {listed}. Fetching data takes extra time; "
            "`software_s` of your overlay is the time with your own image."
        )
    if job.requests_per_day is not None:
        yield from _service_notes(best, job)


def price_terms(best: Quote, job: Job, *, rate: ExchangeRate | None) -> Iterator[str]:
    """Yield notes on waiting for the machine, a service without redundancy, interruptions and commitment."""
    if best.wait_s:
        wait = units.format_duration(best.wait_s)
        yield f"availability: the time includes {wait} of waiting for the machine, as set in your overlay."
    if job.requests_per_day is not None and best.instance_count == 1:
        double = "" if best.provider == LOCAL else "; two of them double the cost"
        yield f"a single instance is down while it restarts{double}."
    if best.price_kind == "spot":
        yield _spot(best, job)
    if best.commitment_usd is not None:
        yield (
            f"the price requires a commitment of {COMMITMENT_NAMES[best.price_kind]}: "
            f"{units.format_money(best.commitment_usd, rate=rate)} in total, used or not; the cost counts only the "
            "hours of this job."
        )


def _service_notes(best: Quote, job: Job) -> Iterator[str]:
    """Yield how the instances are counted, how requests are batched and spread, the headroom, and the cold start."""
    count = best.instance_count
    limits = [f"at most {units.format_ratio(job.max_utilization)} utilization (--max-utilization)"]
    if job.limits.p99_s is not None:
        limits.append(f"a p99 of at most {units.format_duration(job.limits.p99_s)}")
    tokens = (("TTFT", job.limits.max_ttft_s, job.limits.ttft_of), ("TPOT", job.limits.max_tpot_s, job.limits.tpot_of))
    limits += [
        f"a {of} of {name} of at most {units.format_duration(most_s)}"
        for name, most_s, of in tokens
        if most_s is not None and of != "mean"
    ]
    unit = "per day" if job.requests_per_second is None else "per second"
    yield (
        f"{'1 instance' if count == 1 else f'{count:,} instances'} for requests that arrive at random (Poisson): "
        f"{' and '.join(limits)}; if the load has peaks, give the peak rate in requests {unit}."
    )
    per_server = best.batch // best.server_count
    copies = count * best.server_count
    if job.generation is None and per_server > 1:
        spread = "" if copies == 1 else ", and requests are spread over the copies at random"
        yield (
            f"dynamic batching is assumed: a copy of the model takes up to {per_server:,} waiting requests as soon as "
            f"it is free{spread}."
        )
    elif copies > 1:
        place = "copy of the model" if job.generation is None else "place"
        yield f"the requests wait in one queue for the next free {place}."
    if best.start_up_s:
        yield (
            f"cold start: another instance needs {units.format_duration(best.start_up_s)} to boot, install its "
            "software and read the weights; meanwhile the queue grows."
        )


def _spot(best: Quote, job: Job) -> str:
    """Return how often the provider reclaims such an instance, and how much work the job is expected to lose."""
    if best.interruption is None:
        return "spot: the provider may reclaim the instance at any time; how often is not known, so no loss is counted."
    rate = f"spot: {best.interruption} of such instances were reclaimed within a month"
    if best.interruption_is_assumed:
        rate = (
            f"spot: no rate of interruptions is known for {best.provider}; assumed: {best.interruption} of instances "
            "are reclaimed within a month, the middle of AWS's classes"
        )
    if job.assumed:
        return f"{rate}; no loss is counted."
    if job.requests_per_day is not None:
        return f"{rate}; the service then waits for a new one."
    saved = (
        "without --checkpoint-every, a reclaim loses all work"
        if job.checkpoint_every_s is None
        else f"with a checkpoint every {units.format_duration(job.checkpoint_every_s)}"
    )
    return f"{rate}; {saved}; expected loss: {units.format_duration(best.lost_s)}."


def loader_notes(quote: Quote, job: Job) -> Iterator[str]:
    """Yield a note on the vCPUs that data loading needs; nothing if the loader's speed is unknown."""
    if job.loader_s_per_sample is None or quote.loader_vcpus is None or quote.vcpus is None:
        return
    each = f"data loading ({units.format_duration(job.loader_s_per_sample)} of vCPU time per sample)"
    if job.loader_workers == 0:
        alone_s = quote.step_s.mid - quote.batch * job.loader_s_per_sample / max(1, quote.gpus_used)
        yield (
            f"{each} comes before each step, because the loader has no workers: it takes "
            f"{units.format_ratio(1 - alone_s / quote.step_s.mid)} of the time."
        )
        return
    if job.loader_workers is not None:
        each = f"{each}, by {job.loader_workers} worker{'' if job.loader_workers == 1 else 's'} at most,"
    needed = units.format_significant(quote.loader_vcpus, digits=2)
    if quote.device.kind == "cpu":
        plural = "" if quote.vcpus == 1 else "s"
        yield f"{each} uses {needed} of the {quote.vcpus:,} vCPU{plural}, which the model then cannot use."
        return
    fed = f"{each} needs {needed} vCPUs to keep the GPU busy, including one for the GPU itself; it has {quote.vcpus:,}"
    yield f"{fed}: the GPU waits for data." if quote.bound == "loader" else f"{fed}."


def wheel_notes(quotes: Iterable[Quote]) -> Iterator[str]:
    """Yield a note for each wheel of PyTorch that devices need instead of the one that pip installs by default."""
    devices: dict[TorchWheel, dict[str, None]] = {}
    for quote in quotes:
        if quote.wheel is not None:
            devices.setdefault(quote.wheel, {})[quote.device.name] = None
    for wheel, names in devices.items():
        yield (
            f"{', '.join(names)}: torch {wheel.torch} with CUDA {wheel.cuda}, the newest with code for it "
            f"(`pip install torch --index-url {wheel.index_url}`)."
        )


def measured_notes(steps: Iterable[MeasuredStep]) -> Iterator[str]:
    """Yield, for each step, its time, the wait for data, and the effect on predictions for other devices."""
    for step in steps:
        measured = (
            f"measured here: a step at batch {step.batch:,} in {step.precision} takes {interval_text(step.step_s)} on "
            f"{step.device.name} ({step.step_count:,} steps)"
        )
        predicted = f"predicted: {interval_text(step.predicted_s)}"
        if step.is_disturbed:
            yield f"{measured}, disturbed by other processes and therefore not used; {predicted}."
            continue
        yield f"{measured}; {predicted}, {_difference(step.predicted_s.mid / step.step_s.mid)}."
        if step.loader_wait_s is not None:
            yield f"between two steps, the device waited {units.format_duration(step.loader_wait_s)} for data."
        yield _carried(step)


def _carried(step: MeasuredStep) -> str:
    if step.device.kind == "cpu":
        return "a CPU's prediction error does not transfer to other devices, so their predictions are unchanged."
    return f"predictions for GPUs with the same bottleneck were adjusted: {_difference(step.carried_ratio)}."


def _difference(ratio: float) -> str:
    """Return "20 % less", or "3.1x less" beyond a factor of two."""
    times = max(ratio, 1 / ratio)
    amount = units.format_times(times) if times >= _TWOFOLD else units.format_ratio(abs(ratio - 1))
    return f"{amount} {'more' if ratio > 1 else 'less'}"
