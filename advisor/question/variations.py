"""A source in, one step of its model out: as it is, and at several values of the parameters of its factory."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from advisor.errors import AdvisorError, UsageError
from advisor.question.from_source import check_source, profile_source, request_of, single_batch
from advisor.records.options import Options
from advisor.records.workload import Workload
from advisor.workload.factory import whole_number_parameters, with_argument
from advisor.workload.spawn import SCHEMES
from advisor.workload.trace_many import trace_many

MAX_VALUES = 9
_WIDTHS = ("width", "hidden", "hidden_size", "hidden_dim", "d_model", "dim", "embed_dim", "n_embd", "channels")
_DEPTHS = ("depth", "layers", "num_layers", "n_layers", "n_layer", "layer_count")
_AROUND = (1 / 4, 1 / 2, 1, 2, 4)
"""What a width or depth that nobody asked for is varied to, by its default."""
_SPEC = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?:(?P<first>\d+)\.\.(?P<last>\d+)|(?P<list>\d+(?:,\d+)+))")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """The same model at several values of a parameter of its factory; `problems` say which values have no trace."""

    parameter: str
    workloads: Mapping[int, Workload]
    problems: tuple[str, ...] = ()


def parse_variation(text: str) -> tuple[str, tuple[int, ...]]:
    """ "width=64..4096", its ends and what doubling the first gives between them, or "depth=2,6,12"."""
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
    """Trace what `vary` asks for; without it the width and the depth that the source's factory takes, where it does."""
    asked = dict(map(parse_variation, vary)) or ({} if run else _around_defaults(source))
    if not asked:
        return ()
    if run or not source.partition("::")[0].endswith(".py"):
        raise UsageError(f"--vary: {source} names no factory", hint="name one that takes it: FILE.py::get_model")
    requests = {
        (parameter, value): request_of(with_argument(source, parameter, value), options, batch=single_batch(options))
        for parameter, values in asked.items()
        for value in values
    }
    outcomes = trace_many(requests.values())
    variations = []
    for parameter, values in asked.items():
        found = {value: outcomes[requests[parameter, value]] for value in values}
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
                problems=tuple(f"{parameter} = {value}: {error.message}" for value, error in errors.items()),
            )
        )
    return tuple(variations)


def trace_base(source: str, options: Options, *, run: bool, script_args: tuple[str, ...]) -> Workload:
    """The source itself; where a package or a config describes it, and so its trace can be kept, from the last time."""
    if run or source.partition(":")[0] not in SCHEMES:
        at_one_batch = options if single_batch(options) else replace(options, batch="")
        return profile_source(source, at_one_batch, run=run, script_args=script_args).workload
    check_source(source, options, run=run)
    request = request_of(source, options, batch=single_batch(options))
    outcome = trace_many([request])[request]
    if not isinstance(outcome, Workload):
        raise outcome
    return outcome


def _around_defaults(source: str) -> dict[str, tuple[int, ...]]:
    if not source.partition("::")[0].endswith(".py"):
        return {}
    try:
        defaults = whole_number_parameters(source)
    except AdvisorError:  # several classes, none of them named: the file's `model` may still be clear
        return {}
    names = [next((name for name in kind if name in defaults), None) for kind in (_WIDTHS, _DEPTHS)]
    return {
        name: tuple(sorted({max(1, round(defaults[name] * factor)) for factor in _AROUND})) for name in names if name
    }
