"""The public functions: `advisor.recommend` and its sisters."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from advisor.answers.ranking import rank_source, rank_workload
from advisor.calibrate.measured_beside import Measuring
from advisor.calibrate.step_request import MeasureRequest
from advisor.machine.this_machine import this_machine
from advisor.question.from_source import calibrations_for, catalog_of, single_batch
from advisor.question.option_values import checked_options
from advisor.question.served_model import asks_for_tokens, config_source
from advisor.records.answer import Recommendation
from advisor.records.workload import Workload

if TYPE_CHECKING:
    import torch
    from torch import nn


def recommend(
    model: "nn.Module",
    example_inputs: Any = None,
    *,
    loss: Callable[[Any, Any], "torch.Tensor"] | None = None,
    optimizer: Callable[[Iterable[Any]], "torch.optim.Optimizer"] | None = None,
    train_step: Callable[["nn.Module", Any], Any] | None = None,
    mode: Literal["inference", "training"] = "inference",
    precision: Literal["auto", "half", "fp32", "tf32", "amp-fp16", "amp-bf16", "bf16", "fp16"] = "auto",
    batch: str | int = "",
    prompt_tokens: int | None = None,
    output_tokens: int | None = None,
    concurrency: str | int = "",
    weights: Literal["auto", "bf16", "fp8", "int8", "int4"] = "auto",
    layout: Literal["nchw", "nhwc"] = "nchw",
    compile: Literal["eager", "compile"] = "eager",  # noqa: A002 - the flag's name
    attention: Literal["auto", "eager", "fused"] = "auto",
    accumulate: int = 1,
    checkpoint_activations: bool = False,
    gpus: int | None = None,
    max_gpus: int | None = None,
    max_machines: int = 1,
    sharding: Literal["auto", "none", "zero1", "zero2", "zero3"] = "auto",
    samples: int | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    tokens: int | None = None,
    requests_per_day: int | None = None,
    requests_per_second: float | None = None,
    checkpoint_every: str | float | None = None,
    loader_s_per_sample: str | float | None = None,
    provider: str | Sequence[str] = (),
    region: str | Sequence[str] = (),
    tier: str | Sequence[str] = (),
    device: str | Sequence[str] = (),
    no_local: bool = False,
    no_calibrate: bool = False,
    measure: bool = False,
    price: Literal["on-demand", "spot", "commit-1y", "commit-3y"] = "on-demand",
    objective: Literal["cost", "time", "cost-time"] = "cost",
    deadline: str | float | None = None,
    max_usd: float | None = None,
    max_hourly: float | None = None,
    max_latency: str | float | None = None,
    max_ttft: str | float | None = None,
    max_tpot: str | float | None = None,
    min_throughput: float | None = None,
    max_price_age: int = 180,
    drop_prices: Literal["none", "flagged", "old"] = "flagged",
    currency: str = "USD",
    top: int = 10,
    strict: bool = False,
    profiles: str | Path | None = None,
    prices: str | Path | Sequence[str | Path] = (),
) -> Recommendation:
    """Rank every offer for one step of `model`; the same answer as `advise` gives for a file that holds it.

    `example_inputs` is what the model is called with (a tensor, a tuple, a dict of keyword arguments), or a function of
    the batch size that gives it; the leading dimension is the batch. `loss(output, batch)`, `optimizer(parameters)` and
    `train_step(model, batch)` are as in a model file. The keywords are the flags of `advise`, by the same names; times
    are seconds, or text such as "24h". With `prompt_tokens` and `output_tokens` a causal model of transformers is a
    service, made from its config; inputs, loss, optimizer and step say nothing then.
    Prints nothing and leaves the model as it was, wherever it lies. Raises `AdvisorError`, and what the model's own
    code raises.
    """
    from advisor.calibrate.run_step import time_loaded
    from advisor.workload.live_trace import gradients_allowed, trace_live
    from advisor.workload.sources.live import load_live

    options = checked_options(
        mode=mode,
        precision=precision,
        batch=batch,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        concurrency=concurrency,
        weights=weights,
        layout=layout,
        compile=compile,
        attention=attention,
        accumulate=accumulate,
        checkpoint_activations=checkpoint_activations,
        gpus=gpus,
        max_gpus=max_gpus,
        max_machines=max_machines,
        sharding=sharding,
        samples=samples,
        epochs=epochs,
        steps=steps,
        tokens=tokens,
        requests_per_day=requests_per_day,
        requests_per_second=requests_per_second,
        checkpoint_every=checkpoint_every,
        loader_s_per_sample=loader_s_per_sample,
        provider=provider,
        region=region,
        tier=tier,
        device=device,
        no_local=no_local,
        no_calibrate=no_calibrate,
        measure=measure,
        price=price,
        objective=objective,
        deadline=deadline,
        max_usd=max_usd,
        max_hourly=max_hourly,
        max_latency=max_latency,
        max_ttft=max_ttft,
        max_tpot=max_tpot,
        min_throughput=min_throughput,
        max_price_age=max_price_age,
        drop_prices=drop_prices,
        currency=currency,
        top=top,
        strict=strict,
        profiles=profiles,
        prices=prices,
    )
    if asks_for_tokens(options):
        with config_source(model) as source:
            return rank_source(source, options)
    catalog = catalog_of(options)
    loaded = load_live(model, example_inputs, loss=loss, optimizer=optimizer, train_step=train_step)

    def trace_at(batch: int | None) -> Workload:
        return trace_live(loaded, mode=mode, batch=batch, attention=attention)

    machine = None if no_local else this_machine()
    request = MeasureRequest(source=loaded.name, mode=mode, attention=attention, layout=layout, compile=compile)
    return rank_workload(
        trace_at(single_batch(options)),
        options,
        catalog=catalog,
        trace_at=trace_at,
        machine=machine,
        calibrated=calibrations_for(machine, catalog, options),
        measuring=Measuring(
            request=request, time_it=gradients_allowed()(partial(time_loaded, loaded)), precision=precision
        )
        if measure
        else None,
    )
