"""Builds a question from a model that the caller holds."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from advisor.calibrate.measured_beside import Measuring
from advisor.calibrate.step_process import MeasureRequest
from advisor.errors import UsageError
from advisor.machine.this_machine import this_machine
from advisor.question.from_source import (
    ReadMachine,
    calibrations_for,
    catalog_of,
    check_named,
    question_from_source,
    question_of,
)
from advisor.question.record import Question
from advisor.question.served_model import asks_for_tokens, config_source
from advisor.records.flag_values import single_batch_of
from advisor.records.options import Options
from advisor.records.workload import Workload

if TYPE_CHECKING:
    import torch
    from torch import nn

    from advisor.workload.loaded import LoadedModel


def question_from_model(
    model: "nn.Module",
    example_inputs: Any,
    options: Options,
    *,
    loss: Callable[[Any, Any], "torch.Tensor"] | None = None,
    optimizer: "Callable[[Iterable[Any]], torch.optim.Optimizer] | torch.optim.Optimizer | None" = None,
    train_step: Callable[["nn.Module", Any], Any] | None = None,
    on: Sequence[str] = (),
    read_machine: ReadMachine | None = this_machine,
    real_step: bool = True,
) -> Question:
    """Trace one step of the model, which stays as it was, and collect everything else that an answer needs.

    The model, its inputs and functions are as `recommend` takes them; `on` and `read_machine` are as
    `question_from_source` takes them, and `real_step` is as `trace` takes it. With `prompt_tokens` or `finetune` the
    model's config alone is traced.
    """
    check_named(on, options)
    flag = "finetune" if options.finetune != "none" else "prompt_tokens" if asks_for_tokens(options) else ""
    if flag:
        with config_source(model, flag=flag) as source:
            question = question_from_source(source, options, on=on, read_machine=read_machine)
        kept = question.trace_at if question.options.lengths else None  # its traces are made; else the source is gone
        return replace(question, trace_at=kept, trace_fused=None, trace_chunked=None)
    if options.lengths is not None:
        raise UsageError("lengths: example inputs have lengths of their own", hint="name the model's source instead")
    from advisor.workload.sources.live import check_given, load_live
    from advisor.workload.trace import trace_live

    check_given({"loss": loss, "optimizer": optimizer, "train_step": train_step})
    catalog = catalog_of(options)
    loaded = load_live(model, example_inputs, loss=loss, optimizer=optimizer, train_step=train_step, mode=options.mode)

    def trace_at(batch: int | None) -> Workload:
        return trace_live(loaded, mode=options.mode, batch=batch, attention=options.attention, real_step=real_step)

    workload = trace_at(single_batch_of(options.batch))
    machine = read_machine() if read_machine and not options.no_local else None
    return question_of(
        workload,
        options,
        catalog=catalog,
        machine=machine,
        calibrated=calibrations_for(machine, catalog, options),
        measuring=_measuring(loaded, options) if options.measure else None,
        trace_at=trace_at,
    )


def _measuring(loaded: "LoadedModel", options: Options) -> Measuring:
    from advisor.calibrate.run_step import time_loaded
    from advisor.workload.trace import gradients_allowed

    request = MeasureRequest(
        source=loaded.name,
        mode=options.mode,
        attention=options.attention,
        layout=options.layout,
        compile=options.compile,
    )
    time_it = gradients_allowed()(partial(time_loaded, loaded))
    return Measuring(request=request, time_it=time_it, precision=options.precision)
