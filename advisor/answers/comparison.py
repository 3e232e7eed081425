"""Compares two saved answers or workloads, or a saved answer with a new one."""

from pathlib import Path
from typing import Any

from advisor.answers.answer_changes import compare_answers
from advisor.answers.figure_changes import counted_changes, module_changes
from advisor.errors import DocumentError, LoadError, UsageError
from advisor.files.json_text import parse_json, read_as
from advisor.files.regular_file import read_regular_file
from advisor.records.answer import ANSWER_SCHEMA_VERSION, Recommendation
from advisor.records.change import COMPARISON_SCHEMA_VERSION, Comparison
from advisor.records.workload import Workload
from advisor.workload.file import workload_from_json
from advisor.workload.summary import group_rows, totals

_HINT = "compare what `advise SOURCE -o answer.json` writes, or what `advise profile SOURCE -o workload.json` does"


def compare_files(base: Path, new: Path) -> Comparison:
    """Compare two answers, or two saved workloads. Raises `AdvisorError` if they are of different kinds."""
    before, after = _read(base), _read(new)
    if isinstance(before, Recommendation) and isinstance(after, Recommendation):
        return compare_answers(before, after)
    if isinstance(before, Workload) and isinstance(after, Workload):
        return compare_workloads(before, after)
    raise UsageError(f"{base} and {new}: one is an answer, the other a workload", hint=_HINT)


def read_base(file: Path) -> Recommendation:
    """Read the answer that a later one is compared with; raise `AdvisorError` if the file holds none."""
    base = _read(file)
    if not isinstance(base, Recommendation):
        hint = "save the base with `advise SOURCE -o base.json`"
        raise UsageError(f"--compare-to {file}: it holds a workload, not an answer", hint=hint)
    return base


def compare_workloads(base: Workload, new: Workload) -> Comparison:
    """Compare two steps, each at its own batch, as a whole and by module."""
    batches = () if base.batch == new.batch else (f"the steps are of batch {base.batch} before, {new.batch} now",)
    modes = () if base.mode == new.mode else (f"the steps are of {base.mode} before, {new.mode} now",)
    return Comparison(
        schema_version=COMPARISON_SCHEMA_VERSION,
        kind="workloads",
        base=base.name,
        new=new.name,
        counted=counted_changes(totals(base, batch=base.batch), totals(new, batch=new.batch)),
        cheapest=None,
        same_instance=None,
        modules=module_changes(*(group_rows(one, by="module", batch=one.batch) for one in (base, new))),
        notes=(*modes, *batches),
    )


def _read(file: Path) -> Recommendation | Workload:
    try:
        document = parse_json(read_regular_file(file), where=str(file), hint=_HINT)
    except OSError as error:
        raise LoadError(f"{file}: {error.strerror}", hint="check the path and its permissions") from None
    if isinstance(document, dict) and "rows" in document:
        return workload_from_json(document, where=str(file))
    return _answer(document, where=str(file))


def _answer(document: Any, *, where: str) -> Recommendation:
    from pydantic import TypeAdapter

    found = document.get("schema_version") if isinstance(document, dict) else None
    if found != ANSWER_SCHEMA_VERSION:
        problem = f"found {found!r:.80}, this program reads {ANSWER_SCHEMA_VERSION}"
        raise DocumentError(problem, where=where, key="schema_version", hint=_HINT)
    return read_as(TypeAdapter(Recommendation), document, where=where, hint=_HINT)
