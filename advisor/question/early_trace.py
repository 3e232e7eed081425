"""Starts the trace of a source; importing this module takes little, so that the trace can start early."""

from typing import Any

from advisor.errors import AdvisorError
from advisor.question.lengths import of_trace, traced_length
from advisor.records.fine_tuning import FineTuning
from advisor.records.flag_values import is_recipe, is_workload_file, single_batch_of
from advisor.records.generation import Generation
from advisor.records.options import Options, ScriptOptions
from advisor.workload.input_spec import with_length
from advisor.workload.source_trace import SourceTrace
from advisor.workload.spawn import ProfileRequest


def early_trace(source: str, options: Options, *, run: bool, script_args: tuple[str, ...]) -> SourceTrace | None:
    """Start to trace the source, so that torch's import overlaps the caller's imports; the caller closes the trace.

    Returns None for a saved workload, a trainer's file and for what cannot be traced: `question_from_source` says why.
    """
    if is_workload_file(source) or is_recipe(source):
        return None
    try:
        return SourceTrace.start(
            request_of(source, options, batch=single_batch_of(options.batch), run=run, script_args=script_args)
        )
    except AdvisorError:
        return None


def gathers_half(precision: str, sharding: str) -> bool:
    """Return whether FSDP holds shards in fp32 and computes with 16-bit weights."""
    return precision.startswith("amp-") and sharding == "zero3"


def traces_fp32(precision: str, sharding: str) -> bool:
    """Return whether a model to fine-tune computes with weights in fp32."""
    return precision not in ("auto", "half", "bf16", "fp16") and not gathers_half(precision, sharding)


def differs_under_fsdp(options: Options) -> bool:
    """Return whether a model to fine-tune has another trace for plans with FSDP than for the others to compare."""
    is_single = options.max_machines == 1 and 1 in (options.gpus, options.max_gpus)
    is_open = options.finetune != "none" and options.sharding == "auto" and not is_single
    return is_open and gathers_half(options.precision, "zero3")


def request_of(
    source: str, options: Options, *, batch: int | None, length: int | None = None, **how: Any
) -> ProfileRequest:
    """Return the request for the child process that traces the source.

    With `--lengths` it is traced at sequences of `length`, by default at the longest.
    """
    inputs, sequence = options.input, options.sequence
    if length is None and (lengths := of_trace(options)) is not None:
        length = traced_length(lengths)
    if length is not None:
        batch = None  # sizes must be affine in the batch, and then one trace serves all batches
        if inputs:
            inputs = with_length(inputs, length)
        else:
            sequence = length
    return ProfileRequest(
        source=source,
        mode=options.mode if options.finetune == "none" else "training",
        finds_mode=isinstance(options, ScriptOptions) and "mode" not in options.given,
        batch=batch,
        inputs=inputs,
        attention=options.attention,
        timeout_s=options.timeout,
        sequence=sequence,
        generation=_generation_of(options),
        fine_tuning=_fine_tuning_of(options, sequence),
        **how,
    )


def _generation_of(options: Options) -> Generation | None:
    if options.prompt_tokens is None or options.output_tokens is None:
        return None
    return Generation(prompt_tokens=options.prompt_tokens, output_tokens=options.output_tokens)


def _fine_tuning_of(options: Options, sequence: int | None) -> FineTuning | None:
    if options.finetune == "none":
        return None
    return FineTuning(
        method=options.finetune,
        rank=options.lora_rank,
        targets=options.lora_targets,
        sequence=sequence,
        optimizer=options.optim,
        kernels=options.trainer_kernels,
        fp32_weights=traces_fp32(options.precision, options.sharding),
    )
