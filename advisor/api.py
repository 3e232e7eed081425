"""The public Python functions: each builds a question from a model and asks one answer."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from advisor.answers import break_even, explanation, full_report, memory_fit, ranking
from advisor.answers.observation import Observed
from advisor.errors import UsageError
from advisor.files.whole_file import write_whole
from advisor.question.from_model import question_from_model
from advisor.question.option_values import names_of, options_among, options_of
from advisor.records.answer import Recommendation
from advisor.records.break_even_curves import BreakEven
from advisor.records.device_memory import MemoryAnswer
from advisor.records.explained_step import Explanation

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

_Loss: TypeAlias = "Callable[[Any, Any], torch.Tensor]"
_Optimizer: TypeAlias = "Callable[[Iterable[Any]], torch.optim.Optimizer]"
_TrainStep: TypeAlias = "Callable[[nn.Module, Any], Any]"


def recommend(
    model: "nn.Module",
    example_inputs: Any = None,
    *,
    loss: "_Loss | None" = None,
    optimizer: "_Optimizer | None" = None,
    train_step: "_TrainStep | None" = None,
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
    """Rank every offer for one step of `model`, with the answer that `advise` gives for a file that holds the model.

    `example_inputs` is what the model is called with (a tensor, a tuple, a dict of keyword arguments), or a function of
    the batch size that returns it; the leading dimension is the batch. `loss(output, batch)`, `optimizer(parameters)`
    and `train_step(model, batch)` are as in a model file. The other keywords are the flags of `advise` with the same
    names; times are seconds, or text such as "24h". With `prompt_tokens` and `output_tokens` a causal model of
    transformers is served, built from its config; inputs, loss, optimizer and step are then ignored.
    Prints nothing and leaves the model unchanged and on its device. Raises `AdvisorError`, and what the model's own
    code raises.
    """
    options = options_among(locals())
    return ranking.rank(
        question_from_model(model, example_inputs, options, loss=loss, optimizer=optimizer, train_step=train_step)
    )


def explain(
    model: "nn.Module",
    example_inputs: Any = None,
    *,
    on: str | Sequence[str] = (),
    loss: "_Loss | None" = None,
    optimizer: "_Optimizer | None" = None,
    train_step: "_TrainStep | None" = None,
    **flags: Any,
) -> Explanation:
    """Explain why a step of `model` takes as long as `recommend` says, on the best offer or on those named by `on`.

    Everything else, `flags` included, is as `recommend` takes it.
    """
    options, names = options_of(flags, function="explain"), names_of(on)
    question = question_from_model(
        model, example_inputs, options, loss=loss, optimizer=optimizer, train_step=train_step, on=names
    )
    return explanation.explain(question, on=names)


def memory(
    model: "nn.Module",
    example_inputs: Any = None,
    *,
    on: str | Sequence[str] = (),
    loss: "_Loss | None" = None,
    optimizer: "_Optimizer | None" = None,
    train_step: "_TrainStep | None" = None,
    **flags: Any,
) -> MemoryAnswer:
    """Say whether a step of `model` fits the devices that `on` names, or all devices on offer.

    Everything else, `flags` included, is as `recommend` takes it.
    """
    options = options_of(flags, function="memory")
    memory_fit.check_one_batch(options)
    question = question_from_model(
        model, example_inputs, options, loss=loss, optimizer=optimizer, train_step=train_step, read_machine=None
    )
    return memory_fit.memory_fit(question, on=names_of(on))


def breakeven(
    model: "nn.Module",
    example_inputs: Any = None,
    *,
    loss: "_Loss | None" = None,
    optimizer: "_Optimizer | None" = None,
    train_step: "_TrainStep | None" = None,
    **flags: Any,
) -> BreakEven:
    """Find where the cheapest CPU and the cheapest GPU for `model` cost the same; arguments are as for `recommend`."""
    options = options_of(flags, function="breakeven")
    return break_even.break_even(
        question_from_model(model, example_inputs, options, loss=loss, optimizer=optimizer, train_step=train_step)
    )


def save_report(
    model: "nn.Module",
    example_inputs: Any,
    file: str | Path,
    *,
    loss: "_Loss | None" = None,
    optimizer: "_Optimizer | None" = None,
    train_step: "_TrainStep | None" = None,
    **flags: Any,
) -> Recommendation:
    """Write the report of `advise SOURCE -o report.html` for `model`, and return the recommendation that it shows.

    Everything else is as `recommend` takes it, `flags` included except `measure`. Raises `UsageError` if `file` does
    not end in .html.
    """
    from advisor.report.html import render_report  # only a report needs it, and `recommend` should start quickly

    options, path = options_of(flags, function="save_report"), Path(file)
    if path.suffix.lower() != ".html":
        raise UsageError(f"{path}: a report is an HTML file", hint="name it report.html; the answer alone has .save()")
    report = full_report.report(
        question_from_model(model, example_inputs, options, loss=loss, optimizer=optimizer, train_step=train_step)
    )
    write_whole(render_report(report), path)
    return report.recommendation


@contextmanager
def observe(model: "nn.Module", *, loader: "DataLoader[Any] | None" = None) -> Iterator[Observed]:
    """Time the steps that the code inside the `with` takes with `model`; the result recommends from them.

    A training step lasts from the model's call to the end of its optimizer's step, an inference step as long as the
    call. The model, its optimizer and the results stay as they are. With `loader`, the waits for its workers tell how
    long a sample takes to load.
    """
    from advisor.calibrate.observer import Observer

    observer = Observer(model)
    with observer.following():
        yield Observed(observer, worker_count=None if loader is None else loader.num_workers)
