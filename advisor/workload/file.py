"""The Workload as a JSON document: rows as columns, with the totals a reader wants beside them."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.errors import ROW_ERRORS, DocumentError, LoadError, row_problem
from advisor.json_text import parse_json, read_as
from advisor.ops.evaluate import row_cost
from advisor.ops.registry import ITEMSIZE_BYTES
from advisor.records.workload import SCHEMA_VERSION, Operand, Row, StoredBytes, Workload
from advisor.regular_file import read_regular_file
from advisor.workload.summary import KINDS, coverage_ratio, group_rows, totals

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_DERIVED = frozenset({"totals", "by_family", "by_module", "by_phase", "coverage_ratio"})
_COLUMNS = ("op", "family", "phase", "module", "count", "inputs", "outputs", "attributes")
_LARGEST = 2.0**63
"""No count, dimension or size is as large; a larger number is a mistake, and would overflow further on."""


def workload_to_json(workload: Workload) -> dict[str, Any]:
    """The document. Totals, groups and the columns of FLOP and bytes are at the source's own batch, for readers."""
    document = {
        name: getattr(workload, name)
        for name in Workload.__dataclass_fields__
        if name not in ("rows", "memory", "inputs", "unknown_ops", "blocks", "taken", "generation")
    }
    groups = {
        f"by_{by}": [asdict(group) for group in group_rows(workload, by=by, batch=workload.batch)]
        for by in ("family", "module", "phase")
    }
    return {
        **document,
        "totals": asdict(totals(workload, batch=workload.batch)),
        **groups,
        "coverage_ratio": coverage_ratio(workload),
        "unknown_ops": dict(workload.unknown_ops),
        "inputs": [_operand_to_json(operand) for operand in workload.inputs],
        "memory": [asdict(line) for line in workload.memory],
        "blocks": [asdict(blocks) for blocks in workload.blocks],
        "taken": asdict(workload.taken),
        **({} if workload.generation is None else {"generation": asdict(workload.generation)}),
        "rows": {
            **{name: [getattr(row, name) for row in workload.rows] for name in _COLUMNS[:5]},
            "inputs": [[_operand_to_json(operand) for operand in row.inputs] for row in workload.rows],
            "outputs": [[_operand_to_json(operand) for operand in row.outputs] for row in workload.rows],
            "attributes": [dict(row.attributes) for row in workload.rows],
        },
    }


def _operand_to_json(operand: Operand) -> dict[str, Any]:
    flags = {name: True for name in ("low", "fused", "joined", "narrowed", "kept", "varies") if getattr(operand, name)}
    return {"shape": list(operand.shape), "dtype": operand.dtype, **flags}


def workload_from_json(document: Any, *, where: str = "workload") -> Workload:
    """The Workload in `document`; raise `DocumentError` where it is not one. Derived keys are not read."""
    if not isinstance(document, Mapping):
        raise _refused(f"found {type(document).__name__}, not a workload document", where=where)
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        raise _refused(
            f"found {version!r:.80}, this program reads {SCHEMA_VERSION}",
            where=where,
            key="schema_version",
            hint="write the workload anew with `advise profile SOURCE -o workload.json`",
        )
    fields = {name: value for name, value in document.items() if name not in _DERIVED}
    _reject_unknown(fields, Workload.__dataclass_fields__, where=where)
    fields["rows"] = list(_rows(document.get("rows"), where=where))
    workload = read_as(_adapter(), fields, where=where, hint=HINT)
    for key, problem in _problems(workload):
        raise _refused(problem, where=where, key=key)
    return workload


def read_workload(path: Path) -> Workload:
    """The Workload in a JSON file; raise LoadError where it cannot be read."""
    try:
        text = read_regular_file(path)
    except OSError as error:
        raise LoadError(f"{path}: {error.strerror}", hint="check the path and its permissions") from None
    return workload_from_json(parse_json(text, where=str(path), hint=HINT), where=str(path))


HINT = "a workload is what `advise profile SOURCE -o workload.json` writes"


def _refused(problem: str, *, where: str, key: str = "", hint: str = HINT) -> DocumentError:
    return DocumentError(problem, where=where, key=key, hint=hint)


@cache
def _adapter() -> "TypeAdapter[Workload]":
    from pydantic import TypeAdapter

    return TypeAdapter(Workload)


def _rows(columns: Any, *, where: str) -> Iterator[dict[str, Any]]:
    """The rows that the columns hold."""
    if not isinstance(columns, Mapping):
        raise _refused(f"found {type(columns).__name__}, not a table of columns", where=where, key="rows")
    _reject_unknown(columns, _COLUMNS, where=where, key="rows")
    lengths = {}
    for name in _COLUMNS:
        if not isinstance(columns.get(name), list):
            raise _refused("no list is there", where=where, key=f"rows.{name}")
        lengths[name] = len(columns[name])
    if len(set(lengths.values())) > 1:
        raise _refused(f"the columns differ in length: {lengths}", where=where, key="rows")
    for values in zip(*(columns[name] for name in _COLUMNS), strict=True):
        yield dict(zip(_COLUMNS, values, strict=True))


def _reject_unknown(found: Mapping[str, Any], known: Any, *, where: str, key: str = "") -> None:
    for name in found:
        if name not in known:
            close = get_close_matches(str(name), list(known), n=1)
            hint = f"did you mean {close[0]!r}?" if close else HINT
            raise _refused(f"unknown key {str(name)!r:.80}", where=where, key=key, hint=hint)


_Problem = tuple[str, str]
"""Where in the document, and what."""


def _problems(workload: Workload) -> Iterator[_Problem]:
    """What the types do not say: counts and sizes are those of something real, and every row can be counted."""
    for key in ("batch", "parameter_count", "parameter_bytes"):
        yield from _outside(getattr(workload, key), least=1 if key == "batch" else 0, key=key)
    for key in ("traced_batches", "memory"):
        if not getattr(workload, key):
            yield key, "nothing is there"
    if workload.generation is not None:
        for key in ("prompt_tokens", "output_tokens"):
            least = 1 if key == "prompt_tokens" else 2
            yield from _outside(getattr(workload.generation, key), least=least, key=f"generation.{key}")
    for op, count in workload.unknown_ops.items():
        yield from _outside(count, least=1, key=f"unknown_ops.{op}")
    for index, operand in enumerate(workload.inputs):
        yield from _operand_problems(operand, batch=workload.batch, key=f"inputs.{index}")
    for index, line in enumerate(workload.memory):
        for kind in KINDS:
            stored: StoredBytes = getattr(line, kind)
            for number in (*stored.low, *stored.full, *stored.other):
                # The line of one moment may start below zero, or fall.
                yield from _outside(number, least=-_LARGEST, key=f"memory.{index}.{kind}")
    for index, blocks in enumerate(workload.blocks):
        for key in ("count", "parameter_bytes", "largest_parameter_bytes"):
            yield from _outside(getattr(blocks, key), least=0, key=f"blocks.{index}.{key}")
        for held in (blocks.kept, blocks.largest_kept, blocks.results):
            for number in (*held.low, *held.full, *held.other):
                yield from _outside(number, least=-_LARGEST, key=f"blocks.{index}")
    for key in ("heap", "cache"):
        yield from _outside(getattr(workload.taken, key), least=1, key=f"taken.{key}")
    for index, row in enumerate(workload.rows):
        yield from _row_problems(row, batch=workload.batch, key=f"rows.{index} ({row.op})")


def _row_problems(row: Row, *, batch: int, key: str) -> Iterator[_Problem]:
    yield from _outside(row.count, least=1, key=f"{key}.count")
    for side in ("inputs", "outputs"):
        for index, operand in enumerate(getattr(row, side)):
            yield from _operand_problems(operand, batch=batch, key=f"{key}.{side}.{index}")
    for name, value in row.attributes.items():
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, (int, float)):
                yield from _outside(part, least=-_LARGEST, key=f"{key}.attributes.{name}")
    try:
        row_cost(row, batch=batch)
    except ROW_ERRORS as error:
        yield key, row_problem(error)


def _operand_problems(operand: Operand, *, batch: int, key: str) -> Iterator[_Problem]:
    if operand.dtype not in ITEMSIZE_BYTES:
        yield f"{key}.dtype", f"found {operand.dtype!r:.80}, which is no dtype of torch"
    numel = 1.0
    for dim in operand.shape:
        constant, per_sample = dim if isinstance(dim, tuple) else (dim, 0)
        for number in (constant, per_sample):
            yield from _outside(number, least=-_LARGEST, key=f"{key}.shape")
        yield from _outside(constant + per_sample * batch, least=0, key=f"{key}.shape")
        numel *= constant + per_sample * batch
    yield from _outside(numel, least=0, key=f"{key}.shape")


def _outside(number: float, *, least: float, key: str) -> Iterator[_Problem]:
    if not least <= number < _LARGEST:  # NaN is neither
        yield key, f"found {number}, expected at least {least:g} and less than {_LARGEST:g}"
