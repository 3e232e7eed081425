"""Builds the job from the user's options."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, cast

from advisor.cost.service import requests_per_day, requests_per_month
from advisor.errors import UsageError
from advisor.records.answer import Job, JobLimits, Situation
from advisor.records.flag_values import flag_name, is_given, own_batch, single_batch_of
from advisor.records.options import Options, ScriptOptions
from advisor.records.price import PriceKind
from advisor.records.script import Script
from advisor.records.workload import Operand, Workload

ASSUMED_SAMPLES = 1_000_000
_MOST_SAMPLES = 2**53
"""Whole numbers up to here are exact as floats."""
SIZES = ("samples", "epochs", "steps", "tokens", "requests_per_day", "requests_per_second")
"""The options that give the size of a job."""


def price_kind_of(options: Options) -> PriceKind:
    """Return the kind of price that the options ask for, as price files name it: `on_demand` for `on-demand`."""
    return cast(PriceKind, options.price.replace("-", "_"))


def job_for(workload: Workload, options: Options) -> Job:
    """Return the job: `--samples` x `--epochs`, `--steps`, `--tokens`, a service, or an assumed million samples.

    A step has the batch size of `--batch` if that is a single number, else the workload's own. The tokens per sample
    are read from the inputs of the step; for a served LLM these are prompt and output tokens.

    Raises `UsageError` if the flags that give the size contradict each other or the mode, or the job is too large.
    """
    _check_sizes(options)
    generation, script = workload.generation, workload.script
    _check_latency(options, is_served=generation is not None)
    text = options.batch.strip()
    own = own_batch(workload, options)
    batch = text or (str(own) if options.mode == "training" else "auto")
    per_sample = tokens_per_sample(workload.inputs) if generation is None else generation.token_count
    samples = _sample_count(options, batch=single_batch_of(text) or own, tokens_per_sample=per_sample)
    if samples > _MOST_SAMPLES:
        raise UsageError(f"the job has {samples:.0e} samples in all", hint=f"give at most {_MOST_SAMPLES:.0e}")
    return Job(
        mode=options.mode,
        samples=samples,
        epochs=options.epochs,
        steps=options.steps,
        assumed=not _is_sized(options),
        batch=batch,
        precision=_own_precision(script) if options.precision == "auto" and script else options.precision,
        layout=options.layout,
        compile=options.compile,
        price=price_kind_of(options),
        tokens=options.tokens,
        packed_samples=_packed_samples(options),
        requests_per_day=_daily(options),
        requests_per_second=options.requests_per_second,
        max_utilization=options.max_utilization,
        generation=generation,
        weight_bytes=_weight_bytes(workload),
        trained_bytes=_trained_bytes(workload),
        checkpoint_every_s=options.checkpoint_every,
        loader_s_per_sample=options.loader_s_per_sample,
        loader_workers=options.loader_workers,
        objective=options.objective,
        limits=_limits(options),
    )


def check_effects(options: Options) -> None:
    """Raise `UsageError` for an option that this kind of job ignores, with what it applies to."""
    is_service, is_training = _daily(options) is not None, options.mode == "training"
    if options.checkpoint_every is not None and options.price != "spot":
        raise UsageError(
            "--checkpoint-every applies only to spot instances",
            hint="add --price spot, or leave out --checkpoint-every",
        )
    if options.checkpoint_every is not None and is_service:
        raise UsageError("--checkpoint-every: an always-on service loses no work", hint="leave out --checkpoint-every")
    by_script = isinstance(options, ScriptOptions) and "loader_workers" not in options.given
    if options.loader_workers is not None and options.loader_s_per_sample is None and not by_script:
        raise UsageError(
            "--loader-workers: the time to load a sample is not known",
            hint="add --loader-s-per-sample TIME, or leave out --loader-workers",
        )
    if is_given(options, "max_utilization") and not is_service and (_is_sized(options) or is_training):
        raise UsageError(
            "--max-utilization applies only to a service",
            hint=f"{'' if is_training else 'add --requests-per-second N, or '}leave out --max-utilization",
        )


def service_limit_notes(options: Options, situations: Sequence[Situation] = ()) -> Iterator[str]:
    """Yield which limits of a service were given for a job without a size, and to which of `situations` they apply."""
    flags = [flag_name(name) for name in ("p99", "max_utilization") if is_given(options, name)]
    if not flags or _is_sized(options):
        return
    named, one = " and ".join(flags), len(flags) == 1
    where = f"appl{'ies' if one else 'y'} only to the service in the comparison of CPUs and GPUs"
    if not any(situation.kind == "service" for situation in situations):
        where = f"ha{'s' if one else 've'} no effect here: only a service is limited by {'it' if one else 'them'}"
    yield f"{named} {where}; add --requests-per-second N for an answer about a service"


def require_size(options: Options, job: Job) -> None:
    """Raise `UsageError` if a limit of the whole job is set, but no size of it."""
    of_whole_job = [name for name in ("deadline", "max_usd", "max_co2") if getattr(options, name) is not None]
    if of_whole_job and job.assumed:
        raise UsageError(
            f"{flag_name(of_whole_job[0])} limits the whole job, whose size is not known",
            hint="add --samples N (and --epochs N), --steps N or --tokens N",
        )


def _limits(options: Options) -> JobLimits:
    values: dict[str, Any] = {}
    for one in fields(JobLimits):
        value, part = getattr(options, one.metadata["option"]), one.metadata["part"]
        if value is not None:
            values[one.name] = getattr(value, part) if part else value
    return JobLimits(**values)


def _weight_bytes(workload: Workload) -> float:
    """Return the size of the file of weights that the job reads; a training from scratch reads none.

    A model to fine-tune is read as published, in 16 bits; bitsandbytes quantizes it while it loads. A served LLM has
    its floats in 16 bits, any other model has them as traced.
    """
    tuning = workload.fine_tuning
    if tuning is not None:
        adapter_count = 0 if tuning.method == "full" else tuning.trained_count
        return 2.0 * (workload.parameter_count - adapter_count)
    if workload.mode == "training" and not workload.is_pretrained:
        return 0.0
    if workload.generation is None or not workload.memory:
        return float(workload.parameter_bytes)
    stored = workload.memory[0].parameters
    return (stored.low[0] + stored.full[0]) / 2 + stored.double[0] + stored.other[0]


def _trained_bytes(workload: Workload) -> float:
    """Return the size of the trained weights.

    Adapters are in fp32, as PEFT keeps them, and so are FSDP's shards that are gathered in 16 bits. Other weights are
    as traced.
    """
    if workload.mode != "training":
        return 0.0
    tuning = workload.fine_tuning
    if tuning is not None and tuning.method != "full":
        return 4.0 * tuning.trained_count
    if tuning is not None and tuning.fp32_shards:
        return 2.0 * workload.parameter_bytes
    updates = [row for row in workload.rows if row.op == "optimizer"]
    updated_count = sum(row.count * cast(float, row.attributes["element_count"]) for row in updates)
    is_whole = not updates or updated_count >= workload.parameter_count
    return workload.parameter_bytes * (1.0 if is_whole else updated_count / workload.parameter_count)


def _own_precision(script: Script) -> str:
    """Return the precision in which the script runs, or auto if the user wants the cheaper one."""
    gpu, cpu = script.gpu_precision, script.cpu_precision
    if gpu is None or cpu is None:
        return "auto"
    is_same = gpu == cpu or (gpu, cpu) == ("cudnn-tf32", "fp32")  # CPUs have no TF32
    return gpu if is_same else f"{gpu} on GPUs, {cpu} on CPUs"


def tokens_per_sample(inputs: Sequence[Operand]) -> int | None:
    """Return the positions per sample of the first integer input that has more than a batch dimension, else None."""
    for operand in inputs:
        positions = [dim for dim in operand.shape[1:] if isinstance(dim, int)]
        if operand.dtype in ("int64", "int32") and positions:
            return math.prod(positions)
    return None


def _is_sized(options: Options) -> bool:
    return any(getattr(options, name) is not None for name in SIZES)


def _daily(options: Options) -> int | None:
    """Return the requests per day of a service; None if the job is not a service."""
    if options.requests_per_second is not None:
        return requests_per_day(options.requests_per_second)
    return options.requests_per_day


def _sample_count(options: Options, *, batch: int, tokens_per_sample: int | None) -> int:
    daily = _daily(options)
    if daily is not None:
        return requests_per_month(daily)
    if options.steps is not None:
        return options.steps * batch
    if options.tokens is not None:
        if tokens_per_sample is None:
            raise UsageError(
                f"--tokens {options.tokens}: the model has no integer input with a sequence dimension",
                hint="give the size as --samples or --steps",
            )
        return math.ceil(options.tokens / tokens_per_sample)
    samples = _all_samples(options)
    if options.mean_tokens is None or tokens_per_sample is None:
        return samples
    return math.ceil(samples * options.mean_tokens / tokens_per_sample)


def _all_samples(options: Options) -> int:
    return (options.samples or ASSUMED_SAMPLES) * (options.epochs or 1)


def _packed_samples(options: Options) -> int | None:
    is_by_samples = options.samples is not None and options.steps is None and options.tokens is None
    return _all_samples(options) if is_by_samples and options.mean_tokens is not None else None


def _check_sizes(options: Options) -> None:
    given = [name for name in SIZES if name != "epochs" and getattr(options, name) is not None]
    if options.epochs is not None and "samples" not in given:
        given.append("epochs")
    if len(given) > 1:
        flags = " and ".join(map(flag_name, given))
        raise UsageError(f"{flags} each give the size of the job", hint="keep one of them")
    if options.epochs is not None and options.samples is None:
        raise UsageError("--epochs needs the number of samples per epoch", hint="add --samples N")
    if _daily(options) is not None and options.mode == "training":
        flag = flag_name("requests_per_day" if options.requests_per_second is None else "requests_per_second")
        raise UsageError(f"{flag}: a service cannot run training", hint="leave out --mode training")
    if _daily(options) is not None and options.deadline is not None:
        raise UsageError("--deadline: an always-on service never finishes", hint="use --p99 instead")


def _check_latency(options: Options, *, is_served: bool) -> None:
    """Raise `UsageError` for a latency limit that does not apply to the job; without a size, `--p99` does."""
    is_service = _daily(options) is not None
    if options.p99 is not None and (options.mode == "training" or (_is_sized(options) and not is_service)):
        raise UsageError("--p99: only the requests of a service wait in a queue", hint="give --requests-per-second N")
    for name in ("max_ttft", "max_tpot"):
        limit = getattr(options, name)
        if limit is not None and limit.of != "mean" and not is_service:
            raise UsageError(
                f"{flag_name(name)} {limit.of}: percentiles are of the requests of a service",
                hint=f"give --requests-per-second N, or a limit on the mean: {flag_name(name)} {limit.seconds:g}s",
            )
    if options.max_latency is not None and is_service and not is_served:
        raise UsageError(
            "--max-latency: the requests of a service also wait in a queue", hint=f"use --p99 {options.max_latency:g}s"
        )
