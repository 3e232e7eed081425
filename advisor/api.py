"""The public Python functions: each builds a question from a model and asks one answer."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from advisor.answers import break_even, explanation, full_report, memory_fit, ranking
from advisor.answers.observation import Observed
from advisor.errors import AdvisorError, UsageError
from advisor.files.whole_file import require_folder, write_whole
from advisor.question.from_model import question_from_model
from advisor.question.from_source import question_from_source
from advisor.question.keywords import Keywords, RankKeywords
from advisor.question.option_values import MODEL_FUNCTIONS, names_of, options_of
from advisor.question.record import Question
from advisor.records.answer import Recommendation
from advisor.records.break_even_curves import BreakEven
from advisor.records.device_memory import FitAnswer, MemoryAnswer
from advisor.records.explained_step import Explanation
from advisor.records.flag_values import with_fields
from advisor.records.machine import LOCAL
from advisor.records.options import NOT_IN_PYTHON, Options

if TYPE_CHECKING:
    from torch import nn
    from torch.utils.data import DataLoader

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _public(keywords: type) -> Callable[[_Function], _Function]:
    """Let `help(function)` and editors list every one of `keywords`, with the defaults of `Options`.

    Errors name keywords instead of flags, and a traceback ends with their hint.
    """

    def public(function: _Function) -> _Function:
        @wraps(function)
        def called(*arguments: Any, **named: Any) -> Any:
            try:
                return function(*arguments, **named)
            except AdvisorError as error:
                error.message, error.hint = (
                    with_fields(text, without=NOT_IN_PYTHON) for text in (error.message, error.hint)
                )
                error.args = (error.message,)
                if error.hint:
                    error.add_note(error.hint)
                raise

        signature = inspect.signature(function)
        own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
        listed = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=getattr(_DEFAULTS, name, None), annotation=kind
            )
            for name, kind in keywords.__annotations__.items()
        ]
        called.__signature__ = signature.replace(parameters=[*own, *listed])  # type: ignore[attr-defined]
        return called  # type: ignore[return-value]

    return public


_DEFAULTS = Options()


@_public(RankKeywords)
def recommend(model: "nn.Module | str", example_inputs: Any = None, **keywords: Unpack[RankKeywords]) -> Recommendation:
    """Rank every offer for one step of `model`, with the answer that `advise` gives for a file that holds the model.

    `example_inputs` is what the model is called with (a tensor, a tuple, a dict of keyword arguments), or a function of
    the batch size that returns it; the leading dimension is the batch. `loss(output, batch)`, `optimizer(parameters)`
    and `train_step(model, batch)` are as in a model file. The other keywords are the flags of `advise` with the same
    names; times are seconds, or text such as "24h". With `prompt_tokens` and `output_tokens` a causal model of
    transformers is served, and with `finetune` one is fine-tuned, built from its config; inputs, loss, optimizer and
    step are then ignored. A source as `advise` takes it, such as "hf:Qwen/Qwen2.5-7B", may stand for the model, and
    brings its own.
    Prints nothing and leaves the model unchanged and on its device. While it is traced it holds fake tensors, so no
    other thread may call it meanwhile: pass `copy.deepcopy(model).to("meta")` if one may. Raises `AdvisorError`, and
    what the model's own code raises.
    """
    options = options_of(keywords, function="recommend", without=())
    return ranking.rank(_question(model, example_inputs, options, keywords))


@_public(Keywords)
def explain(
    model: "nn.Module | str", example_inputs: Any = None, *, on: str | Sequence[str] = (), **keywords: Unpack[Keywords]
) -> Explanation:
    """Explain why a step of `model` takes as long as `recommend` says, on the best offer or on those named by `on`.

    The other keywords are as `recommend` takes them, except `measure`.
    """
    options, names = options_of(keywords, function="explain"), names_of(on)
    return explanation.explain(_question(model, example_inputs, options, keywords, on=names), on=names)


@_public(Keywords)
def memory(
    model: "nn.Module | str", example_inputs: Any = None, *, on: str | Sequence[str] = (), **keywords: Unpack[Keywords]
) -> MemoryAnswer:
    """Say whether a step of `model` fits the devices that `on` names, or all devices on offer.

    The other keywords are as `recommend` takes them, except `measure`.
    """
    options = options_of(keywords, function="memory")
    memory_fit.check_one_batch(options)
    names = names_of(on)
    question = _question(model, example_inputs, options, keywords, **memory_fit.reading_here(names))
    return memory_fit.memory_fit(question, on=names)


@_public(Keywords)
def fits(model: "nn.Module | str", example_inputs: Any = None, **keywords: Unpack[Keywords]) -> FitAnswer:
    """Say in a sentence whether a step of `model` fits one device; the answer is true if it surely does.

    `device` names a device or an instance, by default this machine's first GPU, or its CPU. The other keywords are as
    `memory` takes them, and the figures are those of `memory`. Nothing is allocated: the step runs on fake tensors
    only. An error of the model's code gives the verdict "unknown" with the reason. Raises `UsageError` for a
    device that does not exist and for options that cannot be used.
    """
    options = options_of(keywords, function="fits")
    memory_fit.check_one_batch(options)
    name, *more = options.device or (LOCAL,)
    if more:
        raise UsageError(f"device: fits checks one device, found {len(more) + 1}", hint="memory(on=...) checks several")
    options = replace(options, device=(), no_calibrate=True)
    how = {} if isinstance(model, str) else {"real_step": False}  # a source is traced in a process of its own
    how |= memory_fit.reading_here((name,))
    ask = partial(_question, model, example_inputs, options, keywords, **how)
    return memory_fit.fit_on(name, ask)


@_public(Keywords)
def breakeven(model: "nn.Module | str", example_inputs: Any = None, **keywords: Unpack[Keywords]) -> BreakEven:
    """Find where the cheapest CPU and the cheapest GPU for `model` cost the same.

    The keywords are as `recommend` takes them, except `measure`.
    """
    options = options_of(keywords, function="breakeven")
    return break_even.break_even(_question(model, example_inputs, options, keywords))


@_public(Keywords)
def save_report(
    model: "nn.Module | str", example_inputs: Any, file: str | Path, **keywords: Unpack[Keywords]
) -> Recommendation:
    """Write the report of `advise SOURCE -o report.html` for `model`, and return the recommendation that it shows.

    The keywords are as `recommend` takes them, except `measure`. Raises `UsageError` if `file` does not end in .html or
    its folder does not exist.
    """
    from advisor.report.html import render_report  # only a report needs it, and `recommend` should start quickly

    options, path = options_of(keywords, function="save_report"), Path(file)
    if path.suffix.lower() != ".html":
        raise UsageError(f"{path}: a report is an HTML file", hint="name it report.html; the answer alone has .save()")
    require_folder(path)
    report = full_report.report(_question(model, example_inputs, options, keywords))
    write_whole(render_report(report), path)
    return report.recommendation


@contextmanager
def observe(model: "nn.Module", *, loader: "DataLoader[Any] | None" = None) -> Iterator[Observed]:
    """Time the steps that the code inside the `with` takes with `model`; the result recommends from them.

    A training step lasts from the model's call to the end of its optimizer's step, an inference step as long as the
    call, which must be under `torch.no_grad()` or `torch.inference_mode()`. The model, its optimizer and the results
    stay as they are. With `loader`, the waits for its workers tell how long a sample takes to load.
    """
    from advisor.calibrate.observer import Observer

    observer = Observer(model)
    with observer.following():
        yield Observed(observer, worker_count=None if loader is None else loader.num_workers)


def _question(
    model: "nn.Module | str", example_inputs: Any, options: Options, keywords: Keywords, **how: Any
) -> Question:
    functions = {name: keywords.get(name) for name in MODEL_FUNCTIONS}
    if not isinstance(model, str):
        return question_from_model(model, example_inputs, options, **functions, **how)  # type: ignore[arg-type]
    for name, value in {"example_inputs": example_inputs, **functions}.items():
        if value is not None:
            raise UsageError(
                f"{name}: the source {model} has its own", hint=f"leave {name} out, or pass the model itself"
            )
    return question_from_source(model, options, **how)
