"""Writes a Workload as JSON, with totals for readers, and reads and validates it."""

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, astuple, replace
from pathlib import Path
from typing import Any

from advisor.errors import ROW_ERRORS, DocumentError, did_you_mean, row_problem
from advisor.files.json_text import read_as, read_json
from advisor.ops.evaluate import bytes_at, falls, row_cost
from advisor.ops.registry import ITEMSIZE_BYTES
from advisor.records.script import Script
from advisor.records.workload import SCHEMA_VERSION, Growth, Operand, Row, StoredBytes, Workload
from advisor.workload.summary import KINDS, coverage_ratio, group_rows, totals, unknown_ops

_DERIVED = frozenset({"totals", "by_family", "by_module", "by_phase", "coverage_ratio", "unknown_ops", "second_count"})
_APART = frozenset(
    {
        "rows", "memory", "inputs", "unknown_ops", "blocks", "taken", "squared_taken", "generation", "script",
        "fine_tuning", "is_half", "is_pretrained", "under_fsdp",
    }
)  # fmt: skip
"""Fields that are written in a form of their own, or only where they say something."""
_SIDES = ("inputs", "outputs")
_COLUMNS = ("op", "family", "phase", "module", "count", *_SIDES, "attributes")
_LARGEST = 2.0**63
"""torch's sizes and integers are below this."""
_MOST_ELEMENTS = 2.0**48
"""Processors cannot address more bytes, so no tensor has more elements."""
_MOST_BYTES = 2.0**57
"""Address space of processors with five levels of page tables."""
_GROWTH_LENGTHS = (2, 3)
_MOST_CALLS = 1e9
"""A call takes at least a microsecond, so a step of more calls would take over a quarter of an hour."""
_MOST_BATCH = 1e9
_MOST_SAMPLES = 1e15
"""The limit of `--batch`."""
_MOST_TAKEN_RATIO = 1e7
"""The caching allocator may reserve 20 MB for a tensor of 4 bytes."""
_MOST_BYTES_PER_PARAMETER = 16.0
"""The size of complex128."""


def workload_to_json(workload: Workload) -> dict[str, Any]:
    """Return the JSON document; its totals and groups are for readers, at the workload's batch."""
    document = {name: getattr(workload, name) for name in Workload.__dataclass_fields__ if name not in _APART}
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
        **({} if workload.squared_taken is None else {"squared_taken": asdict(workload.squared_taken)}),
        **({} if workload.generation is None else {"generation": asdict(workload.generation)}),
        **({} if workload.fine_tuning is None else {"fine_tuning": asdict(workload.fine_tuning)}),
        **{name: True for name in ("is_half", "is_pretrained") if getattr(workload, name)},
        **({} if workload.script is None else {"script": _script_to_json(workload.script)}),
        "rows": {
            **{name: [getattr(row, name) for row in workload.rows] for name in _COLUMNS[:5]},
            **{side: [list(map(_operand_to_json, getattr(row, side))) for row in workload.rows] for side in _SIDES},
            "attributes": [dict(row.attributes) for row in workload.rows],
        },
    }


def _script_to_json(script: Script) -> dict[str, Any]:
    """Return the script's settings; what it reads belongs to this machine."""
    return {name: value for name, value in asdict(script).items() if name != "reads"}


def _operand_to_json(operand: Operand) -> dict[str, Any]:
    flags = {name: True for name in Operand.__dataclass_fields__ if getattr(operand, name) is True}
    return {"shape": list(operand.shape), "dtype": operand.dtype, **flags}


def workload_from_json(document: Any, *, where: str = "workload") -> Workload:
    """Return the Workload in `document`; raise `DocumentError` if it is not valid.

    Keys derived from the rows are ignored and computed anew, such as the operators without a formula.
    """
    if not isinstance(document, Mapping):
        raise _refused(f"found {type(document).__name__}, not a workload document", where=where)
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        raise _refused(
            f"found {version!r:.80}, but this version reads {SCHEMA_VERSION}",
            where=where,
            key="schema_version",
            hint="create the workload again with `advise profile SOURCE -o workload.json`",
        )
    fields = {name: value for name, value in document.items() if name not in _DERIVED}
    _reject_unknown(fields, [name for name in Workload.__dataclass_fields__ if name != "under_fsdp"], where=where)
    fields["rows"] = list(_rows(document.get("rows"), where=where))
    fields["unknown_ops"] = {}
    workload = read_as(Workload, fields, where=where, hint=HINT)
    for key, problem in _problems(workload):
        raise _refused(problem, where=where, key=key)
    return replace(workload, unknown_ops=unknown_ops(workload.rows))


def read_workload(path: Path) -> Workload:
    """Return the Workload in a JSON file; raise `LoadError` if it cannot be read."""
    return workload_from_json(read_json(path, hint=HINT), where=str(path))


HINT = "create a workload with `advise profile SOURCE -o workload.json`"


def _refused(problem: str, *, where: str, key: str = "", hint: str = HINT) -> DocumentError:
    return DocumentError(problem, where=where, key=key, hint=hint)


def _rows(columns: Any, *, where: str) -> Iterator[dict[str, Any]]:
    if not isinstance(columns, Mapping):
        raise _refused(f"found {type(columns).__name__}, not a table of columns", where=where, key="rows")
    _reject_unknown(columns, _COLUMNS, where=where, key="rows")
    for name in _COLUMNS:
        if not isinstance(columns.get(name), list):
            raise _refused("expected a list", where=where, key=f"rows.{name}")
    lengths = {name: len(columns[name]) for name in _COLUMNS}
    if len(set(lengths.values())) > 1:
        raise _refused(f"the columns differ in length: {lengths}", where=where, key="rows")
    for values in zip(*(columns[name] for name in _COLUMNS), strict=True):
        yield dict(zip(_COLUMNS, values, strict=True))


def _reject_unknown(found: Mapping[str, Any], known: Any, *, where: str, key: str = "") -> None:
    for name in found:
        if name not in known:
            hint = did_you_mean(str(name), known, otherwise=HINT)
            raise _refused(f"unknown key {str(name)!r:.80}", where=where, key=key, hint=hint)


_Problem = tuple[str, str]
"""Key in the document, and what is wrong with it."""


def _problems(workload: Workload) -> Iterator[_Problem]:
    """Yield problems that type checks cannot find: impossible counts and sizes, and rows whose cost fails."""
    yield from _outside(workload.batch, least=1, most=_MOST_BATCH, key="batch")
    yield from _outside(workload.parameter_count, most=_MOST_ELEMENTS, key="parameter_count")
    most_bytes = _MOST_BYTES_PER_PARAMETER * max(workload.parameter_count, 0)
    yield from _outside(workload.parameter_bytes, most=most_bytes, key="parameter_bytes")
    for key in ("traced_batches", "memory"):
        if not getattr(workload, key):
            yield key, "is empty"
    for batch in workload.traced_batches:
        yield from _outside(batch, least=1, most=_MOST_BATCH, key="traced_batches")
    if workload.generation is not None:
        for key, least in (("prompt_tokens", 1), ("output_tokens", 2), ("head_count", 1), ("kv_head_count", 1)):
            number = getattr(workload.generation, key)
            yield from _outside(least if number is None else number, least=least, most=1e9, key=f"generation.{key}")
    if workload.script is not None:
        yield from _outside(workload.script.passes, least=1, most=_MOST_BATCH, key="script.passes")
        yield from _outside(workload.script.worker_count or 0, most=_MOST_BATCH, key="script.worker_count")
        yield from _outside(workload.script.loader_s_per_sample or 0, most=1e9, key="script.loader_s_per_sample")
        yield from _outside(workload.script.sample_count or 0, most=_MOST_SAMPLES, key="script.sample_count")
    # A workload whose sizes are not a + b x batch is never evaluated at another batch than its own.
    least_batch = 1 if workload.batch_is_affine else workload.batch
    for index, operand in enumerate(workload.inputs):
        yield from _operand_problems(operand, workload.batch, least_batch=least_batch, key=f"inputs.{index}")
    for index, line in enumerate(workload.memory):
        for kind in KINDS:
            stored: StoredBytes = getattr(line, kind)
            yield from _stored_problems(stored, workload.batch, least_batch=least_batch, key=f"memory.{index}.{kind}")
    for index, blocks in enumerate(workload.blocks):
        yield from _outside(blocks.count, least=1, most=_MOST_CALLS, key=f"blocks.{index}.count")
        for key in ("parameter_bytes", "largest_parameter_bytes"):
            yield from _outside(getattr(blocks, key), most=_MOST_BYTES, key=f"blocks.{index}.{key}")
        for key in ("kept", "largest_kept", "results"):
            held: StoredBytes = getattr(blocks, key)
            yield from _stored_problems(held, workload.batch, least_batch=least_batch, key=f"blocks.{index}.{key}")
    for name, taken in (("taken", workload.taken), ("squared_taken", workload.squared_taken or workload.taken)):
        for key in ("heap", "cache"):
            yield from _outside(getattr(taken, key), least=1, most=_MOST_TAKEN_RATIO, key=f"{name}.{key}")
    for index, row in enumerate(workload.rows):
        yield from _row_problems(row, workload.batch, least_batch=least_batch, key=f"rows.{index} ({row.op})")


def _row_problems(row: Row, batch: int, *, least_batch: int, key: str) -> Iterator[_Problem]:
    yield from _outside(row.count, least=1, most=_MOST_CALLS, key=f"{key}.count")
    for side in _SIDES:
        for index, operand in enumerate(getattr(row, side)):
            yield from _operand_problems(operand, batch, least_batch=least_batch, key=f"{key}.{side}.{index}")
    for name, value in row.attributes.items():
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, (int, float)):
                yield from _outside(part, least=-_LARGEST, key=f"{key}.attributes.{name}")
    try:
        costs = [row_cost(row, batch=batch)]
    except ROW_ERRORS as error:
        yield key, row_problem(error)
        return
    if least_batch != batch:
        with suppress(*ROW_ERRORS):  # an operand may be empty at a batch of one; evaluating that batch reports it
            costs += [row_cost(row, batch=at) for at in (least_batch, _MOST_BATCH)]
    for cost in costs:
        if not all(0 <= number < math.inf for number in (cost.flops, cost.read_bytes, cost.write_bytes)):
            yield key, "its operands and attributes give negative or infinite FLOP or bytes"


def _operand_problems(operand: Operand, batch: int, *, least_batch: int, key: str) -> Iterator[_Problem]:
    if operand.dtype not in ITEMSIZE_BYTES:
        yield f"{key}.dtype", f"found {operand.dtype!r:.80}, which is not a torch dtype"
    numel = 1.0
    for dim in operand.shape:
        growth = dim if isinstance(dim, tuple) else (dim, 0)
        size = float(bytes_at(growth, batch=batch))
        yield from _growth_problems(growth, least_batch=least_batch, key=f"{key}.shape")
        yield from _outside(size, key=f"{key}.shape")
        numel *= size
    yield from _outside(numel, most=_MOST_ELEMENTS, key=f"{key}.shape")


def _stored_problems(stored: StoredBytes, batch: int, *, least_batch: int, key: str) -> Iterator[_Problem]:
    for growth in astuple(stored):
        if len(growth) not in _GROWTH_LENGTHS:
            yield key, f"found {len(growth)} numbers, expected {' or '.join(map(str, _GROWTH_LENGTHS))}"
        yield from _growth_problems(growth, least_batch=least_batch, key=key)
        yield from _outside(float(bytes_at(growth, batch=batch)), most=_MOST_BYTES, key=key)


def _growth_problems(growth: Growth, *, least_batch: int, key: str) -> Iterator[_Problem]:
    """Check that a size is at least 0 at the smallest batch and does not fall, so that it is valid at every batch."""
    for number in growth:
        yield from _outside(number, least=-_LARGEST, key=key)
    found = f"found [{', '.join(f'{number:g}' for number in growth)}]"
    if falls(growth):
        yield key, f"{found}, which falls as the batch grows"
    if bytes_at(growth, batch=least_batch) < 0:
        yield key, f"{found}, which is below 0 at a batch of {least_batch}"


def _outside(number: float, *, least: float = 0, most: float = _LARGEST, key: str) -> Iterator[_Problem]:
    if not (least <= number <= most and number < _LARGEST):  # also catches NaN
        yield key, f"found {number:g}, expected {least:g} to {most:g}"
