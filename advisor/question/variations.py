"""Traces a model at several values of the parameters of its factory."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from advisor.errors import AdvisorError, UsageError
from advisor.question.early_trace import request_of
from advisor.question.from_source import at_lengths_of, traced
from advisor.question.record import TraceAt
from advisor.records.flag_values import single_batch_of
from advisor.records.options import Options
from advisor.records.workload import Workload
from advisor.workload.factory import whole_number_parameters, with_argument
from advisor.workload.trace_many import trace_many

MAX_VALUES = 9
_WIDTHS = ("width", "hidden", "hidden_size", "hidden_dim", "d_model", "dim", "embed_dim", "n_embd", "channels")
_DEPTHS = ("depth", "layers", "num_layers", "n_layers", "n_layer", "layer_count")
_AROUND = (1 / 4, 1 / 2, 1, 2, 4)
"""Multiples of its default at which a width or a depth is traced if `--vary` is not given."""
_SPEC = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?:(?P<first>\d+)\.\.(?P<last>\d+)|(?P<list>\d+(?:,\d+)+))")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """The same model at several values of a parameter of its factory; `problems` lists the values without a trace.

    `trace_at` traces at other batch sizes, as that of a question.
    """

    parameter: str
    workloads: Mapping[int, Workload]
    trace_at: Mapping[int, TraceAt] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def parse_variation(text: str) -> tuple[str, tuple[int, ...]]:
    """Return the name and the values of "depth=2,6,12", or of "width=64..4096": both ends, and 64 doubled between."""
    found = _SPEC.fullmatch(text.replace(" ", ""))
    if found is None:
        raise UsageError(f"--vary {text}: not NAME=FROM..TO nor NAME=N,N,...", hint="write width=64..4096")
    if found["list"]:
        values = {int(number) for number in found["list"].split(",")}
    else:
        first, last = int(found["first"]), int(found["last"])
        doubled = (first << exponent for exponent in range(MAX_VALUES)) if first else iter(())
        values = {first, *(value for value in doubled if value < last), last}
    if min(values) < 1 or not 1 < len(values) <= MAX_VALUES:
        raise UsageError(
            f"--vary {text}: {len(values)} values from {min(values)} on",
            hint=f"2 to {MAX_VALUES} whole numbers from 1 on can be traced",
        )
    return found["name"], tuple(sorted(values))


def trace_variations(source: str, options: Options, *, vary: Sequence[str], run: bool) -> tuple[Variation, ...]:
    """Trace what `vary` asks for; without it, vary the width and the depth that the source's factory takes."""
    asked = dict(map(parse_variation, vary)) or ({} if run else _around_defaults(source))
    if not asked:
        return ()
    if run or not source.partition("::")[0].endswith(".py"):
        raise UsageError(f"--vary: {source} names no factory", hint="name one that takes it: FILE.py::get_model")
    requests = {
        (parameter, value): request_of(
            with_argument(source, parameter, value), options, batch=single_batch_of(options.batch)
        )
        for parameter, values in asked.items()
        for value in values
    }
    outcomes = trace_many(requests.values())
    variations = []
    for parameter, values in asked.items():
        found = {value: outcomes[requests[parameter, value]] for value in values}
        trace_at: dict[int, TraceAt] = {}
        for value, outcome in found.items():
            if isinstance(outcome, Workload):
                try:
                    found[value], trace_at[value] = _at_batches(outcome, requests[parameter, value].source, options)
                except AdvisorError as error:
                    found[value] = error
        errors = {value: outcome for value, outcome in found.items() if isinstance(outcome, AdvisorError)}
        for outcome in found.values():
            if not isinstance(outcome, Workload | AdvisorError):
                raise outcome
        if vary and len(errors) == len(found):
            raise next(iter(errors.values()))
        variations.append(
            Variation(
                parameter=parameter,
                workloads={value: outcome for value, outcome in found.items() if isinstance(outcome, Workload)},
                trace_at=trace_at,
                problems=tuple(f"{parameter} = {value}: {error.message}" for value, error in errors.items()),
            )
        )
    return tuple(variations)


def _at_batches(first: Workload, source: str, options: Options) -> tuple[Workload, TraceAt]:
    """Return the step that was asked for, and how it is traced at other batch sizes."""
    if (at_lengths := at_lengths_of(first, source, options)) is not None:
        return at_lengths(single_batch_of(options.batch) or first.batch), at_lengths
    return first, lambda batch: traced(request_of(source, options, batch=batch))


def _around_defaults(source: str) -> dict[str, tuple[int, ...]]:
    if not source.partition("::")[0].endswith(".py"):
        return {}
    try:
        defaults = whole_number_parameters(source)
    except AdvisorError:  # several classes and none named: the file may still have a `model`
        return {}
    names = [next((name for name in kind if name in defaults), None) for kind in (_WIDTHS, _DEPTHS)]
    return {
        name: tuple(sorted({max(1, round(defaults[name] * factor)) for factor in _AROUND})) for name in names if name
    }
