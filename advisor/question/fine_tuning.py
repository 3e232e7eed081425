"""Checks the options of a model to fine-tune, and settles how trainers run it."""

from dataclasses import astuple, fields, replace

from advisor.errors import UsageError
from advisor.ops.optimizer import PAGED
from advisor.predict.step_memory import attribute
from advisor.question.early_trace import gathers_half
from advisor.records.flag_values import flag_name, is_given, is_workload_file
from advisor.records.options import Options
from advisor.records.workload import Row, StoredBytes, Workload
from advisor.workload.sources import kind_of

_TUNING_FIELDS = tuple(field.name for field in fields(Options) if field.metadata.get("is_of_fine_tuning"))
_OF_ADAPTERS = ("lora_rank", "lora_targets")
_OF_JOBS = ("packing", "mean_tokens", "keep_activations")
"""Options that a saved workload takes, too."""


def check_fine_tuning(source: str, options: Options, *, run: bool = False) -> None:
    """Raise `UsageError` if the options of fine-tuning contradict each other or the source."""
    given = [name for name in ("finetune", *_TUNING_FIELDS) if is_given(options, name)]
    if options.finetune == "none" and options.lengths is not None:
        given = [name for name in given if name != "packing"]
    is_saved = is_workload_file(source)
    if not given or (is_saved and set(given) <= set(_OF_JOBS)):
        return
    first = flag_name(given[0])
    if is_saved:
        raise UsageError(
            f"{first}: {source} is a saved workload, whose step is fixed", hint="save it again with this flag"
        )
    if options.finetune == "none":
        raise UsageError(f"{first} applies only to fine-tuning", hint="add --finetune lora, qlora or full")
    if run:
        raise UsageError(
            f"--finetune: {source} is a script, which says itself what it trains", hint="leave --finetune out"
        )
    if options.prompt_tokens is not None or options.output_tokens is not None:
        raise UsageError(
            "--finetune: a service cannot run training", hint="leave --prompt-tokens and --output-tokens out"
        )
    of_adapters = next((name for name in _OF_ADAPTERS if name in given), None)
    if options.finetune == "full" and of_adapters:
        raise UsageError(
            f"{flag_name(of_adapters)}: --finetune full has no adapters", hint="write --finetune lora, or leave it out"
        )
    kind = kind_of(source)
    if options.sequence is not None and not (kind and kind.takes_tokens):
        raise UsageError(f"--sequence: {source} makes its own inputs", hint="leave --sequence out, or use --input")
    if options.measure:
        raise UsageError("--measure: the model to fine-tune is traced, not run", hint="leave --measure out")


def as_fine_tuned(workload: Workload, options: Options) -> tuple[Workload, Options]:
    """Return a workload of fine-tuning and the options as trainers run it; any other workload is unchanged.

    Trainers recompute activations by default and hold the whole model in 16 bits; each device takes its cheapest batch.
    Raises `UsageError` if the options do not suit the workload.
    """
    tuning = workload.fine_tuning
    if tuning is None:
        given = next((name for name in _OF_JOBS if is_given(options, name)), None)
        if given is not None and not (given == "packing" and options.lengths is not None):
            raise UsageError(f"{flag_name(given)}: {workload.name} is not fine-tuned", hint="add --finetune lora")
        return workload, options
    if options.mean_tokens is not None and not options.packing:
        raise UsageError("--mean-tokens: without --packing every sample is a sequence", hint="add --packing")
    if options.packing and options.samples is not None and options.mean_tokens is None:
        raise UsageError(
            "--packing: how many samples a sequence holds is not known", hint="add --mean-tokens, or give --tokens"
        )
    return as_sharded(workload, options), replace(
        options,
        mode="training",
        batch=options.batch or "auto",
        checkpoint_activations=not options.keep_activations,
        precision="half" if options.precision == "auto" else options.precision,
    )


def as_sharded(workload: Workload, options: Options) -> Workload:
    """Return a workload of fine-tuning with its states as `--sharding`, `--precision` and `--optim` place them."""
    workload = with_fp32_shards(workload, precision=options.precision, sharding=options.sharding)
    is_paged = workload.fine_tuning is not None and workload.fine_tuning.optimizer.startswith("paged-")
    return _paged(workload) if is_paged else workload


def with_fp32_shards(workload: Workload, *, precision: str, sharding: str) -> Workload:
    """Return the workload with its trained weights in fp32 if FSDP gathers them in 16 bits.

    accelerate converts only trained weights (`Accelerator.prepare_model`): with adapters all others stay in 16 bits.
    """
    tuning = workload.fine_tuning
    if tuning is None or tuning.method != "full" or tuning.fp32_weights or not gathers_half(precision, sharding):
        return workload
    return replace(workload, fine_tuning=replace(tuning, fp32_shards=True))


def _paged(workload: Workload) -> Workload:
    """Return the workload with its optimizer's state in host memory, from and to which each optimizer's step copies it.

    bitsandbytes pages the state through unified memory inside `step()` (`Optimizer8bit.step`: `prefetch_state`, at its
    end `torch.cuda.synchronize`); a GPU with room keeps it, so this is the slowest case.
    """
    state_bytes = max(sum(start for start, _ in astuple(line.optimizer_state)) for line in workload.memory)
    updates = [row for row in workload.rows if row.op == "optimizer"]
    element_count = sum(row.count * attribute(row, "element_count") for row in updates)
    if not state_bytes or not element_count:
        return workload

    def paged(row: Row) -> Row:
        return replace(row, attributes={**row.attributes, PAGED: 2 * state_bytes / element_count})  # in and out

    return replace(
        workload,
        memory=tuple(replace(line, optimizer_state=StoredBytes()) for line in workload.memory),
        rows=tuple(paged(row) if row in updates else row for row in workload.rows),
        assumptions=(*workload.assumptions, "the optimizer's state is paged in from host memory and back in each step"),
    )
